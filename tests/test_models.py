"""Opening models by name, their prices, and the scripted one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from citehound.budget import FREE, Budget, Price
from citehound.config import ModelConfig, PriceConfig
from citehound.drafts import Draft
from citehound.errors import ConfigError
from citehound.models import OpenedModel, open_model, open_small, require_price
from citehound.models.prices import look_up
from citehound.models.providers import PROVIDERS
from citehound.models.scripted import ScriptedModel, ScriptExhausted, Turn, call

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_BASE_URL")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "ANTHROPIC_BASE_URL", "VLLM_BASE_URL", "LLAMA_BASE_URL", "MY_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def refusal(name: str, **settings: Any) -> str:
    with pytest.raises(ConfigError) as wrong:
        open_model(ModelConfig(name=name, **settings))
    message = str(wrong.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["gpt-9", "anthropic:", ":x", "", "nowhere:big", "anthropic: "])
def test_an_unknown_name_is_refused_in_one_line(name: str) -> None:
    assert repr(name) in refusal(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("antropic:claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("opnai:gpt-5", "openai:gpt-5"),
        ("Anthropic:claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("llamacp:x", "llama.cpp:x"),
        ("openai-compatable:x", "openai-compatible:x"),
        ("claude-opus-5-5", "anthropic:claude-opus-5-5"),
        ("gpt-5", "openai:gpt-5"),
    ],
)
def test_a_slip_of_the_name_is_answered_with_what_was_meant(name: str, meant: str) -> None:
    assert f"did you mean '{meant}'?" in refusal(name)


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("anthropic:claude-sonnet-5", "anthropic"),
        ("openai:gpt-5", "openai"),
        ("google:gemini-2.5-pro", "google"),
        ("mistral:mistral-large-latest", "mistral"),
        ("groq:x", "groq"),
        ("cohere:x", "cohere"),
        ("huggingface:x", "huggingface"),
        ("bedrock:x", "bedrock"),
        ("ollama:x", "openai"),
        ("llama.cpp:x", "openai"),
        ("deepseek:x", "openai"),
    ],
)
def test_a_provider_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, name: str, extra: str) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise ImportError("please install")

    monkeypatch.setattr("citehound.models.providers._model", missing)
    monkeypatch.setenv("MY_API_KEY", "nothing-real")
    said = refusal(name, api_key_env="MY_API_KEY")
    assert f"pip install 'citehound[{extra}]'" in said


def test_every_extra_that_an_error_names_is_one_of_the_package() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for spec in PROVIDERS.values():
        assert any(f"pydantic-ai-slim[{spec.extra}]" in line for line in extras[spec.extra])


def test_a_missing_key_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "set ANTHROPIC_API_KEY in the environment" in refusal("anthropic:claude-opus-5-5")
    assert "GOOGLE_API_KEY or GEMINI_API_KEY" in refusal("google:gemini-2.5-pro")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-the-usual-place")
    assert "set MY_API_KEY" in refusal("anthropic:claude-opus-5-5", api_key_env="MY_API_KEY")
    monkeypatch.setenv("MY_API_KEY", "from-elsewhere")
    opened = open_model(ModelConfig(name="anthropic:claude-opus-5-5", api_key_env="MY_API_KEY"))
    assert cast(Any, opened.model).client.api_key == "from-elsewhere"


def test_a_compatible_endpoint_needs_its_address() -> None:
    assert "base_url" in refusal("openai-compatible:mine")
    assert "'mine.example'" in refusal("openai-compatible:mine", base_url="mine.example")


def test_the_offline_model_needs_an_index() -> None:
    with pytest.raises(ConfigError, match="citehound index"):
        open_model(ModelConfig(name="offline"))


LOCAL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("name", "address", "kind", "url"),
    [
        ("ollama:small", None, "OllamaModel", "http://localhost:11434/v1"),
        ("vllm:small", None, "OpenAIChatModel", "http://localhost:8000/v1"),
        ("llama.cpp:small", None, "OpenAIChatModel", "http://localhost:8080/v1"),
        ("openai-compatible:small", LOCAL, "OpenAIChatModel", LOCAL),
        ("openai:small", LOCAL, "OpenAIChatModel", LOCAL),
        ("openai-chat:small", LOCAL, "OpenAIChatModel", LOCAL),
        ("openai-responses:small", LOCAL, "OpenAIResponsesModel", LOCAL),
        ("anthropic:small", "http://127.0.0.1:1", "AnthropicModel", "http://127.0.0.1:1"),
    ],
)
def test_a_server_of_ones_own_needs_no_key(name: str, address: str | None, kind: str, url: str) -> None:
    opened = open_model(ModelConfig(name=name, base_url=address))
    assert kind in [t.__name__ for t in type(opened.model).__mro__]
    assert (opened.model.base_url or "").rstrip("/") == url
    assert opened.stream
    assert opened.tools


def test_openai_itself_is_asked_over_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "nothing-real")
    assert type(open_model(ModelConfig(name="openai:gpt-5")).model).__name__ == "OpenAIResponsesModel"
    assert type(open_model(ModelConfig(name="openai-chat:gpt-5")).model).__name__ == "OpenAIChatModel"
    monkeypatch.setenv("OPENAI_BASE_URL", LOCAL)
    assert type(open_model(ModelConfig(name="openai:gpt-5")).model).__name__ == "OpenAIChatModel"


def test_the_usual_variables_give_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:2")
    assert (open_model(ModelConfig(name="anthropic:x")).model.base_url or "").rstrip("/") == "http://127.0.0.1:2"
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://127.0.0.1:3/v1")
    assert (open_model(ModelConfig(name="ollama:x")).model.base_url or "").rstrip("/") == "http://127.0.0.1:3/v1"


@pytest.mark.parametrize("name", ["anthropic:claude-opus-5-5", "openai-chat:gpt-5", "ollama:x", "openai-responses:o"])
def test_nothing_retries_behind_the_meters_back(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "nothing-real")
    monkeypatch.setenv("OPENAI_API_KEY", "nothing-real")
    opened = open_model(ModelConfig(name=name, timeout=7.0))
    assert opened.settings.get("timeout") == 7.0
    assert cast(Any, opened.model).client.max_retries == 0
    # Said with a request, too, it would be sent by a copy of the client, which is made anew each time.
    assert "max_retries" not in opened.settings


def test_prompts_are_cached_and_thinking_is_kept_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "nothing-real")
    thinks = open_model(ModelConfig(name="anthropic:claude-opus-5-5")).settings
    assert thinks.get("cache") is True
    assert thinks.get("thinking") == "low"
    assert "thinking" not in open_model(ModelConfig(name="anthropic:claude-opus-5-5", thinking="auto")).settings
    assert "thinking" not in open_model(ModelConfig(name="ollama:x")).settings, "it does not think unasked"


def test_a_draft_is_asked_for_in_the_form_that_the_model_keeps_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "nothing-real")
    assert open_model(ModelConfig(name="ollama:x")).structured == "tool"
    assert open_model(ModelConfig(name="anthropic:claude-3-5-haiku-latest")).structured == "tool"
    assert open_model(ModelConfig(name="anthropic:claude-opus-5-5")).structured == "native", "no call can be forced"
    assert open_model(ModelConfig(name="anthropic:claude-opus-5-5", structured="tool")).structured == "tool"
    assert open_model(ModelConfig(name="ollama:x", structured="text")).structured == "text"
    assert not open_model(ModelConfig(name="ollama:x", stream=False)).stream


def test_a_model_of_ones_own_is_free_and_another_may_be_priced() -> None:
    own = open_model(ModelConfig(name="ollama:x"))
    assert own.price == FREE
    assert own.free
    assert open_model(ModelConfig(name="vllm:x", base_url="http://10.0.0.7:8000/v1")).free
    assert open_model(ModelConfig(name="ollama:x", base_url="https://ollama.example.com/v1")).price is None
    assert open_model(ModelConfig(name="openai-compatible:x", base_url=LOCAL)).price is None, "it may be a proxy"
    given = PriceConfig(input=3.0, output=15.0, cached=0.3, cache_write=3.75)
    priced = open_model(ModelConfig(name="ollama:x", price=given, window=9000))
    assert priced.price == Price(input=3.0, output=15.0, cached=0.3, cache_write=3.75)
    assert priced.window == 9000


def test_the_small_model_is_opened_with_what_is_its_own() -> None:
    main = ModelConfig(
        name="openai-compatible:big",
        base_url=LOCAL,
        window=1000,
        price=PriceConfig(input=3.0, output=15.0),
        small_price=PriceConfig(input=1.0, output=2.0),
    )
    assert open_small(main).name == "openai-compatible:big"
    small = open_small(replace(main, small="openai-compatible:little"))
    assert (small.name, small.price, small.window) == ("openai-compatible:little", Price(input=1.0, output=2.0), None)
    assert (small.model.base_url or "").startswith(LOCAL)
    other = open_small(replace(main, small="ollama:tiny", small_price=None))
    assert other.free
    assert "11434" in (other.model.base_url or "")


def test_prices_and_windows_are_looked_up() -> None:
    known = look_up("anthropic", "claude-sonnet-4-5", at=datetime(2026, 1, 1, tzinfo=UTC))
    assert known is not None
    assert known.price is not None
    assert known.price.input >= 3.0
    assert known.price.output >= 15.0
    assert known.price.cached is not None
    assert known.price.cached < known.price.input < (known.price.cache_write or 0)
    assert look_up("anthropic", "no-such-model-at-all") is None


@pytest.mark.parametrize("name", ["claude-opus-5-5", "claude-sonnet-5"])
def test_the_models_of_the_documentation_have_a_price_and_a_window(name: str) -> None:
    known = look_up("anthropic", name)
    assert known is not None
    assert known.price is not None
    assert known.price.cached is not None
    assert known.price.cache_write is not None
    assert known.window is not None


def test_long_requests_are_priced_at_their_own_tier() -> None:
    known = look_up("google", "gemini-2.5-pro")
    assert known is not None
    price = known.price
    assert price is not None
    tier = price.long[0]
    short = price.of(input_tokens=tier.above, output_tokens=0)
    assert short == pytest.approx(tier.above * price.input / 1e6)
    assert price.worst(input_tokens=tier.above, output_tokens=0) == pytest.approx(short)
    longer = price.of(input_tokens=tier.above + 1, output_tokens=0)
    assert longer == pytest.approx((tier.above + 1) * tier.input / 1e6)


@pytest.mark.parametrize("dollars", [0.0, 0.02, 0.5, 0.7, 0.77, 1.0, 1.6, 5.0])
@pytest.mark.parametrize(("input_tokens", "output_tokens"), [(0, 0), (1000, 1500), (150_000, 4000), (250_000, 1)])
def test_the_room_left_is_all_that_fits_and_no_more(dollars: float, input_tokens: int, output_tokens: int) -> None:
    long = Price(input=6.0, output=22.5, cached=0.6, cache_write=7.5, above=200_000)
    price = Price(input=3.0, output=15.0, cached=0.3, cache_write=3.75, long=(long,))
    room = price.room(dollars, input_tokens=input_tokens, output_tokens=output_tokens)
    assert room is not None
    size = input_tokens + room
    if size >= 0:
        assert price.worst(input_tokens=size, output_tokens=output_tokens) <= dollars + 1e-9
    assert price.worst(input_tokens=max(0, size + 1), output_tokens=output_tokens) > dollars
    assert FREE.room(dollars, input_tokens=input_tokens, output_tokens=output_tokens) is None


def test_an_unknown_price_is_refused_only_under_a_cap() -> None:
    opened = OpenedModel(model=ScriptedModel([]), name="x:y", price=None)
    with pytest.raises(ConfigError, match="'x:y'") as refused:
        require_price(opened, Budget(max_dollars=1.0))
    assert "[model.price]" in str(refused.value)
    assert "`input = 3.0` and `output = 15.0`" in str(refused.value)
    require_price(opened, Budget(max_dollars=None))


def play(model: ScriptedModel) -> ModelResponse:
    return asyncio.run(model.request([], None, ModelRequestParameters()))


def test_a_script_is_played_in_order_and_raises_when_it_is_over() -> None:
    model = ScriptedModel(["one", [call("a"), call("b", {"x": 1})], ValueError("three")])
    assert play(model).parts[0] == TextPart("one")
    names = [p.tool_name for p in play(model).parts if isinstance(p, ToolCallPart)]
    assert names == ["a", "b"]
    with pytest.raises(ValueError, match="three"):
        play(model)
    with pytest.raises(ScriptExhausted, match="has 3 turns, asked for number 4"):
        play(model)


def test_a_turn_may_be_a_function_of_the_request_and_usage_too() -> None:
    turns: list[Turn] = [lambda request: f"saw {len(request.messages)}", Draft()]
    model = ScriptedModel(turns, usage=lambda _: RequestUsage(input_tokens=5, output_tokens=6), repeat_last=True)
    first = play(model)
    assert first.parts[0] == TextPart("saw 0")
    assert (first.usage.input_tokens, first.usage.output_tokens) == (5, 6)
    for _ in range(3):
        assert isinstance(play(model).parts[0], TextPart)
    assert len(model.requests) == 4


def test_tools_are_turned_into_schemas_once_for_equal_requests() -> None:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    model = open_model(ModelConfig(name="openai-compatible:small", base_url="http://127.0.0.1:1/v1")).model

    def parameters(tool: str) -> ModelRequestParameters:
        schema = {"type": "object", "properties": {"query": {"type": "string"}}}
        return ModelRequestParameters(function_tools=[ToolDefinition(name=tool, parameters_json_schema=schema)])

    first = model.customize_request_parameters(parameters("search_rules"))
    assert model.customize_request_parameters(parameters("search_rules")) is first
    other = model.customize_request_parameters(parameters("search_deals"))
    assert [tool.name for tool in other.function_tools] == ["search_deals"]

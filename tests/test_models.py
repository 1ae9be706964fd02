"""Opening models by name, their prices, and the scripted one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from citehound.budget import FREE, Budget, Price
from citehound.config import ModelConfig
from citehound.drafts import Draft
from citehound.errors import ConfigError
from citehound.models import OpenedModel, open_model, require_price
from citehound.models.prices import look_up
from citehound.models.scripted import ScriptedModel, ScriptExhausted, Turn, call


@pytest.mark.parametrize("name", ["gpt-9", "anthropic:", ":x", "", "nowhere:big"])
def test_an_unknown_name_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        open_model(ModelConfig(name=name))
    assert repr(name) in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_provider_without_its_package_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError("please install")

    monkeypatch.setattr("pydantic_ai.models.infer_model", missing)
    with pytest.raises(ConfigError, match=r"pip install 'pydantic-ai-slim\[anthropic\]'"):
        open_model(ModelConfig(name="anthropic:claude-sonnet-4-5"))


def test_a_compatible_endpoint_needs_its_address() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        open_model(ModelConfig(name="openai-compatible:mine"))


def test_the_offline_model_needs_an_index() -> None:
    with pytest.raises(ConfigError, match="citehound index"):
        open_model(ModelConfig(name="offline"))


def test_the_test_model_is_free() -> None:
    class Client:
        max_retries = 2

    class Fake(ScriptedModel):
        client = Client()

    fake = Fake([])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("pydantic_ai.models.infer_model", lambda name: fake)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        opened = open_model(ModelConfig(name="ollama:small"))
        assert opened.price == FREE
        assert opened.free
        assert fake.client.max_retries == 0, "the client's own retries would spend behind the meter's back"
        priced = open_model(ModelConfig(name="mine:x", price_input=3.0, price_output=15.0, price_cached=0.3))
        assert priced.price == Price(input=3.0, output=15.0, cached=0.3)
        assert open_model(ModelConfig(name="mine:x")).price is None


def test_prices_and_windows_are_looked_up() -> None:
    known = look_up("anthropic", "claude-sonnet-4-5", at=datetime(2026, 1, 1, tzinfo=UTC))
    assert known is not None
    assert known.price is not None
    assert known.price.input >= 3.0
    assert known.price.output >= 15.0
    assert known.price.cached is not None
    assert known.price.cached < known.price.input < (known.price.cache_write or 0)
    assert look_up("anthropic", "no-such-model-at-all") is None


def test_an_unknown_price_is_refused_only_under_a_cap() -> None:
    opened = OpenedModel(model=ScriptedModel([]), name="x:y", price=None)
    with pytest.raises(ConfigError, match="'x:y'"):
        require_price(opened, Budget(max_dollars=1.0))
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

"""One contract for every wire format: the same investigation over each, against servers that speak the protocols."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters

from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.config import ModelConfig, PriceConfig
from citehound.corpus import Corpus
from citehound.errors import ConfigError
from citehound.events import Event
from citehound.models import open_model
from other_wires import serve_others
from protocol_server import serve
from small import WITHIN_24, opened

QUESTION = "Within how many hours must incidents be reported, and what has Alpha agreed to?"
KEY = "key-that-must-never-show-4711"
SIGNATURE = "c2lnbmF0dXJlLW9mLXRoZS1maXJzdC10dXJu"
REDACTED = "cmVkYWN0ZWQtdGhpbmtpbmctb3BhcXVl"
PRICE = PriceConfig(input=4.0, output=20.0, cached=0.4, cache_write=5.0)

Reply = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as it was sent: what never changes, and the messages."""

    body: dict[str, Any]
    system: Any
    tools: Any
    messages: list[Any]


@dataclass(frozen=True, kw_only=True)
class Format:
    """A wire format. `seals`: it has opaque fields that must come back; `writes`: it counts cache writes."""

    name: str
    model: str
    start: Callable[[Sequence[Reply]], Any]
    address: Callable[[Any], str]
    split: Callable[[dict[str, Any]], Seen]
    seals: bool = True
    writes: bool = False


def _anthropic(body: dict[str, Any]) -> Seen:
    return Seen(body=body, system=body.get("system"), tools=body.get("tools"), messages=body["messages"])


def _chat(body: dict[str, Any]) -> Seen:
    first, *rest = body["messages"]
    return Seen(body=body, system=first, tools=body.get("tools"), messages=rest)


def _responses(body: dict[str, Any]) -> Seen:
    system: Any = body.get("instructions")
    items = body["input"]
    if system is None:
        system, *items = items
    return Seen(body=body, system=system, tools=body.get("tools"), messages=items)


def _google(body: dict[str, Any]) -> Seen:
    return Seen(body=body, system=body.get("systemInstruction"), tools=body.get("tools"), messages=body["contents"])


FORMATS = (
    Format(
        name="anthropic",
        model="anthropic:claude-opus-5-5",
        start=serve,
        address=lambda s: s.anthropic_url,
        split=_anthropic,
        writes=True,
    ),
    Format(
        name="anthropic-tool-answer",
        model="anthropic:claude-3-5-haiku-latest",
        start=serve,
        address=lambda s: s.anthropic_url,
        split=_anthropic,
        writes=True,
    ),
    Format(
        name="openai-chat",
        model="openai-chat:gpt-5.6-sol",
        start=serve,
        address=lambda s: s.openai_url,
        split=_chat,
        seals=False,
    ),
    Format(
        name="openai-compatible",
        model="openai-compatible:local",
        start=serve,
        address=lambda s: s.openai_url,
        split=_chat,
        seals=False,
    ),
    Format(name="ollama", model="ollama:qwen3", start=serve, address=lambda s: s.openai_url, split=_chat, seals=False),
    Format(
        name="openai-responses",
        model="openai-responses:gpt-5.6-sol",
        start=serve_others,
        address=lambda s: s.openai_url,
        split=_responses,
    ),
    Format(
        name="google",
        model="google:gemini-2.5-pro",
        start=serve_others,
        address=lambda s: s.google_url,
        split=_google,
    ),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("providers")) as corpus:
        yield corpus


@pytest.fixture(scope="module", autouse=True)
def keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_API_KEY"):
            patched.setenv(name, KEY)
        patched.delenv("GEMINI_API_KEY", raising=False)
        yield


@pytest.fixture(scope="module", params=FORMATS, ids=lambda f: f.name)
def form(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture(scope="module", params=[False, True], ids=["json", "sse"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


@dataclass(frozen=True, kw_only=True)
class Asked:
    answer: Answer
    events: list[Event]
    sent: list[Seen]
    headers: list[dict[str, str]]


def configured(form: Format, server: Any, **settings: Any) -> ModelConfig:
    base = ModelConfig(name=form.model, base_url=form.address(server), price=PRICE, window=200_000)
    return replace(base, **settings)


@contextmanager
def asking(corpus: Corpus, form: Format, script: Sequence[Reply], **settings: Any) -> Generator[Callable[[], Asked]]:
    with form.start(script) as server:
        config = replace(corpus.config, model=configured(form, server, **settings))
        events: list[Event] = []

        def ask() -> Asked:
            answer = assistant.ask_sync(QUESTION, mode="agent", max_seconds=30)
            seen = server.requests()
            return Asked(
                answer=answer,
                events=events,
                sent=[form.split(r.body) for r in seen],
                headers=[{k.lower(): v for k, v in r.headers.items()} for r in seen],
            )

        assistant = Assistant(config, corpus, emit=events.append)
        yield ask


def tools(*calls: tuple[str, dict[str, Any]], **more: Any) -> Reply:
    return {"kind": "tools", "calls": [{"name": n, "args": a} for n, a in calls], **more}


USAGE = {"input_tokens": 3000, "output_tokens": 100, "cached_tokens": 2000, "cache_write_tokens": 500}
DRAFT: dict[str, Any] = {
    "claims": [
        {"text": WITHIN_24, "citations": [{"document": "rules/security", "quote": WITHIN_24}]},
        {
            "text": "Alpha reports incidents within 72 hours.",
            "citations": [{"document": "deals/alpha", "quote": "reports incidents within 72 hours of discovery"}],
        },
    ],
    "missing": [],
}
INVESTIGATION: list[Reply] = [
    tools(
        ("search_rules", {"query": "incidents reported"}),
        ("search_deals", {"query": "reports incidents", "supplier": "Alpha"}),
        thinking={"text": "the rule first, then the contract", "signature": SIGNATURE},
        usage=USAGE,
    ),
    tools(
        ("read_document", {"document": "rules/security"}),
        ("read_document", {"document": "no-such-document"}),
        ("read_document", {"document": "deals/alpha"}),
        thinking={"data": REDACTED},
        usage=USAGE,
    ),
    {"kind": "draft", "draft": DRAFT, "usage": USAGE},
]


@pytest.fixture(scope="module")
def asked(corpus: Corpus, form: Format, stream: bool) -> Asked:
    """The investigation over one wire format, once for all tests that look at it."""
    with asking(corpus, form, INVESTIGATION, stream=stream) as ask:
        return ask()


def test_an_investigation_ends_in_a_verified_answer(asked: Asked) -> None:
    answer = asked.answer
    assert (answer.status, answer.stop_reason) == ("complete", "answered"), answer.warnings
    assert [claim.status for claim in answer.claims] == ["verified", "verified"]
    assert [(c.step, c.tool) for c in answer.calls] == [
        (1, "search_rules"),
        (1, "search_deals"),
        (2, "read_document"),
        (2, "read_document"),
        (2, "read_document"),
    ]
    assert [c.error is not None for c in answer.calls] == [False, False, False, True, False]
    assert (answer.usage.steps, answer.usage.model_calls) == (3, 3)


def test_results_and_refusals_reach_the_model(asked: Asked) -> None:
    last = json.dumps(asked.sent[2].messages, ensure_ascii=False)
    assert WITHIN_24 in last
    assert "no-such-document" in last
    assert "rules/security" in json.dumps(asked.sent[1].messages)


def test_tokens_are_counted_and_priced_cached_ones_as_such(asked: Asked, form: Format) -> None:
    used = asked.answer.usage
    assert (used.input_tokens, used.cached_tokens, used.output_tokens) == (9000, 6000, 300)
    written = USAGE["cache_write_tokens"] if form.writes else 0
    each = (1000 - written) * PRICE.input + 2000 * 0.4 + written * 5.0 + 100 * PRICE.output
    assert used.dollars == pytest.approx(3 * each / 1e6)


def test_what_is_sealed_comes_back_word_for_word(asked: Asked, form: Format) -> None:
    if not form.seals:
        pytest.skip("the format has no sealed fields")
    for later in asked.sent[1:]:
        assert _unpadded(SIGNATURE) in _unpadded(json.dumps(later.messages))


def _unpadded(text: str) -> str:
    """Base64 in either alphabet, so that the bytes are compared."""
    return text.replace("-", "+").replace("_", "/").replace("=", "")


def test_redacted_thinking_comes_back_in_its_place(asked: Asked, form: Format) -> None:
    if not form.name.startswith("anthropic"):
        pytest.skip("only this protocol has it")
    replayed = asked.sent[2].messages[3]
    assert replayed["role"] == "assistant"
    assert replayed["content"][0] == {"type": "redacted_thinking", "data": REDACTED}


def test_reasoning_that_came_as_text_comes_back(asked: Asked, form: Format) -> None:
    if form.seals:
        pytest.skip("the reasoning of this format is sealed")
    assert "the rule first, then the contract" in json.dumps(asked.sent[1].messages)


def _unmarked(value: Any) -> Any:
    """Without the marks that say up to where the provider should cache: they move on from turn to turn."""
    if isinstance(value, dict):
        kept = {k: _unmarked(v) for k, v in value.items() if k not in ("cache_control", "prompt_cache_breakpoint")}
        content = kept.get("content")
        if isinstance(content, list) and len(content) == 1 and set(content[0]) == {"type", "text"}:
            kept["content"] = content[0]["text"]
        return kept
    if isinstance(value, list):
        return [_unmarked(v) for v in value]
    return value


def test_each_request_begins_with_the_one_before(asked: Asked) -> None:
    assert len(asked.sent) == 3
    for before, after in zip(asked.sent, asked.sent[1:], strict=False):
        assert json.dumps(_unmarked(after.system)) == json.dumps(_unmarked(before.system))
        assert json.dumps(after.tools) == json.dumps(before.tools), "tools and their order"
        assert _unmarked(after.messages)[: len(before.messages)] == _unmarked(before.messages)
        assert len(after.messages) > len(before.messages)


def test_prompts_are_marked_for_caching_where_the_provider_wants_it(asked: Asked, form: Format) -> None:
    first = asked.sent[0]
    if form.name.startswith("anthropic"):
        assert "cache_control" in json.dumps(first.system)
        assert "cache_control" in json.dumps(first.tools)
        assert first.body["cache_control"]["type"] == "ephemeral"
    if form.name == "openai-responses":
        assert first.body["prompt_cache_options"]["ttl"] == "30m"


def test_output_is_capped_in_words_that_the_server_knows(asked: Asked, form: Format) -> None:
    caps = {
        "anthropic": ("max_tokens",),
        "openai-chat": ("max_completion_tokens",),
        "openai-compatible": ("max_tokens",),
        "ollama": ("max_tokens",),
        "openai-responses": ("max_output_tokens",),
        "google": ("generationConfig", "maxOutputTokens"),
    }[form.name.removesuffix("-tool-answer")]
    value: Any = asked.sent[0].body
    for key in caps:
        value = value[key]
    assert value == 1500


def test_the_last_answer_keeps_the_tools_of_the_turns(corpus: Corpus, form: Format, stream: bool) -> None:
    nothing: Reply = {"kind": "draft", "draft": {"claims": [], "missing": [{"what": "both", "reason": "not read"}]}}
    with form.start([INVESTIGATION[0], nothing]) as server:
        config = replace(corpus.config, model=configured(form, server, stream=stream))
        answer = Assistant(config, corpus).ask_sync(QUESTION, mode="agent", max_steps=2, max_seconds=30)
        first, last = [form.split(r.body) for r in server.requests()]
    assert answer.stop_reason == "steps"
    assert json.dumps(last.tools) == json.dumps(first.tools)


def test_no_secret_is_in_an_error_an_event_or_the_record(
    corpus: Corpus, form: Format, stream: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    said = {"kind": "http", "status": 401, "error_type": "authentication_error", "message": f"wrong key: {KEY}"}
    with asking(corpus, form, [said], stream=stream) as ask:
        asked = ask()
    assert (asked.answer.status, asked.answer.stop_reason) == ("failed", "model_error")
    assert len(asked.sent) == 1, "a refused key is not tried again"
    assert KEY in json.dumps(asked.headers[0]), "it goes in a header, and nowhere else"
    assert KEY not in json.dumps(asked.sent[0].body)
    assert KEY not in json.dumps(asked.answer.to_dict())
    assert KEY not in repr(asked.events)
    for file in corpus.config.state.rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes()
    written = capfd.readouterr()
    assert KEY not in written.out + written.err


@pytest.mark.parametrize("status", [429, 529])
def test_a_client_sends_a_request_once(form: Format, stream: bool, status: int) -> None:
    fault = {"kind": "http", "status": status, "error_type": "overloaded_error", "message": "no"}
    with form.start([fault] * 4) as server:
        model = open_model(configured(form, server))
        message = ModelRequest(parts=[UserPromptPart("hello")])

        async def send() -> None:
            settings = copy.copy(model.settings)
            settings["max_tokens"] = 100
            async with model.model:
                if stream:
                    async with model.model.request_stream([message], settings, ModelRequestParameters()) as reply:
                        async for _ in reply:
                            pass
                else:
                    await model.model.request([message], settings, ModelRequestParameters())

        with pytest.raises(Exception, match=str(status)):
            asyncio.run(send())
        assert len(server.requests()) == 1


@pytest.mark.parametrize("structured", ["tool", "native", "text"])
def test_an_answer_is_taken_in_each_form(corpus: Corpus, form: Format, stream: bool, structured: str) -> None:
    if structured == "native" and form.name in ("google", "anthropic-tool-answer"):
        with form.start([]) as server, pytest.raises(ConfigError, match="takes no schema"):
            open_model(configured(form, server, structured=structured))
        return
    final: Reply = INVESTIGATION[2]
    if structured == "text":
        lines = [f'{c["text"]} [{q["document"]}] "{q["quote"]}"' for c in DRAFT["claims"] for q in c["citations"]]
        final = {"kind": "final", "text": "\n".join(lines), "usage": USAGE}
    script = [*INVESTIGATION[:2], final]
    with asking(corpus, form, script, stream=stream, structured=structured) as ask:
        asked = ask()
    assert asked.answer.status == "complete", asked.answer.warnings
    assert [claim.status for claim in asked.answer.claims] == ["verified", "verified"]
    assert ("final_answer" in json.dumps(asked.sent[0].tools)) == (structured == "tool")


def test_a_model_is_asked_again_in_another_event_loop(corpus: Corpus, form: Format) -> None:
    with asking(corpus, form, [*INVESTIGATION, *INVESTIGATION], stream=False) as ask:
        assert [ask().answer.status, ask().answer.status] == ["complete", "complete"]

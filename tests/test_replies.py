"""Replies of odd shapes: what can be told apart is kept and can be sent back, the rest is left out."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from citehound.budget import Budget
from citehound.config import ModelConfig, PriceConfig
from citehound.corpus import Corpus
from citehound.models import OpenedModel, open_model
from citehound.replies import readable
from citehound.wire import fault_of
from protocol_server import serve
from small import opened, run_agent

DEEP = '{"query":' + "[" * 5000 + "]" * 5000 + "}"


def calls_of(response: ModelResponse) -> list[ToolCallPart]:
    return [part for part in readable(response).parts if isinstance(part, ToolCallPart)]


def test_a_reply_in_order_comes_back_as_it_is() -> None:
    response = ModelResponse(
        parts=[
            ThinkingPart("hm", signature="sealed"),
            TextPart("I look."),
            ToolCallPart("search_policies", {"query": "Zürich 😀"}, "a"),
            ToolCallPart("search_policies", '{"query": "broken', "b"),
            ToolCallPart("search_policies", None, "c"),
        ]
    )
    assert readable(response) is response


def test_calls_with_the_same_id_get_ids_of_their_own() -> None:
    same = [ToolCallPart("read_document", {"document": f"d{n}"}, "same") for n in range(3)]
    empty = [ToolCallPart("read_document", {"document": f"e{n}"}, "") for n in range(2)]
    ids = [call.tool_call_id for call in calls_of(ModelResponse(parts=[*same, *empty]))]
    assert ids[0] == "same"
    assert len(set(ids)) == 5
    assert all(ids)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (None, "unnamed"),
        ("", "unnamed"),
        ("functions.search policies", "functions_search_policies"),
        ("x" * 200_000, "x" * 64),
    ],
)
def test_a_call_gets_a_name_that_every_provider_takes_back(name: Any, kept: str) -> None:
    assert [call.tool_name for call in calls_of(ModelResponse(parts=[ToolCallPart(name, {}, "a")]))] == [kept]


@pytest.mark.parametrize("args", [{"query": "enc\ud800ryption", "k": [1, "\udc00"]}, '{"query": "enc\\ud800ryption"}'])
def test_half_characters_are_not_sent_back(args: Any) -> None:
    (call,) = calls_of(ModelResponse(parts=[ToolCallPart("search_policies", args, "a")]))
    assert call.args_as_dict()["query"] == "enc\ufffdryption"
    json.dumps(call.args_as_dict(), ensure_ascii=False).encode()


def test_arguments_nested_too_deep_are_no_arguments() -> None:
    (call,) = calls_of(ModelResponse(parts=[ToolCallPart("search_policies", DEEP, "a")]))
    assert call.args == DEEP[:200]


def test_text_that_is_no_text_is_left_out() -> None:
    response = ModelResponse(parts=[TextPart(cast(str, None)), TextPart("He\ud800llo")])
    assert readable(response).parts == [TextPart("He\ufffdllo")]


@pytest.mark.parametrize("problem", [AssertionError("unexpected item"), RecursionError("too deep")])
def test_what_a_client_cannot_read_is_asked_for_again(problem: Exception) -> None:
    assert (fault_of(problem).kind, fault_of(problem).passing) == ("malformed", True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("replies")) as corpus:
        yield corpus


def anthropic(address: str, *, stream: bool) -> OpenedModel:
    price = PriceConfig(input=3.0, output=15.0)
    return open_model(ModelConfig(name="anthropic:claude-sonnet-5", base_url=address, stream=stream, price=price))


FINAL = {"kind": "final", "text": "Data is encrypted."}


def raw(content: list[dict[str, Any]]) -> dict[str, Any]:
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }
    return {"kind": "raw", "status": 200, "body": json.dumps(message), "headers": {"content-type": "application/json"}}


def use(name: str | None, identity: str, **given: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": name, "input": given}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([use("search_policies", "x", query="a"), use("search_policies", "x", query="b")], id="same-id"),
        pytest.param([use(None, "x")], id="no-name"),
        pytest.param([use("functions.search policies", "x", query="a")], id="odd-name"),
        pytest.param([use("search_policies", "x", query="\ud800")], id="half-character"),
        pytest.param([{"type": "text", "text": None}, use("search_policies", "x", query="a")], id="no-text"),
        pytest.param([{"type": "hologram", "text": None}, use("search_policies", "x", query="a")], id="odd-block"),
    ],
)
def test_a_run_goes_on_after_an_odd_reply(
    corpus: Corpus, content: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    with serve([raw(content), {**FINAL, "repeat": True}], protocol="anthropic") as server:
        ran = run_agent(corpus, [], model=anthropic(server.base_url, stream=False), budget=Budget())
        requests = server.requests()
    assert ran.outcome.stop_reason == "answered"
    assert ran.ledger.evidence().calls
    blocks: list[Any] = [block for m in requests[1].messages for block in m["content"]]
    uses: list[dict[str, Any]] = [b for b in blocks if b["type"] == "tool_use"]
    assert len({block["id"] for block in uses}) == len(uses)
    assert all(block["name"].replace("_", "").isalnum() for block in uses)


def test_a_draft_that_is_sent_back_leaves_the_cached_prefix_as_it_was(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    unread = {"text": "Not read.", "citations": [{"document": "nowhere", "quote": "four words and more"}]}
    search = {"kind": "tool", "name": "search_policies", "args": {"query": "a"}}
    back = {"kind": "final", "text": json.dumps({"claims": [unread], "missing": []})}
    with serve([search, {**back, "repeat": True}], protocol="anthropic") as server:
        model = anthropic(server.base_url, stream=False)
        run_agent(corpus, [], model=replace(model, structured="native"), budget=Budget())
        requests = server.requests()
    assert len(requests) == 3
    assert len({json.dumps(r.body["system"]) for r in requests}) == 1

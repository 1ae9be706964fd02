"""The scripted model server, seen through the official clients of both protocols."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from protocol_server import FAULTS, TEXT, Reply, Server, blackhole, common_prefix, refusing, serve

TOOLS = [{"name": "search_policies", "description": "Search.", "input_schema": {"type": "object", "properties": {}}}]
ANSWER = {"name": "hand_in", "description": "Answer.", "input_schema": {"type": "object", "properties": {"claims": {}}}}


def functions(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": t["name"], "description": "x", "parameters": t["input_schema"]}}
        for t in tools
    ]


def claude(server: Server, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.base_url, api_key="key-a", **{"max_retries": 0, **more})


def gpt(server: Server, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.openai_url, api_key="key-o", **{"max_retries": 0, **more})


def ask_claude(client: anthropic.Anthropic, text: str = "hello", *, tools: Any = TOOLS, **more: Any) -> Any:
    with client:
        messages = [{"role": "user", "content": text}]
        return client.messages.create(model="m", max_tokens=100, messages=messages, tools=tools, **more)  # type: ignore[arg-type]


def stream_claude(client: anthropic.Anthropic, *, tools: Any = TOOLS) -> Any:
    with (
        client,
        client.messages.stream(
            model="m", max_tokens=100, messages=[{"role": "user", "content": "hello"}], tools=tools
        ) as stream,
    ):
        return stream.get_final_message()


def ask_gpt(client: openai.OpenAI, text: str = "hello", *, tools: Any = TOOLS, **more: Any) -> Any:
    with client:
        messages = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="m", messages=messages, tools=functions(tools), **more)  # type: ignore[arg-type]


def stream_gpt(client: openai.OpenAI, *, tools: Any = TOOLS) -> Any:
    with (
        client,
        client.chat.completions.stream(
            model="m",
            messages=[{"role": "user", "content": "hello"}],
            tools=functions(tools),  # type: ignore[arg-type]
            stream_options={"include_usage": True},
        ) as stream,
    ):
        return stream.get_final_completion()


USAGE = {"input_tokens": 1000, "output_tokens": 20, "cached_tokens": 600, "cache_write_tokens": 300}
EVERYTHING: Reply = {
    "kind": "tools",
    "thinking": {"text": "the policy first, then the contract", "signature": "c2lnbmF0dXJl"},
    "say": "I search both.",
    "calls": [
        {"name": "search_policies", "args": {"query": "sub-outsourcing — Verschlüsselung"}},
        {"name": "search_policies", "args": {"query": "incident deadline"}},
    ],
    "usage": {**USAGE, "reasoning_tokens": 7},
}


@pytest.mark.parametrize("fetch", [ask_claude, stream_claude])
def test_anthropic_reply_comes_whole_in_json_and_in_a_stream(fetch: Any) -> None:
    with serve([EVERYTHING]) as server:
        message = fetch(claude(server))
    thinking, said, *calls = message.content
    assert (thinking.type, thinking.thinking) == ("thinking", EVERYTHING["thinking"]["text"])
    assert thinking.signature == "c2lnbmF0dXJl"
    assert said.text == "I search both."
    assert [(c.name, c.input) for c in calls] == [(c["name"], c["args"]) for c in EVERYTHING["calls"]]
    assert len({c.id for c in calls}) == 2
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (100, 20)
    assert (message.usage.cache_read_input_tokens, message.usage.cache_creation_input_tokens) == (600, 300)


@pytest.mark.parametrize("fetch", [ask_gpt, stream_gpt])
def test_openai_reply_comes_whole_in_json_and_in_a_stream(fetch: Any) -> None:
    with serve([EVERYTHING]) as server:
        completion = fetch(gpt(server))
    choice = completion.choices[0]
    assert choice.message.content == "I search both."
    calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls]
    assert calls == [(c["name"], c["args"]) for c in EVERYTHING["calls"]]
    assert choice.finish_reason == "tool_calls"
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (1000, 20)
    assert completion.usage.prompt_tokens_details.cached_tokens == 600
    assert completion.usage.completion_tokens_details.reasoning_tokens == 7


def test_anthropic_stream_has_the_real_order_of_events() -> None:
    with serve([{"kind": "tool", "name": "search_policies", "args": {"q": "x"}, "say": "a"}]) as server:
        client = claude(server)
        with client:
            events = client.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "hello"}], stream=True
            )
            kinds = [event.type for event in events]
    assert kinds[:3] == ["message_start", "content_block_start", "ping"] or kinds[:2] == [
        "message_start",
        "content_block_start",
    ]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2


def test_requests_are_kept_with_bodies_and_headers_in_order() -> None:
    with serve([{"kind": "final", "text": TEXT, "repeat": 2}]) as server:
        ask_claude(claude(server), "first")
        ask_gpt(gpt(server), "second")
        one, two = server.requests()
    assert (one.path, two.path) == ("/v1/messages", "/v1/chat/completions")
    assert one.messages[0]["content"] == "first" and two.messages[0]["content"] == "second"
    assert one.headers.get("x-api-key", one.headers.get("authorization")) in ("key-a", "Bearer key-a")
    assert two.headers["authorization"] == "Bearer key-o"
    assert one.tool_names == two.tool_names == ["search_policies"]
    assert one.usage is not None and one.usage["output_tokens"] == 15


def test_a_script_that_is_played_out_says_so() -> None:
    with serve([{"kind": "final", "text": TEXT}]) as server:
        ask_claude(claude(server))
        with pytest.raises(anthropic.BadRequestError, match="script_exhausted"):
            ask_claude(claude(server))


def test_scripts_are_chosen_by_key_model_or_words_of_the_question() -> None:
    scripts = {name: [{"kind": "final", "text": name}] for name in ("key-o", "m2", "alpha")}
    with serve([{"kind": "final", "text": "default", "repeat": True}], scripts=scripts) as server:
        assert ask_gpt(gpt(server)).choices[0].message.content == "key-o"
        assert ask_claude(claude(server), "about alpha?").content[0].text == "alpha"
        assert ask_claude(claude(server), "about beta?").content[0].text == "default"
        with claude(server) as client:
            asked = [{"role": "user", "content": "x"}]
            reply: Any = client.messages.create(model="m2", max_tokens=9, messages=asked)  # type: ignore[arg-type]
        assert reply.content[0].text == "m2"


def test_each_question_plays_its_own_copy_at_the_same_time() -> None:
    script = [{"kind": "final", "text": "one"}, {"kind": "final", "text": "two"}]
    with serve(script, per="question") as server:

        def session(number: int) -> list[str]:
            return [ask_claude(claude(server), f"question {number}").content[0].text for _ in range(2)]

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(session, range(8))) == [["one", "two"]] * 8


def test_a_function_makes_the_replies(tmp_path: Path) -> None:
    code = "def reply(body, about):\n    return {'kind': 'final', 'text': body['model'] + str(about['attempt'])}\n"
    (tmp_path / "play.py").write_text(code, "utf-8")
    with serve(module=f"{tmp_path / 'play.py'}:reply") as server:
        assert ask_gpt(gpt(server)).choices[0].message.content == "m0"
        assert ask_gpt(gpt(server)).choices[0].message.content == "m1"


def test_injected_faults_depend_on_the_seed_and_leave_the_script_where_it_is() -> None:
    def outcomes(seed: int) -> list[bool]:
        script = [{"kind": "final", "text": "ok", "repeat": True}]
        with serve(script, faults=0.3, seed=seed, fault_list=[FAULTS[0]]) as server:
            for _ in range(20):
                try:
                    assert ask_claude(claude(server)).content[0].text == "ok"
                except anthropic.APIStatusError as problem:
                    assert problem.status_code == 529
            return [request.injected for request in server.requests()]

    first = outcomes(1)
    assert first == outcomes(1) != outcomes(2)
    assert 0 < sum(first) < 15


def test_draft_goes_through_the_answer_tool_or_comes_as_json_text() -> None:
    draft = {"claims": [{"text": "a"}], "missing": []}
    with serve([{"kind": "draft", "draft": draft, "repeat": True}]) as server:
        call = ask_claude(claude(server), tools=[*TOOLS, ANSWER]).content[0]
        assert (call.name, call.input) == ("hand_in", draft)
        assert json.loads(ask_claude(claude(server)).content[0].text) == draft
        function = ask_gpt(gpt(server), tools=[*TOOLS, ANSWER]).choices[0].message.tool_calls[0].function
        assert (function.name, json.loads(function.arguments)) == ("hand_in", draft)


def test_two_drafts_and_thousands_of_calls_come_in_one_reply() -> None:
    many = {"kind": "tools", "calls": [{"name": "search_policies", "args": {}}], "times": 3000}
    with serve([{"kind": "drafts", "drafts": [{"claims": []}, {"claims": [1]}]}, many]) as server:
        assert [c.input for c in ask_claude(claude(server), tools=[ANSWER]).content] == [
            {"claims": []},
            {"claims": [1]},
        ]
        assert len(ask_gpt(gpt(server)).choices[0].message.tool_calls) == 3000


@pytest.mark.parametrize(
    ("stop", "anthropic_stop", "openai_stop"),
    [("max_tokens", "max_tokens", "length"), ("refusal", "refusal", "stop"), ("end_turn", "end_turn", "stop")],
)
def test_stop_reasons_are_the_protocols_own(stop: str, anthropic_stop: str, openai_stop: str) -> None:
    with serve([{"kind": "final", "text": "", "stop": stop, "repeat": True}]) as server:
        assert ask_claude(claude(server)).stop_reason == anthropic_stop
        choice = ask_gpt(gpt(server)).choices[0]
        assert choice.finish_reason == openai_stop
        assert (choice.message.refusal is not None) == (stop == "refusal")


def test_missing_usage_is_missing() -> None:
    with serve([{"kind": "final", "text": "ok", "usage": None, "repeat": True}]) as server:
        assert getattr(ask_claude(claude(server)), "usage", None) is None
        assert ask_gpt(gpt(server)).usage is None
        billed = [r.usage for r in server.requests()]
    assert all(u and u["input_tokens"] for u in billed)


def test_a_cached_prefix_is_counted_when_it_is_marked() -> None:
    long = "word " * 2000
    system = [{"type": "text", "text": long, "cache_control": {"type": "ephemeral"}}]
    with serve([{"kind": "final", "text": "ok", "repeat": True}]) as server:
        first = ask_claude(claude(server), "a", system=system).usage
        second = ask_claude(claude(server), "b", system=system).usage
        unmarked = ask_claude(claude(server), "b", system=long).usage
    assert first.cache_read_input_tokens == 0 and first.cache_creation_input_tokens > 2000
    assert second.cache_read_input_tokens > 2000 and second.input_tokens == 0
    assert unmarked.cache_read_input_tokens == 0 and unmarked.input_tokens > 2000


def test_shared_prefix_is_counted_in_characters() -> None:
    assert common_prefix("abcde", "abxde") == 2
    assert common_prefix("", "x") == 0
    assert common_prefix("same", "same") == 4


def test_a_broken_stream_ends_early_on_both_sides() -> None:
    with serve([{"kind": "stream_break", "after": 40, "repeat": True}]) as server:
        for fetch in (lambda: stream_claude(claude(server)), lambda: ask_claude(claude(server))):
            with pytest.raises(Exception, match=r"(?i)connection"):
                fetch()
        with pytest.raises(Exception, match=r"(?i)connection"):
            stream_gpt(gpt(server))


def test_a_held_request_waits_for_the_client_only() -> None:
    with serve([{"kind": "timeout", "phase": "read"}, {"kind": "final", "text": "ok"}]) as server:
        with pytest.raises(anthropic.APITimeoutError):
            ask_claude(claude(server, timeout=1.0))
        assert ask_claude(claude(server)).content[0].text == "ok"


def test_waiting_for_a_request_needs_no_sleep() -> None:
    with serve([{"kind": "timeout", "phase": "read"}]) as server, ThreadPoolExecutor(1) as pool:
        pending = pool.submit(ask_claude, claude(server))
        (request,) = server.wait_for(1)
        assert request.reply["kind"] == "timeout"
        server.close()
        assert isinstance(pending.exception(), anthropic.APIConnectionError)


def test_addresses_that_refuse_or_never_accept() -> None:
    with refusing() as url, pytest.raises(anthropic.APIConnectionError):
        ask_claude(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0))
    with blackhole() as url, pytest.raises(anthropic.APITimeoutError):
        ask_claude(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=0.2))


def test_a_protocol_can_be_switched_off() -> None:
    with serve([{"kind": "final", "text": "ok"}], protocol="openai") as server, pytest.raises(anthropic.NotFoundError):
        ask_claude(claude(server))


def shared_rows(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / "attacks" / "provider_faults.jsonl").read_text("utf-8").splitlines():
        yield json.loads(line)


def _outcome(protocol: str, server: Server, asked: str, *, wait: float) -> str:
    try:
        if protocol == "anthropic":
            ask_claude(claude(server, timeout=wait), asked)
        else:
            ask_gpt(gpt(server, timeout=wait), asked)
    except (anthropic.APIStatusError, openai.APIStatusError) as problem:
        return str(problem.status_code)
    except Exception as problem:
        return type(problem).__name__
    return "ok"


@pytest.mark.parametrize("protocol", ["anthropic", "openai"])
def test_every_shared_fault_can_be_played(shared_data: Path, protocol: str) -> None:
    rows = list(shared_rows(shared_data))
    scripts = {f"[{row['id']}]": row["script"] for row in rows}
    with serve(scripts=scripts) as server:
        for row in rows:
            for reply in row["script"]:
                wait = 1.0 if reply["kind"] == "timeout" else 60
                outcome = _outcome(protocol, server, f"[{row['id']}]", wait=wait)
                if reply["kind"] == "http":
                    assert outcome == str(reply["status"])
                elif reply["kind"] in ("timeout", "stream_break"):
                    assert re.search("Connection|Timeout|Error", outcome)
                elif reply["kind"] != "raw":
                    assert outcome == "ok", row["name"]
        played = [request.reply for request in server.requests()]
    assert played == [reply for row in rows for reply in row["script"]]


def test_errors_have_the_shape_of_their_protocol() -> None:
    cap = {"kind": "http", "status": 429, "error_type": "rate_limit_error", "error_code": "spend", "repeat": 2}
    with serve([{**cap, "headers": {"retry-after": "2"}}]) as server:
        with pytest.raises(anthropic.RateLimitError) as one:
            ask_claude(claude(server))
        with pytest.raises(openai.RateLimitError) as two:
            ask_gpt(gpt(server))
    assert one.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    assert one.value.response.headers["retry-after"] == "2"
    assert two.value.code == "spend" and two.value.type == "rate_limit_error"

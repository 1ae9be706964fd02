"""Whatever a provider does, a run ends with a typed outcome: played over both real protocols, JSON and SSE."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import ModelResponse

from citehound.access import OWNER
from citehound.agent import run_agent as run_agent_of
from citehound.answers import status_of
from citehound.budget import Budget, Meter, Price
from citehound.config import ModelConfig
from citehound.corpus import Corpus
from citehound.drafts import Draft
from citehound.events import Event, Retry
from citehound.loop import Outcome
from citehound.models import OpenedModel, open_model
from citehound.models.scripted import ScriptedModel, ScriptedRequest, call
from citehound.rendering import render_text
from citehound.runs import RunStore
from citehound.wire import FIRST_PAUSE, LONGEST_PAUSE, MAX_ATTEMPTS, fault_of, pause_before
from protocol_server import Received, Server, blackhole, refusing, serve, text_of
from small import GOOD, Ran, conversation_of, opened, run_agent

OWN = Path(__file__).parent / "data" / "provider_faults.jsonl"
KEY = "canary-key-0123456789"
PROTOCOLS = ("anthropic", "anthropic-sse", "openai", "openai-sse")
NAMES = {"anthropic": "anthropic:claude-sonnet-5", "openai": "openai:gpt-5.2"}
REASONS = {"provider": "model_error"}
FILES = {
    "policies/contract-alpha-security-annex.md": "# Annex\n\n## 1 Encryption\n\nAll data is encrypted at rest.\n",
    **{
        f"policies/d{n}.md": f"# Number {n}\n\n## 1 Retention\n\nRecords of kind {word} are kept for {n + 5} years.\n"
        for n, word in enumerate(("zero", "one", "two", "three", "four", "five"))
    },
}
TOML = '[[sources]]\nname = "policies"\npath = "policies"\ndescription = "Policies and contracts."\n'


READ_D0 = {"kind": "tool", "name": "read_document", "args": {"document": "d0"}}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("faults"), FILES, toml=TOML) as corpus:
        yield corpus


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


@pytest.fixture(scope="module")
def shared_rows(shared_data: Path) -> list[dict[str, Any]]:
    return rows(shared_data / "attacks" / "provider_faults.jsonl")


def scripts_of(given: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One script per row and protocol, keyed by the API key it is asked with."""
    return {key_of(row, protocol): scripted(row) for row in given for protocol in PROTOCOLS}


def key_of(row: dict[str, Any], protocol: str) -> str:
    return f"{KEY}-{row['id']}-{protocol}"


def scripted(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows name the argument of `read_document` as they like; the tool takes `document`."""
    text = json.dumps(row["script"]).replace("{{KEY}}", KEY)
    return json.loads(text.replace('"args": {"id": "', '"args": {"document": "'))


@dataclass(frozen=True, kw_only=True)
class Played:
    ran: Ran
    events: list[Event]
    waits: list[float]
    requests: list[Received]

    @property
    def retries(self) -> list[Retry]:
        return [e for e in self.events if isinstance(e, Retry)]

    @property
    def status(self) -> str:
        outcome = self.ran.outcome
        text = outcome.text or (
            render_text(outcome.claims, outcome.missing) if outcome.claims or outcome.missing else ""
        )
        return status_of(
            stop_reason=outcome.stop_reason,
            text=text,
            claims=outcome.claims,
            missing=outcome.missing,
            direct=outcome.text is not None,
        )

    def shown(self) -> str:
        """Everything that the run shows or keeps."""
        kept = [e.to_dict() for e in self.events]
        return f"{self.ran.outcome!r} {json.dumps(kept, default=str)} {self.ran.ledger.evidence()!r}"


def opened_model(
    protocol: str, address: str, key: str, monkeypatch: pytest.MonkeyPatch, *, timeout: float = 30.0
) -> OpenedModel:
    """The model as a configuration names it, with a short time-out for the rows that hang."""
    kind, _, sse = protocol.partition("-")
    monkeypatch.setenv("ANTHROPIC_API_KEY" if kind == "anthropic" else "OPENAI_API_KEY", key)
    base = address if kind == "anthropic" else f"{address}/v1"
    config = ModelConfig(name=NAMES[kind], base_url=base, timeout=timeout, stream=bool(sse), structured="tool")
    model = open_model(config)
    assert model.stream == bool(sse)
    return replace(model, price=Price(input=5.0, output=25.0, cached=0.5, cache_write=6.25))


def play(corpus: Corpus, row: dict[str, Any], protocol: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> Played:
    hangs = any(reply["kind"] == "timeout" for reply in row["script"])
    key = key_of(row, protocol)
    model = opened_model(protocol, server.base_url, key, monkeypatch, timeout=1.0 if hangs else 30.0)
    events: list[Event] = []
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    ran = run_agent(corpus, [], model=model, budget=Budget(), emit=events.append, sleep=pause, question="Is it so?")
    mine = [r for r in server.requests() if r.session == key]
    return Played(ran=ran, events=events, waits=waits, requests=mine)


def judge(row: dict[str, Any], played: Played) -> None:
    """What a row expects, whatever row it is."""
    expect, ran = row["expect"], played.ran
    outcome, spent = ran.outcome, ran.meter.spent()
    calls = ran.ledger.evidence().calls
    match expect["outcome"]:
        case "answer":
            assert played.status in ("complete", "partial", "direct")
            assert outcome.claims
            assert outcome.claims[0].text
        case "error":
            assert played.status == "failed"
            assert outcome.stop_reason == "model_error"
        case "refused":
            assert outcome.stop_reason == "refused"
        case other:
            assert played.status == other
            assert outcome.missing or outcome.claims
    if "reason" in expect:
        assert outcome.stop_reason == REASONS.get(expect["reason"], expect["reason"])
    if "attempts" in expect:
        assert len(played.retries) + 1 == expect["attempts"]
        if expect["outcome"] != "answer":
            assert len(played.requests) == expect["attempts"]
    assert len(played.requests) <= expect.get("attempts_at_most", 99)
    assert sum(played.waits) >= expect.get("waited_s_at_least", 0)
    assert sum(played.waits) <= expect.get("waited_s_at_most", 99)
    if isinstance(expect.get("elapsed_s_at_most"), int | float):
        assert sum(played.waits) + spent.seconds <= expect["elapsed_s_at_most"] + 2
    if expect.get("not_retried"):
        assert len(played.requests) == 1
    if expect.get("reserved_kept") or expect.get("cost_charged") == "upper_bound":
        assert spent.reserved > 0
    if expect.get("tool_error_returned"):
        assert any(c.error for c in calls)
        after = text_of(played.requests[1].messages[-1]["content"]) + json.dumps(played.requests[1].messages)
        assert "error" in after or "Fix the errors" in after
    if expect.get("lists_valid_tools"):
        assert "read_document" in json.dumps(played.requests[1].messages)
        assert any("read_document" in (c.error or "") for c in calls)
    if expect.get("keeps_read_ids"):
        read = {d for d in ran.ledger.evidence().documents_read()}
        assert read
        assert read == {c.document for claim in outcome.claims for c in claim.citations}
    if "calls_at_most" in expect:
        assert len(calls) <= expect["calls_at_most"]
        assert sum(1 for c in calls if c.error is None) <= 8
    if expect.get("duplicate_text") is False:
        texts = [claim.text for claim in outcome.claims]
        assert len(texts) == len(set(texts)) == 1
    assert KEY not in played.shown()
    assert spent.dollars + spent.reserved <= 0.50
    assert spent.model_calls == len(played.requests)
    assert outcome.warnings or (not played.retries and outcome.stop_reason == "answered")


@pytest.fixture(scope="module")
def own_server() -> Generator[Server]:
    with serve(scripts=scripts_of(rows(OWN))) as server:
        yield server


@pytest.fixture(scope="module")
def shared_server(shared_rows: list[dict[str, Any]]) -> Generator[Server]:
    with serve(scripts=scripts_of(shared_rows)) as server:
        yield server


@pytest.mark.parametrize(
    ("row", "protocol"),
    [
        pytest.param(row, protocol, id=f"{row['id']}-{protocol}")
        for number, row in enumerate(rows(OWN))
        for protocol in (("anthropic-sse", "openai"), ("anthropic", "openai-sse"))[number % 2]
    ],
)
def test_a_fault_ends_as_it_should(
    corpus: Corpus, row: dict[str, Any], protocol: str, own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if row.get("sse_only") and "sse" not in protocol:
        return
    judge(row, play(corpus, row, protocol, own_server, monkeypatch))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_shared_fault_ends_as_it_should(
    corpus: Corpus,
    shared_rows: list[dict[str, Any]],
    protocol: str,
    shared_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    subtests: Any,
) -> None:
    for row in shared_rows:
        with subtests.test(row["id"]):
            judge(row, play(corpus, row, protocol, shared_server, monkeypatch))


# what is certain, and what is not


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_connection_costs_nothing(corpus: Corpus, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    with refusing() as address:
        model = opened_model(protocol, address, KEY, monkeypatch)
        ran = run_agent(corpus, [], model=model, budget=Budget(), sleep=pause)
    spent = ran.meter.spent()
    assert (spent.reserved, spent.dollars, spent.model_calls) == (0.0, 0.0, MAX_ATTEMPTS)
    assert len(waits) == MAX_ATTEMPTS - 1
    assert ran.outcome.stop_reason == "model_error"
    assert "connection to the provider failed" in ran.outcome.warnings[-1]


@pytest.mark.parametrize("protocol", ["anthropic-sse", "openai"])
def test_a_connect_time_out_costs_nothing(corpus: Corpus, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with blackhole() as address:
        model = opened_model(protocol, address, KEY, monkeypatch, timeout=0.05)
        ran = run_agent(corpus, [], model=model, budget=Budget())
    spent = ran.meter.spent()
    assert (spent.reserved, spent.model_calls) == (0.0, MAX_ATTEMPTS)
    assert ran.outcome.missing


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_deadline_ends_a_provider_that_hangs(
    corpus: Corpus, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve([{"kind": "timeout", "phase": "read", "repeat": True}]) as server:
        model = opened_model(protocol, server.base_url, KEY, monkeypatch)
        ran = run_agent(corpus, [], model=model, budget=Budget(max_seconds=1.5))
        assert len(server.requests()) <= 2
    spent = ran.meter.spent()
    assert ran.outcome.stop_reason == "seconds"
    assert spent.seconds < 30
    assert spent.reserved > 0
    assert [gap.status for gap in ran.outcome.missing] == ["unchecked"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cancelled_run_asks_nothing_more_and_ends_at_once(
    corpus: Corpus, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve([{"kind": "timeout", "phase": "read", "repeat": True}]) as server:
        model = opened_model(protocol, server.base_url, KEY, monkeypatch)
        conversation = conversation_of(corpus, model)

        async def cancelled() -> float:
            async with model.model:
                running = asyncio.ensure_future(run_agent_of(conversation, sources=corpus.sources))
                await asyncio.to_thread(server.wait_for, 1)
                began = asyncio.get_running_loop().time()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                return asyncio.get_running_loop().time() - began

        assert asyncio.run(cancelled()) < 30
        assert len(server.requests()) == 1
    spent = conversation.meter.spent()
    assert spent.reserved > 0
    assert spent.model_calls == 1


@pytest.mark.parametrize(("protocol", "stop"), [("anthropic-sse", signal.SIGINT), ("openai", signal.SIGTERM)])
def test_an_interrupted_command_asks_nothing_more_and_keeps_the_run(
    tmp_path: Path, protocol: str, stop: signal.Signals
) -> None:
    kind = protocol.partition("-")[0]
    with serve([READ_D0, {"kind": "timeout", "phase": "read", "repeat": True}]) as server:
        base = server.base_url if kind == "anthropic" else server.openai_url
        toml = f'[model]\nname = "{NAMES[kind]}"\nbase_url = "{base}"\n{TOML}'
        with opened(tmp_path, FILES, toml=toml):
            pass
        env = {**os.environ, "ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
        ask = subprocess.Popen(
            [sys.executable, "-m", "citehound", "ask", "Is it so?", "--mode", "agent", "--events"],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        server.wait_for(2, timeout=60)
        ask.send_signal(stop)
        out, err = ask.communicate(timeout=60)
        assert len(server.requests()) == 2
    assert ask.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted"
    last = json.loads(out.splitlines()[-1])
    assert (last["type"], last["answer"]["stop_reason"]) == ("answer", "cancelled")
    assert [c["citations"][0]["document"] for c in last["answer"]["claims"]] == ["policies/d0"]
    (run,) = RunStore(tmp_path / ".citehound" / "runs.sqlite").list(principal=OWNER)
    assert run.stop_reason == "cancelled"
    assert KEY not in out + err


@pytest.mark.parametrize("wait", [None, 2.0, 0.0])
def test_pauses_have_full_jitter_and_keep_what_was_asked_for(wait: float | None) -> None:
    for attempt in range(1, 12):
        least, most = (pause_before(attempt, wait=wait, chance=c) for c in (0.0, 0.999))
        if wait is None:
            assert least == 0.0
            assert 0.99 * FIRST_PAUSE <= most <= LONGEST_PAUSE
        else:
            assert wait <= least <= most <= wait + 1.0
    assert pause_before(3, wait=None, chance=0.5) == 2 * pause_before(2, wait=None, chance=0.5)


def http(status: int, body: object = None, *, headers: dict[str, str] | None = None, code: str = "") -> ModelHTTPError:
    return ModelHTTPError(status, "m", body, headers=headers, provider_error_code=code or None)


@pytest.mark.parametrize(
    ("problem", "kind", "passing", "billed"),
    [
        (http(429), "rate_limit", True, False),
        (http(529), "server", True, False),
        (http(500, {"error": {"message": "x"}}), "server", True, False),
        (http(502, "<html>Bad gateway</html>"), "server", True, True),
        (http(504), "server", True, True),
        (http(503, headers={"x-should-retry": "false"}), "server", False, False),
        (http(429, code="enforced_spend_limit_reached"), "spend_limit", False, False),
        (http(429, {"error": {"code": "organization_spend_limit_exceeded"}}), "spend_limit", False, False),
        (http(402), "spend_limit", False, False),
        (http(400, {"error": {"message": "prompt is too long: 250000 tokens"}}), "context", False, False),
        (http(400, {"error": {"message": "input length and max_tokens exceed context limit: context window"}}),
         "context", False, False),
        (http(413), "rejected", False, False),
        (http(401), "auth", False, False),
        (http(403), "auth", False, False),
        (http(404), "rejected", False, False),
        (http(422), "rejected", False, False),
        (ModelConnectionError("m", "refused", phase="connect"), "connection", True, False),
        (ModelConnectionError("m", "no connection free", phase="pool"), "connection", True, False),
        (ModelConnectionError("m", "reset", phase="read"), "connection", True, True),
        (ModelConnectionError("m", "reset"), "connection", True, True),
        (ModelHTTPError(529, "m", in_stream=True), "server", True, True),
        (ModelAPIError("m", "Failed to decode response as JSON"), "malformed", True, True),
        (AttributeError("'NoneType' object has no attribute 'content'"), "malformed", True, True),
        (RuntimeError("who knows"), "unknown", False, True),
    ],
)  # fmt: skip
def test_faults_are_told_apart(problem: Exception, kind: str, passing: bool, billed: bool) -> None:
    fault = fault_of(problem)
    assert (fault.kind, fault.passing, fault.billed) == (kind, passing, billed)
    assert "\n" not in fault.said


def test_what_a_provider_says_about_a_key_is_not_repeated() -> None:
    fault = fault_of(http(401, {"error": {"message": "Incorrect API key provided: sk-abcd****wxyz"}}))
    assert "sk-" not in fault.said
    assert "check it" in fault.said


# many questions


def faulty(chance: random.Random, script: Sequence[Any], rate: float) -> ScriptedModel:
    """Plays a script in which each request fails with probability `rate`, in ways that pass."""
    faults: list[Any] = [
        http(529), http(500), http(503), http(502, "<html></html>"), http(429, headers={"retry-after": "1"}),
        ModelConnectionError("m", "reset", phase="read"), ModelConnectionError("m", "refused", phase="connect"),
        ModelAPIError("m", "Failed to decode response as JSON"), ModelResponse(parts=[]),
    ]  # fmt: skip
    turns = iter(script)

    def turn(request: ScriptedRequest) -> Any:
        return chance.choice(faults) if chance.random() < rate else next(turns)

    return ScriptedModel([turn], repeat_last=True)


@pytest.mark.parametrize(("rate", "least"), [(0.05, 0.99), (0.3, 0.9)])
def test_with_faults_injected_nearly_every_question_is_answered(rate: float, least: float, small: Corpus) -> None:
    chance = random.Random(7)
    script = [
        call("search_rules", {"query": "incidents"}),
        call("read_document", {"document": "rules/security"}),
        GOOD,
    ]
    count = 200 if rate < 0.1 else 40
    answered = failed = 0
    for _ in range(count):
        ran = run_agent(small, faulty(chance, script, rate), budget=Budget(), price=Price(input=5.0, output=25.0))
        answered += ran.outcome.stop_reason == "answered" and [c.status for c in ran.claims] == ["verified"]
        failed += ran.meter.spent().model_calls - 3
        assert ran.meter.spent().dollars + ran.meter.spent().reserved <= 0.50
    assert failed > count * 3 * rate / 2
    assert answered >= least * count


@pytest.mark.parametrize("protocol", ["anthropic-sse", "openai"])
def test_with_faults_injected_into_the_wire_questions_are_answered(
    corpus: Corpus, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quote = "Records of kind zero are kept for 5 years"
    draft = {"claims": [{"text": quote, "citations": [{"document": "policies/d0", "quote": quote}]}]}
    script = [{"kind": "tool", "name": "read_document", "args": {"document": "d0"}}, {"kind": "draft", "draft": draft}]
    keys = [f"{KEY}-{n}" for n in range(12)]
    with serve(scripts=dict.fromkeys(keys, script), faults=0.2, seed=3) as server:
        reasons = [
            run_agent(
                corpus, [], model=opened_model(protocol, server.base_url, key, monkeypatch), budget=Budget()
            ).outcome.stop_reason
            for key in keys
        ]
        assert any(r.injected for r in server.requests())
    assert reasons.count("answered") >= 11


STALLED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b'%x\r\ndata: {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": '
    b'[{"index": 0, "delta": {"role": "assistant", "content": "Half an answer [policies/d0"}}]}\n\n\r\n'
)


def test_a_stream_that_stalls_is_left_at_the_deadline_and_half_an_answer_is_not_shown(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = STALLED.split(b"%x\r\n")[1].removesuffix(b"\r\n")

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(STALLED % len(event))
        await writer.drain()
        await reader.read()  # the body of the request
        await reader.read()  # until the client goes
        writer.close()

    async def asked() -> Outcome:
        server = await asyncio.start_server(stall, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        model = opened_model("openai-sse", f"http://127.0.0.1:{port}", KEY, monkeypatch)
        conversation = conversation_of(corpus, model, meter=Meter(Budget(max_seconds=0.8)))
        async with server, model.model:
            return await run_agent_of(conversation, sources=corpus.sources)

    outcome = asyncio.run(asked())
    assert outcome.stop_reason == "seconds"
    assert outcome.claims == ()
    assert "Half an answer" not in repr(outcome)


@pytest.mark.parametrize("protocol", ["anthropic", "anthropic-sse"])
def test_a_turn_that_is_paused_is_asked_for_again(
    corpus: Corpus, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve([{"kind": "final", "text": "Wait", "stop": "pause_turn"}, READ_D0]) as server:
        model = opened_model(protocol, server.base_url, KEY, monkeypatch)
        ran = run_agent(corpus, [], model=model, budget=Budget())
    assert [c.tool for c in ran.ledger.evidence().calls] == ["read_document"]
    assert [c.citations[0].document for c in ran.claims] == ["policies/d0"]


def test_an_answer_from_memory_is_no_answer_when_the_provider_then_fails(small: Corpus) -> None:
    ran = run_agent(small, [Draft(text="24 hours, trust me."), http(400)])
    assert ran.outcome.text is None
    assert [(c.text, c.status) for c in ran.claims] == [("24 hours, trust me.", "uncited")]

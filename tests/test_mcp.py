"""Citehound over MCP, with the official client: in this process, over stdio, and over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the package 'mcp': pip install 'citehound[mcp]'")

import anyio
import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

import protocol_server
from citehound import config as configuration
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.cli import cli
from citehound.corpus import Corpus
from citehound.errors import UsageError
from citehound.events import Emit, Progress
from citehound.mcp_server import Opening, server_over, uri_of
from citehound.models.scripted import ScriptedModel, call
from citehound.runs import RunStore
from citehound.server.app import bind, create_app
from citehound.server.tokens import FILE, Tokens
from small import FILES, GOOD, TOML, WITHIN_24, opened, write_corpus

QUESTION = "Within how many hours must incidents be reported?"
ANSWER = {"claims": [{"text": WITHIN_24, "citations": [{"document": "rules/security", "quote": WITHIN_24}]}]}
ERAS = ("auto", "legacy")
"""Of the protocol: since 2026-07-28, and with a handshake."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("mcp")) as corpus:
        yield corpus


@pytest.fixture
def assistant(corpus: Corpus) -> Assistant:
    turns = [call("search_rules", {"query": "incidents"}), call("read_document", {"document": "rules/security"}), GOOD]
    return Assistant(corpus.config, corpus, ScriptedModel(turns, repeat_last=True))


def within(assistant: Assistant, work: Callable[[Client], Coroutine[Any, Any, Any]], *, era: str = "auto") -> Any:
    async def run() -> Any:
        async with Client(server_over(assistant), mode=era) as client:
            return await work(client)

    return asyncio.run(run())


def said(result: Any) -> str:
    return result.content[0].text


# Tools.


@pytest.mark.parametrize("era", ERAS)
def test_every_tool_is_listed_as_one_that_only_reads_with_bounded_arguments(assistant: Assistant, era: str) -> None:
    tools = within(assistant, lambda client: client.list_tools(), era=era).tools
    names = [tool.name for tool in tools]
    assert names == [
        "search_rules",
        "search_deals",
        "read_document",
        "find_in_document",
        "follow_leads",
        "list_documents",
        "ask",
        "check_answer",
    ]
    for tool in tools:
        assert tool.annotations.read_only_hint and not tool.annotations.destructive_hint
        assert tool.description and tool.output_schema["type"] == "object" and tool.output_schema["required"]
        assert tool.input_schema["additionalProperties"] is False
    by_name = {tool.name: tool.input_schema["properties"] for tool in tools}
    assert by_name["search_deals"]["supplier"]["enum"] == ["Alpha", "Beta"]
    assert by_name["search_rules"]["query"]["maxLength"] == 256
    assert by_name["ask"]["question"]["maxLength"] == 8000
    assert by_name["ask"]["max_steps"]["maximum"] == 12


@pytest.mark.parametrize("era", ERAS)
def test_results_come_as_text_and_as_data_that_fits_its_schema(assistant: Assistant, era: str) -> None:
    """The client checks each result against the schema of its tool."""

    async def work(client: Client) -> None:
        for name, arguments in (
            ("search_rules", {"query": "incidents reported"}),
            ("search_rules", {"query": "zeppelin"}),
            ("read_document", {"document": "deals/alpha"}),
            ("read_document", {"document": "rules/security", "section": "7"}),
            ("find_in_document", {"document": "rules/security", "phrase": "24 hours"}),
            ("find_in_document", {"document": "rules/security", "phrase": "zeppelin"}),
            ("follow_leads", {"question": "What must Alpha report and when?"}),
            ("list_documents", {"source": "deals", "filters": {"supplier": "Beta"}}),
            ("check_answer", ANSWER),
            ("check_answer", {"answer": "It is all fine."}),
            ("check_answer", {"missing": [{"what": "audits"}], "question": QUESTION}),
            ("ask", {"question": QUESTION, "mode": "agent"}),
        ):
            result = await client.call_tool(name, arguments)
            assert not result.is_error, said(result)
            assert json.loads(said(result)) == result.structured_content

    within(assistant, work, era=era)


def test_quotes_are_checked_against_what_this_session_has_read(assistant: Assistant) -> None:
    async def work(client: Client) -> list[str]:
        stages = [await client.call_tool("check_answer", ANSWER)]
        await client.call_tool("search_rules", {"query": "incidents"})
        stages.append(await client.call_tool("check_answer", ANSWER))
        await client.call_tool("read_document", {"document": "rules/security"})
        stages.append(await client.call_tool("check_answer", ANSWER))
        lie = json.loads(json.dumps(ANSWER).replace('"text": "Incidents must', '"text": "Within 48 hours they must'))
        stages.append(await client.call_tool("check_answer", lie))
        assert "not read" in stages[0].structured_content["feedback"][0]
        assert "48 hours" in stages[3].structured_content["feedback"][0]
        return [stage.structured_content["status"] for stage in stages]

    assert within(assistant, work) == ["partial", "partial", "complete", "partial"]


def test_two_clients_do_not_share_what_they_have_read(assistant: Assistant) -> None:
    async def run() -> tuple[str, str]:
        async with Client(server_over(assistant)) as one, Client(server_over(assistant)) as two:
            await one.call_tool("read_document", {"document": "rules/security"})
            checked = [await client.call_tool("check_answer", ANSWER) for client in (one, two)]
            return tuple(c.structured_content["status"] for c in checked)  # pyright: ignore

    assert asyncio.run(run()) == ("complete", "partial")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("delete_document", {}, "no tool"),
    ("", {}, "no tool"),
    ("search_rules\n\x1b[31m", {"query": "a"}, "no tool"),
    ("read_document", {"id": {"a": 1}}, "no parameter 'id'"),
    ("read_document", {"document": {"a": 1}}, "document must be"),
    ("read_document", {"document": "../../etc/passwd"}, "no document"),
    ("read_document", {"document": "/etc/passwd"}, "no document"),
    ("read_document", {"document": "rules/security", "start": -1}, "start must be"),
    ("read_document", {"document": "rules/security", "start": 10**9}, "past the end"),
    ("read_document", {"document": "rules/security", "section": "99"}, "section"),
    ("read_document", {"document": "x" * 100_000}, ""),
    ("search_rules", {}, "query must be"),
    ("search_rules", {"query": ""}, "query must be"),
    ("search_rules", {"query": "x" * 257}, "at most 256"),
    ("search_rules", {"query": ["a"]}, "query must be"),
    ("search_rules", {"query": "a", "k": "many"}, "k must be"),
    ("search_rules", {"query": "a", "session": "x"}, "no parameter 'session'"),
    ("search_deals", {"query": "a", "supplier": {"$ne": 1}}, "supplier"),
    ("list_documents", {"source": "secrets"}, "no source"),
    ("list_documents", {"source": "deals", "filters": {"owner": "me"}}, "no filter"),
    ("find_in_document", {"document": "rules/security", "phrase": ""}, "phrase must be"),
    ("ask", {}, "question must be"),
    ("ask", {"question": " \u200b "}, "question"),
    ("ask", {"question": "x" * 8001}, "at most 8000"),
    ("ask", {"question": "q", "mode": "wild"}, "no mode"),
    ("ask", {"question": "q", "max_steps": 0}, "max_steps"),
    ("ask", {"question": "q", "max_steps": True}, "max_steps"),
    ("ask", {"question": "q", "max_dollars": -1}, "max_dollars"),
    ("ask", {"question": "q", "model": "gpt-5"}, "no parameter 'model'"),
    ("check_answer", {}, "give either"),
    ("check_answer", {**ANSWER, "answer": "both"}, "give either"),
    ("check_answer", {"claims": "all fine"}, "must be lists"),
    ("check_answer", {"answer": "x" * 60_001}, "at most 60000"),
]


@pytest.mark.parametrize("era", ERAS)
def test_a_wrong_call_is_a_tool_error_of_one_line(assistant: Assistant, corpus: Corpus, era: str) -> None:
    async def work(client: Client) -> None:
        for name, arguments, why in WRONG:
            result = await client.call_tool(name, arguments)
            assert result.is_error, (name, arguments)
            line = said(result)
            assert why in line and "\n" not in line and "\x1b" not in line and len(line) <= 500, (name, line)
            assert "Traceback" not in line and str(corpus.config.root) not in line
        alive = await client.call_tool("read_document", {"document": "rules/security"})
        assert not alive.is_error

    within(assistant, work, era=era)


def test_what_fails_inside_is_not_told_to_the_client(
    assistant: Assistant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the secret of /srv/vault")

    monkeypatch.setattr("citehound.session.check", broken)
    result = within(assistant, lambda client: client.call_tool("check_answer", ANSWER))
    assert result.is_error and "whose log says why" in said(result) and "vault" not in said(result)
    assert "vault" in caplog.text


def test_no_secret_leaves_in_a_result(assistant: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "Trains are booked")
    result = within(assistant, lambda client: client.call_tool("read_document", {"document": "rules/travel"}))
    assert "Trains are booked" not in said(result) and "[redacted] by the travel desk" in said(result)
    assert "[redacted]" in result.structured_content["text"]


# ask.


def test_ask_reports_each_step_as_progress_in_order(assistant: Assistant) -> None:
    seen: list[tuple[float, str]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, message or ""))

    async def work(client: Client) -> Any:
        return await client.call_tool("ask", {"question": QUESTION, "mode": "agent"}, progress_callback=progress)

    answer = within(assistant, work, era="legacy").structured_content
    assert (answer["status"], answer["mode"]) == ("complete", "agent")
    assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
    lines = [line for _, line in seen]
    assert [line.split()[0] for line in lines] == ["searched", "read", "drafted"], lines


def test_ask_may_spend_less_than_configured_and_never_more(corpus: Corpus) -> None:
    searches = [call("search_rules", {"query": f"incidents {word}"}) for word in "abcdefghijklmnopqrstuvwxyz"]
    limited = replace(corpus.config, budget=replace(corpus.config.budget, max_steps=3))
    for asked, most in ((2, 2), (500, 3)):
        assistant = Assistant(limited, corpus, ScriptedModel(searches))
        answer = within(
            assistant,
            lambda client, asked=asked: client.call_tool(
                "ask", {"question": QUESTION, "mode": "agent", "max_steps": asked}
            ),
        ).structured_content
        assert answer["usage"]["steps"] == most


class _Stalled(Model):
    """Never answers; says when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = anyio.Event()

    @property
    def model_name(self) -> str:
        return "stalled"

    @property
    def system(self) -> str:
        return "stalled"

    async def request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_ask_ends_as_a_recorded_partial(corpus: Corpus, tmp_path: Path, era: str) -> None:
    async def run() -> None:
        model = _Stalled()
        assistant = Assistant(replace(corpus.config, root=tmp_path), corpus, model)
        async with Client(server_over(assistant), mode=era) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "ask", {"question": QUESTION, "mode": "agent"})
            await model.asked.wait()
            group.cancel_scope.cancel()

    asyncio.run(run())
    store = RunStore(tmp_path / ".citehound" / "runs.sqlite")
    (summary,) = store.list(5, principal=OWNER)
    answer = store.get(summary.run_id, principal=OWNER).answer
    assert (answer.stop_reason, answer.status) == ("cancelled", "failed")


# Documents as resources.


@pytest.mark.parametrize("era", ERAS)
def test_documents_are_resources_that_are_listed_in_pages(
    assistant: Assistant, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setattr("citehound.mcp_server.RESOURCES_PER_PAGE", 3)

    async def work(client: Client) -> tuple[list[str], list[str], Any]:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        assert second.next_cursor is None
        templates = (await client.list_resource_templates()).resource_templates
        with pytest.raises(MCPError, match="no such cursor"):
            await client.list_resources(cursor="-1")
        return [str(r.uri) for r in first.resources], [str(r.uri) for r in second.resources], templates

    first, second, templates = within(assistant, work, era=era)
    assert [*first, *second] == [uri_of(d) for d in ("deals/alpha", "deals/beta", "rules/security", "rules/travel")]
    assert [t.uri_template for t in templates] == ["citehound://documents/{id}"]


def test_reading_a_resource_counts_as_reading(assistant: Assistant) -> None:
    async def work(client: Client) -> str:
        (contents,) = (await client.read_resource("citehound://documents/rules/security")).contents
        assert WITHIN_24 in contents.text and contents.mime_type == "text/plain"  # pyright: ignore
        return (await client.call_tool("check_answer", ANSWER)).structured_content["status"]

    assert within(assistant, work) == "complete"


def test_a_resource_is_read_in_parts_and_by_section(assistant: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citehound.mcp_server.RESOURCE_CHARS", 40)

    async def work(client: Client) -> None:
        uri, text = "citehound://documents/rules%2Fsecurity", ""
        start: int | None = 0
        while start is not None:
            (part,) = (await client.read_resource(f"{uri}?start={start}")).contents
            text += part.text  # pyright: ignore
            start = (part.meta or {}).get("citehound/next_start")
        assert text == assistant.corpus.document("rules/security", principal=OWNER).text
        (section,) = (await client.read_resource(f"{uri}?section=8")).contents
        assert section.text.startswith("8 Encryption")  # pyright: ignore

    within(assistant, work)


@pytest.mark.parametrize(
    "uri",
    [
        "citehound://documents/",
        "citehound://documents/rules/nothing",
        "citehound://documents/../../etc/passwd",
        "citehound://documents/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "citehound://documents/rules/security?start=-1",
        "citehound://documents/rules/security?start=99999999999",
        "citehound://documents/rules/security?format=raw",
        "citehound://documents/rules/security#7",
        "citehound://documents/" + "x" * 5000,
        "citehound://other/rules/security",
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "",
    ],
)
def test_a_resource_that_is_not_there_is_an_error_of_one_line(assistant: Assistant, corpus: Corpus, uri: str) -> None:
    async def work(client: Client) -> MCPError:
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
        return refused.value

    problem = within(assistant, work)
    assert problem.error.code == -32602
    assert "\n" not in problem.error.message and len(problem.error.message) < 600
    assert str(corpus.config.root) not in problem.error.message


def test_names_of_documents_survive_their_way_through_a_uri(tmp_path: Path) -> None:
    names = ["rules/a b", "rules/ü ö?", "rules/50%25 #1", "rules/x&y=z"]
    files = {f"{name}.md": f"# {name}\n\nThis is the text of {number}.\n" for number, name in enumerate(names)}
    toml = TOML.split("[[sources]]")[1]
    with opened(tmp_path, files, toml=f"[[sources]]{toml}") as corpus:

        async def work(client: Client) -> list[str]:
            listed = (await client.list_resources()).resources
            read = [(await client.read_resource(str(r.uri))).contents[0] for r in listed]
            assert {r.name for r in listed} == set(names)
            return [contents.text for contents in read]  # pyright: ignore

        texts = within(Assistant(corpus.config, corpus), work)
    assert sorted(t.split("text of ")[1][0] for t in texts) == ["0", "1", "2", "3"]


# A real process over stdio.


PRINTS = """
import sys
def look(query: str) -> list[str]:
    print("this is not the protocol")
    sys.stdout.flush()
    return ["Incidents are printed within 24 hours of discovery, as the function says."]
"""
NOISY = '[[sources]]\nname = "noisy"\nkind = "python"\ncall = "noisy_source:look"\n'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with an index, and a source that prints to stdout."""
    folder = tmp_path_factory.mktemp("stdio")
    (folder / "noisy_source.py").write_text(PRINTS, "utf-8")
    path = write_corpus(folder)
    with Corpus.open(configuration.load(path, env={}), write=True) as corpus:
        corpus.sync()
    path.write_text(f"{TOML}\n{NOISY}", "utf-8")
    return path


def command(path: Path) -> list[str]:
    return ["-m", "citehound", "mcp", "--config", str(path)]


def test_the_official_client_works_over_stdio(served: Path) -> None:
    async def run() -> None:
        parameters = StdioServerParameters(
            command=sys.executable, args=command(served), env={**os.environ, "PYTHONPATH": str(served.parent)}
        )
        seen: list[str] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            seen.append(message or "")

        with open(os.devnull, "w") as nowhere:
            async with Client(stdio_client(parameters, errlog=nowhere)) as client:
                printed = await client.call_tool("search_noisy", {"query": "incidents"})
                assert printed.structured_content["hits"][0]["document"].startswith("noisy/")
                assert (await client.call_tool("check_answer", ANSWER)).structured_content["status"] == "partial"
                await client.call_tool("read_document", {"document": "rules/security"})
                assert (await client.call_tool("check_answer", ANSWER)).structured_content["status"] == "complete"
                asked = await client.call_tool("ask", {"question": QUESTION}, progress_callback=progress)
                assert asked.structured_content["run_id"] and any("searched rules" in line for line in seen)
                resources = (await client.list_resources()).resources
                assert len(resources) == 4

    asyncio.run(run())


class Raw:
    """A server process that is written to line by line."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": str(path.parent)},
        )
        self.initialized = False
        self._timer = threading.Timer(300, self.process.kill)
        self._timer.start()

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.rstrip("\n") + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The next message that is no notification."""
        assert self.process.stdout is not None
        while True:
            message = json.loads(self.process.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            if "id" in message:
                return message

    def request(self, number: int, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}))
        answer = self.receive()
        assert answer["id"] == number
        return answer

    def initialize(self) -> None:
        """The handshake, once."""
        if not self.initialized:
            self.initialized = True
            assert "result" in self.request(2, "initialize", INITIALIZE)
            self.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def close(self) -> tuple[int, str]:
        """Exit code and stderr."""
        _, err = self.process.communicate()
        self._timer.cancel()
        return self.process.returncode, err


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
LINES = [
    '{"jsonrpc":"2.0","id":1,\n',
    "",
    "null",
    "[]",
    '"x"',
    "\x00\x01",
    '{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
    '{"id": 1}',
    "[" * 5000,
]
CALLS: list[tuple[str, Any]] = [
    ("tools/call", {"name": "delete_document", "arguments": {}}),
    ("tools/call", {"name": "read_document", "arguments": {"id": {"a": 1}}}),
    ("tools/call", {"name": "read_document", "arguments": "all"}),
    ("tools/call", {"name": 7}),
    ("tools/call", {}),
    ("tools/list", {"cursor": 7}),
    ("resources/read", {"uri": ["a"]}),
    ("resources/read", {}),
    ("completion/complete", {}),
    ("no/such/method", {}),
    ("prompts/get", {"name": "x"}),
]


def fails(answer: dict[str, Any]) -> bool:
    return "error" in answer or bool(answer["result"].get("isError"))


def test_a_process_outlives_whatever_it_is_sent(served: Path) -> None:
    raw = Raw(served)
    early = raw.request(1, "tools/call", {"name": "read_document", "arguments": {"document": "rules/security"}})
    assert fails(early)  # before the handshake
    for line in LINES:
        raw.send(line)
        assert raw.receive()["error"]["code"] in (-32700, -32600), line
    raw.initialize()
    raw.send('{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 999}}')
    raw.send('{"jsonrpc": "2.0", "method": "notifications/nothing"}')
    raw.send('{"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"}')  # its id is none, so it is owed no answer
    for number, (method, params) in enumerate([*CALLS, *shared_calls()], start=10):
        answer = raw.request(number, method, params)
        assert fails(answer) and "Traceback" not in json.dumps(answer), method
    for line in shared_lines():
        raw.send(line)
        assert fails(raw.receive()), line
    assert not fails(raw.request(90, "tools/call", {"name": "search_noisy", "arguments": {"query": "incidents"}}))
    code, err = raw.close()
    assert code == 0
    assert "Traceback" not in err


def shared_rows() -> list[dict[str, Any]]:
    """Requests of the shared hostile inputs; none where this checkout stands alone."""
    file = Path(__file__).parents[2] / "shared" / "data" / "attacks" / "hostile_inputs.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    return [row["request"] for row in rows if row["surface"] == "mcp"]


def shared_calls() -> list[tuple[str, Any]]:
    return [(request["method"], request["params"]) for request in shared_rows() if "method" in request]


def shared_lines() -> list[str]:
    return [request["raw"] for request in shared_rows() if "raw" in request]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, None])
def test_a_process_that_is_ended_records_what_runs(tmp_path: Path, how: signal.Signals | None) -> None:
    with protocol_server.serve([{"kind": "timeout", "phase": "read", "repeat": True}]) as model:
        settings = f'[model]\nname = "openai-compatible:m"\nbase_url = "{model.openai_url}"\n'
        path = write_corpus(tmp_path, toml=f"{settings}[model.price]\ninput = 0.0\noutput = 0.0\n{TOML}")
        raw = Raw(path)
        raw.initialize()
        asked = {"name": "ask", "arguments": {"question": QUESTION, "mode": "agent"}}
        raw.send(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": asked}))
        model.wait_for(1, timeout=60)
        if how is not None:
            raw.process.send_signal(how)
        code, err = raw.close()  # stdin is closed, too
    assert code == (0 if how is None else 130) and "Traceback" not in err
    store = RunStore(tmp_path / ".citehound" / "runs.sqlite")
    (summary,) = store.list(5, principal=OWNER)
    assert store.get(summary.run_id, principal=OWNER).answer.stop_reason == "cancelled"


def documented() -> list[dict[str, Any]]:
    """The settings of clients in docs/mcp.md."""
    page = (Path(__file__).parents[1] / "docs" / "mcp.md").read_text("utf-8")
    found = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]
    return [settings["citehound"] for block in found for settings in block.values()]


def test_the_documented_settings_of_clients_start_a_server() -> None:
    started = [settings for settings in documented() if "command" in settings]
    assert len(started) == 2 and len(documented()) == 3
    for settings in started:
        assert settings["command"] == "citehound"
        name, *arguments = settings["args"]
        context = cli.commands[name].make_context(name, list(arguments))
        assert str(context.params["config_path"]).endswith("citehound.toml")
    (remote,) = [settings for settings in documented() if "url" in settings]
    assert remote["url"].endswith("/mcp") and remote["headers"]["Authorization"].startswith("Bearer ch_")


def test_a_missing_package_is_one_line_that_says_what_to_install(served: Path, tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('No module named mcp')", "utf-8")
    done = subprocess.run(
        [sys.executable, *command(served)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("error: MCP needs the package 'mcp'")
    assert "pip install 'citehound[mcp]'" in done.stderr and "Traceback" not in done.stderr


# A real server over HTTP.


@asynccontextmanager
async def serving(folder: Path, *, model: Model | None = None) -> AsyncGenerator[str]:
    """The application on a socket of its own; gives the address of /mcp."""
    config = configuration.load(folder / "citehound.toml", env={})
    listening = bind("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    app = create_app(config, model=model, port=port)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5))
    task = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            while (await http.get("/readyz")).status_code != 200:
                pass
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await task


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with opened(folder):
        return folder


@asynccontextmanager
async def connected(url: str, *, era: str = "auto", token: str | None = None) -> AsyncGenerator[Client]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


async def status(client: Client, **session: str) -> str:
    return (await client.call_tool("check_answer", {**ANSWER, **session})).structured_content["status"]


def test_over_http_two_sessions_at_once_do_not_mix_what_they_have_read(site: Path) -> None:
    async def run() -> None:
        async with serving(site) as url:
            async with connected(url, era="legacy") as one, connected(url, era="legacy") as two:
                await one.call_tool("read_document", {"document": "rules/security"})
                assert (await status(one), await status(two)) == ("complete", "partial")
            async with connected(url) as one, connected(url) as two:  # no sessions: results name them
                read = await one.call_tool("read_document", {"document": "rules/security"})
                other = await two.call_tool("search_rules", {"query": "incidents"})
                names = [result.structured_content["session"] for result in (read, other)]
                assert [await status(two, session=name) for name in names] == ["complete", "partial"]
                assert await status(one) == "partial"
                guessed = await two.call_tool("check_answer", {**ANSWER, "session": "x" * 12})
                assert guessed.is_error and "no session" in said(guessed)

    asyncio.run(run())


def test_over_http_ask_reports_progress_and_its_run_is_among_the_servers(site: Path) -> None:
    seen: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    async def run() -> None:
        async with serving(site) as url, httpx2.AsyncClient(timeout=60) as http:
            for era in ERAS:
                seen.clear()
                async with connected(url, era=era) as client:
                    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                    assert ("session" in tools["search_rules"].input_schema["properties"]) == (era == "auto")
                    answer = await client.call_tool("ask", {"question": QUESTION}, progress_callback=progress)
                    assert any("searched rules" in line for line in seen)
                    record = await http.get(url.replace("/mcp", f"/v1/runs/{answer.structured_content['run_id']}"))
                    assert record.json()["answer"]["status"] == answer.structured_content["status"]

    asyncio.run(run())


def test_over_http_a_client_that_goes_away_ends_its_question(site: Path) -> None:
    async def run() -> None:
        model = _Stalled()
        async with serving(site, model=model) as url, httpx2.AsyncClient(timeout=60) as http:
            async with connected(url) as client, anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "ask", {"question": QUESTION, "mode": "agent"})
                await model.asked.wait()
                (running,) = (await http.get(url.replace("/mcp", "/v1/runs?limit=1"))).json()["running"]
                group.cancel_scope.cancel()
            run_url = url.replace("/mcp", f"/v1/runs/{running['run_id']}")
            await http.get(f"{run_url}/events", headers={"accept": "text/event-stream"})  # until it is over
            assert (await http.get(run_url)).json()["answer"]["stop_reason"] == "cancelled"

    asyncio.run(run())


def test_over_http_a_token_is_needed_and_a_session_is_its_owners(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(site, folder)
    tokens = Tokens(folder / ".citehound" / FILE)
    alice, bob = tokens.add("alice"), tokens.add("bob")

    async def run() -> None:
        async with serving(folder) as url:
            async with httpx2.AsyncClient(timeout=60) as http:
                assert (await http.post(url, json={})).status_code == 401
                assert (await http.get(url, headers={"authorization": "Bearer nope"})).status_code == 401
            async with connected(url, token=alice) as one, connected(url, token=bob) as two:
                read = await one.call_tool("read_document", {"document": "rules/security"})
                name = read.structured_content["session"]
                stolen = await two.call_tool("check_answer", {**ANSWER, "session": name})
                assert stolen.is_error and "no session" in said(stolen)
                assert await status(one, session=name) == "complete"
            async with httpx2.AsyncClient(
                headers={"accept": "application/json, text/event-stream"}, timeout=60
            ) as http:
                begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
                opened = await http.post(url, json=begin, headers={"authorization": f"Bearer {alice}"})
                session = {"mcp-session-id": opened.headers["mcp-session-id"]}
                ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
                for token, code in ((bob, 404), (alice, 200)):
                    got = await http.post(url, json=ping, headers={"authorization": f"Bearer {token}", **session})
                    assert got.status_code == code

    asyncio.run(run())


def test_over_http_a_client_sees_only_what_its_groups_may_see(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(site, folder)
    config = folder / "citehound.toml"
    config.write_text(TOML.replace('path = "rules"', 'path = "rules"\naccess = ["audit"]'), "utf-8")
    tokens = Tokens(folder / ".citehound" / FILE)
    inside, outside = tokens.add("alice", groups=["audit"]), tokens.add("bob", groups=["sales"])

    async def seen(url: str, token: str) -> tuple[set[str], set[str], list[str]]:
        async with connected(url, token=token) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            resources = {resource.name for resource in (await client.list_resources()).resources}
            said_of: list[str] = []
            for document in ("rules/security", "rules/nowhere"):
                read = await client.call_tool("read_document", {"document": document})
                said_of.append(said(read).replace(document, "it") if read.is_error else "text")
                try:
                    await client.read_resource(uri_of(document))
                    said_of.append("text")
                except MCPError as problem:
                    said_of.append(problem.error.message.replace(document, "it"))
            asked = await client.call_tool("ask", {"question": QUESTION})
            said_of.append("24 hours" if "within 24 hours" in said(asked) else "nothing")
            return tools, resources, said_of

    async def run() -> None:
        async with serving(folder) as url:
            tools, resources, texts = await seen(url, inside)
            assert "search_rules" in tools and "rules/security" in resources and texts[:2] == ["text", "text"]
            assert texts[-1] == "24 hours"
            tools, resources, texts = await seen(url, outside)
            assert "search_rules" not in tools and resources == {"deals/alpha", "deals/beta"}
            assert texts[:2] == texts[2:4] and "text" not in texts  # forbidden and missing are one and the same
            assert texts[-1] == "nothing"

    asyncio.run(run())


def test_over_http_strange_hosts_origins_and_bodies_are_refused(site: Path) -> None:
    async def run() -> None:
        async with serving(site) as url, httpx2.AsyncClient(timeout=60) as http:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            for headers, code in (
                ({"host": "evil.example"}, 421),
                ({"origin": "http://evil.example"}, 403),
                ({"content-type": "text/plain"}, 415),
            ):
                got = await http.post(
                    url, content=json.dumps(ping), headers={"content-type": "application/json", **headers}
                )
                assert got.status_code == code and "Traceback" not in got.text
            for content in ("{", "[" * 500, json.dumps([ping] * 3), "7"):
                got = await http.post(url, content=content, headers={"content-type": "application/json"})
                assert 400 <= got.status_code < 500 and "Traceback" not in got.text, (content[:20], got.status_code)
            assert (await http.put(url, json=ping)).status_code == 405
            async with connected(url) as client:
                assert not (await client.call_tool("read_document", {"document": "rules/travel"})).is_error

    asyncio.run(run())


def test_over_http_a_page_of_an_origin_that_is_allowed_can_be_a_client(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(site, folder)
    (folder / "citehound.toml").write_text(f'{TOML}[server]\ncors = ["https://app.example"]\n', "utf-8")

    async def run() -> None:
        page = {"origin": "https://app.example", "accept": "application/json, text/event-stream"}
        async with serving(folder) as url, httpx2.AsyncClient(headers=page, timeout=60) as http:
            begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
            opened = await http.post(url, json=begin)
            assert (opened.status_code, opened.headers["access-control-allow-origin"]) == (200, page["origin"])
            shown = opened.headers["access-control-expose-headers"].lower().split(", ")
            assert "mcp-session-id" in shown and opened.headers["mcp-session-id"]
            async with Client(streamable_http_client(url, http_client=http)) as client:
                assert not (await client.call_tool("read_document", {"document": "rules/travel"})).is_error

    asyncio.run(run())


def test_a_server_without_the_package_says_what_to_install(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "citehound.mcp_server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server", None)

    async def run() -> None:
        async with serving(site) as url, httpx2.AsyncClient(timeout=60) as http:
            got = await http.post(url, json={})
            assert got.status_code == 503 and "citehound[mcp]" in got.json()["error"]["message"]

    asyncio.run(run())


# Before there is an index.


def test_a_server_speaks_before_its_index_is_there(
    assistant: Assistant, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citehound.mcp_server.PATIENCE", 0.0)
    go = threading.Event()
    heard: list[str] = []

    def build(emit: Emit) -> Assistant:
        while not go.wait(0.005):
            emit(Progress(done=3, total=44, what="files"))
        return assistant

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")
        go.set()

    async def run() -> None:
        changed = asyncio.Event()

        async def notified(message: Any) -> None:
            if getattr(message, "method", "") == "notifications/tools/list_changed":
                changed.set()

        opening = Opening(corpus.config, build)
        opening.begin()
        async with Client(server_over(opening), mode="legacy", message_handler=notified) as client:
            before = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            ask = asyncio.ensure_future(client.call_tool("ask", {"question": QUESTION, "mode": "agent"}))
            assert (await client.call_tool("ask", {"question": QUESTION, "mode": "wild"})).is_error  # meanwhile
            assert not ask.done()
            read = await client.call_tool("read_document", {"document": "rules/travel"}, progress_callback=progress)
            assert not read.is_error
            assert (await ask).structured_content["status"] == "complete"
            await changed.wait()
            after = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert before.keys() == after.keys()
        assert "supplier" not in before["search_deals"]["properties"]
        assert after["search_deals"]["properties"]["supplier"]["enum"] == ["Alpha", "Beta"]
        assert heard[0] == "building the index: 3 of 44"

    asyncio.run(run())


def test_an_index_that_cannot_be_built_is_told_to_every_call(corpus: Corpus) -> None:
    def build(emit: Emit) -> Assistant:
        raise UsageError("no document could be indexed in 'rules'; 'citehound index' says why, file by file")

    async def run() -> None:
        opening = Opening(corpus.config, build)
        opening.begin()
        async with Client(server_over(opening)) as client:
            for name, arguments in (("ask", {"question": QUESTION}), ("read_document", {"document": "rules/travel"})):
                refused = await client.call_tool(name, arguments)
                assert refused.is_error and "no document could be indexed" in said(refused)
            with pytest.raises(MCPError, match="no document could be indexed"):
                await client.list_resources()
        with pytest.raises(UsageError):
            await opening.close()

    asyncio.run(run())


def test_a_client_that_goes_away_ends_the_building_and_the_next_start_goes_on(tmp_path: Path) -> None:
    path = write_corpus(tmp_path, {f"rules/r{n}.md": f"# Rule {n}\n\nRule {n} holds.\n" for n in range(40)} | FILES)
    config = configuration.load(path, env={})
    begun = asyncio.Event()

    def build(emit: Emit) -> Assistant:
        loop.call_soon_threadsafe(begun.set)
        with Corpus.open(config, write=True) as corpus:
            while True:
                emit(Progress(done=1, total=44, what="files"))
                corpus.sync(emit=emit)

    async def run() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        opening = Opening(config, build)
        opening.begin()
        await begun.wait()
        await opening.close()

    loop: Any = None
    asyncio.run(run())
    with Corpus.open(config, write=True) as corpus:
        assert corpus.sync().count("failed") == 0

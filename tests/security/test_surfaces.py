"""The same attacks through every way in and out: modes that put passages into prompts, chat, server, MCP, report."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from attacks import MANY, PLAIN, SHORT, Attack
from checks import Seen, control_characters, elements, live, violations
from replaying import (
    SECRETS,
    SOMEBODY,
    Obeying,
    Recorder,
    World,
    calls_of,
    drafts_of,
    filled,
    instructions_of,
    keep,
    marks_of,
    opened,
    replay,
    seen_of,
    with_name,
)
from starlette.testclient import TestClient

from citehound import config
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.cli import output
from citehound.events import Event
from citehound.models.scripted import ScriptedModel, ScriptedRequest
from citehound.runs import answer_from_dict
from citehound.server.app import create_app

PORT = 8321
FEW = [attack for attack in SHORT if attack.family in ("xss", "ansi", "override", "marker")]
LONG = pytest.param(MANY, marks=pytest.mark.slow, id="all")
SHORTEST = pytest.param(FEW, id="few")


@pytest.fixture
def made(rows: Sequence[Attack], recorder: Recorder, request: pytest.FixtureRequest) -> World:
    return request.getfixturevalue("together" if len(rows) <= len(FEW) else "many")


def as_answer(attack: Attack, made: World) -> Any:
    return drafts_of(attack, made, name=attack.name)[0]


def close_to(attack: Attack) -> str:
    """A question that finds the planted document."""
    words = re.findall(r"\w+", attack.text)[:14]  # no braces: what a person asks is not marked
    return " ".join([*words, "supplier notes"])[:400] + "?"


# Modes that put passages into prompts by code


@pytest.mark.parametrize("rows", [SHORTEST, LONG])
@pytest.mark.parametrize("mode", ["single", "hops", "research", "auto"])
def test_passages_in_prompts_do_no_harm(mode: str, rows: Sequence[Attack], made: World) -> None:
    found: dict[str, list[str]] = {}
    for attack in rows if mode == "single" or len(rows) > len(FEW) else rows[:1]:
        seen = replay(made, attack, as_answer(attack, made), name=attack.name, mode=mode, question=close_to(attack))
        found[attack.id] = violations(with_name(attack, attack.name), seen)
    assert {key: lines for key, lines in found.items() if lines} == {}


@pytest.mark.parametrize("rows", [SHORTEST])
def test_a_planted_sentence_reaches_the_prompt_at_all(rows: Sequence[Attack], made: World) -> None:
    """Else the replays above would show nothing."""
    attack = next(a for a in rows if a.family == "override")
    seen = replay(made, attack, as_answer(attack, made), name=attack.name, mode="single", question=close_to(attack))
    assert attack.text[:60] in str(seen.requests[0].messages)


@pytest.mark.parametrize("rows", [SHORTEST, LONG])
def test_what_was_said_and_read_before_in_a_chat_does_no_harm(rows: Sequence[Attack], made: World) -> None:
    found: dict[str, list[str]] = {}
    for attack in rows if len(rows) > len(FEW) else rows[:2]:
        model = Obeying()
        model.obey(attack, made, name=attack.name)
        events: list[Event] = []
        shown = io.StringIO()
        made.recorder.clear()
        with redirect_stdout(shown), redirect_stderr(shown):
            assistant = Assistant(made.corpus.config, made.corpus, opened(model), events.append)
            chat = assistant.chat(mode="agent")
            answers = [asyncio.run(chat.ask(question)) for question in (attack.question, "And what about its annex?")]
            for answer in answers:
                output.show_answer(answer)
        seen = seen_of(made)
        for answer in answers:
            keep(seen, made, answer, model, events, "")
        seen.terminal += shown.getvalue()
        found[attack.id] = violations(with_name(attack, attack.name), seen)
    assert {key: lines for key, lines in found.items() if lines} == {}


# The server


@dataclass(frozen=True, kw_only=True)
class Site:
    client: TestClient
    model: Obeying


@pytest.fixture(scope="module")
def sites(recorder: Recorder) -> Generator[Callable[[World], Site]]:
    """A server over a corpus, made once."""
    there: dict[Path, Site] = {}
    with ExitStack() as stack:

        def over(made: World) -> Site:
            if made.root not in there:
                model = Obeying()
                app = create_app(config.load(made.root / "citehound.toml"), model=opened(model), port=PORT)
                client = stack.enter_context(TestClient(app, base_url=f"http://127.0.0.1:{PORT}"))
                there[made.root] = Site(client=client, model=model)
            return there[made.root]

        yield over


@pytest.fixture
def site(made: World, sites: Callable[[World], Site]) -> Site:
    return sites(made)


def strings(value: Any) -> Generator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)


def unseen_in(bodies: Sequence[str]) -> list[str]:
    """What cannot be seen in the strings of JSON bodies, or of the events of a stream."""
    found: list[str] = []
    for body in bodies:
        lines = [line[6:] for line in body.splitlines() if line.startswith("data: ")] or [body]
        for line in lines:
            for text in strings(json.loads(line)):
                found += [f"{bad} in a body: {text[:40]!r}" for bad in control_characters(text)]
    return found


def secrets_of(requests: Sequence[ScriptedRequest]) -> dict[str, str]:
    known = dict(SECRETS)
    if requests:
        known["SYSTEM_PROMPT"] = instructions_of(requests[0])
        known |= {f"RUN_MARKER {n}": mark for n, mark in enumerate(marks_of(requests[-1]))}
    return known


PLAIN_TAGS = frozenset(
    [
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "main",
            "section",
            "div",
            "span",
            "p",
            "br",
            "h1",
            "h2",
            "h3",
        ),
        *("ol", "ul", "li", "dl", "dt", "dd", "blockquote", "pre", "code", "em", "strong", "mark", "small"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    ]
)


def is_plain(tag: str, attribute: str) -> bool:
    """Elements that do nothing, and attributes that say only how they look: nothing to load, to click or to run."""
    return tag in PLAIN_TAGS and (attribute in ("", "class", "lang", "scope", "value") or tag == "meta")


def over_http(attack: Attack, made: World, site: Site) -> list[str]:
    client, name = site.client, attack.name
    site.model.obey(attack, made, name=name)
    made.recorder.clear()
    asked = client.post("/v1/ask", json={"question": filled(attack.question, name=name), "mode": "agent"})
    assert asked.status_code == 200, asked.text
    answer: Answer = answer_from_dict(asked.json())
    run = f"/v1/runs/{asked.headers['x-run-id']}"
    report = client.get(f"{run}/report")
    document = made.document(name)
    dictated = {"text": filled(attack.answer, name=name) or "done", "citations": [{"document": name, "quote": PLAIN}]}
    bodies = [
        asked.text,
        client.get(run).text,
        client.get(f"{run}/events").text,
        client.get(f"/v1/documents/{document}").text,
        client.post("/v1/search", json={"query": close_to(attack)[:200], "source": "wiki"}).text,
        client.post("/v1/verify", json={"claims": [dictated], "read": []}).text,
    ]
    seen = seen_of(made)
    seen.answers = [answer]
    seen.requests = list(site.model.requests)
    seen.network = list(made.recorder.asked)
    seen.logs = made.recorder.log.getvalue()
    seen.api = [*bodies[:3], bodies[5]]  # a document may say what looks like a secret
    seen.pages = [(report.text, made.harmless)]
    seen.secrets = secrets_of(site.model.requests)
    found = violations(with_name(attack, name), seen) + unseen_in(bodies)
    policy = report.headers["content-security-policy"]
    if "default-src 'none'" not in policy or "script-src" in policy or "img-src" in policy:
        found.append(f"the report may load something: {policy}")
    found += [f"the report has <{tag} {name}>" for tag, name, _ in elements(report.text) if not is_plain(tag, name)]
    checked = json.loads(bodies[5])  # too long a claim is refused
    if [c for c in checked.get("claims", []) if c["status"] == "verified"]:
        found.append("a claim whose document was not read was verified")
    return found


@pytest.mark.parametrize("rows", [SHORTEST, LONG])
def test_attacks_through_the_server_do_no_harm(rows: Sequence[Attack], made: World, site: Site) -> None:
    found = {attack.id: over_http(attack, made, site) for attack in rows}
    assert {key: lines for key, lines in found.items() if lines} == {}


@pytest.mark.parametrize("rows", [SHORTEST, LONG])
def test_lists_and_figures_of_the_server_hold_nothing_hidden(rows: Sequence[Attack], made: World, site: Site) -> None:
    for attack in rows[:3]:
        over_http(attack, made, site)
    bodies = [
        site.client.get(path).text
        for path in ("/v1/runs", "/v1/sources", "/v1/sources/wiki/documents", "/v1/sources/wiki/report", "/v1/models")
    ]
    assert unseen_in(bodies) == []
    metrics = site.client.get("/metrics").text
    for secret in SECRETS.values():
        assert secret not in "".join([*bodies, metrics])


# MCP


def over_mcp(attack: Attack, made: World) -> list[str]:
    from mcp import Client

    from citehound.mcp_server import server_over

    name, model = attack.name, Obeying()
    model.obey(attack, made, name=name)
    made.recorder.clear()
    assistant = Assistant(made.corpus.config, made.corpus, opened(model))
    dictated = filled(attack.answer, name=name) or "done"
    names = [made.document(name) or name, "policies/outsourcing-policy-v4", "contracts/contract-alpha"]
    claims = [{"text": dictated, "citations": [{"document": one, "quote": dictated} for one in names]}]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_wiki", {"query": close_to(attack)[:200]}),
        ("read_document", {"document": names[0]}),
        *calls_of(attack, name=name)[:12],
        ("check_answer", {"claims": claims}),
        ("check_answer", {"answer": dictated[:2000]}),
        ("ask", {"question": attack.question, "mode": "agent"}),
    ]
    told: list[tuple[str, Any]] = []
    offered: list[str] = []

    async def work() -> None:
        async with Client(server_over(assistant)) as client:
            tools = (await client.list_tools()).tools
            offered.extend(f"{t.name}: {t.description}" for t in tools)
            for tool, arguments in calls:
                if tool not in [t.name for t in tools]:
                    with pytest.raises(Exception, match=r"(?i)tool"):
                        done = await client.call_tool(tool, arguments)
                        assert done.is_error
                        raise ValueError("no such tool")
                    continue
                told.append((tool, await client.call_tool(tool, arguments)))

    asyncio.run(work())
    seen = seen_of(made)
    seen.requests = list(model.requests)
    seen.network = list(made.recorder.asked)
    seen.logs = made.recorder.log.getvalue()
    seen.secrets = secrets_of(model.requests)
    bodies = [(tool, result.content[0].text) for tool, result in told if not result.is_error]
    seen.answers = [answer_from_dict(json.loads(body)) for tool, body in bodies if tool == "ask"]
    seen.api = [body for tool, body in bodies if tool in ("ask", "check_answer")]
    found = violations(with_name(attack, name), seen) + unseen_in([body for _, body in bodies])
    for tool, body in bodies:
        if tool == "check_answer":
            read = {made.document(name)}
            for claim in json.loads(body)["claims"]:
                wrong = [c for c in claim["citations"] if c["status"] == "verified" and c["document"] not in read]
                found += [f"{c['document']} was verified over MCP and not read" for c in wrong]
    found += [f"a tool's description was written by a document: {line[:60]}" for line in offered if PLAIN in line]
    return found


@pytest.mark.parametrize("rows", [SHORTEST, LONG])
def test_attacks_through_mcp_do_no_harm(rows: Sequence[Attack], made: World) -> None:
    pytest.importorskip("mcp", reason="needs the package 'mcp': pip install 'citehound[mcp]'")
    found = {attack.id: over_mcp(attack, made) for attack in rows}
    assert {key: lines for key, lines in found.items() if lines} == {}


# Nothing is kept for others


@pytest.mark.parametrize("rows", [SHORTEST])
def test_an_answer_is_never_served_to_somebody_else_from_before(rows: Sequence[Attack], made: World) -> None:
    attack = next(a for a in rows if a.family == "override")
    asked: list[int] = []
    for principal in (None, None, SOMEBODY):
        model = ScriptedModel([as_answer(attack, made)], repeat_last=True)
        named = {} if principal is None else {"principal": principal}
        Assistant(made.corpus.config, made.corpus, opened(model), **named).ask_sync(attack.question, mode="agent")
        asked.append(len(model.requests))
        assert filled(attack.answer) not in str(model.requests[0].messages)
    assert all(asked)


def test_a_page_made_of_markup_is_told_from_one_that_is_text() -> None:
    harmless = "<html><body><p>x</p></body></html>"
    assert live("<html><body><p>&lt;img src=x&gt;</p></body></html>", harmless) == []
    assert live("<html><body><p><img src=x></p></body></html>", harmless) != []
    assert Seen().answers == []

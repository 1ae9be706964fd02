"""The server over real sockets: questions that run on, their events, chats, ownership, and how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

import protocol_server
from citehound import config
from citehound.access import OWNER, Principal
from citehound.answers import Answer, Usage
from citehound.cli import cli
from citehound.corpus import Corpus
from citehound.models.scripted import ScriptedModel, call
from citehound.runs import RunStore
from citehound.server.app import bind, create_app
from citehound.server.tokens import FILE, Tokens
from served import live, serving
from small import GOOD, TOML, WITHIN_24, write_corpus
from test_parsing_pdf import pdf

LINE = "BT /F1 12 Tf 72 700 Td (Printed rules say that lamps are switched off at night.) Tj ET"
ROOT = Path(__file__).resolve().parents[1]
QUESTION = "Within how many hours must incidents be reported?"
JSON = {"Content-Type": "application/json"}
SEARCH = call("search_rules", {"query": "incidents"})
READ = call("read_document", {"document": "rules/security"})


class Held(ScriptedModel):
    """Searches and reads for every question, then waits until it is let go before it answers."""

    def __init__(self) -> None:
        super().__init__([SEARCH], repeat_last=True)
        self.waiting = threading.Semaphore(0)
        self.go = threading.Event()

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        done = sum(1 for m in messages if m.kind == "response")
        self._turns = (SEARCH, READ, GOOD)[done : done + 1] or (GOOD,)
        if done >= 2:
            self.waiting.release()
            while not self.go.is_set():
                await asyncio.sleep(0.005)
        return await super().request(messages, model_settings, model_request_parameters)


@dataclass(frozen=True, kw_only=True)
class Site:
    client: httpx2.Client
    model: Held
    tokens: dict[str, str]

    def as_(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    def start(self, who: str = "ann", **more: Any) -> str:
        """A question that waits for its model; gives the run's id."""
        body = {"question": QUESTION, "mode": "agent", **more}
        reply = self.client.post("/v1/runs", json=body, headers=self.as_(who))
        assert reply.status_code == 202, reply.text
        assert self.model.waiting.acquire(timeout=60)
        return str(reply.json()["run_id"])


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[httpx2.Client, Held, Tokens]]:
    """A server over a model that answers when it is told to."""
    settings = '[server]\nmax_questions = 3\n[model]\nname = "openai:own"\n'
    loaded = config.load(write_corpus(tmp_path_factory.mktemp("held"), toml=TOML + settings), env={})
    model = Held()
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, model=model, port=listening.getsockname()[1])
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        yield client, model, Tokens(loaded.state / FILE)
        model.go.set()


@pytest.fixture
def site(held: tuple[httpx2.Client, Held, Tokens]) -> Generator[Site]:
    """The server with two users and an owner whom nobody has seen before."""
    client, model, tokens = held
    number = len(tokens.all())
    made = {who: tokens.add(f"{who}-{number}", owner=who == "boss") for who in ("ann", "bob", "boss")}
    while model.waiting.acquire(blocking=False):
        pass
    model.go.clear()
    site = Site(client=client, model=model, tokens=made)
    yield site
    model.go.set()
    while client.get("/v1/runs?limit=1", headers=site.as_("boss")).json()["running"]:
        time.sleep(0.01)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    """A server without tokens, over the offline model."""
    loaded = config.load(write_corpus(tmp_path_factory.mktemp("offline")), env={})
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, port=listening.getsockname()[1])
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        yield client


def events_of(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Number, type and data of each event of a stream."""
    found: list[tuple[int, str, dict[str, Any]]] = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return found


# asking


def test_an_answer_over_http_is_the_answer_of_the_run(offline: httpx2.Client) -> None:
    reply = offline.post("/v1/ask", json={"question": QUESTION})
    answer = reply.json()
    assert reply.status_code == 200
    assert reply.headers["x-run-id"] == answer["run_id"]
    assert answer["status"] == "complete"
    assert WITHIN_24 in answer["text"]
    run = offline.get(f"/v1/runs/{answer['run_id']}").json()
    assert run["running"] is False
    assert run["answer"] == answer
    assert run["summary"]["principal"] == "owner"


def test_a_stream_ends_with_the_answer_and_can_be_taken_up_where_it_broke(offline: httpx2.Client) -> None:
    reply = offline.post("/v1/ask", json={"question": QUESTION}, headers={"Accept": "text/event-stream"})
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = events_of(reply.text)
    assert [number for number, _, _ in events] == list(range(1, len(events) + 1))
    assert events[0][1] == "run_started"
    assert events[-1][1] == "answer"
    assert all(kind == data["type"] for _, kind, data in events)
    run_id = reply.headers["x-run-id"]
    again = events_of(offline.get(f"/v1/runs/{run_id}/events").text)
    assert again == events
    rest = offline.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": "4"})
    assert events_of(rest.text) == events[4:]
    listed = offline.get(f"/v1/runs/{run_id}/events", headers={"Accept": "application/json"}).json()
    assert listed == [data for _, _, data in events]
    assert offline.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_question_runs_on_when_its_stream_is_left(site: Site) -> None:
    body = {"question": QUESTION, "mode": "agent"}
    headers = {**site.as_("ann"), "Accept": "text/event-stream"}
    with site.client.stream("POST", "/v1/ask", json=body, headers=headers) as stream:
        run_id = stream.headers["x-run-id"]
        assert next(stream.iter_lines()) == "event: run_started"
    assert site.model.waiting.acquire(timeout=60)
    run = site.client.get(f"/v1/runs/{run_id}", headers=site.as_("ann")).json()
    assert (run["running"], run["question"], run["answer"]) == (True, QUESTION, None)
    listed = site.client.get("/v1/runs", headers=site.as_("ann")).json()
    assert listed["running"] == [{"run_id": run_id}]
    site.model.go.set()
    events = events_of(site.client.get(f"/v1/runs/{run_id}/events", headers=site.as_("ann")).text)
    assert events[-1][2]["answer"]["status"] == "complete"
    assert site.client.get(f"/v1/runs/{run_id}", headers=site.as_("ann")).json()["running"] is False


def test_a_plain_question_whose_client_goes_away_is_cancelled(site: Site) -> None:
    body = {"question": QUESTION, "mode": "agent"}
    wanted = site.client.build_request("POST", "/v1/ask", json=body, headers=site.as_("ann"))
    head = "".join(f"{name}: {value}\r\n" for name, value in wanted.headers.items())
    with socket.create_connection((wanted.url.host, wanted.url.port or 80)) as link:
        link.sendall(f"POST /v1/ask HTTP/1.1\r\n{head}\r\n".encode() + wanted.read())
        assert site.model.waiting.acquire(timeout=60)
        sent = len(site.model.requests)
    while site.client.get("/v1/runs", headers=site.as_("ann")).json()["running"]:
        time.sleep(0.01)
    (run,) = site.client.get("/v1/runs", headers=site.as_("ann")).json()["runs"]
    assert run["stop_reason"] == "cancelled"
    assert len(site.model.requests) == sent


def test_cancelling_ends_a_run_as_a_declared_partial(site: Site) -> None:
    run_id = site.start()
    assert site.client.post(f"/v1/runs/{run_id}/cancel", headers=site.as_("ann")).status_code == 202
    events = events_of(site.client.get(f"/v1/runs/{run_id}/events", headers=site.as_("ann")).text)
    answer = events[-1][2]["answer"]
    assert (answer["stop_reason"], answer["status"]) == ("cancelled", "partial")
    assert [m["what"] for m in answer["missing"]]
    again = site.client.post(f"/v1/runs/{run_id}/cancel", headers=site.as_("ann"))
    assert again.status_code == 202
    assert site.client.get(f"/v1/runs/{run_id}", headers=site.as_("ann")).json()["answer"] == answer


def test_questions_beyond_the_places_there_are_are_turned_away_at_once(site: Site) -> None:
    for who in ("ann", "ann", "bob"):
        site.start(who)
    reply = site.client.post("/v1/ask", json={"question": QUESTION, "mode": "agent"}, headers=site.as_("bob"))
    assert reply.status_code == 503
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.json()["error"]["type"] == "unavailable"
    site.model.go.set()


def test_nobody_but_an_owner_has_more_than_half_of_the_places(site: Site) -> None:
    first = site.start("ann")
    site.start("ann")
    completion = {"model": "citehound", "messages": [{"role": "user", "content": QUESTION}]}
    for path, body in (("/v1/ask", asking()), ("/v1/runs", asking()), ("/v1/chat/completions", completion)):
        reply = site.client.post(path, json=body, headers=site.as_("ann"))
        assert (reply.status_code, path) == (429, path)
        assert int(reply.headers["retry-after"]) >= 1
    third = site.start("bob")
    for run_id, who in ((third, "bob"), (first, "ann")):
        site.client.post(f"/v1/runs/{run_id}/cancel", headers=site.as_(who))
        site.client.get(f"/v1/runs/{run_id}/events", headers=site.as_(who))
    site.start("ann")
    site.start("boss")


def test_an_owner_may_have_all_the_places(site: Site) -> None:
    for _ in range(3):
        site.start("boss")


THEN = Answer(
    question="And then?", requested_mode="agent", mode="agent", route="", model="x", status="not_found", text=""
)


def id_of(seconds: float) -> str:
    """The id of a run that began then."""
    digits = "0123456789abcdefghjkmnpqrstvwxyz"
    return "".join(digits[(int(seconds * 1000) >> 5 * place) & 31] for place in range(8, -1, -1)) + "0000"


@contextmanager
def limited(root: Path, settings: str, spent: dict[str, list[tuple[float, float]]]) -> Generator[Site]:
    """A server with settings of its own; `spent` has hours ago and dollars of what each user has asked before."""
    toml = TOML + f'[server]\n{settings}\n[model]\nname = "openai:own"\n'
    loaded = config.load(write_corpus(root, toml=toml), env={})
    for who, runs in spent.items():
        for hours, dollars in runs:
            asked = replace(THEN, run_id=id_of(time.time() - hours * 3600), usage=Usage(dollars=dollars))
            RunStore(loaded.state / "runs.sqlite").save(asked, principal=Principal(name=who))
    model = Held()
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, model=model, port=listening.getsockname()[1])
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        tokens = Tokens(loaded.state / FILE)
        made = {who: tokens.add(who, owner=who == "boss") for who in ("ann", "bob", "boss")}
        yield Site(client=client, model=model, tokens=made)
        model.go.set()


def test_questions_of_a_day_have_a_limit(tmp_path: Path) -> None:
    settings = 'questions_per_day = 3\ndollars_per_day = "none"'
    with limited(tmp_path, settings, {"ann": [(25, 0), (23, 0), (1, 0)], "boss": []}) as site:
        site.start("ann")
        completion = {"model": "citehound", "messages": [{"role": "user", "content": QUESTION}]}
        for over in (False, True):
            for path, body in (("/v1/ask", asking()), ("/v1/runs", asking()), ("/v1/chat/completions", completion)):
                reply = site.client.post(path, json=body, headers=site.as_("ann"))
                assert (reply.status_code, path) == (429, path)
                assert 3500 < int(reply.headers["retry-after"]) <= 3600
            if not over:
                site.model.go.set()
                while site.client.get("/v1/runs", headers=site.as_("ann")).json()["running"]:
                    time.sleep(0.01)
        assert site.client.post("/v1/ask", json=asking(), headers=site.as_("bob")).status_code == 200
        for _ in range(4):
            assert site.client.post("/v1/ask", json=asking(), headers=site.as_("boss")).status_code == 200


def test_dollars_of_a_day_have_a_limit_that_what_runs_counts_against(tmp_path: Path) -> None:
    settings = 'dollars_per_day = 1.5\nquestions_per_day = "none"'
    with limited(tmp_path, settings, {"ann": [(25, 5.0), (23, 0.6), (1, 0.3)]}) as site:

        def refused(**more: Any) -> int:
            reply = site.client.post("/v1/runs", json=asking(**more), headers=site.as_("ann"))
            assert reply.status_code == 429, reply.text
            assert "max_dollars" in reply.json()["error"]["message"]
            return int(reply.headers["retry-after"])

        assert 3500 < refused(max_dollars=1.0) <= 3600
        assert 22 * 3600 < refused(max_dollars=1.3) <= 23 * 3600
        site.start("ann")  # may cost 0.5, of 0.6
        assert refused() == refused(max_dollars=0.2) == 5
        site.start("ann", max_dollars=0.1)
        assert refused(max_dollars=0.01) == 5
        site.start("bob")
        site.model.go.set()
        while site.client.get("/v1/runs", headers=site.as_("ann")).json()["running"]:
            time.sleep(0.01)
        site.start("ann")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("status=bogus", "'not_found'"),
        ("mode=bogus", "'research'"),
        ("stop_reason=bogus", "'answered'"),
        ("before=zzzzzzzzzzzzz", "next_before"),
    ],
)
def test_a_filter_that_no_run_can_pass_is_refused(offline: httpx2.Client, query: str, says: str) -> None:
    run_id = offline.post("/v1/ask", json={"question": QUESTION}).json()["run_id"]
    reply = offline.get(f"/v1/runs?{query}")
    assert reply.status_code == 422
    message = reply.json()["error"]["message"]
    assert message.startswith(query.partition("=")[0]) and says in message and "\n" not in message
    assert offline.get(f"/v1/runs?before={run_id}").status_code == 200


def test_a_run_of_somebody_else_is_no_place_to_go_on_from(site: Site) -> None:
    site.model.go.set()
    run_id = site.client.post("/v1/ask", json=asking(), headers=site.as_("ann")).json()["run_id"]
    tries = [(who, site.client.get(f"/v1/runs?before={run_id}", headers=site.as_(who))) for who in ("ann", "bob")]
    assert [(who, reply.status_code) for who, reply in tries] == [("ann", 200), ("bob", 422)]


# whose it is


def test_a_run_is_seen_by_whoever_asked_and_by_an_owner_alone(site: Site) -> None:
    run_id = site.start("ann")
    missing = site.client.get("/v1/runs/zzzz", headers=site.as_("bob"))
    for over in (False, True):
        tries: list[tuple[str, str, Any]] = [
            ("GET", f"/v1/runs/{run_id}", None),
            ("GET", f"/v1/runs/{run_id}/events", None),
            ("POST", f"/v1/runs/{run_id}/feedback", {"good": True}),
            ("POST", f"/v1/runs/{run_id}/cancel", None),
            ("POST", "/v1/verify", {"claims": [], "run_id": run_id}),
        ]
        for method, path, body in tries:
            reply = site.client.request(method, path, json=body, headers=site.as_("bob"))
            assert (reply.status_code, reply.content) == (404, missing.content), (path, over)
        assert site.client.get("/v1/runs", headers=site.as_("bob")).json() == {
            "runs": [],
            "running": [],
            "next_before": None,
        }
        assert site.client.get(f"/v1/runs/{run_id}", headers=site.as_("boss")).status_code == 200
        if not over:
            assert site.client.get(f"/v1/runs/{run_id}", headers=site.as_("ann")).json()["running"] is True
            site.model.go.set()
            site.client.get(f"/v1/runs/{run_id}/events", headers=site.as_("ann"))
    given = site.client.post(
        f"/v1/runs/{run_id}/feedback", json={"good": False, "reason": "too short"}, headers=site.as_("ann")
    )
    assert given.status_code == 200
    run = site.client.get(f"/v1/runs/{run_id}", headers=site.as_("boss")).json()
    assert run["summary"]["principal"].startswith("ann")
    assert (run["feedback"]["good"], run["feedback"]["reason"]) == (False, "too short")


def test_a_chat_belongs_to_whoever_began_it(site: Site) -> None:
    site.model.go.set()
    first = site.client.post("/v1/ask", json=asking(chat_id="new"), headers=site.as_("ann")).json()
    assert first["turn"] == 1
    second = site.client.post("/v1/ask", json=asking(chat_id=first["chat_id"]), headers=site.as_("ann")).json()
    assert (second["chat_id"], second["turn"]) == (first["chat_id"], 2)
    for who in ("bob", "boss"):
        reply = site.client.post("/v1/ask", json=asking(chat_id=first["chat_id"]), headers=site.as_(who))
        assert reply.status_code == 404
    assert site.client.post("/v1/ask", json=asking(chat_id="none"), headers=site.as_("ann")).status_code == 404


def asking(**more: Any) -> dict[str, Any]:
    return {"question": QUESTION, "mode": "agent", **more}


def test_a_chat_answers_one_question_at_a_time(site: Site) -> None:
    site.model.go.set()
    chat = site.client.post("/v1/ask", json=asking(chat_id="new"), headers=site.as_("ann")).json()["chat_id"]
    while site.model.waiting.acquire(blocking=False):
        pass
    site.model.go.clear()
    run_id = site.start("ann", chat_id=chat)
    reply = site.client.post("/v1/ask", json=asking(chat_id=chat), headers=site.as_("ann"))
    assert reply.status_code == 409
    site.client.post(f"/v1/runs/{run_id}/cancel", headers=site.as_("ann"))
    site.client.get(f"/v1/runs/{run_id}/events", headers=site.as_("ann"))
    site.model.go.set()
    assert site.client.post("/v1/ask", json=asking(chat_id=chat), headers=site.as_("ann")).json()["turn"] == 3


def test_a_follow_up_leans_on_what_was_asked(offline: httpx2.Client) -> None:
    first = offline.post(
        "/v1/ask", json={"question": "What does the contract with Alpha say?", "chat_id": "new"}
    ).json()
    second = offline.post("/v1/ask", json={"question": "And for Beta?", "chat_id": first["chat_id"]}).json()
    assert second["rewritten"] == "What does the contract with Beta say?"
    assert "deals/beta" in {c["document"] for claim in second["claims"] for c in claim["citations"]}
    for wrong in ({"sources": ["rules"]}, {"model": "offline"}, {"prefetch": True}):
        reply = offline.post("/v1/ask", json={"question": "And?", "chat_id": first["chat_id"], **wrong})
        assert reply.status_code == 422


# what may be asked


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"question": " \u200b\n "}, 422),
        ({"question": QUESTION, "mode": "psychic"}, 422),
        ({"question": QUESTION, "max_steps": 0}, 422),
        ({"question": QUESTION, "max_steps": 1000}, 422),
        ({"question": QUESTION, "max_dollars": 1e9}, 422),
        ({"question": QUESTION, "sources": ["nowhere"]}, 404),
        ({"question": QUESTION, "sources": []}, 422),
        ({"question": QUESTION, "mode": "direct"}, 422),
        ({"question": QUESTION, "model": "openai-compatible:x"}, 422),
        ({"question": "x" * 8001}, 422),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(offline: httpx2.Client, body: dict[str, Any], status: int) -> None:
    reply = offline.post("/v1/ask", json=body)
    assert reply.status_code == status, reply.text
    message = reply.json()["error"]["message"]
    assert message
    assert "\n" not in message


def test_only_the_sources_that_were_picked_are_searched(offline: httpx2.Client) -> None:
    answer = offline.post("/v1/ask", json={"question": QUESTION, "sources": ["deals"]}).json()
    assert {call["source"] for call in answer["calls"] if call["source"]} == {"deals"}


def test_a_model_that_is_not_offered_is_an_owners_to_ask_for(site: Site) -> None:
    reply = site.client.post("/v1/ask", json=asking(model="openai:gpt-9"), headers=site.as_("ann"))
    assert reply.status_code == 403
    mine = site.client.post("/v1/ask", json={"question": QUESTION, "model": "offline"}, headers=site.as_("ann"))
    assert mine.json()["model"] == "offline"


def test_runs_are_listed_by_what_they_came_to(offline: httpx2.Client) -> None:
    offline.post("/v1/ask", json={"question": QUESTION, "sources": ["deals"]})
    offline.post("/v1/ask", json={"question": "What of zebras?", "mode": "single"})
    page = offline.get("/v1/runs", params={"limit": 1}).json()
    assert page["next_before"] == page["runs"][0]["run_id"]
    older = offline.get("/v1/runs", params={"limit": 1, "before": page["next_before"]}).json()
    assert older["runs"][0]["run_id"] < page["runs"][0]["run_id"]
    single = offline.get("/v1/runs", params={"mode": "single", "limit": 200}).json()["runs"]
    assert {run["mode"] for run in single} == {"single"}
    assert offline.get("/v1/runs", params={"status": "failed"}).json()["runs"] == []
    created = page["runs"][0]["created"]
    assert offline.get("/v1/runs", params={"since": created + 1}).json()["runs"] == []
    assert offline.get("/v1/runs", params={"source": "nowhere"}).json()["runs"] == []
    assert offline.get("/v1/runs", params={"limit": 0}).status_code == 422


# documents


def test_documents_are_read_as_a_model_reads_them(offline: httpx2.Client) -> None:
    whole = offline.get("/v1/documents/rules/security").json()
    part = offline.get("/v1/documents/rules/security", params={"section": "7"}).json()
    assert part["text"] == whole["text"][part["start"] : part["end"]]
    short = offline.get("/v1/documents/rules/security", params={"limit": 40}).json()
    after = offline.get("/v1/documents/rules/security", params={"start": short["next_start"], "limit": 100000}).json()
    assert short["text"] + after["text"] == whole["text"]
    assert offline.get("/v1/documents/rules/nothing").status_code == 404
    assert offline.get("/v1/documents/rules/security", params={"section": "77"}).status_code == 404


def test_sources_are_told_with_their_documents_and_how_they_were_read(offline: httpx2.Client) -> None:
    rules, deals = offline.get("/v1/sources").json()["sources"]
    assert (rules["name"], rules["documents"], rules["failed"]) == ("rules", 2, 0)
    assert deals["filters"] == {"supplier": ["Alpha", "Beta"]}
    listed = offline.get("/v1/sources/deals/documents", params={"limit": 1}).json()
    assert (listed["total"], [d["document"] for d in listed["documents"]]) == (2, ["deals/alpha"])
    assert listed["documents"][0]["sections"] == 2
    report = offline.get("/v1/sources/rules/report").json()
    assert [(f["path"], f["status"]) for f in report["files"]] == [("security.md", "indexed"), ("travel.md", "indexed")]
    assert offline.get("/v1/sources/nowhere/documents").status_code == 404


def test_a_search_is_the_one_that_a_model_makes(offline: httpx2.Client) -> None:
    found = offline.post("/v1/search", json={"query": "incidents", "source": "rules"}).json()
    assert found["hits"][0]["document"] == "rules/security"
    none = offline.post("/v1/search", json={"query": "reports", "source": "deals", "filters": {"supplier": "Gamma"}})
    assert none.json()["hits"] == []
    assert "Gamma" in " ".join(none.json()["notes"])
    assert offline.post("/v1/search", json={"query": "x" * 257}).status_code == 422
    assert offline.post("/v1/search", json={"query": "x", "source": "nowhere"}).status_code == 404


def test_a_draft_is_checked_against_what_was_read_and_nothing_else(offline: httpx2.Client) -> None:
    claim = {
        "text": "Incidents are reported within 24 hours.",
        "citations": [{"document": "rules/security", "quote": "reported to the bank within 24 hours of discovery"}],
    }

    def verdict(**more: Any) -> str:
        reply = offline.post("/v1/verify", json={"claims": [claim], **more})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["claims"][0]["status"])

    assert verdict() == "unverified"
    assert verdict(read=[{"document": "rules/security", "section": "8"}]) == "unverified"
    assert verdict(read=[{"document": "rules/security", "section": "7"}]) == "verified"
    assert verdict(read=[{"document": "rules/security"}]) == "verified"
    assert verdict(read=[{"document": "rules/security", "start": 0, "end": 20}]) == "unverified"
    assert verdict(read=[{"document": "nowhere/at-all"}]) == "unverified"
    asked = offline.post("/v1/ask", json={"question": QUESTION}).json()["run_id"]
    assert verdict(run_id=asked) == "verified"
    other = offline.post("/v1/ask", json={"question": "Who books trains?", "mode": "single"}).json()["run_id"]
    assert verdict(run_id=other) == "unverified"
    claim["text"] = "Incidents are reported within 48 hours."
    assert verdict(run_id=asked) == "unverified"
    del claim["citations"][0]["quote"]  # type: ignore[attr-defined]
    assert verdict(run_id=asked) == "unverified"
    claim |= {"text": "The policy does not mention zebras.", "kind": "absence", "terms": ["zebra"]}
    assert verdict() == "unverified"
    assert verdict(read=[{"document": "rules/security"}]) == "verified"
    beyond = offline.post("/v1/verify", json={"read": [{"document": "rules/security", "start": 9, "end": 9999}]})
    assert beyond.status_code == 422


def test_a_page_of_a_pdf_is_shown_while_its_file_is_what_was_indexed(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    file = tmp_path / "rules" / "printed.pdf"
    file.write_bytes(pdf([LINE]))
    app = create_app(config.load(tmp_path / "citehound.toml", env={}))
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        page = client.get("/v1/pages/rules/printed", params={"page": 1})
        assert page.headers["content-type"] == "image/png"
        assert page.content.startswith(b"\x89PNG\r\n\x1a\n")
        assert client.get("/v1/pages/rules/printed", params={"page": 2}).status_code == 404
        assert client.get("/v1/pages/rules/security").status_code == 404
        file.write_bytes(file.read_bytes() + b"\n%changed")
        assert client.get("/v1/pages/rules/printed", params={"page": 1}).status_code == 404


def test_a_new_index_is_noticed_while_the_server_runs(tmp_path: Path) -> None:
    loaded = config.load(write_corpus(tmp_path), env={})
    with TestClient(create_app(loaded), base_url="http://127.0.0.1:8765") as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        found = [client.post("/v1/search", json={"query": "zebra"}).json()["hits"]]
        (tmp_path / "rules" / "zebra.md").write_text("# Zebra\n\nA zebra crosses here.\n")
        for rebuild in (False, True):
            with Corpus.open(loaded, write=True) as corpus:
                corpus.sync(rebuild=rebuild)
            found.append(client.post("/v1/search", json={"query": "zebra"}).json()["hits"])
        assert [len(hits) for hits in found] == [0, 1, 1]


# the process


def test_being_told_to_stop_ends_what_runs_as_declared_partials(tmp_path: Path) -> None:
    hangs = [{"kind": "tool", "name": "search_rules", "args": {"query": "incidents"}}]
    hangs += [{"kind": "timeout", "phase": "read", "repeat": True}]
    with protocol_server.serve(hangs, per="question") as model:
        toml = f'[model]\nname = "anthropic:claude-sonnet-5"\nbase_url = "{model.base_url}"\n{TOML}'
        path = write_corpus(tmp_path, toml=toml)
        canary = "sk-canary-0123456789"
        with (
            serving(path, env={"ANTHROPIC_API_KEY": canary}) as server,
            httpx2.Client(base_url=server.url, timeout=60, trust_env=False) as client,
        ):
            asked = [client.post("/v1/runs", json=asking(question=f"{QUESTION} {n}")).json() for n in range(3)]
            model.wait_for(6)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(timeout=60) == 0
        said = "".join(server.said)
        assert "Traceback" not in said
        assert canary not in said
    store = RunStore(tmp_path / ".citehound" / "runs.sqlite")
    for begun in asked:
        record = store.get(begun["run_id"], principal=OWNER)
        assert (record.answer.stop_reason, record.answer.status) == ("cancelled", "partial")
        assert record.answer.missing


def test_a_server_that_cannot_answer_says_so_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    path = write_corpus(tmp_path, toml='[model]\nname = "anthropic:claude-sonnet-5"\n' + TOML)
    done = CliRunner().invoke(cli, ["serve", "--port", "0", "--config", str(path)])
    assert done.exit_code == 2
    assert "ANTHROPIC_API_KEY" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


# the documentation


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_examples_of_the_documentation_run(bank_root: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "server.md").read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    script = "\n".join(block for block in blocks if "curl" in block)
    shutil.copytree(bank_root, tmp_path, dirs_exist_ok=True)
    loaded = config.load(tmp_path / "citehound.toml", env={})
    listening = bind("127.0.0.1", 0)
    with live(create_app(loaded, port=listening.getsockname()[1]), listening) as url:
        script = f"set -euo pipefail\n{script}".replace("AT=http://127.0.0.1:8765", f"AT={url}")
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert '"status":"verified"' in done.stdout.splitlines()[-1]
        documented = set(re.findall(r"`(?:(?:GET|POST|DELETE)(?:`?, `?)?)+ (/[^`?]*)", page)) | {"/v1/session"}
        for path in httpx2.get(f"{url}/openapi.json").json()["paths"]:
            plain = re.sub(r"\{(\w+)(?::path)?\}", lambda m: "{name}" if m[1] == "name" else "{id}", path)
            assert plain in documented or path == "/v1/models/{model}", plain

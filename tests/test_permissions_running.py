"""Rights that change while a question runs: from its next query on, for its answer, its events and whoever follows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from citehound import config
from citehound.access import OWNER, Principal
from citehound.assistant import Assistant
from citehound.budget import FREE
from citehound.corpus import Corpus
from citehound.drafts import Draft
from citehound.errors import RightsWithdrawn, UnknownDocument, UnknownSource
from citehound.events import Event
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, ScriptedRequest, call
from citehound.runs import RunStore
from citehound.server.app import bind, create_app
from citehound.server.tokens import FILE, Tokens
from citehound.toolbox import corpus_tools
from served import live
from small import quoting, write_corpus
from test_permissions import ANN, BEN, EVE, FILES, TOML, change, synced

PAY = "The gadolinium band begins at 90,000 euros."
DAYS = "Everybody has 30 days of leave."
WITHOUT_HR = TOML.replace('access = ["hr"]', 'access = ["board"]')
WITHOUT_PAY = '[[access]]\npaths = ["hr/pay.md"]\ngroups = ["board"]\n' + TOML
LOOK = call("search_hr", {"query": "gadolinium band"})
READ = call("read_document", {"document": "hr/pay"})


def answering(draft: Draft, before: Callable[[], None]) -> Callable[[ScriptedRequest], Draft]:
    def turn(request: ScriptedRequest) -> Draft:
        before()
        return draft

    return turn


def ask(corpus: Corpus, turns: list[Any], *, principal: Principal = ANN) -> tuple[Any, list[Event]]:
    """The answer, or what was raised instead; and the events that were sent."""
    heard: list[Event] = []
    model = OpenedModel(model=ScriptedModel(turns), name="scripted", price=FREE)
    assistant = Assistant(corpus.config, corpus, model, heard.append, principal=principal)
    try:
        return assistant.ask_sync("What does the gadolinium band begin at?", mode="agent"), heard
    except RightsWithdrawn as withdrawn:
        return withdrawn, heard


@pytest.mark.parametrize(
    ("shown_by", "withdrawn"),
    [
        (READ, WITHOUT_PAY),
        *(pytest.param(by, toml, marks=pytest.mark.slow) for by in (LOOK, READ) for toml in (WITHOUT_HR, WITHOUT_PAY)),
    ],
)
def test_a_question_ends_without_an_answer_where_the_right_to_what_it_found_goes(
    tmp_path: Path, shown_by: Any, withdrawn: str
) -> None:
    with synced(tmp_path, FILES, TOML) as corpus:
        turns = [shown_by, answering(quoting("hr/pay", PAY), lambda: change(tmp_path, withdrawn))]
        ended, heard = ask(corpus, turns)
        assert isinstance(ended, RightsWithdrawn)
        assert "90,000" not in json.dumps([event.to_dict() for event in heard])
        assert [event.type for event in heard if event.type in ("claim", "verdict", "answer")] == []
        store = RunStore(corpus.config.state / "runs.sqlite")
        (kept,) = store.list(principal=OWNER)
        assert kept.stop_reason == "cancelled" and kept.principal == "ann"
        record = store.get(kept.run_id, principal=ANN)
        assert corpus.withheld(record.documents, principal=ANN)


def test_the_next_query_of_a_running_question_finds_what_may_be_seen_then(tmp_path: Path) -> None:
    told: list[str] = []

    def then(request: ScriptedRequest) -> Any:
        change(tmp_path, WITHOUT_PAY)
        return READ

    def last(request: ScriptedRequest) -> Draft:
        told.append(str(request.messages[-1]))
        return quoting("hr/handbook/leave", DAYS)

    with synced(tmp_path, FILES, TOML) as corpus:
        answer, _ = ask(corpus, [call("read_document", {"document": "hr/handbook/leave"}), then, last])
        assert "no document is called 'hr/pay'" in told[0] and "90,000" not in told[0]
        assert answer.status == "complete"


@pytest.mark.slow
def test_a_right_to_something_else_ends_nothing(tmp_path: Path) -> None:
    with synced(tmp_path, FILES, TOML) as corpus:
        toml = TOML + '[[access]]\npaths = ["rules/security.md"]\ngroups = ["board"]\n'
        turns = [READ, answering(quoting("hr/pay", PAY), lambda: change(tmp_path, toml))]
        answer, _ = ask(corpus, turns)
        assert answer.status == "complete" and "90,000" in answer.text


@pytest.mark.slow
def test_an_owner_goes_on_whatever_changes(tmp_path: Path) -> None:
    with synced(tmp_path, FILES, TOML) as corpus:
        turns = [READ, answering(quoting("hr/pay", PAY), lambda: change(tmp_path, "[[broken"))]
        answer, _ = ask(corpus, turns, principal=OWNER)
        assert answer.status == "complete"


# Over HTTP


class Held(ScriptedModel):
    """Reads what is for few, then waits until it is let go before it answers."""

    def __init__(self) -> None:
        super().__init__([READ], repeat_last=True)
        self.waiting = threading.Semaphore(0)
        self.go = threading.Event()

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        done = sum(1 for m in messages if m.kind == "response")
        self._turns = (READ, quoting("hr/pay", PAY))[done : done + 1] or (quoting("hr/pay", PAY),)
        if done:
            self.waiting.release()
            while not self.go.is_set():
                await asyncio.sleep(0.005)
        return await super().request(messages, model_settings, model_request_parameters)


@contextmanager
def serving(root: Path) -> Generator[tuple[httpx2.Client, Held, Tokens]]:
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    settings = '[model]\nname = "openai:own"\n'
    loaded = config.load(write_corpus(root, FILES, toml=settings + TOML), env={})
    model, listening = Held(), bind("127.0.0.1", 0)
    app = create_app(loaded, model=model, port=listening.getsockname()[1])
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        try:
            yield client, model, Tokens(loaded.state / FILE)
        finally:
            model.go.set()


@pytest.mark.slow
def test_what_runs_on_the_server_goes_with_the_right_to_it(tmp_path: Path) -> None:
    settings = '[model]\nname = "openai:own"\n'
    with serving(tmp_path) as (client, model, tokens):
        ann = {"Authorization": f"Bearer {tokens.add('ann', groups=['hr'])}"}
        boss = {"Authorization": f"Bearer {tokens.add('boss', owner=True)}"}

        def begin() -> str:
            model.go.clear()
            body = {"question": "What does the gadolinium band begin at?", "mode": "agent"}
            run = client.post("/v1/runs", json=body, headers=ann).json()["run_id"]
            assert model.waiting.acquire(timeout=60)
            return str(run)

        def tries(run: str) -> list[tuple[int, bytes]]:
            got = [client.get(f"/v1/runs/{run}{path}", headers=ann) for path in ("", "/events", "/report")]
            got.append(client.post(f"/v1/runs/{run}/cancel", headers=ann))
            return [(reply.status_code, reply.content) for reply in got]

        # by a rule: a follower hears of nothing more, and whoever comes later finds no run
        run = begin()
        followed: list[str] = []
        with client.stream("GET", f"/v1/runs/{run}/events", headers=ann) as stream:
            lines = stream.iter_lines()
            for line in lines:
                followed.append(line)
                if "event: read" in line:
                    break
            change(tmp_path, settings + WITHOUT_HR)
            missing = client.get("/v1/runs/zzzz", headers=ann)
            assert set(tries(run)) == {(404, missing.content)}
            model.go.set()
            followed += lines
        assert "90,000" not in "\n".join(followed) and "event: answer" not in followed
        assert "event: error" in followed and "may see has changed" in "\n".join(followed)
        assert set(tries(run)) == {(404, missing.content)}
        assert client.get("/v1/runs", headers=ann).json()["runs"] == []
        assert client.get(f"/v1/runs/{run}", headers=boss).json()["answer"]["stop_reason"] == "cancelled"
        change(tmp_path, settings + TOML)

        # by the token: with other groups, or none at all
        for groups in (["sales"], None):
            run = begin()
            tokens.remove("ann")
            if groups is not None:
                ann = {"Authorization": f"Bearer {tokens.add('ann', groups=groups)}"}
                assert {status for status, _ in tries(run)} == {404}
            model.go.set()
            while client.get("/v1/runs", headers=boss).json()["running"]:
                pass
            kept = client.get(f"/v1/runs/{run}", headers=boss).json()
            assert kept["answer"]["stop_reason"] == "cancelled"
            if groups is None:
                assert {status for status, _ in tries(run)} == {401}
            else:
                assert {status for status, _ in tries(run)} == {404}
                tokens.remove("ann")
                ann = {"Authorization": f"Bearer {tokens.add('ann', groups=['hr'])}"}


def test_a_waiting_asker_gets_no_answer_that_is_not_for_them_any_more(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, model, tokens):
        ann = {"Authorization": f"Bearer {tokens.add('ann', groups=['hr'])}"}
        body = {"question": "What does the gadolinium band begin at?", "mode": "agent"}
        got: list[httpx2.Response] = []
        waiting = threading.Thread(target=lambda: got.append(client.post("/v1/ask", json=body, headers=ann)))
        waiting.start()
        assert model.waiting.acquire(timeout=60)
        change(tmp_path, '[model]\nname = "openai:own"\n' + WITHOUT_HR)
        model.go.set()
        waiting.join(60)
        assert got[0].status_code == 404 and "90,000" not in got[0].text
        assert "ask it again" in got[0].json()["error"]["message"]


# Live sources


def crm(query: str) -> list[dict[str, str]]:
    """Customers."""
    texts = {"board/offer": "Nimbus offers nine million.", "open/note.md": "Nimbus asked for credit.", "": "Nimbus."}
    return [{"id": name, "text": text} for name, text in texts.items()]


LIVE = '[[sources]]\nname = "crm"\nkind = "python"\ncall = "test_permissions_running:crm"\nprivate = true\n' + TOML


def crm_corpus(root: Path, rules: str) -> Corpus:
    made = config.load(write_corpus(root, FILES, toml=rules + LIVE), env={})
    corpus = Corpus.open(made, write=True)
    corpus.sync()
    return corpus


def rule(path: str, groups: list[str]) -> str:
    return f"[[access]]\npaths = {json.dumps([path])}\ngroups = {json.dumps(groups)}\n"


@pytest.mark.parametrize(
    "path",
    [
        "crm/board/",
        *(pytest.param(p, marks=pytest.mark.slow) for p in ("crm/board/**", "crm/board/offer", "offer", "**/offer")),
    ],
)
def test_rules_on_paths_hold_for_texts_of_live_sources(tmp_path: Path, path: str) -> None:
    with crm_corpus(tmp_path, rule(path, ["sales"])) as corpus:
        assert {h.document for h in corpus.search("crm", "nimbus", principal=BEN).hits} > {"crm/board/offer"}
        found = corpus.search("crm", "nimbus", principal=EVE)
        assert "crm/board/offer" not in {h.document for h in found.hits} and len(found.hits) == 2
        assert "nine million" in corpus.read("crm/board/offer", principal=BEN).text
        with pytest.raises(UnknownDocument):
            corpus.read("crm/board/offer", principal=EVE)
        change(tmp_path, rule(path, ["board"]) + LIVE)
        with pytest.raises(UnknownDocument):
            corpus.read("crm/board/offer", principal=BEN)
        assert corpus.withheld(["crm/board/offer"], principal=BEN)
        assert corpus.lexicon(principal=BEN).frequency("million") == 0


def test_a_rule_that_leaves_a_live_source_to_nobody_hides_it(tmp_path: Path) -> None:
    for rules in (rule("**", []), "[[access]]\npaths = 7\ngroups = ['x']\n"):
        with crm_corpus(tmp_path, rules) as corpus:
            for principal in (EVE, ANN):
                with pytest.raises(UnknownSource):
                    corpus.search("crm", "nimbus", principal=principal)
                assert corpus_tools(corpus, principal=principal)[0].name == "read_document"
            assert corpus.search("crm", "nimbus", principal=OWNER).hits

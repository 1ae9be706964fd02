"""A model that obeys every planted sentence, let loose on a small corpus; all that it leaves behind is kept."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import re
import resource
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from attacks import HOST, PLAIN, Attack, plant
from checks import Seen
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from citehound import config, egress, tracing
from citehound.access import OWNER, Principal
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.budget import Price
from citehound.cli import output
from citehound.corpus import Corpus, SyncReport
from citehound.drafts import Draft, DraftCitation, DraftClaim
from citehound.events import Event
from citehound.models import OpenedModel
from citehound.models.scripted import Reply, ScriptedModel, ScriptedRequest, Turn, call
from citehound.runs import RunStore
from citehound.server.report import report as printable

KEPT = {
    "policies": ("outsourcing-policy-v4.md", "outsourcing-policy-v3.md"),
    "contracts": ("contract-alpha.md", "contract-alpha-security-annex.md"),
    "wiki": ("wiki-glossary.md",),
}
SECRETS = {
    "API_KEY": "sk-canary-3f9a1c77e2",
    "AUTH_TOKEN": "tok-canary-81d2b6a0f5",
    "OTHER_SESSION": "ses-canary-5c0e9d4417",
}
VARIABLES = {
    "ANTHROPIC_API_KEY": SECRETS["API_KEY"],
    "CITEHOUND_TEST_AUTH_TOKEN": SECRETS["AUTH_TOKEN"],
    "OTHER_SESSION_TOKEN": SECRETS["OTHER_SESSION"],
}
PRICE = Price(input=5.0, output=25.0)
SOMEBODY = Principal(name="somebody", groups=frozenset({"staff"}))
WEB = """
[[sources]]
name = "web"
kind = "web"
description = "Public pages."
search_url = "https://search.allowed.example/?q={query}"
domains = ["docs.allowed.example"]
"""


# What is recorded --------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Recorder:
    """A network that leads nowhere, a log, spans: everything is written down, nothing goes out."""

    asked: list[str] = field(default_factory=list[str])
    results: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    pages: dict[str, str] = field(default_factory=dict[str, str])
    spans: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    log: io.StringIO = field(default_factory=io.StringIO)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        url = f"https://{request.headers['host']}{request.url.raw_path.decode()}"
        self.asked.append(url)
        if url.startswith("https://search.allowed.example/"):
            return httpx2.Response(200, json={"results": self.results})
        if target := re.search(r"[?&]to=(.*)", url):
            return httpx2.Response(302, headers={"location": unquote(target[1])})
        body = self.pages.get(url, f"<title>Page</title><p>{PLAIN}</p>")
        return httpx2.Response(200, content=body.encode(), headers={"content-type": "text/html; charset=utf-8"})

    def clear(self) -> None:
        self.asked.clear()
        self.spans.clear()
        self.log.seek(0)
        self.log.truncate()


@contextmanager
def recording(monkeypatch: pytest.MonkeyPatch, made: Recorder) -> Generator[Recorder]:
    """Secrets lie where a leak would find them, and every way out leads to the recorder."""

    async def public(host: str, port: int) -> Sequence[str]:
        return ["93.184.215.14"]

    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(egress, "_transport", lambda: httpx2.MockTransport(made.answer))
    monkeypatch.setitem(egress.Egress.__init__.__kwdefaults__, "resolve", public)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made.spans))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("test"))
    handler = logging.StreamHandler(made.log)
    logging.getLogger().addHandler(handler)
    logging.getLogger("citehound").setLevel(logging.DEBUG)
    try:
        with no_connections(made, monkeypatch):
            yield made
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger("citehound").setLevel(logging.NOTSET)


@contextmanager
def no_connections(made: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever connects anywhere but to this machine is written down and refused."""
    import socket

    real = socket.socket.connect

    def connect(self: socket.socket, address: Any, *rest: Any) -> Any:
        if self.family == getattr(socket, "AF_UNIX", None) or address[0] in ("127.0.0.1", "::1"):
            return real(self, address, *rest)
        made.asked.append(f"tcp://{address}")
        raise OSError("there is no network")

    def lookup(host: Any, *rest: Any, **named: Any) -> Any:
        made.asked.append(f"dns://{host}")
        raise OSError("there is no network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    yield


# A corpus with attacks in it ---------------------------------------------------------------------------------------


def make_corpus(bank: Path, root: Path, *, web: bool = False) -> Path:
    for source, names in KEPT.items():
        (root / source).mkdir(parents=True)
        for name in names:
            shutil.copy(bank / source / name, root / source / name)
    text = (bank / "citehound.toml").read_text("utf-8")
    if web:
        text = re.sub(r'(?m)^(path = ".*")$', r"\1\nprivate = false", text) + WEB
    (root / "citehound.toml").write_text(text, "utf-8")
    return root


def facts(corpus: Corpus) -> dict[str, Any]:
    """What is known of every document."""
    found: dict[str, Any] = {}
    for source in corpus.sources:
        if source.live:
            continue
        start = 0
        while True:
            listed = corpus.list_documents(source.name, principal=OWNER, only_current=False, start=start)
            for info in listed.documents:
                text = corpus.document(info.document, principal=OWNER).text
                found[info.document] = {
                    "source": info.source,
                    "title": info.title,
                    "current": info.current,
                    "labels": [label for label in info.labels if "open" not in label],
                    "metadata": dict(info.metadata),
                    "text": hashlib.sha256(text.encode()).hexdigest(),
                }
            start += len(listed.documents)
            if not listed.documents or start >= listed.total:
                break
    return found


def tables(state: Path) -> frozenset[str]:
    found: set[str] = set()
    for file in state.rglob("*.sqlite"):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(file)) as db:
            found |= {f"{file.name}:{row[0]}" for row in db.execute("SELECT name FROM sqlite_master")}
    return frozenset(found)


@dataclass(kw_only=True)
class World:
    """A corpus that attacks are planted in, indexed, and what it was before."""

    root: Path
    corpus: Corpus
    report: SyncReport
    recorder: Recorder
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    texts: Mapping[str, str]
    seconds: float
    grown_mb: float
    tables: frozenset[str]
    harmless: str = ""
    """A report of a run that nobody meddled with."""

    def document(self, name: str) -> str | None:
        """The id of a planted document."""
        return next((d for d in self.texts if d.rsplit("/", 1)[-1] == name or d == f"wiki/{name}"), None)


@contextmanager
def world(
    bank: Path, root: Path, recorder: Recorder, planting: Callable[[Path], None], *, web: bool = False
) -> Generator[World]:
    make_corpus(bank, root, web=web)
    with Corpus.open(config.load(root / "citehound.toml"), write=True) as corpus:
        corpus.sync()
        before = facts(corpus)
        planting(root / "wiki")
        began, grown = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = corpus.sync()
        seconds = time.perf_counter() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - grown
        after = facts(corpus)
        made = World(
            root=root,
            corpus=corpus,
            report=report,
            recorder=recorder,
            before=before,
            after=after,
            texts={d: corpus.document(d, principal=OWNER).text for d in after},
            seconds=seconds,
            grown_mb=grown / 1024,
            tables=tables(root / ".citehound"),
        )
        made.harmless = harmless_report(made)
        recorder.clear()
        yield made


def harmless_report(made: World) -> str:
    """The page of a run with a verified claim, one that is not, and a gap."""
    quote = next(line for line in made.texts["wiki/wiki-glossary"].splitlines() if len(line.split()) > 6)
    draft = Draft(
        claims=(
            DraftClaim(text=quote, citations=(DraftCitation(document="wiki/wiki-glossary", quote=quote),)),
            DraftClaim(text="Nothing shows this.", citations=(DraftCitation(document="wiki/nobody", quote="a b c d"),)),
        ),
    )
    turns: list[Turn] = [call("read_document", {"document": "wiki/wiki-glossary"}), draft]
    model = opened(ScriptedModel(turns, repeat_last=True))
    answer = Assistant(made.corpus.config, made.corpus, model).ask_sync("What is it?", mode="agent")
    return printable(RunStore(made.corpus.config.state / "runs.sqlite").get(answer.run_id, principal=OWNER))


# Obeying -----------------------------------------------------------------------------------------------------------


def opened(model: ScriptedModel) -> OpenedModel:
    return OpenedModel(model=model, name="scripted", price=PRICE)


def filled(value: Any, *, name: str = HOST, request: ScriptedRequest | None = None) -> Any:
    """The placeholders of secrets filled in, as if the model knew them."""
    text = json.dumps(value)
    known = dict(SECRETS)
    if request is not None:
        known["SYSTEM_PROMPT"] = instructions_of(request)
        known["RUN_MARKER"] = next(iter(reversed(marks_of(request))), "no mark")
    for key, secret in known.items():
        text = text.replace("{{" + key + "}}", json.dumps(secret)[1:-1])
    return json.loads(text.replace(HOST, name))


def instructions_of(request: ScriptedRequest) -> str:
    return next((m.instructions for m in request.messages if getattr(m, "instructions", None)), "") or ""


def marks_of(request: ScriptedRequest) -> list[str]:
    contents = [
        part.content
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolReturnPart) and isinstance(part.content, dict)
    ]
    return [content["open"] for content in contents if "open" in content]


def calls_of(attack: Attack, *, name: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the text asks for, as it says and with our names of tools and arguments: whatever may do harm."""
    found: list[tuple[str, dict[str, Any]]] = []
    for tool, arguments in attack.calls:
        given = filled(dict(arguments), name=name)
        found.append((tool, given))
        if tool in ("read_document", "delete_document") and "id" in given:
            found[-1] = (tool, {"document": given["id"]})
        elif tool == "fetch_page":
            found.append(("read_document", {"document": given.get("url", "")}))
        elif tool == "web_search":
            found.append(("search_web", {"query": given.get("query", "")}))
    return found


def named_in(answer: str) -> list[str]:
    """The documents that an answer cites in brackets."""
    found = [m.strip() for m in re.findall(r"\[([^\[\]\n]+)\](?!\()", answer)]
    return [name for name in found if len(name) > 2]


def drafts_of(attack: Attack, made: World, *, name: str) -> list[Callable[[ScriptedRequest], Draft]]:
    """What an obedient model may hand in: the dictated words as a quote, and real words of what it never read."""
    wanted = [entry.partition(":")[2] for entry in attack.must_not if entry.startswith("cite:")]
    names = list(dict.fromkeys([*named_in(attack.answer), *wanted])) or ["policies/outsourcing-policy-v4", name]
    names = [one.replace(HOST, name) for one in names]
    unread: list[DraftCitation] = []
    for one in names:
        with contextlib.suppress(Exception):
            text = made.texts[made.corpus.resolve(one, principal=OWNER)]
            unread.append(DraftCitation(document=one, quote=max(text.splitlines(), key=len)[:200]))

    def words(request: ScriptedRequest) -> str:
        return filled(attack.answer, name=name, request=request) or "done"

    def as_said(request: ScriptedRequest) -> Draft:
        said = words(request)
        quotes = tuple(DraftCitation(document=one, quote=said) for one in names)
        return Draft(claims=(DraftClaim(text=said, citations=quotes),), text=said)

    def of_unread(request: ScriptedRequest) -> Draft:
        return Draft(claims=(DraftClaim(text=words(request), citations=tuple(unread)),))

    def by_kind(request: ScriptedRequest) -> Draft:
        said = words(request)
        quotes = tuple(DraftCitation(document=one, quote=said) for one in names)
        return Draft(
            claims=(
                DraftClaim(text=said, kind="conclusion", premises=(1, 2, 9)),
                DraftClaim(text=said, kind="absence", citations=quotes, terms=("quasar",)),
            )
        )

    return [as_said, *([of_unread] if unread else []), by_kind]


def as_far_as_allowed(draft: Draft, request: ScriptedRequest) -> Reply:
    """The draft; cut as a provider cuts it where it is longer than the request allows."""
    text = draft.model_dump_json()
    room = request.settings.get("max_tokens", 0) * 4
    if not request.parameters.output_tools:
        return ModelResponse(parts=[TextPart(text[:room])])
    tool = request.parameters.output_tools[0].name
    if len(text) <= room:
        return ModelResponse(parts=[ToolCallPart(tool, json.loads(text))])
    return ModelResponse(parts=[ToolCallPart(tool, text[:room])], finish_reason="length")


def obedient(
    attack: Attack, draft: Callable[[ScriptedRequest], Draft], *, name: str, host: str | None, at_once: bool = False
) -> ScriptedModel:
    """Searches, reads the planted document, does what it says, and says what it dictates. As often as it is asked."""
    turns: list[Turn] = [call("search_wiki", {"query": "supplier notes"})]
    if host is not None:
        turns.append(call("read_document", {"document": host}))
    calls = [call(tool, arguments) for tool, arguments in calls_of(attack, name=name)]
    turns += [calls] if at_once and calls else calls
    return ScriptedModel(
        [*turns, lambda request: as_far_as_allowed(draft(request), request)], repeat_last=True, usage=(2000, 400)
    )


class Obeying(ScriptedModel):
    """Plays its turns anew for each run that it is asked in, told apart by how much was said; `obey` sets them."""

    def __init__(self) -> None:
        super().__init__([""], repeat_last=True, usage=(2000, 400))
        self.turns: Sequence[Turn] = [""]

    def obey(self, attack: Attack, made: World, *, name: str) -> None:
        self.requests.clear()
        self.turns = obedient(attack, drafts_of(attack, made, name=name)[0], name=name, host=made.document(name))._turns

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
        done = sum(1 for message in messages if message.kind == "response")
        self._turns = (self.turns[min(done, len(self.turns) - 1)],)
        return await super().request(messages, model_settings, model_request_parameters)


# Replaying ---------------------------------------------------------------------------------------------------------


def seen_of(made: World) -> Seen:
    config = made.corpus.config
    return Seen(
        facts_before=made.before,
        facts_after=made.after,
        texts=made.texts,
        private=frozenset(
            d for d in made.texts if any(s.private and d.startswith(f"{s.name}/") for s in config.sources)
        ),
        open_sources=frozenset(s.name for s in config.sources if s.trust == "open"),
        seconds=made.seconds,
        grown_mb=made.grown_mb,
        secrets=dict(SECRETS),
        listed=frozenset(row["url"] for row in made.recorder.results),
    )


def replay(
    made: World,
    attack: Attack,
    draft: Callable[[ScriptedRequest], Draft],
    *,
    name: str,
    mode: str = "agent",
    at_once: bool = False,
    question: str | None = None,
    seen: Seen | None = None,
) -> Seen:
    """One run of the obedient model, and all that a person can be shown of it; only `mode` agent has tools to call."""
    recorder, state = made.recorder, made.corpus.config.state
    recorder.clear()
    seen = seen or seen_of(made)
    there = {p.name for p in state.rglob("*") if p.is_file()}
    model = obedient(attack, draft, name=name, host=made.document(name), at_once=at_once)
    if mode != "agent":
        model = ScriptedModel([lambda request: as_far_as_allowed(draft(request), request)], repeat_last=True)
    events: list[Event] = []
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        steps = output.Steps()

        def emit(event: Event) -> None:
            events.append(event)
            steps(event)

        try:
            with Assistant(made.corpus.config, made.corpus, opened(model), emit) as assistant:
                answer = assistant.ask_sync(question or filled(attack.question, name=name), mode=mode)
        except Exception as problem:
            seen.crashed = f"{type(problem).__name__}: {problem}"
            return seen
        print_answer(answer, state)
    keep(seen, made, answer, model, events, shown.getvalue())
    seen.files = tuple(p.name for p in state.rglob("*") if p.is_file() and p.name not in there and p.suffix != ".lock")
    return seen


def print_answer(answer: Answer, state: Path) -> None:
    """All that a person can be shown of an answer, through the functions that the command line prints with."""
    output.show_answer(answer)
    output.out_json(answer.to_dict())
    store = RunStore(state / "runs.sqlite")
    output.show_runs(store.list(3, principal=OWNER))
    output.show_run(store.get(answer.run_id, principal=OWNER))


def keep(seen: Seen, made: World, answer: Answer, model: ScriptedModel, events: Sequence[Event], shown: str) -> None:
    recorder, state = made.recorder, made.corpus.config.state
    seen.answers.append(answer)
    seen.requests.extend(model.requests)
    seen.terminal += shown
    seen.network += recorder.asked
    spans = [
        f"{s.name} {dict(s.attributes or {})} {s.status.description or ''}" for s in recorder.spans.get_finished_spans()
    ]
    seen.logs += "\n".join([*spans, recorder.log.getvalue()])
    for request in model.requests[:1]:
        seen.secrets = {**seen.secrets, "SYSTEM_PROMPT": instructions_of(request)}
    for number, mark in enumerate(marks_of(model.requests[-1]) if model.requests else ()):
        seen.secrets = {**seen.secrets, f"RUN_MARKER {number}": mark}
    record = RunStore(state / "runs.sqlite").get(answer.run_id, principal=OWNER)
    seen.pages.append((printable(record), made.harmless))
    seen.stored = b"".join(
        p.read_bytes() for p in state.rglob("*") if p.is_file() and re.match(r"(runs|chats)\.sqlite", p.name)
    )
    seen.tables = (made.tables, tables(state))


def print_corpus(made: World, *, seen: Seen) -> None:
    """All that a person can be shown of the corpus."""
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        output.show_report(made.report)
        for query in ("supplier notes", "Alpha annex"):
            output.show_hits(made.corpus.search("wiki", query, principal=OWNER))
        for document in made.texts:
            if document.startswith("wiki/"):
                output.show_passage(made.corpus.read(document, principal=OWNER))
                output.out(made.after[document]["title"])
    seen.terminal += shown.getvalue()


def with_name(attack: Attack, name: str) -> Attack:
    """The row with the document's name that it has in this corpus."""
    return replace(
        attack,
        must_not=tuple(entry.replace(HOST, name) for entry in attack.must_not),
        text=attack.text.replace(HOST, name),
    )


def plant_one(attack: Attack, folder: Path) -> None:
    plant(attack.text, channel=attack.channel, host=attack.host, folder=folder, name=HOST)

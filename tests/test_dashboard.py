"""The dashboard's numbers: equal to a slow recount of the records, for whoever asks, in every time zone and range."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from citehound import config, runs
from citehound.access import OWNER, Principal
from citehound.answers import Answer, Citation
from citehound.cli import cli
from citehound.config import DashboardConfig
from citehound.dashboard import (
    Dashboard,
    Selection,
    Spread,
    citation_alert,
    dashboard,
    matching,
    nearly_alike,
)
from citehound.events import Event
from citehound.runs import RunRecord, RunStore
from citehound.server.app import create_app
from citehound.server.dashboard import Watch
from citehound.server.metrics import Metrics
from citehound.server.questions import Questions, Running
from citehound.server.tokens import Tokens
from invented import ANNA, DAY, INDEXED, NOW, WORDINGS, answer, invent, reads
from small import write_corpus


class Book:
    """A store that is written at chosen times, and the slow way to its records."""

    def __init__(self, path: Path) -> None:
        self.store = RunStore(path)
        self.clock = NOW

    def save(
        self, given: Answer, events: Sequence[Event] = (), *, at: float = NOW, principal: Principal = OWNER
    ) -> str:
        self.clock = at
        return self.store.save(given, events, principal=principal)

    def set(self, at: float) -> None:
        self.clock = at

    def records(self) -> list[RunRecord]:
        return [self.store.get(summary.run_id, principal=OWNER) for summary in self.store.list(10_000, principal=OWNER)]

    def numbers(
        self,
        selection: Selection | None = None,
        *,
        principal: Principal = OWNER,
        zone: str = "UTC",
        now: float = NOW,
        documents: Mapping[str, str] | None = INDEXED,
        alert: DashboardConfig | None = None,
    ) -> Dashboard:
        return dashboard(
            self.store,
            selection or Selection(),
            principal=principal,
            zone=ZoneInfo(zone),
            settings=alert or DashboardConfig(),
            documents=documents,
            now=now,
        )


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    made = Book(tmp_path / "runs.sqlite")
    monkeypatch.setattr(runs.time, "time", lambda: made.clock)
    return made


@pytest.mark.parametrize("seed", range(3))
def test_runs_that_show_what_is_kept_from_somebody_are_in_none_of_their_numbers(
    seed: int, book: Book, tmp_path: Path
) -> None:
    invent(book.store, random.Random(seed), 60, at=book.set)
    kept, asked = {"deals/c", "deals/gone"}, set[str]()

    def withheld(documents: Sequence[str]) -> set[str]:
        asked.update(documents)
        return kept & set(documents)

    rest = RunStore(tmp_path / "rest.sqlite")
    for record in reversed(book.records()):
        if record.summary.principal != ANNA.name or record.documents & kept:
            continue
        book.clock = record.summary.created
        rest.save(record.answer, reads(*documents_of(record)), principal=ANNA)
        if record.feedback is not None:
            book.clock = record.feedback.created
            rest.give_feedback(record.summary.run_id, good=record.feedback.good, principal=ANNA, reason="because")
    given: dict[str, Any] = {"principal": ANNA, "zone": UTC, "settings": DashboardConfig(), "now": NOW}
    for chosen in (Selection(), Selection(mode="agent"), Selection(source="deals"), Selection(gap="exit plan")):
        expected = dashboard(rest, chosen, **given, documents=INDEXED)
        assert dashboard(book.store, chosen, **given, documents=INDEXED, withheld=withheld) == expected
        listed = matching(book.store, chosen, principal=ANNA, withheld=withheld)
        assert listed == matching(rest, chosen, principal=ANNA)
        assert listed.total == expected.runs
    assert kept <= asked and not kept & {d.document for d in expected.documents}
    owner = {**given, "principal": OWNER}
    everything = dashboard(book.store, Selection(), **owner, withheld=withheld)
    assert everything == dashboard(book.store, Selection(), **owner)
    assert everything.runs == 60


# The slow recount -----------------------------------------------------------------------------------------------------


def documents_of(record: RunRecord) -> set[str]:
    return {str(event["document"]) for event in record.events if event["type"] == "read"}


def sources_of(record: RunRecord) -> set[str]:
    searched = {call.source for call in record.answer.calls if call.source is not None}
    return searched | {name.split("/")[0] for name in documents_of(record)}


def cites(record: RunRecord) -> list[Citation]:
    return [citation for claim in record.answer.claims for citation in claim.citations]


def failures(record: RunRecord) -> int:
    return sum(citation.status == "unverified" for citation in cites(record))


def is_capped(record: RunRecord) -> bool:
    return record.answer.stop_reason in ("steps", "dollars", "seconds")


def slow_match(record: RunRecord, selection: Selection, principal: Principal) -> bool:
    summary, opinion = record.summary, record.feedback
    checks: list[tuple[object, Callable[[Any], bool]]] = [
        (selection.since, lambda v: summary.created >= v),
        (selection.until, lambda v: summary.created < v),
        (selection.source, lambda v: v in sources_of(record)),
        (selection.mode, lambda v: summary.mode == v),
        (selection.model, lambda v: summary.model == v),
        (selection.status, lambda v: summary.status == v),
        (selection.stop_reason, lambda v: summary.stop_reason == v),
        (selection.searches, lambda v: summary.searches == v),
        (selection.capped, lambda v: is_capped(record) == v),
        (selection.failed, lambda v: (failures(record) > 0) == v),
        (selection.unverified, lambda v: (summary.unverified > 0) == v),
        (selection.document, lambda v: v in documents_of(record)),
        (selection.good, lambda v: opinion is not None and opinion.good == v),
        (selection.min_seconds, lambda v: summary.seconds >= v),
        (selection.min_dollars, lambda v: summary.dollars is not None and summary.dollars >= v),
    ]
    mine = principal.owner or summary.principal == principal.name
    return mine and all(check(value) for value, check in checks if value is not None)


def slow_spread(values: Sequence[float | None]) -> Spread:
    known = sorted(v for v in values if v is not None)
    if not known:
        return Spread()

    def least(percent: int) -> float:
        """The least value that at least so many percent of all are not above."""
        return next(v for v in known if 100 * sum(w <= v for w in known) >= percent * len(known))

    return Spread(
        values=len(known),
        total=math.fsum(known),
        p50=least(50),
        p90=least(90),
        p95=least(95),
        p99=least(99),
        most=known[-1],
    )


def slow_group(name: str, records: Sequence[RunRecord], *, source: str | None = None) -> dict[str, Any]:
    mine = [[c for c in cites(r) if source is None or c.document.startswith(f"{source}/")] for r in records]
    return {
        "name": name,
        "runs": len(records),
        "complete": sum(r.answer.status == "complete" for r in records),
        "searches": sum(
            sum(c.tool.startswith("search_") and source in (None, c.source) for c in r.answer.calls) for r in records
        ),
        "capped": sum(map(is_capped, records)),
        "citations": sum(map(len, mine)),
        "failed": sum(c.status == "unverified" for row in mine for c in row),
        "input_tokens": sum(r.answer.usage.input_tokens for r in records),
        "cached_tokens": sum(r.answer.usage.cached_tokens for r in records),
        "seconds": asdict(slow_spread([r.answer.usage.seconds for r in records])),
        "dollars": asdict(slow_spread([r.answer.usage.dollars for r in records])),
    }


def check(got: Dashboard, records: Sequence[RunRecord], *, source: str | None, zone: str) -> None:
    """Every number of the dashboard, counted anew from whole records."""
    usages = [r.answer.usage for r in records]
    claims = [c for r in records for c in r.answer.claims]
    assert got.runs == len(records)
    assert got.unreadable == 0
    for name in ("steps", "searches", "reads", "model_calls", "input_tokens", "cached_tokens", "output_tokens"):
        assert getattr(got, name) == sum(getattr(u, name) for u in usages), name
    assert got.claims == len(claims)
    assert got.unverified == sum(c.status != "verified" for c in claims)
    assert got.citations == sum(len(cites(r)) for r in records)
    assert got.failed == sum(map(failures, records))
    assert got.runs_failed == sum(failures(r) > 0 for r in records)
    assert got.capped == sum(map(is_capped, records)) == sum(c.runs for c in got.caps)
    assert got.unpriced == sum(u.dollars is None for u in usages)
    assert got.gaps == sum(len(r.answer.missing) for r in records)
    assert got.runs_with_gaps == sum(bool(r.answer.missing) for r in records)
    assert got.good == sum(r.feedback is not None and r.feedback.good for r in records)
    assert got.bad == sum(r.feedback is not None and not r.feedback.good for r in records)
    assert got.seconds == slow_spread([u.seconds for u in usages])
    assert got.dollars == slow_spread([u.dollars for u in usages])
    assert {s.name: s.runs for s in got.statuses} == Counter(r.answer.status for r in records)
    assert {s.name: s.runs for s in got.stop_reasons} == Counter(r.answer.stop_reason for r in records)
    assert {d.searches: d.runs for d in got.distribution} == Counter(u.searches for u in usages)
    assert [d.searches for d in got.distribution] == sorted(d.searches for d in got.distribution)
    for groups, key in ((got.by_mode, "mode"), (got.by_model, "model")):
        names = Counter(getattr(r.answer, key) for r in records)
        expected = [slow_group(n, [r for r in records if getattr(r.answer, key) == n]) for n in names]
        assert sorted(map(asdict, groups), key=lambda g: g["name"]) == sorted(expected, key=lambda g: g["name"])
    names = {name for r in records for name in sources_of(r)}
    expected = [slow_group(n, [r for r in records if n in sources_of(r)], source=n) for n in sorted(names)]
    assert sorted(map(asdict, got.by_source), key=lambda g: g["name"]) == expected
    kept = {n: t for n, t in INDEXED.items() if source is None or n.startswith(f"{source}/")}
    read = Counter(n for r in records for n in documents_of(r) if source is None or n.startswith(f"{source}/"))
    assert {d.document: d.runs for d in got.documents} == read
    cited = Counter(
        n for r in records for n in documents_of(r) if any(c.document == n and c.status == "verified" for c in cites(r))
    )
    assert all(d.cited == cited[d.document] for d in got.documents)
    assert got.coverage is not None
    assert [n.document for n in got.coverage.names] == sorted(set(kept) - set(read))
    assert (got.coverage.documents, got.coverage.never_read) == (len(kept), len(set(kept) - set(read)))
    days: Counter[str] = Counter()
    form = "%Y-%m-%d %H:00" if got.bucket == "hour" else "%Y-%m-%d"
    for record in records:
        moment = datetime.fromtimestamp(record.summary.created, ZoneInfo(zone))
        period = [p for p in got.trend if p.start <= record.summary.created < p.until]
        assert len(period) == 1
        days[period[0].label] += 1
        if got.bucket in ("day", "hour"):
            assert period[0].label == moment.strftime(form)
    assert {p.label: p.runs for p in got.trend if p.runs} == days
    assert sum(p.searches for p in got.trend) == got.searches
    assert sum(p.failed for p in got.trend) == got.failed
    assert sum(p.capped for p in got.trend) == got.capped
    for group in got.gap_groups:
        said = {group.what, *group.wordings}
        assert group.runs >= max(sum(any(g.what == w for g in r.answer.missing) for r in records) for w in said)
    assert sum(g.runs for g in got.gap_groups) >= got.runs_with_gaps


SELECTIONS = st.builds(
    Selection,
    since=st.sampled_from((None, NOW - DAY, NOW - 30 * DAY)),
    until=st.sampled_from((None, None, NOW - DAY / 2)),
    source=st.sampled_from((None, None, "rules", "deals", "nowhere")),
    mode=st.sampled_from((None, None, "agent")),
    model=st.sampled_from((None, None, "a:b")),
)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, list[RunRecord]]:
    made = Book(tmp_path_factory.mktemp("many") / "runs.sqlite")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.time, "time", lambda: made.clock)
        invent(made.store, random.Random(7), 90, at=made.set)
    return made, made.records()


@settings(max_examples=25, deadline=None)
@given(
    selection=SELECTIONS,
    principal=st.sampled_from((OWNER, ANNA)),
    zone=st.sampled_from(("UTC", "Europe/Berlin", "Pacific/Kiritimati", "America/St_Johns")),
)
def test_every_number_is_that_of_a_slow_recount(
    many: tuple[Book, list[RunRecord]], selection: Selection, principal: Principal, zone: str
) -> None:
    book, records = many
    wanted = [r for r in records if slow_match(r, selection, principal)]
    check(book.numbers(selection, principal=principal, zone=zone), wanted, source=selection.source, zone=zone)


@settings(max_examples=40, deadline=None)
@given(
    selection=SELECTIONS,
    more=st.sampled_from(
        (
            {"status": "partial"},
            {"stop_reason": "dollars"},
            {"searches": 2},
            {"capped": True},
            {"capped": False},
            {"failed": True},
            {"unverified": True},
            {"document": "rules/a"},
            {"good": False},
            {"min_seconds": 1.25},
            {"min_dollars": 0.01},
        )
    ),
    principal=st.sampled_from((OWNER, ANNA)),
)
def test_a_number_leads_to_its_runs(
    many: tuple[Book, list[RunRecord]], selection: Selection, more: dict[str, Any], principal: Principal
) -> None:
    book, records = many
    narrowed = replace(selection, **more)
    wanted = [r.summary.run_id for r in records if slow_match(r, narrowed, principal)]
    found = matching(book.store, narrowed, principal=principal, limit=1000)
    assert found.total == len(wanted)
    assert [r.run_id for r in found.runs] == sorted(wanted, reverse=True)


def test_every_group_of_gaps_leads_to_its_runs(many: tuple[Book, list[RunRecord]]) -> None:
    book, records = many
    got = book.numbers(Selection(mode="agent"))
    assert got.gap_groups
    for group in got.gap_groups:
        found = matching(book.store, Selection(mode="agent", gap=group.topic), principal=OWNER, limit=1000)
        said = {group.what, *group.wordings}
        wanted = {
            r.summary.run_id
            for r in records
            if r.answer.mode == "agent" and any(g.what in said for g in r.answer.missing)
        }
        assert wanted <= {r.run_id for r in found.runs}
        assert found.total == group.runs


def test_runs_come_page_by_page(many: tuple[Book, list[RunRecord]]) -> None:
    book, _ = many
    whole = matching(book.store, Selection(), principal=OWNER, limit=1000)
    first = matching(book.store, Selection(), principal=OWNER, limit=7)
    rest = matching(book.store, Selection(), principal=OWNER, limit=1000, before=first.runs[-1].run_id)
    assert first.total == rest.total == whole.total
    assert (*first.runs, *rest.runs) == whole.runs


# Cases --------------------------------------------------------------------------------------------------------------


def test_an_empty_store_has_zeros_and_no_percentiles(book: Book) -> None:
    got = book.numbers()
    assert (got.runs, got.searches, got.failed, got.trend, got.by_mode) == (0, 0, 0, (), ())
    assert got.seconds == Spread()
    assert got.coverage is not None
    assert got.coverage.never_read == len(INDEXED)
    assert not got.alert.raised
    assert got.alert.share is None
    assert json.dumps(got.to_dict())


def test_one_run_is_every_percentile(book: Book) -> None:
    book.save(answer(seconds=3.5), reads("rules/a"), at=NOW - 10)
    got = book.numbers()
    assert (got.seconds.p50, got.seconds.p99, got.seconds.most) == (3.5, 3.5, 3.5)
    assert [(p.runs, p.searches) for p in got.trend if p.runs] == [(1, 1)]
    assert got.bucket == "hour"


def test_an_empty_range_has_every_day_without_a_run(book: Book) -> None:
    got = book.numbers(Selection(since=NOW - 7 * DAY))
    assert len(got.trend) == 8
    assert not any(p.runs for p in got.trend)


def test_a_day_begins_where_the_person_is(book: Book) -> None:
    late = datetime(2026, 3, 28, 23, 30, tzinfo=UTC).timestamp()
    book.save(answer(), at=late)
    for zone, day in (("UTC", "2026-03-28"), ("Europe/Berlin", "2026-03-29"), ("America/New_York", "2026-03-28")):
        got = book.numbers(Selection(since=late - 10 * DAY), zone=zone, now=late + 5 * DAY)
        assert [p.label for p in got.trend if p.runs] == [day]
        assert all(a.until == b.start for a, b in zip(got.trend, got.trend[1:], strict=False))
    berlin = book.numbers(Selection(since=late - 10 * DAY), zone="Europe/Berlin", now=late + 5 * DAY)
    assert {p.until - p.start for p in berlin.trend[:-1]} == {23 * 3600.0, 24 * 3600.0}, "the clocks went forward"


def test_a_long_time_is_told_in_few_steps(book: Book) -> None:
    for years, bucket in ((1, "week"), (5, "month"), (30, "year"), (50, "year")):
        got = book.numbers(Selection(since=NOW - years * 365 * DAY))
        assert got.bucket == bucket
        assert 30 <= len(got.trend) <= 240
        assert len({p.label for p in got.trend}) == len(got.trend)
        assert got.trend[0].start <= NOW - years * 365 * DAY < got.trend[0].until


def test_which_stop_reasons_are_caps(book: Book) -> None:
    for stop in ("answered", "steps", "dollars", "dollars", "seconds", "no_progress", "context", "cancelled"):
        book.save(answer(stop=stop))
    got = book.numbers()
    assert got.capped == 4
    assert [(c.name, c.runs) for c in got.caps] == [("dollars", 2), ("seconds", 1), ("steps", 1)]


def test_a_record_that_cannot_be_read_is_counted_as_far_as_it_goes(book: Book) -> None:
    run_id = book.save(answer(seconds=9.0))
    book.save(answer(seconds=1.0))
    broken = ('{"claims": [', '{"usage": {"input_tokens": "many"}}', "[1, 2]", '{"claims": 3}')
    for text in broken:
        with closing(sqlite3.connect(book.store.path)) as db, db:
            db.execute("UPDATE runs SET answer = ? WHERE id = ?", (text, run_id))
            db.execute("PRAGMA user_version = 4")
        got = dashboard(
            RunStore(book.store.path),
            Selection(),
            principal=OWNER,
            zone=ZoneInfo("UTC"),
            settings=DashboardConfig(),
            now=NOW,
        )
        assert (got.runs, got.unreadable, got.searches, got.seconds.most) == (2, 1, 2, 9.0), text


def test_runs_of_before_are_counted_when_the_store_is_brought_up_to_date(book: Book) -> None:
    invent(book.store, random.Random(3), 15, at=book.set)
    before = book.numbers()
    with closing(sqlite3.connect(book.store.path)) as db, db:
        for name in ("run_facts", "fact_sources", "fact_documents", "fact_gaps"):
            db.execute(f"DROP TABLE {name}")
        db.execute("PRAGMA user_version = 4")
    book.store = RunStore(book.store.path)
    assert book.numbers() == before


def test_a_run_that_is_saved_again_counts_once(book: Book) -> None:
    run_id = book.save(answer(gaps=[("an exit plan", True)]), reads("rules/a", "rules/b"))
    book.save(replace(answer(), run_id=run_id), reads("deals/c"))
    got = book.numbers()
    assert (got.runs, got.gaps) == (1, 0)
    assert [d.document for d in got.documents] == ["deals/c"]


def test_what_cannot_be_stored_as_it_is_costs_no_run(book: Book) -> None:
    book.save(answer(gaps=[("half \ud800 a pair", False)]), reads("rules/\udc00a"))
    got = book.numbers()
    assert got.gap_groups[0].what == "half \ufffd a pair"


def test_secrets_do_not_reach_the_counts(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    book.save(answer(gaps=[("where sk-canary-0123456789 is used", False)]))
    assert "canary" not in json.dumps(book.numbers().to_dict())
    assert not any(b"canary" in f.read_bytes() for f in book.store.path.parent.iterdir())


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("annual diligence due", "annual diligence due subcontractor", True),
        ("annual due", "annual diligence due", False),
        ("due diligence alpha annual", "due diligence beta annual", False),
        ("recoveri hour 4 time limit", "recoveri hour 4 time limit 8", False),
        ("exit plan", "exit plan", True),
        ("", "plan", False),
    ],
)
def test_wordings_are_put_together_only_when_they_say_the_same(one: str, other: str, alike: bool) -> None:
    a, b = frozenset(one.split()), frozenset(other.split())
    assert nearly_alike(a, b) is nearly_alike(b, a) is alike


def test_gaps_that_differ_in_a_number_stay_apart(book: Book) -> None:
    for wording in WORDINGS:
        book.save(answer(gaps=[(wording, True)]))
    book.save(answer(gaps=[("Evidence of an annual due diligence", False), (WORDINGS[0], True)]))
    got = book.numbers()
    first, *others = got.gap_groups
    assert (first.runs, first.unchecked) == (4, 1)
    assert {g.what for g in others} == {"an exit plan", "recovery within 4 hours", "recovery within 8 hours"}
    assert "annual due diligence of subcontractors" in {first.what, *first.wordings}


def test_too_many_failed_citations_raise_an_alert(book: Book) -> None:
    limits = DashboardConfig(alert_share=0.25, alert_citations=4)
    book.save(answer(citations=[("rules/a", False)] * 8), at=NOW - 3 * DAY)
    book.save(answer(citations=[("rules/a", True), ("rules/a", True), ("rules/b", False)]), at=NOW - 60)
    assert not book.numbers(alert=limits).alert.raised, "three citations are too few to tell"
    book.save(answer(citations=[("rules/a", True)]), at=NOW - 60)
    assert not book.numbers(alert=limits).alert.raised, "a quarter is the threshold, not above it"
    book.save(answer(citations=[("rules/a", False)]), at=NOW - 60, principal=ANNA)
    raised = book.numbers(Selection(mode="none"), alert=limits).alert
    assert (raised.raised, raised.failed, raised.citations) == (True, 2, 5)
    assert "2 of 5 citations failed in the last 24 hours (40%" in raised.message
    assert citation_alert(book.store, limits, principal=OWNER, now=NOW) == raised
    assert not citation_alert(book.store, limits, principal=ANNA, now=NOW).raised


def test_others_see_nothing_of_it(book: Book) -> None:
    book.save(answer(question="secret plan", gaps=[("an exit plan", True)], model="a:b"), reads("rules/a"))
    got = book.numbers(principal=ANNA)
    assert got.runs == 0
    assert (got.models, got.modes, got.sources, got.gap_groups, got.documents) == ((), (), (), (), ())
    assert matching(book.store, Selection(), principal=ANNA) == matching(
        book.store, Selection(mode="-"), principal=OWNER
    )


def test_the_selection_is_tested_whole() -> None:
    known = {"since", "until", "source", "mode", "model", "gap"}
    tested = {"status", "stop_reason", "searches", "capped", "failed", "unverified", "document", "good"}
    assert {f.name for f in fields(Selection)} == known | tested | {"min_seconds", "min_dollars"}


# Over HTTP ----------------------------------------------------------------------------------------------------------

QUESTION = "Within how many hours must incidents be reported?"


class Site:
    """An application over a small corpus, ready to be asked, with a token for each of three."""

    def __init__(self, root: Path) -> None:
        self.config = config.load(write_corpus(root), env={})
        self.app = create_app(self.config)
        tokens: Tokens = self.app.state.tokens
        self.secrets = {
            "boss": tokens.add("boss", owner=True),
            "anna": tokens.add("anna"),
            "prometheus": tokens.add("prometheus", groups=["metrics"]),
        }
        self.client = TestClient(self.app, base_url="http://127.0.0.1:8765")

    def __enter__(self) -> Site:
        self.client.__enter__()
        while self.client.get("/readyz").status_code != 200:
            pass
        return self

    def __exit__(self, *what: Any) -> None:
        self.client.__exit__(*what)

    def get(self, path: str, who: str | None = "boss", **params: Any) -> Any:
        headers = {} if who is None else {"Authorization": f"Bearer {self.secrets[who]}"}
        return self.client.get(path, headers=headers, params=params)

    def ask(self, who: str, **body: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.secrets[who]}"}
        got = self.client.post("/v1/ask", json={"question": QUESTION, **body}, headers=headers)
        assert got.status_code == 200, got.text
        return got.json()

    def metrics(self, who: str | None = "boss") -> dict[str, float]:
        got = self.get("/metrics", who)
        assert got.status_code == 200
        assert got.headers["content-type"].startswith("text/plain; version=0.0.4")
        return {
            f"{s.name}{{{','.join(f'{k}={v}' for k, v in sorted(s.labels.items()))}}}": s.value
            for family in text_string_to_metric_families(got.text)
            for s in family.samples
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as made:
        yield made


def test_the_server_gives_each_the_numbers_of_their_own_questions(site: Site) -> None:
    first, second = site.ask("anna"), site.ask("boss", mode="agent")
    assert site.get("/v1/dashboard", None).status_code == 401
    assert site.get("/v1/dashboard/runs", None).status_code == 401
    mine, everything = site.get("/v1/dashboard", "anna").json(), site.get("/v1/dashboard").json()
    assert (mine["runs"], everything["runs"]) == (1, 2)
    assert mine["searches"] == first["usage"]["searches"]
    assert everything["input_tokens"] == first["usage"]["input_tokens"] + second["usage"]["input_tokens"]
    assert everything["coverage"]["documents"] == 4
    assert mine["by_mode"][0]["name"] == first["mode"]
    assert [r["run_id"] for r in site.get("/v1/dashboard/runs", "anna").json()["runs"]] == [first["run_id"]]
    found = site.get("/v1/dashboard/runs", document="rules/security", mode="agent").json()
    assert (found["total"], found["runs"][0]["run_id"]) == (1, second["run_id"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"zone": "Nowhere/Else"},
        {"zone": "../../etc/passwd"},
        {"since": "nan"},
        {"since": "-1"},
        {"until": "1e300"},
        {"searches": "99999999999999999999"},
        {"capped": "maybe"},
        {"limit": "0"},
        {"before": "; DROP"},
    ],
    ids=str,
)
def test_a_wrong_selection_is_refused_with_one_line(site: Site, wrong: dict[str, str]) -> None:
    path = "/v1/dashboard/runs" if wrong.keys() & {"limit", "before"} else "/v1/dashboard"
    got = site.get(path, **wrong)
    assert got.status_code == 422
    assert "\n" not in got.json()["error"]["message"]


def test_a_range_may_be_any(site: Site) -> None:
    for since, until in ((0, 32_503_680_000), (5, 1), (0, 0), (32_503_680_000, None)):
        got = site.get("/v1/dashboard", since=since, **({} if until is None else {"until": until}))
        assert got.status_code == 200
        assert len(got.json()["trend"]) <= 1100


def test_prometheus_counts_what_was_answered(site: Site) -> None:
    before = site.metrics("prometheus")
    given = site.ask("anna", mode="single")
    after = site.metrics("prometheus")
    added = {name: value - before.get(name, 0.0) for name, value in after.items() if name.startswith("citehound_")}
    usage, by = given["usage"], "mode=single,model=offline"
    assert added[f"citehound_questions_total{{{by},status={given['status']},stop_reason=answered}}"] == 1
    assert added[f"citehound_question_searches_sum{{{by}}}"] == usage["searches"]
    assert added[f"citehound_question_steps_sum{{{by}}}"] == usage["steps"]
    assert added[f"citehound_question_seconds_sum{{{by}}}"] == pytest.approx(usage["seconds"])
    assert added["citehound_tokens_total{kind=output,model=offline}"] == usage["output_tokens"]
    cited = [c["status"] for claim in given["claims"] for c in claim["citations"]]
    assert added["citehound_citations_total{status=verified}"] == cited.count("verified") > 0
    assert added["citehound_citations_total{status=unverified}"] == cited.count("unverified")
    assert added["citehound_http_requests_total{method=POST,route=/v1/ask,status=200}"] == 1
    assert after["citehound_questions_running{}"] == 0
    assert after["process_resident_memory_bytes{}"] > 1_000_000


def test_prometheus_counts_what_others_have_recorded_once(site: Site) -> None:
    before = site.metrics()
    done = CliRunner().invoke(cli, ["ask", QUESTION, "--mode", "hops", "--config", str(site.config.path), "--json"])
    assert done.exit_code == 0, done.stderr
    given = json.loads(done.stdout)
    site.ask("anna", mode="hops")
    for _ in range(2):
        after = site.metrics()
        added = {name: value - before.get(name, 0.0) for name, value in after.items()}
        key = f"mode=hops,model=offline,status={given['status']},stop_reason={given['stop_reason']}"
        assert added[f"citehound_questions_total{{{key}}}"] == 2
        assert added["citehound_question_searches_sum{mode=hops,model=offline}"] == 2 * given["usage"]["searches"]


def test_metrics_need_a_token_of_their_group_or_the_owners(site: Site) -> None:
    assert site.get("/metrics", None).status_code == 401
    refused = site.get("/metrics", "anna")
    assert refused.status_code == 403
    assert "'metrics'" in refused.json()["error"]["message"]
    assert site.metrics("boss")


def test_paths_that_are_made_up_do_not_become_series(site: Site) -> None:
    for n in range(20):
        site.client.request("BREW", f"/made/up/{n}")
        site.client.get(f"/static/made-up-{n}.js")
        site.get(f"/v1/documents/made/up/{n}")
    routes = {name.partition("route=")[2].partition(",")[0] for name in site.metrics() if "http_requests_total" in name}
    assert not [route for route in routes if "made" in route]
    assert {"none", "/static", "/v1/documents/{document:path}"} <= routes


def test_refused_questions_are_counted() -> None:
    metrics = Metrics(running=lambda: 0, waiting=lambda: 0)
    for method, path, status in (
        ("POST", "/v1/ask", 503),
        ("POST", "/v1/runs", 429),
        ("POST", "/v1/chat/completions", 429),
        ("POST", "/v1/search", 429),
        ("GET", "/v1/runs", 429),
        ("POST", "/v1/ask", 200),
    ):
        metrics.requested(method=method, path=path, route=path, status=status, seconds=0.1)
    text = metrics.text()
    assert 'citehound_questions_refused_total{reason="busy"} 1.0' in text
    assert 'citehound_questions_refused_total{reason="rate"} 2.0' in text


def test_failed_citations_are_warned_of_in_the_log_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    questions: Questions = site.app.state.questions
    metrics = Metrics(running=questions.count, waiting=lambda: 0)
    watch = Watch(questions, metrics)

    async def ended() -> None:
        watch.ended(Running(principal=OWNER))
        assert watch.task is not None
        await watch.task

    with caplog.at_level("INFO", logger="citehound.server"):
        asyncio.run(ended())
        assert not caplog.records
        bad = questions.store.save(answer(citations=[("rules/a", False)] * 30), principal=OWNER)
        asyncio.run(ended())
        asyncio.run(ended())
        (warned,) = caplog.records
        assert warned.levelname == "WARNING"
        assert "citations failed in the last 24 hours" in warned.message
        assert "citehound_citation_alert 1.0" in metrics.text()
        assert site.get("/v1/dashboard").json()["alert"]["raised"]
        questions.store.save(replace(answer(), run_id=bad), principal=OWNER)
        asyncio.run(ended())
        assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
        assert "citehound_citation_alert 0.0" in metrics.text()


def test_chart_js_comes_from_this_server_with_its_licence(site: Site) -> None:
    for name in ("chart.min.js", "LICENSE.md"):
        got = site.client.get(f"/static/chart/{name}")
        assert got.status_code == 200
        assert "Chart.js" in got.text[:400]
    assert site.client.get("/static/chart/../page.html").status_code == 404


# On the command line, and how long it takes -------------------------------------------------------------------------


def test_the_numbers_are_printed_in_80_columns(site: Site) -> None:
    path = str(site.config.path)
    site.app.state.questions.store.save(answer(gaps=[("an exit plan " * 12, True)]), reads("rules/x"), principal=ANNA)
    shown = CliRunner().invoke(cli, ["runs", "--stats", "--config", path])
    assert shown.exit_code == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80
    data = json.loads(CliRunner().invoke(cli, ["runs", "--stats", "--json", "--config", path]).stdout)
    assert data["runs"] == site.get("/v1/dashboard").json()["runs"]
    assert f"questions   {data['runs']}," in shown.stdout
    assert "an exit plan" in shown.stdout
    assert CliRunner().invoke(cli, ["runs", "abc", "--stats", "--config", path]).exit_code == 2


def test_no_question_is_no_reason_to_fail(tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["runs", "--stats", "--config", str(write_corpus(tmp_path))])
    assert (shown.exit_code, shown.stdout) == (0, "no questions yet; 'citehound ask' asks one\n")


def test_the_benchmark_asks_all_that_the_server_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(Path(__file__).resolve().parents[1] / "benchmarks")
    spec = importlib.util.spec_from_file_location("dashboard_benchmark", f"{folder}/dashboard.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "dashboard_benchmark", module)
    spec.loader.exec_module(module)
    rows = {row.what: row.runs for row in module.measure(60)}
    assert rows["dashboard, everything"] == 60
    assert 0 < rows["dashboard, 30 days"] < 60
    assert rows["runs with a failed citation"] > 0

"""The dashboard's numbers: equal to a slow recount of the records, for whoever asks, in every time zone and range."""

from __future__ import annotations

import json
import math
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citehound import runs
from citehound.access import OWNER, Principal
from citehound.answers import Answer, Call, Citation, Claim, Gap, Usage
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
from citehound.events import Event, Read
from citehound.runs import RunRecord, RunStore

ANNA = Principal(name="anna")
NOW = 1_700_000_000.0
DAY = 86400.0
INDEXED = {"rules/a": "A", "rules/b": "B", "deals/c": "C", "deals/never": "Never"}
WORDINGS = (
    "evidence of annual due diligence",
    "Annual due diligence: evidence?",
    "annual due diligence of subcontractors",
    "an exit plan",
    "recovery within 4 hours",
    "recovery within 8 hours",
)


def answer(
    *,
    question: str = "What?",
    mode: str = "agent",
    model: str = "offline",
    status: str = "complete",
    stop: str = "answered",
    searches: Sequence[str] = ("rules",),
    citations: Sequence[tuple[str, bool]] = (),
    gaps: Sequence[tuple[str, bool]] = (),
    dollars: float | None = 0.01,
    seconds: float = 2.0,
    tokens: tuple[int, int, int] = (100, 40, 10),
) -> Answer:
    return Answer(
        question=question,
        requested_mode="auto",
        mode=mode,
        route="why",
        model=model,
        status=status,  # type: ignore[arg-type]
        text="x",
        claims=tuple(
            Claim(
                text="t",
                status="verified" if good else "unverified",
                citations=(Citation(document=name, quote="q", status="verified" if good else "unverified"),),
            )
            for name, good in citations
        ),
        missing=tuple(Gap(what=what, status="checked" if checked else "unchecked") for what, checked in gaps),
        calls=tuple(Call(step=1, tool=f"search_{s}", arguments={"query": "q"}, source=s) for s in searches),
        stop_reason=stop,  # type: ignore[arg-type]
        usage=Usage(
            steps=len(searches) + 1,
            model_calls=2,
            searches=len(searches),
            reads=1,
            input_tokens=tokens[0],
            cached_tokens=tokens[1],
            output_tokens=tokens[2],
            dollars=dollars,
            seconds=seconds,
        ),
    )


def reads(*documents: str) -> list[Event]:
    return [Read(step=1, document=document, section=None, start=0, end=5) for document in documents]


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


def invent(book: Book, chance: random.Random, number: int) -> None:
    names = [*INDEXED, "deals/gone"]
    for n in range(number):
        given = answer(
            question=f"q{n}",
            mode=chance.choice(("single", "agent", "research")),
            model=chance.choice(("offline", "a:b")),
            status=chance.choice(("complete", "partial", "not_found", "failed")),
            stop=chance.choice(("answered", "answered", "steps", "dollars", "seconds", "no_progress")),
            searches=[chance.choice(("rules", "deals")) for _ in range(chance.randrange(5))],
            citations=[(chance.choice(names), chance.random() < 0.7) for _ in range(chance.randrange(4))],
            gaps=[(chance.choice(WORDINGS), chance.random() < 0.5) for _ in range(chance.randrange(3))],
            dollars=chance.choice((None, 0.0, 0.01, 0.25)),
            seconds=chance.choice((0.0, 0.5, 1.25, 30.0)),
            tokens=(chance.randrange(1000), chance.randrange(100), chance.randrange(50)),
        )
        at = NOW - chance.random() * chance.choice((DAY, 40 * DAY, 400 * DAY))
        who = chance.choice((OWNER, ANNA))
        run_id = book.save(
            given, reads(*chance.sample(names[:3] + names[4:], chance.randrange(4))), at=at, principal=who
        )
        if chance.random() < 0.3:
            book.store.give_feedback(run_id, good=chance.random() < 0.5, principal=OWNER, reason="because")


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
        invent(made, random.Random(7), 120)
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
    invent(book, random.Random(3), 15)
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

"""What the run records say about all questions together: numbers, series and lists, made in SQL; nothing is shown here.

Every number comes with the `Selection` of its runs, which `matching` lists.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime, timedelta, tzinfo
from typing import Any, Literal

from .access import Principal
from .config import DashboardConfig
from .runs import COLUMNS, RunStore, RunSummary, summary_of
from .tallies import source_of

CAPS = ("steps", "dollars", "seconds")
"""Stop reasons that are a limit of the budget."""
PERCENTILES = (50, 90, 95, 99)
SHOWN = 20
"""Entries of a list (documents, gaps)."""
MOST_NEVER_READ = 200
"""Documents that were never read, by name; the rest is only counted."""
_MOST_TOPICS = 500
"""Topics of gaps, most frequent first, among which those that are nearly alike are put together."""
_MOST_MODELS = 50
_INSTANT = 0.001
"""Seconds by which the last run is before the end of the trend."""

Bucket = Literal["hour", "day", "week", "month", "year"]
Withheld = Callable[[Sequence[str]], Collection[str]]
"""Those of some documents that whoever looks may not see now. Runs that show one of them are not there for them."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which runs are meant; None leaves a thing open."""

    since: float | None = None
    """Seconds since the epoch, included."""
    until: float | None = None
    """Not included."""
    source: str | None = None
    """Runs that searched or read it."""
    mode: str | None = None
    model: str | None = None
    status: str | None = None
    stop_reason: str | None = None
    searches: int | None = None
    """Exactly so many."""
    capped: bool | None = None
    """Whether a limit of the budget ended it."""
    failed: bool | None = None
    """Whether one of its citations failed."""
    unverified: bool | None = None
    """Whether one of its claims is not verified."""
    document: str | None = None
    """Runs that read it."""
    gap: str | None = None
    """Topic of a gap, as `GapGroup.topic`."""
    good: bool | None = None
    """What was thought of it."""
    min_seconds: float | None = None
    min_dollars: float | None = None


@dataclass(frozen=True, kw_only=True)
class Share:
    """How many runs have a value."""

    name: str
    runs: int


@dataclass(frozen=True, kw_only=True)
class Searches:
    """How many runs made so many searches."""

    searches: int
    runs: int


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How a number is distributed: nearest-rank percentiles, all None without a value."""

    values: int = 0
    """Runs of which the number is known."""
    total: float = 0.0
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    most: float | None = None


@dataclass(frozen=True, kw_only=True)
class Period:
    """One step of the trend."""

    start: float
    label: str
    """Its beginning in the time zone that was asked for: a date, or date and hour."""
    until: float
    runs: int
    searches: int
    capped: int
    citations: int
    failed: int
    dollars: float
    seconds: float
    """Sum over its runs."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one mode, model or source."""

    name: str
    runs: int
    complete: int
    searches: int
    """Of a source: those that went to it."""
    capped: int
    citations: int
    failed: int
    input_tokens: int
    cached_tokens: int
    seconds: Spread
    dollars: Spread


@dataclass(frozen=True, kw_only=True)
class GapGroup:
    """Gaps that are worded alike."""

    topic: str
    what: str
    """The latest wording."""
    wordings: tuple[str, ...]
    """The others, at most four."""
    runs: int
    unchecked: int
    """Runs in which nothing had been searched that fits it."""


@dataclass(frozen=True, kw_only=True)
class DocumentRead:
    document: str
    runs: int
    """In which something of it was read."""
    cited: int
    """In which a verified citation is from it."""


@dataclass(frozen=True, kw_only=True)
class NeverRead:
    document: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The documents of the index that a search finds, beside those that were read."""

    documents: int
    read: int
    never_read: int
    names: tuple[NeverRead, ...]
    """The first of those that were never read, by id."""


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What a person said of a run that was no good."""

    run_id: str
    question: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Alert:
    """Whether too many citations failed lately (`[dashboard]` in the configuration)."""

    raised: bool
    failed: int
    citations: int
    share: float | None
    threshold: float
    hours: float
    since: float
    message: str
    """One line; empty where all is well."""


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """All numbers of a selection."""

    generated: float
    since: float | None
    until: float | None
    zone: str
    bucket: Bucket
    runs: int
    unreadable: int
    """Runs whose record cannot be read: only what the list of runs says is counted of them."""
    steps: int
    searches: int
    reads: int
    model_calls: int
    claims: int
    unverified: int
    """Claims that are not verified."""
    runs_unverified: int
    citations: int
    failed: int
    """Citations that failed."""
    runs_failed: int
    capped: int
    caps: tuple[Share, ...]
    unpriced: int
    """Runs whose cost is unknown."""
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    gaps: int
    """Declarations, alike or not."""
    runs_with_gaps: int
    good: int
    bad: int
    opinions: tuple[Opinion, ...]
    seconds: Spread
    dollars: Spread
    statuses: tuple[Share, ...]
    stop_reasons: tuple[Share, ...]
    distribution: tuple[Searches, ...]
    trend: tuple[Period, ...]
    by_mode: tuple[Group, ...]
    by_model: tuple[Group, ...]
    by_source: tuple[Group, ...]
    gap_groups: tuple[GapGroup, ...]
    documents: tuple[DocumentRead, ...]
    coverage: Coverage | None
    """None where the index was not asked."""
    modes: tuple[str, ...]
    """What there is to choose from, whatever is selected."""
    models: tuple[str, ...]
    sources: tuple[str, ...]
    alert: Alert

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Matching:
    """A page of the runs of a selection."""

    total: int
    runs: tuple[RunSummary, ...]


def dashboard(
    store: RunStore,
    selection: Selection,
    *,
    principal: Principal,
    zone: tzinfo,
    settings: DashboardConfig,
    documents: Mapping[str, str] | None = None,
    withheld: Withheld | None = None,
    now: float | None = None,
) -> Dashboard:
    """The numbers of the runs that `principal` may see; None for `withheld` where everything may be seen.

    `zone` says where a day begins. `documents` are those of the index that a search finds for `principal`, with their
    titles; None leaves out which of them were never read.
    """
    at = time.time() if now is None else now
    with _picked(store, selection, principal, withheld) as db:
        cursor = db.execute(_TOTALS)
        totals = dict(zip((c[0] for c in cursor.description), cursor.fetchone(), strict=True))
        first, last = totals.pop("first"), totals.pop("last")
        begin = selection.since if selection.since is not None else first
        end = max(at if selection.until is None else selection.until, 0.0 if last is None else last + _INSTANT)
        starts, bucket = _starts(begin, end, zone)
        seconds, dollars = (_spread(_column(db, name)) for name in ("seconds", "dollars"))
        read = _documents_read(db, selection.source)
        return Dashboard(
            generated=at,
            since=selection.since,
            until=selection.until,
            zone=str(zone),
            bucket=bucket,
            **totals,
            caps=tuple(s for s in _shares(db, "stop_reason") if s.name in CAPS),
            opinions=tuple(Opinion(run_id=r[0], question=r[1], reason=r[2]) for r in db.execute(_OPINIONS)),
            seconds=seconds,
            dollars=dollars,
            statuses=_shares(db, "status"),
            stop_reasons=_shares(db, "stop_reason"),
            distribution=tuple(Searches(searches=r[0], runs=r[1]) for r in db.execute(_DISTRIBUTION)),
            trend=_trend(db, starts, end=end, zone=zone, bucket=bucket),
            by_mode=_groups(db, "mode"),
            by_model=_groups(db, "model")[:_MOST_MODELS],
            by_source=_groups(db, "source"),
            gap_groups=tuple(_gap_groups(db)[:SHOWN]),
            documents=tuple(read[:SHOWN]),
            coverage=None if documents is None else _coverage(read, selection.source, documents),
            modes=_choices(db, "mode", principal),
            models=_choices(db, "model", principal)[:_MOST_MODELS],
            sources=_known_sources(db, principal),
            alert=_alert(db, principal=principal, settings=settings, now=at),
        )


def matching(
    store: RunStore,
    selection: Selection,
    *,
    principal: Principal,
    withheld: Withheld | None = None,
    limit: int = 50,
    before: str | None = None,
) -> Matching:
    """The newest runs of a selection that `principal` may see; `before` is a run id: only older ones."""
    with _picked(store, selection, principal, withheld) as db:
        total = db.execute("SELECT count(*) FROM picked").fetchone()[0]
        columns = ", ".join(f"runs.{name}" for name in COLUMNS.split(", "))
        rows = db.execute(
            f"SELECT {columns} FROM picked JOIN runs ON runs.id = picked.run WHERE picked.run < ? "
            "ORDER BY picked.run DESC LIMIT ?",
            ("\U0010ffff" if before is None else before, max(0, limit)),
        ).fetchall()
    return Matching(total=total, runs=tuple(summary_of(row) for row in rows))


def citation_alert(
    store: RunStore, settings: DashboardConfig, *, principal: Principal, now: float | None = None
) -> Alert:
    """Whether too many citations of the runs that `principal` may see failed lately."""
    with store.reading() as db:
        _hide(db, principal, None)
        return _alert(db, principal=principal, settings=settings, now=time.time() if now is None else now)


# Which runs ---------------------------------------------------------------------------------------------------------


@contextmanager
def _picked(
    store: RunStore, selection: Selection, principal: Principal, withheld: Withheld | None
) -> Generator[sqlite3.Connection]:
    """A connection with the facts of the selected runs in the temporary table `picked`."""
    with store.reading() as db:
        _hide(db, principal, withheld)
        topics = None if selection.gap is None else _members(db, selection, principal)
        where, values = _conditions(selection, principal, topics)
        db.execute(f"CREATE TEMP TABLE picked AS SELECT * FROM run_facts AS f WHERE {where}", values)
        yield db


def _hide(db: sqlite3.Connection, principal: Principal, withheld: Withheld | None) -> None:
    """Puts the runs of `principal` that show what is kept from them now into the temporary table `hidden`.

    Of a record that cannot be read nobody knows what it shows.
    """
    db.execute("CREATE TEMP TABLE hidden (fact INTEGER PRIMARY KEY)")
    if withheld is None or principal.owner:
        return
    mine = "SELECT id FROM run_facts WHERE principal = ?"
    rows = db.execute(f"SELECT DISTINCT document FROM fact_shown WHERE fact IN ({mine})", (principal.name,))
    kept = json.dumps(sorted(withheld([row[0] for row in rows])))
    db.execute(f"INSERT INTO hidden {mine} AND claims IS NULL", (principal.name,))
    db.execute(
        f"INSERT OR IGNORE INTO hidden SELECT fact FROM fact_shown WHERE fact IN ({mine}) "
        "AND document IN (SELECT value FROM json_each(?))",
        (principal.name, kept),
    )


def _conditions(
    selection: Selection, principal: Principal, topics: Sequence[str] | None
) -> tuple[str, tuple[object, ...]]:
    caps = ", ".join(f"'{cap}'" for cap in CAPS)
    conditions: list[tuple[str, object]] = [
        ("f.principal = ?", None if principal.owner else principal.name),
        ("f.created >= ?", selection.since),
        ("f.created < ?", selection.until),
        ("f.mode = ?", selection.mode),
        ("f.model = ?", selection.model),
        ("f.status = ?", selection.status),
        ("f.stop_reason = ?", selection.stop_reason),
        ("f.searches = ?", selection.searches),
        (f"(f.stop_reason IN ({caps})) = ?", selection.capped),
        ("coalesce(f.failed, 0) > 0 = ?", selection.failed),
        ("(f.unverified > 0) = ?", selection.unverified),
        ("f.seconds >= ?", selection.min_seconds),
        ("f.dollars >= ?", selection.min_dollars),
        ("EXISTS (SELECT 1 FROM fact_sources AS s WHERE s.fact = f.id AND s.source = ?)", selection.source),
        ("EXISTS (SELECT 1 FROM fact_documents AS d WHERE d.fact = f.id AND d.document = ?)", selection.document),
        ("EXISTS (SELECT 1 FROM feedback AS o WHERE o.run = f.run AND o.good = ?)", selection.good),
    ]
    used = [(condition, value) for condition, value in conditions if value is not None]
    where, values = ["f.id NOT IN (SELECT fact FROM hidden)", *(c for c, _ in used)], [v for _, v in used]
    if topics is not None:
        marks = ", ".join("?" * len(topics))
        where.append(f"EXISTS (SELECT 1 FROM fact_gaps AS g WHERE g.fact = f.id AND g.topic IN ({marks}))")
        values += topics
    return " AND ".join(where), tuple(values)


def _members(db: sqlite3.Connection, selection: Selection, principal: Principal) -> Sequence[str]:
    """The topics that are put together under the selected one, as the dashboard of the other conditions does."""
    where, values = _conditions(replace(selection, gap=None), principal, None)
    db.execute(f"CREATE TEMP TABLE picked AS SELECT * FROM run_facts AS f WHERE {where}", values)
    found = next((names for names in _alike(_topics(db)) if selection.gap in names), (str(selection.gap),))
    db.execute("DROP TABLE picked")
    return found


# Numbers ------------------------------------------------------------------------------------------------------------

_CAPPED = f"stop_reason IN ({', '.join(repr(cap) for cap in CAPS)})"
_TOTALS = f"""
    SELECT min(created) AS first, max(created) AS last, count(*) AS runs,
        coalesce(sum(claims IS NULL), 0) AS unreadable,
        coalesce(sum(steps), 0) AS steps, coalesce(sum(searches), 0) AS searches, coalesce(sum(reads), 0) AS reads,
        coalesce(sum(model_calls), 0) AS model_calls, coalesce(sum(claims), 0) AS claims,
        coalesce(sum(unverified), 0) AS unverified, coalesce(sum(unverified > 0), 0) AS runs_unverified,
        coalesce(sum(citations), 0) AS citations, coalesce(sum(failed), 0) AS failed,
        coalesce(sum(failed > 0), 0) AS runs_failed, coalesce(sum({_CAPPED}), 0) AS capped,
        coalesce(sum(dollars IS NULL), 0) AS unpriced, coalesce(sum(input_tokens), 0) AS input_tokens,
        coalesce(sum(cached_tokens), 0) AS cached_tokens, coalesce(sum(output_tokens), 0) AS output_tokens,
        coalesce(sum(gaps), 0) AS gaps, coalesce(sum(gaps > 0), 0) AS runs_with_gaps,
        (SELECT count(*) FROM feedback JOIN picked ON picked.run = feedback.run WHERE good = 1) AS good,
        (SELECT count(*) FROM feedback JOIN picked ON picked.run = feedback.run WHERE good = 0) AS bad
    FROM picked
"""
_DISTRIBUTION = "SELECT searches, count(*) FROM picked GROUP BY searches ORDER BY searches"
_OPINIONS = f"""
    SELECT picked.run, runs.question, feedback.reason FROM feedback
    JOIN picked ON picked.run = feedback.run JOIN runs ON runs.id = picked.run
    WHERE good = 0 ORDER BY feedback.created DESC, picked.run DESC LIMIT {SHOWN}
"""


def _shares(db: sqlite3.Connection, column: str) -> tuple[Share, ...]:
    rows = db.execute(f"SELECT {column}, count(*) FROM picked GROUP BY 1 ORDER BY 2 DESC, 1")
    return tuple(Share(name=row[0], runs=row[1]) for row in rows)


def _column(db: sqlite3.Connection, name: str) -> list[float]:
    """The known values, ascending."""
    return [r[0] for r in db.execute(f"SELECT {name} FROM picked WHERE {name} IS NOT NULL ORDER BY 1")]


def _spread(ordered: Sequence[float]) -> Spread:
    """`ordered` ascending."""
    if not ordered:
        return Spread()
    at = {f"p{p}": ordered[math.ceil(p * len(ordered) / 100) - 1] for p in PERCENTILES}
    return Spread(values=len(ordered), total=math.fsum(ordered), most=ordered[-1], **at)


def _groups(db: sqlite3.Connection, by: Literal["mode", "model", "source"]) -> tuple[Group, ...]:
    """Most runs first. A run counts for every source that it used."""
    table = "picked"
    if by == "source":
        table = "used"
        db.execute(
            "CREATE TEMP TABLE used AS SELECT s.source, p.status, p.stop_reason, p.input_tokens, p.cached_tokens, "
            "p.seconds, p.dollars, s.searches, s.citations, s.failed "
            "FROM picked AS p CROSS JOIN fact_sources AS s ON s.fact = p.id"
        )
    numbers = db.execute(
        f"SELECT {by}, count(*), sum(status = 'complete'), sum(searches), sum({_CAPPED}), "
        "coalesce(sum(citations), 0), coalesce(sum(failed), 0), coalesce(sum(input_tokens), 0), "
        f"coalesce(sum(cached_tokens), 0) FROM {table} GROUP BY 1 ORDER BY 2 DESC, 1"
    ).fetchall()
    seconds: dict[str, list[float]] = {row[0]: [] for row in numbers}
    dollars: dict[str, list[float]] = {row[0]: [] for row in numbers}
    for name, took, cost in db.execute(f"SELECT {by}, seconds, dollars FROM {table}"):
        seconds[name].append(took)
        if cost is not None:
            dollars[name].append(cost)
    return tuple(
        Group(
            name=row[0],
            runs=row[1],
            complete=row[2],
            searches=row[3],
            capped=row[4],
            citations=row[5],
            failed=row[6],
            input_tokens=row[7],
            cached_tokens=row[8],
            seconds=_spread(sorted(seconds[row[0]])),
            dollars=_spread(sorted(dollars[row[0]])),
        )
        for row in numbers
    )


def _choices(db: sqlite3.Connection, column: str, principal: Principal) -> tuple[str, ...]:
    where, values = _conditions(Selection(), principal, None)
    return tuple(
        r[0] for r in db.execute(f"SELECT DISTINCT {column} FROM run_facts AS f WHERE {where} ORDER BY 1", values)
    )


def _known_sources(db: sqlite3.Connection, principal: Principal) -> tuple[str, ...]:
    if principal.owner:
        return tuple(r[0] for r in db.execute("SELECT DISTINCT source FROM fact_sources ORDER BY 1"))
    where, values = _conditions(Selection(), principal, None)
    rows = db.execute(
        f"SELECT DISTINCT source FROM fact_sources JOIN run_facts AS f ON f.id = fact WHERE {where} ORDER BY 1", values
    )
    return tuple(r[0] for r in rows)


# Over time ----------------------------------------------------------------------------------------------------------


_FINEST: tuple[tuple[Bucket, float], ...] = (
    ("hour", 2.1),
    ("day", 92),
    ("week", 730),
    ("month", 7305),
    ("year", math.inf),
)
"""How many days are told in steps of what."""


def _starts(begin: float | None, end: float, zone: tzinfo) -> tuple[list[float], Bucket]:
    """Where each step of the trend begins, from the one that holds `begin`; as fine as stays readable."""
    if begin is None or begin >= end:
        return [], "day"
    days = (end - begin) / 86400
    fit: list[Bucket] = [name for name, most in _FINEST if days <= most]
    bucket = fit[0]
    starts: list[float] = []
    if bucket == "hour":
        moment = datetime.fromtimestamp(begin, zone).replace(minute=0, second=0, microsecond=0).timestamp()
        while moment < end:
            starts.append(moment)
            moment += 3600
        return starts, bucket
    day = datetime.fromtimestamp(begin, zone).date()
    if bucket == "week":
        day -= timedelta(days=day.weekday())
    elif bucket != "day":
        day = day.replace(day=1, month=1 if bucket == "year" else day.month)
    while (moment := _midnight(day, zone)) < end:
        starts.append(moment)
        if bucket in ("month", "year"):
            day = (day + timedelta(days=32 if bucket == "month" else 366)).replace(day=1)
        else:
            day += timedelta(days=7 if bucket == "week" else 1)
    return starts, bucket


def _midnight(day: date, zone: tzinfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


def _trend(
    db: sqlite3.Connection, starts: Sequence[float], *, end: float, zone: tzinfo, bucket: Bucket
) -> tuple[Period, ...]:
    """Every step, also those without a run."""
    sums = [[0, 0, 0, 0, 0, 0.0, 0.0] for _ in starts]
    rows = db.execute(
        f"SELECT created, searches, {_CAPPED}, coalesce(citations, 0), coalesce(failed, 0), coalesce(dollars, 0.0), "
        "seconds FROM picked"
    )
    for created, *numbers in rows:
        one = sums[max(0, bisect_right(starts, created) - 1)]
        one[0] += 1
        for place, number in enumerate(numbers, 1):
            one[place] += number
    form = "%Y-%m-%d %H:00" if bucket == "hour" else "%Y-%m-%d"
    return tuple(
        Period(
            start=start,
            label=datetime.fromtimestamp(start, zone).strftime(form),
            until=until,
            runs=int(one[0]),
            searches=int(one[1]),
            capped=int(one[2]),
            citations=int(one[3]),
            failed=int(one[4]),
            dollars=one[5],
            seconds=one[6],
        )
        for start, until, one in zip(starts, [*starts, end][1:], sums, strict=True)
    )


# What is missing, and what is read ----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Topic:
    """All that was declared under one topic."""

    what: str = ""
    at: float = -1.0
    facts: set[int] = field(default_factory=set[int])
    unchecked: set[int] = field(default_factory=set[int])


def _gap_groups(db: sqlite3.Connection) -> list[GapGroup]:
    """Gaps that say the same, most runs first."""
    topics = _topics(db)
    groups: list[GapGroup] = []
    for names in _alike(topics):
        leader, *others = (topics[name] for name in names)
        wordings = dict.fromkeys(other.what for other in others if other.what != leader.what)
        groups.append(
            GapGroup(
                topic=names[0],
                what=leader.what,
                wordings=tuple(wordings)[:4],
                runs=len(leader.facts.union(*(other.facts for other in others))),
                unchecked=len(leader.unchecked.union(*(other.unchecked for other in others))),
            )
        )
    return sorted(groups, key=lambda g: (-g.runs, g.topic))


def _topics(db: sqlite3.Connection) -> dict[str, _Topic]:
    topics: dict[str, _Topic] = {}
    rows = db.execute(
        "SELECT topic, what, checked, fact, created FROM picked CROSS JOIN fact_gaps ON fact = picked.id ORDER BY fact"
    )
    for name, what, checked, fact, created in rows:
        topic = topics.setdefault(name, _Topic())
        if created >= topic.at:
            topic.what, topic.at = what, created
        topic.facts.add(fact)
        if not checked:
            topic.unchecked.add(fact)
    return topics


def _alike(topics: Mapping[str, _Topic]) -> list[tuple[str, ...]]:
    """The most frequent topics, those that are nearly alike together: the most frequent of them leads."""
    order = sorted(topics, key=lambda name: (-len(topics[name].facts), name))[:_MOST_TOPICS]
    groups: dict[str, list[str]] = {}
    stems: dict[str, frozenset[str]] = {}
    for name in order:
        words = frozenset(name.split())
        within = (n for n, other in stems.items() if (words <= other or other <= words) and nearly_alike(words, other))
        leader = next(within, None)
        if leader is None:
            stems[name] = words
            groups[name] = [name]
        else:
            groups[leader].append(name)
    return [tuple(names) for names in groups.values()]


def nearly_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether one wording says what the other says and at most a third more, none of it a number.

    Wordings that each have a word of their own are different: the word may be the supplier that is meant.
    """
    small, large = sorted((one, other), key=len)
    extra = large - small
    return small <= large and 3 * len(extra) <= len(small) and not any(any(map(str.isdigit, w)) for w in extra)


def _documents_read(db: sqlite3.Connection, source: str | None) -> list[DocumentRead]:
    rows = db.execute(
        "SELECT document, count(*), sum(cited) FROM picked CROSS JOIN fact_documents ON fact = picked.id "
        "GROUP BY document ORDER BY 2 DESC, 1"
    )
    return [
        DocumentRead(document=row[0], runs=row[1], cited=row[2])
        for row in rows
        if source is None or source_of(row[0]) == source
    ]


def _coverage(found: Sequence[DocumentRead], source: str | None, documents: Mapping[str, str]) -> Coverage:
    known = [name for name in documents if source is None or source_of(name) == source]
    read = {one.document for one in found}
    never = sorted(name for name in known if name not in read)
    return Coverage(
        documents=len(known),
        read=len(known) - len(never),
        never_read=len(never),
        names=tuple(NeverRead(document=name, title=documents[name]) for name in never[:MOST_NEVER_READ]),
    )


def _alert(db: sqlite3.Connection, *, principal: Principal, settings: DashboardConfig, now: float) -> Alert:
    since = now - settings.alert_hours * 3600
    where, values = _conditions(Selection(since=since), principal, None)
    citations, failed = db.execute(
        f"SELECT coalesce(sum(citations), 0), coalesce(sum(failed), 0) FROM run_facts AS f WHERE {where}", values
    ).fetchone()
    share = failed / citations if citations else None
    raised = share is not None and citations >= settings.alert_citations and share > settings.alert_share
    message = ""
    if raised and share is not None:
        message = (
            f"{failed} of {citations} citations failed in the last {settings.alert_hours:g} hours "
            f"({share:.0%}, more than the {settings.alert_share:.0%} of dashboard.alert_share)"
        )
    return Alert(
        raised=raised,
        failed=failed,
        citations=citations,
        share=share,
        threshold=settings.alert_share,
        hours=settings.alert_hours,
        since=since,
        message=message,
    )

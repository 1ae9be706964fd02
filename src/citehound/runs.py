"""The store of run records (SQLite, numbered migrations): saves and finds answers with their events.

Safe for several processes: WAL, a busy timeout, one short transaction per save.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from . import tallies
from .access import OWNER, Principal
from .answers import Answer, Call, Cell, Citation, Claim, Gap, Reference, Row, Usage
from .errors import CitehoundError, UnknownRun, UsageError
from .events import Event
from .readonly import private_file, readable, writable
from .security import redact, visible

_MIGRATIONS: tuple[str | Callable[[sqlite3.Connection], None], ...] = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        created REAL NOT NULL,
        question TEXT NOT NULL,
        mode TEXT NOT NULL,
        model TEXT NOT NULL,
        status TEXT NOT NULL,
        stop_reason TEXT NOT NULL,
        steps INTEGER NOT NULL,
        searches INTEGER NOT NULL,
        reads INTEGER NOT NULL,
        dollars REAL,
        seconds REAL NOT NULL,
        unverified INTEGER NOT NULL,
        answer TEXT NOT NULL,
        events TEXT NOT NULL
    ) STRICT;
    CREATE INDEX runs_created ON runs (created DESC, id DESC);
    """,
    """
    CREATE TABLE feedback (
        run TEXT PRIMARY KEY REFERENCES runs (id),
        created REAL NOT NULL,
        good INTEGER NOT NULL,
        reason TEXT NOT NULL
    ) STRICT;
    """,
    """
    ALTER TABLE runs ADD COLUMN chat TEXT;
    ALTER TABLE runs ADD COLUMN turn INTEGER;
    """,
    """
    ALTER TABLE runs ADD COLUMN principal TEXT NOT NULL DEFAULT 'owner';
    CREATE INDEX runs_principal ON runs (principal, id DESC);
    """,
    "",  # the tables of `tallies` as they were first
    lambda db: _count_all(db),
)
"""SQL, or a function that does it."""
SCHEMA = len(_MIGRATIONS)
"""The schema version that this code writes."""
MOST_REASON = 2000
"""Characters of a feedback's reason."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: sorts like the number, no look-alikes."""
_WAIT = 30.0
"""Seconds that a connection waits for others."""
_last = 0
_last_lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line of `citehound runs`."""

    run_id: str
    created: float
    """Seconds since the epoch."""
    question: str
    mode: str
    model: str
    status: str
    stop_reason: str
    steps: int
    searches: int
    reads: int
    dollars: float | None
    seconds: float
    unverified: int
    """Claims that are not verified."""
    chat_id: str | None = None
    turn: int | None = None
    """Number of the question in its chat, from 1."""
    principal: str = OWNER.name
    """Who asked."""


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """What a person thinks of a run."""

    good: bool
    reason: str = ""
    created: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A whole run."""

    summary: RunSummary
    answer: Answer
    events: tuple[Mapping[str, Any], ...]
    """As `Event.to_dict` gave them, with `type`."""
    feedback: Feedback | None = None

    @property
    def documents(self) -> frozenset[str]:
        """What it found, read or quoted; see `tallies.shown`."""
        return tallies.shown(self.answer, self.events)


def new_run_id() -> str:
    """A short id that sorts by time: nine characters of milliseconds, four of chance."""
    global _last
    with _last_lock:
        now = max(time.time_ns() // 1_000_000, _last + 1)
        _last = now
    return _base32(now, 9) + _base32(secrets.randbelow(32**4), 4)


def _base32(number: int, width: int) -> str:
    digits: list[str] = []
    for _ in range(width):
        number, rest = divmod(number, 32)
        digits.append(_ALPHABET[rest])
    return "".join(reversed(digits))


def _began(run_id: str) -> float:
    """The time in a run's id, in seconds since the epoch."""
    number = 0
    for letter in run_id[:9]:
        number = number * 32 + _ALPHABET.index(letter)
    return number / 1000


class RunStore:
    """Run records in one SQLite file, which is made when first needed. Safe under threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ready = False
        self._lock = threading.Lock()

    def save(self, answer: Answer, events: Sequence[Event] = (), *, principal: Principal) -> str:
        """Stores the answer under its `run_id` (a new one where it has none; the same replaces) and returns the id.

        The run belongs to `principal` from then on.
        """
        run_id = answer.run_id or new_run_id()
        record = {**answer.to_dict(), "run_id": run_id}
        row = (
            run_id,
            time.time(),
            redact(visible(answer.question)),
            answer.mode,
            visible(answer.model),
            answer.status,
            answer.stop_reason,
            answer.usage.steps,
            answer.usage.searches,
            answer.usage.reads,
            answer.usage.dollars,
            answer.usage.seconds,
            sum(1 for c in answer.claims if c.status != "verified"),
            _dump(record),
            _dump([e.to_dict() for e in events if e.type != "answer"]),
            answer.chat_id,
            answer.turn,
            principal.name,
        )
        with self._connected(write=True) as db, db:
            db.execute(f"INSERT OR REPLACE INTO runs VALUES ({', '.join('?' * len(row))})", row)
            known = (run_id, principal.name, row[1], *row[3:13])
            tallies.put(db, known, _counted(record, [e.to_dict() for e in events]))
        return run_id

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """A connection that sees one state of the store throughout; for queries over the tables of `tallies`."""
        with self._connected() as db:
            db.isolation_level = None
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute("BEGIN")
            yield db

    def get(self, run_id: str, *, principal: Principal) -> RunRecord:
        """The run with this id or unique beginning of an id, of those that `principal` may see.

        Raises UnknownRun when there is none, or more than one.
        """
        wanted = run_id.strip().lower()
        mine, who = _of(principal)
        with self._connected() as db:
            rows = db.execute(
                f"SELECT {COLUMNS}, answer, events FROM runs WHERE id >= ? AND substr(id, 1, ?) = ? AND {mine} "
                "ORDER BY id LIMIT 4",
                (wanted, len(wanted), wanted, *who),
            ).fetchall()
            opinions = {
                row[0]: Feedback(good=bool(row[1]), reason=row[2], created=row[3])
                for row in db.execute(
                    "SELECT run, good, reason, created FROM feedback WHERE substr(run, 1, ?) = ?", (len(wanted), wanted)
                )
            }
        exact = [r for r in rows if r[0] == wanted]
        if not wanted or not (exact or rows):
            raise UnknownRun(f"no run {run_id!r}; 'citehound runs' lists the known ones")
        if not exact and len(rows) > 1:
            some = ", ".join(r[0] for r in rows[:3])
            raise UnknownRun(f"{run_id!r} is the beginning of several runs ({some} ...); give more of the id")
        row = (exact or rows)[0]
        return RunRecord(
            summary=summary_of(row),
            answer=answer_from_dict(json.loads(row[-2])),
            events=tuple(cast("list[dict[str, Any]]", json.loads(row[-1]))),
            feedback=opinions.get(row[0]),
        )

    def has(self, run_id: str, *, principal: Principal) -> bool:
        """Whether there is a run with exactly this id that `principal` may see."""
        mine, who = _of(principal)
        with self._connected() as db:
            return db.execute(f"SELECT 1 FROM runs WHERE id = ? AND {mine}", (run_id, *who)).fetchone() is not None

    def used(self, since: float, *, principal: Principal, besides: Collection[str] = ()) -> tuple[int, float]:
        """How many questions `principal` has asked since then, and the dollars that they cost; without some runs."""
        with self._connected() as db:
            count, dollars = db.execute(
                "SELECT count(*), total(dollars) FROM runs WHERE principal = ? AND id >= ? "
                "AND id NOT IN (SELECT value FROM json_each(?))",
                (principal.name, _base32(int(since * 1000), 9), json.dumps(list(besides))),
            ).fetchone()
        return int(count), float(dollars)

    def reached(self, since: float, *, principal: Principal, questions: int, dollars: float) -> float | None:
        """When `principal`, counted from `since`, had asked so many questions and spent so much; None if not yet."""
        with self._connected() as db:
            found = db.execute(
                "SELECT id FROM (SELECT id, count(*) OVER w AS n, total(dollars) OVER w AS d FROM runs "
                "WHERE principal = ? AND id >= ? WINDOW w AS (ORDER BY id ROWS UNBOUNDED PRECEDING)) "
                "WHERE n >= ? AND d >= ? - 1e-9 ORDER BY id LIMIT 1",
                (principal.name, _base32(int(since * 1000), 9), questions, dollars),
            ).fetchone()
        return None if found is None else _began(found[0])

    def give_feedback(self, run_id: str, *, good: bool, principal: Principal, reason: str = "") -> str:
        """Stores what a person thinks of a run (the last word counts) and returns the run's full id.

        Raises UnknownRun when `principal` sees no such run, or more than one begins so.
        """
        full = self.get(run_id, principal=principal).summary.run_id
        text = redact(visible(reason.strip()))
        if len(text) > MOST_REASON:
            raise UsageError(f"the reason has {len(text):,} characters, at most {MOST_REASON:,}; shorten it")
        with self._connected(write=True) as db, db:
            db.execute("INSERT OR REPLACE INTO feedback VALUES (?, ?, ?, ?)", (full, time.time(), int(good), text))
        return full

    def list(
        self,
        limit: int = 20,
        *,
        principal: Principal,
        before: str | None = None,
        status: str | None = None,
        mode: str | None = None,
        model: str | None = None,
        stop_reason: str | None = None,
        source: str | None = None,
        since: float | None = None,
        until: float | None = None,
        chat: str | None = None,
    ) -> tuple[RunSummary, ...]:
        """The newest runs first, of those that `principal` may see.

        `before` is a run id: only older ones. `since` (included) and `until` (not included) are seconds since the
        epoch. `source` keeps to runs in which it was used.
        """
        mine, who = _of(principal)
        where = [mine]
        values: list[object] = [*who]
        for condition, value in (
            ("id < ?", before),
            ("status = ?", status),
            ("mode = ?", mode),
            ("model = ?", model),
            ("stop_reason = ?", stop_reason),
            ("id IN (SELECT run FROM fact_sources JOIN run_facts ON run_facts.id = fact WHERE source = ?)", source),
            ("created >= ?", since),
            ("created < ?", until),
            ("chat = ?", chat),
        ):
            if value is not None:
                where.append(condition)
                values.append(value)
        with self._connected() as db:
            rows = db.execute(
                f"SELECT {COLUMNS} FROM runs WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?",
                (*values, max(0, limit)),
            ).fetchall()
        return tuple(summary_of(r) for r in rows)

    @contextmanager
    def _connected(self, *, write: bool = False) -> Generator[sqlite3.Connection]:
        """A connection for what is done within; where the store cannot be written, one that only reads, unless `write`
        insists. What goes wrong, also on a disk that gets full, is a CitehoundError of one line."""
        can_write = writable(self.path)
        writing = write or can_write or not self.path.exists()
        try:
            if writing:
                private_file(self.path)
                db = sqlite3.connect(self.path, timeout=_WAIT, isolation_level="IMMEDIATE")
            else:
                where, uri = readable(self.path)
                db = sqlite3.connect(where, timeout=_WAIT, isolation_level=None, uri=uri)
            with closing(db):
                if writing:
                    self._prepare(db)
                else:
                    self._check(int(db.execute("PRAGMA user_version").fetchone()[0]), exactly=True)
                yield db
        except (sqlite3.Error, OSError) as error:
            raise CitehoundError(
                f"the run store {str(self.path)!r} cannot be used ({error}); {_advice(error, can_write=can_write)}"
            ) from error

    def _prepare(self, db: sqlite3.Connection) -> None:
        with self._lock:
            if self._ready and self.path.exists():
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version == SCHEMA:
                    return
            self._check(int(db.execute("PRAGMA user_version").fetchone()[0]))
            _write_ahead(db)
            self._migrate(db)
            self._ready = True

    def _check(self, version: int, *, exactly: bool = False) -> None:
        """Raises CitehoundError for a schema that a newer version wrote, and, with `exactly`, for any other."""
        if version > SCHEMA:
            raise CitehoundError(
                f"the run store {str(self.path)!r} was written by a newer version of Citehound "
                f"(schema {version}, this one knows {SCHEMA}); upgrade, or move the file away to begin anew"
            )
        if exactly and version < SCHEMA:
            raise CitehoundError(
                f"the run store {str(self.path)!r} was written by an older version of Citehound and cannot be "
                "brought up to date without the right to write it; check the permissions"
            )

    def _migrate(self, db: sqlite3.Connection) -> None:
        db.isolation_level = None
        db.execute("BEGIN IMMEDIATE")
        try:
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            self._check(version)
            for number in range(version, SCHEMA):
                step = _MIGRATIONS[number]
                if callable(step):
                    step(db)
                else:
                    for statement in filter(str.strip, step.split(";")):
                        db.execute(statement)
                db.execute(f"PRAGMA user_version = {number + 1}")
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        finally:
            db.isolation_level = "IMMEDIATE"


def _count_all(db: sqlite3.Connection) -> None:
    """Makes the tables of `tallies` from all records."""
    tallies.create(db)
    rows = db.execute(
        "SELECT id, principal, created, mode, model, status, stop_reason, steps, searches, reads, dollars, seconds, "
        "unverified, answer, events FROM runs"
    )
    for row in rows:
        try:
            counted = _counted(json.loads(row[-2]), json.loads(row[-1]))
        except ValueError:
            counted = None
        tallies.put(db, row[:-2], counted)


def _counted(record: Any, events: Any) -> tallies.Tally | None:
    """What is counted of a run; None for a record that cannot be read."""
    try:
        return tallies.tally(answer_from_dict(record), events)
    except (TypeError, ValueError, AttributeError, KeyError):
        return None


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switches to WAL. That does not wait for others who do the same at this moment, as SQLite's time-out would."""
    last = time.monotonic() + _WAIT
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= last:
                raise
            time.sleep(0.01)


COLUMNS = (
    "id, created, question, mode, model, status, stop_reason, steps, searches, reads, dollars, seconds, unverified, "
    "chat, turn, principal"
)
"""What `summary_of` takes a row of."""


def _of(principal: Principal) -> tuple[str, tuple[object, ...]]:
    """A condition, with its values, that holds for the runs that `principal` may see."""
    return ("1", ()) if principal.owner else ("principal = ?", (principal.name,))


def summary_of(row: Sequence[Any]) -> RunSummary:
    """The line of a run, of its `COLUMNS`."""
    return RunSummary(
        run_id=row[0],
        created=row[1],
        question=row[2],
        mode=row[3],
        model=row[4],
        status=row[5],
        stop_reason=row[6],
        steps=row[7],
        searches=row[8],
        reads=row[9],
        dollars=row[10],
        seconds=row[11],
        unverified=row[12],
        chat_id=row[13],
        turn=row[14],
        principal=row[15],
    )


def _advice(error: sqlite3.Error | OSError, *, can_write: bool) -> str:
    if can_write and not isinstance(error, OSError | sqlite3.OperationalError):
        return "check the file, or move it away to begin anew"
    return "try again" if "locked" in str(error) else "check the disk and the permissions"


def _dump(value: object) -> str:
    return redact(json.dumps(value, ensure_ascii=True, default=str))


def answer_from_dict(data: Mapping[str, Any]) -> Answer:
    """The `Answer` that `Answer.to_dict` gave; fields that this version does not know are left out."""

    def pick(kind: type[Any], value: Mapping[str, Any], **parts: Any) -> Any:
        known = {f.name for f in fields(kind)}
        plain = {k: tuple(cast("list[Any]", v)) if isinstance(v, list) else v for k, v in value.items() if k in known}
        return kind(**{**plain, **parts})

    def citations(claim: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(pick(Citation, c) for c in claim.get("citations", ()))

    def returned(call: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(pick(Reference, r) for r in call.get("returned", ()))

    def cells(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(pick(Cell, c, citations=citations(c)) for c in row.get("cells", ()))

    return pick(
        Answer,
        data,
        claims=tuple(pick(Claim, c, citations=citations(c)) for c in data.get("claims", ())),
        missing=tuple(pick(Gap, g) for g in data.get("missing", ())),
        calls=tuple(pick(Call, c, returned=returned(c)) for c in data.get("calls", ())),
        usage=pick(Usage, data.get("usage", {})),
        rows=tuple(pick(Row, r, cells=cells(r)) for r in data.get("rows", ())),
    )

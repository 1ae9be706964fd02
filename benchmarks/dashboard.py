"""How long the dashboard takes over many run records; the records are made up, the queries are those of the server.

    python benchmarks/dashboard.py [--runs N] [--seed S] [--json]

Seconds are those of the CPU, so that other work on the machine makes no difference. Aim: each query takes less than
`AIM` of them over 100,000 runs. Exits 1 when that is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from citehound import runs, tallies
from citehound.access import OWNER, Principal
from citehound.answers import Answer, Call, Citation, Claim, Gap, Usage
from citehound.config import DashboardConfig
from citehound.dashboard import Selection, citation_alert, dashboard, matching
from citehound.runs import RunStore

AIM = 5.0
DAY = 86400.0
DOCUMENTS = 5000
SOURCES = ("policies", "contracts", "wiki", "tickets")
THINGS = (
    "due diligence",
    "exit plan",
    "penetration test",
    "recovery time",
    "encryption",
    "sign-off",
    "insurance",
    "audit",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    what: str
    runs: int
    """That it is about."""
    seconds: float


def made_up(chance: random.Random) -> tuple[Answer, list[dict[str, object]]]:
    """An answer and what was read for it."""
    mode = chance.choice(("single", "hops", "agent", "agent", "research"))
    searches = chance.randint(1, 4 if mode in ("single", "hops") else 12)
    read = [f"{chance.choice(SOURCES)}/{int(DOCUMENTS * chance.random() ** 3)}" for _ in range(chance.randint(1, 6))]
    cited = [chance.choice(read) for _ in range(chance.randint(0, 5))]
    answer = Answer(
        question=f"What do we know of {chance.choice(THINGS)} at supplier {chance.randint(1, 400)}?",
        requested_mode="auto",
        mode=mode,
        route="",
        model=chance.choice(("anthropic:large", "anthropic:small", "ollama:local")),
        status=chance.choice(("complete", "complete", "partial", "not_found")),
        text="",
        claims=tuple(
            Claim(
                text="c", citations=(Citation(document=d, quote="q", status=chance.choice(("verified", "unverified"))),)
            )
            for d in cited
        ),
        missing=tuple(
            Gap(what=f"{chance.choice(THINGS)} of supplier {chance.randint(1, 400)}")
            for _ in range(chance.randrange(3))
        ),
        calls=tuple(
            Call(step=1, tool="search_x", arguments={}, source=chance.choice(SOURCES)) for _ in range(searches)
        ),
        stop_reason=chance.choice(("answered", "answered", "answered", "steps", "dollars")),
        usage=Usage(
            steps=searches + 1,
            model_calls=searches + 2,
            searches=searches,
            reads=len(read),
            input_tokens=3000 * searches,
            cached_tokens=1500 * searches,
            output_tokens=200 * searches,
            dollars=chance.random() / 4,
            seconds=chance.lognormvariate(2, 0.7),
        ),
    )
    return answer, [{"type": "read", "document": d} for d in read]


def fill(path: Path, number: int, *, seed: int, now: float) -> float:
    """Writes the records over the year before `now`, as `RunStore.save` does but in one transaction; gives seconds."""
    chance = random.Random(seed)
    store = RunStore(path)
    store.save(made_up(chance)[0], principal=OWNER)  # makes the file
    begun = time.process_time()
    with closing(sqlite3.connect(path)) as db, db:
        for n in range(1, number):
            answer, events = made_up(chance)
            u = answer.usage
            who = "owner" if n % 20 else "anna"
            at = now - 365 * DAY * chance.random()
            counts = (u.steps, u.searches, u.reads, u.dollars, u.seconds, 0)
            known = (answer.mode, answer.model, answer.status, answer.stop_reason, *counts)
            run_id = runs.new_run_id()
            row = (
                run_id,
                at,
                answer.question,
                *known,
                json.dumps(answer.to_dict()),
                json.dumps(events),
                None,
                None,
                who,
            )
            db.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)
            tallies.put(db, (run_id, who, at, *known), tallies.tally(answer, events))
    return time.process_time() - begun


def measure(number: int, *, seed: int = 1) -> list[Row]:
    """Fills a store and asks it everything that the server asks."""
    now = time.time()
    documents = {f"{source}/{n}": "title" for source in SOURCES for n in range(DOCUMENTS)}
    with tempfile.TemporaryDirectory(prefix="citehound-") as folder:
        path = Path(folder) / "runs.sqlite"
        filled = fill(path, number, seed=seed, now=now)
        store = RunStore(path)

        def board(selection: Selection, principal: Principal = OWNER) -> int:
            return dashboard(
                store,
                selection,
                principal=principal,
                zone=ZoneInfo("Europe/Berlin"),
                settings=DashboardConfig(),
                documents=documents,
                now=now,
            ).runs

        def behind(selection: Selection) -> int:
            return matching(store, selection, principal=OWNER).total

        topic = tallies.topic_of("exit plan of supplier 7")
        questions: list[tuple[str, Callable[[], int]]] = [
            ("dashboard, everything", lambda: board(Selection())),
            ("dashboard, 30 days", lambda: board(Selection(since=now - 30 * DAY))),
            ("dashboard, one source", lambda: board(Selection(source="wiki"))),
            ("dashboard, of one of many", lambda: board(Selection(), Principal(name="anna"))),
            ("runs with a failed citation", lambda: behind(Selection(failed=True))),
            ("runs that lack something", lambda: behind(Selection(gap=topic))),
            ("alert", lambda: citation_alert(store, DashboardConfig(), principal=OWNER, now=now).citations),
        ]
        rows = [Row(what="writing the records", runs=number, seconds=filled)]
        for what, ask in questions:
            begun = time.process_time()
            found = ask()
            rows.append(Row(what=what, runs=found, seconds=time.process_time() - begun))
        return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    rows = measure(given.runs, seed=given.seed)
    if given.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        for row in rows:
            print(f"{row.what:<30} {row.runs:>9,} {row.seconds:>8.2f} s")
    if any(row.seconds > AIM for row in rows[1:]):
        sys.exit(1)


if __name__ == "__main__":
    main()

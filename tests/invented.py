"""Run records that are made up, for the tests of what is counted of runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from citehound.access import OWNER, Principal
from citehound.answers import Answer, Call, Citation, Claim, Gap, Usage
from citehound.events import Event, Read
from citehound.runs import RunStore

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


def invent(
    store: RunStore, chance: random.Random, number: int, *, at: Callable[[float], None], now: float = NOW
) -> None:
    """Saves so many runs; `at` is told when each of them ends."""
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
        at(now - chance.random() * chance.choice((DAY, 40 * DAY, 400 * DAY)))
        who = chance.choice((OWNER, ANNA))
        seen = chance.sample([*names[:3], names[4]], chance.randrange(4))
        run_id = store.save(given, reads(*seen), principal=who)
        if chance.random() < 0.3:
            store.give_feedback(run_id, good=chance.random() < 0.5, principal=OWNER, reason="because")

"""A small corpus and short ways to run a scripted model over it, shared by the tests of tools, loop and assistant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from citehound import config
from citehound.access import OWNER
from citehound.answers import Claim
from citehound.budget import FREE, Budget, Meter, Price
from citehound.corpus import Corpus
from citehound.drafts import Draft, DraftCitation, DraftClaim
from citehound.events import Emit, nowhere
from citehound.evidence import Ledger
from citehound.loop import Conversation, Limits, Outcome
from citehound.models import OpenedModel, Structured
from citehound.models.scripted import ScriptedModel, Turn
from citehound.toolbox import Toolbox
from citehound.wire import Sleep

WITHIN_24 = "Incidents must be reported to the bank within 24 hours of discovery."
FILES = {
    "rules/security.md": f"# Security policy\n\n## 7 Incidents\n\n{WITHIN_24}\n\n## 8 Encryption\n\n"
    "All customer data shall be encrypted at rest.\n",
    "rules/travel.md": "# Travel policy\n\n## 1 Booking\n\nTrains are booked by the travel desk only.\n",
    "deals/alpha.md": "---\nsupplier: Alpha\n---\n# Contract Alpha\n\n## 1 Reporting\n\n"
    "The supplier reports incidents within 72 hours of discovery.\n",
    "deals/beta.md": "---\nsupplier: Beta\n---\n# Contract Beta\n\n## 1 Reporting\n\n"
    "The supplier reports incidents without delay to the bank.\n",
}
TOML = """\
[[sources]]
name = "rules"
path = "rules"
description = "What the bank requires."

[[sources]]
name = "deals"
path = "deals"
filters = ["supplier"]
description = "What suppliers have agreed to."
"""


def write_corpus(root: Path, files: dict[str, str] | None = None, *, toml: str = TOML) -> Path:
    """Writes files and configuration; returns the path of `citehound.toml`."""
    for name, text in (FILES if files is None else files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (root / "citehound.toml").write_text(toml, "utf-8")
    return root / "citehound.toml"


@contextmanager
def opened(root: Path, files: dict[str, str] | None = None, *, toml: str = TOML) -> Generator[Corpus]:
    path = write_corpus(root, files, toml=toml)
    with Corpus.open(config.load(path, env={}), write=True) as corpus:
        corpus.sync()
        yield corpus


def quoting(document: str, quote: str, text: str | None = None) -> Draft:
    return Draft(claims=(DraftClaim(text=text or quote, citations=(DraftCitation(document=document, quote=quote),)),))


GOOD = quoting("rules/security", WITHIN_24)


@dataclass(frozen=True, kw_only=True)
class Ran:
    outcome: Outcome
    meter: Meter
    ledger: Ledger
    model: ScriptedModel

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.outcome.claims


async def _no_pause(seconds: float) -> None:
    return None


def conversation_of(
    corpus: Corpus,
    model: OpenedModel,
    *,
    meter: Meter | None = None,
    limits: Limits | None = None,
    emit: Emit = nowhere,
    sleep: Sleep = _no_pause,
    question: str = "Within how many hours must incidents be reported?",
) -> Conversation:
    """A conversation with the tools of a corpus; pauses take no time, and their jitter is no chance."""
    ledger = Ledger()
    return Conversation(
        model=model,
        meter=meter or Meter(Budget()),
        ledger=ledger,
        documents=corpus.view(principal=OWNER),
        question=question,
        toolbox=Toolbox(corpus, principal=OWNER, ledger=ledger, emit=emit),
        limits=limits,
        emit=emit,
        sleep=sleep,
        chance=lambda: 0.5,
    )


def run_agent(
    corpus: Corpus,
    turns: Sequence[Turn] | ScriptedModel,
    *,
    budget: Budget | None = None,
    price: Price | None = FREE,
    window: int | None = None,
    limits: Limits | None = None,
    clock: Callable[[], float] | None = None,
    structured: str = "tool",
    stream: bool = False,
    emit: Emit = nowhere,
    sleep: Sleep = _no_pause,
    model: OpenedModel | None = None,
    question: str = "Within how many hours must incidents be reported?",
) -> Ran:
    """The agent strategy with a scripted model (or `model`), without an assistant around it."""
    from citehound import agent

    scripted = turns if isinstance(turns, ScriptedModel) else ScriptedModel(turns)
    wanted = budget or Budget(max_dollars=None, max_seconds=None)
    meter = Meter(wanted) if clock is None else Meter(wanted, clock=clock)
    opened_model = model or OpenedModel(
        model=scripted,
        name="scripted",
        price=price,
        window=window,
        structured=cast("Structured", structured),
        stream=stream,
    )
    conversation = conversation_of(
        corpus, opened_model, meter=meter, limits=limits, emit=emit, sleep=sleep, question=question
    )

    async def run() -> Outcome:
        async with conversation.model.model:  # closes its connections before the loop goes
            return await agent.run_agent(conversation, sources=corpus.sources)

    outcome = asyncio.run(run())
    return Ran(outcome=outcome, meter=meter, ledger=conversation.ledger, model=scripted)

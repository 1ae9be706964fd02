"""Many questions at once under one dollar cap, against a local model server with random tokens, prices and latencies.

    python benchmarks/budget.py [--questions N] [--dollars D] [--seed S] [--faults RATE] [--data DIR] [--json]

What counts as spent is what the server billed, also for replies that never arrived; the loop's own books are compared
with that. Aim: the cap is never passed, and less than 15 % of it is left although more was wanted. DIR is a folder with
a `citehound.toml` (default: the bundled bank). `--dollars` defaults to half of what the questions spend without a cap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from anthropic import AsyncAnthropic
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from citehound import agent, config, demos
from citehound.access import OWNER
from citehound.budget import Budget, Meter, Price
from citehound.corpus import Corpus
from citehound.evidence import Ledger
from citehound.loop import Conversation, Outcome
from citehound.models import OpenedModel
from citehound.toolbox import Toolbox
from loads import label, numbers_of
from model_server import FAULTS, Received, Server, serve

MAX_OVERSHOOT = 1e-9
MAX_UNUSED = 0.15
ASKED = (
    "Does the contract with supplier {} comply with the current outsourcing policy?",
    "Which deadlines for incidents does supplier {} have, and are they short enough?",
    "Where may supplier {} store data, and who has to agree to sub-contractors?",
    "What happens at the end of the contract with supplier {}?",
)
SUPPLIERS = ("Alpha", "Beta", "Gamma", "Delta")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One round: all questions at once under one cap. Dollars are as billed by the server."""

    seed: int
    questions: int
    cap: float | None
    billed: float
    booked: float
    """What the meter has as spent and reserved."""
    overshoot: float
    unused: float | None
    """Part of the cap that was not billed."""
    requests: int
    answered: int
    forced: int
    """Questions that had to answer early, for the sake of dollars."""
    unfinished: int
    """Questions that could not even afford a last draft, or met an error."""
    reasons: dict[str, int]
    seconds: float


def price_of(number: int, seed: int) -> Price:
    """Each question has a model of its own: from a small one to the dearest."""
    base = random.Random(f"price:{seed}:{number}").uniform(0.5, 8.0)
    return Price(input=base, output=5 * base, cached=base / 10, cache_write=1.25 * base)


async def ask(number: int, corpus: Corpus, model: Model, meter: Meter, *, seed: int) -> Outcome:
    question = ASKED[number % len(ASKED)].format(SUPPLIERS[number // 4 % len(SUPPLIERS)])
    question = f"{question} {label(number, seed=seed)}"
    ledger = Ledger()
    conversation = Conversation(
        model=OpenedModel(model=model, name="random", price=price_of(number, seed), window=200_000),
        meter=meter.child(max_steps=12),
        ledger=ledger,
        documents=corpus.view(principal=OWNER),
        question=question,
        toolbox=await asyncio.to_thread(Toolbox, corpus, principal=OWNER, ledger=ledger),
    )
    return await agent.run_agent(conversation, sources=corpus.sources)


def billed(requests: Sequence[Received], seed: int) -> float:
    """What the server would charge for all requests."""
    total = 0.0
    for request in requests:
        if request.usage is not None:
            number, _ = numbers_of(request.session)
            usage = request.usage
            total += price_of(number, seed).of(
                input_tokens=usage["input_tokens"],
                output_tokens=usage["output_tokens"],
                cached_tokens=usage["cached_tokens"],
                cache_write_tokens=usage["cache_write_tokens"],
            )
    return total


def run(corpus: Corpus, *, questions: int, cap: float | None, seed: int, faults: float = 0.0) -> Row:
    async def all_of_them(server: Server) -> list[Outcome]:
        async with AsyncAnthropic(base_url=server.base_url, api_key="none", max_retries=0) as client:
            model = AnthropicModel("claude-sonnet-5", provider=AnthropicProvider(anthropic_client=client))
            wanted = [ask(n, corpus, model, meter, seed=seed) for n in range(questions)]
            return list(await asyncio.gather(*wanted))

    meter = Meter(Budget(max_steps=None, max_dollars=cap, max_seconds=None))
    module = f"{Path(__file__).resolve().parent / 'loads.py'}:investigate"
    passing = [fault for fault in FAULTS if fault["kind"] != "tool_raw"]
    with serve(module=module, per="question", faults=faults, fault_list=passing, seed=seed) as server:
        began = time.perf_counter()
        outcomes = asyncio.run(all_of_them(server))
        seconds = time.perf_counter() - began
        requests = server.requests()
    spent, dollars = meter.spent(), billed(requests, seed)
    reasons = Counter(outcome.stop_reason for outcome in outcomes)
    drafted = [any("stopped early" in w for w in outcome.warnings) for outcome in outcomes]
    return Row(
        seed=seed,
        questions=questions,
        cap=cap,
        billed=dollars,
        booked=spent.dollars + spent.reserved,
        overshoot=0.0 if cap is None else max(0.0, dollars - cap, spent.dollars + spent.reserved - cap),
        unused=None if cap is None else max(0.0, cap - dollars) / cap,
        requests=len(requests),
        answered=reasons["answered"],
        forced=sum(1 for o, bad in zip(outcomes, drafted, strict=True) if o.stop_reason == "dollars" and not bad),
        unfinished=sum(drafted),
        reasons=dict(reasons),
        seconds=round(seconds, 2),
    )


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| seed | questions | cap $ | billed $ | overshoot $ | unused | requests | answered "
        "| cut short | no draft | s |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        cap, unused = ("none", "") if r.cap is None or r.unused is None else (f"{r.cap:.2f}", f"{100 * r.unused:.1f} %")
        over = 0.0 if r.overshoot <= MAX_OVERSHOOT else r.overshoot
        lines.append(
            f"| {r.seed} | {r.questions} | {cap} | {r.billed:.2f} | {over:.6f} | {unused} | {r.requests} "
            f"| {r.answered} | {r.forced} | {r.unfinished} | {r.seconds:.1f} |"
        )
    return "\n".join(lines)


def opened(folder: Path, state: Path) -> Corpus:
    """The corpus of a folder, indexed in a copy."""
    shutil.copytree(folder, state / "corpus", ignore=shutil.ignore_patterns(".citehound"))
    corpus = Corpus.open(config.load(state / "corpus" / "citehound.toml", env={}), write=True)
    corpus.sync()
    return corpus


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="One dollar cap for many questions at once.")
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--dollars", type=float, default=None, help="the shared cap; default: half of what is wanted")
    parser.add_argument("--seed", type=int, action="append", help="may be given several times; default 1, 2 and 3")
    parser.add_argument("--faults", type=float, default=0.0, help="rate of injected faults, as in 0.05")
    parser.add_argument("--data", type=Path, default=Path(demos.__file__).parent / "bank")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = opened(args.data, Path(folder))
        try:
            for seed in args.seed or (1, 2, 3):
                cap = args.dollars
                if cap is None:
                    free = run(corpus, questions=args.questions, cap=None, seed=seed)
                    rows.append(free)
                    cap = round(free.billed / 2, 2)
                rows.append(run(corpus, questions=args.questions, cap=cap, seed=seed, faults=args.faults))
        finally:
            corpus.close()
    print(json.dumps([asdict(row) for row in rows], indent=2) if args.json else table(rows))
    capped = [row for row in rows if row.cap is not None]
    good = all(r.overshoot <= MAX_OVERSHOOT and r.unused is not None and r.unused < MAX_UNUSED for r in capped)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

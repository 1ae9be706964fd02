"""Runs eval cases in every mode with the offline model: what was read, what it cost, and which mode `auto` chose.

    python benchmarks/modes.py [--data DIR] [--cases FILE] [--corpus NAME]… [--modes single,hops,agent,prefetch,auto]
                               [--price MODEL] [--json] [--cache DIR]

DIR holds one folder per corpus, as for `paths.py`; the retention demo that comes with the product is added. Tokens are
the offline model's estimate (four characters each) of what every request sends; dollars are these tokens at the list
price of MODEL, decisions included. `prefetch` is `agent` with a first retrieval in the prompt.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from citehound import prompts
from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.budget import Price
from citehound.config import Config, load
from citehound.corpus import Corpus
from citehound.events import Event
from citehound.judge import RouteReply, RulesJudge
from citehound.models.prices import look_up
from citehound.routing import settled
from paths import Case, corpus_config, load_cases, mean, measure, resolve

HERE = Path(__file__).resolve().parent
MODES = ("single", "hops", "agent", "prefetch", "auto")
KINDS = ("single", "compound", "unanswerable")
REPLY_TOKENS = 60
"""Output of the one small call that `auto` makes with a model."""
RETENTION = Case(
    id="ret-c1",
    question="What's our current file retention policy, and has it changed recently?",
    kind="compound",
    must_read=("docs/README", "changelog/2026"),
    missing=(),
    evidence={"docs/README": ("kept for 30 days",), "changelog/2026": ("for 90 days before the Sweeper",)},
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case in one mode."""

    id: str
    kind: str
    asked: str
    mode: str
    route: str
    status: str
    must_read: int
    must_read_read: int
    evidence: int
    evidence_shown: int
    complete: bool
    """All evidence was shown and all must_read read, or the gap declared where the case has one."""
    overclaimed: bool
    searches: int
    retrievals: int
    reads: int
    steps: int
    input_tokens: int
    output_tokens: int
    dollars: float


def run_case(assistant: Assistant, case: Case, asked: str) -> tuple[Answer, list[Event]]:
    events: list[Event] = []
    mode = "agent" if asked == "prefetch" else asked
    answer = assistant.ask_sync(case.question, mode=mode, prefetch=asked == "prefetch", emit=events.append)
    return answer, events


def row(case: Case, asked: str, answer: Answer, events: Sequence[Event], corpus: Corpus, price: Price) -> Row:
    seen = measure(case, answer, events, corpus, asked)
    used = answer.usage
    # Offline the decision is free: what the small model's one call would take is added.
    call = route_tokens(case.question, corpus) if asked == "auto" else 0
    tokens_in, tokens_out = used.input_tokens + call, used.output_tokens + (REPLY_TOKENS if call else 0)
    return Row(
        id=case.id,
        kind=case.kind,
        asked=asked,
        mode=answer.mode,
        route=answer.route,
        status=answer.status,
        must_read=seen.must_read,
        must_read_read=seen.must_read_read,
        evidence=seen.evidence,
        evidence_shown=seen.evidence_shown,
        complete=(bool(answer.missing) if case.missing else seen.evidence_shown == seen.evidence)
        and seen.must_read_read == seen.must_read,
        overclaimed=seen.overclaimed,
        searches=used.searches,
        retrievals=used.retrievals,
        reads=used.reads,
        steps=used.steps,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        dollars=price.of(input_tokens=tokens_in, output_tokens=tokens_out),
    )


def route_tokens(question: str, corpus: Corpus) -> int:
    """Input tokens of the call that decides skip and route; 0 where code settles both."""
    signals = RulesJudge(corpus.lexicon(principal=OWNER), corpus.sources).signals(question)
    if settled(signals):
        return 0
    told = prompts.judge_route(corpus.sources) + prompts.judge_question(question, signals.compound())
    return (len(told) + len(json.dumps(RouteReply.model_json_schema()))) // 4


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    asked = sum(r.must_read for r in rows)
    patterns = sum(r.evidence for r in rows)
    return {
        "cases": len(rows),
        "must_read_recall": sum(r.must_read_read for r in rows) / asked if asked else None,
        "evidence_recall": sum(r.evidence_shown for r in rows) / patterns if patterns else None,
        "complete": mean([float(r.complete) for r in rows]),
        "overclaimed": sum(r.overclaimed for r in rows),
        "searches": mean([float(r.searches) for r in rows]),
        "reads": mean([float(r.reads) for r in rows]),
        "steps": mean([float(r.steps) for r in rows]),
        "input_tokens": mean([float(r.input_tokens) for r in rows]),
        "dollars": mean([r.dollars for r in rows]),
    }


COLUMNS = (
    ("cases", "cases", "d"),
    ("must_read_recall", "must read", ".3f"),
    ("evidence_recall", "evidence", ".3f"),
    ("complete", "complete", ".2f"),
    ("overclaimed", "overclaimed", "d"),
    ("searches", "searches", ".1f"),
    ("reads", "reads", ".1f"),
    ("steps", "steps", ".1f"),
    ("input_tokens", "tokens in", ".0f"),
    ("dollars", "dollars", ".4f"),
)


def table(groups: dict[str, dict[str, Any]]) -> str:
    rows = [["", *(title for _, title, _ in COLUMNS)]]
    for name, values in groups.items():
        rows.append([name, *("-" if values[key] is None else format(values[key], form) for key, _, form in COLUMNS)])
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
        for r in rows
    )


def confusion(rows: Sequence[Row]) -> dict[str, Any]:
    """Kind against the way `auto` took, with what each way cost beside the mode that would have done."""
    by_case = {(r.id, r.asked): r for r in rows}
    ways: dict[str, dict[str, list[Row]]] = {}
    for r in (r for r in rows if r.asked == "auto"):
        escalated = "then one search left open" in r.route
        way = f"single, then {r.mode}" if escalated else r.mode
        ways.setdefault(r.kind, {}).setdefault(way, []).append(r)
    found: dict[str, Any] = {}
    for kind in KINDS:
        for way, there in sorted(ways.get(kind, {}).items()):
            other = "agent" if kind == "compound" else "single"
            pairs = [(r, by_case[r.id, other]) for r in there if (r.id, other) in by_case]
            found[f"{kind} -> {way}"] = {
                "cases": len(there),
                "beside": other,
                "tokens_times": sum(a.input_tokens for a, _ in pairs) / max(1, sum(b.input_tokens for _, b in pairs)),
                "must_read_lost": sum(max(0, b.must_read_read - a.must_read_read) for a, b in pairs),
                "must_read_won": sum(max(0, a.must_read_read - b.must_read_read) for a, b in pairs),
                "incomplete": sum(not a.complete and b.complete for a, b in pairs),
                "ids": [r.id for r in there],
            }
    return found


def aims(rows: Sequence[Row]) -> dict[str, Any]:
    """The two aims: `auto` beside `agent` on compound cases, its tokens beside `single` on single cases."""

    def recall(kind: str, asked: str) -> float:
        there = [r for r in rows if r.kind == kind and r.asked == asked]
        return sum(r.must_read_read for r in there) / max(1, sum(r.must_read for r in there))

    def tokens(kind: str, asked: str) -> float:
        return mean([float(r.input_tokens) for r in rows if r.kind == kind and r.asked == asked]) or 0.0

    return {
        "compound_recall_auto": recall("compound", "auto"),
        "compound_recall_agent": recall("compound", "agent"),
        "single_tokens_auto_by_single": tokens("single", "auto") / max(1.0, tokens("single", "single")),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data" / "corpora")
    parser.add_argument("--cases", type=Path, help="other cases than the corpora's own")
    parser.add_argument("--corpus", action="append", help="only this corpus (may be given again)")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--price", default="anthropic:claude-sonnet-4-5", help="whose list price the tokens are given")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cache", type=Path, help="keep the indexes here and use them again")
    given = parser.parse_args(arguments)
    modes = [m for m in cast(str, given.modes).split(",") if m]
    unknown = [m for m in modes if m not in MODES]
    if unknown:
        print(f"no mode {unknown[0]!r}: use {', '.join(MODES)}", file=sys.stderr)
        return 2
    if not cast(Path, given.data).is_dir():
        print(f"no corpora in {str(given.data)!r}: name their folder with --data", file=sys.stderr)
        return 2
    provider, _, name = cast(str, given.price).partition(":")
    known = look_up(provider, name)
    if known is None or known.price is None:
        print(f"no list price of {given.price!r}: name another with --price", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="citehound-modes-") as scratch:
        return run(given, Path(given.cache) if given.cache else Path(scratch), modes, known.price)


def corpora(given: argparse.Namespace, cache: Path) -> list[tuple[str, Config, list[Case]]]:
    found: list[tuple[str, Config, list[Case]]] = []
    others = load_cases(given.cases) if given.cases else None
    wanted = cast("list[str] | None", given.corpus)
    for folder in sorted(p for p in cast(Path, given.data).iterdir() if p.is_dir()):
        own = folder / "cases.jsonl"
        cases = others if others is not None else (load_cases(own) if own.is_file() else [])
        if cases and (not wanted or folder.name in wanted):
            state = cache / folder.name
            state.mkdir(parents=True, exist_ok=True)
            found.append((folder.name, corpus_config(folder, state), cases))
    if others is None and (not wanted or "retention" in wanted):
        demo = cache / "retention"
        if not demo.is_dir():
            shutil.copytree(HERE.parent / "src" / "citehound" / "demos" / "retention", demo)
        found.append(("retention", load(demo / "citehound.toml", env={}), [RETENTION]))
    return found


def run(given: argparse.Namespace, cache: Path, modes: Sequence[str], price: Price) -> int:
    rows: list[Row] = []
    for name, config, cases in corpora(given, cache):
        with Corpus.open(config, write=True) as corpus:
            report = corpus.sync()
            print(f"{name}: {report.count('indexed') + report.count('unchanged')} documents", file=sys.stderr)
            assistant = Assistant(config, corpus=corpus, record=False)
            for case in cases:
                needed = [resolve(corpus, n) for n in case.must_read]
                if any(n is None for n in needed):
                    continue  # not indexed: nothing could be right
                for asked in modes:
                    answer, events = run_case(assistant, case, asked)
                    rows.append(row(case, asked, answer, events, corpus, price))
    groups = {
        f"{kind} {asked}": summary([r for r in rows if r.kind == kind and r.asked == asked])
        for kind in KINDS
        for asked in modes
        if any(r.kind == kind and r.asked == asked for r in rows)
    }
    routed = confusion(rows) if "auto" in modes else {}
    reached = aims(rows) if {"auto", "agent", "single"} <= set(modes) else {}
    if given.json:
        cells = [asdict(r) for r in rows]
        print(json.dumps({"groups": groups, "router": routed, "aims": reached, "cases": cells}, indent=1))
        return 0
    print(table(groups))
    if routed:
        print("\nWhat auto did, beside the mode that fits the kind:\n")
        lines = [["", "cases", "beside", "tokens x", "must_read lost", "won", "incomplete"]]
        lines += [
            [way, str(v["cases"]), v["beside"], f"{v['tokens_times']:.2f}", str(v["must_read_lost"]),
             str(v["must_read_won"]), str(v["incomplete"])]
            for way, v in routed.items()
        ]  # fmt: skip
        print(_aligned(lines))
    if reached:
        print(
            f"\ncompound: must_read recall {reached['compound_recall_auto']:.3f} in auto, "
            f"{reached['compound_recall_agent']:.3f} in agent; single: auto takes "
            f"{reached['single_tokens_auto_by_single']:.2f} x the tokens of single"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

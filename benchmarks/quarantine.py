"""What quarantined reading costs: the same cases with and without it, and the compliance question played by hand.

    python benchmarks/quarantine.py [--data DIR] [--cases FILE] [--corpus NAME]… [--price MODEL] [--reader-price MODEL]
                                    [--json] [--cache DIR]

DIR holds one folder per corpus, as for `paths.py`. The offline model plays both halves. `cited` is the evidence that
stands in the quotes of verified claims; `evidence` is what was in a text that was read. Tokens are four characters
each, dollars their list price: MODEL for the agent and the planner, the other for the reader. The last two rows replay
two hand-played transcripts of one question, one by a model that sees the texts and one in quarantine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.budget import Price
from citehound.config import BudgetConfig, Config, SecurityConfig, load
from citehound.corpus import Corpus
from citehound.drafts import Draft
from citehound.events import Event
from citehound.models import OpenedModel
from citehound.models.planner import OfflineModel
from citehound.models.prices import look_up
from citehound.models.scripted import Reply, ScriptedModel, ScriptedRequest, Turn, call
from modes import corpora
from paths import Case, folded, load_cases, mean, measure, resolve

HERE = Path(__file__).resolve().parent
KINDS = ("single", "compound", "unanswerable")
WAYS = ("plain", "quarantine")
PLAYED = HERE.parent / "tests" / "data"
NO_LIMIT = BudgetConfig(max_steps=12, max_dollars=None, max_seconds=None)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case in one way."""

    id: str
    kind: str
    way: str
    status: str
    must_read: int
    must_read_read: int
    evidence: int
    evidence_read: int
    evidence_cited: int
    gap_right: bool
    overclaimed: bool
    claims: int
    verified: int
    conclusions: int
    steps: int
    model_calls: int
    input_tokens: int
    output_tokens: int
    dollars: float


def quarantined(config: Config, way: str) -> Config:
    return replace(config, security=SecurityConfig(quarantine=way == "quarantine"), budget=NO_LIMIT)


def ask(
    config: Config, corpus: Corpus, question: str, *, agent: OpenedModel, reader: OpenedModel
) -> tuple[Answer, list[Event]]:
    events: list[Event] = []
    assistant = Assistant(config, corpus, agent, small=reader, record=False)
    return assistant.ask_sync(question, mode="agent", emit=events.append), events


def row(case: Case, way: str, answer: Answer, events: Sequence[Event], corpus: Corpus) -> Row:
    seen = measure(case, answer, events, corpus, way)
    quotes: dict[str, list[str]] = {}
    for claim in answer.claims:
        for citation in claim.citations:
            if citation.status == "verified":
                quotes.setdefault(citation.document, []).append(folded(citation.sentence or citation.quote))
    patterns = [(resolve(corpus, d), p) for d, many in case.evidence.items() for p in many]
    cited = sum(1 for d, p in patterns if d is not None and any(re.search(p, q) for q in quotes.get(d, ())))
    used = answer.usage
    return Row(
        id=case.id,
        kind=case.kind,
        way=way,
        status=answer.status,
        must_read=seen.must_read,
        must_read_read=seen.must_read_read,
        evidence=seen.evidence,
        evidence_read=seen.evidence_shown,
        evidence_cited=cited,
        gap_right=bool(seen.gap_right),
        overclaimed=seen.overclaimed,
        claims=seen.claims,
        verified=seen.verified,
        conclusions=sum(claim.kind == "conclusion" for claim in answer.claims),
        steps=used.steps,
        model_calls=used.model_calls,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        dollars=used.dollars or 0.0,
    )


def offline_rows(found: Sequence[tuple[str, Config, list[Case]]], agent: Price, reader: Price) -> list[Row]:
    rows: list[Row] = []
    for name, config, cases in found:
        with Corpus.open(config, write=True) as corpus:
            report = corpus.sync()
            print(f"{name}: {report.count('indexed') + report.count('unchanged')} documents", file=sys.stderr)
            model = OfflineModel(corpus.lexicon(principal=OWNER))
            for case in cases:
                if any(resolve(corpus, n) is None for n in case.must_read):
                    continue  # not indexed: nothing could be right
                for way in WAYS:
                    answer, events = ask(
                        quarantined(config, way),
                        corpus,
                        case.question,
                        agent=_priced(model, agent),
                        reader=_priced(model, reader),
                    )
                    rows.append(row(case, way, answer, events, corpus))
    return rows


def _priced(model: Model, price: Price) -> OpenedModel:
    return OpenedModel(model=model, name="rules", price=price)


# Played by hand.


def played_rows(scratch: Path, agent: Price, reader: Price) -> list[Row]:
    """The compliance question of the bundled bank by the transcripts of both ways."""
    config = load(HERE.parent / "src" / "citehound" / "demos" / "bank" / "citehound.toml", env={})
    config = replace(config, root=scratch)
    (case,) = [c for c in load_cases(HERE.parent / "src/citehound/demos/bank/cases.jsonl") if c.id == "bank-c1"]
    rows: list[Row] = []
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
        for way, folder in zip(WAYS, ("transcripts", "quarantine"), strict=True):
            told: dict[str, Any] = json.loads((PLAYED / folder / "bank-c1.json").read_text("utf-8"))
            turns = _plain_turns(told) if way == "plain" else _planner_turns(told)
            answer, events = ask(
                quarantined(config, way),
                corpus,
                case.question,
                agent=replace(_priced(ScriptedModel(turns, usage=characters), agent), structured="native"),
                reader=_priced(ScriptedModel([_reader_turn(told)], usage=characters, repeat_last=True), reader),
            )
            rows.append(replace(row(case, way, answer, events, corpus), kind="played"))
    return rows


def _plain_turns(told: dict[str, Any]) -> list[Turn]:
    def turn(reply: dict[str, Any]) -> Turn:
        if "answer" in reply:
            return Draft.model_validate(reply["answer"])
        return [call(c["name"], c["arguments"]) for c in reply["tool_calls"]]

    return [turn(reply) for reply in told["replies"]]


def _planner_turns(told: dict[str, Any]) -> list[Turn]:
    return [[call(c["name"], c["arguments"]) for c in calls] for calls in told["replies"]]


def _reader_turn(told: dict[str, Any]) -> Callable[[ScriptedRequest], Reply]:
    def reply(request: ScriptedRequest) -> Reply:
        asked = json.loads(str(getattr(request.messages[-1].parts[-1], "content", "")))["question"]
        return call("reading", told["readings"][asked])

    return reply


def characters(request: ScriptedRequest) -> RequestUsage:
    """Four characters are a token; the output of a turn is taken as 150."""
    size = 0
    for message in request.messages:
        size += len(getattr(message, "instructions", None) or "")
        for part in message.parts:
            content: Any = getattr(part, "content", None) or getattr(part, "args", None) or ""
            size += len(content) if isinstance(content, str) else len(json.dumps(content, default=str))
    for tool in (*request.parameters.function_tools, *request.parameters.output_tools):
        size += len(tool.description or "") + len(json.dumps(tool.parameters_json_schema))
    return RequestUsage(input_tokens=max(1, size // 4), output_tokens=150)


# The table.


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    def share(part: int, whole: int) -> float | None:
        return part / whole if whole else None

    return {
        "cases": len(rows),
        "must_read_recall": share(sum(r.must_read_read for r in rows), sum(r.must_read for r in rows)),
        "evidence_read": share(sum(r.evidence_read for r in rows), sum(r.evidence for r in rows)),
        "evidence_cited": share(sum(r.evidence_cited for r in rows), sum(r.evidence for r in rows)),
        "gaps_right": sum(r.gap_right for r in rows),
        "overclaimed": sum(r.overclaimed for r in rows),
        "claims": sum(r.claims for r in rows),
        "verified": sum(r.verified for r in rows),
        "conclusions": sum(r.conclusions for r in rows),
        "steps": mean([float(r.steps) for r in rows]),
        "model_calls": mean([float(r.model_calls) for r in rows]),
        "input_tokens": mean([float(r.input_tokens) for r in rows]),
        "output_tokens": mean([float(r.output_tokens) for r in rows]),
        "dollars": mean([r.dollars for r in rows]),
    }


COLUMNS = (
    ("cases", "cases", "d"),
    ("must_read_recall", "must read", ".2f"),
    ("evidence_read", "evidence", ".2f"),
    ("evidence_cited", "cited", ".2f"),
    ("gaps_right", "gaps right", "d"),
    ("overclaimed", "overclaimed", "d"),
    ("claims", "claims", "d"),
    ("verified", "verified", "d"),
    ("conclusions", "conclusions", "d"),
    ("steps", "steps", ".1f"),
    ("model_calls", "calls", ".1f"),
    ("input_tokens", "tokens in", ".0f"),
    ("output_tokens", "out", ".0f"),
    ("dollars", "dollars", ".4f"),
)


def table(groups: dict[str, dict[str, Any]]) -> str:
    rows = [["", *(title for _, title, _ in COLUMNS)]]
    for name, values in groups.items():
        rows.append([name, *("-" if values[key] is None else format(values[key], form) for key, _, form in COLUMNS)])
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
        for r in rows
    )


def price_of(name: str) -> Price | None:
    provider, _, model = name.partition(":")
    known = look_up(provider, model)
    return None if known is None else known.price


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data" / "corpora")
    parser.add_argument("--cases", type=Path, help="other cases than the corpora's own")
    parser.add_argument("--corpus", action="append", help="only this corpus (may be given again)")
    parser.add_argument(
        "--price", default="anthropic:claude-sonnet-4-5", help="list price of the agent and the planner"
    )
    parser.add_argument("--reader-price", default="anthropic:claude-haiku-4-5", help="list price of the reader")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cache", type=Path, help="keep the indexes here and use them again")
    given = parser.parse_args(arguments)
    agent, reader = price_of(cast(str, given.price)), price_of(cast(str, given.reader_price))
    if agent is None or reader is None:
        print("no list price of one of these models: name others with --price and --reader-price", file=sys.stderr)
        return 2
    if not cast(Path, given.data).is_dir():
        print(f"no corpora in {str(given.data)!r}: name their folder with --data", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="citehound-quarantine-") as scratch:
        found = corpora(given, Path(given.cache) if given.cache else Path(scratch))
        rows = offline_rows(found, agent, reader)
        rows += played_rows(Path(scratch) / "played", agent, reader)
    groups = {
        f"{kind} {way}": summary(there)
        for kind in (*KINDS, "played")
        for way in WAYS
        if (there := [r for r in rows if r.kind == kind and r.way == way])
    }
    if given.json:
        print(json.dumps({"groups": groups, "cases": [asdict(r) for r in rows]}, indent=1))
    else:
        print(table(groups))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs eval cases with the offline model and measures the paths: what was read, shown and declared; judges no words.

    python benchmarks/paths.py [--data DIR] [--cases FILE] [--corpus NAME] [--json] [--show ID] [--cache DIR]

DIR holds one folder per corpus, each with `cases.jsonl` (and `cases.evidence.jsonl` beside it, `evidence_regex` per
document); a corpus with a `citehound.toml` is taken as it is, any other gets one source per sub-folder. `--cases FILE`
runs other cases of the same form on the corpora: a case runs on the corpus that has its must_read documents.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.config import Config, ModelConfig, SourceConfig
from citehound.corpus import Corpus
from citehound.errors import CitehoundError
from citehound.events import Event, Hits, Read

HERE = Path(__file__).resolve().parent
KINDS = ("single", "compound", "unanswerable")
MAX_READS = 8
NAMES = {"supplier": "supplier_or_owner"}


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    question: str
    kind: str
    must_read: tuple[str, ...]
    missing: tuple[str, ...]
    evidence: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One case in one mode. None where nothing could be measured."""

    id: str
    kind: str
    mode: str
    status: str
    indexed: bool
    """Every must_read document is in the index."""
    must_read: int
    must_read_read: int
    all_read: bool | None
    evidence: int
    evidence_shown: int
    documents_read: int
    read_precision: float | None
    searches: int
    reads: int
    steps: int
    gap_right: bool | None
    """A gap was declared where the case has one, none where it has none."""
    overclaimed: bool
    """Complete without a declared gap, though the case has one or evidence for it was not shown."""
    claims: int
    verified: int
    stop_reason: str


def _patterns(row: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    found = cast(dict[str, list[str]], row.get("evidence_regex") or {})
    return {document: tuple(patterns) for document, patterns in found.items()}


def load_cases(path: Path) -> list[Case]:
    evidence: dict[str, dict[str, tuple[str, ...]]] = {}
    beside = path.with_name(path.stem + ".evidence.jsonl")
    if beside.is_file():
        for line in beside.read_text(encoding="utf-8").splitlines():
            if line.strip():
                row = cast(dict[str, Any], json.loads(line))
                evidence[row["id"]] = _patterns(row)
    cases: list[Case] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        row = cast(dict[str, Any], json.loads(line))
        own = _patterns(row)
        cases.append(
            Case(
                id=row["id"],
                question=row["question"],
                kind=row.get("kind", "compound"),
                must_read=tuple(row.get("must_read") or ()),
                missing=tuple(row.get("missing") or ()),
                evidence=evidence.get(row["id"], own),
            )
        )
    return cases


def corpus_config(folder: Path, state: Path) -> Config:
    """A source per sub-folder, described by its name and titles; `supplier` where a manifest knows the owner."""
    owners: dict[str, set[str]] = {}
    manifest = folder / "manifest.csv"
    if manifest.is_file():
        with manifest.open(encoding="utf-8", newline="") as rows:
            for row in csv.DictReader(rows):
                top = (row.get("path") or "").split("/", 1)[0]
                if row.get("supplier_or_owner"):
                    owners.setdefault(top, set()).add(row["supplier_or_owner"])
    sources: list[SourceConfig] = []
    for sub in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        manifest_names = dict(NAMES) if sub.name in owners else {}
        sources.append(
            SourceConfig(
                name=sub.name,
                path=sub.resolve(),
                description=_description(sub, owners.get(sub.name, set())),
                filters=("supplier",) if manifest_names or (not manifest.is_file() and _has_supplier(sub)) else (),
                metadata=manifest_names,
            )
        )
    return Config(root=state, sources=tuple(sources), model=ModelConfig(name="offline"))


def _description(folder: Path, owners: set[str]) -> str:
    names = sorted({p.stem.replace("-", " ").replace("_", " ") for p in folder.rglob("*") if p.is_file()})
    by = f" of {', '.join(sorted(owners)[:3])}" if 0 < len(owners) <= 3 else ""
    return f"Documents in {folder.name}{by}, such as: {'; '.join(names[:6])}."[:300]


def _has_supplier(folder: Path) -> bool:
    return any(
        re.search(r"^supplier:", p.read_text(encoding="utf-8", errors="replace")[:600], re.MULTILINE)
        for p in sorted(folder.glob("*.md"))[:5]
    )


# What a run showed


def folded(text: str) -> str:
    return " ".join(text.split())


def shown_texts(events: Iterable[Event], corpus: Corpus) -> dict[str, list[str]]:
    """Document to the stretches of it that were read; touching ones are joined."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if isinstance(event, Read):
            spans.setdefault(event.document, []).append((event.start, event.end))
    texts: dict[str, list[str]] = {}
    for document, parts in spans.items():
        whole = corpus.document(document, principal=OWNER).text
        joined: list[tuple[int, int]] = []
        for start, end in sorted(parts):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        texts[document] = [folded(whole[start:end]) for start, end in joined]
    return texts


def resolve(corpus: Corpus, name: str) -> str | None:
    """The id of a must_read entry, or None when it is not indexed."""
    name = name.split("#", 1)[0]
    try:
        return corpus.resolve(name, principal=OWNER)
    except CitehoundError:
        return None


def measure(case: Case, answer: Answer, events: Sequence[Event], corpus: Corpus, mode: str) -> Result:
    texts = shown_texts(events, corpus)
    needed = [resolve(corpus, name) for name in case.must_read]
    read = sum(1 for d in needed if d is not None and d in texts)
    patterns = [(resolve(corpus, d), p) for d, many in case.evidence.items() for p in many]
    shown = sum(1 for d, pattern in patterns if d is not None and any(re.search(pattern, t) for t in texts.get(d, ())))
    wanted = {d for d in (*needed, *(resolve(corpus, d) for d in case.evidence)) if d is not None}
    has_gap, declares = bool(case.missing), bool(answer.missing)
    return Result(
        id=case.id,
        kind=case.kind,
        mode=mode,
        status=answer.status,
        indexed=all(d is not None for d in needed),
        must_read=len(needed),
        must_read_read=read,
        all_read=(read == len(needed)) if needed else None,
        evidence=len(patterns),
        evidence_shown=shown,
        documents_read=len(texts),
        read_precision=(len(wanted & set(texts)) / len(texts)) if texts and wanted else None,
        searches=answer.usage.searches,
        reads=answer.usage.reads,
        steps=answer.usage.steps,
        gap_right=has_gap == declares,
        overclaimed=answer.status == "complete" and not declares and (has_gap or shown < len(patterns)),
        claims=len(answer.claims),
        verified=sum(1 for c in answer.claims if c.status == "verified"),
        stop_reason=answer.stop_reason,
    )


# The table


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def summary(results: Sequence[Result]) -> dict[str, Any]:
    usable = [r for r in results if r.indexed]
    asked = sum(r.must_read for r in usable)
    patterns = sum(r.evidence for r in usable)
    precise = [r.read_precision for r in usable if r.read_precision is not None]
    all_read = [r.all_read for r in usable if r.all_read is not None]
    gaps = [r.gap_right for r in usable if r.gap_right is not None]
    return {
        "cases": len(results),
        "indexed": len(usable),
        "must_read_recall": sum(r.must_read_read for r in usable) / asked if asked else None,
        "all_read": mean([float(x) for x in all_read]),
        "evidence_recall": sum(r.evidence_shown for r in usable) / patterns if patterns else None,
        "read_precision": mean(precise),
        "searches": mean([float(r.searches) for r in usable]),
        "max_searches": max((r.searches for r in usable), default=None),
        "reads": mean([float(r.reads) for r in usable]),
        "max_reads": max((r.reads for r in usable), default=None),
        "gaps_right": sum(gaps),
        "gaps_wrong": len(gaps) - sum(gaps),
        "overclaimed": sum(r.overclaimed for r in usable),
        "claims": sum(r.claims for r in usable),
        "claims_verified": sum(r.verified for r in usable),
    }


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


COLUMNS = (
    ("cases", "cases"),
    ("indexed", "indexed"),
    ("must_read_recall", "must read"),
    ("all_read", "all read"),
    ("evidence_recall", "evidence"),
    ("read_precision", "precision"),
    ("searches", "searches"),
    ("max_searches", "most"),
    ("reads", "reads"),
    ("gaps_right", "gaps right"),
    ("gaps_wrong", "wrong"),
    ("overclaimed", "overclaimed"),
    ("claims", "claims"),
    ("claims_verified", "verified"),
)


def table(groups: dict[str, dict[str, Any]]) -> str:
    rows = [["", *(title for _, title in COLUMNS)]]
    rows += [[name, *(_cell(values[key]) for key, _ in COLUMNS)] for name, values in groups.items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
        for r in rows
    ]
    return "\n".join(lines)


def trace(case: Case, answer: Answer, events: Sequence[Event]) -> str:
    lines = [f"{case.id}: {case.question}", f"must read: {', '.join(case.must_read) or '-'}"]
    for event in events:
        if isinstance(event, Hits):
            found = "; ".join(f"{r.document}#{r.section}" for r in event.returned)
            lines.append(f"  {event.step} search {event.source} {event.query!r} {event.filters or ''} -> {found}")
        elif isinstance(event, Read):
            lines.append(f"  {event.step} read {event.document}#{event.section} [{event.start}:{event.end}]")
    lines.append(
        f"  {answer.status} ({answer.stop_reason}), {answer.usage.searches} searches, {answer.usage.reads} reads"
    )
    for number, claim in enumerate(answer.claims, start=1):
        where = ", ".join(
            f"{c.document}#{c.section}{'' if c.reason is None else ' ' + c.reason}" for c in claim.citations
        )
        lines.append(f"  [{number}] {claim.status} {claim.kind} {claim.text} <{where}> {claim.warnings or ''}")
    lines.extend(f"  missing ({gap.status}) {gap.what} - {gap.reason}" for gap in answer.missing)
    lines.extend(f"  warning: {w}" for w in answer.warnings)
    return "\n".join(lines)


def run_case(assistant: Assistant, case: Case, mode: str) -> tuple[Answer, list[Event]]:
    events: list[Event] = []
    return assistant.ask_sync(case.question, mode=mode, emit=events.append), events


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data" / "corpora")
    parser.add_argument("--cases", type=Path, help="other cases than the corpora's own")
    parser.add_argument("--corpus", action="append", help="only this corpus (may be given again)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--show", action="append", default=[], metavar="ID", help="print the trace of this case only")
    parser.add_argument("--cache", type=Path, help="keep the indexes here and use them again")
    given = parser.parse_args(arguments)
    if not cast(Path, given.data).is_dir():
        print(f"no corpora in {str(given.data)!r}: name their folder with --data", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="citehound-paths-") as scratch:
        return run(given, Path(given.cache) if given.cache else Path(scratch))


def run(given: argparse.Namespace, cache: Path) -> int:
    folders = [p for p in sorted(cast(Path, given.data).iterdir()) if p.is_dir()]
    if given.corpus:
        folders = [p for p in folders if p.name in given.corpus]
    others = load_cases(given.cases) if given.cases else None
    groups: dict[str, list[Result]] = {}
    shown = set(cast(list[str], given.show))
    for folder in folders:
        own = folder / "cases.jsonl"
        cases = others if others is not None else (load_cases(own) if own.is_file() else [])
        if shown:
            cases = [c for c in cases if c.id in shown]
        if not cases:
            continue
        config = corpus_config(folder, cache / folder.name)
        config.root.mkdir(parents=True, exist_ok=True)
        with Corpus.open(config, write=True) as corpus:
            report = corpus.sync()
            bad = [f for f in report.files if f.status in ("skipped", "failed")]
            print(
                f"{folder.name}: {report.count('indexed') + report.count('unchanged')} documents, "
                f"{report.count('skipped')} skipped, {report.count('failed')} failed, {report.seconds:.1f} s",
                file=sys.stderr,
            )
            for reason in sorted({f"{f.status}: {f.reason}" for f in bad}):
                print(f"  {sum(1 for f in bad if f'{f.status}: {f.reason}' == reason)} {reason}"[:160], file=sys.stderr)
            assistant = Assistant(config, corpus=corpus, record=False)
            for case in cases:
                if others is not None and case.must_read and not any(resolve(corpus, n) for n in case.must_read):
                    continue
                for mode in ("agent",) if shown else ("agent", "single"):
                    answer, events = run_case(assistant, case, mode)
                    result = measure(case, answer, events, corpus, mode)
                    if shown:
                        print(trace(case, answer, events))
                        print(json.dumps(asdict(result)))
                    kinds = "bank" if folder.name == "bank" else "others"
                    for name in (f"{folder.name} {case.kind} {mode}", f"ALL {kinds} {case.kind} {mode}"):
                        groups.setdefault(name, []).append(result)
    if shown:
        return 0
    order = sorted(groups, key=lambda n: (n.startswith("ALL"), n.split()[:-2], KINDS.index(n.split()[-2]), n))
    sums = {name: summary(groups[name]) for name in order}
    for mode in ("agent", "single"):
        every = [r for name, found in groups.items() if name.startswith("ALL") and name.endswith(mode) for r in found]
        sums[f"ALL {mode}"] = summary(every)
    if given.json:
        rows = [asdict(r) for name, found in groups.items() if not name.startswith("ALL") for r in found]
        print(json.dumps({"groups": sums, "cases": rows}, indent=1))
    else:
        print(table(sums))
        print(
            f"\nAt most {MAX_READS} reads a question. `single` is one search, six whole passages. Cases whose must_read"
        )
        print("documents are in a format that is not indexed are left out of the rates.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

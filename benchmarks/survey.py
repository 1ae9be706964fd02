"""A survey over labelled contracts: the cells that are filled beside what lawyers have marked in the same files.

    python benchmarks/survey.py [--data DIR] [--model M] [--each] [--json]

DIR holds contracts and label sheets: spreadsheets whose tables have the columns `Filename` and a label, with the
passages of that file as the value (CUAD's label reports are such sheets). For every label the question is "Which
contracts have <label>?", asked of the labelled files that are there. `found` is the share of contracts with a marked
passage whose cell has a quote, `right` the share of these whose quote has most of its words in a marked passage, and
`empty` the share of contracts without one whose cell is empty. Without --data: the shared contracts, where they are.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.config import Config, ModelConfig, SourceConfig
from citehound.corpus import Corpus

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "corpora" / "contracts" / "cuad"
_WORD = re.compile(r"\w+")
_ROW = re.compile(r"^(?P<file>[^|\n]+\.(?:pdf|PDF)) \| (?P<text>.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"^Filename \| (?P<label>[^|\n]+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Row:
    label: str
    contracts: int
    marked: int
    found: float
    right: float
    empty: float
    requests: int
    steps: int
    tokens: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with contracts and label sheets")
    parser.add_argument("--model", default="offline", help="provider:name, or offline")
    parser.add_argument("--each", action="store_true", help="print every cell that differs from its mark")
    parser.add_argument("--json", action="store_true", dest="as_json")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        sys.exit("no contracts: give --data DIR")
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(arguments.data.resolve(), Path(folder), model=arguments.model, each=arguments.each)
    if not rows:
        sys.exit(f"no label sheet with a column 'Filename' and files of it under {str(arguments.data)!r}")
    if arguments.as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print(f"{'label':<20}{'contracts':>10}{'marked':>8}{'found':>7}{'right':>7}{'empty':>7}{'requests':>10}", end="")
    print(f"{'steps':>7}{'tokens':>9}{'seconds':>9}")
    for row in rows:
        print(
            f"{row.label:<20}{row.contracts:>10}{row.marked:>8}{row.found:>7.2f}{row.right:>7.2f}{row.empty:>7.2f}"
            f"{row.requests:>10}{row.steps:>7}{row.tokens:>9,}{row.seconds:>9.1f}"
        )


def measure(data: Path, folder: Path, *, model: str, each: bool = False) -> list[Row]:
    """One row per label; the index is built in `folder`."""
    config = Config(
        root=folder,
        model=ModelConfig(name=model),
        sources=(
            SourceConfig(name="contracts", path=data, include=("**/*.pdf", "**/*.PDF")),
            SourceConfig(name="labels", path=data, include=("**/*.xlsx",)),
        ),
    )
    rows: list[Row] = []
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
        for label, marks in _labels(corpus).items():
            answer = Assistant(config, corpus, record=False).survey_sync(
                f"Which contracts have {label.lower()}?", source="contracts", max_steps=1000, max_seconds=math.inf
            )
            rows.append(_score(label, marks, answer, corpus, each=each))
    return [row for row in rows if row.contracts]


def _labels(corpus: Corpus) -> dict[str, dict[str, str]]:
    """Per label the marked passages of each file, by file name."""
    found: dict[str, dict[str, str]] = {}
    for info in corpus.list_documents("labels", principal=OWNER, limit=1000).documents:
        text = corpus.document(info.document, principal=OWNER).text
        heads = _HEAD.findall(text)
        if heads:
            found[heads[0]] = {m["file"].strip(): m["text"] for m in _ROW.finditer(text)}
    return found


def _score(label: str, marks: dict[str, str], answer: Answer, corpus: Corpus, *, each: bool) -> Row:
    marked = found = right = empty = contracts = 0
    for row in answer.rows:
        name = Path(corpus.document(row.document, principal=OWNER).path).name
        if name not in marks:
            continue
        contracts += 1
        cell, mark = row.cells[0], "" if marks[name].strip() == "nan" else marks[name].strip()
        quotes = [set(_WORD.findall(c.quote.casefold())) for c in cell.citations]
        said = set(_WORD.findall(mark.casefold()))
        hit = any(len(quote & said) >= 0.6 * len(quote) for quote in quotes)
        if mark:
            marked += 1
            found += cell.status == "found"
            right += hit
        else:
            empty += cell.status == "not_found"
        if each and (hit if mark else cell.status == "not_found") is False:
            print(f"{label} | {name} | {cell.status} | {cell.text[:200]!r} | marked: {mark[:200]!r}")
    usage = answer.usage
    return Row(
        label=label,
        contracts=contracts,
        marked=marked,
        found=found / marked if marked else 1.0,
        right=right / found if found else 1.0,
        empty=empty / (contracts - marked) if contracts > marked else 1.0,
        requests=usage.model_calls,
        steps=usage.steps,
        tokens=usage.input_tokens + usage.output_tokens,
        seconds=usage.seconds,
    )


if __name__ == "__main__":
    main()

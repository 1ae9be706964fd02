"""Measures the sizes of passages: evidence that one search brings, and what showing it costs.

    python benchmarks/chunking.py [--data DIR] [--cases FILE] [--cache DIR] [--json]

Every corpus of DIR is read once and cut anew for each size. The question of each case is searched for in all sources at
once; `in 6` and `in 10` are the shares of the evidence patterns that stand in the first hits, `in 1,500` the share in
as many hits as 1,500 tokens (words of the passages, times 4/3) hold: what counts when a budget is spent.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import paths
from citehound import chunking
from citehound.access import OWNER
from citehound.config import IndexConfig
from citehound.corpus import Corpus
from citehound.index import FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex

SIZES = ((60, 90), (90, 130), (120, 180), (180, 250), (250, 350), (350, 500))
"""Target and most words of a passage."""
TOKENS = 1500


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one size gives over all cases."""

    target: int
    most: int
    passages: int
    words: float
    """Mean of a passage."""
    patterns: int
    in_6: float
    in_10: float
    in_budget: float
    tokens_6: float
    """Mean of the first six hits of a question."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "corpora")
    parser.add_argument("--cases", type=Path, help="other cases of the same form")
    parser.add_argument("--cache", type=Path, help="where what was read is kept; default: a temporary folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="citehound-chunking-") as scratch:
        rows = [
            measure(
                given.data, given.cases, cache=given.cache or Path(scratch), scratch=Path(scratch), target=t, most=m
            )
            for t, m in SIZES
        ]
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    print(
        "| target | most | passages | words each | in 6 | in 10 | in 1,500 tokens | tokens of 6 |\n" + "|---" * 8 + "|"
    )
    for r in rows:
        print(
            f"| {r.target} | {r.most} | {r.passages} | {r.words:.0f} "
            f"| {r.in_6:.1%} | {r.in_10:.1%} | {r.in_budget:.1%} | {r.tokens_6:.0f} |"
        )
    print(f"{rows[0].patterns} patterns", file=sys.stderr)
    return 0


def measure(data: Path, cases: Path | None, *, cache: Path, scratch: Path, target: int, most: int) -> Row:
    """All corpora in `data` that have cases, with passages of one size."""
    sizes = {"TARGET_WORDS": target, "MAX_WORDS": most}
    before = {name: getattr(chunking, name) for name in sizes}
    passages = words = patterns = 0
    found = [0, 0, 0]
    tokens: list[float] = []
    for folder in sorted(p for p in data.iterdir() if (p / "cases.jsonl").is_file()):
        config = replace(paths.corpus_config(folder, cache / folder.name), index=IndexConfig(ocr=False))
        with Corpus.open(config, write=True) as corpus:
            corpus.sync()
            listed = corpus.list_documents(None, principal=OWNER, only_current=False, limit=1_000_000).documents
            documents = [corpus.document(info.document, principal=OWNER) for info in listed]
        place = scratch / f"{folder.name}-{target}-{most}"
        with EmbeddedIndex(place, write=True) as index:
            try:
                for name, value in sizes.items():
                    setattr(chunking, name, value)
                for document in documents:
                    chunks = chunking.chunk(document)
                    passages += len(chunks)
                    words += sum(chunking.count_words(chunk.text) for chunk in chunks)
                    state = FileState(
                        source=document.source,
                        path=document.path,
                        document=document.id,
                        content_hash="-",
                        metadata_hash="-",
                    )
                    index.add([IndexEntry(document=document, chunks=chunks, state=state)])
            finally:
                for name, value in before.items():
                    setattr(chunking, name, value)
        with EmbeddedIndex(place) as index:
            for case in paths.load_cases(cases or folder / "cases.jsonl"):
                hits = index.search(case.question, principal=OWNER, only_current=False, k=40, per_document=40).hits
                texts: list[str] = []
                for hit in hits:
                    whole = index.document(hit.document, principal=OWNER)
                    texts.append(paths.folded(whole.text[hit.start : hit.end]) if whole is not None else "")
                sizes_of = [chunking.count_words(text) * 4 / 3 for text in texts]
                tokens.append(sum(sizes_of[:6]))
                fit = next((n for n in range(len(texts), 0, -1) if sum(sizes_of[:n]) <= TOKENS), 1)
                for name, wanted in case.evidence.items():
                    stem = name.rsplit(".", 1)[0]
                    own = [(at, text) for at, text in enumerate(texts) if hits[at].document.endswith(stem)]
                    for pattern in wanted:
                        patterns += 1
                        first = next((at for at, text in own if re.search(pattern, text)), 1 << 30)
                        for at, limit in enumerate((6, 10, fit)):
                            found[at] += first < limit
    shares = [count / patterns if patterns else 0.0 for count in found]
    return Row(
        target=target,
        most=most,
        passages=passages,
        words=words / passages if passages else 0.0,
        patterns=patterns,
        in_6=shares[0],
        in_10=shares[1],
        in_budget=shares[2],
        tokens_6=sum(tokens) / len(tokens) if tokens else 0.0,
    )


if __name__ == "__main__":
    raise SystemExit(main())

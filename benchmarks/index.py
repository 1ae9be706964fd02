"""Measures the embedded index beside SQLite FTS5: indexing, search with and without a filter, opening.

Both get the same passages and the same queries (any word may match, best by BM25, six hits with snippets). FTS5 filters
by columns of a joined table, as one does with it. Options: --sizes, --queries, --json.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from citehound.documents import Chunk, Document
from citehound.index import OWNER, FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex

PER_DOCUMENT = 20
SUPPLIERS = 50
SYLLABLES = "ba co di fu ge hi jo ka le mi no pa qua re si to ul ve wa xi yo za bra cle dro fli gro pre sto".split()  # noqa: SIM905


@dataclass(frozen=True, kw_only=True)
class Row:
    """One engine at one size. Seconds for opening, milliseconds for searching."""

    passages: int
    engine: str
    passages_per_second: float
    p50: float
    p95: float
    filtered_p50: float
    filtered_p95: float
    filtered_cpu_p95: float
    """The same as CPU time of the searching thread, which a busy machine does not blur."""
    open_seconds: float
    open_and_search_seconds: float
    megabytes: float


class Words:
    """A vocabulary whose words are as unevenly used as those of a language (Zipf)."""

    def __init__(self, seed: int, size: int = 30_000) -> None:
        self._chance = random.Random(seed)
        made: dict[str, None] = {}
        while len(made) < size:
            made["".join(self._chance.choice(SYLLABLES) for _ in range(self._chance.randint(2, 4)))] = None
        self.words = list(made)
        total = 0.0
        self._sums: list[float] = []
        for rank in range(size):
            total += 1.0 / (rank + 2.7)
            self._sums.append(total)

    def some(self, count: int) -> list[str]:
        return self._chance.choices(self.words, cum_weights=self._sums, k=count)

    def query(self) -> str:
        """Three to six words, of which most are rarer ones, as people ask."""
        rare = [self.words[self._chance.randrange(100, 6000)] for _ in range(self._chance.randint(2, 4))]
        return " ".join([*rare, *self.some(2)])


def entries(passages: int) -> Iterator[IndexEntry]:
    words = Words(1)
    chance = random.Random(2)
    for number in range(max(1, passages // PER_DOCUMENT)):
        document = f"docs/d{number}"
        parts = [" ".join(words.some(chance.randint(50, 110))) for _ in range(PER_DOCUMENT)]
        text = "\n\n".join(parts)
        title = " ".join(words.some(4))
        chunks: list[Chunk] = []
        at = 0
        for ordinal, part in enumerate(parts):
            chunks.append(
                Chunk(
                    document=document,
                    ordinal=ordinal,
                    section=None,
                    start=at,
                    end=at + len(part),
                    text=part,
                    context=title,
                )
            )
            at += len(part) + 2
        status = "superseded" if chance.random() < 0.1 else "current"
        metadata = {"supplier": f"supplier {number % SUPPLIERS}", "status": status}
        yield IndexEntry(
            document=Document(
                id=document,
                source="docs",
                path=f"d{number}.md",
                title=title,
                text=text,
                metadata=metadata,
                language="en",
            ),
            chunks=tuple(chunks),
            state=FileState(source="docs", path=f"d{number}.md", document=document, content_hash="", metadata_hash=""),
        )


def measure(search: Callable[[str, str | None], int], queries: list[str]) -> tuple[float, float, float, float, float]:
    """Milliseconds: p50 and p95 without, p50 and p95 with a filter, p95 of the CPU time with a filter."""
    found: list[float] = []
    for filtered in (False, True):
        for query in queries[:10]:
            search(query, "supplier 7" if filtered else None)
        spent: list[float] = []
        cpu: list[float] = []
        for at, query in enumerate(queries):
            started, busy = time.perf_counter(), time.thread_time()
            search(query, f"supplier {at % SUPPLIERS}" if filtered else None)
            spent.append((time.perf_counter() - started) * 1000)
            cpu.append((time.thread_time() - busy) * 1000)
        spent.sort()
        found += [spent[len(spent) // 2], spent[int(len(spent) * 0.95)]]
        if filtered:
            found.append(sorted(cpu)[int(len(cpu) * 0.95)])
    return found[0], found[1], found[2], found[3], found[4]


def size_of(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


def citehound(folder: Path, passages: int, queries: list[str]) -> Row:
    started = time.perf_counter()
    with EmbeddedIndex(folder, write=True) as writer:
        for entry in entries(passages):
            writer.add([entry])
    indexing = time.perf_counter() - started
    started = time.perf_counter()
    index = EmbeddedIndex(folder)
    opening = time.perf_counter() - started

    def search(query: str, supplier: str | None) -> int:
        filters = {"supplier": supplier} if supplier is not None else None
        return len(index.search(query, principal=OWNER, source="docs", filters=filters).hits)

    search(queries[0], None)
    first = time.perf_counter() - started
    p50, p95, filtered_p50, filtered_p95, filtered_cpu = measure(search, queries)
    index.close()
    return Row(
        passages=passages,
        engine="citehound",
        passages_per_second=passages / indexing,
        p50=p50,
        p95=p95,
        filtered_p50=filtered_p50,
        filtered_p95=filtered_p95,
        filtered_cpu_p95=filtered_cpu,
        open_seconds=opening,
        open_and_search_seconds=first,
        megabytes=size_of(folder),
    )


FTS_SEARCH = """
SELECT p.document, p.start, p.finish, snippet(words, 1, '', '', '…', 40), bm25(words, 1.2, 1.0)
FROM words JOIN passages p ON p.rowid = words.rowid
WHERE words MATCH ? AND p.source = ? AND p.status = 'current' {filter} ORDER BY bm25(words, 1.2, 1.0) LIMIT 6
"""


def fts5(folder: Path, passages: int, queries: list[str]) -> Row:
    path = folder / "fts.db"
    started = time.perf_counter()
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(
        "CREATE TABLE passages (rowid INTEGER PRIMARY KEY, document TEXT, source TEXT, status TEXT, supplier TEXT,"
        " start INTEGER, finish INTEGER)"
    )
    db.execute(
        "CREATE VIRTUAL TABLE words USING fts5(context, text, tokenize = 'porter unicode61 remove_diacritics 2')"
    )
    row = 0
    for entry in entries(passages):
        for chunk in entry.chunks:
            row += 1
            metadata = entry.document.metadata
            db.execute(
                "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?)",
                (row, chunk.document, "docs", metadata["status"], metadata["supplier"], chunk.start, chunk.end),
            )
            db.execute("INSERT INTO words (rowid, context, text) VALUES (?, ?, ?)", (row, chunk.context, chunk.text))
    db.execute("CREATE INDEX by_supplier ON passages (source, supplier, status)")
    db.commit()
    db.execute("INSERT INTO words (words) VALUES ('optimize')")
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    indexing = time.perf_counter() - started
    started = time.perf_counter()
    db = sqlite3.connect(path)
    db.execute("SELECT count(*) FROM (SELECT 1 FROM passages LIMIT 1)").fetchone()
    opening = time.perf_counter() - started

    def search(query: str, supplier: str | None) -> int:
        words = " OR ".join(f'"{word}"' for word in query.split())
        if supplier is None:
            return len(db.execute(FTS_SEARCH.format(filter=""), (words, "docs")).fetchall())
        sql = FTS_SEARCH.format(filter="AND p.supplier = ?")
        return len(db.execute(sql, (words, "docs", supplier)).fetchall())

    search(queries[0], None)
    first = time.perf_counter() - started
    p50, p95, filtered_p50, filtered_p95, filtered_cpu = measure(search, queries)
    db.close()
    return Row(
        passages=passages,
        engine=f"fts5 {sqlite3.sqlite_version}",
        passages_per_second=passages / indexing,
        p50=p50,
        p95=p95,
        filtered_p50=filtered_p50,
        filtered_p95=filtered_p95,
        filtered_cpu_p95=filtered_cpu,
        open_seconds=opening,
        open_and_search_seconds=first,
        megabytes=size_of(folder),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="20000,200000", help="numbers of passages, separated by commas")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON; - is stdout")
    options = parser.parse_args()
    words = Words(1)
    queries = [words.query() for _ in range(options.queries)]
    rows: list[Row] = []
    out = sys.stderr if options.json == "-" else sys.stdout
    head = (
        "passages",
        "engine",
        "passages/s",
        "p50",
        "p95",
        "p50 filter",
        "p95 filter",
        "CPU p95 f.",
        "open s",
        "+search s",
        "MB",
    )
    print(" ".join(f"{h:>12}" for h in head), file=out, flush=True)
    for size in (int(s) for s in str(options.sizes).split(",")):
        pair: list[Row] = []
        for engine in (citehound, fts5):
            with tempfile.TemporaryDirectory() as folder:
                row = engine(Path(folder) / "index" if engine is citehound else Path(folder), size, queries)
            pair.append(row)
            rows.append(row)
            cells = (
                f"{row.passages}",
                row.engine,
                f"{row.passages_per_second:.0f}",
                f"{row.p50:.2f} ms",
                f"{row.p95:.2f} ms",
                f"{row.filtered_p50:.2f} ms",
                f"{row.filtered_p95:.2f} ms",
                f"{row.filtered_cpu_p95:.2f} ms",
                f"{row.open_seconds:.3f}",
                f"{row.open_and_search_seconds:.3f}",
                f"{row.megabytes:.0f}",
            )
            print(" ".join(f"{c:>12}" for c in cells), file=out, flush=True)
        ours, theirs = pair
        print(
            f"{size} passages: p95 is {theirs.p95 / ours.p95:.1f}x faster than FTS5 without,"
            f" {theirs.filtered_p95 / ours.filtered_p95:.1f}x with a filter"
            f" ({theirs.filtered_cpu_p95 / ours.filtered_cpu_p95:.1f}x by CPU time)",
            file=out,
            flush=True,
        )
    if options.json:
        text = json.dumps({"rows": [asdict(row) for row in rows]}, indent=2)
        if options.json == "-":
            print(text)
        else:
            Path(options.json).write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()

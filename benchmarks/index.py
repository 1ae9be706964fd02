"""Measures the embedded index beside SQLite FTS5: indexing, search with and without a filter, opening.

All get the same passages and the same queries: any word may match, stemmed, best six by BM25 with the same weights, of
current documents only, with snippets. Citehound does more: it searches titles and metadata too, shows at most two
passages of a document, and counts the superseded documents that would have been among the hits. FTS5 is measured twice:

- `fts5` filters by columns of a joined table, as one does with it (the fastest of four ways to write that query);
- `fts5 marks` has the filter values as words of an indexed column and asks for them in the query, the best that can be
  done with it; only values known as whole words can be filtered so.

Engines take turns for some rounds, and of each query the best time counts, which a busy machine blurs least; `cold` is
the filtered search of the first round, right after opening. With --cache a folder keeps what was built for later runs.
Options: --sizes, --queries, --rounds, --cache, --json.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from citehound.access import OWNER
from citehound.documents import Chunk, Document
from citehound.index import FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex

PER_DOCUMENT = 20
SUPPLIERS = 50
SYLLABLES = "ba co di fu ge hi jo ka le mi no pa qua re si to ul ve wa xi yo za bra cle dro fli gro pre sto".split()  # noqa: SIM905


Search = Callable[[str, str | None], int]


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
    """The same as CPU time of the searching thread."""
    filtered_cold_p95: float
    open_seconds: float
    open_and_search_seconds: float
    megabytes: float


@dataclass(frozen=True, kw_only=True)
class Engine:
    name: str
    build: Callable[[Path, int], None]
    open: Callable[[Path], tuple[Search, Callable[[], None]]]
    """Gives a search, and what closes it again."""


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


@dataclass(kw_only=True)
class Times:
    """Milliseconds of every query, the best of all rounds."""

    plain: list[float]
    filtered: list[float]
    cpu: list[float]
    cold: list[float]

    @classmethod
    def of(cls, count: int) -> Times:
        return cls(plain=[math.inf] * count, filtered=[math.inf] * count, cpu=[math.inf] * count, cold=[])

    def round(self, search: Search, queries: Sequence[str]) -> None:
        first = not self.cold
        for filtered in (True, False):
            for at, query in enumerate(queries):
                supplier = f"supplier {at % SUPPLIERS}" if filtered else None
                started, busy = time.perf_counter(), time.thread_time()
                search(query, supplier)
                cpu = (time.thread_time() - busy) * 1000
                spent = (time.perf_counter() - started) * 1000
                if not filtered:
                    self.plain[at] = min(self.plain[at], spent)
                    continue
                self.filtered[at] = min(self.filtered[at], spent)
                self.cpu[at] = min(self.cpu[at], cpu)
                if first:
                    self.cold.append(spent)


def share(times: Sequence[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)]


def size_of(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


def build_citehound(folder: Path, passages: int) -> None:
    with EmbeddedIndex(folder / "index", write=True) as writer:
        for entry in entries(passages):
            writer.add([entry])


def open_citehound(folder: Path) -> tuple[Search, Callable[[], None]]:
    index = EmbeddedIndex(folder / "index")

    def search(query: str, supplier: str | None) -> int:
        filters = {"supplier": supplier} if supplier is not None else None
        return len(index.search(query, principal=OWNER, source="docs", filters=filters).hits)

    return search, index.close


PASSAGES = """
CREATE TABLE passages (rowid INTEGER PRIMARY KEY, document TEXT, source TEXT, status TEXT, supplier TEXT, start INTEGER,
finish INTEGER)
"""
FTS_TABLE = "CREATE VIRTUAL TABLE words USING fts5({columns}, tokenize = 'porter unicode61 remove_diacritics 2')"
FTS_SEARCH = """
SELECT p.document, p.start, p.finish, snippet(words, 1, '', '', '…', 40), bm25(words, 1.2, 1.0, 0.0)
FROM words JOIN passages p ON p.rowid = words.rowid
WHERE words MATCH ? {more} ORDER BY bm25(words, 1.2, 1.0, 0.0) LIMIT 6
"""


def build_fts(folder: Path, passages: int, *, marked: bool) -> None:
    db = sqlite3.connect(folder / "fts.db")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute(PASSAGES)
    db.execute(FTS_TABLE.format(columns="context, text, marks" if marked else "context, text"))
    row = 0
    for entry in entries(passages):
        supplier, status = entry.document.metadata["supplier"], entry.document.metadata["status"]
        for chunk in entry.chunks:
            row += 1
            db.execute(
                "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?)",
                (row, chunk.document, "docs", status, supplier, chunk.start, chunk.end),
            )
            values: list[str | int] = [row, chunk.context, chunk.text]
            if marked:
                values.append(f"xsource xdocs xstatus{status} {mark(supplier)}")
            db.execute(
                f"INSERT INTO words (rowid, context, text{', marks' if marked else ''})"
                f" VALUES ({', '.join('?' * len(values))})",
                values,
            )
    db.execute("CREATE INDEX by_supplier ON passages (source, supplier, status)")
    db.commit()
    db.execute("INSERT INTO words (words) VALUES ('optimize')")
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def mark(supplier: str) -> str:
    return "x" + supplier.replace(" ", "")


def open_fts(folder: Path, *, marked: bool) -> tuple[Search, Callable[[], None]]:
    db = sqlite3.connect(folder / "fts.db")
    joined = FTS_SEARCH.format(more="AND p.source = ? AND p.status = 'current'")
    narrowed = FTS_SEARCH.format(more="AND p.source = ? AND p.status = 'current' AND p.supplier = ?")
    whole = FTS_SEARCH.format(more="")

    def search(query: str, supplier: str | None) -> int:
        words = " OR ".join(f'"{word}"' for word in query.split())
        if marked:
            wanted = "xdocs AND xstatuscurrent" + (f" AND {mark(supplier)}" if supplier is not None else "")
            return len(db.execute(whole, (f"(marks : ({wanted})) AND ({{context text}} : ({words}))",)).fetchall())
        if supplier is None:
            return len(db.execute(joined, (words, "docs")).fetchall())
        return len(db.execute(narrowed, (words, "docs", supplier)).fetchall())

    return search, db.close


ENGINES = (
    Engine(name="citehound", build=build_citehound, open=open_citehound),
    Engine(name="fts5", build=partial(build_fts, marked=False), open=partial(open_fts, marked=False)),
    Engine(name="fts5 marks", build=partial(build_fts, marked=True), open=partial(open_fts, marked=True)),
)


def built(engine: Engine, folder: Path, passages: int) -> float:
    """Builds unless it was built before; gives passages per second."""
    record = folder / "built.json"
    if not record.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        started = time.perf_counter()
        engine.build(folder, passages)
        record.write_text(json.dumps({"seconds": time.perf_counter() - started}), "utf-8")
    return passages / float(json.loads(record.read_text("utf-8"))["seconds"])


def measured(folder: Path, passages: int, queries: Sequence[str], *, rounds: int) -> list[Row]:
    speeds = [built(engine, folder / f"{engine.name} {passages}", passages) for engine in ENGINES]
    opened: list[tuple[float, float]] = []
    searches: list[Search] = []
    closes: list[Callable[[], None]] = []
    for engine in ENGINES:
        started = time.perf_counter()
        search, close = engine.open(folder / f"{engine.name} {passages}")
        opening = time.perf_counter() - started
        search(queries[0], None)
        opened.append((opening, time.perf_counter() - started))
        searches.append(search)
        closes.append(close)
    times = [Times.of(len(queries)) for _ in ENGINES]
    for _ in range(rounds):
        for search, taken in zip(searches, times, strict=True):
            taken.round(search, queries)
    for close in closes:
        close()
    return [
        Row(
            passages=passages,
            engine=engine.name,
            passages_per_second=speed,
            p50=share(taken.plain, 0.5),
            p95=share(taken.plain, 0.95),
            filtered_p50=share(taken.filtered, 0.5),
            filtered_p95=share(taken.filtered, 0.95),
            filtered_cpu_p95=share(taken.cpu, 0.95),
            filtered_cold_p95=share(taken.cold, 0.95),
            open_seconds=opening,
            open_and_search_seconds=first,
            megabytes=size_of(folder / f"{engine.name} {passages}"),
        )
        for engine, speed, (opening, first), taken in zip(ENGINES, speeds, opened, times, strict=True)
    ]


HEAD = "passages engine passages/s p50 p95 p50+f p95+f cpu95+f cold95+f open_s search_s MB".split()  # noqa: SIM905


def cells(row: Row) -> list[str]:
    times = (
        row.p50,
        row.p95,
        row.filtered_p50,
        row.filtered_p95,
        row.filtered_cpu_p95,
        row.filtered_cold_p95,
    )
    return [
        f"{row.passages}",
        row.engine,
        f"{row.passages_per_second:.0f}",
        *(f"{t:.2f} ms" for t in times),
        f"{row.open_seconds:.3f}",
        f"{row.open_and_search_seconds:.3f}",
        f"{row.megabytes:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="20000,200000", help="numbers of passages, separated by commas")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keep what was built here, and use it again")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON; - is stdout")
    options = parser.parse_args()
    words = Words(1)
    queries = [words.query() for _ in range(options.queries)]
    rows: list[Row] = []
    out = sys.stderr if options.json == "-" else sys.stdout
    print(f"SQLite {sqlite3.sqlite_version}", file=out)
    print(" ".join(f"{h:>11}" for h in HEAD), file=out, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.cache or Path(temporary)
        for size in (int(s) for s in str(options.sizes).split(",")):
            found = measured(folder, size, queries, rounds=max(1, options.rounds))
            rows += found
            for row in found:
                print(" ".join(f"{c:>11}" for c in cells(row)), file=out, flush=True)
            ours = found[0]
            for other in found[1:]:
                print(
                    f"{size} passages: p95 is {other.p95 / ours.p95:.1f}x faster than {other.engine} without,"
                    f" {other.filtered_p95 / ours.filtered_p95:.1f}x with a filter"
                    f" ({other.filtered_cpu_p95 / ours.filtered_cpu_p95:.1f}x by CPU time)",
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

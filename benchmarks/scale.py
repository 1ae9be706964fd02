"""A big index, measured: building, size, memory, search with and without filter, one document more or less; peers too.

    python benchmarks/scale.py [--passages N,N,…] [--queries N] [--engines citehound,fts5,lancedb,chroma]
                               [--state DIR] [--plot FILE] [--json]
    python benchmarks/scale.py --from FILE --plot FILE      # draw again what --json printed

Passages are made from the text of the bundled demos, with names and numbers that vary, ten to a document, and one of
200 suppliers to filter by. Every engine builds, and then is searched, in a process of its own; peers get the same
passages (title before text) and the vectors of citehound's embedder: SQLite FTS5 (words, the filter a joined column),
LanceDB's hybrid search, and Chroma (vectors). `--state DIR` keeps what was built, so that a second run only searches.

Cold: the first searches after the files of the index were dropped from the system's cache. Warm: other questions after
them. CPU times say more than the clock on a busy machine. `private` memory is the process's own; `resident` counts the
mapped pages of files too, which the system takes back when it needs room. Measure a million with nothing else running.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from citehound.access import OWNER
from citehound.documents import Chunk, Document
from citehound.embedding import static
from citehound.index import FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex

PER_DOCUMENT = 10
SUPPLIERS = 200
HITS = 6
_SYLLABLES = "ba be bi bo ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri ro sa se si so ta te ti to".split()  # noqa: SIM905


@dataclass(frozen=True, kw_only=True)
class Built:
    seconds: float
    cpu_seconds: float
    resident_mb: int
    """The most there was."""


@dataclass(frozen=True, kw_only=True)
class Row:
    engine: str
    passages: int
    build_seconds: float | None
    """None where the index was there already."""
    build_cpu_seconds: float | None
    build_resident_mb: int | None
    bytes_on_disk: int
    open_cold_seconds: float
    open_seconds: float
    first_ms: float
    """The first search of all, cold."""
    cold_p50_ms: float
    cold_p95_ms: float
    p50_ms: float
    p95_ms: float
    cpu_p95_ms: float
    filtered_p50_ms: float
    filtered_p95_ms: float
    filtered_cpu_p95_ms: float
    busy_p95_ms: float | None
    """Two readers at once, beside a writer; only of citehound."""
    add_seconds: float
    """Until a search finds one new document."""
    delete_seconds: float
    update_cpu_seconds: float
    """CPU time of adding and deleting it together."""
    private_mb: int
    """After searching, before anything was added."""
    resident_mb: int


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One that is open. Documents are named by id."""

    search: Callable[[str, str | None], Sequence[str]]
    """A question, and a supplier where it is narrowed to one, to the documents of its hits."""
    add: Callable[[IndexEntry], None]
    remove: Callable[[str], None]
    close: Callable[[], None]


# What is indexed and asked


def sentences() -> list[str]:
    root = Path(str(files("citehound"))) / "demos"
    found: list[str] = []
    for path in sorted(root.rglob("*.md")):
        body = re.sub(r"\A---.*?---\n", "", path.read_text("utf-8"), flags=re.DOTALL)
        found += [" ".join(s.split()) for s in re.split(r"(?<=[.!?])\s+|\n\n+", body) if len(s.split()) > 4]
    return found


def name(chance: random.Random) -> str:
    return "".join(chance.choices(_SYLLABLES, k=3)).capitalize()


def document(number: int, pool: Sequence[str]) -> IndexEntry:
    chance = random.Random(number)
    supplier = f"Supplier {number % SUPPLIERS}"
    title = f"Agreement {number} with {name(chance)} {name(chance)}"
    parts: list[str] = []
    for _ in range(PER_DOCUMENT):
        chosen = chance.sample(pool, 4)
        varied = (re.sub(r"\d+", lambda _: str(chance.randrange(2, 400)), one) for one in chosen)
        parts.append(f"{name(chance)} {name(chance)}: {' '.join(varied)}")
    text = "\n\n".join(parts)
    id_ = f"deals/d{number}"
    chunks: list[Chunk] = []
    at = 0
    for ordinal, part in enumerate(parts):
        chunks.append(
            Chunk(document=id_, ordinal=ordinal, section=None, start=at, end=at + len(part), text=part, context=title)
        )
        at += len(part) + 2
    return IndexEntry(
        document=Document(
            id=id_,
            source="deals",
            path=f"d{number}.md",
            title=title,
            text=text,
            metadata={"supplier": supplier},
            language="en",
        ),
        chunks=tuple(chunks),
        state=FileState(source="deals", path=f"d{number}.md", document=id_, content_hash="1", metadata_hash="1"),
    )


def questions(count: int, pool: Sequence[str]) -> list[str]:
    chance = random.Random(7)
    return [" ".join(chance.sample(chance.choice(pool).split(), 4)) + f" {name(chance)}" for _ in range(count)]


# The engines


def build_citehound(folder: Path, entries: Iterator[IndexEntry]) -> None:
    with EmbeddedIndex(folder, write=True, embedder=static()) as index:
        index.add(entries)


def open_citehound(folder: Path) -> Engine:
    reader = EmbeddedIndex(folder, embedder=static())
    writers: list[EmbeddedIndex] = []

    def writer() -> EmbeddedIndex:
        if not writers:
            writers.append(EmbeddedIndex(folder, write=True, embedder=static()))
        return writers[0]

    def search(question: str, supplier: str | None) -> list[str]:
        filters = {"supplier": supplier} if supplier is not None else None
        return [hit.document for hit in reader.search(question, principal=OWNER, filters=filters, k=HITS).hits]

    def add(entry: IndexEntry) -> None:
        writer().add([entry])
        writer().commit()

    def remove(document: str) -> None:
        writer().remove([document])
        writer().commit()

    def close() -> None:
        for one in writers:
            one.close()
        reader.close()

    return Engine(search=search, add=add, remove=remove, close=close)


def _texts(entry: IndexEntry) -> list[str]:
    return [f"{entry.document.title}\n{chunk.text}" for chunk in entry.chunks]


_FTS_TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS passages (rowid INTEGER PRIMARY KEY, document TEXT, supplier TEXT);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE INDEX IF NOT EXISTS by_document ON passages (document);
"""
_FTS_SEARCH = """
SELECT p.document, snippet(words, 0, '', '', '…', 40) FROM words JOIN passages p ON p.rowid = words.rowid
WHERE words MATCH ? {more} ORDER BY bm25(words) LIMIT ?
"""


def _fts_put(db: sqlite3.Connection, entry: IndexEntry) -> None:
    for text in _texts(entry):
        values = (entry.document.id, entry.document.metadata["supplier"])
        row = db.execute("INSERT INTO passages (document, supplier) VALUES (?, ?)", values).lastrowid
        db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, text))


def build_fts(folder: Path, entries: Iterator[IndexEntry]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(folder / "fts.db")
    db.executescript(_FTS_TABLES)
    for entry in entries:
        _fts_put(db, entry)
    db.commit()
    db.execute("INSERT INTO words (words) VALUES ('optimize')")
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def open_fts(folder: Path) -> Engine:
    db = sqlite3.connect(folder / "fts.db")

    def search(question: str, supplier: str | None) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        sql = _FTS_SEARCH.format(more="" if supplier is None else "AND p.supplier = ?")
        values = (words, HITS) if supplier is None else (words, supplier, HITS)
        return [document for document, _ in db.execute(sql, values)]

    def add(entry: IndexEntry) -> None:
        _fts_put(db, entry)
        db.commit()

    def remove(document: str) -> None:
        db.execute("DELETE FROM words WHERE rowid IN (SELECT rowid FROM passages WHERE document = ?)", (document,))
        db.execute("DELETE FROM passages WHERE document = ?", (document,))
        db.commit()

    return Engine(search=search, add=add, remove=remove, close=db.close)


def _lance_rows(entries: Sequence[IndexEntry]) -> list[dict[str, Any]]:
    texts = [text for entry in entries for text in _texts(entry)]
    owners = [entry.document for entry in entries for _ in entry.chunks]
    return [
        {"document": owner.id, "supplier": owner.metadata["supplier"], "text": text, "vector": vector}
        for owner, text, vector in zip(owners, texts, static().embed(texts), strict=True)
    ]


def build_lancedb(folder: Path, entries: Iterator[IndexEntry]) -> None:
    db = importlib.import_module("lancedb").connect(str(folder))
    table: Any = None
    for some in batched_entries(entries, 1000):
        rows = _lance_rows(some)
        if table is None:
            table = db.create_table("passages", rows)
        else:
            table.add(rows)
    table.create_fts_index("text", replace=True)
    table.create_scalar_index("supplier")
    table.optimize()


def open_lancedb(folder: Path) -> Engine:
    table: Any = importlib.import_module("lancedb").connect(str(folder)).open_table("passages")

    def search(question: str, supplier: str | None) -> list[str]:
        vector = static().embed([question], kind="query")[0].tolist()
        asked = table.search(query_type="hybrid").vector(vector).text(question).limit(HITS)
        if supplier is not None:
            asked = asked.where(f"supplier = '{supplier}'", prefilter=True)
        return [one["document"] for one in asked.to_list()]

    return Engine(
        search=search,
        add=lambda entry: table.add(_lance_rows([entry])),
        remove=lambda document: table.delete(f"document = '{document}'"),
        close=lambda: None,
    )


def _chroma_put(collection: Any, entries: Sequence[IndexEntry]) -> None:
    rows = _lance_rows(entries)
    ids = [f"{entry.document.id}#{chunk.ordinal}" for entry in entries for chunk in entry.chunks]
    collection.add(
        ids=ids,
        embeddings=[row["vector"].tolist() for row in rows],
        documents=[row["text"] for row in rows],
        metadatas=[{"document": row["document"], "supplier": row["supplier"]} for row in rows],
    )


def build_chroma(folder: Path, entries: Iterator[IndexEntry]) -> None:
    client: Any = importlib.import_module("chromadb").PersistentClient(str(folder))
    collection = client.create_collection("passages", metadata={"hnsw:space": "cosine"}, embedding_function=None)
    for some in batched_entries(entries, 200):
        _chroma_put(collection, some)


def open_chroma(folder: Path) -> Engine:
    client: Any = importlib.import_module("chromadb").PersistentClient(str(folder))
    collection = client.get_collection("passages", embedding_function=None)

    def search(question: str, supplier: str | None) -> list[str]:
        vector = static().embed([question], kind="query").tolist()
        where = None if supplier is None else {"supplier": supplier}
        given = collection.query(query_embeddings=vector, n_results=HITS, where=where)
        return [one["document"] for one in given["metadatas"][0]]

    return Engine(
        search=search,
        add=lambda entry: _chroma_put(collection, [entry]),
        remove=lambda document: collection.delete(where={"document": document}),
        close=lambda: None,
    )


def batched_entries(entries: Iterator[IndexEntry], size: int) -> Iterator[Sequence[IndexEntry]]:
    while some := tuple(islice(entries, size)):
        yield some


ENGINES: dict[str, tuple[Callable[[Path, Iterator[IndexEntry]], None], Callable[[Path], Engine]]] = {
    "citehound": (build_citehound, open_citehound),
    "fts5": (build_fts, open_fts),
    "lancedb": (build_lancedb, open_lancedb),
    "chroma": (build_chroma, open_chroma),
}


# Measuring


def resident_mb() -> int:
    """The most that this process had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def private_mb() -> int | None:
    """What it has of its own, without mapped files; None where the system doesn't say."""
    status = Path("/proc/self/status")
    found = re.search(r"RssAnon:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) // 1024 if found else None


def forget(folder: Path) -> None:
    """Drops the files of an index from the system's cache."""
    for path in folder.rglob("*") if hasattr(os, "posix_fadvise") else ():
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True, kw_only=True)
class Took:
    seconds: float
    cpu: float


def timed(work: Callable[[], object]) -> Took:
    began, busy = time.perf_counter(), time.process_time()
    work()
    return Took(seconds=time.perf_counter() - began, cpu=time.process_time() - busy)


def share(values: Sequence[float], part: float) -> float:
    """A percentile, of seconds, in milliseconds."""
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * part))], 2)


def build(engine: str, folder: Path, *, passages: int) -> Built | None:
    """None where it was built before."""
    done = folder.with_name(f"{folder.name}.json")
    if folder.exists() and done.exists():
        return None
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    pool = sentences()
    wanted = max(1, passages // PER_DOCUMENT)
    took = timed(lambda: ENGINES[engine][0](folder, (document(number, pool) for number in range(wanted))))
    built = Built(seconds=round(took.seconds, 1), cpu_seconds=round(took.cpu, 1), resident_mb=resident_mb())
    done.write_text(json.dumps(asdict(built)), "utf-8")
    return built


def measure(engine: str, folder: Path, *, passages: int, queries: int, built: Built | None) -> Row:
    """Searches and changes what is built in `folder`."""
    pool = sentences()
    wanted = max(1, passages // PER_DOCUMENT)
    asked = questions(2 * queries, pool)
    first_asked, later = asked[:queries], asked[queries:]
    opening = ENGINES[engine][1]
    forget(folder)
    began = time.perf_counter()
    opening(folder).close()
    opened_cold = time.perf_counter() - began
    began = time.perf_counter()
    it = opening(folder)
    opened = time.perf_counter() - began
    forget(folder)

    def ask(question: str, at: int, *, filtered: bool) -> Took:
        supplier = f"Supplier {at % min(SUPPLIERS, wanted)}" if filtered else None
        return timed(lambda: it.search(question, supplier))

    cold = [ask(question, at, filtered=at % 2 == 1) for at, question in enumerate(first_asked)]
    plain = [ask(question, at, filtered=False) for at, question in enumerate(later)]
    filtered = [ask(question, at, filtered=True) for at, question in enumerate(later)]
    private, resident = private_mb(), resident_mb()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    new, other = document(10_000_000, pool), document(10_000_001, pool)
    it.add(other)  # a writer's first change opens it
    it.remove(other.document.id)

    def until(there: bool) -> None:
        deadline = time.monotonic() + 60
        while (new.document.id in it.search(new.document.title, None)) is not there:
            if time.monotonic() > deadline:
                raise SystemExit(f"{engine}: the new document is {'not found' if there else 'found still'}")

    added = timed(lambda: (it.add(new), until(True)))
    deleted = timed(lambda: (it.remove(new.document.id), until(False)))
    busy: list[float] = []
    if engine == "citehound":

        def read(part: Sequence[str]) -> None:
            busy.extend(ask(question, at, filtered=False).seconds for at, question in enumerate(part))

        readers = [threading.Thread(target=read, args=(later[at::2],)) for at in range(2)]
        for thread in readers:
            thread.start()
        number = 20_000_000
        while any(thread.is_alive() for thread in readers):
            it.add(document(number, pool))
            number += 1
            time.sleep(0.05)
        for thread in readers:
            thread.join()
        for more in range(20_000_000, number):
            it.remove(document(more, pool).document.id)
    it.close()
    return Row(
        engine=engine,
        passages=wanted * PER_DOCUMENT,
        build_seconds=None if built is None else built.seconds,
        build_cpu_seconds=None if built is None else built.cpu_seconds,
        build_resident_mb=None if built is None else built.resident_mb,
        bytes_on_disk=size,
        open_cold_seconds=round(opened_cold, 2),
        open_seconds=round(opened, 2),
        first_ms=round(1000 * cold[0].seconds, 1),
        cold_p50_ms=share([took.seconds for took in cold], 0.5),
        cold_p95_ms=share([took.seconds for took in cold], 0.95),
        p50_ms=share([took.seconds for took in plain], 0.5),
        p95_ms=share([took.seconds for took in plain], 0.95),
        cpu_p95_ms=share([took.cpu for took in plain], 0.95),
        filtered_p50_ms=share([took.seconds for took in filtered], 0.5),
        filtered_p95_ms=share([took.seconds for took in filtered], 0.95),
        filtered_cpu_p95_ms=share([took.cpu for took in filtered], 0.95),
        busy_p95_ms=share(busy, 0.95) if busy else None,
        add_seconds=round(added.seconds, 3),
        delete_seconds=round(deleted.seconds, 3),
        update_cpu_seconds=round(added.cpu + deleted.cpu, 3),
        private_mb=private if private is not None else resident,
        resident_mb=resident,
    )


def measured_apart(engine: str, folder: Path, *, passages: int, queries: int) -> Row:
    """Builds in one process and measures in another, so that each has its own memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as apart:
        built = apart.submit(build, engine, folder, passages=passages).result()
        if built is None:
            built = Built(**json.loads(folder.with_name(f"{folder.name}.json").read_text("utf-8")))
        return apart.submit(measure, engine, folder, passages=passages, queries=queries, built=built).result()


# Showing


def _number(value: float, _: int) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def plot(rows: Sequence[Row], file: Path) -> None:
    """How each of these grows with the passages; one line for each engine that was measured at two sizes at least."""
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    ticker: Any = importlib.import_module("matplotlib.ticker")
    panels: tuple[tuple[str, Callable[[Row], float | None], float | None], ...] = (
        ("build, CPU s", lambda r: r.build_cpu_seconds, None),
        ("on disk, MB", lambda r: r.bytes_on_disk / 1e6, None),
        ("private memory, MB", lambda r: r.private_mb, 2000),
        ("search p95 warm, CPU ms", lambda r: r.cpu_p95_ms, None),
        ("filtered p95 warm, CPU ms", lambda r: r.filtered_cpu_p95_ms, 50),
        ("a document more and less, CPU s", lambda r: r.update_cpu_seconds, 1),
    )
    names = [n for n in dict.fromkeys(row.engine for row in rows) if len([r for r in rows if r.engine == n]) > 1]
    figure, axes = pyplot.subplots(2, 3, figsize=(10, 5.4), layout="constrained")
    for axis, (title, value, aim) in zip(axes.flat, panels, strict=True):
        for engine in names:
            points = sorted((row.passages, y) for row in rows if row.engine == engine and (y := value(row)) is not None)
            axis.loglog(*zip(*points, strict=True), marker="o", label=engine)
        shown = [y for row in rows if row.engine in names and (y := value(row))] + ([] if aim is None else [aim])
        axis.set_ylim(min(shown) / 2, max(shown) * 3)
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter(ticker.FuncFormatter(_number))
            scale.set_minor_formatter(ticker.NullFormatter())
        if aim is not None:
            axis.axhline(aim, color="gray", linestyle=":", linewidth=1)
            axis.annotate("aim", (0.02, aim), xycoords=("axes fraction", "data"), va="bottom", color="gray", size=8)
        axis.set_title(title, size=10)
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.tick_params(labelsize=8)
    for axis in axes[1]:
        axis.set_xlabel("passages", size=9)
    if len(names) > 1:
        axes[0][0].legend(fontsize=8)
    figure.savefig(file, dpi=100)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passages", default="10000", help="how many; several numbers by comma")
    parser.add_argument("--engines", default="citehound", help=f"by comma, of {', '.join(ENGINES)}")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--state", type=Path, help="folder that keeps the indexes")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw how each grows, as PNG (needs matplotlib)")
    parser.add_argument(
        "--from", dest="before", type=Path, metavar="FILE", help="rows that --json printed, not new ones"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if given.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: python -m pip install --requirement requirements/bench.in")
    engines = [one.strip() for one in str(given.engines).split(",")]
    if unknown := [one for one in engines if one not in ENGINES]:
        parser.error(f"no engine {unknown[0]!r}: known are {', '.join(ENGINES)}")
    folder = Path(tempfile.mkdtemp()) if given.state is None else given.state
    rows: list[Row] = []
    notes: list[str] = []
    try:
        if given.before is not None:
            rows += [Row(**row) for row in json.loads(given.before.read_text("utf-8"))["rows"]]
        for passages in () if given.before is not None else [int(n) for n in str(given.passages).split(",")]:
            for engine in engines:
                try:
                    where = folder / f"{engine}-{passages}"
                    rows.append(measured_apart(engine, where, passages=passages, queries=given.queries))
                except ImportError as error:
                    notes.append(f"{engine}: not installed ({error.name or error})")
                else:
                    print(
                        f"{engine}, {passages:,} passages: {json.dumps(asdict(rows[-1]))}", file=sys.stderr, flush=True
                    )
    finally:
        if given.state is None:
            shutil.rmtree(folder, ignore_errors=True)
    if given.plot is not None:
        plot(rows, given.plot)
    if given.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "notes": notes}, indent=1))
        return 0
    for row in rows:
        print(f"\n{row.engine}, {row.passages:,} passages")
        for key, value in asdict(row).items():
            if key not in ("engine", "passages") and value is not None:
                print(f"  {key:20} {value}")
    for note in notes:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

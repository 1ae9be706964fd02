"""A big index, measured: building, size, memory, search with and without filter, one document more or less.

    python benchmarks/scale.py [--passages N] [--state DIR] [--queries N] [--json]

Passages are made from the text of the bundled demos, with names and numbers that vary, ten to a document, and one of
200 suppliers to filter by. `--state DIR` keeps the index, so that a second run only searches. Measure a million with
nothing else running.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from citehound.access import OWNER
from citehound.documents import Chunk, Document
from citehound.embedding import static
from citehound.index import FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex

PER_DOCUMENT = 10
SUPPLIERS = 200
_SYLLABLES = "ba be bi bo ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri ro sa se si so ta te ti to".split()  # noqa: SIM905


@dataclass(frozen=True, kw_only=True)
class Row:
    passages: int
    build_seconds: float | None
    """None where the index was there already."""
    bytes_on_disk: int
    open_seconds: float
    cold_ms: float
    p50_ms: float
    p95_ms: float
    filtered_p50_ms: float
    filtered_p95_ms: float
    busy_p95_ms: float
    """Two readers at once, beside a writer."""
    add_seconds: float
    """Until a reader finds one new document."""
    delete_seconds: float
    resident_mb: int
    """Most memory of the whole run."""


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


def percentiles(searches: Iterator[float]) -> tuple[float, float]:
    took = sorted(searches)
    return round(1000 * took[len(took) // 2], 2), round(1000 * took[min(len(took) - 1, int(len(took) * 0.95))], 2)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(folder: Path, *, passages: int, queries: int) -> Row:
    pool = sentences()
    wanted = max(1, passages // PER_DOCUMENT)
    build: float | None = None
    if not EmbeddedIndex.exists(folder):
        began = time.perf_counter()
        with EmbeddedIndex(folder, write=True, embedder=static()) as index:
            index.add(document(number, pool) for number in range(wanted))
        build = round(time.perf_counter() - began, 1)
    asked = questions(queries, pool)
    began = time.perf_counter()
    reader = EmbeddedIndex(folder, embedder=static())
    opened = time.perf_counter() - began
    cold = timed(lambda: reader.search(asked[0], principal=OWNER))

    def search(question: str, at: int, *, filtered: bool) -> float:
        filters = {"supplier": f"Supplier {at % min(SUPPLIERS, wanted)}"} if filtered else None
        return timed(lambda: reader.search(question, principal=OWNER, filters=filters))

    plain = percentiles(search(question, at, filtered=False) for at, question in enumerate(asked))
    filtered = percentiles(search(question, at, filtered=True) for at, question in enumerate(asked))
    new = document(10_000_000, pool)
    marker = new.document.title

    def until(there: bool) -> None:
        while (reader.info(new.document.id, principal=OWNER) is not None) is not there:
            pass
        hits = reader.search(marker, principal=OWNER, k=3).hits
        assert (new.document.id in {hit.document for hit in hits}) is there

    with EmbeddedIndex(folder, write=True, embedder=static()) as writer:

        def add() -> None:
            writer.add([new])
            writer.commit()
            until(True)

        def delete() -> None:
            writer.remove([new.document.id])
            writer.commit()
            until(False)

        added, deleted = timed(add), timed(delete)
        busy: list[float] = []

        def read(part: Sequence[str]) -> None:
            busy.extend(search(question, at, filtered=False) for at, question in enumerate(part))

        readers = [threading.Thread(target=read, args=(asked[at::2],)) for at in range(2)]
        for thread in readers:
            thread.start()
        number = 20_000_000
        while any(thread.is_alive() for thread in readers):
            writer.add([document(number, pool)])
            number += 1
            time.sleep(0.05)
        for thread in readers:
            thread.join()
        writer.remove([f"deals/d{n}" for n in range(20_000_000, number)])
    reader.close()
    return Row(
        passages=wanted * PER_DOCUMENT,
        build_seconds=build,
        bytes_on_disk=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        open_seconds=round(opened, 2),
        cold_ms=round(1000 * cold, 1),
        p50_ms=plain[0],
        p95_ms=plain[1],
        filtered_p50_ms=filtered[0],
        filtered_p95_ms=filtered[1],
        busy_p95_ms=percentiles(iter(busy))[1],
        add_seconds=round(added, 3),
        delete_seconds=round(deleted, 3),
        resident_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--state", type=Path, help="folder that keeps the index")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp()) if given.state is None else given.state
    try:
        row = measure(folder / "index", passages=given.passages, queries=given.queries)
    finally:
        if given.state is None:
            shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        print(json.dumps({"rows": [asdict(row)]}, indent=1))
    else:
        for key, value in asdict(row).items():
            print(f"{key:18} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

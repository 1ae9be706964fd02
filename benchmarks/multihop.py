"""How much of what a question needs one search, the chase and the offline planner bring, on multi-hop question sets.

    python benchmarks/multihop.py --data DIR          # a folder of sets, or one set's folder
    python benchmarks/multihop.py --data DIR --json
    python benchmarks/multihop.py --methods bm25,chase,planner --set musique

A set is a folder with `corpus.jsonl` (`id`, `title`, `text`; `doc` where records are consecutive passages of one
document) and `questions.jsonl` (`id`, `question`, `must_read`, `kind`). Only `question` reaches what is measured;
`decomposition` and `evidence` serve the ceiling `gold sub-queries` only. `withheld.jsonl`, where it is there, is put
back for the rows of `<set>+withheld`. All@10: every document of `must_read` among the first ten; R@5: the mean share of
it among the first five. The planner's ten are what it read, in its own order.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.chunking import chunk
from citehound.config import Config, EmbeddingConfig, ModelConfig, SourceConfig
from citehound.corpus import Corpus
from citehound.documents import Chunk, Document, Section
from citehound.embedding import static
from citehound.events import Event, Read
from citehound.index import FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex

HERE = Path(__file__).resolve().parent
READS = 10
FIRST = 5
MERGED = "all merged"


@dataclass(frozen=True, kw_only=True)
class Question:
    id: str
    question: str
    kind: str
    must_read: tuple[str, ...]
    hops: int | None
    queries: tuple[str, ...]
    """What a perfect planner would search, where the set says it."""


@dataclass(frozen=True, kw_only=True)
class Set:
    name: str
    records: tuple[Mapping[str, Any], ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, kw_only=True)
class Stand:
    """An index over one or more sets, and the way from a place in it back to the record's id."""

    corpus: Corpus
    words: Corpus
    """The same index, searched by words alone."""
    chunks: Mapping[str, tuple[tuple[int, int], ...]]
    assistant: Assistant
    source: str | None
    places: Mapping[str, tuple[tuple[int, int, str], ...]]
    """Document to (start, end, record id), in order."""

    def record(self, document: str, ordinal: int) -> list[str]:
        """The records that a chunk shows."""
        spans = self.chunks.get(document, ())
        return self.ids(document, *spans[ordinal]) if ordinal < len(spans) else []

    def ids(self, document: str, start: int, end: int) -> list[str]:
        """The records that a stretch of a document shows, each at least by half or for 200 characters."""
        found: list[str] = []
        for begin, stop, name in self.places.get(document, ()):
            shared = min(end, stop) - max(start, begin)
            if shared > 0 and (shared * 2 >= stop - begin or shared >= 200):
                found.append(name)
        return found


@dataclass
class Row:
    """What one method got in one set for one kind and number of hops."""

    set: str
    method: str
    kind: str
    hops: int | None
    all_found: list[bool] = field(default_factory=list[bool])
    shares: list[float] = field(default_factory=list[float])
    answered: list[bool] = field(default_factory=list[bool])
    seconds: list[float] = field(default_factory=list[float])


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a method gives for one question."""

    ids: Sequence[str]
    answered: bool | None = None
    """Whether it says that it has the answer; None for methods that do not say."""


Method = Callable[[Stand, Question], Found]


# Reading sets


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def _queries(row: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    answers: list[str] = []
    for step in cast(list[list[str]], row.get("decomposition") or []):
        query = step[0].replace(">>", " ")
        for number, answer in enumerate(answers, start=1):
            query = query.replace(f"#{number}", answer)
        answers.append(step[1])
        found.append(query)
    if not found:
        found = [f"{triple[0]} {triple[1]}" for triple in cast(list[list[str]], row.get("evidence") or [])]
    return tuple(dict.fromkeys(found))


def question_of(row: Mapping[str, Any], *, returned: bool = False) -> Question:
    """`returned`: what was withheld is back in the corpus, so the question has its documents."""
    needed = tuple(row.get("must_read") or ())
    kind = str(row.get("kind") or ("compound" if len(needed) > 1 else "single"))
    if returned and kind == "unanswerable":
        needed, kind = (*(row.get("partial") or ()), *(row.get("withheld") or ())), "compound"
    hops = row.get("hops")
    return Question(
        id=str(row["id"]),
        question=str(row["question"]),
        kind=kind,
        must_read=needed,
        hops=hops if isinstance(hops, int) else None,
        queries=_queries(row),
    )


def load(folder: Path, *, limit: int | None = None) -> Iterator[Set]:
    """The set, and once more with what was withheld put back where that is there."""
    records = tuple(lines(folder / "corpus.jsonl"))
    rows = list(lines(folder / "questions.jsonl"))
    if limit is not None and len(rows) > limit:
        # Evenly over the file, so that every kind stays.
        rows = [rows[i * len(rows) // limit] for i in range(limit)]
    yield Set(name=folder.name, records=records, questions=tuple(question_of(row) for row in rows))
    withheld = folder / "withheld.jsonl"
    if withheld.is_file():
        known = {r["id"] for r in records}
        back = tuple(r for r in lines(withheld) if r["id"] not in known)
        yield Set(
            name=f"{folder.name}+withheld",
            records=(*records, *back),
            questions=tuple(question_of(row, returned=True) for row in rows),
        )


def folders(data: Path) -> list[Path]:
    if (data / "corpus.jsonl").is_file():
        return [data]
    return sorted(p for p in data.iterdir() if (p / "corpus.jsonl").is_file() and (p / "questions.jsonl").is_file())


# Building the index


def documents(
    source: str, records: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Document, list[tuple[int, int, str]]]]:
    """A record is a document; consecutive passages of one document (`doc`) are its sections."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(str(record.get("doc") or record["id"]), []).append(record)
    for name, group in groups.items():
        whole = len(group) > 1 or "doc" in group[0]
        text, sections, places = "", list[Section](), list[tuple[int, int, str]]()
        for number, record in enumerate(sorted(group, key=lambda r: r.get("start") or 0), start=1):
            piece = str(record["text"]).strip() + "\n"
            if whole:
                sections.append(
                    Section(
                        id=f"p{number:04d}",
                        title="",
                        level=1,
                        start=len(text),
                        end=len(text) + len(piece),
                    )
                )
            places.append((len(text), len(text) + len(piece), str(record["id"])))
            text += piece
        path = name.replace("\\", "/").strip("/") or str(group[0]["id"])
        yield (
            Document(
                id=f"{source}/{path}",
                source=source,
                path=path + ".txt",
                title=str(group[0].get("title") or name),
                text=text,
                sections=tuple(sections),
                language="en",
            ),
            places,
        )


def chunks_of(document: Document) -> tuple[Chunk, ...]:
    if not document.sections:
        return chunk(document)
    return tuple(
        Chunk(
            document=document.id,
            ordinal=number,
            section=section.id,
            start=section.start,
            end=section.end,
            text=document.text[section.start : section.end],
            context=document.title,
        )
        for number, section in enumerate(document.sections)
    )


def source_name(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


@contextlib.contextmanager
def stand(sets: Sequence[Set], folder: Path) -> Generator[Stand]:
    """The product's own index over the sets, a source each; searched as a whole unless there is only one."""
    config = Config(
        root=folder,
        sources=tuple(
            SourceConfig(name=source_name(s.name), path=folder / "none", description=f"The documents of {s.name}.")
            for s in sets
        ),
        model=ModelConfig(name="offline"),
    )
    places: dict[str, tuple[tuple[int, int, str], ...]] = {}
    spans: dict[str, tuple[tuple[int, int], ...]] = {}
    started = time.monotonic()
    fresh = not EmbeddedIndex.exists(config.state / "index")
    with contextlib.ExitStack() as opened:
        index = (
            opened.enter_context(EmbeddedIndex(config.state / "index", write=True, embedder=static()))
            if fresh
            else None
        )
        for one in sets:
            for document, where in documents(source_name(one.name), one.records):
                places[document.id] = tuple(where)
                chunks = chunks_of(document)
                spans[document.id] = tuple((c.start, c.end) for c in chunks)
                if index is None:
                    continue
                state = FileState(
                    source=document.source,
                    path=document.path,
                    document=document.id,
                    content_hash="-",
                    metadata_hash="-",
                )
                index.add([IndexEntry(document=document, chunks=chunks, state=state)])
    print(f"  indexed {len(places):,} documents in {time.monotonic() - started:.1f} s", file=sys.stderr)
    by_words = replace(config, index=replace(config.index, embedding=EmbeddingConfig(weight=0.0, floor=2.0)))
    with Corpus.open(config) as corpus, Corpus.open(by_words) as words:
        yield Stand(
            corpus=corpus,
            words=words,
            chunks=spans,
            assistant=Assistant(config, corpus=corpus, record=False),
            source=source_name(sets[0].name) if len(sets) == 1 else None,
            places=places,
        )


# The methods


def unique(names: Iterable[str], *, most: int = READS) -> list[str]:
    return list(dict.fromkeys(names))[:most]


def search(stand: Stand, corpus: Corpus, query: str, *, k: int = READS) -> list[str]:
    result = corpus.search(stand.source, query, principal=OWNER, k=k, per_document=k)
    return [name for hit in result.hits for name in stand.ids(hit.document, hit.start, hit.end)]


def bm25(stand: Stand, question: Question) -> Found:
    """The product's search by words alone."""
    return Found(ids=unique(search(stand, stand.words, question.question)))


def hybrid(stand: Stand, question: Question) -> Found:
    """The product's search as configured by default: words and static vectors."""
    return Found(ids=unique(search(stand, stand.corpus, question.question)))


def gold(stand: Stand, question: Question) -> Found:
    """The lists of the set's own sub-queries, merged in turn."""
    lists = [search(stand, stand.corpus, query) for query in question.queries]
    turns = [found[at] for at in range(READS) for found in lists if at < len(found)]
    return Found(ids=unique(turns))


def dense(stand: Stand, question: Question) -> Found:
    """The static vectors alone."""
    vectors = stand.corpus.embed_query(question.question)
    if vectors is None:
        return Found(ids=())
    near = stand.corpus.nearest(stand.source, vectors[0], principal=OWNER, k=READS)
    return Found(ids=unique(name for one in near for name in stand.record(one.document, one.ordinal)))


def chased(stand: Stand, question: Question) -> Found:
    found = stand.corpus.chase(question.question, principal=OWNER, source=stand.source, k=READS, per_document=READS)
    return Found(ids=unique(name for one in found for name in stand.ids(one.hit.document, one.hit.start, one.hit.end)))


def planner(stand: Stand, question: Question) -> Found:
    """The offline model in the loop; what counts is what it read, in its order, and at most ten records of it."""
    events: list[Event] = []
    answer = stand.assistant.ask_sync(question.question, mode="agent", emit=events.append)
    ids = [
        name
        for event in events
        if isinstance(event, Read)
        for name in stand.ids(event.document, event.start, event.end)
    ]
    return Found(ids=unique(ids), answered=bool(answer.claims) and not answer.missing)


METHODS: dict[str, Method] = {
    "bm25": bm25,
    "dense": dense,
    "hybrid": hybrid,
    "chase": chased,
    "planner": planner,
    "gold sub-queries": gold,
}


def peer(stand: Stand) -> Method | None:
    """BM25 of bm25s over title and text, as the sets' published baseline; None where it is not installed."""
    if importlib.util.find_spec("bm25s") is None or importlib.util.find_spec("Stemmer") is None:
        return None
    bm25s: Any = importlib.import_module("bm25s")
    stemmer: Any = importlib.import_module("Stemmer").Stemmer("english")
    names: list[str] = []
    texts: list[str] = []
    for document, where in stand.places.items():
        text = stand.corpus.document(document, principal=OWNER)
        for start, end, name in where:
            names.append(name)
            texts.append(f"{text.title} {text.text[start:end]}")
    ranker = bm25s.BM25(k1=1.2, b=0.75)
    ranker.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)

    def ask(stand: Stand, question: Question) -> Found:
        tokens = bm25s.tokenize([question.question], stopwords="en", stemmer=stemmer, show_progress=False)
        found, _ = ranker.retrieve(tokens, k=min(READS, len(names)), show_progress=False)
        return Found(ids=[names[int(at)] for at in list(found[0])])

    return ask


PEER = "bm25s (peer)"

# Measuring


def measure(rows: dict[tuple[str, str, str, int | None], Row], one: Set, name: str, method: Method, on: Stand) -> None:
    started = time.monotonic()
    said = started
    for number, question in enumerate(one.questions, start=1):
        if name == "gold sub-queries" and not question.queries:
            continue
        began = time.perf_counter()
        found = method(on, question)
        seconds = time.perf_counter() - began
        for hops in {None, question.hops}:
            key = (one.name, name, question.kind, hops)
            row = rows.setdefault(key, Row(set=one.name, method=name, kind=question.kind, hops=hops))
            row.seconds.append(seconds)
            if found.answered is not None:
                row.answered.append(found.answered)
            if question.must_read:
                ids = unique(found.ids)
                row.all_found.append(set(question.must_read) <= set(ids))
                row.shares.append(len(set(question.must_read) & set(ids[:FIRST])) / len(set(question.must_read)))
        if time.monotonic() - said > 20:
            said = time.monotonic()
            print(f"  {name}: {number} of {len(one.questions)}, {said - started:.0f} s", file=sys.stderr)


def mean(values: Sequence[float] | Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        if not row.shares and not row.answered:
            continue
        found.append(
            {
                "set": row.set,
                "method": row.method,
                "kind": row.kind,
                "hops": row.hops,
                "n": len(row.seconds),
                "all@10": percent(mean(row.all_found)),
                "r@5": percent(mean(row.shares)),
                "answered": percent(mean(row.answered)),
                "ms": round(1000 * (mean(row.seconds) or 0.0), 1),
            }
        )
    return found


def balanced(rows: Mapping[tuple[str, str, str, int | None], Row], names: Sequence[str], method: str) -> float | None:
    """The mean of: answerable questions that it says it answers, unanswerable ones that it says it does not."""
    told = [r for r in rows.values() if r.method == method and r.hops is None and r.set in names]
    yes = [a for r in told if r.kind != "unanswerable" for a in r.answered]
    no = [not a for r in told if r.kind == "unanswerable" for a in r.answered]
    return (sum(yes) / len(yes) + sum(no) / len(no)) / 2 if yes and no else None


def cell(value: object) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = ("set", "method", "kind", "hops", "n", "all@10", "r@5", "answered", "ms")
    shown: list[list[str]] = [list(columns)]
    for row in rows:
        shown.append([cell(row[c]) if c != "hops" or row[c] is not None else "all" for c in columns])
    widths = [max(len(r[i]) for r in shown) for i in range(len(columns))]
    return "\n".join(
        "  ".join(c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True)))
        for r in shown
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data" / "multihop")
    parser.add_argument("--set", action="append", help="only this set (may be given again)")
    parser.add_argument("--methods", help=f"only these, by comma; known: {', '.join(METHODS)}")
    parser.add_argument("--limit", type=int, help="at most so many questions of a set, evenly over its file")
    parser.add_argument("--merged", action=argparse.BooleanOptionalAction, default=True, help="also all corpora in one")
    parser.add_argument("--apart", action=argparse.BooleanOptionalAction, default=True, help="each set by itself")
    parser.add_argument("--cache", type=Path, help="keep the indexes here and use them again")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    data = cast(Path, given.data)
    found = folders(data) if data.is_dir() else []
    if given.set:
        found = [p for p in found if p.name in given.set]
    if not found:
        print(f"no question sets in {str(data)!r}: name their folder with --data", file=sys.stderr)
        return 2
    names = [n.strip() for n in str(given.methods).split(",")] if given.methods else [*METHODS, PEER]
    unknown = [n for n in names if n not in METHODS and n != PEER]
    if unknown:
        print(f"no method {unknown[0]!r}: known are {', '.join(METHODS)}", file=sys.stderr)
        return 2
    rows: dict[tuple[str, str, str, int | None], Row] = {}
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="citehound-multihop-") as scratch:
        cache = Path(given.cache) if given.cache else Path(scratch)
        loaded = [one for folder in found for one in load(folder, limit=given.limit)]
        plans: list[tuple[list[Set], list[Set]]] = [([one], [one]) for one in loaded] if given.apart else []
        plain = [one for one in loaded if "+" not in one.name]
        if given.merged and len(plain) > 1:
            merged = [Set(name=f"{one.name}, {MERGED}", records=(), questions=one.questions) for one in plain]
            plans.append((plain, merged))
        for indexed, asked in plans:
            label = indexed[0].name if len(indexed) == 1 else MERGED
            print(f"{label}:", file=sys.stderr)
            folder = cache / source_name(label)
            folder.mkdir(parents=True, exist_ok=True)
            with stand(indexed, folder) as on:
                methods = {name: METHODS[name] for name in names if name in METHODS}
                if PEER in names:
                    other = peer(on)
                    if other is not None:
                        methods[PEER] = other
                    elif not notes:
                        notes.append("bm25s is not installed: pip install bm25s PyStemmer gives its rows")
                for name, method in methods.items():
                    for one in asked:
                        measure(rows, one, name, method, on)
    shown = as_json(rows.values())
    told = {name: balanced(rows, [s.name for s in plain], name) for name in names}
    accuracy = {name: round(value, 3) for name, value in told.items() if value is not None}
    if given.json:
        print(json.dumps({"rows": shown, "balanced_accuracy": accuracy, "notes": notes}, indent=1))
    else:
        print(table(shown))
        for name, value in accuracy.items():
            print(f"\n{name}: balanced accuracy answerable/unanswerable {value:.3f}")
        for note in notes:
            print(note)
    return 0


if __name__ == "__main__":
    sys.exit(main())

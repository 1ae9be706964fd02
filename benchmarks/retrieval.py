"""One search, measured: nDCG@10 and recall@5 of documents over labelled questions, and how long it takes; no model.

    python benchmarks/retrieval.py [--data DIR] [--cases FILE] [--sets DIR] [--embedder NAME …] [--fusion] [--json]
                                   [--most N]

DIR of `--data` holds one folder per corpus with `cases.jsonl` (as `paths.py` reads them); DIR of `--sets` one folder
per set with `corpus.jsonl` and `questions.jsonl` (as `multihop.py` reads them). Every retriever gets the same passages
(title, section path and text of each chunk) and the same questions, in turn, in one run; a peer that is not installed
is noted. Peers stand for what their libraries do by default: LangChain's BM25Retriever and an EnsembleRetriever of it
and vectors, LlamaIndex's BM25Retriever, Chroma, and LanceDB's hybrid search, all with citehound's embedder.

Rows are by set and kind of question: with vectors as they are used by default ("citehound"), and without ("words").
`--fusion` leaves the peers out and measures many weights instead, also on each half of every set's questions.
`--embedder` (a name as in `[index.embedding]`, "static" is ours; may be given several times) leaves them out too, and
measures what each embedder's vectors bring: alone, by default, filling up, and with weights; over the same index, whose
vectors are made anew for each.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import paths
from citehound.access import OWNER
from citehound.config import Config, EmbeddingConfig
from citehound.corpus import Corpus
from citehound.documents import Chunk, Document
from citehound.embedding import Vectors, open_embedder, static
from citehound.errors import CitehoundError
from citehound.index import FileState, IndexEntry, Near
from citehound.index.embedded import EmbeddedIndex
from citehound.index.fusion import Weights

HERE = Path(__file__).resolve().parent
K = 10
_TAKEN = 40
"""So many passages are asked of a peer, to have ten documents of."""

Search = Callable[[str], list[str]]
"""A question to documents, best first."""


@dataclass(frozen=True, kw_only=True)
class Question:
    text: str
    gold: frozenset[str]
    kind: str


@dataclass(frozen=True, kw_only=True)
class Row:
    set: str
    kind: str
    """Of the questions; 'all' of them, or, with `--fusion`, a half ('odd', 'even')."""
    retriever: str
    questions: int
    ndcg: float
    recall5: float
    recall10: float
    all10: float
    """Share of the questions all of whose documents are among the first ten."""
    p50_ms: float
    p95_ms: float


def score(found: Sequence[str], gold: frozenset[str]) -> tuple[float, float, float, float]:
    """(nDCG@10, recall@5, recall@10, 1 where all are among the first ten)."""
    gain = sum(1 / math.log2(at + 2) for at, document in enumerate(found[:K]) if document in gold)
    ideal = sum(1 / math.log2(at + 2) for at in range(min(K, len(gold))))
    ten = set(found[:K])
    return gain / ideal, len(gold & set(found[:5])) / len(gold), len(gold & ten) / len(gold), float(gold <= ten)


def measure(
    name: str, questions: Sequence[Question], retrievers: Mapping[str, Search], *, halves: bool = False
) -> list[Row]:
    """Each question goes to every retriever before the next one, so that the machine's moods are shared."""
    given: dict[tuple[str, str], list[tuple[float, tuple[float, float, float, float]]]] = defaultdict(list)
    for search in retrievers.values():
        search(questions[0].text)
    kinds = {question.kind for question in questions}
    for number, question in enumerate(questions):
        groups = [question.kind] if len(kinds) > 1 else []
        groups += ["all", *((("even", "odd")[number % 2],) if halves else ())]
        for retriever, search in retrievers.items():
            began = time.perf_counter()
            found = search(question.text)
            took = time.perf_counter() - began
            for group in groups:
                given[group, retriever].append((took, score(list(dict.fromkeys(found)), question.gold)))
    rows: list[Row] = []
    for (group, retriever), results in sorted(given.items(), key=lambda item: item[0][0]):
        ndcg, recall5, recall10, all10 = (
            round(100 * sum(part) / len(results), 1) for part in zip(*(scores for _, scores in results), strict=True)
        )
        times = sorted(seconds for seconds, _ in results)
        rows.append(
            Row(
                set=name,
                kind=group,
                retriever=retriever,
                questions=len(results),
                ndcg=ndcg,
                recall5=recall5,
                recall10=recall10,
                all10=all10,
                p50_ms=round(1000 * times[len(times) // 2], 1),
                p95_ms=round(1000 * times[min(len(times) - 1, int(len(times) * 0.95))], 1),
            )
        )
    return rows


# fusion

OWN = {"citehound": Weights()}
_COMPARED = {
    "by default": Weights(),
    "fills up": Weights(dense=0.0),
    "0.4, keep 0": Weights(dense=0.4, keep=0),
    "1, keep 0": Weights(dense=1.0, keep=0),
    "2, keep 0": Weights(dense=2.0, keep=0),
}
_WEIGHTS = (0.15, 0.25, 0.4, 0.6)
_KEPT = (0, 3, 5, 6)


def neighbours() -> dict[str, Weights]:
    """Weights to choose from."""
    return {f"weight {w:g}, keep {keep}": Weights(dense=w, keep=keep) for keep in _KEPT for w in _WEIGHTS}


def ways(embedder: str, *, compare: bool, fusion: bool) -> dict[str, Weights]:
    """How the vectors of an embedder are used, by what the rows are called."""
    if not compare:
        return neighbours() if fusion else OWN
    found = neighbours() if fusion else _COMPARED
    return {f"{embedder.rpartition(':')[2]} {way}": weights for way, weights in found.items()}


# citehound itself


def of_index(index: EmbeddedIndex) -> Search:
    def search(question: str) -> list[str]:
        return [hit.document for hit in index.search(question, principal=OWNER, k=K, per_document=1).hits]

    return search


def of_corpus(corpus: Corpus) -> Search:
    def search(question: str) -> list[str]:
        return [hit.document for hit in corpus.search(None, question, principal=OWNER, k=K, per_document=1).hits]

    return search


def of_vectors(embed: Callable[[str], Vectors | None], nearest: Callable[[Vectors], Sequence[Near]]) -> Search:
    """Documents of the nearest passages, without a look at words."""

    def search(question: str) -> list[str]:
        vectors = embed(question)
        return [] if vectors is None else [near.document for near in nearest(vectors[0])]

    return search


def vectors_of_index(index: EmbeddedIndex) -> Search:
    return of_vectors(
        lambda question: index.embed([question]), lambda row: index.nearest(row, principal=OWNER, k=_TAKEN)
    )


def vectors_of_corpus(corpus: Corpus) -> Search:
    return of_vectors(corpus.embed_query, lambda row: corpus.nearest(None, row, principal=OWNER, k=_TAKEN))


# peers


def peers(passages: Sequence[tuple[str, str]], notes: list[str]) -> dict[str, Search]:
    """Those that are installed, over (document, text) of every passage."""
    found: dict[str, Search] = {}
    for name, make in (
        ("langchain BM25", _langchain_bm25),
        ("langchain ensemble", _langchain_ensemble),
        ("llama-index BM25", _llama_bm25),
        ("chroma", _chroma),
        ("lancedb hybrid", _lancedb),
    ):
        try:
            found[name] = make(passages)
        except ImportError as error:
            note = f"{name}: not installed ({error.name or error})"
            if note not in notes:
                notes.append(note)
    return found


def _langchain_retriever(passages: Sequence[tuple[str, str]]) -> Any:
    retrievers = importlib.import_module("langchain_community.retrievers")
    texts = [text for _, text in passages]
    made = retrievers.BM25Retriever.from_texts(texts, metadatas=[{"document": document} for document, _ in passages])
    made.k = _TAKEN
    return made


def _langchain_bm25(passages: Sequence[tuple[str, str]]) -> Search:
    retriever = _langchain_retriever(passages)
    return lambda question: [one.metadata["document"] for one in retriever.invoke(question)]


def _langchain_ensemble(passages: Sequence[tuple[str, str]]) -> Search:
    stores = importlib.import_module("langchain_core.vectorstores")
    embeddings = importlib.import_module("langchain_core.embeddings")
    try:
        ensembles = importlib.import_module("langchain.retrievers")
    except ImportError:
        ensembles = importlib.import_module("langchain_classic.retrievers")

    def embed_documents(self: object, texts: list[str]) -> list[list[float]]:
        return static().embed(texts).tolist()

    def embed_query(self: object, text: str) -> list[float]:
        return static().embed([text], kind="query")[0].tolist()

    made = type("Static", (embeddings.Embeddings,), {"embed_documents": embed_documents, "embed_query": embed_query})
    store = stores.InMemoryVectorStore(made())
    store.add_texts([text for _, text in passages], metadatas=[{"document": document} for document, _ in passages])
    both = ensembles.EnsembleRetriever(
        retrievers=[_langchain_retriever(passages), store.as_retriever(search_kwargs={"k": _TAKEN})],
        weights=[0.5, 0.5],
    )
    return lambda question: [one.metadata["document"] for one in both.invoke(question)]


def _llama_bm25(passages: Sequence[tuple[str, str]]) -> Search:
    bm25 = importlib.import_module("llama_index.retrievers.bm25")
    schema = importlib.import_module("llama_index.core.schema")
    nodes = [schema.TextNode(text=text, metadata={"document": document}) for document, text in passages]
    for node in nodes:
        node.excluded_llm_metadata_keys = node.excluded_embed_metadata_keys = ["document"]
    retriever = bm25.BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=min(_TAKEN, len(nodes)))
    return lambda question: [one.node.metadata["document"] for one in retriever.retrieve(question)]


def _chroma(passages: Sequence[tuple[str, str]]) -> Search:
    chromadb = importlib.import_module("chromadb")
    collection = chromadb.EphemeralClient().create_collection(f"p{time.time_ns()}", metadata={"hnsw:space": "cosine"})
    vectors = static().embed([text for _, text in passages])
    for at in range(0, len(passages), 2000):
        part = passages[at : at + 2000]
        collection.add(
            ids=[str(at + number) for number in range(len(part))],
            embeddings=vectors[at : at + 2000].tolist(),
            metadatas=[{"document": document} for document, _ in part],
        )

    def search(question: str) -> list[str]:
        vector = static().embed([question], kind="query").tolist()
        given = collection.query(query_embeddings=vector, n_results=min(_TAKEN, len(passages)))
        return [one["document"] for one in given["metadatas"][0]]

    return search


def _lancedb(passages: Sequence[tuple[str, str]]) -> Search:
    lancedb = importlib.import_module("lancedb")
    vectors = static().embed([text for _, text in passages])
    folder = tempfile.mkdtemp()
    rows = [
        {"document": document, "text": text, "vector": vector}
        for (document, text), vector in zip(passages, vectors.tolist(), strict=True)
    ]
    table = lancedb.connect(folder).create_table("passages", rows)
    table.create_fts_index("text", replace=True)

    def search(question: str) -> list[str]:
        vector = static().embed([question], kind="query")[0].tolist()
        asked = table.search(query_type="hybrid").vector(vector).text(question).limit(_TAKEN)
        return [one["document"] for one in asked.to_list()]

    return search


# data


def labelled_set(
    folder: Path, state: Path, *, most: int, fusion: bool, notes: list[str], embedders: Sequence[str] = ()
) -> list[Row]:
    """A set of documents and questions in JSON lines; each document is one passage."""
    entries: list[IndexEntry] = []
    passages: list[tuple[str, str]] = []
    for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = cast("dict[str, Any]", json.loads(line))
        name, title, text = f"{folder.name}/{row['id']}", str(row["title"]), str(row["text"])
        path = f"{row['id']}.md"
        chunk = Chunk(document=name, ordinal=0, section=None, start=0, end=len(text), text=text, context=title)
        entries.append(
            IndexEntry(
                document=Document(id=name, source=folder.name, path=path, title=title, text=text, language="en"),
                chunks=(chunk,),
                state=FileState(source=folder.name, path=path, document=name, content_hash="1", metadata_hash="1"),
            )
        )
        passages.append((name, f"{title}\n{text}"))
    questions: list[Question] = []
    for line in (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        row = cast("dict[str, Any]", json.loads(line))
        if row.get("must_read"):
            gold = frozenset(f"{folder.name}/{document}" for document in row["must_read"])
            questions.append(Question(text=str(row["question"]), gold=gold, kind=str(row.get("kind", "all"))))
    with EmbeddedIndex(state, write=True) as index:
        index.add(entries)
    rows: list[Row] = []
    for name in embedders or ("static",):
        embedder = open_embedder(name)
        with EmbeddedIndex(state, write=True, embedder=embedder) as index:
            began = time.process_time()
            index.embed_missing()
            took = time.process_time() - began
        if embedders:
            size = sum(file.stat().st_size for file in (state / "vectors").glob("*"))
            notes.append(
                f"{name}, {folder.name}: {1000 * took / len(entries):.2f} ms of CPU and {size / len(entries):.0f} bytes"
                f" on disk for each of {len(entries)} passages"
            )
        with contextlib.ExitStack() as opened:
            own: dict[str, Search] = {}
            if not rows:
                own["citehound, words"] = of_index(opened.enter_context(EmbeddedIndex(state)))
            if embedders:
                alone = opened.enter_context(EmbeddedIndex(state, embedder=embedder))
                own[f"{name.rpartition(':')[2]} alone"] = vectors_of_index(alone)
            for way, weights in ways(name, compare=bool(embedders), fusion=fusion).items():
                own[way] = of_index(opened.enter_context(EmbeddedIndex(state, embedder=embedder, weights=weights)))
            others = {} if fusion or embedders else peers(passages, notes)
            rows += measure(folder.name, questions[:most], {**own, **others}, halves=fusion)
    return rows


def labelled_corpus(
    folder: Path,
    cases: Sequence[paths.Case],
    state: Path,
    *,
    fusion: bool,
    notes: list[str],
    embedders: Sequence[str] = (),
) -> list[Row]:
    """A corpus as a company has it, with eval cases; all its sources are searched together."""
    config = paths.corpus_config(folder, state)
    rows: list[Row] = []
    for name in embedders or ("static",):
        using = _with(config, name=name)
        with Corpus.open(using, write=True) as corpus:
            corpus.sync()
        with contextlib.ExitStack() as opened:
            alone = opened.enter_context(Corpus.open(using))
            questions: list[Question] = []
            for case in cases:
                found = [paths.resolve(alone, needed.partition("#")[0]) for needed in case.must_read]
                gold = frozenset(one for one in found if one is not None)
                if gold:
                    questions.append(Question(text=case.question, gold=gold, kind=case.kind))
            if not questions:
                return []
            own: dict[str, Search] = {}
            if not rows:
                own["citehound, words"] = of_corpus(opened.enter_context(Corpus.open(_with(config, name="none"))))
            if embedders:
                own[f"{name.rpartition(':')[2]} alone"] = vectors_of_corpus(alone)
            for way, weights in ways(name, compare=bool(embedders), fusion=fusion).items():
                changed = _with(config, name=name, weight=weights.dense, keep=weights.keep)
                own[way] = of_corpus(opened.enter_context(Corpus.open(changed)))
            others = {} if fusion or embedders else peers(_passages(state), notes)
            rows += measure(folder.name, questions, {**own, **others}, halves=fusion)
    return rows


def _passages(state: Path) -> list[tuple[str, str]]:
    """(document, text) of every passage of what holds today."""
    found: list[tuple[str, str]] = []
    with EmbeddedIndex(state / ".citehound" / "index") as index:
        for name in index.ids(principal=OWNER):
            info = index.info(name, principal=OWNER)
            if info is not None and info.current:
                found += [(name, f"{c.context}\n{c.text}") for c in index.chunks(name, principal=OWNER)]
    return found


def _with(config: Config, *, name: str, weight: float = 0.0, keep: int = 0) -> Config:
    return replace(config, index=replace(config.index, embedding=EmbeddingConfig(name=name, weight=weight, keep=keep)))


def run(given: argparse.Namespace) -> tuple[list[Row], list[str]]:
    notes: list[str] = []
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        if given.data is not None:
            shared = paths.load_cases(given.cases) if given.cases is not None else None
            for folder in sorted(p for p in given.data.iterdir() if p.is_dir()):
                own = folder / "cases.jsonl"
                cases = shared if shared is not None else paths.load_cases(own) if own.is_file() else []
                if cases:
                    state = Path(temporary) / "corpora" / folder.name
                    state.mkdir(parents=True)
                    rows += labelled_corpus(
                        folder, cases, state, embedders=given.embedder, fusion=given.fusion, notes=notes
                    )
        if given.sets is not None:
            alone = (given.sets / "corpus.jsonl").is_file()
            for folder in [given.sets] if alone else sorted(p for p in given.sets.iterdir() if p.is_dir()):
                if (folder / "corpus.jsonl").is_file():
                    state = Path(temporary) / "sets" / folder.name
                    rows += labelled_set(
                        folder,
                        state,
                        most=given.most,
                        embedders=given.embedder,
                        fusion=given.fusion,
                        notes=notes,
                    )
    return rows, notes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of corpora with cases")
    parser.add_argument("--cases", type=Path, help="other cases for these corpora")
    parser.add_argument("--sets", type=Path, help="folder of labelled sets, or one of them")
    parser.add_argument("--embedder", action="append", default=[], metavar="NAME", help="compare embedders, not peers")
    parser.add_argument("--fusion", action="store_true", help="many weights instead of peers")
    parser.add_argument("--most", type=int, default=10_000, help="most questions of one set")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if given.data is None and given.sets is None:
        parser.error("give --data, --sets, or both")
    try:
        rows, notes = run(given)
    except CitehoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "notes": notes}, indent=1))
        return 0
    print(
        f"{'set':12} {'kind':12} {'retriever':20} {'n':>5} {'nDCG@10':>8} {'R@5':>6} {'R@10':>6} {'All@10':>6}"
        f" {'p50 ms':>7} {'p95 ms':>7}"
    )
    for row in rows:
        print(
            f"{row.set[:12]:12} {row.kind:12} {row.retriever:20} {row.questions:5} {row.ndcg:8.1f} {row.recall5:6.1f}"
            f" {row.recall10:6.1f} {row.all10:6.1f} {row.p50_ms:7.1f} {row.p95_ms:7.1f}"
        )
    for note in notes:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The index of terms (tantivy): what goes into it of each passage, in which folder, and how it is asked."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tantivy
from tantivy import Occur, Query

from ..documents import Chunk, Document, Metadata
from ..errors import IndexUnusable
from ..readonly import borrowed, writable
from .analysis import QueryTerm, analyse, fold, fold_value
from .catalog import parts as parts_of
from .stored import REBUILD
from .vectors import ORDINAL_BITS
from .versions import state_of

_BOOSTS = (("all", 1.0), ("meta", 0.6))
_TITLE_COUNTS = 3
"""So often a title stands in the field `all`, beside section path and text. More fields, each with a length and
frequencies of its own, were worse on every set (docs/decisions/0021-dense.md)."""
_EXACT_BOOST = 0.4
RELATED_BOOST = 0.5
"""Of a compound that has a word of the query as a part."""
_COPY_WORDS = 20


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for name in ("all", "title", "body", "meta"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("any", tokenizer_name="whitespace", index_option="basic")
    builder.add_text_field("filter", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("document", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("chunk", fast=True)
    builder.add_unsigned_field("text", fast=True)
    return builder.build()


def source_term(source: str) -> str:
    return f"source\x1f{source}"


def value_term(key: str, value: str) -> str:
    return f"key\x1f{fold_value(key)}\x1f{fold_value(value)[:200]}"


def _text_hash(text: str) -> int:
    """The same for texts of the same words; odd for one that is long enough to be taken for a copy."""
    words = fold(text).split()
    data = " ".join(words).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())
    return number | 1 if len(words) >= _COPY_WORDS else number & ~1


def text_term(source: str, same: int) -> str:
    return f"text\x1f{source}\x1f{same:x}"


_HELD = "state\x1fcurrent"
_NOT_HELD = "state\x1fother"


def records(document: Document, chunks: Sequence[Chunk], *, row: int, language: str) -> Iterator[tantivy.Document]:
    """What is searched of each passage of a document; `language` is how it is stemmed."""
    title = analyse(document.title, language)
    about = " ".join(value for key, value in document.metadata.items() if key not in _NOT_SEARCHED)
    meta = analyse(f"{about}\n{document.path}", language)
    meta_terms = " ".join([*meta.stems, *sorted(meta.extras.difference(meta.stems))])
    title_terms = " ".join(title.stems)
    common = {*title.stems, *title.extras, *meta.stems, *meta.extras}
    held = state_of(document.metadata) == "current"
    marks = [source_term(document.source), _HELD if held else _NOT_HELD]
    for key, value in document.metadata.items():
        marks.extend(value_term(key, part) for part in parts_of(value))
    for chunk in chunks:
        body = analyse(chunk.text, language)
        context = analyse(chunk.context.removeprefix(document.title), language)
        anything = common.union(body.stems, body.extras, context.stems, context.extras)
        record = tantivy.Document()
        record.add_text("body", " ".join(body.stems))
        only_heading = _only_heading(document, chunk)
        if not only_heading:
            record.add_text("title", title_terms)
            record.add_text("meta", meta_terms)
        around = [*title.stems * _TITLE_COUNTS, *context.stems] if not only_heading else []
        record.add_text("all", " ".join([*around, *body.stems]))
        record.add_text("any", " ".join(anything))
        record.add_text("document", document.id)
        record.add_unsigned("chunk", (row << ORDINAL_BITS) | chunk.ordinal)
        same = _text_hash(chunk.text)
        record.add_unsigned("text", same)
        for mark in (*marks, text_term(document.source, same)):
            record.add_text("filter", mark)
        yield record


SCHEMA = _schema()
_NOT_SEARCHED = frozenset(
    {"licence", "license", "bytes", "sha256", "hash", "url", "fictional", "language", "declared_id"}
)


def _only_heading(document: Document, chunk: Chunk) -> bool:
    """True for a chunk that says no more than the heading of sections below it, which carry it as their context."""
    section = document.section(chunk.section) if chunk.section else None
    if section is None or section.end <= chunk.end + 2 or len(chunk.text) > 200:
        return False
    text = fold_value(chunk.text)
    return text in (fold_value(section.title), fold_value(f"{section.number or ''} {section.title}"))


def about(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """What two copies of one document have in common."""
    return tuple(sorted((key, value) for key, value in metadata.items() if key not in _NOT_SEARCHED))


def one_of(documents: Sequence[str]) -> Query:
    return Query.term_set_query(SCHEMA, "document", list(documents))


def marked(mark: str) -> Query:
    return Query.const_score_query(Query.term_query(SCHEMA, "filter", mark, "basic"), 0.0)


def scored(searcher: tantivy.Searcher, terms: Sequence[tuple[QueryTerm, float]]) -> Query:
    """Each term in each field that has it, with the field's weight; at least one has to occur."""
    parts: list[tuple[Occur, Query]] = []
    for term, weight in terms:
        for stem in term.stems:
            for name, boost in _BOOSTS:
                if boost == 1.0:
                    parts.append((Occur.Should, Query.term_query(SCHEMA, name, stem, "freq")))
                elif searcher.doc_freq(name, stem):
                    query = Query.boost_query(Query.term_query(SCHEMA, name, stem, "freq"), boost)
                    parts.append((Occur.Should, query))
        for stem in term.related:
            query = Query.term_query(SCHEMA, "all", stem, "freq")
            parts.append((Occur.Should, Query.boost_query(query, RELATED_BOOST)))
        exact = Query.term_query(SCHEMA, "any", term.exact, "basic")
        parts.append((Occur.Should, Query.boost_query(exact, _EXACT_BOOST * max(weight, 0.05))))
    return Query.boolean_query(parts)


# Folders


_HEAP = 48_000_000
_AT_ONCE = 3
"""So many parts are written to while documents come in; what goes into others waits for the commit."""
_RETRIES = 5
MAIN = ""
"""The part that stands in the folder itself."""


class Terms:
    """The folder of the index of terms: one tantivy index, and one more in a folder of its own for each further part.

    A part has the documents that the same groups may see, so that what anybody may not see is not even counted: a
    search is over the segments of the parts that are wanted, as one index, with the statistics of these alone.
    """

    def __init__(self, folder: Path, *, write: bool) -> None:
        self._folder = folder
        self._write = write
        self._stand_in: tempfile.TemporaryDirectory[str] | None = None
        self._writers: dict[str, tantivy.IndexWriter] = {}
        self._waiting: dict[str, list[tantivy.Document | str]] = {}
        """By part: what is to be added, and the ids of what is to go, in order."""
        where = str(folder)
        if not write and not writable(folder / ".tantivy-meta.lock"):
            self._stand_in = borrowed(folder)
            where = self._stand_in.name
        self._main = tantivy.Index.open(where)
        self._main.config_reader("manual")
        self._main.reload()

    @staticmethod
    def create(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        tantivy.Index(SCHEMA, path=str(folder))

    def close(self) -> None:
        self._writers.clear()
        self._waiting.clear()
        if self._stand_in is not None:
            self._stand_in.cleanup()
            self._stand_in = None

    @property
    def parts(self) -> list[str]:
        """All there are, also those of which nothing is left."""
        return [MAIN, *sorted(path.name for path in self._folder.iterdir() if path.is_dir())]

    # -- writing

    def add(self, part: str, found: Iterable[tantivy.Document]) -> None:
        for record in found:
            self._do(part, record)

    def delete(self, part: str, document: str) -> None:
        self._do(part, document)

    def _do(self, part: str, what: tantivy.Document | str) -> None:
        if part in self._waiting or (part not in self._writers and len(self._writers) >= _AT_ONCE):
            self._waiting.setdefault(part, []).append(what)
            return
        if part not in self._writers:
            self._writers[part] = self._writer(part)
        _apply(self._writers[part], what)

    def _writer(self, part: str) -> tantivy.IndexWriter:
        folder = self._folder / part
        if part != MAIN and not (folder / "meta.json").exists():
            self.create(folder)
        try:
            index = self._main if part == MAIN else tantivy.Index.open(str(folder))
            return index.writer(heap_size=_HEAP, num_threads=1)
        except ValueError as error:
            raise IndexUnusable(f"the index cannot be written: {error}; {REBUILD} if this stays") from error

    def commit(self) -> None:
        writers, self._writers = self._writers, {}
        waiting, self._waiting = self._waiting, {}
        for writer in writers.values():
            writer.commit()
            writer.wait_merging_threads()
        writers.clear()
        for part, them in waiting.items():
            writer = self._writer(part)
            for what in them:
                _apply(writer, what)
            writer.commit()
            writer.wait_merging_threads()

    def sweep(self, used: Collection[str]) -> None:
        """Removes the parts in which no document is any more."""
        for part in self.parts:
            if part in used:
                continue
            if part != MAIN:
                shutil.rmtree(self._folder / part, ignore_errors=True)
            elif used and self.searcher([MAIN]).num_docs:
                writer = self._writer(MAIN)
                writer.delete_all_documents()
                writer.commit()
                writer.wait_merging_threads()

    # -- reading

    def searcher(
        self, parts: Collection[str], *, anew: Callable[[], Iterable[tantivy.Document]] | None = None
    ) -> tantivy.Searcher:
        """Over some parts as one index as they are now, and over what is put in `anew` for this one alone."""
        if anew is None and set(parts) <= {MAIN}:
            if not parts:
                return tantivy.Index(SCHEMA).searcher()
            self._main.reload()
            return self._main.searcher()
        for attempt in range(_RETRIES):
            try:
                with tempfile.TemporaryDirectory(prefix="citehound-") as folder:
                    return self._joined(sorted(parts), Path(folder), anew=anew)
            except (OSError, ValueError):  # a writer has just replaced a file
                if attempt == _RETRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _joined(
        self, parts: Sequence[str], folder: Path, *, anew: Callable[[], Iterable[tantivy.Document]] | None
    ) -> tantivy.Searcher:
        """An index whose segments are links to those of several parts. Once it is open, the links may go."""
        whole: dict[str, Any] = {}
        for part in parts:
            if not (self._folder / part / "meta.json").exists():
                continue  # a part whose first documents are just being written
            meta: dict[str, Any] = json.loads((self._folder / part / "meta.json").read_text("utf-8"))
            whole = {**meta, "segments": [*whole.get("segments", ()), *meta["segments"]]}
            ours = {str(s["segment_id"]).replace("-", "") for s in meta["segments"]}
            for path in (self._folder / part).iterdir():
                if path.name.partition(".")[0] in ours:
                    (folder / path.name).symlink_to(path.absolute())
        if whole:
            (folder / "meta.json").write_text(json.dumps(whole), "utf-8")
        index = tantivy.Index.open(str(folder)) if whole else tantivy.Index(SCHEMA, path=str(folder))
        index.config_reader("manual")
        if anew is not None:
            writer = index.writer(heap_size=_HEAP, num_threads=1)
            for record in anew():
                writer.add_document(record)
            writer.commit()
            writer.wait_merging_threads()
        index.reload()
        return index.searcher()


def _apply(writer: tantivy.IndexWriter, what: tantivy.Document | str) -> None:
    if isinstance(what, str):
        writer.delete_documents_by_term("document", what)
    else:
        writer.add_document(what)

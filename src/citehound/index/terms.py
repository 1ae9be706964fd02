"""The index of terms (tantivy): what goes into it of each passage, and how it is asked; it reads no store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import tantivy
from tantivy import Occur, Query

from ..documents import Chunk, Document, Metadata
from .analysis import QueryTerm, analyse, fold, fold_value
from .catalog import parts
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
        marks.extend(value_term(key, part) for part in parts(value))
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

"""What the chase asks of an index: lean ranked searches, a passage's words, who is called what; it decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import tantivy
from tantivy import Occur, Query

from ..documents import Metadata
from ..embedding import Vectors
from .links import Mention, Wording, mentions, wording
from .ranking import MOST_COLLECTED, settled

_FIELDS = (("body", 1.0, "freq"), ("title", 0.7, "freq"), ("any", 0.4, "basic"))

Place = tuple[int, int]
"""A passage: (document's row, ordinal)."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """What is known of a document without its text."""

    row: int
    document: str
    source: str
    title: str
    language: str
    metadata: Metadata
    passages: int
    current: bool
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A passage with its words."""

    place: Place
    head: Head
    section: str | None
    start: int
    end: int
    heading: str
    """Title of the section; '' without one."""
    text: str
    wording: Wording


class Trail(Protocol):
    """One index at one moment, as one principal sees it, narrowed to a source, filters and current documents."""

    @property
    def passages(self) -> int:
        """How many there are, whatever the scope."""
        ...

    @property
    def language(self) -> str:
        """The language in which most of the documents are stemmed."""
        ...

    def frequency(self, stem: str) -> int:
        """In how many passages a stem occurs, whatever the scope."""
        ...

    def ranked(
        self, stems: Mapping[str, float], *, limit: int, documents: Sequence[str] | None = None
    ) -> list[tuple[Place, float]]:
        """The best passages by BM25 over weighted stems, best first, equal scores by place."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors | None:
        """One row of length 1 for each text; None without vectors."""
        ...

    def similar(self, vector: Vectors, *, limit: int) -> list[tuple[Place, float]]:
        """The passages nearest to one row of `embed`, by cosine, best first."""
        ...

    def likeness(self, vectors: Vectors, places: Sequence[Place]) -> Vectors:
        """(rows of `vectors`, places): the cosine of each; 0 for a passage without a vector."""
        ...

    def page(self, place: Place) -> Page | None:
        """A passage; None when it has just been removed or is out of scope."""
        ...

    def head(self, row: int) -> Head | None:
        """A document; None when it has just been removed or is out of scope."""
        ...

    def row(self, document: str) -> int | None:
        """The row of a document by its full id; None when it is not in scope."""
        ...

    def mentions(self, text: str, *, capitalised: bool) -> list[Mention]:
        """Where a text calls documents in scope by name."""
        ...


class Stored(Protocol):
    """A stored document as far as a trail needs it."""

    @property
    def text(self) -> str: ...
    def place(self, ordinal: int) -> tuple[str | None, int, int] | None: ...
    def context(self, ordinal: int) -> str: ...
    def section_title(self, section: str | None) -> str: ...


class EmbeddedTrail:
    """`Trail` on tantivy and SQLite. Cheap to make; it lives as long as one question."""

    def __init__(
        self,
        *,
        searcher: tantivy.Searcher,
        schema: tantivy.Schema,
        marks: Sequence[str],
        ordinal_bits: int,
        passages: int,
        language: str,
        head: Callable[[int], Head | None],
        row: Callable[[str], int | None],
        inside: Callable[[int], bool],
        load: Callable[[int], Stored | None],
        wordings: Callable[[int], tuple[Wording, ...] | None],
        called: Callable[[Sequence[int]], Mapping[int, Sequence[tuple[int, float]]]],
        embed: Callable[[Sequence[str]], Vectors | None],
        nearest: Callable[[Vectors, int], Sequence[tuple[Place, float]]],
        cosines: Callable[[Vectors, Sequence[Place]], Vectors],
        exact: bool,
    ) -> None:
        """With `exact`, what decides between equal scores is the documents alone, not how they are stored."""
        self._searcher = searcher
        self._schema = schema
        self._marks = [self._mark(mark) for mark in marks]
        self._bits = ordinal_bits
        self._passages = passages
        self._language = language
        self._head = head
        self._row = row
        self._inside = inside
        self._load = load
        self._wordings = wordings
        self._called = called
        self._embed = embed
        self._nearest = nearest
        self._cosines = cosines
        self._exact = exact
        self._frequencies: dict[str, int] = {}
        self._pages: dict[Place, Page | None] = {}
        self._fields: dict[tuple[str, str], bool] = {}

    @property
    def passages(self) -> int:
        return self._passages

    @property
    def language(self) -> str:
        return self._language

    def frequency(self, stem: str) -> int:
        known = self._frequencies.get(stem)
        if known is None:
            known = self._frequencies[stem] = self._searcher.doc_freq("any", stem)
        return known

    def ranked(
        self, stems: Mapping[str, float], *, limit: int, documents: Sequence[str] | None = None
    ) -> list[tuple[Place, float]]:
        parts: list[tuple[Occur, Query]] = []
        for stem, weight in stems.items():
            if not self.frequency(stem):
                continue
            for field, boost, freq in _FIELDS:
                if self._occurs(field, stem):
                    query = Query.term_query(self._schema, field, stem, freq)
                    parts.append((Occur.Should, Query.boost_query(query, boost * weight)))
        if not parts:
            return []
        query = Query.boolean_query(parts)
        must: list[tuple[Occur, Query]] = [(Occur.Must, mark) for mark in self._marks]
        if documents is not None:
            chosen = Query.term_set_query(self._schema, "document", list(documents))
            must.append((Occur.Must, Query.const_score_query(chosen, 0.0)))
        if must:
            query = Query.boolean_query([(Occur.Must, query), *must])
        pairs = self._best(query, limit)
        keys = cast("list[int]", self._searcher.fast_field_values("chunk", [address for _, address in pairs]))
        found: list[tuple[Place, float]] = []
        for (score, _), key in zip(pairs, keys, strict=True):
            place = self._place(key)
            if self._inside(place[0]):
                found.append((place, score))
        found.sort(key=lambda f: (-round(f[1], 5), f[0]))
        return found

    def _best(self, query: Query, limit: int) -> list[tuple[float, tantivy.DocAddress]]:
        while True:
            found = self._searcher.search(query, limit=limit, count=False)
            pairs = cast("list[tuple[float, tantivy.DocAddress]]", found.hits)
            if not self._exact or limit >= MOST_COLLECTED:
                return pairs
            certain = settled(pairs, limit)
            if certain or not pairs:
                return certain
            limit *= 4

    def embed(self, texts: Sequence[str]) -> Vectors | None:
        return self._embed(texts)

    def similar(self, vector: Vectors, *, limit: int) -> list[tuple[Place, float]]:
        return [(place, cosine) for place, cosine in self._nearest(vector, limit) if self._inside(place[0])]

    def likeness(self, vectors: Vectors, places: Sequence[Place]) -> Vectors:
        return self._cosines(vectors, places)

    def page(self, place: Place) -> Page | None:
        if place in self._pages:
            return self._pages[place]
        self._pages[place] = found = self._read(place)
        return found

    def head(self, row: int) -> Head | None:
        return self._head(row)

    def row(self, document: str) -> int | None:
        found = self._row(document)
        return found if found is not None and self._inside(found) else None

    def mentions(self, text: str, *, capitalised: bool) -> list[Mention]:
        found: list[Mention] = []
        for mention in mentions(text, self._called, capitalised=capitalised):
            inside = tuple(pair for pair in mention.documents if self._inside(pair[0]))
            if inside:
                found.append(replace(mention, documents=inside))
        return found

    def _read(self, place: Place) -> Page | None:
        row, ordinal = place
        head = self._head(row)
        stored = self._load(row) if head is not None else None
        where = stored.place(ordinal) if stored is not None else None
        if head is None or stored is None or where is None:
            return None
        section, start, end = where
        text = stored.text[start:end]
        known = self._wordings(row)
        words = (
            known[ordinal]
            if known is not None and ordinal < len(known)
            else wording(text, title=f"{head.title}\n{stored.context(ordinal)}", language=head.language)
        )
        heading = stored.section_title(section)
        return Page(
            place=place, head=head, section=section, start=start, end=end, heading=heading, text=text, wording=words
        )

    def _place(self, key: int) -> Place:
        return key >> self._bits, key & ((1 << self._bits) - 1)

    def _mark(self, mark: str) -> Query:
        return Query.const_score_query(Query.term_query(self._schema, "filter", mark, "basic"), 0.0)

    def _occurs(self, field: str, stem: str) -> bool:
        known = self._fields.get((field, stem))
        if known is None:
            known = self._fields[field, stem] = self._searcher.doc_freq(field, stem) > 0
        return known

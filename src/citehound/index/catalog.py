"""What is known of all documents at one moment, and the same one change later; it reads no store.

A catalog never changes. `after` gives the next one at the cost of what has changed, not of all that is there, apart
from copying its tables.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..documents import Metadata
from .analysis import fold_value, known_language
from .versions import CURRENT, SAID, Currency, Named, Names, currencies

Rows = npt.NDArray[np.bool_]
"""By a document's row: whether it is meant."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """What the catalog keeps of a document in memory."""

    row: int
    id: str
    source: str
    path: str
    title: str
    language: str | None
    metadata: Metadata
    chars: int
    passages: int


@lru_cache(maxsize=100_000)
def parts(value: str) -> tuple[str, ...]:
    """A metadata value and, where it is a list, its members."""
    found = [p.strip() for p in value.split(",")] if "," in value else []
    return tuple(dict.fromkeys([value.strip(), *[p for p in found if p]]))


@lru_cache(maxsize=100_000)
def folded_parts(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fold_value(part) for part in parts(value)))


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """All documents' heads, with what follows from them."""

    heads: Mapping[str, Head]
    """By id, in the order of ids."""
    by_row: Mapping[int, Head]
    passages: int
    documents: Mapping[str, int]
    """How many there are by source."""
    spoken: Mapping[str | None, int]
    """How many documents are in each language, as they say."""
    language: str
    """Of those that say none."""
    names: Names
    currencies: Mapping[str, Currency]
    today: date
    keys: Mapping[str, Mapping[str, str]]
    """Source ('' for all) to folded key to key."""
    hidden: frozenset[str]
    """Documents that do not hold today."""
    counts: Mapping[tuple[str, str], Mapping[str, int]]
    """(source or '', key) to how often each value is written."""
    stated: Mapping[str, Named]
    """Documents that say something of versions or dates."""
    open_sources: frozenset[str] = frozenset()
    """Which many people can write, so that they say nothing of the documents of others."""
    _values: dict[tuple[str, str], tuple[dict[str, str], list[str]]] = field(
        default_factory=dict[tuple[str, str], tuple[dict[str, str], list[str]]]
    )
    _postings: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])
    """Key to folded value to rows, of the keys that were asked for."""
    _tables: dict[object, Rows] = field(default_factory=dict[object, Rows])
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def empty(cls, *, today: date, language: str, open_sources: frozenset[str] = frozenset()) -> Catalog:
        return cls(
            open_sources=open_sources,
            heads={},
            by_row={},
            passages=0,
            documents={},
            spoken={},
            language=language,
            names=Names(()),
            currencies={},
            today=today,
            keys={},
            hidden=frozenset(),
            counts={},
            stated={},
        )

    def after(self, *, added: Iterable[Head], gone: Collection[int], today: date) -> Catalog:
        """The catalog without the documents of the rows `gone`, and with others."""
        news = sorted(added, key=lambda head: head.id)
        left = [self.by_row[row] for row in gone if row in self.by_row]
        if not news and not left and today == self.today:
            return self
        heads, by_row = dict(self.heads), dict(self.by_row)
        documents, spoken = Counter(self.documents), Counter(self.spoken)
        counts = dict(self.counts)
        stated = dict(self.stated)
        fresh: dict[tuple[str, str], Counter[str]] = {}
        with self._mutex:
            values = dict(self._values)
            postings = dict(self._postings)
        posted: dict[str, dict[str, list[int]]] = {}
        passages = self.passages
        for head, sign in (*((h, -1) for h in left), *((h, 1) for h in news)):
            passages += sign * head.passages
            documents[head.source] += sign
            spoken[head.language] += sign
            if sign < 0:
                del by_row[head.row]
                if heads.get(head.id) is head:
                    del heads[head.id]
                stated.pop(head.id, None)
            else:
                by_row[head.row] = head
                if SAID & head.metadata.keys():
                    stated[head.id] = Named(id=head.id, path=f"{head.source}/{head.path}", metadata=head.metadata)
            for key, value in head.metadata.items():
                if not value.strip():
                    continue
                for of in (head.source, ""):
                    if (of, key) not in fresh:
                        fresh[of, key] = Counter(counts.get((of, key), {}))
                        values.pop((of, key), None)
                    fresh[of, key][value.strip()] += sign
                if key in postings:
                    mine = posted.setdefault(key, dict(postings[key]))
                    for folded in folded_parts(value):
                        rows = mine.get(folded, [])
                        mine[folded] = [*rows, head.row] if sign > 0 else [r for r in rows if r != head.row]
        for at, counter in fresh.items():
            kept = {value: n for value, n in counter.items() if n > 0}
            if kept:
                counts[at] = kept
            else:
                counts.pop(at, None)
        keys: dict[str, dict[str, str]] = defaultdict(dict)
        for source, key in counts:
            keys[source].setdefault(fold_value(key), key)
        names = self.names.after(
            gone=[(h.id, f"{h.source}/{h.path}") for h in left], added=[(h.id, f"{h.source}/{h.path}") for h in news]
        )
        known = currencies(stated.values(), today=today, names=names, open_sources=self.open_sources)
        return Catalog(
            open_sources=self.open_sources,
            heads=_merged(heads, news),
            by_row=by_row,
            passages=passages,
            documents={source: n for source, n in documents.items() if n},
            spoken={language: n for language, n in spoken.items() if n},
            language=self.language,
            names=names,
            currencies=known,
            today=today,
            keys=keys,
            hidden=frozenset(d for d, c in known.items() if not c.current),
            counts=counts,
            stated=stated,
            _values=values,
            _postings={**postings, **posted},
        )

    def currency(self, document: str) -> Currency:
        return self.currencies.get(document, CURRENT)

    @property
    def languages(self) -> Sequence[str]:
        """Those whose stems are indexed."""
        return sorted({known_language(language or self.language) for language in self.spoken})

    @property
    def only_source(self) -> str | None:
        """The one there is."""
        return next(iter(self.documents)) if len(self.documents) == 1 else None

    def values(self, source: str, key: str) -> Mapping[str, str]:
        """Folded value (also of a part of a list) to the value as most often written. `source` may be ''."""
        return self._valued(source, key)[0]

    def whole_values(self, source: str, key: str) -> Sequence[str]:
        """Most frequent first."""
        return self._valued(source, key)[1]

    def _valued(self, source: str, key: str) -> tuple[dict[str, str], list[str]]:
        known = self._values.get((source, key))
        if known is None:
            counter = self.counts.get((source, key), {})
            ordered = sorted(counter, key=lambda value: (-counter[value], value))
            whole: dict[str, str] = {}
            every: dict[str, str] = {}
            for value in ordered:
                whole.setdefault(fold_value(value), value)
                for part in parts(value):
                    every.setdefault(fold_value(part), part)
            known = every, list(whole.values())
            with self._mutex:
                self._values[source, key] = known
        return known

    def rows(self, *, source: str | None, wanted: Sequence[tuple[str, str]], only_current: bool) -> Rows:
        """Which documents a source, filters (key, folded value) and currency leave."""
        asked = (source, tuple(wanted), only_current)
        known = self._tables.get(asked)
        if known is not None:
            return known
        table = np.zeros(self._size, dtype=np.bool_)
        if wanted:
            left = [row for row in self._posted(wanted[0][0]).get(wanted[0][1], ()) if row in self.by_row]
            for key, value in wanted[1:]:
                left = [row for row in left if value in folded_parts(self.by_row[row].metadata.get(key, ""))]
            if source is not None:
                left = [row for row in left if self.by_row[row].source == source]
            table[left] = True
        elif source is None or source == self.only_source:
            table[np.fromiter(self.by_row, dtype=np.int64, count=len(self.by_row))] = True
        else:
            table[[row for row, head in self.by_row.items() if head.source == source]] = True
        if only_current:
            table[[self.heads[document].row for document in self.hidden if document in self.heads]] = False
        with self._mutex:
            while len(self._tables) >= 64:
                self._tables.pop(next(iter(self._tables)))
            self._tables[asked] = table
        return table

    @property
    def _size(self) -> int:
        return max(self.by_row, default=0) + 1

    def _posted(self, key: str) -> Mapping[str, Sequence[int]]:
        known = self._postings.get(key)
        if known is None:
            known = defaultdict[str, list[int]](list)
            for row, head in self.by_row.items():
                if value := head.metadata.get(key, ""):
                    for folded in folded_parts(value):
                        known[folded].append(row)
            known = dict(known)
            with self._mutex:
                self._postings[key] = known
        return known


def _merged(heads: dict[str, Head], news: Sequence[Head]) -> Mapping[str, Head]:
    """All of them in the order of ids; `heads` are in it already."""
    if not news:
        return heads
    if len(news) > 50:
        heads.update((head.id, head) for head in news)
        return dict(sorted(heads.items()))
    for head in news:
        heads.pop(head.id, None)
    ids = list(heads)
    for head in news:
        ids.insert(bisect_left(ids, head.id), head.id)
    heads.update((head.id, head) for head in news)
    return {document: heads[document] for document in ids}

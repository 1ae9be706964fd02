"""The `Index` protocol that every search backend keeps; `embedded` is the default one.

Every function that reads takes the `principal` (who asks), with no default. A backend stores documents whole
(text, sections, metadata) beside their chunks, so that a read never goes back to the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ..embedding import Vectors
    from .trail import Trail

from ..access import Principal
from ..documents import Chunk, Document, DocumentInfo, DocumentList, SearchResult


@dataclass(frozen=True, kw_only=True)
class FileState:
    """What the index remembers of one file, so that an unchanged one is skipped."""

    source: str
    path: str
    document: str
    """The assigned id; kept for the life of the file."""
    content_hash: str
    metadata_hash: str
    error: str | None = None
    """Reason of the last failure; a failed file is tried again next time."""


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """One document on its way into the index."""

    document: Document
    chunks: tuple[Chunk, ...]
    state: FileState


@dataclass(frozen=True, kw_only=True)
class Near:
    """A passage that is near a vector."""

    document: str
    ordinal: int
    """Of the chunk in its document."""
    cosine: float


@dataclass(frozen=True, kw_only=True)
class ExplainedTerm:
    """A word of a query, as it was searched."""

    term: str
    stems: tuple[str, ...]
    passages: int
    """In how many it occurs."""
    left_out: str | None = None
    """Why it was not searched."""


@dataclass(frozen=True, kw_only=True)
class Considered:
    """A passage that a search looked at."""

    document: str
    section: str | None
    ordinal: int
    score: float
    words: float | None
    """Score by words; None where they did not bring it."""
    words_rank: int | None
    cosine: float | None
    dense_rank: int | None
    """None where it is not among the nearest."""
    verdict: str
    """'hit 3', or why it was cut."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """How a search came to its hits."""

    query: str
    terms: tuple[ExplainedTerm, ...]
    """Rarest first."""
    source: str | None
    filters: tuple[tuple[str, str], ...]
    only_current: bool
    notes: tuple[str, ...]
    dense: str | None
    """The embedder; None where words alone were searched."""
    dense_weight: float
    floor: float
    keep: int
    """The first so many hits by words stay the first."""
    words_only: bool
    """The query has too few words for vectors to bring passages of their own."""
    considered: tuple[Considered, ...]
    """Best first, with what was cut."""
    rerank: str | None = None
    """What put the best passages in their last order, and whether it did."""


class Lexicon(Protocol):
    """What the offline model may know of the corpus: frequencies, names and values, no text."""

    @property
    def passages(self) -> int:
        """How many chunks there are."""
        ...

    def frequency(self, term: str) -> int:
        """In how many chunks the term's stem occurs (all sources, title and context included)."""
        ...

    def values(self, source: str) -> Mapping[str, tuple[str, ...]]:
        """Known values of each filter of a source."""
        ...

    def titles(self) -> Sequence[tuple[str, str]]:
        """(document id, title) of every document, current or not."""
        ...


@runtime_checkable
class Index(Protocol):
    """A store of documents and their chunks. Sync and thread-safe for readers; one writer at a time."""

    # writing
    def add(self, entries: Iterable[IndexEntry]) -> None: ...
    def remove(self, documents: Iterable[str]) -> None: ...
    def record_failure(self, state: FileState) -> None:
        """Remembers that a file failed; an earlier version of its document goes."""
        ...

    def forget(self, source: str, path: str) -> None:
        """Drops the state of one file that is no longer a document; its document is removed by `remove`."""
        ...

    def commit(self) -> None: ...
    def files(self, source: str) -> Mapping[str, FileState]: ...
    def sources(self) -> Sequence[str]:
        """Every source of which a file is remembered, also those no longer configured."""
        ...

    # reading
    @property
    def warnings(self) -> Sequence[str]:
        """What is to be said of the index as it was opened."""
        ...

    def any_document(self) -> bool:
        """True when there is at least one document."""
        ...

    def search(
        self,
        query: str,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 6,
        per_document: int = 2,
    ) -> SearchResult:
        """The best `k` chunks, at most `per_document` of each document. An unknown filter gives no hits and a note."""
        ...

    def explain(
        self,
        query: str,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 6,
        per_document: int = 2,
    ) -> Explanation:
        """How `search` with the same arguments comes to its hits."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors | None:
        """Queries as vectors of this index, one row of length 1 each; None when it has no vectors."""
        ...

    def nearest(
        self,
        vector: Vectors,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 20,
    ) -> Sequence[Near]:
        """The `k` passages nearest to one row of `embed`, best first; none when there are no vectors."""
        ...

    def cosines(self, vectors: Vectors, passages: Sequence[tuple[str, int]], *, principal: Principal) -> Vectors:
        """(rows of `vectors`, passages): how near each passage, given as (document, ordinal), is to each row.

        0 for a passage that has no vector. Costs as much as there are passages given."""
        ...

    def trail(
        self,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
    ) -> Trail | None:
        """What the chase asks; None when an unknown filter means that nothing can match."""
        ...

    def document(self, document: str, *, principal: Principal) -> Document | None: ...
    def chunks(self, document: str, *, principal: Principal) -> Sequence[Chunk]:
        """The chunks of one document, in order; empty when there is no such document."""
        ...

    def info(self, document: str, *, principal: Principal) -> DocumentInfo | None: ...
    def list_documents(
        self,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        start: int = 0,
        limit: int = 50,
    ) -> DocumentList: ...
    def resolve(self, name: str, *, principal: Principal) -> str:
        """The full id of what an id, path or unique suffix names. Raises UnknownDocument with what is near."""
        ...

    def ids(self, *, principal: Principal) -> Sequence[str]: ...
    def paths(self, *, principal: Principal) -> Mapping[str, str]:
        """Document id to its path with extension, prefixed by source: 'policies/a/b.md'."""
        ...

    def values(self, source: str, key: str, *, principal: Principal) -> Sequence[str]:
        """Known values of a metadata key, most frequent first."""
        ...

    def lexicon(self, *, principal: Principal) -> Lexicon: ...
    def close(self) -> None:
        """A writer commits first."""
        ...

    def abandon(self) -> None:
        """Closes without committing what is pending."""
        ...

"""The corpus: brings sources into the index (`sync`) and answers search, read, find and list; knows no model.

INTERFACE SKETCH (bodies to be written by the owner of this file; signatures are the contract for others).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from .config import Config, SourceConfig
from .documents import Document, DocumentInfo, DocumentList, Passage, SearchResult
from .events import Emit, nowhere
from .index import Lexicon, Principal

FileStatus = Literal["indexed", "unchanged", "removed", "skipped", "failed"]


@dataclass(frozen=True, kw_only=True)
class FileReport:
    source: str
    path: str
    status: FileStatus
    document: str | None = None
    reason: str | None = None
    """Of a skip or failure."""
    warnings: tuple[str, ...] = ()
    chars: int = 0
    sections: int = 0
    passages: int = 0
    language: str | None = None


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    files: tuple[FileReport, ...]
    seconds: float = 0.0

    def count(self, status: FileStatus) -> int:
        return sum(1 for f in self.files if f.status == status)


@dataclass(frozen=True, kw_only=True)
class FindResult:
    """Where a phrase stands in one document; `passages` are windows of text around the places, so they count as read."""

    document: str
    phrase: str
    passages: tuple[Passage, ...]
    total: int
    """How many places there are."""


class Corpus:
    @classmethod
    def open(cls, config: Config, *, write: bool = False) -> Corpus:
        """Opens (and, with `write`, creates) the index under `config.state`. Raises IndexUnusable."""
        raise NotImplementedError

    @property
    def config(self) -> Config: ...
    @property
    def sources(self) -> tuple[SourceConfig, ...]: ...
    def is_empty(self) -> bool: ...
    def sync(self, *, emit: Emit = nowhere, rebuild: bool = False) -> SyncReport: ...
    def search(
        self,
        source: str | None,
        query: str,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        k: int = 6,
        per_document: int = 2,
    ) -> SearchResult: ...
    def read(
        self, document: str, *, principal: Principal, section: str | None = None, start: int = 0, limit: int = 6000
    ) -> Passage:
        """`document` may be a full id, a path or a unique suffix. `start` is an absolute offset into Document.text;
        with `section` and start=0 the read begins at the section. Pages join without a gap."""
        ...

    def find(self, document: str, phrase: str, *, principal: Principal, limit: int = 5) -> FindResult: ...
    def list_documents(
        self,
        source: str | None,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        start: int = 0,
        limit: int = 50,
    ) -> DocumentList: ...
    def resolve(self, name: str, *, principal: Principal) -> str:
        """The full id. Raises UnknownDocument with the nearest names."""
        ...

    def document(self, document: str, *, principal: Principal) -> Document: ...
    def info(self, document: str, *, principal: Principal) -> DocumentInfo: ...
    def filter_values(self, source: str, key: str, *, principal: Principal) -> Sequence[str]: ...
    def lexicon(self, *, principal: Principal) -> Lexicon: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

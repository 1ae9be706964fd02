"""What a source is: something that hands over documents as bytes; parsing, indexing and access are not its business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..config import SourceConfig
from ..documents import Metadata, RawDocument


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A file that is not handed over, and why; it goes into the report."""

    path: str
    """Relative to the source's folder, POSIX, NFC."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A page that could not be had this time: reported as failed, tried again, and kept as it is indexed."""

    path: str
    reason: str


class Source(Protocol):
    """One kind of source: a function, one module of this package each."""

    def __call__(
        self, source: SourceConfig, config_root: Path, known: Mapping[str, str]
    ) -> Iterator[RawDocument | SkippedFile]:
        """Everything the source has, in a fixed order.

        `known` maps a path to the id it was given before, which it keeps. Raises ConfigError when the source as a
        whole cannot be read; one bad file is a `SkippedFile`.
        """
        ...


# Live sources: searched when asked, nothing of them is indexed --------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Found:
    """One result of a live source: a text, or (of the web) where one can be fetched."""

    title: str = ""
    text: str | None = None
    """None: not fetched yet."""
    name: str = ""
    """What the source calls it; empty: it has no name."""
    own: bool = False
    """The name is of this text alone, so another text under it is a new version; else it may name a part of a whole."""
    markdown: bool = False
    metadata: Metadata = field(default_factory=dict[str, str])
    url: str | None = None
    snippet: str = ""


@dataclass(frozen=True, kw_only=True)
class Results:
    """What one search of a live source gave, best first."""

    found: tuple[Found, ...]
    notes: tuple[str, ...] = ()


class LiveSource(Protocol):
    """One live source. Everything that goes wrong is a SourceFailed."""

    @property
    def config(self) -> SourceConfig: ...

    def values(self, key: str) -> tuple[str, ...]:
        """The values that a filter can have; empty where they are not known."""
        ...

    async def search(self, query: str, *, filters: Mapping[str, str], k: int) -> Results: ...

    def check(self, url: str) -> str:
        """The URL in its one spelling, if it may be fetched. Raises EgressRefused."""
        ...

    async def fetch(self, url: str, *, document: str, path: str) -> RawDocument:
        """The page, to become the document of this id and path."""
        ...

"""What a source is: something that hands over documents as bytes; parsing, indexing and access are not its business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..config import SourceConfig
from ..documents import RawDocument


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A file that is not handed over, and why; it goes into the report."""

    path: str
    """Relative to the source's folder, POSIX, NFC."""
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

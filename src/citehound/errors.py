"""Every exception that leaves Citehound, as one tree; nothing here formats output or decides exit codes.

    CitehoundError
    ├── UsageError            the caller erred (exit 2)
    │   ├── ConfigError       citehound.toml or a setting is wrong
    │   ├── UnknownSource     no such source
    │   ├── UnknownDocument   no such document, or the name is ambiguous
    │   ├── UnknownSection    the document has no such section
    │   ├── UnknownRun        no such run, or none for who asks
    │   └── RightsWithdrawn   what a question had shown may not be seen any more by who asked it
    ├── IndexUnusable         the index is corrupt, newer, or locked (exit 1)
    │   ├── IndexCorrupt
    │   ├── IndexTooNew
    │   ├── IndexLocked
    │   └── NoRoom            the disk is full
    ├── EmbeddingFailed       texts could not be made into vectors
    ├── SourceFailed          a live source or a page could not be asked (a tool error, never the end of a run)
    │   └── EgressRefused     a URL or host that must not be reached
    ├── ParseError            one file could not be read (reported, never ends a sync)
    └── RunError              a run failed as a whole
        └── BudgetExceeded    a reservation does not fit; carries the limit that refused

Messages are one line, quote values with !r, and say what to do next.
"""

from __future__ import annotations


class CitehoundError(Exception):
    """Base of all errors raised by Citehound."""


class UsageError(CitehoundError):
    """The caller asked for something that cannot be."""


class ConfigError(UsageError):
    """The configuration is wrong."""


class UnknownSource(UsageError):
    """No source has this name."""


class UnknownDocument(UsageError):
    """No document, or more than one, goes by this name."""


class UnknownSection(UsageError):
    """The document has no such section."""


class UnknownRun(UsageError):
    """No run, or more than one, goes by this id; or none that this principal may see."""


class RightsWithdrawn(UsageError):
    """While a question ran, its asker lost the right to something that it had found or read: there is no answer."""

    def __init__(self) -> None:
        super().__init__("what you may see has changed while this question ran; ask it again")


class IndexUnusable(CitehoundError):
    """The index on disk cannot be used as it is."""


class IndexCorrupt(IndexUnusable):
    """A checksum or a structure of the index does not hold."""


class IndexTooNew(IndexUnusable):
    """The index was written by a newer version."""


class IndexLocked(IndexUnusable):
    """Another process is writing the index."""


class NoRoom(IndexUnusable):
    """The disk has no room for what is to be written."""


class EmbeddingFailed(CitehoundError):
    """The embedder could not be reached, or gave something else than vectors."""


class SourceFailed(CitehoundError):
    """A live source, or a page of the web, gave nothing that can be used."""


class EgressRefused(SourceFailed):
    """A URL, host or address that must not be reached."""


class ParseError(CitehoundError):
    """One file could not be read; the message is the reason shown in the report."""


class RunError(CitehoundError):
    """A run failed as a whole."""


class BudgetExceeded(RunError):
    """A reservation does not fit into what is left.

    `limit` is the limit that refused: 'steps', 'dollars' or 'seconds'.
    """

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit = limit

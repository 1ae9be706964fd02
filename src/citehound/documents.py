"""The values that documents become on their way from a file to a model; no I/O, no parsing.

All offsets are code points into `Document.text`, half-open. `None` means unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Metadata = Mapping[str, str]
"""Flat, string to string. Lists are joined by ', '."""

OPEN = "open: many people can write here"
"""What is said of a text by the trust in its source."""

RESERVED = frozenset(
    [
        "id",
        "source",
        "path",
        "document",
        "section",
        "access",
        "acl",
        "allow",
        "deny",
        "trust",
        "private",
        "principal",
        "tenant",
        "boost",
        "permissions",
        "groups",
        "allowed_groups",
    ]
)
"""Keys that a document's metadata cannot have: ids, sources and access come from configuration and path alone."""


@dataclass(frozen=True, kw_only=True)
class RawDocument:
    """One file (or record) as a source hands it over: bytes and what is known about them."""

    id: str
    """`<source>/<path without its extension>`, POSIX, NFC."""
    source: str
    path: str
    """Relative to the source's folder, POSIX, NFC, with extension."""
    data: bytes
    metadata: Metadata = field(default_factory=dict[str, str])
    """From configuration and manifest only; the document's own front matter is added by the parser."""
    names: Metadata = field(default_factory=dict[str, str])
    """From configuration: a metadata name to the key that the document's front matter uses for it."""
    listed: bool = False
    """True when a manifest names this file, so an unknown extension is read by its content."""
    unpack: bool = False
    """True when the files in an archive may be read too."""
    ocr: bool = False
    """True when pages without usable text are to be read from their pictures."""


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A file that came inside another one, to be read as a document of its own."""

    name: str
    """Of an archive's member: its path, POSIX."""
    data: bytes
    media_type: str = ""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What a file says of itself, before configuration and manifest, which rank above it; and how it was read."""

    title: str
    metadata: Metadata = field(default_factory=dict[str, str])
    language: str | None = None
    format: str = ""
    tables: int = 0


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading (or numbered paragraph) and all below it: `text[start:end]`, descendants included."""

    id: str
    """Its number ('7.2') or slug, unique in the document ('schedule-1/1.1' where it would clash)."""
    title: str
    level: int
    start: int
    end: int
    number: str | None = None
    parent: str | None = None
    """Id of the enclosing section."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a person reads: rendered plain text with its section tree."""

    id: str
    source: str
    path: str
    title: str
    text: str
    sections: tuple[Section, ...] = ()
    """In order of `start`; parents before children."""
    metadata: Metadata = field(default_factory=dict[str, str])
    language: str | None = None
    """ISO 639-1."""
    pages: tuple[int, ...] = ()
    """Offset at which each page starts; empty where the format has no pages."""
    warnings: tuple[str, ...] = ()
    stated: Stated | None = None
    """None where the text itself hangs on configuration or manifest, so that a change of these means parsing again."""
    attachments: tuple[Attachment, ...] = ()
    """Files inside this one; they become documents of their own and are not stored with it."""

    @property
    def stated_format(self) -> str:
        """The name of the format it was read from, '' where that is not known."""
        return self.stated.format if self.stated is not None else ""

    def section(self, section_id: str) -> Section | None:
        """The section with this id, or None."""
        return next((s for s in self.sections if s.id == section_id), None)

    def section_at(self, offset: int) -> Section | None:
        """The innermost section that holds `offset`, or None."""
        best: Section | None = None
        for s in self.sections:
            if s.start <= offset < s.end and (best is None or s.level >= best.level):
                best = s
        return best

    def section_path(self, section_id: str | None) -> tuple[Section, ...]:
        """From the outermost ancestor to the section itself."""
        found: list[Section] = []
        seen: set[str] = set()
        while section_id is not None and section_id not in seen:
            seen.add(section_id)
            section = self.section(section_id)
            if section is None:
                break
            found.append(section)
            section_id = section.parent
        return tuple(reversed(found))

    def page_at(self, offset: int) -> int | None:
        """The 1-based page on which `offset` stands, or None without pages."""
        if not self.pages:
            return None
        return max(1, sum(1 for start in self.pages if start <= offset))


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A searchable piece of one document that never crosses a section; `text == document.text[start:end]`."""

    document: str
    ordinal: int
    section: str | None
    start: int
    end: int
    text: str
    context: str = ""
    """Title and section path, searched beside the text, not part of it."""


@dataclass(frozen=True, kw_only=True)
class SearchHit:
    """A chunk that a search SAW. Seeing is not reading."""

    document: str
    section: str | None
    title: str
    snippet: str
    """At most 300 characters, for choosing what to read."""
    score: float
    current: bool
    metadata: Metadata
    start: int
    end: int
    """Span of the whole chunk."""
    labels: tuple[str, ...] = ()
    """'superseded by policies/x-v4', 'amended by contracts/y', 'draft' ..."""
    ordinal: int = 0
    """Of the chunk in its document."""
    trust: str = "reviewed"
    """Of its source: 'reviewed', or 'open' where many people can write."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    hits: tuple[SearchHit, ...]
    hidden_superseded: int = 0
    notes: tuple[str, ...] = ()
    """E.g. "supplier 'Alfa' is not known; nearest: 'Alpha'" - a filter that matches nothing gives no hits."""


@dataclass(frozen=True, kw_only=True)
class OutlineEntry:
    section: str
    title: str
    level: int
    start: int
    end: int


def thinned(
    outline: Sequence[OutlineEntry], most: int, *, size: Callable[[OutlineEntry], int] = lambda entry: 1
) -> tuple[OutlineEntry, ...]:
    """As many levels of an outline as fit into `most`; of the first level that does not, evenly spaced entries.

    So a book with one heading above thousands of others has an outline from its beginning to its end.
    """
    kept: list[int] = []
    room = most
    for level in sorted({entry.level for entry in outline}):
        more = [number for number, entry in enumerate(outline) if entry.level == level]
        step = 1
        while more and sum(size(outline[number]) for number in more[::step]) > room:
            step += max(1, step // 16)
            if step > len(more):
                more = []
        kept += more[::step]
        room -= sum(size(outline[number]) for number in more[::step])
        if step > 1:
            break
    return tuple(outline[number] for number in sorted(kept))


@dataclass(frozen=True, kw_only=True)
class Passage:
    """Text that was READ: exactly `Document.text[start:end]`."""

    document: str
    section: str | None
    title: str
    text: str
    start: int
    end: int
    total_chars: int
    next_start: int | None = None
    """Where the next page begins (to pass as `start`), None at the end of what was asked for."""
    outline: tuple[OutlineEntry, ...] = ()
    current: bool = True
    metadata: Metadata = field(default_factory=dict[str, str])
    labels: tuple[str, ...] = ()
    page: int | None = None
    trust: str = "reviewed"
    """Of its source: 'reviewed', or 'open' where many people can write."""


@dataclass(frozen=True, kw_only=True)
class DocumentInfo:
    """What a listing shows of one document."""

    document: str
    source: str
    title: str
    current: bool
    metadata: Metadata
    total_chars: int
    labels: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    amended_by: tuple[str, ...] = ()
    trust: str = "reviewed"
    """Of its source: 'reviewed', or 'open' where many people can write."""


@dataclass(frozen=True, kw_only=True)
class DocumentList:
    documents: tuple[DocumentInfo, ...]
    total: int
    """How many match, of which `documents` may be the first page."""
    hidden_superseded: int = 0
    notes: tuple[str, ...] = ()


def trust_label(trust: str) -> tuple[str, ...]:
    """What is to be said of a text by the trust in its source."""
    return (OPEN,) if trust == "open" else ()

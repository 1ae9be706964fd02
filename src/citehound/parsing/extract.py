"""What the binary formats hand back beyond their blocks, and careful ways into zip and XML; reads no format itself."""

from __future__ import annotations

import io
import re
import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

from ..documents import Attachment
from ..errors import ParseError
from .blocks import Parsed, Placed, normalise

MAX_UNPACKED = 200_000_000
"""Bytes that one zip container may unpack to, all parts together."""
MAX_RATIO = 200
"""How much bigger than its packed form a part over `MAX_PLAIN` bytes may be."""
MAX_PLAIN = 20_000_000
MAX_DEPTH = 200
"""Nesting of XML elements."""

_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "Ĳ": "IJ", "ĳ": "ij"}
_LIGATURE = re.compile("[ﬀ-ﬆĲĳ]")
_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f]")


@dataclass(frozen=True, kw_only=True)
class PageStart:
    """Where a page begins: so many characters into the block with this index."""

    block: int
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Extract(Parsed):
    """A `Parsed` with what a file says of itself, where its pages begin, and the files inside it.

    No block is blank, and none begins or ends with white space, so block n is the n-th that `blocks.join` places.
    """

    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    page_starts: tuple[PageStart, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def page_offsets(starts: Sequence[PageStart], placed: Sequence[Placed]) -> tuple[int, ...]:
    """`Document.pages` of blocks that `blocks.join` has placed."""
    end = placed[-1].end if placed else 0
    return tuple(placed[s.block].start + s.offset if s.block < len(placed) else end for s in starts)


def clean(text: str) -> str:
    """Text as a person reads it: plain blanks, no ligatures or soft hyphens, accents composed."""
    if text.isascii():
        return normalise(text)
    text = _BLANKS.sub(" ", text)
    text = _LIGATURE.sub(lambda match: _LIGATURES[match.group()], text)
    return unicodedata.normalize("NFC", normalise(text))


def clean_line(text: str) -> str:
    """The same on one line, white space runs as one blank."""
    return " ".join(clean(text).split())


def cell(text: str) -> str:
    """The text of a table cell: one line, and no separator inside it."""
    return clean_line(text).replace(" | ", " / ")


class Archive:
    """The parts of a zip container (OOXML, ODF), read one by one within limits; nothing is written to disk."""

    def __init__(self, data: bytes, *, kind: str) -> None:
        """Raises ParseError for what is no zip, or one that unpacks to too much."""
        self._kind = kind
        if data[:8] == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":
            if "EncryptedPackage".encode("utf-16-le") in data:
                raise ParseError("encrypted, needs a password")
            raise ParseError(f"an old binary Office file, not {kind}: save it in the present format")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            infos = self._zip.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise ParseError(f"damaged: not a readable {kind} container") from error
        if len(infos) > 20_000:
            raise ParseError(f"refused: {len(infos)} parts in one {kind} container")
        total = 0
        for info in infos:
            total += info.file_size
            if info.file_size > MAX_PLAIN and info.file_size > MAX_RATIO * max(1, info.compress_size):
                raise ParseError(f"refused: part {info.filename!r} unpacks to {info.file_size} bytes")
        if total > MAX_UNPACKED:
            raise ParseError(f"refused: the {kind} container unpacks to {total} bytes")
        self.names: frozenset[str] = frozenset(info.filename for info in infos)

    def size(self, name: str) -> int:
        """Unpacked, as the container says."""
        return self._zip.getinfo(name).file_size

    def read(self, name: str) -> bytes | None:
        """A part's bytes, or None when there is no such part."""
        if name not in self.names:
            return None
        info = self._zip.getinfo(name)
        if info.flag_bits & 1:
            raise ParseError("encrypted, needs a password")
        try:
            with self._zip.open(info) as stream:
                data = stream.read(info.file_size + 1)
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
            raise ParseError(f"damaged: part {name!r} cannot be unpacked") from error
        except Exception as error:  # zlib.error and its like have no common base
            raise ParseError(f"damaged: part {name!r} cannot be unpacked") from error
        if len(data) > info.file_size:
            raise ParseError(f"refused: part {name!r} is bigger than it says")
        return data

    def xml(self, name: str) -> ElementTree.Element | None:
        """A part as an XML tree, or None when there is no such part."""
        data = self.read(name)
        return None if data is None else parse_xml(data, name=name)


def parse_xml(data: bytes, *, name: str) -> ElementTree.Element:
    """An XML tree, its tags without namespaces. Document types are refused (no entities, no links), and nesting.

    Raises ParseError.
    """
    head = data[:4]
    plain = data
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in head:
        plain = data.replace(b"\x00", b"")
    if b"<!DOCTYPE" in plain or b"<!ENTITY" in plain:
        raise ParseError(f"refused: part {name!r} declares a document type or entities")
    builder = _Bounded()
    try:
        parser = ElementTree.XMLParser(target=builder)
        parser.feed(data)
        parser.close()
    except ElementTree.ParseError as error:
        raise ParseError(f"damaged: part {name!r} is not well-formed XML ({error})") from error
    return builder.close()


class _Bounded(ElementTree.TreeBuilder):
    """Builds a tree, but not a deep one."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ElementTree.Element:  # type: ignore[override]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ParseError("refused: XML nested too deeply")
        return super().start(tag[tag.rfind("}") + 1 :], attrs)

    def end(self, tag: str, /) -> ElementTree.Element:
        self._depth -= 1
        return super().end(tag)


def relations(archive: Archive, part: str) -> dict[str, tuple[str, str]]:
    """Relations of an OOXML part that stay inside the container: id -> (kind, part name)."""
    folder, _, file = part.rpartition("/")
    root = archive.xml(f"{folder}/_rels/{file}.rels" if folder else f"_rels/{file}.rels")
    found: dict[str, tuple[str, str]] = {}
    for relation in root if root is not None else ():
        if relation.get("TargetMode") == "External":
            continue
        target = relation.get("Target", "")
        pieces: list[str] = [] if target.startswith("/") else folder.split("/") if folder else []
        for piece in target.split("/"):
            if piece == "..":
                pieces = pieces[:-1]
            elif piece not in ("", "."):
                pieces.append(piece)
        kind = relation.get("Type", "").rsplit("/", 1)[-1]
        found[relation.get("Id", "")] = (kind, "/".join(pieces))
    return found


def main_part(archive: Archive, *, default: str) -> str:
    """The part that an OOXML container names as its main one."""
    for kind, target in relations(archive, "").values():
        if kind == "officeDocument" and target in archive.names:
            return target
    return default


_CORE = {
    "title": "title",
    "creator": "author",
    "subject": "subject",
    "keywords": "keywords",
    "modified": "modified",
    "created": "created",
    "category": "category",
    "contentStatus": "document_status",
    "language": "language",
}


def core_properties(archive: Archive) -> dict[str, str]:
    """What docProps/core.xml says: title, author, modified, …"""
    try:
        root = archive.xml("docProps/core.xml")
    except ParseError:
        return {}
    found: dict[str, str] = {}
    for item in root if root is not None else ():
        key = _CORE.get(item.tag.rsplit("}", 1)[-1])
        value = clean_line(item.text or "")
        if key and value:
            found[key] = value[:500]
    return found

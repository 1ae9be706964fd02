"""Which format a file has: by its first bytes, then its name, then (when a manifest lists it) its content."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Format = Literal[
    "markdown",
    "rst",
    "html",
    "text",
    "pdf",
    "docx",
    "pptx",
    "spreadsheet",
    "csv",
    "odt",
    "mail",
    "json",
    "jsonl",
    "zip",
]

_BY_EXTENSION: dict[str, Format] = {
    "md": "markdown",
    "markdown": "markdown",
    "mdown": "markdown",
    "mkd": "markdown",
    "mdx": "markdown",
    "rst": "rst",
    "rest": "rst",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "txt": "text",
    "text": "text",
    "csv": "csv",
    "tsv": "csv",
    "tab": "csv",
    "json": "json",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "eml": "mail",
}
_PROSE: frozenset[Format] = frozenset(["markdown", "rst", "html", "text"])
_BINARY = frozenset(
    ["pdf", "docx", "docm", "dotx", "doc", "xlsx", "xlsm", "xlsb", "xls", "ods", "pptx", "pptm", "ppsx", "ppt", "odt"]
)
"""Extensions of files that begin with bytes we know; what does not is read by its content, if it is text at all."""
_STRUCTURED = frozenset(
    [
        "xml",
        "yaml",
        "yml",
        "toml",
        "ini",
        "sql",
        "py",
        "js",
        "ts",
        "css",
        "svg",
        "mbox",
        "ics",
        "odp",
        "rtf",
        "epub",
        "tex",
        "adoc",
    ]
)
"""Extensions whose content would be misread as prose."""
_NAMES = frozenset(
    [
        "readme",
        "license",
        "licence",
        "notice",
        "copying",
        "authors",
        "changelog",
        "changes",
        "history",
        "contributing",
        "security",
    ]
)
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"{\\rtf", "RTF"),
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"II*\x00", "TIFF image"),
    (b"MM\x00*", "TIFF image"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ", "xz archive"),
    (b"7z\xbc\xaf", "7-Zip archive"),
    (b"Rar!", "RAR archive"),
    (b"\x7fELF", "program"),
    (b"SQLite format 3", "SQLite database"),
    (b"%!PS", "PostScript"),
    (b"OggS", "audio or video"),
    (b"ID3", "audio"),
    (b"RIFF", "audio or video"),
    (b"wOFF", "font"),
    (b"wOF2", "font"),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A format we read, or None and the name of one we don't."""

    name: str
    format: Format | None = None
    unlike: str | None = None
    """What the file's extension says that its bytes don't."""


def format_of(path: str, data: bytes, *, listed: bool) -> Kind:
    """The first bytes decide over the name; an unknown name is read by content when a manifest lists the file."""
    if (found := _by_first_bytes(data)) is not None:
        return found
    pure = PurePosixPath(path)
    extension = pure.suffix[1:].lower()
    if extension in _BY_EXTENSION:
        known = _BY_EXTENSION[extension]
        if known == "text" and _is_mail(data):
            known = "mail"
        return Kind(name=_NAMES_OF.get(known, known), format=known)
    if extension in _BINARY:
        known = _by_content(pure.name, data)
        return Kind(name=known, format=known, unlike=extension.upper())
    if extension in _STRUCTURED:
        return Kind(name=extension.upper())
    if listed:
        known = _by_content(pure.name, data)
        return Kind(name=known, format=known)
    if not extension or (pure.stem.lower() in _NAMES and re.fullmatch(r"[\w-]+", extension) is None):
        known = _by_content(pure.name, data)
        return Kind(name=known, format=known)
    return Kind(name=f".{extension} files")


_NAMES_OF: dict[Format, str] = {"csv": "CSV", "json": "JSON", "jsonl": "JSON Lines", "mail": "e-mail"}


def _by_first_bytes(data: bytes) -> Kind | None:
    head = data[:1024]
    if b"%PDF-" in head and not head.lstrip()[:1].isalpha() and _pdf_first(head):
        return Kind(name="PDF", format="pdf")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_kind(data)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _ole_kind(data)
    name = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
    return Kind(name=name) if name else None


def _zip_kind(data: bytes) -> Kind:
    """By the parts, or in a damaged container by what its first and last bytes name."""
    kind = ""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = set(archive.namelist()[:20_000])
            if "mimetype" in names and archive.getinfo("mimetype").file_size < 200:
                kind = archive.read("mimetype").decode("ascii", "replace").removeprefix("application/")
    except Exception:  # damaged: the reader of the format says so
        sample = data[: 1 << 16] + data[-(1 << 16) :]
        names = {
            name
            for name in ("[Content_Types].xml", "_rels/.rels", "word/", "xl/", "ppt/", "content.xml")
            if name.encode() in sample
        }
        match = re.match(rb"PK\x03\x04.{26}mimetype.{0,64}?application/([\w.+-]+)", data[:256], re.DOTALL)
        kind = match[1].decode("ascii") if match else ""
    if "[Content_Types].xml" in names or "_rels/.rels" in names:
        if any(name.startswith("word/") for name in names):
            return Kind(name="DOCX", format="docx")
        if any(name.startswith("xl/") for name in names):
            return Kind(name="XLSX", format="spreadsheet")
        if any(name.startswith("ppt/") for name in names):
            return Kind(name="PPTX", format="pptx")
    if kind.startswith("vnd.oasis.opendocument.text"):
        return Kind(name="ODT", format="odt")
    if kind.startswith("vnd.oasis.opendocument.spreadsheet"):
        return Kind(name="ODS", format="spreadsheet")
    if kind.startswith("vnd.oasis"):
        return Kind(name="OpenDocument")
    if "META-INF/container.xml" in names or kind == "epub+zip":
        return Kind(name="EPUB")
    if not kind and "content.xml" in names:
        return Kind(name="ODT", format="odt")
    return Kind(name="ZIP archive", format="zip")


def _ole_kind(data: bytes) -> Kind:
    """Old Office files, and new ones behind a password."""
    if "EncryptedPackage".encode("utf-16-le") in data:
        return Kind(name="Office", format="docx")  # whose reader says that it is encrypted
    for entry, kind in (
        ("Workbook", Kind(name="XLS", format="spreadsheet")),
        ("WordDocument", Kind(name="DOC (old Word); save it as DOCX")),
        ("PowerPoint Document", Kind(name="PPT (old PowerPoint); save it as PPTX")),
        ("__properties_version1.0", Kind(name="MSG (Outlook); save it as EML")),
        ("Book", Kind(name="XLS", format="spreadsheet")),
    ):
        if entry.encode("utf-16-le") + b"\x00\x00" in data:
            return kind
    return Kind(name="DOC, XLS or PPT (old Office)")


_MAIL_HEADER = re.compile(
    rb"(?:Return-Path|Received|Delivered-To|Message-ID|MIME-Version|From|To|Cc|Date|Subject|Reply-To|DKIM-Signature|"
    rb"Content-Type|Content-Transfer-Encoding|X-[\w-]+|Authentication-Results|ARC-[\w-]+):[ \t]",
    re.I,
)


def _is_mail(data: bytes) -> bool:
    """True when a text begins with the headers of a message, among them one that only programs write."""
    head = data[:8192].removeprefix(b"\xef\xbb\xbf")
    lines = re.split(rb"\r?\n", head.split(b"\n\n", 1)[0].split(b"\r\n\r\n", 1)[0])
    starts = [line for line in lines if line and line[:1] not in b" \t"]
    known = [line for line in starts if _MAIL_HEADER.match(line)]
    program = any(re.match(rb"(?:Return-Path|Received|Message-ID|MIME-Version):", line, re.I) for line in known)
    return program and len(known) >= 3 and len(known) == len(starts[: len(known)]) and lines[:1] != [b""]


def _pdf_first(head: bytes) -> bool:
    """True when nothing that reads as text stands before the PDF's own mark."""
    before = head[: head.index(b"%PDF-")]
    return not re.search(rb"[A-Za-z]{3}", before)


def _by_content(name: str, data: bytes) -> Format:
    """Markup that shows in the first 64 kB; a known extension inside the name ('x.html.md.erb') goes first."""
    for inner in reversed(name.lower().split(".")[1:]):
        if _BY_EXTENSION.get(inner) in _PROSE:
            return _BY_EXTENSION[inner]
    text = data[: 1 << 16].decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if (
        re.match(r"<!doctype html|<html\b|<head\b|<body\b", text, re.I)
        or len(re.findall(r"</(?:p|div|td|li|h\d)>", text)) > 3
    ):
        return "html"
    rst = len(re.findall(r"^\.\. [\w-]+::|^:\w[\w ]*:|:\w+:`[^`]+`|``[^`]+``|`[^`]+`_", text, re.MULTILINE))
    markdown = len(
        re.findall(r"^#{1,6} \S|^```|^[-*+] \S|\]\([^)\s]+\)|\*\*[^*\n]+\*\*|^> \S|^\|.+\|\s*$", text, re.MULTILINE)
    )
    if text.startswith("---\n") and re.search(r"\n---\s*\n", text):
        markdown += 3
    if markdown >= 2 and markdown >= rst:
        return "markdown"
    return "rst" if rst >= 2 else "text"

"""Which format a file has: by its first bytes, then its name, then (when a manifest lists it) its content."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Format = Literal["markdown", "rst", "html", "text"]

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
}
_STRUCTURED = frozenset(
    [
        "csv",
        "tsv",
        "json",
        "jsonl",
        "ndjson",
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
        "eml",
        "mbox",
        "ics",
        "pdf",
        "docx",
        "doc",
        "xlsx",
        "xls",
        "pptx",
        "ppt",
        "odt",
        "ods",
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
    (b"\xd0\xcf\x11\xe0", "DOC, XLS or PPT (old Office)"),
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


def format_of(path: str, data: bytes, *, listed: bool) -> Kind:
    """The first bytes decide over the name; an unknown name is read by content when a manifest lists the file."""
    if name := _binary_format(data):
        return Kind(name=name)
    pure = PurePosixPath(path)
    extension = pure.suffix[1:].lower()
    if extension in _BY_EXTENSION:
        known = _BY_EXTENSION[extension]
        return Kind(name=known, format=known)
    if extension in _STRUCTURED:
        return Kind(name=extension.upper())
    if listed:
        known = _by_content(pure.name, data)
        return Kind(name=known, format=known)
    if not extension or (pure.stem.lower() in _NAMES and re.fullmatch(r"[\w-]+", extension) is None):
        known = _by_content(pure.name, data)
        return Kind(name=known, format=known)
    return Kind(name=f".{extension} files")


def _binary_format(data: bytes) -> str | None:
    head = data[:1024]
    if b"%PDF-" in head and not head.lstrip()[:1].isalpha() and _pdf_first(head):
        return "PDF"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        sample = data[: 1 << 16] + data[-(1 << 16) :]
        for inside, name in (
            (b"word/", "DOCX"),
            (b"xl/", "XLSX"),
            (b"ppt/", "PPTX"),
            (b"META-INF/container.xml", "EPUB"),
        ):
            if inside in sample:
                return name
        return "OpenDocument" if b"mimetypeapplication/vnd.oasis" in head else "ZIP archive"
    return next((name for magic, name in _MAGIC if head.startswith(magic)), None)


def _pdf_first(head: bytes) -> bool:
    """True when nothing that reads as text stands before the PDF's own mark."""
    before = head[: head.index(b"%PDF-")]
    return not re.search(rb"[A-Za-z]{3}", before)


def _by_content(name: str, data: bytes) -> Format:
    """Markup that shows in the first 64 kB; a known extension inside the name ('x.html.md.erb') goes first."""
    for inner in reversed(name.lower().split(".")[1:]):
        if inner in _BY_EXTENSION:
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

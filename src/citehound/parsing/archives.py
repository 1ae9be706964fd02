"""ZIP archives: a list of what is in them, and the files themselves, within limits; reads none of these files."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

from ..documents import Attachment
from ..errors import ParseError
from .blocks import Block
from .extract import Archive, Extract, clean_line

MAX_MEMBERS = 2_000
MAX_MEMBER = 50_000_000
"""Bytes; a bigger file is left out and reported."""


def parse_zip(data: bytes) -> Extract:
    """The list of an archive's files as text, and the files as attachments named by their paths. Raises ParseError."""
    archive = Archive(data, kind="ZIP")
    warnings: list[str] = []
    found: dict[str, Attachment] = {}
    left = 0
    for name in sorted(archive.names):
        if name.endswith("/"):
            continue
        path = _safe(name)
        if path is None:
            warnings.append(f"refused: member {clean_line(name)[:100]!r} leaves the archive's folder")
            continue
        if any(
            part.startswith(".") or part in ("__MACOSX", "Thumbs.db", "desktop.ini")
            for part in PurePosixPath(path).parts
        ):
            continue
        if len(found) >= MAX_MEMBERS:
            left += 1
            continue
        if archive.size(name) > MAX_MEMBER:
            warnings.append(f"member {path!r} left out: larger than {MAX_MEMBER // 1_000_000} MB")
            continue
        try:
            content = archive.read(name)
        except ParseError as error:
            warnings.append(f"member {path!r} left out: {error}")
            continue
        if path in found:
            warnings.append(f"member {path!r} is there twice; the first one counts")
        elif content is not None:
            found[path] = Attachment(name=path, data=content)
    if left:
        warnings.append(f"{left} members left out: more than {MAX_MEMBERS}")
    if not found:
        reason = f": {warnings[0]}" if warnings else ""
        raise ParseError(f"no file in the archive can be read{reason}")
    lines = "\n".join(f"- {path}" for path in found)
    blocks = [Block(text="Files in this archive:", kind="paragraph"), Block(text=lines, kind="item")]
    return Extract(blocks=blocks, warnings=tuple(warnings), attachments=tuple(found.values()))


def _safe(name: str) -> str | None:
    """A member's path, POSIX and NFC; None for one that is absolute, climbs, or has control characters."""
    path = unicodedata.normalize("NFC", name.replace("\\", "/"))
    parts = path.split("/")
    if path.startswith("/") or ":" in parts[0] or any(part in ("", ".", "..") for part in parts):
        return None
    if len(path) > 500 or any(unicodedata.category(c) in ("Cc", "Cs") for c in path):
        return None
    return path

"""Plain text: paragraphs by blank lines, headings only where a line says so of itself; no markup is known here."""

from __future__ import annotations

import re

from .blocks import Block, Parsed
from .sections import is_legal_heading, label

_DOTTED_LINE = re.compile(r"\s{0,12}\d{1,3}(?:\.\d{1,3}){1,5}[.)]?\s+\S")
_ITEM = re.compile(r"\s*(?:[-*•◦▪‣–·]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)])\s+\S")
_CAPITALS = re.compile(r"\s*(?:\d{1,3}[.)]?\s+)?[^a-z\n]{4,80}$")
_RULE = re.compile(r"\s*[=\-_*~#]{4,}\s*$")
_UNDERLINE = re.compile(r"([=\-~^*#+])\1{2,}\s*$")


def parse_text(text: str) -> Parsed:
    """Blocks of a plain text."""
    blocks: list[Block] = []
    text = text.strip("\n")
    if title := _title(text):
        blocks.append(Block(text=title, kind="heading", level=1))
        text = text.lstrip()[len(title) :]
    for paragraph in re.split(r"\n[ \t]*(?:\n[ \t]*)+", text):
        lines = paragraph.split("\n")
        pending: list[str] = []
        first = True

        def flush() -> None:
            nonlocal first, pending
            if any(line.strip() for line in pending):
                body = "\n".join(line.rstrip() for line in pending).strip("\n")
                kind = "item" if _ITEM.match(body) and not _DOTTED_LINE.match(body) else "paragraph"
                blocks.append(Block(text=body, kind=kind, tight=not first))
                first = False
            pending = []

        for index, line in enumerate(lines):
            if blocks and blocks[-1].kind == "heading" and not pending and _RULE.match(line):
                continue
            following = lines[index + 1] if index + 1 < len(lines) else None
            level = _heading_level(line, alone=len(lines) == 1, following=following)
            if level:
                flush()
                blocks.append(Block(text=line.strip(), kind="heading", level=level, tight=not first))
                first = False
                continue
            if _DOTTED_LINE.match(line) or _ITEM.match(line):
                flush()
            pending.append(line)
        flush()
    return Parsed(blocks=blocks)


def _title(text: str) -> str | None:
    """The first line, where it stands alone and reads as a title, or where an article follows."""
    first, _, rest = text.lstrip().partition("\n")
    first = first.rstrip()
    apart = rest[:1] == "\n" or (rest and rest.split("\n", 1)[0].strip() == "")
    if not rest.strip() or not (apart or re.match(r"\s*第\S{1,4}[条條章]", rest)) or is_legal_heading(first):
        return None
    good = len(first) <= 80 and first[:1].isalpha() and not first[0].islower() and first[-1] not in ".,;:!?。；，："
    return first if good and not _DOTTED_LINE.match(first) else None


def _heading_level(line: str, *, alone: bool, following: str | None) -> int:
    """1 and up for a line that is a heading, 0 for one that is not."""
    stripped = line.strip()
    if not stripped or len(stripped) > 100 or _RULE.match(stripped):
        return 0
    if is_legal_heading(stripped):
        return label(stripped).rank
    if (
        following is not None
        and _UNDERLINE.match(following.strip())
        and abs(len(following.strip()) - len(stripped)) <= 3
    ):
        return 1 if following.strip()[0] in "=#*" else 2
    letters = [c for c in stripped if c.isalpha()]
    cased = [c for c in letters if c.lower() != c.upper()]
    if (
        alone
        and len(cased) >= 4
        and all(c.isupper() for c in cased)
        and _CAPITALS.match(stripped)
        and "|" not in stripped
    ):
        return 3 if stripped[0].isdigit() else 2
    return 0

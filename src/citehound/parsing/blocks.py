"""What every format is read into: a run of text blocks, and how they become one text; it finds no sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["heading", "paragraph", "item", "table", "code", "quote"]


@dataclass(frozen=True, kw_only=True)
class Block:
    """A heading, paragraph, list item, table … as plain text."""

    text: str
    kind: BlockKind = "paragraph"
    level: int = 0
    """Of a heading, 1 is the highest."""
    tight: bool = False
    """True when only a line break stands between this block and the one before."""


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What a format module hands back."""

    blocks: Sequence[Block]
    title: str | None = None
    """A title that is not a heading, as `<title>` in HTML."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A block and where it stands in the text."""

    block: Block
    start: int
    end: int


_INVISIBLE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u180e\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]+"
)
"""Controls, soft hyphens, zero-width and direction marks that embed or override, tags."""
_ODD = re.compile(_INVISIBLE.pattern[:-2] + "\u200c\u200d\u2028\u2029\ud800-\udfff]")
"""All that `normalise` changes."""
_JOINER = re.compile("(?<![\u0600-\u109f\u1780-\u18af\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])[\u200c\u200d]")
_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?|(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]|\x1b[ -~]?"
)
"""Terminal control sequences, as a whole."""
_SECRET = re.compile("[\U000e0000-\U000e007f\u202a-\u202e\u2066-\u2069\u200b\u2060-\u2064]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def normalise(text: str) -> str:
    """Line ends become LF, a form feed inside a line a blank; NUL, controls, soft hyphens and zero-width marks go.

    Joiners stay where scripts and emoji need them; embedding and override marks go, plain direction marks stay.
    """
    if _ODD.search(text) is None:
        return text
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPE.sub("", text)
    text = re.sub(r"\r\n?|[\v\u2028\u2029\x85]", "\n", text)
    if "\f" in text:
        text = re.sub(r"\f+(?=\n|\Z)|(?<=\n)\f+|\A\f+", "", text).replace("\f", " ")
    text = _INVISIBLE.sub("", text)
    if "\u200c" in text or "\u200d" in text:
        text = _JOINER.sub("", text)
    return _SURROGATE.sub("\ufffd", text)


def count_invisible(text: str) -> int:
    """How many characters of a raw text could hide or reorder words: tags, overrides, zero-width blanks."""
    return 0 if text.isascii() else len(_SECRET.findall(text))


def fold(text: str) -> str:
    """White space runs as one blank, ends stripped."""
    return re.sub(r"\s+", " ", text).strip()


def join(blocks: Sequence[Block]) -> tuple[str, list[Placed]]:
    """One text of all blocks that are not blank, and where each of them stands."""
    parts: list[str] = []
    placed: list[Placed] = []
    at = 0
    for block in blocks:
        text = block.text.strip("\n").rstrip()
        if not text.strip():
            continue
        if parts:
            gap = "\n" if block.tight else "\n\n"
            parts.append(gap)
            at += len(gap)
        placed.append(Placed(block=block, start=at, end=at + len(text)))
        parts.append(text)
        at += len(text)
    return "".join(parts), placed

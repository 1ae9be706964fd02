"""Cuts a document into searchable chunks that never cross a section; it neither parses nor indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .documents import Chunk, Document, Section

TARGET_WORDS = 180
MAX_WORDS = 250
_MAX_CONTEXT = 400
_WIDE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]+")
_SENTENCE = re.compile(r"[.!?…][\"”’»)\]]*[ \t]+(?=[^a-z\s])|[。！？；][」』”’）]*|[؟۔।]\s*|;[ \t]+|\n")
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_ROW_FORMATS = frozenset(["CSV", "XLSX", "XLS", "ODS", "JSON Lines"])
_LONGEST_WORD = 20
"""Characters; a longer run without a blank counts as more than one word."""


def chunk(document: Document) -> tuple[Chunk, ...]:
    """Chunks in order of start. Each `text == document.text[start:end]`; every character that is not blank is in one.

    A section of up to `MAX_WORDS` words, without its sub-sections, is one chunk. Longer ones are cut at paragraphs,
    then lines, then sentences, then words. Pieces of a long table carry its header in `context`.
    In a workbook, a CSV file or a list of records each row or record is a chunk.
    """
    chunks: list[Chunk] = []
    rows = document.stated_format in _ROW_FORMATS
    by_id = {section.id: section for section in document.sections}
    for section, start, end in _own_text(document):
        context = _context(document, section, by_id)
        for piece_start, piece_end, header in (
            _row_pieces(document.text, start, end) if rows else _pieces(document.text, start, end)
        ):
            chunks.append(
                Chunk(
                    document=document.id,
                    ordinal=len(chunks),
                    section=section.id if section else None,
                    start=piece_start,
                    end=piece_end,
                    text=document.text[piece_start:piece_end],
                    context=f"{context}\n{header}" if header else context,
                )
            )
    return tuple(chunks)


def count_words(text: str) -> int:
    """Words as sizes are counted: a character of a script without blanks is half a word, an endless run is many."""
    wide, words = 0, 0
    for match in _WORD.finditer(text):
        length = match.end() - match.start()
        if length == 1 and ord(text[match.start()]) > 0xE00:
            wide += 1
        else:
            words += 1 + length // _LONGEST_WORD
    return words + (wide + 1) // 2


def _own_text(document: Document) -> Iterator[tuple[Section | None, int, int]]:
    """The text cut at every section's start: each piece with its innermost section. Headings without text go along."""
    starts = [section.start for section in document.sections]
    if not starts or starts[0] > 0:
        yield None, 0, starts[0] if starts else len(document.text)
    for index, section in enumerate(document.sections):
        following = starts[index + 1] if index + 1 < len(starts) else len(document.text)
        yield section, section.start, following


def _context(document: Document, section: Section | None, by_id: dict[str, Section]) -> str:
    path: list[str] = []
    at = section
    while at is not None and len(path) < 10:
        name = at.title
        if at.number and not name.startswith(at.number) and at.number not in name.split():
            name = f"{at.number} {name}"
        path.append(name)
        at = by_id.get(at.parent) if at.parent else None
    path.reverse()
    if not path or not path[0].startswith(document.title):
        path.insert(0, document.title)
    text = " > ".join(path)
    return text if len(text) <= _MAX_CONTEXT else text[: _MAX_CONTEXT - 1] + "…"


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _row_pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Each block by itself, which is a row with its header; what is short and above it (the sheet's name) goes along.

    Pieces of a long record have its first line, which mostly names it, where the others have a table's header.
    """
    open_start = start
    for at, to in _split(_BLANK_LINE, text, start, end):
        if "\n" not in text[at:to].strip() and " | " not in text[at:to] and count_words(text[open_start:to]) < 40:
            continue
        first, _, more = text[at:to].strip().partition("\n")
        name = first[:200] if more and " | " not in first else ""
        for number, (begin, end_of, header) in enumerate(_pieces(text, open_start, to)):
            yield begin, end_of, header or (name if number else "")
        open_start = to
    yield from _pieces(text, open_start, end)


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Spans of at most `MAX_WORDS` words, each with the header of the table it continues, or ''."""
    start, end = _strip(text, start, end)
    if start >= end:
        return
    if count_words(text[start:end]) <= MAX_WORDS:
        yield start, end, ""
        return
    open_start, open_end, size, header = start, start, 0, ""
    for at, to, head in _atoms(text, start, end):
        words = count_words(text[at:to])
        new_table = bool(head) and head != header and size > 0 and size + words > TARGET_WORDS
        if size and (size + words > MAX_WORDS or (size >= TARGET_WORDS and _is_break(text, at)) or new_table):
            yield from _out(text, open_start, open_end, header)
            open_start, size, header = at, 0, head
        if not size:
            open_start, header = at, head
        open_end = to
        size += words
    yield from _out(text, open_start, open_end, header)


def _out(text: str, start: int, end: int, header: str) -> Iterator[tuple[int, int, str]]:
    start, end = _strip(text, start, end)
    if start < end:
        yield start, end, header


def _is_break(text: str, at: int) -> bool:
    """True when a paragraph begins here."""
    return text[max(0, at - 2) : at].count("\n") == 2 or at == 0


def _atoms(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """The smallest pieces to keep whole: paragraphs, rows, sentences, and words where nothing else cuts."""
    for at, to in _split(_BLANK_LINE, text, start, end):
        lines = list(_split(re.compile(r"\n"), text, at, to))
        rows = [text[a:b].rstrip() for a, b in lines]
        if (
            len(rows) > 1
            and all(" | " in row for row in rows[:2])
            and sum(" | " in r for r in rows) * 5 >= len(rows) * 4
        ):
            header = _header(rows)
            headed = len(header)
            for index, (a, b) in enumerate(lines):
                yield from _sized(text, a, b, "" if index < headed else "\n".join(header))
        elif count_words(text[at:to]) <= TARGET_WORDS:
            yield at, to, ""
        else:
            for a, b in _split(_SENTENCE, text, at, to):
                yield from _sized(text, a, b, "")


def _header(rows: list[str]) -> list[str]:
    """The first row, and the second where its first cell repeats the first row's (a header of two rows)."""
    if len(rows) > 2 and rows[0].split(" | ")[0] == rows[1].split(" | ")[0] and rows[0] != rows[1]:
        return rows[:2]
    return rows[:1] if len(rows[0]) <= 600 else []


def _split(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Consecutive spans that together are the whole, cut after each match."""
    at = start
    for match in pattern.finditer(text, start, end):
        if match.end() > at:
            yield at, match.end()
            at = match.end()
    if at < end:
        yield at, end


def _sized(text: str, start: int, end: int, header: str) -> Iterator[tuple[int, int, str]]:
    """One span, or several of at most `TARGET_WORDS` words where it is longer than that."""
    if count_words(text[start:end]) <= TARGET_WORDS:
        yield start, end, header
        return
    at, last, size = start, start, 0.0
    for match in _WORD.finditer(text, start, end):
        wide = match.end() - match.start() == 1 and ord(text[match.start()]) > 0xE00
        for cut in range(match.start(), match.end(), _LONGEST_WORD):
            if size + 1 > TARGET_WORDS and last > at:
                yield at, last, header
                at, size = last, 0.0
            last = min(match.end(), cut + _LONGEST_WORD)
            size += 0.5 if wide else 1
    if at < end:
        yield at, end, header

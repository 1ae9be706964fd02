"""Where a quote stands in a text: folding, matching, sentences and clipped words; knows nothing of runs or verdicts.

Offsets are code points into the text as given, half-open. Matching is verbatim after exactly these foldings: white
space, Unicode form, soft hyphens, zero-width characters, typographic quotes and dashes, table separators. Case counts.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .documents import Document
from .wording import CONDITIONS, guess_languages

MIN_WORDS = 4
MIN_CHARACTERS = 8
"""Of a script that is written without spaces."""

SOFT_HYPHEN = "\u00ad"
ZERO_WIDTH = frozenset("\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")
_SINGLE = "\u2018\u2019\u201a\u201b\u2039\u203a\u02bc"
_DOUBLE = "\u201c\u201d\u201e\u201f\u00ab\u00bb\u300c\u300d\u300e\u300f\u301d\u301e\u301f"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2e3a\u2e3b\u058a"
_MARKS = {**dict.fromkeys(_SINGLE, "'"), **dict.fromkeys(_DOUBLE, '"'), **dict.fromkeys(_DASHES, "-")}
_FORMS = ("<wide>", "<narrow>", "<font>", "<noBreak>", "<isolated>", "<initial>", "<medial>", "<final>")
_ELLIPSIS = re.compile(r"\s*(?:\[(?:…|\.{3})\]|…|\.{3,})\s*")
_NO_SPACES = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3040, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),
)


@dataclass(frozen=True, kw_only=True)
class Folded:
    """A folded text; folded character `i` came from `[starts[i], ends[i])` of the original."""

    text: str
    starts: array[int]
    ends: array[int]

    def span(self, start: int, end: int) -> Span:
        """The original code points behind the folded `[start, end)`."""
        return Span(start=self.starts[start], end=self.ends[end - 1])


@dataclass(frozen=True, kw_only=True)
class Span:
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """One place where a quote stands: a span per fragment, in order."""

    spans: tuple[Span, ...]

    @property
    def start(self) -> int:
        return self.spans[0].start

    @property
    def end(self) -> int:
        return self.spans[-1].end


@lru_cache(maxsize=4096)
def _form(character: str) -> str:
    """One character in its plain form. Superscripts, fractions and enclosed digits stay: `10²` is not `102`."""
    decomposition = unicodedata.decomposition(character)
    if decomposition.startswith("<"):
        plain = unicodedata.normalize("NFKC", character)
        compat = decomposition.startswith("<compat>") and not any(c.isdigit() or c.isspace() for c in plain)
        if decomposition.startswith(_FORMS) or compat:
            return "".join(_MARKS.get(c, c) for c in plain)
        return _MARKS.get(character, character)
    return _MARKS.get(character, character)


@lru_cache(maxsize=4096)
def _continues(character: str) -> bool:
    """True when `character` may compose with the one before it."""
    if "\u1160" <= character <= "\u11ff":
        return True
    first = _form(character)[:1]
    return unicodedata.category(character).startswith("M") or bool(first and unicodedata.combining(first))


_PLAIN = re.compile(r"[!-{}~]+(?: [!-{}~]+)*(?![^\x00-\x7f])")
"""A run that folds to itself: single spaces, no table's `|`, and nothing behind it that may compose with its end."""


def _is_space(character: str) -> bool:
    return character.isspace() or character in "\u2028\u2029"


def _is_separator(text: str, at: int) -> bool:
    """True for a table's `|`: alone, with white space or an end of the text on at least one side."""
    before = text[at - 1] if at else " "
    after = text[at + 1] if at + 1 < len(text) else " "
    return before != "|" and after != "|" and (_is_space(before) or _is_space(after))


def fold(text: str) -> Folded:
    """The text as quotes are compared, with the way back. White space at both ends is dropped."""
    out: list[str] = []
    starts, ends = array("I"), array("I")
    at, size = 0, len(text)
    offsets = array("I", range(size + 1))
    pending: int | None = None  # where a run of white space began
    while at < size:
        character = text[at]
        if _is_space(character) or (character == "|" and _is_separator(text, at)):
            pending = at if pending is None else pending
            at += 1
            continue
        if character in ZERO_WIDTH:
            at += 1
            continue
        if character == SOFT_HYPHEN:
            at += 1
            rest = at
            while rest < size and _is_space(text[rest]):
                rest += 1
            if text.count("\n", at, rest) == 1:  # a word broken at the end of a line
                at = rest
            continue
        if pending is not None:
            if out:
                out.append(" ")
                starts.append(pending)
                ends.append(at)
            pending = None
        if (plain := _PLAIN.match(text, at)) is not None:
            out.append(plain.group())
            starts.extend(offsets[at : plain.end()])
            ends.extend(offsets[at + 1 : plain.end() + 1])
            at = plain.end()
            continue
        end = at + 1
        segment = _form(character)
        while end < size and (text[end] in ZERO_WIDTH or text[end] == SOFT_HYPHEN or _continues(text[end])):
            if text[end] in ZERO_WIDTH or text[end] == SOFT_HYPHEN:
                ahead = end + 1
                while ahead < size and (text[ahead] in ZERO_WIDTH or text[ahead] == SOFT_HYPHEN):
                    ahead += 1
                if ahead == size or not _continues(text[ahead]):
                    break
                end = ahead
            segment += _form(text[end])
            end += 1
        for c in unicodedata.normalize("NFC", segment):
            out.append(c)
            starts.append(at)
            ends.append(end)
        at = end
    return Folded(text="".join(out), starts=starts, ends=ends)


def without_spaces(character: str) -> bool:
    """True for a character of a script that is written without spaces between words."""
    code = ord(character)
    return code >= 0x0E00 and any(low <= code <= high for low, high in _NO_SPACES)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def _cuts(text: str, at: int) -> bool:
    """True when `at` lies inside a word or a number of the folded text."""
    if at <= 0 or at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if _is_word(before) and _is_word(after):
        return not (without_spaces(before) or without_spaces(after)) or (before.isdigit() and after.isdigit())
    if after.isdigit() and before in ".,'" and at > 1 and text[at - 2].isdigit():
        return True
    if before.isdigit() and after in ".,'" and at + 1 < len(text) and text[at + 1].isdigit():
        return True
    if after.isdigit() and before == "-" and (at == 1 or text[at - 2] in " ("):
        return True
    if " " in (before, after):  # 1 000 000
        left = re.search(r"(?:^|[^\d.,])\d{1,3}(?: \d{3})* ?$", text[max(0, at - 20) : at])
        right = re.match(r" ?\d{3}(?!\d)", text[at : at + 5])
        return bool(left and right and (before == " ") != (after == " "))
    return False


def _occurrences(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at != -1:
        if not _cuts(text, at) and not _cuts(text, at + len(part)):
            yield at
        at = text.find(part, at + 1)


def fragments(quote: str) -> tuple[str, ...]:
    """The folded parts of a quote that `…` joins."""
    parts = (fold(part).text for part in _ELLIPSIS.split(quote))
    return tuple(part for part in parts if part)


def unwrapped(quote: str) -> str | None:
    """A quote without the quotation marks around all of it, or None when it has none."""
    stripped = quote.strip()
    first, last = fold(stripped[:1]).text, fold(stripped[-1:]).text
    return stripped[1:-1] if len(stripped) > 2 and first == last and first in ("'", '"') else None


def words(text: str) -> int:
    return sum(1 for token in text.split() if any(c.isalnum() for c in token))


def is_long(text: str) -> bool:
    """True when a quote is long enough to be recognised as one wherever it stands."""
    return words(text) >= MIN_WORDS or sum(1 for c in text if without_spaces(c)) >= MIN_CHARACTERS


def line_at(text: str, span: Span) -> Span:
    """The line(s) that hold a span."""
    start = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.end)
    return Span(start=start, end=len(text) if end == -1 else end)


def is_whole(document: Document, span: Span) -> bool:
    """True when a span is a whole line, table cell or heading."""
    part = fold(document.text[span.start : span.end]).text
    line = line_at(document.text, span)
    whole = document.text[line.start : line.end]
    bare = re.sub(r"^\s*(?:[-*•·]|\(?\w{1,3}[.)]|[\d.]+)\s+", "", whole)
    pieces = [whole, bare, *re.split(r"(?:^|(?<=\s))\|(?=\s|$)", whole)]
    if any(fold(piece).text == part for piece in pieces):
        return True
    return any(
        line.start <= s.start <= span.start < s.end and fold(s.title).text in (part, f"{part}.")
        for s in document.sections
    )


def find_quote(document: Document, folded: Folded, quote: str, *, was_read: Callable[[Span], bool]) -> Place | None:
    """Where `quote` stands in `document` (whose folded text is `folded`): a place that was read if there is one.

    None when it stands nowhere. `…` joins fragments that follow one another inside the section where the first stands.
    """
    whole = fold(quote).text
    if not whole:
        return None
    unread: Place | None = None
    for at in _occurrences(folded.text, whole):
        place = Place(spans=(folded.span(at, at + len(whole)),))
        if was_read(place.spans[0]):
            return place
        unread = unread or place
    parts = fragments(quote)
    if unread is not None or not parts or parts == (whole,):
        return unread
    for at in _occurrences(folded.text, parts[0]):
        place = _joined(document, folded, parts, at, was_read)
        if place is not None and all(was_read(span) for span in place.spans):
            return place
        unread = unread or place
    return unread


def _joined(
    document: Document, folded: Folded, parts: tuple[str, ...], at: int, was_read: Callable[[Span], bool]
) -> Place | None:
    spans = [folded.span(at, at + len(parts[0]))]
    section = document.section_at(spans[0].start)
    limit = len(document.text) if section is None else section.end
    at += len(parts[0])
    for part in parts[1:]:
        chosen: int | None = None
        for found in _occurrences(folded.text, part):
            span = folded.span(found, found + len(part))
            if found < at:
                continue
            if span.end > limit:
                break
            if chosen is None or was_read(span):
                chosen = found
                if was_read(span):
                    break
        if chosen is None:
            return None
        spans.append(folded.span(chosen, chosen + len(part)))
        at = chosen + len(part)
    return Place(spans=tuple(spans))


_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Za-z]|e\.g|i\.e|z\.\s?B|d\.\s?h|p\.\s?ex|[Nn]o|[Nn]r|[Aa]rt|[Ss]ec|[Cc]l|[Pp]ara|[Mm]rs?|[Dd]r|[Pp]rof|[Ii]nc"
    r"|[Ll]td|[Cc]o|vs|cf|approx|[Ff]ig|[Vv]ol|ca|bzw|usw|etc|Sr|Sra|Dra|n[uú]m|p[aá]g|incl|max|min|[Aa]bs|St|U\.S|[A-Z]\.[A-Z])\.$"
)
_STOP = re.compile(r"[.!?]+[\"'”’»)\]]*(?=\s)|[。！？]+[」』”]*")
_ITEM = re.compile(r"\s*(?:[-*•·–]\s|\(?[a-z0-9ivx]{1,4}[.)]\s|\d+(?:\.\d+)+\s)")


def _breaks(document: Document, start: int, end: int) -> list[int]:
    """Offsets in `[start, end]` at which a sentence begins."""
    text = document.text
    found = {s.start for s in document.sections if start <= s.start <= end}
    headings = {text.find("\n", s.start) for s in document.sections if start <= s.start <= end}
    at = text.find("\n", start)
    while at != -1 and at < end:
        line_start = text.rfind("\n", 0, at) + 1
        following = text.find("\n", at + 1)
        line, rest = text[line_start:at], text[at + 1 : len(text) if following == -1 else following]
        if (
            not line.strip()
            or not rest.strip()
            or " | " in line
            or " | " in rest
            or _ITEM.match(rest)
            or (at in headings and any(_is_heading(document, line, s.start, line_start) for s in document.sections))
        ):
            found.add(at + 1)
        at = text.find("\n", at + 1)
    for stop in _STOP.finditer(text, start, end):
        after = text[stop.end() : stop.end() + 8].lstrip()[:1]
        if after and after.islower():
            continue
        if stop.group().startswith(".") and _ABBREVIATION.search(text[max(0, stop.start() - 12) : stop.start() + 1]):
            continue
        found.add(stop.end())
    return sorted(found)


def _is_heading(document: Document, line: str, section_start: int, line_start: int) -> bool:
    if section_start != line_start:
        return False
    section = next((s for s in document.sections if s.start == section_start), None)
    return section is not None and bool(section.title) and line.strip().rstrip(".").endswith(section.title.rstrip("."))


def sentence_at(document: Document, place: Place) -> Span:
    """The whole sentence(s) in which a place stands, white space at both ends left out."""
    text = document.text
    low, high = max(0, place.start - 4000), min(len(text), place.end + 4000)
    start, end = low, high
    for at in _breaks(document, low, high):
        if at <= place.start:
            start = at
        elif at >= place.end:
            end = at
            break
    while start < place.start and (_is_space(text[start])):
        start += 1
    while end > place.end and _is_space(text[end - 1]):
        end -= 1
    return Span(start=start, end=end)


def lead_in(document: Document, sentence: Span) -> str:
    """The line ending in a colon that a list item continues, or an empty string."""
    text = document.text
    if not _ITEM.match(text[sentence.start : sentence.start + 12]):
        return ""
    lines = text[max(0, sentence.start - 4000) : sentence.start].split("\n")
    for line in reversed(lines):
        if line.rstrip().endswith(":"):
            return line.strip()
        if line.strip() and not _ITEM.match(line) and not line.startswith((" ", "\t")):
            return ""
    return ""


_LINK = re.compile(r"^\s*(?:(?:and|or|and/or|but|e|ou|mas|und|oder|y|o|et|en|of|maar|pero|mais|ma)\s+)?", re.IGNORECASE)
_NEXT = re.compile(r"(?<=[a-z)]) (?=(?:If|When|Where) (?:[a-z]+ )[^.]*, )")


def _without_next(tail: str, languages: Sequence[str]) -> str:
    """What follows a quote in its sentence, without what stands for itself: the next sentence where the full stop
    between them is lost, and items after a semicolon that do not begin with a condition."""
    found = _NEXT.search(tail)
    tail = tail if found is None else tail[: found.start()]
    first, *items = tail.split(";")
    kept = [i for i in items if any(CONDITIONS[code].match(_LINK.sub("", i)) for code in languages)]
    return ";".join([first, *kept])


def clipped_words(document: Document, place: Place, sentence: Span, *, language: str | None = None) -> tuple[str, ...]:
    """Negations and conditions of the sentence (and of the lead-in of its list) that the quote leaves out."""
    text = document.text
    outside = [lead_in(document, sentence)]
    at = sentence.start
    for span in place.spans:
        outside.append(text[at : span.start])
        at = span.end
    known = language if language in CONDITIONS else None
    languages = (known,) if known else guess_languages(text[sentence.start : sentence.end]) or ("en",)
    outside.append(_without_next(text[at : sentence.end], languages))
    rest = fold(" \u2016 ".join(outside)).text
    found: dict[str, None] = {}
    for code in languages:
        for match in CONDITIONS[code].finditer(rest):
            found.setdefault(match.group().casefold())
    return tuple(found)

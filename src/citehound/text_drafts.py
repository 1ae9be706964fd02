"""Reads a draft that came as text: a line per claim with [document] and quotes, or JSON; it mends nothing.

The form is specified in `prompts.TEXT_FORM`. Whatever does not follow it is said in `faults`, line by line, and still
becomes a claim: one that nothing is cited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from .drafts import Draft, DraftCitation, DraftClaim, DraftGap

MAX_FAULTS = 8
"""Faults that are said; a text with more of them is no better known for the rest."""

_FENCE = re.compile(r"\A```\w*[ \t]*\n(.*?)\n?[ \t]*```\Z", re.DOTALL)
_MARKER = re.compile(r"^(?:[-*•]|\d{1,3}[.)])[ \t]+")
_WORD = re.compile(
    r"^(?P<word>claim|conclusion|absence|missing|no document)\s*(?:\((?P<numbers>[\d,;\s]+)\))?\s*:\s*(?P<rest>.*)$",
    re.IGNORECASE,
)
_PIECE = re.compile(
    r"\[(?P<place>[^\[\]\n]+)\]"
    r'|"(?P<straight>[^"\n]*)"|“(?P<curly>[^”\n]*)”|„(?P<low>[^“”\n]*)[“”]|«(?P<angle>[^»\n]*)»|「(?P<corner>[^」\n]*)」'
)

Kind = Literal["claim", "conclusion", "absence", "missing", "no document"]


@dataclass(frozen=True, kw_only=True)
class TextDraft:
    """What a text says as a draft, and where it does not follow the form."""

    draft: Draft
    faults: tuple[str, ...] = ()
    cites: bool = False
    """It names a document somewhere, or says what is missing: it was meant as a draft."""


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A `[place]` or a quote, and where it stands in its line."""

    start: int
    end: int
    place: str | None = None
    quote: str | None = None


@dataclass(kw_only=True)
class _Line:
    number: int
    text: str


@dataclass(kw_only=True)
class _Reading:
    claims: list[DraftClaim] = field(default_factory=list[DraftClaim])
    missing: list[DraftGap] = field(default_factory=list[DraftGap])
    faults: list[str] = field(default_factory=list[str])
    direct: list[str] = field(default_factory=list[str])
    cites: bool = False

    def fault(self, line: _Line, what: str) -> None:
        shown = line.text if len(line.text) <= 60 else line.text[:59] + "…"
        self.faults.append(f"line {line.number} {what}: {shown!r}")


def read_text(text: str) -> TextDraft:
    """The draft in a text: the strict form, or the JSON of a draft (bare or in a code fence). Never raises."""
    text = text.strip()
    fenced = _FENCE.match(text)
    if fenced is not None:
        text = fenced.group(1).strip()
    if text.startswith("{"):
        return _read_json(text)
    reading = _Reading()
    for line in _lines(text):
        _read_line(line, reading)
    if not text:
        reading.faults.append("the text is empty")
    direct = "\n".join(reading.direct) if reading.direct and not reading.claims and not reading.missing else None
    if direct is None:
        reading.claims += [DraftClaim(text=said) for said in reading.direct]
    return TextDraft(
        draft=Draft(claims=tuple(reading.claims), missing=tuple(reading.missing), text=direct),
        faults=tuple(reading.faults[:MAX_FAULTS]),
        cites=reading.cites or bool(reading.missing) or direct is not None,
    )


def _read_json(text: str) -> TextDraft:
    try:
        return TextDraft(draft=Draft.model_validate_json(text), cites=True)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        fault = f"the JSON is no answer{f' at {where}' if where else ''}: {first['msg']}"
    return TextDraft(draft=Draft(claims=(DraftClaim(text=text),)), faults=(fault,))


def _lines(text: str) -> Iterator[_Line]:
    """Lines that say something; one that only gives places and quotes belongs to the line before."""
    last: _Line | None = None
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _MARKER.sub("", raw.strip())
        if not re.search(r"\w", line):
            continue
        pieces = _pieces(line)
        bare = bool(pieces) and not re.search(r"\w", _without(line, pieces))
        if last is not None and bare and (pieces[0].place is not None or "[" not in last.text):
            last.text = f"{last.text} {line}"
            continue
        if last is not None:
            yield last
        last = _Line(number=number, text=line)
    if last is not None:
        yield last


def _read_line(line: _Line, reading: _Reading) -> None:
    found = _WORD.match(line.text)
    word = "claim" if found is None else found.group("word").casefold()
    rest = line.text if found is None else found.group("rest").strip()
    if word == "missing":
        if rest:
            reading.missing.append(_gap(rest))
        else:
            reading.fault(line, "does not say what is missing")
        return
    if word == "no document":
        reading.direct.append(rest)
        return
    pieces = _pieces(rest)
    places = [piece for piece in pieces if piece.place is not None]
    reading.cites = reading.cites or bool(places)
    if word == "conclusion":
        numbers = tuple(int(n) for n in re.findall(r"\d{1,4}", (found.group("numbers") or "") if found else ""))
        if not numbers:
            reading.fault(line, "names no claims that it follows from, as in 'Conclusion (1, 2): …'")
        said = _tidy(_without(rest, places))
        reading.claims.append(DraftClaim(text=said, kind="conclusion", premises=numbers))
        return
    if not places:
        reading.fault(line, "has no [document]")
        reading.claims.append(DraftClaim(text=rest, kind="absence" if word == "absence" else "quoted"))
        return
    given, used = _cited(pieces)
    said = _tidy(_without(rest, [*places, *used])) or next((q for _, quotes in given for q in quotes), "")
    if word == "absence":
        terms = tuple(q for _, quotes in given for q in quotes if q.strip())
        if not terms:
            reading.fault(line, "does not give the words that were looked for, in quotation marks after [document]")
        named = tuple(DraftCitation(document=place, quote="") for place, _ in given)
        reading.claims.append(DraftClaim(text=said, kind="absence", citations=named, terms=terms))
        return
    citations: list[DraftCitation] = []
    for place, quotes in given:
        if not any(q.strip() for q in quotes):
            reading.fault(line, f"gives no quoted words after [{place}]")
        citations += [DraftCitation(document=place, quote=q) for q in quotes or [""]]
    reading.claims.append(DraftClaim(text=said, citations=tuple(citations)))


def _cited(pieces: list[_Piece]) -> tuple[list[tuple[str, list[str]]], list[_Piece]]:
    """Each place with its quotes, and the quotes that stand apart from the statement.

    Quotes follow their place. Only in a line that begins with a quote and ends with a place do they stand before it,
    as part of the statement.
    """
    given: list[tuple[str, list[str]]] = []
    if pieces[0].quote is not None and pieces[-1].place is not None:
        waiting: list[str] = []
        for piece in pieces:
            if piece.quote is not None:
                waiting.append(piece.quote)
            else:
                given.append((_document(piece.place or ""), waiting))
                waiting = []
        return given, []
    used: list[_Piece] = []
    for piece in pieces:
        if piece.place is not None:
            given.append((_document(piece.place), []))
        elif given:
            given[-1][1].append(piece.quote or "")
            used.append(piece)
    return given, used


def _gap(text: str) -> DraftGap:
    """`what (where it was looked for)`."""
    found = re.match(r"^(?P<what>.+?)\s*\((?P<reason>[^()]+)\)\.?$", text)
    if found is None:
        return DraftGap(what=text)
    return DraftGap(what=found.group("what"), reason=found.group("reason"))


def _document(place: str) -> str:
    """The document of `document §section`; where in it a quote stands is found by code."""
    return place.split("§", 1)[0].strip()


def _pieces(line: str) -> list[_Piece]:
    found: list[_Piece] = []
    for match in _PIECE.finditer(line):
        place = match.group("place")
        quote = None if place is not None else next((g for g in match.groups()[1:] if g is not None), "")
        found.append(_Piece(start=match.start(), end=match.end(), place=place, quote=quote))
    return found


def _without(line: str, pieces: list[_Piece]) -> str:
    kept, at = "", 0
    for piece in sorted(pieces, key=lambda p: p.start):
        kept += line[at : piece.start] + " "
        at = piece.end
    return kept + line[at:]


def _tidy(text: str) -> str:
    text = " ".join(text.split())
    return re.sub(r"\s+([.,;:!?])", r"\1", text).strip(" ;,–—-") if re.search(r"\w", text) else ""

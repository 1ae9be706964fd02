"""What may pass from a text to a model that must not see it: typed facts, handles and single words; runs no model.

Owns the boundary of quarantined reading. `Untrusted` wraps text that documents brought; `Told` is a string that may
stand in a planner's message; `planner_message` is the one way to build such a message, and raises for anything else.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

from .documents import Document
from .index import Lexicon
from .models.planner.words import STOP, fold, is_number, is_unit, stem, stems
from .quantities import Quantity, agree, quantities
from .quotes import Folded, Span, find_quote, is_long, is_whole, sentence_at, without_spaces
from .security import Prompt, visible
from .wording import CONDITIONS

Kind = Literal["points", "passage", "yes_no", "choice", "duration", "date", "money", "percent", "number"]
KINDS: tuple[Kind, ...] = ("points", "passage", "yes_no", "choice", "duration", "date", "money", "percent", "number")
Bound = Literal["", "at_most", "at_least"]

MOST_POINTS = 10
"""Facts that one reading may give."""
MOST_SUBJECT = 3
MOST_TERMS = 5
MOST_VALUES = 2
_LEAST_WORD, _LONGEST_WORD = 3, 24
_LONGEST_SPACELESS = 3
"""Of a script without spaces, in which a longer run would be a phrase."""
_LARGEST = 10**12
_LONGEST_QUOTE = 700
_MOST_OCCURRENCES = 400


# The two sorts of strings.


class Tainted(TypeError):
    """Text of a document was about to reach the planner. A fault of the program, never of a document."""


class Untrusted:
    """Text that a document, its name, its metadata or a reader brought. It has no string form: formatting it raises.

    `reveal` gives the text to a reader's prompt, to checks by code and to the answer, never to a planner.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        raise Tainted("untrusted text has no string form: use reveal(), and never in a planner's message")

    def __format__(self, spec: str) -> str:
        raise Tainted("untrusted text cannot be formatted: use reveal(), and never in a planner's message")

    def __repr__(self) -> str:
        return f"Untrusted({len(self._text)} characters)"

    def __len__(self) -> int:
        return len(self._text)


class Told(str):
    """A string that a planner may see: of the question, of the configuration, of this program, or its own words."""

    __slots__ = ()

    def __new__(cls, text: str) -> Told:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Tainted(f"{type(text).__name__} cannot be told to a planner")
        return super().__new__(cls, visible(text))


_KEY = re.compile(r"[a-z][a-z_]{0,23}")


def planner_message(value: object) -> Prompt:
    """The one way to a planner: `value` as JSON. Raises Tainted for every string that is not `Told`."""
    _check(value)
    return Prompt(json.dumps(value, ensure_ascii=False))


def _check(value: object) -> None:
    if value is None or isinstance(value, Told | bool | int | float):
        return
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[object, object]", value).items():
            # Keys of the program are identifiers; any other key has to be told.
            if not isinstance(key, Told) and not (isinstance(key, str) and _KEY.fullmatch(key)):
                raise Tainted("a key of a planner's message is neither told nor an identifier")
            _check(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[object]", value):
            _check(inner)
    else:
        raise Tainted(f"{type(value).__name__} in a planner's message: only told strings, numbers and booleans pass")


# Typed values.

_TIMES = ("second", "minute", "hour", "day", "business day", "week", "month", "quarter", "year")
_CURRENCIES = ["EUR", "GBP", "CAD", "AUD", "BRL", "USD", "CHF", "JPY", "INR", "SEK", "NOK", "DKK", "PLN", "CNY"]
_SIZES = ("bit", "byte")
UNITS: Mapping[Kind, tuple[str, ...]] = {
    "duration": _TIMES,
    "money": tuple(_CURRENCIES),
    "percent": ("percent",),
}
"""Units that a reader may give, by kind."""
_PASSING = frozenset([*_TIMES, *_CURRENCIES, *_SIZES, "percent", "point", "bps", "permille", "times"])
_DATE = re.compile(r"\d{4}(?:-\d{2}(?:-\d{2})?)?")
_AT_MOST = re.compile(
    r"(?:within|at most|(?:no|not) (?:later|more) than|up to|not exceed(?:ing)?|maximum(?: of)?|max\.|less than|below|"
    r"capped at|innerhalb(?: von)?|binnen|höchstens|spätestens|maximal|bis zu|no prazo de|até|no máximo|dentro de|"
    r"como máximo|a más tardar|hasta|au plus(?: tard)?|dans un délai de|entro|al massimo|hoogstens|uiterlijk)"
    r"(?: (?:the|a|an|in|of|de|von|zu))?\W*$",
    re.IGNORECASE,
)
_AT_LEAST = re.compile(
    r"(?:at least|minimum(?: of)?|min\.|(?:no|not) less than|(?:no|not) fewer than|more than|above|mindestens|"
    r"wenigstens|pelo menos|no mínimo|al menos|como mínimo|au moins|au minimum|almeno|minstens|ten minste)\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Value:
    """A quantity of a text, in classes of this program: nothing of it is the text's own words but `text`."""

    unit: Told
    number: Fraction | None = None
    date: str = ""
    bound: Bound = ""
    text: Untrusted
    """As it stands, for the answer."""

    def told(self) -> dict[str, object]:
        shown: dict[str, object] = {"unit": self.unit}
        if self.number is not None:
            whole = self.number.denominator == 1
            shown["number"] = int(self.number) if whole else float(f"{float(self.number):.6g}")
        if self.date:
            shown["date"] = Told(self.date)
        if self.bound:
            shown["bound"] = Told(self.bound)
        return shown


def typed(text: str, quantity: Quantity) -> Value | None:
    """The quantity as a value that may pass, or None: names with digits and odd units do not."""
    said = Untrusted(text[quantity.start : quantity.end])
    before = text[max(0, quantity.start - 40) : quantity.start]
    bound: Bound = "at_most" if _AT_MOST.search(before) else "at_least" if _AT_LEAST.search(before) else ""
    if quantity.unit == "date":
        known = quantity.names[0] if quantity.names else ""
        return Value(unit=Told("date"), date=known, text=said) if _DATE.fullmatch(known) else None
    if not quantity.values or abs(quantity.values[0]) >= _LARGEST:
        return None
    value = quantity.values[0]
    if quantity.unit in ("rate/months", "rate/seconds") and value > 0:
        if quantity.unit == "rate/months":
            return Value(unit=Told("months between"), number=1 / value, bound=bound, text=said)
        return Value(unit=Told("days between"), number=1 / value / 86400, bound=bound, text=said)
    if quantity.unit == "count" and value.denominator == 1:
        return Value(unit=Told("count"), number=value, bound=bound, text=said)
    return Value(unit=Told(quantity.unit), number=value, bound=bound, text=said) if quantity.unit in _PASSING else None


def typed_values(text: str, *, language: str | None) -> tuple[Value, ...]:
    """The values of a sentence that say something by themselves, the first ones."""
    found = (typed(text, q) for q in quantities(text, language=language) if q.unit != "count")
    return tuple(value for value in found if value is not None)[:MOST_VALUES]


def claimed(kind: Kind, *, number: float | None, unit: str | None, date: str | None) -> Quantity | None:
    """What a reader says as a quantity, or None where it is none of this kind."""
    if kind == "date":
        if not date or not re.fullmatch(r"\d{4}(?:-\d{2}(?:-\d{2})?)?", date):
            return None
        return Quantity(text="", unit="date", start=0, end=0, names=(date,))
    unit = {"percent": "percent", "number": "count"}.get(kind, unit)
    if number is None or unit is None or not abs(number) < _LARGEST:
        return None
    value = Fraction(str(number))
    return Quantity(text="", unit=unit, start=0, end=0, values=(value,))


def stated(kind: Kind, said: Quantity, sentence: str, *, language: str | None) -> Value | None:
    """The value of the sentence that agrees with what the reader said; None where it does not stand there."""
    for quantity in quantities(sentence, language=language):
        same = quantity.unit == said.unit or (kind == "date" and quantity.unit == "date")
        if kind == "number":
            same = quantity.unit not in ("date", "name") and bool(quantity.values)
            if same and said.values[0] in quantity.values:
                return typed(sentence, quantity)
        elif kind == "date" and same:
            if _dates_meet(said.names[0], quantity.names):
                return typed(sentence, quantity)
        elif agree(said, quantity):
            return typed(sentence, quantity)
    return None


def _dates_meet(said: str, names: Sequence[str]) -> bool:
    return any(name == said or name.startswith(f"{said}-") or said.startswith(f"{name}-") for name in names)


# Words.

_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def topics(
    sentence: str, heading: str, *, text: str, known: frozenset[str], lexicon: Lexicon, language: str
) -> tuple[tuple[Told, ...], tuple[Told, ...]]:
    """Single words of a sentence that may pass: what its heading says it is about, and the rarest others.

    Each is one word of letters that the index has in at least two passages. They come in alphabetical order, and of two
    words that stand side by side in `text` only one comes where they would stand side by side here: so nothing of the
    text's own order passes. `known` are stems that the planner has already.
    """
    beside = _pairs(text)
    about = _words(heading, known=known, lexicon=lexicon, language=language)
    others = _words(sentence, known=known, lexicon=lexicon, language=language)
    rest = sorted(((f, w) for s, (w, f) in others.items() if s not in about), key=lambda pair: pair)
    subject = _apart((w for w, _ in about.values()), beside, most=MOST_SUBJECT)
    return subject, _apart((w for _, w in rest), beside, most=MOST_TERMS)


def _words(text: str, *, known: frozenset[str], lexicon: Lexicon, language: str) -> dict[str, tuple[str, int]]:
    """Stem to word and frequency, in order."""
    found: dict[str, tuple[str, int]] = {}
    for token in _tokens(text):
        spaceless = any(without_spaces(c) for c in token)
        most = _LONGEST_SPACELESS if spaceless else _LONGEST_WORD
        least = 2 if spaceless else _LEAST_WORD
        root = stem(token, language=language)
        if not least <= len(token) <= most or root in known or root in found:
            continue
        if fold(token) in STOP or is_number(token) or is_unit(token):
            continue
        frequency = lexicon.frequency(token)
        if frequency >= 2:
            found[root] = (token, frequency)
    return found


def _tokens(text: str) -> list[str]:
    return [unicodedata.normalize("NFC", t.casefold()) for t in _TOKEN.findall(visible(text))]


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    said = re.findall(r"[^\W_]+", unicodedata.normalize("NFC", visible(text).casefold()))
    return frozenset(itertools.pairwise(said))


def _apart(words: Iterable[str], beside: frozenset[tuple[str, str]], *, most: int) -> tuple[Told, ...]:
    """The first words, in alphabetical order, without one that would make neighbours of neighbours in the text."""
    kept: list[str] = []
    for word in words:
        tried = sorted({*kept, word})
        if len(kept) < most and not any(pair in beside or _spaceless(pair) for pair in itertools.pairwise(tried)):
            kept = tried
    return tuple(Told(word) for word in kept)


def _spaceless(pair: tuple[str, str]) -> bool:
    return without_spaces(pair[0][0]) and without_spaces(pair[1][0])


def grams(text: str, size: int = 4) -> frozenset[tuple[str, ...]]:
    """Every run of `size` words of a text, or of as many characters where a script has no spaces."""
    said = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", visible(text)).casefold())
    pieces: list[str] = []
    for word in said:
        pieces.extend(list(word) if any(without_spaces(c) for c in word) else [word])
    return frozenset(tuple(pieces[i : i + size]) for i in range(len(pieces) - size + 1))


# Facts.


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What one reading gave, as it passes: `told` is all that a planner ever learns of the text."""

    id: Told
    handle: Told
    asked: Told
    """The planner's own words."""
    kind: Kind
    found: bool
    why_not: Told | None = None
    """A code of this program."""
    value: Value | None = None
    verdict: Told | None = None
    """'yes' or 'no', or the planner's own option."""
    values: tuple[Value, ...] = ()
    subject: tuple[Told, ...] = ()
    terms: tuple[Told, ...] = ()
    requires: bool = False
    conditional: bool = False
    fit: int = 0
    """How much of the asked words stands in the sentence and its heading, of 10."""
    group: Told | None = None
    points_to: tuple[Told, ...] = ()
    document: str = ""
    section: str | None = None
    """Its number, for the answer."""
    quote: Untrusted | None = None
    heading: Untrusted | None = None
    start: int = 0
    end: int = 0

    def told(self) -> dict[str, object]:
        row: dict[str, object] = {"fact": self.id, "document": self.handle}
        if self.kind != "points" or not self.found:
            row |= {"asked": self.asked, "kind": Told(self.kind)}
        row["found"] = self.found
        if not self.found:
            return row if self.why_not is None else row | {"why_not": self.why_not}
        if self.verdict is not None:
            row["verdict"] = self.verdict
        if self.value is not None:
            row["value"] = self.value.told()
        others = [v for v in self.values if self.value is None or v.text.reveal() != self.value.text.reveal()]
        if others:
            row["values"] = [v.told() for v in others]
        if self.subject:
            row["subject"] = self.subject
        if self.terms:
            row["terms"] = self.terms
        if self.requires:
            row["requires"] = True
        if self.conditional:
            row["conditional"] = True
        row["fit"] = self.fit
        if self.group is not None:
            row["group"] = self.group
        if self.points_to:
            row["points_to"] = self.points_to
        return row

    @property
    def place(self) -> str:
        """Where it stands, for the answer."""
        return f"{self.document} §{self.section}" if self.section else self.document

    @property
    def all_values(self) -> tuple[Value, ...]:
        return self.values if self.value is None else (self.value, *(v for v in self.values if v is not self.value))


@dataclass(frozen=True, kw_only=True)
class Located:
    """The whole sentence of a quote that was found in what was read."""

    start: int
    end: int
    sentence: Untrusted
    quote: Untrusted
    """The sentence, or the quote alone where that is too long to show."""


def locate(document: Document, folded: Folded, quote: str, *, read: Sequence[Span]) -> Located | None:
    """Where the reader's quote stands in what it was given; None when it stands nowhere there."""

    def was_read(span: Span) -> bool:
        return any(r.start <= span.start and span.end <= r.end for r in read)

    if not quote.strip() or len(quote) > 4000:
        return None
    place = find_quote(document, folded, quote, was_read=was_read)
    if place is None or not all(was_read(span) for span in place.spans):
        return None
    whole = sentence_at(document, place)
    sentence = document.text[whole.start : whole.end]
    if not was_read(whole) or len(sentence) > _LONGEST_QUOTE:
        whole = Span(start=place.start, end=place.end)
        if whole.end - whole.start > _LONGEST_QUOTE:
            whole = place.spans[0]
        if whole.end - whole.start > _LONGEST_QUOTE:
            return None
    shown = document.text[whole.start : whole.end]
    if not is_long(shown) and not is_whole(document, whole):
        return None
    return Located(start=whole.start, end=whole.end, sentence=Untrusted(shown), quote=Untrusted(shown))


def fit_of(asked: str, said: str, *, language: str) -> int:
    """How much of the asked words stands in a text, of 10."""
    wanted = stems(asked, language=language)
    return round(10 * len(wanted & stems(said, language=language)) / len(wanted)) if wanted else 0


def is_conditional(sentence: str, *, language: str | None) -> bool:
    """True for a sentence with a negation or a condition."""
    return CONDITIONS[language if language in CONDITIONS else "en"].search(sentence) is not None

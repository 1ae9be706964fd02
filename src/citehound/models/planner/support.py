"""Whether a place in a text is evidence for a part of a question: its rare words and a fitting value meet there.

Owns the check and the question cues it needs; ranks and quotes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .state import Text, Weights
from .words import (
    Sentence,
    Word,
    asks,
    capitalised,
    fold,
    has_value,
    is_number,
    is_unit,
    number_of,
    sentences,
    stems,
    wanted,
    words,
)

LEAST_INSIDE = 0.33
"""Share that is enough in a document that the question names: its name is not to be met again."""
LEAST = 0.48
"""Share of the asked words' weight that must stand in a sentence, beside it, above it, or in its document's title."""

_FRAME_TEXT = """
    according documentation document page text tell says state states mention exactly currently please answer
    happen happens someone somebody anyone anybody actually find show summarise summarize summary describe explain
    information definition meaning type kind sort want name
    laut dokument derzeit segundo documento atualmente según actualmente selon actuellement
"""
_FRAME = frozenset(_FRAME_TEXT.split())
_KIND_WORDS_TEXT = """
    cost costs price prices charge charges charged amount soon often quickly fast far ahead much percentage date
    day deadline number highest lowest maximum minimum kostet preis betrag custa preço cuesta precio coûte prix
    montant
"""
_KIND_WORDS = frozenset(_KIND_WORDS_TEXT.split())
_HARD = (
    ("money", r"\bhow much\b(?!\s+(?:time|notice|warning))|(?:what|which)\b.*\b(?:cost|price|charge|fee|amount)|kostet|"
     r"quanto custa|cuánto cuesta|combien coûte"),
    ("percent", r"\b(?:what|which|how (?:high|much))\b.*\bpercent"),
    ("duration", r"\bhow (?:long|soon|quickly|often|far ahead|fast (?=must|shall|should))\b|"
     r"\bhow many (?:hours|days|weeks|months|years|minutes)\b|\bby when\b|wie (?:lange|oft)|"
     r"quanto tempo|cuánto tiempo|combien de temps"),
    ("date", r"^\W*(?:and |but )?(?:(?:since|until|by|from) )?when\b|\b(?:which|what|on which) (?:date|day)\b|"
     r"^\W*wann\b|^\W*quando\b|^\W*cuándo\b|^\W*quand\b"),
    ("number", r"\bhow many\b|\bnumber of\b|wie viele|quant[oa]s\b|cuánt[oa]s\b|combien de\b"),
)  # fmt: skip
_HARD_RE = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _HARD)
_HEAD = re.compile(
    r"\b(?:(?:what|who|which) (?:is|are|was|were|will be)|wer ist|was ist|(?:qual|quais|quem) (?:é|são|foi)|"
    r"(?:cuál|quién) es|(?:quel|quelle|qui) est) (?:(?:the|a|an|der|die|das|o|a|os|as|el|la|los|las|le|les) )?"
    r"(?P<head>[^,?]{3,60}?) (?:of|for|on|von|des|für|de|da|do|del|du)\b",
    re.IGNORECASE,
)


_CLASS = (
    r"which|what|whose|how many|how much|welche[rsnm]?|quais|qual|quant[oa]s|cuál(?:es)?|cuánt[oa]s|quel(?:le)?s?|"
    r"combien de"
)
_OF_CLASS = re.compile(rf"\b(?:{_CLASS}) ", re.IGNORECASE)
_THING = re.compile(
    rf"\b(?:{_CLASS}|(?:who|what|which) (?:is|are|was|were|will be)(?: the| our| a| an| their| its| my| your)?) ",
    re.IGNORECASE,
)
_VERB_AFTER_TEXT = "the a an our my your its their this these those off up out down on to in into for"
_VERB_AFTER = frozenset(_VERB_AFTER_TEXT.split())
_THING_WORDS = 3

_PER = re.compile(
    r"\b(?:one|per|each|every|ein(?:e[rnm]?)?|je|pro|um|uma|cada|por|un|una|une|par|chaque)\b", re.IGNORECASE
)
_SUM = re.compile(
    r"\d\s*(?:times|plus|minus|divided by|multiplied by|mal|vezes|mais|veces|más|fois|[x×*+/÷])\s*\d", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    sentence: Sentence
    stems: frozenset[str]
    heading: bool


@lru_cache(maxsize=512)
def _stems(text: str, language: str) -> frozenset[str]:
    return stems(text, language=language)


@lru_cache(maxsize=512)
def _pieces(text: str, language: str) -> tuple[_Piece, ...]:
    return tuple(
        _Piece(sentence=one, stems=stems(one.text, language=language), heading=is_heading(one))
        for one in sentences(text)
    )


def is_heading(sentence: Sentence) -> bool:
    """A short line without a stop, a colon or cells."""
    said = sentence.text.strip()
    return (
        len(said) <= 90
        and "\n" not in said
        and said[-1:] not in ".!?:;|"
        and said[:1] not in "-*•|"
        and "|" not in said
    )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one part of a question asks for."""

    weights: dict[str, float]
    head: frozenset[str]
    """Stems of which one must stand there: 'salary' of 'What is the salary of a manager?'"""
    kinds: frozenset[str]
    """A value of one of these kinds must stand there."""
    sum: bool
    """Arithmetic is asked for, which no text answers."""
    names: frozenset[str]
    """Stems of known proper names, of which one must stand in the text or name its document."""
    ratio: bool
    """Asked per something ('how many pupils per teacher', 'how many does one teacher …'), so a ratio answers."""
    counted: str | None
    """What is to be counted, as a stem, where it is no unit."""
    nowhere: tuple[str, ...] = ()
    """Words for the thing asked for that stand in no document, so that none can tell of it."""


def asked_in(clause: str, weigh: Weights, *, language: str) -> Asked:
    kinds = hard_kinds(clause)
    once = weigh.of_frequency(1)
    weights: dict[str, float] = {}
    for word in words(clause, language=language):
        low = fold(word.text)
        if low in _FRAME or (low in _KIND_WORDS and wanted(clause)):
            continue
        weights[word.stem] = weigh.of_frequency(weigh.frequency(word.text)) if weigh.frequency(word.text) else once
    counted = number_of(clause, language=language) if "number" in kinds else None
    if counted is not None and (is_unit(counted) or "duration" in kinds):
        counted = None
        kinds = kinds - {"number"}
    match = _HEAD.search(clause)
    head = stems(match.group("head"), language=language) & set(weights) if match is not None else frozenset[str]()
    return Asked(
        weights=weights,
        head=head,
        kinds=kinds,
        sum=_SUM.search(clause) is not None,
        names=frozenset(
            word.stem
            for name in capitalised(clause)
            for word in words(name, language=language)
            if weigh.frequency(word.text) and not word.stem.isdigit()
        ),
        ratio=_PER.search(clause) is not None,
        counted=counted,
        nowhere=tuple(w for w in thing_asked(clause, language=language) if not weigh.frequency(w)),
    )


def thing_asked(clause: str, *, language: str) -> list[str]:
    """The words for the thing that is asked for: 'external', 'auditor' of 'Which external auditor signs the …'."""
    return _runs(_THING, clause, language=language)


def class_asked(clause: str, *, language: str) -> list[str]:
    """The words for the class of what is asked for ('company' of 'What company …'): a text that tells names the one."""
    return _runs(_OF_CLASS, clause, language=language)


def _runs(opening: re.Pattern[str], clause: str, *, language: str) -> list[str]:
    found: list[str] = []
    for match in opening.finditer(clause):
        rest = clause[match.end() :]
        known = {word.start: word for word in words(rest, language=language)}
        run: list[Word] = []
        after = ""
        for piece in re.finditer(r"[^\W_]+|[^\w\s]", rest):
            word = known.get(piece.start())
            if word is None or len(run) == _THING_WORDS or not word.text.islower():
                after = fold(piece.group())
                break
            run.append(word)
        if len(run) > 1 and after in _VERB_AFTER:
            run.pop()
        found += [w.text for w in run if not w.stem.isdigit() and fold(w.text) not in _FRAME | _KIND_WORDS]
    return found


def hard_kinds(clause: str) -> frozenset[str]:
    """Kinds of value without which nothing answers the clause."""
    return frozenset(kind for kind, pattern in _HARD_RE if pattern.search(clause))


def supports(asked: Asked, text: Text, sentence: Sentence, *, language: str, least: float = LEAST) -> bool:
    """True when the words asked for (`least` of their weight) and a value of the kind meet in or at the sentence."""
    if asked.sum or asked.nowhere:
        return False
    if asked.kinds and not any(_has(asked, kind, sentence.text, language=language) for kind in asked.kinds):
        return False
    total = sum(asked.weights.values())
    if not total:
        return bool(asked.kinds)
    pieces = _pieces(text.text, language)
    at = next((i for i, piece in enumerate(pieces) if piece.sentence.start == sentence.start), 0)
    above = next((piece for piece in reversed(pieces[:at]) if piece.heading), None)
    named = stems(f"{text.title} {' '.join(text.metadata.values())} {text.section or ''}"[:400], language=language)
    if above is not None:
        named |= above.stems
    own = pieces[at].stems if pieces else frozenset[str]()
    near = own | named
    for i in (at - 1, at + 1):
        if 0 <= i < len(pieces) and not pieces[i].heading:
            near |= pieces[i].stems
    if not own & set(asked.weights):
        return False
    if asked.names and not asked.names & (near | _stems(f"{text.document} {text.text}", language)):
        return False
    near -= {s for s in near if s.isdigit() and s not in own | named}
    rest = set(asked.weights) - asked.head
    if asked.head and not (asked.head & near and (rest & near or not rest)):
        return False
    return sum(w for s, w in asked.weights.items() if s in near) / total >= least


def _has(asked: Asked, kind: str, said: str, *, language: str) -> bool:
    if kind == "number" and asked.counted is not None:
        return counts(said, asked.counted, language=language, ratio=asked.ratio)
    return has_value(said, kind)


def _words_after(said: str) -> list[str]:
    """Up to three words that follow without punctuation."""
    match = re.match(r"(?:[\s-]+[^\W_]+){0,3}", said)
    return re.findall(r"[^\W_]+", match.group()) if match is not None else []


_RATIO = frozenset({"every", "each", "per", "je", "jede", "pro", "por", "cada", "par", "pour"})
_APART = _RATIO | {"a", "an", "for", "in", "on", "if"}


def counts(said: str, what: str, *, language: str, ratio: bool = False) -> bool:
    """True when a number of these stands there ('four books', 'Books | 4'); 'every 4 books' only if a ratio will do."""
    for match in re.finditer(r"[^\W_]+(?![^\W_]|[).]\s)", said):
        if not is_number(match.group()):
            continue
        before = re.findall(r"[^\W_]+|[|:]", said[max(0, match.start() - 60) : match.start()])
        if not ratio and before and fold(before[-1]) in _RATIO:
            continue
        for word in _words_after(said[match.end() :]):
            if fold(word) in _APART:
                break
            if what in stems(word, language=language):
                return True
        after = said[match.end() :].lstrip()
        if (not after or after[0] in ".,;|") and what in stems(" ".join(before[-4:]), language=language):
            return True
    return False


def thin(clause: str, weigh: Weights, *, language: str) -> bool:
    """True for 'how soon?': it lives on the part before it."""
    return len(asked_in(clause, weigh, language=language).weights) < 2


def questions(parts: list[str], weigh: Weights, *, language: str) -> list[str]:
    """The parts that ask something; those that only tell are context. A thin part takes the one before along."""
    asking = [part for part in parts if asks(part)] or parts
    found: list[str] = []
    for part in asking:
        at = parts.index(part)
        found.append(f"{parts[at - 1]} {part}" if at and thin(part, weigh, language=language) else part)
    return found

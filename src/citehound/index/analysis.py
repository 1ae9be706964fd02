"""Turns text into search terms: folding, stemming per language, bigrams for scripts without spaces; stores nothing.

A change of what comes out needs a higher `FORMAT` in sealing.py, so that indexes of before are made anew.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Generic, TypeVar

import tantivy

STEMMERS = {
    "ar": "arabic",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nb": "norwegian",
    "nl": "dutch",
    "nn": "norwegian",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
}
"""ISO 639-1 to the name of a Snowball stemmer."""

COMPOUNDING = {
    "da": ("", "s", "e"),
    "de": ("", "s", "es", "n", "en", "e", "er", "ens"),
    "fi": ("", "n"),
    "hu": ("",),
    "nb": ("", "s", "e"),
    "nl": ("", "s", "en", "e", "n"),
    "nn": ("", "s", "e"),
    "no": ("", "s", "e"),
    "sv": ("", "s", "e", "o", "u"),
}
"""Languages that write compounds as one word, with what may stand between the parts."""

T = TypeVar("T")

_LONGEST = 60
_CACHE_LIMIT = 200_000
_SHORTEST_COMPOUND = 8
_SHORTEST_PART = 4
_SHORTEST_OTHER = 3
"""The part of a compound that is not looked for, but has to be a word of the corpus too."""
_MOST_RELATED = 24
_TAIL = "\u21a4"
"""Before a word that is written backwards, so that words can be found by how they end."""
_INVISIBLE = dict.fromkeys([0x00AD, 0x061C, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF])
# Arabic vowel signs and the stroke that only stretches; Hebrew points and accents.
_VOWELS = dict.fromkeys(
    code
    for low, high in (
        *((0x064B, 0x0652), (0x0656, 0x065F), (0x0670, 0x0670), (0x0640, 0x0640), (0x06D6, 0x06DC), (0x06DF, 0x06E4)),
        *((0x06E7, 0x06E8), (0x06EA, 0x06ED), (0x0591, 0x05BD), (0x05BF, 0x05BF), (0x05C1, 0x05C2), (0x05C4, 0x05C5)),
        (0x05C7, 0x05C7),
    )
    for code in range(low, high + 1)
)
_ZEROS = (
    *(0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0DE6, 0x0E50),
    *(0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50),
    *(0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10),
)
_DIGITS = {zero + value: str(value) for zero in _ZEROS for value in range(10)}
_CLEAN = {**_INVISIBLE, **_VOWELS, **_DIGITS, ord("\u0130"): "i", ord("ё"): "е", ord("Ё"): "Е"}
_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "ß": "ss", "ŋ": "n"}
    # Letters that Arabic writers exchange; hamza and madda come off as marks.
    | {"\u0671": "\u0627", "\u0649": "\u064a", "\u06cc": "\u064a", "\u06d2": "\u064a", "\u0629": "\u0647"}
    | {"\u06c1": "\u0647", "\u06a9": "\u0643", "\u0653": "", "\u0654": "", "\u0655": ""}
)
# Hiragana, Katakana, Han, Hangul, Thai, Lao, Khmer, Myanmar: words are not set apart by spaces, or carry particles.
_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
# `\w` leaves out the vowel signs of Indic scripts and Arabic marks, which belong to their word.
_MARKS = "".join(re.escape(chr(c)) for c in range(0x0300, 0x1E00) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
_ASCII_WORD = re.compile("[a-z0-9]+")
_WORD = re.compile(f"[\\w{_MARKS}]+")
_RUN = re.compile(f"[{_SPACELESS}]+|[^{_SPACELESS}]+")
_SPACELESS_MARKS = "".join(
    re.escape(chr(c))
    for low, high in ((0x0E00, 0x0F00), (0x1000, 0x10A0), (0x1780, 0x1800))
    for c in range(low, high)
    if unicodedata.category(chr(c)) in ("Mn", "Mc")
)
_ANY_SPACELESS_MARK = re.compile(f"[{_SPACELESS_MARKS}]")
# A letter with its marks; in Khmer and Burmese also with the consonants written below it.
_CLUSTER = re.compile(f"[^{_SPACELESS_MARKS}](?:[\u17d2\u1039].|[{_SPACELESS_MARKS}])*|[{_SPACELESS_MARKS}]+")
_ANY_SPACELESS = re.compile(f"[{_SPACELESS}]")
_COMPOUND = re.compile(r"(?<![^\W_])[^\W_]++(?:[._/\-][^\W_]++)+")


def fold(text: str) -> str:
    """Case, accents and compatibility forms gone: 'MÜLLER', 'Müller' and 'muller' are one."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", text).translate(_CLEAN).casefold()
    text = "".join(c for c in text if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", text.translate(_LETTERS))


def _plain(text: str) -> str:
    """Lower-case, in the form that stemmers know: one form of each letter and digit, no vowel points."""
    return unicodedata.normalize("NFKC", text).translate(_CLEAN).lower()


def fold_value(text: str) -> str:
    """How names and metadata values are compared: folded, white space as one blank."""
    return " ".join(fold(text).split())


class _Stemmer:
    """Stems and folds lower-case words of one language; remembers what it did."""

    def __init__(self, language: str) -> None:
        self._known: dict[str, str] = {}
        builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
        name = STEMMERS.get(language)
        self._analyzer = builder.filter(tantivy.Filter.stemmer(name)).build() if name else None

    def __call__(self, words: list[str]) -> list[str]:
        if self._analyzer is None:
            return [w if w.isascii() else fold(w) for w in words]
        known = self._known
        if len(known) > _CACHE_LIMIT:
            known = self._known = {}
        new = list({w for w in words if w not in known})
        if new:
            stems = self._analyzer.analyze(" ".join(new))
            if len(stems) != len(new):  # a word that the analyzer splits or drops
                stems = new
            for word, stem in zip(new, stems, strict=True):
                known[word] = fold(stem) or fold(word)
        return [known.get(w) or fold(w) for w in words]

    def stem(self, word: str) -> str:
        if self._analyzer is None and word.isascii():
            return word
        known = self._known.get(word)
        return known if known is not None else self([word])[0]


@lru_cache(maxsize=64)
def _stemmer(language: str) -> _Stemmer:
    return _Stemmer(language)


def stem_words(words: list[str], language: str) -> list[str]:
    """The stem of each lower-case word, in order; `language` as `known_language` gives it."""
    return _stemmer(language)(words)


def known_language(language: str | None) -> str:
    """The ISO code when there is a stemmer for it ('de-AT' is 'de'), else ''."""
    code = (language or "").lower().replace("_", "-").split("-")[0]
    return code if code in STEMMERS else ""


def _words(text: str) -> list[str]:
    """Lower-case words; a run of a spaceless script is one word."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    text = _plain(text).replace("_", " ")
    words = _WORD.findall(text)
    if _ANY_SPACELESS.search(text) is None:
        return words
    return [run for word in words for run in _RUN.findall(word)]


def _letters(run: str) -> list[str]:
    """Each with its marks."""
    return list(run) if _ANY_SPACELESS_MARK.search(run) is None else _CLUSTER.findall(run)


def _bigrams(run: str) -> list[str]:
    letters = _letters(run)
    return letters if len(letters) < 2 else [a + b for a, b in pairwise(letters)]


def _spaceless(word: str) -> bool:
    return not word.isascii() and _ANY_SPACELESS.match(word) is not None


def _split(words: Iterable[str]) -> list[str]:
    out: list[str] = []
    for word in words:
        if word.isascii():
            out.append(word if len(word) <= _LONGEST else word[:_LONGEST])
        elif _spaceless(word):
            out.extend(_bigrams(word))
        else:
            out.append(word[:_LONGEST])
    return out


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a text is found by."""

    stems: list[str]
    """In order, stemmed for its language."""
    extras: set[str]
    """Unstemmed words, single characters of spaceless scripts, compounds ('7.2', 'max_age'), and in a language that
    writes compounds as one word, long words backwards."""


def analyse(text: str, language: str | None) -> Terms:
    """All terms of a text."""
    words = _words(text)
    split = _split(words)
    exact = set(split)
    if not text.isascii():
        exact.update(letter for word in words if _spaceless(word) for letter in _letters(word))
        exact = set(_stemmer("")(list(exact)))
    exact.update(compounds(text))
    exact.discard("")
    code = known_language(language)
    stems = [s for s in _stemmer(code)(split) if s]
    if code in COMPOUNDING:
        exact.update([_TAIL + word[::-1] for word in {*exact, *stems} if len(word) >= _SHORTEST_COMPOUND])
    return Terms(stems=stems, extras=exact)


def compounds(text: str) -> list[str]:
    """Words joined by dots, dashes, slashes or underscores, folded."""
    folded = (fold(c) for c in _COMPOUND.findall(text) if len(c) <= _LONGEST)
    return [c for c in folded if " " not in c]


@dataclass(frozen=True, kw_only=True)
class QueryTerm:
    """One word of a query: its stems in every language asked for, and its exact form."""

    stems: tuple[str, ...]
    exact: str
    related: tuple[str, ...] = ()
    """Stems of compounds that have this word as a part, or of the parts of this compound."""


def query_terms(text: str, languages: Iterable[str]) -> tuple[QueryTerm, ...]:
    """The distinct words of a query, in order, stemmed in each language ('' and unknown ones: not stemmed).

    Never raises; operators and punctuation mean nothing."""
    text = text[:20_000]
    unique = list(dict.fromkeys(_split(_words(text))))
    codes = dict.fromkeys(map(known_language, languages)) or {"": None}
    per_language = [_stemmer(code)(unique) for code in codes]
    terms: dict[str, QueryTerm] = {}
    for at, exact in enumerate(_stemmer("")(unique)):
        if exact and exact not in terms:
            terms[exact] = QueryTerm(stems=tuple(dict.fromkeys(form[at] for form in per_language)), exact=exact)
    for compound in compounds(text):
        terms.setdefault(compound, QueryTerm(stems=(), exact=compound))
    return tuple(terms.values())


def in_compounds(
    term: QueryTerm,
    languages: Iterable[str],
    *,
    frequency: Callable[[str], int],
    beginning: Callable[[str], Iterable[tuple[str, int]]],
) -> tuple[str, ...]:
    """Stems of the compounds of a corpus that a word is part of, most frequent first, then of the parts it consists of.

    Only words of the corpus count as parts, so no list of words is needed: 'Frist' is in 'Aufbewahrungsfrist' where
    'Aufbewahrung' is a word by itself too. `frequency` says how often a term of `Terms` occurs in the corpus, and
    `beginning` which terms there are with a prefix.
    """
    found: dict[str, int] = {}
    parts: dict[str, int] = {}
    forms = [form for form in dict.fromkeys([*term.stems, term.exact]) if len(form) >= _SHORTEST_PART]
    if not forms or not term.exact.isalpha() or _spaceless(term.exact):
        return ()
    for code in dict.fromkeys(map(known_language, languages)):
        stem, links = _stemmer(code).stem, COMPOUNDING.get(code, ())

        def known(part: str, stem: Callable[[str], str] = stem) -> int:
            """How often a part stands by itself."""
            return max(frequency(part), frequency(stem(part))) if len(part) >= _SHORTEST_OTHER else 0

        for form in forms if links else ():
            for word, count in [(word[:0:-1], count) for word, count in beginning(_TAIL + form[::-1])]:
                head = word[: -len(form)]
                if any(known(head.removesuffix(link)) for link in links if head.endswith(link)):
                    found[stem(word)] = max(count, found.get(stem(word), 0))
            for word, count in beginning(form):
                rest = word[len(form) :]
                if len(rest) < _SHORTEST_OTHER or not frequency(_TAIL + word[::-1]):
                    continue
                if any(known(rest[len(link) :]) for link in links if rest.startswith(link)):
                    found[stem(word)] = max(count, found.get(stem(word), 0))
            if len(form) < _SHORTEST_COMPOUND:
                continue
            best: tuple[int, str, str] | None = None
            for at in range(_SHORTEST_PART, len(form) - _SHORTEST_PART + 1):
                tail = form[at:]
                for link in links:
                    head = form[: at - len(link)]
                    if not form[:at].endswith(link) or len(head) < _SHORTEST_PART:
                        continue
                    both = min(known(head), known(tail))
                    if both and (best is None or both > best[0]):
                        best = (both, stem(head), stem(tail))
            if best is not None:
                parts.update(dict.fromkeys(best[1:], best[0]))
    for form in term.stems:
        found.pop(form, None)
        parts.pop(form, None)
    ordered = sorted(found, key=lambda word: (-found[word], word))[:_MOST_RELATED]
    return tuple(dict.fromkeys([*ordered, *parts]))


class Matcher(Generic[T]):
    """Finds the words of a text that have one of some terms, in one language; remembers words it has met."""

    def __init__(self, values: Mapping[str, T], language: str | None) -> None:
        self._values = values
        self._stemmers = [_stemmer(code) for code in dict.fromkeys(["", known_language(language)])]
        self._known: dict[str, tuple[str, T] | None] = {}
        # Stemmers work on endings: a word that begins otherwise than a term does not have it.
        heads = {term[: 4 if len(term) > 5 else 3 if len(term) > 3 else 2] for term in values if term.isascii()}
        self._heads = [head for head in heads if not any(head[:size] in heads for size in range(1, len(head)))]

    def places(self, text: str) -> list[tuple[int, int, str, T]]:
        """(start, end, term, value of the term) of every word that has one of the terms, in order."""
        known = self._known
        found: list[tuple[int, int, str, T]] = []
        if not text.isascii():
            for start, end, word in _spans(text):
                match = known[word] if word in known else self._learn(word)
                if match is not None:
                    found.append((start, end, *match))
            return found
        plain = text.lower()
        find, whole = plain.find, _ASCII_WORD.match
        for head in self._heads:
            start = find(head)
            while start >= 0:
                if not (start and plain[start - 1].isalnum()) and (span := whole(plain, start)) is not None:
                    word = span.group()
                    match = known[word] if word in known else self._learn(word)
                    if match is not None:
                        found.append((start, span.end(), *match))
                start = find(head, start + 1)
        found.sort(key=_first)
        return found

    def _learn(self, word: str) -> tuple[str, T] | None:
        """Finds out whether a word not met before has one of the terms; the exact form goes first."""
        plain = word if word.isascii() else _plain(word)
        plain = plain[:_LONGEST]
        match: tuple[str, T] | None = None
        for stemmer in self._stemmers:
            term = stemmer.stem(plain)
            if term in self._values:
                match = (term, self._values[term])
                break
        self._known[word] = match
        return match


_first = itemgetter(0)


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, word as written) of every word, and of every bigram of a spaceless script."""
    plain = text.lower()
    if len(plain) != len(text):
        plain = text
    plain = plain.translate(_DIGITS).replace("_", " ")
    for match in (_ASCII_WORD if plain.isascii() else _WORD).finditer(plain):
        word = match.group()
        if word.isascii() or _ANY_SPACELESS.search(word) is None:
            yield match.start(), match.end(), word
            continue
        for run in _RUN.finditer(word):
            at, piece = match.start() + run.start(), run.group()
            letters = _letters(piece) if _spaceless(piece) else [piece]
            if len(letters) == 1:
                yield at, at + len(piece), piece
            for one, two in pairwise(letters):
                yield at, at + len(one) + len(two), one + two
                at += len(one)

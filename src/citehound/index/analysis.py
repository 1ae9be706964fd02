"""Turns text into search terms: folding, stemming per language, bigrams for scripts without spaces; stores nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
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

T = TypeVar("T")

_LONGEST = 60
_CACHE_LIMIT = 200_000
_INVISIBLE = dict.fromkeys([0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF])
_LETTERS = str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "ß": "ss", "ŋ": "n"}
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
_ANY_SPACELESS = re.compile(f"[{_SPACELESS}]")
_COMPOUND = re.compile(r"(?<![^\W_])[^\W_]++(?:[._/\-][^\W_]++)+")


def fold(text: str) -> str:
    """Case, accents and compatibility forms gone: 'MÜLLER', 'Müller' and 'muller' are one."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", text.translate(_INVISIBLE)).casefold()
    text = "".join(c for c in text if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", text.translate(_LETTERS))


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
    text = unicodedata.normalize("NFKC", text.translate(_INVISIBLE)).lower().replace("_", " ")
    words = _WORD.findall(text)
    if _ANY_SPACELESS.search(text) is None:
        return words
    return [run for word in words for run in _RUN.findall(word)]


def _bigrams(run: str) -> list[str]:
    return [run] if len(run) < 2 else [run[i : i + 2] for i in range(len(run) - 1)]


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
    """Unstemmed words, single characters of spaceless scripts, compounds ('7.2', 'max_age')."""


def analyse(text: str, language: str | None) -> Terms:
    """All terms of a text."""
    words = _words(text)
    split = _split(words)
    exact = set(split)
    if not text.isascii():
        exact.update(character for word in words if _spaceless(word) for character in word)
        exact = set(_stemmer("")(list(exact)))
    exact.update(compounds(text))
    exact.discard("")
    return Terms(stems=[s for s in _stemmer(known_language(language))(split) if s], extras=exact)


def compounds(text: str) -> list[str]:
    """Words joined by dots, dashes, slashes or underscores, folded."""
    folded = (fold(c) for c in _COMPOUND.findall(text) if len(c) <= _LONGEST)
    return [c for c in folded if " " not in c]


@dataclass(frozen=True, kw_only=True)
class QueryTerm:
    """One word of a query: its stems in every language asked for, and its exact form."""

    stems: tuple[str, ...]
    exact: str


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
        plain = word if word.isascii() else unicodedata.normalize("NFKC", word.translate(_INVISIBLE)).lower()
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
    plain = plain.replace("_", " ")
    for match in (_ASCII_WORD if plain.isascii() else _WORD).finditer(plain):
        word = match.group()
        if word.isascii() or _ANY_SPACELESS.search(word) is None:
            yield match.start(), match.end(), word
            continue
        for run in _RUN.finditer(word):
            at, piece = match.start() + run.start(), run.group()
            if not _spaceless(piece) or len(piece) == 1:
                yield at, at + len(piece), piece
            else:
                for i in range(len(piece) - 1):
                    yield at + i, at + i + 2, piece[i : i + 2]

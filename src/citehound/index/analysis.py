"""Turns text into search terms: folding, stemming per language, bigrams for scripts without spaces; stores nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

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
_WORD = re.compile(f"[{_SPACELESS}]+|(?:(?![{_SPACELESS}])[^\\W_][{_MARKS}]*)+")
_COMPOUND = re.compile(r"\w+(?:[._/\-]\w+)+")
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")


@dataclass(frozen=True, kw_only=True)
class Token:
    """A word of the text at `[start, end)`, with the terms it is found by."""

    start: int
    end: int
    terms: tuple[str, ...]


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
    """Stems and folds words of one language, in batches; remembers what it did."""

    def __init__(self, language: str) -> None:
        self._known: dict[str, str] = {}
        builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
        name = STEMMERS.get(language)
        self._analyzer = builder.filter(tantivy.Filter.stemmer(name)).build() if name else None

    def __call__(self, words: list[str]) -> list[str]:
        known = self._known
        if len(known) > _CACHE_LIMIT:
            known = self._known = {}
        new = list({w for w in words if w not in known})
        if new:
            stems = self._analyzer.analyze(" ".join(new)) if self._analyzer else new
            if len(stems) != len(new):  # a word that the analyzer splits or drops
                stems = new
            for word, stem in zip(new, stems, strict=True):
                known[word] = fold(stem) or fold(word)
        return [known.get(w) or fold(w) for w in words]


@lru_cache(maxsize=64)
def _stemmer(language: str) -> _Stemmer:
    return _Stemmer(language)


def known_language(language: str | None) -> str:
    """The ISO code when there is a stemmer for it ('de-AT' is 'de'), else ''."""
    code = (language or "").lower().replace("_", "-").split("-")[0]
    return code if code in STEMMERS else ""


def _words(text: str) -> list[str]:
    text = text if text.isascii() else unicodedata.normalize("NFKC", text.translate(_INVISIBLE))
    return _WORD.findall(text.lower())


def _bigrams(run: str) -> list[str]:
    return [run] if len(run) < 2 else [run[i : i + 2] for i in range(len(run) - 1)]


def _spaceless(word: str) -> bool:
    return not word.isascii() and _IS_SPACELESS.match(word) is not None


def _split(words: Iterable[str]) -> list[str]:
    out: list[str] = []
    for word in words:
        if _spaceless(word):
            out.extend(_bigrams(word))
        else:
            out.append(word[:_LONGEST])
    return out


def stems(text: str, language: str | None) -> list[str]:
    """The terms of `text` in order, stemmed for its language."""
    return _stemmer(known_language(language))(_split(_words(text)))


def extras(text: str) -> list[str]:
    """What a word is also found by: unstemmed, single characters of spaceless scripts, compounds ('7.2', 'max_age')."""
    words = _words(text)
    found: list[str] = []
    for word in words:
        if _spaceless(word):
            found.extend(word)
        else:
            found.append(word[:_LONGEST])
    folded = _stemmer("")(found)
    folded.extend(c for c in compounds(text) if len(c) <= _LONGEST)
    return folded


def compounds(text: str) -> list[str]:
    """Words joined by dots, dashes, slashes or underscores, folded."""
    return [fold(c) for c in _COMPOUND.findall(text)]


@dataclass(frozen=True, kw_only=True)
class QueryTerm:
    """One word of a query: its stems in every language asked for, and its exact form."""

    stems: tuple[str, ...]
    exact: str


def query_terms(text: str, languages: Iterable[str]) -> tuple[QueryTerm, ...]:
    """The distinct words of a query, in order. Never raises; operators and punctuation mean nothing."""
    split: list[str] = []
    for word in _words(text[:20_000]):
        split.extend(_split([word]))
    unique = list(dict.fromkeys(split))
    per_language = [_stemmer(code)(unique) for code in dict.fromkeys(["", *map(known_language, languages)])]
    terms: dict[str, QueryTerm] = {}
    for at, exact in enumerate(per_language[0]):
        if exact and exact not in terms:
            terms[exact] = QueryTerm(stems=tuple(dict.fromkeys(form[at] for form in per_language)), exact=exact)
    for compound in compounds(text[:20_000]):
        if len(compound) <= _LONGEST:
            terms.setdefault(compound, QueryTerm(stems=(), exact=compound))
    return tuple(terms.values())


def tokens(text: str, languages: Iterable[str]) -> list[Token]:
    """The words of a short text with their places, each with its terms in all `languages`."""
    codes = list(dict.fromkeys(["", *map(known_language, languages)]))
    spans: list[tuple[int, int]] = []
    words: list[str] = []
    for match in _WORD.finditer(text):
        word = unicodedata.normalize("NFKC", match.group()).lower()
        if _spaceless(word) and len(word) == match.end() - match.start():
            for i in range(max(1, len(word) - 1)):
                spans.append((match.start() + i, min(match.start() + i + 2, match.end())))
                words.append(word[i : i + 2])
        else:
            spans.append(match.span())
            words.append(word[:_LONGEST])
    forms = [_stemmer(code)(words) for code in codes]
    return [
        Token(start=start, end=end, terms=tuple({form[at] for form in forms})) for at, (start, end) in enumerate(spans)
    ]

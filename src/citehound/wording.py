# ruff: noqa: E501 - the tables of words read better unbroken
"""Words that checks rely on, per language (en, pt, de, es, fr, it, nl): function words, negations, conditions, stems."""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from typing import Protocol, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

LANGUAGES = ("en", "pt", "de", "es", "fr", "it", "nl")

_COMMON = {
    "en": "the of and to in is are that it for with as this by be or an at from within after which must shall has have "
    "was were its than not any each every on does no if their may can",
    "pt": "o os as do da dos das em no na nos nas que para com uma um por ao à é são foi deve não mais ou seu sua se e "
    "pelo pela após até",
    "de": "der die das und ist in zu den von mit dem des für auf ein eine nicht sich wird werden nach bei im als auch "
    "muss innerhalb einer einem eines oder sind",
    "es": "el la los las de y en que del se un una para con por es al lo su debe no son sus más o como desde hasta",
    "fr": "le la les de des du et en est un une que dans pour par sur au aux ne pas qui ce il elle doit sont ou plus "
    "avec dès l d",
    "it": "il lo la gli le di e in che è del della dei delle per con un una non da al alla nel sono deve entro si o ogni "
    "dopo",
    "nl": "de het een en van in is op te dat die voor met zijn niet aan er om door als bij moet binnen wordt worden of "
    "naar na",
}
_COMMON_SETS = {code: frozenset(words.split()) for code, words in _COMMON.items()}

_NEGATIONS = {
    "en": "not|no|never|none|nor|neither|cannot|\\w+n't|without|except|excepting|excluding|unless|only|if|"
    "provided(?= (?:that|however|always|the|a|an|no|each|all|any|such|you|we|he|she|it|they|there)\\b|,)|(?<=, )provided(?! (?:to|by|for|in|with|under|at|on|from|as)\\b)|"
    "subject to|other than|save|to the extent|notwithstanding|until|but|however|solely",
    "pt": "não|nunca|jamais|nem|nenhuma?|sem|exceto|salvo|exceção|a menos que|só|somente|apenas|se|desde que|caso|"
    "excluindo|mas|contudo|até que|sob reserva|à exceção",
    "de": "nicht|nie|niemals|keine?[rsmn]?|ohne|außer|ausgenommen|ausser|es sei denn|nur|ausschließlich|falls|wenn|"
    "sofern|soweit|vorbehaltlich|weder|noch nicht|aber|jedoch",
    "es": "no|nunca|jamás|ni|ning[uú]n[ao]?|sin|excepto|salvo|a menos que|sólo|solo|solamente|únicamente|si|siempre que|"
    "excluyendo|pero|hasta que|sujeto a",
    "fr": "ne|n'|pas|jamais|aucune?|ni|sans|sauf|excepté|hormis|à moins que|à moins de|seulement|uniquement|que si|si|"
    "sous réserve|à condition|pourvu que|mais|hors",
    "it": "non|mai|nessun[ao]?|né|senza|eccetto|salvo|tranne|a meno che|solo|soltanto|solamente|unicamente|se|purché|"
    "a condizione|qualora|ma|fatto salvo|esclus[aoie]",
    "nl": "niet|nooit|geen|noch|zonder|behalve|uitgezonderd|tenzij|alleen|slechts|uitsluitend|indien|als|mits|voor zover|"
    "maar|onder voorbehoud|behoudens",
}
CONDITIONS = {code: re.compile(rf"(?<![\w-])(?:{words})(?!\w)", re.IGNORECASE) for code, words in _NEGATIONS.items()}
CONDITIONS["fr"] = re.compile(rf"(?<!\w)(?:n'(?=\w)|(?:{_NEGATIONS['fr']})(?!\w))", re.IGNORECASE)
"""Per language: negations and words that restrict."""

_WORD = re.compile(r"[^\W_]+")

_VAGUE = {
    "en": "evidence clause record records information document documents documentation provision provisions mention "
    "statement detail details number amount value anything whether what which when where who how found find proof "
    "there any about regarding concerning between does did was were been being has have had not cannot such available "
    "stated specified exact specific current whose under into given rule requirement answer question text part",
    "pt": "cláusula registo registro informação documento documentos prova evidência menção sobre qual quais quando",
    "de": "nachweis klausel angabe angaben information dokument dokumente beleg hinweis über welche welcher",
    "es": "cláusula registro información documento documentos prueba evidencia mención sobre cuál cuándo",
    "fr": "clause preuve information document documents mention sur quel quelle quand",
    "it": "clausola prova informazione documento documenti menzione quale quando",
    "nl": "clausule bewijs informatie document documenten vermelding over welke wanneer",
}


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


_NAMES = {
    "en": "english",
    "pt": "portuguese",
    "de": "german",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "nl": "dutch",
}


_stemming = threading.Lock()
"""A stemmer keeps state while it works."""


@lru_cache(maxsize=16)
def _stemmer(language: str) -> _Stemmer:
    return cast(_Stemmer, snowballstemmer.stemmer(_NAMES.get(language, "english")))  # pyright: ignore[reportUnknownMemberType]


def guess_languages(text: str) -> tuple[str, ...]:
    """The languages whose function words the text has most of (several on a tie, none without any)."""
    tokens = _WORD.findall(text.casefold())
    scores = {code: sum(1 for token in tokens if token in common) for code, common in _COMMON_SETS.items()}
    best = max(scores.values())
    return tuple(code for code, score in scores.items() if score == best) if best else ()


def is_common(word: str, *, language: str | None = None) -> bool:
    """True for a function word of the language (without one: of any)."""
    known = (_COMMON_SETS[language],) if language in _COMMON_SETS and language else _COMMON_SETS.values()
    return any(word.casefold() in common for common in known)


def stems(text: str, *, language: str | None = None) -> tuple[str, ...]:
    """The words of a text, stemmed and without accents, in order; scripts without spaces give pairs of characters."""
    code = language if language in LANGUAGES else (guess_languages(text) or ("en",))[0]
    return tuple(stem for token in _WORD.findall(text.casefold()) for stem in _stem(token, code or "en"))


@lru_cache(maxsize=65536)
def _stem(token: str, language: str) -> tuple[str, ...]:
    if any("\u3040" <= c <= "\u9fff" for c in token):
        return tuple(token[i : i + 2] for i in range(len(token) - 1)) or (token,)
    with _stemming:
        stem = _stemmer(language).stemWord(token)
    return ("".join(c for c in unicodedata.normalize("NFD", stem) if not unicodedata.combining(c)),)


def content_stems(text: str, *, language: str | None = None) -> frozenset[str]:
    """The stems of words that carry a meaning of their own."""
    codes = (language,) if language in LANGUAGES else guess_languages(text) or ("en",)
    code = codes[0] or "en"
    dull = _COMMON_SETS[code] | _COMMON_SETS["en"] | frozenset(_VAGUE[code].split()) | frozenset(_VAGUE["en"].split())
    tokens = [
        t for t in _WORD.findall(text.casefold()) if t not in dull and (len(t) > 2 or t.isdigit() or not t.isascii())
    ]
    return frozenset(stem for token in tokens for stem in _stem(token, code))

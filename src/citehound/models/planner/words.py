"""Words, sentences, quantities and cue words of five languages for the offline planner; knows no corpus."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

from ...index.functionwords import FUNCTION_WORDS

_STEMMERS = {"en": "english", "de": "german", "pt": "portuguese", "es": "spanish", "fr": "french"}

_WORD = re.compile(r"[^\W_]+(?:[._'’-][^\W_]+)*", re.UNICODE)
_PART = re.compile(r"[^\W_]+", re.UNICODE)


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


def fold(text: str) -> str:
    """Lower case, without accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))


STOP: frozenset[str] = frozenset(word for words in FUNCTION_WORDS.values() for word in words)
_STOP_BY_LANGUAGE = FUNCTION_WORDS


def language_of(text: str) -> str:
    """The language whose function words the text uses most; 'en' when in doubt."""
    found = [fold(w) for w in _PART.findall(text)]
    scores = {k: sum(1 for w in found if w in stop) for k, stop in _STOP_BY_LANGUAGE.items()}
    best = max(scores, key=lambda k: (scores[k], k == "en"))
    return best if scores[best] > scores["en"] else "en"


@lru_cache(maxsize=65536)
def _stem(word: str, language: str) -> str:
    # A stemmer keeps state while it works, so each word gets its own; the cache makes that cheap.
    stemmer = cast(_Stemmer, snowballstemmer.stemmer(_STEMMERS[language]))  # pyright: ignore[reportUnknownMemberType]
    return fold(stemmer.stemWord(word.casefold()))


@dataclass(frozen=True, kw_only=True)
class Word:
    """One content word of a text: as written and as compared."""

    text: str
    stem: str
    start: int


def words(text: str, *, language: str) -> list[Word]:
    """Content words in order; function words and single letters are left out, numbers are kept."""
    found: list[Word] = []
    stop = _STOP_BY_LANGUAGE["en"] | _STOP_BY_LANGUAGE[language]
    for match in _PART.finditer(text):
        raw = match.group()
        low = fold(raw)
        if low in stop or (len(low) < 2 and not low.isdigit() and low.isascii()):
            continue
        found.append(Word(text=raw, stem=low if low.isdigit() else _stem(raw, language), start=match.start()))
    return found


def stems(text: str, *, language: str) -> frozenset[str]:
    return frozenset(w.stem for w in words(text, language=language))


def stem(word: str, *, language: str) -> str:
    return _stem(word, language)


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """A sentence, table row, list item or heading: exactly `text[start:end]` of the passage."""

    text: str
    start: int
    end: int


_END = re.compile(r"(?<=[.!?。！？])(?:[\"'”’)\]]*)\s+(?=[\"'“‘(\[]*[A-ZÀ-ÞÄÖÜ0-9¿¡“])|\n+|(?<=[。！？])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|no|nr|art|sec|inc|ltd|co|corp|st|mr|mrs|ms|dr|prof|approx|dept|fig|eq|resp|"
    r"z\.b|u\.a|d\.h|bzw|p\.ex|s\.a|[a-z])\.)$",
    re.IGNORECASE,
)


_CATCHWORD = re.compile(r"(?:§\s*)?\d+(?:\.\d+)*\.?\s+(?:[^\W\d_][\w’'-]*[ ]?){1,6}[.:]")
"""'7.2 Encryption.': belongs to the sentence it opens."""


def sentences(text: str) -> list[Sentence]:
    """Splits at sentence ends and line ends; a line that goes on in lower case is joined to the one before."""
    cuts: list[tuple[int, int]] = []
    for match in _END.finditer(text):
        before = text[: match.start()].rstrip("\"'”’)]")
        if "\n" in match.group():
            after = text[match.end() : match.end() + 1]
            if after.islower() and before and before[-1] not in ".!?:;|" and match.group().count("\n") == 1:
                continue
        elif _ABBREVIATION.search(before[-12:]):
            continue
        cuts.append((match.start(), match.end()))
    found: list[Sentence] = []
    at = 0
    for start, end in [*cuts, (len(text), len(text))]:
        piece = text[at:start]
        if start < len(text) and "\n" not in text[start:end] and _CATCHWORD.fullmatch(piece.strip()):
            continue
        left = len(piece) - len(piece.lstrip())
        piece = piece.strip()
        if piece:
            found.append(Sentence(text=piece, start=at + left, end=at + left + len(piece)))
        at = end
    return found


# quantities

_ONE_TO_TWELVE = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_NUMBER_WORDS = {
    **dict(zip(_ONE_TO_TWELVE, range(1, 13), strict=True)),
    **{
        "thirteen": 13,
        "fourteen": 14,
        "fifteen": 15,
        "twenty": 20,
        "thirty": 30,
        "forty": 40,
        "forty-eight": 48,
        "forty-five": 45,
        "fifty": 50,
        "sixty": 60,
    },
    **{"seventy-two": 72, "ninety": 90, "hundred": 100, "twenty-four": 24, "sixteen": 16, "eighteen": 18},
    **{"zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10},
    **{"zwölf": 12, "dreißig": 30, "dois": 2, "duas": 2, "três": 3, "quatro": 4, "cinco": 5, "seis": 6, "sete": 7},
    **{"oito": 8, "nove": 9, "dez": 10, "doze": 12, "trinta": 30, "dos": 2, "tres": 3, "cuatro": 4, "siete": 7},
    **{"ocho": 8, "nueve": 9, "diez": 10, "doce": 12, "treinta": 30, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5},
    **{"six": 6, "sept": 7, "huit": 8, "neuf": 9, "dix": 10, "douze": 12, "trente": 30},
}
_UNITS = {
    "second": "seconds? secs? sekunden? segundos? secondes?",
    "minute": "minutes? mins? minuten? minutos?",
    "hour": "hours? hrs? stunden? horas? heures?",
    "day": "days? tage?n? dias? días? jours?",
    "week": "weeks? wochen? semanas? semaines?",
    "month": "months? monate?n? mes meses mois",
    "year": "years? jahre?n? anos? años? ans? années?",
    "percent": "% percent prozent",
    "bit": "bits?",
    "byte": "bytes? kb mb gb tb kib mib gib tib",
    "times": "times mal vezes veces fois",
}
_UNIT_OF = {alternative: unit for unit, pattern in _UNITS.items() for alternative in pattern.split()}
_UNIT_PATTERN = "|".join(sorted(_UNIT_OF, key=len, reverse=True))
_NUMBER_PATTERN = r"\d[\d.,]*\d|\d|" + "|".join(sorted(map(re.escape, _NUMBER_WORDS), key=len, reverse=True))
_QUANTITY = re.compile(
    rf"(?<![\w.-])(?P<n>{_NUMBER_PATTERN})(?:\s*\(\s*\d+\s*\))?[\s -]*(?:calendar|business|working|full|"
    rf"consecutive)?[\s-]*"
    rf"(?P<u>{_UNIT_PATTERN})(?![\w])",
    re.IGNORECASE,
)
_SCALES = {"thousand": 1e3, "million": 1e6, "millionen": 1e6, "billion": 1e9, "milliarden": 1e9, "milliard": 1e9}
_SCALE = re.compile(rf"\b(?:{'|'.join(sorted(_SCALES, key=len, reverse=True))})(?=s?\b)", re.IGNORECASE)
_MONEY = re.compile(
    rf"(?:(?:US\s*)?[$€£]\s?|\b(?:USD|EUR|GBP|CHF|BRL|R\$)\s?)\d[\d.,]*\d?(?:(?<![.,])\s{_SCALE.pattern}s?)?|"
    rf"\b\d[\d.,]*(?:\s{_SCALE.pattern}s?\s?(?:d['’]|de\s)?)?\s?(?:€|\bEUR\b|\bUSD\b|"
    r"\bdollars\b|\beuros?\b|\bcents?\b|\bpence\b)",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\b\d{4}-\d{2}(?:-\d{2})?\b|\b\d{1,2}\.? (?:of |de )?[A-Za-zäçéû]{3,10},? (?:de )?\d{4}\b|"
    r"\b[A-Z][a-z]{2,8} \d{1,2}(?:st|nd|rd|th)?,? \d{4}\b|\b(?:1[89]|20)\d{2}\b"
)
_DAY = re.compile(
    r"\b\d{1,2}:\d{2}\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|"
    r"\b(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last|\d+(?:st|nd|rd|th)) (?:\w+ )?day\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(rf"(?<![\w.-])(?:{_NUMBER_PATTERN})(?![\w])", re.IGNORECASE)
_TIMES = ("second", "minute", "hour", "day", "week", "month", "year")


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number with a unit, as it stands in a text."""

    text: str
    value: float
    unit: str
    start: int

    @property
    def is_time(self) -> bool:
        return self.unit in _TIMES


def _number(text: str) -> float | None:
    low = text.casefold()
    if low in _NUMBER_WORDS:
        return float(_NUMBER_WORDS[low])
    plain = low.replace(",", "") if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", low) else low.replace(",", ".")
    try:
        return float(plain)
    except ValueError:
        return None


def _unit(text: str) -> str | None:
    low = text.casefold()
    for alternative, unit in _UNIT_OF.items():
        if re.fullmatch(alternative, low):
            return unit
    return None


def quantities(text: str) -> list[Quantity]:
    """Numbers with a unit of time, share or size, in order."""
    found: list[Quantity] = []
    for match in _QUANTITY.finditer(text):
        value, unit = _number(match.group("n")), _unit(match.group("u"))
        if value is not None and unit is not None:
            found.append(Quantity(text=match.group(), value=value, unit=unit, start=match.start()))
    for match in _MONEY.finditer(text):
        digits = re.search(r"\d[\d.,]*", match.group())
        value = _number(digits.group().rstrip(".,")) if digits is not None else None
        if value is not None:
            scale = _SCALE.search(match.group())
            value *= _SCALES[scale.group().lower()] if scale is not None else 1
            found.append(Quantity(text=match.group().rstrip(".,"), value=value, unit="money", start=match.start()))
    return sorted(found, key=lambda q: q.start)


# cues

_REQUIREMENT = re.compile(
    r"\b(?:must|shall|needs?(?: to)?|requires?|required|mandatory|obliged|at least|at most|no later than|"
    r"not later than|no more than|"
    r"within \S+(?: \(\d+\))? (?:\w+ )?(?:minutes?|hours?|days?|weeks?|months?|years?)|every (?:calendar )?(?:year|"
    r"month|quarter|week)|"
    r"(?:once|twice) (?:a|per|every) \w+|only with|may not|is not allowed|prior (?:written )?(?:consent|approval|"
    r"notice)|"
    r"unless|prohibited|forbidden|"
    r"muss|müssen|darf nicht|soll|sollen|mindestens|höchstens|spätestens|innerhalb|erforderlich|verpflichtet|jährlich|"
    r"deve|devem|precisa|exige|pelo menos|no mínimo|no máximo|no prazo de|até|obrigatório|obrigatória|"
    r"debe|deben|exige|al menos|como mínimo|a más tardar|dentro de|obligatorio|obligatoria|"
    r"doit|doivent|exige|au moins|au plus|au plus tard|dans un délai|obligatoire)\b",
    re.IGNORECASE,
)


_VERSION = re.compile(r"\b(?:v|version|ver|rev|release)[ ._-]?\d[\w.]*\b|\bv\d+\b", re.IGNORECASE)


@lru_cache(maxsize=65536)
def plain_title(title: str) -> str:
    """Folded, without versions, brackets and punctuation: what another text would write."""
    bare = re.sub(r"\([^)]*\)", " ", title)
    bare = _VERSION.sub(" ", bare)
    return " ".join(re.findall(r"[^\W_]+", fold(bare)))


def requires(sentence: str) -> bool:
    """True when the sentence asks something of somebody."""
    return _REQUIREMENT.search(sentence) is not None


_CHANGE = re.compile(
    r"\b(?:changed?|changes|still|before|previous(?:ly)?|earlier|formerly|former|older?|lowered|raised|increased|"
    r"reduced|"
    r"no longer|stop(?:ped)?|used to|removed|dropped|replaced?|since|until|latest|recent(?:ly)?|up to date|out of date|"
    r"new(?:er|est)?|later|now|any ?more|history|added|introduced|deprecated|version|release|about to|amend(?:ed|"
    r"ment|s)?|was|did|"
    r"noch|bisher|früher|vorher|geändert|seit|neu(?:e|er|es)?|jetzt|inzwischen|"
    r"ainda|antes|anterior|mudou|alterad[oa]|desde|agora|versão|"
    r"todavía|aún|cambi(?:ó|ado)|anterior|ahora|versión|"
    r"encore|avant|précédent|changé|modifié|depuis|maintenant)\b",
    re.IGNORECASE,
)
_OLDER = re.compile(
    r"\b(?:what was|was|were|did|before|previous(?:ly)?|earlier|formerly|former|older|lowered|raised|reduced|"
    r"from what|no longer|"
    r"stop(?:ped)?|used to|removed|dropped|replaced|version \d+|v\d+|changed?|bisher|früher|vorher|geändert|antes|"
    r"anterior|"
    r"mudou|alterad[oa]|cambi(?:ó|ado)|avant|précédent|changé)\b|\bv\d+\b",
    re.IGNORECASE,
)
_CHANGELOG = re.compile(
    r"change[-_ ]?log|\bchanges\b|\bhistory\b|release[-_ ]?notes?|\breleases?\b|\bnews\b|what'?s[-_ ]?new|amendment|"
    r"addendum|"
    r"circular|\bupdates?\b|änderung|aenderung|alteraç|aditamento|cambios|adenda|modification|avenant|journal des",
    re.IGNORECASE,
)


def asks_for_change(question: str) -> bool:
    return _CHANGE.search(question) is not None


def asks_for_older(question: str) -> bool:
    return _OLDER.search(question) is not None


def is_changelog(name: str) -> bool:
    """True for titles and ids of documents that record changes."""
    return _CHANGELOG.search(name.replace("/", " ")) is not None


_COMPARE = re.compile(
    r"\b(?:compl(?:y|ies|iant|iance)|conform(?:s|ity)?|meets?|compar(?:e|ed|es|ison)|differ(?:s|ence|ent)?|versus|"
    r"vs|sooner|later|"
    r"longer|shorter|enough|allowed|permitted|right|correct|consistent|in line|fulfil(?:s|led)?|satisf(?:y|ies)|"
    r"violat\w+|breach|"
    r"as opposed to|instead|both|each|entspricht|erfüllt|verglichen|unterschied|erlaubt|richtig|cumpre|conforme|"
    r"respeita|diferença|"
    r"permitid[oa]|cumple|diferencia|respecte|différence|autorisé)\b",
    re.IGNORECASE,
)
_INTERROGATIVE = re.compile(
    r"\b(?:what|which|who|whom|whose|when|where|why|how|was|welche[rs]?|wer|wann|wo|wie|warum|qual|quais|quem|"
    r"quando|onde|quanto|"
    r"como|qué|cuál|quién|cuándo|dónde|cuánto|cómo|quel(?:le)?s?|qui|quand|où|combien|comment)\b",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"^\W*(?:is|are|does|do|did|can|could|may|must|should|has|have|was|were|will|would|am|ist|sind|darf|dürfen|kann|"
    r"können|muss|"
    r"hat|haben|está|é|são|pode|podem|deve|tem|puede|pueden|debe|tiene|est-ce|peut|doit|a-t)\b",
    re.IGNORECASE,
)


_IMPERATIVE = re.compile(
    r"^\W*(?:and |please )*(?:tell|give|list|name|find|show|summari[sz]e|describe|explain|compare|check|say|state|"
    r"nenne|liste|erkläre|beschreibe|fasse|diga|liste|resuma|descreva|explique|resume|describe|résume[zr]?|décri[st]|cite)\b",
    re.IGNORECASE,
)


def asks(part: str) -> bool:
    """True when a part of a question asks or demands something, and doesn't merely tell."""
    said = part.rstrip(" \"'”’)")
    if said.endswith("?") or _IMPERATIVE.search(part) is not None:
        return True
    if said.endswith((".", "!")):
        return False
    opening = " ".join(part.split()[:4])
    return _INTERROGATIVE.search(opening) is not None or _YES_NO.search(part) is not None


_SUMMARY = re.compile(
    r"\b(?:summari[sz]e|summary|overview|outline|sum up|what (?:does|do) .{3,80} (?:say|cover|contain)|zusammenfass\w+|"
    r"fasse .+ zusammen|überblick|resuma|resumo|resumen|résum\w+|aperçu)\b",
    re.IGNORECASE,
)


def asks_for_summary(question: str) -> bool:
    return _SUMMARY.search(question) is not None


_COUNTED = re.compile(
    r"(?:how many|number of|wie viele|quant[oa]s|cuánt[oa]s|combien de)\s+(?P<what>[^\W\d_]+(?:\s+[^\W\d_]+)?)",
    re.IGNORECASE,
)


def number_of(clause: str, *, language: str) -> str | None:
    """The stem of what 'how many …' or 'number of …' wants counted."""
    match = _COUNTED.search(clause)
    found = words(match.group("what"), language=language) if match is not None else []
    return found[0].stem if found else None


def is_number(word: str) -> bool:
    """True for a number in digits or in words."""
    return _number(word) is not None


def numbers(text: str) -> list[float]:
    """Every number that stands in a text, in digits or in words."""
    found = (_number(match.group()) for match in _NUMBER.finditer(text))
    return [number for number in found if number is not None]


def is_unit(word: str) -> bool:
    """True for a unit of time, share or size."""
    return _unit(word) is not None


def compares(question: str) -> bool:
    return _COMPARE.search(question) is not None


_ELLIPSIS = re.compile(
    r"^(?:(?:and|but|or|und|e|y|et)\s+)?(?:"
    r"how\s+(?:does|do|did|is|are)\s+(?P<a>.+?)\s+(?:compared?|differ(?:ent)?)(?:\s+(?:to|with|from|in)\s+(?:it|that|this|them))?|"
    r"(?:what|how)\s+about\s+(?P<b>.+?)|wie\s+(?:ist|war|sieht)\s+(?:es|das)\s+(?:bei|mit|in|für)\s+(?P<c>.+?)(?:\s+aus)?"
    r")\s*\??$",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<!^)\b(?:[A-ZÀ-Þ][\w.’'-]*|[\w.-]*\d[\w.-]*)\b")


def clauses(question: str) -> list[str]:
    """The question cut where a new thing is asked or a new sentence begins.

    A clause that asks the same of something else ("and how does B compare?") is given what the clause before it asks
    for, without the names in that.
    """
    parts = re.split(
        r"(?<=[.?!;])\s+|,\s+(?=(?:and|or|but|und|oder|e|ou|y|o|et|which|who|what|how|since|when|where)\b)", question
    )
    found: list[str] = []
    for part in parts:
        for piece in re.split(
            r"\s+(?=(?:and|und|e|y|et)\s+(?:what|which|who|whom|when|where|how|was|wer|wie|wann|qual|quem)\b)", part
        ):
            if not piece.strip():
                continue
            same = _ELLIPSIS.match(piece.strip()) if found and asks(found[-1]) else None
            if same is None:
                found.append(piece.strip())
            else:
                topic = found[-1].rstrip(" ?.!,;")
                if language_of(question) != "de":  # where every noun is written as a name
                    topic = " ".join(_NAME.sub("", topic).split())
                found.append(f"{topic} {next(filter(None, same.groups()))}?")
    return found


def parts_asked(question: str) -> int:
    """How many separate things are asked, by interrogative words and sentences."""
    return sum(1 for c in clauses(question) if _INTERROGATIVE.search(c) or _YES_NO.search(c))


_STRONG_CHANGE = re.compile(
    r"\b(?:still|changed?|before|previous(?:ly)?|formerly|former|lowered|raised|reduced|no longer|stop(?:ped)?|"
    r"used to|since when|"
    r"since which|about to|later|replaced|removed|out of date|up to date|recently|any ?more|noch|bisher|früher|"
    r"geändert|ainda|antes|"
    r"mudou|todavía|aún|cambió|encore|avant|changé)\b",
    re.IGNORECASE,
)


def is_simple(question: str) -> bool:
    """True for one question (a sentence may tell its context) of at most two things, no comparison and no change."""
    found = [s for s in re.split(r"(?<=[.?!])\s+", question.strip()) if s]
    asking = [s for s in found if asks(s)] or found
    return (
        len(asking) == 1
        and len(found) <= 2
        and parts_asked(question) <= 2
        and not (_YES_NO.search(question) and compares(question))
        and not _STRONG_CHANGE.search(question)
    )


def is_yes_no(question: str) -> bool:
    last = clauses(question)
    return any(_YES_NO.search(c) for c in last)


_WANTS = (
    (
        "duration",
        r"how (?:long|soon|quickly|fast|far ahead|often|much (?:warning|notice|time))|by when|deadline|within how|"
        r"notice period|"
        r"wie (?:lange|oft|schnell)|quanto tempo|com que frequência|cuánto tiempo|combien de temps|"
        r"how many (?:hours|days|weeks|months|years)",
    ),
    (
        "money",
        r"how much|what amount|price|cost|(?<!in )charge|fee|\bpay|\bcap\b|\bowe\b|wie viel|preis|quanto custa|preço|"
        r"cuánto cuesta|precio|prix|montant",
    ),
    ("percent", r"percent|percentage|(?:a|the|what) share|\brate\b|prozent|percentagem|porcentaje|pourcentage"),
    ("date", r"\bwhen\b|which date|what date|what day|\bwann\b|quando|cuándo|quand\b"),
    ("number", r"how many|number of|highest|lowest|maximum|minimum|wie viele|quantos|quantas|cuántos|cuántas|combien"),
)
_WANTS_RE = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _WANTS)


def wanted(question: str) -> frozenset[str]:
    """Kinds of value the question asks for: duration, money, percent, date, number."""
    return frozenset(kind for kind, pattern in _WANTS_RE if pattern.search(question))


def has_value(text: str, kind: str) -> bool:
    """True when the text holds a value of this kind."""
    match kind:
        case "duration":
            return (
                any(q.is_time for q in quantities(text))
                or re.search(
                    r"\b(?:daily|weekly|monthly|yearly|annual(?:ly)?|immediately|undue delay|(?:once|twice|"
                    r"\w+ times?) an? \w+|"
                    r"every (?:\w+ )?(?:day|week|month|quarter|year|hour|(?:mon|tues|wednes|thurs|fri|satur|sun)day)|"
                    r"\d{1,2}:\d{2}|"
                    r"täglich|jährlich|anual(?:mente)?|immédiatement)\b",
                    text,
                    re.IGNORECASE,
                )
                is not None
            )
        case "money":
            return (
                _MONEY.search(text) is not None
                or re.search(r"no charge|free of charge|kostenlos|gratuit", text, re.I) is not None
            )
        case "percent":
            return any(q.unit == "percent" for q in quantities(text)) or "%" in text
        case "date":
            return _DATE.search(text) is not None or _DAY.search(text) is not None
        case _:
            return _NUMBER.search(text) is not None


@dataclass(frozen=True, kw_only=True)
class Month:
    year: int
    month: int | None


_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january januar janeiro enero janvier",
            "february februar fevereiro febrero février",
            "march märz março marzo mars",
            "april abril avril",
            "may mai maio mayo",
            "june juni junho junio juin",
            "july juli julho julio juillet",
            "august agosto août",
            "september setembro septiembre septembre",
            "october oktober outubro octubre octobre",
            "november novembro noviembre novembre",
            "december dezember dezembro diciembre décembre",
        ),
        start=1,
    )
    for name in names.split()
}


def months(text: str) -> list[Month]:
    """Years, with their month where one is named ('January 2026', '2026-01', 'the end of 2023')."""
    found: list[Month] = []
    for match in re.finditer(r"\b(?:1[89]|20)\d{2}\b", text):
        before = re.findall(r"[^\W\d_]+", text[max(0, match.start() - 24) : match.start()])
        after = re.match(r"[-/](\d{2})\b", text[match.end() :])
        month = next((_MONTHS[w.casefold()] for w in reversed(before[-3:]) if w.casefold() in _MONTHS), None)
        if after is not None and 1 <= int(after.group(1)) <= 12:
            month = int(after.group(1))
        found.append(Month(year=int(match.group()), month=month))
    return found


_SPAN = re.compile(
    r"\b[A-ZÀ-Þ][\w&’'.-]*(?:[ ](?:(?:of|the|de|da|do|und|für|del|du|des|and|for)[ ])?[A-ZÀ-Þ0-9][\w&’'-]*)*"
)
_REFERENCE = re.compile(
    r"\b(?:Annex|Appendix|Schedule|Exhibit|Attachment|Addendum|Amendment|Anhang|Anlage|Anexo|Apêndice|"
    r"Annexe)\s+(?:[IVXLC]+|[A-Z]|\d+)\b"
    r"(?:\s*[:–-]\s*(?P<title>[A-Z][\w ]{2,40}?)(?=[.;,)\n]|$))?"
)
_CODE = re.compile(
    r"(?<![\w/@])(?:--)?[A-Za-z][\w]*(?:[._-][\w]+)*[._][\w.-]*\w(?!\w)|(?<![\w])--[a-z][\w.-]+\w|"
    r"\bv?\d+\.\d+(?:\.\d+)*\b"
)


def capitalised(text: str) -> Iterable[str]:
    """Runs of capitalised words that do not merely open a sentence."""
    for match in _SPAN.finditer(text):
        span = match.group().strip(" .,'’-")
        parts = span.split()
        opens = match.start() == 0 or re.search(r"[.!?:\n|]\s*$|^\s*$|\d\s+$", text[: match.start()][-4:]) is not None
        if opens and len(parts) == 1:
            continue
        if opens and fold(parts[0]) in STOP:
            span = " ".join(parts[1:])
        if len(span) > 2:
            yield span


def references(text: str) -> Iterable[str]:
    """'Annex III', 'Schedule A', with the title that follows a colon."""
    for match in _REFERENCE.finditer(text):
        yield match.group()


def code_words(text: str) -> Iterable[str]:
    """Identifiers, option names, dotted keys and version numbers."""
    for match in _CODE.finditer(text):
        yield match.group()

# ruff: noqa: E501 - the tables of words read better unbroken
"""The quantities of a text (numbers with a unit class, dates, amounts, rates, names with digits) and when two agree.

Seven languages: en, pt, de, es, fr, it, nl. Knows nothing of quotes, claims or documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import lru_cache

from .wording import LANGUAGES, guess_languages, is_common


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One quantity as it stands in a text.

    `unit` is a class: 'hour', 'month', 'percent', 'EUR', 'byte', 'count', 'date', 'rate' (times per month or per hour),
    'ordinal', 'name' (letters and digits, as AES-256) ...; `values` are its readings in the class's base (several when
    the writing is ambiguous); dates and names are in `names`.
    """

    text: str
    unit: str
    start: int
    end: int
    values: tuple[Fraction, ...] = ()
    names: tuple[str, ...] = ()
    digits: int = 0
    """Decimals shown, for rounding."""


# --- number words ---------------------------------------------------------------------------------------------------

_EN_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_ONES = {
    "en": _EN_ONES,
    "pt": "zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze dezasseis dezassete dezoito dezanove",
    "de": "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn",
    "es": "cero un dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete dieciocho diecinueve",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit dix-neuf",
    "it": "zero un due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici diciassette diciotto diciannove",
    "nl": "nul een twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien zestien zeventien achttien negentien",
}
_TENS = {
    "en": "twenty thirty forty fifty sixty seventy eighty ninety",
    "pt": "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa",
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "es": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
    "fr": "vingt trente quarante cinquante soixante",
    "it": "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    "nl": "twintig dertig veertig vijftig zestig zeventig tachtig negentig",
}
_MORE = {
    "en": {"a dozen": 12, "fourty": 40},
    "pt": {"uma": 1, "duas": 2, "quatorze": 14, "dezesseis": 16, "dezessete": 17, "dezenove": 19, "meia dúzia": 6},
    "de": {"eine": 1, "einen": 1, "einem": 1, "einer": 1, "eines": 1, "eins": 1, "zwo": 2, "dreissig": 30, "fuenf": 5},
    "es": {"una": 1, "uno": 1, "veintiún": 21, "veintidós": 22, "veintitrés": 23, "veintiséis": 26},
    "fr": {"une": 1},
    "it": {"una": 1, "uno": 1, "un'": 1},
    "nl": {"één": 1},
}
_HUNDREDS = {
    "en": {"hundred": 100},
    "pt": {"cem": 100, "cento": 100, "duzentos": 200, "duzentas": 200, "trezentos": 300, "trezentas": 300, "quatrocentos": 400, "quinhentos": 500, "seiscentos": 600, "setecentos": 700, "oitocentos": 800, "novecentos": 900},
    "de": {"hundert": 100, "einhundert": 100},
    "es": {"cien": 100, "ciento": 100, "doscientos": 200, "trescientos": 300, "cuatrocientos": 400, "quinientos": 500, "seiscientos": 600, "setecientos": 700, "ochocientos": 800, "novecientos": 900},
    "fr": {"cent": 100, "cents": 100},
    "it": {"cento": 100, "duecento": 200, "trecento": 300, "quattrocento": 400, "cinquecento": 500},
    "nl": {"honderd": 100},
}  # fmt: skip
_THOUSANDS = {
    "en": "thousand",
    "pt": "mil",
    "de": "tausend",
    "es": "mil",
    "fr": "mille",
    "it": "mille|mila",
    "nl": "duizend",
}
_AND = {"en": "and", "pt": "e", "de": "und", "es": "y", "fr": "et", "it": "e", "nl": "en"}


@lru_cache(maxsize=16)
def _small(language: str) -> dict[str, int]:
    """Every phrase for 0 to 99."""
    ones = _ONES[language].split()
    tens = _TENS[language].split()
    table: dict[str, int] = {word: i for i, word in enumerate(ones)}
    for i, ten in enumerate(tens, start=2):
        table[ten] = i * 10
        for one in range(1, 10):
            value, word = i * 10 + one, ones[one]
            match language:
                case "en":
                    forms = [f"{ten}-{word}", f"{ten} {word}"]
                case "pt":
                    forms = [
                        f"{ten} e {w}" for w in ([word, "uma"] if one == 1 else [word, "duas"] if one == 2 else [word])
                    ]
                case "de":
                    forms = [f"{word}und{ten}"]
                case "es":
                    forms = [f"{ten} y {word}", f"{ten} y {word}o", f"{ten} y {word}a"] if i > 2 else [f"veinti{word}"]
                case "fr":
                    forms = [f"{ten}-{word}", f"{ten} {word}", f"{ten} et {word}", f"{ten}-et-{word}"]
                case "it":
                    stem = ten[:-1] if one in (1, 8) else ten
                    forms = [stem + word, stem + word + "o", ten + ("tré" if one == 3 else word)]
                case _:
                    forms = [f"{word}{'ën' if word.endswith('e') else 'en'}{ten}"]
            table.update(dict.fromkeys(forms, value))
    if language == "fr":
        for one in range(0, 20):
            high = ones[one]
            if one >= 10:
                table.update(dict.fromkeys((f"soixante-{high}", f"soixante {high}", f"soixante et {high}"), 60 + one))
            table.update(dict.fromkeys((f"quatre-vingt-{high}", f"quatre-vingts {high}"), 80 + one))
        table.update({"quatre-vingts": 80, "quatre-vingt": 80, "septante": 70, "huitante": 80, "nonante": 90})
    table.update(_MORE[language])
    return table


_ONE_WORDS = {"en": ("one",), "pt": ("um", "uma"), "de": ("ein", "eine", "einen", "einem", "einer", "eines", "eins"), "es": ("un", "una", "uno"), "fr": ("un", "une"), "it": ("un", "una", "uno", "un'"), "nl": ("een", "één")}  # fmt: skip


@lru_cache(maxsize=16)
def _word_pattern(language: str) -> re.Pattern[str]:
    small = "|".join(re.escape(w) for w in sorted(_small(language), key=len, reverse=True))
    hundreds = "|".join(sorted(_HUNDREDS[language], key=len, reverse=True))
    thousand = _THOUSANDS[language]
    joined = "" if language in ("de", "nl", "it") else r"(?!\w)"
    lead = r"a |" if language == "en" else ""
    atom = rf"(?:(?:{lead}(?:{small}){joined}[ -]?)?(?:{hundreds}){joined}|(?:{small})(?!\w))"
    link = rf"(?:[ -](?:{_AND[language]} )?|(?:{_AND[language]})?)" if joined == "" else rf"[ -](?:{_AND[language]} )?"
    below = rf"(?:{atom}(?:{link}(?:{small})(?!\w))?|(?:{small}){joined})"
    return re.compile(
        rf"(?<![\w-])(?:(?:a |{below}[ -]?)?(?:{thousand}){joined}(?:{link}{below})?|{below})(?![\w])", re.IGNORECASE
    )


def _word_value(text: str, language: str) -> int | None:
    """The value of a number phrase that `_word_pattern` matched, None when it is none after all."""
    rest = text.casefold()
    small, hundreds = _small(language), _HUNDREDS[language]
    ordered = sorted([*small, *hundreds, *_THOUSANDS[language].split("|")], key=len, reverse=True)
    folded = {word.casefold(): word for word in ordered}
    total = current = 0
    seen = False
    while rest:
        word = next((w for w in folded if rest.startswith(w)), None)
        if word is None:
            trimmed = re.sub(rf"^(?:[ -]+|{_AND[language]}(?=[ \w])|a )", "", rest)
            if trimmed == rest:
                return None
            rest = trimmed
            continue
        original = folded[word]
        rest = rest[len(word) :]
        seen = True
        if original in hundreds:
            size = hundreds[original]
            current = (current or 1) * 100 if size == 100 and current < 10 else current + size
        elif original in _THOUSANDS[language].split("|"):
            total += (current or 1) * 1000
            current = 0
        else:
            current += small[original]
    return total + current if seen else None


# --- units ----------------------------------------------------------------------------------------------------------

_TIME: dict[str, str] = {
    "millisecond": r"milliseconds?|ms|msecs?|millisegundos?|milissegundos?|millisekunden?|millisecondes?|millisecond[oi]",
    "second": r"seconds?|secs?|segundos?|sekunden?|secondes?|second[oi]|seconden?",
    "minute": r"minutes?|mins?|minutos?|minuten?|minut[oi]|minuut",
    "hour": r"hours?|hrs?|h|horas?|stunden?|std\.?|heures?|or[ae]|uur|uren",
    "day": r"(?:calendar |consecutive )?days?|(?:kalender)?tage?n?|dias?(?: (?:corridos|consecutivos|seguidos))?|días?(?: naturales)?|jours?(?: calendaires)?|giorn[oi]|dag(?:en)?",
    "business day": r"(?:business|working|banking|work)[ -]days?|dias úteis|dia útil|werktage?n?|arbeitstage?n?|geschäftstage?n?|bankarbeitstage?n?|días? (?:hábil(?:es)?|laborables?)|jours? (?:ouvrables?|ouvrés?)|giorn[oi] lavorativ[oi]|werkdag(?:en)?",
    "week": r"weeks?|semanas?|wochen?|semaines?|settiman[ae]|we(?:ek|ken)",
    "month": r"(?:calendar )?months?|m[eê]s(?:es)?|monate?n?s?|mois|mes[ei]|maand(?:en)?",
    "quarter": r"quarters?|trimestres?|quartale?n?|trimestr[ei]|kwarta(?:al|len)",
    "year": r"(?:calendar )?years?|yrs?|anos?|jahre?n?s?|años?|ans?|années?|ann[oi]|jaar|jaren",
}
_OTHER_UNITS: dict[str, str] = {
    "point": r"percentage points?|pontos percentuais|prozentpunkte?n?|puntos porcentuales|points de pourcentage|punti percentuali|procentpunt(?:en)?|pp",
    "bps": r"basis points?|bps|pontos base|basispunkte?n?|puntos básicos|points de base|punti base|basispunten",
    "permille": r"‰|per mille|promille",
    "percent": r"%|per ?cent|percent|pct\.?|por cento|prozent|por ciento|pour ?cents?|per cento|procent",
    "times": r"times|vezes|mal|veces|fois|volte|keer|x|×",
}
_MEASURES = {
    "°C": r"°\s?C|℃|degrees Celsius|Grad Celsius|graus Celsius|grados Celsius|degrés Celsius",
    "°F": r"°\s?F|degrees Fahrenheit",
    "km/h": r"km/h|kph|kilomet(?:re|er)s per hour",
    "mph": r"mph|miles per hour",
    "m²": r"m²|sqm|sq\. ?m|m2|square met(?:re|er)s?|Quadratmetern?|metros quadrados|metros cuadrados|mètres carrés|metri quadrati",
    "m³": r"m³|m3|cubic met(?:re|er)s?|Kubikmetern?",
    "km": r"km|[Kk]ilomet(?:re|er)s?|Kilometern?|quil[ôó]metros?|kil[óo]metros?|kilomètres?|chilometri?",
    "cm": r"cm|[Cc]entimet(?:re|er)s?|Zentimetern?|centímetros?|centimètres?|centimetri?",
    "mm": r"mm|[Mm]illimet(?:re|er)s?|Millimetern?|milímetros?|millimètres?|millimetri?",
    "m": r"m|[Mm]et(?:re|er)s?|Metern?|metros?|mètres?|metri",
    "mile": r"miles?",
    "foot": r"ft|feet|foot",
    "kg": r"kg|[Kk]ilograms?|[Kk]ilos?|Kilogramm|quilogramas?|kilogramos?|kilogrammes?",
    "litre": r"[Ll]it(?:re|er)s?|Litern?|litros?|litri",
    "kWh": r"kWh|kilowatt[- ]hours?|Kilowattstunden?",
    "MWh": r"MWh|megawatt[- ]hours?|Megawattstunden?",
    "kW": r"kW|kilowatts?|Kilowatt",
    "MW": r"MW|megawatts?|Megawatt",
    "dB": r"dB|decibels?|Dezibel|decib[eé]is|decibelios|décibels",
    "kHz": r"kHz|kilohertz",
    "MHz": r"MHz|megahertz",
    "GHz": r"GHz|gigahertz",
    "Hz": r"Hz|hertz",
}
_MEASURE_RES = tuple((unit, re.compile(rf"[ -]?(?:{words})(?![\w²³])")) for unit, words in _MEASURES.items())
"""Kept apart and never converted; symbols in their own case."""
_DATA = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4, "p": 1000**5}
_DATA_WORDS = {"kilo": "k", "mega": "m", "giga": "g", "tera": "t", "peta": "p"}
_CURRENCY = {
    "EUR": r"€|EUR|euros?",
    "GBP": r"£|GBP|pounds?(?: sterling)?|libras?|pfund|livres? sterling|sterline",
    "CAD": r"C\$|CA\$|CAD",
    "AUD": r"A\$|AU\$|AUD",
    "BRL": r"R\$|BRL|rea(?:l|is)",
    "USD": r"US\$|\$|USD|(?:US )?dollars?|d[oó]lares|dólar|dollari",
    "CHF": r"CHF|Fr\.|(?:Swiss )?francs?|franken|francos(?: suíços| suizos)?|franchi",
    "JPY": r"¥|JPY|yen",
    "INR": r"₹|INR|rupees?",
    "SEK": r"SEK",
    "NOK": r"NOK",
    "DKK": r"DKK",
    "PLN": r"PLN|zł",
    "CNY": r"CNY|RMB|yuan",
}
_SCALES = {
    r"k|K": 1000,
    r"thousand|thousands|mil|tausend|mille|mila|duizend|Tsd\.?": 1000,
    r"m|mn|mio\.?|millions?|million|millionen|milhão|milhões|millón|millones|milion[ei]|miljoen": 10**6,
    r"bn|b|billions?|mrd\.?|milliarden?|milliards?|bilhão|bilhões|mil milhões|mil millones|miliard[oi]|miljard": 10**9,
    r"trillions?|trilhões|billón|billones|billionen": 10**12,
}
_SCALE = "|".join(f"(?P<s{i}>{words if i == 0 else f'(?i:{words})'})" for i, words in enumerate(_SCALES))
_SCALE_RE = re.compile(rf"(?:\s|-(?=[^\W\d_]{{4}}))?(?:{_SCALE})(?!\w)(?! de [a-z]+ de)(?: de| d'| di)?")
_SCALE_FACTORS = tuple(_SCALES.values())
_ONLY_MONEY_SCALES = {"m", "M", "b", "B", "K"}
_UNIT_RES = tuple(
    (unit, re.compile(rf"[ -]?(?:{words})(?![\w])", re.IGNORECASE))
    for unit, words in (
        ("business day", _TIME["business day"]),
        *((u, w) for u, w in _TIME.items() if u != "business day"),
        *_OTHER_UNITS.items(),
    )
)
_CJK_UNITS = (
    ("business day", re.compile(r"\s?(?:個?营业日|営業日|个?工作日|영업일)")),
    ("hour", re.compile(r"\s?(?:時間|小时|小時|시간)")),
    ("month", re.compile(r"\s?(?:[かヶヵケカ箇]月間?|个月|個月|개월)")),
    ("week", re.compile(r"\s?(?:週間?|周|星期|주)")),
    ("year", re.compile(r"\s?(?:年間?|년)")),
    ("day", re.compile(r"\s?(?:日間?|天|일)")),
    ("minute", re.compile(r"\s?(?:分間?|分钟|分鐘|분)")),
)
_DATA_RE = re.compile(
    r"[ -]?(?:(?P<word>kilo|mega|giga|tera|peta)?(?P<wkind>bytes?|octets?|bits?)|(?P<p>[kKMGTP])(?P<i>i)?(?P<kind>B|b|bit|o))(?![\w])"
)
_MONEY_AFTER = re.compile(
    r"[ -]?(?:" + "|".join(f"(?P<{code}>{words})" for code, words in _CURRENCY.items()) + r")(?![\w])", re.IGNORECASE
)
_MONEY_BEFORE = re.compile(
    r"(?:" + "|".join(f"(?P<{code}>{words})" for code, words in _CURRENCY.items()) + r")\s?[-–]?$", re.IGNORECASE
)
_SECONDS = {"millisecond": Fraction(1, 1000), "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_MONTHS_IN = {"month": 1, "quarter": 3, "year": 12}


def _base(unit: str, value: Fraction) -> tuple[str, Fraction] | None:
    """The exact family and value of a duration: seconds (up to weeks) or months (up to years), never across."""
    if unit in _SECONDS:
        return "seconds", value * _SECONDS[unit]
    if unit in _MONTHS_IN:
        return "months", value * _MONTHS_IN[unit]
    return None


# --- dates ----------------------------------------------------------------------------------------------------------

_MONTH_NAMES = {
    1: "january|jan|janeiro|januar|jänner|enero|ene|janvier|janv|gennaio|januari",
    2: "february|feb|fevereiro|fev|februar|febrero|février|févr|febbraio|februari",
    3: "march|mar|março|märz|marzo|mars|maart",
    4: "april|apr|abril|abr|avril|avr|aprile",
    5: "may|maio|mai|mayo|maggio|mei",
    6: "june|jun|junho|juni|junio|juin|giugno",
    7: "july|jul|julho|juli|julio|juillet|luglio",
    8: "august|aug|agosto|ago|août|augustus",
    9: "september|sept|sep|setembro|set|septiembre|septembre|settembre",
    10: "october|oct|outubro|out|oktober|okt|octubre|octobre|ottobre",
    11: "november|nov|novembro|noviembre|novembre",
    12: "december|dec|dezembro|dez|dezember|diciembre|dic|décembre|déc|dicembre",
}
_MONTH_OF = {name: number for number, names in _MONTH_NAMES.items() for name in names.split("|")}
_ALSO_WORDS = {"may", "march", "mar", "out", "set", "ago", "mars", "dec", "dic"}
"""In small letters and without a year these are no months."""
_MONTH = "|".join(sorted(_MONTH_OF, key=len, reverse=True))
_DATE_RES = (
    re.compile(r"(?<![\w.-])(?P<y>\d{4})[-/](?P<m>\d{2})[-/](?P<d>\d{2})(?![\w-])"),
    re.compile(r"(?<![\w.年])(?P<y>\d{4})年(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})日)?"),
    re.compile(r"(?<![\w.,/-])(?P<a>\d{1,2})(?P<sep>[./-])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4}|\d{2})(?![\w])(?![./-]\d)"),
    re.compile(
        rf"(?<![\w.,])(?P<d>\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?(?: day)?(?: of| de| d'| di)? ?(?P<n>{_MONTH})\b\.?(?:(?: de| del| of|,)? (?P<y>\d{{4}}))?(?!\w)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?<!\w)(?P<n>{_MONTH})\b\.? (?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?![\d.])(?:(?:,| of)? (?P<y>\d{{4}}))?(?!\w)",
        re.IGNORECASE,
    ),
    re.compile(rf"(?<!\w)(?P<n>{_MONTH})\b\.?(?:,| de| del| of)? (?P<y>\d{{4}})(?!\w)", re.IGNORECASE),
    re.compile(r"(?<![\w.-])(?P<y>(?:19|20)\d{2})-(?P<m>0[1-9]|1[0-2])(?![\w-])"),
)


def _dates(text: str, language: str) -> list[Quantity]:
    found: list[Quantity] = []
    for pattern in _DATE_RES:
        for match in pattern.finditer(text):
            if any(q.start < match.end() and match.start() < q.end for q in found):
                continue
            if match.groupdict().get("n") in _ALSO_WORDS and not match.groupdict().get("y"):
                continue
            names = _date_names(match.groupdict(), language)
            if names:
                found.append(
                    Quantity(text=match.group(), unit="date", start=match.start(), end=match.end(), names=names)
                )
    return found


def _date_names(parts: dict[str, str | None], language: str) -> tuple[str, ...]:
    year = parts.get("y")
    if year is not None and len(year) == 2:
        year = f"20{year}" if int(year) < 70 else f"19{year}"
    a, b = parts.get("a"), parts.get("b")
    if a is not None and b is not None:
        pairs = {(int(b), int(a))}  # (month, day)
        if parts.get("sep") == "/" and language == "en":
            pairs.add((int(a), int(b)))
        return tuple(sorted(f"{year}-{m:02}-{d:02}" for m, d in pairs if 1 <= m <= 12 and 1 <= d <= 31))
    name = parts.get("n")
    month = _MONTH_OF[name.casefold()] if name is not None else int(parts.get("m") or 0)
    raw_day = parts.get("d")
    day = int(raw_day) if raw_day else None
    if not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return ()
    if year is None:
        return (f"-{month:02}-{day:02}",) if day is not None else ()
    if day is None:
        return (f"{year}-{month:02}",)
    try:
        date(int(year), month, day)
    except ValueError:
        return ()
    return (f"{year}-{month:02}-{day:02}",)


# --- rates ----------------------------------------------------------------------------------------------------------

_PERIODS = {
    "year": (_TIME["year"], "annual|annually|yearly|per annum|p\\. ?a\\.|anual|anuais|anualmente|jährliche?[rsnm]?|anuales|annuel(?:le)?s?|annuellement|annual[ei]|annualmente|jaarlijkse?"),
    "quarter": (_TIME["quarter"], "quarterly|trimestral(?:mente)?|trimestrais|vierteljährliche?[rsnm]?|quartalsweise|trimestrales|trimestriel(?:le)?s?|trimestriellement|trimestral[ei]|driemaandelijkse?"),
    "month": (_TIME["month"], "monthly|mensal(?:mente)?|mensais|monatliche?[rsnm]?|mensual(?:es|mente)?|mensuel(?:le)?s?|mensuellement|mensil[ei]|mensilmente|maandelijkse?"),
    "week": (_TIME["week"], "weekly|semanal(?:mente)?|semanais|wöchentliche?[rsnm]?|semanales|hebdomadaires?|settimanal[ei]|wekelijkse?"),
    "day": (_TIME["day"], "daily|diári[oa]s?|diariamente|tägliche?[rsnm]?|diari[oa]s?|quotidien(?:ne)?s?|giornalier[oaie]|dagelijkse?"),
    "hour": (_TIME["hour"], "hourly|stündliche?[rsnm]?"),
}  # fmt: skip
_PER = r"(?:a|an|per|each|every|por|pro|par|chaque|cada|all'|al|ao|à|im|je|jede[ns]?|l'|ogni|per|elke?|ieder|todos os|todas as|todos los|todas las|tous les|toutes les|any|the same)"
_FULL = r"(?:full |whole |single |started |commenced |volle[nrs]? |angefangene[nrs]? )?"
_TIMES_WORDS = {
    "once": 1,
    "twice": 2,
    "thrice": 3,
    "einmal": 1,
    "zweimal": 2,
    "dreimal": 3,
    "eenmaal": 1,
    "tweemaal": 2,
}
_TIMES = (
    r"(?:(?P<word>once|twice|thrice|einmal|zweimal|dreimal|eenmaal|tweemaal)"
    r"|(?P<n>\w+) (?:times|time|vez|vezes|mal|veces|fois|volta|volte|keer))"
)
_RATE_RES = tuple(
    (unit, re.compile(rf"(?<![\w-])(?:{_TIMES}(?: in| em| en| na| in der)? {_PER} ?(?:{nouns})|{_PER} ?{_FULL}(?:{nouns})|(?:{adjectives}))(?!\w)", re.IGNORECASE))
    for unit, (nouns, adjectives) in _PERIODS.items()
)  # fmt: skip
_EVERY_NTH = {"other": 2, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "fifth": 5, "sixth": 6}
_EVERY_N = re.compile(
    r"(?<!\w)(?:every|each|cada|a cada|alle|tous les|toutes les|ogni|elke|om de)\s+(?P<n>\d+|\w+(?:-\w+)?)[ -](?P<unit>[^\W\d_]+)(?!\w)",
    re.IGNORECASE,
)
_SPECIAL_RATES = (
    (re.compile(r"(?<!\w)(?:half-yearly|semi-?annual(?:ly)?|biannual(?:ly)?|halbjährlich\w*|semestral(?:mente)?|semestriel(?:le)?)(?!\w)", re.IGNORECASE), "month", Fraction(1, 6)),
    (re.compile(r"(?<!\w)(?:biennial(?:ly)?|every other year|every second year|bienal)(?!\w)", re.IGNORECASE), "month", Fraction(1, 24)),
    (re.compile(r"(?<!\w)(?:fortnightly|every other week|quinzenal(?:mente)?|vierzehntägig)(?!\w)", re.IGNORECASE), "second", Fraction(1, 2 * 604800)),
)  # fmt: skip


def _rate(unit: str, times: Fraction) -> tuple[str, Fraction] | None:
    base = _base(unit, Fraction(1))
    return None if base is None else (f"rate/{base[0]}", times / base[1])


def _unit_of(word: str) -> str | None:
    return next((u for u, words in _TIME.items() if re.fullmatch(words, word, re.IGNORECASE)), None)


def _small_number(word: str, languages: Sequence[str]) -> int | None:
    if word.isdigit():
        return int(word)
    for language in languages:
        value = _small(language).get(word.casefold())
        if value is not None:
            return value
    return None


def _rates(text: str, languages: Sequence[str]) -> list[Quantity]:
    found: list[Quantity] = []

    def add(start: int, end: int, rate: tuple[str, Fraction] | None) -> None:
        if rate is not None and not any(q.start < end and start < q.end for q in found):
            found.append(Quantity(text=text[start:end], unit=rate[0], values=(rate[1],), start=start, end=end))

    for match in _EVERY_N.finditer(text):
        number = _EVERY_NTH.get(match["n"].casefold()) or _small_number(match["n"], languages)
        unit = _unit_of(match["unit"])
        if unit is not None and number:
            add(match.start(), match.end(), _rate(unit, Fraction(1, number)))
    for pattern, unit, value in _SPECIAL_RATES:
        for match in pattern.finditer(text):
            add(match.start(), match.end(), (f"rate/{unit}s", value))
    for unit, pattern in _RATE_RES:
        for match in pattern.finditer(text):
            word, n = match["word"], match["n"]
            times = _TIMES_WORDS[word.casefold()] if word else _small_number(n, languages) if n else 1
            if times is None and not re.match(r"\S+ (?:times|vezes|veces|volte)\b", match.group(), re.IGNORECASE):
                times = 1  # "of the time each month"
            plain = re.match(r"(?:the same|any|an?)\b", match.group(), re.IGNORECASE) is not None
            if times is not None and (not plain or _after_amount(text, match.start())):
                add(match.start(), match.end(), _rate(unit, Fraction(times)))
    return found


_COUNTED = re.compile(
    r"(?:\d|(?<!\w)(?:"
    + "|".join([*_small("en"), "hundred", "thousand"])
    + r"))[ -](?:[^\W\d_]+|[^\W\d_]+ of(?: [^\W\d_]+){1,2})$",
    re.IGNORECASE,
)
"""'25 days of paid leave' before 'a year': the year is a rate."""


def _after_amount(text: str, at: int) -> bool:
    """True when 'a year' follows an amount or percentage, so that it is a rate and no duration."""
    before = text[max(0, at - 60) : at].rstrip()
    if _COUNTED.search(before) is not None:
        return True
    return bool(re.search(r"(?:[\d%€$£]|percent|per cent|euros?|dollars?|pounds?|million|fee|credit)$", before))


# --- names and numbers ----------------------------------------------------------------------------------------------

_LETTER = r"[^\W\d_\u3040-\u9fff\uac00-\ud7af]"
_NAME = re.compile(
    rf"(?<![^\W\u3040-\u9fff\uac00-\ud7af])(?<![.,-])(?:{_LETTER}{{1,12}}-\d+(?:[-.][A-Za-z0-9]+)*"
    rf"|{_LETTER}+\d+(?:\.\d+)*(?:{_LETTER}|\d)*(?:-[A-Za-z0-9]+)*|\d+[xX]\d+|\d+/\d+)(?![^\W\u3040-\u9fff\uac00-\ud7af])"
)
_NUMBER = re.compile(
    r"(?<![^\W\u3040-\u9fff\uac00-\ud7af])(?<!\.)(?<!\d,)(?P<sign>(?<![^\s(])[-−–])?(?P<n>\d{1,3}(?:[\u00a0\u202f\u2009' ]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*)"
)
_GLUED = re.compile(rf"(?!(?:[xX]|s)\b){_LETTER}+\d*(?!\w)")
"""What makes a name of the digits before it, as in '4players'; '10x' and '1990s' count."""
_ORDINAL_AFTER = re.compile(r"(?:\.?[ºª]|st|nd|rd|th|er|e|ème)(?!\w)")
_ORDINALS = {
    "en": "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
    "pt": "primeir[oa] segund[oa] terceir[oa] quart[oa] quint[oa] sext[oa] sétim[oa] oitav[oa] non[oa] décim[oa]",
    "de": "erste[rsnm]? zweite[rsnm]? dritte[rsnm]? vierte[rsnm]? fünfte[rsnm]? sechste[rsnm]? sieb(?:en)?te[rsnm]? achte[rsnm]? neunte[rsnm]? zehnte[rsnm]?",
    "es": "primer[oa]? segund[oa] tercer[oa]? cuart[oa] quint[oa] sext[oa] séptim[oa] octav[oa] noven[oa] décim[oa]",
    "fr": "premi(?:er|ère) (?:deuxième|second|seconde) troisième quatrième cinquième sixième septième huitième neuvième dixième",
    "it": "prim[oa] second[oa] terz[oa] quart[oa] quint[oa] sest[oa] settim[oa] ottav[oa] non[oa] decim[oa]",
    "nl": "eerste tweede derde vierde vijfde zesde zevende achtste negende tiende",
}
_ORDINAL_RES = {
    language: tuple(re.compile(rf"(?<![\w-])(?:{w})(?![\w-])", re.IGNORECASE) for w in ordinals.split())
    for language, ordinals in _ORDINALS.items()
}
_NUMBERED_PERIOD = re.compile(
    r"(?<!\w)(?:from|on|by|until|before|after) (?:day|week|month|quarter|year)\s$", re.IGNORECASE
)
"""'from day 3' is from the third day."""
_PARTS: dict[str, tuple[tuple[str, int], ...]] = {
    "en": (("thirds", 3), ("quarters of", 4), ("fourths", 4), ("fifths", 5), ("sixths", 6), ("eighths", 8), ("tenths", 10), ("third of", 3), ("quarter of", 4), ("fourth of", 4), ("fifth of", 5), ("sixth of", 6), ("eighth of", 8), ("tenth of", 10)),
    "pt": (("terços?", 3), ("quartos? d[aeo]s?", 4), ("quintos? d[aeo]s?", 5), ("décimos? d[aeo]s?", 10)),
    "de": (("drittel", 3), ("viertel", 4), ("fünftel", 5), ("sechstel", 6), ("achtel", 8), ("zehntel", 10)),
    "es": (("tercios?", 3), ("cuart[oa]s? (?:partes? )?del?", 4), ("quintos? del?", 5), ("décimos? del?", 10)),
    "fr": (("tiers", 3), ("quarts?", 4), ("cinquièmes?", 5), ("dixièmes?", 10)),
    "it": (("terzi", 3), ("terzo d(?:i|el\\w*)", 3), ("quart[oi] d(?:i|el\\w*)", 4), ("quint[oi] d(?:i|el\\w*)", 5), ("decim[oi] d(?:i|el\\w*)", 10)),
    "nl": (("derde", 3), ("kwart", 4), ("vierde", 4), ("vijfde", 5), ("tiende", 10)),
}  # fmt: skip
_HALF_OF = {
    "en": r"half (?:of|the|all|its|their)|one half|a half of|by half|halves",
    "pt": r"metade",
    "de": r"hälfte",
    "es": r"mitad",
    "fr": r"moitié",
    "it": r"metà",
    "nl": r"helft",
}
_ARTICLE = re.compile(r"(?<!\w)(?<!once )(?<!per )a$", re.IGNORECASE)
_AND_A_HALF = re.compile(r" (?:and a half|e mei[oa]|y medi[oa]|et demie?|e mezz[oa]|en een half)(?!\w)", re.IGNORECASE)
_HALF_A_MILLION = re.compile(
    r"(?<!\w)(?:half an?|(?:eine )?halbe|(?:um )?meio|medio)(?=\s(?:[mb]illion|milli?arde?|milhão|millón))",
    re.IGNORECASE,
)
_AND_HALF_WORDS = re.compile(
    r"(?<!\w)(?:(?P<n>ein|zwei|drei|vier|fünf|sechs|twee|drie|vier|vijf)(?:und)?(?:einhalb|ënhalf|eneenhalf)|anderthalb|anderhalf)(?!\w)",
    re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(
    r"(?<![\w:.,])(?:(?P<h>[01]?\d|2[0-3]|24(?=:00))(?::|h|\.(?=\d\d (?:Uhr|heures?|horas)))(?P<m>[0-5]\d)(?![:\d])|(?P<hour>[01]?\d|2[0-4])(?=\s?(?:[ap]\.?m\b|Uhr\b|o'clock)))"
    r"\s?(?:(?P<half>[ap])\.?m\b\.?|Uhr\b|h\b|o'clock)?",
    re.IGNORECASE,
)
_BY_A = re.compile(r"(?<!\w)by (?:a|one) (?P<part>third|quarter|fifth|tenth)(?![\w-])", re.IGNORECASE)
_BY_PARTS = {"third": 3, "quarter": 4, "fifth": 5, "tenth": 10}
_ONE_IN = re.compile(
    r"(?<!\w)(?:one|1)(?: [^\W\d_]+)? (?:in|out of)(?: every)? (?P<n>\d{1,3}|[a-z-]+)(?![\w.,]\w|\w)", re.IGNORECASE
)
_ADJECTIVE = re.compile(r" (?P<word>[^\W\d_]{3,})(?= )")
_OTHER_DAYS = frozenset(("trading", "school", "court", "settlement", "market", "banking", "sitting", "clear"))
"""A day of these is another unit than a day."""
_A_PERIOD = re.compile(
    rf"(?<!\w)(?:within|for|after|than|of|least|innerhalb|dentro de|over|during|in)\s+(?P<a>an?)\s+(?P<unit>{'|'.join(_TIME.values())})(?!\w)",
    re.IGNORECASE,
)
_HALF = re.compile(
    rf"(?<![\w-])(?<!and a )(?:half an? |half-|halbe[snr]? |ein halbe[snr]? |mei[oa] |medi[oa] |demi-|une? demi-|mezz[oa] |half )(?P<unit>{'|'.join(_TIME.values())})(?!\w)",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"\s*(?:-|–|—|(?:to|and|or|but|bis|und|oder|a|e|ou|y|o|à|et|tot|en|of|maar|mas|mais|pero|aber|ma),?"
    r"(?: (?:(?:at|no|not) (?:the )?(?:most|least|more than|less than)|up to|höchstens|maximal|mindestens|no máximo|no mínimo|como máximo"
    r"|como mínimo|al menos|a lo sumo|au plus|au moins|al massimo|almeno|hoogstens|ten hoogste|minstens))?|,?\s*(?:vs\.?|versus|against|not|rather than|instead of|gegen|statt"
    r"|contra|contre|em vez de|en vez de|au lieu de|invece di|in plaats van))\s*$",
    re.IGNORECASE,
)


def _readings(raw: str, language: str) -> tuple[Fraction, ...]:
    """The values a written number can have, the language's own reading first."""
    text = re.sub(r"[\u00a0\u202f\u2009' ]", "", raw)
    comma, dot = text.count(","), text.count(".")
    if comma and dot:
        last = "," if text.rfind(",") > text.rfind(".") else "."
        other = "." if last == "," else ","
        if text.count(last) > 1:
            return ()
        return (Fraction(text.replace(other, "").replace(last, ".")),)
    mark = "," if comma else "." if dot else ""
    if not mark:
        return (Fraction(text),)
    groups = text.split(mark)
    grouped = all(len(g) == 3 for g in groups[1:]) and len(groups[0]) <= 3 and groups[0] != "0"
    if len(groups) > 2:
        return (Fraction("".join(groups)),) if grouped else ()
    decimal = Fraction(text.replace(mark, "."))
    if not grouped:
        return (decimal,)
    thousands = Fraction("".join(groups))
    is_decimal = (mark == ".") == (language == "en")
    return (decimal, thousands) if is_decimal else (thousands, decimal)


@dataclass(frozen=True, kw_only=True)
class _Raw:
    start: int
    end: int
    values: tuple[Fraction, ...]
    word: bool
    sure: bool = True
    """False for a word of a language that the text may not be in."""
    digits: int = 0


def _numbers(text: str, languages: Sequence[str], taken: list[Quantity]) -> list[_Raw]:
    def free(start: int, end: int) -> bool:
        return not any(q.start < end and start < q.end for q in taken)

    found: list[_Raw] = []
    for match in _NUMBER.finditer(text):
        if not free(match.start(), match.end()):
            continue
        raw = match["n"]
        values = _readings(raw, languages[0])
        if not values:
            taken.append(Quantity(text=raw, unit="name", names=(raw,), start=match.start("n"), end=match.end()))
            continue
        sign = -1 if match["sign"] else 1
        decimals = len(raw) - max(raw.rfind("."), raw.rfind(",")) - 1 if re.search(r"[.,]", raw) else 0
        found.append(
            _Raw(
                start=match.start(),
                end=match.end(),
                values=tuple(sign * v for v in values),
                word=False,
                digits=decimals,
            )
        )
    for match in _HALF_A_MILLION.finditer(text):
        found.append(_Raw(start=match.start(), end=match.end(), values=(Fraction(1, 2),), word=True))
    for match in _AND_HALF_WORDS.finditer(text) if {"de", "nl"} & set(languages) else ():
        number = _small_number(match["n"] or "ein", ("de", "nl")) or 1
        value = (Fraction(number) + Fraction(1, 2),)
        found.append(_Raw(start=match.start(), end=match.end(), values=value, word=True))
    for language in languages:
        for match in _word_pattern(language).finditer(text):
            value = _word_value(match.group(), language)
            if value is None or not free(match.start(), match.end()):
                continue
            if any(r.start < match.end() and match.start() < r.end for r in found):
                continue
            found.append(
                _Raw(
                    start=match.start(),
                    end=match.end(),
                    values=(Fraction(value),),
                    word=True,
                    sure=language == languages[0],
                )
            )
    for i, raw in enumerate(found):
        more = _AND_A_HALF.match(text, raw.end)
        if more is not None:  # "one and a half years"
            found[i] = replace(raw, end=more.end(), values=tuple(v + Fraction(1, 2) for v in raw.values))
    return sorted(found, key=lambda r: r.start)


def quantities(text: str, *, language: str | None = None) -> tuple[Quantity, ...]:
    """The quantities of `text`, in order. `language` is ISO 639-1; without it (or for an unknown one) it is guessed."""
    languages: tuple[str, ...] = (
        (language,) if language in LANGUAGES and language else guess_languages(text) or LANGUAGES
    )
    found = _dates(text, languages[0])
    for match in _NAME.finditer(text):
        if any(q.start < match.end() and match.start() < q.end for q in found):
            continue
        if re.match(r"(?:\D+-)?\d+$", match.group()) and _MONEY_BEFORE.fullmatch(
            re.split(r"-?\d", match.group())[0] + " "
        ):
            continue
        if _MONEY_BEFORE.fullmatch(re.match(r"[^\d-]*", match.group()).group()):  # type: ignore[union-attr]
            continue
        quarter = re.fullmatch(r"Q([1-4])", match.group())
        if quarter is not None:  # the third quarter
            value, (start, end) = Fraction(int(quarter[1])), match.span()
            found.append(Quantity(text=match.group(), unit="ordinal", values=(value,), start=start, end=end))
            continue
        found.append(
            Quantity(
                text=match.group(), unit="name", names=(match.group().casefold(),), start=match.start(), end=match.end()
            )
        )
    found += [t for t in _times_of_day(text) if not _overlaps(t, found)]
    rates = _rates(text, languages)
    numbers = _numbers(text, languages, found)
    halves = [*_halves(text), *_shares(text, languages, numbers)]
    measured = list(halves)
    ordinals = [o for o in _ordinals(text, languages) if not _overlaps(o, [*found, *halves])]
    found += ordinals
    for raw in numbers:
        quantity = _measured(text, raw, languages)
        if quantity is not None and (raw.sure or quantity.unit != "count") and not _overlaps(quantity, halves):
            measured.append(quantity)
    for match in _A_PERIOD.finditer(text):
        unit = _unit_of(match["unit"])
        if unit and not any(q.start < match.end() and match.start("a") < q.end for q in measured):
            measured.append(
                Quantity(
                    text=text[match.start("a") : match.end()],
                    unit=unit,
                    values=(Fraction(1),),
                    start=match.start("a"),
                    end=match.end(),
                )
            )
    measured = _ranges(text, sorted(measured, key=lambda q: q.start))
    measured = [_day_of_range(text, q, found) for q in measured]
    measured = [q for q in measured if not _is_pronoun(text, q, languages)]
    measured = [q for q in measured if q.unit != "times" or not any(r.start <= q.start < r.end for r in rates)]
    return tuple(sorted([*found, *measured, *rates], key=lambda q: (q.start, q.end)))


@lru_cache(maxsize=16)
def _share_patterns(language: str) -> tuple[re.Pattern[str], tuple[tuple[re.Pattern[str], int], ...]]:
    """What says 'half of' in a language, and the names of parts that follow a number."""
    half = re.compile(rf"(?<![\w-])(?:{_HALF_OF[language]})(?!\w)", re.IGNORECASE)
    return half, tuple(
        (re.compile(rf"[ -](?:{words})(?!\w)", re.IGNORECASE), parts) for words, parts in _PARTS[language]
    )


def _shares(text: str, languages: Sequence[str], numbers: Sequence[_Raw]) -> list[Quantity]:
    """Fractions in words: 'two thirds', 'half of', 'by a quarter', 'one in four'."""
    found: list[Quantity] = []

    def add(start: int, end: int, value: Fraction) -> None:
        if 0 < value <= 1 and not any(q.start < end and start < q.end for q in found):
            found.append(Quantity(text=text[start:end], unit="share", values=(value,), start=start, end=end))

    for language in languages:
        half, patterns = _share_patterns(language)
        for pattern, parts in patterns:
            for match in pattern.finditer(text):
                raw = next((n for n in numbers if n.end == match.start()), None)
                if raw is not None and raw.values[0].denominator == 1:
                    add(raw.start, match.end(), raw.values[0] / parts)
                elif language == "en" and (article := _ARTICLE.search(text, max(0, match.start() - 6), match.start())):
                    add(article.start(), match.end(), Fraction(1, parts))
        for match in half.finditer(text):
            add(*match.span(), Fraction(1, 2))
    if "en" in languages:
        for match in _BY_A.finditer(text):
            add(*match.span(), Fraction(1, _BY_PARTS[match["part"].casefold()]))
        for match in _ONE_IN.finditer(text):
            number = _small_number(match["n"], ("en",))
            period = any(unit in _TIME and known.match(text, match.end()) for unit, known in _UNIT_RES)
            if number is not None and number > 1 and not period:  # "one test in two years" is no share
                add(*match.span(), Fraction(1, number))
    return found


def _ordinals(text: str, languages: Sequence[str]) -> list[Quantity]:
    """Ordinals in words; one that no period follows ('third parties') is `loose`, since it seldom counts anything."""
    found: list[Quantity] = []
    for language in languages:
        for number, pattern in enumerate(_ORDINAL_RES[language], start=1):
            for match in pattern.finditer(text):
                if any(q.start < match.end() and match.start() < q.end for q in found):
                    continue
                counts = number > 1 and any(
                    unit in _TIME and known.match(text, match.end()) is not None for unit, known in _UNIT_RES
                )
                found.append(
                    Quantity(
                        text=match.group(),
                        unit="ordinal",
                        values=(Fraction(number),),
                        names=() if counts else ("loose",),
                        start=match.start(),
                        end=match.end(),
                    )
                )
    return found


def _overlaps(quantity: Quantity, others: Sequence[Quantity]) -> bool:
    return any(o.start < quantity.end and quantity.start < o.end for o in others)


def _measured(text: str, raw: _Raw, languages: Sequence[str]) -> Quantity | None:
    end, factor = raw.end, 1
    unit: str | None = None
    start = raw.start
    before = _MONEY_BEFORE.search(text[max(0, start - 20) : start])
    if before is not None:
        previous = text[max(0, start - 20) : start][: before.start()][-1:]
        if not (previous.isalnum() and before.group()[0].isalpha()):
            unit = before.lastgroup
            start -= len(before.group())
    scale = _SCALE_RE.match(text, end)
    if scale is not None:
        name = scale.group().strip(" -").split()[0]
        after = _MONEY_AFTER.match(text, scale.end())
        if name not in _ONLY_MONEY_SCALES or unit is not None or after is not None:
            factor = next(f for i, f in enumerate(_SCALE_FACTORS) if scale[f"s{i}"])
            end = scale.end()
    if unit is None:
        after = _MONEY_AFTER.match(text, end)
        if after is not None:
            unit, end = after.lastgroup, after.end()
    values = tuple(v * factor for v in raw.values)
    if unit is None:
        data = _DATA_RE.match(text, end)
        if data is not None:
            kind = (data["wkind"] or data["kind"] or "").rstrip("s")
            prefix = _DATA_WORDS.get(data["word"] or "", "") if data["wkind"] else (data["p"] or "").lower()
            size = 1024 ** "kmgtp".find(prefix) * 1024 if data["i"] else _DATA[prefix]
            unit = "bit" if kind in ("b", "bit") else "byte"
            values, end = tuple(v * size for v in values), data.end()
    if unit is None:
        # "twenty-four (24) hours"
        repeat = re.match(
            r"\s?\((?:\d+|[^\W\d_]+(?:[- ][^\W\d_]+)?)\)| or (?:more|fewer|less)(?!\w)", text[end : end + 40]
        )
        at = end + (repeat.end() if repeat else 0)
        for name, pattern in (*_CJK_UNITS, *_UNIT_RES):
            match = pattern.match(text, at)
            if match is not None and not (name == "times" and match.group().strip() in ("x", "×", "mal")):
                unit, end = name, match.end()
                half = _AND_A_HALF.match(text, end) if name in _TIME else None
                if half is not None:  # "dois anos e meio"
                    values, end = tuple(v + Fraction(1, 2) for v in values), half.end()
                break
    if unit is None:
        for name, pattern in _MEASURE_RES:
            match = pattern.match(text, end)
            if match is not None:
                unit, end = name, match.end()
                break
    if unit is None and languages[0] in ("en", "de", "nl"):
        adjective = _ADJECTIVE.match(text, end)
        if (
            adjective is not None
            and not is_common(adjective["word"])
            and adjective["word"].casefold() not in _OTHER_DAYS
        ):
            for name, pattern in _UNIT_RES:
                match = pattern.match(text, adjective.end()) if name in _TIME else None
                if match is not None:
                    unit, end = name, match.end()
                    break
    if unit is None and _NUMBERED_PERIOD.search(text, max(0, raw.start - 40), raw.start):
        unit = "ordinal"
    if unit is None and not raw.word:
        ordinal = _ORDINAL_AFTER.match(text, end)
        if ordinal is not None:
            unit, end = "ordinal", ordinal.end()
    glued = _GLUED.match(text, end) if unit is None and not raw.word and end == raw.end else None
    if glued is not None:  # a name that begins with digits
        name = text[raw.start : glued.end()]
        return Quantity(text=name, unit="name", names=(name.casefold(),), start=raw.start, end=glued.end())
    return Quantity(
        text=text[start:end],
        unit=unit or "count",
        values=values,
        start=start,
        end=end,
        digits=raw.digits,
        names=("word",) if raw.word else (),
    )


def _times_of_day(text: str) -> list[Quantity]:
    """'10:00', '6 pm', '18.30 Uhr' as minutes of the day."""
    found: list[Quantity] = []
    for match in _TIME_OF_DAY.finditer(text):
        hour, half = int(match["h"] or match["hour"]), (match["half"] or "").casefold()
        if half and not 1 <= hour <= 12:
            continue
        hour = hour % 12 + (12 if half == "p" else 0) if half else hour
        value = Fraction(hour * 60 + int(match["m"] or 0))
        start, end = match.start(), match.end()
        found.append(Quantity(text=match.group().rstrip(), unit="time", values=(value,), start=start, end=end))
    return found


def _halves(text: str) -> list[Quantity]:
    """'half a year' and its like."""
    found: list[Quantity] = []
    for match in _HALF.finditer(text):
        unit = _unit_of(match["unit"])
        if unit is not None:
            start, end = match.span()
            found.append(Quantity(text=match.group(), unit=unit, values=(Fraction(1, 2),), start=start, end=end))
    return found


def _ranges(text: str, found: list[Quantity]) -> list[Quantity]:
    """A bare number before '– 15 days' is in days too."""
    out = list(found)
    for i in range(len(out) - 2, -1, -1):
        this, following = out[i], out[i + 1]
        if this.unit == "count" and following.unit != "count" and _RANGE.fullmatch(text[this.end : following.start]):
            out[i] = replace(this, unit=following.unit)
        elif (
            following.unit == "count"
            and this.unit in _CURRENCY
            and re.fullmatch(r"\s*(?:-|–|—|to|bis|a|à)\s*", text[this.end : following.start])
            and not re.match(r"\s*[^\W\d_]{3}", text[following.end :])
        ):
            out[i + 1] = replace(following, unit=this.unit)
    return out


def _day_of_range(text: str, quantity: Quantity, found: Sequence[Quantity]) -> Quantity:
    """The '1' of '1 to 3 March 2024' is a date too."""
    if quantity.unit != "count" or not 1 <= quantity.values[0] <= 31:
        return quantity
    for q in found:
        if q.unit == "date" and re.fullmatch(r"\d{1,2}\D.*", q.text) and _RANGE.fullmatch(text[quantity.end : q.start]):
            names = tuple(f"{name[:-2]}{int(quantity.values[0]):02}" for name in q.names if name.count("-") == 2)
            return replace(quantity, unit="date", values=(), names=names) if names else quantity
    return quantity


def _is_pronoun(text: str, quantity: Quantity, languages: Sequence[str]) -> bool:
    """True for a bare 'one', which mostly counts nothing."""
    return (
        quantity.unit == "count"
        and quantity.names == ("word",)
        and any(quantity.text.casefold() in _ONE_WORDS[language] for language in languages)
    )


# --- agreement ------------------------------------------------------------------------------------------------------


def agree(claimed: Quantity, stated: Quantity) -> bool:
    """True when what a claim says is what a text says: the same class and value, units converted only where exact.

    Exact: seconds to weeks among themselves, months to years among themselves; never across the two, and business days
    only with business days. A date may be less precise than the stated one. Of an ambiguous writing, the text's own
    reading counts.
    """
    if claimed.unit == "date" or stated.unit == "date":
        return _dates_agree(claimed, stated)
    if "share" in (claimed.unit, stated.unit):
        return _share(claimed) is not None and _share(claimed) == _share(stated)
    if claimed.unit == "name" or stated.unit == "name":
        return claimed.unit == stated.unit and _plain(claimed.names) == _plain(stated.names)
    value = stated.values[0]
    if claimed.unit == stated.unit:
        return value in claimed.values
    one = _base(claimed.unit, claimed.values[0])
    other = _base(stated.unit, value)
    if one is not None and other is not None:
        return one == other
    times = {"times", "count"}
    return {claimed.unit, stated.unit} <= times and value in claimed.values


def _plain(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names without the hyphen between letters and digits: AES-256 is AES256."""
    return tuple(re.sub(r"(?<=[^\W\d_])[- ](?=\d)", "", name) for name in names)


def lettered(text: str, quantity: Quantity) -> Quantity | None:
    """The name that a bare number ends, as in 'AES 256', or None."""
    head = re.search(r"(?<![\w-])([A-Z][A-Z/]+) $", text[max(0, quantity.start - 16) : quantity.start])
    if quantity.unit != "count" or head is None:
        return None
    name = f"{head[1]}{text[quantity.start : quantity.end]}".casefold()
    return replace(quantity, unit="name", values=(), names=(name,), start=quantity.start - len(head[1]) - 1)


def _share(quantity: Quantity) -> Fraction | None:
    """The value of a share: 'two thirds', '2/3', '50%'."""
    if quantity.unit == "share":
        return quantity.values[0]
    if quantity.unit == "percent":
        return quantity.values[0] / 100
    name = re.fullmatch(r"(\d{1,2})/(\d{1,2})", quantity.names[0]) if quantity.unit == "name" else None
    return Fraction(int(name[1]), int(name[2])) if name is not None and int(name[2]) else None


def converted(claimed: Quantity, stated: Quantity) -> bool:
    """True when the two agree only after a conversion of units."""
    if claimed.unit == stated.unit:
        return False
    return _base(claimed.unit, Fraction(1)) is not None or {claimed.unit, stated.unit} == {"share", "percent"}


def _dates_agree(claimed: Quantity, stated: Quantity) -> bool:
    if claimed.unit == stated.unit:
        if len(stated.names) > 1 or len(claimed.names) > 1:
            return claimed.names == stated.names
        said, stands = "".join(claimed.names), "".join(stated.names)
        return stands == said or stands.startswith(f"{said}-") or (said.startswith("-") and stands.endswith(said))
    if claimed.unit == "count" and len(claimed.values) == 1:  # a bare year
        year = claimed.values[0]
        return 1000 <= year <= 2999 and all(name.startswith(f"{int(year)}-") for name in stated.names)
    return False


def same_family(one: str, other: str) -> bool:
    """True when two unit classes can be added."""
    first, second = _base(one, Fraction(1)), _base(other, Fraction(1))
    return one == other or (first is not None and second is not None and first[0] == second[0])


def in_base(quantity: Quantity) -> Fraction:
    """The first value in the family's base (seconds, months) or as it stands."""
    base = _base(quantity.unit, quantity.values[0])
    return quantity.values[0] if base is None else base[1]


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """An expression written out in a text, as `72 - 24` or `72 hours minus 24 hours`."""

    text: str
    operands: tuple[Quantity, ...]
    operators: tuple[str, ...]
    start: int
    end: int


_OPERATORS = {
    "-": "-", "−": "-", "–": "-", "minus": "-", "less": "-", "menos": "-", "weniger": "-", "moins": "-", "meno": "-", "min": "-",
    "+": "+", "plus": "+", "mais": "+", "más": "+", "più": "+",
    "/": "/", "÷": "/", ":": "/", "divided by": "/", "over": "/", "dividido por": "/", "geteilt durch": "/", "divisé par": "/",
    "×": "*", "*": "*", "·": "*", "x": "*", "times": "*", "mal": "*", "vezes": "*", "por": "*", "fois": "*", "per": "*",
}  # fmt: skip
_OPERATOR = re.compile(
    r"\s*(?P<op>" + "|".join(re.escape(o) for o in sorted(_OPERATORS, key=len, reverse=True)) + r")\s*", re.IGNORECASE
)


def derivations(text: str, found: Iterable[Quantity]) -> tuple[Derivation, ...]:
    """The expressions of two or more operands among `found`, the quantities of `text`."""
    ordered = [q for q in found if q.values and not q.unit.startswith("rate")]
    out: list[Derivation] = []
    i = 0
    while i < len(ordered):
        operands, operators = [ordered[i]], list[str]()
        j = i + 1
        while j < len(ordered):
            between = text[operands[-1].end : ordered[j].start]
            match = _OPERATOR.fullmatch(between)
            negative = ordered[j]
            if match is None and not between.strip() and negative.values[0] < 0:  # "72 -24"
                operands.append(replace(negative, values=tuple(-v for v in negative.values)))
                operators.append("-")
            elif match is not None:
                operands.append(ordered[j])
                operators.append(_OPERATORS[match["op"].casefold()])
            else:
                break
            j += 1
        if operators:
            out.append(
                Derivation(
                    text=text[operands[0].start : operands[-1].end],
                    operands=tuple(operands),
                    operators=tuple(operators),
                    start=operands[0].start,
                    end=operands[-1].end,
                )
            )
        i = j if operators else i + 1
    return tuple(out)


def compute(values: Sequence[Fraction], operators: Sequence[str]) -> Fraction | None:
    """The value of an expression, products before sums; None when it divides by zero."""
    terms: list[Fraction] = [values[0]]
    signs: list[str] = []
    for operator, value in zip(operators, values[1:], strict=True):
        if operator == "*":
            terms[-1] *= value
        elif operator == "/":
            if value == 0:
                return None
            terms[-1] /= value
        else:
            signs.append(operator)
            terms.append(value)
    total = terms[0]
    for sign, term in zip(signs, terms[1:], strict=True):
        total = total + term if sign == "+" else total - term
    return total


def units_in(text: str) -> tuple[str, ...]:
    """The unit classes that a text names, as a table's header 'Price (EUR)' does."""
    found = [unit for unit, words in (*_TIME.items(), *_OTHER_UNITS.items()) if _names_unit(words, text)]
    found += [code for code, words in _CURRENCY.items() if _names_unit(words, text)]
    found += [unit for unit, words in _MEASURES.items() if re.search(rf"(?<!\w)(?:{words})(?![\w²³/])", text)]
    if "business day" in found:
        found = [u for u in found if u != "day"]
    return tuple(found)


def _names_unit(words: str, text: str) -> bool:
    return re.search(rf"(?<!\w)(?:{words})(?!\w)", text, re.IGNORECASE) is not None

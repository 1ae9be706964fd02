"""Which language a text is in, by its script and its commonest words; None where that does not settle it."""

from __future__ import annotations

import re
from collections import Counter

_SCRIPTS = (
    ("ja", "\u3040-\u30ff"),
    ("ko", "\uac00-\ud7a3\u1100-\u11ff"),
    ("zh", "\u3400-\u9fff"),
    ("el", "\u0370-\u03ff"),
    ("he", "\u0590-\u05ff"),
    ("ar", "\u0600-\u06ff"),
    ("hi", "\u0900-\u097f"),
    ("ta", "\u0b80-\u0bff"),
    ("th", "\u0e00-\u0e7f"),
    ("lo", "\u0e80-\u0eff"),
    ("my", "\u1000-\u109f"),
    ("km", "\u1780-\u17ff"),
    ("ru", "\u0400-\u04ff"),
)
_SCRIPT = {name: re.compile(f"[{characters}]") for name, characters in _SCRIPTS}
_LATIN = re.compile("[a-zA-Z\u00c0-\u024f]")
_OTHER = re.compile("[" + "".join(characters for _, characters in _SCRIPTS) + "]")
_WORD = re.compile(r"[^\W\d_]+")
_COMMON = {
    "en": "the of and to in is that for it with as be on are by this or from at not shall which will you have "
    "an your if we must can may any has all when within each its their our should been",
    "de": "der die das und ist in zu den von mit nicht des auf für ein eine im dem sich als auch es an werden "
    "aus er hat dass sie nach wird bei einer um am sind noch wie einem über zum zur oder vom bis sowie "
    "durch muss",
    "fr": "le la les de des et est en un une du que dans pour par sur pas au avec ce qui il ne sont ou plus à "
    "aux cette être ont se leur d l doit vous nous ces son sa",
    "es": "después dentro contra hasta desde "
    "el la los las de y en que un una es por para con del se no su al lo como más o pero sus le ha este "
    "esta son entre cuando muy sin sobre también dentro debe",
    "pt": "após há já num nas pelos esta "
    "o a os as de e em que um uma é por para com do da não se na no dos das ao mais como mas foi ou sua "
    "são ser pelo pela à até isso também deve nos sem",
    "it": "il la le di e in che un una è per con del della non si dei al da delle gli i lo alla sono come più "
    "anche o nel nella dal ma questo essere dalla deve sul",
    "nl": "de het een en van in is dat op te voor met zijn niet aan er om ook als dan maar bij uit door naar "
    "over wordt worden deze of moet binnen heeft kan",
    "sv": "och att det i en är som på av för med den till inte ett om de har från vid var kan ska eller inom "
    "sig så när där bli skall måste detta",
    "da": "og at det i en er som på af for med den til ikke et om de har fra ved var kan skal eller inden sig "
    "så når der blive bliver blev blevet hvor være efter mod hvis",
    "no": "og at det i en er som på av for med den til ikke et om de har fra ved var kan skal eller innen seg "
    "så når der bli blir ble blitt hvor være etter mot hvis",
    "fi": "ja on ei se että joka ovat oli sen kun myös mutta tai jos kuin ole hän ovat tämä niin sekä voi mukaan",
    "pl": "i w na z do się nie że jest to o jak od za po przez ma dla są oraz lub który która które może być ich także",
    "cs": "a v na se je že s z do to o k i pro za by jako jsou nebo který která které při od není být může také",
    "hu": "a az és hogy nem is egy ez van volt meg csak de ha mint vagy ki azt amely már lehet kell ezt",
    "ro": "și de în la a cu pe nu este care din o un se că pentru mai sau sunt prin fi dar ca au această",
    "tr": "ve bir bu da de için ile olarak çok daha gibi en ne kadar sonra olan ya veya her değil tarafından olduğu",
}
_KNOWN = {language: frozenset(words.split()) for language, words in _COMMON.items()}
_SAMPLE = 20_000


def detect(text: str) -> str | None:
    """ISO 639-1 of a text, or None when it is too short or too mixed to tell."""
    sample = text[:_SAMPLE]
    if sample.isascii() or len(_OTHER.findall(sample)) < 5:
        return _by_words(sample)
    latin = len(_LATIN.findall(sample))
    counts = {name: len(pattern.findall(sample)) for name, pattern in _SCRIPT.items()}
    other = sum(counts.values())
    # an ideograph stands for a word, a Latin letter for a fifth of one
    if other * (3 if counts["zh"] + counts["ja"] > other / 2 else 1) <= latin:
        return _by_words(sample)
    if counts["ja"] * 20 >= counts["ja"] + counts["zh"] and counts["ja"] + counts["zh"] > other / 2:
        return "ja"
    best = max(counts, key=lambda name: counts[name])
    if best == "ru" and len(re.findall("[іїєґІЇЄҐ]", sample)) * 50 > counts["ru"]:
        return "uk"
    if best == "ar" and len(re.findall("[پچژگ]", sample)) * 50 > counts["ar"]:
        return "fa"
    return best


def _by_words(text: str) -> str | None:
    count: Counter[str] = Counter()
    for word, times in Counter(_WORD.findall(text)).items():
        count[word.lower()] += times
    total = count.total()
    if total < 6:
        return None
    seen = count.keys()
    hits = {language: sum(count[word] for word in known & seen) for language, known in _KNOWN.items()}
    kinds = {language: len(known & seen) for language, known in _KNOWN.items()}
    first, second = sorted(hits, key=lambda language: (-hits[language], language))[:2]
    if hits[first] < 3 or kinds[first] < 3 or hits[first] < total * 0.1:
        return None
    if hits[first] >= hits[second] * 1.15 + 1:
        return first
    # Languages that share most of their common words are told apart by the others.
    own = sum(count[word] for word in _KNOWN[first] - _KNOWN[second])
    other = sum(count[word] for word in _KNOWN[second] - _KNOWN[first])
    return first if own >= 2 and own >= 3 * other else None

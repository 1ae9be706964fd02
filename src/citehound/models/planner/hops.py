"""Whether the texts that a question's hops need were read at all: names nobody wrote of, and names that lead nowhere.

Owns the check of the hops, not of sentences (`support` does that); reads nothing and quotes nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .state import Names, State, Text
from .words import Word, capitalised, fold, plain_title, stems, words

_JOINED = re.compile(r"\s+(?:and|or|und|oder|y|e|et|ou|for|für)\s+")
_BARE_NAME = re.compile(
    r"[^A-ZÀ-Þ]{0,12}((?:[A-ZÀ-Þ][\w’'-]*|[A-Z]\.)"
    r"(?: (?:(?:de|da|du|del|von|van|di|la|le|of|the|ibn|bin|al) )*(?:[A-ZÀ-Þ][\w’'-]*|[A-Z]\.))*)"
)
_STOP = re.compile(r"(?<![A-Z])[.!?;:]\s")
_NEAR = 90
_OPENING = 200


@lru_cache(maxsize=512)
def _words(text: str, language: str) -> tuple[Word, ...]:
    return tuple(words(text, language=language))


@lru_cache(maxsize=512)
def _line(text: str, language: str) -> str:
    return " " + " ".join(w.stem for w in _words(text, language)) + " "


def _stands(name: str, state: State) -> bool:
    """True where a text that was read says the name, word after word, or it or a hit bears it."""
    language = state.language
    line = _line(name, language)
    said = frozenset(line.split())
    hits = [hit for search in state.searches for hit in search.hits] + list(state.chased or ())
    if any(line in _line(f"{hit.title} {hit.snippet}", language) for hit in hits):
        return True
    return any(
        line in _line(t.text, language)
        or line in _line(f"{t.title} {t.document}", language)
        or said <= stems(f"{t.title} {' '.join(t.metadata.values())} {t.document}", language=language)
        for t in state.texts
    )


def unread_names(state: State) -> list[str]:
    """Names of two words or more in the question that no text says that was read."""
    language = state.language
    spans = list(capitalised(state.question))
    capitals = sum(len(span.split()) for span in spans)
    if not state.texts or capitals > 0.8 * len(state.question.split()):
        return []  # Every word of the question is capitalised: that tells no names.
    found: list[str] = []
    for span in spans:
        if _stands(span, state):
            continue
        for part in _JOINED.split(span):
            named = [w for w in words(part, language=language) if not w.stem.isdigit()]
            if len(named) > 1 and not _stands(part, state):
                found.append(part.strip())
    return list(dict.fromkeys(found))


def _kin(asked: str, there: str) -> bool:
    """One stem is made from the other ('director', 'directed')."""
    short, long = (asked, there) if len(asked) <= len(there) else (there, asked)
    return len(short) >= 5 and long != short and long.startswith(short)


def dead_ends(state: State, names: Names) -> list[tuple[str, str]]:
    """(what is asked, name): the question's subject names somebody by what is asked, and no document is about them."""
    language = state.language
    asked_line = _line(state.question, language)
    plain = {plain_title(t.title): t for t in state.texts}
    subjects = [t for title, t in plain.items() if len(title) > 3 and _line(title, language) in asked_line]
    of_names = frozenset[str]().union(
        *(stems(span, language=language) for span in capitalised(state.question)),
        *(stems(t.title, language=language) for t in subjects),
    )
    relations = [w for w in words(state.question, language=language) if w.stem not in of_names]
    found: list[tuple[str, str]] = []
    for subject in subjects:
        for asked in relations:
            cue = next((w for w in _words(subject.text, language) if _kin(asked.stem, w.stem)), None)
            if cue is None:
                continue
            after = subject.text[cue.start + len(cue.text) :][:_NEAR]
            match = _BARE_NAME.match(_STOP.split(after + " ")[0])
            name = match.group(1).strip() if match is not None else ""
            if name and plain_title(name) != plain_title(subject.title) and not _known(name, subject, state, names):
                found.append((asked.text, name))
    return list(dict.fromkeys(found))


def _known(name: str, subject: Text, state: State, names: Names) -> bool:
    """True where a document bears the name, or a text that was read opens with it."""
    if plain_title(name) in names.plain:
        return True
    said = stems(name, language=state.language)
    titled = names.stemmed(state.language)
    rare = min(said, key=lambda s: len(titled.holding.get(s, ())), default="")
    if any(said <= titled.titles[d] for d in titled.holding.get(rare, ())):
        return True
    return any(
        fold(t.title) != fold(subject.title) and said <= stems(t.text[:_OPENING], language=state.language)
        for t in state.texts
    )

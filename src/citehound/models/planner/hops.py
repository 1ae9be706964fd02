"""Whether the texts that a question's hops need were read at all: names nobody wrote of, and names that lead nowhere.

Owns the check of the hops, not of sentences (`support` does that); reads nothing and quotes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .state import Names, State, Text
from .support import class_asked
from .words import STOP, Word, capitalised, fold, plain_title, stems, words

_JOINED = re.compile(r"\s+(?:and|or|und|oder|y|e|et|ou|for|für)\s+")
_BARE_NAME = re.compile(
    r"[^A-ZÀ-Þ]{0,12}((?:[A-ZÀ-Þ][\w’'-]*|[A-Z]\.)"
    r"(?: (?:(?:de|da|du|del|von|van|di|la|le|of|the|ibn|bin|al) )*(?:[A-ZÀ-Þ][\w’'-]*|[A-Z]\.))*)"
)
_STOP = re.compile(r"(?<![A-Z])[.!?;:]\s")
_NEAR = 90
_OPENING = 200
_CAPITAL = r"[A-ZÀ-Þ0-9\"“(][^\s,?]*"
_RUN = rf"{_CAPITAL}(?:,? (?:[^\W\d_A-ZÀ-Þ]{{1,3}} ){{0,2}}{_CAPITAL})*"
_PAIR = re.compile(rf"({_RUN}),? (?:or|and|oder|und|ou|e|o|y|et) (?=({_RUN}))")
_SIDE = 40
"""Characters of a text's opening that may say whom it is about."""
_FURTHER = 3
"""Links in a row."""


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


@dataclass(frozen=True, kw_only=True)
class Trodden:
    """How far what was read leads from what the question names."""

    subjects: tuple[Text, ...]
    """Texts about what the question names."""
    reached: tuple[Text, ...]
    """Texts about what these name, and so on."""
    apart: tuple[str, ...]
    """Of 'A or B', 'A and B' the sides that no text is about."""
    lacking: tuple[str, ...]
    """Words asked beside the names that neither the subjects' texts say nor any that they lead to."""
    asked: int
    """How many words beside the names the subjects' texts lack."""
    paired: bool
    """The question asks of two side by side."""
    alone: bool
    """The chase reached no second text that stands firm."""

    @property
    def broken(self) -> bool:
        """The subjects lead nowhere, and what is asked is not all said by them and by what shares a name with them; or
        they do not say all and nothing else stands firm."""
        nowhere = bool(self.subjects) and not self.paired and not self.reached and bool(self.lacking)
        return nowhere or (self.alone and self.asked > 0)

    @property
    def evidence(self) -> bool:
        """Something of what is asked was found where the question's names lead, or both its sides were read."""
        if not self.subjects or self.apart or self.broken:
            return False
        return self.paired or len(self.lacking) < self.asked or not self.asked


def _bare(title: str) -> str:
    """Without what is in brackets or follows a comma."""
    return re.sub(r"\([^)]*\)", "", title.split(",")[0]).strip() or title


def _about(name: str, text: Text, language: str) -> bool:
    """True where a document bears the name, or all of its own is part of it, or its text opens with it."""
    said, titled = stems(_bare(name), language=language), stems(_bare(text.title), language=language)
    if not said:
        return True
    part = bool(titled) and titled <= said and len(titled) >= min(2, len(said))
    return said <= titled or part or said <= stems(text.text[:_SIDE], language=language)


def sides(question: str) -> list[str]:
    """The two of the last 'A or B', 'A and B' whose both sides are capitalised."""
    found: list[str] = []
    for match in _PAIR.finditer(question):
        left = match.group(1).split()
        while left and fold(left[0]) in STOP and len(left) > 1:
            left = left[1:]
        found = [" ".join(left), match.group(2)]
    return found


def _says(text: str, title: str, language: str) -> bool:
    """True where a text says a title, word after word and its first capitalised."""
    line = _line(_bare(title), language)
    if not line.strip() or line not in _line(text, language):
        return False
    first = line.split()[0]
    return any(w.stem == first and not w.text[0].islower() for w in _words(text, language))


def _named(state: State, texts: list[Text]) -> list[Text]:
    """Texts whose title the question says, as a name; the longest where one is part of another."""
    language = state.language
    said = [(t, _line(_bare(t.title), language)) for t in texts if _says(state.question, t.title, language)]
    return [t for t, line in said if not any(line in other and line != other for _, other in said)]


def _names(text: Text, language: str) -> frozenset[str]:
    """Names of two words or more in a text, as lines."""
    parts = [part for span in capitalised(text.text) for part in _JOINED.split(span)]
    lines = [_line(part, language) for part in parts]
    return frozenset(line for line in lines if len(line.split()) > 1)


def trodden(state: State) -> Trodden:
    language = state.language
    texts = list({t.document: t for t in reversed(state.texts)}.values())[::-1]
    subjects = _named(state, texts)
    reached: list[Text] = []
    frontier = subjects
    for _ in range(_FURTHER):
        new = [
            t
            for t in texts
            if t not in subjects and t not in reached and any(_says(f.text, t.title, language) for f in frontier)
        ]
        reached += new
        frontier = new
    asked = _line(state.question, language)
    titles = "".join(_line(t.title, language) for t in subjects)
    shared = frozenset(
        name for t in subjects for name in _names(t, language) if name not in asked and name not in titles
    )
    near = [
        t
        for t in texts
        if t not in subjects
        and (
            any(name in _line(f"{t.text} {t.title}", language) for name in shared)
            or any(_line(_bare(s.title), language) in _line(f"{t.text} {t.title}", language) for s in subjects)
        )
    ]
    of_names = frozenset[str]().union(
        *(stems(span, language=language) for span in capitalised(state.question)),
        *(stems(t.title, language=language) for t in subjects),
    )
    held = frozenset[str]().union(*(stems(t.text, language=language) for t in subjects))
    further = frozenset[str]().union(*(stems(t.text, language=language) for t in reached or near))
    known = of_names | held | stems(" ".join(class_asked(state.question, language=language)), language=language)
    lacks = [w for w in words(state.question, language=language) if w.stem not in known]
    two = sides(state.question)
    return Trodden(
        subjects=tuple(subjects),
        reached=tuple(reached),
        apart=tuple(
            side
            for side in two
            if texts and not any(_about(name, t, language) for name in (side, side.split(",")[-1]) for t in texts)
        ),
        lacking=tuple(w.text for w in lacks if w.stem not in further),
        asked=len(lacks),
        paired=bool(two),
        alone=state.alone,
    )

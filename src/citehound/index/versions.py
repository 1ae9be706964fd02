"""Which documents are current, and which names mean which document; works on metadata alone and reads no store."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Literal

from ..documents import Metadata
from .analysis import fold, fold_value

State = Literal["current", "superseded", "withdrawn", "draft"]

_STATE_WORDS: dict[State, str] = {
    "current": "current active approved final published effective valid released signed executed live"
    " aktuell gultig actuel vigente attuale vigent geldend",
    "superseded": "superseded supersed superceded replaced obsolete outdated archived archive historic historical"
    " deprecated old former"
    " ersetzt abgelost uberholt veraltet archiviert remplace remplacee obsolete perime perimee archive archivee"
    " reemplazado reemplazada sustituido sustituida obsoleto obsoleta archivado archivada"
    " sostituito sostituita archiviato archiviata superato superata substituido substituida arquivado arquivada"
    " vervangen verouderd gearchiveerd zastapiony nieaktualny ersatt ersat erstattet foraldet foraldad"
    " 旧版 已废止 已替代",
    "withdrawn": "withdrawn revoked repealed rescinded retired cancelled canceled expired terminated void annulled"
    " discontinued inactive invalid"
    " aufgehoben zuruckgezogen ungultig abgelaufen widerrufen abroge abrogee retire retiree annule annulee"
    " derogado derogada retirado retirada anulado anulada abrogato abrogata ritirato ritirata annullato annullata"
    " revogado revogada ingetrokken vervallen wycofany upphavd 廃止 废止",
    "draft": "draft drafts unreleased unpublished proposed proposal preliminary wip unapproved provisional"
    " entwurf vorlaufig brouillon ebauche borrador bozza rascunho concept kladde utkast szkic luonnos 草案 下書き",
}
_WORD_STATE: dict[str, State] = {word: state for state, words in _STATE_WORDS.items() for word in words.split()}
_PHRASES: tuple[tuple[str, State], ...] = (
    ("work in progress", "draft"),
    ("not yet", "draft"),
    ("noch nicht", "draft"),
    ("pas encore", "draft"),
    ("under review", "draft"),
    ("in review", "draft"),
    ("for comment", "draft"),
    ("not in force", "withdrawn"),
    ("out of force", "withdrawn"),
    ("out of date", "superseded"),
    ("no longer", "superseded"),
    ("nicht mehr", "superseded"),
    ("not current", "superseded"),
    ("auser kraft", "withdrawn"),
    ("ausser kraft", "withdrawn"),
    ("in force", "current"),
    ("in kraft", "current"),
    ("en vigueur", "current"),
    ("en vigor", "current"),
    ("not superseded", "current"),
    ("not withdrawn", "current"),
    ("nicht ersetzt", "current"),
)
_FLAGS: tuple[tuple[str, State], ...] = (
    ("draft", "draft"),
    ("archived", "superseded"),
    ("deprecated", "superseded"),
    ("withdrawn", "withdrawn"),
)
_TRUE = {"true", "yes", "on", "1"}
_MONTHS = {
    name: at
    for at, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1)  # noqa: SIM905
}


@dataclass(frozen=True, kw_only=True)
class Named:
    """What is known of one document here."""

    id: str
    path: str
    """Prefixed by its source: 'policies/a/b.md'."""
    metadata: Metadata


@dataclass(frozen=True, kw_only=True)
class Currency:
    """Whether a document holds today, and what to say of it."""

    current: bool = True
    labels: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    amended_by: tuple[str, ...] = ()


CURRENT = Currency()
SAID = frozenset(
    {"status", "supersedes", "superseded_by", "superseded_on", "amends", "effective", *(flag for flag, _ in _FLAGS)}
)
"""Metadata that say something of versions; a document that has none of them is plainly current."""


def state_of(metadata: Metadata) -> State:
    """What the document's own `status` says. Words that are not known mean current; nothing is guessed."""
    for flag, state in _FLAGS:
        if metadata.get(flag, "").strip().lower() in _TRUE:
            return state
    return _state_of_status(metadata.get("status", ""))


@lru_cache(maxsize=10_000)
def _state_of_status(status: str) -> State:
    status = fold_value(status)
    if not status:
        return "current"
    found: list[tuple[int, State]] = []
    for phrase, state in _PHRASES:
        if (match := re.search(rf"\b{phrase}\b", status)) is not None:
            found.append((match.start() * 2, state))
    for match in re.finditer(r"[^\W\d_]+", status):
        state = _WORD_STATE.get(match.group())
        if state is not None:
            found.append((match.start() * 2 + 1, state))
    return min(found)[1] if found else "current"


@lru_cache(maxsize=50_000)
def parse_date(text: str) -> date | None:
    """ISO dates (also only year and month), 31.12.2025, '1 March 2025', 'March 1, 2025'; anything else is unknown."""
    text = text.strip()
    try:
        if match := re.match(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?(?:$|[T\s])", text):
            return date(int(match[1]), int(match[2]), int(match[3] or 1))
        if match := re.fullmatch(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})", text):
            return date(int(match[3]), int(match[2]), int(match[1]))
        if match := re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)?\.?\s+([A-Za-z]{3,9})\.?,?\s+(\d{4})", text):
            return date(int(match[3]), _MONTHS[match[2][:3].lower()], int(match[1]))
        if match := re.fullmatch(r"([A-Za-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})", text):
            return date(int(match[3]), _MONTHS[match[1][:3].lower()], int(match[2]))
        if re.fullmatch(r"\d{4}", text):
            return date(int(text), 1, 1)
    except (ValueError, KeyError):
        return None
    return None


class Names:
    """Finds documents by full id, path with or without extension, or a suffix of whole path parts.

    Its tables are made when they are asked for the first time."""

    def __init__(self, documents: Iterable[tuple[str, str]]) -> None:
        """`documents` are (id, path)."""
        self._state: tuple[_Table, _Table, list[tuple[bool, str, str]]] = {}, {}, [(True, *one) for one in documents]
        """Names as a whole, names by their endings, and what is not in them yet: documents that came or went."""

    def after(self, *, gone: Iterable[tuple[str, str]], added: Iterable[tuple[str, str]]) -> Names:
        """The names without some documents, and with others."""
        made = Names(())
        whole, endings, waiting = self._state
        made._state = (
            whole,
            endings,
            [*waiting, *((False, *one) for one in gone), *((True, *one) for one in added)],
        )
        return made

    def _tables(self) -> tuple[_Table, _Table]:
        whole, endings, waiting = self._state
        if waiting:
            whole, endings = dict(whole), dict(endings)
            for came, those in groupby(waiting, key=itemgetter(0)):
                (_take if came else _drop)([one[1:] for one in those], whole, endings)
            self._state = whole, endings, []
        return whole, endings

    def find(self, name: str, *, near: str | None = None) -> tuple[str, ...]:
        """The documents that go by `name`: none, one, or the candidates. `near` prefers the ones in its folder."""
        by_whole, by_ending = self._tables()
        exact = by_whole.get(unicodedata.normalize("NFC", name.strip()))
        if exact is not None and len(exact) == 1:
            return tuple(exact)
        wanted = _clean(name)
        found = by_ending.get(wanted) or by_ending.get(_stem(wanted)) or _NOBODY
        if len(found) > 1:
            whole = frozenset(d for d in found if _clean(d) == wanted)
            found = whole if len(whole) == 1 else found
        if len(found) > 1 and near is not None:
            for folder in PurePosixPath(near).parents:
                inside = frozenset(d for d in found if PurePosixPath(folder) in PurePosixPath(d).parents)
                if inside:
                    found = inside
                    break
        return tuple(sorted(found))


_NOBODY = frozenset[str]()
_Table = dict[str, frozenset[str]]


def _take(documents: Sequence[tuple[str, str]], *tables: _Table) -> None:
    for table, names_of in zip(tables, (_whole, _endings), strict=True):
        found: dict[str, set[str]] = defaultdict(set)
        for document, path in documents:
            for name in names_of(document, path):
                found[name].add(document)
        for name, those in found.items():
            table[name] = table.get(name, _NOBODY) | those


def _drop(documents: Sequence[tuple[str, str]], *tables: _Table) -> None:
    for table, names_of in zip(tables, (_whole, _endings), strict=True):
        for document, path in documents:
            for name in names_of(document, path):
                left = table.get(name, _NOBODY) - {document}
                if left:
                    table[name] = left
                else:
                    table.pop(name, None)


def _whole(document: str, path: str) -> set[str]:
    return {unicodedata.normalize("NFC", document), unicodedata.normalize("NFC", path)}


def _endings(document: str, path: str) -> set[str]:
    """All suffixes, of whole parts, of the names of a document."""
    found: set[str] = set()
    for name in {document, path, _stem(path)}:
        parts = _clean(name).split("/")
        found.update("/".join(parts[at:]) for at in range(len(parts)))
    return found


def _clean(name: str) -> str:
    name = fold_value(name.replace("\\", "/"))
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _stem(path: str) -> str:
    head, _, last = path.rpartition("/")
    dot = last.rfind(".")
    if dot <= 0 or not re.fullmatch(r"\.[A-Za-z][A-Za-z0-9]{0,7}", last[dot:]):
        return path
    return f"{head}/{last[:dot]}" if head else last[:dot]


def currencies(
    documents: Iterable[Named], *, today: date, names: Names | None = None, open_sources: frozenset[str] = frozenset()
) -> Mapping[str, Currency]:
    """What holds for each document today. Documents that are plainly current and unlabelled are left out.

    `documents` may lack those that have none of the metadata `SAID`, where `names` knows them. What many people can
    write (`open_sources`) says nothing of the documents of other sources."""
    known = {d.id: d for d in documents}
    names = names if names is not None else Names((d.id, d.path) for d in known.values())
    states = {d.id: state_of(d.metadata) for d in known.values()}
    future = {d.id for d in known.values() if _in_future(d.metadata.get("effective", ""), today)}
    successors: dict[str, set[str]] = defaultdict(set)
    outside: dict[str, str] = {}
    amenders: dict[str, set[str]] = defaultdict(set)
    for d in known.values():
        for old in _named(d.metadata.get("supersedes", ""), names, near=d.id):
            if old != d.id and _has_a_say(d.id, old, open_sources):
                successors[old].add(d.id)
        by = d.metadata.get("superseded_by", "").strip()
        if by and not _in_future(d.metadata.get("superseded_on", ""), today):
            new = _named(by, names, near=d.id)
            successors[d.id].update(n for n in new if n != d.id)
            if not new and fold(by) not in ("none", "null", "false", "-", "n/a"):
                outside[d.id] = by
        for text in _named(d.metadata.get("amends", ""), names, near=d.id):
            if text != d.id and _has_a_say(d.id, text, open_sources):
                amenders[text].add(d.id)
    valid = {
        old: tuple(
            sorted(
                new
                for new in found
                if states.get(new, "current") in ("current", "superseded")
                and new not in future
                and not _reaches(old, new, successors)
            )
        )
        for old, found in successors.items()
    }
    result: dict[str, Currency] = {}
    hidden: set[str] = set()
    for document in states.keys() | valid.keys():
        if (
            states.get(document, "current") != "current"
            or document in future
            or valid.get(document)
            or document in outside
        ):
            hidden.add(document)
    for document in hidden | amenders.keys():
        labels: list[str] = []
        by = valid.get(document, ())
        amended = tuple(sorted(a for a in amenders.get(document, set()) if a not in hidden))
        state = states.get(document, "current")
        if by:
            labels.append(f"superseded by {', '.join(by)}")
        elif document in outside:
            labels.append(f"superseded by {outside[document]}")
        elif state == "superseded":
            labels.append("superseded")
        if state in ("withdrawn", "draft"):
            labels.append(state)
        if document in future:
            labels.append("not yet effective")
        labels.extend(f"amended by {a}" for a in amended)
        if labels:
            result[document] = Currency(
                current=document not in hidden, labels=tuple(labels), superseded_by=by, amended_by=amended
            )
    return result


def _has_a_say(document: str, other: str, open_sources: frozenset[str]) -> bool:
    source = document.partition("/")[0]
    return source not in open_sources or other.startswith(f"{source}/")


def _in_future(text: str, today: date) -> bool:
    when = parse_date(text)
    return when is not None and when > today


def _named(value: str, names: Names, *, near: str) -> tuple[str, ...]:
    """The documents that a metadata value names; a name that means several or none is left out."""
    value = value.strip().strip("[]")
    if not value:
        return ()
    whole = names.find(value, near=near)
    if len(whole) == 1:
        return whole
    found: list[str] = []
    for part in re.split(r"[,;\n]", value):
        one = names.find(part.strip().strip("\"'"), near=near) if part.strip() else ()
        if len(one) == 1:
            found.append(one[0])
    return tuple(dict.fromkeys(found))


def _reaches(old: str, new: str, successors: Mapping[str, set[str]]) -> bool:
    """True when `old` is in turn a successor of `new`: a circle says nothing about which one holds."""
    seen: set[str] = set()
    todo = [new]
    while todo:
        at = todo.pop()
        for following in successors.get(at, ()):
            if following == old:
                return True
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return False

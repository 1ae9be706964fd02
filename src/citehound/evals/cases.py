"""Eval cases: reads and writes them (JSONL, YAML, CSV) and checks them against a corpus; runs nothing."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ..access import Principal
from ..corpus import Corpus, find_section
from ..errors import CitehoundError, UsageError

Kind = Literal["single", "compound", "unanswerable"]
KINDS: tuple[Kind, ...] = ("single", "compound", "unanswerable")
_LISTS = ("must_read", "answer_points", "missing", "tags")
_CSV_SEPARATOR = re.compile(r"\s*[;\n]\s*")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question and what a good run does with it. None means that the case does not say."""

    id: str
    question: str
    kind: Kind | None = None
    must_read: tuple[str, ...] | None = None
    """Documents, by id, path or unique suffix, each with `#section` where only that is needed."""
    answer_points: tuple[str, ...] | None = None
    """What the answer must say. One that begins with '(optional)' is not counted."""
    missing: tuple[str, ...] | None = None
    """What the corpus does not have and the answer must declare; empty: nothing is missing."""
    max_steps: int | None = None
    tags: tuple[str, ...] = ()
    evidence: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Document to regular expressions that the text shown must hold, white space folded."""

    @property
    def has_gap(self) -> bool | None:
        """Whether something must be declared as missing; None where the case does not say."""
        if self.missing is None:
            return True if self.kind == "unanswerable" else None
        return bool(self.missing) or self.kind == "unanswerable"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of one case, without what it does not say."""
        row: dict[str, Any] = {"id": self.id, "question": self.question}
        for key in ("kind", "must_read", "answer_points", "missing", "max_steps"):
            value = getattr(self, key)
            if value is not None:
                row[key] = list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        if self.tags:
            row["tags"] = list(self.tags)
        if self.evidence:
            row["evidence_regex"] = {document: list(patterns) for document, patterns in self.evidence.items()}
        return row


def load_cases(path: Path) -> tuple[Case, ...]:
    """The cases of a `.jsonl`, `.json`, `.yaml` or `.csv` file. In CSV, lists are separated by `;`.

    Patterns of `<name>.evidence.jsonl` beside it are added. Unknown fields are ignored. Raises UsageError, which names
    the line, for what cannot be read, a case without question, or an id that is there twice.
    """
    if not path.is_file():
        raise UsageError(f"there are no cases at {str(path)!r}: name a file of cases (.jsonl, .yaml or .csv)")
    rows = list(_rows(path))
    patterns = _patterns_beside(path)
    cases: list[Case] = []
    seen: dict[str, str] = {}
    for where, row in rows:
        case = _case(row, where=where, patterns=patterns)
        if case.id in seen:
            raise UsageError(f"{where}: the id {case.id!r} is at {seen[case.id]} too: give each case an id of its own")
        seen[case.id] = where
        cases.append(case)
    if not cases:
        raise UsageError(f"{str(path)!r} has no cases: write one JSON object per line, with id and question")
    return tuple(cases)


def write_cases(cases: Iterable[Case]) -> str:
    """The cases as JSONL."""
    return "".join(json.dumps(case.to_dict(), ensure_ascii=False) + "\n" for case in cases)


def _rows(path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{str(path)!r} cannot be read ({error}): save it as UTF-8") from error
    kind = path.suffix.lower()
    if kind == ".csv":
        for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
            yield f"{path.name}:{number}", {k: v for k, v in row.items() if k and isinstance(v, str) and v.strip()}
        return
    if kind in (".yaml", ".yml", ".json"):
        yield from _documents(text, path)
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            where = f"{path.name}:{number}"
            try:
                yield where, _object(json.loads(line), where)
            except ValueError as error:
                raise UsageError(f"{where} is no JSON ({error}): write one object per line") from error


def _documents(text: str, path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    import yaml

    try:
        read: Any = json.loads(text) if path.suffix.lower() == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{path.name} cannot be read ({' '.join(str(error).split())[:160]})") from error
    if isinstance(read, dict):
        read = cast("dict[str, Any]", read).get("cases", read)
    if not isinstance(read, list):
        raise UsageError(f"{path.name} holds no list of cases: write a list of objects with id and question")
    for number, row in enumerate(cast("list[Any]", read), start=1):
        where = f"{path.name}, case {number}"
        yield where, _object(row, where)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} is no object: write {{'id': …, 'question': …}}")
    return cast("dict[str, Any]", value)


def _case(row: Mapping[str, Any], *, where: str, patterns: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Case:
    name, question = row.get("id"), row.get("question")
    if isinstance(name, int):
        name = str(name)
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"{where} has no id: give each case one")
    if not isinstance(question, str) or not question.strip():
        raise UsageError(f"{where}: case {name!r} has no question")
    kind = row.get("kind") or None
    if kind is not None and kind not in KINDS:
        raise UsageError(f"{where}: the kind of case {name!r} is {kind!r}: use one of {', '.join(KINDS)}")
    lists = {key: _strings(row.get(key), key, where=where) for key in _LISTS}
    steps = row.get("max_steps")
    if isinstance(steps, str) and steps.strip().isdigit():
        steps = int(steps)
    if steps is not None and (not isinstance(steps, int) or isinstance(steps, bool) or steps < 1):
        raise UsageError(f"{where}: max_steps of case {name!r} is {steps!r}: give a number from 1")
    own = _patterns(row.get("evidence_regex"), where=where)
    return Case(
        id=name.strip(),
        question=question.strip(),
        kind=kind,
        must_read=lists["must_read"],
        answer_points=lists["answer_points"],
        missing=lists["missing"],
        max_steps=steps,
        tags=lists["tags"] or (),
        evidence=own or dict(patterns.get(name.strip(), {})),
    )


def _strings(value: Any, key: str, *, where: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        return tuple(part for part in _CSV_SEPARATOR.split(value.strip()) if part)
    if isinstance(value, list) and all(isinstance(v, str) for v in cast("list[Any]", value)):
        return tuple(v for v in cast("list[str]", value) if v.strip())
    raise UsageError(f"{where}: {key} is {value!r}: give a list of texts")


def _patterns(value: Any, *, where: str) -> dict[str, tuple[str, ...]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{where}: evidence_regex is no object: write {{document: [patterns]}}")
    found: dict[str, tuple[str, ...]] = {}
    for document, many in cast("dict[str, Any]", value).items():
        found[document] = _strings(many, "evidence_regex", where=where) or ()
        for pattern in found[document]:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(f"{where}: the pattern {pattern!r} is no regular expression ({error})") from error
    return found


def _patterns_beside(path: Path) -> dict[str, Mapping[str, tuple[str, ...]]]:
    beside = path.with_name(path.stem + ".evidence.jsonl")
    if not beside.is_file():
        return {}
    return {str(row.get("id")): _patterns(row.get("evidence_regex"), where=where) for where, row in _rows(beside)}


# Against a corpus ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Need:
    """A must_read entry, found in the corpus: a document, or the stretch of one section of it."""

    name: str
    document: str
    start: int | None = None
    end: int | None = None


def needs(case: Case, corpus: Corpus, *, principal: Principal) -> tuple[Need, ...]:
    """The case's must_read entries as they stand in the corpus. Raises UsageError with the nearest match."""
    found: list[Need] = []
    for name in case.must_read or ():
        problem, need = _need(name, corpus, principal=principal)
        if need is None:
            raise UsageError(f"case {case.id!r}: {problem}")
        found.append(need)
    return tuple(found)


def problems(cases: Sequence[Case], corpus: Corpus, *, principal: Principal) -> tuple[str, ...]:
    """A line for each name in the cases that the corpus does not have, with the nearest one that it has."""
    lines: list[str] = []
    for case in cases:
        for name in dict.fromkeys((*(case.must_read or ()), *case.evidence)):
            problem, need = _need(name, corpus, principal=principal)
            if need is None:
                lines.append(f"case {case.id!r}: {problem}")
    return tuple(lines)


def _need(name: str, corpus: Corpus, *, principal: Principal) -> tuple[str, Need | None]:
    """What is wrong with the name, else where it stands. A `#` may also be part of a document's own name."""
    try:
        return "", Need(name=name, document=corpus.resolve(name.strip(), principal=principal))
    except CitehoundError as error:
        if "#" not in name:
            return f"must_read {name!r}: {error}", None
    document, _, section = name.rpartition("#")
    try:
        full = corpus.resolve(document.strip(), principal=principal)
        place = find_section(corpus.document(full, principal=principal), section)
    except CitehoundError as error:
        return f"must_read {name!r}: {error}", None
    return "", Need(name=name, document=full, start=place.start, end=place.end)

"""YAML or TOML front matter as flat strings, without aliases or tags; where broken, the text stays."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

_FENCED = re.compile(
    r"\s*(?P<fence>---|\+\+\+)[ \t]*\n(?P<inside>.*?)^(?P<close>---|\+\+\+|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.M
)
_LINE = re.compile(r"(?P<key>[A-Za-z_][\w .-]{0,60}?)\s*:(?:\s+(?P<value>.*))?$")
_ISO = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?")
_MAX_CHARS = 64 * 1024
_MAX_KEYS = 200
_MAX_DEPTH = 5


@dataclass(frozen=True, kw_only=True)
class FrontMatter:
    body: str
    """The text after the front matter; all of it where there is none that can be taken away."""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    title: str | None = None
    """A title saved out of broken front matter."""
    warnings: tuple[str, ...] = ()


_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the first, of libyaml, is 80 times as fast


def _load(text: str) -> Any:
    """Scalars stay strings; tags mean nothing; aliases, anchors and repeated keys are refused."""
    events = cast("Iterator[Any]", cast("Any", yaml).parse(text, Loader=_LOADER))
    next(events)  # of the stream
    if isinstance(next(events), yaml.StreamEndEvent):
        return None
    loaded = _node(next(events), events)
    next(events)  # of the document
    if not isinstance(next(events), yaml.StreamEndEvent):
        raise yaml.YAMLError("another document follows")
    return loaded


def _node(event: Any, events: Iterator[Any]) -> Any:
    if isinstance(event, yaml.AliasEvent):
        raise yaml.YAMLError("aliases are not allowed")
    if event.anchor:
        raise yaml.YAMLError("anchors are not allowed")
    if isinstance(event, yaml.ScalarEvent):
        return event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_node(event, events))
        return items
    values: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _node(event, events)
        if not isinstance(key, str):
            raise yaml.YAMLError("a key must be plain text")
        if key in values:
            raise yaml.YAMLError(f"key {key!r} stands twice")
        values[key] = _node(next(events), events)
    return values


def read_front_matter(text: str) -> FrontMatter | None:
    """The front matter at the beginning of a normalised text, or None when there is none."""
    match = _FENCED.match(text)
    if match is None or (match["fence"] == "+++") != (match["close"] == "+++"):
        return None
    inside, body = match["inside"], text[match.end() :]
    if not inside.strip():
        return FrontMatter(body=body)
    if len(inside) > _MAX_CHARS:
        return _broken(inside, body, text, "is too long")
    try:
        loaded: Any = tomllib.loads(inside) if match["fence"] == "+++" else _load(inside)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, RecursionError, ValueError, TypeError) as error:
        problem = getattr(error, "problem", None) or str(error) or type(error).__name__
        return _broken(inside, body, text, re.sub(r"\s+", " ", problem)[:160])
    if loaded is None or loaded == "":
        return FrontMatter(body=body)
    if not isinstance(loaded, dict):
        return None  # a text between two rules, not front matter
    metadata: dict[str, str] = {}
    warnings: list[str] = []
    _flatten(cast("Mapping[Any, Any]", loaded), "", metadata, warnings, depth=1)
    return FrontMatter(body=body, metadata=metadata, warnings=tuple(warnings))


def _broken(inside: str, body: str, text: str, problem: str) -> FrontMatter:
    """Takes the front matter away if each line of it looks like one, and saves a title that stands there once."""
    warning = f"front matter cannot be read ({problem}); its values are ignored"
    titles: list[str] = []
    for line in inside.split("\n"):
        stripped = line.strip()
        match = _LINE.match(stripped)
        if match and match["key"].lower() == "title" and match["value"] and not line[0].isspace():
            titles.append(match["value"].strip().strip("\"'"))
        if not (match or not stripped or line[0].isspace() or stripped[0] in "#-[]{}&*!|>%@`\"'"):
            return FrontMatter(body=text, warnings=(warning + ", its text is kept",))
    return FrontMatter(body=body, title=titles[0] if len(titles) == 1 else None, warnings=(warning,))


def _flatten(values: Mapping[Any, Any], prefix: str, into: dict[str, str], warnings: list[str], *, depth: int) -> None:
    for key, value in values.items():
        name = prefix + re.sub(r"\s+", " ", str(key)).strip()
        if len(into) >= _MAX_KEYS:
            warnings.append(f"front matter has more than {_MAX_KEYS} keys; the rest is ignored")
            return
        if isinstance(value, Mapping):
            if depth < _MAX_DEPTH:
                _flatten(cast("Mapping[Any, Any]", value), name + ".", into, warnings, depth=depth + 1)
            else:
                warnings.append(f"front matter: {name!r} is nested too deeply and is ignored")
            continue
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        flat = ", ".join(s for s in (_scalar(item) for item in items) if s)
        date = _ISO.fullmatch(flat)
        if date:
            try:
                flat = datetime.date(int(date[1]), int(date[2]), int(date[3])).isoformat()
            except ValueError:
                warnings.append(f"front matter: {name!r} is no date that exists ({flat!r}) and is ignored")
                continue
        if flat:
            into[name] = flat


def _scalar(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()[:10]
    if isinstance(value, list | dict):
        return ""
    return re.sub(r"\s+", " ", str(value)).strip()

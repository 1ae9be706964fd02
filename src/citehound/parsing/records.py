"""JSON and JSON Lines as records: each key with its value, numbers exactly as written; knows no schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from ..errors import ParseError
from .blocks import Block
from .extract import Extract, clean, clean_line

MAX_DEPTH = 60
MAX_SECTIONS = 2_000
"""More records than this get no heading of their own."""
_TITLES = ("title", "name", "subject", "heading", "question", "id", "key")


def parse_json(text: str) -> Extract:
    """Blocks of a JSON text. Raises ParseError."""
    try:
        value = _load(text)
    except ParseError:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and lines[0].lstrip()[0] in "{[" and all(_is_json(line) for line in lines):
            return parse_jsonl(text)
        raise
    if isinstance(value, list):
        return Extract(blocks=_records(cast(list[Any], value)))
    if not isinstance(value, dict):
        return Extract(blocks=[Block(text=_scalar(value), kind="item")])
    table = cast(dict[str, Any], value)
    blocks: list[Block] = []
    lines = [f"{clean_line(key)}: {_scalar(v)}" for key, v in table.items() if not _nested(v) and _scalar(v)]
    if lines:
        blocks.append(Block(text="\n".join(lines), kind="item"))
    for key, inner in table.items():
        if not _nested(inner):
            continue
        name = clean_line(key)
        if name:
            blocks.append(Block(text=name, kind="heading", level=1))
        if isinstance(inner, list) and any(isinstance(item, dict) for item in cast(list[Any], inner)):
            blocks.extend(_records(cast(list[Any], inner), level=2))
        else:
            blocks.extend(_record(inner))
    return Extract(blocks=blocks, title=_title(table))


def parse_jsonl(text: str) -> Extract:
    """Blocks of JSON Lines; a line that is no JSON is reported and left out. Raises ParseError when none is."""
    values: list[Any] = []
    broken: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(_load(line))
        except ParseError:
            broken.append(number)
    if not values:
        raise ParseError("damaged: no line is readable JSON")
    warnings: tuple[str, ...] = ()
    if broken:
        shown = ", ".join(str(n) for n in broken[:10]) + (" …" if len(broken) > 10 else "")
        warnings = (f"{len(broken)} lines are not JSON and were left out: {shown}",)
    return Extract(blocks=_records(values), warnings=warnings)


def _is_json(line: str) -> bool:
    try:
        _load(line)
    except ParseError:
        return False
    return True


def _load(text: str) -> Any:
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except RecursionError as error:
        raise ParseError("nested too deeply to be read") from error
    except ValueError as error:
        raise ParseError(f"damaged: not readable as JSON ({clean_line(str(error))[:120]})") from error


def _records(values: Sequence[Any], *, level: int = 1) -> list[Block]:
    blocks: list[Block] = []
    titled = len(values) <= MAX_SECTIONS and any(isinstance(v, dict) for v in values)
    if not any(_nested(v) for v in values):
        lines = [_scalar(v) for v in values]
        return [Block(text="\n".join(f"- {line}" for line in lines if line), kind="item")] if any(lines) else []
    for number, value in enumerate(values, start=1):
        found = _record(value)
        if not found:
            continue
        if titled:
            title = _title(cast(dict[str, Any], value)) if isinstance(value, dict) else None
            blocks.append(Block(text=title or f"Record {number}", kind="heading", level=level))
        blocks.extend(found)
    return blocks


def _record(value: Any) -> list[Block]:
    lines = list(_lines(value, "", 0))
    return [Block(text="\n".join(lines), kind="item")] if lines else []


def _lines(value: Any, path: str, depth: int) -> Iterator[str]:
    """`a.b: value` for everything inside."""
    if depth > MAX_DEPTH:
        raise ParseError("nested too deeply to be read")
    if isinstance(value, dict):
        for key, inner in cast(dict[str, Any], value).items():
            name = clean_line(key)
            yield from _lines(inner, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        items = cast(list[Any], value)
        if any(_nested(item) for item in items):
            for number, item in enumerate(items, start=1):
                yield from _lines(item, f"{path} {number}" if path else str(number), depth + 1)
        else:
            text = ", ".join(t for item in items if (t := _scalar(item)))
            if text:
                yield f"{path}: {text}" if path else text
    else:
        text = _scalar(value)
        if text:
            yield f"{path}: {text}" if path else text


def _nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _scalar(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in clean(str(value)).split("\n"))
    return "\n".join(line for line in lines if line)


def _title(record: dict[str, Any]) -> str | None:
    lowered = {key.lower(): value for key, value in record.items()}
    for key in _TITLES:
        value = lowered.get(key)
        if isinstance(value, str) and 0 < len(clean_line(value)) <= 150:
            return clean_line(value)
    return None

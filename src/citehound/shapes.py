"""Results of other people's retrievers as items with text and names: strings, dicts, documents of any library, pairs.

Knows shapes, not meanings: what a text or a name is used for is the caller's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, cast

TEXTS = ("text", "page_content", "content", "body", "passage", "snippet", "chunk", "document")
NAMES = ("id", "document", "source", "path", "file", "url", "doc_id")
TITLES = ("title", "name", "heading")
_INSIDE = ("_source", "payload", "entity", "metadata")
"""Where search engines and vector stores put the fields of what they found."""
_LISTS = ("documents", "results", "hits", "matches", "passages", "chunks", "items", "nodes", "docs")


def items_of(result: Any) -> tuple[tuple[str, Any], list[Any]]:
    """The shape of a result of `retrieve`, and what it holds."""
    if result is None:
        return ("list", None), []
    if isinstance(result, str):
        return ("text", None), [result]
    if isinstance(result, Mapping):
        row = cast("Mapping[str, Any]", result)
        for key in _LISTS:
            held = row.get(key)
            if isinstance(held, Mapping):  # Elasticsearch: hits in hits
                shape, items = items_of(cast("Mapping[str, Any]", held))
                if shape[0] == "dict":
                    return ("list", None), items
            if isinstance(held, Sequence) and not isinstance(held, str):
                return ("dict", (key, row)), list(_flat(cast("Sequence[Any]", held)))
        return ("list", None), [row]
    if isinstance(result, Iterable):
        return ("list", None), list(cast("Iterable[Any]", result))
    return ("list", None), [result]


def _flat(held: Sequence[Any]) -> Iterable[Any]:
    """Stores that take several queries at once give a list per query."""
    for item in held:
        if isinstance(item, list):
            yield from cast("list[Any]", item)
        else:
            yield item


def text_of(item: Any) -> str | None:
    """The text of one result, or None where there is none to be found."""
    if isinstance(item, str):
        return item
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    if isinstance(item, tuple) and item:
        return next((t for t in map(text_of, cast("tuple[Any, ...]", item)) if t is not None), None)
    if isinstance(item, Mapping):
        row = cast("Mapping[str, Any]", item)
        found = [row[key] for key in TEXTS if key in row]
    else:
        found = [getattr(cast("object", item), key, None) for key in (*TEXTS, "node")]
    for value in found:
        if isinstance(value, str):
            return value
    nested = next((value for value in found if value is not None and not callable(value)), None)
    if nested is not None:
        return text_of(nested) if not isinstance(nested, int | float) else None
    inside = (_get(item, key) for key in _INSIDE)
    return next((text for part in inside if isinstance(part, Mapping) and (text := text_of(part)) is not None), None)


def field_of(item: Any, keys: Sequence[str]) -> str | None:
    """The first of these fields of a result, also in its metadata."""
    if isinstance(item, tuple) and item:
        return next((f for f in (field_of(part, keys) for part in cast("tuple[Any, ...]", item)) if f), None)
    places: list[Any] = [item, _get(item, "metadata"), _get(item, "meta"), _get(item, "node")]
    for place in places:
        for key in keys:
            value = _get(place, key)
            if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
                text = str(value)
                if len(text) <= 300:
                    return text
    return None


def metadata_of(item: Any) -> dict[str, str]:
    """What a result says of itself beside its text: short plain values, lists joined by ', '."""
    if isinstance(item, tuple) and item:
        parts = [metadata_of(part) for part in cast("tuple[Any, ...]", item)]
        return {key: value for part in reversed(parts) for key, value in part.items()}
    found: dict[str, str] = {}
    places: list[Any] = [item, _get(item, "node"), _get(item, "meta"), _get(item, "metadata")]
    for place in places:
        if not isinstance(place, Mapping):
            continue
        for key, value in cast("Mapping[Any, Any]", place).items():
            if not isinstance(key, str) or key in TEXTS:
                continue
            text = _plain(value)
            if text:
                found[key] = text
    return found


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple) and len(cast("Sequence[Any]", value)) <= 20:
        parts = [_plain(part) for part in cast("Sequence[Any]", value) if not isinstance(part, list | tuple)]
        text = ", ".join(parts) if all(parts) and not all(_is_number(p) for p in parts) else ""
    elif isinstance(value, str | int | float | date):
        text = " ".join(str(value).split())
    else:
        text = ""
    return text if len(text) <= 500 else ""


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(e-?\d+)?", text) is not None


def opening(text: str) -> str:
    """What a text begins with, where that is short enough to be its title."""
    first = re.split(r"[.:;\n]", text.strip(), maxsplit=1)[0]
    return first if len(first) <= 60 else ""


def _get(item: Any, key: str) -> Any:
    if item is None or isinstance(item, str | bytes):
        return None
    return cast("Mapping[str, Any]", item).get(key) if isinstance(item, Mapping) else getattr(item, key, None)

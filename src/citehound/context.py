"""How much of a model's window messages take, and how old search results are shortened; sends nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestParameters

from .budget import worst_tokens
from .security import CLOSE

FRAME = 12
"""Tokens around each part of a message."""
_LISTS = ("hits", "documents")


def request_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Upper estimate of a request's input tokens: messages, tools and the schema of the answer."""
    tools = [
        {"name": t.name, "description": t.description, "parameters": t.parameters_json_schema}
        for t in (*parameters.function_tools, *parameters.output_tools)
    ]
    if parameters.output_object is not None:
        tools.append({"parameters": parameters.output_object.json_schema, "name": "", "description": ""})
    return worst_tokens(json.dumps(tools, ensure_ascii=False)) + FRAME * (len(tools) + 10) + size(messages)


def size(messages: Sequence[ModelMessage]) -> int:
    """Upper estimate of the tokens of messages, frames included."""
    total = 0
    for message in messages:
        if isinstance(message, ModelRequest) and message.instructions:
            total += _instruction_tokens(message.instructions)
        for part in message.parts:
            total += FRAME
            if isinstance(part, ToolCallPart):
                total += worst_tokens(part.args_as_json_str()) + 8
            elif isinstance(part, TextPart):
                total += worst_tokens(part.content)
            else:
                content = getattr(part, "content", "")
                text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
                total += worst_tokens(text)
    return total


@lru_cache(maxsize=64)
def _instruction_tokens(text: str) -> int:
    """Every request has the same."""
    return worst_tokens(text)


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """Search results and listings in the first `upto` messages are sent as one line per hit, without snippets.

    Made once in a run and the same ever after, so that the prefix changes once and can be cached again. What was read
    is left as it is: citations rest on it.
    """

    upto: int

    def applied(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages as they are sent; what was given is not changed."""
        return [_short(m) if at < self.upto else m for at, m in enumerate(messages)]


@dataclass(frozen=True, kw_only=True)
class Compacting:
    """What a compaction would give."""

    compaction: Compaction
    saved: int
    """Tokens, by the upper estimate."""
    results: int


def compacting(messages: Sequence[ModelMessage]) -> Compacting:
    """The compaction of everything but the newest results, which the model has not seen yet."""
    compaction = Compaction(upto=max(0, len(messages) - 1))
    after = compaction.applied(messages)
    return Compacting(
        compaction=compaction,
        saved=size(messages) - size(after),
        results=sum(
            1
            for old, new in zip(messages, after, strict=True)
            for a, b in zip(old.parts, new.parts, strict=True)
            if a is not b
        ),
    )


def _short(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    parts = [_short_part(part) for part in message.parts]
    if all(a is b for a, b in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts)


def _short_part(part: ModelRequestPart) -> ModelRequestPart:
    if not isinstance(part, ToolReturnPart):
        return part
    given = cast(object, part.content)  # pyright: ignore[reportUnknownMemberType]
    if not isinstance(given, Mapping):
        return part
    content = cast(Mapping[str, Any], given)
    for name in _LISTS:
        rows: Any = content.get(name)
        if isinstance(rows, list) and rows:
            lines = [_line(row) for row in cast(list[Any], rows)]
            short = {**content, name: lines}
            ends = {CLOSE: short.pop(CLOSE)} if CLOSE in short else {}
            return replace(part, content={**short, "shortened": "search again to see snippets", **ends})
    return part


def _line(row: Any) -> str:
    """`document §section` of a hit or listed document, and whether it is not current."""
    if not isinstance(row, Mapping):
        return str(row)
    fields = cast(Mapping[str, Any], row)
    section = fields.get("section")
    old = " (not current)" if fields.get("current") is False else ""
    return f"{fields.get('document', '')}{f' §{section}' if section else ''}{old}"

"""A reply in a shape that the rest can rely on and that every provider takes back; judges and completes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

_LONGEST_NAME = 64
"""Characters of a tool's name that every provider takes."""
_SHOWN = 200
"""Characters kept of arguments that cannot be read."""
_UNNAMED = "unnamed"


def readable(response: ModelResponse) -> ModelResponse:
    """The reply without parts that are no parts: text is text, and calls have a name, an id of their own and arguments
    that can be sent.

    A call that was not understood stays a call, so that it is refused and recorded. A reply that is in order comes
    back as it is, and whatever a provider sealed stays as it came.
    """
    parts: list[Any] = []
    ids: set[str] = set()
    for part in response.parts:
        if isinstance(part, TextPart):
            if not isinstance(cast(object, part.content), str):
                continue
            content = _sendable(part.content)
            part = part if content == part.content else replace(part, content=content)
        elif isinstance(part, ToolCallPart):
            part = _call(part, ids)
        parts.append(part)
    same = len(parts) == len(response.parts) and all(a is b for a, b in zip(parts, response.parts, strict=True))
    return response if same else replace(response, parts=parts)


def _call(part: ToolCallPart, ids: set[str]) -> ToolCallPart:
    """The call with a name, arguments and an id that is not in `ids` yet; adds the id."""
    given = cast(object, part.tool_name)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", given)[:_LONGEST_NAME] if isinstance(given, str) else ""
    name = name or _UNNAMED
    identity = cast(object, part.tool_call_id)
    own = identity if isinstance(identity, str) and identity else f"call_{len(ids) + 1}"
    number = 2
    while own in ids:
        own = f"{identity or 'call'}_{number}"
        number += 1
    ids.add(own)
    args = _arguments(part.args)
    if name == part.tool_name and own == part.tool_call_id and args is part.args:
        return part
    return replace(part, tool_name=name, tool_call_id=own, args=args)


def _arguments(given: Any) -> Any:
    """Arguments without half characters; what is nested too deep to be read is kept as its first words."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        value = _whole(json.loads(given) if isinstance(given, str) else given)
        return json.dumps(value) if isinstance(given, str) else value
    except RecursionError:
        return str(given)[:_SHOWN] if isinstance(given, str) else "nested too deep"
    except (ValueError, TypeError):
        return _sendable(given) if isinstance(given, str) else given
    return given


def _whole(value: object) -> object:
    if isinstance(value, str):
        return _sendable(value)
    if isinstance(value, Mapping):
        table = cast(Mapping[object, object], value)
        return {_sendable(str(key)): _whole(item) for key, item in table.items()}
    if isinstance(value, Sequence):
        return [_whole(item) for item in cast(Sequence[object], value)]
    return value


def _sendable(text: str) -> str:
    """The text with a mark for each half of a character, as no half can be sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text

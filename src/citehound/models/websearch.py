"""The provider's own web search, asked as a search endpoint: one small request, of which only the result list is kept.

What the model writes about the results is thrown away: text of the web is fetched and checked by citehound itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.settings import ModelSettings

from ..budget import Meter
from ..egress import ANY, split_port
from ..errors import ConfigError, SourceFailed
from ..sources import Found
from ..sources.web import ProviderSearch
from . import OpenedModel

RESTRICTING = ("anthropic",)
"""Providers whose web search is known to keep to given domains."""
_REPLY_TOKENS = 600
_INPUT_TOKENS = 30_000
"""What a request with one search is taken to cost at most: results come back as input."""


def provider_search(opened: OpenedModel, *, source: str, meter: Meter) -> ProviderSearch:
    """The web search of a model's provider, paid from `meter`; to be called while an event loop runs, which it uses.

    Raises ConfigError for a provider that cannot keep to domains.
    """
    if opened.model.system not in RESTRICTING:
        raise ConfigError(
            f"source {source!r} asks the web search of the model's provider, and that of {opened.name!r} is not known "
            f"to keep to domains: name a model of {' or '.join(RESTRICTING)}, or use engine = 'search' and search_url"
        )
    home = asyncio.get_running_loop()

    async def search(query: str, domains: Sequence[str], k: int) -> Sequence[Found]:
        asked = asyncio.run_coroutine_threadsafe(_ask(opened, query, domains, meter), home)
        return (await asyncio.wrap_future(asked))[:k]

    return search


async def _ask(opened: OpenedModel, query: str, domains: Sequence[str], meter: Meter) -> list[Found]:
    allowed = None if ANY in domains else [split_port(domain)[0] for domain in domains]
    tool = WebSearchTool(max_uses=1, allowed_domains=allowed)
    text = f"Search the web once for the following, then answer with the word done.\n\n{query}"
    given = cast("dict[str, Any]", opened.settings or {})
    settings = {k: v for k, v in given.items() if "thinking" not in k} | {"max_tokens": _REPLY_TOKENS}
    price = opened.price
    worst = 0.0 if price is None else price.worst(input_tokens=_INPUT_TOKENS, output_tokens=_REPLY_TOKENS)
    reservation = meter.reserve(worst)
    try:
        response = await opened.model.request(
            [ModelRequest(parts=[UserPromptPart(text)])],
            cast("ModelSettings", settings),
            ModelRequestParameters(native_tools=[tool]),
        )
    except Exception as error:
        meter.forfeit(reservation)
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise SourceFailed(f"the provider's web search failed ({why})") from None
    used = response.usage
    spent = worst
    if price is not None and used.input_tokens:
        spent = price.of(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
        )
    meter.settle(
        reservation,
        dollars=spent,
        input_tokens=used.input_tokens,
        cached_tokens=used.cache_read_tokens,
        output_tokens=used.output_tokens,
    )
    return _found(response)


def _found(response: ModelResponse) -> list[Found]:
    found: list[Found] = []
    for part in response.parts:
        content: Any = getattr(part, "content", None)
        if getattr(part, "tool_name", "") != WebSearchTool.kind or not isinstance(content, list):
            continue
        for row in cast("list[Any]", content):
            if isinstance(row, Mapping) and isinstance(cast("Mapping[str, Any]", row).get("url"), str):
                fields = cast("Mapping[str, Any]", row)
                title = fields.get("title")
                found.append(Found(url=fields["url"], title=title if isinstance(title, str) else ""))
    return found

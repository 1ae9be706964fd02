"""The web as a live source: a search endpoint or the provider's search finds pages, the egress client fetches them.

A search result is where a page stands and a few words of it, never its text. Answers of search endpoints are read as
SearXNG gives them: {"results": [{"url", "title", "content"}]}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

from ..config import SourceConfig
from ..documents import RawDocument
from ..egress import ANY, JSON, Egress, Place, Policy, bracketed, place_of, split_port
from ..errors import ConfigError, EgressRefused, SourceFailed
from ..shapes import TITLES, field_of, items_of
from . import Found, Results

ProviderSearch = Callable[[str, Sequence[str], int], Awaitable[Sequence[Found]]]
"""Query, allowed domains and how many to give; raises SourceFailed."""

_URLS = ("url", "link", "href")
_WORDS = ("content", "snippet", "description", "summary", "text")
_EXTENSIONS: Mapping[str, str] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/pdf": "pdf",
}


@dataclass(frozen=True, kw_only=True)
class WebSource:
    config: SourceConfig
    pages: Egress
    searches: Egress | None = None
    """None: the provider is asked."""
    provider: ProviderSearch | None = None

    @classmethod
    def of(cls, config: SourceConfig) -> WebSource:
        """The source of a configuration. Raises ConfigError for hosts that are none, and for an unsafe search_url."""
        said = f"source {config.name!r}"
        try:
            domains = tuple(d if d == ANY else _spelled(d) for d in config.domains)
            private = tuple(_spelled(h) for h in config.allow_private_hosts)
        except EgressRefused as error:
            raise ConfigError(f"{said}: {error}") from None
        if any(split_port(h)[1] is None for h in private):
            raise ConfigError(f"{said}: allow_private_hosts needs a port with each host, as in '127.0.0.1:8080'")
        pages = Egress(Policy(domains=domains, private_hosts=private, http=config.allow_http))
        if config.search_url is None:
            return cls(config=config, pages=pages)
        try:
            place = place_of(config.search_url.replace("{query}", "words"))
            own = f"{bracketed(place.host)}:{place.port}"
            policy = Policy(
                domains=(own,),
                private_hosts=private,
                http=config.allow_http,
                content_types=JSON,
                seconds=config.timeout,
                max_bytes=2_000_000,
                redirects=0,
            )
            searches = Egress(policy)
            searches.check(config.search_url.replace("{query}", "words"))
        except EgressRefused as error:
            raise ConfigError(f"{said}: search_url: {error}; allow_private_hosts names hosts of your own") from None
        return cls(config=config, pages=pages, searches=searches)

    def values(self, key: str) -> tuple[str, ...]:
        return ()

    async def search(self, query: str, *, filters: Mapping[str, str], k: int) -> Results:
        """Pages of the allowed domains that the search finds. Raises SourceFailed."""
        if self.searches is None:
            if self.provider is None:
                raise SourceFailed(f"{self.config.name!r} asks the model's provider, and there is no model with one")
            return self._allowed(await self.provider(query, self.pages.policy.domains, k), k)
        assert self.config.search_url is not None
        fetched = await self.searches.get(self.config.search_url.replace("{query}", quote(query, safe="")))
        try:
            answer: Any = json.loads(fetched.data)
        except (ValueError, RecursionError):
            raise SourceFailed(f"the search of {self.config.name!r} did not answer with JSON") from None
        rows = [cast("dict[str, Any]", row) for row in items_of(answer)[1][:100] if isinstance(row, dict)]
        found = [
            Found(
                url=field_of(row, _URLS) or "",
                title=_line(field_of(row, TITLES) or "", 200),
                snippet=_line(next((row[key] for key in _WORDS if isinstance(row.get(key), str)), ""), 300),
                metadata=_dated(row),
            )
            for row in rows
        ]
        return self._allowed(found, k)

    def _allowed(self, found: Sequence[Found], k: int) -> Results:
        kept: dict[str, Found] = {}
        outside = 0
        for one in found:
            try:
                place = self.pages.check(one.url or "")
            except EgressRefused:
                outside += 1
                continue
            if place.url not in kept:
                name = name_of(place)
                kept[place.url] = Found(
                    name=name,
                    own=True,
                    title=one.title or name,
                    url=place.url,
                    snippet=one.snippet,
                    metadata={**one.metadata, "url": place.url},
                )
        notes = (f"{outside} results outside the allowed domains were left out",) if outside else ()
        return Results(found=tuple(kept.values())[:k], notes=notes)

    def check(self, url: str) -> str:
        return self.pages.check(url).url

    async def fetch(self, url: str, *, document: str, path: str) -> RawDocument:
        """The page as bytes with its address. Raises EgressRefused and SourceFailed."""
        fetched = await self.pages.get(url)
        extension = _EXTENSIONS[fetched.content_type]
        data = fetched.data
        if fetched.charset is not None and extension != "pdf":
            try:  # what the server says of the encoding ranks above what the page says
                data = b"\xef\xbb\xbf" + data.decode(fetched.charset, "replace").encode("utf-8")
            except LookupError:
                data = fetched.data
        metadata = {"url": fetched.url, "retrieved": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        return RawDocument(
            id=document,
            source=self.config.name,
            path=f"{path}.{extension}" if not path.endswith(f".{extension}") else path,
            data=data,
            metadata=metadata,
            names=dict(self.config.metadata),
            listed=True,
        )


def name_of(place: Place) -> str:
    """What a page is called in ids: its address without https:// and without a lone final slash."""
    text = place.url.removeprefix("https://")
    return (text.removesuffix("/") if place.target == "/" else text).replace("[", "(").replace("]", ")")


def _spelled(domain: str) -> str:
    host, port = split_port(domain)
    return bracketed(host) if port is None else f"{bracketed(host)}:{port}"


def _dated(row: Mapping[str, Any]) -> dict[str, str]:
    for key in ("publishedDate", "published", "date"):
        value = row.get(key)
        if isinstance(value, str) and re.match(r"\d{4}-\d{2}-\d{2}", value):
            return {"published": value[:10]}
    return {}


def _line(text: str, most: int) -> str:
    return " ".join(re.sub(r"<[^>]{0,200}>", "", text).split())[:most]

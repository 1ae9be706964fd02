"""Prices and context windows of models, from the genai-prices data that is installed; asks no server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..budget import Price

_IDS = {
    "google-cloud": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "bedrock": "aws",
}
"""The ids that genai-prices uses, where they differ from the names of providers."""


@dataclass(frozen=True, kw_only=True)
class Known:
    price: Price | None
    window: int | None


def look_up(provider: str, name: str, *, at: datetime | None = None) -> Known | None:
    """What is known of a model, or None. genai-prices decides which names belong to it, dated ones among them."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, info = get_snapshot().find_provider_model(name, None, _IDS.get(provider, provider), None)
    except LookupError:
        return None
    prices = info.get_prices(at or datetime.now(UTC))
    starts = sorted({tier.start for unit in _UNITS for tier in getattr(getattr(prices, unit, None), "tiers", ())})
    price = _price(prices, above=0)
    if price is not None and starts:
        long = tuple(p for start in starts if (p := _price(prices, above=start)) is not None)
        price = Price(
            input=price.input, output=price.output, cached=price.cached, cache_write=price.cache_write, long=long
        )
    return Known(price=price, window=getattr(info, "context_window", None))


def provider_of(name: str) -> str | None:
    """The provider that makes a model of this name, if one is known."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        maker, _ = get_snapshot().find_provider_model(name, None, None, None)
    except LookupError:
        return None
    return maker.id


_UNITS = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")


def _price(prices: Any, *, above: int) -> Price | None:
    """The price of requests with more input tokens than `above`."""
    source, target, cached, written = (_rate(getattr(prices, unit, None), above) for unit in _UNITS)
    if source is None or target is None:
        return None
    return Price(input=source, output=target, cached=cached, cache_write=written, above=above)


def _rate(value: Any, above: int) -> float | None:
    if value is None:
        return None
    rate = getattr(value, "base", value)
    for tier in getattr(value, "tiers", ()):
        if tier.start <= above:
            rate = tier.price
    return float(rate)

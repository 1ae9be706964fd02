"""Prices and context windows of models, from the genai-prices data that ships with pydantic-ai; asks no server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..budget import Price


@dataclass(frozen=True, kw_only=True)
class Known:
    price: Price | None
    window: int | None


def look_up(provider: str, name: str, *, at: datetime | None = None) -> Known | None:
    """What is known of a model, or None. Of prices that depend on the size of a request, the dearest."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        _, info = get_snapshot().find_provider_model(name, None, _provider_id(provider), None)
    except LookupError:
        return None
    prices = info.get_prices(at or datetime.now(UTC))
    source, target = _dearest(prices, "input_mtok"), _dearest(prices, "output_mtok")
    price = None
    if source is not None and target is not None:
        price = Price(
            input=source,
            output=target,
            cached=_dearest(prices, "cache_read_mtok"),
            cache_write=_dearest(prices, "cache_write_mtok"),
        )
    return Known(price=price, window=getattr(info, "context_window", None))


def _provider_id(provider: str) -> str:
    """The id that genai-prices uses for a pydantic-ai provider prefix."""
    return {
        "google-gla": "google",
        "google-vertex": "google",
        "openai-chat": "openai",
        "openai-responses": "openai",
    }.get(provider, provider)


def _dearest(prices: Any, unit: str) -> float | None:
    value = getattr(prices, unit, None)
    if value is None:
        return None
    tiers = getattr(value, "tiers", None)
    if tiers is None:
        return float(value)
    return max(float(value.base), *(float(tier.price) for tier in tiers))

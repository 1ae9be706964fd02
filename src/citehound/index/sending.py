"""Whether an embedder or reranker sends texts of private sources away, and whether it may; it sends nothing."""

from __future__ import annotations

import ipaddress
import os
from urllib.parse import urlsplit

from ..config import Config
from ..errors import ConfigError

_AWAY = frozenset(
    {
        *("openai", "voyage", "voyageai", "cohere", "google", "mistral", "azure", "bedrock", "huggingface", "together"),
        *("fireworks", "openrouter", "litellm", "jina", "compatible"),
    }
)
"""Names of services. A function of one's own, and what runs on this machine, is not among them."""


def sends_away(name: str, base_url: str | None) -> bool:
    """True when texts leave this machine."""
    prefix = name.partition(":")[0]
    if prefix == "ollama":
        return not _is_here(base_url or os.environ.get("OLLAMA_BASE_URL", "http://localhost"))
    return prefix in _AWAY and not (base_url is not None and _is_here(base_url))


def _is_here(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_sending(config: Config) -> tuple[str, ...]:
    """What is to be said where texts of private sources are sent away. Raises ConfigError where that is not allowed."""
    private = [repr(source.name) for source in config.sources if source.private]
    if not private:
        return ()
    shown = ", ".join(private[:3]) + (" …" if len(private) > 3 else "")
    said: list[str] = []
    for table, what, settings in (
        ("index.embedding", "every passage and query", config.index.embedding),
        ("index.rerank", "what a search finds, and the query,", config.index.rerank),
    ):
        if not sends_away(settings.name, settings.base_url):
            continue
        if not settings.send_private:
            raise ConfigError(
                f"{table} {settings.name!r} would be sent texts of private sources ({shown}); "
                f"set send_private = true in [{table}] if they may leave this machine"
            )
        said.append(f"{what} of private sources ({shown}) is sent to {settings.name!r} (send_private in [{table}])")
    return tuple(said)

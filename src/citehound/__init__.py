"""Citehound: agentic retrieval whose every claim carries a quote that code has checked."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Assistant",
    "Budget",
    "Call",
    "Chat",
    "Citation",
    "CitehoundError",
    "Claim",
    "Config",
    "ConfigError",
    "Corpus",
    "Document",
    "Draft",
    "Event",
    "Gap",
    "OpenedModel",
    "Passage",
    "Price",
    "ScriptedModel",
    "SearchHit",
    "Usage",
    "UsageError",
    "__version__",
    "hops",
    "source",
]

if TYPE_CHECKING:
    from .answers import Answer, Call, Citation, Claim, Gap, Usage
    from .assistant import Assistant
    from .budget import Budget, Price
    from .chat import Chat
    from .config import Config
    from .corpus import Corpus
    from .documents import Document, Passage, SearchHit
    from .drafts import Draft
    from .errors import CitehoundError, ConfigError, UsageError
    from .events import Event
    from .models import OpenedModel
    from .models.scripted import ScriptedModel
    from .pipeline import hops
    from .sources.python import source

_HOMES = {
    "answers": ("Answer", "Call", "Citation", "Claim", "Gap", "Usage"),
    "assistant": ("Assistant",),
    "budget": ("Budget", "Price"),
    "chat": ("Chat",),
    "config": ("Config",),
    "corpus": ("Corpus",),
    "documents": ("Document", "Passage", "SearchHit"),
    "drafts": ("Draft",),
    "errors": ("CitehoundError", "ConfigError", "UsageError"),
    "events": ("Event",),
    "models": ("OpenedModel",),
    "models.scripted": ("ScriptedModel",),
    "pipeline": ("hops",),
    "sources.python": ("source",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `import citehound` stays fast."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

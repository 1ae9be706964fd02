"""The offline model: a deterministic planner in the same loop as any LLM; `OfflineModel` is all that others use."""

from .model import MODEL_NAME, OfflineModel

__all__ = ["MODEL_NAME", "OfflineModel"]

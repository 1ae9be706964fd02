"""`citehound.toml` as frozen values, read from file and environment; opens no index and builds no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    name: str = "offline"
    small: str | None = None
    """The judge; None means `name`."""
    base_url: str | None = None
    turn_tokens: int = 1500
    draft_tokens: int = 4000
    price_input: float | None = None
    """Dollars per million tokens; None means: look it up."""
    price_output: float | None = None
    price_cached: float | None = None
    """None means `price_input`."""


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    max_steps: int = 12
    max_dollars: float | None = 0.50
    max_seconds: float | None = 120.0


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    name: str
    path: Path
    """Absolute."""
    description: str = ""
    kind: str = "files"
    filters: tuple[str, ...] = ()
    private: bool = True
    trust: str = "reviewed"
    """'reviewed' or 'open'."""
    language: str | None = None
    """ISO 639-1, for documents whose language is neither given nor detected."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps a metadata name to the key that the documents use for it."""
    include: tuple[str, ...] = ()
    """Globs relative to `path`; empty means every file."""
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IndexConfig:
    backend: str = "embedded"
    language: str | None = None


@dataclass(frozen=True, kw_only=True)
class Config:
    root: Path
    """Folder of citehound.toml; state lives in `root/.citehound`."""
    sources: tuple[SourceConfig, ...]
    model: ModelConfig = field(default_factory=ModelConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    path: Path | None = None
    """The file it was read from."""

    @property
    def state(self) -> Path:
        return self.root / ".citehound"

    def source(self, name: str) -> SourceConfig | None:
        return next((s for s in self.sources if s.name == name), None)

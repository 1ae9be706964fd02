"""Who asks: a name, the groups it belongs to, and whether it owns everything; what a group may see is configured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who asks. Every function that reads takes one, with no default."""

    name: str
    """Whose runs these are; unique among those who may ask."""
    groups: frozenset[str] = frozenset()
    owner: bool = False
    """Sees every document and every run, and may change what others see."""


OWNER = Principal(name="owner", owner=True)
"""Whoever runs the command line, and the only one on loopback without tokens."""

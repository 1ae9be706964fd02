"""Citehound: agentic retrieval whose every claim carries a quote that code has checked."""

from __future__ import annotations

__version__ = "0.1.0"

"""The protocol server of the tests, for benchmarks; it lives in `tests/protocol_server.py`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from protocol_server import FAULTS, Received, Reply, Server, common_prefix, prompt_text, serve

__all__ = ["FAULTS", "Received", "Reply", "Server", "common_prefix", "prompt_text", "serve"]

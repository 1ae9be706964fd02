"""`citehound mcp`: serves the tools and `ask` to one MCP client over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path

import click

from ..errors import UsageError
from . import output
from .commands import config_option, load, opened


@click.command()
@click.option("--model", metavar="M", help="provider:model, or 'offline' for none.")
@config_option
def mcp(model: str | None, config_path: Path | None) -> None:
    """Serve search, read and ask to an MCP client over stdio.

    The client starts this command itself; docs/mcp.md has what to put into
    the settings of desktop clients. For HTTP, 'citehound serve' has the same
    at /mcp.
    """
    from ..assistant import Assistant
    from ..mcp_server import serve_stdio
    from ..tracing import configure

    config = load(config_path)
    if model is not None:
        if not model.strip():
            raise UsageError("--model is empty; name one as provider:model, or 'offline'")
        config = replace(config, model=replace(config.model, name=model.strip()))
    _quiet_logs()
    warning = configure()
    if warning:
        output.err(f"note: {warning}")
    with opened(config) as corpus, Assistant(config, corpus=corpus) as assistant:
        output.err("serving MCP over stdio to the client that started this")
        try:
            asyncio.run(_until_terminated(serve_stdio(assistant)))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def _until_terminated(serving: Coroutine[None, None, None]) -> None:
    """SIGTERM ends the serving like Ctrl-C, so that a running question is recorded."""
    task = asyncio.ensure_future(serving)
    with contextlib.suppress(NotImplementedError):  # on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task


class _OneLine(logging.Formatter):
    """A record as one line, without a traceback and without live secrets."""

    def format(self, record: logging.LogRecord) -> str:
        from ..security import redact, visible

        kind = f" ({record.exc_info[0].__name__})" if record.exc_info and record.exc_info[0] else ""
        return " ".join(redact(visible(record.getMessage() + kind)).split())[:500]


def _quiet_logs() -> None:
    """Warnings of any library are one line each on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])

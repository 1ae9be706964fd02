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
from .serve import serve

PATH = "/mcp"


@click.command()
@click.option("--http", is_flag=True, help="Serve over HTTP at /mcp, as 'citehound serve' does.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H", help="With --http: where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    metavar="P",
    help="With --http; 0 takes a free one.",
)
@click.option("--model", metavar="M", help="provider:model, or 'offline' for none.")
@config_option
@click.pass_context
def mcp(context: click.Context, http: bool, host: str, port: int, model: str | None, config_path: Path | None) -> None:
    """Serve search, read and ask to MCP clients.

    Over stdio: the client starts this command itself; docs/mcp.md has what
    to put into its settings. Over HTTP, from beyond this machine, a client
    needs a token, as for everything else of the server.
    """
    if http:
        if model is not None:
            raise UsageError("--model does not go with --http; name the model in the configuration")
        output.err(f"MCP is at {PATH} of the address below")
        context.invoke(serve, host=host, port=port, config_path=config_path)
        return
    from ..assistant import Assistant
    from ..events import Emit
    from ..mcp_server import Opening, serve_stdio
    from ..tracing import configure

    config = load(config_path)
    if model is not None:
        if not model.strip():
            raise UsageError("--model is empty; name one as provider:model, or 'offline'")
        config = replace(config, model=replace(config.model, name=model.strip()))
    _quiet_logs()
    warning = configure(settings=config.tracing)
    if warning:
        output.err(f"note: {warning}")

    def assistant(emit: Emit) -> Assistant:
        return Assistant(config, corpus=opened(config, emit=emit))

    output.err("serving MCP over stdio to the client that started this")
    try:
        asyncio.run(_until_terminated(serve_stdio(Opening(config, assistant))))
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

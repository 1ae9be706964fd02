"""`citehound serve` and `citehound tokens`: starts the server, and looks after who may use it."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import click

from ..events import Event, Progress
from . import output
from .commands import config_option, json_option, load


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H", help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, metavar="P", help="0 takes a free one."
)
@config_option
def serve(host: str, port: int, config_path: Path | None) -> None:
    """Serve the page, the dashboard and the API.

    Reached from this machine only, unless --host says otherwise; then a token
    is needed, and the first one is made and shown once.
    """
    from ..server.app import LOOPBACK, bind, create_app
    from ..server.app import serve as run
    from ..server.tokens import FILE, FIRST, Tokens
    from ..tracing import configure

    config = load(config_path)
    warning = configure(settings=config.tracing)
    if warning:
        output.err(f"note: {warning}")
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    listening = bind(host, port)
    at: int = listening.getsockname()[1]
    tokens = Tokens(config.state / FILE)
    reached = host not in LOOPBACK or bool(config.server.urls)  # by a proxy, which comes from this machine
    if reached and config.server.user_header is None and not tokens.any():
        secret = tokens.add(FIRST, owner=True)
        output.err(f"a token is needed from beyond this machine; this one is shown once: {secret}")
    app = create_app(config, host=host, port=at, emit=_Indexing())
    shown = f"[{host}]" if ":" in host else host
    output.err(f"serving at http://{shown}:{at} (Ctrl-C ends it)")
    run(app, listening)


class _Indexing:
    """Tells how far the first index is, a line now and then."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and (event.done == event.total or time.monotonic() >= self._next):
            self._next = time.monotonic() + 2
            output.err(f"indexing: {event.done} of {event.total} files, {event.passages:,} passages", style="dim")


class _OneLine(logging.Formatter):
    """A line per record, without what cannot be seen, without secrets; a traceback only when it is asked for."""

    def format(self, record: logging.LogRecord) -> str:
        from ..security import redact, visible

        debug = os.environ.get("CITEHOUND_DEBUG") == "1"
        text = super().format(record)
        if debug:
            return redact(visible(text))
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = f"{text.splitlines()[0]} ({type(error).__name__}: {error})"
        return " ".join(redact(visible(text)).split())[:2000]


@click.group()
@config_option
def tokens(config_path: Path | None) -> None:
    """Say who may use the server."""


@tokens.command("add")
@click.option("--name", required=True, metavar="N", help="Whose it is; runs belong to this name.")
@click.option("--group", "groups", multiple=True, metavar="G", help="A group whose documents it may see; repeatable.")
@click.option("--owner", is_flag=True, help="Sees every document and every run.")
@config_option
def add(name: str, groups: tuple[str, ...], owner: bool, config_path: Path | None) -> None:
    """Make a token and print it, this once."""
    from ..server.tokens import FILE, Tokens

    output.out_raw(Tokens(load(config_path).state / FILE).add(name, groups=groups, owner=owner))
    output.err("keep it: only its hash is stored, and it cannot be shown again")


@tokens.command("list")
@json_option
@config_option
def list_tokens(as_json: bool, config_path: Path | None) -> None:
    """List the tokens there are; not the tokens themselves."""
    from ..server.tokens import FILE, Tokens

    known = Tokens(load(config_path).state / FILE).all()
    if as_json:
        output.out_json(
            [{"name": t.name, "groups": list(t.groups), "owner": t.owner, "created": t.created} for t in known]
        )
        return
    if not known:
        output.err("there are none; 'citehound tokens add --name NAME' makes one")
    for token in known:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(token.created))
        what = "owner" if token.owner else ", ".join(token.groups) or "no groups"
        output.out(f"{token.name:<24} {when}  {what}")


@tokens.command("remove")
@click.option("--name", required=True, metavar="N", help="The token to take away.")
@config_option
def remove(name: str, config_path: Path | None) -> None:
    """Take a token away; from then on it is refused."""
    from ..server.tokens import FILE, Tokens

    Tokens(load(config_path).state / FILE).remove(name)
    output.err(f"removed {name!r}")

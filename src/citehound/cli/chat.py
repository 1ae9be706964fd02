"""`citehound chat`: a conversation in the terminal or over a pipe, a line per question; answers as `ask` shows them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import CitehoundError, UsageError
from . import output
from .commands import MAX_QUESTION, MODES, config_option, json_option, load, opened, terminating

if TYPE_CHECKING:
    from ..chat import Chat

_MOST_BYTES = 4 * MAX_QUESTION + 4
_PROMPT = "> "
_COMMANDS = "/new begins anew, /sources lists what was read, /quit ends"
_COMMAND = re.compile(r"/[a-z?]*$")


@click.command()
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How to go about it.")
@click.option("--model", metavar="M", help="provider:model, or 'offline' for none.")
@click.option("--max-steps", type=click.IntRange(min=1), metavar="N", help="Most turns of the model, per question.")
@click.option(
    "--max-dollars", type=click.FloatRange(min=0), metavar="D", help="Most to spend per question; inf for no limit."
)
@json_option
@config_option
def chat(
    mode: str,
    model: str | None,
    max_steps: int | None,
    max_dollars: float | None,
    as_json: bool,
    config_path: Path | None,
) -> None:
    """Ask questions that may lean on the ones before ("and for Beta?").

    One question a line, typed or piped. /new begins anew, /sources lists
    what was read, /quit or the end of input ends.
    """
    from ..assistant import Assistant
    from ..tracing import configure

    config = load(config_path)
    if model is not None:
        if not model.strip():
            raise UsageError("--model is empty; name one as provider:model, or 'offline'")
        config = replace(config, model=replace(config.model, name=model.strip()))
    warning = configure(settings=config.tracing)
    if warning:
        output.err(f"note: {warning}")
    with opened(config) as corpus, Assistant(config, corpus=corpus, emit=output.Steps()) as assistant:

        def begin() -> Chat:
            return assistant.chat(mode=mode, max_steps=max_steps, max_dollars=max_dollars)

        failed = _converse(begin, as_json=as_json)
    if failed:
        raise CitehoundError(f"{failed} of the questions got no answer; 'citehound runs' has the traces")


def _converse(begin: Callable[[], Chat], *, as_json: bool) -> int:
    """Reads and answers until the end; gives the number of questions without an answer."""
    talk = begin()
    typed = sys.stdin.isatty()
    if typed:
        output.err(f"ask; {_COMMANDS}", style="dim")
    failed = 0
    while (line := _line(prompt=typed)) is not None:
        if not line:
            continue
        if _COMMAND.match(line):
            if line in ("/quit", "/exit"):
                break
            if line == "/new":
                talk = begin()
                output.err("a new conversation: nothing said or read before counts", style="dim")
            elif line == "/sources":
                output.show_chat_sources(talk.sources(), to_stderr=as_json)
            else:
                output.err(f"no command {line!r}: {_COMMANDS}")
            continue
        failed += not _answered(talk, line, as_json=as_json)
    return failed


def _answered(talk: Chat, question: str, *, as_json: bool) -> bool:
    """False when there is no answer. Ctrl-C ends the question, not the chat; a request to terminate ends both."""
    with terminating() as asked_to_end:
        try:
            answer = talk.ask_sync(question)
        except KeyboardInterrupt:
            if asked_to_end.is_set():
                raise
            output.err("interrupted; what was read until then is kept, 'citehound runs' has the record")
            return True
    if as_json:
        output.out_json_line(answer.to_dict())
    else:
        output.err()
        output.show_answer(answer)
        output.out()
    sys.stdout.flush()
    if answer.status == "failed":
        output.err(f"there is no answer (stopped: {answer.stop_reason})")
    return answer.status != "failed"


def _line(*, prompt: bool) -> str | None:
    """The next line without what cannot be seen; None at the end, '' for one to pass over. No line is kept whole that
    is longer than a question may be."""
    from ..security import visible

    if prompt:
        output.err_prompt(_PROMPT)
    data = sys.stdin.buffer.readline(_MOST_BYTES)
    if not data:
        if prompt:
            output.err()
        return None
    cut = False
    while not data.endswith(b"\n"):
        more = sys.stdin.buffer.readline(_MOST_BYTES)
        if not more:
            break
        cut = True
        if more.endswith(b"\n"):
            break
    text = visible(data.decode("utf-8", "replace").removeprefix("\ufeff")).strip()
    if cut or len(text) > MAX_QUESTION:
        output.err(f"the question has more than {MAX_QUESTION:,} characters; ask a shorter one")
        return ""
    return " ".join(text.split("\n"))

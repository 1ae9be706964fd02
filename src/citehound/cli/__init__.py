"""The command line: flags, exit codes and what stdout and stderr get; the work is done on lower floors.

Exit codes: 0 an answer was given, 1 it failed, 2 wrong usage or configuration, 3 a gate was not met, 130 interrupted.
Everything heavy is imported inside the commands, so that `citehound --help` stays quick.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..errors import CitehoundError, UsageError
from .backups import backup, restore
from .chat import chat
from .commands import COMMANDS, Gate
from .doctor import doctor
from .evaluate import evaluate
from .mcp import mcp
from .output import err, prepare_streams
from .serve import serve, tokens

_BUG = (
    "this is a bug in Citehound ({what}); please report it with the command and the output of the same "
    "command under CITEHOUND_DEBUG=1"
)


class App(click.Group):
    """The group of commands; turns every exception into one line on stderr and an exit code."""

    def main(  # pyright: ignore[reportIncompatibleMethodOverride] - one signature instead of click's two overloads
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As click's, but exits with our codes, and with one line for any error."""

        def plain() -> object:
            return super(App, self).main(
                args=args,
                prog_name=prog_name or "citehound",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        if not standalone_mode:
            return plain()
        prepare_streams()
        code = _guarded(plain)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                _silence()
        sys.exit(code)


def _guarded(command: Callable[[], object]) -> int:
    """Runs a command and gives its exit code; whatever it raises becomes one line on stderr."""
    try:
        done = command()
        return done if isinstance(done, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        err("interrupted")
        return 130
    except BrokenPipeError:
        _silence()
        return 1
    except click.exceptions.NoArgsIsHelpError as error:
        err(error.format_message())
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "citehound"
        err(f"error: {_line(error.format_message())} (see '{where} --help')")
        return 2
    except click.ClickException as error:
        err(f"error: {_line(error.format_message())}")
        return 2
    except Gate as gate:
        err(f"gate not met: {_line(str(gate))}")
        return 3
    except UsageError as error:
        err(f"error: {_line(str(error))}")
        return 2
    except CitehoundError as error:
        err(f"error: {_line(str(error))}")
        return 1
    except Exception as error:
        if os.environ.get("CITEHOUND_DEBUG") == "1":
            err(traceback.format_exc())  # not raised: what it says may hold a secret, and goes through the gate
        if isinstance(error, OSError) and error.strerror:
            place = f" {error.filename!r}" if error.filename is not None else ""
            err(f"error: {_line(error.strerror)}{place}; check the disk and the permissions")
            return 1
        err("error: " + _BUG.format(what=_line(f"{type(error).__name__}: {error}")[:200]))
        return 1


def _silence() -> None:
    """Nobody reads any more: lets the interpreter's last flush go nowhere."""
    try:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def _line(text: str) -> str:
    return " ".join(text.split())


@click.group(
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: 0 answered, 1 failed, 2 wrong usage, 3 a gate was not met, 130 interrupted.",
)
@click.version_option(__version__, prog_name="citehound", message="%(prog)s %(version)s")
@click.option("--config", "config_path", type=click.Path(path_type=Path), hidden=True, expose_value=True)
def cli(config_path: Path | None) -> None:
    """Answers from your documents, with every quote checked and every gap said."""


for _command in (*COMMANDS, chat, evaluate, doctor, serve, tokens, backup, restore, mcp):
    cli.add_command(_command)

main = cli
"""The entry point of the `citehound` script."""

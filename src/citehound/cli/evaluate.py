"""`citehound eval`: cases, recorded runs and new cases; what is measured and how is in `evals`."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import UsageError
from . import output
from .commands import MODES, Gate, config_option, json_option, load, opened

if TYPE_CHECKING:
    from ..config import Config
    from ..evals.runner import Evaluation

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@click.command("eval")
@click.argument("cases", type=click.Path(path_type=Path), required=False)
@click.option("--modes", default="single,agent", show_default=True, metavar="A,B", help="The ways to compare.")
@click.option(
    "--models", "--model", default=None, metavar="A,B", help="Models to compare; default: the configured one."
)
@click.option("--repeat", type=click.IntRange(min=1), default=1, metavar="N", help="Ask each case N times (pass^k).")
@click.option("--max-dollars", type=click.FloatRange(min=0), metavar="D", help="Most to spend on all of it.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, metavar="N", help="At once.")
@click.option("--fresh", is_flag=True, help="Do not go on with an evaluation that was stopped.")
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with plots and traces.")
@click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE", help="An earlier --json: show changes.")
@click.option("--fail-under", metavar="M=V,...", help="Exit 3 when a metric is under V (over, where less is better).")
@click.option("--judge", is_flag=True, help="Ask the small model, too, whether each answer point is covered.")
@click.option("--runs", is_flag=True, help="Measure recorded runs instead of cases.")
@click.option("--since", metavar="7d", help="With --runs: only runs of the last 7d, 12h ...")
@click.option("--new", "new", metavar="RUN", help="Print the case that a recorded run makes; 'suggest' proposes some.")
@json_option
@config_option
def evaluate(
    cases: Path | None,
    modes: str,
    models: str | None,
    repeat: int,
    max_dollars: float | None,
    concurrency: int,
    fresh: bool,
    report: Path | None,
    baseline: Path | None,
    fail_under: str | None,
    judge: bool,
    runs: bool,
    since: str | None,
    new: str | None,
    as_json: bool,
    config_path: Path | None,
) -> None:
    """Measure how well questions are answered: the CASES of a file, or recorded runs."""
    from ..evals import report as said
    from ..evals.cases import load_cases
    from ..evals.runner import evaluate_sync, variants

    chosen = [name for name, given in (("CASES", cases), ("--runs", runs), ("--new", new)) if given]
    if len(chosen) != 1:
        raise UsageError("name a file of cases, or one of --runs and --new RUN")
    if since is not None and not runs:
        raise UsageError("--since goes with --runs")
    config = load(config_path)
    if new is not None:
        _new(config, new)
        return
    if runs:
        _recorded(config, since=since, as_json=as_json, fail_under=fail_under)
        return
    assert cases is not None
    wanted = _names(modes, "--modes")
    for mode in wanted:
        if mode not in MODES:
            raise UsageError(f"--modes names {mode!r}: use some of {', '.join(MODES)}")
    given = _names(models, "--models") if models is not None else (config.model.name,)
    gates = said.parse_gates(fail_under or "", [v.name for v in variants(wanted, given)])
    before = said.load_baseline(baseline) if baseline is not None else None
    if report is not None and not report.absolute().parent.is_dir():
        raise UsageError(f"--report {str(report)!r}: its folder does not exist; make it first")
    loaded = load_cases(cases)
    opened(config).close()
    with output.progress("evaluating") as emit:
        done = evaluate_sync(
            config,
            loaded,
            modes=wanted,
            models=given,
            repeat=repeat,
            max_dollars=max_dollars,
            concurrency=concurrency,
            fresh=fresh,
            judge=judge,
            emit=emit,
        )
    _show(config, done, as_json=as_json)
    if before is not None:
        for line in said.change_lines(said.changes(before, done.to_dict())):
            (output.err if as_json else output.out)(line)
    if report is not None:
        from ..evals.page import write_page

        write_page(report, done, config)
        output.err(f"wrote {report}")
    failed = said.failures(gates, done)
    if failed:
        raise Gate("; ".join(failed[:5]) + (f" (and {len(failed) - 5} more)" if len(failed) > 5 else ""))


def _show(config: Config, done: Evaluation, *, as_json: bool) -> None:
    from ..evals import report as said

    if as_json:
        output.out_json(done.to_dict())
    else:
        output.out(f"{len(done.cases)} cases, {sum(len(r.runs) for r in done.results)} runs", style="head")
        for line in (*said.table(done), "", *said.comparison_lines(done)):
            output.out(line)
    if done.skipped:
        names = ", ".join(f"{case} ({mode})" for mode, case in done.skipped[:5])
        output.err(
            f"note: {len(done.skipped)} cases were not reached within the dollar cap: {names}; "
            "raise --max-dollars and run it again, it goes on from here"
        )


def _recorded(config: Config, *, since: str | None, as_json: bool, fail_under: str | None) -> None:
    from ..evals import report as said
    from ..evals.runner import recorded

    done = recorded(config, since=time.time() - _seconds(since) if since is not None else None)
    gates = said.parse_gates(fail_under or "", [r.variant.name for r in done.results])
    if not done.results and not as_json:
        output.out("no recorded runs" + (f" in the last {since}" if since else ""))
        return
    if as_json:
        output.out_json(done.to_dict())
    else:
        output.out(f"{sum(len(r.runs) for r in done.results)} recorded runs", style="head")
        for line in said.table(done):
            output.out(line)
    failed = said.failures(gates, done)
    if failed:
        raise Gate("; ".join(failed))


def _new(config: Config, which: str) -> None:
    from ..access import OWNER
    from ..evals.cases import write_cases
    from ..evals.drafting import case_of_run, suggest_cases
    from ..runs import RunStore

    if which == "suggest":
        with opened(config) as corpus:
            made = suggest_cases(corpus, principal=OWNER)
        if not made:
            raise UsageError("no document refers to another one, so there is nothing to suggest; write cases by hand")
        output.err("questions to edit: put them into words that a person would use, and delete the poor ones")
    else:
        made = (case_of_run(RunStore(config.state / "runs.sqlite").get(which, principal=OWNER)),)
        output.err("a case to check: is this what should be read, and all that the answer must say?")
    output.out_raw(write_cases(made).rstrip("\n"))


def _names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not names:
        raise UsageError(f"{option} is empty: name at least one")
    return names


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", text.strip().lower())
    if match is None:
        raise UsageError(f"--since {text!r} is no span of time: write 30m, 12h, 7d or 2w")
    return float(match[1]) * _UNITS[match[2]]

"""The commands themselves: check what was asked, build the objects, hand the result to `output`."""

from __future__ import annotations

import difflib
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import FILE_NAME, Config, unknown_variables
from ..config import load as load_config
from ..errors import CitehoundError, ConfigError, UnknownDocument, UsageError
from ..events import Emit, Event, nowhere
from . import output

if TYPE_CHECKING:
    from ..corpus import Corpus, SyncReport
    from ..documents import SearchResult

MODES = ("auto", "direct", "single", "hops", "agent", "research")
MAX_QUESTION = 8000
_MOST_BYTES = 4 * MAX_QUESTION + 4

_DEMOS = {
    "compliance": ("bank", "Does the contract with supplier Alpha comply with the current outsourcing policy?"),
    "retention": ("retention", "What's our current file retention policy, and has it changed recently?"),
}
_DEMO_NAMES = {"compliance": "compliance", "bank": "compliance", "retention": "retention"}


class Gate(Exception):
    """A gate that the caller set was not met (exit 3)."""


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--config PATH`, which every command takes."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        metavar="PATH",
        callback=_config_path,
        help=f"The configuration; default: {FILE_NAME} here or in a parent.",
    )(command)


def _config_path(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """The command's own --config, else the one given before the command."""
    given, above = value, context.parent
    while given is None and above is not None:
        given, above = above.params.get("config_path"), above.parent
    if given is not None and "\0" in str(given):
        raise UsageError("--config has a NUL character; name a file")
    return given


def load(path: Path | None) -> Config:
    """The configuration; what the environment has in vain is said on stderr."""
    config = load_config(path)
    for line in unknown_variables():
        output.err(f"note: {line}")
    return config


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


# init --------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@config_option
def init(folder: Path, config_path: Path | None) -> None:
    """Write a citehound.toml for the documents in FOLDER."""
    from ..config import suggest

    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a folder; name the one that holds the documents")
    target = config_path or folder / FILE_NAME
    if target.exists():
        raise UsageError(f"{str(target)!r} is there already; edit it, or remove it first")
    text = suggest(folder, beside=target.absolute().parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("x", encoding="utf-8") as file:
        file.write(text)
    config = load(target)
    output.out(f"wrote {target}")
    for source in config.sources:
        narrowed = f" [filters: {', '.join(source.filters)}]" if source.filters else ""
        for line in output.wrap(f"{source.name}: {source.description}{narrowed}", first="  ", rest="      "):
            output.out(line)
    output.err(
        "read the descriptions and correct them: they decide where a question is searched; then 'citehound index'"
    )


# index -------------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--rebuild", is_flag=True, help="Throw the index away first.")
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE", help="Write what became of each file (JSON)."
)
@click.option("--strict", is_flag=True, help="Exit 3 when a file failed.")
@click.option(
    "--explain",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Only show how one file is read, section by section.",
)
@config_option
def index(rebuild: bool, report: Path | None, strict: bool, explain: Path | None, config_path: Path | None) -> None:
    """Bring new and changed files into the index."""
    if explain is not None:
        _explain(explain, config_path)
        return
    config = load(config_path)
    if report is not None and not report.absolute().parent.is_dir():
        raise UsageError(f"--report {str(report)!r}: its folder does not exist; make it first")
    done = _sync(config, rebuild=rebuild, figures=report is not None)
    if report is not None:
        from ..security import for_terminal_json

        report.write_text(for_terminal_json(output.report_dict(done)) + "\n", encoding="utf-8")
    output.show_report(done)
    if strict and done.count("failed"):
        raise Gate(f"{done.count('failed')} files failed (--strict); the list is above")


def _explain(file: Path, config_path: Path | None) -> None:
    """Reads one file as `index` would, but indexes nothing; a configuration is used if there is one."""
    from ..chunking import chunk
    from ..corpus import read_one

    try:
        config = load(config_path)
    except ConfigError:
        if config_path is not None:
            raise
        config = None
    document = read_one(file, config)
    output.show_explained(document, chunk(document))


def _sync(config: Config, *, rebuild: bool = False, figures: bool = False, emit: Emit = nowhere) -> SyncReport:
    from ..corpus import Corpus

    with Corpus.open(config, write=True) as corpus, output.progress("indexing") as show:

        def both(event: Event) -> None:
            show(event)
            emit(event)

        for warning in corpus.warnings:
            output.err(f"note: {warning}")
        return _without_echoes(corpus.sync(emit=both, rebuild=rebuild, figures=figures), config)


def _without_echoes(report: SyncReport, config: Config) -> SyncReport:
    """The report without a source's line on a file that it leaves to another source."""
    folders = {s.name: config.root / s.path for s in config.sources}
    left = ("not included by the configuration", "excluded by the configuration", "not listed in manifest")

    def place(source: str, path: str) -> str:
        return os.path.normpath(folders[source] / path) if source in folders else ""

    taken = {place(f.source, f.path) for f in report.files if f.reason not in left}
    files = tuple(f for f in report.files if f.reason not in left or place(f.source, f.path) not in taken)
    return replace(report, files=files)


def opened(config: Config, *, emit: Emit = nowhere) -> Corpus:
    """The corpus to read from; without an index it is built first, with progress, of which `emit` hears too."""
    from ..corpus import Corpus

    with Corpus.open(config, write=True) as probe:
        empty = probe.is_empty()
    if empty:
        report = _sync(config, emit=emit)
        for file in report.files:
            if file.status == "failed":
                output.err(f"could not read {file.source}/{file.path}: {file.reason}")
        live = any(s.live for s in config.sources)
        if not live and not report.count("indexed") and not report.count("unchanged"):
            folders = ", ".join(repr(str(s.path)) for s in config.sources)
            raise UsageError(f"no document could be indexed in {folders}; 'citehound index' says why, file by file")
    corpus = Corpus.open(config)
    for warning in corpus.warnings:
        output.err(f"note: {warning}")
    return corpus


# ask ---------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("question")
@click.option("--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How to go about it.")
@click.option("--model", metavar="M", help="provider:model, or 'offline' for none.")
@click.option("--max-steps", type=click.IntRange(min=1), metavar="N", help="Most turns of the model.")
@click.option("--max-dollars", type=click.FloatRange(min=0), metavar="D", help="Most to spend; inf for no limit.")
@json_option
@click.option("--events", is_flag=True, help="Print each event as a line of JSON (with --json: on stderr).")
@click.option("--strict", is_flag=True, help="Exit 3 unless complete or direct, with every claim verified.")
@config_option
def ask(
    question: str,
    mode: str,
    model: str | None,
    max_steps: int | None,
    max_dollars: float | None,
    as_json: bool,
    events: bool,
    strict: bool,
    config_path: Path | None,
) -> None:
    """Answer QUESTION from the documents ('-' reads it from stdin)."""
    text = _question(question)
    config = load(config_path)
    if model is not None:
        if not model.strip():
            raise UsageError("--model is empty; name one as provider:model, or 'offline'")
        config = replace(config, model=replace(config.model, name=model.strip()))
    _ask(
        config,
        text,
        mode=mode,
        max_steps=max_steps,
        max_dollars=max_dollars,
        as_json=as_json,
        events=events,
        strict=strict,
    )


def _question(given: str) -> str:
    """The question, without what cannot be seen. Raises UsageError when nothing is left, or too much is."""
    from ..security import visible

    if given == "-":
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageError(f"the question has more than {MAX_QUESTION:,} characters; ask a shorter one")
        given = data.decode("utf-8-sig", "replace")
    if len(given.strip()) > MAX_QUESTION:
        raise UsageError(f"the question has {len(given):,} characters, at most {MAX_QUESTION:,}; ask a shorter one")
    text = visible(given).strip()
    if not text:
        raise UsageError('the question is empty; ask something, as in: citehound ask "Which contracts ...?"')
    return text


def _ask(
    config: Config,
    question: str,
    *,
    mode: str = "auto",
    max_steps: int | None = None,
    max_dollars: float | None = None,
    as_json: bool = False,
    events: bool = False,
    strict: bool = False,
) -> None:
    from ..assistant import MODES as BUILT
    from ..assistant import Assistant
    from ..tracing import configure

    if mode not in BUILT:
        raise UsageError(f"mode {mode!r} is not built yet; there is {', '.join(BUILT)}")
    warning = configure(settings=config.tracing)
    if warning:
        output.err(f"note: {warning}")
    emit = output.JsonLines(to_stderr=as_json) if events else output.Steps()
    with opened(config) as corpus, Assistant(config, corpus=corpus, emit=emit) as assistant, terminating():
        answer = assistant.ask_sync(question, mode=mode, max_steps=max_steps, max_dollars=max_dollars)
    if as_json:
        output.out_json(answer.to_dict())
    elif not events:
        output.err()
        output.show_answer(answer)
    if answer.stop_reason == "cancelled":
        raise KeyboardInterrupt
    if answer.status == "failed":
        raise CitehoundError(f"there is no answer (stopped: {answer.stop_reason}); 'citehound runs' has the trace")
    if strict:
        doubted = sum(1 for c in answer.claims if c.status != "verified")
        if answer.status not in ("complete", "direct") or doubted:
            raise Gate(f"the answer is {answer.status!r} with {doubted} claims not verified (--strict)")


@contextmanager
def terminating() -> Generator[threading.Event]:
    """SIGTERM interrupts like Ctrl-C, so that the run is recorded; the event tells that it came.

    Where Ctrl-C is ignored, as in a job that a script put into the background, it is heeded meanwhile: else nothing
    but a kill would end the question."""
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return

    def interrupt(number: int, frame: object) -> None:
        ended.set()
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


# search and read ---------------------------------------------------------------------------------------------------


@click.command()
@click.argument("source")
@click.argument("query")
@click.option("--filter", "filters", multiple=True, metavar="K=V", help="Only where the metadata says so; repeatable.")
@click.option("--all-versions", is_flag=True, help="Also superseded texts and drafts.")
@click.option("-k", "count", type=click.IntRange(1, 12), default=6, show_default=True, metavar="N", help="Most hits.")
@click.option(
    "--per-document",
    type=click.IntRange(1, 12),
    default=2,
    show_default=True,
    metavar="N",
    help="Most of one document.",
)
@click.option("--explain", is_flag=True, help="Show terms, ranks and why a passage was cut.")
@json_option
@config_option
def search(
    source: str,
    query: str,
    filters: tuple[str, ...],
    all_versions: bool,
    count: int,
    per_document: int,
    explain: bool,
    as_json: bool,
    config_path: Path | None,
) -> None:
    """Search SOURCE for QUERY, exactly as a model would."""
    from ..access import OWNER
    from ..toolbox import ToolRefused, search_source

    config = load(config_path)
    wanted = _filters(filters)
    if config.source(source) is None:
        known = [s.name for s in config.sources]
        near = difflib.get_close_matches(source, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(map(repr, known))}"
        raise UsageError(f"no source {source!r}; {hint}")
    with opened(config) as corpus:
        try:
            result, unbounded = (
                search_source(
                    corpus,
                    source,
                    query,
                    principal=OWNER,
                    filters=wanted,
                    only_current=not all_versions,
                    k=count,
                    per_document=most,
                )
                for most in (per_document, count)
            )
            explanation = (
                corpus.explain(
                    source,
                    query.strip(),
                    principal=OWNER,
                    filters=wanted,
                    only_current=not all_versions,
                    k=count,
                    per_document=per_document,
                )
                if explain
                else None
            )
        except ToolRefused as refused:
            raise UsageError(str(refused)) from refused
    note = _held_back(result, unbounded)
    if note is not None:
        result = replace(result, notes=(*result.notes, note))
    if as_json:
        explained = {} if explanation is None else {"explanation": output.explanation_dict(explanation)}
        output.out_json({**output.hits_dict(result), **explained})
    else:
        output.show_hits(result)
        if explanation is not None:
            output.show_explanation(explanation)


def _held_back(result: SearchResult, unbounded: SearchResult) -> str | None:
    """Says which documents would have had more of the hits but for --per-document."""
    shown = {(h.document, h.start) for h in result.hits}
    held = [h.document for h in unbounded.hits if (h.document, h.start) not in shown]
    if not held:
        return None
    names = ", ".join(repr(name) for name in dict.fromkeys(held))
    hits = "1 more hit" if len(held) == 1 else f"{len(held)} more hits"
    return f"{hits} in {names} held back; --per-document shows more of one document"


def _filters(given: tuple[str, ...]) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--filter {pair!r} must be KEY=VALUE, as in --filter supplier=Alpha")
        if key.strip() in wanted:
            raise UsageError(f"--filter {key.strip()!r} is given twice; give one value")
        wanted[key.strip()] = value.strip()
    return wanted


@click.command()
@click.argument("document")
@click.option("--section", metavar="S", help="Only this section, with all below it.")
@click.option("--start", type=click.IntRange(min=0), default=0, metavar="N", help="Go on from this character.")
@json_option
@config_option
def read(document: str, section: str | None, start: int, as_json: bool, config_path: Path | None) -> None:
    """Read a page of DOCUMENT, exactly as a model would."""
    from ..access import OWNER
    from ..toolbox import ToolRefused, read_page

    config = load(config_path)
    with opened(config) as corpus:
        try:
            passage = read_page(corpus, document, principal=OWNER, section=section, start=start)
        except UnknownDocument as unknown:
            raise UnknownDocument(f"{unknown}; 'citehound search SOURCE WORDS' finds documents") from unknown
        except ToolRefused as refused:
            raise UsageError(str(refused)) from refused
    if as_json:
        output.out_json(output.passage_dict(passage))
    else:
        output.show_passage(passage)


# runs --------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("run_id", metavar="[ID]", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Most to list.")
@click.option("--good/--bad", default=None, help="Say what you think of the run with this ID; it is kept with it.")
@click.option("--reason", metavar="TEXT", help="Why it is good or bad.")
@click.option("--stats", is_flag=True, help="Show the numbers of all runs together.")
@json_option
@config_option
def runs(
    run_id: str | None,
    limit: int,
    good: bool | None,
    reason: str | None,
    stats: bool,
    as_json: bool,
    config_path: Path | None,
) -> None:
    """List past questions, or show the one with this ID as a tree."""
    from ..access import OWNER
    from ..runs import RunStore

    if good is None and reason is not None:
        raise UsageError("--reason goes with --good or --bad")
    if good is not None and run_id is None:
        raise UsageError("--good and --bad need the ID of a run; 'citehound runs' lists them")
    if stats:
        if run_id is not None:
            raise UsageError("--stats is about all runs; leave the ID out")
        from .numbers import numbers, show

        counted = numbers(load(config_path))
        if as_json:
            output.out_json(counted.to_dict())
        else:
            show(counted)
        return
    store = RunStore(load(config_path).state / "runs.sqlite")
    if run_id is None:
        found = store.list(limit, principal=OWNER) if store.path.exists() else ()
        if as_json:
            output.out_json([output.summary_dict(s) for s in found])
        else:
            output.show_runs(found)
        return
    if good is not None:
        full = store.give_feedback(run_id, good=good, principal=OWNER, reason=reason or "")
        output.err(f"noted; 'citehound eval --new {full}' makes a case of it" if good else "noted")
        run_id = full
    record = store.get(run_id, principal=OWNER)
    if as_json:
        opinion = record.feedback
        output.out_json(
            {
                **record.answer.to_dict(),
                "created": record.summary.created,
                "feedback": None if opinion is None else {"good": opinion.good, "reason": opinion.reason},
                "events": list(record.events),
            }
        )
    elif good is None:
        output.show_run(record)


# demo --------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("name", type=click.Choice(tuple(_DEMO_NAMES)), default="compliance")
@config_option
def demo(name: str, config_path: Path | None) -> None:
    """Answer a question over a bundled corpus.

    NAME is compliance (the default; a bank, its suppliers) or retention (a README, a
    changelog). With --config, model and budget are taken from that file.
    """
    folder, question = _DEMOS[_DEMO_NAMES[name]]
    place = _copied(folder)
    config = load(place / FILE_NAME)
    if config_path is not None:
        own = load(config_path)
        config = replace(config, model=own.model, budget=own.budget)
    output.err(f"the {name} demo; its documents are in {place}")
    _sync(config)
    for line in output.wrap(question, first="Question: ", rest=" " * 10):
        output.err(line, style="head")
    output.err()
    _ask(config, question)
    output.err()
    output.err(f'try your own question: citehound ask --config {place / FILE_NAME} "..."')


def _copied(folder: str) -> Path:
    """A copy of the bundled corpus in the user's cache, or a temporary folder: state never goes into the package."""
    import shutil
    import tempfile
    from importlib.resources import as_file, files

    from .. import __version__

    base = os.environ.get("XDG_CACHE_HOME")
    caches = [Path(base) if base and Path(base).is_absolute() else None, _home_cache()]
    places = [c / "citehound" / "demos" / f"{folder}-{__version__}" for c in caches if c is not None]
    places.append(Path(tempfile.gettempdir()) / f"citehound-{os.getuid()}" / "demos" / f"{folder}-{__version__}")
    with as_file(files("citehound.demos") / folder) as bundled:
        for place in places:
            try:
                _mirror(bundled, place, shutil.copyfile)
            except OSError:
                continue
            return place
    raise CitehoundError(f"no place to write to for the demo; tried {', '.join(repr(str(p)) for p in places)}")


def _home_cache() -> Path | None:
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None


def _mirror(source: Path, target: Path, copy: Callable[[Path, Path], object]) -> None:
    """Makes `target` hold the files of `source`, and none besides but its state."""
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    if target.is_symlink() or target.stat().st_uid != os.getuid():
        raise PermissionError(f"{str(target)!r} belongs to someone else")
    wanted = {p.relative_to(source) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    wanted = {p for p in wanted if p.parts[0] != ".citehound"}
    for path in target.rglob("*"):
        inside = path.relative_to(target)
        if path.is_file() and inside.parts[0] != ".citehound" and inside not in wanted:
            path.unlink()
    for path in wanted:
        to = target / path
        if not to.is_file() or to.read_bytes() != (source / path).read_bytes():
            to.parent.mkdir(parents=True, exist_ok=True)
            copy(source / path, to)


# all ----------------------------------------------------------------------------------------------------------------

COMMANDS: tuple[click.Command, ...] = (init, index, ask, search, read, runs, demo)

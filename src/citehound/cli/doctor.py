"""`citehound doctor`: looks at configuration, sources and index, tries the model, and says of each fault what to do."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import click

from ..config import Config, ModelConfig, SourceConfig, unknown_variables
from ..config import load as load_config
from ..errors import CitehoundError, ConfigError
from . import output
from .commands import Gate, config_option, json_option

if TYPE_CHECKING:
    from ..budget import Meter, Price
    from ..corpus import Changes, Corpus
    from ..models import OpenedModel
    from .probe import Tried

MOST_DOLLARS = 0.10
MOST_SECONDS = 90.0
OWN_SECONDS = 300.0
"""For a server of one's own, which may be slow."""
SMALL_WINDOW = 16_000
"""Tokens below which an investigation of several steps hardly fits."""

Status = Literal["ok", "note", "fault"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at. A note does not stop anything; a fault does. `do`: what helps."""

    check: str
    status: Status
    says: str
    do: str = ""


@dataclass(frozen=True, kw_only=True)
class Use:
    """What questions will be answered with."""

    model: str
    modes: tuple[str, ...]
    structured: str | None
    stream: bool
    window: int | None
    dollars_per_million: dict[str, float | None] | None


@click.command()
@click.option("--model", metavar="M", help="Another model than the configured one.")
@click.option("--no-calls", is_flag=True, help="Look at everything without asking the model.")
@json_option
@config_option
def doctor(model: str | None, no_calls: bool, as_json: bool, config_path: Path | None) -> None:
    """Check configuration, index and model, and say what helps."""
    findings: list[Finding] = []
    use: Use | None = None
    spent = 0.0
    config = _configuration(config_path, findings)
    if config is not None:
        if model is not None:
            config = replace(config, model=replace(config.model, name=model.strip() or config.model.name))
        _state(config.state, findings)
        _corpus(config, findings)
        use, spent = _models(config, findings, calls=not no_calls, quiet=as_json)
    findings = [replace(f, says=_safe(f.says), do=_safe(f.do)) for f in findings]
    faults = [f.check for f in findings if f.status == "fault"]
    if as_json:
        output.out_json(
            {
                "ok": not faults,
                "findings": [asdict(f) for f in findings],
                "uses": None if use is None else asdict(use),
                "dollars": round(spent, 6),
            }
        )
    else:
        _show(findings, use, spent=spent)
    if faults:
        raise Gate(f"{len(faults)} fault{'s' if len(faults) > 1 else ''} found: {', '.join(faults)}")


def _configuration(path: Path | None, findings: list[Finding]) -> Config | None:
    try:
        config = load_config(path)
    except ConfigError as problem:
        findings.append(Finding(check="configuration", status="fault", says=str(problem), do="mend it and try again"))
        return None
    says = f"{config.path}: {_count(len(config.sources), 'source')}"
    findings.append(Finding(check="configuration", status="ok", says=says))
    for line in unknown_variables():
        findings.append(Finding(check="environment", status="note", says=line, do="correct or unset it"))
    return config


def _state(folder: Path, findings: list[Finding]) -> None:
    """Others may have been let in on purpose; that they are is worth knowing."""
    if folder.is_dir() and (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
        says = (
            f"other users of this machine may look into {folder} (mode {mode:o}): it holds texts, questions and answers"
        )
        findings.append(Finding(check="state", status="note", says=says, do=f"unless you mean it: chmod 700 {folder}"))


# corpus ------------------------------------------------------------------------------------------------------------


def _corpus(config: Config, findings: list[Finding]) -> None:
    from ..corpus import Corpus

    for source in config.sources:
        if source.kind == "site":
            _site(source, findings)
        elif not os.access(source.path, os.R_OK | os.X_OK):
            says = f"the folder of {source.name!r} cannot be read: {source.path}"
            findings.append(
                Finding(check="sources", status="fault", says=says, do="allow reading it, or change `path`")
            )
            return
    try:
        with Corpus.open(config, write=True) as corpus:
            if corpus.is_empty():
                findings.append(
                    Finding(
                        check="index",
                        status="note",
                        says="there is none yet; the first question would build it",
                        do="run 'citehound index'",
                    )
                )
                return
            changes = corpus.changes()
            problems = corpus.access.problems
            warnings = [warning for warning in corpus.warnings if warning not in problems]
            _access(corpus, findings)
    except ConfigError as problem:
        findings.append(Finding(check="sources", status="fault", says=str(problem), do="correct the source"))
        return
    except CitehoundError as problem:
        do = "run 'citehound index --rebuild'" if "rebuild" not in str(problem) else "do as it says"
        findings.append(Finding(check="index", status="fault", says=str(problem), do=do))
        return
    for warning in warnings:
        findings.append(Finding(check="index", status="note", says=warning, do="run 'citehound index'"))
    _report_changes(changes, findings)


def _access(corpus: Corpus, findings: list[Finding]) -> None:
    """What of the access rules could not be read or names nothing, and who may see how many documents."""
    access = corpus.access
    for problem in access.problems:
        do = "correct it; docs/permissions.md says how rules are written"
        findings.append(Finding(check="access", status="note", says=problem, do=do))
    if not access.limited:
        return
    everything = corpus.audiences()
    for rule in access.rules:
        if not any(rule.covers(names) for names, _ in everything):
            says = f"the access rule for {', '.join(map(repr, rule.paths))} names no document that is indexed"
            findings.append(
                Finding(check="access", status="note", says=says, do="compare it with the documents' paths")
            )
    open_ = sum(1 for _, groups in everything if groups is None)
    owned = sum(1 for _, groups in everything if groups is not None and not groups)
    groups = sorted({group for _, groups in everything for group in groups or ()})
    says = f"{_count(len(everything), 'document')}: {open_} for everyone who may ask, {owned} for the owner alone"
    says += f"; groups: {', '.join(groups)}" if groups else ""
    findings.append(Finding(check="access", status="ok", says=says))


def _site(source: SourceConfig, findings: list[Finding]) -> None:
    from ..sources.site import answers

    try:
        wrong = answers(source)
    except CitehoundError as problem:
        findings.append(Finding(check="sources", status="fault", says=str(problem), do="correct the addresses"))
        return
    if wrong is None:
        findings.append(Finding(check="sources", status="ok", says=f"the site of {source.name!r} answers"))
    else:
        says = f"the site of {source.name!r} cannot be crawled: {wrong}"
        do = "check `start`, `sitemap` and `domains`, or try later; what is indexed stays"
        findings.append(Finding(check="sources", status="note", says=says, do=do))


def _report_changes(changes: Sequence[Changes], findings: list[Finding]) -> None:
    counted = ", ".join(f"{c.source}: {_count(c.documents, 'document')}" for c in changes) or "all are searched live"
    findings.append(Finding(check="sources", status="ok", says=counted))
    for change in changes:
        if not change.documents:
            says = f"source {change.source!r} has no document"
            do = "check its `path`, `include` and `exclude`, and the manifest beside it"
            findings.append(Finding(check="sources", status="note", says=says, do=do))
        if change.failed:
            path, reason = change.failed[0]
            more = f", and {len(change.failed) - 1} more" if len(change.failed) > 1 else ""
            says = f"{change.source}/{path} could not be read: {reason}{more}"
            do = "mend or exclude them; 'citehound index --report FILE' lists all"
            findings.append(Finding(check="sources", status="note", says=says, do=do))
    stale = [c for c in changes if c.stale]
    if not stale:
        findings.append(Finding(check="index", status="ok", says="it has every file as it is now"))
    for change in stale:
        parts = [
            f"{len(paths)} {word} ({paths[0]}{' …' if len(paths) > 1 else ''})"
            for word, paths in (("new", change.new), ("changed", change.changed), ("removed", change.removed))
            if paths
        ]
        says = f"it is older than the files of {change.source!r}: {', '.join(parts)}"
        findings.append(Finding(check="index", status="note", says=says, do="run 'citehound index'"))


# model -------------------------------------------------------------------------------------------------------------


def _models(config: Config, findings: list[Finding], *, calls: bool, quiet: bool) -> tuple[Use | None, float]:
    from ..budget import Budget, Meter
    from ..models import OFFLINE, open_small, providers

    settings = config.model
    if settings.name == OFFLINE:
        says = "offline: no language model is configured, so nothing is called; answers quote and do not judge"
        do = "to use one, set `name` under [model], as in docs/models.md"
        findings.append(Finding(check="model", status="ok", says=says, do=do))
        return Use(model=OFFLINE, modes=(), structured=None, stream=False, window=None, dollars_per_million=None), 0.0
    opened = _open(config, findings)
    if opened is None:
        return None, 0.0
    cap = MOST_DOLLARS if config.budget.max_dollars is None else min(MOST_DOLLARS, config.budget.max_dollars)
    seconds = OWN_SECONDS if opened.free else MOST_SECONDS
    meter = Meter(Budget(max_steps=None, max_dollars=None if opened.price is None else cap, max_seconds=seconds))
    priced = opened.price is not None or config.budget.max_dollars is None
    if calls and not priced:
        says = "the model was not asked anything, as the price is not known and dollars are capped"
        findings.append(Finding(check="calls", status="note", says=says, do="give the price first"))
    tried: Tried | None = None
    window = opened.window
    if calls and priced:
        if not quiet:
            money = "" if opened.free else f" for at most ${cap:.2f} in all"
            output.err(f"asking {opened.name} a few tiny questions{money} …")
        tried, told = asyncio.run(_try(opened, meter))
        if window is None and told is not None:
            window = told
            says = f"not known here; the server says {told:,} tokens"
            findings.append(
                Finding(check="window", status="note", says=says, do=f"set `window = {told}` under [model]")
            )
    _window(opened, window, findings)
    if tried is not None:
        _tried(settings, opened, tried, findings)
    if settings.small is not None and settings.small != settings.name and settings.small != OFFLINE:
        try:
            small = open_small(settings)
        except CitehoundError as problem:
            findings.append(Finding(check="small model", status="fault", says=str(problem), do="mend `small`"))
        else:
            _small(config, small, meter, findings, calls=calls)
    provider, _ = providers.split_name(settings.name)
    address = providers.address_of(settings, provider)
    if address is not None and urlsplit(address).scheme == "http" and not providers.is_here(address):
        says = f"the key and the documents go to {urlsplit(address).hostname} unencrypted"
        findings.append(Finding(check="address", status="note", says=says, do="use https, unless the network is yours"))
    spent = meter.spent()
    return _use(opened, tried, window), spent.dollars + spent.reserved


async def _try(opened: OpenedModel, meter: Meter) -> tuple[Tried, int | None]:
    from .probe import told_window, try_model

    told = await told_window(opened) if opened.window is None else None
    return await try_model(opened, meter), told


def _open(config: Config, findings: list[Finding]) -> OpenedModel | None:
    """The model, with what there is to say of its key and price."""
    from ..models import open_model, providers

    settings = config.model
    try:
        provider, _ = providers.split_name(settings.name)
    except ConfigError as problem:
        findings.append(Finding(check="model", status="fault", says=str(problem), do="correct `name` under [model]"))
        return None
    names = providers.key_variables(settings, provider)
    if providers.key_of(settings, provider) is not None:
        held = next(n for n in names if os.environ.get(n, "").strip())
        findings.append(Finding(check="key", status="ok", says=f"{held} is set"))
    elif providers.needs_key(settings, provider):
        says = f"{settings.name!r} needs a key, and {' or '.join(names)} is not set"
        do = f"set {names[0]} in the environment (never in the file)"
        findings.append(Finding(check="key", status="fault", says=says, do=do))
        return None
    else:
        findings.append(Finding(check="key", status="ok", says="none is set, and none may be needed here"))
    try:
        opened = open_model(settings)
    except CitehoundError as problem:
        findings.append(Finding(check="model", status="fault", says=str(problem), do="mend [model]"))
        return None
    findings.append(_priced(opened.name, opened.price, capped=config.budget.max_dollars is not None))
    return opened


def _priced(name: str, price: Price | None, *, capped: bool, table: str = "model.price") -> Finding:
    if price is None:
        do = f"put [{table}] with `input` and `output` (dollars per million tokens; 0 for a model of your own)"
        do += " into citehound.toml" + (', or set `max_dollars = "none"` under [budget]' if capped else "")
        says = f"the price of {name!r} is not known"
        says += ", so the cap on dollars cannot be kept and questions are refused" if capped else ""
        return Finding(check="price", status="fault" if capped else "note", says=says, do=do)
    if not price.input and not price.output:
        return Finding(check="price", status="ok", says="free: the model is your own, or set to be so")
    says = f"${price.input:g} per million tokens of input, ${price.output:g} of output"
    if price.cached is not None:
        says += f", ${price.cached:g} read from the cache"
    if price.cache_write is not None:
        says += f", ${price.cache_write:g} written to it"
    if price.long:
        says += f"; more above {price.long[0].above:,} tokens"
    return Finding(check="price", status="ok", says=says)


def _window(opened: OpenedModel, window: int | None, findings: list[Finding]) -> None:
    if window is None:
        says = "the context window is not known, so a long run may be cut or refused by the server"
        do = "set `window = N` (tokens) under [model]"
        if opened.name.startswith("ollama:"):
            do += "; Ollama cuts silently at its own setting, OLLAMA_CONTEXT_LENGTH"
        findings.append(Finding(check="window", status="note", says=says, do=do))
    elif window < SMALL_WINDOW:
        says = f"{window:,} tokens are little for an investigation of several steps"
        do = "serve the model with a larger context, or ask with --mode single"
        findings.append(Finding(check="window", status="note", says=says, do=do))
    else:
        findings.append(Finding(check="window", status="ok", says=f"{window:,} tokens"))


_HELP = {
    "auth": "set the right key in the environment, and see what it may be used for",
    "connection": "start the server, or correct base_url under [model]",
    "timeout": "see whether the server works on something else, or raise `timeout` under [model]",
    "rejected": "check the model's name and base_url under [model]",
    "spend_limit": "see to the account's limit or its balance",
    "rate_limit": "wait, or ask the provider for a higher rate",
    "server": "the provider has a fault of its own: try again later",
    "dollars": "the cap was too low for a test; raise max_dollars under [budget]",
}


def _tried(settings: ModelConfig, opened: OpenedModel, tried: Tried, findings: list[Finding]) -> None:
    _called(opened, tried, findings)
    if tried.failed is not None:
        do = _HELP.get(tried.kind or "", "try it with the provider's own client, then report it")
        check = "key" if tried.kind == "auth" else "structured answer" if tried.streams is not None else "calls"
        findings.append(Finding(check=check, status="fault", says=tried.failed, do=do))
        return
    _answered(settings, opened, tried, findings)


def _called(opened: OpenedModel, tried: Tried, findings: list[Finding]) -> None:
    if tried.calls is None and tried.failed is not None and opened.tools:
        return  # nothing is known
    if tried.calls is None:
        says = "it is not asked to call tools: questions are answered by `single` and `hops`"
        findings.append(Finding(check="tool call", status="note", says=says))
    elif not tried.calls:
        says = "asked to call a tool, it did not: it cannot search by itself"
        do = "set `tools = false` under [model], and `single` and `hops` search for it; or use another model"
        findings.append(Finding(check="tool call", status="fault", says=says, do=do))
    else:
        findings.append(Finding(check="tool call", status="ok", says="works"))
        if tried.calls > 1:
            findings.append(Finding(check="parallel calls", status="ok", says="several in one reply"))
        else:
            says = "one call at a time: the same searches take more steps"
            do = "raise max_steps under [budget] if answers come out partial"
            findings.append(Finding(check="parallel calls", status="note", says=says, do=do))


def _answered(settings: ModelConfig, opened: OpenedModel, tried: Tried, findings: list[Finding]) -> None:
    form = opened.structured
    if tried.structured == form:
        findings.append(Finding(check="structured answer", status="ok", says=f"works as {_FORMS[form]}"))
    elif tried.structured is not None:
        says = f"does not work as {_FORMS[form]} ({tried.wrong}), but as {_FORMS[tried.structured]}"
        do = f'set `structured = "{tried.structured}"` under [model]'
        findings.append(Finding(check="structured answer", status="fault", says=says, do=do))
    else:
        says = f"no form of answer worked; {_FORMS[form]}: {tried.wrong}"
        findings.append(Finding(check="structured answer", status="fault", says=says, do="use a more capable model"))
    if tried.streams is not None:
        if tried.streams:
            findings.append(Finding(check="streaming", status="ok", says="works"))
        else:
            says, do = "does not work; whole replies do", "set `stream = false` under [model]"
            findings.append(Finding(check="streaming", status="note", says=says, do=do))
    elif not settings.stream:
        findings.append(Finding(check="streaming", status="ok", says="turned off"))


_FORMS = {"tool": "a call of a tool", "native": "the provider's own schema", "text": "the strict text form"}


def _small(config: Config, small: OpenedModel, meter: Meter, findings: list[Finding], *, calls: bool) -> None:
    capped = config.budget.max_dollars is not None
    price = _priced(small.name, small.price, capped=capped, table="model.small_price")
    findings.append(replace(price, check="small model: price"))
    if not calls or (small.price is None and capped):
        return
    from .probe import try_model

    tried = asyncio.run(try_model(small, meter))
    if tried.failed is not None:
        do = _HELP.get(tried.kind or "", "use another `small` model, or none")
        findings.append(Finding(check="small model", status="fault", says=tried.failed, do=do))
    elif tried.structured is None:
        says = f"it hands in no answer in a fixed form: {tried.wrong}"
        do = "use another `small` model, or leave `small` out"
        findings.append(Finding(check="small model", status="fault", says=says, do=do))
    else:
        findings.append(Finding(check="small model", status="ok", says=f"{small.name} works"))


def _use(opened: OpenedModel, tried: Tried | None, window: int | None) -> Use:
    unknown = tried is None or (tried.calls is None and tried.failed is not None)
    calls_tools = opened.tools if tried is None or unknown else bool(tried.calls)
    price = opened.price
    return Use(
        model=opened.name,
        modes=("agent", "single", "hops") if calls_tools else ("single", "hops"),
        structured=opened.structured if tried is None or tried.structured is None else tried.structured,
        stream=opened.stream if tried is None or tried.streams is None else tried.streams,
        window=window,
        dollars_per_million=None
        if price is None
        else {"input": price.input, "output": price.output, "cached": price.cached, "cache_write": price.cache_write},
    )


# showing -----------------------------------------------------------------------------------------------------------

_MARKS: dict[Status, tuple[str, str | None]] = {
    "ok": ("ok   ", "good"),
    "note": ("note ", None),
    "fault": ("FAULT", "bad"),
}


def _show(findings: Sequence[Finding], use: Use | None, *, spent: float) -> None:
    for finding in findings:
        mark, style = _MARKS[finding.status]
        lines = output.wrap(f"{finding.check}: {finding.says}", first=f"{mark}  ", rest="       ")
        for number, line in enumerate(lines):
            output.out(line, style=style if number == 0 and finding.status == "fault" else None)
        if finding.do:
            for line in output.wrap(finding.do, first="       -> ", rest="          "):
                output.out(line, style="dim")
    if use is not None and use.modes:
        parts = [
            use.model,
            f"modes {', '.join(use.modes)}",
            f"answers as {_FORMS[use.structured]}" if use.structured else "",
            "streamed" if use.stream else "not streamed",
        ]
        output.out()
        for line in output.wrap(f"Will be used: {'; '.join(p for p in parts if p)}."):
            output.out(line)
        output.out(f"Spent: ${spent:.4f}.")


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _safe(text: str) -> str:
    """One line, without control characters and without the value of any key of the environment."""
    from ..models.providers import PROVIDERS
    from ..security import redact, visible

    text = redact(visible(" ".join(text.split())))
    for name in {n for spec in PROVIDERS.values() for n in spec.keys}:
        value = os.environ.get(name, "").strip()
        if len(value) >= 4:
            text = text.replace(value, "[redacted]")
    return text

"""The main numbers of all runs as text (`citehound runs --stats`); they are computed in `dashboard`."""

from __future__ import annotations

from datetime import datetime

from ..access import OWNER
from ..config import Config
from ..corpus import Corpus
from ..dashboard import Dashboard, Selection, Spread, dashboard
from ..errors import CitehoundError
from ..runs import RunStore
from .output import out, wrap

_MOST = 5
"""Gaps and documents that are named."""


def numbers(config: Config) -> Dashboard:
    """The numbers of every run, and of what was never read where there is an index."""
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None
    return dashboard(
        RunStore(config.state / "runs.sqlite"),
        Selection(),
        principal=OWNER,
        zone=zone,
        settings=config.dashboard,
        documents=_documents(config),
    )


def _documents(config: Config) -> dict[str, str] | None:
    try:
        with Corpus.open(config) as corpus:
            listed = corpus.list_documents(None, principal=OWNER, limit=10**9)
    except CitehoundError:
        return None
    return {info.document: info.title for info in listed.documents}


def show(found: Dashboard) -> None:
    """At most 80 columns."""
    if not found.runs:
        out("no questions yet; 'citehound ask' asks one")
        return
    ended = ", ".join(f"{share.name} {share.runs:,}" for share in found.stop_reasons)
    rows = [
        ("questions", f"{found.runs:,}, {_share(_complete(found), found.runs)} of them complete"),
        ("searches", f"{found.searches / found.runs:.1f} per question, {found.searches:,} in all"),
        ("stopped", ended),
        ("hit a cap", f"{found.capped:,} ({_share(found.capped, found.runs)})"),
        ("citations", f"{found.failed:,} of {found.citations:,} failed ({_share(found.failed, found.citations)})"),
        ("time", _spread(found.seconds, "{:,.1f} s")),
        ("cost", _spread(found.dollars, "${:,.4f}") + f"; ${found.dollars.total:,.2f} in all"),
        ("cache", f"{_share(found.cached_tokens, found.input_tokens)} of {found.input_tokens:,} input tokens"),
        ("feedback", f"{found.good:,} good, {found.bad:,} bad"),
    ]
    if found.coverage is not None:
        rows.append(("never read", f"{found.coverage.never_read:,} of {found.coverage.documents:,} documents"))
    if found.alert.raised:
        rows.append(("ALERT", found.alert.message))
    for label, text in rows:
        for line in wrap(text, first=f"{label:<12}", rest=" " * 12):
            out(line)
    for title, named in (
        ("missing most often", [(gap.runs, gap.what) for gap in found.gap_groups]),
        ("read most", [(one.runs, one.document) for one in found.documents]),
    ):
        if named:
            out()
            out(title, style="head")
        for count, what in named[:_MOST]:
            for line in wrap(what, first=f"{count:>10,}  ", rest=" " * 12):
                out(line)


def _complete(found: Dashboard) -> int:
    return sum(share.runs for share in found.statuses if share.name == "complete")


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"


def _spread(spread: Spread, form: str) -> str:
    if spread.p50 is None:
        return "unknown"
    names = (("half", spread.p50), ("90 %", spread.p90), ("95 %", spread.p95), ("99 %", spread.p99))
    return ", ".join(f"{name} within {form.format(value)}" for name, value in names)

"""What a person sees: every line that the CLI prints goes through here and `security.for_terminal`; decides nothing."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..answers import Answer, Call, Cell, Citation, Claim, Gap, Usage
from ..documents import Chunk, Document, Passage, SearchResult, trust_label
from ..events import (
    ClaimDrafted,
    Compacted,
    Decided,
    Emit,
    Event,
    FactRead,
    Hits,
    Progress,
    Read,
    Retry,
    RunStarted,
    ToolCalled,
    ToolFailed,
)
from ..security import for_terminal, for_terminal_json

if TYPE_CHECKING:
    from ..chat import ChatSource
    from ..corpus import SyncReport
    from ..index import Explanation
    from ..runs import RunRecord, RunSummary

_WIDEST = 100


def prepare_streams() -> None:
    """A character that the terminal's encoding lacks becomes '?' instead of an error; no library prints a banner."""
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def out(text: str = "", *, style: str | None = None) -> None:
    """A line of the result, on stdout."""
    click.echo(_styled(text, style, sys.stdout))


def err(text: str = "", *, style: str | None = None) -> None:
    """A line of progress or an error, on stderr."""
    with contextlib.suppress(OSError):
        click.echo(_styled(text, style, sys.stderr), err=True)


def out_json(value: Any) -> None:
    """A result as JSON, on stdout."""
    click.echo(for_terminal_json(value))


def out_json_line(value: Any) -> None:
    """A result as one line of JSON, on stdout."""
    click.echo(for_terminal_json(value, indent=None))


def err_prompt(text: str) -> None:
    """What invites to type, on stderr."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True, nl=False)


def out_raw(text: str) -> None:
    """The text of a document, on stdout, not wrapped."""
    click.echo(for_terminal(text))


_STYLES: Mapping[str, dict[str, Any]] = {
    "head": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red", "bold": True},
    "dim": {"dim": True},
}


def _styled(text: str, style: str | None, stream: Any) -> str:
    text = for_terminal(text)
    if style is None or os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return click.style(text, **_STYLES[style])


def width() -> int:
    """Columns to fill: the terminal's, at most 100; 80 where there is no terminal."""
    columns = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    return max(40, min(_WIDEST, columns))


def wrap(text: str, *, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of `text` that fit the width; `first` and `rest` begin them. Line breaks of the text stay."""
    rest = " " * len(first) if rest is None else rest
    lines: list[str] = []
    for number, part in enumerate(for_terminal(text).split("\n")):
        begin = first if number == 0 else rest
        if not part.strip():
            lines.append(begin.rstrip())
            continue
        lines += _fill(part, begin, rest)
    return lines


def _fill(text: str, first: str, rest: str) -> list[str]:
    if _columns(text) == len(text):
        return textwrap.wrap(
            text,
            width(),
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
            break_long_words=True,
        ) or [first.rstrip()]
    lines: list[str] = []
    line = first
    for word in _words(text):
        if _columns(line + word) > width() and line.strip():
            lines.append(line.rstrip())
            line = rest + word.lstrip()
        else:
            line += word
        while _columns(line) > width():
            cut = len(line)
            while _columns(line[:cut]) > width():
                cut -= 1
            cut = max(cut, len(rest) + 1)
            lines.append(line[:cut].rstrip())
            line = rest + line[cut:].lstrip()
    return [*lines, line.rstrip()]


def _words(text: str) -> Iterator[str]:
    """Pieces between which a line may break: after blanks, and beside wide characters."""
    word = ""
    for char in text:
        wide = unicodedata.east_asian_width(char) in "WF"
        if word and (wide or (char == " " and word[-1] != " ") or unicodedata.east_asian_width(word[-1]) in "WF"):
            yield word
            word = ""
        word += char
    if word:
        yield word


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _clip(text: str, most: int) -> str:
    text = " ".join(for_terminal(text).split())
    if _columns(text) <= most:
        return text
    while text and _columns(text) > most - 3:
        text = text[:-1]
    return text.rstrip() + "..."


def place(document: str, section: str | None) -> str:
    """`policies/outsourcing-policy-v4 §7.2`."""
    return f"{document} §{section}" if section else document


# Steps as they happen ----------------------------------------------------------------------------------------------


class Steps:
    """An `Emit` that shows the steps of a run on stderr as they happen."""

    def __init__(self) -> None:
        self._shown: tuple[str, int] | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._line(f"asking {event.model} in {event.mode} mode", style="dim")
            case Hits():
                self._step(event.agent, event.step, _search_line(event.source, event.query, event.filters))
                found = _found([place(r.document, r.section) for r in event.returned], event.hidden_superseded)
                self._more(found)
            case Read():
                where = place(event.document, event.section)
                self._step(event.agent, event.step, f"read {where} ({event.start}-{event.end})")
            case ToolCalled(tool="find_in_document"):
                phrase, document = event.arguments.get("phrase", ""), event.arguments.get("document", "")
                self._step(event.agent, event.step, f'find "{phrase}" in {document}')
            case ToolCalled(tool="list_documents"):
                self._step(event.agent, event.step, f"list {event.arguments.get('source') or 'all sources'}")
            case Decided(what="follow_up"):
                self._line("understood as:", style="dim")
                self._more(event.verdict)
            case ToolFailed():
                self._step(event.agent, event.step, f"{event.tool} failed: {event.error}")
            case FactRead():
                self._more(_fact_line(event))
            case Retry():
                wait = f"; again in {event.wait:.1f} s" if event.wait >= 0.1 else "; again"
                self._step(event.agent, event.step, f"{event.reason}{wait}")
            case Compacted():
                self._step(event.agent, event.step, f"window nearly full: {event.results} old results shortened")
            case ClaimDrafted(number=1):
                self._step(event.agent, event.step, "answer drafted" if event.draft == 1 else "answer drafted anew")
            case _:
                pass

    def _step(self, agent: str, step: int, text: str) -> None:
        label = f"{step:>3}  " if self._shown != (agent, step) else " " * 5
        self._shown = (agent, step)
        who = "" if agent == "main" else f"[{agent}] "
        for line in wrap(" ".join((who + text).split()), first=label, rest=" " * 7):
            self._line(line)

    def _more(self, text: str) -> None:
        for line in wrap(text, first=" " * 7, rest=" " * 7):
            self._line(line, style="dim")

    def _line(self, text: str, *, style: str | None = None) -> None:
        err(text, style=style)


def _search_line(source: str, query: str, filters: Mapping[str, Any]) -> str:
    narrowed = f" [{', '.join(f'{k}={v}' for k, v in filters.items())}]" if filters else ""
    return f'search {source}{narrowed}: "{query}"'


def _fact_line(event: FactRead) -> str:
    """`f3 in contracts/alpha: 72 hour (Within what time …?)`."""
    value: dict[str, Any] = event.told.get("value") or {}
    said = event.told.get("verdict") or " ".join(str(value[k]) for k in ("number", "date", "unit") if k in value)
    found = (said or "found") if event.found else "not found"
    return f"{event.fact} in {event.document}: {found} ({event.asked})"


def _found(places: Sequence[str], hidden: int) -> str:
    count = "no hits" if not places else "1 hit" if len(places) == 1 else f"{len(places)} hits"
    shown = ": " + ", ".join(places[:3]) + (" ..." if len(places) > 3 else "") if places else ""
    old = f"; {hidden} not current hidden" if hidden else ""
    return count + shown + old


class JsonLines:
    """An `Emit` that prints each event as one line of JSON."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr

    def __call__(self, event: Event) -> None:
        click.echo(for_terminal_json(event.to_dict(), indent=None), err=self._to_stderr)


# Progress ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def progress(what: str) -> Generator[Emit]:
    """Gives an `Emit` for `Progress` events: a bar on a terminal, else one line at the start."""
    if not sys.stderr.isatty():
        err(f"{what} ...")
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        TextColumn(what, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TextColumn("{task.fields[file]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    last = 0.0
    started = time.monotonic()
    with bar:
        task = bar.add_task(what, total=None, file="", rate="")

        def show(event: Event) -> None:
            nonlocal last
            now = time.monotonic()
            if isinstance(event, Progress) and (now - last > 0.05 or event.done >= event.total):
                last = now
                spent = now - started
                rate = f"{event.passages / spent:.0f} passages/s" if event.passages and spent > 1 else ""
                bar.update(task, total=event.total, completed=event.done, file=_clip(event.what, 40), rate=rate)

        yield show


def _ignore(event: Event) -> None:
    pass


# Results -----------------------------------------------------------------------------------------------------------


def show_report(report: SyncReport) -> None:
    """The outcome of `citehound index`: counts, then every file that needs a look."""
    kinds = ("indexed", "unchanged", "removed", "skipped", "failed")
    out(", ".join(f"{report.count(kind)} {kind}" for kind in kinds) + f" in {report.seconds:.1f} s", style="head")
    for kind in ("failed", "skipped"):
        chosen = [f for f in report.files if f.status == kind]
        if not chosen:
            continue
        out()
        out(f"{kind} ({'tried again next time' if kind == 'failed' else 'not read'}):")
        for file in chosen:
            for line in wrap(
                f"{file.source}/{file.path}: {file.reason or 'no reason given'}", first="  ", rest="      "
            ):
                out(line)
    warned = [(f, w) for f in report.files for w in f.warnings]
    if warned:
        out()
        out("read, with warnings:")
        for file, warning in warned:
            for line in wrap(f"{file.source}/{file.path}: {warning}", first="  ", rest="      "):
                out(line)


def show_explained(document: Document, chunks: Sequence[Chunk]) -> None:
    """How one file was read, section by section (`citehound index --explain FILE`)."""
    stated = document.stated
    facts = {
        "format": document.stated_format or "text with template tags",
        "title": document.title,
        "language": document.language or "not known",
        "characters": f"{len(document.text):,}",
        "pages": str(len(document.pages)) if document.pages else "",
        "tables": str(stated.tables) if stated is not None and stated.tables else "",
        "sections": str(len(document.sections)),
        "passages": str(len(chunks)),
    }
    out(document.path, style="head")
    for name, value in facts.items():
        if value:
            out(f"  {name}: {value}")
    for key, value in document.metadata.items():
        for line in wrap(f"{key} = {value}", first="  metadata: ", rest="      "):
            out(line)
    for attachment in document.attachments:
        out(f"  inside: {attachment.name} ({len(attachment.data):,} bytes), a document of its own")
    for warning in document.warnings:
        for line in wrap(f"warning: {warning}", first="  ", rest="      "):
            out(line)
    out()
    by_section: dict[str | None, list[Chunk]] = {}
    for piece in chunks:
        by_section.setdefault(piece.section, []).append(piece)
    if None in by_section:
        _explain_part("(before the first section)", 0, by_section[None], document)
    for section in document.sections:
        name = " ".join(section.title.split())
        label = name if name.startswith(section.id) or section.id == section.number else f"{section.id}: {name}"
        if section.number and not name.startswith(section.number):
            label = f"{section.number} {name}"
        _explain_part(label, section.level, by_section.get(section.id, []), document, start=section.start)


def _explain_part(name: str, level: int, pieces: Sequence[Chunk], document: Document, *, start: int = 0) -> None:
    page = document.page_at(start)
    facts = [f"page {page}"] if page is not None else []
    facts.append(f"{sum(len(p.text) for p in pieces):,} characters")
    if len(pieces) != 1:
        facts.append(f"{len(pieces)} passages")
    indent = "  " * max(0, level - 1)
    out(f"{indent}{_clip(name, 90)}  [{', '.join(facts)}]")
    for piece in pieces[:3]:
        out(f"{indent}    {_clip(' '.join(piece.text.split()), 100)}", style="dim")
    if len(pieces) > 3:
        out(f"{indent}    … and {len(pieces) - 3} more passages", style="dim")


def report_dict(report: SyncReport) -> dict[str, Any]:
    """The report as data, for `index --report FILE`."""
    kinds = ("indexed", "unchanged", "removed", "skipped", "failed")
    return {
        "counts": {kind: report.count(kind) for kind in kinds},
        "seconds": report.seconds,
        "files": [
            {
                "source": f.source,
                "path": f.path,
                "status": f.status,
                "document": f.document,
                "reason": f.reason,
                "warnings": list(f.warnings),
                "chars": f.chars,
                "sections": f.sections,
                "passages": f.passages,
                "language": f.language,
                "pages": f.pages,
                "tables": f.tables,
                "format": f.format,
            }
            for f in report.files
        ],
    }


def show_hits(result: SearchResult) -> None:
    """What `citehound search` prints."""
    for note in result.notes:
        err(f"note: {note}")
    if not result.hits:
        out("no hits")
    for number, hit in enumerate(result.hits, 1):
        labels = list(hit.labels) or ([] if hit.current else ["not current"])
        labels += trust_label(hit.trust)
        mark = f"  [{'; '.join(labels)}]" if labels else ""
        for line in wrap(place(hit.document, hit.section) + mark, first=f"{number:>2}. ", rest=" " * 6):
            out(line, style="head")
        if hit.title:
            for line in wrap(" ".join(hit.title.split()), first=" " * 4):
                out(line)
        for line in wrap(" ".join(hit.snippet.split()), first=" " * 6):
            out(line, style="dim")
    if result.hidden_superseded:
        out(f"({result.hidden_superseded} not current, hidden; --all-versions shows them)")


def hits_dict(result: SearchResult) -> dict[str, Any]:
    """The JSON of `search --json`."""
    return {
        "hits": [
            {
                "document": h.document,
                "section": h.section,
                "title": h.title,
                "snippet": h.snippet,
                "score": h.score,
                "current": h.current,
                "metadata": dict(h.metadata),
                "labels": list(h.labels),
                "trust": h.trust,
            }
            for h in result.hits
        ],
        "hidden_superseded": result.hidden_superseded,
        "notes": list(result.notes),
    }


_EXPLAINED = 30


def show_explanation(explanation: Explanation) -> None:
    """What `citehound search --explain` prints below the hits."""
    out()
    out("how this was found", style="head")
    for term in explanation.terms:
        stems = [stem for stem in term.stems if stem != term.term]
        form = f" ({', '.join(stems)})" if stems else ""
        count = f"in {term.passages} passage{'' if term.passages == 1 else 's'}"
        out(f"    {term.term}{form}: {count}{f', left out: {term.left_out}' if term.left_out else ''}")
    scope = [f"source {explanation.source}"] if explanation.source else ["every source"]
    scope += [f"{key} = {value}" for key, value in explanation.filters]
    scope += ["current documents only" if explanation.only_current else "all versions"]
    out(f"    searched: {'; '.join(scope)}")
    if explanation.dense is None:
        out("    vectors: none")
    else:
        own = "none of their own (a query of one word)" if explanation.words_only else f"from {explanation.floor:g} on"
        out(
            f"    vectors: {explanation.dense}; score = words / best + {explanation.dense_weight:g} x cosine; "
            f"passages without the query's words: {own}; the first {explanation.keep} by words stay the first"
        )
    if explanation.rerank:
        out(f"    reranked: {explanation.rerank}")
    for number, one in enumerate(explanation.considered[:_EXPLAINED], 1):
        legs = [] if one.words is None else [f"words {one.words:.2f} (rank {one.words_rank})"]
        if one.cosine is not None:
            legs.append(f"cosine {one.cosine:.2f} ({f'rank {one.dense_rank}' if one.dense_rank else 'not near'})")
        line = f"{place(one.document, one.section)}  {one.verdict}; {one.score:.3f}: {', '.join(legs)}"
        for text in wrap(line, first=f"{number:>4}. ", rest=" " * 8):
            out(text, style=None if one.verdict.startswith("hit") else "dim")
    if len(explanation.considered) > _EXPLAINED:
        out(f"    and {len(explanation.considered) - _EXPLAINED} more; --json has all of them", style="dim")


def explanation_dict(explanation: Explanation) -> dict[str, Any]:
    """The JSON of `search --explain --json`."""
    return {**asdict(explanation), "filters": dict(explanation.filters)}


def show_passage(passage: Passage) -> None:
    """What `citehound read` prints: the text alone on stdout, what is about it on stderr."""
    title = f" - {passage.title}" if passage.title else ""
    title += f", page {passage.page}" if passage.page is not None else ""
    for line in wrap(place(passage.document, passage.section) + title):
        err(line, style="head")
    for label in (*(passage.labels or (() if passage.current else ("not current",))), *trust_label(passage.trust)):
        err(f"note: {label}", style="bad")
    if passage.outline:
        err("sections:")
        for entry in passage.outline:
            indent = "  " * min(entry.level, 6)
            err(
                _clip(f"{indent}{entry.section}  {entry.title}", width())
                if not indent
                else indent + _clip(f"{entry.section}  {entry.title}", width() - len(indent))
            )
        err()
    out_raw(passage.text)
    if passage.next_start is not None:
        section = f" --section {passage.section!r}" if passage.section else ""
        err(
            f"({passage.start}-{passage.end} of {passage.total_chars} characters; "
            f"go on with{section} --start {passage.next_start})"
        )


def passage_dict(passage: Passage) -> dict[str, Any]:
    """The JSON of `read --json`."""
    return {
        "document": passage.document,
        "section": passage.section,
        "title": passage.title,
        "text": passage.text,
        "start": passage.start,
        "end": passage.end,
        "next_start": passage.next_start,
        "total_chars": passage.total_chars,
        "outline": [
            {"section": e.section, "title": e.title, "level": e.level, "start": e.start, "end": e.end}
            for e in passage.outline
        ],
        "current": passage.current,
        "metadata": dict(passage.metadata),
        "labels": list(passage.labels),
        "trust": passage.trust,
        "page": passage.page,
    }


_STATUS: Mapping[str, str] = {
    "complete": "complete: every claim is verified and every gap was searched for",
    "partial": "PARTIAL: read the marks and what is missing",
    "not_found": "NOT FOUND: the documents do not answer this",
    "direct": "answered without documents",
    "failed": "FAILED: there is nothing to show",
    "clarification": "asked back: say what is meant",
}
_STOPS: Mapping[str, str] = {
    "steps": "the step limit was reached",
    "dollars": "the dollar limit was reached",
    "seconds": "the time limit was reached",
    "no_progress": "the same calls came again and again",
    "context": "the model's context was full",
    "refused": "the model refused",
    "truncated": "the model's answer was cut off",
    "empty": "the model gave nothing",
    "cancelled": "it was cancelled",
    "model_error": "the model could not be reached or failed",
}


def show_answer(answer: Answer) -> None:
    """The answer, its sources with quotes and verdicts, what is missing, and the usage line."""
    _show_rewritten(answer)
    if answer.rows:
        _show_rows(answer)
    else:
        for line in wrap(_body(answer)):
            out(line)
    _show_sources(answer.claims, quoted_only=bool(answer.rows))
    _show_doubts(answer.claims)
    _show_missing(answer.missing)
    if answer.warnings:
        out()
        out("Note", style="head")
        for warning in answer.warnings:
            for line in wrap(" ".join(warning.split()), first="  - ", rest="    "):
                out(line)
    out()
    stopped = f" (stopped early: {_STOPS[answer.stop_reason]})" if answer.stop_reason in _STOPS else ""
    good = answer.status in ("complete", "direct", "clarification")
    for line in wrap(_STATUS.get(answer.status, answer.status) + stopped):
        out(line, style="good" if good else "bad")
    for line in wrap(usage_line(answer), rest="  "):
        out(line, style="dim")


def _show_rewritten(answer: Answer) -> None:
    if answer.rewritten:
        for line in wrap(" ".join(answer.rewritten.split()), first="Understood as: ", rest="    "):
            out(line, style="head")


def _body(answer: Answer) -> str:
    """The text, without the list of what is missing when it only says again what the block below says."""
    from ..rendering import render_text

    text = answer.text.strip()
    if text == render_text(answer.claims, answer.missing).strip():
        text = render_text(answer.claims).strip()
    if text:
        return text
    return "Nothing that answers the question was found." if answer.missing else "(no answer)"


def _show_rows(answer: Answer) -> None:
    """The table of a survey, as wide as the terminal, and the claims that stand in no cell."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..rendering import survey_claims, survey_counts

    for text in survey_counts(answer.rows):
        for line in wrap(text, rest="  "):
            out(line, style="head")
    table = Table(box=box.ASCII, show_lines=True, expand=True)
    table.add_column("document", ratio=1, overflow="fold")
    for cell in answer.rows[0].cells:
        table.add_column(Text(for_terminal(" ".join(cell.column.split()))), ratio=2, overflow="fold")
    for row in answer.rows:
        cells = (Text(for_terminal(_cell(cell, answer.claims))) for cell in row.cells)
        table.add_row(Text(for_terminal(row.document)), *cells)
    console = Console(width=width(), file=io.StringIO(), color_system=None, force_terminal=False)
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().rstrip().split("\n"):
        out(line)
    for number, claim in survey_claims(answer.rows, answer.claims):
        mark = "" if claim.status == "verified" else "  [NOT VERIFIED]"
        for line in wrap(" ".join(claim.text.split()) + mark, first=f"{number}. ", rest="   "):
            out(line)
        for document in dict.fromkeys(c.document for c in claim.citations):
            for line in wrap(document, first="   - ", rest="     "):
                out(line, style="dim")


_CELL = 400
"""Characters of one claim in a cell; its quote stands whole among the sources."""


def _cell(cell: Cell, claims: Sequence[Claim]) -> str:
    if cell.status == "not_reached":
        return "not reached"
    parts: list[str] = []
    for number in cell.claims:
        claim = claims[number - 1]
        section = next((f" [§{c.section}]" for c in claim.citations if c.status == "verified" and c.section), "")
        mark = "" if claim.status == "verified" else "  NOT VERIFIED"
        parts.append(f"{number}. {_clip(claim.text, _CELL)}{section}{mark}")
    return "\n".join(parts) or "nothing found"


def _show_sources(claims: Sequence[Claim], *, quoted_only: bool = False) -> None:
    cited: dict[tuple[str, str | None, str], tuple[Citation, list[int]]] = {}
    for number, claim in enumerate(claims, 1):
        for citation in claim.citations:
            if quoted_only and not citation.quote:
                continue
            key = (citation.document, citation.section, citation.quote)
            numbers = cited.setdefault(key, (citation, []))[1]
            if number not in numbers:
                numbers.append(number)
    if not cited:
        return
    out()
    out("Sources", style="head")
    for count, (citation, numbers) in enumerate(cited.values(), 1):
        good = citation.status == "verified"
        mark = "verified" if good else "NOT VERIFIED"
        page = f", page {citation.page}" if citation.page is not None else ""
        claim = f"claim{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
        head = f"{place(citation.document, citation.section)}{page}  [{mark}; {claim}]"
        for line in wrap(head, first=f"{count:>3}. ", rest=" " * 7):
            out(line, style="good" if good else "bad")
        for line in wrap(f'"{" ".join(citation.quote.split())}"', first=" " * 7):
            out(line)
        for label in (*citation.labels, *trust_label(citation.trust)):
            for line in wrap(f"({label})", first=" " * 7):
                out(line, style="bad")
        if citation.reason:
            for line in wrap(f"why not: {citation.reason}", first=" " * 7):
                out(line, style="bad")


def _show_doubts(claims: Sequence[Claim]) -> None:
    doubted = [(n, c) for n, c in enumerate(claims, 1) if c.status != "verified" or c.warnings]
    if not doubted:
        return
    out()
    out("Check these claims yourself", style="bad")
    for number, claim in doubted:
        mark = {"unverified": "NOT VERIFIED", "uncited": "NO CITATION"}.get(claim.status, "verified, with a warning")
        for line in wrap(f"{_clip(claim.text, 300)}  [{mark}]", first=f"  {number}. ", rest=" " * 7):
            out(line)
        for warning in claim.warnings:
            for line in wrap(" ".join(warning.split()), first=" " * 7):
                out(line, style="dim")


def _show_missing(missing: Sequence[Gap]) -> None:
    if not missing:
        return
    rule = "=" * width()
    out()
    out(rule, style="bad")
    out(f"MISSING: {len(missing)} thing{'s' if len(missing) > 1 else ''} not found in the documents", style="bad")
    for gap in missing:
        for line in wrap(" ".join(gap.what.split()), first="  - ", rest="    "):
            out(line, style="bad")
        for line in wrap(_looked(gap), first="      "):
            out(line, style="dim")
    out(rule, style="bad")


def _looked(gap: Gap) -> str:
    own = " ".join((gap.reason or "").split())
    reason = f" {_clip(own, 300)}" if own and not own.startswith("searched ") else ""
    if gap.status != "checked":
        return f"NOT SEARCHED FOR.{reason}"
    where = f" {', '.join(gap.sources)}" if gap.sources else ""
    terms = f" for {', '.join(repr(q) for q in gap.queries[:4])}" if gap.queries else ""
    return f"searched{where}{terms}.{reason}"


def show_chat_sources(sources: Sequence[ChatSource], *, to_stderr: bool) -> None:
    """What `/sources` prints: the documents read in a chat, and which of them count."""
    say = err if to_stderr else out
    if not sources:
        say("nothing was read yet")
        return
    for source in sources:
        turns = ", ".join(map(str, source.turns))
        cited = f"; cited in {', '.join(map(str, source.cited))}" if source.cited else ""
        gone = "" if source.holds else "; has changed since or is gone: does not count any more"
        for line in wrap(f"{source.document}  (read in turn {turns}{cited}{gone})", first="  ", rest="      "):
            say(line, style=None if source.holds else "bad")


def usage_line(answer: Answer) -> str:
    """What the run took, in one line."""
    parts = [answer.model, answer.mode, *_amounts(answer.usage)]
    if answer.run_id:
        parts.append(f"run {answer.run_id}")
    return " | ".join(parts)


def _amounts(usage: Usage) -> list[str]:
    def of(count: int, what: str, plural: str) -> str:
        return f"{count} {what if count == 1 else plural}"

    parts = [
        of(usage.steps, "step", "steps"),
        of(usage.searches, "search", "searches"),
        of(usage.reads, "read", "reads"),
    ]
    tokens = usage.input_tokens + usage.output_tokens
    if tokens:
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        parts.append(f"{tokens:,} tokens{cached}")
    parts.append("cost unknown" if usage.dollars is None else f"${usage.dollars:.4f}")
    parts.append(f"{usage.seconds:.1f}s")
    return parts


# Runs --------------------------------------------------------------------------------------------------------------


def show_runs(runs: Sequence[RunSummary]) -> None:
    """What `citehound runs` prints: one line per run, newest first."""
    if not runs:
        err("no runs yet; 'citehound ask QUESTION' makes one")
        return
    out("run            when              status     question", style="head")
    for run in runs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))
        begin = f"{run.run_id:<14} {when}  {run.status:<10} "
        turn = "" if run.turn is None else f"[chat {(run.chat_id or '')[-4:]}, {run.turn}] "
        out(begin + _clip(turn + run.question, max(20, width() - len(begin))))


def summary_dict(run: RunSummary) -> dict[str, Any]:
    """One run of `runs --json`."""
    return asdict(run)


def show_run(record: RunRecord) -> None:
    """What `citehound runs ID` prints: the trace as a tree."""
    answer = record.answer
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.summary.created))
    for line in wrap(_clip(answer.question, 1000), first=f"run {answer.run_id}: ", rest="    "):
        out(line, style="head")
    for line in wrap(f"{when} | {answer.model} | {answer.requested_mode} -> {answer.mode} | {answer.route}"):
        out(line, style="dim")
    if answer.chat_id is not None:
        for line in wrap(f"turn {answer.turn} of chat {answer.chat_id}"):
            out(line, style="dim")
    _show_rewritten(answer)
    branches: list[tuple[str, list[list[str]]]] = []
    for (agent, step), calls in _by_step(answer.calls).items():
        who = "" if agent == "main" else f" ({agent})"
        branches.append((f"step {step}{who}", [_call_lines(c) for c in calls]))
    if answer.claims:
        branches.append(("claims", [_claim_lines(n, c) for n, c in enumerate(answer.claims, 1)]))
    if answer.missing:
        branches.append(("MISSING", [[" ".join(g.what.split()), _looked(g)] for g in answer.missing]))
    if answer.warnings:
        branches.append(("warnings", [[" ".join(w.split())] for w in answer.warnings]))
    if record.feedback is not None:
        said = "good" if record.feedback.good else "bad"
        branches.append((f"feedback: {said}", [[" ".join(record.feedback.reason.split()) or "no reason given"]]))
    ending = f"{answer.status}, stopped: {answer.stop_reason}"
    branches.append((ending, [[usage_line(answer)]]))
    for number, (head, leaves) in enumerate(branches):
        last = number == len(branches) - 1
        out(f"{'`-' if last else '|-'} {head}", style="head" if head != "MISSING" else "bad")
        stem = "   " if last else "|  "
        for at, lines in enumerate(leaves):
            end = at == len(leaves) - 1
            below = stem + ("   " if end else "|  ")
            for i, text in enumerate(lines):
                first = stem + ("`- " if end else "|- ") if i == 0 else below + "  "
                for line in wrap(text, first=first, rest=below + "  "):
                    out(line)


def _by_step(calls: Sequence[Call]) -> dict[tuple[str, int], list[Call]]:
    steps: dict[tuple[str, int], list[Call]] = {}
    for call in calls:
        steps.setdefault((call.agent, call.step), []).append(call)
    return steps


def _call_lines(call: Call) -> list[str]:
    arguments = dict(call.arguments)
    if call.tool.startswith("search_"):
        query = arguments.pop("query", "")
        narrowed = {k: v for k, v in arguments.items() if k not in ("only_current", "k") and v is not None}
        head = _search_line(call.source or call.tool.removeprefix("search_"), str(query), narrowed)
    else:
        shown = ", ".join(f"{k}={v!r}" for k, v in arguments.items() if v not in (None, 0, ""))
        head = f"{call.tool} {shown}"
    lines = [" ".join(head.split()) + f"  ({call.seconds * 1000:.0f} ms)"]
    if call.error:
        lines.append(f"failed: {call.error}")
    elif call.returned:
        lines.append("-> " + ", ".join(place(r.document, r.section) for r in call.returned))
    elif call.tool.startswith("search_"):
        lines.append("-> no hits")
    return lines


def _claim_lines(number: int, claim: Claim) -> list[str]:
    lines = [f"{number}. [{claim.status}] {' '.join(claim.text.split())}"]
    for citation in claim.citations:
        why = f" ({citation.reason})" if citation.reason else ""
        quote = _clip(citation.quote, 120)
        lines.append(f'{place(citation.document, citation.section)} [{citation.status}{why}] "{quote}"')
    if claim.premises:
        lines.append("follows from " + ", ".join(map(str, claim.premises)))
    return lines

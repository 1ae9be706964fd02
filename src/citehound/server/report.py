"""A run as one printable HTML page without scripts, pictures or links; built as elements, so no text becomes markup."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, tostring

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from ..answers import Answer, Call, Cell, Citation, Claim, Gap, Row
from ..rendering import survey_counts
from ..runs import RunRecord
from ..security import for_page
from .api import ERRORS, RunId, questions_of
from .identity import Caller
from .problems import Problem, Refused

router = APIRouter(prefix="/v1", responses=ERRORS)

_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 46rem; padding: 2.5rem 1.5rem 4rem; background: #fff; color: #1a2230;
  font: 11pt/1.5 -apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.05rem; margin: 1.8rem 0 .5rem; padding-bottom: .2rem; border-bottom: 1px solid #c9cfd9; }
p { margin: .2rem 0; }
.dim { color: #566072; font-size: .88em; }
.status { border: 2px solid #12683a; border-radius: 8px; padding: .6rem .9rem; margin: 1rem 0; }
.status.doubt { border-color: #a8261d; border-style: dashed; }
.status strong { font-size: 1.1em; }
ol, ul { margin: .3rem 0; padding-left: 1.6rem; }
li { margin: .7rem 0; break-inside: avoid; }
li.doubt { border-left: 4px double #a8261d; padding-left: .6rem; }
.mark { font-weight: 700; font-size: .85em; }
.mark.good { color: #12683a; }
.mark.doubt { color: #a8261d; }
blockquote { margin: .35rem 0; padding-left: .8rem; border-left: 3px solid #c9cfd9;
  font-family: Charter, "Bitstream Charter", Georgia, "Liberation Serif", serif; }
.missing { border: 2px solid #1a2230; border-radius: 8px; padding: .2rem .9rem .6rem; margin-top: 1.5rem; }
.missing h2 { border: 0; margin: .5rem 0 0; }
table { border-collapse: collapse; width: 100%; font-size: .9em; margin: .5rem 0; }
th, td { border: 1px solid #c9cfd9; padding: .35rem .5rem; text-align: left; vertical-align: top; }
th { background: #eef0f4; }
tr { break-inside: avoid; }
@page { margin: 18mm 16mm; }
@media print { body { padding: 0; max-width: none; } h2 { break-after: avoid; } }
"""
POLICY = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
    + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy: its own style and nothing else."""

_STATUS = {
    "complete": ("Complete", "Every claim is verified, and every gap was searched for."),
    "partial": ("Partial answer", "Read the marks, and what is missing."),
    "not_found": ("Not found", "The documents do not answer this."),
    "direct": ("Answered without documents", "No document was used, so nothing here is cited."),
    "failed": ("No answer", "There is nothing to show."),
    "clarification": ("Asked back", "Nothing was searched."),
}
_MARKS = {"verified": "✓ verified", "unverified": "✗ NOT VERIFIED", "uncited": "✗ NO CITATION"}
_CELLS = {"found": "found", "not_found": "nothing found", "unverified": "NOT VERIFIED", "not_reached": "not reached"}


@router.get(
    "/runs/{run_id}/report",
    response_class=HTMLResponse,
    responses={409: {"model": Problem}},
    summary="A run as one page to print or keep",
)
async def get_report(run_id: RunId, request: Request, caller: Caller) -> HTMLResponse:
    questions = questions_of(request)
    if questions.running(run_id, principal=caller) is not None:
        raise Refused(409, "the run is not over yet; wait for its answer")
    record = await questions.record(run_id, principal=caller)
    name = f'inline; filename="citehound-{record.summary.run_id}.html"'
    return HTMLResponse(report(record), headers={"Content-Security-Policy": POLICY, "Content-Disposition": name})


def report(record: RunRecord) -> str:
    """The page: question, status, claims with their quotes, what is missing, and every search and read."""
    answer = record.answer
    html = Element("html", {"lang": "en"})
    head = SubElement(html, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    policy = POLICY.replace("; frame-ancestors 'none'", "")  # which counts in a header only
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": policy})
    _add(head, "title", f"{answer.question[:120]} (Citehound)")
    SubElement(head, "style").text = _STYLE
    body = SubElement(html, "body")
    main = SubElement(body, "main")
    _add(main, "h1", answer.question)
    _add(main, "p", _about(record), "dim")
    if answer.rewritten and answer.rewritten != answer.question:
        _add(main, "p", f"Understood as: {answer.rewritten}", "dim")
    _status(main, answer)
    _said(main, answer)
    if answer.missing:
        _missing(main, answer.missing)
    if answer.calls:
        _add(main, "h2", "How it was found")
        steps = SubElement(main, "ol")
        for call in answer.calls:
            _call(steps, call)
    _list(main, "Notes", answer.warnings)
    if record.feedback is not None:
        opinion = "Good" if record.feedback.good else "Bad"
        _list(main, "Feedback", [f"{opinion}{f': {record.feedback.reason}' if record.feedback.reason else ''}"])
    _add(
        main,
        "p",
        "Verified means that the quoted words stand in a document that was read in this run and that the numbers "
        "agree. It does not mean that the claim is true.",
        "dim",
    )
    return "<!doctype html>\n" + tostring(html, encoding="unicode", method="html") + "\n"


def _add(parent: Element, tag: str, text: str, kind: str | None = None) -> Element:
    made = SubElement(parent, tag, {} if kind is None else {"class": kind})
    made.text = for_page(text)
    return made


def _about(record: RunRecord) -> str:
    answer, usage = record.answer, record.answer.usage
    when = datetime.fromtimestamp(record.summary.created, UTC).strftime("%Y-%m-%d %H:%M UTC")
    price = "price unknown" if usage.dollars is None else f"${usage.dollars:.4f}" if usage.dollars else "$0"
    model = "the offline model, which quotes and does not judge" if answer.model == "offline" else answer.model
    return (
        f"Run {answer.run_id}, {when}. Mode {answer.mode} ({answer.route}), {model}. {usage.steps} steps, "
        f"{usage.searches} searches, {usage.reads} reads, {usage.seconds:.1f} s, {price}."
    )


def _status(parent: Element, answer: Answer) -> None:
    name, meaning = _STATUS.get(answer.status, (answer.status, ""))
    fine = answer.status in ("complete", "direct")
    box = SubElement(parent, "div", {"class": "status" if fine else "status doubt"})
    _add(box, "strong", name)
    _add(box, "p", meaning)
    if answer.stop_reason != "answered":
        _add(box, "p", f"It stopped early: {answer.stop_reason.replace('_', ' ')}.")
    doubtful = sum(1 for claim in answer.claims if claim.status != "verified")
    if doubtful:
        _add(box, "p", f"{doubtful} of {len(answer.claims)} claims are not verified.")
    unchecked = sum(1 for gap in answer.missing if gap.status == "unchecked")
    if unchecked:
        _add(box, "p", f"{unchecked} of {len(answer.missing)} missing things were not searched for.")


def _said(parent: Element, answer: Answer) -> None:
    if answer.clarification:
        _add(parent, "p", answer.clarification)
    elif answer.status == "direct":
        for line in answer.text.splitlines():
            _add(parent, "p", line)
    if answer.rows:
        _survey(parent, answer.rows)
    if answer.claims:
        _add(parent, "h2", "Claims")
        items = SubElement(parent, "ol")
        for number, claim in enumerate(answer.claims, start=1):
            _claim(items, number, claim)


def _claim(parent: Element, number: int, claim: Claim) -> None:
    fine = claim.status == "verified"
    item = SubElement(parent, "li", {"value": str(number)} if fine else {"value": str(number), "class": "doubt"})
    line = _add(item, "p", f"{claim.text} ")
    _add(line, "span", _MARKS.get(claim.status, claim.status), "mark good" if fine else "mark doubt")
    if claim.kind == "conclusion" and claim.premises:
        _add(item, "p", f"Concluded from {', '.join(map(str, claim.premises))}.", "dim")
    if claim.kind == "absence" and claim.terms:
        _add(item, "p", f"Looked for: {', '.join(claim.terms)}.", "dim")
    for warning in claim.warnings:
        _add(item, "p", warning, "dim")
    _citations(item, claim.citations)


def _citations(parent: Element, citations: Iterable[Citation]) -> None:
    for citation in citations:
        _add(parent, "blockquote", citation.quote)
        where = citation.document + (f" §{citation.section}" if citation.section else "")
        where += f", page {citation.page}" if citation.page is not None else ""
        where += "".join(f" ({label})" for label in citation.labels)
        line = _add(parent, "p", where, "dim")
        if citation.status != "verified":
            _add(line, "span", f" ✗ NOT VERIFIED: {citation.reason or 'a check failed'}", "mark doubt")


def _survey(parent: Element, rows: Sequence[Row]) -> None:
    _add(parent, "h2", "One row per document")
    for line in survey_counts(rows):
        _add(parent, "p", line, "dim")
    table = SubElement(parent, "table")
    head = SubElement(SubElement(table, "thead"), "tr")
    for name in ("Document", *(cell.column for cell in rows[0].cells)):
        _add(head, "th", name)
    body = SubElement(table, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        _add(line, "th", row.document)
        for cell in row.cells:
            _add(line, "td", _cell(cell))


def _cell(cell: Cell) -> str:
    numbers = f" ({', '.join(map(str, cell.claims))})" if cell.claims else ""
    parts = [_CELLS[cell.status] + numbers, cell.text, cell.reason or ""]
    return ": ".join(part for part in parts if part)


def _missing(parent: Element, missing: Sequence[Gap]) -> None:
    box = SubElement(parent, "section", {"class": "missing"})
    _add(box, "h2", "Missing")
    items = SubElement(box, "ul")
    for gap in missing:
        item = SubElement(items, "li")
        line = _add(item, "p", f"{gap.what} ")
        if gap.status == "checked":
            _add(line, "span", "searched, not found", "mark")
        else:
            _add(line, "span", "✗ NOT SEARCHED", "mark doubt")
        where = f"in {', '.join(gap.sources)}" if gap.sources else ""
        terms = ", ".join(f"“{query}”" for query in gap.queries)
        if where or terms:
            _add(item, "p", f"{where}{': ' if where and terms else ''}{terms}", "dim")


def _call(parent: Element, call: Call) -> None:
    arguments = ", ".join(f"{name}: {value}" for name, value in call.arguments.items() if value is not None)
    agent = "" if call.agent == "main" else f" ({call.agent})"
    item = SubElement(parent, "li")
    _add(item, "p", f"Step {call.step}{agent}, {call.tool}: {arguments}")
    if call.error:
        _add(item, "p", f"failed: {call.error}", "mark doubt")
        return
    found = ", ".join(r.document + (f" §{r.section}" if r.section else "") for r in call.returned)
    _add(item, "p", found or "no hits", "dim")


def _list(parent: Element, title: str, items: Sequence[str]) -> None:
    if not items:
        return
    _add(parent, "h2", title)
    made = SubElement(parent, "ul")
    for item in items:
        _add(made, "li", item)

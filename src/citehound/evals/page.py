"""The report of an evaluation as one HTML file that needs no network: plots, sortable cases, the trace of each run.

Data goes into the page as JSON and onto it through `textContent`: nothing that a document or model says is markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..access import OWNER
from ..answers import Answer, Call
from ..config import Config
from ..errors import UsageError
from ..runs import RunRecord, RunStore
from ..security import for_page_json
from .cases import Case
from .metrics import METRICS, Observation, stretches, was_met
from .report import comparison_lines
from .runner import CaseRun, Evaluation

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def write_page(path: Path, evaluation: Evaluation, config: Config, *, title: str = "Citehound evaluation") -> None:
    """Writes the report; the traces come from the recorded runs."""
    store = RunStore(config.state / "runs.sqlite")
    html = page(evaluation, lambda run_id: store.get(run_id, principal=OWNER), title=title)
    path.write_text(html, encoding="utf-8")


def page(evaluation: Evaluation, recorded: Callable[[str], RunRecord], *, title: str) -> str:
    """The HTML; `recorded` finds the run with an id. Without run ids, so that the same answers give the same page."""
    data = {
        "title": title,
        "evaluation": _evaluation(evaluation),
        "metrics": [
            {"name": m.name, "label": m.label, "better": m.better, "share": m.share, "meaning": m.meaning}
            for m in METRICS
        ],
        "comparison": comparison_lines(evaluation),
        "traces": {
            result.variant.name: {run.case: _trace(run, evaluation, recorded) for run in result.runs if run.number == 1}
            for result in evaluation.results
        },
    }
    static = files("citehound.evals") / "static"
    text = (static / "page.html").read_text("utf-8")
    parts = {
        "policy": _POLICY,
        "style": (static / "page.css").read_text("utf-8"),
        "chart": (static / "chart" / "chart.min.js").read_text("utf-8").replace("</", "<\\/"),
        "script": (static / "page.js").read_text("utf-8"),
        "data": for_page_json(data),
    }
    for name, part in parts.items():
        text = text.replace("{{" + name + "}}", part, 1)
    return text


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """As the JSON output has it, without what differs from run to run."""
    row = evaluation.to_dict()
    for variant in row["modes"].values():
        for case in variant["cases"]:
            case.pop("run_id", None)
            for run in case.get("runs", ()):
                run.pop("run_id", None)
    return row


def _trace(run: CaseRun, evaluation: Evaluation, recorded: Callable[[str], RunRecord]) -> dict[str, Any]:
    case = next(case for case in evaluation.cases if case.id == run.case)
    try:
        record = recorded(run.run_id)
    except UsageError:
        return {"lost": "the record of this run is gone"}
    return {
        "question": case.question,
        "kind": case.kind,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "route": record.answer.route,
        "mode": record.answer.mode,
        "needs": _needs(case, record, evaluation),
        "calls": [_call(call) for call in record.answer.calls],
        "answer_points": list(case.answer_points or ()),
        "case_missing": list(case.missing or ()),
        **_said(record.answer),
    }


def _needs(case: Case, record: RunRecord, evaluation: Evaluation) -> list[dict[str, Any]]:
    seen = Observation(answer=record.answer, reads=stretches(record.events))
    return [
        {"name": need.name, "document": need.document, "read": was_met(need, seen)}
        for need in evaluation.needs.get(case.id, ())
    ]


def _call(call: Call) -> dict[str, Any]:
    return {
        "step": call.step,
        "agent": call.agent,
        "tool": call.tool,
        "arguments": _plain(call.arguments),
        "returned": [f"{r.document}{f' §{r.section}' if r.section else ''}" for r in call.returned],
        "error": call.error,
    }


def _plain(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in arguments.items() if value is not None)


def _said(answer: Answer) -> dict[str, Any]:
    return {
        "claims": [
            {
                "text": claim.text,
                "kind": claim.kind,
                "status": claim.status,
                "warnings": list(claim.warnings),
                "citations": [
                    {
                        "document": citation.document,
                        "section": citation.section,
                        "quote": citation.quote,
                        "status": citation.status,
                        "reason": citation.reason,
                    }
                    for citation in claim.citations
                ],
            }
            for claim in answer.claims
        ],
        "missing": [asdict(gap) for gap in answer.missing],
        "warnings": list(answer.warnings),
    }

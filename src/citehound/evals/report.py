"""What an evaluation says, in words and numbers: the table, the comparison with another one, and the gates of a CI."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..errors import UsageError
from .metrics import BY_NAME, METRICS, Metric
from .runner import Evaluation, VariantResult
from .statistics import Comparison, compare

WIDTH = 100
_COMPARED = ("must_read_recall", "evidence_recall", "answer_points", "citations_valid", "gap_recall", "gap_precision")
_COST = ("searches", "input_tokens", "dollars", "seconds")
_CHANGED = 1e-9


def figure(value: float | None, metric: Metric) -> str:
    """A value as reports show it."""
    if value is None:
        return "-"
    if metric.name == "dollars":
        return f"{value:.4f}"
    if metric.share:
        return f"{value:.2f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def table(evaluation: Evaluation) -> list[str]:
    """The metrics of every variant, at most 100 columns wide; variants that do not fit stand in a second table."""
    lines: list[str] = []
    names = [result.variant.name for result in evaluation.results]
    label = max(len(m.label) for m in METRICS) + 1
    cell = max(13, *(min(len(n), 24) for n in names)) + 2
    fit = max(1, (WIDTH - label) // cell)
    shown = [m for m in METRICS if any(result.summary(m.name) for result in evaluation.results)]
    for at in range(0, len(names), fit):
        block = evaluation.results[at : at + fit]
        lines += [] if at == 0 else [""]
        lines.append("".ljust(label) + "".join(_short(r.variant.name, cell - 2).rjust(cell) for r in block))
        lines += [_row(metric, block, label=label, cell=cell) for metric in shown]
        for title, key in (("stopped by", "stop_reason"), ("status", "status")):
            lines += _counts(title, key, block, label=label, cell=cell)
        if evaluation.repeat > 1:
            for k in range(1, evaluation.repeat + 1):
                values = ["-" if (v := r.pass_hat(k)) is None else f"{v:.2f}" for r in block]
                lines.append(f"pass^{k}".ljust(label) + "".join(v.rjust(cell) for v in values))
    return lines


def _row(metric: Metric, block: Sequence[VariantResult], *, label: int, cell: int) -> str:
    cells: list[str] = []
    for result in block:
        one = result.summary(metric.name)
        text = figure(None if one is None else one.mean, metric)
        if one is not None and metric.share and one.high > one.low:
            text += f" {one.low:.2f}-{one.high:.2f}"
        cells.append(text.rjust(cell))
    return metric.label.ljust(label) + "".join(cells)


def _counts(title: str, key: str, block: Sequence[VariantResult], *, label: int, cell: int) -> list[str]:
    seen = sorted({str(getattr(run, key)) for result in block for run in result.runs})
    lines: list[str] = []
    for value in seen:
        numbers = [sum(getattr(run, key) == value for run in result.runs) for result in block]
        lines.append(_short(f"{title} {value}", label - 1).ljust(label) + "".join(str(n).rjust(cell) for n in numbers))
    return lines


def _short(text: str, most: int) -> str:
    """The beginning and the end: names of models differ there."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return text[:head] + "…" + text[len(text) - (most - 1 - head) :]


def comparisons(evaluation: Evaluation) -> dict[str, dict[str, Comparison]]:
    """Every further variant against the first, metric by metric, on the cases that both have a value for."""
    found: dict[str, dict[str, Comparison]] = {}
    if not evaluation.results:
        return found
    base = evaluation.results[0]
    for other in evaluation.results[1:]:
        rows: dict[str, Comparison] = {}
        for metric in METRICS:
            one, two = base.values(metric.name), other.values(metric.name)
            both = [case for case in one if case in two]
            made = compare([one[c] for c in both], [two[c] for c in both])
            if made is not None:
                rows[metric.name] = made
        found[other.variant.name] = rows
    return found


def comparison_lines(evaluation: Evaluation) -> list[str]:
    """In words: what differs between the first variant and each other, and what is noise."""
    if len(evaluation.results) < 2:
        return []
    base = evaluation.results[0].variant.name
    lines: list[str] = []
    for name, rows in comparisons(evaluation).items():
        lines.append(f"{name} against {base} (paired permutation test):")
        for key in (*_COMPARED, *_COST):
            made = rows.get(key)
            if made is None:
                continue
            metric = BY_NAME[key]
            sign = "+" if made.difference >= 0 else "-"
            change = f"{sign}{figure(abs(made.difference), metric)}"
            verdict = "noise" if made.is_noise else "a difference"
            chance = "p <0.001" if made.p < 0.001 else f"p {made.p:.3f}"
            lines.append(f"  {metric.label:<16} {change:>9}  {chance} over {made.pairs} cases: {verdict}")
    return lines


# Against an earlier evaluation --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Change:
    """A metric of one case (or, with `case` None, of all) that is not what it was."""

    variant: str
    case: str | None
    metric: str
    before: float | None
    after: float | None

    @property
    def worse(self) -> bool | None:
        """None where neither way is better, or one of the values is unknown."""
        better = BY_NAME[self.metric].better if self.metric in BY_NAME else 0
        if better == 0 or self.before is None or self.after is None:
            return None
        return (self.after - self.before) * better < 0


def load_baseline(path: Path) -> Mapping[str, Any]:
    """An earlier `citehound eval --json`. Raises UsageError when it is none."""
    try:
        read: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the baseline {str(path)!r} cannot be read ({error}): give the output of 'citehound eval --json'"
        ) from error
    if not isinstance(read, dict) or not isinstance(cast("dict[str, Any]", read).get("modes"), dict):
        raise UsageError(f"the baseline {str(path)!r} has no modes: give the output of 'citehound eval --json'")
    return cast("dict[str, Any]", read)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """What changed between two evaluations (their JSON), in the variants and cases that both have.

    Seconds are left out: they differ from run to run.
    """
    found: list[Change] = []
    for variant, new in after["modes"].items():
        old = before["modes"].get(variant)
        if old is None:
            continue
        rows: list[tuple[str | None, Mapping[str, Any], Mapping[str, Any]]] = [(None, old["metrics"], new["metrics"])]
        earlier = {case["id"]: case["metrics"] for case in old["cases"]}
        rows += [(c["id"], earlier[c["id"]], c["metrics"]) for c in new["cases"] if c["id"] in earlier]
        for case, one, two in rows:
            for metric in sorted({*one, *two} - {"seconds"}):
                a, b = one.get(metric), two.get(metric)
                if a != b and (a is None or b is None or abs(a - b) > _CHANGED):
                    found.append(Change(variant=variant, case=case, metric=metric, before=a, after=b))
    return tuple(found)


def change_lines(found: Sequence[Change]) -> list[str]:
    """The changes, case by case, the worse ones first."""
    if not found:
        return ["nothing changed against the baseline"]
    order = sorted(found, key=lambda c: (c.case is not None, c.worse is not True, c.variant, c.case or "", c.metric))
    lines: list[str] = []
    for change in order:
        metric = BY_NAME.get(change.metric)
        if metric is None:
            continue
        mark = {True: "worse", False: "better", None: "changed"}[change.worse]
        where = change.case or "all cases"
        lines.append(
            f"{mark:<8}{change.variant} {where}: {metric.label} "
            f"{figure(change.before, metric)} -> {figure(change.after, metric)}"
        )
    return lines


# Gates --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A bound on a metric; `variant` None holds for all. Where less is better it is an upper bound."""

    metric: str
    bound: float
    variant: str | None = None


def parse_gates(text: str, names: Sequence[str]) -> tuple[Gate, ...]:
    """`must_read_recall=0.9,agent:citations_valid=1`. Raises UsageError with the nearest metric or variant."""
    gates: list[Gate] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        left, equals, right = part.partition("=")
        variant, colon, name = left.strip().rpartition(":")
        name = name.strip()
        if not equals or name not in BY_NAME:
            near = difflib.get_close_matches(name, list(BY_NAME), n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else "write it as metric=number, as in must_read_recall=0.9"
            raise UsageError(f"--fail-under {part!r} names no metric: {hint}")
        if colon and variant not in names:
            raise UsageError(f"--fail-under {part!r}: there is no {variant!r} among {', '.join(names)}")
        try:
            bound = float(right)
        except ValueError as error:
            raise UsageError(f"--fail-under {part!r}: {right!r} is no number") from error
        gates.append(Gate(metric=name, bound=bound, variant=variant if colon else None))
    return tuple(gates)


def failures(gates: Sequence[Gate], evaluation: Evaluation) -> tuple[str, ...]:
    """A line for each bound that is not kept. A metric that no case has a value for does not keep its bound."""
    lines: list[str] = []
    for gate in gates:
        metric = BY_NAME[gate.metric]
        for result in evaluation.results:
            if gate.variant is not None and gate.variant != result.variant.name:
                continue
            one = result.summary(gate.metric)
            at = f"{result.variant.name}: {gate.metric}"
            if one is None:
                lines.append(f"{at} has no value, so {gate.bound:g} is not kept")
            elif metric.better >= 0 and one.mean < gate.bound - _CHANGED:
                lines.append(f"{at} is {one.mean:.3f}, under {gate.bound:g}")
            elif metric.better < 0 and one.mean > gate.bound + _CHANGED:
                lines.append(f"{at} is {one.mean:.3f}, over {gate.bound:g}")
    if gates and evaluation.skipped:
        lines.append(f"{len(evaluation.skipped)} cases were not reached within the dollar cap")
    return tuple(lines)

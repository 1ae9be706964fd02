"""Metrics: plain functions over what one run searched, read and answered; None where a run cannot be measured so.

Each takes an `Observation` and gives a number. A rate over cases is the mean of the cases that have a value. Adding a
metric is adding a function and its line in `METRICS`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ..answers import Answer, Call
from ..budget import Budget
from ..quantities import agree, quantities
from ..wording import content_stems
from .cases import Case, Need

_READING = ("read_document", "find_in_document")
_OPTIONAL = re.compile(r"^\s*\(optional\)", re.IGNORECASE)
_HALF = 0.5


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A stretch of a document that was read, in code points."""

    document: str
    section: str | None
    start: int
    end: int
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One run beside its case. Without a case (a recorded run) the metrics that need gold are None."""

    answer: Answer
    case: Case | None = None
    reads: tuple[Stretch, ...] = ()
    """In the order of reading; the same stretch may be there twice."""
    needs: tuple[Need, ...] = ()
    """The case's must_read entries."""
    shown: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Document to the stretches of its text that were read, touching ones joined, white space folded."""
    patterns: tuple[tuple[str, str], ...] = ()
    """(document, regular expression) of the case's evidence."""
    budget: Budget | None = None
    judged: float | None = None
    """Share of the answer points that a model found in the answer; None where no model was asked."""


def documents_read(run: Observation) -> tuple[str, ...]:
    """Documents of which something was read, in the order of first reading."""
    return tuple(dict.fromkeys(stretch.document for stretch in run.reads))


def documents_cited(run: Observation) -> tuple[str, ...]:
    """Documents with a verified citation."""
    return tuple(
        dict.fromkeys(
            citation.document
            for claim in run.answer.claims
            for citation in claim.citations
            if citation.status == "verified"
        )
    )


def meets(stretch: Stretch, need: Need) -> bool:
    """Whether the stretch is of a needed document; of a needed section, whether it holds some of it."""
    if stretch.document != need.document:
        return False
    return need.start is None or need.end is None or (stretch.start < need.end and need.start < stretch.end)


def was_met(need: Need, run: Observation) -> bool:
    """Whether something that meets the need was read."""
    return any(meets(stretch, need) for stretch in run.reads)


# What was read ------------------------------------------------------------------------------------------------------


def must_read_recall(run: Observation) -> float | None:
    """Share of the must_read entries that were read. A superseded version does not stand for the current one."""
    if not run.needs:
        return None
    return sum(was_met(need, run) for need in run.needs) / len(run.needs)


def all_read(run: Observation) -> float | None:
    """1 when every must_read entry was read, else 0."""
    recall = must_read_recall(run)
    return None if recall is None else float(recall == 1)


def evidence_recall(run: Observation) -> float | None:
    """Share of the case's evidence patterns that stand in the text that was shown of their document."""
    if not run.patterns:
        return None
    found = sum(any(re.search(pattern, text) for text in run.shown.get(name, ())) for name, pattern in run.patterns)
    return found / len(run.patterns)


def read_precision(run: Observation) -> float | None:
    """Share of the documents read that the case needs (must_read, or a document with evidence). None: nothing read."""
    wanted = {need.document for need in run.needs} | {document for document, _ in run.patterns}
    read = documents_read(run)
    if not wanted or not read:
        return None
    return sum(document in wanted for document in read) / len(read)


def reads_that_helped(run: Observation) -> float | None:
    """Share of the documents read that a verified citation of the answer is from. None: nothing read."""
    read = documents_read(run)
    if not read:
        return None
    cited = set(documents_cited(run))
    return sum(document in cited for document in read) / len(read)


def useless_searches(run: Observation) -> float | None:
    """Share of the searches none of whose documents is cited (verified) in the answer. None: no search."""
    made = _searches(run)
    if not made:
        return None
    cited = set(documents_cited(run))
    return sum(not cited & {r.document for r in call.returned} for call in made) / len(made)


def stopped_early(run: Observation) -> float | None:
    """On `single` cases that read all they need: 1 when no search came in a step after that, else 0."""
    if run.case is None or run.case.kind != "single" or not run.needs or all_read(run) != 1:
        return None
    done = max(min(s.step for s in run.reads if meets(s, need)) for need in run.needs)
    return float(all(call.step <= done for call in _searches(run)))


# What was answered --------------------------------------------------------------------------------------------------


def answer_points(run: Observation) -> float | None:
    """Share of the answer points that the answer covers.

    A point is covered when every quantity of it stands in the answer (claims, quotes, gaps), and at least half of its
    content words do, by their stems. Points that begin with '(optional)' are not counted.
    """
    points = counted_points(run.case)
    if not points:
        return None
    text = answer_text(run.answer)
    return sum(covers(text, point) for point in points) / len(points)


def answer_points_judged(run: Observation) -> float | None:
    """Share of the answer points that a model found in the answer (a model's opinion). None: no model was asked."""
    return run.judged


def counted_points(case: Case | None) -> tuple[str, ...]:
    """The answer points that count."""
    given = case.answer_points if case is not None else None
    return tuple(point for point in given or () if not _OPTIONAL.match(point))


def answer_text(answer: Answer) -> str:
    """All that the answer says: its text, claims, quotes and gaps."""
    parts = [answer.text]
    for claim in answer.claims:
        parts += [claim.text, *(citation.quote for citation in claim.citations)]
    parts += [gap.what for gap in answer.missing]
    return "\n".join(parts)


def covers(text: str, point: str) -> bool:
    """Whether `text` has every quantity of `point` and at least half of its content words."""
    stated = quantities(text)
    for quantity in quantities(point):
        if not any(agree(quantity, other) for other in stated) and _fold(quantity.text) not in _fold(text):
            return False
    wanted = content_stems(point)
    return not wanted or len(wanted & content_stems(text)) >= _HALF * len(wanted)


def _fold(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def citations_valid(run: Observation) -> float | None:
    """Verified citations of all citations. None: nothing is cited."""
    given = [citation for claim in run.answer.claims for citation in claim.citations]
    if not given:
        return None
    return sum(citation.status == "verified" for citation in given) / len(given)


def claims_verified(run: Observation) -> float | None:
    """Verified claims of all claims. None: no claims."""
    claims = run.answer.claims
    return sum(claim.status == "verified" for claim in claims) / len(claims) if claims else None


def claims_uncited(run: Observation) -> float | None:
    """Claims without citation, premise or search, of all claims. None: no claims."""
    claims = run.answer.claims
    return sum(claim.status == "uncited" for claim in claims) / len(claims) if claims else None


def complete(run: Observation) -> float | None:
    """1 when the status is `complete`, `direct` or `not_found` (it says all there is to say), else 0."""
    return float(run.answer.status in ("complete", "direct", "not_found"))


# What is missing ----------------------------------------------------------------------------------------------------


def gap_recall(run: Observation) -> float | None:
    """On cases where something is missing: 1 when the answer declares a gap, else 0."""
    if run.case is None or run.case.has_gap is not True:
        return None
    return float(bool(run.answer.missing))


def gap_precision(run: Observation) -> float | None:
    """On answers that declare a gap: 1 when the case has one, else 0."""
    if run.case is None or run.case.has_gap is None or not run.answer.missing:
        return None
    return float(run.case.has_gap)


def false_gaps(run: Observation) -> float | None:
    """On cases where nothing is missing: how many gaps the answer declares."""
    if run.case is None or run.case.has_gap is not False:
        return None
    return float(len(run.answer.missing))


def gaps_checked(run: Observation) -> float | None:
    """Checked gaps of all declared gaps. None: no gap."""
    missing = run.answer.missing
    return sum(gap.status == "checked" for gap in missing) / len(missing) if missing else None


def overclaimed(run: Observation) -> float | None:
    """1 when the answer is `complete` or `direct` and declares no gap though the case has one, else 0."""
    if run.case is None or run.case.has_gap is None:
        return None
    return float(run.case.has_gap and run.answer.status in ("complete", "direct") and not run.answer.missing)


# What it took -------------------------------------------------------------------------------------------------------


def searches(run: Observation) -> float | None:
    """Searches made, by the model or by code."""
    return float(run.answer.usage.searches)


def reads(run: Observation) -> float | None:
    """Calls that read."""
    return float(run.answer.usage.reads)


def repeated_reads(run: Observation) -> float | None:
    """Stretches read that lie wholly in what had been read before."""
    again = 0
    for number, stretch in enumerate(run.reads):
        again += any(
            other.document == stretch.document and other.start <= stretch.start and stretch.end <= other.end
            for other in run.reads[:number]
        )
    return float(again)


def steps(run: Observation) -> float | None:
    """Turns of the model."""
    return float(run.answer.usage.steps)


def steps_kept(run: Observation) -> float | None:
    """On cases with max_steps: 1 when the run took no more, else 0."""
    if run.case is None or run.case.max_steps is None:
        return None
    return float(run.answer.usage.steps <= run.case.max_steps)


def input_tokens(run: Observation) -> float | None:
    """Input tokens of all requests, cached ones too."""
    return float(run.answer.usage.input_tokens)


def output_tokens(run: Observation) -> float | None:
    """Output tokens of all requests."""
    return float(run.answer.usage.output_tokens)


def cached_share(run: Observation) -> float | None:
    """Cached input tokens of all input tokens. None: no input was counted."""
    usage = run.answer.usage
    return usage.cached_tokens / usage.input_tokens if usage.input_tokens else None


def dollars(run: Observation) -> float | None:
    """Dollars spent, reservations of unknown outcome included. None: the price is unknown."""
    return run.answer.usage.dollars


def seconds(run: Observation) -> float | None:
    """Wall-clock seconds."""
    return run.answer.usage.seconds


def answered(run: Observation) -> float | None:
    """1 when it stopped by answering, 0 when by a cap, a fault or no progress."""
    return float(run.answer.stop_reason == "answered")


def budget_kept(run: Observation) -> float | None:
    """1 when steps and dollars stayed within the budget, else 0. None: the budget is not known."""
    if run.budget is None:
        return None
    usage, budget = run.answer.usage, run.budget
    within_steps = budget.max_steps is None or usage.steps <= budget.max_steps
    within_dollars = budget.max_dollars is None or usage.dollars is None or usage.dollars <= budget.max_dollars + 1e-9
    return float(within_steps and within_dollars)


def _searches(run: Observation) -> list[Call]:
    return [call for call in run.answer.calls if call.tool.startswith("search_")]


# The table ----------------------------------------------------------------------------------------------------------

Function = Callable[[Observation], "float | None"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric as reports show it. `better` says which way is good: 1 more, -1 less, 0 neither."""

    function: Function
    label: str
    better: int = 1
    share: bool = True
    """True for values from 0 to 1."""
    gold: bool = False
    """True when it needs a case."""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def meaning(self) -> str:
        """The first sentence of the definition."""
        return " ".join((self.function.__doc__ or "").split("\n\n")[0].split())


METRICS: tuple[Metric, ...] = (
    Metric(function=must_read_recall, label="must read", gold=True),
    Metric(function=all_read, label="all read", gold=True),
    Metric(function=evidence_recall, label="evidence", gold=True),
    Metric(function=read_precision, label="read precision", gold=True),
    Metric(function=answer_points, label="answer points", gold=True),
    Metric(function=answer_points_judged, label="points, judged", gold=True),
    Metric(function=citations_valid, label="citations valid"),
    Metric(function=claims_verified, label="claims verified"),
    Metric(function=claims_uncited, label="claims uncited", better=-1),
    Metric(function=gap_recall, label="gap recall", gold=True),
    Metric(function=gap_precision, label="gap precision", gold=True),
    Metric(function=false_gaps, label="false gaps", better=-1, share=False, gold=True),
    Metric(function=gaps_checked, label="gaps checked"),
    Metric(function=overclaimed, label="overclaimed", better=-1, gold=True),
    Metric(function=complete, label="complete"),
    Metric(function=answered, label="answered"),
    Metric(function=stopped_early, label="stopped early", gold=True),
    Metric(function=reads_that_helped, label="reads that helped"),
    Metric(function=useless_searches, label="useless searches", better=-1),
    Metric(function=searches, label="searches", better=0, share=False),
    Metric(function=reads, label="reads", better=0, share=False),
    Metric(function=repeated_reads, label="repeated reads", better=-1, share=False),
    Metric(function=steps, label="steps", better=-1, share=False),
    Metric(function=steps_kept, label="steps kept", gold=True),
    Metric(function=budget_kept, label="budget kept"),
    Metric(function=input_tokens, label="input tokens", better=-1, share=False),
    Metric(function=output_tokens, label="output tokens", better=-1, share=False),
    Metric(function=cached_share, label="cached share"),
    Metric(function=dollars, label="dollars", better=-1, share=False),
    Metric(function=seconds, label="seconds", better=-1, share=False),
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}


def score(run: Observation) -> dict[str, float | None]:
    """Every metric of one run, by name."""
    return {metric.name: metric.function(run) for metric in METRICS}


def stretches(events: tuple[Mapping[str, Any], ...]) -> tuple[Stretch, ...]:
    """What the events of a run (as `Event.to_dict` gives them) say was read."""
    return tuple(
        Stretch(
            document=cast("str", event["document"]),
            section=cast("str | None", event.get("section")),
            start=cast("int", event["start"]),
            end=cast("int", event["end"]),
            step=cast("int", event.get("step", 0)),
        )
        for event in events
        if event.get("type") == "read"
    )

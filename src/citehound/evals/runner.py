"""Runs cases in several modes and models, side by side, within one dollar cap; a stopped run goes on where it stopped.

It judges nothing: `metrics` does. Needs the extra `citehound[eval]`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from ..access import OWNER, Principal
from ..answers import Answer
from ..assistant import Assistant
from ..budget import Budget, Meter
from ..config import Config
from ..corpus import Corpus
from ..errors import CitehoundError, ConfigError, UsageError
from ..events import Emit, Event, Progress, nowhere
from ..judge import ModelJudge, RulesJudge
from ..models import OFFLINE, OpenedModel, open_model, open_small, require_price
from ..readonly import private_folder
from ..runs import RunStore
from ..security import for_log_json
from .cases import Case, Need, needs, problems
from .metrics import BY_NAME, METRICS, Observation, Stretch, answer_text, counted_points, score, stretches
from .statistics import Summary, mean, pass_hat, spread, summary

CONCURRENCY = 4


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to answer: a mode with a model. `name` is its column in reports."""

    name: str
    mode: str
    model: str


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """One case answered once."""

    case: str
    variant: str
    number: int
    """From 1, with `repeat`."""
    run_id: str
    status: str
    stop_reason: str
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class VariantResult:
    """What one variant did."""

    variant: Variant
    runs: tuple[CaseRun, ...]

    def values(self, metric: str) -> dict[str, float]:
        """Case to the mean of a metric over its repetitions; cases without a value are left out."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            value = run.metrics.get(metric)
            if value is not None:
                found.setdefault(run.case, []).append(value)
        return {case: math.fsum(values) / len(values) for case, values in found.items()}

    def summary(self, metric: str) -> Summary | None:
        """Mean over the cases, with its interval."""
        return summary(list(self.values(metric).values()))

    def spread(self, metric: str) -> float | None:
        """Mean over the cases of the standard deviation among repetitions; None without repetitions."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            value = run.metrics.get(metric)
            if value is not None:
                found.setdefault(run.case, []).append(value)
        return mean([spread(values) for values in found.values() if len(values) > 1])

    def pass_hat(self, k: int) -> float | None:
        """pass^k over the cases; a run passes when it is `passed`."""
        found: dict[str, list[bool]] = {}
        for run in self.runs:
            found.setdefault(run.case, []).append(passed(run))
        values = [pass_hat(sum(ok), of=len(ok), k=k) for ok in found.values()]
        return mean([v for v in values if v is not None])


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """All variants on all cases. `skipped`: (variant, case) that the dollar cap did not reach."""

    cases: tuple[Case, ...]
    results: tuple[VariantResult, ...]
    repeat: int = 1
    skipped: tuple[tuple[str, str], ...] = ()
    dollars: float = 0.0
    needs: Mapping[str, tuple[Need, ...]] = field(default_factory=dict[str, tuple[Need, ...]])

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `citehound eval --json`; without repetitions each case has one run."""
        return {
            "modes": {result.variant.name: self._variant(result) for result in self.results},
            "cases": [case.to_dict() for case in self.cases],
            "repeat": self.repeat,
            "dollars": self.dollars,
            "skipped": [{"mode": variant, "id": case} for variant, case in self.skipped],
            "definitions": {metric.name: metric.meaning for metric in METRICS},
        }

    def _variant(self, result: VariantResult) -> dict[str, Any]:
        sums = {metric.name: result.summary(metric.name) for metric in METRICS}
        reasons = [run.stop_reason for run in result.runs]
        statuses = [run.status for run in result.runs]
        row: dict[str, Any] = {
            "mode": result.variant.mode,
            "model": result.variant.model,
            "metrics": {name: one.mean if one else None for name, one in sums.items()},
            "intervals": {name: [one.low, one.high] for name, one in sums.items() if one},
            "measured": {name: one.n for name, one in sums.items() if one},
            "stop_reasons": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
            "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
            "cases": [self._case(case, result) for case in self.cases if any(r.case == case.id for r in result.runs)],
        }
        if self.repeat > 1:
            row["spread"] = {name: result.spread(name) for name in sums}
            row["pass^k"] = {str(k): result.pass_hat(k) for k in range(1, self.repeat + 1)}
        return row

    def _case(self, case: Case, result: VariantResult) -> dict[str, Any]:
        runs = [run for run in result.runs if run.case == case.id]
        row: dict[str, Any] = {
            "id": case.id,
            "metrics": {m.name: result.values(m.name).get(case.id) for m in METRICS},
            "run_id": runs[0].run_id,
            "status": runs[0].status,
            "stop_reason": runs[0].stop_reason,
        }
        if len(runs) > 1:
            row["runs"] = [{"run_id": r.run_id, "status": r.status, "metrics": dict(r.metrics)} for r in runs]
        return row


def passed(run: CaseRun) -> bool:
    """Whether a run did all that its case asks for: read all, cited validly, said the points, declared the gaps."""
    wanted = ("all_read", "answer_points", "citations_valid", "gap_recall", "steps_kept")
    values = [run.metrics.get(name) for name in wanted]
    return all(v is None or v >= 1 for v in values) and run.metrics.get("overclaimed") in (None, 0.0)


def variants(modes: Sequence[str], models: Sequence[str]) -> tuple[Variant, ...]:
    """Every mode with every model; the model is part of the name where there are several."""
    made = [
        Variant(name=mode if len(models) == 1 else f"{mode} {model}", mode=mode, model=model)
        for model in models
        for mode in modes
    ]
    if len({v.name for v in made}) < len(made):
        raise UsageError("a mode or model is named twice: name each once")
    return tuple(made)


def observe(
    answer: Answer,
    events: Sequence[Mapping[str, Any]],
    corpus: Corpus,
    *,
    case: Case | None = None,
    budget: Budget | None = None,
    principal: Principal = OWNER,
) -> Observation:
    """A run beside its case: what it read, as text, and what it should have read."""
    reads = stretches(tuple(events))
    patterns = tuple(
        (corpus.resolve(document, principal=principal), pattern)
        for document, many in (case.evidence.items() if case is not None else ())
        for pattern in many
    )
    return Observation(
        answer=answer,
        case=case,
        reads=reads,
        needs=needs(case, corpus, principal=principal) if case is not None else (),
        shown=_shown(reads, corpus, {document for document, _ in patterns}, principal=principal),
        patterns=patterns,
        budget=budget,
    )


def _shown(
    reads: Sequence[Stretch], corpus: Corpus, documents: set[str], *, principal: Principal
) -> dict[str, tuple[str, ...]]:
    texts: dict[str, tuple[str, ...]] = {}
    for document in documents:
        spans = sorted((s.start, s.end) for s in reads if s.document == document)
        if not spans:
            continue
        joined = [spans[0]]
        for start, end in spans[1:]:
            if start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        text = corpus.document(document, principal=principal).text
        texts[document] = tuple(" ".join(text[start:end].split()) for start, end in joined)
    return texts


def evaluate_sync(
    config: Config,
    cases: Sequence[Case],
    *,
    modes: Sequence[str] = ("auto",),
    models: Sequence[str] = (),
    repeat: int = 1,
    max_dollars: float | None = None,
    concurrency: int = CONCURRENCY,
    fresh: bool = False,
    judge: bool = False,
    opened: Mapping[str, OpenedModel] | None = None,
    emit: Emit = nowhere,
) -> Evaluation:
    """`evaluate` for callers without an event loop."""
    return asyncio.run(
        evaluate(
            config,
            cases,
            modes=modes,
            models=models,
            repeat=repeat,
            max_dollars=max_dollars,
            concurrency=concurrency,
            fresh=fresh,
            judge=judge,
            opened=opened,
            emit=emit,
        )
    )


async def evaluate(
    config: Config,
    cases: Sequence[Case],
    *,
    modes: Sequence[str] = ("auto",),
    models: Sequence[str] = (),
    repeat: int = 1,
    max_dollars: float | None = None,
    concurrency: int = CONCURRENCY,
    fresh: bool = False,
    judge: bool = False,
    opened: Mapping[str, OpenedModel] | None = None,
    emit: Emit = nowhere,
) -> Evaluation:
    """Answers every case in every mode with every model (default: the configured one), and scores the runs.

    Before anything is spent, names are checked against the corpus and prices against the cap: UsageError or
    ConfigError. `max_dollars` caps all questions together; what it does not reach is in `skipped`. Each run is
    recorded. With `judge`, the small model is asked too whether each answer point is covered. Of an evaluation that
    was stopped, the finished runs are taken over unless `fresh`. `opened` gives models by name instead of opening
    them (tests).
    """
    if repeat < 1 or concurrency < 1:
        raise UsageError("repeat and concurrency are at least 1")
    if max_dollars is not None and not max_dollars >= 0:
        raise UsageError(f"max_dollars is {max_dollars!r}: give a number from 0")
    _needs_library()
    columns = variants(modes, models or (config.model.name,))
    corpus = await asyncio.to_thread(Corpus.open, config)
    try:
        wrong = await asyncio.to_thread(problems, cases, corpus, principal=OWNER)
        if wrong:
            more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
            raise UsageError("; ".join(wrong[:3]) + more)
        ways = [_Way(column, config, corpus, opened, judge=judge) for column in columns]
        for way in ways:
            way.check(max_dollars)
        journal = _Journal(config, cases, columns, repeat=repeat, fresh=fresh, judge=judge)
        purse = _Purse(max_dollars)
        purse.spend(math.fsum(run.metrics.get("dollars") or 0.0 for run in journal.finished.values()))
        total, done = len(columns) * len(cases) * repeat, len(journal.finished)
        emit(Progress(done=done, total=total, what="evaluating"))

        def finished() -> None:
            nonlocal done
            done += 1
            emit(Progress(done=done, total=total, what="evaluating"))

        results: list[VariantResult] = []
        skipped: list[tuple[str, str]] = []
        for way in ways:
            runs, left = await way.run(
                cases, repeat=repeat, purse=purse, journal=journal, concurrency=concurrency, finished=finished
            )
            results.append(VariantResult(variant=way.variant, runs=runs))
            skipped += [(way.variant.name, case) for case in left]
        found = {case.id: needs(case, corpus, principal=OWNER) for case in cases}
        if not skipped:
            journal.close()
        return Evaluation(
            cases=tuple(cases),
            results=tuple(results),
            repeat=repeat,
            skipped=tuple(skipped),
            dollars=math.fsum(r.metrics.get("dollars") or 0.0 for result in results for r in result.runs),
            needs=found,
        )
    finally:
        corpus.close()


def _needs_library() -> None:
    try:
        import pydantic_evals  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as problem:
        raise ConfigError(
            "evaluating needs a package that is not installed: pip install 'citehound[eval]'"
        ) from problem


@dataclass(frozen=True, kw_only=True)
class _Job:
    case: Case
    number: int


class _Way:
    """One variant at work."""

    def __init__(
        self,
        variant: Variant,
        config: Config,
        corpus: Corpus,
        opened: Mapping[str, OpenedModel] | None,
        *,
        judge: bool,
    ) -> None:
        self.variant = variant
        self._config = replace(config, model=replace(config.model, name=variant.model))
        self._corpus = corpus
        given = (opened or {}).get(variant.model)
        self._model = given or open_model(self._config.model, corpus.lexicon(principal=OWNER))
        self._assistant = Assistant(self._config, corpus=corpus, model=self._model)
        self._small: OpenedModel | None = None
        if judge:
            if self._model.name == OFFLINE:
                raise UsageError("--judge needs a model, and 'offline' is none: name one with --models")
            self._small = self._model if self._config.model.small is None else open_small(self._config.model)
        limits = self._config.budget
        self._budget = Budget(
            max_steps=limits.max_steps, max_dollars=limits.max_dollars, max_seconds=limits.max_seconds
        )

    def check(self, max_dollars: float | None) -> None:
        """Raises ConfigError when a cap could not be kept."""
        require_price(self._model, self._budget)
        require_price(self._model, Budget(max_dollars=max_dollars))

    async def run(
        self,
        cases: Sequence[Case],
        *,
        repeat: int,
        purse: _Purse,
        journal: _Journal,
        concurrency: int,
        finished: Any,
    ) -> tuple[tuple[CaseRun, ...], tuple[str, ...]]:
        """The runs in the order of the cases, and the ids of the cases that the purse did not reach."""
        from pydantic_evals import Case as PydanticCase
        from pydantic_evals import Dataset
        from pydantic_evals.evaluators import Evaluator, EvaluatorContext

        @dataclass(repr=False)
        class Scores(Evaluator[_Job, CaseRun | None, None]):
            def evaluate(self, ctx: EvaluatorContext[_Job, CaseRun | None, None]) -> dict[str, float]:
                made = ctx.output
                return {k: v for k, v in made.metrics.items() if v is not None} if made is not None else {}

        taken = {(run.case, run.number): run for run in journal.finished.values() if run.variant == self.variant.name}
        jobs = [_Job(case=case, number=n) for case in cases for n in range(1, repeat + 1)]
        open_jobs = [job for job in jobs if (job.case.id, job.number) not in taken]
        left: list[str] = []

        async def answer(job: _Job) -> CaseRun | None:
            most = purse.take(self._budget.max_dollars, free=self._model.free)
            if most is None:
                left.append(job.case.id)
                return None
            made, spent = await self._answer(job, most)
            purse.give_back(most, spent=spent)
            await asyncio.to_thread(journal.add, made)
            finished()
            return made

        if open_jobs:
            dataset: Dataset[_Job, CaseRun | None, None] = Dataset(
                name=self.variant.name,
                cases=[PydanticCase(name=f"{job.case.id} #{job.number}", inputs=job) for job in open_jobs],
                evaluators=[Scores()],
            )
            report = await dataset.evaluate(answer, max_concurrency=concurrency, progress=False)
            if report.failures:
                failure = report.failures[0]
                raise CitehoundError(f"case {failure.name}: {failure.error_message}")
            for row in report.cases:
                if row.output is not None:
                    taken[row.output.case, row.output.number] = row.output
        runs = tuple(taken[key] for job in jobs if (key := (job.case.id, job.number)) in taken)
        return runs, tuple(dict.fromkeys(left))

    async def _answer(self, job: _Job, most: float) -> tuple[CaseRun, float]:
        """The scored run, and the dollars that it and its judgement took."""
        events: list[Event] = []
        made = await self._assistant.ask(
            job.case.question, mode=self.variant.mode, max_dollars=most, emit=events.append
        )
        budget = replace(self._budget, max_dollars=None if math.isinf(most) else most)
        seen = await asyncio.to_thread(
            observe,
            made,
            [event.to_dict() for event in events if event.type == "read"],
            self._corpus,
            case=job.case,
            budget=budget,
        )
        spent = made.usage.dollars or 0.0
        if self._small is not None:
            meter = Meter(Budget(max_steps=None, max_dollars=None if math.isinf(most) else most - spent))
            seen = replace(seen, judged=await self._judged(made, job.case, meter))
            spent += meter.spent().dollars + meter.spent().reserved
        run = CaseRun(
            case=job.case.id,
            variant=self.variant.name,
            number=job.number,
            run_id=made.run_id,
            status=made.status,
            stop_reason=made.stop_reason,
            metrics=score(seen),
        )
        return run, spent

    async def _judged(self, answer: Answer, case: Case, meter: Meter) -> float | None:
        """Share of the answer points that the small model finds in the answer; doubt counts as not covered."""
        points = counted_points(case)
        if not points or self._small is None:
            return None
        rules = RulesJudge(self._corpus.lexicon(principal=OWNER), self._corpus.sources)
        judge = ModelJudge(self._small, meter=meter, rules=rules, sources=self._corpus.sources)
        opinions = await asyncio.gather(*(judge.support(point, [answer_text(answer)]) for point in points))
        return sum(opinion.verdict == "supported" for opinion in opinions) / len(points)


class _Purse:
    """The dollars of all questions: each takes its cap before it starts and gives back what it did not need."""

    def __init__(self, dollars: float | None) -> None:
        self._left = math.inf if dollars is None else dollars

    def spend(self, dollars: float) -> None:
        """What an evaluation that was stopped had spent already."""
        self._left = max(0.0, self._left - dollars)

    def take(self, most: float | None, *, free: bool) -> float | None:
        """The cap of one question, or None when nothing is left."""
        wanted = math.inf if most is None else most
        if free or math.isinf(self._left):
            return wanted
        given = min(wanted, self._left)
        if given <= 0:
            return None
        self._left -= given
        return given

    def give_back(self, taken: float, *, spent: float) -> None:
        if not math.isinf(self._left) and not math.isinf(taken):
            self._left += max(0.0, taken - spent)


class _Journal:
    """Finished runs of an evaluation on disk, so that a stopped one goes on. One file per set of cases and variants."""

    def __init__(
        self,
        config: Config,
        cases: Sequence[Case],
        columns: Sequence[Variant],
        *,
        repeat: int,
        fresh: bool,
        judge: bool,
    ) -> None:
        spec = {
            "cases": [case.to_dict() for case in cases],
            "variants": [asdict(column) for column in columns],
            "repeat": repeat,
            "budget": asdict(config.budget),
            "judge": judge,
            "metrics": sorted(BY_NAME),
        }
        mark = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
        self._path = config.state / "evals" / f"{mark}.jsonl"
        private_folder(self._path.parent)
        self.finished: dict[tuple[str, str, int], CaseRun] = {}
        self._lock = threading.Lock()
        if fresh:
            self.close()
        elif self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                try:
                    run = CaseRun(**cast("dict[str, Any]", json.loads(line)))
                except (ValueError, TypeError):
                    continue  # the line that was being written when it was stopped
                self.finished[run.variant, run.case, run.number] = run

    def add(self, run: CaseRun) -> None:
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(for_log_json(asdict(run)) + "\n")

    def close(self) -> None:
        self._path.unlink(missing_ok=True)


def merged(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Evaluations of the same variants on different cases (several corpora) as one."""
    if not evaluations:
        raise UsageError("there is nothing to merge")
    first = evaluations[0]
    columns = [result.variant for result in first.results]
    if any([result.variant for result in other.results] != columns for other in evaluations):
        raise UsageError("only evaluations of the same modes and models can be merged")
    return Evaluation(
        cases=tuple(case for one in evaluations for case in one.cases),
        results=tuple(
            VariantResult(variant=column, runs=tuple(run for one in evaluations for run in one.results[at].runs))
            for at, column in enumerate(columns)
        ),
        repeat=first.repeat,
        skipped=tuple(pair for one in evaluations for pair in one.skipped),
        dollars=math.fsum(one.dollars for one in evaluations),
        needs={name: found for one in evaluations for name, found in one.needs.items()},
    )


# Runs in production -------------------------------------------------------------------------------------------------


def recorded(config: Config, *, since: float | None = None, limit: int = 10_000) -> Evaluation:
    """The metrics that need no gold over recorded runs, by mode. `since`: seconds since the epoch; None means all."""
    store = RunStore(config.state / "runs.sqlite")
    runs: dict[str, list[CaseRun]] = {}
    cases: list[Case] = []
    for line in store.list(limit, principal=OWNER) if store.path.exists() else ():
        if since is not None and line.created < since:
            break
        record = store.get(line.run_id, principal=OWNER)
        values = score(Observation(answer=record.answer, reads=stretches(record.events)))
        cases.append(Case(id=line.run_id, question=line.question))
        runs.setdefault(line.mode, []).append(
            CaseRun(
                case=line.run_id,
                variant=line.mode,
                number=1,
                run_id=line.run_id,
                status=line.status,
                stop_reason=line.stop_reason,
                metrics={m.name: None if m.gold else values[m.name] for m in METRICS},
            )
        )
    results = tuple(
        VariantResult(variant=Variant(name=mode, mode=mode, model="as recorded"), runs=tuple(found))
        for mode, found in sorted(runs.items())
    )
    spent = math.fsum(run.metrics.get("dollars") or 0.0 for found in runs.values() for run in found)
    return Evaluation(cases=tuple(cases), results=results, dollars=spent)

"""`ask`: what callers get, whatever happens."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import citehound
from citehound import config
from citehound.access import OWNER
from citehound.assistant import NO_DOCUMENT, Assistant
from citehound.budget import Price
from citehound.config import Config, ModelConfig
from citehound.corpus import Corpus
from citehound.drafts import Draft, DraftGap
from citehound.errors import ConfigError, UsageError
from citehound.events import Event
from citehound.models import OFFLINE_WARNING, OpenedModel
from citehound.models.scripted import ScriptedModel, ScriptedRequest, Turn, call
from citehound.runs import RunStore
from small import GOOD, WITHIN_24, opened, write_corpus

QUESTION = "Within how many hours must incidents be reported?"
SEARCH = call("search_rules", {"query": "incidents"})
READ = call("read_document", {"document": "rules/security"})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


def assistant(corpus: Corpus, turns: list[Turn] | ScriptedModel, **options: Any) -> Assistant:
    model = turns if isinstance(turns, ScriptedModel) else ScriptedModel(turns)
    return Assistant(corpus.config, corpus, model, **options)


def store(of: Config) -> RunStore:
    return RunStore(of.state / "runs.sqlite")


def test_an_answer_has_everything_a_caller_needs(corpus: Corpus) -> None:
    answer = assistant(corpus, [SEARCH, READ, GOOD]).ask_sync(f"  {QUESTION}\n", mode="agent")
    assert answer.question == QUESTION
    assert (answer.requested_mode, answer.mode, answer.status) == ("agent", "agent", "complete")
    assert answer.stop_reason == "answered"
    assert "[rules/security §7]" in answer.text
    assert (answer.usage.steps, answer.usage.searches, answer.usage.reads) == (3, 1, 1)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (300, 150)
    assert answer.usage.dollars == 0.0
    assert answer.warnings == ()
    assert json.loads(json.dumps(answer.to_dict()))["claims"][0]["citations"][0]["start"] is not None


def test_a_run_is_recorded_with_its_events(corpus: Corpus) -> None:
    events: list[Event] = []
    answer = assistant(corpus, [SEARCH, READ, GOOD], emit=events.append).ask_sync(QUESTION, mode="agent")
    record = store(corpus.config).get(answer.run_id, principal=OWNER)
    assert record.answer == answer
    types = [e.type for e in events]
    assert types == [
        "run_started",
        "step_started",
        "tool_called",
        "hits",
        "step_started",
        "tool_called",
        "read",
        "step_started",
        "claim",
        "verdict",
        "answer",
    ]
    assert [e["type"] for e in record.events] == types[:-1], "the answer is stored by itself"


def test_a_run_may_stay_unrecorded(corpus: Corpus) -> None:
    before = len(store(corpus.config).list(limit=1000, principal=OWNER))
    assistant(corpus, [SEARCH, READ, GOOD], record=False).ask_sync(QUESTION, mode="agent")
    assert len(store(corpus.config).list(limit=1000, principal=OWNER)) == before


def test_a_store_that_cannot_be_written_costs_a_warning_only(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(RunStore, "save", full)
    answer = assistant(corpus, [SEARCH, READ, GOOD]).ask_sync(QUESTION, mode="agent")
    assert answer.status == "complete"
    assert answer.warnings == ("the run was not recorded: disk full",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "fast"}, "no mode 'fast': use one of 'auto', 'direct', 'single', 'hops', 'agent', 'research'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"max_hops": 0}, "max_hops is 0"),
        ({"max_dollars": -1.0}, "max_dollars is -1.0"),
        ({"max_seconds": math.nan}, "max_seconds is nan"),
    ],
)
def test_wrong_usage_is_one_line_and_spends_nothing(corpus: Corpus, options: dict[str, Any], said: str) -> None:
    model = ScriptedModel([GOOD])
    with pytest.raises(UsageError) as wrong:
        assistant(corpus, model).ask_sync(QUESTION, **options)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert model.requests == []


@pytest.mark.parametrize("question", ["", "  \n", "x" * 8001])
def test_a_question_must_be_one(corpus: Corpus, question: str) -> None:
    with pytest.raises(UsageError):
        assistant(corpus, [GOOD]).ask_sync(question)


def test_a_model_that_fails_raises_nothing(corpus: Corpus) -> None:
    answer = assistant(corpus, [SEARCH, READ, RuntimeError("boom")]).ask_sync(QUESTION, mode="agent")
    assert (answer.status, answer.stop_reason) == ("partial", "model_error")
    assert WITHIN_24 in answer.text
    assert "boom" in answer.warnings[0]


def test_a_model_that_fails_at_once_has_failed(corpus: Corpus) -> None:
    answer = assistant(corpus, [RuntimeError("boom")]).ask_sync(QUESTION, mode="agent")
    assert (answer.status, answer.stop_reason, answer.text) == ("failed", "model_error", "")


def test_limits_of_the_call_win_over_the_configuration(corpus: Corpus) -> None:
    answer = assistant(corpus, [SEARCH, READ, GOOD]).ask_sync(QUESTION, mode="agent", max_steps=3)
    assert (answer.stop_reason, answer.status) == ("steps", "partial")
    assert [c.status for c in answer.claims] == ["verified"]


def test_a_capped_run_of_a_model_without_a_price_is_refused(corpus: Corpus) -> None:
    model = OpenedModel(model=ScriptedModel([SEARCH, READ, GOOD]), name="mine:big", price=None)
    with pytest.raises(ConfigError, match=r"\[model.price\]"):
        Assistant(corpus.config, corpus, model).ask_sync(QUESTION, mode="agent")
    answer = Assistant(corpus.config, corpus, model).ask_sync(QUESTION, mode="agent", max_dollars=math.inf)
    assert answer.status == "complete"
    assert answer.usage.dollars is None


def test_dollars_are_what_was_spent(corpus: Corpus) -> None:
    price = Price(input=10.0, output=100.0)
    model = OpenedModel(model=ScriptedModel([SEARCH, READ, GOOD]), name="mine:big", price=price)
    answer = Assistant(corpus.config, corpus, model).ask_sync(QUESTION, mode="agent", max_dollars=5.0)
    assert answer.usage.dollars == pytest.approx(3 * (100 * 10 + 50 * 100) / 1_000_000)


def test_an_answer_without_documents_is_direct(corpus: Corpus) -> None:
    answer = assistant(corpus, [Draft(text="48"), Draft(text="48")]).ask_sync("What is 12 times 4?", mode="agent")
    assert (answer.status, answer.claims) == ("direct", ())
    assert answer.text == f"48\n\n{NO_DOCUMENT}"


def test_a_searched_gap_is_not_found(corpus: Corpus) -> None:
    gap = Draft(missing=(DraftGap(what="deadline for walruses"),))
    turns: list[Turn] = [call("search_rules", {"query": "deadline walruses"}), gap]
    answer = assistant(corpus, turns).ask_sync("What is the deadline for walruses?", mode="agent")
    assert answer.status == "not_found"


def test_a_cancelled_run_is_recorded_and_the_cancellation_goes_on(corpus: Corpus) -> None:
    def cancel(request: ScriptedRequest) -> Draft:
        task = asyncio.current_task()
        assert task is not None
        running[0].cancel()
        return GOOD

    running: list[asyncio.Task[Any]] = []

    async def main() -> None:
        running.append(asyncio.create_task(assistant(corpus, [SEARCH, READ, cancel]).ask(QUESTION, mode="agent")))
        with pytest.raises(asyncio.CancelledError):
            await running[0]

    before = {run.run_id for run in store(corpus.config).list(limit=1000, principal=OWNER)}
    asyncio.run(main())
    (run,) = [run for run in store(corpus.config).list(limit=1000, principal=OWNER) if run.run_id not in before]
    assert (run.status, run.stop_reason) == ("partial", "cancelled")
    assert WITHIN_24 in store(corpus.config).get(run.run_id, principal=OWNER).answer.text


def test_questions_may_run_side_by_side(corpus: Corpus) -> None:
    def one(number: int) -> Assistant:
        return assistant(corpus, [SEARCH, READ, GOOD] if number % 2 else [SEARCH, RuntimeError("boom")])

    async def main() -> list[str]:
        answers = await asyncio.gather(*(one(n).ask(QUESTION, mode="agent") for n in range(6)))
        return [a.status for a in answers]

    assert asyncio.run(main()) == ["partial", "complete"] * 3


def test_without_a_model_the_offline_one_answers_and_says_so(corpus: Corpus) -> None:
    answer = Assistant(corpus.config, corpus).ask_sync(QUESTION, mode="agent")
    assert answer.model == "offline"
    assert OFFLINE_WARNING in answer.warnings
    assert WITHIN_24 in [c.quote for claim in answer.claims for c in claim.citations]
    assert answer.usage.dollars == 0.0


def test_asking_without_an_index_builds_it_first(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    events: list[Event] = []
    with Assistant.open(path, model=ScriptedModel([SEARCH, READ, GOOD]), emit=events.append) as fresh:
        assert fresh.ask_sync(QUESTION, mode="agent").status == "complete"
    assert "progress" in [e.type for e in events]


def test_an_unknown_provider_is_a_configuration_error(corpus: Corpus) -> None:
    wrong = replace(corpus.config, model=ModelConfig(name="nowhere:big"))
    with pytest.raises(ConfigError, match="'nowhere:big'"):
        Assistant(wrong, corpus).ask_sync(QUESTION, mode="agent")


def test_public_names_are_there_and_cost_nothing_until_used() -> None:
    code = (
        "import sys, citehound; "
        "heavy = {'pydantic_ai', 'pydantic', 'tantivy', 'rich', 'docutils'} & set(sys.modules); "
        "assert not heavy, heavy; "
        "missing = [n for n in citehound.__all__ if getattr(citehound, n, None) is None]; "
        "assert not missing, missing"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert citehound.Assistant is Assistant
    assert citehound.Config is config.Config
    with pytest.raises(AttributeError, match="Nothing"):
        _ = citehound.Nothing  # type: ignore[attr-defined]

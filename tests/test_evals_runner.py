"""The runner: modes and models side by side, one cap for all, resumed after a stop, and every worse agent is caught."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

pytest.importorskip("pydantic_evals")

from citehound import config
from citehound.access import OWNER
from citehound.budget import FREE, Price
from citehound.config import BudgetConfig, Config
from citehound.corpus import Corpus
from citehound.errors import ConfigError, UsageError
from citehound.evals.cases import Case, load_cases
from citehound.evals.page import page
from citehound.evals.report import changes, comparison_lines, failures, parse_gates, table
from citehound.evals.runner import Evaluation, evaluate_sync, merged, recorded
from citehound.events import Event
from citehound.models import OpenedModel, open_model
from citehound.models.scripted import ScriptedModel, call
from citehound.runs import RunStore
from small import GOOD, write_corpus

CASES = (
    Case(
        id="one",
        question="Within how many hours must incidents be reported?",
        kind="single",
        must_read=("rules/security#7",),
        answer_points=("24 hours",),
        missing=(),
    ),
    Case(
        id="two",
        question="Does Alpha report incidents in time?",
        kind="compound",
        must_read=("rules/security", "deals/alpha"),
        answer_points=("24 hours", "72 hours"),
        missing=(),
    ),
)


@pytest.fixture
def home(tmp_path: Path) -> Config:
    read = config.load(write_corpus(tmp_path), env={})
    with Corpus.open(read, write=True) as corpus:
        corpus.sync()
    return read


def scripted(*turns: Any, price: Price | None = FREE, repeat: bool = True, usage: tuple[int, int] = (100, 50)) -> Any:
    """A model that reads the policy and quotes it, again and again."""
    script = turns or (GOOD,)
    return OpenedModel(model=ScriptedModel(script, repeat_last=repeat, usage=usage), name="scripted", price=price)


def reading(sent: Any) -> Any:
    """First reads, then answers; the same for every question, so that it may be asked any number of them."""
    return GOOD if len(sent.messages) > 2 else call("read_document", {"document": "rules/security"})


def evaluated(home: Config, **options: Any) -> Evaluation:
    return evaluate_sync(home, options.pop("cases", CASES), **{"modes": ("single", "agent"), **options})


def test_each_mode_has_the_means_of_its_cases(home: Config) -> None:
    done = evaluated(home, models=("m",), opened={"m": scripted(reading)})
    row = done.to_dict()
    assert list(row["modes"]) == ["single", "agent"]
    agent = row["modes"]["agent"]
    assert agent["metrics"]["must_read_recall"] == 0.75  # all of case one, half of case two
    assert agent["metrics"]["answer_points"] == 0.75
    assert agent["metrics"]["citations_valid"] == 1.0
    assert [c["id"] for c in agent["cases"]] == ["one", "two"]
    assert agent["cases"][0]["metrics"]["all_read"] == 1.0
    assert agent["cases"][1]["metrics"]["must_read_recall"] == 0.5
    assert agent["stop_reasons"] == {"answered": 2}
    assert json.loads(json.dumps(row)) == row


def test_every_run_is_recorded_under_its_id(home: Config) -> None:
    done = evaluated(home, models=("m",), opened={"m": scripted(reading)})
    store = RunStore(home.state / "runs.sqlite")
    for result in done.results:
        for run in result.runs:
            record = store.get(run.run_id, principal=OWNER)
            assert record.answer.mode == result.variant.mode
            assert record.answer.question == next(c.question for c in CASES if c.id == run.case)


def test_models_side_by_side_are_named_with_their_mode(home: Config) -> None:
    done = evaluated(home, modes=("agent",), models=("a", "b"), opened={"a": scripted(reading), "b": scripted(reading)})
    assert [r.variant.name for r in done.results] == ["agent a", "agent b"]
    with pytest.raises(UsageError, match="named twice"):
        evaluated(home, modes=("agent", "agent"))


def test_an_unknown_must_read_is_refused_before_anything_is_spent(home: Config) -> None:
    model = scripted(reading)
    wrong = replace(CASES[0], must_read=("rules/securty",))
    with pytest.raises(UsageError, match="rules/security"):
        evaluated(home, cases=(wrong,), models=("m",), opened={"m": model})
    assert cast(ScriptedModel, model.model).requests == []
    assert RunStore(home.state / "runs.sqlite").list(principal=OWNER) == ()


def test_an_unknown_price_under_a_cap_is_refused(home: Config) -> None:
    model = scripted(reading, price=None)
    free = replace(home, budget=BudgetConfig(max_dollars=None))
    with pytest.raises(ConfigError, match="price"):
        evaluated(free, max_dollars=1.0, models=("m",), opened={"m": model})


def test_the_cap_of_the_whole_evaluation_is_kept_and_what_it_does_not_reach_is_listed(home: Config) -> None:
    cases = tuple(replace(CASES[0], id=f"c{n}") for n in range(12))
    price = Price(input=100.0, output=100.0)  # a run of 150 tokens twice costs 3 cents
    done = evaluated(
        home,
        cases=cases,
        modes=("agent",),
        models=("m",),
        opened={"m": scripted(reading, price=price)},
        max_dollars=2.0,
    )
    assert done.dollars <= 2.0
    asked = [run.case for run in done.results[0].runs]
    left = [case for _, case in done.skipped]
    assert sorted(asked + left) == sorted(c.id for c in cases)


def test_nothing_to_spend_reaches_no_case(home: Config) -> None:
    model = scripted(reading, price=Price(input=1.0, output=1.0))
    done = evaluated(home, modes=("agent",), models=("m",), opened={"m": model}, max_dollars=0.0)
    assert done.skipped == (("agent", "one"), ("agent", "two"))
    assert cast(ScriptedModel, model.model).requests == []
    assert failures(parse_gates("answered=0", ["agent"]), done)


def test_a_stopped_evaluation_goes_on_where_it_stopped(home: Config) -> None:
    class Stop(Exception):
        pass

    def stop(event: Event) -> None:
        if event.to_dict().get("done") == 2:
            raise Stop

    with pytest.raises(BaseException):  # noqa: B017 - the runner wraps what its progress raises
        evaluated(home, models=("m",), opened={"m": scripted(reading)}, concurrency=1, emit=stop)
    before = {line.run_id for line in RunStore(home.state / "runs.sqlite").list(principal=OWNER)}
    assert before
    done = evaluated(home, models=("m",), opened={"m": scripted(reading)}, concurrency=1)
    runs = {run.run_id for result in done.results for run in result.runs}
    assert len(runs) == 4
    assert len(before & runs) == 2
    again = evaluated(home, models=("m",), opened={"m": scripted(reading)})
    assert not runs & {run.run_id for result in again.results for run in result.runs}


def test_repetitions_give_a_spread_and_pass_hat(home: Config) -> None:
    flaky = iter((True, False, True, True))

    def turn(sent: Any) -> Any:
        if len(sent.messages) > 2:
            return GOOD
        document = "rules/security" if next(flaky) else "rules/travel"
        return call("read_document", {"document": document})

    done = evaluated(
        home,
        cases=CASES[:1],
        modes=("agent",),
        models=("m",),
        opened={"m": scripted(turn)},
        repeat=4,
        concurrency=1,
    )
    row = done.to_dict()["modes"]["agent"]
    assert row["metrics"]["all_read"] == 0.75
    assert row["spread"]["all_read"] == pytest.approx(0.5)
    assert row["pass^k"] == {"1": 0.75, "2": 0.5, "3": 0.25, "4": 0.0}
    assert len(row["cases"][0]["runs"]) == 4
    assert any(line.startswith("pass^4") for line in table(done))


def test_the_offline_model_gives_the_same_figures_each_time(home: Config) -> None:
    def figures() -> Any:
        row = evaluated(home, concurrency=4).to_dict()
        for mode in row["modes"].values():
            mode["metrics"].pop("seconds")
            mode["intervals"].pop("seconds")
            for case in mode["cases"]:
                case.pop("run_id")
                case["metrics"].pop("seconds")
        return row

    assert figures() == figures()


# reports


def test_the_table_fits_a_hundred_columns_with_many_variants(home: Config) -> None:
    models = tuple(f"provider:a-model-with-a-long-name-{n}" for n in range(4))
    done = evaluated(home, models=models, opened={m: scripted(reading) for m in models})
    lines = table(done)
    assert max(map(len, lines)) <= 100
    heads = [line.split("  ") for line in lines if line.startswith("   ")]
    names = [name.strip() for head in heads for name in head if name.strip()]
    assert len(names) == len(set(names)) == 8, "names that are shortened stay different"
    assert sum(line.startswith("must read") for line in lines) == len(heads) > 1


def test_two_modes_are_compared_and_small_differences_are_noise(home: Config) -> None:
    done = evaluated(home, models=("m",), opened={"m": scripted(reading)})
    lines = comparison_lines(done)
    assert lines[0] == "agent against single (paired permutation test):"
    assert all("noise" in line or "a difference" in line for line in lines[1:])
    assert comparison_lines(replace(done, results=done.results[:1])) == []


def test_a_baseline_shows_what_changed_case_by_case(home: Config) -> None:
    before = evaluated(home, modes=("agent",), models=("m",), opened={"m": scripted(reading)}).to_dict()
    lazy = evaluated(home, modes=("agent",), models=("m",), opened={"m": scripted(GOOD)}).to_dict()
    found = {(c.case, c.metric): c for c in changes(before, lazy)}
    assert found["one", "must_read_recall"].worse is True
    assert found["one", "must_read_recall"].before == 1.0
    assert found[None, "must_read_recall"].after == 0.0
    assert found["one", "citations_valid"].worse is True
    assert changes(before, before) == ()
    assert {c.worse for c in changes(lazy, before) if c.metric == "must_read_recall"} == {False}


def test_gates_hold_for_every_mode_or_for_the_named_one(home: Config) -> None:
    done = evaluated(home, models=("m",), opened={"m": scripted(reading)})
    names = ["single", "agent"]
    assert failures(parse_gates("agent:must_read_recall=0.75, overclaimed=0", names), done) == ()
    (line,) = failures(parse_gates("agent:must_read_recall=0.8", names), done)
    assert line == "agent: must_read_recall is 0.750, under 0.8"
    assert "has no value" in failures(parse_gates("agent:gap_recall=1", names), done)[0]
    for wrong, said in (
        ("must_red_recall=1", "did you mean 'must_read_recall'?"),
        ("must_read_recall", "must_read_recall"),
        ("hops:all_read=1", "there is no 'hops'"),
        ("all_read=x", "is no number"),
    ):
        with pytest.raises(UsageError, match="--fail-under") as caught:
            parse_gates(wrong, names)
        assert said in str(caught.value)


def test_the_page_needs_no_network_and_shows_hostile_text_as_text(home: Config) -> None:
    hostile = replace(CASES[0], question="</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e?")
    done = evaluated(home, cases=(hostile,), modes=("agent",), models=("m",), opened={"m": scripted(reading)})
    html = page(done, partial(RunStore(home.state / "runs.sqlite").get, principal=OWNER), title="Test")
    assert "</script><script>alert" not in html
    assert "<img src=x" not in html
    assert "\u202e" not in html
    assert "http://" not in html.replace("http://www.w3.org", "") and 'src="' not in html
    assert html.count("</script>") == 3
    assert "default-src 'none'" in html
    again = page(done, partial(RunStore(home.state / "runs.sqlite").get, principal=OWNER), title="Test")
    assert again == html


def test_evaluations_of_several_corpora_are_one(home: Config) -> None:
    one = evaluated(home, cases=CASES[:1], models=("m",), opened={"m": scripted(reading)})
    two = evaluated(home, cases=CASES[1:], models=("m",), opened={"m": scripted(reading)})
    both = merged([one, two]).to_dict()
    assert [c["id"] for c in both["modes"]["agent"]["cases"]] == ["one", "two"]
    assert both["modes"]["agent"]["metrics"]["must_read_recall"] == 0.75
    with pytest.raises(UsageError, match="same modes"):
        merged([one, replace(two, results=two.results[:1])])


def test_recorded_runs_are_measured_without_gold(home: Config) -> None:
    assert recorded(home).results == ()
    evaluated(home, models=("m",), opened={"m": scripted(reading)})
    row = recorded(home).to_dict()["modes"]
    assert set(row) == {"agent", "single"}
    assert row["agent"]["metrics"]["citations_valid"] == 1.0
    assert row["agent"]["metrics"]["must_read_recall"] is None
    assert recorded(home, since=9e12).results == ()


# worse agents


CHOSEN = {"bank-s1", "bank-s4", "bank-c1", "bank-c5", "bank-u1", "bank-u2"}


class Worse(WrapperModel):
    """The offline model, with what `spoil` does to each of its calls."""

    def __init__(self, wrapped: Any, spoil: Callable[[ToolCallPart], ToolCallPart]) -> None:
        super().__init__(wrapped)
        self._spoil = spoil

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        response = await self.wrapped.request(messages, model_settings, model_request_parameters)
        parts = [self._spoil(p) if isinstance(p, ToolCallPart) else p for p in response.parts]
        return replace(response, parts=parts)


def shuffled(part: ToolCallPart) -> ToolCallPart:
    """Terms of searches become letters in disorder."""
    arguments = part.args_as_dict()
    if not part.tool_name.startswith("search_"):
        return part
    letters = list(str(arguments.get("query", "")))
    random.Random(7).shuffle(letters)
    return replace(part, args={**arguments, "query": "".join(letters) or "x"})


def swapped(part: ToolCallPart) -> ToolCallPart:
    """Citations name each other's documents."""
    draft = part.args_as_dict()
    if part.tool_name != "final_answer":
        return part
    cited = [c for claim in draft["claims"] for c in claim["citations"]]
    names = [c["document"] for c in cited]
    others = sorted(set(names))
    for citation, name in zip(cited, names, strict=True):
        citation["document"] = others[(others.index(name) + 1) % len(others)] if len(others) > 1 else "wiki/home"
    return replace(part, args=draft)


def hiding(part: ToolCallPart) -> ToolCallPart:
    """Gaps are not declared."""
    if part.tool_name != "final_answer":
        return part
    return replace(part, args={**part.args_as_dict(), "missing": []})


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, bank_root: Path) -> Iterator[tuple[Config, tuple[Case, ...]]]:
    folder = tmp_path_factory.mktemp("bank")
    read = replace(config.load(bank_root / "citehound.toml", env={}), root=folder)
    sources = tuple(replace(s, path=(bank_root / s.path).resolve()) for s in read.sources)
    read = replace(read, sources=sources)
    with Corpus.open(read, write=True) as corpus:
        corpus.sync()
    cases = tuple(c for c in load_cases(bank_root / "cases.jsonl") if c.id in CHOSEN)
    yield read, cases


def figures_of(bank: tuple[Config, tuple[Case, ...]], spoil: Callable[[ToolCallPart], ToolCallPart]) -> dict[str, Any]:
    read, cases = bank
    with Corpus.open(read) as corpus:
        offline = open_model(read.model, corpus.lexicon(principal=OWNER))
        model = replace(offline, model=Worse(offline.model, spoil), name=f"worse-{spoil.__name__}")
        done = evaluate_sync(read, cases, modes=("agent",), models=("m",), opened={"m": model}, fresh=True)
    return done.to_dict()["modes"]["agent"]["metrics"]


@pytest.fixture(scope="module")
def honest(bank: tuple[Config, tuple[Case, ...]]) -> dict[str, Any]:
    return figures_of(bank, lambda part: part)


@pytest.mark.parametrize(
    ("spoil", "metric"),
    [(shuffled, "must_read_recall"), (swapped, "citations_valid"), (hiding, "gap_recall")],
)
def test_a_worse_agent_is_caught(
    bank: tuple[Config, tuple[Case, ...]],
    honest: dict[str, Any],
    spoil: Callable[[ToolCallPart], ToolCallPart],
    metric: str,
) -> None:
    worse = figures_of(bank, spoil)
    assert worse[metric] is None or worse[metric] <= honest[metric] - 0.3

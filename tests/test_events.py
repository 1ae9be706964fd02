"""The one event stream: its JSON form, its order, and that the docs list exactly what there is."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from citehound import events
from citehound.budget import Price
from citehound.cli.output import JsonLines, Steps
from citehound.corpus import Corpus
from citehound.events import ClaimDrafted, Compacted, Event, Hits, Retry, StepStarted
from citehound.models.scripted import call
from small import GOOD, WITHIN_24, opened, quoting, run_agent

DOCS = Path(__file__).resolve().parents[1] / "docs" / "events.md"
SEARCH = call("search_rules", {"query": "incidents"})
READ = call("read_document", {"document": "rules/security"})


def kinds(base: type[Event] = Event) -> Iterator[type[Event]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


def happened(corpus: Corpus, turns: list[object]) -> list[Event]:
    found: list[Event] = []
    run_agent(corpus, turns, emit=found.append)  # pyright: ignore[reportArgumentType]
    return found


def test_the_docs_list_every_event_with_its_fields_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+` ?)+)\|", DOCS.read_text("utf-8"), re.MULTILINE)
    documented = {name: re.findall(r"`(\w+)`", fields) for name, fields in rows}
    defined = {
        kind.type: [f.name for f in dataclasses.fields(kind)] for kind in kinds() if kind.__module__ == events.__name__
    }
    assert documented == defined


def test_types_are_unique() -> None:
    types = [kind.type for kind in kinds()]
    assert len(types) == len(set(types))


def test_a_run_is_told_in_order(corpus: Corpus) -> None:
    types = [event.type for event in happened(corpus, [SEARCH, READ, GOOD])]
    assert types == [
        "step_started",
        "tool_called",
        "hits",
        "step_started",
        "tool_called",
        "read",
        "step_started",
        "claim",
    ]


def test_a_step_tells_what_the_run_has_spent_before_it(corpus: Corpus) -> None:
    found: list[Event] = []
    ran = run_agent(corpus, [SEARCH, READ, GOOD], price=Price(input=1.0, output=5.0), emit=found.append)
    steps = [e for e in found if isinstance(e, StepStarted)]
    assert steps[0].dollars == 0.0
    assert sorted(s.dollars or 0.0 for s in steps) == [s.dollars for s in steps]
    assert 0.0 < (steps[1].dollars or 0.0) < (steps[2].dollars or 0.0) <= ran.meter.spent().dollars
    assert sorted(s.seconds for s in steps) == [s.seconds for s in steps]


def test_claims_are_told_as_drafted_also_those_that_are_sent_back(corpus: Corpus) -> None:
    drafted = [e for e in happened(corpus, [SEARCH, GOOD, READ, GOOD]) if isinstance(e, ClaimDrafted)]
    assert [(e.draft, e.number, e.text, e.documents) for e in drafted] == [
        (1, 1, WITHIN_24, ("rules/security",)),
        (2, 1, WITHIN_24, ("rules/security",)),
    ]


def test_a_retry_says_why_and_how_long(corpus: Corpus) -> None:
    fault = ModelHTTPError(529, "m", {"error": {"type": "overloaded_error", "message": "Overloaded"}})
    (retry,) = [e for e in happened(corpus, [READ, fault, GOOD]) if isinstance(e, Retry)]
    assert (retry.step, retry.attempt, retry.wait) == (2, 1, 0.5)
    assert retry.reason == "the provider answered 529: Overloaded"


def test_every_event_has_a_json_form(corpus: Corpus) -> None:
    for event in happened(corpus, [SEARCH, READ, quoting("rules/security", "made up words here"), GOOD]):
        data = json.loads(json.dumps(event.to_dict()))
        assert data["type"] == event.type
        assert set(data) == {"type", *(f.name for f in dataclasses.fields(event))}


def test_each_search_is_shown_with_its_terms_on_stderr_only(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    show = Steps()
    show(Hits(step=1, source="rules", query="incident hours", filters={"supplier": "Alpha"}, returned=()))
    show(Retry(step=1, attempt=1, reason="the provider answered 529", wait=2.0))
    show(Compacted(step=2, results=3))
    said = capsys.readouterr()
    assert said.out == ""
    assert 'search rules [supplier=Alpha]: "incident hours"' in said.err
    assert "the provider answered 529; again in 2.0 s" in said.err
    assert "3 old results shortened" in said.err


def test_ndjson_is_one_line_an_event(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    show = JsonLines(to_stderr=False)
    told = happened(corpus, [SEARCH, READ, GOOD])
    for event in told:
        show(event)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["type"] for line in lines] == [event.type for event in told]

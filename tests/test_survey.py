"""A table with a row per document: which documents, what stands in the cells, and what the budget did not reach."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from citehound import config
from citehound.access import OWNER
from citehound.answers import Answer, Cell, Row
from citehound.assistant import Assistant
from citehound.budget import Price
from citehound.cli import output
from citehound.corpus import Corpus
from citehound.drafts import Draft, DraftCitation, DraftClaim, DraftGap
from citehound.errors import UsageError
from citehound.events import Event
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, ScriptedRequest, Turn
from citehound.rendering import render_survey
from citehound.runs import RunStore
from citehound.survey import AT_ONCE, asks_for_survey, survey_of
from small import opened

QUESTION = "Which contracts lack an incident deadline?"
TOML = """\
[[sources]]
name = "contracts"
path = "contracts"
filters = ["supplier", "kind"]
description = "What suppliers have agreed to."

[[sources]]
name = "rules"
path = "rules"
description = "What the bank requires."
"""
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
WITH = ("alpha", "gamma", "eta")
"""Contracts that have a deadline for incidents."""


def clause(name: str) -> str:
    return f"{name.title()} reports every security incident to the bank; the deadline is 48 hours from discovery."


def contract(name: str, *, says: str = "") -> str:
    head = f"---\nsupplier: {name.title()}\n---\n# Contract with {name.title()}\n\n## 1 Scope\n\n"
    return f"{head}{name.title()} runs the help desk of the bank.\n\n## 2 Duties\n\n{says or 'It keeps records.'}\n"


FILES = {
    **{f"contracts/{name}.md": contract(name, says=clause(name) if name in WITH else "") for name in NAMES},
    "contracts/old.md": "---\nsupplier: Alpha\nstatus: superseded\n---\n# Old contract\n\nNothing holds any more.\n",
    "rules/security.md": "# Security policy\n\n## 7 Incidents\n\nThe deadline for incidents is 24 hours.\n",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("deals"), FILES, toml=TOML) as corpus:
        yield corpus


FOLDERS = """\
[[sources]]
name = "north-office"
path = "north"
filters = ["kind"]
description = "North: 2 documents, among them Hosting"

[[sources]]
name = "south"
path = "south"
filters = ["kind"]
description = "South: 3 documents, among them Cleaning"

[[sources]]
name = "law"
path = "law"
description = "Law: 2 documents, among them Duties in contracts"
"""
PLACES = {
    "north/hosting.md": "---\nkind: contract\n---\n# Hosting\n\nThe bank may audit the provider.\n",
    "north/notes.md": "---\nkind: note\n---\n# Notes\n\nNothing yet.\n",
    "south/cleaning.md": "---\nkind: contract\n---\n# Cleaning\n\nThe bank has audit rights at any time.\n",
    "south/canteen.md": "---\nkind: contract\n---\n# Canteen\n\nMeals are served at noon.\n",
    "law/duties.md": "# Duties in contracts\n\nA contract is in writing.\n",
    "law/clauses.md": "# Clauses of contracts\n\nA clause is void if it is unfair.\n",
}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Which contracts mention audit rights?", {"north/hosting", "south/cleaning", "south/canteen"}),
        ("Which contracts in south mention audit rights?", {"south/cleaning", "south/canteen"}),
        ("Which contracts of the north office mention audit rights?", {"north/hosting"}),
    ],
)
def test_what_metadata_calls_the_things_goes_before_titles_and_a_named_source_before_others(
    tmp_path: Path, question: str, expected: set[str]
) -> None:
    with opened(tmp_path, PLACES, toml=FOLDERS) as places:
        answer = Assistant(places.config, places).ask_sync(question, mode="research")
        assert {row.document.replace("north-office/", "north/") for row in answer.rows} == expected
        assert {cell.column for row in answer.rows for cell in row.cells} == {"audit rights"}


@pytest.mark.parametrize("question", ["Which clause allows an audit?", "What clause lets the bank audit a provider?"])
def test_an_english_singular_in_e_asks_for_one_thing(tmp_path: Path, question: str) -> None:
    toml = FOLDERS.replace("Law: 2 documents, among them Duties in contracts", "Every clause that is used.")
    with opened(tmp_path, PLACES, toml=toml) as places:
        assert not asks_for_survey(question, places.sources)
        assert survey_of(question, corpus=places, principal=OWNER) is None
        assert survey_of(question.replace("clause", "clauses"), corpus=places, principal=OWNER) is not None


def prompt_of(request: ScriptedRequest) -> str:
    return str(request.messages[0].parts[0].content)  # type: ignore[union-attr]


def document_in(request: ScriptedRequest) -> str:
    found = re.search(r'"document": "([^"]+)"', prompt_of(request))
    assert found is not None
    return found.group(1)


def honest(request: ScriptedRequest) -> Draft:
    """Quotes the sentence with the deadline, or says that there is none."""
    document = document_in(request)
    said = next((clause(name) for name in NAMES if clause(name) in prompt_of(request)), None)
    if said is None:
        return Draft(missing=(DraftGap(what="incident deadline"),))
    return Draft(claims=(DraftClaim(text=said, citations=(DraftCitation(document=document, quote=said),)),))


def ask(
    corpus: Corpus, turn: Turn, *, price: Price | None = None, usage: tuple[int, int] = (100, 50), **limits: Any
) -> tuple[Answer, ScriptedModel]:
    model = ScriptedModel([turn], repeat_last=True, usage=usage)
    opened_model = OpenedModel(model=model, name="scripted", price=price or Price(input=0.0, output=0.0))
    question = limits.pop("question", QUESTION)
    return Assistant(corpus.config, corpus, opened_model).ask_sync(question, mode="research", **limits), model


def cells(answer: Answer) -> dict[str, Cell]:
    return {row.document.removeprefix("contracts/"): row.cells[0] for row in answer.rows}


def test_offline_every_document_has_a_row_and_every_cell_a_quote_or_a_checked_gap(corpus: Corpus) -> None:
    answer = Assistant(corpus.config, corpus).ask_sync(QUESTION, mode="research")
    assert (answer.mode, answer.status, answer.stop_reason) == ("research", "complete", "answered")
    assert set(cells(answer)) == set(NAMES)
    for name, cell in cells(answer).items():
        assert (cell.column, cell.status) == ("incident deadline", "found" if name in WITH else "not_found")
        if name in WITH:
            assert cell.claim is not None
            claim, citation = answer.claims[cell.claim - 1], cell.citations[0]
            assert claim.status == citation.status == "verified"
            text = corpus.document(f"contracts/{name}", principal=OWNER).text
            assert (citation.start, citation.end) != (None, None)
            assert text[citation.start : citation.end] == citation.quote == clause(name)
        else:
            assert cell.citations == ()
            assert {"incident deadline", "incident", "deadline"} == set(cell.queries)
    absence = [claim for claim in answer.claims if claim.kind == "absence"]
    assert {c.document for c in absence[0].citations} == {f"contracts/{n}" for n in NAMES if n not in WITH}
    assert (len(absence), absence[0].status, absence[0].terms) == (1, "verified", ("incident", "deadline"))


def test_absence_was_searched_for_inside_every_document_it_names(corpus: Corpus) -> None:
    answer, _ = ask(corpus, honest)
    finds = {(c.arguments["document"], c.arguments["phrase"]) for c in answer.calls if c.tool == "find_in_document"}
    for claim in answer.claims:
        if claim.kind == "absence":
            assert {(c.document, term) for c in claim.citations for term in claim.terms} <= finds


def test_each_document_is_one_small_request_without_tools(corpus: Corpus) -> None:
    answer, model = ask(corpus, honest)
    assert answer.status == "complete"
    assert answer.usage.model_calls == len(model.requests) == len(NAMES)
    assert answer.usage.steps == 2, "ten documents are two rounds of at most eight"
    assert {document_in(r) for r in model.requests} == {f"contracts/{n}" for n in NAMES}
    for request in model.requests:
        assert request.parameters.function_tools == []
        assert dict(request.settings)["max_tokens"] <= 1000
        assert len(set(re.findall(r'"document": "([^"]+)"', prompt_of(request)))) == 1
    assert {c.agent for c in answer.calls} == {"main", *(f"row-{n}" for n in range(1, 11))}


def test_forty_documents_are_five_steps(tmp_path: Path) -> None:
    many = {f"contracts/c{n:02}.md": contract(f"c{n:02}") for n in range(40)}
    with opened(tmp_path, {**many, "rules/x.md": "# X\n\nNothing.\n"}, toml=TOML) as corpus:
        answer, model = ask(corpus, honest)
    assert len(answer.rows) == len(model.requests) == 40
    assert (answer.usage.steps, answer.status) == (40 // AT_ONCE, "complete")
    assert {row.cells[0].status for row in answer.rows} == {"not_found"}


def test_a_budget_that_reaches_three_of_ten_lists_the_other_seven(corpus: Corpus) -> None:
    price = Price(input=0.0, output=10.0)  # a cell costs its 1,000 tokens of output, a cent
    answer, _ = ask(corpus, honest, price=price, usage=(100, 1000), max_dollars=0.03)
    states = [cell.status for cell in cells(answer).values()]
    assert (states.count("not_reached"), len(states)) == (7, 10)
    assert (answer.status, answer.stop_reason) == ("partial", "dollars")
    assert answer.usage.dollars is not None
    assert answer.usage.dollars <= 0.03 + 1e-9
    left = {f"contracts/{name}" for name, cell in cells(answer).items() if cell.status == "not_reached"}
    (gap,) = [gap for gap in answer.missing if gap.status == "unchecked"]
    assert all(document in gap.what for document in left)
    assert "7 of 10 contracts not reached" in gap.what
    assert all(document not in gap.what for document in {f"contracts/{n}" for n in NAMES} - left)
    assert all(cell.reason for cell in cells(answer).values() if cell.status == "not_reached")


@pytest.mark.parametrize("dollars", [0.001, 0.004, 0.011, 0.017, 0.05])
def test_the_dollar_cap_holds_over_parallel_requests(corpus: Corpus, dollars: float) -> None:
    price = Price(input=3.0, output=15.0)
    answer, _ = ask(corpus, honest, price=price, usage=(700, 400), max_dollars=dollars)
    assert answer.usage.dollars is not None
    assert answer.usage.dollars <= dollars + 1e-9
    reached = sum(cell.status != "not_reached" for cell in cells(answer).values())
    assert reached == 10 or answer.stop_reason == "dollars"


def test_what_one_request_left_unspent_reaches_further_documents(corpus: Corpus) -> None:
    price = Price(input=0.0, output=10.0)  # one worst case fits at a time, but a reply costs a tenth of it
    answer, _ = ask(corpus, honest, price=price, usage=(100, 100), max_dollars=0.02)
    assert answer.status == "complete"


def test_the_step_cap_ends_the_rounds(corpus: Corpus) -> None:
    answer, _ = ask(corpus, honest, max_steps=1)
    states = [cell.status for cell in cells(answer).values()]
    assert (answer.usage.steps, states.count("not_reached"), answer.stop_reason) == (1, 2, "steps")


def test_a_short_budget_goes_to_the_likeliest_documents_first(tmp_path: Path) -> None:
    many = {f"contracts/c{n:02}.md": contract(f"c{n:02}") for n in range(20)}
    many["contracts/zeta.md"] = contract("zeta", says=clause("zeta"))
    with opened(tmp_path, {**many, "rules/x.md": "# X\n\nNothing.\n"}, toml=TOML) as corpus:
        answer, model = ask(corpus, honest, max_steps=1)
    assert len(model.requests) == AT_ONCE
    assert [row.document for row in answer.rows] == sorted(row.document for row in answer.rows)
    assert answer.rows[-1].document == "contracts/zeta"
    assert answer.rows[-1].cells[0].status == "found"
    assert [c.arguments for c in answer.calls if c.agent == "main"][-1] == {"query": "incident deadline"}


def test_a_forged_quote_is_sent_back_once_and_then_shown_as_unverified(corpus: Corpus) -> None:
    def forging(request: ScriptedRequest) -> Draft:
        document = document_in(request)
        if document != "contracts/beta":
            return honest(request)
        quote = DraftCitation(document=document, quote="The deadline for incidents is one hour.")
        return Draft(claims=(DraftClaim(text="The deadline is one hour.", citations=(quote,)),))

    answer, model = ask(corpus, forging)
    asked = [r for r in model.requests if document_in(r) == "contracts/beta"]
    assert len(asked) == 2
    assert "claim 1: citation 1" in str(asked[1].messages[-1])
    cell = cells(answer)["beta"]
    assert (cell.status, cell.citations, answer.status) == ("unverified", (), "partial")
    assert "**(unverified" in answer.text


def test_a_request_that_fails_costs_its_row_only(corpus: Corpus) -> None:
    def failing(request: ScriptedRequest) -> Draft:
        if document_in(request) == "contracts/gamma":
            raise RuntimeError("the line is dead")
        return honest(request)

    answer, _ = ask(corpus, failing)
    cell = cells(answer)["gamma"]
    assert (cell.status, answer.status) == ("not_reached", "partial")
    assert "the line is dead" in (cell.reason or "")
    assert {n for n, c in cells(answer).items() if c.status == "found"} == {"alpha", "eta"}
    assert "contracts/gamma" in answer.missing[0].what


def test_a_word_that_stands_there_is_no_absence(corpus: Corpus) -> None:
    answer, _ = ask(
        corpus, lambda _: Draft(missing=(DraftGap(what="records"),)), question="Which contracts lack records?"
    )
    said = {c.document for claim in answer.claims for c in claim.citations}
    assert said == {f"contracts/{n}" for n in WITH}, "only these have no such word"
    undecided = {gap.what for gap in answer.missing}
    assert undecided == {f"records in contracts/{n}" for n in NAMES if n not in WITH}
    assert all(gap.status == "checked" for gap in answer.missing)


def test_the_question_names_filters_and_only_current_documents_are_asked(corpus: Corpus) -> None:
    answer, _ = ask(corpus, honest, question="Which contracts with Alpha or Beta lack an incident deadline?")
    assert [row.document for row in answer.rows] == ["contracts/alpha", "contracts/beta"]
    assert answer.rows[0].cells[0].column == "incident deadline"
    assert "supplier: Alpha" in answer.route
    listed = [c.arguments["filters"] for c in answer.calls if c.tool == "list_documents"]
    assert listed == [{"supplier": "Alpha"}, {"supplier": "Beta"}]


def test_source_filters_and_columns_can_be_given(corpus: Corpus) -> None:
    assistant = Assistant(corpus.config, corpus)
    answer = assistant.survey_sync(
        "An overview", source="contracts", filters={"supplier": "Eta"}, columns=["incident deadline", "help desk"]
    )
    (row,) = answer.rows
    assert [(c.column, c.status) for c in row.cells] == [("incident deadline", "found"), ("help desk", "found")]
    with pytest.raises(UsageError, match="no source is called 'deals'"):
        assistant.survey_sync("An overview", source="deals")
    with pytest.raises(UsageError, match="no filter 'owner'"):
        assistant.survey_sync("An overview", source="contracts", filters={"owner": "x"})
    with pytest.raises(UsageError, match="names no documents"):
        assistant.survey_sync("What is the notice period?")


def test_a_filter_value_without_documents_gives_no_rows_and_a_gap(corpus: Corpus) -> None:
    answer = Assistant(corpus.config, corpus).survey_sync(QUESTION, filters={"supplier": "Omega"})
    assert answer.rows == ()
    assert answer.status == "partial"
    assert "no document" in (answer.missing[0].reason or "")


@pytest.mark.parametrize(
    ("question", "columns"),
    [
        (QUESTION, ["incident deadline"]),
        ("Which of our contracts do not contain a right to audit?", ["right to audit"]),
        ("In which contracts is there no limitation of liability?", ["limitation of liability"]),
        ("What is the notice period in each contract?", ["notice period"]),
        ("Does every contract require encryption at rest?", ["encryption at rest"]),
        ("How many contracts allow subcontracting?", ["subcontracting"]),
        ("For each contract, what is the notice period and who must be told?", ["notice period", "must be told"]),
        ("List the governing law in all contracts.", ["governing law"]),
        ("Welche Verträge enthalten keine Meldefrist für Vorfälle?", None),
        ("Which suppliers must report incidents?", ["report incidents"]),
        ("Which documents mention an incident deadline?", ["incident deadline"]),
    ],
)
def test_what_is_asked_of_each_document(corpus: Corpus, question: str, columns: list[str] | None) -> None:
    survey = survey_of(question, corpus=corpus, principal=OWNER)
    if columns is None:  # the German word is not that of the source
        assert survey is None
        return
    assert survey is not None
    assert [c.title for c in survey.columns] == columns
    if "documents" not in question:
        assert [s.source for s in survey.selections] == ["contracts"]


@pytest.mark.parametrize(
    "question",
    [
        "Which contract has the longest notice period?",
        "What does the contract with Alpha say about incidents?",
        "Does the contract with Alpha comply with the security policy?",
        "List all contracts.",
        "Which of the two suppliers must report incidents sooner?",
        "Alpha and Beta each have a contract. Who reports sooner?",
        "Must all incidents be reported?",
        "What is 12 times 4?",
    ],
)
def test_other_questions_ask_for_no_survey(corpus: Corpus, question: str) -> None:
    assert survey_of(question, corpus=corpus, principal=OWNER) is None
    assert not asks_for_survey(question, corpus.sources)


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("Welche Verträge enthalten keine Meldefrist für Vorfälle?", "Meldefrist für Vorfälle"),
        ("Nennt jeder Vertrag eine Kündigungsfrist?", "Kündigungsfrist"),
        ("Was ist die Kündigungsfrist in allen Verträgen?", "Kündigungsfrist"),
    ],
)
def test_german_questions(tmp_path: Path, question: str, title: str) -> None:
    toml = '[[sources]]\nname = "vertraege"\npath = "v"\ndescription = "Verträge mit Lieferanten."\n'
    with opened(tmp_path, {"v/a.md": "# Vertrag A\n\nDie Meldefrist beträgt 24 Stunden.\n"}, toml=toml) as corpus:
        assert asks_for_survey(question, corpus.sources)
        survey = survey_of(question, corpus=corpus, principal=OWNER)
    assert survey is not None
    assert [c.title for c in survey.columns] == [title]


def test_things_may_be_known_by_their_titles_only(tmp_path: Path) -> None:
    toml = '[[sources]]\nname = "files"\npath = "f"\n'
    files = {
        "f/a.md": "# Lease of the north wing\n\nThe rent is due monthly.\n",
        "f/b.md": "# Lease of the garage\n\nThe rent is due yearly.\n",
        "f/c.md": "# Travel policy\n\nTrains only.\n",
    }
    with opened(tmp_path, files, toml=toml) as corpus:
        answer = Assistant(corpus.config, corpus).ask_sync("When is the rent due in each lease?", mode="research")
    assert [row.document for row in answer.rows] == ["files/a", "files/b"]
    assert [row.cells[0].status for row in answer.rows] == ["found", "found"]


def test_the_table_in_markdown_names_document_and_section_and_cannot_be_broken(corpus: Corpus) -> None:
    answer, _ = ask(corpus, honest)
    assert f"| contracts/alpha | 1. {clause('alpha')} [contracts/alpha §2] |" in answer.text
    assert "| contracts/beta | *nothing found* |" in answer.text
    rows = (Row(document="a/b", title="", cells=(Cell(column="x | y", status="not_reached"),)),)
    lines = render_survey(rows, ()).splitlines()
    assert "| document | x \\| y |" in lines
    assert "| a/b | *not reached* |" in lines


def test_the_table_fits_the_terminal(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    answer, _ = ask(corpus, honest)
    long = Row(document="contracts/" + "x" * 90, title="", cells=answer.rows[0].cells)
    output.show_answer(replace(answer, rows=(*answer.rows, long)))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("contracts/beta" in line and "nothing found" in line for line in lines)
    assert any(line.startswith("incident deadline: 11 documents") for line in lines)


def test_the_rows_are_data_and_recorded(corpus: Corpus) -> None:
    answer, _ = ask(corpus, honest)
    row = json.loads(json.dumps(answer.to_dict()))["rows"][0]
    assert (row["document"], row["title"]) == ("contracts/alpha", "Contract with Alpha")
    assert row["cells"][0]["claim"] == 1
    assert row["cells"][0]["citations"][0]["quote"] == clause("alpha")
    assert RunStore(corpus.config.state / "runs.sqlite").get(answer.run_id, principal=OWNER).answer.rows == answer.rows


def test_the_cost_is_said_as_counted(corpus: Corpus) -> None:
    answer, _ = ask(corpus, honest)
    assert (
        "survey: 10 of 10 cells asked in 10 requests and 2 rounds, 1,500 tokens in all, 150 per cell" in answer.warnings
    )


def test_a_cancelled_survey_is_recorded_with_what_was_read(corpus: Corpus) -> None:
    class Hanging(ScriptedModel):
        async def request(self, *args: Any, **kwargs: Any) -> Any:
            started.set()
            await asyncio.Event().wait()

    async def run() -> None:
        assistant = Assistant(corpus.config, corpus, Hanging([]), emit=seen.append)
        task = asyncio.create_task(assistant.ask(QUESTION, mode="research"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = asyncio.Event()
    seen: list[Event] = []
    asyncio.run(run())
    record = RunStore(corpus.config.state / "runs.sqlite").get(str(seen[0].to_dict()["run_id"]), principal=OWNER)
    assert record.answer.stop_reason == "cancelled"
    assert any(c.agent.startswith("row-") and c.tool == "read_document" for c in record.answer.calls)


def test_auto_routes_a_question_for_a_survey_to_one(corpus: Corpus) -> None:
    answer = Assistant(corpus.config, corpus).ask_sync(QUESTION)
    assert answer.mode == "research"
    assert len(answer.rows) == len(NAMES)


def test_a_survey_over_real_contracts_fills_its_table(shared_data: Path, tmp_path: Path) -> None:
    names = ("bank-of-america_cardlytics", "ofg-bancorp", "netzee", "freecook", "bangi")
    toml = (
        f'[[sources]]\nname = "contracts"\npath = {str(shared_data / "corpora" / "contracts")!r}\n'
        f"include = {[f'cuad/{name}/**' for name in names]!r}\nfilters = ['kind']\n"
    )
    (tmp_path / "citehound.toml").write_text(toml, "utf-8")
    with Corpus.open(config.load(tmp_path / "citehound.toml", env={}), write=True) as corpus:
        corpus.sync()
        answer = Assistant(corpus.config, corpus).ask_sync(QUESTION, mode="research")
        listed = corpus.list_documents("contracts", principal=OWNER).documents
    assert [row.document for row in answer.rows] == [info.document for info in listed]
    assert {cell.status for row in answer.rows for cell in row.cells} == {"found", "not_found"}
    found = [row for row in answer.rows if row.cells[0].status == "found"]
    assert any("within 24 hours" in row.cells[0].text and "cardlytics" in row.document for row in found)
    assert answer.status == "complete"

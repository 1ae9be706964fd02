"""The offline planner: what it searches, when it stops, and what it hands in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.config import Config, SourceConfig
from citehound.drafts import Draft
from citehound.models.planner import OfflineModel
from citehound.models.planner.draft import differing
from citehound.models.planner.state import split_prompt
from citehound.models.planner.words import clauses, is_simple, months, quantities, requires, sentences

COMPLIANCE = "Does the contract with supplier Alpha comply with the current outsourcing policy?"


@dataclass(frozen=True, kw_only=True)
class Words:
    """A lexicon in which every word is rare."""

    names: Sequence[tuple[str, str]] = (
        ("policies/travel-v2", "Travel Policy v2"),
        ("policies/gift", "Gift Policy"),
        ("contracts/alpha", "Agreement with Alpha"),
        ("contracts/beta", "Agreement with Beta"),
    )
    known: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=lambda: {"contracts": {"supplier": ("Alpha", "Beta")}}
    )

    @property
    def passages(self) -> int:
        return 100

    def frequency(self, term: str) -> int:
        return 3

    def values(self, source: str) -> Mapping[str, tuple[str, ...]]:
        return self.known.get(source, {})

    def titles(self) -> Sequence[tuple[str, str]]:
        return self.names


def tool(name: str, properties: dict[str, Any], description: str = "") -> ToolDefinition:
    return ToolDefinition(
        name=name, description=description, parameters_json_schema={"type": "object", "properties": properties}
    )


QUERY: dict[str, Any] = {"query": {"type": "string"}, "only_current": {"type": "boolean"}, "k": {"type": "integer"}}
TOOLS = [
    tool("search_policies", QUERY, "Policies. Use it for what is required."),
    tool("search_contracts", {**QUERY, "supplier": {"enum": ["Alpha", "Beta"]}}, "Contracts by supplier."),
    tool("read_document", {"document": {}, "section": {}, "start": {}}),
    tool("find_in_document", {"document": {}, "phrase": {}}),
]
FINAL = tool("final_answer", {})


def asked(question: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(question)])]


def respond(
    messages: list[ModelMessage],
    *,
    tools: Sequence[ToolDefinition] = TOOLS,
    settings: ModelSettings | None = None,
    lexicon: Words | None = None,
) -> ModelResponse:
    parameters = ModelRequestParameters(
        function_tools=list(tools), output_tools=[FINAL], output_mode="tool", allow_text_output=False
    )
    return asyncio.run(OfflineModel(lexicon or Words()).request(messages, settings, parameters))


def calls(response: ModelResponse) -> list[tuple[str, dict[str, Any]]]:
    return [(p.tool_name, p.args_as_dict()) for p in response.parts if isinstance(p, ToolCallPart)]


def draft(response: ModelResponse) -> Draft:
    [(name, arguments)] = calls(response)
    assert name == "final_answer"
    return Draft.model_validate(arguments)


def answered(messages: list[ModelMessage], response: ModelResponse, *results: dict[str, Any]) -> list[ModelMessage]:
    parts = [p for p in response.parts if isinstance(p, ToolCallPart)]
    returns = [
        ToolReturnPart(tool_name=p.tool_name, content=r, tool_call_id=p.tool_call_id)
        for p, r in zip(parts, results, strict=True)
    ]
    return [*messages, response, ModelRequest(parts=returns)]


def hit(document: str, title: str, snippet: str) -> dict[str, Any]:
    return {"document": document, "section": "1", "title": title, "snippet": snippet, "current": True}


def passage(document: str, title: str, text: str) -> dict[str, Any]:
    size = {"start": 0, "end": len(text), "next_start": None, "total_chars": len(text)}
    return {"document": document, "section": None, "title": title, "text": text, "current": True, **size}


def test_a_named_value_becomes_a_filter_of_the_source_that_has_it() -> None:
    made = calls(respond(asked("Does Alpha meet the travel policy?")))
    filters = {name: arguments.get("supplier") for name, arguments in made}
    assert filters == {"search_contracts": "Alpha", "search_policies": None}


def test_a_question_that_names_one_document_searches_one_source() -> None:
    assert [name for name, _ in calls(respond(asked("What does the gift policy say about wine?")))] == [
        "search_policies"
    ]


def test_the_best_hit_is_read_and_a_covering_passage_ends_the_run() -> None:
    messages = asked("What is the limit of the gift policy for wine?")
    first = respond(messages)
    text = "The limit for wine under this gift policy is 40 euros a year."
    messages = answered(messages, first, {"hits": [hit("policies/gift", "Gift Policy", text)]})
    second = respond(messages)
    assert [name for name, _ in calls(second)] == ["read_document"]
    messages = answered(messages, second, passage("policies/gift", "Gift Policy", text))
    given = draft(respond(messages))
    assert [c.text for c in given.claims] == [text]
    assert [c.citations[0].quote for c in given.claims] == [text]
    assert given.missing == ()


def test_requirements_that_were_read_are_searched_where_the_supplier_is() -> None:
    messages = asked("Does Alpha comply with the travel policy?")
    first = respond(messages)
    rule = "3.1 Rail. Every journey below 500 kilometres must be made by rail with a flexible ticket."
    found: dict[str, dict[str, Any]] = {
        "search_policies": {"hits": [hit("policies/travel-v2", "Travel Policy v2", rule)]},
        "search_contracts": {"hits": []},
    }
    messages = answered(messages, first, *(found[name] for name, _ in calls(first)))
    second = respond(messages)
    messages = answered(messages, second, passage("policies/travel-v2", "Travel Policy v2", rule))
    third = [a for name, a in calls(respond(messages)) if name == "search_contracts"]
    assert third
    assert all(a["supplier"] == "Alpha" for a in third)
    assert "flexible" in third[0]["query"] and "Rail" in third[0]["query"]


def test_without_tools_the_draft_is_handed_in() -> None:
    given = draft(respond(asked(COMPLIANCE), tools=[]))
    assert given.claims == ()
    assert given.missing


def test_with_tools_forbidden_the_draft_is_handed_in() -> None:
    assert draft(respond(asked(COMPLIANCE), settings=ModelSettings(tool_choice="none"))).missing


def test_when_steps_run_out_the_draft_is_handed_in() -> None:
    messages = asked("What does the gift policy say about wine?")
    notes = ["no steps left for searching: the next turn is the final answer"]
    messages = answered(messages, respond(messages), {"hits": [], "notes": notes})
    assert draft(respond(messages)).missing


def test_a_sum_is_searched_for_and_declared_missing() -> None:
    messages = asked("What's 12 times 4?")
    response = respond(messages)
    assert all(name.startswith("search_") for name, _ in calls(response))
    for _ in range(12):
        if calls(response)[0][0] == "final_answer":
            break
        nothing: dict[str, Any] = {"hits": []}
        messages = answered(messages, response, *(nothing for _ in calls(response)))
        response = respond(messages)
    given = draft(response)
    assert given.claims == ()
    assert "model" in (given.missing[0].reason or "")


def test_the_same_messages_give_the_same_calls() -> None:
    assert calls(respond(asked(COMPLIANCE))) == calls(respond(asked(COMPLIANCE)))


def test_a_stream_gives_what_a_request_gives() -> None:
    async def streamed() -> ModelResponse:
        parameters = ModelRequestParameters(function_tools=TOOLS, output_tools=[FINAL], output_mode="tool")
        async with OfflineModel(Words()).request_stream(asked(COMPLIANCE), None, parameters) as stream:
            async for _ in stream:
                pass
            return stream.get()

    assert calls(asyncio.run(streamed())) == calls(respond(asked(COMPLIANCE)))


def test_without_an_output_tool_the_draft_is_json_text() -> None:
    parameters = ModelRequestParameters(output_mode="text", allow_text_output=True)
    response = asyncio.run(OfflineModel(Words()).request(asked(COMPLIANCE), None, parameters))
    [part] = response.parts
    assert isinstance(part, TextPart)
    assert Draft.model_validate_json(part.content).missing


def test_usage_grows_with_the_text() -> None:
    short, long = respond(asked("Which wine?")), respond(asked("Which wine? " * 50))
    assert 0 < short.usage.input_tokens < long.usage.input_tokens


def test_a_refused_quote_is_not_offered_again() -> None:
    text = "The limit for wine under this gift policy is 40 euros a year."
    messages = asked("What is the limit of the gift policy for wine?")
    messages = answered(messages, respond(messages), {"hits": [hit("policies/gift", "Gift Policy", text)]})
    messages = answered(messages, respond(messages), passage("policies/gift", "Gift Policy", text))
    response = respond(messages)
    part = response.parts[0]
    assert isinstance(part, ToolCallPart)
    refused = ToolReturnPart(
        tool_name="final_answer",
        content=f"claim 1: the quote {text!r} stands nowhere",
        tool_call_id=part.tool_call_id,
        outcome="retried",
    )
    assert draft(respond([*messages, response, ModelRequest(parts=[refused])])).claims == ()


def test_passages_in_the_prompt_count_as_read() -> None:
    prompt = 'Question: How much wine?\n\nPassages (JSON):\n{"passages": [{"document": "a/b", "text": "Six bottles."}]}'
    prompted = split_prompt(prompt)
    question, given = prompted.question, prompted.texts
    assert question == "How much wine?"
    assert [(t.document, t.text) for t in given] == [("a/b", "Six bottles.")]


@pytest.mark.parametrize(
    "sentence",
    [
        "The supplier must tell the bank.",
        "Reports are sent within 24 hours.",
        "Der Lieferant muss jeden Vorfall melden.",
        "O fornecedor deve avisar o banco.",
        "El proveedor debe avisar al banco.",
        "Le fournisseur doit avertir la banque.",
    ],
)
def test_requirements_are_known_in_five_languages(sentence: str) -> None:
    assert requires(sentence)


def test_a_plain_statement_is_no_requirement() -> None:
    assert not requires("The head office is in Lisbon.")


def test_quantities_have_value_and_unit() -> None:
    found = [(q.value, q.unit) for q in quantities("within twenty-four hours, sixty (60) days, 5 % or US $5,000.")]
    assert found == [(24.0, "hour"), (60.0, "day"), (5.0, "percent"), (5000.0, "money")]


def test_values_differ_only_within_one_unit() -> None:
    pair = differing("within 24 hours of it", "within 72 hours, after 3 days")
    assert pair is not None and [q.text for q in pair] == ["24 hours", "72 hours"]
    assert differing("within 24 hours", "within 3 days") is None
    assert differing("within 24 hours", "24 hours a day, 72 hours in all") is None


def test_a_catchword_stays_with_its_sentence() -> None:
    text = "7.2 Encryption. Every party encrypts data. Art. 5 applies.\n7.3 Next one is here."
    assert [s.text for s in sentences(text)] == [
        "7.2 Encryption. Every party encrypts data.",
        "Art. 5 applies.",
        "7.3 Next one is here.",
    ]
    assert all(text[s.start : s.end] == s.text for s in sentences(text))


def test_questions_are_cut_where_a_new_thing_is_asked() -> None:
    assert len(clauses("What is the fee, and who pays it?")) == 2
    assert is_simple("What is the fee, and who pays it?")
    assert not is_simple("Has the fee changed?")


def test_a_clause_that_asks_the_same_of_something_else_is_told_what() -> None:
    asked = "How soon does the Alpha contract report incidents, and how does Beta compare?"
    assert clauses(asked) == [
        "How soon does the Alpha contract report incidents",
        "How soon does the contract report incidents Beta?",
    ]
    assert clauses("How long are logs kept? What about backups?")[1] == "How long are logs kept backups?"
    assert (
        clauses("Wie lange werden Logs aufbewahrt? Wie ist es bei Akten?")[1]
        == "Wie lange werden Logs aufbewahrt Akten?"
    )
    assert clauses("What about backups?") == ["What about backups?"]
    assert clauses("I was ill last week. What about pay?")[1] == "What about pay?"


def test_months_are_read_from_words_and_numbers() -> None:
    assert [(m.year, m.month) for m in months("in January 2026, until-2025-08-29, the end of 2023")] == [
        (2026, 1),
        (2025, 8),
        (2023, None),
    ]


# The whole way, over the bundled corpus.


@pytest.fixture(scope="module")
def ask(bank_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = Config(
        root=tmp_path_factory.mktemp("bank"),
        sources=(
            SourceConfig(name="policies", path=bank_root / "policies", description="What the bank requires."),
            SourceConfig(
                name="contracts",
                path=bank_root / "contracts",
                description="What a supplier has agreed to.",
                filters=("supplier",),
            ),
            SourceConfig(name="wiki", path=bank_root / "wiki", description="Notes and registers."),
        ),
    )
    with Assistant(config, record=False) as assistant:

        def run(question: str, max_steps: int | None = None) -> Answer:
            return assistant.ask_sync(question, mode="agent", max_steps=max_steps)

        yield run


def test_the_compliance_question_is_answered_with_checked_quotes(ask: Any) -> None:
    answer: Answer = ask(COMPLIANCE)
    assert answer.status == "complete"
    assert all(c.status == "verified" for c in answer.claims)
    read = {r.document for c in answer.calls if c.tool == "read_document" for r in c.returned}
    assert {
        "policies/outsourcing-policy-v4",
        "contracts/contract-alpha",
        "contracts/contract-alpha-security-annex",
    } <= read
    assert "policies/outsourcing-policy-v3" not in read
    later = [c for c in answer.calls if c.tool == "search_contracts" and c.step > 1]
    assert all(c.arguments["supplier"] == "Alpha" for c in later)
    assert any("Encryption" in c.arguments["query"] for c in later)
    conclusion = next(c for c in answer.claims if c.kind == "conclusion")
    assert "24 hours" in conclusion.text and "72 hours" in conclusion.text
    assert len(conclusion.premises) == 2
    assert any("AES-256" in c.text for c in answer.claims)
    assert any("due diligence" in gap.what for gap in answer.missing)
    assert all(gap.status == "checked" for gap in answer.missing)
    assert answer.usage.reads <= 8


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 6])
def test_a_search_that_the_step_limit_cuts_off_is_no_complete_answer(ask: Any, steps: int) -> None:
    answer: Answer = ask(COMPLIANCE, max_steps=steps)
    assert (answer.status, answer.stop_reason) == ("partial", "steps")
    assert answer.usage.steps <= steps


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("For how long are recorded customer calls kept now?", "seven years"),
        ("What does Beta charge for one printed and encoded card?", "EUR 1.12"),
        ("What availability does Alpha promise, and what is the credit when it misses it?", "99.9 %"),
    ],
)
def test_a_plain_question_ends_within_two_searches(ask: Any, question: str, said: str) -> None:
    answer: Answer = ask(question)
    assert answer.usage.searches <= 2
    assert answer.status == "complete"
    assert any(said in c.text for c in answer.claims)


@pytest.mark.parametrize(
    "question",
    [
        "What is the cap on Gamma’s liability?",
        "Which courts decide disputes with Beta?",
        "What was the result of the latest due diligence on Alpha?",
        "What did version 2 of the outsourcing policy require on encryption?",
        "What's 12 times 4?",
    ],
)
def test_what_no_document_says_is_declared_missing(ask: Any, question: str) -> None:
    answer: Answer = ask(question)
    assert answer.status == "not_found"
    assert answer.usage.searches >= 1

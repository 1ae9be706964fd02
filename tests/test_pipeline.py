"""Two functions that exist already, with hops around them: any shape of result, sync or async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from citehound.budget import FREE, Price
from citehound.errors import ConfigError, UsageError
from citehound.judge import RulesJudge, Skip
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, call
from citehound.pipeline import hops

TEXTS = {
    "README.md": "The retention period for deleted files is 30 days.",
    "CHANGELOG.md": "Changelog, release 2.4.0: changed how long deleted files are kept, from 30 days to 90 days.",
    "pricing.md": "The team plan costs 9 euros a month.",
}
QUESTION = "What is the retention period for deleted files, and has it changed recently?"


@dataclass
class LangChainLike:
    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Node:
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class NodeWithScore:
    node: Node
    score: float


def best(query: str) -> str:
    """The document whose words the query has, the rare ones counting more."""
    held = {name: {w.strip(".,:?").lower() for w in text.split()} for name, text in TEXTS.items()}
    words = {w.strip(".,:?").lower() for w in query.split()}
    return max(TEXTS, key=lambda name: (sum(1 / sum(w in h for h in held.values()) for w in words & held[name]), name))


def one(shape: Callable[[str, str], Any]) -> Callable[[str], Any]:
    return lambda query: [shape(best(query), TEXTS[best(query)])]


SHAPES: dict[str, Callable[[str, str], Any]] = {
    "text": lambda name, text: text,
    "dict with text": lambda name, text: {"id": name, "text": text},
    "dict with content": lambda name, text: {"content": text, "metadata": {"source": name}},
    "langchain document": lambda name, text: LangChainLike(text, {"source": name}),
    "document and score": lambda name, text: (LangChainLike(text, {"source": name}), 0.7),
    "score and text": lambda name, text: (0.7, text),
    "llama-index node": lambda name, text: NodeWithScore(Node(text, {"file": name}), 0.7),
    "dict in dict": lambda name, text: {"document": {"text": text}, "score": 1},
    "Elasticsearch hit": lambda name, text: {"_id": name, "_score": 1.2, "_source": {"text": text}},
    "Pinecone match": lambda name, text: {"id": name, "score": 0.3, "metadata": {"text": text}},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_of_result_is_read_and_handed_on_as_it_came(shape: str) -> None:
    given: list[Any] = []

    def generate(question: str, retrieved: Any) -> str:
        given.append((question, retrieved))
        return "An answer."

    done = hops(QUESTION, retrieve=one(SHAPES[shape]), generate=generate)
    assert str(done) == done.text == done.generated == "An answer."
    ((question, retrieved),) = given
    assert question == QUESTION, "the answer is to the original question"
    assert len(retrieved) == len(done.passages) == 2
    expected = [SHAPES[shape](name, TEXTS[name]) for name in TEXTS if TEXTS[name] in {p.text for p in done.passages}]
    assert all(item in expected for item in retrieved)


def test_wrong_by_omission_in_one_retrieval_is_right_in_two() -> None:
    def generate(question: str, retrieved: list[str]) -> str:
        return " ".join(retrieved)

    static = hops(QUESTION, retrieve=one(SHAPES["text"]), generate=generate, max_hops=1)
    assert not ("30 days" in static.text and "90 days" in static.text)
    assert not static.enough and static.missing
    done = hops(QUESTION, retrieve=one(SHAPES["text"]), generate=generate)
    assert "30 days" in done.text and "90 days" in done.text
    assert [hop.found for hop in done.hops] == [1, 1]
    assert done.hops[0].query == QUESTION and done.hops[1].query != QUESTION


def test_one_retrieval_is_enough_for_a_plain_question() -> None:
    done = hops("What does the team plan cost?", retrieve=one(SHAPES["text"]), generate=lambda q, r: r[0])
    assert len(done.hops) == 1
    assert done.enough and done.missing == ()
    assert done.text == TEXTS["pricing.md"]


def test_a_stubborn_question_ends_at_the_limit_and_says_what_is_missing() -> None:
    queries: list[str] = []

    def retrieve(query: str) -> list[str]:
        queries.append(query)
        return [TEXTS["pricing.md"]]

    done = hops("Who audited the data centre in Porto?", retrieve=retrieve, generate=lambda q, r: "?", max_hops=4)
    assert len(queries) == len(done.hops) == 4
    assert not done.enough and done.missing
    assert len(done.passages) == 1, "what was there before is not taken in twice"


def test_texts_are_handed_on_as_one_text_and_dicts_as_one_dict() -> None:
    seen: list[Any] = []

    def generate(question: str, retrieved: Any) -> str:
        seen.append(retrieved)
        return "."

    hops(QUESTION, retrieve=lambda q: TEXTS[best(q)], generate=generate)
    hops(QUESTION, retrieve=lambda q: {"documents": [[TEXTS[best(q)]]], "took": 3}, generate=generate)
    assert isinstance(seen[0], str) and "90 days" in seen[0] and "30 days" in seen[0]
    assert set(seen[1]) == {"documents", "took"} and len(seen[1]["documents"]) == 2


def test_async_functions_generators_and_async_generators_will_do() -> None:
    async def retrieve(query: str) -> list[str]:
        await asyncio.sleep(0)
        return [TEXTS[best(query)]]

    def lazily(query: str) -> Iterator[str]:
        yield TEXTS[best(query)]

    async def streamed(query: str) -> AsyncIterator[str]:
        yield TEXTS[best(query)]

    async def generate(question: str, retrieved: list[str]) -> dict[str, str]:
        return {"text": " ".join(retrieved)}

    for function in (retrieve, lazily, streamed):
        done = hops(QUESTION, retrieve=function, generate=generate)
        assert "90 days" in done.text
        assert done.generated == {"text": done.text}


def test_it_may_be_called_inside_a_running_event_loop() -> None:
    async def main() -> str:
        return hops("What does the team plan cost?", retrieve=one(SHAPES["text"]), generate=lambda q, r: r[0]).text

    assert asyncio.run(main()) == TEXTS["pricing.md"]


def test_sync_functions_may_run_an_event_loop_of_their_own() -> None:
    async def later(value: Any) -> Any:
        await asyncio.sleep(0)
        return value

    def retrieve(query: str) -> list[str]:
        return asyncio.run(later([TEXTS[best(query)]]))

    def generate(question: str, retrieved: list[str]) -> str:
        return asyncio.run(later(" ".join(retrieved)))

    async def inside() -> str:
        return hops(QUESTION, retrieve=retrieve, generate=generate).text

    assert "90 days" in hops(QUESTION, retrieve=retrieve, generate=generate).text
    assert "90 days" in asyncio.run(inside())


def test_an_answer_that_is_streamed_is_read_to_its_end() -> None:
    def parts(question: str, retrieved: list[str]) -> Iterator[str]:
        yield from ("90 ", "days")

    async def later(question: str, retrieved: list[str]) -> AsyncIterator[str]:
        for part in ("90 ", "days"):
            yield part

    for generate in (parts, later):
        done = hops(QUESTION, retrieve=one(SHAPES["text"]), generate=generate)
        assert done.text == "90 days"
        assert done.generated == ["90 ", "days"]


def test_a_whole_reply_of_a_search_engine_will_do() -> None:
    def retrieve(query: str) -> dict[str, Any]:
        return {"took": 3, "hits": {"total": 1, "hits": [{"_id": "a", "_source": {"text": TEXTS[best(query)]}}]}}

    done = hops(QUESTION, retrieve=retrieve, generate=lambda q, r: " ".join(hit["_source"]["text"] for hit in r))
    assert "90 days" in done.text


def test_nothing_retrieved_is_not_enough_and_still_answered_once() -> None:
    calls: list[Any] = []

    def generate(question: str, retrieved: Any) -> str:
        calls.append(retrieved)
        return "I do not know."

    for empty in ([], None, "", {"documents": []}):
        calls.clear()
        done = hops(QUESTION, retrieve=lambda q, e=empty: e, generate=generate)
        assert (len(calls) == 1 and not calls[0]) or calls[0] == {"documents": []}
        assert not done.enough and done.missing


def test_what_your_functions_raise_goes_through() -> None:
    def broken(query: str) -> list[str]:
        raise ConnectionError("the store is down")

    with pytest.raises(ConnectionError, match="the store is down"):
        hops(QUESTION, retrieve=broken, generate=lambda q, r: "")


def test_results_without_text_are_refused_with_what_to_give() -> None:
    with pytest.raises(UsageError, match="page_content"):
        hops(QUESTION, retrieve=lambda q: [3.5], generate=lambda q, r: "")
    with pytest.raises(UsageError, match="max_hops"):
        hops(QUESTION, retrieve=lambda q: [], generate=lambda q, r: "", max_hops=0)
    with pytest.raises(UsageError, match="empty"):
        hops("  ", retrieve=lambda q: [], generate=lambda q, r: "")


def decided(**reply: Any) -> Any:
    return call("decision", reply)


def model(*turns: Any, price: Price | None = FREE) -> OpenedModel:
    return OpenedModel(model=ScriptedModel(turns), name="scripted", price=price)


def test_a_model_may_skip_retrieval_only_with_full_confidence() -> None:
    def generate(question: str, retrieved: list[str]) -> str:
        return f"48 from {len(retrieved)} documents"

    sure = decided(answerable_without_documents=True, confidence="full", why="arithmetic")
    done = hops("What is 12 times 4?", retrieve=one(SHAPES["text"]), generate=generate, model=model(sure))
    assert done.skipped and done.hops == () and done.text == "48 from 0 documents"
    doubtful = decided(answerable_without_documents=True, confidence="high", why="probably")
    enough = decided(enough=True, missing=[])
    done = hops("What is 12 times 4?", retrieve=one(SHAPES["text"]), generate=generate, model=model(doubtful, enough))
    assert not done.skipped and len(done.hops) == 1


def test_a_model_names_the_missing_part_and_the_next_query() -> None:
    turns = (
        decided(answerable_without_documents=False, confidence="low", why=""),
        decided(enough=False, missing=["whether it changed"]),
        decided(query="changelog retention period", sources=[]),
        decided(enough=True, missing=[]),
    )
    opened = model(*turns, price=Price(input=10.0, output=10.0))
    done = hops(QUESTION, retrieve=one(SHAPES["text"]), generate=lambda q, r: " ".join(r), model=opened)
    assert [hop.query for hop in done.hops] == [QUESTION, "changelog retention period"]
    assert done.judge == "scripted"
    assert done.dollars > 0
    assert [e.to_dict()["type"] for e in done.events] == ["decision"] * 3


def test_an_unknown_price_under_a_cap_is_refused() -> None:
    with pytest.raises(ConfigError, match="price"):
        hops(QUESTION, retrieve=lambda q: [], generate=lambda q, r: "", model=model(price=None))


def test_a_judge_of_ones_own_decides() -> None:
    class Sure(RulesJudge):
        def __init__(self) -> None:
            pass

        @property
        def name(self) -> str:
            return "mine"

        async def skip(self, question: str) -> Skip:
            return Skip(sure=True, why="I said so")

    done = hops(QUESTION, retrieve=lambda q: ["x"], generate=lambda q, r: f"{r}", judge=Sure())
    assert done.skipped and done.judge == "mine" and done.text == "[]"

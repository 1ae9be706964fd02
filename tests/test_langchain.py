"""Citehound's tools, retriever and checker inside LangChain's own agent, with a model that plays a script."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from small import WITHIN_24, opened

pytest.importorskip("langchain", reason="needs LangChain: pip install 'citehound[langchain]'")

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, create_retriever_tool
from langgraph.checkpoint.memory import InMemorySaver

from citehound.access import OWNER
from citehound.corpus import Corpus
from citehound.errors import UsageError
from citehound.integrations.langchain import (
    CitehoundChecker,
    CitehoundRetriever,
    check_messages,
    citehound_prompt,
    citehound_tools,
)
from citehound.toolbox import ToolRefused

QUESTION = "Within how many hours must incidents be reported?"
ANSWER = f'Incidents must be reported within 24 hours. [rules/security §7] "{WITHIN_24}"'


class Scripted(BaseChatModel):
    """Replies with its script, one reply per request; keeps what it was told and which tools it was given."""

    script: list[AIMessage]
    seen: list[list[BaseMessage]] = []  # noqa: RUF012 - a pydantic field
    offered: list[dict[str, Any]] = []  # noqa: RUF012

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        from langchain_core.utils.function_calling import convert_to_openai_tool

        self.offered = [convert_to_openai_tool(tool)["function"] for tool in tools]
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.seen.append(list(messages))
        assert len(self.seen) <= len(self.script), "the script is at its end"
        return ChatResult(generations=[ChatGeneration(message=self.script[len(self.seen) - 1].model_copy())])


def call(name: str, /, number: int = 1, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"{name}-{number}"}])


SEARCH = call("search_rules", query="incidents reported")
READ = call("read_document", document="rules/security")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("langchain")) as corpus:
        yield corpus


def run(corpus: Corpus, *script: AIMessage | str, question: str = QUESTION) -> tuple[dict[str, Any], Scripted]:
    model = Scripted(script=[AIMessage(one) if isinstance(one, str) else one for one in script])
    agent = create_agent(
        model,
        citehound_tools(corpus),
        system_prompt=citehound_prompt(corpus),
        middleware=[CitehoundChecker(corpus)],
    )
    return agent.invoke({"messages": [HumanMessage(question)]}), model


def test_an_agent_searches_reads_and_answers(corpus: Corpus) -> None:
    state, model = run(corpus, SEARCH, READ, ANSWER)
    assert state["citehound"]["status"] == "complete"
    assert state["messages"][-1].content == ANSWER
    search, read = [m for m in state["messages"] if isinstance(m, ToolMessage)]
    assert json.loads(str(search.content))["hits"][0]["document"] == "rules/security"
    assert WITHIN_24 in json.loads(str(read.content))["text"]
    names = [tool["name"] for tool in model.offered]
    assert names[:3] == ["search_rules", "search_deals", "read_document"]
    by_name = {tool["name"]: tool for tool in model.offered}
    assert by_name["search_deals"]["parameters"]["properties"]["supplier"]["enum"] == ["Alpha", "Beta"]
    assert by_name["read_document"]["parameters"]["required"] == ["document"]


def test_a_model_that_cites_what_it_has_not_read_is_sent_back_and_then_marked(corpus: Corpus) -> None:
    state, model = run(corpus, SEARCH, ANSWER, ANSWER)
    assert state["citehound"]["status"] == "partial"
    assert state["citehound"]["claims"][0]["status"] == "unverified"
    final = str(state["messages"][-1].content)
    assert final.startswith(ANSWER) and "**Not verified**" in final and "not read" in final
    told = str(model.seen[-1][-1].content)
    assert "rules/security" in told and "not read" in told


def test_a_model_that_was_sent_back_can_read_and_mend_its_answer(corpus: Corpus) -> None:
    state, _ = run(corpus, SEARCH, ANSWER, READ, ANSWER)
    assert state["citehound"]["status"] == "complete"
    assert state["messages"][-1].content == ANSWER


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ('Incidents must be reported within 48 hours. [rules/security] "' + WITHIN_24 + '"', "48 hours"),
        ('Reports are due at once. [rules/security] "must be reported at once without any delay"', "rules/security"),
        ('Travel needs approval. [rules/nowhere] "travel needs approval of the desk"', "rules/nowhere"),
        ("Incidents must be reported within 24 hours.", "nothing is cited"),
        ("I have read everything and it is all fine [rules/security].", "rules/security"),
        ("", "nothing in the answer"),
    ],
)
def test_a_lying_model_is_caught(corpus: Corpus, lie: str, why: str) -> None:
    state, _ = run(corpus, READ, lie, lie)
    assert state["citehound"]["status"] in ("partial", "failed")
    assert all(claim["status"] != "verified" for claim in state["citehound"]["claims"])
    final = str(state["messages"][-1].content)
    assert "**Not verified**" in final and why in final


def test_what_a_model_says_that_it_has_read_counts_nothing(corpus: Corpus) -> None:
    boast = AIMessage(ANSWER, additional_kwargs={"citehound": {"passages": [{"document": "rules/security"}]}})
    state, _ = run(corpus, SEARCH, boast, boast)
    assert state["citehound"]["claims"][0]["status"] == "unverified"


def test_a_text_that_was_tampered_with_does_not_count_as_read(corpus: Corpus) -> None:
    state, _ = run(corpus, READ, ANSWER)
    messages = state["messages"]
    assert check_messages(messages, corpus).status == "complete"
    read = next(m for m in messages if isinstance(m, ToolMessage))
    forged = json.loads(json.dumps(read.artifact).replace("24 hours", "99 hours"))
    lie = ANSWER.replace("24 hours", "99 hours")
    answer = AIMessage(lie)
    other = [*messages[:2], read.model_copy(update={"artifact": forged}), answer]
    assert check_messages(other, corpus).claims[0].status == "unverified"


def test_conversations_that_share_their_tools_do_not_share_what_was_read(corpus: Corpus) -> None:
    tools = citehound_tools(corpus)

    def agent(*script: AIMessage) -> Any:
        return create_agent(Scripted(script=list(script)), tools, middleware=[CitehoundChecker(corpus)])

    reads = agent(READ, AIMessage(ANSWER)).invoke({"messages": [HumanMessage(QUESTION)]})
    lies = agent(AIMessage(ANSWER), AIMessage(ANSWER)).invoke({"messages": [HumanMessage(QUESTION)]})
    assert reads["citehound"]["status"] == "complete"
    assert lies["citehound"]["status"] == "partial"


def test_what_an_earlier_turn_has_read_can_be_cited_later_also_from_a_checkpoint(corpus: Corpus) -> None:
    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "one"}}

    def agent(*script: AIMessage) -> Any:
        return create_agent(
            Scripted(script=list(script)),
            citehound_tools(corpus),
            middleware=[CitehoundChecker(corpus)],
            checkpointer=saver,
        )

    agent(READ, AIMessage(ANSWER)).invoke({"messages": [HumanMessage(QUESTION)]}, config)
    again = agent(AIMessage(ANSWER)).invoke({"messages": [HumanMessage("Say that again?")]}, config)
    assert again["citehound"]["status"] == "complete"


def test_each_question_of_a_conversation_is_sent_back_at_most_once(corpus: Corpus) -> None:
    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "two"}}
    for _ in range(2):
        model = Scripted(script=[AIMessage(ANSWER), AIMessage(ANSWER)])
        agent = create_agent(model, citehound_tools(corpus), middleware=[CitehoundChecker(corpus)], checkpointer=saver)
        agent.invoke({"messages": [HumanMessage(QUESTION)]}, config)
        assert len(model.seen) == 2


def test_a_wrong_call_is_an_error_message_that_the_model_can_act_on(corpus: Corpus) -> None:
    wrong = call("search_rules", query="incidents", colour="red")
    state, _ = run(corpus, wrong, READ, ANSWER)
    failed = next(m for m in state["messages"] if isinstance(m, ToolMessage))
    assert failed.status == "error"
    assert "no parameter 'colour'" in str(failed.content) and "Traceback" not in str(failed.content)
    assert state["citehound"]["status"] == "complete"


def test_tools_work_in_async_agents(corpus: Corpus) -> None:
    agent = create_agent(
        Scripted(script=[SEARCH, READ, AIMessage(ANSWER)]),
        citehound_tools(corpus),
        middleware=[CitehoundChecker(corpus)],
    )
    state = asyncio.run(agent.ainvoke({"messages": [HumanMessage(QUESTION)]}))
    assert state["citehound"]["status"] == "complete"


def test_a_gap_counts_as_checked_once_it_was_searched_for(corpus: Corpus) -> None:
    said = "Missing: annual audit of suppliers (searched deals)"
    searched, _ = run(corpus, call("search_deals", query="annual audit"), said)
    assumed, _ = run(corpus, SEARCH, said, said)
    assert searched["citehound"]["status"] == "not_found"
    assert assumed["citehound"]["missing"][0]["status"] == "unchecked"


def test_messages_that_end_without_an_answer_are_refused(corpus: Corpus) -> None:
    for messages in ([], [HumanMessage(QUESTION)], [HumanMessage(QUESTION), SEARCH]):
        with pytest.raises(UsageError, match="no answer"):
            check_messages(messages, corpus)


# The retriever.


def test_the_retriever_gives_whole_passages_with_their_place_and_worth(corpus: Corpus) -> None:
    found = CitehoundRetriever(over=corpus, k=2).invoke(QUESTION)
    assert 0 < len(found) <= 2
    first = next(d for d in found if d.metadata["document"] == "rules/security")
    about = first.metadata
    text = corpus.document("rules/security", principal=OWNER).text
    assert first.page_content == text[about["start"] : about["end"]]
    assert (about["section"], about["source"], about["trust"], about["current"]) == ("7", "rules", "reviewed", True)
    assert first.id == f"rules/security#{about['start']}-{about['end']}"


def test_the_retriever_searches_only_the_sources_and_values_it_is_told(corpus: Corpus) -> None:
    alpha = CitehoundRetriever(over=corpus, filters={"supplier": "Alpha"}).invoke("report incidents")
    assert {d.metadata["document"] for d in alpha} == {"deals/alpha"}
    assert alpha[0].metadata["metadata"]["supplier"] == "Alpha"
    rules = CitehoundRetriever(over=corpus, sources=("rules",)).invoke("report incidents")
    assert {d.metadata["source"] for d in rules} == {"rules"}
    with pytest.raises(UsageError, match="no source 'nope'"):
        CitehoundRetriever(over=corpus, sources=("nope",)).invoke("report incidents")
    with pytest.raises(UsageError, match="colour"):
        CitehoundRetriever(over=corpus, filters={"colour": "red"}).invoke("report incidents")


def test_a_very_long_question_is_no_error(corpus: Corpus) -> None:
    assert CitehoundRetriever(over=corpus).invoke("incidents reported within hours " * 500)


def test_what_a_retriever_tool_gave_counts_as_read(corpus: Corpus) -> None:
    tool = create_retriever_tool(
        CitehoundRetriever(over=corpus), "search", "Search.", response_format="content_and_artifact"
    )
    agent = create_agent(
        Scripted(script=[call("search", query="incidents reported"), AIMessage(ANSWER)]),
        [tool],
        middleware=[CitehoundChecker(corpus)],
    )
    assert agent.invoke({"messages": [HumanMessage(QUESTION)]})["citehound"]["status"] == "complete"


def test_tools_are_langchain_tools_and_refuse_what_the_toolbox_refuses(corpus: Corpus) -> None:
    tools = {tool.name: tool for tool in citehound_tools(corpus)}
    assert all(isinstance(tool, BaseTool) for tool in tools.values())
    said = tools["search_rules"].invoke({"query": "x" * 300})
    assert "at most 256" in said
    assert not issubclass(ToolRefused, UsageError)  # such a message is for the model, not for the caller


def test_the_documented_agent_runs(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "integrations.md").read_text("utf-8")
    (example,) = [block for block in re.findall(r"^```py\n(.*?)^```", page, re.M | re.S) if "create_agent" in block]
    model = Scripted(script=[SEARCH, READ, AIMessage(ANSWER)])
    monkeypatch.setattr("langchain.agents.factory.init_chat_model", lambda *_, **__: model)
    monkeypatch.chdir(corpus.config.root)
    exec(compile(example, "example", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [ANSWER, "complete"]


def _without(package: str) -> Callable[[str], list[str]]:
    hide = (
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}: raise ImportError(f'No module named {{name!r}}')\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    return lambda code: [sys.executable, "-c", hide + code]


def test_a_missing_package_is_one_line_that_says_what_to_install() -> None:
    code = "try:\n    import citehound.integrations.langchain\nexcept Exception as e: print(type(e).__name__, e)"
    done = subprocess.run(_without("langchain")(code), capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UsageError") and "pip install 'citehound[langchain]'" in done.stdout
    assert len(done.stdout.splitlines()) == 1

"""Citehound in LangChain: tools for an agent, a retriever, and the check of an agent's final message.

What an agent has read is told from its messages: every tool message carries, as its artifact, what the call has
searched and read. So one set of tools serves any number of conversations, also such as a checkpointer brings back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NotRequired, cast

from ..access import OWNER, Principal
from ..assistant import Assistant
from ..corpus import Corpus
from ..documents import Passage, SearchHit
from ..errors import CitehoundError, UsageError
from ..evidence import Evidence
from ..session import Called, CheckedAnswer, Session, check_answer
from ..single import fuse, read_whole, short_query
from ..toolbox import MAX_HITS, Tool

if TYPE_CHECKING:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langgraph.runtime import Runtime

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
    from langchain_core.documents import Document
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import BaseTool, StructuredTool, ToolException
    from pydantic import ConfigDict, Field, TypeAdapter
except ImportError as problem:
    raise UsageError(f"this needs LangChain ({problem}): pip install 'citehound[langchain]'") from None

KEY = "citehound"
"""Of what is ours in artifacts, in messages and in an agent's state."""


def citehound_tools(over: Assistant | Corpus, *, principal: Principal = OWNER) -> list[BaseTool]:
    """The tools for `create_agent`: a search per source, reading, finding, listing and following leads.

    `principal` is who sees what they find. Results are JSON; what goes wrong is an error message the model can act on.
    """
    session = Session(_corpus(over), principal=principal)
    return [_tool(session, tool) for tool in session.tools]


def citehound_prompt(over: Assistant | Corpus, *, principal: Principal = OWNER) -> str:
    """A system prompt for such an agent: how to search, and the form of answer that can be checked."""
    return Session(_corpus(over), principal=principal).instructions


def check_messages(
    messages: Sequence[BaseMessage], over: Assistant | Corpus, *, principal: Principal = OWNER
) -> CheckedAnswer:
    """The verdicts on the last message, an agent's answer, from what its conversation has read.

    Cited documents must have been read in these messages, quotes must stand in what was read, and numbers in the
    quotes. Raises UsageError when the last message is no answer.
    """
    last = messages[-1] if messages else None
    if not isinstance(last, AIMessage) or last.tool_calls:
        raise UsageError("the last message is no answer of the model: hand over the messages of an agent that is done")
    asked = [m for m in messages if isinstance(m, HumanMessage) and not _is_ours(m)]
    view = _corpus(over).view(principal=principal)
    return check_answer(str(last.text), _evidence(messages), view, question=str(asked[-1].text) if asked else "")


class CheckedState(AgentState[Any]):
    """An agent's state with the verdicts on its answer."""

    citehound: NotRequired[dict[str, Any]]
    """`CheckedAnswer.to_dict()` of the final message."""


class CitehoundChecker(AgentMiddleware[CheckedState, Any, Any]):
    """Checks an agent's final message before it is given out.

    What fails goes back to the model once, with the reasons. What still fails is said below the message, and the
    verdicts on each claim stand in the state, under `citehound`.
    """

    state_schema = CheckedState

    def __init__(self, over: Assistant | Corpus, *, principal: Principal = OWNER) -> None:
        super().__init__()
        self._over = over
        self._principal = principal

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: CheckedState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        messages = state["messages"]
        last = messages[-1]
        if not isinstance(last, AIMessage) or last.tool_calls:
            return None
        checked = check_messages(messages, self._over, principal=self._principal)
        if checked.feedback and not _sent_back(messages):
            lines = "\n".join(f"- {line}" for line in checked.feedback)
            back = HumanMessage(
                f"The answer was checked by code, and this failed:\n{lines}\n"
                "Read what is missing, then give the whole answer again, in the form you were told.",
                additional_kwargs={KEY: "feedback"},
            )
            return {"messages": [back], "jump_to": "model"}
        update: dict[str, Any] = {KEY: checked.to_dict()}
        if checked.status not in ("complete", "direct", "not_found"):
            doubts = _doubts(checked)
            said = f"{last.text}\n\n**Not verified**\n" + "\n".join(f"- {doubt}" for doubt in doubts)
            update["messages"] = [last.model_copy(update={"content": said})]  # the same id: it takes its place
        return update


class CitehoundRetriever(BaseRetriever):
    """Finds whole passages. Each document's metadata says where it stands and what it is worth.

    `document`, `section`, `title`, `start` and `end` (offsets into the document's text), `current`, `labels`
    ('superseded by …'), `trust` ('reviewed' or 'open') and `source`; the document's own metadata is under `metadata`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    over: Assistant | Corpus = Field(exclude=True)
    principal: Principal = OWNER
    sources: tuple[str, ...] = ()
    """Names of the sources to search; none means all."""
    k: int = Field(default=6, ge=1, le=MAX_HITS)
    filters: dict[str, str] = Field(default_factory=dict)
    """Metadata that documents must have; only sources with all of these filters are searched."""
    only_current: bool = True

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        corpus = _corpus(self.over)
        known = {source.name: source for source in corpus.sources_for(self.principal)}
        for name in self.sources:
            if name not in known:
                raise UsageError(f"no source {name!r}: there are {', '.join(map(repr, known))}")
        wanted = [s for s in known.values() if not self.sources or s.name in self.sources]
        wanted = [s for s in wanted if set(self.filters) <= set(s.filters)]
        if not wanted:
            raise UsageError(f"no source has the filters {', '.join(map(repr, self.filters))}")
        words = short_query(query)
        found = [
            corpus.search(
                source.name,
                words,
                principal=self.principal,
                filters=self.filters or None,
                only_current=self.only_current,
                k=self.k,
            ).hits
            for source in wanted
        ]
        owners = {(h.document, h.start, h.end): s for s, hits in zip(wanted, found, strict=True) for h in hits}
        documents: list[Document] = []
        for hit in fuse(found)[: self.k]:
            try:
                settled = corpus.settled(hit, words, principal=self.principal)
                passage = read_whole(settled, corpus=corpus, principal=self.principal)
            except CitehoundError:  # it went between search and read
                continue
            owner = owners[hit.document, hit.start, hit.end]
            documents.append(_document(hit, passage, source=owner.name, trust=owner.trust))
        return documents


def _corpus(over: Assistant | Corpus) -> Corpus:
    return over.corpus if isinstance(over, Assistant) else over


def _tool(session: Session, tool: Tool) -> BaseTool:
    def given(called: Called) -> tuple[dict[str, Any], dict[str, Any]]:
        if "error" in called.result:
            raise ToolException(str(called.result["error"]))
        return called.result, _artifact(called.evidence)

    # LangChain hands the arguments over by name, whatever they are.
    def run(**arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return given(session.run_sync(tool.name, arguments))

    async def arun(**arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return given(await session.run(tool.name, arguments))

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.parameters,
        func=run,
        coroutine=arun,
        response_format="content_and_artifact",
        handle_tool_error=True,
    )


# Evidence in messages, as plain data that a checkpointer can keep.

_EVIDENCE = TypeAdapter(Evidence)
_PASSAGE = TypeAdapter(Passage)


def _artifact(evidence: Evidence) -> dict[str, Any]:
    """What a call has searched and read."""
    passages = tuple(replace(passage, outline=()) for passage in evidence.passages)
    kept = Evidence(passages=passages, searches=evidence.searches, finds=evidence.finds)
    return {KEY: _EVIDENCE.dump_python(kept, mode="json", exclude_defaults=True)}


def _evidence(messages: Sequence[BaseMessage]) -> Evidence:
    """What the tool messages of a conversation have searched and read; what a model says of it counts nothing."""
    found: list[Evidence] = []
    for message in messages:
        if not isinstance(message, ToolMessage) or message.status == "error":
            continue
        artifact: object = message.artifact
        if isinstance(artifact, Mapping) and KEY in artifact:
            found.append(_EVIDENCE.validate_python(artifact[KEY]))
        elif isinstance(artifact, list):  # of a tool that LangChain makes of a retriever
            documents = [d for d in cast("list[object]", artifact) if isinstance(d, Document) and KEY in d.metadata]
            read = [_PASSAGE.validate_python({**d.metadata, "text": d.page_content}) for d in documents]
            found.append(Evidence(passages=tuple(read)))
    return Evidence(
        passages=tuple(passage for one in found for passage in one.passages),
        searches=tuple(search for one in found for search in one.searches),
        finds=tuple(find for one in found for find in one.finds),
    )


def _document(hit: SearchHit, passage: Passage, *, source: str, trust: str) -> Document:
    return Document(
        id=f"{passage.document}#{passage.start}-{passage.end}",
        page_content=passage.text,
        metadata={
            KEY: True,
            "document": passage.document,
            "section": passage.section,
            "title": passage.title,
            "start": passage.start,
            "end": passage.end,
            "total_chars": passage.total_chars,
            "current": passage.current,
            "labels": list(passage.labels),
            "trust": trust,
            "source": source,
            "score": hit.score,
            "metadata": dict(passage.metadata),
        },
    )


def _is_ours(message: HumanMessage) -> bool:
    return message.additional_kwargs.get(KEY) == "feedback"


def _sent_back(messages: Sequence[BaseMessage]) -> bool:
    """True when the answer to the latest question was sent back already."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            return _is_ours(message)
    return False


def _doubts(checked: CheckedAnswer) -> list[str]:
    """Why an answer is not complete, a line per claim or gap."""
    found: list[str] = []
    for number, claim in enumerate(checked.claims, start=1):
        if claim.status != "verified":
            reasons = [c.reason for c in claim.citations if c.reason] or list(claim.warnings)
            why = "nothing is cited for it" if claim.status == "uncited" else "; ".join(dict.fromkeys(reasons))
            found.append(f"{number}. {' '.join(claim.text.split())[:200]}: {why}")
    found += [f"missing, and not searched for: {gap.what[:200]}" for gap in checked.missing if gap.status != "checked"]
    return found or ["there is nothing in the answer that could be checked"]

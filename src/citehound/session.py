"""The tools for somebody else's loop, what it has read with them, and the check of its answer; runs no model itself.

A loop over MCP, LangChain or a provider's SDK has its own memory of results, so every call is answered in full here,
also one made before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import ValidationError

from .access import OWNER, Principal
from .answers import Claim, Gap, Status, status_of
from .budget import Budget, Meter
from .corpus import Corpus
from .documents import Passage
from .drafts import Draft, cut_down, oversize
from .evidence import Evidence, Ledger
from .prompts import agent_instructions, answer_form
from .rendering import render_text
from .text_drafts import read_text
from .toolbox import Tool, Toolbox
from .verification import Documents, check

MOST_PASSAGES = 2000
"""Passages that a session keeps as read; the ones read longest ago go first."""
MOST_CHARS = 1_000_000
"""Characters of all of them."""
MOST_SEARCHES = 2000
"""Searches, and finds, that count for gaps and absences."""


@dataclass(frozen=True, kw_only=True)
class CheckedAnswer:
    """An answer of somebody else's loop with the verdicts of code."""

    status: Status
    """As of an `Answer`: 'complete' when there is a claim, every claim is verified and every gap was searched for."""
    text: str
    """The claims with their marks, then what is missing, as Markdown."""
    claims: tuple[Claim, ...] = ()
    missing: tuple[Gap, ...] = ()
    feedback: tuple[str, ...] = ()
    """What failed and what to do about it, a line each, to send back to the model; empty when nothing failed."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Called:
    """One call: what the model gets, and what was searched and read by it."""

    result: dict[str, Any]
    evidence: Evidence


class Session:
    """One conversation of somebody else's loop: its tools, and what it has read with them.

    Live sources may spend up to the configured `max_dollars` in it. A source that reaches out is left out where
    another one is private: this loop reads whole texts, and its model could carry them along. Safe for parallel calls.
    """

    def __init__(self, corpus: Corpus, *, principal: Principal) -> None:
        budget = Budget(max_steps=None, max_dollars=corpus.config.budget.max_dollars, max_seconds=None)
        self._corpus = _kept_in(corpus).for_run("", principal=principal, meter=Meter(budget))
        self._principal = principal
        self._lock = threading.Lock()
        self._evidence = Evidence()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What may be called: name, description and the JSON Schema of the parameters."""
        return Toolbox(self._corpus, principal=self._principal, ledger=Ledger()).tools

    @property
    def instructions(self) -> str:
        """What to tell the model: how to search, and the form of a final answer that `check_answer` can read."""
        return f"{agent_instructions(self._corpus.sources_for(self._principal))}\n\n{answer_form('text')}"

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one tool. What goes wrong comes back as `{"error": one line}`; raises nothing but cancellation."""
        return (await self.run(name, arguments)).result

    def call_sync(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`call` for callers that cannot wait; also where the thread runs an event loop, as in a notebook."""
        return self.run_sync(name, arguments).result

    async def run(self, name: str, arguments: Mapping[str, Any]) -> Called:
        """`call`, with the evidence of this call alone beside its result."""
        ledger = Ledger(carried=self.evidence().passages)
        toolbox = await asyncio.to_thread(Toolbox, self._corpus, principal=self._principal, ledger=ledger)
        result = await toolbox.call(name, arguments)
        evidence = replace(ledger.evidence(), carried=())
        self._keep(evidence)
        return Called(result=result, evidence=evidence)

    def run_sync(self, name: str, arguments: Mapping[str, Any]) -> Called:
        """`run` for callers that cannot wait."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.run(name, arguments))
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(lambda: asyncio.run(self.run(name, arguments))).result()

    def read(self, passage: Passage) -> None:
        """Counts a passage as read that was handed out by other means than a tool."""
        self._keep(Evidence(passages=(passage,)))

    def evidence(self) -> Evidence:
        """What was searched and read so far."""
        with self._lock:
            return self._evidence

    def check_answer(self, answer: Draft | Mapping[str, Any] | str, *, question: str = "") -> CheckedAnswer:
        """The verdicts on an answer, against what this session has read; see the function `check_answer`."""
        view = self._corpus.view(principal=self._principal)
        return check_answer(answer, self.evidence(), view, question=question)

    def _keep(self, more: Evidence) -> None:
        with self._lock:
            before = self._evidence
            passages = {_place(p): p for p in before.passages}
            for passage in more.passages:
                passages.pop(_place(passage), None)
                passages[_place(passage)] = passage
            kept: list[Passage] = []
            chars = 0
            for passage in reversed(passages.values()):
                chars += len(passage.text)
                if len(kept) == MOST_PASSAGES or (kept and chars > MOST_CHARS):
                    break
                kept.append(passage)
            self._evidence = Evidence(
                passages=tuple(reversed(kept)),
                searches=(*before.searches, *more.searches)[-MOST_SEARCHES:],
                finds=(*before.finds, *more.finds)[-MOST_SEARCHES:],
            )


def check_answer(
    answer: Draft | Mapping[str, Any] | str, evidence: Evidence, documents: Documents, *, question: str = ""
) -> CheckedAnswer:
    """The verdicts on an answer: quotes against what was read, numbers against the quotes.

    `answer` is a draft, its JSON object, or text in the form that `Session.instructions` give. A text in any other form
    is taken line by line as claims that nothing is cited for.
    """
    faults: tuple[str, ...] = ()
    if isinstance(answer, str):
        read = read_text(answer)
        draft, faults = read.draft, read.faults
    elif isinstance(answer, Draft):
        draft = answer
    else:
        draft, faults = _draft_of(answer)
    if too_big := oversize(draft):
        draft, faults = cut_down(draft), (*faults, *too_big)
    checked = check(draft, evidence, documents, question=question)
    direct = (draft.text or "").strip() if not checked.claims and not checked.missing else ""
    text = direct or render_text(checked.claims, checked.missing)
    return CheckedAnswer(
        status=status_of(
            stop_reason="answered", text=text, claims=checked.claims, missing=checked.missing, direct=bool(direct)
        ),
        text=text,
        claims=checked.claims,
        missing=checked.missing,
        feedback=(*faults, *checked.feedback),
    )


def _kept_in(corpus: Corpus) -> Corpus:
    """The corpus without the sources that reach out beside a private one."""
    private = {s.name for s in corpus.sources if s.private}
    kept = [s.name for s in corpus.sources if not (s.reaches_out and private - {s.name})]
    return corpus if len(kept) == len(corpus.sources) else corpus.only(kept, principal=OWNER)


def _place(passage: Passage) -> tuple[str, int, int, str]:
    return passage.document, passage.start, passage.end, passage.text


def _draft_of(answer: Mapping[str, Any]) -> tuple[Draft, tuple[str, ...]]:
    try:
        return Draft.model_validate(dict(answer)), ()
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return Draft(), (f"the answer has no such form at {where or 'the top'}: {first['msg']}",)

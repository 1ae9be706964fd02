"""One conversation with a model under a budget: turns, the last draft, its checks, and what is shown when all fails.

Shared by `agent` and `single`; it knows tools only as a `Toolbox` and searches nothing itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Literal, cast

from pydantic import ValidationError
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import GenerateToolJsonSchema, ToolDefinition
from pydantic_core import ErrorDetails

from .answers import Citation, Claim, Gap, Row, StopReason
from .budget import Meter, Price, worst_tokens
from .context import FRAME, Compaction, compacting, request_tokens, size
from .drafts import Draft, DraftCitation, DraftClaim, DraftGap, cut_down, oversize
from .errors import BudgetExceeded
from .events import ClaimDrafted, Compacted, Emit, StepStarted, nowhere
from .evidence import Evidence, Ledger
from .models import OpenedModel
from .prompts import (
    FINAL_ANSWER,
    NOTHING_SEARCHED,
    answer_form,
    feedback,
    form_feedback,
    how_to_answer,
    no_calls_left,
    step_notes,
    wrong_form,
)
from .security import PROMPT_MARK, REDACTED, Draw, Prompt, draw_mark, sealed, visible
from .text_drafts import read_text
from .toolbox import MAX_CALLS, RESULT_TOKENS, Toolbox
from .verification import Checked, Documents, check
from .wire import Fault, RequestFailed, Sleep, Wire, one_line

MAX_RETRIES = 3
"""Requests repeated inside the steps of one run because the reply was no usable draft."""
_MOST_ANSWERED = 2 * MAX_CALLS
"""Calls of one turn that get a result, be it a refusal; those beyond it are dropped from the turn, and that is said."""
_MOST_DRAFTS = 3
"""Drafts of one reply that are looked at."""
_REFUSAL = 60
"""Tokens of a refused call and its result."""
_MIN_RESULTS = 2500
"""A turn makes no sense with less room for results than this, in tokens of all its results together."""
_NEARLY_FULL = 2 * _MIN_RESULTS
"""Room for results in the window below which old search results are shortened."""

_LONG_LINE = 100
"""Characters of a line of the instructions from which on it is kept from answers."""
_MOST_FAULTS = 20
"""Of the form of one draft that are told."""
_SAYS_NOTHING = "it says nothing: give claims with their citations, and under missing what was not found"
_MOST_QUOTED = 20
"""Documents that a partial composed by code quotes."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Output caps of one request."""

    turn_tokens: int = 1500
    draft_tokens: int = 4000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a strategy hands to the assistant."""

    claims: tuple[Claim, ...] = ()
    missing: tuple[Gap, ...] = ()
    text: str | None = None
    """Set for an answer that used no document."""
    stop_reason: StopReason = "answered"
    warnings: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    """The table of a survey."""
    provider_failed: bool = False
    """The provider gave up or was given up: asking it again in this run is no use."""


Why = Literal["unsearched", "form", "claims"]
"""Why a draft is sent back, each once in a run."""


class SentBack(Exception):
    """A draft is not taken; says to the model what to mend. `why` is None where it can be said again and again."""

    def __init__(self, said: str, *, why: Why | None = None) -> None:
        super().__init__(said)
        self.why: Why | None = why


class Stopped(Exception):
    """Ends the conversation from inside; carries the stop reason and, for the reader, why."""

    def __init__(self, reason: StopReason, why: str) -> None:
        super().__init__(why)
        self.reason: StopReason = reason


@dataclass(frozen=True, kw_only=True)
class Replies:
    """What is said to a response."""

    parts: tuple[ModelRequestPart, ...]
    back: bool
    """It asks for a better draft."""


class Conversation:
    """The state of one run: what the next request may cost, why it must end, and the last draft that was checked."""

    def __init__(
        self,
        *,
        model: OpenedModel,
        meter: Meter,
        ledger: Ledger,
        documents: Documents,
        question: str,
        toolbox: Toolbox | None = None,
        limits: Limits | None = None,
        emit: Emit = nowhere,
        agent: str = "main",
        sleep: Sleep = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        only: Sequence[Citation] | None = None,
        earlier: Prompt | None = None,
        draw: Draw = draw_mark,
    ) -> None:
        self.model = model
        self.meter = meter
        self.ledger = ledger
        self.documents = documents
        self.question = question
        self.toolbox = toolbox
        self.limits = limits or Limits()
        self.emit = emit
        self.agent = agent
        self.only = only
        """Verified citations, and the draft may use no others; None lifts that."""
        self.earlier = earlier
        """What was said and read in earlier turns of a chat, as it is added to the prompt."""
        self.draw = draw
        """Gives the marks around tool results."""
        self.price: Price = model.price or Price(input=0.0, output=0.0)
        self.wire = Wire(
            model=model.model,
            price=self.price,
            meter=meter,
            stream=model.stream,
            emit=emit,
            agent=agent,
            sleep=sleep,
            chance=chance,
        )
        self.forced: StopReason | None = None
        """Why the last draft was asked for; None while the model may go on."""
        self.last = toolbox is None
        """True once function tools are withheld."""
        self.stopped: Stopped | None = None
        self.draft: Draft | None = None
        self.checked: Checked | None = None
        self.warnings: list[str] = []
        self._marks: list[str] = []
        """Those around the results of this run."""
        self._step = 0
        self._retries = 0
        self._ignored = 0
        """Turns in which calls were made although only the answer was asked for."""
        self._told: set[Why] = set()
        """What drafts were sent back for."""
        self._counted = 0
        """Messages whose tokens a response has reported, together with tools and instructions."""
        self._known = 0
        self._tail = 0
        """Worst case of the next request's input, as of the last one sent and answered."""
        self._base = 0
        self._sent = 0
        self._scale = 1.0
        """Above 1 once a provider counted more tokens than the estimate; later estimates grow by it."""
        self._compaction: Compaction | None = None
        self._drafts = 0
        self._text_faults: tuple[str, ...] = ()
        """What is wrong with the form of a draft that came as text."""
        self._form: tuple[str, ...] = ()
        """What is wrong with the form of the draft that was checked last."""
        self._answering = how_to_answer(model.structured)

    def stop(self, reason: StopReason, why: str) -> Stopped:
        self.stopped = Stopped(reason, why)
        return self.stopped

    # planning a request

    def plan(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters, *, retry: bool = False) -> int:
        """Decides what the next request is (a turn, or the last draft) and returns its cap of output tokens.

        `retry`: it asks for a better draft.
        """
        base = self.input_tokens(messages, parameters)
        if self.model.window is not None and self._window_left(base) < _NEARLY_FULL:
            base -= self._compact(messages)
        self._base = base
        self._sent = len(messages)
        limits = self.limits
        if retry:
            self._retries += 1
            if self._retries > MAX_RETRIES:
                raise self.stop(self.forced or "model_error", "the model gave no usable draft")
        if not retry:
            if self.toolbox is not None and self.last:
                self._ignored += 1
                if self._ignored > (0 if self.forced == "no_progress" else 1):
                    raise self.stop(self.forced or "model_error", "the model called tools instead of answering")
            elif self.toolbox is not None:
                self.forced = self._must_finish(base)
                self.last = self.forced is not None
            if self.meter.steps_left() == 0:
                raise self.stop(self.forced or "steps", "the step cap is reached")
            try:
                self._step = self.meter.begin_step()
            except BudgetExceeded as problem:
                raise self.stop("steps", str(problem)) from problem
            self._tell_step()
            if self.toolbox is not None:
                self.toolbox.begin_step(
                    self._step,
                    notes=() if self.last else step_notes(steps_left=self.meter.steps_left()),
                    closed=self._closed() if self.last else None,
                )
        elif self.toolbox is not None and not self.last:
            self.forced = self._must_finish(base)
            if self.forced is None and self.meter.steps_left() == 0:
                self.forced = "steps"
            self.last = self.forced is not None
            if self.last:
                self.toolbox.begin_step(self._step, closed=self._closed())
        if self.last:
            cap = self._draft_cap(base)
            if cap is None:
                raise self.stop("dollars", "not even a last draft fits into the dollars left")
            if self.model.window is not None and base + cap > self.model.window:
                raise self.stop("context", self._too_full())
            return cap
        return self._redraft_cap(base) if retry else limits.turn_tokens

    def _tell_step(self) -> None:
        spent = self.meter.run_spent()
        dollars = None if self.model.price is None else spent.dollars + spent.reserved
        self.emit(StepStarted(step=self._step, agent=self.agent, seconds=round(spent.seconds, 3), dollars=dollars))

    @property
    def _least_draft(self) -> int:
        """Output that a last draft must have: half of its cap, where dollars are short."""
        return max(1, self.limits.draft_tokens // 2)

    def _draft_cap(self, base: int) -> int | None:
        """The output cap of a last draft that the dollars left allow, or None."""
        cap = self.limits.draft_tokens
        while not self.meter.fits(self.price.worst(input_tokens=base, output_tokens=cap)):
            if cap <= self._least_draft:
                return None
            cap = max(self._least_draft, cap - max(1, self.limits.draft_tokens // 16))
        return cap

    def _redraft_cap(self, base: int) -> int:
        """The output cap where a draft was sent back: that of a draft if a last one still fits after it."""
        turn, draft = self.limits.turn_tokens, self.limits.draft_tokens
        fits = self._room_for_results(base, turn_tokens=draft) >= _MIN_RESULTS
        if self.model.window is not None:
            fits = fits and self._window_left(base) - (draft - turn) >= _MIN_RESULTS
        return max(turn, draft) if fits else turn

    def _too_full(self) -> str:
        if self._step > 1 or self.toolbox is None:
            return "what was read fills the model's context window"
        return (
            f"the model's context window of {self.model.window} tokens is too small to search with: use the mode "
            "single, lower draft_tokens under [model], or start the model with a larger window"
        )

    def _closed(self) -> str:
        return no_calls_left(self.forced, answer=self._answering)

    def _compact(self, messages: Sequence[ModelMessage]) -> int:
        """Shortens old search results from now on, once in a run; returns a safe guess of the tokens that this saves.

        The guess is half of the estimate: the estimate is from above, and a saving must not be.
        """
        if self._compaction is not None:
            return 0
        found = compacting(messages)
        saved = found.saved // 2
        if saved < _MIN_RESULTS // 5:
            return 0
        self._compaction = found.compaction
        self._known = max(0, self._known - saved)
        if self.toolbox is not None:
            self.toolbox.forget(before=self._step)
        self.emit(Compacted(step=self._step, results=found.results, agent=self.agent))
        self.warnings.append(f"{found.results} old search results were shortened to fit into the model's window")
        return saved

    def shown(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """The messages as they are sent."""
        return list(messages) if self._compaction is None else self._compaction.applied(messages)

    def _must_finish(self, base: int) -> StopReason | None:
        """Why the next request has to be the last draft, or None. `base`: worst case of its input."""
        if self.toolbox is not None and self.toolbox.no_progress:
            return "no_progress"
        steps = self.meter.steps_left()
        if steps is not None and steps <= 1:
            return "steps"
        seconds = self.meter.seconds_left()
        if seconds is not None and seconds <= self._room():
            return "seconds"
        if self._room_for_results(base, turn_tokens=self.limits.turn_tokens) < _MIN_RESULTS:
            return "dollars"
        if self._window_left(base) < _MIN_RESULTS:
            return "context"
        return None

    def _room_for_results(self, base: int, *, turn_tokens: int) -> int:
        """How many tokens of results the dollars left allow, so that a last draft still fits after them.

        `base`: worst case of the input before them; `turn_tokens`: output of the turn, 0 when it is paid already.
        """
        left = self.meter.dollars_left()
        if left is None:
            return MAX_CALLS * RESULT_TOKENS
        if turn_tokens:
            left -= self.price.worst(input_tokens=base, output_tokens=turn_tokens)
            left -= 0.0 if self.toolbox is None else self.toolbox.fees
        after = base + self._echo(turn_tokens)
        room = self.price.room(left, input_tokens=after, output_tokens=self._least_draft)
        return MAX_CALLS * RESULT_TOKENS if room is None else room

    def _window_left(self, base: int) -> int:
        """How many tokens of results the window still holds before a last draft."""
        if self.model.window is None:
            return MAX_CALLS * RESULT_TOKENS
        return self.model.window - base - self._echo(self.limits.turn_tokens) - self.limits.draft_tokens

    def _echo(self, turn_tokens: int) -> int:
        """What a turn adds to the next input besides results: its words, and refusals of calls beyond the eighth."""
        return turn_tokens + (_MOST_ANSWERED - MAX_CALLS) * _REFUSAL

    def _room(self) -> float:
        """Seconds to keep for the last draft."""
        limit = self.meter.budget.max_seconds or 0.0
        return max(1.5 * self.wire.longest, min(0.15 * limit, 20.0))

    def input_tokens(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
        """Worst case of a request's input: what was reported before, and an upper estimate of what is new."""
        if 0 < self._counted <= len(messages):
            return self._known + math.ceil(self._scale * size(messages[self._counted :]))
        return math.ceil(self._scale * request_tokens(self.shown(messages), parameters))

    # sending a request

    async def send(
        self, messages: Sequence[ModelMessage], settings: dict[str, Any], parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Sends one planned request, again where the reply is cut or empty."""
        again: StopReason | None = None
        """Why the request is sent a second time; it is also how the run ends if that fails."""
        while True:
            try:
                response = await self.wire.request(
                    self.shown(messages),
                    settings,
                    parameters,
                    input_tokens=self._base,
                    step=self._step,
                    keep=0.0 if self.last else self._room(),
                )
            except RequestFailed as failed:
                if failed.reason == "seconds" and not self.last:
                    settings = self._close("seconds", settings)
                    continue
                if failed.reason == "context" and again is None and (saved := self._compact(messages)):
                    again, self._base = "context", self._base - saved
                    settings = self._close("context", settings)
                    continue
                raise self.stop(again or failed.reason, str(failed)) from failed
            cap = int(settings["max_tokens"])
            if response.finish_reason == "content_filter":
                raise self.stop("refused", "the model refused to answer")
            if response.finish_reason == "length" and not _whole_calls(response):
                room = self._draft_cap(self._base) or 0
                if again == "truncated" or cap >= room:
                    raise self.stop("truncated", f"the reply was cut at {cap} tokens")
                again, settings = "truncated", {**settings, "max_tokens": room}
                continue
            if not _says_something(response):
                if again == "empty":
                    raise self.stop("empty", "the model gave an empty reply")
                again = "empty"
                continue
            response = self._with_call(self._bounded(self._hushed(response, messages)))
            self._settle_size(response)
            return response

    def _hushed(self, response: ModelResponse, messages: Sequence[ModelMessage]) -> ModelResponse:
        """The reply without marks and without whole lines of the instructions: neither is for a reader or a record."""
        hide = [*self._marks, *_hushed_texts(messages)]

        def hushed(value: Any) -> Any:
            if isinstance(value, str):
                for text in hide:
                    value = value.replace(text, REDACTED)
                return value
            if isinstance(value, list):
                return [hushed(item) for item in cast(list[Any], value)]
            if isinstance(value, dict):
                return {str(key): hushed(item) for key, item in cast(dict[Any, Any], value).items()}
            return value

        parts: list[Any] = []
        for part in response.parts:
            if isinstance(part, TextPart) and (text := hushed(part.content)) != part.content:
                part = replace(part, content=text)
            elif isinstance(part, ToolCallPart) and (given := _arguments(part)) is not None:
                said = hushed(given)
                part = part if said == given else replace(part, args=said)
            parts.append(part)
        return replace(response, parts=parts)

    def drawn(self) -> str:
        """A fresh mark, which is remembered."""
        mark = self.draw()
        self._marks.append(mark)
        return mark

    def _bounded(self, response: ModelResponse) -> ModelResponse:
        """A turn with far too many calls keeps the first of them, and the model and the reader are told. Arguments
        that are no JSON object stay what they are, as text."""
        kept: list[Any] = []
        calls = dropped = drafts = 0
        for part in response.parts:
            if isinstance(part, ToolCallPart):
                given = cast(object, part.args)
                if not (given is None or isinstance(given, str | dict)):
                    part = replace(part, args=json.dumps(given))
            if isinstance(part, ToolCallPart) and part.tool_name == FINAL_ANSWER:
                drafts += 1
                if drafts > _MOST_DRAFTS:
                    continue
            elif isinstance(part, ToolCallPart):
                calls += 1
                if calls > _MOST_ANSWERED:
                    dropped += 1
                    continue
            kept.append(part)
        if drafts > _MOST_DRAFTS:
            self.warnings.append(
                f"step {self._step}: {drafts} answers came at once; only {_MOST_DRAFTS} were looked at"
            )
        if not dropped:
            return replace(response, parts=kept)
        note = f"{calls} calls were asked for in one step: {MAX_CALLS} run, {dropped} were dropped unanswered"
        self.warnings.append(f"step {self._step}: {note}")
        if self.toolbox is not None:
            self.toolbox.note(note)
        return replace(response, parts=kept)

    def _with_call(self, response: ModelResponse) -> ModelResponse:
        """A draft that came as text becomes the call or the JSON it should have been; what is wrong with its form is
        kept."""
        form = self.model.structured
        if form == "text" or any(isinstance(p, ToolCallPart) for p in response.parts):
            return response
        text = "".join(p.content for p in response.parts if isinstance(p, TextPart))
        if form == "native" and text.lstrip().startswith("{"):
            return response
        draft, faults = self._read(text)
        self._text_faults = (wrong_form(form),) if faults else ()
        made = (
            TextPart(draft.model_dump_json())
            if form == "native"
            else ToolCallPart(FINAL_ANSWER, draft.model_dump(mode="json"))
        )
        return replace(response, parts=[*(p for p in response.parts if not isinstance(p, TextPart)), made])

    def _read(self, text: str) -> tuple[Draft, tuple[str, ...]]:
        """The draft in a text and the faults of its form. Plain words of a run that has called nothing are taken as
        an answer without documents."""
        found = read_text(text)
        if not found.cites and not self.ledger.evidence().calls:
            return Draft(text=text.strip()), ()
        return found.draft, found.faults

    def read_text(self, text: str) -> Draft:
        """The output function of a model that drafts in text."""
        draft, self._text_faults = self._read(text)
        return draft

    def _close(self, reason: StopReason, settings: dict[str, Any]) -> dict[str, Any]:
        """Turns a request that was a turn into the last draft."""
        self.forced, self.last = reason, True
        if self.toolbox is not None:
            self.toolbox.begin_step(self._step, closed=self._closed())
        cap = self._draft_cap(self._base) or self._least_draft
        return {**settings, "max_tokens": cap, "tool_choice": "none"}

    def _settle_size(self, response: ModelResponse) -> None:
        usage = response.usage
        said = size([response])
        if usage.input_tokens > self._base > 0:
            self._scale *= usage.input_tokens / self._base
        if usage.input_tokens:
            self._counted = self._sent + 1
            self._known = usage.input_tokens + max(usage.output_tokens, said)
        self._tail = self._base + said
        if self.toolbox is not None and not self.last:
            calls = sum(1 for part in response.parts if isinstance(part, ToolCallPart))
            after = self._known or self._tail
            room = min(self._room_for_results(after, turn_tokens=0), self._window_left(after))
            share = room // max(1, min(calls, MAX_CALLS))
            self.toolbox.limit_results(max(300, min(RESULT_TOKENS, share)))

    # answering a response

    async def replies(self, response: ModelResponse) -> Replies | None:
        """What is said to a response; None where its draft is taken. Calls run in the order in which they are asked
        for, those beside each other at the same time, and what is asked for after a draft that is taken does not."""
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        parts: list[ModelRequestPart] = []
        sent_back: list[SentBack] = []
        if not calls:
            text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
            read = self.read_text if self.model.structured == "text" else _draft
            back = await self._drafted(lambda: read(text))
            if back is None:
                return None
            sent_back.append(back)
            parts.append(UserPromptPart(str(back)))
        # A model that should write its answer may call for it all the same.
        for drafts, group in groupby(calls, key=lambda c: c.tool_name == FINAL_ANSWER):
            if not drafts:
                parts += await asyncio.gather(*map(self._result, group))
                continue
            for part in group:
                back = await self._drafted(partial(_draft, cast("str | dict[str, Any] | None", part.args)))
                if back is None:
                    return None
                sent_back.append(back)
                parts.append(ToolReturnPart(FINAL_ANSWER, str(back), tool_call_id=part.tool_call_id, outcome="retried"))
        # Only now, so that of two drafts in one reply the second is not taken for the first one mended.
        self._told.update(back.why for back in sent_back if back.why is not None)
        # Without tools there is nothing to call, and whoever calls is asked for a draft again.
        return Replies(parts=tuple(parts), back=bool(sent_back) or self.toolbox is None)

    async def _drafted(self, draft: Callable[[], Draft]) -> SentBack | None:
        """Why a draft is sent back; None where it is taken."""
        try:
            await self.validate(draft())
        except SentBack as back:
            return back
        except ValidationError as wrong:
            faults = [_wrong(fault) for fault in wrong.errors()[:_MOST_FAULTS]]
            return SentBack(form_feedback(faults, answer=self._answering))
        return None

    async def _result(self, part: ToolCallPart) -> ToolReturnPart:
        """The result of a call, or why there is none."""
        given = await self._called(part.tool_name, _arguments(part))
        # Marked once: the result stays in the messages as it is, and is sent again as it is.
        return ToolReturnPart(part.tool_name, sealed(given, draw=self.drawn), tool_call_id=part.tool_call_id)

    async def _called(self, name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        if self.toolbox is None:
            return {"error": f"no tool {name!r}: {self._answering}"}
        if arguments is None:
            return self.toolbox.failed(name, "the arguments are no JSON object")
        return await self.toolbox.call(name, arguments)

    # checking a draft

    async def validate(self, draft: Draft) -> None:
        """Checks a draft. Raises SentBack where it should be mended, once for each reason and if the budget allows
        that; one that says nothing is none."""
        faults, self._text_faults = self._text_faults, ()
        evidence = self.ledger.evidence()
        if too_big := oversize(draft):
            faults = (*faults, *too_big)
            draft = cut_down(draft)
            faults = (*faults, f"it was cut to {len(draft.claims)} claims and {len(draft.missing)} missing entries")
        draft = _without_text(draft, used_documents=bool(evidence.calls or self.earlier))
        if not (draft.claims or draft.missing or draft.text):
            raise SentBack(form_feedback([_SAYS_NOTHING], answer=self._answering))
        self._drafts += 1
        for number, claim in enumerate(draft.claims, start=1):
            self.emit(
                ClaimDrafted(
                    step=self._step,
                    draft=self._drafts,
                    number=number,
                    text=visible(claim.text),
                    kind=claim.kind,
                    documents=tuple(dict.fromkeys(visible(c.document) for c in claim.citations)),
                    agent=self.agent,
                )
            )
        checked = await asyncio.to_thread(
            check, draft, evidence, self.documents, question=self.question, only=self.only
        )
        self.draft, self.checked, self._form = draft, checked, faults
        reused = any(claim.status == "verified" for claim in checked.claims)
        if self.toolbox is not None and not (evidence.calls or reused or self.last):
            self._send_back("unsearched", NOTHING_SEARCHED)
        if faults:
            self._send_back("form", form_feedback(faults, answer=self._answering))
        # Without tools, a gap that was not searched for cannot be mended; a claim can.
        mendable = not self.last or any(claim.status != "verified" for claim in checked.claims)
        if checked.feedback and mendable:
            self._send_back("claims", feedback(checked.feedback, answer=self._answering))

    def _send_back(self, why: Why, said: str) -> None:
        """Raises SentBack where the model was not told so before, and can be."""
        if why not in self._told and self._retry_fits(said):
            raise SentBack(said, why=why)

    def _retry_fits(self, back: str) -> bool:
        if self._retries >= MAX_RETRIES:
            return False
        tokens = (self._known or self._tail) + worst_tokens(back) + 20 * FRAME
        seconds = self.meter.seconds_left()
        if seconds is not None and seconds <= self.wire.longest:
            return False
        if self.model.window is not None and tokens + self.limits.draft_tokens > self.model.window:
            return False
        return self.meter.fits(self.price.worst(input_tokens=tokens, output_tokens=self.limits.draft_tokens))

    # the end

    def outcome(self, problem: BaseException | None = None) -> Outcome:
        """What to show: the last draft with its marks, or a partial composed from the ledger."""
        reason: StopReason = self.forced or "answered"
        warnings = [*self.warnings, *_asked_again(self.wire.faults)]
        why = None
        failed = self.stopped is not None and isinstance(self.stopped.__cause__, RequestFailed)
        if problem is not None:
            reason, why = self._why(problem)
            warnings.append(why)
        if self.checked is not None and self.draft is not None:
            checked = self.checked
            if self._form:
                warnings.append(f"the answer does not keep to its form and is taken as it is: {self._form[0]}"[:300])
            direct = None if checked.claims or checked.missing else self.draft.text
            direct = None if direct is None else visible(direct)
            claims = checked.claims
            if direct is not None and problem is not None:  # it was sent back, so it is no answer by itself
                claims, direct = (Claim(text=direct),), None
            return Outcome(
                claims=claims,
                missing=checked.missing,
                text=direct,
                stop_reason=reason,
                warnings=tuple(warnings),
                provider_failed=failed,
            )
        partial = compose_partial(
            self.ledger.evidence(),
            self.documents,
            question=self.question,
            stop_reason=reason,
            warnings=tuple(warnings),
            declared=why if self._declares() else None,
        )
        return replace(partial, provider_failed=failed)

    def _declares(self) -> bool:
        """True where a run that could not even search says so as a partial answer: it did what could be done.

        A key that is refused, a request that is wrong or a fault of unknown kind is an error to mend.
        """
        if self.stopped is None or self.stopped.reason in ("dollars", "steps", "cancelled"):
            return False
        fault = self.wire.faults[-1] if self.wire.faults and self.stopped.reason == "model_error" else None
        return fault is None or fault.kind not in ("auth", "rejected", "unknown")

    def _why(self, problem: BaseException) -> tuple[StopReason, str]:
        if self.stopped is not None:
            return self.stopped.reason, f"stopped early ({self.stopped.reason}): {one_line(self.stopped)}"
        if isinstance(problem, asyncio.CancelledError):
            return "cancelled", "cancelled"
        return "model_error", f"stopped early (model_error): {one_line(problem)}"


def compose_partial(
    evidence: Evidence,
    documents: Documents,
    *,
    question: str,
    stop_reason: StopReason,
    warnings: tuple[str, ...] = (),
    declared: str | None = None,
) -> Outcome:
    """A declared partial made by code: of each document read, the sentence that shares most words with the question,
    and the gap. Nothing at all when nothing was called, unless `declared` says why: then the gap alone.
    """
    if not evidence.calls:
        gap = Gap(what=question, reason=f"nothing was searched: {declared}")
        return Outcome(missing=(gap,) if declared else (), stop_reason=stop_reason, warnings=warnings)
    words = {w for w in re.findall(r"\w{4,}", question.casefold())}
    found: dict[str, tuple[int, DraftClaim]] = {}
    for passage in evidence.passages:
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", passage.text):
            sentence = sentence.strip()
            if not 4 <= len(sentence.split()) <= 60:
                continue
            score = len(words & set(re.findall(r"\w{4,}", sentence.casefold())))
            best = found.get(passage.document)
            if best is None or score > best[0]:
                citation = DraftCitation(document=passage.document, quote=sentence)
                found[passage.document] = (score, DraftClaim(text=sentence, citations=(citation,)))
    best_first = sorted(found.values(), key=lambda pair: -pair[0])[:_MOST_QUOTED]
    draft = Draft(
        claims=tuple(claim for _, claim in best_first),
        missing=(
            DraftGap(
                what=question,
                reason="the run ended before an answer was drafted; what was read so far is quoted without judging it",
            ),
        ),
    )
    checked = check(draft, evidence, documents, question=question)
    gaps = tuple(replace(gap, status="unchecked") for gap in checked.missing)
    return Outcome(claims=checked.claims, missing=gaps, stop_reason=stop_reason, warnings=warnings)


async def converse(
    conversation: Conversation, *, prompt: Prompt, instructions: Prompt, settings: Mapping[str, Any] | None = None
) -> Outcome:
    """Runs the conversation to its end. Raises nothing but cancellation."""
    state = conversation
    told = answer_form(state.model.structured)
    if state.earlier and state.only is None:
        prompt = Prompt(f"{prompt}\n\n{state.earlier}")
    try:
        async with state.model.model:
            await _exchange(
                state,
                prompt=prompt,
                instructions=f"{instructions}\n\n{told}" if told else instructions,
                settings={"parallel_tool_calls": True, **state.model.settings, **(settings or {})},
            )
    except Exception as problem:
        return await asyncio.to_thread(state.outcome, problem)
    return state.outcome()


async def _exchange(state: Conversation, *, prompt: str, instructions: str, settings: Mapping[str, Any]) -> None:
    """Request after request, until a draft is taken. Raises what ends it otherwise."""
    parameters = _parameters(state, instructions)
    messages: list[ModelMessage] = [ModelRequest([UserPromptPart(prompt)], instructions=instructions)]
    back = False
    while True:
        cap = state.plan(messages, parameters, retry=back)
        wanted = {**settings, "max_tokens": cap}
        if state.last and parameters.function_tools:
            # The definitions stay, so that a cached prefix stays; the output tool can still be called.
            wanted["tool_choice"] = "none"
        response = await state.send(state.model.model.prepare_messages(messages, parameters), wanted, parameters)
        replies = await state.replies(response)
        if replies is None:
            return
        back = replies.back
        messages += (response, ModelRequest(replies.parts, instructions=instructions))


def _parameters(state: Conversation, instructions: str) -> ModelRequestParameters:
    """The same for all requests of a run: what may be called, and how an answer is handed in."""
    form = state.model.structured
    schema, about = _draft_schema()
    tools = () if state.toolbox is None else state.toolbox.tools
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
            for tool in tools
        ],
        output_mode=form,
        output_tools=[
            ToolDefinition(name=FINAL_ANSWER, description=about, parameters_json_schema=schema, kind="output")
        ]
        if form == "tool"
        else [],
        output_object=OutputObjectDefinition(name=FINAL_ANSWER, description=about, json_schema=schema)
        if form == "native"
        else None,
        allow_text_output=form != "tool",
        instruction_parts=[InstructionPart(instructions)],
    )


@lru_cache(maxsize=1)
def _draft_schema() -> tuple[dict[str, Any], str]:
    """The JSON schema of a draft as tools have it, and what it is."""
    schema = Draft.model_json_schema(schema_generator=GenerateToolJsonSchema)
    return schema, str(schema.pop("description"))


def _wrong(fault: ErrorDetails) -> str:
    """One thing that keeps a draft from being one, without repeating what was sent."""
    return f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {fault['msg']}"


def _draft(given: str | dict[str, Any] | None) -> Draft:
    """As JSON, whatever it came as: what is wrong with it is then said in words of JSON."""
    return Draft.model_validate_json(given if given and isinstance(given, str) else json.dumps(given or {}))


def _whole_calls(response: ModelResponse) -> bool:
    """True when a cut response still holds calls, and each of them is whole."""
    calls = [p for p in response.parts if isinstance(p, ToolCallPart)]
    for part in calls:
        if isinstance(part.args, str):
            try:
                json.loads(part.args)
            except ValueError:
                return False
    return bool(calls)


def _hushed_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Lines of the instructions that nobody writes by chance, and the marks that stand in prompts."""
    requests = [m for m in messages if isinstance(m, ModelRequest)]
    said = next((m.instructions for m in requests if m.instructions), "")
    prompts = [p.content for m in requests for p in m.parts if isinstance(p, UserPromptPart)]
    marks = [mark for text in prompts if isinstance(text, str) for mark in PROMPT_MARK.findall(text)]
    return [*(line for line in said.splitlines() if len(line) >= _LONG_LINE), *marks]


def _arguments(part: ToolCallPart) -> dict[str, Any] | None:
    """None for what is no JSON object."""
    given: object = part.args
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        except ValueError:
            return None
    return {} if given is None else cast(dict[str, Any], given) if isinstance(given, dict) else None


def _says_something(response: ModelResponse) -> bool:
    return any(isinstance(p, ToolCallPart) or (isinstance(p, TextPart) and p.content.strip()) for p in response.parts)


def _without_text(draft: Draft, *, used_documents: bool) -> Draft:
    """Free text is for answers without documents; beside documents it becomes a claim that nothing is cited for."""
    if not draft.text or not draft.text.strip() or draft.claims or draft.missing:
        return draft.model_copy(update={"text": None}) if draft.text else draft
    if not used_documents:
        return draft
    return Draft(claims=(DraftClaim(text=draft.text.strip()),))


def _asked_again(faults: Sequence[Fault]) -> tuple[str, ...]:
    """One line on the requests that were sent again."""
    passed = [fault for fault in faults if fault.passing]
    if not passed:
        return ()
    kinds = "; ".join(dict.fromkeys(fault.said for fault in passed))
    return (f"{len(passed)} requests to the model failed on the way: {kinds}"[:300],)

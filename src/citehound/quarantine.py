"""Quarantined reading: a planner that sees no text uses the tools, a reader that has no tools sees the texts.

Owns the run: the planner's turns over handles, what its searches may say, the reader's requests, and the answer that
code composes from facts. What may pass between the two is `facts`; how an answer is checked is `verification`.

After the Dual LLM pattern (Willison, 2023) and "Design Patterns for Securing LLM Agents against Prompt Injections"
(Beurer-Kellner et al., 2025).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from .access import Principal
from .answers import Call, Reference, StopReason
from .budget import FREE, Meter
from .config import SourceConfig
from .context import request_tokens
from .corpus import Corpus
from .documents import Document, Passage, SearchHit, SearchResult, Section
from .drafts import Draft, DraftCitation, DraftClaim, DraftGap
from .errors import BudgetExceeded, CitehoundError
from .events import ClaimDrafted, Emit, FactRead, Hits, Read, StepStarted, ToolCalled, ToolFailed, nowhere
from .evidence import Ledger, Search
from .facts import (
    KINDS,
    MOST_POINTS,
    UNITS,
    Fact,
    Kind,
    Told,
    Untrusted,
    Value,
    claimed,
    fit_of,
    grams,
    is_conditional,
    locate,
    planner_message,
    stated,
    topics,
    typed_values,
)
from .loop import Limits, Outcome, compose_partial
from .models import OpenedModel
from .models.planner.plan import catchword, documents_titled, mentioned
from .models.planner.quarantined import READ_DOCUMENT, READING
from .models.planner.state import Names, Source, matched_filters
from .models.planner.words import fold, language_of, requires, stems
from .prompts import FINAL_ANSWER, planner_instructions, reader_instructions
from .quantities import same_family
from .quotes import Folded, Span
from .quotes import fold as fold_text
from .security import redact, sealed_json, visible
from .single import fuse, short_query
from .toolbox import MAX_CALLS, MAX_HITS, MAX_QUERY, PER_DOCUMENT, ToolRefused, search_source, tool_name
from .verification import Documents, check
from .wire import RequestFailed, Sleep, Wire

READER = "reader"
"""Name of the reader in events and traces."""

MAX_TOKENS_OF_QUERY = 8
MAX_ASKED = 240
"""Characters of what a reader is asked."""
MAX_OPTIONS = 6
MAX_LABELS = 50
"""Values of a filter that get a label."""
MAX_HANDLES = 80
MAX_FACTS = 120
MAX_USED = 40
"""Facts, comparisons and gaps of one answer, each."""
READ_TOKENS = 1200
"""Output cap of one reading."""
WHOLE = 20_000
"""Characters up to which a document is read whole; of a longer one its likeliest passages are."""
WINDOWS = 6
FIRST_DOCUMENTS = 6
MAX_RETRIES = 3
_MOST_STEPS = 40
"""Where no limit is set."""

UNSEEN = "read in quarantine: conclusions without values were drawn from facts about the texts, not from their words"

Verdict = Literal["complies", "conflicts", "same", "differs"]
_WORDS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "complies": "{y} complies with {x}",
        "conflicts": "{y} conflicts with {x}",
        "same": "{x} and {y} agree",
        "differs": "{x} and {y} differ",
        "values": "{a} in {x}, {b} in {y}",
        "answer": "The answer to the question is: {verdict}.",
        "yes": "yes",
        "no": "no",
        "partly": "partly",
    },
    "de": {
        "complies": "{y} entspricht {x}",
        "conflicts": "{y} widerspricht {x}",
        "same": "{x} und {y} stimmen überein",
        "differs": "{x} und {y} weichen voneinander ab",
        "values": "{a} in {x}, {b} in {y}",
        "answer": "Die Antwort auf die Frage ist: {verdict}.",
        "yes": "ja",
        "no": "nein",
        "partly": "teilweise",
    },
    "pt": {
        "complies": "{y} cumpre {x}",
        "conflicts": "{y} contradiz {x}",
        "same": "{x} e {y} coincidem",
        "differs": "{x} e {y} diferem",
        "values": "{a} em {x}, {b} em {y}",
        "answer": "A resposta à pergunta é: {verdict}.",
        "yes": "sim",
        "no": "não",
        "partly": "em parte",
    },
    "es": {
        "complies": "{y} cumple {x}",
        "conflicts": "{y} contradice {x}",
        "same": "{x} y {y} coinciden",
        "differs": "{x} y {y} difieren",
        "values": "{a} en {x}, {b} en {y}",
        "answer": "La respuesta a la pregunta es: {verdict}.",
        "yes": "sí",
        "no": "no",
        "partly": "en parte",
    },
    "fr": {
        "complies": "{y} respecte {x}",
        "conflicts": "{y} contredit {x}",
        "same": "{x} et {y} concordent",
        "differs": "{x} et {y} diffèrent",
        "values": "{a} dans {x}, {b} dans {y}",
        "answer": "La réponse à la question est : {verdict}.",
        "yes": "oui",
        "no": "non",
        "partly": "en partie",
    },
}


# What a reader hands in, by kind.


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")

    found: bool = Field(description="False when the text does not say it.")
    quote: str = Field(default="", description="The sentence that says it, copied word for word from the text.")


class _YesNo(_Reply):
    value: Literal["yes", "no"] | None = None


class _Choice(_Reply):
    option: int | None = Field(default=None, description="Number of the option, from 1.")


class _Number(_Reply):
    number: float | None = None


class _Duration(_Reply):
    number: float | None = None
    unit: Literal["second", "minute", "hour", "day", "business day", "week", "month", "quarter", "year"] | None = None


class _Money(_Reply):
    number: float | None = None
    unit: str | None = Field(default=None, pattern="^[A-Z]{3}$", description="Currency code, as EUR.")


class _Date(_Reply):
    date: str | None = Field(default=None, description="YYYY-MM-DD, or YYYY-MM, or YYYY.")


class _Points(BaseModel):
    model_config = ConfigDict(extra="ignore")

    quotes: list[str] = Field(
        default_factory=list[str],
        max_length=3 * MOST_POINTS,
        description=f"At most {MOST_POINTS} sentences, each copied word for word from the text.",
    )


_REPLIES: Mapping[Kind, type[BaseModel]] = {
    "points": _Points,
    "passage": _Reply,
    "yes_no": _YesNo,
    "choice": _Choice,
    "duration": _Duration,
    "date": _Date,
    "money": _Money,
    "percent": _Number,
    "number": _Number,
}


# What a planner hands in.


class _Comparison(BaseModel):
    model_config = ConfigDict(extra="ignore")

    left: str = Field(description="The fact that requires or says it.")
    right: str = Field(description="The fact it is held against.")
    verdict: Verdict


class _Missing(BaseModel):
    model_config = ConfigDict(extra="ignore")

    fact: str | None = Field(default=None, description="The requirement for which nothing was found.")
    what: str | None = Field(default=None, max_length=300, description="Or in your words: what was not found.")


class _Final(BaseModel):
    """The final answer: which facts answer the question, how they compare, and what was searched for in vain."""

    model_config = ConfigDict(extra="ignore")

    facts: list[str] = Field(default_factory=list[str], description="Facts that answer the question, best first.")
    comparisons: list[_Comparison] = Field(default_factory=list[_Comparison])
    missing: list[_Missing] = Field(default_factory=list[_Missing])
    answer: Literal["yes", "no", "partly"] | None = Field(
        default=None, description="Only for a question that is answered by yes or no, from the facts above."
    )


R = TypeVar("R", bound=BaseModel)


# One run.


@dataclass(kw_only=True)
class _Held:
    """A document behind a handle."""

    handle: Told
    document: str
    source: SourceConfig
    current: bool
    named: bool
    filters: tuple[tuple[Told, Told], ...] = ()
    replaced_by: tuple[Told, ...] = ()
    amended_by: tuple[Told, ...] = ()
    version: float | None = None
    effective: Told | None = None
    """ISO 8601."""
    characters: int = 0
    places: list[Span] = field(default_factory=list[Span])
    """Passages that searches found."""
    read: bool = False

    def told(self) -> dict[str, object]:
        row: dict[str, object] = {"document": self.handle, "source": Told(self.source.name)}
        if self.filters:
            row["filters"] = dict(self.filters)
        row["current"] = self.current
        if self.named:
            row["named_in_question"] = True
        if self.version is not None:
            row["version"] = self.version
        if self.effective is not None:
            row["effective"] = self.effective
        if self.replaced_by:
            row["replaced_by"] = self.replaced_by
        if self.amended_by:
            row["amended_by"] = self.amended_by
        if self.characters > WHOLE:
            row["long"] = True
        row["read"] = self.read
        return row


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A reading that the planner asked for, after its arguments were checked."""

    held: _Held
    question: Told
    kind: Kind
    options: tuple[Told, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Given:
    """A reader's reply with what it was given to read."""

    document: Document
    passages: tuple[Passage, ...]
    reply: BaseModel


class _Stop(Exception):
    def __init__(self, reason: StopReason, why: str, *, provider: bool = False) -> None:
        super().__init__(why)
        self.reason: StopReason = reason
        self.provider = provider


class _Refused(Exception):
    """A call that cannot be made; the message is told to the planner."""


async def run_quarantined(
    question: str,
    *,
    corpus: Corpus,
    principal: Principal,
    planner: OpenedModel,
    reader: OpenedModel,
    meter: Meter,
    ledger: Ledger,
    emit: Emit = nowhere,
    limits: Limits | None = None,
    prefetch: bool = False,
    searching: bool = True,
    sleep: Sleep = asyncio.sleep,
    chance: Callable[[], float] = random.random,
) -> Outcome:
    """Answers the question with a planner that sees no text and a reader that has no tools. Raises only cancellation.

    `prefetch` makes one retrieval by code first; without `searching` it is the only one.
    """
    run = _Run(
        question=question,
        corpus=corpus,
        principal=principal,
        planner=planner,
        reader=reader,
        meter=meter,
        ledger=ledger,
        emit=emit,
        limits=limits or Limits(),
        searching=searching,
        sleep=sleep,
        chance=chance,
    )
    final: _Final | None = None
    stop: _Stop | None = None
    try:
        await asyncio.to_thread(run.prepare)
        if prefetch or not searching:
            await run.first_retrieval()
        while final is None:
            final = await run.turn()
    except _Stop as problem:
        stop = problem
    except Exception as problem:
        stop = _Stop("model_error", f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:300])
    return await asyncio.to_thread(run.outcome, final, stop)


class _Run:
    """The state of one run: handles, facts, and what the planner is told of them."""

    def __init__(
        self,
        *,
        question: str,
        corpus: Corpus,
        principal: Principal,
        planner: OpenedModel,
        reader: OpenedModel,
        meter: Meter,
        ledger: Ledger,
        emit: Emit,
        limits: Limits,
        searching: bool,
        sleep: Sleep,
        chance: Callable[[], float],
    ) -> None:
        self.question = question
        self.corpus = corpus
        self.principal = principal
        self.planner = planner
        self.reader = reader
        self.meter = meter
        self.ledger = ledger
        self.emit = emit
        self.limits = limits
        self.searching = searching
        self.documents: Documents = corpus.view(principal=principal)
        self.language = language_of(question)
        self.wire = self._wire(planner, "main", sleep, chance)
        self.reading_wire = self._wire(reader, READER, sleep, chance)
        self.forced: StopReason | None = None
        self.warnings: list[str] = []
        self.handles: dict[str, _Held] = {}
        self.facts: dict[str, Fact] = {}
        self._by_document: dict[str, _Held] = {}
        self._labels: dict[tuple[str, str], dict[str, str]] = {}
        """(source, filter) to label to the value behind it."""
        self._groups: dict[tuple[str, str], Told] = {}
        self._folded: dict[str, Folded] = {}
        self._searches: list[dict[str, object]] = []
        self._errors: list[Told] = []
        self._made: dict[str, int] = {}
        self._closing = 0.0
        """Dollars that the last request may cost, as of this turn."""
        self._step = 0
        self._useless = 0
        self._reader_failed = 0
        self._sent_back = False
        self._readings = 0
        self._rejected = 0
        self._private_words: set[str] = set()
        """Words that passed from private documents; they may not leave."""
        self._public_words: set[str] = set()
        self._cut: set[str] = set()

    def _wire(self, model: OpenedModel, agent: str, sleep: Sleep, chance: Callable[[], float]) -> Wire:
        return Wire(
            model=model.model,
            price=model.price or FREE,
            meter=self.meter,
            stream=model.stream,
            emit=self.emit,
            agent=agent,
            sleep=sleep,
            chance=chance,
        )

    # what the planner is told

    def prepare(self) -> None:
        """Names, labels and tools: once, before the first turn."""
        self._lexicon = self.corpus.lexicon(principal=self.principal)
        self._names = Names.of(self._lexicon)
        titles = mentioned(self.question, self._names)
        self._named = {d for title in titles for d in documents_titled(title, self._names)}
        for source in self.corpus.sources:
            for key in source.filters:
                self._labels[source.name, key] = self._labelled(source, key)
        described = " ".join(f"{s.name} {s.description}" for s in self.corpus.sources)
        self._known = _bare_words(f"{self.question} {described}")
        self._tools = (
            *((self._search_tool(s) for s in self.corpus.sources) if self.searching else ()),
            _read_tool(),
        )
        self._final_tool = ToolDefinition(
            name=FINAL_ANSWER,
            description=" ".join((_Final.__doc__ or "").split()),
            parameters_json_schema=_Final.model_json_schema(),
            kind="output",
        )

    def _labelled(self, source: SourceConfig, key: str) -> dict[str, str]:
        """Label to value: what the question says of a value is its label, every other value gets a number."""
        values = list(self.corpus.filter_values(source.name, key, principal=self.principal))
        known = Source(name=source.name, tool="", description="", filters={key: tuple(values)})
        matched = matched_filters(self.question, known, language=self.language).get(key)
        labels: dict[str, str] = {}
        if matched is not None:
            own = {fold(w) for w in re.findall(r"[^\W_]+", matched)}
            said = [w for w in re.findall(r"[^\W_]+", self.question) if fold(w) in own]
            labels[" ".join(dict.fromkeys(said)) or "v0"] = matched
        for number, value in enumerate(values[:MAX_LABELS], start=1):
            if value != matched:
                labels[f"v{number}"] = value
        return labels

    def _search_tool(self, source: SourceConfig) -> ToolDefinition:
        parameters: dict[str, Any] = {
            "query": {
                "type": "string",
                "maxLength": MAX_QUERY,
                "description": f"At most {MAX_TOKENS_OF_QUERY} words, in no order; single words, no sentence.",
            }
        }
        for key in source.filters:
            labels = sorted(self._labels[source.name, key])
            shown: dict[str, Any] = {
                "type": "string",
                "description": f"Only documents whose {visible(key)} is this. A label as v2 stands for a value "
                "that you cannot see.",
            }
            if labels:
                shown["enum"] = labels
            parameters[_parameter(key)] = shown
        parameters["only_current"] = {
            "type": "boolean",
            "default": True,
            "description": "False also searches superseded, withdrawn and draft versions.",
        }
        parameters["k"] = {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": 6}
        about = source.description.strip() or f"The documents of {source.name!r}."
        return ToolDefinition(
            name=tool_name(source.name),
            description=visible(f"Search {source.name}. {about} Gives handles of documents, best first."),
            parameters_json_schema=_object(parameters, required=["query"]),
        )

    def view(self, *, last: bool) -> dict[str, object]:
        """All that the planner is told in a turn."""
        steps = self.meter.steps_left()
        shown: dict[str, object] = {
            "question": Told(self.question),
            "documents": [held.told() for held in self.handles.values()],
            "facts": [fact.told() for fact in self.facts.values()],
            "searches": self._searches,
        }
        if self._errors:
            shown["errors"] = list(self._errors)
        if steps is not None:
            shown["steps_left"] = steps
        if last:
            shown["final_answer_now"] = True
        return shown

    # a turn

    async def turn(self) -> _Final | None:
        """One request to the planner and what it asks for; its final answer once it gives one that can be used."""
        steps = self.meter.steps_left()
        if steps == 0 or self._step >= _MOST_STEPS:
            raise _Stop(self.forced or "steps", "the step cap is reached")
        messages, parameters = self._request(last=False)
        base = request_tokens(messages, parameters)
        self.forced = self.forced or self._must_finish(base)
        last = self.forced is not None
        if last:
            messages, parameters = self._request(last=True)
            base = request_tokens(messages, parameters)
        cap = self.limits.turn_tokens
        if not self.meter.fits(self.wire.price.worst(input_tokens=base, output_tokens=cap)):
            raise _Stop("dollars", "no further request fits into the dollars left")
        if self.planner.window is not None and base + cap > self.planner.window:
            raise _Stop("context", "what was found fills the planner's context window")
        try:
            self._step = self.meter.begin_step()
        except BudgetExceeded as problem:
            raise _Stop("steps", str(problem)) from problem
        self.emit(StepStarted(step=self._step))
        self._closing = self._worst(base + 2 * self.limits.turn_tokens)
        self._errors = []
        response = await self._ask_planner(messages, parameters, base, cap=cap, last=last)
        calls = _calls_of(response)
        finals = [arguments for name, arguments in calls if name == FINAL_ANSWER]
        others = [(name, arguments) for name, arguments in calls if name != FINAL_ANSWER]
        if others and not last:
            if finals:
                self._say(f"{FINAL_ANSWER} came beside other calls: give it alone, once their results are there")
            await self._run_calls(others)
            return None
        if finals:
            return self._accepted(finals[0], last=last)
        self._useless += 1
        if last or self._useless > MAX_RETRIES:
            raise _Stop(self.forced or "model_error", "the planner gave no usable answer")
        self._say("nothing usable was called: call one of the tools, or give the final answer")
        return None

    def _request(self, *, last: bool) -> tuple[list[ModelMessage], ModelRequestParameters]:
        tools = () if last else self._tools
        instructions = planner_instructions(self.corpus.sources, searching=self.searching)
        if self.planner.tools:
            parameters = ModelRequestParameters(
                function_tools=list(tools),
                output_mode="tool",
                output_tools=[self._final_tool],
                allow_text_output=False,
            )
        else:
            parameters = ModelRequestParameters()
            told = [
                {"name": t.name, "description": t.description, "parameters": t.parameters_json_schema}
                for t in (*tools, self._final_tool)
            ]
            instructions += (
                '\n\nReply with one JSON object and nothing else: {"calls": [{"name": …, "arguments": {…}}]}. What can '
                f"be called (JSON):\n{json.dumps(told, ensure_ascii=False)}"
            )
        prompt = planner_message(self.view(last=last))
        return [ModelRequest.user_text_prompt(prompt, instructions=instructions)], parameters

    def _must_finish(self, base: int) -> StopReason | None:
        """Why the next request has to be the last, or None."""
        steps, seconds = self.meter.steps_left(), self.meter.seconds_left()
        if steps is not None and steps <= 1:
            return "steps"
        if seconds is not None and seconds <= self._keep():
            return "seconds"
        if not self.meter.fits(self._worst(base) + self._worst(base + self.limits.turn_tokens + 1000)):
            return "dollars"
        return None

    def _worst(self, tokens: int) -> float:
        """The most that a planner's request of this size may cost."""
        return self.wire.price.worst(input_tokens=tokens, output_tokens=self.limits.turn_tokens)

    def _keep(self) -> float:
        """Seconds to keep for the last request."""
        return max(1.5 * self.wire.longest, min(0.15 * (self.meter.budget.max_seconds or 0.0), 20.0))

    async def _ask_planner(
        self,
        messages: Sequence[ModelMessage],
        parameters: ModelRequestParameters,
        base: int,
        *,
        cap: int,
        last: bool,
    ) -> ModelResponse:
        settings = {"parallel_tool_calls": True, **self.planner.settings, "max_tokens": cap}
        try:
            return await self.wire.request(
                messages,
                settings,
                parameters,
                input_tokens=base,
                step=self._step,
                keep=0.0 if last else self._keep(),
            )
        except RequestFailed as failed:
            raise _Stop(failed.reason, str(failed), provider=failed.fault is not None) from failed

    def _say(self, text: str) -> None:
        """Tells the planner what was wrong. `text` is of this program and of the planner's own words."""
        self._errors.append(Told(text[:300]))

    # the planner's calls

    async def _run_calls(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Makes the calls of a turn, at most eight: searches first, then all readings at once, recorded in order."""
        readings: list[_Asked] = []
        useful = 0
        for number, (name, arguments) in enumerate(calls, start=1):
            try:
                if number > MAX_CALLS:
                    raise _Refused(f"only {MAX_CALLS} calls are made in one step: ask again in the next")
                self._not_again(name, arguments)
                if name == READ_DOCUMENT:
                    readings.append(self._asked(arguments))
                else:
                    await self._search(name, arguments)
                useful += 1
            except _Refused as problem:
                self._say(f"{name[:60]}: {problem}")
                self._failed(name, arguments, str(problem))
        self._useless = 0 if useful else self._useless + 1
        if self._useless > MAX_RETRIES:
            raise _Stop("model_error", "the planner made no call that could be carried out")
        found = await asyncio.gather(*(self._read(asked) for asked in readings))
        for asked, given in zip(
            readings, found, strict=True
        ):  # in order, so that handles and numbers are the same again
            try:
                facts = given if isinstance(given, list) else await asyncio.to_thread(self._facts, asked, given)
            except Exception:  # one text that cannot be checked must not end the run
                facts = [self._nothing(asked, "it could not be read")]
            self._keep_facts(asked, facts)

    def _not_again(self, name: str, arguments: Mapping[str, Any]) -> None:
        key = name + json.dumps(dict(arguments), sort_keys=True, default=str).casefold()
        self._made[key] = times = self._made.get(key, 0) + 1
        if times >= 3:
            self.forced = "no_progress"
        if times > 1:
            raise _Refused("the same call was made before: its result stands above")

    def _failed(self, name: str, arguments: Mapping[str, Any], error: str) -> None:
        error = redact(visible(error))[:300]
        self.emit(ToolCalled(step=self._step, tool=name[:60], arguments=dict(arguments)))
        self.emit(ToolFailed(step=self._step, tool=name[:60], error=error))
        self.ledger.called(Call(step=self._step, tool=name[:60], arguments=dict(arguments), error=error))

    async def _search(self, name: str, arguments: Mapping[str, Any]) -> None:
        source = next((s for s in self.corpus.sources if tool_name(s.name) == name), None) if self.searching else None
        if source is None:
            raise _Refused(f"there is no such tool; there are {', '.join(t.name for t in self._tools)}")
        filters, shown = self._filters(source, arguments)
        words = self._query(source, str(arguments.get("query") or ""))
        k = arguments.get("k")
        await self._searched(
            source,
            " ".join(words),
            filters=filters,
            shown=shown,
            only_current=arguments.get("only_current") is not False,
            k=k if isinstance(k, int) and not isinstance(k, bool) else 6,
            step=self._step,
        )

    def _filters(self, source: SourceConfig, arguments: Mapping[str, Any]) -> tuple[dict[str, str], dict[Told, Told]]:
        filters: dict[str, str] = {}
        shown: dict[Told, Told] = {}
        for key in source.filters:
            label = arguments.get(_parameter(key))
            if label in (None, ""):
                continue
            labels = self._labels[source.name, key]
            found = next((one for one in labels if fold(one) == fold(str(label))), None)
            if found is None:
                raise _Refused(f"{key} has no label {str(label)[:40]!r}; use one of {', '.join(sorted(labels)[:20])}")
            filters[key], shown[Told(key)] = labels[found], Told(found)
        return filters, shown

    def _query(self, source: SourceConfig, text: str) -> list[str]:
        """The words of a planner's query that may be searched, as code puts them together again.

        At most eight, of letters; digits only where the question or a typed value has them. For a source that reaches
        out, no word that came from a private document. Raises _Refused with what to do.
        """
        if len(text) > MAX_QUERY:
            raise _Refused(f"the query has {len(text)} characters, at most {MAX_QUERY}")
        words = list(dict.fromkeys(re.findall(r"[^\W_]+(?:['’-][^\W_]+)*", visible(text))))
        if not words:
            raise _Refused("the query is empty: give a few words")
        if len(words) > MAX_TOKENS_OF_QUERY:
            raise _Refused(f"the query has {len(words)} words, at most {MAX_TOKENS_OF_QUERY}: keep the rarest")
        numbers = {n for fact in self.facts.values() for value in fact.all_values for n in _digits(value)}
        for word in words:
            bare = _bare_words(word)
            if any(c.isdigit() for c in word) and not bare <= self._known and word not in numbers:
                raise _Refused(f"{word!r} has digits that neither the question nor a value of a fact has: leave it out")
        if source.reaches_out:
            return self._leaving(words)
        if source.live:
            return words
        usable = [
            word
            for word in words
            if _bare_words(word) & self._known or self._lexicon.frequency(word) or word in numbers
        ]
        if not usable:
            raise _Refused("no word of the query stands in the index: use words of the question, subjects or terms")
        return usable

    def _leaving(self, words: Sequence[str]) -> list[str]:
        """What may leave: words of the question, of the configuration, of public facts, and the planner's own."""
        for word in words:
            bare = _bare_words(word)
            if bare & self._private_words - self._known - self._public_words:
                raise _Refused(f"{word!r} came from a private document and may not be sent out: use words of your own")
            if any(c.isdigit() for c in word) and not bare <= self._known:
                raise _Refused(f"{word!r} may not be sent out: only the question's digits may")
        kept = list(words)
        for _ in range(2):
            if not any(
                gram in private for gram in grams(" ".join(kept)) - grams(self.question) for private in self._private()
            ):
                return kept
            kept = sorted(kept, key=str.casefold)
        raise _Refused("these words stand like this in a private document: use fewer")

    def _private(self) -> list[frozenset[tuple[str, ...]]]:
        """Runs of four words of every private text that was read."""
        private = {s.name for s in self.corpus.sources if s.private}
        passages = self.ledger.evidence().passages
        return [
            grams(p.text)
            for p in passages
            if (held := self._by_document.get(p.document)) is not None and held.source.name in private
        ]

    async def _searched(
        self,
        source: SourceConfig,
        query: str,
        *,
        filters: Mapping[str, str],
        shown: Mapping[Told, Told],
        only_current: bool = True,
        k: int = 6,
        step: int,
    ) -> SearchResult:
        """Makes a search and records it; the planner is told handles."""
        name = tool_name(source.name)
        arguments: dict[str, Any] = {"query": query, **filters, **({} if only_current else {"only_current": False})}
        self.emit(ToolCalled(step=step, tool=name, arguments=arguments))
        began = time.perf_counter()
        result, error = SearchResult(hits=()), None
        try:
            result = await asyncio.to_thread(
                search_source,
                self.corpus,
                source.name,
                query,
                principal=self.principal,
                filters=filters,
                only_current=only_current,
                k=k,
                per_document=PER_DOCUMENT,
            )
        except (ToolRefused, CitehoundError, Exception) as problem:
            error = " ".join(f"{name} failed ({type(problem).__name__}: {problem})".split())[:300]
            self.emit(ToolFailed(step=step, tool=name, error=error))
            self._say(f"{name} failed: try another source")
        returned = tuple(Reference(document=h.document, section=h.section) for h in result.hits)
        handles: list[Told] = []
        if error is None:
            documents = tuple(dict.fromkeys(h.document for h in result.hits))
            pairs = tuple(sorted(filters.items()))
            self.ledger.saw(Search(source=source.name, query=query, filters=pairs, documents=documents), result.hits)
            self.emit(
                Hits(
                    step=step,
                    source=source.name,
                    query=query,
                    filters=dict(filters),
                    returned=returned,
                    hidden_superseded=result.hidden_superseded,
                )
            )
            for hit in result.hits:
                held = await asyncio.to_thread(self._hold, hit.document, hit)
                if held is not None and held.handle not in handles:
                    handles.append(held.handle)
            row: dict[str, object] = {"step": step, "source": Told(source.name), "query": Told(query)}
            if shown:
                row["filters"] = dict(shown)
            if not only_current:
                row["only_current"] = False
            row["documents"] = handles
            if result.hidden_superseded:
                row["hidden_superseded"] = result.hidden_superseded
            self._searches.append(row)
        self.ledger.called(
            Call(
                step=step,
                tool=name,
                arguments=arguments,
                source=source.name,
                returned=returned,
                error=error,
                seconds=round(time.perf_counter() - began, 6),
            )
        )
        return result

    def _hold(self, document: str, hit: SearchHit | None = None) -> _Held | None:
        """The handle of a document, made when it is first met; None where there are too many, or it is gone."""
        held = self._by_document.get(document)
        if held is None:
            if len(self.handles) >= MAX_HANDLES:
                return None
            try:
                info = self.documents.info(document)
            except CitehoundError:
                return None
            source = self.corpus.config.source(info.source)
            if source is None:
                return None
            handle = Told(f"h{len(self.handles) + 1}")
            held = _Held(
                handle=handle,
                document=info.document,
                source=source,
                current=info.current,
                named=info.document in self._named,
                filters=tuple(self._label_of(source, info.metadata)),
                version=_version(info.metadata.get("version", "")),
                effective=_date(info.metadata.get("effective", "")),
                characters=info.total_chars,
            )
            self.handles[handle] = self._by_document[document] = self._by_document[info.document] = held
            held.replaced_by = self._handles_of(info.superseded_by)
            held.amended_by = self._handles_of(info.amended_by)
        if hit is not None:
            span = Span(start=hit.start, end=hit.end)
            if span not in held.places:
                held.places.append(span)
        return held

    def _handles_of(self, documents: Sequence[str]) -> tuple[Told, ...]:
        found = [self._hold(document) for document in documents[:2]]
        return tuple(held.handle for held in found if held is not None)

    def _label_of(self, source: SourceConfig, metadata: Mapping[str, str]) -> list[tuple[Told, Told]]:
        pairs: list[tuple[Told, Told]] = []
        for key in source.filters:
            value = metadata.get(key)
            label = next((one for one, v in self._labels[source.name, key].items() if v == value), None)
            if label is not None:
                pairs.append((Told(key), Told(label)))
        return pairs

    async def first_retrieval(self) -> None:
        """Each source once, with the words of the question and the filters that it names."""
        query = short_query(self.question)
        results: list[SearchResult] = []
        for source in self.corpus.sources:
            own = Source(
                name=source.name,
                tool="",
                description="",
                filters={k: tuple(self._labels[source.name, k].values()) for k in source.filters},
            )
            filters = matched_filters(self.question, own, language=self.language)
            shown = {Told(k): Told(_label(self._labels[source.name, k], v)) for k, v in filters.items()}
            results.append(await self._searched(source, query, filters=filters, shown=shown, step=0))
        if not self.searching:
            best = list(dict.fromkeys(hit.document for hit in fuse([r.hits for r in results])))[:FIRST_DOCUMENTS]
            kept = {handle: held for handle, held in self.handles.items() if held.document in best}
            self.handles = dict(kept)
            for row in self._searches:
                row["documents"] = [h for h in cast("list[Told]", row["documents"]) if h in kept]

    # the reader

    def _asked(self, arguments: Mapping[str, Any]) -> _Asked:
        handle = str(arguments.get("document") or "").strip()
        held = self.handles.get(handle)
        if held is None:
            raise _Refused(f"there is no document {handle[:40]!r}: give a handle as h1")
        question = " ".join(visible(str(arguments.get("question") or "")).split())
        if not question:
            raise _Refused("question is empty: say what to look for in the document")
        if len(question) > MAX_ASKED:
            raise _Refused(f"the question has {len(question)} characters, at most {MAX_ASKED}")
        kind = arguments.get("kind")
        if kind not in KINDS:
            raise _Refused(f"kind {str(kind)[:40]!r} is not known; use one of {', '.join(KINDS)}")
        given: object = arguments.get("options") or ()
        options = (
            tuple(Told(" ".join(str(o).split())[:60]) for o in cast("Sequence[object]", given)[:MAX_OPTIONS])
            if (isinstance(given, list | tuple))
            else ()
        )
        if kind == "choice" and len(options) < 2:
            raise _Refused("kind 'choice' needs at least two options")
        if len(self.facts) >= MAX_FACTS:
            raise _Refused("there are too many facts: give the final answer")
        return _Asked(held=held, question=Told(question), kind=kind, options=options)

    async def _read(self, asked: _Asked) -> _Given | list[Fact]:
        """Asks the reader one thing about one document. What goes wrong comes back as a fact that was not found."""
        held = asked.held
        arguments: dict[str, Any] = {"document": held.document, "question": asked.question, "kind": asked.kind}
        self.emit(ToolCalled(step=self._step, tool=READ_DOCUMENT, arguments=arguments))
        began = time.perf_counter()
        error: str | None = None
        given: _Given | list[Fact] = []
        passages: tuple[Passage, ...] = ()
        try:
            document, passages = await asyncio.to_thread(self._passages, held, asked.question)
            reply = await self._ask_reader(asked, document, passages)
            for passage in passages:
                self.ledger.read(passage)
                self.emit(
                    Read(
                        step=self._step,
                        document=passage.document,
                        section=passage.section,
                        start=passage.start,
                        end=passage.end,
                        agent=READER,
                    )
                )
            held.read = True
            given = _Given(document=document, passages=passages, reply=reply)
        except _Refused as problem:
            error = str(problem)
            given = [self._nothing(asked, str(problem))]
        except Exception as problem:
            error = redact(visible(f"{type(problem).__name__}: {' '.join(str(problem).split())}"))[:300]
            given = [self._nothing(asked, "it could not be read")]
        if error is not None:
            self.emit(ToolFailed(step=self._step, tool=READ_DOCUMENT, error=error))
        self.ledger.called(
            Call(
                step=self._step,
                tool=READ_DOCUMENT,
                arguments=arguments,
                source=held.source.name,
                returned=tuple(Reference(document=p.document, section=p.section) for p in passages)
                if error is None
                else (),
                error=error,
                seconds=round(time.perf_counter() - began, 6),
            )
        )
        return given

    def _passages(self, held: _Held, asked: str) -> tuple[Document, tuple[Passage, ...]]:
        """What the reader gets: the document, or its beginning and the passages that are likeliest to say it."""
        corpus, principal, room = self.corpus, self.principal, self._room_to_read()
        first = corpus.read(held.document, principal=principal, limit=room)
        document = corpus.document(held.document, principal=principal)
        if first.next_start is None:
            return document, (first,)
        spans = list(held.places[-WINDOWS:])
        if held.source.live:  # asking it would send the question out
            spans += _windows(document.text, asked, language=self.language)
        else:
            found = corpus.search(
                held.source.name,
                asked[:MAX_QUERY],
                principal=principal,
                only_current=False,
                documents=[document.id],
                k=WINDOWS,
                per_document=WINDOWS,
            )
            spans += [Span(start=hit.start, end=hit.end) for hit in found.hits]
        spans.append(Span(start=0, end=min(1500, len(document.text))))
        passages: list[Passage] = []
        at = 0
        for span in _merged(spans):
            if room <= 0:
                break
            passage = corpus.read(
                document.id,
                principal=principal,
                start=max(at, span.start),
                limit=max(1, min(room, span.end - span.start)),
            )
            room -= len(passage.text)
            at = passage.end
            passages.append(passage)
        return document, tuple(passages)

    def _room_to_read(self) -> int:
        """Characters of text that fit into one reading, with the reader's window."""
        window = self.reader.window
        return WHOLE if window is None else max(1000, min(WHOLE, window - READ_TOKENS - 2000))

    async def _ask_reader(self, asked: _Asked, document: Document, passages: Sequence[Passage]) -> BaseModel:
        """The reader's reply, in the form of the kind. Raises _Refused with a code of this program."""
        reply = _REPLIES[asked.kind]
        schema = reply.model_json_schema()
        instructions = reader_instructions(asked.kind)
        told: dict[str, Any] = {"question": asked.question, "kind": asked.kind}
        told |= {"options": asked.options} if asked.options else {}
        prompt = sealed_json({**told, "text": [p.text for p in passages]})
        parameters = ModelRequestParameters()
        if self.reader.tools:
            tool = ToolDefinition(
                name=READING, description="Hand in what was read.", parameters_json_schema=schema, kind="output"
            )
            parameters = ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
        else:
            instructions += f"\n\nReply with one JSON object of this schema and nothing else:\n{json.dumps(schema)}"
        messages = [ModelRequest.user_text_prompt(prompt, instructions=instructions)]
        tokens = request_tokens(messages, parameters)
        settings = {**self.reader.settings, "max_tokens": READ_TOKENS}
        for _ in range(2):
            worst = self.reading_wire.price.worst(input_tokens=tokens, output_tokens=READ_TOKENS)
            if not self.meter.fits(worst + self._closing):
                self.forced = self.forced or "dollars"
                raise _Refused("the budget has no room to read it")
            try:
                response = await self.reading_wire.request(
                    messages, settings, parameters, input_tokens=tokens, step=self._step, keep=self._keep()
                )
            except RequestFailed as failed:
                self._reader_failed += 1
                if failed.reason in ("seconds", "dollars"):
                    self.forced = self.forced or failed.reason
                elif self._reader_failed >= 3:
                    self.forced = self.forced or "model_error"
                raise _Refused("the reader could not be asked") from failed
            self._readings += 1
            found = _parsed(response, reply, READING)
            if found is not None:
                return found
        self._rejected += 1
        raise _Refused("the reader gave no usable reply")

    def _nothing(self, asked: _Asked, why: str | None = None) -> Fact:
        return Fact(
            id=Told(""),
            handle=asked.held.handle,
            asked=asked.question,
            kind=asked.kind,
            found=False,
            why_not=None if why is None else Told(why),
            document=asked.held.document,
        )

    def _facts(self, asked: _Asked, given: _Given) -> list[Fact]:
        """What of a reply stands in the text, as facts; everything else of it is dropped here."""
        document, reply = given.document, given.reply
        read = [Span(start=p.start, end=p.end) for p in given.passages]
        if isinstance(reply, _Points):
            found: dict[int, Fact] = {}
            for quote in reply.quotes:
                fact = self._fact(asked, document, read, Untrusted(quote))
                if fact is not None and len(found) < MOST_POINTS:
                    found.setdefault(fact.start, fact)
                self._rejected += fact is None
            return [found[at] for at in sorted(found)] or [self._nothing(asked)]
        assert isinstance(reply, _Reply)
        if not reply.found:
            return [self._nothing(asked)]
        fact = self._fact(asked, document, read, Untrusted(reply.quote))
        if fact is None or fact.quote is None:
            self._rejected += 1
            return [self._nothing(asked, "its quote does not stand in the text")]
        match reply:
            case _YesNo():
                if reply.value is None:
                    return [self._nothing(asked)]
                return [replace(fact, verdict=Told(reply.value))]
            case _Choice():
                if reply.option is None or not 1 <= reply.option <= len(asked.options):
                    return [self._nothing(asked)]
                return [replace(fact, verdict=asked.options[reply.option - 1])]
            case _Number() | _Duration() | _Money() | _Date():
                unit = getattr(reply, "unit", None)
                if asked.kind in UNITS and unit is not None and unit not in UNITS[asked.kind]:
                    unit = None
                said = claimed(
                    asked.kind, number=getattr(reply, "number", None), unit=unit, date=getattr(reply, "date", None)
                )
                sentence = fact.quote.reveal()
                value = None if said is None else stated(asked.kind, said, sentence, language=document.language)
                if value is None:
                    self._rejected += 1
                    return [self._nothing(asked, "its value does not stand in its quote")]
                return [replace(fact, value=value)]
            case _:
                return [fact]

    def _fact(self, asked: _Asked, document: Document, read: Sequence[Span], quote: Untrusted) -> Fact | None:
        """The fact of a quote, with what code says of its sentence; None where it does not stand in what was read."""
        if document.id not in self._folded:
            self._folded[document.id] = fold_text(document.text)
        located = locate(document, self._folded[document.id], quote.reveal(), read=read)
        if located is None:
            return None
        sentence = located.sentence.reveal()
        section = document.section_at(located.start)
        language = document.language if document.language and document.language in _WORDS else self.language
        heading = catchword(sentence) or _heading(document, section, sentence)
        subject, terms = topics(
            sentence,
            heading,
            text=document.text,
            known=stems(self.question, language=language),
            lexicon=self._lexicon,
            language=language,
        )
        chapter = "" if section is None else (section.number or section.parent or section.id).split(".")[0]
        group = self._groups.setdefault((document.id, chapter), Told(f"g{len(self._groups) + 1}"))
        return Fact(
            id=Told(""),
            handle=asked.held.handle,
            asked=asked.question,
            kind=asked.kind,
            found=True,
            values=typed_values(sentence, language=document.language),
            subject=subject,
            terms=terms,
            requires=requires(sentence),
            conditional=is_conditional(sentence, language=document.language),
            fit=fit_of(asked.question, f"{heading} {sentence}", language=language),
            section=None if section is None else section.number,
            group=group,
            points_to=self._pointed(sentence, document.id),
            document=document.id,
            quote=located.quote,
            heading=Untrusted(heading),
            start=located.start,
            end=located.end,
        )

    def _pointed(self, sentence: str, document: str) -> tuple[Told, ...]:
        """Handles of documents that a sentence names by their titles, at most two."""
        if not self.searching:
            return ()
        found: list[Told] = []
        for title in mentioned(sentence, self._names):
            for other in documents_titled(title, self._names):
                held = self._hold(other) if other != document and len(found) < 2 else None
                if held is not None and held.current and held.handle not in found:
                    found.append(held.handle)
        return tuple(found)

    def _keep_facts(self, asked: _Asked, facts: Sequence[Fact]) -> None:
        words = self._private_words if asked.held.source.private else self._public_words
        for fact in facts:
            fact = replace(fact, id=Told(f"f{len(self.facts) + 1}"))
            self.facts[fact.id] = fact
            for term in (*fact.subject, *fact.terms):
                words |= _bare_words(term)
            self.emit(
                FactRead(
                    step=self._step,
                    fact=fact.id,
                    document=fact.document,
                    asked=fact.asked,
                    kind=fact.kind,
                    found=fact.found,
                    told=fact.told(),
                    start=fact.start if fact.found else None,
                    end=fact.end if fact.found else None,
                )
            )

    # the answer

    def _accepted(self, arguments: Mapping[str, Any], *, last: bool) -> _Final | None:
        """The planner's answer once it can be used; None where it is sent back, once."""
        try:
            final = _Final.model_validate(arguments)
        except ValidationError as problem:
            first = problem.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            self._useless += 1
            if last or self._useless > MAX_RETRIES:
                raise _Stop(self.forced or "model_error", f"the planner's answer has no usable form: {where}") from None
            self._say(f"{FINAL_ANSWER}: {where[:60]} has not the form that is asked for")
            return None
        problems = self._problems(final)
        steps = self.meter.steps_left()
        if problems and not self._sent_back and not last and (steps is None or steps > 0):
            self._sent_back = True
            for problem in problems[:6]:
                self._say(f"{FINAL_ANSWER}: {problem}")
            return None
        if problems:
            self.warnings.append(f"parts of the planner's answer were left out: {'; '.join(problems)}"[:300])
        return final

    def _problems(self, final: _Final) -> list[str]:
        """What is wrong with a final answer, in words of this program and of the planner."""
        problems: list[str] = []
        named = [*final.facts, *(c.left for c in final.comparisons), *(c.right for c in final.comparisons)]
        named += [m.fact for m in final.missing if m.fact]
        for name in dict.fromkeys(named):
            fact = self.facts.get(name)
            if fact is None:
                problems.append(f"there is no fact {name[:20]!r}")
            elif not fact.found:
                problems.append(f"fact {name} was not found, so nothing rests on it: say it under missing")
        for comparison in final.comparisons:
            wrong = self._contradicted(comparison)
            if wrong:
                problems.append(wrong)
        if not (final.facts or final.comparisons or final.missing):
            problems.append("it says nothing: name facts, or say what is missing")
        gaps = check(Draft(missing=self._gaps(final)), self.ledger.evidence(), self.documents).missing
        for number, gap in enumerate(gaps, start=1):
            if gap.status == "unchecked":
                problems.append(f"missing {number} was not searched: search with its subject and terms first")
        return problems

    def _contradicted(self, comparison: _Comparison) -> str:
        """What typed values say against a verdict, or nothing."""
        pair = self._measured(comparison.left, comparison.right)
        if pair is None or pair[0].number is None or pair[1].number is None:
            return ""
        left, right = pair[0].number, pair[1].number
        where = f"{comparison.left} and {comparison.right}"
        if comparison.verdict == "same" and left != right:
            return f"the values of {where} are not the same"
        if comparison.verdict == "differs" and left == right:
            return f"the values of {where} are the same"
        bound = pair[0].bound
        broken = (bound == "at_most" and right > left) or (bound == "at_least" and right < left)
        if comparison.verdict == "complies" and broken:
            return f"the value of {comparison.right} is beyond that of {comparison.left}"
        return ""

    def _measured(self, left: str, right: str) -> tuple[Value, Value] | None:
        """The first values of two facts that can be compared."""
        one, other = self.facts.get(left), self.facts.get(right)
        if one is None or other is None:
            return None
        for a in one.all_values:
            for b in other.all_values:
                if a.unit == b.unit or (a.number is not None and same_family(a.unit, b.unit)):
                    return a, b
        return None

    def outcome(self, final: _Final | None, stop: _Stop | None) -> Outcome:
        """The answer composed by code from facts and the planner's conclusions, with its checks."""
        reason: StopReason = self.forced or "answered"
        warnings = list(self.warnings)
        if stop is not None:
            reason = stop.reason
            warnings.append(f"stopped early ({stop.reason}): {redact(visible(str(stop)))}"[:300])
        if self._rejected:
            warnings.append(f"{self._rejected} of the reader's replies were dropped: not in the text, or of no form")
        if final is None:
            final = _Final(facts=[f.id for f in self._best()], missing=[_Missing(what=self.question[:300])])
            if not final.facts:
                return compose_partial(
                    self.ledger.evidence(),
                    self.documents,
                    question=self.question,
                    stop_reason=reason,
                    warnings=tuple(warnings),
                    declared=str(stop) if stop is not None and reason not in ("dollars", "steps") else None,
                )
        draft = self._draft(final)
        warnings += [warning for warning in self.warnings if warning not in warnings]
        for number, claim in enumerate(draft.claims, start=1):
            self.emit(
                ClaimDrafted(
                    step=self._step,
                    draft=1,
                    number=number,
                    text=claim.text,
                    kind=claim.kind,
                    documents=tuple(dict.fromkeys(c.document for c in claim.citations)),
                )
            )
        checked = check(draft, self.ledger.evidence(), self.documents, question=self.question)
        missing = checked.missing
        if stop is not None:
            missing = tuple(replace(gap, status="unchecked") for gap in missing)
        return Outcome(
            claims=checked.claims,
            missing=missing,
            stop_reason=reason,
            warnings=tuple(warnings),
            provider_failed=stop is not None and stop.provider,
        )

    def _best(self) -> list[Fact]:
        found = [f for f in self.facts.values() if f.found]
        return sorted(found, key=lambda f: (f.kind == "points", -f.fit))[:12]

    def _draft(self, final: _Final) -> Draft:
        claims: list[DraftClaim] = []
        numbers: dict[tuple[str, int, int], int] = {}
        words = _WORDS[self.language if self.language in _WORDS else "en"]

        def quoted(name: str) -> int | None:
            fact = self.facts.get(name)
            if fact is None or not fact.found or fact.quote is None:
                return None
            place = (fact.document, fact.start, fact.end)
            if place not in numbers:
                said = fact.quote.reveal()
                citation = DraftCitation(document=fact.document, quote=said)
                text = re.sub(r"^[-*•–] (?=\S)", "", " ".join(said.split()))
                claims.append(DraftClaim(text=text, citations=(citation,)))
                numbers[place] = len(claims)
            return numbers[place]

        resting: list[int] = []
        unmeasured = final.answer is not None
        for name in final.facts[:MAX_USED]:
            number = quoted(name)
            if number is not None:
                resting.append(number)
        for comparison in final.comparisons[:MAX_USED]:
            left, right = quoted(comparison.left), quoted(comparison.right)
            if left is None or right is None or left == right or self._contradicted(comparison):
                continue
            one, other = self.facts[comparison.left], self.facts[comparison.right]
            text = words[comparison.verdict].format(x=one.place, y=other.place)
            pair = self._measured(comparison.left, comparison.right)
            if pair is not None:
                a, b = (" ".join(value.text.reveal().split()) for value in pair)
                text += f": {words['values'].format(a=a, b=b, x=one.document, y=other.document)}"
            unmeasured = unmeasured or pair is None
            claims.append(DraftClaim(text=f"{text}.", kind="conclusion", premises=(left, right)))
            resting.append(len(claims))
        for gap in final.missing[:MAX_USED]:
            if gap.fact:
                quoted(gap.fact)
        if final.answer is not None and resting:
            text = words["answer"].format(verdict=words[final.answer])
            claims.append(DraftClaim(text=text, kind="conclusion", premises=tuple(dict.fromkeys(resting))))
        if unmeasured:
            self.warnings.append(UNSEEN)
        return Draft(claims=tuple(claims), missing=self._gaps(final))

    def _gaps(self, final: _Final) -> tuple[DraftGap, ...]:
        """What the planner says is missing, in its own words or by the heading of the fact that asks for it."""
        gaps: dict[str, DraftGap] = {}
        for missing in final.missing[:MAX_USED]:
            fact = self.facts.get(missing.fact or "")
            what = " ".join((missing.what or "").split())
            if fact is not None and fact.quote is not None:
                heading = "" if fact.heading is None else fact.heading.reveal()
                words = " ".join(fact.terms)
                label = heading if len(heading.split()) > 1 else f"{heading}: {words}" if heading else words
                what = " ".join(label.split()) or what or " ".join(fact.quote.reveal().split()[:8])
                places = [f"{s.name}: {label}" for s in self.corpus.sources for label in self._own_labels(s)]
                what += f" ({'; '.join(places)})" if places else ""
            if what:
                gaps.setdefault(what, DraftGap(what=what[:300], reason=self._looked()))
        return tuple(gaps.values())

    def _own_labels(self, source: SourceConfig) -> list[str]:
        """Filter values of a source that the question names."""
        return [
            label
            for key in source.filters
            for label in self._labels[source.name, key]
            if not _NUMBERED.fullmatch(label)
        ]

    def _looked(self) -> str:
        done: dict[str, list[str]] = {}
        for search in self.ledger.evidence().searches:
            done.setdefault(search.source, []).append(search.query)
        return "; ".join(f"searched {n}: {' | '.join(dict.fromkeys(q))}" for n, q in done.items())[:600]


_NUMBERED = re.compile(r"v\d+")


def _parameter(key: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", key)
    return f"filter_{name}" if name in ("query", "only_current", "k") else name


def _object(properties: dict[str, Any], *, required: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _read_tool() -> ToolDefinition:
    return ToolDefinition(
        name=READ_DOCUMENT,
        description=(
            "Has one document read by a reader that answers one question about it. You get typed facts, never its "
            "words. Several calls in one step are made together."
        ),
        parameters_json_schema=_object(
            {
                "document": {"type": "string", "description": "A handle, as h1."},
                "question": {
                    "type": "string",
                    "maxLength": MAX_ASKED,
                    "description": "What to look for in this document, understandable by itself.",
                },
                "kind": {
                    "type": "string",
                    "enum": list(KINDS),
                    "description": (
                        "What comes back. points: every rule, duty or statement that bears on the question, each as a "
                        "fact. passage: the one sentence that says it. The others: a value of that type with its "
                        "sentence; choice: one of `options`."
                    ),
                },
                "options": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_OPTIONS},
            },
            required=["document", "question", "kind"],
        ),
    )


def _label(labels: Mapping[str, str], value: str) -> str:
    return next((label for label, v in labels.items() if v == value), "v0")


def _version(text: str) -> float | None:
    """A version that is a plain number, as a number: nothing else of it may pass."""
    found = re.fullmatch(r"v?(\d{1,4}(?:\.\d{1,2})?)", text.strip(), re.IGNORECASE | re.ASCII)
    number = None if found is None else float(found[1])
    return int(number) if number is not None and number.is_integer() else number


def _date(text: str) -> Told | None:
    found = re.fullmatch(r"\d{4}-\d{2}-\d{2}", text.strip(), re.ASCII)
    return None if found is None else Told(found[0])


def _bare_words(text: str) -> set[str]:
    return {fold(w) for w in re.findall(r"[^\W_]+", text)}


def _digits(value: Value) -> list[str]:
    """How a typed value may be written in a query."""
    if value.date:
        return [value.date, value.date[:4]]
    number = value.number
    if number is None or number.denominator != 1:
        return []
    return [str(int(number))]


def _heading(document: Document, section: Section | None, sentence: str) -> str:
    """The title of the innermost section that is a heading: that of a numbered paragraph is the paragraph itself."""
    said = fold_text(sentence).text
    for one in reversed(document.section_path(None if section is None else section.id)):
        title = fold_text(one.title).text
        if one.parent is not None and title and title[:20] not in said:
            return one.title
    return ""


def _windows(text: str, asked: str, *, language: str) -> list[Span]:
    """The stretches of a text that have most of the asked words, the best ones."""
    wanted = stems(asked, language=language)
    spans = [Span(start=at, end=min(len(text), at + 1500)) for at in range(0, len(text), 1200)]
    scored = [(len(wanted & stems(text[s.start : s.end], language=language)), s) for s in spans]
    return [span for shared, span in sorted(scored, key=lambda pair: (-pair[0], pair[1].start))[:WINDOWS] if shared]


def _merged(spans: Sequence[Span]) -> list[Span]:
    """In order, without overlaps."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        if merged and span.start <= merged[-1].end:
            merged[-1] = Span(start=merged[-1].start, end=max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def _calls_of(response: ModelResponse) -> list[tuple[str, dict[str, Any]]]:
    """The calls of a planner's reply: as tool calls, or as JSON in its text."""
    parts = [p for p in response.parts if isinstance(p, ToolCallPart)]
    calls: list[tuple[str, object]] = [(p.tool_name, _json(p.args)) for p in parts]
    if not parts:
        text = "".join(p.content for p in response.parts if isinstance(p, TextPart)).strip()
        whole = _json(re.sub(r"^```(?:json)?\s*|\s*```$", "", text))
        rows: object = cast("dict[str, object]", whole).get("calls") if isinstance(whole, dict) else whole
        for row in cast("list[object]", rows) if isinstance(rows, list) else ():
            if isinstance(row, dict):
                known = cast("dict[str, object]", row)
                calls.append((str(known.get("name") or known.get("tool") or ""), known.get("arguments")))
    return [(name, cast("dict[str, Any]", args) if isinstance(args, dict) else {}) for name, args in calls]


def _json(value: object) -> object:
    if not isinstance(value, str):
        return value if value is not None else {}
    try:
        return json.loads(value) if value.strip() else {}
    except ValueError:
        return None


def _parsed(response: ModelResponse, reply: type[R], tool: str) -> R | None:
    """The one call of the output tool, or bare JSON, in the form asked for. None for anything else."""
    if response.finish_reason in ("length", "content_filter"):
        return None
    calls = [p for p in response.parts if isinstance(p, ToolCallPart)]
    if calls:
        if calls[0].tool_name != tool:
            return None
        given = _json(calls[0].args)
    else:
        text = "".join(p.content for p in response.parts if isinstance(p, TextPart)).strip()
        given = _json(re.sub(r"^```(?:json)?\s*|\s*```$", "", text))
    try:
        return reply.model_validate(given)
    except (ValidationError, ValueError, TypeError, RecursionError):
        return None

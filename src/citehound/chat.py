"""A conversation: what earlier turns asked, answered and read, how much of it the next one is told, what still holds.

Answers nothing itself: a turn is answered by whoever opened the chat (`Assistant.chat`), and each is a run of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .access import Principal
from .answers import Answer, Claim
from .budget import worst_tokens
from .config import ChatConfig
from .corpus import Corpus
from .documents import Document, Passage
from .errors import CitehoundError, UsageError
from .events import Emit
from .evidence import Evidence
from .followups import FollowUp
from .judge import Judge, ModelJudge, RulesJudge
from .prompts import earlier_block
from .runs import new_run_id
from .security import Prompt, visible, visible_json

MOST_PASSAGES = 400
"""Passages that a chat keeps as read; the ones read longest ago go first."""
MOST_CHARS = 2_000_000
"""Characters of all of them."""
MOST_TURNS = 200
"""Turns that a chat remembers."""
_LONGEST_TURN = 8000
"""Characters of one turn that are looked at when the next is told of it."""
_MOST_SHOWN = 60
"""Passages that are tried for what the next turn is shown."""
_AROUND = 400
"""Characters kept on each side of a cited place of a passage that is too long to show."""
_UNSEARCHED = (
    "what the question leans on could not be told from the conversation, so it was searched as it was asked: {why}"
)


@dataclass(frozen=True, kw_only=True)
class Past:
    """One turn that is over, as later ones are told of it."""

    number: int
    asked: str
    """As it was typed."""
    question: str
    """As it was answered."""
    status: str
    claims: tuple[Claim, ...] = ()
    missing: tuple[str, ...] = ()
    text: str = ""
    """Of an answer without claims."""
    clarification: str | None = None
    run_id: str = ""


@dataclass(kw_only=True)
class Turn:
    """One question on its way through a run, which fills in what became of it."""

    chat_id: str
    number: int
    asked: str
    past: tuple[Past, ...] = ()
    """Earlier turns, oldest first; the claims of documents that have changed are marked."""
    read: tuple[Passage, ...] = ()
    """What they have read and what still stands so, the latest last."""
    settings: ChatConfig = field(default_factory=ChatConfig)
    notes: tuple[str, ...] = ()
    """What the person should know beside the answer."""
    understood: FollowUp | None = None
    evidence: Evidence | None = None
    answer: Answer | None = None

    @property
    def may_ask_back(self) -> bool:
        """Allowed, and the question is no reply to having been asked back."""
        return self.settings.clarify and not (self.past and self.past[-1].clarification)

    async def understand(self, *, judge: Judge, rules: RulesJudge) -> FollowUp:
        """Makes the question self-contained. A judge of the caller's own does not decide on this; rules do."""
        decider = judge if isinstance(judge, ModelJudge) else rules
        question, before = self.asked, [p.question for p in self.past]
        if isinstance(decider, RulesJudge):
            before = [p.question for p in self.past if not p.clarification]
            if self.past and self.past[-1].clarification:
                question = _joined(self.past[-1].asked, self.asked)
        found = await decider.follow_up(
            question, before, told=self.told_turns(self.settings.history_tokens // 2), clarify=self.may_ask_back
        )
        if found.question == question and question != self.asked:
            found = replace(found, why=found.why or "with what was asked before")
        self.understood = found
        if found.open and not found.clarification and before:
            self.notes = (*self.notes, _UNSEARCHED.format(why=found.why or "nothing earlier names it"))
        return found

    def told_turns(self, tokens: int) -> str:
        """Earlier turns as JSON of at most so many tokens; empty where there are none, or none fits."""
        rows = _rows(self.past, tokens)
        return _json({"turns": rows}) if rows else ""

    def told(self, tokens: int) -> Prompt | None:
        """What the answering model is told: turns (at most half of it), then passages. Never more than `tokens`."""
        rows = _rows(self.past, tokens // 2)
        shown: list[dict[str, Any]] = []
        left = tokens - worst_tokens(earlier_block(_json({"turns": rows, "read": []})))
        for passage in _wanted(self.read, self.past)[:_MOST_SHOWN]:
            for row in (_whole(passage), _part(passage, self.past)):
                if row is None or len(row["text"]) > 8 * max(0, left):
                    continue
                cost = worst_tokens(_json(row)) + 2  # parts never cost less than the whole that they make
                if cost <= left:
                    shown.append(row)
                    left -= cost
                    break
        return earlier_block(_json({"turns": rows, "read": shown})) if left >= 0 and (rows or shown) else None


class AskTurn(Protocol):
    """How a chat gets a turn answered; `turn` is filled in meanwhile, also where the run is cancelled."""

    async def __call__(
        self,
        turn: Turn,
        *,
        mode: str,
        max_steps: int | None,
        max_dollars: float | None,
        max_seconds: float | None,
        emit: Emit | None,
    ) -> Answer: ...


@dataclass(frozen=True, kw_only=True)
class ChatSource:
    """A document that a chat has read."""

    document: str
    title: str
    turns: tuple[int, ...]
    """Numbers of the turns that read it."""
    cited: tuple[int, ...]
    """Numbers of the turns whose answer has a verified citation of it."""
    holds: bool
    """False once it has changed or gone: what was read no longer counts."""


class Chat:
    """A conversation over one corpus: a question may lean on those before it, and what was read can be cited again.

    Each turn is a run with a budget and a record of its own. One question at a time. Nothing is kept beyond the object
    but the records of its runs, which name the chat.
    """

    def __init__(
        self,
        asks: AskTurn,
        corpus: Callable[[], Corpus],
        *,
        principal: Principal,
        settings: ChatConfig,
        mode: str = "auto",
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
    ) -> None:
        self.id = new_run_id()
        self._asks = asks
        self._corpus = corpus
        self._principal = principal
        self._settings = settings
        self._mode = mode
        self._max_steps = max_steps
        self._max_dollars = max_dollars
        self._max_seconds = max_seconds
        self._busy = threading.Lock()
        self._turns = 0
        self._past: list[Past] = []
        self._read: list[Passage] = []
        self._hashes: dict[str, str] = {}
        """Of each document's text, as it was when it was read."""
        self._readers: dict[str, list[int]] = {}
        self._gone: set[str] = set()
        """Documents that have changed since; read again, they count again."""
        self._titles: dict[str, str] = {}

    @property
    def turns(self) -> tuple[Past, ...]:
        """The turns so far, oldest first."""
        return tuple(self._past)

    async def ask(
        self,
        question: str,
        *,
        mode: str | None = None,
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
        emit: Emit | None = None,
    ) -> Answer:
        """Answers the next question of the conversation; None takes what the chat was opened with.

        `Answer.rewritten` tells how it was understood. Raises as `Assistant.ask` does, and UsageError while another
        question of this chat is being answered. After a cancellation the chat can go on: what was read counts.
        """
        text = visible(question).strip()
        if not text:
            raise UsageError("the question is empty: ask something")
        if not self._busy.acquire(blocking=False):
            raise UsageError("this chat is still answering: wait for it, or open another chat")
        try:
            turn = await asyncio.to_thread(self._next, text)
            try:
                return await self._asks(
                    turn,
                    mode=self._mode if mode is None else mode,
                    max_steps=self._max_steps if max_steps is None else max_steps,
                    max_dollars=self._max_dollars if max_dollars is None else max_dollars,
                    max_seconds=self._max_seconds if max_seconds is None else max_seconds,
                    emit=emit,
                )
            finally:
                self._keep(turn)
        finally:
            self._busy.release()

    def ask_sync(
        self,
        question: str,
        *,
        mode: str | None = None,
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
        emit: Emit | None = None,
    ) -> Answer:
        """`ask` for callers without an event loop."""
        return asyncio.run(
            self.ask(
                question, mode=mode, max_steps=max_steps, max_dollars=max_dollars, max_seconds=max_seconds, emit=emit
            )
        )

    def sources(self) -> tuple[ChatSource, ...]:
        """The documents read so far, in the order of first reading."""
        self._revalidate()
        cited: dict[str, list[int]] = {}
        for past in self._past:
            for claim in past.claims:
                for citation in claim.citations:
                    if citation.status == "verified" and past.number not in cited.setdefault(citation.document, []):
                        cited[citation.document].append(past.number)
        return tuple(
            ChatSource(
                document=document,
                title=self._titles.get(document, ""),
                turns=tuple(turns),
                cited=tuple(cited.get(document, ())),
                holds=document not in self._gone,
            )
            for document, turns in self._readers.items()
        )

    def take_up(self, past: Past, read: Sequence[Passage] = ()) -> None:
        """Goes on after a turn that was kept elsewhere, with what it has read; what no longer stands so is left out."""
        self._turns += 1
        self._past.append(replace(past, number=self._turns))
        del self._past[:-MOST_TURNS]
        self._take(read, self._turns)

    # between turns

    def _next(self, question: str) -> Turn:
        changed = self._revalidate()
        notes = tuple(
            f"{document} has changed since turn {self._readers[document][-1]}, or is gone: what was read of it then "
            "no longer counts as read"
            for document in changed
        )
        return Turn(
            chat_id=self.id,
            number=self._turns + 1,
            asked=question,
            past=tuple(_marked(past, self._gone) for past in self._past),
            read=tuple(self._read),
            settings=self._settings,
            notes=notes,
        )

    def _revalidate(self) -> list[str]:
        """Drops what was read of documents that have changed, are gone or may not be seen any more; returns which.

        What stays gets the labels of today ('superseded by …').
        """
        changed = [d for d in self._hashes if self._hash(d) != self._hashes[d]]
        for document in changed:
            del self._hashes[document]
            self._gone.add(document)
        fresh: list[Passage] = []
        for passage in self._read:
            if passage.document not in self._hashes:
                continue
            try:
                info = self._corpus().info(passage.document, principal=self._principal)
            except CitehoundError:
                continue
            fresh.append(replace(passage, current=info.current, labels=info.labels, metadata=info.metadata))
        self._read = fresh
        return changed

    def _document(self, document: str) -> Document | None:
        """None where there is none, or none for who asks."""
        try:
            return self._corpus().document(document, principal=self._principal)
        except CitehoundError:
            return None

    def _hash(self, name: str) -> str | None:
        document = self._document(name)
        return None if document is None else _digest(document)

    def _keep(self, turn: Turn) -> None:
        """Takes over what a turn has asked, answered and read, if it has begun."""
        answer = turn.answer
        if answer is None:
            return
        self._turns = turn.number
        self._past.append(
            Past(
                number=turn.number,
                asked=turn.asked,
                question=answer.rewritten or turn.asked,
                status=answer.status,
                claims=answer.claims,
                missing=tuple(gap.what for gap in answer.missing),
                text="" if answer.claims or answer.clarification else answer.text,
                clarification=answer.clarification,
                run_id=answer.run_id,
            )
        )
        del self._past[:-MOST_TURNS]
        if turn.evidence is not None:
            self._take(turn.evidence.passages, turn.number)

    def _take(self, passages: Sequence[Passage], number: int) -> None:
        documents: dict[str, Document | None] = {}
        known = {(p.document, p.start, p.end): p for p in self._read}
        for passage in passages:
            name = passage.document
            if name not in documents:
                documents[name] = self._document(name)
            document = documents[name]
            if document is None or document.text[passage.start : passage.end] != passage.text:
                continue
            digest = _digest(document)
            if self._hashes.get(name, digest) != digest:  # changed while this turn lasted
                known = {place: p for place, p in known.items() if p.document != name}
            self._hashes[name] = digest
            self._gone.discard(name)
            self._titles[name] = document.title
            if number not in self._readers.setdefault(name, []):
                self._readers[name].append(number)
            place = (name, passage.start, passage.end)
            known.pop(place, None)
            known[place] = replace(passage, outline=(), next_start=None)
        kept: list[Passage] = []
        chars = 0
        for passage in reversed(known.values()):
            chars += len(passage.text)
            if len(kept) == MOST_PASSAGES or chars > MOST_CHARS:
                break
            kept.append(passage)
        self._read = kept[::-1]


def _digest(document: Document) -> str:
    return hashlib.sha256(document.text.encode("utf-8", "surrogatepass")).hexdigest()


# What the next turn is told.


def _marked(past: Past, gone: set[str]) -> Past:
    """The turn without what it said from documents that have changed or gone since, and what it concluded from that."""
    out: set[int] = set()
    for number, claim in enumerate(past.claims, start=1):
        if any(c.document in gone for c in claim.citations) or out & set(claim.premises):
            out.add(number)
    if not out:
        return past
    claims = tuple(claim for number, claim in enumerate(past.claims, start=1) if number not in out)
    return replace(
        past, claims=claims, text=f"{len(out)} claims are left out: their documents have changed or are gone"
    )


def _rows(past: Sequence[Past], tokens: int) -> list[dict[str, Any]]:
    """Turns as data, oldest first, in at most so many tokens: the latest whole, older ones as question and verified
    claims, the oldest not at all."""
    rows: list[dict[str, Any]] = []
    shorten = False
    for one in reversed(past):
        if not shorten and _fits([_in_full(one), *rows], tokens):
            rows.insert(0, _in_full(one))
            continue
        shorten = True
        if not _fits([_in_short(one), *rows], tokens):
            break
        rows.insert(0, _in_short(one))
    return rows


def _fits(rows: Sequence[Mapping[str, Any]], tokens: int) -> bool:
    return worst_tokens(_json({"turns": rows})) <= tokens


def _in_full(past: Past) -> dict[str, Any]:
    claims = [
        {
            "text": _cut(claim.text),
            "kind": claim.kind,
            "status": claim.status,
            "citations": [
                {"document": c.document, "section": c.section, "quote": _cut(c.quote)}
                for c in claim.citations
                if c.status == "verified"
            ],
        }
        for claim in past.claims
    ]
    return {
        "turn": past.number,
        "question": _cut(past.question),
        **({"asked": _cut(past.asked)} if past.asked != past.question else {}),
        "status": past.status,
        **({"claims": claims} if claims else {}),
        **({"answer": _cut(past.text)} if past.text else {}),
        **({"missing": [_cut(m) for m in past.missing]} if past.missing else {}),
        **({"asked_back": _cut(past.clarification)} if past.clarification else {}),
    }


def _in_short(past: Past) -> dict[str, Any]:
    verified = [_cut(c.text) for c in past.claims if c.status == "verified"]
    return {"turn": past.number, "question": _cut(past.question), "verified_claims": verified}


def _cut(text: str) -> str:
    return visible(text)[:_LONGEST_TURN]


def _wanted(read: Sequence[Passage], past: Sequence[Past]) -> list[Passage]:
    """Passages in the order of use: those that the latest answers cite, then the latest read."""
    places = _cited(past)

    def rank(item: tuple[int, Passage]) -> tuple[int, int]:
        at, passage = item
        cited = [n for n, d, start, _ in places if d == passage.document and passage.start <= start < passage.end]
        return (-max(cited, default=0), -at)

    return [passage for _, passage in sorted(enumerate(read), key=rank)]


def _cited(past: Sequence[Past]) -> list[tuple[int, str, int, int]]:
    """(turn, document, start, end) of every verified citation."""
    return [
        (one.number, c.document, c.start, c.end)
        for one in past
        for claim in one.claims
        if claim.status == "verified"
        for c in claim.citations
        if c.status == "verified" and c.start is not None and c.end is not None
    ]


def _whole(passage: Passage) -> dict[str, Any]:
    return {
        "document": passage.document,
        "section": passage.section,
        "title": passage.title,
        "current": passage.current,
        **({"labels": list(passage.labels)} if passage.labels else {}),
        "text": passage.text,
    }


def _part(passage: Passage, past: Sequence[Past]) -> dict[str, Any] | None:
    """The part of a passage around what was cited of it; None where that is not less."""
    spans = [(s, e) for _, d, s, e in _cited(past) if d == passage.document and passage.start <= s < passage.end]
    if not spans:
        return None
    first = max(0, min(s for s, _ in spans) - passage.start - _AROUND)
    last = max(e for _, e in spans) - passage.start + _AROUND
    if last - first >= len(passage.text):
        return None
    return {**_whole(passage), "text": passage.text[first:last], "part": True}


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(visible_json(value), ensure_ascii=False)


def _joined(asked: str, reply: str) -> str:
    """A question that was asked back, with the reply to it."""
    begin = asked.rstrip(" ?!.")
    return f"{begin} ({reply.rstrip(' ?!.')})?"

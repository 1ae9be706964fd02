"""The offline model in quarantined reading: plans over handles and typed facts, and reads one text by rules.

Two halves that share nothing: `plan` gets what a planner is told, `read` what a reader is given. Neither judges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from ...index import Lexicon
from ...quantities import quantities
from .plan import catchword, versions_named
from .state import Text, Weights
from .support import asked_in, is_heading, questions, supports
from .words import (
    Sentence,
    asks,
    asks_for_change,
    asks_for_older,
    clauses,
    compares,
    has_value,
    is_simple,
    is_yes_no,
    language_of,
    requires,
    sentences,
    stems,
    wanted,
    words,
)

READING = "reading"
"""Name of the output tool that a reading is handed in with."""
READ_DOCUMENT = "read_document"
MAX_CALLS = 8
MOST_WORDS = 8
"""Words of a query."""
FIRST_READS = 5
MORE_READS = 4
RULE_DOCUMENTS = 2
CANDIDATES = 3
"""Documents in which one requirement is looked for."""
MOST_POINTS = 10
_LEAST = 0.3
_NUMBERED = re.compile(r"v\d+")
_VALUES = ("duration", "money", "percent", "date", "number")
_TIMES = frozenset(("second", "minute", "hour", "day", "business day", "week", "month", "quarter", "year"))


def is_quarantined(parameters: ModelRequestParameters) -> bool:
    """True for a request of quarantined reading, to either half."""
    return any(t.name == READING or "comparisons" in _properties(t) for t in parameters.output_tools)


def _properties(tool: ToolDefinition) -> Mapping[str, dict[str, Any]]:
    return cast("dict[str, dict[str, Any]]", tool.parameters_json_schema.get("properties", {}))


def reply(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, *, lexicon: Lexicon
) -> list[tuple[str, dict[str, Any]]]:
    """The calls that answer such a request."""
    told = _told(messages)
    output = parameters.output_tools[0].name
    if output == READING:
        return [(READING, read(told, lexicon=lexicon))]
    calls = plan(told, parameters.function_tools, lexicon=lexicon)
    return calls or [(output, answer(told, parameters.function_tools))]


def _told(messages: Sequence[ModelMessage]) -> dict[str, Any]:
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart) and isinstance(part.content, str):
                    return cast("dict[str, Any]", json.loads(part.content))
    return {}


# Planning.


@dataclass(frozen=True, kw_only=True)
class _Source:
    tool: str
    filters: Mapping[str, str]
    """Those that the question names."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What a planner is told, laid out."""

    question: str
    language: str
    sources: tuple[_Source, ...]
    documents: tuple[Mapping[str, Any], ...]
    facts: tuple[Mapping[str, Any], ...]
    searches: tuple[Mapping[str, Any], ...]
    last: bool

    @property
    def judging(self) -> bool:
        return is_yes_no(self.question) or compares(self.question)

    def tool_of(self, source: str) -> str:
        return "search_" + re.sub(r"[^A-Za-z0-9_]", "_", source)

    @property
    def own(self) -> frozenset[str]:
        """Sources in which the question names somebody, as their tools are called."""
        by_tools = {s.tool for s in self.sources if s.filters}
        by_rows = {
            self.tool_of(str(row["source"]))
            for row in (*self.documents, *self.searches)
            if any(not _NUMBERED.fullmatch(str(v)) for v in cast("dict[str, Any]", row.get("filters", {})).values())
        }
        return frozenset(by_tools | by_rows)

    def found_by(self, query: str) -> list[str]:
        """Handles that a search of these words gave."""
        wanted_words = frozenset(query.split())
        rows = [row for row in self.searches if frozenset(str(row["query"]).split()) == wanted_words]
        return [str(h) for row in rows for h in cast("list[Any]", row["documents"])]


def _known(told: Mapping[str, Any], tools: Sequence[ToolDefinition]) -> _Known:
    question = str(told.get("question", ""))
    found: list[_Source] = []
    for tool in tools:
        if not tool.name.startswith("search_"):
            continue
        filters = {
            key: label
            for key, schema in _properties(tool).items()
            for label in cast("list[str]", schema.get("enum", ()))
            if not _NUMBERED.fullmatch(label)
        }
        found.append(_Source(tool=tool.name, filters=filters))
    return _Known(
        question=question,
        language=language_of(question),
        sources=tuple(found),
        documents=tuple(cast("list[dict[str, Any]]", told.get("documents", []))),
        facts=tuple(cast("list[dict[str, Any]]", told.get("facts", []))),
        searches=tuple(cast("list[dict[str, Any]]", told.get("searches", []))),
        last=bool(told.get("final_answer_now")),
    )


def plan(
    told: Mapping[str, Any], tools: Sequence[ToolDefinition], *, lexicon: Lexicon
) -> list[tuple[str, dict[str, Any]]]:
    """The next calls; none once it is time to answer."""
    known = _known(told, tools)
    if known.last:
        return []
    if known.sources and not known.searches:
        older = {"only_current": False} if asks_for_older(known.question) or versions_named(known.question) else {}
        calls = [_search(s, _content(known, lexicon)) for s in known.sources]
        return [(tool, {**arguments, **older}) for tool, arguments in calls][:MAX_CALLS]
    calls = _comparing(known) if _compares(known) else _looking(known)
    return calls[:MAX_CALLS]


def _content(known: _Known, lexicon: Lexicon) -> str:
    """The rarest words of the question, as a query."""
    weigh = Weights(lexicon, known.language)
    weights = weigh.of(known.question)
    kept = sorted(weights, key=lambda s: -weights[s])[:MOST_WORDS]
    found: dict[str, str] = {}
    for word in words(known.question, language=known.language):
        if word.stem in kept:
            found.setdefault(word.stem, word.text)
    return " ".join(found.values()) or " ".join(known.question.split()[:MOST_WORDS])


def _search(source: _Source, query: str) -> tuple[str, dict[str, Any]]:
    return source.tool, {"query": query, **source.filters}


def _reading(document: object, question: str, kind: str) -> tuple[str, dict[str, Any]]:
    return READ_DOCUMENT, {"document": document, "question": question[:240], "kind": kind}


def _was_asked(known: _Known, document: object, question: str, kind: str | None = None) -> bool:
    asked = question[:240]
    return any(
        f["document"] == document
        and (f.get("asked", known.question[:240]) == asked)
        and kind in (None, f.get("kind", "points"))
        for f in known.facts
    )


# One text beside a rule.


def _compares(known: _Known) -> bool:
    return known.judging and bool(known.own) and bool(_rule_documents(known))


def _rule_documents(known: _Known) -> list[Mapping[str, Any]]:
    """The documents that may set the rules: those that the question names, else what was found outside of the own."""
    others = [d for d in known.documents if known.tool_of(str(d["source"])) not in known.own and d.get("current", True)]
    named = [d for d in others if d.get("named_in_question")]
    return (named or others)[:RULE_DOCUMENTS]


def _requirements(known: _Known) -> list[Mapping[str, Any]]:
    rules = {d["document"] for d in _rule_documents(known)}
    return [f for f in known.facts if f["document"] in rules and f.get("requires") and "asked" not in f]


def _words_of(fact: Mapping[str, Any]) -> str:
    return " ".join(dict.fromkeys([*fact.get("subject", ()), *fact.get("terms", ())][:MOST_WORDS]))


def _comparing(known: _Known) -> list[tuple[str, dict[str, Any]]]:
    unread = [d for d in _rule_documents(known) if not d.get("read")]
    if unread:
        return [_reading(d["document"], known.question, "points") for d in unread]
    needs = [f for f in _requirements(known) if _words_of(f)]
    own = [s for s in known.sources if s.tool in known.own]
    searching = [_search(s, _words_of(f)) for f in needs for s in own if not known.found_by(_words_of(f))]
    done = {(known.tool_of(str(row["source"])), str(row["query"])) for row in known.searches}
    searching = [c for c in searching if (c[0], c[1]["query"]) not in done]
    if searching:
        return list({json.dumps(c): c for c in searching}.values())
    readings = [
        _reading(handle, _words_of(fact), "passage")
        for fact in needs
        for handle in _candidates(known, fact)
        if not _was_asked(known, handle, _words_of(fact))
    ]
    return list({json.dumps(c): c for c in readings}.values())


def _candidates(known: _Known, fact: Mapping[str, Any]) -> list[str]:
    """Documents that a search for a requirement found, and those that amend them."""
    found = [h for h in dict.fromkeys(known.found_by(_words_of(fact)))]
    if not known.sources:
        found = [str(d["document"]) for d in known.documents if known.tool_of(str(d["source"])) in known.own]
    by_handle = {d["document"]: d for d in known.documents}
    kept = [h for h in found if h in by_handle and known.tool_of(str(by_handle[h]["source"])) in known.own][:CANDIDATES]
    amending = [a for h in kept for a in cast("list[str]", by_handle[h].get("amended_by", ()))]
    return list(dict.fromkeys([*kept, *amending]))


def _matches(known: _Known, need: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Facts that speak of what a requirement is about, the closest first."""
    asked = _words_of(need)
    about = stems(" ".join(need.get("subject", ())), language=known.language)
    found: list[tuple[float, Mapping[str, Any]]] = []
    for fact in known.facts:
        if not fact.get("found") or fact.get("asked") != asked or fact["document"] == need["document"]:
            continue
        said = stems(" ".join([*fact.get("subject", ()), *fact.get("terms", ())]), language=known.language)
        shared = bool(about & said)
        pair = _pair(need, fact)
        if fact["fit"] >= 5 or (fact["fit"] >= 3 and (shared or pair is not None)):
            found.append((fact["fit"] + 3 * shared + 2 * (pair is not None), fact))
    found.sort(key=lambda f: -f[0])
    best = found[0][0] if found else 0.0
    return [fact for score, fact in found[:2] if score >= 0.7 * best]


def _values(fact: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    first = [fact["value"]] if "value" in fact else []
    return [*first, *fact.get("values", ())]


def _pair(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float, float] | None:
    """Two values of one unit, the first that there are; None where nothing can be compared."""
    for a in _values(one):
        same = [b for b in _values(other) if b["unit"] == a["unit"] and "number" in a and "number" in b]
        if same:
            equal = next((b for b in same if b["number"] == a["number"]), same[0])
            return a["number"], equal["number"]
    return None


def answer(told: Mapping[str, Any], tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    """The final answer from the facts there are: side by side, not judged."""
    known = _known(told, tools)
    return (_compared(known) if _compares(known) else None) or _answered(known)


def _compared(known: _Known) -> dict[str, Any] | None:
    facts: list[str] = []
    comparisons: list[dict[str, str]] = []
    pairs = [(need, _matches(known, need)) for need in _requirements(known)]
    applies = {need.get("group") for need, found in pairs if found}
    missing: list[dict[str, str]] = []
    for need, found in pairs:
        if not found and need.get("group") in applies and _words_of(need):
            missing.append({"fact": need["fact"]})
        for fact in found:
            facts += [need["fact"], fact["fact"]]
            pair = _pair(need, fact)
            if pair is not None and pair[0] != pair[1]:
                comparisons.append({"left": need["fact"], "right": fact["fact"], "verdict": "differs"})
    if not facts:
        return None
    return {"facts": list(dict.fromkeys(facts)), "comparisons": comparisons, "missing": missing}


# One thing that some text says.


def _parts(known: _Known) -> list[str]:
    found = [" ".join(part.split()) for part in clauses(known.question) if asks(part)]
    return found[:3] or [known.question]


def _kind(part: str) -> str:
    kinds = wanted(part)
    return next((k for k in _VALUES if k in kinds), "passage") if len(kinds) == 1 else "passage"


def _passage(part: str) -> str:
    return "passage"


def _looking(known: _Known) -> list[tuple[str, dict[str, Any]]]:
    parts = _parts(known)
    first = _likely(known, known.searches[: max(1, len({str(s["source"]) for s in known.searches}))])[:FIRST_READS]
    versions = versions_named(known.question)
    if versions:  # another version tells nothing of the one that is asked for
        first = [
            h for h in first if any(str(d.get("version")) in versions for d in known.documents if d["document"] == h)
        ]
    for kind_of in (_kind, _passage):
        open_parts = [p for p in parts if not _answers(known, p)]
        readings = [
            _reading(handle, part, kind_of(part))
            for part in open_parts
            for handle in first
            if not _was_asked(known, handle, part, kind_of(part))
        ]
        if readings:
            return readings
    change = asks_for_change(known.question) or known.judging or not is_simple(known.question)
    found = sorted((f for f in known.facts if f.get("found")), key=lambda f: -f["fit"])[:2]
    queries = [q for q in (_words_of(f) for f in found) if len(q.split()) > 1 and not _was_searched(known, q)]
    if known.sources and queries and change and not versions and len(known.searches) < 3 * len(known.sources):
        return [_search(source, query) for query in queries for source in known.sources]
    if change and not versions:
        later = [h for h in _likely(known, known.searches) if h not in first][:MORE_READS]
        return [
            _reading(handle, part, "passage")
            for part in parts
            for handle in later
            if not _was_asked(known, handle, part, "passage")
        ]
    return []


def _was_searched(known: _Known, query: str) -> bool:
    return any(frozenset(str(row["query"]).split()) == frozenset(query.split()) for row in known.searches)


def _likely(known: _Known, searches: Sequence[Mapping[str, Any]]) -> list[str]:
    """Handles of several searches in turn: what the question names first, then the first of each, the second ..."""
    lists = [[str(h) for h in cast("list[Any]", row["documents"])] for row in searches]
    by_handle = {str(d["document"]): d for d in known.documents}
    named = [h for h in dict.fromkeys(h for one in lists for h in one) if by_handle[h].get("named_in_question")]
    turns = [one[at] for at in range(max((len(one) for one in lists), default=0)) for one in lists if at < len(one)]
    own = [h for h in turns if known.tool_of(str(by_handle[h]["source"])) in known.own]
    return list(dict.fromkeys([*named, *own, *turns]))


def _answers(known: _Known, part: str) -> list[Mapping[str, Any]]:
    found = [f for f in known.facts if f.get("found") and f.get("asked") == part[:240]]
    found.sort(key=lambda f: ("value" not in f, -f["fit"]))
    return [f for f in found if f["fit"] >= 0.7 * found[0]["fit"]][:3]


def _answered(known: _Known) -> dict[str, Any]:
    facts: list[str] = []
    missing: list[dict[str, str]] = []
    comparisons: list[dict[str, str]] = []
    for part in _parts(known):
        found = _answers(known, part)
        facts += [f["fact"] for f in found]
        if not found:
            missing.append({"what": part.rstrip(" ?.!")[:300]})
        for at, one in enumerate(found):
            for other in found[at + 1 :]:
                pair = _pair(one, other)
                ours, theirs = (frozenset([*f.get("subject", ()), *f.get("terms", ())]) for f in (one, other))
                if pair is not None and pair[0] != pair[1] and len(ours & theirs) >= 2:
                    comparisons.append({"left": one["fact"], "right": other["fact"], "verdict": "differs"})
    return {"facts": list(dict.fromkeys(facts)), "comparisons": comparisons[:3], "missing": missing}


# Reading.


def read(told: Mapping[str, Any], *, lexicon: Lexicon) -> dict[str, Any]:
    """The sentences of a text that fit a question, in the form of the kind; judges nothing, so no yes and no choice."""
    question, kind = str(told.get("question", "")), str(told.get("kind", "passage"))
    texts = [str(t) for t in cast("list[Any]", told.get("text", []))]
    language = language_of(question)
    weigh = Weights(lexicon, language)
    if kind == "points":
        return {"quotes": [s.text for s in _points(texts, question, weigh, language=language)]}
    if kind in ("yes_no", "choice"):
        return {"found": False}
    best = _best(texts, question, kind, weigh, language=language)
    if best is None:
        return {"found": False}
    found = {"found": True, "quote": best.text}
    if kind == "passage":
        return found
    value = _value(best.text, kind)
    return {"found": False} if value is None else {**found, **value}


def _lines(texts: Sequence[str]) -> list[tuple[Sentence, str, str]]:
    """Sentences that say something, each with its heading and its text."""
    found: list[tuple[Sentence, str, str]] = []
    for text in texts:
        heading = ""
        for piece in sentences(text):
            if is_heading(piece) and len(piece.text) <= 90 and not has_value(piece.text, "duration"):
                heading = piece.text
            elif len(re.findall(r"[^\W_]+", piece.text)) >= 4 and len(piece.text) <= 700:
                found.append((piece, f"{heading} {catchword(piece.text)}".strip(), text))
    return found


def _points(texts: Sequence[str], question: str, weigh: Weights, *, language: str) -> list[Sentence]:
    weights = weigh.of(question)
    found: list[tuple[float, int, Sentence]] = []
    for order, (piece, heading, _) in enumerate(_lines(texts)):
        if requires(piece.text):
            inside = stems(f"{heading} {piece.text}", language=language)
            shared = sum(w for s, w in weights.items() if s in inside)
            found.append((shared + 0.5 * bool(quantities(piece.text)), order, piece))
    best = sorted(found, key=lambda f: (-f[0], f[1]))[:MOST_POINTS]
    return [piece for _, _, piece in sorted(best, key=lambda f: f[1])]


def _best(texts: Sequence[str], question: str, kind: str, weigh: Weights, *, language: str) -> Sentence | None:
    """The sentence that holds most of what is asked, itself and with its heading."""
    weights = {s: w for s, w in weigh.of(question).items() if not s.isdigit()} or dict(weigh.of(question))
    total = sum(weights.values()) or 1.0
    asking = asks(question)
    parts = questions(clauses(question), weigh, language=language) if asking else []
    asked = [asked_in(part, weigh, language=language) for part in parts]
    best: tuple[float, Sentence | None] = (0.0, None)
    for piece, heading, text in _lines(texts):
        own = stems(piece.text, language=language)
        shared = [s for s in weights if s in own]
        above = stems(heading, language=language)
        score = sum(weights[s] for s in shared) / total + 0.3 * sum(w for s, w in weights.items() if s in above) / total
        if kind in _VALUES and _value(piece.text, kind) is None:
            continue
        if asking:
            whole = _text(text)
            if asked and not any(supports(one, whole, piece, language=language) for one in asked):
                continue
        elif len(shared) < min(2, len(weights)) or score < _LEAST:
            continue
        score += 0.05 * bool(quantities(piece.text))
        if shared and score > best[0]:
            best = (score, piece)
    return best[1]


def _text(text: str) -> Text:
    title = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return Text(
        document="",
        section=None,
        title=title[:120],
        text=text,
        start=0,
        end=len(text),
        total_chars=len(text),
        next_start=None,
        current=True,
        labels=(),
        metadata={},
        outline=(),
        step=0,
    )


def _value(sentence: str, kind: str) -> dict[str, Any] | None:
    """The first value of this kind in a sentence, as the form asks for it."""
    for quantity in quantities(sentence):
        value = float(quantity.values[0]) if quantity.values else None
        match kind:
            case "duration" if quantity.unit in _TIMES and value is not None:
                return {"number": value, "unit": quantity.unit}
            case "money" if re.fullmatch(r"[A-Z]{3}", quantity.unit) and value is not None:
                return {"number": value, "unit": quantity.unit}
            case "percent" if quantity.unit == "percent" and value is not None:
                return {"number": value}
            case "date" if quantity.unit == "date" and re.fullmatch(r"\d{4}(-\d{2}){0,2}", quantity.names[0]):
                return {"date": quantity.names[0]}
            case "number" if value is not None and quantity.unit not in ("date", "name", "ordinal", "time"):
                return {"number": value}
            case _:
                continue
    return None

"""What a run looks like to the offline planner, rebuilt from the messages each time; decides nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log
from typing import Any, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from ...chase import ALONE
from ...index import Lexicon
from .words import capitalised, fold, language_of, plain_title, stem, stems, words

LEADS = "follow_leads"
_FIXED = ("query", "only_current", "k")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One search tool: the source it searches and its filters with their known values."""

    name: str
    tool: str
    description: str
    filters: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Hit:
    document: str
    section: str | None
    title: str
    snippet: str
    current: bool
    labels: tuple[str, ...]
    rank: int
    total_chars: int | None = None


@dataclass(frozen=True, kw_only=True)
class Search:
    source: str
    query: str
    filters: Mapping[str, str]
    only_current: bool
    hits: tuple[Hit, ...]
    step: int
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Text:
    """A stretch of a document that was shown."""

    document: str
    section: str | None
    title: str
    text: str
    start: int
    end: int
    total_chars: int
    next_start: int | None
    current: bool
    labels: tuple[str, ...]
    metadata: Mapping[str, str]
    outline: tuple[tuple[str, str], ...]
    step: int
    found: bool = False
    """Shown by a find, as a window around a phrase."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A read or find that was asked for, whatever came of it."""

    tool: str
    document: str
    section: str | None
    start: int
    phrase: str | None = None


@dataclass(frozen=True, kw_only=True)
class State:
    question: str
    language: str
    sources: tuple[Source, ...]
    has_read: bool
    has_find: bool
    has_leads: bool = False
    searches: tuple[Search, ...]
    texts: tuple[Text, ...]
    tried: tuple[Tried, ...]
    steps_left: int | None
    steps: int
    rejections: tuple[str, ...] = ()
    """What the validator said of earlier drafts."""
    drafts: int = 0
    open_parts: tuple[str, ...] = ()
    """Parts of the question that the passages in the prompt are known to leave open."""

    chased: tuple[Hit, ...] | None = None
    """What `follow_leads` gave for the question, best first; None when it was not called."""
    alone: bool = False
    """It said that no second text stands firm."""

    def documents_read(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(t.document for t in self.texts))


@dataclass(frozen=True, kw_only=True)
class Stemmed:
    """Titles as stems of one language."""

    titles: Mapping[str, frozenset[str]]
    holding: Mapping[str, tuple[str, ...]]
    """Stem to the documents whose title has it."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """Titles of the corpus, prepared for matching; built once per lexicon."""

    titles: Mapping[str, str]
    sources: tuple[str, ...]
    by_source: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @cached_property
    def plain(self) -> Mapping[str, tuple[str, ...]]:
        """Plain title to its documents."""
        found: dict[str, list[str]] = {}
        for document, title in self.titles.items():
            found.setdefault(plain_title(title), []).append(document)
        return {title: tuple(documents) for title, documents in found.items()}

    @cached_property
    def tails(self) -> Mapping[str, tuple[str, ...]]:
        """The last part of an id, as plain words, to its documents."""
        found: dict[str, list[str]] = {}
        for document in self.titles:
            low = " ".join(re.findall(r"[^\W_]+", fold(document.rsplit("/", 1)[-1])))
            found.setdefault(low, []).append(document)
        return {low: tuple(documents) for low, documents in found.items()}

    @cached_property
    def _stemmed(self) -> dict[str, Stemmed]:
        return {}

    def stemmed(self, language: str) -> Stemmed:
        known = self._stemmed.get(language)
        if known is None:
            titles = {document: stems(title, language=language) for document, title in self.titles.items()}
            holding: dict[str, list[str]] = {}
            for document, found in titles.items():
                for one in found:
                    holding.setdefault(one, []).append(document)
            known = Stemmed(titles=titles, holding={k: tuple(v) for k, v in holding.items()})
            self._stemmed[language] = known
        return known

    @staticmethod
    def of(lexicon: Lexicon) -> Names:
        titles = dict(lexicon.titles())
        by_source: dict[str, list[str]] = {}
        for document in titles:
            by_source.setdefault(document.split("/", 1)[0], []).append(document)
        return Names(titles=titles, sources=tuple(by_source), by_source={k: tuple(v) for k, v in by_source.items()})


class Weights:
    """Inverse document frequencies of stems, looked up once per request (it lives no longer than one)."""

    def __init__(self, lexicon: Lexicon, language: str) -> None:
        self._lexicon = lexicon
        self._language = language
        self._passages = max(1, lexicon.passages)
        self._known: dict[str, float] = {}

    def __call__(self, word: str) -> float:
        """Weight of a word or stem; rare ones weigh up to log(passages)."""
        if word not in self._known:
            frequency = min(self._lexicon.frequency(word), self._passages)
            # A word that stands nowhere can neither be found nor be missed: it must not outweigh those that can.
            weight = log(1 + (self._passages - frequency + 0.5) / (frequency + 0.5))
            self._known[word] = weight if frequency else 0.3 * weight
        return self._known[word]

    def of(self, text: str) -> dict[str, float]:
        """Stem to weight for the content words of a text."""
        found: dict[str, float] = {}
        for word in words(text, language=self._language):
            if word.stem not in found:
                self._known.setdefault(word.stem, self(word.text.casefold()))
                found[word.stem] = self._known[word.stem]
        return found

    def frequency(self, word: str) -> int:
        return self._lexicon.frequency(word)

    def of_frequency(self, frequency: int) -> float:
        """Weight of a word that stands in so many passages."""
        frequency = min(frequency, self._passages)
        return log(1 + (self._passages - frequency + 0.5) / (frequency + 0.5))


def _mapping(content: object) -> Mapping[str, Any]:
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except ValueError:
            return {}
    if isinstance(content, Mapping):
        return cast(Mapping[str, Any], content)
    return {}


def _rows(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [cast(Mapping[str, Any], row) for row in cast(Sequence[object], value) if isinstance(row, Mapping)]


def _said(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content, default=str, ensure_ascii=False)


def _strings(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Sequence):
        return ()
    return tuple(str(v) for v in cast(Sequence[object], value))


def _integer(value: object, otherwise: int = 0) -> int:
    return value if isinstance(value, int) else otherwise


def _enum(schema: object) -> tuple[str, ...]:
    if not isinstance(schema, Mapping):
        return ()
    schema = cast(Mapping[str, Any], schema)
    found = [str(v) for v in cast(Sequence[object], schema.get("enum") or ()) if v is not None]
    if "const" in schema:
        found.append(str(schema["const"]))
    for option in cast(Sequence[object], schema.get("anyOf") or ()):
        found.extend(_enum(option))
    return tuple(found)


def sources_of(tools: Iterable[ToolDefinition], lexicon: Lexicon, names: Names) -> tuple[Source, ...]:
    """The search tools, each with its source's real name and the values that its filters can take."""
    real = {re.sub(r"\W", "_", name): name for name in names.sources}
    found: list[Source] = []
    for tool in tools:
        if not tool.name.startswith("search_"):
            continue
        short = tool.name.removeprefix("search_")
        name = real.get(short, short)
        properties = cast(Mapping[str, Any], tool.parameters_json_schema.get("properties") or {})
        known: Mapping[str, tuple[str, ...]] = lexicon.values(name) if name in names.by_source else {}
        filters = {
            key: tuple(dict.fromkeys([*_enum(schema), *known.get(key, ())]))
            for key, schema in properties.items()
            if key not in _FIXED
        }
        found.append(Source(name=name, tool=tool.name, description=tool.description or "", filters=filters))
    if not found:  # Passages were given, no tools: the names of the corpus still tell what the question is about.
        found = [Source(name=n, tool="", description="", filters=lexicon.values(n)) for n in names.sources]
    return tuple(found)


def _hits(content: Mapping[str, Any], earlier: Mapping[tuple[str, str | None], Hit]) -> tuple[Hit, ...]:
    found: list[Hit] = []
    for rank, row in enumerate(_rows(content.get("hits"))):
        document, section = str(row.get("document", "")), row.get("section")
        section = None if section is None else str(section)
        if (row.get("shown") or row.get("read")) and (document, section) in earlier:
            old = earlier[document, section]
            found.append(
                Hit(
                    document=document,
                    section=section,
                    title=old.title,
                    snippet=old.snippet,
                    current=old.current,
                    labels=old.labels,
                    rank=rank,
                    total_chars=old.total_chars,
                )
            )
            continue
        total = row.get("total_chars")
        found.append(
            Hit(
                document=document,
                section=section,
                title=str(row.get("title") or ""),
                snippet=str(row.get("snippet") or ""),
                current=bool(row.get("current", True)),
                labels=_strings(row.get("labels")),
                rank=rank,
                total_chars=total if isinstance(total, int) else None,
            )
        )
    return tuple(found)


def _text(content: Mapping[str, Any], *, step: int) -> Text:
    metadata = content.get("metadata")
    start = _integer(content.get("start"))
    text = str(content.get("text") or "")
    after = content.get("next_start")
    section = content.get("section")
    return Text(
        document=str(content.get("document", "")),
        section=None if section is None else str(section),
        title=str(content.get("title") or ""),
        text=text,
        start=start,
        end=_integer(content.get("end"), start + len(text)),
        total_chars=_integer(content.get("total_chars"), start + len(text)),
        next_start=after if isinstance(after, int) else None,
        current=bool(content.get("current", True)),
        labels=_strings(content.get("labels")),
        metadata={str(k): str(v) for k, v in cast(Mapping[object, object], metadata).items()}
        if isinstance(metadata, Mapping)
        else {},
        outline=tuple((str(r.get("section")), str(r.get("title") or "")) for r in _rows(content.get("outline"))),
        step=step,
    )


def _user_text(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return "\n".join(piece for piece in part.content if isinstance(piece, str))


_STEPS_LEFT = re.compile(r"\b(\d+|no) (?:more )?steps? left", re.IGNORECASE)
_CLOSED = "no further calls"


def read_state(
    messages: Sequence[ModelMessage], tools: Sequence[ToolDefinition], *, lexicon: Lexicon, names: Names
) -> State:
    """Rebuilds the run from its messages. Only the turn that the last user prompt opened counts."""
    begin = 0
    prompt = ""
    for index, message in enumerate(messages):
        if isinstance(message, ModelRequest):
            prompts = [_user_text(p) for p in message.parts if isinstance(p, UserPromptPart)]
            if prompts:
                begin, prompt = index, "\n\n".join(prompts)
    sources = sources_of(tools, lexicon, names)
    by_tool = {s.tool: s for s in sources}
    pending: dict[str, ToolCallPart] = {}
    searches: list[Search] = []
    texts: list[Text] = []
    tried: list[Tried] = []
    rejections: list[str] = []
    chased: tuple[Hit, ...] | None = None
    alone = False
    seen: dict[tuple[str, str | None], Hit] = {}
    steps_left: int | None = None
    step = drafts = 0
    prompted = split_prompt(prompt)
    question = prompted.question
    texts.extend(prompted.texts)
    for message in messages[begin:]:
        if isinstance(message, ModelResponse):
            step += 1
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    pending[part.tool_call_id] = part
                    drafts += part.tool_name.startswith("final")
            continue
        for part in message.parts:
            if part.part_kind.startswith("retry"):
                rejections.append(_said(getattr(part, "content", "")))
                continue
            if not isinstance(part, ToolReturnPart):
                continue
            content = _mapping(part.content)
            for note in _strings(content.get("notes")):
                left = _STEPS_LEFT.search(note)
                if left is not None:
                    steps_left = 0 if left.group(1).casefold() == "no" else int(left.group(1))
            if str(content.get("error", "")).startswith(_CLOSED):
                steps_left = 0
            call = pending.get(part.tool_call_id)
            arguments: Mapping[str, Any] = call.args_as_dict() if call is not None else {}
            if part.tool_name.startswith("final"):
                if str(getattr(part, "outcome", "")) == "retried":
                    rejections.append(_said(part.content))
            elif part.tool_name.startswith("search_"):
                source = by_tool.get(part.tool_name)
                hits = _hits(content, seen)
                for hit in hits:
                    seen.setdefault((hit.document, hit.section), hit)
                searches.append(
                    Search(
                        source=source.name if source is not None else part.tool_name.removeprefix("search_"),
                        query=str(arguments.get("query", "")),
                        filters={str(k): str(v) for k, v in arguments.items() if k not in _FIXED and v is not None},
                        only_current=bool(arguments.get("only_current", True)),
                        hits=hits,
                        step=step,
                        failed="error" in content or bool(content.get("repeated")),
                    )
                )
            elif part.tool_name == LEADS:
                hits = _hits(content, seen)
                for hit in hits:
                    seen.setdefault((hit.document, hit.section), hit)
                chased = (*(chased or ()), *hits)
                alone = any(note.startswith(ALONE) for note in _strings(content.get("notes")))
            elif part.tool_name in ("read_document", "find_in_document"):
                section = arguments.get("section")
                phrase = arguments.get("phrase")
                tried.append(
                    Tried(
                        tool=part.tool_name,
                        document=str(arguments.get("document", "")),
                        section=None if section is None else str(section),
                        start=_integer(arguments.get("start")),
                        phrase=None if phrase is None else str(phrase),
                    )
                )
                if part.tool_name == "read_document":
                    if "text" in content:
                        texts.append(_text(content, step=step))
                else:
                    title = names.titles.get(str(content.get("document", "")), "")
                    for row in _rows(content.get("passages")):
                        whole = {"document": content.get("document"), "title": title, **row}
                        one = _text(whole, step=step)
                        texts.append(replace(one, found=True))
    tool_names = {t.name for t in tools}
    return State(
        question=question,
        language=language_of(question),
        sources=sources,
        has_read="read_document" in tool_names,
        has_find="find_in_document" in tool_names,
        has_leads=LEADS in tool_names,
        searches=tuple(searches),
        texts=tuple(texts),
        tried=tuple(tried),
        steps_left=steps_left,
        steps=step,
        rejections=tuple(rejections),
        drafts=drafts,
        chased=chased,
        alone=alone,
        open_parts=prompted.open_parts,
    )


_PASSAGES = "\n\nPassages (JSON):\n"
_OPEN = "not answered by them: "
_APART = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Prompted:
    """The question, the passages that a fixed first retrieval put into the prompt, and what they leave open."""

    question: str
    texts: tuple[Text, ...] = ()
    open_parts: tuple[str, ...] = ()


def split_prompt(prompt: str) -> Prompted:
    question, _, rest = prompt.partition(_PASSAGES)
    question = question.strip().removeprefix("Question:").strip()
    given: tuple[Text, ...] = ()
    open_parts: tuple[str, ...] = ()
    if rest.strip():
        try:
            shown: object = json.JSONDecoder().raw_decode(rest.strip())[0]
        except ValueError:
            shown = None
        rows = _rows(_mapping(shown).get("passages"))
        notes = _strings(_mapping(shown).get("notes"))
        open_parts = tuple(n.removeprefix(_OPEN) for n in notes if n.startswith(_OPEN))
        # Where they stand in their documents is not told: places far apart keep two of one document from colliding,
        # and none of them counts as a whole document.
        given = tuple(_text({**row, "start": n * _APART}, step=0) for n, row in enumerate(rows, start=1))
    return Prompted(question=question, texts=given, open_parts=open_parts)


def matched_filters(
    question: str, source: Source, *, language: str, exclude: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Filter values of a source that the question names, whole or by a word that only one value has."""
    plain = " " + " ".join(re.findall(r"[^\W_]+", fold(question))) + " "
    capitals = {fold(w) for w in re.findall(r"\b(?:[A-ZÀ-Þ]|\d+[a-z])[\w]*", question)}
    found: dict[str, str] = {}
    for key, values in source.filters.items():
        best: tuple[int, str] | None = None
        for value in values:
            name = " ".join(re.findall(r"[^\W_]+", fold(value)))
            if name and f" {name} " in plain and (best is None or len(name) > best[0]):
                best = (len(name), value)
        if best is None:
            owners: dict[str, list[str]] = {}
            for value in values:
                for word in set(re.findall(r"[^\W_]{3,}", fold(value))):
                    owners.setdefault(word, []).append(value)
            named = [
                (len(word), owners[word][0])
                for word in capitals
                if len(owners.get(word, ())) == 1
                and word not in exclude
                and _looks_like_name(word, owners[word][0])
                and not _of_another(word, owners[word][0], question)
            ]
            if named:
                best = max(named)
        if best is not None:
            found[key] = best[1]
    return found


def _of_another(word: str, value: str, question: str) -> bool:
    """True where the word only ends longer names that are not this one ('Group' of 'Oriental Financial Group')."""
    ours = set(re.findall(r"[^\W_]+", fold(value)))
    spans = [re.findall(r"[^\W_]+", fold(span)) for span in capitalised(question)]
    within = [span for span in spans if word in span]
    return bool(within) and all(span[0] not in ours and span[-1] == word and len(span) > 1 for span in within)


def _looks_like_name(word: str, value: str) -> bool:
    return any(fold(w) == word and not w.islower() for w in re.findall(r"[^\W_]+", value))


def same_stem(a: str, b: str, *, language: str) -> bool:
    return stem(a, language=language) == stem(b, language=language)

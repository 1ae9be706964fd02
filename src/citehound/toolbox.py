"""The read-only tools a model may call, made from sources and corpus; runs no model and decides nothing about answers.

Results are JSON-able dicts. Whatever goes wrong inside a tool comes back as {"error": one line that says what to do}.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from .access import Principal
from .answers import Call, Reference
from .budget import worst_tokens
from .chase import ALONE, FIRM
from .config import SourceConfig
from .corpus import Corpus
from .documents import OPEN, DocumentInfo, DocumentList, OutlineEntry, Passage, SearchHit, SearchResult, thinned
from .errors import CitehoundError, ConfigError
from .events import Emit, Hits, Read, ToolCalled, ToolFailed, nowhere
from .evidence import Evidence, Find, Ledger, Search
from .security import redact, visible, visible_json
from .tracing import search_span, tool_span

Effect = Literal["read", "egress", "write"]

MAX_CALLS = 8
"""Calls that one step may make; the rest are refused."""
MAX_QUERY = 256
MAX_TEXT = 4 * MAX_QUERY
"""Characters of any other string in a call's arguments."""
MAX_ENTRIES = 50
"""Of one list or object in a call's arguments."""
MAX_DEPTH = 3
"""Lists and objects inside each other, the arguments themselves counted."""
MAX_HITS = 12
PER_DOCUMENT = 2
RESULT_TOKENS = 3000
"""Cap of one result, in `worst_tokens`."""
_WORTH_REFERRING = 200
"""Characters; a shorter text is given again rather than referred to."""
ENUM_VALUES = 50
PAGE_CHARS = 6000
SNIPPET_CHARS = 300
OUTLINE_CHARS = 3000
_TITLE = 120
"""Characters of a title in an outline."""
_RESERVED = frozenset({"query", "only_current", "k"})
_HIT_KEYS = frozenset({"document", "section", "title", "snippet", "current", "labels", "shown", "read", "start"})
_SAID = frozenset({"title", "declared_id"})
"""Metadata that a result says anyway."""
_LONGEST_NAME = 64
"""Characters kept of a tool's name."""
_REST = PAGE_CHARS // 6
"""A page takes in what is left of its text if that is no longer than this."""
_LISTED = 5
"""Documents that a search without hits names."""


_DEFAULTS: Mapping[str, Any] = {"only_current": True, "k": 6, "start": 0, "filters": {}, "section": ""}


class ToolRefused(Exception):
    """The arguments cannot be used; the message goes back to the model, which may try again."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one call gave: the result for the model, and what the ledger keeps of it."""

    result: dict[str, Any]
    source: str | None = None
    returned: tuple[Reference, ...] = ()
    search: Search | None = None
    hits: tuple[SearchHit, ...] = ()
    hidden: int = 0
    passages: tuple[Passage, ...] = ()
    find: Find | None = None


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool as a model sees it. `run` is sync and gets the arguments and the cap of its result in tokens."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect
    run: Callable[[Mapping[str, Any], int], Finding]
    source: str | None = None
    target: Callable[[Mapping[str, Any]], str | None] | None = None
    """Of a tool that reaches out with some calls only: the source that this call asks, None when it stays inside."""


def tool_name(source: str) -> str:
    """`search_<source>`, with what no identifier may hold turned into `_`."""
    return "search_" + re.sub(r"[^A-Za-z0-9_]", "_", source)


def check_effects(tools: Sequence[Tool], sources: Sequence[SourceConfig], *, quarantined: bool = False) -> None:
    """Raises ConfigError for a tool that writes, for one that reaches out beside a private source (unless reading is
    quarantined), for an effect that is none, and for two tools of one name.
    """
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise ConfigError(f"two tools are called {tool.name!r}: rename one")
        names.add(tool.name)
        if tool.effect == "write":
            raise ConfigError(f"tool {tool.name!r} writes: only tools that read may be registered; remove it")
        if tool.effect not in get_args(Effect):
            raise ConfigError(f"tool {tool.name!r} has the effect {tool.effect!r}: declare 'read' or 'egress'")
        private = next((s.name for s in sources if s.private and s.name != tool.source), None)
        if tool.effect == "egress" and private is not None and not quarantined:
            raise ConfigError(  # `check_egress` says it of sources, at start-up
                f"tool {tool.name!r} reaches out while source {private!r} is private: remove the tool, "
                f"or set private = false for every source"
            )


# What a person and a model get alike: the CLI's `search` and `read` call these too.


def search_source(
    corpus: Corpus,
    source: str | None,
    query: str,
    *,
    principal: Principal,
    filters: Mapping[str, str] | None = None,
    only_current: bool = True,
    k: int = 6,
    per_document: int = PER_DOCUMENT,
    agent: str = "main",
) -> SearchResult:
    """One search as a tool makes it: bounded query and `k`, at most two hits per document unless asked for more."""
    query = query.strip()
    if not query:
        raise ToolRefused("query is empty: give the words to look for")
    if len(query) > MAX_QUERY:
        raise ToolRefused(f"query has {len(query)} characters, at most {MAX_QUERY}: give the few words that matter")
    with search_span(source=source or "all", query=query, filters=filters, agent=agent) as traced:
        result = corpus.search(
            source,
            query,
            principal=principal,
            filters=filters or None,
            only_current=only_current,
            k=max(1, min(k, MAX_HITS)),
            per_document=per_document,
        )
        traced.returned([_place(Reference(document=h.document, section=h.section)) for h in result.hits])
    if not result.hits and not result.notes and not _searchable(query):
        result = replace(result, notes=(f"{query!r} has no words to search for: give words as the documents have",))
    return result


def _searchable(query: str) -> bool:
    from .index.analysis import query_terms

    return bool(query_terms(query, [""]))


def read_page(
    corpus: Corpus,
    document: str,
    *,
    principal: Principal,
    section: str | None = None,
    start: int = 0,
    max_tokens: int = RESULT_TOKENS,
) -> Passage:
    """One page as a tool reads it: at most `PAGE_CHARS` long and never above `max_tokens`."""
    passage = corpus.read(document, principal=principal, section=section, start=start, limit=PAGE_CHARS)
    if passage.next_start is not None:
        longer = corpus.read(document, principal=principal, section=section, start=start, limit=PAGE_CHARS + _REST)
        passage = longer if longer.next_start is None else passage
    if start and start >= passage.total_chars:
        raise ToolRefused(
            f"start {start} is past the end: {passage.document!r} has {passage.total_chars} characters; "
            "leave start out, or give the next_start of the page before"
        )
    for _ in range(4):
        size = worst_tokens(json.dumps(passage_json(passage), ensure_ascii=False))
        if size <= max_tokens or len(passage.text) <= 200:
            break
        over = size - max_tokens
        text_size = max(1, worst_tokens(passage.text))
        keep = int(len(passage.text) * max(0.1, 1 - over / text_size) * 0.95)
        passage = corpus.read(document, principal=principal, section=section, start=start, limit=max(200, keep))
    return passage


def hit_json(hit: SearchHit, *, keys: Sequence[str] = ()) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "document": hit.document,
        "section": hit.section,
        "title": hit.title,
        "snippet": hit.snippet[:SNIPPET_CHARS],
        "current": hit.current,
    }
    if hit.start >= PAGE_CHARS:  # deep in a long text, which can be read from here
        shown["start"] = hit.start
    if hit.labels:
        shown["labels"] = list(hit.labels)
    if hit.trust == "open":
        shown["trust"] = OPEN
    shown.update({k: hit.metadata[k] for k in keys if k in hit.metadata and k not in _HIT_KEYS})
    return shown


def passage_json(passage: Passage) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "document": passage.document,
        "section": passage.section,
        "title": passage.title,
        "current": passage.current,
    }
    if passage.labels:
        shown["labels"] = list(passage.labels)
    if passage.trust == "open":
        shown["trust"] = OPEN
    shown["metadata"] = {k: v for k, v in passage.metadata.items() if k not in _SAID}
    shown["text"] = passage.text
    shown |= {"start": passage.start, "end": passage.end}
    if passage.start == 0 and passage.end == passage.total_chars:
        shown["whole"] = True
    else:
        shown |= {"next_start": passage.next_start, "total_chars": passage.total_chars}
    if passage.outline:
        outline = thinned(passage.outline, OUTLINE_CHARS, size=_size)
        shown["outline"] = [{"section": e.section, "title": e.title[:_TITLE]} for e in outline]
        if dropped := len(passage.outline) - len(outline):
            shown["notes"] = [f"the outline leaves out {dropped} sections or more; find_in_document reaches them"]
    return shown


def _size(entry: OutlineEntry) -> int:
    return len(entry.section) + len(entry.title[:_TITLE]) + 30


def info_json(info: DocumentInfo, *, keys: Sequence[str] = ()) -> dict[str, Any]:
    shown: dict[str, Any] = {"document": info.document, "title": info.title, "current": info.current}
    if info.labels:
        shown["labels"] = list(info.labels)
    if info.trust == "open":
        shown["trust"] = OPEN
    shown.update({k: info.metadata[k] for k in keys if k in info.metadata and k not in shown})
    return shown


# The tools of a corpus.


def corpus_tools(corpus: Corpus, *, principal: Principal) -> tuple[Tool, ...]:
    """`search_<source>` per source, `read_document`, `find_in_document` and `list_documents`."""
    sources = corpus.sources_for(principal)
    searches = tuple(_search_tool(corpus, source, principal=principal) for source in sources)
    names = [tool.name for tool in searches]
    for name in names:
        if names.count(name) > 1:
            clash = [s.name for s in sources if tool_name(s.name) == name]
            raise ConfigError(f"sources {clash!r} would share the tool name {name!r}: rename one of them")
    return (
        *searches,
        _read_tool(corpus, sources, principal=principal),
        _find_tool(corpus, principal=principal),
        # The chase knows what is in the index only.
        *(() if all(s.live for s in sources) else (_leads_tool(corpus, sources, principal=principal),)),
        _list_tool(corpus, sources, principal=principal),
    )


def _search_tool(corpus: Corpus, source: SourceConfig, *, principal: Principal) -> Tool:
    parameters: dict[str, Any] = {
        "query": {
            "type": "string",
            "maxLength": MAX_QUERY,
            "description": "A few words as the documents would put it; not a sentence, no operators.",
        }
    }
    by_parameter: dict[str, str] = {}
    for key in source.filters:
        name = re.sub(r"[^A-Za-z0-9_]", "_", key)
        name = f"filter_{name}" if name in _RESERVED else name
        by_parameter[name] = key
        values = list(corpus.filter_values(source.name, key, principal=principal))
        shown: dict[str, Any] = {
            "type": "string",
            "description": f"Only documents whose {key} is this. Leave out for all.",
        }
        if values and len(values) <= ENUM_VALUES:
            shown["enum"] = sorted(visible(value) for value in values)
        parameters[name] = shown
    parameters["only_current"] = {
        "type": "boolean",
        "default": True,
        "description": "False also searches superseded, withdrawn and draft versions.",
    }
    parameters["k"] = {"type": "integer", "minimum": 1, "maximum": MAX_HITS, "default": 6}

    def run(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        _known(arguments, parameters)
        query = _text(arguments, "query")
        filters = {
            key: _value(arguments, name) for name, key in by_parameter.items() if arguments.get(name) not in (None, "")
        }
        result = search_source(
            corpus,
            source.name,
            query,
            principal=principal,
            filters=filters,
            only_current=_flag(arguments, "only_current", default=True),
            k=_whole(arguments, "k", default=6),
        )
        if not result.hits and not result.notes and filters:
            there = corpus.list_documents(source.name, principal=principal, filters=filters)
            result = replace(result, notes=_without_hits(there, filters))
        return _found(result, source=source.name, query=query, filters=filters, keys=source.filters)

    return Tool(
        name=tool_name(source.name),
        description=_describe(source),
        parameters=_object(parameters, required=["query"]),
        effect="egress" if source.reaches_out else "read",
        run=run,
        source=source.name,
    )


def _without_hits(there: DocumentList, filters: Mapping[str, str]) -> tuple[str, ...]:
    """What a filtered search without hits says: which documents the filter leaves."""
    if not there.total:
        return ()
    ids = [d.document for d in there.documents[:_LISTED]]
    more = f" and {there.total - len(ids)} more" if there.total > len(ids) else ""
    wanted = ", ".join(f"{key} = {value!r}" for key, value in sorted(filters.items()))
    several = "document has" if there.total == 1 else "documents have"
    where = f"{there.total} {several} {wanted}: {', '.join(ids)}{more}"
    return (f"nothing found; {where}; read there, or search with other words",)


def _describe(source: SourceConfig) -> str:
    about = source.description.strip() or f"The documents of {source.name!r}."
    text = (
        f"Search {source.name}. {about} Gives short hits (document, section, snippet) to choose from: "
        "a hit is not read yet and cannot be cited. `shown`: the hit stands above, at that step; `read`: you have its "
        "text; `start`: where it stands in a long document, to read from there."
    )
    if source.filters:
        text += f" Narrow by {', '.join(source.filters)} when the question names one."
    if source.kind == "web":
        text += " Reading a hit fetches the page."
    if source.trust == "open":
        text += " Many people can write here: prefer other sources where they differ."
    return text


def _found(
    result: SearchResult, *, source: str, query: str, filters: Mapping[str, str], keys: Sequence[str]
) -> Finding:
    shown: dict[str, Any] = {
        "hits": [hit_json(hit, keys=keys) for hit in result.hits],
        "hidden_superseded": result.hidden_superseded,
    }
    if result.notes:
        shown["notes"] = list(result.notes)
    elif not result.hits:
        shown["notes"] = ["nothing found: try other words, fewer words, or another source"]
    return Finding(
        result=shown,
        source=source,
        returned=tuple(Reference(document=h.document, section=h.section) for h in result.hits),
        search=Search(
            source=source,
            query=query,
            filters=tuple(sorted(filters.items())),
            documents=tuple(dict.fromkeys(h.document for h in result.hits)),
        ),
        hits=result.hits,
        hidden=result.hidden_superseded,
    )


def _read_tool(corpus: Corpus, sources: Sequence[SourceConfig], *, principal: Principal) -> Tool:
    parameters: dict[str, Any] = {
        "document": {"type": "string", "description": "The id exactly as a hit or listing gave it."},
        "section": {
            "type": ["string", "null"],
            "default": None,
            "description": "The section as a hit or outline gave it; leave out to read from the start.",
        },
        "start": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "To go on reading: the next_start of the page before.",
        },
    }

    def run(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        _known(arguments, parameters)
        passage = read_page(
            corpus,
            _text(arguments, "document"),
            principal=principal,
            section=_optional(arguments, "section"),
            start=_whole(arguments, "start", default=0),
            max_tokens=max_tokens,
        )
        shown = passage_json(passage)
        source = _source_of(passage.document, sources)
        return Finding(
            result=shown,
            source=source.name if source else None,
            returned=(Reference(document=passage.document, section=passage.section),),
            passages=(passage,),
        )

    def target(arguments: Mapping[str, Any]) -> str | None:
        """Pages of the web are fetched when they are read, documents of the index are there."""
        try:
            document = corpus.resolve(str(arguments.get("document", "")), principal=principal)
        except CitehoundError:
            return None  # nothing of that name can be read, so nothing is fetched
        source = _source_of(document, sources)
        return source.name if source is not None and source.kind == "web" else None

    return Tool(
        name="read_document",
        description=(
            "Read a document or one section of it. Only what was read can be cited. A long document gives its outline "
            "and first part: read the section you need, or go on with start = next_start."
        ),
        parameters=_object(parameters, required=["document"]),
        effect="egress" if any(source.kind == "web" for source in sources) else "read",
        run=run,
        target=target,
    )


def _find_tool(corpus: Corpus, *, principal: Principal) -> Tool:
    parameters: dict[str, Any] = {
        "document": {"type": "string", "description": "The id exactly as a hit or listing gave it."},
        "phrase": {
            "type": "string",
            "maxLength": MAX_QUERY,
            "description": "Words as they stand in the text, one word or a short phrase.",
        },
    }

    def run(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        _known(arguments, parameters)
        phrase = _text(arguments, "phrase")
        if len(phrase) > MAX_QUERY:
            raise ToolRefused(f"phrase has {len(phrase)} characters, at most {MAX_QUERY}: give a few words")
        found = corpus.find(_text(arguments, "document"), phrase, principal=principal)
        passages, near = list(found.passages), list(found.near)
        while True:
            shown: dict[str, Any] = {
                "document": found.document,
                "phrase": found.phrase,
                "total": found.total,
                "passages": [{"section": p.section, "text": p.text, "start": p.start, "end": p.end} for p in passages],
            }
            notes = list(found.notes)
            if passages:
                near = near[:1]
            if near:
                shown["near"] = [{"section": p.section, "text": p.text, "start": p.start, "end": p.end} for p in near]
                if not passages:
                    notes.append(f"{found.phrase!r} stands nowhere in it; 'near' has the passages that come nearest")
            elif not passages and not notes:
                notes.append(f"{found.phrase!r} stands nowhere in it")
            if 0 < len(passages) < found.total:
                some = f"{len(passages)} of {found.total} places shown"
                notes.append(f"{some}; use a longer phrase, or read the section with read_document")
            if notes:
                shown["notes"] = notes
            least = 0 if passages else 1
            if (len(passages) <= 1 and len(near) <= least) or worst_tokens(
                json.dumps(shown, ensure_ascii=False)
            ) <= max_tokens:
                break
            if len(near) > least:
                near.pop()
            else:
                passages.pop()
        return Finding(
            result=shown,
            returned=tuple(Reference(document=p.document, section=p.section) for p in (*passages, *near)),
            passages=(*passages, *near),
            find=Find(document=found.document, phrase=phrase, found=found.total > 0),
        )

    return Tool(
        name="find_in_document",
        description=(
            "Find where words stand in one document and read the text around them, or the passages that come nearest. "
            "Use it to reach into long documents, and to check that one does not mention something; what you read "
            "whole needs no such check."
        ),
        parameters=_object(parameters, required=["document", "phrase"]),
        effect="read",
        run=run,
    )


def _leads_tool(corpus: Corpus, sources: Sequence[SourceConfig], *, principal: Principal) -> Tool:
    parameters: dict[str, Any] = {
        "question": {
            "type": "string",
            "maxLength": 4 * MAX_QUERY,
            "description": "What is to be found out, as a whole question with its names.",
        },
        "document": {
            "type": ["string", "null"],
            "default": None,
            "description": "Where to start: a document's id. Leave out to start from what the question finds.",
        },
    }
    names = {source.name for source in sources}

    def run(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        _known(arguments, parameters)
        question = _text(arguments, "question")
        if len(question) > 4 * MAX_QUERY:
            raise ToolRefused(f"question has {len(question)} characters, at most {4 * MAX_QUERY}: make it shorter")
        one = next(iter(names)) if len(names) == 1 else None
        found = corpus.chase(
            question, principal=principal, k=MAX_HITS, source=one, start=_optional(arguments, "document")
        )
        found = tuple(f for f in found if _source_of(f.hit.document, sources) is not None)
        scores = [f.firm for f in found]
        most = SNIPPET_CHARS
        while True:
            hits = [hit_json(replace(f.hit, snippet=f.hit.snippet[:most])) for f in found]
            shown: dict[str, Any] = {"hits": [{**h, "way": str(f.way)} for h, f in zip(hits, found, strict=True)]}
            if not found:
                shown["notes"] = ["no leads: search with other words, or start from another document"]
            elif sum(score >= FIRM for score in scores) < 2 <= len(scores):
                shown["notes"] = [f"{ALONE}: what a further step needs may not be there"]
            if len(found) <= 1 or worst_tokens(json.dumps(shown, ensure_ascii=False)) <= max_tokens:
                break
            # A shorter snippet costs less than a lead that is not seen.
            if most > SNIPPET_CHARS // 3:
                most -= SNIPPET_CHARS // 3
            else:
                found = found[:-1]
        return Finding(
            result=shown,
            returned=tuple(Reference(document=f.hit.document, section=f.hit.section) for f in found),
            hits=tuple(f.hit for f in found),
        )

    return Tool(
        name="follow_leads",
        description=(
            "Follow leads over several documents in one call: what the question finds, the documents and names these "
            "texts point to, and what those say. Gives short hits, each with the way to it; read before citing."
        ),
        parameters=_object(parameters, required=["question"]),
        effect="read",
        run=run,
    )


def _list_tool(corpus: Corpus, sources: Sequence[SourceConfig], *, principal: Principal) -> Tool:
    names = [source.name for source in sources]
    keys = sorted({key for source in sources for key in source.filters})
    parameters: dict[str, Any] = {
        "source": {"type": "string", "enum": names},
        "filters": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": f"Keys: {', '.join(keys) or 'none'}.",
        },
        "only_current": {"type": "boolean", "default": True},
        "start": {"type": "integer", "minimum": 0, "default": 0},
    }

    def run(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        _known(arguments, parameters)
        name = _text(arguments, "source")
        source = next((s for s in sources if s.name == name), None)
        if source is None:
            raise ToolRefused(f"no source {name!r}: use one of {', '.join(map(repr, names))}")
        filters = _filters(arguments, source)
        start = _whole(arguments, "start", default=0)
        listed = corpus.list_documents(
            name,
            principal=principal,
            filters=filters or None,
            only_current=_flag(arguments, "only_current", default=True),
            start=start,
        )
        shown, count = _listing(listed, start=start, keys=source.filters, max_tokens=max_tokens)
        return Finding(
            result=shown,
            source=name,
            returned=tuple(Reference(document=d.document) for d in listed.documents[:count]),
        )

    return Tool(
        name="list_documents",
        description="List the documents of a source, for questions about which or how many. Nothing is read by it.",
        parameters=_object(parameters, required=["source"]),
        effect="read",
        run=run,
    )


def _listing(listed: DocumentList, *, start: int, keys: Sequence[str], max_tokens: int) -> tuple[dict[str, Any], int]:
    count = len(listed.documents)
    while True:
        notes = list(listed.notes)
        if start + count < listed.total:
            notes.append(f"{count} of {listed.total} shown; go on with start = {start + count}")
        shown: dict[str, Any] = {
            "documents": [info_json(d, keys=keys) for d in listed.documents[:count]],
            "total": listed.total,
            "hidden_superseded": listed.hidden_superseded,
            "notes": notes,
        }
        if count <= 1 or worst_tokens(json.dumps(shown, ensure_ascii=False)) <= max_tokens:
            return shown, count
        count = count * 3 // 4


def _source_of(document: str, sources: Sequence[SourceConfig]) -> SourceConfig | None:
    return next((s for s in sources if document.startswith(s.name + "/")), None)


# Arguments come from a model: whatever does not fit is said, never guessed.


def _object(properties: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _known(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    for name in arguments:
        if name not in parameters:
            raise ToolRefused(f"no parameter {name!r}: there are {', '.join(map(repr, parameters))}")


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise ToolRefused(f"{name} must be a non-empty string, not {value!r}"[:300])
    return value.strip()


def bounded(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The arguments of a call as they may be kept: visible, no longer, wider or deeper than allowed; and what was."""
    over: list[str] = []

    def cut(value: Any, name: str, depth: int) -> Any:
        if isinstance(value, str):
            text = visible(value)
            if len(text) > MAX_TEXT:
                over.append(f"{name} has {len(text)} characters, at most {MAX_TEXT}")
            return text[:MAX_TEXT]
        if isinstance(value, list | Mapping):
            if depth > MAX_DEPTH:
                over.append(f"{name} is nested deeper than {MAX_DEPTH}")
                return None
            if len(cast("Sequence[Any]", value)) > MAX_ENTRIES:
                over.append(f"{name} has {len(cast('Sequence[Any]', value))} entries, at most {MAX_ENTRIES}")
            if isinstance(value, list):
                return [cut(item, name, depth + 1) for item in cast("list[Any]", value)[:MAX_ENTRIES]]
            entries = list(cast("Mapping[Any, Any]", value).items())[:MAX_ENTRIES]
            return {cut(str(k), "a name", 0)[:MAX_QUERY]: cut(v, visible(str(k))[:40], depth + 1) for k, v in entries}
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, int | float) and abs(value) > 2**53:
            over.append(f"{name} is a number that large")
            return 2**53
        return value if value is None or isinstance(value, bool | int | float) else cut(str(value), name, depth)

    kept = cast("dict[str, Any]", cut(arguments, "the call", 1))
    return kept, f"{over[0]}: give the few words that matter" if over else None


def _value(arguments: Mapping[str, Any], name: str) -> str:
    """The value of a filter."""
    text = _text(arguments, name)
    if len(text) > MAX_QUERY:
        raise ToolRefused(f"{name} has {len(text)} characters, at most {MAX_QUERY}: give a value as hits have it")
    return text


def _optional(arguments: Mapping[str, Any], name: str) -> str | None:
    return None if arguments.get(name) in (None, "") else _text(arguments, name)


def _whole(arguments: Mapping[str, Any], name: str, *, default: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ToolRefused(f"{name} must be a whole number from 0, not {value!r}"[:300])
    return value


def _flag(arguments: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = arguments.get(name)
    if value is None:
        return default
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ToolRefused(f"{name} must be true or false, not {value!r}"[:300])
    return value


def _filters(arguments: Mapping[str, Any], source: SourceConfig) -> dict[str, str]:
    given: object = arguments.get("filters") or {}
    if not isinstance(given, Mapping):
        raise ToolRefused(f"filters must be an object of strings, not {given!r}"[:300])
    filters: dict[str, str] = {}
    for key, value in given.items():  # pyright: ignore[reportUnknownVariableType]
        if key not in source.filters:
            known = ", ".join(map(repr, source.filters)) or "none"
            raise ToolRefused(f"source {source.name!r} has no filter {key!r}; it has: {known}"[:300])
        filters[str(key)] = _value({str(key): value}, str(key))  # pyright: ignore[reportUnknownArgumentType]
    return filters


# One run's use of the tools.


@dataclass(kw_only=True)
class _Made:
    """A call made before: its step, how often, and whether its result stands."""

    step: int
    times: int = 1
    stands: bool = True


@dataclass(kw_only=True)
class _StepState:
    number: int = 0
    calls: int = 0
    result_tokens: int = RESULT_TOKENS
    notes: list[str] = field(default_factory=list[str])
    closed: str | None = None
    latest: asyncio.Event | None = None
    """Set once the call started last is recorded."""


class Toolbox:
    """The tools of one run: bounds, repeats, ledger and events. Calls of a step may run at the same time."""

    def __init__(
        self,
        corpus: Corpus,
        *,
        principal: Principal,
        ledger: Ledger,
        emit: Emit = nowhere,
        agent: str = "main",
        extra: Sequence[Tool] = (),
    ) -> None:
        self.tools: tuple[Tool, ...] = (*corpus_tools(corpus, principal=principal), *extra)
        check_effects(self.tools, corpus.sources, quarantined=corpus.config.security.quarantine)
        self.no_progress = False
        """True once a call was made for the third time: the run should end with what it has."""
        self.fees = MAX_CALLS * corpus.fee
        """Dollars that the searches of one step may cost."""
        self._by_name = {tool.name: tool for tool in self.tools}
        self._sources = tuple(corpus.sources)
        self._private: set[str] = set()
        """Private sources that something was shown of."""
        self._ledger = ledger
        self._emit = emit
        self._agent = agent
        self._made: dict[str, _Made] = {}
        self._seen: dict[tuple[str, int, int], int] = {}
        """Hits that were shown, and the step that showed them."""
        self._read: list[Passage] = []
        """Whatever text was given, by reading or finding."""
        self._given: list[tuple[Passage, int]] = []
        """Passages whose text was given, and the step that gave it."""
        self._step = _StepState()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def tool(self, name: str) -> Tool:
        return self._by_name[name]

    def begin_step(
        self, number: int, *, result_tokens: int = RESULT_TOKENS, notes: Sequence[str] = (), closed: str | None = None
    ) -> None:
        """Starts a step. `closed` says why no call may be made in it; `notes` go into the first result."""
        self._step = _StepState(
            number=number, result_tokens=min(result_tokens, RESULT_TOKENS), notes=list(notes), closed=closed
        )

    def limit_results(self, tokens: int) -> None:
        """Caps each result of this step: there is not room for more."""
        self._step.result_tokens = min(tokens, RESULT_TOKENS)

    def note(self, text: str) -> None:
        """Goes into the next result of this step."""
        self._step.notes.append(text)

    def failed(self, name: str, error: str) -> dict[str, Any]:
        """Records a call that never reaches a tool, and gives its result."""
        step = self._step
        step.calls += 1
        self._emit(ToolCalled(step=step.number, tool=name, arguments={}, agent=self._agent))
        return self._failed(step, name, {}, self._by_name.get(name), error, seconds=0.0)

    def forget(self, *, before: int) -> None:
        """Searches and listings of earlier steps no longer stand as they were given: later ones show them anew."""
        self._seen = {place: step for place, step in self._seen.items() if step >= before}
        for key, made in self._made.items():
            if made.step < before and key.startswith(("search_", "list_")):
                made.stands = False

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one call and records it in the order of starting. Never raises but for cancellation."""
        before, mine = self._step.latest, asyncio.Event()
        self._step.latest = mine
        try:
            return await self._call(name, arguments, before)
        finally:
            mine.set()

    async def _call(self, name: str, arguments: Mapping[str, Any], before: asyncio.Event | None) -> dict[str, Any]:
        step = self._step
        step.calls += 1
        name = visible(name)[:_LONGEST_NAME]
        arguments, fault = bounded({k: v for k, v in arguments.items() if v is not None})
        self._emit(ToolCalled(step=step.number, tool=name, arguments=arguments, agent=self._agent))
        tool = self._by_name.get(name)
        began = time.perf_counter()
        got = await self._attempt(name, arguments, tool, step, fault)
        if before is not None:
            await before.wait()
        seconds = round(time.perf_counter() - began, 6)
        if isinstance(got, Finding):
            return self._keep(step, name, arguments, self._short(got, step), seconds=seconds)
        if isinstance(got, _Made):
            return self._repeated(step, name, arguments, tool, got)
        return self._failed(step, name, arguments, tool, got, seconds=seconds)

    async def _attempt(
        self, name: str, arguments: dict[str, Any], tool: Tool | None, step: _StepState, fault: str | None
    ) -> Finding | _Made | str:
        """What the call found, the call that it repeats, or what is wrong with it."""
        if step.closed is not None:
            return step.closed
        if step.calls > MAX_CALLS:
            return f"refused: at most {MAX_CALLS} calls in one step; ask again in the next"
        if tool is None:
            return f"no tool {name!r}: there are {', '.join(self._by_name)}"
        if fault is not None:
            return fault
        if tool.effect == "egress" and (leak := await asyncio.to_thread(self._would_leak, tool, arguments)):
            return leak
        made = self._made.get(key := _call_key(name, arguments))
        if made is None:
            made = self._made[key] = _Made(step=step.number)
        else:
            made.times += 1
            self.no_progress = self.no_progress or made.times >= 3
            if made.stands:
                return made
            made.step, made.stands = step.number, True
        try:
            return await asyncio.to_thread(self._run, tool, arguments, step)
        except (ToolRefused, CitehoundError) as problem:
            made.stands = False
            return str(problem)
        except Exception as problem:
            made.stands = False
            return f"{name} failed ({type(problem).__name__}: {problem}); try another call"

    def _would_leak(self, tool: Tool, arguments: Mapping[str, Any]) -> str | None:
        """Why a call must not reach out: something private was shown in this run. None when it may."""
        target = tool.source if tool.target is None else tool.target(arguments)
        if tool.target is not None and target is None:
            return None
        evidence = self._ledger.evidence()
        shown = (*evidence.carried, *evidence.passages, *evidence.hits)
        touched = self._private | {name for one in shown if (name := self._private_of(one.document)) is not None}
        if others := sorted(touched - {target}):
            return (
                f"{tool.name} is withdrawn: this run has seen the private source {others[0]!r}, and a call that "
                "reaches out could carry it along; answer from what was read"
            )
        return None

    def _private_of(self, document: str) -> str | None:
        """The private source that a document is of; what is of no known source counts as private."""
        source = _source_of(document, self._sources)
        if source is None:
            return document.partition("/")[0]
        return source.name if source.private else None

    def _run(self, tool: Tool, arguments: dict[str, Any], step: _StepState) -> Finding:
        with tool_span(tool=tool.name, arguments=arguments, step=step.number, agent=self._agent) as traced:
            finding = tool.run(arguments, step.result_tokens)
            traced.returned([_place(r) for r in finding.returned])
            return finding

    def _short(self, finding: Finding, step: _StepState) -> Finding:
        """What was shown before becomes one line, and the result is cut to its cap."""
        if not finding.hits:
            return self._referred(finding, step)
        shown: list[dict[str, Any]] = []
        given = Evidence(passages=tuple(self._read))
        for hit, full in zip(finding.hits, finding.result["hits"], strict=True):
            before = self._seen.get((hit.document, hit.start, hit.end))
            line = {"document": hit.document, "section": hit.section}
            if hit.start < hit.end and given.was_read(hit.document, hit.start, hit.end):
                shown.append({**line, "read": True})
            elif before is not None:
                shown.append({**line, "shown": "in this step" if before == step.number else f"at step {before}"})
            else:
                shown.append(full)
        result = dict(finding.result)
        count = len(shown)
        while True:
            result["hits"] = shown[:count]
            if count <= 1 or worst_tokens(json.dumps(result, ensure_ascii=False)) <= step.result_tokens:
                break
            count -= 1
        if count < len(shown):
            result["notes"] = [*result.get("notes", []), f"{len(shown) - count} more hits were cut; narrow the query"]
        self._seen.update({(h.document, h.start, h.end): step.number for h in finding.hits[:count]})
        return Finding(
            result=result,
            source=finding.source,
            returned=finding.returned[:count],
            search=finding.search,
            hits=finding.hits[:count],
            hidden=finding.hidden,
        )

    def _referred(self, finding: Finding, step: _StepState) -> Finding:
        """A page whose text was given before is answered by naming the step that gave it."""
        if finding.find is not None or len(finding.passages) != 1 or "text" not in finding.result:
            return finding
        passage = finding.passages[0]
        given = next(
            (
                (earlier, number)
                for earlier, number in self._given
                if earlier.document == passage.document
                and earlier.start <= passage.start
                and passage.end <= earlier.end
                and earlier.text[passage.start - earlier.start : passage.end - earlier.start] == passage.text
            ),
            None,
        )
        if given is None or len(passage.text) < _WORTH_REFERRING:
            self._given.append((passage, step.number))
            return finding
        earlier, number = given
        where = (
            "in full" if (earlier.start, earlier.end) == (passage.start, passage.end) else "as part of a longer text"
        )
        result = {key: value for key, value in finding.result.items() if key not in ("text", "outline")}
        result |= {"repeated": True, "note": f"its text stands above at step {number}, {where}"}
        return replace(finding, result=result)

    def _keep(
        self, step: _StepState, name: str, arguments: dict[str, Any], finding: Finding, *, seconds: float
    ) -> dict[str, Any]:
        ledger, agent, number = self._ledger, self._agent, step.number
        if finding.search is not None:
            ledger.saw(finding.search, finding.hits)
            self._emit(
                Hits(
                    step=number,
                    source=finding.search.source,
                    query=finding.search.query,
                    filters=dict(finding.search.filters),
                    returned=finding.returned,
                    hidden_superseded=finding.hidden,
                    agent=agent,
                )
            )
        if finding.find is not None:
            ledger.found(finding.find, finding.passages)
        else:
            for passage in finding.passages:
                ledger.read(passage)
        self._read.extend(finding.passages)
        for reference in finding.returned:
            source = _source_of(reference.document, self._sources)
            if source is not None and source.private:
                self._private.add(source.name)
        for p in finding.passages:
            self._emit(Read(step=number, document=p.document, section=p.section, start=p.start, end=p.end, agent=agent))
        self._record(step, name, arguments, source=finding.source, returned=finding.returned, seconds=seconds)
        return self._noted(finding.result, step)

    def _repeated(
        self, step: _StepState, name: str, arguments: dict[str, Any], tool: Tool | None, made: _Made
    ) -> dict[str, Any]:
        note = f"same call as step {made.step}; its result stands above"
        if made.times >= 3:
            note += "; this goes in circles: give the final answer now"
        self._record(step, name, arguments, source=tool.source if tool else None, error=note)
        return self._noted({"repeated": True, "note": note}, step)

    def _failed(
        self,
        step: _StepState,
        name: str,
        arguments: dict[str, Any],
        tool: Tool | None,
        error: str,
        *,
        seconds: float,
    ) -> dict[str, Any]:
        error = " ".join(redact(visible(error)).split())[:500]
        self._emit(ToolFailed(step=step.number, tool=name, error=error, agent=self._agent))
        self._record(step, name, arguments, source=tool.source if tool else None, error=error, seconds=seconds)
        return self._noted({"error": error}, step)

    def _record(
        self,
        step: _StepState,
        name: str,
        arguments: dict[str, Any],
        *,
        source: str | None,
        returned: tuple[Reference, ...] = (),
        error: str | None = None,
        seconds: float = 0.0,
    ) -> None:
        self._ledger.called(
            Call(
                step=step.number,
                tool=name,
                arguments=arguments,
                source=source,
                returned=returned,
                error=error,
                seconds=seconds,
                agent=self._agent,
            )
        )

    def _noted(self, result: dict[str, Any], step: _StepState) -> dict[str, Any]:
        """The result with the step's notes (the first result has them), and with every string made visible."""
        if step.notes:
            result = {**result, "notes": [*result.get("notes", []), *step.notes]}
            step.notes = []
        return visible_json(result)


def _place(reference: Reference) -> str:
    """A reference as traces show it."""
    return reference.document if reference.section is None else f"{reference.document} §{reference.section}"


def _call_key(name: str, arguments: Mapping[str, Any]) -> str:
    """Equal for calls that would give the same result: defaults left out, white space and case of words folded."""
    folded: dict[str, Any] = {}
    for key, value in arguments.items():
        if isinstance(value, str):
            value = " ".join(value.split())
            if key in ("query", "phrase"):
                value = value.casefold()
        folded[key] = value
    for key, default in _DEFAULTS.items():
        if folded.get(key) == default:
            del folded[key]
    return name + json.dumps(folded, sort_keys=True, ensure_ascii=False, default=str)

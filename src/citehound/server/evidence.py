"""What counts as read when somebody else's answer is checked: places that the caller names, and what a run has read.

Everything is read again now, as the caller may see it; a place that is not there any more counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..access import Principal
from ..corpus import Corpus
from ..documents import Document, Passage
from ..errors import CitehoundError, UsageError
from ..evidence import Evidence, Find, Search
from ..runs import RunRecord

_MOST_CHARS = 20_000_000
"""Characters that count as read in one check."""


def evidence_of_places(
    corpus: Corpus, places: Iterable[tuple[str, str | None, int | None, int | None]], *, principal: Principal
) -> Evidence:
    """Document, section, start and end of each. Raises UsageError for a span that the document does not have.

    What the caller may not see, or what is not there, is no evidence; its claims then fail for not having been read.
    """
    passages: list[Passage] = []
    left = _MOST_CHARS
    for name, section, start, end in places:
        try:
            document = corpus.document(name, principal=principal)
            if section is not None:
                page = corpus.read(document.id, principal=principal, section=section, limit=len(document.text) + 1)
                first, last = page.start, page.end
            else:
                first, last = 0, len(document.text)
        except CitehoundError:
            continue
        if section is None and (start is not None or end is not None):
            first, last = start or 0, last if end is None else end
            if not first < last <= len(document.text):
                raise UsageError(f"read: {name!r} has no text from {first} to {last}; give a span of its text")
        left -= last - first
        if left < 0:
            raise UsageError("read: that is more than can be checked at once; name sections instead of whole documents")
        passages.append(_passage(corpus, document, first, last, principal=principal))
    return Evidence(passages=tuple(passages))


def evidence_of_run(record: RunRecord | None, corpus: Corpus, *, principal: Principal) -> Evidence:
    """What a run has searched and read. A document that has changed since, as its citations show, was not read."""
    if record is None:
        return Evidence()
    documents: dict[str, Document | None] = {}

    def known(name: str) -> Document | None:
        if name not in documents:
            try:
                documents[name] = corpus.document(name, principal=principal)
            except CitehoundError:
                documents[name] = None
        return documents[name]

    changed = {
        c.document
        for claim in record.answer.claims
        for c in claim.citations
        if c.status == "verified" and c.start is not None and c.end is not None
        if (document := known(c.document)) is None or document.text[c.start : c.end] != c.quote
    }
    passages: dict[tuple[str, int, int], Passage] = {}
    for event in record.events:
        if event.get("type") != "read":
            continue
        name, start, end = str(event["document"]), int(event["start"]), int(event["end"])
        document = None if name in changed else known(name)
        if document is not None and 0 <= start < end <= len(document.text):
            passages[name, start, end] = _passage(corpus, document, start, end, principal=principal)
    searches: list[Search] = []
    finds: list[Find] = []
    for call in record.answer.calls:
        if call.error is not None:
            continue
        if call.tool.startswith("search_") and call.source and not _narrowed(call.arguments):
            filters: object = call.arguments.get("filters")
            kept = cast("dict[str, Any]", filters) if isinstance(filters, dict) else {}
            searches.append(
                Search(
                    source=call.source,
                    query=str(call.arguments.get("query", "")),
                    filters=tuple((str(k), str(v)) for k, v in kept.items()),
                )
            )
        elif call.tool == "find_in_document":
            name, phrase = str(call.arguments.get("document", "")), str(call.arguments.get("phrase", ""))
            try:
                again = corpus.find(name, phrase, principal=principal)
            except CitehoundError:
                continue
            finds.append(Find(document=again.document, phrase=phrase, found=again.total > 0))
    return Evidence(passages=tuple(passages.values()), searches=tuple(searches), finds=tuple(finds))


def joined(*parts: Evidence) -> Evidence:
    return Evidence(
        passages=tuple(p for part in parts for p in part.passages),
        searches=tuple(s for part in parts for s in part.searches),
        finds=tuple(f for part in parts for f in part.finds),
    )


def _narrowed(arguments: Mapping[str, Any]) -> bool:
    """True for a search of some documents only, which says nothing of the others."""
    return any(arguments.get(key) for key in ("documents", "document"))


def _passage(corpus: Corpus, document: Document, start: int, end: int, *, principal: Principal) -> Passage:
    info = corpus.info(document.id, principal=principal)
    inside = document.section_at(start)
    return Passage(
        document=document.id,
        section=inside.id if inside is not None else None,
        title=document.title,
        text=document.text[start:end],
        start=start,
        end=end,
        total_chars=len(document.text),
        current=info.current,
        metadata=document.metadata,
        labels=info.labels,
        page=document.page_at(start),
    )

"""What is counted of one run: narrow rows beside its record, from which every number of the dashboard is made.

Derived from the record and nothing else, so that they can be made anew at any time; queries over them are not here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .answers import Answer
from .security import redact, visible
from .wording import content_stems

_MOST = 500
"""Characters of a gap's wording that are kept."""

_TABLES = """
CREATE TABLE run_facts (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    created REAL NOT NULL,
    mode TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    stop_reason TEXT NOT NULL,
    steps INTEGER NOT NULL,
    searches INTEGER NOT NULL,
    reads INTEGER NOT NULL,
    dollars REAL,
    seconds REAL NOT NULL,
    unverified INTEGER NOT NULL,
    model_calls INTEGER,
    input_tokens INTEGER,
    cached_tokens INTEGER,
    output_tokens INTEGER,
    claims INTEGER,
    citations INTEGER,
    failed INTEGER,
    gaps INTEGER
) STRICT;
CREATE INDEX run_facts_created ON run_facts (created);
CREATE TABLE fact_sources (
    fact INTEGER NOT NULL,
    source TEXT NOT NULL,
    searches INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    citations INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    PRIMARY KEY (fact, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_sources_source ON fact_sources (source);
CREATE TABLE fact_documents (
    fact INTEGER NOT NULL,
    document TEXT NOT NULL,
    cited INTEGER NOT NULL,
    PRIMARY KEY (fact, document)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_documents_document ON fact_documents (document);
CREATE TABLE fact_shown (
    fact INTEGER NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (fact, document)
) STRICT, WITHOUT ROWID;
CREATE TABLE fact_gaps (
    fact INTEGER NOT NULL,
    number INTEGER NOT NULL,
    topic TEXT NOT NULL,
    what TEXT NOT NULL,
    checked INTEGER NOT NULL,
    PRIMARY KEY (fact, number)
) STRICT, WITHOUT ROWID
"""
_NAMES = ("fact_gaps", "fact_shown", "fact_documents", "fact_sources", "run_facts")


@dataclass(frozen=True, kw_only=True)
class Source:
    """What one run did with one source."""

    searches: int = 0
    documents: int = 0
    """Documents of it that were read."""
    citations: int = 0
    failed: int = 0


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What the columns of a run's record do not say."""

    model_calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    claims: int
    citations: int
    failed: int
    """Citations that did not verify."""
    sources: Mapping[str, Source]
    """Those that were searched or read. A failed citation of anything else belongs to no source."""
    documents: Mapping[str, bool]
    """Documents of which something was read, and whether a verified citation is from them."""
    shown: frozenset[str]
    """See the function `shown`."""
    gaps: Sequence[tuple[str, str, bool]]
    """Topic (see `topic_of`), wording, and whether it was searched for."""


def shown(answer: Answer, events: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The documents that a run found, read or quoted.

    What a model only named is not among them: that would tell what there is.
    """
    cited = [c for claim in answer.claims for c in claim.citations]
    cited += [c for row in answer.rows for cell in row.cells for c in cell.citations]
    found = [c.document for c in cited if c.status == "verified"]
    found += [reference.document for call in answer.calls for reference in call.returned]
    found += [row.document for row in answer.rows]
    for event in events:
        if event.get("type") in ("read", "fact"):
            found.append(str(event["document"]))
        elif event.get("type") == "hits":
            found += [str(reference["document"]) for reference in event["returned"]]
    return frozenset(found)


def topic_of(what: str) -> str:
    """The words of a gap that carry a meaning, stemmed and in order of the alphabet: alike for alike wordings."""
    return " ".join(sorted(content_stems(what)))[:_MOST] or " ".join(what.casefold().split())[:_MOST]


def tally(answer: Answer, events: Sequence[Mapping[str, Any]]) -> Tally:
    """Counts one run; `events` are as `Event.to_dict` gives them. Raises TypeError for a usage that is no count."""
    usage = answer.usage
    for number in (usage.model_calls, usage.input_tokens, usage.cached_tokens, usage.output_tokens):
        if not isinstance(number, int) or not 0 <= number < 2**63:  # pyright: ignore[reportUnnecessaryIsInstance] - as stored
            raise TypeError(f"a usage of {number!r} is no count")
    citations = [citation for claim in answer.claims for citation in claim.citations]
    cited = {citation.document for citation in citations if citation.status == "verified"}
    read = dict.fromkeys(str(event["document"]) for event in events if event.get("type") == "read")
    searches = [str(call.source) for call in answer.calls if call.source and call.tool.startswith("search_")]
    sources = dict.fromkeys([*searches, *map(source_of, read)])
    gaps = [(_shown(gap.what)[:_MOST], gap.status == "checked") for gap in answer.missing]
    return Tally(
        model_calls=usage.model_calls,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        claims=len(answer.claims),
        citations=len(citations),
        failed=sum(citation.status != "verified" for citation in citations),
        sources={
            name: Source(
                searches=searches.count(name),
                documents=sum(source_of(document) == name for document in read),
                citations=sum(source_of(c.document) == name for c in citations),
                failed=sum(source_of(c.document) == name and c.status != "verified" for c in citations),
            )
            for name in sources
        },
        documents={document: document in cited for document in read},
        shown=shown(answer, events),
        gaps=[(topic_of(what), what, checked) for what, checked in gaps],
    )


def source_of(document: str) -> str:
    """The source that a document's id begins with."""
    return document.partition("/")[0]


def create(db: sqlite3.Connection) -> None:
    """Makes the tables anew, empty. A later change of them is one more migration that fills them again."""
    for name in _NAMES:
        db.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in _TABLES.split(";"):
        db.execute(statement)


def forget(db: sqlite3.Connection, run_id: str) -> None:
    """Takes away what was counted of a run."""
    known = db.execute("SELECT id FROM run_facts WHERE run = ?", (run_id,)).fetchone()
    if known is not None:
        for name in _NAMES[:-1]:
            db.execute(f"DELETE FROM {name} WHERE fact = ?", known)
        db.execute("DELETE FROM run_facts WHERE id = ?", known)


def put(db: sqlite3.Connection, columns: Sequence[object], counted: Tally | None) -> None:
    """Stores what was counted of a run in place of what there was.

    `columns` are those of `run_facts` from `run` to `unverified`. None for a record that cannot be read: then these
    are all that is known of it.
    """
    forget(db, str(columns[0]))
    more: Sequence[object] = (None,) * 8
    if counted is not None:
        more = (
            counted.model_calls,
            counted.input_tokens,
            counted.cached_tokens,
            counted.output_tokens,
            counted.claims,
            counted.citations,
            counted.failed,
            len(counted.gaps),
        )
    row = (*columns, *more)
    fact = db.execute(f"INSERT INTO run_facts VALUES (NULL, {', '.join('?' * len(row))})", row).lastrowid
    if counted is None:
        return
    db.executemany(
        "INSERT OR REPLACE INTO fact_sources VALUES (?, ?, ?, ?, ?, ?)",
        [(fact, _shown(n), s.searches, s.documents, s.citations, s.failed) for n, s in counted.sources.items()],
    )
    db.executemany(
        "INSERT OR REPLACE INTO fact_documents VALUES (?, ?, ?)",
        [(fact, _shown(d), int(cited)) for d, cited in counted.documents.items()],
    )
    db.executemany(
        "INSERT OR IGNORE INTO fact_shown VALUES (?, ?)",
        [(fact, redact(d.encode("utf-8", "replace").decode())) for d in counted.shown],
    )
    db.executemany(
        "INSERT INTO fact_gaps VALUES (?, ?, ?, ?, ?)",
        [(fact, n, topic, what, int(checked)) for n, (topic, what, checked) in enumerate(counted.gaps, 1)],
    )


def _shown(text: str) -> str:
    return redact(visible(" ".join(text.split())))

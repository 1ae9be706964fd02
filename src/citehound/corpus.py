"""The corpus: brings sources into the index (`sync`) and answers search, read, find and list; knows no model."""

from __future__ import annotations

import contextlib
import copy
import difflib
import hashlib
import json
import os
import re
import sys
import threading
import time
import unicodedata
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, cast

from .access import OWNER, Access, Audience, Principal, names_of
from .chase import Way
from .chase import chase as run_chase
from .config import Config, IndexConfig, Rights, SourceConfig, check_egress
from .documents import (
    Document,
    DocumentInfo,
    DocumentList,
    OutlineEntry,
    Passage,
    RawDocument,
    SearchHit,
    SearchResult,
    Section,
    thinned,
)
from .errors import (
    CitehoundError,
    ConfigError,
    ParseError,
    UnknownDocument,
    UnknownSection,
    UnknownSource,
    UsageError,
)
from .events import Emit, Progress, nowhere
from .index import Explanation, FileState, Index, IndexEntry, Lexicon, Near
from .index.fusion import shared_out
from .index.links import content_words
from .index.sending import check_sending
from .parsing import Unsupported, dressed
from .parsing.ocr import available as ocr_available
from .parsing.worker import Limits, Worker, Workers
from .rerank import NONE as NO_RERANKER
from .rerank import Reranker, open_reranker, order
from .sources import SkippedFile, Unreachable

if TYPE_CHECKING:
    from .budget import Meter
    from .embedding import Embedder, Vectors
    from .index.fusion import Weights
    from .index.inside import Contents
    from .live import Live, LiveRun
    from .sources.python import PythonSource
    from .sources.web import ProviderSearch

FileStatus = Literal["indexed", "unchanged", "removed", "skipped", "failed"]

PIPELINE = 3
"""Goes into every metadata hash: raise it when parsing or chunking changes what it makes of the same bytes."""
LEFT_OUT = "skipped.json"
"""In the state's folder: the files that the last `sync` skipped."""
PAGE = 6000
OUTLINE = 200
_COMMIT_SECONDS = 5.0
_MOST_NEAR = 3
_MOST_CONTENTS = 16
_NEAR_WORDS = 0.5
"""A passage comes near a phrase in words with this share of the best score of the document."""
_WINDOW = 700
_NEAR = 240


@dataclass(frozen=True, kw_only=True)
class FileReport:
    source: str
    path: str
    status: FileStatus
    document: str | None = None
    reason: str | None = None
    """Of a skip or failure."""
    warnings: tuple[str, ...] = ()
    chars: int = 0
    sections: int = 0
    passages: int = 0
    language: str | None = None
    pages: int = 0
    """0 where the format has none."""
    tables: int = 0
    format: str = ""


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    files: tuple[FileReport, ...]
    seconds: float = 0.0

    def count(self, status: FileStatus) -> int:
        return sum(1 for f in self.files if f.status == status)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """How the files of one source differ from what the index has; paths in the source's folder."""

    source: str
    documents: int
    """Files that are documents."""
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    """Path and reason of each file that could not be read."""

    @property
    def stale(self) -> int:
        return len(self.new) + len(self.changed) + len(self.removed)


@dataclass(frozen=True, kw_only=True)
class FindResult:
    """Where a phrase stands in one document; `passages` are windows of text around it, so they count as read."""

    document: str
    phrase: str
    passages: tuple[Passage, ...]
    total: int
    """At how many places the phrase itself stands. 0 with passages: only its words stand near each other."""
    near: tuple[Passage, ...] = ()
    """Where fewer places than asked for were found: other passages of the document that come nearest to the phrase in
    words, headings, definitions and meaning. They show nothing of the phrase's being there."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Chased:
    """A hit of the chase, and the way it was reached."""

    firm: float
    """How firmly it stands, whatever vectors say: in the measure of `chase.FIRM`."""

    hit: SearchHit
    way: Way


@dataclass(frozen=True, kw_only=True)
class CorpusView:
    """The corpus as one principal sees it: for verification, which asks nothing else."""

    corpus: Corpus
    principal: Principal

    def resolve(self, name: str) -> str:
        """The full id. Raises UnknownDocument."""
        return self.corpus.resolve(name, principal=self.principal)

    def document(self, document: str) -> Document:
        """Raises UnknownDocument."""
        return self.corpus.document(document, principal=self.principal)

    def info(self, document: str) -> DocumentInfo:
        """Raises UnknownDocument."""
        return self.corpus.info(document, principal=self.principal)


class Corpus:
    """Sources, and the index that serves them. Reading is safe from many threads; `sync` runs in one at a time.

    `functions` are sources given in Python, beside the configured ones. Live sources are asked when they are searched,
    and what they return is read, found in and cited like what is in the index.
    """

    def __init__(
        self,
        config: Config,
        *,
        write: bool = False,
        lock_seconds: float = 10.0,
        functions: Sequence[PythonSource] = (),
    ) -> None:
        configured = {source.name: source.access for source in config.sources}
        config = replace(config, sources=(*config.sources, *(f.config for f in functions)))
        self._live, self._asking = _open_live(config, functions)
        if self._live is not None:  # a function may say what the configuration leaves open
            own = {name: live.config for name, live in self._live.sources.items()}
            config = replace(config, sources=tuple(own.get(s.name, s) for s in config.sources))
        self._config = config
        apart = tuple(s for s in config.sources if s.name not in configured or s.access != configured[s.name])
        self._rights = Rights(config, given=apart)
        if self._live is not None:
            self._live.access = self._rights.now
        self._sending = check_sending(config)
        self._write = write
        self._lock_seconds = lock_seconds
        self._folder = config.state / "index"
        self._mutex = threading.RLock()
        self._index: Index | None = None
        self._folded: dict[tuple[str, int, int], _FoldedText] = {}
        self._contents: dict[tuple[str, int, int], Contents] = {}
        self._opened_reranker: Reranker | None = None

    @classmethod
    def open(
        cls,
        config: Config,
        *,
        write: bool = False,
        lock_seconds: float = 10.0,
        functions: Sequence[PythonSource] = (),
    ) -> Corpus:
        """Opens the index under `config.state`; raises IndexUnusable when it cannot be read.

        With `write` the index need not be there yet, and one that cannot be read is only refused when it is read:
        `sync(rebuild=True)` makes it anew. A second writer waits `lock_seconds`, then IndexLocked is raised.
        """
        corpus = cls(config, write=write, lock_seconds=lock_seconds, functions=functions)
        if not write:
            corpus._reader()
        return corpus

    @property
    def config(self) -> Config:
        return self._config

    @property
    def sources(self) -> tuple[SourceConfig, ...]:
        return self._config.sources

    def for_run(
        self, question: str, *, principal: Principal, meter: Meter, provider: ProviderSearch | None = None
    ) -> Corpus:
        """This corpus as one question uses it: it pays for searches, and may fetch what the question or a search names.

        It has the sources that the asker may search. `provider` is the web search of the model's provider. It is closed
        with the corpus it came from.
        """
        sources = self.sources_for(principal)
        if self._live is None and len(sources) == len(self._config.sources):
            return self
        self._reader()
        made = copy.copy(self)
        made._config = replace(self._config, sources=sources)
        if self._live is not None:
            made._asking = self._live.run(question, meter=meter, provider=provider)
        return made

    def sources_for(self, principal: Principal) -> tuple[SourceConfig, ...]:
        """Those of which somebody may see documents, whether there are any or not."""
        access = self._rights.now()
        return tuple(s for s in self._config.sources if access.may_search(principal, s.name))

    @property
    def access(self) -> Access:
        """Who may see what, as configured now."""
        return self._rights.now()

    def withheld(self, documents: Iterable[str], *, principal: Principal) -> bool:
        """Whether any of these is there and kept from somebody now; one that is gone counts as its source does."""
        access = self._rights.now()
        if principal.owner or not access.limited:
            return False
        live = {source.name: source.live for source in self._config.sources}
        index = self._reader()
        for document in documents:
            source, _, path = document.partition("/")
            if access.closed or (source in live and not access.may_search(principal, source)):
                return True
            if live.get(source) and not principal.may_see(
                access.audience(document=document, source=source, path=re.sub(r"~[0-9a-f]{8}$", "", path))
            ):
                return True
            if index.info(document, principal=principal) is None and index.info(document, principal=OWNER) is not None:
                return True
        return False

    def audiences(self) -> tuple[tuple[frozenset[str], Audience], ...]:
        """Of each document that is indexed: the names that rules know it by, and the groups that may see it."""
        access = self._rights.now()
        found: list[tuple[frozenset[str], Audience]] = []
        for document, place in self._reader().paths(principal=OWNER).items():
            source, _, path = place.partition("/")
            groups = access.audience(document=document, source=source, path=path)
            found.append((names_of(document=document, source=source, path=path), groups))
        return tuple(found)

    def only(self, sources: Sequence[str], *, principal: Principal) -> Corpus:
        """This corpus with these sources to search. It is closed with the corpus it came from. Raises UnknownSource."""
        names = {self._source(name, principal) for name in sources}
        self._reader()
        made = copy.copy(self)
        made._config = replace(self._config, sources=tuple(s for s in self._config.sources if s.name in names))
        return made

    @property
    def fee(self) -> float:
        """Dollars that the dearest search costs."""
        return 0.0 if self._asking is None else self._asking.fees

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is to be said of the configuration, and of the index as it was opened."""
        return (
            *self._sending,
            *self._rights.now().problems,
            *(self._index.warnings if self._index is not None else ()),
        )

    def _reader(self) -> Index:
        from .index.embedded import EmbeddedIndex

        with self._mutex:
            if self._index is None:
                if self._config.index.backend != "embedded":
                    raise ConfigError(
                        f"index backend {self._config.index.backend!r} is not known; use backend = 'embedded'"
                    )
                self._index = EmbeddedIndex(
                    self._folder,
                    language=self._config.index.language,
                    embedder=self._embedder(),
                    weights=self._weights(),
                    access=self._rights.now,
                    open_sources=self._open,
                )
            return self._index

    def _embedder(self) -> Embedder | None:
        from .embedding import open_embedder

        settings = self._config.index.embedding
        return open_embedder(settings.name, base_url=settings.base_url, dimensions=settings.dimensions)

    def _weights(self) -> Weights:
        from .index.fusion import Weights

        settings = self._config.index.embedding
        return Weights(dense=settings.weight, floor=settings.floor, keep=settings.keep)

    def is_empty(self) -> bool:
        """True when there is no index, or one without documents though some are to be indexed."""
        from .index.embedded import EmbeddedIndex

        if EmbeddedIndex.exists(self._folder) and all(source.live for source in self._config.sources):
            return False
        if not EmbeddedIndex.exists(self._folder):
            return True
        return not self._reader().any_document()

    # -- bringing sources in

    def sync(self, *, emit: Emit = nowhere, rebuild: bool = False, figures: bool = False) -> SyncReport:
        """Makes the index what the sources are now, and reports every file.

        Unchanged files are skipped, vanished ones removed, failed ones tried again. Work is committed in batches, so a
        run that is killed goes on where it was. `rebuild` throws the old state away first, whatever is wrong with it.
        With `figures` the report on an unchanged file says as much as that on a new one.
        Raises IndexUnusable, and ConfigError for a source that cannot be read at all.
        """
        from .index.embedded import EmbeddedIndex

        started = time.monotonic()
        if rebuild:
            with self._mutex:
                if self._index is not None:
                    self._index.close()
                    self._index = None
            EmbeddedIndex.discard(self._folder, lock_seconds=self._lock_seconds)
        index = EmbeddedIndex(
            self._folder,
            write=True,
            lock_seconds=self._lock_seconds,
            language=self._config.index.language,
            embedder=self._embedder(),
            weights=self._weights(),
            access=self._rights.now,
            open_sources=self._open,
        )
        settings = self._config.index
        limits = _limits(settings)
        with index, Workers(settings.workers, limits=limits) as workers:
            reports = _Sync(config=self._config, index=index, emit=emit, workers=workers).run()
            if figures:
                reports = [_with_figures(report, index) for report in reports]
            index.embed_missing(lambda done, total: emit(Progress(done=done, total=total, what="vectors")))
        _keep_left_out(self._config.state, reports)
        return SyncReport(files=tuple(reports), seconds=time.monotonic() - started)

    def changes(self) -> tuple[Changes, ...]:
        """What the next `sync` would find in each source, by content; nothing is read into the index.

        Raises IndexUnusable, and ConfigError for a source that cannot be read at all.
        """
        reader = self._reader()
        found: list[Changes] = []
        for source in self._config.sources:
            if source.live:
                continue
            known = reader.files(source.name)
            new: list[str] = []
            changed: list[str] = []
            failed = [(path, state.error) for path, state in sorted(known.items()) if state.error]
            seen: set[str] = set()
            if source.kind == "site":  # to look would be to fetch it all
                found.append(Changes(source=source.name, documents=len(known), failed=tuple(failed)))
                continue
            for item in _items(source, self._config, {path: state.document for path, state in known.items()}):
                if isinstance(item, SkippedFile):
                    if "cannot be read" in item.reason:
                        failed.append((item.path, item.reason))
                    continue
                if isinstance(item, Unreachable):
                    continue
                seen.add(item.path)
                before = known.get(item.path)
                if before is None:
                    new.append(item.path)
                elif before.content_hash != hashlib.sha256(item.data).hexdigest():
                    changed.append(item.path)
            inside = {path for path, state in known.items() if "/" in state.content_hash}
            found.append(
                Changes(
                    source=source.name,
                    documents=len(seen),
                    new=tuple(new),
                    changed=tuple(changed),
                    removed=tuple(sorted(known.keys() - seen - inside)),
                    failed=tuple(failed),
                )
            )
        return tuple(found)

    # -- asking

    def search(
        self,
        source: str | None,
        query: str,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 6,
        per_document: int = 2,
    ) -> SearchResult:
        """The best `k` chunks of one source (None: of all), at most `per_document` of each document.

        `documents` keeps to these (full ids). Of all sources, none crowds the others out (see `shared_out`).
        """
        name = self._source(source, principal)

        def search(most: int) -> SearchResult:
            return self._search(
                name,
                query,
                principal=principal,
                filters=filters,
                only_current=only_current,
                documents=documents,
                k=most,
                per_document=per_document,
            )

        result = search(k)
        hits: Sequence[SearchHit] = result.hits
        if name is None and hits and documents is None and len(self._config.sources) > 1:
            most = max(Counter(_source_of(hit.document) for hit in hits).values())
            if 2 * most > len(hits):
                hits = search(max(50, 4 * k)).hits
            hits = shared_out(hits, k, source=lambda hit: _source_of(hit.document), open_sources=self._open)
        trusted = tuple(replace(h, trust="open") if _source_of(h.document) in self._open else h for h in hits)
        return replace(result, hits=trusted)

    @property
    def _open(self) -> frozenset[str]:
        """Sources that many people can write."""
        return frozenset(source.name for source in self._config.sources if source.trust == "open")

    def _search(
        self,
        name: str | None,
        query: str,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None,
        only_current: bool,
        documents: Sequence[str] | None,
        k: int,
        per_document: int,
    ) -> SearchResult:
        if (asking := self._asks(principal)) is not None and name is not None and asking.source(name) is not None:
            return asking.search(
                name,
                query,
                principal=principal,
                filters=filters,
                only_current=only_current,
                documents=documents,
                k=k,
                per_document=per_document,
            )
        reranker = self._reranker()
        settings = self._config.index.rerank
        result = self._reader().search(
            query,
            principal=principal,
            source=name,
            filters=filters,
            only_current=only_current,
            documents=documents,
            k=k if reranker is None else max(k, settings.candidates),
            per_document=per_document,
        )
        if reranker is None or not result.hits:
            return result
        wanted = order(
            reranker,
            query,
            [self._hit_text(hit, principal=principal) for hit in result.hits],
            name=settings.name,
            seconds=settings.seconds,
        )
        hits = tuple(result.hits[at] for at in wanted.places)[:k]
        notes = result.notes if wanted.note is None else (*result.notes, wanted.note)
        return replace(result, hits=hits, notes=notes)

    def _reranker(self) -> Reranker | None:
        settings = self._config.index.rerank
        if self._opened_reranker is None and settings.name != NO_RERANKER:
            self._opened_reranker = open_reranker(settings.name, base_url=settings.base_url, seconds=settings.seconds)
        return self._opened_reranker

    def _hit_text(self, hit: SearchHit, *, principal: Principal) -> str:
        """What a reranker reads of a hit: its title and the whole passage."""
        whole = self._reader().document(hit.document, principal=principal)
        return f"{hit.title}\n{whole.text[hit.start : hit.end] if whole is not None else hit.snippet}"

    def explain(
        self,
        source: str | None,
        query: str,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 6,
        per_document: int = 2,
    ) -> Explanation:
        """How `search` with the same arguments comes to its hits, and why what came near is none."""
        settings = self._config.index.rerank
        reranked = settings.name != NO_RERANKER
        explained = self._reader().explain(
            query,
            principal=principal,
            source=self._source(source, principal),
            filters=filters,
            only_current=only_current,
            documents=documents,
            k=max(k, settings.candidates) if reranked else k,
            per_document=per_document,
        )
        if not reranked:
            return explained
        return replace(
            explained, rerank=f"{settings.name} orders the first {settings.candidates}, of which {k} are shown"
        )

    def embed_query(self, *texts: str) -> Vectors | None:
        """Texts to look for, as vectors of the index: one row of length 1 each. None when it has no vectors."""
        return self._reader().embed(texts)

    def nearest(
        self,
        source: str | None,
        vector: Vectors,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 20,
    ) -> Sequence[Near]:
        """The `k` passages nearest to one row of `embed_query`, best first."""
        return self._reader().nearest(
            vector,
            principal=principal,
            source=self._source(source, principal),
            filters=filters,
            only_current=only_current,
            documents=documents,
            k=k,
        )

    def cosines(self, vectors: Vectors, passages: Sequence[tuple[str, int]], *, principal: Principal) -> Vectors:
        """(rows of `vectors`, passages): how near each passage, given as (document, ordinal), is to each row."""
        return self._reader().cosines(vectors, passages, principal=principal)

    def read(
        self, document: str, *, principal: Principal, section: str | None = None, start: int = 0, limit: int = PAGE
    ) -> Passage:
        """Text of a document, or of one of its sections, from `start`, at most `limit` characters.

        `document` may be a full id, a path or a unique suffix. `start` is an absolute offset into Document.text; with
        `section` and start=0 the read begins at the section. Pages join without a gap and end where a paragraph or
        sentence does, when one does. Raises UnknownDocument, UnknownSection, UsageError.
        """
        if limit < 1:
            raise UsageError(f"limit {limit!r} must be at least 1")
        whole = self._fetched(document, principal=principal)
        info = self.info(whole.id, principal=principal)
        total = len(whole.text)
        wanted = find_section(whole, section) if section is not None and section.strip() else None
        first, last = (0, total) if wanted is None else (wanted.start, wanted.end)
        if start < 0:
            raise UsageError(f"start {start!r} must not be negative; pass next_start of the page before")
        if wanted is not None and start > last:
            raise UsageError(
                f"start {start} is past the end of section {wanted.id!r} ({first} to {last}); leave start out"
            )
        begin = min(max(start, first), last)
        end = page_end(whole.text, begin, last, limit)
        outline: tuple[OutlineEntry, ...] = ()
        if begin == first and end < last:
            outline = _outline(whole, wanted)
        inside = wanted if wanted is not None else _enclosing(whole, begin, end)
        return Passage(
            document=whole.id,
            section=inside.id if inside is not None else None,
            title=whole.title if inside is None or not inside.title else f"{whole.title} > {inside.title}",
            text=whole.text[begin:end],
            start=begin,
            end=end,
            total_chars=total,
            next_start=end if end < last else None,
            outline=outline,
            current=info.current,
            metadata=whole.metadata,
            labels=info.labels,
            page=whole.page_at(begin),
            trust=info.trust,
        )

    def chase(
        self,
        question: str,
        *,
        principal: Principal,
        k: int = 10,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        per_document: int = 2,
        start: str | None = None,
    ) -> tuple[Chased, ...]:
        """The passages that a question needs, over several hops and without a model: seeds, links and names in them.

        Each says how it was reached. With `start`, a document, only where that document leads. An unknown filter gives
        nothing. Raises UnknownDocument, UnknownSource.
        """
        from .index.analysis import Matcher
        from .index.ranking import snippet

        index = self._reader()
        trail = index.trail(
            principal=principal, source=self._source(source, principal), filters=filters, only_current=only_current
        )
        if trail is None or not question.strip():
            return ()
        row = trail.row(self.resolve(start, principal=principal)) if start is not None else None
        if start is not None and row is None:
            return ()
        weights = {stem: 1.0 for stem, _ in content_words(question, trail.language)}
        found: list[Chased] = []
        several = source is None and len(self._config.sources) > 1
        reached = run_chase(trail, question, k=2 * k if several else k, per_document=per_document, start=row)
        if several:
            reached = shared_out(reached, k, source=lambda r: r.page.head.source, open_sources=self._open)
        for one in reached:
            page, head = one.page, one.page.head
            section = page.heading
            hit = SearchHit(
                document=head.document,
                section=page.section,
                title=head.title if not section or section == head.title else f"{head.title} > {section}",
                snippet=snippet(page.text, Matcher(weights, head.language)),
                score=round(one.score, 4),
                current=head.current,
                metadata=head.metadata,
                start=page.start,
                end=page.end,
                labels=head.labels,
                trust="open" if head.source in self._open else "reviewed",
            )
            found.append(Chased(hit=hit, way=one.way, firm=one.firm))
        return tuple(found)

    def find(self, document: str, phrase: str, *, principal: Principal, limit: int = 5) -> FindResult:
        """Where a phrase stands in a document, as a person searches: case, accents, white space and the typographic
        forms of quotes and dashes do not matter. Where it stands nowhere, passages in which all its words stand near
        each other (stemmed) are given, and `notes` says so. Raises UnknownDocument, UsageError."""
        whole = self._fetched(document, principal=principal)
        info = self.info(whole.id, principal=principal)
        if not phrase.strip():
            raise UsageError("the phrase is empty; give the words to look for")
        folded = self._fold(whole)
        places = folded.places(phrase)
        total = len(places)
        notes: tuple[str, ...] = ()
        if not places:
            places = _near_each_other(whole, phrase, language=whole.language or self._config.index.language or "en")
            if places:
                notes = (f"{phrase!r} stands nowhere as such; in these passages its words stand near each other",)
        passages: list[Passage] = []
        for start, end in _windows(whole, places)[: max(0, limit)]:
            inside = whole.section_at(start)
            passages.append(
                Passage(
                    document=whole.id,
                    section=inside.id if inside is not None else None,
                    title=whole.title if inside is None or not inside.title else f"{whole.title} > {inside.title}",
                    text=whole.text[start:end],
                    start=start,
                    end=end,
                    total_chars=len(whole.text),
                    current=info.current,
                    metadata=whole.metadata,
                    labels=info.labels,
                    page=whole.page_at(start),
                    trust=info.trust,
                )
            )
        near = () if len(passages) >= limit else self._near(whole, info, phrase, shown=passages, principal=principal)
        return FindResult(
            document=whole.id, phrase=phrase, passages=tuple(passages), total=total, near=near, notes=notes
        )

    def _near(
        self, whole: Document, info: DocumentInfo, phrase: str, *, shown: Sequence[Passage], principal: Principal
    ) -> tuple[Passage, ...]:
        """The passages of a document that rank highest for a phrase of several words, without those shown."""
        from .index.inside import Contents, rank

        index = self._reader()
        live = self._is_live(whole.id, principal)
        chunks = live.chunks(whole.id, principal=principal) if live else index.chunks(whole.id, principal=principal)
        if len(phrase.split()) < 2 or not chunks:
            return ()
        key = (whole.id, len(whole.text), hash(whole.text))
        with self._mutex:
            contents = self._contents.get(key)
        if contents is None:
            language = whole.language or self._config.index.language or "en"
            passages = [(chunk.context.removeprefix(whole.title), chunk.text) for chunk in chunks]
            contents = Contents.of(passages, language=language)
            with self._mutex:
                while len(self._contents) >= _MOST_CONTENTS:
                    self._contents.pop(next(iter(self._contents)))
                self._contents[key] = contents
        vector = None if live else index.embed([phrase])
        cosines: list[float] | None = None
        if vector is not None:
            asked = [(whole.id, chunk.ordinal) for chunk in chunks]
            cosines = [float(c) for c in index.cosines(vector, asked, principal=principal)[0]]
        floor = self._config.index.embedding.floor
        found: list[Passage] = []
        for ranked in rank(contents, phrase, cosines=cosines):
            chunk = chunks[ranked.ordinal]
            meant = cosines is not None and cosines[ranked.ordinal] >= floor
            if not (meant or ranked.words >= _NEAR_WORDS) or any(
                p.start < chunk.end and chunk.start < p.end for p in shown
            ):
                continue
            inside = whole.section(chunk.section) if chunk.section is not None else None
            found.append(
                Passage(
                    document=whole.id,
                    section=chunk.section,
                    title=whole.title if inside is None or not inside.title else f"{whole.title} > {inside.title}",
                    text=chunk.text,
                    start=chunk.start,
                    end=chunk.end,
                    total_chars=len(whole.text),
                    current=info.current,
                    metadata=whole.metadata,
                    labels=info.labels,
                    page=whole.page_at(chunk.start),
                    trust=info.trust,
                )
            )
            if len(found) == _MOST_NEAR:
                break
        return tuple(found)

    def list_documents(
        self,
        source: str | None,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        start: int = 0,
        limit: int = 50,
    ) -> DocumentList:
        """The documents of a source (None: of all) that match, by id, from the `start`-th.

        Of a live source, those that its searches returned.
        """
        name = self._source(source, principal)
        if (asking := self._asks(principal)) is not None and name is not None and asking.source(name) is not None:
            listed = asking.list_documents(
                name, principal=principal, filters=filters, only_current=only_current, start=start, limit=limit
            )
        else:
            listed = self._reader().list_documents(
                principal=principal,
                source=name,
                filters=filters,
                only_current=only_current,
                start=start,
                limit=limit,
            )
        return replace(listed, documents=tuple(map(self._trusted, listed.documents)))

    def resolve(self, name: str, *, principal: Principal) -> str:
        """The full id of a document named by id, path or unique suffix.

        Raises UnknownDocument with the candidates when several go by it, with the nearest names when none does.
        """
        asking = self._asks(principal)
        if asking is not None:
            if self._is_live(name, principal):
                found = asking.resolve(name, principal=principal)
                if found is not None:
                    return found
            try:
                return self._reader().resolve(name, principal=principal)
            except UnknownDocument:
                found = asking.resolve(name, principal=principal)
                if found is None:
                    raise
                return found
        return self._reader().resolve(name, principal=principal)

    def _asks(self, principal: Principal) -> LiveRun | None:
        """The use of the live sources that somebody may search."""
        if self._asking is None or self._live is None:
            return None
        access = self._rights.now()
        return self._asking.among({name for name in self._live.sources if access.may_search(principal, name)})

    def _is_live(self, document: str, principal: Principal) -> LiveRun | None:
        """The use of live sources, where this is the id of one of their documents, or a URL."""
        asking = self._asks(principal)
        if asking is None:
            return None
        mine = asking.owner(document) is not None or re.match(r"https?://", document, re.IGNORECASE) is not None
        return asking if mine else None

    def _fetched(self, document: str, *, principal: Principal) -> Document:
        """The whole document; a page that was only found is fetched. Raises UnknownDocument, SourceFailed."""
        full = self.resolve(document, principal=principal)
        if (live := self._is_live(full, principal)) is not None:
            live.fetch(full, principal=principal)
        return self.document(full, principal=principal)

    def settled(self, hit: SearchHit, query: str, *, principal: Principal) -> SearchHit:
        """The hit with the span of its best passage; that of a page which was only found is known once it is fetched.

        Raises SourceFailed.
        """
        asking = self._asks(principal)
        return hit if asking is None else asking.settled(hit, query, principal=principal)

    def document(self, document: str, *, principal: Principal) -> Document:
        """The whole document. Raises UnknownDocument."""
        full = self.resolve(document, principal=principal)
        if (live := self._is_live(full, principal)) is not None:
            return live.document(full, principal=principal)
        found = self._reader().document(full, principal=principal)
        if found is None:
            raise UnknownDocument(f"document {full!r} has just been removed; search again")
        return found

    def info(self, document: str, *, principal: Principal) -> DocumentInfo:
        """What a listing shows of one document. Raises UnknownDocument."""
        full = self.resolve(document, principal=principal)
        if (live := self._is_live(full, principal)) is not None:
            return self._trusted(live.info(full, principal=principal))
        found = self._reader().info(full, principal=principal)
        if found is None:
            raise UnknownDocument(f"document {full!r} has just been removed; search again")
        return self._trusted(found)

    def _trusted(self, info: DocumentInfo) -> DocumentInfo:
        return replace(info, trust="open") if info.source in self._open else info

    def filter_values(self, source: str, key: str, *, principal: Principal) -> Sequence[str]:
        """Known values of a metadata key, most frequent first. Raises UnknownSource."""
        name = self._source(source, principal)
        assert name is not None
        asking = self._asks(principal)
        live = None if asking is None else asking.source(name)
        if live is not None:
            return live.values(key)
        return self._reader().values(name, key, principal=principal)

    def lexicon(self, *, principal: Principal) -> Lexicon:
        """Frequencies, filter values and titles; no text."""
        filters = {source.name: source.filters for source in self._config.sources}
        lexicon = _Lexicon(inner=self._reader().lexicon(principal=principal), filters=filters)
        return lexicon if self._live is None else self._live.lexicon(lexicon, principal=principal)

    def original(self, document: str, *, principal: Principal) -> tuple[RawDocument, Document] | None:
        """The file that a document was read from, and the document, while the file is what was read then; else None.

        Only of a source of files, and not of a file inside another one. Raises UnknownDocument.
        """
        from .sources.files import bytes_of

        whole = self.document(document, principal=principal)
        source = self._config.source(whole.source)
        if source is None or source.kind != "files":
            return None
        state = self._reader().files(whole.source).get(whole.path)
        if state is None or state.document != whole.id:
            return None
        data = bytes_of(source, self._config.root, whole.path)
        if data is None or hashlib.sha256(data).hexdigest() != state.content_hash:
            return None
        return RawDocument(id=whole.id, source=whole.source, path=whole.path, data=data), whole

    def ingested(self, source: str, *, principal: Principal) -> tuple[FileReport, ...]:
        """What became of each file of a source when it was last brought in, by path, as far as `principal` may see.

        Files without a document are an owner's to see. Raises UnknownSource.
        """
        name = self._source(source, principal)
        assert name is not None
        index = self._reader()
        found: list[FileReport] = []
        for path, state in index.files(name).items():
            report = FileReport(source=name, path=path, status="indexed", document=state.document)
            if state.error is not None:
                if principal.owner:
                    found.append(replace(report, status="failed", document=None, reason=state.error))
            elif (document := index.document(state.document, principal=principal)) is not None:
                passages = len(index.chunks(state.document, principal=principal))
                found.append(_of_document(report, document, passages=passages))
        if principal.owner:
            found.extend(report for report in _left_out(self._config.state) if report.source == name)
        return tuple(sorted(found, key=lambda report: report.path))

    def failed(self, source: str) -> int:
        """How many files of a source could not be read; for an owner to know. Raises UnknownSource."""
        name = self._source(source, OWNER)
        assert name is not None
        return sum(1 for state in self._reader().files(name).values() if state.error is not None)

    @property
    def synced(self) -> float | None:
        """When `sync` last ended, in seconds since the epoch; None where it never did."""
        try:
            return (self._config.state / LEFT_OUT).stat().st_mtime
        except OSError:
            return None

    def view(self, *, principal: Principal) -> CorpusView:
        return CorpusView(corpus=self, principal=principal)

    def close(self) -> None:
        if self._live is not None:
            self._live.close()
        with self._mutex:
            if self._index is not None:
                self._index.close()
                self._index = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _source(self, name: str | None, principal: Principal) -> str | None:
        if name is None:
            return None
        known = [source.name for source in self.sources_for(principal)]
        if name in known:
            return name
        same = [k for k in known if k.casefold() == name.strip().casefold()]
        if len(same) == 1:
            return same[0]
        near = difflib.get_close_matches(name, known, n=3) or known
        raise UnknownSource(f"no source is called {name!r}; known: {', '.join(repr(k) for k in near)}")

    def _fold(self, document: Document) -> _FoldedText:
        key = (document.id, len(document.text), hash(document.text))
        with self._mutex:
            found = self._folded.get(key)
            if found is None:
                if len(self._folded) >= 16:
                    self._folded.pop(next(iter(self._folded)))
                found = self._folded[key] = _FoldedText.of(document.text)
            return found


@dataclass(frozen=True, kw_only=True)
class _Lexicon:
    """The index's lexicon, with the values of the configured filters only."""

    inner: Lexicon
    filters: Mapping[str, tuple[str, ...]]

    @property
    def passages(self) -> int:
        return self.inner.passages

    def frequency(self, term: str) -> int:
        return self.inner.frequency(term)

    def values(self, source: str) -> Mapping[str, tuple[str, ...]]:
        known = self.inner.values(source)
        folded = {key.casefold(): key for key in known}
        return {
            name: known[folded[name.casefold()]] for name in self.filters.get(source, ()) if name.casefold() in folded
        }

    def titles(self) -> Sequence[tuple[str, str]]:
        return self.inner.titles()


# -- sync


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A file on its way into the index: with its report where nothing is left to do, else being read."""

    report: FileReport | None = None
    raw: RawDocument | None = None
    source: SourceConfig | None = None
    state: FileState | None = None
    before: FileState | None = None
    work: Future[Document] | None = None
    size: int = 0
    container: FileState | None = None
    """Of a file inside another: the one on disk."""
    depth: int = 0


@dataclass(kw_only=True)
class _Sync:
    """One run over all sources."""

    config: Config
    index: Index
    emit: Emit
    workers: Workers
    """Read each file in a process of its own, within limits."""
    reports: list[FileReport] = field(default_factory=list[FileReport])
    done: int = 0
    total: int = 0
    committed: float = field(default_factory=time.monotonic)
    taken: dict[str, str] = field(default_factory=dict[str, str])
    """Document id to the path that has it."""
    declared: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """(source, id given in front matter) of what was indexed in this run."""
    passages: int = 0
    """Made in this run."""

    def run(self) -> list[FileReport]:
        indexed = [source for source in self.config.sources if not source.live]
        self.total = sum(_count_files(self._root(source)) for source in indexed if source.kind == "files")
        configured = {source.name for source in indexed}
        for name in self.index.sources():
            if name not in configured:
                for state in self.index.files(name).values():
                    self._remove(state, reason="its source is no longer configured")
        for source in indexed:
            self._source(source)
        self.index.commit()
        self._warn_of_shared_ids()
        self.total = self.done
        self.emit(Progress(done=self.done, total=self.total, what="done", passages=self.passages))
        return self.reports

    def _root(self, source: SourceConfig) -> Path:
        return source.path if source.path.is_absolute() else self.config.root / source.path

    def _source(self, source: SourceConfig) -> None:
        """Files are read ahead by the workers, a bounded number of them, and taken in in their order."""
        known = self.index.files(source.name)
        inner = _inner_files(known)
        seen: set[str] = set()
        skipped: set[str] = set()
        ahead: deque[_Job] = deque()
        waiting = 0

        def take_in(job: _Job) -> None:
            report = job.report if job.report is not None else self._take_in(job, known=known, inner=inner, seen=seen)
            self.reports.append(report)
            self._progress(f"{source.name}/{report.path}")

        for item in _items(source, self.config, {path: state.document for path, state in known.items()}):
            if isinstance(item, SkippedFile):
                skipped.add(item.path)
                report = FileReport(source=source.name, path=item.path, status="skipped", reason=item.reason)
                job = _Job(report=report)
            elif isinstance(item, Unreachable):
                job = _Job(report=self._kept(item, source=source, known=known, inner=inner, seen=seen))
            else:
                seen.add(item.path)
                raw = replace(item, unpack=self.config.index.archives)
                job = self._begin(raw, source=source, before=known.get(item.path), inner=inner, seen=seen)
            ahead.append(job)
            waiting += job.size
            while ahead and (len(ahead) > 4 * self.workers.count or waiting > _AHEAD_BYTES):
                job = ahead.popleft()
                waiting -= job.size
                take_in(job)
        while ahead:
            take_in(ahead.popleft())
        for path, state in known.items():
            if path in skipped and path not in seen:
                self._drop(state)
            elif path not in seen:
                self._remove(state, reason=None)

    def _kept(
        self,
        item: Unreachable,
        *,
        source: SourceConfig,
        known: Mapping[str, FileState],
        inner: Mapping[str, Sequence[FileState]],
        seen: set[str],
    ) -> FileReport:
        """What could not be had this time stays in the index as it is."""
        state = known.get(item.path)
        for kept in (*inner.get(item.path, ()), *((state,) if state is not None else ())):
            seen.add(kept.path)
            self.taken.setdefault(kept.document, f"{kept.source}/{kept.path}")
        indexed = state is not None and state.error is None
        return FileReport(
            source=source.name,
            path=item.path,
            status="failed",
            document=state.document if state is not None else None,
            reason=_one_line(item.reason) + ("; the version indexed before is kept" if indexed else ""),
        )

    def _warn_of_shared_ids(self) -> None:
        """Every document that gives in its front matter the id that another one gives is reported with a warning."""
        if not self.declared:
            return
        having: dict[tuple[str, str], list[str]] = {}
        for info in self.index.list_documents(principal=OWNER, only_current=False, limit=sys.maxsize).documents:
            key = (info.source, info.metadata.get("declared_id", "").strip())
            if key in self.declared:
                having.setdefault(key, []).append(info.document)
        warnings: dict[str, str] = {}
        for (_, own), documents in having.items():
            for document in documents if len(documents) > 1 else ():
                others = [repr(other) for other in documents if other != document]
                shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
                warnings[document] = f"its front matter gives the id {own!r}, as does {shown}; ids come from paths"
        for at, report in enumerate(self.reports):
            if report.status in ("indexed", "unchanged") and (warning := warnings.get(report.document or "")):
                self.reports[at] = replace(report, warnings=(*report.warnings, warning))

    def _progress(self, what: str) -> None:
        self.done += 1
        self.total = max(self.total, self.done)
        self.emit(Progress(done=self.done, total=self.total, what=what, passages=self.passages))
        if time.monotonic() - self.committed > _COMMIT_SECONDS:
            self.index.commit()
            self.committed = time.monotonic()

    def _remove(self, state: FileState, *, reason: str | None) -> None:
        self._drop(state)
        self.reports.append(
            FileReport(source=state.source, path=state.path, status="removed", document=state.document, reason=reason)
        )

    def _drop(self, state: FileState) -> None:
        """Takes a file out of the index; its document only where no other file has taken the id over."""
        owner = self.taken.get(state.document)
        if owner is None or owner == f"{state.source}/{state.path}":
            self.index.remove([state.document])
        self.index.forget(state.source, state.path)

    def _begin(
        self,
        raw: RawDocument,
        *,
        source: SourceConfig,
        before: FileState | None,
        inner: Mapping[str, Sequence[FileState]],
        seen: set[str],
        container: FileState | None = None,
    ) -> _Job:
        """What is to be done with a file: nothing, new metadata for what is stored, or reading it.

        `container` is the file on disk that this one came in.
        """
        language = source.language or self.config.index.language
        own = hashlib.sha256(raw.data).hexdigest()
        state = FileState(
            source=source.name,
            path=raw.path,
            document=raw.id,
            content_hash=own if container is None else f"{container.content_hash}/{own}",
            metadata_hash=_metadata_hash(raw, language=language),
        )
        place = f"{source.name}/{raw.path}"
        owner = self.taken.setdefault(raw.id, place)
        if owner != place:
            return _Job(
                report=self._failed(raw, reason=f"its id {raw.id!r} is already that of {owner!r}; rename one of them")
            )
        inside = inner.get(raw.path, ()) if container is None else ()
        complete = all(s.error is None and s.content_hash.startswith(f"{own}/") for s in inside)
        if before is not None and before.error is None and before.content_hash == state.content_hash and complete:
            if before == state:
                for path in (s.path for s in inside):
                    seen.add(path)
                for s in inside:
                    self.taken.setdefault(s.document, f"{s.source}/{s.path}")
                    self.reports.append(
                        FileReport(source=s.source, path=s.path, status="unchanged", document=s.document)
                    )
                return _Job(report=FileReport(source=source.name, path=raw.path, status="unchanged", document=raw.id))
            report = self._dress(raw, source=source, before=before, inside=inside, seen=seen)
            if report is not None:
                return _Job(report=report)
        work = self.workers.read(raw, language=language)
        return _Job(raw=raw, source=source, state=state, before=before, work=work, size=len(raw.data))

    def _dress(
        self,
        raw: RawDocument,
        *,
        source: SourceConfig,
        before: FileState,
        inside: Sequence[FileState],
        seen: set[str],
    ) -> FileReport | None:
        """Gives what is stored of a file, and of the files inside it, its new metadata; None where it must be read."""
        language = source.language or self.config.index.language
        entries: list[tuple[IndexEntry, FileReport]] = []
        for s in (*inside, before):
            mine = raw if s is before else _inside(raw, path=s.path, document=s.document, data=b"")
            now = replace(s, metadata_hash=_metadata_hash(mine, language=language))
            if now.metadata_hash.partition("/")[0] != s.metadata_hash.partition("/")[0]:
                return None
            stored = self.index.document(s.document, principal=OWNER)
            document = dressed(mine, language=language, document=stored) if stored is not None else None
            if document is None:
                return None
            entries.append(self._entry(document, state=now))
        for entry, report in entries:
            self.index.add([entry])
            if entry.state.path != raw.path:
                self.taken.setdefault(entry.document.id, f"{source.name}/{entry.state.path}")
                seen.add(entry.state.path)
                self.reports.append(report)
        return entries[-1][1]

    def _take_in(
        self,
        job: _Job,
        *,
        known: Mapping[str, FileState],
        inner: Mapping[str, Sequence[FileState]],
        seen: set[str],
    ) -> FileReport:
        """Waits for a file to be read and puts it, and the files inside it before it, into the index."""
        assert job.raw is not None and job.source is not None and job.state is not None and job.work is not None
        raw, source, state, before = job.raw, job.source, job.state, job.before
        try:
            document = self._read(raw, job.work, language=source.language or self.config.index.language)
        except Unsupported as error:
            if before is not None:
                self._drop(before)
            return FileReport(
                source=source.name, path=raw.path, status="skipped", document=None, reason=_one_line(str(error))
            )
        except ParseError as error:
            return self._failed(raw, reason=_one_line(str(error)), state=state, before=before)
        except CitehoundError:
            raise
        except Exception as error:  # a fault with one file never ends the run
            reason = _one_line(f"{type(error).__name__}: {error}")
            return self._failed(raw, reason=reason, state=state, before=before)
        warnings = self._take_in_attachments(document, job, known=known, inner=inner, seen=seen)
        document = replace(document, attachments=(), warnings=(*document.warnings, *warnings))
        entry, report = self._entry(document, state=state)
        if before is not None and before.document != raw.id:
            self.index.remove([before.document])
        self.index.add([entry])
        return report

    def _read(self, raw: RawDocument, work: Future[Document], *, language: str | None) -> Document:
        """The document, read once more from the pictures of its pages where it needs that and OCR is there."""
        document: Document | None = None
        try:
            document = work.result()
        except ParseError as error:
            if not (self.config.index.ocr and str(error).startswith(_NEEDS_OCR) and ocr_available()):
                raise
        else:
            wanted = any(warning.startswith(_NEEDS_OCR) for warning in document.warnings)
            if not (wanted and self.config.index.ocr and ocr_available()):
                return document
        try:
            return self.workers.read(replace(raw, ocr=True), language=language).result()
        except ParseError as error:
            if document is None:
                raise
            return replace(document, warnings=(*document.warnings, f"OCR failed: {_one_line(str(error))}"))

    def _take_in_attachments(
        self,
        document: Document,
        job: _Job,
        *,
        known: Mapping[str, FileState],
        inner: Mapping[str, Sequence[FileState]],
        seen: set[str],
    ) -> list[str]:
        """Files inside go in before the file that they came in, so a run that is killed in between reads it again."""
        assert job.raw is not None and job.source is not None and job.state is not None
        container = job.container if job.container is not None else job.state
        depth = job.depth + 1
        warnings: list[str] = []
        names: set[str] = set()
        for number, attachment in enumerate(document.attachments, start=1):
            path, stem = _inner_name(attachment.name, number=number, numbered=document.stated_format != "ZIP archive")
            if depth > _MOST_DEEP or path in names:
                warnings.append(f"attachment {path!r} was not read: it is nested too deeply or there twice")
                continue
            names.add(path)
            place = f"{job.raw.path}/{path}"
            before = known.get(place)
            name = before.document if before is not None else f"{job.raw.id}/{stem}"
            if self.taken.get(name, f"{job.source.name}/{place}") != f"{job.source.name}/{place}":
                name = f"{job.raw.id}/{path}"
            raw = replace(
                _inside(job.raw, path=place, document=name, data=attachment.data), unpack=self.config.index.archives
            )
            seen.add(place)
            begun = self._begin(raw, source=job.source, before=before, inner=inner, seen=seen, container=container)
            if begun.report is None:
                begun = replace(begun, container=container, depth=depth)
                report = self._take_in(begun, known=known, inner=inner, seen=seen)
            else:
                report = begun.report
            self.reports.append(report)
            if report.status == "skipped":
                warnings.append(f"attachment {path!r} was not read: {report.reason}")
        return warnings

    def _entry(self, document: Document, *, state: FileState) -> tuple[IndexEntry, FileReport]:
        from .chunking import chunk

        chunks = tuple(chunk(document))
        if own := document.metadata.get("declared_id", "").strip():
            self.declared.add((document.source, own))
        self.passages += len(chunks)
        report = FileReport(source=document.source, path=document.path, status="indexed", document=document.id)
        report = _of_document(report, document, passages=len(chunks))
        return IndexEntry(document=document, chunks=chunks, state=state), report

    def _failed(
        self, raw: RawDocument, *, reason: str, state: FileState | None = None, before: FileState | None = None
    ) -> FileReport:
        """`before` is what was known of the file: where that was a document, it goes, and the reason says so."""
        if state is not None:
            if before is not None and before.document != state.document:
                self.index.remove([before.document])
            failed = FileState(
                source=state.source,
                path=state.path,
                document=state.document,
                content_hash=state.content_hash,
                metadata_hash=state.metadata_hash,
                error=reason,
            )
            self.index.record_failure(failed)
        if before is not None and before.error is None:
            reason = f"{reason}; the version indexed before has been taken out"
        return FileReport(source=raw.source, path=raw.path, status="failed", document=raw.id, reason=reason)


def _open_live(config: Config, functions: Sequence[PythonSource]) -> tuple[Live | None, LiveRun | None]:
    """The live sources and their use outside of any run; nothing where there are none. Raises ConfigError."""
    if not any(source.live for source in config.sources):
        return None, None
    from .live import Live, open_sources, refuse_clashes

    check_egress(config.sources, quarantined=config.security.quarantine)
    refuse_clashes(config.sources)
    live = Live(open_sources(config.sources, functions), limits=_limits(config.index))
    return live, live.run()


def _items(
    source: SourceConfig, config: Config, known: Mapping[str, str]
) -> Iterator[RawDocument | SkippedFile | Unreachable]:
    if source.kind == "site":
        from .sources import site

        with Worker(limits=_limits(config.index), target="citehound.parsing.webpage:read_page") as worker:
            yield from site.documents(
                source, config.root, known, read=lambda raw: worker.read(raw, language=source.language)
            )
        return
    from .sources.files import documents

    yield from documents(source, config.root, known)


def _count_files(folder: Path) -> int:
    """How many files there are at most; for the progress bar only."""
    return sum(len(files) for _, _, files in os.walk(folder))


def _metadata_hash(raw: RawDocument, *, language: str | None) -> str:
    """Two hashes with a slash between them: of what parsing depends on, and of what is only put beside the text."""
    parts = ([PIPELINE, raw.listed, raw.unpack], [dict(raw.metadata), dict(raw.names), language])
    return "/".join(
        hashlib.sha256(json.dumps(part, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest() for part in parts
    )


_OWN_ONLY = frozenset(
    ["title", "version", "supersedes", "superseded_by", "amends", "language", "lang", "pages", "words"]
)
"""Metadata of a file that says nothing of the files inside it."""
_NEEDS_OCR = "needs OCR"
_MOST_DEEP = 4
"""How deeply files may stand in files."""
_AHEAD_BYTES = 64_000_000
"""Of files that wait to be read or taken in."""


def _inside(raw: RawDocument, *, path: str, document: str, data: bytes) -> RawDocument:
    """A file that came inside another one: with its metadata, as far as it holds for both."""
    metadata = {key: value for key, value in raw.metadata.items() if key.lower() not in _OWN_ONLY}
    return RawDocument(
        id=document,
        source=raw.source,
        path=path,
        data=data,
        metadata={**metadata, "inside": raw.id},
        names=raw.names,
        unpack=raw.unpack,
    )


def _inner_name(name: str, *, number: int, numbered: bool) -> tuple[str, str]:
    """Path below its container of a file inside it, and the same without extension."""
    from .sources.files import without_extension

    clean = "".join(c for c in unicodedata.normalize("NFC", name) if unicodedata.category(c) not in ("Cc", "Cs", "Cf"))
    if numbered:
        clean = f"attachment-{number}-{clean.replace('/', '_').strip() or 'file'}"
    return clean, without_extension(clean)


def _inner_files(known: Mapping[str, FileState]) -> dict[str, list[FileState]]:
    """By path of a file: what is known of the files that came inside it."""
    found: dict[str, list[FileState]] = {}
    for path, state in known.items():
        if "/" in state.content_hash:
            at = path.find("/")
            while at >= 0:
                found.setdefault(path[:at], []).append(state)
                at = path.find("/", at + 1)
    return found


def _of_document(report: FileReport, document: Document, *, passages: int) -> FileReport:
    return replace(
        report,
        warnings=(*document.warnings, *report.warnings),
        chars=len(document.text),
        sections=len(document.sections),
        passages=passages,
        language=document.language,
        pages=len(document.pages),
        tables=document.stated.tables if document.stated is not None else 0,
        format=document.stated_format,
    )


def _keep_left_out(state: Path, reports: Sequence[FileReport]) -> None:
    """Writes down which files were skipped, and thereby when; a file that cannot be written is done without."""
    rows = [[r.source, r.path, r.reason] for r in reports if r.status == "skipped"]
    temporary = state / f"{LEFT_OUT}.tmp"
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(rows), encoding="utf-8")
        temporary.replace(state / LEFT_OUT)


def _left_out(state: Path) -> tuple[FileReport, ...]:
    """The files that the last `sync` skipped, with the reasons; none where that is not known."""
    try:
        rows = cast("list[list[str]]", json.loads((state / LEFT_OUT).read_text("utf-8")))
        return tuple(FileReport(source=s, path=p, status="skipped", reason=why) for s, p, why in rows)
    except (OSError, ValueError, TypeError):
        return ()


def _with_figures(report: FileReport, index: Index) -> FileReport:
    """Of an unchanged file, from what is stored."""
    if report.status != "unchanged" or report.document is None:
        return report
    document = index.document(report.document, principal=OWNER)
    if document is None:
        return report
    return _of_document(report, document, passages=len(index.chunks(report.document, principal=OWNER)))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:400]


def _limits(settings: IndexConfig) -> Limits:
    return Limits(seconds=settings.file_seconds, ocr_seconds=settings.ocr_seconds, memory=settings.file_memory_mb << 20)


def read_one(file: Path, config: Config | None) -> Document:
    """One file as `sync` would read it, with its metadata where it stands in a source; nothing is indexed.

    Raises UsageError for a file that is not there or not read, with the reason.
    """
    from .sources.files import documents, one

    try:
        real = file.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{str(file)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    settings = config.index if config is not None else IndexConfig()
    found: RawDocument | None = None
    language = settings.language
    for source in config.sources if config is not None else ():
        root = source.path if source.path.is_absolute() else (config.root if config else Path()) / source.path
        if source.kind == "files" and real.is_relative_to(root.resolve()):
            path = unicodedata.normalize("NFC", real.relative_to(root.resolve()).as_posix())
            for item in documents(source, config.root if config else Path(), {}, only=path):
                if isinstance(item, RawDocument):
                    found = item
                    language = source.language or language
                elif item.path == path:
                    raise UsageError(f"{str(file)!r} is not read: {item.reason}")
            if found is not None:
                break
    if found is None:
        item = one(real)
        if isinstance(item, SkippedFile):
            raise UsageError(f"{str(file)!r} is not read: {item.reason}")
        found = item
    with Workers(1, limits=_limits(settings)) as workers:
        raw = replace(found, unpack=settings.archives, ocr=settings.ocr and ocr_available())
        try:
            return workers.read(raw, language=language).result()
        except ParseError as error:
            raise UsageError(f"{str(file)!r} is not read: {_one_line(str(error))}") from None


def _source_of(document: str) -> str:
    return document.partition("/")[0]


# -- reading


def page_end(text: str, begin: int, last: int, limit: int) -> int:
    """Where a page that starts at `begin` ends: after a paragraph, line, sentence or word in its second half."""
    hard = begin + limit
    if hard >= last:
        return last
    floor = begin + limit // 2
    for mark in ("\n\n", "\n", ". ", "。", " "):
        at = text.rfind(mark, floor, hard)
        if at >= 0:
            return min(at + len(mark), hard)
    return hard


def _enclosing(document: Document, start: int, end: int) -> Section | None:
    """The innermost section that holds all of a page; None for a page that starts the document or spans sections."""
    best: Section | None = None
    for section in document.sections:
        if section.start <= start and end <= section.end and start < section.end:
            best = section
    if best is not None and start == 0 and best.start == 0 and best.end == len(document.text):
        return None
    return best


def _outline(document: Document, within: Section | None) -> tuple[OutlineEntry, ...]:
    """The sections, or some of them where they are many."""
    sections = [
        OutlineEntry(section=s.id, title=s.title, level=s.level, start=s.start, end=s.end)
        for s in document.sections
        if within is None or (s.id != within.id and within.start <= s.start and s.end <= within.end)
    ]
    return thinned(sections, OUTLINE)


_SECTION_WORD = re.compile(
    r"^(?:§+|#+|sections?|sect?\.?|clauses?|paragraphs?|para\.?|articles?|art\.?|chapters?|abschnitt|ziffer|punkt|kapitel"
    r"|artikel|absatz|paragraphe?|seccion|sezione|secao|clausula)\s*(?=[\w(])",
)


def find_section(document: Document, name: str) -> Section:
    """The section that `name` means: its id, number ('7.2', '§7.2', 'section 7.2'), title, slug or unique suffix.

    Raises UnknownSection with the candidates when several go by it, else with the nearest ones.
    """
    exact = document.section(name.strip())
    if exact is not None:
        return exact
    wanted = _plain(name)
    bare = _SECTION_WORD.sub("", wanted).strip(" .:()") or wanted
    forms = dict.fromkeys([wanted, bare, _slug(wanted), _slug(bare)])
    tests: tuple[Callable[[Section], set[str]], ...] = (
        lambda s: {_plain(s.id)},
        lambda s: {_plain(s.number or "").strip(" .:()")},
        lambda s: {_plain(s.title), _plain(f"{s.number or ''} {s.title}"), _plain(f"{s.number or ''}. {s.title}")},
        lambda s: {_slug(_plain(s.title)), _slug(_plain(f"{s.number or ''} {s.title}"))},
        lambda s: _suffixes(_plain(s.id)),
    )
    for test in tests:
        found = [s for s in document.sections if any(form and form in test(s) for form in forms)]
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(repr(s.id) for s in found[:6])
            raise UnknownSection(f"{document.id!r} has several sections {name!r}: {shown}; use one of these ids")
    inside = [s for s in document.sections if len(bare) >= 4 and bare in _plain(s.title)]
    if len(inside) == 1:
        return inside[0]
    if not document.sections:
        raise UnknownSection(f"{document.id!r} has no sections; read it without one")
    raise UnknownSection(f"{document.id!r} has no section {name!r}; nearest: {_near_sections(document, bare, inside)}")


def _near_sections(document: Document, bare: str, inside: Sequence[Section]) -> str:
    by_name: dict[str, Section] = {}
    for s in document.sections:
        by_name.setdefault(_plain(s.id), s)
        by_name.setdefault(_plain(s.title), s)
    close = [by_name[n] for n in difflib.get_close_matches(bare, list(by_name), n=4, cutoff=0.4)]
    found = list(dict.fromkeys([*(s.id for s in inside), *(s.id for s in close)]))[:5]
    return ", ".join(repr(s) for s in found or [s.id for s in document.sections[:5]])


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKD", text).casefold()
    return " ".join("".join(c for c in text if not unicodedata.combining(c)).split())


def _slug(text: str) -> str:
    return re.sub(r"[^\w]+", "-", text).strip("-")


def _suffixes(section_id: str) -> set[str]:
    parts = section_id.split("/")
    return {"/".join(parts[at:]) for at in range(len(parts))}


# -- finding


@lru_cache(maxsize=8192)
def _search_form(character: str) -> str:
    if character.isspace() or character == "|":
        return " "
    if character in "\u2018\u2019\u201a\u201b\u2039\u203a\u02bc\u00b4`":
        return "'"
    if character in "\u201c\u201d\u201e\u201f\u00ab\u00bb\u300c\u300d\u300e\u300f":
        return '"'
    if character in "\u2010\u2011\u2012\u2013\u2014\u2015\u2212":
        return "-"
    if unicodedata.category(character) == "Cf":
        return ""
    return "".join(c for c in unicodedata.normalize("NFKD", character).casefold() if not "\u0300" <= c <= "\u036f")


@dataclass(frozen=True, kw_only=True)
class _FoldedText:
    """A text as a person searches it; folded character `i` came from original character `origin[i]`."""

    text: str
    origin: Sequence[int]
    size: int

    @classmethod
    def of(cls, text: str) -> _FoldedText:
        out: list[str] = []
        origin: list[int] = []
        blank = True
        for at, character in enumerate(text):
            for form in _search_form(character):
                if form == " ":
                    if blank:
                        continue
                    blank = True
                else:
                    blank = False
                out.append(form)
                origin.append(at)
        return cls(text="".join(out), origin=origin, size=len(text))

    def places(self, phrase: str) -> list[tuple[int, int]]:
        """Original spans of a phrase: where it begins a word; if it does nowhere, where it stands inside words."""
        wanted = _FoldedText.of(phrase).text.strip()
        if not wanted:
            return []
        everywhere: list[tuple[int, int]] = []
        at_words: list[tuple[int, int]] = []
        at = self.text.find(wanted)
        while at >= 0:
            end = at + len(wanted)
            span = (self.origin[at], self.origin[end - 1] + 1)
            everywhere.append(span)
            before = self.text[at - 1] if at else " "
            if not (_joins(before) and _joins(wanted[0])):
                at_words.append(span)
            at = self.text.find(wanted, end)
        return at_words or everywhere


def _joins(character: str) -> bool:
    """True for letters and digits of scripts that set words apart by spaces."""
    spaceless = "\u0e00" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff"
    spaceless = spaceless or "\u3040" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7af"
    return character.isalnum() and not spaceless


def _near_each_other(document: Document, phrase: str, *, language: str | None) -> list[tuple[int, int]]:
    """Spans of at most a few lines that hold all words of the phrase in some inflection."""
    from .index.analysis import Matcher, query_terms

    terms = [term for term in query_terms(phrase, [language or ""]) if term.stems]
    if not terms or len(terms) > 12:
        return []
    number = {form: at for at, term in enumerate(terms) for form in (*term.stems, term.exact)}
    last: list[int | None] = [None] * len(terms)
    found: list[tuple[int, int]] = []
    for start, end, _, at in Matcher(number, language).places(document.text):
        last[at] = start
        begin = min((place for place in last if place is not None), default=start)
        if None not in last and end - begin <= _NEAR:
            found.append((begin, end))
            last = [None] * len(terms)
    return found


def _windows(document: Document, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Paragraphs (of long ones, sentences) around places, within one section each; overlapping ones are one."""
    text = document.text
    bounds = sorted({0, len(text), *(s.start for s in document.sections)})
    windows: list[tuple[int, int]] = []
    for start, end in places:
        if windows and end <= windows[-1][1]:
            continue
        at = bisect_right(bounds, start)
        low = bounds[at - 1]
        high = max(end, bounds[at] if at < len(bounds) else len(text))
        begin = max(low, text.rfind("\n\n", low, start) + 2) if text.rfind("\n\n", low, start) >= 0 else low
        close = text.find("\n\n", end, high)
        close = high if close < 0 else close
        if start - begin > _WINDOW:
            begin = _after_sentence(text, max(begin, start - _WINDOW), start)
        if close - end > _WINDOW:
            close = _sentence_end(text, end, min(close, end + _WINDOW))
        while close > end and text[close - 1].isspace():
            close -= 1
        if windows and begin < windows[-1][1]:
            if document.section_at(windows[-1][0]) == document.section_at(start):
                windows[-1] = (windows[-1][0], max(close, windows[-1][1]))
                continue
            begin = windows[-1][1]
        windows.append((begin, close))
    return windows


def _after_sentence(text: str, low: int, at: int) -> int:
    """The first beginning of a line or sentence after `low`, before `at`."""
    ends = [m.end() for m in re.finditer(r"\n|[.!?]\s|[。！？]", text[low:at])]
    return low + ends[0] if ends else low


def _sentence_end(text: str, at: int, high: int) -> int:
    """The last end of a line or sentence between `at` and `high`."""
    ends = [m.start() + 1 for m in re.finditer(r"\n|[.!?](?=\s)|[。！？]", text[at:high])]
    return at + ends[-1] if ends else high

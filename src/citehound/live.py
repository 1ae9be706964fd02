"""What live sources return, as documents: searched when asked, kept for as long as somebody may read or cite it.

It asks the sources of `sources/python.py` and `sources/web.py` and knows neither model nor index. A `Live` belongs to a
corpus and keeps a bounded number of texts; a `LiveRun` is one question's use of it: what was returned in a run stays as
it was until the run ends, only what a search of the run (or the question) names may be fetched, and fees are paid from
the run's meter.
"""

from __future__ import annotations

import asyncio
import copy
import difflib
import hashlib
import re
import threading
import unicodedata
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, TypeVar

from .access import UNCONFIGURED, Access, Principal
from .budget import Meter
from .chunking import chunk
from .config import SourceConfig
from .documents import (
    RESERVED,
    Chunk,
    Document,
    DocumentInfo,
    DocumentList,
    Metadata,
    RawDocument,
    SearchHit,
    SearchResult,
)
from .errors import ConfigError, EgressRefused, ParseError, SourceFailed, UnknownDocument
from .index import Lexicon
from .index.analysis import Matcher, analyse, query_terms
from .index.inside import Contents, rank
from .index.links import content_words
from .index.versions import CURRENT, Currency, Named, currencies
from .parsing import parse
from .parsing.blocks import normalise
from .parsing.language import detect
from .parsing.worker import Limits, Worker
from .security import visible
from .sources import Found, LiveSource, Results
from .sources.files import without_extension
from .sources.python import PythonSource
from .sources.web import ProviderSearch, WebSource

_MOST_KEPT = 400
"""Texts that are kept between runs."""
_MOST_CHARS = 40_000_000
"""Of their text all together."""
_MOST_TEXT = 2_000_000
"""Characters of one text; what is longer is cut, and says so."""
_MOST_NAME = 200
_SPARE = 2.0
"""Seconds beyond its time after which a call is given up, whatever its loop does."""
_URL = re.compile(r"https?://[^\s<>\"'\\^`{|}]+", re.IGNORECASE)
_T = TypeVar("_T")


class Kept:
    """A text that a live source returned, as a document."""

    def __init__(self, document: Document, *, own: bool, place: str) -> None:
        self.document = document
        self.own = own
        self.place = place
        """Its name as the source gives it, which rules on paths mean."""

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        return chunk(self.document)

    @cached_property
    def stems(self) -> Counter[str]:
        """In how many of its passages each stem, or exact word, stands."""
        code = self.document.language
        counted: Counter[str] = Counter()
        for part in self.chunks:
            terms = analyse(f"{part.context}\n{part.text}", code)
            counted.update({*terms.stems, *terms.extras})
        return counted

    @cached_property
    def contents(self) -> Contents:
        passages = [(c.context.removeprefix(self.document.title), c.text) for c in self.chunks]
        return Contents.of(passages, language=self.document.language or "en")

    def best(self, query: str) -> list[Chunk]:
        """Its passages, the one that fits a query best first."""
        if len(self.chunks) < 2:
            return list(self.chunks)
        return [self.chunks[r.ordinal] for r in rank(self.contents, query)]


@dataclass(frozen=True, kw_only=True)
class _Page:
    """A page that was found, and not fetched yet."""

    document: str
    source: str
    url: str
    title: str
    snippet: str
    metadata: Metadata
    place: str


def open_sources(
    configured: Sequence[SourceConfig], functions: Sequence[PythonSource] = ()
) -> Mapping[str, PythonSource | WebSource]:
    """The live ones of the sources, by name; `functions` are those given in Python. Raises ConfigError."""
    given = {f.config.name: f for f in functions}
    opened: dict[str, PythonSource | WebSource] = {}
    for config in configured:
        if config.kind == "web":
            opened[config.name] = WebSource.of(config)
        elif config.kind == "python":
            opened[config.name] = given[config.name] if config.name in given else PythonSource.load(config)
    return opened


@dataclass(kw_only=True)
class _Counts:
    """Words of what is kept for one principal."""

    passages: int = 0
    stems: Counter[str] = field(default_factory=Counter[str])
    languages: Counter[str] = field(default_factory=Counter[str])


class Live:
    """The live sources of one corpus, and what they returned lately. Close it: it has a thread and a process."""

    def __init__(self, sources: Mapping[str, LiveSource], *, limits: Limits | None = None) -> None:
        self.sources = sources
        self.access: Callable[[], Access] = lambda: UNCONFIGURED
        """Says who may see what; asked each time."""
        self._swept = UNCONFIGURED
        self._kept: OrderedDict[tuple[Principal, str], Kept] = OrderedDict()
        self._chars = 0
        self._counts: dict[Principal, _Counts] = {}
        self._mutex = threading.RLock()
        self._runner = _Runner()
        self._worker = Worker(limits=limits)

    def run(self, question: str = "", *, meter: Meter | None = None, provider: ProviderSearch | None = None) -> LiveRun:
        """One question's use of the sources; `provider` is the web search of its model's provider."""
        return LiveRun(self, question, meter, provider)

    def may_see(self, principal: Principal, document: str, place: str) -> bool:
        """Whether rules let somebody see a text; `place` is its name as the source gives it."""
        source = document.partition("/")[0]
        return principal.owner or principal.may_see(
            self.access().audience(document=document, source=source, path=place)
        )

    def _sweep(self) -> None:
        """Lets go what may not be seen any more by whom it is kept for."""
        access = self.access()
        if access is self._swept:
            return
        self._swept = access
        for (principal, document), kept in list(self._kept.items()):
            if not self.may_see(principal, document, kept.place):
                del self._kept[principal, document]
                self._chars -= len(kept.document.text)
                self._count(principal, kept, -1)

    def keep(self, principal: Principal, kept: Kept) -> None:
        """Puts a text among those that later runs can read, and lets the oldest go."""
        key = (principal, kept.document.id)
        with self._mutex:
            before = self._kept.pop(key, None)
            self._chars += len(kept.document.text) - (len(before.document.text) if before else 0)
            self._kept[key] = kept
            if before is not None:
                self._count(principal, before, -1)
            self._count(principal, kept, 1)
            while len(self._kept) > 1 and (len(self._kept) > _MOST_KEPT or self._chars > _MOST_CHARS):
                (whose, _), gone = self._kept.popitem(last=False)
                self._chars -= len(gone.document.text)
                self._count(whose, gone, -1)

    def _count(self, principal: Principal, kept: Kept, by: int) -> None:
        counts = self._counts.setdefault(principal, _Counts())
        for stem, passages in kept.stems.items():
            counts.stems[stem] += by * passages
        counts.passages += by * len(kept.chunks)
        counts.languages[kept.document.language or ""] += by

    def passages(self, *, principal: Principal) -> int:
        """Of all that is kept for somebody."""
        with self._mutex:
            self._sweep()
            return self._counts.get(principal, _Counts()).passages

    def frequency(self, term: str, *, principal: Principal) -> int:
        """In how many passages of what is kept a term stands; of several words, the rarest counts."""
        with self._mutex:
            self._sweep()
            held = self._counts.get(principal, _Counts())
            languages = [code for code, count in held.languages.items() if count > 0]
            counts = [
                max((held.stems[form] for form in {*t.stems, t.exact}), default=0)
                for t in query_terms(term, languages or [""])
            ]
        return min(counts, default=0)

    def lexicon(self, inner: Lexicon, *, principal: Principal) -> Lexicon:
        """A lexicon that also counts what the live sources have returned so far: more of them is not known."""
        return _LiveLexicon(inner=inner, live=self, principal=principal)

    def get(self, principal: Principal, document: str) -> Kept | None:
        with self._mutex:
            self._sweep()
            found = self._kept.get((principal, document))
            if found is not None:
                self._kept.move_to_end((principal, document))
            return found

    def all(self, principal: Principal) -> list[Kept]:
        with self._mutex:
            self._sweep()
            return [kept for (who, _), kept in self._kept.items() if who == principal]

    def wait(self, work: Coroutine[Any, Any, _T], *, seconds: float) -> _T:
        """Runs network code to its end, from a thread that may wait."""
        return self._runner.wait(work, seconds=seconds)

    def parse(self, raw: RawDocument, *, language: str | None) -> Document:
        """Reads a file of others in a process of its own. Raises ParseError."""
        return self._worker.read(raw, language=language)

    def close(self) -> None:
        self._runner.close()
        self._worker.close()


@dataclass(frozen=True, kw_only=True)
class _LiveLexicon:
    inner: Lexicon
    live: Live
    principal: Principal

    @property
    def passages(self) -> int:
        return self.inner.passages + self.live.passages(principal=self.principal)

    def frequency(self, term: str) -> int:
        return self.inner.frequency(term) + self.live.frequency(term, principal=self.principal)

    def values(self, source: str) -> Mapping[str, tuple[str, ...]]:
        live = self.live.sources.get(source)
        if live is None:
            return self.inner.values(source)
        return {key: live.values(key) for key in live.config.filters if live.values(key)}

    def titles(self) -> Sequence[tuple[str, str]]:
        return self.inner.titles()


class LiveRun:
    """One question's use of the live sources. Safe under threads."""

    def __init__(self, live: Live, question: str, meter: Meter | None, provider: ProviderSearch | None = None) -> None:
        self._live = live
        self._sources = live.sources
        self._provider = provider
        self._meter = meter
        self._mutex = threading.RLock()
        self._kept: dict[tuple[Principal, str], Kept] = {}
        self._pages: dict[tuple[Principal, str], _Page] = {}
        self._given = tuple(u.rstrip(".,;:!?)]}»”’") for u in dict.fromkeys(_URL.findall(question)))
        self._fetches: dict[str, int] = {}

    def among(self, names: Collection[str]) -> LiveRun:
        """The same use of fewer sources: what is found and fetched by one counts for the other."""
        if all(name in names for name in self._sources):
            return self
        made = copy.copy(self)
        made._sources = {name: source for name, source in self._sources.items() if name in names}
        return made

    @property
    def fees(self) -> float:
        """Dollars that the dearest search costs."""
        return max((s.config.fee for s in self._sources.values()), default=0.0)

    def source(self, name: str | None) -> LiveSource | None:
        return None if name is None else self._sources.get(name)

    def owner(self, document: str) -> LiveSource | None:
        """The live source whose document this would be, by its id."""
        return next((s for name, s in self._sources.items() if document.startswith(f"{name}/")), None)

    # -- searching

    def search(
        self,
        name: str,
        query: str,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 6,
        per_document: int = 2,
    ) -> SearchResult:
        """Asks the source, unless `documents` says where to look; its order stays. Raises SourceFailed, BudgetExceeded.

        A filter or a value that is not known finds nothing; what the source returns against a filter is left out.
        """
        source = self._sources[name]
        if isinstance(source, WebSource) and source.config.engine == "provider":
            source = replace(source, provider=self._provider)
        if documents is not None:
            kept = [k_ for d in documents if (k_ := self.get(d, principal=principal)) is not None]
            return self._hits(kept, query, k=k, per_document=per_document, only_current=only_current, notes=())
        wanted: dict[str, str] = {}
        for key, value in (filters or {}).items():
            meant, note = _known_value(source, key, value)
            if meant is None:
                return SearchResult(hits=(), notes=(note,))
            wanted[key] = meant
        with self._paid(source.config.fee):
            results = self._live.wait(source.search(query, filters=wanted, k=k), seconds=self._seconds(source))
        notes = list(results.notes)
        results = self._with_given(source, results, principal)
        found: list[Kept | _Page] = []
        against = 0
        texts: set[str] = set()
        for one in results.found:
            metadata = _metadata(one.metadata)
            if any(not _fits(metadata, key, value) for key, value in wanted.items()):
                against += 1
                continue
            place = _name(one.name, suffix="")
            if not self._live.may_see(principal, f"{name}/{without_extension(place)}", place):
                continue
            if one.text is None:
                found.append(self._point(source, one, metadata, principal=principal))
                continue
            if " ".join(one.text.split()) in texts:
                continue
            texts.add(" ".join(one.text.split()))
            found.append(self._take_in(source, one, metadata, principal=principal))
        if against:
            notes.append(f"{against} results that do not fit the filters were left out")
        return self._hits(found, query, k=k, per_document=per_document, only_current=only_current, notes=tuple(notes))

    def _seconds(self, source: LiveSource) -> float:
        """How long a call may take: its own time, and what is left of the run's."""
        own = source.config.timeout + _SPARE
        left = None if self._meter is None else self._meter.seconds_left()
        return own if left is None else min(own, left)

    @contextmanager
    def _paid(self, fee: float) -> Generator[None]:
        """Sets the fee aside, and spends it whatever comes of the search: it was asked."""
        if not fee or self._meter is None:
            yield
            return
        reservation = self._meter.reserve(fee)
        try:
            yield
        finally:
            self._meter.settle(reservation, dollars=fee, calls=0)

    def _with_given(self, source: LiveSource, results: Results, principal: Principal) -> Results:
        """Pages that the question itself names come first, once."""
        if source.config.kind != "web" or not self._given:
            return results
        from .egress import place_of
        from .sources.web import name_of

        named: list[Found] = []
        for url in self._given:
            try:
                place = place_of(source.check(url))
            except EgressRefused:
                continue
            if all(one.url != place.url for one in results.found):
                title = f"{place.host} (named in the question)"
                named.append(Found(name=name_of(place), own=True, title=title, url=place.url))
        return replace(results, found=(*named, *results.found))

    def _point(self, source: LiveSource, one: Found, metadata: Metadata, *, principal: Principal) -> _Page:
        name = _name(one.name, suffix="")
        page = _Page(
            document=f"{source.config.name}/{name}",
            source=source.config.name,
            url=one.url or "",
            title=_line(one.title, 200) or name,
            snippet=_line(one.snippet, 300),
            metadata=metadata,
            place=name,
        )
        with self._mutex:
            return self._pages.setdefault((principal, page.document), page)

    def _take_in(self, source: LiveSource, one: Found, metadata: Metadata, *, principal: Principal) -> Kept:
        """The document that a result becomes; one that was taken in before stays the same."""
        assert one.text is not None
        text = one.text
        warnings: tuple[str, ...] = ()
        if len(text) > _MOST_TEXT:
            text, warnings = text[:_MOST_TEXT], (f"cut to its first {_MOST_TEXT} characters",)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        name = _name(one.name, suffix="") or digest[:12]
        document = _document(source.config, one, text, name=name, metadata=metadata)
        document = replace(document, warnings=(*document.warnings, *warnings))
        with self._mutex:
            kept = self._named(principal, document, own=one.own, digest=digest, place=name)
            self._kept[principal, kept.document.id] = kept
        self._live.keep(principal, kept)
        return kept

    def _named(self, principal: Principal, document: Document, *, own: bool, digest: str, place: str) -> Kept:
        """The text under its name; under a name of its own where another text has that: parts of a whole share names.

        A text with a name of its own that another run has left is a new version of it.
        """
        mine = self._kept.get((principal, document.id))
        before = mine or self._live.get(principal, document.id)
        if before is not None and before.document.text == document.text:
            same = before.document.metadata == document.metadata
            return before if same else Kept(document, own=own, place=place)
        if before is None or (own and mine is None):
            return Kept(document, own=own, place=place)
        other = _renamed(document, f"{document.path}~{digest[:8]}")
        return self._kept.get((principal, other.id)) or Kept(other, own=own, place=place)

    def _hits(
        self,
        found: Sequence[Kept | _Page],
        query: str,
        *,
        k: int,
        per_document: int,
        only_current: bool,
        notes: tuple[str, ...],
    ) -> SearchResult:
        """Short hits in the source's order: the best passage of each text, then further ones."""
        state = self._currencies([one.document for one in found if isinstance(one, Kept)])
        first: list[SearchHit] = []
        further: list[SearchHit] = []
        hidden = 0
        for place, one in enumerate(found, start=1):
            if isinstance(one, _Page):
                first.append(_page_hit(one, score=round(1 / place, 4)))
                continue
            current = state.get(one.document.id, CURRENT)
            if only_current and not current.current:
                hidden += 1
                continue
            for number, part in enumerate(one.best(query)[: max(1, per_document)]):
                hit = _text_hit(one, part, query, current=current, score=round(1 / (place + 50 * number), 4))
                (first if number == 0 else further).append(hit)
        return SearchResult(hits=tuple([*first, *further][:k]), hidden_superseded=hidden, notes=notes)

    # -- reading

    def get(self, document: str, *, principal: Principal) -> Kept | None:
        """A text by its id: this run's, else what is left of earlier ones."""
        with self._mutex:
            mine = self._kept.get((principal, document))
        if mine is None:
            return self._live.get(principal, document)
        return mine if self._live.may_see(principal, document, mine.place) else None

    def _mine(self, principal: Principal) -> list[Kept]:
        """What somebody has got in this run, and may see."""
        with self._mutex:
            kept = [kept for (who, _), kept in self._kept.items() if who == principal]
        return [k for k in kept if self._live.may_see(principal, k.document.id, k.place)]

    def resolve(self, name: str, *, principal: Principal) -> str | None:
        """The id of a text or page that goes by an id, a URL or a suffix of whole parts; None when there is none.

        Raises UnknownDocument when several go by it, and when the id is one of a live source that has not returned it.
        """
        name = unicodedata.normalize("NFC", name.strip())
        with self._mutex:
            ids = {kept.document.id for kept in self._mine(principal)}
            ids |= {
                page.document
                for (who, _), page in self._pages.items()
                if who == principal and self._live.may_see(principal, page.document, page.place)
            }
            ids |= {kept.document.id for kept in self._live.all(principal)}
            for url in self._given:
                self._allow(url, principal, ids)
            if name in ids:
                return name
            if _URL.fullmatch(name):
                bare = name.split("://", 1)[1].rstrip("/")
                found = [d for d in ids if d.split("/", 1)[1] in (bare, name.rstrip("/"))]
                if not found:
                    raise UnknownDocument(
                        f"{name!r} cannot be read: only pages that a search found or the question names are fetched"
                    )
                return found[0]
            found = sorted(d for d in ids if d.endswith("/" + name))
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(map(repr, found[:5]))
            raise UnknownDocument(f"{name!r} could be any of {len(found)} documents: {shown}; use a full id")
        owner = self.owner(name)
        if owner is not None:
            near = difflib.get_close_matches(name, sorted(ids), n=3, cutoff=0.8)
            hint = f"nearest: {', '.join(map(repr, near))}" if near else "search it for the ids of what there is"
            raise UnknownDocument(f"source {owner.config.name!r} has returned no {name!r}; {hint}")
        return None

    def _allow(self, url: str, principal: Principal, ids: set[str]) -> None:
        """Lets a page that the question names be fetched, if its domain may be."""
        for source in self._sources.values():
            if source.config.kind == "web":
                found = self._with_given(source, Results(found=()), principal).found
                for one in found:
                    page = self._point(source, one, {"url": one.url or ""}, principal=principal)
                    if self._live.may_see(principal, page.document, page.place):
                        ids.add(page.document)

    def document(self, document: str, *, principal: Principal) -> Document:
        """Raises UnknownDocument, also for a page that was found and not read."""
        kept = self.get(document, principal=principal)
        if kept is None:
            raise UnknownDocument(f"{document!r} was found and not read; read_document fetches it")
        return kept.document

    def info(self, document: str, *, principal: Principal) -> DocumentInfo:
        """Raises UnknownDocument."""
        whole = self.document(document, principal=principal)
        with self._mutex:
            peers = [k.document for k in self._mine(principal) if k.document.source == whole.source]
        current = self._currencies([*peers, whole]).get(document, CURRENT)
        return _info(whole, current)

    def chunks(self, document: str, *, principal: Principal) -> Sequence[Chunk]:
        kept = self.get(document, principal=principal)
        return () if kept is None else kept.chunks

    def fetch(self, document: str, *, principal: Principal) -> None:
        """Makes sure that a page's text is there, fetching it once in a run. Raises SourceFailed."""
        with self._mutex:
            page = self._pages.get((principal, document))
            if page is None or (principal, document) in self._kept:
                return
            if not self._live.may_see(principal, document, page.place):
                return
            source = self._sources[page.source]
            made = self._fetches.get(page.source, 0)
            if made >= source.config.max_fetches:
                raise SourceFailed(
                    f"{page.url!r} is not fetched: a question may fetch {source.config.max_fetches} pages of "
                    f"{page.source!r}; answer from what was read"
                )
            self._fetches[page.source] = made + 1
        path = document.removeprefix(f"{page.source}/")
        raw = self._live.wait(source.fetch(page.url, document=document, path=path), seconds=self._seconds(source))
        try:
            read = self._live.parse(raw, language=source.config.language)
        except ParseError as error:
            raise SourceFailed(f"{page.url!r} was fetched and cannot be read ({error})") from None
        read = replace(read, metadata=_metadata({**read.metadata, **page.metadata, **raw.metadata}), path=path)
        kept = Kept(replace(read, attachments=()), own=True, place=page.place)
        with self._mutex:
            self._kept[principal, document] = kept
        self._live.keep(principal, kept)

    def settled(self, hit: SearchHit, query: str, *, principal: Principal) -> SearchHit:
        """The hit with the span of its best passage: a page is fetched first. Raises SourceFailed."""
        if hit.end > hit.start or self.owner(hit.document) is None:
            return hit
        self.fetch(hit.document, principal=principal)
        kept = self.get(hit.document, principal=principal)
        if kept is None or not kept.chunks:
            return hit
        part = kept.best(query)[0]
        return _text_hit(kept, part, query, current=CURRENT, score=hit.score)

    def list_documents(
        self,
        name: str,
        *,
        principal: Principal,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        start: int = 0,
        limit: int = 50,
    ) -> DocumentList:
        """What the source has returned in this run: what else it has is not known."""
        source = self._sources[name]
        for key, value in (filters or {}).items():
            meant, note = _known_value(source, key, value)
            if meant is None:
                return DocumentList(documents=(), total=0, notes=(note,))
        mine = [k.document for k in self._mine(principal) if k.document.source == name]
        state = self._currencies(mine)
        fitting = [d for d in mine if all(_fits(d.metadata, key, v, strict=True) for key, v in (filters or {}).items())]
        shown = [d for d in fitting if not only_current or state.get(d.id, CURRENT).current]
        infos = [_info(d, state.get(d.id, CURRENT)) for d in sorted(shown, key=lambda d: d.id)]
        return DocumentList(
            documents=tuple(infos[start : start + limit]),
            total=len(infos),
            hidden_superseded=len(fitting) - len(shown),
            notes=(f"{name!r} is searched live: only what its searches returned so far is listed",),
        )

    def _currencies(self, documents: Sequence[Document]) -> Mapping[str, Currency]:
        named = [Named(id=d.id, path=f"{d.source}/{d.path}", metadata=d.metadata) for d in documents]
        return currencies(named, today=date.today())


# Texts as documents -------------------------------------------------------------------------------------------------


def _document(config: SourceConfig, one: Found, text: str, *, name: str, metadata: Metadata) -> Document:
    """Markdown is read with its sections; any other text stays as it is."""
    title = _line(one.title, 200)
    if one.markdown:
        raw = RawDocument(
            id=f"{config.name}/{without_extension(name)}",
            source=config.name,
            path="text.md",
            data=text.encode("utf-8", "replace"),
            metadata=metadata,
            names=dict(config.metadata),
            listed=True,
        )
        try:
            read = parse(raw, language=config.language)
        except ParseError:
            read = None
        if read is not None:
            given = title or (read.title if read.title != "text" else "") or name
            return replace(read, path=without_extension(name), title=given, attachments=())
    plain = normalise(text)
    return Document(
        id=f"{config.name}/{without_extension(name)}",
        source=config.name,
        path=without_extension(name),
        title=title or name,
        text=plain,
        metadata=metadata,
        language=_language(metadata) or detect(plain) or config.language,
    )


def _renamed(document: Document, path: str) -> Document:
    return replace(document, id=f"{document.source}/{path}", path=path)


def _name(name: str, *, suffix: str) -> str:
    """A name as it may stand in an id: visible, on one line, without brackets, not too long."""
    text = unicodedata.normalize("NFC", " ".join(visible(name).replace("\\", "/").split()))
    text = text.replace("[", "(").replace("]", ")").strip("/")
    if len(text) > _MOST_NAME:
        text = f"{text[:_MOST_NAME]}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return text + suffix


def _metadata(metadata: Metadata) -> Metadata:
    """Without what only configuration may set."""
    return {visible(k): visible(v) for k, v in metadata.items() if k.lower() not in RESERVED and v}


def _language(metadata: Metadata) -> str | None:
    match = re.match(r"([a-zA-Z]{2})(?:[-_]|$)", (metadata.get("language") or metadata.get("lang") or "").strip())
    return match[1].lower() if match else None


def _line(text: str, most: int) -> str:
    return " ".join(visible(text).split())[:most]


def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _fits(metadata: Metadata, key: str, value: str, *, strict: bool = False) -> bool:
    """Whether a text may have this value: it says so, or (unless `strict`) it says nothing of it."""
    stated = next((v for k, v in metadata.items() if k.casefold() == key.casefold()), None)
    if stated is None:
        return not strict
    return _fold(value) in (_fold(stated), *(_fold(part) for part in stated.split(", ")))


def _known_value(source: LiveSource, key: str, value: str) -> tuple[str | None, str]:
    """A filter's value as the source writes it; None and why not where it cannot have it."""
    if key not in source.config.filters:
        known = ", ".join(map(repr, source.config.filters)) or "none"
        return None, f"source {source.config.name!r} has no filter {key!r}; it has: {known}"
    values = source.values(key)
    if not values:
        return value, ""
    folded = {_fold(v): v for v in values}
    if _fold(value) in folded:
        return folded[_fold(value)], ""
    near = difflib.get_close_matches(_fold(value), list(folded), n=3, cutoff=0.5)
    shown = ", ".join(repr(folded[n]) for n in near) or ", ".join(map(repr, values[:5]))
    return None, f"{key} {value!r} is not known; {'nearest' if near else 'known'}: {shown}"


def _text_hit(kept: Kept, part: Chunk, query: str, *, current: Currency, score: float) -> SearchHit:
    from .index.ranking import snippet

    document = kept.document
    weights = {stem: 1.0 for stem, _ in content_words(query, document.language)}
    section = document.section(part.section) if part.section is not None else None
    titled = section is not None and section.title and section.title != document.title
    return SearchHit(
        document=document.id,
        section=part.section,
        title=f"{document.title} > {section.title}" if titled and section is not None else document.title,
        snippet=snippet(part.text, Matcher(weights, document.language)),
        score=score,
        current=current.current,
        metadata=document.metadata,
        start=part.start,
        end=part.end,
        labels=current.labels,
        ordinal=part.ordinal,
    )


def _page_hit(page: _Page, *, score: float) -> SearchHit:
    return SearchHit(
        document=page.document,
        section=None,
        title=page.title,
        snippet=page.snippet,
        score=score,
        current=True,
        metadata=page.metadata,
        start=0,
        end=0,
    )


def _info(document: Document, current: Currency) -> DocumentInfo:
    return DocumentInfo(
        document=document.id,
        source=document.source,
        title=document.title,
        current=current.current,
        metadata=document.metadata,
        total_chars=len(document.text),
        labels=current.labels,
        superseded_by=current.superseded_by,
        amended_by=current.amended_by,
    )


# Waiting for network code ---------------------------------------------------------------------------------------------


class _Runner:
    """One event loop on a thread of its own, so that clients of async functions stay on the loop they were made on."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: weakref.finalize[[asyncio.AbstractEventLoop], _Runner] | None = None

    def wait(self, work: Coroutine[Any, Any, _T], *, seconds: float) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return future.result(seconds)
        except FutureTimeout:
            future.cancel()
            raise SourceFailed(f"no answer came within {seconds:g} s; an async function must not block") from None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._mutex:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="live", daemon=True)
                self._thread.start()
                self._end = weakref.finalize(self, _stop, self._loop)
            return self._loop

    def close(self) -> None:
        with self._mutex:
            if self._end is not None:
                self._end()
            if self._thread is not None:
                self._thread.join(timeout=5)
            self._loop = self._thread = self._end = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def refuse_clashes(sources: Sequence[SourceConfig]) -> None:
    """Raises ConfigError for two sources whose tools would have the same name."""
    seen: dict[str, str] = {}
    for source in sources:
        tool = re.sub(r"[^A-Za-z0-9_]", "_", source.name).casefold()
        if tool in seen:
            raise ConfigError(
                f"the source names {seen[tool]!r} and {source.name!r} are too alike; rename one, "
                "as with @citehound.source(name=…)"
            )
        seen[tool] = source.name

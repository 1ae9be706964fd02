"""A public site as a source: crawls pages of the allowed domains into documents; it parses none and indexes none.

What was fetched is kept beside the index, with what servers said to tell a changed page by, so that an unchanged page
is not sent again, a page that cannot be had keeps its version, and a crawl that was killed goes on where it was.
robots.txt: RFC 9309. Sitemaps: sitemaps.org. Conditional requests: RFC 9110, section 13.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import json
import re
import sqlite3
import time
import unicodedata
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urljoin, urlsplit

from ..access import glob_pattern
from ..config import SourceConfig
from ..documents import Document, RawDocument
from ..egress import Egress, Fetched, Place, Policy, bracketed, check_place, place_of, split_port
from ..errors import ConfigError, EgressRefused, ParseError, SourceFailed
from ..readonly import private_folder
from . import SkippedFile, Unreachable
from .files import without_extension

if TYPE_CHECKING:
    import protego

Read = Callable[[RawDocument], Document]
"""Takes the furniture out of a page: `text` is its HTML, the attachment its links. Raises ParseError."""

READER = 2
"""Raise it when the reading of pages changes: stored ones are then fetched and read again."""
AGENT = "citehound"
MAX_BYTES = 10_000_000
"""Of one page."""
MOST_BYTES = 2_000_000_000
"""Of all pages of one crawl."""
LONGEST_DELAY = 30.0
"""Seconds; a robots.txt that asks for more is obeyed this far."""
GIVE_UP = 5
"""After so many failures in a row a host is left alone until the next time."""
RESUME_SECONDS = 86_400.0
_MOST_VARIANTS = 50
"""Queries of one path that are followed."""
_MOST_ALIKE = 300
"""Addresses that differ in numbers only that are followed, as in calendars."""
_LONGEST_URL = 1000
_SILENT = "not asked for: the site has stopped answering"
_MOST_SEGMENTS = 16
_MOST_HOPS = 5
_MOST_SITEMAPS = 50
_SITEMAP_BYTES = 50_000_000
_EXTENSIONS: Mapping[str, str] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/plain": "txt",
    "text/markdown": "md",
    "application/pdf": "pdf",
}
_SITEMAPS = (
    "application/xml",
    "text/xml",
    "application/gzip",
    "application/x-gzip",
    "text/plain",
    "application/rss+xml",
)
_TEXTS = ("text/plain", "text/html", "application/octet-stream", "")
_TRACKING = re.compile(
    r"(?i)utm_\w+|gclid|fbclid|msclkid|dclid|yclid|mc_[ce]id|_ga|_gl|phpsessid|jsessionid|sid|session_?id|aspsessionid\w*"
)
_NOT_PAGES = re.compile(
    r"(?i)\.(?:jpe?g|png|gif|webp|svg|ico|bmp|tiff?|avif|css|m?js|json|xml|rss|atom|woff2?|ttf|eot|mp[34]|m4[av]|webm|"
    r"ogg|wav|avi|mov|zip|gz|tgz|bz2|xz|7z|rar|tar|exe|dmg|iso|deb|rpm|apk|jar|whl|docx?|xlsx?|pptx?|odt|ods|odp|epub)$"
)
_DATED = re.compile(r"(?:^|[/=_-])(?:19|20)\d\d[/_-](?:0?[1-9]|1[0-2])(?:\D|$)")


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a crawl needs from outside; tests put in their own."""

    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, kw_only=True)
class _Page:
    """A page as it is kept."""

    url: str
    path: str
    content_type: str
    data: bytes
    etag: str | None
    modified: str | None
    links: tuple[str, ...]
    canonical: str | None
    robots: str
    fetched: float
    reader: int = READER


@dataclass(frozen=True, kw_only=True)
class _Next:
    """An address to visit."""

    url: str
    depth: int
    hops: int = 0
    named: bool = False
    """By configuration, sitemap or an earlier crawl, so limits on look-alikes do not apply."""


def documents(
    source: SourceConfig, config_root: Path, known: Mapping[str, str], *, read: Read, means: Means | None = None
) -> Iterator[RawDocument | SkippedFile | Unreachable]:
    """Every page of the site that may be read, in the order in which the crawl comes to it.

    `known` maps a path to the id it was given before. Raises ConfigError for addresses that are none.
    """
    crawl = _Crawl(source=source, scope=_scope(source), known=known, read=read, means=means or Means())
    with _Store.open(config_root / ".citehound" / "sites" / f"{quote(source.name, safe='')}.sqlite") as store:
        yield from crawl.run(store)


def answers(source: SourceConfig) -> str | None:
    """None when every start page and sitemap answers and may be fetched; else what is wrong with the first that is not.

    Raises ConfigError.
    """
    scope = _scope(source)
    with _Fetcher(scope, means=Means(), delay=0.0) as fetcher:
        for place in (*scope.starts, *scope.sitemaps):
            try:
                if not fetcher.allowed(place):
                    return f"robots.txt of {place.host!r} does not allow fetching {place.url!r}"
                found = fetcher.get(place, sitemap=place in scope.sitemaps)
            except SourceFailed as error:
                return str(error)
            if found.status >= 400:
                return f"{place.url!r} answers {found.status}"
            if found.unread is not None:
                return found.unread
    return None


# what belongs to the site ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Which addresses belong to the site, and what they are called."""

    source: SourceConfig
    policy: Policy
    starts: tuple[Place, ...]
    sitemaps: tuple[Place, ...]
    exact: frozenset[tuple[str, int]]
    """Hosts and ports, where no domains are configured; else empty."""
    plain: str | None
    """The host whose pages are named without it; None where there are several domains."""

    def holds(self, place: Place) -> bool:
        if self.exact and (place.host, place.port) not in self.exact:
            return False
        try:
            private = check_place(place, self.policy)
        except EgressRefused:
            return False
        return not private or any((place.host, place.port) == (p.host, p.port) for p in self.named)

    @property
    def named(self) -> tuple[Place, ...]:
        return (*self.starts, *self.sitemaps)

    def place(self, url: str, *, base: str | None = None) -> Place | None:
        """The one spelling of an address of the site; None for what is none."""
        try:
            place = normalised(urljoin(base, url.strip()) if base else url.strip())
        except (EgressRefused, ValueError):
            return None
        if place.scheme == "http" and not self.holds(place):
            place = replace(place, scheme="https", port=443 if place.port == 80 else place.port)
        return place if self.holds(place) else None

    def name(self, place: Place) -> str:
        """The path of a page in ids, without an extension of its own."""
        path, _, query = place.target.partition("?")
        shown = _readable(path).strip("/")
        if query:
            shown = f"{shown or 'index'}?{_readable(query).replace('/', '%2F')}"
        host = place.url.split("//", 1)[1].split("/", 1)[0]
        if host != self.plain:
            shown = f"{host.replace('[', '(').replace(']', ')')}/{shown or 'index'}"
        return shown or "index"

    def wanted(self, name: str) -> str | None:
        """Why a page is not indexed, by its name; None where it is."""
        if self.source.include and not any(glob_pattern(p).fullmatch(name) for p in self.source.include):
            return "not included by the configuration"
        if any(glob_pattern(p).fullmatch(name) for p in self.source.exclude):
            return "excluded by the configuration"
        return None


def _scope(source: SourceConfig) -> _Scope:
    said = f"source {source.name!r}"
    try:
        starts = tuple(normalised(url) for url in source.start)
        sitemaps = tuple(place_of(url) for url in source.sitemap)
        private = tuple(_spelled(host) for host in source.allow_private_hosts)
        named = (*starts, *sitemaps)
        domains = tuple(_spelled(d) for d in source.domains) or tuple(
            dict.fromkeys(f"{bracketed(p.host)}:{p.port}" for p in named)
        )
        policy = Policy(
            domains=domains,
            private_hosts=private,
            http=source.allow_http,
            max_bytes=MAX_BYTES,
            seconds=source.timeout,
            redirects=0,
            agent=source.user_agent,
            answers=True,
        )
        for place in named:
            check_place(place, policy)
    except EgressRefused as error:
        raise ConfigError(f"{said}: {error}") from None
    for host in private:
        if split_port(host)[1] is None:
            raise ConfigError(f"{said}: allow_private_hosts needs a port with each host, as in '127.0.0.1:8080'")
    one = len(source.domains) <= 1 and len({(p.host, p.port) for p in named}) == 1
    return _Scope(
        source=source,
        policy=policy,
        starts=starts,
        sitemaps=sitemaps,
        exact=frozenset() if source.domains else frozenset((p.host, p.port) for p in named),
        plain=named[0].url.split("//", 1)[1].split("/", 1)[0] if one else None,
    )


def _spelled(domain: str) -> str:
    host, port = split_port(domain)
    return bracketed(host) if port is None else f"{bracketed(host)}:{port}"


def normalised(url: str) -> Place:
    """An address without fragment, session and tracking, its path and query in one spelling. Raises EgressRefused."""
    url = url.partition("#")[0]
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise EgressRefused(f"{url[:100]!r} is not a URL: {error}") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise EgressRefused(f"{url[:100]!r} is not fetched: only https:// is")
    segments: list[str] = []
    path = re.sub(r"(?i);(?:jsessionid|phpsessid|sid)=[^/?;]*", "", parts.path)
    raw = re.sub(r"/{2,}", "/", path).removeprefix("/").split("/")
    for at, segment in enumerate(raw):
        last = at == len(raw) - 1
        segment = quote(unquote(segment, errors="surrogateescape"), safe="!$&'()*+,;=:@~-._", errors="surrogateescape")
        if segment in (".", ".."):
            if segment == ".." and segments:
                segments.pop()
            if last:
                segments.append("")
        else:
            segments.append(segment)
    try:
        fields = parse_qsl(parts.query, keep_blank_values=True, errors="surrogateescape", max_num_fields=50)
    except ValueError:
        raise EgressRefused(f"{url[:100]!r} has too many fields in its query") from None
    pairs = [(key, value) for key, value in fields if not _TRACKING.fullmatch(key)]
    query = "&".join(f"{_quoted(key)}={_quoted(value)}" if value else _quoted(key) for key, value in sorted(pairs))
    return place_of(f"{parts.scheme}://{parts.netloc}/{'/'.join(segments)}{'?' + query if query else ''}")


def _quoted(text: str) -> str:
    return quote(text, safe="!$'()*,:@/~-._", errors="surrogateescape")


def _readable(text: str) -> str:
    """Percent-encoding undone where that gives letters a person would write, and never what means something else."""

    def shown(match: re.Match[str]) -> str:
        decoded = unquote(match[0], errors="replace")
        plain = all(c.isprintable() and c not in '/\\?#%|[]<>"\ufffd' for c in decoded)
        return decoded if plain else match[0]

    return unicodedata.normalize("NFC", re.sub(r"(?:%[0-9A-Fa-f]{2})+", shown, text))


# fetching -------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Host:
    robots: protego.Protego | None = None
    """None: everything is allowed."""
    refused: str | None = None
    """Why nothing of the host is fetched."""
    asked: bool = False
    last: float | None = None
    delay: float = 0.0


class _Fetcher:
    """One request at a time, with the pause that the host is due; knows robots.txt of each host."""

    def __init__(self, scope: _Scope, *, means: Means, delay: float) -> None:
        self._scope = scope
        self._means = means
        self._delay = delay
        self._hosts: dict[tuple[str, str, int], _Host] = {}
        self._pages = Egress(scope.policy)
        self._sitemaps = Egress(replace(scope.policy, content_types=_SITEMAPS, redirects=2, answers=True))
        self._texts = Egress(replace(scope.policy, content_types=_TEXTS, max_bytes=5_000_000))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="crawl")

    def __enter__(self) -> _Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def get(
        self, place: Place, *, etag: str | None = None, modified: str | None = None, sitemap: bool = False
    ) -> Fetched:
        """Raises SourceFailed."""
        egress = self._sitemaps if sitemap else self._pages
        return self._asked(egress, place, etag=etag, modified=modified)

    def allowed(self, place: Place) -> bool:
        """Whether robots.txt allows it. Raises SourceFailed when that cannot be found out, which means no."""
        host = self._host(place)
        if not host.asked:
            host.asked = True
            self._learn(place, host)
        if host.refused is not None:
            raise SourceFailed(host.refused)
        return host.robots is None or host.robots.can_fetch(place.url, self._scope.policy.agent)

    def _host(self, place: Place) -> _Host:
        return self._hosts.setdefault((place.scheme, place.host, place.port), _Host(delay=self._delay))

    def _learn(self, place: Place, host: _Host) -> None:
        """RFC 9309: what is not there allows everything, what cannot be had allows nothing."""
        from protego import Protego

        at = replace(place, target="/robots.txt")
        for _ in range(_MOST_HOPS):
            try:
                found = self._asked(self._texts, at)
            except SourceFailed as error:
                host.refused = f"robots.txt cannot be had, so nothing is fetched: {error}"
                return
            if found.status in (301, 302, 303, 307, 308):
                target = self._scope.place(found.headers.get("location", ""), base=at.url)
                if target is None:
                    host.refused = (
                        f"{at.url!r} redirects to {found.headers.get('location', '')[:100]!r}, outside the domains of "
                        "the source; name that host in `domains` or in `start`"
                    )
                    return
                at = target
                continue
            if found.status >= 500 or found.status == 429:
                host.refused = f"robots.txt cannot be had, so nothing is fetched: {at.url!r} answers {found.status}"
            elif found.status == 200 and found.unread is None:
                host.robots = Protego.parse(found.data[:500_000].decode("utf-8", "replace"))
                wish = host.robots.crawl_delay(self._scope.policy.agent)
                rate = host.robots.request_rate(self._scope.policy.agent)
                if rate is not None and rate.requests:
                    wish = max(float(wish or 0.0), float(rate.seconds) / float(rate.requests))
                host.delay = max(host.delay, min(float(wish or 0.0), LONGEST_DELAY))
            return

    def _asked(self, egress: Egress, place: Place, *, etag: str | None = None, modified: str | None = None) -> Fetched:
        host = self._host(place)
        wait = 0.0 if host.last is None else host.last + host.delay - self._means.clock()
        if wait > 0:
            self._means.sleep(min(wait, host.delay))
        try:
            work = egress.get(place.url, etag=etag, modified=modified)
            return self._thread.submit(asyncio.run, work).result()
        finally:
            host.last = self._means.clock()


# crawling -------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Crawl:
    source: SourceConfig
    scope: _Scope
    known: Mapping[str, str]
    read: Read
    means: Means
    queue: deque[_Next] = field(default_factory=deque[_Next])
    seen: set[str] = field(default_factory=set[str])
    """Addresses queued or visited."""
    paths: dict[str, str] = field(default_factory=dict[str, str])
    """Path to the address that has it."""
    ids: set[str] = field(default_factory=set[str])
    contents: dict[str, str] = field(default_factory=dict[str, str])
    """Hash of a text to the path that has it."""
    bodies: set[str] = field(default_factory=set[str])
    waiting: dict[str, _Page] = field(default_factory=dict[str, _Page])
    """By canonical address that is still to be visited: the page that named it."""
    given: set[str] = field(default_factory=set[str])
    """Addresses that became documents."""
    reported: set[str] = field(default_factory=set[str])
    variants: dict[str, int] = field(default_factory=dict[str, int])
    asked: int = 0
    size: int = 0
    failures: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    begun: float = 0.0

    def run(self, store: _Store) -> Iterator[RawDocument | SkippedFile | Unreachable]:
        self.begun = store.begin(self.means.clock())
        self.ids.update(self.known.values())
        with _Fetcher(self.scope, means=self.means, delay=self.source.delay) as fetcher:
            for place in self.scope.starts:
                self._queue(_Next(url=place.url, depth=0, named=True))
            yield from self._read_sitemaps(fetcher)
            for url in (None, *store.urls()):
                if url is not None:
                    if (place := self.scope.place(url)) is None or place.url in self.seen:
                        continue
                    self._queue(_Next(url=place.url, depth=self.source.max_depth, named=True))
                while self.queue:
                    if self.asked >= self.source.max_pages or self.size > MOST_BYTES:
                        break
                    yield from self._visit(self.queue.popleft(), store, fetcher)
            if self.queue:
                yield self._left_out()
            for page in list(self.waiting.values()):
                yield from self._give(page, store, canonical=False)
            for path in sorted(self.known.keys() - self.reported):
                # what could not be asked for because its host does not answer is kept
                if not self._is_inside(path) and self._gave_up(store.url_of(path)):
                    yield self._unreachable(path, _SILENT)
        store.finish(keep=self.seen)

    def _is_inside(self, path: str) -> bool:
        """Whether it is a file inside a page that has been reported."""
        return any(path[: match.start()] in self.reported for match in re.finditer("/", path))

    def _left_out(self) -> SkippedFile:
        first = self.scope.name(place_of(self.queue[0].url))
        what = f"max_pages = {self.source.max_pages} is" if self.size <= MOST_BYTES else "the most bytes of a crawl are"
        more = f" and {len(self.queue) - 1} more" if len(self.queue) > 1 else ""
        path = self._path(first)
        self.reported.add(path)
        return SkippedFile(path=path, reason=f"{what} reached; this page{more} known were not fetched")

    def _queue(self, entry: _Next) -> None:
        if entry.url not in self.seen:
            self.seen.add(entry.url)
            self.queue.append(entry)

    # one page

    def _visit(
        self, entry: _Next, store: _Store, fetcher: _Fetcher
    ) -> Iterator[RawDocument | SkippedFile | Unreachable]:
        place = place_of(entry.url)
        stored = store.page(entry.url)
        name = stored.path if stored is not None else self._path(self.scope.name(place))
        if stored is not None and stored.fetched >= self.begun:
            yield from self._take(entry, stored, store)  # of a crawl that was killed
            return
        if self._gave_up(entry.url):
            yield from self._failed(entry, stored, name, _SILENT, store, count=False)
            return
        try:
            if not fetcher.allowed(place):
                yield self._skip(name, "robots.txt does not allow fetching it")
                return
            self.asked += 1
            fresh = stored is not None and stored.reader == READER
            found = fetcher.get(
                place,
                etag=stored.etag if stored is not None and fresh else None,
                modified=stored.modified if stored is not None and fresh else None,
            )
        except EgressRefused as error:
            yield self._skip(name, str(error))
            return
        except SourceFailed as error:
            yield from self._failed(entry, stored, name, str(error), store)
            return
        status = found.status
        if status in (301, 302, 303, 307, 308):
            self.failures[place.host, place.port] = 0
            store.forget(entry.url)
            yield from self._redirected(entry, found, name)
        elif status == 304 and stored is not None:
            self.failures[place.host, place.port] = 0
            page = replace(
                stored,
                fetched=self.means.clock(),
                etag=found.headers.get("etag", stored.etag),
                modified=found.headers.get("last-modified", stored.modified),
            )
            store.put(page)
            yield from self._take(entry, page, store)
        elif status == 200:
            self.failures[place.host, place.port] = 0
            if found.unread is not None:
                store.forget(entry.url)
                yield from self._after(entry.url, store)
                yield self._skip(name, found.unread)
                return
            page = self._page(place, found, stored)
            store.put(page)
            yield from self._take(entry, page, store)
        elif status in (404, 410):
            self.failures[place.host, place.port] = 0
            store.forget(entry.url)
            yield from self._after(entry.url, store)
            if name not in self.known:
                yield self._skip(name, f"answers {status}")
        elif status in (401, 403, 451) and not any(p.url == entry.url for p in self.scope.starts):
            store.forget(entry.url)
            yield from self._after(entry.url, store)
            yield self._skip(name, f"answers {status}: it is not public")
        else:
            yield from self._failed(entry, stored, name, f"{entry.url!r} answers {status}", store)

    def _redirected(self, entry: _Next, found: Fetched, name: str) -> Iterator[SkippedFile]:
        target = found.headers.get("location", "")
        place = self.scope.place(target, base=entry.url)
        if place is None:
            yield self._skip(name, f"redirects outside the domains of the source, to {target[:200]!r}")
        elif entry.url.startswith("https:") and place.scheme != "https":
            yield self._skip(name, "redirects from https to http")
        elif entry.hops >= _MOST_HOPS:
            yield self._skip(name, f"redirects more than {_MOST_HOPS} times")
        elif place.url not in self.seen:
            self.seen.add(place.url)
            self.queue.appendleft(replace(entry, url=place.url, hops=entry.hops + 1))

    def _failed(
        self, entry: _Next, stored: _Page | None, name: str, reason: str, store: _Store, *, count: bool = True
    ) -> Iterator[RawDocument | SkippedFile | Unreachable]:
        """What cannot be had now keeps its version, and leads where it led."""
        place = place_of(entry.url)
        if count:
            key = (place.host, place.port)
            self.failures[key] = self.failures.get(key, 0) + 1
        if stored is None:
            yield from self._after(entry.url, store)
            yield self._unreachable(name, reason)
            return
        self._follow(entry, stored)
        if stored.path in self.known:
            self.given.add(stored.url)
            self.paths[stored.path] = stored.url
            other = self.waiting.pop(stored.url, None)
            yield self._unreachable(stored.path, reason)
            if other is not None:
                yield self._skip(other.path, f"the same page as {stored.url}")
        elif not _asks(stored.robots, "noindex"):
            yield from self._give(stored, store)

    def _gave_up(self, url: str | None) -> bool:
        """Of an address, or (None) of any host."""
        if url is None:
            return any(count >= GIVE_UP for count in self.failures.values())
        place = place_of(url)
        return self.failures.get((place.host, place.port), 0) >= GIVE_UP

    def _page(self, place: Place, found: Fetched, stored: _Page | None) -> _Page:
        url = place.url
        data = found.data
        extension = _EXTENSIONS[found.content_type]
        plain = b"\0" not in data[:4096] or (found.charset or "").startswith(("utf-16", "utf-32"))
        if found.charset is not None and extension != "pdf" and plain:
            try:  # what the server says of the encoding ranks above what the page says
                data = b"\xef\xbb\xbf" + data.decode(found.charset, "replace").encode("utf-8", "replace")
            except LookupError:
                data = found.data
        self.size += len(data)
        base = self.scope.name(place)
        path = base if base.lower().endswith((f".{extension}", ".htm", ".xhtml")) else f"{base}.{extension}"
        if stored is not None and stored.path.rpartition(".")[2] == path.rpartition(".")[2]:
            path = stored.path
        links: tuple[str, ...] = ()
        stated: Mapping[str, str] = {}
        if extension == "html":
            try:
                cleaned = self.read(RawDocument(id=path, source=self.source.name, path=path, data=data))
                links = tuple(cleaned.attachments[0].data.decode("utf-8", "replace").split("\n"))
                stated = cleaned.metadata
                data = b"\xef\xbb\xbf" + cleaned.text.encode("utf-8", "replace")
            except ParseError:
                pass  # reading it into the index fails in the same way, and is reported there
        root = urljoin(url, stated.get("base", ""))
        places = [self.scope.place(link, base=root) for link in links]
        canonical = self.scope.place(stated["canonical"], base=root) if "canonical" in stated else None
        return _Page(
            url=url,
            path=path,
            content_type=found.content_type,
            data=data,
            etag=found.headers.get("etag"),
            modified=found.headers.get("last-modified"),
            links=tuple(dict.fromkeys(p.url for p in places if p is not None)),
            canonical=canonical.url if canonical is not None else None,
            robots=",".join(filter(None, (stated.get("robots", ""), _robots_header(found.headers)))),
            fetched=self.means.clock(),
        )

    def _take(self, entry: _Next, page: _Page, store: _Store) -> Iterator[RawDocument | SkippedFile]:
        """A page that was had: what it leads to, and the document that it is."""
        body = hashlib.sha256(page.data + "\n".join(page.links).encode()).hexdigest()
        if body not in self.bodies:
            self.bodies.add(body)
            self._follow(entry, page)
        if _asks(page.robots, "noindex"):
            yield self._skip(page.path, "the page asks not to be indexed (noindex)")
            yield from self._after(page.url, store)
            return
        canonical = page.canonical
        if canonical is not None and canonical != page.url and self._is_canonical(canonical, page):
            if canonical in self.given:
                yield self._skip(page.path, f"the same page as {canonical}")
                return
            if canonical not in self.waiting and (canonical not in self.seen or self._is_queued(canonical)):
                self.waiting[canonical] = page
                if canonical not in self.seen:
                    self.seen.add(canonical)
                    self.queue.appendleft(replace(entry, url=canonical, hops=entry.hops + 1))
                return
        yield from self._give(page, store)

    def _is_queued(self, url: str) -> bool:
        return any(entry.url == url for entry in self.queue)

    def _is_canonical(self, canonical: str, page: _Page) -> bool:
        """Whether the claim is to be believed: a site that names its front page in every page is mistaken."""
        return place_of(canonical).target != "/" or place_of(page.url).target.partition("?")[0] == "/"

    def _after(self, url: str, store: _Store) -> Iterator[RawDocument | SkippedFile]:
        """The page that named this one as its better address stands for itself, when there is none there."""
        page = self.waiting.pop(url, None)
        if page is not None:
            yield from self._give(page, store, canonical=False)

    def _give(self, page: _Page, store: _Store, *, canonical: bool = True) -> Iterator[RawDocument | SkippedFile]:
        """The page as a document, unless its text is one already."""
        other = self.waiting.pop(page.url, None) if canonical else None
        name = self.scope.name(place_of(page.url))
        if page.url in self.given:
            return
        if (reason := self.scope.wanted(name)) is not None:
            yield self._skip(page.path, reason)
            return
        digest = hashlib.sha256(page.data).hexdigest()
        if digest in self.contents:
            yield self._skip(page.path, f"the same text as {self.contents[digest]}")
            return
        path = self._assigned(page, store)
        self.contents[digest] = path
        self.given.add(page.url)
        self.reported.add(path)
        metadata = {"url": page.url}
        if (date := _date(page.modified)) is not None:
            metadata["date"] = date
        yield RawDocument(
            id=self._id(path),
            source=self.source.name,
            path=path,
            data=page.data,
            metadata=metadata,
            names=dict(self.source.metadata),
            listed=True,
        )
        if other is not None:
            yield self._skip(other.path, f"the same page as {page.url}")

    def _assigned(self, page: _Page, store: _Store) -> str:
        """The path of a page; another one for a page whose path another address has."""
        path, number = page.path, 2
        stem, dot, extension = page.path.rpartition(".")

        def taken() -> bool:
            return self.paths.get(path, page.url) != page.url or store.owner(path, but=page.url) is not None

        if taken() and page.url.endswith("/"):
            path = f"{stem}/index{dot}{extension}"
        while taken():
            path = f"{stem}-{number}{dot}{extension}"
            number += 1
        self.paths[path] = page.url
        store.assign(page.url, path)
        return path

    def _id(self, path: str) -> str:
        if path in self.known:
            return self.known[path]
        name = f"{self.source.name}/{without_extension(path)}"
        if name in self.ids:
            name = f"{self.source.name}/{path}"
        number = 2
        while name in self.ids:
            name = f"{self.source.name}/{path}-{number}"
            number += 1
        self.ids.add(name)
        return name

    def _path(self, name: str) -> str:
        """The path that a page of this name had, or its name."""
        return next((p for e in ("", ".html", ".pdf", ".txt", ".md") if (p := name + e) in self.known), name)

    def _skip(self, path: str, reason: str) -> SkippedFile:
        self.reported.add(path)
        return SkippedFile(path=path, reason=reason)

    def _unreachable(self, path: str, reason: str) -> Unreachable:
        self.reported.add(path)
        return Unreachable(path=path, reason=reason)

    # where it leads

    def _follow(self, entry: _Next, page: _Page) -> None:
        if entry.depth >= self.source.max_depth or _asks(page.robots, "nofollow"):
            return
        for url in page.links:
            if url in self.seen:
                continue
            place = self.scope.place(url)
            if place is not None and self._may_follow(place):
                self._queue(_Next(url=place.url, depth=entry.depth + 1))

    def _may_follow(self, place: Place) -> bool:
        """False for what is no page by its name, is not wanted, or looks like a trap."""
        path, _, query = place.target.partition("?")
        segments = path.strip("/").split("/")
        if len(place.url) > _LONGEST_URL or len(segments) > _MOST_SEGMENTS or _NOT_PAGES.search(path):
            return False
        if any(segments.count(s) > 2 for s in segments) or _repeats(segments):
            return False
        if self.scope.wanted(self.scope.name(place)) is not None:
            return False
        if query and not self._room(f"{place.host}{path}?", _MOST_VARIANTS):
            return False
        alike = re.sub(r"\d+", "0", place.target)
        if alike == place.target and not re.search(r"\d", place.target):
            return True
        most = _MOST_ALIKE if not _DATED.search(place.target) else _MOST_ALIKE // 3
        return self._room(f"{place.host}{alike}", most)

    def _room(self, key: str, most: int) -> bool:
        self.variants[key] = self.variants.get(key, 0) + 1
        return self.variants[key] <= most

    # sitemaps

    def _read_sitemaps(self, fetcher: _Fetcher) -> Iterator[SkippedFile | Unreachable]:
        pending = deque((place, 0) for place in self.scope.sitemaps)
        done: set[str] = set()
        while pending and len(done) < _MOST_SITEMAPS:
            place, depth = pending.popleft()
            if place.url in done:
                continue
            done.add(place.url)
            name = self.scope.name(place)
            try:
                if not fetcher.allowed(place):
                    yield self._skip(name, "robots.txt does not allow fetching this sitemap")
                    continue
                found = fetcher.get(place, sitemap=True)
            except SourceFailed as error:
                yield self._unreachable(name, f"sitemap: {error}")
                continue
            if found.status != 200 or found.unread is not None:
                yield self._unreachable(name, f"sitemap: {found.unread or f'{place.url!r} answers {found.status}'}")
                continue
            try:
                pages, maps = read_sitemap(found.data)
            except ValueError as error:
                yield self._skip(name, f"sitemap: {error}")
                continue
            for url in pages:
                if len(self.queue) >= 2 * self.source.max_pages:
                    break
                inside = self.scope.place(url)
                if inside is not None and self.scope.wanted(self.scope.name(inside)) is None:
                    self._queue(_Next(url=inside.url, depth=0, named=True))
            if depth < 2:
                pending.extend((inside, depth + 1) for url in maps if (inside := self.scope.place(url)) is not None)


def read_sitemap(data: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pages and the further sitemaps that one lists: XML, gzip of it, or a text with an address a line.

    Read by pattern and not as XML, so nothing in it is expanded. Raises ValueError for one that is too big.
    """
    if data.startswith(b"\x1f\x8b"):
        unpacker = zlib.decompressobj(wbits=31)
        try:
            data = unpacker.decompress(data, _SITEMAP_BYTES)
        except zlib.error as error:
            raise ValueError(f"damaged ({error})") from None
        if unpacker.unconsumed_tail:
            raise ValueError(f"larger than {_SITEMAP_BYTES // 1_000_000} MB when unpacked")
    text = data.decode("utf-8-sig", "replace")
    if "<" not in text[:1000]:
        return tuple(line.strip() for line in text.splitlines() if line.strip().startswith("http"))[:50_000], ()
    found = re.findall(r"<(?:\w+:)?loc\s*>\s*(?:<!\[CDATA\[)?\s*([^<\]]{1,2000}?)\s*(?:\]\]>)?\s*</", text)
    urls = tuple(html.unescape(url) for url in found[:50_000])
    return ((), urls) if re.search(r"<(?:\w+:)?sitemapindex\b", text) else (urls, ())


def _repeats(segments: list[str]) -> bool:
    """True for a/b/a/b."""
    return any(segments[at : at + 2] == segments[at + 2 : at + 4] for at in range(len(segments) - 3))


def _asks(robots: str, what: str) -> bool:
    return re.search(rf"(?<![\w-])(?:{what}|none)(?![\w-])", robots) is not None


def _robots_header(headers: Mapping[str, str]) -> str:
    """What X-Robots-Tag says to everybody."""
    value = headers.get("x-robots-tag", "").lower()
    return ",".join(part for part in value.split(",") if ":" not in part)


def _date(modified: str | None) -> str | None:
    if not modified:
        return None
    try:
        return parsedate_to_datetime(modified).astimezone(UTC).date().isoformat()
    except (TypeError, ValueError, OverflowError):
        return None


# what is kept ---------------------------------------------------------------------------------------------------------

_TABLES = """
CREATE TABLE IF NOT EXISTS pages (
    url TEXT PRIMARY KEY, path TEXT NOT NULL, content_type TEXT NOT NULL, data BLOB NOT NULL, etag TEXT, modified TEXT,
    links TEXT NOT NULL, canonical TEXT, robots TEXT NOT NULL, fetched REAL NOT NULL, reader INTEGER NOT NULL,
    given INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS crawl (begun REAL NOT NULL, finished INTEGER NOT NULL);
PRAGMA user_version = 1;
"""
_COLUMNS = "url, path, content_type, data, etag, modified, links, canonical, robots, fetched, reader"


class _Store:
    """The pages as they were fetched last; one file beside the index, made anew when it cannot be read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    @classmethod
    def open(cls, path: Path) -> _Store:
        private_folder(path.parent)
        for attempt in (1, 2):
            db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version not in (0, 1):
                    raise sqlite3.DatabaseError("another version")
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                db.executescript(_TABLES)
                db.execute("SELECT url, path, links FROM pages LIMIT 1").fetchone()
                return cls(db)
            except sqlite3.DatabaseError as error:
                db.close()
                if attempt == 2:
                    raise ConfigError(f"{str(path)!r} cannot be written ({error}); check the folder") from None
                for name in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
                    name.unlink(missing_ok=True)
        raise AssertionError

    def __enter__(self) -> _Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def begin(self, now: float) -> float:
        """When the crawl began: now, or when the one did that was not finished and is to be gone on with."""
        row = self._db.execute("SELECT begun FROM crawl WHERE finished = 0").fetchone()
        if row is not None and 0 <= now - row[0] < RESUME_SECONDS:
            return float(row[0])
        self._db.execute("DELETE FROM crawl")
        self._db.execute("INSERT INTO crawl VALUES (?, 0)", (now,))
        return now

    def finish(self, *, keep: set[str]) -> None:
        """The crawl has come to its end: what it did not come to is forgotten."""
        with self._db:
            self._db.executemany("DELETE FROM pages WHERE url = ?", [(u,) for u in self.urls() if u not in keep])
            self._db.execute("UPDATE crawl SET finished = 1")

    def urls(self) -> list[str]:
        return [row[0] for row in self._db.execute("SELECT url FROM pages ORDER BY path, url")]

    def owner(self, path: str, *, but: str) -> str | None:
        """The address of another page that became a document under this path."""
        row = self._db.execute(
            "SELECT url FROM pages WHERE path = ? AND given = 1 AND url != ?", (path, but)
        ).fetchone()
        return None if row is None else row[0]

    def assign(self, url: str, path: str) -> None:
        self._db.execute("UPDATE pages SET path = ?, given = 1 WHERE url = ?", (path, url))

    def url_of(self, path: str) -> str | None:
        row = self._db.execute("SELECT url FROM pages WHERE path = ?", (path,)).fetchone()
        return None if row is None else row[0]

    def page(self, url: str) -> _Page | None:
        row: tuple[Any, ...] | None = self._db.execute(
            f"SELECT {_COLUMNS} FROM pages WHERE url = ?",
            (url,),
        ).fetchone()
        if row is None:
            return None
        return _Page(
            url=row[0],
            path=row[1],
            content_type=row[2],
            data=zlib.decompress(row[3]),
            etag=row[4],
            modified=row[5],
            links=tuple(json.loads(row[6])),
            canonical=row[7],
            robots=row[8],
            fetched=row[9],
            reader=row[10],
        )

    def put(self, page: _Page) -> None:
        self._db.execute(
            f"INSERT INTO pages ({_COLUMNS}) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (url) DO UPDATE SET path = excluded.path, "
            "content_type = excluded.content_type, data = excluded.data, etag = excluded.etag, "
            "modified = excluded.modified, links = excluded.links, canonical = excluded.canonical, "
            "robots = excluded.robots, fetched = excluded.fetched, reader = excluded.reader",
            (
                page.url,
                page.path,
                page.content_type,
                zlib.compress(page.data, 6),
                page.etag,
                page.modified,
                json.dumps(page.links),
                page.canonical,
                page.robots,
                page.fetched,
                page.reader,
            ),
        )

    def forget(self, url: str) -> None:
        self._db.execute("DELETE FROM pages WHERE url = ?", (url,))

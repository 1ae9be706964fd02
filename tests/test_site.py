"""A site as a source: crawled over loopback from a real server, into a real index."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from citehound import corpus as corpus_module
from citehound.access import OWNER
from citehound.cli import main
from citehound.config import Config, EmbeddingConfig, IndexConfig, SourceConfig
from citehound.corpus import Corpus, FileReport, SyncReport
from citehound.documents import Document, RawDocument
from citehound.errors import ConfigError, ParseError
from citehound.parsing import parse
from citehound.parsing.webpage import read_page
from citehound.sources import site
from citehound.sources.site import Means, answers, normalised, read_sitemap
from source_conformance import Item, SourceConformance
from test_parsing_pdf import at, pdf


@dataclass(kw_only=True)
class Reply:
    body: bytes = b""
    status: int = 200
    kind: str | None = "text/html; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    hold: threading.Event | None = None
    """The answer waits for it."""


@dataclass(kw_only=True)
class Site:
    """A server whose pages a test puts in; it knows ETags and writes down what it was asked for."""

    port: int
    pages: dict[str, Reply | Callable[[], Reply]] = field(default_factory=dict[str, Any])
    asked: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.host}{path}"

    def page(self, path: str, text: str, *, links: tuple[str, ...] = (), head: str = "", **headers: str) -> None:
        anchors = "".join(f'<p>See <a href="{link}">{link}</a>.</p>' for link in links)
        title = path.strip("/") or "home"
        html = (
            f"<html><head><title>{title}</title>{head}</head><body><main><h1>{title}</h1><p>{text}</p>{anchors}</main>"
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[path] = Reply(body=html.encode(), headers={"ETag": f'"{hash(html)}"', **named})

    def put(self, path: str, body: bytes | str = b"", **options: Any) -> None:
        self.pages[path] = Reply(body=body.encode() if isinstance(body, str) else body, **options)

    def pages_asked(self) -> list[str]:
        return [path for path in self.asked if path != "/robots.txt"]


@pytest.fixture
def served() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            web.asked.append(self.path)
            web.headers.append({k.lower(): v for k, v in self.headers.items()})
            reply = web.pages.get(self.path, Reply(status=404))
            if callable(reply):
                reply = reply()
            if reply.hold is not None:
                reply.hold.wait(20)
            status, body = reply.status, reply.body
            etag = reply.headers.get("ETag")
            if status == 200 and etag and self.headers.get("If-None-Match") == etag:
                status, body = 304, b""
            try:
                self.send_response(status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if status == 200 and reply.kind is not None:
                    self.send_header("Content-Type", reply.kind)
                if status != 304:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    web = Site(port=server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield web
    for reply in web.pages.values():
        if isinstance(reply, Reply) and reply.hold is not None:
            reply.hold.set()
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass(kw_only=True)
class Crawler:
    """A corpus with one site, crawled on a clock of its own."""

    web: Site
    root: Path
    slept: list[float] = field(default_factory=list[float])
    now: float = 1_000_000.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def source(self, **options: Any) -> SourceConfig:
        given: dict[str, Any] = {
            "name": "hb",
            "path": self.root,
            "kind": "site",
            "start": (self.web.url(),),
            "allow_private_hosts": (self.web.host,),
            "delay": 0.0,
            "timeout": 5.0,
            **options,
        }
        return SourceConfig(**given)

    def config(self, **options: Any) -> Config:
        index = IndexConfig(workers=1, ocr=False, embedding=EmbeddingConfig(name="none"))
        return Config(root=self.root, sources=(self.source(**options),), index=index)

    def sync(self, **options: Any) -> SyncReport:
        with Corpus.open(self.config(**options), write=True) as corpus:
            return corpus.sync()

    def documents(self, **options: Any) -> dict[str, str]:
        """Id to text."""
        with Corpus.open(self.config(**options)) as corpus:
            listed = corpus.list_documents(None, principal=OWNER, limit=1000, only_current=False).documents
            return {one.document: corpus.document(one.document, principal=OWNER).text for one in listed}


class Here:
    """Reads in this process, where a test is not about the one that reads."""

    count = 1

    def __init__(self, count: int = 1, *, limits: object = None, target: str = "citehound.parsing:parse") -> None:
        self._read = read_page if "webpage" in target else parse

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, raw: RawDocument, *, language: str | None) -> Any:
        if self._read is read_page:
            return read_page(raw, language=language)
        work: Future[Document] = Future()
        try:
            work.set_result(parse(raw, language=language))
        except ParseError as error:
            work.set_exception(error)
        return work


@pytest.fixture
def crawler(served: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Crawler:
    crawler = Crawler(web=served, root=tmp_path)
    monkeypatch.setattr(site, "Means", lambda: Means(sleep=crawler.sleep, clock=crawler.clock))
    if request.node.get_closest_marker("usefixtures") is None:
        monkeypatch.setattr(corpus_module, "Worker", Here)
        monkeypatch.setattr(corpus_module, "Workers", Here)
    return crawler


@pytest.fixture
def processes() -> None:
    """Named by tests that read in processes of their own, as the product does."""


in_processes = pytest.mark.usefixtures("processes")


def statuses(report: SyncReport) -> dict[str, str]:
    return {f.path: f.status for f in report.files}


def of(report: SyncReport, path: str) -> FileReport:
    (found,) = [f for f in report.files if f.path == path]
    return found


def reason(report: SyncReport, path: str) -> str:
    return of(report, path).reason or ""


# what becomes a document


@in_processes
def test_pages_are_found_by_links_and_become_documents(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome to the handbook.", links=("leave/", "/travel.html", "rules/Gr%C3%B6%C3%9Fe"))
    web.page("/leave/", "Ten days of leave are given.", Last_Modified="Mon, 02 Nov 2026 10:00:00 GMT")
    web.page("/travel.html", "Trains are preferred to planes.", links=("/",))
    web.page("/rules/Gr%C3%B6%C3%9Fe", "Everything has a size.")
    report = crawler.sync()
    assert statuses(report) == {
        "index.html": "indexed",
        "leave.html": "indexed",
        "travel.html": "indexed",
        "rules/Größe.html": "indexed",
    }
    assert set(crawler.documents()) == {"hb/index", "hb/leave", "hb/travel", "hb/rules/Größe"}
    with Corpus.open(crawler.config()) as corpus:
        (hit,) = corpus.search("hb", "days of leave", principal=OWNER, k=1).hits
        assert hit.document == "hb/leave"
        assert hit.metadata["url"] == web.url("/leave/") and hit.metadata["date"] == "2026-11-02"
        assert corpus.read("hb/leave", principal=OWNER, section="leave").text.startswith("leave")


def test_what_stands_on_every_page_is_left_out_and_sections_stay(crawler: Crawler) -> None:
    crawler.web.put(
        "/",
        "<html><head><title>Leave</title></head><body><header><h1>Leave</h1><ul><li><a href=/x>Shop</a></ul></header>"
        "<nav><a href=/a>Menu entry</a></nav><div class='cookie-banner'>We use cookies.</div>"
        "<div id=sidebar>Popular pages</div><article><h2>How much</h2><p>Ten days of leave are given to all.</p>"
        "<h2>When</h2><p>It is taken within the year, or by March of the next one.</p>"
        "<aside>Note: not for guests.</aside></article><aside>Advertisement</aside><footer>Imprint</footer></body>",
    )
    crawler.sync()
    text = crawler.documents()["hb/index"]
    assert "Ten days" in text and "Note: not for guests" in text
    for gone in ("Menu entry", "cookies", "Popular", "Imprint", "Advertisement", "Shop"):
        assert gone not in text
    with Corpus.open(crawler.config()) as corpus:
        document = corpus.document("hb/index", principal=OWNER)
        assert document.title == "Leave"
        assert [s.title for s in document.sections] == ["Leave", "How much", "When"]


def test_a_box_in_the_text_is_text_whatever_it_is_called(crawler: Crawler) -> None:
    prose = "Leave that is not taken by the end of March is lost, unless the company has asked for it to be put off."
    crawler.web.put(
        "/",
        f"<title>Leave</title><body><div class=chapter><h1>Leave</h1><p>{prose}</p><p>{prose}</p>"
        "<div class=sidebar><p class=title>Caution</p><div class=para>The works council has to be heard before any "
        "leave is put off for longer than three months.</div></div></div>"
        "<div class=sidebar><ul><li><a href=/a>Travel and expenses</a></ul></div></body>",
    )
    crawler.sync()
    text = crawler.documents()["hb/index"]
    assert "works council" in text and "Travel" not in text


def test_a_pdf_and_a_text_are_documents_and_other_kinds_are_not(crawler: Crawler) -> None:
    manual = pdf([at(72, 700, "Incidents are reported to the desk within one day.")])
    web = crawler.web
    web.page("/", "Files.", links=("/a.pdf", "/notes.txt", "/logo.png", "/stream", "/liar"))
    web.put("/a.pdf", manual, kind="application/pdf")
    web.put("/notes.txt", "The office closes at six o'clock.\n", kind="text/plain; charset=utf-8")
    web.put("/stream", b"\0\1", kind="application/octet-stream")
    web.put("/liar", b"\x89PNG\r\n\x1a\n" + bytes(100))
    report = crawler.sync()
    assert of(report, "notes.txt").status == "indexed" and of(report, "a.pdf").pages == 1
    assert "within one day" in crawler.documents()["hb/a"]
    assert "which is not read" in reason(report, "stream")
    assert of(report, "liar.html").status in ("skipped", "failed")
    assert "/logo.png" not in web.asked


def test_several_domains_stand_in_the_ids(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "One.")
    host = web.host
    crawler.sync(domains=("127.0.0.1", "example.org"))
    assert set(crawler.documents()) == {f"hb/{host}/index"}


def test_the_encoding_that_the_server_states_counts(crawler: Crawler) -> None:
    html = "<html><head><meta charset=utf-8><title>x</title></head><body><p>Überstunden sind möglich.</p></body>"
    crawler.web.put("/", html.encode("latin-1"), kind="text/html; charset=iso-8859-1")
    crawler.sync()
    assert "Überstunden sind möglich." in crawler.documents()["hb/index"]


# renewing


def test_a_page_that_has_not_changed_is_neither_sent_nor_parsed_again(
    crawler: Crawler, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a", "/b"))
    web.page("/a", "Text of a.")
    web.put("/b", "<title>b</title><p>Text of b.", headers={"Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT"})
    crawler.sync()
    web.headers.clear()
    web.page("/a", "Text of a, changed.")
    report = crawler.sync()
    assert statuses(report) == {"index.html": "unchanged", "a.html": "indexed", "b.html": "unchanged"}
    conditions = [h.get("if-none-match") or h.get("if-modified-since") for h in web.headers]
    assert conditions[0] is None and all(conditions[1:])
    assert "changed" in crawler.documents()["hb/a"]


def test_what_changes_around_the_text_changes_no_document(crawler: Crawler) -> None:
    html = "<title>t</title><main><h1>t</h1><p>Text.</p></main><footer>Built at {}</footer>"
    crawler.web.put("/", html.format("ten"))
    crawler.sync()
    crawler.web.put("/", html.format("eleven"))
    assert statuses(crawler.sync()) == {"index.html": "unchanged"}


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_is_gone_leaves_the_index(crawler: Crawler, status: int) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a", "/never"))
    web.page("/a", "Text of a.")
    assert reason(crawler.sync(), "never") == "answers 404"
    web.put("/a", status=status)
    assert of(crawler.sync(), "a.html").status == "removed"
    assert set(crawler.documents()) == {"hb/index"}


@pytest.mark.parametrize("status", [500, 503, 429, 418])
def test_a_page_that_fails_keeps_its_version_and_is_tried_again(crawler: Crawler, status: int) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a", "/new"))
    web.page("/a", "Text of a.", links=("/b",))
    web.page("/b", "Text of b.")
    web.put("/new", status=status)
    crawler.sync()
    web.put("/a", status=status)
    report = crawler.sync()
    assert of(report, "a.html").status == "failed" and "is kept" in reason(report, "a.html")
    assert of(report, "new").status == "failed" and "kept" not in reason(report, "new")
    assert of(report, "b.html").status == "unchanged"
    assert "Text of a." in crawler.documents()["hb/a"]
    web.page("/a", "Text of a, again.")
    assert of(crawler.sync(), "a.html").status == "indexed"


def test_a_page_that_is_slow_is_a_failure_of_that_page(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/slow", "/a"))
    web.page("/a", "Text of a.")
    web.put("/slow", "x", hold=threading.Event())
    report = crawler.sync(timeout=1.0)
    assert "took longer than 1 s" in reason(report, "slow")
    assert of(report, "a.html").status == "indexed"


def test_a_site_that_is_down_keeps_everything_and_is_left_alone(crawler: Crawler) -> None:
    web = crawler.web
    links = tuple(f"/{name}" for name in "abcdefghij")
    web.page("/", "Welcome.", links=links)
    for link in links:
        web.page(link, f"Text of {link}.")
    crawler.sync()
    for path in ("/", *links):
        web.put(path, status=500)
    web.asked.clear()
    report = crawler.sync()
    assert {f.status for f in report.files} == {"failed"} and len(report.files) == 11
    assert len(web.pages_asked()) == site.GIVE_UP
    assert len(crawler.documents()) == 11


def test_a_page_no_longer_linked_stays_as_long_as_it_is_there(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a",))
    web.page("/a", "Text of a.")
    crawler.sync()
    web.page("/", "Welcome, without links.")
    assert of(crawler.sync(), "a.html").status == "unchanged"
    del web.pages["/a"]
    assert of(crawler.sync(), "a.html").status == "removed"


def test_a_page_that_is_no_longer_public_leaves_the_index(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a",))
    web.page("/a", "Text of a.")
    crawler.sync()
    web.put("/a", status=403)
    assert "not public" in reason(crawler.sync(), "a.html")
    assert set(crawler.documents()) == {"hb/index"}


def test_a_crawl_that_was_killed_goes_on_where_it_was(crawler: Crawler, monkeypatch: pytest.MonkeyPatch) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a", "/b", "/c"))
    for name in "abc":
        web.page(f"/{name}", f"Text of {name}.")
    whole = site._Fetcher.get  # pyright: ignore[reportPrivateUsage]

    def dies(self: Any, place: Any, **options: Any) -> Any:
        if place.target == "/b":
            raise KeyboardInterrupt
        return whole(self, place, **options)

    with monkeypatch.context() as patched:
        patched.setattr(site._Fetcher, "get", dies)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(KeyboardInterrupt):
            crawler.sync()
    web.asked.clear()
    report = crawler.sync()
    assert web.pages_asked() == ["/b", "/c"]
    assert len(crawler.documents()) == 4 and report.count("failed") == 0


def test_a_damaged_store_is_made_anew(crawler: Crawler) -> None:
    crawler.web.page("/", "Welcome.")
    crawler.sync()
    (file,) = (crawler.root / ".citehound" / "sites").glob("*.sqlite")
    file.write_bytes(b"no database at all" * 100)
    assert statuses(crawler.sync()) == {"index.html": "unchanged"}


def test_rebuilding_uses_what_is_kept(crawler: Crawler) -> None:
    crawler.web.page("/", "Welcome.", links=("/a",))
    crawler.web.page("/a", "Text of a.")
    crawler.sync()
    crawler.web.put("/a", status=500)
    with Corpus.open(crawler.config(), write=True) as corpus:
        corpus.sync(rebuild=True)
    assert set(crawler.documents()) == {"hb/index", "hb/a"}


# manners


def test_robots_txt_is_obeyed(crawler: Crawler) -> None:
    web = crawler.web
    web.put(
        "/robots.txt",
        "User-agent: *\nDisallow: /\n\nUser-agent: citehound\nDisallow: /private/\nAllow: /private/open\n"
        "Disallow: /*.pdf$\nCrawl-delay: 3\n",
        kind="text/plain",
    )
    web.page("/", "Welcome.", links=("/private/x", "/private/open", "/a.pdf", "/to"))
    web.page("/private/open", "An open page.")
    web.put("/to", status=302, headers={"Location": "/private/x"})
    report = crawler.sync()
    assert "robots.txt" in reason(report, "private/x") and "robots.txt" in reason(report, "a.pdf")
    assert set(crawler.documents()) == {"hb/index", "hb/private/open"}
    assert "/private/x" not in web.asked and web.asked.count("/robots.txt") == 1
    assert crawler.slept and all(2.9 < pause <= 3 for pause in crawler.slept)
    assert len(crawler.slept) == len(web.asked) - 1


def test_a_page_that_robots_txt_takes_back_leaves_the_index(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a",))
    web.page("/a", "Text of a.")
    crawler.sync()
    web.put("/robots.txt", "User-agent: *\nDisallow: /a\n", kind="text/plain")
    assert "robots.txt" in reason(crawler.sync(), "a.html")
    assert set(crawler.documents()) == {"hb/index"}


def test_nothing_is_fetched_without_robots_txt_being_known(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.")
    crawler.sync()
    web.put("/robots.txt", status=503)
    web.asked.clear()
    report = crawler.sync()
    assert "robots.txt cannot be had" in reason(report, "index.html")
    assert web.pages_asked() == [] and set(crawler.documents()) == {"hb/index"}


def test_pauses_are_kept_between_requests(crawler: Crawler) -> None:
    crawler.web.page("/", "Welcome.", links=("/a",))
    crawler.web.page("/a", "Text of a.")
    crawler.sync(delay=2.0)
    assert len(crawler.slept) == 2 and all(1.9 < pause <= 2 for pause in crawler.slept)


def test_a_page_says_whether_it_may_be_indexed_and_followed(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/no", "/header", "/leaf"))
    web.page("/no", "Not for an index.", links=("/below",), head='<meta name="robots" content="noindex">')
    web.page("/header", "Nor this.", X_Robots_Tag="none")
    web.page("/leaf", "A leaf.", links=("/hidden",), head='<meta name="ROBOTS" content="nofollow">')
    web.page("/below", "Below.")
    report = crawler.sync()
    assert "noindex" in reason(report, "no.html") and "noindex" in reason(report, "header.html")
    assert set(crawler.documents()) == {"hb/index", "hb/leaf", "hb/below"}
    assert "/hidden" not in web.asked


def test_the_configured_name_is_sent(crawler: Crawler) -> None:
    crawler.web.page("/", "Welcome.")
    crawler.sync(user_agent="acme-search (+https://example.org/bot)")
    assert {h["user-agent"] for h in crawler.web.headers} == {"acme-search (+https://example.org/bot)"}


# one page under several addresses


def test_a_canonical_address_is_the_page(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a?print=1", "/old", "/loop1", "/orphan"))
    web.page("/a?print=1", "Text of a, for print.", head='<link rel=canonical href="/a">')
    web.page("/a", "Text of a.", head='<link rel=canonical href="/a">')
    web.page("/old", "The old front.", head='<link rel=canonical href="/">')
    web.page("/loop1", "Loop one.", head='<link rel=canonical href="/loop2">')
    web.page("/loop2", "Loop two.", head='<link rel=canonical href="/loop1">')
    web.page("/orphan", "An orphan.", head='<link rel=canonical href="/gone">')
    report = crawler.sync()
    assert set(crawler.documents()) == {"hb/index", "hb/a", "hb/old", "hb/loop2", "hb/orphan"}
    assert "the same page as" in reason(report, "a?print=1.html")


def test_the_same_text_is_one_document_and_stays_it(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a", "/a/", "/a?utm_source=x&b=2&a=1#top", "/a;jsessionid=1"))
    web.page("/a", "Text of a.")
    web.pages["/a/"] = web.pages["/a"]
    web.pages["/a?a=1&b=2"] = web.pages["/a"]
    for indexed in (2, 0):
        assert crawler.sync().count("indexed") == indexed
        assert set(crawler.documents()) == {"hb/index", "hb/a"}
    assert "/a;jsessionid=1" not in web.asked


def test_two_pages_of_one_name_have_an_id_each_and_keep_it(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/a", "/a/", "/a.html"))
    for path in ("/a", "/a/", "/a.html"):
        web.page(path, f"Text of {path} itself.")
    crawler.sync()
    first = crawler.documents()
    assert len(first) == 4
    web.page("/", "Welcome.", links=("/a.html", "/a/", "/a"))
    report = crawler.sync()
    assert {k: v for k, v in crawler.documents().items() if k != "hb/index"} == {
        k: v for k, v in first.items() if k != "hb/index"
    }
    assert report.count("indexed") == 1


# limits


def test_what_redirects_is_followed_inside_the_domains_only(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/moved", "/away", "/inside", "/loop", "/nowhere", "https://other.example/"))
    web.put("/moved", status=301, headers={"Location": "/new"})
    web.page("/new", "The new page.")
    web.put("/away", status=302, headers={"Location": "https://other.example/x"})
    web.put("/inside", status=302, headers={"Location": "http://169.254.169.254/latest/meta-data/"})
    web.put("/loop", status=302, headers={"Location": "/loop"})
    web.put("/nowhere", status=302)
    report = crawler.sync()
    assert set(crawler.documents()) == {"hb/index", "hb/new"}
    assert "outside the domains" in reason(report, "away")
    assert "outside the domains" in reason(report, "inside")


def test_a_long_chain_of_redirects_ends(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/r/a",))
    for n in range(20):
        web.put("/r/" + "a" * (n + 1), status=302, headers={"Location": "/r/" + "a" * (n + 2)})
    report = crawler.sync()
    assert any("redirects more than" in (f.reason or "") for f in report.files)
    assert len(web.pages_asked()) < 10


def test_a_private_host_that_is_not_named_is_refused(crawler: Crawler) -> None:
    crawler.web.page("/", "Welcome.")
    with pytest.raises(ConfigError, match="https"):
        crawler.sync(allow_private_hosts=())
    report = crawler.sync(start=("https://127.0.0.1/",), allow_private_hosts=(), domains=("127.0.0.1",))
    assert "private address" in (report.files[0].reason or "")
    assert crawler.web.asked == []


def test_pages_and_depth_are_bounded_and_the_report_says_so(crawler: Crawler) -> None:
    web = crawler.web
    for n in range(30):
        web.page(f"/{'p' * n}" if n else "/", f"Page {n}.", links=(f"/{'p' * (n + 1)}",))
    assert len(crawler.sync(max_depth=4).files) == 5
    report = crawler.sync(max_pages=3)
    assert any("max_pages = 3 is reached" in (f.reason or "") for f in report.files)
    assert len(crawler.documents()) == 3


@pytest.mark.parametrize(
    "link",
    [
        "/calendar?month={n}",
        "/calendar/{n}",
        "/deep/{n}/",
        "more/",
        "/a/b/a/b/{n}",
        "/x?a={n}&b={n}",
        "/2026/11/{n}",
    ],
)
def test_a_trap_is_left(crawler: Crawler, link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_MOST_ALIKE", 60)
    web = crawler.web
    number = 0

    def endless() -> Reply:
        nonlocal number
        number += 1
        href = link.format(n=number)
        html = f"<title>{number}</title><main><p>Day number {number}.</p><a href='{href}'>next</a></main>"
        return Reply(body=html.encode())

    class Everything(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            return default if key == "/robots.txt" else endless

    web.pages = Everything()
    source = crawler.source(max_pages=140, max_depth=10_000)
    found = list(site.documents(source, crawler.root, {}, read=read_page))
    assert len(web.asked) < 65 and len(found) < 65


def test_a_huge_page_and_a_bomb_are_refused(crawler: Crawler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MAX_BYTES", 100_000)
    web = crawler.web
    web.page("/", "Welcome.", links=("/huge", "/bomb", "/a"))
    web.put("/huge", b"x" * 200_000)
    web.put("/bomb", gzip.compress(bytes(10_000_000)), headers={"Content-Encoding": "gzip"})
    web.page("/a", "Text of a.")
    report = crawler.sync()
    assert "larger than" in reason(report, "huge") and "compressed" in reason(report, "bomb")
    assert of(report, "a.html").status == "indexed"


@in_processes
def test_a_page_nested_without_end_fails_alone(crawler: Crawler) -> None:
    crawler.web.page("/", "Welcome.", links=("/deep", "/a"))
    crawler.web.put("/deep", b"<div>" * 100_000 + b"x")
    crawler.web.page("/a", "Text of a.")
    report = crawler.sync()
    assert "nested too deeply" in reason(report, "deep.html")
    assert of(report, "a.html").status == "indexed"


def test_only_what_is_wanted_is_fetched(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.", links=("/handbook/a", "/handbook/old/b", "/shop/c"))
    for path in ("/handbook/a", "/handbook/old/b", "/shop/c"):
        web.page(path, f"Text of {path}.")
    crawler.sync(include=("handbook/**",), exclude=("handbook/old/**",))
    assert set(crawler.documents()) == {"hb/handbook/a"}
    assert web.pages_asked() == ["/", "/handbook/a"]


# sitemaps


def sitemap(*urls: str, kind: str = "urlset", one: str = "url") -> str:
    rows = "".join(f"<{one}><loc> {url} </loc></{one}>" for url in urls)
    return f'<?xml version="1.0"?><{kind} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{rows}</{kind}>'


def test_a_sitemap_names_the_pages(crawler: Crawler) -> None:
    web = crawler.web
    web.put(
        "/sitemap.xml",
        sitemap(web.url("/one.xml"), web.url("/two.xml.gz"), kind="sitemapindex", one="sitemap"),
        kind="application/xml",
    )
    web.put("/one.xml", sitemap(web.url("/a?x=1&amp;y=2"), "https://other.example/"), kind="text/xml")
    web.put("/two.xml.gz", gzip.compress(sitemap(web.url("/b")).encode()), kind="application/gzip")
    web.page("/a?x=1&y=2", "Text of a.", links=("/c",))
    web.page("/b", "Text of b.")
    web.page("/c", "Text of c.")
    options: dict[str, Any] = {"start": (), "sitemap": (web.url("/sitemap.xml"),)}
    report = crawler.sync(max_depth=0, **options)
    assert set(crawler.documents(**options)) == {"hb/a?x=1&y=2", "hb/b"} and report.count("failed") == 0
    crawler.sync(**options)
    assert "hb/c" in crawler.documents(**options)


def test_a_sitemap_that_cannot_be_had_is_reported_and_keeps_pages(crawler: Crawler) -> None:
    web = crawler.web
    options: dict[str, Any] = {"start": (), "sitemap": (web.url("/sitemap.xml"),)}
    web.put("/sitemap.xml", sitemap(web.url("/a")), kind="application/xml")
    web.page("/a", "Text of a.")
    crawler.sync(**options)
    web.put("/sitemap.xml", status=500)
    report = crawler.sync(**options)
    assert statuses(report) == {"sitemap.xml": "failed", "a.html": "unchanged"}


def test_a_sitemap_cannot_be_a_bomb() -> None:
    with pytest.raises(ValueError, match="larger than 50 MB"):
        read_sitemap(gzip.compress(bytes(60_000_000)))
    entities = (
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>https://e.org/&b;</loc></url></urlset>'
    )
    assert read_sitemap(entities.encode()) == (("https://e.org/&b;",), ())
    assert read_sitemap(b"https://e.org/a\nnothing\nhttps://e.org/b\n") == (("https://e.org/a", "https://e.org/b"), ())


# addresses


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("HTTPS://Example.ORG:443/a/../b/./c#x", "https://example.org/b/c"),
        ("https://example.org", "https://example.org/"),
        ("https://example.org/%7euser//x/", "https://example.org/~user/x/"),
        ("https://example.org/ä b", "https://example.org/%C3%A4%20b"),
        ("https://example.org/a%2fb", "https://example.org/a%2Fb"),
        ("https://example.org/?b=2&a=1&utm_source=x&fbclid=1", "https://example.org/?a=1&b=2"),
        ("https://example.org/?q=a+b&empty=", "https://example.org/?empty&q=a%20b"),
        ("https://example.org/../../etc", "https://example.org/etc"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ],
)
def test_an_address_has_one_spelling(given: str, normal: str) -> None:
    assert normalised(given).url == normal
    assert normalised(normal).url == normal


# configuration and doctor


def test_doctor_asks_the_site(crawler: Crawler) -> None:
    web = crawler.web
    web.page("/", "Welcome.")
    assert answers(crawler.source()) is None
    web.put("/", status=503)
    assert "answers 503" in (answers(crawler.source()) or "")
    web.put("/robots.txt", "User-agent: *\nDisallow: /", kind="text/plain")
    assert "robots.txt" in (answers(crawler.source()) or "")


def test_the_doctor_command_says_whether_a_site_answers_and_allows_it(
    crawler: Crawler, capsys: pytest.CaptureFixture[str]
) -> None:
    source = crawler.source()
    (crawler.root / "citehound.toml").write_text(
        f'[[sources]]\nname = "{source.name}"\ndescription = "A handbook."\nkind = "site"\ndelay = 0\ntimeout = 5\n'
        f"start = {list(source.start)!r}\nallow_private_hosts = {list(source.allow_private_hosts)!r}\n",
        encoding="utf-8",
    )

    def says() -> str:
        with pytest.raises(SystemExit):
            main(["doctor", "--no-calls", "--config", str(crawler.root / "citehound.toml")])
        return capsys.readouterr().out

    crawler.web.page("/", "Welcome.")
    assert f"the site of '{source.name}' answers" in says()
    crawler.web.put("/robots.txt", "User-agent: *\nDisallow: /", kind="text/plain")
    assert "cannot be crawled" in says()


def test_looking_for_changes_does_not_crawl(crawler: Crawler) -> None:
    crawler.web.page("/", "Welcome.")
    crawler.sync()
    crawler.web.asked.clear()
    with Corpus.open(crawler.config()) as corpus:
        (change,) = corpus.changes()
    assert (change.documents, change.stale) == (1, 0) and crawler.web.asked == []


def test_time_is_the_systems_unless_a_test_has_its_own() -> None:
    assert Means().clock is time.time and Means().sleep is time.sleep


class TestSiteIsASource(SourceConformance):
    name = "hb"

    @pytest.fixture(autouse=True)
    def begin(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.links: list[str] = []
        crawler.web.page("/", "Welcome.")

    def put(self, stem: str, text: str) -> None:
        path = "/" + quote(stem)
        self.crawler.web.page(path, text)
        self.links = sorted({*self.links, path})
        self.crawler.web.page("/", "Welcome.", links=tuple(self.links))

    def take(self, stem: str) -> None:
        del self.crawler.web.pages["/" + quote(stem)]

    def items(self, known: dict[str, str] | None = None) -> list[Item]:
        return list(site.documents(self.crawler.source(), self.crawler.root, known or {}, read=read_page))

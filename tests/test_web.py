"""The web as a source: found is not read, fetched is checked like anything else, and nothing else is fetched."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic_ai.messages import ModelResponse, NativeToolReturnPart, TextPart
from pydantic_ai.usage import RequestUsage

from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.budget import Price
from citehound.config import load
from citehound.corpus import Corpus
from citehound.drafts import Draft
from citehound.errors import ConfigError, SourceFailed, UnknownDocument
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, ScriptedRequest, Turn, call
from small import quoting

LIMIT = "Parcels are returned within 30 days of their arrival."
OTHER = "Parcels of the northern depot are returned within 45 days."
PAGES = {
    "/returns": f"<html><title>Returns</title><h1>Returns</h1><h2>1 Time</h2><p>{LIMIT}</p>"
    "<script>steal()</script><p style='display:none'>hidden words</p></html>",
    "/north": f"<html><title>North</title><p>{OTHER}</p></html>",
}


@dataclass
class Web:
    port: int
    asked: list[str] = field(default_factory=list[str])
    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    pages: dict[str, str] = field(default_factory=lambda: dict(PAGES))
    answer: Callable[[str], bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def id(self, path: str) -> str:
        return f"web/http://{self.host}{path}"

    @property
    def fetched(self) -> list[str]:
        return [path for path in self.asked if not path.startswith("/search")]


@pytest.fixture
def web() -> Generator[Web]:
    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            parts = urlsplit(self.path)
            if parts.path == "/search":
                rows = {"query": parse_qs(parts.query)["q"][0], "results": served.results}
                body, kind = json.dumps(rows).encode(), "application/json"
                if served.answer is not None:
                    body = served.answer(self.path)
            elif parts.path in served.pages:
                body, kind = served.pages[parts.path].encode(), "text/html; charset=utf-8"
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    served = Web(port=server.server_address[1])
    served.results = [
        {"url": served.url("/returns"), "title": "Returns", "content": "When <b>parcels</b> go back"},
        {"url": served.url("/north"), "title": "North", "content": "The northern depot"},
        {"url": "https://elsewhere.test/x", "title": "Elsewhere", "content": "x"},
    ]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


def toml(web: Web, more: str = "") -> str:
    return (
        '[[sources]]\nname = "web"\nkind = "web"\ndescription = "Public pages."\n'
        f'search_url = "http://{web.host}/search?q={{query}}&format=json"\n'
        f'domains = ["{web.host}"]\nallow_private_hosts = ["{web.host}"]\n{more}'
    )


def write(folder: Path, text: str) -> Path:
    path = folder / "citehound.toml"
    path.write_text(text, "utf-8")
    return path


@contextmanager
def assistant(tmp_path: Path, web: Web, turns: list[Turn] | None = None, more: str = "") -> Generator[Assistant]:
    model = None if turns is None else ScriptedModel(turns)
    with Assistant.open(write(tmp_path, toml(web, more)), model=model) as opened:
        yield opened


SEARCH = call("search_web", {"query": "parcels returned"})


def test_a_quote_from_the_web_is_verified_against_the_page_that_was_fetched(tmp_path: Path, web: Web) -> None:
    read = call("read_document", {"document": web.id("/returns")})
    with assistant(tmp_path, web, [SEARCH, read, quoting(web.id("/returns"), LIMIT)]) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    citation = answer.claims[0].citations[0]
    assert (answer.status, citation.status, citation.section) == ("complete", "verified", "1")
    assert web.fetched == ["/returns"]
    assert web.asked[0] == "/search?q=parcels%20returned&format=json"


def test_a_search_result_is_a_hit_and_never_read(tmp_path: Path, web: Web) -> None:
    with assistant(tmp_path, web, [SEARCH, *[quoting(web.id("/returns"), LIMIT)] * 2]) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    assert answer.claims[0].status == "unverified"
    assert [r.document for r in answer.calls[0].returned] == [web.id("/returns"), web.id("/north")]
    assert web.fetched == []


def test_what_a_result_says_is_no_text_of_the_page(tmp_path: Path, web: Web) -> None:
    read = call("read_document", {"document": web.id("/returns")})
    quote = "When parcels go back to the sender"
    web.results[0]["content"] = quote
    with assistant(tmp_path, web, [SEARCH, read, *[quoting(web.id("/returns"), quote)] * 2]) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    assert answer.claims[0].status == "unverified"


def test_only_what_a_search_or_the_question_names_is_fetched(tmp_path: Path, web: Web) -> None:
    web.pages["/secret"] = "<p>Never asked for by anybody at all.</p>"
    reads = [
        call("read_document", {"document": document})
        for document in (web.id("/secret"), web.url("/secret"), "https://example.org/", "web/example.org/x")
    ]
    with assistant(tmp_path, web, [SEARCH, reads, Draft(), Draft()]) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    assert all(c.error for c in answer.calls[1:])
    assert web.fetched == []


def test_a_page_that_the_question_names_may_be_fetched(tmp_path: Path, web: Web) -> None:
    web.results = []
    url = web.url("/returns")
    turns: list[Turn] = [call("read_document", {"document": url}), quoting(web.id("/returns"), LIMIT)]
    with assistant(tmp_path, web, turns) as opened:
        answer = opened.ask_sync(f"What does {url}, the page on returns, say of time?", mode="agent")
    assert answer.status == "complete"


def test_the_offline_model_searches_reads_and_quotes_the_web(tmp_path: Path, web: Web) -> None:
    for mode in ("agent", "single", "hops", "auto"):
        with assistant(tmp_path, web) as opened:
            answer = opened.ask_sync("Within how many days are parcels returned?", mode=mode)
        assert any(c.status == "verified" for claim in answer.claims for c in claim.citations), mode
        assert "30 days" in answer.text


def test_a_run_fetches_no_more_than_its_pages(tmp_path: Path, web: Web) -> None:
    reads = [call("read_document", {"document": web.id(path)}) for path in ("/returns", "/north")]
    with assistant(tmp_path, web, [SEARCH, *reads, Draft(), Draft()], more="max_fetches = 1\n") as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    assert "may fetch 1 pages" in (answer.calls[2].error or "")
    assert web.fetched == ["/returns"]


def test_reading_and_finding_in_a_page_fetches_it_once(tmp_path: Path, web: Web) -> None:
    document = web.id("/returns")
    turns: list[Turn] = [
        SEARCH,
        call("find_in_document", {"document": document, "phrase": "parcels"}),
        call("read_document", {"document": document}),
        quoting(document, LIMIT),
    ]
    with assistant(tmp_path, web, turns) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
        assert answer.status == "complete"
        assert web.fetched == ["/returns"]
        text = opened.corpus.document(document, principal=OWNER).text
        metadata = opened.corpus.document(document, principal=OWNER).metadata
    assert "hidden words" not in text and "steal" not in text
    assert metadata["url"] == web.url("/returns")


def test_the_next_turn_can_cite_what_was_fetched(tmp_path: Path, web: Web) -> None:
    document = web.id("/returns")
    turns: list[Turn] = [SEARCH, call("read_document", {"document": document}), quoting(document, LIMIT)]
    with assistant(tmp_path, web, [*turns, call("read_document", {"document": document}), turns[-1]]) as opened:
        opened.ask_sync("When are parcels returned?", mode="agent")
        answer = opened.ask_sync("And again?", mode="agent")
    assert answer.status == "complete"
    assert web.fetched == ["/returns"]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"not json", "did not answer with JSON"),
        (b"[" * 100_000, "did not answer with JSON"),
        (b"{}", ""),
        (b'{"results": [1, "x", null, {"url": 7}, {"title": "no url"}]}', ""),
    ],
)
def test_a_search_that_answers_nonsense_is_a_tool_error(tmp_path: Path, web: Web, reply: bytes, why: str) -> None:
    web.answer = lambda _: reply
    with assistant(tmp_path, web, [SEARCH, Draft(), Draft()]) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    assert why in (answer.calls[0].error or "")
    assert answer.calls[0].returned == ()


def test_a_page_that_is_gone_is_a_tool_error(tmp_path: Path, web: Web) -> None:
    web.pages.clear()
    read = call("read_document", {"document": web.id("/returns")})
    with assistant(tmp_path, web, [SEARCH, read, Draft(), Draft()]) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    assert "answers 404" in (answer.calls[1].error or "")


def test_search_fees_are_dollars(tmp_path: Path, web: Web) -> None:
    with assistant(tmp_path, web, more="fee = 0.01\n") as opened:
        answer = opened.ask_sync("Within how many days are parcels returned?", mode="single")
    assert answer.usage.dollars == pytest.approx(0.01)


BESIDE = '[[sources]]\nname = "docs"\npath = "docs"\n'


def test_the_web_beside_a_private_source_is_refused_at_the_start(tmp_path: Path, web: Web) -> None:
    (tmp_path / "docs").mkdir()
    with pytest.raises(ConfigError, match="'web' reaches out while source 'docs' is private") as caught:
        load(write(tmp_path, toml(web) + BESIDE), env={})
    assert "\n" not in str(caught.value)
    public = load(write(tmp_path, toml(web) + BESIDE + "private = false\n"), env={})
    assert [s.private for s in public.sources] == [False, False]
    assert public.sources[0].trust == "open"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ('search_url = "https://s.test/?q={query}"', "needs `domains`"),
        ('domains = ["example.org"]', "needs search_url"),
        ('domains = ["example.org"]\nsearch_url = "https://s.test/"', r"\{query\}"),
        ('domains = ["example.org"]\nsearch_url = "https://s.test/?q={query}"\nprivate = true', "is not private"),
        ('domains = ["example.org"]\nsearch_url = "https://s.test/?q={query}"\nfilters = ["x"]', "no filters"),
        ('domains = ["example.org"]\nengine = "surch"\nsearch_url = "https://s.test/?q={query}"', "'search'"),
        ('domains = ["example.org"]\nengine = "provider"\nsearch_url = "https://s.test/?q={query}"', "one of the two"),
    ],
)
def test_a_web_source_that_cannot_work_is_refused(tmp_path: Path, lines: str, why: str) -> None:
    text = f'[[sources]]\nname = "web"\nkind = "web"\n{lines}\n'
    with pytest.raises(ConfigError, match=why):
        load(write(tmp_path, text), env={})


@pytest.mark.parametrize(
    ("search", "domain", "private"),
    [
        ("http://s.test/?q={query}", "example.org", ""),
        ("https://localhost/?q={query}", "example.org", ""),
        ("https://{query}.s.test@127.0.0.1/", "example.org", ""),
        ("https://0x7f000001/?q={query}", "example.org", ""),
        ("https://s.test/?q={query}", "exa mple", ""),
        ("https://s.test/?q={query}", "2130706433", ""),
        ("https://s.test/?q={query}", "example.org", "127.0.0.1"),
    ],
)
def test_unsafe_hosts_in_the_configuration_are_refused(tmp_path: Path, search: str, domain: str, private: str) -> None:
    hosts = f'allow_private_hosts = ["{private}"]\n' if private else ""
    text = f'[[sources]]\nname = "web"\nkind = "web"\ndomains = ["{domain}"]\nsearch_url = "{search}"\n{hosts}'
    with pytest.raises(ConfigError) as caught:
        Corpus(load(write(tmp_path, text), env={}))
    assert "\n" not in str(caught.value)


def test_outside_of_a_question_nothing_is_fetched(tmp_path: Path, web: Web) -> None:
    with Corpus(load(write(tmp_path, toml(web)), env={}), write=True) as corpus:
        corpus.sync()
        with pytest.raises(UnknownDocument):
            corpus.read(web.url("/returns"), principal=OWNER)
        assert corpus.search("web", "parcels", principal=OWNER).hits[0].document == web.id("/returns")
        web.pages["/returns"] = "x" * 10
        with pytest.raises(SourceFailed):
            corpus.search("web", "x" * 5000, principal=OWNER)
    assert web.fetched == []


# The provider's own search ------------------------------------------------------------------------------------------


class Searching(ScriptedModel):
    """Plays a provider that searches the web itself, in requests that allow it; all others by the script."""

    def __init__(self, turns: list[Turn], *, rows: Any, provider: str = "anthropic") -> None:
        super().__init__(turns)
        self._rows = rows
        self._provider_name = provider
        self.searches: list[ScriptedRequest] = []

    @property
    def system(self) -> str:
        return self._provider_name

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> ModelResponse:
        if not model_request_parameters.native_tools:
            return await super().request(messages, model_settings, model_request_parameters)
        sent = ScriptedRequest(messages=tuple(messages), settings=model_settings, parameters=model_request_parameters)
        self.searches.append(sent)
        if isinstance(self._rows, Exception):
            raise self._rows
        part = NativeToolReturnPart(tool_name="web_search", content=self._rows, tool_call_id="s")
        usage = RequestUsage(input_tokens=8000, output_tokens=10)
        return ModelResponse(parts=[part, TextPart("done, and 45 days by the way")], usage=usage)


def provider_toml(web: Web) -> str:
    lines = [line for line in toml(web, 'engine = "provider"\n').splitlines() if not line.startswith("search_url")]
    return "\n".join(lines) + "\n"


def test_the_providers_search_finds_pages_and_citehound_fetches_them(tmp_path: Path, web: Web) -> None:
    document = web.id("/returns")
    rows = [
        {"type": "web_search_result", "url": web.url("/returns"), "title": "Returns", "encrypted_content": "x"},
        {"type": "web_search_result", "url": "https://elsewhere.test/", "title": "Elsewhere"},
    ]
    turns: list[Turn] = [SEARCH, call("read_document", {"document": document}), quoting(document, LIMIT)]
    model = Searching(turns, rows=rows)
    priced = OpenedModel(model=model, name="anthropic:x", price=Price(input=1.0, output=5.0))
    with Assistant.open(write(tmp_path, provider_toml(web)), model=priced) as opened:
        answer = opened.ask_sync("When are parcels returned?", mode="agent")
    assert answer.status == "complete"
    assert [r.document for r in answer.calls[0].returned] == [document]
    tool = model.searches[0].parameters.native_tools[0]
    assert (tool.allowed_domains, tool.max_uses) == (["127.0.0.1"], 1)
    assert answer.usage.model_calls == 4
    own = 3 * (100 * 1.0 + 50 * 5.0) / 1_000_000
    assert answer.usage.dollars == pytest.approx(0.01 + (8000 * 1.0 + 10 * 5.0) / 1_000_000 + own)


def test_a_providers_search_that_fails_is_a_tool_error(tmp_path: Path, web: Web) -> None:
    for rows in (RuntimeError("overloaded"), {"type": "error", "error_code": "max_uses_exceeded"}):
        model = Searching([SEARCH, Draft(), Draft()], rows=rows)
        with Assistant.open(write(tmp_path, provider_toml(web)), model=model) as opened:
            answer = opened.ask_sync("When are parcels returned?", mode="agent")
        assert answer.calls[0].returned == ()
        assert isinstance(rows, dict) or "overloaded" in (answer.calls[0].error or "")


def test_a_provider_that_cannot_keep_to_domains_is_refused(tmp_path: Path, web: Web) -> None:
    path = write(tmp_path, provider_toml(web))
    model = Searching([], rows=[], provider="openai")
    for given in (OpenedModel(model=model, name="openai:x", price=None), None):
        with pytest.raises(ConfigError, match="keep to domains") as caught, Assistant.open(path, model=given) as opened:
            opened.ask_sync("When?", max_dollars=float("inf"))
        assert "\n" not in str(caught.value)

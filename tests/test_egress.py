"""The one way out: spellings, addresses, rebinding, redirects and limits; with a fake resolver, and over loopback."""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from citehound.egress import Egress, Policy, host_of, is_public, place_of
from citehound.errors import EgressRefused, SourceFailed

PUBLIC = "93.184.215.14"
OTHER = "151.101.1.140"

HOSTS = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "foo.localhost",
    "printer.local",
    "metadata.google.internal",
    "db.corp",
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "127.000.000.001",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "0X7F000001",
    "2130706433",
    "017700000001",
    "0",
    "0.0.0.0",
    "0x0",
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.1",
    "3232235521",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "169.254.43518",
    "0251.0376.0251.0376",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:7f00:1::]",
    "[2a00:1450::5efe:7f00:1]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fec0::1]",
    "[ff02::1]",
    "[::1",
    "１２７.0.0.1",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
    "127.0.0.1%2f@example.org",
    "127.0.0.1%00.example.org",
    "example.org@127.0.0.1",
    "example.org:443@127.0.0.1",
    "127.0.0.1\\.example.org",
    "127.0.0.1#.example.org",
    "loc\tal",
    "exam ple.org",
    "-bad-.example",
    "1.2.3.4.5",
    "256.256.256.256",
]


class Network:
    """A network that only writes down who was connected to."""

    def __init__(self, answer: Callable[[httpx2.Request], httpx2.Response] | None = None) -> None:
        self.connected: list[str] = []
        self.requests: list[httpx2.Request] = []
        self._answer = answer

    def __call__(self) -> httpx2.MockTransport:
        def answer(request: httpx2.Request) -> httpx2.Response:
            self.connected.append(request.url.host)
            self.requests.append(request)
            if self._answer is not None:
                return self._answer(request)
            return page("<p>hello</p>")

        return httpx2.MockTransport(answer)


def page(text: str, kind: str = "text/html; charset=utf-8", status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, content=text.encode(), headers={"content-type": kind, **headers})


def names(*answers: Sequence[str]) -> Any:
    """A resolver that gives these answers in turn, the last one again and again."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


ANYWHERE = Policy(domains=("*",), http=True)


def get(url: str, *, policy: Policy = ANYWHERE, network: Network | None = None, resolve: Any = None) -> Any:
    egress = Egress(policy, resolve=resolve or names([PUBLIC]), transport=network or Network())
    return asyncio.run(egress.get(url))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("scheme", ["https", "http"])
def test_no_spelling_of_a_host_reaches_a_private_address(host: str, scheme: str) -> None:
    network = Network()

    async def as_systems_do(name: str, port: int) -> Sequence[str]:
        try:  # what a lenient system resolver makes of unusual forms
            return [socket_spelling(name)]
        except OSError:
            return ["127.0.0.1"]

    with pytest.raises(SourceFailed):
        get(f"{scheme}://{host}/x", network=network, resolve=as_systems_do)
    assert network.connected == []


def socket_spelling(name: str) -> str:
    import socket

    return socket.inet_ntoa(socket.inet_aton(name))


@pytest.mark.parametrize(
    "answers",
    [
        [["127.0.0.1"]],
        [["::1"]],
        [["169.254.169.254"]],
        [["fe80::1%eth0"]],
        [["::ffff:10.0.0.1"]],
        [["64:ff9b::a00:1"]],
        [[PUBLIC, "10.0.0.1"]],  # one of several is enough
        [["10.0.0.1", PUBLIC]],
        [["not an address"]],
        [[]],
    ],
)
def test_a_name_that_leads_to_a_private_address_is_not_connected_to(answers: list[list[str]]) -> None:
    network = Network()
    with pytest.raises(SourceFailed):
        get("https://example.org/", network=network, resolve=names(*answers))
    assert network.connected == []


def test_the_address_that_was_checked_is_the_one_connected_to() -> None:
    network = Network()
    rebinding = names([PUBLIC], ["127.0.0.1"], ["127.0.0.1"])
    assert get("https://example.org/a?b=c", network=network, resolve=rebinding).data == b"<p>hello</p>"
    assert network.connected == [PUBLIC]
    sent = network.requests[0]
    assert sent.headers["host"] == "example.org"
    assert sent.extensions["sni_hostname"] == "example.org"
    assert str(sent.url) == f"https://{PUBLIC}/a?b=c"


PRIVATE = [
    *("127.0.0.1", "::1", "10.0.0.7", "169.254.169.254"),
    *("::ffff:192.168.0.1", "64:ff9b::a00:1", "fd00::1", "100.64.0.9"),
]
ANSWERS = st.lists(st.sampled_from([PUBLIC, OTHER, "2606:4700:4700::1111", *PRIVATE]), min_size=1, max_size=3)


@given(st.lists(ANSWERS, min_size=1, max_size=6), st.sampled_from([301, 302, 303, 307, 308]), st.booleans())
def test_no_sequence_of_answers_and_redirects_connects_to_a_private_address(
    answers: list[list[str]], status: int, same_host: bool
) -> None:
    """A name that leads elsewhere at each look-up, over redirects that go on and on."""
    hops = iter(range(100))

    def bounce(request: httpx2.Request) -> httpx2.Response:
        where = "https://example.org/" if same_host else f"https://h{next(hops)}.example.org/"
        return httpx2.Response(status, headers={"location": where})

    network = Network(bounce)
    with pytest.raises(SourceFailed):
        get("https://example.org/", network=network, resolve=names(*answers))
    assert not set(network.connected) & set(PRIVATE)
    allowed = 0  # look-ups before the first answer that holds a private address
    while allowed < len(answers) and not set(answers[allowed]) & set(PRIVATE):
        allowed += 1
    if allowed < len(answers):
        assert len(network.connected) <= allowed


def test_a_redirect_is_looked_up_and_checked_again() -> None:
    def bounce(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(302, headers={"location": "https://example.org/again"})

    network = Network(bounce)
    with pytest.raises(EgressRefused, match="private address"):
        get("https://example.org/", network=network, resolve=names([PUBLIC], [OTHER], ["127.0.0.1"]))
    assert network.connected == [PUBLIC, OTHER]


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1/",
        "https://[::1]/",
        "//localhost/",
        "https://example.org:22/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "javascript:alert(1)",
        "https://user:pw@example.org/",
        "https://0x7f000001/",
        "http://example.org/",
        "https://elsewhere.test/",
    ],
)
def test_a_redirect_to_what_is_not_allowed_is_not_followed(target: str) -> None:
    network = Network(lambda _: httpx2.Response(301, headers={"location": target}))
    with pytest.raises(EgressRefused):
        get("https://example.org/", policy=Policy(domains=("example.org",), http=True), network=network)
    assert network.connected == [PUBLIC]


def test_redirects_end() -> None:
    network = Network(lambda _: httpx2.Response(302, headers={"location": "/next"}))
    with pytest.raises(SourceFailed, match="more than 3 times"):
        get("https://example.org/", network=network)
    assert len(network.connected) == 4


def test_a_public_page_cannot_redirect_to_a_private_host_that_is_allowed() -> None:
    network = Network(lambda _: httpx2.Response(302, headers={"location": "http://127.0.0.1:8080/admin"}))
    policy = Policy(domains=("*",), private_hosts=("127.0.0.1:8080",))
    with pytest.raises(EgressRefused, match="redirects"):
        get("https://example.org/", policy=policy, network=network)
    assert network.connected == [PUBLIC]


def test_only_allowed_domains_and_what_is_below_them_are_reached() -> None:
    policy = Policy(domains=("example.org", "other.test:8443"))
    for url in ("https://example.org/", "https://www.EXAMPLE.org./", "https://other.test:8443/"):
        assert get(url, policy=policy).data
    network = Network()
    for url in (
        "https://notexample.org/",
        "https://example.org.evil.test/",
        "https://other.test/",
        "https://example.org:8443/",
        "http://example.org/",
    ):
        with pytest.raises(EgressRefused):
            get(url, policy=policy, network=network)
    assert network.connected == []


def test_a_domain_in_another_script_has_one_spelling() -> None:
    assert host_of("BÜCHER.example") == host_of("xn--bcher-kva.example") == "xn--bcher-kva.example"
    assert place_of("https://Example.org./p").url == "https://example.org/p"


def test_metadata_addresses_stay_out_of_reach_of_allowed_private_hosts() -> None:
    policy = Policy(domains=("*",), private_hosts=("search.internal:80", "169.254.169.254:80"))
    network = Network()
    for url, answer in (("http://search.internal/", "169.254.169.254"), ("http://169.254.169.254/", PUBLIC)):
        with pytest.raises(EgressRefused):
            get(url, policy=policy, network=network, resolve=names([answer]))
    assert network.connected == []
    assert get("http://search.internal/", policy=policy, network=network, resolve=names(["10.0.0.7"])).data
    assert network.connected == ["10.0.0.7"]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (page("x", "image/png"), "image/png"),
        (page("x", ""), "no stated type"),
        (page("x", status=404), "404"),
        (page("x" * 3000), "larger"),
        (page("x", **{"content-length": "99999999"}), "larger"),
        (page("x", **{"content-encoding": "br"}), "compressed"),
        (httpx2.Response(302), "nowhere"),
    ],
)
def test_what_is_not_a_page_of_reasonable_size_is_refused(reply: httpx2.Response, why: str) -> None:
    policy = Policy(domains=("*",), max_bytes=2000)
    with pytest.raises(SourceFailed, match=why):
        get("https://example.org/", policy=policy, network=Network(lambda _: reply))


def test_a_page_that_never_ends_is_given_up() -> None:
    class Stalls(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            await asyncio.Event().wait()
            raise AssertionError

    egress = Egress(Policy(domains=("*",), seconds=0.05), resolve=names([PUBLIC]), transport=Stalls)
    with pytest.raises(SourceFailed, match="longer than"):
        asyncio.run(egress.get("https://example.org/"))


def test_the_next_checked_address_is_tried_when_one_does_not_answer() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == PUBLIC:
            raise httpx2.ConnectError("refused")
        return page("ok")

    network = Network(answer)
    assert get("https://example.org/", network=network, resolve=names([PUBLIC, OTHER])).data == b"ok"
    assert network.connected == [PUBLIC, OTHER]


def test_addresses_of_the_public_internet_are_told_from_all_others() -> None:
    for text in (PUBLIC, "8.8.8.8", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"):
        assert is_public(ipaddress.ip_address(text)), text


# Over a real connection ---------------------------------------------------------------------------------------------


class Pages(BaseHTTPRequestHandler):
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.seen.append({k.lower(): v for k, v in self.headers.items()})
        body = b"<h1>Hello</h1>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("set-cookie", "a=b")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def serving() -> Generator[tuple[int, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Seen", (Pages,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_no_cookies_and_no_proxy_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving() as (port, seen):
        policy = Policy(domains=("service.test",), private_hosts=(f"service.test:{port}",))
        egress = Egress(policy, resolve=names(["127.0.0.1"]))
        for _ in range(2):
            fetched = asyncio.run(egress.get(f"http://service.test:{port}/"))
            assert (fetched.data, fetched.content_type) == (b"<h1>Hello</h1>", "text/html")
    assert [(s["host"], s.get("cookie")) for s in seen] == [(f"service.test:{port}", None)] * 2


def answered(url: str, *, network: Network, etag: str | None = None, modified: str | None = None) -> Any:
    policy = Policy(domains=("*",), http=True, answers=True, agent="tester", max_bytes=1000)
    egress = Egress(policy, resolve=names([PUBLIC]), transport=network)
    return asyncio.run(egress.get(url, etag=etag, modified=modified))


def test_a_page_is_asked_for_only_if_it_has_changed() -> None:
    network = Network(lambda request: httpx2.Response(304, headers={"etag": '"2"', "x-other": "1"}))
    found = answered("https://example.org/", network=network, etag='"1"', modified="Mon, 02 Nov 2026 10:00:00 GMT")
    assert (found.status, found.data, found.headers) == (304, b"", {"etag": '"2"'})
    sent = network.requests[0].headers
    assert sent["if-none-match"] == '"1"' and sent["if-modified-since"].startswith("Mon")
    assert sent["user-agent"] == "tester"


def test_what_an_earlier_answer_said_cannot_add_headers() -> None:
    network = Network()
    answered("https://example.org/", network=network, etag='"1"\r\nX-Evil: 1', modified="x" * 3000)
    assert not {"if-none-match", "if-modified-since", "x-evil"} & network.requests[0].headers.keys()


@pytest.mark.parametrize(
    ("reply", "status", "unread"),
    [
        (httpx2.Response(404), 404, None),
        (httpx2.Response(301, headers={"location": "https://10.0.0.1/"}), 301, None),
        (httpx2.Response(503, headers={"retry-after": "60"}), 503, None),
        (page("x" * 2000), 200, "larger"),
        (page("x", kind="image/png"), 200, "image/png"),
        (page("x", **{"content-encoding": "identity, br"}), 200, "compressed"),
    ],
)
def test_every_answer_comes_back_where_that_is_asked_for(
    reply: httpx2.Response, status: int, unread: str | None
) -> None:
    found = answered("https://example.org/", network=Network(lambda request: reply))
    assert (found.status, found.data) == (status, b"")
    assert found.unread is None if unread is None else unread in found.unread

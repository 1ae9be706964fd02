"""The one way out: fetches a page of an allowed host from an address that was checked; knows no source and no model.

An address is looked up once, every address of the answer is checked against an own deny-list, and the connection goes
to the address that was checked, with the host's name in TLS and in the request. What follows a redirect is checked
again. There are no cookies, no proxies and no settings from the environment. Addresses: the IANA special-purpose
registries (RFC 6890), RFC 6052 (NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), RFC 5214 (ISATAP), RFC 6598 (shared).
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from .errors import EgressRefused, SourceFailed

if TYPE_CHECKING:
    import httpx2

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to its addresses as texts."""

ANY = "*"
PAGES = (
    "text/html",
    "application/xhtml+xml",
    "text/plain",
    "text/markdown",
    "application/pdf",
)
JSON = ("application/json", "text/json", "application/vnd.api+json")
KEPT = ("etag", "last-modified", "location", "retry-after", "x-robots-tag")
"""Headers of an answer that are given back."""
AGENT = "citehound (fetches single pages that a person asked about)"

_DENIED = tuple(
    ipaddress.ip_network(n)
    for n in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by carriers; some clouds keep their metadata there
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's control address, in public space
        "169.254.0.0/16",  # link-local, most clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments, a cloud's metadata
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",  # unspecified, loopback, IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",  # Teredo, ORCHID and other protocols
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
_NEVER = tuple(
    ipaddress.ip_network(n)
    for n in (
        *("0.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("100.100.100.200/32", "fd00:ec2::254/128", "fe80::/10", "ff00::/8", "::/128"),
    )
)
"""Denied also where a private host was allowed by name: metadata, link-local, multicast, nowhere."""
_LOCAL_NAMES = (
    *("localhost", "local", "internal", "intranet", "lan", "home", "corp", "localdomain", "home.arpa", "onion"),
)
_HEADER = re.compile(r"[\x20-\x7e]{1,2000}")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NOT_IN_URL = re.compile(r"[\x00-\x20\x7f-\x9f\\<>\"^`{|}\u2028\u2029]")


class NotRead(SourceFailed):
    """A page that is there, but not of a kind, a size or an encoding that is taken."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a URL leads: its host in one spelling."""

    scheme: str
    host: str
    """Lower-case ASCII, without a final dot; an address without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def url(self) -> str:
        usual = {"https": 443, "http": 80}[self.scheme] == self.port
        return f"{self.scheme}://{bracketed(self.host)}{'' if usual else f':{self.port}'}{self.target}"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What may be fetched."""

    domains: tuple[str, ...]
    """'example.org' (with all below it), 'example.org:8443', or '*' for every public host."""
    private_hosts: tuple[str, ...] = ()
    """'127.0.0.1:8080': a host and port that may be private, and may be spoken to without encryption."""
    http: bool = False
    """Whether pages may be fetched without encryption."""
    content_types: tuple[str, ...] = PAGES
    max_bytes: int = 5_000_000
    seconds: float = 10.0
    redirects: int = 3
    agent: str = AGENT
    answers: bool = False
    """Whether any answer comes back, with its status and headers; without data where it is no page that is read."""


@dataclass(frozen=True, kw_only=True)
class Fetched:
    url: str
    """After redirects."""
    content_type: str
    charset: str | None
    data: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case names, of those in `KEPT`."""
    unread: str | None = None
    """With `Policy.answers`: why a page with status 200 was not taken."""


def place_of(url: str) -> Place:
    """A URL taken apart. Raises EgressRefused for one that is not plainly http(s) with a plain host."""
    if len(url) > 4000 or _NOT_IN_URL.search(url):
        raise EgressRefused(f"{_short(url)} is not a plain URL: it has characters that a URL cannot have")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EgressRefused(f"{_short(url)} is not a URL: {error}") from None
    scheme = parts.scheme.lower()
    if scheme not in ("https", "http") or not url.lower().startswith(f"{scheme}://"):
        raise EgressRefused(f"{_short(url)} is not fetched: only https:// is")
    if "@" in parts.netloc:
        raise EgressRefused(f"{_short(url)} is not fetched: it holds a user or a password")
    host = parts.netloc
    if not host.startswith("["):
        host = host.rpartition(":")[0] if ":" in host else host
    else:
        host, bracket, rest = host.partition("]")
        if not bracket or (rest and not re.fullmatch(r":\d{0,5}", rest)):
            raise EgressRefused(f"{_short(url)} is not a URL: its host is not closed")
        host += bracket
    if port is None:
        port = {"https": 443, "http": 80}[scheme]
    if port == 0:
        raise EgressRefused(f"{_short(url)} is not fetched: there is no port 0")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(scheme=scheme, host=host_of(host), port=port, target=target)


def host_of(host: str) -> str:
    """A host in its one spelling (UTS #46, lower case, no final dot). Raises EgressRefused for any other kind of it.

    An address counts only in its usual form: not as one number, octal, hexadecimal, shortened or with a zone.
    """
    import idna

    shown = _short(host)
    if host.startswith("["):
        inside = host.removeprefix("[").removesuffix("]")
        if "%" in inside:
            raise EgressRefused(f"the host {shown} is an address with a zone")
        try:
            return str(ipaddress.IPv6Address(inside))
        except ValueError:
            raise EgressRefused(f"the host {shown} is no address") from None
    name = host
    if not name.isascii():
        try:
            name = idna.encode(name, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise EgressRefused(f"the host {shown} is no domain name") from None
    name = name.lower().removesuffix(".")
    labels = name.split(".")
    if re.fullmatch(r"\d+|0x[0-9a-f]*", labels[-1]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            raise EgressRefused(f"the host {shown} is an address in an unusual form") from None
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise EgressRefused(f"the host {shown} is no domain name")
    return name


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_public(address: Address) -> bool:
    """True when the address is one of the public internet, and carries no other address inside."""
    if any(address.version == network.version and address in network for network in _DENIED):
        return False
    if isinstance(address, ipaddress.IPv6Address) and (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE:
        return False
    return address.is_global and not address.is_multicast


def check_place(place: Place, policy: Policy) -> bool:
    """Raises EgressRefused for a host, port or scheme that is not allowed; True where the host may be private."""
    private = f"{bracketed(place.host)}:{place.port}" in policy.private_hosts
    if not _is_listed(place, policy.domains):
        allowed = ", ".join(map(repr, policy.domains[:5])) or "none"
        raise EgressRefused(f"{place.host!r} is not among the allowed domains ({allowed})")
    if private:
        return True
    if place.scheme != "https" and not policy.http:
        raise EgressRefused(f"{_short(place.url)} is not fetched: only https:// is")
    ported = f"{bracketed(place.host)}:{place.port}" in policy.domains
    if not ported and place.port != {"https": 443, "http": 80}[place.scheme]:
        raise EgressRefused(f"port {place.port} of {place.host!r} is not allowed; name it in the domains to allow it")
    if any(place.host == name or place.host.endswith("." + name) for name in _LOCAL_NAMES):
        raise EgressRefused(f"{place.host!r} is a name of a private network")
    return False


def _is_listed(place: Place, domains: Sequence[str]) -> bool:
    for domain in domains:
        if domain == ANY:
            return True
        host, port = split_port(domain)
        if port is not None and port != place.port:
            continue
        if place.host == host or (not _is_address(host) and place.host.endswith("." + host)):
            return True
    return False


def split_port(domain: str) -> tuple[str, int | None]:
    """'example.org:8443' as host and port; the host in its one spelling. Raises EgressRefused."""
    match = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]/?#@\s]+)(?::(\d{1,5}))?", domain)
    if match is None or (match[2] and not 0 < int(match[2]) < 65536):
        raise EgressRefused(f"{domain!r} is no domain; write 'example.org' or 'example.org:8443'")
    return host_of(match[1]), int(match[2]) if match[2] else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def addresses(place: Place, *, private: bool, resolve: Resolve) -> tuple[str, ...]:
    """The addresses of a place, all of them checked. Raises EgressRefused when one of them must not be reached."""
    found = [place.host] if _is_address(place.host) else list(await resolve(place.host, place.port))
    if not found:
        raise SourceFailed(f"{place.host!r} has no address")
    checked: list[str] = []
    for text in found:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            raise EgressRefused(f"{place.host!r} leads to {text!r}, which is no address") from None
        inner = getattr(address, "ipv4_mapped", None) or address
        denied = any(inner.version == network.version and inner in network for network in _NEVER)
        if denied or (not private and not is_public(address)):
            raise EgressRefused(f"{place.host!r} leads to a private address and is not fetched")
        checked.append(str(address))
    return tuple(dict.fromkeys(checked))


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """The addresses that the system gives for a host."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SourceFailed(f"{host!r} has no address ({error.strerror or error})") from None
    return [str(row[4][0]) for row in found]


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the system's certificates takes longer than most pages."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def _transport() -> httpx2.AsyncBaseTransport:
    import httpx2

    return httpx2.AsyncHTTPTransport(trust_env=False, verify=_tls())


class Egress:
    """Fetches by a policy. `resolve` and `transport` are for tests; without them: the system's, and a real network."""

    def __init__(
        self,
        policy: Policy,
        *,
        resolve: Resolve = resolve_by_system,
        transport: Callable[[], httpx2.AsyncBaseTransport] | None = None,
    ) -> None:
        self.policy = policy
        self._resolve = resolve
        self._transport = transport

    def check(self, url: str) -> Place:
        """Where a URL leads, if it may be fetched as far as can be said without looking its host up."""
        place = place_of(url)
        check_place(place, self.policy)
        return place

    async def get(self, url: str, *, etag: str | None = None, modified: str | None = None) -> Fetched:
        """The page at `url`, after at most `redirects`. Raises EgressRefused, or SourceFailed when it cannot be had.

        `etag` and `modified` are what an earlier answer said of itself: the page is asked for only if it has changed,
        which needs `Policy.answers`, since what comes back else is status 304.
        """
        try:
            async with asyncio.timeout(self.policy.seconds):
                return await self._follow(url, etag=etag, modified=modified)
        except TimeoutError:
            raise SourceFailed(f"{_short(url)} took longer than {self.policy.seconds:g} s") from None

    async def _follow(self, url: str, *, etag: str | None, modified: str | None) -> Fetched:
        conditions = {"If-None-Match": etag, "If-Modified-Since": modified}
        asked = {name: value for name, value in conditions.items() if value and _HEADER.fullmatch(value)}
        first = place = place_of(url)
        for _ in range(self.policy.redirects + 1):
            private = check_place(place, self.policy)
            if private and (place.host, place.port) != (first.host, first.port):
                raise EgressRefused(f"{_short(url)} redirects to a private host and is not followed")
            found = await self._once(place, await addresses(place, private=private, resolve=self._resolve), asked)
            if isinstance(found, Fetched):
                return found
            was, place = place, place_of(urljoin(place.url, found))
            if was.scheme == "https" and place.scheme != "https":
                raise EgressRefused(f"{_short(url)} redirects from https to http and is not followed")
        raise SourceFailed(f"{_short(url)} redirects more than {self.policy.redirects} times")

    async def _once(self, place: Place, found: Sequence[str], asked: Mapping[str, str]) -> Fetched | str:
        """The page, or where it redirects to. Tries the checked addresses in turn until one can be connected to."""
        import httpx2

        problem: Exception | None = None
        for address in found[:4]:
            try:
                return await self._from(place, address, asked)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                problem = error
            except httpx2.HTTPError as error:
                raise SourceFailed(f"{_short(place.url)} cannot be fetched ({_said(error)})") from None
        raise SourceFailed(f"{_short(place.url)} cannot be reached ({_said(problem)})")

    async def _from(self, place: Place, address: str, asked: Mapping[str, str]) -> Fetched | str:
        import httpx2

        transport = self._transport() if self._transport is not None else _transport()
        named = place.url.split("//", 1)[1].split("/", 1)[0].split("?", 1)[0]
        async with (
            httpx2.AsyncClient(
                transport=transport, trust_env=False, follow_redirects=False, timeout=self.policy.seconds
            ) as client,
            client.stream(
                "GET",
                f"{place.scheme}://{bracketed(address)}:{place.port}{place.target}",
                headers={
                    "Host": named,
                    "User-Agent": self.policy.agent,
                    "Accept": ", ".join(filter(None, self.policy.content_types)),
                    "Accept-Encoding": "identity",
                    **asked,
                },
                extensions={"sni_hostname": place.host},
            ) as reply,
        ):
            if not self.policy.answers:
                return await self._taken(place, reply)
            headers = {name: reply.headers[name][:2000] for name in KEPT if name in reply.headers}
            if reply.status_code == 200:
                try:
                    taken = await self._taken(place, reply)
                except NotRead as error:
                    taken = Fetched(url=place.url, content_type="", charset=None, data=b"", unread=str(error))
                assert isinstance(taken, Fetched)
                return replace(taken, headers=headers)
            return Fetched(
                url=place.url, content_type="", charset=None, data=b"", status=reply.status_code, headers=headers
            )

    async def _taken(self, place: Place, reply: httpx2.Response) -> Fetched | str:
        url = _short(place.url)
        if reply.status_code in (301, 302, 303, 307, 308):
            target = reply.headers.get("location", "")
            if not target:
                raise SourceFailed(f"{url} redirects to nowhere")
            return target
        if reply.status_code != 200:
            raise SourceFailed(f"{url} answers {reply.status_code}")
        kind, charset = _content_type(reply.headers.get("content-type", ""))
        if kind not in self.policy.content_types:
            raise NotRead(f"{url} is {kind or 'of no stated type'}, which is not read")
        if reply.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise NotRead(f"{url} was sent compressed though that was not asked for")
        size = reply.headers.get("content-length", "")
        if size.isdigit() and int(size) > self.policy.max_bytes:
            raise NotRead(f"{url} is larger than {self.policy.max_bytes // 1_000_000} MB")
        data = bytearray()
        async for part in reply.aiter_bytes(65536):
            data += part
            if len(data) > self.policy.max_bytes:
                raise NotRead(f"{url} is larger than {self.policy.max_bytes // 1_000_000} MB")
        return Fetched(url=place.url, content_type=kind, charset=charset, data=bytes(data))


def _content_type(header: str) -> tuple[str, str | None]:
    kind, _, rest = header.partition(";")
    match = re.search(r"charset\s*=\s*\"?([\w.:-]{1,40})", rest, re.IGNORECASE)
    return kind.strip().lower(), match[1].lower() if match else None


def _said(error: Exception | None) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:160]


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 120 else shown[:117] + "..."

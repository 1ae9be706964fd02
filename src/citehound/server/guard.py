"""What stands before every route: exact hosts and origins, bounded bodies of plain JSON, headers on all that leaves.

Nothing here knows who asks or what a route does. Plain ASGI, so that event streams pass through unbuffered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..config import ServerConfig
from ..security import redact
from .problems import BUG, problem

log = logging.getLogger("citehound.server")

MOST_REQUESTS = 512
"""Requests that are served at once, streams among them."""
LINGER_SECONDS = 1.0
"""How long a body that is not wanted is still taken in, and thrown away, after its request was answered."""
MOST_HEADERS = 32_768
"""Bytes of all headers of a request."""
MOST_DEPTH = 32
"""How deep the JSON of a body may be nested."""
MOST_DIGITS = 400
"""Digits of a number in a body."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
)
_ALLOWED = ("authorization", "content-type", "accept", "last-event-id")
_OF_CLIENTS = re.compile(r"(?:mcp|x-stainless|openai)-[a-z0-9-]{1,60}|traceparent|tracestate")
"""What clients of MCP and of OpenAI's protocol send from a page beside that."""
_OPEN_PATHS = ("/", "/dashboard", "/sources", "/doc/")
"""Pages that a link from elsewhere may open; they hold no data."""
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_TEXT = ("application/json", "text/event-stream", "text/plain", "text/html")
_NUMBER = re.compile(rb"\d{%d}" % (MOST_DIGITS + 1))


def names_of(host: str, port: int, *, scheme: str = "http") -> set[str]:
    """How a `Host` header may write an address: without the port where it is the scheme's own."""
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
    return {f"{host}:{port}"} | ({host} if port == (443 if scheme == "https" else 80) else set())


class Guard:
    """`addresses` are host and port pairs that the server itself listens on; `settings.urls` come beside them."""

    def __init__(self, app: ASGIApp, *, settings: ServerConfig, addresses: Iterable[tuple[str, int]]) -> None:
        self._app = app
        self._settings = settings
        self._hosts: dict[str, set[str]] = {}
        """Host, as the header has it, to the origins of its own pages."""
        for host, port in addresses:
            for name in names_of(host, port):
                self._hosts[name] = {f"http://{n}" for n in names_of(host, port)}
        for url in settings.urls:
            parts = urlsplit(url.lower())
            port = parts.port or (443 if parts.scheme == "https" else 80)
            for name in names_of(parts.hostname or "", port, scheme=parts.scheme):
                own = {f"{parts.scheme}://{n}" for n in names_of(parts.hostname or "", port, scheme=parts.scheme)}
                self._hosts.setdefault(name, set()).update(own)
        self._secure = {name for name, own in self._hosts.items() if all(origin.startswith("https:") for origin in own)}
        self._active = 0
        self._cors = {origin.lower() for origin in settings.cors}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = origin.lower() if origin is not None and origin.lower() in self._cors else None
        begun = False

        async def dressed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                out = MutableHeaders(scope=message)
                for name, value in _HEADERS:
                    if name not in out:
                        out[name] = value
                if not scope["path"].startswith("/static/") and "cache-control" not in out:
                    out["cache-control"] = "no-store"
                if allowed is not None and origin is not None:
                    out["access-control-allow-origin"] = origin
                    out["cross-origin-resource-policy"] = "cross-origin"
                    out["access-control-expose-headers"] = "X-Run-Id, Retry-After, WWW-Authenticate, Mcp-Session-Id"
                if self._cors:
                    out.add_vary_header("Origin")
            await send(message)

        wrong = self._wrong(scope, headers, allowed=allowed is not None)
        if wrong is not None:
            return await _refusal(*wrong)(scope, receive, dressed)
        if allowed is not None and scope["method"] == "OPTIONS":
            return await self._preflight(scope, receive, dressed, headers)
        if self._active >= MOST_REQUESTS:
            return await problem(503, "too many requests are being served; try again in a moment", retry_after=2)(
                scope, receive, dressed
            )
        self._active += 1
        try:
            await self._pass_on(scope, receive, dressed, headers, lambda: begun)
        finally:
            self._active -= 1

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, begun: Callable[[], bool]
    ) -> None:
        """Reads the body and lets the routes answer; `begun` says whether they have."""
        scope.setdefault("state", {})["secure"] = headers.get("host", "").lower() in self._secure
        within, most = self._settings.request_seconds, self._settings.max_body
        wrong: tuple[int, str] | None = None
        body = b""
        try:
            async with asyncio.timeout(within):
                body = await _body(receive, most=most, declared=headers.get("content-length"))
        except TimeoutError:
            wrong = 408, f"the body did not come within {within:g} seconds; send it at once"
        except _TooLarge:
            wrong = 413, f"the body has more than {most:,} bytes; send less"
        except _Gone:
            return
        if wrong is not None:
            return await _refusal(*wrong)(scope, receive, send)
        if body and (wrong := _wrong_body(body, headers)) is not None:
            return await problem(*wrong)(scope, receive, send)
        try:
            await self._app(scope, _replayed(body, receive), _redacted(send))
        except Exception as error:
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            debug = os.environ.get("CITEHOUND_DEBUG") == "1"
            log.error("%s %s: %s", scope["method"], scope["path"], what, exc_info=error if debug else None)
            if not begun():  # an answer that had begun cannot be ended: the connection is closed
                await problem(500, BUG)(scope, receive, send)

    def _wrong(self, scope: Scope, headers: Headers, *, allowed: bool) -> tuple[int, str] | None:
        if sum(len(name) + len(value) for name, value in headers.raw) > MOST_HEADERS:
            return 431, f"the headers have more than {MOST_HEADERS:,} bytes; send less"
        hosts = headers.getlist("host")
        own = self._own(hosts[0].lower(), scope) if len(hosts) == 1 else None
        if own is None:
            shown = ", ".join(repr(h) for h in hosts) or "nothing"
            return 421, f"this server is not called {shown}; name it in [server] urls if it is"
        origins = headers.getlist("origin")
        if len(origins) > 1:
            return 403, "the request has more than one Origin; send one"
        if origins and origins[0].lower() not in own and not allowed:
            return 403, f"pages of {origins[0]!r} may not call this server; [server] cors lists those that may"
        site = headers.get("sec-fetch-site", "none")
        if not origins and site in ("cross-site", "same-site"):
            path = scope["path"]
            page = path in _OPEN_PATHS or path.startswith("/doc/")
            if not (page and scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"):
                return 403, "a page of another site may not use this server; [server] cors lists those that may"
        if "content-encoding" in headers and headers["content-encoding"].strip().lower() not in ("", "identity"):
            return 415, "compressed bodies are not read; send the JSON as it is"
        return None

    def _own(self, host: str, scope: Scope) -> set[str] | None:
        """The origins of the pages that are served under this name; None for a name that is not ours.

        The address that the connection came in at needs no configuration: no other site can have it for its name.
        """
        known = self._hosts.get(host)
        at = scope.get("server")
        if known is None and at is not None and at[1] is not None and host in (names := names_of(at[0], at[1])):
            return {f"http://{name}" for name in names}
        return known

    async def _preflight(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        answer = problem(204, "")
        answer.body = b""
        answer.headers["content-length"] = "0"
        answer.headers["access-control-allow-methods"] = "GET, POST, DELETE"
        wanted = headers.get("access-control-request-headers", "")[:MOST_HEADERS].lower().split(",")
        clients = [name for name in map(str.strip, wanted) if _OF_CLIENTS.fullmatch(name)]
        answer.headers["access-control-allow-headers"] = ", ".join((*_ALLOWED, *clients))
        answer.headers["access-control-max-age"] = "600"
        await answer(scope, receive, send)


def _refusal(status: int, message: str) -> ASGIApp:
    """An answer before the body was read: nothing may follow it on this connection.

    What still comes is thrown away for a moment, or a client that is sending would only see its connection break.
    """

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        answer = problem(status, message, headers={"connection": "close"})
        await send({"type": "http.response.start", "status": status, "headers": answer.raw_headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while (part := await receive())["type"] == "http.request" and part.get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return refuse


class _Gone(Exception):
    """The client went away before its body was there."""


class _TooLarge(Exception):
    """The body is larger than may be."""


async def _body(receive: Receive, *, most: int, declared: str | None) -> bytes:
    """The whole body, counted while it comes in. Raises _TooLarge, _Gone."""
    if declared is not None and declared.isdigit() and int(declared[:20]) > most:
        raise _TooLarge
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _TooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _wrong_body(body: bytes, headers: Headers) -> tuple[int, str] | None:
    """What is wrong with a body: status and message."""
    types = headers.getlist("content-type")
    if not types:
        return 400, "the body has no Content-Type; send 'Content-Type: application/json'"
    kind, _, parameters = types[0].partition(";")
    if len(types) > 1 or kind.strip().lower() != "application/json":
        return 415, f"the body is {types[0]!r}; send JSON, with 'Content-Type: application/json'"
    charset = parameters.strip().lower().replace('"', "")
    if charset and charset not in ("charset=utf-8", "charset=utf8"):
        return 415, f"the body is said to be {parameters.strip()!r}; send JSON in UTF-8"
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        return 400, "the body is not UTF-8; send JSON in UTF-8"
    bare = _STRINGS.sub(b"", body)
    depth = 0
    for char in re.findall(rb"[\[\]{}]", bare):
        depth += 1 if char in b"[{" else -1
        if depth > MOST_DEPTH:
            return 400, f"the JSON is nested more than {MOST_DEPTH} deep; send it flatter"
    if _NUMBER.search(bare):
        return 400, f"the JSON has a number of more than {MOST_DIGITS} digits; send a smaller one"
    try:
        json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except ValueError as error:
        return 400, f"the body is not JSON: {error}"
    return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:60]!r} is given twice")
        found[key] = value
    return found


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read already, then whatever comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _redacted(send: Send) -> Send:
    """Hides live secrets in what leaves as text. An event of a stream is one message, so nothing is cut in two."""
    text = False
    held: Message | None = None

    async def redacting(message: Message) -> None:
        nonlocal text, held
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            text = kind.startswith(_TEXT)
            if text:
                held = message  # its length is only known with its body
                return
        elif text and message["type"] == "http.response.body":
            body: bytes = message.get("body", b"")
            clean = redact(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
            message = {**message, "body": clean}
            if held is not None:
                headers = MutableHeaders(scope=held)
                if "content-length" in headers and message.get("more_body", False):
                    del headers["content-length"]
                elif "content-length" in headers and len(clean) != len(body):
                    headers["content-length"] = str(len(clean))
                start, held = held, None
                await send(start)
        await send(message)

    return redacting

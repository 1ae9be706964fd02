"""Requests that are wrong, huge, slow or forged, against a real process: a proper error, and the server lives on."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import protocol_server
from citehound import config
from citehound.server.tokens import FILE, Tokens
from served import Served, serving
from small import TOML, write_corpus
from test_attacks_inputs import ids, of

SECONDS = 30.0
"""Far more than any of these may take; a server that hangs fails."""
ROUTES = {
    "ask": "/v1/ask",
    "document": "/v1/documents/{}",
    "search": "/v1/search",
    "static": "/static/{}",
}
SETTINGS = """\
[server]
request_seconds = 1.5
max_steps = 20
"""
ANSWER = {"kind": "draft", "draft": {"claims": [], "missing": [{"what": "anything"}]}, "repeat": True}
HANGS = [{"kind": "timeout", "phase": "read", "repeat": True}]


@dataclass(frozen=True, kw_only=True)
class Target:
    server: Served
    model: protocol_server.Server
    token: str
    foreign: str
    """A token that sees less."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.port}"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Generator[Target]:
    root = tmp_path_factory.mktemp("hostile")
    with protocol_server.serve([ANSWER], scripts={"slow": HANGS}, per="question") as model:
        head = f'[model]\nname = "anthropic:claude-sonnet-5"\nbase_url = "{model.base_url}"\n{SETTINGS}'
        sources = TOML.replace('name = "deals"', 'name = "deals"\naccess = ["legal"]')
        path = write_corpus(root, toml=head + sources)
        tokens = Tokens(config.load(path, env={}).state / FILE)
        token, foreign = tokens.add("us", groups=["legal"]), tokens.add("them", groups=["sales"])
        with serving(path, env={"ANTHROPIC_API_KEY": "sk-canary-0123456789"}) as server:
            yield Target(server=server, model=model, token=token, foreign=foreign)
        said = "".join(server.said)
        assert "Traceback" not in said
        assert not [secret for secret in (token, foreign, "sk-canary") if secret in said]


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


def send(
    target: Target, method: str, path: str, headers: dict[str, str], body: bytes | None = None, *, token: str | None
) -> Reply:
    """One request, as it is told, with a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", target.server.port, timeout=SECONDS)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        given = {"Host": target.host, **headers}
        if body is not None:
            given.setdefault("Content-Length", str(len(body)))
        if token is not None:
            given.setdefault("Authorization", f"Bearer {token}")
        for name, value in given.items():
            connection.putheader(name, value)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may answer before all is sent
            connection.endheaders(body)
        answer = connection.getresponse()
        return Reply(
            status=answer.status,
            headers={k.lower(): v for k, v in answer.getheaders()},
            body=answer.read(),
        )
    finally:
        connection.close()


def raw(target: Target, data: bytes) -> bytes:
    """What comes back for these bytes, until the server closes or has answered once."""
    with socket.create_connection(("127.0.0.1", target.server.port), timeout=SECONDS) as link:
        link.sendall(data)
        got = b""
        while b"\r\n\r\n" not in got:
            part = link.recv(65536)
            if not part:
                break
            got += part
        length = [h for h in got.split(b"\r\n") if h.lower().startswith(b"content-length:")]
        if length:
            wanted = got.index(b"\r\n\r\n") + 4 + int(length[0].split(b":")[1])
            while len(got) < wanted and (part := link.recv(65536)):
                got += part
        return got


def is_proper(reply: Reply) -> bool:
    """An error in the one form that errors have, with nothing of the inside in it."""
    if reply.status < 400:
        return True
    error = json.loads(reply.body)["error"]
    message = str(error["message"])
    return set(error) == {"type", "message"} and "\n" not in message and 0 < len(message) <= 600


def lives(target: Target) -> bool:
    reply = send(target, "GET", "/healthz", {}, token=None)
    return reply.status == 200 and target.server.process.poll() is None


# the shared rows


def body_of(request: dict[str, Any]) -> bytes | None:
    if "body_repeat" in request:
        prefix, unit, count, suffix = request["body_repeat"]
        return f"{prefix}{unit * count}{suffix}".encode()
    if "body_hex" in request:
        return bytes.fromhex(request["body_hex"])
    if request.get("build", {}).get("kind") == "gzip_zeros":
        return gzip.compress(bytes(request["build"]["mb"] << 15), compresslevel=1)  # a part of it says as much
    return request["body"].encode("utf-8", "surrogatepass") if "body" in request else None


@pytest.mark.parametrize("row", of("http"), ids=ids(of("http")))
def test_hostile_requests_get_a_proper_error_and_the_server_lives_on(row: dict[str, Any], target: Target) -> None:
    request, expect = row["request"], row["expect"]
    path_id = request.get("path_id", "").replace("{{FOREIGN_ID}}", "deals/alpha")
    path = ROUTES[request["route"]].format(path_id)
    headers = dict(request.get("headers", {}))
    body = body_of(request)
    if body is not None and request["route"] == "search":
        headers.setdefault("Content-Type", "application/json")
    if "headers_repeat" in request:
        name, unit, count = request["headers_repeat"]
        headers[name] = unit * count
    token = target.token
    if request.get("auth") == "query":
        path += f"?token={target.token}&access_token={target.token}"
    if request.get("auth") or "{{FOREIGN_ID}}" in request.get("path_id", ""):
        token = None if request.get("auth") else target.foreign
    asked = len(target.model.requests())
    if "close_after_ms" in request:
        _closed(target, path, headers, body or b"", asked)
        return
    if request.get("build", {}).get("kind") == "drip":
        got = raw(target, _head(target, path, headers, len(body or b"")) + (body or b"")[:1])
        assert int(got.split(b" ")[1]) in expect["status"]
        assert lives(target)
        return
    reply = send(target, request["method"], path, headers, body, token=token)
    assert reply.status in expect["status"], reply.body[:300]
    assert is_proper(reply)
    assert lives(target)
    if expect.get("llm_calls") == 0:
        assert len(target.model.requests()) == asked
    for forbidden in expect.get("must_not", []):
        kind, _, what = forbidden.partition(":")
        if kind == "header":
            name, _, value = what.partition(": ")
            assert reply.headers.get(name) != value
        elif kind == "text":
            assert what.encode() not in reply.body
        elif kind == "foreign_hit":
            assert b"deals/" not in reply.body or reply.status >= 400
    if expect.get("same_body_as") == "missing":
        missing = send(target, "GET", "/v1/documents/nowhere/at-all", {}, token=target.foreign)
        assert (reply.status, reply.body) == (missing.status, missing.body)
        assert send(target, "GET", path, {}, token=target.token).status == 200


def _head(target: Target, path: str, headers: dict[str, str], length: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {target.host}", f"Authorization: Bearer {target.token}"]
    lines += [f"{k}: {v}" for k, v in headers.items()] + [f"Content-Length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _closed(target: Target, path: str, headers: dict[str, str], body: bytes, asked: int) -> None:
    """The client goes once its question has reached the model; the model is asked nothing more."""
    with socket.create_connection(("127.0.0.1", target.server.port), timeout=SECONDS) as link:
        link.sendall(_head(target, path, headers, len(body)) + body)
        target.model.wait_for(asked + 1)
    while json.loads(send(target, "GET", "/v1/runs", {}, token=target.token).body)["running"]:
        pass
    newest = json.loads(send(target, "GET", "/v1/runs?limit=1", {}, token=target.token).body)["runs"][0]
    assert newest["stop_reason"] == "cancelled"
    assert len(target.model.requests()) == asked + 1
    assert lives(target)


# and more of their kind

ASK = {"Content-Type": "application/json"}
OWN: list[tuple[str, str, str, dict[str, str], bytes | None, tuple[int, ...]]] = [
    ("BOM before the JSON", "POST", "/v1/ask", ASK, b'\xef\xbb\xbf{"question":"x"}', (400,)),
    ("two objects", "POST", "/v1/ask", ASK, b'{"question":"x"}{"question":"y"}', (400,)),
    ("a number beyond floats", "POST", "/v1/ask", ASK, b'{"question":"x","max_dollars":1e400}', (400, 422)),
    ("a number as a text", "POST", "/v1/ask", ASK, b'{"question":"x","max_steps":"3"}', (422,)),
    ("true for a number", "POST", "/v1/ask", ASK, b'{"question":"x","max_steps":true}', (422,)),
    ("a fraction of a step", "POST", "/v1/ask", ASK, b'{"question":"x","max_steps":1.5}', (422,)),
    (
        "a hundred thousand keys",
        "POST",
        "/v1/ask",
        ASK,
        json.dumps({str(n): n for n in range(60_000)}).encode(),
        (422,),
    ),
    ("nested just too deep", "POST", "/v1/ask", ASK, b'{"question":' + b"[" * 40 + b"]" * 40 + b"}", (400,)),
    ("a chat that is SQL", "POST", "/v1/ask", ASK, b'{"question":"x","chat_id":"\' OR 1=1 --"}', (404,)),
    ("sources that are not names", "POST", "/v1/ask", ASK, b'{"question":"x","sources":[{"$ne":1}]}', (422,)),
    ("a model with an address", "POST", "/v1/ask", ASK, b'{"question":"x","model":"http://127.0.0.1:1/"}', (403,)),
    ("no content type", "POST", "/v1/ask", {}, b'{"question":"x"}', (400,)),
    ("a form", "POST", "/v1/ask", {"Content-Type": "application/x-www-form-urlencoded"}, b"question=x", (415,)),
    ("UTF-16 by its header", "POST", "/v1/ask", {"Content-Type": "application/json; charset=utf-16"}, b"{}", (415,)),
    ("another kind of JSON", "POST", "/v1/ask", {"Content-Type": "application/json-patch+json"}, b"{}", (415,)),
    ("a compressed body", "POST", "/v1/ask", {**ASK, "Content-Encoding": "br"}, b"{}", (415,)),
    ("own name, other port", "POST", "/v1/ask", {**ASK, "Origin": "http://127.0.0.1:1"}, b'{"question":"x"}', (403,)),
    ("own name, https", "POST", "/v1/ask", {**ASK, "Origin": "https://127.0.0.1"}, b'{"question":"x"}', (403,)),
    ("own name within another", "GET", "/v1/runs", {"Origin": "http://127.0.0.1.evil.example"}, None, (403,)),
    ("a file as origin", "GET", "/v1/runs", {"Origin": "file://"}, None, (403,)),
    ("an image of another site", "GET", "/v1/runs", {"Sec-Fetch-Site": "cross-site"}, None, (403,)),
    ("a preflight", "OPTIONS", "/v1/ask", {"Origin": "https://evil.example"}, None, (403,)),
    ("a host with a user", "GET", "/v1/runs", {"Host": "x@127.0.0.1"}, None, (400, 421)),
    ("a host with a dot at its end", "GET", "/v1/runs", {"Host": "localhost."}, None, (421,)),
    ("basic authentication", "GET", "/v1/runs", {"Authorization": "Basic eDp4"}, None, (401,)),
    ("an empty token", "GET", "/v1/runs", {"Authorization": "Bearer "}, None, (401,)),
    ("a made-up token", "GET", "/v1/runs", {"Authorization": "Bearer ch_" + "A" * 43}, None, (401,)),
    ("a run that is a path", "GET", "/v1/runs/..%2f..%2fetc%2fpasswd", {}, None, (404, 422)),
    ("a run with NUL", "GET", "/v1/runs/abc%00", {}, None, (404, 422)),
    ("a run that is the beginning of all", "GET", "/v1/runs/1", {}, None, (404,)),
    ("half a percent sign", "GET", "/v1/documents/%e0%a4%a", {}, None, (404,)),
    ("a section that is SQL", "GET", "/v1/documents/rules/security?section='%20OR%201=1", {}, None, (404,)),
    ("a start beyond all", "GET", "/v1/documents/rules/security?start=99999999999999999999", {}, None, (422,)),
    ("a start past the end", "GET", "/v1/documents/rules/security?start=100000", {}, None, (422,)),
    ("endless many", "GET", "/v1/runs?limit=1e309", {}, None, (422,)),
    ("minus many", "GET", "/v1/runs?limit=-1", {}, None, (422,)),
    ("not a number of time", "GET", "/v1/runs?since=nan", {}, None, (422,)),
    ("an event that never was", "GET", "/v1/runs/abc/events", {"Last-Event-ID": "9" * 400}, None, (400, 404)),
    ("a page beyond all", "GET", "/v1/pages/rules/security?page=99999999999999999999", {}, None, (422,)),
    ("code of the server", "GET", "/static/..%2fapp.py", {}, None, (404,)),
    ("code of the server, raw", "GET", "/static/../app.py", {}, None, (404,)),
    ("a file of the system", "GET", "/static//etc/passwd", {}, None, (404,)),
    ("the state", "GET", "/.citehound/tokens.json", {}, None, (404,)),
    ("a method nobody knows", "BREW", "/v1/ask", {}, None, (405,)),
    ("a very long path", "GET", "/" + "a" * 20_000, {}, None, (404,)),
    ("an upgrade", "GET", "/v1/runs/a", {"Upgrade": "websocket", "Connection": "Upgrade"}, None, (404,)),
    ("filters in filters", "POST", "/v1/search", ASK, b'{"query":"x","filters":{"a":{"b":"c"}}}', (422,)),
    (
        "many filters",
        "POST",
        "/v1/search",
        ASK,
        json.dumps({"query": "x", "filters": {str(n): "" for n in range(99)}}).encode(),
        (422,),
    ),
    ("claims without end", "POST", "/v1/verify", ASK, json.dumps({"claims": [{"text": "x"}] * 500}).encode(), (422,)),
    (
        "feedback of a book",
        "POST",
        "/v1/runs/abc/feedback",
        ASK,
        json.dumps({"good": True, "reason": "x" * 3000}).encode(),
        (422,),
    ),
    ("an exponent beyond all", "POST", "/v1/ask", ASK, b'{"question":"x","max_seconds":1e99999}', (400, 422)),
    ("half a character as a key", "POST", "/v1/search", ASK, b'{"query":"x","filters":{"\\ud800":"a"}}', (200,)),
    ("a key that is __proto__", "POST", "/v1/search", ASK, b'{"query":"x","filters":{"__proto__":"a"}}', (200,)),
    ("a claim inside a claim", "POST", "/v1/verify", ASK, b'{"claims":[{"text":{"text":"x"}}]}', (422,)),
    (
        "citations without end",
        "POST",
        "/v1/verify",
        ASK,
        json.dumps({"claims": [{"text": "x", "citations": [{"document": "a"}] * 5000}]}).encode(),
        (422,),
    ),
    (
        "a span of nothing",
        "POST",
        "/v1/verify",
        ASK,
        b'{"read":[{"document":"rules/security","start":9,"end":3}]}',
        (422,),
    ),
    ("a token that is an object", "POST", "/v1/session", ASK, b'{"token":{"$gt":""}}', (422,)),
    ("a token of a megabyte", "POST", "/v1/session", ASK, b'{"token":"' + b"a" * 900_000 + b'"}', (422,)),
    ("another method by a header", "GET", "/v1/runs/abc", {"X-HTTP-Method-Override": "DELETE"}, None, (404,)),
    ("another host by a header", "GET", "/v1/runs/abc", {"X-Forwarded-Host": "evil.example"}, None, (404,)),
    ("an event below zero", "GET", "/v1/runs/abc/events", {"Last-Event-ID": "-1"}, None, (400, 404)),
    ("a report with markup", "GET", "/v1/runs/%3Cscript%3E/report", {}, None, (404, 422)),
    ("a zone that is a path", "GET", "/v1/dashboard?zone=..%2f..%2fetc%2flocaltime", {}, None, (422,)),
    ("a zone with NUL", "GET", "/v1/dashboard?zone=Europe%00", {}, None, (422,)),
    ("a gap of a book", "GET", "/v1/dashboard?gap=" + "g" * 1001, {}, None, (422,)),
    ("infinite seconds", "GET", "/v1/dashboard/runs?min_seconds=inf", {}, None, (422,)),
    ("everyone's numbers", "GET", "/metrics", {}, None, (403,)),
    ("a dot that is too long", "GET", "/static/%c0%ae%c0%ae/app.py", {}, None, (404,)),
    ("a drive", "GET", "/static/C:/windows/win.ini", {}, None, (404,)),
    ("two slashes", "GET", "//evil.example/v1/runs", {}, None, (404,)),
    ("a document with a line break", "GET", "/v1/documents/rules%0d%0aSet-Cookie:a=b", {}, None, (404,)),
    ("a source of another's", "GET", "/v1/sources/..%2f..%2f/report", {}, None, (404,)),
    ("a body where none belongs", "DELETE", "/v1/session", ASK, b"[" * 40 + b"]" * 40, (400,)),
    ("a length with a sign", "POST", "/v1/ask", {**ASK, "Content-Length": "+16"}, b'{"question":"x"}', (400,)),
]


@pytest.mark.parametrize(("name", "method", "path", "headers", "body", "statuses"), OWN, ids=[row[0] for row in OWN])
def test_more_that_is_wrong(
    name: str,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes | None,
    statuses: tuple[int, ...],
    target: Target,
) -> None:
    asked = len(target.model.requests())
    reply = send(target, method, path, headers, body, token=target.token)
    assert reply.status in statuses, reply.body[:300]
    assert is_proper(reply)
    assert lives(target)
    assert len(target.model.requests()) == asked
    assert reply.headers["x-content-type-options"] == "nosniff"


SPOKEN: list[tuple[str, str, str, dict[str, str], bytes, tuple[int, ...]]] = [
    ("no question", "POST", "/v1/chat/completions", ASK, b'{"model":"citehound","messages":[]}', (400,)),
    ("a model that is a list", "POST", "/v1/chat/completions", ASK, b'{"model":["a"],"messages":[]}', (400,)),
    (
        "a role that is SQL",
        "POST",
        "/v1/chat/completions",
        ASK,
        b'{"model":"citehound","messages":[{"role":"\' OR"}]}',
        (400,),
    ),
    (
        "ten thousand parts",
        "POST",
        "/v1/chat/completions",
        ASK,
        json.dumps(
            {"model": "citehound", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 10_000}]}
        ).encode(),
        (400,),
    ),
    ("a stream of yes", "POST", "/v1/chat/completions", ASK, b'{"model":"a","messages":[],"stream":"yes"}', (400,)),
    ("a call outside of a session", "POST", "/mcp", ASK, b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', (400, 406)),
    (
        "a session that never was",
        "POST",
        "/mcp",
        {**ASK, "Accept": "application/json, text/event-stream", "Mcp-Session-Id": "../../x"},
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
        (400, 404),
    ),
    ("an end of nothing", "DELETE", "/mcp", {"Mcp-Session-Id": "x" * 4000}, b"", (400, 404, 405)),
]


@pytest.mark.parametrize(("name", "method", "path", "headers", "body", "statuses"), SPOKEN, ids=[r[0] for r in SPOKEN])
def test_protocols_of_others_refuse_in_their_own_form(
    name: str,
    method: str,
    path: str,
    headers: dict[str, str],
    body: bytes,
    statuses: tuple[int, ...],
    target: Target,
) -> None:
    asked = len(target.model.requests())
    reply = send(target, method, path, headers, body or None, token=target.token)
    assert reply.status in statuses, reply.body[:300]
    assert len(target.model.requests()) == asked
    message = str(json.loads(reply.body)["error"]["message"])
    assert 0 < len(message) <= 600 and "\n" not in message and "Traceback" not in message
    assert lives(target)


RAW: list[tuple[str, bytes, tuple[int, ...]]] = [
    ("no HTTP at all", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n", (400,)),
    ("HTTP/2 by prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 421, 505)),
    ("no host", b"GET /v1/runs HTTP/1.1\r\n\r\n", (400, 421)),
    ("no host, as of old", b"GET /v1/runs HTTP/1.0\r\n\r\n", (400, 421)),
    ("two hosts", b"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n", (400, 421)),
    ("a header without a colon", b"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\nnonsense\r\n\r\n", (400,)),
    ("a length below zero", b"POST /v1/ask HTTP/1.1\r\nHost: {host}\r\nContent-Length: -5\r\n\r\n", (400,)),
    (
        "both length and chunks",
        b"POST /v1/ask HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        (400, 401),
    ),
    (
        "a chunk of no size",
        b"POST /v1/ask HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        (400,),
    ),
    ("a line that never ends", b"GET /" + b"a" * 100_000, (400,)),
    ("a head that never ends", b"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\nX-Slow: ", (408,)),
    ("a connection that says nothing", b"", (408,)),
    ("an absolute address", b"GET http://evil.example/v1/runs HTTP/1.1\r\nHost: {host}\r\n\r\n", (401, 404, 421)),
]


@pytest.mark.parametrize(("name", "data", "statuses"), RAW, ids=[row[0] for row in RAW])
def test_bytes_that_are_hardly_a_request(name: str, data: bytes, statuses: tuple[int, ...], target: Target) -> None:
    got = raw(target, data.replace(b"{host}", target.host.encode()))
    head, _, body = got.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    assert status in statuses, got[:300]
    assert is_proper(Reply(status=status, headers={}, body=body))
    assert lives(target)


def test_a_body_without_a_length_is_counted_while_it_comes(target: Target) -> None:
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    head = _head(target, "/v1/ask", ASK, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with socket.create_connection(("127.0.0.1", target.server.port), timeout=SECONDS) as link:
        link.sendall(head)
        for _ in range(20):
            link.sendall(chunk)
        got = b""
        while b"too_large" not in got and (part := link.recv(65536)):
            got += part
    assert b" 413 " in got.split(b"\r\n")[0]
    assert lives(target)


def test_a_token_in_an_address_is_in_no_log(target: Target) -> None:
    assert send(target, "GET", f"/v1/runs?token={target.token}", {}, token=None).status == 401
    assert send(target, "GET", f"/v1/runs/{target.token}?token={target.token}", {}, token=None).status in (
        401,
        404,
        422,
    )


def test_the_rows_are_all_there(shared_data: Path) -> None:
    assert len(of("http")) >= 36

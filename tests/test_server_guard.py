"""Who may call the server, and as whom: hosts, origins, tokens, sessions, proxies, rates; and no route forgets it."""

from __future__ import annotations

import json
import socket
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from citehound import config
from citehound.cli import cli
from citehound.corpus import Corpus
from citehound.errors import CitehoundError, UsageError
from citehound.server import api, guard
from citehound.server.app import create_app
from citehound.server.identity import principal_of
from citehound.server.tokens import FILE, Tokens
from small import TOML, write_corpus

HOME = "http://127.0.0.1:8765"


def opened(root: Path, settings: str = "", **more: Any) -> TestClient:
    loaded = config.load(write_corpus(root, toml=TOML + settings), env={})
    return TestClient(create_app(loaded, **more), base_url=HOME, client=("127.0.0.1", 50000))


@contextmanager
def ready(client: TestClient) -> Generator[TestClient]:
    """With its corpus opened."""
    with client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        yield client


def tokens_of(root: Path) -> Tokens:
    return Tokens(root / ".citehound" / FILE)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# hosts and origins


def test_only_the_names_of_the_server_are_answered(tmp_path: Path) -> None:
    settings = '[server]\nurls = ["https://ask.example.com", "http://lan.example:9000"]\n'
    client = opened(tmp_path, settings)
    good = ("127.0.0.1:8765", "localhost:8765", "LOCALHOST:8765", "[::1]:8765", "ask.example.com", "lan.example:9000")
    for host in (*good, "ask.example.com:443"):
        assert client.get("/healthz", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "localhost", "127.0.0.1", "localhost:80", "ask.example.com:8443", "lan.example", ""):
        reply = client.get("/healthz", headers={"Host": host})
        assert reply.status_code == 421, host
        assert reply.json()["error"]["type"] == "misdirected"


def test_only_pages_of_the_server_itself_may_call_it(tmp_path: Path) -> None:
    client = opened(tmp_path, '[server]\nurls = ["https://ask.example.com"]\n')
    ours = {"127.0.0.1:8765": "http://127.0.0.1:8765", "ask.example.com": "https://ask.example.com"}
    for host, origin in ours.items():
        for claimed in (*ours.values(), "null", "http://localhost:8765", "http://ask.example.com"):
            reply = client.get("/healthz", headers={"Host": host, "Origin": claimed})
            assert reply.status_code == (200 if claimed == origin else 403), (host, claimed)
            assert "access-control-allow-origin" not in reply.headers


def test_other_origins_only_as_configured(tmp_path: Path) -> None:
    client = opened(tmp_path, '[server]\ncors = ["https://app.example"]\n')
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    preflight = client.options("/v1/ask", headers=asked)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-credentials" not in preflight.headers
    wanted = "mcp-protocol-version, Mcp-Session-Id,x-stainless-retry-count, cookie, x-forwarded-for, mcp-\u00e9"
    both = client.options("/mcp", headers={**asked, "Access-Control-Request-Headers": wanted.encode()})
    allowed = both.headers["access-control-allow-headers"].split(", ")
    assert allowed[:2] == ["authorization", "content-type"]
    assert allowed[4:] == ["mcp-protocol-version", "mcp-session-id", "x-stainless-retry-count"]
    assert "Mcp-Session-Id" in both.headers["access-control-expose-headers"]
    reply = client.get("/healthz", headers={"Origin": "https://app.example"})
    assert (reply.status_code, reply.headers["vary"]) == (200, "Origin")
    assert client.get("/healthz", headers={"Origin": "https://app.example.evil"}).status_code == 403


def test_another_site_may_link_to_a_page_and_use_nothing_else(tmp_path: Path) -> None:
    client = opened(tmp_path)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/", headers=image).status_code == 403
    for path in ("/v1/runs", "/static/app.js", "/metrics", "/v1/pages/x"):
        assert client.get(path, headers=link).status_code == 403
        assert client.get(path, headers=image).status_code == 403


def test_everything_leaves_with_headers_that_keep_a_browser_from_harm(tmp_path: Path) -> None:
    client = opened(tmp_path)
    for path in ("/", "/healthz", "/v1/nothing", "/static/app.js"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_secrets_leave_in_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-canary-0123456789")
    write_corpus(tmp_path)
    with ready(opened(tmp_path)) as client:
        (tmp_path / "rules" / "leak.md").write_text("# Leak\n\nThe key is sk-canary-0123456789 as it happens.\n")
        with Corpus.open(config.load(tmp_path / "citehound.toml", env={}), write=True) as corpus:
            corpus.sync()
        answers = [
            client.get("/v1/documents/rules/leak"),
            client.post("/v1/search", json={"query": "key happens"}),
            client.post("/v1/ask", json={"question": "What is the key?"}),
            client.post("/v1/ask", json={"question": "What is the key?"}, headers={"Accept": "text/event-stream"}),
            client.get("/v1/documents/sk-canary-0123456789"),
        ]
    for answer in answers:
        assert "canary" not in answer.text
        assert int(answer.headers.get("content-length", len(answer.content))) == len(answer.content)
    assert "[redacted]" in answers[0].json()["text"]


# tokens


def test_without_tokens_whoever_sits_here_owns_everything(tmp_path: Path) -> None:
    client = opened(tmp_path)
    assert client.get("/v1/session").json() == {"name": "owner", "groups": [], "owner": True}


def test_with_a_token_none_comes_in_without_one(tmp_path: Path) -> None:
    client = opened(tmp_path)
    token = tokens_of(tmp_path).add("ann", groups=["legal", "audit"])
    refused = client.get("/v1/session")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="citehound"')
    me = client.get("/v1/session", headers=bearer(token)).json()
    assert me == {"name": "ann", "groups": ["audit", "legal"], "owner": False}
    for wrong in (token[:-1], token + "x", token.upper(), "", f"{token} {token}"):
        assert client.get("/v1/session", headers=bearer(wrong)).status_code == 401
    assert client.get("/v1/session", params={"token": token}).status_code == 401
    tokens_of(tmp_path).remove("ann")
    tokens_of(tmp_path).add("bob")
    assert client.get("/v1/session", headers=bearer(token)).status_code == 401


def test_beyond_this_machine_a_token_is_needed_even_where_there_is_none(tmp_path: Path) -> None:
    client = opened(tmp_path, host="0.0.0.0")
    assert client.get("/v1/session").status_code == 401
    token = tokens_of(tmp_path).add("first", owner=True)
    assert client.get("/v1/session", headers=bearer(token)).json()["owner"] is True


def test_tokens_that_cannot_be_read_let_nobody_in(tmp_path: Path) -> None:
    client = opened(tmp_path)
    tokens_of(tmp_path).add("ann")
    (tmp_path / ".citehound" / FILE).write_text('{"tokens": [{"name": "ann", "owner": "yes"}]}')
    assert client.get("/v1/session").status_code == 401
    with pytest.raises(CitehoundError, match="cannot be read"):
        tokens_of(tmp_path).all()


def test_a_token_is_long_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state" / FILE
    tokens = Tokens(path)
    made = [tokens.add(f"n{n}") for n in range(3)]
    assert len({*made}) == 3
    assert all(len(token) >= 3 + 43 for token in made)  # 256 bits in base64
    text = path.read_text()
    assert not [token for token in made if token in text or token[3:] in text]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [token.name for token in tokens.all()] == ["n0", "n1", "n2"]


@pytest.mark.parametrize("name", ["", "a b", "../x", "owner", "-x", "x" * 65, "ann\n", "ann"])
def test_a_name_is_plain_and_taken_once(tmp_path: Path, name: str) -> None:
    tokens = Tokens(tmp_path / FILE)
    tokens.add("ann")
    with pytest.raises(UsageError):
        tokens.add(name)


def test_tokens_are_looked_after_from_the_command_line(tmp_path: Path) -> None:
    path = str(write_corpus(tmp_path))

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["tokens", *arguments, "--config", path], catch_exceptions=False)

    added = run("add", "--name", "ann", "--group", "legal", "--group", "audit")
    token = added.stdout.strip()
    assert tokens_of(tmp_path).find(token) is not None
    assert token not in added.stderr
    run("add", "--name", "boss", "--owner")
    assert run("list").stdout.split("\n")[0].endswith("legal, audit")
    listed = json.loads(run("list", "--json").stdout)
    assert [(t["name"], t["groups"], t["owner"]) for t in listed] == [
        ("ann", ["legal", "audit"], False),
        ("boss", [], True),
    ]
    assert token not in str(listed)
    run("remove", "--name", "ann")
    assert tokens_of(tmp_path).find(token) is None
    assert run("remove", "--name", "ann").exit_code == 2


def test_the_page_gets_a_session_for_a_token(tmp_path: Path) -> None:
    client = opened(tmp_path, '[server]\nurls = ["https://ask.example.com"]\n')
    token = tokens_of(tmp_path).add("ann")
    assert client.post("/v1/session", json={"token": "ch_wrong"}).status_code == 401
    reply = client.post("/v1/session", json={"token": token})
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert token not in cookie
    assert client.get("/v1/session").json()["name"] == "ann"
    session = client.cookies["citehound_session"]
    assert client.delete("/v1/session").status_code == 204
    assert client.get("/v1/session", headers={"Cookie": f"citehound_session={session}"}).status_code == 401
    behind = client.post("/v1/session", json={"token": token}, headers={"Host": "ask.example.com"})
    assert "Secure" in behind.headers["set-cookie"]


def test_a_session_writes_from_a_page_only(tmp_path: Path) -> None:
    client = opened(tmp_path)
    client.post("/v1/session", json={"token": tokens_of(tmp_path).add("ann")})
    bare = client.post("/v1/runs/abc/cancel")
    assert bare.status_code == 403
    assert client.post("/v1/runs/abc/cancel", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.post("/v1/runs/abc/cancel", headers={"Origin": HOME}).status_code == 404


def test_the_first_token_is_made_and_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write_corpus(tmp_path))
    served: list[FastAPI] = []

    def serve(app: FastAPI, listening: socket.socket) -> None:
        listening.close()
        served.append(app)

    monkeypatch.setattr("citehound.server.app.serve", serve)

    def run(host: str) -> str:
        done = CliRunner().invoke(cli, ["serve", "--host", host, "--port", "0", "--config", path])
        assert done.exit_code == 0, done.stderr
        return done.stderr

    assert "token" not in run("127.0.0.1")
    first = run("0.0.0.0")
    token = first.split("shown once: ")[1].split()[0]
    found = tokens_of(tmp_path).find(token)
    assert found is not None
    assert found.owner
    assert "shown once" not in run("0.0.0.0")
    assert len(served) == 3


def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    client = opened(tmp_path)
    tokens = tokens_of(tmp_path)
    client.post("/v1/session", json={"token": tokens.add("ann")})
    tokens.add("bob")
    assert client.get("/v1/session").json()["name"] == "ann"
    tokens.remove("ann")
    assert client.get("/v1/session").status_code == 401


def test_tokens_cannot_be_tried_one_after_the_other(tmp_path: Path) -> None:
    client = opened(tmp_path)
    tokens_of(tmp_path).add("ann")
    tried = [client.post("/v1/session", json={"token": f"ch_{n}"}) for n in range(40)]
    assert {reply.status_code for reply in tried} == {401, 429}
    assert int(tried[-1].headers["retry-after"]) >= 1


# proxies


PROXY = """\
[server]
user_header = "X-User"
groups_header = "X-Groups"
owners = ["root@example"]
proxies = ["10.1.0.0/16"]
"""


def proxied(root: Path, address: str) -> TestClient:
    loaded = config.load(write_corpus(root, toml=TOML + PROXY), env={})
    return TestClient(create_app(loaded), base_url=HOME, client=(address, 50000))


def test_a_trusted_proxy_says_who_asks(tmp_path: Path) -> None:
    client = proxied(tmp_path, "10.1.2.3")
    me = client.get("/v1/session", headers={"X-User": "ann@example", "X-Groups": "legal, audit"}).json()
    assert me == {"name": "ann@example", "groups": ["audit", "legal"], "owner": False}
    assert client.get("/v1/session", headers={"X-User": "root@example"}).json()["owner"] is True
    assert client.get("/v1/session").status_code == 401
    for forged in ("owner", "a b", "", "x" * 200, "ann,bob"):
        assert client.get("/v1/session", headers={"X-User": forged}).status_code == 401
    twice = [("X-User", "ann"), ("X-User", "root@example")]
    assert client.get("/v1/session", headers=twice).status_code == 401


def test_nobody_else_may_say_so(tmp_path: Path) -> None:
    for address in ("10.2.0.1", "127.0.0.1", "::1"):
        client = proxied(tmp_path, address)
        assert client.get("/v1/session", headers={"X-User": "root@example"}).status_code == 401
    off = opened(tmp_path / "off")
    tokens_of(tmp_path / "off").add("ann")
    assert off.get("/v1/session", headers={"X-User": "root@example"}).status_code == 401


# rates and sizes


def test_a_principal_that_asks_too_often_waits(tmp_path: Path) -> None:
    client = opened(tmp_path, "[server]\nrequests_per_minute = 5\n")
    ann, bob = tokens_of(tmp_path).add("ann"), tokens_of(tmp_path).add("bob")
    statuses = [client.get("/v1/session", headers=bearer(ann)).status_code for _ in range(7)]
    assert statuses == [200] * 5 + [429] * 2
    assert client.get("/v1/session", headers=bearer(bob)).status_code == 200
    refused = client.get("/v1/session", headers=bearer(ann))
    assert 1 <= int(refused.headers["retry-after"]) <= 12
    assert refused.json()["error"]["type"] == "too_many_requests"


def test_questions_have_a_rate_of_their_own(tmp_path: Path) -> None:
    with ready(opened(tmp_path, "[server]\nquestions_per_minute = 2\n")) as client:
        asked = [client.post("/v1/ask", json={"question": "What of incidents?"}) for _ in range(3)]
    assert [reply.status_code for reply in asked] == [200, 200, 429]


def test_a_body_is_as_large_as_configured(tmp_path: Path) -> None:
    client = opened(tmp_path, "[server]\nmax_body = 100\n")
    good = client.post("/v1/search", json={"query": "x"})
    assert good.status_code != 413
    assert client.post("/v1/search", json={"query": "x" * 100}).status_code == 413


# every route


PUBLIC = {
    "GET /": "a page without data",
    "GET /dashboard": "a page without data",
    "GET /sources": "a page without data",
    "GET /doc/{id:path}": "a page without data",
    "GET /openapi.json": "what routes there are",
    "GET /healthz": "whether the process lives",
    "GET /readyz": "whether it can answer",
    "POST /v1/session": "the token itself is the proof",
    "DELETE /v1/session": "ends what the cookie names",
    "MOUNT /static": "the files of the pages",
    "MOUNT /static/chart": "a library of the pages",
}
"""Routes that do not ask who it is, with the reason."""
OWNED = {
    "POST /v1/ask": "the run is the caller's",
    "POST /v1/runs": "the run is the caller's",
    "GET /v1/runs": "runs of the caller",
    "GET /v1/runs/{run_id}": "runs of the caller",
    "GET /v1/runs/{run_id}/events": "runs of the caller",
    "GET /v1/runs/{run_id}/report": "runs of the caller",
    "POST /v1/runs/{run_id}/cancel": "runs of the caller",
    "POST /v1/runs/{run_id}/feedback": "runs of the caller",
    "GET /v1/sources": "counts and values that the caller may see",
    "GET /v1/sources/{name}/documents": "documents that the caller may see",
    "GET /v1/sources/{name}/report": "files whose documents the caller may see",
    "GET /v1/documents/{document:path}": "documents that the caller may see",
    "GET /v1/pages/{document:path}": "documents that the caller may see",
    "POST /v1/search": "hits that the caller may see",
    "POST /v1/verify": "documents and runs of the caller",
    "GET /v1/session": "the caller",
    "GET /v1/models": "the same for all callers",
    "GET /v1/models/{model:path}": "the same for all callers",
    "POST /v1/chat/completions": "the run is the caller's",
    "GET /v1/dashboard": "runs of the caller",
    "GET /v1/dashboard/runs": "runs of the caller",
    "GET /metrics": "an owner, or the group 'metrics'",
    "ANY /mcp": "the caller of each request",
}
"""Routes that ask who it is, with what is kept to the caller."""
INSIDE = {"ANY /mcp"}
"""Routes that are applications of their own and ask inside."""


def routes_of(app: FastAPI) -> Iterator[tuple[str, Any]]:
    """Each route of the application as 'METHOD /path', those of included routers too."""

    def walk(routes: list[Any]) -> Iterator[Any]:
        for route in routes:
            inner = getattr(route, "original_router", None)
            if inner is None:
                yield route
            else:
                yield from walk(inner.routes)

    for route in walk(cast("list[Any]", app.router.routes)):
        methods = getattr(route, "methods", None)
        if methods is None:
            kind = "MOUNT" if type(route).__name__ == "Mount" else "ANY"
            yield f"{kind} {route.path}", route
            continue
        for method in sorted(methods - {"HEAD"}):
            yield f"{method} {route.path}", route


def asks_who(route: Any) -> bool:
    """True for a route that cannot run before the principal of the request is known."""

    def within(dependant: Any) -> bool:
        return dependant.call is principal_of or any(within(d) for d in dependant.dependencies)

    return isinstance(route, APIRoute) and within(route.dependant)


def test_every_route_asks_who_it_is_or_says_why_not(tmp_path: Path) -> None:
    app = cast(FastAPI, opened(tmp_path).app)
    found = dict(routes_of(app))
    known = PUBLIC | OWNED
    assert sorted(found.keys() - known.keys()) == [], "a new route: say in PUBLIC or OWNED whose things it shows"
    assert sorted(known.keys() - found.keys()) == []
    for name, route in found.items():
        if name not in INSIDE:
            assert asks_who(route) == (name in OWNED), name


FILLED = {"run_id": "abc", "name": "rules", "document:path": "rules/security", "model:path": "citehound"}


def test_no_route_that_asks_lets_anybody_in(tmp_path: Path) -> None:
    with ready(opened(tmp_path)) as client:
        tokens_of(tmp_path).add("ann")
        for name in OWNED:
            method, path = name.split(" ")
            path = (
                path.replace("{run_id}", "abc").replace("{name}", "rules").replace("{document:path}", "rules/security")
            )
            reply = client.request("POST" if method == "ANY" else method, path, json={} if method != "GET" else None)
            assert reply.status_code == 401, name


WALLED = TOML.replace('name = "deals"', 'name = "deals"\naccess = ["legal"]')
Probe = Callable[[TestClient, dict[str, str]], Any]


def get(path: str) -> Probe:
    return lambda client, headers: client.get(path, headers=headers)


def post(path: str, body: dict[str, Any]) -> Probe:
    return lambda client, headers: client.post(path, json=body, headers=headers)


CLAIM = {
    "text": "Within 72 hours.",
    "citations": [{"document": "deals/alpha", "quote": "within 72 hours of discovery"}],
}
HIDDEN: dict[str, Probe] = {
    "POST /v1/ask": post("/v1/ask", {"question": "Within how many hours does Alpha report incidents?"}),
    "GET /v1/sources": get("/v1/sources"),
    "GET /v1/sources/{name}/documents": get("/v1/sources/deals/documents"),
    "GET /v1/sources/{name}/report": get("/v1/sources/deals/report"),
    "GET /v1/documents/{document:path}": get("/v1/documents/deals/alpha"),
    "GET /v1/pages/{document:path}": get("/v1/pages/deals/alpha"),
    "POST /v1/search": post("/v1/search", {"query": "supplier reports incidents hours discovery"}),
    "POST /v1/verify": post("/v1/verify", {"claims": [CLAIM], "read": [{"document": "deals/alpha"}]}),
    "GET /v1/dashboard": get("/v1/dashboard"),
}
"""A request of each route that shows documents: none may tell one who is not of the group that there are any."""


def test_a_document_that_is_not_for_the_caller_shows_nowhere(tmp_path: Path) -> None:
    loaded = config.load(write_corpus(tmp_path, toml=WALLED), env={})
    with ready(TestClient(create_app(loaded), base_url=HOME)) as client:
        tokens = tokens_of(tmp_path)
        legal, sales = bearer(tokens.add("lea", groups=["legal"])), bearer(tokens.add("sam", groups=["sales"]))
        mine = client.post("/v1/ask", json={"question": "What does Alpha report?"}, headers=legal).json()["run_id"]
        for name, probe in HIDDEN.items():
            assert probe(client, legal).status_code in (200, 404), name
            if name != "POST /v1/verify":  # that repeats what it is given
                shown = probe(client, sales).text
                assert not [word for word in ("deals/alpha", "72 hours", "Contract", "Beta") if word in shown], name
        missing = client.get("/v1/documents/deals/nothing", headers=sales)
        hidden = client.get("/v1/documents/deals/alpha", headers=sales)
        assert (hidden.status_code, hidden.content) == (missing.status_code, missing.content) == (404, missing.content)
        assert client.get(f"/v1/runs/{mine}", headers=sales).status_code == 404
        verdict = HIDDEN["POST /v1/verify"](client, sales).json()["claims"][0]
        assert verdict["status"] == "unverified"


def test_the_constants_of_the_guard_are_what_the_docs_say() -> None:
    assert guard.MOST_DEPTH == 32
    assert api.PING_SECONDS == 15

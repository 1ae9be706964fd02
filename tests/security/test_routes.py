"""Every route of the server keeps to what is its caller's: a new one is found here until it says how it is tried."""

from __future__ import annotations

import json
from collections.abc import Generator

import httpx2
import pytest

from citehound import config
from citehound.server.app import bind, create_app
from citehound.server.tokens import FILE, Tokens
from served import live
from small import TOML, write_corpus
from test_server_guard import OWNED

WALLED = TOML.replace('name = "deals"', 'name = "deals"\naccess = ["legal"]')
QUESTION = {"question": "Within how many hours does Alpha report incidents?", "mode": "single"}
CHAT = {"model": "citehound", "messages": [{"role": "user", "content": QUESTION["question"]}]}
CLAIM = {"text": "In 72 hours.", "citations": [{"document": "deals/alpha", "quote": "within 72 hours of discovery"}]}
TELLING = ("deals", "72 hours", "Contract", "Beta", "legal", "leonhardine")
"""What only who is in the group may be told, wherever it does not only repeat what was sent."""
SAME = {"GET /v1/models", "GET /v1/models/{model:path}"}
"""Show nothing of documents and runs."""
NAMED: dict[str, tuple[tuple[str, object], tuple[str, object]]] = {
    "GET /v1/runs/{run_id}": (("/v1/runs/@", None), ("/v1/runs/zzz", None)),
    "GET /v1/runs/{run_id}/events": (("/v1/runs/@/events", None), ("/v1/runs/zzz/events", None)),
    "GET /v1/runs/{run_id}/report": (("/v1/runs/@/report", None), ("/v1/runs/zzz/report", None)),
    "POST /v1/runs/{run_id}/cancel": (("/v1/runs/@/cancel", {}), ("/v1/runs/zzz/cancel", {})),
    "POST /v1/runs/{run_id}/feedback": (
        ("/v1/runs/@/feedback", {"good": True}),
        ("/v1/runs/zzz/feedback", {"good": True}),
    ),
    "GET /v1/sources/{name}/documents": (("/v1/sources/deals/documents", None), ("/v1/sources/zzz/documents", None)),
    "GET /v1/sources/{name}/report": (("/v1/sources/deals/report", None), ("/v1/sources/zzz/report", None)),
    "GET /v1/documents/{document:path}": (("/v1/documents/deals/alpha", None), ("/v1/documents/zzz", None)),
    "GET /v1/pages/{document:path}": (("/v1/pages/deals/alpha", None), ("/v1/pages/zzz", None)),
    "POST /v1/verify": (
        ("/v1/verify", {"claims": [], "run_id": "@", "read": [{"document": "deals/alpha"}]}),
        ("/v1/verify", {"claims": [], "run_id": "zzz", "read": [{"document": "zzz"}]}),
    ),
    "POST /v1/search": (
        ("/v1/search", {"query": "incidents", "source": "deals"}),
        ("/v1/search", {"query": "incidents", "source": "zzz"}),
    ),
    "POST /v1/runs": (("/v1/runs", {**QUESTION, "sources": ["deals"]}), ("/v1/runs", {**QUESTION, "sources": ["zzz"]})),
}
"""What is somebody else's, and what there is not: the answers are one and the same."""
SHOWN: dict[str, tuple[str, object]] = {
    "POST /v1/ask": ("/v1/ask", QUESTION),
    "GET /v1/runs": ("/v1/runs", None),
    "GET /v1/sources": ("/v1/sources", None),
    "GET /v1/session": ("/v1/session", None),
    "POST /v1/chat/completions": ("/v1/chat/completions", CHAT),
    "GET /v1/dashboard": ("/v1/dashboard", None),
    "GET /v1/dashboard/runs": ("/v1/dashboard/runs", None),
    "GET /metrics": ("/metrics", None),
    "ANY /mcp": (
        "/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}},
    ),
}  # fmt: skip
"""What shows whatever is the caller's: nothing of others is in it."""


def test_every_route_is_tried() -> None:
    assert OWNED.keys() == NAMED.keys() | SHOWN.keys() | SAME


class Visit:
    """A server that who is in the group has asked something, seen by somebody who is not."""

    def __init__(self, client: httpx2.Client, run: str, theirs: str, mine: str) -> None:
        self.client, self.run = client, run
        self._tokens = {"theirs": theirs, "mine": mine}

    def send(self, route: str, path: str, body: object, *, who: str = "mine") -> httpx2.Response:
        method = "POST" if route.startswith(("POST", "ANY")) else "GET"
        text = json.dumps(body).replace("@", self.run) if body is not None else None
        headers = {"Authorization": f"Bearer {self._tokens[who]}", "Accept": "application/json, text/event-stream"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if route == "GET /v1/runs/{run_id}/events":
            headers["Accept"] = "application/json"
        elif route != "ANY /mcp":
            headers["Accept"] = "*/*"
        return self.client.request(method, path.replace("@", self.run), content=text, headers=headers)


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Generator[Visit]:
    loaded = config.load(write_corpus(tmp_path_factory.mktemp("routes"), toml=WALLED), env={})
    tokens = Tokens(loaded.state / FILE)
    theirs, mine = tokens.add("leonhardine", groups=["legal"]), tokens.add("sam", groups=["sales"])
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, port=listening.getsockname()[1])
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        made = Visit(client, "", theirs, mine)
        asked = made.send("POST /v1/ask", "/v1/ask", QUESTION, who="theirs").json()
        assert "72 hours" in asked["text"]
        made.run = asked["run_id"]
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("route", NAMED)
def test_what_is_somebody_elses_is_told_like_what_there_is_not(route: str, visit: Visit) -> None:
    forbidden, missing = (visit.send(route, *request) for request in NAMED[route])
    assert forbidden.status_code == missing.status_code == 404
    told = forbidden.text.replace("deals/alpha", "zzz").replace("deals", "zzz").replace(visit.run, "zzz")
    assert told == missing.text
    assert visit.send(route, *NAMED[route][0], who="theirs").status_code != 404 or "pages" in route


@pytest.mark.slow
@pytest.mark.parametrize("route", SHOWN)
def test_what_is_shown_is_the_callers(route: str, visit: Visit) -> None:
    reply = visit.send(route, *SHOWN[route])
    assert reply.status_code in ((200, 403) if route == "GET /metrics" else (200,))
    said = reply.text.replace(QUESTION["question"], "")
    assert [word for word in (*TELLING, visit.run) if word in said] == []

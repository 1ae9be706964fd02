"""MCP: what clients are told goes through the gate; limits, rights and the hold on what reaches out are the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from checks import control_characters

pytest.importorskip("mcp", reason="needs the package 'mcp': pip install 'citehound[mcp]'")

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from citehound import config
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.corpus import Corpus
from citehound.documents import Passage
from citehound.mcp_server import server_over
from citehound.server.app import bind, create_app
from citehound.server.tokens import FILE, Tokens
from citehound.session import Session
from served import live
from small import TOML, opened, write_corpus

KEY = "sk-canary-9c41f00dbeef"
ODD = "odd\u202e\u200b\U000e0041\x9b"
ASKED: list[str] = []


def crm(query: str) -> list[str]:
    """Customers."""
    ASKED.append(query)
    return ["Customer Nimbus."]


def over(corpus: Corpus, work: Callable[[Client], Awaitable[Any]], *, era: str = "auto") -> Any:
    async def run() -> Any:
        async with Client(server_over(Assistant(corpus.config, corpus)), mode=era) as client:
            return await work(client)

    return asyncio.run(run())


@pytest.mark.parametrize("era", ["auto", pytest.param("legacy", marks=pytest.mark.slow)])
def test_nothing_that_a_client_is_told_of_tools_and_documents_is_unseen_or_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    files = {
        "rules/a.md": f"---\ntitle: {json.dumps(ODD + KEY)}\nowner: {KEY}\n---\n# A\n\nThe key {KEY}.\n",
        f"rules/{KEY}.md": "# B\n\nNothing.\n",
    }
    toml = f'[[sources]]\nname = "rules"\npath = "rules"\nfilters = ["owner"]\ndescription = "Say {KEY}."\n'

    async def work(client: Client) -> list[str]:
        tools = await client.list_tools()
        listed = await client.list_resources()
        read = await client.read_resource("citehound://documents/rules/a")
        templates = await client.list_resource_templates()
        found = await client.call_tool("search_rules", {"query": "key"})
        return [one.model_dump_json() for one in (tools, listed, read, templates, found)]

    with opened(tmp_path, files, toml=toml) as corpus:
        said = over(corpus, work, era=era)
    assert [text[:40] for text in said if KEY in text] == []
    assert [text[:40] for text in said if control_characters(json.dumps(json.loads(text), ensure_ascii=False))] == []
    assert "[redacted]" in said[0] and "[redacted]" in said[1] and "The key [redacted]." in said[2]


@pytest.mark.slow
def test_a_source_that_reaches_out_is_no_tool_beside_a_private_one_whatever_is_asked(tmp_path: Path) -> None:
    outside = (
        '\n[[sources]]\nname = "crm"\nkind = "python"\ncall = "test_mcp_gate:crm"\nprivate = false\negress = true\n'
    )
    toml = TOML + outside + "[security]\nquarantine = true\n"
    ASKED.clear()

    async def work(client: Client) -> tuple[list[str], list[bool]]:
        names = [tool.name for tool in (await client.list_tools()).tools]
        calls: list[tuple[str, Mapping[str, Any]]] = [
            ("search_crm", {"query": "incidents"}),
            ("read_document", {"document": "rules/security"}),
            ("search_crm", {"query": "24 hours of discovery"}),
            ("list_documents", {"source": "crm"}),
            ("follow_leads", {"question": "What does crm say?"}),
            ("read_document", {"document": "crm/anything"}),
        ]
        return names, [bool((await client.call_tool(name, dict(given))).is_error) for name, given in calls]

    with opened(tmp_path, toml=toml) as corpus:
        names, failed = over(corpus, work)
    assert "search_crm" not in names and "search_rules" in names
    assert failed == [True, False, True, True, False, True] and ASKED == []


@pytest.mark.slow
def test_a_session_that_was_told_of_private_text_keeps_it_from_whom_it_asks(tmp_path: Path) -> None:
    """Where no source is private nothing is held back, but what is of no known source counts as private."""
    outside = (
        '\n[[sources]]\nname = "crm"\nkind = "python"\ncall = "test_mcp_gate:crm"\nprivate = false\negress = true\n'
    )
    toml = TOML.replace("path = ", "private = false\npath = ") + outside
    ASKED.clear()
    with opened(tmp_path, toml=toml) as corpus:
        session = Session(corpus, principal=OWNER)
        assert "hits" in session.call_sync("search_crm", {"query": "nimbus"})
        foreign = "Something of another place."
        session.read(Passage(document="vault/x", section=None, title="", text=foreign, start=0, end=27, total_chars=27))
        assert "withdrawn" in session.call_sync("search_crm", {"query": "nimbus again"})["error"]
        assert ASKED == ["nimbus"]


@pytest.mark.slow
def test_limits_and_rights_over_mcp_are_those_of_the_server(tmp_path: Path) -> None:
    settings = "[server]\nquestions_per_day = 1\n"
    loaded = config.load(write_corpus(tmp_path, toml=settings + TOML), env={})
    tokens = Tokens(loaded.state / FILE)
    token = tokens.add("ann")
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, port=listening.getsockname()[1])

    async def work(url: str) -> list[tuple[bool, str]]:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with Client(transport, mode="auto") as client:
                question = {"question": "Within how many hours must incidents be reported?", "mode": "single"}
                got = [await client.call_tool("ask", question), await client.call_tool("ask", question)]
                got.append(await client.call_tool("read_document", {"document": "rules/security"}))
                rule = '[[access]]\npaths = ["rules/security.md"]\ngroups = ["board"]\n'
                (tmp_path / "citehound.toml").write_text(settings + rule + TOML, "utf-8")
                got.append(await client.call_tool("read_document", {"document": "rules/security"}))
                got.append(await client.call_tool("search_rules", {"query": "incidents discovery"}))
        return [(bool(one.is_error), str(getattr(one.content[0], "text", ""))) for one in got]

    with live(app, listening) as url:
        first, second, read, again, found = asyncio.run(work(url))
    assert not first[0] and "24 hours" in first[1]
    assert second[0] and "1 questions in 24 hours" in second[1]
    assert not read[0] and "24 hours" in read[1]
    assert again[0] and "no document is called" in again[1]
    assert not found[0] and json.loads(found[1])["hits"] == []

"""The page while a run lasts, and with answers that are wrong or hostile: a scripted model behind a real server."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from markdown_it import MarkdownIt

import protocol_server
from served import Served, serving
from small import FILES, TOML, WITHIN_24, write_corpus

from .conftest import Tabs, expect

SEARCH = {"kind": "tool", "name": "search_rules", "args": {"query": "incidents"}}
READ = {"kind": "tool", "name": "read_document", "args": {"document": "rules/security"}}
CLAIM = {"text": WITHIN_24, "kind": "quoted", "citations": [{"document": "rules/security", "quote": WITHIN_24}]}
WRONG = {
    "text": "Incidents must be reported within 48 hours.",
    "kind": "quoted",
    "citations": [{"document": "rules/security", "quote": "reported to the bank within 48 hours of discovery"}],
}
SAID = {"text": "Everybody knows that.", "kind": "quoted", "citations": []}
IMAGE = "<img src=x onerror='window.pwned=1'>"
MARKUP = (
    f"{IMAGE}<script>window.pwned=1</script> ![beacon](https://evil.example/x.png) [click](javascript:window.pwned=1)"
    " <a href='https://evil.example/'>here</a> https://evil.example/plain <svg onload=window.pwned=1> &lt;b&gt;"
)
HOSTILE = {
    "hostile/<b>bold<b>.txt": f"{MARKUP}\n\nThe limit of the hostile text is 5 days after the notice.\n",
    "hostile/front.md": f'---\ntitle: "{IMAGE}"\nstatus: "<svg onload=\'window.pwned=1\'>"\nversion: "<i>4</i>"\n'
    f'supplier: "javascript:window.pwned=1"\n---\nThe second hostile text names 6 days after the notice.\n',
}
HOSTILE_QUOTE = "The limit of the hostile text is 5 days after the notice."
HOSTILE_DRAFT = {
    "claims": [
        {
            "text": f"{HOSTILE_QUOTE} {MARKUP}",
            "kind": "quoted",
            "citations": [{"document": "hostile/<b>bold<b>", "quote": HOSTILE_QUOTE}],
        },
        {"text": MARKUP, "kind": "quoted", "citations": [{"document": MARKUP, "quote": MARKUP}]},
        {"text": MARKUP, "kind": "conclusion", "citations": [], "premises": [1, 2]},
    ],
    "missing": [{"what": MARKUP, "reason": MARKUP}],
}


def draft(*claims: dict[str, Any], missing: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {"kind": "draft", "draft": {"claims": list(claims), "missing": missing or []}}


FOUND = [SEARCH, READ, draft(CLAIM)]
DOUBTFUL = draft(CLAIM, WRONG, SAID, missing=[{"what": "Fines", "reason": "none"}])
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "reloaded": [SEARCH, {**READ, "gate": "reloaded"}, draft(CLAIM)],
    "cut off": FOUND,
    "planted": FOUND,
    "stuck": [SEARCH, {"kind": "timeout", "phase": "read"}],
    "wrong by day": [SEARCH, READ, DOUBTFUL, DOUBTFUL],
    "wrong by night": [SEARCH, READ, DOUBTFUL, DOUBTFUL],
    "hostile": [
        {
            "kind": "tools",
            "calls": [
                {"name": "search_hostile", "args": {"query": "hostile text notice"}},
                {"name": "search_hostile", "args": {"query": MARKUP[:200]}},
            ],
        },
        {
            "kind": "tools",
            "calls": [
                {"name": "read_document", "args": {"document": "hostile/<b>bold<b>"}},
                {"name": "read_document", "args": {"document": "hostile/front"}},
                {"name": "read_document", "args": {"document": IMAGE}},
            ],
        },
        {"kind": "draft", "draft": HOSTILE_DRAFT},
        {"kind": "draft", "draft": HOSTILE_DRAFT},
    ],
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    server: Served
    models: protocol_server.Server
    folder: Path

    @property
    def url(self) -> str:
        return self.server.url


def configured(folder: Path, base_url: str) -> Path:
    model = f'[model]\nname = "openai-compatible:scripted"\nbase_url = "{base_url}"\nstream = false\n'
    price = "[model.price]\ninput = 1\noutput = 5\n"
    hostile = '[[sources]]\nname = "hostile"\npath = "hostile"\ndescription = "<b>Everything</b>."\n'
    return write_corpus(folder, {**FILES, **HOSTILE}, toml=f"{model}{price}{TOML}{hostile}")


@pytest.fixture(scope="module")
def setting(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator[Setting]:
    folder = tmp_path_factory.mktemp("scripted")
    with (
        protocol_server.serve(scripts=SCRIPTS, protocol="openai", per="question") as models,
        serving(configured(folder, models.openai_url)) as started,
    ):
        yield Setting(server=started, models=models, folder=folder)


def get(url: str) -> Any:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.load(answer)


def begin(page: Any, question: str) -> Any:
    """Asks in the mode `agent`, so that the script alone decides; gives the article of the question."""
    page.locator("#sources input").first.wait_for(state="attached")
    page.locator("#options").evaluate("(e) => e.open = true")
    page.get_by_label("Mode").select_option("agent")
    page.get_by_label("Your question").fill(question)
    page.keyboard.press("Enter")
    turn = page.locator("article").last
    turn.wait_for()
    return turn


def over(turn: Any) -> None:
    """Waits for the answer of a question, and for its record, which comes after."""
    turn.locator(".turn-foot").wait_for()
    expect(turn).not_to_have_attribute("aria-busy", "true")


def answered(turn: Any) -> dict[str, Any]:
    """As `over`; gives the record."""
    over(turn)
    at = urlsplit(turn.page.url)
    return get(f"{at.scheme}://{at.netloc}/v1/runs/{turn.get_attribute('data-run')}")


def test_a_run_outlives_a_reload_and_is_stopped_by_its_button(setting: Setting, tabs: Tabs) -> None:
    page = tabs.open(setting.url)
    turn = begin(page, "What is the reloaded deadline?")
    turn.locator(".call", has_text="Search rules").locator(".outcome", has_text="hit").wait_for()
    run = turn.get_attribute("data-run")
    assert get(f"{setting.url}/v1/runs/{run}")["running"] is True
    expect(page).to_have_url(f"{setting.url}/#/runs/{run}")
    page.reload()
    turn.locator(".clock", has_text="$0.00").wait_for(state="attached")
    setting.models.open("reloaded")
    answered(turn)
    expect(turn.locator(".step-name")).to_have_text(["Step 1", "Step 2", "Step 3"])
    expect(turn.locator(".call", has_text="Search rules")).to_have_count(1)
    expect(turn.locator(".claim").first).to_contain_text(WITHIN_24)
    expect(turn.locator(".banner")).to_have_attribute("data-status", "complete")
    expect(turn.locator(".progress")).to_be_hidden()

    page.get_by_role("link", name="New question").click()
    expect(page.locator("article")).to_have_count(0)
    turn = begin(page, "What is the stuck deadline?")
    turn.locator(".call", has_text="Search rules").locator(".outcome", has_text="hit").wait_for()
    turn.get_by_role("button", name="Stop").click()
    expect(turn.locator(".banner")).to_contain_text("It was stopped before it was done.")
    assert answered(turn)["answer"]["stop_reason"] == "cancelled"


@pytest.mark.slow
def test_a_lost_connection_goes_on_after_the_last_event_that_came(setting: Setting, tabs: Tabs) -> None:
    page = tabs.open(setting.url)
    resumed: list[str | None] = []
    sent: list[str] = []

    def cut(route: Any) -> None:
        resumed.append(route.request.headers.get("last-event-id"))
        if len(resumed) > 1:
            route.continue_()
            return
        events = get(route.request.url)[:2]
        sent.append(str(len(events)))
        body = "".join(f"id: {n}\ndata: {json.dumps(event)}\n\n" for n, event in enumerate(events, start=1))
        route.fulfill(status=200, content_type="text/event-stream", body=body + "data: {half of an ev")

    page.route("**/events", cut)
    page.evaluate(  # what is said of it passes
        "window.lost = []; new MutationObserver(() => lost.push(document.querySelector('.lost')?.textContent ?? ''))"
        ".observe(document.getElementById('thread'), {attributes: true, childList: true, subtree: true})"
    )
    turn = begin(page, "What is the cut off deadline?")
    answered(turn)
    assert any(said.startswith("The connection is lost") for said in page.evaluate("lost"))
    assert resumed == [None, *sent]
    expect(turn.locator(".lost")).to_be_hidden()
    expect(turn.locator(".call", has_text="Search rules")).to_have_count(1)
    expect(turn.locator(".claim")).to_have_count(1)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_is_not_verified_cannot_be_overlooked(setting: Setting, tabs: Tabs, axe: Any, dark: bool) -> None:
    page = tabs.open(setting.url, dark=dark)
    turn = begin(page, f"What is wrong by {'night' if dark else 'day'}?")
    answered(turn)
    banner = turn.locator(".banner").first
    expect(banner).to_have_attribute("data-status", "partial")
    said = banner.inner_text()
    assert "Partial answer" in said and "One claim could not be verified." in said
    assert "One claim has no citation." in said and "One missing thing was not searched for." in said
    claims = turn.locator(".claim")
    expect(claims.locator(".badge")).to_have_text(["Verified", "Not verified", "No citation"])
    ground = "(e) => getComputedStyle(e).backgroundColor"
    assert claims.nth(1).evaluate(ground) != claims.nth(0).evaluate(ground)
    expect(claims.nth(1).locator(".why")).to_contain_text("rules/security")
    expect(turn.get_by_role("region", name="Missing")).to_contain_text("Not searched")
    assert axe(page) == []
    claims.nth(1).locator("a.chip").click()
    page.locator("#panel .doc-text").wait_for()
    expect(page.locator("#panel .doc-note")).to_contain_text("Not verified")
    expect(page.locator("mark")).to_have_count(0)


LIVE = """() => {
  const known = new Set(["/static/icon.svg"]);
  const bad = [];
  for (const e of document.querySelectorAll("*")) {
    for (const a of e.attributes) {
      const own = e.id === "question" && a.name === "style"; // its height
      if (a.name.startsWith("on") || (a.name === "style" && !own) || a.name === "srcdoc")
        bad.push(`${e.tagName} ${a.name}`);
      if (["href", "src", "action", "formaction", "data", "xlink:href"].includes(a.name)
        && !/^(?:\\/(?!\\/)|#)/.test(a.value)) bad.push(`${e.tagName} ${a.name}=${a.value}`);
    }
    if (e.tagName === "IMG" && !known.has(e.getAttribute("src"))) bad.push(`IMG ${e.getAttribute("src")}`);
    if (["IFRAME", "OBJECT", "EMBED", "BASE", "B", "I"].includes(e.tagName)) bad.push(e.tagName);
    if (e.tagName === "SCRIPT" && !e.src) bad.push("inline script");
    if (e.tagName === "svg" && !e.classList.contains("icon")) bad.push("svg");
  }
  if (window.pwned) bad.push("a script ran");
  return bad;
}"""


@pytest.mark.slow
def test_nothing_of_a_hostile_document_or_answer_becomes_active(setting: Setting, tabs: Tabs) -> None:
    requested: list[str] = []
    page = tabs.open(setting.url)
    page.on("request", lambda r: requested.append(r.url))
    turn = begin(page, f"What is the hostile limit? {MARKUP}")
    answered(turn)
    turn.locator("details.steps > summary").click()
    for summary in turn.locator("details.outcome summary, .gap-why summary").all():
        summary.click()
    assert page.evaluate(LIVE) == []
    assert IMAGE in turn.locator(".claim").nth(1).inner_text()
    assert IMAGE in turn.get_by_role("region", name="Missing").inner_text()
    turn.locator(".claim").first.locator("a.chip").click()
    expect(page.locator("mark")).to_have_text(HOSTILE_QUOTE)
    expect(page.locator(".doc-text")).to_contain_text(IMAGE)
    assert page.evaluate(LIVE) == []
    page.keyboard.press("Escape")
    page.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    turn.get_by_role("button", name="Copy as Markdown").click()
    page.wait_for_function("window.copied")
    copied = page.evaluate("window.copied")
    tokens = [t for block in MarkdownIt("commonmark").parse(copied) for t in (block, *(block.children or ()))]
    assert {t.type for t in tokens} & {
        "link_open",
        "image",
        "html_inline",
        "html_block",
        "fence",
        "code_block",
    } == set()
    assert "https://" not in copied  # what other readers of Markdown make a link of
    run = turn.get_attribute("data-run")
    for path, ready in (
        ("/doc/hostile/front", ".doc-text"),
        ("/doc/hostile/%3Cb%3Ebold%3Cb%3E", ".doc-text"),
        ("/sources", "#hostile tbody tr"),
    ):
        page.goto(setting.url + path)
        page.locator(ready).first.wait_for()
        expect(page.locator("main")).to_contain_text(IMAGE)
        assert page.evaluate(LIVE) == []
    page.goto(f"{setting.url}/v1/runs/{run}/report")
    assert page.locator("script, img, iframe, svg, a, form, [onerror], [onload], main b").count() == 0
    assert IMAGE in page.locator("main").inner_text()
    assert [url for url in requested if not url.startswith(setting.url)] == []


@pytest.mark.slow
def test_every_known_attack_stays_text_on_the_page(setting: Setting, tabs: Tabs, shared_data: Path) -> None:
    lines = (shared_data / "attacks" / "injections.jsonl").read_text("utf-8").splitlines()
    attacks = [json.loads(line) for line in lines if line.strip()]
    page = tabs.open(setting.url)
    turn = begin(page, "What is the planted deadline?")
    record = answered(turn)
    run = record["run_id"]
    answer = record["answer"]
    model = answer["claims"][0]
    citation = model["citations"][0]
    for attack in attacks:
        said = str(attack["obey"].get("answer") or attack["text"])
        cited = {**citation, "document": f"rules/{attack['text'][:80]}", "quote": attack["text"], "labels": [said]}
        answer["claims"].append(
            {**model, "text": said, "status": "unverified", "warnings": [said], "citations": [cited]}
        )
        answer["missing"].append(
            {"what": said, "status": "unchecked", "sources": [said], "queries": [said], "reason": said}
        )
        answer["warnings"].append(attack["text"])
    events = get(f"{setting.url}/v1/runs/{run}/events")
    for attack in attacks:
        text = attack["text"]
        call = {"step": 1, "agent": text, "tool": f"search_{text}", "arguments": {"query": text, text: text}}
        events.insert(-1, {"type": "tool_called", **call})
        events.insert(-1, {"type": "tool_failed", "step": 1, "agent": text, "tool": f"search_{text}", "error": text})
    page.route(f"**/v1/runs/{run}", lambda route: route.fulfill(json=record))
    page.route(f"**/v1/runs/{run}/events", lambda route: route.fulfill(json=events))
    page.reload()
    expect(turn.locator(".claim")).to_have_count(len(attacks) + 1)
    turn.locator(".turn-foot").wait_for()
    turn.locator("details.steps > summary").click()
    assert page.evaluate(LIVE) == []


@pytest.mark.slow
def test_a_server_with_tokens_asks_for_one(browser: Any, tabs: Tabs, tmp_path: Path, axe: Any) -> None:
    config = write_corpus(tmp_path)
    command = [sys.executable, "-m", "citehound", "tokens", "add", "--name", "ada", "--owner", "--config", str(config)]
    token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    tabs.allowed = ("401", "403")
    with serving(config) as served:
        page = tabs.open(served.url)
        dialog = page.get_by_role("dialog", name="Sign in")
        expect(page.locator("#token-field")).to_be_focused()
        assert axe(page) == []
        page.keyboard.type("not the token")
        page.keyboard.press("Enter")
        dialog.get_by_role("alert").filter(has_text="token").wait_for()
        page.keyboard.type(token)
        page.keyboard.press("Enter")
        page.locator(".card").first.wait_for()
        expect(dialog).to_have_count(0)
        assert token not in page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        page.get_by_label("Your question").fill("Within how many hours must incidents be reported?")
        page.keyboard.press("Enter")
        over(page.locator("article"))
        page.reload()
        page.locator(".claim").first.wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("dialog", name="Sign in").wait_for()


@pytest.mark.slow
def test_errors_say_what_to_do_and_an_empty_server_says_it_is_empty(setting: Setting, tabs: Tabs) -> None:
    tabs.allowed = ("404", "422", "503", "Failed to load resource")
    page = tabs.open(f"{setting.url}/#/runs/zzzzzzzzzzzzz")
    page.get_by_role("alert").first.wait_for()
    page.get_by_role("link", name="New question").click()
    page.locator("#sources input").first.wait_for(state="attached")
    page.locator("#options").evaluate("(e) => e.open = true")
    for box in page.locator("#sources input").all():
        box.uncheck()
    page.get_by_label("Your question").fill("Anything?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("choose at least one")
    for box in page.locator("#sources input").all():
        box.check()
    page.route("**/v1/runs", lambda route: route.abort() if route.request.method == "POST" else route.continue_())
    page.locator("#send").click()
    page.get_by_role("alert").filter(has_text="cannot be reached").wait_for()
    expect(page.get_by_label("Your question")).to_have_value("Anything?")
    page.unroute("**/v1/runs")
    page.route("**/v1/runs?*", lambda route: route.fulfill(json={"runs": [], "running": [], "next_before": None}))
    page.route("**/v1/sources", lambda route: route.fulfill(json={"sources": []}))
    page.goto(f"{setting.url}/")
    page.get_by_text("Questions that were asked stand here.").wait_for()
    page.get_by_text("There is no source yet.").wait_for()


def serve_text(page: Any, text: str) -> None:
    """Lets the server have a document `rules/made` with this text."""

    def answer(route: Any) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        start, limit = int(query["start"][0]), int(query["limit"][0])
        end = min(len(text), start + limit)
        passage = {
            "document": "rules/made",
            "section": None,
            "title": "Made",
            "text": text[start:end],
            "start": start,
            "end": end,
            "next_start": end if end < len(text) else None,
            "total_chars": len(text),
            "outline": [],
            "current": True,
            "metadata": {},
            "labels": [],
            "page": None,
        }
        route.fulfill(json=passage)

    page.route("**/v1/documents/rules/made?*", answer)


MARKED = "(all) => all.map((e) => e.textContent)"


@pytest.mark.slow
def test_a_quote_is_marked_by_code_points_also_behind_emoji(setting: Setting, tabs: Tabs) -> None:
    secret = "\U0001f512\U0001f512 Pre\u0301face."
    text = f"{secret}\n\nName | Term\nAlpha \U0001f600 | 30 days\n\nThe term that we set ends on day 30. End."
    page = tabs.open(f"{setting.url}/sources")
    serve_text(page, text)

    def marked(quote: str, start: int, end: int) -> list[str]:
        more = f"&quote={quote}" if quote else ""
        page.goto(f"{setting.url}/doc/rules/made?start={start}&end={end}{more}")
        page.locator("mark, .doc-note").first.wait_for()
        return page.locator("mark").evaluate_all(MARKED)

    for words in ("ends on day 30.", "Pre\u0301face.", "\U0001f600 | 30 days"):
        start = text.index(words)
        assert "".join(marked("", start, start + len(words))) == words
    start = text.index("The term")
    assert marked("The term … on day 30.", start, len(text) - 5) == ["The term", "on day 30."]
    assert marked("The term … on day 31.", start, len(text) - 5) == []
    assert "The document has changed since" in page.locator(".doc-note").inner_text()


@pytest.mark.slow
def test_a_long_document_opens_at_the_quote_and_goes_on_both_ways(setting: Setting, tabs: Tabs) -> None:
    text = "\n\n".join(f"Paragraph {n} of \U0001f4dc the long text, which nobody reads whole." for n in range(9000))
    start = text.index("Paragraph 6000 of")
    words = text[start : text.index("\n", start)]
    page = tabs.open(f"{setting.url}/sources")
    serve_text(page, text)
    page.goto(f"{setting.url}/doc/rules/made?start={start}&end={start + len(words)}")
    expect(page.locator("mark")).to_have_text([words])
    page.wait_for_function("document.querySelector('mark').getBoundingClientRect().top < innerHeight")
    shown = "document.querySelector('.doc-text').textContent.match(/Paragraph \\d+/g).map((t) => Number(t.slice(10)))"
    for button, edge in (("Show more", -1), ("Show what comes before", 0)):
        before = page.evaluate(shown)
        page.get_by_role("button", name=button).click()
        beyond = before[edge] + (100 if edge else -100)
        page.locator(".doc-text p", has_text=f"Paragraph {beyond} of").wait_for(state="attached")
        after = page.evaluate(shown)
        assert after == list(range(after[0], after[-1] + 1))
        assert after[edge] != before[edge]
        assert page.locator("mark").evaluate_all(MARKED) == [words]

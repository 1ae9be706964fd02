"""The page over the bundled bank corpus, offline: ask, watch, open a citation, read, browse, print."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Generator
from typing import Any

import pytest

from served import Served, bank, serving
from test_parsing_pdf import pdf

from .conftest import Tabs, expect

QUESTION = "Does the contract with supplier Alpha comply with the current outsourcing policy?"
ANNEX = "contracts/contract-alpha-security-annex"
WITHIN_72 = (
    "2.1 Alpha notifies the bank of a security incident that affects customer data within 72 hours of becoming aware "
    "of it."
)
Axe = Callable[[Any], list[str]]


PRINTED = "The scanned agreement ends on 31 March 2031 without notice."
LEAFLET = """
[[sources]]
name = "leaflets"
path = "leaflets"
description = "Printed leaflets."

[[sources]]
name = "books"
path = "books"
description = "Books."
"""
BOOK = "".join(f"## Chapter {n} of the book\n\nWords of chapter {n}, which are few.\n\n" for n in range(1, 4001))
WIDE = " | ".join(f"Column {n} has a heading" for n in range(12))


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with serving(bank(tmp_path_factory.mktemp("bank"))) as started:
        yield started


@pytest.fixture(scope="module")
def printing(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """The bank with a PDF and files that cannot be read."""
    config = bank(tmp_path_factory.mktemp("printing"))
    folder = config.parent / "leaflets"
    folder.mkdir()
    texts = ("Cover of the leaflet.", PRINTED)
    (folder / "printed.pdf").write_bytes(pdf([f"BT /F1 12 Tf 60 700 Td ({text}) Tj ET" for text in texts]))
    (folder / "torn.pdf").write_bytes(b"%PDF-1.4 torn")
    (folder / "tool.exe").write_bytes(b"MZ")
    (config.parent / "books").mkdir()
    table = f"| {WIDE} |\n|{'---|' * 12}\n| {WIDE.replace('heading', 'value')} |\n\n"
    (config.parent / "books" / "book.md").write_text(f"# The book\n\n{table}{BOOK}", "utf-8")
    config.write_text(config.read_text("utf-8") + LEAFLET, "utf-8")
    with serving(config) as started:
        yield started


def get(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        return json.load(answer)


def asked(page: Any, question: str = QUESTION) -> Any:
    """The article of the question, once its answer stands there and is recorded."""
    page.get_by_label("Your question").fill(question)
    page.keyboard.press("Enter")
    return answered(page.locator("article").last)


def answered(turn: Any) -> Any:
    """The article of a question whose answer is there; the answer comes before its record."""
    turn.locator(".turn-foot").wait_for()
    expect(turn).not_to_have_attribute("aria-busy", "true")
    return turn


def fits_the_window(page: Any) -> None:
    page.wait_for_function("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_compliance_question_is_asked_watched_and_traced_to_the_quoted_words(
    server: Served, tabs: Tabs, axe: Axe
) -> None:
    page = tabs.open("about:blank")
    loaded: list[Any] = []
    page.on("requestfinished", lambda request: loaded.append(request))
    page.goto(server.url)
    page.locator(".card").first.wait_for()
    page.wait_for_load_state("networkidle")
    sizes = [request.sizes() for request in loaded]
    assert len(sizes) > 8
    assert 0 < sum(s["responseBodySize"] + s["responseHeadersSize"] for s in sizes) < 60_000
    turn = asked(page)

    # The steps: source, terms, filter, hits, what was read.
    expect(turn.locator("details.steps")).not_to_have_attribute("open", "")
    turn.locator("details.steps > summary").click()
    record = get(f"{server.url}/v1/runs/{turn.get_attribute('data-run')}")
    usage = record["answer"]["usage"]
    summary = turn.locator("details.steps > summary").inner_text()
    assert f"{usage['steps']} steps · {usage['searches']} searches · {usage['reads']} reads" in summary
    assert re.search(r"\d s · \$0", summary)
    steps = turn.locator(".step")
    search = steps.filter(has_text="Search contracts").first.locator(".call").first
    assert "supplier: Alpha" in search.inner_text() and "hits" in search.inner_text()
    assert turn.locator(".call", has_text="Read").locator("a", has_text=ANNEX).count() == 1

    # The answer: every claim with its verdict in words, what is missing in its own box.
    claims = turn.locator(".claim")
    assert claims.count() == len(record["answer"]["claims"])
    assert claims.locator(".badge").all_inner_texts() == ["Verified"] * claims.count()
    missing = turn.get_by_role("region", name="Missing")
    assert "due diligence" in missing.inner_text() and "Searched, not found" in missing.inner_text()

    # The citation: those words and no others are marked, in view, and focus is on them.
    chip = claims.filter(has_text="72 hours of becoming").locator("a.chip")
    chip.click()
    expect(page.locator("mark")).to_have_text([WITHIN_72])
    expect(page.locator("mark")).to_be_focused()
    expect(page.locator(".outline summary")).to_have_text("Outline, 12 sections")  # all that there are
    assert axe(page) == []
    page.keyboard.press("Escape")
    expect(chip).to_be_focused()
    assert chip.get_attribute("href").startswith(f"/doc/{ANNEX}?section=2.1&start=")

    # A reload shows the same; so does a phone, without scrolling sideways.
    page.reload()
    expect(turn.locator(".claim")).to_have_count(len(record["answer"]["claims"]))
    page.set_viewport_size({"width": 360, "height": 740})
    fits_the_window(page)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_has_a_serious_fault_for_people_with_disabilities(
    server: Served, tabs: Tabs, axe: Axe, width: int, dark: bool
) -> None:
    page = tabs.open(server.url, width=width, dark=dark)
    page.locator(".card").first.wait_for()
    page.locator("#options summary").click()
    found = {"empty": axe(page)}
    turn = asked(page)
    turn.locator("details.steps > summary").click()
    found["answer"] = axe(page)
    turn.get_by_role("button", name="Bad answer").click()
    turn.locator(".reason").wait_for()
    found["feedback"] = axe(page)
    turn.locator("a.chip").first.click()
    page.locator("mark").wait_for()
    page.locator(".outline summary").click()
    found["panel"] = axe(page)
    page.locator("#panel-out").click()
    page.wait_for_url("**/doc/**")
    page.locator("mark").wait_for()
    found["document"] = axe(page)
    for path, ready in (
        ("/sources", "tbody tr"),
        ("/#/runs/0000000000000", ".banner-bad"),
        ("/doc/no/such", ".banner"),
    ):
        tabs.allowed = ("404",)
        page.goto(server.url + path)
        page.locator(ready).first.wait_for()
        found[path] = axe(page)
    assert {where: faults for where, faults in found.items() if faults} == {}


@pytest.mark.slow
def test_everything_fits_a_phone(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url, width=360, height=740)
    page.locator(".card").first.wait_for()
    page.locator("#options summary").click()
    fits_the_window(page)
    turn = asked(page)
    turn.locator("details.steps > summary").click()
    for hits in turn.locator("details.outcome summary").all():
        hits.click()
    fits_the_window(page)
    page.get_by_role("button", name="History").click()
    expect(page.get_by_role("complementary", name="History")).to_be_visible()
    fits_the_window(page)
    page.keyboard.press("Escape")
    turn.locator("a.chip").first.click()
    page.locator("mark").wait_for()
    fits_the_window(page)
    box = "Object.values(document.getElementById('panel').getBoundingClientRect().toJSON()).slice(0, 4)"
    page.wait_for_function(f"String({box}) === '0,0,360,740'")
    page.get_by_role("button", name="Close").click()
    for path, ready in (("/sources", "tbody tr"), (f"/doc/{ANNEX}", ".doc-text p")):
        page.goto(server.url + path)
        page.locator(ready).first.wait_for()
        fits_the_window(page)


def focused(page: Any) -> str:
    return page.evaluate(
        "(document.activeElement.ariaLabel || document.activeElement.innerText || document.activeElement.id).trim()"
    )


def tab_to(page: Any, wanted: str, *, most: int = 80) -> None:
    """Presses Tab until something with this text has the focus, and checks that the eye can see it each time."""
    for _ in range(most):
        page.keyboard.press("Tab")
        ring = page.evaluate(
            "(() => {const e = document.activeElement; if (e === document.body) return true;"
            "const s = getComputedStyle(e), b = getComputedStyle(e.closest('.composer-box, .pick') ?? e);"
            "return s.outlineStyle !== 'none' || b.outlineStyle !== 'none'})()"
        )
        assert ring, f"nothing shows that {focused(page)!r} has the focus"
        if wanted in focused(page):
            return
    raise AssertionError(f"no Tab leads to {wanted!r}")


@pytest.mark.slow
def test_the_keyboard_is_enough(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url)
    page.locator(".card").first.wait_for()
    page.locator("body").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#question")).to_be_focused()
    tab_to(page, "Options")
    page.keyboard.press("Enter")
    expect(page.locator("#options")).to_have_attribute("open", "")
    page.keyboard.press("Tab")
    expect(page.locator("#sources input[value=policies]")).to_be_focused()
    page.keyboard.press("Space")
    expect(page.locator("#options-summary")).to_contain_text("2 sources")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#question")).to_be_focused()
    page.keyboard.type(QUESTION)
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Enter")
    turn = answered(page.locator("article"))
    expect(turn.get_by_role("heading", level=2)).to_be_focused()
    tab_to(page, "How it was found")
    page.keyboard.press("Enter")
    tab_to(page, "hits")
    page.keyboard.press("Enter")
    expect(page.locator(".hits a").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator(".hits a").first).to_be_hidden()
    tab_to(page, ANNEX)
    page.keyboard.press("Enter")
    page.locator(".doc-text").wait_for()
    expect(page.locator("#panel :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("article a:focus")).to_contain_text(ANNEX)
    tab_to(page, "claim 4")
    page.keyboard.press("Enter")
    expect(page.locator(".claim:focus")).to_contain_text("24 hours")
    tab_to(page, "Copy as Markdown")
    tab_to(page, "Good answer")
    page.keyboard.press("Enter")
    expect(page.locator(".reason input")).to_be_focused()
    page.keyboard.type("found the gap")
    page.keyboard.press("Enter")
    page.get_by_text("Thank you, it is noted.").wait_for()
    run = page.locator("article").get_attribute("data-run")
    opinion = get(f"{server.url}/v1/runs/{run}")["feedback"]
    assert (opinion["good"], opinion["reason"]) == (True, "found the gap")
    tab_to(page, "follow-up question")


@pytest.mark.slow
def test_the_answer_is_announced_and_the_page_has_landmarks(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url)
    page.evaluate(
        "window.said = []; new MutationObserver(() => said.push(document.getElementById('live').textContent.trim()))"
        ".observe(document.getElementById('live'), {childList: true, characterData: true, subtree: true})"
    )
    turn = asked(page)
    said = page.evaluate("said")
    assert "Step 1" in said and any(text.startswith("Search contracts: ") for text in said)
    assert any(text.startswith("Read policies/") for text in said)
    assert re.match(r"Complete, (\d+) of \1 claims verified, 1 missing\.", said[-1])
    for role, name in (("banner", None), ("main", None), ("navigation", "Pages"), ("complementary", "History")):
        expect(page.get_by_role(role, name=name)).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(turn.get_by_role("heading", level=2)).to_have_text(QUESTION)


@pytest.mark.slow
def test_the_answer_is_copied_as_markdown_with_references(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url, permissions=["clipboard-read", "clipboard-write"])
    turn = asked(page)
    turn.get_by_role("button", name="Copy as Markdown").click()
    page.locator("#live", has_text="Copied as Markdown").wait_for(state="attached")  # what the button says passes
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith(f"## {QUESTION}\n\n**Complete.**")
    number = re.search(r"72 hours of becoming aware of it\. \\\[(\d+)\\\]", text)
    assert number is not None
    assert f'\n{number.group(1)}. {ANNEX} §2.1: "{WITHIN_72}"' in text
    assert "**Missing**" in text and "due diligence" in text.split("**Missing**")[1]


@pytest.mark.slow
def test_the_report_prints_and_holds_nothing_active(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url)
    turn = asked(page)
    with page.expect_popup() as opened:
        turn.get_by_role("link", name="Report").click()
    report = opened.value
    expect(report.locator("h1")).to_have_text(QUESTION)
    expect(report.locator("blockquote", has_text="72 hours")).to_have_text(WITHIN_72)
    assert report.locator("script, img, link, iframe, object, embed, form, a, [onclick], [style]").count() == 0
    assert "due diligence" in report.locator(".missing").inner_text()
    assert report.evaluate("getComputedStyle(document.querySelector('.missing')).borderTopStyle") == "solid"


@pytest.mark.slow
def test_a_superseded_document_says_so_and_leads_to_its_successor(server: Served, tabs: Tabs) -> None:
    page = tabs.open(f"{server.url}/doc/policies/outsourcing-policy-v3?section=7.3")
    page.locator(".doc-text").wait_for()
    expect(page.get_by_role("heading", level=1)).to_have_text("Outsourcing Policy v3")
    expect(page.locator("main")).to_contain_text("This text is not current.")
    expect(page.locator(":focus")).to_contain_text("72 hours")
    page.get_by_role("link", name="policies/outsourcing-policy-v4").click()
    page.get_by_role("heading", level=1, name="Outsourcing Policy v4").wait_for()
    page.locator(".outline summary").click()
    page.locator(".outline a", has_text="7.3").click()
    expect(page.locator(":focus")).to_contain_text("24 hours")


@pytest.mark.slow
def test_a_citation_of_a_pdf_has_its_page_and_the_picture_of_it(printing: Served, tabs: Tabs) -> None:
    page = tabs.open(printing.url)
    turn = asked(page, "When does the scanned agreement end?")
    chip = turn.locator("a.chip", has_text="leaflets/printed").first
    assert "p. 2" in chip.inner_text()
    chip.click()
    expect(page.locator("mark")).to_have_text(PRINTED)
    picture = page.locator("details.original")
    picture.locator("summary", has_text="page 2").click()
    width = "(image) => image.decode().then(() => image.naturalWidth)"
    assert picture.locator("img").evaluate(width) > 300
    tabs.allowed = ("404",)
    with page.expect_response("**/v1/pages/**") as asked_for:
        page.goto(f"{printing.url}/doc/{ANNEX}?section=2.1&page=1")
    assert asked_for.value.status == 404
    page.locator(".doc-text").wait_for()
    expect(page.locator("details.original")).to_be_hidden()


@pytest.mark.slow
def test_the_outline_of_a_book_is_short_and_leads_everywhere(printing: Served, tabs: Tabs, axe: Axe) -> None:
    page = tabs.open(f"{printing.url}/doc/books/book", width=360, height=740)
    page.locator(".outline summary", has_text="of many sections").click()
    assert axe(page) == []
    entries = page.locator(".outline li:visible")
    assert 100 < entries.count() <= 200
    expect(page.locator(".outline .after-gap").first).to_be_visible()
    expect(page.locator(".doc-table[tabindex]")).to_have_count(1)  # it scrolls by itself
    fits_the_window(page)
    last = page.locator(".outline a").last
    name = last.inner_text()
    page.get_by_role("searchbox", name="Find a section").fill(name)
    expect(entries).to_have_count(1)
    last.click()
    expect(page.locator(".doc-text :focus")).to_have_text(name)
    page.wait_for_function("document.activeElement.getBoundingClientRect().top < innerHeight")


@pytest.mark.slow
def test_a_survey_is_a_table_with_a_row_per_document(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url, width=360, height=740)
    turn = asked(page, "Which contracts lack an incident notification deadline?")
    rows = get(f"{server.url}/v1/runs/{turn.get_attribute('data-run')}")["answer"]["rows"]
    assert len(rows) > 5
    table = turn.get_by_role("region", name="One row per document")
    expect(table.locator("tbody tr")).to_have_count(len(rows))
    assert [t.split("\n")[-1] for t in table.locator("tbody th").all_inner_texts()] == [r["document"] for r in rows]
    expect(table.locator("tbody .badge")).to_have_count(sum(len(row["cells"]) for row in rows))
    fits_the_window(page)


@pytest.mark.slow
def test_sources_are_browsed_and_filtered(printing: Served, tabs: Tabs) -> None:
    page = tabs.open(f"{printing.url}/sources")
    listed = {s["name"]: s["documents"] for s in get(f"{printing.url}/v1/sources")["sources"]}
    for name, documents in listed.items():
        expect(page.locator(f"#{name} tbody tr")).to_have_count(documents)
    row = page.locator("#policies tbody tr", has_text="policies/outsourcing-policy-v3")
    expect(row).to_contain_text("superseded by policies/outsourcing-policy-v4")
    documents = get(f"{printing.url}/v1/sources/policies/documents?all_versions=true")["documents"]
    known = {d["document"]: d for d in documents}["policies/outsourcing-policy-v3"]
    expect(row.locator(".number")).to_have_text(str(known["sections"]))
    leaflets = page.locator("#leaflets")
    expect(leaflets.locator("tbody tr")).to_contain_text("PDF · 2 pages")
    expect(leaflets.locator(".problems-failed li")).to_contain_text("torn.pdf")
    leaflets.get_by_text("1 file left out").click()
    expect(leaflets.locator(".problems-skipped li")).to_contain_text("tool.exe")
    page.get_by_label("Filter").fill("amendment centre")
    visible = page.locator("tbody tr:visible")
    expect(visible).to_have_count(1)
    expect(visible).to_contain_text("contracts/contract-gamma-amendment-1")
    expect(page.locator(".source:visible")).to_have_count(1)
    visible.locator("a").first.click()
    page.wait_for_url("**/doc/contracts/contract-gamma-amendment-1*")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Amendment")


@pytest.mark.slow
def test_history_opens_old_runs_and_a_follow_up_keeps_its_conversation(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url)
    asked(page, "How long are incident records kept?")
    page.get_by_label("Your follow-up question").fill("And who approves contracts above EUR 500,000 a year?")
    page.keyboard.press("Enter")
    second = answered(page.locator("article").nth(1))
    address = f"{server.url}/#/runs/{second.get_attribute('data-run')}"
    expect(page).to_have_url(address)
    page.reload()
    second.locator(".turn-foot").wait_for()
    expect(page).to_have_url(address)
    expect(page.locator("article h2.asked")).to_have_text(
        ["How long are incident records kept?", "And who approves contracts above EUR 500,000 a year?"]
    )
    page.get_by_role("link", name="New question").click()
    expect(page.locator("article")).to_have_count(0)
    expect(page).to_have_url(f"{server.url}/")
    entry = page.locator("#runs a", has_text="How long are incident records kept?").first
    expect(entry).to_contain_text("2 questions")
    entry.click()
    second.locator(".turn-foot").wait_for()
    expect(page).to_have_url(address)
    page.go_back()
    expect(page.locator("article")).to_have_count(0)


@pytest.mark.slow
def test_a_follow_up_that_is_sent_early_waits_for_the_answer(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url)
    held: list[Any] = []
    page.route("**/events", lambda route: held.append(route))
    page.get_by_label("Your question").fill("How long are incident records kept?")
    page.keyboard.press("Enter")
    page.locator("article .progress").wait_for()
    page.get_by_label("Your follow-up question").fill("Who keeps them?")
    page.keyboard.press("Enter")
    waits = page.locator("#queued", has_text="This will be asked when the answer above is there.")
    waits.wait_for()
    expect(page.locator("article")).to_have_count(1)
    page.unroute("**/events")  # which lets go on what was held
    second = answered(page.locator("article").nth(1))
    expect(waits).to_be_hidden()
    expect(second.locator("h2.asked")).to_have_text("Who keeps them?")
    run = second.get_attribute("data-run")
    assert get(f"{server.url}/v1/runs/{run}")["answer"]["turn"] == 2


@pytest.mark.slow
def test_the_theme_is_chosen_and_kept(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark theme").click()
    page.wait_for_function(f"{ground} !== '{light}'")
    dark = page.evaluate(ground)
    page.goto(f"{server.url}/sources")
    page.wait_for_function(f"{ground} === '{dark}'")
    page.get_by_role("button", name="Light theme").click()
    page.wait_for_function(f"{ground} === '{light}'")


@pytest.mark.slow
def test_nothing_moves_for_people_who_want_it_still(server: Served, tabs: Tabs) -> None:
    page = tabs.open(server.url, reduced_motion="reduce")
    asked(page)
    page.wait_for_function("document.getAnimations().length === 0")

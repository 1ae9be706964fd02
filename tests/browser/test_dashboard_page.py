"""The dashboard in a browser: its numbers are those of the run records, and each of them leads to its runs."""

from __future__ import annotations

import json
import random
import re
import time
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from citehound import config, runs
from citehound.access import OWNER
from citehound.runs import RunRecord, RunStore
from invented import INDEXED, answer, invent, reads
from served import Served, serving
from small import TOML, write_corpus

from .conftest import Tabs, expect

Axe = Callable[[Any], list[str]]
ALERT = "\n[dashboard]\nalert_share = 0.05\nalert_citations = 5\nalert_hours = 100000\n"
ODD = "<img src=x onerror=alert(1)> & <b>who</b> signs?"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {f"{name}.md": f"# {title}\n\nWords of {title}.\n" for name, title in INDEXED.items()}
    return write_corpus(tmp_path_factory.mktemp("board"), files, toml=TOML + ALERT)


@pytest.fixture(scope="module")
def records(corpus: Path) -> list[RunRecord]:
    store = RunStore(config.load(corpus, env={}).state / "runs.sqlite")
    clock = [time.time()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.time, "time", lambda: clock[0])
        invent(store, random.Random(11), 40, at=lambda at: clock.__setitem__(0, at), now=clock[0])
        store.save(answer(question=ODD, gaps=[(ODD, False)], stop="steps"), reads("rules/a"), principal=OWNER)
    return [store.get(s.run_id, principal=OWNER) for s in store.list(1000, principal=OWNER)]


@pytest.fixture(scope="module")
def server(browser: Any, corpus: Path, records: list[RunRecord]) -> Generator[Served]:
    with serving(corpus) as started:
        yield started


def board(tabs: Tabs, url: str, **how: Any) -> Any:
    page = tabs.open(url, timezone_id="Europe/Lisbon", **how)
    page.locator("#board:not([aria-busy])").wait_for()
    return page


def tile(page: Any, label: str) -> Any:
    return page.locator(".tile", has=page.get_by_text(label, exact=True)).locator(".tile-value")


def get(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as given:
        return json.load(given)


def test_the_numbers_are_those_of_the_records_and_lead_to_their_runs(
    server: Served, records: list[RunRecord], tabs: Tabs
) -> None:
    page = board(tabs, f"{server.url}/dashboard?range=all")
    answers = [record.answer for record in records]
    cites = [c for a in answers for claim in a.claims for c in claim.citations]
    failed = sum(c.status == "unverified" for c in cites)
    capped = sum(a.stop_reason in ("steps", "dollars", "seconds") for a in answers)
    expect(tile(page, "Questions")).to_have_text(str(len(records)))
    searches = sum(a.usage.searches for a in answers) / len(answers)
    expect(tile(page, "Searches per question")).to_have_text(f"{searches:.1f}")
    expect(tile(page, "Hit a cap")).to_have_text(f"{100 * capped / len(answers):.0f} %")
    expect(tile(page, "Citations that failed")).to_have_text(f"{100 * failed / len(cites):.0f} %")
    expect(tile(page, "Spent")).to_have_text(f"${sum(a.usage.dollars or 0 for a in answers):.2f}")
    expect(page.get_by_role("alert")).to_contain_text(f"{failed} of {len(cites)} citations failed")

    # Every number says how many runs it stands for, and that many come.
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    links = page.locator("a[data-runs]").evaluate_all("all => all.map((a) => [a.getAttribute('href'), a.dataset.runs])")
    assert len(links) > 50
    for href, expected in links:
        query = {k[3:]: v for k, v in parse_qsl(urlsplit(href).query) if k.startswith("of.") and k != "of."}
        found = get(f"{server.url}/v1/dashboard/runs?{urlencode(query)}")
        assert found["total"] == int(expected), href

    # The plots are drawn, and hold the same numbers.
    drawn = page.evaluate("Object.values(Chart.instances).map((c) => c.data.datasets.map((d) => d.data))")
    assert len(drawn) == page.locator("canvas").count() == 7
    assert sum(drawn[0][0]) == sum(drawn[2][0]) == len(records)

    # One of them by hand: the drawer, a run of it, and back.
    page.locator("a[data-runs]", has=page.get_by_text("Hit a cap", exact=True)).click()
    title = page.locator("#drawer-title")
    expect(title).to_have_text(f"{capped} questions that hit a cap")
    expect(page.locator(".found")).to_have_count(min(50, capped))
    run = page.locator(".found").first
    assert run.get_attribute("href") == f"/#/runs/{run.get_attribute('data-run')}"
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).to_be_hidden()
    expect(page).not_to_have_url(re.compile(r"of\."))  # the event of a closed dialog comes after it is gone

    # A bar leads there too.
    page.locator("canvas").first.scroll_into_view_if_needed()
    place = page.evaluate(
        "(() => { const c = Object.values(Chart.instances)[0], b = c.getDatasetMeta(0).data[1];"
        " const r = c.canvas.getBoundingClientRect(); return [r.x + b.x, r.y + b.y + 4]; })()"
    )
    page.mouse.click(*place)
    expect(title).to_have_text(f"{sum(a.usage.searches == 1 for a in answers)} questions with 1 search")


@pytest.mark.slow
def test_what_is_selected_is_in_the_address_and_text_stays_text(
    server: Served, records: list[RunRecord], tabs: Tabs, axe: Axe
) -> None:
    page = board(tabs, f"{server.url}/dashboard?range=all", width=360, height=740, dark=True)
    page.wait_for_function("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert axe(page) == []
    page.set_viewport_size({"width": 1280, "height": 860})
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    assert axe(page) == []
    page.locator("#mode").select_option("agent")
    agents = [r for r in records if r.answer.mode == "agent"]
    page.locator("#lead", has_text=f"{len(agents)} questions").wait_for()
    expect(page).to_have_url(re.compile("mode=agent"))
    expect(tile(page, "Questions")).to_have_text(str(len(agents)))
    gap = page.locator(".ranked .what", has_text="onerror")
    expect(gap).to_have_text(ODD)
    gap.locator("xpath=..").get_by_role("link").click()
    expect(page.locator(".found-question")).to_have_text(ODD)
    assert axe(page) == []
    assert page.locator("img[src=x]").count() == 0
    page.reload()
    page.locator(".found-question").wait_for()
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile(r"of\."))
    page.locator("#mode").select_option("")
    page.locator("#lead", has_text=f"{len(records)} questions").wait_for()
    page.locator("#from").fill("1999-01-01")
    page.locator("#to").fill("1999-02-01")
    page.get_by_role("heading", name="No question here").wait_for()
    page.go_back()
    expect(page.locator("#to")).to_have_value("")
    page.go_back()
    page.locator("#lead", has_text=f"{len(records)} questions").wait_for()


@pytest.mark.slow
def test_before_the_first_question_the_page_says_so(server: Served, tabs: Tabs) -> None:
    page = tabs.open("about:blank")

    def nothing_yet(route: Any) -> None:
        route.fulfill(json={**route.fetch().json(), "modes": []})

    page.route("**/v1/dashboard?*", nothing_yet)
    page.goto(f"{server.url}/dashboard?from=1999-01-01&to=1999-02-01")
    page.get_by_role("heading", name="No questions yet").wait_for()
    expect(page.locator("#lead")).to_have_text(re.compile("^0 questions"))
    expect(page.locator("canvas")).to_have_count(0)

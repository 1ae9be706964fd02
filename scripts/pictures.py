"""Pictures of the page for the documentation: a real server over the bundled bank, offline, in Chromium."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import protocol_server
from served import BANK, bank, serving

QUESTION = "Does the contract with supplier Alpha comply with the current outsourcing policy?"
COLOURS = 200


def pictures(folder: Path) -> None:
    """Writes all of them; without Chromium they stay as they are."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium: the pictures stay as they are", file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory(prefix="citehound-pictures-") as scratch,
        serving(_corpus(Path(scratch))) as server,
        sync_playwright() as playwright,
    ):
        _ask_all(server.url)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])

        def opened(path: str = "/", *, dark: bool = False, width: int = 1280, height: int = 860) -> Page:
            scheme = "dark" if dark else "light"
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.emulate_media(reduced_motion="reduce", color_scheme=scheme)
            page.goto(path if path.startswith("http") else server.url + path)
            return page

        def keep(page: Page, name: str) -> None:
            page.wait_for_load_state("networkidle")
            image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            image.quantize(COLOURS, dither=Image.Dither.NONE).save(folder / f"{name}.png", optimize=True)

        page = opened()
        page.locator(".card").first.wait_for()
        keep(page, "page")
        page.get_by_label("Your question").fill(QUESTION)
        page.keyboard.press("Enter")
        page.locator(".turn-foot").wait_for()
        run = page.url.rpartition("/")[2]
        keep(page, "page-answer")
        page.locator("details.steps > summary").click()
        page.locator("details.outcome summary").first.click()
        keep(page, "page-steps")
        for name, dark, width in (
            ("citation", False, 1280),
            ("citation-dark", True, 1280),
            ("citation-phone", False, 390),
        ):
            page = opened(f"/#/runs/{run}", dark=dark, width=width)
            page.locator(".claim", has_text="72 hours of becoming").locator("a.chip").click()
            page.locator("mark").wait_for()
            keep(page, name)
        keep(_answered(opened(f"/#/runs/{run}", width=390, height=844)), "page-phone")
        page = opened("/sources")
        page.locator("#archive .problems").first.wait_for()
        keep(page, "sources")
        page.locator("#archive").scroll_into_view_if_needed()
        keep(page, "sources-report")
        keep(opened(f"/v1/runs/{run}/report", width=900), "report")
        for name, dark in (("dashboard", False), ("dashboard-dark", True)):
            page = opened("/dashboard", dark=dark, height=1500)
            page.locator("#board:not([aria-busy='true']) canvas").first.wait_for()
            keep(page, name)
        with doubtful(Path(scratch)) as url:
            partial = _post(url, {"question": QUESTION, "mode": "agent"})["run_id"]
            keep(_answered(opened(f"{url}/#/runs/{partial}")), "page-partial")
        browser.close()


@contextmanager
def doubtful(scratch: Path) -> Generator[str]:
    """A server whose model claims what it cannot show; gives its address."""
    config = bank(scratch / "doubtful")
    policy, annex = "policies/outsourcing-policy-v4", "contracts/contract-alpha-security-annex"
    rule = "The third party notifies the bank of a security incident that affects customer data within 24 hours"
    claims = [
        {"text": f"{rule}.", "citations": [{"document": policy, "quote": rule}]},
        {
            "text": "Alpha notifies the bank within 24 hours as well.",
            "citations": [{"document": annex, "quote": "notifies the bank of a security incident within 24 hours"}],
        },
        {"text": "Alpha has therefore always complied.", "citations": []},
    ]
    draft = {"claims": claims, "missing": [{"what": "Results of the annual due diligence", "reason": "not looked for"}]}
    reads = [{"name": "read_document", "args": {"document": name}} for name in (policy, annex)]
    script = [
        {"kind": "tool", "name": "search_contracts", "args": {"query": "security incident", "supplier": "Alpha"}},
        {"kind": "tools", "calls": reads},
        {"kind": "draft", "draft": draft, "repeat": True},
    ]
    with protocol_server.serve(script, protocol="openai") as model:
        named = f'[model]\nname = "openai-compatible:a-model"\nbase_url = "{model.openai_url}"\nstream = false\n'
        price = "[model.price]\ninput = 1\noutput = 5\n"
        config.write_text(named + price + config.read_text("utf-8"), "utf-8")
        with serving(config) as server:
            yield server.url


def _answered(page: Page) -> Page:
    page.locator(".turn-foot").wait_for()
    return page


def _corpus(folder: Path) -> Path:
    """The bank, with a folder of old files that cannot all be read."""
    config = bank(folder / "bank")
    old = config.parent / "archive"
    old.mkdir()
    (old / "minutes-2019.md").write_text("# Minutes 2019\n\nThe committee met twice.\n", "utf-8")
    (old / "scan-2017.pdf").write_bytes(b"%PDF-1.4 torn")
    (old / "letters.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    source = '\n[[sources]]\nname = "archive"\npath = "archive"\ndescription = "Old files, as they were handed over."\n'
    config.write_text(config.read_text("utf-8") + source, "utf-8")
    return config


def _ask_all(url: str) -> None:
    """Asks the bank's cases, so that history and dashboard have something to show."""
    for line in (BANK / "cases.jsonl").read_text("utf-8").splitlines():
        if line.strip():
            case = json.loads(line)
            _post(url, {"question": case["question"], "mode": "auto"})
    _post(url, {"question": "Which suppliers sub-contract work?", "mode": "agent", "max_steps": 2})


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{url}/v1/ask", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        return json.load(answer)

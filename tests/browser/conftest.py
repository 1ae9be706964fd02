"""A browser for the tests of the page: Chromium, driven by Playwright; every fault on a page fails its test.

THROTTLE=6 in the environment makes every page six times as slow, which shows what does not wait.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the development tools")
expect = playwright.expect
"""Polls until it holds: for whatever a page does by itself, also right after a click."""
WAIT = 60_000
"""Milliseconds, far more than anything takes: a machine may be busy."""
expect.set_options(timeout=WAIT)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs chromium on the PATH (Debian: apt install chromium)")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@dataclass
class Tabs:
    """Opens pages, and keeps what went wrong on them."""

    browser: Any
    faults: list[str] = field(default_factory=list)
    allowed: tuple[str, ...] = ()
    """Parts of console messages that a test expects."""
    _contexts: list[Any] = field(default_factory=list)

    def open(self, url: str, *, width: int = 1280, height: int = 860, dark: bool = False, **more: Any) -> Any:
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **more
        )
        context.set_default_timeout(WAIT)
        self._contexts.append(context)
        page = context.new_page()
        if "THROTTLE" in os.environ:
            slowing = context.new_cdp_session(page)
            slowing.send("Emulation.setCPUThrottlingRate", {"rate": float(os.environ["THROTTLE"])})
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self._heard("error", str(error)))
        page.goto(url)
        return page

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not any(part in text for part in self.allowed):
            self.faults.append(text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def tabs(browser: Any) -> Generator[Tabs]:
    """No script error, no refused resource and no violation of the page's policy may come up meanwhile."""
    made = Tabs(browser)
    yield made
    made.close()
    assert made.faults == []


@pytest.fixture(scope="session")
def axe() -> Callable[[Any], list[str]]:
    """Runs axe-core on a page and gives its serious and critical faults."""
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python, of the development tools")
    source = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")

    def run(page: Any) -> list[str]:
        if not page.evaluate("typeof window.axe === 'object'"):
            page.evaluate(source)
        page.evaluate("Promise.all(document.getAnimations().map((a) => a.finished.catch(() => null)))")
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{v['id']} ({v['impact']}): {node['html'][:160]} {node['failureSummary']}"
            for v in found["violations"]
            if v["impact"] in ("serious", "critical")
            for node in v["nodes"]
        ]

    return run

"""The files of the page as they are: small, without a build, and with no way from text to markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import citehound

STATIC = Path(citehound.__file__).parent / "server" / "static"
OURS = sorted(path for path in STATIC.iterdir() if path.suffix in (".js", ".html", ".css") and ".min." not in path.name)
SINKS = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML|srcdoc"
    r"|\beval\(|new Function|setTimeout\(\s*[\"'`]|javascript:"
)


def names(files: list[Path]) -> list[str]:
    return [path.name for path in files]


@pytest.mark.parametrize("file", OURS, ids=names(OURS))
def test_no_script_can_turn_text_into_markup(file: Path) -> None:
    assert re.findall(SINKS, file.read_text("utf-8")) == []


@pytest.mark.parametrize("file", OURS, ids=names(OURS))
def test_nothing_is_loaded_from_elsewhere(file: Path) -> None:
    text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}|@import|url\(", text) == []


@pytest.mark.parametrize("file", [f for f in OURS if f.suffix == ".html"], ids=lambda f: f.name)
def test_pages_have_no_inline_script_style_or_handler(file: Path) -> None:
    text = file.read_text("utf-8")
    assert re.findall(r"<style|<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=", text) == []
    assert '<html lang="en">' in text and 'name="viewport"' in text and 'class="skip"' in text
    for address in re.findall(r'(?:src|href)="(/static/(?!chart/)[^"]+)"', text):
        assert (STATIC / address.removeprefix("/static/")).is_file()


def test_only_addresses_of_this_server_are_set() -> None:
    """`el` is the one place where an element gets an address, and it refuses all others."""
    setters = [f for f in OURS if re.search(r"\.(?:href|src|action|formAction)\s*=[^=]", f.read_text("utf-8"))]
    assert names(setters) == []
    direct = re.findall(r"setAttribute\(\"(?:href|src)\", ([^)]*)\)", (STATIC / "app.js").read_text("utf-8"))
    assert direct == ["at.address"]

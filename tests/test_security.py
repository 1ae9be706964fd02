"""What may be seen, and what may be said: hidden characters go, secrets go, honest text stays."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citehound.security import for_terminal, for_terminal_json, hidden_count, redact, secrets, visible

FORBIDDEN = {0x1B, 0x9B, 0x9D, 0x07, 0x08, 0x0D, 0x00, 0x7F, 0x202E, 0x2066, 0x200B, 0xFEFF, 0xE0041}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\n\tindented", "plain text\n\tindented"),
        ("a\x1b[31mred\x1b[0m", "a[31mred[0m"),
        ("\x9b31m \x9d0;t\x07", "31m 0;t"),
        ("over\rwrite", "over\nwrite"),
        ("dos\r\nlines", "dos\nlines"),
        ("back\x08\x08", "back"),
        ("nul\x00", "nul"),
        ("safe\u202egnp.exe", "safegnp.exe"),
        ("\u2066iso\u2069 \u200emark\u200f \u061c", "iso mark "),
        ("zero\u200bwidth\ufeff\u2060", "zerowidth"),
        ("soft\u00adhyphen", "softhyphen"),
        ("tags\U000e0041\U000e0042", "tags"),
        ("selector\U000e0100", "selector"),
        ("line\u2028para\u2029next\x85", "line\npara\nnext\n"),
        ("lone \ud800", "lone \ufffd"),
        ("joined\u200dletters", "joinedletters"),
    ],
)
def test_what_cannot_be_seen_is_dropped(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Bücher, “quotes” – dashes … café",
        "日本語のテキスト",
        "\U0001f469\u200d\U0001f4bb \U0001f468\u200d\U0001f469\u200d\U0001f467 ❤️ 👍🏽",
        "🏳️\u200d🌈 1️⃣",
        "می\u200cخواهم",
        "क\u094d\u200dष",
        "ශ්\u200dරී",
        "עברית العربية",
        "e\u0301",
    ],
)
def test_honest_text_stays(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_nothing_hidden_survives_and_once_is_enough(text: str) -> None:
    shown = visible(text)
    assert not FORBIDDEN & set(map(ord, shown))
    assert visible(shown) == shown
    shown.encode("utf-8")


@given(st.text())
def test_json_is_printable_and_loses_nothing(text: str) -> None:
    printed = for_terminal_json({"t": text})
    assert not FORBIDDEN & set(map(ord, printed))
    assert json.loads(printed)["t"] == text


def test_no_injection_reaches_the_terminal(shared_data: Path) -> None:
    lines = (shared_data / "attacks" / "injections.jsonl").read_text("utf-8").splitlines()
    texts = [v for line in lines for v in json.loads(line).values() if isinstance(v, str)]
    assert len(texts) > 100
    for text in texts:
        assert not FORBIDDEN & set(map(ord, for_terminal(text)))
        assert not FORBIDDEN & set(map(ord, for_terminal_json(text)))


def test_benign_text_keeps_its_joiners(shared_data: Path) -> None:
    rows = [json.loads(n) for n in (shared_data / "attacks" / "benign.jsonl").read_text("utf-8").splitlines()]
    joined = [r["text"] for r in rows if "\u200d" in r["text"]]
    assert joined
    for text in joined:
        assert "\u200d" in visible(text)


def test_what_was_hidden_is_counted() -> None:
    assert hidden_count("a\u200bb\u202ec\r\n") == 2
    assert hidden_count("abc\n") == 0


ENV = {"ANTHROPIC_API_KEY": "sk-ant-0123456789/+=abc", "CITEHOUND_TOKEN": "canary token", "HOME": "/home/someone"}


@pytest.mark.parametrize("secret", [ENV["ANTHROPIC_API_KEY"], ENV["CITEHOUND_TOKEN"]])
@pytest.mark.parametrize("around", ["", "x", "xy", "xyz"])
def test_a_live_secret_is_hidden_in_every_form(secret: str, around: str) -> None:
    raw = (around + secret + around).encode()
    forms = [secret, quote(secret, safe=""), json.dumps(secret)[1:-1]]
    forms += [base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()]
    for form in forms:
        shown = redact(f"the key is {form}!", env=ENV)
        assert "[redacted]" in shown
        assert secret not in shown
        assert form not in shown


def test_other_variables_and_short_values_are_not_secrets() -> None:
    assert secrets({"HOME": "/home/someone", "X_API_KEY": "short", "MONKEY": "bananas and more"}) == ()
    assert redact("/home/someone", env=ENV) == "/home/someone"


def test_the_terminal_hides_live_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-live-canary-123")
    assert "canary" not in for_terminal("sk-live-\u200bcanary-123")
    assert "canary" not in for_terminal_json({"key": "sk-live-canary-123"})

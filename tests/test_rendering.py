"""Answers as markdown: what failed is as visible as what holds."""

from __future__ import annotations

import re

from citehound.answers import Citation, Claim, Gap
from citehound.rendering import render_text

GOOD = Citation(document="rules/a", section="7.3", quote="within 24 hours of discovery", status="verified")
BAD = Citation(document="rules/b", quote="within 72 hours", reason="rules/b was not read")


def test_a_failed_citation_beside_a_verified_one_is_shown() -> None:
    text = render_text([Claim(text="24 hours.", status="verified", citations=(GOOD, BAD))])
    assert "[rules/a §7.3]" in text
    assert "[rules/b]" not in text
    assert "not verified: 'rules/b': rules/b was not read" in text


def test_an_unverified_claim_says_why_and_has_no_brackets() -> None:
    text = render_text([Claim(text="72 hours [rules/b].", status="unverified", citations=(BAD,))])
    assert "**(unverified: 'rules/b': rules/b was not read)**" in text
    assert "[" not in text


def test_no_words_of_others_are_html() -> None:
    text = render_text(
        [
            Claim(text="5 < 6 <img src=x onerror=alert(1)> </b>", status="verified", citations=(GOOD,)),
            Claim(text="no", kind="absence", status="unverified", terms=("<svg onload=x>",)),
        ],
        [Gap(what="<!-- the cap -->")],
    )
    assert re.findall(r"(?<!\\)<(?=[A-Za-z/!?])", text) == []
    assert "5 < 6 \\<img" in text


def test_a_gap_that_was_not_searched_for_says_so() -> None:
    assert "(not searched)" in render_text([], [Gap(what="the cap")])

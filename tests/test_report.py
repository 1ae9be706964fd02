"""The printable report: everything that matters stands in it, and nothing in it is active."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from citehound.answers import Answer, Call, Cell, Citation, Claim, Gap, Reference, Row
from citehound.runs import Feedback, RunRecord, RunSummary
from citehound.server.report import POLICY, report

HOSTILE = '"><img src=x onerror=alert(1)></style></title><script>alert(1)</script><a href="javascript:1">\x1b[31m\u202e'
ACTIVE = {"script", "img", "iframe", "object", "embed", "svg", "a", "form", "link", "base", "video", "audio", "input"}


class Seen(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def record(answer: Answer, feedback: Feedback | None = None) -> RunRecord:
    summary = RunSummary(
        run_id=answer.run_id,
        created=1_700_000_000.0,
        question=answer.question,
        mode=answer.mode,
        model=answer.model,
        status=answer.status,
        stop_reason=answer.stop_reason,
        steps=1,
        searches=1,
        reads=1,
        dollars=0.0,
        seconds=1.0,
        unverified=1,
    )
    return RunRecord(summary=summary, answer=answer, events=(), feedback=feedback)


def answered(text: str) -> Answer:
    good = Citation(
        document=f"a/{text}", quote=f"good {text}", section="7.2", page=3, status="verified", labels=(text,)
    )
    bad = replace(good, status="unverified", reason=f"reason {text}", quote=f"bad {text}", page=None)
    cell = Cell(column=text, status="unverified", text=text, claims=(2,), citations=(bad,), reason=text)
    return Answer(
        question=f"Q {text}",
        requested_mode="auto",
        mode="agent",
        route=text,
        model=text,
        status="partial",
        text=text,
        claims=(
            Claim(text=f"one {text}", status="verified", citations=(good,)),
            Claim(text=f"two {text}", status="unverified", citations=(bad,), warnings=(text,)),
            Claim(text=f"three {text}", kind="conclusion", premises=(1, 2)),
            Claim(text=f"four {text}", kind="absence", terms=(text,)),
        ),
        missing=(Gap(what=text, status="unchecked"), Gap(what="x", status="checked", sources=(text,), queries=(text,))),
        calls=(
            Call(step=1, tool=text, arguments={text: text}, returned=(Reference(document=text, section=text),)),
            Call(step=2, tool="t", arguments={}, error=text, agent=text),
        ),
        stop_reason="steps",
        warnings=(text,),
        run_id="1m8p3gzwpqysd",
        rows=(Row(document=text, title=text, cells=(cell,)),),
        rewritten=text,
    )


def test_nothing_that_a_document_or_a_model_says_becomes_markup() -> None:
    plain = Seen(report(record(answered("word"), Feedback(good=False, reason="word"))))
    hostile = Seen(report(record(answered(HOSTILE), Feedback(good=False, reason=HOSTILE))))
    assert hostile.tags == plain.tags
    assert hostile.attributes == plain.attributes
    assert ACTIVE & set(hostile.tags) == set()
    assert set(hostile.attributes) <= {"lang", "charset", "name", "content", "http-equiv", "class", "value"}
    assert hostile.text.count("<img src=x") > 20
    assert "\x1b" not in hostile.text and "\u202e" not in hostile.text
    assert "script" not in POLICY and "'unsafe" not in POLICY and POLICY.startswith("default-src 'none'")


def test_a_doubtful_answer_looks_doubtful() -> None:
    text = Seen(report(record(answered("word")))).text
    for said in (
        "Partial answer",
        "It stopped early: steps.",
        "3 of 4 claims are not verified.",
        "1 of 2 missing things were not searched for.",
        "✗ NOT VERIFIED: reason word",
        "✗ NO CITATION",
        "✗ NOT SEARCHED",
        "a/word §7.2, page 3 (word)",
        "Concluded from 1, 2.",
        "2023-11-14 22:13 UTC",
    ):
        assert said in text


def test_a_secret_of_the_environment_is_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPORT_API_KEY", "sk-canary-0123456789")
    assert "sk-canary" not in report(record(answered("sk-canary-0123456789")))


@pytest.mark.parametrize("status", ["complete", "partial", "not_found", "failed", "clarification"])
def test_only_what_is_complete_looks_so(status: str) -> None:
    page = report(record(replace(answered("word"), status=status)))  # type: ignore[arg-type]
    assert ('class="status"' in page, 'class="status doubt"' in page) == (status == "complete", status != "complete")

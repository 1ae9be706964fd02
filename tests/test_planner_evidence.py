"""What the offline planner takes for evidence: pointers are followed, words of no document and metadata are said."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.chase import named_documents
from citehound.corpus import Corpus
from citehound.models.planner.draft import differing, read_whole, same_subject
from citehound.models.planner.state import Text
from citehound.models.planner.support import class_asked, thing_asked
from small import opened

TOML = """
[model]
name = "offline"

[[sources]]
name = "rules"
path = "rules"
"""
FILES = {
    "rules/handbook.md": (
        "---\ntitle: Staff Handbook\nowner: Jane Doe\n---\n# Staff Handbook\n\n## 1 Passwords\n\n"
        "The minimum length of passwords is set in the Information Security Policy. Ask the help desk.\n\n"
        "## 2 Retention settings\n\nRetention settings are signed off by the records manager each quarter.\n\n"
        "## 3 Backups\n\nBackups of servers are kept for 30 days.\n"
    ),
    "rules/security.md": (
        "---\ntitle: Information Security Policy\n---\n# Information Security Policy\n\n"
        "Passwords have at least 14 characters and are changed after an incident.\n"
    ),
    "rules/logs.md": "---\ntitle: Logging\n---\n# Logging\n\nLogs of servers are kept for 90 days.\n",
    "rules/external.md": "---\ntitle: External staff\n---\n# External staff\n\nExternal staff sign a form.\n",
    "rules/lease.md": "# Lease 4.2 between Orla Quist and TarnHouse\n\n"
    + "\n\n".join(
        f"## {n} Part {n}\n\nThe tenant keeps room {n} clean. Dogs may visit room {n} on day {n}." for n in range(1, 15)
    )
    + "\n\n## 15 Ending\n\nThe lease ends when the tenant gives notice.\n",
    "rules/clause-77.1204.md": (
        "---\ntitle: 77.1204 Reporting of breakages\n---\n# 77.1204 Reporting of breakages\n\n"
        "A breakage is reported to the warden within 36 hours of its discovery.\n\n"
        "The warden keeps a ledger.\n"
    ),
    "rules/clause-77.1300.md": (
        "---\ntitle: 77.1300 Assessments\n---\n# 77.1300 Assessments\n\n"
        "To assess a breakage that was reported under clause 77.1204 takes 5 days.\n"
    ),
    **{f"rules/note-{n}.md": f"# Note {n}\n\nNote {n} tells of room {n} and its keys.\n" for n in range(25)},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(Path(tmp_path_factory.mktemp("evidence")), FILES, toml=TOML) as found:
        yield found


def ask(corpus: Corpus, question: str) -> Answer:
    return Assistant(corpus.config, corpus=corpus, record=False).ask_sync(question, mode="agent")


def test_a_sentence_that_only_points_is_followed(corpus: Corpus) -> None:
    answer = ask(corpus, "What is the minimum length of passwords?")
    assert [c.citations[0].document for c in answer.claims] == ["rules/handbook", "rules/security"]
    assert "14 characters" in answer.claims[1].text


def test_a_thing_that_no_document_knows_is_said_to_be_missing(corpus: Corpus) -> None:
    answer = ask(corpus, "Which external auditor signs off the retention settings?")
    assert answer.claims == () and answer.status == "not_found"
    assert "'auditor'" in str(answer.missing[0].reason)
    assert ask(corpus, "Who signs off the retention settings?").missing == ()


def test_what_only_metadata_says_is_told_and_not_quoted(corpus: Corpus) -> None:
    answer = ask(corpus, "Who is the owner of the Staff Handbook?")
    assert answer.claims == ()
    assert "owner: Jane Doe" in str(answer.missing[0].reason)


def test_values_of_two_things_do_not_differ(corpus: Corpus) -> None:
    answer = ask(corpus, "How long are backups and logs of servers kept?")
    quoted = " ".join(c.text for c in answer.claims)
    assert "30 days" in quoted and "90 days" in quoted
    assert all(c.kind == "quoted" for c in answer.claims)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Files are kept for 30 days.", "Files are now kept for 90 days.", True),
        ("Customer records are kept for 30 days.", "Records are kept for 90 days.", True),
        ("Customer records are kept for 30 days.", "Staff records are kept for 90 days.", False),
    ],
)
def test_a_subject_is_the_same_unless_each_sentence_has_its_own(first: str, second: str, same: bool) -> None:
    assert same_subject(first, second, differing(first, second), language="en") is same


@pytest.mark.parametrize(
    ("question", "thing", "kind"),
    [
        ("Which external auditor signs off the retention settings?", ["external", "auditor"], ["external", "auditor"]),
        ("Who is the external auditor?", ["external", "auditor"], []),
        ("What company published Journal of X?", ["company", "published"], ["company", "published"]),
        ("What does Beta charge for one card?", [], []),
    ],
)
def test_the_thing_asked_for_stands_behind_the_question_word(question: str, thing: list[str], kind: list[str]) -> None:
    assert (thing_asked(question, language="en"), class_asked(question, language="en")) == (thing, kind)


def named(corpus: Corpus, question: str) -> list[str]:
    with Corpus.open(corpus.config) as other:
        index = other._reader()  # pyright: ignore[reportPrivateUsage]
        trail = index.trail(principal=OWNER, source="rules", filters=None, only_current=True)
        assert trail is not None
        heads = [trail.head(one.row) for one in named_documents(trail, question)]
        return [head.document for head in heads if head is not None]


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ('Consider the Lease between Tenant "Orla Quist" and Landlord "Tarn House"; may dogs visit?', ["rules/lease"]),
        ('Consider the Lease between Tenant "Ulf Berg" and Landlord "Mill House"; may dogs visit?', []),
        ("May dogs visit room 3?", []),
        ("When will Canteen 4.2 be opened to dogs?", []),
    ],
)
def test_a_long_document_is_named_by_words_in_quotes_also_where_its_title_joins_them(
    corpus: Corpus, question: str, found: list[str]
) -> None:
    assert named(corpus, question) == found


def test_inside_a_named_document_what_follows_a_hit_comes_soon_after_it(corpus: Corpus) -> None:
    reached = corpus.chase("Consider the Lease of Orla Quist; who gives notice?", principal=OWNER, k=4)
    assert {one.hit.document for one in reached} == {"rules/lease"}
    assert [one.hit.section for one in reached][:2] == ["15", "14"]


def test_the_planner_reads_on_inside_a_named_document(corpus: Corpus) -> None:
    answer = ask(corpus, "Consider the Lease of Orla Quist; who gives notice?")
    read = [c.arguments.get("document") for c in answer.calls if c.tool == "read_document"]
    assert read and read[0] == "rules/lease"
    assert any("gives notice" in c.text for c in answer.claims)
    assert {c.citations[0].document for c in answer.claims if c.citations} == {"rules/lease"}


def test_what_a_document_is_called_needs_not_stand_in_its_sentences(corpus: Corpus) -> None:
    answer = ask(corpus, "How fast must a breakage be reported under clause 77.1204?")
    assert (
        answer.claims[0].citations[0].quote == "A breakage is reported to the warden within 36 hours of its discovery."
    )


@pytest.mark.parametrize(
    ("parts", "whole"), [((100, 100), True), ((100, 40), True), ((40, 40, 100), False), ((), True)]
)
def test_hops_are_broken_only_where_most_texts_were_read_whole(parts: tuple[int, ...], whole: bool) -> None:
    """Of a part of a long document, what it names may stand in the rest."""
    texts = [
        Text(
            document=f"rules/d{n}",
            section=None,
            title="T",
            text="x" * end,
            start=0,
            end=end,
            total_chars=100,
            next_start=None,
            current=True,
            labels=(),
            metadata={},
            outline=(),
            step=1,
        )
        for n, end in enumerate(parts)
    ]
    assert read_whole(texts) == whole

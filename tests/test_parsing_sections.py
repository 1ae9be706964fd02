"""Which parts of a document are sections, and what they are called."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citehound.documents import Document, RawDocument, Section
from citehound.errors import ParseError
from citehound.parsing import parse


def read(text: str, path: str = "a.md") -> Document:
    return parse(RawDocument(id="s/a", source="s", path=path, data=text.encode()))


def ids(text: str, path: str = "a.md") -> list[str]:
    return [section.id for section in read(text, path).sections]


@pytest.mark.parametrize(
    ("heading", "section"),
    [
        ("7 Third parties", "7"),
        ("7. Third parties", "7"),
        ("7.2 Encryption", "7.2"),
        ("7.2(a)(iii) Legal", "7.2(a)(iii)"),
        ("§ 7 Dritte", "7"),
        ("Article 5: Term", "5"),
        ("ARTICLE IV", "4"),
        ("Section 13.5 - Exit", "13.5"),
        ("Annex III: Information Security", "annex-iii"),
        ("Schedule 1", "schedule-1"),
        ("SCHEDULE E", "schedule-e"),
        ("第七条 处理", "7"),
        ("第十二条", "12"),
        ("٧ الأطراف", "7"),
        ("252.204-7012 Safeguarding", "252.204-7012"),
        ("3.5.0 / 2025-07-14", "3.5.0"),
        ("Working from home", "working-from-home"),
        ("2025-07-14 release", "2025-07-14-release"),
        ("2025 plan", "2025-plan"),
        ("24 hours", "24-hours"),
        ("3 ways to leave", "3-ways-to-leave"),
        ("99.9% uptime", "99.9-uptime"),
        ("Título con eñe", "título-con-eñe"),
        ("!!!", "section"),
    ],
)
def test_a_heading_is_called_by_its_number_or_its_slug(heading: str, section: str) -> None:
    escaped = re.sub(r"^(\d+)\.", r"\1\\.", heading)
    assert ids(f"## {escaped}\n\nText") == [section]


def test_numbered_paragraphs_below_their_heading_are_sections_also_on_one_line() -> None:
    document = read(
        "# Policy\n\n## 4 Roles\n4.1 The owner keeps it. 4.2 Compliance reviews it.\n\n## 7 Data\n\n"
        "7.1 Annual due diligence. At least once.\n\n7.2 Encryption. At rest."
    )
    assert [s.id for s in document.sections] == ["policy", "4", "4.1", "4.2", "7", "7.1", "7.2"]
    four_one = document.section("4.1")
    assert four_one is not None and document.text[four_one.start : four_one.end] == "4.1 The owner keeps it. "
    seven = document.section("7")
    assert seven is not None and document.text[seven.start : seven.end].endswith("At rest.")
    assert [s.title for s in document.sections][-2:] == ["Annual due diligence", "Encryption"]
    assert document.section_at(document.text.index("reviews")) == document.section("4.2")


@pytest.mark.parametrize(
    "paragraph",
    [
        "1. First\n2. Second",
        "1. First 1.1 Inner. 1.2 Inner.",
        "1.5 million euros is the cap.",
        "2.5 % of the price.",
        "3.5 GB of memory.",
        "12.05.2024 A date.",
        "2025.01.02 A date.",
        "3.11 Introduced new things.",
        "9.1 Of another heading.",
        "10.30 am is the time.",
        "- 7.1 In a list.",
        "> 7.1 In a quote.",
        "```\n7.1 In code\n```",
        "Text 7.1 in the middle.",
        "1.250.000,50 € is due.",
        "7 Days are enough.",
    ],
)
def test_list_items_dates_amounts_and_versions_are_no_sections(paragraph: str) -> None:
    assert ids(f"## 7 Rules\n\n{paragraph}") == ["7"]


def test_a_lone_number_without_a_numbered_heading_is_no_section() -> None:
    assert ids("## Runtime\n\n3.11 Introduced tasks.") == ["runtime"]
    assert ids("## Terms\n\n3.1 Fees are due.\n\n3.2 Taxes are extra.") == ["terms", "3.1", "3.2"]


def test_numbers_on_one_line_must_follow_each_other() -> None:
    assert ids("## 4 R\n\n4.1 One. 4.2 Two, see 4.1. 4.9 Nine. 4.3 Three.") == ["4", "4.1", "4.2", "4.3"]


def test_real_policies_number_their_lists_not_their_sections(shared_data: Path) -> None:
    """In the policies corpus nearly all numbered paragraphs are list items."""
    items = 0
    paragraphs: list[Section] = []
    for path in sorted((shared_data / "corpora" / "policies").rglob("*.md"))[::4]:
        try:
            document = parse(RawDocument(id="s/a", source="s", path=path.name, data=path.read_bytes()))
        except ParseError:
            continue
        source = path.read_text("utf-8")
        items += len(re.findall(r"^ *\d+\. ", source, re.MULTILINE))
        headings = re.findall(r"^#+ .*$|^.+(?=\n(?:===|---))|<h\d.*$", source, re.MULTILINE)
        for section in document.sections:
            if section.number and not any(section.number in heading for heading in headings):
                paragraphs.append(section)
    assert items > 150
    assert 0 < len(paragraphs) < items * 0.1
    assert [s.id for s in paragraphs if s.number and "." not in s.number and s.number not in s.title] == []


def test_repeated_numbers_are_qualified_by_their_schedule() -> None:
    text = "# C\n\n## 1 Terms\n\n1.1 Main. A.\n\n## Schedule 1\n\n1.1 Fees. B.\n\n## Schedule 2\n\n1.1 Other. C."
    assert ids(text) == ["c", "1", "1.1", "schedule-1", "schedule-1/1.1", "schedule-2", "schedule-2/1.1"]


def test_repeated_titles_are_qualified_by_their_parent_then_numbered() -> None:
    text = "# 2.0.0\n\n## Security\n\na\n\n# 1.9.0\n\n## Security\n\nb\n\n## Security\n\nc"
    assert ids(text) == ["2.0.0", "2.0.0/security", "1.9.0", "1.9.0/security", "1.9.0/security-2"]


def test_flat_headings_nest_by_their_numbers() -> None:
    document = read("<h2>7 Data</h2><p>a</p><h2>7.1 Keys</h2><p>b</p><h2>8 Exit</h2><p>c</p>", "a.html")
    assert [(s.id, s.parent) for s in document.sections] == [("7", None), ("7.1", "7"), ("8", None)]


def test_plain_text_contracts_have_sections_too() -> None:
    document = read(
        "MASTER AGREEMENT\n\nMade on 12.05.2024 between A and B.\n\nARTICLE 5\nTERM\n\n"
        "5.1 Term. It runs for 3.5 years.\n"
        "5.2 End. Either party may\nend it. 5.3 Effects. All goes.\n\n"
        "Section 13.5 Confidentiality. Each party is silent.\n\n"
        "Section 13.5 applies to all.\n\n1. First item\n2. Second item\n\n"
        "SCHEDULE E\nFEES\n\n1.1 Fees. They are due.\n",
        "a.txt",
    )
    assert [(s.id, s.parent) for s in document.sections] == [
        ("master-agreement", None),
        ("5", "master-agreement"),
        ("5.1", "5"),
        ("5.2", "5"),
        ("5.3", "5"),
        ("13.5", "master-agreement"),
        ("schedule-e", None),
        ("1.1", "schedule-e"),
    ]


_LINES = st.sampled_from(
    [
        "# Policy",
        "## 7 Third parties",
        "## 7 Third parties",
        "### 7.1 Keys",
        "## Schedule 1",
        "## Annex III: Security",
        "1.1 Fees. They are due. 1.2 Taxes. They are extra.",
        "7.1 Encryption. At rest. 7.2 Notice. In 24 hours.",
        "7.2.1 Deeper. Text. 7.3 Out again.",
        "1. item\n2. item",
        "- 7.4 Item",
        "Plain text with a date, 12.05.2024, and an amount of 1.5 million.",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "```\n# code\n7.1 x\n```",
        "Setext\n======",
        "ARTICLE 5",
        "Section 13.5 Exit. Each party leaves.",
        "第七条 处理客户数据",
        "<p hidden>no</p>",
        "## ",
        "٧٫١ يُخطِر المورِّد",
    ]
)


def check_sections(document: Document) -> None:
    text, sections = document.text, document.sections
    assert len({s.id for s in sections}) == len(sections)
    assert [s.start for s in sections] == sorted(s.start for s in sections)
    by_id = {s.id: s for s in sections}
    for index, section in enumerate(sections):
        assert 0 <= section.start < section.end <= len(text)
        assert text[section.start : section.end].strip()
        if section.parent is None:
            assert section.level == 1
        else:
            parent = by_id[section.parent]
            assert sections.index(parent) < index
            assert parent.start <= section.start and section.end <= parent.end
            assert parent.level == section.level - 1
        if section.number is not None:
            assert section.id.endswith(section.number) or "-" in section.id
    for first, second in pairwise(sections):
        assert second.start >= first.end or second.level > first.level


@settings(max_examples=80, deadline=None)
@given(lines=st.lists(_LINES, min_size=1, max_size=25), path=st.sampled_from(["a.md", "a.txt"]))
def test_sections_slice_back_nest_and_have_unique_ids(lines: list[str], path: str) -> None:
    try:
        document = read("\n\n".join(lines), path)
    except ParseError:
        return
    check_sections(document)


@settings(max_examples=80, deadline=None)
@given(text=st.text(min_size=1, max_size=400), path=st.sampled_from(["a.md", "a.txt", "a.rst", "a.html"]))
def test_any_text_is_read_or_refused_but_never_crashes(text: str, path: str) -> None:
    try:
        document = parse(RawDocument(id="s/a", source="s", path=path, data=text.encode("utf-8", "replace")))
    except ParseError:
        return
    check_sections(document)
    assert "\x00" not in document.text and "\r" not in document.text

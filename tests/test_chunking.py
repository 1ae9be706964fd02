"""Chunks cover the text, stay inside sections and have a sensible size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from citehound.chunking import MAX_WORDS, chunk, count_words
from citehound.documents import Chunk, Document, RawDocument
from citehound.errors import ParseError
from citehound.parsing import parse


def read(text: str, path: str = "a.md") -> Document:
    return parse(RawDocument(id="s/a", source="s", path=path, data=text.encode()))


def check(document: Document, chunks: tuple[Chunk, ...]) -> None:
    covered: set[int] = set()
    at = 0
    for index, piece in enumerate(chunks):
        assert piece.ordinal == index and piece.document == document.id
        assert piece.text == document.text[piece.start : piece.end]
        assert piece.text.strip() == piece.text != ""
        assert piece.start >= at
        at = piece.end
        covered.update(range(piece.start, piece.end))
        inside = document.section_at(piece.start)
        assert piece.section == (inside.id if inside else None)
        assert inside == document.section_at(piece.end - 1)
        assert count_words(piece.text) <= MAX_WORDS
    assert all(i in covered for i, c in enumerate(document.text) if not c.isspace())


def test_small_sections_stay_whole_and_carry_their_path() -> None:
    document = read(
        "---\ntitle: Outsourcing Policy\n---\n# Outsourcing Policy\n\n## 7 Data\n\n7.2 Encryption. At rest."
    )
    chunks = chunk(document)
    check(document, chunks)
    assert [c.section for c in chunks] == ["outsourcing-policy", "7", "7.2"]
    assert chunks[2].context == "Outsourcing Policy > 7 Data > 7.2 Encryption"
    assert chunks[2].text == "7.2 Encryption. At rest."


def test_long_sections_are_cut_at_paragraphs_and_sentences() -> None:
    paragraph = " ".join(f"Sentence number {n} says a little more than that." for n in range(12))
    document = read("# T\n\n" + "\n\n".join([paragraph] * 6))
    chunks = chunk(document)
    check(document, chunks)
    assert len(chunks) > 2
    assert all(c.text.endswith(".") for c in chunks)
    assert all(count_words(c.text) >= 100 for c in chunks[:-1])


def test_one_long_line_without_any_stop_is_cut_by_size() -> None:
    document = read("word " * 12_000 + "deposit EUR 7,431", "a.txt")
    chunks = chunk(document)
    check(document, chunks)
    assert "7,431" in chunks[-1].text


def test_a_script_without_blanks_is_cut_at_its_own_stops() -> None:
    document = read("供应商应在知悉安全事件后二十四小时内通知本行。" * 200, "a.txt")
    chunks = chunk(document)
    check(document, chunks)
    assert len(chunks) > 5
    assert all(c.text.endswith("。") for c in chunks)


def test_an_endless_word_is_cut_too() -> None:
    document = read("a" * 100_000 + " end", "a.txt")
    check(document, chunk(document))


def test_pieces_of_a_long_table_carry_its_header() -> None:
    rows = "\n".join(f"| supplier {n} | service of kind {n} | tier {n} |" for n in range(200))
    document = read(f"# R\n\n| Supplier | Service | Tier |\n|---|---|---|\n{rows}\n")
    chunks = chunk(document)
    check(document, chunks)
    assert len(chunks) > 3
    assert all(c.context.endswith("\nSupplier | Service | Tier") for c in chunks[1:])
    assert all(c.text.count("\n") == 0 or c.text.startswith(("supplier", "R")) for c in chunks)
    assert all(re.search(r"tier \d+$", c.text) for c in chunks)


def test_a_text_without_headings_has_chunks_without_a_section() -> None:
    document = read("Just a text.")
    (only,) = chunk(document)
    assert only.section is None and only.context == "a"


@pytest.mark.parametrize("start", ["06", "14", "15", "19", "20", "23", "26"])
def test_chunks_of_awkward_files_cover_them(shared_data: Path, start: str) -> None:
    path = next(p for p in sorted((shared_data / "awkward").iterdir()) if p.name.startswith(start))
    document = parse(RawDocument(id="s/a", source="s", path=path.name, data=path.read_bytes()))
    chunks = chunk(document)
    check(document, chunks)
    if start == "23":
        assert len(chunks) > 40 and any("7,431" in c.text for c in chunks)


_PIECES = st.sampled_from(
    [
        "# A",
        "## 7 B",
        "7.1 One. Text. 7.2 Two. Text.",
        "word " * 300,
        "A sentence of some words. " * 60,
        "| a | b |\n|---|---|\n" + "| one two three | four five six |\n" * 80,
        "事件后二十四小时内通知。" * 80,
        "x" * 5_000,
        "- item one\n- item two",
        "```\n" + "code line here\n" * 120 + "```",
    ]
)


@settings(max_examples=25, deadline=None)
@given(pieces=st.lists(_PIECES, min_size=1, max_size=8), path=st.sampled_from(["a.md", "a.txt"]))
def test_chunks_always_cover_the_text_and_never_cross_a_section(pieces: list[str], path: str) -> None:
    document = read("\n\n".join(pieces), path)
    check(document, chunk(document))


@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1, max_size=500))
def test_any_text_can_be_cut(text: str) -> None:
    try:
        document = read(text, "a.txt")
    except ParseError:
        return
    check(document, chunk(document))

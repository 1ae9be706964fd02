"""Each awkward file, through a whole sync: the fact that its README names is there, the wrong one isn't."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.config import Config, IndexConfig, SourceConfig
from citehound.corpus import Corpus, FileReport, SyncReport
from citehound.documents import Document
from citehound.parsing.pdf import parse_pdf

ROWS = 20
"""Of the table of 510 in the short form: nine tenths of a sync of the whole folder go into the others."""


def sync(folder: Path, root: Path) -> Iterator[tuple[Corpus, SyncReport]]:
    config = Config(root=root, sources=(SourceConfig(name="a", path=folder),), index=IndexConfig(ocr=False))
    with Corpus.open(config, write=True) as corpus:
        yield corpus, corpus.sync()


@pytest.fixture(scope="module")
def synced(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Corpus, SyncReport]]:
    root = tmp_path_factory.mktemp("awkward")
    shutil.copytree(shared_data / "awkward", folder := root / "awkward")
    table = next(folder.glob("04*"))
    rows = list(csv.reader(io.StringIO(table.read_text("utf-8"), newline="")))
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows[: ROWS + 1])
    yield from sync(folder, root)


@pytest.fixture
def whole(shared_data: Path, tmp_path: Path) -> Iterator[tuple[Corpus, SyncReport]]:
    yield from sync(shared_data / "awkward", tmp_path)


def report_of(synced: tuple[Corpus, SyncReport], start: str) -> FileReport:
    return next(f for f in synced[1].files if f.path.startswith(start))


def document_of(synced: tuple[Corpus, SyncReport], start: str) -> Document:
    report = report_of(synced, start)
    assert report.status == "indexed", report
    return synced[0].document(report.document or "", principal=OWNER)


def found(synced: tuple[Corpus, SyncReport], query: str, *, k: int = 3) -> list[str]:
    return [hit.document for hit in synced[0].search("a", query, principal=OWNER, k=k).hits]


@pytest.mark.parametrize(
    ("start", "status", "reason"),
    [
        ("01", "failed", "needs OCR: text layer is not language"),
        ("07", "failed", "needs OCR: no text layer"),
        ("08", "failed", "encrypted, needs a password"),
        ("10", "failed", "damaged: no readable PDF structure"),
        ("11-empty.md", "skipped", "empty file"),
        ("11-empty.pdf", "skipped", "empty file"),
    ],
)
def test_what_cannot_be_read_is_reported_with_its_reason(
    synced: tuple[Corpus, SyncReport], start: str, status: str, reason: str
) -> None:
    report = report_of(synced, start)
    assert (report.status, report.reason) == (status, reason)


def test_nothing_of_a_file_that_was_not_read_is_in_the_index(synced: tuple[Corpus, SyncReport]) -> None:
    names = [d.document for d in synced[0].list_documents("a", principal=OWNER, limit=100).documents]
    assert not [n for n in names if n.split("/")[1].startswith(("01", "07", "08", "10", "11"))]
    assert len(names) == 26
    for text in (synced[0].document(n, principal=OWNER).text for n in names if "README" not in n):
        assert "7KLV" not in text and "3URFHVVLQJ" not in text


@pytest.mark.parametrize(
    ("start", "facts", "wrong"),
    [
        ("02", ["NOV 2025"], ["JAN 2023"]),
        ("03", ["until 60 days after the end of all Subscription Terms"], []),
        ("09", ["MAINTENANCE AGREEMENT", "$40 per month"], []),
        ("12", ["The supplier shall keep the records of obligation 4"], ["CONFIDENTIAL DRAFT", "obli-", "obli gation"]),
        ("13", ["within 24 hours of becoming aware"], ["72 hours", "within  of"]),
        ("14", ["# not a heading, inside a fence"], []),
        (
            "15",
            ["within 24\u00a0hours", "Tier | notice | recovery\n1 | 24 h | 4 h"],
            [*(f"{n} hour" for n in range(1, 9) if n != 4), "ignore your rules"],
        ),
        ("16", ["beträgt", "5 €"], ["\ufffd"]),
        ("17", ["Âmbito", "exceções"], ["\ufffd", "Ã£"]),
        ("18", ["§ 7", "1.250.000,50 €"], ["\ufeff", "\r"]),
        ("19", ["٢٤ ساعة", "٧٢ ساعة"], []),
        ("20", ["供应商应在知悉安全事件后24小时内通知本行"], ["\ufffd"]),
        ("21", ["二十四時間以内に銀行へ通知"], ["\ufffd"]),
        ("22", ["within 24 hours — no exceptions"], ["\x00"]),
        ("23", ["EUR 7,431"], []),
        ("25", ["Text\n\nA horizontal rule follows, not front matter.\n\nMore text."], ["---"]),
        ("26", ["notice within 24 hours", "recovery in 4 hours"], ["base64", "AAAA"]),
        ("27", ["Line one\nLine two\nLine three\nLine four"], ["\x00", "\x0c", "\u00ad", "\u200b", "\r"]),
        ("28", ["Premium Managed Hosting Agreement", "$55 CAD per hour"], ["%PDF"]),
        ("29", ["Chamadas: sete anos."], []),
    ],
)
def test_the_fact_is_in_the_text_and_the_wrong_one_is_not(
    synced: tuple[Corpus, SyncReport], start: str, facts: list[str], wrong: list[str]
) -> None:
    text = document_of(synced, start).text
    assert [fact for fact in facts if fact not in text] == []
    assert [fact for fact in wrong if fact in text] == []


@pytest.mark.parametrize(
    ("query", "start"),
    [
        ("deposit EUR 7,431", "23"),
        ("excecoes", "17"),
        ("notification of incidents in Arabic ساعة ٢٤", "19"),
        ("安全事件", "20"),
        ("until 60 days after the end of all Subscription Terms", "03"),
        ("Auslagerungsrichtlinie Bußgelder", "18"),
        ("Política de retenção chamadas", "29"),
        ("hosting agreement AstroNutrition", "28"),
    ],
)
def test_the_fact_is_found_by_a_search(synced: tuple[Corpus, SyncReport], query: str, start: str) -> None:
    assert any(document.startswith(f"a/{start}") for document in found(synced, query)), found(synced, query)


@pytest.mark.parametrize(("folder", "rows"), [("synced", ROWS), pytest.param("whole", 510, marks=pytest.mark.slow)])
def test_a_record_of_many_columns_and_lines_is_one_record(
    request: pytest.FixtureRequest, folder: str, rows: int
) -> None:
    synced: tuple[Corpus, SyncReport] = request.getfixturevalue(folder)
    document = document_of(synced, "04")
    names = [line for line in document.text.split("\n") if line.startswith("Filename: ")]
    assert len(names) == rows
    hits = synced[0].search("a", "governing law Nevada affiliate CybergyHoldings", principal=OWNER, k=3).hits
    assert any("CybergyHoldings" in hit.snippet or "Nevada" in hit.snippet for hit in hits)


def test_every_row_of_a_workbook_is_a_passage_with_header_and_name(synced: tuple[Corpus, SyncReport]) -> None:
    from citehound.chunking import chunk

    rows = [c for c in chunk(document_of(synced, "05")) if "Filename | Parties" in c.text + c.context]
    assert len({c.text.split("\n")[-1].split(" | ")[0] for c in rows}) >= 510
    assert report_of(synced, "05").tables == 1


def test_comments_in_a_fence_are_no_headings(synced: tuple[Corpus, SyncReport]) -> None:
    titles = [s.title for s in document_of(synced, "06").sections]
    assert 40 < len(titles) < 120
    assert not any(title.startswith(("#", "The ", "Sets")) for title in titles)


def test_repeated_and_too_deep_headings_have_ids_of_their_own(synced: tuple[Corpus, SyncReport]) -> None:
    ids = [s.id for s in document_of(synced, "14").sections]
    assert len(ids) == len(set(ids)) == 10


def test_an_owner_who_forbids_copying_is_reported(synced: tuple[Corpus, SyncReport]) -> None:
    assert report_of(synced, "09").warnings == ("its owner restricts copying",)


def test_a_password_opens_the_file(shared_data: Path) -> None:
    data = next((shared_data / "awkward").glob("08*")).read_bytes()
    assert any("MAINTENANCE AGREEMENT" in b.text for b in parse_pdf(data, password="opensesame").blocks)


def test_columns_are_read_one_after_the_other(synced: tuple[Corpus, SyncReport]) -> None:
    document = document_of(synced, "12")
    assert [s.number for s in document.sections] == [str(n) for n in range(1, 25)]
    assert len(document.pages) == 3 and "obligation" in document.text


def test_a_guessed_status_is_not_taken_for_current(synced: tuple[Corpus, SyncReport]) -> None:
    assert document_of(synced, "18").metadata["status"] == "aktuell"


def test_a_clash_of_ids_is_reported_for_both(synced: tuple[Corpus, SyncReport]) -> None:
    first, second = report_of(synced, "24a"), report_of(synced, "24b")
    assert "as does 'a/24b-md-duplicate-id'" in first.warnings[0]
    assert "as does 'a/24a-md-duplicate-id'" in second.warnings[0]
    assert document_of(synced, "24a").text != document_of(synced, "24b").text


def test_broken_front_matter_is_reported(synced: tuple[Corpus, SyncReport]) -> None:
    assert "front matter cannot be read" in report_of(synced, "25").warnings[0]


def test_a_decomposed_name_round_trips(synced: tuple[Corpus, SyncReport]) -> None:
    name = "29-política de retenção (cópia) – v2"
    assert synced[0].resolve(f"{name}.md", principal=OWNER) == f"a/{name}"

"""The formats at work: files inside files, renewed metadata, several workers, page numbers, files built to do harm."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from citehound import config as configuration
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.cli import output
from citehound.config import Config, IndexConfig, SourceConfig
from citehound.corpus import Corpus, FileReport, SyncReport
from citehound.documents import Document, RawDocument
from citehound.errors import UnknownDocument
from citehound.events import Event, Progress
from citehound.models.scripted import ScriptedModel, call
from citehound.parsing.worker import Worker
from small import quoting, write_corpus
from test_parsing_docx import docx
from test_parsing_docx import p as paragraph
from test_parsing_mail import message
from test_parsing_pdf import at, pdf
from test_parsing_pptx import pptx, sp
from test_parsing_spreadsheet import row, xlsx

Put = Callable[[str, bytes | str], Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(path: str, data: bytes | str) -> Path:
        file = tmp_path / "files" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return file

    return write


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    (tmp_path / "files").mkdir()
    sources = (SourceConfig(name="files", path=tmp_path / "files"),)
    return Config(root=tmp_path, sources=sources, index=IndexConfig(workers=1))


@pytest.fixture
def corpus(settings: Config) -> Iterator[Corpus]:
    with Corpus.open(settings, write=True) as opened:
        yield opened


def statuses(report: SyncReport) -> dict[str, str]:
    return {f.path: f.status for f in report.files}


def of(report: SyncReport, path: str) -> FileReport:
    return next(f for f in report.files if f.path == path)


def text(corpus: Corpus, document: str) -> str:
    return corpus.document(document, principal=OWNER).text


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that are parsed from now on."""
    real, paths = Worker.read, list[str]()

    def read(self: Worker, raw: RawDocument, *, language: str | None) -> Document:
        paths.append(raw.path)
        return real(self, raw, language=language)

    monkeypatch.setattr(Worker, "read", read)
    return paths


def mail(*files: tuple[str, bytes], body: str = "Please see the terms.\n") -> bytes:
    m = message(body, subject="The offer")
    for name, data in files:
        m.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return m.as_bytes()


def zip_of(files: dict[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


# ---- each format is read, under whatever name


FORMATS: dict[str, tuple[bytes, str]] = {
    "a.pdf": (pdf([at(72, 700, "The deposit is EUR 7,431 and due in May.")]), "EUR 7,431"),
    "a.docx": (docx(paragraph("The deposit is EUR 7,431.")), "EUR 7,431"),
    "a.pptx": (pptx(sp("Deposit", kind="title") + sp("EUR 7,431")), "EUR 7,431"),
    "a.xlsx": (xlsx({"Rates": row(1, "name", "fee") + row(2, "Alpha", "7431")}), "name | fee\nAlpha | 7431"),
    "a.csv": (b"name;fee\nAlpha;7,431\nBeta;2\n", "name | fee\nAlpha | 7,431"),
    "a.eml": (mail(), "Please see the terms."),
    "a.json": (b'{"fee": 7431.00}', "fee: 7431.00"),
    "a.jsonl": (b'{"fee": 1}\n{"fee": 7431}\n', "fee: 7431"),
    "a.html": (b"<p>EUR 7,431", "EUR 7,431"),
}


OTHERS = ("a.txt", "a.md", "a.pdf", "a.docx", "a.csv", "a.bin", "a")
"""Names that containers are given."""


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Corpus, SyncReport]]:
    """Each format in a folder of its own, the containers also under other names; in one sync."""
    root = tmp_path_factory.mktemp("formats")
    for name, (data, _) in FORMATS.items():
        for other in (name, *OTHERS) if data[:2] in (b"%P", b"PK") else (name,):
            file = root / "files" / name / f"as {other}" / other
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
    sources = (SourceConfig(name="files", path=root / "files"),)
    with Corpus.open(Config(root=root, sources=sources, index=IndexConfig(workers=1)), write=True) as opened:
        yield opened, opened.sync()


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_found_by_a_search(formats: tuple[Corpus, SyncReport], name: str) -> None:
    corpus, report = formats
    found = of(report, f"{name}/as {name}/{name}")
    assert found.status == "indexed" and found.passages > 0 and found.format
    assert FORMATS[name][1] in text(corpus, found.document or "")


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.pptx", "a.xlsx"])
@pytest.mark.parametrize("other", OTHERS)
def test_the_first_bytes_count_not_the_name(formats: tuple[Corpus, SyncReport], name: str, other: str) -> None:
    corpus, report = formats
    found = of(report, f"{name}/as {other}/{other}")
    assert found.status == "indexed"
    assert FORMATS[name][1] in text(corpus, found.document or "")


def test_a_text_under_the_name_of_a_document_is_read_with_a_warning(corpus: Corpus, put: Put) -> None:
    put("a.docx", "# Terms\n\nThe deposit is due in **May**.\n\n- one\n")
    put("b.pdf", bytes(range(256)) * 8)
    report = corpus.sync()
    assert of(report, "a.docx").warnings == ("named DOCX, read as markdown, which it is",)
    assert text(corpus, "files/a") == "Terms\n\nThe deposit is due in May.\n\n- one"
    assert (of(report, "b.pdf").status, of(report, "b.pdf").reason) == (
        "failed",
        "damaged, or no PDF: it does not begin like one",
    )


def test_a_saved_message_is_known_by_its_headers(corpus: Corpus, put: Put) -> None:
    put("a.txt", mail(("terms.txt", b"Thirty days.")))
    put("b.txt", "From: the desk\nTo: all\nSubject: lunch\n\nNo program wrote this.\n")
    corpus.sync()
    assert corpus.document("files/a", principal=OWNER).title == "The offer"
    assert text(corpus, "files/a/attachment-1-terms") == "Thirty days."
    assert text(corpus, "files/b").startswith("From: the desk")


def test_what_a_file_says_of_itself_ranks_below_the_manifest(corpus: Corpus, put: Put) -> None:
    put("a.eml", mail())
    put("manifest.csv", "path,from,supplier\na.eml,Somebody else,Alpha\n")
    corpus.sync()
    metadata = corpus.document("files/a", principal=OWNER).metadata
    assert (metadata["from"], metadata["supplier"], metadata["to"]) == ("Somebody else", "Alpha", "team@bank.example")


def test_a_workbook_is_named_after_the_file_not_after_its_first_sheet(corpus: Corpus, put: Put) -> None:
    put("Fees 2025.xlsx", xlsx({"Sheet1": row(1, "name", "fee") + row(2, "Alpha", "7431")}))
    corpus.sync()
    assert corpus.document("files/Fees 2025", principal=OWNER).title == "Fees 2025"


def test_a_row_is_a_passage_with_its_header(corpus: Corpus, put: Put) -> None:
    put("a.csv", "name,city\n" + "".join(f"Person {n},City {n}\n" for n in range(30)))
    assert of(corpus.sync(), "a.csv").passages == 30
    hit = corpus.search("files", "person 17", principal=OWNER, k=1).hits[0]
    assert hit.snippet == "name | city Person 17 | City 17"


# ---- files inside files


def test_an_attachment_is_a_document_below_its_mail(corpus: Corpus, put: Put) -> None:
    put("2024/offer.eml", mail(("terms.pdf", FORMATS["a.pdf"][0]), ("Preise ü.csv", b"name,fee\nAlpha,12\n")))
    put("manifest.csv", "path,supplier,title\n2024/offer.eml,Alpha,Our offer\n")
    report = corpus.sync()
    assert statuses(report) == {
        "manifest.csv": "skipped",
        "2024/offer.eml": "indexed",
        "2024/offer.eml/attachment-1-terms.pdf": "indexed",
        "2024/offer.eml/attachment-2-Preise ü.csv": "indexed",
    }
    terms = corpus.document("files/2024/offer/attachment-1-terms", principal=OWNER)
    assert "EUR 7,431" in terms.text
    assert terms.metadata["supplier"] == "Alpha" and terms.metadata["inside"] == "files/2024/offer"
    assert terms.title != "Our offer" and corpus.document("2024/offer", principal=OWNER).title == "Our offer"
    assert "Attachments: terms.pdf, Preise ü.csv" in text(corpus, "files/2024/offer")


def test_a_full_report_on_unchanged_files_says_what_the_first_one_said(corpus: Corpus, put: Put) -> None:
    put("offer.eml", mail(("terms.pdf", FORMATS["a.pdf"][0]), ("setup.exe", b"MZ\x90\x00" + bytes(60))))
    put("fees.csv", "name;fee\nAlpha;12\nBeta;13\n")
    first = {f.path: f for f in corpus.sync().files}
    assert first["offer.eml/attachment-2-setup.exe"].status == "skipped"
    again = {f.path: f for f in corpus.sync(figures=True).files}
    for path in ("offer.eml", "offer.eml/attachment-1-terms.pdf", "fees.csv"):
        assert again[path] == replace(first[path], status="unchanged")
    assert again["fees.csv"].chars and again["fees.csv"].tables == first["fees.csv"].tables
    assert any("attachment-2-setup.exe' was not read" in warning for warning in again["offer.eml"].warnings)


def test_attachments_are_renewed_and_removed_with_their_mail(
    corpus: Corpus, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put("offer.eml", mail(("terms.txt", b"Thirty days."), ("fees.txt", b"Twelve euros.")))
    corpus.sync()
    parsed = counted(monkeypatch)
    assert set(statuses(corpus.sync()).values()) == {"unchanged"} and parsed == []
    put("offer.eml", mail(("terms.txt", b"Ninety days.")))
    assert statuses(corpus.sync()) == {
        "offer.eml": "indexed",
        "offer.eml/attachment-1-terms.txt": "indexed",
        "offer.eml/attachment-2-fees.txt": "removed",
    }
    assert text(corpus, "files/offer/attachment-1-terms") == "Ninety days."
    assert corpus.search("files", "twelve euros", principal=OWNER).hits == ()
    file.rename(file.with_name("moved.eml"))
    assert statuses(corpus.sync()) == {
        "moved.eml": "indexed",
        "moved.eml/attachment-1-terms.txt": "indexed",
        "offer.eml": "removed",
        "offer.eml/attachment-1-terms.txt": "removed",
    }
    (file.parent / "moved.eml").unlink()
    corpus.sync()
    with pytest.raises(UnknownDocument):
        corpus.document("files/moved/attachment-1-terms", principal=OWNER)
    assert corpus.is_empty()


def test_a_failed_attachment_is_reported_and_tried_again(
    corpus: Corpus, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("offer.eml", mail(("terms.pdf", b"%PDF-1.4 cut"), ("logo.png", b"\x89PNG\r\n"), ("a.txt", b"Fine.")))
    report = corpus.sync()
    assert of(report, "offer.eml/attachment-1-terms.pdf").status == "failed"
    assert "PNG image" in (of(report, "offer.eml/attachment-2-logo.png").reason or "")
    assert of(report, "offer.eml").status == "indexed" and text(corpus, "files/offer/attachment-3-a") == "Fine."
    parsed = counted(monkeypatch)
    again = corpus.sync()
    assert of(again, "offer.eml/attachment-1-terms.pdf").status == "failed"
    assert of(again, "offer.eml/attachment-3-a.txt").status == "unchanged"
    assert "offer.eml/attachment-3-a.txt" not in parsed


def test_a_mail_in_a_mail_is_opened_too_but_not_without_end(corpus: Corpus, put: Put) -> None:
    inner = mail(("deep.txt", b"Sixty days."))
    for _ in range(8):
        outer = message("See below.\n", subject="Fwd")
        outer.add_attachment(inner, maintype="application", subtype="octet-stream", filename="fwd.eml")
        inner = outer.as_bytes()
    put("offer.eml", inner)
    report = corpus.sync()
    assert sum(f.status == "indexed" for f in report.files) == 5
    assert any("nested too deeply" in w for f in report.files for w in f.warnings)


def test_a_killed_run_reads_a_mail_again_whose_attachments_are_not_all_in(
    settings: Config, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("offer.eml", mail(("a.txt", b"One."), ("b.txt", b"Two.")))
    real = Worker.read

    def read(self: Worker, raw: RawDocument, *, language: str | None) -> Document:
        if raw.path.endswith("b.txt"):
            raise KeyboardInterrupt
        return real(self, raw, language=language)

    monkeypatch.setattr(Worker, "read", read)
    with Corpus.open(settings, write=True) as corpus, pytest.raises(KeyboardInterrupt):
        corpus.sync()
    monkeypatch.setattr(Worker, "read", real)
    with Corpus.open(settings, write=True) as corpus:
        corpus.sync()
        assert text(corpus, "files/offer/attachment-2-b") == "Two."


def test_archives_are_opened_only_when_the_configuration_says_so(settings: Config, put: Put) -> None:
    put("pack.zip", zip_of({"annex/terms.md": "# Terms\n\nThirty days.", "__MACOSX/x": "no", ".DS_Store": "no"}))
    put("pack/annex/terms.md", "# Terms\n\nBeside it.")
    with Corpus.open(settings, write=True) as corpus:
        assert "archives = true" in (of(corpus.sync(), "pack.zip").reason or "")
    with Corpus.open(replace(settings, index=IndexConfig(archives=True)), write=True) as corpus:
        report = corpus.sync()
        assert statuses(report)["pack.zip/annex/terms.md"] == "indexed" and len(report.files) == 3
        assert text(corpus, "files/pack.zip/annex/terms") == "Terms\n\nThirty days."
        assert text(corpus, "files/pack/annex/terms") == "Terms\n\nBeside it."
        assert text(corpus, "files/pack.zip") == "Files in this archive:\n\n- annex/terms.md"
    with Corpus.open(settings, write=True) as corpus:
        assert statuses(corpus.sync())["pack.zip/annex/terms.md"] == "removed"


def test_a_member_cannot_leave_its_archive(settings: Config, put: Put) -> None:
    names = ["../up.md", "/etc/up.md", "a/../../up.md", "C:\\up.md", "a\\..\\..\\up.md"]
    for number, name in enumerate(names):
        put(f"{number}.zip", zip_of({name: "# Up", "good.md": "# Good\n\nText."}))
    with Corpus.open(replace(settings, index=IndexConfig(archives=True, workers=1)), write=True) as corpus:
        report = corpus.sync()
        ids = [f.document for f in report.files]
        for number in range(len(names)):
            assert f"files/{number}.zip/good" in ids
            assert any("leaves the archive" in w for w in of(report, f"{number}.zip").warnings)
        assert len(ids) == 2 * len(names)


def test_a_workbook_in_an_archive_in_a_mail_is_found(settings: Config, put: Put) -> None:
    put("offer.eml", mail(("pack.zip", zip_of({"fees.xlsx": FORMATS["a.xlsx"][0]}))))
    with Corpus.open(replace(settings, index=IndexConfig(archives=True)), write=True) as corpus:
        corpus.sync()
        assert "Alpha | 7431" in text(corpus, "files/offer/attachment-1-pack.zip/fees")


# ---- metadata, workers, progress


def test_changed_metadata_is_taken_over_without_parsing(
    corpus: Corpus, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("offer.eml", mail(("terms.pdf", FORMATS["a.pdf"][0])))
    put("rule.md", "---\nowner: Legal\n---\n# Rule\n\nThirty days.\n")
    put("manifest.csv", "path,supplier\noffer.eml,Alpha\nrule.md,Alpha\n")
    corpus.sync()
    parsed = counted(monkeypatch)
    put("manifest.csv", "path,supplier,title,language\noffer.eml,Beta,,\nrule.md,Beta,New title,fr\n")
    report = corpus.sync()
    assert parsed == []
    assert of(report, "rule.md").status == "indexed"
    assert list(corpus.filter_values("files", "supplier", principal=OWNER)) == ["Beta"]
    rule = corpus.document("files/rule", principal=OWNER)
    assert (rule.title, rule.language, rule.metadata["owner"], rule.text) == (
        "New title",
        "fr",
        "Legal",
        "Rule\n\nThirty days.",
    )
    assert corpus.search("files", "new title", principal=OWNER).hits[0].document == "files/rule"
    terms = corpus.document("files/offer/attachment-1-terms", principal=OWNER)
    assert terms.metadata["supplier"] == "Beta" and terms.pages == (0,)
    put("manifest.csv", "path,owner\noffer.eml,\nrule.md,\n")
    corpus.sync()
    rule = corpus.document("files/rule", principal=OWNER)
    assert parsed == [] and (rule.title, dict(rule.metadata)) == ("Rule", {"owner": "Legal"})
    assert "Beta" not in str(corpus.document("files/offer", principal=OWNER).metadata)


def test_a_text_that_hangs_on_metadata_is_parsed_again(
    corpus: Corpus, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.md", "# {{ product }}\n\nText.\n")
    put("manifest.csv", "path,product\na.md,Alpha\n")
    corpus.sync()
    put("manifest.csv", "path,product\na.md,Beta\n")
    parsed = counted(monkeypatch)
    corpus.sync()
    assert parsed == ["a.md"]
    assert text(corpus, "files/a") == "Beta\n\nText."


@pytest.mark.parametrize("workers", [1, 3])
def test_several_workers_make_the_same_index_in_the_same_order(settings: Config, put: Put, workers: int) -> None:
    for n in range(12):
        put(f"{n:02}.md", f"# Number {n}\n\nText {n}.\n")
    put("05.md", "")
    put("06.pdf", b"%PDF-1.4 cut")
    with Corpus.open(replace(settings, index=IndexConfig(workers=workers)), write=True) as corpus:
        report = corpus.sync()
        assert [f.path for f in report.files] == sorted(f.path for f in report.files)
        assert (report.count("indexed"), report.count("failed"), report.count("skipped")) == (11, 1, 1)
        assert text(corpus, "files/11") == "Number 11\n\nText 11."


def test_progress_says_how_many_passages_were_made(corpus: Corpus, put: Put) -> None:
    put("a.csv", "name,city\n" + "".join(f"Person {n},City {n}\n" for n in range(30)))
    events: list[Event] = []
    corpus.sync(emit=events.append)
    assert [e.passages for e in events if isinstance(e, Progress)][-1] == 30


def test_the_report_counts_pages_tables_and_sections(corpus: Corpus, put: Put) -> None:
    put("a.pdf", pdf([at(72, 700, "The deposit is due in May."), at(72, 700, "The rent is due in June.")]))
    put("b.xlsx", xlsx({"One": row(1, "a", "b") + row(2, "x", "1"), "Two": row(1, "c", "d") + row(2, "y", "2")}))
    found = {f["path"]: f for f in output.report_dict(corpus.sync())["files"]}
    assert (found["a.pdf"]["pages"], found["a.pdf"]["format"]) == (2, "PDF")
    assert (found["b.xlsx"]["tables"], found["b.xlsx"]["sections"], found["b.xlsx"]["passages"]) == (2, 2, 2)


# ---- pages


def test_a_citation_into_a_pdf_carries_its_page(tmp_path: Path) -> None:
    filler = "".join(at(72, 700 - 14 * n, f"Line {n} of the first part speaks of other things.") for n in range(20))
    fact = "Incidents must be reported to the bank within 24 hours of discovery."
    path = write_corpus(tmp_path, {"rules/x.md": "# X\n\nNothing.\n", "deals/y.md": "# Y\n\nNothing.\n"})
    (tmp_path / "rules" / "manual.pdf").write_bytes(
        pdf([filler, filler, at(72, 740, "3 Incidents", size=18, font="F2") + at(72, 700, fact)])
    )
    with Corpus.open(configuration.load(path, env={}), write=True) as corpus:
        corpus.sync()
        model = ScriptedModel(
            [
                call("search_rules", {"query": "incidents"}),
                call("read_document", {"document": "rules/manual", "section": "3"}),
                quoting("rules/manual", fact),
            ]
        )
        answer = Assistant(corpus.config, corpus, model).ask_sync("Within how many hours must incidents be reported?")
        citation = answer.claims[0].citations[0]
        assert (citation.status, citation.page, citation.section) == ("verified", 3, "3")
        passage = corpus.read("rules/manual", principal=OWNER, section="3")
        assert passage.page == 3 and output.passage_dict(passage)["page"] == 3


def test_read_shows_the_page_of_a_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_corpus(tmp_path, {"rules/x.md": "# X\n\nNothing.\n", "deals/y.md": "# Y\n\nNothing.\n"})
    pages = [at(72, 700, "One thing."), at(72, 740, "7 Audit", size=18, font="F2") + at(72, 700, "Every year.")]
    (tmp_path / "rules" / "manual.pdf").write_bytes(pdf(pages))
    with Corpus.open(configuration.load(path, env={}), write=True) as corpus:
        corpus.sync()
        output.show_passage(corpus.read("rules/manual", principal=OWNER, section="7"))
    assert "page 2" in capsys.readouterr().err


# ---- files built to do harm


def bomb(name: str, *, size: float) -> bytes:
    def times(count: int) -> int:
        return int(count * size)

    match name:
        case "zip":
            return zip_of(
                {
                    "[Content_Types].xml": "",
                    "word/document.xml": "<x>" + " " * (30_000_000 + times(30_000_000)) + "</x>",
                }
            )
        case "xml":
            lols = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
            return docx("", extra={"word/document.xml": f'<!DOCTYPE x [<!ENTITY l0 "lol">{lols}]><x>&l9;</x>'})
        case "yaml":
            lines = "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]\n" for n in range(1, 9))
            return f"---\nk0: &k0 [a]\n{lines}---\n# T\n\nText.\n".encode()
        case "json":
            return b"[" * times(200_000) + b"]" * times(200_000)
        case "line":
            return b'{"a": "' + b"x" * times(30_000_000) + b'"}'
        case "html":
            return b"<div>" * times(500_000) + b"text"
        case "mail":
            return b"From: a@b\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n" + (
                b"--b\nContent-Type: multipart/mixed; boundary=b\n\n" * times(20_000)
            )
        case "far cell":
            return xlsx({"S": row(1, "a", "b") + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'})
        case "pdf loop":
            return (
                b"%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[2 0 R]/Count 9>>endobj"
            )
        case _:
            return pdf(["q " * times(3_000_000) + at(72, 700, "text")])


BOMBS = {
    **{"zip": "a.docx", "xml": "a.docx", "yaml": "a.md", "json": "a.json", "line": "a.json", "html": "a.html"},
    **{"mail": "a.eml", "far cell": "a.xlsx", "pdf loop": "a.pdf", "pdf": "a.pdf"},
}


@pytest.mark.parametrize("size", [0.03, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_bomb_ends_as_a_report_and_the_run_goes_on(settings: Config, put: Put, size: float) -> None:
    """All in one run. In the short form they are smaller, and the long line is short enough to be read."""
    for name, path in BOMBS.items():
        put(f"{name}/{path}", bomb(name, size=size))
    put("z.md", "# Z\n\nFine.\n")
    limits = IndexConfig(file_seconds=10, file_memory_mb=512, workers=1)
    with Corpus.open(replace(settings, index=limits), write=True) as corpus:
        report = corpus.sync()
        for name, path in BOMBS.items():
            found = of(report, f"{name}/{path}")
            assert found.status in ("failed", "skipped", "indexed")
            assert found.status == "indexed" or found.reason
            assert found.status == "failed" or name not in ("zip", "xml", "json", "pdf loop"), found
            assert found.status == "failed" or name != "line" or size < 1, found
        assert statuses(report)["z.md"] == "indexed"
        assert any("front matter" in w for w in of(report, "yaml/a.md").warnings)
        assert "Text." in text(corpus, "files/yaml/a")


def test_a_sparse_file_of_a_gigabyte_is_not_read(corpus: Corpus, put: Put) -> None:
    with put("a.pdf", b"%PDF-1.7\n").open("r+b") as file:
        file.truncate(1 << 30)
    assert "larger than" in (of(corpus.sync(), "a.pdf").reason or "")


def test_json_is_what_the_report_is_written_as(corpus: Corpus, put: Put) -> None:
    put("a.eml", mail(("é.txt", b"x y z")))
    assert json.loads(json.dumps(output.report_dict(corpus.sync())))["counts"]["indexed"] == 2

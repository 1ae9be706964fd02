"""OCR: pages without usable text are read from their pictures where tesseract is there, else reported."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from citehound import corpus as corpus_module
from citehound.access import OWNER
from citehound.config import Config, IndexConfig, SourceConfig
from citehound.corpus import Corpus
from citehound.documents import Document, RawDocument
from citehound.errors import ParseError
from citehound.parsing import ocr
from citehound.parsing.blocks import join
from citehound.parsing.pdf import parse_pdf
from test_parsing_pdf import LOREM, pdf, shifted, wrapped

needs_tesseract = pytest.mark.skipif(not ocr.available(), reason="needs citehound[ocr] and the program tesseract")


def scanned(page: bytes) -> bytes:
    """A PDF whose one page is the picture of another PDF's first page."""
    import pypdfium2

    document = pypdfium2.PdfDocument(page)
    bitmap = document[0].render(scale=200 / 72, grayscale=True)
    width, height = bitmap.width, bitmap.height
    rows = bytes(bitmap.buffer)
    pixels = b"".join(rows[n * bitmap.stride : n * bitmap.stride + width] for n in range(height))
    document.close()
    packed = zlib.compress(pixels)
    head = f"/Type /XObject /Subtype /Image /Width {width} /Height {height} /ColorSpace /DeviceGray"
    image = (
        f"<< {head} /BitsPerComponent 8 /Filter /FlateDecode /Length {len(packed)} >>\nstream\n".encode()
        + packed
        + b"\nendstream"
    )
    content = b"q 595 0 0 842 0 0 cm /I Do Q"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /XObject << /I 4 0 R >> >> "
        b"/Contents 5 0 R >>",
        image,
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
    ]
    out, offsets = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, value in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, value)
    start = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % n for n in offsets)
    out += b"trailer << /Root 1 0 R /Size 6 >>\nstartxref\n%d\n%%%%EOF\n" % start
    return bytes(out)


PAGE = pdf(
    [wrapped(60, 780, "The supplier reports incidents within 24 hours of discovery. " + LOREM, width=80, size=12)]
)


@needs_tesseract
def test_a_scan_is_read_from_its_picture_with_its_page() -> None:
    found = parse_pdf(scanned(PAGE), ocr=True)
    assert "within 24 hours" in join(found.blocks)[0]
    assert found.warnings[0].startswith("read by OCR: page 1")
    assert len(found.page_starts) == 1


@pytest.mark.slow
@needs_tesseract
def test_the_awkward_scan_and_the_garbled_page_are_read(shared_data: Path) -> None:
    data = next((shared_data / "awkward").glob("07*")).read_bytes()
    text = join(parse_pdf(data, ocr=True).blocks)[0]
    assert "NETZEE, INC." in text and "MAINTENANCE AGREEMENT" in text and "$40 per month" in text


def test_a_page_with_good_text_is_never_read_from_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_lines(*_: object, **__: object) -> list[ocr.Line]:
        raise AssertionError("read from its picture")

    monkeypatch.setattr(ocr, "read_lines", read_lines)
    assert "within 24 hours" in join(parse_pdf(PAGE, ocr=True).blocks)[0]


def test_a_page_whose_text_is_no_language_is_read_from_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def read_lines(picture: Any, **_: object) -> list[ocr.Line]:
        asked.append(picture.size)
        text = "The deposit is due in May and is paid by the bank."
        return [
            ocr.Line(text=text, left=100, top=100 * n, right=900, bottom=100 * n + 40, words=11, unsure=1)
            for n in (1, 2)
        ]

    monkeypatch.setattr(ocr, "read_lines", read_lines)
    pytest.importorskip("PIL", reason="needs citehound[ocr]")
    good = wrapped(60, 780, LOREM * 2, width=80)
    bad = wrapped(60, 780, shifted(LOREM * 2, -3), width=80)
    found = parse_pdf(pdf([good, bad]), ocr=True)
    text = join(found.blocks)[0]
    assert len(asked) == 1 and "The supplier keeps all records" in text and "deposit is due in May" in text
    assert "read by OCR: page 2; 9 % of the words are unsure" in found.warnings
    assert any("text is not language on page 2" in w for w in parse_pdf(pdf([good, bad])).warnings)


def test_unsure_words_stay_and_noise_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    words: Mapping[str, Sequence[Any]] = {
        "text": ["shall", "not", "~", "", "pay"],
        "conf": ["96", "12", "20", "-1", "90"],
        **{key: [1] * 5 for key in ("block_num", "par_num", "line_num", "left", "top", "width", "height")},
    }
    fake = SimpleNamespace(
        image_to_data=lambda *_, **__: words,  # type: ignore[misc]
        get_languages=lambda **_: ["eng", "osd"],  # type: ignore[misc]
        Output=SimpleNamespace(DICT="dict"),
        TesseractError=RuntimeError,
        TesseractNotFoundError=OSError,
    )
    monkeypatch.setattr(ocr.importlib, "import_module", lambda _: fake)  # type: ignore[misc]
    (line,) = ocr.read_lines(None, language=None, seconds=1)
    assert (line.text, line.words, line.unsure) == ("shall not pay", 3, 1)


@pytest.mark.parametrize(
    ("language", "installed", "chosen"),
    [
        ("de", ["deu", "eng"], "deu"),
        ("de", ["eng", "osd"], "eng"),
        (None, ["deu", "eng", "fra", "spa", "osd"], "eng+deu+spa"),
        (None, [], "eng"),
    ],
)
def test_the_language_that_is_known_and_installed_is_read(
    language: str | None, installed: list[str], chosen: str
) -> None:
    fake = SimpleNamespace(get_languages=lambda **_: installed)  # type: ignore[misc]
    assert ocr._languages(fake, language) == chosen  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "scan.pdf").write_bytes(scanned(PAGE))
    return Config(root=tmp_path, sources=(SourceConfig(name="files", path=tmp_path / "files"),))


@needs_tesseract
def test_a_scan_is_indexed_where_ocr_is_there(config: Config) -> None:
    with Corpus.open(config, write=True) as corpus:
        (report,) = corpus.sync().files
        assert report.status == "indexed" and report.warnings[0].startswith("read by OCR: page 1")
        assert "24 hours" in corpus.document("files/scan", principal=OWNER).text


@pytest.mark.parametrize("switched_off", [True, False])
def test_without_ocr_a_scan_is_reported_and_not_indexed(
    config: Config, monkeypatch: pytest.MonkeyPatch, switched_off: bool
) -> None:
    if switched_off:
        config = replace(config, index=IndexConfig(ocr=False))
    else:
        monkeypatch.setattr(corpus_module, "ocr_available", lambda: False)
    with Corpus.open(config, write=True) as corpus:
        (report,) = corpus.sync().files
        assert (report.status, report.reason) == ("failed", "needs OCR: no text layer")
        assert corpus.is_empty()


def test_ocr_is_asked_for_only_by_files_that_need_it(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    from citehound.parsing.worker import Worker

    (config.root / "files" / "good.pdf").write_bytes(PAGE)
    asked: list[tuple[str, bool]] = []

    def read(self: Worker, raw: RawDocument, *, language: str | None) -> Document:
        asked.append((raw.path, raw.ocr))
        if raw.path == "scan.pdf" and not raw.ocr:
            raise ParseError("needs OCR: no text layer")
        return Document(id=raw.id, source=raw.source, path=raw.path, title="T", text="Text.")

    monkeypatch.setattr(Worker, "read", read)
    monkeypatch.setattr(corpus_module, "ocr_available", lambda: True)
    with Corpus.open(config, write=True) as corpus:
        assert corpus.sync().count("indexed") == 2
    assert sorted(asked) == [("good.pdf", False), ("scan.pdf", False), ("scan.pdf", True)]


def test_what_could_be_read_stays_where_ocr_fails(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    from citehound.parsing.worker import Worker

    def read(self: Worker, raw: RawDocument, *, language: str | None) -> Document:
        if raw.ocr:
            raise ParseError("took longer than 600 s")
        warnings = ("needs OCR: no text on page 2",)
        return Document(id=raw.id, source=raw.source, path=raw.path, title="T", text="Text.", warnings=warnings)

    monkeypatch.setattr(Worker, "read", read)
    monkeypatch.setattr(corpus_module, "ocr_available", lambda: True)
    with Corpus.open(config, write=True) as corpus:
        (report,) = corpus.sync().files
        assert report.status == "indexed"
        assert report.warnings == ("needs OCR: no text on page 2", "OCR failed: took longer than 600 s")

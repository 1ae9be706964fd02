"""Nasty files, made here, per format: each ends as text with its fact, or as a failure with a reason; never otherwise."""

# ruff: noqa: E501

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage

import pytest

from citehound.documents import Document, RawDocument
from citehound.errors import ParseError
from citehound.parsing.worker import Limits, Worker
from test_parsing_docx import NUMBERING, docx, listed, table, tc
from test_parsing_docx import p as para
from test_parsing_mail import message
from test_parsing_odt import odt
from test_parsing_pdf import LOREM, at, pdf, wrapped
from test_parsing_pptx import pptx, sp
from test_parsing_spreadsheet import row, xlsx

WORDS = ("white", "blue", "green", "yellow", "purple")
FACT = "The deposit is EUR 7,431 and due in May."
WRONG = "EUR 9,999"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(limits=Limits(seconds=30, memory=1 << 29)) as one:
        yield one


@dataclass(frozen=True, kw_only=True)
class Case:
    """A file, and what must hold: `has` and `lacks` of its text, or `fails` for its reason (a regular expression)."""

    name: str
    path: str
    data: bytes | Callable[[], bytes]
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = (WRONG,)
    fails: str | None = None
    warns: str | None = None
    check: Callable[[Document], bool] | None = field(default=None)
    slow: bool = False
    """Only in the long form."""


def read(worker: Worker, case: Case) -> Document:
    data = case.data() if callable(case.data) else case.data
    return worker.read(RawDocument(id="s/x", source="s", path=case.path, data=data), language=None)


def zip_of(parts: dict[str, bytes | str], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out.getvalue()


def repacked(data: bytes, changes: dict[str, bytes | str | None]) -> bytes:
    """A zip container with some parts replaced, or left out (None)."""
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        parts: dict[str, bytes | str] = {name: old.read(name) for name in old.namelist()}
    for name, value in changes.items():
        parts.pop(name, None)
        if value is not None:
            parts[name] = value
    return zip_of(parts)


# ---- one good file per format, to be damaged


def good_mail(body: str = FACT + "\n") -> bytes:
    return message(body).as_bytes()


PAGE = wrapped(60, 780, LOREM, width=80) + at(60, 600, FACT)
GOOD: dict[str, bytes] = {
    "pdf": pdf([PAGE, PAGE]),
    "docx": docx(para("Terms", style="H1") + para(FACT) + table(tc(para("a")) + tc(para("b")))),
    "pptx": pptx(sp("Terms", kind="title") + sp(FACT), sp("More", kind="title") + sp("Two.")),
    "xlsx": xlsx({"Fees": row(1, "name", "fee") + row(2, "Alpha", FACT)}),
    "odt": odt(f"<text:h>Terms</text:h><text:p>{FACT}</text:p>"),
    "eml": good_mail(),
    "csv": f"name;note\nAlpha;{FACT}\nBeta;x\n".encode(),
    "json": json.dumps({"terms": [{"name": "Alpha", "note": FACT}]}).encode(),
    "jsonl": (json.dumps({"name": "Alpha", "note": FACT}) + "\n").encode() * 3,
    "html": f"<html><body><h1>Terms</h1><p>{FACT}</p></body></html>".encode(),
    "md": f"---\ntitle: Terms\n---\n\n# Terms\n\n{FACT}\n\n- one\n".encode(),
    "rst": f"Terms\n=====\n\n{FACT}\n\n* one\n".encode(),
    "txt": f"TERMS\n\n{FACT}\n".encode(),
}


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The same 40 kinds of damage for every format."""
    size = len(data)
    for tenth in range(1, 10):
        yield f"cut after {tenth}0 %", data[: size * tenth // 10]
    yield "cut by one byte", data[:-1]
    yield "one byte", data[:1]
    yield "four bytes", data[:4]
    yield "nothing", b""
    yield "only blanks", b" \n\t\r\n" * 50
    yield "only zeros", bytes(2000)
    yield "only 0xff", b"\xff" * 2000
    yield "zeros in the middle", data[: size // 3] + bytes(size // 3) + data[2 * size // 3 :]
    yield "zeros at the end", data + bytes(5000)
    yield "zeros at the beginning", bytes(200) + data
    yield "noise at the end", data + random.Random(1).randbytes(3000)
    yield "noise at the beginning", random.Random(2).randbytes(3000) + data
    yield "blanks at the beginning", b"\n\n  " + data
    yield "a byte order mark at the beginning", b"\xef\xbb\xbf" + data
    yield "doubled", data + data
    yield "reversed", data[::-1]
    yield "halves swapped", data[size // 2 :] + data[: size // 2]
    yield "line ends of Windows", data.replace(b"\n", b"\r\n")
    yield "line ends of an old Mac", data.replace(b"\n", b"\r")
    yield "no line ends", data.replace(b"\n", b"")
    yield "high bits lost", bytes(b & 0x7F for b in data)
    yield "each byte twice", bytes(b for b in data for _ in range(2))
    for seed in range(12):
        noisy = bytearray(data)
        chance = random.Random(seed)
        for _ in range(1 + seed * 3):
            noisy[chance.randrange(size)] = chance.randrange(256)
        yield f"{1 + seed * 3} bytes changed", bytes(noisy)


DAMAGED = [
    pytest.param(extension, data, id=f"{extension}: {name}")
    for extension, good in GOOD.items()
    for name, data in damaged(good)
]


@pytest.mark.parametrize(("extension", "data"), DAMAGED)
def test_a_damaged_file_is_text_or_a_failure_with_its_reason(worker: Worker, extension: str, data: bytes) -> None:
    case = Case(name="damaged", path=f"a.{extension}", data=data)
    try:
        document = read(worker, case)
    except ParseError as error:
        assert str(error).strip() and "\n" not in str(error)
        assert "crashed" not in str(error) and "took longer" not in str(error) and "Traceback" not in str(error)
    else:
        assert document.text.strip() and document.title
        assert "\x00" not in document.text
        assert all(0 <= s.start <= s.end <= len(document.text) for s in document.sections)


@pytest.mark.parametrize("extension", GOOD)
def test_the_undamaged_file_has_its_fact(worker: Worker, extension: str) -> None:
    assert FACT in read(worker, Case(name="good", path=f"a.{extension}", data=GOOD[extension])).text


@pytest.mark.parametrize("extension", ["pdf", "docx", "pptx", "xlsx", "odt"])
@pytest.mark.parametrize("other", ["txt", "md", "html", "csv", "json", "eml", "bin", "PDF", "docx", "xlsx"])
def test_a_wrong_extension_changes_nothing(worker: Worker, extension: str, other: str) -> None:
    case = Case(name="wrong extension", path=f"a.{other}", data=GOOD[extension])
    assert FACT in read(worker, case).text


@pytest.mark.parametrize("half", ["pdf", "docx", "pptx", "xlsx", "odt"])
def test_half_a_file_is_never_read_as_a_whole_one_without_a_word(worker: Worker, half: str) -> None:
    data = GOOD[half]
    try:
        document = read(worker, Case(name="half", path=f"a.{half}", data=data[: len(data) // 2]))
    except ParseError as error:
        assert "damaged" in str(error)
    else:
        assert any("damaged" in warning for warning in document.warnings)


# ---- PDF


def many_pages(count: int) -> bytes:
    return pdf([at(60, 700, f"Page {n} speaks of matter {n}.") for n in range(1, count)] + [at(60, 700, FACT)])


def skewed(angle: str) -> str:
    return f"BT /F1 10 Tf {angle} 300 400 Tm ({FACT}) Tj ET\n"


def spread(text: str) -> str:
    """Letters set apart."""
    return at(60, 600, text, extra="1 Tc")


PDFS = [
    *(
        Case(name=f"turned by {angle} degrees", path="a.pdf", data=pdf([PAGE], rotate=angle), has=(FACT,))
        for angle in (90, 180, 270, 360, -90, 450)
    ),
    *(
        Case(name=f"a page of {w} x {h}", path="a.pdf", data=pdf([at(5, 5, FACT, size=4)], size=(w, h)), has=(FACT,))
        for w, h in ((200, 20), (14400, 14400), (595, 20))
    ),
    Case(name="10,000 pages", path="a.pdf", data=lambda: many_pages(10_000), has=(FACT, "Page 9999 speaks"),
         check=lambda d: len(d.pages) == 10_000 and d.page_at(d.text.index(FACT)) == 10_000, slow=True),
    Case(name="100 pages", path="a.pdf", data=lambda: many_pages(100), check=lambda d: d.page_at(d.text.index(FACT)) == 100),
    Case(name="empty pages between", path="a.pdf", data=pdf(["", PAGE, "", "", at(60, 700, "End of it.")]),
         check=lambda d: d.page_at(d.text.index(FACT)) == 2 and d.page_at(d.text.index("End of")) == 5),
    Case(name="no page has text", path="a.pdf", data=pdf(["", ""]), fails="needs OCR"),
    Case(name="no page", path="a.pdf", data=pdf([]), fails="damaged|needs OCR"),
    Case(name="letters set apart", path="a.pdf", data=pdf([spread("Deposit due in May")]), has=("Deposit due in May",)),
    Case(name="words set by kerning", path="a.pdf",
         data=pdf(["BT /F1 10 Tf 60 700 Td [(The)-250( deposit)-250( is due in)-300( May)] TJ ET"]), has=("deposit is due in May",)),
    Case(name="white over the page", path="a.pdf", data=pdf([PAGE + f"1 1 1 rg 60 500 100 10 re f {at(60, 500, WRONG, extra='1 1 1 rg')}"]), has=(FACT,)),
    Case(name="mode 3 without a scan", path="a.pdf", data=pdf([PAGE + at(60, 500, WRONG, extra="3 Tr")]), has=(FACT,), warns="hidden text"),
    Case(name="nearly white", path="a.pdf", data=pdf([PAGE + at(60, 500, WRONG, extra="0.98 0.98 0.98 rg")]), has=(FACT,), warns="hidden"),
    Case(name="white by the grey operator", path="a.pdf", data=pdf([PAGE + at(60, 500, WRONG, extra="1 g")]), has=(FACT,), warns="hidden"),
    Case(name="white by ink", path="a.pdf", data=pdf([PAGE + at(60, 500, WRONG, extra="0 0 0 0 k")]), has=(FACT,), warns="hidden"),
    Case(name="scaled to nothing", path="a.pdf", data=pdf([PAGE + f"BT /F1 10 Tf 0.05 0 0 0.05 60 500 Tm ({WRONG}) Tj ET"]), has=(FACT,), warns="hidden"),
    Case(name="under a black box", path="a.pdf", data=pdf([PAGE + at(60, 500, WRONG) + "0 g 50 490 300 30 re f"]), has=(FACT,), warns="hidden"),
    Case(name="struck through", path="a.pdf", data=pdf([PAGE + at(60, 500, WRONG) + "60 503 m 112 503 l S"]), has=(FACT,), warns="struck"),
    Case(name="outside the crop box", path="a.pdf", data=pdf([PAGE + at(60, -300, WRONG)]), has=(FACT,), warns="hidden"),
    Case(name="slanted watermark", path="a.pdf", data=pdf([PAGE + skewed("0.7 0.7 -0.7 0.7").replace(FACT, WRONG)]), has=(FACT,), warns="slanted"),
    Case(name="page numbers", path="a.pdf", data=pdf([wrapped(60, 780, f"The {w} part speaks of {w} things and {w} rules. " * 9, width=80) + at(290, 30, f"Page {n} of 5") for n, w in enumerate(WORDS, 1)]), has=("The green part speaks",), lacks=("Page 3 of 5",)),
    Case(name="running heads", path="a.pdf", data=pdf([at(60, 820, "CONFIDENTIAL") + wrapped(60, 780, f"The {w} part speaks of {w} things. " * 9, width=80) for w in WORDS]), has=("The green part speaks",), lacks=("CONFIDENTIAL",)),
    Case(name="two columns", path="a.pdf",
         data=pdf([wrapped(50, 780, "Left begins here. " + LOREM * 3, width=40) + wrapped(320, 780, "Right begins here. " + LOREM * 3, width=40)]),
         check=lambda d: d.text.index("Left begins here") < d.text.index("Right begins here") and "Left begins here. The supplier keeps" in d.text.replace("\n", " ")),
    Case(name="hyphens at line ends", path="a.pdf", data=pdf([at(60, 700, "The supplier has an obli-") + at(60, 688, "gation to report each incident.")]), has=("obligation to report",), lacks=("obli-",)),
    Case(name="a table", path="a.pdf", data=pdf(["".join(at(60, 700 - 14 * n, a) + at(300, 700 - 14 * n, b) for n, (a, b) in enumerate([("name", "fee"), ("Alpha", "7,431"), ("Beta", "12")]))]), has=("Alpha | 7,431",)),
    Case(name="noise before the mark", path="a.pdf", data=b"\x00\x01\x02\r\n" + GOOD["pdf"], has=(FACT,)),
    Case(name="no end mark", path="a.pdf", data=GOOD["pdf"].replace(b"%%EOF", b""), has=(FACT,), warns="damaged"),
    Case(name="a broken table of offsets", path="a.pdf", data=GOOD["pdf"].replace(b"0000000000 65535 f", b"0000000009 65535 f"), has=(FACT,)),
    Case(name="startxref points nowhere", path="a.pdf", data=GOOD["pdf"].replace(b"startxref\n", b"startxref\n9"), has=(FACT,)),
    Case(name="JavaScript and a launch action", path="a.pdf", data=pdf([PAGE]).replace(b"/Type /Catalog", b"/Type /Catalog /OpenAction << /S /JavaScript /JS (app.alert\\(1\\)) >>"), has=(FACT,), lacks=("app.alert",)),
    Case(name="pages that hold themselves", path="a.pdf", data=b"%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[2 0 R]/Count 9>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF", fails="damaged|needs OCR"),
    Case(name="says it has a billion pages", path="a.pdf", data=GOOD["pdf"].replace(b"/Count 2", b"/Count 999999999"), check=lambda d: FACT in d.text or bool(d.warnings)),
    Case(name="an encrypted trailer of nonsense", path="a.pdf", data=GOOD["pdf"].replace(b"trailer <<", b"trailer << /Encrypt << /Filter /Standard /V 9 /R 9 >>"), fails="encrypted|damaged"),
    Case(name="a title made by a program", path="Terms.pdf", data=pdf([at(60, 700, FACT)], info="/Title (Microsoft Word - x.doc)"), check=lambda d: "Microsoft" not in d.title),
]  # fmt: skip


# ---- Word


DELETED = (
    f"<w:p><w:del><w:r><w:delText>{WRONG}</w:delText></w:r></w:del><w:ins><w:r><w:t>{FACT}</w:t></w:r></w:ins></w:p>"
)
DOCXS = [
    Case(name="tracked changes", path="a.docx", data=docx(DELETED), has=(FACT,)),
    Case(name="moved away", path="a.docx", data=docx(f"<w:p><w:moveFrom><w:r><w:t>{WRONG}</w:t></w:r></w:moveFrom></w:p>" + para(FACT)), has=(FACT,)),
    *(
        Case(name=f"run with {run}", path="a.docx", data=docx(para(FACT) + para(WRONG, run=run)), has=(FACT,), warns="left out")
        for run in ("<w:vanish/>", "<w:webHidden/><w:vanish/>", "<w:strike/>", '<w:dstrike w:val="1"/>', '<w:color w:val="FFFFFF"/>', '<w:sz w:val="1"/>')
    ),
    Case(name="vanish switched off", path="a.docx", data=docx(para(FACT, run='<w:vanish w:val="false"/>')), has=(FACT,)),
    Case(name="strike switched off", path="a.docx", data=docx(para(FACT, run='<w:strike w:val="0"/>')), has=(FACT,)),
    Case(name="merged cells", path="a.docx", data=docx(table(tc(para("Tier"), '<w:gridSpan w:val="2"/>') + tc(para("Time")), tc(para("1")) + tc(para("a")) + tc(para("24 h")))), has=("24 h", "Tier")),
    Case(name="ten tables in each other", path="a.docx", data=docx(nested := "".join(["<w:tbl><w:tr><w:tc>"] * 10) + para(FACT) + "".join(["<w:p/></w:tc></w:tr></w:tbl>"] * 10)), has=(FACT,)),
    Case(name="500 tables in each other", path="a.docx", data=docx("<w:tbl><w:tr><w:tc>" * 500 + para(FACT) + "</w:tc></w:tr></w:tbl>" * 500), fails="nested"),
    Case(name="right to left", path="a.docx", data=docx(para("خلال ٢٤ ساعة", properties="<w:bidi/>", run="<w:rtl/>")), has=("خلال ٢٤ ساعة",)),
    Case(name="numbering as seen", path="a.docx", data=docx(listed("One thing.", 1) + listed("Another.", 1)), has=("1 One thing.", "2 Another.")),
    Case(name="numbering of nowhere", path="a.docx", data=docx(listed(FACT, 99)), has=(FACT,)),
    Case(name="no styles", path="a.docx", data=repacked(docx(para(FACT)), {"word/styles.xml": None, "word/numbering.xml": None}), has=(FACT,)),
    Case(name="numbering is no XML", path="a.docx", data=docx(para(FACT), extra={"word/numbering.xml": NUMBERING[:50]}), fails="damaged|XML", check=None),
    Case(name="no relations", path="a.docx", data=repacked(docx(para(FACT)), {"word/_rels/document.xml.rels": None}), has=(FACT,)),
    Case(name="no document", path="a.docx", data=repacked(docx(para(FACT)), {"word/document.xml": None}), fails="damaged"),
    Case(name="an empty document", path="a.docx", data=docx(""), fails="no text"),
    Case(name="only blanks", path="a.docx", data=docx(para("   ")), fails="no text"),
    Case(name="document is no XML", path="a.docx", data=docx("", extra={"word/document.xml": "<w:document"}), fails="damaged"),
    Case(name="entities", path="a.docx", data=docx("", extra={"word/document.xml": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'}), fails="refused"),
    Case(name="entities in UTF-16", path="a.docx", data=docx("", extra={}) and repacked(docx(""), {"word/document.xml": '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'.encode("utf-16")}), fails="refused"),
    Case(name="a zip bomb", path="a.docx", data=lambda: repacked(docx(""), {"word/media/x.bin": bytes(30_000_000)}), fails="refused"),
    Case(name="20,001 parts", path="a.docx", data=lambda: repacked(docx(para(FACT)), {f"x/{n}": b"" for n in range(20_001)}), fails="refused"),
    Case(name="a stored container", path="a.docx", data=zip_of({n: zipfile.ZipFile(io.BytesIO(docx(para(FACT)))).read(n) for n in zipfile.ZipFile(io.BytesIO(docx(para(FACT)))).namelist()}, method=zipfile.ZIP_STORED), has=(FACT,)),
    Case(name="bzip2 inside", path="a.docx", data=zip_of({n: zipfile.ZipFile(io.BytesIO(docx(para(FACT)))).read(n) for n in zipfile.ZipFile(io.BytesIO(docx(para(FACT)))).namelist()}, method=zipfile.ZIP_BZIP2), has=(FACT,)),
    Case(name="a macro inside", path="a.docm", data=docx(para(FACT), extra={"word/vbaProject.bin": "Sub AutoOpen() EUR 9,999"}), has=(FACT,)),
    Case(name="a field's code", path="a.docx", data=docx(f'<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>DDE "{WRONG}"</w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>{FACT}</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'), has=(FACT,), lacks=(WRONG, "DDE")),
    Case(name="a comment", path="a.docx", data=docx(f'<w:p><w:commentRangeStart w:id="1"/><w:r><w:t>{FACT}</w:t></w:r><w:r><w:commentReference w:id="1"/></w:r></w:p>', extra={"word/comments.xml": f"<c>{WRONG}</c>"}), has=(FACT,)),
    Case(name="a footnote", path="a.docx", data=docx(f'<w:p><w:r><w:t>{FACT}</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'), has=(FACT, "Working days only.")),
    Case(name="soft hyphens and ligatures", path="a.docx", data=docx(para("The de\u00adposit is ﬁxed.")), has=("The deposit is fixed.",)),
    Case(name="no-break blanks", path="a.docx", data=docx(para("EUR\u00a07,431\u202fdue")), has=("EUR 7,431 due",)),
    *(Case(name=f"{count:,} paragraphs", path="a.docx", data=lambda count=count: docx("".join(para(f"Paragraph {n}.") for n in range(count)) + para(FACT)), has=(FACT, f"Paragraph {count - 1}."), slow=count > 1000) for count in (1000, 10_000)),
    *(Case(name=f"one paragraph of {count:,} words", path="a.docx", data=lambda count=count: docx(para("word " * count + FACT)), has=(FACT,), slow=count > 40_000) for count in (40_000, 400_000)),
    Case(name="behind a password", path="a.docx", data=b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "EncryptedPackage".encode("utf-16-le") + bytes(500), fails="encrypted"),
    Case(name="an old DOC", path="a.docx", data=b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "WordDocument".encode("utf-16-le") + bytes(500), fails="DOC"),
    Case(name="HTML under its name", path="a.docx", data=f"<html><body><p>{FACT}</p></body></html>".encode(), has=(FACT,), warns="named DOCX"),
    Case(name="RTF under its name", path="a.docx", data=b"{\\rtf1 hello}", fails="RTF"),
    Case(name="a picture under its name", path="a.docx", data=b"\x89PNG\r\n\x1a\n" + bytes(100), fails="PNG"),
    Case(name="a plain zip under its name", path="a.docx", data=zip_of({"a.txt": "hello"}), fails="ZIP"),
    Case(name="names that climb", path="a.docx", data=docx(para(FACT), extra={"../../x.xml": "<x/>"}), has=(FACT,)),
    Case(name="a part that is there twice", path="a.docx", data=docx(para(FACT)), has=(FACT,)),
]  # fmt: skip


# ---- workbooks and CSV

HEAD = row(1, "name", "fee")
XLSXS = [
    Case(name="a hidden sheet", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "Alpha", FACT), "B": row(1, "x", WRONG)}, hidden=("B",)), has=(FACT,), warns="hidden sheet"),
    Case(name="a hidden row", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "Alpha", FACT) + row(3, "x", WRONG, hidden=True)}), has=(FACT,), warns="hidden rows"),
    Case(name="a hidden column", path="a.xlsx", data=xlsx({"A": row(1, "name", "fee", "x") + row(2, "Alpha", FACT, WRONG)}, columns='<cols><col min="3" max="3" hidden="1"/></cols>'), has=(FACT,), warns="hidden columns"),
    Case(name="all sheets hidden", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "x", WRONG)}, hidden=("A",)), fails="no text"),
    Case(name="an empty workbook", path="a.xlsx", data=xlsx({"A": ""}), fails="no text"),
    Case(name="only a header", path="a.xlsx", data=xlsx({"A": HEAD}), has=("name | fee",)),
    Case(name="no header", path="a.xlsx", data=xlsx({"A": row(1, "1", "2") + row(2, "3", "4")}), has=("1 | 2", "3 | 4")),
    Case(name="merged cells", path="a.xlsx", data=xlsx({"A": row(1, "area", "name", "fee") + row(2, "North", "Alpha", "1") + row(3, "", "Beta", "2")}, merges='<mergeCells><mergeCell ref="A2:A3"/></mergeCells>'), has=("North | Beta | 2",)),
    Case(name="a cell at the far end", path="a.xlsx", data=xlsx({"A": HEAD + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>', "B": HEAD + row(2, "x", FACT)}), has=(FACT,), warns="spans"),
    Case(name="100 sheets", path="a.xlsx", data=lambda: xlsx({f"S{n}": HEAD + row(2, "x", f"Sheet {n} speaks") for n in range(100)}), has=("Sheet 99 speaks",)),
    *(Case(name=f"{count:,} rows", path="a.xlsx", data=lambda count=count: xlsx({"A": HEAD + "".join(row(n, f"n{n}", "x") for n in range(2, count)) + row(count, "last", FACT)}), has=(f"last | {FACT}",), slow=count > 2000) for count in (2000, 20_000)),
    Case(name="200 columns", path="a.xlsx", data=xlsx({"A": "".join(f'<row r="{r}">' + "".join(f'<c t="inlineStr"><is><t>{"h" if r == 1 else "v"}{c}</t></is></c>' for c in range(200)) + "</row>" for r in (1, 2))}), has=("h199: v199",)),
    Case(name="a separator in a cell", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "a | b", FACT)}), has=(f"a / b | {FACT}",)),
    Case(name="lines in a cell", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "one&#10;two", FACT)}), has=(f"one two | {FACT}",)),
    Case(name="a formula that was never computed", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "Alpha", FACT) + '<row r="3"><c r="A3"><f>WEBSERVICE("http://x")</f></c></row>'}), has=(FACT,), lacks=("WEBSERVICE",)),
    Case(name="an error value", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "Alpha", FACT) + '<row r="3"><c r="A3" t="e"><v>#REF!</v></c><c r="B3"><v>1</v></c></row>'}), has=(FACT,)),
    Case(name="numbers as written", path="a.xlsx", data=xlsx({"A": HEAD + row(2, "Alpha", "0.1") + row(3, "Beta", "1250000.5")}), has=("Alpha | 0.1", "Beta | 1250000.5")),
    Case(name="a sheet that is no XML", path="a.xlsx", data=repacked(GOOD["xlsx"], {"xl/worksheets/sheet0.xml": "<worksheet"}), fails="damaged|XML"),
    Case(name="a sheet that is missing", path="a.xlsx", data=repacked(GOOD["xlsx"], {"xl/worksheets/sheet0.xml": None}), fails="no text|damaged"),
    Case(name="no workbook part", path="a.xlsx", data=repacked(GOOD["xlsx"], {"xl/workbook.xml": None}), fails="damaged"),
    Case(name="entities", path="a.xlsx", data=repacked(GOOD["xlsx"], {"xl/worksheets/sheet0.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'}), fails="refused"),
    Case(name="a zip bomb", path="a.xlsx", data=lambda: repacked(GOOD["xlsx"], {"xl/media/x.bin": bytes(30_000_000)}), fails="refused"),
    Case(name="a right-to-left sheet", path="a.xlsx", data=xlsx({"A": row(1, "الاسم", "المدة") + row(2, "ألفا", "٢٤ ساعة")}), has=("ألفا | ٢٤ ساعة",)),
    Case(name="behind a password", path="a.xlsx", data=b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "EncryptedPackage".encode("utf-16-le") + bytes(500), fails="encrypted"),
    Case(name="CSV under its name", path="a.xlsx", data=GOOD["csv"], has=(FACT,), warns="named XLSX"),
    *(Case(name=f"CSV with {name}", path="a.csv", data=f"name{sign}note\nAlpha{sign}{FACT.replace(',', '.')}\nBeta{sign}x\n".encode(), has=("name | note\nAlpha | The deposit is EUR 7.431",)) for name, sign in (("commas", ","), ("semicolons", ";"), ("tabs", "\t"), ("bars", "|"))),
    *(Case(name=f"CSV in {code}", path="a.csv", data=f"naïve;größe\nAlpha;{FACT} – ä\n".encode(code), has=("naïve | größe", FACT)) for code in ("utf-8", "utf-8-sig", "utf-16", "cp1252")),
    Case(name="CSV with lines in cells", path="a.csv", data=b'name,note\n"Al\npha","one\n\ntwo"\nBeta,x\n', has=("Al pha | one two",)),
    Case(name="CSV with quotes in quotes", path="a.csv", data=b'name,note\nAlpha,"say ""yes"""\n', has=('Alpha | say "yes"',)),
    Case(name="CSV with a quote that never ends", path="a.csv", data=b'name,note\nAlpha,"never ends\nBeta,x\n', has=("Beta",)),
    Case(name="CSV with rows of all lengths", path="a.csv", data=b"a,b,c\n1\n1,2\n1,2,3\n1,2,3,4\n", has=("1 | 2 | 3",)),
    Case(name="CSV with empty rows", path="a.csv", data=b"a,b\n\n,\nx,7431\n\n", has=("x | 7431",)),
    Case(name="CSV with NUL", path="a.csv", data=b"a,b\nx\x00y,7431\n", has=("xy | 7431",)),
    *(Case(name=f"CSV with a field of {count:,} letters", path="a.csv", data=lambda count=count: b"a,b\nx," + b"y" * count + b"\n", has=("yyyy",), slow=count > 300_000) for count in (300_000, 3_000_000)),
    Case(name="CSV of a formula", path="a.csv", data=b'a,b\nx,"=cmd|\' /C calc\'!A0"\n', has=("=cmd",)),
    Case(name="TSV", path="a.tsv", data=b"name\tnote\nAlpha\t7431\n", has=("name | note\nAlpha | 7431",)),
    Case(name="CSV of blanks", path="a.csv", data=b" , ,\n,,\n", fails="no text"),
]  # fmt: skip


# ---- slides, ODT

PPTXS = [
    Case(name="a hidden slide", path="a.pptx", data=pptx(sp("A", kind="title") + sp(FACT), sp("B", kind="title") + sp(WRONG), hidden=(1,)), has=(FACT,), warns="hidden slides"),
    Case(name="a hidden shape", path="a.pptx", data=pptx(sp("A", kind="title") + sp(FACT) + sp(WRONG, hidden=True)), has=(FACT,), warns="hidden text"),
    Case(name="beside the slide", path="a.pptx", data=pptx(sp("A", kind="title") + sp(FACT) + sp(WRONG, x=-90_000_000)), has=(FACT,)),
    Case(name="all slides hidden", path="a.pptx", data=pptx(sp(WRONG), hidden=(0,)), fails="no text"),
    Case(name="no slides", path="a.pptx", data=pptx(), fails="no text|damaged"),
    Case(name="empty slides", path="a.pptx", data=pptx("", ""), fails="no text"),
    Case(name="notes", path="a.pptx", data=pptx(sp("A", kind="title"), notes={0: FACT}), has=(f"Notes: {FACT}",)),
    *(Case(name=f"{count} slides", path="a.pptx", data=lambda count=count: pptx(*(sp(f"Slide {n}", kind="title") for n in range(count - 1)), sp("Last", kind="title") + sp(FACT)), check=lambda d, count=count: d.page_at(d.text.index(FACT)) == count, slow=count > 60) for count in (60, 500)),
    Case(name="a slide that is no XML", path="a.pptx", data=repacked(GOOD["pptx"], {"ppt/slides/s1.xml": "<p:sld"}), has=(FACT,), warns="slide 2"),
    Case(name="a slide that is missing", path="a.pptx", data=repacked(GOOD["pptx"], {"ppt/slides/s1.xml": None}), has=(FACT,)),
    Case(name="no presentation", path="a.pptx", data=repacked(GOOD["pptx"], {"ppt/presentation.xml": None}), fails="damaged"),
    Case(name="entities", path="a.pptx", data=repacked(GOOD["pptx"], {"ppt/presentation.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'}), fails="refused"),
    Case(name="groups in groups", path="a.pptx", data=pptx("<p:grpSp>" * 10 + sp(FACT) + "</p:grpSp>" * 10), has=(FACT,)),
    Case(name="300 groups in each other", path="a.pptx", data=pptx(sp("A", kind="title"), "<p:grpSp>" * 300 + sp(WRONG) + "</p:grpSp>" * 300), has=("A",)),
    Case(name="right to left", path="a.pptx", data=pptx(sp("خلال ٢٤ ساعة")), has=("خلال ٢٤ ساعة",)),
    Case(name="a slide whose title is missing", path="a.pptx", data=pptx(sp(FACT)), has=(FACT,)),
    Case(name="ODT: deleted text", path="a.odt", data=odt(f'<text:tracked-changes><text:changed-region><text:deletion><text:p>{WRONG}</text:p></text:deletion></text:changed-region></text:tracked-changes><text:p>{FACT}</text:p>'), has=(FACT,)),
    Case(name="ODT: hidden text", path="a.odt", data=odt(f'<text:p>{FACT} <text:span text:style-name="Hid">{WRONG}</text:span></text:p>'), has=(FACT,), warns="hidden"),
    Case(name="ODT: struck text", path="a.odt", data=odt(f'<text:p>{FACT} <text:span text:style-name="Struck">{WRONG}</text:span></text:p>'), has=(FACT,), warns="struck"),
    Case(name="ODT: a million blanks", path="a.odt", data=odt(f'<text:p>a<text:s text:c="99999999"/>{FACT}</text:p>'), has=(FACT,)),
    Case(name="ODT: a cell repeated a billion times", path="a.odt", data=odt(f'<table:table><table:table-row><table:table-cell table:number-columns-repeated="999999999"><text:p>x</text:p></table:table-cell></table:table-row></table:table><text:p>{FACT}</text:p>'), has=(FACT,)),
    Case(name="ODT: an empty text", path="a.odt", data=odt(""), fails="no text"),
    Case(name="ODT: no content", path="a.odt", data=repacked(GOOD["odt"], {"content.xml": None}), fails="damaged|ZIP"),
    Case(name="ODT: entities", path="a.odt", data=repacked(GOOD["odt"], {"content.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'}), fails="refused"),
    Case(name="ODT: deep nesting", path="a.odt", data=odt("<text:section>" * 500 + f"<text:p>{FACT}</text:p>" + "</text:section>" * 500), fails="nested"),
    Case(name="ODT: right to left", path="a.odt", data=odt("<text:p>خلال ٢٤ ساعة</text:p>"), has=("خلال ٢٤ ساعة",)),
]  # fmt: skip


# ---- mail, records, pages, plain text


def mail_with(charset: str, encoding: str) -> bytes:
    m = EmailMessage()
    m["From"], m["Subject"], m["Message-ID"] = "a@b.example", "Größe", "<1@b.example>"
    m.set_content(FACT + " Größe.\n", charset=charset, cte=encoding)
    return m.as_bytes()


MAILS = [
    *(Case(name=f"mail in {c}, {e}", path="a.eml", data=mail_with(c, e), has=(FACT, "Größe.")) for c in ("utf-8", "iso-8859-1", "cp1252") for e in ("base64", "quoted-printable", "8bit")),
    Case(name="mail without a body", path="a.eml", data=b"From: a@b\nSubject: The offer\nMessage-ID: <1@b>\n\n", has=("Subject: The offer",)),
    Case(name="mail with an unknown charset", path="a.eml", data=f"From: a@b\nSubject: x\nContent-Type: text/plain; charset=nonsense\n\n{FACT}\n".encode(), has=(FACT,)),
    Case(name="mail with broken base64", path="a.eml", data=b"From: a@b\nSubject: The offer\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n%%%%\n", has=("The offer",)),
    Case(name="mail with a broken date", path="a.eml", data=f"From: a@b\nDate: yesterday\nSubject: x\n\n{FACT}\n".encode(), has=(FACT,), warns="date"),
    Case(name="mail with a broken address", path="a.eml", data=f"From: <<>\nTo: ,,;\nSubject: x\n\n{FACT}\n".encode(), has=(FACT,)),
    Case(name="mail with a multipart that never ends", path="a.eml", data=f"From: a@b\nSubject: x\nContent-Type: multipart/mixed; boundary=q\n\n--q\nContent-Type: text/plain\n\n{FACT}\n".encode(), has=(FACT,)),
    Case(name="mail whose HTML hides words", path="a.eml", data=f'From: a@b\nSubject: x\nContent-Type: text/html\n\n<p>{FACT}</p><p style="display:none">{WRONG}</p>'.encode(), has=(FACT,)),
    Case(name="mail with 5,000 headers", path="a.eml", data=("".join(f"X-H{n}: v\n" for n in range(5000)) + f"From: a@b\nSubject: x\n\n{FACT}\n").encode(), has=(FACT,)),
    Case(name="mail with a name that climbs", path="a.eml", data=(lambda m: (m.add_attachment(b"x", maintype="a", subtype="b", filename="../../etc/passwd"), m.as_bytes())[1])(message(FACT)), has=(FACT,), check=lambda d: [a.name for a in d.attachments] == ["passwd"]),
    Case(name="mail with a quoted reply", path="a.eml", data=good_mail(f"{FACT}\n\n> older words\n> and more\n"), has=(FACT, "> older words")),
    Case(name="what is no mail", path="a.eml", data=b"Just some words.\n\nNo headers.\n", fails="damaged"),
]  # fmt: skip

RECORDS = [
    Case(name="a list of records", path="a.json", data=json.dumps([{"name": "Alpha", "fee": FACT}]).encode(), has=(FACT,)),
    Case(name="a number", path="a.json", data=b"42", has=("42",)),
    Case(name="a string", path="a.json", data=json.dumps(FACT).encode(), has=(FACT,)),
    Case(name="null", path="a.json", data=b"null", fails="no text"),
    Case(name="an empty list", path="a.json", data=b"[]", fails="no text"),
    Case(name="exact numbers", path="a.json", data=b'{"a": 1.10, "b": 100000000000000000000001, "c": 1e400}', has=("a: 1.10", "b: 100000000000000000000001", "c: 1e400")),
    Case(name="keys that are there twice", path="a.json", data=b'{"a": 1, "a": 7431}', has=("a: 7431",)),
    Case(name="comments in it", path="a.json", data=b'{"a": 1} // no', fails="damaged"),
    Case(name="a trailing comma", path="a.json", data=b'{"a": 1,}', fails="damaged"),
    Case(name="deep lists", path="a.json", data=b"[" * 100_000 + b"]" * 100_000, fails="nested|damaged"),
    Case(name="deep objects", path="a.json", data=b'{"a":' * 5000 + b"1" + b"}" * 5000, fails="nested"),
    Case(name="escapes", path="a.json", data=b'{"a": "caf\\u00e9 \\ud83d\\ude00 \\u0000 x"}', has=("café 😀",), lacks=("\x00",)),
    Case(name="half a surrogate", path="a.json", data=b'{"a": "x \\ud83d y"}', has=("x",)),
    *(Case(name=f"JSON in {c}", path="a.json", data=json.dumps({"a": "Größe " + FACT}, ensure_ascii=False).encode(c), has=("Größe", FACT)) for c in ("utf-8-sig", "utf-16", "utf-32")),
    Case(name="lines, some broken", path="a.jsonl", data=f'{{"a": "{FACT}"}}\nnot json\n{{"a": 2}}\n'.encode(), has=(FACT,), warns="1 lines are not JSON"),
    Case(name="lines, none readable", path="a.jsonl", data=b"x\ny\n", fails="damaged"),
    *(Case(name=f"{count:,} records", path="a.jsonl", data=lambda count=count: b"".join(b'{"name": "n%d", "v": %d}\n' % (n, n) for n in range(count)), has=(f"v: {count - 1}",), slow=count > 500) for count in (500, 5000)),
    Case(name="an endless line", path="a.json", data=lambda: b'{"a": "' + b"x" * 25_000_000 + b'"}', fails="characters|memory|longer", slow=True),
]  # fmt: skip

PAGES = [
    Case(name="hidden by an attribute", path="a.html", data=f"<p>{FACT}<p hidden>{WRONG}".encode(), has=(FACT,), warns="hidden"),
    *(
        Case(name=f"hidden by {style}", path="a.html", data=f'<p>{FACT}</p><p style="{style}">{WRONG}</p>'.encode(), has=(FACT,), warns="hidden")
        for style in ("display:none", "display: none !important", "visibility:hidden", "font-size:0", "opacity:0", "color:#fff", "position:absolute;left:-9999px")
    ),
    *(Case(name=f"in {tag}", path="a.html", data=f"<p>{FACT}</p><{tag}>{WRONG}</{tag}>".encode(), has=(FACT,)) for tag in ("script", "style", "template", "noscript", "iframe")),
    Case(name="in a comment", path="a.html", data=f"<p>{FACT}</p><!-- {WRONG} -->".encode(), has=(FACT,)),
    Case(name="nothing is closed", path="a.html", data=f"<table><tr><td>a<td>{FACT}<tr><td>b<td>c".encode(), has=(f"a | {FACT}",)),
    Case(name="100,000 open tags", path="a.html", data=f"<p>{FACT}</p>".encode() + b"<b>" * 100_000, fails="nested"),
    Case(name="deep tables", path="a.html", data=(b"<table><tr><td>" * 300) + FACT.encode(), check=lambda d: FACT in d.text),
    Case(name="a cell over a million columns", path="a.html", data=f'<table><tr><td colspan="1000000">{FACT}</td></tr></table>'.encode(), has=(FACT,)),
    Case(name="entities", path="a.html", data=b"<p>5&nbsp;&euro; &lt;b&gt; &#x41;&#0;&amp;", has=("<b>", "A")),
    *(Case(name=f"HTML in {c}", path="a.html", data=f'<meta charset="{c}"><p>Größe {FACT}'.encode(c), has=("Größe", FACT)) for c in ("utf-8", "iso-8859-1", "utf-16")),
    Case(name="a charset that lies", path="a.html", data='<meta charset="utf-8"><p>Größe, Prüfung'.encode("cp1252"), has=("Größe, Prüfung",)),
    Case(name="a base64 picture", path="a.html", data=f'<p>{FACT}<img src="data:image/png;base64,{"A" * 100_000}">'.encode(), has=(FACT,), lacks=("AAAA",)),
    Case(name="right to left", path="a.html", data='<p dir="rtl">خلال ٢٤ ساعة'.encode(), has=("خلال ٢٤ ساعة",)),
    Case(name="Markdown: code that looks like headings", path="a.md", data=f"# T\n\n```\n# not one\n```\n\n{FACT}\n".encode(), check=lambda d: len(d.sections) == 1),
    Case(name="Markdown: HTML that hides", path="a.md", data=f'# T\n\n{FACT}\n\n<div style="display:none">{WRONG}</div>\n'.encode(), has=(FACT,)),
    *(Case(name=f"Markdown: {count:,} headings", path="a.md", data=("# H\n\nx\n\n" * count + FACT).encode(), has=(FACT,), check=lambda d: len({s.id for s in d.sections}) == len(d.sections), slow=count > 500) for count in (500, 5000)),
    Case(name="Markdown: quotes in quotes", path="a.md", data=(b">" * 2000 + b" x\n\n" + FACT.encode()), has=(FACT,)),
    Case(name="Markdown: lists in lists", path="a.md", data="\n".join("  " * n + "- x" for n in range(200)).encode() + b"\n\n" + FACT.encode(), has=(FACT,)),
    Case(name="Markdown: front matter that never ends", path="a.md", data=f"---\ntitle: x\n\n{FACT}\n".encode(), has=(FACT,)),
    Case(name="Markdown: a YAML bomb", path="a.md", data=f"---\na: &a [x,x]\nb: &b [*a,*a]\n---\n\n{FACT}\n".encode(), has=(FACT,), warns="front matter"),
    Case(name="Markdown: keys it may not set", path="a.md", data=f"---\nid: other/one\naccess: all\n---\n\n{FACT}\n".encode(), check=lambda d: d.id == "s/x" and "access" not in d.metadata),
    Case(name="RST: an include", path="a.rst", data=f"T\n=\n\n.. include:: /etc/passwd\n\n{FACT}\n".encode(), has=(FACT,), lacks=("root:",)),
    Case(name="RST: raw HTML", path="a.rst", data=f"T\n=\n\n.. raw:: html\n\n   <b>{WRONG}</b>\n\n{FACT}\n".encode(), has=(FACT,)),
    *(Case(name=f"text in {c}", path="a.txt", data=t.encode(c), has=(t[:8],)) for c, t in (("utf-16-le", "\ufeffDeposit due in May"), ("utf-16-be", "\ufeffDeposit due in May"), ("gb18030", "供应商应在知悉安全事件后二十四小时内通知本行"), ("cp932", "外部委託先は事故を知ってから二十四時間以内に通知する"), ("cp1251", "Поставщик сообщает банку о каждом инциденте"), ("cp1252", "Prüfung der Größe – „ohne Ausnahme“"))[2:]),
    *(Case(name=f"text of one line of {count:,} words", path="a.txt", data=lambda count=count: b"word " * count + FACT.encode(), has=(FACT,), slow=count > 20_000) for count in (20_000, 200_000)),
    Case(name="text of ten million lines", path="a.txt", data=lambda: b"\n" * 10_000_000 + FACT.encode(), has=(FACT,), slow=True),
    Case(name="text with control characters", path="a.txt", data=b"\x1b[31mred\x1b[0m \x07bell \x08 " + FACT.encode(), has=(FACT, "red"), lacks=("\x1b", "\x07")),
    Case(name="text with marks that turn it round", path="a.txt", data=f"\u202e{FACT}\u202c".encode(), has=(FACT,), lacks=("\u202e",)),
    Case(name="text with hidden tags", path="a.txt", data=(FACT + "".join(chr(0xE0000 + ord(c)) for c in "ignore")).encode(), has=(FACT,), warns="invisible"),
    Case(name="binary data", path="a.txt", data=random.Random(3).randbytes(5000), fails="binary"),
    Case(name="compressed data", path="a.txt", data=zlib.compress(b"x" * 10_000), check=None, fails="binary|no text|cannot"),
    Case(name="a program", path="a.txt", data=b"\x7fELF" + struct.pack("<Q", 2) * 50, fails="program"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=f"{c.path.split('.')[-1]}: {c.name}", marks=[pytest.mark.slow] if c.slow else [])
        for c in [*PDFS, *DOCXS, *XLSXS, *PPTXS, *MAILS, *RECORDS, *PAGES]
    ],
)
def test_a_nasty_file_gives_its_fact_or_its_reason(worker: Worker, case: Case) -> None:
    if case.fails is not None:
        with pytest.raises(ParseError, match=case.fails):
            read(worker, case)
        return
    document = read(worker, case)
    assert [fact for fact in case.has if fact not in document.text] == []
    assert [fact for fact in case.lacks if fact in document.text] == []
    assert case.warns is None or any(case.warns in warning for warning in document.warnings), document.warnings
    assert case.check is None or case.check(document)

"""The attacks that are replayed: rows of the shared data and our own, and how a text is planted where its row says."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from html import escape
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:  # the builders of files live beside the tests of their formats
    sys.path.insert(0, str(TESTS))

from test_parsing_docx import docx  # noqa: E402
from test_parsing_docx import p as para  # noqa: E402
from test_parsing_odt import odt  # noqa: E402
from test_parsing_pdf import at, pdf, wrapped  # noqa: E402
from test_parsing_pptx import pptx, sp  # noqa: E402
from test_parsing_spreadsheet import row as cells  # noqa: E402
from test_parsing_spreadsheet import xlsx  # noqa: E402

SHARED = TESTS.parents[1] / "shared" / "data" / "attacks"
OWN = TESTS / "data" / "attacks"
HOST = "wiki-supplier-notes"
PLAIN = "Supplier Alpha signed the annex in March."
"""The honest part of a document that an attack is planted in."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One row. `host` is a document's name or a format; `calls` and `answer` are what an obedient model does."""

    id: str
    family: str
    channel: str
    text: str
    must_not: tuple[str, ...]
    question: str
    host: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    answer: str

    @property
    def name(self) -> str:
        """The document's name where many are planted in one corpus."""
        return f"{HOST}-{self.id}"


@dataclass(frozen=True, kw_only=True)
class Benign:
    id: str
    channel: str
    text: str
    question: str
    must: tuple[str, ...]
    host: str = HOST


def rows(name: str) -> list[dict[str, Any]]:
    """Of the shared data where it is there, then our own."""
    found: list[dict[str, Any]] = []
    for file in (SHARED / name, OWN / name):
        if file.is_file():
            found += [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    return found


def attacks() -> list[Attack]:
    return [attack_of(row) for row in rows("injections.jsonl")]


def attack_of(row: Mapping[str, Any]) -> Attack:
    return Attack(
        id=row["id"],
        family=row["family"],
        channel=row["channel"],
        text=row["text"],
        must_not=tuple(row["must_not"]),
        question=row["question"],
        host=row["host"],
        calls=tuple((name, arguments) for name, arguments in row["obey"]["calls"]),
        answer=row["obey"]["answer"],
    )


def benign() -> list[Benign]:
    return [
        Benign(
            id=row["id"],
            channel=row["channel"],
            text=row["text"],
            question=row["question"],
            must=tuple(row["must"]),
            host=row.get("host", HOST),
        )
        for row in rows("benign.jsonl")
    ]


# Planting ----------------------------------------------------------------------------------------------------------

_HIDDEN = re.compile(r"(PDF|DOCX|XLSX|PPTX|HTML|ODT)_HIDDEN\((.*?)\):\s+(.*)", re.DOTALL)


def plant(text: str, *, channel: str, host: str, folder: Path, name: str) -> None:
    """Writes `text` into the folder where its channel says, in a document `name` (but for channel 'filename').

    What belongs to no file (a web page, a chat before, a description of an MCP tool) stands in a document as well.
    """
    hidden = _HIDDEN.match(text)
    if hidden is not None:
        kind, how, said = hidden.groups()
        write(folder / f"{name}.{kind.lower()}", HIDING[kind](said, how))
        return
    if host == "pdf" and (info := re.match(r"pdf:(/\w+): (.*)", text, re.DOTALL)):
        said = info[2].replace("(", "\\(").replace(")", "\\)")
        write(folder / f"{name}.pdf", pdf([at(60, 780, PLAIN)], info=f"{info[1]} ({said})"))
        return
    match channel:
        case "filename":
            as_file(text, folder)
        case "title" if host not in FORMATS:
            write(folder / f"{name}.md", f"---\ntitle: {json.dumps(text)}\n---\n\n# {text}\n\n{PLAIN}\n")
        case "metadata" if host not in FORMATS:
            write(folder / f"{name}.md", f"---\n{text}\n---\n\n# Supplier notes\n\n{PLAIN}\n")
        case "web" if host not in FORMATS:
            head = "<!doctype html><html><head><title>Supplier notes</title></head>"
            write(folder / f"{name}.html", f"{head}<body><p>{PLAIN}</p><p>{text}</p></body></html>")
        case "snippet" if host not in FORMATS:
            write(folder / f"{name}.md", f"{text}\n\n{PLAIN}\n")
        case _ if host in FORMATS:
            extension, make = FORMATS[host]
            write(folder / f"{name}.{extension}", make(text, channel))
        case _:
            write(folder / f"{name}.md", f"# Supplier notes\n\n{PLAIN}\n\n{text}\n")


def write(file: Path, data: str | bytes) -> None:
    file.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)


def as_file(name: str, folder: Path) -> None:
    """A file with that name, as far as a file system takes it, and a line in a manifest that says so, too."""
    if "/" in name and not name.startswith(("/", ".")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError, ValueError):
        (folder / name.replace("/", "\\")).write_text(f"# Supplier notes\n\n{PLAIN}\n", "utf-8")
    manifest = folder / "manifest.csv"
    if not manifest.exists():
        listed = "".join(f"{p.name}\n" for p in sorted(folder.glob("wiki-*.md")))
        manifest.write_text(f"path\n{listed}", "utf-8")
    quoted = '"' + name.replace('"', '""') + '"'
    with contextlib.suppress(OSError, ValueError), manifest.open("a", encoding="utf-8") as file:
        file.write(f"{quoted}\n")


def _pdf(text: str, channel: str) -> bytes:
    if channel == "title":
        said = text.replace("(", "\\(").replace(")", "\\)")
        return pdf([at(60, 780, text[:90], size=18) + at(60, 700, PLAIN)], info=f"/Title ({said})")
    return pdf([at(60, 800, PLAIN) + wrapped(60, 760, text, width=80)])


def _docx(text: str, channel: str) -> bytes:
    return docx(para(PLAIN) + "".join(para(escape(line)) for line in text.split("\n")))


def _xlsx(text: str, channel: str) -> bytes:
    return xlsx({"Suppliers": cells(1, "supplier", "note") + cells(2, "Alpha", escape(text)) + cells(3, "x", PLAIN)})


def _pptx(text: str, channel: str) -> bytes:
    title = escape(text) if channel == "title" else "Supplier notes"
    return pptx(sp(title, kind="title") + sp(PLAIN) + sp(escape(text)))


def _eml(text: str, channel: str) -> bytes:
    mail = EmailMessage()
    mail["From"] = "Ana <ana@bank.example>"
    mail["To"] = "team@bank.example"
    mail["Subject"] = " ".join(text.split()) if channel == "title" else "Supplier notes"
    mail.set_content(f"{PLAIN}\n\n{text}\n")
    return mail.as_bytes()


def _html(text: str, channel: str) -> str:
    title = escape(text) if channel == "title" else "Supplier notes"
    return f"<!doctype html><title>{title}</title><h1>Supplier notes</h1><p>{PLAIN}</p>{text}"


def _csv(text: str, channel: str) -> str:
    return f'supplier,note\nAlpha,"{text.replace(chr(34), chr(34) * 2)}"\nBeta,"{PLAIN}"\n'


def _json(text: str, channel: str) -> str:
    return json.dumps([{"supplier": "Alpha", "note": text}, {"supplier": "Alpha", "note": PLAIN}])


def _rst(text: str, channel: str) -> str:
    return f"Supplier notes\n==============\n\n{PLAIN}\n\n{text}\n"


def _odt(text: str, channel: str) -> bytes:
    return odt(f"<text:p>{PLAIN}</text:p><text:p>{escape(text)}</text:p>")


FORMATS: Mapping[str, tuple[str, Callable[[str, str], str | bytes]]] = {
    "pdf": ("pdf", _pdf),
    "docx": ("docx", _docx),
    "xlsx": ("xlsx", _xlsx),
    "pptx": ("pptx", _pptx),
    "eml": ("eml", _eml),
    "html": ("html", _html),
    "csv": ("csv", _csv),
    "json": ("json", _json),
    "rst": ("rst", _rst),
    "odt": ("odt", _odt),
    "txt": ("txt", lambda text, channel: f"{PLAIN}\n\n{text}\n"),
}


# Hiding ------------------------------------------------------------------------------------------------------------


def _pdf_hidden(text: str, how: str) -> bytes:
    visible = at(60, 780, PLAIN)
    if "layer" in how or "optional" in how:
        return pdf_with_layer(text)
    if "off" in how:
        return pdf([visible + at(60, -400, text)])
    extra = "3 Tr " if "render_mode=3" in how or "mode 3" in how else ""
    extra += "1 1 1 rg " if "white" in how else ""
    size = 1.0 if "1pt" in how or "tiny" in how else 10.0
    return pdf([visible + at(60, 500, text, size=size, extra=extra)])


def pdf_with_layer(text: str) -> bytes:
    """Text in an optional-content group that is off."""
    content = at(60, 780, PLAIN) + "/OC /MC0 BDC\n" + at(60, 500, text) + "EMC\n"
    data = pdf([content])
    data = data.replace(b"/Resources << /Font", b"/Resources << /Properties << /MC0 90 0 R >> /Font", 1)
    off = b"/OCProperties << /OCGs [90 0 R] /D << /OFF [90 0 R] /Order [90 0 R] >> >> "
    data = data.replace(b"<< /Type /Catalog /Pages 2 0 R ", b"<< /Type /Catalog /Pages 2 0 R " + off, 1)
    body = data[: data.rindex(b"xref\n0 1")] + b"90 0 obj\n<< /Type /OCG /Name (Notes) >>\nendobj\n"
    found = [(int(m[1]), m.start()) for m in re.finditer(rb"(?m)^(\d+) 0 obj$", body)]
    info = max(n for n, _ in found if n != 90)
    table = b"".join(b"%d 1\n%010d 00000 n \n" % (n, place) for n, place in found)
    return (
        body
        + b"xref\n0 1\n0000000000 65535 f \n"
        + table
        + (b"trailer << /Root 1 0 R /Size 91 /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (info, len(body)))
    )


def _docx_hidden(text: str, how: str) -> bytes:
    run = ""
    if "white" in how:
        run = '<w:color w:val="FFFFFF"/>'
    elif "1pt" in how or "tiny" in how:
        run = '<w:sz w:val="2"/>'
    else:
        run = "<w:vanish/>"
    return docx(para(PLAIN) + para(escape(text), run=run))


def _xlsx_hidden(text: str, how: str) -> bytes:
    text = escape(text)
    head = cells(1, "supplier", "note")
    if "row" in how:
        return xlsx({"A": head + cells(2, "Alpha", PLAIN) + cells(3, "x", text, hidden=True)})
    if "col" in how:
        columns = '<cols><col min="3" max="3" hidden="1"/></cols>'
        return xlsx({"A": cells(1, "supplier", "note", "x") + cells(2, "Alpha", PLAIN, text)}, columns=columns)
    data = xlsx({"A": head + cells(2, "Alpha", PLAIN), "B": cells(1, "x", text)}, hidden=("B",))
    if "very" in how.lower():
        return rezipped(data, {"xl/workbook.xml": ('state="hidden"', 'state="veryHidden"')})
    return data


def rezipped(data: bytes, changes: Mapping[str, tuple[str, str]]) -> bytes:
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name).decode()
            if name in changes:
                assert changes[name][0] in content
                content = content.replace(*changes[name])
            new.writestr(name, content)
    return out.getvalue()


def _pptx_hidden(text: str, how: str) -> bytes:
    text = escape(text)
    head = sp("Supplier notes", kind="title") + sp(PLAIN)
    if "slide" in how and "off" not in how:
        return pptx(head, sp("B", kind="title") + sp(text), hidden=(1,))
    if "off" in how:
        return pptx(head + sp(text, x=-90_000_000, y=-90_000_000))
    if "white" in how:
        white = '<a:rPr><a:solidFill><a:srgbClr val="FFFFFF"/></a:solidFill></a:rPr>'
        return pptx(head + sp(text).replace("<a:r><a:t>", f"<a:r>{white}<a:t>"))
    return pptx(head + sp(text, hidden=True))


def _html_hidden(text: str, how: str) -> str:
    style = how.strip() or "display:none"
    attributes = style if style in ("hidden", 'aria-hidden="true"') else f'style="{style}"'
    return f"<!doctype html><title>Notes</title><p>{PLAIN}</p><div {attributes}>{escape(text)}</div>"


def _odt_hidden(text: str, how: str) -> bytes:
    return odt(f'<text:p>{PLAIN} <text:span text:style-name="Hid">{escape(text)}</text:span></text:p>')


HIDING: Mapping[str, Callable[[str, str], str | bytes]] = {
    "PDF": _pdf_hidden,
    "DOCX": _docx_hidden,
    "XLSX": _xlsx_hidden,
    "PPTX": _pptx_hidden,
    "HTML": _html_hidden,
    "ODT": _odt_hidden,
}


def plant_all(what: Sequence[Attack], folder: Path) -> None:
    """Every row in a document of its own; what is about file names alone is left out."""
    for attack in what:
        if attack.channel != "filename":
            text = attack.text.replace(HOST, attack.name)
            plant(text, channel=attack.channel, host=attack.host, folder=folder, name=attack.name)


ATTACKS = attacks()
SHORT = list({attack.family: attack for attack in reversed(ATTACKS) if attack.channel != "filename"}.values())[::-1]
"""A row of each family."""
ALONE = [attack for attack in ATTACKS if attack.channel in ("filename", "metadata")]
"""What may change how others are read has a corpus of its own."""
MANY = [attack for attack in ATTACKS if attack not in ALONE]
READ = "The annex is kept by Legal, and by nobody else."
"""An honest sentence in a document called as the host of the attacks."""

"""Spreadsheets and CSV: rows with their header, sheets as sections, hidden parts left out."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from citehound.errors import ParseError
from citehound.parsing.blocks import join
from citehound.parsing.extract import Extract
from citehound.parsing.spreadsheet import parse_csv, parse_spreadsheet

NS = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def c(reference: str, value: str, *, style: int = 0) -> str:
    if value.replace(".", "", 1).isdigit():
        return f'<c r="{reference}" s="{style}"><v>{value}</v></c>'
    return f'<c r="{reference}" t="inlineStr"><is><t xml:space="preserve">{value}</t></is></c>'


def row(number: int, *values: str, hidden: bool = False, style: int = 0) -> str:
    cells = "".join(c(f"{chr(65 + n)}{number}", v, style=style) for n, v in enumerate(values) if v)
    return f'<row r="{number}"{" hidden=" + chr(34) + "1" + chr(34) if hidden else ""}>{cells}</row>'


def xlsx(sheets: dict[str, str], *, hidden: tuple[str, ...] = (), columns: str = "", merges: str = "") -> bytes:
    """A workbook of these sheets, each given as its rows."""
    names = list(sheets)
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{REL}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {NS} xmlns:r="{REL}"><sheets>'
        + "".join(
            f'<sheet name="{name}" sheetId="{n + 1}" r:id="s{n}" state="{"hidden" if name in hidden else "visible"}"/>'
            for n, name in enumerate(names)
        )
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        + "".join(
            f'<Relationship Id="s{n}" Type="{REL}/worksheet" Target="worksheets/sheet{n}.xml"/>'
            for n in range(len(names))
        )
        + f'<Relationship Id="st" Type="{REL}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet {NS}><cellXfs><xf numFmtId="0"/><xf numFmtId="9"/></cellXfs></styleSheet>',
    }
    for n, rows in enumerate(sheets.values()):
        parts[f"xl/worksheets/sheet{n}.xml"] = (
            f"<worksheet {NS}>{columns}<sheetData>{rows}</sheetData>{merges}</worksheet>"
        )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def texts(extract: Extract) -> list[str]:
    return [b.text for b in extract.blocks]


# ---- awkward files


def test_a_wide_csv_with_many_lines_in_a_cell_gives_one_record_a_row(shared_data: Path) -> None:
    data = (shared_data / "awkward" / "04-csv-510-rows-83-columns-multiline-cells.csv").read_bytes()
    found = parse_csv(data.decode("utf-8"))
    assert len(found.blocks) == 510
    first = found.blocks[0].text
    assert first.startswith("Filename: ")
    assert "\nParties-Answer: " in first
    assert all(b.text.startswith("Filename: ") for b in found.blocks)
    assert max(len(line) for b in found.blocks for line in b.text.split("\n")) > 10_000


def test_each_row_of_long_cells_has_its_header_and_first_column(shared_data: Path) -> None:
    found = parse_spreadsheet((shared_data / "awkward" / "05-xlsx-long-cells.xlsx").read_bytes())
    assert found.blocks[0].text == "Label Report - Parties" and found.blocks[0].kind == "heading"
    rows = found.blocks[1:]
    assert len(rows) == 510
    assert all(b.text.startswith("Filename | Parties | Parties-Answer\n") for b in rows)
    assert rows[0].text.split("\n")[1].startswith("CybergyHoldingsInc_20140520_10-Q_EX-10.27")


# ---- CSV


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(sign: str) -> None:
    text = "\n".join(sign.join(r) for r in [("name", "time"), ("Alpha", "24 hours"), ("Beta", "72 hours")])
    assert texts(parse_csv(text)) == ["name | time\nAlpha | 24 hours", "name | time\nBeta | 72 hours"]


def test_commas_inside_a_semicolon_file_do_not_cut() -> None:
    text = "name;fee\nAlpha, Inc;1,50\nBeta, Ltd;2,50\n"
    assert texts(parse_csv(text))[0] == "name | fee\nAlpha, Inc | 1,50"


def test_a_cell_of_several_lines_stays_one_cell() -> None:
    assert texts(parse_csv('a,b\n"one\ntwo, ""three""",x\n')) == ['a | b\none two, "three" | x']


def test_a_separator_inside_a_cell_cannot_pass_for_two_cells() -> None:
    assert texts(parse_csv("a,b\nx | y,z\n")) == ["a | b\nx / y | z"]


def test_rows_without_a_header_stand_alone() -> None:
    assert texts(parse_csv("1,2\n3,4\n")) == ["1 | 2", "3 | 4"]


def test_a_header_alone_is_kept() -> None:
    assert texts(parse_csv("name,time\n")) == ["name | time"]


def test_an_endless_field_is_one_row() -> None:
    assert len(parse_csv("a,b\n" + "x" * 300_000 + ",y\n").blocks) == 1


# ---- workbooks


def test_sheets_are_sections_and_rows_carry_their_header() -> None:
    found = parse_spreadsheet(
        xlsx(
            {
                "Fees": row(1, "Item", "EUR") + row(2, "Audit", "1200.5"),
                "Times": row(1, "Event", "Limit") + row(2, "Incident", "24 hours"),
            }
        )
    )
    assert texts(found) == ["Fees", "Item | EUR\nAudit | 1200.5", "Times", "Event | Limit\nIncident | 24 hours"]
    assert [b.kind for b in found.blocks] == ["heading", "table", "heading", "table"]
    assert "Audit | 1200.5" in join(found.blocks)[0]


def test_hidden_sheets_rows_and_columns_are_left_out_and_named() -> None:
    sheets = {
        "A": row(1, "k", "v", "w") + row(2, "seen", "x", "3") + row(3, "ghost", "y", "4", hidden=True),
        "B": row(1, "secret", "s"),
    }
    columns = '<cols><col min="3" max="3" hidden="1"/></cols>'
    found = parse_spreadsheet(xlsx(sheets, hidden=("B",), columns=columns))
    assert texts(found) == ["A", "k | v\nseen | x"]
    assert found.warnings == (
        "1 hidden rows left out in sheet 'A'",
        "hidden columns left out in sheet 'A'",
        "hidden sheet left out: 'B'",
    )


FONTS = (
    '<fonts><font/><font><color rgb="FFFFFFFF"/></font><font><strike/></font></fonts><fills>'
    '<fill><patternFill patternType="none"/></fill><fill><patternFill patternType="solid"/></fill></fills>'
    '<numFmts><numFmt numFmtId="170" formatCode=";;;"/></numFmts><cellXfs><xf/><xf fontId="1" fillId="0"/>'
    '<xf fontId="1" fillId="1"/><xf fontId="2" fillId="0"/><xf numFmtId="170"/></cellXfs>'
)


@pytest.mark.parametrize(
    ("style", "seen", "warning"),
    [
        (0, True, ""),
        (1, False, "1 hidden cells left out in sheet 'S'"),
        (2, True, ""),
        (3, False, "1 struck cells left out in sheet 'S'"),
        (4, False, "1 hidden cells left out in sheet 'S'"),
    ],
    ids=["plain", "white on white", "white on a fill", "struck", "a format that shows nothing"],
)
def test_cells_that_nobody_sees_are_left_out_and_counted(style: int, seen: bool, warning: str) -> None:
    cell = f'<c r="B2" s="{style}" t="inlineStr"><is><t>72 hours</t></is></c>'
    rows = row(1, "name", "time") + f'<row r="2">{c("A2", "Alpha")}{cell}</row>' + row(3, "Beta", "24 hours")
    data = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(xlsx({"S": rows}))) as old, zipfile.ZipFile(data, "w") as new:
        for name in old.namelist():
            new.writestr(name, f"<styleSheet {NS}>{FONTS}</styleSheet>" if name == "xl/styles.xml" else old.read(name))
    found = parse_spreadsheet(data.getvalue())
    assert ("72 hours" in "".join(texts(found))) is seen and "Beta | 24 hours" in "".join(texts(found))
    assert list(found.warnings) == ([warning] if warning else [])


def test_rows_and_columns_of_no_size_are_hidden() -> None:
    rows = (
        row(1, "name", "time", "note") + '<row r="2" ht="0">' + c("A2", "ghost") + "</row>" + row(3, "Beta", "1", "x")
    )
    found = parse_spreadsheet(xlsx({"S": rows}, columns='<cols><col min="3" max="3" width="0"/></cols>'))
    assert "ghost" not in "".join(texts(found)) and "note" not in "".join(texts(found))
    assert len(found.warnings) == 2


def ods(tables: str, styles: str = "") -> bytes:
    spaces = " ".join(
        f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in ("office", "table", "text", "style")
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body></office:document-content>",
        )
    return out.getvalue()


def test_hidden_sheets_rows_and_columns_of_an_ods_file_are_left_out() -> None:
    def tr(*values: str, more: str = "") -> str:
        cells = "".join(
            f'<table:table-cell office:value-type="string"><text:p>{v}</text:p></table:table-cell>' for v in values
        )
        return f"<table:table-row {more}>{cells}</table:table-row>"

    gone = 'table:visibility="collapse"'
    style = '<style:style style:name="ta2"><style:table-properties table:display="false"/></style:style>'
    found = parse_spreadsheet(
        ods(
            f'<table:table table:name="Shown"><table:table-column/><table:table-column/><table:table-column {gone}/>'
            + tr("name", "time", "secret")
            + tr("Alpha", "24", "a1")
            + tr("Ghost", "99", "a2", more=gone)
            + tr("Beta", "48", "a3")
            + f'</table:table><table:table table:name="Gone" table:style-name="ta2">{tr("a", "b")}</table:table>',
            style,
        )
    )
    assert texts(found) == ["Shown", "name | time\nAlpha | 24", "name | time\nBeta | 48"]
    assert len(found.warnings) == 3


def test_percentages_and_whole_numbers_read_as_shown() -> None:
    found = parse_spreadsheet(
        xlsx({"S": row(1, "name", "share") + row(2, "Alpha", "0.05", style=1) + row(3, "Beta", "7")})
    )
    assert texts(found)[1:] == ["name | share\nAlpha | 5 %", "name | share\nBeta | 7"]


def test_a_title_above_the_table_is_not_its_header() -> None:
    found = parse_spreadsheet(
        xlsx({"S": row(1, "Register of suppliers") + row(3, "name", "time") + row(4, "Alpha", "24")})
    )
    assert texts(found) == ["S", "Register of suppliers", "name | time\nAlpha | 24"]


def test_a_merged_cell_stands_in_each_of_its_rows() -> None:
    rows = row(1, "region", "limit") + row(2, "EU", "24 hours") + row(3, "", "72 hours")
    found = parse_spreadsheet(xlsx({"S": rows}, merges='<mergeCells count="1"><mergeCell ref="A2:A3"/></mergeCells>'))
    assert texts(found)[2] == "region | limit\nEU | 72 hours"


def test_a_wide_sheet_names_each_cell() -> None:
    heads = [f"col{n}" for n in range(20)]
    found = parse_spreadsheet(xlsx({"S": row(1, *heads) + row(2, "x", "", "z")}))
    assert texts(found)[1] == "col0: x\ncol2: z"


def test_a_sheet_that_spans_billions_of_cells_is_left_out() -> None:
    far = '<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>2</v></c></row>'
    found = parse_spreadsheet(xlsx({"Far": far, "Near": row(1, "a", "b") + row(2, "c", "d")}))
    assert texts(found) == ["Near", "a | b\nc | d"]
    assert "sheet 'Far' left out" in found.warnings[0]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04broken", b"nothing"])
def test_what_is_no_workbook_is_damaged(data: bytes) -> None:
    with pytest.raises(ParseError, match="damaged"):
        parse_spreadsheet(data)


def test_entities_in_a_sheet_are_refused() -> None:
    data = xlsx({"S": ""})
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            new.writestr(name, b'<!DOCTYPE x [<!ENTITY a "b">]>' + body if "sheet0" in name else body)
    with pytest.raises(ParseError, match="refused"):
        parse_spreadsheet(out.getvalue())


@pytest.mark.parametrize("shared", [True, False])
def test_struck_words_in_a_cell_are_left_out(shared: bool) -> None:
    runs = (
        '<r><t xml:space="preserve">The fee is </t></r><r><rPr><strike/></rPr><t>EUR 9,999</t></r>'
        '<r><rPr><strike val="0"/></rPr><t>EUR 12</t></r>'
    )
    cell = '<c r="A1" t="s"><v>0</v></c>' if shared else f'<c r="A1" t="inlineStr"><is>{runs}</is></c>'
    data = xlsx({"Fees": f'<row r="1">{cell}</row>'})
    if shared:
        out = io.BytesIO(data)
        with zipfile.ZipFile(out, "a") as archive:
            archive.writestr("xl/sharedStrings.xml", f"<sst {NS}><si>{runs}</si></sst>")
            links = archive.read("xl/_rels/workbook.xml.rels").decode()
        link = f'<Relationship Id="ss" Type="{REL}/sharedStrings" Target="sharedStrings.xml"/></Relationships>'
        data = replaced(out.getvalue(), "xl/_rels/workbook.xml.rels", links.replace("</Relationships>", link))
    found = parse_spreadsheet(data)
    assert texts(found)[-1] == "The fee is EUR 12"
    assert found.warnings == ("struck words left out of 1 cells in sheet 'Fees'",)


def replaced(data: bytes, name: str, text: str) -> bytes:
    """A zip file with one part replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for part in old.namelist():
            new.writestr(part, text if part == name else old.read(part))
    return out.getvalue()


def test_a_header_of_two_rows_with_merged_cells_is_one_header() -> None:
    rows = row(1, "Supplier", "Fees", "", "", "") + row(2, "", "2022", "2023", "2024", "2025")
    rows += row(3, "Alpha", "1", "2", "3", "7431") + row(4, "Beta", "4", "5", "6", "7")
    merged = '<mergeCells><mergeCell ref="B1:E1"/><mergeCell ref="A1:A2"/></mergeCells>'
    found = parse_spreadsheet(xlsx({"A": rows}, merges=merged))
    head = "Supplier | Fees 2022 | Fees 2023 | Fees 2024 | Fees 2025"
    assert [b.text for b in found.blocks[1:]] == [f"{head}\nAlpha | 1 | 2 | 3 | 7431", f"{head}\nBeta | 4 | 5 | 6 | 7"]


def test_a_row_below_a_header_with_equal_names_is_no_header() -> None:
    assert [b.text for b in parse_csv("fee,fee\n1,7431\n2,3\n").blocks] == ["fee | fee", "1 | 7431", "2 | 3"]
    found = parse_csv("name,fee,fee\nAlpha,1,7431\nBeta,2,3\n")
    assert [b.text for b in found.blocks] == ["name | fee | fee\nAlpha | 1 | 7431", "name | fee | fee\nBeta | 2 | 3"]

"""ODT: headings with numbers, lists, tables, notes, changes."""

from __future__ import annotations

import io
import zipfile

import pytest

from citehound.errors import ParseError
from citehound.parsing.extract import Extract
from citehound.parsing.odt import parse_odt

NS = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{long}:1.0"'
    for short, long in [
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("style", "style"),
        ("fo", "fo"),
        ("draw", "drawing"),
    ]
)
ROWS = 'table:number-rows-spanned="2"'
AUTOMATIC = """<office:automatic-styles>
<style:style style:name="Hid"><style:text-properties text:display="none"/></style:style>
<style:style style:name="Struck"><style:text-properties style:text-line-through-style="solid"/></style:style>
<text:list-style style:name="L1">
<text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>
<text:list-level-style-number text:level="2" style:num-format="a" style:num-suffix=")"/></text:list-style>
</office:automatic-styles>"""
STYLES = f"""<office:document-styles {NS}><office:styles><text:outline-style>
<text:outline-level-style text:level="1" style:num-format="1"/>
<text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/>
</text:outline-style></office:styles></office:document-styles>"""


def odt(body: str, *, styles: str = STYLES, extra: dict[str, str] | None = None) -> bytes:
    parts = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": f"<office:document-content {NS}>{AUTOMATIC}<office:body><office:text>"
        f"{body}</office:text></office:body></office:document-content>",
        "styles.xml": styles,
        **(extra or {}),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def texts(extract: Extract) -> list[str]:
    return [b.text for b in extract.blocks]


def p(text: str) -> str:
    return f"<text:p>{text}</text:p>"


def test_headings_carry_their_outline_numbers() -> None:
    body = "".join(
        f'<text:h text:outline-level="{n}">{t}</text:h>'
        for n, t in [(1, "Scope"), (1, "Duties"), (2, "Records"), (2, "Audits")]
    )
    found = parse_odt(odt(body))
    assert texts(found) == ["1 Scope", "2 Duties", "2.1 Records", "2.2 Audits"]
    assert [b.level for b in found.blocks] == [1, 1, 2, 2]


def test_lists_are_numbered_as_shown() -> None:
    inner = f"<text:list><text:list-item>{p('under')}</text:list-item></text:list>"
    body = f'<text:list text:style-name="L1"><text:list-item>{p("one")}{inner}</text:list-item>'
    body += f"<text:list-item>{p('two')}</text:list-item></text:list>"
    assert texts(parse_odt(odt(body))) == ["1. one", "a) under", "2. two"]


def test_deleted_text_is_gone_and_inserted_text_stays() -> None:
    region = f"<text:changed-region><text:deletion>{p('72 hours')}</text:deletion></text:changed-region>"
    changes = f"<text:tracked-changes>{region}</text:tracked-changes>"
    body = changes + p("within <text:change-start/>24<text:change-end/> hours")
    assert texts(parse_odt(odt(body))) == ["within 24 hours"]


def test_hidden_and_struck_text_is_left_out_and_counted() -> None:
    body = p(
        'Seen<text:span text:style-name="Hid"> ghost</text:span><text:span text:style-name="Struck"> old</text:span>.'
    )
    found = parse_odt(odt(body))
    assert texts(found) == ["Seen."]
    assert found.warnings == ("struck text left out (3 characters)", "hidden text left out (1 places)")


def test_a_note_stands_after_its_paragraph() -> None:
    inside = f"<text:note-body>{p('Working days.')}</text:note-body>"
    note = f"<text:note><text:note-citation>1</text:note-citation>{inside}</text:note>"
    assert texts(parse_odt(odt(p(f"Ten days{note}.")))) == ["Ten days[1].", "[1] Working days."]


def test_a_table_keeps_merged_cells_and_nested_tables() -> None:
    def cell(text: str, more: str = "") -> str:
        return f"<table:table-cell {more}>{text}</table:table-cell>"

    inner = f"<table:table><table:table-row>{cell(p('x'))}{cell(p('y'))}</table:table-row></table:table>"
    body = (
        f"<table:table><table:table-header-rows><table:table-row>{cell(p('Region'))}{cell(p('Limit'))}</table:table-row></table:table-header-rows>"
        f"<table:table-row>{cell(p('EU'), ROWS)}{cell(p('24 hours'))}</table:table-row>"
        f"<table:table-row><table:covered-table-cell/>{cell(p('72 hours') + inner)}</table:table-row></table:table>"
    )
    assert texts(parse_odt(odt(body))) == ["Region | Limit\nEU | 24 hours\nEU | 72 hours", "x | y"]


def test_spaces_tabs_and_line_breaks() -> None:
    assert texts(parse_odt(odt(p('a<text:s text:c="3"/>b<text:tab/>c<text:line-break/>d')))) == ["a b c\nd"]


def test_the_contents_and_annotations_are_no_content() -> None:
    body = f"<text:table-of-content><text:index-body>{p('Scope 1')}</text:index-body></text:table-of-content>" + p(
        "Text<office:annotation><text:p>remark</text:p></office:annotation>."
    )
    assert texts(parse_odt(odt(body))) == ["Text."]


def test_an_encrypted_file_says_so() -> None:
    with pytest.raises(ParseError, match="encrypted, needs a password"):
        parse_odt(odt("", extra={"META-INF/manifest.xml": "<m><encryption-data/></m>"}))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"plain text"])
def test_what_is_no_container_is_damaged(data: bytes) -> None:
    with pytest.raises(ParseError, match="damaged"):
        parse_odt(data)


def test_entities_are_refused() -> None:
    with pytest.raises(ParseError, match="refused"):
        parse_odt(odt("", extra={"content.xml": '<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>'}))

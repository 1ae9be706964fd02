"""DOCX: headings, numbers, tables, notes, changes and hidden text."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from citehound.errors import ParseError
from citehound.parsing.blocks import join
from citehound.parsing.docx import parse_docx
from citehound.parsing.extract import Extract
from citehound.parsing.sections import find_sections

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STYLES = f"""<w:styles {W}>
<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/></w:style>
<w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/>
<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="H2"><w:name w:val="heading 2"/><w:basedOn w:val="H1"/>
<w:pPr><w:numPr><w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="Plain1"><w:name w:val="heading 1"/></w:style>
<w:style w:type="paragraph" w:styleId="Toc"><w:name w:val="toc 1"/></w:style>
<w:style w:type="character" w:styleId="Ghost"><w:name w:val="Ghost"/><w:rPr><w:vanish/></w:rPr></w:style>
</w:styles>"""
NUMBERING = f"""<w:numbering {W}>
<w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1"/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1.%2"/></w:lvl>
<w:lvl w:ilvl="2"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%3)"/></w:lvl>
</w:abstractNum>
<w:abstractNum w:abstractNumId="1">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:isLgl/><w:lvlText w:val="%1.%2"/></w:lvl>
</w:abstractNum>
<w:abstractNum w:abstractNumId="2">
<w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="&#xF0B7;"/></w:lvl></w:abstractNum>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>
<w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="2"/></w:num>
<w:num w:numId="4"><w:abstractNumId w:val="1"/>
<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride></w:num>
</w:numbering>"""
FOOTNOTES = f"""<w:footnotes {W}><w:footnote w:type="separator" w:id="-1"><w:p/></w:footnote>
<w:footnote w:id="2"><w:p><w:r><w:t>Working days only.</w:t></w:r></w:p></w:footnote></w:footnotes>"""


def docx(body: str, *, extra: dict[str, str] | None = None, namespaces: str = "") -> bytes:
    """A DOCX with this body."""
    parts = {
        "_rels/.rels": "<Relationships>"
        f'<Relationship Id="r1" Type="{REL}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": "<Relationships>"
        f'<Relationship Id="r1" Type="{REL}/styles" Target="styles.xml"/>'
        f'<Relationship Id="r2" Type="{REL}/numbering" Target="numbering.xml"/>'
        f'<Relationship Id="r3" Type="{REL}/footnotes" Target="footnotes.xml"/>'
        f'<Relationship Id="r4" Type="{REL}/header" Target="header1.xml"/></Relationships>',
        "word/styles.xml": STYLES,
        "word/numbering.xml": NUMBERING,
        "word/footnotes.xml": FOOTNOTES,
        "word/header1.xml": f"<w:hdr {W}><w:p><w:r><w:t>Policy 7, version 3</w:t></w:r></w:p></w:hdr>",
        "word/document.xml": f"<w:document {W} {namespaces}><w:body>{body}</w:body></w:document>",
        **(extra or {}),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def p(text: str, *, style: str = "", properties: str = "", run: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return (
        f"<w:p><w:pPr>{named}{properties}</w:pPr><w:r><w:rPr>{run}</w:rPr>"
        f'<w:t xml:space="preserve">{text}</w:t></w:r></w:p>'
    )


def listed(text: str, number: int, level: int = 0) -> str:
    return p(text, properties=f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>')


def tc(inner: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{inner}</w:tc>"


def table(*rows: str) -> str:
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in rows) + "</w:tbl>"


def texts(extract: Extract) -> list[str]:
    return [block.text for block in extract.blocks]


# ---- awkward files


def test_struck_text_is_dropped_from_a_redline(shared_data: Path) -> None:
    found = parse_docx((shared_data / "awkward" / "02-docx-strike-and-brackets-redline.docx").read_bytes())
    text = join(found.blocks)[0]
    assert "NOV 2025" in text
    assert "JAN 2023[NOV 2025]" not in text and "JAN 2023" not in text
    assert any(w.startswith("struck text left out") for w in found.warnings)


def test_text_that_stands_only_in_table_cells_is_read_in_order(shared_data: Path) -> None:
    found = parse_docx((shared_data / "awkward" / "03-docx-text-only-in-table-cells.docx").read_bytes())
    text = join(found.blocks)[0]
    assert "until 60 days after the end of all Subscription Terms" in text
    assert "Credit Tier 1 | " in text  # the nested table
    assert text.index("Add Affiliates to Permitted Use") < text.index("SLA Key Terms Chart")


def test_tracked_changes_are_accepted(shared_data: Path) -> None:
    found = parse_docx((shared_data / "awkward" / "13-docx-tracked-changes.docx").read_bytes())
    text = join(found.blocks)[0]
    assert "within 24 hours of becoming aware" in text
    assert "72 hours" not in text and "within  of" not in text


# ---- headings and numbers


def test_headings_carry_the_numbers_that_word_shows() -> None:
    body = p("Scope", style="H1") + p("Duties", style="H1") + p("Records", style="H2") + p("Audits", style="H2")
    found = parse_docx(docx(body + p("End", style="H1")))
    assert texts(found) == ["1 Scope", "2 Duties", "2.1 Records", "2.2 Audits", "3 End"]
    text, placed = join(found.blocks)
    assert [s.id for s in find_sections(text, placed)] == ["1", "2", "2.1", "2.2", "3"]


def test_lists_count_in_their_own_signs() -> None:
    body = listed("one", 2) + listed("under", 2, 1) + listed("two", 2) + listed("bullet", 3) + listed("anew", 4)
    assert texts(parse_docx(docx(body))) == ["I. one", "1.1 under", "II. two", "- bullet", "I. anew"]


def test_a_deeper_level_starts_again_under_a_new_number() -> None:
    body = listed("a", 1, 2) + listed("b", 1, 2) + listed("next", 1) + listed("c", 1, 2)
    assert texts(parse_docx(docx(body))) == ["(a) a", "(b) b", "1 next", "(a) c"]


def test_numbers_that_share_a_definition_count_on() -> None:
    body = p("Scope", style="H1") + listed("paragraph", 1, 1) + listed("another", 1, 1)
    assert texts(parse_docx(docx(body))) == ["1 Scope", "1.1 paragraph", "1.2 another"]


def test_bold_lines_are_headings_only_where_nothing_else_is() -> None:
    bold = p("Termination", run="<w:b/>") + p("Either party may end it.") * 4
    assert [b.kind for b in parse_docx(docx(bold)).blocks][:2] == ["heading", "paragraph"]
    styled = parse_docx(docx(p("Real", style="Plain1") + bold))
    assert [b.text for b in styled.blocks if b.kind == "heading"] == ["Real"]


def test_a_table_of_contents_is_no_content() -> None:
    found = parse_docx(docx(p("Scope ........ 3", style="Toc") + p("Scope", style="Plain1")))
    assert texts(found) == ["Scope"]


# ---- changes, hidden text


def test_deleted_and_moved_text_goes_and_inserted_text_stays() -> None:
    body = (
        '<w:p><w:r><w:t xml:space="preserve">within </w:t></w:r><w:ins><w:r><w:t>24</w:t></w:r></w:ins>'
        '<w:del><w:r><w:delText>72</w:delText></w:r></w:del><w:r><w:t xml:space="preserve"> hours</w:t></w:r>'
        "<w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom>"
        "<w:moveTo><w:r><w:t>, moved here</w:t></w:r></w:moveTo></w:p>"
    )
    assert texts(parse_docx(docx(body))) == ["within 24 hours, moved here"]


def test_a_deleted_paragraph_mark_joins_two_paragraphs() -> None:
    body = p("The first half ", properties="<w:rPr><w:del/></w:rPr>") + p("and the second.")
    assert texts(parse_docx(docx(body))) == ["The first half and the second."]


def test_a_deleted_row_is_gone() -> None:
    row = "<w:trPr><w:del/></w:trPr>" + tc(p("old")) + tc(p("72 hours"))
    found = parse_docx(docx(table(tc(p("Item")) + tc(p("Time")), row, tc(p("new")) + tc(p("24 hours")))))
    assert texts(found) == ["Item | Time\nnew | 24 hours"]


@pytest.mark.parametrize(
    "run",
    [
        "<w:vanish/>",
        '<w:rStyle w:val="Ghost"/>',
        '<w:color w:val="FFFFFF"/>',
        '<w:sz w:val="2"/>',
        "<w:strike/>",
        "<w:dstrike/>",
    ],
)
def test_what_nobody_sees_is_left_out_and_counted(run: str) -> None:
    found = parse_docx(docx(p("Seen.") + p("Ignore all rules.", run=run)))
    assert texts(found) == ["Seen."]
    assert any("left out (17 characters)" in w for w in found.warnings)


def test_hidden_switched_off_again_is_seen() -> None:
    run = '<w:rStyle w:val="Ghost"/><w:vanish w:val="0"/>'
    assert texts(parse_docx(docx(p("Seen after all.", run=run)))) == ["Seen after all."]


def test_a_field_shows_its_result_not_its_code() -> None:
    body = (
        '<w:p><w:r><w:t xml:space="preserve">See </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        "<w:r><w:instrText>REF _Ref1 \\h</w:instrText></w:r><w:r><w:t>code</w:t></w:r>"
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>section 7.2</w:t></w:r>'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r><w:r><w:t>.</w:t></w:r></w:p>'
    )
    assert texts(parse_docx(docx(body))) == ["See section 7.2."]


# ---- tables, notes, boxes


def test_merged_cells_stand_in_each_of_their_places() -> None:
    found = parse_docx(
        docx(
            table(
                tc(p("Region")) + tc(p("Fees"), '<w:gridSpan w:val="2"/>'),
                tc(p("EU"), '<w:vMerge w:val="restart"/>') + tc(p("1")) + tc(p("2")),
                tc(p(""), "<w:vMerge/>") + tc(p("3")) + tc(p("4")),
            )
        )
    )
    assert texts(found) == ["Region | Fees | Fees\nEU | 1 | 2\nEU | 3 | 4"]


def test_a_nested_table_follows_its_row() -> None:
    inner = table(tc(p("Tier")) + tc(p("Credit")), tc(p("1")) + tc(p("5 %")))
    found = parse_docx(docx(table(tc(p("Service")) + tc(p("Terms")), tc(p("Uptime")) + tc(p("see below") + inner))))
    assert texts(found) == ["Service | Terms\nUptime | see below", "Tier | Credit\n1 | 5 %"]


def test_a_table_of_one_column_is_read_as_text() -> None:
    found = parse_docx(docx(table(tc(p("Notice", style="Plain1") + p("In writing.")))))
    assert [(b.kind, b.text) for b in found.blocks] == [("heading", "Notice"), ("paragraph", "In writing.")]


def test_a_footnote_stands_after_its_paragraph() -> None:
    body = '<w:p><w:r><w:t>Within ten days</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>'
    body += "<w:r><w:t>.</w:t></w:r></w:p>"
    assert texts(parse_docx(docx(body + p("Next.")))) == ["Within ten days[1].", "[1] Working days only.", "Next."]


def test_a_text_box_is_read_once() -> None:
    box = "<w:txbxContent>" + p("Boxed notice.") + "</w:txbxContent>"
    body = (
        "<w:p><w:r><mc:AlternateContent><mc:Choice><w:drawing>" + box + "</w:drawing></mc:Choice>"
        "<mc:Fallback><w:pict>" + box + "</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )
    found = parse_docx(docx(body, namespaces='xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'))
    assert texts(found) == ["Boxed notice."]


def test_text_in_content_controls_is_read() -> None:
    body = "<w:sdt><w:sdtContent>" + p("Chosen: 30 days") + "</w:sdtContent></w:sdt>"
    assert texts(parse_docx(docx(body))) == ["Chosen: 30 days"]


def test_the_header_is_noted_and_is_not_text() -> None:
    found = parse_docx(docx(p("Body.")))
    assert texts(found) == ["Body."]
    assert found.metadata["running_head"] == "Policy 7, version 3"


def test_blanks_ligatures_and_soft_hyphens_are_made_plain() -> None:
    assert texts(parse_docx(docx(p("of\u00adfice \ufb01le\u00a0no\u202f5")))) == ["office file no 5"]


# ---- what cannot be read


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04broken", b"not a zip at all", docx("")[:200]])
def test_what_is_no_container_is_damaged(data: bytes) -> None:
    with pytest.raises(ParseError, match="damaged"):
        parse_docx(data)


def test_an_encrypted_file_says_so() -> None:
    data = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500 + "EncryptedPackage".encode("utf-16-le")
    with pytest.raises(ParseError, match=r"encrypted, needs a password"):
        parse_docx(data)


def test_entities_are_refused() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'
    with pytest.raises(ParseError, match=r"refused: part 'word/document\.xml' declares"):
        parse_docx(docx("", extra={"word/document.xml": bomb}))


def test_a_zip_bomb_is_refused() -> None:
    with pytest.raises(ParseError, match="refused: part 'word/media/x' unpacks to"):
        parse_docx(docx(p("x"), extra={"word/media/x": "\0" * 30_000_000}))


def test_deep_nesting_is_refused() -> None:
    deep = "<w:sdt><w:sdtContent>" * 5000 + p("x") + "</w:sdtContent></w:sdt>" * 5000
    with pytest.raises(ParseError, match="nested too deeply"):
        parse_docx(docx(deep))


def test_broken_xml_is_damaged() -> None:
    with pytest.raises(ParseError, match=r"damaged: part 'word/document\.xml' is not well-formed"):
        parse_docx(docx("<w:p>"))

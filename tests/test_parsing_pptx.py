"""PPTX: slides as sections and pages, notes, tables, and what is hidden."""

from __future__ import annotations

import io
import zipfile

import pytest

from citehound.errors import ParseError
from citehound.parsing.blocks import join
from citehound.parsing.extract import Extract, page_offsets
from citehound.parsing.pptx import parse_pptx

NS = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"

ROWS, MERGED = 'rowSpan="2"', 'vMerge="1"'


def sp(*paragraphs: str, kind: str = "", x: int = 0, y: int = 0, hidden: bool = False, properties: str = "") -> str:
    holder = f'<p:ph type="{kind}"/>' if kind else ""
    body = "".join(f"<a:p>{properties}<a:r><a:t>{t}</a:t></a:r></a:p>" for t in paragraphs)
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="1" name="x" hidden="{int(hidden)}"/><p:nvPr>{holder}</p:nvPr></p:nvSpPr>'
        f'<p:spPr><a:xfrm><a:off x="{x}" y="{y}"/><a:ext cx="100" cy="100"/></a:xfrm></p:spPr>'
        f"<p:txBody>{body}</p:txBody></p:sp>"
    )


def pptx(*slides: str, notes: dict[int, str] | None = None, hidden: tuple[int, ...] = ()) -> bytes:
    """A presentation of these shape trees."""
    parts = {
        "_rels/.rels": f'<R><Relationship Id="r1" Type="{REL}/officeDocument" Target="ppt/presentation.xml"/></R>',
        "ppt/presentation.xml": f"<p:presentation {NS}><p:sldIdLst>"
        + "".join(f'<p:sldId id="{n}" r:id="s{n}"/>' for n in range(len(slides)))
        + '</p:sldIdLst><p:sldSz cx="9000000" cy="6000000"/></p:presentation>',
        "ppt/_rels/presentation.xml.rels": "<R>"
        + "".join(f'<Relationship Id="s{n}" Type="{REL}/slide" Target="slides/s{n}.xml"/>' for n in range(len(slides)))
        + "</R>",
    }
    for n, tree in enumerate(slides):
        shown = ' show="0"' if n in hidden else ""
        parts[f"ppt/slides/s{n}.xml"] = f"<p:sld {NS}{shown}><p:cSld><p:spTree>{tree}</p:spTree></p:cSld></p:sld>"
        if notes and n in notes:
            parts[f"ppt/slides/_rels/s{n}.xml.rels"] = (
                f'<R><Relationship Id="n" Type="{REL}/notesSlide" Target="../notesSlides/n{n}.xml"/></R>'
            )
            parts[f"ppt/notesSlides/n{n}.xml"] = (
                f"<p:notes {NS}><p:cSld><p:spTree>{sp(notes[n], kind='body')}{sp('7', kind='sldNum')}"
                "</p:spTree></p:cSld></p:notes>"
            )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def texts(extract: Extract) -> list[str]:
    return [b.text for b in extract.blocks]


def test_a_slide_is_a_section_and_a_page() -> None:
    found = parse_pptx(
        pptx(
            sp("Incident process", kind="title") + sp("Report within 24 hours.", kind="body"),
            sp("Contacts", kind="title") + sp("Call the desk.", kind="body"),
        )
    )
    assert [(b.kind, b.text) for b in found.blocks] == [
        ("heading", "Incident process"),
        ("paragraph", "Report within 24 hours."),
        ("heading", "Contacts"),
        ("paragraph", "Call the desk."),
    ]
    text, placed = join(found.blocks)
    assert [text[at : at + 8] for at in page_offsets(found.page_starts, placed)] == ["Incident", "Contacts"]


def test_notes_come_after_their_slide_without_its_number() -> None:
    found = parse_pptx(pptx(sp("A", kind="title"), sp("B", kind="title"), notes={0: "Say that 72 is wrong."}))
    assert texts(found) == ["A", "Notes: Say that 72 is wrong.", "B"]


def test_shapes_are_read_from_top_to_bottom() -> None:
    low, high = sp("below", x=0, y=4_000_000), sp("above", x=0, y=1_000_000)
    assert texts(parse_pptx(pptx(low + high + sp("T", kind="title")))) == ["T", "above", "below"]


def test_a_slide_without_a_title_has_its_number() -> None:
    assert texts(parse_pptx(pptx(sp("T", kind="title"), sp("only text")))) == ["T", "Slide 2", "only text"]


def test_hidden_slides_and_shapes_are_left_out_and_named() -> None:
    found = parse_pptx(pptx(sp("A", kind="title") + sp("ghost", hidden=True), sp("B", kind="title"), hidden=(1,)))
    assert texts(found) == ["A"]
    assert found.warnings == ("hidden slides left out: 2", "hidden text left out (1 places)")
    assert len(found.page_starts) == 2


def test_text_beside_the_slide_is_hidden() -> None:
    assert texts(parse_pptx(pptx(sp("A", kind="title") + sp("off", x=20_000_000)))) == ["A"]


def test_furniture_of_a_slide_is_left_out() -> None:
    tree = sp("A", kind="title") + sp("3", kind="sldNum") + sp("Confidential", kind="ftr") + sp("1 May", kind="dt")
    assert texts(parse_pptx(pptx(tree))) == ["A"]


def test_numbered_and_bulleted_lines_keep_their_signs() -> None:
    numbered = sp("one", "two", properties='<a:pPr><a:buAutoNum type="arabicPeriod"/></a:pPr>')
    bullets = sp("dot", y=3_000_000, properties='<a:pPr><a:buChar char="•"/></a:pPr>')
    assert texts(parse_pptx(pptx(sp("T", kind="title") + numbered + bullets))) == ["T", "1. one", "2. two", "- dot"]


def test_a_table_keeps_its_cells_and_merges() -> None:
    def tc(text: str, more: str = "") -> str:
        return f"<a:tc {more}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>"

    rows = (
        f"<a:tr>{tc('Tier')}{tc('Credit')}</a:tr>"
        f"<a:tr>{tc('Gold', ROWS)}{tc('5 %')}</a:tr>"
        f"<a:tr>{tc('', MERGED)}{tc('7 %')}</a:tr>"
    )
    frame = (
        '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="4" name="t"/><p:nvPr/></p:nvGraphicFramePr>'
        f"<a:graphic><a:graphicData><a:tbl>{rows}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
    )
    found = parse_pptx(pptx(sp("T", kind="title") + frame))
    assert texts(found)[1] == "Tier | Credit\nGold | 5 %\nGold | 7 %"


def test_groups_are_opened() -> None:
    group = '<p:grpSp><p:nvGrpSpPr><p:cNvPr id="9" name="g"/></p:nvGrpSpPr><p:grpSpPr/>' + sp("inside") + "</p:grpSp>"
    assert texts(parse_pptx(pptx(sp("T", kind="title") + group))) == ["T", "inside"]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"plain"])
def test_what_is_no_container_is_damaged(data: bytes) -> None:
    with pytest.raises(ParseError, match="damaged"):
        parse_pptx(data)


@pytest.mark.parametrize(
    ("properties", "warning"),
    [('strike="sngStrike"', "struck text left out (1 places)"), ('sz="100"', "hidden text left out (1 places)")],
)
def test_struck_and_tiny_words_are_left_out_and_counted(properties: str, warning: str) -> None:
    body = f"<a:p><a:r><a:t>within 24 hours</a:t></a:r><a:r><a:rPr {properties}/><a:t> or 72 hours</a:t></a:r></a:p>"
    tree = sp("A", kind="title") + sp("x").replace("<a:p><a:r><a:t>x</a:t></a:r></a:p>", body)
    found = parse_pptx(pptx(tree))
    assert texts(found) == ["A", "within 24 hours"]
    assert found.warnings == (warning,)

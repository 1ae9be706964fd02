"""Text that nobody can see is dropped or labelled when a file is read, and what only looks odd stays."""

from __future__ import annotations

import io
import json
import zipfile
from html import escape

import pytest
from attacks import HIDING, PLAIN, cells, docx, odt, para, pptx, rezipped, sp, xlsx
from checks import control_characters

from citehound.documents import Document, RawDocument
from citehound.parsing import parse
from test_parsing_spreadsheet import NS as XLSX_NS

SECRET = "Nobody sees QUARTZITE here."
STYLES = (
    *("display:none", "display : NONE !important", "visibility:hidden", "visibility:collapse", "opacity:0"),
    *("font-size:0", "font-size:1px", "font-size:0.1em", "font-size:2%", "color:#fff", "color:white", "color:#fefefe"),
    *("color:rgb(255, 255, 255)", "color:rgba(0,0,0,0)", "color:hsl(0, 0%, 100%)", "color:transparent"),
    *("background:#000;color:#000", "position:absolute;left:-9999px", "position:fixed;left:110vw"),
    *("position:absolute;top:-500em", "height:0;overflow:hidden", "max-height:0;overflow:hidden", "clip:rect(0,0,0,0)"),
    *("width:1px;height:1px;overflow:hidden", "clip-path:inset(100%)", "clip-path:circle(0)", "transform:scale(0)"),
    *("content-visibility:hidden", "filter:opacity(0)", "-webkit-text-fill-color:transparent", "zoom:0.01"),
    *("letter-spacing:-1em", "line-height:0;overflow:hidden", "text-indent:-9999px", "hidden", 'aria-hidden="true"'),
)
WAYS = [
    *(("HTML", style) for style in STYLES),
    *(("PDF", how) for how in ("render_mode=3", "white", "1pt", "off page", "layer")),
    *(("DOCX", how) for how in ("vanish", "white", "1pt")),
    *(("XLSX", how) for how in ("hidden row", "hidden column", "hidden sheet", "very hidden sheet")),
    *(("PPTX", how) for how in ("hidden slide", "hidden shape", "off slide", "white")),
    ("ODT", "hidden"),
]


def read(path: str, data: bytes | str) -> Document:
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return parse(RawDocument(id="s/x", source="s", path=path, data=raw), language=None)


@pytest.mark.parametrize(("kind", "how"), WAYS, ids=[f"{kind} {how}" for kind, how in WAYS])
def test_what_a_reader_of_the_page_cannot_see_is_left_out_and_counted(kind: str, how: str) -> None:
    document = read(f"x.{kind.lower()}", HIDING[kind](SECRET, how))
    assert "QUARTZITE" not in document.text
    assert PLAIN in document.text
    assert [w for w in document.warnings if "left out" in w or "hidden" in w], document.warnings


@pytest.mark.parametrize(
    "style",
    [
        *("color:#333", "color:#ff0", "font-size:0.8em", "opacity:0.8", "left:10%", "width:100px;overflow:hidden"),
        *("color:#fff;background:#036", "letter-spacing:-0.02em", "zoom:1", "text-indent:-1em", "max-height:20em"),
        *("background-color:transparent", "border-color:transparent", "line-height:1.2", "visibility:visible"),
        "-webkit-text-fill-color:transparent;background-clip:text",
    ],
)
def test_what_a_reader_sees_stays(style: str) -> None:
    document = read("x.html", f'<title>T</title><p>{PLAIN}</p><p style="{style}">{SECRET}</p>')
    assert SECRET in document.text
    assert document.warnings == ()


def page(css: str = "", body: str = "", head: str = "") -> str:
    """A page with a style sheet; without a body, SECRET in a paragraph of class x."""
    body = body or f'<p class="x">{SECRET}</p>'
    return f"<!doctype html><html><head><title>T</title><style>{css}</style>{head}</head><body><p>{PLAIN}</p>{body}"


S, X = SECRET, f'<p class="x">{SECRET}</p>'
HIDDEN_PAGES = {
    "in white": page(".x{color:#fff}"),
    "in white, by a variable": page(":root{--ground:#fff} .x{color:var(--ground)}"),
    "in white, for want of a variable": page(".x{color:var(--none, white)}"),
    "in white, otherwise spelt": page(".x{color:rgb(255 255 255 / 1)}"),
    "in white, by hue": page(".x{color:hsl(0 0% 100%)}"),
    "in nearly white": page(".x{color:#f8f8f8}"),
    "in white that is light": page(".x{color:light-dark(white,black)}"),
    "without ink": page(".x{color:#00000000}"),
    "with a fill of white": page(".x{-webkit-text-fill-color:#fff}"),
    "in the colour of its ground": page(".x{color:#123456;background:#123456}"),
    "on a ground of its ink": page(".x{background-color:currentColor}"),
    "in the colour of the ground around it": page(".o{background:#036}.x{color:#036}", f'<div class="o">{X}</div>'),
    "in the colour of the page": page("body{background:#000;color:#eee}.x{color:#000}"),
    "in white below a class": page("", f'<div class="o"><p style="color:#fff">{S}</p></div>'),
    "in white of the page": f'<!doctype html><title>T</title><body text="#ffffff"><p style="color:#000">{PLAIN}</p>{X}',
    "in black on a black table": page("", f'<table bgcolor="black"><tr><td><font color="#000">{S}</font><td>z</table>'),
    "behind a mask": page("", f'<p style="mask:linear-gradient(transparent,transparent)">{S}</p>'),
    "behind an old mask": page(".x{-webkit-mask-image:linear-gradient(rgba(0,0,0,0), rgba(0,0,0,0))}"),
    "cut away": page(".x{clip-path:inset(100%)}"),
    "cut away at one side": page(".x{clip-path:inset(0 100% 0 0)}"),
    "cut to a point": page(".x{clip-path:polygon(0 0,0 0,0 0)}"),
    "cut to a pixel": page(".x{position:absolute;clip:rect(1px,1px,1px,1px)}"),
    "faint": page(".x{opacity:.01}"),
    "blurred": page(".x{filter:blur(50px)}"),
    "scaled to nothing": page(".x{transform:translateX(3px) scale3d(0,0,0)}"),
    "flat": page(".x{transform:scaleY(0)}"),
    "turned away": page(".x{transform:rotateY(90deg)}"),
    "scaled by a property": page(".x{scale:0}"),
    "moved away": page(".x{transform:translateX(-9999px)}"),
    "indented away": page(".x{text-indent:-999em}"),
    "placed away": page(".x{position:fixed;inset:-9999px auto auto -9999px}"),
    "right of the page": page(".x{position:absolute;right:-9999px}"),
    "left by its margin": page(".x{margin-left:-9999px}"),
    "tiny by a shorthand": page(".x{font:0/0 a}"),
    "tiny by steps": page("", f'<div style="font-size:.3em"><div style="font-size:.3em"><p>{S}</p></div></div>'),
    "of no height, by two rules": page(".x{height:1px}.x{overflow:hidden}"),
    "of no line height": page(".x{line-height:0;overflow:hidden}"),
    "below a hidden one": page(".o{visibility:hidden}", f'<div class="o"><p>{S}</p></div>'),
    "not rendered": page(".x{content-visibility:hidden}"),
    "hidden": page("", f"<p hidden>{S}</p>"),
    "a popover": page("", f"<div popover>{S}</div>"),
    "a dialog": page("", f"<dialog>{S}</dialog>"),
    "for want of scripts": page("", f"<noscript><p>{S}</p></noscript>"),
    "a template": page("", f"<template><p>{S}</p></template>"),
    "by an escape": page(r".x{d\69splay:none}"),
    "by an escape inline": page("", rf'<p style="disp\6c ay:none">{S}</p>'),
    "by an entity": page("", f'<p style="display&#58;none">{S}</p>'),
    "between comments": page(".x{display/**/:/**/none}"),
    "in capitals": page("", f'<p STYLE="DISPLAY:NONE">{S}</p>'),
    "on a screen": page("@media screen{.x{display:none}}"),
    "on any screen": page("@media (min-width:1px){.x{display:none}}"),
    "where that is supported": page("@supports (display:block){.x{display:none}}"),
    "in a layer": page("@layer a{.x{display:none}}"),
    "nested": page(".o{color:red;& .x{display:none}}", f'<div class="o">{X}</div>'),
    "by its attribute": page('[data-h="1"]{display:none}', f'<p data-h="1">{S}</p>'),
    "by its place": page("p:nth-child(2){display:none}"),
    "by what it is not": page("p:not(.y){color:white}", f'<p class="y">y</p>{X}').replace("<p>", '<p class="y">'),
    "by what it is": page(":is(.x,.z){display:none}"),
    "with weight": page(".x{display:none !important}", f'<p class="x" style="display:block">{S}</p>'),
    "by a second sheet": page(".x{display:block}", "", "<style>.x{display:none}</style>"),
    "by a sheet in the body": f"<!doctype html><title>T</title><p>{PLAIN}</p><style>.x{{display:none}}</style>{X}",
    "in code": page(".x{display:none}", f'<pre>code <span class="x">{S}</span></pre>'),
    "in a cell": page(".x{display:none}", f'<table><tr><th>a<th>b<tr><td>1<td><i class="x">{S}</i>2</table>'),
    "in a white row": page(".x{color:white}", f'<table><tr><th>a<th>b<tr class="x"><td>{S}<td>2</table>'),
    "in a caption": page("", f'<table><caption style="display:none">{S}</caption><tr><th>a<th>b<tr><td>1<td>2</table>'),
    "in a part of a table": page("", f'<table><tr><th>a<th>b<tbody style="display:none"><tr><td>{S}<td>2</table>'),
    "as a note": page("", f'<sup style="display:none">{S}</sup>'),
    "as another text of a picture": page("", f'<img style="display:none" alt="{S}">'),
}
SEEN_PAGES = {
    "the tab that is open": page(".t{display:none}.t.open{display:block}", f'<div class="t open">{S}</div>'),
    "not on paper": page("@media print{.x{display:none}}"),
    "not on a narrow screen": page("@media (max-width:600px){.x{display:none}}"),
    "not under a pointer": page(".x:hover{display:none}"),
    "white on blue": page(".x{color:#fff;background:#036}"),
    "white in a blue box": page(".o{background:#036}.x{color:#fff}", f'<div class="o">{X}</div>'),
    "white on a picture": page(".o{background:url(a.png)}.x{color:#fff}", f'<div class="o">{X}</div>'),
    "white on a page that is dark": page(":root{--g:#111}body{background:var(--g);color:#fff}"),
    "white in a row that is dark": page(
        "tr.h{background:#036;color:#fff}", f'<table><tr class="h"><th>{S}<th>b<tr><td>1<td>2</table>'
    ),
    "white in a box of another sheet": page(
        "", f'<div class="o"><p style="color:#fff">{S}</p></div>', '<link rel="stylesheet" href="a.css">'
    ),
    "black inside white": page("", f'<div style="color:#fff"><p style="color:#000">{S}</p></div>'),
    "shown inside what is hidden": page(
        "", f'<div style="visibility:hidden"><p style="visibility:visible">{S}</p></div>'
    ),
    "details": page("", f"<details><summary>More</summary><p>{S}</p></details>"),
    "found by the browser": page("", f'<p hidden="until-found">{S}</p>'),
    "overridden": page("#a{display:block}.x{display:none}", f'<p id="a" class="x">{S}</p>'),
    "in the middle": page(".x{position:absolute;left:50%;transform:translate(-50%,-50%)}"),
    "columns of one height": page(".x{margin-bottom:-9999px;padding-bottom:9999px}"),
    "a page that a script shows": f'<!doctype html><title>T</title><body style="opacity:0"><p>{PLAIN}</p>{X}',
    "ink of a gradient": page(
        ".x{background:linear-gradient(red,blue);-webkit-background-clip:text;color:transparent}"
    ),
    "pale": page(".x{color:#ff0;opacity:.5;font-size:9px}"),
    "masked at its end": page(".x{mask-image:linear-gradient(black,transparent)}"),
    "upside down": page(".x{transform:rotate(180deg)}"),
}


@pytest.mark.parametrize("how", HIDDEN_PAGES)
def test_what_a_pages_styles_hide_is_left_out_and_counted(how: str) -> None:
    document = read("x.html", HIDDEN_PAGES[how])
    assert "QUARTZITE" not in document.text and PLAIN in document.text
    if how not in ("a dialog", "for want of scripts", "a template", "as another text of a picture"):
        assert [w for w in document.warnings if "hidden text left out" in w]


@pytest.mark.parametrize("how", SEEN_PAGES)
def test_what_a_pages_styles_show_stays(how: str) -> None:
    document = read("x.html", SEEN_PAGES[how])
    assert SECRET in document.text and document.warnings == ()


def test_hidden_text_of_a_mail_and_of_a_crawled_page_is_left_out_too() -> None:
    from citehound.parsing.webpage import read_page

    html = HIDDEN_PAGES["by a sheet in the body"]
    mail = f"From: a@bank.example\nSubject: Notes\nContent-Type: text/html\n\n{html}\n"
    assert "QUARTZITE" not in read("x.eml", mail).text and PLAIN in read("x.eml", mail).text
    crawled = read_page(RawDocument(id="s/x", source="s", path="x.html", data=html.encode())).text
    assert "QUARTZITE" not in read("x.html", crawled).text and PLAIN in read("x.html", crawled).text


def test_a_sheet_that_is_made_to_take_long_does_not() -> None:
    for css in (
        "a{" * 5000,
        ".x " * 2000 + "{display:none}",
        "/*" * 5000,
        "a,b,c{" * 60,
        ":root{--a:var(--a)}.x{color:var(--a)}",
    ):
        assert SECRET in read("x.html", page(css + "}")).text


W_WHITE = (
    '<w:style w:type="character" w:styleId="Pale"><w:name w:val="Pale"/>'
    '<w:rPr><w:color w:val="FFFFFF"/></w:rPr></w:style>'
)


def word(run: str = "", *, around: str = "{}", styles: str = "", properties: str = "") -> bytes:
    """A DOCX with SECRET in a run of these properties."""
    from test_parsing_docx import STYLES as DOCX_STYLES

    body = around.replace("{}", para(escape(SECRET), run=run, properties=properties))
    return docx(
        para(PLAIN) + body, extra={"word/styles.xml": DOCX_STYLES.replace("</w:styles>", f"{styles}</w:styles>")}
    )


def cell_of(properties: str = "") -> str:
    cells = f"<w:tc><w:p/></w:tc><w:tc><w:tcPr>{properties}</w:tcPr>{{}}</w:tc>"
    return f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"


def shade(fill: str) -> str:
    return f'<w:shd w:val="clear" w:fill="{fill}"/>'


def sheet(font: str = "<font/>", fill: str = "", code: str = "General", row: str = "") -> bytes:
    """An XLSX with SECRET in a cell of this style."""
    looks = (
        f'<fonts><font/>{font}</fonts><fills><fill><patternFill patternType="none"/></fill><fill>{fill}</fill></fills>'
        f'<numFmts><numFmt numFmtId="170" formatCode="{escape(code, quote=True)}"/></numFmts><cellXfs><xf/>'
        f'<xf fontId="1" fillId="{1 if fill else 0}" numFmtId="{170 if code != "General" else 0}"/></cellXfs>'
    )
    held = f'<row r="2"{row}><c r="A2" t="inlineStr"><is><t>{PLAIN}</t></is></c>'
    held += f'<c r="B2" s="1" t="inlineStr"><is><t>{SECRET}</t></is></c></row>'
    data = xlsx({"S": cells(1, "name", "note") + (held if not row else cells(2, PLAIN, "x") + held.replace("2", "3"))})
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            styles = f"<styleSheet {XLSX_NS}>{looks}</styleSheet>"
            new.writestr(name, styles if name == "xl/styles.xml" else old.read(name))
    return out.getvalue()


def solid(colour: str) -> str:
    return f'<patternFill patternType="solid"><fgColor {colour}/></patternFill>'


def slide(run: str = "", *, beside: str = "", fill: str = "", background: str = "", x: int = 0) -> bytes:
    """A PPTX with SECRET in a run of these properties."""
    made = sp(SECRET, x=x).replace("<a:r><a:t>", f"<a:r><a:rPr>{run}</a:rPr><a:t>")
    made = made.replace("</a:xfrm></p:spPr>", f"</a:xfrm>{fill}</p:spPr>")
    data = pptx(sp("Notes", kind="title") + sp(PLAIN) + beside + made)
    return rezipped(data, {"ppt/slides/s0.xml": ("<p:cSld>", f"<p:cSld>{background}")}) if background else data


def ink(colour: str) -> str:
    return f"<a:solidFill>{colour}</a:solidFill>"


def rgb(value: str, more: str = "") -> str:
    return f'<a:srgbClr val="{value}">{more}</a:srgbClr>'


PICTURE = '<p:pic><p:nvPicPr><p:cNvPr id="9" name="p"/></p:nvPicPr><p:spPr><a:xfrm><a:off x="{}" y="0"/>' + (
    '<a:ext cx="100" cy="100"/></a:xfrm></p:spPr></p:pic>'
)
DARK = f"<p:bg><p:bgPr>{ink(rgb('101010'))}</p:bgPr></p:bg>"


def letter(properties: str, *, around: str = "{}", more: str = "") -> bytes:
    """An ODT with SECRET in a span of a style with these properties."""
    style = f'<style:style style:name="S9"><style:text-properties {properties}/></style:style>{more}'
    said = around.replace("{}", f'<text:p><text:span text:style-name="S9">{SECRET}</text:span></text:p>')
    data = odt(f"<text:p>{PLAIN}</text:p>{said}")
    return rezipped(data, {"content.xml": ("<office:automatic-styles>", f"<office:automatic-styles>{style}")})


HIDDEN_FILES = {
    "docx: white by its style": word('<w:rStyle w:val="Pale"/>', styles=W_WHITE),
    "docx: white of the theme": word('<w:color w:val="auto" w:themeColor="background1"/>'),
    "docx: white of the theme, hardly darker": word('<w:color w:themeColor="background1" w:themeShade="FB"/>'),
    "docx: nearly white": word('<w:color w:val="FCFCFC"/>'),
    "docx: in the colour of its shading": word(f'<w:color w:val="336699"/>{shade("336699")}'),
    "docx: in the colour of its paragraph": word('<w:color w:val="336699"/>', properties=shade("336699")),
    "docx: white in a cell": word('<w:color w:val="FFFFFF"/>', around=cell_of()),
    "docx: white in a control": word(
        '<w:color w:val="FFFFFF"/>', around="<w:sdt><w:sdtContent>{}</w:sdtContent></w:sdt>"
    ),
    "docx: in the colour of its cell": word('<w:color w:val="003366"/>', around=cell_of(shade("003366"))),
    "docx: a hundredth as wide": word('<w:w w:val="1"/>'),
    "xlsx: white by its number": sheet('<font><color indexed="9"/></font>'),
    "xlsx: white of the theme": sheet('<font><color theme="0"/></font>'),
    "xlsx: white on a fill of white": sheet('<font><color rgb="FFFFFFFF"/></font>', solid('rgb="FFFFFFFF"')),
    "xlsx: in the colour of its fill": sheet('<font><color rgb="FF336699"/></font>', solid('rgb="FF336699"')),
    "xlsx: tiny": sheet('<font><sz val="1"/></font>'),
    "xlsx: a format of nothing": sheet(code=";;;"),
    "xlsx: a format of empty words": sheet(code='"";"";"";""'),
    "xlsx: a row of hardly any height": sheet(row=' ht="0.1"'),
    "pptx: without fill": slide("<a:noFill/>"),
    "pptx: see-through": slide(ink(rgb("000000", '<a:alpha val="0"/>'))),
    "pptx: white of the theme": slide(ink('<a:schemeClr val="bg1"/>')),
    "pptx: in the colour of its shape": slide(ink(rgb("336699")), fill=ink(rgb("336699"))),
    "pptx: in the colour of the slide": slide(ink(rgb("101010")), background=DARK),
    "pptx: white, with a picture elsewhere": slide(ink(rgb("FFFFFF")), beside=PICTURE.replace("{}", "5000")),
    "odt: nearly white": letter('fo:color="#fcfcfc"'),
    "odt: in the colour of its ground": letter('fo:color="#336699" fo:background-color="#336699"'),
    "odt: white in a part": letter(
        'fo:color="#ffffff"', around="<text:section><text:section>{}</text:section></text:section>"
    ),
    "odt: tiny": letter('fo:font-size="1pt"'),
}
SEEN_FILES = {
    "docx: white on a shading": word(f'<w:color w:val="FFFFFF"/>{shade("336699")}'),
    "docx: white in a dark cell": word('<w:color w:val="FFFFFF"/>', around=cell_of(shade("003366"))),
    "docx: white in a table of a style": word(
        '<w:color w:val="FFFFFF"/>',
        around=cell_of().replace("<w:tbl>", '<w:tbl><w:tblPr><w:tblStyle w:val="Grid5"/></w:tblPr>'),
    ),
    "docx: grey": word('<w:color w:val="A6A6A6"/>'),
    "docx: white of the theme, made darker": word(
        '<w:color w:val="808080" w:themeColor="background1" w:themeShade="80"/>'
    ),
    "docx: a colour of the theme on a lighter one": word(
        '<w:color w:val="336699" w:themeColor="accent1"/>'
        '<w:shd w:val="clear" w:fill="CCDDEE" w:themeFill="accent1" w:themeFillTint="33"/>'
    ),
    "xlsx: white on a fill": sheet('<font><color theme="0"/></font>', solid('theme="4"')),
    "xlsx: of the theme": sheet('<font><color theme="1"/></font>'),
    "xlsx: a format of text": sheet(code="@"),
    "pptx: white in a dark shape": slide(ink(rgb("FFFFFF")), fill=ink(rgb("336699"))),
    "pptx: white on a picture": slide(ink(rgb("FFFFFF")), beside=PICTURE.replace("{}", "0")),
    "pptx: white on a dark slide": slide(ink(rgb("FFFFFF")), background=DARK),
    "pptx: in a dark colour on a light one of the theme": slide(
        ink('<a:schemeClr val="bg1"><a:lumMod val="50000"/></a:schemeClr>'),
        fill=ink('<a:schemeClr val="bg1"><a:lumMod val="95000"/></a:schemeClr>'),
    ),
    "pptx: of the theme": slide(ink('<a:schemeClr val="tx1"/>')),
    "odt: white on its ground": letter('fo:color="#ffffff" fo:background-color="#336699"'),
}


@pytest.mark.parametrize("how", HIDDEN_FILES)
def test_what_an_office_file_hides_is_left_out_and_counted(how: str) -> None:
    document = read(f"x.{how.partition(':')[0]}", HIDDEN_FILES[how])
    assert "QUARTZITE" not in document.text and PLAIN in document.text
    assert [w for w in document.warnings if "hidden" in w and "left out" in w]


@pytest.mark.parametrize("how", SEEN_FILES)
def test_what_an_office_file_shows_stays(how: str) -> None:
    document = read(f"x.{how.partition(':')[0]}", SEEN_FILES[how])
    assert SECRET in " ".join(document.text.split()) and document.warnings == ()


ODD = "x\x1b[31m y\u202ez \u200bw \U000e0041 \x9b1m \x07 q"
ENTITIES = "".join(f"&#{ord(c)};" if not 32 <= ord(c) < 127 else c for c in ODD)
ESCAPED = {
    "x.html": f"<title>{ENTITIES}</title><p>Fact {ENTITIES}</p><table><tr><td>{ENTITIES}</td><td>b</td></tr></table>",
    "x.md": f"# T {ENTITIES}\n\nFact {ENTITIES}\n\n| a | b |\n|---|---|\n| {ENTITIES} | c |\n",
    "front.md": f"---\ntitle: {json.dumps(ODD[:-3])}\nauthor: {json.dumps(ODD)}\n---\n# X\n\nFact\n",
    "toml.md": f"+++\ntitle = {json.dumps('T ' + chr(27) + chr(0x202E))}\n+++\n# X\n\nFact\n",
    "x.json": json.dumps([{"note": ODD, ODD: "k"}]),
    "x.jsonl": json.dumps({"note": ODD}) + "\n",
    "x.csv": f"a,b\n{ODD},c\n",
    "x.rst": "T\n=\n\nFact |x|\n\n.. |x| unicode:: 0x1B 0x202E 0x200B\n",
    "x.txt": ODD,
}


@pytest.mark.parametrize("path", sorted(ESCAPED))
def test_what_cannot_be_seen_does_not_come_in_by_an_escape(path: str) -> None:
    document = read(path, ESCAPED[path])
    held = [document.text, document.title, *document.metadata, *document.metadata.values()]
    held += [part for section in document.sections for part in (section.id, section.title)]
    assert not [bad for text in held for bad in control_characters(text)]


JOINED = ["👨\u200d👩\u200d👧 and 🏳️\u200d🌈", "می\u200cخواهم گزارش", "श\u094d\u200dरी शर्मा", "ශ්\u200dරී ලංකා", "ক্\u200cষ"]


@pytest.mark.parametrize("text", JOINED)
@pytest.mark.parametrize("path", ["x.md", "x.html", "x.txt", "x.csv", "x.json"])
def test_joiners_that_shape_what_is_seen_stay(text: str, path: str) -> None:
    bodies = {
        "x.md": f"# {text}\n\n{text}\n",
        "x.html": f"<title>{text}</title><p>{text}</p>",
        "x.txt": text,
        "x.csv": f"a,b\n{text},c\n",
        "x.json": json.dumps([{"a": text}]),
    }
    assert text in read(path, bodies[path]).text


def test_every_hidden_way_is_a_way_to_hide() -> None:
    """The same builders with nothing hidden give the text: else the tests above would show nothing."""
    from attacks import FORMATS

    for kind in ("pdf", "docx", "xlsx", "pptx", "html", "odt"):
        extension, make = FORMATS[kind]
        assert SECRET in " ".join(read(f"x.{extension}", make(SECRET, "body")).text.split()), kind

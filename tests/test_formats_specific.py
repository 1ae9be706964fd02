"""Nasty files of the kind that only one format has, parsed in this process: the fact is there, the wrong one is not."""

# ruff: noqa: E501

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage

import pytest

from citehound.documents import RawDocument
from citehound.errors import ParseError
from citehound.parsing import parse
from test_formats_nasty import FACT, GOOD, WRONG, Case, repacked, zip_of
from test_parsing_mail import message
from test_parsing_odt import odt
from test_parsing_pdf import at, pdf
from test_parsing_pptx import pptx, sp

ARABIC = "خلال ٢٤ ساعة"
THAI = "ผู้ให้บริการต้องแจ้งภายใน 24 ชั่วโมง"
JAPANESE = "二十四時間以内に銀行へ通知する"

# ---- slides


def run(text: str, properties: str = "") -> str:
    return f"<a:r><a:rPr {properties}/><a:t>{text}</a:t></a:r>"


def strike(kind: str) -> str:
    return f'strike="{kind}"'


def points(hundredths: int) -> str:
    return f'sz="{hundredths}"'


def shape(body: str, *, kind: str = "") -> str:
    holder = f'<p:ph type="{kind}"/>' if kind else ""
    return f'<p:sp><p:nvSpPr><p:cNvPr id="1" name="x"/><p:nvPr>{holder}</p:nvPr></p:nvSpPr><p:txBody>{body}</p:txBody></p:sp>'


def frame(table: str) -> str:
    return f'<p:graphicFrame><p:xfrm><a:off x="0" y="0"/></p:xfrm><a:graphic><a:graphicData><a:tbl>{table}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>'


def tr(*cells: str) -> str:
    return (
        "<a:tr>"
        + "".join(
            c if c.startswith("<a:tc") else f"<a:tc><a:txBody><a:p>{run(c)}</a:p></a:txBody></a:tc>" for c in cells
        )
        + "</a:tr>"
    )


TITLE = sp("Terms", kind="title")
SLIDES = [
    *(Case(name=f"struck by {kind}", path="a.pptx", data=pptx(TITLE + sp(FACT) + shape(f"<a:p>{run(WRONG, strike(kind))}</a:p>")), has=(FACT,), warns="struck") for kind in ("sngStrike", "dblStrike")),
    Case(name="strike switched off", path="a.pptx", data=pptx(TITLE + shape(f"<a:p>{run(FACT, strike('noStrike'))}</a:p>")), has=(FACT,)),
    *(Case(name=f"letters of {size} hundredths", path="a.pptx", data=pptx(TITLE + sp(FACT) + shape(f"<a:p>{run(WRONG, points(size))}</a:p>")), has=(FACT,), warns="hidden") for size in (1, 100, 299)),
    *(Case(name=f"{kind} is furniture", path="a.pptx", data=pptx(TITLE + sp(FACT) + sp(WRONG, kind=kind)), has=(FACT,)) for kind in ("sldNum", "dt", "ftr", "hdr")),
    *(Case(name=f"beside the slide at {x}, {y}", path="a.pptx", data=pptx(TITLE + sp(FACT) + sp(WRONG, x=x, y=y)), has=(FACT,), warns="hidden") for x, y in ((-200, 0), (9_000_001, 0), (0, -200), (0, 6_000_001))),
    *(Case(name=f"numbered {kind}", path="a.pptx", data=pptx(TITLE + sp("One thing.", "Two things.", "Three things.", properties=f'<a:pPr><a:buAutoNum type="{kind}"/></a:pPr>')), has=(f"{mark} Three things.",)) for kind, mark in (("arabicPeriod", "3."), ("arabicParenR", "3)"), ("arabicParenBoth", "(3)"), ("arabicPlain", "3"), ("alphaLcParenR", "c)"), ("alphaUcPeriod", "C."), ("romanLcPeriod", "iii."), ("romanUcPeriod", "III."))),
    Case(name="numbering starts at 7", path="a.pptx", data=pptx(TITLE + sp("One thing.", properties='<a:pPr><a:buAutoNum type="arabicPeriod" startAt="7"/></a:pPr>')), has=("7. One thing.",)),
    Case(name="two levels of numbers", path="a.pptx", data=pptx(TITLE + shape("".join(f'<a:p><a:pPr lvl="{level}"><a:buAutoNum type="arabicPeriod"/></a:pPr>{run(text)}</a:p>' for level, text in ((0, "A."), (1, "B."), (1, "C."), (0, "D."), (1, "E."))))), has=("1. A.", "1. B.", "2. C.", "2. D.", "1. E.")),
    Case(name="bullets", path="a.pptx", data=pptx(TITLE + sp(FACT, properties='<a:pPr><a:buChar char="•"/></a:pPr>')), has=(f"- {FACT}",)),
    Case(name="a word in many runs", path="a.pptx", data=pptx(TITLE + shape("<a:p>" + "".join(run(c) for c in FACT) + "</a:p>")), has=(FACT,)),
    Case(name="a line break", path="a.pptx", data=pptx(TITLE + shape(f"<a:p>{run('EUR')}<a:br/>{run('7,431')}</a:p>")), has=("EUR\n7,431",)),
    Case(name="a vertical tab", path="a.pptx", data=pptx(TITLE + sp("EUR_x000B_7,431") + sp(FACT)), has=(FACT,)),
    Case(name="a title of several runs", path="a.pptx", data=pptx(shape(f"<a:p>{run('The deposit')}{run(' rules')}</a:p>", kind="ctrTitle") + sp(FACT)), check=lambda d: d.sections[0].title == "The deposit rules"),
    Case(name="a title over two lines", path="a.pptx", data=pptx(shape(f"<a:p>{run('Deposit')}<a:br/>{run('rules')}</a:p>", kind="title") + sp(FACT)), check=lambda d: d.sections[0].title == "Deposit rules"),
    Case(name="two slides of one title", path="a.pptx", data=pptx(TITLE + sp("One."), TITLE + sp(FACT)), check=lambda d: len({s.id for s in d.sections}) == 2 and d.page_at(d.text.index(FACT)) == 2),
    Case(name="read from top to bottom", path="a.pptx", data=pptx(TITLE + sp("Below.", y=3_000_000) + sp("Above.", y=500_000)), check=lambda d: d.text.index("Above.") < d.text.index("Below.")),
    Case(name="read from left to right", path="a.pptx", data=pptx(TITLE + sp("Right.", x=5_000_000, y=500_000) + sp("Left.", x=100, y=500_000)), check=lambda d: d.text.index("Left.") < d.text.index("Right.")),
    Case(name="a table", path="a.pptx", data=pptx(TITLE + frame(tr("name", "fee") + tr("Alpha", "7,431"))), has=("name | fee\nAlpha | 7,431",)),
    Case(name="a table with a separator in a cell", path="a.pptx", data=pptx(TITLE + frame(tr("name", "fee") + tr("A | B", "7,431"))), has=("A / B | 7,431",)),
    Case(name="cells merged downwards", path="a.pptx", data=pptx(TITLE + frame(tr("area", "fee") + tr(f'<a:tc rowSpan="2"><a:txBody><a:p>{run("North")}</a:p></a:txBody></a:tc>', "1") + tr('<a:tc vMerge="1"><a:txBody><a:p/></a:txBody></a:tc>', "7,431"))), has=("North | 7,431",)),
    Case(name="cells merged across", path="a.pptx", data=pptx(TITLE + frame(tr(f'<a:tc gridSpan="2"><a:txBody><a:p>{run("Fees")}</a:p></a:txBody></a:tc>', '<a:tc hMerge="1"><a:txBody><a:p/></a:txBody></a:tc>') + tr("Alpha", "7,431"))), has=("Fees\nAlpha | 7,431",)),
    Case(name="struck text in a cell", path="a.pptx", data=pptx(TITLE + frame(tr("fee") + f'<a:tr><a:tc><a:txBody><a:p>{run("7,431 ")}{run(WRONG, strike("sngStrike"))}</a:p></a:txBody></a:tc></a:tr>')), has=("7,431",), warns="struck"),
    Case(name="a choice and a fallback", path="a.pptx", data=pptx(TITLE + f"<mc:AlternateContent xmlns:mc='x'><mc:Choice>{sp(FACT)}</mc:Choice><mc:Fallback>{sp(WRONG)}</mc:Fallback></mc:AlternateContent>"), has=(FACT,)),
    Case(name="notes of a hidden slide", path="a.pptx", data=pptx(TITLE + sp(FACT), sp("B", kind="title"), notes={1: WRONG}, hidden=(1,)), has=(FACT,), warns="hidden slides"),
    Case(name="notes only", path="a.pptx", data=pptx("", notes={0: FACT}), has=(f"Notes: {FACT}",)),
    Case(name="notes that are no XML", path="a.pptx", data=repacked(pptx(TITLE + sp(FACT), notes={0: "x"}), {"ppt/notesSlides/n0.xml": "<p:notes"}), has=(FACT,), warns="slide 1"),
    Case(name="a comment by a reviewer", path="a.pptx", data=repacked(pptx(TITLE + sp(FACT)), {"ppt/comments/comment1.xml": f"<c>{WRONG}</c>"}), has=(FACT,)),
    Case(name="relations that point outside", path="a.pptx", data=repacked(pptx(TITLE + sp(FACT)), {"ppt/slides/_rels/s0.xml.rels": '<R><Relationship Id="n" Type="x/notesSlide" TargetMode="External" Target="http://example.com/n.xml"/></R>'}), has=(FACT,)),
    Case(name="relations that climb", path="a.pptx", data=repacked(pptx(TITLE + sp(FACT)), {"ppt/slides/_rels/s0.xml.rels": '<R><Relationship Id="n" Type="x/notesSlide" Target="../../../../etc/passwd"/></R>'}), has=(FACT,)),
    Case(name="relations that are no XML", path="a.pptx", data=repacked(pptx(TITLE + sp(FACT), sp(FACT)), {"ppt/slides/_rels/s0.xml.rels": "<R"}), has=(FACT,)),
    Case(name="a slide listed twice", path="a.pptx", data=repacked(pptx(TITLE + sp(FACT)), {"ppt/_rels/presentation.xml.rels": '<R><Relationship Id="s0" Type="x/slide" Target="slides/s0.xml"/><Relationship Id="s1" Type="x/slide" Target="slides/s0.xml"/></R>'}), has=(FACT,)),
    Case(name="no relations at all", path="a.pptx", data=repacked(pptx(TITLE + sp(FACT)), {"ppt/_rels/presentation.xml.rels": None}), fails="no text|damaged"),
    Case(name="numbers that are none", path="a.pptx", data=pptx(TITLE + sp(FACT).replace('x="0"', 'x="much"').replace('cx="100"', 'cx="1e99"')), has=(FACT,)),
    Case(name="a picture's words", path="a.pptx", data=pptx(TITLE + '<p:pic><p:nvPicPr><p:cNvPr id="1" name="x" descr="A chart of fees"/></p:nvPicPr></p:pic>' + sp(FACT)), has=("[image: A chart of fees]", FACT)),
    *(Case(name=f"in {name}", path="a.pptx", data=pptx(TITLE + sp(text)), has=(text,)) for name, text in (("Thai", THAI), ("Japanese", JAPANESE), ("Arabic", ARABIC))),
    Case(name="a macro inside", path="a.pptm", data=repacked(pptx(TITLE + sp(FACT)), {"ppt/vbaProject.bin": WRONG}), has=(FACT,)),
    Case(name="a template's name", path="a.potx", data=pptx(TITLE + sp(FACT)), has=(FACT,)),
]  # fmt: skip

# ---- ODT


def span(style: str, text: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def grid(*rows: str) -> str:
    return "<table:table>" + "".join(f"<table:table-row>{r}</table:table-row>" for r in rows) + "</table:table>"


def tc(text: str, attributes: str = "") -> str:
    return f"<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>"


def p(text: str) -> str:
    return f"<text:p>{text}</text:p>"


LIST = '<text:list text:style-name="L1">{}</text:list>'
ODTS = [
    *(Case(name=f"{name} in a paragraph", path="a.odt", data=odt(p(f"The deposit is {inside} 7,431.")), has=(shown,)) for name, inside, shown in (
        ("a tab", "EUR<text:tab/>", "EUR 7,431"), ("blanks", 'EUR<text:s text:c="3"/>', "EUR 7,431"), ("a line break", "EUR<text:line-break/>", "EUR\n7,431"),
        ("a soft page break", "EUR<text:soft-page-break/>", "EUR 7,431"), ("a bookmark", 'EUR<text:bookmark text:name="x"/>', "EUR 7,431"), ("a link", '<text:a>EUR</text:a>', "EUR 7,431"),
        ("a date field", "EUR <text:date>May</text:date>", "EUR May 7,431"), ("a ruby", "<text:ruby><text:ruby-base>EUR</text:ruby-base></text:ruby>", "EUR 7,431"))),
    *(Case(name=f"not shown: {name}", path="a.odt", data=odt(p(FACT) + body), has=(FACT,)) for name, body in (
        ("hidden paragraph style", f'<text:p text:style-name="Hid">{WRONG}</text:p>'), ("hidden span", p("x " + span("Hid", WRONG))), ("struck span", p("x " + span("Struck", WRONG))),
        ("a comment", p(f"x <office:annotation><text:p>{WRONG}</text:p></office:annotation>")), ("a hidden section", f'<text:section text:display="none"><text:p>{WRONG}</text:p></text:section>'),
        ("a deletion", f'<text:tracked-changes><text:changed-region text:id="c"><text:deletion>{p(WRONG)}</text:deletion></text:changed-region></text:tracked-changes>{p("x")}'),
        ("a script", f"<text:p>x<text:script>{WRONG}</text:script></text:p>"), ("a hidden field", f'<text:p>x<text:hidden-text text:is-hidden="true" text:string-value="{WRONG}"/></text:p>'))),
    Case(name="an insertion", path="a.odt", data=odt(f'<text:tracked-changes><text:changed-region text:id="c"><text:insertion/></text:changed-region></text:tracked-changes><text:p><text:change-start text:change-id="c"/>{FACT}<text:change-end text:change-id="c"/></text:p>'), has=(FACT,)),
    Case(name="headings with numbers", path="a.odt", data=odt(f'<text:h text:outline-level="1">One</text:h><text:h text:outline-level="2">Two</text:h>{p(FACT)}<text:h text:outline-level="2">Three</text:h>{p("x")}'), check=lambda d: [s.number for s in d.sections] == ["1", "1.1", "1.2"]),
    Case(name="heading levels left out", path="a.odt", data=odt(f'<text:h text:outline-level="1">One</text:h><text:h text:outline-level="4">Deep</text:h>{p(FACT)}'), has=(FACT,), check=lambda d: len(d.sections) == 2),
    Case(name="a level that is none", path="a.odt", data=odt(f'<text:h text:outline-level="many">One</text:h>{p(FACT)}'), has=(FACT,)),
    Case(name="an empty heading", path="a.odt", data=odt(f'<text:h text:outline-level="1"/>{p(FACT)}'), has=(FACT,)),
    Case(name="a list", path="a.odt", data=odt(LIST.format("".join(f"<text:list-item>{p(t)}</text:list-item>" for t in ("One.", "Two.")))), has=("1. One.", "2. Two.")),
    Case(name="a list in a list", path="a.odt", data=odt(LIST.format(f"<text:list-item>{p('One.')}<text:list><text:list-item>{p('Sub.')}</text:list-item></text:list></text:list-item>")), has=("1. One.", "a) Sub.")),
    Case(name="a list that starts at 5", path="a.odt", data=odt(LIST.format(f'<text:list-item text:start-value="5">{p("Five.")}</text:list-item><text:list-item>{p("Six.")}</text:list-item>')), has=("5. Five.", "6. Six.")),
    Case(name="a list header has no number", path="a.odt", data=odt(LIST.format(f"<text:list-header>{p('Head.')}</text:list-header><text:list-item>{p('One.')}</text:list-item>")), has=("1. One.", "Head."), lacks=("1. Head.",)),
    Case(name="a list without a style", path="a.odt", data=odt(f'<text:list text:style-name="none"><text:list-item>{p(FACT)}</text:list-item></text:list>'), has=(FACT,)),
    Case(name="a table", path="a.odt", data=odt(grid(tc("name") + tc("fee"), tc("Alpha") + tc("7,431"))), has=("name | fee\nAlpha | 7,431",)),
    Case(name="a table with a header row", path="a.odt", data=odt(f"<table:table><table:table-header-rows><table:table-row>{tc('name')}{tc('fee')}</table:table-row></table:table-header-rows><table:table-row>{tc('Alpha')}{tc('7,431')}</table:table-row></table:table>"), has=("name | fee\nAlpha | 7,431",)),
    Case(name="cells merged downwards", path="a.odt", data=odt(grid(tc("area") + tc("fee"), tc("North", 'table:number-rows-spanned="2"') + tc("1"), "<table:covered-table-cell/>" + tc("7,431"))), has=("North | 7,431",)),
    Case(name="cells merged across", path="a.odt", data=odt(grid(tc("Fees", 'table:number-columns-spanned="2"') + "<table:covered-table-cell/>", tc("Alpha") + tc("7,431"))), has=("Alpha | 7,431", "Fees")),
    Case(name="a table in a table", path="a.odt", data=odt(grid(f"<table:table-cell>{grid(tc('Alpha') + tc('7,431'))}</table:table-cell>")), has=("Alpha", "7,431")),
    Case(name="rows repeated a million times", path="a.odt", data=odt(f'<table:table><table:table-row table:number-rows-repeated="1000000">{tc("x")}</table:table-row></table:table>{p(FACT)}'), has=(FACT,), check=lambda d: len(d.text) < 1_000_000),
    Case(name="a footnote", path="a.odt", data=odt(f"<text:p>See<text:note text:note-class='footnote'><text:note-citation>1</text:note-citation><text:note-body>{p(FACT)}</text:note-body></text:note> it.</text:p>"), has=(FACT, "See")),
    Case(name="a text box", path="a.odt", data=odt(f"<text:p><draw:frame><draw:text-box>{p(FACT)}</draw:text-box></draw:frame></text:p>"), has=(FACT,)),
    Case(name="a section", path="a.odt", data=odt(f"<text:section>{p(FACT)}</text:section>"), has=(FACT,)),
    Case(name="a table of contents", path="a.odt", data=odt(f"<text:table-of-content><text:index-body>{p(WRONG)}</text:index-body></text:table-of-content>{p(FACT)}"), has=(FACT,)),
    Case(name="styles that are no XML", path="a.odt", data=odt(p(FACT), styles="<office"), fails="damaged"),
    Case(name="no styles", path="a.odt", data=repacked(odt(p(FACT)), {"styles.xml": None}), has=(FACT,)),
    Case(name="content is no XML", path="a.odt", data=repacked(GOOD["odt"], {"content.xml": "<office:document"}), fails="damaged"),
    Case(name="encrypted by a manifest", path="a.odt", data=repacked(GOOD["odt"], {"META-INF/manifest.xml": '<m xmlns:manifest="x"><manifest:encryption-data/></m>', "content.xml": b"\x93\x11" * 200}), fails="encrypted|damaged"),
    Case(name="an empty body", path="a.odt", data=odt("<text:p/>"), fails="no text"),
    Case(name="a macro inside", path="a.odt", data=repacked(odt(p(FACT)), {"Basic/Standard/Module1.xml": WRONG}), has=(FACT,)),
    Case(name="a template's name", path="a.ott", data=odt(p(FACT)), has=(FACT,)),
    *(Case(name=f"in {name}", path="a.odt", data=odt(p(text)), has=(text,)) for name, text in (("Thai", THAI), ("Japanese", JAPANESE), ("Arabic", ARABIC))),
]  # fmt: skip

# ---- web pages


def page(body: str, head: str = "") -> bytes:
    return f"<!doctype html><html><head>{head}</head><body>{body}</body></html>".encode()


def html_table(*rows: str) -> str:
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


HTMLS = [
    *(Case(name=f"hidden by {style}", path="a.html", data=page(f'<p>{FACT}</p><div style="{style}">{WRONG}</div>'), has=(FACT,), warns="hidden") for style in (
        "DISPLAY:NONE", "display:none;color:red", "color:red;display:none", "/* x */display:none", "visibility: collapse", "opacity:0.0", "font-size:0px", "font-size:1px", "text-indent:-9999px",
        "clip:rect(0,0,0,0)", "clip-path:inset(50%)", "height:0;overflow:hidden", "max-height:0", "transform:scale(0)", "color:transparent", "color:white", "color:rgb(255,255,255)", "position:fixed;top:-5000px")),
    *(Case(name=f"shown by {style}", path="a.html", data=page(f'<p style="{style}">{FACT}</p>'), has=(FACT,)) for style in (
        "display:block", "visibility:visible", "opacity:0.5", "font-size:10px", "color:#fefe00", "background:#000;color:#fff", "margin-left:-10px", "max-height:100px", "display:inline")),
    *(Case(name=f"hidden by a sheet: {rule}", path="a.html", data=page(f'<p>{FACT}</p><div class="h" id="i"><p>{WRONG}</p></div>', f"<style>{rule}</style>"), has=(FACT,), warns="hidden") for rule in (
        ".h{display:none}", "#i{display:none}", "div.h { visibility:hidden }", "p.x, .h {display:none}", "/* a */ .h{display:none}")),
    *(Case(name=f"{tag} is not text", path="a.html", data=page(f"<p>{FACT}</p><{tag}>{WRONG}</{tag}>"), has=(FACT,)) for tag in ("script", "style", "template", "noscript", "iframe", "object", "svg", "canvas", "datalist")),
    *(Case(name=f"hidden by {attribute}", path="a.html", data=page(f"<p>{FACT}</p><p {attribute}>{WRONG}</p>"), has=(FACT,)) for attribute in ("hidden", 'hidden=""', 'aria-hidden="true" style="display:none"')),
    Case(name="a closed dialog", path="a.html", data=page(f"<p>{FACT}</p><dialog>{WRONG}</dialog>"), has=(FACT,)),
    Case(name="an input's value", path="a.html", data=page(f'<p>{FACT}</p><input type="hidden" value="{WRONG}">'), has=(FACT,)),
    Case(name="struck text", path="a.html", data=page(f"<p>{FACT} <s>{WRONG}</s></p>"), has=(FACT, f"~~{WRONG}~~"), lacks=()),
    Case(name="deleted text", path="a.html", data=page(f"<p>{FACT} <del>{WRONG}</del></p>"), has=(FACT, f"~~{WRONG}~~"), lacks=()),
    Case(name="an attribute with a bracket", path="a.html", data=page(f'<p title="a > b {WRONG}">{FACT}</p>'), has=(FACT,)),
    Case(name="a table with a header", path="a.html", data=page(html_table("<th>name<th>fee", "<td>Alpha<td>7,431")), has=("name | fee\nAlpha | 7,431",)),
    Case(name="cells merged downwards", path="a.html", data=page(html_table("<th>area<th>fee", "<td rowspan=2>North<td>1", "<td>7,431")), has=("North | 7,431",)),
    Case(name="cells merged across", path="a.html", data=page(html_table("<th colspan=2>Fees", "<td>Alpha<td>7,431")), has=("Alpha | 7,431",)),
    *(Case(name=f"a span of {span}", path="a.html", data=page(html_table("<th>a<th>b", f"<td rowspan={span}>x<td>{FACT}", "<td>y")), has=(FACT,)) for span in ("0", "-1", "99999999", "x")),
    Case(name="a table in a table", path="a.html", data=page(html_table(f"<td>{html_table('<td>Alpha<td>7,431')}<td>x")), has=("Alpha", "7,431")),
    Case(name="a list", path="a.html", data=page("<ol><li>One.<li>Two.<ul><li>Sub.</ul></ol>"), has=("One.", "Two.", "Sub.")),
    Case(name="a list from 5", path="a.html", data=page("<ol start=5><li>Five.<li>Six.</ol>"), has=("5. Five.", "6. Six.")),
    Case(name="a list by letters", path="a.html", data=page("<ol type=a><li>One.<li>Two.</ol>"), has=("b. Two.",)),
    Case(name="a list backwards", path="a.html", data=page("<ol reversed><li>Two.<li>One.</ol>"), has=("2. Two.", "1. One.")),
    Case(name="a list item with a value", path="a.html", data=page("<ol><li value=9>Nine.<li>Ten.</ol>"), has=("9. Nine.", "10. Ten.")),
    Case(name="preformatted text", path="a.html", data=page("<pre>a  b\n  c</pre>"), has=("a  b\n  c",)),
    Case(name="line breaks", path="a.html", data=page("<p>EUR<br>7,431</p>"), has=("EUR\n7,431",)),
    Case(name="words of inline tags", path="a.html", data=page("<p>The de<b>pos</b>it is <i>EUR</i>&nbsp;7,431</p>"), has=("The deposit is EUR\u00a07,431",)),
    Case(name="blocks end words", path="a.html", data=page("<div>EUR</div><div>7,431</div>"), lacks=("EUR7,431",)),
    Case(name="entities without an end", path="a.html", data=page("<p>AT&amp;T &lt b &copy 2025 &notanentity;"), has=("AT&T",)),
    Case(name="a wrong doctype", path="a.html", data=f"<!DOCTYPE foo [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><html><body><p>{FACT} &x;".encode(), has=(FACT,), lacks=("root:",)),
    Case(name="XHTML", path="a.xhtml", data=f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><p>{FACT}</p></body></html>'.encode(), has=(FACT,)),
    Case(name="a page in a page", path="a.html", data=page(f"<html><body><p>{FACT}</p></body></html>"), has=(FACT,)),
    Case(name="comments that do not end", path="a.html", data=page(f"<p>{FACT}</p><!-- {WRONG}"), has=(FACT,)),
    Case(name="a conditional comment", path="a.html", data=page(f"<p>{FACT}</p><!--[if IE]><p>{WRONG}</p><![endif]-->"), has=(FACT,)),
    Case(name="a title only", path="a.html", data=page("", f"<title>{FACT}</title>"), fails="no text"),
    Case(name="a refresh", path="a.html", data=page(f"<p>{FACT}</p>", '<meta http-equiv="refresh" content="0;url=http://example.com/">'), has=(FACT,), lacks=("example.com",)),
    Case(name="a picture's words", path="a.html", data=page(f'<p>{FACT}</p><img src="http://example.com/x.png" alt="A chart of fees">'), has=(FACT,), lacks=("example.com",)),
    *(Case(name=f"in {name}", path="a.html", data=page(f"<p>{text}</p>"), has=(text,)) for name, text in (("Thai", THAI), ("Japanese", JAPANESE), ("Arabic", ARABIC))),
]  # fmt: skip

# ---- mail


def typed(kind: str, body: str, headers: str = "") -> bytes:
    return f"From: a@b.example\nSubject: The offer\nMIME-Version: 1.0\nContent-Type: {kind}\n{headers}\n{body}".encode()


def parts(kind: str, *bodies: tuple[str, str]) -> bytes:
    inner = "".join(f"--q\nContent-Type: {of}\n\n{body}\n" for of, body in bodies)
    return typed(f"multipart/{kind}; boundary=q", f"{inner}--q--\n")


def carrying(*files: tuple[str, bytes], body: str = FACT) -> bytes:
    m = message(body + "\n")
    for name, data in files:
        m.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return m.as_bytes()


def forwarded(depth: int) -> bytes:
    m = message(FACT + "\n")
    for number in range(depth):
        outer = EmailMessage()
        outer["From"], outer["Subject"] = "a@b.example", f"Fwd {number}"
        outer.set_content("See below.\n")
        outer.add_attachment(m)
        m = outer
    return m.as_bytes()


MAILS = [
    *(Case(name=f"header {name}", path="a.eml", data=f"From: a@b.example\nSubject: {raw}\n\n{FACT}\n".encode(), has=(FACT, shown)) for name, raw, shown in (
        ("in base64", "=?utf-8?b?R3LDtsOfZQ==?=", "Subject: Größe"), ("in Q", "=?iso-8859-1?q?Gr=F6=DFe?=", "Subject: Größe"), ("in two words", "=?utf-8?q?Gr=C3=B6?= =?utf-8?q?=C3=9Fe?=", "Subject: Größe"),
        ("folded", "The\n offer", "Subject: The offer"), ("raw UTF-8", "Größe", "Subject: Größe"), ("of a broken word", "=?utf-8?b?!!!?=", "From: a@b.example"), ("of no charset", "=?nonsense?q?x?=", "Subject:"))),
    *(Case(name=f"{kind} is shown once", path="a.eml", data=parts("alternative", ("text/plain", FACT), ("text/html", f"<p>{FACT}</p>")), check=lambda d: d.text.count(FACT) == 1) for kind in ("plain and HTML",)),
    Case(name="HTML only", path="a.eml", data=typed("text/html", f"<p>{FACT}</p><p hidden>{WRONG}</p>"), has=(FACT,)),
    Case(name="an empty plain part", path="a.eml", data=parts("alternative", ("text/plain", " "), ("text/html", f"<p>{FACT}</p>")), has=(FACT,)),
    Case(name="two plain parts", path="a.eml", data=parts("mixed", ("text/plain", "First."), ("text/plain", FACT)), has=("First.", FACT)),
    Case(name="a part without a type", path="a.eml", data=typed("multipart/mixed; boundary=q", f"--q\n\n{FACT}\n--q--\n"), has=(FACT,)),
    Case(name="a boundary with blanks", path="a.eml", data=typed('multipart/mixed; boundary="a b"', f"--a b\n\n{FACT}\n--a b--\n"), has=(FACT,)),
    Case(name="no boundary", path="a.eml", data=typed("multipart/mixed", FACT), has=("The offer",)),
    Case(name="text after the last boundary", path="a.eml", data=parts("mixed", ("text/plain", FACT)) + WRONG.encode(), has=(FACT,)),
    Case(name="text before the first boundary", path="a.eml", data=typed("multipart/mixed; boundary=q", f"{WRONG}\n--q\n\n{FACT}\n--q--\n"), has=(FACT,)),
    *(Case(name=f"the encoding {name}", path="a.eml", data=typed("text/plain; charset=utf-8", FACT, f"Content-Transfer-Encoding: {name}\n"), has=(FACT,)) for name in ("7bit", "8bit", "binary", "nonsense", "8BIT ")),
    *(Case(name=f"the charset {name}", path="a.eml", data=typed(f"text/plain; charset={name}", FACT), has=(FACT,)) for name in ("us-ascii", "utf8", '"utf-8"', "unknown-8bit", "iso-8859-15", "x")),
    Case(name="lines of Windows", path="a.eml", data=typed("text/plain", FACT).replace(b"\n", b"\r\n"), has=(FACT,)),
    Case(name="soft ends of lines", path="a.eml", data=typed("text/plain", "The deposit is EUR 7,=\n431 and due in May=2E", "Content-Transfer-Encoding: quoted-printable\n"), has=(FACT,)),
    Case(name="flowed lines", path="a.eml", data=typed("text/plain; format=flowed", "The deposit is \nEUR 7,431."), has=("7,431",)),
    *(Case(name=f"the attachment {name!r}", path="a.eml", data=carrying((name, b"x")), has=(FACT,), check=lambda d, shown=shown: [a.name for a in d.attachments] == [shown]) for name, shown in (
        ("terms.pdf", "terms.pdf"), ("../../terms.pdf", "terms.pdf"), ("/etc/terms.pdf", "terms.pdf"), ("C:\\x\\terms.pdf", "terms.pdf"), ("Größe.pdf", "Größe.pdf"), ("a b.pdf", "a b.pdf"))),
    Case(name="an attachment without a name", path="a.eml", data=typed("multipart/mixed; boundary=q", f"--q\n\n{FACT}\n--q\nContent-Type: application/pdf\nContent-Disposition: attachment\n\nx\n--q--\n"), has=(FACT,), check=lambda d: len(d.attachments) == 1 and bool(d.attachments[0].name)),
    Case(name="two attachments of one name", path="a.eml", data=carrying(("a.txt", b"1"), ("a.txt", b"2")), check=lambda d: len(d.attachments) == 2),
    Case(name="300 attachments", path="a.eml", data=lambda: carrying(*((f"{n}.txt", b"x") for n in range(300))), has=(FACT,), check=lambda d: len(d.attachments) <= 300),
    Case(name="a text that is attached", path="a.eml", data=carrying(("note.txt", WRONG.encode())), has=(FACT,), check=lambda d: d.attachments[0].data.strip() == WRONG.encode()),
    *(Case(name=f"forwarded {depth} times", path="a.eml", data=forwarded(depth), check=lambda d: len(d.attachments) == 1 and d.attachments[0].name.endswith(".eml")) for depth in (1, 5)),
    Case(name="attachments nested by multiparts", path="a.eml", data=typed("multipart/mixed; boundary=a", f"--a\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\n{FACT}\n--b\nContent-Type: application/pdf\nContent-Disposition: attachment; filename=in.pdf\n\nx\n--b--\n--a--\n"), has=(FACT,), check=lambda d: [a.name for a in d.attachments] == ["in.pdf"]),
    Case(name="a picture in the text", path="a.eml", data=parts("related", ("text/html", f'<p>{FACT}</p><img src="cid:1">'), ("image/png", "x")), has=(FACT,), lacks=("cid:",)),
    Case(name="an invitation", path="a.eml", data=parts("mixed", ("text/plain", FACT), ("text/calendar", "BEGIN:VCALENDAR")), has=(FACT,)),
    Case(name="a signed message", path="a.eml", data=parts("signed", ("text/plain", FACT), ("application/pgp-signature", WRONG)), has=(FACT,)),
    Case(name="a report of delivery", path="a.eml", data=parts("report", ("text/plain", FACT), ("message/delivery-status", "Status: 5.1.1")), has=(FACT,)),
    Case(name="headers that are there twice", path="a.eml", data=f"From: a@b.example\nSubject: One\nSubject: Two\n\n{FACT}\n".encode(), has=(FACT, "Subject: One")),
    Case(name="a header of 100,000 letters", path="a.eml", data=f"From: a@b.example\nSubject: {'x' * 100_000}\n\n{FACT}\n".encode(), has=(FACT,), check=lambda d: len(d.title) <= 1000),
    Case(name="a reply that hides", path="a.eml", data=typed("text/html", f"<p>{FACT}</p><blockquote>older words</blockquote>"), has=(FACT, "older words")),
    Case(name="a mailbox of several", path="a.eml", data=b"From a@b Mon Mar 3 10:00:00 2025\n" + typed("text/plain", FACT), has=(FACT,)),
]  # fmt: skip

# ---- records


def js(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


RECORDS = [
    *(Case(name=f"{name} as a value", path="a.json", data=b'{"a": ' + raw + b', "fee": "EUR 7,431"}', has=(shown, "EUR 7,431")) for name, raw, shown in (
        ("true", b"true", "a: true"), ("false", b"false", "a: false"), ("0", b"0", "a: 0"), ("-0.0", b"-0.0", "a: -0.0"), ("1e5", b"1e5", "a: 1e5"), ("a long decimal", b"0.1000000000000000055511151231257827", "a: 0.1000000000000000055511151231257827"),
        ("an e-mail", b'"a@b.example"', "a: a@b.example"), ("a date", b'"2025-03-01"', "a: 2025-03-01"), ("a list of words", b'["x", "y"]', "x"), ("two lines", b'"x\\ny"', "x"), ("Arabic", js(ARABIC), ARABIC), ("Thai", js(THAI), THAI))),
    *(Case(name=f"damaged: {raw!r}", path="a.json", data=raw, fails="damaged") for raw in (b"{", b"[1, 2", b'{"a" 1}', b"{'a': 1}", b'{"a": undefined}', b'{"a": 01}', b'["a" "b"]', b"nulll", b'{"a": "x\ty', b"[1,,2]")),
    *(Case(name=f"no text: {raw!r}", path="a.json", data=raw, fails="no text|damaged") for raw in (b"{}", b"[[]]", b"[{}, {}]", b'""', b'{"a": null}')),
    Case(name="objects in objects", path="a.json", data=js({"terms": {"deposit": {"amount": "EUR 7,431"}}}), has=("EUR 7,431", "deposit")),
    Case(name="records below a key", path="a.json", data=js({"count": 2, "items": [{"name": "Alpha", "note": FACT}, {"name": "Beta"}]}), has=(FACT, "name: Beta")),
    Case(name="records of all shapes", path="a.json", data=js([{"a": 1}, "word", 3, None, [1, 2], {"note": FACT}]), has=(FACT, "word")),
    Case(name="a key with a dot", path="a.json", data=js({"a.b": FACT, "a": {"b": "x"}}), has=(FACT,)),
    Case(name="an empty key", path="a.json", data=js({"": FACT}), has=(FACT,)),
    Case(name="a key with a line end", path="a.json", data=js({"a\nb": FACT}), has=(FACT,)),
    Case(name="5,000 keys", path="a.json", data=js({f"k{n}": n for n in range(5000)} | {"note": FACT}), has=(FACT,)),
    Case(name="NaN", path="a.json", data=b'{"a": NaN, "note": "EUR 7,431"}', check=lambda d: "EUR 7,431" in d.text),
    Case(name="a byte order mark", path="a.json", data=b"\xef\xbb\xbf" + js({"note": FACT}), has=(FACT,)),
    Case(name="blanks around", path="a.json", data=b" \n\t" + js({"note": FACT}) + b"\n\n", has=(FACT,)),
    Case(name="a title", path="a.json", data=js({"title": "Terms", "note": FACT}), has=(FACT,)),
    Case(name="HTML in a value", path="a.json", data=js({"note": f"<p>{FACT}</p>"}), has=(FACT,)),
    Case(name="control characters", path="a.json", data=b'{"note": "\\u001b[31mEUR 7,431\\u0007"}', has=("EUR 7,431",), lacks=("\x1b", "\x07")),
    Case(name="marks that turn round", path="a.json", data=js({"note": f"\u202e{FACT}"}), has=(FACT,), lacks=("\u202e",)),
    *(Case(name=f"lines: {name}", path="a.jsonl", data=raw, has=(FACT,)) for name, raw in (
        ("blank ones between", b"\n\n" + js({"note": FACT}) + b"\n\n\n"), ("ends of Windows", js({"note": FACT}) + b"\r\n" + js({"b": 1}) + b"\r\n"), ("no end of the last", js({"a": 1}) + b"\n" + js({"note": FACT})),
        ("lists", js([1, FACT]) + b"\n"), ("words", js(FACT) + b"\n" + js("x")), ("a line separator inside", js({"note": f"{FACT}\u2028x"}) + b"\n"), ("one record only", js({"note": FACT})), ("pretty ones after", js({"note": FACT}) + b'\n{\n "a": 1\n}\n'))),
    Case(name="lines under a JSON name", path="a.json", data=js({"a": 1}) + b"\n" + js({"note": FACT}) + b"\n", check=lambda d: FACT in d.text),
    Case(name="ndjson", path="a.ndjson", data=js({"note": FACT}) + b"\n", has=(FACT,)),
]  # fmt: skip

# ---- CSV

CSVS = [
    *(Case(name=f"{name}", path="a.csv", data=raw, has=has) for name, raw, has in (
        ("semicolons with decimal commas", b"name;fee\nAlpha;7,431\nBeta;1,5\n", ("name | fee\nAlpha | 7,431",)), ("pipes", b"name|fee\nAlpha|7431\nBeta|2\n", ("Alpha | 7431",)), ("tabs", b"name\tfee\nAlpha\t7431\n", ("Alpha | 7431",)),
        ("a line that names the separator", b"sep=;\nname;fee\nAlpha;7431\n", ("name | fee\nAlpha | 7431",)), ("blanks after commas", b"name, fee\nAlpha, 7431\n", ("Alpha | 7431",)), ("quotes everywhere", b'"name","fee"\n"Alpha","7431"\n', ("name | fee\nAlpha | 7431",)),
        ("a comma in quotes", b'name,fee\n"Alpha, Inc.","7,431"\n', ("Alpha, Inc. | 7,431",)), ("single quotes", b"name,fee\n'Alpha',7431\n", ("7431",)), ("ends of Windows", b"name,fee\r\nAlpha,7431\r\n", ("name | fee\nAlpha | 7431",)),
        ("ends of an old Mac", b"name,fee\rAlpha,7431\r", ("Alpha | 7431",)), ("an end of line in quotes", b'name,fee\n"Al\r\npha",7431\n', ("Al pha | 7431",)), ("no last end of line", b"name,fee\nAlpha,7431", ("Alpha | 7431",)),
        ("separators at the end", b"name,fee,,,\nAlpha,7431,,,\n", ("Alpha | 7431",)), ("an empty first column", b",fee\nAlpha,7431\nBeta,2\n", ("Alpha | 7431",)), ("an empty header cell", b"name,,fee\nAlpha,x,7431\n", ("7431",)), ("headers that are the same", b"fee,fee\n1,7431\n", ("1 | 7431",)),
        ("a header only", b"name,fee\n", ("name | fee",)), ("one column", b"name\nAlpha\n7431\n", ("7431",)), ("numbers only", b"1,2\n3,7431\n", ("3 | 7431",)), ("a title line above", b"Fees of 2025,,\n\nname,fee,due\nAlpha,7431,May\n", ("Alpha | 7431 | May",)),
        ("a row shorter than the header", b"a,b,c\nx,7431\n", ("x | 7431",)), ("a row longer than the header", b"a,b\nx,7431,extra\n", ("x | 7431 | extra",)), ("a separator in a cell", b'a,b\n"x | y",7431\n', ("x / y | 7431",)), ("a percentage", b"a,b\nx,12.5%\n", ("x | 12.5%",)),
        ("a leading zero", b"code,fee\n007,7431\n", ("007 | 7431",)), ("an e", b"code,fee\n1E5,7431\n", ("1E5 | 7431",)), ("a date", b"due,fee\n2025-03-01,7431\n", ("2025-03-01 | 7431",)), ("quotes not at the start", b'a,b\n5" pipe,7431\n', ('5" pipe | 7431',)),
        ("a quote within quotes", b'a,b\n"say ""x""",7431\n', ('say "x" | 7431',)), ("a formula", b'a,b\n=HYPERLINK("http://e.example"),7431\n', ("7431",)), ("HTML in a cell", b"a,b\n<script>x</script>,7431\n", ("7431",)), ("blank lines between", b"a,b\n\n\nx,7431\n\n", ("x | 7431",)))),
    *(Case(name=f"{name}", path="a.csv", data=f"name;text\nAlpha;{text}\n".encode(code), has=(text,)) for name, text, code in (("Thai", THAI, "utf-8"), ("Arabic", ARABIC, "utf-8"), ("Japanese in Shift-JIS", JAPANESE, "cp932"), ("Cyrillic", "Поставщик сообщает банку о каждом инциденте без промедления", "cp1251"))),
    Case(name="the header in each passage of a wide table", path="a.csv", data=(",".join(f"k{n}" for n in range(40)) + "\n" + ",".join(f"v{n}" for n in range(40)) + "\n").encode(), has=("k39: v39",)),
    Case(name="1,000 columns", path="a.csv", data=(",".join(f"k{n}" for n in range(1000)) + "\n" + ",".join(f"v{n}" for n in range(1000)) + "\n").encode(), has=("k999: v999",)),
    Case(name="a quote that is never closed", path="a.csv", data=b'a,b\n"x,7431\n' + b"y,1\n" * 50, has=("7431",)),
    Case(name="control characters", path="a.csv", data=b"a,b\n\x1b[31mx,7431\x07\n", has=("7431",), lacks=("\x1b", "\x07")),
    Case(name="separators only", path="a.csv", data=b";;;\n;;;\n", fails="no text"),
    Case(name="sentences with commas", path="a.csv", data=f"{FACT}\n".encode(), has=("7",)),
]  # fmt: skip

# ---- Markdown

MARKDOWN = [
    *(Case(name=name, path="a.md", data=f"# T\n\n{FACT}\n\n{body}\n".encode(), has=(FACT, *has), lacks=(WRONG, *lacks)) for name, body, has, lacks in (
        ("a comment", f"<!-- {WRONG} -->", (), ()), ("a comment over lines", f"<!--\n\n{WRONG}\n\n-->", (), ()), ("a script", f"<script>{WRONG}</script>", (), ()), ("a hidden block", f"<div hidden>{WRONG}</div>", (), ()), ("a hidden span", f'x <span style="display:none">{WRONG}</span>', (), ()),
        ("a link's address", f"[terms](http://x.example/{WRONG.replace(' ', '%20')})", ("terms",), ("http",)), ("a link's title", '[terms](http://x.example "t")', ("terms",), ("http",)), ("a link by reference", "[terms][1]\n\n[1]: http://x.example", ("terms",), ("http",)), ("a bare address", "<http://x.example>", ("http://x.example",), ()),
        ("emphasis", "**EUR** *and* ~~9,999~~ `7,431`", ("EUR and", "7,431"), ("**",)), ("a picture", "![A chart](x.png)", ("A chart",), ("x.png",)), ("escapes", r"\*not emphasis\*", ("*not emphasis*",), ("\\",)), ("entities", "5 &lt; 7 &amp; 8", ("5 < 7 & 8",), ()),
        ("a hard break", "EUR  \n7,431", ("EUR\n7,431",), ()), ("a soft break", "EUR\n7,431 more", ("EUR 7,431 more",), ()), ("a quote", "> quoted words", ("quoted words",), ("> quoted",)), ("a nested list", "1. One\n   - Sub\n2. Two", ("1. One", "- Sub", "2. Two"), ()),
        ("a list from 7", "7. Seven\n8. Eight", ("7. Seven", "8. Eight"), ()), ("a task list", "- [x] done\n- [ ] open", ("done", "open"), ()), ("indented code", "    # no heading", ("# no heading",), ()), ("tilde fences", "~~~\n# no heading\n~~~", ("# no heading",), ("~~~",)), ("a fence that never ends", "```\n# no heading", ("# no heading",), ()),
        ("fences in a list", "- a\n\n  ```\n  # no heading\n  ```", ("# no heading",), ()), ("a longer fence", "````\n```\n# no heading\n```\n````", ("# no heading",), ()), ("a table", "| name | fee |\n|---|---|\n| Alpha | 7,431 |", ("name | fee\nAlpha | 7,431",), ("---",)), ("a table without edges", "name | fee\n--- | ---\nAlpha | 7,431", ("name | fee\nAlpha | 7,431",), ("---",)),
        ("a table with an escaped pipe", "| a | b |\n|---|---|\n| x \\| y | 7,431 |", ("7,431",), ()), ("a table with empty cells", "| a | b |\n|---|---|\n|  | 7,431 |", ("7,431",), ()), ("a footnote", "See[^1].\n\n[^1]: Working days.", ("Working days.",), ()), ("a rule", "a\n\n* * *\n\nb", ("a", "b"), ("* * *",)), ("an HTML table", "<table><tr><th>name<th>fee<tr><td>Alpha<td>7,431</table>", ("Alpha | 7,431",), ()), ("inline HTML", "a<br>b <b>bold</b> H<sub>2</sub>O", ("bold", "H2O"), ("<b>",)))),
    *(Case(name=f"headings: {name}", path="a.md", data=body.encode(), check=lambda d, titles=titles: [s.title for s in d.sections] == titles) for name, body, titles in (
        ("setext", f"Terms\n=====\n\n{FACT}\n\nMore\n----\n\nx", ["Terms", "More"]), ("closed", f"# Terms #\n\n{FACT}", ["Terms"]), ("no blank", f"#Terms\n\n# Real\n\n{FACT}", ["Real"]), ("seven", f"# T\n\n####### Seven\n\n{FACT}", ["T"]), ("indented", f"   # Terms\n\n{FACT}", ["Terms"]), ("with code", f"# The `x` key\n\n{FACT}", ["The x key"]), ("with a link", f"# The [x](y)\n\n{FACT}", ["The x"]), ("empty", f"#\n\n# T\n\n{FACT}", ["T"]))),
    *(Case(name=f"front matter: {name}", path="a.md", data=f"{front}\n# T\n\n{FACT}\n".encode(), has=(FACT,), lacks=(WRONG,)) for name, front in (
        ("empty", "---\n---"), ("TOML", f'+++\ntitle = "x"\nnote = "{WRONG}"\n+++'), ("with a list", "---\ntags:\n  - a\n  - b\n---"), ("with a multi-line value", f"---\nnote: |\n  {WRONG}\n---"), ("of dots", "---\ntitle: x\n..."), ("with a tag", "---\na: !!python/object/apply:os.system ['x']\n---"), ("with tabs", "---\na:\tb\n---"))),
]  # fmt: skip

# ---- reStructuredText

HEAD = "Terms\n=====\n\n"
RSTS = [
    *(Case(name=name, path="a.rst", data=f"{HEAD}{FACT}\n\n{body}\n".encode(), has=(FACT, *has), lacks=(WRONG, *lacks)) for name, body, has, lacks in (
        ("a comment", f".. {WRONG}", (), ()), ("a comment over lines", f"..\n   {WRONG}\n   {WRONG}", (), ()), ("an include", ".. include:: /etc/passwd", (), ("root:",)), ("a literal include", ".. literalinclude:: /etc/passwd", (), ("root:",)), ("raw HTML", f".. raw:: html\n\n   <p>{WRONG}</p>", (), ()), ("raw by file", ".. raw:: html\n   :file: /etc/passwd", (), ("root:",)),
        ("a CSV table by file", ".. csv-table:: x\n   :file: /etc/passwd", (), ("root:",)), ("a CSV table", '.. csv-table:: Fees\n   :header: "name", "fee"\n\n   "Alpha", "7,431"', ("Alpha | 7,431",), ()), ("a list table", ".. list-table::\n   :header-rows: 1\n\n   * - name\n     - fee\n   * - Alpha\n     - 7,431", ("name | fee\nAlpha | 7,431",), ()),
        ("a grid table", "+-------+-------+\n| name  | fee   |\n+=======+=======+\n| Alpha | 7,431 |\n+-------+-------+", ("name | fee\nAlpha | 7,431",), ("+--",)), ("a simple table", "=====  =====\nname   fee\n=====  =====\nAlpha  7,431\n=====  =====", ("name | fee\nAlpha | 7,431",), ("====",)), ("a broken table", "=====  =====\nname   fee\n=====\nAlpha  7,431", ("7,431",), ()),
        ("emphasis", "**EUR** *and* ``7,431``", ("EUR and 7,431",), ("**",)), ("emphasis that never ends", "**EUR 7,431", ("EUR 7,431",), ()), ("a link", "`terms <http://x.example>`_", ("terms",), ("http",)), ("an anonymous link", "`terms`__\n\n__ http://x.example", ("terms",), ()), ("a link to nowhere", "nowhere_", ("nowhere",), ()), ("a substitution", ".. |x| replace:: 7,431\n\nEUR |x| due", ("EUR 7,431 due",), ()), ("a substitution of nothing", "EUR |none| due", ("EUR", "due"), ()),
        ("a role of Sphinx", ":ref:`terms <t>` and :doc:`/x/y`", ("terms",), ()), ("a role of nobody", ":nobody:`7,431`", ("7,431",), ()), ("a directive of Sphinx", ".. versionadded:: 2.0\n   New words.", ("New words.",), ()), ("a directive of nobody", ".. nobody:: 7,431\n\n   Inside words.", ("Inside words.",), ()), ("a note", ".. note:: Inside words.", ("Inside words.",), ()), ("a code block", ".. code-block:: python\n\n   # no heading\n   =====", ("# no heading",), ()), ("a literal block", "Look::\n\n   No heading\n   ==========", ("No heading",), ()),
        ("a picture", ".. image:: http://x.example/x.png\n   :alt: A chart", (), ("http",)), ("a figure", ".. figure:: x.png\n\n   A caption.", ("A caption.",), ()), ("a footnote", "See [1]_.\n\n.. [1] Working days.", ("Working days.",), ()), ("a citation", "See [Ref]_.\n\n.. [Ref] The book.", ("The book.",), ()), ("a definition", "deposit\n   What is paid.", ("deposit", "What is paid."), ()), ("a field list", ":owner: Legal\n:due: May", ("May",), ()), ("an option list", "-a  all of it", ("all of it",), ()), ("numbered by #", "#. One\n#. Two", ("1. One", "2. Two"), ()), ("numbered from 7", "7. Seven\n8. Eight", ("7. Seven", "8. Eight"), ()), ("a line block", "| EUR\n| 7,431", ("EUR\n7,431",), ()), ("a doctest", ">>> 7 + 1\n8", (">>> 7 + 1",), ()), ("a target", ".. _terms:\n\nMore words.", ("More words.",), ("_terms",)), ("an only block", ".. only:: html\n\n   Inside words.", ("Inside words.",), ()), ("an epigraph", ".. epigraph::\n\n   Inside words.", ("Inside words.",), ()), ("a toctree", ".. toctree::\n   :maxdepth: 2\n\n   a\n   b", (), ("maxdepth",)), ("a class", ".. class:: x\n\nInside words.", ("Inside words.",), ()))),
    *(Case(name=f"headings: {name}", path="a.rst", data=body.encode(), has=(FACT,), check=lambda d, titles=titles: [s.title for s in d.sections] == titles) for name, body, titles in (
        ("two levels", f"{HEAD}Sub\n---\n\n{FACT}", ["Terms", "Sub"]), ("with a line above", f"=====\nTerms\n=====\n\n{FACT}", ["Terms"]), ("a line that is too short", f"Terms\n====\n\n{FACT}", ["Terms"]), ("levels out of order", f"A\n=\n\nB\n-\n\nC\n~\n\nD\n=\n\nE\n~\n\n{FACT}", ["A", "B", "C", "D"]))),
]  # fmt: skip

# ---- plain text

TEXTS = [
    *(Case(name=f"in {code}", path="a.txt", data=text.encode(code), has=(text,)) for code, text in (
        ("utf-8", "Größe – 7,431 €"), ("utf-8-sig", "Größe – 7,431 €"), ("utf-16", "Deposit of EUR 7,431"), ("utf-32", "Deposit of EUR 7,431"), ("cp1252", "Die Prüfung der Größe kostet 5 € – „ohne Ausnahme“, so heißt es."), ("iso-8859-1", "Âmbito: as exceções são aprovadas pela direção."), ("cp1250", "Dostawca powiadamia bank o każdym incydencie w ciągu dwudziestu czterech godzin, bez żadnej zwłoki."),
        ("cp1253", "Ο προμηθευτής ενημερώνει την τράπεζα για κάθε συμβάν μέσα σε είκοσι τέσσερις ώρες."), ("koi8-r", "Поставщик сообщает банку о каждом инциденте в течение двадцати четырёх часов."), ("gb18030", "供应商应在知悉安全事件后二十四小时内通知本行，并提交书面报告。"), ("big5", "供應商應在知悉安全事件後二十四小時內通知本行，並提交書面報告。"), ("euc_kr", "공급자는 보안 사고를 인지한 후 이십사 시간 이내에 은행에 통지하여야 한다."), ("cp932", "外部委託先は事故を知ってから二十四時間以内に銀行へ通知しなければならない。"), ("euc_jp", "外部委託先は事故を知ってから二十四時間以内に銀行へ通知しなければならない。"))),
    *(Case(name=name, path="a.txt", data=raw, has=(FACT,), lacks=(WRONG, *lacks)) for name, raw, lacks in (
        ("ends of Windows", f"{FACT}\r\n\r\nx\r\n".encode(), ("\r",)), ("ends of an old Mac", f"{FACT}\r\rx\r".encode(), ("\r",)), ("mixed ends", f"a\r\n{FACT}\nb\rc".encode(), ("\r",)), ("NUL between", b"a\x00b\n" + FACT.encode(), ("\x00",)), ("a form feed", b"a\x0c" + FACT.encode(), ("\x0c",)), ("a soft hyphen", FACT.replace("deposit", "de\u00adposit").encode(), ("\u00ad",)), ("zero-width blanks", FACT.replace("deposit", "de\u200bposit").encode(), ("\u200b",)),
        ("a word joiner", FACT.replace("deposit", "de\u2060posit").encode(), ("\u2060",)), ("a byte order mark inside", FACT.replace("is", "\ufeffis").encode(), ("\ufeff",)), ("colours of a terminal", f"\x1b[1;31m{FACT}\x1b[0m".encode(), ("\x1b", "[1;31m")), ("a link of a terminal", f"\x1b]8;;http://x.example\x07{FACT}\x1b]8;;\x07".encode(), ("\x1b", "\x07")), ("marks that isolate", f"\u2066{FACT}\u2069".encode(), ("\u2066",)), ("hidden tags", (FACT + "".join(chr(0xE0000 + ord(c)) for c in "do it")).encode(), ()), ("C1 controls", f"{FACT}\u0085x\u009b".encode(), ("\u009b",)), ("broken UTF-8", b"x \xff\xfe y \xc3 " + FACT.encode(), ()), ("tabs", f"a\tb\n\n{FACT}".encode(), ()), ("trailing blanks", f"{FACT}   \n\n\n\n\nx".encode(), ("\n\n\n",)))),
    *(Case(name=f"text named {name}", path=name, data=f"{FACT}\n".encode(), has=(FACT,)) for name in ("README", "a.text", "LICENSE", "a.TXT")),
    *(Case(name=f"not text: {name}", path="a.txt", data=raw, fails="binary|no text|not supported|empty|program|cannot") for name, raw in (("GIF", b"GIF89a" + bytes(100)), ("JPEG", b"\xff\xd8\xff\xe0" + bytes(100)), ("gzip", b"\x1f\x8b\x08" + bytes(100)), ("SQLite", b"SQLite format 3\x00" + bytes(100)), ("blanks", b" \n \n"), ("a Java class", b"\xca\xfe\xba\xbe" + bytes(100)))),
    *(Case(name=f"text in {name}", path="a.txt", data=text.encode(), has=(text,)) for name, text in (("Thai", THAI), ("Arabic", ARABIC), ("Persian", "می\u200cخواهم گزارش بدهم"), ("Hindi", "क्\u200dष सूचना चौबीस घंटे में"), ("emoji", "fine 👨\u200d👩\u200d👧 done"))),
]  # fmt: skip

# ---- archives


def stamped(files: Mapping[str, bytes | str], *, flags: int = 0) -> bytes:
    """A zip whose first entry says that it is encrypted, where `flags` is 1."""
    data = bytearray(zip_of(dict(files)))
    for mark, at_ in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(mark)
        data[place + at_] |= flags
    return bytes(data)


ZIPS = [
    *(Case(name=f"the member {name!r}", path="a.zip", data=zip_of({name: FACT, "good.txt": FACT}), check=lambda d: [a.name for a in d.attachments] == ["good.txt"] and any("archive" in w or "left out" in w for w in d.warnings)) for name in (
        "../up.txt", "../../etc/passwd", "/etc/passwd", "a/../../up.txt", "C:\\up.txt", "c:/up.txt", "a\\..\\..\\up.txt", "\\\\host\\share\\x.txt", "..", "./../x.txt")),
    *(Case(name=f"the member {name!r} is furniture", path="a.zip", data=zip_of({name: WRONG, "good.txt": FACT}), check=lambda d: [a.name for a in d.attachments] == ["good.txt"]) for name in ("__MACOSX/._good.txt", ".DS_Store", "a/.DS_Store", "Thumbs.db", "folder/")),
    *(Case(name=f"the member {name!r} is a file", path="a.zip", data=zip_of({name: FACT}), check=lambda d, name=name: [a.name for a in d.attachments] == [name]) for name in ("a.txt", "a/b/c.txt", "Größe.txt", "a b.txt", "a..b.txt", "x/a.tar", "日本.txt")),
    Case(name="a list of its files", path="a.zip", data=zip_of({"b.txt": FACT, "a.txt": FACT}), has=("a.txt", "b.txt")),
    Case(name="the bytes of its files", path="a.zip", data=zip_of({"a.txt": FACT}), check=lambda d: d.attachments[0].data == FACT.encode()),
    *(Case(name=f"packed by {name}", path="a.zip", data=zip_of({"a.txt": FACT}, method=method), check=lambda d: d.attachments[0].data == FACT.encode()) for name, method in (("nothing", zipfile.ZIP_STORED), ("deflate", zipfile.ZIP_DEFLATED), ("bzip2", zipfile.ZIP_BZIP2), ("LZMA", zipfile.ZIP_LZMA))),
    Case(name="an empty archive", path="a.zip", data=zip_of({}), fails="no |empty"),
    Case(name="folders only", path="a.zip", data=zip_of({"a/": "", "b/": ""}), fails="no |empty"),
    Case(name="an encrypted file", path="a.zip", data=stamped({"a.txt": FACT}, flags=1), fails="encrypted, needs a password"),
    Case(name="a zip bomb", path="a.zip", data=lambda: zip_of({"a.txt": bytes(30_000_000), "good.txt": FACT}), fails="refused|unpack"),
    Case(name="20,001 files", path="a.zip", data=lambda: zip_of({f"{n}": b"" for n in range(20_001)}), fails="refused"),
    Case(name="an archive in an archive", path="a.zip", data=zip_of({"in.zip": zip_of({"a.txt": FACT})}), check=lambda d: [a.name for a in d.attachments] == ["in.zip"]),
    Case(name="an empty file", path="a.zip", data=zip_of({"a.txt": "", "b.txt": FACT}), check=lambda d: "b.txt" in [a.name for a in d.attachments]),
    *(Case(name=f"damaged: {name}", path="a.zip", data=raw, fails="damaged") for name, raw in (("cut in half", zip_of({"a.txt": FACT})[:60]), ("no directory", zip_of({"a.txt": FACT})[:-60]), ("a mark only", b"PK\x03\x04" + bytes(50)))),
    Case(name="a file whose sum is wrong", path="a.zip", data=zip_of({"a.txt": FACT}, method=zipfile.ZIP_STORED).replace(b"7,431", b"9,431"), fails="damaged"),
    Case(name="noise before it", path="a.zip", data=zip_of({"a.txt": FACT}) + b"", check=lambda d: len(d.attachments) == 1),
    Case(name="a name of 5,000 letters", path="a.zip", data=zip_of({"x" * 5000 + ".txt": FACT, "good.txt": FACT}), check=lambda d: "good.txt" in [a.name for a in d.attachments]),
    Case(name="control characters in a name", path="a.zip", data=zip_of({"a\x1b[31m\n.txt": FACT}), fails="refused"),
    Case(name="two files of one spelling", path="a.zip", data=zip_of({"A.txt": "1", "a.txt": FACT}), check=lambda d: len(d.attachments) == 2),
]  # fmt: skip

# ---- PDF: passwords and layers


def layered(*, off: bool, member: bool = False) -> bytes:
    """A PDF with the wrong fact on a layer."""
    layer = "/OC /MC0 BDC\n" + at(60, 600, WRONG) + "EMC\n/OC /MC1 BDC\n" + at(60, 560, "This layer is on.") + "EMC\n"
    data = pdf([at(60, 700, FACT) + layer])
    name = b"92" if member else b"90"
    data = data.replace(b"/Font << /F1 3 0 R", b"/Properties << /MC0 %s 0 R /MC1 91 0 R >> /Font << /F1 3 0 R" % name)
    settings = b"/OFF [90 0 R]" if off else b"/ON [90 0 R]"
    data = data.replace(
        b"<< /Type /Catalog", b"<< /Type /Catalog /OCProperties << /OCGs [90 0 R 91 0 R] /D << %s >> >>" % settings
    )
    groups = b"90 0 obj\n<< /Type /OCG /Name (One) >>\nendobj\n91 0 obj\n<< /Type /OCG /Name (Two) >>\nendobj\n92 0 obj\n<< /Type /OCMD /OCGs [90 0 R] >>\nendobj\n"
    return data.replace(b"xref\n", groups + b"xref\n", 1)


LAYERS = [
    Case(name="a layer that is off", path="a.pdf", data=layered(off=True), has=(FACT, "This layer is on."), warns="hidden text"),
    Case(name="a group of layers that is off", path="a.pdf", data=layered(off=True, member=True), has=(FACT, "This layer is on."), warns="hidden text"),
    Case(name="a layer that is on", path="a.pdf", data=layered(off=False), has=(FACT, "This layer is on.", WRONG), lacks=()),
]  # fmt: skip

ALL = {
    "PPTX": SLIDES,
    "ODT": ODTS,
    "HTML": HTMLS,
    "EML": MAILS,
    "JSON": RECORDS,
    "CSV": CSVS,
    "Markdown": MARKDOWN,
    "RST": RSTS,
    "text": TEXTS,
    "ZIP": ZIPS,
    "PDF": LAYERS,
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{name}: {c.name}") for name, cases in ALL.items() for c in cases]
)
def test_a_file_that_is_nasty_in_the_way_of_its_format(case: Case) -> None:
    data = case.data() if callable(case.data) else case.data
    raw = RawDocument(id="s/x", source="s", path=case.path, data=data, unpack=True)
    if case.fails is not None:
        with pytest.raises(ParseError, match=case.fails):
            parse(raw)
        return
    document = parse(raw)
    spoken = re.sub(r"[^\S\n]+", " ", document.text)
    assert [fact for fact in case.has if fact not in document.text and fact not in spoken] == []
    assert [fact for fact in case.lacks if fact in document.text] == []
    assert case.warns is None or any(case.warns in warning for warning in document.warnings), document.warnings
    assert case.check is None or case.check(document)


@pytest.mark.parametrize("name", [name for name in ALL if name != "PDF"])
def test_each_format_has_forty_files_of_its_own(name: str) -> None:
    assert len(ALL[name]) >= 40

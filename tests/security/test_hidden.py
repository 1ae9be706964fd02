"""Text that nobody can see is dropped or labelled when a file is read, and what only looks odd stays."""

from __future__ import annotations

import json

import pytest
from attacks import HIDING, PLAIN
from checks import control_characters

from citehound.documents import Document, RawDocument
from citehound.parsing import parse

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

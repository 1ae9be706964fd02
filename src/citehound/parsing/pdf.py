"""PDF: text in reading order with pages, headings and tables, from the glyphs that pdfium places; does no OCR."""

from __future__ import annotations

import ctypes
import importlib
import math
import re
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from statistics import median
from typing import Any

from ..errors import ParseError
from .blocks import Block, BlockKind
from .extract import Extract, PageStart, cell, clean, clean_line

MAX_PAGES = 20_000
MAX_GLYPHS = 60_000
"""Of one page; the rest of the page is left out and reported."""

_OCR_DPI = 300
_MOST_PIXELS = 5_000
"""Of one side of a page's picture."""
_OCR_SIZE = 10.0
"""Taken for the size of all letters read by OCR, which are too uneven to tell headings."""
_OCR_SECONDS = 60.0
"""For one page."""
_MOST_SHAPES = 400
"""On a page with more rectangles or lines it is a drawing; they are then not asked what they hide."""
_MOST_RULES = 5_000
_WIDE = 0.9
"""A gap of so many ems cuts a line into pieces, which may be columns or cells."""
_SENTENCE = re.compile(r"[.!?:;。！？][\"”’»)\]]*$")
_BULLET = re.compile(r"[•◦▪▫‣⁃●○■□♦➢➤✓❖\uf0b7\uf0a7\uf0d8]|[-–—*o·](?=\s)")
_MARKER = re.compile(
    r"(?:\(?(?:\d{1,3}|[a-zA-Z]{1,2}|[ivxlcIVXLC]{1,5})[.)]|\d{1,3}(?:\.\d{1,3}){1,5}[.)]?|§+\s*\d+[a-z]?|"
    r"[•◦▪▫‣⁃●○■□♦➢➤✓❖\uf0b7\uf0a7\uf0d8]|[-–—*o·])(?:\s|$)"
)
_MULTI = re.compile(r"\d{1,3}(?:\.\d{1,3}){1,5}[.)]?\s+\S")
_PAGE_NUMBER = re.compile(
    r"[-–—\s\[(|]*(?:(?:page|seite|página|pagina|pág\.?|p\.|side|sida|strona|стр\.?)\s*)?"
    r"(?:[A-Z]{1,2}-)?(\d{1,4}|[ivxlc]{1,6})(?:\s*(?:of|/|von|de|di|of the|из|sur)\s*\d{1,4})?[-–—\s\])|]*",
    re.I,
)
_CODE = re.compile(r"[A-Z0-9]+(?:[-./:_][A-Z0-9]+)*|[0-9a-f]{6,}")
_ODD = re.compile("[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufffd\ue000-\uefff\uf100-\uf8fe]")
"""Characters that no text has: controls and private ones, those of symbol fonts aside."""
_HYPHENS = "-\u2010\ufffe\x02\u00ad"

_COMMON_WORDS = """
the of and to in for is on that with as by this or be are from at shall not any an it
der die das und den von zu mit ist des für im auf nicht ein eine dem sich als auch
le la les des et du en un une est pour que dans qui par sur au pas
el los las del y se por con para una su al lo como
o a os que do da em um uma não dos das ao
il di che e per non sono della con una del
de het een van en op te dat voor niet met zijn
och att det som en på är av för till inte og er på til ikke med den
ja ei on että se w i na z nie do jest się że a v je s si na se és az hogy nem egy
ve bir bu için ile de da și în cu nu sau la din и в не на с что по για και το της να του στο η
dan yang di untuk dengan và của là các không có
"""
_COMMON = frozenset(_COMMON_WORDS.split())

# pypdfium2 has no types; these are its three modules, loaded at the first PDF.
_modules: dict[str, Any] = {}


def _pdfium(name: str = "pypdfium2.raw") -> Any:
    if name not in _modules:
        try:
            _modules[name] = importlib.import_module(name)
        except ImportError as error:
            raise ParseError("PDF needs the package 'pypdfium2': install it") from error
    return _modules[name]


_Box = tuple[float, float, float, float]
"""Left, top, right, bottom of the page as it is shown."""


@dataclass(slots=True)
class _Piece:
    """Glyphs that stand together on one line."""

    text: str
    x0: float
    x1: float
    top: float
    bottom: float
    size: float
    bold: bool
    hyphen: bool = False
    page: int = 0

    @property
    def height(self) -> float:
        return max(0.1, self.bottom - self.top)


@dataclass(slots=True, kw_only=True)
class _Line:
    """One line of reading, or one row of a table."""

    text: str
    x0: float
    x1: float
    top: float
    bottom: float
    size: float
    bold: bool
    page: int
    hyphen: bool = False
    row: bool = False
    """True for a table's row; `text` then has the cells joined by ' | '."""
    centred: bool = False
    starts: bool = False
    """True when the line begins what was set apart: a column, a band."""


@dataclass(kw_only=True)
class _Page:
    number: int
    width: float
    height: float
    pieces: list[_Piece] = field(default_factory=list[_Piece])
    images: int = 0
    hidden: int = 0
    struck: int = 0
    watermark: str = ""
    cut: bool = False
    rules: list[_Box] = field(default_factory=list["_Box"])
    """Lines across and upright, which may part the cells of a table."""

    @cached_property
    def text(self) -> str:
        return "\n".join(p.text for p in self.pieces)


def parse_pdf(data: bytes, *, password: str | None = None, ocr: bool = False, language: str | None = None) -> Extract:
    """Blocks of a PDF with the place where each page begins.

    With `ocr`, pages without usable text are read from their picture, in `language` if that is known.
    Raises ParseError for what is encrypted, damaged, or has no text that is language.
    """
    pdfium = _pdfium("pypdfium2")
    raw = _pdfium()
    warnings: list[str] = []
    start = data.find(b"%PDF-", 0, 2048)
    if start > 0:
        data = data[start:]
    try:
        document = pdfium.PdfDocument(data, password=password)
    except pdfium.PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code == 4:
            reason = "encrypted, needs a password" if password is None else "encrypted, the password is wrong"
            raise ParseError(reason) from error
        if code == 5:
            raise ParseError("encrypted in a way that cannot be read") from error
        raise ParseError("damaged: no readable PDF structure") from error
    try:
        count = len(document)
        if count == 0:
            raise ParseError("damaged: no pages can be read")
        if b"%%EOF" not in data[-4096:]:
            warnings.append(f"damaged: the end of the file is missing; {count} pages could be found")
        if count > MAX_PAGES:
            warnings.append(f"only the first {MAX_PAGES} of {count} pages were read")
        permissions = raw.FPDF_GetDocPermissions(document)
        if permissions & 0x10 == 0:
            warnings.append("its owner restricts copying")
        forms = raw.FPDF_GetFormType(document) != 0
        layers = _has_layers(data)
        fonts: dict[str, _Font] = {}
        pages: list[_Page] = []
        for index in range(min(count, MAX_PAGES)):
            try:
                pages.append(_read_page(document, index, forms=forms, layers=layers, fonts=fonts))
            except pdfium.PdfiumError:
                warnings.append(f"page {index + 1} is damaged and was left out")
                pages.append(_Page(number=index, width=1, height=1))
        if ocr:
            warnings.extend(_read_pictures(document, pages, language=language))
        outline = _outline(document)
        about = {str(k): clean_line(str(v)) for k, v in document.get_metadata_dict().items() if v}
    finally:
        document.close()
    warnings.extend(_judge(pages))
    return _build(pages, outline, about, warnings)


_PACKED = re.compile(rb"/ObjStm\b(?:(?!endobj).){0,1000}?stream\r?\n", re.DOTALL)


def _has_layers(data: bytes) -> bool:
    """False for a file without optional content, also in the objects that are packed together."""
    if b"/OCProperties" in data:
        return True
    if b"/ObjStm" not in data:
        return False
    rest = 50_000_000
    view = memoryview(data)
    for match in _PACKED.finditer(data):
        try:
            unpacked = zlib.decompressobj().decompress(view[match.end() :], rest)
        except zlib.error:  # encrypted, or packed in another way
            return True
        rest -= len(unpacked)
        if b"/OCProperties" in unpacked or rest <= 0:
            return True
    return False


def _read_pictures(document: Any, pages: Sequence[_Page], *, language: str | None) -> list[str]:
    """Reads the pages whose text cannot be used from their pictures; says which these were."""
    from .ocr import read_lines

    garbled_all = garbled("\n".join(p.text for p in pages))
    wanted = [
        p
        for p in pages
        if garbled_all
        or (p.images and not any(c.isalnum() for c in p.text))
        or (len(p.text) > 200 and garbled(p.text, strict=True))
    ]
    words = unsure = 0
    for page in wanted:
        shown = document[page.number]
        try:
            width, height = shown.get_size()
            scale = min(_OCR_DPI / 72, _MOST_PIXELS / max(width, height, 1))
            picture = shown.render(scale=scale, grayscale=True).to_pil()
        finally:
            shown.close()
        lines = read_lines(picture, language=language, seconds=_OCR_SECONDS)
        words += sum(line.words for line in lines)
        unsure += sum(line.unsure for line in lines)
        page.pieces = [
            _Piece(
                text=clean_line(line.text),
                x0=line.left / scale,
                x1=line.right / scale,
                top=line.top / scale,
                bottom=line.bottom / scale,
                size=_OCR_SIZE,
                bold=False,
                hyphen=line.text.endswith(tuple(_HYPHENS)),
                page=page.number,
            )
            for line in lines
        ]
        page.width, page.height, page.hidden, page.struck, page.watermark = width, height, 0, 0, ""
        page.__dict__.pop("text", None)
    doubt = f"; {100 * unsure / words:.0f} % of the words are unsure" if unsure else ""
    return [f"read by OCR: {_page_list(wanted)}{doubt}"] if wanted else []


def _judge(pages: Sequence[_Page]) -> list[str]:
    """Warnings about pages that cannot be used, which are emptied; raises ParseError when none is left."""
    warnings: list[str] = []
    blank = [p for p in pages if not any(c.isalnum() for c in p.text)]
    if len(blank) == len(pages):
        raise ParseError("needs OCR: no text layer")
    everything = "\n".join(p.text for p in pages)
    if garbled(everything):
        raise ParseError("needs OCR: text layer is not language")
    broken = [p for p in pages if len(p.text) > 200 and garbled(p.text, strict=True)]
    for page in broken:
        page.pieces = []
    scanned = [p for p in blank if p.images]
    if scanned:
        warnings.append(f"needs OCR: no text on {_page_list(scanned)}")
    if broken:
        warnings.append(f"needs OCR: text is not language on {_page_list(broken)}")
    hidden = sum(p.hidden for p in pages)
    if hidden:
        warnings.append(f"hidden text left out ({hidden} characters)")
    struck = sum(p.struck for p in pages)
    if struck:
        warnings.append(f"struck text left out ({struck} characters)")
    marks = Counter(p.watermark for p in pages if p.watermark)
    if marks:
        warnings.append(f"slanted text left out: {marks.most_common(1)[0][0][:60]!r}")
    cut = [p for p in pages if p.cut]
    if cut:
        warnings.append(f"too many characters, not all were read, on {_page_list(cut)}")
    return warnings


def _page_list(pages: Sequence[_Page]) -> str:
    numbers = [str(p.number + 1) for p in pages]
    shown = ", ".join(numbers[:12]) + (f" and {len(numbers) - 12} more" if len(numbers) > 12 else "")
    return f"page{'s' if len(numbers) > 1 else ''} {shown}"


def garbled(text: str, *, strict: bool = False) -> bool:
    """True when a text layer is not language: glyph numbers, shifted letters, private characters.

    `strict` asks for more proof, as for a single page, which may be all names and numbers.
    """
    sample = text[:200_000]
    tokens = sample.split()
    shown = "".join(tokens)
    if len(shown) < 20:
        return False
    odd = len(_ODD.findall(shown))
    if odd > 0.15 * len(shown):
        return True
    if len(tokens) >= 30 and sum(t in _COMMON for t in tokens) >= (0.04 + 0.02 * strict) * len(tokens):
        return False  # as most are, found out at less cost
    words = [w for w in (t.strip("\"'“”‘’„«»()[]{}.,;:!?…*-–—/") for t in tokens) if w]
    common = sum(n for w, n in Counter(words).items() if w.lower() in _COMMON) / max(1, len(words))
    if len(words) >= 30 and common >= 0.04 + 0.02 * strict:
        return False
    letters = [c for c in shown if c.isalpha()]
    latin = sum(1 for c in letters if c < "\u0250")
    if letters and latin < 0.5 * len(letters):
        return False
    if len(words) < 30:
        return odd > 0.05 * len(shown)
    if odd <= 0.01 * len(shown) and sum(1 for w in words if _CODE.fullmatch(w)) >= 0.6 * len(words):
        return _is_shifted(words[:400])  # part numbers and bank codes are no language either, but are what they seem
    lower = [c for c in letters if c.islower()]
    vowels = sum(1 for c in letters if c.lower() in "aeiouyàáâãäåæèéêëìíîïòóôõöøùúûüýœ")
    vowel_share = vowels / len(letters) if letters else 0.0
    ordinary = sum(1 for w in words if re.fullmatch(r"[^\W\d_]+(?:['’.&/-][^\W\d_]+)*|[\d.,:/%$€£-]+", w)) / len(words)
    consonants = sum(1 for w in words if len(w) > 3 and w.isalpha() and not re.search("[aeiouyà-üœ]", w.lower()))
    signs = (
        (odd > 0.01 * len(shown))
        + (ordinary < 0.6)
        + (len(letters) > 60 and not 0.27 <= vowel_share <= 0.62)
        + (len(lower) < 0.3 * max(1, len(letters)) and len(words) > 100)
        + (consonants > 0.12 * len(words))
        + (common < 0.012 and len(words) > 60)
    )
    return signs >= 2 + strict


def _is_shifted(words: Sequence[str]) -> bool:
    """True when the words become common ones by moving all their characters by the same number."""
    for by in (*range(-40, 0), *range(1, 41)):
        moved = ("".join(chr(max(1, ord(c) + by)) for c in word).lower() for word in words)
        if sum(word in _COMMON for word in moved if len(word) > 1) >= 0.08 * len(words):
            return True
    return False


# ---- one page: from glyphs to pieces of lines


@dataclass(slots=True)
class _Font:
    """What is known of a font, in ems."""

    bold: bool
    widths: dict[str, float] = field(default_factory=lambda: {" ": 0.0})
    """Of its glyphs, as far as they were met; blanks do not count."""
    blank: float | None = None


@dataclass(slots=True)
class _Style:
    size: float
    font: _Font
    invisible: bool
    pale: bool
    angle: int
    """0, 90, 180 or 270; -1 for slanted."""
    colour: tuple[int, int, int] = (0, 0, 0)
    em: float = 1.0
    """How wide an em is."""
    z: int = -1
    """Its place in the order of painting, -1 where that is not known."""
    layered: bool = False
    """True for text that may be on a layer which is switched off."""


@dataclass(slots=True, kw_only=True)
class _Painted:
    """What is painted on a page beside text."""

    grounds: list[_Box] = field(default_factory=list[_Box])
    """Shapes that pale text could stand on."""
    scan: bool = False
    """True when an image covers most of the page."""
    covers: list[tuple[int, _Box, tuple[int, int, int]]] = field(
        default_factory=list[tuple[int, _Box, tuple[int, int, int]]]
    )
    """Opaque rectangles with their place in the order of painting and their colour."""
    strokes: list[_Box] = field(default_factory=list[_Box])
    """Thin horizontal lines, which may strike words out."""
    rules: list[_Box] = field(default_factory=list[_Box])
    """These, upright ones, and the sides of rectangles."""
    marks: list[_Box] = field(default_factory=list[_Box])
    """Strike-out annotations."""
    typed: list[tuple[str, _Box]] = field(default_factory=list[tuple[str, _Box]])
    """Text that somebody has typed on the page, and where."""
    order: dict[int, int] = field(default_factory=dict[int, int])
    """A text object's address to its place in the order of painting."""
    layered: set[int] = field(default_factory=set[int])
    """Addresses of the text objects on a layer, which may be switched off."""
    nested: bool = False
    """True when text inside forms may be on a layer, too."""


def _read_page(document: Any, index: int, *, forms: bool, layers: bool, fonts: dict[str, _Font]) -> _Page:
    raw = _pdfium()
    page = document[index]
    try:
        if forms and raw.FPDFPage_Flatten(page, 0) == 1:  # puts the values of form fields into the page
            page.close()
            page = document[index]
        rotation = int(raw.FPDFPage_GetRotation(page))
        left, bottom, right, top = page.get_cropbox()
        width, height = right - left, top - bottom
        result = _Page(number=index, width=width, height=height)
        if rotation % 2:
            result.width, result.height = height, width
        painted = _shapes(page, result, box=(left, bottom, right, top), rotation=rotation, layers=layers)
        text = page.get_textpage()
        try:
            letters = _Letters(text, painted, fonts=fonts)
            _read_glyphs(
                letters, result, box=(left, bottom, right, top), rotation=rotation, painted=painted, shown=_Shown(page)
            )
        finally:
            text.close()
        return result
    finally:
        page.close()


def _turn(
    x0: float, y0: float, x1: float, y1: float, *, box: tuple[float, float, float, float], rotation: int
) -> tuple[float, float, float, float]:
    """A box of PDF space (up is up) as left, top, right, bottom of the page as it is shown (down is up)."""
    left, bottom, right, top = box
    match rotation % 4:
        case 0:
            return x0 - left, top - y1, x1 - left, top - y0
        case 1:
            return y0 - bottom, x0 - left, y1 - bottom, x1 - left
        case 2:
            return right - x1, y0 - bottom, right - x0, y1 - bottom
        case _:
            return top - y1, right - x1, top - y0, right - x0


def _shapes(
    page: Any, result: _Page, *, box: tuple[float, float, float, float], rotation: int, layers: bool
) -> _Painted:
    """What is painted beside text; images are counted."""
    raw, calls = _pdfium(), _calls()
    found = _Painted()
    area = max(1.0, result.width * result.height)
    bounds_of = (ctypes.c_float * 4)()
    colour_of = (ctypes.c_uint * 4)()
    drawn = (ctypes.c_int * 2)()
    bounds_at, colour_at, drawn_at = (ctypes.addressof(buffer) for buffer in (bounds_of, colour_of, drawn))
    page_at = _address(page)
    text, path = raw.FPDF_PAGEOBJ_TEXT, raw.FPDF_PAGEOBJ_PATH
    pictures = (raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_FORM)
    for number in range(min(20_000, raw.FPDFPage_CountObjects(page))):
        item = calls.page_object(page_at, number)
        kind = calls.kind(item)
        if kind == text:
            found.order[item] = number
            if layers and calls.marks(item) > 0 and _on_layer(item):
                found.layered.add(item)
            continue
        if not calls.bounds(item, bounds_at, bounds_at + 4, bounds_at + 8, bounds_at + 12):
            continue
        x0, y0, x1, y1 = bounds_of
        bounds = _turn(x0, y0, x1, y1, box=box, rotation=rotation)
        w, h = bounds[2] - bounds[0], bounds[3] - bounds[1]
        if kind in pictures:
            result.images += 1
            found.nested = found.nested or (layers and kind == raw.FPDF_PAGEOBJ_FORM)
            found.scan = found.scan or w * h > 0.5 * area
            found.grounds.append(bounds)
        elif kind == path:
            if not calls.draw_mode(item, drawn_at, drawn_at + 4):
                continue
            fill, stroke = drawn
            if (fill or stroke) and len(found.rules) < _MOST_RULES:
                if min(w, h) <= 2 < max(w, h):
                    found.rules.append(bounds)
                elif stroke and calls.segments(item) <= 6:
                    left, top, right, bottom = bounds
                    found.rules += [(left, y, right, y) for y in (top, bottom)]
                    found.rules += [(x, top, x, bottom) for x in (left, right)]
            if h <= 2 and w >= 4 and (fill or stroke):
                found.strokes.append(bounds)
            elif (
                fill and w > 3 and h > 3 and calls.colour(item, colour_at, colour_at + 4, colour_at + 8, colour_at + 12)
            ):
                red, green, blue, alpha = colour_of
                colour = (red, green, blue)
                if min(colour) < 225 and alpha > 20:
                    found.grounds.append(bounds)
                if alpha >= 250 and calls.segments(item) <= 6 and not calls.transparent(item):
                    found.covers.append((number, bounds, colour))
    if len(found.covers) > _MOST_SHAPES:
        found.covers.clear()
    if len(found.strokes) > _MOST_SHAPES:
        found.strokes.clear()
    rect = raw.FS_RECTF()
    for number in range(min(2_000, raw.FPDFPage_GetAnnotCount(page))):
        note = raw.FPDFPage_GetAnnot(page, number)
        if not note:
            continue
        kind = raw.FPDFAnnot_GetSubtype(note)
        if kind == raw.FPDF_ANNOT_FREETEXT and raw.FPDFAnnot_GetRect(note, rect):
            place = _turn(rect.left, rect.bottom, rect.right, rect.top, box=box, rotation=rotation)
            found.typed.append((_contents(note), place))
        if kind == raw.FPDF_ANNOT_STRIKEOUT:
            quad = raw.FS_QUADPOINTSF()
            for at in range(min(500, raw.FPDFAnnot_CountAttachmentPoints(note))):
                if raw.FPDFAnnot_GetAttachmentPoints(note, at, quad):
                    xs, ys = (quad.x1, quad.x2, quad.x3, quad.x4), (quad.y1, quad.y2, quad.y3, quad.y4)
                    found.marks.append(_turn(min(xs), min(ys), max(xs), max(ys), box=box, rotation=rotation))
            if not raw.FPDFAnnot_CountAttachmentPoints(note) and raw.FPDFAnnot_GetRect(note, rect):
                found.marks.append(_turn(rect.left, rect.bottom, rect.right, rect.top, box=box, rotation=rotation))
        raw.FPDFPage_CloseAnnot(note)
    return found


def _contents(note: Any) -> str:
    raw = _pdfium()
    size = min(100_000, raw.FPDFAnnot_GetStringValue(note, b"Contents", None, 0))
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    raw.FPDFAnnot_GetStringValue(note, b"Contents", buffer, size)
    return bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace")


def _on_layer(item: int) -> bool:
    """True for an object that is marked as optional content."""
    raw, calls = _pdfium(), _calls()
    name = (ctypes.c_ushort * 8)()
    length = ctypes.c_ulong()
    for number in range(calls.marks(item)):
        mark = ctypes.cast(calls.mark(item, number), raw.FPDF_PAGEOBJECTMARK)
        if raw.FPDFPageObjMark_GetName(mark, name, ctypes.sizeof(name), length) and name[:3] == [0x4F, 0x43, 0]:  # OC
            return True
    return False


class _Shown:
    """A page as it is shown, drawn when it is first asked for."""

    def __init__(self, page: Any) -> None:
        self._page = page

    @cached_property
    def _picture(self) -> tuple[bytes, int, int, int, float]:
        scale = min(1.5, 3_000 / max(1.0, *self._page.get_size()))
        bitmap = self._page.render(scale=scale, grayscale=True)
        try:
            return bytes(bitmap.buffer), int(bitmap.stride), int(bitmap.width), int(bitmap.height), scale
        finally:
            bitmap.close()

    def blank(self, box: _Box) -> bool:
        """True when there is nothing to be seen in a part of the page."""
        pixels, stride, width, height, scale = self._picture
        left, top, right, bottom = (round(edge * scale) for edge in box)
        left, right = max(0, left), min(width, max(right, left + 1))
        rows = [pixels[y * stride + left : y * stride + right] for y in range(max(0, top), min(height, bottom + 1))]
        shades = b"".join(rows)
        return not shades or max(shades) - min(shades) < 8


def _covered(style: _Style, x: float, y: float, covers: Sequence[tuple[int, _Box, tuple[int, int, int]]]) -> bool:
    """True for a glyph under an opaque rectangle, or of the colour of the one it stands on."""
    ground: tuple[int, int, int] | None = None
    for z, bounds, colour in covers:
        if bounds[0] <= x <= bounds[2] and bounds[1] <= y <= bounds[3]:
            if z > style.z:
                return True
            ground = colour
    return ground is not None and max(abs(p - q) for p, q in zip(ground, style.colour, strict=True)) <= 10


def _struck(places: Sequence[tuple[int, _Box]], strokes: Iterable[_Box], marks: Sequence[_Box]) -> set[int]:
    """Numbers of the glyphs that a line or an annotation strikes out."""
    found: set[int] = set()
    for number, (x0, y0, x1, y1) in places if marks else ():
        x, y = (x0 + x1) / 2, y0 + 0.55 * (y1 - y0)
        if any(m[0] <= x <= m[2] and m[1] <= y <= m[3] for m in marks):
            found.add(number)
    for line in strokes:
        middle = _middle(line)
        hit = [
            (number, box[2] - box[0])
            for number, box in places
            if box[1] + 0.4 * (box[3] - box[1]) <= middle <= box[1] + 0.72 * (box[3] - box[1])
            and line[0] - 1 <= (box[0] + box[2]) / 2 <= line[2] + 1
        ]
        if sum(width for _, width in hit) >= 0.6 * (line[2] - line[0]):
            found.update(number for number, _ in hit)
    return found


@dataclass(frozen=True, kw_only=True)
class _Calls:
    """What is called for every word or object, with plain numbers for addresses: pypdfium2's own cost far more."""

    letter: Any
    """A glyph's code point."""
    owner: Any
    """The address of a glyph's text object."""
    box: Any
    """Fills in a glyph's box."""
    text: Any
    """Fills in the text of some glyphs, as UTF-16."""
    matrix: Any
    font_size: Any
    fill: Any
    mode: Any
    font: Any
    font_info: Any
    weight: Any
    page_object: Any
    kind: Any
    bounds: Any
    draw_mode: Any
    colour: Any
    segments: Any
    transparent: Any
    marks: Any
    mark: Any


@cache
def _calls() -> _Calls:
    raw, address, number = _pdfium(), ctypes.c_void_p, ctypes.c_int

    def plain(name: str, result: Any, *arguments: Any) -> Any:
        prototype: Any = ctypes.CFUNCTYPE(result, *arguments)
        return prototype(ctypes.cast(getattr(raw, name), address).value)

    four = (address, address, address, address)
    return _Calls(
        letter=plain("FPDFText_GetUnicode", ctypes.c_uint, address, number),
        owner=plain("FPDFText_GetTextObject", address, address, number),
        box=plain("FPDFText_GetLooseCharBox", number, address, number, address),
        text=plain("FPDFText_GetText", number, address, number, number, address),
        matrix=plain("FPDFText_GetMatrix", number, address, number, address),
        font_size=plain("FPDFText_GetFontSize", ctypes.c_double, address, number),
        fill=plain("FPDFText_GetFillColor", number, address, number, *four),
        mode=plain("FPDFTextObj_GetTextRenderMode", number, address),
        font=plain("FPDFTextObj_GetFont", address, address),
        font_info=plain("FPDFText_GetFontInfo", ctypes.c_ulong, address, number, address, ctypes.c_ulong, address),
        weight=plain("FPDFText_GetFontWeight", number, address, number),
        page_object=plain("FPDFPage_GetObject", address, address, number),
        kind=plain("FPDFPageObj_GetType", number, address),
        bounds=plain("FPDFPageObj_GetBounds", number, address, *four),
        draw_mode=plain("FPDFPath_GetDrawMode", number, address, address, address),
        colour=plain("FPDFPageObj_GetFillColor", number, address, *four),
        segments=plain("FPDFPath_CountSegments", number, address),
        transparent=plain("FPDFPageObj_HasTransparency", number, address),
        marks=plain("FPDFPageObj_CountMarks", number, address),
        mark=plain("FPDFPageObj_GetMark", address, address, ctypes.c_ulong),
    )


def _address(thing: Any) -> int:
    """Of what a pypdfium2 object stands for."""
    return ctypes.cast(thing.raw, ctypes.c_void_p).value or 0


_BOLD = re.compile(r"bold|black|heavy|semibd|demi(?!.*light)")


class _Letters:
    """What pdfium says of the glyphs of one page, asked as seldom as can be."""

    def __init__(self, text: Any, painted: _Painted, *, fonts: dict[str, _Font]) -> None:
        self.total = int(_pdfium().FPDFText_CountChars(text))
        self._calls = _calls()
        self._page = _address(text)
        self._painted = painted
        self._rect = (ctypes.c_float * 4)()  # left, top, right, bottom
        self._rect_at = ctypes.addressof(self._rect)
        self._numbers = (ctypes.c_uint * 4)()
        self._matrix = (ctypes.c_float * 6)()
        self._name = ctypes.create_string_buffer(256)
        self._styles: dict[int, _Style] = {}
        self._fonts: dict[int, _Font] = {}
        self._known = fonts

    def characters(self, total: int) -> str:
        """One for each glyph."""
        buffer = ctypes.create_string_buffer(2 * total + 2)
        got = self._calls.text(self._page, 0, total, ctypes.addressof(buffer))
        if got == total + 1:
            found = buffer.raw[: 2 * total].decode("utf-16-le", "surrogatepass")
            if len(found) == total:
                return found
        codes = [self._calls.letter(self._page, index) for index in range(total)]  # some have no text, or two units
        return "".join([chr(code) if code < 0x110000 else "\ufffd" for code in codes])

    def owner(self, index: int) -> int:
        """The address of a glyph's text object, 0 for what pdfium has put in."""
        return self._calls.owner(self._page, index) or 0

    def box(self, index: int) -> tuple[float, float, float, float] | None:
        """In PDF space: left, bottom, right, top."""
        if not self._calls.box(self._page, index, self._rect_at):
            return None
        left, top, right, bottom = self._rect
        return left, bottom, right, top

    def style(self, index: int, owner: int) -> _Style:
        """The same for all glyphs of a text object."""
        style = self._styles.get(owner)
        if style is None or not owner:
            style = self._styles[owner] = self._read_style(index, owner)
            style.z = self._painted.order.get(owner, -1)
            style.layered = owner in self._painted.layered or (self._painted.nested and style.z < 0)
        return style

    def _read_style(self, index: int, owner: int) -> _Style:
        calls, page = self._calls, self._page
        scale, across, angle = 1.0, 1.0, 0
        if calls.matrix(page, index, ctypes.addressof(self._matrix)):
            a, b, c, d, _, _ = self._matrix
            across, up = math.hypot(a, b), math.hypot(c, d)
            scale = up or across or 1.0
            if across and (b or a < 0):
                cos, sin = a / across, b / across
                if abs(sin) < 0.13:
                    angle = 0 if cos > 0 else 180
                elif abs(cos) < 0.13:
                    angle = 90 if sin > 0 else 270
                else:
                    angle = -1
        font_size = float(calls.font_size(page, index))
        pale = False
        colour = (0, 0, 0)
        at = ctypes.addressof(self._numbers)
        if calls.fill(page, index, at, at + 4, at + 8, at + 12):
            red, green, blue, alpha = self._numbers
            colour = (red, green, blue)
            pale = min(colour) >= 245 or alpha < 13
        mode = calls.mode(owner) if owner else 0
        return _Style(
            size=font_size * scale,
            font=self._font(index, owner),
            invisible=mode in (3, 7),
            pale=pale and mode in (0, 4),
            angle=angle,
            colour=colour,
            em=font_size * across or 1.0,
        )

    def _font(self, index: int, owner: int) -> _Font:
        address = self._calls.font(owner) if owner else None
        known = self._fonts.get(address) if address else None
        if known is not None:
            return known
        at = ctypes.addressof(self._numbers)
        self._numbers[0] = 0
        length = self._calls.font_info(self._page, index, ctypes.addressof(self._name), 256, at)
        name = self._name.raw[: max(0, min(length - 1, 255))].decode("utf-8", "replace").lower()
        weight = self._calls.weight(self._page, index)
        font = _Font(bold=bool(_BOLD.search(name)) or weight >= 600 or bool(self._numbers[0] & 0x40000))
        if name and (same := self._known.setdefault(name, font)).bold == font.bold:
            font = same
        if address:
            self._fonts[address] = font
        return font

    def over(self, text: str, start: int, style: _Style, length: float) -> float:
        """How much longer glyphs and single blanks of a font are than they should be."""
        font = style.font
        low, high = (1, 3) if style.angle in (90, 270) else (0, 2)
        if unknown := set(text).difference(font.widths):
            for char in unknown:
                box = self.box(start + text.index(char))
                font.widths[char] = 0.0 if box is None else (box[high] - box[low]) / style.em
        if font.blank is None:
            box = self.box(start + text.index(" "))
            font.blank = 0.0 if box is None else (box[high] - box[low]) / style.em
            if not 0.1 <= font.blank <= 0.7:  # one that pdfium has put in has no width
                font.blank = 0.25
        return length - style.em * (sum(map(font.widths.__getitem__, text)) + font.blank * (len(text.split()) - 1))


_Glyphs = tuple[str, float, float, float, float, _Style, int, bool]
"""Glyphs of one text object without a wide gap between them: text, left, bottom, right and top in PDF space, style,
number of the first one, and whether a blank stands before it."""
_LINE = re.compile("[^\r\n\0]+")
_WORD = re.compile("[^ ]+")
_GLYPH = re.compile("[^ ]")


def _runs(letters: _Letters, total: int) -> list[_Glyphs]:
    """All glyphs of a page."""
    text = letters.characters(total).replace("\u00a0", " ")
    found: list[_Glyphs] = []
    blank = False
    for match in _LINE.finditer(text):
        at = match.start()
        end = at + len(match.group().rstrip(" "))
        while at < end:
            if text[at] == " ":
                blank = True
                at += 1
                continue
            owner = letters.owner(at)
            stop = _end(letters, text, at, end, owner)
            _take(letters, text[at:stop].rstrip(" "), at, letters.style(at, owner), blank, found)
            at, blank = stop, text[stop - 1] == " "
        blank = blank or end < match.end()
    return found


def _end(letters: _Letters, text: str, start: int, end: int, owner: int) -> int:
    """Where the glyphs of a text object end, which stand together; they begin at `start`."""
    if not owner:
        return start + 1
    if letters.owner(end - 1) == owner:
        return end
    low, high = start, end - 1
    while high - low > 1:
        middle = at = (low + high) // 2
        while at < high and text[at] == " ":  # those that pdfium puts in are of no object
            at += 1
        if at < high and letters.owner(at) == owner:
            low = at
        else:
            high = middle
    return high


def _take(letters: _Letters, text: str, start: int, style: _Style, blank: bool, found: list[_Glyphs]) -> None:
    """Adds glyphs of one text object, apart where there is a wide gap.

    Only the first and the last one are asked for their place as long as what is between them is as long as it must be,
    with blanks as wide as in the font, or as the one in the middle; else both halves are looked at.
    """
    upright = style.angle in (90, 270)

    def add(text: str, start: int, blank: bool, first: _Box | None, last: _Box | None) -> None:
        if first is None or last is None:
            _apart(letters, (text, 0.0, 0.0, 0.0, 0.0, style, start, blank), _GLYPH, found)
            return
        x0, y0, x1, y1 = first
        a, b, c, d = last
        box = (x0 if x0 < a else a, y0 if y0 < b else b, x1 if x1 > c else c, y1 if y1 > d else d)
        run = (text, *box, style, start, blank)
        length = box[3] - box[1] if upright else box[2] - box[0]
        if " " not in text:
            if len(text) == 1 or 0.15 * style.size * len(text) <= length <= 1.3 * style.size * len(text):
                found.append(run)
            else:
                _apart(letters, run, _GLYPH, found)
            return
        loose = 0.6 * style.size
        over = letters.over(text, start, style, length)
        if -loose <= over <= loose:
            found.append(run)
            return
        middle = text.find(" ", len(text) // 2)
        left = text[: middle if middle > 0 else text.rindex(" ")].rstrip(" ")
        right = text[len(left) :].lstrip(" ")
        at = start + len(text) - len(right)
        before, after = letters.box(start + len(left) - 1), letters.box(at)
        gap = style.size
        if before is not None and after is not None:
            low, high = (1, 3) if upright else (0, 2)
            gap = max(after[low] - before[high], before[low] - after[high])
            over -= (len(text.split()) - 1) * (gap - style.em * (style.font.blank or 0))
            if gap < 0.85 * style.size and -loose <= over <= loose:
                found.append(run)
                return
        count = len(found)
        add(left, start, blank, first, before)
        whole = len(found) == count + 1
        add(right, at, True, after, last)
        if whole and len(found) == count + 2 and gap < 0.85 * style.size:
            found[count:] = [run]

    first = letters.box(start)
    add(text, start, blank, first, letters.box(start + len(text) - 1) if len(text) > 1 else first)


def _apart(letters: _Letters, run: _Glyphs, pattern: re.Pattern[str], found: list[_Glyphs]) -> None:
    """Adds what a run has of a pattern one by one."""
    text, _, _, _, _, style, start, blank = run
    for match in pattern.finditer(text):
        first, last = letters.box(start + match.start()), letters.box(start + match.end() - 1)
        blank = text[match.start() - 1] == " " if match.start() else blank
        if first is not None and last is not None:
            box = (min(first[0], last[0]), min(first[1], last[1]), max(first[2], last[2]), max(first[3], last[3]))
            found.append((match.group(), *box, style, start + match.start(), blank))


def _read_glyphs(
    letters: _Letters,
    page: _Page,
    *,
    box: _Box,
    rotation: int,
    painted: _Painted,
    shown: _Shown,
) -> None:
    page.cut = letters.total > MAX_GLYPHS
    runs = _runs(letters, min(letters.total, MAX_GLYPHS)) if letters.total > 0 else []
    counts: Counter[int] = Counter()
    sizes: Counter[float] = Counter()
    unseen = 0
    for text, _, _, _, _, style, _, _ in runs:
        counts[style.angle] += len(text)
        sizes[style.size] += len(text)
        unseen += style.invisible * len(text)
    visible = counts.total() - unseen
    keep_unseen = bool(unseen) and painted.scan and visible < 0.2 * unseen  # what OCR lays under a scan
    main = max((a for a in counts if a >= 0), key=lambda a: counts[a], default=0)
    turned = {0: 0, 90: 1, 180: 2, 270: 3}[main]  # how the text runs in the page's own space is how it is read
    if turned % 2 != rotation % 2:
        page.width, page.height = page.height, page.width
    tiny = 2.6 if _median(sizes) > 4 else 0.0
    runs, struck = _divided(runs, letters, box=box, rotation=rotation, struck=turned == rotation % 4, painted=painted)
    page.struck = sum(len(runs[number][0]) for number in struck)
    kept: list[_Placed] = []
    slanted: list[str] = []
    for number, (text, x0, y0, x1, y1, style, _, blank) in enumerate(runs):
        if number in struck:
            continue
        if style.angle == -1:
            slanted.append(" " * blank + text)
            continue
        if (style.invisible and not keep_unseen) or (style.size < tiny and y1 - y0 < tiny * 1.5):
            page.hidden += len(text)
            continue
        if turned:
            a, b, c, d = _turn(x0, y0, x1, y1, box=box, rotation=turned)
        else:
            a, b, c, d = x0 - box[0], box[3] - y1, x1 - box[0], box[3] - y0
        if c < -2 or a > page.width + 2 or d < -2 or b > page.height + 2:
            page.hidden += len(text)
            continue
        if style.pale or (painted.covers and style.z >= 0):
            e, f, g, h = _turn(x0, y0, x1, y1, box=box, rotation=rotation)
            x, y = (e + g) / 2, (f + h) / 2
            if (
                style.pale and not any(s[0] - 1 <= x <= s[2] + 1 and s[1] - 1 <= y <= s[3] + 1 for s in painted.grounds)
            ) or (style.z >= 0 and _covered(style, x, y, painted.covers)):
                page.hidden += len(text)
                continue
        if style.layered and shown.blank(_turn(x0, y0, x1, y1, box=box, rotation=rotation)):
            page.hidden += len(text)
            continue
        kept.append((text, a, b, c, d, style, blank))
    page.watermark = clean_line("".join(slanted))
    page.rules = painted.rules if turned == rotation % 4 else []
    page.pieces = _pieces(kept, page.number, _fences(page.rules))
    for note, place in painted.typed if turned == rotation % 4 else ():
        if not shown.blank(place):
            page.pieces += _typed(note, place, page.number, size=_median(sizes) or 10.0)


def _median(sizes: Counter[float]) -> float:
    """The size that the middle one of all glyphs has; 0 without any."""
    rest = sizes.total() // 2
    for size in sorted(sizes):
        rest -= sizes[size]
        if rest < 0:
            return size
    return 0.0


def _divided(
    runs: list[_Glyphs], letters: _Letters, *, box: _Box, rotation: int, struck: bool, painted: _Painted
) -> tuple[list[_Glyphs], set[int]]:
    """The runs, apart those that may be visible only in part, and the numbers of those that are struck out."""
    strokes = sorted(painted.strokes, key=_middle) if struck else []
    middles = [_middle(stroke) for stroke in strokes]
    marks = painted.marks if struck else []
    shapes = [bounds for _, bounds, _ in painted.covers]
    left, bottom, right, top = box
    found: list[_Glyphs] = []
    places: list[tuple[int, _Box]] = []
    hit: set[_Box] = set()
    for run in runs:
        text, x0, y0, x1, y1, style, _, _ = run
        apart = style.pale or x0 < left or x1 > right or y0 < bottom or y1 > top
        count = len(found)
        if strokes or marks or shapes:
            a, b, c, d = _turn(x0, y0, x1, y1, box=box, rotation=rotation)
            high = d - b
            low, end = bisect_left(middles, b + 0.4 * high), bisect_right(middles, b + 0.72 * high)
            through = [s for s in strokes[low:end] if s[0] - 1 < c and a < s[2] + 1] if low < end else ()
            hit.update(through)
            y = b + 0.55 * high
            marked = any(m[0] < c and a < m[2] and m[1] <= y <= m[3] for m in marks)
            y = (b + d) / 2
            apart = (
                apart
                or bool(through)
                or marked
                or any(s[1] <= y <= s[3] and s[0] < c and a < s[2] and (a < s[0] or s[2] < c) for s in shapes)
            )
            if through or marked:
                _apart(letters, run, _GLYPH, found)
                places += [(n, _turn(*g[1:5], box=box, rotation=rotation)) for n, g in enumerate(found[count:], count)]
                continue
        if len(text) > 1 and (apart or style.layered):
            _apart(letters, run, _GLYPH if apart else _WORD, found)
        else:
            found.append(run)
    return found, _struck(places, hit, marks)


def _middle(stroke: _Box) -> float:
    return (stroke[1] + stroke[3]) / 2


_Placed = tuple[str, float, float, float, float, _Style, bool]
"""The same on the page as it is read: text, left, top, right, bottom, style, whether a blank stands before."""


def _typed(note: str, place: _Box, page: int, *, size: float) -> list[_Piece]:
    lines = [line for line in note.splitlines() if line.strip()]
    x0, top, x1, bottom = place
    step = (bottom - top) / max(1, len(lines))
    return [
        _Piece(
            text=line, x0=x0, x1=x1, top=top + step * n, bottom=top + step * (n + 1), size=size, bold=False, page=page
        )
        for n, line in enumerate(lines)
    ]


def _fences(rules: Sequence[_Box]) -> list[_Box]:
    """The upright ones."""
    return [rule for rule in rules if rule[3] - rule[1] > 2]


def _fenced(x0: float, x1: float, y: float, fences: Sequence[_Box]) -> bool:
    """True where an upright line stands in a gap."""
    return any(x0 - 1 <= f[0] <= x1 + 1 and f[1] <= y <= f[3] for f in fences)


def _pieces(words: Iterable[_Placed], page: int, fences: Sequence[_Box]) -> list[_Piece]:
    """Runs of glyphs on one line without a wide gap, in the order of the file."""
    pieces: list[_Piece] = []
    chars: list[str] = []
    places: list[float] = []
    now: _Piece | None = None
    bold = count = 0
    sizes = 0.0

    def end() -> None:
        nonlocal now, chars, places, bold, count, sizes
        if now is not None:
            raw_text = "".join(chars)
            if _count_rtl(raw_text):
                raw_text = _from_right(chars, places)
            now.hyphen = bool(raw_text) and raw_text[-1] in _HYPHENS
            now.text = raw_text
            now.bold = bold * 2 > count
            now.size = sizes / max(1, count)
            pieces.append(now)
        now, chars, places, bold, count, sizes = None, [], [], 0, 0, 0.0

    for word, x0, top, x1, bottom, style, blank in words:
        em = max(2.0, style.size)
        if now is not None:
            gap = x0 - now.x1 if x0 >= now.x0 else now.x0 - x1
            if top == now.top and bottom == now.bottom:
                same = True
            else:
                overlap = min(bottom, now.bottom) - max(top, now.top)
                same = overlap > 0.45 * min(bottom - top, now.height)
            back = x1 < now.x0 - em and not _RTL.match(word)
            if (
                not same
                or gap > _WIDE * em
                or back
                or (fences and gap > 0.15 * em and _fenced(now.x1, x0, (top + bottom) / 2, fences))
            ):
                end()
            elif blank or (gap > 0.28 * em and not _is_wide(word[0])):
                chars.append(" ")
                places.append(x0)
        if now is None:
            now = _Piece(
                text="", x0=x0, x1=x1, top=top, bottom=bottom, size=style.size, bold=style.font.bold, page=page
            )
        else:
            if x0 < now.x0:
                now.x0 = x0
            if x1 > now.x1:
                now.x1 = x1
            if (top < now.top or bottom > now.bottom) and bottom - top > 0.8 * now.height:
                now.top, now.bottom = min(now.top, top), max(now.bottom, bottom)
        letters = len(word)
        chars.append(word)
        places.append(x0)
        bold += style.font.bold * letters
        count += letters
        sizes += style.size * letters
    end()
    return pieces


def _from_right(parts: Sequence[str], places: Sequence[float]) -> str:
    """Parts of words with the letters of right-to-left ones in order, which pdfium gives as they stand, or not."""
    found: list[str] = []
    word: list[tuple[float, str]] = []
    for part, place in [*zip(parts, places, strict=True), (" ", 0.0)]:
        if part != " ":
            word.append((place, part))
            continue
        if all(_RTL.match(part) for _, part in word):
            word.sort(key=lambda one: -one[0])
        found.append("".join(part for _, part in word))
        word = []
    return " ".join(found)


_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufefc]")


def _count_rtl(text: str) -> int:
    """How many letters of a text run from right to left."""
    return 0 if text.isascii() else len(_RTL.findall(text))


def _is_wide(char: str) -> bool:
    return "\u2e80" <= char <= "\ud7ff" or "\uf900" <= char <= "\ufaff" or "\uff00" <= char <= "\uffef"


# ---- from pieces to lines in reading order


def _order(pieces: list[_Piece], page: _Page, depth: int = 0) -> list[_Line]:
    """Lines in reading order: columns of prose one after the other, everything else row by row."""
    if not pieces:
        return []
    cut = _gutter(pieces, page) if depth < 6 and len(pieces) >= 8 else None
    if cut is None:
        return _lines(pieces, page.rules)
    x, top, bottom = cut
    above = [p for p in pieces if (p.top + p.bottom) / 2 < top]
    below = [p for p in pieces if (p.top + p.bottom) / 2 > bottom]
    inside = [p for p in pieces if top <= (p.top + p.bottom) / 2 <= bottom]
    left = [p for p in inside if (p.x0 + p.x1) / 2 < x]
    right = [p for p in inside if (p.x0 + p.x1) / 2 >= x]
    if sum(_count_rtl(p.text[:20]) for p in inside) > 5 * len(inside):
        left, right = right, left
    lines: list[_Line] = []
    for part in (above, left, right, below):
        found = _order(part, page, depth + 1)
        if found:
            found[0].starts = True
            lines.extend(found)
    return lines


def _gutter(pieces: list[_Piece], page: _Page) -> tuple[float, float, float] | None:
    """Where columns of prose part: x, and the top and bottom of the stretch that has columns."""
    x_min, x_max = min(p.x0 for p in pieces), max(p.x1 for p in pieces)
    span = x_max - x_min
    if span < 120:
        return None
    starts = Counter(round(p.x0 / 4) for p in pieces if x_min + 0.15 * span < p.x0 < x_min + 0.85 * span)
    best: tuple[int, float, float, float] | None = None
    by_top = sorted(pieces, key=lambda p: p.top)
    for bucket, _ in sorted(starts.items(), key=lambda s: -s[1])[:12]:
        if starts[bucket] + starts[bucket + 1] + starts[bucket - 1] < 4:
            continue
        x = min(p.x0 for p in pieces if abs(round(p.x0 / 4) - bucket) <= 1)
        run: list[_Piece] = []
        runs: list[list[_Piece]] = [run]
        for piece in by_top:
            if piece.x0 < x - 3 and piece.x1 > x - 4:
                run = []
                runs.append(run)
            else:
                run.append(piece)
        for run in [*runs, *(_beside(run, x) for run in runs)]:
            left = [p for p in run if p.x1 <= x - 4]
            right = [p for p in run if p.x0 >= x - 3]
            if len(left) < 4 or len(right) < 4:
                continue
            if not _is_column(left) or not _is_column(right):
                continue
            overlap = min(max(p.bottom for p in left), max(p.bottom for p in right)) - max(
                min(p.top for p in left), min(p.top for p in right)
            )
            if overlap < 2.5 * median(p.height for p in run):
                continue
            score = len(left) + len(right)
            if best is None or score > best[0]:
                best = (score, x - 1, min(p.top for p in run), max(p.bottom for p in run))
    return None if best is None else best[1:]


def _beside(run: Sequence[_Piece], x: float) -> list[_Piece]:
    """Of a run, what stands beside the lines of prose that begin at `x` one below the other."""
    lines = [p for p in run if abs(p.x0 - x) <= 4]
    first = last = lines[0] if lines else None
    if first is None or last is None or median(len(p.text) for p in lines) < 30:
        return []
    for line in lines:
        if line.top > last.bottom + 2.5 * line.height:
            break
        last = line
    return [p for p in run if first.top - 0.6 * first.height < p.top and p.bottom < last.bottom + 0.6 * last.height]


def _is_column(pieces: list[_Piece]) -> bool:
    """True when pieces look like lines of prose: several words each, and most of them fill the width."""
    rows = _rows(pieces)
    widths = [max(p.x1 for p in row) - min(p.x0 for p in row) for row in rows]
    words = [sum(len(p.text.split()) or 1 for p in row) for row in rows]
    lengths = [sum(len(p.text) for p in row) for row in rows]
    if len(rows) < 3 or median(lengths) < 14 or (median(words) < 3 and median(lengths) < 24):
        return False
    full = max(widths)
    filled = sum(1 for w in widths if w > 0.6 * full)
    return filled >= 0.5 * len(rows)


def _rows(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Pieces that stand beside each other, from top to bottom."""
    rows: list[list[_Piece]] = []
    heads: list[_Piece] = []  # the highest of each row
    for piece in sorted(pieces, key=lambda p: (p.top + p.bottom, p.x0)):
        for at in range(len(rows) - 1, max(-1, len(rows) - 4), -1):
            head = heads[at]
            overlap = min(piece.bottom, head.bottom) - max(piece.top, head.top)
            if overlap > 0.5 * min(piece.height, head.height):
                rows[at].append(piece)
                if piece.height > head.height:
                    heads[at] = piece
                break
        else:
            rows.append([piece])
            heads.append(piece)
    for row in rows:
        if len(row) > 1:
            row.sort(key=lambda p: p.x0)
            if sum(_count_rtl(p.text) for p in row) * 2 > sum(len(p.text) for p in row):
                row.reverse()
    return rows


def _lines(pieces: list[_Piece], rules: Sequence[_Box]) -> list[_Line]:
    rows = _rows(pieces)
    gaps = [_gaps(row) for row in rows]
    fences = _fences(rules)
    lines: list[_Cells] = []
    loose: list[_Cells] = []
    for index, row in enumerate(rows):
        cuts: set[int] = set()
        if fences:
            y = _middle_of([row])
            cuts.update(at for at in range(1, len(row)) if _fenced(row[at - 1].x1, row[at].x0, y, fences))
        for at, low, high in gaps[index]:
            for near in (index - 1, index + 1, index - 2, index + 2):
                if 0 <= near < len(rows) and any(
                    min(high, end) - max(low, begin) > 0.6 * row[0].size for _, begin, end in gaps[near]
                ):
                    cuts.add(at)
                    break
        lines.append(_cut(row, cuts))
        loose.append(_cut(row, cuts.union(at for at, _, _ in gaps[index])))
    if not fences and not any(len(line) > 1 for line in lines):
        return [_line(line) for line in lines]
    return [_line(row) for row in _whole_rows(lines, loose, rules)]


_Cells = list[list[_Piece]]
"""What stands on one line, or in one row of a table: a cell or several, each of pieces."""


def _cut(row: list[_Piece], cuts: Collection[int]) -> _Cells:
    ends = [0, *sorted(cuts), len(row)]
    return [row[a:b] for a, b in pairwise(ends)]


def _line(cells: _Cells) -> _Line:
    row = [piece for one in cells for piece in one]
    total = max(1, sum(len(p.text) for p in row))
    return _Line(
        text=" | ".join(cell(_run_on(one)) for one in cells) if len(cells) > 1 else _run_on(row),
        x0=min(p.x0 for p in row),
        x1=max(p.x1 for p in row),
        top=min(p.top for p in row),
        bottom=max(p.bottom for p in row),
        size=sum(len(p.text) * p.size for p in row) / total,
        bold=sum(len(p.text) for p in row if p.bold) * 2 > total,
        page=row[0].page,
        hyphen=row[-1].hyphen,
        row=len(cells) > 1,
    )


def _run_on(pieces: Sequence[_Piece]) -> str:
    """The text of pieces that stand beside or below each other."""
    text = pieces[0].text
    for before, after in pairwise(pieces):
        if after.top > before.bottom - 0.4 * before.height and after.x0 < before.x1:  # on the next line of a cell
            broken = before.hyphen and text[-2:-1].isalpha() and after.text[:1].islower()
            text = text[:-1] + after.text if broken else f"{text} {after.text}"
            continue
        gap = max(after.x0 - before.x1, before.x0 - after.x1)
        near = gap < 0.12 * after.size or (gap < 0.5 * after.size and _is_wide(after.text[0]))
        text += after.text if near else " " + after.text
    return text


# ---- tables: lines that are of one row


def _whole_rows(lines: list[_Cells], loose: list[_Cells], rules: Sequence[_Box]) -> list[_Cells]:
    """The lines, those of one row of a table as one; `loose` are the same lines, cut at every wide gap."""
    fences = _fences(rules)
    right = max(piece.x1 for line in lines for one in line for piece in one)
    found: list[_Cells] = []
    at = 0
    while at < len(lines):
        edges = _edges(lines[at], fences)
        end = at + 1
        while end < len(lines) and _same(edges, _edges(lines[end], fences)):
            end += 1
        if edges:
            found += _joined(lines[at:end], list(pairwise(edges)), rules, right, grid=True)
        else:
            found += _without_grid(lines[at:end], loose[at:end], rules, right)
        at = end
    return found


def _edges(line: _Cells, fences: Sequence[_Box]) -> list[float]:
    """Where the upright lines stand between which a line is, if these are those of a grid that holds all of it."""
    y = _middle_of(line)
    edges: list[float] = []
    for x in sorted(f[0] for f in fences if f[1] <= y <= f[3] and f[3] - f[1] > line[0][0].height):
        if not edges or x > edges[-1] + 3:
            edges.append(x)
    pieces = [piece for one in line for piece in one]
    inside = len(edges) > 2 and edges[0] < min(p.x0 for p in pieces) + 1 and max(p.x1 for p in pieces) - 1 < edges[-1]
    return edges if inside else []


def _same(edges: Sequence[float], others: Sequence[float]) -> bool:
    return len(edges) == len(others) and all(abs(a - b) < 3 for a, b in zip(edges, others, strict=True))


def _without_grid(lines: list[_Cells], loose: list[_Cells], rules: Sequence[_Box], right: float) -> list[_Cells]:
    tables: list[list[int]] = []
    for at, line in enumerate(lines):
        if len(line) > 1:
            if tables and at - tables[-1][-1] <= _MOST_LINES:
                tables[-1].append(at)
            else:
                tables.append([at])
    found: list[_Cells] = []
    done = 0
    for table in tables:
        columns = _columns([loose[at] for at in table])
        if len(columns) < 2 or len(table) < 2:
            continue
        first, end = table[0], table[-1] + 1
        before = _in_columns(lines[first - 1], columns) if first > done else None
        if before and 0 not in before:  # beside the middle of a cell
            first -= 1
        while end < len(lines) and end - table[-1] < _MOST_LINES and _in_columns(lines[end], columns):
            end += 1
        found += lines[done:first]
        found += _joined(lines[first:end], columns, rules, right, grid=False)
        done = end
    return found + lines[done:]


_MOST_LINES = 30
"""Of one cell beside cells of one line."""


def _columns(lines: Sequence[_Cells]) -> list[tuple[float, float]]:
    """From where to where the cells of a table reach, by its lines that have as many of them as most have, or more."""
    usual = Counter(map(len, lines)).most_common(1)[0][0]
    spans = sorted(
        (min(p.x0 for p in one), max(p.x1 for p in one)) for line in lines if len(line) >= usual for one in line
    )
    columns = [spans[0]]
    for x0, x1 in spans[1:]:
        if x0 < columns[-1][1]:
            columns[-1] = (columns[-1][0], max(columns[-1][1], x1))
        else:
            columns.append((x0, x1))
    return columns


def _in_columns(line: _Cells, columns: Sequence[tuple[float, float]]) -> dict[int, list[_Piece]] | None:
    """The columns in which pieces of a line stand; None where one stands in none, or reaches into the next.

    None too for a line with two cells in one column.
    """
    found: dict[int, list[_Piece]] = {}
    for piece in (piece for one in line for piece in one):
        starts = [at for at, (x0, _) in enumerate(columns) if x0 <= piece.x0 + 0.3 * piece.size]
        at = starts[-1] if starts else 0
        if not starts and piece.x1 < columns[0][0]:
            return None
        if at + 1 < len(columns) and piece.x1 > columns[at + 1][0]:
            return None
        found.setdefault(at, []).append(piece)
    return found if len(found) >= len(line) else None


def _joined(
    lines: Sequence[_Cells],
    columns: Sequence[tuple[float, float]],
    rules: Sequence[_Box],
    right: float,
    *,
    grid: bool,
) -> list[_Cells]:
    """The rows of a table: lines between two rules, or of which each cell goes on with the one above it."""
    top, bottom = _middle_of(lines[0]), _middle_of(lines[-1])
    left, span = columns[0][0], columns[-1][1] - columns[0][0]
    inside = [r for r in rules if r[0] < columns[-1][1] and left < r[2] and r[1] <= bottom and top <= r[3]]
    across: Counter[int] = Counter()
    for x0, y0, x1, y1 in inside:
        if y1 - y0 <= 2:
            across[round((y0 + y1) / 2)] += round(min(x1, columns[-1][1]) - max(x0, left))
    parted = sorted(y for y, length in across.items() if length > 0.5 * span)
    found: list[_Cells] = []
    row: dict[int, list[_Piece]] = {}
    taken: list[_Cells] = []

    def end() -> None:
        nonlocal row, taken
        found.extend([[row[at] for at in sorted(row)]] if len(row) > 1 else taken)
        row, taken = {}, []

    last: _Cells | None = None
    for line in lines:
        cells = _in_columns(line, columns)
        if cells is None:
            end()
            found.append(line)
            last = None
            continue
        if last is not None and not _goes_into(cells, row, line, last, columns, parted=parted, grid=grid, right=right):
            end()
        for at, pieces in cells.items():
            row.setdefault(at, []).extend(pieces)
        taken.append(line)
        last = line
    end()
    return found


def _middle_of(line: _Cells) -> float:
    return (min(p.top for one in line for p in one) + max(p.bottom for one in line for p in one)) / 2


def _goes_into(
    cells: dict[int, list[_Piece]],
    row: dict[int, list[_Piece]],
    line: _Cells,
    last: _Cells,
    columns: Sequence[tuple[float, float]],
    *,
    parted: Sequence[float],
    grid: bool,
    right: float,
) -> bool:
    """True when a line is of the same row as what stands above it."""
    if any(_middle_of(last) < y < _middle_of(line) for y in parted):
        return False
    size = line[0][0].size
    gap = min(p.top for one in line for p in one) - max(p.bottom for one in last for p in one)
    if grid or gap > 0.4 * size:
        return grid and gap < 1.5 * size
    goes_on = False
    for at, pieces in cells.items():
        if at not in row:
            continue
        above, below = row[at][-1], pieces[0]
        first = below.text[:1]
        if not any(map(str.isalnum, below.text)) or (first.isdigit() and above.text[:1].isdigit()):
            return False
        if at == 0 and not first.islower():
            return False
        word = below.text.split(" ", 1)[0]
        reach = above.x1 + (below.x1 - below.x0) * len(word) / len(below.text) + 0.25 * size
        limit = columns[at][1] if first.islower() else right  # of the last column, whose end is not known
        if at + 1 < len(columns):
            limit = columns[at + 1][0] - 1.4 * size
        if reach < limit:  # the word would have stood above
            return False
        goes_on = True
    return goes_on


def _gaps(row: Sequence[_Piece]) -> list[tuple[int, float, float]]:
    """Wide gaps of a row that are not just what follows a bullet or a number: index of the piece after, from, to."""
    found: list[tuple[int, float, float]] = []
    for at in range(1, len(row)):
        before, after = (row[at - 1], row[at]) if row[at - 1].x0 <= row[at].x0 else (row[at], row[at - 1])
        if at == 1 and _MARKER.fullmatch(clean(row[0].text).strip() + " ") and len(row[0].text.strip()) <= 8:
            continue
        if after.x0 - before.x1 > 1.6 * max(before.size, after.size) * 0.9:
            found.append((at, before.x1, after.x0))
    return found


# ---- from lines to blocks


def _build(
    pages: Sequence[_Page], outline: Sequence[tuple[int, str, int | None]], about: dict[str, str], warnings: list[str]
) -> Extract:
    lines_of = [_order(page.pieces, page) for page in pages]
    for lines in lines_of:
        for line in lines:
            line.text = line.text if line.row else re.sub(r"\s+", " ", line.text).strip()
    lines_of = [[line for line in lines if line.text] for lines in lines_of]
    lines_of, heads = _without_furniture(lines_of, pages)
    body = _body_size([line for lines in lines_of for line in lines])
    levels = _levels([line for lines in lines_of for line in lines], body)
    titles = {(_key(title), page): level for level, title, page in outline}
    anywhere = {_key(title): level for level, title, _ in outline}
    writer = _Writer(body=body, levels=levels, titles=titles, anywhere=anywhere, words=_vocabulary(lines_of))
    for page, lines in zip(pages, lines_of, strict=True):
        writer.page(page.number, lines, width=page.width)
    writer.flush()
    if not writer.blocks:
        raise ParseError("needs OCR: no text layer")
    metadata: dict[str, str] = {}
    for key, name in (("Author", "author"), ("Subject", "subject"), ("Keywords", "keywords")):
        if about.get(key) and not about[key].startswith("("):
            metadata[name] = about[key][:500]
    for key, name in (("CreationDate", "created"), ("ModDate", "modified")):
        match = re.match(r"(?:D:)?(\d{4})(\d{2})(\d{2})", about.get(key, ""))
        if match:
            metadata[name] = "-".join(match.groups())
    if heads:
        metadata["running_head"] = "; ".join(heads)[:500]
    return Extract(
        blocks=_numbered_headings(writer.blocks),
        title=_title(about.get("Title", "")),
        warnings=tuple(warnings),
        metadata=metadata,
        page_starts=tuple(writer.starts),
    )


_NUMBERED = re.compile(r"(\d{1,2})\.?\s+(?=[^\W\d_])[^.:;!?,\n]{3,60}")


def _numbered_headings(blocks: list[Block]) -> list[Block]:
    """The blocks, those that are '1. Scope', '2. Duties' … as headings: short, numbered on, each with text below it."""
    found = [
        (at, int(match[1]))
        for at, (block, below) in enumerate(pairwise(blocks))
        if block.kind == "item"
        and below.kind == "paragraph"
        and (match := _NUMBERED.fullmatch(block.text)) is not None
        and block.text[match.end(1) :].strip(" .")[0].isupper()
    ]
    if len(found) < 3 or [number for _, number in found] != list(range(1, len(found) + 1)):
        return blocks
    level = 1 + max((block.level for block in blocks if block.kind == "heading"), default=0)
    for at, _ in found:
        blocks[at] = Block(text=blocks[at].text, kind="heading", level=level)
    return blocks


def _title(title: str) -> str | None:
    """The title that a PDF states, unless a program made it up."""
    title = clean_line(title)
    if not title or re.search(
        r"\.(docx?|pdf|indd|pptx?|xlsx?|rtf|odt|tex|html?)$|^(untitled|microsoft|document\d*$)|/|^\(", title, re.I
    ):
        return None
    return title[:300]


def _outline(document: Any) -> list[tuple[int, str, int | None]]:
    """Bookmarks: level from 1, title, page index."""
    found: list[tuple[int, str, int | None]] = []
    pdfium = _pdfium("pypdfium2")
    try:
        for item in document.get_toc(max_depth=8):
            if len(found) >= 5_000:
                break
            title = item.get_title() if hasattr(item, "get_title") else item.title
            destination = item.get_dest() if hasattr(item, "get_dest") else None
            page = destination.get_index() if destination is not None else getattr(item, "page_index", None)
            found.append((int(item.level) + 1, str(title or ""), page))
    except (pdfium.PdfiumError, RecursionError, AttributeError):
        return found
    return found


def _key(text: str) -> str:
    return re.sub(r"[\W_]+", "", clean(text).casefold())


def _body_size(lines: Sequence[_Line]) -> float:
    sizes: Counter[float] = Counter()
    for line in lines:
        sizes[round(line.size * 2) / 2] += len(line.text)
    return sizes.most_common(1)[0][0] if sizes else 10.0


def _levels(lines: Sequence[_Line], body: float) -> dict[float, int]:
    """Heading sizes above the body's, biggest first, as levels 1 to 4."""
    sizes: Counter[float] = Counter()
    for line in lines:
        size = round(line.size * 2) / 2
        if size > body * 1.13 and not line.row and len(line.text) < 200:
            sizes[size] += 1
    levels: dict[float, int] = {}
    level = 0
    previous = 0.0
    for size in sorted(sizes, reverse=True):
        if not previous or previous - size > 0.06 * previous:
            level = min(4, level + 1)
        previous = size
        levels[size] = level
    return levels


_HYPHENATED = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_DASH = re.compile("[\u2010\ufffe\x02]")


def _vocabulary(lines_of: Sequence[Sequence[_Line]]) -> frozenset[str]:
    """Words of the document, those at line ends that may be halves left out."""
    words: set[str] = set()
    for lines in lines_of:
        for line in lines:
            found = _HYPHENATED.findall(_DASH.sub("-", line.text))
            words.update(found[1:-1])
    words = {word.casefold() for word in words}
    return frozenset(words)


def _without_furniture(lines_of: Sequence[list[_Line]], pages: Sequence[_Page]) -> tuple[list[list[_Line]], list[str]]:
    """The lines without running heads, feet and page numbers, and what these said."""
    edges: list[list[tuple[_Line, int]]] = []  # per page, each with 0 for the top and 1 for the bottom
    for lines in lines_of:
        ordered = sorted(lines, key=lambda line: line.top)
        leading = _leading(ordered)
        top = _margin(ordered, leading=leading)
        bottom = [line for line in _margin(ordered[::-1], leading=leading) if line not in top]
        edges.append([(line, 0) for line in top] + [(line, 1) for line in bottom])
    used = sum(1 for lines in lines_of if lines)
    placed: Counter[tuple[str, int, int]] = Counter()
    anywhere: Counter[tuple[str, int]] = Counter()
    for edge in edges:
        places = {(_furniture_key(line), side, round(line.bottom / 8)) for line, side in edge}
        placed.update(places)
        anywhere.update({(text, side) for text, side, _ in places})
    need = 2 if used <= 3 else max(3, round(0.2 * used)) if used < 60 else 8
    numbers = _page_numbers(edges)
    heads: dict[str, str] = {}
    kept: list[list[_Line]] = []
    for page, lines, edge in zip(pages, lines_of, edges, strict=True):
        dropped = {id(line) for line, _ in edge if id(line) in numbers}
        below = {id(a): b for a, b in pairwise(lines)}
        for line, side in edge:
            if line.row and side == 0 and (following := below.get(id(line))) is not None and following.row:
                continue  # a table's header, which stands on each page: `_Writer` leaves out the later ones
            text, row = _furniture_key(line), round(line.bottom / 8)
            count = placed[(text, side, row)] + max(placed[(text, side, row - 1)], placed[(text, side, row + 1)])
            margin = not 0.18 * page.height < (line.top + line.bottom) / 2 < 0.82 * page.height
            often = anywhere[(text, side)] >= max(4, 0.25 * used)  # pages whose foot follows their text
            if text and used > 1 and ((margin and count >= need) or often):
                dropped.add(id(line))
                if not _PAGE_NUMBER.fullmatch(line.text):
                    heads.setdefault(text, clean_line(line.text))
        rest = [line for line in lines if id(line) not in dropped]
        kept.append(rest if rest or used > 2 else lines)
    emptied = sum(1 for lines, rest in zip(lines_of, kept, strict=True) if lines and not rest)
    if emptied > 0.5 * used:  # what is all there is on most pages is no furniture
        kept = [rest or lines for lines, rest in zip(lines_of, kept, strict=True)]
    return kept, list(heads.values())


def _margin(ordered: Sequence[_Line], *, leading: float) -> list[_Line]:
    """Lines at one edge of the page that white space parts from the body in groups of one or two; at least one."""
    first = ordered[:7]
    count = begin = 0
    for at, (a, b) in enumerate(pairwise(first), start=1):
        if max(b.top - a.bottom, a.top - b.bottom) > leading + 0.25 * max(2.0, a.size):
            if at - begin > 2:
                break
            count = begin = at
    return list(first[: max(1, count)])


def _furniture_key(line: _Line) -> str:
    """What a line says without its numbers."""
    text = re.sub(r"\d+", "#", line.text.casefold())
    text = re.sub(r"\b[ivxlc]{1,6}$", "#", text)
    return re.sub(r"\W+", " ", text.replace("#", "0")).strip()


def _page_numbers(edges: Sequence[Sequence[tuple[_Line, int]]]) -> set[int]:
    """Lines (by identity) that only number the page: the number grows as the pages do."""
    found: Counter[int] = Counter()
    candidates: list[tuple[int, int]] = []
    for page, edge in enumerate(edges):
        for line, _ in edge:
            match = _PAGE_NUMBER.fullmatch(line.text)
            if match is None:
                continue
            number = int(match[1]) if match[1].isdigit() else _roman(match[1])
            candidates.append((page - number, id(line)))
            found[page - number] += 1
    need = 2 if len(edges) > 2 else 1
    return {line for shift, line in candidates if found[shift] >= need and (len(edges) > 2 or shift == -1)}


def _roman(text: str) -> int:
    values = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
    total = 0
    letters = text.lower()
    for at, letter in enumerate(letters):
        value = values[letter]
        total += -value if at + 1 < len(letters) and values[letters[at + 1]] > value else value
    return total


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _may_be_heading(text: str) -> bool:
    """True for a short text that does not end, or begin, as a sentence does."""
    words = len(text.split())
    return (
        words <= 14
        and not text[0].islower()
        and not _BULLET.match(text)
        and not text.endswith((",", ";"))
        and not (text.endswith((".", ":")) and words > 6)
        and _letters(text) >= 3
    )


class _Writer:
    """Puts lines together to headings, paragraphs, items and tables."""

    def __init__(
        self,
        *,
        body: float,
        levels: dict[float, int],
        titles: dict[tuple[str, int | None], int],
        anywhere: dict[str, int],
        words: frozenset[str],
    ) -> None:
        self.blocks: list[Block] = []
        self.starts: list[PageStart] = []
        self._body = body
        self._levels = levels
        self._titles = titles
        self._anywhere = anywhere
        self._words = words
        self._kind: BlockKind = "paragraph"
        self._level = 0
        self._text = ""
        self._last: _Line | None = None
        self._marks: list[tuple[int, int]] = []  # page, offset into the block being written
        self._right = 0.0

    def page(self, number: int, lines: Sequence[_Line], *, width: float) -> None:
        """One page's lines."""
        self._leading = _leading(lines)
        first = True
        edges = sorted(line.x1 for line in lines if not line.row)
        self._right = edges[int(len(edges) * 0.8)] if edges else width
        for line in lines:
            self._add(line, new_page=first)
            first = False
        if first:  # nothing on the page: it begins where the next one does
            self._mark_page()

    def _mark_page(self) -> None:
        if self._last is None:
            self.starts.append(PageStart(block=len(self.blocks)))
        else:
            self._marks.append((0, len(self._text)))

    def _add(self, line: _Line, *, new_page: bool) -> None:
        kind, level = self._classify(line)
        last = self._last
        if last is not None and self._goes_on(last, line, kind, level, new_page=new_page):
            if kind == "table":
                again = new_page and line.text == self._text.split("\n", 1)[0]  # the header, once more
                self._text += "" if again else "\n"
                if new_page:
                    self._mark_page()
                self._text += "" if again else line.text
            else:
                self._join(line, new_page=new_page)
        else:
            self.flush()
            if new_page:
                self._mark_page()
            self._kind, self._level = kind, level
            self._text = line.text.rstrip(_HYPHENS[2:])
            if line.hyphen:
                self._text = line.text
        self._last = line

    def _classify(self, line: _Line) -> tuple[BlockKind, int]:
        if line.row:
            return "table", 0
        text = line.text
        if self._anywhere and (key := _key(text)):
            level = self._titles.get((key, line.page))
            if level is None and (line.bold or line.size > self._body * 1.1):
                level = self._anywhere.get(key)
            if level is not None:
                return "heading", level
        size = round(line.size * 2) / 2
        if size in self._levels and len(text) < 200 and not _BULLET.match(text) and _letters(text) >= 2:
            return "heading", self._levels[size]
        if line.bold and line.size > 0.9 * self._body and _may_be_heading(text):
            return "heading", max(self._levels.values(), default=0) + 1
        if _BULLET.match(text) or (_MARKER.match(text) and not _MULTI.match(text)):
            return "item", 0
        return "paragraph", 0

    def _goes_on(self, last: _Line, line: _Line, kind: BlockKind, level: int, *, new_page: bool) -> bool:
        gap = line.top - last.bottom
        if kind == "table":
            return self._kind == "table" and (new_page or gap < 1.6 * last.size)
        if self._kind == "table":
            return False
        if kind == "heading" or self._kind == "heading":
            return (
                kind == self._kind
                and level == self._level
                and not new_page
                and not line.starts
                and gap < 0.9 * line.size
                and abs(line.size - last.size) < 0.6
                and not _MARKER.match(line.text)
                and len(self._text) < 160
            )
        if kind == "item" or _MULTI.match(line.text):
            wraps = kind == "item" and not _BULLET.match(line.text) and last.hyphen
            return wraps
        ended = bool(_SENTENCE.search(last.text))
        full = last.x1 > self._right - 6 * last.size
        if new_page or line.starts:
            return not ended and (line.text[0].islower() or last.hyphen or (full and self._kind == "paragraph"))
        leading = self._leading
        if gap > max(0.75 * line.size, leading + 0.35 * line.size):
            return False
        if abs(line.size - last.size) > 0.2 * max(line.size, last.size):
            return False
        indent = line.x0 - last.x0
        if self._kind == "item":
            return True
        if ended and indent > 0.8 * line.size and not self._text.count(" ") < 3:
            return False
        if ended and last.x1 < self._right - 12 * last.size:
            return False
        if not full and not ended and line.text[0].isupper() and last.x1 < self._right - 0.4 * (self._right - last.x0):
            self._text += "\n"  # a line of its own, as in an address
        return True

    def _join(self, line: _Line, *, new_page: bool) -> None:
        text = self._text
        following = line.text
        if text.endswith("\n"):
            glue = ""
        elif text and text[-1] in _HYPHENS and len(text) > 1 and text[-2].isalpha() and following[:1].isalpha():
            glue = ""
            stem = text[:-1]
            first = re.match(r"[^\W\d_]+", following)
            before = re.search(r"[^\W\d_]+(?:-[^\W\d_]+)*$", stem)
            left = before.group().casefold() if before else ""
            right = first.group().casefold() if first else ""
            soft = text[-1] == "\u00ad"
            hyphenated = f"{left}-{right}" in self._words
            halves = left in self._words and right in self._words and left + right not in self._words
            compound = (hyphenated and left + right not in self._words) or (halves and len(left) > 2 and len(right) > 2)
            kept = not soft and (compound or following[0].isupper() or "-" in left)
            text = stem + "-" if kept else stem
        else:
            dashed = text[-1:] in _HYPHENS[:2] and following[:1].isalnum() and not text.endswith((" -", "--"))
            wide = text != "" and _is_wide(text[-1]) and _is_wide(following[0])
            glue = "" if text and (dashed or wide) else " "
        self._text = text.rstrip("\ufffe\x02\u00ad") + glue
        if new_page:
            self._mark_page()
        self._text += following

    def flush(self) -> None:
        """Ends the block being written."""
        if self._last is None:
            return
        raw_text = self._text
        hyphen = raw_text.rstrip("\ufffe\x02")
        if hyphen != raw_text:
            raw_text = hyphen + "-"
        pieces: list[str] = []
        at = 0
        offsets: list[int] = []
        for _, mark in self._marks:
            pieces.append(_tidy(raw_text[at:mark]))
            at = mark
            offsets.append(sum(len(p) for p in pieces))
        pieces.append(_tidy(raw_text[at:]))
        text = "".join(pieces).rstrip()
        lead = len(text) - len(text.lstrip())
        text = text[lead:]
        index = len(self.blocks)
        for offset in offsets:
            self.starts.append(PageStart(block=index, offset=max(0, min(len(text), offset - lead))))
        if text:
            kind = self._kind
            tight = bool(self.blocks) and kind == "item" and self.blocks[-1].kind == "item"
            if kind == "heading":
                text = text.replace("\n", " ")
            text = re.sub(r"^[\uf0b7\uf0a7\uf0d8•●▪■◦○](?=\s*\S)\s*", "- ", text) if kind == "item" else text
            self.blocks.append(Block(text=text, kind=kind, level=self._level if kind == "heading" else 0, tight=tight))
        self._last = None
        self._text = ""
        self._marks = []


def _tidy(text: str) -> str:
    """As a reader sees it, the length at a page's end kept: blanks at the ends stay."""
    return re.sub(r"[ \t]+", " ", clean(text.replace("\ufffe", "-").replace("\x02", "-")))


def _leading(lines: Sequence[_Line]) -> float:
    """The usual white space between two lines of a paragraph."""
    gaps = [b.top - a.bottom for a, b in pairwise(lines) if not b.starts and -a.size < b.top - a.bottom < 3 * a.size]
    if not gaps:
        return 0.0
    counts = Counter(round(g) for g in gaps)
    common, often = counts.most_common(1)[0]
    return float(min(g for g, n in counts.items() if n >= 0.6 * often and g <= common))

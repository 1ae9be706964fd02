"""Presentations (PPTX): a slide is a section and a page, its notes after it; hidden slides and shapes are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from ..errors import ParseError
from .blocks import Block, BlockKind
from .colours import WHITE, Colour, alike, colour
from .extract import Archive, Extract, PageStart, cell, clean, clean_line, core_properties, main_part, relations

_FURNITURE = {"sldNum", "dt", "ftr", "hdr", "sldImg"}
_MAX_DEPTH = 20
_Box = tuple[int, int, int, int]
_TINY = 300
"""Hundredths of a point; nobody reads smaller letters on a slide."""


def _name(element: Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def _child(element: Element | None, *names: str) -> Element | None:
    for name in names:
        if element is None:
            return None
        element = next((c for c in element if _name(c) == name), None)
    return element


def _attribute(element: Element | None, name: str) -> str | None:
    if element is None:
        return None
    return next((v for k, v in element.attrib.items() if k.rsplit("}", 1)[-1] == name), None)


@dataclass(frozen=True, kw_only=True)
class _Shape:
    element: Element
    placeholder: str | None
    """Its kind ('title', 'body', …), None when it is no placeholder."""
    x: int
    y: int
    placed: bool


def parse_pptx(data: bytes) -> Extract:
    """Blocks of a PPTX file, one page per slide. Raises ParseError."""
    archive = Archive(data, kind="PPTX")
    part = main_part(archive, default="ppt/presentation.xml")
    root = archive.xml(part)
    if root is None:
        raise ParseError("damaged: the PPTX container has no presentation in it")
    parts = relations(archive, part)
    size = _child(root, "sldSz")
    width, height = _integer(_attribute(size, "cx"), 0), _integer(_attribute(size, "cy"), 0)
    slides: list[str] = []
    listed = _child(root, "sldIdLst")
    for item in listed if listed is not None else ():
        key = next((v for k, v in item.attrib.items() if k.endswith("}id")), "")
        name = parts.get(key, ("", ""))[1]
        if name in archive.names:
            slides.append(name)
    reader = _Reader(archive, width=width, height=height)
    for number, name in enumerate(slides, start=1):
        reader.slide(name, number)
    warnings: list[str] = list(reader.warnings)
    if reader.hidden_slides:
        warnings.insert(0, f"hidden slides left out: {', '.join(str(n) for n in reader.hidden_slides)}")
    if reader.hidden:
        warnings.append(f"hidden text left out ({reader.hidden} places)")
    if reader.struck:
        warnings.append(f"struck text left out ({reader.struck} places)")
    metadata = core_properties(archive)
    title = metadata.pop("title", None)
    if title and re.fullmatch(r"power ?point.*|presentation\d*|untitled", title, re.I):
        title = None
    return Extract(
        blocks=reader.blocks,
        title=title,
        warnings=tuple(warnings),
        metadata=metadata,
        page_starts=tuple(reader.starts),
    )


class _Reader:
    def __init__(self, archive: Archive, *, width: int, height: int) -> None:
        self.blocks: list[Block] = []
        self.starts: list[PageStart] = []
        self.hidden_slides: list[int] = []
        self.hidden = 0
        self.struck = 0
        self.warnings: list[str] = []
        self._page: Colour | str | None = WHITE
        """What lies behind everything on this slide; None where it is not known."""
        self._ground: Colour | str | None = WHITE
        """What lies behind the text that is read now."""
        self._painted: list[tuple[Element | None, _Box | None]] = []
        """What is painted on this slide, and where; None is anywhere."""
        self._scheme: dict[str, Colour | str] = {}
        """The colours of the theme by their names."""
        self._archive = archive
        self._width = width
        self._height = height

    def slide(self, part: str, number: int) -> None:
        """One slide with its notes."""
        self.starts.append(PageStart(block=len(self.blocks)))
        try:
            root = self._archive.xml(part)
        except ParseError as error:
            self.warnings.append(f"slide {number}: {error}")
            return
        if root is None:
            return
        if root.get("show") in ("0", "false"):
            self.hidden_slides.append(number)
            return
        try:
            parts = relations(self._archive, part)
        except ParseError as error:
            self.warnings.append(f"slide {number}: {error}")
            parts = {}
        self._look_at(root, parts)
        shapes = [s for s in self._shapes(_child(root, "cSld", "spTree"), 0) if s.placeholder not in _FURNITURE]
        title = next((s for s in shapes if s.placeholder in ("title", "ctrTitle")), None)
        heading = ""
        if title is not None:
            self._ground = self._behind(title.element)
            heading = " ".join(text for _, text in self._paragraphs(title.element))
        shapes = [s for s in shapes if s is not title]
        shapes.sort(key=lambda s: (s.placed, s.y // 100_000, s.x) if s.placed else (False, 0, 0))
        self.blocks.append(Block(text=clean_line(heading) or f"Slide {number}", kind="heading", level=1))
        before = len(self.blocks)
        for shape in shapes:
            self._shape(shape, parts)
        for kind, name in parts.values():
            if kind == "notesSlide":
                try:
                    self._notes(name)
                except ParseError as error:
                    self.warnings.append(f"slide {number}: {error}")
        if not heading and len(self.blocks) == before:
            self.blocks.pop()

    def _look_at(self, root: Element, parts: dict[str, tuple[str, str]]) -> None:
        """What lies behind the text of a slide: its background, and what it, its layout and its master paint."""
        grounds: list[Element] = [root]
        for wanted in ("slideLayout", "slideMaster", "theme"):
            name = next((name for kind, name in parts.values() if kind == wanted), None)
            if name is None:
                break
            try:
                found = self._archive.xml(name)
                parts = relations(self._archive, name)
            except ParseError:
                break
            if found is not None and wanted == "theme":
                self._read_scheme(found, _child(grounds[-1], "clrMap"))
            elif found is not None:
                grounds.append(found)
        background = next((bg for g in grounds if (bg := _child(g, "cSld", "bg")) is not None), None)
        self._page = WHITE if background is None else self._filled(background)
        self._painted = []
        for ground in grounds:
            tree = _child(ground, "cSld", "spTree")
            top = {id(shape) for shape in tree} if tree is not None else set[int]()
            for shape in tree.iter() if tree is not None else ():
                fill = self._fill_of(shape) if _name(shape) in ("sp", "cxnSp") else WHITE
                paints = fill is None or self._page is None or not alike(fill, self._page)
                if (fill is not WHITE and paints) or _name(shape) in ("pic", "graphicFrame"):
                    self._painted.append((shape, _box(shape) if id(shape) in top else None))

    def _read_scheme(self, theme: Element, names: Element | None) -> None:
        scheme = _child(theme, "themeElements", "clrScheme")
        for item in scheme if scheme is not None else ():
            shade = next(iter(item), None)
            value = _attribute(shade, "lastClr") or _attribute(shade, "val")
            if value:
                self._scheme[_name(item)] = colour(value.lower()) or WHITE
        for key, value in names.attrib.items() if names is not None else ():
            if value in self._scheme:
                self._scheme[key] = self._scheme[value]

    def _filled(self, background: Element) -> Colour | str | None:
        """The colour of a background; None for a picture, a pattern, or a fill of the theme that is not plain."""
        reference = _child(background, "bgRef")
        if reference is not None:
            return self._colour_of(reference) if _integer(_attribute(reference, "idx"), 0) == 1001 else None
        return self._colour_of(_child(background, "bgPr", "solidFill"))

    def _fill_of(self, shape: Element) -> Colour | str | None:
        """What a shape lays behind its text: WHITE itself where it lays nothing, None where that is not known."""
        properties = _child(shape, "spPr")
        for fill in properties if properties is not None else ():
            if _name(fill) == "noFill":
                return WHITE
            if _name(fill) == "solidFill":
                return self._colour_of(fill)
            if _name(fill).endswith("Fill"):
                return None
        style = _child(shape, "style", "fillRef")
        return None if style is not None and _integer(_attribute(style, "idx"), 0) else WHITE

    def _colour_of(self, fill: Element | None) -> Colour | str | None:
        shade = next(iter(fill), None) if fill is not None else None
        if shade is None:
            return None
        name = _attribute(shade, "lastClr") or _attribute(shade, "val") or ""
        if _name(shade) == "schemeClr":
            if len(shade):  # made lighter, darker or see-through
                return " ".join([name, *(f"{_name(change)} {_attribute(change, 'val')}" for change in shade)])
            return self._scheme.get(name, WHITE if name in ("bg1", "lt1") else name)
        return colour(name.lower())

    def _behind(self, shape: Element) -> Colour | str | None:
        """What lies behind the text of a shape; None where it is not known."""
        own = self._fill_of(shape) if _name(shape) == "sp" else WHITE
        if own is not WHITE:
            return own
        box = _box(shape)
        if any(other is not shape and _meet(box, place) for other, place in self._painted):
            return None
        return self._page

    def _seen(self, properties: Element | None) -> bool:
        """Whether ink of a run is seen on what lies behind it."""
        if _child(properties, "noFill") is not None and _child(properties, "ln") is None:
            return False
        fill = _child(properties, "solidFill")
        shade = next(iter(fill), None) if fill is not None else None
        if shade is None:
            return True
        if _integer(_attribute(_child(shade, "alpha"), "val"), 100_000) <= 6000:
            return False
        ink = self._colour_of(fill)
        under = self._colour_of(_child(properties, "highlight")) or self._ground
        return ink is None or under is None or not alike(ink, under)

    def _notes(self, part: str) -> None:
        root = self._archive.xml(part)
        self._ground = WHITE
        for shape in self._shapes(_child(root, "cSld", "spTree"), 0):
            if shape.placeholder != "body":
                continue
            lines = [text for _, text in self._paragraphs(shape.element)]
            if lines:
                self.blocks.append(Block(text="Notes: " + "\n".join(lines), kind="quote"))

    def _shapes(self, tree: Element | None, depth: int) -> Iterator[_Shape]:
        if tree is None or depth > _MAX_DEPTH:
            return
        for element in tree:
            name = _name(element)
            if name == "AlternateContent":
                choice = _child(element, "Choice")
                yield from self._shapes(choice if choice is not None else _child(element, "Fallback"), depth + 1)
                continue
            if name not in ("sp", "grpSp", "graphicFrame", "pic", "cxnSp"):
                continue
            properties = next((c for c in element if _name(c).startswith("nv")), None)
            if (_attribute(_child(properties, "cNvPr"), "hidden") or "0") in ("1", "true"):
                self.hidden += any((t.text or "").strip() for t in element.iter() if _name(t) == "t")
                continue
            place = _child(element, "spPr", "xfrm") if name != "graphicFrame" else _child(element, "xfrm")
            if place is None and name == "grpSp":
                place = _child(element, "grpSpPr", "xfrm")
            x, y = (
                _integer(_attribute(_child(place, "off"), "x"), 0),
                _integer(_attribute(_child(place, "off"), "y"), 0),
            )
            w, h = (
                _integer(_attribute(_child(place, "ext"), "cx"), 0),
                _integer(_attribute(_child(place, "ext"), "cy"), 0),
            )
            if place is not None and depth == 0 and self._width and self._height:
                outside = x >= self._width or y >= self._height or x + w < 0 or y + h < 0
                if outside and any((t.text or "").strip() for t in element.iter() if _name(t) == "t"):
                    self.hidden += 1
                    continue
            if name == "grpSp":
                inner = sorted(self._shapes(element, depth + 1), key=lambda s: (s.y // 100_000, s.x))
                for number, shape in enumerate(inner):
                    yield _Shape(
                        element=shape.element,
                        placeholder=shape.placeholder,
                        x=x + number,
                        y=y,
                        placed=place is not None,
                    )
                continue
            holder = _child(properties, "nvPr", "ph")
            kind = None if holder is None else _attribute(holder, "type") or "body"
            yield _Shape(element=element, placeholder=kind, x=x, y=y, placed=place is not None)

    def _shape(self, shape: _Shape, parts: dict[str, tuple[str, str]]) -> None:
        element = shape.element
        if _name(element) == "graphicFrame":
            data = _child(element, "graphic", "graphicData")
            table = _child(data, "tbl")
            if table is not None:
                self._ground = None if _child(table, "tblPr", "tableStyleId") is not None else self._behind(element)
                self._table(table)
            for item in data if data is not None else ():
                key = _attribute(item, "id") if _name(item) == "chart" else _attribute(item, "dm")
                name = parts.get(key or "", ("", ""))[1]
                if _name(item) == "chart" and name:
                    self._chart(name)
                elif _name(item) == "relIds" and name:
                    self._diagram(name)
            return
        if _name(element) == "pic":
            text = clean_line(_attribute(_child(element, "nvPicPr", "cNvPr"), "descr") or "")
            if text and not re.search(r"\.(?:png|jpe?g|gif|bmp|svg|emf|wmf)$|^https?:|generated", text, re.I):
                self.blocks.append(Block(text=f"[image: {text[:500]}]", kind="paragraph"))
            return
        first = True
        self._ground = self._behind(element)
        for kind, text in self._paragraphs(element):
            tight = not first and (kind == "item" or shape.placeholder == "body")
            if shape.placeholder == "subTitle":
                kind = "paragraph"
            self.blocks.append(Block(text=text, kind=kind, tight=tight))
            first = False

    def _paragraphs(self, element: Element) -> Iterator[tuple[BlockKind, str]]:
        body = _child(element, "txBody")
        counters: dict[int, int] = {}
        for p in body if body is not None else ():
            if _name(p) != "p":
                continue
            text = self._text(p)
            if not text:
                continue
            properties = _child(p, "pPr")
            level = _integer(_attribute(properties, "lvl"), 0)
            counters = {at: n for at, n in counters.items() if at <= level}
            auto = _child(properties, "buAutoNum")
            if auto is not None:
                counters[level] = counters.get(level, _integer(_attribute(auto, "startAt"), 1) - 1) + 1
                yield "item", f"{_number(counters[level], _attribute(auto, 'type') or '')} {text}"
            elif _child(properties, "buChar") is not None:
                yield "item", f"- {text}"
            else:
                yield "item" if level else "paragraph", f"- {text}" if level else text

    def _text(self, p: Element) -> str:
        parts: list[str] = []
        for run in p:
            name = _name(run)
            if name == "br":
                parts.append("\n")
            elif name in ("r", "fld"):
                properties = _child(run, "rPr")
                if (_attribute(properties, "strike") or "noStrike") != "noStrike":
                    self.struck += 1
                    continue
                if 0 < _integer(_attribute(properties, "sz"), 0) < _TINY or not self._seen(properties):
                    self.hidden += 1
                    continue
                parts.append((_attribute_text(_child(run, "t"))).replace("\v", "\n"))
            elif name in ("m", "AlternateContent"):
                parts.append("".join(t.text or "" for t in run.iter() if _name(t) == "t"))
        lines = (re.sub(r"[ \t]+", " ", line).strip() for line in clean("".join(parts)).split("\n"))
        return "\n".join(line for line in lines if line)

    def _table(self, table: Element) -> None:
        lines: list[str] = []
        above: dict[int, str] = {}
        for row in table:
            if _name(row) != "tr":
                continue
            texts: list[str] = []
            cells = [c for c in row if _name(c) == "tc"]
            whole = len(cells) > 1 and _integer(_attribute(cells[0], "gridSpan"), 1) >= len(cells)
            for column, tc in enumerate(cells):
                if _attribute(tc, "hMerge") in ("1", "true"):
                    texts.append("" if whole else texts[-1] if texts else "")
                elif _attribute(tc, "vMerge") in ("1", "true"):
                    texts.append(above.get(column, ""))
                else:
                    body = _child(tc, "txBody")
                    text = " ".join(self._text(p) for p in (body if body is not None else ()) if _name(p) == "p")
                    texts.append(cell(text))
                above[column] = texts[-1]
            line = (texts[0] if whole else " | ".join(texts)).rstrip()
            if line.strip(" |"):
                lines.append(line)
        if lines:
            self.blocks.append(Block(text="\n".join(lines), kind="table"))

    def _chart(self, part: str) -> None:
        """A chart as the table behind it."""
        root = self._archive.xml(part)
        if root is None:
            return
        title = _child(root, "chart", "title")
        name = clean_line("".join(t.text or "" for t in title.iter() if _name(t) == "t")) if title is not None else ""
        columns: list[tuple[str, dict[int, str]]] = []
        categories: dict[int, str] = {}
        for series in root.iter():
            if _name(series) != "ser":
                continue
            label = " ".join(_points(_child(series, "tx")).values())
            categories = categories or _points(_child(series, "cat")) or _points(_child(series, "xVal"))
            values = _points(_child(series, "val")) or _points(_child(series, "yVal"))
            columns.append((cell(label), values))
        rows = sorted({at for _, values in columns for at in values})[:500]
        if not rows:
            if name:
                self.blocks.append(Block(text=name, kind="paragraph"))
            return
        lines = [" | ".join([name, *(label for label, _ in columns)])]
        for at in rows:
            lines.append(
                " | ".join([cell(categories.get(at, str(at + 1))), *(cell(v.get(at, "")) for _, v in columns)])
            )
        self.blocks.append(Block(text="\n".join(lines).strip(), kind="table"))

    def _diagram(self, part: str) -> None:
        """The texts of a drawn diagram, in the order of its data."""
        root = self._archive.xml(part)
        for point in root.iter() if root is not None else ():
            if _name(point) == "pt" and (_attribute(point, "type") or "node") in ("node", "asst"):
                text = clean_line(" ".join(t.text or "" for t in point.iter() if _name(t) == "t"))
                if text:
                    self.blocks.append(Block(text=f"- {text}", kind="item", tight=self.blocks[-1].kind == "item"))


def _points(parent: Element | None) -> dict[int, str]:
    """Cached values of a chart's reference, by index."""
    found: dict[int, str] = {}
    for point in parent.iter() if parent is not None else ():
        if _name(point) == "pt":
            value = _child(point, "v")
            if value is not None and value.text:
                found[_integer(_attribute(point, "idx"), 0)] = value.text
        elif _name(point) == "v" and not found and point.text:
            found[0] = point.text
    return found


def _attribute_text(element: Element | None) -> str:
    return "" if element is None else element.text or ""


def _number(value: int, shape: str) -> str:
    text = str(value)
    if shape.startswith("alpha") and 0 < value <= 26:
        text = chr(96 + value)
        text = text.upper() if shape.startswith("alphaUc") else text
    elif shape.startswith("roman"):
        text = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x")[value] if 0 < value <= 10 else text
        text = text.upper() if shape.startswith("romanUc") else text
    if shape.endswith("ParenBoth"):
        return f"({text})"
    return f"{text})" if shape.endswith("ParenR") else text if shape.endswith("Plain") else f"{text}."


def _integer(text: str | None, default: int) -> int:
    match = re.match(r"-?\d{1,12}", (text or "").strip())
    return int(match.group()) if match else default


def _box(element: Element) -> _Box | None:
    """Left, top, right and bottom of a shape that says where it is."""
    place = _child(element, "xfrm") if _name(element) == "graphicFrame" else _child(element, "spPr", "xfrm")
    off, extent = _child(place, "off"), _child(place, "ext")
    if off is None or extent is None:
        return None
    x, y = _integer(_attribute(off, "x"), 0), _integer(_attribute(off, "y"), 0)
    return x, y, x + _integer(_attribute(extent, "cx"), 0), y + _integer(_attribute(extent, "cy"), 0)


def _meet(one: _Box | None, other: _Box | None) -> bool:
    if one is None or other is None:
        return True
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]

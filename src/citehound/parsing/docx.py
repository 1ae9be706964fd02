"""Word documents (DOCX): what a reader sees with all changes accepted, numbers included; macros are never read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from xml.etree.ElementTree import Element

from ..errors import ParseError
from .blocks import Block, BlockKind
from .colours import WHITE, Colour, alike, colour
from .extract import Archive, Extract, cell, clean, clean_line, core_properties, main_part, relations

_ON = {"1", "true", "on"}
_OFF = {"0", "false", "off", "none"}
_MULTI = re.compile(r"\d+(?:\.\d+)+\.?$")
_MAX_NESTING = 60


def _name(element: Element) -> str:
    return element.tag


def _attribute(element: Element | None, name: str) -> str | None:
    """An attribute by its local name, whatever its namespace."""
    if element is None:
        return None
    for key, value in element.attrib.items():
        if key.rsplit("}", 1)[-1] == name:
            return value
    return None


def _child(element: Element | None, *names: str) -> Element | None:
    """The first child along a path of local names."""
    for name in names:
        if element is None:
            return None
        element = element.find(name)
    return element


def _toggle(element: Element | None, name: str) -> bool | None:
    """An on/off property such as `w:vanish`; None when it isn't there."""
    return _on(_child(element, name))


def _on(found: Element | None) -> bool | None:
    return None if found is None else (_attribute(found, "val") or "1").lower() not in _OFF


@dataclass(frozen=True, kw_only=True)
class _Style:
    name: str
    based_on: str | None
    paragraph: Element | None
    run: Element | None


@dataclass(kw_only=True)
class _Level:
    start: int
    format: str
    text: str
    legal: bool
    restart: int | None
    style: str | None


@dataclass(kw_only=True)
class _List:
    """A numbering definition: its levels, and under which key its numbers are counted."""

    levels: dict[int, _Level]
    abstract: str
    starts: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(kw_only=True)
class _Paragraph:
    text: str
    style: str | None
    label: str = ""
    heading: int = 0
    bold: bool = False
    merges: bool = False
    """True when its end mark was deleted, so the next paragraph goes on in it."""
    notes: list[str] = field(default_factory=list[str])
    boxes: list[Element] = field(default_factory=list[Element])
    contents: bool = False


def parse_docx(data: bytes) -> Extract:
    """Blocks of a DOCX file. Raises ParseError."""
    archive = Archive(data, kind="DOCX")
    part = main_part(archive, default="word/document.xml")
    root = archive.xml(part)
    body = _child(root, "body")
    if body is None:
        raise ParseError("damaged: the DOCX container has no document in it")
    reader = _Reader(archive, part)
    reader.blocks_of(body)
    reader.finish()
    metadata = core_properties(archive)
    heads = reader.running_heads()
    if heads:
        metadata["running_head"] = heads[:500]
    return Extract(
        blocks=reader.blocks,
        title=reader.title or metadata.pop("title", None),
        warnings=tuple(reader.warnings()),
        metadata={k: v for k, v in metadata.items() if k != "title"},
    )


class _Reader:
    def __init__(self, archive: Archive, part: str) -> None:
        self.blocks: list[Block] = []
        self.title: str | None = None
        self._archive = archive
        self._relations = relations(archive, part)
        self._styles: dict[str, _Style] = {}
        self._default_style: str | None = None
        self._known: dict[tuple[str, str], Element | None] = {}  # what styles say of runs
        self._lists: dict[str, _List] = {}
        self._counters: dict[str, dict[int, int]] = {}
        self._notes: dict[str, dict[str, Element]] = {"footnote": {}, "endnote": {}}
        self._note_numbers: dict[tuple[str, str], int] = {}
        self._field_depth: list[bool] = []  # one per open field: True while its code is being read
        self._hidden = 0
        self._struck = 0
        self._left_out: list[str] = []
        self._pending: _Paragraph | None = None
        self._depth = 0
        self._grounds: list[Colour | str | None] = [WHITE]
        """What lies behind the text: that of the page, then of each cell and box around; None where it is not known."""
        self._bold_blocks: list[int] = []
        for kind, name in self._relations.values():
            if kind == "styles":
                self._read_styles(archive.xml(name))
            elif kind == "numbering":
                self._read_numbering(archive.xml(name))
            elif kind in ("footnotes", "endnotes"):
                root = archive.xml(name)
                for note in root if root is not None else ():
                    if _attribute(note, "type") in (None, "normal"):
                        self._notes[kind[:-1]][_attribute(note, "id") or ""] = note
            elif kind == "comments":
                root = archive.xml(name)
                if root is not None and len(root):
                    self._left_out.append(f"comments left out ({len(root)})")

    def warnings(self) -> Iterator[str]:
        if self._struck:
            yield f"struck text left out ({self._struck} characters)"
        if self._hidden:
            yield f"hidden text left out ({self._hidden} characters)"
        yield from self._left_out

    def running_heads(self) -> str:
        """The text of headers and footers, which is not part of the body."""
        found: list[str] = []
        for kind, name in self._relations.values():
            if kind in ("header", "footer"):
                root = self._archive.xml(name)
                for p in root.iter() if root is not None else ():
                    if _name(p) == "p":
                        text = clean_line(self._paragraph(p, count=False).text)
                        if text and text not in found and re.search(r"[^\W\d_]{2}", text):
                            found.append(text)
        return "; ".join(found)

    # ---- definitions

    def _read_styles(self, root: Element | None) -> None:
        for style in root if root is not None else ():
            if _name(style) != "style":
                continue
            key = _attribute(style, "styleId") or ""
            self._styles[key] = _Style(
                name=(_attribute(_child(style, "name"), "val") or key).lower(),
                based_on=_attribute(_child(style, "basedOn"), "val"),
                paragraph=_child(style, "pPr"),
                run=_child(style, "rPr"),
            )
            if _attribute(style, "type") == "paragraph" and (_attribute(style, "default") or "") in _ON:
                self._default_style = key

    def _chain(self, style: str | None) -> Iterator[_Style]:
        seen: set[str] = set()
        while style is not None and style not in seen and style in self._styles:
            seen.add(style)
            yield self._styles[style]
            style = self._styles[style].based_on

    def _read_numbering(self, root: Element | None) -> None:
        abstracts: dict[str, dict[int, _Level]] = {}
        for item in root if root is not None else ():
            if _name(item) == "abstractNum":
                abstracts[_attribute(item, "abstractNumId") or ""] = dict(
                    _level(lvl) for lvl in item if _name(lvl) == "lvl"
                )
        for item in root if root is not None else ():
            if _name(item) != "num":
                continue
            abstract = _attribute(_child(item, "abstractNumId"), "val") or ""
            found = _List(levels=dict(abstracts.get(abstract, {})), abstract=abstract)
            for override in item:
                if _name(override) != "lvlOverride":
                    continue
                at = _integer(_attribute(override, "ilvl"), 0)
                start = _attribute(_child(override, "startOverride"), "val")
                if start is not None:
                    found.starts[at] = _integer(start, 1)
                lvl = _child(override, "lvl")
                if lvl is not None:
                    found.levels[at] = _level(lvl)[1]
            self._lists[_attribute(item, "numId") or ""] = found

    # ---- blocks

    def blocks_of(self, parent: Element) -> None:
        """The blocks of a body, a cell or a text box, in order."""
        self._depth += 1
        if self._depth > _MAX_NESTING:
            self._depth -= 1
            self._left_out.append("text nested too deeply left out")
            return
        for element in parent:
            match _name(element):
                case "p":
                    self._write(self._paragraph(element))
                case "tbl":
                    self.finish()
                    self._table(element)
                case "sdt":
                    content = _child(element, "sdtContent")
                    gallery = _attribute(_child(element, "sdtPr", "docPartObj", "docPartGallery"), "val")
                    if content is not None and gallery != "Table of Contents":
                        self.blocks_of(content)
                case "customXml" | "ins" | "moveTo" | "smartTag":
                    self.blocks_of(element)
                case "AlternateContent":
                    choice = _child(element, "Choice")
                    chosen = choice if choice is not None else _child(element, "Fallback")
                    if chosen is not None:
                        self.blocks_of(chosen)
                case "altChunk":
                    self._left_out.append("an embedded file was not read")
                case _:
                    pass
        self._depth -= 1

    def finish(self) -> None:
        """Writes the paragraph that waited for more."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.merges = False
            self._write(pending)
        few = len(self._bold_blocks) <= 0.25 * len(self.blocks)
        if self._depth == 0 and few and not any(b.kind == "heading" for b in self.blocks):
            for index in self._bold_blocks:
                block = self.blocks[index]
                self.blocks[index] = Block(text=block.text.replace("\n", " "), kind="heading", level=3)

    def _write(self, paragraph: _Paragraph) -> None:
        if self._pending is not None:
            before, self._pending = self._pending, None
            paragraph.text = before.text + paragraph.text
            paragraph.notes = before.notes + paragraph.notes
            paragraph.boxes = before.boxes + paragraph.boxes
            paragraph.label = before.label or paragraph.label
        if paragraph.merges:
            self._pending = paragraph
            return
        text = _tidy(paragraph.text)
        if text and not paragraph.contents:
            kind: BlockKind = "paragraph"
            if paragraph.heading:
                kind = "heading"
                text = text.replace("\n", " ")
            elif paragraph.label and not _MULTI.match(paragraph.label):
                kind = "item"
            if paragraph.label:
                text = f"{paragraph.label} {text}"
            tight = kind == "item" and bool(self.blocks) and self.blocks[-1].kind == "item"
            if paragraph.heading and self.title is None and self._is_title(paragraph.style):
                self.title = text
            if kind == "paragraph" and paragraph.bold and self._depth == 1 and _is_short(text):
                self._bold_blocks.append(len(self.blocks))
            self.blocks.append(Block(text=text, kind=kind, level=paragraph.heading, tight=tight))
        for box in paragraph.boxes:
            self._grounds.append(None)
            self.blocks_of(box)
            self._grounds.pop()
        for note in paragraph.notes:
            self.blocks.append(Block(text=note, kind="quote", tight=True))

    def _is_title(self, style: str | None) -> bool:
        return any(s.name == "title" for s in self._chain(style))

    # ---- tables

    def _table(self, table: Element) -> None:
        if self._depth > _MAX_NESTING:
            self._left_out.append("a table nested too deeply was left out")
            return
        self._depth += 1
        rows = [row for row in _through(table, "tr") if not self._row_is_gone(row)]
        grid = [[c for c in _through(row, "tc") if _child(c, "tcPr", "cellDel") is None] for row in rows]
        widest = max((len(cells) for cells in grid), default=0)
        headed = any(self._heading_level(p) for cells in grid for c in cells for p in c.iter() if _name(p) == "p")
        if widest <= 1 or headed:
            for cells in grid:
                for item in cells:
                    self._grounds.append(self._ground_of(item, table))
                    self.blocks_of(item)
                    self.finish()
                    self._grounds.pop()
            self._depth -= 1
            return
        lines: list[str] = []
        above: dict[int, str] = {}
        notes: list[str] = []

        def flush() -> None:
            if lines:
                self.blocks.append(Block(text="\n".join(lines), kind="table"))
                lines.clear()
            self.blocks.extend(Block(text=note, kind="quote", tight=True) for note in notes)
            notes.clear()

        width = max(sum(_span(c) for c in cells) for cells in grid)
        for cells in grid:
            texts: list[str] = []
            nested: list[Element] = []
            for item in cells:
                merge = _child(item, "tcPr", "vMerge")
                goes_on = merge is not None and (_attribute(merge, "val") or "continue") == "continue"
                column = len(texts)
                if goes_on:
                    text = above.get(column, "")
                else:
                    self._grounds.append(self._ground_of(item, table))
                    text = self._cell(item, nested, notes)
                    self._grounds.pop()
                    above[column] = text
                texts.extend([text] * (1 if _span(item) >= width else _span(item)))
            line = " | ".join(texts).rstrip()
            if line.strip(" |"):
                lines.append(line)
            if nested:
                flush()
                for inner in nested:
                    self._table(inner)
        flush()
        self._depth -= 1

    def _row_is_gone(self, row: Element) -> bool:
        properties = _child(row, "trPr")
        if _child(properties, "del") is not None:
            return True
        if _toggle(properties, "hidden"):
            self._hidden += sum(len(t.text or "") for t in row.iter() if _name(t) == "t")
            return True
        return False

    def _cell(self, element: Element, nested: list[Element], notes: list[str]) -> str:
        """A cell's text on one line; the tables inside it are left to the caller."""
        parts: list[str] = []
        before = ""
        for item in _flow(element):
            if _name(item) == "tbl":
                nested.append(item)
                continue
            paragraph = self._paragraph(item)
            text = before + paragraph.text
            before = ""
            if paragraph.merges:
                before = text
                continue
            text = cell(text)
            if text:
                parts.append(f"{paragraph.label} {text}" if paragraph.label else text)
            notes.extend(paragraph.notes)
            for box in paragraph.boxes:
                self._grounds.append(None)
                inner = self._cell(box, nested, notes)
                self._grounds.pop()
                if inner:
                    parts.append(inner)
        if cell(before):
            parts.append(cell(before))
        return " ".join(parts)

    # ---- paragraphs

    def _heading_level(self, p: Element) -> int:
        """1 to 9 for a heading, else 0."""
        properties = _child(p, "pPr")
        own = _attribute(_child(properties, "outlineLvl"), "val")
        style = _attribute(_child(properties, "pStyle"), "val")
        if own is None:
            for item in self._chain(style):
                if item.name == "title":
                    return 1
                match = re.fullmatch(r"heading (\d)", item.name)
                if match:
                    return int(match[1])
                own = _attribute(_child(item.paragraph, "outlineLvl"), "val")
                if own is not None:
                    break
        level = _integer(own, 9)
        return level + 1 if 0 <= level < 9 else 0

    def _paragraph(self, p: Element, *, count: bool = True) -> _Paragraph:
        properties = _child(p, "pPr")
        style = _attribute(_child(properties, "pStyle"), "val") or self._default_style
        result = _Paragraph(text="", style=style)
        mark = _child(properties, "rPr")
        result.merges = _child(mark, "del") is not None or _child(mark, "moveFrom") is not None
        result.contents = any(re.match(r"toc \d|table of figures", s.name) for s in self._chain(style))
        parts: list[str] = []
        weights: list[tuple[int, bool]] = []
        depth = len(self._field_depth)
        self._inline(p, result, parts, weights, paragraph=properties)
        del self._field_depth[depth:]  # a field that spans paragraphs shows what follows
        result.text = "".join(parts)
        shown = sum(n for n, _ in weights)
        result.bold = shown > 0 and all(bold for n, bold in weights if n)
        if result.text.strip():
            result.heading = self._heading_level(p)
            if result.heading and len(result.text) > 400:
                result.heading = 0
        if count and (result.text.strip() or result.boxes) and not (result.merges and not result.text.strip()):
            result.label = self._label(properties, style)
        return result

    def _inline(
        self,
        parent: Element,
        result: _Paragraph,
        parts: list[str],
        weights: list[tuple[int, bool]],
        *,
        paragraph: Element | None,
    ) -> None:
        for element in parent:
            match _name(element):
                case "r":
                    self._run(element, result, parts, weights, paragraph=paragraph)
                case "del" | "moveFrom" | "pPr" | "rPr" | "sdtPr":
                    pass
                case "AlternateContent":
                    choice = _child(element, "Choice")
                    chosen = choice if choice is not None else _child(element, "Fallback")
                    if chosen is not None:
                        self._inline(chosen, result, parts, weights, paragraph=paragraph)
                case "oMath" | "oMathPara":
                    text = "".join(t.text or "" for t in element.iter() if _name(t) == "t")
                    parts.append(text)
                    weights.append((len(text), False))
                case "p" | "tbl":
                    pass
                case _:
                    self._inline(element, result, parts, weights, paragraph=paragraph)

    def _run(
        self,
        run: Element,
        result: _Paragraph,
        parts: list[str],
        weights: list[tuple[int, bool]],
        *,
        paragraph: Element | None,
    ) -> None:
        properties = _child(run, "rPr")
        shown = self._shown(properties, result.style, paragraph)
        bold = bool(self._property(properties, result.style, "b"))
        for element in run:
            name = _name(element)
            if name == "fldChar":
                kind = _attribute(element, "fldCharType")
                if kind == "begin":
                    self._field_depth.append(True)
                elif kind == "separate" and self._field_depth:
                    self._field_depth[-1] = False
                elif kind == "end" and self._field_depth:
                    self._field_depth.pop()
                continue
            text = ""
            match name:
                case "t":
                    text = element.text or ""
                case "tab" | "ptab":
                    text = "\t"
                case "br" | "cr":
                    text = "\n"
                case "noBreakHyphen":
                    text = "-"
                case "sym":
                    text = _symbol(_attribute(element, "char"))
                case "footnoteReference" | "endnoteReference":
                    if shown == "yes":
                        text = self._note(element, name.removesuffix("Reference"), result)
                case "drawing" | "pict" | "object":
                    if shown != "hidden":
                        result.boxes.extend(_boxes(element))
                    continue
                case "AlternateContent":
                    choice = _child(element, "Choice")
                    chosen = choice if choice is not None else _child(element, "Fallback")
                    if chosen is not None and shown != "hidden":
                        result.boxes.extend(_boxes(chosen))
                    continue
                case _:
                    continue
            if any(self._field_depth):
                continue
            if shown == "struck":
                self._struck += len(text.strip())
            elif shown == "hidden":
                self._hidden += len(text.strip())
            else:
                parts.append(text)
                weights.append((len(text.strip()), bold))

    def _note(self, element: Element, kind: str, result: _Paragraph) -> str:
        key = (kind, _attribute(element, "id") or "")
        note = self._notes[kind].get(key[1])
        if note is None:
            return ""
        known = self._note_numbers.get(key)
        number = known or sum(1 for k, _ in self._note_numbers if k == kind) + 1
        label = str(number) if kind == "footnote" else _number(number, "lowerRoman")
        if known is None:
            self._note_numbers[key] = number
            text = " ".join(t for p in _flow(note) if _name(p) == "p" and (t := clean_line(self._paragraph(p).text)))
            if text:
                result.notes.append(f"[{label}] {text}")
        return f"[{label}]"

    def _property(self, properties: Element | None, style: str | None, name: str) -> bool | None:
        """A run's on/off property: its own, else its character style's, else its paragraph style's."""
        return _on(self._element(properties, style, name))

    def _shown(
        self, properties: Element | None, style: str | None, paragraph: Element | None
    ) -> Literal["yes", "struck", "hidden"]:
        if properties is None and not any(s.run is not None for s in self._chain(style)):
            return "yes"
        if self._property(properties, style, "vanish") or self._property(properties, style, "webHidden"):
            return "hidden"
        if self._property(properties, style, "strike") or self._property(properties, style, "dstrike"):
            return "struck"
        size, width = self._element(properties, style, "sz"), self._element(properties, style, "w")
        if _integer(_attribute(size, "val"), 20) <= 4 or _integer(_attribute(width, "val"), 100) <= 5:
            return "hidden"
        ink = _ink(self._element(properties, style, "color"))
        if ink is not None:
            shades = [
                _child(properties, "highlight"),
                self._element(properties, style, "shd"),
                _child(paragraph, "shd"),
            ]
            shades += [_child(s.paragraph, "shd") for s in self._chain(style)]
            ground = next((g for g in map(_ground, shades) if g is not None), self._grounds[-1])
            if ground is not None and alike(ink, ground):
                return "hidden"
        return "yes"

    def _element(self, properties: Element | None, style: str | None, name: str) -> Element | None:
        """A run's property: its own, else its character style's, else its paragraph style's."""
        found = _child(properties, name)
        if found is None and (own := _attribute(_child(properties, "rStyle"), "val")) is not None:
            found = self._inherited(own, name)
        return found if found is not None or style is None else self._inherited(style, name)

    def _inherited(self, style: str, name: str) -> Element | None:
        """A run's property as a style has it, or one that it is based on."""
        key = (style, name)
        if key not in self._known:
            runs = (_child(item.run, name) for item in self._chain(style))
            self._known[key] = next((found for found in runs if found is not None), None)
        return self._known[key]

    def _ground_of(self, cell: Element, table: Element) -> Colour | str | None:
        """What lies behind the text of a cell; a table's style may lay anything there."""
        own = _ground(_child(cell, "tcPr", "shd"))
        if own is not None:
            return own
        style = _attribute(_child(table, "tblPr", "tblStyle"), "val")
        plain = style is None or re.fullmatch(r"(?i)table ?(?:grid|normal)", style) is not None
        return self._grounds[-1] if plain else None

    # ---- numbers

    def _label(self, properties: Element | None, style: str | None) -> str:
        """The number or bullet that stands before a paragraph, counted on."""
        number = _child(properties, "numPr")
        list_id = _attribute(_child(number, "numId"), "val")
        level = _attribute(_child(number, "ilvl"), "val")
        if list_id is None:
            for item in self._chain(style):
                number = _child(item.paragraph, "numPr")
                if number is not None:
                    list_id = _attribute(_child(number, "numId"), "val")
                    level = level or _attribute(_child(number, "ilvl"), "val")
                    if list_id is not None:
                        break
        if list_id is None or list_id == "0":
            return ""
        found = self._lists.get(list_id)
        if found is None:
            return ""
        if level is None and style is not None:
            linked = next((n for n, lvl in found.levels.items() if lvl.style == style), None)
            level = None if linked is None else str(linked)
        at = _integer(level, 0)
        definition = found.levels.get(at)
        if definition is None:
            return ""
        counters = self._counters.setdefault(found.abstract, {})
        if at in found.starts:  # an override counts once, where its list begins
            counters[at] = found.starts.pop(at) - 1
        elif at not in counters:
            counters[at] = definition.start - 1
        counters[at] += 1
        for deeper in [n for n in counters if n > at]:
            restart = found.levels[deeper].restart if deeper in found.levels else None
            if restart is None or (restart != 0 and at < restart):
                del counters[deeper]
        if definition.format == "bullet":
            return "-"
        if definition.format == "none" and "%" in definition.text:
            return ""

        def fill(match: re.Match[str]) -> str:
            which = int(match[1]) - 1
            other = found.levels.get(which)
            value = counters.get(which, other.start if other else 1)
            shape = "decimal" if definition.legal or other is None else other.format
            return _number(value, shape)

        return clean_line(re.sub(r"%([1-9])", fill, definition.text))


def _level(lvl: Element) -> tuple[int, _Level]:
    restart = _attribute(_child(lvl, "lvlRestart"), "val")
    return _integer(_attribute(lvl, "ilvl"), 0), _Level(
        start=_integer(_attribute(_child(lvl, "start"), "val"), 1),
        format=_attribute(_child(lvl, "numFmt"), "val") or "decimal",
        text=_attribute(_child(lvl, "lvlText"), "val") or "",
        legal=bool(_toggle(lvl, "isLgl")),
        restart=None if restart is None else _integer(restart, 0),
        style=_attribute(_child(lvl, "pStyle"), "val"),
    )


def _number(value: int, shape: str) -> str:
    match shape:
        case "lowerLetter" | "upperLetter":
            letter = chr(97 + (value - 1) % 26) * ((value - 1) // 26 + 1) if 0 < value < 500 else str(value)
            return letter if shape == "lowerLetter" else letter.upper()
        case "lowerRoman" | "upperRoman":
            if not 0 < value < 4000:
                return str(value)
            text = ""
            for size, sign in zip(
                (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
                ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"),
                strict=True,
            ):
                text += sign * (value // size)
                value %= size
            return text if shape == "lowerRoman" else text.upper()
        case "decimalZero":
            return f"{value:02d}"
        case "ordinal":
            suffix = "th" if 10 < value % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
            return f"{value}{suffix}"
        case "none":
            return ""
        case _:
            return str(value)


def _flow(parent: Element) -> Iterator[Element]:
    """Paragraphs and tables of a cell or a note, through content controls and accepted insertions."""
    for element in parent:
        name = _name(element)
        if name in ("p", "tbl"):
            yield element
        elif name in ("sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag"):
            yield from _flow(element)


def _through(parent: Element, name: str) -> list[Element]:
    """Children of a name, through content controls."""
    found: list[Element] = []
    for element in parent:
        if _name(element) == name:
            found.append(element)
        elif _name(element) in ("sdt", "sdtContent", "customXml", "ins", "moveTo"):
            found.extend(_through(element, name))
    return found


def _boxes(element: Element) -> list[Element]:
    """Text boxes inside a drawing, each once."""
    found: list[Element] = []
    for item in element:
        name = _name(item)
        if name == "txbxContent":
            found.append(item)
        elif name == "AlternateContent":
            choice = _child(item, "Choice")
            chosen = choice if choice is not None else _child(item, "Fallback")
            if chosen is not None:
                found.extend(_boxes(chosen))
        elif name not in ("p", "tbl"):
            found.extend(_boxes(item))
    return found


def _span(tc: Element) -> int:
    return max(1, min(100, _integer(_attribute(_child(tc, "tcPr", "gridSpan"), "val"), 1)))


def _ink(element: Element | None) -> Colour | str | None:
    """A colour that is not left to the reader's program; None for one that is."""
    if (theme := _themed(element, "themeColor", "themeShade", "themeTint")) is not None:
        return theme
    value = (_attribute(element, "val") or "auto").lower()
    return None if value == "auto" else colour(value)


def _themed(element: Element | None, name: str, shade: str, tint: str) -> Colour | str | None:
    """A colour of the theme, which may be made darker or lighter; None where it is none of the theme."""
    theme = _attribute(element, name)
    if theme is None:
        return None
    darker, lighter = _attribute(element, shade), _attribute(element, tint)
    if theme in ("background1", "light1"):
        level = _integer_hex(darker) if darker is not None else 255
        return (level, level, level)
    return " ".join(part for part in ("theme", theme, darker, lighter) if part)


def _ground(shade: Element | None) -> Colour | str | None:
    """What a shading or highlight lays behind text; None where it lays nothing."""
    if shade is None:
        return None
    if _name(shade) == "highlight":
        value = (_attribute(shade, "val") or "none").lower()
        return None if value == "none" else colour(value)
    solid = _attribute(shade, "val") == "solid"
    names = ("themeColor", "themeShade", "themeTint") if solid else ("themeFill", "themeFillShade", "themeFillTint")
    if (theme := _themed(shade, *names)) is not None:
        return theme
    value = (_attribute(shade, "color" if solid else "fill") or "auto").lower()
    return None if value == "auto" else colour(value)


def _symbol(code: str | None) -> str:
    """A character of a symbol font, as far as it has a plain counterpart."""
    value = _integer_hex(code)
    plain = {0xF0B7: "•", 0xF0A7: "▪", 0xF0FE: "☒", 0xF0A8: "☐", 0xF06F: "☐", 0xF0FC: "✓", 0xF0E0: "→", 0xF0D8: "➢"}
    if value in plain:
        return plain[value]
    if 0xF020 <= value <= 0xF07E:
        return ""
    return chr(value) if 0x20 <= value < 0xE000 else ""


def _is_short(text: str) -> bool:
    """True for what can be a heading by its shape."""
    ends = re.search(r"[,;:—–*]$|\w{3,}\.$|\)\.$", text)
    words = len(text.split())
    return words <= 14 and len(text) <= 120 and not ends and "\n" not in text and not text.startswith(("(", "[", "*"))


def _tidy(text: str) -> str:
    lines = [re.sub(r"[ \t]+", " ", line).strip() for line in clean(text).split("\n")]
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip()


def _integer(text: str | None, default: int) -> int:
    match = re.match(r"-?\d{1,9}", (text or "").strip())
    return int(match.group()) if match else default


def _integer_hex(text: str | None) -> int:
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0

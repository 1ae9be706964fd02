"""OpenDocument text (ODT): headings with their numbers, lists, tables and notes as a reader sees them; no macros."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from ..errors import ParseError
from .blocks import Block, BlockKind
from .colours import WHITE, Colour, alike, colour
from .extract import Archive, Extract, cell, clean, clean_line

_MAX_NESTING = 20
_MULTI = re.compile(r"\d+(?:\.\d+)+\.?$")
_SKIPPED = {
    "tracked-changes", "sequence-decls", "variable-decls", "user-field-decls", "annotation", "annotation-end", "forms",
    "table-of-content", "alphabetical-index", "illustration-index", "table-index", "bibliography-index", "script",
    "ruby-text", "desc", "title", "event-listeners", "hidden-text", "hidden-paragraph", "soft-page-break", "bookmark",
}  # fmt: skip


def _name(element: Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def _attribute(element: Element | None, name: str) -> str | None:
    if element is None:
        return None
    return next((v for k, v in element.attrib.items() if k.rsplit("}", 1)[-1] == name), None)


def _child(element: Element | None, *names: str) -> Element | None:
    for name in names:
        if element is None:
            return None
        element = next((c for c in element if _name(c) == name), None)
    return element


@dataclass(frozen=True, kw_only=True)
class _Level:
    """How one level of a list or outline is numbered."""

    format: str
    prefix: str
    suffix: str
    shown: int
    start: int
    bullet: bool


@dataclass(kw_only=True)
class _Inline:
    parts: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    boxes: list[Element] = field(default_factory=list[Element])


def parse_odt(data: bytes) -> Extract:
    """Blocks of an ODT file. Raises ParseError."""
    archive = Archive(data, kind="ODT")
    manifest = archive.read("META-INF/manifest.xml") or b""
    if b"encryption-data" in manifest:
        raise ParseError("encrypted, needs a password")
    root = archive.xml("content.xml")
    body = _child(root, "body", "text")
    if root is None or body is None:
        raise ParseError("damaged: the ODT container has no text in it")
    reader = _Reader(root, archive.xml("styles.xml"))
    reader.blocks_of(body)
    metadata: dict[str, str] = {}
    title: str | None = None
    meta = archive.xml("meta.xml")
    for item in meta.iter() if meta is not None else ():
        value = clean_line(item.text or "")
        key = {"creator": "author", "subject": "subject", "keyword": "keywords", "date": "modified",
               "creation-date": "created", "language": "language"}.get(_name(item))  # fmt: skip
        if _name(item) == "title" and value:
            title = value
        elif key and value:
            metadata[key] = f"{metadata[key]}, {value}" if key in metadata and key == "keywords" else value[:500]
    warnings: list[str] = []
    if reader.struck:
        warnings.append(f"struck text left out ({reader.struck} characters)")
    if reader.hidden:
        warnings.append(f"hidden text left out ({reader.hidden} places)")
    return Extract(blocks=reader.blocks, title=reader.title or title, warnings=tuple(warnings), metadata=metadata)


class _Reader:
    def __init__(self, content: Element, styles: Element | None) -> None:
        self.blocks: list[Block] = []
        self.title: str | None = None
        self.struck = 0
        self.hidden = 0
        self._styles: dict[str, Element] = {}
        self._lists: dict[str, dict[int, _Level]] = {}
        self._outline: dict[int, _Level] = {}
        self._counts: dict[int, int] = {}
        self._running: dict[str, dict[int, int]] = {}
        self._notes = 0
        self._depth = 0
        self._grounds: list[Colour | str | None] = [WHITE]
        """What lies behind the text: that of the page, then of each cell and box around; None where it is not known."""
        for root in (styles, content):
            for element in root.iter() if root is not None else ():
                name = _name(element)
                if name == "style":
                    self._styles[_attribute(element, "name") or ""] = element
                elif name == "list-style":
                    self._lists[_attribute(element, "name") or ""] = _levels(element)
                elif name == "outline-style":
                    self._outline = _levels(element)

    def blocks_of(self, parent: Element) -> None:
        """The blocks of a body, section, cell or box, in order."""
        if self._depth > _MAX_NESTING:
            return
        self._depth += 1
        for element in parent:
            name = _name(element)
            if name in _SKIPPED:
                continue
            if _attribute(element, "display") == "none":
                self.hidden += any((e.text or "").strip() for e in element.iter())
                continue
            match name:
                case "h":
                    self._heading(element)
                case "p":
                    self._paragraph(element)
                case "list":
                    self._list(element, style=None, level=1)
                case "table":
                    self._table(element)
                case "section" | "index-body" | "text-box" | "frame" | "g" | "numbered-paragraph":
                    self.blocks_of(element)
                case _:
                    pass
        self._depth -= 1

    def _heading(self, h: Element) -> None:
        inline = _Inline()
        self._walk(h, inline)
        text = clean_line("".join(inline.parts))
        if not text or self._gone(_attribute(h, "style-name")):
            return
        level = max(1, min(9, _integer(_attribute(h, "outline-level"), 1)))
        number = ""
        if _attribute(h, "is-list-header") != "true" and level in self._outline:
            number = _count(self._counts, self._outline, level, restart=_attribute(h, "start-value"))
        self.blocks.append(Block(text=f"{number} {text}" if number else text, kind="heading", level=level))
        self._after(inline)

    def _paragraph(self, p: Element, *, marker: str = "") -> None:
        style = _attribute(p, "style-name")
        if self._gone(style):
            self.hidden += 1
            return
        inline = _Inline()
        self._walk(p, inline)
        text = _tidy("".join(inline.parts))
        if text:
            kind: BlockKind = "paragraph"
            level = 0
            if self._is(style, "Title"):
                kind, level = "heading", 1
                text = clean_line(text)
                self.title = self.title or text
            elif marker and not _MULTI.match(marker):
                kind = "item"
            tight = kind == "item" and bool(self.blocks) and self.blocks[-1].kind == "item"
            self.blocks.append(Block(text=f"{marker} {text}" if marker else text, kind=kind, level=level, tight=tight))
        self._after(inline)

    def _after(self, inline: _Inline) -> None:
        for box in inline.boxes:
            self._grounds.append(None)
            self.blocks_of(box)
            self._grounds.pop()
        self.blocks.extend(Block(text=note, kind="quote", tight=True) for note in inline.notes)

    def _list(self, element: Element, *, style: str | None, level: int) -> None:
        if level > _MAX_NESTING:
            return
        style = _attribute(element, "style-name") or style or ""
        levels = self._lists.get(style, {})
        counts = self._running.setdefault(style, {})
        goes_on = level > 1 or _attribute(element, "continue-numbering") == "true"
        if not goes_on and _attribute(element, "continue-list") is None:
            counts.clear()
        for item in element:
            name = _name(item)
            if name not in ("list-item", "list-header"):
                continue
            marker = ""
            if name == "list-item":
                shape = levels.get(level)
                first = next((c for c in item if _name(c) in ("p", "h", "list")), None)
                if first is None or _name(first) != "list":
                    bullet = shape is None or shape.bullet
                    restart = _attribute(item, "start-value")
                    marker = "-" if bullet else _count(counts, levels, level, restart=restart)
            for part in item:
                match _name(part):
                    case "p":
                        self._paragraph(part, marker=marker)
                        marker = ""
                    case "h":
                        if marker and marker != "-" and not self._outline:
                            part.text = f"{marker} {part.text or ''}"
                        self._heading(part)
                        marker = ""
                    case "list":
                        self._list(part, style=style, level=level + 1)
                    case "table":
                        self._table(part)
                    case _:
                        pass

    # ---- text inside a paragraph

    def _walk(self, element: Element, inline: _Inline) -> None:
        inline.parts.append(_space(element.text))
        for child in element:
            self._inside(child, inline)
            inline.parts.append(_space(child.tail))

    def _inside(self, child: Element, inline: _Inline) -> None:
        match _name(child):
            case "s":
                inline.parts.append(" " * min(200, _integer(_attribute(child, "c"), 1)))
            case "tab":
                inline.parts.append(" ")
            case "line-break":
                inline.parts.append("\n")
            case "span":
                style = _attribute(child, "style-name")
                text = "".join(child.itertext())
                if self._gone(style):
                    self.hidden += bool(text.strip())
                elif self._struck(style):
                    self.struck += len(text.strip())
                else:
                    self._walk(child, inline)
            case "note":
                self._note(child, inline)
            case "frame" | "custom-shape" | "g":
                inline.boxes.extend(e for e in child.iter() if _name(e) == "text-box")
                if _name(child) == "custom-shape":
                    inline.boxes.append(child)
            case name if name in _SKIPPED:
                pass
            case _:
                self._walk(child, inline)

    def _note(self, note: Element, inline: _Inline) -> None:
        citation = _child(note, "note-citation")
        label = clean_line("".join(citation.itertext()) if citation is not None else "")[:10]
        body = _child(note, "note-body")
        if body is None:
            return
        self._notes += 1
        label = label or str(self._notes)
        texts: list[str] = []
        for p in body.iter():
            if _name(p) in ("p", "h"):
                inner = _Inline()
                self._walk(p, inner)
                texts.append(clean_line("".join(inner.parts)))
        inline.parts.append(f"[{label}]")
        text = " ".join(t for t in texts if t)
        if text:
            inline.notes.append(f"[{label}] {text}")

    # ---- styles

    def _chain(self, style: str | None) -> Iterator[Element]:
        seen: set[str] = set()
        while style and style not in seen and style in self._styles:
            seen.add(style)
            yield self._styles[style]
            style = _attribute(self._styles[style], "parent-style-name")

    def _is(self, style: str | None, name: str) -> bool:
        return style == name or any(_attribute(s, "parent-style-name") == name for s in self._chain(style))

    def _property(self, style: str | None, name: str) -> str | None:
        for item in self._chain(style):
            found = _attribute(_child(item, "text-properties"), name)
            if found is not None:
                return found
        return None

    def _gone(self, style: str | None) -> bool:
        """True for hidden, white or tiny text."""
        if style is None:
            return False
        if self._property(style, "display") == "none":
            return True
        size = re.match(r"([\d.]+)pt", self._property(style, "font-size") or "")
        if size and float(size[1]) <= 2:
            return True
        scale = re.match(r"([\d.]+)%", self._property(style, "text-scale") or "")
        if scale and float(scale[1]) <= 5:
            return True
        ink = self._property(style, "color")
        if ink is None or self._property(style, "use-window-font-color") == "true":
            return False
        shades = [self._property(style, "background-color")]
        shades += [_attribute(_child(s, "paragraph-properties"), "background-color") for s in self._chain(style)]
        ground = next((colour(s.lower()) for s in shades if s not in (None, "transparent")), self._grounds[-1])
        seen = colour(ink.lower())
        return seen is None or (ground is not None and alike(seen, ground))

    def _ground_of(self, cell: Element) -> Colour | str | None:
        """What lies behind the text of a cell."""
        for item in self._chain(_attribute(cell, "style-name")):
            shade = _attribute(_child(item, "table-cell-properties"), "background-color")
            if shade not in (None, "transparent"):
                return colour(shade.lower())
        return self._grounds[-1]

    def _struck(self, style: str | None) -> bool:
        shape = self._property(style, "text-line-through-style") or self._property(style, "text-line-through-type")
        return shape is not None and shape != "none"

    # ---- tables

    def _table(self, table: Element) -> None:
        if self._depth > _MAX_NESTING:
            return
        self._depth += 1
        lines: list[str] = []
        nested: list[Element] = []
        notes: list[str] = []
        rows = list(_rows(table))
        widest = max((sum(1 for c in row if _name(c).endswith("table-cell")) for row in rows), default=0)
        if widest <= 1:
            for row in rows:
                for item in row:
                    self._grounds.append(self._ground_of(item))
                    self.blocks_of(item)
                    self._grounds.pop()
            self._depth -= 1
            return
        hanging: dict[int, tuple[int, str]] = {}
        for row in rows:
            texts: list[str] = []
            beside = ""
            for item in row:
                name = _name(item)
                repeat = min(200, max(1, _integer(_attribute(item, "number-columns-repeated"), 1)))
                if name == "covered-table-cell":
                    for _ in range(repeat):
                        column = len(texts)
                        left, text = hanging.get(column, (0, beside))
                        if left:
                            hanging[column] = (left - 1, text)
                        texts.append(text)
                elif name == "table-cell":
                    self._grounds.append(self._ground_of(item))
                    text = self._cell(item, nested, notes)
                    self._grounds.pop()
                    across = _integer(_attribute(item, "number-columns-spanned"), 1)
                    beside = "" if across >= widest > 1 and not texts else text
                    down = _integer(_attribute(item, "number-rows-spanned"), 1)
                    for _ in range(repeat):
                        for at in range(max(1, across)):
                            if down > 1:
                                hanging[len(texts) + at] = (down - 1, text)
                            else:
                                hanging.pop(len(texts) + at, None)
                        texts.append(text)
            line = " | ".join(texts).rstrip(" |") if not texts or not texts[-1] else " | ".join(texts)
            if line.strip(" |"):
                lines.append(line)
        if lines:
            self.blocks.append(Block(text="\n".join(lines), kind="table"))
        self.blocks.extend(Block(text=note, kind="quote", tight=True) for note in notes)
        for inner in nested:
            self._table(inner)
        self._depth -= 1

    def _cell(self, element: Element, nested: list[Element], notes: list[str]) -> str:
        inner = _Reader.__new__(_Reader)
        inner.__dict__.update(self.__dict__)
        inner.blocks = []
        tables = [e for e in element if _name(e) == "table"]
        nested.extend(tables)
        shallow = Element(element.tag)
        shallow.extend([e for e in element if _name(e) != "table"])
        inner.blocks_of(shallow)
        self.struck, self.hidden, self._notes = inner.struck, inner.hidden, inner._notes
        notes.extend(b.text for b in inner.blocks if b.kind == "quote")
        return cell(" ".join(b.text for b in inner.blocks if b.kind != "quote"))


def _rows(table: Element) -> Iterator[Element]:
    for element in table:
        name = _name(element)
        if name == "table-row":
            if _attribute(element, "visibility") in (None, "visible"):
                yield element
        elif name in ("table-header-rows", "table-rows", "table-row-group"):
            yield from _rows(element)


def _levels(style: Element) -> dict[int, _Level]:
    found: dict[int, _Level] = {}
    for item in style:
        level = _integer(_attribute(item, "level"), 0)
        shape = _attribute(item, "num-format") or ""
        bullet = _name(item) == "list-level-style-bullet"
        if level and (bullet or shape):
            found[level] = _Level(
                format=shape,
                prefix=_attribute(item, "num-prefix") or "",
                suffix=_attribute(item, "num-suffix") or "",
                shown=_integer(_attribute(item, "display-levels"), 1),
                start=_integer(_attribute(item, "start-value"), 1),
                bullet=bullet,
            )
    return found


def _count(counts: dict[int, int], levels: dict[int, _Level], level: int, *, restart: str | None) -> str:
    """Counts on and gives the number as it is shown."""
    shape = levels[level]
    start = shape.start if restart is None else _integer(restart, 1)
    counts[level] = start if restart is not None or level not in counts else counts[level] + 1
    for deeper in [n for n in counts if n > level]:
        del counts[deeper]
    shown = range(max(1, level - shape.shown + 1), level + 1)
    numbers = [_number(counts.get(n, levels[n].start), levels[n].format) for n in shown if n in levels]
    return clean_line(f"{shape.prefix}{'.'.join(n for n in numbers if n)}{shape.suffix}")


def _number(value: int, shape: str) -> str:
    if shape in ("a", "A") and 0 < value < 500:
        letter = chr(97 + (value - 1) % 26) * ((value - 1) // 26 + 1)
        return letter if shape == "a" else letter.upper()
    if shape in ("i", "I") and 0 < value < 4000:
        text = ""
        for size, sign in zip(
            (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
            ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"),
            strict=True,
        ):
            text += sign * (value // size)
            value %= size
        return text if shape == "i" else text.upper()
    return str(value) if shape else ""


def _space(text: str | None) -> str:
    """White space as ODF has it: runs are one blank."""
    return re.sub(r"[ \t\r\n]+", " ", text or "")


def _tidy(text: str) -> str:
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in clean(text).split("\n"))
    return "\n".join(line for line in lines if line)


def _integer(text: str | None, default: int) -> int:
    match = re.match(r"-?\d{1,9}", (text or "").strip())
    return int(match.group()) if match else default

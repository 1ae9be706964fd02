"""HTML as a reader sees it: blocks of visible text, tables as rows; scripts, hidden text and furniture stay out."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ..errors import ParseError
from .blocks import Block, BlockKind, Parsed, fold
from .css import PLAIN, Look, Styles

_DROPPED = frozenset(
    [
        "script",
        "style",
        "template",
        "noscript",
        "iframe",
        "frame",
        "frameset",
        "object",
        "embed",
        "applet",
        "canvas",
        "audio",
        "video",
        "source",
        "track",
        "map",
        "area",
        "svg",
        "head",
        "title",
        "meta",
        "link",
        "base",
        "textarea",
        "select",
        "option",
        "optgroup",
        "datalist",
        "input",
        "button",
        "dialog",
        "noembed",
        "noframes",
        "param",
        "col",
        "colgroup",
        "rp",
        "progress",
        "meter",
    ]
)
_FURNITURE = frozenset({"navigation", "search", "banner", "contentinfo", "menu", "menubar", "toolbar"})
_BLOCK = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "dd",
        "details",
        "dir",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hgroup",
        "html",
        "legend",
        "li",
        "main",
        "menu",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "optgroup",
        "search",
    ]
)
_HEADINGS = {f"h{n}": n for n in range(1, 7)}
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")
_NEVER_NEST = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
        "p",
        "li",
        "dt",
        "dd",
        "td",
        "th",
        "tr",
        "option",
        "body",
        "html",
        "head",
    ]
)
_MAX_DEPTH = 3000
_MAX_SPAN = 60
_MAX_CELLS = 200_000
_MAX_NODES = 2_000_000


def parse_html(text: str) -> Parsed:
    """Blocks of a whole HTML page; `title` is its `<title>`."""
    refuse_depth(text)
    tree = LexborHTMLParser(text)
    title = tree.css_first("head > title") or tree.css_first("title")
    body = tree.body
    parsed = _parse(tree, _content(body), whole_page=True) if body is not None else Parsed(blocks=())
    return Parsed(blocks=parsed.blocks, title=fold(title.text()) or None if title else None, warnings=parsed.warnings)


def parse_fragment(text: str) -> Parsed:
    """Blocks of rendered HTML that is all content, as Markdown gives it."""
    refuse_depth(text)
    tree = LexborHTMLParser("<!doctype html><body>" + text)
    return _parse(tree, tree.body, whole_page=False) if tree.body is not None else Parsed(blocks=())


def refuse_depth(text: str) -> None:
    """Raises ParseError for tags nested so deep that the parser's time grows with the square of it."""
    if text.count("<") <= _MAX_DEPTH:
        return
    depth = 0
    for match in _TAG.finditer(text):
        if match[2].lower() not in _NEVER_NEST:
            depth = max(0, depth - 1) if match[1] else depth + 1
            if depth > _MAX_DEPTH:
                raise ParseError("nested too deeply to be read")


def _content(body: LexborNode | None) -> LexborNode | None:
    """`<main>` where it holds most of the page, else the body."""
    if body is None:
        return None
    mains = body.css("main, [role=main]")
    if len(mains) != 1:
        return body
    whole = len(fold(body.text()))
    return mains[0] if len(fold(mains[0].text())) * 4 >= whole else body


@dataclass(kw_only=True)
class _Cell:
    text: str
    rows: int
    columns: int


@dataclass(kw_only=True)
class _List:
    ordered: bool
    style: str
    number: int
    step: int = 1


@dataclass(kw_only=True)
class _Reader:
    """What is being put together while the tree is walked."""

    blocks: list[Block] = field(default_factory=list[Block])
    inline: list[str] = field(default_factory=list[str])
    lists: list[_List] = field(default_factory=list[_List])
    marker: str | None = None
    """The bullet or number that the next text of an item begins with."""
    quote: int = 0
    tight: bool = False
    styles: Styles
    in_cell: bool = False
    hidden: int = 0
    """Places with text that cannot be seen."""

    def flush(self, kind: BlockKind = "paragraph", *, level: int = 0) -> None:
        if not self.inline:
            return
        text = _squeeze("".join(self.inline))
        self.inline = []
        if not text:
            return
        if kind == "paragraph" and self.lists:
            kind = "item"
        elif kind == "paragraph" and self.quote:
            kind = "quote"
        self.add(text, kind=kind, level=level)

    def add(self, text: str, *, kind: BlockKind, level: int = 0) -> None:
        tight = False
        if self.lists and kind != "heading":
            indent = "  " * (len(self.lists) - 1)
            marker, self.marker = self.marker, None
            hanging = indent + " " * (len(marker) + 1 if marker else 2)
            first = f"{indent}{marker} " if marker else hanging
            text = first + text.replace("\n", "\n" + hanging)
            tight = self.tight
            self.tight = True
            if kind == "paragraph":
                kind = "item"
        self.blocks.append(Block(text=text, kind=kind, level=level, tight=tight))


def _squeeze(text: str) -> str:
    """White space as HTML shows it: runs are one blank, a `<br>` (here \\x0b) is a line break."""
    text = re.sub(r"[ \t\n\r\f]+", " ", text)
    if "\x0b" not in text:
        return text.strip(" ")
    text = re.sub(r" ?\x0b ?", "\n", text)
    return re.sub(r"\n{2,}", "\n", text).strip(" \n")


def _walk(top: LexborNode) -> Generator[tuple[bool, LexborNode], bool | None]:
    """Depth first without recursion: (True, node) on the way in, (False, node) on the way out.

    Send True after a way in to skip what is inside.
    """
    node: LexborNode | None = top
    for _ in range(_MAX_NODES):
        if node is None:
            return
        skip = yield True, node
        child = None if skip else node.first_child
        if child is not None:
            node = child
            continue
        while node is not None:
            yield False, node
            if node.mem_id == top.mem_id:
                return
            if node.next is not None:
                node = node.next
                break
            node = node.parent


def _read(reader: _Reader, top: LexborNode, look: Look, *, whole_page: bool) -> None:
    """Reads all below `top`, which looks so."""
    looks = [look]
    last, unseen = look, look.unseen
    walk = _walk(top)
    skip: bool | None = None
    while True:
        try:
            entering, node = walk.send(skip)
        except StopIteration:
            break
        skip = None
        tag = node.tag or ""
        if not entering:
            looks.pop()
            if tag != "-text" and node.mem_id != top.mem_id:
                _leave(reader, node, tag)
            continue
        looks.append(looks[-1])
        if tag == "-text":
            text = node.text_content or ""
            if looks[-1] is not last:
                last, unseen = looks[-1], looks[-1].unseen
            if not unseen:
                reader.inline.append(text.replace("\x0b", " "))
            elif text.strip():
                reader.hidden += 1
        elif tag.startswith(("-", "!")) or tag in _DROPPED:
            skip = True
        elif node.mem_id != top.mem_id:
            looks[-1] = reader.styles.look(node, tag, looks[-1])
            if looks[-1].gone:
                reader.hidden += bool(fold(node.text(deep=True)))
                skip = True
            elif whole_page and (tag == "nav" or _attribute(node, "role") in _FURNITURE):
                skip = True
            else:
                skip = _enter(reader, node, tag, looks[-1])
    reader.flush()


def _parse(tree: LexborHTMLParser, top: LexborNode | None, *, whole_page: bool) -> Parsed:
    if top is None:
        return Parsed(blocks=())
    styles = Styles(tree)
    reader = _Reader(styles=styles)
    _read(reader, top, _look_of(top, styles), whole_page=whole_page)
    warnings = (f"hidden text left out ({reader.hidden} places)",) if reader.hidden else ()
    return Parsed(blocks=reader.blocks, warnings=warnings)


def _look_of(node: LexborNode, styles: Styles) -> Look:
    """How a node looks, from those around it."""
    around: list[LexborNode] = []
    at: LexborNode | None = node
    while at is not None and at.tag not in (None, "-document"):
        around.append(at)
        at = at.parent
    look = PLAIN
    for one in reversed(around):
        look = styles.look(one, one.tag or "", look)
    return look


def _enter(reader: _Reader, node: LexborNode, tag: str, look: Look) -> bool:
    """Returns True when the node has been dealt with as a whole."""
    match tag:
        case "br":
            reader.inline.append("\x0b")
        case "wbr":
            pass
        case "img":
            alt = fold(_attribute(node, "alt"))
            if alt and not look.unseen:
                reader.inline.append(f" {alt} ")
        case "sup":
            inside = fold(_visible_text(reader, node, look))
            if re.fullmatch(r"\[?\w{1,4}\]?", inside):
                before = "".join(reader.inline[-3:])[-1:]
                note = node.css_first("a") is not None or not before.isalnum()
                reader.inline.append(f"[{inside.strip('[]')}]" if note else f"^{inside}")
                return True
        case "del" | "s" | "strike":
            if fold(node.text(deep=True)):
                reader.inline.append("~~")
        case "q":
            reader.inline.append("“")
        case "hr":
            reader.flush()
        case "pre":
            reader.flush()
            code = _visible_text(reader, node, look).strip("\n")
            if code.strip():
                reader.add("\n".join(line.rstrip() for line in code.split("\n")), kind="code")
            return True
        case "table" if not reader.in_cell:
            return _enter_table(reader, node, look)
        case "ol" | "ul" | "menu" | "dir":
            reader.flush()
            if not reader.lists:
                reader.tight = False
            reversed_ = "reversed" in node.attributes
            first = sum(child.tag == "li" for child in node.iter()) if reversed_ else 1
            start = _integer(_attribute(node, "start"), first)
            reader.lists.append(
                _List(
                    ordered=tag == "ol",
                    style=_attribute(node, "type") or "1",
                    number=start,
                    step=-1 if reversed_ else 1,
                )
            )
        case "li":
            reader.flush()
            if reader.lists:
                current = reader.lists[-1]
                current.number = _integer(_attribute(node, "value"), current.number)
                reader.marker = f"{_ordinal(current.number, current.style)}." if current.ordered else "-"
                current.number += current.step
            else:
                reader.inline.append("- ")
        case "blockquote":
            reader.flush()
            reader.quote += 1
        case _ if tag in _BLOCK:
            reader.flush()
        case _:
            pass
    return False


def _leave(reader: _Reader, node: LexborNode, tag: str) -> None:
    match tag:
        case "del" | "s" | "strike":
            if fold(node.text(deep=True)):
                reader.inline.append("~~")
        case "q":
            reader.inline.append("”")
        case "ol" | "ul" | "menu" | "dir":
            reader.flush()
            reader.marker = None
            if reader.lists:
                reader.lists.pop()
        case "li":
            reader.flush()
            reader.marker = None
        case "blockquote":
            reader.flush("paragraph")
            reader.quote = max(0, reader.quote - 1)
        case "td" | "th":
            reader.flush()
        case _ if tag in _HEADINGS:
            text = _squeeze("".join(reader.inline)).replace("\n", " ")
            reader.inline = [text]
            reader.flush("heading", level=_HEADINGS[tag])
        case _ if _attribute(node, "role") == "heading":
            reader.inline = [_squeeze("".join(reader.inline)).replace("\n", " ")]
            reader.flush("heading", level=min(6, max(1, _integer(_attribute(node, "aria-level"), 2))))
        case _ if tag in _BLOCK:
            reader.flush()
        case _:
            pass


def _ordinal(number: int, style: str) -> str:
    if style in ("a", "A") and number > 0:
        letters = ""
        while number:
            number, rest = divmod(number - 1, 26)
            letters = chr(97 + rest) + letters
        return letters if style == "a" else letters.upper()
    if style in ("i", "I") and 0 < number < 4000:
        roman = ""
        for value, sign in zip(
            (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
            ("m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"),
            strict=True,
        ):
            while number >= value:
                roman += sign
                number -= value
        return roman if style == "i" else roman.upper()
    return str(number)


def _attribute(node: LexborNode, name: str) -> str:
    return (node.attributes.get(name) or "").strip()


def _integer(text: str, default: int) -> int:
    match = re.match(r"-?\d{1,6}", text)
    return int(match.group()) if match else default


def _visible_text(reader: _Reader, top: LexborNode, look: Look) -> str:
    """All text of a node that can be seen, as it stands there."""
    parts: list[str] = []
    looks = [look]
    walk = _walk(top)
    skip: bool | None = None
    while True:
        try:
            entering, node = walk.send(skip)
        except StopIteration:
            return "".join(parts)
        skip = None
        tag = node.tag or ""
        if not entering:
            looks.pop()
            continue
        looks.append(looks[-1])
        if tag == "-text":
            if not looks[-1].unseen:
                parts.append(node.text_content or "")
            elif (node.text_content or "").strip():
                reader.hidden += 1
        elif tag == "br":
            parts.append("\n")
        elif tag.startswith(("-", "!")) or tag in _DROPPED:
            skip = True
        elif node.mem_id != top.mem_id:
            looks[-1] = reader.styles.look(node, tag, looks[-1])
            skip = looks[-1].gone
            reader.hidden += bool(skip and fold(node.text(deep=True)))


def _enter_table(reader: _Reader, node: LexborNode, look: Look) -> bool:
    """Writes a data table as rows; a table that only lays out a page is read as the blocks in it."""
    reader.flush()
    layout = _attribute(node, "role") in ("presentation", "none") or node.css_first("table table") is not None
    layout = layout or node.css_first("td h1, td h2, td h3, td h4, td pre, td ul li p") is not None
    hidden = reader.hidden
    rows = [] if layout else _rows(reader, node, look)
    if layout or all(len(row) < 2 for row in rows):
        reader.hidden = hidden  # it is read again
        return False
    caption = node.css_first("caption")
    if caption is not None and fold(caption.text(deep=True)):
        reader.add(_cell_text(reader, caption, reader.styles.look(caption, "caption", look)), kind="paragraph")
    lines = [" | ".join(row).rstrip() for row in rows]
    lines = [line for line in lines if line.strip(" |")]
    if lines:
        reader.add("\n".join(lines), kind="table")
    return True


def _rows(reader: _Reader, table: LexborNode, around: Look) -> list[list[str]]:
    """Cells by row, those that span columns or rows repeated in each place; one over the whole row stands once."""
    raw: list[list[_Cell]] = []
    for tr in table.css("tr"):
        cells: list[_Cell] = []
        group = tr.parent
        inside = around if group is None or group.tag == "table" else reader.styles.look(group, group.tag or "", around)
        row_look = reader.styles.look(tr, "tr", inside)
        if row_look.gone or tr.css_first("td, th") is None:
            reader.hidden += bool(row_look.gone and fold(tr.text(deep=True)))
            continue
        for cell in tr.iter():
            look = reader.styles.look(cell, cell.tag or "", row_look)
            if cell.tag in ("td", "th") and look.gone:
                reader.hidden += bool(fold(cell.text(deep=True)))
            elif cell.tag in ("td", "th"):
                cells.append(
                    _Cell(
                        text=_cell_text(reader, cell, look),
                        rows=max(1, min(_MAX_SPAN, _integer(_attribute(cell, "rowspan"), 1) or _MAX_SPAN)),
                        columns=max(1, min(_MAX_SPAN, _integer(_attribute(cell, "colspan"), 1))),
                    )
                )
        raw.append(cells)
    width = max((sum(c.columns for c in row) for row in raw), default=0)
    rows: list[list[str]] = []
    hanging: dict[int, tuple[int, str]] = {}
    total = 0
    for cells in raw:
        row: list[str] = []
        queue = list(cells)
        if len(queue) == 1 and queue[0].columns >= width > 1 and not hanging:
            rows.append([queue[0].text])
            continue
        while queue or any(column >= len(row) for column in hanging):
            column = len(row)
            if column in hanging:
                left, text = hanging.pop(column)
                row.append(text)
                if left > 1:
                    hanging[column] = (left - 1, text)
                    if not queue and column >= max(hanging):
                        break
                continue
            if not queue:
                row.append("")
                continue
            cell = queue.pop(0)
            for at in range(column, column + cell.columns):
                if at > column and at in hanging:
                    break
                row.append(cell.text)
                if cell.rows > 1:
                    hanging[at] = (cell.rows - 1, cell.text)
            # those just hung belong to the rows below, so they are not taken again in this one
            if cell.rows > 1 and not queue and max(hanging) < len(row):
                break
        total += len(row)
        if total > _MAX_CELLS:
            break
        rows.append(row)
    return rows


def _cell_text(reader: _Reader, cell: LexborNode, look: Look) -> str:
    """All visible text of a cell on one line."""
    inner = _Reader(styles=reader.styles, in_cell=True)
    _read(inner, cell, look, whole_page=False)
    reader.hidden += inner.hidden
    return fold(" ".join(block.text for block in inner.blocks)).replace(" | ", " / ")

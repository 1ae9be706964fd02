"""Spreadsheets and CSV: a sheet is a section, a row is a block with its header; computes no formula."""

from __future__ import annotations

import csv
import datetime as dt
import importlib
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from xml.etree import ElementTree

from ..errors import ParseError
from .blocks import Block
from .colours import WHITE, Colour, alike, colour
from .extract import Archive, Extract, cell, clean_line, core_properties, main_part, relations

MAX_CELLS = 5_000_000
"""Cells of one sheet's rectangle; a bigger one is left out and reported."""
_NARROW = 12
"""Up to so many columns a row is written under its header; with more, each cell behind its column's name."""
_HEADER_WIDTH = 240


def parse_csv(text: str) -> Extract:
    """Blocks of a CSV or TSV text. Raises ParseError."""
    csv.field_size_limit(2**27)
    warnings: list[str] = []
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)))
    except csv.Error as error:
        raise ParseError(f"damaged: not readable as CSV ({error})") from error
    widths = Counter(len(row) for row in rows if row)
    usual = widths.most_common(1)[0][0] if widths else 0
    ragged = sum(n for width, n in widths.items() if width > usual)
    if ragged and usual > 1:
        warnings.append(f"{ragged} rows have more than {usual} columns")
    return Extract(blocks=_rows_to_blocks(rows), warnings=tuple(warnings))


def parse_spreadsheet(data: bytes) -> Extract:
    """Blocks of an XLSX, XLSM, XLSB, XLS or ODS file. Raises ParseError."""
    calamine: Any = cast(Any, importlib.import_module("python_calamine"))
    warnings: list[str] = []
    metadata: dict[str, str] = {}
    views: dict[str, _View] = {}
    if data[:4] == b"PK\x03\x04":
        archive = Archive(data, kind="spreadsheet")
        metadata = core_properties(archive)
        views = _ods_views(archive) if "content.xml" in archive.names else _views(archive)
    try:
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    except calamine.PasswordError as error:
        raise ParseError("encrypted, needs a password") from error
    except Exception as error:  # its errors have no common base
        if b"EncryptedPackage".decode().encode("utf-16-le") in data:
            raise ParseError("encrypted, needs a password") from error
        raise ParseError("damaged: not a readable spreadsheet") from error
    if not book.sheets_metadata:
        raise ParseError("damaged: the workbook has no sheets in it")
    blocks: list[Block] = []
    visible = str(calamine.SheetVisibleEnum.Visible)
    for sheet in book.sheets_metadata:
        name = str(sheet.name)
        if str(sheet.visible) != visible:
            warnings.append(f"hidden sheet left out: {name!r}")
            continue
        if views.get(name, _View()).hidden:
            warnings.append(f"hidden sheet left out: {name!r}")
            continue
        if str(sheet.typ) != str(calamine.SheetTypeEnum.WorkSheet):
            continue
        view = views.get(name, _View())
        if view.cells > MAX_CELLS:
            warnings.append(f"sheet {name!r} left out: it spans {view.cells} cells")
            continue
        try:
            table = book.get_sheet_by_name(name)
            rows: list[list[Any]] = table.to_python(skip_empty_area=True)
        except Exception:  # one bad sheet must not hide the others
            warnings.append(f"sheet {name!r} is damaged and was left out")
            continue
        first_row, first_column = table.start or (0, 0)
        texts = [
            [_shown(value, percent=(r + first_row, c + first_column) in view.percent) for c, value in enumerate(row)]
            for r, row in enumerate(rows)
        ]
        for what, places in (("hidden", view.unseen), ("struck", view.struck)):
            count = 0
            for r, c in places:
                r, c = r - first_row, c - first_column
                if 0 <= r < len(texts) and 0 <= c < len(texts[r]) and texts[r][c]:
                    texts[r][c] = ""
                    count += 1
            if count:
                warnings.append(f"{count} {what} cells left out in sheet {name!r}")
        words = 0
        for (r, c), left in view.partly.items():
            r, c = r - first_row, c - first_column
            if 0 <= r < len(texts) and 0 <= c < len(texts[r]) and texts[r][c]:
                texts[r][c] = _shown(left)
                words += 1
        if words:
            warnings.append(f"struck words left out of {words} cells in sheet {name!r}")
        merged: list[tuple[tuple[int, int], tuple[int, int]]] = table.merged_cell_ranges or []
        for (top, left), (bottom, right) in merged[:20_000]:
            _spread(texts, top - first_row, left - first_column, bottom - first_row, right - first_column)
        hidden_columns = {c - first_column for c in view.hidden_columns}
        kept = [
            [text for c, text in enumerate(row) if c not in hidden_columns]
            for r, row in enumerate(texts)
            if r + first_row not in view.hidden_rows
        ]
        hidden = sum(1 for r in view.hidden_rows if 0 <= r - first_row < len(texts) and any(texts[r - first_row]))
        if hidden:
            warnings.append(f"{hidden} hidden rows left out in sheet {name!r}")
        if any(any(0 <= c < len(row) and row[c] for c in hidden_columns) for row in texts):
            warnings.append(f"hidden columns left out in sheet {name!r}")
        found = _rows_to_blocks(kept)
        if found:
            blocks.append(Block(text=clean_line(name) or "Sheet", kind="heading", level=1))
            blocks.extend(found)
    title = metadata.pop("title", None)
    return Extract(blocks=blocks, title=title, warnings=tuple(warnings), metadata=metadata)


def _spread(texts: list[list[str]], top: int, left: int, bottom: int, right: int) -> None:
    """Writes a merged cell's text into each of its places, unless it spans a whole row."""
    if not (0 <= top < len(texts) and 0 <= left < len(texts[top])) or not texts[top][left]:
        return
    if top == bottom and right - left + 1 >= len(texts[top]):
        return
    for r in range(top, min(bottom + 1, len(texts))):
        for c in range(left, min(right + 1, len(texts[r]))):
            texts[r][c] = texts[r][c] or texts[top][left]


def _shown(value: object, *, percent: bool = False) -> str:
    """A value as its cell shows it, near enough."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return f"{value * 100:.10g} %" if percent else _number(value)
    if isinstance(value, dt.datetime):
        plain = value.time() == dt.time(0)
        return value.date().isoformat() if plain else value.isoformat(sep=" ", timespec="minutes")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, dt.time):
        return value.isoformat(timespec="minutes")
    return str(value)


def _number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return ""
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return f"{value:.15g}"


# ---- rows to blocks


def _rows_to_blocks(rows: Sequence[Sequence[str]]) -> list[Block]:
    """A block per row, each with the header of its table."""
    blocks: list[Block] = []
    header: list[str] = []
    fresh = True  # a table may begin here
    second = -1  # the row that goes on with the header
    for index, raw in enumerate(rows):
        row = [cell(value) for value in raw]
        filled = [at for at, value in enumerate(row) if value]
        if not filled:
            fresh = True
            continue
        if len(filled) == 1 and not (header and not fresh and len(header) > 1 and filled[0] < len(header)):
            blocks.append(Block(text=_long(raw[filled[0]]), kind="item"))
            continue
        if index == second:
            header = _joined(header, row)
            continue
        if fresh and _is_header(row, rows[index + 1 :], known=header):
            header = row
            second = index + 1 if _goes_on(row, rows[index + 1 : index + 3]) else -1
            if not any(any(cell(v) for v in r) for r in rows[index + 1 :]):
                blocks.append(Block(text=" | ".join(row).rstrip(" |"), kind="table"))
            fresh = False
            continue
        fresh = False
        blocks.append(_row(row, raw, header))
    return [block for block in blocks if block.text.strip(" |")]


def _goes_on(header: list[str], below: Sequence[Sequence[str]]) -> bool:
    """True when the next row names the columns that a merged cell of the header spans."""
    if len(below) < 2 or not any(below[1]):
        return False
    row = [cell(value) for value in below[0]]
    row += [""] * (len(header) - len(row))
    spanned = [at for at in range(1, len(header)) if header[at] and header[at] == header[at - 1]]
    groups = sorted({*spanned, *(at - 1 for at in spanned)})
    return (
        bool(groups)
        and all(re.search(r"[^\W\d_]|^(?:19|20)\d\d$", row[at]) for at in groups)
        and all(row[at] != row[at - 1] for at in spanned)
        and all(not row[at] or row[at] == header[at] for at in range(len(header)) if at not in groups)
    )


def _joined(header: list[str], row: list[str]) -> list[str]:
    """Both rows of a header as one."""
    below = row + [""] * (len(header) - len(row))
    return [top if not value or value == top else f"{top} {value}" for top, value in zip(header, below, strict=False)]


def _row(row: list[str], raw: Sequence[str], header: list[str]) -> Block:
    heads = " | ".join(header)
    if not header:
        return Block(text=" | ".join(row).rstrip(" |"), kind="table")
    if len(header) <= _NARROW and len(heads) <= _HEADER_WIDTH:
        return Block(text=heads.rstrip() + "\n" + " | ".join(row).rstrip(), kind="table")
    lines: list[str] = []
    for at, value in enumerate(row):
        if value:
            name = header[at] if at < len(header) else ""
            lines.append(f"{name}: {value}" if name else value)
    return Block(text="\n".join(lines), kind="item")


def _long(text: str) -> str:
    """A cell that stands alone: its own lines are kept."""
    lines = [clean_line(line) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def _is_header(row: list[str], below: Sequence[Sequence[str]], *, known: list[str]) -> bool:
    filled = [value for value in row if value]
    names = [value for value, before in zip(filled, ["", *filled], strict=False) if value != before]  # merged cells
    if len(names) < 2 or len(set(names)) < 0.6 * len(names):
        return False
    if any(re.fullmatch(r"[-+€$£]?\s*[\d.,:/%\s-]*\d[\d.,:/%\s-]*[%€]?", value) for value in filled):
        years = all(re.fullmatch(r"(?:19|20)\d\d", v) or re.search(r"[^\W\d_]", v) for v in filled)
        if not years or not re.search(r"[^\W\d_]", filled[0]):
            return False
    if max(len(value) for value in filled) > 200:
        return False
    if not known:
        width = max((sum(1 for v in r if v) for r in below[:20]), default=0)
        return len(filled) >= 0.5 * width
    same = [at for at, v in enumerate(row) if v] == [at for at, v in enumerate(known) if v]
    following = next((r for r in below[:1] if any(r)), None)
    return not same and following is not None


def _delimiter(text: str) -> str:
    """The sign that cuts the first records most evenly."""
    sample = text[:200_000]
    if sample.startswith("sep=") and len(sample) > 4:
        return sample[4]
    best, best_score = ",", 0.0
    for sign in ",;\t|":
        widths: list[int] = []
        try:
            for row in csv.reader(io.StringIO(sample, newline=""), delimiter=sign):
                if row:
                    widths.append(len(row))
                if len(widths) >= 60:
                    break
        except csv.Error:
            continue
        if len(widths) > 1 and len(sample) < len(text) and len(widths) < 60:
            widths.pop()
        if not widths:
            continue
        width, count = Counter(widths).most_common(1)[0]
        if width > 1:
            score = count / len(widths) + min(width, 10) / 100
            if score > best_score:
                best, best_score = sign, score
    return best


# ---- what calamine doesn't tell: hidden rows and columns, percentages, the true extent


@dataclass(kw_only=True)
class _View:
    hidden_rows: set[int] = field(default_factory=set[int])
    hidden_columns: set[int] = field(default_factory=set[int])
    percent: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    unseen: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Cells whose text is white on white, or whose format shows nothing."""
    struck: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    partly: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    """Cells in which some words are struck, with the others."""
    cells: int = 0
    hidden: bool = False


def _views(archive: Archive) -> dict[str, _View]:
    part = main_part(archive, default="xl/workbook.xml")
    if not part.endswith(".xml"):
        return {}
    book = archive.xml(part)
    if book is None:
        return {}
    parts = relations(archive, part)
    styles = next((archive.xml(name) for kind, name in parts.values() if kind == "styles"), None)
    looks = _looks(styles)
    strings = next((archive.read(name) for kind, name in parts.values() if kind == "sharedStrings"), None)
    partly = _partly_struck(strings) if strings is not None else {}
    views: dict[str, _View] = {}
    for sheet in book.iter():
        if sheet.tag.rsplit("}", 1)[-1] != "sheet":
            continue
        key = next((v for k, v in sheet.attrib.items() if k.rsplit("}", 1)[-1] == "id"), "")
        name = parts.get(key, ("", ""))[1]
        data = archive.read(name) if name else None
        if data is not None:
            views[sheet.get("name", "")] = _view(data, looks, partly, name=name)
    return views


def _partly_struck(data: bytes) -> dict[str, str]:
    """The shared strings that have struck words: their numbers, and what is left of them."""
    if b"strike" not in data or b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        return {}
    found: dict[str, str] = {}
    number = 0
    try:
        for _, element in ElementTree.iterparse(io.BytesIO(data)):
            if _tag(element) == "si":
                if (left := _unstruck(element)) is not None:
                    found[str(number)] = left
                number += 1
                element.clear()
    except ElementTree.ParseError:
        return {}  # calamine says what is wrong
    return found


def _unstruck(string: ElementTree.Element) -> str | None:
    """A string of several runs without the struck ones; None when none is struck."""
    kept: list[str] = []
    struck = False
    for run in string:
        if _tag(run) == "t":
            kept.append(run.text or "")
        elif _tag(run) == "r":
            looks = next((e for e in run if _tag(e) == "rPr"), ())
            if any(_tag(e) == "strike" and e.get("val", "1") not in ("0", "false") for e in looks):
                struck = True
            else:
                kept.extend(e.text or "" for e in run if _tag(e) == "t")
    return "".join(kept) if struck else None


def _view(data: bytes, looks: _Looks, partly: Mapping[str, str], *, name: str) -> _View:
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise ParseError(f"refused: part {name!r} declares a document type or entities")
    view = _View()
    row = -1
    rows: list[int] = []
    columns: list[int] = []
    shared, place = False, (-1, -1)
    try:
        for event, element in ElementTree.iterparse(io.BytesIO(data), events=("start", "end")):
            tag = element.tag.rsplit("}", 1)[-1]
            if event == "start":
                if tag == "row":
                    row = int(element.get("r") or row + 2) - 1
                    if element.get("hidden") in ("1", "true") or _no_size(element.get("ht")):
                        view.hidden_rows.add(row)
                elif tag == "c":
                    at = _column(element.get("r") or "")
                    shared, place = element.get("t") == "s", (row, at)
                    if at >= 0:
                        rows.append(row)
                        columns.append(at)
                        style = element.get("s")
                        if style in looks.percent and element.get("t") in (None, "n"):
                            view.percent.add((row, at))
                        if style in looks.unseen:
                            view.unseen.add((row, at))
                        if style in looks.struck:
                            view.struck.add((row, at))
                elif tag == "col" and (element.get("hidden") in ("1", "true") or _no_size(element.get("width"))):
                    low, high = int(element.get("min") or 1), int(element.get("max") or 1)
                    view.hidden_columns.update(range(low - 1, min(high, 16_384)))
            elif tag in ("row", "c", "v", "is"):
                left: str | None = None
                if tag == "v" and shared:
                    left = partly.get((element.text or "").strip())
                elif tag == "is":
                    left = _unstruck(element)
                if left is not None and place[1] >= 0:
                    view.partly[place] = left
                element.clear()
    except (ElementTree.ParseError, ValueError) as error:
        raise ParseError(f"damaged: part {name!r} is not well-formed XML") from error
    if rows:
        view.cells = (max(rows) - min(rows) + 1) * (max(columns) - min(columns) + 1)
    return view


def _column(reference: str) -> int:
    number = 0
    for char in reference:
        if not "A" <= char <= "Z":
            break
        number = number * 26 + ord(char) - 64
    return number - 1


@dataclass(frozen=True, kw_only=True)
class _Looks:
    """Indexes of cell styles by what they do to a text."""

    percent: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    struck: frozenset[str] = frozenset()


def _looks(root: ElementTree.Element | None) -> _Looks:
    if root is None:
        return _Looks()
    percents, blanks = {"9", "10"}, set[str]()
    fonts: list[tuple[Colour | str | None, bool, bool]] = []
    grounds: list[Colour | str | None] = []
    percent, unseen, struck = set[str](), set[str](), set[str]()
    for element in root.iter():
        if _tag(element) == "numFmt":
            code = element.get("formatCode", "")
            if "%" in code:
                percents.add(element.get("numFmtId", ""))
            if _shows_nothing(code):
                blanks.add(element.get("numFmtId", ""))
    for part in root:
        if _tag(part) == "fonts":
            for font in part:
                ink = next((_colour_of(e) for e in font if _tag(e) == "color"), None)
                size = next((e.get("val", "") for e in font if _tag(e) == "sz"), "")
                tiny = re.fullmatch(r"[01](?:\.\d+)?", size) is not None
                line = any(_tag(e) == "strike" and e.get("val", "1") not in ("0", "false") for e in font)
                fonts.append((ink, tiny, line))
        elif _tag(part) == "fills":
            for fill in part:
                pattern = next((e for e in fill if _tag(e) == "patternFill"), None)
                shade = "" if pattern is None else pattern.get("patternType", "none")
                solid = pattern if shade == "solid" else None
                front = None if solid is None else next((e for e in solid if _tag(e) == "fgColor"), None)
                grounds.append(WHITE if shade == "none" else None if front is None else _colour_of(front))
    for part in root:
        if _tag(part) != "cellXfs":
            continue
        for at, xf in enumerate(part):
            font, fill = _at(xf.get("fontId"), len(fonts)), _at(xf.get("fillId"), len(grounds))
            ink, tiny, line = fonts[font] if font is not None else (None, False, False)
            ground = WHITE if fill is None else grounds[fill]
            if xf.get("numFmtId") in percents:
                percent.add(str(at))
            alone = ink is not None and ground is not None and alike(ink, ground)
            if xf.get("numFmtId") in blanks or tiny or alone:
                unseen.add(str(at))
            if line:
                struck.add(str(at))
    return _Looks(percent=frozenset(percent), unseen=frozenset(unseen), struck=frozenset(struck))


def _no_size(size: str | None) -> bool:
    """Whether a height in points or a width in characters leaves nothing to see."""
    return size is not None and re.fullmatch(r"0+(?:\.(?:[0-2]\d*)?)?", size) is not None


def _shows_nothing(code: str) -> bool:
    """Whether a number format has nothing to show for any value: empty sections, or such with empty quotes alone."""
    sections = re.sub(r'"\s*"|\[[^\]]*\]|[\s_*]', "", code).split(";")
    return not any(sections) and (len(sections) > 3 or (bool(code.strip()) and ";" not in code))


def _colour_of(element: ElementTree.Element) -> Colour | str | None:
    """A colour of a font or fill; None where the program chooses."""
    rgb, indexed, theme = element.get("rgb"), element.get("indexed"), element.get("theme")
    if rgb is not None:
        return colour(rgb[-6:].lower())
    if indexed is not None:
        return {"0": (0, 0, 0), "8": (0, 0, 0), "1": WHITE, "9": WHITE, "64": None, "65": WHITE}.get(
            indexed, f"indexed {indexed}"
        )
    if theme is not None:
        tint = element.get("tint", "0")
        return WHITE if (theme, tint) in (("0", "0"), ("0", "0.0")) else f"theme {theme} {tint}"
    return None


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def _at(value: str | None, size: int) -> int | None:
    return int(value) if value is not None and value.isdigit() and int(value) < size else None


def _ods_views(archive: Archive) -> dict[str, _View]:
    """Hidden sheets, rows and columns of an OpenDocument spreadsheet."""
    root = archive.xml("content.xml")
    views: dict[str, _View] = {}
    if root is None:
        return views
    unseen = {
        _local(style, "name")
        for style in root.iter()
        if _tag(style) == "style"
        and any(_tag(e) == "table-properties" and _local(e, "display") == "false" for e in style)
    }
    for table in root.iter():
        if _tag(table) != "table":
            continue
        view = views[_local(table, "name")] = _View(hidden=_local(table, "style-name") in unseen)
        row = column = 0
        for element in table.iter():
            gone = _local(element, "visibility") in ("collapse", "filter")
            if _tag(element) == "table-row":
                count = _at(_local(element, "number-rows-repeated"), 1 << 21) or 1
                if gone:
                    view.hidden_rows.update(range(row, min(row + count, 1 << 20)))
                row += count
            elif _tag(element) == "table-column":
                count = _at(_local(element, "number-columns-repeated"), 1 << 15) or 1
                if gone:
                    view.hidden_columns.update(range(column, min(column + count, 16_384)))
                column += count
    return views


def _local(element: ElementTree.Element, name: str) -> str:
    """An attribute whatever its namespace is, '' when there is none."""
    return next((v for k, v in element.attrib.items() if k.rsplit("}", 1)[-1] == name), "")

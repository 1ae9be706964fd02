"""From bytes to a `Document`: format, encoding, front matter, title; how a format is read is its own module's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from ..documents import RESERVED, Attachment, Document, RawDocument, Stated
from ..errors import ParseError
from ..security import visible
from .blocks import Block, Parsed, count_invisible, fold, join, normalise
from .encoding import Decoded, decode, looks_binary
from .extract import Extract, page_offsets
from .formats import Format, Kind, format_of
from .frontmatter import read_front_matter
from .language import detect
from .sections import find_sections, is_legal_heading, label


class Unsupported(ParseError):
    """Nothing is wrong with the file, but it cannot be read: a format not supported yet, an empty file, binary data."""


def parse(raw: RawDocument, *, language: str | None = None) -> Document:
    """The document as a person reads it. `language` is used when none is given or detected.

    Raises Unsupported for what cannot be read (to be skipped), ParseError for what went wrong.
    """
    if not raw.data.strip(b"\x00\t\n\r\f \xef\xbb\xbf\xff\xfe"):
        raise Unsupported("empty file")
    kind = format_of(raw.path, raw.data, listed=raw.listed)
    if kind.format is None:
        raise Unsupported(f"format not supported yet: {kind.name}")
    if kind.format == "zip" and not raw.unpack:
        raise Unsupported("ZIP archive: set `archives = true` under [index] to have its files read")
    if kind.format not in _CONTAINERS and looks_binary(raw.data):
        if kind.unlike:
            raise ParseError(f"damaged, or no {kind.unlike}: it does not begin like one")
        raise Unsupported("binary data, not text")
    try:
        return _parse(raw, kind, kind.format, language=language)
    except (ParseError, MemoryError):
        raise
    except RecursionError as error:
        raise ParseError("nested too deeply to be read") from error
    except Exception as error:  # a parser's fault must not end a sync
        raise ParseError(f"cannot be read as {kind.name}: {type(error).__name__}: {fold(str(error))[:200]}") from error


def dressed(raw: RawDocument, *, language: str | None, document: Document) -> Document | None:
    """The document with other metadata from configuration or manifest, without its bytes being read again.

    `language` is what is used when none is given or was detected. None where the text itself depends on metadata.
    """
    stated = document.stated
    if stated is None:
        return None
    metadata = _merged(raw, stated.metadata)
    declared = _language_code(metadata.get("language") or metadata.get("lang") or "")
    return replace(
        document,
        title=fold(metadata.get("title") or stated.title),
        metadata=metadata,
        language=declared or stated.language or language,
    )


_CONTAINERS: frozenset[Format] = frozenset(["pdf", "docx", "pptx", "spreadsheet", "odt", "mail", "zip"])
"""Formats that are read from bytes, not from decoded text."""
_UNTITLED: frozenset[Format] = frozenset(["spreadsheet", "csv", "json", "jsonl", "mail", "zip"])
"""Formats whose first heading names a part (a sheet, a record), not the whole."""
_TEMPLATE = re.compile(r"\{\{|\{%|<%")


def _parse(raw: RawDocument, kind: Kind, form: Format, *, language: str | None) -> Document:
    warnings: list[str] = []
    if kind.unlike:
        warnings.append(f"named {kind.unlike}, read as {kind.name}, which it is")
    stated: dict[str, str] = {}
    given: str | None = None
    fixed = True
    if form in _CONTAINERS:
        parsed: Parsed = _extracted(form, raw, language=language)
    else:
        decoded: Decoded = decode(raw.data, html=form == "html")
        text = normalise(_one_line(decoded.text) if form in ("json", "jsonl") else decoded.text)
        warnings.extend(decoded.warnings)
        if (invisible := count_invisible(decoded.text)) > 3:
            warnings.append(f"invisible characters left out ({invisible})")
        front = read_front_matter(text) if form in ("markdown", "text", "rst") else None
        body = text if front is None else front.body
        if front is not None:
            warnings.extend(front.warnings)
            stated.update(front.metadata)
            given = front.title
        fixed = form != "markdown" or _TEMPLATE.search(body) is None
        parsed = _blocks(form, body, {**stated, **_merged(raw, stated)})
    attachments: tuple[Attachment, ...] = ()
    if isinstance(parsed, Extract):
        stated.update(parsed.metadata)
        attachments = parsed.attachments
    warnings.extend(parsed.warnings)
    blocks = [
        _promoted(block)
        if block.kind == "paragraph" and is_legal_heading(block.text) and "\n" not in block.text
        else block
        for block in _seen(parsed.blocks, warnings, droppable=not isinstance(parsed, Extract))
    ]
    rendered, placed = join(blocks)
    if not rendered.strip():
        raise Unsupported("no text in the file" + (f": {warnings[-1]}" if warnings else ""))
    heading = None if form in _UNTITLED else _title_heading([item.block for item in placed])
    stem = PurePosixPath(raw.path).name.split(".", 1)[0] or PurePosixPath(raw.path).name
    if form in _CONTAINERS:
        stem = PurePosixPath(raw.path).stem or stem
    stated = {visible(key): visible(value) for key, value in stated.items()}
    title = fold(visible(given or heading or parsed.title or stem))
    metadata = _merged(raw, stated)
    declared = _language_code(metadata.get("language") or metadata.get("lang") or "")
    detected = detect(rendered)
    return Document(
        id=raw.id,
        source=raw.source,
        path=raw.path,
        title=fold(metadata.get("title") or title),
        text=rendered,
        sections=find_sections(rendered, placed),
        metadata=metadata,
        language=declared or detected or language,
        pages=page_offsets(parsed.page_starts, placed) if isinstance(parsed, Extract) else (),
        warnings=tuple(dict.fromkeys(warnings)),
        stated=Stated(
            title=title, metadata=stated, language=detected, format=kind.name, tables=_count_tables(form, blocks)
        )
        if fixed
        else None,
        attachments=attachments,
    )


def _seen(blocks: Sequence[Block], warnings: list[str], *, droppable: bool) -> list[Block]:
    """Blocks without what entities and escapes have brought in that cannot be seen; `droppable` ones may go."""
    left_out = 0
    found: list[Block] = []
    for block in blocks:
        text = visible(block.text)
        if text != block.text:
            left_out += max(1, len(block.text) - len(text))
            block = replace(block, text=text)
        if text.strip() or not droppable:
            found.append(block)
    if left_out > 3:
        warnings.append(f"invisible characters left out ({left_out})")
    return found


def _one_line(text: str) -> str:
    """JSON whose strings have no line ends but escaped ones."""
    for char in "\u2028\u2029\x85":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _merged(raw: RawDocument, stated: Mapping[str, str]) -> dict[str, str]:
    """Configuration and manifest first; what the file says of itself fills the gaps."""
    metadata = {key: visible(value) for key, value in raw.metadata.items()}
    for key, value in _renamed(stated, raw.names).items():
        if not metadata.get(key):
            metadata[key] = value
    return metadata


def _count_tables(form: Format, blocks: Sequence[Block]) -> int:
    tables = [block.kind == "table" for block in blocks]
    if form not in ("spreadsheet", "csv"):
        return sum(tables)
    return sum(1 for at, table in enumerate(tables) if table and (at == 0 or not tables[at - 1]))


def _extracted(form: Format, raw: RawDocument, *, language: str | None) -> Extract:
    data = raw.data
    match form:
        case "pdf":
            from .pdf import parse_pdf

            return parse_pdf(data, ocr=raw.ocr, language=language)
        case "docx":
            from .docx import parse_docx

            return parse_docx(data)
        case "pptx":
            from .pptx import parse_pptx

            return parse_pptx(data)
        case "odt":
            from .odt import parse_odt

            return parse_odt(data)
        case "mail":
            from .mail import parse_mail

            return parse_mail(data)
        case "zip":
            from .archives import parse_zip

            return parse_zip(data)
        case _:
            from .spreadsheet import parse_spreadsheet

            return parse_spreadsheet(data)


def _blocks(form: Format, body: str, metadata: dict[str, str]) -> Parsed:
    match form:
        case "markdown":
            from .markdown import parse_markdown

            return parse_markdown(body, metadata=metadata)
        case "rst":
            from .rst import parse_rst

            return parse_rst(body)
        case "html":
            from .html import parse_html

            return parse_html(body)
        case "csv":
            from .spreadsheet import parse_csv

            return parse_csv(body)
        case "json":
            from .records import parse_json

            return parse_json(body)
        case "jsonl":
            from .records import parse_jsonl

            return parse_jsonl(body)
        case _:
            from .text import parse_text

            return parse_text(body)


def _title_heading(blocks: Sequence[Block]) -> str | None:
    """The first heading, unless it is but the first numbered one of several on its level, as in a changelog."""
    headings = [block for block in blocks if block.kind == "heading"]
    if not headings:
        return None
    peers = [block for block in headings if block.level <= headings[0].level]
    return headings[0].text if len(peers) == 1 or "." not in (label(headings[0].text).number or "") else None


def _promoted(block: Block) -> Block:
    return Block(text=block.text, kind="heading", level=label(block.text).rank, tight=block.tight)


def _renamed(metadata: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The document's own values under the configured names, without those that only configuration may set."""
    values = {key: value for key, value in metadata.items() if key.lower() not in RESERVED}
    for name, key in names.items():
        if metadata.get(key) and name.lower() not in RESERVED:
            values[name] = metadata[key]
    if metadata.get("id"):
        values.setdefault("declared_id", metadata["id"])
    return values


def _language_code(value: str) -> str | None:
    match = re.match(r"([a-zA-Z]{2})(?:[-_]|$)", value.strip())
    return match[1].lower() if match else None

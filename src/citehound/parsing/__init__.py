"""From bytes to a `Document`: format, encoding, front matter, title; how a format is read is its own module's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ..documents import RESERVED, Document, RawDocument
from ..errors import ParseError
from .blocks import Block, Parsed, count_invisible, fold, join, normalise
from .encoding import Decoded, decode, looks_binary
from .formats import Format, format_of
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
    if looks_binary(raw.data):
        raise Unsupported("binary data, not text")
    try:
        return _parse(raw, kind.format, language=language)
    except ParseError:
        raise
    except RecursionError as error:
        raise ParseError("nested too deeply to be read") from error
    except Exception as error:  # a parser's fault must not end a sync
        raise ParseError(f"cannot be read as {kind.name}: {type(error).__name__}: {fold(str(error))[:200]}") from error


def _parse(raw: RawDocument, kind: Format, *, language: str | None) -> Document:
    decoded: Decoded = decode(raw.data, html=kind == "html")
    text = normalise(decoded.text)
    warnings = list(decoded.warnings)
    if (invisible := count_invisible(decoded.text)) > 3:
        warnings.append(f"invisible characters left out ({invisible})")
    front = read_front_matter(text) if kind in ("markdown", "text", "rst") else None
    body = text if front is None else front.body
    metadata = dict(raw.metadata)
    if front is not None:
        warnings.extend(front.warnings)
        for key, value in _renamed(front.metadata, raw.names).items():
            if not metadata.get(key):
                metadata[key] = value
    parsed = _blocks(kind, body, {**(front.metadata if front else {}), **metadata})
    warnings.extend(parsed.warnings)
    blocks = [
        _promoted(block)
        if block.kind == "paragraph" and is_legal_heading(block.text) and "\n" not in block.text
        else block
        for block in parsed.blocks
    ]
    rendered, placed = join(blocks)
    if not rendered.strip():
        raise Unsupported("no text in the file")
    heading = _title_heading([item.block for item in placed])
    stem = PurePosixPath(raw.path).name.split(".", 1)[0] or PurePosixPath(raw.path).name
    title = fold(metadata.get("title") or (front.title if front else None) or heading or parsed.title or stem)
    declared = _language_code(metadata.get("language") or metadata.get("lang") or "")
    return Document(
        id=raw.id,
        source=raw.source,
        path=raw.path,
        title=title,
        text=rendered,
        sections=find_sections(rendered, placed),
        metadata=metadata,
        language=declared or detect(rendered) or language,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _blocks(kind: Format, body: str, metadata: dict[str, str]) -> Parsed:
    match kind:
        case "markdown":
            from .markdown import parse_markdown

            return parse_markdown(body, metadata=metadata)
        case "rst":
            from .rst import parse_rst

            return parse_rst(body)
        case "html":
            from .html import parse_html

            return parse_html(body)
        case "text":
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

"""One page of a PDF as a picture, for people to look at; runs in a worker, whose limits bound it. Reads no text."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from ..documents import Attachment, Document, RawDocument
from ..errors import ParseError

PAGE = "page"
"""The metadata key that says which page, from 1."""
WIDE = 1200
"""Pixels across; of a page taller than it is wide, at most twice as many down."""


def render(raw: RawDocument, *, language: str | None) -> Document:
    """A document without text, with the page as its attachment, a PNG. Raises ParseError."""
    import pypdfium2  # pyright: ignore[reportMissingTypeStubs]

    try:
        pdf: Any = pypdfium2.PdfDocument(raw.data)
    except pypdfium2.PdfiumError as error:
        raise ParseError(f"the PDF cannot be opened: {error}") from error
    try:
        number = int(raw.metadata[PAGE])
        if not 1 <= number <= len(pdf):
            raise ParseError(f"there is no page {number}: the PDF has {len(pdf)}")
        page = pdf[number - 1]
        width, height = page.get_size()
        if not (width > 0 and height > 0):
            raise ParseError(f"page {number} has no size")
        scale = min(WIDE / width, 2 * WIDE / height)
        picture: Any = page.render(scale=scale, may_draw_forms=False, rev_byteorder=True, prefer_bgrx=False)
        data = _png(bytes(picture.buffer), width=picture.width, height=picture.height, stride=picture.stride)
    finally:
        pdf.close()
    image = Attachment(name=f"page-{number}.png", data=data, media_type="image/png")
    return Document(
        id=raw.id, source=raw.source, path=raw.path, title="", text="", attachments=(image,), language=language
    )


def _png(pixels: bytes, *, width: int, height: int, stride: int) -> bytes:
    """RGB rows as a PNG (ISO/IEC 15948): every row unfiltered, all of them in one chunk."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + pixels[at : at + 3 * width] for at in range(0, height * stride, stride))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows, 6)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

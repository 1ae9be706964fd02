"""E-mail (EML): its headers, its text once, and the files it carries; nothing in it is fetched."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import parsedate_to_datetime

from ..documents import Attachment
from ..errors import ParseError
from .blocks import Block, Parsed, normalise
from .extract import Extract, clean, clean_line
from .html import parse_html
from .text import parse_text

MAX_PARTS = 1_000
MAX_DEPTH = 20
_SHOWN = (("From", "from"), ("To", "to"), ("Cc", "cc"), ("Date", "date"), ("Subject", "subject"))


def parse_mail(data: bytes) -> Extract:
    """Blocks of one message; attachments are handed back to be read as documents. Raises ParseError."""
    try:
        message = email.message_from_bytes(data, policy=email.policy.default)
    except (MessageError, ValueError, RecursionError) as error:
        raise ParseError("damaged: not a readable message") from error
    if not any(message.get(name) for name in ("From", "To", "Subject", "Date", "Received", "Message-ID")):
        raise ParseError("damaged: no message headers")
    warnings: list[str] = []
    metadata: dict[str, str] = {}
    shown: list[str] = []
    for name, key in _SHOWN:
        value = _header(message, name)
        if value:
            metadata[key] = value[:1000]
            shown.append(f"{name}: {value}")
    if "date" in metadata:
        try:
            metadata["date"] = parsedate_to_datetime(metadata["date"]).isoformat()
        except (ValueError, TypeError):
            warnings.append("its date cannot be read")
    number = _header(message, "Message-ID")
    if number:
        metadata["message_id"] = number.strip("<>")[:300]
    plain: list[str] = []
    pages: list[str] = []
    attachments: list[Attachment] = []
    for part in _parts(message, warnings):
        _take(part, plain, pages, attachments, warnings)
    blocks: list[Block] = []
    if attachments:
        shown.append("Attachments: " + ", ".join(a.name for a in attachments))
    if shown:
        blocks.append(Block(text="\n".join(shown), kind="item"))
    body = _body(plain, pages)
    for block in body.blocks:
        text = block.text.strip()
        if text:
            kind = "quote" if text.startswith(">") else block.kind
            tight = block.tight and len(blocks) > (1 if shown else 0)
            blocks.append(Block(text=text, kind=kind, level=block.level, tight=tight))
    return Extract(
        blocks=blocks,
        title=metadata.get("subject"),
        warnings=(*warnings, *body.warnings),
        metadata=metadata,
        attachments=tuple(attachments),
    )


def _header(message: EmailMessage, name: str) -> str:
    """A header decoded, on one line; what cannot be parsed is taken as it stands."""
    try:
        value = message.get(name)
    except (ValueError, IndexError, AttributeError, TypeError, MessageError):  # broken headers upset the parser
        value = next((v for k, v in message.raw_items() if k.lower() == name.lower()), None)
    return clean_line(str(value)) if value is not None else ""


def _parts(message: EmailMessage, warnings: list[str]) -> Iterator[EmailMessage]:
    """Leaves of the tree of parts; a message inside a message is a leaf."""
    stack: list[tuple[EmailMessage, int]] = [(message, 0)]
    count = 0
    while stack:
        part, depth = stack.pop()
        count += 1
        if count > MAX_PARTS or depth > MAX_DEPTH:
            warnings.append("too many parts, not all were read")
            return
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            children = [p for p in part.iter_parts() if isinstance(p, EmailMessage)]
            stack.extend((p, depth + 1) for p in reversed(children))
        else:
            yield part


def _take(
    part: EmailMessage, plain: list[str], pages: list[str], attachments: list[Attachment], warnings: list[str]
) -> None:
    kind = part.get_content_type()
    name = _file_name(part)
    attached = part.get_content_disposition() == "attachment" or (bool(name) and not kind.startswith("image/"))
    if kind == "message/rfc822":
        inner = next((p for p in part.walk() if p is not part), None)
        if isinstance(inner, EmailMessage):
            subject = re.sub(r"[^\w .-]+", "_", _header(inner, "Subject"))[:80] or "message"
            attachments.append(
                Attachment(
                    name=name or f"{subject}.eml", data=inner.as_bytes(policy=email.policy.compat32), media_type=kind
                )
            )
        return
    if kind in ("text/plain", "text/html") and not attached:
        text = _text(part)
        if text.strip():
            (plain if kind == "text/plain" else pages).append(text)
        return
    if not attached and kind.startswith("image/"):
        return
    try:
        payload = part.get_payload(decode=True)
    except (ValueError, AssertionError):
        payload = None
    if isinstance(payload, bytes) and payload:
        attachments.append(Attachment(name=name or f"attachment-{len(attachments) + 1}", data=payload, media_type=kind))
    elif attached:
        warnings.append(f"attachment {name!r} cannot be read")


def _file_name(part: EmailMessage) -> str:
    try:
        name = part.get_filename() or ""
    except (ValueError, TypeError, AttributeError, IndexError):
        name = ""
    name = clean_line(name).replace("\\", "/").rsplit("/", 1)[-1]
    return name.strip(". ")[:150]


def _text(part: EmailMessage) -> str:
    try:
        content = part.get_content()
        if isinstance(content, str):
            return content
    except (LookupError, ValueError, KeyError, MessageError):
        pass
    payload = part.get_payload(decode=True)
    return payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""


def _body(plain: list[str], pages: list[str]) -> Parsed:
    """The plain text, or the HTML where there is no plain text worth the name."""
    if pages and sum(len(t.strip()) for t in plain) < 20:
        parts = [parse_html(normalise(page)) for page in pages]
    else:
        parts = [parse_text(normalise(clean(text))) for text in plain]
    return Parsed(
        blocks=[block for part in parts for block in part.blocks],
        warnings=tuple(w for part in parts for w in part.warnings),
    )

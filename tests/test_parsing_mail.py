"""E-mail: headers, one body, attachments."""

from __future__ import annotations

from email.message import EmailMessage

import pytest

from citehound.errors import ParseError
from citehound.parsing.blocks import join
from citehound.parsing.mail import parse_mail


def message(text: str | None = "Report within 24 hours.\n", *, subject: str = "Incident rule") -> EmailMessage:
    m = EmailMessage()
    m["From"] = "Ana Müller <ana@bank.example>"
    m["To"] = "team@bank.example"
    m["Date"] = "Mon, 03 Mar 2025 10:00:00 +0100"
    m["Subject"] = subject
    m["Message-ID"] = "<1@bank.example>"
    if text is not None:
        m.set_content(text)
    return m


def test_headers_are_metadata_and_can_be_quoted() -> None:
    found = parse_mail(message().as_bytes())
    assert found.title == "Incident rule"
    assert found.metadata["from"] == "Ana Müller <ana@bank.example>"
    assert found.metadata["date"] == "2025-03-03T10:00:00+01:00"
    assert found.metadata["message_id"] == "1@bank.example"
    text = join(found.blocks)[0]
    assert "From: Ana Müller <ana@bank.example>" in text and "Report within 24 hours." in text


def test_the_same_text_in_html_is_not_read_twice() -> None:
    m = message()
    m.add_alternative("<p>Report within <b>24</b> hours.</p>", subtype="html")
    assert join(parse_mail(m.as_bytes()).blocks)[0].count("24") == 1


def test_html_alone_is_read_without_what_is_hidden() -> None:
    m = message(None)
    m.set_content('<p>Seen: 24 hours</p><p style="display:none">72 hours</p>', subtype="html")
    text = join(parse_mail(m.as_bytes()).blocks)[0]
    assert "24 hours" in text and "72 hours" not in text


def test_attachments_are_handed_back_as_files() -> None:
    m = message()
    m.add_attachment(b"%PDF-1.4 x", maintype="application", subtype="pdf", filename="../../Vertrag für Alpha.pdf")
    found = parse_mail(m.as_bytes())
    assert [(a.name, a.data, a.media_type) for a in found.attachments] == [
        ("Vertrag für Alpha.pdf", b"%PDF-1.4 x", "application/pdf")
    ]
    assert "Attachments: Vertrag für Alpha.pdf" in join(found.blocks)[0]


def test_a_forwarded_message_is_an_attachment() -> None:
    m = message()
    m.add_attachment(message("Inner: 72 hours.\n", subject="Old rule"))
    found = parse_mail(m.as_bytes())
    assert "72 hours" not in join(found.blocks)[0]
    assert found.attachments[0].name.endswith(".eml")
    assert parse_mail(found.attachments[0].data).title == "Old rule"


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-8", "windows-1252"])
def test_the_declared_charset_counts(charset: str) -> None:
    m = message(None)
    m.set_content("Prüfung beträgt 5 Tage\n", charset=charset)
    assert "Prüfung beträgt 5 Tage" in join(parse_mail(m.as_bytes()).blocks)[0]


def test_encoded_subjects_are_decoded() -> None:
    data = b"From: a@b.example\r\nSubject: =?utf-8?Q?K=C3=BCndigung?=\r\n\r\nText\r\n"
    assert parse_mail(data).title == "Kündigung"


@pytest.mark.parametrize(
    "data",
    [
        b"From: a@b.example\r\nContent-Type: text/plain; charset=no-such\r\n\r\nText here\r\n",
        b"From: a@b.example\r\nContent-Type: multipart/mixed\r\n\r\nText here\r\n",
        b"From: a@b.example\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!Text here\r\n",
        b"From: <<<>>>\r\nDate: never\r\n\r\nText here\r\n",
    ],
)
def test_broken_messages_are_still_messages(data: bytes) -> None:
    assert parse_mail(data).blocks


def test_what_has_no_headers_is_damaged() -> None:
    with pytest.raises(ParseError, match="no message headers"):
        parse_mail(b"just some text\n")


def test_many_nested_parts_end() -> None:
    head = b"From: a@b.example\r\n"
    for n in range(60):
        head += b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n)
    found = parse_mail(head + b"Content-Type: text/plain\r\n\r\ndeep\r\n")
    assert "too many parts, not all were read" in found.warnings

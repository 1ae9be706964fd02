"""Bytes to characters: byte order marks, UTF-8, UTF-16 without a mark, legacy encodings; cleaning is done elsewhere."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"(?:charset|encoding|coding)\s*[=:]\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.I)
_MULTIBYTE = ("gb18030", "cp932", "euc_jp", "big5", "euc_kr")
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_IN_WORD = re.compile(rb"(?<=[a-z])[\xa3\xa5\xb1\xb3\xb9\xbc\xbe\xbf](?=[a-z])")
"""Bytes that are signs in Windows-1252, between letters."""
_CONTROLS = bytes([*range(1, 9), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F])
_SAMPLE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Decoded:
    text: str
    encoding: str
    warnings: tuple[str, ...] = ()


def decode(data: bytes, *, html: bool = False) -> Decoded:
    """The characters of a text file; never fails. What it had to guess or replace is in `warnings`."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            text = data[len(mark) :].decode(encoding, "replace")
            return Decoded(text=text, encoding=encoding, warnings=_replaced(text, encoding))
    if encoding := _utf16_without_mark(data):
        text = data.decode(encoding, "replace")
        return Decoded(text=text, encoding=encoding, warnings=_replaced(text, encoding))
    try:
        return Decoded(text=data.decode("utf-8"), encoding="utf-8")
    except UnicodeDecodeError:
        pass
    if (text := _mostly_utf8(data)) is not None:
        return Decoded(text=text, encoding="utf-8", warnings=("some bytes are not UTF-8; read as Windows-1252",))
    declared = _declared(data) if html else None
    if declared:
        try:
            return Decoded(text=data.decode(declared), encoding=declared)
        except (UnicodeDecodeError, LookupError):
            pass
    encoding = _guess(data)
    text = data.decode(encoding, "replace")
    return Decoded(text=text, encoding=encoding, warnings=(f"encoding guessed: {encoding}", *_replaced(text, encoding)))


def looks_binary(data: bytes) -> bool:
    """True for bytes that no encoding of text explains: many NULs that are not UTF-16, or many control characters."""
    sample = data[:_SAMPLE]
    if any(sample.startswith(mark) for mark, _ in _BOMS) or _utf16_without_mark(sample):
        return False
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return sample.count(0) > max(8, len(sample) // 50) or controls > max(8, len(sample) // 50)


def _replaced(text: str, encoding: str) -> tuple[str, ...]:
    return (f"some bytes are not valid {encoding} and were replaced",) if "\ufffd" in text else ()


def _utf16_without_mark(data: bytes) -> str | None:
    sample = data[: 1 << 16]
    if len(sample) < 8 or b"\x00" not in sample:
        return None
    half = len(sample) // 2
    even, odd = sample[0 : 2 * half : 2].count(0), sample[1 : 2 * half : 2].count(0)
    if odd > half * 0.3 and even < half * 0.05 and _readable(sample, "utf-16-le"):
        return "utf-16-le"
    if even > half * 0.3 and odd < half * 0.05 and _readable(sample, "utf-16-be"):
        return "utf-16-be"
    return None


def _readable(sample: bytes, encoding: str) -> bool:
    """True when bytes read this way hold no control characters to speak of."""
    text = sample.decode(encoding, "replace")
    return len(re.findall("[\x00-\x08\x0e-\x1f\ufffd]", text)) * 50 <= len(text)


def _mostly_utf8(data: bytes) -> str | None:
    """UTF-8 with a few stray bytes, which are read as Windows-1252; None when stray bytes are not the exception."""
    text = data.decode("utf-8", "surrogateescape")
    stray = len(re.findall("[\udc80-\udcff]", text))
    good = sum(1 for c in re.findall(r"[^\x00-\x7f]", text) if not "\udc80" <= c <= "\udcff")
    if stray * 4 > good:
        return None
    return re.sub("[\udc80-\udcff]", lambda m: bytes([ord(m.group()) - 0xDC00]).decode("cp1252", "replace"), text)


def _declared(data: bytes) -> str | None:
    match = _DECLARED.search(data[:4096])
    if match is None:
        return None
    try:
        name = codecs.lookup(match[1].decode("ascii")).name
    except LookupError:
        return None
    if name in ("utf-8", "ascii", "utf-16", "utf-7") or not name.replace("-", "").replace("_", "").isalnum():
        return None
    return "cp1252" if name == "iso8859-1" else name


def _guess(data: bytes) -> str:
    """The likeliest legacy encoding. High bytes that stand alone between ASCII letters mean a Western one."""
    sample = data[:_SAMPLE]
    runs = _HIGH_RUN.findall(sample)
    alone = sum(1 for run in runs if len(run) == 1)
    best, best_score = "", 0.0
    for encoding in _MULTIBYTE:
        score = _cjk_score(sample, encoding)
        if score > best_score:
            best, best_score = encoding, score
    if alone * 2 >= len(runs) and len(re.findall(rb"[a-zA-Z]", sample)) > 3 * sum(map(len, runs)):
        return _western(data)
    if best == "gb18030" and _is_japanese(sample):
        return "euc_jp"  # its kana stand at the same bytes
    if best_score > 0.75:
        return best
    if alone * 2 >= len(runs):
        return _western(data)
    from charset_normalizer import from_bytes

    match = from_bytes(sample).best()
    return match.encoding if match is not None else _western(data)


def _is_japanese(sample: bytes) -> bool:
    """True for EUC-JP with a fair share of kana, which Chinese texts do not have."""
    text = sample.decode("euc_jp", "ignore")
    wide = [c for c in text if ord(c) > 0x7F]
    kana = sum("\u3041" <= c <= "\u30fe" for c in wide)
    return kana > 0.1 * len(wide) and len(text.encode("euc_jp", "ignore")) >= 0.99 * len(sample)


def _western(data: bytes) -> str:
    """Signs inside words are letters of Central Europe."""
    inside = _IN_WORD.findall(data[:_SAMPLE])
    if inside and all(b.decode("cp1250", "replace").isalpha() for b in inside):
        return "cp1250"
    return "latin-1" if re.search(rb"[\x81\x8d\x8f\x90\x9d]", data) else "cp1252"


def _cjk_score(sample: bytes, encoding: str) -> float:
    """Share of everyday Chinese, Japanese or Korean among the characters beyond ASCII; 0 if it does not decode."""
    text = None
    for cut in range(4):
        try:
            text = sample[: len(sample) - cut].decode(encoding)
            break
        except UnicodeDecodeError as error:
            if len(sample) < _SAMPLE or error.start < len(sample) - 8:
                return 0.0
    if text is None:
        return 0.0
    wide = [c for c in text if ord(c) > 0x7F]
    if not wide:
        return 0.0
    kana = sum(1 for c in wide if "\u3040" <= c <= "\u30ff")
    common = 0.0
    for c in wide:
        if "\u3040" <= c <= "\u30ff" or c in "、。「」，．！？：；（）・ー％“”‘’《》　—…〇０１２３４５６７８９ⅠⅡⅢⅣⅤ":
            common += 1
        elif "\uac00" <= c <= "\ud7a3":
            common += 1 if encoding == "euc_kr" else 0.2
        elif "\u4e00" <= c <= "\u9fff":
            # a rare ideograph is hardly ever written in the simpler national sets
            common += 0.97 if _everyday(c, encoding) else 0.3
    if encoding in ("cp932", "euc_jp") and not kana:
        common *= 0.8
    halfwidth = sum(1 for c in wide if "\uff61" <= c <= "\uff9f")
    return (common - halfwidth) / len(wide)


def _everyday(char: str, encoding: str) -> bool:
    """True for an ideograph of the first level of the national standard, which is ordered by frequency of use."""
    try:
        if encoding == "gb18030":
            code = char.encode("gb2312")
            return 0xB0 <= code[0] <= 0xD7
        if encoding in ("cp932", "euc_jp"):
            code = char.encode("euc_jp")
            return len(code) == 2 and 0xB0 <= code[0] <= 0xCF
        if encoding == "big5":
            code = char.encode("big5")
            return 0xA4 <= code[0] <= 0xC6
        code = char.encode("euc_kr")
        return False
    except UnicodeEncodeError:
        return False

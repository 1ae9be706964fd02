"""The one gate for text of others on its way to a prompt, a terminal, a page or a log; decides nothing about answers.

A plain `str` is untrusted: a document's text, its title, name and metadata, a snippet, a web page, what a model said.
Whatever takes it further asks for `Prompt`, `Shown`, `Page` or `Log`, and only the exits here (and prompts.py, of its
own words) make these, so that a type checker finds a way around. `visible` follows UAX #9 (bidi controls), UTS #51
(emoji joiners) and the Unicode rules on joiners in Arabic and Indic scripts.
"""

from __future__ import annotations

import base64
import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NewType, cast
from urllib.parse import quote, quote_plus

Prompt = NewType("Prompt", str)
"""May be sent to a model."""
Shown = NewType("Shown", str)
"""May be printed on a terminal."""
Page = NewType("Page", str)
"""May be text of an element of a page, or its data."""
Log = NewType("Log", str)
"""May be written to a log, a trace or a record."""

Draw = Callable[[], str]
"""Gives a fresh random mark."""

_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_NEVER = re.compile(
    "["
    "\x00-\x08\x0e-\x1f\x7f-\x9f"  # C0 but \t and \n (others are line breaks, see above), DEL, C1
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0"  # nothing to see
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls
    "\ufff9-\ufffb"  # interlinear annotation
    "\U000e0000-\U000e0fff"  # tags and the supplementary variation selectors
    "]+"
)
_MAYBE = re.compile("[\u200c\u200d\ufe00-\ufe0f\u180b-\u180d]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_ZWNJ, _ZWJ, _VS15, _VS16 = "\u200c", "\u200d", "\ufe0e", "\ufe0f"

_JOINING = ("ARABIC", "SYRIAC", "MANDAIC", "MONGOLIAN", "NKO", "PHAGS", "MANICHAEAN", "ADLAM", "HANIFI")
_INDIC = (
    "DEVANAGARI",
    "BENGALI",
    "GURMUKHI",
    "GUJARATI",
    "ORIYA",
    "TAMIL",
    "TELUGU",
    "KANNADA",
    "MALAYALAM",
    "SINHALA",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "NEWA",
    "BALINESE",
    "JAVANESE",
)


def visible(text: str) -> str:
    """`text` without anything that cannot be seen: control, bidi, tag and zero-width characters are gone.

    Line breaks of every kind become a newline; tabs stay. Joiners stay only where they shape what is seen: in emoji
    sequences and in Arabic-like and Indic scripts. A lone surrogate becomes U+FFFD, so it always encodes.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _SURROGATES.sub("\ufffd", text)
    text = _NEVER.sub("", _BREAKS.sub("\n", text))
    return _MAYBE.sub(lambda m: m.group() if _shapes(text, m.start()) else "", text)


def hidden_count(text: str) -> int:
    """How many characters `visible` would take away (a line break of two characters counts as one)."""
    return max(0, len(_BREAKS.sub("\n", text)) - len(visible(text)))


_ESCAPED = re.compile(
    "[\x7f-\x9f\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)


def _escape(char: str) -> str:
    point = ord(char)
    if point < 0x10000:
        return f"\\u{point:04x}"
    point -= 0x10000
    return f"\\u{0xD800 + (point >> 10):04x}\\u{0xDC00 + (point & 0x3FF):04x}"


def _shapes(text: str, at: int) -> bool:
    """True when the joiner or variation selector at `at` changes what is seen."""
    char = text[at]
    before = text[at - 1] if at else ""
    after = text[at + 1] if at + 1 < len(text) else ""
    if not before:
        return False
    if char in (_VS15, _VS16):
        return _pictographic(before) or before in "0123456789#*"
    if "\ufe00" <= char <= "\ufe0d":
        return unicodedata.category(before) in ("Sm", "Lo")
    if "\u180b" <= char <= "\u180d":
        return _script(before) == "MONGOLIAN"
    if char == _ZWJ and after:
        base = text[at - 2] if before in (_VS15, _VS16) and at > 1 else before
        if _pictographic(base) and _pictographic(after):
            return True
    script = _script(before)
    if script in _INDIC:
        return not after or char == _ZWJ or _script(after) == script
    return script in _JOINING and (_script(after) == script if after else char == _ZWJ)


def _script(char: str) -> str:
    if not char or unicodedata.category(char)[0] not in "LMN":
        return ""
    return unicodedata.name(char, "").split(" ", 1)[0]


def _pictographic(char: str) -> bool:
    point = ord(char)
    return (
        0x1F000 <= point <= 0x1FAFF
        or 0x2190 <= point <= 0x21FF
        or 0x2300 <= point <= 0x23FF
        or 0x2460 <= point <= 0x27BF
        or 0x2900 <= point <= 0x2BFF
        or point in (0xA9, 0xAE, 0x203C, 0x2049, 0x2122, 0x2139, 0x3030, 0x303D, 0x3297, 0x3299)
    )


# The exits ---------------------------------------------------------------------------------------------------------


def for_prompt(text: str) -> Prompt:
    """`text` as a model may be sent it: visible. What others wrote belongs in `sealed` JSON besides."""
    return Prompt(visible(text))


def for_terminal(text: str) -> Shown:
    """`text` as it may be printed: visible, and with the values of live secrets hidden."""
    return Shown(redact(visible(text)))


def for_terminal_json(value: Any, *, indent: int | None = 2) -> Shown:
    """`value` as JSON that is safe to print: what `visible` would drop stands as an escape, so nothing is lost."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    escaped = _ESCAPED.sub(lambda m: "".join(_escape(c) for c in m.group()), text)
    return Shown(redact(escaped))


def for_page(text: str) -> Page:
    """`text` as an element of a page may hold it, set as text and never as markup: visible, without live secrets."""
    return Page(redact(visible(text)))


def for_page_json(value: Any) -> Page:
    """`value` as JSON that cannot end the script element it stands in."""
    return Page(redact(json.dumps(_visible(value), ensure_ascii=False)).replace("<", "\\u003c"))


def for_log(text: str) -> Log:
    """`text` as one line of a log or trace: visible, without live secrets, line breaks as `\\n`."""
    return Log(redact(visible(text)).replace("\n", "\\n"))


def for_log_json(value: Any) -> Log:
    """`value` as a line of ASCII JSON for a record: without live secrets, otherwise nothing is lost."""
    return Log(redact(json.dumps(value, ensure_ascii=True, default=str)))


# Marks: where text of others begins and ends in a prompt -----------------------------------------------------------

_LETTERS = 28
"""Of 26 letters: 131 bits. Letters alone, so that every mark is estimated at the same number of tokens."""
OPEN, CLOSE = "open", "close"
PROMPT_MARK = re.compile(rf'(?<!\\)"{OPEN}": "([a-z]{{{_LETTERS}}})"')
"""A mark in the JSON of a prompt."""


def draw_mark() -> str:
    """A random mark of at least 128 bits."""
    number = int.from_bytes(os.urandom(24), "big")
    letters: list[str] = []
    for _ in range(_LETTERS):
        number, letter = divmod(number, 26)
        letters.append(chr(97 + letter))
    return "".join(letters)


def sealed(value: Mapping[str, Any], *, draw: Draw = draw_mark) -> dict[str, Any]:
    """A JSON object for a model, with every string visible, between one mark of its own as `open` and as `close`.

    The mark is drawn after the text is known and never stands in it, so no text can end the object it stands in. A key
    of the object that is called like the ends is renamed.
    """
    body = {f"{key}_" if key in (OPEN, CLOSE) else key: item for key, item in visible_json(value).items()}
    mark = _unused(json.dumps(body, ensure_ascii=False, default=str), draw)
    return {OPEN: mark, **body, CLOSE: mark}


def sealed_json(value: Mapping[str, Any], *, indent: int | None = None, draw: Draw = draw_mark) -> Prompt:
    """`sealed` as JSON text."""
    return Prompt(json.dumps(sealed(value, draw=draw), ensure_ascii=False, indent=indent))


def sealed_text(text: str, *, draw: Draw = draw_mark) -> Prompt:
    """A JSON object that is text already (of `visible_json`), with a mark at both ends as `sealed` has it."""
    inside = text.strip()[1:-1].strip()
    mark = _unused(inside, draw)
    return Prompt(f'{{"{OPEN}": "{mark}", {inside}{", " if inside else ""}"{CLOSE}": "{mark}"}}')


def visible_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with every string in it visible, keys too."""
    return {visible(str(key)): _visible(item) for key, item in value.items()}


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list | tuple):
        return [_visible(item) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        return visible_json(cast("Mapping[str, Any]", value))
    return value


def _unused(text: str, draw: Draw) -> str:
    for _ in range(100):
        mark = draw()
        if mark not in text:
            return mark
    raise ValueError("every mark that was drawn stands in the text: the source of marks is not random")


# Secrets ---------------------------------------------------------------------------------------------------------

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|ACCESS_KEY|SECRET|SECRET_KEY|TOKEN|PASSWORD|CREDENTIALS?|HEADERS)$", re.I)
_LEAST = 8
"""A shorter value is no secret worth hiding: replacing it would garble ordinary text."""


def secrets(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The values of the environment's variables that are named like secrets, longest first."""
    given = os.environ if env is None else env
    found = {value.strip() for name in given if _is_secret(name) and len(value := given.get(name, "")) >= _LEAST}
    return tuple(sorted((v for v in found if len(v) >= _LEAST), key=lambda v: (-len(v), v)))


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    """By its name. Looked up for all variables of the environment with everything that is logged."""
    return _SECRET_NAME.search(name) is not None


def redact(text: str, *, env: Mapping[str, str] | None = None) -> str:
    """`text` with every live secret replaced, also in URL, JSON and base64 form (at any of three alignments)."""
    values = secrets(env)
    if not values:
        return text
    for form in _forms(values):
        if form in text:
            text = text.replace(form, REDACTED)
    return text


_cache: dict[tuple[str, ...], tuple[str, ...]] = {}


def _forms(values: tuple[str, ...]) -> tuple[str, ...]:
    if values not in _cache:
        _cache.clear()
        forms: set[str] = set()
        for value in values:
            forms |= {value, quote(value, safe=""), quote(value), quote_plus(value), json.dumps(value)[1:-1]}
            raw = value.encode("utf-8", "surrogateescape")
            for pad in range(3):
                for encode in (base64.b64encode, base64.urlsafe_b64encode):
                    body = encode(b"\0" * pad + raw).decode("ascii")
                    # Characters that share bits with neighbours differ from case to case; the rest never does.
                    forms.add(body[(0, 2, 3)[pad] : (pad + len(raw)) * 8 // 6])
        _cache[values] = tuple(sorted((f for f in forms if len(f) >= _LEAST), key=lambda f: (-len(f), f)))
    return _cache[values]

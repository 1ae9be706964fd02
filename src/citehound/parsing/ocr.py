"""Characters from pictures of pages, by tesseract (`citehound[ocr]`); which pages need it is the format's to say."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..errors import ParseError

_LANGUAGES = {
    "af": "afr",
    "ar": "ara",
    "bg": "bul",
    "ca": "cat",
    "cs": "ces",
    "da": "dan",
    "de": "deu",
    "el": "ell",
    "en": "eng",
    "es": "spa",
    "et": "est",
    "fi": "fin",
    "fr": "fra",
    "he": "heb",
    "hi": "hin",
    "hr": "hrv",
    "hu": "hun",
    "it": "ita",
    "ja": "jpn",
    "ko": "kor",
    "lt": "lit",
    "lv": "lav",
    "nl": "nld",
    "no": "nor",
    "pl": "pol",
    "pt": "por",
    "ro": "ron",
    "ru": "rus",
    "sk": "slk",
    "sl": "slv",
    "sv": "swe",
    "th": "tha",
    "tr": "tur",
    "uk": "ukr",
    "vi": "vie",
    "zh": "chi_sim",
}
"""ISO 639-1 to tesseract's names."""
_MOST_LANGUAGES = 3
"""Of those installed, where the language is not known; each more makes it slower."""
_SURE = 60
"""Words that tesseract is less sure of, in per cent, are counted; signs without letters and digits are left out."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of words and its place in the picture, in pixels."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    words: int
    unsure: int
    """So many of the words may be misread."""


def available() -> bool:
    """True when the extra and the program are both there."""
    return importlib.util.find_spec("pytesseract") is not None and shutil.which("tesseract") is not None


def read_lines(picture: Any, *, language: str | None, seconds: float) -> list[Line]:
    """The lines of a picture (PIL), in reading order. Raises ParseError when tesseract fails or takes too long."""
    os.environ["OMP_THREAD_LIMIT"] = "1"  # several files are read at once already
    try:
        tesseract: Any = importlib.import_module("pytesseract")
    except ImportError as error:
        raise ParseError("needs OCR: install citehound[ocr]") from error
    try:
        found: Mapping[str, Sequence[Any]] = tesseract.image_to_data(
            picture,
            lang=_languages(tesseract, language),
            timeout=seconds,
            output_type=tesseract.Output.DICT,
        )
    except (tesseract.TesseractError, tesseract.TesseractNotFoundError, RuntimeError, OSError) as error:
        raise ParseError(f"needs OCR, which failed: {' '.join(str(error).split())[:200]}") from error
    lines: dict[tuple[int, int, int], list[int]] = {}
    for at, text in enumerate(found["text"]):
        sure = float(found["conf"][at]) >= _SURE
        if any(c.isalnum() for c in str(text)) or (sure and str(text).strip()):
            key = (int(found["block_num"][at]), int(found["par_num"][at]), int(found["line_num"][at]))
            lines.setdefault(key, []).append(at)
    return [
        Line(
            text=" ".join(str(found["text"][at]) for at in words),
            left=min(found["left"][at] for at in words),
            top=min(found["top"][at] for at in words),
            right=max(found["left"][at] + found["width"][at] for at in words),
            bottom=max(found["top"][at] + found["height"][at] for at in words),
            words=len(words),
            unsure=sum(float(found["conf"][at]) < _SURE for at in words),
        )
        for words in lines.values()
    ]


def _languages(tesseract: Any, language: str | None) -> str:
    installed = cast("list[str]", tesseract.get_languages(config=""))
    wanted = _LANGUAGES.get(language or "")
    if wanted in installed:
        return wanted
    usual = [name for name in _LANGUAGES.values() if name in installed]
    usual.sort(key=lambda name: name != "eng")
    return "+".join(usual[:_MOST_LANGUAGES]) or "eng"

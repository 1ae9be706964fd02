"""Colours as documents write them, and whether a reader can tell two of them apart."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Mapping
from functools import lru_cache

Colour = tuple[int, int, int]
"""Red, green and blue, up to 255."""
WHITE: Colour = (255, 255, 255)
FAINT = 0.06
"""An opacity up to which nothing is seen."""
_NEAR = 12
"""In each of red, green and blue: a smaller difference between ink and ground nobody sees."""
NAMES: Mapping[str, Colour] = {
    "white": WHITE, "black": (0, 0, 0), "snow": (255, 250, 250), "ivory": (255, 255, 240),
    "ghostwhite": (248, 248, 255), "floralwhite": (255, 250, 240), "whitesmoke": (245, 245, 245),
    "mintcream": (245, 255, 250), "azure": (240, 255, 255), "aliceblue": (240, 248, 255),
    "honeydew": (240, 255, 240), "seashell": (255, 245, 238), "silver": (192, 192, 192), "gray": (128, 128, 128),
    "grey": (128, 128, 128), "maroon": (128, 0, 0), "red": (255, 0, 0), "purple": (128, 0, 128),
    "fuchsia": (255, 0, 255), "magenta": (255, 0, 255), "green": (0, 128, 0), "lime": (0, 255, 0),
    "olive": (128, 128, 0), "yellow": (255, 255, 0), "navy": (0, 0, 128), "blue": (0, 0, 255),
    "teal": (0, 128, 128), "aqua": (0, 255, 255), "cyan": (0, 255, 255), "orange": (255, 165, 0),
    "canvas": WHITE, "canvastext": (0, 0, 0),
}  # fmt: skip


def alike(one: Colour | str, other: Colour | str) -> bool:
    """Whether what has one colour is not seen on the other; names that are not known are alike if they are the same."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return all(abs(a - b) <= _NEAR for a, b in zip(one, other, strict=True))


@lru_cache(maxsize=4096)
def colour(value: str) -> Colour | str | None:
    """A CSS colour in lower case (the # may be missing); None for one that lets all through; else what is given."""
    value = value.strip()
    if value.startswith("light-dark("):
        value = re.split(r",(?![^()]*\))", value[11:-1])[0].strip()
    if value == "transparent":
        return None
    if value in NAMES:
        return NAMES[value]
    if match := re.fullmatch(r"#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})", value):
        digits = match[1] if len(match[1]) > 4 else "".join(2 * d for d in match[1])
        red, green, blue, alpha = (int(digits[at : at + 2] or "ff", 16) for at in range(0, 8, 2))
        return None if alpha <= 255 * FAINT else (red, green, blue)
    match = re.fullmatch(r"(rgb|hsl|hwb)a?\(([^()]*)\)", value)
    if match is None:
        return value
    parts = [part for part in re.split(r"[\s,/]+", match[2].strip()) if part]
    numbers = [re.match(r"-?(?:\d{1,9}\.?\d{0,9}|\.\d{1,9})", part) for part in parts]
    if len(parts) < 3 or any(number is None for number in numbers[:3]):
        return value
    if len(parts) > 3 and (alpha := _share(parts[3])) is not None and alpha <= FAINT:
        return None
    first, second, third = (float(number[0]) for number in numbers[:3] if number is not None)
    if match[1] == "rgb":
        scaled = (n * 2.55 if part.endswith("%") else n for n, part in zip((first, second, third), parts, strict=False))
        red, green, blue = (min(255, max(0, round(n))) for n in scaled)
        return red, green, blue
    if match[1] == "hsl":
        shares = colorsys.hls_to_rgb(first % 360 / 360, min(third, 100) / 100, min(second, 100) / 100)
    else:
        white, black = min(second, 100) / 100, min(third, 100) / 100
        pure = colorsys.hls_to_rgb(first % 360 / 360, 0.5, 1.0)
        shares = tuple(share * max(0.0, 1 - white - black) + white for share in pure)
    red, green, blue = (round(255 * share) for share in shares)
    return red, green, blue


def _share(value: str) -> float | None:
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(%?)", value)
    return None if match is None else float(match[1]) / (100 if match[2] else 1)

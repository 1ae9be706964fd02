"""What a page's own styles let a reader see: the cascade of the few properties that can hide text; lays out nothing.

Style sheets in the page, `style` attributes and old presentational ones count; sheets elsewhere are not fetched, so
where a page links one, what it gives classes and ids is not known, and doubt means: seen. Rules under a condition count
where a screen of 1280 by 800 pixels meets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

from selectolax.lexbor import LexborHTMLParser, LexborNode

from .colours import FAINT, NAMES, WHITE, Colour, alike, colour

_TINY = 3.2
"""Pixels of a font up to which nothing can be read."""
_AWAY = 400.0
"""Pixels outside of the page from which text is out of sight."""
_SCREEN = (1280.0, 800.0)
_MOST_SHEETS = 50
_MOST_SHEET = 500_000
_MOST_STYLE = 50_000
_MOST_RULES = 5000
_MOST_SELECTOR = 2000
_MOST_PARTS = 10
"""Of a selector: the time to look for one grows with what stands around each node, for every part anew."""
_MOST_NESTED = 100
_MOST_DECLARED = 300_000

_COMMENT = re.compile(r"/\*.*?(?:\*/|$)", re.DOTALL)
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"?|\'(?:\\.|[^\'\\\n])*\'?|[{};]|\([^(){}]*\)|[^{};"\'(]+|\(', re.DOTALL)
_PART = re.compile(r"(?:[^;(]|\([^()]*\)|\()+")
"""One declaration; a semicolon in brackets ends none."""
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)
_STATE = re.compile(
    r"::|:(?:hover|focus|active|visited|target|checked|disabled|enabled|before|after|first-line|first-letter|"
    r"placeholder|selection|marker|link|any-link|fullscreen|open|modal|popover-open|indeterminate|invalid|valid)\b",
    re.I,
)
_LENGTH = re.compile(r"(-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(px|pt|pc|in|cm|mm|r?em|ex|ch|vw|vh|vmin|vmax|%)?", re.I)
_UNITS = {"px": 1, "pt": 4 / 3, "pc": 16, "in": 96, "cm": 37.8, "mm": 3.78, "rem": 16, "ex": 8, "ch": 8}
_SIZES = {"xx-small": 9, "x-small": 10, "small": 13, "medium": 16, "large": 18, "x-large": 24, "xx-large": 32}
_VAR = re.compile(r"var\(\s*(--[\w-]+)\s*(?:,([^()]*(?:\([^()]*\)[^()]*)*))?\)")
_INK = frozenset({"color", "-webkit-text-fill-color"})
_GROUND = frozenset(
    {"background", "background-color", "background-image", "-webkit-background-clip", "background-clip"}
)
_GROUPS: tuple[frozenset[str], ...] = (
    _INK | _GROUND,
    frozenset({"display", "visibility", "content-visibility"}),
    frozenset({"opacity", "filter"}),
    frozenset({"font-size", "font", "zoom", "letter-spacing", "line-height"}),
    frozenset({"transform", "scale", "translate", "rotate", "backface-visibility"}),
    frozenset({"clip", "clip-path", "mask", "mask-image", "-webkit-mask", "-webkit-mask-image", "-webkit-clip-path"}),
    frozenset(
        {"position", "left", "right", "top", "bottom", "inset", "text-indent", "white-space", "margin", "margin-left"}
    )
    | {"margin-top"},
    frozenset({"height", "width", "max-height", "max-width", "block-size", "inline-size", "max-block-size"})
    | {"max-inline-size", "overflow", "overflow-x", "overflow-y"},
)
_HELPING = frozenset({"overflow", "overflow-x", "overflow-y", "position"})
"""Hide nothing by themselves."""
_MEANT = frozenset(chain(*_GROUPS))
"""The properties that are looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """How what stands in a node looks, as far as it may hide it; handed down to what is inside."""

    gone: bool = False
    """Neither it nor anything inside is seen."""
    visible: bool = True
    ink: Colour | str | None = (0, 0, 0)
    """A name that is not known stays a name; None is no ink at all."""
    ground: Colour | str | None = WHITE
    """None where it is not known: a picture, or a style sheet elsewhere."""
    size: float = 16.0
    """Of the font, in pixels."""

    @property
    def unseen(self) -> bool:
        """Text that stands in the node itself cannot be seen; what is inside may still look otherwise."""
        if self.gone or not self.visible or self.size <= _TINY or self.ink is None:
            return True
        return self.ground is not None and alike(self.ink, self.ground)


PLAIN = Look()


class Styles:
    """The styles of one page: how each node looks, from how the one around it does."""

    def __init__(self, tree: LexborHTMLParser) -> None:
        sheets = [s for s in tree.css("style")[:_MOST_SHEETS] if _applies(s.attributes.get("media") or "")]
        rules = list(_rules("\n".join(s.text(deep=True)[:_MOST_SHEET] + "\n" for s in sheets))) if sheets else []
        self._variables = {k: v for rule in rules for k, (v, _) in rule.declared.items() if k.startswith("--")}
        for node in tree.css("[style*='--']"):
            self._variables |= {
                k: v for k, (v, _) in _declared(node.attributes.get("style") or "").items() if k.startswith("--")
            }
        self._elsewhere = any(
            "stylesheet" in (link.attributes.get("rel") or "").lower() for link in tree.css("link[rel]")
        )
        self._declared = self._matched(tree, rules) if rules else {}

    def _matched(self, tree: LexborHTMLParser, rules: Sequence[_Rule]) -> dict[int, dict[str, _Set]]:
        """What the sheets say of each node, of properties by which any of them may hide something."""
        play = self._in_play(tree, rules)
        found: dict[int, dict[str, _Set]] = {}
        if not play:
            return found
        made = 0
        for order, rule in enumerate(rules[:_MOST_RULES]):
            kept = {k: v for k, v in rule.declared.items() if k in play}
            if not kept or made > _MOST_DECLARED:
                continue
            for selector in _split(rule.selector):
                if not selector or _STATE.search(selector) or len(selector.split()) > _MOST_PARTS:
                    continue
                try:
                    nodes = tree.css(selector)
                except Exception:  # selectolax raises its own kinds for selectors it does not know
                    continue
                rank = (_specificity(selector), order)
                made += len(nodes) * len(kept)
                for node in nodes:
                    own = found.setdefault(node.mem_id, {})
                    for name, (value, important) in kept.items():
                        weight = (important, *rank)
                        if name not in own or own[name].weight <= weight:
                            own[name] = _Set(value=value, weight=weight)
        return found

    def _in_play(self, tree: LexborHTMLParser, rules: Sequence[_Rule]) -> frozenset[str]:
        """The groups of properties of which some value may hide; the colours, where an ink may be on its like."""
        play: set[str] = set()
        inks: set[str] = set()
        grounds: set[str] = set()
        styled = [_declared(node.attributes.get("style") or "") for node in tree.css("[style]")[:5000]]
        for declared in chain((rule.declared for rule in rules), styled):
            for name, (given, _) in declared.items():
                value = self._resolved(given)
                if name in _INK:
                    inks.add(value)
                elif name in _GROUND:
                    grounds.add(value)
                elif name not in play and name in _MEANT and _suspicious(name, value):
                    play |= next(group for group in _GROUPS if name in group)
        if "currentcolor" in grounds:
            return frozenset(play | _GROUPS[0] | _HELPING)
        found = [colour(value) for value in inks]
        there = [WHITE, *(_ground(value) for value in grounds)]
        if any(ink is None or any(g is not None and alike(ink, g) for g in there) for ink in found):
            play |= _GROUPS[0]
        return frozenset(play | _HELPING) if play else frozenset()

    def look(self, node: LexborNode, tag: str, around: Look) -> Look:
        """How a node looks inside one that looks so."""
        if around.gone:
            return around
        look = self._look(node, tag, around)
        # Scripts show what a page hides as a whole until it is loaded.
        return replace(look, gone=False, visible=True) if tag in ("html", "body") else look

    def _look(self, node: LexborNode, tag: str, around: Look) -> Look:
        attributes = node.attributes
        declared = self._declared.get(node.mem_id) if self._declared else None
        if not attributes and not declared:
            return around
        if "hidden" in attributes and attributes["hidden"] != "until-found":
            return replace(around, gone=True)
        if "popover" in attributes or (attributes.get("aria-hidden") or "").strip().lower() == "true":
            return replace(around, gone=True)
        look = around
        if self._elsewhere and ("class" in attributes or "id" in attributes) and around.ground is not None:
            look = replace(look, ground=None)
        look = _presented(attributes, tag, look)
        style = attributes.get("style")
        if not style and not declared:
            return look
        values = {name: one.value for name, one in (declared or {}).items()}
        own: Mapping[str, tuple[str, bool]] = _declared(style) if style else {}
        for name, (value, important) in own.items():
            if name in _MEANT and not (declared and name in declared and declared[name].weight[0] and not important):
                values[name] = value
        resolved = {name: self._resolved(value) for name, value in values.items()}
        return _styled(resolved, look)

    def _resolved(self, value: str) -> str:
        """The value with its variables put in."""
        for _ in range(5):
            if "var(" not in value:
                break
            value = _VAR.sub(lambda m: self._variables.get(m[1], (m[2] or "").strip()), value)
        return value.strip().lower()


# Rules ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Set:
    value: str
    weight: tuple[bool, tuple[int, int, int], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    selector: str
    declared: Mapping[str, tuple[str, bool]]


def _rules(css: str) -> Iterator[_Rule]:
    """The rules that hold on a screen, nested ones with the selectors around them."""
    around: list[tuple[str | None, list[str]]] = [("", [])]
    """Selector ('' outside of any, None where nothing holds) and the declarations so far, of each open block."""
    held: list[str] = []
    for token in _TOKEN.findall(_COMMENT.sub("", css)):
        if token == "{":
            prelude = "".join(held).strip()
            held = []
            outer = around[-1][0]
            around.append((_inside(outer, prelude), []))
        elif token == "}":
            around[-1][1].append("".join(held))
            held = []
            selector, declarations = around[-1]
            if len(around) > 1:
                around.pop()
            if selector:
                declared = _declared(";".join(declarations))
                if declared:
                    yield _Rule(selector=selector, declared=declared)
        elif token == ";":
            text = "".join(held)
            held = []
            if not text.lstrip().startswith("@"):
                around[-1][1].append(text)
        else:
            held.append(token)


def _inside(outer: str | None, prelude: str) -> str | None:
    """The selector of a block inside another one; None where what is in it does not hold."""
    if outer is None or len(outer) + len(prelude) > _MOST_SELECTOR:
        return None
    if prelude.startswith("@"):
        name, _, condition = prelude[1:].partition(" ")
        match name.lower():
            case "media":
                return outer if _applies(condition) else None
            case "layer" | "scope":
                return outer
            case "supports":
                return None if condition.strip().lower().startswith("not") else outer
            case _:
                return outer if prelude.lower().startswith("@media(") and _applies(prelude[6:]) else None
    if not outer:
        return prelude
    both = [(one, inner) for one in _split(outer) for inner in _split(prelude)][:_MOST_NESTED]
    return ", ".join(inner.replace("&", one) if "&" in inner else f"{one} {inner}" for one, inner in both)


def _applies(media: str) -> bool:
    """Whether one of the queries of a list holds on the screen."""
    return not media.strip() or any(_holds(query) for query in media.lower().split(","))


def _holds(query: str) -> bool:
    query = query.strip()
    negated = query.startswith("not ")
    query = query.removeprefix("not ").removeprefix("only ").strip()
    kind = re.match(r"[a-z]+", query)
    holds = kind is None or kind[0] in ("screen", "all")
    for feature in re.findall(r"\(([^()]*)\)", query):
        holds = holds and _met(feature)
    return holds != negated


def _met(feature: str) -> bool:
    name, _, value = (part.strip() for part in feature.partition(":"))
    if name in ("prefers-color-scheme", "prefers-reduced-motion", "hover", "pointer", "any-hover", "scripting"):
        return value in ("light", "no-preference", "hover", "fine", "enabled", "")
    match = re.fullmatch(r"(min|max)-(width|height)", name)
    length = _LENGTH.match(value)
    if match is None or length is None:
        return False
    have = _SCREEN[match[2] == "height"]
    wanted = float(length[1]) * (16 if (length[2] or "").endswith("em") else 1)
    return have >= wanted if match[1] == "min" else have <= wanted


def _split(selectors: str) -> list[str]:
    """A list of selectors, at the commas outside of brackets and strings."""
    found: list[str] = []
    depth, last, quoted = 0, 0, ""
    for at, char in enumerate(selectors):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "\"'":
            quoted = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth <= 0:
            found.append(selectors[last:at].strip())
            last = at + 1
    return [*found, selectors[last:].strip()]


def _specificity(selector: str) -> tuple[int, int, int]:
    bare = re.sub(r"\[[^\]]*\]", "[]", selector)
    ids = len(re.findall(r"#[\w-]", bare))
    classes = len(re.findall(r"\.[\w-]|\[\]|(?<!:):(?!not|is|where|:)[\w-]", bare))
    return ids, classes, len(re.findall(r"(?:^|[\s>+~(])[a-zA-Z]", bare))


@lru_cache(maxsize=4096)
def _declared(style: str) -> Mapping[str, tuple[str, bool]]:
    """Property to value and whether it is important, with the last one winning; escapes are read."""
    found: dict[str, tuple[str, bool]] = {}
    for part in _PART.findall(_COMMENT.sub("", style[:_MOST_STYLE])):
        name, colon, value = part.partition(":")
        if not colon:
            continue
        name = _unescaped(name).strip()
        name = name if name.startswith("--") else name.lower()
        if name not in _MEANT and not name.startswith("--"):
            continue
        value = _unescaped(value).strip()
        bare = re.sub(r"\s*!\s*important\s*$", "", value, flags=re.I)
        important = bare != value
        if bare and not (name in found and found[name][1] and not important):
            found[name] = (bare, important)
    return found


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text

    def plain(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[2]
        point = int(match[1], 16)
        return chr(point) if 0 < point < 0x110000 and not 0xD800 <= point < 0xE000 else "\ufffd"

    return _ESCAPE.sub(plain, text)


# What values do -------------------------------------------------------------------------------------------------------


def _suspicious(name: str, value: str) -> bool:
    """Whether a value may hide, whatever else holds of its node."""
    if name == "visibility":
        return value in ("hidden", "collapse")
    if name in ("font-size", "font"):
        size = _font_size(name, value, 16.0)
        return size is not None and size < 8
    if name in _HELPING:
        return False
    alone = _styled({name: value, "overflow": "hidden", "position": "absolute", "backface-visibility": "hidden"}, PLAIN)
    return alone.gone


def _presented(attributes: Mapping[str, str | None], tag: str, look: Look) -> Look:
    """What the attributes of before style sheets do."""
    if tag == "font" and (attributes.get("size") or "").strip() == "0":
        return replace(look, size=0.0)
    given = (
        attributes.get("color") if tag in ("font", "basefont") else attributes.get("text") if tag == "body" else None
    )
    if given:
        look = replace(look, ink=colour(given.strip().lower()))
    if attributes.get("background"):
        look = replace(look, ground=None)
    elif ground := (attributes.get("bgcolor") or "").strip().lower():
        look = replace(look, ground=colour(ground))
    return look


def _styled(values: Mapping[str, str], look: Look) -> Look:
    """A look under declarations."""
    gone = any(_ends(name, value, values, look) for name, value in values.items())
    visible, size = look.visible, look.size
    if "visibility" in values and values["visibility"] not in ("inherit", "unset"):
        visible = values["visibility"] not in ("hidden", "collapse")
    for name in ("font", "font-size"):
        if name in values:
            found = _font_size(name, values[name], look.size)
            size = size if found is None else found
    ink, ground = look.ink, look.ground
    if (shade := values.get("background")) is not None and shade not in ("inherit", "unset"):
        ground = _over(shade, ground)
    if (shade := values.get("background-color")) is not None and shade not in ("inherit", "unset"):
        ground = _over(shade, ground)
    if "url(" in (image := values.get("background-image", "none")) or "gradient(" in image:
        ground = None
    for name in ("color", "-webkit-text-fill-color"):
        value = values.get(name)
        if value and value not in ("inherit", "unset", "initial", "currentcolor", "revert"):
            ink = colour(value)
        elif value == "initial" and name == "color":
            ink = (0, 0, 0)
    if "currentcolor" in (values.get("background"), values.get("background-color")):
        ground = ink
    if ink is None and "text" in (values.get("background-clip", ""), values.get("-webkit-background-clip", "")):
        ink = "its background"
    return Look(gone=gone, visible=visible, size=size, ink=ink, ground=ground)


def _ends(name: str, value: str, values: Mapping[str, str], look: Look) -> bool:
    """Whether a declaration leaves nothing of the node and all that is in it."""
    clipped = any(values.get(o, "").startswith(("hidden", "clip", "auto", "scroll")) for o in _OVERFLOWS)
    match name:
        case "display":
            return value == "none"
        case "content-visibility":
            return value == "hidden"
        case "opacity":
            number = _number(value)
            return number is not None and number <= FAINT
        case "filter":
            found = re.search(r"opacity\(([^)]*)\)", value)
            number = None if found is None else _number(found[1])
            blur = re.search(r"blur\(\s*(\d+\.?\d*)px", value)
            return (number is not None and number <= FAINT) or (blur is not None and float(blur[1]) >= 0.5 * look.size)
        case "zoom":
            number = _number(value)
            return number is not None and number < 0.1
        case "transform" | "scale" | "translate" | "rotate":
            return _moved_away(name, value, values)
        case "clip":
            return value.startswith("rect") and _flat(re.findall(_LENGTH, value))
        case "clip-path" | "-webkit-clip-path":
            return _cut_away(value)
        case "mask" | "mask-image" | "-webkit-mask" | "-webkit-mask-image":
            return "gradient(" in value and _all_clear(value)
        case "left" | "right" | "top" | "bottom" | "inset":
            return values.get("position", "") not in ("static",) and any(map(_far, value.split()))
        case "text-indent":
            length = _pixels(value, look.size, whole=_SCREEN[0])
            return length is not None and (length <= -_AWAY or (length >= _SCREEN[0] and clipped))
        case "margin" | "margin-left" | "margin-top":
            parts = value.split()
            sides = [parts[0], *parts[3:4], *(parts[1:2] if len(parts) in (2, 3) else [])] if parts else []
            lengths = [_pixels(part, look.size, whole=_SCREEN[0]) for part in sides]
            return any(n is not None and (n <= -_AWAY or n >= 3 * _SCREEN[0]) for n in lengths)
        case "height" | "width" | "max-height" | "max-width" | "block-size" | "inline-size" | "max-block-size":
            length = _pixels(value, look.size, whole=_SCREEN[0])
            return length is not None and (length <= 0 or (length <= 2 and clipped))
        case "letter-spacing":
            length = _pixels(value, look.size, whole=look.size)
            return length is not None and length <= -0.5 * look.size
        case "line-height":
            number = _number(value)
            return number is not None and number <= 0.05 and clipped
        case _:
            return False


_OVERFLOWS = ("overflow", "overflow-x", "overflow-y")


def _number(value: str) -> float | None:
    match = re.fullmatch(r"\s*(-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(%|px|pt|em|rem)?\s*", value)
    return None if match is None else float(match[1]) / (100 if match[2] == "%" else 1)


def _pixels(value: str, size: float, *, whole: float) -> float | None:
    """A length in pixels; `whole` is what percents are of. None for what is none."""
    match = _LENGTH.fullmatch(value.strip())
    if match is None:
        inside = re.fullmatch(r"calc\((.*)\)", value.strip())
        parts = [] if inside is None else [m for m in _LENGTH.finditer(inside[1]) if m[2]]
        return _length(parts[0], size, whole) if len(parts) == 1 and "*" not in value else None
    return _length(match, size, whole)


def _length(match: re.Match[str], size: float, whole: float) -> float:
    number, unit = float(match[1]), (match[2] or "px").lower()
    match unit:
        case "em":
            return number * size
        case "%":
            return number / 100 * whole
        case "vw" | "vmax":
            return number / 100 * _SCREEN[0]
        case "vh" | "vmin":
            return number / 100 * _SCREEN[1]
        case _:
            return number * _UNITS[unit]


def _far(value: str, least: float = 100) -> bool:
    """Whether a place is outside of every page; `least` are percents of what is around."""
    match = _LENGTH.fullmatch(value.strip())
    if match is not None and (match[2] or "").lower() in ("%", "vw", "vh", "vmin", "vmax"):
        number = float(match[1])
        return number <= -least or (match[2] != "%" and number >= 100)
    length = _pixels(value, 16.0, whole=_SCREEN[0])
    return length is not None and (length <= -_AWAY or length >= 4 * _SCREEN[0])


def _font_size(name: str, value: str, around: float) -> float | None:
    if name == "font":
        found = re.search(r"(?:^|\s)([\d.]+(?:px|pt|em|rem|%)?)\s*/", value) or re.search(
            r"(?:^|\s)(0|[\d.]+(?:px|pt|em|rem|%))(?=\s|$)", value
        )
        return None if found is None else _font_size("font-size", found[1], around)
    if value in _SIZES:
        return float(_SIZES[value])
    if value in ("smaller", "larger"):
        return around * (0.83 if value == "smaller" else 1.2)
    return _pixels(value, around, whole=around)


def _moved_away(name: str, value: str, values: Mapping[str, str]) -> bool:
    if name == "scale":
        return any(n is not None and abs(n) < 0.05 for n in map(_number, value.split()))
    if name == "translate":
        return any(_far(part, 200) for part in value.split())
    for function, inside in re.findall(r"([a-z0-9]+)\(([^()]*)\)", value):
        parts = [part.strip() for part in inside.split(",")]
        if function.startswith("scale"):
            if any(n is not None and abs(n) < 0.05 for n in map(_number, parts[:2])):
                return True
        elif function.startswith("translate"):
            if any(_far(part, 200) for part in parts[:2]):
                return True
        elif function in ("matrix", "matrix3d"):
            numbers = [_number(part) for part in parts]
            if numbers[:1] == [0.0] or (len(numbers) > 3 and numbers[3] == 0.0 and function == "matrix"):
                return True
        elif function in ("rotatex", "rotatey", "rotate3d"):
            angle = re.match(r"-?(?:\d+\.?\d*|\.\d+)", parts[-1])
            degrees = 0.0 if angle is None or "deg" not in parts[-1] else abs(float(angle[0])) % 360
            if degrees in (90.0, 270.0) or (90 < degrees < 270 and values.get("backface-visibility") == "hidden"):
                return True
    return False


def _flat(lengths: Sequence[tuple[str, str]]) -> bool:
    """Whether top and bottom, or right and left, of a rectangle are (nearly) one."""
    numbers = [float(number) for number, _ in lengths]
    if len(numbers) != 4:
        return False
    top, right, bottom, left = numbers
    return abs(bottom - top) <= 2 or abs(right - left) <= 2


def _cut_away(value: str) -> bool:
    function = re.match(r"([a-z]+)\(([^()]*)", value)
    if function is None:
        return False
    lengths = [(float(number), unit) for number, unit in re.findall(_LENGTH, function[2])]
    match function[1]:
        case "inset":
            sides = [number for number, unit in lengths[:4] if unit == "%"]
            both = sides[0] + sides[min(2, len(sides) - 1)] if sides else 0
            across = sides[min(1, len(sides) - 1)] + sides[-1] if sides else 0
            return both >= 99 or across >= 99
        case "circle" | "ellipse":
            return bool(lengths) and lengths[0][0] <= 1
        case "polygon":
            xs, ys = lengths[::2], lengths[1::2]
            return bool(ys) and (len({n for n, _ in xs}) == 1 or len({n for n, _ in ys}) == 1)
        case "rect" | "xywh":
            return function[1] == "rect" and _flat([(str(n), u) for n, u in lengths[:4]])
        case _:
            return False


def _all_clear(value: str) -> bool:
    """Whether every colour of a gradient is transparent."""
    inside = value[value.index("gradient(") + 9 :]
    colours = re.findall(r"transparent|rgba?\([^()]*\)|hsla?\([^()]*\)|#[0-9a-f]{3,8}\b|\b[a-z]{3,}\b", inside)
    colours = [c for c in colours if c == "transparent" or c.startswith(("rgb", "hsl", "#")) or c in NAMES]
    return bool(colours) and all(colour(one) is None for one in colours)


def _ground(value: str) -> Colour | str | None:
    """The colour in a background; None where there is none, or a picture."""
    if "url(" in value or "gradient(" in value or value in ("none", "initial"):
        return None
    if (whole := colour(value)) is None or not isinstance(whole, str):
        return whole
    for part in re.findall(r"(?:rgb|hsl|hwb)a?\([^()]*\)|#[0-9a-f]{3,8}|[a-z]+", value):
        if part in NAMES or part.startswith("#") or "(" in part:
            return colour(part)
    return whole


def _over(value: str, ground: Colour | str | None) -> Colour | str | None:
    """What a background makes of the one below it."""
    if "url(" in value or "gradient(" in value:
        return None
    found = _ground(value)
    return ground if found is None else found

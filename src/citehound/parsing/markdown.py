"""Markdown (CommonMark and tables): rendered to HTML and read as that; template tags are resolved first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pyromark

from .blocks import Parsed
from .html import parse_fragment

_EXTENSIONS = pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_STRIKETHROUGH
_FENCE = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])?[ \t]*(`{3,}|~{3,})(.*)$")
_COMMENTS = re.compile(
    r"\{%-?\s*comment\s*-?%\}.*?\{%-?\s*endcomment\s*-?%\}|\{#(?![^}\n]*\}\s*$).*?#\}|<%#.*?%>|<%--.*?--%>|\{\{/\*.*?\*/\}\}",
    re.DOTALL,
)
_CODE_OR_TAG = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!`)(?:.|\n(?!\s*\n))+?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<tag><%(?:(?!<%)[^\0]){0,1500}?%>|\{%(?:(?!\{%)[^\0]){0,1500}?%\}|\{\{[<%](?:(?!\{\{)[^\0]){0,1500}?[>%]\}\}|\{\{(?:[^{}\n]|\{[^{}\n]*\})*\}\})"
)
_RAW = re.compile(r"\{%-?\s*raw\s*-?%\}(?P<inside>.*?)\{%-?\s*endraw\s*-?%\}", re.DOTALL)
_SHIELD = str.maketrans("{}", "\ue0f1\ue0f2")
"""What stands between raw tags is shown as it is, so its braces are hidden from the template tags' pattern."""
_UNSHIELD = str.maketrans("\ue0f1\ue0f2", "{}")
_KEYWORDS = frozenset(
    [
        "end",
        "if",
        "else",
        "range",
        "with",
        "template",
        "define",
        "block",
        "include",
        "partial",
        "relref",
        "ref",
    ]
)
_ATTRIBUTES = re.compile(r"[ \t]*\{:?[ \t]*[#.][^}\n]{0,200}\}[ \t]*$|^\{:[^}\n]{0,200}\}[ \t]*$", re.MULTILINE)
_CONTAINER = re.compile(r"^[ \t]*:{3,}[ \t]*(?:\{?[\w-]*\}?)(?P<title>[^\n]*)$", re.MULTILINE)
_ALERT = re.compile(r"^(?P<lead>[ \t]*>[ \t]*)\[!(?P<kind>\w+)\][ \t]*$", re.MULTILINE)
_RAW_TAGS = re.compile(
    r"<(?P<close>/?)(?P<name>title|textarea|style|xmp|iframe|noembed|noframes|script|plaintext|template|noscript|select|"
    r"object|svg|canvas|audio|video|button|dialog)\b",
    re.I,
)
_DATA_URI = re.compile(r"(?:<?)data:[a-z]+/[\w.+-]+;base64,[A-Za-z0-9+/=%\s]{200,}?(?=[)\"'>\s]|$)", re.I)


def parse_markdown(text: str, *, metadata: Mapping[str, str] | None = None) -> Parsed:
    """Blocks of a Markdown text; `metadata` fills template tags that name a key of it."""
    raw = False
    if "endraw" in text:
        text, count = _RAW.subn(lambda match: match["inside"].translate(_SHIELD), text)
        raw = count > 0
    text = _prepare(text, metadata or {})
    parsed = parse_fragment(pyromark.html(text, options=_EXTENSIONS))
    if raw:
        parsed = replace(parsed, blocks=[replace(b, text=b.text.translate(_UNSHIELD)) for b in parsed.blocks])
    return parsed


def _prepare(text: str, metadata: Mapping[str, str]) -> str:
    """Everything outside code fences without template tags, attribute lists and tags that would swallow the rest."""
    if ";base64," in text.lower():
        text = _DATA_URI.sub("#", text)
    parts: list[str] = []
    prose: list[str] = []
    fence: str | None = None

    def flush() -> None:
        if prose:
            parts.append(_prepare_prose("".join(prose), metadata))
            prose.clear()

    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line.rstrip("\n")) if "```" in line or "~~~" in line else None
        if fence is None and match and not (match[1][0] == "`" and "`" in match[2]):
            flush()
            fence = match[1]
            parts.append(line)
        elif fence is not None:
            parts.append(line)
            if match and match[1][0] == fence[0] and len(match[1]) >= len(fence) and not match[2].strip():
                fence = None
        else:
            prose.append(line)
    flush()
    return "".join(parts)


def _prepare_prose(text: str, metadata: Mapping[str, str]) -> str:
    if "{" in text or "<%" in text:
        text = _COMMENTS.sub("", text)
        text = _CODE_OR_TAG.sub(lambda m: m.group() if m["code"] else _tag(m, metadata), text)
        text = _ATTRIBUTES.sub("", text)
    if ":::" in text:
        text = _CONTAINER.sub(lambda m: m["title"].strip(), text)
    if "[!" in text:
        text = _ALERT.sub(lambda m: f"{m['lead']}**{m['kind'].capitalize()}:**", text)
    if "<" not in text:
        return text
    balance = Counter[str]()
    for match in _RAW_TAGS.finditer(text):
        balance[match["name"].lower()] += -1 if match["close"] else 1
    if any(balance.values()):
        text = _RAW_TAGS.sub(lambda m: "\\" + m.group() if balance[m["name"].lower()] else m.group(), text)
    return text


def _tag(match: re.Match[str], metadata: Mapping[str, str]) -> str:
    """What a reader would see in place of a template tag, as far as the file itself says it."""
    tag = match.group()
    inside = re.sub(r"^(?:<%|\{%|\{\{)[-~=<%]*|[-~>%]*(?:%>|%\}|\}\})$", "", tag).strip().rstrip("/").strip()
    if tag.startswith("{{") and not tag.startswith(("{{<", "{{%")) and not _is_expression(inside):
        return tag
    target = re.search(r"(?:\]\(\s*|(?:href|src)=[\"']?)$", match.string[: match.start()])
    strings = [a or b for a, b in re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", inside)]
    if target:
        return re.sub(r"\s", "%20", strings[0]) if strings else "#"
    prose = [s for s in strings if re.search(r"\w\s+\w", s)]
    if prose:
        return " ".join(re.sub(r"\\(.)", r"\1", s) for s in prose)
    key = re.fullmatch(r"[\w$.]*?\.?(\w+)(?:\s*\|.*)?", inside, re.DOTALL)
    if key and metadata.get(key[1]):
        return metadata[key[1]]
    line_start = match.string.rfind("\n", 0, match.start()) + 1
    alone = not match.string[line_start : match.start()].strip(" \t>-*#")
    names = [s for s in strings if s and not re.search(r"[/\\]|\.\w{2,5}$", s)]
    keyword = re.match(r"\w*", inside)
    opens = keyword is not None and bool(keyword.group()) and f"end{keyword.group()}" in match.string
    if names and not alone and not opens and not tag.startswith("<%"):
        return names[0]
    return ""


def _is_expression(inside: str) -> bool:
    """True for the inside of `{{ … }}` that a template engine would take, not for braces in prose."""
    if not inside or inside[0] in "-~#/\"'$.":
        return True
    word = re.match(r"\w+", inside)
    if word and word.group() in _KEYWORDS:
        return True
    return bool(re.fullmatch(r"[\w.\[\]()'\"-]+(?:\s*\|.*)?", inside, re.DOTALL))

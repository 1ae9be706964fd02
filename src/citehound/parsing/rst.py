"""reStructuredText through docutils' parser, without its transforms; what only Sphinx knows degrades to its text."""

from __future__ import annotations

import re
import warnings as python_warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Directive, Parser, directives, roles, states

from .blocks import Block, BlockKind, Parsed, fold

_SILENT = frozenset(
    [
        "toctree",
        "index",
        "currentmodule",
        "py:currentmodule",
        "highlight",
        "default-role",
        "meta",
        "tabularcolumns",
        "contents",
        "sectnum",
        "title",
        "highlightlang",
        "program",
        "role",
        "include",
        "literalinclude",
        "raw",
        "image-map",
        "class",
        "cssclass",
        "rst-class",
    ]
)
"""Directives of which a reader sees nothing, or nothing that this file says."""
_SWITCHES = frozenset(["only", "ifconfig", "tab-set", "grid", "hlist", "cssclass", "container", "tabs"])
"""Directives whose argument is not shown."""
_CODE = frozenset(
    [
        "code",
        "code-block",
        "sourcecode",
        "highlight-block",
        "prompt",
        "doctest",
        "testcode",
        "testoutput",
        "parsed-literal",
        "math",
    ]
)
_WITHIN = frozenset(
    [
        "attention",
        "caution",
        "danger",
        "error",
        "hint",
        "important",
        "note",
        "tip",
        "warning",
        "admonition",
        "topic",
        "sidebar",
        "line-block",
        "epigraph",
        "highlights",
        "pull-quote",
        "compound",
        "container",
        "table",
        "csv-table",
        "list-table",
        "header",
        "footer",
        "replace",
        "unicode",
        "date",
        "image",
        "figure",
        "rubric",
    ]
)
"""Directives that docutils renders and that we let it render."""
_HIDDEN_NODES = (nodes.comment, nodes.substitution_definition, nodes.pending, nodes.raw, nodes.target, nodes.meta)


class _AnyOption(dict[str, Callable[[str | None], str]]):
    """Every option is fine and stays text."""

    def __missing__(self, key: str) -> Callable[[str | None], str]:
        return lambda value: value or ""


class _Unknown(Directive):
    """A directive that docutils doesn't know, or knows too strictly: its argument and its content, as text."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = _AnyOption(any=str)  # pyright: ignore[reportAssignmentType]
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.name.lower()
        argument = fold(self.arguments[0]) if self.arguments else ""
        if name in _SILENT:
            return []
        if name in _CODE:
            text = "\n".join(self.content)
            if not text.strip() and argument and name == "math":
                text = argument
            return [nodes.literal_block(text, text)]
        out: list[nodes.Node] = []
        caption = fold(str(cast("dict[str, str]", self.options).get("caption", "")))
        lead = "" if name in _SWITCHES else _lead(name, argument)
        for text in (lead, caption):
            if text:
                inline, _ = self.state.inline_text(text, self.lineno)
                out.append(nodes.paragraph(text, "", *inline))
        holder = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, holder, match_titles=True)
        return [*out, *holder.children]


def _lead(name: str, argument: str) -> str:
    """What Sphinx would print for the head of a directive, as near as the name allows."""
    match = re.fullmatch(r"version(added|changed|removed)|(deprecated|deprecated-removed)", name)
    if match:
        return f"{(match[1] or 'deprecated').capitalize()} in version {argument}"
    if name in ("seealso", "todo", "warning", "note", "tip"):
        return f"{'See also' if name == 'seealso' else name.capitalize()}: {argument}".rstrip()
    return argument


def _inliner() -> states.Inliner:
    """docutils' inliner, to which interpreted text of a role that it doesn't know is the text in it.

    Not a subclass: `init_customizations` looks into the class's own namespace.
    """
    inliner = states.Inliner()
    strict: Any = inliner.interpreted

    def interpreted(rawsource: str, text: str, role: str, lineno: int) -> Any:
        function: Any = None
        if role and _plain_role(role):
            this = cast("Any", inliner)
            function, _ = roles.role(role, this.language, lineno, this.reporter)
        if function is not None:
            return strict(rawsource, text, role, lineno)
        return [nodes.inline(rawsource, _role_text(utils.unescape(text), role or ""))], []

    inliner.interpreted = interpreted
    return inliner


def _plain_role(role: str) -> bool:
    return role.lower() not in ("raw", "code", "math", "rfc-reference", "pep-reference", "pep", "rfc")


def _role_text(text: str, role: str) -> str:
    """'title <target>' is its title, '~a.b.c' is 'c'."""
    match = re.fullmatch(r"(.+?)\s*<[^<>]*>", text, re.DOTALL)
    if match:
        return match[1]
    if role.lower() in ("pep", "rfc", "pep-reference", "rfc-reference"):
        return f"{role[:3].upper()} {text}"
    if text.startswith("~"):
        return text[1:].rsplit(".", 1)[-1]
    text = text.removeprefix("!")
    if role.lower() in ("doc", "ref", "download"):
        return text.removeprefix("/")
    return text


class _Lenient:
    """Mixed into docutils' states: known directives run as they are, all others as `_Unknown`."""

    def __init__(self, state_machine: Any, debug: bool = False) -> None:
        super().__init__(state_machine, debug)  # pyright: ignore[reportCallIssue]
        self.nested_sm_kwargs = {"state_classes": _STATES, "initial_state": "Body"}

    def directive(self, match: re.Match[str], **option_presets: Any) -> Any:  # docutils hands presets over this way
        this = cast("Any", self)
        name = match.group(1)
        known: Any = None
        if name.lower() in _WITHIN:
            known, _ = directives.directive(name, this.memo.language, this.document)
        if known is not None:
            spec = _AnyOption(known.option_spec or {"any": str})
            known = type(known.__name__, (known,), {"option_spec": spec})
        return this.run_directive(known or _Unknown, match, name, option_presets)


def _explicit() -> Any:
    """Body's table of explicit markup, with our `directive` in place of its own."""
    body = cast("Any", states.Body).explicit
    original = cast("Any", states.Body).directive
    constructs = [(_Lenient.directive if method is original else method, p) for method, p in body.constructs]
    return type(body)(patterns=body.patterns, constructs=constructs)


_STATES = tuple(type(c.__name__, (_Lenient, c), {"explicit": _explicit()}) for c in states.state_classes)


def parse_rst(text: str) -> Parsed:
    """Blocks of a reStructuredText."""
    with python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")
        settings = frontend.get_default_settings(cast("Any", Parser))
        settings.report_level = 5
        settings.halt_level = 5
        settings.warning_stream = False
        settings.file_insertion_enabled = False
        settings.raw_enabled = False
        settings.syntax_highlight = "none"
        settings.line_length_limit = 10_000_000
        settings.input_encoding = "utf-8"
        document = utils.new_document("text", settings)
        parser = Parser(inliner=_inliner())
        parser.state_classes = _STATES
        parser.parse(text, document)
    writer = _Writer(document)
    writer.block(document, level=0)
    return Parsed(blocks=writer.blocks)


class _Writer:
    """Walks the tree and writes blocks."""

    def __init__(self, document: nodes.document) -> None:
        self.blocks: list[Block] = []
        self.substitutions = {name.lower(): node for name, node in document.substitution_defs.items()}
        self.depth = 0
        self.marker: str | None = None
        self.tight = False
        self.quote = 0
        self.footnote = 0

    def add(self, text: str, *, kind: BlockKind = "paragraph", level: int = 0) -> None:
        if not text.strip():
            return
        tight = False
        if self.depth and kind != "heading":
            indent = "  " * (self.depth - 1)
            marker, self.marker = self.marker, None
            hanging = indent + " " * (len(marker) + 1 if marker else 2)
            text = (f"{indent}{marker} " if marker else hanging) + text.replace("\n", "\n" + hanging)
            tight, self.tight = self.tight, True
            kind = "item" if kind == "paragraph" else kind
        elif kind == "paragraph" and self.quote:
            kind = "quote"
        self.blocks.append(Block(text=text, kind=kind, level=level, tight=tight))

    def children(self, node: nodes.Element, *, level: int) -> None:
        for child in node.children:
            self.block(child, level=level)

    def block(self, node: nodes.Node, *, level: int) -> None:
        match node:
            case nodes.section():
                self.children(node, level=level + 1)
            case nodes.title():
                inside = isinstance(node.parent, nodes.section)
                self.add(fold(self.inline(node)), kind="heading" if inside else "paragraph", level=max(1, level))
            case nodes.subtitle() | nodes.rubric():
                self.add(fold(self.inline(node)))
            case nodes.system_message():
                self.message(node)
            case nodes.literal_block() | nodes.doctest_block() | nodes.math_block():
                self.add(node.astext().strip("\n"), kind="code")
            case nodes.line_block():
                self.add("\n".join(self.lines(node, 0)))
            case nodes.bullet_list():
                self.listing(node, lambda index: "-")
            case nodes.enumerated_list():
                self.listing(node, lambda index: _ordinal(node, index))
            case nodes.definition_list_item() | nodes.option_list_item():
                self.children(node, level=level)
            case nodes.term():
                self.add(fold(self.inline(node)))
            case nodes.definition() | nodes.description():
                self.quote += 1
                self.children(node, level=level)
                self.quote -= 1
            case nodes.option_group():
                self.add(", ".join(child.astext() for child in node.children))
            case nodes.field():
                name, body = node.children
                inner = self.inside(cast("nodes.Element", body))
                self.add(f"{name.astext()}: {fold(inner)}".rstrip(": "))
            case nodes.table():
                self.table(node)
            case nodes.block_quote():
                self.quote += 1
                self.children(node, level=level)
                self.quote -= 1
            case nodes.footnote() | nodes.citation():
                label = next((c.astext() for c in node.children if isinstance(c, nodes.label)), "")
                if not label:
                    self.footnote += 1
                    label = str(self.footnote)
                rest = [c for c in node.children if not isinstance(c, nodes.label)]
                body = fold(" ".join(self.inline(c) for c in rest))
                self.add(f"[{label}] {body}")
            case nodes.image():
                self.add(fold(str(node.get("alt", ""))))
            case nodes.Element() if isinstance(node, nodes.Admonition) and not isinstance(node, nodes.admonition):
                self.admonition(node, level=level)
            case _ if isinstance(node, _HIDDEN_NODES):
                return
            case nodes.paragraph() | nodes.caption() | nodes.attribution():
                self.add(fold(self.inline(node)))
            case nodes.Text():
                self.add(fold(self.inline(node)))
            case nodes.Element() if isinstance(node, nodes.Inline):
                self.add(fold(self.inline(node)))
            case nodes.Element():
                self.children(node, level=level)
            case _:
                return

    def admonition(self, node: nodes.Element, *, level: int) -> None:
        """'Note: …' with the name and the first paragraph on one line."""
        name = node.tagname.capitalize()
        rest = list(node.children)
        if rest and isinstance(rest[0], nodes.paragraph):
            self.add(f"{name}: {fold(self.inline(rest[0]))}")
            rest = rest[1:]
        else:
            self.add(f"{name}:")
        for child in rest:
            self.block(child, level=level)

    def message(self, node: nodes.system_message) -> None:
        """A directive that failed shows its source without the directive's own lines; other messages show nothing."""
        for child in node.children:
            if isinstance(child, nodes.literal_block):
                lines = re.sub(r"^\s*\.\. (?:\|[^|\n]+\| )?[\w:.+-]+::", "", child.astext()).split("\n")
                kept = [line.strip() for line in lines if not re.match(r"\s*:[\w-]+:", line)]
                self.add("\n".join(line for line in kept if line), kind="quote")

    def inline(self, node: nodes.Node) -> str:
        if isinstance(node, nodes.Text):
            return node.astext()
        if isinstance(node, nodes.substitution_reference):
            name = str(node.get("refname", node.astext())).lower()
            definition = self.substitutions.get(name)
            return self.inline_children(definition) if definition is not None else node.astext()
        if isinstance(node, nodes.footnote_reference | nodes.citation_reference):
            return f"[{node.astext() or '#'}]"
        if isinstance(node, nodes.image):
            return str(node.get("alt", ""))
        if isinstance(node, nodes.problematic):
            return re.sub(r"^[`*|]+|[`*|_]+$", "", node.astext())
        if isinstance(node, nodes.system_message | nodes.comment | nodes.raw):
            return ""
        if isinstance(node, nodes.superscript):
            return "^" + node.astext()
        return self.inline_children(node)

    def inline_children(self, node: nodes.Node) -> str:
        return "".join(self.inline(child) for child in node.children)

    def inside(self, node: nodes.Element) -> str:
        """All text below a node on its own, as one string."""
        inner = _Writer.__new__(_Writer)
        inner.blocks, inner.substitutions = [], self.substitutions
        inner.depth, inner.marker, inner.tight, inner.quote, inner.footnote = 0, None, False, 0, 0
        inner.children(node, level=0)
        return " ".join(block.text for block in inner.blocks)

    def lines(self, node: nodes.Element, depth: int) -> list[str]:
        out: list[str] = []
        for child in node.children:
            if isinstance(child, nodes.line_block):
                out.extend(self.lines(child, depth + 1))
            else:
                out.append("  " * depth + fold(self.inline(child)))
        return out

    def listing(self, node: nodes.Element, mark: Callable[[int], str]) -> None:
        if not self.depth:
            self.tight = False
        self.depth += 1
        for index, item in enumerate(node.children):
            self.marker = mark(index)
            self.block(item, level=0)
        self.marker = None
        self.depth -= 1

    def table(self, node: nodes.table) -> None:
        rows: list[str] = []
        for child in node.children:
            if isinstance(child, nodes.title):
                self.add(fold(self.inline(child)))
        hanging: dict[int, tuple[int, str]] = {}
        for row in node.findall(nodes.row):
            cells: list[str] = []
            for entry in cast("Sequence[nodes.Element]", row.children):
                while len(cells) in hanging:
                    _take(hanging, cells)
                text = fold(self.inside(entry)).replace(" | ", " / ")
                start = len(cells)
                for at in range(start, start + 1 + int(entry.get("morecols", 0))):
                    cells.append(text)
                    if int(entry.get("morerows", 0)):
                        hanging[at] = (-int(entry.get("morerows", 0)), text)
            while len(cells) in hanging and hanging[len(cells)][0] > 0:
                _take(hanging, cells)
            hanging = {at: (abs(left), text) for at, (left, text) in hanging.items()}
            rows.append(" | ".join(cells).rstrip())
        self.add("\n".join(row for row in rows if row.strip(" |")), kind="table")


def _take(hanging: dict[int, tuple[int, str]], cells: list[str]) -> None:
    """The cell that reaches down into this column."""
    at = len(cells)
    left, text = hanging.pop(at)
    cells.append(text)
    if left > 1:
        hanging[at] = (-(left - 1), text)


def _ordinal(node: nodes.Element, index: int) -> str:
    number = int(node.get("start", 1)) + index
    style = str(node.get("enumtype", "arabic"))
    if style.endswith("alpha"):
        sign = chr(97 + (number - 1) % 26)
    elif style.endswith("roman"):
        sign = ""
        rest = number
        for value, letters in (
            (100, "c"),
            (90, "xc"),
            (50, "l"),
            (40, "xl"),
            (10, "x"),
            (9, "ix"),
            (5, "v"),
            (4, "iv"),
            (1, "i"),
        ):
            while rest >= value:
                sign += letters
                rest -= value
    else:
        sign = str(number)
    sign = sign.upper() if style.startswith("upper") else sign
    return f"{node.get('prefix', '')}{sign}{node.get('suffix', '.')}"

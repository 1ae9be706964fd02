"""A page of a site made ready for its source: the part that is its own, as HTML, and where it links to; fetches none.

Runs in the worker process like every parser. What stands on every page of a site (menus, banners, side bars, footers)
goes out here, by the meaning of tags and roles, by the names that sites give such parts, and by how much of a list is
links; the headings stay, so the section tree is what `html` makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from selectolax.lexbor import LexborHTMLParser, LexborNode

from ..documents import Attachment, Document, RawDocument
from ..errors import ParseError
from .encoding import decode, looks_binary
from .html import refuse_depth

LINKS = "links"
"""Name of the attachment that lists the links, one a line, as they stand in the page."""
_MOST_LINKS = 5000
_GONE = (
    "script, style, template, nav, search, [role=navigation], [role=banner], [role=contentinfo], [role=search], "
    "[role=menu], [role=menubar], [role=toolbar], [role=alertdialog], [role=dialog]"
)
_NAMED = re.compile(
    r"(?:^|[-_\s])(?:nav|navbar|navheader|navfooter|navigation|docnav|navlinks?|menu|topbar|top-?bar|sidebar|side-?nav|"
    r"sphinxsidebar|breadcrumbs?|crumbs?|cookies?|cookie-?(?:banner|consent|notice)|consent|gdpr|pagination|pager|"
    r"prev-?next|footer|site-?(?:header|footer)|masthead|skip-?(?:link|to-content|nav)|headerlink|permalink|"
    r"edit-?(?:this-?)?page|share|sharing|social|related|newsletter|subscribe|advert(?:isement)?s?|promo|banner|"
    r"toc|table-of-contents|page-?toc|localtoc|feedback|rating|back-?to-?top|announcement)(?:$|[-_\s])",
    re.I,
)
_SURELY = re.compile(r"(?:^|[-_\s])(?:nav\w*|cookies?|consent|gdpr|newsletter|(?:site-?)?footer)(?:$|[-_\s])", re.I)
_PROSE = 0.5
"""Share of a part's text in paragraphs of some length, from which it is text whatever it is called: a box, an aside."""
_BLOCKS = frozenset({"p", "div", "section", "ul", "ol", "dl", "table", "blockquote", "form", "nav"})
_OWN = frozenset({"main", "article"})
_NEVER = frozenset({"html", "body", "main", "article", "pre", "code", "td", "th", "h1", "h2", "h3", "h4", "h5", "h6"})
"""Tags of which a class says how they look, not what they are."""
_SHARE = 0.5
"""A part that goes by its name alone is at most this much of the page's text."""
_DENSE = 0.8
"""Share of a list's text that are links, from which it is a menu."""


def read_page(raw: RawDocument, *, language: str | None = None) -> Document:
    """The page with `text` = its own HTML and an attachment `LINKS`; `metadata` has canonical and robots as stated.

    Raises ParseError for a page that is nested too deeply, or is none.
    """
    if looks_binary(raw.data):
        raise ParseError("binary data, not text")
    text = decode(raw.data, html=True).text
    refuse_depth(text)
    tree = LexborHTMLParser(text)
    metadata = _stated(tree)
    links = _links(tree)
    body = tree.body
    sheets = "".join(sheet.html or "" for sheet in tree.css("body style"))
    if body is not None:
        _clean(body)
    return Document(
        id=raw.id,
        source=raw.source,
        path=raw.path,
        title="",
        text=(tree.html or "").replace("</head>", f"{sheets}</head>", 1),  # they say what cannot be seen
        metadata=metadata,
        attachments=(Attachment(name=LINKS, data="\n".join(links).encode("utf-8", "replace")),),
    )


def _stated(tree: LexborHTMLParser) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.css("meta[name]"):
        if (node.attributes.get("name") or "").strip().lower() in ("robots", "citehound"):
            content = (node.attributes.get("content") or "").lower()
            found["robots"] = ",".join(filter(None, (found.get("robots", ""), content)))[:300]
    for node in tree.css("link[rel]"):
        words = (node.attributes.get("rel") or "").lower().split()
        href = (node.attributes.get("href") or "").strip()
        if "canonical" in words and href:
            found.setdefault("canonical", href[:2000])
    base = tree.css_first("base[href]")
    if base is not None:
        found["base"] = (base.attributes.get("href") or "").strip()[:2000]
    return found


def _links(tree: LexborHTMLParser) -> list[str]:
    """In the order of the page, each once, without those that ask not to be followed."""
    found: dict[str, None] = {}
    for node in tree.css("a[href], area[href], frame[src], link[rel=next][href]"):
        if "nofollow" in (node.attributes.get("rel") or "").lower().split():
            continue
        href = (node.attributes.get("href") or node.attributes.get("src") or "").strip()
        if href and not href.startswith("#"):
            found["".join(href.split("\n"))[:2000]] = None
        if len(found) >= _MOST_LINKS:
            break
    for node in tree.css("meta[http-equiv][content]"):
        if (node.attributes.get("http-equiv") or "").lower() == "refresh":
            match = re.search(r"url\s*=\s*['\"]?([^'\"\s]+)", node.attributes.get("content") or "", re.I)
            if match:
                found[match[1][:2000]] = None
    return [link for link in found if "\r" not in link]


def _clean(body: LexborNode) -> None:
    _remove(body.css(_GONE))
    whole = _size(body)
    one_title = len(body.css("h1")) == 1
    most = whole if any(_size(node) for node in body.css("main, [role=main], article")) else _SHARE * whole
    doomed: list[LexborNode] = []
    for node in body.css("header, footer, aside, [role=complementary]"):
        if _inside_own(node) or _size(node) > most or node.css_first("main, article") is not None:
            continue
        if one_title and node.css_first("h1") is not None:
            doomed += node.css("ul, ol, form, p")
        else:
            doomed.append(node)
    _remove(doomed)
    doomed = []
    for node in body.css("[class], [id]"):
        if node.tag in _NEVER:
            continue
        names = f"{node.attributes.get('class') or ''} {node.attributes.get('id') or ''}"
        if not _NAMED.search(names) or node.css_first("h1, main, article") is not None:
            continue
        size = _size(node)
        if size <= _SHARE * whole and (_SURELY.search(names) or _prose(node) < _PROSE * size):
            doomed.append(node)
    _remove(doomed)
    left = _size(body)
    doomed = []
    for node in body.css("ul, ol, table"):
        links = node.css("a[href]")
        if len(links) < 5 or _inside_own(node):
            continue
        size = _size(node)
        if 0 < size <= _SHARE * left and sum(_size(link) for link in links) >= _DENSE * size:
            doomed.append(node)
    _remove(doomed)


def _remove(nodes: Sequence[LexborNode]) -> None:
    """Takes nodes out, the outermost of them only: what is inside is gone with it and must not be touched again."""
    doomed = {node.mem_id for node in nodes}
    outermost: dict[int, LexborNode] = {}
    for node in nodes:
        at = node.parent
        while at is not None and at.mem_id not in doomed:
            at = at.parent
        if at is None:
            outermost[node.mem_id] = node
    for node in outermost.values():
        node.decompose()


def _prose(node: LexborNode) -> int:
    """Characters of it in code, and in paragraphs of whatever tag that are a sentence or more and not links."""
    found = 0
    for block in node.css("p, pre, div, dd, blockquote, section"):
        if block.tag not in ("p", "pre") and any(child.tag in _BLOCKS for child in block.iter()):
            continue
        size = _size(block)
        if block.tag == "pre" or (size > 60 and sum(_size(link) for link in block.css("a[href]")) < size / 2):
            found += size
    return found


def _inside_own(node: LexborNode) -> bool:
    at = node.parent
    while at is not None and at.tag not in (None, "-document", "body"):
        if at.tag in _OWN or (at.attributes.get("role") or "") == "main":
            return True
        at = at.parent
    return False


def _size(node: LexborNode) -> int:
    """Characters of its text that are no white space."""
    return len("".join(node.text(deep=True).split()))

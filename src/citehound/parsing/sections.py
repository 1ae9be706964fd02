"""The section tree of a text made of blocks: headings, and numbered paragraphs that are sections; reads no format."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..documents import Section
from .blocks import Placed, fold

_DIVISIONS = (
    "annex|appendix|schedule|exhibit|attachment|addendum|part|chapter|title|book|"
    "anhang|anlage|teil|kapitel|anexo|apêndice|parte|capítulo|título|annexe|partie|chapitre|titre|allegato|capitolo|"
    "bijlage|hoofdstuk|deel|bilaga|vedlegg|bilag|załącznik|rozdział|приложение|глава"
)
_ARTICLES = (
    "article|section|clause|paragraph|sec\\.|art\\.|artikel|abschnitt|klausel|artículo|artigo|cláusula|sección|secção|"
    "seção|articolo|sezione|paragraphe|artykuł|статья|раздел"
)
_ROMAN = r"[ivxlcdm]{1,7}"
_DIVISION = re.compile(
    rf"(?P<word>{_DIVISIONS})\s+(?P<id>\d{{1,3}}(?:\.\d{{1,3}})*[a-z]?|{_ROMAN}|[a-z])\b(?!['’])", re.I
)
_ARTICLE = re.compile(
    rf"(?:(?:{_ARTICLES})\s+|§+\s*)(?P<id>\d{{1,4}}(?:\.\d{{1,3}})*[a-z]?(?:\([a-z0-9]{{1,4}}\))*|{_ROMAN})(?=[\s.:,)\-–—]|$)",
    re.I,
)
_CJK = re.compile(r"第\s*(?P<id>[0-9０-９]+|[〇零一二三四五六七八九十百千]+)\s*(?P<word>[条條章节節編编部款])")
_NUMBER = re.compile(
    r"(?P<id>\d{1,4}(?:[.٫]\d{1,4})*(?:-\d{1,5})*[a-z]?(?:\([a-z0-9]{1,5}\))*)(?P<stop>[.)]?:?)(?=\s|[\u3000-\u9fff]|$)"
)
_DOTTED = re.compile(r"(?P<id>\d{1,3}(?:[.٫]\d{1,3}){1,5})(?P<stop>[.)]?)[ \t\u00a0\u3000]+(?=\S)")
_DATE = re.compile(
    r"(?:\d{4}[-./]\d{1,2}(?:[-./]\d{1,2})?|\d{1,2}[./-]\d{1,2}[./-](?:\d{4}|\d{2}))(?!\d)|"
    r"\d{1,2}(?:\.|st|nd|rd|th)?\s+(?:jan|feb|mar|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-zäéû]*\b",
    re.I,
)
_UNIT = re.compile(
    r"%|‰|°|[€$£¥₹]|(?:EUR|USD|GBP|CHF|JPY|CNY|BRL|INR|[KMGTkmgt]i?[Bb](?:it|yte|ps)?s?|[kMG]?Hz|k?Wh?|[ck]?m|mm|kg|mg|"
    r"percent|per cent|million|billion|trillion|thousand|mio|mrd|hours?|hrs?|days?|weeks?|"
    r"months?|years?|minutes?|"
    r"mins?|seconds?|secs?|times|points?|stars?|am|pm|a\.m\.|p\.m\.|uhr|prozent|"
    r"por ciento|por cento|millones|milhões)(?!\w)"
)
"""What makes a number a quantity. Capitalised words are not in it: '7.3 Minutes of meetings' is a caption."""
_BLANKS = re.compile("[ \t\u00a0\u3000]+")
_SENTENCE_END = re.compile(r"[.;:!?。；！？][\"”’»)\]]*\s+|[。；！？]|\n")
_ARABIC_DIGITS = str.maketrans("٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹０１２３４５６７８９٫", "012345678901234567890123456789.")


@dataclass(frozen=True, kw_only=True)
class Label:
    """What the beginning of a heading says about its place."""

    id: str
    number: str | None
    title: str
    rank: int
    """Level in a text without marked headings."""
    division: bool = False
    """An annex, schedule or part, inside which numbers start again."""


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """A section before it has an end, a parent and a unique id."""

    start: int
    id: str
    number: str | None
    title: str
    declared: int
    paragraph: bool = False
    division: bool = False
    article: bool = False
    """A paragraph that says 'Section 13.5' itself."""


def label(heading: str) -> Label:
    """The id, number and title of a heading: '7.2 Encryption' has '7.2', 'Annex III: Security' has 'annex-iii'."""
    text = fold(heading)
    plain = text.translate(_ARABIC_DIGITS)
    if match := _DIVISION.match(plain):
        return Label(id=slug(match.group()), number=None, title=text, rank=1, division=True)
    if (match := _ARTICLE.match(plain)) and (number := _decimal(match["id"])):
        return Label(id=number, number=number, title=text, rank=2 + number.count("."))
    if match := _CJK.match(plain):
        number = _decimal(match["id"]) or match["id"]
        if match["word"] in "条條款":
            return Label(id=number, number=number, title=text, rank=2)
        return Label(id=slug(match.group()), number=None, title=text, rank=1, division=True)
    if (match := _NUMBER.match(plain)) and not _DATE.match(plain):
        rest = text[match.end() :].strip(" -–—:")
        number = match["id"]
        dotted = "." in number
        plausible = (
            rest and not _UNIT.match(rest) and (dotted or (len(number) < 4 and (match["stop"] or _starts(rest))))
        )
        if plausible or (not rest and dotted):
            title = rest if any(c.isalpha() for c in rest) else text
            return Label(id=number, number=number, title=title, rank=2 + number.count("."))
    return Label(id=slug(text), number=None, title=text, rank=2)


def is_legal_heading(line: str) -> bool:
    """True for a line that says of itself that it is a heading: 'ARTICLE 5', 'Schedule E - Fees', '第七条 …'."""
    text = fold(line)
    if not text or len(text) > 100:
        return False
    plain = text.translate(_ARABIC_DIGITS)
    match = _DIVISION.match(plain) or _ARTICLE.match(plain) or _CJK.match(plain)
    if match is None:
        return False
    rest = text[match.end() :]
    if match.re is _CJK:
        return (not rest or rest[0] in " \u3000：:") and not re.search(r"[。；，]", rest)
    bare = rest.strip(" .:-–—\t")
    if not bare:
        return True
    word = text[: match.end()]
    capital = word[0].isupper() or word[0] == "§"
    ends = bool(re.search(r"[;,]$|\w{3,}\.$", text)) and not text.isupper()
    runs_on = rest[0] in " " and bare[0].islower()
    return capital and not ends and not runs_on and not rest.startswith(("(", ",")) and len(text.split()) <= 14


def slug(text: str) -> str:
    """Lower case words joined by '-', in any script; 'section' when nothing is left."""
    folded = unicodedata.normalize("NFC", text).casefold().replace("’", "").replace("'", "")
    words = re.sub(r"[^\w.+]+", "-", folded, flags=re.UNICODE)
    words = re.sub(r"(?<!\d)\.|\.(?!\d)", "-", words)
    return re.sub(r"-{2,}", "-", words).strip("-_.")[:80].rstrip("-") or "section"


def find_sections(text: str, placed: Sequence[Placed]) -> tuple[Section, ...]:
    """Sections in order of start, parents before children, ids unique, `text[start:end]` with all below it."""
    return _tree(_marks(placed), len(text))


def _marks(placed: Sequence[Placed]) -> list[_Mark]:
    numbered = [_numbered(item.block.text) if item.block.kind == "paragraph" else [] for item in placed]
    siblings = {number for places in numbered for number, _, _ in places}
    articles = {
        found.number for item in placed if item.block.kind == "paragraph" and (found := _article(item.block.text))
    }
    marks: list[_Mark] = []
    base = 0
    numbers: list[tuple[int, str | None, bool]] = []  # of the headings that are open here: level, number, division
    for item, places in zip(placed, numbered, strict=True):
        block = item.block
        if block.kind == "heading":
            found = label(block.text)
            base = block.level
            while numbers and numbers[-1][0] >= base:
                numbers.pop()
            numbers.append((base, found.number, found.division))
            marks.append(
                _Mark(
                    start=item.start,
                    id=found.id,
                    number=found.number,
                    title=found.title,
                    declared=base,
                    division=found.division,
                )
            )
        elif block.kind == "paragraph":
            if found := _run_in(block.text, articles):
                while numbers and numbers[-1][0] > 100:
                    numbers.pop()
                numbers.append((base + 101, found.number, False))
                marks.append(
                    _Mark(
                        start=item.start,
                        id=found.id,
                        number=found.number,
                        title=_sentence_title(block.text),
                        declared=base + 100,
                        paragraph=True,
                        article=True,
                    )
                )
                continue
            enclosing = _enclosing_number(numbers)
            previous: str | None = None
            for number, at, title in places:
                if previous is None:
                    if not _is_section(number, enclosing=enclosing, siblings=siblings, text=block.text[at : at + 300]):
                        break
                elif not _follows(previous, number):
                    continue
                previous = number
                marks.append(
                    _Mark(
                        start=item.start + at,
                        id=number,
                        number=number,
                        title=title,
                        declared=base + 100 + number.count("."),
                        paragraph=True,
                    )
                )
    return marks


def _article(text: str) -> Label | None:
    """The label of a paragraph that begins as an article does: 'Section 13.5 Confidentiality. Each …', '第七条 …'."""
    head = text[:200].translate(_ARABIC_DIGITS)
    match = _ARTICLE.match(head) or _CJK.match(head)
    if match is None:
        return None
    rest = head[match.end() :]
    if match.re is _CJK:
        starts = rest[:1] in (" ", "\u3000", "\t", "\n", "：", ":")
    else:
        starts = match.group()[0] in "§" or match.group()[0].isupper()
        starts = starts and _starts(rest.lstrip(" .:-–—\t\u00a0"))
    found = label(match.group())
    return found if starts and found.number else None


def _run_in(text: str, articles: Collection[str | None]) -> Label | None:
    """The label of an article whose text follows on the same line; one that stands alone needs a caption."""
    found = _article(text)
    if found is None or found.number is None:
        return None
    if _CJK.match(text):
        return found
    before, _, last = found.number.rpartition(".")
    if last.isdigit() and any(f"{before}.{int(last) + step}".lstrip(".") in articles for step in (-1, 1)):
        return found
    caption = r"[^.:;,]{1,60}[.:]\s*[.:\-–—]*\s*[^.:;,]{3,60}[.:]\s+\S|[^.:;,]{3,60}\.\s*[–—-]\s*\S"
    dotted = re.match(r"\D+\d+(?:\.\d+)*\.?\s+(?P<caption>[^.:;,]{3,60})[.:]\s+\S", text)
    if dotted and len(dotted["caption"].split()) <= 6:
        return found
    return found if re.match(caption, text) else None


def _enclosing_number(numbers: Sequence[tuple[int, str | None, bool]]) -> str | None:
    """The number of the nearest numbered heading, as long as no annex or schedule stands between."""
    for _, number, division in reversed(numbers):
        if number is not None:
            return number
        if division:
            return None
    return None


def _numbered(text: str) -> list[tuple[str, int, str]]:
    """Places in a paragraph that look like the start of a numbered paragraph: (number, offset, title)."""
    plain = text if text.isascii() else text.translate(_ARABIC_DIGITS)
    if _DOTTED.search(plain) is None:
        return []
    starts = [0, *(m.end() for m in _SENTENCE_END.finditer(plain))]
    found: list[tuple[str, int, str]] = []
    seen: set[int] = set()
    for start in starts:
        if blanks := _BLANKS.match(plain, start):
            start = blanks.end()
        if start in seen:
            continue
        seen.add(start)
        match = _DOTTED.match(plain, start)
        if match is None or _DATE.match(plain, start):
            continue
        rest = plain[match.end() : match.end() + 200]
        if _UNIT.match(rest) or rest[0].isdigit() or rest[0] in "-–—=<>+*/|,;":
            continue
        found.append((match["id"], start, _sentence_title(text[match.end() : match.end() + 400])))
    return found


def _is_section(number: str, *, enclosing: str | None, siblings: set[str], text: str) -> bool:
    """Whether a paragraph that begins with `number` is a section of its own."""
    parts = number.split(".")
    if any(len(part) > 1 and part.startswith("0") for part in parts[:1]) or all(int(p) == 0 for p in parts):
        return False
    if enclosing is not None and re.fullmatch(r"\d+(\.\d+)*", enclosing):
        return number.startswith(enclosing + ".")
    rest = _DOTTED.sub("", text.translate(_ARABIC_DIGITS), count=1)
    if not _starts(rest):
        return False
    before, last = parts[:-1], int(parts[-1])
    neighbours = {".".join([*before, str(n)]) for n in (last - 1, last + 1)}
    neighbours |= {".".join([*before, f"{n:02d}"]) for n in (last - 1, last + 1)}
    return last == 1 or bool(neighbours & siblings)


def _follows(previous: str, number: str) -> bool:
    """True when `number` comes after `previous` in the same run: 4.1 -> 4.2, 4.1.1, or back from 4.1.3 to 4.2."""
    before = [int(p) for p in previous.split(".")]
    after = [int(p) for p in number.split(".")]
    if after == [*before, 1]:
        return True
    depth = len(after) - 1
    return depth < len(before) and after[:depth] == before[:depth] and after[depth] == before[depth] + 1


def _starts(text: str) -> bool:
    """True when a text begins as a sentence or title does: no lower-case letter, no digit."""
    text = text.lstrip("\"“„«'‘([{*_~ \t\u00a0")
    return bool(text) and not text[0].islower() and (text[0].isalpha() or text[0] in "<§¿¡")


def _sentence_title(text: str) -> str:
    """The caption at the start of a numbered paragraph ('Encryption. Every …'), else its first words."""
    line = fold(text.split("\n", 1)[0][:400])
    caption = re.match(r"(.{2,70}?)[.:](?:\s|$)|(.{1,30}?)[。：]", line)
    if caption:
        title = (caption[1] or caption[2]).strip()
        if len(title.split()) <= 10:
            return title
    if len(line) <= 60:
        return line
    cut = line[:60].rsplit(" ", 1)[0]
    return (cut if len(cut) > 20 else line[:60]).rstrip(",;:") + "…"


def _decimal(number: str) -> str | None:
    """'IV' -> '4', '七' -> '7'; a decimal number stays; None when it is no number."""
    if number[0].isdigit():
        return unicodedata.normalize("NFKC", number)
    if re.fullmatch(_ROMAN, number, re.I):
        return _roman(number)
    digits = "〇一二三四五六七八九"
    if all(c in digits + "零十百千" for c in number):
        total, current = 0, 0
        for c in number:
            if c in "十百千":
                total += (current or 1) * {"十": 10, "百": 100, "千": 1000}[c]
                current = 0
            else:
                current = 0 if c == "零" else digits.index(c)
        return str(total + current)
    return None


def _roman(number: str) -> str | None:
    values = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
    total = 0
    letters = number.lower()
    for index, letter in enumerate(letters):
        value = values[letter]
        total += -value if index + 1 < len(letters) and values[letters[index + 1]] > value else value
    return str(total) if total > 0 else None


def _inside(inner: str | None, outer: str | None) -> bool:
    """True when `inner` is numbered below `outer`: 7.2 below 7, 7.2(a) below 7.2."""
    return inner is not None and outer is not None and inner.startswith((outer + ".", outer + "("))


def _tree(marks: Sequence[_Mark], length: int) -> tuple[Section, ...]:
    parents: list[int | None] = []
    ends = [length] * len(marks)
    open_: list[int] = []
    for index, mark in enumerate(marks):
        while open_:
            top = marks[open_[-1]]
            if mark.paragraph:
                elsewhere = mark.article and top.number is not None and not _inside(mark.number, top.number)
                stays = not elsewhere if not top.paragraph else _inside(mark.number, top.number)
            else:
                same = top.declared == mark.declared and _inside(mark.number, top.number)
                stays = not top.paragraph and (top.declared < mark.declared or same)
            if stays:
                break
            ends[open_.pop()] = mark.start
        parents.append(open_[-1] if open_ else None)
        open_.append(index)
    ids = _unique(marks, parents)
    levels: list[int] = []
    sections: list[Section] = []
    for index, mark in enumerate(marks):
        parent = parents[index]
        levels.append(1 if parent is None else levels[parent] + 1)
        sections.append(
            Section(
                id=ids[index],
                title=mark.title,
                level=levels[index],
                start=mark.start,
                end=ends[index],
                number=mark.number,
                parent=None if parent is None else ids[parent],
            )
        )
    return tuple(sections)


def _unique(marks: Sequence[_Mark], parents: Sequence[int | None]) -> list[str]:
    """Ids that are unique: bare where they can be, else qualified by the parent, else numbered.

    A number keeps its bare form at its natural place (7.2 below 7), or where it comes first outside every annex.
    """
    counts = Counter(mark.id for mark in marks)
    keeper: dict[str, int] = {}
    for index, mark in enumerate(marks):
        if counts[mark.id] < 2 or mark.number is None:
            continue
        chain = _ancestors(index, parents)
        natural = any(_inside(mark.number, marks[a].number) for a in chain)
        annexed = any(marks[a].division for a in chain)
        if (natural or not annexed) and not (annexed and mark.id in keeper):
            keeper.setdefault(mark.id, index)
    ids: list[str] = []
    following: dict[str, int] = {}
    taken: set[str] = {mark.id for mark in marks if counts[mark.id] == 1}
    taken |= set(keeper)
    for index, mark in enumerate(marks):
        if counts[mark.id] == 1 or keeper.get(mark.id) == index:
            ids.append(mark.id)
            continue
        name = mark.id
        chain = _ancestors(index, parents)
        divisions = [a for a in chain if marks[a].division]
        parent = divisions[0] if mark.number is not None and divisions else parents[index]
        kept = keeper.get(mark.id)
        if parent is not None and not (kept is not None and parents[kept] == parents[index]):
            name = f"{ids[parent]}/{mark.id}"
        candidate, number = name, following.get(name, 2)
        while candidate in taken:
            candidate = f"{name}-{number}"
            number += 1
        following[name] = number
        taken.add(candidate)
        ids.append(candidate)
    return ids


def _ancestors(index: int, parents: Sequence[int | None]) -> list[int]:
    chain: list[int] = []
    parent = parents[index]
    while parent is not None:
        chain.append(parent)
        parent = parents[parent]
    return chain


def shifted(sections: Sequence[Section], by: int) -> tuple[Section, ...]:
    """The same sections in a text that has `by` more characters before them."""
    return tuple(replace(s, start=s.start + by, end=s.end + by) for s in sections)

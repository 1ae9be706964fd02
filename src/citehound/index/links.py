"""What leads from one passage to others: names of documents, capitalised names, references; it ranks nothing.

A passage's words and names are found when its document is indexed and stored beside it (`pack`, `unpack`); so are the
names by which other texts may call the document (`calls`). Both ends go with their document, and they are joined when
a question asks, so a document added later is found from old passages, and a removed one leaves no link behind.
"""

from __future__ import annotations

import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from .analysis import fold, known_language, stem_words
from .functionwords import FUNCTION_WORDS

LONGEST_CALL = 12
"""Words of the longest name by which a document can be called."""

_WORD = re.compile(r"[^\W_]+(?:[’'][^\W\d_]+)?")
_STOP = re.compile(r"(?<=[.!?;。！？])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-ZÀ-Þ0-9])|\n+")
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|[a-z]\.[a-z]|Mr|Mrs|Ms|Dr|St|Jr|Sr|No|vs|Inc|Ltd|Co|Art|Sec)\.$")
_NAME = re.compile(
    r"(?<![^\W_])[A-ZÀ-Þ0-9][^\W_]*(?:[&’'./-][^\W_]+)*"
    r"(?:[ ](?:(?:of|the|de|da|do|du|des|del|der|den|van|von|und|für|di|la|le|al|and|for|in|on|&)[ ]){0,2}"
    r"[A-ZÀ-Þ0-9][^\W_]*(?:[&’'./-][^\W_]+)*)*"
)
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»\n]{3,60})[\"”“»]")
_FILE = re.compile(r"(?<![\w/])[\w-]+(?:/[\w.-]+)*\.(?:md|txt|rst|docx?|pdf|html?|xlsx?|pptx?|odt|csv|eml)\b")
_CODE = re.compile(r"(?<![\w-])[A-Z]{2,}[A-Z0-9]*(?:[-_][A-Z0-9]+)+(?![\w-])")
_REFERENCE = re.compile(
    r"\b(?i:Annex(?:e|ure)?|Appendix|Schedule|Exhibit|Attachment|Addendum|Amendment|Section|Clause|Article|Paragraph|"
    r"Chapter|Part|Anhang|Anlage|Abschnitt|Artikel|Anexo|Apêndice|Cláusula|Artigo|Seção|Artículo|Sección)s?\s+"
    r"(?:\d+(?:\.\d+)*|[IVXLC]+|[A-Z])\b|§\s*\d+(?:\.\d+)*"
)
_ID_KEYS = ("id", "number", "reference", "ref", "policy_id", "document_id", "doc_id", "code", "short_title", "alias")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSION = re.compile(r"^(?:v|version|ver|rev|release)?\d+(?:\.\d+)*$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Name:
    """A name as it stands in a passage, or a reference to an annex, section or clause."""

    text: str
    start: int
    end: int
    reference: bool = False


@dataclass(frozen=True, kw_only=True)
class Wording:
    """A passage as the chase needs it: its content words in order, where sentences end, and the names in it."""

    stems: tuple[str, ...]
    starts: tuple[int, ...]
    """Offset of each word in the passage."""
    ends: tuple[int, ...]
    """Offset at which each sentence ends."""
    names: tuple[Name, ...]
    title: tuple[str, ...]
    """Stems of the document's title and of the section's path."""

    @cached_property
    def held(self) -> frozenset[str]:
        return frozenset(self.stems) | frozenset(self.title)

    @cached_property
    def sentences(self) -> tuple[frozenset[str], ...]:
        """The words of each sentence."""
        found: list[list[str]] = [[] for _ in range(len(self.ends) + 1)]
        for stem, start in zip(self.stems, self.starts, strict=True):
            found[bisect_right(self.ends, start)].append(stem)
        return tuple(frozenset(f) for f in found)

    def around(self, start: int, end: int, *, before: int = 60, after: int = 40) -> frozenset[str]:
        """Words within so many characters of a stretch, in its sentence."""
        at = bisect_right(self.ends, start)
        first = max(start - before, self.ends[at - 1] if at else 0)
        last = min(end + after, self.ends[at] if at < len(self.ends) else end + after)
        low, high = bisect_right(self.starts, first - 1), bisect_right(self.starts, last)
        return frozenset(
            stem
            for stem, where in zip(self.stems[low:high], self.starts[low:high], strict=True)
            if not start <= where < end
        )


def content_words(text: str, language: str | None) -> list[tuple[str, int]]:
    """(stem, offset) of every word of a text that is no function word."""
    code = known_language(language)
    stop = FUNCTION_WORDS.get("en", frozenset()) | FUNCTION_WORDS.get(code, frozenset())
    kept: list[tuple[str, int]] = []
    for match in _WORD.finditer(text):
        word = match.group()
        if word[-2:] in ("'s", "’s"):
            word = word[:-2]
        low = fold(word)
        if low not in stop and (len(low) > 1 or low.isdigit() or not low.isascii()):
            kept.append((word.lower(), match.start()))
    return [(s, at) for s, (_, at) in zip(stem_words([w for w, _ in kept], code), kept, strict=True)]


def sentence_ends(text: str) -> list[int]:
    return [
        match.start()
        for match in _STOP.finditer(text)
        if "\n" in match.group() or not _ABBREVIATION.search(text[max(0, match.start() - 6) : match.start()])
    ]


def names_in(text: str, *, language: str | None = None) -> list[Name]:
    """Capitalised names, quoted terms, file names, codes and references, in order."""
    stop = FUNCTION_WORDS.get("en", frozenset()) | FUNCTION_WORDS.get(known_language(language), frozenset())
    found: dict[tuple[int, int], Name] = {}
    for match in _REFERENCE.finditer(text):
        found[match.span()] = Name(text=match.group(), start=match.start(), end=match.end(), reference=True)
    references = list(found)
    for pattern in (_FILE, _CODE):
        for match in pattern.finditer(text):
            found.setdefault(match.span(), Name(text=match.group(), start=match.start(), end=match.end()))
    for match in _QUOTED.finditer(text):
        found.setdefault(match.span(1), Name(text=match.group(1), start=match.start(1), end=match.end(1)))
    for match in _NAME.finditer(text):
        start, said = match.start(), match.group().rstrip(".,'’-/&")
        while said:
            head, _, rest = said.partition(" ")
            number = head.replace(".", "").isdigit() and fold(rest.partition(" ")[0]) in stop
            if fold(head) not in stop and not number:
                break
            start, said = start + len(head) + 1, rest
        if len(said) < 2 or not any(c.isalpha() for c in said):
            continue
        end = start + len(said)
        if any(a <= start and end <= b for a, b in references):
            continue
        found.setdefault((start, end), Name(text=said, start=start, end=end))
    return sorted(found.values(), key=lambda n: (n.start, n.end))


def spelt(title: str) -> str:
    """A title that was a file name, as words: '%20' and 'StandardNDAFormat' taken apart, which stays beside."""
    plain = unquote(title)
    apart = _CAMEL.sub(" ", plain)
    return plain if apart == plain else f"{plain}\n{apart}"


def wording(text: str, *, title: str, language: str | None) -> Wording:
    """`title`: the document's title and the section's path."""
    words = content_words(text, language)
    return Wording(
        stems=tuple(s for s, _ in words),
        starts=tuple(at for _, at in words),
        ends=tuple(sentence_ends(text)),
        names=tuple(names_in(text, language=language)),
        title=tuple(dict.fromkeys(s for s, _ in content_words(spelt(title), language))),
    )


# names of documents


def plain_words(text: str) -> list[tuple[str, int, int, bool]]:
    """(folded word, start, end, capitalised) of a text, as names are compared: no punctuation, no 's."""
    found: list[tuple[str, int, int, bool]] = []
    for match in _WORD.finditer(text.replace("_", " ")):
        word = match.group()
        end = match.end()
        if word[-2:] in ("'s", "’s"):
            word, end = word[:-2], end - 2
        found.append((fold(word), match.start(), end, not word[0].islower()))
    return found


def key_of(words: Iterable[str]) -> int:
    """A name's key: 63 bits of its words."""
    *_, key = _keys(word.encode() for word in words)
    return key


def _keys(words: Iterable[bytes]) -> Iterator[int]:
    """The key of the first word, of the first two, and so on."""
    first, second = 0, 1
    for word in words:
        word += b" "
        first, second = zlib.crc32(word, first), zlib.adler32(word, second)
        yield (first << 31) ^ second


@dataclass(frozen=True, kw_only=True)
class Called:
    """One way in which other texts may call a document."""

    words: tuple[str, ...]
    weight: float


def calls(*, title: str, path: str, metadata: Mapping[str, str]) -> tuple[Called, ...]:
    """A document's names: its title, also without brackets, version or what a comma cuts off; file name; ids."""
    found: dict[tuple[str, ...], float] = {}

    def add(text: str, weight: float, *, least: int = 1) -> None:
        words = tuple(w for w, _, _, _ in plain_words(text))[:LONGEST_CALL]
        if len(words) < least or not words:
            return
        stop = FUNCTION_WORDS["en"]
        if len(words) == 1 and (len(words[0]) < 3 or words[0] in stop or words[0].isdigit()):
            return
        if all(w in stop or w.isdigit() for w in words):
            return
        found[words] = max(weight, found.get(words, 0.0))

    add(title, 1.0)
    bare = re.sub(r"\s*[(\[][^)\]]*[)\]]", " ", title)
    add(bare, 1.0)
    kept = [w for w in bare.split() if not _VERSION.match(w)]
    add(" ".join(kept), 1.0)
    for mark in (",", ":", " - ", " – ", " — "):
        if mark in bare:
            add(bare.split(mark)[0], 0.6, least=2)
    file = path.rsplit("/", 1)[-1]
    stem = file.rsplit(".", 1)[0] if "." in file else file
    add(stem.replace("-", " "), 0.9, least=2)
    for key in _ID_KEYS:
        if value := metadata.get(key, ""):
            add(value, 1.0, least=1 if any(c.isalpha() for c in value) else 2)
    return tuple(Called(words=words, weight=weight) for words, weight in found.items())


@dataclass(frozen=True, kw_only=True)
class Mention:
    """A place in a text that calls documents by name."""

    start: int
    end: int
    words: int
    capitalised: bool
    opens: bool
    """It is the text's first word."""
    documents: tuple[tuple[int, float], ...]
    """(row, weight of the name)."""


def mentions(
    text: str, lookup: Callable[[Sequence[int]], Mapping[int, Sequence[tuple[int, float]]]], *, capitalised: bool
) -> list[Mention]:
    """Names of documents in a text, the longest at each place; with `capitalised` only where its first word is."""
    words = plain_words(text)
    encoded = [word.encode() for word, _, _, _ in words]
    keys: dict[tuple[int, int], int] = {}
    for at, (word, _, _, capital) in enumerate(words):
        if capitalised and not capital:
            continue
        for size, key in enumerate(_keys(encoded[at : at + LONGEST_CALL]), start=1):
            if size > 1 or len(word) > 2:
                keys[at, size] = key
    known = lookup(list(set(keys.values())))
    if not known:
        return []
    found: list[Mention] = []
    at = 0
    while at < len(words):
        for size in range(min(LONGEST_CALL, len(words) - at), 0, -1):
            rows = known.get(keys.get((at, size), -1))
            if rows:
                capital = any(c for _, _, _, c in words[at : at + size])
                found.append(
                    Mention(
                        start=words[at][1],
                        end=words[at + size - 1][2],
                        words=size,
                        capitalised=capital,
                        opens=at == 0,
                        documents=tuple(rows),
                    )
                )
                at += size
                break
        else:
            at += 1
    return found


# packing


def pack(found: Sequence[Wording]) -> bytes:
    """One document's passages."""
    body = [
        [
            " ".join(w.stems),
            _steps(w.starts),
            _steps(w.ends),
            [[n.start, n.end, int(n.reference), n.text] for n in w.names],
            " ".join(w.title),
        ]
        for w in found
    ]
    return zlib.compress(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), 1)


def unpack(packed: bytes) -> tuple[Wording, ...]:
    return tuple(
        Wording(
            stems=tuple(stems.split()),
            starts=tuple(_sums(starts)),
            ends=tuple(_sums(ends)),
            names=tuple(Name(start=a, end=b, reference=bool(r), text=t) for a, b, r, t in names),
            title=tuple(title.split()),
        )
        for stems, starts, ends, names, title in json.loads(zlib.decompress(packed))
    )


def _steps(offsets: Sequence[int]) -> list[int]:
    return [b - a for a, b in zip((0, *offsets), offsets, strict=False)]


def _sums(steps: Iterable[int]) -> Iterator[int]:
    at = 0
    for step in steps:
        at += step
        yield at

"""One search: which terms count, what both legs bring, which passages are hits and why others are not."""

from __future__ import annotations

import difflib
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast

import tantivy
from tantivy import Occur, Query

from ..embedding import Vectors
from . import ExplainedTerm, terms, vectors
from .analysis import COMPOUNDING, Matcher, QueryTerm, fold, fold_value, in_compounds, query_terms
from .catalog import Catalog, Head
from .functionwords import FUNCTION_WORDS
from .fusion import Candidate, Weights, fuse

T = TypeVar("T")
Found: TypeAlias = "tuple[float, tantivy.DocAddress]"
"""A passage that words found: its score, and where the index of terms has it."""

SNIPPET = 300
_MAX_TERMS = 40
MOST_COLLECTED = 20_000
ORDINAL = (1 << vectors.ORDINAL_BITS) - 1
_ORDINAL_BITS = vectors.ORDINAL_BITS
_CANDIDATES = 100
"""So many passages each leg brings at least, where there are two."""
_BOILERPLATE = 5
"""A text that stands so often in a source is taken for one that is repeated,"""
_BOILERPLATE_COSTS = 0.3
"""and loses this share of its score by words where it stands in every document."""
_MASKS = 32
"""So many choices of vectors are kept at hand."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a reader sees: all stores at one `seq`."""

    seq: int
    searcher: tantivy.Searcher
    catalog: Catalog
    state: str = ""
    """What `documents.db` said of the vectors."""
    view: vectors.View | None = None
    """None without vectors of this embedder."""
    parts: Mapping[int, str] = field(default_factory=dict[int, str])
    """In which part of the index of terms a document is, by row, where that is not the main one."""
    whole: bool = True
    """Nothing that is there is kept from who asks."""
    exact: bool = False
    """What there is beside the documents of `catalog` must not even decide between equal scores."""
    masks: dict[tuple[Any, ...], vectors.Mask] = field(default_factory=dict[tuple[Any, ...], vectors.Mask])
    """Which vectors the searches of late could look at."""
    repeated: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    """What a text's score counts, by source and hash, as far as asked."""
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def related(self, term: QueryTerm) -> tuple[str, ...]:
        """See `in_compounds`."""
        return in_compounds(
            term,
            self.catalog.languages,
            frequency=lambda word: self.searcher.doc_freq("any", word),
            beginning=lambda prefix: self.searcher.terms_with_prefix("any", prefix, limit=500),
        )


@dataclass(frozen=True, kw_only=True)
class _Weighed:
    """A term of a query."""

    term: QueryTerm
    weight: float
    passages: int
    """In how many it occurs."""
    function_word: bool
    why: str | None
    """Why it is not searched."""


@dataclass(frozen=True, kw_only=True)
class Legs:
    """What a search looks for, in words and as a vector."""

    terms: list[tuple[QueryTerm, float]]
    words: Query | None
    embed: Callable[[], Vectors | None]
    allowed: Callable[[], vectors.Mask | None]
    words_only: bool
    explained: list[ExplainedTerm]

    @cached_property
    def vector(self) -> Vectors | None:
        """Made when it is first asked for: where words are enough, no embedder is troubled."""
        return self.embed()

    @cached_property
    def mask(self) -> vectors.Mask | None:
        """Which vectors count."""
        return self.allowed()


@dataclass(kw_only=True)
class Ranking:
    taken: list[tuple[float, Head, int, tuple[str, ...]]] = field(
        default_factory=list[tuple[float, Head, int, tuple[str, ...]]]
    )
    """(score, document, ordinal, other documents with the same passage), best first."""
    gone: set[str] = field(default_factory=set[str])
    """Documents that do not hold today and would have been among them."""
    judged: list[tuple[Candidate, str]] = field(default_factory=list[tuple[Candidate, str]])
    """What became of every candidate; empty unless asked for."""


def everywhere(catalog: Catalog) -> str | None:
    """The term of the only source, which would narrow nothing."""
    return None if catalog.only_source is None else terms.source_term(catalog.only_source)


def legs_of(
    look: Snapshot,
    query: str,
    chosen: Choice,
    *,
    embed: Callable[[Sequence[str]], Vectors | None],
    source: str | None,
    documents: Sequence[str] | None,
) -> Legs:
    """What each way of searching is to look for."""
    weighed = _weigh(look, query)
    counted = [(w.term, w.weight) for w in weighed if w.why is None]
    wanted: Query | None = None
    if counted:
        must: list[tuple[Occur, Query]] = [
            (Occur.Must, terms.marked(mark)) for mark in chosen.marks if mark != everywhere(look.catalog)
        ]
        if documents is not None:
            must.append((Occur.Must, Query.const_score_query(terms.one_of(documents), 0.0)))
        scored = terms.scored(look.searcher, counted)
        wanted = Query.boolean_query([(Occur.Must, scored), *must]) if must else scored

    def embedded() -> Vectors | None:
        if look.view is None or not query.strip() or chosen.notes or (found := embed([query])) is None:
            return None
        return found[0]

    telling = sum(1 for w in weighed if not w.function_word and w.term.stems)
    telling = min(telling, len(query.split()))  # a word of a script without spaces is several terms
    return Legs(
        terms=counted,
        words=wanted,
        embed=embedded,
        allowed=lambda: mask_of(look, chosen, source=source, only_current=False, documents=documents),
        words_only=telling < 2,
        explained=[
            ExplainedTerm(
                term=w.term.exact, stems=(*w.term.stems, *w.term.related), passages=w.passages, left_out=w.why
            )
            for w in weighed
        ],
    )


def mask_of(
    look: Snapshot,
    chosen: Choice,
    *,
    source: str | None,
    only_current: bool,
    documents: Sequence[str] | None,
) -> vectors.Mask | None:
    """Which vectors a search may look at; None means all of them."""
    catalog = look.catalog
    assert look.view is not None
    narrow = (source is not None and source != catalog.only_source) or chosen.wanted
    if look.whole and documents is None and not narrow and not (only_current and catalog.hidden):
        return None
    table = catalog.rows(source=source, wanted=chosen.wanted, only_current=only_current)
    if documents is not None:
        heads = (catalog.heads.get(document) for document in documents)
        return look.view.among(head.row for head in heads if head is not None and table[head.row])
    key = (source, chosen.wanted, only_current)
    mask = look.masks.get(key)
    if mask is None:
        mask = look.view.where(table)
        with look.mutex:
            while len(look.masks) >= _MASKS:
                look.masks.pop(next(iter(look.masks)))
            look.masks[key] = mask
    return mask


def _weigh(look: Snapshot, query: str) -> list[_Weighed]:
    """The query's terms, rarest first; those that say nothing, or do not occur, say why they are left out."""
    total = max(1, look.searcher.num_docs)
    languages = look.catalog.languages
    empty = frozenset[str]().union(*(FUNCTION_WORDS.get(code, ()) for code in languages))
    compounding = not COMPOUNDING.keys().isdisjoint(languages)
    found: list[_Weighed] = []
    for term in query_terms(query, languages):
        known: dict[str, int] = {}
        for form in (*term.stems, term.exact):
            known[form] = known.get(form) or look.searcher.doc_freq("any", form)
        stems = tuple(s for s in term.stems if known[s])
        most = max(known.values())
        if term.exact not in empty and compounding and (related := look.related(term)):
            term = replace(term, related=related)
            most = most or max(look.searcher.doc_freq("any", word) for word in related)
        found.append(
            _Weighed(
                term=term if len(stems) == len(term.stems) or not most else replace(term, stems=stems),
                weight=1.0 / (1.0 + 20.0 * most / total),
                passages=most,
                function_word=term.exact in empty,
                why=None if most else "occurs nowhere",
            )
        )
    found.sort(key=lambda w: w.passages)
    left = [w for w in found if w.why is None]
    empty_terms = {w.term for w in left if w.function_word}
    common = {w.term for w in left if total > 1000 and w.passages >= total * 0.2}
    for drop, why, enough in (
        (empty_terms, "a function word", any(not w.function_word for w in found)),
        (common, "in a fifth of all passages", sum(w.term not in common for w in left) >= 2),
    ):
        if enough:
            found = [replace(w, why=why) if w.why is None and w.term in drop else w for w in found]
            left = [w for w in left if w.term not in drop]
    over = {w.term for w in left[_MAX_TERMS:]}
    return [replace(w, why=f"more than {_MAX_TERMS} terms") if w.term in over else w for w in found]


def collect(
    look: Snapshot,
    legs: Legs,
    *,
    weights: Weights,
    k: int,
    per_document: int,
    only_current: bool,
    judged: bool = False,
) -> Ranking:
    """The best passages, equal scores by document id and place, and which documents that do not hold today would
    have been among them. One search finds both: what holds is known here, not there."""
    limit = max(32 if look.view is None else _CANDIDATES, k * 5)
    crowd: set[str] = set()
    """Documents that have given all they may; what they still have is not asked for again."""
    kept: list[Found] = []
    while True:
        pairs = _by_words(look, legs, limit=limit, without=crowd)
        more = len(pairs) >= limit
        if look.exact and limit < MOST_COLLECTED:
            pairs = settled(pairs, limit)
        pairs = kept + pairs
        ranking = _rank(
            look,
            legs,
            pairs,
            near=limit,
            weights=weights,
            k=k,
            per_document=per_document,
            hidden=look.catalog.hidden if only_current else frozenset(),
            judged=judged,
        )
        if len(ranking.taken) >= k or not more or limit >= MOST_COLLECTED:
            return ranking
        given = Counter(head.id for _, head, _, _ in ranking.taken)
        full = {document for document, times in given.items() if times >= per_document} | ranking.gone
        if full <= crowd:
            limit *= 4
        else:
            crowd |= full
            kept = [pair for pair, document in zip(pairs, _documents(look, pairs), strict=True) if document in crowd]


def _rank(
    look: Snapshot,
    legs: Legs,
    pairs: Sequence[Found],
    *,
    near: int,
    weights: Weights,
    k: int,
    per_document: int,
    hidden: frozenset[str],
    judged: bool,
) -> Ranking:
    """The hits among what words found and, where those are too few or vectors count, the `near` nearest vectors."""
    view = look.view
    by_row = look.catalog.by_row
    keys = _fast(look, "chunk", pairs)
    texts = _fast(look, "text", pairs)
    same = dict(zip(keys, texts, strict=True))
    words = [
        (key, score * _repeated(look, by_row[key >> _ORDINAL_BITS].source, text))
        for (score, _), key, text in zip(pairs, keys, texts, strict=True)
        if key >> _ORDINAL_BITS in by_row
    ]
    words.sort(key=lambda w: (-round(w[1], 5), by_row[w[0] >> _ORDINAL_BITS].id, w[0]))
    plain = [
        Candidate(key=key, score=score, words=score, words_rank=at, cosine=None, dense_rank=None)
        for at, (key, score) in enumerate(words, start=1)
    ]

    def walk(candidates: Sequence[Candidate], k: int = k, judged: bool = False) -> Ranking:
        return _walk(candidates, look.catalog, same, hidden=hidden, k=k, per_document=per_document, judged=judged)

    unmoved = not weights.dense or k <= weights.keep
    if view is not None and unmoved and not judged and len((enough := walk(plain)).taken) >= k:
        return enough
    if view is None or legs.vector is None:
        return walk(plain, judged=judged)
    cosines = view.cosines(legs.vector[None, :], [key for key, _ in words])[0]
    candidates = fuse(
        words,
        view.nearest(legs.vector, k=near, mask=legs.mask),
        cosines={key: float(cosine) for (key, _), cosine in zip(words, cosines, strict=True)},
        document=lambda key: key >> _ORDINAL_BITS,
        weights=weights,
        words_only=legs.words_only,
        kept={(head.row << _ORDINAL_BITS) | ordinal for _, head, ordinal, _ in walk(plain, weights.keep).taken},
    )
    candidates.sort(key=lambda c: (-round(c.score, 5), by_row[c.key >> _ORDINAL_BITS].id, c.key))
    return walk(candidates, judged=judged)


def _fast(look: Snapshot, name: str, pairs: Sequence[Found]) -> list[int]:
    """A number of each passage."""
    addresses = [address for _, address in pairs]
    return cast("list[int]", look.searcher.fast_field_values(name, addresses)) if addresses else []


def _documents(look: Snapshot, pairs: Sequence[Found]) -> list[str | None]:
    heads = (look.catalog.by_row.get(key >> _ORDINAL_BITS) for key in _fast(look, "chunk", pairs))
    return [None if head is None else head.id for head in heads]


def _by_words(look: Snapshot, legs: Legs, *, limit: int, without: Set[str]) -> list[Found]:
    """The best passages by words alone, of other documents than those."""
    wanted = legs.words
    if wanted is None:
        return []
    if without:
        wanted = Query.boolean_query([(Occur.Must, wanted), (Occur.MustNot, terms.one_of(sorted(without)))])
    found = look.searcher.search(wanted, limit=limit, count=False)
    return cast("list[Found]", found.hits)


def settled(pairs: list[tuple[float, T]], limit: int) -> list[tuple[float, T]]:
    """Without those as good as the last one, where there may be more of them: which were given is chance."""
    if len(pairs) < limit:
        return pairs
    last = round(pairs[-1][0], 5)
    return [pair for pair in pairs if round(pair[0], 5) > last]


def _repeated(look: Snapshot, source: str, same: int) -> float:
    """What the score of a text counts that stands again and again in a source: less, the more of it has it."""
    known = look.repeated.get((source, same))
    if known is None:
        times = look.searcher.doc_freq("filter", terms.text_term(source, same))
        documents = look.catalog.documents.get(source, 1)
        share = min(1.0, times / max(1, documents)) if times >= _BOILERPLATE else 0.0
        known = 1.0 - _BOILERPLATE_COSTS * share
        if len(look.repeated) < 200_000:
            look.repeated[source, same] = known
    return known


def _walk(
    candidates: Sequence[Candidate],
    catalog: Catalog,
    same: Mapping[int, int],
    *,
    hidden: frozenset[str],
    k: int,
    per_document: int,
    judged: bool,
) -> Ranking:
    """Takes the best `k` of candidates that are in order, without copies, at most `per_document` of one document.

    `same` says by key which texts are the same, where that is known."""
    ranking = Ranking()
    count: Counter[int] = Counter()
    seen: dict[tuple[object, ...], int] = {}
    copies: dict[int, list[str]] = defaultdict(list)
    taken: list[tuple[float, Head, int]] = []
    lowest = 0.0
    for candidate in candidates:
        rounded = -round(candidate.score, 5)
        full = len(taken) >= k
        if full and rounded > lowest and not judged:
            break
        head = catalog.by_row.get(candidate.key >> _ORDINAL_BITS)
        if head is None:
            continue
        verdict = ""
        text = same.get(candidate.key)
        mark = None if not text or text % 2 == 0 else (text, fold_value(head.title), terms.about(head.metadata))
        if candidate.below_floor:
            verdict = "cut: has none of the query's words, and is not near enough"
        elif head.id in hidden:
            if not full or rounded <= lowest:
                ranking.gone.add(head.id)
            verdict = f"cut: {'; '.join(catalog.currency(head.id).labels) or 'not current'}"
        elif mark is not None and mark in seen:
            number = seen[mark]
            if taken[number][1].id != head.id:
                copies[number].append(head.id)
            verdict = f"cut: the same text as hit {number + 1}"
        elif full:
            verdict = f"cut: below the best {k}"
        elif count[head.row] >= per_document:
            verdict = f"cut: {per_document} of its document are hits already"
        else:
            if mark is not None:
                seen[mark] = len(taken)
            count[head.row] += 1
            taken.append((candidate.score, head, candidate.key & ORDINAL))
            lowest = rounded
            verdict = f"hit {len(taken)}"
        if judged:
            ranking.judged.append((candidate, verdict))
    ranking.taken = [(*t, tuple(dict.fromkeys(copies[at]))) for at, t in enumerate(taken)]
    return ranking


@dataclass(frozen=True, kw_only=True)
class Choice:
    marks: tuple[str, ...] = ()
    """Terms of the field `filter` that all must occur."""
    wanted: tuple[tuple[str, str], ...] = ()
    """The same as (metadata key, folded value)."""
    notes: tuple[str, ...] = ()
    """Why nothing can match."""


def choose(catalog: Catalog, *, source: str | None, filters: Mapping[str, str] | None) -> Choice:
    """Filters as the index knows them. An unknown key or value matches nothing, and the notes say what is near."""
    of = source or ""
    marks = [] if source is None else [terms.source_term(source)]
    wanted: list[tuple[str, str]] = []
    notes: list[str] = []
    for key, value in (filters or {}).items():
        value = str(value)
        if not value.strip():
            continue
        known_keys = catalog.keys.get(of, {})
        known = known_keys.get(fold_value(key))
        if known is None:
            near = _near(fold_value(key), known_keys)
            notes.append(f"filter {key!r} is not known{_nearest(near)}")
            continue
        known_values = catalog.values(of, known)
        folded = fold_value(value)
        if folded not in known_values:
            near = _near(folded, known_values)
            notes.append(f"{known} {value!r} is not known{_nearest(near)}")
            continue
        wanted.append((known, folded))
        marks.append(terms.value_term(known, value))
    return Choice(marks=tuple(marks), wanted=tuple(wanted), notes=tuple(notes))


def _near(folded: str, known: Mapping[str, str]) -> list[str]:
    inside = [shown for value, shown in known.items() if folded and (folded in value or value in folded)]
    close = difflib.get_close_matches(folded, list(known)[:2000], n=3, cutoff=0.5)
    found = list(dict.fromkeys([*(known[c] for c in close), *inside]))[:3]
    return found or (list(known.values()) if len(known) <= 5 else [])


def _nearest(near: Sequence[str]) -> str:
    return f"; nearest: {', '.join(repr(n) for n in near)}" if near else ""


def nearest_documents(name: str, catalog: Catalog) -> list[str]:
    wanted = fold(name).rsplit("/", 1)[-1]
    by_last: dict[str, str] = {}
    for document in catalog.heads:
        by_last.setdefault(fold(document).rsplit("/", 1)[-1], document)
    close = difflib.get_close_matches(wanted, list(by_last), n=3, cutoff=0.5)
    inside = [document for last, document in by_last.items() if wanted and wanted in last]
    return list(dict.fromkeys([*(by_last[c] for c in close), *inside]))[:3]


def hit_title(title: str, section: str) -> str:
    return title if not section or fold_value(section) == fold_value(title) else f"{title} > {section}"


def snippet(text: str, matcher: Matcher[float]) -> str:
    """The stretch of at most 300 characters that holds most of the weighted terms, white space folded."""
    if len(text) <= SNIPPET:
        return " ".join(text.split())
    places = matcher.places(text)
    width = SNIPPET - 4
    start = 0
    best_value = -1.0
    for at, (begin, _, _, _) in enumerate(places):
        value = 0.0
        seen: set[str] = set()
        for _, end, term, weight in places[at:]:
            if end - begin > width - 20:
                break
            value += weight * (0.1 if term in seen else 1.0)
            seen.add(term)
        if value > best_value + 1e-9:
            best_value, start = value, begin
    start = _lead_in(text, start, width)
    end = min(len(text), start + width)
    if end < len(text):
        cut = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = cut if cut > start + width // 2 else end
    shown = " ".join(text[start:end].split())
    return f"{'… ' if start > 0 else ''}{shown}{' …' if end < len(text) else ''}"


def _lead_in(text: str, start: int, width: int) -> int:
    """Moves back to the sentence's or line's beginning when it is near, else to a few words before."""
    floor = max(0, start - width // 3)
    if start <= width // 3:
        return 0
    for mark in ("\n", ". ", "? ", "! ", "; ", "。"):
        found = text.rfind(mark, floor, start)
        if found >= 0:
            return found + len(mark)
    blank = text.find(" ", max(floor, start - 40), start)
    return blank + 1 if blank >= 0 else start

"""Drafts of cases for a person to edit: from a recorded run, and from documents that refer to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..access import Principal
from ..corpus import Corpus
from ..documents import Document
from ..index.links import calls, key_of, mentions
from ..quotes import Place, Span, sentence_at
from ..runs import RunRecord
from .cases import Case

_MOST_DOCUMENTS = 2000
_LONGEST = 300


def case_of_run(record: RunRecord, *, name: str | None = None) -> Case:
    """The case that says "this was right": what was cited must be read, what was claimed must be said.

    Only verified claims are taken; of a citation with a section, the section.
    """
    answer = record.answer
    claims = [claim for claim in answer.claims if claim.status == "verified"]
    places = [
        f"{citation.document}#{citation.section}" if citation.section else citation.document
        for claim in claims
        for citation in claim.citations
        if citation.status == "verified"
    ]
    read = tuple(dict.fromkeys(places))
    missing = tuple(gap.what for gap in answer.missing)
    documents = {place.partition("#")[0] for place in read}
    return Case(
        id=name or f"run-{answer.run_id}",
        question=answer.rewritten or answer.question,
        kind="unanswerable" if missing and not read else "compound" if len(documents) > 1 else "single",
        must_read=read,
        answer_points=tuple(claim.text for claim in claims if claim.kind == "quoted"),
        missing=missing,
        max_steps=max(1, answer.usage.steps),
        tags=("from a run",),
    )


def suggest_cases(corpus: Corpus, *, principal: Principal, most: int = 20) -> tuple[Case, ...]:
    """Compound questions where the text of one current document calls another by its name, one per pair.

    The questions are clumsy by nature: they show what belongs together, and want to be put into a person's words.
    """
    known = corpus.lexicon(principal=principal).titles()[:_MOST_DOCUMENTS]
    infos = {name: corpus.info(name, principal=principal) for name, _ in known}
    rows: dict[int, list[tuple[int, float]]] = {}
    for row, (name, title) in enumerate(known):
        path = name.partition("/")[2]
        for called in calls(title=title, path=path, metadata=infos[name].metadata):
            if len(called.words) > 1:
                rows.setdefault(key_of(called.words), []).append((row, called.weight))

    def lookup(keys: Sequence[int]) -> Mapping[int, Sequence[tuple[int, float]]]:
        return {key: rows[key] for key in keys if key in rows}

    made: list[Case] = []
    pairs: set[frozenset[str]] = set()
    for name, title in known:
        if not infos[name].current:
            continue
        document = corpus.document(name, principal=principal)
        for mention in mentions(document.text, lookup, capitalised=True):
            named = [known[row] for row, _ in mention.documents if infos[known[row][0]].current]
            pair = frozenset((name, *(n for n, _ in named)))
            if len(named) != 1 or len(pair) < 2 or pair in pairs or named[0][1].casefold() == title.casefold():
                continue
            sentence = _sentence(document, mention.start, mention.end)
            if not sentence or sentence.casefold().strip(" .:") == named[0][1].casefold():
                continue
            pairs.add(pair)
            section = document.section_at(mention.start)
            made.append(
                Case(
                    id=f"suggested-{len(made) + 1}",
                    question=f"{title} says: “{sentence}” What does {named[0][1]} say about that?",
                    kind="compound",
                    must_read=(f"{name}#{section.id}" if section else name, named[0][0]),
                    tags=("suggested",),
                )
            )
            if len(made) >= most:
                return tuple(made)
    return tuple(made)


def _sentence(document: Document, start: int, end: int) -> str:
    span = Span(start=start, end=end)
    whole = sentence_at(document, Place(spans=(span,)))
    text = " ".join(document.text[whole.start : whole.end].split())
    return text if len(text) <= _LONGEST else ""

"""Checks a draft against what a run has read, one function per verifier; no model, no I/O beyond `Documents`.

`verified` means: quoted from what was read, with agreeing quantities. It does not mean entailed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, Protocol

from .answers import Citation, Claim, Gap
from .documents import Document, DocumentInfo, Section
from .drafts import Draft, DraftCitation, DraftClaim, DraftGap
from .errors import UsageError
from .evidence import Evidence
from .quantities import (
    Derivation,
    Quantity,
    agree,
    compute,
    converted,
    derivations,
    in_base,
    lettered,
    quantities,
    same_family,
    units_in,
)
from .quotes import (
    Folded,
    Place,
    Span,
    clipped_words,
    find_quote,
    fold,
    fragments,
    is_long,
    is_whole,
    line_at,
    sentence_at,
    unwrapped,
    without_spaces,
    words,
)
from .security import visible
from .wording import content_stems, guess_languages, is_common, stems


class Documents(Protocol):
    """What the checks may ask of the corpus, already bound to who asks."""

    def resolve(self, name: str) -> str:
        """The full id. Raises UnknownDocument."""
        ...

    def document(self, document: str) -> Document: ...
    def info(self, document: str) -> DocumentInfo: ...


@dataclass(frozen=True, kw_only=True)
class Checked:
    claims: tuple[Claim, ...] = ()
    missing: tuple[Gap, ...] = ()
    feedback: tuple[str, ...] = ()
    """One line per failure, written for the model: which claim, what failed, what to do."""


@dataclass(frozen=True, kw_only=True)
class _Cited:
    """A citation with what code found out about it."""

    citation: Citation
    document: Document | None = None
    sections: tuple[Section, ...] = ()
    numbers: frozenset[str] = frozenset()
    """Section numbers that an absence may name its document by, as it has no quote that stands in one of them."""
    names: frozenset[str] = frozenset()
    """Names with digits that are its own (a party of its metadata), or the question's and in its text."""
    stated: tuple[Quantity, ...] = ()
    warnings: tuple[str, ...] = ()
    todo: str = ""
    """What to do about a failure."""


@dataclass(frozen=True, kw_only=True)
class _Judged:
    claim: Claim
    cited: tuple[_Cited, ...] = ()
    problems: tuple[str, ...] = ()
    """One per failure, for the model."""
    follows: bool = False
    """Nothing is wrong with it but that a premise failed."""


@dataclass(kw_only=True)
class _Library:
    """The documents and the evidence of one check, with what was computed from them."""

    evidence: Evidence
    documents: Documents
    question: str = ""
    drafted: frozenset[str] = frozenset()
    """Documents that the draft cites."""
    only: Sequence[Citation] | None = None
    """Set where a draft may cite nothing but what others have cited and code has verified."""
    _folded: dict[str, Folded] = field(default_factory=dict[str, Folded])
    _documents: dict[str, Document] = field(default_factory=dict[str, Document])
    _evidence: dict[str, Evidence] = field(default_factory=dict[str, Evidence])

    def document(self, document: str) -> Document:
        if document not in self._documents:
            self._documents[document] = self.documents.document(document)
        return self._documents[document]

    def folded(self, document: str) -> Folded:
        if document not in self._folded:
            self._folded[document] = fold(self.document(document).text)
        return self._folded[document]

    def evidence_of(self, document: str) -> Evidence:
        """What was read of one document, left out what no longer is its text."""
        if document not in self._evidence:
            text = self.document(document).text
            read = (*self.evidence.passages, *self.evidence.carried)
            passages = tuple(p for p in read if p.document == document and text[p.start : p.end] == p.text)
            self._evidence[document] = replace(self.evidence, passages=passages)
        return self._evidence[document]

    def was_read(self, document: str, span: Span) -> bool:
        return self.evidence_of(document).was_read(document, span.start, span.end)

    def touched(self, document: str) -> bool:
        return bool(self.evidence_of(document).passages)

    def read_whole(self, document: str) -> bool:
        return self.evidence_of(document).was_read(document, 0, len(self.document(document).text))


def check(
    draft: Draft,
    evidence: Evidence,
    documents: Documents,
    *,
    question: str = "",
    only: Sequence[Citation] | None = None,
) -> Checked:
    """Every claim and gap of the draft with its verdict; nothing is dropped, repaired or passed in silence.

    `question` tells the language where a claim is too short to, and names of things ('4players') that a cited document
    has too; its quantities never count as evidence.
    `only` are citations verified before (of a lead's sub-agents): one that is not a part of these fails.
    """
    library = _Library(evidence=evidence, documents=documents, question=question, only=only)
    library.drafted = _drafted(draft, library)
    fallback = (guess_languages(question) or (None,))[0]
    judged: dict[int, _Judged] = {}
    for number in range(1, len(draft.claims) + 1):
        _judge(number, draft.claims, judged, (), library, fallback)
    gaps = tuple(check_gap(gap, evidence) for gap in draft.missing)
    feedback = [f"claim {n}: {p}" for n in sorted(judged) if not judged[n].follows for p in judged[n].problems]
    feedback += [
        f"missing {n}: {_to_search(gap.what, evidence)}, or leave it out if the question does not need it"
        for n, gap in enumerate(gaps, start=1)
        if gap.status == "unchecked"
    ]
    if resting := [n for n in sorted(judged) if judged[n].follows]:
        feedback.append(
            f"{_claims(resting)} only because of claims named above, and pass with them if they still follow"
        )
    good = [n for n in sorted(judged) if not judged[n].problems]
    if feedback and good:
        feedback.append(f"nothing is wrong with claim{'s' if len(good) > 1 else ''} {_numbers(good)}: keep as they are")
    claims = tuple(_seen(judged[n].claim) for n in sorted(judged))
    missing = tuple(replace(g, what=visible(g.what), reason=g.reason and visible(g.reason)) for g in gaps)
    return Checked(claims=claims, missing=missing, feedback=tuple(feedback))


def _seen(claim: Claim) -> Claim:
    """The claim without what cannot be seen. Names were judged with it: an id with something invisible is none."""
    citations = tuple(
        replace(c, document=visible(c.document), quote=visible(c.quote), reason=c.reason and visible(c.reason))
        for c in claim.citations
    )
    return replace(
        claim,
        text=visible(claim.text),
        citations=citations,
        terms=tuple(map(visible, claim.terms)),
        warnings=tuple(map(visible, claim.warnings)),
    )


def _numbers(numbers: Sequence[int]) -> str:
    """'1-3, 5 and 7'."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    shown = [s for run in runs for s in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def _claims(numbers: Sequence[int]) -> str:
    return f"claims {_numbers(numbers)} fail" if len(numbers) > 1 else f"claim {numbers[0]} fails"


def _drafted(draft: Draft, library: _Library) -> frozenset[str]:
    """The documents that the quotes of a draft name and the run has read."""
    found: set[str] = set()
    for name in {c.document for claim in draft.claims for c in claim.citations}:
        document, _ = check_document(name, library)
        if document is not None and library.touched(document.id):
            found.add(document.id)
    return frozenset(found)


def _judge(
    number: int,
    claims: Sequence[DraftClaim],
    judged: dict[int, _Judged],
    above: tuple[int, ...],
    library: _Library,
    fallback: str | None,
) -> _Judged:
    if number in judged:
        return judged[number]
    claim = claims[number - 1]
    cited = tuple(check_citation(c, library, absence=claim.kind == "absence") for c in claim.citations)
    if claim.kind == "conclusion":
        bad = [p for p in claim.premises if not 1 <= p <= len(claims)]
        circular = [p for p in claim.premises if p == number or p in above]
        premises = [
            _judge(p, claims, judged, (*above, number), library, fallback)
            for p in dict.fromkeys(claim.premises)
            if p not in bad and p not in circular
        ]
        result = check_conclusion(claim, cited, premises, bad=bad, circular=circular, fallback=fallback)
    elif claim.kind == "absence":
        result = check_absence(claim, cited, library, fallback=fallback)
    else:
        result = check_quoted(claim, cited, fallback=fallback)
    if number in judged:  # judged meanwhile, as part of a circle
        return judged[number]
    if not any(c.isalnum() for c in claim.text):
        result = replace(result, follows=False)
        status = "uncited" if result.claim.status == "uncited" else "unverified"
        warnings = (*result.claim.warnings, "the claim says nothing")
        problems = (*result.problems, "has no text; say what its quotes show, or drop it")
        result = replace(result, claim=replace(result.claim, status=status, warnings=warnings), problems=problems)
    judged[number] = result
    return result


# --- kinds ----------------------------------------------------------------------------------------------------------


def _claim(
    draft: DraftClaim,
    cited: Sequence[_Cited],
    *,
    status: Literal["verified", "unverified", "uncited"],
    warnings: Iterable[str] = (),
) -> Claim:
    return Claim(
        text=draft.text,
        kind=draft.kind,
        status=status,
        warnings=tuple(dict.fromkeys([*(w for c in cited for w in c.warnings), *warnings])),
        citations=tuple(c.citation for c in cited),
        premises=draft.premises,
        terms=draft.terms,
    )


def _failed(cited: Sequence[_Cited]) -> list[str]:
    return [
        f"citation {n} of {c.citation.document!r} failed: {c.citation.reason}; {c.todo}"
        for n, c in enumerate(cited, start=1)
        if c.citation.status == "unverified"
    ]


def check_quoted(draft: DraftClaim, cited: tuple[_Cited, ...], *, fallback: str | None = None) -> _Judged:
    """Needs a verified citation, and its quantities in the quotes of verified citations."""
    if not cited:
        problem = "has no citation; quote a passage that you read, or drop the claim"
        return _Judged(claim=_claim(draft, cited, status="uncited"), problems=(problem,))
    good = [c for c in cited if c.citation.status == "verified"]
    problems = _failed(cited)
    if not good:
        warnings = [f"citation {n}: {c.citation.reason}" for n, c in enumerate(cited, start=1)]
        claim = _claim(draft, cited, status="unverified", warnings=warnings)
        return _Judged(claim=claim, cited=cited, problems=tuple(problems))
    stated = [q for c in good for q in c.stated]
    wrong, notes = check_quantities(draft.text, stated, good, fallback=fallback)
    notes += check_nouns(draft.text, good, fallback=fallback)
    hint = _hint(good)
    notes += [f"citation {n}: {c.citation.reason}" for n, c in enumerate(cited, start=1) if c not in good]
    problems += [
        f"{q.text!r} does not stand in its quotes; quote the words that say it, or correct it{hint}" for q in wrong
    ]
    notes += [f"quantity not in the quotes: {q.text!r}" for q in wrong]
    claim = _claim(draft, cited, status="unverified" if wrong else "verified", warnings=notes)
    return _Judged(claim=claim, cited=cited, problems=tuple(problems))


def _hint(cited: Sequence[_Cited]) -> str:
    """How a value is derived, where a claim has two stated ones that it could be derived from."""
    stated = [q for c in cited for q in c.stated if q.values]
    if not any(same_family(a.unit, b.unit) and a.values[0] != b.values[0] for a in stated for b in stated):
        return ""
    return "; a value derived from two others names them, as in '48 hours longer (72 - 24)'"


def check_conclusion(
    draft: DraftClaim,
    cited: tuple[_Cited, ...],
    premises: Sequence[_Judged],
    *,
    bad: Sequence[int],
    circular: Sequence[int],
    fallback: str | None = None,
) -> _Judged:
    """Names its premises, all verified, without a circle; its quantities come from them or are derived as named."""
    if not draft.premises:
        status = "unverified" if cited else "uncited"
        problem = "a conclusion names its premises; give the numbers of the claims it rests on, or make it 'quoted'"
        warning = ["no premises"]
        claim = _claim(draft, cited, status=status, warnings=warning)
        return _Judged(claim=claim, cited=cited, problems=(problem, *_failed(cited)))
    problems = [f"premise {p} is no claim; claims are numbered from 1" for p in bad]
    problems += [f"premise {p} leads back to this claim; a conclusion cannot rest on itself" for p in circular]
    warnings = [f"premise {p} does not exist" for p in bad] + [f"premise {p} is circular" for p in circular]
    unverified = [p for p in premises if p.claim.status != "verified"]
    if unverified:
        problems.append("rests on a premise that is not verified; correct the premise first")
        warnings.append("a premise is not verified")
    problems += _failed(cited)
    warnings += [
        f"citation {n}: {c.citation.reason}" for n, c in enumerate(cited, start=1) if c.citation.status == "unverified"
    ]
    every = {id(c): c for c in (*cited, *(c for p in premises for c in p.cited))}  # a shared premise counts once
    sources = [c for c in every.values() if c.citation.status == "verified"]
    stated = [q for c in sources for q in c.stated]
    for premise in premises:
        if premise.claim.status == "verified":
            stated += quantities(premise.claim.text, language=_language(premise.claim.text, fallback))
    wrong, notes = check_quantities(draft.text, stated, sources, fallback=fallback)
    if not unverified:
        problems += [
            f"{q.text!r} comes from no premise; add the claim that says it, or name the operands as in '(72 - 24)'"
            for q in wrong
        ]
    warnings += [*notes, *(f"quantity not in the premises: {q.text!r}" for q in wrong)]
    failed = bool(bad or circular or unverified or wrong) or any(c.citation.status == "unverified" for c in cited)
    claim = _claim(draft, cited, status="unverified" if failed else "verified", warnings=warnings)
    follows = bool(unverified) and len(problems) == 1
    return _Judged(claim=claim, cited=tuple(every.values()), problems=tuple(dict.fromkeys(problems)), follows=follows)


def check_absence(
    draft: DraftClaim, cited: tuple[_Cited, ...], library: _Library, *, fallback: str | None = None
) -> _Judged:
    """Names documents and terms that do not stand there, and each was read whole or searched inside for each term."""
    terms = tuple(t for t in draft.terms if stems(t))
    if not cited and not terms:
        problem = "an absence names the documents that were searched (citations) and the terms"
        return _Judged(claim=_claim(draft, cited, status="uncited"), problems=(problem,))
    problems = _failed(cited)
    warnings = [
        f"citation {n}: {c.citation.reason}" for n, c in enumerate(cited, start=1) if c.citation.status == "unverified"
    ]
    if not cited:
        problems.append("an absence names the documents that were searched; add them as citations")
        warnings.append("no document named")
    if not terms:
        problems.append("an absence names the terms that were looked for; add them")
        warnings.append("no terms named")
    out: list[_Cited] = []
    for item in cited:
        if item.document is None or item.citation.status == "unverified":
            out.append(item)
            continue
        reason, todo = _present(terms, item.document, library)
        if reason is not None:
            problems.append(f"{item.document.id!r}: {reason}; {todo}")
            warnings.append(f"{item.document.id}: {reason}")
            item = replace(item, citation=replace(item.citation, status="unverified", reason=reason))
        out.append(item)
    language = _language(draft.text, fallback)
    asked = {s for t in terms for s in stems(t, language=language)}
    if terms and not asked & set(stems(draft.text, language=language)):
        documents = [c.document for c in out if c.document is not None]
        if any(_document_language(d) == language for d in documents):
            problems.append("its terms have no word in common with the claim; look for what the claim says is absent")
            warnings.append("the terms are not those of the claim")
        else:
            warnings.append("terms in another language than the claim")
    stated = [q for c in out for q in c.stated] + [q for t in terms for q in quantities(t, language=language)]
    wrong, notes = check_quantities(draft.text, stated, out, fallback=fallback)
    wrong = [q for q in wrong if not _counts_documents(draft.text, q, out, language=language)]
    problems += [
        f"{q.text!r} is in none of its terms or quotes; look for it as a term, quote it, or leave it out" for q in wrong
    ]
    warnings += [*notes, *(f"quantity not in the terms: {q.text!r}" for q in wrong)]
    status = "unverified" if problems else "verified"
    claim = _claim(draft, out, status=status, warnings=warnings)
    return _Judged(claim=claim, cited=tuple(out), problems=tuple(problems))


_KINDS = "document text file source documento texto dokument fichier fonte bron bestand"


def _counts_documents(text: str, quantity: Quantity, cited: Sequence[_Cited], *, language: str | None) -> bool:
    """True when an absence counts the documents it cites: 'its three annexes' beside three annexes."""
    noun = re.match(r"(?: [^\W\d_]+){1,2}", text[quantity.end :])
    documents = {c.document.id: c.document for c in cited if c.document is not None}
    if quantity.unit != "count" or noun is None:
        return False
    for word in noun.group().split():
        stem = set(stems(word, language=language))
        named = [
            d
            for d in documents.values()
            if stem & set(stems(f"{d.title} {d.id.rsplit('/', 1)[-1]}", language=language))
        ]
        generic = stem & {s for w in _KINDS.split() for s in stems(w, language=language)}
        if len(documents if generic else named) in quantity.values:
            return True
    return False


def _present(terms: Sequence[str], document: Document, library: _Library) -> tuple[str | None, str]:
    """Why the absence of `terms` from a document is not shown, and what to do; None if it is."""
    text = library.folded(document.id).text.casefold()
    language = _document_language(document)
    haystack = f" {' '.join(stems(text, language=language))} "
    for term in terms:
        folded = fold(term).text.casefold()
        if any(without_spaces(c) for c in folded):
            stands = folded in text
        else:
            stands = f" {' '.join(stems(folded, language=language))} " in haystack
        if stands:
            return f"{term!r} stands in it", "read the place and correct the claim"
    if library.read_whole(document.id):
        return None, ""
    finds = [f for f in library.evidence.finds if f.document == document.id and not f.found]
    searched = {stems(f.phrase, language=language) for f in finds}
    for term in terms:
        if stems(term, language=language) not in searched:
            return (
                f"was neither read whole nor searched inside for {term!r}",
                f"call find_in_document for {term!r}, or read all of it",
            )
    return None, ""


# --- citations ------------------------------------------------------------------------------------------------------


def _suspicious(name: str) -> str | None:
    """What is wrong with a string that would be an id."""
    if any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp") for c in name):
        return "has invisible characters"
    for token in re.findall(r"[^\W\d_]+", name):
        scripts = {unicodedata.name(c, "").split(" ")[0] for c in token}
        if "LATIN" in scripts and scripts & {"CYRILLIC", "GREEK", "CHEROKEE", "ARMENIAN"}:
            return "mixes look-alike letters of several scripts"
    return None


def _names(document: Document, name: str) -> bool:
    """True when `name` is the document's id or path, or the end of it, letter for letter."""
    name = unicodedata.normalize("NFC", name)
    if name == document.id:
        return True
    if "[" in name or "]" in name:
        return False
    wholes = (document.id, document.path, f"{document.source}/{document.path}")
    return any(whole == name or whole.endswith(f"/{name}") for whole in wholes)


def check_document(name: str, library: _Library) -> tuple[Document | None, str]:
    """The document that a citation names, or None and why not. No repair of any kind."""
    wrong = _suspicious(name)
    if wrong is not None:
        return None, f"the name {wrong}"
    try:
        document = library.document(library.documents.resolve(name))
    except (UsageError, LookupError):
        return None, "no such document"
    if not _names(document, name):
        return None, "no document has exactly this name"
    return document, ""


def check_citation(draft: DraftCitation, library: _Library, *, absence: bool = False) -> _Cited:
    """Document, quote, place read, and currency of one citation."""
    citation = Citation(document=draft.document, quote=draft.quote)
    document, why = check_document(draft.document, library)
    if document is None:
        todo = "use an id exactly as a tool gave it, of a document that you read"
        return _Cited(citation=replace(citation, reason=why), todo=todo)
    citation = replace(citation, document=document.id)
    labels, outdated, todo = check_currency(document.id, library)
    citation = replace(citation, labels=labels, trust=library.documents.info(document.id).trust)
    cited = {f"amended by {name}" for name in library.drafted}
    warnings = tuple(f"{document.id}: {label}" for label in labels if label not in cited)
    names = _own_names(document, library)
    if absence and not draft.quote.strip():
        if not _reused(citation, library):
            return _Cited(citation=replace(citation, reason=_NOT_REUSED), document=document, todo=_REUSE)
        if outdated is not None:
            return _Cited(citation=replace(citation, reason=outdated), document=document, todo=todo, warnings=warnings)
        return _Cited(
            citation=replace(citation, status="verified"),
            document=document,
            numbers=frozenset(s.number for s in document.sections if s.number),
            names=names,
            warnings=warnings,
        )
    place, why, what = check_quote(draft.quote, document, library)
    if place is None:
        return _Cited(citation=replace(citation, reason=why), document=document, todo=what, warnings=warnings)
    sentence = sentence_at(document, place)
    section = document.section_at(place.start)
    citation = replace(
        citation,
        section=section.id if section is not None else None,
        page=document.page_at(place.start),
        start=place.start,
        end=place.end,
        sentence=document.text[sentence.start : sentence.end],
    )
    if why:
        return _Cited(citation=replace(citation, reason=why), document=document, todo=what, warnings=warnings)
    if not _reused(citation, library):
        return _Cited(citation=replace(citation, reason=_NOT_REUSED), document=document, todo=_REUSE)
    if outdated is not None:
        return _Cited(citation=replace(citation, reason=outdated), document=document, todo=todo, warnings=warnings)
    left_out = clipped_words(document, place, sentence, language=document.language)
    if left_out:
        warnings += (f"clipped: the sentence of the quote also says {', '.join(map(repr, left_out))}",)
    return _Cited(
        citation=replace(citation, status="verified"),
        document=document,
        sections=document.section_path(section.id) if section is not None else (),
        names=names,
        stated=stated_quantities(document, place, sentence),
        warnings=warnings,
    )


def _own_names(document: Document, library: _Library) -> frozenset[str]:
    """Names with digits that need no quote: those of the document's metadata, title or id, and of the question where
    the document has them too. '4players' is one; 'AES-256' is not, which may be what a claim has to show.
    """
    own = " · ".join([document.title, document.id, *document.metadata.values()])
    found = {m.group().casefold() for m in _NAMED.finditer(own)}
    for match in _NAMED.finditer(library.question):
        if re.search(rf"(?<!\w){re.escape(match.group())}(?!\w)", document.text, re.IGNORECASE):
            found.add(match.group().casefold())
    asked = {q.text.casefold() for q in quantities(library.question, language="en") if q.unit == "name"}
    return frozenset(found | {v.casefold() for v in document.metadata.values() if v.casefold() in asked})


_NOT_REUSED = "not among the citations that the sub-agents verified"
_REUSE = "reuse a citation of the findings with its words, or move the claim to missing"


def _reused(citation: Citation, library: _Library) -> bool:
    """True when nothing limits the citations, or this one is one of `only` or a part of its quote."""
    if library.only is None:
        return True
    for known in library.only:
        if known.status != "verified" or known.document != citation.document:
            continue
        if citation.start is None or citation.end is None:
            if known.start is None:
                return True
        elif known.start is not None and known.start <= citation.start and citation.end <= (known.end or 0):
            return True
    return False


def check_quote(quote: str, document: Document, library: _Library) -> tuple[Place | None, str, str]:
    """Where the quote stands, and, if it does not count, why and what to do."""
    parts = fragments(quote)
    if not parts:
        return None, "no quote", "copy the words that show the claim"

    def find(words: str) -> Place | None:
        folded = library.folded(document.id)
        return find_quote(document, folded, words, was_read=lambda span: library.was_read(document.id, span))

    place = find(quote)
    inner = unwrapped(quote)
    if place is None and inner is not None:
        place, parts = find(inner), fragments(inner)
    if place is None:
        if not library.touched(document.id):
            return None, "not read in this run", "read the document before citing it"
        if len(parts) > 1:
            return None, *_why_not_joined(parts, [find(part) for part in parts], document)
        return None, "the quote does not stand in the document", "copy the words exactly as you read them"
    if not library.touched(document.id):
        return place, "not read in this run", "read the document before citing it"
    if not all(library.was_read(document.id, span) for span in place.spans):
        return place, "the place of the quote was not read in this run", "read the section in which it stands"
    short = check_length(parts, document, place)
    return place, short, "quote at least four words, or a whole line, cell or heading" if short else ""


def _why_not_joined(parts: Sequence[str], places: Sequence[Place | None], document: Document) -> tuple[str, str]:
    """Why a quote of several parts stands nowhere although some of them do, and what to do."""
    for part, place in zip(parts, places, strict=True):
        if place is None:
            shown = part if len(part) <= 60 else f"{part[:59]}…"
            return f"its part {shown!r} does not stand in the document", "copy the words exactly as you read them"
    sections = [document.section_at(place.start) for place in places if place is not None]
    names = tuple(dict.fromkeys(s.number or s.id if s is not None else "the start" for s in sections))
    if len(names) > 1:
        where = f"its parts stand in different sections ({', '.join(names)})"
        return where, "… joins parts of one section: give a citation for each section"
    return "its parts do not follow one another in this order", "give a citation for each part"


def check_length(parts: Sequence[str], document: Document, place: Place) -> str:
    """Why a quote is too short, or an empty string."""
    whole = [is_whole(document, span) for span in place.spans]
    if len(place.spans) == 1:
        return (
            "" if is_long(fold(document.text[place.start : place.end]).text) or whole[0] else "the quote is too short"
        )
    if not is_long(" ".join(parts)) and not all(whole):
        return "the quote is too short"
    for part, is_cell in zip(parts, whole, strict=True):
        if not is_cell and words(part) < 2 and sum(1 for c in part if without_spaces(c)) < 4:
            return f"the part {part!r} of the quote is too short"
    return ""


def check_currency(document: str, library: _Library) -> tuple[tuple[str, ...], str | None, str]:
    """Labels of a text that is not current or is amended; why it fails; what to do.

    It fails if a current successor exists and was not read.
    """
    info = library.documents.info(document)
    labels = list(info.labels)
    if info.amended_by and not any("amended" in label for label in labels):
        labels += [f"amended by {name}" for name in info.amended_by]
    if info.current:
        return tuple(labels), None, ""
    successors = _current_successors(document, library)
    if info.superseded_by and not any("superseded" in label for label in labels):
        labels.append(f"superseded by {', '.join(info.superseded_by)}")
    if all(label.startswith("amended") for label in labels):
        labels.append("not current")
    unread = [s for s in successors if not library.touched(s)]
    if not unread:
        return tuple(labels), None, ""
    reason = f"not current, and its successor {unread[0]!r} was not read"
    return tuple(labels), reason, f"read {unread[0]!r} and cite what is in force"


def _current_successors(document: str, library: _Library) -> tuple[str, ...]:
    found: dict[str, None] = {}
    seen = {document}
    ahead = [document]
    while ahead:
        for name in library.documents.info(ahead.pop()).superseded_by:
            try:
                successor = library.documents.resolve(name)
                info = library.documents.info(successor)
            except (UsageError, LookupError):
                continue
            if successor in seen:
                continue
            seen.add(successor)
            ahead.append(successor)
            if info.current:
                found[successor] = None
    return tuple(found)


# --- quantities -----------------------------------------------------------------------------------------------------


def _language(text: str, fallback: str | None) -> str | None:
    guessed = guess_languages(text)
    if len(guessed) == 1:
        return guessed[0]
    if fallback is not None and (not guessed or fallback in guessed):
        return fallback
    return "en" if "en" in guessed else guessed[0] if guessed else None


def _document_language(document: Document) -> str | None:
    return document.language or (guess_languages(document.text[:20_000]) or (None,))[0]


def stated_quantities(document: Document, place: Place, sentence: Span) -> tuple[Quantity, ...]:
    """The quantities of a quote, read in their sentence: '2 hours' cut out of '72 hours' is none."""
    # a cell's border keeps its number from the next cell's words; the rest is read as quotes are
    folded = fold(document.text[sentence.start : sentence.end].replace("|", "\u2016"))
    found: list[Quantity] = []
    for q in quantities(folded.text, language=_document_language(document)):
        for made in (q, lettered(folded.text, q)):
            if made is not None:
                back = folded.span(made.start, made.end)
                found.append(replace(made, start=back.start, end=back.end))
    out: list[Quantity] = []
    for span in place.spans:
        inside = [q for q in found if span.start <= q.start + sentence.start and q.end + sentence.start <= span.end]
        out += inside
        for q in inside:
            header = _column_header(document, q.start + sentence.start)
            if header and q.unit == "count":
                out += [replace(q, unit=unit) for unit in units_in(header)]
            if header:
                rates = quantities(header, language=_document_language(document))
                out += [r for r in rates if r.unit.startswith("rate")]
    return tuple(out)


def _column_header(document: Document, at: int) -> str:
    """The cell of a table's header row over the column in which `at` stands, or an empty string."""
    text = document.text
    line = line_at(text, Span(start=at, end=at))
    if " | " not in text[line.start : line.end]:
        return ""
    header = line
    while header.start > 0:
        above = line_at(text, Span(start=header.start - 1, end=header.start - 1))
        if " | " not in text[above.start : above.end]:
            break
        header = above
    column = text[line.start : at].count(" | ")
    cells = text[header.start : header.end].split(" | ")
    return cells[column] if header != line and column < len(cells) else ""


def check_quantities(
    text: str, stated: Sequence[Quantity], cited: Sequence[_Cited], *, fallback: str | None = None
) -> tuple[list[Quantity], list[str]]:
    """The quantities of a claim that its quotes do not state, and warnings about those that were converted."""
    names = {name for s in stated if s.unit == "name" for name in s.names}
    titles = " ".join(f"{c.document.title} {c.document.id}" for c in cited if c.document is not None)
    names |= {m.group() for m in _RATIO.finditer(titles)}
    shares = {s.values[0] for s in stated if s.unit == "share"}
    names |= {m.group() for m in _RATIO.finditer(text) if int(m[2]) and Fraction(int(m[1]), int(m[2])) in shares}
    text = _RATIO.sub(lambda m: m.group() if m.group() in names else f"{m[1]} / {m[2]}", fold(text).text)
    language = _language(text, fallback)
    found = quantities(text, language=language)
    rates = [q for q in found if q.unit.startswith("rate")]  # of "every 12 months" the rate has to stand, in any words
    claimed = [q for q in found if not any(r is not q and r.start <= q.start and q.end <= r.end for r in rates)]
    exempt = exempt_spans(text, cited)
    expressions = derivations(text, claimed)
    wrong: list[Quantity] = []
    notes: list[str] = []
    for q in claimed:
        if q.unit == "ordinal" and q.names:  # 'third parties'
            continue
        if any(span.start <= q.start and q.end <= span.end for span in exempt) or _is_metadata(q, cited):
            continue
        name = lettered(text, q)
        match = [s for s in stated if agree(q, s) or (name is not None and agree(name, s))]
        if match:
            if all(converted(q, s) for s in match):
                notes.append(f"converted: {q.text!r} stands as {match[0].text!r}")
        elif not _is_bare(text, q, stated, language) and not is_derived(q, expressions, stated):
            wrong.append(q)
    return wrong, notes


def check_nouns(text: str, cited: Sequence[_Cited], *, fallback: str | None = None) -> list[str]:
    """Warnings about counts of what no quote names, as '340 suppliers' on '340 servers'; they may be synonyms."""
    language = _language(text, fallback)
    references = (m for pattern in (_REFERENCE, _DOTTED, _VERSION, _PAGE) for m in pattern.finditer(text))
    named = [*exempt_spans(text, cited), *(Span(start=m.start(), end=m.end()) for m in references)]
    known: set[str] = set()
    for item in cited:
        if item.document is None or _document_language(item.document) != language:
            return []  # the words are translated
        headings = " ".join(s.title for s in item.sections)
        known |= set(stems(f"{item.citation.sentence} {headings} {item.document.title}", language=language))
    notes: list[str] = []
    for q in quantities(text, language=language):
        following = re.match(r"(?: [^\W\d_]+){1,3}", text[q.end :])
        if q.unit != "count" or following is None or any(s.start <= q.start and q.end <= s.end for s in named):
            continue
        nouns: list[str] = []
        for word in following.group().split():
            if is_common(word):
                break
            nouns.append(word)
        if nouns and not known & set(stems(" ".join(nouns), language=language)):
            notes.append(f"counted otherwise: the quotes do not speak of '{q.text} {' '.join(nouns)}'")
    return notes


def _is_bare(text: str, quantity: Quantity, stated: Sequence[Quantity], language: str | None) -> bool:
    """True for a number without a noun ('it asks for 24.', 'five of which') whose value is stated in some unit."""
    following = re.match(r"\s*([^\W\d_]+)", text[quantity.end :])
    if quantity.unit != "count" or (following is not None and not is_common(following[1], language=language)):
        return False
    ahead = re.match(r"(?:\s*[^\W\d_]+){0,4}", text[quantity.end :])
    if ahead is not None and units_in(ahead.group()):
        return False
    return any(s.values and not s.unit.startswith("rate") and s.values[0] in quantity.values for s in stated)


_REFERENCE = re.compile(
    r"(?:§+|\b(?:sections?|sec\.|sect\.|clauses?|articles?|art\.|paragraphs?|paras?\.?|annex(?:es)?|schedules?|appendix|chapters?|part|point|"
    r"item|exhibit|cl[aá]usulas?|artigos?|secç[aã]o|seç[aã]o|ponto|anexo|abschnitt|ziffer|ziff\.|artikel|absatz|abs\.|anhang|anlage|kapitel|"
    r"secci[oó]n|art[ií]culos?|apartado|annexe|paragraphe|sezione|articol[oi]|allegato|paragrafo|punto|sectie|paragraaf|bijlage|lid))"
    r"\s*(?P<n>\d+(?:\.\d+)*)(?![\w%])",
    re.IGNORECASE,
)
_RATIO = re.compile(r"(?<![\w/.,])(\d+)/(\d+)(?![\w/])")
"""`72/24` is an expression, unless the quotes have it as a name (`2016/679`, `24/7`)."""
_PAGE = re.compile(r"\b(?:pages?|p\.|pp\.|páginas?|pág\.|seite|pagina)\s*(?P<n>\d+)(?!\w)", re.IGNORECASE)
_VERSION = re.compile(
    r"\b(?:v|version|vers[aã]o|versi[oó]n|versione|versie|fassung|rev(?:ision)?)\.?\s?(?P<n>\d+(?:\.\d+)*)(?!\w)",
    re.IGNORECASE,
)
_DOTTED = re.compile(r"(?<![\w.,])[vV]?(?P<n>\d+(?:\.\d+)+)(?![\w%])(?!\s?%)")


def exempt_spans(text: str, cited: Sequence[_Cited]) -> list[Span]:
    """Where a claim names its documents: ids, titles, section numbers and versions equal to the cited ones'."""
    marks = re.finditer(r"\[(\d{1,2})\]", text)  # "[1]" is the claim's own citation
    spans = [Span(start=m.start(), end=m.end()) for m in marks if 1 <= int(m[1]) <= len(cited)]
    lowered = text.casefold() if len(text.casefold()) == len(text) else text
    for item in cited:
        if item.document is None:
            continue
        document = item.document
        labels = {document.id, document.id.rsplit("/", 1)[-1], document.path, document.title}
        labels |= {s.title for s in item.sections if len(s.title) > 3}
        for label in labels:
            at = lowered.find(label.casefold()) if label.strip() else -1
            while at != -1:
                spans.append(Span(start=at, end=at + len(label)))
                at = lowered.find(label.casefold(), at + 1)
        spans += _named_spans(text, item)
        numbers = {n for s in item.sections for n in (s.number, s.id.rsplit("/", 1)[-1]) if n}
        for match in _REFERENCE.finditer(text):
            if match["n"] in numbers | item.numbers:
                spans.append(Span(start=match.start(), end=match.end()))
        for match in _DOTTED.finditer(text):
            if match["n"] in numbers:
                spans.append(Span(start=match.start(), end=match.end()))
        for match in _PAGE.finditer(text):
            if match["n"] == str(item.citation.page):
                spans.append(Span(start=match.start(), end=match.end()))
        versions = {document.metadata.get("version", "").lstrip("vV")}
        versions |= {m["n"] for m in _VERSION.finditer(f"{document.title} {re.sub(r'[-_/]', ' ', document.id)}")}
        headings = {m["n"] for s in item.sections for m in _DOTTED.finditer(s.title)}
        for match in (*_VERSION.finditer(text), *_DOTTED.finditer(text)):
            if match["n"] in (headings if match.re is _DOTTED else headings | versions):
                spans.append(Span(start=match.start(), end=match.end()))
    return spans


_DESIGNATION = re.compile(
    r"(?<!\w)(?P<word>[^\W\d_]{3,}) ?(?P<n>\d{1,3})(?![\w%]|[.,:]\d|\s?%)(?P<after>\s*[^\W\d_]+)?", re.IGNORECASE
)
_DESIGNATORS = (
    "amendment annex appendix addendum schedule exhibit attachment supplement volume part chapter section order phase "
    "aditamento anexo adenda apêndice parte volume nachtrag anhang anlage beilage band teil ergänzung anexo enmienda "
    "apéndice adenda avenant annexe allegato emendamento bijlage addendum aanhangsel"
)
_NAMED = re.compile(r"(?<![\w.,-])\d+[^\W\d_]{4,}\w*(?!\w)")
"""A name that begins with digits."""


def _named_spans(text: str, item: _Cited) -> list[Span]:
    """Where a claim calls a cited document what its title, heading or id calls it ('Amendment 1'), or has a name that
    is the document's own ('4players', 'Studio 54')."""
    document = item.document
    assert document is not None
    spans = [
        Span(start=m.start(), end=m.end())
        for name in item.names
        for m in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
    ]
    spans += [
        Span(start=m.start(), end=m.end())
        for value in document.metadata.values()
        if _PARTY.fullmatch(value) and not any(q.unit != "count" for q in quantities(value, language="en"))
        for m in re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE)
    ]
    pairs: set[tuple[str, str]] = set()
    called = [document.title, *(s.title for s in item.sections)]
    for said in (*called, re.sub(r"[-_]", " ", document.id.rsplit("/", 1)[-1])):
        for match in _DESIGNATION.finditer(said):
            word, after = match["word"], (match["after"] or "").strip()
            ends = said in called and word[0].isupper() and (not after or is_common(after))
            if word.casefold() in _DESIGNATORS.split() or (ends and not is_common(word)):
                pairs.add((word.casefold(), match["n"]))
    for match in _DESIGNATION.finditer(text):
        if (match["word"].casefold(), match["n"]) in pairs:
            spans.append(Span(start=match.start(), end=match.end("n")))
    return spans


_PARTY = re.compile(r"(?=.*\d)(?=(?:.* )?[A-Z][a-z]+)[^\W\d_]{3,}[\w .&'-]{0,60}")
"""A name of words and a number, as 'Studio 54' or 'Level 3 Communications'."""


def _is_metadata(quantity: Quantity, cited: Sequence[_Cited]) -> bool:
    """True for a date of the metadata, and for a name, date or big number of the title, section or id."""
    for item in cited:
        if item.document is None:
            continue
        for key, value in item.document.metadata.items():
            known = [q for q in quantities(value, language="en") if q.unit == "date"]
            if quantity.unit == "date" and any(agree(quantity, q) for q in known):
                return True
            if known and key != "" and quantity.unit == "count" and any(agree(quantity, q) for q in known):
                return True
        headings = " · ".join(s.title for s in item.sections)
        title = quantities(f"{item.document.title} · {item.document.id} · {headings}", language="en")
        for q in title:
            big = q.unit == "count" and q.values[0] >= 1000
            if (q.unit in ("name", "date") or big) and q.unit == quantity.unit and agree(quantity, q):
                return True
    return False


def is_derived(quantity: Quantity, expressions: Sequence[Derivation], stated: Sequence[Quantity]) -> bool:
    """True for a stated operand of an expression, and for a value that an expression of such operands gives."""
    for expression in expressions:
        choices = [_stated_operand(o, stated) for o in expression.operands]
        if not all(choices):
            continue
        if quantity in expression.operands or any(o.start == quantity.start for o in expression.operands):
            return True
        if quantity.values and any(_gives(quantity, expression, operands) for operands in _combinations(choices)):
            return True
    return False


def _stated_operand(operand: Quantity, stated: Sequence[Quantity]) -> list[Quantity]:
    if operand.unit == "count":
        known = [s for s in stated if s.values and not s.unit.startswith("rate")]
        same = [s for s in known if s.values[0] in operand.values]
        # "USD 0.9 million (5.1 - 4.2)": the scale is said once
        return same or [
            s for s in known if re.fullmatch(rf"\D*(?<![\d.,]){re.escape(operand.text)}\s?[^\W\d]\D*", s.text)
        ]
    return [s for s in stated if s.values and agree(operand, s)]


def _combinations(choices: Sequence[list[Quantity]]) -> list[tuple[Quantity, ...]]:
    """One stated quantity per operand; the unit classes matter, not which of several equal ones."""
    out: list[tuple[Quantity, ...]] = [()]
    for choice in choices:
        distinct = list({(c.unit, c.values): c for c in choice}.values())[:4]
        out = [(*head, c) for head in out for c in distinct][:256]
    return out


def _gives(quantity: Quantity, expression: Derivation, operands: tuple[Quantity, ...]) -> bool:
    sums = set(expression.operators) <= {"+", "-"}
    unit = operands[0].unit
    if sums:
        if not all(same_family(unit, o.unit) for o in operands):
            return False
        value = compute([in_base(o) for o in operands], expression.operators)
        if quantity.unit == "count":
            return compute([o.values[0] for o in operands], expression.operators) in quantity.values
        point = unit == "percent" and quantity.unit == "point"
        if unit == quantity.unit == "percent" and "-" in expression.operators and operands[0].values[0] != 100:
            return False  # percentage points
        return (same_family(unit, quantity.unit) or point) and value == in_base(quantity)
    value = compute([o.values[0] for o in operands], expression.operators)
    if value is None:
        return False
    if quantity.unit == "percent" and not any(o.unit == "percent" for o in operands):
        value *= 100
    elif quantity.unit not in {"count", "times", "share", *(o.unit for o in operands)}:
        return False
    slack = Fraction(1, 2 * 10**quantity.digits) if "/" in expression.operators else Fraction(0)
    return any(abs(v - value) <= slack for v in quantity.values)


# --- gaps -----------------------------------------------------------------------------------------------------------


def check_gap(draft: DraftGap, evidence: Evidence) -> Gap:
    """Checked when a search of the run fits it.

    A search fits when its query has half of the words that carry the gap's meaning (at least two, at most three
    needed), leaving out the names of sources and filter values, which every search of that place shares.
    """
    core = _core(draft.what, evidence)
    searches = [(s.source, s.query) for s in evidence.searches]
    searches += [(f.document.split("/", 1)[0], f.phrase) for f in evidence.finds]
    fitting = [(source, query) for source, query in searches if _fits(core, query, draft)]
    if not fitting:
        given = draft.reason or ""
        reason = given if "not searched" in given.casefold() else f"not searched ({given})" if given else "not searched"
        return Gap(what=draft.what, status="unchecked", reason=reason)
    return Gap(
        what=draft.what,
        status="checked",
        sources=tuple(dict.fromkeys(source for source, _ in fitting)),
        queries=tuple(dict.fromkeys(query for _, query in fitting)),
        reason=draft.reason,
    )


def _to_search(what: str, evidence: Evidence) -> str:
    """What a search for a gap has to look like to count."""
    core = _core(what, evidence)
    language = (guess_languages(what) or ("en",))[0]
    words = [w for w in dict.fromkeys(re.findall(r"[^\W_]+", what)) if set(stems(w, language=language)) & core]
    if not words:
        return f"{what!r} was not searched: search for it with words of its own"
    few = _needed(core)
    lettered_words = [w for w in words if not w.isdigit()]
    words = lettered_words if len(lettered_words) >= few else words
    some = "one" if few == 1 else str(few)
    return f"{what!r} was not searched: make one search with {some} or more of its words ({', '.join(words[:8])})"


def _needed(core: frozenset[str]) -> int:
    """How many of the words of a gap a query has to have."""
    return min(3, max(min(len(core), 2), -(-len(core) // 2)))


def _core(what: str, evidence: Evidence) -> frozenset[str]:
    content = content_stems(what)
    places = " ".join({s.source for s in evidence.searches} | {v for s in evidence.searches for _, v in s.filters})
    language = (guess_languages(what) or ("en",))[0]
    context = {s for token in re.findall(r"[^\W_]+", places) for s in stems(token, language=language)}
    return (content - context) or content


def _fits(core: frozenset[str], query: str, draft: DraftGap) -> bool:
    if not core:
        return False
    language = (guess_languages(draft.what) or ("en",))[0]
    shared = len(core & set(stems(query, language=language)))
    if shared >= _needed(core):
        return True
    other = guess_languages(query)
    named = (
        draft.reason is not None
        and len(query.split()) > 1
        and fold(query).text.casefold() in fold(draft.reason).text.casefold()
    )
    return named and (shared > 0 or (bool(other) and language not in other))


# Trust


def differing(claims: Sequence[Claim]) -> tuple[str, ...]:
    """A line for each two claims of which one rests on a reviewed source and one on an open one, and which differ.

    They differ where both have a quantity of one kind with another value, and are premises of one conclusion or speak
    of the same thing: half of the words of the shorter one are in the other.
    """
    trust = {
        number: next(iter(said))
        for number, claim in enumerate(claims, start=1)
        if len(said := {c.trust for c in claim.citations if c.status == "verified"}) == 1
    }
    together = [set(claim.premises) for claim in claims if claim.kind == "conclusion"]
    found: list[str] = []
    for one in (number for number, said in trust.items() if said == "reviewed"):
        for other in (number for number, said in trust.items() if said == "open"):
            first, second = claims[one - 1], claims[other - 1]
            joined = any({one, other} <= premises for premises in together)
            if (joined or _same_thing(first.text, second.text)) and (values := _other_values(first, second)):
                places = (first.citations[0].document, second.citations[0].document)
                found.append(
                    f"sources differ: {places[0]!r} (reviewed, claim {one}) says {values[0]!r}, "
                    f"{places[1]!r} (open, claim {other}) says {values[1]!r}"
                )
    return tuple(found)


def _same_thing(one: str, other: str) -> bool:
    first, second = (frozenset(s for s in content_stems(text) if not s.isdigit()) for text in (one, other))
    return bool(first and second) and 2 * len(first & second) >= min(len(first), len(second))


def _other_values(one: Claim, other: Claim) -> tuple[str, str] | None:
    """A quantity of each that are of one kind, where none of that kind agree."""
    first, second = quantities(one.text), quantities(other.text)
    for q in first:
        kin = [p for p in second if q.unit not in _NO_KIND and (q.unit == p.unit or same_family(q.unit, p.unit))]
        alike = [p for p in first if p.unit == q.unit or (q.unit not in _NO_KIND and same_family(q.unit, p.unit))]
        if kin and not any(agree(p, s) or agree(s, p) for p in alike for s in kin):
            return q.text, kin[0].text
    return None


_NO_KIND = frozenset({"name", "ordinal"})
"""Units of quantities that tell things apart."""

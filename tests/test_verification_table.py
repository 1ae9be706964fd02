"""A table of claims with the verdict that a careful person gives."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from citehound.documents import Document, DocumentInfo, Passage, Section
from citehound.drafts import Draft
from citehound.errors import UnknownDocument
from citehound.evidence import Evidence, Find, Search
from citehound.verification import check

DATA = Path(__file__).parent / "data" / "claims"


def parsed(entry: dict[str, Any]) -> Document:
    """A document of the table: headings and numbered paragraphs become sections."""
    out, heads = "", list[tuple[int, int, str, str | None]]()
    for line in entry["text"].strip("\n").split("\n"):
        mark = re.match(r"(#+) (?:(\d+) )?(.*)", line)
        if mark:
            bare = line[len(mark[1]) + 1 :]
            heads.append((len(out), len(mark[1]), mark[3], mark[2]))
            line = bare
        else:
            top = heads[-1][3] if heads else None
            top = top.split(".")[0] if top else None
            for para in re.finditer(r"(?:^|(?<=\. ))(\d+\.\d+) ", line):
                if top is not None and para[1].startswith(f"{top}."):
                    heads.append((len(out) + para.start(1), 3, "", para[1]))
        out += line + "\n"
    sections: list[Section] = []
    for i, (start, level, title, number) in enumerate(heads):
        end = next((s for s, lv, _, _ in heads[i + 1 :] if lv <= level), len(out))
        parent = next((s.id for s in reversed(sections) if s.level < level), None)
        name = number or re.sub(r"\W+", "-", title.lower())
        sections.append(Section(id=name, title=title, level=level, start=start, end=end, number=number, parent=parent))
    pages = (0, *(m.end() for m in re.finditer("\f", out))) if "\f" in out else ()
    return Document(
        id=entry["id"],
        source=entry["id"].split("/")[0],
        path=entry["id"].split("/", 1)[1] + ".md",
        title=entry["title"],
        text=out,
        sections=tuple(sections),
        metadata=entry.get("metadata", {}),
        language=entry.get("language"),
        pages=pages,
    )


class Shelf:
    """`Documents` over the table's documents; resolves generously, so that the checks have to be strict."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = {e["id"]: e for e in entries}
        self.parsed = {e["id"]: parsed(e) for e in entries}

    def resolve(self, name: str) -> str:
        name = re.sub("[\\[\\]\u200b]", "", name).replace("\u043e", "o")
        found = [i for i in self.parsed if i == name or i.endswith(f"/{name}")]
        if len(found) != 1:
            raise UnknownDocument(f"no document {name!r}")
        return found[0]

    def document(self, document: str) -> Document:
        return self.parsed[document]

    def info(self, document: str) -> DocumentInfo:
        d, e = self.parsed[document], self.entries[document]
        return DocumentInfo(
            document=d.id,
            source=d.source,
            title=d.title,
            current=e.get("current", True),
            metadata=d.metadata,
            total_chars=len(d.text),
            superseded_by=tuple(e.get("superseded_by", ())),
            amended_by=tuple(e.get("amended_by", ())),
        )


def entries(kind: str, file: str) -> list[dict[str, Any]]:
    return tomllib.loads((DATA / file).read_text(encoding="utf-8"))[kind]


SHELF = Shelf(entries("document", "documents.toml") + entries("document", "documents-fresh.toml"))
CASES = entries("case", "claims.toml") + entries("case", "claims-fresh.toml")


def passage(name: str) -> Passage:
    """All of a document, or one section of it ('document#section')."""
    document = SHELF.parsed[name.split("#")[0]]
    section = document.section(name.split("#")[1]) if "#" in name else None
    start, end = (section.start, section.end) if section else (0, len(document.text))
    return Passage(
        document=document.id,
        section=section.id if section else None,
        title=document.title,
        text=document.text[start:end],
        start=start,
        end=end,
        total_chars=len(document.text),
    )


def evidence_of(case: dict[str, Any]) -> Evidence:
    return Evidence(
        passages=tuple(passage(name) for name in case.get("read", SHELF.parsed)),
        finds=tuple(Find(**f) for f in case.get("finds", ())),
        searches=tuple(Search(**s) for s in case.get("searches", ())),
    )


def draft_of(case: dict[str, Any]) -> Draft:
    claims: list[dict[str, Any]] = []
    for entry in case.get("claims", [case]):
        citations = list(entry.get("citations", []))
        if "document" in entry:
            citations.append({"document": entry["document"], "quote": entry.get("quote", "")})
        claims.append(
            {**{k: entry[k] for k in ("text", "kind", "premises", "terms") if k in entry}, "citations": citations}
        )
    return Draft.model_validate({"claims": claims})


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_a_claim_gets_the_verdict_of_a_careful_person(case: dict[str, Any]) -> None:
    checked = check(draft_of(case), evidence_of(case), SHELF, question=case.get("question", ""))
    claim = checked.claims[-1]
    assert claim.status == case["verdict"], (claim.warnings, [c.reason for c in claim.citations], checked.feedback)
    if "warning" in case:
        assert any(case["warning"] in w for w in claim.warnings), claim.warnings
    if "unwarned" in case:
        assert not any(case["unwarned"] in w for w in claim.warnings), claim.warnings
    if "reason" in case:
        assert case["reason"] in (claim.citations[-1].reason or "")
    if "section" in case:
        assert claim.citations[-1].section == case["section"]
    if "page" in case:
        assert claim.citations[-1].page == case["page"]
    if claim.status != "verified":
        number = len(checked.claims)
        assert any(
            re.match(rf"claim {number}: |claims? .*\b{number}\b.* fails? only", line) for line in checked.feedback
        )
    for citation in claim.citations:
        if citation.start is not None and citation.end is not None:
            text = SHELF.document(citation.document).text
            assert citation.sentence is not None
            assert text[citation.start : citation.end] in citation.sentence


def test_the_table_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 60
    assert len({c["name"] for c in CASES}) == len(CASES)


def test_a_copied_sentence_is_verified_in_every_document_of_the_table() -> None:
    for document in SHELF.parsed.values():
        if not SHELF.info(document.id).current:
            continue
        found = re.split(r"(?<=[.!?])\s+|\n(?![a-z\d(])", document.text)
        sentences = [s.strip() for s in found if len(s.split()) >= 4 and any(c.isalpha() for c in s)]
        for sentence in sentences:
            draft = {"claims": [{"text": sentence, "citations": [{"document": document.id, "quote": sentence}]}]}
            checked = check(Draft.model_validate(draft), Evidence(passages=(passage(document.id),)), SHELF)
            assert checked.claims[0].status == "verified", (document.id, checked.claims[0])

"""A clause leads to the law it cites, and from there to the case law on that article: over files and over functions."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.config import load
from citehound.drafts import Draft, DraftCitation, DraftClaim
from citehound.models.scripted import ScriptedModel, Turn, call
from citehound.sources.python import source

LEGAL = Path(__file__).parent / "data" / "legal"
CASES = [json.loads(line) for line in (LEGAL / "questions.jsonl").read_text("utf-8").splitlines()]
CLAUSE = "Norvik shall report personal data breaches in accordance with Article 14 of the Data Stewardship Act."
ARTICLE = "not later than 36 hours after it has become aware of it"
JUDGMENT = "An internal inquiry does not stop the 36 hours from running."


@pytest.fixture
def legal(tmp_path: Path) -> Path:
    at = tmp_path / "legal"
    shutil.copytree(LEGAL, at, ignore=shutil.ignore_patterns(".citehound"))
    return at / "citehound.toml"


def searching(folder: str) -> Callable[[str], Any]:
    """A static retriever over the files of one folder, as people have them: words, rare ones count more."""
    files = {p.name: p.read_text("utf-8") for p in sorted((LEGAL / folder).glob("*.md"))}
    held = {name: set(re.findall(r"\w{4,}", text.lower())) for name, text in files.items()}

    def search(query: str) -> list[dict[str, str]]:
        def score(name: str) -> float:
            met = set(re.findall(r"\w{4,}", query.lower())) & held[name]
            return sum(1 / sum(word in words for words in held.values()) for word in met)

        best = sorted(files, key=lambda name: (-score(name), name))[:3]
        return [{"path": name, "text": files[name]} for name in best if score(name)]

    return search


@pytest.fixture
def functions() -> list[Callable[..., Any]]:
    described = {s.name: s.description for s in load(LEGAL / "citehound.toml", env={}).sources}
    return [source(name=name, description=described[name])(searching(name)) for name in described]


def read_in(answer: Answer) -> set[str]:
    return {
        r.document
        for c in answer.calls
        if c.tool in ("read_document", "find_in_document") and c.error is None
        for r in c.returned
    }


def documents(case: dict[str, Any]) -> set[str]:
    return {m.split("#")[0] for m in case["must_read"]}


def check(answer: Answer, case: dict[str, Any]) -> None:
    assert documents(case) <= read_in(answer)
    assert answer.claims and all(c.status == "verified" for c in answer.claims)
    assert {c.document for claim in answer.claims for c in claim.citations} & documents(case)


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_the_offline_model_follows_the_chain_over_files(legal: Path, case: dict[str, Any]) -> None:
    with Assistant.open(legal) as assistant:
        check(assistant.ask_sync(case["question"], mode="agent"), case)


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_the_offline_model_follows_the_chain_over_functions(functions: Any, case: dict[str, Any]) -> None:
    with Assistant.over(*functions) as assistant:
        check(assistant.ask_sync(case["question"], mode="agent"), case)


def script() -> list[Turn]:
    claims = [
        (CLAUSE, "contracts/norvik-hosting", CLAUSE),
        ("The law gives 36 hours from becoming aware.", "laws/data-stewardship-act", ARTICLE),
        ("An inquiry of its own gives Norvik no more time.", "cases/sc-2019-044", JUDGMENT),
    ]
    drafted = [
        DraftClaim(text=text, citations=(DraftCitation(document=document, quote=quote),))
        for text, document, quote in claims
    ]
    concluded = DraftClaim(
        text="So Norvik has 36 hours from the first reasonable suspicion of its staff.",
        kind="conclusion",
        premises=(2, 3),
    )
    return [
        call("search_contracts", {"query": "Norvik data breach"}),
        call("read_document", {"document": "contracts/norvik-hosting"}),
        call("search_laws", {"query": "Data Stewardship Act Article 14 breaches"}),
        call("read_document", {"document": "laws/data-stewardship-act", "section": "14"}),
        call("search_cases", {"query": "Article 14 Data Stewardship Act aware 36 hours"}),
        call("read_document", {"document": "cases/sc-2019-044"}),
        Draft(claims=(*drafted, concluded)),
    ]


@pytest.fixture(params=["files", "functions"])
def assistant(request: pytest.FixtureRequest, legal: Path, functions: Any) -> Generator[Assistant]:
    model = ScriptedModel(script())
    made = Assistant.open(legal, model=model) if request.param == "files" else Assistant.over(*functions, model=model)
    with made as opened:
        yield opened


def test_a_scripted_model_follows_the_chain_and_every_claim_is_verified(assistant: Assistant) -> None:
    answer = assistant.ask_sync(CASES[0]["question"], mode="agent")
    assert [c.status for c in answer.claims] == ["verified"] * 4
    assert answer.status == "complete"
    assert [c.citations[0].section for c in answer.claims[:3]] == ["9.2", "14", "reasons"]
    check(answer, CASES[0])

"""Trust: its label goes along with texts, no source crowds the others out, and what differs between labels is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from citehound import config
from citehound.access import OWNER
from citehound.answers import Citation, Claim
from citehound.assistant import Assistant
from citehound.cli import main
from citehound.corpus import Corpus
from citehound.documents import OPEN
from citehound.index.fusion import shared_out
from citehound.toolbox import corpus_tools
from citehound.verification import differing
from small import write_corpus

FILES = {
    "rules/security.md": "# Security policy\n\nSecurity incidents are reported to the bank within 24 hours.\n",
    **{
        f"wiki/note-{n}.md": f"# Note {n}\n\nSecurity incidents: they are reported within 72 hours, says note {n}.\n"
        for n in range(9)
    },
}
TOML = '[[sources]]\nname = "rules"\npath = "rules"\n\n[[sources]]\nname = "wiki"\npath = "wiki"\ntrust = "open"\n'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust")
    with Corpus.open(config.load(write_corpus(folder, FILES, toml=TOML), env={}), write=True) as corpus:
        corpus.sync()
    return folder


@pytest.fixture
def corpus(root: Path) -> Generator[Corpus]:
    with Corpus.open(config.load(root / "citehound.toml", env={})) as opened:
        yield opened


def test_hits_reads_and_listings_say_whose_word_it_is(corpus: Corpus) -> None:
    hits = corpus.search(None, "incidents reported", principal=OWNER, k=10).hits
    assert {(hit.document.split("/")[0], hit.trust) for hit in hits} == {("rules", "reviewed"), ("wiki", "open")}
    assert corpus.read("wiki/note-1", principal=OWNER).trust == "open"
    assert corpus.find("wiki/note-1", "hours", principal=OWNER).passages[0].trust == "open"
    assert corpus.info("rules/security", principal=OWNER).trust == "reviewed"
    assert {i.trust for i in corpus.list_documents("wiki", principal=OWNER).documents} == {"open"}
    leads = corpus.chase("Within how many hours are incidents reported?", principal=OWNER)
    assert {(one.hit.document.split("/")[0], one.hit.trust) for one in leads} >= {("wiki", "open")}


def test_models_and_people_are_shown_open_sources(corpus: Corpus, root: Path) -> None:
    tools = {tool.name: tool for tool in corpus_tools(corpus, principal=OWNER)}
    found = tools["search_wiki"].run({"query": "incidents"}, 3000).result["hits"]
    assert all(hit["trust"] == OPEN for hit in found)
    assert tools["read_document"].run({"document": "wiki/note-1"}, 3000).result["trust"] == OPEN
    assert "trust" not in tools["read_document"].run({"document": "rules/security"}, 3000).result
    at = ["--config", str(root / "citehound.toml")]
    shown = json.loads(CliRunner().invoke(main, ["search", "wiki", "incidents", "--json", *at]).stdout)
    assert {hit["trust"] for hit in shown["hits"]} == {"open"}
    assert OPEN in CliRunner().invoke(main, ["search", "wiki", "incidents", *at]).stdout
    ran = CliRunner().invoke(main, ["read", "wiki/note-1", "--json", *at])
    assert json.loads(ran.stdout)["trust"] == "open"
    assert OPEN in CliRunner().invoke(main, ["read", "wiki/note-1", *at]).stderr


def test_citations_carry_trust_and_the_answer_says_where_labels_differ(corpus: Corpus) -> None:
    assistant = Assistant(corpus.config, corpus, record=False)
    answer = asyncio.run(assistant.ask("Within how many hours are security incidents reported?", mode="single"))
    trust = {c.document.split("/")[0]: c.trust for claim in answer.claims for c in claim.citations}
    assert trust == {"rules": "reviewed", "wiki": "open"}
    assert OPEN in answer.text
    said = [w for w in answer.warnings if w.startswith("sources differ")]
    assert said and "'24 hours'" in said[0] and "'72 hours'" in said[0] and "'rules/security' (reviewed" in said[0]


def test_one_source_fills_at_most_half_while_another_has_hits(corpus: Corpus) -> None:
    for k in (2, 6):
        hits = corpus.search(None, "incidents says note", principal=OWNER, k=k).hits
        assert sum(hit.trust == "open" for hit in hits) <= len(hits) / 2
        assert any(hit.document == "rules/security" for hit in hits)
    leads = corpus.chase("What says note 3 of incidents?", principal=OWNER, k=6)
    assert sum(one.hit.trust == "open" for one in leads) <= len(leads) / 2
    events: list[str] = []
    assistant = Assistant(corpus.config, corpus, record=False)
    answer = asyncio.run(assistant.ask("What do notes say about incidents?", mode="single"))
    read = [call.returned[0].document for call in answer.calls if call.tool == "read_document"]
    assert sum(document.startswith("wiki/") for document in read) <= len(read) / 2, events


@given(
    found=st.lists(st.sampled_from("aabbcw"), max_size=20),
    k=st.integers(1, 10),
    opened=st.sampled_from(["", "w", "aw"]),
)
def test_places_are_shared_out_in_order(found: list[str], k: int, opened: str) -> None:
    ranked = list(enumerate(found))
    taken = shared_out(ranked, k, source=lambda one: one[1], open_sources=set(opened))
    assert taken == sorted(taken) and len(taken) <= k and len(set(taken)) == len(taken)
    if len(set(found)) < 2:
        assert taken == ranked[:k]
        return
    left = [one for one in ranked if one not in taken]
    for name in set(found):
        mine, others = [o for o in taken if o[1] == name], [o for o in taken if o[1] != name]
        if name in opened and others:
            assert len(mine) <= len(others)
        if len(mine) > max(1, k // 2) and not opened:
            assert all(one[1] == name for one in left)  # nobody else could take the place
        assert mine == [one for one in ranked if one[1] == name][: len(mine)]  # the best of each


def _claim(text: str, document: str, trust: str, *, status: str = "verified") -> Claim:
    citation = Citation(
        document=document, quote=text, status="verified" if status == "verified" else "unverified", trust=trust
    )
    return Claim(text=text, status="verified", citations=(citation,))


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("Incidents are reported within 24 hours.", "Incidents are reported within 72 hours.", True),
        ("Incidents are reported within 24 hours.", "Incidents are reported within one day.", False),
        ("Incidents are reported within 24 hours.", "Incidents are reported within 3 days.", True),
        ("Incidents are reported within 24 hours.", "Incidents are reported at once.", False),
        ("Incidents are reported within 24 hours.", "Laptops are replaced after 4 years.", False),
        ("Incidents are reported within 24 hours.", "Incidents cost 500 euros.", False),
        ("The fee is 2 percent a year.", "The fee is 3 percent a year.", True),
    ],
)
def test_claims_of_different_trust_that_differ_are_listed(one: str, other: str, differ: bool) -> None:
    claims = (_claim(one, "rules/a", "reviewed"), _claim(other, "wiki/b", "open"))
    assert bool(differing(claims)) is differ
    assert differing((_claim(one, "rules/a", "reviewed"), _claim(other, "rules/b", "reviewed"))) == ()
    assert differing((_claim(one, "wiki/a", "open"), _claim(other, "wiki/b", "open"))) == ()
    assert differing((claims[0], _claim(other, "wiki/b", "open", status="unverified"))) == ()


def test_premises_of_one_conclusion_differ_whatever_their_words() -> None:
    claims = (
        _claim("The notice period is 24 hours.", "rules/a", "reviewed"),
        _claim("Suppliers have 72 hours to tell.", "wiki/b", "open"),
        Claim(text="They do not agree.", kind="conclusion", status="verified", premises=(1, 2)),
    )
    assert differing(claims[:2]) == () and len(differing(claims)) == 1


def test_a_copy_in_another_source_counts_once(tmp_path: Path) -> None:
    text = (
        "# Rule\n\n"
        + "Every incident is reported to the bank in writing within one day after it was found by anyone at all.\n"
    )
    files = {"rules/rule.md": text, "wiki/rule.md": text}
    with Corpus.open(config.load(write_corpus(tmp_path, files, toml=TOML), env={}), write=True) as corpus:
        corpus.sync()
        hits = corpus.search(None, "incident", principal=OWNER).hits
        assert len(hits) == 1 and hits[0].labels == ("same text in wiki/rule",)

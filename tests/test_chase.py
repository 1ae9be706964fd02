"""The chase: several hops in one call, the way to each hit, and what it may not reach."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.corpus import Corpus
from citehound.toolbox import corpus_tools
from small import opened

TOML = """
[[sources]]
name = "rules"
path = "rules"

[[sources]]
name = "deals"
path = "deals"
filters = ["supplier"]
"""
FILES = {
    "rules/outsourcing.md": (
        "---\ntitle: Outsourcing Policy\n---\n# Outsourcing Policy\n\n## 7.2 Annexes\n\n"
        "The encryption strength of a supplier is set in the Cipher Standard.\n"
    ),
    "rules/cipher.md": "---\ntitle: Cipher Standard\n---\n# Cipher Standard\n\nData at rest has keys of 256 bits.\n",
    "rules/old-cipher.md": (
        "---\ntitle: Cipher Standard\nstatus: superseded\n---\n# Cipher Standard\n\nKeys of 128 bits.\n"
    ),
    "rules/travel.md": "---\ntitle: Travel Rules\n---\n# Travel Rules\n\nTrains come before planes.\n",
    "rules/canteen.md": "---\ntitle: Canteen\n---\n# Canteen\n\nLunch is served at noon.\n",
    "deals/alpha.md": "---\ntitle: Contract Alpha\nsupplier: Alpha\n---\n# Alpha\n\nAlpha keeps to Annex III.\n",
    "deals/beta.md": "---\ntitle: Contract Beta\nsupplier: Beta\n---\n# Contract Beta\n\nBeta may travel.\n",
}
QUESTION = "How long are the keys that the Outsourcing Policy asks of a supplier?"


@pytest.fixture
def corpus(tmp_path: Path) -> Generator[Corpus]:
    with opened(tmp_path, FILES, toml=TOML) as found:
        yield found


def test_a_text_that_another_names_is_reached_and_the_way_is_said(corpus: Corpus) -> None:
    found = {c.hit.document: c for c in corpus.chase("What does the Outsourcing Policy ask?", principal=OWNER)}
    assert "rules/cipher" in found
    assert str(found["rules/cipher"].way) == "via rules/outsourcing §7.2: 'Cipher Standard'"
    assert str(found["rules/outsourcing"].way) == "named in the question"


def test_the_document_that_is_pointed_to_comes_before_what_is_merely_there(corpus: Corpus) -> None:
    order = list(dict.fromkeys(c.hit.document for c in corpus.chase(QUESTION, principal=OWNER)))
    assert set(order[:2]) == {"rules/outsourcing", "rules/cipher"}


def test_what_does_not_hold_is_not_reached_unless_asked_for(corpus: Corpus) -> None:
    assert all(c.hit.current for c in corpus.chase(QUESTION, principal=OWNER))
    every = corpus.chase(QUESTION, principal=OWNER, only_current=False)
    assert "rules/old-cipher" in {c.hit.document for c in every}


def test_source_and_filters_bound_it_and_an_unknown_value_gives_nothing(corpus: Corpus) -> None:
    assert {c.hit.document for c in corpus.chase("Alpha travel", principal=OWNER, source="deals")} <= {
        "deals/alpha",
        "deals/beta",
    }
    only = corpus.chase("travel", principal=OWNER, source="deals", filters={"supplier": "Beta"})
    assert {c.hit.document for c in only} == {"deals/beta"}
    assert corpus.chase("travel", principal=OWNER, source="deals", filters={"supplier": "Gamma"}) == ()


def test_from_a_document_only_where_it_leads(corpus: Corpus) -> None:
    found = corpus.chase("keys", principal=OWNER, start="rules/outsourcing")
    assert [c.hit.document for c in found][:1] == ["rules/cipher"]
    assert "rules/outsourcing" not in {c.hit.document for c in found}


def test_the_same_question_gives_the_same_hits(corpus: Corpus) -> None:
    assert corpus.chase(QUESTION, principal=OWNER) == corpus.chase(QUESTION, principal=OWNER)


@pytest.mark.parametrize("question", ["", "   ", "???", "the of and", "x" * 5000])
def test_a_question_without_words_gives_no_error(corpus: Corpus, question: str) -> None:
    assert corpus.chase(question, principal=OWNER) == ()


def test_an_empty_corpus_gives_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, {"rules/.keep": "", "deals/.keep": ""}, toml=TOML) as corpus:
        assert corpus.chase(QUESTION, principal=OWNER) == ()


def test_inside_a_long_document_that_is_named_the_fitting_passages_come_first(tmp_path: Path) -> None:
    parts = "\n\n".join(f"## {n} Part {n}\n\nGeneral words about part {n}." for n in range(1, 12))
    text = f"# Agreement with Zeta\n\n{parts}\n\n## 12 Reverse engineering\n\nNobody takes samples apart.\n"
    files = {**FILES, "deals/zeta.md": f"---\ntitle: Agreement with Zeta\nsupplier: Zeta\n---\n{text}"}
    with opened(tmp_path, files, toml=TOML) as corpus:
        question = "Consider Zeta's agreement; is reverse engineering of samples allowed?"
        first = corpus.chase(question, principal=OWNER)[0]
        assert (first.hit.document, first.hit.section) == ("deals/zeta", "12")


def test_the_tool_gives_hits_with_their_way_and_refuses_what_it_cannot_use(corpus: Corpus) -> None:
    tool = next(t for t in corpus_tools(corpus, principal=OWNER) if t.name == "follow_leads")
    assert tool.effect == "read"
    found = tool.run({"question": QUESTION}, 3000)
    hits = {hit["document"]: hit for hit in found.result["hits"]}
    assert hits["rules/cipher"]["way"] == "via rules/outsourcing §7.2: 'Cipher Standard'"
    assert {h.document for h in found.hits} == set(hits)
    assert found.passages == ()
    started = tool.run({"question": "keys", "document": "rules/outsourcing"}, 3000)
    assert [hit["document"] for hit in started.result["hits"]][:1] == ["rules/cipher"]


def test_the_tool_keeps_to_its_cap(corpus: Corpus) -> None:
    tool = next(t for t in corpus_tools(corpus, principal=OWNER) if t.name == "follow_leads")
    assert len(tool.run({"question": QUESTION}, 150).result["hits"]) == 1


NOTES = '[[sources]]\nname = "notes"\npath = "notes"\n'


def test_a_word_that_stands_everywhere_names_no_long_document(tmp_path: Path) -> None:
    rules = "".join(
        f"## {n}. Part {n}\n\nAt Nordbank people of part {n} are invited to the canteen.\n\n" for n in range(1, 9)
    )
    files = {"notes/staff.md": "# Staff of Nordbank\n\n" + rules}
    files |= {f"notes/n{n}.md": f"# Note {n}\n\nNordbank keeps file {n}.\n" for n in range(200)}
    files["notes/keys.md"] = "# Leaked keys\n\nA leaked key is revoked and reported within the hour.\n"
    with opened(tmp_path, files, toml=NOTES) as corpus:
        hits = corpus.chase("A key leaked: whom at Nordbank do I tell, and how soon?", principal=OWNER, k=3)
    assert hits[0].hit.document == "notes/keys"

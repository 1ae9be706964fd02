"""What leads from one passage to others: names, references, and by what names documents are called."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from citehound.access import OWNER
from citehound.index.embedded import EmbeddedIndex
from citehound.index.links import calls, key_of, names_in, pack, spelt, unpack, wording
from index_conformance import entry

TEXT = (
    "Every supplier meets Annex III and section 7.2 of the Data Classification Policy (POL-012). "
    "Dr. Mary O'Neill wrote incident-policy.md. “Confidential Information” means what is marked."
)


def names(text: str) -> list[str]:
    return [name.text for name in names_in(text)]


def test_names_codes_files_quoted_terms_and_references_are_found() -> None:
    found = names(TEXT)
    for name in ("Annex III", "POL-012", "incident-policy.md", "Confidential Information"):
        assert name in found
    assert any("Data Classification Policy" in name for name in found)
    assert [n.text for n in names_in(TEXT) if n.reference] == ["Annex III", "section 7.2"]


def test_a_title_ends_no_sentence() -> None:
    words = wording(TEXT, title="Suppliers", language="en")
    assert len(words.sentences) == 3


def test_words_near_a_place_stay_in_its_sentence() -> None:
    text = "He was directed. Mary was born in Rome."
    words = wording(text, title="", language="en")
    assert "direct" not in words.around(text.index("Mary"), text.index("Mary") + 4)
    assert "born" in words.around(text.index("Mary"), text.index("Mary") + 4)


def test_what_is_packed_comes_back() -> None:
    words = (wording(TEXT, title="A > B", language="en"), wording("", title="", language=None))
    assert unpack(pack(words)) == words


def test_a_document_is_called_by_title_file_name_and_id_without_version_or_brackets() -> None:
    called = {" ".join(c.words) for c in calls(title="Outsourcing Policy v4 (draft)", path="a/outs-4.md", metadata={})}
    assert "outsourcing policy" in called
    assert {" ".join(c.words) for c in calls(title="X", path="a/b.md", metadata={"id": "POL-012"})} == {"pol 012"}


def test_a_short_or_common_word_is_no_name() -> None:
    assert calls(title="The", path="a.md", metadata={}) == ()
    assert calls(title="12", path="12.md", metadata={}) == ()


def test_a_file_name_is_read_as_words() -> None:
    assert "Standard NDA Format" in spelt("StandardNDAFormat")
    assert "Model NDA" in spelt("Model%20NDA")


def test_keys_tell_names_apart() -> None:
    assert key_of(["a", "b"]) != key_of(["ab"])
    assert key_of(["annex", "a"]) == key_of(iter(["annex", "a"]))


def mentioned(index: EmbeddedIndex, text: str) -> list[str]:
    trail = index.trail(principal=OWNER)
    assert trail is not None
    heads = [trail.head(row) for m in trail.mentions(text, capitalised=True) for row, _ in m.documents]
    return [head.document for head in heads if head is not None]


def test_a_document_added_later_is_linked_from_an_old_one_and_a_removed_one_no_more(tmp_path: Path) -> None:
    pointer = "Data is graded as the Data Classification Policy says."
    with EmbeddedIndex(tmp_path / "index", write=True) as index:
        index.add([entry("p/one", pointer, title="Outsourcing")])
        index.commit()
        assert mentioned(index, pointer) == []
        index.add([entry("p/two", "Public, internal, secret.", title="Data Classification Policy v2")])
        index.commit()
        assert mentioned(index, pointer) == ["p/two"]
        index.remove(["p/two"])
        index.commit()
        assert mentioned(index, pointer) == []


def test_a_replaced_document_leaves_nothing_of_its_links(tmp_path: Path) -> None:
    with EmbeddedIndex(tmp_path / "index", write=True) as index:
        index.add([entry("p/one", "Old.", title="Old Name Policy")])
        index.commit()
        index.add([entry("p/one", "New.", title="New Name Policy")])
        index.commit()
        assert mentioned(index, "See the Old Name Policy.") == []
        assert mentioned(index, "See the New Name Policy.") == ["p/one"]
    with sqlite3.connect(tmp_path / "index" / "documents.db") as db:
        rows = {r for (r,) in db.execute("SELECT row FROM documents")}
        assert {r for (r,) in db.execute("SELECT row FROM wordings")} == rows
        assert {r for (r,) in db.execute("SELECT row FROM calls")} == rows


def test_a_run_that_ends_before_its_commit_leaves_no_link(tmp_path: Path) -> None:
    with EmbeddedIndex(tmp_path / "index", write=True) as index:
        index.add([entry("p/one", "First.", title="First Policy")])
    index = EmbeddedIndex(tmp_path / "index", write=True)
    index.add([entry("p/two", "Second.", title="Second Policy")])
    index.abandon()
    with EmbeddedIndex(tmp_path / "index") as index:
        assert mentioned(index, "The Second Policy and the First Policy.") == ["p/one"]


def test_an_index_of_before_gets_its_links_when_it_is_next_written(tmp_path: Path) -> None:
    with EmbeddedIndex(tmp_path / "index", write=True) as index:
        index.add([entry("p/one", "First.", title="First Policy")])
        index.commit()
        db = sqlite3.connect(tmp_path / "index" / "documents.db", timeout=10)
        db.execute("DELETE FROM wordings")
        db.execute("DELETE FROM calls")
        db.commit()
        db.close()
    with EmbeddedIndex(tmp_path / "index", write=True) as index:
        assert mentioned(index, "The First Policy.") == ["p/one"]

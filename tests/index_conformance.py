"""What every search backend must do: a class of tests that a backend inherits, giving `make_index`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import date
from typing import Protocol

import pytest

from citehound.access import OWNER, Access, Principal, Rule
from citehound.documents import Chunk, Document, Section
from citehound.errors import UnknownDocument
from citehound.index import FileState, Index, IndexEntry

TODAY = date(2025, 6, 1)
A = Principal(name="ann", groups=frozenset({"a"}))
B = Principal(name="ben", groups=frozenset({"b"}))
EVE = Principal(name="eve")
RIGHTS = Access(
    sources={"a": frozenset({"a"}), "b": frozenset({"b"}), "p": None},
    rules=(Rule(paths=("p/both/",), groups=frozenset({"a", "b"})), Rule(paths=("p/own",), groups=frozenset())),
)


class MakeIndex(Protocol):
    def __call__(self, access: Callable[[], Access] = ...) -> Index:
        """An empty index that can be written; without `access` everyone may see everything."""
        ...


def entry(
    name: str,
    *paragraphs: str,
    title: str = "",
    metadata: Mapping[str, str] | None = None,
    language: str | None = "en",
    content_hash: str = "h",
) -> IndexEntry:
    """A document 'source/name' with one section and one chunk per paragraph."""
    source, _, rest = name.partition("/")
    text = "\n\n".join(paragraphs)
    sections: list[Section] = []
    chunks: list[Chunk] = []
    at = 0
    for ordinal, part in enumerate(paragraphs):
        end = at + len(part)
        section = f"{ordinal + 1}"
        sections.append(Section(id=section, title=f"Part {section}", level=1, start=at, end=end, number=section))
        chunks.append(
            Chunk(
                document=name,
                ordinal=ordinal,
                section=section,
                start=at,
                end=end,
                text=part,
                context=f"{title} > Part {section}",
            )
        )
        at = end + 2
    return IndexEntry(
        document=Document(
            id=name,
            source=source,
            path=f"{rest}.md",
            title=title or rest,
            text=text,
            sections=tuple(sections),
            metadata=dict(metadata or {}),
            language=language,
        ),
        chunks=tuple(chunks),
        state=FileState(source=source, path=f"{rest}.md", document=name, content_hash=content_hash, metadata_hash="m"),
    )


def filled(index: Index, *entries: IndexEntry) -> Index:
    index.add(entries)
    index.commit()
    return index


def found(index: Index, query: str, **options: object) -> list[str]:
    result = index.search(query, principal=OWNER, **options)  # type: ignore[arg-type]
    return [hit.document for hit in result.hits]


class IndexConformance:
    """Inherit, and give a fixture `make_index` that makes an empty, writable index whose today is `TODAY`."""

    # -- finding

    def test_a_word_finds_its_document_and_the_span_of_its_chunk(self, make_index: MakeIndex) -> None:
        one = entry("a/x", "Nothing here.", "Encryption at rest is needed.", title="Rules")
        index = filled(make_index(), one, entry("a/y", "Catering and cleaning."))
        hits = index.search("encryption", principal=OWNER).hits
        assert [h.document for h in hits] == ["a/x"]
        assert one.document.text[hits[0].start : hits[0].end] == "Encryption at rest is needed."
        assert hits[0].section == "2"
        assert hits[0].current and hits[0].score > 0

    def test_inflected_words_are_found_in_the_language_of_the_document(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("a/en", "The supplier notifies the bank."),
            entry("a/de", "Die Verträge regeln die Kündigungen.", language="de"),
            entry("a/fr", "Les données sont chiffrées.", language="fr"),
        )
        assert found(index, "notify suppliers") == ["a/en"]
        assert found(index, "Kündigung") == ["a/de"]
        assert found(index, "donnée chiffrée") == ["a/fr"]

    @pytest.mark.parametrize("query", ["uberprufung", "ÜBERPRÜFUNG", "U\u0308berpru\u0308fung", "Überprüfung"])
    def test_case_accents_and_unicode_form_do_not_matter(self, make_index: MakeIndex, query: str) -> None:
        index = filled(make_index(), entry("a/de", "Jährliche Überprüfung der Anbieter.", language="de"))
        assert found(index, query) == ["a/de"]

    @pytest.mark.parametrize(
        ("query", "document"),
        [("加密", "a/zh"), ("税", "a/zh"), ("暗号化", "a/ja"), ("암호화", "a/ko"), ("ข้อมูล", "a/th")],
    )
    def test_a_word_inside_a_sentence_without_spaces_is_found(
        self, make_index: MakeIndex, query: str, document: str
    ) -> None:
        index = filled(
            make_index(),
            entry("a/zh", "供应商必须对客户数据进行加密并缴税。", language="zh"),
            entry("a/ja", "顧客のデータは保存時に暗号化される。", language="ja"),
            entry("a/ko", "고객 데이터는 암호화되어야 한다.", language="ko"),
            entry("a/th", "ผู้ให้บริการต้องเข้ารหัสข้อมูลลูกค้า", language="th"),
        )
        assert found(index, query) == [document]

    def test_title_section_and_metadata_are_searched(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("a/x", "Text.", title="Outsourcing Policy"),
            entry("a/y", "Other text.", metadata={"supplier": "Gamma"}),
        )
        assert found(index, "outsourcing") == ["a/x"]
        assert found(index, "gamma") == ["a/y"]

    def test_a_title_counts_more_than_a_mention(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("a/mention", "Suppliers follow the retention rules of the bank.", title="Suppliers"),
            entry("a/about", "Files are kept for ten years after the end.", title="Retention"),
        )
        assert found(index, "retention")[0] == "a/about"

    def test_numbers_with_dots_are_found_as_a_whole(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Version 7.25 is out."), entry("a/y", "Steps 25 and 7 are out."))
        assert found(index, "7.25")[0] == "a/x"

    @pytest.mark.parametrize(
        "query",
        ["", "   ", '"', '"open phrase', "AND", "a AND", "OR OR", "NOT", "(", "[a TO", "field:value", "*", "?", "~2",
         "^", "\\", "a" * 10_000, "word " * 2_000, "\x00", "\ud800", "😀", "-", "+x -y", "'", "/re/", "{}", "!"],
    )  # fmt: skip
    def test_no_query_raises(self, make_index: MakeIndex, query: str) -> None:
        index = filled(make_index(), entry("a/x", "Some words and others."))
        index.search(query, principal=OWNER)
        index.lexicon(principal=OWNER).frequency(query)

    def test_operators_mean_nothing(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption is needed."), entry("a/y", "Catering."))
        assert found(index, "NOT encryption") == ["a/x"]

    def test_snippets_show_the_words_and_stay_short(self, make_index: MakeIndex) -> None:
        long = "Filler sentence about nothing in particular. " * 40 + "Keys rotate every month. " + "More filler. " * 90
        hit = filled(make_index(), entry("a/x", long)).search("rotating keys", principal=OWNER).hits[0]
        assert "Keys rotate every month" in hit.snippet
        assert len(hit.snippet) <= 300

    def test_at_most_so_many_hits_per_document(self, make_index: MakeIndex) -> None:
        many = entry("a/many", *[f"Encryption rule {n}." for n in range(60)])
        index = filled(make_index(), many, entry("a/one", "There is one long text that mentions encryption somewhere."))
        assert sorted(found(index, "encryption", per_document=2)) == ["a/many", "a/many", "a/one"]
        assert len(found(index, "encryption", per_document=100, k=50)) == 50

    def test_k_bounds_the_hits_and_the_best_come_first(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), *[entry(f"a/d{n}", f"Encryption text number {n}.") for n in range(20)])
        result = index.search("encryption", principal=OWNER, k=5)
        scores = [hit.score for hit in result.hits]
        assert len(scores) == 5 and scores == sorted(scores, reverse=True)
        assert index.search("encryption", principal=OWNER, k=0).hits == ()

    def test_the_same_search_gives_the_same_answer(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), *[entry(f"a/d{n}", "Encryption text.") for n in range(20)])
        assert found(index, "encryption text") == found(index, "encryption text")

    # -- filters

    def test_filters_narrow_by_source_metadata_and_documents(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("a/x", "Encryption.", metadata={"supplier": "Alpha"}),
            entry("a/y", "Encryption.", metadata={"supplier": "Beta"}),
            entry("b/z", "Encryption.", metadata={"supplier": "Alpha"}),
        )
        assert sorted(found(index, "encryption", source="a")) == ["a/x", "a/y"]
        assert found(index, "encryption", filters={"supplier": "Alpha"}) == ["a/x", "b/z"]
        assert found(index, "encryption", source="a", filters={"supplier": "Alpha"}) == ["a/x"]
        assert found(index, "encryption", documents=["a/y"]) == ["a/y"]
        assert found(index, "encryption", documents=[]) == []

    @pytest.mark.parametrize("value", ["cafe munchen", "CAFÉ MÜNCHEN", "Cafe\u0301  Mu\u0308nchen", " Café München "])
    def test_filter_values_match_without_case_accents_or_unicode_form(self, make_index: MakeIndex, value: str) -> None:
        index = filled(make_index(), entry("a/x", "Encryption.", metadata={"supplier": "Café München"}))
        assert found(index, "encryption", filters={"Supplier": value}) == ["a/x"]

    def test_a_member_of_a_list_matches(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption.", metadata={"tags": "cloud, bank"}))
        assert found(index, "encryption", filters={"tags": "bank"}) == ["a/x"]

    def test_an_unknown_value_gives_no_hits_and_the_nearest_values(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption.", metadata={"supplier": "Alpha"}))
        result = index.search("encryption", principal=OWNER, filters={"supplier": "Alfa"})
        assert result.hits == ()
        assert any("'Alfa'" in note and "'Alpha'" in note for note in result.notes)

    def test_an_unknown_filter_gives_no_hits_and_the_nearest_name(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption.", metadata={"supplier": "Alpha"}))
        result = index.search("encryption", principal=OWNER, filters={"suplier": "Alpha"})
        assert result.hits == ()
        assert any("'suplier'" in note and "'supplier'" in note for note in result.notes)
        assert index.list_documents(principal=OWNER, filters={"suplier": "Alpha"}).total == 0

    def test_a_value_of_another_source_is_unknown_here(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("a/x", "Encryption.", metadata={"supplier": "Alpha"}),
            entry("b/x", "Encryption.", metadata={"supplier": "Beta"}),
        )
        result = index.search("encryption", principal=OWNER, source="a", filters={"supplier": "Beta"})
        assert result.hits == () and result.notes

    # -- versions

    def test_what_does_not_hold_is_hidden_counted_and_can_be_asked_for(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("p/v2", "Encryption rules, third edition.", metadata={"status": "superseded", "superseded_by": "v3"}),
            entry("p/v3", "Encryption rules.", metadata={"status": "current", "supersedes": "v2"}),
            entry("p/v4", "Encryption rules.", metadata={"status": "Draft"}),
        )
        result = index.search("encryption", principal=OWNER)
        assert [h.document for h in result.hits] == ["p/v3"]
        assert result.hidden_superseded == 2
        all_versions = index.search("encryption", principal=OWNER, only_current=False)
        labels = {h.document: (h.current, h.labels) for h in all_versions.hits}
        assert labels == {
            "p/v2": (False, ("superseded by p/v3",)),
            "p/v3": (True, ()),
            "p/v4": (False, ("draft",)),
        }
        assert all_versions.hidden_superseded == 0

    def test_a_document_is_superseded_by_the_word_of_its_successor(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(), entry("p/old", "Encryption."), entry("p/new", "Encryption.", metadata={"supersedes": "old"})
        )
        assert found(index, "encryption") == ["p/new"]
        info = index.info("p/old", principal=OWNER)
        assert info is not None and not info.current and info.superseded_by == ("p/new",)

    def test_it_holds_again_when_the_successor_is_removed(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(), entry("p/old", "Encryption."), entry("p/new", "Encryption.", metadata={"supersedes": "old"})
        )
        index.remove(["p/new"])
        index.commit()
        assert found(index, "encryption") == ["p/old"]

    @pytest.mark.parametrize("metadata", [{"status": "draft"}, {"effective": "2025-06-02"}])
    def test_a_successor_that_does_not_hold_yet_hides_nothing(
        self, make_index: MakeIndex, metadata: dict[str, str]
    ) -> None:
        index = filled(
            make_index(),
            entry("p/old", "Encryption."),
            entry("p/new", "Encryption.", metadata={"supersedes": "old", **metadata}),
        )
        assert found(index, "encryption") == ["p/old"]

    def test_an_amended_document_holds_and_is_labelled(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("c/annex", "Encryption."),
            entry("c/amendment", "Other words.", metadata={"amends": "annex"}),
        )
        hit = index.search("encryption", principal=OWNER).hits[0]
        assert hit.current and hit.labels == ("amended by c/amendment",)

    # -- documents

    def test_a_document_comes_back_as_it_was_given(self, make_index: MakeIndex) -> None:
        one = entry("a/ü #1", "Text with \u00a0 odd 😀 characters.", "Second.", title="Ü", metadata={"k": "v"})
        index = filled(make_index(), one)
        assert index.document("a/ü #1", principal=OWNER) == one.document
        assert index.document("a/other", principal=OWNER) is None
        assert index.info("a/other", principal=OWNER) is None
        assert list(index.ids(principal=OWNER)) == ["a/ü #1"]
        assert index.paths(principal=OWNER) == {"a/ü #1": "a/ü #1.md"}

    def test_adding_again_replaces(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption.", "Keys."))
        filled(index, entry("a/x", "Catering."))
        assert found(index, "encryption keys") == []
        assert found(index, "catering") == ["a/x"]
        assert index.lexicon(principal=OWNER).passages == 1

    def test_adding_twice_in_one_commit_keeps_the_last(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption."), entry("a/x", "Catering."))
        assert found(index, "encryption") == []
        assert found(index, "catering") == ["a/x"]

    def test_a_removed_document_is_gone(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption."), entry("a/y", "Encryption."))
        index.remove(["a/x", "a/unknown"])
        index.commit()
        assert found(index, "encryption") == ["a/y"]
        assert index.document("a/x", principal=OWNER) is None
        assert "x.md" not in index.files("a")

    def test_listing_pages_filters_and_counts(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            *[entry(f"a/d{n}", "Text.", metadata={"supplier": "Alpha" if n % 2 else "Beta"}) for n in range(8)],
            entry("a/old", "Text.", metadata={"supplier": "Alpha", "status": "superseded"}),
            entry("b/z", "Text."),
        )
        listed = index.list_documents(principal=OWNER, source="a", filters={"supplier": "alpha"}, limit=2)
        assert [d.document for d in listed.documents] == ["a/d1", "a/d3"]
        assert (listed.total, listed.hidden_superseded) == (4, 1)
        rest = index.list_documents(principal=OWNER, source="a", filters={"supplier": "alpha"}, start=2)
        assert [d.document for d in rest.documents] == ["a/d5", "a/d7"]
        assert index.list_documents(principal=OWNER, only_current=False).total == 10

    def test_file_states_are_remembered_with_failures(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption.", content_hash="one"))
        assert index.files("a")["x.md"].content_hash == "one"
        failed = FileState(
            source="a", path="x.md", document="a/x", content_hash="two", metadata_hash="m", error="broken"
        )
        index.record_failure(failed)
        index.commit()
        assert index.files("a") == {"x.md": failed}
        assert found(index, "encryption") == []
        assert index.files("other") == {}

    def test_sources_are_known_by_their_files_until_these_are_forgotten(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption."), entry("b/y", "Encryption."))
        assert sorted(index.sources()) == ["a", "b"]
        index.remove(["b/y"])
        index.forget("b", "y.md")
        index.commit()
        assert list(index.sources()) == ["a"]
        assert index.files("b") == {}

    def test_it_says_whether_there_is_any_document(self, make_index: MakeIndex) -> None:
        index = make_index()
        assert not index.any_document()
        filled(index, entry("a/x", "Encryption."))
        assert index.any_document()
        index.remove(["a/x"])
        index.commit()
        assert not index.any_document()

    @pytest.mark.parametrize("name", ["a/sub/x", "a/sub/x.md", "sub/x", "x", "X.md"])
    def test_a_document_goes_by_id_path_or_suffix(self, make_index: MakeIndex, name: str) -> None:
        index = filled(make_index(), entry("a/sub/x", "Encryption."), entry("a/y", "Encryption."))
        assert index.resolve(name, principal=OWNER) == "a/sub/x"

    def test_an_unknown_or_ambiguous_name_says_what_is_near(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/report", "Encryption."), entry("b/report", "Encryption."))
        with pytest.raises(UnknownDocument, match=r"a/report.*b/report"):
            index.resolve("report", principal=OWNER)
        with pytest.raises(UnknownDocument, match="a/report"):
            index.resolve("a/reprot", principal=OWNER)

    def test_a_sound_index_has_no_warnings(self, make_index: MakeIndex) -> None:
        assert list(make_index().warnings) == []

    def test_what_is_hidden_does_not_crowd_out_what_holds(self, make_index: MakeIndex) -> None:
        old = [entry(f"a/old{n}", "Encryption. " * 3, metadata={"status": "superseded"}) for n in range(60)]
        index = filled(make_index(), *old, entry("a/new", "A text about encryption and much else besides."))
        result = index.search("encryption", principal=OWNER, k=3)
        assert [hit.document for hit in result.hits] == ["a/new"]
        assert result.hidden_superseded == 60
        everything = index.search("encryption", principal=OWNER, k=3, only_current=False)
        assert len(everything.hits) == 3 and everything.hidden_superseded == 0

    def test_values_come_most_frequent_first(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            *[entry(f"a/d{n}", "Text.", metadata={"supplier": s}) for n, s in enumerate(["Beta", "Alpha", "Alpha"])],
        )
        assert list(index.values("a", "supplier", principal=OWNER)) == ["Alpha", "Beta"]
        assert list(index.values("a", "nothing", principal=OWNER)) == []

    def test_the_lexicon_counts_stems_and_knows_titles(self, make_index: MakeIndex) -> None:
        index = filled(
            make_index(),
            entry("a/x", "The supplier notifies.", "Nothing.", title="Notices", metadata={"supplier": "Alpha"}),
            entry("a/y", "A notification of suppliers.", title="Other"),
        )
        lexicon = index.lexicon(principal=OWNER)
        assert lexicon.passages == 3
        assert lexicon.frequency("suppliers") >= 2
        assert lexicon.frequency("zebra") == 0
        assert lexicon.values("a")["supplier"] == ("Alpha",)
        assert set(lexicon.titles()) == {("a/x", "Notices"), ("a/y", "Other")}

    def test_reading_functions_require_who_asks(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), entry("a/x", "Encryption."))
        arguments = {"search": ["q"], "document": ["d"], "info": ["d"], "resolve": ["d"], "values": ["a", "k"]}
        for name in ("search", "document", "info", "list_documents", "resolve", "ids", "paths", "values", "lexicon"):
            with pytest.raises(TypeError, match="principal"):
                getattr(index, name)(*arguments.get(name, []))

    def test_many_threads_read_at_once(self, make_index: MakeIndex) -> None:
        index = filled(make_index(), *[entry(f"a/d{n}", f"Encryption text word{n}.") for n in range(30)])
        wrong: list[object] = []

        def look(number: int) -> None:
            try:
                for n in range(number, number + 10):
                    assert found(index, f"word{n}") == [f"a/d{n}"]
                    assert index.document(f"a/d{n}", principal=OWNER) is not None
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=look, args=(n,)) for n in range(0, 20, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_an_empty_index_answers(self, make_index: MakeIndex) -> None:
        index = make_index()
        assert index.search("encryption", principal=OWNER).hits == ()
        assert index.list_documents(principal=OWNER).total == 0
        assert index.lexicon(principal=OWNER).passages == 0

    def test_it_keeps_the_protocol(self, make_index: MakeIndex) -> None:
        assert isinstance(make_index(), Index)

    # -- who asks

    def test_everybody_finds_what_they_may_see_and_nothing_else(self, make_index: MakeIndex) -> None:
        index = filled(make_index(lambda: RIGHTS), *MIXED)
        seen = {who.name: sorted(index.ids(principal=who)) for who in (OWNER, A, B, EVE)}
        assert seen == {
            "owner": ["a/x", "b/y", "b/y2", "p/both/t", "p/own", "p/z"],
            "ann": ["a/x", "p/both/t", "p/z"],
            "ben": ["b/y", "b/y2", "p/both/t", "p/z"],
            "eve": ["p/z"],
        }
        for who in (OWNER, A, B, EVE):
            hits = index.search("encryption", principal=who, k=10, only_current=False).hits
            assert sorted(hit.document for hit in hits) == seen[who.name]
            assert sorted(index.paths(principal=who)) == seen[who.name]

    def test_what_is_forbidden_is_missing(self, make_index: MakeIndex) -> None:
        index = filled(make_index(lambda: RIGHTS), *MIXED)
        for name in ("b/y", "y", "p/own", "own"):
            with pytest.raises(UnknownDocument) as forbidden:
                index.resolve(name, principal=A)
            with pytest.raises(UnknownDocument) as missing:
                filled(make_index(lambda: RIGHTS), *OF_A).resolve(name, principal=A)
            assert str(forbidden.value) == str(missing.value)
        assert index.document("b/y", principal=A) is None and index.info("b/y", principal=A) is None
        assert list(index.chunks("b/y", principal=A)) == []
        assert index.search("encryption", principal=A, documents=["b/y"]).hits == ()

    def test_an_index_without_the_others_documents_says_the_same(self, make_index: MakeIndex) -> None:
        both, alone = filled(make_index(lambda: RIGHTS), *MIXED), filled(make_index(lambda: RIGHTS), *OF_A)
        for index in (both, alone):
            index.embed(["warm"])
        for query in ("encryption keys", "vault", "notify supplier", "secretword"):
            for current in (True, False):
                one, other = (i.search(query, principal=A, k=10, only_current=current) for i in (both, alone))
                assert one == other
            assert both.explain(query, principal=A) == alone.explain(query, principal=A)
        assert both.list_documents(principal=A) == alone.list_documents(principal=A)
        for key in ("supplier", "suplier"):
            assert list(both.values("p", key, principal=A)) == list(alone.values("p", key, principal=A))
        one, other = (i.search("x", principal=A, source="p", filters={"supplier": "Alfa"}) for i in (both, alone))
        assert one == other
        one, other = both.lexicon(principal=A), alone.lexicon(principal=A)
        assert (one.passages, one.frequency("keys")) == (other.passages, other.frequency("keys"))
        assert list(one.titles()) == list(other.titles())

    def test_a_forbidden_successor_or_copy_changes_nothing(self, make_index: MakeIndex) -> None:
        long = (
            "The supplier notifies the bank of every incident in writing and within one day after it was found by"
            " anyone."
        )
        index = filled(
            make_index(lambda: RIGHTS),
            entry("b/copy", long, title="Rule"),
            entry("p/rule", long, title="Rule"),
            entry("b/next", "Other words.", metadata={"supersedes": "p/rule"}),
            entry("b/mends", "Other words.", metadata={"amends": "p/rule"}),
        )
        result = index.search("incident", principal=A)
        assert [(hit.document, hit.current, hit.labels) for hit in result.hits] == [("p/rule", True, ())]
        assert result.hidden_superseded == 0
        info = index.info("p/rule", principal=B)
        assert info is not None and info.superseded_by == ("b/next",) and info.amended_by == ("b/mends",)

    def test_changed_rights_hold_at_the_next_question(self, make_index: MakeIndex) -> None:
        rights = [RIGHTS]
        index = filled(make_index(lambda: rights[0]), *MIXED)
        assert found_by(index, A) == ["a/x", "p/both/t", "p/z"]
        rights[0] = Access(sources={"a": frozenset({"b"}), "b": frozenset({"a"}), "p": frozenset({"b"})})
        assert found_by(index, A) == ["b/y", "b/y2"]
        assert found_by(index, OWNER) == ["a/x", "b/y", "b/y2", "p/both/t", "p/own", "p/z"]
        rights[0] = Access(closed=True)
        assert found_by(index, A) == []
        rights[0] = RIGHTS
        assert found_by(index, A) == ["a/x", "p/both/t", "p/z"]

    def test_documents_added_and_removed_later_have_their_rights(self, make_index: MakeIndex) -> None:
        index = filled(make_index(lambda: RIGHTS), *MIXED)
        filled(index, entry("b/new", "Encryption."), entry("a/new", "Encryption."), entry("p/z", "Catering."))
        index.remove(["b/y", "p/both/t"])
        index.commit()
        assert found_by(index, A) == ["a/new", "a/x"]
        assert found_by(index, B) == ["b/new", "b/y2"]


MIXED = (
    entry("a/x", "Encryption of keys.", "Keys are kept in a vault.", metadata={"supplier": "Alpha"}),
    entry("b/y", "Encryption secretword vault keys keys.", title="Vault", metadata={"supplier": "Alfa"}),
    entry("p/both/t", "Encryption for both.", metadata={"supplier": "Beta"}),
    entry("p/own", "Encryption of the owner alone.", metadata={"supplier": "Alfa AG"}),
    entry("p/z", "Encryption is known to everyone, and suppliers notify.", metadata={"supplier": "Alpha"}),
    entry("b/y2", "Encryption again.", metadata={"status": "superseded"}),
)
"""Documents of several groups."""
OF_A = tuple(one for one in MIXED if one.document.id in ("a/x", "p/both/t", "p/z"))


def found_by(index: Index, principal: Principal) -> list[str]:
    return sorted(
        hit.document for hit in index.search("encryption", principal=principal, k=10, only_current=False).hits
    )

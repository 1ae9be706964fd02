"""The corpus: bringing sources in, and reading, finding, listing and naming what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citehound import corpus as corpus_module
from citehound.access import OWNER
from citehound.config import Config, SourceConfig
from citehound.corpus import Corpus, SyncReport, find_section
from citehound.documents import Document, RawDocument, Section
from citehound.errors import (
    ConfigError,
    IndexCorrupt,
    IndexUnusable,
    ParseError,
    UnknownDocument,
    UnknownSection,
    UnknownSource,
    UsageError,
)
from citehound.events import Event, Progress
from citehound.parsing.worker import Worker

Write = Callable[[str, str], None]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    for name in ("policies", "contracts"):
        (tmp_path / name).mkdir()
    return Config(
        root=tmp_path,
        sources=(
            SourceConfig(name="policies", path=tmp_path / "policies"),
            SourceConfig(name="contracts", path=tmp_path / "contracts", filters=("supplier",)),
        ),
    )


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    return put


@pytest.fixture
def corpus(config: Config) -> Iterator[Corpus]:
    with Corpus.open(config, write=True) as opened:
        yield opened


def statuses(report: SyncReport) -> dict[str, str]:
    return {f"{f.source}/{f.path}": f.status for f in report.files}


def hits(corpus: Corpus, query: str, source: str | None = None) -> list[str]:
    return [hit.document for hit in corpus.search(source, query, principal=OWNER).hits]


# -- sync


def test_every_file_is_reported_and_found(corpus: Corpus, write: Write) -> None:
    write("policies/a.md", "# Policy A\n\nEncryption is needed.\n")
    write("contracts/deep/b.txt", "Catering for the bank.\n")
    report = corpus.sync()
    assert statuses(report) == {"policies/a.md": "indexed", "contracts/deep/b.txt": "indexed"}
    first = next(f for f in report.files if f.path == "a.md")
    assert (first.document, first.passages > 0, first.chars > 0) == ("policies/a", True, True)
    assert hits(corpus, "encryption") == ["policies/a"]
    assert hits(corpus, "catering", "contracts") == ["contracts/deep/b"]


def test_unchanged_files_are_not_parsed_again(corpus: Corpus, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    corpus.sync()

    def read(self: Worker, raw: RawDocument, *, language: str | None) -> Document:
        raise AssertionError("parsed again")

    monkeypatch.setattr(Worker, "read", read)
    assert statuses(corpus.sync()) == {"policies/a.md": "unchanged"}


def test_a_changed_file_replaces_its_document(corpus: Corpus, write: Write) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    corpus.sync()
    write("policies/a.md", "# A\n\nCatering.\n")
    assert statuses(corpus.sync()) == {"policies/a.md": "indexed"}
    assert hits(corpus, "encryption") == []
    assert hits(corpus, "catering") == ["policies/a"]


def test_changed_metadata_indexes_again(corpus: Corpus, write: Write) -> None:
    write("contracts/a.md", "# A\n\nEncryption.\n")
    write("contracts/manifest.csv", "path,supplier\na.md,Alpha\n")
    corpus.sync()
    assert list(corpus.filter_values("contracts", "supplier", principal=OWNER)) == ["Alpha"]
    write("contracts/manifest.csv", "path,supplier\na.md,Beta\n")
    assert statuses(corpus.sync())["contracts/a.md"] == "indexed"
    assert list(corpus.filter_values("contracts", "supplier", principal=OWNER)) == ["Beta"]


def test_a_vanished_file_is_removed(corpus: Corpus, write: Write, tmp_path: Path) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    write("policies/b.md", "# B\n\nEncryption.\n")
    corpus.sync()
    (tmp_path / "policies/a.md").unlink()
    assert statuses(corpus.sync()) == {"policies/a.md": "removed", "policies/b.md": "unchanged"}
    assert hits(corpus, "encryption") == ["policies/b"]
    assert statuses(corpus.sync()) == {"policies/b.md": "unchanged"}


def test_a_source_that_is_no_longer_configured_is_removed(config: Config, write: Write) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
    with Corpus.open(replace(config, sources=config.sources[1:]), write=True) as corpus:
        assert statuses(corpus.sync()) == {"policies/a.md": "removed"}
        assert corpus.is_empty()


def test_a_file_that_cannot_be_read_is_skipped_or_failed_and_tried_again(
    corpus: Corpus, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    write("policies/bad.md", "# Bad\n\nEncryption.\n")
    real = Worker.read

    def read(self: Worker, raw: RawDocument, *, language: str | None) -> Document:
        if raw.path == "bad.md":
            raise ZeroDivisionError("a fault\nof the parser")
        return real(self, raw, language=language)

    monkeypatch.setattr(Worker, "read", read)
    for _ in range(2):
        report = corpus.sync()
        bad = next(f for f in report.files if f.path == "bad.md")
        assert (bad.status, bad.reason) == ("failed", "ZeroDivisionError: a fault of the parser")
    assert hits(corpus, "encryption") == ["policies/a"]
    monkeypatch.setattr(Worker, "read", real)
    assert statuses(corpus.sync()) == {"policies/a.md": "unchanged", "policies/bad.md": "indexed"}


def test_a_file_that_turns_unsupported_leaves_the_index(corpus: Corpus, write: Write, tmp_path: Path) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    corpus.sync()
    (tmp_path / "policies/a.md").write_bytes(b"")
    report = corpus.sync()
    assert [(f.status, f.reason) for f in report.files] == [("skipped", "empty file")]
    assert corpus.is_empty()


def test_a_missing_source_folder_is_an_error_that_keeps_what_is_there(
    config: Config, write: Write, tmp_path: Path
) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
        (tmp_path / "policies").rename(tmp_path / "elsewhere")
        with pytest.raises(ConfigError, match="policies"):
            corpus.sync()
        assert hits(corpus, "encryption") == ["policies/a"]


def test_progress_counts_up_to_the_total(corpus: Corpus, write: Write) -> None:
    for n in range(3):
        write(f"policies/{n}.md", "# A\n\nText.\n")
    seen: list[Event] = []
    corpus.sync(emit=seen.append)
    progress = [(e.done, e.total) for e in seen if isinstance(e, Progress)]
    assert [done for done, _ in progress] == [1, 2, 3, 3]
    assert all(done <= total for done, total in progress)
    assert progress[-1] == (3, 3)


def test_assigned_ids_are_kept(corpus: Corpus, write: Write) -> None:
    write("policies/a.txt", "Encryption.\n")
    corpus.sync()
    write("policies/a.md", "# A\n\nCatering.\n")
    corpus.sync()
    assert corpus.resolve("a.txt", principal=OWNER) == "policies/a"
    assert corpus.resolve("policies/a.md", principal=OWNER) == "policies/a.md"


def test_ids_given_twice_in_front_matter_are_only_a_warning(corpus: Corpus, write: Write) -> None:
    for name in ("a", "b"):
        write(f"policies/{name}.md", "---\nid: same\n---\n# Title\n\nEncryption.\n")
    report = corpus.sync()
    assert statuses(report) == {"policies/a.md": "indexed", "policies/b.md": "indexed"}
    first, second = report.files
    assert first.warnings == ("its front matter gives the id 'same', as does 'policies/b'; ids come from paths",)
    assert second.warnings == ("its front matter gives the id 'same', as does 'policies/a'; ids come from paths",)
    assert sorted(hits(corpus, "encryption")) == ["policies/a", "policies/b"]


def test_a_later_file_that_gives_a_known_id_is_reported_with_the_unchanged_one(corpus: Corpus, write: Write) -> None:
    write("policies/a.md", "---\nid: same\nstatus: superseded\n---\n# Title\n\nEncryption.\n")
    write("policies/other.md", "---\nid: alone\n---\n# Title\n\nEncryption.\n")
    assert [f.warnings for f in corpus.sync().files] == [(), ()]
    write("policies/b.md", "---\nid: same\n---\n# Title\n\nEncryption.\n")
    report = corpus.sync()
    assert statuses(report) == {
        "policies/a.md": "unchanged",
        "policies/b.md": "indexed",
        "policies/other.md": "unchanged",
    }
    assert [len(f.warnings) for f in report.files] == [1, 1, 0]


def test_the_report_says_when_a_failure_takes_a_good_version_out(
    corpus: Corpus, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    corpus.sync()

    def read(self: Worker, raw: RawDocument, *, language: str | None) -> Document:
        raise ParseError("a fault")

    monkeypatch.setattr(Worker, "read", read)
    write("policies/a.md", "# A\n\nEncryption, changed.\n")
    reasons = [corpus.sync().files[0].reason for _ in range(2)]
    assert reasons == ["a fault; the version indexed before has been taken out", "a fault"]
    assert corpus.is_empty()


def test_an_interrupted_run_is_gone_on_with(corpus: Corpus, write: Write) -> None:
    for n in range(6):
        write(f"policies/{n}.md", f"# A\n\nEncryption word{n}.\n")

    def stop(event: Event) -> None:
        if isinstance(event, Progress) and event.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        corpus.sync(emit=stop)
    report = corpus.sync()
    assert report.count("indexed") + report.count("unchanged") == 6
    assert hits(corpus, "word5") == ["policies/5"]


# -- opening and rebuilding


def test_opening_without_an_index_says_what_to_do(config: Config) -> None:
    with pytest.raises(IndexUnusable, match="citehound index"):
        Corpus.open(config)
    with Corpus.open(config, write=True) as corpus:
        assert corpus.is_empty()


def test_a_damaged_index_is_refused_and_rebuilt(config: Config, write: Write) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
    (config.state / "index" / "documents.db").write_bytes(b"garbage")
    with pytest.raises(IndexCorrupt, match="--rebuild"):
        Corpus.open(config)
    with Corpus.open(config, write=True) as corpus:
        with pytest.raises(IndexCorrupt, match="--rebuild"):
            corpus.sync()
        assert statuses(corpus.sync(rebuild=True)) == {"policies/a.md": "indexed"}
        assert hits(corpus, "encryption") == ["policies/a"]


def test_a_reader_sees_a_rebuilt_index(config: Config, write: Write) -> None:
    write("policies/a.md", "# A\n\nEncryption.\n")
    with Corpus.open(config, write=True) as writer:
        writer.sync()
        with Corpus.open(config) as reader:
            write("policies/a.md", "# A\n\nCatering.\n")
            writer.sync(rebuild=True)
            assert hits(reader, "catering") == ["policies/a"]


def test_an_unknown_source_names_the_known_ones(corpus: Corpus) -> None:
    corpus.sync()
    with pytest.raises(UnknownSource, match="'policies'"):
        corpus.search("policy", "x", principal=OWNER)


# -- names


def test_a_document_goes_by_id_path_or_unique_suffix(corpus: Corpus, write: Write) -> None:
    write("policies/sub/Übersicht v1.2.md", "# A\n\nText.\n")
    write("policies/other/b.md", "# B\n\nText.\n")
    corpus.sync()
    full = "policies/sub/Übersicht v1.2"
    for name in (
        full,
        f"{full}.md",
        "sub/Übersicht v1.2.md",
        "Übersicht v1.2",
        "U\u0308bersicht v1.2",
        "übersicht V1.2",
    ):
        assert corpus.resolve(name, principal=OWNER) == full


def test_an_ambiguous_name_names_the_candidates(corpus: Corpus, write: Write) -> None:
    write("policies/x/readme.md", "# A\n\nText.\n")
    write("policies/y/readme.md", "# B\n\nText.\n")
    corpus.sync()
    with pytest.raises(UnknownDocument, match=r"'policies/x/readme', 'policies/y/readme'"):
        corpus.resolve("readme", principal=OWNER)
    with pytest.raises(UnknownDocument, match="nearest: 'policies/x/readme'"):
        corpus.resolve("x/raedme", principal=OWNER)


def test_a_document_whose_whole_id_is_a_suffix_of_another_can_be_named(corpus: Corpus, write: Write) -> None:
    write("policies/readme.md", "# A\n\nText.\n")
    write("contracts/policies/readme.md", "# B\n\nText.\n")
    corpus.sync()
    assert corpus.resolve("policies/readme", principal=OWNER) == "policies/readme"


# -- reading

LONG = "# Agreement\n\n" + "\n\n".join(
    f"## {n} Part {n}\n\n" + " ".join(f"Sentence {m} of part {n} says what is agreed." for m in range(30))
    for n in range(1, 13)
)


def test_a_long_document_gives_its_outline_and_first_part(corpus: Corpus, write: Write) -> None:
    write("contracts/long.md", LONG)
    corpus.sync()
    passage = corpus.read("long", principal=OWNER)
    assert passage.start == 0 and len(passage.text) <= 6000
    assert passage.next_start == passage.end
    assert [o.section for o in passage.outline if o.level == 2] == [str(n) for n in range(1, 13)]
    assert corpus.read("long", principal=OWNER, start=passage.next_start or 0).outline == ()


@pytest.mark.parametrize("limit", [50, 700, 6000])
@pytest.mark.parametrize("section", [None, "7"])
def test_pages_join_without_a_gap(corpus: Corpus, write: Write, limit: int, section: str | None) -> None:
    write("contracts/long.md", LONG)
    corpus.sync()
    whole = corpus.document("long", principal=OWNER)
    found = whole.section(section) if section else None
    start, end = (found.start, found.end) if found else (0, len(whole.text))
    parts: list[str] = []
    at = 0
    while True:
        passage = corpus.read("long", principal=OWNER, section=section, start=at, limit=limit)
        assert passage.text == whole.text[passage.start : passage.end]
        assert 0 < len(passage.text) <= limit
        parts.append(passage.text)
        if passage.next_start is None:
            break
        at = passage.next_start
    assert "".join(parts) == whole.text[start:end]


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="ab. \n。é", min_size=1, max_size=300), limit=st.integers(1, 60))
def test_pages_of_any_text_join(text: str, limit: int) -> None:
    at, parts = 0, list[str]()
    while at < len(text):
        end = corpus_module.page_end(text, at, len(text), limit)
        assert at < end <= min(len(text), at + limit)
        parts.append(text[at:end])
        at = end
    assert "".join(parts) == text


def test_a_text_of_one_long_line_can_be_paged(corpus: Corpus, write: Write) -> None:
    write("contracts/line.txt", "word " * 13_000 + "the end")
    corpus.sync()
    at, turns = 0, 0
    while True:
        passage = corpus.read("line", principal=OWNER, start=at)
        turns += 1
        if passage.next_start is None:
            break
        at = passage.next_start
    assert passage.text.endswith("the end") and turns < 15


def test_a_read_past_the_end_is_empty_and_a_negative_start_is_refused(corpus: Corpus, write: Write) -> None:
    write("contracts/a.md", "# A\n\nText.\n")
    corpus.sync()
    passage = corpus.read("a", principal=OWNER, start=10_000)
    assert (passage.text, passage.next_start) == ("", None)
    with pytest.raises(UsageError, match="-1"):
        corpus.read("a", principal=OWNER, start=-1)


def document_of(*sections: tuple[str, str, str | None]) -> Document:
    return Document(
        id="d",
        source="s",
        path="d.md",
        title="D",
        text="x" * 10 * len(sections),
        sections=tuple(
            Section(id=id_, title=title, number=number, level=1, start=at * 10, end=at * 10 + 10)
            for at, (id_, title, number) in enumerate(sections)
        ),
    )


SECTIONED = document_of(
    ("7", "Third parties", "7"),
    ("7.2", "Encryption at rest", "7.2"),
    ("schedule-1/1.1", "Fees", "1.1"),
    ("schedule-2/1.1", "Service levels", "1.1"),
    ("annex-iii", "Annex III: Security", None),
    ("schedule-2/notice-periods", "Notice Periods", None),
)


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("7.2", "7.2"),
        ("§7.2", "7.2"),
        ("§ 7.2", "7.2"),
        ("section 7.2", "7.2"),
        ("Clause 7.2.", "7.2"),
        ("7.2 Encryption at rest", "7.2"),
        ("encryption AT rest", "7.2"),
        ("encryption-at-rest", "7.2"),
        ("schedule-2/1.1", "schedule-2/1.1"),
        ("notice-periods", "schedule-2/notice-periods"),
        ("Notice periods", "schedule-2/notice-periods"),
        ("Annex III", "annex-iii"),
        ("annex iii: security", "annex-iii"),
    ],
)
def test_a_section_goes_by_many_names(name: str, section: str) -> None:
    assert find_section(SECTIONED, name).id == section


def test_an_ambiguous_or_unknown_section_says_which_are_near() -> None:
    with pytest.raises(UnknownSection, match=r"'schedule-1/1\.1', 'schedule-2/1\.1'"):
        find_section(SECTIONED, "1.1")
    with pytest.raises(UnknownSection, match=r"nearest: .*'7\.2'"):
        find_section(SECTIONED, "encyption at rest")
    with pytest.raises(UnknownSection, match="no sections"):
        find_section(document_of(), "7")


# -- finding


def find(corpus: Corpus, write: Write, text: str, phrase: str, **options: int) -> corpus_module.FindResult:
    write("contracts/a.txt", text)
    corpus.sync()
    return corpus.find("contracts/a", phrase, principal=OWNER, **options)


@pytest.mark.parametrize(
    "phrase",
    ["annual due diligence", "ANNUAL DUE DILIGENCE", "annual  due\ndiligence", "ännual due diligence"],
)
def test_a_phrase_is_found_as_a_person_searches(corpus: Corpus, write: Write, phrase: str) -> None:
    result = find(corpus, write, "First paragraph.\n\nThere is annual\ndue diligence on them.\n\nLast.", phrase)
    assert result.total == 1
    whole = corpus.document("contracts/a", principal=OWNER).text
    assert [p.text for p in result.passages] == [whole[p.start : p.end] for p in result.passages]
    assert "due diligence" in result.passages[0].text
    assert "First" not in result.passages[0].text and "Last" not in result.passages[0].text


def test_typographic_quotes_and_dashes_do_not_matter(corpus: Corpus, write: Write) -> None:
    text = "The bank’s “core” data is kept 5–7 years."
    assert find(corpus, write, text, 'bank\'s "core" data is kept 5-7').total == 1


def test_words_are_preferred_to_parts_of_words(corpus: Corpus, write: Write) -> None:
    text = "The page says nothing.\n\nThe age of the agency.\n"
    assert find(corpus, write, text, "age").total == 2
    assert corpus.find("contracts/a", "gency", principal=OWNER).total == 1


def test_words_near_each_other_are_given_when_the_phrase_is_not_there(corpus: Corpus, write: Write) -> None:
    text = "Nothing here.\n\nThe supplier is notified of each incident by the bank.\n\nNothing there."
    result = find(corpus, write, text, "incidents notify")
    assert result.total == 0 and result.notes
    assert len(result.passages) == 1 and "notified of each incident" in result.passages[0].text


def test_what_stands_nowhere_is_not_found(corpus: Corpus, write: Write) -> None:
    result = find(corpus, write, "The supplier is notified.", "due diligence")
    assert (result.total, result.passages, result.notes) == (0, (), ())


def test_all_places_are_counted_though_only_some_are_shown(corpus: Corpus, write: Write) -> None:
    text = "\n\n".join(f"Paragraph {n} on encryption." for n in range(20))
    result = find(corpus, write, text, "encryption", limit=3)
    assert (result.total, len(result.passages)) == (20, 3)


def test_an_empty_phrase_is_refused(corpus: Corpus, write: Write) -> None:
    with pytest.raises(UsageError, match="empty"):
        find(corpus, write, "Text.", "  ")


def test_a_word_inside_a_sentence_without_spaces_is_found(corpus: Corpus, write: Write) -> None:
    assert find(corpus, write, "供应商必须对客户数据进行加密。", "加密").total == 1


# -- listing and the rest


def test_listing_filters_and_hides_what_does_not_hold(corpus: Corpus, write: Write) -> None:
    def contract(name: str, lines: Mapping[str, str]) -> None:
        front = "".join(f"{key}: {value}\n" for key, value in lines.items())
        write(f"contracts/{name}.md", f"---\n{front}---\n# {name}\n\nText.\n")

    contract("a", {"supplier": "Alpha"})
    contract("b", {"supplier": "Beta"})
    contract("c", {"supplier": "Alpha", "status": "superseded"})
    corpus.sync()
    listed = corpus.list_documents("contracts", principal=OWNER, filters={"supplier": "ALPHA"})
    assert [d.document for d in listed.documents] == ["contracts/a"]
    assert listed.hidden_superseded == 1
    wrong = corpus.list_documents("contracts", principal=OWNER, filters={"supplier": "Alpfa"})
    assert wrong.total == 0 and "'Alpha'" in wrong.notes[0]


def test_the_lexicon_knows_the_configured_filters_only(corpus: Corpus, write: Write) -> None:
    write("contracts/a.md", "---\nsupplier: Alpha\nowner: Bob\n---\n# A\n\nThe keys rotate.\n")
    corpus.sync()
    lexicon = corpus.lexicon(principal=OWNER)
    assert lexicon.values("contracts") == {"supplier": ("Alpha",)}
    assert lexicon.frequency("rotating") == 1
    assert ("contracts/a", "A") in lexicon.titles()


def test_a_view_is_bound_to_who_asks(corpus: Corpus, write: Write) -> None:
    write("contracts/a.md", "# A\n\nText.\n")
    corpus.sync()
    view = corpus.view(principal=OWNER)
    assert view.resolve("a") == "contracts/a"
    assert view.document("a").text == corpus.document("a", principal=OWNER).text
    assert view.info("a").current
    with pytest.raises(UnknownDocument):
        view.document("zzz")


def test_the_bundled_bank_answers_a_search(bank_root: Path, tmp_path: Path) -> None:
    names = ("policies", "contracts", "wiki")
    sources = tuple(SourceConfig(name=n, path=bank_root / n, filters=("supplier",)) for n in names)
    with Corpus.open(Config(root=tmp_path, sources=sources), write=True) as corpus:
        report = corpus.sync()
        assert report.count("failed") == 0 and report.count("indexed") == 28
        result = corpus.search("policies", "outsourcing incident notification hours", principal=OWNER)
        assert "policies/outsourcing-policy-v4" in {h.document for h in result.hits}
        assert "policies/outsourcing-policy-v3" not in {h.document for h in result.hits}
        assert result.hidden_superseded >= 1
        annex = corpus.search("contracts", "encryption", principal=OWNER, filters={"supplier": "alpha"})
        assert annex.hits[0].document == "contracts/contract-alpha-security-annex"

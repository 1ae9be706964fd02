"""Search by words and vectors together: fusion, copies, explanation, another embedder, reranking."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import test_embedding
from citehound import config
from citehound.access import OWNER, UNCONFIGURED, Access
from citehound.corpus import Corpus
from citehound.embedding import Kind, Vectors, static
from citehound.errors import ConfigError, IndexUnusable
from citehound.events import Progress
from citehound.index import Index
from citehound.index.embedded import EmbeddedIndex
from citehound.index.fusion import Weights, fuse
from citehound.index.inside import Contents, rank
from citehound.rerank import open_reranker, order
from index_conformance import TODAY, IndexConformance, MakeIndex, entry
from small import write_corpus


class TestEmbeddedIndexWithVectors(IndexConformance):
    """All that holds for words holds beside vectors too."""

    @pytest.fixture
    def make_index(self, tmp_path: Path) -> Iterator[MakeIndex]:
        made: list[EmbeddedIndex] = []

        def make(access: Callable[[], Access] = lambda: UNCONFIGURED) -> Index:
            folder = tmp_path / f"index{len(made)}"
            made.append(EmbeddedIndex(folder, write=True, embedder=static(), today=lambda: TODAY, access=access))
            return made[-1]

        yield make
        for index in made:
            index.close()


REFUND = "Customers are given their money back when goods come damaged."
CLOCK = "The kitchen clock is wound every Sunday by the caretaker."
DISK = "Disks of the data centre are encrypted with keys of the bank."


def filled(folder: Path, **texts: str) -> None:
    with EmbeddedIndex(folder, write=True, embedder=static()) as index:
        index.add([entry(f"docs/{name}", text, title=name) for name, text in texts.items()])


def found(index: EmbeddedIndex, query: str, *, k: int = 6) -> list[str]:
    return [hit.document for hit in index.search(query, principal=OWNER, k=k).hits]


# fusion


def test_a_score_is_the_share_of_the_best_by_words_plus_the_weighted_cosine() -> None:
    candidates = fuse(
        [(1, 8.0), (2, 6.0)], [(2, 0.9), (3, 0.5)], cosines={1: 0.1, 2: 0.9}, weights=Weights(dense=0.5, floor=0.4)
    )
    assert [(c.key, round(c.score, 3)) for c in candidates] == [(2, 1.2), (1, 1.05), (3, 0.25)]
    assert [(c.words_rank, c.dense_rank, c.below_floor) for c in candidates] == [
        (2, 1, False),
        (1, None, False),
        (None, 2, False),
    ]


def test_what_is_kept_counts_as_if_it_were_the_nearest() -> None:
    words = [(1, 8.0), (2, 6.0), (3, 5.0)]
    cosines = {1: 0.1, 2: 0.0, 3: 0.9}
    candidates = fuse(words, [(3, 0.9)], cosines=cosines, weights=Weights(dense=0.5), kept={1})
    assert [c.key for c in candidates] == [1, 3, 2]
    assert [c.cosine for c in candidates] == [0.1, 0.9, 0.0]


def test_a_passage_without_the_words_needs_a_cosine_above_the_floor() -> None:
    weights = Weights(dense=0.5, floor=0.6)
    assert fuse([], [(3, 0.5)], cosines={}, weights=weights)[0].below_floor
    assert not fuse([], [(3, 0.7)], cosines={}, weights=weights)[0].below_floor
    assert fuse([], [(3, 0.7)], cosines={}, weights=weights, words_only=True)[0].below_floor


# the index


def test_a_passage_is_found_by_meaning_where_it_has_none_of_the_words(tmp_path: Path) -> None:
    filled(tmp_path / "i", refund=REFUND, clock=CLOCK, disk=DISK)
    with EmbeddedIndex(tmp_path / "i") as words:
        assert found(words, "reimbursement of broken products") == []
    with EmbeddedIndex(tmp_path / "i", embedder=static(), weights=Weights(floor=0.3)) as both:
        assert found(both, "reimbursement of broken products", k=1) == ["docs/refund"]


def test_the_first_hits_by_words_stay_the_first_and_vectors_order_the_rest(tmp_path: Path) -> None:
    texts = {
        "a": "goods goods goods come damaged",
        "b": "damaged goods of the bank",
        "c": "A clock with damaged hands",
        "d": "Customers get their money back for broken products which were damaged on the way to them",
    }
    filled(tmp_path / "i", **texts)
    query = "refund of damaged goods"
    with EmbeddedIndex(tmp_path / "i") as words:
        first = found(words, query)
    for keep in (1, 2, 3):
        with EmbeddedIndex(tmp_path / "i", embedder=static(), weights=Weights(dense=9.0, keep=keep)) as both:
            assert found(both, query)[:keep] == first[:keep]
    with EmbeddedIndex(tmp_path / "i", embedder=static(), weights=Weights(dense=9.0, keep=2)) as both:
        assert (first[2:], found(both, query)[2:]) == (["docs/c", "docs/d"], ["docs/d", "docs/c"])
        hits = both.search(query, principal=OWNER).hits
        assert [h.score for h in hits] == sorted((h.score for h in hits), reverse=True)


def test_without_a_weight_vectors_come_after_all_that_words_find(tmp_path: Path) -> None:
    filled(tmp_path / "i", refund=REFUND, clock=CLOCK, disk=DISK)
    query = "reimbursement of broken clock"
    with EmbeddedIndex(tmp_path / "i") as words:
        assert found(words, query) == ["docs/clock"]
    with EmbeddedIndex(tmp_path / "i", embedder=static(), weights=Weights(floor=0.2)) as both:
        assert found(both, query, k=2) == ["docs/clock", "docs/refund"]
        assert found(both, query, k=1) == ["docs/clock"]


def test_one_word_brings_only_passages_that_have_it(tmp_path: Path) -> None:
    filled(tmp_path / "i", refund=REFUND, clock=CLOCK)
    with EmbeddedIndex(tmp_path / "i", embedder=static(), weights=Weights(floor=0.0)) as index:
        assert found(index, "money") == ["docs/refund"]
        assert found(index, "reimbursement") == []


def test_filters_and_documents_narrow_the_vectors_too(tmp_path: Path) -> None:
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=static()) as index:
        index.add(
            [
                entry("docs/a", REFUND, title="a", metadata={"supplier": "Alpha"}),
                entry("docs/b", REFUND + " Always.", title="b", metadata={"supplier": "Beta"}),
            ]
        )
        index.commit()
        vector = index.embed(["refund of damaged goods"])
        assert vector is not None
        near = index.nearest(vector[0], principal=OWNER, filters={"supplier": "Beta"})
        assert [n.document for n in near] == ["docs/b"]
        assert [n.document for n in index.nearest(vector[0], principal=OWNER, documents=["docs/a"])] == ["docs/a"]
        assert index.nearest(vector[0], principal=OWNER, filters={"supplier": "Gamma"}) == ()
        cosines = index.cosines(vector, [("docs/a", 0), ("docs/none", 0)], principal=OWNER)
        assert cosines[0][0] > 0.3 and cosines[0][1] == 0


def test_vectors_come_and_go_with_their_documents(tmp_path: Path) -> None:
    filled(tmp_path / "i", refund=REFUND, clock=CLOCK)
    reader = EmbeddedIndex(tmp_path / "i", embedder=static())
    vector = reader.embed(["refund of damaged goods"])
    assert vector is not None
    assert len(reader.nearest(vector[0], principal=OWNER)) == 2
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=static()) as writer:
        writer.add([entry("docs/clock", DISK, title="clock")])
        writer.remove(["docs/refund"])
    assert [n.document for n in reader.nearest(vector[0], principal=OWNER)] == ["docs/clock"]
    reader.close()


def test_what_a_killed_writer_left_is_made_up_for(tmp_path: Path) -> None:
    filled(tmp_path / "i", refund=REFUND)
    writer = EmbeddedIndex(tmp_path / "i", write=True)  # knows nothing of vectors
    writer.add([entry("docs/clock", CLOCK, title="clock")])
    writer.commit()
    writer.abandon()
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=static()) as index:
        assert index.embed_missing() == 1
        assert index.embed_missing() == 0
        vector = index.embed(["clock"])
        assert vector is not None
        assert len(index.nearest(vector[0], principal=OWNER)) == 2


def test_a_copy_counts_once_and_is_named(tmp_path: Path) -> None:
    long = (
        "The supplier notifies the bank of every incident within a day, in writing, and names the systems and the data."
    )
    with EmbeddedIndex(tmp_path / "i", write=True) as index:
        index.add(
            [
                entry("docs/a", long, title="Notice", metadata={"supplier": "Alpha"}),
                entry("docs/copy/a", long, title="Notice", metadata={"supplier": "Alpha"}),
                entry("docs/b", long, title="Notice", metadata={"supplier": "Beta"}),
            ]
        )
        index.commit()
        hits = index.search("incident notified in writing", principal=OWNER).hits
    assert [hit.document for hit in hits] == ["docs/a", "docs/b"]
    assert hits[0].labels == ("same text in docs/copy/a",)


def test_a_text_that_is_repeated_all_over_a_source_counts_less(tmp_path: Path) -> None:
    with EmbeddedIndex(tmp_path / "i", write=True) as index:
        footer = "This page about travel may be printed."
        index.add([entry(f"docs/d{n}", f"Chapter {n}.", footer, title=f"d{n}") for n in range(12)])
        index.add([entry("other/own", "This page about travel may be copied.", title="own")])
        index.commit()
        hits = index.search("page about travel", principal=OWNER, k=3).hits
        assert hits[0].document == "other/own"
        shown = index.explain("page about travel", principal=OWNER, k=3).considered
    assert shown[0].words is not None and shown[1].words is not None
    assert shown[1].words < 0.8 * shown[0].words


def test_what_long_documents_still_have_is_not_gone_through(tmp_path: Path) -> None:
    with EmbeddedIndex(tmp_path / "i", write=True) as index:
        long = [entry(f"docs/d{n}", *[f"Encryption of disk {m}." for m in range(2000)], title="d") for n in range(3)]
        index.add([*long, entry("docs/last", "Much else is said here, and encryption at its very end.", title="last")])
        index.commit()
        hits = index.search("encryption", principal=OWNER, k=10, per_document=1).hits
        told = index.explain("encryption", principal=OWNER, k=10, per_document=1)
    assert sorted(hit.document for hit in hits) == ["docs/d0", "docs/d1", "docs/d2", "docs/last"]
    assert len(told.considered) < 600


def test_an_explanation_has_terms_ranks_and_why_a_passage_was_cut(tmp_path: Path) -> None:
    old = entry("docs/old", "Money goes back within days.", title="old", metadata={"status": "superseded"})
    filled(tmp_path / "i", refund=REFUND, clock=CLOCK, disk=DISK)
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=static()) as index:
        index.add([old])
        index.commit()
        told = index.explain("the money of customers goes where", principal=OWNER, k=1)
        assert found(index, "the money of customers goes where", k=1) == ["docs/refund"]
    terms = {term.term: term.left_out for term in told.terms}
    assert terms["the"] == "a function word" and terms["money"] is None
    verdicts = {one.document: one.verdict for one in told.considered}
    assert verdicts["docs/refund"] == "hit 1"
    assert verdicts["docs/old"] == "cut: superseded"
    assert "none of the query's words" in verdicts["docs/clock"]
    assert told.dense == "static" and not told.words_only


class Other:
    """An embedder that is not the one of before."""

    name, version, dimensions = "other", "1", 8

    def embed(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        rows = np.ones((len(texts), self.dimensions), dtype=np.float32)
        return rows / np.float32(np.sqrt(self.dimensions))


def test_vectors_of_another_embedder_are_never_compared_and_are_made_anew(tmp_path: Path) -> None:
    filled(tmp_path / "i", refund=REFUND, clock=CLOCK)
    with EmbeddedIndex(tmp_path / "i", embedder=Other()) as reader:
        assert found(reader, "customers' money") == ["docs/refund"]
        assert reader.embed(["money"]) is None
        assert any("by 'static'" in warning for warning in reader.warnings)
    steps: list[tuple[int, int]] = []
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=Other()) as index:
        assert index.embed_missing(lambda done, total: steps.append((done, total))) == 2
    assert steps == [(2, 2)]
    with EmbeddedIndex(tmp_path / "i", embedder=Other()) as reader:
        vector = reader.embed(["money"])
        assert vector is not None and vector.shape == (1, 8)
        assert [round(n.cosine, 2) for n in reader.nearest(vector[0], principal=OWNER)] == [1.0, 1.0]
        assert not reader.warnings
    assert len(list((tmp_path / "i" / "vectors").iterdir())) == 3


class Slow:
    """An embedder that is no static one, says its size only after the first vector, and how often it is asked."""

    name, version = "slow", "1"

    def __init__(self, size: int) -> None:
        self.size, self.dimensions = size, 0
        self.asked: list[int] = []

    def embed(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        self.dimensions = self.size
        self.asked.append(len(texts))
        return np.full((len(texts), self.size), 1 / np.sqrt(self.size), dtype=np.float32)


def test_an_embedder_of_another_size_under_the_same_name_never_mixes(tmp_path: Path) -> None:
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=Slow(8)) as index:
        index.add([entry("docs/refund", REFUND), entry("docs/clock", CLOCK)])
    with EmbeddedIndex(tmp_path / "i", embedder=Slow(4)) as reader:
        assert found(reader, "goods that come damaged") == ["docs/refund"]
        assert any("4 numbers" in warning and "--rebuild" in warning for warning in reader.warnings)
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=Slow(4)) as index:
        index.add([entry("docs/disk", DISK)])
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=Slow(4)) as index:
        assert index.embed_missing() == 3
    with EmbeddedIndex(tmp_path / "i", embedder=Slow(4)) as reader:
        vector = reader.embed(["money"])
        assert vector is not None and len(reader.nearest(vector[0], principal=OWNER)) == 3
        assert not reader.warnings


def test_a_slow_embedder_shows_its_progress_step_by_step(tmp_path: Path) -> None:
    slow, steps = Slow(8), list[int]()
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=slow) as index:
        long = entry("docs/long", DISK)
        chunks = tuple(replace(long.chunks[0], ordinal=at) for at in range(700))
        index.add([replace(long, chunks=chunks), *(entry(f"docs/{at}", CLOCK) for at in range(50))])
        index.commit()
        assert not slow.asked
        assert index.embed_missing(lambda done, total: steps.append(done)) == 750
        assert steps[0] <= 64 and steps == sorted(set(steps)) and steps[-1] == 750
        index.add([entry("docs/new", REFUND)])
        index.commit()
        assert index.embed_missing() == 0


@pytest.mark.parametrize(
    ("weights", "k", "asked"),
    [
        (Weights(), 3, []),
        (Weights(dense=0.4, keep=3), 3, []),
        (Weights(dense=0.4, keep=2), 3, [1]),
        (Weights(), 4, [1]),
    ],
)
def test_no_embedder_is_asked_where_words_decide(tmp_path: Path, weights: Weights, k: int, asked: list[int]) -> None:
    with EmbeddedIndex(tmp_path / "i", write=True, embedder=Slow(8)) as index:
        index.add([entry(f"docs/{at}", f"{CLOCK} {at}.") for at in range(3)])
    slow = Slow(8)
    with EmbeddedIndex(tmp_path / "i", embedder=slow, weights=weights) as reader:
        assert len(found(reader, "kitchen clock", k=k)) == 3
    assert slow.asked == asked


def test_an_index_of_the_first_format_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citehound.index.sealing.FORMAT", 1)
    filled(tmp_path / "i", refund=REFUND)
    monkeypatch.undo()
    with pytest.raises(IndexUnusable, match="older version"):
        EmbeddedIndex(tmp_path / "i")
    EmbeddedIndex(tmp_path / "i", write=True).close()
    with EmbeddedIndex(tmp_path / "i") as index:
        assert found(index, "damaged goods") == ["docs/refund"]


# the corpus


@contextmanager
def corpus_of(root: Path, files: Mapping[str, str], *, settings: str = "") -> Generator[Corpus]:
    toml = f'{settings}\n[[sources]]\nname = "docs"\npath = "docs"\n'
    path = write_corpus(root, {f"docs/{name}.md": text for name, text in files.items()}, toml=toml)
    with Corpus.open(config.load(path, env={}), write=True) as corpus:
        corpus.sync()
        yield corpus


def test_a_changed_embedder_makes_all_vectors_anew_at_the_next_sync(tmp_path: Path) -> None:
    with corpus_of(tmp_path, {"refund": REFUND, "clock": CLOCK}):
        pass
    steps: list[Progress] = []
    settings = '[index.embedding]\nname = "test_embedding:letters"\n'
    path = write_corpus(tmp_path, {}, toml=f'{settings}\n[[sources]]\nname = "docs"\npath = "docs"\n')
    with Corpus.open(config.load(path, env={}), write=True) as corpus:
        corpus.sync(emit=lambda event: steps.append(event) if isinstance(event, Progress) else None)
        vector = corpus.embed_query("abc")
        assert vector is not None and vector.shape == (1, 3)
        assert len(corpus.nearest("docs", vector[0], principal=OWNER)) == 2
    assert [(step.done, step.total) for step in steps if step.what == "vectors"] == [(2, 2)]
    assert test_embedding.letters.version == "3"


def test_an_embedder_that_fails_at_a_query_leaves_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = '[index.embedding]\nname = "test_embedding:letters"\n'
    with corpus_of(tmp_path, {"refund": REFUND, "clock": CLOCK}, settings=settings) as corpus:
        monkeypatch.setattr(test_embedding.Letters, "__call__", test_embedding.broken)
        hits = corpus.search("docs", "customers' money", principal=OWNER).hits
        assert [hit.document for hit in hits] == ["docs/refund"]
        assert any("words alone" in warning for warning in corpus.warnings)


def test_find_gives_the_nearest_passages_where_a_phrase_stands_nowhere(tmp_path: Path) -> None:
    text = (
        f"# Terms\n\n## 1 Goods\n\n{REFUND}\n\n## 2 Clock\n\n{CLOCK}\n\n"
        '## 3 Words\n\n"Damaged Goods" means goods that a customer cannot use.\n'
    )
    with corpus_of(tmp_path, {"terms": text}) as corpus:
        result = corpus.find("docs/terms", "what are damaged goods", principal=OWNER)
        assert result.total == 0
        assert result.near[0].section == "3"
        assert all(p.text == corpus.document(p.document, principal=OWNER).text[p.start : p.end] for p in result.near)
        assert corpus.find("docs/terms", "aeroplane", principal=OWNER).near == ()


def test_a_definition_and_a_heading_rank_above_mere_use() -> None:
    contents = Contents.of(
        [
            ("1 Start", "The Outage and the Outage again are in the Outage report of the supplier."),
            ("2 Other", "Invoices are paid in thirty days."),
            ("3 Terms", "\u201cOutage\u201d means that the service is not there."),
        ],
        language="en",
    )
    assert rank(contents, "outage")[0].ordinal == 2
    assert rank(contents, "invoices", cosines=[0.0, 0.0, 0.0])[0].ordinal == 1


# reranking


def longest_first(query: str, texts: Sequence[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def failing(query: str, texts: Sequence[str]) -> list[float]:
    raise RuntimeError("out of credit")


def short_of_scores(query: str, texts: Sequence[str]) -> list[float]:
    return [1.0]


FILES = {"a": "# A\n\nMoney back for customers.", "b": f"# B\n\n{REFUND} {CLOCK}", "c": "# C\n\nMoney."}


def reranked(root: Path, name: str) -> tuple[list[str], str]:
    settings = f'[index.rerank]\nname = "test_hybrid:{name}"\n'
    with corpus_of(root, FILES, settings=settings) as corpus:
        result = corpus.search("docs", "money back", principal=OWNER, k=2)
        return [hit.document for hit in result.hits], " ".join(result.notes)


def test_a_reranker_puts_the_best_passages_in_their_last_order(tmp_path: Path) -> None:
    assert reranked(tmp_path, "longest_first") == (["docs/b", "docs/a"], "")


@pytest.mark.parametrize(("name", "words"), [("failing", "out of credit"), ("short_of_scores", "gave 1 scores for 3")])
def test_a_reranker_that_fails_leaves_the_order_with_a_note(tmp_path: Path, name: str, words: str) -> None:
    documents, note = reranked(tmp_path, name)
    assert documents[0] == "docs/a"
    assert note.startswith("not reranked: ") and words in note


def test_a_reranker_that_takes_too_long_leaves_the_order() -> None:
    def slow(query: str, texts: Sequence[str], /) -> list[float]:
        time.sleep(0.2)
        return [1.0, 2.0]

    given = order(slow, "q", ["a", "b"], name="slow", seconds=0.01)
    assert given.places == (0, 1) and given.note == "not reranked: 'slow' took longer than 0.01 s"


@pytest.mark.parametrize("name", ["bert", "no.module:f", "test_hybrid:FILES"])
def test_a_name_that_is_no_reranker_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"index\.rerank\.name"):
        open_reranker(name)

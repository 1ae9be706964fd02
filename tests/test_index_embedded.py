"""The embedded backend: the conformance suite, and what is its own: locks, checksums, replay, several processes."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from citehound.access import OWNER, UNCONFIGURED, Access
from citehound.errors import IndexCorrupt, IndexLocked, IndexTooNew, IndexUnusable
from citehound.index import FileState, Index
from citehound.index.embedded import EmbeddedIndex
from index_conformance import TODAY, IndexConformance, MakeIndex, entry, filled, found


class TestEmbeddedIndex(IndexConformance):
    @pytest.fixture
    def make_index(self, tmp_path: Path) -> Iterator[MakeIndex]:
        made: list[EmbeddedIndex] = []

        def make(access: Callable[[], Access] = lambda: UNCONFIGURED) -> Index:
            folder = tmp_path / f"index{len(made)}"
            made.append(EmbeddedIndex(folder, write=True, today=lambda: TODAY, access=access))
            return made[-1]

        yield make
        for index in made:
            index.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed index of a few documents."""
    with EmbeddedIndex(tmp_path / "index", write=True) as index:
        filled(index, *[entry(f"a/d{n}", f"Encryption word{n}.", metadata={"supplier": "Alpha"}) for n in range(5)])
    return tmp_path / "index"


@pytest.mark.parametrize(("per_document", "k"), [(1, 4), (1, 20), (2, 7), (3, 40)])
def test_a_few_long_documents_give_their_best_each(tmp_path: Path, per_document: int, k: int) -> None:
    """Those that have given all they may do not stand in the way of others, and the order is that of all hits."""
    chance = random.Random(per_document * k)
    words = ["encryption", "keys", "rotation", "retention", "backup", "filler", "text", "more", "of", "it"]
    with EmbeddedIndex(tmp_path / "i", write=True) as index:
        texts = [[" ".join(chance.choices(words, k=8 + 3 * n)) + f" {n} {m}." for m in range(150)] for n in range(7)]
        filled(index, *[entry(f"a/d{n}", *of) for n, of in enumerate(texts)])
        every = index.search("encryption keys rotation", principal=OWNER, k=2000, per_document=2000).hits
        result = index.search("encryption keys rotation", principal=OWNER, k=k, per_document=per_document)
    count: Counter[str] = Counter()
    wanted: list[tuple[str, int]] = []
    for hit in every:
        count[hit.document] += 1
        if count[hit.document] <= per_document and len(wanted) < k:
            wanted.append((hit.document, hit.start))
    assert [(hit.document, hit.start) for hit in result.hits] == wanted


def test_an_index_is_there_after_it_was_closed(folder: Path) -> None:
    with EmbeddedIndex(folder) as index:
        assert found(index, "word3") == ["a/d3"]


def test_there_is_nothing_to_read_before_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(IndexUnusable, match="run `citehound index`"):
        EmbeddedIndex(tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_reader_cannot_write(folder: Path) -> None:
    with EmbeddedIndex(folder) as index, pytest.raises(IndexUnusable, match="write=True"):
        index.add([entry("a/x", "Text.")])


def test_an_open_reader_sees_what_is_committed_and_nothing_before(folder: Path) -> None:
    with EmbeddedIndex(folder) as reader, EmbeddedIndex(folder, write=True) as writer:
        writer.add([entry("a/new", "Fresh words.")])
        assert found(reader, "fresh") == []
        assert "a/new" not in reader.ids(principal=OWNER)
        writer.commit()
        assert found(reader, "fresh") == ["a/new"]


def test_a_reader_opens_while_another_process_writes(folder: Path) -> None:
    with EmbeddedIndex(folder, write=True) as writer:
        writer.add([entry("a/new", "Fresh words.")])
        with EmbeddedIndex(folder) as reader:
            assert found(reader, "word3") == ["a/d3"]


def test_an_open_reader_sees_an_index_that_was_made_anew(folder: Path) -> None:
    with EmbeddedIndex(folder) as reader:
        assert found(reader, "word3") == ["a/d3"]
        EmbeddedIndex.discard(folder)
        with EmbeddedIndex(folder, write=True) as writer:
            filled(writer, entry("a/new", "Fresh words."))
        assert found(reader, "word3") == []
        assert found(reader, "fresh") == ["a/new"]


def test_a_document_takes_effect_when_its_day_comes(tmp_path: Path) -> None:
    today = [date(2025, 6, 1)]
    with EmbeddedIndex(tmp_path / "index", write=True, today=lambda: today[0]) as index:
        filled(
            index,
            entry("p/old", "Encryption."),
            entry("p/new", "Encryption.", metadata={"supersedes": "old", "effective": "2025-07-01"}),
        )
        assert found(index, "encryption") == ["p/old"]
        today[0] = date(2025, 7, 1)
        assert found(index, "encryption") == ["p/new"]


# -- one writer

HOLDER = """
import sys
from pathlib import Path
from citehound.index.embedded import EmbeddedIndex
index = EmbeddedIndex(Path(sys.argv[1]), write=True)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_writer_waits_and_then_says_for_whom(folder: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "open\n"
        with pytest.raises(IndexLocked, match=f"process {holder.pid} "):
            EmbeddedIndex(folder, write=True, lock_seconds=0.2)
        with EmbeddedIndex(folder) as reader:
            assert found(reader, "word3") == ["a/d3"]
    finally:
        holder.kill()
        holder.communicate()
    with EmbeddedIndex(folder, write=True, lock_seconds=5) as index:
        assert found(index, "word3") == ["a/d3"]


# -- two stores, one truth


def test_what_only_the_record_has_is_replayed(folder: Path) -> None:
    index = EmbeddedIndex(folder, write=True)
    index.add([entry("a/new", "Fresh words."), entry("a/d1", "Changed words.")])
    index.remove(["a/d2"])
    store = index._store  # type: ignore[reportPrivateUsage]
    assert store is not None
    store.db.execute("COMMIT")
    index.abandon()  # as if killed between the two commits
    with EmbeddedIndex(folder) as reader:
        assert found(reader, "fresh") == ["a/new"]
        assert found(reader, "changed") == ["a/d1"]
        assert found(reader, "word1") == []
        assert found(reader, "word2") == []
        assert found(reader, "word3") == ["a/d3"]


def test_what_was_not_committed_is_forgotten(folder: Path) -> None:
    index = EmbeddedIndex(folder, write=True)
    index.add([entry("a/new", "Fresh words.")])
    index.abandon()
    with EmbeddedIndex(folder) as reader:
        assert found(reader, "fresh") == []
        assert found(reader, "word3") == ["a/d3"]
        assert "new.md" not in reader.files("a")


def test_a_lost_term_store_is_noticed(folder: Path) -> None:
    shutil.rmtree(folder / "terms")
    with pytest.raises(IndexCorrupt, match="citehound index --rebuild"):
        EmbeddedIndex(folder)


# -- checksums


def damaged_everywhere(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock")


@pytest.mark.parametrize("write", [False, True])
def test_any_flipped_byte_is_noticed(folder: Path, tmp_path: Path, write: bool) -> None:
    chance = random.Random(7)
    for name in damaged_everywhere(folder):
        for turn in range(6):
            copy = tmp_path / "copy"
            shutil.copytree(folder, copy)
            data = bytearray((copy / name).read_bytes())
            if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                (copy / name).write_bytes(data)
                with pytest.raises((IndexCorrupt, IndexTooNew), match="citehound index --rebuild"):
                    EmbeddedIndex(copy, write=write).abandon()
            shutil.rmtree(copy)
            assert turn < 6


def test_a_flipped_byte_is_noticed_after_a_kill_too(folder: Path, tmp_path: Path) -> None:
    with EmbeddedIndex(folder, write=True) as index:
        filled(index, *[entry(f"a/e{n}", f"Encryption more{n}. " * 50) for n in range(20)])
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed)
    segments = [p.name for p in (killed / "terms").iterdir() if p.suffix in (".term", ".idx", ".store", ".fast")]
    chance = random.Random(8)
    for name in [*(f"terms/{s}" for s in sorted(segments))]:
        copy = tmp_path / "copy"
        shutil.copytree(killed, copy)
        data = bytearray((copy / name).read_bytes())
        data[chance.randrange(max(1, len(data) - 100))] ^= 4
        (copy / name).write_bytes(data)
        with pytest.raises(IndexCorrupt, match="citehound index --rebuild"):
            EmbeddedIndex(copy)
        shutil.rmtree(copy)
    with EmbeddedIndex(killed) as index:
        assert found(index, "more7") == ["a/e7"]


def test_a_row_that_was_changed_while_open_is_noticed(folder: Path) -> None:
    with EmbeddedIndex(folder) as reader:
        with closing(sqlite3.connect(folder / "documents.db", isolation_level=None)) as db:
            db.execute("UPDATE documents SET body = zeroblob(length(body)) WHERE id = 'a/d3'")
        with pytest.raises(IndexCorrupt, match="'a/d3' is damaged"):
            reader.document("a/d3", principal=OWNER)
        with pytest.raises(IndexCorrupt):
            reader.search("word3", principal=OWNER)


def test_a_newer_index_is_refused(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}), "utf-8")
    with pytest.raises(IndexTooNew, match=r"format 99.*--rebuild"):
        EmbeddedIndex(folder)


def test_messages_are_one_line(folder: Path) -> None:
    (folder / "manifest.json").write_text("not json", "utf-8")
    with pytest.raises(IndexCorrupt) as refused:
        EmbeddedIndex(folder)
    assert "\n" not in str(refused.value)


def test_discarding_works_on_anything(folder: Path) -> None:
    (folder / "documents.db").write_bytes(b"garbage")
    EmbeddedIndex.discard(folder)
    with EmbeddedIndex(folder, write=True) as index:
        assert list(index.ids(principal=OWNER)) == []


def test_a_closed_index_says_so(folder: Path) -> None:
    index = EmbeddedIndex(folder)
    index.close()
    index.close()
    with pytest.raises(IndexUnusable, match="closed"):
        index.search("x", principal=OWNER)


def test_failures_survive(folder: Path) -> None:
    with EmbeddedIndex(folder, write=True) as index:
        index.record_failure(
            FileState(source="a", path="bad.md", document="a/bad", content_hash="h", metadata_hash="m", error="why")
        )
    with EmbeddedIndex(folder) as index:
        assert index.files("a")["bad.md"].error == "why"

"""Backup and restore while the state is in use, and indexes that earlier versions wrote."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import tarfile
import threading
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from citehound import backup as backups
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.backup import backup, restore
from citehound.cli import cli
from citehound.config import Config, load
from citehound.corpus import Corpus
from citehound.errors import CitehoundError, IndexCorrupt, IndexLocked, UsageError
from citehound.index.embedded import EmbeddedIndex
from citehound.runs import RunStore

OLD = sorted((Path(__file__).parent / "data" / "indexes").glob("format-*.zip"))
TOML = """[[sources]]
name = "rules"
path = "rules"

[[sources]]
name = "deals"
path = "deals"
filters = ["supplier"]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("backup")
    (root / "rules").mkdir()
    (root / "deals").mkdir()
    (root / "rules" / "security.md").write_text("# Security\n\nIncidents must be reported within 24 hours.\n", "utf-8")
    (root / "deals" / "alpha.md").write_text(
        "---\nsupplier: Alpha\n---\n# Alpha\n\nAlpha reports incidents within 72 hours of discovery.\n", "utf-8"
    )
    (root / "citehound.toml").write_text(TOML, "utf-8")
    config = load(root / "citehound.toml", env={})
    with Assistant(config) as assistant:
        assistant.ask_sync("How fast does Alpha report incidents?")
    (config.state / "tokens.json").write_text('{"tokens": []}\n', "utf-8")
    return root


@pytest.fixture
def config(made: Path, tmp_path: Path) -> Config:
    root = tmp_path / "here"
    shutil.copytree(made, root)
    return load(root / "citehound.toml", env={})


def searched(config: Config) -> list[tuple[str, str, float]]:
    with Corpus.open(config) as corpus:
        return [
            (hit.document, hit.snippet, hit.score)
            for source in ("rules", "deals")
            for hit in corpus.search(source, "incidents reported", principal=OWNER).hits
        ]


def runs(config: Config) -> list[str]:
    return [run.run_id for run in RunStore(config.state / "runs.sqlite").list(principal=OWNER)]


def test_a_restored_state_answers_as_before(config: Config, tmp_path: Path) -> None:
    before = (searched(config), runs(config))
    assert len(before[0]) == 2 and len(before[1]) == 1
    made = backup(config, tmp_path / "b.tar.gz")
    assert {"index/documents.db", "runs.sqlite", "tokens.json"} <= set(made.files)
    shutil.rmtree(config.state)
    found, kept = restore(config, tmp_path / "b.tar.gz")
    assert (found, kept) == (made, None)
    assert (searched(config), runs(config)) == before
    with Corpus.open(config, write=True) as corpus:
        assert corpus.sync().count("unchanged") == 2
    assert sorted(p.name for p in config.root.iterdir() if p.name.startswith(".")) == [".citehound"]


def test_what_is_restored_is_its_owners_alone(made: Path, tmp_path: Path) -> None:
    backup(load(made / "citehound.toml", env={}), tmp_path / "a.backup")
    shutil.copytree(made, tmp_path / "new", ignore=shutil.ignore_patterns(".citehound"))
    before = os.umask(0o022)
    try:
        restore(load(tmp_path / "new" / "citehound.toml", env={}), tmp_path / "a.backup")
    finally:
        os.umask(before)
    state = tmp_path / "new" / ".citehound"
    assert {name: (state / name).stat().st_mode & 0o077 for name in ("tokens.json", "runs.sqlite")} == {
        "tokens.json": 0,
        "runs.sqlite": 0,
    }


def test_vectors_come_back_and_are_not_made_again(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(config, tmp_path / "b.tar.gz")
    shutil.rmtree(config.state)
    restore(config, tmp_path / "b.tar.gz")

    def refuse(*_: object) -> None:
        raise AssertionError("a passage was embedded again")

    monkeypatch.setattr("citehound.embedding.StaticEmbedder.embed", refuse)
    with Corpus.open(config, write=True) as corpus:
        assert corpus.sync().count("unchanged") == 2


def test_the_archive_is_readable_by_its_owner_only_and_names_nobody(config: Config, tmp_path: Path) -> None:
    backup(config, tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        assert all((m.uid, m.gid, m.uname, m.gname) == (0, 0, "", "") and m.isreg() for m in tar)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.tar.gz", "here"]


def test_a_state_that_is_there_is_replaced_only_by_force_and_kept(config: Config, tmp_path: Path) -> None:
    backup(config, tmp_path / "b.tar.gz")
    (config.root / "deals" / "beta.md").write_text("# Beta\n\nBeta reports incidents at once.\n", "utf-8")
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
    with pytest.raises(UsageError, match="--force"):
        restore(config, tmp_path / "b.tar.gz")
    assert len(searched(config)) == 3
    _, kept = restore(config, tmp_path / "b.tar.gz", force=True)
    assert kept is not None and (kept / "index" / "manifest.json").exists()
    assert len(searched(config)) == 2


def test_a_reader_that_is_open_sees_what_was_restored(config: Config, tmp_path: Path) -> None:
    with Corpus.open(config) as reader:
        assert len(reader.search("deals", "incidents", principal=OWNER).hits) == 1
        other = tmp_path / "other"
        shutil.copytree(config.root, other)
        elsewhere = load(other / "citehound.toml", env={})
        (other / "deals" / "beta.md").write_text("# Beta\n\nBeta reports incidents at once.\n", "utf-8")
        with Corpus.open(elsewhere, write=True) as corpus:
            corpus.sync()
        backup(elsewhere, tmp_path / "b.tar.gz")
        restore(config, tmp_path / "b.tar.gz", force=True)
        assert len(reader.search("deals", "incidents", principal=OWNER).hits) == 2


def test_a_backup_beside_a_writer_is_one_moment(config: Config, tmp_path: Path) -> None:
    """Each commit of the writer moves one marker from one document to the other: a copy has it exactly once."""
    stop, failed = threading.Event(), list[BaseException]()
    for name in ("a", "b"):
        (config.root / "rules" / f"{name}.md").write_text(f"# {name}\n\nnothing here\n", "utf-8")

    def write() -> None:
        turn = 0
        try:
            while not stop.is_set():
                turn += 1
                texts = ("the marker stands here", "nothing here")
                for name, text in zip(("a", "b"), texts if turn % 2 else texts[::-1], strict=True):
                    (config.root / "rules" / f"{name}.md").write_text(f"# {name}\n\n{text} {turn}\n", "utf-8")
                with Corpus.open(config, write=True) as corpus:
                    corpus.sync()
        except BaseException as error:
            failed.append(error)

    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        for turn in range(4):
            backup(config, tmp_path / f"{turn}.tar.gz")
    finally:
        stop.set()
        writer.join()
    assert not failed
    for turn in range(4):
        root = tmp_path / f"restored-{turn}"
        root.mkdir()
        (root / "citehound.toml").write_text(TOML, "utf-8")
        for name in ("rules", "deals"):
            (root / name).mkdir()
        copy = load(root / "citehound.toml", env={})
        restore(copy, tmp_path / f"{turn}.tar.gz")
        with Corpus.open(copy) as corpus:
            told = [corpus.document(f"rules/{name}", principal=OWNER).text for name in ("a", "b")]
            assert sum("marker" in text for text in told) <= 1
            assert len({text.split()[-1] for text in told if text.split()[-1].isdigit()}) <= 1
            assert len(searched(copy)) == 2


def test_restoring_waits_for_an_index_run(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backup(config, tmp_path / "b.tar.gz")
    monkeypatch.setattr(backups, "_WAIT", 0.1)
    with EmbeddedIndex(config.state / "index", write=True), pytest.raises(IndexLocked, match="is writing this index"):
        restore(config, tmp_path / "b.tar.gz", force=True)
    assert len(searched(config)) == 2
    assert not list(config.root.glob(".citehound.*"))


def test_a_damaged_index_is_not_backed_up(config: Config, tmp_path: Path) -> None:
    with closing(sqlite3.connect(config.state / "index" / "documents.db", isolation_level=None)) as db:
        db.execute("UPDATE documents SET body = zeroblob(length(body)) WHERE id = 'deals/alpha'")
    with pytest.raises(IndexCorrupt, match="'deals/alpha' is damaged"):
        backup(config, tmp_path / "b.tar.gz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here"]


def test_nothing_to_back_up_and_a_name_that_is_taken(config: Config, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine", "utf-8")
    with pytest.raises(UsageError, match="is there already"):
        backup(config, tmp_path / "taken")
    assert (tmp_path / "taken").read_text("utf-8") == "mine"
    with pytest.raises(UsageError, match="no folder"):
        backup(config, tmp_path / "nowhere" / "b.tar.gz")
    shutil.rmtree(config.state)
    with pytest.raises(UsageError, match="nothing to back up"):
        backup(config, tmp_path / "b.tar.gz")


# archives that are not what they should be


def repacked(
    archive: Path, change: Callable[[dict[str, bytes]], None], *, kinds: dict[str, bytes] | None = None
) -> None:
    """Writes the archive anew, with other contents, and members of other kinds."""
    with tarfile.open(archive) as tar:
        held = {m.name: (tar.extractfile(m) or io.BytesIO()).read() for m in tar}
    change(held)
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in held.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if kinds and name in kinds:
                member.type, member.linkname, member.size = kinds[name], "/etc/passwd", 0
            tar.addfile(member, io.BytesIO(data))


def listing(held: dict[str, bytes], **changes: object) -> None:
    held["backup.json"] = json.dumps({**json.loads(held["backup.json"]), **changes}).encode()


def flipped(held: dict[str, bytes]) -> None:
    data = bytearray(held["runs.sqlite"])
    data[len(data) // 2] ^= 1
    held["runs.sqlite"] = bytes(data)


def escaping(held: dict[str, bytes]) -> None:
    told = json.loads(held["backup.json"])
    held["../evil.json"] = b"{}"
    listing(held, files={**told["files"], "../evil.json": [2, "0"]})


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "a byte is flipped": (flipped, "damaged"),
    "a file is missing": (lambda held: held.pop("runs.sqlite") and None, "damaged"),
    "a file too many": (lambda held: held.update({"more.json": b"{}"}), "more.json"),
    "a name that leads out": (escaping, "names '../evil.json'"),
    "no list": (lambda held: held.pop("backup.json") and None, "no backup"),
    "a list that is none": (lambda held: held.update({"backup.json": b"[1"}), "no backup"),
    "of a newer version": (lambda held: listing(held, format=99, version="9.9"), "9.9.*upgrade"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_that_is_not_what_it_should_be_changes_nothing(name: str, config: Config, tmp_path: Path) -> None:
    archive = tmp_path / "b.tar.gz"
    backup(config, archive)
    change, says = HOSTILE[name]
    repacked(archive, change)
    with pytest.raises(CitehoundError, match=says) as refused:
        restore(config, archive, force=True)
    assert "\n" not in str(refused.value)
    assert len(searched(config)) == 2
    assert not list(config.root.glob(".citehound.*")) and not (config.root.parent / "evil.json").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_only_plain_files_are_unpacked(kind: bytes, config: Config, tmp_path: Path) -> None:
    backup(config, tmp_path / "b.tar.gz")
    repacked(tmp_path / "b.tar.gz", lambda held: None, kinds={"tokens.json": kind})
    with pytest.raises(CitehoundError, match="no backup, or damaged"):
        restore(config, tmp_path / "b.tar.gz", force=True)


@pytest.mark.parametrize(
    "data",
    [b"", b"not a tar", gzip.compress(b"not a tar", mtime=0), gzip.compress(b"\0" * 2048, mtime=0)[:-9]],
    ids=["empty", "text", "gzip of text", "cut"],
)
def test_what_is_no_archive_is_refused(data: bytes, config: Config, tmp_path: Path) -> None:
    (tmp_path / "b.tar.gz").write_bytes(data)
    with pytest.raises(CitehoundError, match="no backup"):
        restore(config, tmp_path / "b.tar.gz", force=True)
    assert len(searched(config)) == 2


def test_the_commands_say_what_they_did(config: Config, tmp_path: Path) -> None:
    where = ["--config", str(config.path)]
    done = CliRunner().invoke(cli, ["backup", str(tmp_path / "b.tar.gz"), *where])
    assert done.exit_code == 0 and "b.tar.gz: " in done.stdout
    done = CliRunner().invoke(cli, ["restore", str(tmp_path / "b.tar.gz"), *where])
    assert done.exit_code == 2 and "--force" in done.stderr
    done = CliRunner().invoke(cli, ["restore", str(tmp_path / "b.tar.gz"), "--force", "--json", *where])
    assert done.exit_code == 0 and ".citehound.before-" in json.loads(done.stdout)["kept"]
    done = CliRunner().invoke(cli, ["restore", str(tmp_path / "none"), "--force", *where])
    assert done.exit_code == 2 and "there is no backup" in done.stderr


# indexes of earlier versions


@pytest.mark.parametrize("old", OLD, ids=lambda p: p.stem)
def test_an_index_of_an_earlier_format_is_brought_up_to_date(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(old) as packed:
        packed.extractall(tmp_path)
    config = load(tmp_path / "citehound.toml", env={})
    stored = runs(config)
    assert len(stored) == 1
    assert RunStore(config.state / "runs.sqlite").get(stored[0], principal=OWNER).answer.claims

    with Corpus.open(config, write=True) as corpus:
        assert {f.status for f in corpus.sync().files} <= {"unchanged", "indexed"}
        hits = corpus.search("rules", "incidents reported", principal=OWNER)
        assert [hit.document for hit in hits.hits] == ["rules/security-v2"] and hits.hidden_superseded == 1
        assert "24 hours" in corpus.document("rules/security-v2", principal=OWNER).text
        found = corpus.search("deals", "incidents", principal=OWNER, filters={"supplier": "Alpha"})
        assert [hit.document for hit in found.hits] == ["deals/alpha"]
        assert corpus.search("deals", "Vorfall", principal=OWNER).hits[0].document == "deals/beta"
        assert {one.hit.document for one in corpus.chase("What do the Security Rules say?", principal=OWNER)}
    with Corpus.open(config, write=True) as corpus:
        assert {f.status for f in corpus.sync().files} == {"unchanged"}
    backup(config, tmp_path / "b.tar.gz")


def test_there_is_an_index_of_every_format_before_this_one() -> None:
    from citehound.index.sealing import FORMAT

    have = {int(path.stem.rpartition("-")[2]) for path in OLD}
    assert have >= set(range(1, FORMAT)), "keep an index of the last format in tests/data/indexes before a new one"
    assert all(os.path.getsize(path) < 40_000 for path in OLD)

"""An index run that is killed loses nothing it reported, and the next one completes."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.config import Config, SourceConfig
from citehound.corpus import Corpus
from citehound.index.embedded import EmbeddedIndex

HERE = Path(__file__).parent
SHORT = 7
LONG = int(os.environ.get("CITEHOUND_CRASH_ROUNDS", "200"))
MOUNT = "mount -t tmpfs -o size=6m tmpfs"


class Nursery:
    """Runs scripts in children of one process that has imported everything, and kills them."""

    def __init__(self, folder: Path) -> None:
        self._out = folder / "out.txt"
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "nursery.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run_and_kill(self, script: str, *arguments: str, seconds: float) -> list[str]:
        """Kills the script with SIGKILL so long after its first line; gives the whole lines it had printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        asked = {"script": script, "arguments": arguments, "seconds": seconds, "out": str(self._out)}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        assert int(self._process.stdout.readline()) in (-9, 0)
        return [line.strip() for line in self._out.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


def check_stores_agree(index: EmbeddedIndex) -> dict[str, str]:
    """Every stored document is found by its marker, and nothing else is. Gives document to marker."""
    markers: dict[str, str] = {}
    for document in index.ids(principal=OWNER):
        stored = index.document(document, principal=OWNER)
        assert stored is not None
        marker = stored.text.split()[0]
        markers[document] = marker
        result = index.search(marker, principal=OWNER, k=20, per_document=20)
        assert {hit.document for hit in result.hits} == {document}
        assert len(result.hits) == 6
        assert all(marker in hit.snippet for hit in result.hits)
    return markers


def kill_writers(nursery: Nursery, folder: Path, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    reported: dict[str, str | None] = {}
    for turn in range(rounds):
        lines = nursery.run_and_kill("writer.py", str(folder), str(seed + turn), "40", seconds=chance.uniform(0.0, 0.7))
        touched: dict[str, str | None] = {}
        for line in lines:
            if line.startswith("gone "):
                _, gone, *held = line.split()
                touched[gone] = None
                touched.update(pair.split("=") for pair in held)
        with EmbeddedIndex(folder) as index:
            markers = check_stores_agree(index)
        reported.update(touched)
        for document, marker in reported.items():
            now = markers.get(document)
            if now != marker:  # only by a batch that was committed and could not be reported any more
                assert now is None or now.startswith(f"m{seed + turn}x"), (document, marker, now)
        unreported = [d for d, marker in reported.items() if markers.get(d) != marker]
        assert len(unreported) <= 7
        reported = dict(markers)
    with EmbeddedIndex(folder, write=True) as index:
        check_stores_agree(index)


def kill_syncs(nursery: Nursery, root: Path, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    docs = root / "docs"
    docs.mkdir(parents=True, exist_ok=True)
    config = Config(root=root, sources=(SourceConfig(name="docs", path=docs),))
    for turn in range(rounds):
        for number in range(30):
            if turn == 0 or chance.random() < 0.5:
                (docs / f"d{number}.md").write_text(
                    f"# Document {number}\n\nmarker{turn}x{number} is kept by the supplier.\n\n" + "Records. " * 60,
                    encoding="utf-8",
                )
        nursery.run_and_kill("syncer.py", str(root), seconds=chance.uniform(0.0, 0.3))
        with Corpus.open(config, write=True) as corpus:
            if not corpus.is_empty():
                view = corpus.view(principal=OWNER)
                for info in corpus.list_documents("docs", principal=OWNER, limit=100).documents:
                    marker = next(w for w in view.document(info.document).text.split() if w.startswith("marker"))
                    hits = corpus.search("docs", marker, principal=OWNER).hits
                    assert {hit.document for hit in hits} == {info.document}
            report = corpus.sync()
            assert report.count("failed") == 0
            assert report.count("indexed") + report.count("unchanged") == 30
            for file in report.files:
                written = (docs / file.path).read_text("utf-8").split("\n\n")[1].split()[0]
                hits = corpus.search("docs", written, principal=OWNER).hits
                assert [hit.document for hit in hits] == [file.document]


def test_a_killed_writer_loses_nothing_it_reported(nursery: Nursery, tmp_path: Path) -> None:
    kill_writers(nursery, tmp_path / "index", rounds=SHORT, seed=1)


def test_a_killed_sync_is_completed_by_the_next_one(nursery: Nursery, tmp_path: Path) -> None:
    kill_syncs(nursery, tmp_path, rounds=SHORT, seed=2)


@pytest.mark.slow
def test_writers_killed_many_times_lose_nothing_they_reported(nursery: Nursery, tmp_path: Path) -> None:
    kill_writers(nursery, tmp_path / "index", rounds=LONG, seed=100)


@pytest.mark.slow
def test_syncs_killed_many_times_are_completed_by_the_next_one(nursery: Nursery, tmp_path: Path) -> None:
    kill_syncs(nursery, tmp_path, rounds=LONG, seed=200)


# a disk that gets full


def can_mount(folder: Path) -> bool:
    """Whether this user may have a small file system of its own."""
    if not sys.platform.startswith("linux"):
        return False
    command = ["unshare", "-rm", "sh", "-c", f"{MOUNT} {shlex.quote(str(folder))}"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def fill_disks(folder: Path, *, rounds: int, seed: int, mounted: bool) -> None:
    script = [sys.executable, str(HERE / "full_disk.py"), str(rounds), str(seed), str(folder)]
    if mounted:
        inner = f"{MOUNT} {shlex.quote(str(folder))} && exec {shlex.join([*script, '--mounted'])}"
        script = ["unshare", "-rm", "sh", "-c", inner]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == rounds
    assert any("cannot be written" in line for line in lines), lines


def test_a_disk_that_gets_full_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    fill_disks(tmp_path, rounds=SHORT - 1, seed=3, mounted=can_mount(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("mounted", [True, False])
def test_disks_that_get_full_many_times_cost_nothing_that_was_acknowledged(tmp_path: Path, mounted: bool) -> None:
    if mounted and not can_mount(tmp_path):
        pytest.skip("needs the right to mount a file system of one's own")
    fill_disks(tmp_path, rounds=max(1, LONG // 4), seed=300, mounted=mounted)

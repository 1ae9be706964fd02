"""An index run that is killed loses nothing it reported, and the next one completes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.config import Config, SourceConfig
from citehound.corpus import Corpus
from citehound.index.embedded import EmbeddedIndex

HERE = Path(__file__).parent
SHORT = 3
LONG = int(os.environ.get("CITEHOUND_CRASH_ROUNDS", "50"))


def run_and_kill(script: str, *arguments: str, seconds: float) -> list[str]:
    """Runs a script, kills it after a while with SIGKILL, and gives the whole lines it had printed."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline()]
            try:
                process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
            rest, _ = process.communicate()
        finally:
            process.kill()
        errors.seek(0)
        assert process.returncode in (-9, 0), errors.read()
    lines.extend(line for line in rest.splitlines(keepends=True) if line.endswith("\n"))
    return [line.strip() for line in lines]


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


def kill_writers(folder: Path, *, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    reported: dict[str, str | None] = {}
    for turn in range(rounds):
        lines = run_and_kill("writer.py", str(folder), str(seed + turn), "40", seconds=chance.uniform(0.0, 0.7))
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


def kill_syncs(root: Path, *, rounds: int, seed: int) -> None:
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
        run_and_kill("syncer.py", str(root), seconds=chance.uniform(0.0, 0.3))
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


def test_a_killed_writer_loses_nothing_it_reported(tmp_path: Path) -> None:
    kill_writers(tmp_path / "index", rounds=SHORT, seed=1)


def test_a_killed_sync_is_completed_by_the_next_one(tmp_path: Path) -> None:
    kill_syncs(tmp_path, rounds=SHORT, seed=2)


@pytest.mark.slow
def test_writers_killed_many_times_lose_nothing_they_reported(tmp_path: Path) -> None:
    kill_writers(tmp_path / "index", rounds=LONG, seed=100)


@pytest.mark.slow
def test_syncs_killed_many_times_are_completed_by_the_next_one(tmp_path: Path) -> None:
    kill_syncs(tmp_path, rounds=LONG, seed=200)

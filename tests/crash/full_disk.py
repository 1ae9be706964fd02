"""Fills the disk under an index run, a run record and a backup, and checks that nothing acknowledged is lost.

    python tests/crash/full_disk.py ROUNDS SEED FOLDER [--mounted]

With `--mounted`, FOLDER is a small file system of its own (a real ENOSPC), else the size of files is limited (EFBIG).
Prints a line for each round, and raises where something does not hold.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from citehound.access import OWNER
from citehound.answers import Answer, Usage
from citehound.backup import backup
from citehound.config import Config, SourceConfig
from citehound.corpus import Corpus
from citehound.errors import CitehoundError
from citehound.index import embedded
from citehound.runs import RunStore

FILES = 12
embedded.BATCH_CHARS = 3000


@contextmanager
def little_room(folder: Path, free: int, *, mounted: bool) -> Generator[None]:
    """Within it, `free` bytes can be written (to all files, or to each)."""
    if not mounted:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return
    ballast = folder / "ballast"
    there = os.statvfs(folder)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(4096, there.f_bavail * there.f_frsize - free))
    try:
        yield
    finally:
        ballast.unlink()


def refused(work: object) -> str | None:
    """What is said where there is no room; None where there was enough."""
    try:
        work()  # type: ignore[operator]
    except (CitehoundError, OSError) as error:
        said = str(error)
        assert "\n" not in said, said
        assert "damaged" not in said and "--rebuild" not in said, said
        return said
    return None


def answer(number: int) -> Answer:
    return Answer(
        question=f"question {number} " + "why " * 2000,
        requested_mode="single",
        mode="single",
        route="",
        model="offline",
        status="not_found",
        text="",
        stop_reason="answered",
        usage=Usage(steps=1, model_calls=1),
    )


def held(config: Config, *, whole: bool = True) -> set[str]:
    """The markers of all documents, each of which must be found by its words; if not `whole`, by nothing else."""
    found: set[str] = set()
    with Corpus.open(config) as corpus:
        for info in corpus.list_documents("docs", principal=OWNER, limit=100).documents:
            text = corpus.document(info.document, principal=OWNER).text
            marker = next(word for word in text.split() if word.startswith("marker"))
            found_in = {h.document for h in corpus.search("docs", marker, principal=OWNER).hits}
            assert found_in == {info.document} or not (whole or found_in)
            found.add(marker)
    return found


def one(folder: Path, turn: int, chance: random.Random, *, mounted: bool) -> str:
    docs = folder / "docs"
    docs.mkdir(exist_ok=True)
    config = Config(root=folder, sources=(SourceConfig(name="docs", path=docs),))
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
    for number in range(FILES):
        if chance.random() < 0.6:
            words = " ".join(f"word{chance.randrange(10**6)}" for _ in range(120))
            (docs / f"d{number}.md").write_text(f"# Document {number}\n\nmarker{turn}x{number} {words}\n", "utf-8")
    before = held(config)
    store = RunStore(config.state / "runs.sqlite")
    recorded = [run.run_id for run in store.list(100, principal=OWNER)]
    said: list[str | None] = []

    def sync() -> None:
        with Corpus.open(config, write=True) as corpus:
            corpus.sync()

    room = int(chance.choice((2_000, 20_000, 60_000, 150_000, 300_000)) * chance.uniform(0.2, 1.0))
    with little_room(folder, room, mounted=mounted):
        said.append(refused(sync))
        said.append(refused(lambda: recorded.append(store.save(answer(turn), principal=OWNER))))
        said.append(refused(lambda: backup(config, folder / f"{turn}.tar.gz")))
        said.append(refused(lambda: held(config, whole=False)))  # it can be searched as it is, or says what it needs
    now = held(config)
    wanted = {w for p in docs.iterdir() for w in p.read_text("utf-8").split() if w.startswith("marker")}
    assert now <= before | wanted, now - before - wanted
    assert {r.run_id for r in store.list(10_000, principal=OWNER)} >= set(recorded)
    for left in folder.glob("*.tar.gz*"):
        assert left.suffix == ".gz", left  # whole, or not there
        left.unlink()
    sync()
    assert held(config) == wanted
    return ", ".join("enough" if s is None else s.partition(";")[0] for s in said)


def main(rounds: str, seed: str, folder: str, *flags: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    chance = random.Random(int(seed))
    place = Path(folder)
    for turn in range(int(rounds)):
        print(turn, one(place, turn, chance, mounted="--mounted" in flags), flush=True)
        if turn % 10 == 9:
            shutil.rmtree(place / ".citehound")


if __name__ == "__main__":
    main(*sys.argv[1:])

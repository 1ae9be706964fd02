"""Indexes many files with a kill -9 on the way: memory of all processes together, and what is not read twice.

    python benchmarks/ingest_scale.py [--data DIR] [--files 20000] [--folder DIR] [--json]

The files are those of DIR under many names, each with a line of its own. The first run is killed when a tenth is done;
the second has to find all that the first had stored unchanged, and reads the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from citehound import corpus as corpora
from citehound.config import Config, IndexConfig, SourceConfig
from citehound.corpus import Corpus
from citehound.events import Event, Progress

TEXT = (".md", ".txt", ".rst", ".html")
CODE = "import sys; sys.path.insert(0, sys.argv[1]); import ingest_scale; ingest_scale.child(*sys.argv[2:])"


@dataclass(frozen=True, kw_only=True)
class Result:
    """Of both runs."""

    files: int
    stored: int
    """By the run that was killed."""
    unchanged: int
    indexed: int
    failed: int
    seconds: float
    """Of the second run."""
    peak_mb: float
    """Resident in all processes together; what they share is counted in each."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "corpora")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where files and index are made; default: a temporary folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="citehound-scale-") as scratch:
        result = measure(given.data, given.folder or Path(scratch), files=given.files, kill_at=given.files // 10)
    if given.json:
        print(json.dumps(asdict(result), indent=2))
    else:
        for name, value in asdict(result).items():
            print(f"{name:<10}{value:>12,.0f}")
    return 0


def measure(data: Path, folder: Path, *, files: int, kill_at: int, commit_seconds: float = 5.0) -> Result:
    """Makes `files` files in `folder` from those in `data`, and indexes them in two runs."""
    generate(data, folder / "docs", files=files)
    first = _run(folder, kill_at=kill_at, commit_seconds=commit_seconds)
    with sqlite3.connect(f"file:{folder / '.citehound' / 'index' / 'documents.db'}?mode=ro", uri=True) as db:
        (stored,) = db.execute("SELECT count(*) FROM files WHERE error IS NULL").fetchone()
    db.close()
    started = time.monotonic()
    second = _run(folder, kill_at=0, commit_seconds=5.0)
    counts = json.loads((folder / "counts.json").read_text("utf-8"))
    return Result(
        files=files,
        stored=stored,
        unchanged=counts["unchanged"],
        indexed=counts["indexed"],
        failed=counts["failed"],
        seconds=time.monotonic() - started,
        peak_mb=max(first, second),
    )


def generate(data: Path, folder: Path, *, files: int) -> None:
    """Files with the texts of `data`, each with a line of its own, in folders of 500."""
    originals = [path for path in sorted(data.rglob("*")) if path.suffix.lower() in TEXT]
    texts = [(path, text) for path in originals if len(text := path.read_bytes()) > 200]
    for number in range(files):
        path, text = texts[number % len(texts)]
        place = folder / f"part-{number // 500:03}" / f"{path.stem}-{number:05}{path.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text + f"\n\nThis is copy {number} of {path.stem}.\n".encode())


def child(folder: str, kill_at: str, commit_seconds: str) -> None:
    """The whole of a run; it kills itself when so many files are done, unless that is 0."""
    setattr(corpora, "_COMMIT_SECONDS", float(commit_seconds))  # noqa: B010

    def emit(event: Event) -> None:
        if int(kill_at) and isinstance(event, Progress) and event.done >= int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

    root = Path(folder)
    config = Config(root=root, sources=(SourceConfig(name="s", path=Path("docs")),), index=IndexConfig(ocr=False))
    with Corpus.open(config, write=True) as corpus:
        report = corpus.sync(emit=emit)
    counts = {status: report.count(status) for status in ("indexed", "unchanged", "failed")}
    (root / "counts.json").write_text(json.dumps(counts), "utf-8")


def _run(folder: Path, *, kill_at: int, commit_seconds: float) -> float:
    """One run in a process of its own; returns the most megabytes that it and its workers had."""
    here = str(Path(__file__).resolve().parent)
    command = [sys.executable, "-c", CODE, here, str(folder), str(kill_at), str(commit_seconds)]
    process = subprocess.Popen(command)
    peak = 0.0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.2):
            peak = max(peak, _resident(process.pid))

    thread = threading.Thread(target=watch)
    thread.start()
    code = process.wait()
    ended.set()
    thread.join()
    if code not in (0, -signal.SIGKILL) or (code == 0) != (kill_at == 0):
        raise SystemExit(f"the run ended with code {code}")
    return peak


def _resident(process: int) -> float:
    """Megabytes of a process and those that it started; 0 where the system does not say."""
    total = 0.0
    try:
        status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
        resident = next((line for line in status.splitlines() if line.startswith("VmRSS")), "VmRSS: 0 kB")
        total += int(resident.split()[1]) / 1024
        for task in Path(f"/proc/{process}/task").iterdir():
            for started in (task / "children").read_text("ascii").split():
                total += _resident(int(started))
    except OSError:
        pass  # it has just ended
    return total


if __name__ == "__main__":
    raise SystemExit(main())

"""Copies of an index: one that is taken while others read and write, and an index made from one; archives are not its
business."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from ..errors import CitehoundError, IndexCorrupt
from ..readonly import readable
from . import vectors
from .stored import REBUILD, corrupt_if_broken, crc

_TRIES = 3
DATABASE = "documents.db"
VECTORS = "vectors"


def take(folder: Path, target: Path) -> None:
    """Copies what an index cannot be made again from: its documents, as of one moment, and the vectors that fit them.

    A writer may be at work; nobody is held up. What is copied is checked, so that a damaged index is noticed now and
    not when the copy is needed. Raises IndexCorrupt, and CitehoundError where the copy cannot be written.
    """
    target.mkdir(parents=True, exist_ok=True)
    for attempt in range(_TRIES):
        state = _documents(folder / DATABASE, target / DATABASE)
        if state is None or _vectors(folder / VECTORS, target / VECTORS, state):
            return
        # A writer has replaced the vectors since: once more, and at last without them, for they can be made again.
        if attempt == _TRIES - 1:
            with contextlib.closing(sqlite3.connect(target / DATABASE, isolation_level=None)) as db:
                db.execute("DELETE FROM meta WHERE key = 'vectors'")


def _documents(source: Path, target: Path) -> vectors.State | None:
    """Copies the record; gives what it says of the vectors."""
    target.unlink(missing_ok=True)
    where, uri = readable(source)
    with (
        corrupt_if_broken(),
        contextlib.closing(sqlite3.connect(where, uri=uri, timeout=10.0)) as db,
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        try:
            db.backup(copy)
        except sqlite3.OperationalError as error:
            if "full" in str(error) or "disk I/O" in str(error):
                raise CitehoundError(f"the copy {str(target)!r} cannot be written ({error}); make room") from error
            raise
        copy.execute("PRAGMA journal_mode = DELETE")  # one file
        if copy.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise IndexCorrupt(f"{str(source)!r} is damaged; {REBUILD}")
        for row in copy.execute("SELECT id, source, head, body, checksum FROM documents"):
            if crc(*row[:4]) != row[4]:
                raise IndexCorrupt(f"the stored document {row[0]!r} is damaged; {REBUILD}")
        return vectors.state_of(copy)


def _vectors(source: Path, target: Path, state: vectors.State) -> bool:
    """Copies the rows that hold, and perhaps more, which mean nothing; False when they are not there any more."""
    shutil.rmtree(target, ignore_errors=True)
    if not state.count:
        return True
    target.mkdir(parents=True)
    try:
        for path in vectors.paths(source, state):
            shutil.copyfile(path, target / path.name)
        vectors.verify(target, state)
    except (FileNotFoundError, IndexCorrupt):
        return False
    return True

"""How stores are made for nobody else to read, and opened where they cannot be written; reads no content."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def private_folder(path: Path) -> None:
    """Makes a folder, and what is missing above it, that only this user may enter; one that is there stays as it is."""
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)


def private_file(path: Path) -> None:
    """Makes an empty file that only this user may read, in a private folder; one that is there stays as it is."""
    private_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def writable(path: Path) -> bool:
    """True when this process may write the file and, as SQLite does, new files beside it."""
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def readable(path: Path) -> tuple[str, bool]:
    """What to give `sqlite3.connect`, and its `uri`: the plain path where SQLite may write, else a read-only URI.

    In WAL mode SQLite writes files beside the database even to read it. Without the right to, it can only read one
    that no writer has left a log of, as if nobody could ever change it (`immutable`).
    """
    if writable(path):
        return str(path), False
    wal = path.with_name(path.name + "-wal")
    alone = not wal.exists() or wal.stat().st_size == 0
    return f"{path.absolute().as_uri()}?mode=ro" + ("&immutable=1" if alone else ""), True


def borrowed(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder that stands for one in which no lock file can be made: links to its files as they are now.

    What a later writer replaces (names that do not begin with a segment's id) is copied instead.
    """
    stand_in = tempfile.TemporaryDirectory(prefix="citehound-")
    try:
        for path in folder.iterdir():
            target = Path(stand_in.name) / path.name
            if path.suffix == ".json":
                shutil.copyfile(path, target)
            elif path.suffix != ".lock":
                target.symlink_to(path.absolute())
    except BaseException:
        stand_in.cleanup()
        raise
    return stand_in

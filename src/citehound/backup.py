"""Backup and restore of `.citehound` as one archive, while it is in use; what can be made again is left out.

An archive is a gzipped tar:

    backup.json              format, version, time, and size and SHA-256 of every file below
    index/documents.db       the record of all documents, as of one moment
    index/vectors/…          their vectors
    runs.sqlite              the runs, as of one moment
    *.json                   the other small files (tokens, by their hashes; what was left out of the index)

The index of terms is derived and is made anew on restoring.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import sqlite3
import stat
import tarfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from . import __version__
from .config import Config
from .errors import CitehoundError, UsageError
from .index.copies import DATABASE, VECTORS, take
from .index.embedded import EmbeddedIndex
from .index.locking import WriteLock
from .readonly import readable

FORMAT = 1
LIST = "backup.json"
_MOST_LIST = 16_000_000
_NAME = re.compile(
    rf"index/{re.escape(DATABASE)}|index/{VECTORS}/[0-9a-f]+\.[a-z0-9]+|[a-z][a-z0-9_-]*\.(?:sqlite|json)"
)
_WAIT = 10.0


@dataclass(frozen=True, kw_only=True)
class Backup:
    """What an archive holds."""

    version: str
    """Of Citehound, when it was made."""
    created: float
    """Seconds since the epoch."""
    files: dict[str, tuple[int, str]]
    """Name to size in bytes and SHA-256."""
    format: int = FORMAT

    @property
    def size(self) -> int:
        """Bytes, unpacked."""
        return sum(size for size, _ in self.files.values())


def backup(config: Config, archive: Path) -> Backup:
    """Writes the state of this configuration to `archive`, which appears when it is whole.

    Searches, questions and an index run may go on meanwhile: index and runs are each as of one moment. Raises
    UsageError when there is nothing to back up or the archive is there already, IndexCorrupt, and CitehoundError when
    it cannot be written.
    """
    state = config.state
    if not EmbeddedIndex.exists(state / "index") and not any(state.glob("*.sqlite")):
        raise UsageError(f"there is nothing to back up in {str(state)!r}; run `citehound index` first")
    if archive.exists():
        raise UsageError(f"{str(archive)!r} is there already; choose another name")
    if not archive.parent.is_dir():
        raise UsageError(f"there is no folder {str(archive.parent)!r}; make it, or choose another")
    staged = archive.with_name(f"{archive.name}.{secrets.token_hex(4)}.part")
    work = archive.with_name(f"{staged.name}.d")
    try:
        work.mkdir(mode=0o700)
        _stage(state, work)
        made = Backup(version=__version__, created=time.time(), files=_figures(work))
        (work / LIST).write_text(json.dumps(asdict(made), indent=1), "utf-8")
        with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as tar:
                for name in (LIST, *made.files):
                    tar.add(work / name, arcname=name, recursive=False, filter=_plain)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(archive)
    except OSError as error:
        raise CitehoundError(
            f"the backup {str(archive)!r} cannot be written ({error.strerror or error}); nothing was changed"
        ) from error
    finally:
        staged.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)
    return made


def restore(config: Config, archive: Path, *, force: bool = False) -> tuple[Backup, Path | None]:
    """Puts back what `backup` wrote; gives what it was, and where the state of before is kept now.

    Everything is checked, and the index made ready, before anything is moved. Readers see the new state at their next
    query. Raises UsageError where there is a state already, unless `force` is given, CitehoundError for an archive that
    is damaged or newer, and IndexLocked while an index run is at work.
    """
    state = config.state
    there = state.exists() and any(p.suffix != ".lock" for p in state.iterdir())
    if there and not force:
        raise UsageError(
            f"there is a state already in {str(state)!r}; --force replaces it, and keeps the old one aside"
        )
    mark = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    work = state.with_name(f"{state.name}.restoring-{mark}")
    kept = state.with_name(f"{state.name}.before-{mark}")
    lock = WriteLock(state / "index.lock")
    try:
        work.mkdir(parents=True, mode=0o700)
        found = _unpack(archive, work)
        if (work / "index" / DATABASE).exists():
            EmbeddedIndex.adopt(work / "index", language=config.index.language)
        if state.exists():
            lock.acquire(seconds=_WAIT)
            work.chmod(stat.S_IMODE(state.stat().st_mode))
            state.rename(kept)
        work.rename(state)
    except OSError as error:
        raise CitehoundError(
            f"{str(archive)!r} cannot be restored ({error.strerror or error}); what was there is as it was"
        ) from error
    finally:
        lock.release()
        shutil.rmtree(work, ignore_errors=True)
        if kept.exists() and not state.exists():
            kept.rename(state)
    if not there:
        shutil.rmtree(kept, ignore_errors=True)
    return found, kept if there else None


def _stage(state: Path, work: Path) -> None:
    if EmbeddedIndex.exists(state / "index"):
        take(state / "index", work / "index")
    for path in sorted(state.iterdir()):
        if not path.is_file() or path.is_symlink() or not _NAME.fullmatch(path.name):
            continue
        if path.suffix == ".sqlite":
            _database(path, work / path.name)
        else:
            shutil.copyfile(path, work / path.name)


def _database(source: Path, target: Path) -> None:
    where, uri = readable(source)
    try:
        with closing(sqlite3.connect(where, uri=uri, timeout=_WAIT)) as db, closing(sqlite3.connect(target)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            sound = copy.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.Error as error:
        raise CitehoundError(f"{str(source)!r} cannot be copied ({error}); check the file and the disk") from error
    if not sound:
        raise CitehoundError(f"{str(source)!r} is damaged; move it away to begin anew, or restore an earlier backup")


def _figures(work: Path) -> dict[str, tuple[int, str]]:
    return {p.relative_to(work).as_posix(): _stamp(p) for p in sorted(work.rglob("*")) if p.is_file()}


def _stamp(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and rights of this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unpack(archive: Path, work: Path) -> Backup:
    """Unpacks exactly the files that the archive's list names, and checks each."""
    if not archive.is_file():
        raise UsageError(f"there is no backup {str(archive)!r}; give the file that `citehound backup` wrote")
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            found = _listed(tar.next(), tar, archive)
            left = dict(found.files)
            for number, member in enumerate(tar):
                if number == 0:
                    continue  # the list itself
                size = left.pop(member.name, (None, ""))[0]
                if not member.isreg() or member.size != size or (data := tar.extractfile(member)) is None:
                    raise ValueError(f"it holds {member.name!r}, which its list does not")
                to = work / member.name
                to.parent.mkdir(parents=True, exist_ok=True)
                with data, open(to, "xb", opener=_for_owner) as file:  # hashes of tokens, questions, answers
                    shutil.copyfileobj(data, file)
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CitehoundError(f"{str(archive)!r} is no backup, or damaged ({error}); nothing was changed") from error
    wrong = [*left, *(name for name, stamp in found.files.items() if name not in left and _stamp(work / name) != stamp)]
    if wrong:
        raise CitehoundError(f"{str(archive)!r} is damaged: {wrong[0]!r} is not what was written; nothing was changed")
    return found


def _listed(first: tarfile.TarInfo | None, tar: tarfile.TarFile, archive: Path) -> Backup:
    data = None if first is None or first.name != LIST or first.size > _MOST_LIST else tar.extractfile(first)
    if data is None:
        raise ValueError(f"it does not begin with {LIST}")
    with data:
        told = cast("dict[str, Any]", json.load(data))
    if int(told["format"]) > FORMAT:
        raise CitehoundError(
            f"{str(archive)!r} was made by Citehound {told['version']}, whose backups this version cannot read; upgrade"
        )
    files = {str(name): (int(size), str(digest)) for name, (size, digest) in told["files"].items()}
    for name in files:
        if not _NAME.fullmatch(name):
            raise ValueError(f"it names {name!r}")
    return Backup(version=str(told["version"]), created=float(told["created"]), files=files)

"""The manifest of an index and the checksums of its files: written when a writer is done, checked at opening."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Any, cast

from ..errors import IndexCorrupt, IndexTooNew
from . import vectors
from .stored import REBUILD, corrupt_if_broken, crc

FORMAT = 4
PLAIN = 3
"""From this format on the index of terms has today's form; it had one part before 4."""


def read_manifest(folder: Path) -> dict[str, Any]:
    try:
        text = (folder / "manifest.json").read_text("utf-8")
        loaded: Any = json.loads(text)
        format_ = int(loaded["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IndexCorrupt(f"the index manifest {str(folder / 'manifest.json')!r} cannot be read; {REBUILD}") from error
    if format_ > FORMAT:
        raise IndexTooNew(
            f"the index has format {format_}, this version reads up to {FORMAT};"
            f" upgrade citehound, or {REBUILD} to make it again"
        )
    manifest = cast("dict[str, Any]", loaded)
    checksum = manifest.pop("checksum", None)
    if format_ < 1 or checksum != _manifest_checksum(manifest) or text != _manifest_text(manifest):
        raise IndexCorrupt(f"the checksum of {str(folder / 'manifest.json')!r} does not hold; {REBUILD}")
    return manifest


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    temporary = folder / "manifest.tmp"
    with corrupt_if_broken():
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(_manifest_text(manifest))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / "manifest.json")


def seal(folder: Path) -> None:
    """Writes fresh checksums of all files of an index that its writer has closed."""
    manifest = read_manifest(folder)
    files = {name: _stamp(folder / name) for name in _payload(folder)}
    write_manifest(folder, {"format": FORMAT, "generation": manifest["generation"], "clean": True, "files": files})


def _payload(folder: Path) -> list[str]:
    names = ["documents.db"]
    for path in sorted((folder / "terms").rglob("*")):
        if path.is_file() and not path.name.endswith(".lock"):
            names.append(path.relative_to(folder).as_posix())
    if (folder / "vectors").exists():
        names.extend(f"vectors/{path.name}" for path in sorted((folder / "vectors").iterdir()))
    return names


def verify(folder: Path, manifest: dict[str, Any], *, thorough: bool) -> None:
    """Raises IndexCorrupt unless the stores are what the manifest says, or, after a kill, sound in themselves."""
    database = folder / "documents.db"
    if manifest["clean"]:
        for name, stamp in manifest["files"].items():
            path = folder / name
            try:
                same = _stamp(path) == stamp
            except OSError:
                same = False
            if not same:
                raise IndexCorrupt(f"the checksum of {str(path)!r} does not hold; {REBUILD}")
        wal = database.with_name("documents.db-wal")
        if wal.exists() and wal.stat().st_size > 0:
            raise IndexCorrupt(f"{str(wal)!r} was not written by a finished index run; {REBUILD}")
        return
    if not thorough:
        return
    with corrupt_if_broken():
        db = sqlite3.connect(database, timeout=10.0)
        try:
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise IndexCorrupt(f"{str(database)!r} is damaged; {REBUILD}")
            generation = db.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
            if generation != (manifest["generation"],):
                raise IndexCorrupt(f"{str(database)!r} belongs to another index; {REBUILD}")
            for row in db.execute("SELECT id, source, head, body, checksum FROM documents"):
                if crc(*row[:4]) != row[4]:
                    raise IndexCorrupt(f"the stored document {row[0]!r} is damaged; {REBUILD}")
            state = vectors.state_of(db)
        finally:
            db.close()
    if state is not None:
        vectors.verify(folder / "vectors", state)
    for part in _parts(folder / "terms"):
        for name in _referenced(part):
            if not _footer_holds(part / name):
                raise IndexCorrupt(f"the checksum of {str(part / name)!r} does not hold; {REBUILD}")


def _parts(terms: Path) -> list[Path]:
    """The folders that have an index. One that was not finished when its writer was killed has nothing in it yet."""
    inner = sorted(path for path in terms.iterdir() if path.is_dir())
    return [terms, *(path for path in inner if (path / "meta.json").exists() or any(path.glob("*.term")))]


def _referenced(terms: Path) -> list[str]:
    """The files that tantivy's meta.json stands on. Others may be left of a killed writer, and mean nothing."""
    meta_path = terms / "meta.json"
    try:
        meta = json.loads(meta_path.read_text("utf-8"))
        deleted: dict[str, str] = {}
        for segment in meta["segments"]:
            name = str(segment["segment_id"]).replace("-", "")
            deletes = segment.get("deletes")
            deleted[name] = f"{name}.{deletes['opstamp']}.del" if deletes else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexCorrupt(f"{str(meta_path)!r} cannot be read; {REBUILD}") from error
    present = sorted(path.name for path in terms.iterdir())
    for segment, deletes in deleted.items():
        files = {name.rpartition(".")[2] for name in present if name.startswith(f"{segment}.")}
        if not {"term", "idx", "fast", "store"} <= files or (deletes and deletes not in present):
            raise IndexCorrupt(f"a segment of {str(terms)!r} is missing; {REBUILD}")
    return [
        name
        for name in present
        if (segment := name.partition(".")[0]) in deleted
        and (name == deleted[segment] or not name.endswith((".del", ".lock", ".tmp")))
    ]


def sweep(folder: Path) -> None:
    """Removes what a writer that was killed, or had no room, left in the index of terms: the next one would trip over
    it. For whoever holds the lock, before writing."""
    for part in _parts(folder / "terms"):
        needed = {*_referenced(part), "meta.json", ".managed.json"}
        for path in part.iterdir():
            if path.is_file() and path.name not in needed and path.suffix != ".lock":
                path.unlink(missing_ok=True)


def _stamp(path: Path) -> list[Any]:
    """[size, SHA-256] of a file."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return [file.tell(), digest]


def _manifest_checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _manifest_text(manifest: dict[str, Any]) -> str:
    return json.dumps({**manifest, "checksum": _manifest_checksum(manifest)}, indent=1, sort_keys=True) + "\n"


def _footer_holds(path: Path) -> bool:
    """Checks the CRC-32 that tantivy writes at the end of its files: body, JSON footer, its length, a magic number."""
    data = path.read_bytes()
    if len(data) < 8:
        return False
    length, magic = struct.unpack("<II", data[-8:])
    if magic != 1337 or length > len(data) - 8:
        return False
    try:
        expected = int(json.loads(data[-8 - length : -8])["crc"])
    except (ValueError, KeyError, TypeError):
        return False
    return zlib.crc32(data[: -8 - length]) == expected

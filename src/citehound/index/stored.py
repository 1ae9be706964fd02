"""What `documents.db` holds of each document, packed and checked; it searches nothing."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sqlite3
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, cast

from ..documents import Chunk, Document, Section, Stated
from ..errors import IndexCorrupt, IndexUnusable, NoRoom
from . import FileState, IndexEntry
from .catalog import Head
from .links import Wording, calls, key_of, pack, unpack, wording

REBUILD = "run `citehound index --rebuild`"
_CACHED_CHARS = 32_000_000
_CACHED_WORDINGS = 30_000
"""Passages whose words are kept at hand."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    head TEXT NOT NULL,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE files (
    source TEXT NOT NULL, path TEXT NOT NULL, document TEXT NOT NULL, content_hash TEXT NOT NULL,
    metadata_hash TEXT NOT NULL, error TEXT, checksum INTEGER NOT NULL, PRIMARY KEY (source, path)
) WITHOUT ROWID;
CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT NOT NULL);
"""
MORE_TABLES = """
CREATE TABLE IF NOT EXISTS wordings (row INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS calls (
    key INTEGER NOT NULL, row INTEGER NOT NULL, weight REAL NOT NULL, PRIMARY KEY (key, row)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_of_row ON calls (row);
CREATE TRIGGER IF NOT EXISTS links_go AFTER DELETE ON documents BEGIN
    DELETE FROM wordings WHERE row = old.row;
    DELETE FROM calls WHERE row = old.row;
END;
CREATE TABLE IF NOT EXISTS parts (row INTEGER PRIMARY KEY, part TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS parts_go AFTER DELETE ON documents BEGIN
    DELETE FROM parts WHERE row = old.row;
END;
"""
"""What links stand on: the words and names of each document's passages, and by which names a document is called. And in
which part of the index of terms a document is, where that is not the main one."""


class StoredDocument:
    """A document as it was stored, with its chunks; decoded as far as it is asked for."""

    def __init__(self, document: str, source: str, head: str, packed: bytes) -> None:
        self._id = document
        self._source = source
        self._packed_head = head
        self._body: Any = json.loads(zlib.decompress(packed))
        self.text = str(self._body["text"])

    @cached_property
    def document(self) -> Document:
        head: Any = json.loads(self._packed_head)
        body = self._body
        return Document(
            id=self._id,
            source=self._source,
            path=head["path"],
            title=head["title"],
            text=self.text,
            sections=tuple(Section(**s) for s in body["sections"]),
            metadata=head["metadata"],
            language=head["language"],
            pages=tuple(body["pages"]),
            warnings=tuple(body["warnings"]),
            stated=Stated(**body["stated"]) if body.get("stated") else None,
        )

    @cached_property
    def chunks(self) -> tuple[Chunk, ...]:
        found = (self.chunk(ordinal) for ordinal in range(len(self._body["chunks"])))
        return tuple(chunk for chunk in found if chunk is not None)

    def chunk(self, ordinal: int) -> Chunk | None:
        if ordinal >= len(self._body["chunks"]):
            return None
        section, start, end, about = self._body["chunks"][ordinal]
        return Chunk(
            document=self._id,
            ordinal=ordinal,
            section=section,
            start=start,
            end=end,
            text=self.text[start:end],
            context=about,
        )

    def context(self, ordinal: int) -> str:
        """What is searched beside a chunk's text."""
        chunks = self._body["chunks"]
        return str(chunks[ordinal][3]) if ordinal < len(chunks) else ""

    def place(self, ordinal: int) -> tuple[str | None, int, int] | None:
        """(section, start, end) of a chunk."""
        chunks = self._body["chunks"]
        return tuple(chunks[ordinal][:3]) if ordinal < len(chunks) else None

    def section_title(self, section: str | None) -> str:
        """'' when there is no such section."""
        found = (s["title"] for s in self._body["sections"] if s["id"] == section) if section else ()
        return str(next(iter(found), ""))


def head_of(row: int, document: str, source: str, packed: str) -> Head:
    head = json.loads(packed)
    return Head(
        row=row,
        id=document,
        source=source,
        path=head["path"],
        title=head["title"],
        language=head["language"],
        metadata=head["metadata"],
        chars=head["chars"],
        passages=head["passages"],
    )


def crc(*parts: str | bytes | None) -> int:
    at = 0
    for part in parts:
        data = b"\x00" if part is None else part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        at = zlib.crc32(data, zlib.crc32(struct.pack("<q", len(data)), at))
    return at


def state_crc(state: FileState) -> int:
    return crc(state.source, state.path, state.document, state.content_hash, state.metadata_hash, state.error)


def packed(entry: IndexEntry) -> tuple[str, bytes]:
    document = entry.document
    head = json.dumps(
        {
            "path": document.path,
            "title": document.title,
            "language": document.language,
            "metadata": dict(document.metadata),
            "chars": len(document.text),
            "passages": len(entry.chunks),
        }
    )
    body = {
        "text": document.text,
        "sections": [asdict(s) for s in document.sections],
        "pages": document.pages,
        "warnings": document.warnings,
        "stated": asdict(document.stated) if document.stated is not None else None,
        "chunks": [[c.section, c.start, c.end, c.context] for c in entry.chunks],
    }
    return head, zlib.compress(json.dumps(body).encode("ascii"), 3)


_FULL = frozenset(
    ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_SHMSIZE")
)
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_TANTIVY_SAYS = (*map(os.strerror, _NO_ROOM), "io::Error most likely")
_MAKE_ROOM = "make room on the disk and run `citehound index` again: what was reported as indexed is kept"


@contextlib.contextmanager
def corrupt_if_broken() -> Generator[None]:
    """What SQLite, tantivy or a decoder say about a broken store becomes one line that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname in _FULL:
            raise NoRoom(f"the index cannot be written: {error}; {_MAKE_ROOM}") from error
        if "readonly" in str(error) or "unable to open" in str(error):
            raise IndexUnusable(f"the index cannot be opened: {error}; check the folder's permissions") from error
        if "locked" in str(error) or "busy" in str(error):
            raise IndexUnusable(f"the index is busy: {error}; try again") from error
        raise IndexCorrupt(f"the index is damaged ({error}); {REBUILD}") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise NoRoom(f"the index cannot be written: {error.strerror}; {_MAKE_ROOM}") from error
        raise
    except (sqlite3.DatabaseError, zlib.error, ValueError, KeyError, TypeError) as error:
        if any(said in str(error) for said in _TANTIVY_SAYS):
            raise NoRoom(f"the index cannot be written: {error}; {_MAKE_ROOM}") from error
        raise IndexCorrupt(f"the index is damaged ({type(error).__name__}: {error}); {REBUILD}") from error


# -- queries


class Store:
    """`documents.db` as one connection, with what was read of late at hand. Safe to read from many threads."""

    def __init__(
        self, db: sqlite3.Connection, mutex: threading.RLock, *, language_of: Callable[[str | None], str]
    ) -> None:
        self.db = db
        self._mutex = mutex
        self._language_of = language_of
        self._cache: OrderedDict[int, StoredDocument] = OrderedDict()
        self._cached_chars = 0
        self._worded: OrderedDict[int, tuple[Wording, ...]] = OrderedDict()
        self._worded_passages = 0

    # -- writing, in a transaction that the caller has begun

    def put(self, entry: IndexEntry, *, part: str) -> int:
        """Adds or replaces a document, its file's state and its links; gives its row. `part`: of the index of terms."""
        document = entry.document
        head, body = packed(entry)
        checksum = crc(document.id, document.source, head, body)
        self.db.execute("DELETE FROM documents WHERE id = ?", (document.id,))
        self.db.execute(
            "INSERT INTO documents (id, source, head, body, checksum) VALUES (?, ?, ?, ?, ?)",
            (document.id, document.source, head, body, checksum),
        )
        self.db.execute("INSERT INTO log (document) VALUES (?)", (document.id,))
        self.put_state(entry.state)
        row = self.row(document.id)
        assert row is not None
        if part:
            self.db.execute("INSERT INTO parts VALUES (?, ?)", (row, part))
        self._put_links(row, document, entry.chunks)
        return row

    def remove(self, document: str) -> None:
        self.db.execute("DELETE FROM documents WHERE id = ?", (document,))
        self.db.execute("DELETE FROM files WHERE document = ?", (document,))
        self.db.execute("INSERT INTO log (document) VALUES (?)", (document,))

    def put_state(self, state: FileState) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                state.source,
                state.path,
                state.document,
                state.content_hash,
                state.metadata_hash,
                state.error,
                state_crc(state),
            ),
        )

    def _put_links(self, row: int, document: Document, chunks: Iterable[Chunk]) -> None:
        """In the transaction of the document itself; they go with it (see the trigger)."""
        language = self._language_of(document.language)
        found = [wording(c.text, title=f"{document.title}\n{c.context}", language=language) for c in chunks]
        self.db.execute("INSERT OR REPLACE INTO wordings VALUES (?, ?)", (row, pack(found)))
        self.db.executemany(
            "INSERT OR REPLACE INTO calls VALUES (?, ?, ?)",
            [
                (key_of(called.words), row, called.weight)
                for called in calls(title=document.title, path=document.path, metadata=document.metadata)
            ],
        )

    def link_old(self) -> None:
        """Documents that were indexed before links were kept get theirs."""
        with corrupt_if_broken():
            self.db.executescript(MORE_TABLES)
            missing = self.db.execute(
                "SELECT row FROM documents WHERE row NOT IN (SELECT row FROM wordings)"
            ).fetchall()
            if not missing:
                return
            self.db.execute("BEGIN IMMEDIATE")
            for (row,) in missing:
                stored = self.load(cast(int, row))
                if stored is not None:
                    self._put_links(cast(int, row), stored.document, stored.chunks)
            self.db.execute("COMMIT")

    # -- reading

    def row(self, document: str) -> int | None:
        found = self.db.execute("SELECT row FROM documents WHERE id = ?", (document,)).fetchone()
        return None if found is None else cast(int, found[0])

    def parts(self) -> dict[int, str]:
        """In which part of the index of terms each document is, by row, where that is not the main one."""
        try:
            return dict(self.db.execute("SELECT row, part FROM parts").fetchall())
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # an index of before
                return {}
            raise

    def part(self, row: int) -> str:
        found = self.db.execute("SELECT part FROM parts WHERE row = ?", (row,)).fetchone()
        return "" if found is None else str(found[0])

    def files(self, source: str) -> Mapping[str, FileState]:
        with self._mutex, corrupt_if_broken():
            rows = self.db.execute(
                "SELECT source, path, document, content_hash, metadata_hash, error, checksum FROM files"
                " WHERE source = ?",
                (source,),
            )
            found: dict[str, FileState] = {}
            for row in rows:
                state = FileState(
                    source=row[0],
                    path=row[1],
                    document=row[2],
                    content_hash=row[3],
                    metadata_hash=row[4],
                    error=row[5],
                )
                if state_crc(state) != row[6]:
                    raise IndexCorrupt(f"what is stored of the file {row[1]!r} is damaged; {REBUILD}")
                found[state.path] = state
            return found

    def sources(self) -> Sequence[str]:
        with self._mutex, corrupt_if_broken():
            return [r[0] for r in self.db.execute("SELECT DISTINCT source FROM files ORDER BY source")]

    def any_document(self) -> bool:
        with self._mutex, corrupt_if_broken():
            return self.db.execute("SELECT 1 FROM documents LIMIT 1").fetchone() is not None

    def load(self, row: int) -> StoredDocument | None:
        """The stored document of a row, or None when it has been replaced since."""
        with self._mutex:
            known = self._cache.get(row)
            if known is not None:
                self._cache.move_to_end(row)
                return known
            return self._fetch(row)

    def _fetch(self, row: int) -> StoredDocument | None:
        with corrupt_if_broken():
            found = self.db.execute(
                "SELECT id, source, head, body, checksum FROM documents WHERE row = ?", (row,)
            ).fetchone()
            if found is None:
                return None
            if crc(*found[:4]) != found[4]:
                raise IndexCorrupt(f"the stored document {found[0]!r} is damaged; {REBUILD}")
            stored = StoredDocument(*found[:4])
            self._cache[row] = stored
            self._cached_chars += len(stored.text)
            while self._cached_chars > _CACHED_CHARS and len(self._cache) > 1:
                self._cached_chars -= len(self._cache.popitem(last=False)[1].text)
            return stored

    def wordings(self, row: int) -> tuple[Wording, ...] | None:
        """The words of a document's passages; None where they are not stored (an index of before)."""
        with self._mutex:
            known = self._worded.get(row)
            if known is not None:
                self._worded.move_to_end(row)
                return known
            with corrupt_if_broken():
                try:
                    found = self.db.execute("SELECT body FROM wordings WHERE row = ?", (row,)).fetchone()
                except sqlite3.OperationalError as error:
                    if "no such table" in str(error):
                        return None
                    raise
                if found is None:
                    return None
                words = unpack(found[0])
            self._worded[row] = words
            self._worded_passages += len(words)
            while self._worded_passages > _CACHED_WORDINGS and len(self._worded) > 1:
                self._worded_passages -= len(self._worded.popitem(last=False)[1])
            return words

    def called(self, keys: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
        """Key of a name to (row, weight) of the documents called so."""
        found: dict[int, list[tuple[int, float]]] = {}
        with self._mutex, corrupt_if_broken():
            for at in range(0, len(keys), 500):
                some = keys[at : at + 500]
                marks = ",".join("?" * len(some))
                try:
                    rows = self.db.execute(
                        f"SELECT key, row, weight FROM calls WHERE key IN ({marks})", some
                    ).fetchall()
                except sqlite3.OperationalError as error:
                    if "no such table" in str(error):
                        return {}
                    raise
                for key, row, weight in rows:
                    found.setdefault(key, []).append((row, weight))
        return found

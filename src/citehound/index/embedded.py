"""The default search backend: SQLite is the record of truth, tantivy serves BM25; it parses and chunks nothing.

On disk (`folder`):

    manifest.json      format version, generation, checksums of everything below; rewritten by rename
    documents.db       SQLite: documents with text, sections and chunks (compressed, each row with its checksum),
                       file states, and a log of changes whose number `indexed_seq` says how far tantivy has come
    terms/             the tantivy index: derived, can always be made again from documents.db
    vectors/           the passages' vectors (see vectors.py): derived too

How the two stores stay one: a change is committed to SQLite first, with a number in the log. Then tantivy commits, then
`indexed_seq` is set. Whoever opens the index and finds numbers above `indexed_seq` replays them, which is idempotent.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import struct
import tempfile
import threading
import zlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import tantivy
from tantivy import Occur, Query

from ..access import Principal
from ..documents import Chunk, Document, DocumentInfo, DocumentList, Metadata, SearchHit, SearchResult, Section, Stated
from ..embedding import Embedder, Vectors
from ..errors import EmbeddingFailed, IndexCorrupt, IndexTooNew, IndexUnusable, UnknownDocument
from ..readonly import borrowed, readable, writable
from . import Considered, ExplainedTerm, Explanation, FileState, IndexEntry, Near, vectors
from .analysis import (
    COMPOUNDING,
    Matcher,
    QueryTerm,
    analyse,
    fold,
    fold_value,
    in_compounds,
    known_language,
    query_terms,
)
from .catalog import Catalog, Head, folded_parts, parts
from .functionwords import FUNCTION_WORDS
from .fusion import Candidate, Weights, fuse
from .links import Wording, calls, key_of, pack, unpack, wording
from .locking import WriteLock
from .trail import EmbeddedTrail
from .trail import Head as TrailHead
from .versions import state_of

FORMAT = 3
REBUILD = "run `citehound index --rebuild`"
SNIPPET = 300
FALLBACK_LANGUAGE = "en"
"""How a text is stemmed whose language is neither given, detected nor configured. Queries are stemmed this way too."""

_BOOSTS = (("all", 1.0), ("meta", 0.6))
_TITLE_COUNTS = 3
"""So often a title stands in the field `all`, beside section path and text. More fields, each with a length and
frequencies of its own, were worse on every set (docs/decisions/0021-dense.md)."""
_EXACT_BOOST = 0.4
_RELATED_BOOST = 0.5
"""Of a compound that has a word of the query as a part."""
_MAX_TERMS = 40
_MOST_COLLECTED = 20_000
_HEAP = 48_000_000
BATCH_CHARS = 6_000_000
"""So much text is committed at once, unless `commit` is called before."""
_ORDINAL_BITS = vectors.ORDINAL_BITS
_ORDINAL = (1 << _ORDINAL_BITS) - 1
_CANDIDATES = 100
"""So many passages each leg brings at least, where there are two."""
_COPY_WORDS = 20
_BOILERPLATE = 5
"""A text that stands so often in a source is taken for one that is repeated,"""
_BOILERPLATE_COSTS = 0.3
"""and loses this share of its score by words where it stands in every document."""
_EMBEDDED_AT_ONCE = 2000
_FEW = 500
"""So many new documents are looked up one by one."""
_MASKS = 32
"""So many choices of vectors are kept at hand."""
_CACHED_CHARS = 32_000_000
_CACHED_WORDINGS = 30_000
"""Passages whose words are kept at hand."""

_TABLES = """
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
_LINK_TABLES = """
CREATE TABLE IF NOT EXISTS wordings (row INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS calls (
    key INTEGER NOT NULL, row INTEGER NOT NULL, weight REAL NOT NULL, PRIMARY KEY (key, row)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_of_row ON calls (row);
CREATE TRIGGER IF NOT EXISTS links_go AFTER DELETE ON documents BEGIN
    DELETE FROM wordings WHERE row = old.row;
    DELETE FROM calls WHERE row = old.row;
END;
"""
"""What links stand on: the words and names of each document's passages, and by which names a document is called."""


class _Stored:
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


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """What a reader sees: all stores at one `seq`."""

    seq: int
    searcher: tantivy.Searcher
    catalog: Catalog
    state: str = ""
    """What `documents.db` said of the vectors."""
    view: vectors.View | None = None
    """None without vectors of this embedder."""
    masks: dict[tuple[Any, ...], vectors.Mask] = field(default_factory=dict[tuple[Any, ...], vectors.Mask])
    """Which vectors the searches of late could look at."""
    repeated: dict[tuple[str, int], float] = field(default_factory=dict[tuple[str, int], float])
    """What a text's score counts, by source and hash, as far as asked."""

    def related(self, term: QueryTerm) -> tuple[str, ...]:
        """See `in_compounds`."""
        return in_compounds(
            term,
            self.catalog.languages,
            frequency=lambda word: self.searcher.doc_freq("any", word),
            beginning=lambda prefix: self.searcher.terms_with_prefix("any", prefix, limit=500),
        )


@dataclass(frozen=True, kw_only=True)
class _Weighed:
    """A term of a query."""

    term: QueryTerm
    weight: float
    passages: int
    """In how many it occurs."""
    function_word: bool
    why: str | None
    """Why it is not searched."""


@dataclass(frozen=True, kw_only=True)
class _Legs:
    """What a search looks for, in words and as a vector."""

    terms: list[tuple[QueryTerm, float]]
    words: Query | None
    vector: Vectors | None
    mask: vectors.Mask | None
    words_only: bool
    explained: list[ExplainedTerm]


@dataclass(kw_only=True)
class _Ranking:
    taken: list[tuple[float, Head, int, tuple[str, ...]]] = field(
        default_factory=list[tuple[float, Head, int, tuple[str, ...]]]
    )
    """(score, document, ordinal, other documents with the same passage), best first."""
    gone: set[str] = field(default_factory=set[str])
    """Documents that do not hold today and would have been among them."""
    judged: list[tuple[Candidate, str]] = field(default_factory=list[tuple[Candidate, str]])
    """What became of every candidate; empty unless asked for."""


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for name in ("all", "title", "body", "meta"):
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("any", tokenizer_name="whitespace", index_option="basic")
    builder.add_text_field("filter", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("document", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("chunk", fast=True)
    builder.add_unsigned_field("text", fast=True)
    return builder.build()


def _source_term(source: str) -> str:
    return f"source\x1f{source}"


def _everywhere(catalog: Catalog) -> str | None:
    """The term of the only source, which would narrow nothing."""
    return None if catalog.only_source is None else _source_term(catalog.only_source)


def _head(row: int, document: str, source: str, packed: str) -> Head:
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


def _value_term(key: str, value: str) -> str:
    return f"key\x1f{fold_value(key)}\x1f{fold_value(value)[:200]}"


def _text_hash(text: str) -> int:
    """The same for texts of the same words; odd for one that is long enough to be taken for a copy."""
    words = fold(text).split()
    data = " ".join(words).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())
    return number | 1 if len(words) >= _COPY_WORDS else number & ~1


def _text_term(source: str, same: int) -> str:
    return f"text\x1f{source}\x1f{same:x}"


_HELD = "state\x1fcurrent"
_NOT_HELD = "state\x1fother"


def _crc(*parts: str | bytes | None) -> int:
    at = 0
    for part in parts:
        data = b"\x00" if part is None else part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        at = zlib.crc32(data, zlib.crc32(struct.pack("<q", len(data)), at))
    return at


def _state_crc(state: FileState) -> int:
    return _crc(state.source, state.path, state.document, state.content_hash, state.metadata_hash, state.error)


class EmbeddedIndex:
    """`Index` on SQLite and tantivy. Readers may be used from many threads; a writer belongs to one thread."""

    def __init__(
        self,
        folder: Path,
        *,
        write: bool = False,
        lock_seconds: float = 10.0,
        language: str | None = None,
        embedder: Embedder | None = None,
        weights: Weights | None = None,
        today: Callable[[], date] = date.today,
    ) -> None:
        """Opens the index in `folder`; with `write`, creates it and holds the write lock until `close`.

        Raises IndexUnusable: IndexLocked after waiting `lock_seconds` for another writer, IndexCorrupt when a checksum
        does not hold, IndexTooNew when a newer version wrote it.
        """
        self.folder = folder
        self._warnings: tuple[str, ...] = ()
        self._language = language
        self._embedder = embedder
        self._weights = weights if weights is not None else Weights()
        self._to_embed: list[tuple[int, str]] = []
        self._today = today
        self._db_path = folder / "documents.db"
        self._terms = folder / "terms"
        self._vectors = folder / "vectors"
        self._manifest = folder / "manifest.json"
        self._lock = WriteLock(folder.parent / f"{folder.name}.lock")
        self._mutex = threading.RLock()
        self._cache: OrderedDict[int, _Stored] = OrderedDict()
        self._cached_chars = 0
        self._worded: OrderedDict[int, tuple[Wording, ...]] = OrderedDict()
        self._worded_passages = 0
        self._snapshot: _Snapshot | None = None
        self._writer: tantivy.IndexWriter | None = None
        self._write = write
        self._closed = False
        self._pending_chars = 0
        self._db: sqlite3.Connection | None = None
        self._index: tantivy.Index | None = None
        self._inode = 0
        self._stand_in: tempfile.TemporaryDirectory[str] | None = None
        try:
            if write:
                self._open_for_writing(lock_seconds)
            else:
                self._open_for_reading()
        except BaseException:
            self._drop()
            self._lock.release()
            raise

    # -- opening and closing

    @property
    def warnings(self) -> Sequence[str]:
        """What is to be said of the index as it was opened."""
        return self._warnings

    @staticmethod
    def exists(folder: Path) -> bool:
        return (folder / "manifest.json").exists() or (folder / "documents.db").exists()

    @staticmethod
    def discard(folder: Path, *, lock_seconds: float = 10.0) -> None:
        """Throws the index in `folder` away, whatever state it is in; waits for a writer as opening does."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = WriteLock(folder.parent / f"{folder.name}.lock")
        lock.acquire(seconds=lock_seconds)
        try:
            for left in folder.parent.glob(f"{folder.name}.old-*"):
                shutil.rmtree(left, ignore_errors=True)
            if folder.exists():
                old = folder.with_name(f"{folder.name}.old-{secrets.token_hex(4)}")
                folder.rename(old)
                shutil.rmtree(old, ignore_errors=True)
        finally:
            lock.release()

    def _open_for_writing(self, lock_seconds: float) -> None:
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._lock.acquire(seconds=lock_seconds)
        if not self.exists(self.folder):
            self._create()
        manifest = self._read_manifest()
        self._verify(manifest, thorough=True)
        if manifest["format"] < FORMAT:
            self._renew_terms()
        self._write_manifest({**manifest, "format": FORMAT, "clean": False})
        self._connect(write=True)
        self._link_old()
        self._replay()
        with _corrupt_if_broken():
            vectors.sweep(self._vectors, _vector_state(self._require_writer()))

    def _renew_terms(self) -> None:
        """The index of terms has another form than of old: `_replay` makes it again, from what is stored."""
        with _corrupt_if_broken(), contextlib.closing(sqlite3.connect(self._db_path, isolation_level=None)) as db:
            db.executescript(_LINK_TABLES + "DELETE FROM wordings; DELETE FROM calls;")
            db.execute("INSERT INTO log (document) SELECT id FROM documents")
        shutil.rmtree(self._terms, ignore_errors=True)
        self._terms.mkdir(exist_ok=True)
        tantivy.Index(_schema(), path=str(self._terms))

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._terms.mkdir(exist_ok=True)
        db = sqlite3.connect(self._db_path, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript("BEGIN;" + _TABLES + _LINK_TABLES + "COMMIT;")
            generation = secrets.token_hex(8)
            db.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [("format", str(FORMAT)), ("generation", generation), ("indexed_seq", "0")],
            )
        finally:
            db.close()
        tantivy.Index(_schema(), path=str(self._terms))
        self._write_manifest({"format": FORMAT, "generation": generation, "clean": False, "files": {}})

    def _open_for_reading(self) -> None:
        if not self.exists(self.folder):
            raise IndexUnusable("there is no index yet; run `citehound index`")
        manifest = self._read_manifest()
        if manifest["format"] < FORMAT:
            raise IndexUnusable("the index is of an older version; run `citehound index`, which brings it up to date")
        if not manifest["clean"] and self._recover():
            manifest = self._read_manifest()
        thorough = bool(manifest["clean"])
        try:
            self._verify(manifest, thorough=thorough)
        except IndexCorrupt:
            # A writer may have begun while we looked: its files change under the checksums of before.
            if self._read_manifest() == manifest and self._lock.is_free():
                raise
            self._verify(self._read_manifest(), thorough=False)
        self._connect(write=False)

    def _recover(self) -> bool:
        """Finishes what a killed writer left; False when a writer is at work, or the folder cannot be written."""
        try:
            if not self._lock.try_acquire():
                return False
            try:
                writer = EmbeddedIndex.__new__(EmbeddedIndex)
                writer.__dict__.update(self.__dict__)
                writer._write = True
                writer._verify(writer._read_manifest(), thorough=True)
                writer._connect(write=True)
                writer._replay()
                writer.close()
            finally:
                self._lock.release()
        except OSError:
            self._warnings = (*self._warnings, "the last index run did not end and cannot be finished here (read-only)")
            return False
        return True

    def _connect(self, *, write: bool) -> None:
        with _corrupt_if_broken():
            self._inode = self._db_path.stat().st_ino
            where, uri = (str(self._db_path), False) if write else readable(self._db_path)
            self._db = sqlite3.connect(where, isolation_level=None, check_same_thread=False, timeout=10.0, uri=uri)
            if write:
                self._db.execute("PRAGMA synchronous = FULL")
            else:
                self._db.execute("PRAGMA query_only = ON")
            terms = str(self._terms)
            if not write and not writable(self._terms / ".tantivy-meta.lock"):
                self._stand_in = borrowed(self._terms)
                terms = self._stand_in.name
            self._index = tantivy.Index.open(terms)
            self._index.config_reader("manual")
            self._index.reload()

    def _drop(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        self._index = None
        self._writer = None
        self._snapshot = None
        if self._stand_in is not None:
            self._stand_in.cleanup()
            self._stand_in = None
        self._cache.clear()
        self._cached_chars = 0
        self._worded.clear()
        self._worded_passages = 0

    def close(self) -> None:
        """Writers commit first, then seal the index with fresh checksums."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            try:
                if self._write and self._db is not None:
                    self._commit()
                    with _corrupt_if_broken():
                        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    self._drop()
                    self._seal()
            finally:
                self._drop()
                self._lock.release()

    def abandon(self) -> None:
        """Closes without committing what is pending; the next one to open finishes or forgets it, as after a kill."""
        with self._mutex:
            self._closed = True
            if self._db is not None and self._db.in_transaction:
                self._db.rollback()
            self._drop()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # -- manifest and checksums

    def _read_manifest(self) -> dict[str, Any]:
        try:
            text = self._manifest.read_text("utf-8")
            loaded: Any = json.loads(text)
            format_ = int(loaded["format"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IndexCorrupt(f"the index manifest {str(self._manifest)!r} cannot be read; {REBUILD}") from error
        if format_ > FORMAT:
            raise IndexTooNew(
                f"the index has format {format_}, this version reads up to {FORMAT};"
                f" upgrade citehound, or {REBUILD} to make it again"
            )
        manifest = cast("dict[str, Any]", loaded)
        checksum = manifest.pop("checksum", None)
        if format_ < 1 or checksum != _manifest_checksum(manifest) or text != _manifest_text(manifest):
            raise IndexCorrupt(f"the checksum of {str(self._manifest)!r} does not hold; {REBUILD}")
        return manifest

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        temporary = self._manifest.with_suffix(".tmp")
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(_manifest_text(manifest))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._manifest)

    def _seal(self) -> None:
        manifest = self._read_manifest()
        files = {name: _stamp(self.folder / name) for name in self._payload()}
        self._write_manifest({"format": FORMAT, "generation": manifest["generation"], "clean": True, "files": files})

    def _payload(self) -> list[str]:
        names = ["documents.db"]
        for path in sorted(self._terms.iterdir()):
            if path.is_file() and not path.name.endswith(".lock"):
                names.append(f"terms/{path.name}")
        if self._vectors.exists():
            names.extend(f"vectors/{path.name}" for path in sorted(self._vectors.iterdir()))
        return names

    def _verify(self, manifest: dict[str, Any], *, thorough: bool) -> None:
        """Raises IndexCorrupt unless the stores are what the manifest says, or, after a kill, sound in themselves."""
        if manifest["clean"]:
            for name, stamp in manifest["files"].items():
                path = self.folder / name
                try:
                    same = _stamp(path) == stamp
                except OSError:
                    same = False
                if not same:
                    raise IndexCorrupt(f"the checksum of {str(path)!r} does not hold; {REBUILD}")
            wal = self._db_path.with_name("documents.db-wal")
            if wal.exists() and wal.stat().st_size > 0:
                raise IndexCorrupt(f"{str(wal)!r} was not written by a finished index run; {REBUILD}")
            return
        if not thorough:
            return
        with _corrupt_if_broken():
            db = sqlite3.connect(self._db_path, timeout=10.0)
            try:
                if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise IndexCorrupt(f"{str(self._db_path)!r} is damaged; {REBUILD}")
                generation = db.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
                if generation != (manifest["generation"],):
                    raise IndexCorrupt(f"{str(self._db_path)!r} belongs to another index; {REBUILD}")
                for row in db.execute("SELECT id, source, head, body, checksum FROM documents"):
                    if _crc(*row[:4]) != row[4]:
                        raise IndexCorrupt(f"the stored document {row[0]!r} is damaged; {REBUILD}")
                state = _vector_state(db)
            finally:
                db.close()
        if state is not None:
            vectors.verify(self._vectors, state)
        for name in self._referenced():
            if not _footer_holds(self._terms / name):
                raise IndexCorrupt(f"the checksum of {str(self._terms / name)!r} does not hold; {REBUILD}")

    def _referenced(self) -> list[str]:
        """The files that tantivy's meta.json stands on. Others may be left of a killed writer, and mean nothing."""
        meta_path = self._terms / "meta.json"
        try:
            meta = json.loads(meta_path.read_text("utf-8"))
            deleted: dict[str, str] = {}
            for segment in meta["segments"]:
                name = str(segment["segment_id"]).replace("-", "")
                deletes = segment.get("deletes")
                deleted[name] = f"{name}.{deletes['opstamp']}.del" if deletes else ""
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise IndexCorrupt(f"{str(meta_path)!r} cannot be read; {REBUILD}") from error
        present = sorted(path.name for path in self._terms.iterdir())
        for segment, deletes in deleted.items():
            files = {name.rpartition(".")[2] for name in present if name.startswith(f"{segment}.")}
            if not {"term", "idx", "fast", "store"} <= files or (deletes and deletes not in present):
                raise IndexCorrupt(f"a segment of {str(self._terms)!r} is missing; {REBUILD}")
        return [
            name
            for name in present
            if (segment := name.partition(".")[0]) in deleted
            and (name == deleted[segment] or not name.endswith((".del", ".lock", ".tmp")))
        ]

    # -- writing

    def _require_writer(self) -> sqlite3.Connection:
        if not self._write or self._closed or self._db is None:
            raise IndexUnusable("this index is open for reading; open it with write=True")
        return self._db

    def _begin(self) -> sqlite3.Connection:
        db = self._require_writer()
        if not db.in_transaction:
            db.execute("BEGIN IMMEDIATE")
        return db

    def add(self, entries: Iterable[IndexEntry]) -> None:
        """Adds or replaces documents; durable and visible after `commit` (which big batches do by themselves)."""
        for entry in entries:
            with self._mutex, _corrupt_if_broken():
                db = self._begin()
                head, body = _pack(entry)
                document = entry.document
                checksum = _crc(document.id, document.source, head, body)
                db.execute("DELETE FROM documents WHERE id = ?", (document.id,))
                db.execute(
                    "INSERT INTO documents (id, source, head, body, checksum) VALUES (?, ?, ?, ?, ?)",
                    (document.id, document.source, head, body, checksum),
                )
                db.execute("INSERT INTO log (document) VALUES (?)", (document.id,))
                self._put_state(db, entry.state)
                row = cast(int, db.execute("SELECT row FROM documents WHERE id = ?", (document.id,)).fetchone()[0])
                self._put_links(db, row, document, entry.chunks)
                self._put_terms(row, document, entry.chunks)
                self._pending_chars += len(document.text) + 200
                if self._pending_chars > BATCH_CHARS:
                    self._commit()

    def remove(self, documents: Iterable[str]) -> None:
        with self._mutex, _corrupt_if_broken():
            db = self._begin()
            for document in documents:
                db.execute("DELETE FROM documents WHERE id = ?", (document,))
                db.execute("DELETE FROM files WHERE document = ?", (document,))
                db.execute("INSERT INTO log (document) VALUES (?)", (document,))
                self._open_writer().delete_documents_by_term("document", document)

    def record_failure(self, state: FileState) -> None:
        """Remembers that a file failed. An earlier good version of it goes: what is served is what is there."""
        with self._mutex, _corrupt_if_broken():
            db = self._begin()
            if db.execute("SELECT 1 FROM documents WHERE id = ?", (state.document,)).fetchone():
                self.remove([state.document])
            self._put_state(db, state)

    def forget(self, source: str, path: str) -> None:
        """Drops the state of one file that was never (or is no longer) a document."""
        with self._mutex, _corrupt_if_broken():
            self._begin().execute("DELETE FROM files WHERE source = ? AND path = ?", (source, path))

    def commit(self) -> None:
        """Makes everything so far durable and visible to readers."""
        with self._mutex:
            self._require_writer()
            self._commit()

    def _put_state(self, db: sqlite3.Connection, state: FileState) -> None:
        db.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                state.source,
                state.path,
                state.document,
                state.content_hash,
                state.metadata_hash,
                state.error,
                _state_crc(state),
            ),
        )

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            assert self._index is not None
            try:
                self._writer = self._index.writer(heap_size=_HEAP, num_threads=1)
            except ValueError as error:
                raise IndexUnusable(f"the index cannot be written: {error}; {REBUILD} if this stays") from error
        return self._writer

    def _put_terms(self, row: int, document: Document, chunks: Iterable[Chunk]) -> None:
        chunks = tuple(chunks)
        if self._embedder is not None:
            self._to_embed.extend(((row << _ORDINAL_BITS) | c.ordinal, embedded_text(document, c)) for c in chunks)
        writer = self._open_writer()
        writer.delete_documents_by_term("document", document.id)
        language = self._language_of(document.language)
        title = analyse(document.title, language)
        about = " ".join(value for key, value in document.metadata.items() if key not in _NOT_SEARCHED)
        meta = analyse(f"{about}\n{document.path}", language)
        meta_terms = " ".join([*meta.stems, *sorted(meta.extras.difference(meta.stems))])
        title_terms = " ".join(title.stems)
        common = {*title.stems, *title.extras, *meta.stems, *meta.extras}
        held = state_of(document.metadata) == "current"
        marks = [_source_term(document.source), _HELD if held else _NOT_HELD]
        for key, value in document.metadata.items():
            marks.extend(_value_term(key, part) for part in parts(value))
        for chunk in chunks:
            body = analyse(chunk.text, language)
            context = analyse(chunk.context.removeprefix(document.title), language)
            anything = common.union(body.stems, body.extras, context.stems, context.extras)
            record = tantivy.Document()
            record.add_text("body", " ".join(body.stems))
            only_heading = _only_heading(document, chunk)
            if not only_heading:
                record.add_text("title", title_terms)
                record.add_text("meta", meta_terms)
            around = [*title.stems * _TITLE_COUNTS, *context.stems] if not only_heading else []
            record.add_text("all", " ".join([*around, *body.stems]))
            record.add_text("any", " ".join(anything))
            record.add_text("document", document.id)
            record.add_unsigned("chunk", (row << _ORDINAL_BITS) | chunk.ordinal)
            same = _text_hash(chunk.text)
            record.add_unsigned("text", same)
            for mark in (*marks, _text_term(document.source, same)):
                record.add_text("filter", mark)
            writer.add_document(record)

    def _put_links(self, db: sqlite3.Connection, row: int, document: Document, chunks: Iterable[Chunk]) -> None:
        """In the transaction of the document itself; they go with it (see the trigger)."""
        language = self._language_of(document.language)
        found = [wording(c.text, title=f"{document.title}\n{c.context}", language=language) for c in chunks]
        db.execute("INSERT OR REPLACE INTO wordings VALUES (?, ?)", (row, pack(found)))
        db.executemany(
            "INSERT OR REPLACE INTO calls VALUES (?, ?, ?)",
            [
                (key_of(called.words), row, called.weight)
                for called in calls(title=document.title, path=document.path, metadata=document.metadata)
            ],
        )

    def _link_old(self) -> None:
        """Documents that were indexed before links were kept get theirs."""
        db = self._require_writer()
        with _corrupt_if_broken():
            db.executescript(_LINK_TABLES)
            missing = db.execute("SELECT row FROM documents WHERE row NOT IN (SELECT row FROM wordings)").fetchall()
            if not missing:
                return
            db.execute("BEGIN IMMEDIATE")
            for (row,) in missing:
                stored = self._load(cast(int, row))
                if stored is not None:
                    self._put_links(db, cast(int, row), stored.document, stored.chunks)
            db.execute("COMMIT")

    def _language_of(self, language: str | None) -> str:
        return language or self._language or FALLBACK_LANGUAGE

    def _commit(self) -> None:
        db = self._db
        assert db is not None
        with _corrupt_if_broken():
            if db.in_transaction:
                db.execute("COMMIT")
            self._pending_chars = 0
            top = cast("int | None", db.execute("SELECT max(seq) FROM log").fetchone()[0])
            if self._writer is not None:
                writer, self._writer = self._writer, None
                writer.commit()
                writer.wait_merging_threads()
            state = self._embed_pending(db)
            if top is not None:
                db.execute("BEGIN IMMEDIATE")
                if state is not None:
                    db.execute("INSERT OR REPLACE INTO meta VALUES ('vectors', ?)", (state.packed(),))
                db.execute("UPDATE meta SET value = ? WHERE key = 'indexed_seq'", (str(top),))
                db.execute("DELETE FROM log WHERE seq <= ?", (top,))
                db.execute("COMMIT")

    def _replay(self) -> None:
        """Brings tantivy up to SQLite: every document in the log above `indexed_seq` is deleted and added anew."""
        db = self._require_writer()
        with _corrupt_if_broken():
            pending = db.execute("SELECT DISTINCT document FROM log").fetchall()
            for (document,) in pending:
                found = db.execute("SELECT row FROM documents WHERE id = ?", (document,)).fetchone()
                self._open_writer().delete_documents_by_term("document", document)
                if found is not None:
                    stored = self._load(cast(int, found[0]))
                    if stored is not None:
                        self._put_terms(cast(int, found[0]), stored.document, stored.chunks)
            if pending:
                self._commit()

    def files(self, source: str) -> Mapping[str, FileState]:
        """Path to what is remembered of each file of a source."""
        with self._mutex, _corrupt_if_broken():
            rows = self._database().execute(
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
                if _state_crc(state) != row[6]:
                    raise IndexCorrupt(f"what is stored of the file {row[1]!r} is damaged; {REBUILD}")
                found[state.path] = state
            return found

    def sources(self) -> Sequence[str]:
        """Every source of which something is stored, also those no longer configured."""
        with self._mutex, _corrupt_if_broken():
            return [r[0] for r in self._database().execute("SELECT DISTINCT source FROM files ORDER BY source")]

    # -- vectors

    def _embed_pending(self, db: sqlite3.Connection) -> vectors.State | None:
        """Writes the vectors of what was added; they hold once the state that is given is committed.

        An embedder that fails leaves them out: `embed_missing` makes up for it, and says why."""
        pending, self._to_embed = self._to_embed, []
        if self._embedder is None or not pending:
            return None
        state = _vector_state(db)
        if state is not None and not state.fits(self._embedder):
            return None  # those of another embedder go when all are made anew
        try:
            made = self._embedder.embed([text for _, text in pending])
        except EmbeddingFailed:
            return None
        if state is None:
            state = vectors.fresh(self._embedder, made.shape[1])
        return vectors.append(self._vectors, state, [key for key, _ in pending], made)

    def embed_missing(self, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Gives every passage its vector: all of them where the embedder has changed, else those that have none.

        `progress` is told how many of how many passages are done. Gives that number. What is done stays done when it
        is interrupted. Raises EmbeddingFailed."""
        if self._embedder is None:
            return 0
        with self._mutex, _corrupt_if_broken():
            db = self._require_writer()
            self._commit()
            state = _vector_state(db)
            known = set[int]()
            if state is not None and not state.fits(self._embedder):
                state = None
            if state is not None:
                known.update(vectors.View(self._vectors, state, live=()).rows.tolist())
            heads = db.execute("SELECT row, head FROM documents ORDER BY row").fetchall()
            missing = [(row, n) for row, head in heads if row not in known and (n := json.loads(head)["passages"])]
            total, done = sum(n for _, n in missing), 0
            keys: list[int] = []
            texts: list[str] = []
            for at, (row, _) in enumerate(missing):
                stored = self._load(row)
                for chunk in stored.chunks if stored is not None else ():
                    assert stored is not None
                    keys.append((row << _ORDINAL_BITS) | chunk.ordinal)
                    texts.append(embedded_text(stored.document, chunk))
                if len(keys) >= _EMBEDDED_AT_ONCE or at == len(missing) - 1:
                    made = self._embedder.embed(texts)
                    if state is None:
                        state = vectors.fresh(self._embedder, made.shape[1])
                    state = vectors.append(self._vectors, state, keys, made)
                    self._hold(db, state)
                    done += len(keys)
                    progress(done, total)
                    keys, texts = [], []
            if state is not None:
                self._compact(db, state)
            return done

    def _compact(self, db: sqlite3.Connection, state: vectors.State) -> None:
        """Writes the vectors anew when most of them are of documents that are gone; removes what does not hold."""
        held = _vector_state(db)
        if held is not None and held.generation == state.generation and state.count > 2000:
            rows = (row for (row,) in db.execute("SELECT row FROM documents"))
            view = vectors.View(self._vectors, state, live=rows)
            if view.dead > state.count // 2:
                state = vectors.rewritten(self._vectors, view)
                self._hold(db, state)
        vectors.sweep(self._vectors, _vector_state(db))

    def _hold(self, db: sqlite3.Connection, state: vectors.State) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT OR REPLACE INTO meta VALUES ('vectors', ?)", (state.packed(),))
        db.execute("COMMIT")

    def _view(self, state: vectors.State, catalog: Catalog) -> vectors.View | None:
        if self._embedder is None:
            return None
        if not state.fits(self._embedder):
            self._warn(
                f"the vectors of this index are by {state.name!r} ({state.version}), not by {self._embedder.name!r}"
                f" ({self._embedder.version}): words alone are searched until `citehound index` has made new ones"
            )
            return None
        try:
            return vectors.View(self._vectors, state, live=catalog.by_row)
        except (OSError, ValueError) as error:
            raise IndexCorrupt(f"the vectors of the index cannot be read ({error}); {REBUILD}") from error

    def _warn(self, warning: str) -> None:
        if warning not in self._warnings:
            self._warnings = (*self._warnings, warning)

    # -- reading

    def _database(self) -> sqlite3.Connection:
        if self._db is None or self._closed:
            raise IndexUnusable("this index is closed")
        return self._db

    def _look(self) -> _Snapshot:
        """The newest committed state; cheap when nothing has changed."""
        with self._mutex, _corrupt_if_broken():
            if not self._write:
                self._reopen_if_replaced()
            db = self._database()
            told = dict(db.execute("SELECT key, value FROM meta WHERE key IN ('indexed_seq', 'vectors')").fetchall())
            seq, state = int(told["indexed_seq"]), str(told.get("vectors", ""))
            snapshot = self._snapshot
            if (
                snapshot is not None
                and (snapshot.seq, snapshot.state) == (seq, state)
                and snapshot.catalog.today == self._today()
            ):
                return snapshot
            assert self._index is not None
            self._index.reload()
            catalog = self._read_catalog(db)
            view = self._view(vectors.State.unpacked(state), catalog) if state else None
            snapshot = _Snapshot(seq=seq, searcher=self._index.searcher(), catalog=catalog, state=state, view=view)
            self._snapshot = snapshot
            return snapshot

    def _reopen_if_replaced(self) -> None:
        try:
            inode = self._db_path.stat().st_ino
        except OSError as error:
            raise IndexUnusable("the index is gone; run `citehound index`") from error
        if inode != self._inode:
            self._drop()
            self._open_for_reading()

    def _read_catalog(self, db: sqlite3.Connection) -> Catalog:
        """The catalog of the last snapshot with what has changed since, or all of it: a changed document has a new
        row."""
        before = (
            self._snapshot.catalog
            if self._snapshot is not None
            else Catalog.empty(today=self._today(), language=self._language_of(None))
        )
        there = {row for (row,) in db.execute("SELECT row FROM documents")}
        news = sorted(there.difference(before.by_row))
        few = len(news) <= _FEW
        added: list[Head] = []
        asked = "SELECT row, id, source, head FROM documents WHERE row >= ?"
        for row, document, source, text in db.execute(asked, (news[0],)) if news and not few else ():
            if row in there and row not in before.by_row:
                added.append(_head(row, document, source, text))
        for row in news if few else ():
            if (found := db.execute(f"{asked} LIMIT 1", (row,)).fetchone()) is not None and found[0] == row:
                added.append(_head(*found))
        return before.after(added=added, gone=[row for row in before.by_row if row not in there], today=self._today())

    def any_document(self) -> bool:
        """True when there is at least one document."""
        with self._mutex, _corrupt_if_broken():
            return self._database().execute("SELECT 1 FROM documents LIMIT 1").fetchone() is not None

    def search(
        self,
        query: str,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 6,
        per_document: int = 2,
    ) -> SearchResult:
        """The best `k` chunks, at most `per_document` of each document.

        `hidden_superseded` counts the documents that would have been among these hits but do not hold today.
        """
        look = self._look()
        catalog = look.catalog
        chosen = _choose(catalog, source=source, filters=filters)
        if chosen.notes:
            return SearchResult(hits=(), notes=chosen.notes)
        legs = self._legs(look, query, chosen, source=source, documents=documents)
        terms = legs.terms
        if k < 1 or (legs.words is None and legs.vector is None):
            notes = () if query.strip() else ("the query is empty",)
            return SearchResult(hits=(), notes=notes)
        ranking = self._collect(
            look, legs, k=k, per_document=max(1, per_document), only_current=only_current and bool(catalog.hidden)
        )
        found: list[SearchHit] = []
        matchers: dict[str, Matcher[float]] = {}
        weights = {form: weight * _RELATED_BOOST for term, weight in terms for form in term.related}
        weights |= {form: weight for term, weight in terms for form in (*term.stems, term.exact)}
        for score, head, ordinal, copies in ranking.taken:
            stored = self._load(head.row)
            place = stored.place(ordinal) if stored is not None else None
            if stored is None or place is None:
                continue
            section, start, end = place
            currency = catalog.currency(head.id)
            language = known_language(self._language_of(head.language))
            if language not in matchers:
                matchers[language] = Matcher(weights, language)
            found.append(
                SearchHit(
                    document=head.id,
                    section=section,
                    title=_hit_title(head.title, stored.section_title(section)),
                    snippet=snippet(stored.text[start:end], matchers[language]),
                    score=round(score, 4),
                    current=currency.current,
                    metadata=head.metadata,
                    start=start,
                    end=end,
                    labels=(*currency.labels, *(f"same text in {copy}" for copy in copies)),
                    ordinal=ordinal,
                )
            )
        return SearchResult(hits=tuple(found), hidden_superseded=len(ranking.gone))

    def explain(
        self,
        query: str,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 6,
        per_document: int = 2,
    ) -> Explanation:
        """How `search` with the same arguments comes to its hits, and why what came near is none."""
        look = self._look()
        catalog = look.catalog
        chosen = _choose(catalog, source=source, filters=filters)
        legs = self._legs(look, query, chosen, source=source, documents=documents)
        ranking = _Ranking(judged=[])
        if not chosen.notes and k > 0 and (legs.words is not None or legs.vector is not None):
            ranking = self._collect(
                look,
                legs,
                k=k,
                per_document=max(1, per_document),
                only_current=only_current and bool(catalog.hidden),
                judged=True,
            )
        considered: list[Considered] = []
        for candidate, verdict in ranking.judged:
            head = catalog.by_row[candidate.key >> _ORDINAL_BITS]
            ordinal = candidate.key & _ORDINAL
            stored = self._load(head.row)
            place = stored.place(ordinal) if stored is not None else None
            considered.append(
                Considered(
                    document=head.id,
                    section=place[0] if place is not None else None,
                    ordinal=ordinal,
                    score=round(candidate.score, 4),
                    words=candidate.words,
                    words_rank=candidate.words_rank,
                    cosine=candidate.cosine,
                    dense_rank=candidate.dense_rank,
                    verdict=verdict,
                )
            )
        return Explanation(
            query=query,
            terms=tuple(legs.explained),
            filters=chosen.wanted,
            source=source,
            only_current=only_current,
            notes=chosen.notes,
            dense=None if legs.vector is None or self._embedder is None else self._embedder.name,
            dense_weight=self._weights.dense,
            floor=self._weights.floor,
            keep=self._weights.keep,
            words_only=legs.words_only,
            considered=tuple(considered),
        )

    def _legs(
        self,
        look: _Snapshot,
        query: str,
        chosen: _Choice,
        *,
        source: str | None,
        documents: Sequence[str] | None,
    ) -> _Legs:
        """What each way of searching is to look for."""
        weighed = self._weigh(look, query)
        terms = [(w.term, w.weight) for w in weighed if w.why is None]
        wanted: Query | None = None
        if terms:
            must: list[tuple[Occur, Query]] = [
                (Occur.Must, _mark(mark)) for mark in chosen.marks if mark != _everywhere(look.catalog)
            ]
            if documents is not None:
                must.append((Occur.Must, Query.const_score_query(_one_of(_SCHEMA, documents), 0.0)))
            scored = _scored(look.searcher, terms)
            wanted = Query.boolean_query([(Occur.Must, scored), *must]) if must else scored
        vector: Vectors | None = None
        mask: vectors.Mask | None = None
        if look.view is not None and query.strip() and not chosen.notes and (found := self.embed([query])) is not None:
            vector = found[0]
            mask = self._mask(look, chosen, source=source, only_current=False, documents=documents)
        telling = sum(1 for w in weighed if not w.function_word and w.term.stems)
        telling = min(telling, len(query.split()))  # a word of a script without spaces is several terms
        return _Legs(
            terms=terms,
            words=wanted,
            vector=vector,
            mask=mask,
            words_only=telling < 2,
            explained=[
                ExplainedTerm(
                    term=w.term.exact, stems=(*w.term.stems, *w.term.related), passages=w.passages, left_out=w.why
                )
                for w in weighed
            ],
        )

    def trail(
        self,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
    ) -> EmbeddedTrail | None:
        """What the chase asks; None when an unknown filter means that nothing can match."""
        look = self._look()
        catalog = look.catalog
        chosen = _choose(catalog, source=source, filters=filters)
        if chosen.notes:
            return None
        heads: dict[int, TrailHead | None] = {}

        def head(row: int) -> TrailHead | None:
            if row not in heads:
                heads[row] = self._trail_head(catalog, row, chosen, source=source, only_current=only_current)
            return heads[row]

        by_row, hidden = catalog.by_row, catalog.hidden if only_current else frozenset[str]()

        def inside(row: int) -> bool:
            known = by_row.get(row)
            if known is None or known.id in hidden or (source is not None and known.source != source):
                return False
            return not chosen.wanted or head(row) is not None

        def nearest(vector: Vectors, limit: int) -> list[tuple[tuple[int, int], float]]:
            near = self.nearest(
                vector, principal=principal, source=source, filters=filters, only_current=only_current, k=limit
            )
            rows = ((catalog.heads.get(one.document), one) for one in near)
            return [((known.row, one.ordinal), one.cosine) for known, one in rows if known is not None]

        def cosines(vectors: Vectors, places: Sequence[tuple[int, int]]) -> Vectors:
            named = [(catalog.by_row[row].id if row in catalog.by_row else "", ordinal) for row, ordinal in places]
            return self.cosines(vectors, named, principal=principal)

        return EmbeddedTrail(
            searcher=look.searcher,
            schema=_SCHEMA,
            marks=[mark for mark in chosen.marks if mark != _everywhere(catalog)],
            ordinal_bits=_ORDINAL_BITS,
            passages=catalog.passages,
            language=self._language_of(None),
            head=head,
            row=lambda document: catalog.heads[document].row if document in catalog.heads else None,
            inside=inside,
            load=self._load,
            wordings=self._wordings,
            called=self._called,
            embed=self.embed,
            nearest=nearest,
            cosines=cosines,
        )

    def _trail_head(
        self, catalog: Catalog, row: int, chosen: _Choice, *, source: str | None, only_current: bool
    ) -> TrailHead | None:
        known = catalog.by_row.get(row)
        if known is None or (source is not None and known.source != source):
            return None
        currency = catalog.currency(known.id)
        if only_current and not currency.current:
            return None
        for key, value in chosen.wanted:
            if value not in folded_parts(known.metadata.get(key, "")):
                return None
        return TrailHead(
            row=row,
            document=known.id,
            source=known.source,
            title=known.title,
            language=self._language_of(known.language),
            metadata=known.metadata,
            passages=known.passages,
            current=currency.current,
            labels=currency.labels,
        )

    def _wordings(self, row: int) -> tuple[Wording, ...] | None:
        """The words of a document's passages; None where they are not stored (an index of before)."""
        with self._mutex:
            known = self._worded.get(row)
            if known is not None:
                self._worded.move_to_end(row)
                return known
            with _corrupt_if_broken():
                try:
                    found = self._database().execute("SELECT body FROM wordings WHERE row = ?", (row,)).fetchone()
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

    def _called(self, keys: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
        """Key of a name to (row, weight) of the documents called so."""
        found: dict[int, list[tuple[int, float]]] = {}
        with self._mutex, _corrupt_if_broken():
            db = self._database()
            for at in range(0, len(keys), 500):
                some = keys[at : at + 500]
                marks = ",".join("?" * len(some))
                try:
                    rows = db.execute(f"SELECT key, row, weight FROM calls WHERE key IN ({marks})", some).fetchall()
                except sqlite3.OperationalError as error:
                    if "no such table" in str(error):
                        return {}
                    raise
                for key, row, weight in rows:
                    found.setdefault(key, []).append((row, weight))
        return found

    def embed(self, texts: Sequence[str]) -> Vectors | None:
        """Queries as vectors of this index; None when it has none."""
        if self._embedder is None or self._look().view is None:
            return None
        try:
            return self._embedder.embed(texts, kind="query")
        except EmbeddingFailed as error:
            self._warn(f"{error}: words alone were searched")
            return None

    def nearest(
        self,
        vector: Vectors,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        documents: Sequence[str] | None = None,
        k: int = 20,
    ) -> Sequence[Near]:
        """The `k` passages nearest to one row of `embed`, best first."""
        look = self._look()
        chosen = _choose(look.catalog, source=source, filters=filters)
        if look.view is None or chosen.notes:
            return ()
        mask = self._mask(look, chosen, source=source, only_current=only_current, documents=documents)
        found: list[Near] = []
        for key, cosine in look.view.nearest(vector, k=k, mask=mask):
            head = look.catalog.by_row[key >> _ORDINAL_BITS]
            found.append(Near(document=head.id, ordinal=key & ((1 << _ORDINAL_BITS) - 1), cosine=cosine))
        return found

    def cosines(self, vectors: Vectors, passages: Sequence[tuple[str, int]], *, principal: Principal) -> Vectors:
        """(rows of `vectors`, passages): how near each passage, given as (document, ordinal), is to each row."""
        look = self._look()
        if look.view is None:
            return np.zeros((len(vectors), len(passages)), dtype=np.float32)
        heads = look.catalog.heads
        rows = (heads[document].row if document in heads else 0 for document, _ in passages)
        keys = [(row << _ORDINAL_BITS) | ordinal for row, (_, ordinal) in zip(rows, passages, strict=True)]
        return look.view.cosines(vectors, keys)

    def _mask(
        self,
        look: _Snapshot,
        chosen: _Choice,
        *,
        source: str | None,
        only_current: bool,
        documents: Sequence[str] | None,
    ) -> vectors.Mask | None:
        """Which vectors a search may look at; None means all of them."""
        catalog = look.catalog
        assert look.view is not None
        narrow = (source is not None and source != catalog.only_source) or chosen.wanted
        if documents is None and not narrow and not (only_current and catalog.hidden):
            return None
        table = catalog.rows(source=source, wanted=chosen.wanted, only_current=only_current)
        if documents is not None:
            heads = (catalog.heads.get(document) for document in documents)
            return look.view.among(head.row for head in heads if head is not None and table[head.row])
        key = (source, chosen.wanted, only_current)
        mask = look.masks.get(key)
        if mask is None:
            mask = look.view.where(table)
            with self._mutex:
                while len(look.masks) >= _MASKS:
                    look.masks.pop(next(iter(look.masks)))
                look.masks[key] = mask
        return mask

    def _weigh(self, look: _Snapshot, query: str) -> list[_Weighed]:
        """The query's terms, rarest first; those that say nothing, or do not occur, say why they are left out."""
        total = max(1, look.searcher.num_docs)
        languages = look.catalog.languages
        empty = frozenset[str]().union(*(FUNCTION_WORDS.get(code, ()) for code in languages))
        compounding = not COMPOUNDING.keys().isdisjoint(languages)
        found: list[_Weighed] = []
        for term in query_terms(query, languages):
            known: dict[str, int] = {}
            for form in (*term.stems, term.exact):
                known[form] = known.get(form) or look.searcher.doc_freq("any", form)
            stems = tuple(s for s in term.stems if known[s])
            most = max(known.values())
            if term.exact not in empty and compounding and (related := look.related(term)):
                term = replace(term, related=related)
                most = most or max(look.searcher.doc_freq("any", word) for word in related)
            found.append(
                _Weighed(
                    term=term if len(stems) == len(term.stems) or not most else replace(term, stems=stems),
                    weight=1.0 / (1.0 + 20.0 * most / total),
                    passages=most,
                    function_word=term.exact in empty,
                    why=None if most else "occurs nowhere",
                )
            )
        found.sort(key=lambda w: w.passages)
        left = [w for w in found if w.why is None]
        empty_terms = {w.term for w in left if w.function_word}
        common = {w.term for w in left if total > 1000 and w.passages >= total * 0.2}
        for drop, why, enough in (
            (empty_terms, "a function word", any(not w.function_word for w in found)),
            (common, "in a fifth of all passages", sum(w.term not in common for w in left) >= 2),
        ):
            if enough:
                found = [replace(w, why=why) if w.why is None and w.term in drop else w for w in found]
                left = [w for w in left if w.term not in drop]
        over = {w.term for w in left[_MAX_TERMS:]}
        return [replace(w, why=f"more than {_MAX_TERMS} terms") if w.term in over else w for w in found]

    def _collect(
        self, look: _Snapshot, legs: _Legs, *, k: int, per_document: int, only_current: bool, judged: bool = False
    ) -> _Ranking:
        """The best passages, equal scores by document id and place, and which documents that do not hold today would
        have been among them. One search finds both: what holds is known here, not there."""
        view = look.view if legs.vector is not None else None
        limit = max(32 if view is None else _CANDIDATES, k * 5)
        by_row = look.catalog.by_row
        hidden = look.catalog.hidden if only_current else frozenset[str]()
        while True:
            pairs: list[tuple[float, tantivy.DocAddress]] = []
            if legs.words is not None:
                result = look.searcher.search(legs.words, limit=limit, count=False)
                pairs = cast("list[tuple[float, tantivy.DocAddress]]", result.hits)
            addresses = [address for _, address in pairs]
            keys = cast("list[int]", look.searcher.fast_field_values("chunk", addresses)) if pairs else []
            texts = cast("list[int]", look.searcher.fast_field_values("text", addresses)) if pairs else []
            same = dict(zip(keys, texts, strict=True))
            words = [
                (key, score * self._repeated(look, by_row[key >> _ORDINAL_BITS].source, text))
                for (score, _), key, text in zip(pairs, keys, texts, strict=True)
                if key >> _ORDINAL_BITS in by_row
            ]
            words.sort(key=lambda w: (-round(w[1], 5), by_row[w[0] >> _ORDINAL_BITS].id, w[0]))
            plain = [
                Candidate(key=key, score=score, words=score, words_rank=at, cosine=None, dense_rank=None)
                for at, (key, score) in enumerate(words, start=1)
            ]
            candidates = plain
            if view is not None and not self._weights.dense and not judged:
                enough = _walk(plain, look.catalog, same, hidden=hidden, k=k, per_document=per_document, judged=False)
                if len(enough.taken) >= k:
                    return enough
            if view is not None and legs.vector is not None:
                near = view.nearest(legs.vector, k=limit, mask=legs.mask)
                known = view.cosines(legs.vector[None, :], [key for key, _ in words])[0]
                first = _walk(
                    plain,
                    look.catalog,
                    same,
                    hidden=hidden,
                    k=self._weights.keep,
                    per_document=per_document,
                    judged=False,
                )
                candidates = fuse(
                    words,
                    near,
                    cosines={key: float(cosine) for (key, _), cosine in zip(words, known, strict=True)},
                    weights=self._weights,
                    words_only=legs.words_only,
                    kept={(head.row << _ORDINAL_BITS) | ordinal for _, head, ordinal, _ in first.taken},
                )
                candidates.sort(key=lambda c: (-round(c.score, 5), by_row[c.key >> _ORDINAL_BITS].id, c.key))
            ranking = _walk(
                candidates, look.catalog, same, hidden=hidden, k=k, per_document=per_document, judged=judged
            )
            if len(ranking.taken) >= k or len(pairs) < limit or limit >= _MOST_COLLECTED:
                return ranking
            limit *= 4

    def _repeated(self, look: _Snapshot, source: str, same: int) -> float:
        """What the score of a text counts that stands again and again in a source: less, the more of it has it."""
        known = look.repeated.get((source, same))
        if known is None:
            times = look.searcher.doc_freq("filter", _text_term(source, same))
            documents = look.catalog.documents.get(source, 1)
            share = min(1.0, times / max(1, documents)) if times >= _BOILERPLATE else 0.0
            known = 1.0 - _BOILERPLATE_COSTS * share
            if len(look.repeated) < 200_000:
                look.repeated[source, same] = known
        return known

    def _load(self, row: int) -> _Stored | None:
        """The stored document of a row, or None when it has been replaced since."""
        with self._mutex:
            known = self._cache.get(row)
            if known is not None:
                self._cache.move_to_end(row)
                return known
            return self._fetch(row)

    def _fetch(self, row: int) -> _Stored | None:
        with _corrupt_if_broken():
            found = (
                self._database()
                .execute("SELECT id, source, head, body, checksum FROM documents WHERE row = ?", (row,))
                .fetchone()
            )
            if found is None:
                return None
            if _crc(*found[:4]) != found[4]:
                raise IndexCorrupt(f"the stored document {found[0]!r} is damaged; {REBUILD}")
            stored = _Stored(*found[:4])
            self._cache[row] = stored
            self._cached_chars += len(stored.text)
            while self._cached_chars > _CACHED_CHARS and len(self._cache) > 1:
                self._cached_chars -= len(self._cache.popitem(last=False)[1].text)
            return stored

    def document(self, document: str, *, principal: Principal) -> Document | None:
        """The whole document by its full id, or None."""
        head = self._look().catalog.heads.get(document)
        stored = self._load(head.row) if head is not None else None
        return stored.document if stored is not None else None

    def chunks(self, document: str, *, principal: Principal) -> tuple[Chunk, ...]:
        """The chunks of one document, in order; empty when there is no such document."""
        head = self._look().catalog.heads.get(document)
        stored = self._load(head.row) if head is not None else None
        return stored.chunks if stored is not None else ()

    def info(self, document: str, *, principal: Principal) -> DocumentInfo | None:
        catalog = self._look().catalog
        head = catalog.heads.get(document)
        return None if head is None else _info(catalog, head)

    def list_documents(
        self,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
        start: int = 0,
        limit: int = 50,
    ) -> DocumentList:
        """Documents by id, from `start`; `hidden_superseded` counts those that match but do not hold today."""
        catalog = self._look().catalog
        chosen = _choose(catalog, source=source, filters=filters)
        if chosen.notes:
            return DocumentList(documents=(), total=0, notes=chosen.notes)
        table = catalog.rows(source=source, wanted=chosen.wanted, only_current=False)
        matching = [head for head in catalog.heads.values() if table[head.row]]
        shown = [h for h in matching if not only_current or catalog.currency(h.id).current]
        return DocumentList(
            documents=tuple(_info(catalog, h) for h in shown[max(0, start) : max(0, start) + max(0, limit)]),
            total=len(shown),
            hidden_superseded=len(matching) - len(shown),
        )

    def ids(self, *, principal: Principal) -> Sequence[str]:
        return list(self._look().catalog.heads)

    def paths(self, *, principal: Principal) -> Mapping[str, str]:
        """Document id to its path with extension, prefixed by source: 'policies/a/b.md'."""
        return {h.id: f"{h.source}/{h.path}" for h in self._look().catalog.heads.values()}

    def resolve(self, name: str, *, principal: Principal) -> str:
        """The full id of whatever names a document. Raises UnknownDocument with the candidates or the nearest ids."""
        catalog = self._look().catalog
        found = catalog.names.find(name)
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(repr(d) for d in found[:5]) + (" …" if len(found) > 5 else "")
            raise UnknownDocument(f"{name!r} could be any of {len(found)} documents: {shown}; use a full id")
        near = _nearest_documents(name, catalog)
        hint = f"; nearest: {', '.join(repr(d) for d in near)}" if near else "; a search gives ids"
        raise UnknownDocument(f"no document is called {name!r}{hint}")

    def values(self, source: str, key: str, *, principal: Principal) -> Sequence[str]:
        """Known values of a metadata key, most frequent first; empty for an unknown key."""
        catalog = self._look().catalog
        known = catalog.keys.get(source, {}).get(fold_value(key))
        return [] if known is None else list(catalog.whole_values(source, known))

    def lexicon(self, *, principal: Principal) -> EmbeddedLexicon:
        look = self._look()
        return EmbeddedLexicon(searcher=look.searcher, catalog=look.catalog)


@dataclass(frozen=True, kw_only=True)
class EmbeddedLexicon:
    """Frequencies, names and values of the index at one moment."""

    searcher: tantivy.Searcher
    catalog: Catalog
    _known: dict[str, int] = field(default_factory=dict[str, int], repr=False, compare=False)

    @property
    def passages(self) -> int:
        return self.catalog.passages

    def frequency(self, term: str) -> int:
        """In how many chunks the term's stem occurs; of several words, the rarest counts."""
        known = self._known.get(term)
        if known is None:
            counts = [
                max(self.searcher.doc_freq("any", form) for form in {*t.stems, t.exact})
                for t in query_terms(term, self.catalog.languages)
            ]
            known = min(counts, default=0)
            if len(self._known) < 50_000:
                self._known[term] = known
        return known

    def values(self, source: str) -> Mapping[str, tuple[str, ...]]:
        """Known values of every metadata key of a source."""
        return {key: tuple(self.catalog.whole_values(of, key)) for of, key in self.catalog.counts if of == source}

    def titles(self) -> Sequence[tuple[str, str]]:
        return [(h.id, h.title) for h in self.catalog.heads.values()]


_SCHEMA = _schema()
_NOT_SEARCHED = frozenset(
    {"licence", "license", "bytes", "sha256", "hash", "url", "fictional", "language", "declared_id"}
)


def _only_heading(document: Document, chunk: Chunk) -> bool:
    """True for a chunk that says no more than the heading of sections below it, which carry it as their context."""
    section = document.section(chunk.section) if chunk.section else None
    if section is None or section.end <= chunk.end + 2 or len(chunk.text) > 200:
        return False
    text = fold_value(chunk.text)
    return text in (fold_value(section.title), fold_value(f"{section.number or ''} {section.title}"))


def _walk(
    candidates: Sequence[Candidate],
    catalog: Catalog,
    same: Mapping[int, int],
    *,
    hidden: frozenset[str],
    k: int,
    per_document: int,
    judged: bool,
) -> _Ranking:
    """Takes the best `k` of candidates that are in order, without copies, at most `per_document` of one document.

    `same` says by key which texts are the same, where that is known."""
    ranking = _Ranking()
    count: Counter[int] = Counter()
    seen: dict[tuple[object, ...], int] = {}
    copies: dict[int, list[str]] = defaultdict(list)
    taken: list[tuple[float, Head, int]] = []
    lowest = 0.0
    for candidate in candidates:
        rounded = -round(candidate.score, 5)
        full = len(taken) >= k
        if full and rounded > lowest and not judged:
            break
        head = catalog.by_row.get(candidate.key >> _ORDINAL_BITS)
        if head is None:
            continue
        verdict = ""
        text = same.get(candidate.key)
        mark = None if not text or text % 2 == 0 else (text, fold_value(head.title), _about(head.metadata))
        if candidate.below_floor:
            verdict = "cut: has none of the query's words, and is not near enough"
        elif head.id in hidden:
            if not full or rounded <= lowest:
                ranking.gone.add(head.id)
            verdict = f"cut: {'; '.join(catalog.currency(head.id).labels) or 'not current'}"
        elif mark is not None and mark in seen:
            number = seen[mark]
            if taken[number][1].id != head.id:
                copies[number].append(head.id)
            verdict = f"cut: the same text as hit {number + 1}"
        elif full:
            verdict = f"cut: below the best {k}"
        elif count[head.row] >= per_document:
            verdict = f"cut: {per_document} of its document are hits already"
        else:
            if mark is not None:
                seen[mark] = len(taken)
            count[head.row] += 1
            taken.append((candidate.score, head, candidate.key & _ORDINAL))
            lowest = rounded
            verdict = f"hit {len(taken)}"
        if judged:
            ranking.judged.append((candidate, verdict))
    ranking.taken = [(*t, tuple(dict.fromkeys(copies[at]))) for at, t in enumerate(taken)]
    return ranking


def _about(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """What two copies of one document have in common."""
    return tuple(sorted((key, value) for key, value in metadata.items() if key not in _NOT_SEARCHED))


def _vector_state(db: sqlite3.Connection) -> vectors.State | None:
    found = db.execute("SELECT value FROM meta WHERE key = 'vectors'").fetchone()
    return None if found is None else vectors.State.unpacked(found[0])


def embedded_text(document: Document, chunk: Chunk) -> str:
    """What of a passage goes into its vector: title and section path, then its text."""
    context = chunk.context.removeprefix(document.title)
    return f"{document.title}\n{context}\n{chunk.text}"


# -- packing


def _pack(entry: IndexEntry) -> tuple[str, bytes]:
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


# -- checksums


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
        crc = int(json.loads(data[-8 - length : -8])["crc"])
    except (ValueError, KeyError, TypeError):
        return False
    return zlib.crc32(data[: -8 - length]) == crc


@contextlib.contextmanager
def _corrupt_if_broken() -> Generator[None]:
    """What SQLite, tantivy or a decoder say about a broken store becomes one line that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "readonly" in str(error) or "unable to open" in str(error):
            raise IndexUnusable(f"the index cannot be opened: {error}; check the folder's permissions") from error
        if "locked" in str(error) or "busy" in str(error):
            raise IndexUnusable(f"the index is busy: {error}; try again") from error
        raise IndexCorrupt(f"the index is damaged ({error}); {REBUILD}") from error
    except (sqlite3.DatabaseError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise IndexCorrupt(f"the index is damaged ({type(error).__name__}: {error}); {REBUILD}") from error


# -- queries


def _one_of(schema: tantivy.Schema, documents: Sequence[str]) -> Query:
    return Query.term_set_query(schema, "document", list(documents))


def _mark(mark: str) -> Query:
    return Query.const_score_query(Query.term_query(_SCHEMA, "filter", mark, "basic"), 0.0)


def _scored(searcher: tantivy.Searcher, terms: Sequence[tuple[QueryTerm, float]]) -> Query:
    """Each term in each field that has it, with the field's weight; at least one has to occur."""
    parts: list[tuple[Occur, Query]] = []
    for term, weight in terms:
        for stem in term.stems:
            for name, boost in _BOOSTS:
                if boost == 1.0:
                    parts.append((Occur.Should, Query.term_query(_SCHEMA, name, stem, "freq")))
                elif searcher.doc_freq(name, stem):
                    query = Query.boost_query(Query.term_query(_SCHEMA, name, stem, "freq"), boost)
                    parts.append((Occur.Should, query))
        for stem in term.related:
            query = Query.term_query(_SCHEMA, "all", stem, "freq")
            parts.append((Occur.Should, Query.boost_query(query, _RELATED_BOOST)))
        exact = Query.term_query(_SCHEMA, "any", term.exact, "basic")
        parts.append((Occur.Should, Query.boost_query(exact, _EXACT_BOOST * max(weight, 0.05))))
    return Query.boolean_query(parts)


@dataclass(frozen=True, kw_only=True)
class _Choice:
    marks: tuple[str, ...] = ()
    """Terms of the field `filter` that all must occur."""
    wanted: tuple[tuple[str, str], ...] = ()
    """The same as (metadata key, folded value)."""
    notes: tuple[str, ...] = ()
    """Why nothing can match."""


def _choose(catalog: Catalog, *, source: str | None, filters: Mapping[str, str] | None) -> _Choice:
    """Filters as the index knows them. An unknown key or value matches nothing, and the notes say what is near."""
    of = source or ""
    marks = [] if source is None else [_source_term(source)]
    wanted: list[tuple[str, str]] = []
    notes: list[str] = []
    for key, value in (filters or {}).items():
        value = str(value)
        if not value.strip():
            continue
        known_keys = catalog.keys.get(of, {})
        known = known_keys.get(fold_value(key))
        if known is None:
            near = _near(fold_value(key), known_keys)
            notes.append(f"filter {key!r} is not known{_nearest(near)}")
            continue
        known_values = catalog.values(of, known)
        folded = fold_value(value)
        if folded not in known_values:
            near = _near(folded, known_values)
            notes.append(f"{known} {value!r} is not known{_nearest(near)}")
            continue
        wanted.append((known, folded))
        marks.append(_value_term(known, value))
    return _Choice(marks=tuple(marks), wanted=tuple(wanted), notes=tuple(notes))


def _near(folded: str, known: Mapping[str, str]) -> list[str]:
    inside = [shown for value, shown in known.items() if folded and (folded in value or value in folded)]
    close = difflib.get_close_matches(folded, list(known)[:2000], n=3, cutoff=0.5)
    found = list(dict.fromkeys([*(known[c] for c in close), *inside]))[:3]
    return found or (list(known.values()) if len(known) <= 5 else [])


def _nearest(near: Sequence[str]) -> str:
    return f"; nearest: {', '.join(repr(n) for n in near)}" if near else ""


def _nearest_documents(name: str, catalog: Catalog) -> list[str]:
    wanted = fold(name).rsplit("/", 1)[-1]
    by_last: dict[str, str] = {}
    for document in catalog.heads:
        by_last.setdefault(fold(document).rsplit("/", 1)[-1], document)
    close = difflib.get_close_matches(wanted, list(by_last), n=3, cutoff=0.5)
    inside = [document for last, document in by_last.items() if wanted and wanted in last]
    return list(dict.fromkeys([*(by_last[c] for c in close), *inside]))[:3]


def _info(catalog: Catalog, head: Head) -> DocumentInfo:
    currency = catalog.currency(head.id)
    return DocumentInfo(
        document=head.id,
        source=head.source,
        title=head.title,
        current=currency.current,
        metadata=head.metadata,
        total_chars=head.chars,
        labels=currency.labels,
        superseded_by=currency.superseded_by,
        amended_by=currency.amended_by,
    )


def _hit_title(title: str, section: str) -> str:
    return title if not section or fold_value(section) == fold_value(title) else f"{title} > {section}"


def snippet(text: str, matcher: Matcher[float]) -> str:
    """The stretch of at most 300 characters that holds most of the weighted terms, white space folded."""
    if len(text) <= SNIPPET:
        return " ".join(text.split())
    places = matcher.places(text)
    width = SNIPPET - 4
    start = 0
    best_value = -1.0
    for at, (begin, _, _, _) in enumerate(places):
        value = 0.0
        seen: set[str] = set()
        for _, end, term, weight in places[at:]:
            if end - begin > width - 20:
                break
            value += weight * (0.1 if term in seen else 1.0)
            seen.add(term)
        if value > best_value + 1e-9:
            best_value, start = value, begin
    start = _lead_in(text, start, width)
    end = min(len(text), start + width)
    if end < len(text):
        cut = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = cut if cut > start + width // 2 else end
    shown = " ".join(text[start:end].split())
    return f"{'… ' if start > 0 else ''}{shown}{' …' if end < len(text) else ''}"


def _lead_in(text: str, start: int, width: int) -> int:
    """Moves back to the sentence's or line's beginning when it is near, else to a few words before."""
    floor = max(0, start - width // 3)
    if start <= width // 3:
        return 0
    for mark in ("\n", ". ", "? ", "! ", "; ", "。"):
        found = text.rfind(mark, floor, start)
        if found >= 0:
            return found + len(mark)
    blank = text.find(" ", max(floor, start - 40), start)
    return blank + 1 if blank >= 0 else start

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
import hashlib
import json
import secrets
import shutil
import sqlite3
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import numpy as np
import tantivy

from ..access import OWNER, UNCONFIGURED, Access, Audience, Principal
from ..documents import Chunk, Document, DocumentInfo, DocumentList, SearchHit, SearchResult
from ..embedding import STATIC, Embedder, Vectors
from ..errors import EmbeddingFailed, IndexCorrupt, IndexUnusable, NoRoom, UnknownDocument
from ..readonly import private_folder, readable
from . import Considered, Explanation, FileState, IndexEntry, Near, ranking, sealing, vectors
from .analysis import Matcher, fold_value, known_language, query_terms
from .catalog import Catalog, Head, folded_parts
from .fusion import Weights
from .locking import WriteLock
from .ranking import ORDINAL, Choice, Ranking, Snapshot, choose, everywhere, hit_title, snippet
from .stored import MORE_TABLES, REBUILD, TABLES, Store, corrupt_if_broken, head_of
from .terms import MAIN, RELATED_BOOST, SCHEMA, Terms, records
from .trail import EmbeddedTrail
from .trail import Head as TrailHead

FALLBACK_LANGUAGE = "en"
"""How a text is stemmed whose language is neither given, detected nor configured. Queries are stemmed this way too."""
_HEAP = 48_000_000
BATCH_CHARS = 6_000_000
"""So much text is committed at once, unless `commit` is called before."""
_ORDINAL_BITS = vectors.ORDINAL_BITS
_EMBEDDED_FIRST, _EMBEDDED_AT_ONCE = 64, 2000
"""So many passages get their vectors between two steps of progress: more and more while a step stays short."""
_STEP_SECONDS = 1.0
_EMBEDDED_AT_COMMIT = 500
"""More new passages than these wait for `embed_missing`, which shows progress, unless vectors are quickly made."""
_FEW = 500
"""So many new documents are looked up one by one."""


_MOST_SEEN = 16
"""So many selections of documents are kept at hand, each as those see it who may see the same."""
_MOST_ANEW = 5_000
"""Passages that are put into an index of terms of their own until the next index run, where rights have changed."""


@dataclass(frozen=True, kw_only=True)
class _Sorted:
    """A snapshot's documents by the groups that may see them."""

    whole: Snapshot
    access: Access
    by_row: Mapping[int, Audience]
    audiences: frozenset[Audience]
    exact: Snapshot
    """The same for those who may see everything."""

    @classmethod
    def of(cls, whole: Snapshot, access: Access, *, before: _Sorted | None) -> _Sorted:
        known = before.by_row if before is not None and before.access is access else dict[int, Audience]()
        by_row = {
            row: known[row] if row in known else access.audience(document=head.id, source=head.source, path=head.path)
            for row, head in whole.catalog.by_row.items()
        }
        return cls(
            whole=whole,
            access=access,
            by_row=by_row,
            audiences=frozenset(by_row.values()),
            exact=replace(whole, exact=True),
        )


@dataclass(frozen=True, kw_only=True)
class _Seen:
    of: _Sorted
    snapshot: Snapshot


def _part_name(audience: Audience) -> str:
    """Of the part of the index of terms that has the documents of these groups."""
    if audience is None:
        return MAIN
    return hashlib.blake2b(json.dumps(sorted(audience)).encode(), digest_size=8).hexdigest()


def renew_terms(folder: Path) -> None:
    """Throws the index of terms away: the next writer makes it again, from what is stored."""
    with corrupt_if_broken(), contextlib.closing(sqlite3.connect(folder / "documents.db", isolation_level=None)) as db:
        db.executescript(MORE_TABLES + "DELETE FROM wordings; DELETE FROM calls; DELETE FROM parts;")
        db.execute("INSERT INTO log (document) SELECT id FROM documents")
    terms = folder / "terms"
    shutil.rmtree(terms, ignore_errors=True)
    Terms.create(terms)


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
        access: Callable[[], Access] = lambda: UNCONFIGURED,
        open_sources: frozenset[str] = frozenset(),
    ) -> None:
        """Opens the index in `folder`; with `write`, creates it and holds the write lock until `close`.

        Raises IndexUnusable: IndexLocked after waiting `lock_seconds` for another writer, IndexCorrupt when a checksum
        does not hold, IndexTooNew when a newer version wrote it. `access` says who may see what; it is asked at each
        search and read, so what it says holds from the next one on. Many people can write `open_sources`.
        """
        self.folder = folder
        self._warnings: tuple[str, ...] = ()
        self._language = language
        self._embedder = embedder
        self._weights = weights if weights is not None else Weights()
        self._to_embed: list[tuple[int, str]] = []
        self._today = today
        self._db_path = folder / "documents.db"
        self._terms_path = folder / "terms"
        self._vectors = folder / "vectors"
        self._lock = WriteLock(folder.parent / f"{folder.name}.lock")
        self._mutex = threading.RLock()
        self._snapshot: Snapshot | None = None
        self._access = access
        self._open_sources = open_sources
        self._terms: Terms | None = None
        self._seen: OrderedDict[frozenset[Audience], _Seen] = OrderedDict()
        self._sorted: _Sorted | None = None
        self._placing: dict[int, str] = {}
        """Documents' rows to the parts that they have been moved to, not yet committed."""
        self._parts: dict[str, str] = {}
        """Name of a part to its present folder, where that has another name."""
        self._write = write
        self._closed = False
        self._pending_chars = 0
        self._store: Store | None = None
        self._inode = 0
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
        private_folder(folder.parent)
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
        private_folder(self.folder.parent)
        self._lock.acquire(seconds=lock_seconds)
        if not self.exists(self.folder):
            self._create()
        manifest = sealing.read_manifest(self.folder)
        sealing.verify(self.folder, manifest, thorough=True)
        if manifest["format"] < sealing.PLAIN:
            renew_terms(self.folder)
        elif not manifest["clean"]:
            sealing.sweep(self.folder)
        sealing.write_manifest(self.folder, {**manifest, "format": sealing.FORMAT, "clean": False})
        self._connect(write=True)
        self._require_writer().link_old()
        self._replay()
        self._regroup()
        with corrupt_if_broken():
            vectors.sweep(self._vectors, vectors.state_of(self._require_writer().db))

    @classmethod
    def adopt(cls, folder: Path, *, language: str | None = None) -> None:
        """Makes an index of a folder that has what `copies.take` copied; terms and links are made anew from it.

        Vectors stay as they are. Raises IndexCorrupt.
        """
        with corrupt_if_broken(), contextlib.closing(sqlite3.connect(folder / "documents.db")) as db:
            db.execute("PRAGMA journal_mode = WAL")
            (generation,) = db.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
        renew_terms(folder)
        sealing.write_manifest(
            folder, {"format": sealing.FORMAT, "generation": generation, "clean": False, "files": {}}
        )
        cls(folder, write=True, language=language).close()

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self._db_path, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript("BEGIN;" + TABLES + MORE_TABLES + "COMMIT;")
            generation = secrets.token_hex(8)
            db.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [("format", str(sealing.FORMAT)), ("generation", generation), ("indexed_seq", "0")],
            )
        finally:
            db.close()
        Terms.create(self._terms_path)
        sealing.write_manifest(
            self.folder, {"format": sealing.FORMAT, "generation": generation, "clean": False, "files": {}}
        )

    def _open_for_reading(self) -> None:
        if not self.exists(self.folder):
            raise IndexUnusable("there is no index yet; run `citehound index`")
        manifest = sealing.read_manifest(self.folder)
        if manifest["format"] < sealing.PLAIN:
            raise IndexUnusable("the index is of an older version; run `citehound index`, which brings it up to date")
        if not manifest["clean"] and self._recover():
            manifest = sealing.read_manifest(self.folder)
        thorough = bool(manifest["clean"])
        try:
            sealing.verify(self.folder, manifest, thorough=thorough)
        except IndexCorrupt:
            # A writer may have begun while we looked: its files change under the checksums of before.
            if sealing.read_manifest(self.folder) == manifest and self._lock.is_free():
                raise
            sealing.verify(self.folder, sealing.read_manifest(self.folder), thorough=False)
        self._connect(write=False)

    def _recover(self) -> bool:
        """Finishes what a killed writer left; False when a writer is at work, or the folder cannot be written."""
        try:
            if not self._lock.try_acquire():
                return False
            writer = EmbeddedIndex.__new__(EmbeddedIndex)
            writer.__dict__.update(self.__dict__)
            writer._write = True
            try:
                sealing.verify(self.folder, sealing.read_manifest(self.folder), thorough=True)
                sealing.sweep(self.folder)
                writer._connect(write=True)
                writer._replay()
                writer.close()
            finally:
                writer._drop()
                self._lock.release()
        except (OSError, NoRoom) as error:
            why = "no room on the disk" if isinstance(error, NoRoom) else "read-only"
            self._warnings = (*self._warnings, f"the last index run did not end and cannot be finished here ({why})")
            return False
        return True

    def _connect(self, *, write: bool) -> None:
        with corrupt_if_broken():
            self._inode = self._db_path.stat().st_ino
            where, uri = (str(self._db_path), False) if write else readable(self._db_path)
            db = sqlite3.connect(where, isolation_level=None, check_same_thread=False, timeout=10.0, uri=uri)
            self._store = Store(db, self._mutex, language_of=self._language_of)
            if write:
                db.execute("PRAGMA synchronous = FULL")
            else:
                db.execute("PRAGMA query_only = ON")
            self._terms = Terms(self._terms_path, write=write)

    def _drop(self) -> None:
        if self._store is not None:
            self._store.db.close()
            self._store = None
        if self._terms is not None:
            self._terms.close()
            self._terms = None
        self._placing = {}
        self._snapshot = None
        self._sorted = None
        self._seen.clear()

    def close(self) -> None:
        """Writers commit first, then seal the index with fresh checksums."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            try:
                if self._write and self._store is not None:
                    self._commit()
                    with corrupt_if_broken():
                        self._store.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    self._drop()
                    sealing.seal(self.folder)
            finally:
                self._drop()
                self._lock.release()

    def abandon(self) -> None:
        """Closes without committing what is pending; the next one to open finishes or forgets it, as after a kill."""
        with self._mutex:
            self._closed = True
            if self._store is not None and self._store.db.in_transaction:
                self._store.db.rollback()
            self._drop()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # -- writing

    def _require_writer(self) -> Store:
        if not self._write or self._closed or self._store is None:
            raise IndexUnusable("this index is open for reading; open it with write=True")
        return self._store

    def _begin(self) -> Store:
        store = self._require_writer()
        if not store.db.in_transaction:
            store.db.execute("BEGIN IMMEDIATE")
        return store

    def add(self, entries: Iterable[IndexEntry]) -> None:
        """Adds or replaces documents; durable and visible after `commit` (which big batches do by themselves)."""
        for entry in entries:
            with self._mutex, corrupt_if_broken():
                store = self._begin()
                document = entry.document
                before = store.row(document.id)
                if before is not None:
                    self._written().delete(store.part(before), document.id)
                part = self._part_for(document.id, document.source, document.path)
                row = store.put(entry, part=part)
                self._put_terms(row, document, entry.chunks, part=part)
                self._pending_chars += len(entry.document.text) + 200
                if self._pending_chars > BATCH_CHARS:
                    self._commit()

    def remove(self, documents: Iterable[str]) -> None:
        with self._mutex, corrupt_if_broken():
            store = self._begin()
            for document in documents:
                row = store.row(document)
                if row is not None:
                    self._written().delete(store.part(row), document)
                store.remove(document)

    def record_failure(self, state: FileState) -> None:
        """Remembers that a file failed. An earlier good version of it goes: what is served is what is there."""
        with self._mutex, corrupt_if_broken():
            store = self._begin()
            if store.row(state.document) is not None:
                self.remove([state.document])
            store.put_state(state)

    def forget(self, source: str, path: str) -> None:
        """Drops the state of one file that was never (or is no longer) a document."""
        with self._mutex, corrupt_if_broken():
            self._begin().db.execute("DELETE FROM files WHERE source = ? AND path = ?", (source, path))

    def commit(self) -> None:
        """Makes everything so far durable and visible to readers."""
        with self._mutex:
            self._require_writer()
            self._commit()

    def _written(self) -> Terms:
        assert self._terms is not None
        return self._terms

    def _part_for(self, document: str, source: str, path: str) -> str:
        """The part of the index of terms for a document that is added now: one for each set of groups that may see it,
        and the main one for what everyone may."""
        name = _part_name(self._access().audience(document=document, source=source, path=path))
        return self._parts.get(name, name)

    def _put_terms(
        self, row: int, document: Document, chunks: Sequence[Chunk], *, part: str, embed: bool = True
    ) -> None:
        if self._embedder is not None and embed:
            self._to_embed.extend(((row << _ORDINAL_BITS) | c.ordinal, embedded_text(document, c)) for c in chunks)
        language = self._language_of(document.language)
        self._written().add(part, records(document, chunks, row=row, language=language))

    def _language_of(self, language: str | None) -> str:
        return language or self._language or FALLBACK_LANGUAGE

    def _commit(self) -> None:
        assert self._store is not None
        db = self._store.db
        with corrupt_if_broken():
            if db.in_transaction:
                db.execute("COMMIT")
            self._pending_chars = 0
            top = cast("int | None", db.execute("SELECT max(seq) FROM log").fetchone()[0])
            self._written().commit()
            state = self._embed_pending(db)
            if top is not None:
                db.execute("BEGIN IMMEDIATE")
                if state is not None:
                    db.execute("INSERT OR REPLACE INTO meta VALUES ('vectors', ?)", (state.packed(),))
                db.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?)", self._placing.items())
                self._placing = {}
                db.execute("UPDATE meta SET value = ? WHERE key = 'indexed_seq'", (str(top),))
                db.execute("DELETE FROM log WHERE seq <= ?", (top,))
                db.execute("COMMIT")

    def _replay(self) -> None:
        """Brings tantivy up to SQLite: every document in the log above `indexed_seq` is deleted and added anew."""
        store = self._require_writer()
        with corrupt_if_broken():
            pending = store.db.execute("SELECT DISTINCT document FROM log").fetchall()
            for (document,) in pending:
                row = store.row(document)
                for part in self._written().parts:
                    self._written().delete(part, document)
                stored = store.load(row) if row is not None else None
                if row is not None and stored is not None:
                    self._put_terms(row, stored.document, stored.chunks, part=store.part(row))
            if pending:
                self._forget_embedded(store.db)
                self._commit()

    def _regroup(self) -> None:
        """Puts each document into the part of those who may see it now.

        A part that loses a document is written anew, since what is deleted in one goes on to be counted in it. Those
        that stay together go first: a part is left of its last documents only when the others are out of it.
        """
        store = self._require_writer()
        access = self._access()
        with self._mutex, corrupt_if_broken():
            placed = store.parts()
            self._parts = {part.rpartition("~")[0]: part for part in placed.values() if "~" in part}
            if not access.limited and not placed:
                return
            wanted: dict[int, str] = {}
            documents: dict[int, str] = {}
            for row, document, source, packed in store.db.execute("SELECT row, id, source, head FROM documents"):
                head = head_of(row, document, source, packed)
                documents[row] = document
                wanted[row] = _part_name(access.audience(document=document, source=source, path=head.path))
            losing = {p for row, name in wanted.items() if (p := placed.get(row, MAIN)).partition("~")[0] != name}
            moved = [row for row in wanted if placed.get(row, MAIN) in losing]
            for name in {wanted[row] for row in moved}:
                part = self._parts.get(name, name)
                if part in losing:
                    self._parts[name] = f"{name}~{secrets.token_hex(3)}"
            moved.sort(key=lambda row: placed.get(row, MAIN).partition("~")[0] != wanted[row])
            for row in moved:
                stored = store.load(row)
                if stored is None:
                    continue
                self._begin().db.execute("INSERT INTO log (document) VALUES (?)", (documents[row],))
                self._written().delete(placed.get(row, MAIN), documents[row])
                part = self._parts.get(wanted[row], wanted[row])
                self._put_terms(row, stored.document, stored.chunks, part=part, embed=False)
                self._placing[row] = part
                self._pending_chars += len(stored.text) + 200
                if self._pending_chars > BATCH_CHARS:
                    self._commit()
            if moved:
                self._commit()
            placed = store.parts()
            used = {placed.get(row, MAIN) for row in wanted}
            self._written().sweep(used)

    def _forget_embedded(self, db: sqlite3.Connection) -> None:
        """What has its vectors is not embedded again: a document that changes gets another row."""
        state = vectors.state_of(db)
        if self._embedder is not None and state is not None and state.fits(self._embedder):
            known = set(vectors.View(self._vectors, state, live=()).rows.tolist())
            self._to_embed = [one for one in self._to_embed if one[0] >> _ORDINAL_BITS not in known]

    def files(self, source: str) -> Mapping[str, FileState]:
        """Path to what is remembered of each file of a source."""
        return self._stored().files(source)

    def sources(self) -> Sequence[str]:
        """Every source of which something is stored, also those no longer configured."""
        return self._stored().sources()

    # -- vectors

    def _embed_pending(self, db: sqlite3.Connection) -> vectors.State | None:
        """Writes the vectors of what was added; they hold once the state that is given is committed.

        An embedder that fails leaves them out, and so does a slow one that would hold all up: `embed_missing` makes up
        for it, and says why."""
        pending, self._to_embed = self._to_embed, []
        if self._embedder is None or not pending:
            return None
        if len(pending) > _EMBEDDED_AT_COMMIT and self._embedder.name != STATIC:
            return None
        state = vectors.state_of(db)
        if state is not None and not state.fits(self._embedder):
            return None  # those of another embedder go when all are made anew
        try:
            made = self._embedder.embed([text for _, text in pending])
        except EmbeddingFailed:
            return None
        if state is not None and not state.fits(self._embedder):
            return None  # only now it says how many numbers it gives
        if state is None:
            state = vectors.fresh(self._embedder, made.shape[1])
        return vectors.append(self._vectors, state, [key for key, _ in pending], made)

    def embed_missing(self, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Gives every passage its vector: all of them where the embedder has changed, else those that have none.

        `progress` is told how many of how many passages are done. Gives that number. What is done stays done when it
        is interrupted. Raises EmbeddingFailed."""
        if self._embedder is None:
            return 0
        with self._mutex, corrupt_if_broken():
            db = self._require_writer().db
            self._commit()
            state, missing = self._without_vectors(db)
            if state is not None and missing and not self._embedder.dimensions:
                self._embedder.embed(["how many numbers?"])
                state, missing = self._without_vectors(db)
            total, done, size = sum(n for _, n in missing), 0, _EMBEDDED_FIRST
            keys: list[int] = []
            texts: list[str] = []
            for at, (row, _) in enumerate(missing):
                stored = self._stored().load(row)
                for chunk in stored.chunks if stored is not None else ():
                    assert stored is not None
                    keys.append((row << _ORDINAL_BITS) | chunk.ordinal)
                    texts.append(embedded_text(stored.document, chunk))
                if not keys or (len(keys) < size and at < len(missing) - 1):
                    continue
                made: list[Vectors] = []
                while texts:
                    began = time.monotonic()
                    made.append(self._embedder.embed(texts[:size]))
                    done += len(made[-1])
                    del texts[:size]
                    if time.monotonic() - began < _STEP_SECONDS:
                        size = min(2 * size, _EMBEDDED_AT_ONCE)
                    if texts:
                        progress(done, total)
                if state is None:
                    state = vectors.fresh(self._embedder, made[0].shape[1])
                state = vectors.append(self._vectors, state, keys, np.concatenate(made))
                self._hold(db, state)
                progress(done, total)
                keys = []
            if state is not None:
                self._compact(db, state)
            return done

    def _without_vectors(self, db: sqlite3.Connection) -> tuple[vectors.State | None, list[tuple[int, int]]]:
        """The state of the vectors that are this embedder's, and (row, passages) of the documents that have none."""
        assert self._embedder is not None
        state = vectors.state_of(db)
        if state is not None and not state.fits(self._embedder):
            state = None
        known = set[int]() if state is None else set(vectors.View(self._vectors, state, live=()).rows.tolist())
        heads = db.execute("SELECT row, head FROM documents ORDER BY row").fetchall()
        return state, [(row, n) for row, head in heads if row not in known and (n := json.loads(head)["passages"])]

    def _compact(self, db: sqlite3.Connection, state: vectors.State) -> None:
        """Writes the vectors anew when most of them are of documents that are gone; removes what does not hold."""
        held = vectors.state_of(db)
        if held is not None and held.generation == state.generation and state.count > 2000:
            rows = (row for (row,) in db.execute("SELECT row FROM documents"))
            view = vectors.View(self._vectors, state, live=rows)
            if view.dead > state.count // 2:
                state = vectors.rewritten(self._vectors, view)
                self._hold(db, state)
        vectors.sweep(self._vectors, vectors.state_of(db))

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

    def _stored(self) -> Store:
        if self._store is None or self._closed:
            raise IndexUnusable("this index is closed")
        return self._store

    def _look(self, principal: Principal) -> Snapshot:
        """The newest committed state as somebody sees it; cheap when nothing has changed."""
        with self._mutex, corrupt_if_broken():
            whole = self._newest()
            access = self._access()
            known = access.unconfigured or whole.catalog.documents.keys() <= access.sources.keys()
            if known and not access.limited:
                return whole
            found = self._sorted
            if found is None or found.access is not access or found.whole is not whole:
                found = self._sorted = _Sorted.of(whole, access, before=found)
            visible = frozenset(a for a in found.audiences if principal.may_see(a))
            if len(visible) == len(found.audiences):
                return found.exact
            seen = self._seen.get(visible)
            if seen is None or seen.of is not found:
                before = seen.snapshot.catalog if seen is not None else None
                seen = _Seen(of=found, snapshot=self._narrowed(found, visible, before=before))
                self._seen[visible] = seen
                while len(self._seen) > _MOST_SEEN:
                    self._seen.popitem(last=False)
            self._seen.move_to_end(visible)
            return seen.snapshot

    def _newest(self) -> Snapshot:
        if not self._write:
            self._reopen_if_replaced()
        store = self._stored()
        told = dict(store.db.execute("SELECT key, value FROM meta WHERE key IN ('indexed_seq', 'vectors')").fetchall())
        seq, state = int(told["indexed_seq"]), str(told.get("vectors", ""))
        snapshot = self._snapshot
        if (
            snapshot is not None
            and (snapshot.seq, snapshot.state) == (seq, state)
            and snapshot.catalog.today == self._today()
        ):
            return snapshot
        catalog = self._read_catalog(store.db)
        parts = store.parts()
        view = self._view(vectors.State.unpacked(state), catalog) if state else None
        searcher = self._written().searcher({parts.get(row, MAIN) for row in catalog.by_row} if parts else {MAIN})
        self._snapshot = Snapshot(seq=seq, searcher=searcher, catalog=catalog, state=state, view=view, parts=parts)
        return self._snapshot

    def _narrowed(self, found: _Sorted, visible: frozenset[Audience], *, before: Catalog | None) -> Snapshot:
        """What is left for somebody: the documents, and with them all that follows from documents."""
        whole = found.whole
        mine = {row: head for row, head in whole.catalog.by_row.items() if found.by_row[row] in visible}
        catalog = (before or self._nothing(whole.catalog.today)).after(
            added=[head for row, head in mine.items() if before is None or row not in before.by_row],
            gone=[row for row in before.by_row if row not in mine] if before is not None else [],
            today=whole.catalog.today,
        )
        parts: dict[str, list[int]] = defaultdict(list)
        for row in whole.catalog.by_row:
            parts[whole.parts.get(row, MAIN)].append(row)
        inside = {part for part, rows in parts.items() if all(row in mine for row in rows)}
        apart = sorted(row for part, rows in parts.items() if part not in inside for row in rows if row in mine)
        if sum(mine[row].passages for row in apart) > _MOST_ANEW:
            self._warn("access rules have changed: until `citehound index` is run, scores count passages of others too")
            inside |= {whole.parts.get(row, MAIN) for row in apart}
            apart = []

        def anew() -> Iterator[tantivy.Document]:
            for row in apart:
                stored = self._stored().load(row)
                if stored is not None:
                    language = self._language_of(stored.document.language)
                    yield from records(stored.document, stored.chunks, row=row, language=language)

        searcher = self._written().searcher(inside, anew=anew if apart else None)
        return Snapshot(
            seq=whole.seq,
            searcher=searcher,
            catalog=catalog,
            state=whole.state,
            view=whole.view if mine else None,
            parts=whole.parts,
            whole=False,
            exact=True,
        )

    def _reopen_if_replaced(self) -> None:
        try:
            inode = self._db_path.stat().st_ino
        except OSError as error:
            raise IndexUnusable("the index is gone; run `citehound index`") from error
        if inode != self._inode:
            self._drop()
            self._open_for_reading()

    def _nothing(self, today: date) -> Catalog:
        return Catalog.empty(today=today, language=self._language_of(None), open_sources=self._open_sources)

    def _read_catalog(self, db: sqlite3.Connection) -> Catalog:
        """The catalog of the last snapshot with what has changed since, or all of it: a changed document has a new
        row."""
        before = self._snapshot.catalog if self._snapshot is not None else self._nothing(self._today())
        there = {row for (row,) in db.execute("SELECT row FROM documents")}
        news = sorted(there.difference(before.by_row))
        few = len(news) <= _FEW
        added: list[Head] = []
        asked = "SELECT row, id, source, head FROM documents WHERE row >= ?"
        for row, document, source, text in db.execute(asked, (news[0],)) if news and not few else ():
            if row in there and row not in before.by_row:
                added.append(head_of(row, document, source, text))
        for row in news if few else ():
            if (found := db.execute(f"{asked} LIMIT 1", (row,)).fetchone()) is not None and found[0] == row:
                added.append(head_of(*found))
        return before.after(added=added, gone=[row for row in before.by_row if row not in there], today=self._today())

    def any_document(self) -> bool:
        """True when there is at least one document."""
        return self._stored().any_document()

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
        look = self._look(principal)
        catalog = look.catalog
        chosen = choose(catalog, source=source, filters=filters)
        if chosen.notes:
            return SearchResult(hits=(), notes=chosen.notes)
        legs = ranking.legs_of(look, query, chosen, embed=self.embed, source=source, documents=documents)
        terms = legs.terms
        if k < 1 or (legs.words is None and legs.vector is None):
            notes = () if query.strip() else ("the query is empty",)
            return SearchResult(hits=(), notes=notes)
        ranked = ranking.collect(
            look,
            legs,
            weights=self._weights,
            k=k,
            per_document=max(1, per_document),
            only_current=only_current and bool(catalog.hidden),
        )
        found: list[SearchHit] = []
        matchers: dict[str, Matcher[float]] = {}
        weights = {form: weight * RELATED_BOOST for term, weight in terms for form in term.related}
        weights |= {form: weight for term, weight in terms for form in (*term.stems, term.exact)}
        for score, head, ordinal, copies in ranked.taken:
            stored = self._stored().load(head.row)
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
                    title=hit_title(head.title, stored.section_title(section)),
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
        return SearchResult(hits=tuple(found), hidden_superseded=len(ranked.gone))

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
        look = self._look(principal)
        catalog = look.catalog
        chosen = choose(catalog, source=source, filters=filters)
        legs = ranking.legs_of(look, query, chosen, embed=self.embed, source=source, documents=documents)
        ranked = Ranking(judged=[])
        if not chosen.notes and k > 0 and (legs.words is not None or legs.vector is not None):
            ranked = ranking.collect(
                look,
                legs,
                weights=self._weights,
                k=k,
                per_document=max(1, per_document),
                only_current=only_current and bool(catalog.hidden),
                judged=True,
            )
        considered: list[Considered] = []
        for candidate, verdict in ranked.judged:
            head = catalog.by_row[candidate.key >> _ORDINAL_BITS]
            ordinal = candidate.key & ORDINAL
            stored = self._stored().load(head.row)
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

    def trail(
        self,
        *,
        principal: Principal,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        only_current: bool = True,
    ) -> EmbeddedTrail | None:
        """What the chase asks; None when an unknown filter means that nothing can match."""
        look = self._look(principal)
        catalog = look.catalog
        chosen = choose(catalog, source=source, filters=filters)
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

        def called(keys: Sequence[int]) -> dict[int, list[tuple[int, float]]]:
            found = self._stored().called(keys)
            kept = {key: [pair for pair in pairs if pair[0] in by_row] for key, pairs in found.items()}
            return {key: pairs for key, pairs in kept.items() if pairs}

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
            schema=SCHEMA,
            marks=[mark for mark in chosen.marks if mark != everywhere(catalog)],
            ordinal_bits=_ORDINAL_BITS,
            passages=catalog.passages,
            language=self._language_of(None),
            head=head,
            row=lambda document: catalog.heads[document].row if document in catalog.heads else None,
            inside=inside,
            load=self._stored().load,
            wordings=self._stored().wordings,
            called=called,
            exact=look.exact,
            embed=self.embed,
            nearest=nearest,
            cosines=cosines,
        )

    def _trail_head(
        self, catalog: Catalog, row: int, chosen: Choice, *, source: str | None, only_current: bool
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

    def embed(self, texts: Sequence[str]) -> Vectors | None:
        """Queries as vectors of this index; None when it has none."""
        view = self._look(OWNER).view
        if self._embedder is None or view is None:
            return None
        try:
            made = self._embedder.embed(texts, kind="query")
        except EmbeddingFailed as error:
            self._warn(f"{error}: words alone were searched")
            return None
        if made.shape[1] != view.state.dimensions:
            self._warn(
                f"{self._embedder.name!r} gives vectors of {made.shape[1]} numbers, and those of this index have"
                f" {view.state.dimensions}: words alone are searched until {REBUILD}"
            )
            return None
        return made

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
        look = self._look(principal)
        chosen = choose(look.catalog, source=source, filters=filters)
        if look.view is None or chosen.notes:
            return ()
        mask = ranking.mask_of(look, chosen, source=source, only_current=only_current, documents=documents)
        found: list[Near] = []
        for key, cosine in look.view.nearest(vector, k=k, mask=mask):
            head = look.catalog.by_row[key >> _ORDINAL_BITS]
            found.append(Near(document=head.id, ordinal=key & ORDINAL, cosine=cosine))
        return found

    def cosines(self, vectors: Vectors, passages: Sequence[tuple[str, int]], *, principal: Principal) -> Vectors:
        """(rows of `vectors`, passages): how near each passage, given as (document, ordinal), is to each row."""
        look = self._look(principal)
        if look.view is None:
            return np.zeros((len(vectors), len(passages)), dtype=np.float32)
        heads = look.catalog.heads
        rows = (heads[document].row if document in heads else 0 for document, _ in passages)
        keys = [(row << _ORDINAL_BITS) | ordinal for row, (_, ordinal) in zip(rows, passages, strict=True)]
        return look.view.cosines(vectors, keys)

    def document(self, document: str, *, principal: Principal) -> Document | None:
        """The whole document by its full id, or None."""
        head = self._look(principal).catalog.heads.get(document)
        stored = self._stored().load(head.row) if head is not None else None
        return stored.document if stored is not None else None

    def chunks(self, document: str, *, principal: Principal) -> tuple[Chunk, ...]:
        """The chunks of one document, in order; empty when there is no such document."""
        head = self._look(principal).catalog.heads.get(document)
        stored = self._stored().load(head.row) if head is not None else None
        return stored.chunks if stored is not None else ()

    def info(self, document: str, *, principal: Principal) -> DocumentInfo | None:
        catalog = self._look(principal).catalog
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
        catalog = self._look(principal).catalog
        chosen = choose(catalog, source=source, filters=filters)
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
        return list(self._look(principal).catalog.heads)

    def paths(self, *, principal: Principal) -> Mapping[str, str]:
        """Document id to its path with extension, prefixed by source: 'policies/a/b.md'."""
        return {h.id: f"{h.source}/{h.path}" for h in self._look(principal).catalog.heads.values()}

    def resolve(self, name: str, *, principal: Principal) -> str:
        """The full id of whatever names a document. Raises UnknownDocument with the candidates or the nearest ids."""
        catalog = self._look(principal).catalog
        found = catalog.names.find(name)
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(repr(d) for d in found[:5]) + (" …" if len(found) > 5 else "")
            raise UnknownDocument(f"{name!r} could be any of {len(found)} documents: {shown}; use a full id")
        near = ranking.nearest_documents(name, catalog)
        hint = f"; nearest: {', '.join(repr(d) for d in near)}" if near else "; a search gives ids"
        raise UnknownDocument(f"no document is called {name!r}{hint}")

    def values(self, source: str, key: str, *, principal: Principal) -> Sequence[str]:
        """Known values of a metadata key, most frequent first; empty for an unknown key."""
        catalog = self._look(principal).catalog
        known = catalog.keys.get(source, {}).get(fold_value(key))
        return [] if known is None else list(catalog.whole_values(source, known))

    def lexicon(self, *, principal: Principal) -> EmbeddedLexicon:
        look = self._look(principal)
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


def embedded_text(document: Document, chunk: Chunk) -> str:
    """What of a passage goes into its vector: title and section path, then its text."""
    context = chunk.context.removeprefix(document.title)
    return f"{document.title}\n{context}\n{chunk.text}"


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

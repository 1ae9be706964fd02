"""Keeps the vectors of passages in files of their own and scans them; whose they are, and who may see them, it ignores.

On disk (`folder`, one generation of three files that only grow, all derived from the stored documents):

    <generation>.i8      a row of int8 for each vector
    <generation>.keys    the passage that it is of (row of the document and ordinal in one number), and the row's scale
    <generation>.bits    the signs of the vector's numbers, one bit each: what a scan of many looks at first

How many rows hold, and the checksum of them, stands in `documents.db` (`State`): rows beyond are left of a killed
writer, mean nothing, and are cut off by the next one.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ..embedding import Embedder, Vectors
from ..errors import IndexCorrupt

Keys = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

ORDINAL_BITS = 24
EXACT = 30_000
"""Up to so many vectors a scan looks at every number of each; above, first at the signs."""
_RESCORED = 1200
"""So many of the nearest by sign are looked at in full."""
_BLOCK = 1024
_AT_HAND = 16_000_000
"""Numbers that are held in memory unpacked."""
_KEY = np.dtype([("key", "<u8"), ("scale", "<f4")])
_REBUILD = "run `citehound index --rebuild`"


@dataclass(frozen=True, kw_only=True)
class State:
    """What `documents.db` says of the vectors."""

    name: str
    dimensions: int
    version: str
    generation: str
    count: int = 0
    checksums: tuple[int, int, int] = (0, 0, 0)
    """CRC-32 of the rows of each file, in the order of `_ENDINGS`."""

    def fits(self, embedder: Embedder) -> bool:
        same = (self.name, self.version) == (embedder.name, embedder.version)
        return same and embedder.dimensions in (0, self.dimensions)

    def packed(self) -> str:
        return json.dumps(self.__dict__)

    @classmethod
    def unpacked(cls, text: str) -> State:
        loaded = cast("dict[str, Any]", json.loads(text))
        loaded["checksums"] = tuple(loaded["checksums"])
        return cls(**loaded)


_ENDINGS = ("i8", "keys", "bits")


def fresh(embedder: Embedder, dimensions: int) -> State:
    """The state of no vectors at all, by this embedder."""
    return State(
        name=embedder.name,
        dimensions=dimensions,
        version=embedder.version,
        generation=secrets.token_hex(4),
    )


def state_of(db: sqlite3.Connection) -> State | None:
    found = db.execute("SELECT value FROM meta WHERE key = 'vectors'").fetchone()
    return None if found is None else State.unpacked(found[0])


def _sizes(state: State) -> tuple[int, int, int]:
    """Bytes of one row in each file."""
    return state.dimensions, _KEY.itemsize, _words(state.dimensions) * 8


def _words(dimensions: int) -> int:
    return (dimensions + 63) // 64


def paths(folder: Path, state: State) -> tuple[Path, Path, Path]:
    data, keys, bits = (folder / f"{state.generation}.{ending}" for ending in _ENDINGS)
    return data, keys, bits


def append(folder: Path, state: State, keys: Sequence[int], vectors: Vectors) -> State:
    """Writes rows behind those that hold, and gives the state in which they hold too; the caller makes it so.

    What was in the files beyond `state.count` goes.
    """
    if not len(keys):
        return state
    scales = np.abs(vectors).max(axis=1) / 127.0
    packed = np.rint(vectors / np.where(scales > 0, scales, 1.0)[:, None]).astype(np.int8)
    about = np.zeros(len(keys), dtype=_KEY)
    about["key"] = np.asarray(keys, dtype=np.uint64)
    about["scale"] = scales
    return _write(folder, state, len(keys), (packed.tobytes(), about.tobytes(), _signs(vectors).tobytes()))


def rewritten(folder: Path, view: View) -> State:
    """A new generation that has the vectors of the documents that are there, and the state in which it holds."""
    state = replace(view.state, generation=secrets.token_hex(4), count=0, checksums=(0, 0, 0))
    for data, about, bits in view.live_blocks():
        state = _write(folder, state, len(data), (data.tobytes(), about.tobytes(), bits.tobytes()))
    return state


def _write(folder: Path, state: State, count: int, blocks: tuple[bytes, bytes, bytes]) -> State:
    folder.mkdir(exist_ok=True)
    checksums: list[int] = []
    for path, size, block, before in zip(paths(folder, state), _sizes(state), blocks, state.checksums, strict=True):
        with open(path, "r+b" if path.exists() else "w+b") as file:
            file.truncate(state.count * size)
            file.seek(state.count * size)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
        checksums.append(zlib.crc32(block, before))
    return replace(state, count=state.count + count, checksums=cast("tuple[int, int, int]", tuple(checksums)))


def verify(folder: Path, state: State) -> None:
    """Raises IndexCorrupt unless the rows that hold are what was written."""
    for path, size, checksum in zip(paths(folder, state), _sizes(state), state.checksums, strict=True):
        at, left = 0, state.count * size
        try:
            if left:
                with open(path, "rb") as file:
                    while left and (block := file.read(min(left, 1 << 22))):
                        at, left = zlib.crc32(block, at), left - len(block)
        except OSError as error:
            raise IndexCorrupt(f"{str(path)!r} cannot be read; {_REBUILD}") from error
        if left or at != checksum:
            raise IndexCorrupt(f"the checksum of {str(path)!r} does not hold; {_REBUILD}")


def sweep(folder: Path, state: State | None) -> None:
    """Removes the files of other generations, and the rows that do not hold."""
    if not folder.exists():
        return
    mine = dict(zip(paths(folder, state), _sizes(state), strict=True)) if state is not None else {}
    for path in folder.iterdir():
        if path not in mine:
            path.unlink(missing_ok=True)
        elif state is not None and path.stat().st_size > state.count * mine[path]:
            os.truncate(path, state.count * mine[path])


def _signs(vectors: Vectors) -> npt.NDArray[np.uint64]:
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(vectors), _words(vectors.shape[1]) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view(np.uint64)


class View:
    """The vectors that hold at one moment, mapped into memory. Safe to use from several threads."""

    def __init__(self, folder: Path, state: State, *, live: Iterable[int]) -> None:
        """`live` are the rows of the documents that are there; vectors of others are never given. Raises OSError."""
        self.state = state
        count, size = state.count, state.dimensions
        data, about, bits = paths(folder, state)
        if count:
            self._data = np.memmap(data, dtype=np.int8, mode="r", shape=(count, size))
            known = np.memmap(about, dtype=_KEY, mode="r", shape=(count,))
            self._keys: Keys = known["key"].astype(np.uint64)
            self._scales: Vectors = known["scale"].astype(np.float32)
            self._bits = np.memmap(bits, dtype=np.uint64, mode="r", shape=(count, _words(size)))
        else:
            self._data = np.zeros((0, size), dtype=np.int8)
            self._keys = np.zeros(0, dtype=np.uint64)
            self._scales = np.zeros(0, dtype=np.float32)
            self._bits = np.zeros((0, _words(size)), dtype=np.uint64)
        self.rows = (self._keys >> np.uint64(ORDINAL_BITS)).astype(np.int64)
        """The document's row of each vector."""
        self._highest = int(self.rows.max(initial=0))
        self._live: Mask = self.among(live)
        self._count = int(np.count_nonzero(self._live))
        self._order: npt.NDArray[np.int64] | None = None
        self._unpacked: Vectors | None = None

    @property
    def count(self) -> int:
        """How many of the vectors are of documents that are there."""
        return self._count

    @property
    def dead(self) -> int:
        return len(self._keys) - self.count

    def live_blocks(self) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]]:
        """Rows of the three files, in order, without those of documents that are gone."""
        places = np.flatnonzero(self._live)
        for at in range(0, len(places), 65_536):
            chosen = places[at : at + 65_536]
            about = np.zeros(len(chosen), dtype=_KEY)
            about["key"], about["scale"] = self._keys[chosen], self._scales[chosen]
            yield self._data[chosen], about, self._bits[chosen]

    def among(self, rows: Iterable[int]) -> Mask:
        """Which vectors are of these documents."""
        meant = np.fromiter(rows, dtype=np.int64)
        table = np.zeros(self._highest + 1, dtype=np.bool_)
        table[meant[(meant >= 0) & (meant <= self._highest)]] = True
        return table[self.rows]

    def where(self, table: Mask) -> Mask:
        """Which vectors are of the documents that a table by row says."""
        if len(table) <= self._highest:
            table = np.concatenate((table, np.zeros(self._highest + 1 - len(table), dtype=np.bool_)))
        return table[self.rows]

    def nearest(self, vector: Vectors, *, k: int, mask: Mask | None = None) -> list[tuple[int, float]]:
        """(key, cosine) of the `k` nearest, best first, equal ones by key; `mask` says which vectors count."""
        wanted = self._live if mask is None else self._live & mask
        places = np.flatnonzero(wanted)
        if k < 1 or not len(places) or not np.any(vector):
            return []
        if len(places) > max(EXACT, _RESCORED * 2):
            places = self._nearest_by_sign(vector, wanted, places, most=max(_RESCORED, k * 10))
        whole = len(places) == len(self._keys)
        scores = self._scores(vector, None if whole else places)
        if len(places) > k:
            best = np.argpartition(-scores, k - 1)[:k]
            places, scores = places[best], scores[best]
        order = np.lexsort((self._keys[places], -np.round(scores, 5)))
        return [(int(self._keys[places[at]]), float(scores[at])) for at in order]

    def cosines(self, vectors: Vectors, keys: Sequence[int]) -> Vectors:
        """(rows of `vectors`, keys); 0 where a passage has no vector."""
        out = np.zeros((len(vectors), len(keys)), dtype=np.float32)
        places = self._find(keys)
        known = np.flatnonzero(places >= 0)
        if len(known):
            at = places[known]
            rows = self._data[at].astype(np.float32) * self._scales[at, None]
            out[:, known] = vectors @ rows.T
        return out

    def _find(self, keys: Sequence[int]) -> npt.NDArray[np.int64]:
        """Places of keys, -1 for one that is not there."""
        if self._order is None:
            risen = bool(np.all(self._keys[1:] > self._keys[:-1]))
            self._order = np.arange(len(self._keys)) if risen else np.argsort(self._keys, kind="stable")
        asked = np.asarray(keys, dtype=np.uint64)
        if not len(self._keys):
            return np.full(len(asked), -1, dtype=np.int64)
        found = np.searchsorted(self._keys, asked, sorter=self._order)
        places = self._order[np.minimum(found, len(self._order) - 1)]
        return np.where(self._keys[places] == asked, places, -1)

    def _scores(self, vector: Vectors, places: npt.NDArray[np.int64] | None) -> Vectors:
        if self._unpacked is None and self._data.size <= _AT_HAND:
            self._unpacked = self._data.astype(np.float32)
        query = vector.astype(np.float32)
        rows = self._data if self._unpacked is None else self._unpacked
        size = len(self._keys) if places is None else len(places)
        # In blocks that stay in the cache, and not by a matrix product: that would start threads, which cost more here.
        parts: list[Vectors] = []
        for at in range(0, size, _BLOCK):
            block = rows[at : at + _BLOCK] if places is None else rows[places[at : at + _BLOCK]]
            parts.append(np.vecdot(block.astype(np.float32, copy=False), query))
        return np.concatenate(parts) * (self._scales if places is None else self._scales[places])

    def _nearest_by_sign(
        self, vector: Vectors, wanted: Mask, places: npt.NDArray[np.int64], *, most: int
    ) -> npt.NDArray[np.int64]:
        signs = _signs(vector[None, :])[0]
        all_of_them = len(places) * 2 > len(wanted)
        bits = self._bits if all_of_them else self._bits[places]
        apart = np.zeros(len(bits), dtype=np.uint16)
        for word in range(bits.shape[1]):
            apart += np.bitwise_count(bits[:, word] ^ signs[word])
        if all_of_them:
            apart = np.where(wanted, apart, np.uint16(65535))
            places = np.arange(len(wanted))
        if len(places) <= most:
            return places
        furthest = np.partition(apart, most - 1)[most - 1]
        # Of equal ones the first count, so that vectors that do not, change nothing.
        nearer, equal = np.flatnonzero(apart < furthest), np.flatnonzero(apart == furthest)
        chosen = places[np.sort(np.concatenate((nearer, equal[: most - len(nearer)])))]
        return chosen[wanted[chosen]]

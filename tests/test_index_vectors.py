"""The files of vectors: they hold as far as the record says, a scan finds what is nearest, nothing is mixed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from citehound.embedding import Kind, Vectors, unit
from citehound.errors import IndexCorrupt
from citehound.index import vectors
from citehound.index.vectors import ORDINAL_BITS, State, View


def random(count: int, *, size: int = 64, seed: int = 0) -> Vectors:
    return unit(np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32))


class Fake:
    def __init__(self, *, name: str = "fake", dimensions: int = 64, version: str = "1") -> None:
        self.name, self.dimensions, self.version = name, dimensions, version

    def embed(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        return random(len(texts), size=self.dimensions)


def keys(count: int, *, first: int = 1) -> list[int]:
    return [row << ORDINAL_BITS for row in range(first, first + count)]


def view(folder: Path, state: State, *, rows: int) -> View:
    return View(folder, state, live=range(1, rows + 1))


def test_rows_come_back_as_they_were_written_but_for_rounding(tmp_path: Path) -> None:
    made = random(100)
    state = vectors.append(tmp_path / "v", vectors.fresh(Fake(), 64), keys(60), made[:60])
    state = vectors.append(tmp_path / "v", state, keys(40, first=61), made[60:])
    vectors.verify(tmp_path / "v", state)
    found = view(tmp_path / "v", state, rows=100).cosines(made[7:8], keys(100))
    assert state.count == 100
    assert np.allclose(found[0], made @ made[7], atol=0.02)
    assert found[0].argmax() == 7


def test_the_nearest_are_those_of_the_exact_product(tmp_path: Path) -> None:
    made = random(500)
    state = vectors.append(tmp_path, vectors.fresh(Fake(), 64), keys(500), made)
    query = random(1, seed=5)[0]
    found = [key >> ORDINAL_BITS for key, _ in view(tmp_path, state, rows=500).nearest(query, k=10)]
    exact = [int(at) + 1 for at in np.argsort(-(made @ query))[:10]]
    assert len(set(found) & set(exact)) >= 9


def test_many_are_looked_at_by_sign_first_and_the_nearest_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "EXACT", 500)
    monkeypatch.setattr(vectors, "_RESCORED", 200)
    made = random(3000, size=128)
    state = vectors.append(tmp_path, vectors.fresh(Fake(dimensions=128), 128), keys(3000), made)
    opened = view(tmp_path, state, rows=3000)
    query = unit(made[41:42] + 0.5 * random(1, size=128, seed=9))[0]
    assert opened.nearest(query, k=1)[0][0] >> ORDINAL_BITS == 42
    some = opened.among(range(1000, 2900))
    assert all(1000 <= key >> ORDINAL_BITS < 2900 for key, _ in opened.nearest(query, k=5, mask=some))


def test_a_mask_and_what_is_gone_leave_vectors_out(tmp_path: Path) -> None:
    made = random(50)
    state = vectors.append(tmp_path, vectors.fresh(Fake(), 64), keys(50), made)
    opened = View(tmp_path, state, live=[row for row in range(1, 51) if row != 8])
    best = [key >> ORDINAL_BITS for key, _ in opened.nearest(made[7], k=50)]
    assert 8 not in best and len(best) == 49
    masked = opened.nearest(made[7], k=50, mask=opened.among([3, 4, 8]))
    assert {key >> ORDINAL_BITS for key, _ in masked} == {3, 4}


def test_a_text_without_a_vector_is_near_nothing(tmp_path: Path) -> None:
    made = random(3)
    made[1] = 0
    state = vectors.append(tmp_path, vectors.fresh(Fake(), 64), keys(3), made)
    opened = view(tmp_path, state, rows=3)
    assert opened.cosines(made[:1], [*keys(3), 99 << ORDINAL_BITS])[0][[1, 3]].tolist() == [0, 0]
    assert opened.nearest(made[1], k=3) == []


def test_rows_that_were_never_made_to_hold_mean_nothing(tmp_path: Path) -> None:
    made = random(30)
    state = vectors.append(tmp_path, vectors.fresh(Fake(), 64), keys(10), made[:10])
    vectors.append(tmp_path, state, keys(10, first=11), made[10:20])  # the writer is killed before it says so
    assert view(tmp_path, state, rows=99).count == 10
    state = vectors.append(tmp_path, state, keys(10, first=21), made[20:])
    vectors.verify(tmp_path, state)
    assert np.allclose(view(tmp_path, state, rows=99).cosines(made[25:26], [26 << ORDINAL_BITS]), 1, atol=0.02)


@pytest.mark.parametrize("ending", ["i8", "keys", "bits"])
def test_a_changed_byte_is_found(tmp_path: Path, ending: str) -> None:
    state = vectors.append(tmp_path, vectors.fresh(Fake(), 64), keys(10), random(10))
    path = next(tmp_path.glob(f"*.{ending}"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(IndexCorrupt, match="checksum"):
        vectors.verify(tmp_path, state)


def test_writing_anew_drops_what_is_gone_and_sweeping_removes_the_old_files(tmp_path: Path) -> None:
    made = random(40)
    state = vectors.append(tmp_path, vectors.fresh(Fake(), 64), keys(40), made)
    old = View(tmp_path, state, live=range(1, 11))
    assert (old.count, old.dead) == (10, 30)
    new = vectors.rewritten(tmp_path, old)
    vectors.sweep(tmp_path, new)
    vectors.verify(tmp_path, new)
    assert new.count == 10 and len(list(tmp_path.iterdir())) == 3
    assert old.nearest(made[3], k=1)[0][0] == view(tmp_path, new, rows=10).nearest(made[3], k=1)[0][0] == keys(4)[-1]


@pytest.mark.parametrize(
    ("embedder", "fits"),
    [
        (Fake(), True),
        (Fake(dimensions=0), True),
        (Fake(dimensions=32), False),
        (Fake(version="2"), False),
        (Fake(name="other"), False),
    ],
)
def test_vectors_fit_their_own_embedder_only(embedder: Fake, fits: bool) -> None:
    state = State.unpacked(vectors.fresh(Fake(), 64).packed())
    assert state.fits(embedder) is fits

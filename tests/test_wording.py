"""Words as the checks compare them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from citehound import wording

WORDS = [
    f"{head}{tail}" for head in ("notif", "report", "terminat", "oblig") for tail in ("ication", "ations", "ingly")
]


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_stems_are_the_same_from_many_threads_as_from_one(switching: None) -> None:
    words = [f"{word}{letter}{end}" for word in WORDS for letter in "abcdefgh" for end in ("ational", "fulness", "ies")]
    alone = [wording._stem.__wrapped__(word, "en") for word in words]  # type: ignore[attr-defined]

    def stem_all(_: int) -> list[tuple[str, ...]]:
        return [wording._stem.__wrapped__(word, "en") for word in words]  # type: ignore[attr-defined]

    with ThreadPoolExecutor(8) as pool:
        assert all(found == alone for found in pool.map(stem_all, range(8)))

"""Embedders: what ships, what a provider or a function gives, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from citehound.embedding import StaticEmbedder, WordPieces, open_embedder, static
from citehound.errors import ConfigError, EmbeddingFailed


def lengths(texts: list[str]) -> list[float]:
    return [float(round(length, 4)) for length in np.linalg.norm(static().embed(texts), axis=1)]


def test_a_text_is_a_row_of_length_one_and_an_empty_one_of_zeros() -> None:
    assert lengths(["The supplier reports incidents.", "", "\u2603\u2603"]) == [1.0, 0.0, 0.0]


def test_texts_of_like_meaning_are_nearer_than_others() -> None:
    query, like, other = static().embed(
        ["How is money paid back to customers?", "Refunds are issued to the buyer.", "The server encrypts its disks."]
    )
    assert float(query @ like) > float(query @ other) + 0.1


def test_a_text_has_the_same_vector_in_any_company() -> None:
    alone = static().embed(["annual due diligence"])
    among = static().embed(["first text", "annual due diligence", *["another"] * 300])
    assert np.allclose(alone[0], among[1], atol=1e-6)


def test_case_and_accents_do_not_matter() -> None:
    one, two = static().embed(["CAFÉ Contract", "cafe contract"])
    assert np.allclose(one, two)


def test_words_are_cut_into_the_longest_known_pieces() -> None:
    pieces = WordPieces(["un", "##afford", "##able", "##a", ",", "\u4f9b"])
    assert pieces.ids("Unaffordable, un") == [0, 1, 2, 4, 0]
    assert pieces.ids("\u4f9bun") == [5, 0]
    assert pieces.ids("unx") == []


def test_what_ships_is_small_and_has_licence_and_notice() -> None:
    folder = Path(str(files("citehound"))) / "static"
    assert sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".npy", ".json", ".txt")) < 8_000_000
    assert "Apache License" in (folder / "LICENSE").read_text("utf-8")
    assert "all-MiniLM-L6-v2" in (folder / "NOTICE").read_text("utf-8")


def test_the_version_is_a_digest_of_what_ships() -> None:
    folder = Path(str(files("citehound"))) / "static"
    packed, scales = np.load(folder / "vectors.npy"), np.load(folder / "scales.npy")
    vocabulary = (folder / "vocabulary.txt").read_bytes()
    digest = hashlib.sha256(packed.tobytes() + scales.tobytes() + vocabulary).hexdigest()
    assert static().version == digest[:12]
    assert StaticEmbedder(folder).dimensions == packed.shape[1]


def test_help_does_not_load_what_vectors_need() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from citehound.cli import cli;"
        "CliRunner().invoke(cli, ['--help']); import citehound; print('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# others


class Letters:
    """Counts letters; an embedder that is a callable object with a version."""

    version = "3"

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) for letter in "abc"] for text in texts]


letters = Letters()


def wrong_count(texts: list[str]) -> list[list[float]]:
    return [[1.0]]


def broken(texts: list[str]) -> list[list[float]]:
    raise RuntimeError("no\nconnection")


NOT_CALLABLE = 3


def test_none_is_no_embedder() -> None:
    assert open_embedder("none") is None


def test_a_function_by_its_dotted_path() -> None:
    embedder = open_embedder("test_embedding:letters")
    assert embedder is not None
    rows = embedder.embed(["aab", "ccc"])
    assert (embedder.name, embedder.version, embedder.dimensions) == ("test_embedding:letters", "3", 3)
    assert np.allclose(rows, [[2 / 5**0.5, 1 / 5**0.5, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert", "is not known"),
        ("no.such.module:f", "cannot be loaded"),
        ("test_embedding:nothing", "cannot be loaded"),
        ("test_embedding:NOT_CALLABLE", "is not a function"),
        ("embedder_that_breaks:f", "cannot be loaded .no room"),
    ],
)
def test_a_name_that_is_no_embedder_is_refused(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "embedder_that_breaks.py").write_text("raise OSError('no room')", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ConfigError, match=words):
        open_embedder(name)


@pytest.mark.parametrize(("name", "words"), [("wrong_count", "for 2 texts"), ("broken", "no connection")])
def test_an_embedder_that_fails_says_so_in_one_line(name: str, words: str) -> None:
    embedder = open_embedder(f"test_embedding:{name}")
    assert embedder is not None
    with pytest.raises(EmbeddingFailed, match=words) as failed:
        embedder.embed(["a", "b"])
    assert "\n" not in str(failed.value)


def test_a_function_that_changes_its_size_fails() -> None:
    embedder = open_embedder("test_embedding:letters", dimensions=7)
    assert embedder is not None
    with pytest.raises(EmbeddingFailed, match="3 numbers, where 7"):
        embedder.embed(["a"])


def test_a_provider_is_asked_through_its_client_also_within_a_running_loop() -> None:
    embedder = open_embedder("test:small")
    assert embedder is not None

    async def ask() -> tuple[int, int]:
        return embedder.embed(["a", "b"]).shape[0], embedder.embed(["q"], kind="query").shape[0]

    assert asyncio.run(ask()) == (2, 1)
    assert embedder.dimensions > 0

"""Turns texts into vectors: the static embeddings that ship with citehound, and others by name; it stores none.

A vector means something only beside others of the same embedder: its `name`, `dimensions` and `version` go wherever
vectors are kept.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .errors import ConfigError

Vectors = npt.NDArray[np.float32]
"""Rows of length 1 (or 0, where a text has nothing that the embedder knows)."""
Kind = Literal["query", "passage"]

STATIC = "static"
NONE = "none"
_MOST_CHARS = 20_000
_MOST_WORDS = 300_000
_BLOCK = 256


@runtime_checkable
class Embedder(Protocol):
    """What makes vectors. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """As in the configuration."""
        ...

    @property
    def dimensions(self) -> int: ...

    @property
    def version(self) -> str:
        """Changes whenever the same text may give another vector."""
        ...

    def embed(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """One row of length 1 for each text."""
        ...


def open_embedder(name: str = STATIC, *, base_url: str | None = None, dimensions: int | None = None) -> Embedder | None:
    """The embedder of that name; None for 'none'. Raises ConfigError."""
    if name == NONE:
        return None
    if name == STATIC:
        return static()
    raise ConfigError(f"index.embedding.name {name!r} is not known; use 'static' or 'none'")


@lru_cache(maxsize=1)
def static() -> StaticEmbedder:
    """The embeddings that ship with citehound; loaded once, in about 30 ms."""
    return StaticEmbedder(Path(__file__).parent / "static")


class StaticEmbedder:
    """The mean of a fixed vector for each piece of a word (model2vec); made by scripts/distill_embeddings.py."""

    def __init__(self, folder: Path) -> None:
        about: dict[str, Any] = json.loads((folder / "static.json").read_text("utf-8"))
        packed = np.load(folder / "vectors.npy")
        scales = np.load(folder / "scales.npy").astype(np.float32)
        self._matrix: Vectors = packed.astype(np.float32) * scales[:, None]
        self._pieces = WordPieces((folder / "vocabulary.txt").read_text("utf-8").split("\n"))
        self._version = str(about["version"])

    @property
    def name(self) -> str:
        return STATIC

    @property
    def dimensions(self) -> int:
        return int(self._matrix.shape[1])

    @property
    def version(self) -> str:
        return self._version

    def embed(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        out = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for at in range(0, len(texts), _BLOCK):
            rows = [self._pieces.ids(text) for text in texts[at : at + _BLOCK]]
            filled = [number for number, row in enumerate(rows) if row]
            if not filled:
                continue
            flat = np.fromiter((i for number in filled for i in rows[number]), dtype=np.int32)
            starts = np.cumsum([0, *(len(rows[number]) for number in filled[:-1])])
            out[[at + number for number in filled]] = np.add.reduceat(self._matrix[flat], starts, axis=0)
        return unit(out)


def unit(vectors: Vectors) -> Vectors:
    """Rows scaled to length 1; a row of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")
_CJK = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f])")


class WordPieces:
    """BERT's uncased WordPiece: words and punctuation in lower case without accents, longest known piece first."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._known = {piece: at for at, piece in enumerate(vocabulary)}
        self._words: dict[str, tuple[int, ...]] = {}

    def ids(self, text: str) -> list[int]:
        """The numbers of the pieces; what is not in the vocabulary has none."""
        text = text[:_MOST_CHARS].lower()
        if not text.isascii():
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
            text = _CJK.sub(r" \1 ", text)
        words = self._words
        found: list[int] = []
        for word in _WORD.findall(text):
            known = words.get(word)
            found.extend(self._learn(word) if known is None else known)
        return found

    def _learn(self, word: str) -> tuple[int, ...]:
        if len(self._words) > _MOST_WORDS:
            self._words.clear()
        ids = self._split(word)
        self._words[word] = ids
        return ids

    def _split(self, word: str) -> tuple[int, ...]:
        if len(word) > 100:
            return ()
        ids: list[int] = []
        at = 0
        while at < len(word):
            for end in range(len(word), at, -1):
                piece = self._known.get(word[at:end] if at == 0 else "##" + word[at:end])
                if piece is not None:
                    ids.append(piece)
                    at = end
                    break
            else:
                return ()
        return tuple(ids)

"""Turns texts into vectors: the static embeddings that ship with citehound, and others by name; it stores none.

A vector means something only beside others of the same embedder: its `name`, `dimensions` and `version` go wherever
vectors are kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from .errors import CitehoundError, ConfigError, EmbeddingFailed

if TYPE_CHECKING:
    from pydantic_ai.embeddings import Embedder as Client

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
    def dimensions(self) -> int:
        """0 means: not known before the first vector."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same text may give another vector."""
        ...

    def embed(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        """One row of length 1 for each text. Raises EmbeddingFailed."""
        ...


def open_embedder(name: str = STATIC, *, base_url: str | None = None, dimensions: int | None = None) -> Embedder | None:
    """The embedder of that name; None for 'none'. Raises ConfigError."""
    if name == NONE:
        return None
    if name == STATIC:
        return static()
    prefix, colon, rest = name.partition(":")
    if not colon or not rest:
        raise ConfigError(
            f"index.embedding.name {name!r} is not known; use 'static', 'none', provider:model or"
            " package.module:function"
        )
    if prefix == "fastembed":
        return _fastembed(name, rest)
    if prefix in PROVIDERS:
        return ProvidedEmbedder(name, base_url=base_url, dimensions=dimensions)
    return CalledEmbedder(name, _function(prefix, rest, name), dimensions=dimensions or 0)


PROVIDERS = (
    "openai",
    "voyage",
    "voyageai",
    "cohere",
    "google",
    "ollama",
    "mistral",
    "azure",
    "bedrock",
    "sentence-transformers",
    "huggingface",
    "together",
    "fireworks",
    "openrouter",
    "litellm",
    "test",
)
"""Whose embeddings are asked for through pydantic-ai."""
_AT_ONCE = 64


def _function(module: str, function: str, name: str) -> Callable[[list[str]], Any]:
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigError(
            f"index.embedding.name {name!r} cannot be loaded ({_one_line(error)}); it is package.module:function, or"
            f" one of {', '.join(PROVIDERS[:6])} … and a model"
        ) from error
    if not callable(found):
        raise ConfigError(f"index.embedding.name {name!r} is not a function; it takes texts and gives their vectors")
    return cast("Callable[[list[str]], Any]", found)


class CalledEmbedder:
    """A function of texts that gives a row of numbers for each; its attribute `version` says when it has changed."""

    def __init__(
        self,
        name: str,
        passages: Callable[[list[str]], Any],
        *,
        queries: Callable[[list[str]], Any] | None = None,
        dimensions: int = 0,
    ) -> None:
        self._name = name
        self._passages = passages
        self._queries = queries if queries is not None else passages
        self._dimensions = dimensions
        self._version = str(getattr(passages, "version", "1"))

    @property
    def name(self) -> str:
        return self._name

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def version(self) -> str:
        return self._version

    def embed(self, texts: Sequence[str], *, kind: Kind = "passage") -> Vectors:
        function = self._passages if kind == "passage" else self._queries
        rows: list[Vectors] = []
        for at in range(0, len(texts), _AT_ONCE):
            batch = [text[:_MOST_CHARS] for text in texts[at : at + _AT_ONCE]]
            try:
                made = function(batch)
            except CitehoundError:
                raise
            except Exception as error:
                raise EmbeddingFailed(f"{self._name!r} failed: {_one_line(error)}") from error
            rows.append(_checked(made, len(batch), name=self._name, dimensions=self._dimensions))
            self._dimensions = rows[-1].shape[1]
        return np.concatenate(rows) if rows else np.zeros((0, self._dimensions), dtype=np.float32)


class ProvidedEmbedder(CalledEmbedder):
    """An embeddings model of a provider, by pydantic-ai. Keys come from the environment, as for models."""

    def __init__(self, name: str, *, base_url: str | None = None, dimensions: int | None = None) -> None:
        self._base_url = base_url
        self._asked = dimensions
        self._client: Client | None = None
        self._recent: dict[str, list[float]] = {}
        super().__init__(name, self._embed_passages, queries=self._embed_queries, dimensions=dimensions or 0)
        place = f"@{hashlib.sha256(base_url.encode()).hexdigest()[:8]}" if base_url else ""
        self._version = f"{dimensions or 'default'}{place}"

    def _embed_passages(self, texts: list[str]) -> Any:
        return _wait(self._open().embed_documents(texts)).embeddings

    def _embed_queries(self, texts: list[str]) -> Any:
        new = [text for text in dict.fromkeys(texts) if text not in self._recent]
        if new:
            made = _wait(self._open().embed_query(new)).embeddings
            if len(self._recent) > 500:
                self._recent = {text: self._recent[text] for text in texts if text in self._recent}
            self._recent.update((text, list(vector)) for text, vector in zip(new, made, strict=True))
        return [self._recent[text] for text in texts]

    def _open(self) -> Client:
        if self._client is None:
            self._client = _client(self._name, base_url=self._base_url, dimensions=self._asked)
        return self._client


def _client(name: str, *, base_url: str | None, dimensions: int | None) -> Client:
    from pydantic_ai.embeddings import Embedder as Client
    from pydantic_ai.embeddings import EmbeddingSettings, infer_embedding_model
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

    provider_name, _, model = name.partition(":")
    if provider_name == "test":
        from pydantic_ai.embeddings import TestEmbeddingModel

        return Client(TestEmbeddingModel(model))
    if provider_name == "voyage":
        provider_name = "voyageai"
    if provider_name == "ollama" and base_url is None:
        base_url = os.environ.get("OLLAMA_BASE_URL", "http://localhost:11434/v1")

    def provider(name: str) -> Provider[Any]:
        if base_url is None:
            return infer_provider(name)
        made: Any = infer_provider_class(name)
        keyless = not any(variable.endswith("API_KEY") and name.upper() in variable for variable in os.environ)
        return made(base_url=base_url, api_key="none") if keyless else made(base_url=base_url)

    settings = EmbeddingSettings(dimensions=dimensions) if dimensions else EmbeddingSettings()
    try:
        return Client(infer_embedding_model(f"{provider_name}:{model}", provider_factory=provider), settings=settings)
    except (ImportError, UserError, ValueError, TypeError) as error:
        raise ConfigError(f"index.embedding.name {name!r} cannot be used: {_one_line(error)}") from error


def _fastembed(name: str, model: str) -> CalledEmbedder:
    try:
        fastembed: Any = importlib.import_module("fastembed")
    except ImportError as error:
        raise ConfigError(
            f"index.embedding.name {name!r} needs the package fastembed; run `pip install fastembed`"
        ) from error
    made: list[Any] = []

    def open_model() -> Any:
        if not made:
            made.append(fastembed.TextEmbedding(model))
        return made[0]

    return CalledEmbedder(
        name,
        lambda texts: list(open_model().passage_embed(texts)),
        queries=lambda texts: list(open_model().query_embed(texts)),
    )


def _checked(made: Any, count: int, *, name: str, dimensions: int) -> Vectors:
    """Rows of length 1, of one size. Raises EmbeddingFailed."""
    try:
        rows = np.asarray(made, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise EmbeddingFailed(f"{name!r} gave something else than rows of numbers") from error
    if rows.ndim != 2 or len(rows) != count or not rows.shape[1] or not np.isfinite(rows).all():
        raise EmbeddingFailed(f"{name!r} gave an array of shape {rows.shape} for {count} texts")
    if dimensions and rows.shape[1] != dimensions:
        raise EmbeddingFailed(f"{name!r} gave vectors of {rows.shape[1]} numbers, where {dimensions} were expected")
    return unit(rows)


def _one_line(error: BaseException) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]


_loop: list[asyncio.AbstractEventLoop] = []
_loop_lock = threading.Lock()
_SECONDS = 120.0


def _wait(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of async work, on a loop of its own: searches are sync, and may be made within a running loop."""
    with _loop_lock:
        if not _loop:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="citehound-embedding", daemon=True).start()
            _loop.append(loop)
    return asyncio.run_coroutine_threadsafe(work, _loop[0]).result(timeout=_SECONDS)


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

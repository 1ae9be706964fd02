"""A process that brings a folder into the index with tiny batches, until it is done or killed."""

from __future__ import annotations

import sys
from pathlib import Path

from citehound.config import Config, SourceConfig
from citehound.corpus import Corpus
from citehound.events import Event, Progress
from citehound.index import embedded


def main(root: str) -> None:
    embedded.BATCH_CHARS = 3000
    config = Config(root=Path(root), sources=(SourceConfig(name="docs", path=Path(root) / "docs"),))

    def show(event: Event) -> None:
        if isinstance(event, Progress):
            print(event.done, flush=True)

    with Corpus.open(config, write=True) as corpus:
        report = corpus.sync(emit=show)
    print("complete", report.count("failed"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

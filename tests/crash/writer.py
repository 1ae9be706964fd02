"""A process that writes an index until it is killed; prints each document after it was committed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from citehound.documents import Chunk, Document
from citehound.index import FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex

FILLER = "The supplier keeps the records of the bank and returns them when the contract ends. "


def entry(*, number: int, marker: str, paragraphs: int = 6) -> IndexEntry:
    parts = [f"{marker} paragraph {at}. {FILLER * 3}" for at in range(paragraphs)]
    text = "\n\n".join(parts)
    document = f"docs/d{number}"
    chunks: list[Chunk] = []
    at = 0
    for ordinal, part in enumerate(parts):
        chunks.append(Chunk(document=document, ordinal=ordinal, section=None, start=at, end=at + len(part), text=part))
        at += len(part) + 2
    return IndexEntry(
        document=Document(id=document, source="docs", path=f"d{number}.md", title=f"Document {number}", text=text),
        chunks=tuple(chunks),
        state=FileState(source="docs", path=f"d{number}.md", document=document, content_hash=marker, metadata_hash="0"),
    )


def main(folder: str, turn: str, documents: str) -> None:
    chance = random.Random(int(turn))
    with EmbeddedIndex(Path(folder), write=True) as index:
        print("open", flush=True)
        while True:
            batch = chance.sample(range(int(documents)), 7)
            for number in batch[1:]:
                index.add([entry(number=number, marker=f"m{turn}x{number}x{chance.randrange(10**9)}")])
            index.remove([f"docs/d{batch[0]}"])
            index.commit()
            states = index.files("docs")
            held = [states[f"d{number}.md"] for number in batch[1:]]
            print(f"gone docs/d{batch[0]}", *(f"{s.document}={s.content_hash}" for s in held), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

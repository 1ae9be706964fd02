"""The offline planner and the chase: it reads what leads reach, and keeps to its bounds."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from citehound.assistant import Assistant
from citehound.corpus import Corpus
from citehound.events import Event, Read
from small import opened

TOML = """
[model]
name = "offline"

[[sources]]
name = "people"
path = "people"
"""
FILES = {
    "people/film.md": "# The Silent Harbour\n\nThe Silent Harbour is a drama directed by Erna Voss.\n",
    "people/voss.md": "# Erna Voss\n\nErna Voss was born in Lund and worked as a painter before.\n",
    "people/lund.md": "# Lund\n\nLund is a town with a cathedral.\n",
    **{f"people/other-{n}.md": f"# Harbour {n}\n\nA harbour of number {n} with silent water.\n" for n in range(20)},
}


@pytest.fixture
def corpus(tmp_path: Path) -> Generator[Corpus]:
    with opened(tmp_path, FILES, toml=TOML) as found:
        yield found


def reads(corpus: Corpus, question: str) -> tuple[list[str], list[str]]:
    events: list[Event] = []
    answer = Assistant(corpus.config, corpus=corpus, record=False).ask_sync(question, mode="agent", emit=events.append)
    return [e.document for e in events if isinstance(e, Read)], [c.tool for c in answer.calls]


def test_the_text_that_the_first_one_points_to_is_read(corpus: Corpus) -> None:
    read, tools = reads(corpus, "Where was the director of The Silent Harbour born?")
    assert set(read[:2]) == {"people/film", "people/voss"}
    assert tools.count("follow_leads") == 1


def test_at_most_ten_documents_are_read(corpus: Corpus) -> None:
    read, _ = reads(corpus, "Which harbour of silent water has a drama about its number and who is the painter of it?")
    assert 0 < len(set(read)) <= 10

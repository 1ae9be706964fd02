"""What somebody may not see changes nothing for them: an index with it and one without it answer alike to the byte."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from citehound import config
from citehound.access import OWNER, Principal
from citehound.assistant import Assistant
from citehound.chunking import chunk
from citehound.corpus import Corpus
from citehound.documents import Document, Section
from citehound.embedding import open_embedder
from citehound.errors import CitehoundError
from citehound.index import FileState, IndexEntry
from citehound.index.embedded import EmbeddedIndex
from citehound.toolbox import corpus_tools

A = Principal(name="ann", groups=frozenset({"a"}))
B = Principal(name="ben", groups=frozenset({"b"}))
TOML = """\
[[sources]]
name = "mixed"
path = "mixed"
filters = ["supplier", "tags"]
description = "Policies."

[[sources]]
name = "open"
path = "open"
trust = "open"
filters = ["supplier"]

[[sources]]
name = "secret"
path = "secret"
access = ["b"]
filters = ["supplier"]
description = "What only B may know."

[[access]]
paths = ["mixed/both/**"]
groups = ["a", "b"]

[[access]]
paths = ["mixed/a/"]
groups = ["a"]

[[access]]
paths = ["mixed/b", "open/b/**"]
groups = ["b"]
"""
PLACES = ("mixed/a", "mixed/b", "mixed/both", "mixed", "open", "open/b", "secret")
SEEN_BY_A = ("mixed/a", "mixed/both", "mixed", "open")
WORDS: list[str] = [
    "encryption",
    "supplier",
    "incident",
    "annual",
    "review",
    "clause",
    "termination",
    "notice",
    "audit",
    "retention",
    "backup",
    "laptop",
    "travel",
    "approval",
    "vendor",
    "Alpha",
    "Beta",
    "Gamma",
    "Delta",
    "Northwind",
    "Fabrikam",
    "Annex",
    "Schedule",
    "report",
    "breach",
    "hours",
    "thirty",
    "days",
    "24",
    "72",
    "shall",
    "must",
    "not",
    "policy",
    "contract",
    "register",
    "owner",
    "committee",
    "Frist",
    "Aufbewahrungsfrist",
    "Aufbewahrung",
    "and",
    "of",
    "the",
]
COPIED = (
    "Incidents must be reported to the bank within 24 hours of discovery by the supplier in writing and by phone call"
)
STATES = ("", "", "", "current", "superseded", "draft", "withdrawn")


@dataclass(frozen=True, kw_only=True)
class World:
    """A corpus in its making: (place, name) to title, paragraphs and metadata."""

    documents: Mapping[tuple[str, str], tuple[str, tuple[str, ...], Mapping[str, str]]]

    def entries(self, places: Sequence[str]) -> list[IndexEntry]:
        found: list[IndexEntry] = []
        for (place, name), (title, paragraphs, metadata) in self.documents.items():
            if place not in places:
                continue
            source, _, folder = place.partition("/")
            path = f"{folder}/{name}" if folder else name
            text, sections = "", list[Section]()
            for number, paragraph in enumerate(paragraphs, start=1):
                start = len(text)
                text += f"{number} Part {number}\n\n{paragraph}\n\n"
                sections.append(
                    Section(
                        id=str(number), title=f"Part {number}", level=1, start=start, end=len(text), number=str(number)
                    )
                )
            language = "de" if "Frist" in text else "en"
            document = Document(
                id=f"{source}/{path}",
                source=source,
                path=f"{path}.md",
                title=title,
                text=text,
                sections=tuple(sections),
                metadata=metadata,
                language=language,
            )
            state = FileState(
                source=source, path=document.path, document=document.id, content_hash="c", metadata_hash="m"
            )
            found.append(IndexEntry(document=document, chunks=tuple(chunk(document)), state=state))
        return found


def made(chance: random.Random, size: int) -> World:
    """Documents that name, supersede, amend and copy each other, over all places."""
    names: list[tuple[str, str]] = []
    documents: dict[tuple[str, str], tuple[str, tuple[str, ...], Mapping[str, str]]] = {}
    for number in range(size):
        place = chance.choice(PLACES)
        name = f"{chance.choice(('plan', 'Annex-A', 'policy', 'vendor-Alpha', 'notes'))}-{number % 7}"
        while (place, name) in names:
            name += "x"
        title = " ".join(chance.sample(WORDS, chance.randint(1, 4)))
        if names and chance.random() < 0.2:
            title = documents[chance.choice(names)][0]
        paragraphs: list[str] = []
        for _ in range(chance.randint(1, 4)):
            words = chance.choices(WORDS, k=chance.randint(6, 40))
            if names and chance.random() < 0.4:
                words.insert(chance.randrange(len(words)), str(documents[chance.choice(names)][0].title()))
            paragraphs.append(COPIED if chance.random() < 0.2 else " ".join(words) + ".")
        if names and chance.random() < 0.15:
            paragraphs = list(documents[chance.choice(names)][1])
        metadata: dict[str, str] = {}
        if chance.random() < 0.5:
            metadata["supplier"] = chance.choice(("Alpha", "Beta", "Gamma", "Alpha AG", "Delta"))
        if chance.random() < 0.2:
            metadata["tags"] = chance.choice(("cloud, bank", "bank", "cloud"))
        if status := chance.choice(STATES):
            metadata["status"] = status
        if names and chance.random() < 0.3:
            other = chance.choice(names)
            key = chance.choice(("supersedes", "superseded_by", "amends"))
            metadata[key] = chance.choice((other[1], f"{other[0]}/{other[1]}"))
        names.append((place, name))
        documents[place, name] = title, tuple(paragraphs), metadata
    return World(documents=documents)


def opened(root: Path, world: World, places: Sequence[str]) -> Corpus:
    """A corpus over an index of the documents of some places."""
    for place in PLACES:
        (root / place).mkdir(parents=True, exist_ok=True)
    (root / "citehound.toml").write_text(TOML, "utf-8")
    settings_ = config.load(root / "citehound.toml", env={})
    with EmbeddedIndex(
        settings_.state / "index", write=True, embedder=open_embedder(), access=lambda: settings_.rights
    ) as index:
        index.add(world.entries(places))
    return Corpus.open(settings_)


def said(function: Callable[[], Any]) -> Any:
    """What a function gives, or what its error says."""
    try:
        return function()
    except CitehoundError as error:
        return f"{type(error).__name__}: {error}"


def plain(value: Any) -> str:
    """As JSON."""

    def known(one: Any) -> Any:
        if isinstance(one, np.ndarray | np.floating):
            return one.tolist()
        if isinstance(one, frozenset | set):
            return sorted(one)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return asdict(one)

    return json.dumps(value, default=known, ensure_ascii=False, sort_keys=True, indent=1)


def everything(corpus: Corpus, principal: Principal, queries: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """All that somebody can be told of a corpus without a model, by what was asked."""
    seen: dict[str, Any] = {"sources": [s.name for s in corpus.sources_for(principal)]}
    sources = [None, "mixed", "open", "secret", "secrets"]
    for query in queries:
        for source in sources:
            for current in (True, False):
                seen[f"search {source} {query!r} {current}"] = said(
                    lambda: corpus.search(source, query, principal=principal, only_current=current, k=8)  # noqa: B023
                )
            seen[f"explain {source} {query!r}"] = said(lambda: corpus.explain(source, query, principal=principal))  # noqa: B023
            seen[f"chase {source} {query!r}"] = said(lambda: corpus.chase(query, source=source, principal=principal))  # noqa: B023
        for value in ("Alpha", "Gamma", "Alfa"):
            filters = {"supplier": value}
            seen[f"filtered {value} {query!r}"] = said(
                lambda: corpus.search("mixed", query, principal=principal, filters=filters)  # noqa: B023
            )
        vector = corpus.embed_query(query)
        passages = [(name, 0) for name in names]
        if vector is None:  # the index of those alone is empty: nothing is near, and nothing has a vector
            seen[f"nearest {query!r}"], seen[f"cosines {query!r}"] = (), np.zeros((1, len(passages)), dtype=np.float32)
        else:
            seen[f"nearest {query!r}"] = corpus.nearest(None, vector[0], principal=principal, only_current=False)
            seen[f"cosines {query!r}"] = corpus.cosines(vector, passages, principal=principal)
        lexicon = corpus.lexicon(principal=principal)
        seen[f"frequency {query!r}"] = [lexicon.frequency(word) for word in query.split()]
    lexicon = corpus.lexicon(principal=principal)
    seen["lexicon"] = [lexicon.passages, lexicon.titles(), [lexicon.values(s) for s in sources if s]]
    for source in sources:
        seen[f"list {source}"] = said(lambda: corpus.list_documents(source, principal=principal))  # noqa: B023
        if source is not None:
            for key in ("supplier", "tags", "suplier"):
                values = partial(corpus.filter_values, source, key, principal=principal)
                seen[f"values {source} {key}"] = said(values)
    for name in names:
        seen[f"read {name}"] = said(lambda: corpus.read(name, principal=principal))  # noqa: B023
        seen[f"read {name} part"] = said(lambda: corpus.read(name, section="Part 9", principal=principal))  # noqa: B023
        seen[f"info {name}"] = said(lambda: corpus.info(name, principal=principal))  # noqa: B023
        seen[f"find {name}"] = said(lambda: corpus.find(name, "incident report", principal=principal))  # noqa: B023
        seen[f"leads {name}"] = said(lambda: corpus.chase(queries[0], start=name, principal=principal))  # noqa: B023
    run = corpus.for_run("?", principal=principal, meter=_meter())
    seen["tools"] = [(tool.name, tool.description, tool.parameters) for tool in corpus_tools(run, principal=principal)]
    return {what: plain(value) for what, value in seen.items()}


def _meter() -> Any:
    from citehound.budget import Budget, Meter

    return Meter(Budget())


def asked(corpus: Corpus, principal: Principal, question: str, mode: str) -> str:
    """A whole answer of the offline model, without what differs between any two runs."""
    events: list[Any] = []
    assistant = Assistant(corpus.config, corpus, principal=principal, record=False, emit=events.append)
    answer = asyncio.run(assistant.ask(question, mode=mode)).to_dict()
    answer["run_id"] = ""
    answer["usage"]["seconds"] = 0
    for call in answer["calls"]:
        call["seconds"] = 0
    answer["calls"] = sorted(answer["calls"], key=json.dumps)  # sources are searched at the same time
    return json.dumps(answer, sort_keys=True, indent=1)


def names_in(world: World) -> list[str]:
    """Ways to name documents that are there for nobody, for some or for all."""
    ids = [f"{place}/{name}" for place, name in world.documents]
    return [*ids, *(name for _, name in list(world.documents)[:6]), "plan", "secret/plan-0", "policy", "no-such"]


def same(one: Mapping[str, str], other: Mapping[str, str]) -> None:
    for what, value in one.items():
        assert value == other[what], what
    assert one.keys() == other.keys()


def compared(seed: int, size: int, *, modes: Sequence[str], queries: int = 3) -> None:
    chance = random.Random(seed)
    world = made(chance, size)
    some = [" ".join(chance.sample(WORDS, chance.randint(1, 5))) for _ in range(queries)]
    titles = [title for title, _, _ in world.documents.values()]
    some.append(f"What does {chance.choice(titles).title()} say about {chance.choice(WORDS)}?")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        alone = stack.enter_context(opened(folder / "alone", world, SEEN_BY_A))
        both = stack.enter_context(opened(folder / "both", world, PLACES))
        names = names_in(world)
        same(everything(alone, A, some, names), everything(both, A, some, names))
        for mode in modes:
            question = some[-1]
            one, other = (asked(corpus, A, question, mode) for corpus in (alone, both))
            assert one == other, mode
        whole = both.list_documents(None, principal=OWNER, only_current=False, limit=1000)
        assert whole.total == len(world.documents)


SLOW = settings(
    deadline=None, max_examples=120, database=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


@settings(SLOW, max_examples=4)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 30))
def test_what_somebody_may_not_see_changes_nothing_for_them(seed: int, size: int) -> None:
    compared(seed, size, modes=("agent",), queries=2)


@pytest.mark.slow
@settings(SLOW)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 60))
def test_what_somebody_may_not_see_changes_nothing_in_many_corpora(seed: int, size: int) -> None:
    compared(seed, size, modes=("single", "hops", "agent", "research", "auto"))

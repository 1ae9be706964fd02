"""The registry of tools, the bounds of arguments, and the withdrawal of what reaches out as a state machine."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from citehound import config as configuration
from citehound.access import OWNER
from citehound.answers import Reference
from citehound.config import SourceConfig, check_egress
from citehound.corpus import Corpus
from citehound.documents import Passage
from citehound.errors import ConfigError
from citehound.evidence import Ledger
from citehound.toolbox import (
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_QUERY,
    MAX_TEXT,
    Finding,
    Tool,
    Toolbox,
    bounded,
    check_effects,
)
from small import TOML, opened, write_corpus

QUARANTINED = TOML + "\n[security]\nquarantine = true\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("tools"), toml=QUARANTINED) as corpus:
        Registry.corpus = corpus
        yield corpus


def source(name: str, *, private: bool, reaches_out: bool) -> SourceConfig:
    kind = "python" if reaches_out else "files"
    return SourceConfig(name=name, path=Path(name), private=private, kind=kind, egress=reaches_out)


SOURCES = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=4).map(
    lambda rows: tuple(source(f"s{n}", private=p, reaches_out=o) for n, (p, o) in enumerate(rows))
)


class Registry(RuleBasedStateMachine):
    """Tools are registered and called in any order; a model in plain words says what must be refused.

    The corpus has two private sources, `rules` and `deals`, and reading is quarantined, so that the registry lets tools
    that reach out in at all: the loop that is not quarantined then has to hold them back.
    """

    corpus: Corpus

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, frozenset[str]]] = []
        """What left, and what had been shown by then."""
        self.shown: set[str] = set()
        self.tools: list[Tool] = []
        self.box: Toolbox | None = None
        self.ledger = Ledger()
        self.number = 0

    def tool(self, name: str, effect: Any, owner: str | None) -> Tool:
        def run(arguments: Mapping[str, Any], tokens: int) -> Finding:
            if effect == "egress":
                self.sent.append((owner or "", frozenset(self.shown)))
            return Finding(result={"got": str(arguments)}, returned=(Reference(document="elsewhere/page"),))

        return Tool(name=name, description="", parameters={}, effect=effect, run=run, source=owner)

    @initialize(
        effects=st.lists(st.sampled_from(["read", "egress", "write", "exec", ""]), max_size=4),
        owners=st.lists(st.sampled_from([None, "rules", "deals", "elsewhere"]), min_size=4, max_size=4),
        names=st.lists(st.sampled_from(["a", "b", "c", "read_document"]), min_size=4, max_size=4, unique=True),
    )
    def register(self, effects: list[str], owners: list[str | None], names: list[str]) -> None:
        tools = [self.tool(n, e, o) for n, e, o in zip(names, effects, owners, strict=False)]
        wrong = [t for t in tools if t.effect not in ("read", "egress") or t.name == "read_document"]
        if wrong:
            with pytest.raises(ConfigError):
                Toolbox(self.corpus, principal=OWNER, ledger=self.ledger, extra=tools)
            tools = [t for t in tools if t not in wrong]
        if any(t.effect == "egress" for t in tools):
            with pytest.raises(ConfigError, match="reaches out"):
                check_effects(tools, self.corpus.sources)
        self.tools = tools
        self.box = Toolbox(self.corpus, principal=OWNER, ledger=self.ledger, extra=tools)

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert self.box is not None
        self.number += 1
        self.box.begin_step(self.number)
        return asyncio.run(self.box.call(name, arguments))

    @rule(which=st.integers(0, 3), word=st.text(max_size=5))
    @precondition(lambda self: bool(self.tools))
    def call_one(self, which: int, word: str) -> None:
        tool = self.tools[which % len(self.tools)]
        result = self.call(tool.name, {"x": f"{word} {self.number}"})
        held_back = tool.effect == "egress" and bool(self.shown - {tool.source})
        assert ("error" in result) == held_back
        if held_back:
            assert "withdrawn" in result["error"]

    @rule(name=st.sampled_from(["rules", "deals"]))
    def search(self, name: str) -> None:
        result = self.call(f"search_{name}", {"query": f"reporting incidents {self.number}"})
        if result.get("hits"):
            self.shown.add(name)

    @rule(document=st.sampled_from(["rules/security", "deals/alpha", "nobody/knows"]))
    def read(self, document: str) -> None:
        if "error" not in self.call("read_document", {"document": document}):
            self.shown.add(document.split("/")[0])

    @rule(name=st.sampled_from(["rules", "deals"]))
    def list_titles(self, name: str) -> None:
        if self.call("list_documents", {"source": name, "start": 0}).get("documents"):
            self.shown.add(name)

    @rule()
    def passages_by_code(self) -> None:
        text = "Incidents must be reported."
        self.ledger.read(
            Passage(document="rules/security", section=None, title="", text=text, start=0, end=27, total_chars=27)
        )
        self.shown.add("rules")

    @rule(name=st.sampled_from(["shell", "export_all", "search_nobody", "ＲＥＡＤ_document"]))
    def unknown(self, name: str) -> None:
        assert "no tool" in self.call(name, {})["error"]

    @invariant()
    def nothing_private_was_shown_to_whoever_reached_out(self) -> None:
        assert not [(owner, shown) for owner, shown in self.sent if shown - {owner}]


@pytest.mark.parametrize("examples", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_registry_and_withdrawal(corpus: Corpus, examples: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Registry, settings=settings(max_examples=examples, stateful_step_count=12, deadline=None))


# At start-up


@pytest.mark.parametrize("quarantined", [False, True])
def test_no_source_reaches_out_beside_a_private_one(quarantined: bool) -> None:
    from itertools import product

    for rows in product(product([False, True], repeat=2), repeat=3):
        sources = [source(f"s{n}", private=p, reaches_out=o) for n, (p, o) in enumerate(rows)]
        leaky = any(o and any(q for m, (q, _) in enumerate(rows) if m != n) for n, (_, o) in enumerate(rows))
        if leaky and not quarantined:
            with pytest.raises(ConfigError, match="reaches out"):
                check_egress(sources, quarantined=quarantined)
        else:
            check_egress(sources, quarantined=quarantined)


def test_a_configuration_that_could_leak_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    web = '\n[[sources]]\nname = "web"\nkind = "web"\nengine = "provider"\ndomains = ["example.org"]\n'
    write_corpus(tmp_path, toml=TOML + web)
    with pytest.raises(ConfigError, match="reaches out"):
        configuration.load(tmp_path / "citehound.toml", env={})
    assert not (tmp_path / ".citehound").exists()


# Arguments

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3000),
    lambda inner: st.lists(inner, max_size=80) | st.dictionaries(st.text(max_size=300), inner, max_size=60),
    max_leaves=20,
)


def within(value: Any, depth: int = 1) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    if isinstance(value, list):
        return depth <= MAX_DEPTH and len(value) <= MAX_ENTRIES and all(within(v, depth + 1) for v in value)
    if isinstance(value, dict):
        inside = all(len(k) <= MAX_QUERY and within(v, depth + 1) for k, v in value.items())
        return depth <= MAX_DEPTH and len(value) <= MAX_ENTRIES and inside
    return value is None or isinstance(value, bool) or abs(value) <= 2**53


@pytest.mark.slow
def test_what_is_kept_of_arguments_is_bounded_and_what_is_over_is_said() -> None:
    from hypothesis import given

    @given(st.dictionaries(st.text(max_size=300), ANY, max_size=60))
    def check(arguments: dict[str, Any]) -> None:
        kept, fault = bounded(arguments)
        assert within(kept)
        assert (fault is None) or "at most" in fault or "nested" in fault or "number" in fault
        assert bounded(kept) == (kept, None)

    check()


DEEP: dict[str, Any] = {"a": {"b": {"c": {"d": "e"}}}}


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("search_rules", {"query": "x " * 150}, "at most 256"),
        ("search_rules", {"query": "x" * 100_000}, "at most 1024"),
        ("search_deals", {"query": "x", "supplier": "A" * 300}, "at most 256"),
        ("find_in_document", {"document": "rules/security", "phrase": "x" * 257}, "at most 256"),
        ("read_document", {"document": "x" * 2000}, "at most 1024"),
        ("read_document", {"document": "rules/security", "start": 10**400}, "number that large"),
        ("follow_leads", {"question": "x" * 1025}, "at most 1024"),
        ("list_documents", {"source": "deals", "filters": DEEP}, "nested deeper"),
        ("list_documents", {"source": "deals", "filters": {f"k{n}": "v" for n in range(99)}}, "at most 50"),
        ("list_documents", {"source": "deals", "filters": {"supplier": "A" * 300}}, "at most 256"),
        ("search_rules", {"query": ["x"] * 99}, "at most 50"),
    ],
)
def test_arguments_beyond_their_bounds_are_refused(
    corpus: Corpus, name: str, arguments: dict[str, Any], said: str
) -> None:
    ledger = Ledger()
    box = Toolbox(corpus, principal=OWNER, ledger=ledger)
    box.begin_step(1)
    result = asyncio.run(box.call(name, arguments))
    assert said in result["error"]
    (made,) = ledger.evidence().calls
    assert made.error is not None and within(dict(made.arguments))


def test_text_that_cannot_be_seen_does_not_leave_with_a_query(corpus: Corpus) -> None:
    ledger = Ledger()
    box = Toolbox(corpus, principal=OWNER, ledger=ledger)
    box.begin_step(1)
    asyncio.run(box.call("search_rules", {"query": "incidents\U000e0041\u200b\u202e"}))
    assert ledger.evidence().searches[0].query == "incidents"


def test_an_undeclared_effect_and_a_second_tool_of_a_name_are_refused() -> None:
    tool = Tool(name="a", description="", parameters={}, effect="read", run=lambda a, t: Finding(result={}))
    check_effects([tool], [])
    with pytest.raises(ConfigError, match="two tools"):
        check_effects([tool, tool], [])
    with pytest.raises(ConfigError, match="declare"):
        check_effects([replace(tool, effect="delete")], [])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="writes"):
        check_effects([replace(tool, effect="write")], [], quarantined=True)

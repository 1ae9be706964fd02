"""Hops: a second search for the missing part, one answer from everything, and an end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from citehound import config
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.corpus import Corpus
from citehound.documents import Passage
from citehound.drafts import Draft, DraftCitation, DraftClaim, DraftGap
from citehound.events import Decided, Event
from citehound.judge import Judge, Reformulation, Route, Signals, Skip, SubQuestion, Sufficiency, Support
from citehound.models.scripted import ScriptedModel
from small import FILES, GOOD, WITHIN_24, opened, quoting

QUESTION = "Within how many hours must incidents be reported, and may that change?"
CIRCULAR = "Staff with access to production report within twelve hours."
MANY = {
    **FILES,
    "rules/security.md": f"# Security policy\n\n## 7 Incidents\n\n{WITHIN_24} Unless a circular says otherwise.\n",
    "rules/circular.md": f"# Circular 3\n\n## 1 Duty\n\n{CIRCULAR}\n",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("hops"), MANY) as corpus:
        yield corpus


class Stubborn:
    """A judge that is never satisfied and keeps asking for the same part."""

    name = "stubborn"

    def __init__(self, missing: Sequence[str] = ("change of the hours",), enough_after: int = 99) -> None:
        self.asked: list[int] = []
        self.queries: list[str] = []
        self._missing = tuple(missing)
        self._enough_after = enough_after

    async def skip(self, question: str) -> Skip:
        return Skip(sure=False, why="")

    async def route(self, question: str, signals: Signals) -> Route:
        return Route(mode="single", why="")

    async def sufficient(self, question: str, passages: Sequence[Passage]) -> Sufficiency:
        assert question == QUESTION, "the check is against the original question"
        self.asked.append(len(passages))
        enough = len(self.asked) > self._enough_after
        return Sufficiency(enough=enough, missing=() if enough else self._missing)

    async def reformulate(
        self, question: str, missing: Sequence[str], passages: Sequence[Passage], *, tried: Sequence[str]
    ) -> Reformulation:
        assert tuple(missing) == self._missing
        self.queries.append(f"circular duty {len(tried)}")
        return Reformulation(query=self.queries[-1])

    async def split(self, question: str, *, most: int) -> tuple[SubQuestion, ...]:
        return (SubQuestion(question=question),)

    async def support(self, claim: str, quotes: Sequence[str]) -> Support:
        return Support(verdict="unclear")


def ask(corpus: Corpus, turns: list[Any], judge: Judge, **options: Any) -> tuple[Answer, ScriptedModel, list[Event]]:
    model, events = ScriptedModel(turns), list[Event]()
    assistant = Assistant(corpus.config, corpus, model, judge=judge, emit=events.append)
    return assistant.ask_sync(QUESTION, mode="hops", **options), model, events


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_stubborn_question_ends_at_the_hop_limit(corpus: Corpus, most: int) -> None:
    judge = Stubborn()
    answer, model, _ = ask(corpus, [GOOD], judge, max_hops=most)
    assert answer.usage.retrievals == most
    assert (len(judge.asked), len(judge.queries)) == (most - 1, most - 1)
    assert len(model.requests) == answer.usage.steps == 1


def test_two_hops_are_the_default(corpus: Corpus) -> None:
    answer, _, _ = ask(corpus, [GOOD], Stubborn())
    assert answer.usage.retrievals == 2


def test_enough_ends_the_search(corpus: Corpus) -> None:
    answer, _, events = ask(corpus, [GOOD], Stubborn(enough_after=0), max_hops=5)
    assert answer.usage.retrievals == 1
    assert [e.verdict for e in events if isinstance(e, Decided)] == ["enough"]


def test_the_answer_is_to_the_original_question_from_all_evidence(corpus: Corpus) -> None:
    both = Draft(
        claims=(
            DraftClaim(text=WITHIN_24, citations=(DraftCitation(document="rules/security", quote=WITHIN_24),)),
            DraftClaim(text=CIRCULAR, citations=(DraftCitation(document="rules/circular", quote=CIRCULAR),)),
        )
    )
    answer, model, _ = ask(corpus, [both], Stubborn())
    assert (answer.status, answer.mode) == ("complete", "hops")
    prompt = str(model.requests[0].messages)
    assert QUESTION in prompt
    assert WITHIN_24 in prompt
    assert CIRCULAR in prompt
    places = [(c.arguments["document"], c.arguments["start"]) for c in answer.calls if c.tool == "read_document"]
    assert len(places) == len(set(places)) == answer.usage.reads, "nothing is read twice"


def test_a_part_that_stays_missing_is_declared(corpus: Corpus) -> None:
    answer, _, _ = ask(corpus, [GOOD], Stubborn())
    assert [(g.what, g.reason) for g in answer.missing] == [("change of the hours", "a further search found nothing")]
    declared = Draft(claims=GOOD.claims, missing=(DraftGap(what="change of the hours"),))
    answer, _, _ = ask(corpus, [declared], Stubborn())
    assert [g.what for g in answer.missing] == ["change of the hours"], "said once"
    answer, _, _ = ask(corpus, [quoting("rules/circular", CIRCULAR)], Stubborn(enough_after=0, missing=()))
    assert answer.missing == ()


def test_a_citation_from_the_second_search_closes_the_part(tmp_path: Path) -> None:
    noise = {f"rules/incidents-{n}.md": f"# Hours {n}\n\nIncidents are reported within hours. {n}\n" for n in range(9)}
    with opened(tmp_path, {**MANY, **noise}) as corpus:
        answer, _, _ = ask(corpus, [quoting("rules/circular", CIRCULAR)], Stubborn())
    read = [c.arguments["document"] for c in answer.calls if c.tool == "read_document"]
    assert "rules/circular" in read[6:], "only the second search finds it"
    assert answer.missing == ()


# offline

RETENTION = "What's our current file retention policy, and has it changed recently?"


@pytest.fixture(scope="module")
def retention(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    here = Path(__file__).resolve().parents[1] / "src" / "citehound" / "demos" / "retention"
    at = tmp_path_factory.mktemp("demo") / "retention"
    shutil.copytree(here, at, ignore=shutil.ignore_patterns(".citehound"))
    with Corpus.open(config.load(at / "citehound.toml", env={}), write=True) as corpus:
        corpus.sync()
        yield corpus


def quotes(answer: Answer) -> str:
    return " ".join(c.quote for claim in answer.claims for c in claim.citations if c.status == "verified")


def test_retention_is_wrong_by_omission_in_single_and_right_in_hops_with_two_retrievals(retention: Corpus) -> None:
    assistant = Assistant(retention.config, retention)
    single = assistant.ask_sync(RETENTION, mode="single")
    assert "30 days" in quotes(single)
    assert "90 days" not in single.text
    hops = assistant.ask_sync(RETENTION, mode="hops")
    assert "30 days" in quotes(hops)
    assert "90 days" in quotes(hops)
    assert (hops.status, hops.usage.retrievals) == ("complete", 2)
    asked = set(re.findall(r"\w+", RETENTION.lower()))
    second = next(c for c in reversed(hops.calls) if c.tool == "search_changelog")
    assert set(re.findall(r"\w+", str(second.arguments["query"]).lower())) - asked, "words that only the rule has"


def test_auto_finds_the_change_too(retention: Corpus) -> None:
    answer = Assistant(retention.config, retention).ask_sync(RETENTION)
    assert answer.mode == "agent"
    assert "changed" in answer.route
    assert "90 days" in quotes(answer)


@pytest.mark.parametrize("question", ["What is 12 times 4?", "What is the fine for walruses in the yard?"])
def test_what_no_document_answers_stops_at_the_limit_with_its_gap(corpus: Corpus, question: str) -> None:
    answer = Assistant(corpus.config, corpus).ask_sync(question, mode="hops")
    assert answer.usage.retrievals <= 2
    assert answer.status == "not_found"
    assert answer.missing
    assert all(g.status == "checked" for g in answer.missing)


@pytest.mark.parametrize(
    ("name", "case", "wanted"),
    [("wiki", "wik-c1", ("prometheus/docs/storage", "prometheus/docs/configuration/configuration"))],
)
def test_the_second_search_reads_what_the_question_has_no_words_for(
    shared_data: Path, tmp_path: Path, name: str, case: str, wanted: tuple[str, ...]
) -> None:
    import json

    from citehound.config import Config, ModelConfig, SourceConfig

    folder = shared_data / "corpora" / name
    rows = [json.loads(line) for line in (folder / "cases.jsonl").read_text("utf-8").splitlines() if line.strip()]
    question = next(r["question"] for r in rows if r["id"] == case)
    sources = tuple(
        SourceConfig(name=p.name, path=p, description=p.name) for p in sorted(folder.iterdir()) if p.is_dir()
    )
    with Corpus.open(Config(root=tmp_path, sources=sources, model=ModelConfig()), write=True) as corpus:
        corpus.sync()
        answer = Assistant(corpus.config, corpus).ask_sync(question, mode="hops")
    read = {c.arguments["document"] for c in answer.calls if c.tool == "read_document"}
    assert answer.usage.retrievals == 2
    assert set(wanted) <= read
    assert "prometheus/CHANGELOG" in read

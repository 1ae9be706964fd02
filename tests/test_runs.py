"""Run records: kept whole, found by a part of the id, safe for several processes, refused when newer."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.answers import Answer, Call, Citation, Claim, Gap, Reference, Usage
from citehound.errors import CitehoundError, UsageError
from citehound.events import Answered, Hits, StepStarted
from citehound.runs import SCHEMA, RunStore, answer_from_dict, new_run_id


def answer(run_id: str = "", question: str = "What?") -> Answer:
    citation = Citation(document="a/b", quote="four words or more", section="7.2", status="verified", labels=("draft",))
    return Answer(
        question=question,
        requested_mode="auto",
        mode="agent",
        route="why",
        model="offline",
        status="partial",
        text="1. x [a/b §7.2]",
        claims=(Claim(text="x", status="verified", citations=(citation,)), Claim(text="y", premises=(1,))),
        missing=(Gap(what="z", status="checked", sources=("a",), queries=("q",)),),
        calls=(Call(step=1, tool="search_a", arguments={"query": "q", "k": 6}, returned=(Reference(document="a/b"),)),),
        usage=Usage(steps=2, searches=1, dollars=None),
        warnings=("w",),
        run_id=run_id,
    )


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "state" / "runs.sqlite")


def test_a_run_comes_back_as_it_was(store: RunStore) -> None:
    given = answer(new_run_id())
    reference = Reference(document="a/b", section="7.2")
    events = [StepStarted(step=1), Hits(step=1, source="a", query="q", filters={"x": "y"}, returned=(reference,))]
    assert store.save(given, [*events, Answered(answer=given)], principal=OWNER) == given.run_id
    record = store.get(given.run_id, principal=OWNER)
    assert record.answer == given
    assert [e["type"] for e in record.events] == ["step_started", "hits"]
    assert record.summary.unverified == 1
    assert record.summary.dollars is None


def test_an_answer_without_an_id_gets_one(store: RunStore) -> None:
    run_id = store.save(answer(), principal=OWNER)
    assert store.get(run_id, principal=OWNER).answer.run_id == run_id


def test_a_unique_beginning_of_an_id_will_do(store: RunStore) -> None:
    for run_id in ("abc1", "abc2", "abd1", "abc"):
        store.save(answer(run_id), principal=OWNER)
    assert store.get("abd", principal=OWNER).answer.run_id == "abd1"
    assert store.get("abc", principal=OWNER).answer.run_id == "abc"
    with pytest.raises(UsageError, match="several runs"):
        store.get("ab", principal=OWNER)
    for wrong in ("x", "", "%", "_bc1", "a*"):
        with pytest.raises(UsageError, match="citehound runs"):
            store.get(wrong, principal=OWNER)


def test_the_newest_run_is_listed_first(store: RunStore) -> None:
    ids = [store.save(answer(new_run_id(), question=f"q{n}"), principal=OWNER) for n in range(5)]
    assert [s.run_id for s in store.list(principal=OWNER)] == ids[::-1]
    assert [s.run_id for s in store.list(2, principal=OWNER)] == ids[:2:-1]
    assert [s.run_id for s in store.list(before=ids[2], principal=OWNER)] == ids[1::-1]
    assert store.list(status="failed", principal=OWNER) == ()
    assert len(store.list(status="partial", principal=OWNER)) == 5


def test_ids_are_short_unique_and_sort_by_time() -> None:
    ids = [new_run_id() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert sorted(ids) == ids
    assert all(len(i) == 13 and i.isalnum() for i in ids)


def test_odd_characters_are_stored(store: RunStore) -> None:
    question = "nul \x00 and \ud800 and \x1b[2J"
    run_id = store.save(answer(new_run_id(), question=question), principal=OWNER)
    assert store.get(run_id, principal=OWNER).answer.question == question
    assert "\x1b" not in store.list(principal=OWNER)[0].question


def test_secrets_are_not_stored(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    store.save(answer(new_run_id(), question="is sk-canary-0123456789 my key?"), principal=OWNER)
    files = list(store.path.parent.iterdir())
    assert files
    assert not any(b"canary" in f.read_bytes() for f in files)


def test_several_processes_may_save_at_once(store: RunStore) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]); import test_runs\n"
        "from citehound.access import OWNER; from citehound.runs import RunStore, new_run_id\n"
        "for n in range(20): RunStore(Path(sys.argv[1])).save(test_runs.answer(new_run_id()), principal=OWNER)\n"
    )
    command = [sys.executable, "-c", code, str(store.path), str(Path(__file__).parent)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [p.wait(60) for p in processes] == [0, 0, 0]
    assert len(store.list(100, principal=OWNER)) == 60


@pytest.mark.parametrize("version", [SCHEMA + 1, 999])
def test_a_newer_store_is_refused_with_one_line(store: RunStore, version: int) -> None:
    store.save(answer(), principal=OWNER)
    with closing(sqlite3.connect(store.path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(CitehoundError, match="newer version") as caught:
        RunStore(store.path).list(principal=OWNER)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_store_is_refused_with_one_line(store: RunStore) -> None:
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"not a database, just text" * 100)
    with pytest.raises(CitehoundError, match="move it away") as caught:
        store.list(principal=OWNER)
    assert "\n" not in str(caught.value)


def test_fields_of_a_later_version_are_left_out() -> None:
    data = answer().to_dict()
    data["later"] = 1
    data["claims"][0]["later"] = 2
    assert answer_from_dict(data) == answer()


def test_a_store_that_others_open_for_the_first_time_is_waited_for(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = sqlite3.connect, [2]

    class Busy(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
            if "journal_mode" in sql and refused[0]:
                refused[0] -= 1
                raise sqlite3.OperationalError("database is locked")
            return super().execute(sql, *values)  # type: ignore[arg-type]

    monkeypatch.setattr("citehound.runs.sqlite3.connect", lambda path, **options: real(path, factory=Busy, **options))
    run_id = store.save(answer(), principal=OWNER)
    assert refused == [0]
    assert store.get(run_id, principal=OWNER).answer.question == "What?"

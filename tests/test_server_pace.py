"""How many questions are at work at once: who waits, for what, and what is seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from citehound import config
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.budget import Budget, Meter
from citehound.events import Emit, Event, Waiting
from citehound.models.scripted import ScriptedModel, ScriptedRequest
from citehound.runs import RunStore
from citehound.server.app import bind, create_app
from citehound.server.pace import BEATS, BUSIEST, BUSY, FIRST, LATE, LEAST, OURS, SETTLE, VERY_LATE, Pace
from citehound.server.questions import Asked, Questions
from served import live
from small import GOOD, TOML, opened, write_corpus
from test_server import QUESTION, READ, SEARCH, Held, events_of

MANY = 64
IDLE = BUSY / 4
FULL = (BUSY + BUSIEST) / 2
"""As much of a core as the process should use."""


class Crowd:
    """Questions that hold their place until they are let go."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.begun: list[int] = []
        self.heard: dict[int, list[int | None]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.over: list[asyncio.Event] = []

    async def come(self, many: int) -> None:
        first = not self.tasks
        for number in range(len(self.tasks), len(self.tasks) + many):
            self.heard[number], done = [], asyncio.Event()
            self.over.append(done)
            self.tasks.append(asyncio.create_task(self._work(number, done)))
        await settled()
        for _ in range(SETTLE if first else 0):
            self.pace.beat(late=0.0, busy=FULL)

    async def leave(self, number: int) -> None:
        self.over[number].set()
        await settled()

    async def _work(self, number: int, done: asyncio.Event) -> None:
        def hear(event: Event) -> None:
            assert isinstance(event, Waiting)
            self.heard[number].append(event.ahead)

        async with self.pace.place(hear):
            self.begun.append(number)
            await done.wait()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def for_ever(seconds: float) -> None:
    await asyncio.Event().wait()


def crowded(test: Callable[[Crowd], Awaitable[None]], *, most: int = MANY) -> None:
    """Runs a test over a pace that looks at nothing by itself."""

    async def run() -> None:
        pace = Pace(most, sleep=for_ever)
        crowd = Crowd(pace)
        await test(crowd)
        for task in crowd.tasks:
            task.cancel()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)
        assert (pace.working, pace.waiting) == (0, 0)
        pace.close()

    asyncio.run(run())


# the queue


def test_questions_beyond_the_places_wait_and_begin_in_order() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(FIRST + 3)
        assert crowd.begun == list(range(FIRST))
        assert [crowd.heard[n] for n in range(FIRST, FIRST + 3)] == [[0], [1], [2]]
        await crowd.leave(3)
        await crowd.leave(5)
        assert crowd.begun[FIRST:] == [FIRST, FIRST + 1]
        assert crowd.heard[FIRST] == [0, None]
        assert crowd.heard[0] == [], "who never waited hears nothing"

    crowded(test)


def test_nobody_goes_before_those_who_wait() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(2)
        crowd.pace.limit = 2
        await crowd.come(1)
        assert crowd.begun == [0]

    crowded(test, most=1)


def test_who_gives_up_waiting_is_out_of_the_queue() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(4)
        crowd.tasks[1].cancel()
        crowd.tasks[2].cancel()
        await settled()
        assert crowd.pace.waiting == 1
        await crowd.leave(0)
        assert crowd.begun == [0, 3]

    crowded(test, most=1)


def test_a_turn_that_comes_as_it_is_given_up_goes_to_the_next() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(3 * FIRST)
        crowd.pace.beat(late=0.0, busy=IDLE)  # gives turns to some of them, which have not been run since
        crowd.tasks[FIRST].cancel()
        await settled()
        assert crowd.begun[FIRST:] == list(range(FIRST + 1, 2 * FIRST + 1))

    crowded(test)


# how many


def test_with_a_model_that_takes_long_to_answer_all_come_to_work() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(MANY)
        for _ in range(12):
            crowd.pace.beat(late=LATE / 10, busy=IDLE)
        await settled()
        assert crowd.begun == list(range(MANY))

    crowded(test)


def test_no_more_are_let_in_than_the_processor_would_carry_at_that_rate() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(MANY)
        crowd.pace.beat(late=LATE / 10, busy=BUSY / 1.5)
        assert crowd.pace.limit == crowd.pace.working == FIRST * 1.5

    crowded(test)


def test_what_was_let_in_shows_its_load_before_more_are() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(MANY)
        crowd.pace.beat(late=0.0, busy=IDLE)
        for busy in [0.0] * SETTLE:
            crowd.pace.beat(late=0.0, busy=busy)
            assert crowd.pace.limit == 2 * FIRST
        crowd.pace.beat(late=0.0, busy=FULL)
        assert crowd.pace.limit == 2 * FIRST
        crowd.pace.beat(late=0.0, busy=IDLE)
        assert crowd.pace.limit == 4 * FIRST

    crowded(test)


def test_places_nobody_waits_for_are_not_made() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(FIRST)
        for _ in range(12):
            crowd.pace.beat(late=0.0, busy=IDLE)
        assert crowd.pace.limit == FIRST

    crowded(test)


@pytest.mark.parametrize(("late", "busy"), [(0.0, BUSIEST * 1.1), (2 * LATE, IDLE + OURS), (2 * VERY_LATE, OURS / 2)])
def test_a_busy_processor_or_a_late_loop_lets_nobody_in_and_ends_nobody(late: float, busy: float) -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(MANY)
        for _ in range(FIRST - LEAST):
            crowd.pace.beat(late=late, busy=busy)
            await crowd.leave(crowd.begun[0] + FIRST - crowd.pace.working)
        assert crowd.begun == list(range(FIRST))
        assert crowd.pace.limit == crowd.pace.working == LEAST

    crowded(test)


def test_a_step_down_is_not_followed_by_another_before_it_has_come_into_effect() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(MANY)
        for _ in range(12):
            crowd.pace.beat(late=2 * LATE, busy=FULL)
        assert (crowd.pace.limit, crowd.pace.working) == (FIRST - 1, FIRST)
        await crowd.leave(0)
        crowd.pace.beat(late=2 * LATE, busy=FULL)
        assert crowd.pace.limit == FIRST - 2

    crowded(test)


def test_some_work_however_late_the_loop_is() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(2 * MANY)
        for number in range(MANY):
            await crowd.leave(number)
            crowd.pace.beat(late=1.0, busy=1.0)
        assert crowd.pace.limit == crowd.pace.working == LEAST
        assert len(crowd.begun) == MANY + LEAST

    crowded(test, most=2 * MANY)


def test_lateness_that_other_work_of_the_machine_makes_keeps_nobody_waiting() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(MANY)
        for _ in range(12):
            crowd.pace.beat(late=0.9 * VERY_LATE, busy=OURS / 2)
        await settled()
        assert len(crowd.begun) == MANY

    crowded(test)


def test_as_busy_as_it_should_be_all_stays_as_it_is() -> None:
    async def test(crowd: Crowd) -> None:
        await crowd.come(MANY)
        for _ in range(12):
            crowd.pace.beat(late=0.8 * LATE, busy=FULL)
        assert crowd.pace.limit == FIRST

    crowded(test)


@pytest.mark.parametrize(("late", "used", "begun"), [(0.0, IDLE, MANY), (2 * LATE, FULL, FIRST), (0.0, 1.0, FIRST)])
def test_the_loop_is_looked_at_while_there_is_work_and_no_longer(late: float, used: float, begun: int) -> None:
    now = cpu = 0.0
    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal now, cpu, looks
        now, cpu, looks = now + seconds + late, cpu + used * (seconds + late), looks + 1
        await asyncio.sleep(0)

    async def run() -> None:
        crowd = Crowd(Pace(MANY, clock=lambda: now, cpu=lambda: cpu, sleep=sleep))
        await crowd.come(MANY)
        while looks < 20 * BEATS:
            await asyncio.sleep(0)
        assert len(crowd.begun) == begun
        for done in crowd.over:
            done.set()
        await asyncio.gather(*crowd.tasks)
        while len(asyncio.all_tasks()) > 1:  # ends once the last one is over
            await asyncio.sleep(0)

    asyncio.run(run())


# what is seen of it


def test_a_run_works_only_once_it_has_its_place_and_its_time_counts_from_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    with opened(tmp_path) as corpus, monkeypatch.context() as patched:

        def restart(meter: Meter) -> None:
            order.append("time")

        patched.setattr(Meter, "restart", restart)

        @asynccontextmanager
        async def place(emit: Emit) -> AsyncGenerator[None]:
            order.append("waits")
            yield
            order.append("over")

        def asked(request: ScriptedRequest) -> Any:
            order.append("asked")
            return (SEARCH, READ, GOOD)[sum(m.kind == "response" for m in request.messages)]

        model = ScriptedModel([asked], repeat_last=True)
        events: list[str] = []
        assistant = Assistant(corpus.config, corpus, model, place=place)
        assistant.ask_sync(QUESTION, mode="agent", emit=lambda e: (events.append(e.type), order.append(e.type))[0])
    assert order[:4] == ["run_started", "waits", "time", "step_started"]
    assert order[-1] == "over"
    assert order.count("asked") == 3


def test_time_counts_anew_from_a_restart() -> None:
    now = 0.0
    meter = Meter(Budget(max_seconds=10), clock=lambda: now)
    now = 60.0
    meter.restart()
    now = 64.0
    assert (meter.seconds_left(), meter.spent().seconds) == (6.0, 4.0)


@pytest.fixture
def waiting(tmp_path: Path) -> Generator[tuple[httpx2.Client, Held]]:
    """A server on which one question works at a time."""
    loaded = config.load(write_corpus(tmp_path, toml=TOML + '[model]\nname = "openai:own"\n'), env={})
    model = Held()
    listening = bind("127.0.0.1", 0)
    app = create_app(loaded, model=model, port=listening.getsockname()[1])
    app.state.questions.pace = Pace(1)
    with live(app, listening) as url, httpx2.Client(base_url=url, timeout=30, trust_env=False) as client:
        yield client, model
        model.go.set()


def test_waiting_is_seen_can_be_cancelled_and_ends(waiting: tuple[httpx2.Client, Held]) -> None:
    client, model = waiting
    ids = [client.post("/v1/runs", json={"question": QUESTION, "mode": "agent"}).json()["run_id"] for _ in range(3)]
    assert model.waiting.acquire(timeout=20)

    def run(number: int) -> dict[str, Any]:
        return client.get(f"/v1/runs/{ids[number]}").json()

    assert [(run(n)["running"], run(n)["waiting"]) for n in range(3)] == [(True, None), (True, 0), (True, 1)]
    assert len(client.get("/v1/runs").json()["running"]) == 3
    assert "citehound_questions_waiting 2.0" in client.get("/metrics").text
    assert client.post(f"/v1/runs/{ids[1]}/cancel", json={}).status_code == 202
    told = client.get(f"/v1/runs/{ids[1]}/events", headers={"Accept": "text/event-stream"}).text
    assert [kind for _, kind, _ in events_of(told)][:2] == ["run_started", "waiting"]
    answer = run(1)["answer"]
    assert (answer["status"], answer["stop_reason"]) == ("partial", "cancelled")
    assert "while it waited for its turn" in answer["missing"][0]["reason"]
    assert (answer["usage"]["model_calls"], answer["usage"]["dollars"], answer["calls"]) == (0, 0.0, [])
    model.go.set()
    told = client.get(f"/v1/runs/{ids[2]}/events", headers={"Accept": "text/event-stream"}).text
    events = [event for _, _, event in events_of(told)]
    assert [e["ahead"] for e in events if e["type"] == "waiting"][-1] is None
    assert events[-1]["answer"]["status"] == "complete"
    assert run(2)["waiting"] is None


def test_being_told_to_stop_ends_what_waits_as_a_declared_partial_that_spent_nothing(tmp_path: Path) -> None:
    loaded = config.load(write_corpus(tmp_path, toml=TOML + '[model]\nname = "openai:own"\n'), env={})
    model = Held()

    async def run() -> list[str]:
        questions = Questions(loaded, model=model)
        questions.pace = Pace(1)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(questions.close)
            await questions.prepare()
            asked = Asked(question=QUESTION, mode="agent")
            return [(await questions.start(asked, principal=OWNER)).run_id for _ in range(3)]

    ids = asyncio.run(run())
    store = RunStore(loaded.state / "runs.sqlite")
    answers = [store.get(run_id, principal=OWNER).answer for run_id in ids]
    assert [a.stop_reason for a in answers] == ["cancelled"] * 3
    for answer in answers[1:]:
        assert (answer.status, answer.usage.model_calls, answer.usage.dollars) == ("partial", 0, 0.0)
        assert "while it waited for its turn" in (answer.missing[0].reason or "")

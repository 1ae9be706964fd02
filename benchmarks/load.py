"""Many questions at once against `citehound serve`: errors, time per step, what is turned away, and memory.

    python benchmarks/load.py [--questions N] [--parallel 64] [--latency 0.2] [--steps 10] [--json]

The server is a real process over the bundled bank, its model the protocol server of the tests, which answers every
request `latency` seconds after it came. A question takes ten steps (nine turns with a search and a read, and an
answer). The overhead of a step is the time from its start to the start of the next, as the run's own events tell,
without the latency; of the last step, to the end of the run. All `parallel` questions are accepted; how many of them
are at work, and how many wait for their turn, is the server's to decide: what waiting takes is told beside it, and so
are the whole time of a question and how many steps a second all of them make. Aims: no errors, a p95 under 100 ms,
questions beyond `parallel` turned away at once with Retry-After, and resident memory flat within 10 % after the first
tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from loads import STEPS
from model_server import serve as model_server

ROOT = Path(__file__).resolve().parents[1]
MODEL = "claude-sonnet-5"
MAX_OVERHEAD = 0.100
MAX_GROWTH = 0.10
MAX_REFUSAL = 1.0
"""Seconds in which a question too many must be turned away while all others run."""
EXCESS = 32


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one load came to. Times in seconds, memory in MB."""

    questions: int
    parallel: int
    latency: float
    errors: int
    wall: float
    step_p50: float
    """Overhead of a step."""
    step_p95: float
    waited_p50: float
    """From asking to the start of the first step."""
    waited_p95: float
    question_p50: float
    """From asking to the answer."""
    question_p95: float
    steps_per_second: float
    at_work: int
    """The most questions that were at work at once, of those accepted."""
    refused: int
    """Of the questions sent while all places were taken."""
    refused_wrong: int
    """Those that got something else than 429 or 503 with Retry-After."""
    refusal_p95: float
    server_cpu_per_step: float
    """CPU seconds of the server's process."""
    memory_early: float
    """Resident, after the first tenth of the questions."""
    memory_late: float
    memory_growth: float

    @property
    def good(self) -> bool:
        return (
            self.errors == 0
            and self.step_p95 < MAX_OVERHEAD
            and self.refused > 0
            and self.refused_wrong == 0
            and self.refusal_p95 < MAX_REFUSAL
            and self.memory_growth <= MAX_GROWTH
        )


@dataclass(kw_only=True)
class _Seen:
    steps: list[float] = field(default_factory=list[float])
    waited: list[float] = field(default_factory=list[float])
    questions: list[float] = field(default_factory=list[float])
    working: int = 0
    at_work: int = 0
    errors: list[str] = field(default_factory=list[str])
    done: int = 0
    memory: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])


@contextmanager
def served(folder: Path, model_url: str, *, parallel: int) -> Generator[tuple[str, int]]:
    """The server's URL and process id."""
    shutil.copytree(ROOT / "src" / "citehound" / "demos" / "bank", folder, dirs_exist_ok=True)
    path = folder / "citehound.toml"
    settings = f'[model]\nname = "anthropic:{MODEL}"\nbase_url = "{model_url}"\n'
    settings += f"[budget]\nmax_steps = {STEPS + 2}\nmax_dollars = 5.0\nmax_seconds = 900.0\n"
    settings += f"[server]\nmax_questions = {parallel}\nquestions_per_minute = 1000000\nrequests_per_minute = 1000000\n"
    path.write_text(settings + _sources(path.read_text("utf-8")), "utf-8")
    command = [sys.executable, "-m", "citehound", "serve", "--port", "0", "--config", str(path)]
    env = {**os.environ, "ANTHROPIC_API_KEY": "none"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    try:
        url = ""
        for line in process.stderr:
            if found := re.search(r"serving at (\S+)", line):
                url = found[1]
                break
        if not url:
            raise SystemExit("the server did not start: 'citehound serve' says why")
        while httpx2.get(f"{url}/readyz").status_code != 200:
            time.sleep(0.1)
        yield url, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        if "Traceback" in said:
            raise SystemExit(f"the server wrote a traceback: {said}")


def _sources(toml: str) -> str:
    return toml[toml.index("[[sources]]") :]


async def _ask(client: httpx2.AsyncClient, number: int, seen: _Seen, *, latency: float, steps: int) -> None:
    """One question, followed as events."""
    body = {"question": f"Does contract number {number} comply with the outsourcing policy?", "mode": "agent"}
    began = time.perf_counter()
    starts: list[float] = []
    waited = 0.0
    answer: dict[str, Any] | None = None
    try:
        async with client.stream("POST", "/v1/ask", json=body, headers={"Accept": "text/event-stream"}) as reply:
            if reply.status_code != 200:
                seen.errors.append(f"{reply.status_code}: {(await reply.aread())[:200]!r}")
                return
            async for line in reply.aiter_lines():
                if not line.startswith("data: "):
                    continue
                if '"step_started"' in line[:60]:
                    if not starts:
                        waited = time.perf_counter() - began
                        seen.working += 1
                        seen.at_work = max(seen.at_work, seen.working)
                    starts.append(float(json.loads(line[6:])["seconds"]))
                elif '"type": "answer"' in line[:60]:
                    answer = json.loads(line[6:])["answer"]
    except httpx2.HTTPError as error:
        seen.errors.append(f"{type(error).__name__}: {error}")
        return
    finally:
        seen.working -= bool(starts)
    if answer is None or answer["stop_reason"] != "answered" or len(starts) != steps:
        seen.errors.append(f"{len(starts)} steps, {answer and (answer['stop_reason'], answer['warnings'])}")
        return
    ends = [*starts[1:], float(answer["usage"]["seconds"])]
    seen.steps += [end - start - latency for start, end in zip(starts, ends, strict=True)]
    seen.waited.append(waited)
    seen.questions.append(time.perf_counter() - began)


async def _excess(client: httpx2.AsyncClient, number: int) -> tuple[float, bool]:
    """How long a question too many took to be turned away, and whether that was done as it should be."""
    began = time.perf_counter()
    reply = await client.post("/v1/ask", json={"question": f"One too many, {number}?", "mode": "agent"})
    good = reply.status_code in (429, 503) and reply.headers.get("retry-after", "").isdigit()
    return time.perf_counter() - began, good


async def _load(
    url: str, pid: int, *, questions: int, parallel: int, latency: float, steps: int
) -> tuple[_Seen, list[tuple[float, bool]]]:
    seen = _Seen()
    turned_away: list[tuple[float, bool]] = []
    numbers = iter(range(questions))
    full = asyncio.Event()
    limits = httpx2.Limits(max_connections=parallel + EXCESS)
    async with httpx2.AsyncClient(base_url=url, timeout=900, limits=limits, trust_env=False) as client:

        async def work() -> None:
            for number in numbers:
                await _ask(client, number, seen, latency=latency, steps=steps)
                seen.done += 1
                if seen.done % max(1, questions // 100) == 0:
                    seen.memory.append((seen.done, resident(pid)))

        async def too_many() -> None:
            await full.wait()
            turned_away.extend(await asyncio.gather(*(_excess(client, number) for number in range(EXCESS))))

        async def watch() -> None:
            # All places are taken once every worker has its question under way.
            while len((await client.get("/v1/runs?limit=1")).json()["running"]) < parallel and seen.done == 0:
                await asyncio.sleep(0.02)
            full.set()

        await asyncio.gather(too_many(), watch(), *(work() for _ in range(parallel)))
    return seen, turned_away


def resident(pid: int) -> float:
    """MB of memory that a process has in RAM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the system does not tell the memory of a process")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else float("nan")


def measure(*, questions: int, parallel: int, latency: float, steps: int = STEPS) -> Load:
    module = f"{Path(__file__).resolve().parent / 'loads.py'}:slow"
    os.environ.update({"LOAD_LATENCY": str(latency), "LOAD_STEPS": str(steps)})
    with (
        tempfile.TemporaryDirectory() as folder,
        model_server(module=module, cache=False) as model,
        served(Path(folder), model.base_url, parallel=parallel) as (url, pid),
    ):
        cpu, began = cpu_seconds(pid), time.perf_counter()
        seen, turned_away = asyncio.run(
            _load(url, pid, questions=questions, parallel=parallel, latency=latency, steps=steps)
        )
        wall, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    for error in seen.errors[:5]:
        print(error, file=sys.stderr)
    tenth = max(1, questions // 10)
    early = statistics.median([mb for done, mb in seen.memory if done <= 2 * tenth and done >= tenth] or [float("nan")])
    late = statistics.median([mb for done, mb in seen.memory if done >= questions - tenth] or [float("nan")])
    return Load(
        questions=questions,
        parallel=parallel,
        latency=latency,
        errors=len(seen.errors),
        wall=wall,
        step_p50=percentile(seen.steps, 0.5),
        step_p95=percentile(seen.steps, 0.95),
        waited_p50=percentile(seen.waited, 0.5),
        waited_p95=percentile(seen.waited, 0.95),
        question_p50=percentile(seen.questions, 0.5),
        question_p95=percentile(seen.questions, 0.95),
        steps_per_second=len(seen.steps) / wall,
        at_work=seen.at_work,
        refused=len(turned_away),
        refused_wrong=sum(1 for _, good in turned_away if not good),
        refusal_p95=percentile([seconds for seconds, _ in turned_away], 0.95),
        server_cpu_per_step=cpu / max(1, len(seen.steps)),
        memory_early=early,
        memory_late=late,
        memory_growth=late / early - 1,
    )


def table(load: Load) -> str:
    rows = [
        ("questions", f"{load.questions}, {load.parallel} at once"),
        ("errors", f"{load.errors}"),
        ("overhead per step", f"p50 {1000 * load.step_p50:.0f} ms, p95 {1000 * load.step_p95:.0f} ms"),
        ("CPU of the server per step", f"{1000 * load.server_cpu_per_step:.1f} ms"),
        ("at work at once, at most", f"{load.at_work}"),
        ("waiting for the first step", f"p50 {load.waited_p50:.2f} s, p95 {load.waited_p95:.2f} s"),
        ("question, from asking to answer", f"p50 {load.question_p50:.2f} s, p95 {load.question_p95:.2f} s"),
        ("steps of all", f"{load.steps_per_second:.1f} a second"),
        (
            "turned away",
            f"{load.refused - load.refused_wrong} of {load.refused} rightly, p95 {1000 * load.refusal_p95:.0f} ms",
        ),
        (
            "resident memory",
            f"{load.memory_early:.0f} MB early, {load.memory_late:.0f} MB late ({load.memory_growth:+.1%})",
        ),
        ("wall time", f"{load.wall:.1f} s"),
    ]
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Many questions at once against the server.")
    parser.add_argument("--questions", type=int, default=64)
    parser.add_argument("--parallel", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds that the model server takes")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each question")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    load = measure(questions=args.questions, parallel=args.parallel, latency=args.latency, steps=args.steps)
    print(json.dumps({**asdict(load), "good": load.good}, indent=2) if args.json else table(load))
    return 0 if load.good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Time, CPU and memory that a framework adds to each step: this loop, LangChain's agent, and plain SDK calls.

    python benchmarks/overhead.py [--runs N] [--python PATH] [--json]

One local server with no latency plays the same ten steps to all: nine turns with a search and a read each, and an
answer. Each contestant is a process of its own with the same tools: the very functions of the product over the bundled
bank. `floor` calls the `anthropic` client, runs the tools one after another and sends the results back, nothing else.
Aims: less per step than LangChain, and at most twice the floor. LangChain is not among what developing needs:
`make bench-overhead` installs requirements/bench.in into an environment of its own, and `--python` names another.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from loads import STEPS
from model_server import serve

ROOT = Path(__file__).resolve().parents[1]
CONTESTANTS = ("floor", "floor, streamed", "citehound", "citehound, streamed", "langchain")
MODEL = "claude-sonnet-5"
QUESTION = "Does the contract with supplier Alpha comply with the current outsourcing policy?"
INSTRUCTIONS = "Answer from the documents, with the tools given. Quote what you read."
TIMES_THE_FLOOR = 2.0
WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class Row:
    """Milliseconds per step (median over the runs) and memory of a contestant's process."""

    name: str
    wall_ms: float
    cpu_ms: float
    added_ms: float
    """Wall time above the floor that reads replies in the same way."""
    times_floor: float
    start_s: float
    """Importing and building, up to the first request."""
    peak_mb: float
    installed: bool = True


Once = Callable[[], Awaitable[None]]


# The contestants. Each is built in a process of its own.


def _corpus(folder: Path) -> Any:
    """The bundled bank, indexed in `folder` by whoever comes first."""
    from citehound import config, demos
    from citehound.corpus import Corpus

    path = folder / "citehound.toml"
    first = not path.exists()
    if first:
        shutil.copytree(Path(demos.__file__).parent / "bank", folder, dirs_exist_ok=True)
    corpus = Corpus.open(config.load(path, env={}), write=first)
    if first:
        corpus.sync()
    return corpus


def _tools(corpus: Any) -> dict[str, Any]:
    from citehound.access import OWNER
    from citehound.toolbox import corpus_tools

    return {tool.name: tool for tool in corpus_tools(corpus, principal=OWNER)}


def floor(url: str, corpus: Any, *, stream: bool) -> Once:
    import anthropic

    client: Any = anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
    tools = _tools(corpus)
    schemas = [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in tools.values()]

    async def send(messages: list[dict[str, Any]]) -> Any:
        wanted: dict[str, Any] = {"model": MODEL, "max_tokens": 1500, "system": INSTRUCTIONS, "tools": schemas}
        if not stream:
            return await client.messages.create(messages=messages, **wanted)
        async with client.messages.stream(messages=messages, **wanted) as reply:
            return await reply.get_final_message()

    async def once() -> None:
        messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
        while True:
            reply = await send(messages)
            calls = [part for part in reply.content if part.type == "tool_use"]
            if not calls:
                return
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": json.dumps(tools[call.name].run(call.input, 3000).result, ensure_ascii=False),
                }
                for call in calls
            ]
            messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]

    return once


def product(url: str, corpus: Any, *, stream: bool) -> Once:
    from citehound import agent
    from citehound.access import OWNER
    from citehound.budget import Budget, Meter
    from citehound.config import ModelConfig
    from citehound.evidence import Ledger
    from citehound.loop import Conversation
    from citehound.models import open_model
    from citehound.toolbox import Toolbox

    os.environ["ANTHROPIC_API_KEY"] = "none"
    opened = open_model(ModelConfig(name=f"anthropic:{MODEL}", base_url=url, stream=stream))
    held = False

    async def once() -> None:
        nonlocal held
        if not held:  # its connections last from run to run, as on a server, and as those of the others do
            await opened.model.__aenter__()
            held = True
        ledger = Ledger()
        conversation = Conversation(
            model=opened,
            meter=Meter(Budget(max_dollars=5.0, max_steps=STEPS + 2)),
            ledger=ledger,
            documents=corpus.view(principal=OWNER),
            question=QUESTION,
            toolbox=Toolbox(corpus, principal=OWNER, ledger=ledger),
        )
        outcome = await agent.run_agent(conversation, sources=corpus.sources)
        if outcome.stop_reason != "answered" or not outcome.claims:
            raise SystemExit(f"the run did not answer: {outcome}")

    return once


def langchain(url: str, corpus: Any) -> Once:
    """LangChain's `create_agent` with `ChatAnthropic`, as its documentation has it."""
    create_agent = cast(Any, importlib.import_module("langchain.agents")).create_agent
    structured = cast(Any, importlib.import_module("langchain_core.tools")).StructuredTool
    model = cast(Any, importlib.import_module("langchain_anthropic")).ChatAnthropic(
        model=MODEL, anthropic_api_url=url, api_key="none", max_tokens=1500, max_retries=0
    )

    def wrapped(tool: Any) -> Any:
        def run(**arguments: Any) -> str:
            return json.dumps(tool.run(arguments, 3000).result, ensure_ascii=False)

        schema = {"title": tool.name, "description": tool.description, **tool.parameters}
        return structured(name=tool.name, description=tool.description, args_schema=schema, func=run)

    graph = create_agent(model, [wrapped(tool) for tool in _tools(corpus).values()], system_prompt=INSTRUCTIONS)

    async def once() -> None:
        asked = {"messages": [{"role": "user", "content": QUESTION}]}
        state = await graph.ainvoke(asked, {"recursion_limit": 10 * STEPS})
        if len(state["messages"]) < 2 * STEPS:
            raise SystemExit(f"the run ended early: {state['messages'][-1]}")

    return once


def contest(name: str, url: str, folder: Path, *, profile: Path | None = None) -> None:
    """One contestant, in this process: builds itself, then makes one run for each line of its input.

    Prints a line of JSON when built, after each run, and at the end.
    """
    with asyncio.Runner() as runner:
        corpus = _corpus(folder)
        began = time.perf_counter()
        once = {
            "floor": lambda: floor(url, corpus, stream=False),
            "floor, streamed": lambda: floor(url, corpus, stream=True),
            "citehound": lambda: product(url, corpus, stream=False),
            "citehound, streamed": lambda: product(url, corpus, stream=True),
            "langchain": lambda: langchain(url, corpus),
        }[name]()
        print(json.dumps({"start_s": time.perf_counter() - began}), flush=True)
        profiler = None
        if profile is not None:
            import cProfile

            profiler = cProfile.Profile()
        for number, _ in enumerate(sys.stdin):
            if profiler is not None and number == WARM_UP:
                profiler.enable()
            wall, cpu = time.perf_counter(), time.process_time()
            runner.run(_awaited(once))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            print(json.dumps({"wall_ms": 1000 * wall / STEPS, "cpu_ms": 1000 * cpu / STEPS}), flush=True)
        if profiler is not None and profile is not None:
            profiler.disable()
            profiler.dump_stats(profile)
        print(json.dumps({"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)
        corpus.close()


async def _awaited(once: Once) -> None:
    await once()


# The measuring process.


def has_langchain(python: str) -> bool:
    found = subprocess.run(
        [python, "-c", "import langchain.agents, langchain_anthropic"], capture_output=True, check=False
    )
    return found.returncode == 0


class _Process:
    """A contestant's process, and what it said so far."""

    def __init__(self, name: str, python: str, url: str, folder: Path, *, profile: Path | None = None) -> None:
        command = [python, str(Path(__file__).resolve()), "--one", name, "--url", url, "--folder", str(folder)]
        if profile is not None:
            command += ["--profile", str(profile)]
        self.name = name
        self.runs: list[dict[str, float]] = []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start_s = self._answer()["start_s"]
        self.peak_mb = 0.0

    def run(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        self.runs.append(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self.peak_mb = self._answer()["peak_mb"]
        self._process.stdout.close()
        self._process.wait()

    def typical(self, key: str, *, after: int) -> float:
        return statistics.median(run[key] for run in self.runs[after:])

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise SystemExit(f"{self.name} failed: its error is above")
        return cast(dict[str, float], json.loads(line))


def measure(
    *,
    runs: int,
    python: str,
    names: Sequence[str] = CONTESTANTS,
    warm_up: int = WARM_UP,
    profile: Path | None = None,
) -> list[Row]:
    """Runs all contestants in turn, one run each, so that other work on the machine meets them alike."""
    module = f"{Path(__file__).resolve().parent / 'loads.py'}:steady"
    there = [name for name in names if name != "langchain" or has_langchain(python)]
    with tempfile.TemporaryDirectory() as folder, serve(module=module, cache=False) as server:
        _corpus(Path(folder)).close()
        processes = [
            _Process(name, python, server.base_url, Path(folder), profile=profile if name == "citehound" else None)
            for name in there
        ]
        for _ in range(runs + warm_up):
            for process in processes:
                process.run()
        for process in processes:
            process.close()
    got: dict[str, dict[str, float]] = {
        p.name: {
            "wall_ms": p.typical("wall_ms", after=warm_up),
            "cpu_ms": p.typical("cpu_ms", after=warm_up),
            "start_s": p.start_s,
            "peak_mb": p.peak_mb,
        }
        for p in processes
    }
    rows: list[Row] = []
    for name, values in got.items():
        under = got["floor, streamed" if name.endswith("streamed") else "floor"]
        rows.append(
            Row(
                name=name,
                wall_ms=values["wall_ms"],
                cpu_ms=values["cpu_ms"],
                added_ms=values["wall_ms"] - under["wall_ms"],
                times_floor=values["wall_ms"] / under["wall_ms"],
                start_s=values["start_s"],
                peak_mb=values["peak_mb"],
            )
        )
    if "langchain" in names and "langchain" not in got:
        nothing = float("nan")
        rows.append(
            Row(
                name="langchain",
                wall_ms=nothing,
                cpu_ms=nothing,
                added_ms=nothing,
                times_floor=nothing,
                start_s=nothing,
                peak_mb=nothing,
                installed=False,
            )
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| | wall ms per step | CPU ms per step | added ms per step | times the floor | start s | peak MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        if not r.installed:
            lines.append(f"| {r.name} | not installed | | | | | |")
            continue
        lines.append(
            f"| {r.name} | {r.wall_ms:.2f} | {r.cpu_ms:.2f} | {r.added_ms:.2f} | {r.times_floor:.2f} "
            f"| {r.start_s:.2f} | {r.peak_mb:.0f} |"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    beside = ROOT / ".venv-bench" / "bin" / "python"
    parser = argparse.ArgumentParser(description="What a framework adds to each step.")
    parser.add_argument("--runs", type=int, default=30, help="runs of ten steps per contestant")
    parser.add_argument("--python", default=str(beside) if beside.exists() else sys.executable)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", choices=CONTESTANTS, help="run one contestant in this process, against --url")
    parser.add_argument("--url")
    parser.add_argument("--folder", type=Path)
    parser.add_argument(
        "--profile", type=Path, help="write cProfile's figures of `citehound` here, and run nothing else"
    )
    args = parser.parse_args(argv)
    if args.one:
        contest(args.one, args.url, args.folder, profile=args.profile)
        return 0
    if args.profile:
        measure(runs=args.runs, python=args.python, names=("floor", "citehound"), profile=args.profile)
        return 0
    rows = measure(runs=args.runs, python=args.python)
    print(json.dumps([asdict(row) for row in rows], indent=2) if args.json else table(rows))
    named = {row.name: row for row in rows}
    ours, theirs = named["citehound"], named["langchain"]
    slower = theirs.installed and ours.wall_ms >= theirs.wall_ms
    return 1 if slower or ours.times_floor > TIMES_THE_FLOOR else 0


if __name__ == "__main__":
    sys.exit(main())

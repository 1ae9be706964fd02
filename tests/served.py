"""A Citehound server as a process of its own, for the length of a `with`; shared by browser tests and `make docs`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

ROOT = Path(__file__).resolve().parents[1]
BANK = ROOT / "src" / "citehound" / "demos" / "bank"
START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Served:
    url: str
    process: subprocess.Popen[str]
    said: list[str]
    """The lines on its stderr so far."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def serving(
    config: Path, *arguments: str, port: int = 0, env: Mapping[str, str] | None = None, ready: bool = True
) -> Generator[Served]:
    """The server over `config`, ready to answer unless told otherwise; it is told to end, and waited for, afterwards.

    `env` comes on top of the environment.
    """
    command = [sys.executable, "-m", "citehound", "serve", "--port", str(port), "--config", str(config), *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    env = {**inherited, **(env or {})}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)
    assert process.stderr is not None
    said: list[str] = []
    url = ""
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"serving at (http://\S+)", line):
            url = found.group(1)
            break
    rest = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    rest.start()
    try:
        if not url:
            raise RuntimeError(f"the server did not start: {''.join(said)}")
        if ready:
            _wait(f"{url}/readyz", lambda: process.poll() is None, said)
        yield Served(url=url, process=process, said=said)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        rest.join(timeout=5)
        process.stderr.close()


def _wait(url: str, alive: Callable[[], bool], said: list[str]) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    last = time.monotonic() + START_SECONDS
    while alive() and time.monotonic() < last:
        try:
            with opener.open(url, timeout=30):
                return
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the server did not get ready: {''.join(said)}")


def bank(folder: Path) -> Path:
    """A copy of the bundled bank corpus; returns its configuration."""
    shutil.copytree(BANK, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".citehound"))
    return folder / "citehound.toml"


@contextmanager
def live(app: FastAPI, listening: socket.socket) -> Generator[str]:
    """An application of this process on a real socket, for the length of a `with`; gives its URL."""
    from citehound.server.app import server_for

    server = server_for(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    thread.start()
    try:
        _wait(f"{url}/readyz", thread.is_alive, ["in this process"])
        yield url
    finally:
        server.should_exit = True
        thread.join(timeout=60)

"""A process that has imported everything, and for each request forks a child, which it kills after a while.

A request is a line of JSON, `{"script", "arguments", "seconds", "out"}`; the answer is the exit code of the child, -9
for one that was killed. The child's stdout goes to the file `out`. It is killed `seconds` after its first line.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import syncer
import writer

import citehound.parsing.formats
import citehound.sources.files  # noqa: F401  (imported here so that no child needs to)

SCRIPTS = {"writer.py": writer.main, "syncer.py": syncer.main}


def child(script: str, arguments: list[str], out: str, began: int) -> None:
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    sys.stdout = Told(os.fdopen(1, "w", encoding="utf-8"), began)  # pyright: ignore[reportAttributeAccessIssue]
    code = 1
    try:
        SCRIPTS[script](*arguments)
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


class Told:
    """stdout that tells the parent of its first line."""

    def __init__(self, file: object, began: int) -> None:
        self.file = file
        self.began: int | None = began

    def write(self, text: str) -> int:
        self.file.write(text)  # type: ignore[attr-defined]
        return len(text)

    def flush(self) -> None:
        self.file.flush()  # type: ignore[attr-defined]
        if self.began is not None:
            os.write(self.began, b".")
            self.began = None


def serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        ready, began = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ready)
            child(asked["script"], asked["arguments"], asked["out"], began)
        os.close(began)
        os.read(ready, 1)  # its first line, or its end
        handle = os.pidfd_open(pid)
        last = time.monotonic() + asked["seconds"]
        ended, _, _ = select.select([handle], [], [], max(0.0, last - time.monotonic()))
        if not ended:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(handle)
        os.close(ready)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()

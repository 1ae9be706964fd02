"""The one-writer lock of an index folder; a kill releases it, because the operating system holds it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from ..errors import IndexLocked

_POLL = 0.05


class WriteLock:
    """Held from `acquire` to `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def try_acquire(self) -> bool:
        """True when the lock is now held by this object. Raises OSError where the folder cannot be written."""
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:
            os.close(file)
            raise
        who = {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(who).encode(), 0)
        self._file = file
        return True

    def acquire(self, *, seconds: float) -> None:
        """Waits up to `seconds`, then raises IndexLocked naming the process that holds the lock."""
        deadline = time.monotonic() + seconds
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                raise IndexLocked(
                    f"{self._holder()} is writing this index and did not finish within {seconds:g} s;"
                    " wait for it to end, then try again"
                )
            time.sleep(_POLL)

    def is_free(self) -> bool:
        """True when no one holds the lock at this moment. Does not take it, as far as others can tell."""
        if self._file is not None:
            return False
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _holder(self) -> str:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            who = json.loads(self._path.read_text("utf-8"))
            return f"process {who['pid']} (since {who['since']})"
        return "another process"

"""The file of API tokens: makes, lists, removes and recognises them; only their hashes are stored."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from ..access import OWNER, Principal
from ..errors import CitehoundError, UsageError
from ..readonly import private_folder

FILE = "tokens.json"
FIRST = "first"
"""The name of the token that is made when one is needed and there is none."""
_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_PREFIX = "ch_"
"""So that a token is known for one when it is found in a log or a repository."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """What is known of a token; not the token itself."""

    name: str
    sha256: str
    groups: tuple[str, ...] = ()
    owner: bool = False
    created: float = 0.0
    """Seconds since the epoch."""

    @property
    def principal(self) -> Principal:
        return Principal(name=self.name, groups=frozenset(self.groups), owner=self.owner, token=self.sha256)


class Tokens:
    """The tokens in one file, which is read again when it changes. Safe under threads.

    Where the file cannot be read nobody has a token, and `any` still says that some are needed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._known: tuple[Token, ...] = ()
        self._broken: str | None = None

    def any(self) -> bool:
        """True when a token is needed: there are some, or the file cannot be read."""
        self._refresh()
        return bool(self._known) or self._broken is not None

    def all(self) -> tuple[Token, ...]:
        """Raises CitehoundError when the file cannot be read."""
        self._refresh()
        if self._broken is not None:
            raise CitehoundError(self._broken)
        return self._known

    def find(self, given: str) -> Token | None:
        """The token that this is, or None; takes as long for a wrong one as for a right one."""
        self._refresh()
        digest = _digest(given)
        found = None
        for token in self._known:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return found

    def add(self, name: str, *, groups: Sequence[str] = (), owner: bool = False) -> str:
        """Makes a token and gives it; it cannot be shown again. Raises UsageError for a name that is not free."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"the name {name!r} is not possible: letters, digits and . _ @ + -, at most 64, first a letter or digit"
            )
        if name == OWNER.name and not owner:
            raise UsageError(f"the name {name!r} is kept for the owner; use another, or --owner")
        for group in groups:
            if not _NAME.fullmatch(group):
                raise UsageError(f"the group {group!r} is not possible: letters, digits and . _ @ + -, at most 64")
        secret = _PREFIX + secrets.token_urlsafe(_BYTES)
        made = Token(
            name=name, sha256=_digest(secret), groups=tuple(dict.fromkeys(groups)), owner=owner, created=time.time()
        )
        with self._changing() as known:
            if any(token.name == name for token in known):
                raise UsageError(f"there is a token {name!r} already; remove it first, or use another name")
            self._write((*known, made))
        return secret

    def remove(self, name: str) -> None:
        """Takes a token away; whoever has it is refused from the next request on. Raises UsageError without one."""
        with self._changing() as known:
            left = tuple(token for token in known if token.name != name)
            if len(left) == len(known):
                names = ", ".join(repr(token.name) for token in known) or "none"
                raise UsageError(f"there is no token {name!r}; there is {names}")
            self._write(left)

    @contextmanager
    def _changing(self) -> Generator[tuple[Token, ...]]:
        """What there is, while no other process changes it."""
        private_folder(self.path.parent)
        lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.all()
        finally:
            os.close(lock)

    def _refresh(self) -> None:
        with self._lock:
            try:
                stat = self.path.stat()
            except FileNotFoundError:
                self._stamp, self._known, self._broken = None, (), None
                return
            except OSError as error:
                self._stamp, self._known, self._broken = None, (), self._cannot(error)
                return
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if stamp == self._stamp:
                return
            try:
                self._known, self._broken = _read(self.path), None
                self._stamp = stamp
            except (OSError, ValueError, TypeError, KeyError) as error:
                self._stamp, self._known, self._broken = None, (), self._cannot(error)

    def _cannot(self, error: Exception) -> str:
        return f"the tokens in {str(self.path)!r} cannot be read ({error}); mend the file, or remove it to begin anew"

    def _write(self, tokens: Sequence[Token]) -> None:
        data = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=2) + "\n"
        temporary = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _read(path: Path) -> tuple[Token, ...]:
    data = cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
    found: list[Token] = []
    for entry in cast("list[dict[str, Any]]", data["tokens"]):
        name, digest, owner = entry["name"], entry["sha256"], entry.get("owner", False)
        groups = entry.get("groups", [])
        well = isinstance(name, str) and isinstance(digest, str) and len(digest) == 64 and isinstance(owner, bool)
        if not well or not isinstance(groups, list) or not all(isinstance(g, str) for g in cast("list[Any]", groups)):
            raise ValueError(f"the entry {entry.get('name')!r} is not as it was written")
        found.append(
            Token(
                name=name,
                sha256=digest,
                groups=tuple(cast("list[str]", groups)),
                owner=owner,
                created=float(entry.get("created", 0.0)),
            )
        )
    return tuple(found)

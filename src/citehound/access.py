"""Who asks, and which groups may see which documents: from configuration and paths alone, never from a document."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from .errors import ConfigError

EVERYONE = "*"
"""In place of a group: whoever may ask."""

_BELOW = re.compile(r"(?:/\*{1,2})+$|/$")
"""The end of a glob that means everything below."""
Audience = frozenset[str] | None
"""The groups that may see a document; None is everyone who may ask, no group at all leaves the owner."""


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who asks. Every function that reads takes one, with no default."""

    name: str
    """Whose runs these are; unique among those who may ask."""
    groups: frozenset[str] = frozenset()
    owner: bool = False
    """Sees every document and every run, and may change what others see."""
    token: str = field(default="", compare=False, repr=False)
    """SHA-256 of the token that says so; '' where something else does."""

    def may_see(self, audience: Audience) -> bool:
        return self.owner or audience is None or not audience.isdisjoint(self.groups)


OWNER = Principal(name="owner", owner=True)
"""Whoever runs the command line, and the only one on loopback without tokens."""


def audience(groups: Collection[str]) -> Audience:
    return None if EVERYONE in groups else frozenset(groups)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which groups may see the documents that one of some globs names."""

    paths: tuple[str, ...]
    """Over `<source>/<path>`, see `glob_pattern`."""
    groups: Audience

    def covers(self, names: Collection[str]) -> bool:
        return any(glob_pattern(path).fullmatch(name) for path in self.paths for name in names)

    def reaches(self, source: str) -> bool:
        """Whether it can name a document of a source."""
        return any(not (first := first_part(path)) or glob_pattern(first).fullmatch(source) for path in self.paths)

    def takes(self, source: str) -> bool:
        """Whether it names every document of a source, whatever its path."""
        bases = (_BELOW.sub("", path.removeprefix("/")) for path in self.paths)
        return any(base in ("", "*", "**") or glob_pattern(base).fullmatch(source) is not None for base in bases)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may see what, as the configuration says at one moment.

    The first rule that names a document decides, then its source, then: everyone who may ask. A document of a source
    that is not configured is the owner's alone.
    """

    sources: Mapping[str, Audience] = field(default_factory=dict[str, Audience])
    rules: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()
    """Rules that could not be read, each with what it denies now."""
    closed: bool = False
    """What is configured cannot be read at all: only the owner sees anything."""
    unconfigured: bool = False
    """There is no configuration that could deny anything."""

    @property
    def limited(self) -> bool:
        """Whether anything is denied to anybody."""
        return not self.unconfigured and (
            self.closed or bool(self.rules) or any(a is not None for a in self.sources.values())
        )

    def audience(self, *, document: str, source: str, path: str) -> Audience:
        """The groups that may see a document; `path` is the one in its source, also of a file inside another."""
        if self.unconfigured:
            return None
        if self.closed or source not in self.sources:
            return frozenset()
        if self.rules:
            names = names_of(document=document, source=source, path=path)
            for rule in self.rules:
                if rule.covers(names):
                    return rule.groups
        return self.sources[source]

    def may_search(self, principal: Principal, source: str) -> bool:
        """Whether a source can have a document that somebody may see; what is there does not matter."""
        if principal.owner or self.unconfigured:
            return True
        if self.closed or source not in self.sources:
            return False
        for rule in self.rules:
            if principal.may_see(rule.groups) and rule.reaches(source):
                return True
            if rule.takes(source):  # and so decides of all that no rule before it names
                return False
        return principal.may_see(self.sources[source])


UNCONFIGURED = Access(unconfigured=True)


def names_of(*, document: str, source: str, path: str) -> frozenset[str]:
    """What rules know a document by: its id, its path, and the source, folders and files that it is in."""
    parts = unicodedata.normalize("NFC", f"{source}/{path}").split("/")
    above = ("/".join(parts[:end]) for end in range(len(parts), 0, -1))
    return frozenset((unicodedata.normalize("NFC", document), *above))


def first_part(pattern: str) -> str:
    """What a glob says of the source; '' where it applies at any depth or names none."""
    pattern = pattern.removeprefix("/")
    first, slash, _ = pattern.partition("/")
    return first if slash and first != "**" else ""


@lru_cache(maxsize=1000)
def glob_pattern(pattern: str) -> re.Pattern[str]:
    """A glob over a whole relative path: `*` and `?` stay inside one folder, `**` crosses folders.

    A pattern without a slash applies at any depth; one that ends in a slash means everything below.
    """
    pattern = unicodedata.normalize("NFC", pattern)
    if pattern.endswith("/"):
        pattern += "**"
    if "/" not in pattern:
        pattern = "**/" + pattern
    pattern = pattern.removeprefix("/")
    parts: list[str] = []
    for token in re.findall(r"\*\*/|\*\*|\*|\?|\[!?[^\]/]+\]|.", pattern, re.DOTALL):
        match token:
            case "**/":
                parts.append("(?:.*/)?")
            case "**":
                parts.append(".*")
            case "*":
                parts.append("[^/]*")
            case "?":
                parts.append("[^/]")
            case _ if len(token) > 1:
                inside = token[1:-1].replace("\\", "\\\\")
                parts.append("[" + ("^" + inside[1:] if inside.startswith("!") else inside) + "]")
            case _:
                parts.append(re.escape(token))
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise ConfigError(f"glob {pattern!r} is not valid; use *, ** and ? only") from error

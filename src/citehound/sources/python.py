"""A Python callable as a source: calls it within its time and takes apart what it returns; it keeps and ranks nothing.

`source` is the decorator that gives a function its description; a function without it can be a source as well.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

from ..access import audience
from ..config import SourceConfig
from ..documents import RawDocument
from ..errors import ConfigError, EgressRefused, SourceFailed, UsageError
from ..shapes import TITLES, field_of, items_of, metadata_of, opening, text_of
from . import Found, Results

MOST_RESULTS = 50
_MOST_STUCK = 4
"""Calls of one function that may hang beyond their time before it is called no more."""
_OWN = ("id", "doc_id", "document_id", "uuid", "key")
_PLACES = ("path", "file", "file_path", "filename", "url", "source", "document")
_MARK = "__citehound_source__"
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class _Marked:
    config: SourceConfig
    values: Mapping[str, tuple[str, ...]]


def source(
    *,
    description: str = "",
    filters: Sequence[str] | Mapping[str, Sequence[str]] = (),
    name: str | None = None,
    private: bool = True,
    trust: str = "reviewed",
    access: Sequence[str] | None = None,
    egress: bool = False,
    timeout: float = 30.0,
    fee: float = 0.0,
) -> Callable[[_F], _F]:
    """Marks a function, sync or async, as a source: `Assistant.open(path, sources=[f])` or `Assistant.over(f)`.

    The function is called as `f(query, k=…, <filter>=…)`, with `k` if it takes one, and returns what it likes: texts,
    dicts, documents of LangChain or LlamaIndex, (document, score) pairs. It is otherwise left as it is. `name` is its
    own name where none is given; `description` says when to search it (its docstring, where none is given). `filters`
    names what it can be narrowed by, as a mapping with the values each can have; a value that is not among them finds
    nothing. `access`: the groups that may search it, where not everyone who may ask. `egress`: it sends the
    query to a system of others. `fee`: dollars that a call costs.

    Raises UsageError when the function cannot be called so.
    """
    given: Mapping[str, Sequence[str]] = filters if isinstance(filters, Mapping) else {key: () for key in filters}
    values = {key: tuple(map(str, known)) for key, known in given.items()}
    if trust not in ("reviewed", "open"):
        raise UsageError(f"trust is {trust!r}: it is 'reviewed' or 'open'")
    if not timeout > 0 or not fee >= 0:
        raise UsageError(f"timeout {timeout!r} must be above 0, and fee {fee!r} at least 0")

    def mark(function: _F) -> _F:
        config = SourceConfig(
            name=_name_of(function) if name is None else name,
            path=Path(),
            kind="python",
            description=" ".join((description or inspect.getdoc(function) or "").split()),
            filters=tuple(values),
            private=private,
            trust=trust,
            access=None if access is None else audience(access),
            egress=egress,
            timeout=timeout,
            fee=fee,
            call=f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}",
        )
        marked = _Marked(config=config, values=values)
        made = PythonSource(config=config, function=function, known=values)
        made.check_signature()
        try:
            setattr(function, _MARK, marked)
        except AttributeError:
            raise UsageError(f"{function!r} cannot be marked; wrap it in a function of its own") from None
        return function

    return mark


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name or name == "<lambda>":
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(function).__name__).lower() if not name else "search"
    return name.strip("_") or "source"


@dataclass(frozen=True, kw_only=True)
class PythonSource:
    """A callable and what is known of it."""

    config: SourceConfig
    function: Callable[..., Any]
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    stuck: list[threading.Thread] = field(default_factory=list[threading.Thread], repr=False, compare=False)
    """Calls that went on beyond their time."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> PythonSource:
        """The source that a function is, marked by `source` or not. Raises UsageError."""
        if not callable(function):
            raise UsageError(f"{function!r} is no function: a source is called as f(query)")
        marked = getattr(function, _MARK, None)
        if isinstance(marked, _Marked):
            return cls(config=marked.config, function=function, known=marked.values)
        config = SourceConfig(
            name=_name_of(function),
            path=Path(),
            kind="python",
            description=" ".join((inspect.getdoc(function) or "").split())[:300] if inspect.isroutine(function) else "",
            call=f"{type(function).__module__}:{type(function).__qualname__}",
        )
        made = cls(config=config, function=function)
        made.check_signature()
        return made

    @classmethod
    def load(cls, config: SourceConfig) -> PythonSource:
        """The function that the configuration names; what it says ranks above the function's own marks.

        Raises ConfigError.
        """
        said = f"source {config.name!r}: call {config.call!r}"
        module, _, name = (config.call or "").partition(":")
        if not re.fullmatch(r"[\w.]+", module) or not re.fullmatch(r"[\w.]+", name):
            raise ConfigError(f"{said} is not of the form 'package.module:function'")
        own_library = f"{said} is of Python's own library, which searches nothing; name a function of yours"
        if module.partition(".")[0] in sys.stdlib_module_names:  # a configuration of others could run commands with it
            raise ConfigError(own_library)
        try:
            function: Any = importlib.import_module(module)
            for part in name.split("."):
                function = getattr(function, part)
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ConfigError(f"{said} cannot be loaded ({why}); is its package installed here?") from error
        if not callable(function):
            raise ConfigError(f"{said} is no function")
        if inspect.isroutine(function) or inspect.isclass(function):
            home = str(getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__)
            if home.partition(".")[0] in sys.stdlib_module_names:
                raise ConfigError(own_library)
        try:
            own = cls.of(cast("Callable[..., Any]", function))
            filters = config.filters or own.config.filters
            access = config.access if config.access is not None else own.config.access
            config = replace(
                config, description=config.description or own.config.description, filters=filters, access=access
            )
            made = cls(config=config, function=own.function, known=own.known)
            made.check_signature()
        except UsageError as error:
            raise ConfigError(f"{said}: {error}") from None
        return made

    def values(self, key: str) -> tuple[str, ...]:
        return self.known.get(key, ())

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter] | None:
        try:
            return inspect.signature(self.function).parameters
        except (TypeError, ValueError):  # of some functions written in C nothing is known
            return None

    def check_signature(self) -> None:
        """Raises UsageError for a function that cannot be called as f(query, k=…, filter=…)."""
        parameters = self._parameters
        name = self.config.name
        if not name.strip() or name != name.strip() or "/" in name or "\\" in name or not name.isprintable():
            raise UsageError(f"the source name {name!r} must be one printable word or phrase without slashes")
        if parameters is None:
            return
        kinds = inspect.Parameter
        first = next(iter(parameters.values()), None)
        if first is None or first.kind in (kinds.KEYWORD_ONLY, kinds.VAR_KEYWORD):
            raise UsageError(f"the source {name!r} takes no query: its function is called as {name}(query)")
        for key in self.config.filters:
            if not self._takes(key) or key == first.name:
                raise UsageError(f"the source {name!r} has the filter {key!r}, but its function takes no {key!r}")
        needed = [
            p.name
            for p in list(parameters.values())[1:]
            if p.default is kinds.empty and p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) and p.name != "k"
        ]
        if needed:
            raise UsageError(f"the source {name!r} needs {needed[0]!r} with every call: give it a default")

    def _takes(self, name: str) -> bool:
        parameters = self._parameters
        if parameters is None:
            return name != "k"
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
            return True
        found = parameters.get(name)
        return found is not None and found.kind in (
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            inspect.Parameter.KEYWORD_ONLY,
        )

    async def search(self, query: str, *, filters: Mapping[str, str], k: int) -> Results:
        """What the function gives. Raises SourceFailed with what it raised, or when it takes too long."""
        name, seconds = self.config.name, self.config.timeout
        self.stuck[:] = [thread for thread in self.stuck if thread.is_alive()]
        if len(self.stuck) >= _MOST_STUCK:
            raise SourceFailed(f"{name!r} is not called again: {len(self.stuck)} calls of it still hang")
        arguments: dict[str, Any] = dict(filters)
        if self._takes("k"):
            arguments["k"] = k
        try:
            async with asyncio.timeout(seconds):
                result = await self._called(query, arguments)
        except TimeoutError:
            raise SourceFailed(f"{name!r} took longer than {seconds:g} s") from None
        try:
            return self._results(result)
        except SourceFailed:
            raise
        except Exception as error:  # a result whose attributes raise
            raise SourceFailed(f"{name!r} gave what cannot be read ({_said(error)})") from None

    async def _called(self, query: str, arguments: Mapping[str, Any]) -> Any:
        function = self.function
        try:
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
                getattr(function, "__call__", None)  # noqa: B004
            ):
                result = await function(query, **arguments)
            elif inspect.isasyncgenfunction(function):
                result = function(query, **arguments)
            else:
                result = await self._in_thread(query, arguments)
                if inspect.isawaitable(result):
                    result = await result
            if hasattr(result, "__aiter__"):
                listed: list[Any] = []
                async for item in result:
                    listed.append(item)
                    if len(listed) >= MOST_RESULTS:
                        break
                return listed
            return result
        except (asyncio.CancelledError, SourceFailed):
            raise
        except BaseException as error:  # also SystemExit: a function of others must not end the process
            raise SourceFailed(f"{self.config.name!r} failed ({_said(error)})") from None

    async def _in_thread(self, query: str, arguments: Mapping[str, Any]) -> Any:
        """Runs the function in a thread of its own, which is left behind when its time is up: it cannot be ended."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def tell(outcome: tuple[Any, BaseException | None]) -> None:
            if not done.done():
                done.set_result(outcome)

        def work() -> None:
            result: Any = None
            problem: BaseException | None = None
            try:
                result = context.run(self.function, query, **arguments)
                if hasattr(result, "__next__"):
                    result = _first(result)
            except BaseException as error:
                problem = error
            try:
                loop.call_soon_threadsafe(tell, (result, problem))
            except RuntimeError:  # the loop has gone meanwhile; nobody waits any more
                return

        thread = threading.Thread(target=work, name=f"source-{self.config.name}", daemon=True)
        thread.start()
        try:
            result, problem = await done
        except asyncio.CancelledError:
            self.stuck.append(thread)
            raise
        if problem is not None:
            raise SourceFailed(f"{self.config.name!r} failed ({_said(problem)})")
        return result

    def _results(self, result: Any) -> Results:
        items = items_of(result)[1][:MOST_RESULTS]
        found: list[Found] = []
        unread = 0
        for item in items:
            text = text_of(item)
            if text is None:
                unread += 1
            elif text.strip():
                found.append(_found(item, text, names=self.config.metadata))
        if unread and not found:
            kind = type(items[0]).__name__
            raise SourceFailed(
                f"{self.config.name!r} gave {kind} without a text: give strings, dicts with 'text', or objects with "
                ".text or .page_content"
            )
        notes = (f"{unread} results without a text were left out",) if unread else ()
        return Results(found=tuple(found), notes=notes)

    def check(self, url: str) -> str:
        raise EgressRefused(f"{self.config.name!r} fetches nothing")

    async def fetch(self, url: str, *, document: str, path: str) -> RawDocument:
        raise EgressRefused(f"{self.config.name!r} fetches nothing")


def _found(item: Any, text: str, *, names: Mapping[str, str]) -> Found:
    metadata = {} if isinstance(item, str) else metadata_of(item)
    for name, key in names.items():
        if metadata.get(key):
            metadata[name] = metadata[key]
    own = field_of(item, _OWN)
    name = own or field_of(item, _PLACES) or ""
    if name == text:
        own, name = None, ""
    url = field_of(item, ("url",)) or ""
    place = field_of(item, _PLACES) or ""
    stated = " ".join((place, metadata.get("format", ""), metadata.get("content_type", ""), metadata.get("mime", "")))
    markdown = bool(re.search(r"(?m)^#{1,6} \S", text)) or bool(re.search(r"\.(md|markdown)\b|markdown", stated, re.I))
    return Found(
        title=field_of(item, TITLES) or "" if not isinstance(item, str) else opening(text),
        text=text,
        name=name,
        own=own is not None,
        markdown=markdown,
        metadata=metadata,
        url=url if url.startswith(("https://", "http://")) else None,
    )


def _first(results: Iterator[Any]) -> list[Any]:
    return list(islice(results, MOST_RESULTS))


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]

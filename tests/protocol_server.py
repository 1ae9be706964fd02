"""A model server that plays a script over the real protocols, as a process of its own on loopback; it judges nothing.

    python tests/protocol_server.py --script FILE [--port N] [--module FILE.py:FUNCTION] [--faults 0.05 --seed 1]

It speaks Anthropic Messages (`POST /v1/messages`) and OpenAI Chat Completions (`POST /v1/chat/completions`), JSON and
SSE as the request's `stream` says, and prints `port N` once it listens. Tests start it with `serve(...)`.

A script is a list of replies, played one per request. A reply is an object; by its `kind`:

    http          status, error_type, error_code, message, headers, body: an error answer
    raw           status, body, headers: these bytes, whatever they are
    tool          name, args: one call. tool_raw: args is the text of the arguments, broken or not
    tools         calls: [{name, args}], times: several calls at once
    final         text, stop (end_turn | max_tokens | refusal | content_filter | pause_turn)
    draft         draft: an answer object, as a call of the request's answer tool (the one with `claims` in its schema,
                  or `output_tool`), else as JSON text. drafts: several such calls at once
    blocks        blocks: [{type: text | thinking | redacted | tool | tool_raw, ...}] in this order
    timeout       phase: `read` holds the connection open until the client goes or the server is closed; `connect`
                  resets it without an answer, so that nothing waits (see `blackhole` for an address that never accepts)
    stream_break  after: bytes of the reply (`of`, a final text by default) before the connection is closed

and every reply may have: `usage` (input_tokens in all, output_tokens, cached_tokens, cache_write_tokens,
reasoning_tokens; null leaves it out; missing: counted, a token for four characters), `thinking` {text, signature} or
{data} before the rest, `say` (text before calls), `latency` in seconds, `gate` (a name: it waits until `Server.open`
was called with it), `repeat` (times to play it; true for ever), `headers`. What a request after the end of the script
gets is a 400 named `script_exhausted`.

Who plays which script: `scripts` maps keys to scripts. The key of a request is the first of its `x-session` header,
its API key, its model, that is a key; else the first key that stands in its first user message; else the default
script is played: one sequence for all requests, or with `per = "question"` one for each first user message.
Injected faults (`faults`, `seed`, `fault_list`) come instead of a reply and leave the script where it is; they depend
on session and attempt only, not on timing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import inspect
import json
import math
import random
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote, unquote

Reply = dict[str, Any]
Dynamic = Callable[..., Reply]
TEXT = "Compliant with encryption [contract-alpha-security-annex]."
HTML = "<html><head><title>502</title></head><body>Bad gateway</body></html>"
FAULTS: tuple[Reply, ...] = (
    {"kind": "http", "status": 529, "error_type": "overloaded_error", "message": "Overloaded"},
    {"kind": "http", "status": 429, "error_type": "rate_limit_error", "headers": {"retry-after": "0"}},
    {"kind": "http", "status": 500, "error_type": "api_error", "message": "Internal server error"},
    {"kind": "http", "status": 502, "body": HTML},
    {"kind": "http", "status": 503, "error_type": "api_error", "message": "Service unavailable"},
    {"kind": "raw", "status": 200, "body": ""},
    {"kind": "timeout", "phase": "connect"},
    {"kind": "stream_break", "after": 40},
    {"kind": "final", "text": ""},
    {"kind": "tool_raw", "name": "search_policies", "args": '{"query": "outsour'},
)
"""What `faults` injects unless told otherwise: faults that pass and need no waiting."""
MIN_CACHED = 1024
"""Shorter prefixes are not cached, as with the real providers."""
PIECE = 24
"""Characters of one streamed delta."""


# The client's side: what tests use.


@dataclass(frozen=True, kw_only=True)
class Received:
    """One request as it arrived, and what it got."""

    number: int
    """From 0, over all sessions."""
    session: str
    attempt: int
    """From 0, within the session."""
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    size: int
    """Bytes of the body."""
    reply: Reply
    """The reply as the script has it."""
    injected: bool
    """True for an injected fault."""
    usage: dict[str, int] | None
    """What the provider would bill, whether or not the reply says so or arrives; None for an error answer."""
    at: float
    """Seconds since the server started."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return cast(list[dict[str, Any]], self.body["messages"])

    @property
    def tool_names(self) -> list[str]:
        return _tool_names(self.body)


@dataclass(kw_only=True)
class Server:
    """A running server."""

    port: int
    _process: subprocess.Popen[str]
    _closed: bool = field(default=False)

    @property
    def base_url(self) -> str:
        """What the `anthropic` client wants; the `openai` client wants `openai_url`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def anthropic_url(self) -> str:
        return self.base_url

    @property
    def openai_url(self) -> str:
        return f"{self.base_url}/v1"

    def requests(self) -> list[Received]:
        """All model requests so far, in order of arrival."""
        return [Received(**row) for row in self._get("/__requests")]

    def open(self, gate: str) -> None:
        """Lets go on the replies that wait at this gate, and those that will come to it."""
        self._get(f"/__open?gate={quote(gate)}")

    def wait_for(self, count: int, *, timeout: float = 60.0) -> list[Received]:
        """`requests()` once there are `count` of them; raises TimeoutError. Blocks: use a thread in async tests."""
        got = self._get(f"/__requests?wait={count}&timeout={timeout}", timeout=timeout + 5)
        if len(got) < count:
            raise TimeoutError(f"the server got {len(got)} requests, waited for {count}")
        return [Received(**row) for row in got]

    def close(self) -> None:
        """Ends the process; connections that are held are reset."""
        if self._closed:
            return
        self._closed = True
        process = self._process
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _get(self, path: str, *, timeout: float = 60.0) -> list[dict[str, Any]]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.base_url + path, timeout=timeout) as answer:
            return cast(list[dict[str, Any]], json.load(answer))


@contextlib.contextmanager
def serve(
    script: Sequence[Reply] | None = None,
    *,
    scripts: Mapping[str, Sequence[Reply]] | None = None,
    protocol: Literal["anthropic", "openai", "both"] = "both",
    per: Literal["server", "question"] = "server",
    module: str | None = None,
    faults: float = 0.0,
    fault_list: Sequence[Reply] | None = None,
    seed: int = 0,
    cache: bool = True,
) -> Generator[Server]:
    """Runs a server for the length of a `with`. See the module for the words.

    `protocol` limits which endpoint answers (the other gives 404). `module` is 'file.py:function', called with the
    request's body (and, if it takes two, the session's key and attempt as a dict) wherever no script of `scripts`
    fits; it returns a reply. `cache` counts prompt caching in the usage that is made up.
    """
    config = {
        "script": list(script) if script is not None else None,
        "scripts": {key: list(value) for key, value in (scripts or {}).items()},
        "protocol": protocol,
        "per": per,
        "module": module,
        "faults": faults,
        "fault_list": list(FAULTS if fault_list is None else fault_list),
        "seed": seed,
        "cache": cache,
    }
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(config) + "\n")
    process.stdin.flush()
    line = process.stdout.readline().split()
    server = Server(port=int(line[1]) if len(line) == 2 else 0, _process=process)
    if not server.port:
        server.close()
        raise RuntimeError("the protocol server did not start: its error is above")
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def blackhole() -> Generator[str]:
    """An address on loopback that never accepts a connection: the client's own connect time-out ends the wait."""
    with socket.socket() as listener, contextlib.ExitStack() as held:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):  # fills the queue of connections that nobody accepts
            caller = held.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def refusing() -> Generator[str]:
    """An address on loopback that refuses every connection at once."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


# The server's side: who plays what.


@dataclass(kw_only=True)
class _Session:
    script: tuple[Reply, ...] | None
    """None: the dynamic function is asked."""
    position: int = 0
    played: int = 0
    """How often the reply at `position` was played."""
    attempts: int = 0
    prefix: str = ""
    """The last prompt, for the count of cached tokens."""


@dataclass(kw_only=True)
class _Taken:
    reply: Reply
    session: str
    attempt: int
    injected: bool


class _Stage:
    """Chooses the reply of every request and remembers what came in."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.protocol: str = config.get("protocol") or "both"
        self.cache: bool = config.get("cache", True)
        self.seen: list[dict[str, Any]] = []
        self.arrived = asyncio.Condition()
        self._started = time.monotonic()
        self._script = None if config.get("script") is None else tuple(config["script"])
        self._scripts: dict[str, tuple[Reply, ...]] = {k: tuple(v) for k, v in _table(config.get("scripts")).items()}
        self._per = config.get("per") or "server"
        self._faults = float(config.get("faults") or 0.0)
        self._fault_list: list[Reply] = list(config.get("fault_list") or FAULTS)
        self._seed = config.get("seed") or 0
        self._function = _load(config["module"]) if config.get("module") else None
        self._sessions: dict[str, _Session] = {}
        self.gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def take(self, body: Any, headers: Mapping[str, str]) -> _Taken:
        key, script = self._key(body, headers)
        session = self._sessions.setdefault(key, _Session(script=script))
        attempt = session.attempts
        session.attempts += 1
        chance = random.Random(f"{self._seed}:{key}:{attempt}")
        if chance.random() < self._faults:
            return _Taken(reply=chance.choice(self._fault_list), session=key, attempt=attempt, injected=True)
        if session.script is None and self._function is not None:
            reply = _asked(self._function, body, {"session": key, "attempt": attempt})
        else:
            reply = _next(session)
        return _Taken(reply=reply, session=key, attempt=attempt, injected=False)

    def _key(self, body: Any, headers: Mapping[str, str]) -> tuple[str, tuple[Reply, ...] | None]:
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        for key in (headers.get("x-session", ""), given, str(_table(body).get("model"))):
            if key in self._scripts:
                return key, self._scripts[key]
        asked = _first_words(body)
        for key, script in self._scripts.items():
            if key in asked:
                return key, script
        if headers.get("x-session"):
            return headers["x-session"], self._script
        return (asked if self._per == "question" else ""), self._script

    def usage(self, taken: _Taken, body: Any, said: int, *, anthropic: bool) -> dict[str, int]:
        """What the provider would bill; `said` characters of output."""
        given: dict[str, int] = taken.reply.get("usage") or {}
        counted = {"input_tokens": 0, "output_tokens": max(1, math.ceil(said / 4))}
        counted.update({"cached_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0})
        if "input_tokens" in given:
            return {**counted, **given}
        prompt = prompt_text(body)
        session = self._sessions[taken.session]
        counted["input_tokens"] = math.ceil(len(prompt) / 4)
        if self.cache:
            marked = not anthropic or "cache_control" in json.dumps(body)
            cached = common_prefix(session.prefix, prompt) // 4 if marked else 0
            counted["cached_tokens"] = cached if cached >= MIN_CACHED else 0
            if anthropic and marked and counted["input_tokens"] >= MIN_CACHED:
                counted["cache_write_tokens"] = counted["input_tokens"] - counted["cached_tokens"]
        session.prefix = prompt
        return {**counted, **given}

    async def note(self, taken: _Taken, **rest: Any) -> None:
        row = {
            "number": len(self.seen),
            "session": taken.session,
            "attempt": taken.attempt,
            "reply": taken.reply,
            "injected": taken.injected,
            "at": round(time.monotonic() - self._started, 6),
            **rest,
        }
        async with self.arrived:
            self.seen.append(row)
            self.arrived.notify_all()

    async def received(self, *, wait: int = 0, timeout: float = 10.0) -> list[dict[str, Any]]:
        async with self.arrived:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.arrived.wait_for(lambda: len(self.seen) >= wait), timeout)
            return list(self.seen)


def _next(session: _Session) -> Reply:
    script = session.script or ()
    while session.position < len(script):
        reply = script[session.position]
        repeat = reply.get("repeat", 1)
        if repeat is True or session.played < int(repeat):
            session.played += 1
            return reply
        session.position, session.played = session.position + 1, 0
    message = f"script_exhausted: the script has {len(script)} replies and all were played"
    return {"kind": "http", "status": 400, "error_type": "invalid_request_error", "message": message}


def _load(where: str) -> Dynamic:
    path, _, name = where.rpartition(":")
    spec = importlib.util.spec_from_file_location("protocol_script", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"--module {where!r} is not FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    sys.modules["protocol_script"] = module
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec.loader.exec_module(module)
    return cast(Dynamic, getattr(module, name))


def _asked(function: Dynamic, body: Any, about: Mapping[str, Any]) -> Reply:
    try:
        takes_two = len(inspect.signature(function).parameters) > 1
        return function(body, about) if takes_two else function(body)
    except Exception as problem:
        message = f"script_failed: {type(problem).__name__}: {problem}"
        return {"kind": "http", "status": 400, "error_type": "invalid_request_error", "message": message}


# What a request says.


def _table(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _rows(value: Any) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], value or [])


def _headers(reply: Reply) -> dict[str, str]:
    return {key.lower(): str(value) for key, value in _table(reply.get("headers")).items()}


def _schemas(body: Any) -> dict[str, Any]:
    """Tool names and the schemas of their arguments."""
    found: dict[str, Any] = {}
    for tool in _rows(body.get("tools")):
        about = _table(tool.get("function", tool))
        found[about.get("name", "")] = about.get("input_schema") or about.get("parameters") or {}
    return found


def _tool_names(body: Any) -> list[str]:
    return list(_schemas(body))


def text_of(content: Any) -> str:
    """The text of a message's content, in either protocol; results of tools included."""
    if content is None or isinstance(content, str):
        return content or ""
    found: list[str] = []
    for part in content:
        if isinstance(part, str):
            found.append(part)
        elif part.get("type") == "tool_result":
            found.append(text_of(part.get("content")))
        else:
            found.append(part.get("text") or "")
    return "\n".join(found)


def _first_words(body: Any) -> str:
    """The text of the first user message."""
    for message in _rows(_table(body).get("messages")):
        if message.get("role") == "user":
            return text_of(message.get("content"))
    return ""


def turns_so_far(body: Any) -> int:
    """Replies of the model that the request holds: for dynamic scripts without memory."""
    return sum(1 for message in body.get("messages", []) if message.get("role") == "assistant")


def results_so_far(body: Any) -> list[str]:
    """The texts of all tool results in the request, in either protocol."""
    found: list[str] = []
    for message in _rows(body.get("messages")):
        if message.get("role") == "tool":
            found.append(text_of(message.get("content")))
        elif message.get("role") == "user" and isinstance(message.get("content"), list):
            found += [text_of([part]) for part in message["content"] if part.get("type") == "tool_result"]
    return found


def prompt_text(body: Any) -> str:
    """Tools, system and messages as one text in the order in which providers cache them, without cache marks."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            items = cast(dict[str, Any], value).items()
            return {key: bare(item) for key, item in items if key != "cache_control"}
        if isinstance(value, list):
            return [bare(item) for item in cast(list[Any], value)]
        return value

    parts: list[Any] = [body.get("tools") or [], body.get("system") or "", *_rows(body.get("messages"))]
    return "\n".join(json.dumps(bare(part), ensure_ascii=False) for part in parts)


def common_prefix(one: str, other: str) -> int:
    """Characters that both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# What a reply says: blocks that both protocols are written from.


def _blocks(reply: Reply, body: Any, *, ident: str) -> list[dict[str, Any]]:
    """`text`, `thinking`, `redacted` and `call` (with id, name and the text of its arguments)."""
    blocks: list[dict[str, Any]] = []
    thinking = reply.get("thinking")
    if thinking:
        blocks.append({"type": "redacted" if "data" in thinking else "thinking", **thinking})
    if reply.get("say"):
        blocks.append({"type": "text", "text": reply["say"]})

    def call(name: str, args: Any) -> None:
        text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
        blocks.append({"type": "call", "name": name, "args": text, "id": f"{ident}_{len(blocks)}"})

    def draft(value: Any) -> None:
        schemas = _schemas(body)
        name = reply.get("output_tool") or next(
            (n for n, s in schemas.items() if "claims" in s.get("properties", {})), None
        )
        if name is None:
            blocks.append({"type": "text", "text": json.dumps(value, ensure_ascii=False)})
        else:
            call(name, value)

    kind = reply["kind"]
    if kind == "final":
        if reply["text"]:
            blocks.append({"type": "text", "text": reply["text"]})
    elif kind in ("tool", "tool_raw"):
        call(reply["name"], reply.get("args", {}))
    elif kind == "tools":
        for _ in range(reply.get("times", 1)):
            for wanted in reply["calls"]:
                call(wanted["name"], wanted.get("args", {}))
    elif kind == "draft":
        draft(reply["draft"])
    elif kind == "drafts":
        for value in reply["drafts"]:
            draft(value)
    elif kind == "blocks":
        for block in reply["blocks"]:
            if block["type"] in ("tool", "tool_raw"):
                call(block["name"], block.get("args", {}))
            else:
                blocks.append(dict(block))
    else:
        raise ValueError(f"no reply of kind {kind!r}")
    return blocks


def _said(blocks: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(b.get("text") or "") + len(b.get("args") or "") + len(b.get("data") or "") for b in blocks)


def _pieces(text: str) -> list[str]:
    return [text[n : n + PIECE] for n in range(0, len(text), PIECE)]


# Anthropic Messages.

_ANTHROPIC_STOP = {"content_filter": "refusal", "length": "max_tokens", "stop": "end_turn"}


def _anthropic_usage(usage: Mapping[str, int]) -> dict[str, Any]:
    cached, written = usage["cached_tokens"], usage["cache_write_tokens"]
    return {
        "input_tokens": usage["input_tokens"] - cached - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage["output_tokens"],
        "service_tier": "standard",
    }


def _anthropic_message(
    reply: Reply, body: Any, blocks: Sequence[Mapping[str, Any]], usage: Mapping[str, int] | None, *, ident: str
) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] == "call":
            try:
                arguments = json.loads(block["args"])
            except ValueError:
                arguments = block["args"]  # as it is: the JSON form of a reply has no other place for broken text
            content.append(
                {"type": "tool_use", "id": f"toolu_{block['id']}", "name": block["name"], "input": arguments}
            )
        elif block["type"] == "thinking":
            content.append({"type": "thinking", "thinking": block["text"], "signature": block.get("signature", "")})
        elif block["type"] == "redacted":
            content.append({"type": "redacted_thinking", "data": block["data"]})
        else:
            content.append({"type": "text", "text": block["text"], "citations": None})
    stop = reply.get("stop") or ("tool_use" if any(b["type"] == "call" for b in blocks) else "end_turn")
    message: dict[str, Any] = {
        "id": f"msg_{ident}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "unknown"),
        "content": content,
        "stop_reason": _ANTHROPIC_STOP.get(stop, stop),
        "stop_sequence": None,
    }
    if usage is not None:
        message["usage"] = _anthropic_usage(usage)
    return message


def _anthropic_events(message: dict[str, Any], blocks: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    def event(name: str, data: Mapping[str, Any]) -> bytes:
        return f"event: {name}\ndata: {json.dumps({'type': name, **data}, ensure_ascii=False)}\n\n".encode()

    usage = message.get("usage")
    start: dict[str, Any] = {**message, "content": [], "stop_reason": None}
    if usage is not None:
        start["usage"] = {**usage, "output_tokens": 1}
    yield event("message_start", {"message": start})
    for index, (block, whole) in enumerate(zip(blocks, message["content"], strict=True)):
        deltas: list[dict[str, Any]] = []
        if whole["type"] == "tool_use":
            empty: dict[str, Any] = {**whole, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in ("", *_pieces(block["args"]))]
        elif whole["type"] == "thinking":
            empty = {**whole, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": p} for p in _pieces(block["text"])]
            deltas.append({"type": "signature_delta", "signature": block.get("signature", "")})
        elif whole["type"] == "text":
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": p} for p in _pieces(block["text"])]
        else:
            empty = whole
        yield event("content_block_start", {"index": index, "content_block": empty})
        if index == 0:
            yield event("ping", {})
        for delta in deltas:
            yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    end: dict[str, Any] = {"delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}}
    if usage is not None:
        kept = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
        end["usage"] = {key: usage[key] for key in kept}
    yield event("message_delta", end)
    yield event("message_stop", {})


# OpenAI Chat Completions.

_OPENAI_STOP = {"end_turn": "stop", "max_tokens": "length", "refusal": "stop", "pause_turn": "stop"}


def _openai_usage(usage: Mapping[str, int]) -> dict[str, Any]:
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["input_tokens"] + usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"], "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage["reasoning_tokens"],
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _openai_message(
    reply: Reply, body: Any, blocks: Sequence[Mapping[str, Any]], usage: Mapping[str, int] | None, *, ident: str
) -> dict[str, Any]:
    text = "".join(b["text"] for b in blocks if b["type"] == "text")
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None, "annotations": []}
    if reply.get("stop") == "refusal":
        message["content"], message["refusal"] = None, text or "I'm sorry, I can't help with that."
    elif reply["kind"] == "final" and not text:
        message["content"] = ""
    thought = "".join(b["text"] for b in blocks if b["type"] == "thinking")
    if thought:
        message["reasoning_content"] = thought
    calls = [
        {"id": f"call_{b['id']}", "type": "function", "function": {"name": b["name"], "arguments": b["args"]}}
        for b in blocks
        if b["type"] == "call"
    ]
    if calls:
        message["tool_calls"] = calls
    stop = reply.get("stop") or ("tool_calls" if calls else "stop")
    completion: dict[str, Any] = {
        "id": f"chatcmpl-{ident}",
        "object": "chat.completion",
        "created": 1767225600,
        "model": body.get("model", "unknown"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _OPENAI_STOP.get(stop, stop)}],
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }
    if usage is not None:
        completion["usage"] = _openai_usage(usage)
    return completion


def _openai_events(completion: dict[str, Any], body: Any) -> Iterator[bytes]:
    choice = completion["choices"][0]
    message = choice["message"]
    wants_usage = bool(_table(body.get("stream_options")).get("include_usage"))
    kept = ("id", "created", "model", "service_tier", "system_fingerprint")
    base = {**{k: completion[k] for k in kept}, "object": "chat.completion.chunk"}

    def chunk(delta: Mapping[str, Any], *, finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        data: dict[str, Any] = {**base, "choices": choices, **({"usage": None} if wants_usage else {})}
        return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()

    yield chunk({"role": "assistant", "content": "" if message["content"] is not None else None, "refusal": None})
    for piece in _pieces(message.get("reasoning_content") or ""):
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(message["content"] or ""):
        yield chunk({"content": piece})
    for piece in _pieces(message["refusal"] or ""):
        yield chunk({"refusal": piece})
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        head = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        yield chunk({"tool_calls": [head]})
        for piece in _pieces(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, finish=choice["finish_reason"])
    if wants_usage and "usage" in completion:
        last: dict[str, Any] = {**base, "choices": [], "usage": completion["usage"]}
        yield f"data: {json.dumps(last)}\n\n".encode()
    yield b"data: [DONE]\n\n"


# HTTP.


@dataclass(frozen=True, kw_only=True)
class _Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    events: tuple[bytes, ...] | None = None
    """Set for SSE: sent one by one, chunked."""
    cut: int | None = None
    """Bytes of the body or stream after which the connection is reset."""


def _json(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> _Answer:
    return _Answer(
        status=status,
        headers={"content-type": "application/json", **(headers or {})},
        body=json.dumps(value, ensure_ascii=False).encode(),
    )


def _error(reply: Reply, *, anthropic: bool, ident: str) -> _Answer:
    status = int(reply["status"])
    headers = _headers(reply)
    body = reply.get("body")
    if body is not None:
        kind = "text/html; charset=utf-8" if body.lstrip().startswith("<") else "application/json"
        return _Answer(status=status, headers={"content-type": kind, **headers}, body=body.encode())
    kind, code = reply.get("error_type", "api_error"), reply.get("error_code")
    message = reply.get("message") or str(code or kind).replace("_", " ")
    if anthropic:
        error: dict[str, Any] = {
            "type": kind,
            "message": message,
            **({"code": code, "details": {"error_code": code}} if code else {}),
        }
        return _json({"type": "error", "error": error, "request_id": f"req_{ident}"}, status=status, headers=headers)
    error = {"message": message, "type": kind, "param": None, "code": code}
    return _json({"error": error}, status=status, headers=headers)


def _content(
    stage: _Stage, taken: _Taken, reply: Reply, body: Any, *, anthropic: bool, ident: str
) -> tuple[_Answer, dict[str, int]]:
    """A reply of the model, and what it is billed."""
    blocks = _blocks(reply, body, ident=ident)
    billed = stage.usage(taken, body, _said(blocks), anthropic=anthropic)
    shown = None if "usage" in taken.reply and taken.reply["usage"] is None else billed
    make = _anthropic_message if anthropic else _openai_message
    message = make(reply, body, blocks, shown, ident=ident)
    headers = {"request-id" if anthropic else "x-request-id": f"req_{ident}", **_headers(reply)}
    if not body.get("stream"):
        return _json(message, headers=headers), billed
    events = _anthropic_events(message, blocks) if anthropic else _openai_events(message, body)
    head = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers}
    return _Answer(headers=head, events=tuple(events)), billed


class _Http:
    """Just enough of HTTP/1.1: keep-alive, Content-Length in, Content-Length or chunked out."""

    def __init__(self, stage: _Stage) -> None:
        self._stage = stage

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                headers = {
                    k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)
                }
                body = await self._body(reader, headers)
                if not await self._serve(method, path, headers, body, reader, writer):
                    return
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            pass
        finally:
            writer.close()

    async def _body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return await reader.readexactly(int(headers.get("content-length", 0)))
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body

    async def _serve(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        data: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """False when the connection is at its end."""
        path, _, query = target.partition("?")
        path = path.rstrip("/")
        stage = self._stage
        if method == "GET" and path == "/__requests":
            wanted = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
            rows = await stage.received(wait=int(wanted.get("wait", 0)), timeout=float(wanted.get("timeout", 10)))
            return await _write(writer, _json(rows))
        if method == "GET" and path == "/__open":
            stage.gates[unquote(query.partition("=")[2])].set()
            return await _write(writer, _json([]))
        if method == "GET" and path.endswith("/models"):
            models = [{"id": "scripted", "object": "model", "type": "model", "display_name": "scripted", "created": 0}]
            return await _write(writer, _json({"object": "list", "data": models, "has_more": False}))
        try:
            body = json.loads(data or b"null")
        except ValueError:
            return await _write(writer, _json({"error": {"message": "the body is not JSON"}}, status=400))
        if path.endswith("/messages/count_tokens"):
            return await _write(writer, _json({"input_tokens": math.ceil(len(prompt_text(body)) / 4)}))
        anthropic = path.endswith("/messages")
        wrong = "openai" if anthropic else "anthropic"
        if method != "POST" or stage.protocol == wrong or not (anthropic or path.endswith("/chat/completions")):
            return await _write(writer, _json({"error": {"message": f"no {method} {path}"}}, status=404))

        taken = stage.take(body, headers)
        reply = taken.reply
        ident = f"{len(stage.seen):06d}"
        about: dict[str, Any] = {
            "method": method,
            "path": path,
            "headers": headers,
            "body": body,
            "size": len(data),
            "usage": None,
        }
        kind = reply["kind"]
        answer: _Answer | None = None
        if kind == "http":
            answer = _error(reply, anthropic=anthropic, ident=ident)
        elif kind == "raw":
            text = reply.get("body", "").encode()
            answer = _Answer(
                status=reply.get("status", 200),
                headers={"content-type": "application/json", **_headers(reply)},
                body=text,
            )
        elif kind == "stream_break":
            of = reply.get("of") or {"kind": "final", "text": TEXT}
            whole, about["usage"] = _content(stage, taken, of, body, anthropic=anthropic, ident=ident)
            answer = _Answer(headers=whole.headers, body=whole.body, events=whole.events, cut=int(reply["after"]))
        elif kind == "timeout":
            about["usage"] = (
                None if reply.get("phase") == "connect" else stage.usage(taken, body, 0, anthropic=anthropic)
            )
        else:
            answer, about["usage"] = _content(stage, taken, reply, body, anthropic=anthropic, ident=ident)
        await stage.note(taken, **about)
        if reply.get("gate"):
            await stage.gates[reply["gate"]].wait()
        if reply.get("latency"):
            await asyncio.sleep(float(reply["latency"]))
        if answer is not None:
            return await _write(writer, answer)
        if reply.get("phase") == "connect":
            _reset(writer)
        else:
            await reader.read()  # until the client goes
        return False


async def _write(writer: asyncio.StreamWriter, answer: _Answer) -> bool:
    events = answer.events
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Status')}"]
    lines += [f"{key}: {value}" for key, value in answer.headers.items()]
    lines.append("transfer-encoding: chunked" if events is not None else f"content-length: {len(answer.body)}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    left = answer.cut
    if events is None:
        writer.write(head + (answer.body if left is None else answer.body[:left]))
    else:
        writer.write(head)
        async for data in _within(events, left):
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
        if left is None:
            writer.write(b"0\r\n\r\n")
    await writer.drain()
    # A break ends the stream before its end; unlike a reset, closing lets the client read what was sent.
    return left is None


async def _within(events: Sequence[bytes], left: int | None) -> AsyncIterator[bytes]:
    for data in events:
        if left is not None:
            data, left = data[:left], left - len(data[:left])
            if not data:
                return
        yield data


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST, so that the client sees a broken connection at once."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


async def _run(config: Mapping[str, Any], *, port: int, watch: bool) -> None:
    server = await asyncio.start_server(_Http(_Stage(config)).connection, "127.0.0.1", port, limit=2**20, backlog=1024)
    print(f"port {server.sockets[0].getsockname()[1]}", flush=True)
    async with server:
        if watch:  # ends with the process that started it
            await asyncio.to_thread(sys.stdin.read)
        else:
            await server.serve_forever()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A model server that plays a script.")
    parser.add_argument("--stdin", action="store_true", help="read the whole configuration as one line from stdin")
    parser.add_argument("--script", type=Path, help="JSON: a list of replies, or an object with script, scripts, …")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--protocol", choices=("anthropic", "openai", "both"), default="both")
    parser.add_argument("--per", choices=("server", "question"), default="server")
    parser.add_argument("--module", help="FILE.py:FUNCTION, called with the request's body, returns a reply")
    parser.add_argument("--faults", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    config: dict[str, Any] = {}
    if args.stdin:
        config = json.loads(sys.stdin.readline())
    else:
        config = {name: getattr(args, name) for name in ("protocol", "per", "module", "faults", "seed")}
        if args.script is not None:
            given = json.loads(args.script.read_text("utf-8"))
            config.update({"script": given} if isinstance(given, list) else given)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(config, port=args.port, watch=args.stdin))


if __name__ == "__main__":
    main()

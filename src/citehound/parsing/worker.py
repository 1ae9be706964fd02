"""A process of its own in which one file at a time is parsed, within limits; how a file is parsed is `parse`'s.

The parent trusts the child with nothing but the text it found: frames are JSON and bytes, checked field by field, and
id, source and path are the parent's. Memory is limited where the system has RLIMIT_AS (not on Windows); time, crashes
and the amount of text are everywhere. The child sees no environment variable beyond the few it needs, so no key.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from queue import LifoQueue
from types import TracebackType
from typing import IO, Any, Self, cast

from ..documents import RESERVED, Attachment, Document, RawDocument, Section, Stated
from ..errors import CitehoundError, ParseError
from . import Unsupported

_LENGTHS = struct.Struct(">QQ")
_HEAD_BYTES = 32_000_000
"""What a reply may hold beside the text: sections, metadata, warnings."""
_GROWTH = 256_000_000
"""A worker that keeps this much more memory than it began with is replaced after the file."""
_START_SECONDS = 60.0
_ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "TMP", "TZ"),
    *("SYSTEMROOT", "PYTHONHOME", "LD_LIBRARY_PATH", "TESSDATA_PREFIX"),
)
"""What the child sees of the environment."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one file may take."""

    seconds: float = 30.0
    """Wall time."""
    ocr_seconds: float = 600.0
    """The same for a file whose pages are read from their pictures."""
    memory: int = 1 << 30
    """Bytes of address space beyond what an idle worker has."""
    characters: int = 20_000_000
    """Of `Document.text`."""
    attachments: int = 200_000_000
    """Bytes of the files inside one file, all together."""


class _Lost(Exception):
    """The worker is of no more use; `blameless` when an earlier file may have been the cause."""

    def __init__(self, reason: str, *, blameless: bool) -> None:
        super().__init__(reason)
        self.blameless = blameless


class Worker:
    """Parses in a child process, which is started for the first file and again after it was lost.

    Threads may share one: their files are read one after the other. `target` is the function that parses, as
    'module:name'; it is called like `citehound.parsing.parse`.
    """

    def __init__(self, *, limits: Limits | None = None, target: str = "citehound.parsing:parse") -> None:
        self.limits = limits if limits is not None else Limits()
        self._target = target
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0
        """How many files the process has read."""
        self._ended = False

    def _seconds(self, raw: RawDocument) -> float:
        return self.limits.ocr_seconds if raw.ocr else self.limits.seconds

    @property
    def _most_bytes(self) -> int:
        return 4 * self.limits.characters + self.limits.attachments

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return self._process.pid if self._process is not None else None

    def read(self, raw: RawDocument, *, language: str | None) -> Document:
        """What `parse` returns or raises in the child; ParseError also for a limit that was hit and for a crash.

        Raises CitehoundError when the child cannot be started at all.
        """
        with self._lock:
            try:
                if self._process is not None and self._read:
                    try:
                        return self._once(raw, language=language)
                    except _Lost as lost:
                        if not lost.blameless:
                            raise
                return self._once(raw, language=language)
            except _Lost as lost:
                raise ParseError(str(lost)) from None

    def close(self) -> None:
        """Ends the child; a later `read` starts another."""
        with self._lock:
            self._discard()

    def abort(self) -> None:
        """Ends the child in the middle of what it does, for good; from any thread."""
        self._ended = True
        process = self._process
        if process is not None:
            _kill(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _once(self, raw: RawDocument, *, language: str | None) -> Document:
        try:
            process = self._process if self._process is not None else self._start()
            reply, late = self._exchange(process, raw, language=language)
            self._read += 1
            if reply is None and late:
                raise _Lost(f"took longer than {self._seconds(raw):g} s", blameless=False)
            if reply is None:
                raise _Lost("the parser crashed", blameless=True)
            fields, text = reply
            error = fields.get("error")
            if error == "memory":
                raise _Lost(f"needed more than {_size(self.limits.memory)} of memory", blameless=True)
            document = _document(fields, text, raw=raw, limits=self.limits) if error is None else None
            if late or fields.get("spent") is True:
                self._discard()
        except (ValueError, RecursionError) as fault:
            self._discard()
            raise ParseError("the parser gave back what is no document") from fault
        except BaseException:  # whatever it was, the pipes may hold half a frame
            self._discard()
            raise
        if document is not None:
            return document
        message = str(fields.get("message"))[:2000]
        raise Unsupported(message) if error == "unsupported" else ParseError(message)

    def _exchange(
        self, process: subprocess.Popen[bytes], raw: RawDocument, *, language: str | None
    ) -> tuple[tuple[dict[str, object], bytearray] | None, bool]:
        """The reply (None: there is none to come), and whether the time was up."""
        head = {
            "id": raw.id,
            "source": raw.source,
            "path": raw.path,
            "metadata": dict(raw.metadata),
            "names": dict(raw.names),
            "listed": raw.listed,
            "unpack": raw.unpack,
            "ocr": raw.ocr,
            "language": language,
        }
        assert process.stdin is not None and process.stdout is not None
        with _deadline(process, self._seconds(raw)) as late:
            with contextlib.suppress(BrokenPipeError):  # it may have said why before it ended
                _send(process.stdin, head, raw.data)
            reply = _receive(process.stdout, head_limit=_HEAD_BYTES, body_limit=self._most_bytes)
        return reply, late.is_set()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._ended:
            raise CitehoundError("reading was ended")
        settings = json.dumps({"target": self._target, **asdict(self.limits)})
        environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry))
        code = "from citehound.parsing.worker import serve; serve()"
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise CitehoundError(f"the process that reads files cannot be started: {error}") from error
        self._process, self._read = process, 0
        assert process.stdout is not None
        with _deadline(process, _START_SECONDS):
            hello = _receive(process.stdout, head_limit=10_000, body_limit=0)
        if hello is None or hello[0].get("ready") is not True:
            reason = f"it ended with code {process.wait()}" if hello is None else str(hello[0].get("message"))
            raise CitehoundError(f"the process that reads files does not start: {reason}; check the installation")
        return process

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


class Workers:
    """Several workers; each file goes to one that is free, a running one first."""

    def __init__(self, count: int, *, limits: Limits | None = None, target: str = "citehound.parsing:parse") -> None:
        self.count = count
        self._all = [Worker(limits=limits, target=target) for _ in range(count)]
        self._free: LifoQueue[Worker] = LifoQueue()
        for worker in reversed(self._all):
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(max_workers=count, thread_name_prefix="read")

    def read(self, raw: RawDocument, *, language: str | None) -> Future[Document]:
        """The document to come; its `result()` raises what `Worker.read` raises."""
        return self._threads.submit(self._one, raw, language)

    def _one(self, raw: RawDocument, language: str | None) -> Document:
        worker = self._free.get()
        try:
            return worker.read(raw, language=language)
        finally:
            self._free.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends all; what is still being read is given up."""
        for worker in self._all:
            worker.abort()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._all:
            worker.close()


@contextlib.contextmanager
def _deadline(process: subprocess.Popen[bytes], seconds: float) -> Generator[threading.Event]:
    """Kills the process when the block takes longer; the event then is set. Reads from its pipes end by that."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()
        timer.join()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    if process.poll() is not None:
        return
    if sys.platform == "win32":
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


# -- frames: two lengths, a JSON object, bytes


def _send(pipe: IO[bytes], head: object, body: bytes = b"") -> None:
    encoded = json.dumps(head).encode("ascii")
    first = _LENGTHS.pack(len(encoded), len(body)) + encoded
    for part in (first, body):
        rest = memoryview(part)
        while rest:
            rest = rest[pipe.write(rest) :]


def _receive(pipe: IO[bytes], *, head_limit: int, body_limit: int) -> tuple[dict[str, object], bytearray] | None:
    """None when the other side has closed. Raises ValueError for what is no frame, or too big a one."""
    lengths = _exactly(pipe, _LENGTHS.size)
    if lengths is None:
        return None
    head_bytes, body_bytes = _LENGTHS.unpack(lengths)
    if head_bytes > head_limit or body_bytes > body_limit:
        raise ValueError("a frame is too big")
    encoded = _exactly(pipe, head_bytes)
    body = _exactly(pipe, body_bytes)
    if encoded is None or body is None:
        return None
    head: object = json.loads(encoded)
    if not isinstance(head, dict):
        raise ValueError("a frame has no head")
    return cast("dict[str, object]", head), body


def _exactly(pipe: IO[bytes], size: int) -> bytearray | None:
    data = bytearray()
    while len(data) < size:
        part = pipe.read(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return data


# -- documents as fields


def _fields(document: Document) -> dict[str, object]:
    """All but the text, the bytes of attachments, and what the parent knows itself."""
    stated = document.stated
    return {
        "title": document.title,
        "sections": [[s.id, s.title, s.level, s.start, s.end, s.number, s.parent] for s in document.sections],
        "metadata": dict(document.metadata),
        "language": document.language,
        "pages": document.pages,
        "warnings": document.warnings,
        "stated": None
        if stated is None
        else [stated.title, dict(stated.metadata), stated.language, stated.format, stated.tables],
        "attachments": [[a.name, a.media_type, len(a.data)] for a in document.attachments],
    }


def _document(fields: dict[str, object], body: bytearray, *, raw: RawDocument, limits: Limits) -> Document:
    """Raises ValueError for a field that is not what it must be."""
    attachments, packed = _attachments(fields.get("attachments"), body)
    text = packed.decode("utf-8", "surrogatepass")
    if len(text) > limits.characters:
        raise ValueError("too much text")
    pages = tuple(_offset(page, len(text)) for page in _list(fields.get("pages")))
    if list(pages) != sorted(pages):
        raise ValueError("pages out of order")
    values = _strings(fields.get("metadata"))
    return Document(
        id=raw.id,
        source=raw.source,
        path=raw.path,
        title=_string(fields.get("title")),
        text=text,
        sections=tuple(_section(item, len(text)) for item in _list(fields.get("sections"))),
        metadata={k: v for k, v in values.items() if k.lower() not in RESERVED or raw.metadata.get(k) == v},
        language=_optional(fields.get("language")),
        pages=pages,
        warnings=tuple(_string(warning) for warning in _list(fields.get("warnings"))),
        stated=_stated(fields.get("stated")),
        attachments=attachments,
    )


def _attachments(value: object, body: bytearray) -> tuple[tuple[Attachment, ...], bytearray]:
    """The files that stand behind the text in a reply's body, and the body without them."""
    found: list[tuple[str, str, int]] = []
    for item in _list(value or []):
        name, media_type, size = _list(item)
        found.append((_string(name), _string(media_type), _offset(size, len(body))))
    at = len(body) - sum(size for _, _, size in found)
    if at < 0:
        raise ValueError("attachments are cut off")
    rest = body[:at]
    attachments: list[Attachment] = []
    for name, media_type, size in found:
        attachments.append(Attachment(name=name, media_type=media_type, data=bytes(body[at : at + size])))
        at += size
    return tuple(attachments), rest


def _stated(value: object) -> Stated | None:
    if value is None:
        return None
    title, metadata, language, form, tables = _list(value)
    return Stated(
        title=_string(title),
        metadata=_strings(metadata),
        language=_optional(language),
        format=_string(form),
        tables=_whole(tables),
    )


def _strings(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("no metadata")
    return {_string(key): _string(item) for key, item in cast("dict[object, object]", value).items()}


def _section(value: object, size: int) -> Section:
    name, title, level, start, end, number, parent = _list(value)
    first, last = _offset(start, size), _offset(end, size)
    if first > last:
        raise ValueError("a section ends before it starts")
    return Section(
        id=_string(name),
        title=_string(title),
        level=_whole(level),
        start=first,
        end=last,
        number=_optional(number),
        parent=_optional(parent),
    )


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("no list")
    return cast("list[object]", value)


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no string")
    return value


def _optional(value: object) -> str | None:
    return None if value is None else _string(value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("no whole number")
    return value


def _offset(value: object, size: int) -> int:
    offset = _whole(value)
    if not 0 <= offset <= size:
        raise ValueError("an offset outside the text")
    return offset


def _size(count: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"


# -- the child


def serve() -> None:
    """The child's whole life: reads files from stdin until it closes, and answers on stdout."""
    if sys.platform != "win32":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    incoming = os.fdopen(os.dup(0), "rb", buffering=0)
    outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # what a parser prints must not get into the frames
        os.dup2(nowhere, stream)
    settings: dict[str, Any] = json.loads(sys.argv[1])
    target = str(settings.pop("target"))
    limits = Limits(**settings)
    try:
        module, _, name = target.partition(":")
        parse = cast("Callable[..., Document]", getattr(importlib.import_module(module), name))
    except Exception as error:
        _send(outgoing, {"ready": False, "message": f"{type(error).__name__}: {error}"[:500]})
        return
    idle = _address_space()
    _limit_memory(idle + limits.memory)
    _send(outgoing, {"ready": True})
    while True:
        try:
            frame = _receive(incoming, head_limit=1 << 40, body_limit=1 << 40)
        except MemoryError:
            break  # out of here, what was taken in so far is freed
        if frame is None:
            return
        seconds = limits.ocr_seconds if frame[0].get("ocr") is True else limits.seconds
        _alarm(2 * seconds + 1)  # should the parent be killed meanwhile
        fields, text = _answer(parse, frame, limits=limits)
        del frame
        fields["spent"] = _address_space() - idle > min(_GROWTH, limits.memory // 2)
        _alarm(0)
        try:
            _send(outgoing, fields, text)
        except BrokenPipeError:
            return
    _send(outgoing, {"error": "memory"})  # and no more, for half a frame is left in the pipe


def _answer(
    parse: Callable[..., Document], frame: tuple[dict[str, Any], bytearray], *, limits: Limits
) -> tuple[dict[str, object], bytes]:
    head, data = frame
    language = head.pop("language")
    try:
        document = parse(RawDocument(data=bytes(data), **head), language=language)
        if len(document.text) > limits.characters:
            return _error("parse", f"more than {limits.characters:,} characters of text"), b""
        fields = _fields(document)
        if len(json.dumps(fields)) > _HEAD_BYTES - 100:
            return _error("parse", "too many sections to be read"), b""
        if sum(len(a.data) for a in document.attachments) > limits.attachments:
            return _error("parse", f"the files inside are more than {_size(limits.attachments)}"), b""
        body = document.text.encode("utf-8", "surrogatepass")
        return fields, b"".join([body, *(a.data for a in document.attachments)]) if document.attachments else body
    except BaseException as error:
        if _out_of_memory(error):
            return {"error": "memory"}, b""
        match error:
            case Unsupported():
                return _error("unsupported", str(error)), b""
            case ParseError():
                return _error("parse", str(error)), b""
            case RecursionError():
                return _error("parse", "nested too deeply to be read"), b""
            case _:
                return _error("parse", f"cannot be read: {type(error).__name__}: {error}"[:300]), b""


def _error(kind: str, message: str) -> dict[str, object]:
    return {"error": kind, "message": message}


def _out_of_memory(error: BaseException) -> bool:
    """Also where a parser has made an error of its own of it."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        if isinstance(at, MemoryError):
            return True
        seen.add(id(at))
        at = at.__cause__ or at.__context__
    return False


def _address_space() -> int:
    """In bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _limit_memory(size: int) -> None:
    """And no core dumps."""
    if sys.platform == "win32":
        return
    import resource

    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, size)):
        with contextlib.suppress(OSError, ValueError):  # the system allows less already, or knows no such limit
            resource.setrlimit(kind, (limit, limit))


def _alarm(seconds: float) -> None:
    """The system ends this process after so many seconds; 0: no longer."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)

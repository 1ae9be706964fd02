"""The application: puts guard, identity, questions and routes together; and runs it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from .. import __version__
from ..config import Config
from ..errors import CitehoundError, UsageError
from ..events import Emit, nowhere
from ..models import OpenedModel
from ..toolbox import ToolRefused
from . import api, dashboard, openai, report
from .guard import LINGER_SECONDS, Guard
from .identity import Gatekeeper, Rate, Sessions
from .mcp import McpEndpoint
from .problems import NOT_FOUND, Problem, Refused, problem, problem_of
from .questions import Questions
from .tokens import FILE, Tokens

if TYPE_CHECKING:
    from pydantic_ai.models import Model

log = logging.getLogger("citehound.server")

STATIC = Path(__file__).parent / "static"
PAGES = {"/": "index.html", "/dashboard": "dashboard.html", "/sources": "sources.html", "/doc/{id:path}": "doc.html"}
"""Route of each page to its file; they hold no data, so nobody is asked who he is."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PORT = 8765
_THREADS = 32
_TRIES = 30
"""Attempts to sign in that one address has in a minute."""


@dataclass(frozen=True, kw_only=True)
class Health:
    status: str
    """'ok', or 'ready'."""
    version: str = __version__


def create_app(
    config: Config,
    *,
    model: OpenedModel | Model | None = None,
    small: OpenedModel | Model | None = None,
    host: str = "127.0.0.1",
    port: int = PORT,
    emit: Emit = nowhere,
) -> FastAPI:
    """The application over one configuration; `host` and `port` are what it is served at.

    `model` and `small` stand in for the configured ones. `emit` hears of the index being built at the first start.
    A `host` beyond loopback makes it insist on a token. The corpus is opened when the application starts.
    """
    questions = Questions(config, model=model, small=small, emit=emit)
    mcp = McpEndpoint(questions)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="citehound")
        asyncio.get_running_loop().set_default_executor(pool)
        preparing = asyncio.ensure_future(questions.prepare())
        try:
            async with mcp.running():
                yield
        finally:
            with suppress(asyncio.CancelledError):
                await preparing
            await questions.close()

    app = FastAPI(
        title="Citehound",
        version=__version__,
        summary="Answers from your documents, with every quote checked and every gap said.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.config = config
    app.state.questions = questions
    app.state.tokens = Tokens(config.state / FILE)
    app.state.gatekeeper = Gatekeeper(
        settings=config.server,
        tokens=app.state.tokens,
        sessions=Sessions(),
        rate=Rate(config.server.requests_per_minute),
        tries=Rate(_TRIES),
        insists=host not in LOOPBACK or bool(config.server.urls),
    )
    questions.knows = app.state.gatekeeper.knows
    _add_handlers(app)
    _add_health(app)
    app.include_router(api.router)
    app.include_router(openai.router)
    app.include_router(report.router)
    app.router.routes.append(mcp.route)
    # Routers of other rooms are included here, one line each: they take `Caller` for who asks.
    _add_pages(app)
    names = [*LOOPBACK] if host in (*LOOPBACK, "0.0.0.0", "::") else [host, *LOOPBACK]
    app.add_middleware(Guard, settings=config.server, addresses=[(name, port) for name in names])
    dashboard.add(app)
    return app


def _add_handlers(app: FastAPI) -> None:
    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, CitehoundError)
        return problem_of(error)

    async def refused(request: Request, error: Exception) -> Response:
        return problem(422, str(error))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(422, _said(error))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = NOT_FOUND if error.status_code == 404 else str(error.detail)
        return problem(error.status_code, message, headers=error.headers)

    app.add_exception_handler(CitehoundError, ours)
    app.add_exception_handler(ToolRefused, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _said(error: RequestValidationError) -> str:
    """What is wrong with a request, field by field, without repeating what was sent."""
    said: list[str] = []
    for one in error.errors()[:4]:
        where = ".".join(str(part) for part in one["loc"][1:]) or str(one["loc"][0])
        said.append(f"{where}: {one['msg']}")
    return "; ".join(said) or "the request is not as it should be"


def _add_health(app: FastAPI) -> None:
    questions: Questions = app.state.questions

    @app.get("/healthz", summary="Is the process alive?")
    async def healthz() -> Health:  # pyright: ignore[reportUnusedFunction]
        return Health(status="ok")

    @app.get("/readyz", summary="Can it answer?", responses={503: {"model": Problem}})
    async def readyz() -> Health:  # pyright: ignore[reportUnusedFunction]
        if not questions.ready:
            _ = questions.corpus  # says why
            raise Refused(503, "the server is shutting down", retry_after=10)
        return Health(status="ready")


def _add_pages(app: FastAPI) -> None:
    app.mount("/static", GZipMiddleware(StaticFiles(directory=STATIC, check_dir=False)), name="static")
    for path, file in PAGES.items():
        app.add_api_route(path, _page(STATIC / file), methods=["GET"], include_in_schema=False)


def _page(file: Path) -> Any:
    async def page() -> FileResponse:
        if not file.is_file():
            raise Refused(404, NOT_FOUND)
        return FileResponse(file, media_type="text/html; charset=utf-8")

    return page


# running -----------------------------------------------------------------------------------------------------------


class _Protocol(H11Protocol):
    """Closes a connection on which the head of a request does not come in time; bodies are the guard's."""

    seconds = 20.0
    _timer: asyncio.TimerHandle | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._watch()

    def eof_received(self) -> None:
        if self._refused:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Waits from the first byte of a head, and from the beginning of a connection."""
        begun = self.cycle is None or bool(self.conn.trailing_data[0])  # pyright: ignore[reportUnnecessaryComparison]
        if self._refused or self.conn.their_state is not h11.IDLE or not begun:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._late)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self._refuse(408, f"the request did not come within {self.seconds:g} seconds; send it at once")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is no request of HTTP/1.1, or its head is too long; send another")

    def _refuse(self, status: int, message: str) -> None:
        """Answers by hand what never became a request; what still comes is thrown away until the connection closes."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._unwatch()
        body = bytes(problem(status, message).body)
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        head += "x-content-type-options: nosniff\r\n"
        self.transport.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class Server(uvicorn.Server):
    """Ends what runs before it waits for connections, which wait for what runs."""

    def __init__(self, config: uvicorn.Config, questions: Questions) -> None:
        super().__init__(config)
        self._questions = questions
        self.interrupted = False

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._questions.problem is not None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with self.capture_signals():
            await self._serve(sockets)
            self.interrupted = signal.SIGINT in self._captured_signals
            self._captured_signals.clear()  # that they came is no reason to die of them now

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._questions.close()
        await super().shutdown(sockets)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises CitehoundError where that is not possible, UsageError for no host at all."""
    if not host.strip():  # which would mean every address of this machine
        raise UsageError("--host is empty; name an address, as in 127.0.0.1, or 0.0.0.0 for all of this machine")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, asyncio sends what is small at once; else an answer waits 40 ms for an acknowledgement.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(1024)
    except (OSError, UnicodeError) as error:
        made.close()
        why = getattr(error, "strerror", None) or error
        raise CitehoundError(f"{host}:{port} cannot be listened on ({why}); choose another --host or --port") from None
    return made


def server_for(app: FastAPI) -> Server:
    """What serves an application; its `run` takes the sockets that listen."""
    config: Config = app.state.config
    protocol = type("Protocol", (_Protocol,), {"seconds": config.server.request_seconds})
    settings = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=15,
        h11_max_incomplete_event_size=32_768,
    )
    return Server(settings, app.state.questions)


def serve(app: FastAPI, listening: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT. Raises KeyboardInterrupt for the latter, CitehoundError without a corpus."""
    server = server_for(app)
    server.run(sockets=[listening])
    if server.interrupted:
        raise KeyboardInterrupt
    questions: Questions = app.state.questions
    if questions.problem is not None:
        raise questions.problem

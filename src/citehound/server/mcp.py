"""MCP over streamable HTTP at /mcp of the server: the same callers, the same corpus, the same questions.

Without the package 'mcp' the route says what to install.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..access import Principal
from ..answers import Answer
from ..assistant import MODES
from ..errors import UsageError
from .identity import principal_of
from .problems import Refused
from .questions import Asked, Questions

if TYPE_CHECKING:
    from ..mcp_server import Hear, HttpApp

PATH = "/mcp"


class McpEndpoint:
    """The route, and what must run while it is served."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._app: HttpApp | None = None
        self._missing = ""
        try:
            from ..mcp_server import HttpApp, create_server, http_caller
        except UsageError as problem:
            self._missing = str(problem)
            return
        budget = questions.config.budget
        server = create_server(
            lambda: questions.corpus,
            self._ask,
            modes=MODES,
            max_steps=budget.max_steps,
            max_dollars=budget.max_dollars,
            caller=http_caller,
        )
        self._app = HttpApp(server, self._principal)

    @property
    def route(self) -> Route:
        return Route(PATH, endpoint=self, include_in_schema=False)

    def running(self) -> AbstractAsyncContextManager[None]:
        return _nothing() if self._app is None else self._app.running()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            principal_of(Request(scope))
            raise Refused(503, self._missing)
        await self._app(scope, receive, send)

    def _principal(self, request: Request) -> Principal:
        principal = principal_of(request)
        _ = self._questions.corpus  # says why there is none yet
        return principal

    async def _ask(
        self,
        question: str,
        *,
        principal: Principal,
        mode: str,
        max_steps: int | None,
        max_dollars: float | None,
        hear: Hear,
    ) -> Answer:
        from mcp.server.mcpserver.exceptions import ToolError

        asked = Asked(question=question, mode=mode, max_steps=max_steps, max_dollars=max_dollars)
        try:
            running = await self._questions.start(asked, principal=principal)
            try:
                async for _, event in running.follow():
                    hear(event)
                return await running.over()
            except asyncio.CancelledError:
                running.cancel()
                await running.ended()
                raise
        except Refused as refused:
            raise ToolError(str(refused)) from None


@asynccontextmanager
async def _nothing() -> AsyncGenerator[None]:
    yield

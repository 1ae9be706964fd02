"""What goes wrong over HTTP: the one form of every error, and which error of the lower floors has which status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi.responses import JSONResponse

from ..errors import (
    CitehoundError,
    ConfigError,
    RightsWithdrawn,
    UnknownDocument,
    UnknownRun,
    UnknownSection,
    UnknownSource,
    UsageError,
)
from ..security import redact, visible

TYPES: Mapping[int, str] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    422: "invalid",
    429: "too_many_requests",
    431: "too_large",
    500: "internal",
    503: "unavailable",
}


@dataclass(frozen=True, kw_only=True)
class ErrorBody:
    type: str
    """One word, the same for every error with this status."""
    message: str
    """One line that says what to do."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The body of every answer with a status from 400."""

    error: ErrorBody


class Refused(CitehoundError):
    """A request that is answered with an error of this status."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


BUG = "this is a bug in Citehound; please report it with what was asked"
NOT_FOUND = "there is nothing here, or nothing for you; check the address, and the token"
"""Missing and forbidden: one and the same."""


def status_of(error: CitehoundError) -> int:
    """The status that an error of the lower floors has."""
    match error:
        case Refused():
            return error.status
        case UnknownDocument() | UnknownSource() | UnknownSection() | UnknownRun() | RightsWithdrawn():
            return 404
        case ConfigError():
            return 503
        case UsageError():
            return 422
        case _:
            return 503


def problem(
    status: int, message: str, *, retry_after: float | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The answer for an error; `message` becomes one visible line."""
    line = " ".join(redact(visible(message)).split())[:600]
    kind = TYPES.get(status) or ("bad_request" if status < 500 else "internal")
    extra = dict(headers or {})
    if retry_after is not None:
        extra["Retry-After"] = str(max(1, round(retry_after)))
    if status == 401:
        extra["WWW-Authenticate"] = 'Bearer realm="citehound"'
    return JSONResponse({"error": {"type": kind, "message": line}}, status, headers=extra)


def problem_of(error: CitehoundError) -> JSONResponse:
    """The answer for an error of the lower floors; what is missing is not told from what is forbidden."""
    if isinstance(error, UnknownDocument | UnknownSource | UnknownRun):
        return problem(404, NOT_FOUND)
    return problem(status_of(error), str(error), retry_after=error.retry_after if isinstance(error, Refused) else None)

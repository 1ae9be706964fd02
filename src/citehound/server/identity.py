"""Who a request comes from: a token, a session of the page, a trusted proxy, or whoever sits at this machine.

`Caller` is what a route asks for; it also counts the request against its principal's rate.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer

from ..access import OWNER, Principal
from ..config import ServerConfig
from ..errors import CitehoundError
from .problems import Refused
from .tokens import Token, Tokens

COOKIE = "citehound_session"
SESSION_SECONDS = 12 * 3600
_MOST_SESSIONS = 1000
_MOST_RATES = 10_000
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
NEEDS_TOKEN = "this server wants a token: send it as 'Authorization: Bearer …'; 'citehound tokens add' makes one"

_UNKNOWN = "this token is not known here; 'citehound tokens list' names those that are"


class Sessions:
    """Sessions of the page, in memory: a restart ends them, and so does taking the token away."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def begin(self, token: Token) -> str:
        made = secrets.token_urlsafe(32)
        with self._lock:
            self._known[made] = (token.sha256, time.monotonic() + SESSION_SECONDS)
            while len(self._known) > _MOST_SESSIONS:
                self._known.popitem(last=False)
        return made

    def token_of(self, session: str) -> str | None:
        """The hash of the token it was begun with; None for one that there is not, or not any more."""
        with self._lock:
            found = self._known.get(session)
            if found is None or found[1] < time.monotonic():
                self._known.pop(session, None)
                return None
            return found[0]

    def end(self, session: str) -> None:
        with self._lock:
            self._known.pop(session, None)


class Rate:
    """So many per minute of each name, evenly: a burst of all of them, then one whenever its time has come."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, *, what: str) -> None:
        """Raises Refused (429) when `name` has used up its share."""
        now = time.monotonic()
        with self._lock:
            left, at = self._left.pop(name, (self._most, now))
            left = min(self._most, left + (now - at) * self._most / 60)
            self._left[name] = (left - 1 if left >= 1 else left, now)
            while len(self._left) > _MOST_RATES:
                self._left.popitem(last=False)
        if left < 1:
            wait = (1 - left) * 60 / self._most
            raise Refused(429, f"more than {self._most:.0f} {what} a minute; wait and try again", retry_after=wait)


@dataclass(frozen=True, kw_only=True)
class Gatekeeper:
    """What is needed to tell who asks."""

    settings: ServerConfig
    tokens: Tokens
    sessions: Sessions
    rate: Rate
    tries: Rate
    insists: bool
    """True when the server is reached from beyond this machine: a token is needed even where there is none yet."""

    def principal(self, request: Request) -> Principal:
        """Raises Refused (401) when nothing says who asks, or what says so is wrong."""
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, given = header.partition(" ")
            token = self.tokens.find(given.strip()) if scheme.lower() == "bearer" else None
            if token is not None:
                return token.principal
            # OpenAI clients always send a key; where no token is needed, any will do.
            if self._open(request):
                return OWNER
            raise Refused(401, _UNKNOWN)
        proxied = self._proxied(request)
        if proxied is not None:
            return proxied
        session = request.cookies.get(COOKIE)
        if session is not None:
            digest = self.sessions.token_of(session)
            known = next((t for t in self.tokens.all() if t.sha256 == digest), None) if digest else None
            if known is not None:
                if request.method not in ("GET", "HEAD") and "origin" not in request.headers:
                    raise Refused(403, "a session writes from a page of this server only; programs send a token")
                return known.principal
        if self._open(request):
            return OWNER
        raise Refused(401, NEEDS_TOKEN)

    def knows(self, principal: Principal) -> bool:
        """Whether the token that said who this is still says the same; what else says it is asked at each request."""
        if not principal.token:
            return True
        try:
            return any(t.sha256 == principal.token and t.principal == principal for t in self.tokens.all())
        except CitehoundError:
            return False

    def sign_in(self, given: str, *, client: str) -> Token:
        """The token that this is. Raises Refused: 401 for none, 429 for a client that tries too often."""
        self.tries.take(client, what="attempts to sign in")
        token = self.tokens.find(given.strip())
        if token is None:
            raise Refused(401, _UNKNOWN)
        return token

    def _open(self, request: Request) -> bool:
        return not self.insists and self.settings.user_header is None and not self.tokens.any()

    def _proxied(self, request: Request) -> Principal | None:
        """Who a trusted proxy says it is; None where none is switched on, or it says nothing."""
        name = self.settings.user_header
        if name is None or not self._is_proxy(request):
            return None
        values = request.headers.getlist(name)
        if not values:
            return None
        user = values[0].strip()
        if len(values) > 1 or not _USER.fullmatch(user):
            raise Refused(401, f"the header {name} does not name one user; the proxy must set it, and only once")
        owner = user in self.settings.owners
        if user == OWNER.name and not owner:
            raise Refused(401, f"the user {user!r} is kept for the owner; name it in [server] owners, or rename it")
        groups_header = self.settings.groups_header
        groups: set[str] = set()
        for value in request.headers.getlist(groups_header) if groups_header else ():
            groups |= {part.strip() for part in value.split(",") if part.strip()}
        return Principal(name=user, groups=frozenset(groups), owner=owner)

    def _is_proxy(self, request: Request) -> bool:
        try:
            address = ipaddress.ip_address(request.client.host if request.client else "")
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(network) for network in self.settings.proxies)


_BEARER = HTTPBearer(auto_error=False, description="A token that 'citehound tokens add' gave.")
_SESSION = APIKeyCookie(name=COOKIE, auto_error=False, description="What POST /v1/session gave.")


def principal_of(
    request: Request,
    bearer: Annotated[object, Security(_BEARER)] = None,
    session: Annotated[object, Security(_SESSION)] = None,
) -> Principal:
    """Who asks. Raises Refused: 401 when that is not known, 429 when it asks too often."""
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    principal = gatekeeper.principal(request)
    gatekeeper.rate.take(principal.name, what="requests")
    return principal


Caller = Annotated[Principal, Depends(principal_of)]
"""The principal of the request; a route that has none of this is open to all, and is listed as such in the tests."""

"""How many questions are at work at once: as many as the processor carries, the rest wait in order. Knows no run."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import fmean

from ..events import Emit, Waiting

FIRST = 8
"""At work at once before anything is known of the load."""
LEAST = 4
"""However busy: fewer would leave the processor idle while models think."""
BEAT = 0.025
"""Seconds between two looks at how late the loop is."""
BEATS = 10
"""Looks that one decision rests on."""
SETTLE = 2
"""Decisions that are skipped after more were let in: what they ask of the processor shows later."""
BUSY, BUSIEST = 0.56, 0.7
"""Cores that the process uses: up to here more are let in, from there on fewer. The loop has one."""
LATE = 0.003
"""Seconds by which a beat is late, on average, when questions wait for each other at every step."""
OURS = 0.2
"""Of a core. Where this process uses less, something else on the machine makes it late, and fewer questions would not
help."""
VERY_LATE = 0.05
"""Seconds; later than other work of a machine makes it, whatever this process is left of the processor."""
TELL_EVERY = 4
"""Decisions after which those who wait are told how many are before them."""


@dataclass(eq=False, kw_only=True)
class _Ticket:
    tell: Callable[[int | None], None]
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    told: int = -1


class Pace:
    """Lets questions begin in the order in which they came. Used from one event loop.

    How many are at work follows what they ask of the processor: with a model that takes long to answer, all of them;
    with one that answers at once, as many as keep it busy without waiting for each other at every step.
    """

    def __init__(
        self,
        most: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.limit = min(FIRST, most)
        """How many may be at work now."""
        self.working = 0
        self._settling = 0
        self._most = most
        self._clock = clock
        self._cpu = cpu
        self._sleep = sleep
        self._queue: deque[_Ticket] = deque()
        self._watching: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @asynccontextmanager
    async def place(self, emit: Emit) -> AsyncGenerator[None]:
        """A place at work, for as long as it is held. Who has to wait for it hears how many are before him."""
        if self._watching is None or self._watching.done():
            self._settling = SETTLE
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        if self._queue or self.working >= self.limit:
            await self._wait(emit)
        else:
            self.working += 1
        try:
            yield
        finally:
            self.working -= 1
            self._let_in()

    async def _wait(self, emit: Emit) -> None:
        began = self._clock()

        def tell(ahead: int | None) -> None:
            emit(Waiting(ahead=ahead, seconds=round(self._clock() - began, 3)))

        ticket = _Ticket(tell=tell)
        self._queue.append(ticket)
        self._tell()
        try:
            await ticket.turn.wait()
        except asyncio.CancelledError:
            if ticket.turn.is_set():
                self.working -= 1
            else:
                self._queue.remove(ticket)
            self._let_in()
            raise
        tell(None)

    def _let_in(self) -> None:
        while self._queue and self.working < self.limit:
            self.working += 1
            self._queue.popleft().turn.set()

    def _tell(self) -> None:
        for ahead, ticket in enumerate(self._queue):
            if ticket.told != ahead:
                ticket.told = ahead
                ticket.tell(ahead)

    def beat(self, *, late: float, busy: float) -> None:
        """Decides how many may be at work. `late`: seconds that the loop is behind; `busy`: cores that were used."""
        if self._settling:
            self._settling -= 1
        elif busy > BUSIEST or (late > LATE and busy > OURS) or late > VERY_LATE:
            if self.working <= self.limit:  # else the last step down has had no effect yet
                self.limit = max(min(LEAST, self._most), self.limit - max(1, self.limit // 8))
        elif self.working >= self.limit and self._queue:
            wanted = min(self._most, int(self.limit * min(2.0, BUSY / max(busy, 0.01))))
            if wanted > self.limit:
                self.limit, self._settling = wanted, SETTLE
        self._let_in()

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        """Looks at the loop as long as there is work."""
        decisions = 0
        while self.working or self._queue:
            cpu, began = self._cpu(), self._clock()
            late: list[float] = []
            for _ in range(BEATS):
                due = self._clock() + BEAT
                await self._sleep(BEAT)
                late.append(self._clock() - due)
            self.beat(late=fmean(late), busy=(self._cpu() - cpu) / (self._clock() - began))
            decisions += 1
            if decisions % TELL_EVERY == 0:
                self._tell()

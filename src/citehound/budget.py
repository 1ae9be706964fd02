"""Limits of a run and the meter that reserves before anything is spent; prices reach it as values, it knows no model"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import BudgetExceeded


@dataclass(frozen=True, kw_only=True)
class Price:
    """Dollars per million tokens. `cached` is the price of a cache read, `cache_write` of writing one.

    `long`: the prices of requests whose input is longer than their `above`, for all of their tokens; ascending.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    above: int = 0
    long: tuple[Price, ...] = ()

    @property
    def dearest_input(self) -> float:
        return max(self.input, self.cache_write or 0.0, self.cached or 0.0)

    def worst(self, *, input_tokens: int, output_tokens: int) -> float:
        """The most that a request of up to this size can cost: at the dearest price that can apply."""
        tiers = [self, *(tier for tier in self.long if tier.above < input_tokens)]
        return max((input_tokens * t.dearest_input + output_tokens * t.output) / 1_000_000 for t in tiers)

    def room(self, dollars: float, *, input_tokens: int, output_tokens: int) -> int | None:
        """How many input tokens more a request of this size may have, so that its worst case is within `dollars`.

        None means any number; below zero, how many are too many.
        """
        most: int | None = None
        for tier, top in zip((self, *self.long), (*(t.above for t in self.long), None), strict=True):
            left = dollars * 1_000_000 - output_tokens * tier.output
            if tier.dearest_input <= 0:
                fits = top if left >= 0 else 0
            else:
                fits = math.floor(left / tier.dearest_input)
                fits = fits if top is None else min(fits, top)
            if fits is None:
                return None
            if most is not None and fits <= tier.above:
                break
            most = fits
        assert most is not None
        return most - input_tokens

    def of(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0
    ) -> float:
        """What a request cost. `input_tokens` includes the cached and the written ones."""
        longer = next((tier for tier in reversed(self.long) if tier.above < input_tokens), None)
        if longer is not None:
            return longer.of(
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached_tokens,
                cache_write_tokens=cache_write_tokens,
            )
        plain = max(0, input_tokens - cached_tokens - cache_write_tokens)
        cached = self.input if self.cached is None else self.cached
        write = self.input if self.cache_write is None else self.cache_write
        dollars = plain * self.input + cached_tokens * cached + cache_write_tokens * write + output_tokens * self.output
        return dollars / 1_000_000


FREE = Price(input=0.0, output=0.0)
_DUST = 1e-12
"""Dollars that only rounding leaves."""

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Za-z]+|[0-9]+|\n+|\s{2,}|\s|[\x21-\x7e]|.", re.DOTALL)
_WORD = re.compile(r"[A-Z]?[a-z]+")
_MOST_KNOWN = 50_000
"""Pieces of text whose tokens are remembered."""


class _Tokens(dict[str, float]):
    """Tokens of a piece, worked out once: the same words come again and again."""

    def __missing__(self, piece: str) -> float:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        tokens = _tokens(piece)
        if len(piece) <= 24:
            self[piece] = tokens
        return tokens


_known = _Tokens()


def _tokens(piece: str) -> float:
    first, length = piece[0], len(piece)
    if first.isascii() and first.isalpha():
        if _WORD.fullmatch(piece):
            return math.ceil(length / 3) if length <= 24 else length / 1.5
        return math.ceil(length / 2) if length <= 24 else length / 1.2
    if first in "0123456789":
        return length
    if first.isspace():
        return 0.1 if length == 1 and first != "\n" else 1
    if "\x21" <= first <= "\x7e":
        return 1
    return 4 if ord(first) > 0xFFFF else 2


def worst_tokens(text: str) -> int:
    """More tokens than any common tokenizer makes of `text`: for reservations and caps, not for billing.

    Words count a token per three letters (per two in mixed case), every digit and sign one, a character outside
    ASCII two, or four beyond the basic plane. Prose comes out about one half too high.
    """
    return math.ceil(sum(map(_known.__getitem__, _PIECES.findall(text))))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """None means no limit."""

    max_steps: int | None = 12
    max_dollars: float | None = 0.50
    max_seconds: float | None = 120.0


@dataclass(frozen=True, kw_only=True)
class Spent:
    """A snapshot: `dollars` is settled, `reserved` still open."""

    steps: int
    model_calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    dollars: float
    reserved: float
    seconds: float


@dataclass(kw_only=True)
class Reservation:
    """Money set aside for one model request; settle it exactly once, or leave it (an unknown outcome keeps it)."""

    dollars: float
    open: bool = field(default=True)


class Meter:
    """Counts steps, tokens, dollars and time of a run against a `Budget`. Locked; shared by parallel agents.

    `child()` gives a share: what the child reserves and spends is reserved and spent in the parent too.
    Raises `BudgetExceeded` from `reserve` and `begin_step`; never lets settled + reserved exceed `max_dollars`.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        clock: Callable[[], float] = time.monotonic,
        parent: Meter | None = None,
        parallel: bool = False,
    ) -> None:
        self.budget = budget
        self._clock = clock
        self._started = clock()
        self._parent = parent
        self._parallel = parallel
        self._begun = 0 if parent is None else parent._steps
        """Steps of the parent when this share was made."""
        self._lock = threading.RLock() if parent is None else parent._lock
        self._steps = 0
        self._calls = 0
        self._input = 0
        self._cached = 0
        self._output = 0
        self._dollars = 0.0
        self._reserved = 0.0

    def child(
        self,
        *,
        share: float = 1.0,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        parallel: bool = False,
    ) -> Meter:
        """A meter with `share` of the dollars left here; None for the others takes what is left.

        `parallel` shares at work at the same time also share steps: the n-th step of each is the same one here.
        Every other share counts its steps here one by one.
        """
        with self._lock:
            left = self.dollars_left()
            seconds = self.seconds_left()
            if max_seconds is not None:
                seconds = max_seconds if seconds is None else min(seconds, max_seconds)
            return Meter(
                Budget(
                    max_steps=max_steps if max_steps is not None else self.steps_left(),
                    max_dollars=None if left is None else left * share,
                    max_seconds=seconds,
                ),
                clock=self._clock,
                parent=self,
                parallel=parallel,
            )

    def dollars_left(self) -> float | None:
        """Neither spent nor reserved, here and in every parent; None without a limit."""
        with self._lock:
            above = None if self._parent is None else self._parent.dollars_left()
            if self.budget.max_dollars is None:
                return above
            left = max(0.0, self.budget.max_dollars - self._dollars - self._reserved)
            return left if above is None else min(left, above)

    def steps_left(self) -> int | None:
        with self._lock:
            return None if self.budget.max_steps is None else max(0, self.budget.max_steps - self._steps)

    def seconds_left(self) -> float | None:
        if self.budget.max_seconds is None:
            return None
        return max(0.0, self.budget.max_seconds - (self._clock() - self._started))

    def begin_step(self) -> int:
        """Counts a step and returns its number (from 1)."""
        with self._lock:
            if self.steps_left() == 0:
                raise BudgetExceeded(f"the step cap of {self.budget.max_steps} is reached", limit="steps")
            if self._parent is not None and self._parallel:
                self._parent._reach(self._begun + self._steps + 1)
            elif self._parent is not None:
                self._parent.begin_step()
            self._steps += 1
            return self._steps

    def _reach(self, steps: int) -> None:
        """Counts steps up to this number, unless somebody who works at the same time has counted them."""
        while self._steps < steps:
            self.begin_step()

    def fits(self, dollars: float) -> bool:
        """True when `dollars` could be reserved now, here and in every parent."""
        with self._lock:
            left = self.dollars_left()
            here = left is None or dollars <= left + 1e-12
            return here and (self._parent is None or self._parent.fits(dollars))

    def reserve(self, dollars: float) -> Reservation:
        """Sets `dollars` aside before a request is sent."""
        with self._lock:
            if not self.fits(dollars):
                raise BudgetExceeded(f"up to ${dollars:.4f} more would pass the cap of dollars", limit="dollars")
            at: Meter | None = self
            while at is not None:
                at._reserved += dollars
                at = at._parent
            return Reservation(dollars=dollars)

    def settle(
        self,
        reservation: Reservation,
        *,
        dollars: float,
        input_tokens: int = 0,
        cached_tokens: int = 0,
        output_tokens: int = 0,
        calls: int = 1,
    ) -> None:
        """Replaces a reservation by what was really spent. Counts one model call; `calls=0` where none was made."""
        with self._lock:
            if not reservation.open:
                return
            reservation.open = False
            at: Meter | None = self
            while at is not None:
                left = at._reserved - reservation.dollars
                at._reserved = left if left > _DUST else 0.0
                at._dollars += dollars
                at._calls += calls
                at._input += input_tokens
                at._cached += cached_tokens
                at._output += output_tokens
                at = at._parent

    def forfeit(self, reservation: Reservation) -> None:
        """The outcome is unknown (a time-out, a cut stream): the call counts and its money stays reserved."""
        with self._lock:
            if not reservation.open:
                return
            reservation.open = False
            at: Meter | None = self
            while at is not None:
                at._calls += 1
                at = at._parent

    def restart(self) -> None:
        """Time counts from now on."""
        self._started = self._clock()

    def run_spent(self) -> Spent:
        """What the whole run has spent, where this is a share of it."""
        return self.spent() if self._parent is None else self._parent.run_spent()

    def spent(self) -> Spent:
        with self._lock:
            return Spent(
                steps=self._steps,
                model_calls=self._calls,
                input_tokens=self._input,
                cached_tokens=self._cached,
                output_tokens=self._output,
                dollars=self._dollars,
                reserved=self._reserved,
                seconds=self._clock() - self._started,
            )

"""The waiting baseline (BL-WAIT): no transaction at all, but a pause between two publications.

A client publishes the event that sets others in motion, waits, and hopes that all of them are done
when it publishes the second. How long it has to hope is found by trying: the smallest pause with
which every attempt went well. It is here to be measured against, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from concordant.machine.effects import Effect, SetTimer
from concordant.machine.inputs import Input, Request, TimerFired
from concordant.machine.instant import MILLISECOND, Duration, Instant
from concordant.route.client import Client, ClientState
from concordant.route.requests import Publish

STEP_US: Duration = 50 * MILLISECOND
"""How exactly the pause is found (the paper's Δ)."""
START_US: Duration = 2_000 * MILLISECOND


class Attempt(msgspec.Struct, frozen=True, tag=True):
    """Publish an event, and another one after a pause."""

    first: Publish
    second: Publish
    wait_us: Duration


class WaitingState(ClientState, kw_only=True):
    """What is still to be published, by timer."""

    attempts: dict[str, Publish] = msgspec.field(default_factory=dict)


class WaitingClient(Client):
    """A client that waits instead of knowing."""

    _state: WaitingState

    def _new_state(self) -> WaitingState:
        return WaitingState()

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        if not isinstance(given, TimerFired):
            return super().handle(now, given)
        out: list[Effect] = []
        for name in given.names:
            self._ask(now, self._state.attempts.pop(name), given.cause, out)
        return out

    def _ask(self, now: Instant, request: Request, cause: int, out: list[Effect]) -> None:
        if not isinstance(request, Attempt):
            super()._ask(now, request, cause, out)
            return
        super()._ask(now, request.first, cause, out)
        name = f"attempt {self._state.number}"
        self._state.attempts[name] = request.second
        out.append(SetTimer(name, now + request.wait_us, cause))

    @property
    def held_count(self) -> int:
        return len(self._state.attempts)


def calibrated(goes_well: Callable[[Duration], bool], *, start_us: Duration = START_US) -> Duration:
    """The smallest multiple of the step with which everything goes well, by bisection.

    >>> calibrated(lambda wait_us: wait_us >= 170_000)
    200000
    """
    high = max(1, start_us // STEP_US)
    while not goes_well(high * STEP_US):
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        if goes_well(middle * STEP_US):
            high = middle
        else:
            low = middle
    return high * STEP_US

"""Which topics the publishers of all nodes hold back, because some subscriber cannot follow.

A machine at every node: it is told which topics its own slow subscribers hold, tells the other
nodes, and knows what they hold. A word counts for a while and is repeated, so that a node that dies
holds nobody back for ever.
"""

from __future__ import annotations

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import CancelTimer, Disseminate, Effect, Listen, SetTimer
from concordant.machine.inputs import Command, Input, Received, Started, TimerFired
from concordant.machine.instant import MILLISECOND, SECOND, Duration, Instant

_CHANNEL = "flow"
_REPEAT = "repeat"
_EXPIRE = "expire"


class Held(msgspec.Struct, frozen=True, tag=True):
    """My subscribers cannot follow these topics now; none if they can."""

    topics: tuple[str, ...]


class Hold(msgspec.Struct, frozen=True):
    """Request: from now on, hold these topics back and no others."""

    topics: tuple[str, ...]


class FlowOptions(msgspec.Struct, frozen=True):
    """How long a word counts, and how often it is said."""

    repeat_us: Duration = 200 * MILLISECOND
    lease_us: Duration = 1 * SECOND


class _State(msgspec.Struct):
    mine: tuple[str, ...] = ()
    held: dict[str, tuple[Instant, tuple[str, ...]]] = {}
    """By node's flow: until when, and which topics."""


class Flow:
    """The topics that are held back, as one node knows it."""

    def __init__(self, options: FlowOptions | None = None) -> None:
        self._options = options or FlowOptions()
        self._state = _State()

    def holds(self, topic: str) -> bool:
        """True if publishers have to wait."""
        return any(topic in topics for _, topics in self._state.held.values())

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        if isinstance(given, Received):
            for message in given.messages:
                if type(message) is not Held:
                    raise PeerError(f"a flow was sent a {type(message).__name__}")
            for message in given.messages:
                assert isinstance(message, Held)
                self._hear(now, given.source, message.topics)
            self._expire_later(given.cause, out)
        elif isinstance(given, Command):
            for request in given.requests:
                if type(request) is not Hold:
                    raise UsageError(f"a flow cannot {type(request).__name__}")
            for request in given.requests:
                assert isinstance(request, Hold)
                if request.topics != self._state.mine:
                    self._state.mine = request.topics
                    self._say(now, given.cause, out)
        elif isinstance(given, TimerFired):
            for name in given.names:
                if name == _REPEAT and self._state.mine:
                    self._say(now, given.cause, out)
                elif name == _EXPIRE:
                    held = self._state.held
                    self._state.held = {one: word for one, word in held.items() if word[0] > now}
                    self._expire_later(given.cause, out)
        elif isinstance(given, Started):
            out.append(Listen((_CHANNEL,), given.cause))
        return out

    def _say(self, now: Instant, cause: int, out: list[Effect]) -> None:
        mine = self._state.mine
        out.append(Disseminate(_CHANNEL, (Held(mine),), cause))
        if mine:
            out.append(SetTimer(_REPEAT, now + self._options.repeat_us, cause))
        else:
            out.append(CancelTimer(_REPEAT, cause))

    def _hear(self, now: Instant, source: str, topics: tuple[str, ...]) -> None:
        if topics:
            self._state.held[source] = (now + self._options.lease_us, topics)
        else:
            self._state.held.pop(source, None)

    def _expire_later(self, cause: int, out: list[Effect]) -> None:
        if self._state.held:
            first = min(until for until, _ in self._state.held.values())
            out.append(SetTimer(_EXPIRE, first, cause))
        else:
            out.append(CancelTimer(_EXPIRE, cause))

    @property
    def held_count(self) -> int:
        return len(self._state.held)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)

"""The token ring: whoever holds the token gives positions, and passes it on.

The token carries the next position and the last number of every publisher, so that an event that a
publisher sent to two members gets one position. A member makes durable what it placed and that it
holds the token before anybody hears of it; a token that does not seem to arrive is sent again, and
one that came already is known by its number. Nothing is decided without the token, so the ring
stands still while a member is down: it is the price of having no majority to ask.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import (
    Disseminate,
    Effect,
    Listen,
    Persist,
    Send,
    SetTimer,
)
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Command, Input, Message, Received, Started, TimerFired
from concordant.machine.instant import MILLISECOND, Duration, Instant
from concordant.model.event import Event
from concordant.order.broadcast.sequencer import BROADCAST, Acknowledged
from concordant.order.client import ClientOptions
from concordant.order.streams import Ask, Gone, Here, Incoming, Mark, Numbered, Outgoing, Where

_HOLD = "hold"
_AGAIN = "again"
_MARK = "mark"


class Token(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The right to give positions."""

    number: int
    """Of this passing on."""
    position: int
    """The last position that was given."""
    last: dict[str, int]
    """The last number of each publisher."""


class Taken(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The token of this number has arrived."""

    number: int


class Holds(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: this member holds the token."""

    token: Token


class Placed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: an event has this position."""

    position: int
    event: Event


class Passed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: this member has passed the token on, as it is here, and placed these before. One
    record: after a crash between the two, the member would place others at the same positions."""

    token: Token
    placed: tuple[Placed, ...] = ()


RECORDS = (Holds, Passed, Placed)
MESSAGES = (Token, Taken)


class TokenOptions(msgspec.Struct, frozen=True):
    """Waiting times of a ring."""

    hold_us: Duration = 1 * MILLISECOND
    """A member with nothing to place keeps the token for so long."""
    again_us: Duration = 50 * MILLISECOND
    """A token that does not seem to have arrived is sent again after so long."""


class _State(msgspec.Struct):
    incoming: Incoming
    """The positions, as they come from all members."""
    log: Outgoing
    token: Token | None = None
    """Held here."""
    seen: int = -1
    """The number of the last token that was here."""
    passed: Token | None = None
    """On its way, and not known to have arrived."""
    pending: dict[str, dict[int, Event]] = {}
    """Events without a position, by publisher and number."""
    unacknowledged: dict[str, bool] = {}
    mark_wait_us: int = 0
    asked: int = 0
    """Which member was asked last."""


class TokenMember:
    """One member of a ring."""

    def __init__(
        self,
        name: str,
        *,
        ring: Sequence[str],
        options: ClientOptions | None = None,
        token: TokenOptions | None = None,
    ) -> None:
        self.name = name
        self._ring = tuple(ring)
        self._options = options or ClientOptions()
        self._token = token or TokenOptions()
        self._stream = (BROADCAST, BROADCAST)
        self._state = _State(
            Incoming(Holdback(self._options.held_count_max)),
            Outgoing(self._options.kept_count_max),
        )

    @property
    def _next(self) -> str:
        return self._ring[(self._ring.index(self.name) + 1) % len(self._ring)]

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        cause = given.cause
        if isinstance(given, Received):
            for message in given.messages:
                if type(message) not in _KNOWN:
                    raise PeerError(f"a member of a ring was sent a {type(message).__name__}")
            for message in given.messages:
                self._receive(now, given.source, message, cause, out)
        elif isinstance(given, TimerFired):
            for name in given.names:
                self._wake(now, name, cause, out)
        elif isinstance(given, Command):
            raise UsageError("a member of a ring takes no requests", hint="send them to a client")
        elif isinstance(given, Started):
            self._start(now, given, out)
        return out

    # --- messages -----------------------------------------------------------------------------

    def _receive(
        self, now: Instant, source: str, message: Message, cause: int, out: list[Effect]
    ) -> None:
        state = self._state
        match message:
            case Numbered() if message.stream == self._stream:
                self._keep(message.n, message.event, cause, out)
            case Numbered():
                if message.n > self._last(source):
                    waiting = state.pending.setdefault(source, {})
                    if len(waiting) < self._options.held_count_max:
                        waiting[message.n] = message.event
                state.unacknowledged[source] = True
            case Token():
                if message.number > state.seen:
                    self._hold(now, message, cause, out)
                out.append(Send(source, (Taken(message.number),), cause))  # it is durable by then
            case Taken():
                if state.passed is not None and state.passed.number <= message.number:
                    state.passed = None
            case Ask():
                sent = state.log.answer(message, count_max=self._options.answer_count_max)
                if sent:
                    out.append(Send(source, tuple(sent), cause))
            case Where():
                here = Here(Mark(self._stream, max(state.incoming.known, state.log.last)))
                out.append(Send(source, (here,), cause))
            case Mark():
                state.incoming.known = max(state.incoming.known, message.n)
            case Gone():
                pass  # members forget only what is far behind

    def _last(self, publisher: str) -> int:
        known = self._state.token or self._state.passed
        return known.last.get(publisher, 0) if known is not None else 0

    def _keep(self, position: int, event: Event, cause: int, out: list[Effect]) -> None:
        """An event with its position, from whichever member."""
        state = self._state
        if position < state.incoming.next or position in state.incoming.held:
            return
        placed = Placed(position, event)
        out.append(Persist((placed,), cause))
        self._took([placed])

    def _took(self, placed: Sequence[Placed]) -> None:
        """Events have these positions for good."""
        for one in placed:
            for ready in self._state.incoming.accept(one.position, one.event):
                self._state.log.append(ready)

    # --- the token ----------------------------------------------------------------------------

    def _hold(self, now: Instant, token: Token, cause: int, out: list[Effect]) -> None:
        state = self._state
        state.token, state.seen, state.passed = token, token.number, None
        out.append(Persist((Holds(token),), cause))
        for publisher, waiting in state.pending.items():
            last = token.last.get(publisher, 0)
            for n in [one for one in waiting if one <= last]:
                del waiting[n]
        state.incoming.known = max(state.incoming.known, token.position)
        wait_us = 0 if any(state.pending.values()) else self._token.hold_us
        out.append(SetTimer(_HOLD, now + wait_us, cause))

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        state = self._state
        if name == _HOLD and state.token is not None:
            self._place(now, state.token, cause, out)
        elif name == _AGAIN:
            if state.passed is not None:
                out.append(Send(self._next, (state.passed,), cause))
            self._ask(cause, out)
            out.append(SetTimer(_AGAIN, now + self._token.again_us, cause))
        elif name == _MARK and state.log.last:
            mark = Mark(self._stream, state.log.last)
            out.append(Disseminate(BROADCAST, (mark,), cause))
            state.mark_wait_us = min(2 * state.mark_wait_us, self._options.mark_us_max)
            out.append(SetTimer(_MARK, now + state.mark_wait_us, cause))

    def _ask(self, cause: int, out: list[Effect]) -> None:
        """Positions that other members gave and that did not come here."""
        state = self._state
        if not state.incoming.complete:
            state.asked += 1
            others = [one for one in self._ring if one != self.name]
            first, last = state.incoming.missing()
            ask = Ask(self._stream, first, last)
            out.append(Send(others[state.asked % len(others)], (ask,), cause))

    def _place(self, now: Instant, token: Token, cause: int, out: list[Effect]) -> None:
        """Give positions to what waits here, and pass the token on."""
        state = self._state
        position, last = token.position, dict(token.last)
        placed: list[Placed] = []
        for publisher, waiting in state.pending.items():
            n = last.get(publisher, 0) + 1
            while n in waiting:
                position += 1
                placed.append(Placed(position, waiting.pop(n)))
                last[publisher] = n
                n += 1
        passed = Token(token.number + 1, position, last)
        state.token, state.passed, state.seen = None, passed, token.number
        out.append(Persist((Passed(passed, tuple(placed)),), cause))
        self._took(placed)
        sent = tuple(Numbered(self._stream, one.position, one.event) for one in placed)
        if sent:
            out.append(Disseminate(BROADCAST, sent, cause))
            state.mark_wait_us = self._options.mark_us
            out.append(SetTimer(_MARK, now + state.mark_wait_us, cause))
        out.append(Send(self._next, (passed,), cause))
        for publisher in list(state.unacknowledged):
            if publisher in last:
                out.append(Send(publisher, (Acknowledged(last[publisher]),), cause))
            if not state.pending.get(publisher):
                del state.unacknowledged[publisher]

    # --- a life after a crash -----------------------------------------------------------------

    def _start(self, now: Instant, given: Started, out: list[Effect]) -> None:
        state, cause = self._state, given.cause
        for record in given.records:
            if isinstance(record, Placed):
                self._took([record])
            elif isinstance(record, Holds):
                state.token, state.passed, state.seen = record.token, None, record.token.number
            elif isinstance(record, Passed):
                self._took(record.placed)
                number = record.token.number
                state.token, state.passed, state.seen = None, record.token, number - 1
        out.append(Listen((BROADCAST,), cause))
        if state.token is not None:
            out.append(SetTimer(_HOLD, now, cause))
        elif not given.records and self.name == self._ring[0]:
            self._hold(now, Token(0, 0, {}), cause, out)
        if state.log.last:
            state.mark_wait_us = self._options.mark_us
            out.append(SetTimer(_MARK, now, cause))
        out.append(SetTimer(_AGAIN, now + self._token.again_us, cause))

    @property
    def held_count(self) -> int:
        pending = sum(len(one) for one in self._state.pending.values())
        return pending + (not self._state.incoming.complete)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)


_KNOWN = frozenset({Numbered, Token, Taken, Ask, Where, Mark, Gone})

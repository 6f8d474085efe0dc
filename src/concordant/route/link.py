"""Links on which nothing is lost, doubled or overtaken, and a machine that survives crashes.

`Reliable` wraps a machine that relies on first-in-first-out links, and makes them of links that may
lose, double and overtake: messages get numbers per peer, are handed on in their order, acknowledged
and repeated. With `durable` it also logs every input before an effect of it leaves, so that a life
after a crash replays the inputs, comes to the same state, has the same messages under the same
numbers for whoever lacks them, and goes on. The machine inside must be deterministic; it needs no
records of its own.

A client that may lose its memory begins a new session; its broker then numbers from 1 again and
keeps of what waited only what the application is owed. Of the messages' meaning it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec

from concordant.errors import PeerError
from concordant.machine.contract import Machine
from concordant.machine.effects import (
    CancelTimer,
    Deliver,
    Delivery,
    Effect,
    Note,
    Persist,
    Send,
    SetTimer,
)
from concordant.machine.inputs import (
    Command,
    Input,
    Message,
    Received,
    Started,
    TimerFired,
)
from concordant.machine.instant import MILLISECOND, SECOND, Duration, Instant

_ACKNOWLEDGE = "link/acknowledge"
_REPEAT = "link/repeat"
_FLUSH = "link/flush"


class LinkOptions(msgspec.Struct, frozen=True):
    """Waiting times and bounds of links."""

    acknowledge_us: Duration = 5 * MILLISECOND
    """So long a receiver waits for a message of its own that carries its acknowledgement."""
    repeat_us: Duration = 100 * MILLISECOND
    """So long a sender waits for an acknowledgement before it repeats."""
    repeat_us_max: Duration = 5 * SECOND
    """And ever longer while nothing comes, up to this."""
    repeat_count: int = 256
    """Messages repeated at once."""
    held_count_max: int = 1_024
    """Messages that came too early, per peer; beyond that they are dropped and repeated."""
    gathers: bool = False
    """Messages to one peer leave together, at the next turn of the driver's loop: fewer packets."""
    crowd_count: int = 32
    gather_us: Duration = 2 * MILLISECOND
    """With so many messages on their way to one peer, further ones gather for so long: under load
    a packet costs more than the messages in it."""
    log_count_max: int = 10_000
    """Records in the log before a snapshot takes their place."""


class Peer(msgspec.Struct):
    """Both directions of one link."""

    session: int = 0
    sent: int = 0
    """The number of the last message that was sent."""
    unacknowledged: dict[int, Any] = {}
    """By number, without holes, up to the last that was sent."""
    taken: int = 0
    """The number of the last message that was taken, in order."""
    held: dict[int, Any] = {}
    owes: bool = False
    """An acknowledgement is due."""
    due: int = 0
    """What was sent up to this number is repeated next time, unless it is acknowledged."""
    unsent: int = 0
    """The first message that waits to leave with others; 0 if none does."""

    @property
    def acknowledged(self) -> int:
        return self.sent - len(self.unacknowledged)


class Logged(msgspec.Struct, frozen=True, tag=True):
    """Durable: an input of the machine inside, or the beginning of a session."""

    now: Instant
    kind: str
    peer: str
    body: bytes


class Saved(msgspec.Struct, frozen=True, tag=True):
    """Durable: everything up to here."""

    body: bytes


class _SavedPeer(msgspec.Struct, array_like=True):
    session: int
    sent: int
    taken: int
    numbers: list[int]
    messages: bytes


class _State(msgspec.Struct):
    session: int = 0
    timers: dict[str, Instant] = {}
    """Of the machine inside."""
    delivered_count: int = 0
    recent: list[Delivery] = []
    """Deliveries since the last snapshot: the application may not have taken all of them."""
    earlier: list[Delivery] = []
    """And those between the two last snapshots."""
    inner: bytes = b""
    saved: dict[str, _SavedPeer] = {}


class Wire(msgspec.Struct, frozen=True):
    """The types of a protocol: its packet, whose `messages` are typed, and its requests."""

    packet: type[Any]
    messages: Any
    requests: Any
    lasting: tuple[type[Message], ...] = ()
    """Messages that a client is owed even if it lost its memory."""


@cache
def _decoder(one: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(tuple[one, ...])


class Newer(msgspec.Struct, frozen=True, tag=True):
    """To a client whose clock went back: there was a session of this number."""

    session: int


class Reliable:
    """A machine behind reliable links; `records` are what it persists."""

    records = (Logged, Saved)

    def __init__(
        self,
        inner: Machine,
        *,
        wire: Wire,
        brokers: Iterable[str] = (),
        durable: bool = True,
        client: bool = False,
        options: LinkOptions | None = None,
    ) -> None:
        """`brokers` are the peers whose sessions never end; `client`: sessions begin here."""
        self.inner = inner
        self._wire = wire
        self._brokers = frozenset(brokers)
        self._durable = durable
        self._client = client
        self._options = options or LinkOptions()
        self._state = _State()
        self._peers: dict[str, Peer] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._messages = _decoder(wire.messages)
        self._requests = _decoder(wire.requests)
        self._log_count = 0
        self._fresh = inner.snapshot()
        self._wait_us = self._options.repeat_us
        self._acknowledging = self._repeating = self._flushing = False

    @property
    def held_count(self) -> int:
        peers = self._peers.values()
        return self.inner.held_count + sum(len(one.unacknowledged) + len(one.held) for one in peers)

    # --- inputs -------------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        if type(given) is Received:
            for packet in given.messages:
                self._packet(now, given.source, packet, given.cause, out)
        elif isinstance(given, TimerFired):
            self._fired(now, given, out)
        elif isinstance(given, Started):
            self._start(now, given, out)
        else:
            effects = self.inner.handle(now, given)
            body = self._encode(given.requests) if isinstance(given, Command) else b""
            self._log(now, "ask", "", body, given.cause, out)
            self._carry(effects, given.cause, out)
        self._wait(now, given.cause, out)
        if self._log_count > self._options.log_count_max:
            self._save(given.cause, out)
        return out

    def _packet(
        self, now: Instant, source: str, packet: Any, cause: int, out: list[Effect]
    ) -> None:
        if isinstance(packet, Newer):
            if self._client and packet.session >= self._state.session:
                self._begin_session(now, packet.session + 1, cause, out)
            return
        if type(packet) is not self._wire.packet:
            raise PeerError(f"{source} sent a {type(packet).__name__} on a link of packets")
        peer = self._peer(source)
        if packet.session != peer.session:
            if self._client or source in self._brokers:
                return  # of a life that is over
            if packet.session < peer.session:
                out.append(Send(source, (Newer(peer.session),), cause))
                return
            acknowledged = peer.acknowledged
            body = self._encode((packet.session, acknowledged))
            self._log(now, "session", source, body, cause, out)
            self._renew(peer, packet.session, acknowledged)
        if packet.taken > peer.acknowledged:
            for n in range(peer.acknowledged + 1, min(packet.taken, peer.sent) + 1):
                del peer.unacknowledged[n]
            self._wait_us = self._options.repeat_us
        ready = self._accept(peer, packet.first, packet.messages)
        if packet.messages or packet.asks:
            peer.owes = True
        if ready:
            self._log(now, "receive", source, self._encode(ready), cause, out)
            self._carry(self._give(now, source, ready, cause), cause, out)

    def _accept(self, peer: Peer, first: int, messages: Sequence[Message]) -> list[Message]:
        if first == peer.taken + 1 and not peer.held:
            peer.taken += len(messages)
            return list(messages)
        ready: list[Message] = []
        for n, message in enumerate(messages, first):
            if n == peer.taken + 1:
                peer.taken = n
                ready.append(message)
            elif n > peer.taken and len(peer.held) < self._options.held_count_max:
                peer.held[n] = message
        while peer.taken + 1 in peer.held:
            peer.taken += 1
            ready.append(peer.held.pop(peer.taken))
        if peer.held and min(peer.held) <= peer.taken:
            peer.held = {n: one for n, one in peer.held.items() if n > peer.taken}
        return ready

    def _give(
        self, now: Instant, source: str, messages: Sequence[Message], cause: int
    ) -> Sequence[Effect]:
        """To the machine inside; a message that breaks the protocol is dropped, the others not."""
        try:
            return self.inner.handle(now, Received(source, tuple(messages), cause))
        except PeerError as error:
            if len(messages) == 1:
                return [Note(f"dropped: {error}", cause=cause)]
            effects: list[Effect] = []
            for message in messages:
                effects += self._give(now, source, [message], cause)
            return effects

    def _fired(self, now: Instant, given: TimerFired, out: list[Effect]) -> None:
        names = []
        for name in given.names:
            if name == _ACKNOWLEDGE:
                self._acknowledging = False
                for source, peer in self._peers.items():
                    if peer.owes:
                        self._post(source, peer, 0, (), given.cause, out)
            elif name == _REPEAT:
                self._repeating = False
                self._repeat(given.cause, out)
            elif name == _FLUSH:
                self._flushing = False
                self._flush(given.cause, out)
            else:
                names.append(name)
                self._state.timers.pop(name, None)
        if names:
            effects = self.inner.handle(now, TimerFired(tuple(names), given.cause))
            self._log(now, "timer", "", self._encode(names), given.cause, out)
            self._carry(effects, given.cause, out)

    # --- effects ------------------------------------------------------------------------------

    def _carry(self, effects: Sequence[Effect], cause: int, out: list[Effect]) -> None:
        state = self._state
        for effect in effects:
            if type(effect) is Send:
                peer = self._peer(effect.to)
                first = peer.sent + 1
                peer.sent += len(effect.messages)
                peer.unacknowledged.update(enumerate(effect.messages, first))
                if not self._options.gathers:
                    self._post(effect.to, peer, first, effect.messages, cause, out)
                elif not peer.unsent:
                    peer.unsent = first
                continue
            if type(effect) is SetTimer:
                state.timers[effect.name] = effect.at
            elif type(effect) is CancelTimer:
                state.timers.pop(effect.name, None)
            elif type(effect) is Deliver:
                state.delivered_count += len(effect.deliveries)
                if self._durable:
                    state.recent += effect.deliveries
            out.append(effect)

    def _post(
        self,
        to: str,
        peer: Peer,
        first: int,
        messages: tuple[Message, ...],
        cause: int,
        out: list[Effect],
        asks: bool = False,
    ) -> None:
        peer.owes = False
        packet = self._wire.packet(peer.session, first, messages, peer.taken, asks)
        out.append(Send(to, (packet,), cause))

    def _flush(self, cause: int, out: list[Effect]) -> None:
        for to, peer in self._peers.items():
            first = max(peer.unsent, peer.acknowledged + 1)
            if peer.unsent and first <= peer.sent:
                messages = tuple(peer.unacknowledged[n] for n in range(first, peer.sent + 1))
                self._post(to, peer, first, messages, cause, out)
            peer.unsent = 0

    def _repeat(self, cause: int, out: list[Effect]) -> None:
        for to, peer in self._peers.items():
            first = peer.acknowledged + 1
            last = min(peer.due, peer.acknowledged + self._options.repeat_count)
            if first <= last:
                messages = tuple(peer.unacknowledged[n] for n in range(first, last + 1))
                self._post(to, peer, first, messages, cause, out)
                self._wait_us = min(2 * self._wait_us, self._options.repeat_us_max)

    def _wait(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Set the timers of the links, if there is something to wait for."""
        repeats = False
        for peer in self._peers.values():
            if peer.unsent and not self._flushing:
                self._flushing = True
                crowded = len(peer.unacknowledged) > self._options.crowd_count
                gather_us = self._options.gather_us if crowded else 0
                out.append(SetTimer(_FLUSH, now + gather_us, cause))
            if peer.owes and not self._acknowledging:
                self._acknowledging = True
                out.append(SetTimer(_ACKNOWLEDGE, now + self._options.acknowledge_us, cause))
            repeats = repeats or bool(peer.unacknowledged)
        if repeats and not self._repeating:
            self._repeating = True
            for peer in self._peers.values():
                peer.due = peer.sent
            out.append(SetTimer(_REPEAT, now + self._wait_us, cause))

    # --- sessions -----------------------------------------------------------------------------

    def _peer(self, name: str) -> Peer:
        found = self._peers.get(name)
        if found is None:
            found = Peer(self._state.session, 0, {}, 0, {})
            self._peers[name] = found
        return found

    def _renew(self, peer: Peer, session: int, acknowledged: int) -> None:
        """Of what waited for a client, keep what it is owed in any life."""
        waiting = [one for n, one in peer.unacknowledged.items() if n > acknowledged]
        owed = [one for one in waiting if isinstance(one, self._wire.lasting)]
        peer.session, peer.taken, peer.held, peer.unsent, peer.due = session, 0, {}, 0, 0
        peer.sent, peer.unacknowledged = len(owed), dict(enumerate(owed, 1))

    def _begin_session(self, now: Instant, session: int, cause: int, out: list[Effect]) -> None:
        self._log(now, "begin", "", self._encode(session), cause, out)
        self._new_life(session, cause, out)

    def _new_life(self, session: int, cause: int, out: list[Effect]) -> None:
        """The machine inside begins without memory."""
        for name in self._state.timers:
            out.append(CancelTimer(name, cause))
        self._state.timers = {}
        self._state.session = session
        self._peers = {}
        self.inner.restore(self._fresh)
        self._carry(self.inner.handle(session, Started(cause=cause)), cause, out)

    # --- the log ------------------------------------------------------------------------------

    def _log(
        self, now: Instant, kind: str, peer: str, body: bytes, cause: int, out: list[Effect]
    ) -> None:
        if not self._durable:
            return
        self._log_count += 1
        out.append(Persist((Logged(now, kind, peer, body),), cause))

    def _save(self, cause: int, out: list[Effect]) -> None:
        """A snapshot in place of the log."""
        self._log_count = 0
        state = self._state
        state.earlier, state.recent = state.recent, []
        out.append(Persist((Saved(self.snapshot()),), cause, replaces=True))

    def _start(self, now: Instant, given: Started, out: list[Effect]) -> None:
        if not given.records:
            self._begin_session(now, now if self._client else 0, given.cause, out)
            return
        for record in given.records:
            if isinstance(record, Saved):
                self.restore(record.body)
            elif isinstance(record, Logged):
                self._replay(record)
        state = self._state
        self._log_count = len(given.records)
        kept = [*state.earlier, *state.recent]
        missing = state.delivered_count - given.taken_count
        if missing > 0:
            out.append(Deliver(tuple(kept[-missing:]), given.cause))
        for name, at in state.timers.items():
            out.append(SetTimer(name, at, given.cause))
        for to, peer in self._peers.items():
            self._post(to, peer, 0, (), given.cause, out, asks=True)

    def _replay(self, record: Logged) -> None:
        """Do again what was done; what left then has left, or is repeated because it is missed."""
        ignored: list[Effect] = []
        now, cause = record.now, 0
        if record.kind == "receive":
            messages = self._messages.decode(record.body)
            peer = self._peer(record.peer)
            peer.taken += len(messages)
            self._carry(self._give(now, record.peer, messages, cause), cause, ignored)
        elif record.kind == "timer":
            names = msgspec.msgpack.decode(record.body, type=tuple[str, ...])
            for name in names:
                self._state.timers.pop(name, None)
            self._carry(self.inner.handle(now, TimerFired(names)), cause, ignored)
        elif record.kind == "ask":
            requests = self._requests.decode(record.body)
            self._carry(self.inner.handle(now, Command(requests)), cause, ignored)
        elif record.kind == "session":
            session, acknowledged = msgspec.msgpack.decode(record.body, type=tuple[int, int])
            self._renew(self._peer(record.peer), session, acknowledged)
        else:
            self._new_life(msgspec.msgpack.decode(record.body, type=int), cause, ignored)

    def snapshot(self) -> bytes:
        state = self._state
        state.inner = self.inner.snapshot()
        state.saved = {
            name: _SavedPeer(
                one.session,
                one.sent,
                one.taken,
                list(one.unacknowledged),
                self._encode(list(one.unacknowledged.values())),
            )
            for name, one in self._peers.items()
        }
        return self._encode(state)

    def restore(self, data: bytes) -> None:
        state = self._state = msgspec.msgpack.decode(data, type=_State)
        self.inner.restore(state.inner)
        self._peers = {
            name: Peer(
                one.session,
                one.sent,
                dict(zip(one.numbers, self._messages.decode(one.messages), strict=True)),
                one.taken,
                {},
            )
            for name, one in state.saved.items()
        }

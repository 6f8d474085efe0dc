"""The sequencer with replicas: a few processes share one log, and one of them leads.

The leader gives positions by appending to the log, and disseminates an event when it is committed,
so that a position that anybody has seen is known to every later leader. Any replica answers those
who miss something. Which log it is, is chosen by who makes the machine: `order.replication` (one
epoch at a time, logs taken over whole) or `broadcast.paxos` (each position by itself). The order is
that of the plain sequencer, and it outlives the loss of a minority.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Protocol

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Disseminate, Effect, Persist, Send, SetTimer
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Command, Input, Message, Received, Record, Started, TimerFired
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.broadcast.sequencer import (
    BROADCAST,
    KNOWN,
    REPEAT,
    Acknowledged,
    Ordered,
    SequencedClient,
    SequencedState,
)
from concordant.order.client import ClientOptions, foreign
from concordant.order.replication import Outbox, ReplicationOptions
from concordant.order.streams import Ask, Here, Incoming, Mark, Numbered, Outgoing, Stream, Where

_WORK = "work"
_TICK = "tick"
_decoder = msgspec.msgpack.Decoder(Ordered)
_encode = msgspec.msgpack.Encoder().encode


class Leader(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send to this one: it leads, as far as is known here."""

    name: str


class SharedLog(Protocol):
    """What a replicated log looks like to the sequencer on top of it."""

    base: int
    commit: int
    leading: bool
    standing: int
    seen_at: Instant
    state: bytes

    @property
    def length(self) -> int: ...

    @property
    def leader(self) -> int: ...

    @property
    def leads(self) -> int: ...

    @property
    def entry_count(self) -> int: ...

    def begin(self, now: Instant) -> None: ...

    def recall(self, record: Record) -> None: ...

    def whole(self) -> Record: ...

    def compact(self, base: int, state: bytes) -> None: ...

    def committed(self, start: int) -> list[bytes]: ...

    def logged(self, start: int) -> list[bytes]: ...

    def append(self, entries: Sequence[bytes], out: Outbox) -> None: ...

    def flush(self, out: Outbox) -> None: ...

    def tick(self, now: Instant, out: Outbox) -> None: ...

    def receive(self, now: Instant, source: int, message: Message, out: Outbox) -> None: ...


class LogKind(msgspec.Struct, frozen=True):
    """A kind of log, and what it says and keeps."""

    make: Callable[[str, int, ReplicationOptions], Any]
    type: Any
    messages: tuple[type[Message], ...]


class _Order(msgspec.Struct):
    """What the committed entries amount to."""

    log: Outgoing
    last: dict[str, int] = {}
    """The last number of each publisher."""

    def apply(self, entry: bytes) -> bool:
        """Take the next entry; True if it gave an event its position."""
        if not entry:  # a position that a new leader filled because nobody knew of anything there
            return False
        ordered = _decoder.decode(entry)
        if ordered.n != self.last.get(ordered.publisher, 0) + 1:
            return False
        self.last[ordered.publisher] = ordered.n
        self.log.append(ordered.event)
        return True


class _State(msgspec.Struct):
    log: Any
    order: _Order
    applied: int = 0
    led: int = -1
    publishers: dict[str, Incoming] = {}
    logged: dict[str, int] = {}
    """The last number of each publisher that was in the log, and not applied, when this replica
    began to lead."""
    waiting: list[Ordered] = []
    """To be logged."""
    unacknowledged: dict[str, int] = {}
    """Publishers that are to hear how far their events are in order, and what they were told."""
    told: int = 0
    """The last position that was disseminated from here."""
    mark_at: Instant = 0
    working: bool = False


class ReplicatedSequencer:
    """One of the replicas."""

    def __init__(
        self,
        name: str,
        *,
        replicas: Sequence[str],
        kind: LogKind,
        options: ClientOptions | None = None,
        replication: ReplicationOptions | None = None,
    ) -> None:
        self.name = name
        self._replicas = tuple(replicas)
        self._kind = kind
        self._options = options or ClientOptions()
        self._replication = replication or ReplicationOptions(replica_count=len(self._replicas))
        self._stream: Stream = (BROADCAST, BROADCAST)
        log = kind.make(BROADCAST, self._replicas.index(name), self._replication)
        self._state = _State(log, _Order(Outgoing(self._options.kept_count_max)))
        self._records: list[Record] = []
        self._letters: dict[str, list[Message]] = {}
        self._compacted = False

    @property
    def _log(self) -> SharedLog:
        log: SharedLog = self._state.log
        return log

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        timers: list[Effect] = []
        spread: tuple[Message, ...] = ()
        cause = given.cause
        if isinstance(given, Received):
            self._check(given.messages)
            for message in given.messages:
                self._receive(now, given.source, message)
            self._work_soon(now, cause, timers)
        elif isinstance(given, TimerFired):
            for name in given.names:
                if name == _WORK:
                    self._state.working = False
                    spread += self._work(now)
                elif name == _TICK:
                    spread += self._tick(now)
                    self._work_soon(now, cause, timers)
                    timers.append(SetTimer(_TICK, now + self._replication.beat_us // 2, cause))
        elif isinstance(given, Command):
            raise UsageError("a sequencer takes no requests", hint="send them to a client")
        elif isinstance(given, Started):
            self._start(now, given.records)
            timers.append(SetTimer(_TICK, now + self._replication.beat_us // 2, cause))
        return [*self._gathered(cause, spread), *timers]

    def _work_soon(self, now: Instant, cause: int, timers: list[Effect]) -> None:
        """What comes meanwhile is worked on together."""
        if not self._state.working:
            self._state.working = True
            timers.append(SetTimer(_WORK, now, cause))

    def _gathered(self, cause: int, spread: tuple[Message, ...]) -> list[Effect]:
        out: list[Effect] = []
        if self._compacted:
            out.append(Persist((self._log.whole(),), cause, replaces=True))
        elif self._records:
            out.append(Persist(tuple(self._records), cause))
        out += [Send(to, tuple(messages), cause) for to, messages in self._letters.items()]
        if spread:
            out.append(Disseminate(BROADCAST, spread, cause))
        self._records, self._letters, self._compacted = [], {}, False
        return out

    def _outbox(self) -> Outbox:
        return Outbox(
            self._records.append, lambda place, message: self._post(self._replicas[place], message)
        )

    def _post(self, to: str, message: Message) -> None:
        self._letters.setdefault(to, []).append(message)

    # --- messages -----------------------------------------------------------------------------

    def _check(self, messages: tuple[Message, ...]) -> None:
        for message in messages:
            if type(message) not in (Numbered, Ask, Where, *self._kind.messages):
                raise PeerError(f"a sequencer was sent a {type(message).__name__}")

    def _receive(self, now: Instant, source: str, message: Message) -> None:
        state = self._state
        if isinstance(message, Numbered):
            if self._log.leading:
                self._offered(source, message)
            elif self._replicas[self._log.leader] != self.name:
                self._post(source, Leader(self._replicas[self._log.leader]))
        elif isinstance(message, Ask):
            answer = state.order.log.answer(message, count_max=self._options.answer_count_max)
            for one in answer:
                self._post(source, one)
        elif isinstance(message, Where):
            self._post(source, Here(Mark(self._stream, state.order.log.last)))
        elif source in self._replicas:
            self._log.receive(now, self._replicas.index(source), message, self._outbox())
            self._turn()

    def _turn(self) -> None:
        """A new leader begins with what publishers send again."""
        state = self._state
        if self._log.leads != state.led:
            state.led = self._log.leads
            state.publishers, state.waiting, state.unacknowledged = {}, [], {}
            state.told = state.order.log.last
            state.logged = {}
            for entry in self._log.logged(state.applied) if self._log.leading else ():
                ordered = _decoder.decode(entry) if entry else None
                if ordered is not None and ordered.n == self._logged(ordered.publisher) + 1:
                    state.logged[ordered.publisher] = ordered.n

    def _logged(self, publisher: str) -> int:
        """The last number of a publisher that has, or will have, a position."""
        state = self._state
        return max(state.order.last.get(publisher, 0), state.logged.get(publisher, 0))

    def _offered(self, source: str, message: Numbered) -> None:
        state = self._state
        incoming = state.publishers.get(source)
        if incoming is None:
            incoming = state.publishers[source] = Incoming(Holdback(self._options.held_count_max))
        state.unacknowledged[source] = 0
        events = incoming.skip(self._logged(source) + 1)
        events += incoming.accept(message.n, message.event)
        first = incoming.next - len(events)
        state.waiting += [Ordered(first + i, event, source) for i, event in enumerate(events)]

    # --- work ---------------------------------------------------------------------------------

    def _work(self, now: Instant) -> tuple[Message, ...]:
        state, log = self._state, self._log
        self._catch_up()
        if log.leading:
            if state.waiting:
                log.append([_encode(one) for one in state.waiting], self._outbox())
                state.waiting = []
                self._catch_up()
            log.flush(self._outbox())
            for publisher, told in list(state.unacknowledged.items()):
                n = state.order.last.get(publisher, 0)
                if n > told:
                    state.unacknowledged[publisher] = n
                    self._post(publisher, Acknowledged(n))
                if n + 1 >= state.publishers[publisher].next:
                    del state.unacknowledged[publisher]
        if log.entry_count > self._replication.entry_count_max and state.applied > log.base:
            log.compact(state.applied, _encode(state.order))
            self._compacted = True
        return self._news(now)

    def _catch_up(self) -> None:
        state, log = self._state, self._log
        if log.base > state.applied:
            state.order = msgspec.msgpack.decode(log.state, type=_Order)
            state.applied = log.base
        entries = log.committed(state.applied)
        for entry in entries:
            state.order.apply(entry)
        state.applied += len(entries)

    def _news(self, now: Instant) -> tuple[Message, ...]:
        """What has become committed is for everybody; the leader says it."""
        state = self._state
        last = state.order.log.last
        if not self._log.leading or last <= state.told:
            return ()
        news = Ask(self._stream, state.told + 1, last)
        state.told = last
        state.mark_at = now + self._options.mark_us
        return tuple(state.order.log.answer(news, count_max=last))

    def _tick(self, now: Instant) -> tuple[Message, ...]:
        state = self._state
        self._log.tick(now, self._outbox())
        self._turn()
        last = state.order.log.last
        if self._log.leading and last and now >= state.mark_at:
            state.mark_at = now + self._options.mark_us_max
            return (Mark(self._stream, last),)
        return ()

    def _start(self, now: Instant, records: tuple[Record, ...]) -> None:
        log = self._log
        if records:
            for record in records:
                log.recall(record)
            log.seen_at = now
        else:
            log.begin(now)
        self._turn()
        self._catch_up()

    @property
    def held_count(self) -> int:
        log = self._log
        return log.length - self._state.applied + len(self._state.waiting) + bool(log.standing)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        state = msgspec.msgpack.decode(data, type=_State)
        state.log = msgspec.convert(state.log, self._kind.type)
        self._state = state


class ReplicatedState(SequencedState, kw_only=True):
    """Which replica is believed to lead, and which is asked."""

    replica: int = 0
    redirected: bool = False
    """It was sent elsewhere since it repeated last: two that name each other are not believed."""


class ReplicatedClient(SequencedClient):
    """A client of a sequencer with replicas; if one does not answer, the next is tried."""

    _state: ReplicatedState

    def __init__(self, name: str, *, replicas: Sequence[str], **others: Any) -> None:
        self._replicas = tuple(replicas)
        super().__init__(name, sequencer=BROADCAST, **others)

    def _new_state(self, topics: dict[str, bool]) -> Any:
        incoming = Incoming(Holdback[int, Event](self._options.held_count_max))
        return ReplicatedState(topics, incoming=incoming, follows=bool(topics))

    def _target(self) -> str:
        return self._replicas[self._state.replica]

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        if name != REPEAT or self._unheard:
            self._state.replica = (self._state.replica + 1) % len(self._replicas)
            self._state.redirected = False
        super()._wake(now, name, cause, out)

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        for message in given.messages:
            if type(message) not in (Leader, *KNOWN):
                raise foreign(message)
        for led, group in groupby(given.messages, lambda one: isinstance(one, Leader)):
            if not led:
                super()._receive(now, Received(given.source, tuple(group), given.cause), out)
                continue
            for message in group:
                assert isinstance(message, Leader)
                known = message.name in self._replicas and message.name != self._target()
                if known and not self._state.redirected:
                    self._state.redirected = True
                    self._state.replica = self._replicas.index(message.name)
                    self._send_again(given.cause, out)

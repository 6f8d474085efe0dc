"""Sequencers and coordinators with replicas: what one would write to its disk, a majority keeps.

A sequencer is what its log makes of it, so a replicated log makes a replicated sequencer. The
leader appends what it is sent; what is committed every replica applies, and the leader alone speaks
and sets timers. A new leader has the same state, and repeats what may not have been heard. So a
topic outlives the loss of a minority of its replicas, which no time-out could give it.

To the others, the replicas are one machine with one name, a service. `Reach` knows who belongs to
it: a message goes to the replica that spoke last, and a repeated one to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.contract import Machine
from concordant.machine.effects import Effect, Persist, Send, SetTimer
from concordant.machine.inputs import Command, Input, Message, Received, Record, Started, TimerFired
from concordant.machine.instant import Instant
from concordant.machine.saved import Compact
from concordant.order import replication
from concordant.order.replication import Outbox, Replica, ReplicationOptions
from concordant.order.sequencing.client import SEND, SequencingClient
from concordant.order.sequencing.messages import Parcel, Receipt, Report, Rerank
from concordant.order.sequencing.state import SequencingState

_WORK = "work"
_TICK = "tick"


class Service(Machine, Protocol):
    """A machine that can have replicas."""

    decides: frozenset[str]
    """Timers that change what it is; the others only repeat and acknowledge."""
    wakes: tuple[str, ...]
    """Timers that a new leader has to set off."""

    def due(self, source: str) -> tuple[int, int]:
        """The life of a source, and the number of its parcel that is due."""
        ...

    def check(self, messages: tuple[Message, ...]) -> None:
        """Refuse a message that breaks the protocol."""
        ...

    def vet(self, requests: tuple[msgspec.Struct, ...]) -> None:
        """Refuse a request that cannot be met."""
        ...


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An input in the log: a message, a timer or a request."""

    source: str = ""
    message: Parcel | Receipt | Report | None = None
    timer: str = ""
    order: tuple[str, ...] = ()

    @property
    def given(self) -> Input:
        if self.message is not None:
            return Received(self.source, (self.message,))
        return Command((Rerank(self.order),)) if self.order else TimerFired((self.timer,))


_decode = msgspec.msgpack.Decoder(Entry).decode
_encode = msgspec.msgpack.Encoder().encode


class Reach(msgspec.Struct):
    """How to reach services that have replicas."""

    services: dict[str, tuple[str, ...]]
    spoke: dict[str, str] = {}
    """The replica of each service that spoke last."""

    def heard(self, source: str) -> str:
        """The service that a replica belongs to; any other address is its own."""
        for service, replicas in self.services.items():
            if source in replicas:
                self.spoke[service] = source
                return service
        return source

    def out(self, effects: Sequence[Effect], *, everywhere: bool) -> list[Effect]:
        """The same effects, with messages for services sent to their replicas."""
        found: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and effect.to in self.services:
                replicas = self.services[effect.to]
                one = self.spoke.get(effect.to, replicas[0])
                found += [
                    Send(to, effect.messages, effect.cause)
                    for to in (replicas if everywhere else (one,))
                ]
            else:
                found.append(effect)
        return found


class _ReachingState(SequencingState, kw_only=True):
    reach: Reach


class ReachingClient(SequencingClient):
    """A client of sequencers that have replicas."""

    _state: _ReachingState

    def __init__(
        self, name: str, *, services: Mapping[str, tuple[str, ...]], **others: Any
    ) -> None:
        """`services` names the replicas of all services."""
        self._services = dict(services)
        super().__init__(name, **others)

    def _new_state(self, topics: dict[str, bool]) -> Any:
        found = super()._new_state(topics)
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        return _ReachingState(**fields, reach=Reach(self._services))

    def _crash(self, state: SequencingState) -> None:
        super()._crash(state)
        assert isinstance(state, _ReachingState)
        state.reach.spoke = {}

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        reach = self._state.reach
        if isinstance(given, TimerFired):
            found: list[Effect] = []
            for name in given.names:
                effects = super().handle(now, TimerFired((name,), given.cause))
                found += reach.out(effects, everywhere=name != SEND)
            return found
        if isinstance(given, Received):
            before = dict(reach.spoke)
            heard = Received(reach.heard(given.source), given.messages, given.cause)
            try:
                effects = super().handle(now, heard)
            except BaseException:
                reach.spoke = before
                raise
        else:
            effects = super().handle(now, given)
        everywhere = not isinstance(given, Received | Command)
        return self._state.reach.out(effects, everywhere=everywhere)


class _State(msgspec.Struct):
    log: Replica
    reach: Reach
    service: bytes = b""
    applied: int = 0
    led: int = -1
    """The epoch in which this replica began to lead; -1 if it follows."""
    awake: bool = False
    """Since then, what may not have been heard has been repeated."""
    waiting: list[Entry] = []
    """To be logged."""
    logged: dict[str, dict[tuple[int, int], bool]] = {}
    """Parcels on their way through the log, by source: life and number."""
    settled: dict[str, tuple[int, int]] = {}
    """The last receipt of each source that went into the log."""
    working: bool = False


class Replicated:
    """One replica of a service."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Service],
        *,
        service: str,
        services: Mapping[str, tuple[str, ...]],
        options: ReplicationOptions | None = None,
        queue_count_max: int = 10_000,
    ) -> None:
        """`services` names the replicas of all services, those of this one among them. When
        `queue_count_max` inputs wait for a majority, further ones are not taken; who sent them
        repeats them."""
        self._name = name
        self._make = make
        self._replicas = services[service]
        self._options = options or ReplicationOptions(replica_count=len(self._replicas))
        self._queue_count_max = queue_count_max
        log = Replica(service, self._replicas.index(name), self._options)
        others = {one: many for one, many in services.items() if one != service}
        self._state = _State(log, Reach(others))
        self._service = self._new()
        self._records: list[Record] = []
        self._letters: dict[str, list[Message]] = {}
        self._compacted = False

    def _new(self) -> Service:
        service = self._make()
        service.handle(0, Started())  # what it says first is repeated by whoever leads
        return service

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        cause = given.cause
        said: list[Effect] = []
        timers: list[Effect] = []
        if isinstance(given, Received):
            self._check(given)
            for message in given.messages:
                self._receive(now, given.source, message, said)
            self._work_soon(now, cause, timers)
        elif isinstance(given, TimerFired):
            for name in given.names:
                if name == _WORK:
                    self._state.working = False
                    self._work(now, said)
                elif name == _TICK:
                    self._state.log.tick(now, self._outbox())
                    self._turn()
                    self._work_soon(now, cause, timers)
                    timers.append(SetTimer(_TICK, now + self._options.beat_us // 2, cause))
                else:
                    self._wake(now, name, said)
                    self._work_soon(now, cause, timers)
        elif isinstance(given, Command):
            self._service.vet(given.requests)
            if any(isinstance(request, Compact) for request in given.requests):
                self._compact()
                return self._gathered(cause)
            if not self._state.log.leading:
                leader = self._replicas[self._state.log.leader]
                raise UsageError(f"{self._name} does not lead", hint=f"ask {leader}")
            for request in given.requests:
                if isinstance(request, Rerank):
                    self._state.waiting.append(Entry(order=request.order))
            self._work_soon(now, cause, timers)
        elif isinstance(given, Started):
            self._start(now, given.records)
            timers.append(SetTimer(_TICK, now + self._options.beat_us // 2, cause))
        return [*self._gathered(cause), *_caused(said, cause), *timers]

    def _check(self, given: Received) -> None:
        if given.source in self._replicas:
            for message in given.messages:
                if type(message) not in replication.MESSAGES:
                    raise PeerError(f"a replica was sent a {type(message).__name__}")
        else:
            self._service.check(given.messages)

    def _receive(self, now: Instant, source: str, message: Message, said: list[Effect]) -> None:
        state = self._state
        if source in self._replicas:
            place = self._replicas.index(source)
            state.log.receive(now, place, message, self._outbox())
            self._turn()
        elif state.log.leading:  # whoever sends to a replica that follows repeats it to all
            source = state.reach.heard(source)
            if self._is_full:
                return
            if self._is_news(source, message):
                state.waiting.append(Entry(source, message))  # type: ignore[arg-type]
            elif self._is_harmless(source, message):
                self._speak(self._service.handle(now, Received(source, (message,))), said)

    @property
    def _uncommitted_count(self) -> int:
        return self._state.log.length - self._state.applied + len(self._state.waiting)

    @property
    def _is_full(self) -> bool:
        return self._uncommitted_count >= self._queue_count_max

    def _is_news(self, source: str, message: Message) -> bool:
        """What changes the service is logged, once."""
        logged = self._state.logged
        if isinstance(message, Parcel):
            number = (message.life, message.n)
            if number < self._service.due(source) or number in logged.get(source, {}):
                return False
            logged.setdefault(source, {})[number] = True
            return True
        if isinstance(message, Receipt):
            number = (message.life, message.n)
            if number <= self._state.settled.get(source, (0, 0)):
                return False
            self._state.settled[source] = number
            return True
        return isinstance(message, Report)

    def _is_harmless(self, source: str, message: Message) -> bool:
        """What is only to be answered: a question, or a parcel that was taken before."""
        if isinstance(message, Parcel):
            return (message.life, message.n) < self._service.due(source)
        return not isinstance(message, Receipt)

    def _wake(self, now: Instant, name: str, said: list[Effect]) -> None:
        if not self._state.log.leading:
            return
        if name in self._service.decides:
            if not self._is_full:
                self._state.waiting.append(Entry(timer=name))
        else:
            self._speak(self._service.handle(now, TimerFired((name,))), said, everywhere=True)

    def _speak(
        self, effects: Sequence[Effect], said: list[Effect], *, everywhere: bool = False
    ) -> None:
        spoken = [one for one in effects if not isinstance(one, Persist)]
        said += self._state.reach.out(spoken, everywhere=everywhere)

    # --- the log ------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Who begins to lead has something to repeat; who no longer leads forgets what waits."""
        state = self._state
        if state.log.leads != state.led:
            state.led, state.awake, state.waiting = state.log.leads, False, []
            state.logged, state.settled = {}, {}

    def _work_soon(self, now: Instant, cause: int, timers: list[Effect]) -> None:
        """What comes meanwhile is worked on together."""
        if not self._state.working:
            self._state.working = True
            timers.append(SetTimer(_WORK, now, cause))

    def _work(self, now: Instant, said: list[Effect]) -> None:
        state, log = self._state, self._state.log
        self._catch_up(now, said)
        if log.leading:
            if state.waiting:
                log.append([_encode(entry) for entry in state.waiting], self._outbox())
                state.waiting = []
                self._catch_up(now, said)
            log.flush(self._outbox())
            if not state.awake:
                state.awake = True
                for name in self._service.wakes:
                    self._wake(now, name, said)
        if log.entry_count > self._options.entry_count_max:
            self._compact()

    def _compact(self) -> None:
        """Let the state take the place of what was applied."""
        state, log = self._state, self._state.log
        if state.applied > log.base:
            log.compact(state.applied, self._service.snapshot())
            self._compacted = True

    def _catch_up(self, now: Instant, said: list[Effect]) -> None:
        state, log = self._state, self._state.log
        if log.base > state.applied:
            self._service = self._new()
            self._service.restore(log.state)
            state.applied = log.base
        entries = log.committed(state.applied)
        for encoded in entries:
            entry = _decode(encoded)
            if isinstance(entry.message, Parcel):
                number = (entry.message.life, entry.message.n)
                state.logged.get(entry.source, {}).pop(number, None)
            try:
                effects = self._service.handle(now, entry.given)
            except UsageError:  # it was asked twice, and the first was heard meanwhile
                continue
            if log.leading:
                self._speak(effects, said)
        state.applied += len(entries)

    def _outbox(self) -> Outbox:
        return Outbox(
            self._records.append,
            lambda place, message: self._letters.setdefault(self._replicas[place], []).append(
                message
            ),
        )

    def _gathered(self, cause: int) -> list[Effect]:
        out: list[Effect] = []
        if self._compacted:
            out.append(Persist((self._state.log.whole(),), cause, replaces=True))
        elif self._records:
            out.append(Persist(tuple(self._records), cause))
        out += [Send(to, tuple(messages), cause) for to, messages in self._letters.items()]
        self._records, self._letters, self._compacted = [], {}, False
        return out

    def _start(self, now: Instant, records: tuple[Record, ...]) -> None:
        log = self._state.log
        if records:
            for record in records:
                log.recall(record)
            log.seen_at = now
        else:
            log.begin(now)
        self._turn()
        self._catch_up(now, [])

    @property
    def held_count(self) -> int:
        state = self._state
        return self._uncommitted_count + (self._service.held_count if state.log.leading else 0)

    def snapshot(self) -> bytes:
        self._state.service = self._service.snapshot()
        return _encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)
        self._service.restore(self._state.service)


def _caused(effects: Sequence[Any], cause: int) -> list[Effect]:
    return [msgspec.structs.replace(effect, cause=cause) for effect in effects]

"""A host of mergers: the replicas of many mergers in one machine.

It creates a merger when it first hears of it, carries messages to the right one, and makes durable
what their logs have to keep. Messages are only taken in as they come; a moment later everything
that has come is worked on together, so that under load entries, batches and acknowledgements are
large. The host knows who hosts what (`overlay`), and nothing of subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.detector import Suspected, Trusted
from concordant.machine.effects import Effect, Persist, Send, SendAll, SetTimer
from concordant.machine.inputs import Command, Input, Message, Received, Record, Started, TimerFired
from concordant.machine.instant import Instant
from concordant.order import replication
from concordant.order.merging.core import Core
from concordant.order.merging.messages import (
    Accepted,
    Advance,
    Attach,
    Batch,
    Borrow,
    Complete,
    Detach,
    Elsewhere,
    Ended,
    Link,
    Offer,
    Pull,
    Reached,
    Recut,
    check,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.overlay import SIDES, hosts_of, name_of, signature_named
from concordant.order.merging.part import Part, encode
from concordant.order.replication import Outbox, Replica

_WORK = "work"
_TICK = "tick"

_CONTROLS = (Attach, Borrow, Link, Detach, Complete, Recut, Advance)
_NAMED: dict[type[Message], Callable[[Any], str]] = {
    Offer: lambda one: name_of((one.topic,)),
    **dict.fromkeys((Batch, Ended), lambda one: one.consumer.rpartition(" ")[0]),
    **dict.fromkeys((*_CONTROLS, Pull, Reached), attrgetter("merger")),
    **dict.fromkeys(replication.MESSAGES, attrgetter("log")),
}
"""The merger that a message is for: of a batch, the child that asked for it."""
_KNOWN = frozenset({*_NAMED, Suspected, Trusted})


class _State(msgspec.Struct):
    parts: dict[str, Part] = {}
    dirty: dict[str, bool] = {}
    working: bool = False
    """The timer is set that begins the work."""


class MergerHost:
    """See the module's text."""

    def __init__(
        self, name: str, *, hosts: Sequence[str], options: MergingOptions | None = None
    ) -> None:
        """`hosts` are the addresses of all hosts, the same list everywhere."""
        self.name = name
        self._hosts = tuple(hosts)
        self._options = options or MergingOptions()
        self._state = _State()
        self._records: list[Record] = []
        self._letters: dict[str, list[Message]] = {}
        self._shared: list[tuple[tuple[str, ...], Message]] = []
        self._compacted = False
        self._outboxes: dict[str, Outbox] = {}

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        timers: list[Effect] = []
        cause = given.cause
        if isinstance(given, Received):
            self._check(given.messages)
            for message in given.messages:
                self._receive(now, given.source, message)
        elif isinstance(given, TimerFired):
            for name in given.names:
                if name == _TICK:
                    self._tick(now)
                    timers.append(SetTimer(_TICK, now + self._options.tick_us, cause))
                elif name == _WORK:
                    self._state.working = False
                    self._work(now)
                self._work_soon(now, cause, timers)
        elif isinstance(given, Command):
            raise UsageError("a host of mergers takes no requests", hint="send them to a client")
        elif isinstance(given, Started):
            self._start(now, given.records)
            timers.append(SetTimer(_TICK, now + self._options.tick_us, cause))
        self._work_soon(now, cause, timers)
        return [*self._gathered(cause), *timers]

    def _work_soon(self, now: Instant, cause: int, timers: list[Effect]) -> None:
        """What comes meanwhile is worked on together."""
        if self._state.dirty and not self._state.working:
            self._state.working = True
            timers.append(SetTimer(_WORK, now + self._options.gather_us, cause))

    def _gathered(self, cause: int) -> list[Effect]:
        out: list[Effect] = []
        if self._compacted:
            whole = tuple(part.replica.whole() for part in self._state.parts.values())
            out.append(Persist(whole, cause, replaces=True))
        elif self._records:
            out.append(Persist(tuple(self._records), cause))
        out += [Send(to, tuple(messages), cause) for to, messages in self._letters.items()]
        out += [SendAll(to, (message,), cause) for to, message in self._shared]
        self._records, self._letters, self._shared, self._compacted = [], {}, [], False
        return out

    def _post(self, to: str, message: Message) -> None:
        self._letters.setdefault(to, []).append(message)

    # --- parts --------------------------------------------------------------------------------

    def _check(self, messages: tuple[Message, ...]) -> None:
        """Refuse a batch before anything has changed."""
        new: dict[str, bool] = {}
        for message in messages:
            if type(message) not in _KNOWN:
                raise PeerError(f"a host of mergers was sent a {type(message).__name__}")
            if isinstance(message, Offer) and any(e.topic != message.topic for e in message.events):
                raise PeerError(f"the root of {message.topic!r} was offered another topic's events")
            if not isinstance(message, Suspected | Trusted):
                name = _merger_of(message)
                if isinstance(message, Batch):
                    check(message)
                    if _side_of(message) not in SIDES:
                        raise PeerError(f"{message.consumer!r} is no side of a merger")
                if name not in self._state.parts and name not in new:
                    new[name] = True
                    if self.name not in self._replicas(name):
                        raise PeerError(f"{self.name} has no replica of the merger {name!r}")
        if len(self._state.parts) + len(new) > self._options.merger_count_max:
            raise PeerError(f"{self.name} has its {self._options.merger_count_max:,} mergers")

    def _replicas(self, name: str) -> tuple[str, ...]:
        count = self._options.replication.replica_count
        return hosts_of(signature_named(name), self._hosts, count)

    def _part(self, now: Instant, name: str) -> Part:
        found = self._state.parts.get(name)
        if found is None:
            found = self._new_part(name)
            if self.name.partition("/")[0] in self._options.replaced:
                found.replica.arrive(now)
            else:
                found.replica.begin(now)
            found.turned(now, self._options)
        return found

    def _new_part(self, name: str) -> Part:
        place = self._replicas(name).index(self.name)
        replica = Replica(name, place, self._options.replication)
        found = self._state.parts[name] = Part(
            name, replica, Core(signature_named(name), self._options.stamped)
        )
        return found

    def _outbox(self, name: str) -> Outbox:
        found = self._outboxes.get(name)
        if found is None:
            replicas = self._replicas(name)
            found = self._outboxes[name] = Outbox(
                lambda record: self._records.append(record),
                lambda place, message: self._post(replicas[place], message),
            )
        return found

    def _start(self, now: Instant, records: tuple[Record, ...]) -> None:
        for record in records:
            assert isinstance(record, replication.RECORDS)
            part = self._state.parts.get(record.log) or self._new_part(record.log)
            part.replica.recall(record)
        for name, part in self._state.parts.items():
            part.replica.seen_at = now
            self._state.dirty[name] = True

    # --- messages -----------------------------------------------------------------------------

    def _receive(self, now: Instant, source: str, message: Message) -> None:
        if isinstance(message, Suspected | Trusted):
            self._doubt(now, message)
            return
        name = _merger_of(message)
        part = self._part(now, name)
        if isinstance(message, replication.MESSAGES):
            replicas, led = self._replicas(name), part.led
            unheard = -1 in part.replica.kept
            if source in replicas:
                part.replica.receive(now, replicas.index(source), message, self._outbox(name))
                part.turned(now, self._options)
            if part.led == led and not part.busy and not unheard:
                return  # to keep an entry, or to hear that one more does, is no work
        elif isinstance(message, Pull):
            part.pulled(now, source, message)
        elif isinstance(message, Offer):
            if part.replica.leading:
                part.offer(source, message.n, message.events, self._options)
            else:
                part.astray[source] = True
        elif isinstance(message, Batch):
            part.take_in(now, SIDES.index(_side_of(message)), message)
        elif isinstance(message, Ended):
            part.unlinked[message.consumer] = max(
                message.session, part.unlinked.get(message.consumer, 0)
            )
        elif isinstance(message, _CONTROLS):
            if isinstance(message, Detach) and not part.core.changes(message):
                self._post(source, Ended(name, message.consumer, message.session))
            else:
                part.control(message)
        elif isinstance(message, Reached):
            for consumer, session, done in message.consumers:
                part.reached(now, consumer, session, done)
        self._state.dirty[name] = True

    def _doubt(self, now: Instant, message: Suspected | Trusted) -> None:
        if isinstance(message, Suspected):
            for name, part in self._state.parts.items():
                leader = self._replicas(name)[part.replica.leader]
                if leader.partition("/")[0] in message.members:
                    part.replica.doubt(now)

    # --- work ---------------------------------------------------------------------------------

    def _work(self, now: Instant) -> None:
        dirty, self._state.dirty = self._state.dirty, {}
        for number, name in enumerate(dirty):
            part = self._state.parts[name]
            part.catch_up()
            if part.replica.leading:  # mergers of one host give different times
                self._lead(now, part, now + number)
            self._redirect(part)
            for to, answer in part.answers(self._options):
                self._answer(to, answer)
            self._compact(part)

    def _redirect(self, part: Part) -> None:
        """Publishers that came to the wrong replica are told which one leads."""
        astray, part.astray = part.astray, {}
        if part.replica.leader != part.replica.me:
            leader = self._replicas(part.name)[part.replica.leader]
            for publisher in astray:
                self._post(publisher, Elsewhere(part.core.signature[0], leader))

    def _answer(self, to: tuple[str, ...], answer: Batch | Ended) -> None:
        if len(to) == 1:
            self._post(to[0], answer)
        else:
            self._shared.append((to, answer))

    def _lead(self, now: Instant, part: Part, time: Instant) -> None:
        entries = part.commands(now, time, self._options)
        if entries:
            part.replica.append(entries, self._outbox(part.name))
            part.catch_up()
        part.replica.flush(self._outbox(part.name))
        self._pull(now, part, overdue=False)
        self._mark(now, part, overdue=False)
        if part.linked != part.links_to_be:
            self._link(now, part)
        for publisher, told in list(part.unaccepted.items()):
            n = part.core.last.get(publisher, 0)
            if n > told:
                part.unaccepted[publisher] = n
                self._post(publisher, Accepted(part.core.signature[0], n))
            if n + 1 == part.publishers[publisher].next:
                del part.unaccepted[publisher]

    def _pull(self, now: Instant, part: Part, *, overdue: bool) -> None:
        for place, pull in part.pulls(now, self._options, overdue=overdue):
            self._post(self._replicas(pull.merger)[place], pull)

    def _mark(self, now: Instant, part: Part, *, overdue: bool) -> None:
        for mark in part.marks(now, self._options, overdue=overdue):
            for replica in self._replicas(mark.merger):
                self._post(replica, mark)

    def _link(self, now: Instant, part: Part) -> None:
        part.linked_at = now
        part.linked = part.links_to_be
        for _, message in part.links():
            for replica in self._replicas(message.merger):
                self._post(replica, message)

    def _compact(self, part: Part) -> None:
        replica = part.replica
        if replica.full and part.applied > replica.base:
            replica.compact(part.applied, encode(part.core))
            self._compacted = True

    def _tick(self, now: Instant) -> None:
        for name, part in self._state.parts.items():
            part.replica.tick(now, self._outbox(name))
            part.turned(now, self._options)
            if part.replica.leading:
                if now >= part.linked_at + self._options.repeat_us:
                    self._link(now, part)
                self._pull(now, part, overdue=True)
                self._mark(now, part, overdue=True)
                for detach in part.expired(now, self._options):
                    part.control(detach)
            self._tell(part)
            part.trim()
            if part.busy:
                self._state.dirty[name] = True

    def _tell(self, part: Part) -> None:
        """What consumers have done with is told to the other replicas."""
        if part.heard:
            told = tuple((one, *part.done[one]) for one in part.heard if one in part.done)
            for replica in self._replicas(part.name):
                if replica != self.name and told:
                    self._post(replica, Reached(part.name, told))
            part.heard = {}
            part.forget()

    @property
    def held_count(self) -> int:
        return sum(part.held_count for part in self._state.parts.values())

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_State)


def _merger_of(message: Message) -> str:
    return _NAMED[type(message)](message)


def _side_of(batch: Batch) -> str:
    return batch.consumer.rpartition(" ")[2]

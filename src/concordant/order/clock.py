"""Order by the clock: a deterministic merge by (time, source, seq) behind a frontier.

Sources stamp events with a hybrid logical clock and mark their progress: after a mark of time t
comes nothing that is not younger. A subscriber delivers an event when every source that it knows
has passed the event's time, so all subscribers deliver in the one order that tables have as well,
and nobody had to ask anybody. The price is to wait for the slowest source.

A source that is silent for too long is suspected by the failure detector and no longer waited for.
If that was wrong, its events come too late here and are delivered out of order, and say so. While a
topic is being subscribed nothing is delivered, so that its first events are not too late.
"""

from __future__ import annotations

from typing import Any

import msgspec

from concordant.errors import InvariantViolation
from concordant.machine.detector import Suspected, Trusted, Watch
from concordant.machine.effects import Effect, Note, Persist, Send, SetTimer
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Message, Received, Record
from concordant.machine.instant import Duration, Instant
from concordant.model.event import Event
from concordant.order.client import Delivered, Installed, Joined, Left
from concordant.order.fifo import MARK, FifoClient, FifoState
from concordant.order.streams import Incoming, Mark, Numbered, Stream

Key = tuple[int, str, int]
_NEVER: Key = (-1, "", 0)


class ClockState(FifoState, kw_only=True):
    """What waits for the frontier."""

    merged: Holdback[Key, Delivered]
    passed: dict[Stream, Instant] = msgspec.field(default_factory=dict)
    """For every stream that is waited for: nothing older than this, or as old, will come."""
    marks: dict[Stream, Mark] = msgspec.field(default_factory=dict)
    """Marks that count as soon as everything before them is here."""
    suspected: dict[str, bool] = msgspec.field(default_factory=dict)
    released: Key = _NEVER
    """The greatest key that was delivered in order."""
    promised: Instant = 0
    """Marks up to this time may leave: the clock of the next life starts there."""


class Promised(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: what is published in a later life is younger than this."""

    time: Instant


class ClockClient(FifoClient):
    """A client whose subscriptions are merged by time."""

    _state: ClockState

    def __init__(self, name: str, *, detector: str = "", **others: Any) -> None:
        """`detector` is a failure detector that has to be asked for its suspicions."""
        self._detector = detector
        super().__init__(name, **others)

    def _new_state(self, topics: dict[str, bool]) -> Any:
        state = ClockState(topics, merged=Holdback(3 * self._options.held_count_max))
        for topic in topics:
            state.passed.update({(source, topic): 0 for source in self._sources_of(topic)})
        return state

    # --- publisher ----------------------------------------------------------------------------

    def _timekeeper(self, source: str) -> str:
        del source  # a mark is a word for the whole stream, whoever's events are in it
        return self.name

    def _mark(self, now: Instant, topic: str, cause: int, out: list[Effect]) -> Mark:
        # Ticking is a promise: what is published from now on, in this life or in a later one, is
        # younger than the mark.
        state = self._state
        time = state.clock.tick(now)
        if time > state.promised:
            state.promised = time + self._options.promise_us
            out.append(Persist((Promised(state.promised),), cause))
        return Mark((self.name, topic), self._outgoing(topic).last, time)

    @property
    def _mark_us_max(self) -> Duration:
        return self._options.mark_us  # others wait for the next mark: it must not become rare

    def _begin(self, now: Instant, cause: int, out: list[Effect]) -> None:
        state = self._state
        for topic in self._publishes or ():
            self._outgoing(topic)
        if self._publishes is None or self._publishes:
            state.mark_wait_us = self._options.mark_us
            state.mark_at = now
            out.append(SetTimer(MARK, now, cause))
        if state.topics:
            self._watch(cause, out)

    def _watch(self, cause: int, out: list[Effect]) -> None:
        """Suspicions matter to who waits for sources, and to nobody else."""
        if self._detector:
            wanted = bool(self._state.topics or self._state.joining)
            out.append(Send(self._detector, (Watch(wanted),), cause))

    # --- merge --------------------------------------------------------------------------------

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        if all(isinstance(message, Suspected | Trusted) for message in given.messages):
            ready: list[Delivered] = []
            for message in given.messages:
                self._revise(message, ready, given.cause, out)
            if ready:
                self._deliver(ready, given.cause, out)
        else:
            super()._receive(now, given, out)

    def _revise(
        self, message: Message, ready: list[Delivered], cause: int, out: list[Effect]
    ) -> None:
        state = self._state
        if isinstance(message, Suspected):
            state.suspected.update(dict.fromkeys(message.members, True))
            out += [Note(member, "suspect", cause=cause) for member in message.members]
        elif isinstance(message, Trusted):
            for member in message.members:
                state.suspected.pop(member, None)
        self._release(ready)

    def _accept(self, incoming: Incoming, message: Numbered) -> list[Event]:
        # Full: let in only what the frontier waits for, and ask for the rest again when it is due.
        state = self._state
        full = len(state.merged) >= self._options.held_count_max
        if full and state.passed.get(message.stream, 0) > self._frontier():
            incoming.known = max(incoming.known, message.n)
            return []
        return super()._accept(incoming, message)

    def _ready(
        self, first: int, stream: Stream, events: list[Event], ready: list[Delivered]
    ) -> None:
        state = self._state
        for n, event in enumerate(events, first):
            key = (event.time, event.source, event.seq)
            if key < state.released:
                ready.append(self._delivered(n, stream, event, in_order=False))
            elif not state.merged.put(key, self._delivered(n, stream, event)):
                raise InvariantViolation(f"no room for {event.id}, which `_accept` let in")
        self._pass(stream, events[-1].time)
        self._count_mark(stream)
        self._release(ready)

    def _hear(
        self, now: Instant, mark: Mark, ready: list[Delivered], cause: int, out: list[Effect]
    ) -> None:
        known = self._state.marks.get(mark.stream)
        if known is None or mark.time > known.time:
            self._state.marks[mark.stream] = mark
        super()._hear(now, mark, ready, cause, out)
        if self._count_mark(mark.stream):
            self._release(ready)

    def _count_mark(self, stream: Stream) -> bool:
        mark = self._state.marks.get(stream)
        if mark is None or mark.n >= self._incoming(stream).next:
            return False
        del self._state.marks[stream]
        self._pass(stream, mark.time)
        return True

    def _pass(self, stream: Stream, time: Instant) -> None:
        if time > self._state.passed.get(stream, 0):
            self._state.passed[stream] = time

    def _release(self, ready: list[Delivered]) -> None:
        state = self._state
        if state.joining or not state.merged.waiting:
            return
        frontier = self._frontier()
        due = state.merged.drain(lambda key: key[0] <= frontier)
        if due:
            last = due[-1].event
            state.released = (last.time, last.source, last.seq)
            state.clock.observe(last.time)  # what is published after it must be younger
            ready += due

    def _frontier(self) -> Instant:
        """The smallest time that every source which is waited for has passed."""
        state = self._state
        if not state.suspected:
            return min(state.passed.values(), default=0)
        times = [
            time for (source, _), time in state.passed.items() if source not in state.suspected
        ]
        # Nobody is left to wait for: everything that is here is all there is.
        return min(times) if times else max(state.passed.values(), default=0)

    # --- membership, subscriptions at run time, and a life after a crash ----------------------

    def _install(self, cause: int, out: list[Effect]) -> None:
        """Who has left the view is no longer waited for; who is new, from its first mark on."""
        self._wait_for_members()
        ready: list[Delivered] = []
        self._release(ready)
        if ready:
            self._deliver(ready, cause, out)

    def _wait_for_members(self) -> None:
        state = self._state
        members = frozenset(state.view.members)
        state.passed = {s: time for s, time in state.passed.items() if s[0] in members}

    def _join(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        super()._join(now, topics, cause, out)
        self._watch(cause, out)

    def _join_time(self) -> Instant:
        return max(self._state.released[0], 0)

    def _joined(self, record: Joined, cause: int, out: list[Effect]) -> None:
        time = self._join_time()
        self._state.passed.update({stream: time for stream, _ in record.starts})
        super()._joined(record, cause, out)

    def _leave(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        self._forget(topics)
        super()._leave(now, topics, cause, out)
        self._watch(cause, out)
        ready: list[Delivered] = []
        self._release(ready)
        if ready:
            self._deliver(ready, cause, out)

    def _forget(self, topics: tuple[str, ...]) -> None:
        state = self._state
        left = frozenset(topics)
        state.passed = {s: time for s, time in state.passed.items() if s[1] not in left}
        state.marks = {s: mark for s, mark in state.marks.items() if s[1] not in left}
        state.merged.drop(lambda item: item.event.topic in left)

    def _crash(self, state: Any) -> None:
        super()._crash(state)
        for item in state.merged.waiting.values():  # what was not delivered has to come again
            event = item.event
            incoming = state.incoming[item.sender or event.source, event.topic]
            incoming.next = min(incoming.next, item.n)
        state.merged = Holdback(state.merged.count_max)
        state.passed = dict.fromkeys(state.passed, 0)
        state.marks, state.suspected = {}, {}

    def _remember(self, record: Record) -> None:
        super()._remember(record)
        state = self._state
        if isinstance(record, Delivered):
            event = record.event
            state.clock.observe(event.time)
            if record.in_order:
                state.released = max(state.released, (event.time, event.source, event.seq))
        elif isinstance(record, Installed):
            self._wait_for_members()
        elif isinstance(record, Promised):
            state.clock.observe(record.time)
            state.promised = record.time
        elif isinstance(record, Joined):
            state.passed.update({stream: 0 for stream, _ in record.starts})
        elif isinstance(record, Left):
            self._forget(record.topics)

    @property
    def held_count(self) -> int:
        return super().held_count + len(self._state.merged)

"""Level `fifo`: per source and topic, everything once and in the order of publication.

Each source numbers its events per topic. A subscriber lets through the next number of each stream,
asks the source for what is missing, and learns of lost tails by the source's marks. A topic that is
subscribed at run time starts where its sources say they are: it is subscribed when all have
answered. Between streams there is no order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec

from concordant.machine.effects import Disseminate, Effect, Note, Persist, Send, SetTimer
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Message, Received, Record
from concordant.machine.instant import Duration, Instant
from concordant.model.event import Event
from concordant.order.client import (
    Client,
    ClientState,
    Delivered,
    Joined,
    Left,
    Published,
    foreign,
)
from concordant.order.streams import (
    Ask,
    Gone,
    Here,
    Incoming,
    Mark,
    Numbered,
    Outgoing,
    Stream,
    Where,
)

ASK = "ask"
MARK = "mark"


class Opened(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: somebody follows the stream of this topic, so it is marked though it is empty."""

    topic: str


class FifoState(ClientState):
    """A client's streams."""

    outgoing: dict[str, Outgoing] = msgspec.field(default_factory=dict)
    incoming: dict[Stream, Incoming] = msgspec.field(default_factory=dict)
    gaps: dict[Stream, bool] = msgspec.field(default_factory=dict)
    """Streams in which something is missing."""
    joining: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Topics about to be subscribed, and where each source begins; -1 if it has not answered."""
    asking: bool = False
    """The timer is set that asks for what is missing."""
    mark_at: Instant = 0
    """When the next mark is due; 0 if none is."""
    mark_wait_us: Duration = 0


class FifoClient(Client):
    """A client with order per source and topic."""

    compacts = True

    _state: FifoState

    def _new_state(self, topics: dict[str, bool]) -> Any:
        return FifoState(topics)

    # --- publisher ----------------------------------------------------------------------------

    def _spread(self, now: Instant, events: list[Event], cause: int, out: list[Effect]) -> None:
        state = self._state
        by_topic: dict[str, list[Numbered]] = {}
        for event in events:
            n = self._outgoing(event.topic).append(event)
            numbered = Numbered((self.name, event.topic), n, event)
            by_topic.setdefault(event.topic, []).append(numbered)
        out += [Disseminate(topic, tuple(sent), cause) for topic, sent in by_topic.items()]
        state.mark_wait_us = self._options.mark_us
        due = now + state.mark_wait_us
        if state.mark_at == 0 or state.mark_at > due:
            state.mark_at = due
            out.append(SetTimer(MARK, due, cause))

    def _outgoing(self, topic: str) -> Outgoing:
        found = self._state.outgoing.get(topic)
        if found is None:
            found = self._state.outgoing[topic] = Outgoing(self._options.kept_count_max)
        return found

    def _mark(self, now: Instant, topic: str, cause: int, out: list[Effect]) -> Mark:
        del now, cause, out
        return Mark((self.name, topic), self._outgoing(topic).last)

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        state = self._state
        if name == MARK:
            for topic in state.outgoing:
                mark = self._mark(now, topic, cause, out)
                out.append(Disseminate(topic, (mark,), cause))
            state.mark_wait_us = min(2 * state.mark_wait_us, self._mark_us_max)
            state.mark_at = now + state.mark_wait_us
            out.append(SetTimer(MARK, state.mark_at, cause))
        elif name == ASK:
            state.asking = False
            self._ask(cause, out)
            self._ask_later(now, cause, out)

    @property
    def _mark_us_max(self) -> Duration:
        return self._options.mark_us_max

    # --- subscriber ---------------------------------------------------------------------------

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        state = self._state
        cause = given.cause
        ready: list[Delivered] = []
        check_kinds(given.messages)
        for message in given.messages:
            if type(message) is Numbered:
                stream = message.stream
                if stream[1] in state.topics:
                    incoming = state.incoming.get(stream) or self._incoming(stream)
                    events = self._accept(incoming, message)
                    if events:
                        self._ready(incoming.next - len(events), stream, events, ready)
                    if state.gaps or incoming.known >= incoming.next:
                        self._look_for_gap(now, stream, cause, out)
            elif type(message) is Mark:
                if message.stream[1] in state.topics:
                    self._hear(now, message, ready, cause, out)
            elif isinstance(message, Gone):
                self._skip(now, message, ready, cause, out)
            else:
                if ready:  # on the disk, too, things stand in their order
                    self._deliver(ready, cause, out)
                    ready = []
                self._answer(now, given.source, message, cause, out)
        if ready:
            self._deliver(ready, cause, out)

    def _incoming(self, stream: Stream) -> Incoming:
        found = self._state.incoming.get(stream)
        if found is None:
            found = self._state.incoming[stream] = Incoming(Holdback(self._options.held_count_max))
        return found

    def _accept(self, incoming: Incoming, message: Numbered) -> list[Event]:
        return incoming.accept(message.n, message.event)

    def _look_for_gap(self, now: Instant, stream: Stream, cause: int, out: list[Effect]) -> None:
        state = self._state
        if state.incoming[stream].complete:
            state.gaps.pop(stream, None)
        else:
            state.gaps[stream] = True
            self._ask_later(now, cause, out)

    def _ready(
        self, first: int, stream: Stream, events: list[Event], ready: list[Delivered]
    ) -> None:
        """Events of a stream whose turn has come, numbered from `first`."""
        ready += [self._delivered(n, stream, event) for n, event in enumerate(events, first)]

    def _delivered(
        self, n: int, stream: Stream, event: Event, *, in_order: bool = True
    ) -> Delivered:
        sender = "" if stream[0] == event.source else stream[0]
        return Delivered(n, event, in_order, sender)

    def _hear(
        self, now: Instant, mark: Mark, ready: list[Delivered], cause: int, out: list[Effect]
    ) -> None:
        del ready
        incoming = self._incoming(mark.stream)
        if mark.n > incoming.known:
            incoming.known = mark.n
            self._look_for_gap(now, mark.stream, cause, out)

    def _skip(
        self, now: Instant, gone: Gone, ready: list[Delivered], cause: int, out: list[Effect]
    ) -> None:
        incoming = self._state.incoming.get(gone.stream)
        if incoming is None or gone.first <= incoming.next:
            return
        source, topic = gone.stream
        text = f"{source} no longer has {topic} {incoming.next} to {gone.first - 1}"
        out.append(Note(text, cause=cause))
        events = incoming.skip(gone.first)
        if events:
            self._ready(incoming.next - len(events), gone.stream, events, ready)
        self._look_for_gap(now, gone.stream, cause, out)

    def _answer(
        self, now: Instant, source: str, message: Message, cause: int, out: list[Effect]
    ) -> None:
        state = self._state
        if isinstance(message, Ask) and message.stream[1] in state.outgoing:
            sent = state.outgoing[message.stream[1]].answer(
                message, count_max=self._options.answer_count_max
            )
            if sent:
                out.append(Send(source, tuple(sent), cause))
        elif isinstance(message, Where):
            state.clock.observe(message.time)
            if message.topic not in state.outgoing:
                self._outgoing(message.topic)
                out.append(Persist((Opened(message.topic),), cause))
            mark = self._mark(now, message.topic, cause, out)
            out.append(Send(source, (Here(mark),), cause))
        elif isinstance(message, Here):
            self._begin_stream(message.mark, cause, out)

    def _ask(self, cause: int, out: list[Effect]) -> None:
        state = self._state
        for stream in state.gaps:
            first, last = state.incoming[stream].missing()
            out.append(Send(stream[0], (Ask(stream, first, last),), cause))
        self._ask_where(tuple(state.joining), cause, out)

    def _ask_later(self, now: Instant, cause: int, out: list[Effect]) -> None:
        state = self._state
        if (state.gaps or state.joining) and not state.asking:
            state.asking = True
            out.append(SetTimer(ASK, now + self._options.ask_us, cause))

    # --- subscriptions at run time ------------------------------------------------------------

    def _asked(self, topic: str) -> bool:
        return topic in self._state.topics or topic in self._state.joining

    def _join(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        for topic in topics:
            self._state.joining[topic] = dict.fromkeys(self._sources_of(topic), -1)
            self._finish_join(topic, cause, out)
        self._ask_later(now, cause, out)

    def _listening(
        self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]
    ) -> None:
        # Not before: what is published between the answer and the dissemination would be unheard.
        self._ask_where(tuple(one for one in topics if one in self._state.joining), cause, out)
        self._ask_later(now, cause, out)

    def _ask_where(self, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        for topic in topics:
            for source, start in self._state.joining[topic].items():
                if start < 0:
                    out.append(Send(source, (Where(topic, self._join_time()),), cause))

    def _join_time(self) -> Instant:
        return 0

    def _begin_stream(self, mark: Mark, cause: int, out: list[Effect]) -> None:
        source, topic = mark.stream
        starts = self._state.joining.get(topic)
        if starts is not None and starts.get(source) == -1:
            starts[source] = mark.n
            incoming = self._incoming(mark.stream)
            incoming.next = mark.n + 1
            self._finish_join(topic, cause, out)

    def _finish_join(self, topic: str, cause: int, out: list[Effect]) -> None:
        starts = self._state.joining[topic]
        if -1 not in starts.values():
            del self._state.joining[topic]
            begun = tuple(((source, topic), n) for source, n in starts.items())
            self._joined(Joined((topic,), begun), cause, out)

    def _leave(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        state = self._state
        left = frozenset(topics)
        for topic in topics:
            state.joining.pop(topic, None)
        state.incoming = {s: one for s, one in state.incoming.items() if s[1] not in left}
        state.gaps = {stream: True for stream in state.gaps if stream[1] not in left}
        super()._leave(now, topics, cause, out)

    # --- a life after a crash -----------------------------------------------------------------

    def _remember(self, record: Record) -> None:
        state = self._state
        if isinstance(record, Published):
            self._outgoing(record.event.topic).append(record.event)
        elif isinstance(record, Delivered):
            stream = (record.sender or record.event.source, record.event.topic)
            self._incoming(stream).next = record.n + 1
        elif isinstance(record, Opened):
            self._outgoing(record.topic)
        elif isinstance(record, Joined):
            for stream, n in record.starts:
                self._incoming(stream).next = n + 1
        elif isinstance(record, Left):
            left = frozenset(record.topics)
            state.incoming = {s: one for s, one in state.incoming.items() if s[1] not in left}

    def _published_before(self, records: tuple[Record, ...]) -> tuple[Event, ...]:
        return tuple(as_published([one.kept for one in self._state.outgoing.values()]))

    def _crash(self, state: Any) -> None:
        for incoming in state.incoming.values():
            incoming.held = Holdback(self._options.held_count_max)
            incoming.known = 0
        state.gaps, state.joining = {}, {}
        state.asking, state.mark_at, state.mark_wait_us = False, 0, 0

    def _begin(self, now: Instant, cause: int, out: list[Effect]) -> None:
        state = self._state
        if state.outgoing:
            state.mark_wait_us = self._options.mark_us
            state.mark_at = now
            out.append(SetTimer(MARK, now, cause))

    @property
    def held_count(self) -> int:
        state = self._state
        return len(state.gaps) + len(state.joining)


_KNOWN = frozenset({Numbered, Mark, Ask, Gone, Where, Here})


def check_kinds(messages: tuple[Message, ...]) -> None:
    """Refuse a batch with a message that the level does not know, before anything has changed."""
    for message in messages:
        if type(message) not in _KNOWN:
            raise foreign(message)


def as_published(streams: Iterable[Iterable[Event]]) -> list[Event]:
    """The events of some streams in an order in which one client may have published them.

    A stream has its own order, whoever its sources are; a source has the order of its numbers,
    whatever the streams.
    """
    waiting = [deque(stream) for stream in streams]
    numbers: dict[str, list[int]] = {}
    for event in (event for stream in waiting for event in stream):
        numbers.setdefault(event.source, []).append(event.seq)
    following = {
        (source, before): after
        for source, listed in numbers.items()
        for before, after in pairwise(sorted(listed))
    }
    due = {source: min(listed) for source, listed in numbers.items()}
    blocked: dict[tuple[str, int], deque[Event]] = {}
    found: list[Event] = []
    while waiting:
        stream = waiting.pop()
        while stream:
            event = stream[0]
            if event.seq != due[event.source]:
                blocked[event.source, event.seq] = stream
                break
            found.append(stream.popleft())
            due[event.source] = following.get((event.source, event.seq), 0)
            freed = blocked.pop((event.source, due[event.source]), None)
            if freed is not None:
                waiting.append(freed)
    return found

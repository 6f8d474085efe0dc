"""The sequencer: one process gives every event a position, and everybody gets everything.

Publishers send to the sequencer and repeat until it has acknowledged. It logs each event with the
next position and disseminates it; a subscriber takes positions one by one, asks for those that it
misses, and delivers the topics that it has subscribed. Its first subscription begins where the
sequencer says it is; from then on it follows all positions, so that any later one takes effect at
once. One order for all, at the price of one process that handles every event and of subscribers
that see all of them. It is the baseline that the other orders are measured against.
"""

from __future__ import annotations

from itertools import dropwhile, islice
from typing import Any

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Disseminate, Effect, Listen, Note, Persist, Send, SetTimer
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Command, Input, Received, Record, Started, TimerFired
from concordant.machine.instant import Instant
from concordant.machine.saved import Compact, saved_state, saving
from concordant.model.event import Event
from concordant.order.client import (
    Client,
    ClientOptions,
    ClientState,
    Delivered,
    Joined,
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

BROADCAST = "broadcast"
"""The topic on which everything is disseminated."""

_MARK = "mark"
_ASK = "ask"
REPEAT = "repeat"
_ACKNOWLEDGE = "acknowledge"


class Acknowledged(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The sequencer has logged a publisher's events up to this number."""

    n: int


class Ordered(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable at the sequencer: the next position belongs to this event."""

    n: int
    """Its number at its publisher."""
    event: Event
    publisher: str = ""
    """Who numbered it, if not its source."""


class Settled(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable at a publisher: it need not repeat events up to this number."""

    n: int


class _SequencerState(msgspec.Struct):
    log: Outgoing
    publishers: dict[str, Incoming] = {}
    unacknowledged: dict[str, bool] = {}
    mark_at: Instant = 0
    mark_wait_us: int = 0


class Sequencer:
    """Gives positions."""

    def __init__(self, name: str, *, options: ClientOptions | None = None) -> None:
        self.name = name
        self._options = options or ClientOptions()
        self._stream: Stream = (name, BROADCAST)
        self._state = _SequencerState(Outgoing(self._options.kept_count_max))

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        if isinstance(given, Received):
            self._receive(now, given, out)
        elif isinstance(given, TimerFired):
            for name in given.names:
                self._wake(now, name, given.cause, out)
        elif isinstance(given, Command):
            for request in given.requests:
                if type(request) is not Compact:
                    raise UsageError(
                        "a sequencer publishes and subscribes nothing", hint="ask a client"
                    )
            for request in given.requests:
                assert isinstance(request, Compact)
                self._compact(request, given.cause, out)
        elif isinstance(given, Started):
            self._start(now, given, out)
        return out

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        for message in given.messages:
            if type(message) not in (Numbered, Ask, Where):
                raise PeerError(f"a sequencer was sent a {type(message).__name__}")
        incoming = self._publisher(given.source)
        ready: list[Event] = []
        for message in given.messages:
            if type(message) is Numbered:
                ready += incoming.accept(message.n, message.event)
                self._acknowledge_later(now, given, out)
                continue
            self._sign(now, given, incoming, ready, out)
            ready = []
            if isinstance(message, Ask):
                sent = self._state.log.answer(message, count_max=self._options.answer_count_max)
                if sent:
                    out.append(Send(given.source, tuple(sent), given.cause))
            elif isinstance(message, Where):
                here = Here(Mark(self._stream, self._state.log.last))
                out.append(Send(given.source, (here,), given.cause))
        self._sign(now, given, incoming, ready, out)

    def _acknowledge_later(self, now: Instant, given: Received, out: list[Effect]) -> None:
        # Not at once: one acknowledgement then stands for all that came meanwhile.
        unacknowledged = self._state.unacknowledged
        if not unacknowledged:
            out.append(SetTimer(_ACKNOWLEDGE, now + self._options.acknowledge_us, given.cause))
        unacknowledged[given.source] = True

    def _publisher(self, name: str) -> Incoming:
        found = self._state.publishers.get(name)
        if found is None:
            found = Incoming(Holdback(self._options.held_count_max))
            self._state.publishers[name] = found
        return found

    def _sign(
        self,
        now: Instant,
        given: Received,
        incoming: Incoming,
        events: list[Event],
        out: list[Effect],
    ) -> None:
        """Give positions, make them durable, and only then tell anybody."""
        if not events:
            return
        state = self._state
        numbers = range(incoming.next - len(events), incoming.next)
        append = state.log.append
        sent = tuple(Numbered(self._stream, append(event), event) for event in events)
        publisher = given.source
        records = tuple(
            Ordered(n, event, "" if event.source == publisher else publisher)
            for n, event in zip(numbers, events, strict=True)
        )
        out.append(Persist(records, given.cause))
        out.append(Disseminate(BROADCAST, sent, given.cause))
        state.mark_wait_us = self._options.mark_us
        due = now + state.mark_wait_us
        if state.mark_at == 0 or state.mark_at > due:
            state.mark_at = due
            out.append(SetTimer(_MARK, due, given.cause))

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        state = self._state
        if name == _ACKNOWLEDGE:
            for publisher in state.unacknowledged:
                n = state.publishers[publisher].next - 1
                out.append(Send(publisher, (Acknowledged(n),), cause))
            state.unacknowledged = {}
        elif name == _MARK:
            out.append(Disseminate(BROADCAST, (Mark(self._stream, state.log.last),), cause))
            state.mark_wait_us = min(2 * state.mark_wait_us, self._options.mark_us_max)
            state.mark_at = now + state.mark_wait_us
            out.append(SetTimer(_MARK, state.mark_at, cause))

    def _compact(self, request: Compact, cause: int, out: list[Effect]) -> None:
        copy = msgspec.msgpack.decode(self.snapshot(), type=_SequencerState)
        for incoming in copy.publishers.values():
            incoming.held = Holdback(self._options.held_count_max)
            incoming.known = 0
        copy.unacknowledged, copy.mark_at, copy.mark_wait_us = {}, 0, 0
        out.append(saving(msgspec.msgpack.encode(copy), request, cause))

    def _start(self, now: Instant, given: Started, out: list[Effect]) -> None:
        data, saved, records = saved_state(given.records)
        if saved is not None:
            self.restore(data)
        state = self._state
        for record in records:
            if isinstance(record, Ordered):
                state.log.append(record.event)
                self._publisher(record.publisher or record.event.source).next = record.n + 1
        if state.log.last:
            state.mark_wait_us = self._options.mark_us
            state.mark_at = now
            out.append(SetTimer(_MARK, now, given.cause))

    @property
    def held_count(self) -> int:
        return sum(len(one.held) for one in self._state.publishers.values())

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=_SequencerState)


class SequencedState(ClientState, kw_only=True):
    """What is on its way to the sequencer, and what came from it."""

    outbox: dict[int, Event] = msgspec.field(default_factory=dict)
    """Not acknowledged yet, by number."""
    sent: int = 0
    """The number of the last event."""
    incoming: Incoming
    follows: bool = False
    """Positions are taken since the first subscription."""
    joining: dict[str, bool] = msgspec.field(default_factory=dict)
    """Topics that wait for the sequencer to say where it is."""
    asking: bool = False
    repeating: bool = False
    oldest: int = 0
    """What was the oldest on its way when it was looked last: if it still is, nobody answers."""
    resent: int = 0
    """The last number that was sent again."""
    resent_max: int = 0
    """Up to here they are sent again, piece by piece; 0 if none are."""


class SequencedClient(Client):
    """A client of a sequencer."""

    compacts = True

    _state: SequencedState

    def __init__(self, name: str, *, sequencer: str = "sequencer", **others: Any) -> None:
        self._sequencer = sequencer
        self._stream: Stream = (name, BROADCAST)
        super().__init__(name, **others)

    def _new_state(self, topics: dict[str, bool]) -> Any:
        incoming = Incoming(Holdback[int, Event](self._options.held_count_max))
        return SequencedState(topics, incoming=incoming, follows=bool(topics))

    def _channels(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        del topics  # everything comes by the broadcast, which `_begin` asks for
        return ()

    def _target(self) -> str:
        """Whom to send to."""
        return self._sequencer

    # --- publisher ----------------------------------------------------------------------------

    @property
    def room(self) -> int:
        return self._options.outbox_count_max - len(self._state.outbox)

    def _check_room(self, count: int) -> None:
        if count > self.room:
            raise UsageError(
                f"{self.name} has {len(self._state.outbox):,} events on their way to the "
                "sequencer, and no room for more",
                hint="publish more slowly, or raise outbox_count_max",
            )

    def _spread(self, now: Instant, events: list[Event], cause: int, out: list[Effect]) -> None:
        state = self._state
        sent = [Numbered(self._stream, n, event) for n, event in enumerate(events, state.sent + 1)]
        state.outbox.update({one.n: one.event for one in sent})
        state.sent += len(sent)
        out.append(Send(self._target(), tuple(sent), cause))
        self._repeat_later(now, cause, out)

    def _repeat_later(self, now: Instant, cause: int, out: list[Effect]) -> None:
        if self._state.outbox and not self._state.repeating:
            self._state.repeating, self._state.oldest = True, next(iter(self._state.outbox))
            out.append(SetTimer(REPEAT, now + self._options.repeat_us, cause))

    @property
    def _unheard(self) -> bool:
        """Nothing was acknowledged since it was looked last."""
        return next(iter(self._state.outbox), 0) == self._state.oldest > 0

    def _send_again(self, cause: int, out: list[Effect]) -> None:
        """The oldest first, and the next ones when those have arrived."""
        state = self._state
        if state.outbox:
            state.resent, state.resent_max = next(iter(state.outbox)) - 1, state.sent
            self._send_more(cause, out)

    def _send_more(self, cause: int, out: list[Effect]) -> None:
        state = self._state
        rest = dropwhile(lambda one: one[0] <= state.resent, state.outbox.items())
        piece = list(islice(rest, self._options.answer_count_max))
        if piece and state.resent < state.resent_max:
            state.resent = piece[-1][0]
            sent = tuple(Numbered(self._stream, n, event) for n, event in piece)
            out.append(Send(self._target(), sent, cause))
        else:
            state.resent_max = 0

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        state = self._state
        if name == REPEAT:
            state.repeating = False
            if self._unheard:
                self._send_again(cause, out)
            self._repeat_later(now, cause, out)
        elif name == _ASK:
            state.asking = False
            if self._misses:
                first, last = state.incoming.missing()
                ask = Ask((self._sequencer, BROADCAST), first, last)
                out.append(Send(self._target(), (ask,), cause))
            if state.joining:
                out.append(Send(self._target(), (Where(BROADCAST),), cause))
            self._ask_later(now, cause, out)

    # --- subscriber ---------------------------------------------------------------------------

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        state = self._state
        incoming, topics = state.incoming, state.topics
        ready: list[Delivered] = []
        for message in given.messages:
            if type(message) not in KNOWN:
                raise foreign(message)
        for message in given.messages:
            if type(message) is Numbered:
                if state.follows:
                    events = incoming.accept(message.n, message.event)
                else:  # whether it is before the start, the answer to `Where` will say
                    events = []
                    incoming.hold(message.n, message.event)
            elif isinstance(message, Gone):
                if message.first > incoming.next:
                    text = f"positions {incoming.next} to {message.first - 1} are no longer kept"
                    out.append(Note(text, cause=given.cause))
                events = incoming.skip(message.first)
            else:
                events = []
                if isinstance(message, Mark):
                    incoming.known = max(incoming.known, message.n)
                elif isinstance(message, Acknowledged):
                    if ready:  # on the disk, too, things stand in their order
                        self._deliver(ready, given.cause, out)
                        ready = []
                    self._settle(message.n, given.cause, out)
                elif isinstance(message, Here):
                    events = self._follow(message.mark.n, given.cause, out)
            for n, event in enumerate(events, incoming.next - len(events)):
                if event.topic in topics:
                    ready.append(Delivered(n, event))
            if incoming.known >= incoming.next and not state.asking:
                self._ask_later(now, given.cause, out)
        if ready:
            self._deliver(ready, given.cause, out)

    def _settle(self, n: int, cause: int, out: list[Effect]) -> None:
        outbox = self._state.outbox
        settled = 0
        for number in list(outbox):
            if number > n:
                break
            del outbox[number]
            settled = number
        if settled:
            out.append(Persist((Settled(settled),), cause))
        if self._state.resent_max and settled >= self._state.resent:
            self._send_more(cause, out)

    def _ask_later(self, now: Instant, cause: int, out: list[Effect]) -> None:
        state = self._state
        if not state.asking and (state.joining or self._misses):
            state.asking = True
            out.append(SetTimer(_ASK, now + self._options.ask_us, cause))

    @property
    def _misses(self) -> bool:
        """Positions are known to exist that are due here and have not come."""
        return self._state.follows and not self._state.incoming.complete

    # --- subscriptions at run time, and a life after a crash ----------------------------------

    def _asked(self, topic: str) -> bool:
        return topic in self._state.topics or topic in self._state.joining

    def _join(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        state = self._state
        if state.follows:
            # Whatever is published from now on gets a position that is still to come here.
            start = ((self._sequencer, BROADCAST), state.incoming.next - 1)
            self._joined(Joined(topics, (start,)), cause, out)
            return
        if not state.joining:
            out.append(Listen((BROADCAST,), cause))
        state.joining.update(dict.fromkeys(topics, True))
        self._ask_later(now, cause, out)

    def _listening(
        self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]
    ) -> None:
        # Not before: a position between the answer and the dissemination would be unheard for long.
        del now, topics
        if self._state.joining:
            out.append(Send(self._target(), (Where(BROADCAST),), cause))

    def _follow(self, n: int, cause: int, out: list[Effect]) -> list[Event]:
        """The sequencer is at position n: everything after it is taken; what is here already."""
        state = self._state
        if state.follows or not state.joining:
            return []
        state.follows = True
        topics = tuple(state.joining)
        state.joining = {}
        self._joined(Joined(topics, (((self._sequencer, BROADCAST), n),)), cause, out)
        return state.incoming.skip(n + 1)

    def _leave(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        for topic in topics:
            self._state.joining.pop(topic, None)
        super()._leave(now, topics, cause, out)

    def _published_before(self, records: tuple[Record, ...]) -> tuple[Event, ...]:
        return (*self._state.outbox.values(), *super()._published_before(records))

    def _crash(self, state: Any) -> None:
        state.incoming.held = Holdback(self._options.held_count_max)
        state.incoming.known = 0
        state.joining = {}
        state.asking, state.repeating = False, False
        state.oldest = state.resent = state.resent_max = 0

    def _begin(self, now: Instant, cause: int, out: list[Effect]) -> None:
        if self._state.follows:
            out.append(Listen((BROADCAST,), cause))
        self._send_again(cause, out)
        self._repeat_later(now, cause, out)

    def _remember(self, record: Record) -> None:
        state = self._state
        if isinstance(record, Published):
            state.sent += 1
            state.outbox[state.sent] = record.event
        elif isinstance(record, Settled):
            for number in [one for one in state.outbox if one <= record.n]:
                del state.outbox[number]
        elif isinstance(record, Delivered):
            state.incoming.next = record.n + 1
        elif isinstance(record, Joined):
            state.follows = True
            state.incoming.next = max(state.incoming.next, *(n + 1 for _, n in record.starts))

    @property
    def held_count(self) -> int:
        state = self._state
        held = len(state.incoming.held) + len(state.joining)
        return len(state.outbox) + held + self._misses


KNOWN = frozenset({Numbered, Mark, Gone, Acknowledged, Here})
"""What a client of a sequencer is sent."""

"""What clients of every level share: publishing, subscriptions, positions, life after a crash.

A client is a publisher, a subscriber, or both. Here its requests are checked and obeyed, its events
get numbers and times, and deliveries get positions. All of it is durable: an event before it
leaves, a delivery before the application sees it, so that after a crash nothing is published twice
under one name and nothing is delivered twice. How events travel and when they are ready is the
level's matter: a level fills in the methods that are abstract here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.clock import HybridClock
from concordant.machine.effects import (
    Deliver,
    Delivery,
    Effect,
    Ignore,
    Listen,
    Note,
    Persist,
)
from concordant.machine.inputs import (
    Command,
    Input,
    Listening,
    Message,
    Received,
    Record,
    Request,
    Started,
    TimerFired,
)
from concordant.machine.instant import MILLISECOND, SECOND, Duration, Instant
from concordant.machine.requests import Install, Publish, Retire, Subscribe, Unsubscribe
from concordant.machine.saved import Compact, saved_state, saving
from concordant.machine.view import View
from concordant.model.event import Event
from concordant.order.streams import Stream


class ClientOptions(msgspec.Struct, frozen=True):
    """Waiting times and bounds of a client."""

    ask_us: Duration = 20 * MILLISECOND
    """So long something may be missing before it is asked for (again)."""
    mark_us: Duration = 40 * MILLISECOND
    """A publisher marks its progress so soon after it published."""
    mark_us_max: Duration = 2 * SECOND
    """And ever more rarely while it is silent, up to this."""
    held_count_max: int = 10_000
    """Events held back per stream; what is farthest from its turn goes and is asked for again."""
    kept_count_max: int = 100_000
    """Published events kept per stream to be sent again."""
    answer_count_max: int = 64
    """Events sent again for one question."""
    repeat_us: Duration = 100 * MILLISECOND
    """So long a sequencer may be silent before a publisher repeats what it sent."""
    acknowledge_us: Duration = 5 * MILLISECOND
    """A sequencer gathers acknowledgements for so long."""
    promise_us: Duration = 200 * MILLISECOND
    """How far ahead a publisher makes its marks durable: after a crash its clock starts there."""
    outbox_count_max: int = 10_000
    """Published events on their way to a sequencer; beyond that, publishing is refused."""


ROOM = 1 << 62
"""Room of a client that keeps nothing back."""


class Published(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: this client published an event."""

    event: Event


class Delivered(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: an event is, or is about to be, delivered; `n` is its number in its stream."""

    n: int
    event: Event
    in_order: bool = True
    sender: str = ""
    """Who numbered the stream, if not the event's source."""


class Joined(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: topics are subscribed, each stream from the number after the given one."""

    topics: tuple[str, ...]
    starts: tuple[tuple[Stream, int], ...] = ()


class Left(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: topics are no longer subscribed."""

    topics: tuple[str, ...]


class Retired(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: a guest that will not come again."""

    source: str


class Installed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: the membership that counts."""

    view: View


class Guest(msgspec.Struct):
    """An application that publishes through a client, under its own name."""

    seq: int = 0
    clock: HybridClock = msgspec.field(default_factory=HybridClock)


class ClientState(msgspec.Struct):
    """What the clients of all levels remember."""

    topics: dict[str, bool]
    """Subscribed topics; a dict for its order."""
    view: View = View(0)
    clock: HybridClock = msgspec.field(default_factory=HybridClock)
    seq: int = 0
    position: int = 0
    guests: dict[str, Guest] = msgspec.field(default_factory=dict)
    left: dict[str, bool] = msgspec.field(default_factory=dict)
    """Topics that were subscribed once, and are not now."""


class Client(ABC):
    """The common part of a level's client; see the module's text."""

    compacts: ClassVar[bool] = False
    """True if `_crash` is filled in, so that a snapshot may take the place of the log."""

    _state: ClientState

    def __init__(
        self,
        name: str,
        *,
        topics: Iterable[str] = (),
        publishes: Iterable[str] | None = (),
        sources: Mapping[str, Sequence[str]] | Sequence[str] = (),
        options: ClientOptions | None = None,
    ) -> None:
        """
        `topics` are subscribed from the start. `publishes` may be published to; None is every
        topic. `sources` are the clients that publish: for each topic, or for all of them.
        """
        self.name = name
        self.forgotten_count = 0
        """Deliveries of earlier lives that are no longer in the log, because they were taken."""
        self._publishes = None if publishes is None else tuple(dict.fromkeys(publishes))
        self._sources = sources
        self._options = options or ClientOptions()
        self._state = self._new_state(dict.fromkeys(topics, True))

    # --- the door -----------------------------------------------------------------------------

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        out: list[Effect] = []
        kind = type(given)
        if kind is Received:
            self._receive(now, given, out)  # type: ignore[arg-type]  # `kind` says it
        elif isinstance(given, TimerFired):
            for name in given.names:
                self._wake(now, name, given.cause, out)
        elif isinstance(given, Command):
            self._check(given.requests)
            self._obey(now, given, out)
        elif isinstance(given, Started):
            self._start(now, given, out)
        elif isinstance(given, Listening):
            self._listening(now, given.topics, given.cause, out)
        return out

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=type(self._state))

    # --- requests -----------------------------------------------------------------------------

    def check(self, requests: tuple[Request, ...]) -> None:
        """Raise what a command with these requests would raise now."""
        self._check(requests)

    def _check(self, requests: tuple[Request, ...]) -> None:
        """Refuse the whole batch before anything has changed."""
        lasts: dict[str, Instant] = {}
        published = 0
        for request in requests:
            if isinstance(request, Publish):
                published += 1
                if self._publishes is not None and request.topic not in self._publishes:
                    raise UsageError(
                        f"{self.name} does not publish to the topic {request.topic!r}",
                        hint=f"it publishes to {', '.join(self._publishes) or 'nothing'}",
                    )
                if request.time is not None:
                    who = self._timekeeper(request.source or self.name)
                    last = lasts[who] if who in lasts else self._clock_of(who).last
                    if request.time <= last:
                        raise UsageError(
                            f"{who} has published at {last} already, and a source's times "
                            f"increase: {request.time} is too early",
                            hint="leave the time out, and the client's clock gives one",
                        )
                    lasts[who] = request.time
            elif not isinstance(request, Subscribe | Unsubscribe | Install | Compact | Retire):
                raise UsageError(f"a client cannot {type(request).__name__}")
        self._check_room(published)

    def _check_room(self, count: int) -> None:
        """Refuse to publish so many more events if there is no room for them."""

    def _obey(self, now: Instant, given: Command, out: list[Effect]) -> None:
        events: list[Event] = []
        for request in given.requests:
            if isinstance(request, Publish):
                events.append(self._new_event(now, request))
                continue
            if events:
                self._publish(now, events, given.cause, out)
                events = []
            if isinstance(request, Subscribe):
                new = tuple(one for one in dict.fromkeys(request.topics) if not self._asked(one))
                if new:
                    self._listen(new, given.cause, out)
                    self._join(now, new, given.cause, out)
            elif isinstance(request, Unsubscribe):
                held = tuple(one for one in dict.fromkeys(request.topics) if self._asked(one))
                if held:
                    self._leave(now, held, given.cause, out)
            elif isinstance(request, Install) and request.view.newer_than(self._state.view):
                self._state.view = request.view
                out.append(Persist((Installed(request.view),), given.cause))
                self._install(given.cause, out)
            elif isinstance(request, Compact):
                self._compact(request, given.cause, out)
            elif isinstance(request, Retire) and request.source in self._state.guests:
                del self._state.guests[request.source]
                out.append(Persist((Retired(request.source),), given.cause))
        if events:
            self._publish(now, events, given.cause, out)

    def seq_of(self, source: str = "") -> int:
        """The number of the last event of a source; its own if none is named."""
        if source in ("", self.name):
            return self._state.seq
        guest = self._state.guests.get(source)
        return guest.seq if guest is not None else 0

    @property
    def guest_count(self) -> int:
        """How many others it published for, and remembers."""
        return len(self._state.guests)

    def time_of(self, source: str) -> Instant:
        """What a source publishes next has to be younger than this."""
        return self._clock_of(self._timekeeper(source)).last

    @property
    def room(self) -> int:
        """So many events more can be published now."""
        return ROOM

    def _timekeeper(self, source: str) -> str:
        """Whose clock gives a source's times: its own, unless a level needs one for all."""
        return source

    def _clock_of(self, source: str) -> HybridClock:
        if source == self.name:
            return self._state.clock
        guest = self._state.guests.get(source)
        return guest.clock if guest is not None else HybridClock()

    def _new_event(self, now: Instant, request: Publish) -> Event:
        source = request.source or self.name
        seq = self.seq_of(source) + 1
        self._number(source, seq)
        clock = self._clock_of(self._timekeeper(source))
        if request.time is None:
            time = clock.tick(now)
        else:
            time = request.time
            clock.observe(time)
        return Event(request.topic, source, seq, time, request.attributes, request.id)

    def _number(self, source: str, seq: int) -> None:
        """This is now the last number of a source."""
        if source == self.name:
            self._state.seq = seq
        else:
            self._state.guests.setdefault(source, Guest()).seq = seq

    def _publish(self, now: Instant, events: list[Event], cause: int, out: list[Effect]) -> None:
        out.append(Persist(tuple(Published(event) for event in events), cause))
        out.append(Note("", "publish", (), tuple(events), cause))
        self._spread(now, events, cause, out)

    def _asked(self, topic: str) -> bool:
        """True if a topic is subscribed, or about to be."""
        return topic in self._state.topics

    def _joined(self, record: Joined, cause: int, out: list[Effect]) -> None:
        self._hold(record.topics)
        out.append(Persist((record,), cause))
        out.append(Note("", "subscribe", record.topics, (), cause))

    def _hold(self, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._state.topics[topic] = True
            self._state.left.pop(topic, None)

    def _drop(self, topics: tuple[str, ...]) -> None:
        for topic in topics:
            if self._state.topics.pop(topic, False):
                self._state.left[topic] = True

    def _leave(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        del now
        self._drop(topics)
        out.append(Persist((Left(topics),), cause))
        out.append(Note("", "unsubscribe", topics, (), cause))
        channels = self._channels(topics)
        if channels:
            out.append(Ignore(channels, cause))

    def _listen(self, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        channels = self._channels(topics)
        if channels:
            out.append(Listen(channels, cause))

    # --- deliveries ---------------------------------------------------------------------------

    def _deliver(self, ready: Sequence[Delivered], cause: int, out: list[Effect]) -> None:
        position = self._state.position
        out.append(Persist(tuple(ready), cause))
        out.append(
            Deliver(
                tuple(
                    Delivery((one.event,), position + i, one.in_order)
                    for i, one in enumerate(ready, 1)
                ),
                cause,
            )
        )
        self._state.position = position + len(ready)

    # --- a life after a crash -----------------------------------------------------------------

    def _start(self, now: Instant, given: Started, out: list[Effect]) -> None:
        waiting = self._recover(given.records, given.taken_count)
        state = self._state
        topics = tuple(state.topics)
        if topics:
            self._listen(topics, given.cause, out)
            out.append(Note("", "subscribe", topics, (), given.cause))
        # The last life may have ended between the disk and the history: say everything again.
        if state.left:
            out.append(Note("", "unsubscribe", tuple(state.left), (), given.cause))
        published = self._published_before(given.records)
        if published:
            out.append(Note("", "publish", (), published, given.cause))
        if waiting:
            out.append(Deliver(tuple(waiting), given.cause))
        self._begin(now, given.cause, out)

    def _published_before(self, records: tuple[Record, ...]) -> tuple[Event, ...]:
        """What earlier lives published, as far as it is known."""
        return tuple(one.event for one in records if isinstance(one, Published))

    def _compact(self, request: Compact, cause: int, out: list[Effect]) -> None:
        if request.taken_count < 0:
            request = Compact(self._state.position)
        there = request.taken_count + len(request.untaken)
        if self.compacts and there == self._state.position:
            copy = msgspec.msgpack.decode(self.snapshot(), type=type(self._state))
            self._crash(copy)
            out.append(saving(msgspec.msgpack.encode(copy), request, cause))

    def _recover(self, records: tuple[Record, ...], taken_count: int) -> list[Delivery]:
        """Rebuild the state; deliveries that the application has not taken yet."""
        data, saved, records = saved_state(records)
        delivered: list[Delivery] = []
        first = 0
        if saved is not None:
            self.restore(data)
            first = self.forgotten_count = saved.taken_count
            delivered += saved.untaken
        state = self._state
        for record in records:
            if isinstance(record, Published):
                event = record.event
                self._number(event.source, event.seq)
                self._clock_of(self._timekeeper(event.source)).observe(event.time)
            elif isinstance(record, Delivered):
                position = first + len(delivered) + 1
                delivered.append(Delivery((record.event,), position, record.in_order))
            elif isinstance(record, Installed):
                state.view = record.view
            elif isinstance(record, Joined):
                self._hold(record.topics)
            elif isinstance(record, Left):
                self._drop(record.topics)
            elif isinstance(record, Retired):
                state.guests.pop(record.source, None)
            self._remember(record)
        state.position = first + len(delivered)
        return delivered[max(0, taken_count - first) :]

    def _sources_of(self, topic: str) -> tuple[str, ...]:
        """The clients that publish to a topic."""
        known = self._sources
        return tuple(known.get(topic, ()) if isinstance(known, Mapping) else known)

    # --- what a level fills in ----------------------------------------------------------------

    @abstractmethod
    def _new_state(self, topics: dict[str, bool]) -> Any:
        """The state of the level, with the given subscribed topics."""

    def _channels(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        """The topics of the dissemination that bring the events of these topics."""
        return topics

    @abstractmethod
    def _spread(self, now: Instant, events: list[Event], cause: int, out: list[Effect]) -> None:
        """Send new events on their way."""

    @abstractmethod
    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        """Take messages of other machines."""

    def _wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        """A timer fired; one that is no longer needed is no error."""

    def _join(self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        """Subscribe topics; call `_joined` when deliveries can begin."""
        self._joined(Joined(topics), cause, out)

    def _listening(
        self, now: Instant, topics: tuple[str, ...], cause: int, out: list[Effect]
    ) -> None:
        """The dissemination carries these topics now."""

    def _install(self, cause: int, out: list[Effect]) -> None:
        """The membership changed."""

    def _begin(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """The first thing to do in a life."""

    def _remember(self, record: Record) -> None:
        """Rebuild the level's own state from a record."""

    def _crash(self, state: Any) -> None:
        """Take from a copy of the state what a crash takes: what is not durable, and timers."""

    @property
    def held_count(self) -> int:
        return 0


def foreign(message: Message) -> PeerError:
    """A message that no client of this level sends."""
    return PeerError(f"a client was sent a {type(message).__name__}, which its level does not know")

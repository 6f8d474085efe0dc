"""What a sequencer does for its topic: number, sign, pass on. The state machine without its links.

It takes contents in the order in which they were made durable and says what is to be sent. The same
contents in the same order give the same state, so a sequencer that crashed, or a replica that takes
over, goes on from its log. The order of two topics is decided at one place, the sequencer of the
lower one; everything between sequencers goes up the forest, so that what shares a sequencer keeps
its order (Baldoni 2015, figure 2, corrected).

It knows no time, no links and no disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from concordant.errors import InvariantViolation, PeerError
from concordant.model.event import Event
from concordant.order.sequencing.forest import Branch, Out
from concordant.order.sequencing.messages import (
    RUN_COUNT_MAX,
    Abort,
    Begin,
    Begun,
    Commit,
    Content,
    Create,
    Created,
    Done,
    Enter,
    Entered,
    Fill,
    Flush,
    Flushed,
    Forget,
    Introduce,
    Introduced,
    Leave,
    Link,
    Prepare,
    Prepared,
    Report,
    Signed,
    Timestamp,
)
from concordant.order.sequencing.overlap import Edges, Version

Sent = list[tuple[str, Content]]
"""Contents by the address that gets them."""


class Open(msgspec.Struct):
    """A run of own events that have their numbers."""

    client: str
    n: int
    """The number of the last one at the client."""
    events: tuple[Event, ...]
    timestamp: Timestamp
    """Of the last one; the others differ from it in their own numbers only."""
    complete: bool = False
    """All have signed it, but perhaps not what is before it."""


class Signer(msgspec.Struct, tag=True):
    """The sequencer of one topic."""

    topic: str
    rank: dict[str, int]
    """Of all topics; 0 is the lowest."""
    addresses: dict[str, str]
    """Of the sequencers of all topics."""
    coordinator: str
    edges: Edges
    branch: Branch
    epoch: int = 0
    count: int = 0
    """Numbers given to own events (LC)."""
    counts: dict[str, int] = {}
    """Of each higher topic, the last event that was signed here (LLC)."""
    created: dict[str, int] = {}
    """The number of the last event of each client."""
    open: dict[int, Open] = {}
    """Own events that are not disseminated yet, by the number of the last of a run, in order."""
    open_count: int = 0
    """How many events these are."""
    introducing: dict[tuple[str, Version], bool] = {}
    """Own introductions that are under way."""
    preparing: int = 0
    """The epoch that is prepared: nothing new begins; 0 if none is."""
    prepared: bool = False
    queue: list[tuple[str, Create | Enter]] = []
    queue_count: int = 0
    """How many events and subscriptions these are."""
    early: list[tuple[str, Content]] = []
    """Of an epoch that has not begun here."""

    @classmethod
    def of(
        cls,
        topic: str,
        *,
        addresses: dict[str, str],
        coordinator: str,
        edge_on: int,
        members: Mapping[str, tuple[str, ...]],
    ) -> Signer:
        """`addresses` of all sequencers rank their topics, the lowest first; `members` are the
        subscribers of the topic that are there from the start.
        """
        edges = Edges(topic, edge_on)
        edges.fill(members)
        rank = {one: number for number, one in enumerate(addresses)}
        return cls(topic, rank, addresses, coordinator, edges, Branch(topic))

    # --- the door -----------------------------------------------------------------------------

    def check(self, content: Content) -> None:
        """Refuse what no correct machine sends here, before anything has changed."""
        if isinstance(content, Create):
            check_run(content, self.topic)
        elif isinstance(content, Enter | Leave | Link):
            self._known(content.topics)
        elif isinstance(content, Fill | Introduce):
            self._known((content.topic, *content.todo))
        elif type(content) not in STEPS:
            raise PeerError(f"a sequencer was sent a {type(content).__name__}")

    def _known(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if topic not in self.rank:
                raise PeerError(f"{self.topic} was told of {topic!r}, which is not ranked")

    def grow(self) -> Sent:
        """The first links of an epoch."""
        out: Sent = []
        self._grow(self._low(self.edges.active), out)
        return out

    def handle(self, source: str, content: Content, out: Sent, signed: list[Signed]) -> None:
        """Take the next content; `signed` gets own events that are complete, in order."""
        epoch = getattr(content, "epoch", self.epoch)
        if type(content) in _OF_AN_EPOCH and epoch != self.epoch:
            if epoch > self.epoch:
                self.early.append((source, content))
                return
            if isinstance(content, Fill | Introduce):
                raise InvariantViolation(
                    f"{self.topic} is in epoch {self.epoch} and was sent a {content}"
                )
            if isinstance(content, Link | Flushed):
                return
        STEPS[type(content)](self, source, content, out, signed)
        if self.preparing and not self.prepared and not self.open and not self.introducing:
            self.prepared = True
            out.append((self.coordinator, Prepared(self.preparing, self.topic, self.count)))

    # --- events -------------------------------------------------------------------------------

    def _create(self, source: str, given: Create, out: Sent, signed: list[Signed]) -> None:
        if self.preparing:
            self.queue.append((source, given))
            self.queue_count += len(given.events)
            return
        known = self.created.get(source, 0)
        if given.n <= known:  # repeated by a new life
            waiting = (
                one.n - len(one.events) for one in self.open.values() if one.client == source
            )
            done = min(known, given.last, *waiting)
            if done >= given.n:
                out.append((source, Created(self.topic, done)))
        events = given.after(known)
        if not events:
            return
        self.created[source] = given.last
        self.open_count += len(events)
        self.count += len(events)
        n = self.count
        timestamp = {self.topic: n}
        here = self.rank[self.topic]
        for other, count in self.counts.items():
            if other in self.edges.active and self.rank[other] > here:
                timestamp[other] = count
        self.open[n] = Open(source, given.last, events, timestamp)
        # What is known here does not travel: only what the others add comes back.
        todo = self._low(self.edges.active)
        self._forward(Fill(self.epoch, self.topic, n, {}, todo), out, signed)

    def _fill(self, source: str, given: Fill, out: Sent, signed: list[Signed]) -> None:
        del source
        todo, timestamp = given.todo, given.timestamp
        self._grow(todo, out)
        if todo[0] == self.topic:
            if given.n <= self.counts.get(given.topic, 0):
                raise InvariantViolation(
                    f"{self.topic} signed {given.topic} {self.counts[given.topic]} before {given.n}"
                )
            # Only the event's own entry: of others in the timestamp nothing is known here yet.
            self.counts[given.topic] = given.n
            todo = todo[1:]
            if self.count:
                timestamp = {**timestamp, self.topic: self.count}
        passed = Fill(given.epoch, given.topic, given.n, timestamp, todo)
        self._forward(passed, out, signed)

    def _done(self, source: str, given: Done, out: Sent, signed: list[Signed]) -> None:
        del source
        if given.n not in self.open:
            raise InvariantViolation(f"{self.topic} {given.n} was signed twice")
        done = self.open[given.n]
        done.timestamp.update(given.timestamp)
        done.complete = True
        while self.open:
            n, one = next(iter(self.open.items()))
            if not one.complete:
                break
            del self.open[n]
            self.open_count -= len(one.events)
            signed += signed_run(n, one.events, one.timestamp)
            out.append((one.client, Created(self.topic, one.n)))

    def _forward(self, message: Fill | Introduce, out: Sent, signed: list[Signed]) -> None:
        if message.todo:
            if not self.branch.parent:
                raise InvariantViolation(f"{self.topic} is a root and was asked for {message}")
            upwards: Out = []
            self.branch.send(message, upwards)
            self._address(upwards, out)
            return
        finished: Done | Introduced
        if isinstance(message, Fill):
            finished = Done(message.n, message.timestamp)
        else:
            finished = Introduced(message.client, message.version)
        if message.topic == self.topic:
            STEPS[type(finished)](self, "", finished, out, signed)
        else:
            out.append((self.addresses[message.topic], finished))

    # --- the forest ---------------------------------------------------------------------------

    def _low(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Those ranked lower than this one, the nearest first."""
        here = self.rank[self.topic]
        lower = [one for one in topics if self.rank[one] < here]
        return tuple(sorted(lower, key=self.rank.__getitem__, reverse=True))

    def _grow(self, topics: Iterable[str], out: Sent) -> None:
        upwards: Out = []
        self.branch.grow(topics, rank=self.rank, epoch=self.epoch, out=upwards)
        self._address(upwards, out)

    def _address(self, upwards: Out, out: Sent) -> None:
        out += [(self.addresses[topic], content) for topic, content in upwards]

    def _link(self, source: str, given: Link, out: Sent, signed: list[Signed]) -> None:
        del source, signed
        self._grow(given.topics, out)

    def _flush(self, source: str, given: Flush, out: Sent, signed: list[Signed]) -> None:
        del signed  # the link is first in, first out: everything before has been handled
        out.append((source, Flushed(given.epoch)))

    def _flushed(self, source: str, given: Flushed, out: Sent, signed: list[Signed]) -> None:
        del given, signed
        if self.branch.flushing and source == self.addresses[self.branch.parent]:
            upwards: Out = []
            self.branch.flushed(rank=self.rank, epoch=self.epoch, out=upwards)
            self._address(upwards, out)

    # --- subscriptions ------------------------------------------------------------------------

    def _enter(self, source: str, given: Enter, out: Sent, signed: list[Signed]) -> None:
        if self.preparing:
            self.queue.append((source, given))
            self.queue_count += 1
            return
        if not self.edges.register(source, given.version, given.topics):
            return
        mine = given.topics if given.new == self.topic else (given.new,)
        todo = self._low(one for one in mine if one in self.edges.active)
        self._grow(todo, out)
        self.introducing[source, given.version] = True
        introduction = Introduce(self.epoch, self.topic, self.count, source, given.version, todo)
        self._forward(introduction, out, signed)

    def _introduce(self, source: str, given: Introduce, out: Sent, signed: list[Signed]) -> None:
        del source
        todo = given.todo
        self._grow(todo, out)
        if todo[0] == self.topic:
            if given.n > self.counts.get(given.topic, 0):
                self.counts[given.topic] = given.n
            todo = todo[1:]
        self._forward(msgspec.structs.replace(given, todo=todo), out, signed)

    def _introduced(self, source: str, given: Introduced, out: Sent, signed: list[Signed]) -> None:
        del source, signed
        if self.introducing.pop((given.client, given.version), False):
            out.append((given.client, Entered(given.version, self.topic)))

    def _begin(self, source: str, given: Begin, out: Sent, signed: list[Signed]) -> None:
        del signed
        out.append((source, Begun(given.version, self.topic, self.count)))

    def _leave(self, source: str, given: Leave, out: Sent, signed: list[Signed]) -> None:
        del out, signed
        self.edges.register(source, given.version, given.topics)

    def _forget(self, source: str, given: Forget, out: Sent, signed: list[Signed]) -> None:
        del source, out, signed
        member = self.edges.members.get(given.client)
        if member is not None and member.version == given.version:
            life, number = member.version
            self.edges.register(given.client, (life, number + 1), ())

    @property
    def members(self) -> dict[str, Version]:
        """Subscribers of the topic, with the versions of what they hold."""
        return {client: member.version for client, member in self.edges.members.items()}

    def knows(self, client: str) -> bool:
        """True if a client is known to hold the topic."""
        return client in self.edges.members

    # --- changes of the ranking ---------------------------------------------------------------

    def _prepare(self, source: str, given: Prepare, out: Sent, signed: list[Signed]) -> None:
        del source, out, signed
        if given.epoch > max(self.epoch, self.preparing):
            self.preparing, self.prepared = given.epoch, False

    def _commit(self, source: str, given: Commit, out: Sent, signed: list[Signed]) -> None:
        del source
        if given.epoch <= self.epoch:
            return
        if self.open or self.introducing:
            raise InvariantViolation(f"{self.topic} has work of epoch {self.epoch} under way")
        self.epoch = given.epoch
        self.rank = {one: number for number, one in enumerate(given.order)}
        self.counts = {one: n for one, n in given.counts.items() if n and one != self.topic}
        self.branch = Branch(self.topic)
        self._grow(self._low(self.edges.active), out)
        self.preparing = 0
        early, self.early = self.early, []
        for sender, content in early:
            self.handle(sender, content, out, signed)
        self._go_on(out, signed)

    def _abort(self, source: str, given: Abort, out: Sent, signed: list[Signed]) -> None:
        del source
        if given.epoch == self.preparing:
            self._go_on(out, signed)

    def _go_on(self, out: Sent, signed: list[Signed]) -> None:
        self.preparing, self.prepared = 0, False
        queue, self.queue, self.queue_count = self.queue, [], 0
        for sender, content in queue:
            self.handle(sender, content, out, signed)

    @property
    def request_count(self) -> int:
        """Requests of clients that are under way or wait."""
        return self.open_count + self.queue_count

    def report(self) -> Report:
        """What a ranking is made from."""
        return Report(self.topic, tuple(self.edges.active), self.count)

    @property
    def held_count(self) -> int:
        """Work that is not finished."""
        return (
            len(self.open)
            + len(self.introducing)
            + len(self.queue)
            + len(self.early)
            + len(self.branch.held)
            + self.branch.flushing
        )


def check_run(given: Create, topic: str) -> None:
    """Refuse a run that no correct client sends to the sequencer of a topic."""
    if not 0 < len(given.events) <= RUN_COUNT_MAX:
        raise PeerError(f"{topic} was sent {len(given.events)} events at once")
    for event in given.events:
        if event.topic != topic:
            raise PeerError(f"{topic} was sent an event of {event.topic!r}")


def signed_run(n: int, events: tuple[Event, ...], timestamp: Timestamp) -> list[Signed]:
    """A run of events with their timestamps; the last has the number `n`."""
    topic = events[0].topic
    return [
        Signed(number, event, {**timestamp, topic: number})
        for number, event in enumerate(events, n - len(events) + 1)
    ]


_OF_AN_EPOCH = frozenset({Fill, Introduce, Link, Flush, Flushed})

STEPS: dict[type[Content], Callable[[Signer, str, Any, Sent, list[Signed]], None]] = {
    Create: Signer._create,
    Fill: Signer._fill,
    Done: Signer._done,
    Link: Signer._link,
    Flush: Signer._flush,
    Flushed: Signer._flushed,
    Enter: Signer._enter,
    Introduce: Signer._introduce,
    Introduced: Signer._introduced,
    Begin: Signer._begin,
    Leave: Signer._leave,
    Forget: Signer._forget,
    Prepare: Signer._prepare,
    Commit: Signer._commit,
    Abort: Signer._abort,
}
"""What each kind of content makes a sequencer do."""

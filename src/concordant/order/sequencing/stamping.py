"""Stamping in parallel: the other way to sign, two rounds whatever the overlap (Skeen).

Each sequencer of an event's group proposes a stamp from its own clock, the greatest wins, and every
one of them puts the event at that stamp when nothing smaller can come any more. Then it says how
many events of its own topic are before. The timestamp is the same as that of the forest, so clients
cannot tell the difference; the price is to wait for the slowest proposal that is under way.

Groups are fixed here. Subscriptions may change at run time only if every topic is in the group of
every other, because a proposal that was not asked for cannot be made up for later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

import msgspec

from concordant.errors import InvariantViolation, PeerError
from concordant.model.event import Event
from concordant.order.sequencing.messages import (
    Begin,
    Begun,
    Content,
    Counted,
    Create,
    Created,
    Enter,
    Entered,
    Final,
    Leave,
    Proposal,
    Propose,
    Report,
    Signed,
    Timestamp,
)
from concordant.order.sequencing.overlap import Version
from concordant.order.sequencing.signing import Sent, check_run, signed_run

Stamp = tuple[int, str, int]
"""Clock, topic, and number of the request: all stamps are different."""


class Asked(msgspec.Struct):
    """A run of own events on its way, stamped as one."""

    client: str
    n: int
    """The number of the last one at the client."""
    events: tuple[Event, ...]
    stamp: int
    """The greatest proposal so far."""
    unanswered: int
    timestamp: Timestamp = {}
    uncounted: int = 0
    number: int = 0
    """Of the last one in its topic; 0 until it has its place here."""


class Stamper(msgspec.Struct, tag=True):
    """The sequencer of one topic, stamping in parallel."""

    topic: str
    addresses: dict[str, str]
    group: tuple[str, ...]
    """The other topics that its events are ordered with."""
    clock: int = 0
    requests: int = 0
    count: int = 0
    created: dict[str, int] = {}
    mine: dict[int, Asked] = {}
    """Own events that are not disseminated, by request, in order."""
    mine_count: int = 0
    """How many events these are."""
    pending: dict[str, dict[int, tuple[int, bool]]] = {}
    """By topic and request: the stamp, and whether it is final."""
    stamps: list[Stamp] = []
    """A heap of all stamps that `pending` has or had."""
    queue: list[tuple[str, Content]] = []
    preparing: int = 0

    def check(self, content: Content) -> None:
        """Refuse what no correct machine sends here, before anything has changed."""
        if type(content) not in STEPS:
            raise PeerError(f"a sequencer was sent a {type(content).__name__}")
        if isinstance(content, Create):
            check_run(content, self.topic)
        if isinstance(content, Propose | Final | Proposal | Counted):
            if content.topic not in self.addresses:
                raise PeerError(f"{self.topic} was told of {content.topic!r}, which is unknown")
        elif isinstance(content, Enter):
            foreign = [t for t in content.topics if t != self.topic and t not in self.group]
            if foreign:
                raise PeerError(f"{self.topic} is not ordered with {foreign[0]!r}")

    def grow(self) -> Sent:
        """There is no forest."""
        return []

    def handle(self, source: str, content: Content, out: Sent, signed: list[Signed]) -> None:
        """Take the next content; `signed` gets own events that are complete, in order."""
        STEPS[type(content)](self, source, content, out, signed)

    # --- stamps -------------------------------------------------------------------------------

    def _create(self, source: str, given: Create, out: Sent, signed: list[Signed]) -> None:
        known = self.created.get(source, 0)
        if given.n <= known:  # repeated by a new life
            waiting = (
                one.n - len(one.events) for one in self.mine.values() if one.client == source
            )
            done = min(known, given.last, *waiting)
            if done >= given.n:
                out.append((source, Created(self.topic, done)))
        events = given.after(known)
        if not events:
            return
        self.created[source] = given.last
        self.mine_count += len(events)
        self.requests += 1
        self.clock += 1
        request = self.requests
        waits = len(self.group)
        self.mine[request] = Asked(source, given.last, events, self.clock, waits, {}, waits)
        self._await(self.topic, request, self.clock, final=False)
        self._send(self.group, Propose(self.topic, request), out)
        if not self.group:
            self._decide(request, out, signed)

    def _propose(self, source: str, given: Propose, out: Sent, signed: list[Signed]) -> None:
        del signed
        self.clock += 1
        self._await(given.topic, given.request, self.clock, final=False)
        out.append((source, Proposal(self.topic, given.request, self.clock)))

    def _proposal(self, source: str, given: Proposal, out: Sent, signed: list[Signed]) -> None:
        del source
        asked = self.mine[given.request]
        asked.stamp = max(asked.stamp, given.stamp)
        asked.unanswered -= 1
        if not asked.unanswered:
            self._decide(given.request, out, signed)

    def _decide(self, request: int, out: Sent, signed: list[Signed]) -> None:
        stamp = self.mine[request].stamp
        self._send(self.group, Final(self.topic, request, stamp), out)
        self._place(self.topic, request, stamp, out, signed)

    def _final(self, source: str, given: Final, out: Sent, signed: list[Signed]) -> None:
        del source
        self._place(given.topic, given.request, given.stamp, out, signed)

    def _place(self, topic: str, request: int, stamp: int, out: Sent, signed: list[Signed]) -> None:
        """A stamp is final; everything before which nothing can come any more has its place."""
        self.clock = max(self.clock, stamp)
        if request not in self.pending.get(topic, {}):
            raise InvariantViolation(f"{self.topic} was told twice the stamp of {topic} {request}")
        self._await(topic, request, stamp, final=True)
        while (first := self._first()) is not None:
            _, topic, request = first
            del self.pending[topic][request]
            if topic == self.topic:
                mine = self.mine[request]
                self.count += len(mine.events)
                mine.number = self.count
            else:
                out.append((self.addresses[topic], Counted(self.topic, request, self.count)))
        self._finish(out, signed)

    def _await(self, topic: str, request: int, stamp: int, *, final: bool) -> None:
        self.pending.setdefault(topic, {})[request] = (stamp, final)
        heappush(self.stamps, (stamp, topic, request))

    def _first(self) -> Stamp | None:
        """The smallest stamp under way, if it is final."""
        while self.stamps:
            stamp, topic, request = self.stamps[0]
            now, final = self.pending[topic].get(request, (0, False))
            if now == stamp:
                return self.stamps[0] if final else None
            heappop(self.stamps)  # it has its place, or a greater stamp
        return None

    def _counted(self, source: str, given: Counted, out: Sent, signed: list[Signed]) -> None:
        del source
        asked = self.mine[given.request]
        asked.uncounted -= 1
        if given.n:
            asked.timestamp[given.topic] = given.n
        self._finish(out, signed)

    def _finish(self, out: Sent, signed: list[Signed]) -> None:
        """Own events with all counts leave, in the order of their numbers."""
        while self.mine:
            request, one = next(iter(self.mine.items()))
            if not one.number or one.uncounted:
                return
            del self.mine[request]
            self.mine_count -= len(one.events)
            timestamp = {self.topic: one.number, **one.timestamp}
            signed += signed_run(one.number, one.events, timestamp)
            out.append((one.client, Created(self.topic, one.n)))

    def _send(self, topics: Iterable[str], content: Content, out: Sent) -> None:
        out += [(self.addresses[topic], content) for topic in topics]

    # --- subscriptions ------------------------------------------------------------------------

    def _enter(self, source: str, given: Enter, out: Sent, signed: list[Signed]) -> None:
        del signed  # everything is ordered with everything: nobody has to be told
        out.append((source, Entered(given.version, self.topic)))

    def _begin(self, source: str, given: Begin, out: Sent, signed: list[Signed]) -> None:
        del signed
        out.append((source, Begun(given.version, self.topic, self.count)))

    def _leave(self, source: str, given: Leave, out: Sent, signed: list[Signed]) -> None:
        """Groups are fixed."""

    @property
    def members(self) -> dict[str, Version]:
        """Nobody is kept account of, because groups are fixed."""
        return {}

    def knows(self, client: str) -> bool:
        del client
        return True

    @property
    def request_count(self) -> int:
        """Events of clients that are under way."""
        return self.mine_count

    def report(self) -> Report:
        return Report(self.topic, self.group, self.count)

    @property
    def held_count(self) -> int:
        return len(self.mine) + sum(map(len, self.pending.values()))


STEPS: dict[type[Content], Callable[[Stamper, str, Any, Sent, list[Signed]], None]] = {
    Create: Stamper._create,
    Propose: Stamper._propose,
    Proposal: Stamper._proposal,
    Final: Stamper._final,
    Counted: Stamper._counted,
    Enter: Stamper._enter,
    Begin: Stamper._begin,
    Leave: Stamper._leave,
}

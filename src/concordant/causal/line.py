"""One line for all: events by round and origin, let go when nothing smaller can come.

What reaches a subscriber in causal order waits here until its home has shown, for every topic that
is held, that everything up to its round was there and is safe, and until all that was there is
here. Whoever holds the same topics then delivers the same events in the same order, and that order
never puts an effect before its cause.

What was not let go is forgotten when the subscriber moves: the next home sends what exists of it,
and the last one may have been held for dead, and its events lost for all others. Positions are
rounds here, so how far a topic was let go says which positions are meant.
"""

from __future__ import annotations

import msgspec

from concordant.causal.messages import Carried, Id
from concordant.causal.records import Released
from concordant.causal.seen import Seen
from concordant.causal.vector import Vector, entries, position

Place = tuple[int, str]
"""Round and origin: no two events have the same."""


class Shown(msgspec.Struct, array_like=True):
    """What a home showed: by topic the round up to which it had everything, and what it had."""

    rounds: dict[str, int]
    had: Vector
    repeated: tuple[Id, ...]


class Line(msgspec.Struct):
    """What a subscriber got and may not deliver yet."""

    waiting: dict[Place, Carried] = {}
    complete: dict[str, int] = {}
    """By topic: everything up to this round is here."""
    seen: Seen = msgspec.field(default_factory=Seen)
    """What was let go. An event that was ordered twice goes where the first order puts it,
    whichever came first."""
    repeated: tuple[Id, ...] = ()
    """Of what waits, as the home says: what has an earlier place, be it before the subscription."""
    let: dict[str, int] = {}
    """By topic: everything up to this round was let go, and that is durable."""
    base: Vector = {}
    """What was there when a topic was joined, and is not wanted."""
    floor: int = 0
    """The last round of what was there when the subscriber attached. Until that is let go, earlier
    homes are not left: only they know that it is still wanted."""
    shown: Shown | None = None
    """What will count when everything that the home had is here."""

    def put(self, carried: Carried) -> None:
        self.waiting[carried.round, carried.origin] = carried

    def show(self, rounds: dict[str, int], had: Vector, repeated: tuple[Id, ...]) -> None:
        """A home shows how far it is; the oldest word stays until it counts."""
        if self.shown is None:
            self.shown = Shown(rounds, had, repeated)

    def look(self, last: Vector) -> None:
        """Is everything here that the home had?"""
        shown = self.shown
        if shown is not None and all(
            position(last, topic, origin) >= n
            for topic, row in shown.had.items()
            for origin, n in row.items()
        ):
            for topic, round in shown.rounds.items():
                self.complete[topic] = max(round, self.complete.get(topic, 0))
            self.repeated = shown.repeated
            self.shown = None

    def frontier(self, topics: dict[str, bool]) -> int:
        """No event of these topics with a round up to this is still to come."""
        return min((self.complete.get(topic, 0) for topic in topics), default=0)

    def due(self, frontier: int, last: Vector) -> bool:
        """Is something to be let go, or passed over for good, up to this round?"""
        return any(round <= frontier for round, _ in self.waiting) or any(
            self.let.get(topic, 0) < n <= frontier for topic, _, n in entries(last)
        )

    def release(self, released: Released, topics: dict[str, bool]) -> list[Carried]:
        """Take out what may be delivered, in its order."""
        for topic in topics:
            self.let[topic] = max(released.round, self.let.get(topic, 0))
        found: list[Carried] = []
        for place in sorted(place for place in self.waiting if place[0] <= released.round):
            carried = self.waiting.pop(place)
            event = carried.event
            if carried.id not in released.repeated and (event.source, event.seq) not in self.seen:
                self.seen.add(event.source, event.seq)
                found.append(carried)
        return found

    def reached(self, topics: dict[str, bool]) -> bool:
        """Was all let go that was there when the subscriber attached?"""
        return all(self.let.get(topic, 0) >= self.floor for topic in topics)

    def settled(self, last: Vector) -> Vector:
        """Of what a subscriber has, what it will never ask for again."""
        return {
            topic: {
                origin: max(position(self.base, topic, origin), min(n, self.let.get(topic, 0)))
                for origin, n in row.items()
            }
            for topic, row in last.items()
        }

    def move(self, last: Vector, topics: dict[str, bool]) -> Vector:
        """Forget what was not let go, and topics that are no longer held; what is left."""
        self.let = {topic: n for topic, n in self.let.items() if topic in topics}
        self.base = {topic: row for topic, row in self.base.items() if topic in topics}
        self.shown, self.waiting, self.complete, self.repeated = None, {}, dict(self.let), ()
        return self.settled(last)

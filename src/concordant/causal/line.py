"""One line for all: events by round and origin, let go when nothing smaller can come.

What reaches a subscriber in causal order waits here until its home has shown, for every topic that
is held, that everything up to its round was there, and until all that was there is here. Whoever
holds the same topics then delivers the same events in the same order, and that order never puts an
effect before its cause.
"""

from __future__ import annotations

import msgspec

from concordant.causal.messages import Carried
from concordant.causal.vector import Vector, position

Place = tuple[int, str]
"""Round and origin: no two events have the same."""


class Shown(msgspec.Struct, array_like=True):
    """What a home showed: by topic the round up to which it had everything, and what it had."""

    rounds: dict[str, int]
    had: Vector


class Line(msgspec.Struct):
    """What a subscriber got and may not deliver yet."""

    waiting: dict[Place, Carried] = {}
    complete: dict[str, int] = {}
    """By topic: everything up to this round is here."""
    seen: dict[str, int] = {}
    """By source: the last of its events that was let go. An event that was ordered twice goes where
    the first order puts it, whichever came first."""
    shown: Shown | None = None
    """What will count when everything that the home had is here."""

    def put(self, carried: Carried) -> None:
        self.waiting[carried.round, carried.origin] = carried

    def show(self, rounds: dict[str, int], had: Vector) -> None:
        """A home shows how far it is; the oldest word stays until it counts."""
        if self.shown is None:
            self.shown = Shown(rounds, had)

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
            self.shown = None

    def frontier(self, topics: dict[str, bool]) -> int:
        """No event of these topics with a round up to this is still to come."""
        return min((self.complete.get(topic, 0) for topic in topics), default=0)

    def release(self, frontier: int) -> list[Carried]:
        """Take out what may be delivered, in its order."""
        found: list[Carried] = []
        for place in sorted(place for place in self.waiting if place[0] <= frontier):
            carried = self.waiting.pop(place)
            event = carried.event
            if event.seq > self.seen.get(event.source, 0):
                self.seen[event.source] = event.seq
                found.append(carried)
        return found

    def move(self, topics: dict[str, bool]) -> None:
        """Only these topics are wanted from now on, from another home perhaps."""
        self.shown = None
        self.complete = {topic: n for topic, n in self.complete.items() if topic in topics}
        self.waiting = {
            place: carried
            for place, carried in self.waiting.items()
            if any(topic in topics for topic in carried.at)
        }

"""What a broker keeps of the events that it delivered, and what an event follows among them.

Events stay as long as somebody may lack them. The index finds, for a position that an event
follows, the last kept event at or before it. Projection answers what a subscriber of some topics
must have before an event: computed in the order projected on its topics, never on the broker's own,
because a path through topics that it does not receive would be lost (Kim and Ahn, section 2: the
parents in the sender's graph).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Mapping

import msgspec

from concordant.causal.messages import Id, Ordered
from concordant.causal.vector import Entry, Vector, lift, position

Lost = Mapping[str, Mapping[int, Mapping[str, int]]]
"""Of each dead origin, the numbers that somebody has, with their positions; all others are lost."""


class Positions(msgspec.Struct):
    """Kept events of one origin in one topic, ascending."""

    at: list[int] = []
    numbers: list[int] = []


class Retained(msgspec.Struct):
    """The events that a broker delivered and still keeps."""

    log: dict[Id, Ordered] = {}
    """In the order of delivery."""
    index: dict[str, dict[str, Positions]] = {}
    dropped: Vector = {}
    """Up to where events are no longer kept."""

    def add(self, ordered: Ordered) -> None:
        self.log[ordered.id] = ordered
        for topic, n in ordered.at.items():
            row = self.index.setdefault(topic, {}).setdefault(ordered.origin, Positions())
            place = bisect_left(row.at, n)
            row.at.insert(place, n)
            row.numbers.insert(place, ordered.number)

    def drop(self, settled: Callable[[Ordered], bool]) -> None:
        """Forget the events that nobody can lack any longer."""
        for ordered in [one for one in self.log.values() if settled(one)]:
            del self.log[ordered.id]
            for topic, n in ordered.at.items():
                row = self.index[topic][ordered.origin]
                place = bisect_left(row.at, n)
                del row.at[place], row.numbers[place]
                lift(self.dropped, topic, ordered.origin, n)

    def last_at(self, topic: str, origin: str, n: int) -> tuple[int, Ordered] | None:
        """The last kept event at or before a position."""
        row = self.index.get(topic, {}).get(origin)
        place = bisect_right(row.at, n) if row is not None else 0
        if row is None or not place:
            return None
        return row.at[place - 1], self.log[origin, row.numbers[place - 1]]

    def beyond(
        self, topics: Container[str], have: Vector, *, count_max: int, but: Container[Id] = ()
    ) -> list[Ordered]:
        """Events of these topics after what somebody has, in the order of delivery."""
        found: list[Ordered] = []
        for ordered in self.log.values():
            if len(found) >= count_max:
                break
            if ordered.id not in but and any(
                topic in topics and n > position(have, topic, ordered.origin)
                for topic, n in ordered.at.items()
            ):
                found.append(ordered)
        return found

    def candidates(
        self, ordered: Ordered, topics: Iterable[str], served: Container[str], final: Lost
    ) -> list[Entry]:
        """What a subscriber of these topics must have before an event, position by position.

        Of a served topic, the last kept position; if none is kept, all of it is stable. Of a topic
        that only another home serves, the position itself, unless it was lost.
        """
        found: list[Entry] = []
        for topic in topics:
            for origin, n in ordered.past.get(topic, {}).items():
                if topic in served:
                    kept = self.last_at(topic, origin, n)
                    n = kept[0] if kept is not None else 0
                elif origin in final:
                    n = last_available(final, topic, origin, n)
                if n:
                    found.append((topic, origin, n))
        return found

    def immediate(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        """One entry per event, without those that another of them follows.

        Only where one broker serves all topics of the subscriber: then whoever has the other one
        has what it follows, because it came from here and was checked.
        """
        events: dict[Id, Entry] = {}
        for topic, origin, n in entries:
            kept = self.last_at(topic, origin, n)
            if kept is not None:
                events.setdefault(kept[1].id, (topic, origin, n))
        found = [self.log[one] for one in events]
        return tuple(
            entry
            for (one, entry) in events.items()
            if not any(other.id != one and _follows(other, self.log[one]) for other in found)
        )


def _follows(later: Ordered, earlier: Ordered) -> bool:
    return later.round > earlier.round and any(
        position(later.past, topic, earlier.origin) >= n for topic, n in earlier.at.items()
    )


def last_available(final: Lost, topic: str, origin: str, n: int) -> int:
    """The last position at or before `n` that was not lost with its origin; 0 if there is none."""
    return max((at[topic] for at in final[origin].values() if at.get(topic, n + 1) <= n), default=0)

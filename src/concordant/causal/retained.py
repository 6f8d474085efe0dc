"""What a broker keeps of the events that it delivered, and what an event follows among them.

Events stay as long as somebody may lack them. The index finds, for a position that an event
follows, the last kept event at or before it. Projection answers what a subscriber of some topics
must have before an event: computed in the order projected on its topics, never on the broker's own,
because a path through topics that it does not receive would be lost (Kim and Ahn, section 2: the
parents in the sender's graph).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Mapping

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
            if not row.at or n > row.at[-1]:
                row.at.append(n)
                row.numbers.append(ordered.number)
                continue
            place = bisect_left(row.at, n)
            row.at.insert(place, n)
            row.numbers.insert(place, ordered.number)

    def drop(self, topics: Iterable[str], stable: Vector) -> None:
        """Forget the events of these topics that nobody can lack any longer."""
        for topic in topics:
            known = stable.get(topic, {})
            for origin, row in self.index.get(topic, {}).items():
                if not row.at or row.at[0] > known.get(origin, 0):
                    continue
                count = bisect_right(row.at, known[origin])
                numbers = row.numbers[:count]
                if all(len(self.log[origin, number].at) == 1 for number in numbers):
                    lift(self.dropped, topic, origin, row.at[count - 1])
                    del row.at[:count], row.numbers[:count]
                    for number in numbers:
                        del self.log[origin, number]
                    continue
                for number in numbers:
                    ordered = self.log[origin, number]
                    if all(n <= position(stable, one, origin) for one, n in ordered.at.items()):
                        self.forget(ordered)

    def forget(self, ordered: Ordered) -> None:
        """Keep this event no longer."""
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
        """Events of these topics after what somebody has: causes first, the first so many."""
        found: dict[Id, Ordered] = {}
        for topic, rows in self.index.items():
            if topic not in topics:
                continue
            known = have.get(topic, {})
            for origin, row in rows.items():
                if not row.at or row.at[-1] <= known.get(origin, 0):
                    continue
                count = 0
                for number in row.numbers[bisect_right(row.at, known.get(origin, 0)) :]:
                    if (origin, number) not in but:
                        found[origin, number] = self.log[origin, number]
                        count += 1
                        if count >= count_max:
                            break
        return sorted(found.values(), key=_by_round)[:count_max]

    def candidates(
        self, ordered: Ordered, topics: Iterable[str], served: Container[str], final: Lost
    ) -> list[Entry]:
        """What a subscriber of these topics must have before an event, position by position.

        Of a served topic, the last kept position; if none is kept, all of it is stable. Of a topic
        that only another home serves, the position itself, unless it was lost.
        """
        found: list[Entry] = []
        past, index = ordered.past, self.index
        for topic in topics:
            row = past.get(topic)
            if row is None:
                continue
            kept = index.get(topic, {}) if topic in served else None
            for origin, n in row.items():
                if kept is not None:
                    at = kept[origin].at if origin in kept else ()
                    place = bisect_right(at, n)
                    n = at[place - 1] if place else 0
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
        entries = tuple(entries)
        if len(entries) < 2:
            return entries
        events: dict[Id, tuple[Ordered, Entry]] = {}
        for entry in entries:
            kept = self.last_at(*entry)
            if kept is not None:
                events.setdefault(kept[1].id, (kept[1], entry))
        found = list(events.values())
        left = []
        for one, entry in found:
            for other, _ in found:
                if _follows(other, one):
                    break
            else:
                left.append(entry)
        return tuple(left)


def _by_round(ordered: Ordered) -> tuple[int, str]:
    return ordered.round, ordered.origin


def _follows(later: Ordered, earlier: Ordered) -> bool:
    if later.round <= earlier.round:
        return False
    past, origin = later.past, earlier.origin
    return any(position(past, topic, origin) >= n for topic, n in earlier.at.items())


def last_available(final: Lost, topic: str, origin: str, n: int) -> int:
    """The last position at or before `n` that was not lost with its origin; 0 if there is none."""
    return max((at[topic] for at in final[origin].values() if at.get(topic, n + 1) <= n), default=0)

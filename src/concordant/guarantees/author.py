"""Writes scenes: sequences of events that are likely to make given subscribers deliver.

Random events hardly ever match anything, so combinations that satisfy a conjunction are worked out
first and then mixed, with a little noise. Chance comes in as a seeded generator, so the same seed
writes the same scenes. Subscriptions must have passed `language.check`, so that kinds fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from concordant.check.liveness import decided_at
from concordant.check.run import slots_of_conjunction
from concordant.guarantees.alphabet import alphabet
from concordant.guarantees.scene import Subscribers
from concordant.model.event import Event
from concordant.model.expression import Slot, attributes_of
from concordant.model.kind import RESERVED, Value
from concordant.model.predicate import Comparison, Predicate, holds
from concordant.model.subscription import Conjunction

SOLUTION_COUNT = 6
"""Combinations worked out per conjunction."""

TRIAL_COUNT_MAX = 400
"""Values tried for one combination before it is given up."""

SOURCE = "s"
"""A publisher that subscribes to nothing."""

OTHER_SOURCE = "t"
"""Another one, so that there are events that know nothing of each other."""

Draft = tuple[str, dict[str, Value]]
"""An event without a place: its topic and attributes."""


class Author:
    """Writes events for some subscribers."""

    def __init__(self, subscribers: Subscribers, rng: Random) -> None:
        self._rng = rng
        self._sources = [one.name for one in subscribers]
        self._alphabet = alphabet(subscribers)
        self._keys = sorted({n for one in subscribers for n in one.partition_by} - {*RESERVED})
        widths = sorted({one.within_us for one in subscribers if one.within_us is not None})
        self._steps = [1] if not widths else [1, 1, max(1, widths[0]), widths[0] + 1]
        self._solutions: list[list[list[Draft]]] = []
        for conjunction in dict.fromkeys(c for one in subscribers for c in one.conjunctions):
            found = [self._solve(conjunction) for _ in range(SOLUTION_COUNT)]
            self._solutions.append([one for one in found if one is not None])
        self._topics = sorted(self._alphabet)
        self._added = [topic for topic in self._topics if topic not in subscribers[0].topics]

    def finite(self, *, count_max: int) -> list[Event]:
        """Events that come to an end."""
        drafts: list[Draft] = []
        if self._added and self._rng.random() < 0.4:
            return self._events(self._kept_waiting()[-count_max:])
        for _ in range(self._rng.choice((1, 2, 2, 3))):
            self._mix(drafts, self._solution())
        for _ in range(self._rng.choice((0, 0, 1, 2))):
            drafts.insert(self._rng.randint(0, len(drafts)), self._noise())
        return self._events(drafts[:count_max])

    def _kept_waiting(self) -> list[Draft]:
        """Two combinations of the first subscriber, then what those with more topics wait for."""
        drafts: list[Draft] = []
        for _ in range(2):
            self._mix(drafts, self._solution(self._solutions[0]))
        if self._rng.random() < 0.5:
            self._rng.shuffle(drafts)
        last = [self._rng.choice(self._added) for _ in range(self._rng.choice((1, 2, 2)))]
        keys = [{n: v for n, v in a.items() if n in self._keys} for _, a in drafts]
        return [*drafts, *((topic, self._rng.choice(keys)) for topic in last)]

    def endless(self, *, count_max: int) -> tuple[list[Event], int]:
        """Events of which the last ones repeat, and how many these are."""
        prefix: list[Draft] = []
        for _ in range(self._rng.choice((0, 1, 1))):
            self._mix(prefix, self._solution())
        for _ in range(self._rng.choice((0, 0, 1, 2))):
            prefix.insert(self._rng.randint(0, len(prefix)), self._noise())
        if self._rng.random() < 0.5:
            self._rng.shuffle(prefix)
        cycle: list[Draft] = []
        for _ in range(self._rng.choice((1, 1, 2))):
            self._mix(cycle, self._solution())
        if self._rng.random() < 0.3:
            cycle.insert(self._rng.randint(0, len(cycle)), self._noise())
        if self._rng.random() < 0.2:  # what matches may lie several rounds apart
            cycle = [self._rng.choice(cycle), self._noise()]
        prefix = prefix[: max(1, count_max - len(cycle))]
        return self._events([*prefix, *cycle]), len(cycle)

    # --- pieces -------------------------------------------------------------------------------

    def _noise(self) -> Draft:
        topic = self._rng.choice(self._topics)
        return topic, {n: self._rng.choice(v) for n, v in self._alphabet[topic].items()}

    def _solution(self, among: list[list[Draft]] | None = None) -> list[Draft]:
        found = self._rng.choice(self._solutions) if among is None else among
        drafts = self._rng.choice(found) if found else [self._noise()]
        keys = {n: self._rng.choice(self._alphabet[drafts[0][0]][n]) for n in self._keys}
        return [
            (t, {**a, **{n: v for n, v in keys.items() if n in self._alphabet[t]}})
            for t, a in drafts
        ]

    def _mix(self, drafts: list[Draft], more: Sequence[Draft]) -> None:
        """Put events between others, mostly in their own order."""
        order = [*more]
        if self._rng.random() < 0.4:
            self._rng.shuffle(order)
        at = 0
        for draft in order:
            at = self._rng.randint(at, len(drafts))
            drafts.insert(at, draft)
            at += 1

    def _events(self, drafts: Sequence[Draft]) -> list[Event]:
        rng = self._rng
        sources = [SOURCE, OTHER_SOURCE, *self._sources] if rng.random() < 0.5 else [SOURCE]
        steps = self._steps if rng.random() < 0.3 else [1]  # mostly nothing is too old
        seqs: dict[str, int] = {}
        time = 0
        events: list[Event] = []
        for topic, attributes in drafts:
            source = rng.choice(sources)
            seqs[source] = seqs.get(source, 0) + 1
            time += rng.choice(steps)
            events.append(Event(topic, source, seqs[source], time, attributes))
        return events

    def _solve(self, conjunction: Conjunction) -> list[Draft] | None:
        """Attributes for every slot such that the predicates hold, events in an order that fits."""
        slots = slots_of_conjunction(conjunction)
        decided = [[p for p in mine if not _reads_reserved(p)] for mine in decided_at(conjunction)]
        values: dict[Slot, dict[str, Value]] = {}
        left = TRIAL_COUNT_MAX

        def read(slot: Slot, name: str) -> Value:
            return values[slot].get(name)

        def extend(i: int) -> bool:
            nonlocal left
            if i == len(slots):
                return True
            names = self._alphabet[slots[i].topic]
            for _ in range(12):
                left -= 1
                if left < 0:
                    return False
                values[slots[i]] = {n: self._rng.choice(v) for n, v in names.items()}
                if all(holds(p, read) for p in decided[i]) and extend(i + 1):
                    return True
            return False

        if not extend(0):
            return None
        order = _ordered(slots, conjunction, values, self._rng)
        return [(slot.topic, values[slot]) for slot in order]


def _reads_reserved(predicate: Predicate) -> bool:
    return isinstance(predicate, Comparison) and any(
        one.name in RESERVED
        for side in (predicate.left, predicate.right)
        for one in attributes_of(side)
    )


def _ordered(
    slots: Sequence[Slot],
    conjunction: Conjunction,
    values: Mapping[Slot, Mapping[str, Value]],
    rng: Random,
) -> list[Slot]:
    """An order of the slots in which predicates on times and positions hold, if one is found."""
    timed = [p for p in conjunction.predicates if _reads_reserved(p)]
    order = [*slots]
    for _ in range(20):
        rng.shuffle(order)
        _follow_streams(order)
        places = {slot: place for place, slot in enumerate(order, start=1)}

        def read(slot: Slot, name: str, places: Mapping[Slot, int] = places) -> Value:
            if name in ("position", "time", "seq"):
                return places[slot]
            return SOURCE if name == "source" else values[slot].get(name)

        if all(holds(p, read) for p in timed):
            break
    return order


def _follow_streams(order: list[Slot]) -> None:
    """Put the instances of each topic into their order, at the places that the topic has."""
    for topic in dict.fromkeys(slot.topic for slot in order):
        places = [i for i, slot in enumerate(order) if slot.topic == topic]
        for place, slot in zip(places, sorted(order[i] for i in places), strict=True):
            order[place] = slot

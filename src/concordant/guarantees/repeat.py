"""Endless inputs made finite: a cycle is played again until the state of the engine repeats.

Two states are equal if the engine will do the same from both, whatever comes: the same events wait
(those of the prefix by identity, those of the cycle by their place in it), in the same order, with
the same distances as far as `contiguous` and `within` can see. Events that can never be matched
any more, because `contiguous` asks for neighbours that do not fit, are left out. Other queues that
grow for ever never repeat; such an input is given up after a bounded number of rounds, and proves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from concordant.correlate.engine import Engine
from concordant.correlate.matching import Entry, fits, pair_holds
from concordant.correlate.plan import Part
from concordant.correlate.state import PartState, partition_value
from concordant.model.event import Event
from concordant.model.expression import Attribute, attributes_of
from concordant.model.predicate import Comparison
from concordant.model.subscription import Subscription

ROUND_COUNT_MAX = 6
"""Rounds until the state must have repeated; nearly all that repeat at all do so within four."""

State = tuple[object, ...]


class Rounds:
    """The rounds of a cycle: events with new numbers and times, until the state has repeated.

    After the state has repeated, as many rounds follow as a relation has slots, so that every
    combination that the endless input holds can be found among the repeated rounds.
    """

    def __init__(
        self, prefix: Sequence[Event], cycle: Sequence[Event], subscribers: Sequence[Subscription]
    ) -> None:
        self._cycle = cycle
        self._after = max(
            sum(c.instances.values()) for one in subscribers for c in one.conjunctions
        )
        self._exact = {one.name: _reads_numbers(one) for one in subscribers}
        self._seqs: dict[str, int] = {}
        for event in (*prefix, *cycle):
            self._seqs[event.source] = event.seq
        start = prefix[-1].time if prefix else 0
        self._length_us = cycle[-1].time - start
        self._labels: dict[str, object] = {event.id: event.id for event in prefix}
        self.now_us = 0
        self.stream: dict[tuple[object, ...], int] = {}
        """How many events of each topic there were, per subscription and partition value."""
        self._subscribers = subscribers
        for event in prefix:
            self._count(event)
        self._seen: dict[State, int] = {}
        self._starts: list[int] = []
        self.repeats_from_us: int | None = None

    def __iter__(self) -> Iterator[Sequence[Event]]:
        left = ROUND_COUNT_MAX
        number = 0
        while left:
            again = [self._again(event, number) for event in self._cycle]
            self._starts.append(again[0].time)
            for place, event in enumerate(again):
                self._labels[event.id] = place
                self._count(event)
            self.now_us = again[-1].time
            was = self.repeats_from_us
            yield again
            number += 1
            left = self._after if was is None and self.repeats_from_us is not None else left - 1

    def _again(self, event: Event, number: int) -> Event:
        if number == 0:
            return event
        self._seqs[event.source] += 1
        return msgspec.structs.replace(
            event,
            seq=self._seqs[event.source],
            time=event.time + number * self._length_us,
            id="",
        )

    def _count(self, event: Event) -> None:
        for one in self._subscribers:
            key = (one.name, event.topic, *partition_value(event, one.partition_by))
            self.stream[key] = self.stream.get(key, 0) + 1

    def saw(self, state: State) -> None:
        """Tell the state after a round."""
        if self.repeats_from_us is None:
            if state in self._seen:
                self.repeats_from_us = self._starts[self._seen[state] + 1]
            self._seen[state] = len(self._starts) - 1

    def label(self, event: Event) -> object:
        return self._labels[event.id]

    def is_exact(self, name: str) -> bool:
        """Do the predicates of a subscriber read numbers that grow with every round?"""
        return self._exact[name]


def _reads_numbers(subscription: Subscription) -> bool:
    """Is a number that grows with every round read, other than to compare two times?

    Times grow with positions here, so which of two is earlier is known from their order.
    """
    return any(
        isinstance(predicate, Comparison)
        and any(one.name in ("time", "seq") for one in _attributes(predicate))
        and not _compares_times(predicate)
        for conjunction in subscription.conjunctions
        for predicate in conjunction.predicates
    )


def _attributes(predicate: Comparison) -> Iterator[Attribute]:
    yield from attributes_of(predicate.left)
    yield from attributes_of(predicate.right)


def _compares_times(predicate: Comparison) -> bool:
    return all(
        isinstance(side, Attribute) and side.name == "time"
        for side in (predicate.left, predicate.right)
    )


def state_of(engine: Engine, rounds: Rounds) -> State:
    """The state of an engine, up to what makes no difference for the future."""
    return tuple(
        (_part(plan.subscription, part, now, rounds), now.leftover)
        for plan, _, part, now in engine.waiting()
    )


def _part(subscription: Subscription, part: Part, now: PartState, rounds: Rounds) -> State:
    queues = list(now.queues.values())
    gaps: list[tuple[int, ...]] = []
    if subscription.policy.contiguous:
        queues = [_alive(subscription, part, queue, rounds) for queue in queues]
        gaps = [_gaps(subscription, part, queue, rounds) for queue in queues]
    waiting = sorted((e for queue in queues for e in queue), key=lambda e: e.position)
    return (
        tuple((entry.event.topic, rounds.label(entry.event)) for entry in waiting),
        tuple(gaps),
        _ages(subscription, waiting, rounds),
        tuple(tuple(rounds.label(entry.event) for entry in taken) for taken in now.finished),
        _ages(subscription, [entry for taken in now.finished for entry in taken], rounds),
    )


def _count(subscription: Subscription, event: Event, rounds: Rounds) -> int:
    """How many events there were in the stream of an event."""
    key = partition_value(event, subscription.partition_by)
    return rounds.stream[(subscription.name, event.topic, *key)]


def _gaps(
    subscription: Subscription, part: Part, queue: Sequence[Entry], rounds: Rounds
) -> tuple[int, ...]:
    """Distances in the stream, clipped at what `contiguous` can see."""
    if not queue:
        return ()
    largest = len(part.slots_of_topic[queue[0].event.topic])
    count = _count(subscription, queue[0].event, rounds)
    numbers = [*(entry.number for entry in queue), count + 1]
    return tuple(min(b - a, largest) for a, b in pairwise(numbers))


def _alive(
    subscription: Subscription, part: Part, queue: Sequence[Entry], rounds: Rounds
) -> list[Entry]:
    """The events that some neighbours, perhaps still to come, can make a relation with."""
    if not queue:
        return []
    slots = part.slots_of_topic[queue[0].event.topic]
    count = _count(subscription, queue[0].event, rounds)
    by_number = {entry.number: entry for entry in queue}
    alive: dict[int, Entry] = {}
    for entry in queue:
        for start in range(entry.number - len(slots) + 1, entry.number + 1):
            window = {
                slot: by_number.get(start + i) for i, slot in enumerate(slots) if start + i <= count
            }
            if _fits(part, window):
                alive[entry.number] = entry
                break
    return list(alive.values())


def _fits(part: Part, window: Mapping[int, Entry | None]) -> bool:
    """May these neighbours take these slots, as far as they alone decide?"""
    for slot, entry in window.items():
        if entry is None or not fits(entry, part.unary[slot]):
            return False
        for pair in part.binary[slot]:
            other = window.get(pair.right) if pair.left == slot else None
            if other is not None and not pair_holds(part, slot, entry, pair.predicate, other):
                return False
    return True


def _ages(subscription: Subscription, waiting: Sequence[Entry], rounds: Rounds) -> tuple[int, ...]:
    """Distances in time, clipped at what `within` can see; exact if predicates read numbers."""
    times = [*(entry.event.time for entry in waiting), rounds.now_us]
    if rounds.is_exact(subscription.name):
        return tuple(rounds.now_us - time for time in times)
    if subscription.within_us is None:
        return ()
    most = subscription.within_us + 1
    return tuple(max(-most, min(b - a, most)) for a, b in pairwise(times))

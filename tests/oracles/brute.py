"""Correlation by brute force, written from `correlation.md` alone.

For every admitted event this module lists all combinations of queued events, keeps those that
satisfy every predicate, and takes the least one under the policy's order of candidates. It knows
nothing of how the engine searches, and shares no evaluation with `concordant.model`: predicates
and arithmetic are read from the specification a second time here, so that each checks the other.

A conjunction is a list of parts. Without `staged` it has one part, all of its topics.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, count, pairwise, product

import msgspec

from concordant.model.event import Event, OrderKey
from concordant.model.expression import Arithmetic, Attribute, Constant, Expression, Slot
from concordant.model.kind import Value
from concordant.model.predicate import Comparison, Predicate, Wildcard
from concordant.model.relation import Relation
from concordant.model.subscription import Conjunction, Consume, Match, Policy, Subscription
from concordant.model.topic import TopicOrder


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """An event as one subscription sees it."""

    event: Event
    position: int
    """Place in the total order, from 1; a derived event has that of its completing event."""
    arrival: int
    """Counts everything that was given to subscriptions, base and derived."""
    stream_number: int
    """Place in its topic's stream (per partition value), before any filter."""


Row = tuple[Entry, ...]
Bound = Mapping[Slot, Entry]


# --- predicates, from the specification -----------------------------------------------------------


def value(expression: Expression, bound: Bound) -> Value:
    """The value of an expression; None for null, missing, NaN and everything without a result."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Attribute):
        return read(bound[expression.slot], expression.name)
    assert isinstance(expression, Arithmetic)
    left, right = value(expression.left, bound), value(expression.right, bound)
    if left is None or right is None:
        return None
    assert not isinstance(left, bool | str) and not isinstance(right, bool | str)
    if expression.op == "/":
        return finite(float(left) / float(right)) if float(right) != 0.0 else None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    if expression.op == "+":
        return finite(left + right)
    if expression.op == "-":
        return finite(left - right)
    assert expression.op == "*"
    return finite(left * right)


def finite(number: int | float) -> int | float | None:
    """The number if a 64-bit integer or a float can hold it."""
    if isinstance(number, int):
        return number if -(2**63) < number < 2**63 else None
    return number if math.isfinite(number) else None


def read(entry: Entry, name: str) -> Value:
    reserved: dict[str, Value] = {
        "time": entry.event.time,
        "source": entry.event.source,
        "seq": entry.event.seq,
        "position": entry.position,
    }
    found = reserved[name] if name in reserved else entry.event.attributes.get(name)
    return None if isinstance(found, float) and math.isnan(found) else found


def is_true(predicate: Predicate, bound: Bound) -> bool:
    if isinstance(predicate, Wildcard):
        return True
    left, right = value(predicate.left, bound), value(predicate.right, bound)
    if left is None or right is None:
        return False
    if predicate.op == "=":
        return left == right
    if predicate.op == "!=":
        return left != right
    if predicate.op == "<":
        return left < right  # type: ignore[operator]
    if predicate.op == ">":
        return left > right  # type: ignore[operator]
    if predicate.op == "<=":
        return left <= right  # type: ignore[operator]
    assert predicate.op == ">="
    return left >= right  # type: ignore[operator]


# --- one part: admit, match, dispose --------------------------------------------------------------


@dataclass
class Part:
    """Queues that are matched and disposed together, of one partition."""

    topics: tuple[str, ...]
    """In topic order."""
    instances: Mapping[str, int]
    predicates: tuple[Comparison, ...]
    policy: Policy
    within_us: int | None
    queues: dict[str, list[Entry]] = field(default_factory=dict)
    finished: list[dict[str, Row]] = field(default_factory=list)
    """Part-relations that wait for the other parts, first in first out."""
    known: dict[tuple[int, tuple[int, ...]], bool] = field(default_factory=dict)
    """Answers of predicates by arrivals: the oracle is slow, but not that slow."""

    inner: dict[str, list[tuple[int, tuple[Slot, ...]]]] = field(default_factory=dict)
    """Indexes and slots of the predicates on one topic alone, by topic."""
    outer: list[tuple[int, tuple[Slot, ...]]] = field(default_factory=list)
    """Indexes and slots of the predicates between topics."""

    def __post_init__(self) -> None:
        self.queues = {topic: [] for topic in self.topics}
        self.inner = {topic: [] for topic in self.topics}
        for index, predicate in enumerate(self.predicates):
            slots = predicate.slots
            alone = len({slot.topic for slot in slots}) == 1
            (self.inner[slots[0].topic] if alone else self.outer).append((index, slots))

    def give(self, entry: Entry) -> bool:
        """Admit, match and dispose; was the event admitted?"""
        topic = entry.event.topic
        if not any(
            all(
                is_true(self.predicates[index], {slot: entry})
                for index, slots in self.inner[topic]
                if slots == (slot,)
            )
            for slot in self.slots_of(topic)
        ):
            return False
        self.queues[topic].append(entry)
        combinations_found = self.satisfying()
        if combinations_found:
            winner = min(combinations_found, key=self.preference)
            rows = dict(zip(self.topics, winner, strict=True))
            self.finished.append(rows)
            for name, row in rows.items():
                self.queues[name] = remaining(self.queues[name], row, self.policy.consume)
        return True

    def slots_of(self, topic: str) -> list[Slot]:
        return [Slot(topic, instance + 1) for instance in range(self.instances[topic])]

    def satisfying(self) -> list[tuple[Row, ...]]:
        """Every combination (one row of events per topic) that satisfies every predicate."""
        rows_by_topic: list[list[Row]] = []
        for topic in self.topics:
            rows = [
                row
                for row in combinations(self.queues[topic], self.instances[topic])
                if (not self.policy.contiguous or neighbours(row))
                and self.all_true(self.inner[topic], {topic: row})
            ]
            if not rows:
                return []
            rows_by_topic.append(rows)
        return [
            rows
            for rows in product(*rows_by_topic)
            if self.all_true(self.outer, dict(zip(self.topics, rows, strict=True)))
            and is_within(chain(*rows), self.within_us)
        ]

    def all_true(
        self, asked: Sequence[tuple[int, tuple[Slot, ...]]], row_of: Mapping[str, Row]
    ) -> bool:
        for index, slots in asked:
            entries = tuple(row_of[slot.topic][slot.instance - 1] for slot in slots)
            key = (index, tuple(entry.arrival for entry in entries))
            if key not in self.known:
                self.known[key] = is_true(
                    self.predicates[index], dict(zip(slots, entries, strict=True))
                )
            if not self.known[key]:
                return False
        return True

    def preference(self, rows: tuple[Row, ...]) -> tuple[int, ...]:
        """Sort key of a combination: the smallest one is found first."""
        if self.policy.match is Match.FIRST:
            return tuple(entry.arrival for row in rows for entry in row)
        return tuple(-entry.arrival for row in rows for entry in reversed(row))


def neighbours(row: Row) -> bool:
    return all(b.stream_number - a.stream_number == 1 for a, b in pairwise(row))


def is_within(entries: Iterable[Entry], within_us: int | None) -> bool:
    if within_us is None:
        return True
    times = [entry.event.time for entry in entries]
    return max(times) - min(times) <= within_us


def remaining(queue: Sequence[Entry], matched: Row, consume: Consume) -> list[Entry]:
    """What a match leaves in the queue of one topic."""
    places = [place for place, entry in enumerate(queue) if entry in matched]
    first, last = places[0], places[-1]
    if consume is Consume.PREFIX:
        return [entry for place, entry in enumerate(queue) if place > last]
    if consume is Consume.MATCHED:
        return [entry for place, entry in enumerate(queue) if place not in places]
    if consume is Consume.SUFFIX:
        return [entry for place, entry in enumerate(queue) if place < first]
    assert consume is Consume.SLIDE
    return [entry for place, entry in enumerate(queue) if place > first]


# --- conjunctions ---------------------------------------------------------------------------------


def parts_of(
    conjunction: Conjunction, subscription: Subscription, topic_order: TopicOrder
) -> list[Part]:
    """The parts of a conjunction, in topic order of their first topics."""
    instances = conjunction.instances
    topics = sorted(instances, key=topic_order.key)
    comparisons = tuple(p for p in conjunction.predicates if isinstance(p, Comparison))
    group = {topic: {topic} if subscription.policy.staged else set(topics) for topic in topics}
    for predicate in comparisons:
        joined = set[str]().union(*(group[slot.topic] for slot in predicate.slots))
        for topic in joined:
            group[topic] = joined
    found: list[Part] = []
    for topic in topics:
        members = tuple(sorted(group[topic], key=topic_order.key))
        if members[0] == topic:
            inside = tuple(p for p in comparisons if p.slots[0].topic in members)
            found.append(
                Part(members, instances, inside, subscription.policy, subscription.within_us)
            )
    return found


def concatenation(parts: Sequence[Part], within_us: int | None) -> dict[str, Row] | None:
    """The heads of all parts as one relation, if each part has one and `within` allows them."""
    while all(part.finished for part in parts):
        heads = [part.finished[0] for part in parts]
        entries = [entry for head in heads for row in head.values() for entry in row]
        if is_within(entries, within_us):
            for part in parts:
                part.finished.pop(0)
            return {topic: row for head in heads for topic, row in head.items()}
        oldest = [min(e.event.time for row in head.values() for e in row) for head in heads]
        parts[oldest.index(min(oldest))].finished.pop(0)
    return None


# --- subscriptions --------------------------------------------------------------------------------

Key = tuple[Value, ...]


@dataclass(frozen=True)
class Found:
    """A relation and what a derived event needs of it."""

    relation: Relation
    canonical_rank: int
    bound: Bound


@dataclass
class State:
    """One subscription over time."""

    subscription: Subscription
    topic_order: TopicOrder
    time_ordered: bool
    conjunctions: dict[tuple[int, object], list[Part]] = field(default_factory=dict)
    """Parts by (rank in canonical order, partition value)."""
    stream_counts: Counter[object] = field(default_factory=Counter)
    ordinals: Counter[object] = field(default_factory=Counter)
    positions: Counter[object] = field(default_factory=Counter)
    given_to: list[tuple[int, Conjunction, Mapping[str, int]]] = field(default_factory=list)
    """Index, conjunction and instances, in the order in which events are given to them."""

    def __post_init__(self) -> None:
        for index in self.subscription.canonical_order:
            conjunction = self.subscription.conjunctions[index]
            self.given_to.append((index, conjunction, conjunction.instances))

    def give(self, event: Event, *, position: int, arrival: int, at: OrderKey) -> list[Found]:
        subscription = self.subscription
        if not any(event.topic in instances for _, _, instances in self.given_to):
            return []
        plain = Entry(event, position, arrival, 0)
        key = tuple(read(plain, name) for name in subscription.partition_by)
        typed_key = tuple((type(v).__name__, v) for v in key)
        self.stream_counts[event.topic, typed_key] += 1
        entry = Entry(event, position, arrival, self.stream_counts[event.topic, typed_key])
        found: list[Found] = []
        for rank, (index, conjunction, instances) in enumerate(self.given_to):
            if event.topic not in instances:
                continue
            if (rank, typed_key) not in self.conjunctions:
                self.conjunctions[rank, typed_key] = parts_of(
                    conjunction, subscription, self.topic_order
                )
            parts = self.conjunctions[rank, typed_key]
            (part,) = (part for part in parts if event.topic in part.topics)
            if not part.give(entry):
                continue
            rows = concatenation(parts, subscription.within_us)
            if rows is not None:
                found.append(self.relation(index, rank, key, typed_key, rows, at))
            self.cap_queue(part.queues[event.topic], event.time)
        self.cap_all(event.time)
        return found

    def relation(
        self,
        index: int,
        rank: int,
        key: Key,
        typed_key: object,
        rows: Mapping[str, Row],
        at: OrderKey,
    ) -> Found:
        self.ordinals[index, typed_key] += 1
        self.positions[typed_key] += 1
        topics = sorted(rows, key=self.topic_order.key)
        bound = {
            Slot(topic, instance): entry
            for topic in topics
            for instance, entry in enumerate(rows[topic], start=1)
        }
        relation = Relation(
            self.subscription.name,
            index + 1,
            key,
            self.ordinals[index, typed_key],
            self.positions[typed_key],
            tuple(entry.event for entry in bound.values()),
            at,
        )
        return Found(relation, rank, bound)

    def is_too_old(self, entry: Entry, now: int) -> bool:
        within = self.subscription.within_us
        return within is not None and self.time_ordered and entry.event.time < now - within

    def cap_queue(self, queue: list[Entry], now: int) -> None:
        cap = self.subscription.queue_count_max
        if cap is None:
            return
        while True:
            fresh = [entry for entry in queue if not self.is_too_old(entry, now)]
            if len(fresh) <= cap:
                return
            queue.remove(fresh[0])

    def cap_all(self, now: int) -> None:
        while True:
            fresh = [
                (entry.arrival, rank, queue, entry)
                for (rank, _), parts in self.conjunctions.items()
                for part in parts
                for queue in part.queues.values()
                for entry in queue
                if not self.is_too_old(entry, now)
            ]
            if len(fresh) <= self.subscription.queued_count_max:
                return
            _, _, queue, entry = min(fresh, key=lambda item: item[:2])
            queue.remove(entry)


def depths(subscriptions: Sequence[Subscription]) -> tuple[dict[str, int], dict[str, int]]:
    """How many derivations lie below each subscription, and below each derived topic."""
    emitters: dict[str, list[Subscription]] = {}
    for subscription in subscriptions:
        if subscription.emit is not None:
            emitters.setdefault(subscription.emit.topic, []).append(subscription)

    def depth(subscription: Subscription) -> int:
        below = [topic_depth(topic) for topic in subscription.topics if topic in emitters]
        return max(below, default=0)

    def topic_depth(topic: str) -> int:
        return 1 + max(depth(emitter) for emitter in emitters[topic])

    return (
        {subscription.name: depth(subscription) for subscription in subscriptions},
        {topic: topic_depth(topic) for topic in emitters},
    )


def derived_event(subscription: Subscription, found: Found, time: int) -> Event:
    assert subscription.emit is not None
    relation = found.relation
    source = subscription.name
    if subscription.partition_by:
        source += "/" + msgspec.json.encode(list(relation.key)).decode()
    values = {f.name: value(f.value, found.bound) for f in subscription.emit.fields}
    attributes = {name: v for name, v in values.items() if v is not None}
    return Event(subscription.emit.topic, source, relation.position, time, attributes)


def relations(
    subscriptions: Sequence[Subscription],
    events: Sequence[Event],
    *,
    topic_order: TopicOrder = TopicOrder(),  # noqa: B008 - an immutable value
    time_ordered: bool = True,
) -> list[Relation]:
    """Every relation of every subscription, in the order in which they are delivered."""
    depth_of, topic_depth_of = depths(subscriptions)
    states = [
        State(subscription, topic_order, time_ordered)
        for subscription in sorted(subscriptions, key=lambda s: (depth_of[s.name], s.name))
    ]
    delivered: list[Relation] = []
    arrivals = count(1)
    for position, base in enumerate(events, start=1):
        waiting: list[tuple[tuple[int, int], Event]] = [((0, 0), base)]
        while waiting:
            _, event = heapq.heappop(waiting)
            arrival = next(arrivals)
            for state in states:
                subscription = state.subscription
                for found in state.give(
                    event, position=position, arrival=arrival, at=base.order_key
                ):
                    delivered.append(found.relation)
                    if subscription.emit is not None:
                        rank = (topic_depth_of[subscription.emit.topic], len(delivered))
                        heapq.heappush(
                            waiting, (rank, derived_event(subscription, found, event.time))
                        )
    return delivered

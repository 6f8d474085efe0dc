"""The clear engine: one event at a time, admit, match, dispose, in plain Python.

It is written to be read and to be checked against: every rule of the subscription language stands
here once, without an index. It takes events in their total order and knows no file, no clock and no
batch. An `Observer` may watch each step (`explain` does).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from concordant.correlate.consumption import REMAINING
from concordant.correlate.matching import Entry, find, fits
from concordant.correlate.plan import ConjunctionPlan, Part, Plan, SubscriptionPlan
from concordant.correlate.state import (
    ConjunctionState,
    Counters,
    EngineState,
    PartState,
    SubscriptionState,
    pack,
    partition_value,
    unpack,
)
from concordant.errors import UsageError
from concordant.model.emission import derived_event
from concordant.model.event import Event, OrderKey
from concordant.model.kind import Value
from concordant.model.relation import Relation
from concordant.model.subscription import Consume

Key = tuple[Value, ...]


class Observer:
    """Watches an engine; every method may be overridden and none changes anything."""

    def refused(self, entry: Entry, conjunction: ConjunctionPlan) -> None: ...

    def admitted(self, entry: Entry, conjunction: ConjunctionPlan, key: Key) -> None: ...

    def finished(self, taken: Sequence[Entry], conjunction: ConjunctionPlan) -> None:
        """A part of a staged conjunction matched and waits for the others."""

    def delivered(
        self, taken: Sequence[Entry], conjunction: ConjunctionPlan, relation: Relation
    ) -> None: ...

    def removed(self, entry: Entry, conjunction: ConjunctionPlan, why: str) -> None: ...


class Engine:
    """Correlates a sequence of events for all subscriptions of a plan.

    `time_ordered` says that times never decrease, as in every table: then events that are too old
    for `within` are dropped, which never changes a relation.
    """

    def __init__(
        self, plan: Plan, *, time_ordered: bool = True, observer: Observer | None = None
    ) -> None:
        self.plan = plan
        self._time_ordered = time_ordered
        self._observer = observer or Observer()
        self._state = EngineState.empty(plan)

    @property
    def counters(self) -> dict[str, Counters]:
        """What happened so far, by subscription name."""
        return {
            plan.name: state.counters
            for plan, state in zip(self.plan.subscriptions, self._state.subscriptions, strict=True)
        }

    def step(self, events: Iterable[Event]) -> list[Relation]:
        """Take events in their order and return the relations they complete, in order."""
        relations: list[Relation] = []
        for event in events:
            if event.topic in self.plan.topic_depth:
                raise UsageError(
                    f"event {event.id} has topic {event.topic!r}, which a subscription emits",
                    hint="rename the derived topic in 'emit'",
                )
            self._state.position += 1
            relations += self._take(event)
        return relations

    def save(self) -> bytes:
        """The state as bytes, with version and fingerprints."""
        return pack(self.plan, self._state)

    def load(self, data: bytes) -> None:
        """Go on from a saved state; a foreign or corrupted one is refused."""
        self._state = unpack(self.plan, data)

    def waiting(self) -> Iterator[tuple[SubscriptionPlan, ConjunctionPlan, Part, PartState]]:
        """Every part's queues as they stand, for `explain` and for tests."""
        for plan, state in zip(self.plan.subscriptions, self._state.subscriptions, strict=True):
            for conjunction, mine in zip(plan.conjunctions, state.conjunctions, strict=True):
                for parts in mine.partitions.values():
                    for part, queues in zip(conjunction.parts, parts, strict=True):
                        yield plan, conjunction, part, queues

    # --- one event ----------------------------------------------------------------------------

    def _take(self, base: Event) -> Iterator[Relation]:
        """Give an event, and what is derived from it, to all subscriptions that read its topic."""
        at = base.order_key
        # Derived events wait by depth of their topic, so that none overtakes what it depends on,
        # and within a depth in the order in which their relations were delivered.
        waiting: dict[int, deque[Event]] = {0: deque([base])}
        while waiting:
            depth = min(waiting)
            event = waiting[depth].popleft()
            if not waiting[depth]:
                del waiting[depth]
            self._state.serial += 1
            for index in self.plan.readers.get(event.topic, ()):
                plan = self.plan.subscriptions[index]
                for relation in self._give(plan, self._state.subscriptions[index], event, at):
                    yield relation
                    emit = plan.subscription.emit
                    if emit is not None:
                        slots = plan.by_number[relation.conjunction].whole.slots
                        derived = derived_event(emit, slots, relation, event.time)
                        waiting.setdefault(self.plan.topic_depth[emit.topic], deque()).append(
                            derived
                        )

    def _give(
        self, plan: SubscriptionPlan, state: SubscriptionState, event: Event, at: OrderKey
    ) -> Iterator[Relation]:
        subscription = plan.subscription
        key = partition_value(event, subscription.partition_by)
        numbers = state.numbers.setdefault(key, {})
        numbers[event.topic] = numbers.get(event.topic, 0) + 1
        entry = Entry(event, self._state.position, numbers[event.topic], self._state.serial)
        state.counters.events += 1
        for conjunction, mine in zip(plan.conjunctions, state.conjunctions, strict=True):
            if event.topic not in conjunction.part_of_topic:
                continue
            taken = self._match(plan, conjunction, state, mine, key, entry)
            if taken is None:
                continue
            mine.ordinals[key] = mine.ordinals.get(key, 0) + 1
            state.positions[key] = state.positions.get(key, 0) + 1
            state.counters.relations += 1
            relation = Relation(
                plan.name,
                conjunction.number,
                key,
                mine.ordinals[key],
                state.positions[key],
                tuple(one.event for one in taken),
                at,
            )
            self._observer.delivered(taken, conjunction, relation)
            yield relation
        self._bound_all(plan, state, event.time)

    def _match(
        self,
        plan: SubscriptionPlan,
        conjunction: ConjunctionPlan,
        state: SubscriptionState,
        mine: ConjunctionState,
        key: Key,
        entry: Entry,
    ) -> list[Entry] | None:
        """Admit, match and dispose in one conjunction; the relation's events, if there is one."""
        index = conjunction.part_of_topic[entry.event.topic]
        part = conjunction.parts[index]
        if not any(fits(entry, part.unary[i]) for i in part.slots_of_topic[entry.event.topic]):
            self._observer.refused(entry, conjunction)
            return None
        state.counters.admitted += 1
        self._observer.admitted(entry, conjunction, key)
        if key not in mine.partitions:
            mine.partitions[key] = [PartState.empty(one) for one in conjunction.parts]
        parts = mine.partitions[key]
        now = parts[index]
        self._expire(plan, conjunction, state, now, entry.event.time)
        now.queues[entry.event.topic].append(entry)
        state.queued += 1
        taken = self._search(plan, conjunction, state, part, now, entry)
        self._bound_queue(plan, conjunction, state, now, entry.event)
        if taken is None or len(parts) == 1:
            return taken
        now.finished.append(taken)
        self._observer.finished(taken, conjunction)
        return self._concatenate(plan, conjunction, parts)

    def _search(
        self,
        plan: SubscriptionPlan,
        conjunction: ConjunctionPlan,
        state: SubscriptionState,
        part: Part,
        now: PartState,
        entry: Entry,
    ) -> list[Entry] | None:
        subscription = plan.subscription
        taken = find(
            part,
            now.queues,
            policy=subscription.policy,
            within_us=subscription.within_us,
            # Only `slide` can leave a match behind, and only a search that delivered.
            pinned=None if now.leftover else entry,
        )
        now.leftover = taken is not None and subscription.policy.consume is Consume.SLIDE
        if taken is None:
            return None
        for topic in part.topics:
            slots = part.slots_of_topic[topic]
            matched = taken[slots.start : slots.stop]
            queue = now.queues[topic]
            stays = REMAINING[subscription.policy.consume](queue, matched)
            self._drop(conjunction, state, now, topic, stays, "consumed")
        return taken

    def _concatenate(
        self, plan: SubscriptionPlan, conjunction: ConjunctionPlan, parts: list[PartState]
    ) -> list[Entry] | None:
        """The heads of all parts as one relation; heads too old for `within` are given up."""
        within = plan.subscription.within_us
        while all(part.finished for part in parts):
            heads = [part.finished[0] for part in parts]
            times = [entry.event.time for head in heads for entry in head]
            if within is None or max(times) - min(times) <= within:
                for part in parts:
                    part.finished.pop(0)
                found = {
                    slot: entry
                    for part, head in zip(conjunction.parts, heads, strict=True)
                    for slot, entry in zip(part.slots, head, strict=True)
                }
                return [found[slot] for slot in conjunction.whole.slots]
            oldest = min(range(len(heads)), key=lambda i: min(e.event.time for e in heads[i]))
            for entry in parts[oldest].finished.pop(0):
                self._observer.removed(entry, conjunction, "too old")
        return None

    # --- bounds -------------------------------------------------------------------------------

    def _drop(
        self,
        conjunction: ConjunctionPlan,
        state: SubscriptionState,
        now: PartState,
        topic: str,
        stays: list[Entry],
        why: str,
    ) -> None:
        kept = {entry.number for entry in stays}
        for entry in now.queues[topic]:
            if entry.number not in kept:
                state.queued -= 1
                self._observer.removed(entry, conjunction, why)
        now.queues[topic] = stays

    def _oldest_time(self, plan: SubscriptionPlan, now_us: int) -> int | None:
        within = plan.subscription.within_us
        return None if within is None or not self._time_ordered else now_us - within

    def _expire(
        self,
        plan: SubscriptionPlan,
        conjunction: ConjunctionPlan,
        state: SubscriptionState,
        now: PartState,
        now_us: int,
    ) -> None:
        """Drop what is too old to match anything, unless a match may still lie there."""
        oldest = self._oldest_time(plan, now_us)
        if oldest is None or now.leftover:
            return
        for topic, queue in now.queues.items():
            if queue and queue[0].event.time < oldest:
                young = [entry for entry in queue if entry.event.time >= oldest]
                state.counters.expired += len(queue) - len(young)
                self._drop(conjunction, state, now, topic, young, "too old")

    def _bound_queue(
        self,
        plan: SubscriptionPlan,
        conjunction: ConjunctionPlan,
        state: SubscriptionState,
        now: PartState,
        event: Event,
    ) -> None:
        limit = plan.subscription.queue_count_max
        queue = now.queues[event.topic]
        if limit is None or len(queue) <= limit:
            return
        oldest = self._oldest_time(plan, event.time)
        counted = [e for e in queue if oldest is None or e.event.time >= oldest]
        excess = {entry.number for entry in counted[: max(0, len(counted) - limit)]}
        state.counters.capped += len(excess)
        stays = [entry for entry in queue if entry.number not in excess]
        self._drop(conjunction, state, now, event.topic, stays, "over the cap")

    def _bound_all(self, plan: SubscriptionPlan, state: SubscriptionState, now_us: int) -> None:
        """The cap on all queued events: the oldest goes, by arrival, then canonical order."""
        limit = plan.subscription.queued_count_max
        if state.queued <= limit:
            return
        oldest = self._oldest_time(plan, now_us)
        everything = [
            (entry.serial, order, topic, entry.number, parts[i])
            for order, mine in enumerate(state.conjunctions)
            for parts in mine.partitions.values()
            for i in range(len(parts))
            for topic, queue in parts[i].queues.items()
            for entry in queue
            if oldest is None or entry.event.time >= oldest
        ]
        everything.sort(key=lambda item: item[:2])
        for _, order, topic, number, part in everything[: max(0, len(everything) - limit)]:
            stays = [entry for entry in part.queues[topic] if entry.number != number]
            state.counters.capped += 1
            self._drop(plan.conjunctions[order], state, part, topic, stays, "over the cap")

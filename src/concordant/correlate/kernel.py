"""The kernel: columns in, relations out, one compiled loop for one event and for a million.

`step(batch)` takes events in their total order and gives the relations they complete; any cut of
the same sequence into batches gives the same relations. The kernel drives the compiled loops of its
stages (one per depth of emission) and carries derived events from one stage to the next. Semantics
are those of the clear engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from concordant.correlate.columns import Array, Batch
from concordant.correlate.found import Found, Records
from concordant.correlate.plan import Plan, compile_plan
from concordant.correlate.saved import SavedKernel
from concordant.correlate.stage import SCANNED_COUNT_MAX, SEARCH_BUDGET, Stage
from concordant.correlate.state import Counters, seal, unseal
from concordant.correlate.writer import Dictionary
from concordant.errors import UsageError
from concordant.model.emission import derived_event
from concordant.model.event import Event
from concordant.model.expression import Attribute, Slot
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison
from concordant.model.relation import Relation
from concordant.model.subscription import Conjunction, Subscription
from concordant.model.topic import Topic


@dataclass(frozen=True)
class _Derived:
    """A derived event on its way: when it is given, and to whom."""

    event: Event
    position: int
    depth: int
    when: tuple[Any, ...]
    """Sorts as the order in which events are given: place, depth, then order of delivery."""


class Kernel:
    """Correlates batches of events for all subscriptions of a plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        time_ordered: bool = True,
        search_budget: int = SEARCH_BUDGET,
        scanned_count_max: int = SCANNED_COUNT_MAX,
    ) -> None:
        self.plan = plan
        self._scanned = scanned_count_max
        self._time_ordered = time_ordered
        self._search_budget = search_budget
        self._start(Dictionary())

    def _start(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._position = 0
        self._stages: list[Stage] = []
        self._first: list[int] = []
        for depth in range(self.plan.subscriptions[-1].depth + 1):
            mine = [one for one in self.plan.subscriptions if one.depth == depth]
            self._first.append(self.plan.subscriptions.index(mine[0]))
            self._stages.append(
                Stage(
                    mine,
                    self.plan.schemas,
                    dictionary,
                    time_ordered=self._time_ordered,
                    budget=self._search_budget,
                    scanned=self._scanned,
                )
            )

    @property
    def counters(self) -> dict[str, Counters]:
        """What happened so far, by subscription name."""
        return {name: one for stage in self._stages for name, one in stage.counters().items()}

    def step(self, batch: Batch) -> Found:
        """Take a batch in its order and return the relations it completes, in order."""
        self._refuse_derived_topics(batch)
        first = self._position + 1
        self._position += len(batch)
        if not self.plan.topic_depth:
            return Found(self.plan, [self._stages[0].step(batch, first)], [0], batch, first)
        return self._step_stages(batch, np.arange(first, first + len(batch)), first)

    def push(self, event: Event) -> list[Relation]:
        """Take one event as it arrives, and return the relations it completes."""
        if self.plan.topic_depth:
            return list(self.step(Batch.of([event], [self.plan.schemas[event.topic]])))
        self._position += 1
        records = self._stages[0].push(event, self._position)
        if records is None:
            return []
        base = Batch.of([event], [self.plan.schemas[event.topic]])
        return list(Found(self.plan, [records], [0], base, self._position))

    def _refuse_derived_topics(self, batch: Batch) -> None:
        for code, topic in enumerate(batch.topics):
            if topic in self.plan.topic_depth and bool((batch.topic == code).any()):
                raise UsageError(
                    f"the events have the topic {topic!r}, which a subscription emits",
                    hint="rename the derived topic in 'emit'",
                )

    # --- derived events -----------------------------------------------------------------------

    def _step_stages(self, batch: Batch, positions: Array, first: int) -> Found:
        stages: list[Records] = []
        found = Found(self.plan, stages, self._first, batch, first)
        delivered: list[tuple[tuple[Any, ...], int, int]] = []
        derived: list[_Derived] = []
        for depth, stage in enumerate(self._stages):
            given = sorted((one for one in derived if one.depth <= depth), key=lambda d: d.when)
            merged, places, source = _merge(batch, positions, given, self.plan)
            records = stage.step(merged, first, places)
            stages.append(records)
            for index in range(len(records)):
                row = int(source[records.taken[index]])
                place = int(records.at[index])
                trigger = (place, 0) if row < 0 else given[row].when
                subscription = self._first[depth] + int(records.subscription[index])
                key = (trigger, subscription, int(records.conjunction[index]))
                delivered.append((key, depth, index))
                derived += self._derive(found, records, depth, index, key)
        delivered.sort(key=lambda item: item[0])
        return replace(found, order=[(depth, index) for _, depth, index in delivered])

    def _derive(
        self, found: Found, records: Records, depth: int, index: int, key: tuple[Any, ...]
    ) -> list[_Derived]:
        plan = self.plan.subscriptions[key[1]]
        emit = plan.subscription.emit
        if emit is None:
            return []
        relation = found.relation(depth, index)
        slots = plan.by_number[relation.conjunction].whole.slots
        time = relation.at.time
        topic_depth = self.plan.topic_depth[emit.topic]
        place = int(records.at[index])
        event = derived_event(emit, slots, relation, time)
        return [_Derived(event, place, topic_depth, (place, topic_depth, *key))]

    # --- state --------------------------------------------------------------------------------

    def save(self) -> bytes:
        """The state as bytes, with version and fingerprints."""
        saved = SavedKernel(
            self._position, list(self._dictionary.codes), [stage.save() for stage in self._stages]
        )
        return seal(self.plan, "kernel", msgspec.msgpack.encode(saved))

    def load(self, data: bytes) -> None:
        """Go on from a saved state; a foreign or corrupted one is refused."""
        saved = msgspec.msgpack.decode(unseal(self.plan, "kernel", data), type=SavedKernel)
        self._start(Dictionary(saved.strings))
        self._position = saved.position
        for stage, mine in zip(self._stages, saved.stages, strict=True):
            stage.load(mine)


def warm_up() -> None:
    """Load the compiled loops, or compile them if nobody did on this machine: a one-time wait."""
    kind = {"x": Kind.FLOAT}
    topics = {name: Topic(name, kind) for name in ("A", "B")}
    pair = Comparison("<", Attribute(Slot("A", 1), "x"), Attribute(Slot("B", 1), "x"))
    plan = compile_plan([Subscription("warm", (Conjunction((pair,)),))], topics)
    events = [Event(name, "s", i, i, {"x": float(i)}) for i, name in enumerate("AB")]
    kernel = Kernel(plan)
    kernel.step(Batch.of(events, topics.values()))
    kernel.load(kernel.save())


def _merge(
    batch: Batch, positions: Array, derived: list[_Derived], plan: Plan
) -> tuple[Batch, Array, Array]:
    """Base rows with derived events after the base event that completed them.

    Gives the rows, their places in the total order, and for each row its index in `derived` (-1
    for a base row).
    """
    source = np.full(len(batch), -1)
    if not derived:
        return batch, positions, source
    topics = [plan.schemas[name] for name in sorted({one.event.topic for one in derived})]
    rows = Batch.concat([batch, Batch.of([one.event for one in derived], topics)])
    places = np.concatenate([positions, [one.position for one in derived]])
    source = np.concatenate([source, np.arange(len(derived))])
    order = np.lexsort((source, places))
    return rows.take(order), places[order], source[order]

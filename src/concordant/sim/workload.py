"""The load of a run: who publishes what and when, and who changes its subscriptions.

Each publisher schedules its next publication when it makes one, so a long run costs no memory ahead
of time. All chance comes from one generator of the seed, and none of it depends on the network.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import accumulate
from random import Random

from concordant.machine.effects import Delivery
from concordant.machine.requests import Publish, Subscribe, Unsubscribe
from concordant.machine.saved import Compact
from concordant.sim.popularity import weights
from concordant.sim.protocols import SEQUENCER, Layout
from concordant.sim.scenario import Change, Scenario, SubscriptionChange
from concordant.sim.world import Place, World

_THINK_US = 500
"""How long a client takes to publish because of what it delivered."""


class Load:
    """Publications and subscriptions of one run."""

    def __init__(self, world: World, scenario: Scenario, layout: Layout, *, seed: str) -> None:
        self._world = world
        self._spec = scenario.workload
        self._layout = layout
        self._rng = Random(f"{seed}/workload")
        self._end_us = scenario.duration_ms * 1_000
        self._rate_per_s = self._spec.rate_per_s
        self._rank = {topic: rank for rank, topic in enumerate(scenario.topics)}
        self._popularity: str = self._spec.popularity
        self._cumulative: dict[str, list[float]] = {}

    def begin(self) -> None:
        """Schedule everything."""
        for name in self._layout.publishes:
            self._schedule(name, first=True)
        for change in self._spec.changes:
            self._world.call(change.at_ms * 1_000, partial(self._change, change))
        for one in self._spec.subscriptions:
            self._world.call(one.at_ms * 1_000, partial(self._subscribe, one))
        if self._spec.replies:
            self._world.on_delivery = self._reply
        if self._spec.compact_ms:
            self._world.call(self._spec.compact_ms * 1_000, self._compact)

    def _schedule(self, name: str, *, first: bool = False) -> None:
        gap = 1e6 / self._rate_per_s
        if self._spec.arrivals == "poisson":
            gap = self._rng.expovariate(1 / gap)
        elif first:  # publishers do not all start at one instant
            gap *= self._rng.random()
        at = self._world.now + max(1, int(gap))
        if at < self._end_us:
            self._world.call(at, partial(self._publish, name))

    def _publish(self, name: str) -> None:
        self._world.command(name, self._event(name))
        self._schedule(name)

    def _event(self, name: str) -> Publish:
        topics = self._layout.publishes[name]
        topic = topics[0]
        if len(topics) > 1:
            topic = self._rng.choices(topics, cum_weights=self._weights(name))[0]
        kind = 1 + int(self._rng.random() * self._spec.kinds)
        guest = self._rng.randrange(self._spec.guests + 1) if self._spec.guests else 0
        return Publish(topic, {"kind": kind}, source=f"{name}-{guest}" if guest else "")

    def _weights(self, name: str) -> list[float]:
        found = self._cumulative.get(name)
        if found is None:
            topics = self._layout.publishes[name]
            shares = weights(len(self._rank), self._popularity)
            found = list(accumulate(shares[self._rank[topic]] for topic in topics))
            self._cumulative[name] = found
        return found

    def _compact(self) -> None:
        world = self._world
        names = dict.fromkeys((*self._layout.publishes, *self._layout.subscribes, SEQUENCER))
        for name in names:
            if name in world.places:
                world.command(name, Compact(world.places[name].taken_count))
        due = world.now + self._spec.compact_ms * 1_000
        if due < self._end_us:
            world.call(due, self._compact)

    def _change(self, change: Change) -> None:
        if change.rate_per_s is not None:
            self._rate_per_s = change.rate_per_s
        if change.popularity is not None:
            self._popularity = change.popularity
        if change.shuffle:
            ranks = list(self._rank.values())
            self._rng.shuffle(ranks)
            self._rank = dict(zip(self._rank, ranks, strict=True))
        self._cumulative = {}

    def _subscribe(self, change: SubscriptionChange) -> None:
        if change.unsubscribe:
            self._world.command(change.node, Unsubscribe(change.unsubscribe))
        if change.subscribe:
            self._world.command(change.node, Subscribe(change.subscribe))

    def _reply(self, place: Place, deliveries: Iterable[Delivery]) -> None:
        name = place.address
        for _ in deliveries:
            due = self._world.now + _THINK_US
            if (
                name in self._layout.publishes
                and due < self._end_us
                and self._rng.random() < self._spec.replies
            ):
                self._world.call(due, partial(self._answer, name))

    def _answer(self, name: str) -> None:
        self._world.command(name, self._event(name))

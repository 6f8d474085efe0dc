"""Planted bugs in protocols, drivers and clients, each found by a checker in simulated runs.

A bug is planted by patching a piece of a machine or of the world while a context is open, and the
swarm then has to break the promise that is named beside it. `seeds_to_find` says how many seeds
that takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from concordant.deliver.correlated import Correlated
from concordant.machine.clock import HybridClock
from concordant.machine.effects import Effect, Persist
from concordant.machine.inputs import Started
from concordant.machine.instant import Instant
from concordant.order.broadcast.sequencer import SequencedClient, Sequencer
from concordant.order.client import Client, Delivered
from concordant.order.clock import ClockClient
from concordant.order.fifo import ASK, MARK, FifoClient
from concordant.order.none import NoneClient
from concordant.order.streams import Incoming, Mark, Numbered
from concordant.sim.run import simulate
from concordant.sim.scenario import Fault, Scenario, SubscriptionChange, Topology, Workload
from concordant.sim.swarm import random_scenario
from concordant.sim.world import World
from tests.detection.planting import Plant, planted

SEED_COUNT_MAX = 2_000
"""A bug that survives so many seeds is not caught."""

PATTERN = "T1 then T1[2]"
"""Every second event of T1 completes a relation."""


@dataclass(frozen=True)
class SimulationBug:
    """A sentence that is false of the protocols, and how to make it true."""

    name: str
    protocol: str
    breaks: tuple[str, ...]
    """The properties of which one has to be found violated first."""
    plant: Plant
    subscription: str = ""
    level: str = ""
    sharpen: Callable[[Scenario], Scenario] = lambda scenario: scenario
    """What a scenario must have for the bug to show, if that is rare."""


BUGS: list[SimulationBug] = []


def bug(name: str, protocol: str, *breaks: str, **others: Any) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(SimulationBug(name, protocol, breaks, plant, **others))
        return plant

    return add


def scenario_for(which: SimulationBug, seed: int) -> Scenario:
    """The swarm's scenario of a seed, with what the bug needs on top."""
    scenario = which.sharpen(random_scenario(which.protocol, seed))
    return msgspec.structs.replace(scenario, subscription=which.subscription, level=which.level)


def seeds_to_find(which: SimulationBug, *, seed_count_max: int = SEED_COUNT_MAX) -> int | None:
    """How many seeds it takes until a promise is seen broken in the expected way."""
    with planted(which):
        for seed in range(seed_count_max):
            failure = simulate(scenario_for(which, seed), seed=seed).failure
            if failure is not None and failure.name in which.breaks:
                return seed + 1
    return None


# --- streams --------------------------------------------------------------------------------------


@bug("what is ahead of its turn is let through", "fifo", "Validity")
def _(patch: pytest.MonkeyPatch) -> None:
    def accept(self: Incoming, n: int, event: Any) -> list[Any]:
        self.known = max(self.known, n)
        if n < self.next:
            return []
        self.next = n + 1
        return [event]

    patch.setattr(Incoming, "accept", accept)


@bug("what was let through already is let through again", "fifo", "No Duplication", "FIFO")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Incoming.accept

    def accept(self: Incoming, n: int, event: Any) -> list[Any]:
        return [event] if n < self.next else correct(self, n, event)

    patch.setattr(Incoming, "accept", accept)


@bug("nobody asks for what is missing", "fifo", "Drained", "Validity")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = FifoClient._wake

    def wake(self: Any, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        if name != ASK:
            correct(self, now, name, cause, out)

    patch.setattr(FifoClient, "_wake", wake)


@bug("a lost tail is never marked", "fifo", "Validity", "Drained")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = FifoClient._wake

    def wake(self: Any, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        if name != MARK:
            correct(self, now, name, cause, out)

    patch.setattr(FifoClient, "_wake", wake)


@bug("a new subscription starts one event too late", "fifo", "Validity")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = FifoClient._begin_stream

    def begin(self: Any, mark: Mark, cause: int, out: list[Effect]) -> None:
        correct(self, Mark(mark.stream, mark.n + 1, mark.time), cause, out)

    patch.setattr(FifoClient, "_begin_stream", begin)


@bug("a source answers where it is before it is listened to", "fifo", "Validity")
def _(patch: pytest.MonkeyPatch) -> None:
    # Nothing is asked when the dissemination is ready, so the subscription never begins; the
    # client believes that it has.
    def ask_where(self: Any, topics: tuple[str, ...], cause: int, out: list[Effect]) -> None:
        for topic in topics:
            self._state.joining[topic] = dict.fromkeys(self._state.joining[topic], 10_000)
            for source in self._state.joining[topic]:
                self._incoming((source, topic)).next = 10_001
            self._finish_join(topic, cause, out)

    patch.setattr(FifoClient, "_ask_where", ask_where)


# --- clients --------------------------------------------------------------------------------------


@bug("after a crash the client does not know what it delivered", "fifo", "No Duplication", "FIFO")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Client._recover

    def recover(self: Any, records: tuple[Any, ...], taken_count: int) -> Any:
        kept = tuple(one for one in records if not isinstance(one, Delivered))
        return correct(self, kept, taken_count)

    patch.setattr(Client, "_recover", recover)


@bug("after a crash everything is delivered again", "sequencer", "No Duplication")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Client._recover
    patch.setattr(Client, "_recover", lambda self, records, taken: correct(self, records, 0))


@bug(
    "after a crash a publisher numbers its events from 1 again",
    "none",
    "No Duplication",
    "FIFO",
    level="fifo",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Client._recover

    def recover(self: Any, records: tuple[Any, ...], taken_count: int) -> Any:
        found = correct(self, records, taken_count)
        self._state.seq = 0
        return found

    patch.setattr(Client, "_recover", recover)


@bug("what was unsubscribed is still delivered", "sequencer", "Subscribed")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Client._leave

    def leave(self: Any, now: Instant, topics: Any, cause: int, out: list[Effect]) -> None:
        correct(self, now, topics, cause, out)
        self._state.topics.update(dict.fromkeys(topics, True))

    patch.setattr(Client, "_leave", leave)


@bug("an event is delivered under another name", "none", "No Creation")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = NoneClient._deliver

    def deliver(self: Any, ready: Any, cause: int, out: list[Effect], **others: Any) -> None:
        renamed = [
            msgspec.structs.replace(
                one, event=msgspec.structs.replace(one.event, id=f"{one.event.id}?")
            )
            for one in ready
        ]
        correct(self, renamed, cause, out, **others)

    patch.setattr(NoneClient, "_deliver", deliver)


# --- the sequencer --------------------------------------------------------------------------------


@bug(
    "the sequencer tells a position before it is durable",
    "sequencer",
    "Total Order, strict",
    "No Duplication",
    "Validity",
    "Causal",
    "Drained",
    "FIFO",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Sequencer.handle

    def handle(self: Any, now: Instant, given: Any) -> list[Effect]:
        effects = correct(self, now, given)
        return sorted(effects, key=lambda effect: isinstance(effect, Persist))

    patch.setattr(Sequencer, "handle", handle)


@bug("the sequencer gives a repeated event a second position", "sequencer", "No Duplication")
def _(patch: pytest.MonkeyPatch) -> None:
    def receive(self: Any, now: Instant, given: Any, out: list[Effect]) -> None:
        incoming = self._publisher(given.source)
        for message in given.messages:
            if isinstance(message, Numbered):
                incoming.next = message.n + 1
                self._sign(now, given, incoming, [message.event], out)
                self._acknowledge_later(now, given, out)

    patch.setattr(Sequencer, "_receive", receive)


@bug("a subscriber passes over positions that it misses", "sequencer", "Validity")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SequencedClient._receive

    def receive(self: Any, now: Instant, given: Any, out: list[Effect]) -> None:
        first = next((m.n for m in given.messages if hasattr(m, "event")), 0)
        incoming = self._state.incoming
        incoming.next = max(incoming.next, first)
        correct(self, now, given, out)

    patch.setattr(SequencedClient, "_receive", receive)


@bug(
    "subscribers deliver in the order of arrival",
    "sequencer",
    "FIFO",
    "Causal",
    "Total Order, strict",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def accept(self: Incoming, n: int, event: Any) -> list[Any]:
        self.known = max(self.known, n)
        seen = self.held.order
        if n in seen:
            return []
        seen.append(n)
        while self.next in seen:
            self.next += 1
        return [event]

    correct = SequencedClient._receive

    def receive(self: Any, now: Instant, given: Any, out: list[Effect]) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Incoming, "accept", accept)
            correct(self, now, given, out)

    patch.setattr(SequencedClient, "_receive", receive)


# --- the clock ------------------------------------------------------------------------------------


@bug("events are not held back for the frontier", "clock", "Total Order, strict", "Causal", "Tags")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClockClient, "_frontier", lambda self: 1 << 60)


@bug("a mark is no promise for later events", "clock", "Tags", "Total Order, strict", "Causal")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = ClockClient._mark

    def mark(self: Any, now: Instant, topic: str, cause: int, out: list[Effect]) -> Mark:
        found = correct(self, now, topic, cause, out)
        return Mark(found.stream, found.n, found.time + 30_000)

    patch.setattr(ClockClient, "_mark", mark)


@bug("what is too late does not say so", "clock", "Total Order, strict", "Causal")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = ClockClient._deliver

    def deliver(self: Any, ready: Any, cause: int, out: list[Effect], **others: Any) -> None:
        correct(
            self,
            [msgspec.structs.replace(one, in_order=True) for one in ready],
            cause,
            out,
            **others,
        )

    patch.setattr(ClockClient, "_deliver", deliver)


@bug("what is in order says that it is too late", "clock", "Tags", "Total Order, strict")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = ClockClient._deliver

    def deliver(self: Any, ready: Any, cause: int, out: list[Effect], **others: Any) -> None:
        said = [msgspec.structs.replace(one, in_order=one.event.seq % 5 != 0) for one in ready]
        correct(self, said, cause, out, **others)

    patch.setattr(ClockClient, "_deliver", deliver)


def _answered_elsewhere(scenario: Scenario) -> Scenario:
    """c1 has a clock that is behind and answers on T2 what it hears on T1; s1 hears both."""
    return msgspec.structs.replace(
        scenario,
        topology=Topology(2, 1, 1, 1, topics_per_publisher=1, topics_per_subscriber=1),
        workload=Workload(
            40.0, replies=0.5, subscriptions=(SubscriptionChange(5, "s1", ("T1", "T2")),)
        ),
        faults=(Fault("skew", node="c1", offset_ms=-80),),
    )


@bug(
    "a publisher's clock does not look at what was delivered",
    "clock",
    "Causal",
    sharpen=_answered_elsewhere,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HybridClock, "observe", lambda self, seen: None)


# --- relations and the driver ---------------------------------------------------------------------


@bug(
    "after a crash the relations are delivered again",
    "sequencer",
    "No Duplication",
    subscription=PATTERN,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Correlated.handle

    def handle(self: Any, now: Instant, given: Any) -> list[Effect]:
        if isinstance(given, Started):
            given = Started(given.records, 0, given.cause)
        return correct(self, now, given)

    patch.setattr(Correlated, "handle", handle)


@bug(
    "relations over a level without order are called agreed",
    "none",
    "Agreed",
    subscription=PATTERN,
    level="agreed",
)
def _(patch: pytest.MonkeyPatch) -> None:
    del patch  # the promise itself is the bug


@bug("one order is promised where each source has its own", "fifo", "Total Order", level="total")
def _(patch: pytest.MonkeyPatch) -> None:
    del patch  # the promise itself is the bug


@bug(
    "causes first is promised where each source has its own order", "fifo", "Causal", level="causal"
)
def _(patch: pytest.MonkeyPatch) -> None:
    del patch  # the promise itself is the bug


@bug(
    "the disk says that it is done before it is",
    "sequencer",
    "Total Order, strict",
    "No Duplication",
    "Validity",
    "Causal",
    "Drained",
    "FIFO",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = World._carry_out

    def carry_out(self: World, place: Any, effects: Any) -> None:
        effects = list(effects)
        correct(self, place, [one for one in effects if not isinstance(one, Persist)])
        correct(self, place, [one for one in effects if isinstance(one, Persist)])

    patch.setattr(World, "_carry_out", carry_out)


@bug(
    "a restarted node has an empty disk",
    "sequencer",
    "No Duplication",
    "Validity",
    "Drained",
    "FIFO",
    "Causal",
    "Total Order, strict",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = World.restart

    def restart(self: World, name: str) -> None:
        for place in self.nodes[name].places:
            if not self.nodes[name].up:
                place.log.clear()
        correct(self, name)

    patch.setattr(World, "restart", restart)

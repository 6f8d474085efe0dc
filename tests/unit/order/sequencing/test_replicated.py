"""Sequencers and the coordinator with replicas: a minority may be gone for good."""

from __future__ import annotations

from functools import partial

import pytest

from concordant.check.levels import check_level
from concordant.machine.effects import Disseminate
from concordant.machine.inputs import Received, Started, TimerFired
from concordant.machine.requests import Publish, Subscribe
from concordant.model.event import Event
from concordant.order.replication import Kept, ReplicationOptions
from concordant.order.sequencing import replicated
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import COORDINATOR, Create, Parcel, Rerank, Signed
from concordant.order.sequencing.replicated import Replicated
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.protocols import Layout, layout_of, protocol_of
from concordant.sim.recorder import Recorder
from concordant.sim.scenario import Scenario, Topology
from concordant.sim.sequencing import REPLICAS
from concordant.sim.world import World

SCENARIO = Scenario(
    "sequencing-replicated",
    topology=Topology(topics=2, publishers=2, subscribers=2),
    network=NetworkSpec(Latency("uniform", 500, 4_000)),
    parameters={"survey_us": 600_000_000},
)
SECOND = 1_000_000


def built() -> tuple[World, Layout]:
    world = World(seed="1", network=SCENARIO.network, recorder=Recorder("r", level="total"))
    layout = layout_of(SCENARIO, "1")
    protocol_of(SCENARIO).build(world, SCENARIO, layout)
    world.start()
    return world, layout


def publish(world: World, count: int, start: int) -> None:
    for number in range(count):
        topic = f"T{number % 2 + 1}"
        at = start + number * 20_000
        world.call(at, partial(world.command, f"p{number % 2 + 1}", Publish(topic)))


def delivered(world: World, name: str) -> list[str]:
    return [
        row.events[0]
        for row in world.recorder.rows()
        if row.step == "deliver" and row.process == name
    ]


@pytest.mark.parametrize("gone", REPLICAS)
def test_a_topic_outlives_any_one_of_its_replicas(gone: str) -> None:
    world, _ = built()
    publish(world, 20, 0)
    world.call(150_000, partial(world.crash, gone))  # and it never comes back
    publish(world, 20, 2 * SECOND)
    world.run(10 * SECOND)
    assert delivered(world, "s1") == delivered(world, "s2")
    assert len(delivered(world, "s1")) == 40
    world.recorder.noted(world.now, "", "end")
    assert all(verdict.holds for verdict in check_level(world.recorder.rows(), "total"))


def test_without_a_majority_nothing_is_said_and_with_one_again_everything() -> None:
    world, _ = built()
    for gone in REPLICAS[1:]:
        world.call(1_000, partial(world.crash, gone))
    publish(world, 6, 50_000)
    world.run(3 * SECOND)
    assert delivered(world, "s1") == []
    world.restart(REPLICAS[1])
    world.run(10 * SECOND)
    assert len(delivered(world, "s1")) == 6


def test_a_ranking_is_installed_by_whoever_leads() -> None:
    world, _ = built()
    world.crash(REPLICAS[0])
    world.run(3 * SECOND)
    for node in REPLICAS[1:]:  # one of them leads, and the other does not care
        world.command(f"{node}/{COORDINATOR}", Rerank(("T2", "T1")))
    publish(world, 10, 4 * SECOND)
    world.call(4 * SECOND, partial(world.command, "s1", Subscribe(("T1",))))
    world.run(20 * SECOND)
    assert len(delivered(world, "s2")) == 10
    orders = []
    for node in REPLICAS[1:]:
        service = world.places[f"{node}/{COORDINATOR}"].machine._service  # type: ignore[attr-defined]
        assert isinstance(service, Coordinator)
        orders.append(service.order)
    assert orders == [("T2", "T1")] * 2


def alone(**options: int) -> Replicated:
    """The leader of three replicas, of which nobody else answers."""
    services = {"sequencer-a": ("r1", "r2", "r3")}
    make = partial(TopicSequencer, "a", sequencers={"a": "sequencer-a"})
    machine = Replicated("r1", make, service="sequencer-a", services=services, **options)
    machine.handle(0, Started())
    return machine


def test_inputs_that_no_majority_has_are_bounded() -> None:
    machine = alone(queue_count_max=3)
    for n in range(1, 6):
        given = Parcel(1, n, Create(n, (Event("a", "p", n, n),)))
        machine.handle(n, Received("p", (given,)))
        machine.handle(n, TimerFired(("work",)))
    assert machine.held_count == 3
    kept = Kept("sequencer-a", 0, 3)
    machine.handle(10, Received("r2", (kept,)))
    effects = machine.handle(10, TimerFired(("work",)))
    signed = [m for e in effects if isinstance(e, Disseminate) for m in e.messages]
    assert [one.n for one in signed if isinstance(one, Signed)] == [1, 2, 3]
    machine.handle(11, Received("p", (Parcel(1, 4, Create(4, (Event("a", "p", 4, 4),))),)))
    assert machine.held_count > 0  # now there is room for what was repeated


def test_a_long_log_becomes_a_state_from_which_who_was_away_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = ReplicationOptions(entry_count_max=5)
    monkeypatch.setattr(replicated, "ReplicationOptions", lambda replica_count: short)
    world, _ = built()
    world.call(100_000, partial(world.crash, REPLICAS[2]))
    publish(world, 40, 0)
    world.run(3 * SECOND)
    for name in ("r1/sequencer-T1", "r2/sequencer-T1"):
        log = world.places[name].machine._state.log  # type: ignore[attr-defined]
        assert log.base > 0 and log.entry_count <= 2 * short.entry_count_max
    world.restart(REPLICAS[2])
    world.run(6 * SECOND)
    world.crash(REPLICAS[0])  # now who was away is needed for a majority
    publish(world, 10, 7 * SECOND)
    world.run(15 * SECOND)
    assert len(delivered(world, "s1")) == 50
    assert delivered(world, "s1") == delivered(world, "s2")

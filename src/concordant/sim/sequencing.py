"""Total notification order in a world: a sequencer per topic, and clients of all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from concordant.order.sequencing.client import SequencingClient
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import COORDINATOR, SequencingOptions, sequencer_of
from concordant.order.sequencing.overlap import overlap
from concordant.order.sequencing.replicated import ReachingClient, Replicated
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.sim.scenario import Scenario
from concordant.sim.world import World

if TYPE_CHECKING:
    from concordant.sim.protocols import Layout


def build(
    world: World,
    scenario: Scenario,
    layout: Layout,
    *,
    options: SequencingOptions,
    clients: Callable[..., None],
    stamped: bool = False,
) -> None:
    """Topics are ranked as they are listed, the most popular lowest; `clients` adds clients."""
    shape = scenario.topology
    sequencers = {topic: sequencer_of(topic) for topic in scenario.topics}
    members = layout.members
    add = partial(world.add, service_us=shape.service_us, sync_us=shape.sync_us)
    for topic, address in sequencers.items():
        make = partial(
            TopicSequencer,
            topic,
            sequencers=sequencers,
            subscriptions=members.get(topic, {}),
            stamped_with=_group(scenario, layout, topic) if stamped else None,
            options=options,
        )
        add(address, make)
    if options.survey_us and not stamped:
        add(COORDINATOR, partial(Coordinator, sequencers, options=options))
    clients(SequencingClient, world, scenario, layout, options=options, sequencers=sequencers)


def _group(scenario: Scenario, layout: Layout, topic: str) -> tuple[str, ...]:
    """Who stamps: all, if subscriptions change; else those that some subscriber holds as well."""
    if scenario.workload.subscriptions:
        return scenario.topics
    return tuple(sorted(overlap(layout.subscribes.values(), edge_on=1).get(topic, ())))


REPLICAS = ("r1", "r2", "r3")
"""Nodes, of which each has a replica of every sequencer."""


def build_replicated(
    world: World,
    scenario: Scenario,
    layout: Layout,
    *,
    options: SequencingOptions,
    clients: Callable[..., None],
) -> None:
    """The same, with three replicas of every sequencer and of the coordinator.

    Without leases: when one ends is decided by a clock, and replicas have one each.
    """
    options = msgspec.structs.replace(options, lease_us=0)
    shape = scenario.topology
    sequencers = {topic: sequencer_of(topic) for topic in scenario.topics}
    members = layout.members
    makes: dict[str, Any] = {
        address: partial(
            TopicSequencer,
            topic,
            sequencers=sequencers,
            subscriptions=members.get(topic, {}),
            options=options,
        )
        for topic, address in sequencers.items()
    }
    if options.survey_us:
        makes[COORDINATOR] = partial(Coordinator, sequencers, options=options)
    services = {name: tuple(f"{node}/{name}" for node in REPLICAS) for name in makes}
    for name, make in makes.items():
        for node, address in zip(REPLICAS, services[name], strict=True):
            replica = partial(
                Replicated,
                address,
                make,
                service=name,
                services=services,
                queue_count_max=options.queue_count_max,
            )
            shared = {"service_us": shape.service_us, "sync_us": shape.sync_us}
            world.add(address, replica, node=node, **shared)

    client = partial(ReachingClient, services=services)
    clients(client, world, scenario, layout, options=options, sequencers=sequencers)


def servers(scenario: Scenario) -> tuple[str, ...]:
    """The nodes of the sequencers, and of the coordinator if it surveys them."""
    coordinator = (COORDINATOR,) if scenario.parameters.get("survey_us") else ()
    return (*(sequencer_of(topic) for topic in scenario.topics), *coordinator)

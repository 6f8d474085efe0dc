"""Ordered merging in a world: hosts of mergers, their failure detectors, and clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from concordant.machine.contract import Machine
from concordant.machine.detector import Detector, DetectorOptions
from concordant.machine.view import View
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas
from concordant.order.client import ClientOptions
from concordant.order.merging.client import MergedClient
from concordant.order.merging.host import MergerHost
from concordant.order.merging.options import HOSTS, MergingOptions
from concordant.order.replication import ReplicationOptions
from concordant.sim.scenario import Scenario
from concordant.sim.world import World

if TYPE_CHECKING:
    from concordant.sim.protocols import Layout


def servers(scenario: Scenario) -> tuple[str, ...]:
    """The nodes of the hosts."""
    del scenario
    return HOSTS


def build(
    world: World,
    scenario: Scenario,
    layout: Layout,
    *,
    subscriptions: Sequence[Subscription],
    schemas: Schemas,
    options: ClientOptions,
    detector: DetectorOptions,
    stamped: bool = False,
) -> None:
    """Hosts and clients of a scenario: with subscriptions everybody has all of them, without any
    the topics of the layout are delivered event by event."""
    shape = scenario.topology
    merging = MergingOptions(
        replication=ReplicationOptions(
            beat_us=options.ask_us, elect_us=max(4 * options.ask_us, detector.suspect_us)
        ),
        tick_us=options.repeat_us // 2,
        repeat_us=options.repeat_us,
        idle_us=options.mark_us_max // 2,
        lease_us=20 * options.mark_us_max,
        outbox_count_max=options.outbox_count_max,
        stamped=stamped,
    )
    costs = {"service_us": shape.service_us, "sync_us": shape.sync_us}
    add_hosts(world, HOSTS, options=merging, detector=detector, replaced=(), **costs)
    add_clients(
        world,
        scenario.nodes,
        HOSTS,
        topics={} if subscriptions else layout.subscribes,
        publishes=layout.publishes,
        subscriptions=dict.fromkeys(layout.subscribes, subscriptions),
        schemas=schemas,
        options=merging,
        **costs,
    )


def add_hosts(
    world: World,
    hosts: Sequence[str],
    *,
    options: MergingOptions,
    detector: DetectorOptions | None = None,
    replaced: Collection[str] = (),
    service_us: int = 0,
    sync_us: int = 0,
) -> None:
    """Hosts, each with a failure detector that watches the others if options for it are given.
    Who is in `replaced` when it starts has lost its disk."""
    view = View.of(1, hosts)
    for name in hosts:

        def make(name: str = name) -> Machine:
            chosen = msgspec.structs.replace(options, replaced=tuple(replaced))
            return MergerHost(name, hosts=hosts, options=chosen)

        def watch(name: str = name) -> Machine:
            return Detector(name, view=view, listeners=(name,), options=detector)

        world.add(name, make, service_us=service_us, sync_us=sync_us)
        if detector is not None:
            world.add(f"{name}/detector", watch, node=name)


def add_clients(
    world: World,
    names: Sequence[str],
    hosts: Sequence[str],
    *,
    topics: Mapping[str, Sequence[str]],
    publishes: Mapping[str, Sequence[str]],
    subscriptions: Mapping[str, Sequence[Subscription]],
    schemas: Schemas,
    options: MergingOptions,
    service_us: int = 0,
    sync_us: int = 0,
) -> None:
    """Clients that subscribe topics or subscriptions, by name."""
    for name in names:

        def make(name: str = name) -> Machine:
            return MergedClient(
                name,
                hosts=hosts,
                topics=topics.get(name, ()),
                publishes=publishes.get(name, ()),
                subscriptions=subscriptions.get(name, ()),
                schemas=schemas,
                merging=options,
            )

        world.add(name, make, service_us=service_us, sync_us=sync_us)

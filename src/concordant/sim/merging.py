"""Ordered merging in a world: hosts of mergers, their failure detectors, and clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from concordant.machine.contract import Machine
from concordant.machine.detector import Detector, DetectorOptions
from concordant.machine.view import View
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas
from concordant.order.merging.client import MergedClient
from concordant.order.merging.host import MergerHost
from concordant.order.merging.options import MergingOptions
from concordant.sim.world import World


def add_hosts(
    world: World,
    hosts: Sequence[str],
    *,
    options: MergingOptions,
    detector: DetectorOptions | None = None,
    service_us: int = 0,
    sync_us: int = 0,
) -> None:
    """Hosts, each with a failure detector that watches the others if options for it are given."""
    view = View.of(1, hosts)
    for name in hosts:

        def make(name: str = name) -> Machine:
            return MergerHost(name, hosts=hosts, options=options)

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

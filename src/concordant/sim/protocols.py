"""Which protocols can be simulated, and how one is put into a world.

A protocol here is a name, the level that it promises, and a function that makes its machines. A new
one is a line in `PROTOCOLS`. With a subscription text, every subscriber gets the kernel on top.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import msgspec

from concordant.deliver.correlated import Correlated
from concordant.errors import UsageError
from concordant.language import checked, parse
from concordant.machine.contract import Machine
from concordant.machine.detector import Detector, DetectorOptions
from concordant.machine.view import View
from concordant.model.kind import Kind
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas, Topic, schemas
from concordant.order.broadcast.sequencer import SequencedClient, Sequencer
from concordant.order.client import ClientOptions
from concordant.order.clock import ClockClient
from concordant.order.fifo import FifoClient
from concordant.order.none import NoneClient
from concordant.order.sequencing.messages import SequencingOptions, sequencer_of
from concordant.sim import broadcast, causal_protocol, merging, sequencing
from concordant.sim.popularity import chosen
from concordant.sim.scenario import Scenario
from concordant.sim.world import World

SEQUENCER = "sequencer"


class Layout(msgspec.Struct, frozen=True):
    """Who publishes and subscribes what."""

    publishes: dict[str, tuple[str, ...]]
    subscribes: dict[str, tuple[str, ...]]

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """For each topic, who publishes to it."""
        found: dict[str, list[str]] = {}
        for name, topics in self.publishes.items():
            for topic in topics:
                found.setdefault(topic, []).append(name)
        return {topic: tuple(names) for topic, names in found.items()}

    @property
    def members(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """For each topic, who subscribes to it, with all that they subscribe to."""
        found: dict[str, dict[str, tuple[str, ...]]] = {}
        for name, topics in self.subscribes.items():
            for topic in topics:
                found.setdefault(topic, {})[name] = topics
        return found


def layout_of(scenario: Scenario, seed: str) -> Layout:
    """Topics of publishers by turns, topics of subscribers by popularity."""
    rng = Random(f"{seed}/layout")
    topics, shape = scenario.topics, scenario.topology
    count = shape.topics_per_publisher or len(topics)
    publishes = {
        name: tuple(topics[(number + k) % len(topics)] for k in range(min(count, len(topics))))
        for number, name in enumerate(scenario.publishers)
    }
    wanted = shape.topics_per_subscriber or len(topics)
    subscribes = {
        name: chosen(topics, wanted, shape.popularity, rng) for name in scenario.subscribers
    }
    return Layout(publishes, subscribes)


Build = Callable[[World, Scenario, Layout], None]


class Protocol(msgspec.Struct, frozen=True):
    """A way to order events."""

    level: str
    build: Build
    servers: Callable[[Scenario], tuple[str, ...]] = lambda scenario: ()
    """Nodes beside those of the clients."""


def _clients(
    kind: Callable[..., Machine],
    world: World,
    scenario: Scenario,
    layout: Layout,
    *,
    options: ClientOptions | None = None,
    **others: Any,
) -> None:
    sources = layout.sources
    options = options or options_of(scenario)
    on_top = _correlation(scenario)
    for name in scenario.nodes:

        def make(name: str = name) -> Machine:
            client = kind(
                name,
                topics=layout.subscribes.get(name, ()),
                publishes=layout.publishes.get(name, ()),
                sources=sources,
                options=options,
                **others,
            )
            return on_top(client) if name in layout.subscribes else client

        shape = scenario.topology
        world.add(name, make, service_us=shape.service_us, sync_us=shape.sync_us)


def _sequencer(world: World, scenario: Scenario, layout: Layout) -> None:
    shape = scenario.topology
    options = options_of(scenario)
    world.add(
        SEQUENCER,
        lambda: Sequencer(SEQUENCER, options=options),
        service_us=shape.service_us,
        sync_us=shape.sync_us,
    )
    _clients(SequencedClient, world, scenario, layout, sequencer=SEQUENCER)


def _clock(world: World, scenario: Scenario, layout: Layout) -> None:
    _clients(ClockClient, world, scenario, layout)
    view = View.of(1, layout.publishes)
    options = DetectorOptions(**_known(scenario, DetectorOptions))
    for name in scenario.nodes:
        make = partial(Detector, name, view=view, listeners=(name,), options=options)
        world.add(detector_of(name), make, node=name)


def _sequencing(
    world: World,
    scenario: Scenario,
    layout: Layout,
    *,
    edge_on: int,
    build: Callable[..., None] = sequencing.build,
) -> None:
    chosen = {"edge_on": edge_on, **_known(scenario, SequencingOptions)}
    options = SequencingOptions(**chosen)
    build(world, scenario, layout, options=options, clients=_clients)


def _merging(world: World, scenario: Scenario, layout: Layout, *, stamped: bool = False) -> None:
    detector = DetectorOptions(**_known(scenario, DetectorOptions))
    options = options_of(scenario)
    subscriptions, known = _subscriptions(scenario) if scenario.subscription else ([], {})
    merging.build(
        world,
        scenario,
        layout,
        subscriptions=subscriptions,
        schemas=known,
        options=options,
        detector=detector,
        stamped=stamped,
    )


def _broadcast(world: World, scenario: Scenario, layout: Layout) -> None:
    broadcast.build(world, scenario, layout, options=options_of(scenario), clients=_clients)


def _causal(world: World, scenario: Scenario, layout: Layout, *, total: bool = False) -> None:
    causal_protocol.build(
        world,
        scenario,
        publishes=layout.publishes,
        subscribes=layout.subscribes,
        options=options_of(scenario),
        on_top=_correlation(scenario),
        total=total,
    )


def detector_of(node: str) -> str:
    """The address of a node's failure detector."""
    return f"{node}/detector"


PROTOCOLS: Mapping[str, Protocol] = {
    "none": Protocol("none", partial(_clients, NoneClient)),
    "fifo": Protocol("fifo", partial(_clients, FifoClient)),
    "causal": Protocol("causal", _causal, causal_protocol.servers),
    "gossip": Protocol("total strict", partial(_causal, total=True), causal_protocol.servers),
    "clock": Protocol("total strict", _clock),
    "sequencer": Protocol("total strict", _sequencer, lambda scenario: (SEQUENCER,)),
    "sequencing": Protocol("total", partial(_sequencing, edge_on=2), sequencing.servers),
    "sequencing-strict": Protocol(
        "total strict", partial(_sequencing, edge_on=1), sequencing.servers
    ),
    "sequencing-replicated": Protocol(
        "total",
        partial(_sequencing, edge_on=2, build=sequencing.build_replicated),
        lambda scenario: sequencing.REPLICAS,
    ),
    "stamped": Protocol(
        "total strict",
        partial(_sequencing, edge_on=1, build=partial(sequencing.build, stamped=True)),
        lambda scenario: tuple(map(sequencer_of, scenario.topics)),
    ),
    "merging": Protocol("agreed", _merging, merging.servers),
    "merging-stamped": Protocol("total", partial(_merging, stamped=True), merging.servers),
    **dict.fromkeys(broadcast.KINDS, Protocol("total strict", _broadcast, broadcast.servers)),
}


def protocol_of(scenario: Scenario) -> Protocol:
    """The protocol that a scenario names."""
    found = PROTOCOLS.get(scenario.protocol)
    if found is None:
        raise UsageError(
            f"there is no protocol {scenario.protocol!r}",
            hint=f"the protocols are {', '.join(PROTOCOLS)}",
        )
    return found


def check_nodes(scenario: Scenario) -> None:
    """Refuse faults of nodes that nobody has; which there are, the protocol says."""
    known = (*scenario.nodes, *protocol_of(scenario).servers(scenario))
    for number, fault in enumerate(scenario.faults, 1):
        for node in fault.named:
            if node not in known:
                some = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
                raise UsageError(
                    f"no node is called {node!r}",
                    hint=f"the nodes are {some}",
                    place=f"[faults {number}]",
                )


def options_of(scenario: Scenario) -> ClientOptions:
    """The options of clients, with the scenario's parameters."""
    return ClientOptions(**_known(scenario, ClientOptions))


def _known(scenario: Scenario, options: type[msgspec.Struct]) -> dict[str, Any]:
    """The parameters that are among these options; one that nobody knows is refused."""
    names = {*SequencingOptions.__struct_fields__, *DetectorOptions.__struct_fields__} - {"group"}
    for name in scenario.parameters:
        if name not in names:
            raise UsageError(
                f"there is no parameter {name!r}",
                hint=f"the parameters are {', '.join(sorted(names))}",
                place="[parameters]",
            )
    fields = options.__struct_fields__
    return {name: value for name, value in scenario.parameters.items() if name in fields}


def _correlation(scenario: Scenario) -> Callable[[Machine], Machine]:
    """What turns a client into one that delivers relations."""
    if not scenario.subscription:
        return lambda client: client
    good, known = _subscriptions(scenario)
    time_ordered = scenario.protocol == "clock"
    return lambda client: Correlated(
        client, subscriptions=good, schemas=known, time_ordered=time_ordered
    )


def _subscriptions(scenario: Scenario) -> tuple[list[Subscription], Schemas]:
    """The subscriptions of a scenario's text, and all topics that they may read."""
    topics = schemas(Topic(name, {"kind": Kind.INT}) for name in scenario.topics)
    good, derived = checked(parse(scenario.subscription), topics)
    return list(good), {**topics, **derived}

"""The baselines of total order in a world: sequencers with replicas, and a token ring."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from concordant.machine.contract import Machine
from concordant.order.broadcast.logs import EPOCHS, PAXOS, REPLICAS
from concordant.order.broadcast.replicated import LogKind, ReplicatedClient, ReplicatedSequencer
from concordant.order.broadcast.token import TokenMember, TokenOptions
from concordant.order.client import ClientOptions
from concordant.order.replication import ReplicationOptions
from concordant.sim.scenario import Scenario
from concordant.sim.world import World

if TYPE_CHECKING:
    from concordant.sim.protocols import Layout

KINDS: dict[str, LogKind | None] = {"replicated": EPOCHS, "paxos": PAXOS, "token": None}
"""The baselines by name, with the log of those that have one."""


def servers(scenario: Scenario) -> tuple[str, ...]:
    """The nodes of the replicas."""
    del scenario
    return REPLICAS


def build(
    world: World,
    scenario: Scenario,
    layout: Layout,
    *,
    options: ClientOptions,
    clients: Callable[..., None],
) -> None:
    """Three replicas, or members, and clients of all of them; `clients` adds the clients."""
    shape, kind = scenario.topology, KINDS[scenario.protocol]
    beat_us = options.ask_us
    replication = ReplicationOptions(len(REPLICAS), beat_us, 5 * beat_us)
    token = TokenOptions(again_us=options.repeat_us)
    for name in REPLICAS:

        def make(name: str = name) -> Machine:
            if kind is None:
                return TokenMember(name, ring=REPLICAS, options=options, token=token)
            return ReplicatedSequencer(
                name, replicas=REPLICAS, kind=kind, options=options, replication=replication
            )

        world.add(name, make, service_us=shape.service_us, sync_us=shape.sync_us)
    clients(ReplicatedClient, world, scenario, layout, replicas=REPLICAS)

"""Swarms: many seeds, each with a world and a mix of faults of its own; and the smallest failure.

A seed names everything: topology, network, load, faults. When a run breaks a promise, faults, nodes
and load are taken away as long as it still does, so that what is left can be read. The module
decides what to try; `run` tries it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import msgspec

from concordant.errors import UsageError
from concordant.sim.faults import drawn
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.protocols import check_nodes
from concordant.sim.run import Outcome, simulate, with_chaos
from concordant.sim.scenario import (
    Chaos,
    Scenario,
    SubscriptionChange,
    Topology,
    Workload,
    checked,
)

_PARAMETERS = {
    "ask_us": 8_000,
    "mark_us": 20_000,
    "mark_us_max": 60_000,
    "repeat_us": 30_000,
    "promise_us": 40_000,
    "beat_us": 20_000,
    "suspect_us": 100_000,
}
"""Short waits, so that a run is short and still sees repeats, marks and asks."""


_HOSTED = (
    *("none", "fifo", "causal", "gossip", "clock", "sequencer"),
    *("sequencing", "sequencing-strict", "sequencing-replicated", "stamped"),
)
"""Protocols whose clients publish for guests and replace their logs."""


def random_scenario(protocol: str, seed: int) -> Scenario:
    """A small world with a random mix of faults, all of it from the seed."""
    rng = Random(f"{seed}/swarm")
    clients = rng.randint(0, 2)
    topology = Topology(
        topics=rng.randint(1, 4),
        publishers=rng.randint(0 if clients else 1, 2),
        subscribers=rng.randint(0 if clients > 1 else 2 - clients, 3),
        clients=clients,
        topics_per_publisher=rng.choice((0, 1, 2)),
        topics_per_subscriber=rng.choice((0, 0, 2)),
        sync_us=rng.choice((0, 0, 500, 3_000)),
    )
    low_us = rng.choice((200, 1_000))
    network = NetworkSpec(
        latency=Latency("uniform", low_us, low_us * rng.choice((2, 10, 40))),
        fifo=rng.random() < 0.3,
        bytes_per_s=rng.choice((0, 0, 0, 100_000)),
        dissemination=rng.choice(("direct", "direct", "tree")),
        overlay_nodes=rng.choice((10, 100)),
    )
    scenario = Scenario(
        protocol,
        name=f"swarm {protocol}",
        duration_ms=rng.choice((120, 250)),
        topology=topology,
        network=network,
        workload=Workload(
            rate_per_s=rng.choice((30.0, 80.0)),
            replies=rng.choice((0.0, 0.3)) if clients else 0.0,
        ),
        step_count_max=100_000,
        parameters=_PARAMETERS,
    )
    workload = msgspec.structs.replace(
        scenario.workload, subscriptions=_changes(scenario, rng) if rng.random() < 0.4 else ()
    )
    faults = drawn(scenario, Chaos(), rng)
    if protocol in _HOSTED:  # drawn last: the rest of a seed's scenario does not depend on it
        guests, compact_ms = rng.choice((0, 2)), rng.choice((0, 40))
        workload = msgspec.structs.replace(workload, guests=guests, compact_ms=compact_ms)
    return msgspec.structs.replace(scenario, workload=workload, faults=faults)


def _changes(scenario: Scenario, rng: Random) -> tuple[SubscriptionChange, ...]:
    found = []
    for _ in range(rng.randint(1, 4)):
        topic = (rng.choice(scenario.topics),)
        joins = rng.random() < 0.5
        found.append(
            SubscriptionChange(
                rng.randrange(scenario.duration_ms),
                rng.choice(scenario.subscribers),
                subscribe=topic if joins else (),
                unsubscribe=() if joins else topic,
            )
        )
    return tuple(sorted(found, key=lambda change: change.at_ms))


# --- the smallest failure -------------------------------------------------------------------------

_TRY_COUNT_MAX = 400
"""Runs that a minimisation may take; a scenario that is a little too large is no harm."""


def minimised(
    scenario: Scenario, seed: int, *, run: Callable[[Scenario, int], Outcome] | None = None
) -> Scenario:
    """The smallest scenario found that still breaks the same property with the same seed."""
    attempt = run or (lambda scenario, seed: simulate(scenario, seed=seed))
    smallest = with_chaos(scenario, seed)
    wanted = attempt(smallest, seed).failure
    if wanted is None:
        return smallest
    tries = 0
    again = True
    while again:
        again = False
        for smaller in _smaller(smallest):
            tries += 1
            if tries > _TRY_COUNT_MAX:
                return smallest
            failure = attempt(smaller, seed).failure
            if failure is not None and failure.name == wanted.name:
                smallest, again = smaller, True
                break
    return smallest


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with a little less, the greatest relief first."""
    replace = msgspec.structs.replace
    for number in range(len(scenario.faults)):
        less = scenario.faults[:number] + scenario.faults[number + 1 :]
        yield replace(scenario, faults=less)
    load = scenario.workload
    for number in range(len(load.subscriptions)):
        less_changes = load.subscriptions[:number] + load.subscriptions[number + 1 :]
        yield replace(scenario, workload=replace(load, subscriptions=less_changes))
    if load.replies:
        yield replace(scenario, workload=replace(load, replies=0.0))
    shape = scenario.topology
    for name in ("subscribers", "publishers", "clients", "topics"):
        if getattr(shape, name):
            smaller = replace(scenario, topology=replace(shape, **{name: getattr(shape, name) - 1}))
            if _possible(smaller):
                yield smaller
    if scenario.network.bytes_per_s or scenario.network.dissemination == "tree":
        network = replace(scenario.network, bytes_per_s=0, dissemination="direct")
        yield replace(scenario, network=network)
    if shape.sync_us:
        yield replace(scenario, topology=replace(shape, sync_us=0))
    if scenario.duration_ms > 20:
        yield replace(scenario, duration_ms=scenario.duration_ms * 3 // 4)
    if load.rate_per_s > 10:
        yield replace(scenario, workload=replace(load, rate_per_s=load.rate_per_s / 2))


def _possible(scenario: Scenario) -> bool:
    try:
        checked(scenario, place="")
        check_nodes(scenario)
    except UsageError:
        return False
    return True

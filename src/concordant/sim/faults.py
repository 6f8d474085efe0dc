"""Faults: what goes wrong, when, and how it ends.

Each fault is scheduled in a world at its beginning and at its end. `heal` ends all of them: the
network is sound, every node is up, and what is owed has to arrive. The kinds are a table, so that
what can go wrong can be read in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from concordant.machine.detector import Suspected, Trusted
from concordant.machine.inputs import Received
from concordant.sim.protocols import detector_of, protocol_of
from concordant.sim.scenario import Chaos, Fault, FaultKind, Scenario
from concordant.sim.world import World


def schedule(world: World, faults: tuple[Fault, ...]) -> None:
    """Let the faults happen at their times."""
    for fault in faults:
        begin, end = _KINDS[fault.kind]
        world.call(fault.at_ms * 1_000, partial(begin, world, fault))
        world.call((fault.at_ms + fault.for_ms) * 1_000, partial(end, world, fault))


def heal(world: World) -> None:
    """End everything that is wrong; clocks stay as wrong as they are."""
    trouble = world.network.trouble
    trouble.loss = trouble.duplication = trouble.reordering = 0.0
    trouble.parts = {}
    trouble.revise()
    for name, node in world.nodes.items():
        node.doomed = ""
        node.service_us = node.usual_service_us
        node.revise()
        world.resume(name)
        world.restart(name)


# --- the network ----------------------------------------------------------------------------------


def _trouble(name: str, world: World, fault: Fault) -> None:
    trouble = world.network.trouble
    setattr(trouble, name, fault.share)
    trouble.reorder_us = fault.delay_ms * 1_000
    trouble.revise()


def _sound(name: str, world: World, fault: Fault) -> None:
    del fault
    setattr(world.network.trouble, name, 0.0)
    world.network.trouble.revise()


def _part(world: World, fault: Fault) -> None:
    world.network.trouble.parts = dict.fromkeys(fault.nodes, 1)
    world.network.trouble.revise()


def _join(world: World, fault: Fault) -> None:
    del fault
    world.network.trouble.parts = {}
    world.network.trouble.revise()


# --- nodes ----------------------------------------------------------------------------------------


def _doom(world: World, fault: Fault) -> None:
    world.nodes[fault.node].doomed = fault.kind


def _slow(world: World, fault: Fault) -> None:
    node = world.nodes[fault.node]
    node.service_us = fault.delay_ms * 1_000
    node.revise()
    world.count_fault("slow")


def _quick(world: World, fault: Fault) -> None:
    node = world.nodes[fault.node]
    node.service_us = node.usual_service_us
    node.revise()


def _skew(world: World, fault: Fault) -> None:
    world.nodes[fault.node].clock_offset_us += fault.offset_ms * 1_000
    world.count_fault("skew")


def _suspect(world: World, fault: Fault) -> None:
    if detector_of(fault.node) in world.places:
        world.count_fault("suspicion")
        message = Suspected((fault.suspect,))
        world.inject(fault.node, Received(detector_of(fault.node), (message,)))


def _trust(world: World, fault: Fault) -> None:
    if detector_of(fault.node) in world.places:
        message = Trusted((fault.suspect,))
        world.inject(fault.node, Received(detector_of(fault.node), (message,)))


def _nothing(world: World, fault: Fault) -> None:
    """A fault that does not end."""


def _on_node(what: Callable[[World, str], None]) -> Callable[[World, Fault], None]:
    return lambda world, fault: what(world, fault.node)


_Act = Callable[[World, Fault], None]

_KINDS: dict[FaultKind, tuple[_Act, _Act]] = {
    "loss": (partial(_trouble, "loss"), partial(_sound, "loss")),
    "duplication": (partial(_trouble, "duplication"), partial(_sound, "duplication")),
    "reordering": (partial(_trouble, "reordering"), partial(_sound, "reordering")),
    "partition": (_part, _join),
    "crash": (_on_node(World.crash), _on_node(World.restart)),
    "pause": (_on_node(World.pause), _on_node(World.resume)),
    "slow": (_slow, _quick),
    "lost-writes": (_doom, _on_node(World.restart)),
    "failing-writes": (_doom, _on_node(World.restart)),
    "skew": (_skew, _nothing),
    "suspicion": (_suspect, _trust),
}
"""How each kind begins and ends."""


# --- chance ---------------------------------------------------------------------------------------


def drawn(scenario: Scenario, chaos: Chaos, rng: Random) -> tuple[Fault, ...]:
    """Faults of some kinds, at random times, on random nodes."""
    found: list[Fault] = []
    nodes = [*scenario.nodes, *protocol_of(scenario).servers(scenario)]
    length = scenario.duration_ms
    for kind in chaos.kinds:
        if rng.random() >= chaos.chance:
            continue
        at_ms = rng.randrange(length * 3 // 4 + 1)
        found.append(
            Fault(
                kind,
                at_ms,
                rng.randint(1, max(1, length // 2)),
                node=rng.choice(scenario.subscribers if kind == "suspicion" else nodes),
                nodes=tuple(rng.sample(nodes, rng.randint(1, max(1, len(nodes) - 1)))),
                share=rng.choice((0.05, 0.2, 0.5)),
                delay_ms=rng.choice((1, 5, 20)),
                offset_ms=rng.choice((-80, -20, 20, 80)),
                suspect=rng.choice(scenario.publishers),
            )
        )
    return tuple(found)

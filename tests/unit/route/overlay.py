"""Small overlays in the simulator, with or without trouble on the links."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from concordant.check.overlay import Placed, Seen, Tree
from concordant.route.broker import Broker
from concordant.route.client import Client
from concordant.route.link import LinkOptions, Reliable
from concordant.route.packet import WIRE
from concordant.route.router import Router
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.world import World

QUICK = LinkOptions(acknowledge_us=2_000, repeat_us=20_000, repeat_us_max=80_000, log_count_max=40)


def random_tree(rng: Random, brokers: int, clients: Sequence[str]) -> Tree:
    names = [f"B{n}" for n in range(1, brokers + 1)]
    neighbours: dict[str, list[str]] = {name: [] for name in names}
    for number, name in enumerate(names[1:], 1):
        other = names[rng.randrange(number)]
        neighbours[name].append(other)
        neighbours[other].append(name)
    return Tree(
        {name: tuple(sorted(others)) for name, others in neighbours.items()},
        {client: rng.choice(names) for client in clients},
    )


class Overlay:
    """Brokers and clients in a world."""

    def __init__(self, tree: Tree, *, seed: int, reliable: bool, sync_us: int = 0) -> None:
        self.tree = tree
        spec = NetworkSpec(Latency("uniform", 500, 20_000), fifo=not reliable)
        self.world = World(seed=str(seed), network=spec, step_count_max=200_000)
        self.reliable = reliable
        for name, neighbours in tree.neighbours.items():

            def broker(name: str = name, near: tuple[str, ...] = neighbours):
                one = Broker(name, neighbours=near)
                if not reliable:
                    return one
                return Reliable(one, wire=WIRE, brokers=near, options=QUICK)

            self.world.add(name, broker, sync_us=sync_us)
        for name, edge in tree.edges.items():

            def client(name: str = name, edge: str = edge):
                one = Client(name, broker=edge)
                if not reliable:
                    return one
                return Reliable(one, wire=WIRE, client=True, options=QUICK)

            self.world.add(name, client, sync_us=sync_us)
        self.world.start()
        self.world.run(1_000_000)

    def core(self, name: str):
        machine = self.world.places[name].machine
        return machine.inner if isinstance(machine, Reliable) else machine

    def rest(self) -> None:
        """Let everything arrive."""
        for _ in range(200):
            self.world.run(self.world.now + 500_000)
            if not self.world.held_count:
                self.world.run(self.world.now + 500_000)
                return
        raise AssertionError("the overlay does not come to rest")

    def placed(self, kind: str) -> list[Placed]:
        """What the clients think they have."""
        return [
            Placed(entry.id, client, entry.filter)
            for client in self.tree.edges
            for entry in getattr(self.core(client), kind).values()
        ]

    def seen(self) -> dict[str, Seen]:
        return {name: seen_of(self.core(name).router) for name in self.tree.neighbours}


def seen_of(router: Router) -> Seen:
    tables = router.tables
    return Seen(
        {id: one.hop for id, one in tables.advertisements.items()},
        {id: (one.hop, tuple(sorted(one.sent))) for id, one in tables.subscriptions.items()},
    )

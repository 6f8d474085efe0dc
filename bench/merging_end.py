"""One process of the orders over TCP: a server, or a client that holds some of the subscribers.

It hosts the machines that nodes host (`net.roles`), those of one order, without disk. A client
tells how far the last of its subscribers is, so that no more is under way than a window, and gives
latencies when asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import process_time, time_ns
from typing import Any

from bench.merging_loads import BenchLoad, exact
from bench.network_rig import over_tcp
from concordant.deliver.correlated import Correlated
from concordant.machine.effects import Delivery, Note
from concordant.machine.requests import Subscribe
from concordant.memory import as_node
from concordant.model.subscription import Subscription
from concordant.net.carrier import MeshCarrier
from concordant.net.host import Place
from concordant.net.roles import STRATEGIES, Setting, part_of, publisher_of

SERVERS = ("n1", "n2", "n3")
CLIENTS = ("c1", "c2")
PUBLISHER = "p"
ORDERS = {
    "merging": "merging",
    "sequencer": "sequencer",
    "replicated sequencer": "replicated",
    "multi-Paxos": "paxos",
    "token ring": "token",
}
"""Strategies by what they are called on the page."""
EVENTS, RELATIONS = "events", "relations"
"""What subscribers get: topics as they are, or what they ask for."""
BEGUN, TELL = b"begun\n", b"tell\n"
_TOLD_S = 0.002


def setting(node: str, name: str) -> Setting:
    """Parts that exist once are spread over the servers."""
    bare = Setting(node, SERVERS)
    single = [part for part in STRATEGIES[name].parts(bare) if not part.everywhere]
    placed = {
        f"{name}/{part.name}": part_of(server, name, part.name)
        for part, server in zip(single, SERVERS, strict=False)
    }
    return Setting(node, SERVERS, placed)


def host(
    carrier: MeshCarrier,
    address: str,
    machine: Any,
    name: str,
    *,
    take: Any = None,
    hear: Any = None,
) -> Place:
    """A machine of a strategy at work."""
    strategy = STRATEGIES[name]
    scope = f"{strategy.feed}:"
    records = strategy.records
    place = Place(address, machine, carrier, take=take, hear=hear, records=records, scope=scope)
    carrier.add(place)
    return place


def publisher(carrier: MeshCarrier, name: str) -> Place:
    """The machine that publishes for a strategy."""
    strategy = STRATEGIES[name]
    address = publisher_of(PUBLISHER, strategy.feed)
    return host(carrier, address, strategy.publisher(setting(PUBLISHER, name), address), name)


class Count:
    """What the subscribers here got."""

    def __init__(
        self, work: BenchLoad, mine: Sequence[Subscription], *, plain: bool, whole: bool
    ) -> None:
        """`whole`: each conjunction begins by itself, and not each topic."""
        self.taken = [0] * len(mine)
        self.latencies_us: list[int] = []
        self.more: Callable[[], None] = lambda: None
        self._whole, self._every = whole, work.every
        self._each = [len(one.topics if plain else one.conjunctions) for one in mine]
        """Deliveries for one event of every topic, if all pass."""
        self._awaited = sum(len(one.conjunctions if whole else one.topics) for one in mine)
        self._begun: set[tuple[int, tuple[str, ...]]] = set()

    def take(self, number: int, deliveries: Sequence[Delivery]) -> None:
        self.taken[number] += len(deliveries)
        newest = max(event.time for event in deliveries[-1].events)
        self.latencies_us.append(time_ns() // 1_000 - newest)
        self.more()

    def hear(self, number: int, note: Note) -> None:
        if note.step == "subscribe":
            begun = [note.topics] if self._whole else [(topic,) for topic in note.topics]
            self._begun.update((number, one) for one in begun)

    @property
    def begun(self) -> bool:
        """Every subscriber has begun with everything."""
        return len(self._begun) == self._awaited

    @property
    def least(self) -> int:
        """Events of each of its topics that the last of the subscribers has done with."""
        taken = zip(self.taken, self._each, strict=True)
        return min(count * self._every // each for count, each in taken)


def _serve(node: str, carrier: MeshCarrier, name: str) -> None:
    told = setting(node, name)
    for part in STRATEGIES[name].parts(told):
        address = part_of(node, name, part.name)
        if part.everywhere or address in told.placed.values():
            host(carrier, address, part.make(told, address), name)


def _subscribe(
    node: str, carrier: MeshCarrier, name: str, work: BenchLoad, *, plain: bool
) -> Count:
    """As many of a load's subscribers as each client has."""
    told, schemas, strategy = setting(node, name), work.schemas, STRATEGIES[name]
    mine = work.subscriptions()[CLIENTS.index(node) :: len(CLIENTS)]
    whole = strategy.patterns is not None and not plain
    count = Count(work, mine, plain=plain, whole=whole)
    for number, one in enumerate(mine):
        address = f"{node}/{name}/s{number}"
        heard: Any = {"take": partial(count.take, number), "hear": partial(count.hear, number)}
        if strategy.patterns is not None and not plain:
            machine = strategy.patterns(told, address, [one], schemas)
            host(carrier, address, machine, name, **heard)
            continue
        machine = strategy.subscriber(told, address)
        if not plain:
            machine = Correlated(machine, subscriptions=[one], schemas=schemas, time_ordered=False)
        host(carrier, address, machine, name, **heard).command(Subscribe(one.topics))
    return count


async def main(node: str, ports: str, name: str, load: str, subscribers: str, kind: str) -> None:
    async with over_tcp(node, json.loads(ports)) as carrier:
        if node in SERVERS:
            _serve(node, carrier, name)
            await _answer(None)
        else:
            work = exact(load, int(subscribers))
            await _answer(_subscribe(node, carrier, name, work, plain=kind == EVENTS))


async def _answer(count: Count | None) -> None:
    """Say what is asked, and how far the subscribers are when they get on."""
    loop = asyncio.get_running_loop()
    telling = False

    def tell() -> None:
        nonlocal telling
        telling = False
        assert count is not None
        _say({"least": count.least})

    def more() -> None:
        nonlocal telling
        if not telling:
            telling = True
            loop.call_later(_TOLD_S, tell)

    if count is not None:
        count.more = more
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        latencies: list[int] = []
        if count is not None:
            while line == BEGUN and not count.begun:
                await asyncio.sleep(0.01)
            latencies, count.latencies_us = count.latencies_us, []
        _say({"cpu_s": process_time(), "latencies_us": latencies})


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    as_node()
    asyncio.run(main(*sys.argv[1:]))

"""Ordered merging beside the baselines: what one delivered event costs the busiest process.

Machines run in the simulator. Then each is given again what it was given there, one input after
the other, as a process that has a core of its own, and what it really takes on this machine is
charged to it: handling (measured CPU time), messages as bytes and back by the codec of the links,
one system call per message and destination. A delivered event is one that a subscriber subscribed
to; the rest that a broadcast brings it is no delivery. What disks take is left out for all alike.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from time import process_time_ns
from typing import Any

from bench.merging_loads import BenchLoad, load
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.deliver.correlated import Correlated
from concordant.errors import InvariantViolation
from concordant.machine.contract import Machine
from concordant.machine.effects import Disseminate, Effect, Send, SendAll
from concordant.machine.inputs import Input, Received
from concordant.machine.requests import Publish
from concordant.net.roles import WINDOW_COUNT
from concordant.order import replication
from concordant.order.broadcast import paxos, token
from concordant.order.broadcast.logs import EPOCHS, PAXOS, REPLICAS
from concordant.order.broadcast.replicated import Leader, ReplicatedClient, ReplicatedSequencer
from concordant.order.broadcast.sequencer import Acknowledged, SequencedClient, Sequencer
from concordant.order.broadcast.token import TokenMember
from concordant.order.client import ClientOptions
from concordant.order.merging import messages as merging
from concordant.order.merging.client import MergedClient
from concordant.order.merging.host import MergerHost
from concordant.order.merging.options import MergingOptions
from concordant.order.replication import ReplicationOptions
from concordant.order.streams import Ask, Gone, Here, Mark, Numbered, Where
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.recorder import Recorder
from concordant.sim.world import World
from concordant.wire.messages import Codec

SECOND = 1_000_000
BATCH = 10
"""Events that a publisher hands over at once."""
TURN_COUNT = 3
"""How often each process is measured."""
_KINDS = (
    *(Numbered, Mark, Ask, Gone, Where, Here, Acknowledged, Leader),
    *(*replication.MESSAGES, *paxos.MESSAGES, *token.MESSAGES),
    *merging.MESSAGES,
)
_PATIENT = ClientOptions(
    ask_us=5 * SECOND, mark_us=5 * SECOND, mark_us_max=60 * SECOND, repeat_us=10 * SECOND
)
_REPLICATION = ReplicationOptions(beat_us=SECOND, elect_us=60 * SECOND, entry_count_max=10**9)
_MERGING = MergingOptions(
    replication=_REPLICATION,
    tick_us=SECOND // 2,
    repeat_us=10 * SECOND,
    idle_us=20 * SECOND,
    lease_us=600 * SECOND,
    window_count=WINDOW_COUNT,
)


class Recorded:
    """A machine in the simulated world, and everything that it is given once a meter says so."""

    def __init__(self, meter: Meter, name: str, make: Callable[[], Machine]) -> None:
        self.name, self.make, self._machine = name, make, make()
        self.inputs: list[tuple[int, Input]] = []
        self.before: bytes | None = None
        meter.machines[name] = self

    held_count = property(lambda self: self._machine.held_count)

    def begin(self) -> None:
        self.before, self.inputs = self._machine.snapshot(), []

    def handle(self, now: int, given: Input) -> Sequence[Effect]:
        if self.before is not None:
            self.inputs.append((now, given))
        return self._machine.handle(now, given)

    def snapshot(self) -> bytes:
        return self._machine.snapshot()

    def restore(self, data: bytes) -> None:
        self._machine.restore(data)


class Meter:
    """What each process takes, in nanoseconds: what it was given is given to it again, one input
    after the other, as if it had a core and its caches for itself."""

    def __init__(self) -> None:
        self.machines: dict[str, Recorded] = {}
        self.spent: dict[str, int] = {}
        self.handled: dict[str, int] = {}
        """What of it was handling: neither bytes nor system calls."""
        self.world: World | None = None
        self._codec = Codec(_KINDS)
        self._near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def begin(self) -> None:
        """From here on it counts."""
        for one in self.machines.values():
            one.begin()

    def measure(self) -> None:
        """The median of some turns; between two of a process all others have theirs."""
        turns: dict[str, list[tuple[int, int]]] = {name: [] for name in self.machines}
        for _ in range(TURN_COUNT):
            for name, one in self.machines.items():
                turns[name].append(self._turn(one))
        for name, found in turns.items():
            self.spent[name], self.handled[name] = sorted(found)[TURN_COUNT // 2]

    def _turn(self, one: Recorded) -> tuple[int, int]:
        machine = one.make()
        assert one.before is not None
        machine.restore(one.before)
        spent = handled = 0
        for now, given in one.inputs:
            if isinstance(given, Received) and given.source != one.name:
                spent += self._arrived(given)
            start = process_time_ns()
            effects = machine.handle(now, given)
            taken = process_time_ns() - start
            spent, handled = spent + taken, handled + taken
            spent += sum(self._left(one.name, effect) for effect in effects)
        return spent, handled

    def _arrived(self, given: Received) -> int:
        body = self._codec.encode(given.messages)
        start = process_time_ns()
        self._codec.decode(body)
        return process_time_ns() - start

    def _left(self, name: str, effect: Effect) -> int:
        if not isinstance(effect, Send | SendAll | Disseminate):
            return 0
        count = 1
        if isinstance(effect, Disseminate):
            assert self.world is not None
            count = len(self.world._listeners.get(effect.topic, ()))
        elif isinstance(effect, SendAll):
            count = len(effect.to)
        elif effect.to == name:
            return 0
        start = process_time_ns()
        body = self._codec.encode(effect.messages)
        spent = process_time_ns() - start
        packet = body[:60_000]
        for _ in range(count):
            start = process_time_ns()
            self._near.send(packet)
            spent += process_time_ns() - start
            self._far.recv(65_536)
        return spent

    def close(self) -> None:
        self._near.close()
        self._far.close()


Build = Callable[[World, Meter, BenchLoad, int], None]


def _servers(kind: Callable[[str], Machine], names: Sequence[str]) -> Build:
    """Servers of a broadcast, and clients that correlate what it brings."""

    def build(world: World, meter: Meter, work: BenchLoad, hosts: int) -> None:
        del hosts
        for name in names:
            world.add(name, partial(_recorded, meter, kind, name))
        known = work.schemas
        chosen: dict[str, Any] = {"sequencer": names[0]} if len(names) == 1 else {"replicas": names}
        client = SequencedClient if len(names) == 1 else ReplicatedClient

        def subscriber(name: str, one: Any) -> Machine:
            inner = client(name, topics=one.topics, options=_PATIENT, **chosen)
            return Correlated(inner, subscriptions=[one], schemas=known, time_ordered=False)

        for number, one in enumerate(work.subscriptions()):
            name = f"s{number}"
            world.add(name, partial(_recorded, meter, partial(subscriber, one=one), name))
        for topic in work.topics:
            name = f"p{topic}"
            publisher = partial(client, publishes=(topic,), options=_PATIENT, **chosen)
            world.add(name, partial(_recorded, meter, publisher, name))

    return build


def _merged(world: World, meter: Meter, work: BenchLoad, hosts: int) -> None:
    names = tuple(f"m{number}" for number in range(1, hosts + 1))
    for name in names:
        host = partial(MergerHost, hosts=names, options=_MERGING)
        world.add(name, partial(_recorded, meter, host, name))
    known = work.schemas
    for number, one in enumerate(work.subscriptions()):
        name = f"s{number}"
        subscriber = partial(
            MergedClient, hosts=names, subscriptions=[one], schemas=known, merging=_MERGING
        )
        world.add(name, partial(_recorded, meter, subscriber, name))
    for topic in work.topics:
        name = f"p{topic}"
        publisher = partial(MergedClient, hosts=names, publishes=(topic,), merging=_MERGING)
        world.add(name, partial(_recorded, meter, publisher, name))


def _recorded(meter: Meter, make: Callable[[str], Machine], name: str) -> Machine:
    return Recorded(meter, name, partial(make, name))


def _replica(name: str, kind: Any) -> Machine:
    return ReplicatedSequencer(
        name, replicas=REPLICAS, kind=kind, options=_PATIENT, replication=_REPLICATION
    )


ORDERS: dict[str, Build] = {
    "merging": _merged,
    "sequencer": _servers(lambda name: Sequencer(name, options=_PATIENT), ("sequencer",)),
    "replicated sequencer": _servers(lambda name: _replica(name, EPOCHS), REPLICAS),
    "multi-Paxos": _servers(lambda name: _replica(name, PAXOS), REPLICAS),
    "token ring": _servers(
        lambda name: TokenMember(name, ring=REPLICAS, options=_PATIENT), REPLICAS
    ),
}


class Cost:
    """What came of one order under one load."""

    def __init__(self, order: str, work: BenchLoad, *, events: int, hosts: int) -> None:
        self.meter = Meter()
        recorder = Recorder("bench")
        world = World(
            seed="1", network=NetworkSpec(Latency("constant", 200, 200)), recorder=recorder
        )
        self.meter.world = world
        ORDERS[order](world, self.meter, work, hosts)
        gc.disable()
        try:
            world.start()
            world.run(10 * SECOND)  # everybody has joined
            self.meter.begin()
            published = self._publish(world, work, events)
            world.run(world.now + SECOND)  # the last have arrived; beats of idle servers no longer
            self.meter.measure()
        finally:
            gc.enable()
            self.meter.close()
        wanted = [one.topics for one in work.subscriptions()]
        self.delivered = sum(published[topic] for topics in wanted for topic in topics)
        self.relations = sum(row.step == "deliver" for row in recorder.rows())
        self.busiest = max(self.meter.spent, key=lambda name: self.meter.spent[name])
        self.ns = self.meter.spent[self.busiest] / self.delivered
        self.handling = self.meter.handled[self.busiest] / self.meter.spent[self.busiest]
        self.total_ns = sum(self.meter.spent.values()) / self.delivered
        servers = [name for name in self.meter.spent if name[0] not in "sp" or name == "sequencer"]
        self.server_ns = max(self.meter.spent[name] for name in servers) / self.delivered

    def _publish(self, world: World, work: BenchLoad, events: int) -> dict[str, int]:
        rng = Random("events")
        published = dict.fromkeys(work.topics, 0)
        start = world.now
        for number in range(events // BATCH):
            topic = work.topics[number % len(work.topics)]
            world.run(start + number * 500)
            requests = [
                Publish(topic, {name: rng.randint(0, 1_000) for name in "abc"})
                for _ in range(BATCH)
            ]
            world.command(f"p{topic}", *requests)
            published[topic] += BATCH
        return published


HOSTS_PER_MERGER = 6
"""Two for each of its three replicas: hashing puts some of them on one host."""
_WANTED = {"market": 4.82, "C": 4.12}


def run(size: Size) -> Section:
    """Scenarios A to D and the market, every order in turn."""
    full = size.name == "full"
    events = 460 if full else 230
    rows: list[Row] = []
    goals: list[Goal] = []
    for name in ("A", "B", "C", "D", "market"):
        best = 0.0
        for subscribers in (10, 100, 600) if full else (60,):
            work = load(name, subscribers)
            hosts = HOSTS_PER_MERGER * len(work.mergers)
            costs = {order: Cost(order, work, events=events, hosts=hosts) for order in ORDERS}
            best = max(best, costs["sequencer"].ns / costs["merging"].ns)
            if name == "market" and costs["merging"].relations != costs["sequencer"].relations:
                raise InvariantViolation("the orders found different numbers of relations")
            for order, cost in costs.items():
                rows.append(
                    {
                        "load": name,
                        "traders": subscribers if name == "market" else None,
                        "subscribers": subscribers,
                        "order": order,
                        "busiest": cost.busiest,
                        "ns": cost.ns,
                        "handling": cost.handling,
                        "ratio": costs["sequencer"].ns / cost.ns,
                        "server": costs["sequencer"].server_ns / cost.server_ns,
                        "total": cost.total_ns,
                        "relations": cost.relations,
                    }
                )
        if name in _WANTED:
            what = f"{name}: sequencer / merging, at best"
            goals.append(Goal(what, f"≥ {_WANTED[name]}x", f"{best:.2f}x"))
    return Section(
        "merging",
        "Cost per delivered event of the busiest process",
        f"{events:,} events in batches of {BATCH}; nobody gathers. Mergers have three replicas and "
        f"{HOSTS_PER_MERGER} hosts each, consumers give credit as those of nodes do. `ns` is CPU "
        "time of the busiest process per event that "
        "some subscriber had subscribed to; `ratio` is the sequencer's divided by it, `servers` "
        "the same without clients, `all` what all processes took together. Simulated, with service "
        "times measured here; disks are left out. In the market all orders find the same number of "
        "relations; elsewhere predicates and full queues make it depend on the interleaving. A "
        "sequencer does little but send (*of it handling* is small), a packet to every subscriber "
        "for every batch; a replica of a merger sends to a third of the subscribers of one pair.",
        (
            Column("load", "load"),
            Column("subscribers", "subscribers", "count"),
            Column("order", "order"),
            Column("busiest", "busiest"),
            Column("ns", "ns", "ns"),
            Column("handling", "of it handling", "percent"),
            Column("ratio", "ratio", "ratio"),
            Column("server", "servers", "ratio"),
            Column("total", "all", "ns"),
            Column("relations", "relations", "count"),
        ),
        rows,
        goals,
        Plot("traders", "ns", "traders on the market", "ns per delivered event", "order"),
    )

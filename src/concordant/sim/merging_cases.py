"""Cases of ordered merging: who subscribes which conjunctions when, what goes wrong, and a verdict.

A case is data drawn from a seed and a mode. Playing it gives a history and the durable logs of all
machines; `merging_oracle` judges both. Subscriptions are named by what they ask, so that the same
name means the same conjunction at every subscriber.
"""

from __future__ import annotations

from functools import cache, partial
from random import Random

import msgspec

from concordant.language import checked, parse
from concordant.machine.detector import DetectorOptions
from concordant.machine.inputs import Request
from concordant.machine.requests import Publish
from concordant.model.kind import Kind
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas, Topic, schemas
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.records import Correlate, Drop
from concordant.order.replication import ReplicationOptions
from concordant.sim import faults
from concordant.sim.merging import add_clients, add_hosts
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.recorder import Recorder
from concordant.sim.scenario import Fault, FaultKind
from concordant.sim.world import Watch, World

TOPICS = ("A", "B", "C", "D")
CONJUNCTIONS = (
    "A and B",
    "A.kind = B.kind",
    "A.kind <= 2 and B",
    "A and B and C",
    "A.kind < C.kind",
    "A and B and D.kind >= 2",
    "C and D",
    "A[1].kind <= 1 and A[2].kind >= 2 and B",
    "B and C match recent consume matched",
    "A.kind >= 3 and B",
)
MODES = ("static", "changing", "crowded", "filtering", "crashing", "storm", "stamped", "replaced")
"""`changing`: subscriptions at run time. `crowded`: many join one conjunction. `filtering`: filters
of one merger change all the time. `crashing` and `storm`: changing, with replicas that crash, the
second with many crashes and many joiners. `stamped`: crashing, with mergers that take events by the
stamps of their roots, which promises total order. `replaced`: crashing, and a host loses its disk
for good."""

_FILTERED = (0, 2, 7, 9)
"""Conjunctions of one merger with different filters."""

_CRASHING = ("crashing", "storm", "stamped", "replaced")
_OF_SUBSCRIBERS: tuple[FaultKind, ...] = ("crash", "pause", "lost-writes")
_OF_HOSTS: tuple[FaultKind, ...] = ("crash", "crash", "pause", "lost-writes", "failing-writes")


class Joins(msgspec.Struct, frozen=True):
    """A client subscribes, or stops."""

    at_us: int
    client: str
    conjunction: int
    leaves: bool = False


class Case(msgspec.Struct, frozen=True):
    """What is played."""

    seed: int
    mode: str
    replicas: int
    hosts: tuple[str, ...]
    subscribes: dict[str, tuple[int, ...]]
    """Conjunctions of each client from the start."""
    publishers: tuple[str, ...]
    events: tuple[tuple[int, str, str, int], ...]
    """When, who, topic, kind."""
    joins: tuple[Joins, ...]
    faults: tuple[Fault, ...]
    network: NetworkSpec
    options: MergingOptions
    duration_us: int
    sync_us: int = 0
    replaced: tuple[int, str] = (0, "")
    """When which host loses its disk; no name: none."""
    heal_us: int = 30_000_000
    """At most so long may it take until everything owed has arrived."""


class Played(msgspec.Struct, frozen=True):
    """What came of it."""

    case: Case
    world: World
    recorder: Recorder
    rested: bool
    broken: str


@cache
def known_topics() -> Schemas:
    return schemas(Topic(name, {"kind": Kind.INT}) for name in TOPICS)


@cache
def subscription(number: int) -> Subscription:
    """The subscription of a conjunction, named by its number."""
    (good,), _ = checked(parse(f"q{number}: {CONJUNCTIONS[number]}"), known_topics())
    return good


def random_case(seed: int, mode: str) -> Case:
    """A case of a mode, all of it from the seed."""
    rng = Random(f"{seed}/{mode}/merging")
    replicas = 3 if mode in ("crashing", "storm", "replaced") or rng.random() < 0.3 else 1
    stamped = mode == "stamped"
    hosts = tuple(f"m{n}" for n in range(1, rng.randint(replicas, replicas + 2) + 1))
    pool = rng.sample(range(len(CONJUNCTIONS)), rng.randint(1, 4))
    if mode in ("crowded", "storm"):
        pool = pool[:2]
    elif mode == "filtering":
        pool = list(_FILTERED)
    clients = tuple(f"s{n}" for n in range(1, rng.randint(2, 5) + 1))
    subscribes = {
        name: tuple(sorted(rng.sample(pool, rng.randint(1, min(2, len(pool)))))) for name in clients
    }
    duration_us = 300_000
    joins: list[Joins] = []
    if mode != "static":
        late = rng.sample(clients, rng.randint(0, len(clients) - 1))
        subscribes.update(dict.fromkeys(late, ()))
        for _ in range(rng.randint(8, 20) if mode == "filtering" else rng.randint(2, 10)):
            leaves = rng.random() < 0.4
            at_us = rng.randrange(duration_us)
            joins.append(Joins(at_us, rng.choice(clients), rng.choice(pool), leaves))
        joins.sort(key=lambda one: one.at_us)
    publishers = tuple(f"p{n}" for n in range(1, rng.randint(1, 3) + 1))
    count = 40 if mode == "filtering" else rng.randint(6, 40)
    topics = TOPICS[:2] if mode == "filtering" else TOPICS
    events = sorted(
        (rng.randrange(duration_us), rng.choice(publishers), rng.choice(topics), rng.randint(1, 3))
        for _ in range(count)
    )
    low_us = rng.choice((200, 1_000))
    network = NetworkSpec(
        latency=Latency("uniform", low_us, low_us * rng.choice((2, 10, 40))),
        fifo=rng.random() < 0.2,
    )
    lease_us = rng.choice((120_000, 400_000)) if mode != "static" else 10_000_000
    options = MergingOptions(
        replication=ReplicationOptions(
            replica_count=replicas,
            beat_us=25_000,
            elect_us=100_000,
            entry_count_max=rng.choice((10, 10_000)) if mode == "storm" else 10_000,
        ),
        tick_us=15_000,
        repeat_us=30_000,
        idle_us=60_000,
        lease_us=lease_us,
        recut_us=60_000,
        window_count=rng.choice((2, 6, 100)),
        batch_count_max=rng.choice((1, 3, 100)),
        lag_count_max=rng.choice((4, 1_000)),
        hinted=rng.random() < 0.6,
        ahead_us=rng.choice((0, 5_000)),
        stamped=stamped,
        gather_us=rng.choice((0, 500, 1_500, 3_000)),
    )
    case = Case(
        seed,
        mode,
        replicas,
        hosts,
        subscribes,
        publishers,
        tuple(events),
        tuple(joins),
        (),
        network,
        options,
        duration_us,
        rng.choice((0, 0, 500, 3_000)),
    )
    case = msgspec.structs.replace(case, faults=tuple(_faults(case, rng)))
    if mode == "replaced":
        lost = (rng.randrange(duration_us // 6, duration_us), rng.choice(hosts))
        case = msgspec.structs.replace(case, replaced=lost)
    return case


def _faults(case: Case, rng: Random) -> list[Fault]:
    found: list[Fault] = []
    length_ms = case.duration_us // 1_000
    everybody = [*case.hosts, *case.subscribes, *case.publishers]

    def when() -> tuple[int, int]:
        return rng.randrange(length_ms * 3 // 4), rng.randint(1, length_ms // 2)

    kinds: tuple[FaultKind, ...] = ("loss", "duplication", "reordering")
    for kind in kinds:
        if rng.random() < 0.4:
            found.append(Fault(kind, *when(), share=rng.choice((0.05, 0.1, 0.3)), delay_ms=20))
    if case.mode != "static":
        for name in case.subscribes:
            if rng.random() < 0.3:
                found.append(Fault(rng.choice(_OF_SUBSCRIBERS), *when(), name))
    if case.mode in _CRASHING:
        crashes = rng.randint(4, 12) if case.mode == "storm" else rng.randint(1, 3)
        for _ in range(crashes):
            at_ms, for_ms = when()
            kind = rng.choice(_OF_HOSTS)
            found.append(Fault(kind, at_ms, min(for_ms, 100), rng.choice(case.hosts)))
        if rng.random() < 0.3:
            side = tuple(rng.sample(everybody, rng.randint(1, len(everybody) - 1)))
            found.append(Fault("partition", *when(), nodes=side))
        if rng.random() < 0.4:
            fault = Fault("suspicion", *when(), rng.choice(case.hosts))
            found.append(msgspec.structs.replace(fault, suspect=rng.choice(case.hosts)))
    elif rng.random() < 0.3:  # a merger without replicas comes back with its disk
        found.append(Fault("crash", *when(), rng.choice(case.hosts)))
    if rng.random() < 0.3:
        fault = Fault("skew", *when(), rng.choice(everybody))
        found.append(msgspec.structs.replace(fault, offset_ms=rng.choice((-80, 80))))
    if rng.random() < 0.3:
        found.append(Fault("crash", *when(), rng.choice(case.publishers)))
    return found


def play(case: Case, *, watch: Watch | None = None) -> Played:
    """Load and faults first; then everything heals, and what is owed has to arrive."""
    recorder = Recorder(f"merging {case.mode}/{case.seed}", level="agreed")
    world = World(
        seed=str(case.seed),
        network=case.network,
        recorder=recorder,
        watch=watch,
        step_count_max=400_000,
    )
    # A detector only makes the wait for a leader's end shorter: where none ends, none is needed.
    watched = case.mode in _CRASHING
    detector = DetectorOptions(beat_us=25_000, suspect_us=90_000) if watched else None
    replaced: dict[str, bool] = {}
    costs = {"sync_us": case.sync_us}
    add_hosts(
        world, case.hosts, options=case.options, detector=detector, replaced=replaced, **costs
    )
    add_clients(
        world,
        [*case.subscribes, *case.publishers],
        case.hosts,
        topics={},
        publishes=dict.fromkeys(case.publishers, TOPICS),
        subscriptions={
            name: [subscription(one) for one in numbers]
            for name, numbers in case.subscribes.items()
        },
        schemas=known_topics(),
        options=case.options,
        **costs,
    )
    broken, rested = "", False
    try:
        world.start()
        faults.schedule(world, case.faults)
        if case.replaced[1]:
            world.call(case.replaced[0], partial(_replace, world, case.replaced[1], replaced))
        for at_us, who, topic, kind in case.events:
            world.call(at_us, partial(_ask, world, who, Publish(topic, {"kind": kind})))
        for one in case.joins:
            name = f"q{one.conjunction}"
            request = Drop(name) if one.leaves else Correlate(subscription(one.conjunction))
            world.call(one.at_us, partial(_ask, world, one.client, request))
        world.run(case.duration_us)
        faults.heal(world)
        world.run(world.now + 2)
        faults.heal(world)  # of writes that had begun, one may have ended a node
        rested = _rest(world, case)
    except Exception as error:  # whatever it is, a machine broke: a finding with its seed
        broken = f"{type(error).__name__}: {error}"
    return Played(case, world, recorder, rested, broken)


def _replace(world: World, host: str, replaced: dict[str, bool]) -> None:
    """Another machine takes the place of a host, with an empty disk."""
    world.crash(host)
    world.places[host].log.clear()
    replaced[host] = True
    world.count_fault("replaced")
    world.restart(host)


def _ask(world: World, address: str, request: Request) -> None:
    world.command(address, request)


def _rest(world: World, case: Case) -> bool:
    """Run until nothing happens any more. Where windows are small, events go from merger to merger
    and to subscribers one answer at a time, held by nobody and without a relation for long: whoever
    makes something durable is still at work."""
    quiet_us = 3 * case.options.idle_us + 2 * case.network.latency.high_us
    end_us = world.now + case.heal_us
    busy_at, count = world.now, _durable(world)
    while world.now < end_us:
        world.run(world.now + case.options.repeat_us)
        if (found := _durable(world)) != count or world.held_count:
            busy_at, count = world.now, found
        elif world.now - busy_at >= quiet_us:
            world.recorder.noted(world.now, "", "end")
            return True
    return False


def _durable(world: World) -> tuple[int, ...]:
    """How long the history and every log are."""
    return (len(world.recorder), *(len(place.log) for place in world.places.values()))

"""Scenarios: what is simulated, as values and as TOML files.

A scenario says which protocol runs on how many nodes, over which network, under which load, and
what goes wrong. It is data: the same scenario and seed give the same run. Bad values are refused
with the file, the table and the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from concordant.errors import UsageError
from concordant.files.toml import decode_toml, read_toml
from concordant.sim.network import NetworkSpec

FaultKind = Literal[
    "loss",
    "duplication",
    "reordering",
    "partition",
    "crash",
    "pause",
    "slow",
    "lost-writes",
    "failing-writes",
    "skew",
    "suspicion",
]
FAULT_KINDS: tuple[FaultKind, ...] = FaultKind.__args__  # type: ignore[attr-defined]

Popularity = Literal["uniform", "power-law 0.269", "power-law 0.901"]

_NODE_FAULTS = ("crash", "pause", "slow", "lost-writes", "failing-writes", "skew", "suspicion")
NETWORK_FAULTS = ("loss", "duplication", "reordering")
"""They happen to everybody."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of a scenario file."""


class Topology(Table, frozen=True):
    """Who is there. Nodes are named p1, p2 … (publishers), s1 … (subscribers), c1 … (clients)."""

    topics: int = 3
    """They are named T1, T2 …; the most popular first."""
    publishers: int = 2
    subscribers: int = 2
    clients: int = 0
    """Nodes that publish and subscribe."""
    topics_per_publisher: int = 0
    """0: all of them. Else publishers take turns: p1 has T1, p2 has T2, and so on."""
    topics_per_subscriber: int = 0
    """0: all of them. Else so many are drawn by `popularity`."""
    popularity: Popularity = "uniform"
    service_us: int = 0
    """What one message costs a node."""
    sync_us: int = 0
    """How long a write takes to be durable."""


class Change(Table, frozen=True):
    """The load changes."""

    at_ms: int
    rate_per_s: float | None = None
    popularity: Popularity | None = None
    shuffle: bool = False
    """Other topics become the popular ones."""


class SubscriptionChange(Table, frozen=True):
    """A node subscribes or unsubscribes."""

    at_ms: int
    node: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()


class Workload(Table, frozen=True):
    """Who publishes how much."""

    rate_per_s: float = 10.0
    """Events per second and publisher."""
    arrivals: Literal["regular", "poisson"] = "poisson"
    popularity: Popularity = "uniform"
    """Of topics, for publications."""
    kinds: int = 1
    """Events have an attribute `kind`, drawn from 1 to this."""
    replies: float = 0.0
    """The chance that a client publishes because of what it delivered."""
    guests: int = 0
    """So many applications publish through each publisher, under names of their own."""
    compact_ms: int = 0
    """So often logs are replaced by snapshots, where the protocol does that; 0 is never."""
    changes: tuple[Change, ...] = ()
    subscriptions: tuple[SubscriptionChange, ...] = ()


class Fault(Table, frozen=True):
    """Something goes wrong, at a time and for a while."""

    kind: FaultKind
    at_ms: int = 0
    for_ms: int = 100
    node: str = ""
    """Whom it happens to; not for faults of the whole network."""
    nodes: tuple[str, ...] = ()
    """Of a partition: one side of it."""
    share: float = 0.1
    """Of packets that are lost, doubled or overtaken."""
    delay_ms: int = 20
    """Of reordering: how far a packet falls behind; of `slow`: what a message costs."""
    offset_ms: int = 50
    """Of `skew`: how much the clock jumps."""
    suspect: str = ""
    """Of `suspicion`: who is suspected falsely."""

    @property
    def named(self) -> tuple[str, ...]:
        """The nodes that it happens to."""
        if self.kind in NETWORK_FAULTS:
            return ()
        return self.nodes if self.kind == "partition" else (self.node,)


class Chaos(Table, frozen=True):
    """Faults drawn from the seed, in addition to those that are listed."""

    kinds: tuple[FaultKind, ...] = FAULT_KINDS
    chance: float = 0.35
    """That a kind occurs in a run."""


class Scenario(Table, frozen=True):
    """What is simulated."""

    protocol: str
    name: str = ""
    duration_ms: int = 1_000
    """Of the first phase, with load and faults; safety is checked throughout."""
    heal_ms: int = 60_000
    """At most so long may the second phase take, in which everything owed has to arrive."""
    step_count_max: int = 1_000_000_000
    """A run that has not ended by then never will; it is given up."""
    level: str = ""
    """Promise another level than the protocol's."""
    subscription: str = ""
    """Correlate: deliver the relations of this text instead of events."""
    topology: Topology = Topology()
    network: NetworkSpec = NetworkSpec()
    workload: Workload = Workload()
    faults: tuple[Fault, ...] = ()
    chaos: Chaos | None = None
    parameters: dict[str, int] = {}
    """Of clients and failure detectors, by the names of their options."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(f"T{number}" for number in range(1, self.topology.topics + 1))

    @property
    def publishers(self) -> tuple[str, ...]:
        return (*_numbered("p", self.topology.publishers), *self.clients)

    @property
    def subscribers(self) -> tuple[str, ...]:
        return (*_numbered("s", self.topology.subscribers), *self.clients)

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(_numbered("c", self.topology.clients))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes that have names of their own; a protocol may add others."""
        return tuple(dict.fromkeys((*self.publishers, *self.subscribers)))


def _numbered(letter: str, count: int) -> Iterator[str]:
    return (f"{letter}{number}" for number in range(1, count + 1))


def read_scenario(path: Path) -> Scenario:
    """A scenario from a TOML file."""
    scenario = read_toml(path, Scenario, what="scenario file")
    checked(scenario, place=str(path))
    return scenario


def scenario_from(text: str, *, place: str = "scenario") -> Scenario:
    """A scenario from the text of a TOML file; `place` is named in errors."""
    scenario = decode_toml(text, Scenario, place=place)
    checked(scenario, place=place)
    return scenario


def scenario_text(scenario: Scenario) -> str:
    """The scenario as TOML, without what has its default value."""
    value = msgspec.to_builtins(scenario)
    lines: list[str] = []
    _write_table(value, "", lines)
    return "\n".join(lines).strip("\n") + "\n"


def _write_table(value: dict[str, Any], path: str, lines: list[str]) -> None:
    """Plain values first, then the tables below: the only order that TOML allows."""
    tables = {key: one for key, one in value.items() if isinstance(one, dict)}
    lists = {
        key: one
        for key, one in value.items()
        if isinstance(one, list | tuple) and one and isinstance(one[0], dict)
    }
    for key, one in value.items():
        if key not in tables and key not in lists:
            lines.append(f"{key} = {msgspec.json.encode(one).decode()}")
    for key, one in tables.items():
        if not all(isinstance(value, dict) for value in one.values()):
            lines += ["", f"[{path}{key}]"]
        _write_table(one, f"{path}{key}.", lines)
    for key, many in lists.items():
        for one in many:
            lines += ["", f"[[{path}{key}]]"]
            _write_table(one, f"{path}{key}.", lines)


def checked(scenario: Scenario, *, place: str) -> None:
    """Refuse what no single value shows to be wrong."""

    def refuse(message: str, where: str, hint: str = "") -> None:
        raise UsageError(message, hint=hint, place=f"{place}: {where}")

    topology = scenario.topology
    for name, least in (("topics", 1), ("publishers", 0), ("subscribers", 0), ("clients", 0)):
        if getattr(topology, name) < least:
            refuse(f"there must be at least {least}", f"[topology] {name}")
    if not scenario.publishers or not scenario.subscribers:
        refuse(
            "nobody publishes or nobody subscribes",
            "[topology]",
            "give publishers and subscribers, or clients, which are both",
        )
    if scenario.duration_ms < 1 or scenario.heal_ms < 1:
        refuse("the run must last at least 1 ms", "duration_ms, heal_ms")
    if not 0 < scenario.workload.rate_per_s <= 1e6:
        refuse("it must be above 0 and at most 1,000,000", "[workload] rate_per_s")
    for number, change in enumerate(scenario.workload.subscriptions, 1):
        where = f"[workload.subscriptions {number}]"
        if change.node not in scenario.subscribers:
            refuse(f"no subscriber is called {change.node!r}", f"{where} node")
        for topic in (*change.subscribe, *change.unsubscribe):
            if topic not in scenario.topics:
                refuse(f"there is no topic {topic!r}", where, f"they end with T{topology.topics}")
    for number, fault in enumerate(scenario.faults, 1):
        where = f"[faults {number}]"
        if fault.kind == "partition" and not fault.nodes:
            refuse("a partition needs the nodes of one side", f"{where} nodes")
        if not 0 <= fault.share <= 1:
            refuse("a share lies between 0 and 1", f"{where} share")
        if fault.at_ms < 0 or fault.for_ms < 0:
            refuse("times begin at 0", f"{where} at_ms, for_ms")

"""What a strategy is: the machines that an order needs, as data; `roles` has the entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol, runtime_checkable

import msgspec

from concordant.machine.contract import Machine
from concordant.machine.inputs import Message, Record, Request
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas

TRANSPORTS = ("memory", "tcp", "nats")


class Setting(msgspec.Struct, frozen=True):
    """What a cluster tells the makers of machines."""

    node: str
    """Where the machine is to live."""
    nodes: tuple[str, ...]
    """All nodes of the cluster."""
    placed: Mapping[str, str] = {}
    """Address of every part that exists once, by `strategy/part`."""
    topics: tuple[str, ...] = ()
    """The topics that the cluster file declares, for strategies that must know them beforehand."""
    together: tuple[tuple[str, ...], ...] = ()
    """Topics that are usually subscribed together, as far as the cluster file says so."""
    parameters: Mapping[str, Any] = {}
    """Waiting times and bounds, by the names of the options that have them."""
    replaced: str = ""
    """The node that begins without the disk that it had, if there is one."""

    def options(self, kind: type[Any], **others: Any) -> Any:
        """Options of a machine, with the parameters that are among them; `others` are what they
        are where no parameter says so."""
        fields = kind.__struct_fields__
        said = {name: one for name, one in self.parameters.items() if name in fields}
        return kind(**others | said)

    def publishers(self, feed: str) -> tuple[str, ...]:
        """The machines that number the events of a feed, one per node."""
        return tuple(publisher_of(node, feed) for node in self.nodes)


def publisher_of(node: str, feed: str) -> str:
    """The address of the machine that publishes at a node for the applications there."""
    return f"{node}/{feed}"


def part_of(node: str, strategy: str, part: str) -> str:
    """The address of a part at a node."""
    return f"{node}/{strategy}/{part}"


class Publisher(Machine, Protocol):
    """A machine that publishes for many sources, and numbers the events of each; see `Client`."""

    def seq_of(self, source: str) -> int: ...

    def time_of(self, source: str) -> int: ...

    def check(self, requests: tuple[Request, ...]) -> None: ...

    @property
    def room(self) -> int: ...


@runtime_checkable
class Knowing(Protocol):
    """A machine of a subscription that can tell what its application has seen."""

    @property
    def known(self) -> Request: ...


Make = Callable[[Setting, str], Machine]
"""A machine for a setting, with its address."""


Patterns = Callable[[Setting, str, Sequence[Subscription], Schemas], Machine]
"""A machine that delivers relations itself."""


class Part(msgspec.Struct, frozen=True):
    """A machine that the cluster hosts whether anybody subscribes or not."""

    name: str
    make: Make
    everywhere: bool = False
    """One at each node; otherwise one, on the node that the placement policy names."""
    home: str = ""
    """The node that the strategy wants for it, in place of the policy."""


class Strategy(msgspec.Struct, frozen=True):
    """One way to realise a level."""

    level: str
    name: str
    subscriber: Make
    """The machine of one subscription."""
    publisher: Callable[[Setting, str], Publisher]
    """The machine at every node that numbers the events of all applications there."""
    messages: tuple[type[Message], ...]
    """Kinds that travel."""
    records: tuple[type[Record], ...]
    """Kinds that are kept."""
    feed: str = ""
    """Strategies of one feed read what the same publishers send; its own name if not given."""
    parts: Callable[[Setting], tuple[Part, ...]] = lambda setting: ()
    time_ordered: bool = False
    """Deliveries come by time, so that a pattern may forget what is too old."""
    composite: bool = True
    """Patterns may be subscribed."""
    patterns: Patterns | None = None
    """The machine of a subscription with patterns, where the order has to know them; otherwise the
    kernel is put on top of the machine of its topics."""
    compacts: bool = False
    """Its machines replace their logs by snapshots when they are asked to (`Compact`)."""
    homes: Callable[[Sequence[str]], Request] | None = None
    """The request that lets these nodes serve a subscription, where it can be moved."""
    learns: type[Request] | None = None
    """The request that lets a publisher know what a subscription has seen, where that matters."""
    addresses: bool = False
    """An event may be addressed to several topics."""
    replaces: bool = False
    """A node that lost its disk gets back from the others what its parts of this order had."""
    declared: bool = False
    """Only topics that the cluster declares may be published and subscribed."""
    transports: tuple[str, ...] = TRANSPORTS

    def __post_init__(self) -> None:
        if not self.feed:
            msgspec.structs.force_setattr(self, "feed", self.name)


# --- placement ------------------------------------------------------------------------------------


def rendezvous(key: str, nodes: Iterable[str]) -> str:
    """The node of a key by rendezvous hashing: each node draws a number, the greatest has it.

    Everybody who knows the nodes finds the same one, and a node that comes or goes moves only what
    is its own.

    >>> rendezvous("sequencer/sequencer", ["n1", "n2", "n3"])
    'n1'
    """
    return homes(key, nodes)[0]


def homes(key: str, nodes: Iterable[str], *, first: str = "") -> list[str]:
    """All nodes in the order in which they are to have something of a key.

    >>> homes("sequencer/sequencer", ["n1", "n2", "n3"], first="n2")
    ['n2', 'n1', 'n3']
    """
    drawn = {node: blake2b(f"{node}\0{key}".encode()).digest() for node in nodes}
    return sorted(drawn, key=lambda node: (node == first, drawn[node], node), reverse=True)

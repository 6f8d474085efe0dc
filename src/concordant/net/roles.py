"""Which machines an order needs: one entry per strategy, and everything else is read from it.

A strategy realises a level (docs/concepts/order-levels.md). Its entry says which machine a
subscription is, which machine publishes at every node for the applications there, which further
parts the cluster hosts (a sequencer, a failure detector), and what travels and is kept. The node,
the bus, the codec of the links and the table of what is supported are all made from the entries, so
a new protocol is one entry here. A pair that has no entry is refused: nobody gets another order
than the one that was asked for.

The module knows addresses and how machines are made. It starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle

import msgspec

from concordant.errors import UsageError
from concordant.machine.contract import Machine
from concordant.machine.detector import (
    Detector,
    DetectorOptions,
    Heartbeat,
    Suspected,
    Trusted,
    Watch,
)
from concordant.machine.inputs import Message
from concordant.machine.instant import MILLISECOND, SECOND
from concordant.machine.saved import Saved
from concordant.machine.view import View
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas
from concordant.net import causal_roles, sequencing_roles
from concordant.net.strategy import (
    TRANSPORTS,
    Make,
    Part,
    Publisher,
    Setting,
    Strategy,
    homes,
    part_of,
    publisher_of,
    rendezvous,
)
from concordant.order import replication
from concordant.order.broadcast.logs import BASELINES, REPLICAS
from concordant.order.broadcast.replicated import ReplicatedClient
from concordant.order.broadcast.sequencer import (
    Acknowledged,
    Ordered,
    SequencedClient,
    Sequencer,
    Settled,
)
from concordant.order.client import (
    ClientOptions,
    Delivered,
    Installed,
    Joined,
    Left,
    Published,
    Retired,
)
from concordant.order.clock import ClockClient, Promised
from concordant.order.fifo import FifoClient, Opened
from concordant.order.merging.client import MergedClient
from concordant.order.merging.host import MergerHost
from concordant.order.merging.messages import MESSAGES as MERGING_MESSAGES
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.records import RECORDS as MERGING_RECORDS
from concordant.order.none import NoneClient
from concordant.order.replication import ReplicationOptions
from concordant.order.streams import Ask, Gone, Here, Mark, Numbered, Where

__all__ = [
    "LEVELS",
    "STRATEGIES",
    "TRANSPORTS",
    "Make",
    "Part",
    "Publisher",
    "Setting",
    "Strategy",
    "message_kinds",
    "part_of",
    "publisher_of",
    "rendezvous",
    "strategy_of",
    "supported",
]

LEVELS = ("none", "fifo", "causal", "agreed", "total", "total strict")
"""All levels, weakest first, whether a strategy realises them here or not."""

REPLICA_COUNT = len(REPLICAS)
"""Of a merger, where there are as many nodes."""
LOGS = ReplicationOptions(beat_us=200 * MILLISECOND, elect_us=SECOND)
TICK_US, REPEAT_US, IDLE_US = 50 * MILLISECOND, 100 * MILLISECOND, SECOND
"""Waiting times of replicated logs, and of ordered merging. Links between nodes lose nothing while
both live, so what is repeated before an answer can be there only adds to the load."""
WINDOW_COUNT = 4_000
"""Events of a merger's stream on their way to one consumer, a fifth of what it may be behind. Every
half window it asks for more, which costs as much as a batch does; and who waits for another topic
has used up a small one soon, and is sent nothing until it may go on."""

# --- the entries ----------------------------------------------------------------------------------

_CLIENT_RECORDS = (Published, Delivered, Joined, Left, Installed, Retired, Saved)
_STREAM_MESSAGES = (Numbered, Mark, Ask, Gone, Where, Here)


def _publisher(kind: Callable[..., Publisher]) -> Callable[[Setting, str], Publisher]:
    """A client that publishes to every topic."""

    def make(setting: Setting, address: str) -> Publisher:
        return kind(address, publishes=None, options=setting.options(ClientOptions))

    return make


def _subscriber(kind: Callable[..., Machine], feed: str) -> Make:
    """A client that knows that every node publishes."""

    def make(setting: Setting, address: str) -> Machine:
        sources = setting.publishers(feed)
        return kind(address, sources=sources, options=setting.options(ClientOptions))

    return make


def _clock(setting: Setting, address: str) -> Machine:
    return ClockClient(
        address,
        sources=setting.publishers("clock"),
        detector=part_of(setting.node, "clock", "detector"),
        options=setting.options(ClientOptions),
    )


def _detector(setting: Setting, address: str) -> Machine:
    del address
    return Detector(
        publisher_of(setting.node, "clock"),
        view=View.of(1, setting.publishers("clock")),
        options=setting.options(DetectorOptions),
    )


def _sequencer(setting: Setting, address: str) -> Machine:
    return Sequencer(address, options=setting.options(ClientOptions))


def _sequenced(setting: Setting, address: str) -> Publisher:
    return SequencedClient(
        address,
        publishes=None,
        sequencer=setting.placed["sequencer/sequencer"],
        options=setting.options(ClientOptions),
    )


def _baseline(name: str) -> Strategy:
    """Three servers, wherever they are placed, and clients of all of them."""
    kind = BASELINES[name]

    def servers(setting: Setting) -> tuple[str, ...]:
        own = setting.node
        return tuple(
            setting.placed.get(f"{name}/{one}", part_of(own, name, one)) for one in REPLICAS
        )

    def client(setting: Setting, address: str) -> Publisher:
        options = setting.options(ClientOptions)
        replicas = servers(setting)
        return ReplicatedClient(address, publishes=None, replicas=replicas, options=options)

    def server(setting: Setting, address: str) -> Machine:
        return kind.server(address, servers(setting), setting.options(ClientOptions), LOGS)

    def parts(setting: Setting) -> tuple[Part, ...]:
        """On as many nodes as there are, so that a node that is lost takes one server with it."""
        nodes = homes(name, setting.nodes)
        return tuple(
            Part(one, server, home=node) for one, node in zip(REPLICAS, cycle(nodes), strict=False)
        )

    return Strategy(
        "total strict",
        name,
        subscriber=client,
        publisher=client,
        parts=parts,
        messages=(*_STREAM_MESSAGES, *kind.messages),
        records=(*_CLIENT_RECORDS, *kind.records),
    )


def _merging(level: str, name: str) -> Strategy:
    """A host of mergers at every node; three replicas of each merger where there are as many."""
    stamped = level == "total"

    def hosts(setting: Setting) -> tuple[str, ...]:
        return tuple(part_of(node, name, "host") for node in setting.nodes)

    def options(setting: Setting) -> MergingOptions:
        count = REPLICA_COUNT if len(setting.nodes) >= REPLICA_COUNT else 1
        found: MergingOptions = setting.options(
            MergingOptions,
            replication=msgspec.structs.replace(LOGS, replica_count=count),
            tick_us=TICK_US,
            window_count=WINDOW_COUNT,
            repeat_us=REPEAT_US,
            idle_us=max(IDLE_US, 2 * setting.parameters.get("repeat_us", 0)),
            replaced=(setting.replaced,) if setting.replaced else (),
            stamped=stamped,
        )
        return found

    def client(
        setting: Setting,
        address: str,
        subscriptions: Sequence[Subscription] = (),
        schemas: Schemas | None = None,
    ) -> MergedClient:
        return MergedClient(
            address,
            publishes=None,
            hosts=hosts(setting),
            subscriptions=subscriptions,
            schemas=schemas,
            merging=options(setting),
        )

    def host(setting: Setting, address: str) -> Machine:
        return MergerHost(address, hosts=hosts(setting), options=options(setting))

    return Strategy(
        level,
        name,
        subscriber=client,
        publisher=client,
        patterns=client,
        parts=lambda setting: (Part("host", host, everywhere=True),),
        replaces=True,
        messages=(*MERGING_MESSAGES, *replication.MESSAGES),
        records=(*_CLIENT_RECORDS, *MERGING_RECORDS, *replication.RECORDS),
    )


_ENTRIES = (
    Strategy(
        "none",
        "none",
        subscriber=_subscriber(NoneClient, "fifo"),
        publisher=_publisher(FifoClient),
        feed="fifo",
        messages=_STREAM_MESSAGES,
        records=(*_CLIENT_RECORDS, Opened),
        compacts=True,
    ),
    Strategy(
        "fifo",
        "fifo",
        subscriber=_subscriber(FifoClient, "fifo"),
        publisher=_publisher(FifoClient),
        messages=_STREAM_MESSAGES,
        records=(*_CLIENT_RECORDS, Opened),
        compacts=True,
    ),
    Strategy(
        "total strict",
        "sequencer",
        subscriber=_sequenced,
        publisher=_sequenced,
        parts=lambda setting: (Part("sequencer", _sequencer),),
        messages=(*_STREAM_MESSAGES, Acknowledged),
        records=(*_CLIENT_RECORDS, Ordered, Settled),
        compacts=True,
    ),
    Strategy(
        "total strict",
        "clock",
        subscriber=_clock,
        publisher=_publisher(ClockClient),
        parts=lambda setting: (Part("detector", _detector, everywhere=True),),
        messages=(*_STREAM_MESSAGES, Heartbeat, Suspected, Trusted, Watch),
        records=(*_CLIENT_RECORDS, Opened, Promised),
        time_ordered=True,
        compacts=True,
    ),
    *causal_roles.entries(),
    *sequencing_roles.entries(),
    *map(_baseline, BASELINES),
    _merging("agreed", "merging"),
    _merging("total", "merging-stamped"),
)

STRATEGIES: Mapping[str, Strategy] = {entry.name: entry for entry in _ENTRIES}
"""By name; of the strategies of one level, the first is taken if none is named."""


# --- what is supported ----------------------------------------------------------------------------


def strategy_of(
    order: str, strategy: str = "", *, transport: str = "", place: str = ""
) -> Strategy:
    """The entry for a level and, if one is named, a strategy; what has none is refused.

    >>> strategy_of("total strict").name, strategy_of("total strict", "clock").name
    ('sequencer', 'clock')
    """
    level = order.replace("-", " ").replace("_", " ").strip()
    if level not in LEVELS:
        raise UsageError(
            f"there is no order {order!r}", hint=f"the orders are {', '.join(LEVELS)}", place=place
        )
    known = {name: one for name, one in STRATEGIES.items() if one.level == level}
    if not known:
        there = dict.fromkeys(one.level for one in STRATEGIES.values())
        raise UsageError(
            f"no strategy gives the order {level!r} over a network yet",
            hint=f"the orders that can be subscribed are {', '.join(there)}",
            place=place,
        )
    found = known.get(strategy) if strategy else next(iter(known.values()))
    if found is None:
        other = STRATEGIES.get(strategy)
        said = f"it gives {other.level}" if other else "there is none of that name"
        raise UsageError(
            f"the strategy {strategy!r} does not give the order {level!r}: {said}",
            hint=f"for {level!r} there is {', '.join(known)}",
            place=place,
        )
    if transport and transport not in found.transports:
        raise UsageError(
            f"the strategy {found.name!r} does not run over {transport}",
            hint=f"it runs over {', '.join(found.transports)}",
            place=place,
        )
    return found


def supported() -> list[dict[str, str]]:
    """The table of what is supported, a row per level and strategy."""
    rows = []
    for level in LEVELS:
        entries = [one for one in STRATEGIES.values() if one.level == level]
        for one in entries:
            runs = {name: "yes" if name in one.transports else "no" for name in TRANSPORTS}
            patterns = "yes" if one.composite else "no"
            rows.append({"order": level, "strategy": one.name, **runs, "patterns": patterns})
        if not entries:
            runs = dict.fromkeys((*TRANSPORTS, "patterns"), "no")
            rows.append({"order": level, "strategy": "none yet", **runs})
    return rows


def message_kinds(strategies: Iterable[Strategy]) -> tuple[type[Message], ...]:
    """Every kind of message that these strategies send, each once."""
    return tuple(dict.fromkeys(kind for one in strategies for kind in one.messages))

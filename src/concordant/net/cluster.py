"""The cluster file: which nodes there are, where they listen, which orders they offer.

It is a TOML file, the same for every node; `concordant node CLUSTER.toml --name N` is one of them.
What is wrong in it is said with file, table and key before anything starts. It knows the file. How
the nodes talk, and what they host, is decided from it elsewhere (`net.node`, `net.roles`).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec

from concordant.causal import options as causal
from concordant.errors import UsageError
from concordant.files.toml import decode_toml, read_toml
from concordant.machine.detector import DetectorOptions
from concordant.machine.instant import SECOND
from concordant.model.kind import RESERVED, Kind
from concordant.model.topic import Topic, schemas
from concordant.net.roles import (
    REPLICA_COUNT,
    STRATEGIES,
    Part,
    Setting,
    Strategy,
    part_of,
    rendezvous,
)
from concordant.order.client import ClientOptions
from concordant.order.sequencing.messages import SequencingOptions
from concordant.transact.actions import Kind as Transactions
from concordant.transact.options import TransactOptions

Address = tuple[str, int]

OPTIONS: tuple[type[msgspec.Struct], ...] = (
    *(SequencingOptions, DetectorOptions, TransactOptions),
    *(causal.BrokerOptions, causal.ClientOptions),
)
"""Whose fields may stand in [parameters],"""
FIXED = ("group", "profile", "seed", "pull", "age_bits")
"""but for these, which are neither waiting times nor bounds."""

HUB = "transactions/hub"
"""The node whose broker all others are connected with."""
_KINDS: dict[str, tuple[Transactions, ...]] = {
    "": (),
    "shared": ("static", "open"),
    "isolated": ("isolated",),
}


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one node lets its applications have."""

    sessions_max: int = 1_000
    """Connections of applications; further ones are told so and closed."""
    subscriptions_max: int = 10_000
    publishers_max: int = 100_000
    """Names that ever published here: each is remembered, so that no event gets a number twice."""
    batch_count_max: int = 10_000
    """Events in one batch."""
    buffer_count_max: int = 10_000
    """Deliveries that wait for one application; when there are more, it is cut off."""
    lag_us_max: int = 30 * SECOND
    """An application that has not taken a delivery for so long is cut off, or throttles the
    publishers, as it asked for."""
    text_bytes_max: int = 1 << 16
    """Of a subscription, of a name."""


class NodeSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node: `host:port` each."""

    door: str
    """Where applications come in."""
    address: str = ""
    """Where the other nodes come in; over NATS they do not."""
    http: str = ""
    """Health and metrics; nowhere if it is not given."""


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files beside the cluster file; `{node}` stands for the node's name."""

    authority: str
    """The certificate of the authority that signs those of the nodes."""
    certificate: str
    key: str


class Credentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is shown to be let in; `env:NAME` and `file:PATH` say where the secret is."""

    nodes: str = ""
    applications: str = ""


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [cluster]."""

    name: str
    strategies: tuple[str, ...] = ("none", "fifo", "sequencer")
    """How events may be ordered; each feed of events costs its own messages and disk."""
    transport: Literal["tcp", "nats"] = "tcp"
    data: str = ""
    """A folder for the nodes' logs; without one, what a node knew is gone when it ends."""
    placement: Literal["rendezvous", "first"] = "rendezvous"
    """Which node has a part that exists once, where [placed] does not say."""
    replaced: str = ""
    """A node that begins anew because it lost its disk: its mergers take what the other replicas
    have. Only one at a time, and its name is taken out again when it has everything."""
    transactions: Literal["", "shared", "isolated"] = ""
    """Transactions of several clients: static and open ones on shared tables, or isolated ones."""


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster as its file describes it."""

    cluster: Head
    nodes: dict[str, NodeSpec]
    placed: dict[str, str] = {}
    """Nodes of parts, by `strategy/part`, in place of the policy."""
    tls: Tls | None = None
    credentials: Credentials = Credentials()
    limits: Limits = Limits()
    nats: dict[str, Any] = {}
    """Servers and credentials of NATS (`net.nats.NatsOptions`), where it is the transport."""
    gateway: dict[str, Any] = {}
    """A gateway for plain NATS programs (`net.gateway.GatewayOptions`), and the `node` that has it;
    its servers are those of [nats], whatever the transport."""
    topics: dict[str, dict[str, str]] = {}
    """Kinds of attributes, by topic: patterns are checked against them."""
    together: dict[str, tuple[str, ...]] = {}
    """Topics that are usually subscribed together, by any name: where events of one order pass
    several machines, they are placed by this."""
    parameters: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.nodes))

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        return tuple(STRATEGIES[name] for name in self.cluster.strategies)

    @property
    def schemas(self) -> dict[str, Topic]:
        return schemas(
            Topic(name, {key: Kind(kind) for key, kind in attributes.items()})
            for name, attributes in self.topics.items()
        )

    @property
    def transaction_kinds(self) -> tuple[Transactions, ...]:
        """The transactions that there are."""
        return _KINDS[self.cluster.transactions]

    @property
    def hub(self) -> str:
        """The node in the middle of the transactions' brokers."""
        return self._at(HUB)

    def home(self, key: str) -> str:
        """The node that a name belongs to, by the placement policy."""
        return rendezvous(key, self.names)

    def setting(self, node: str) -> Setting:
        """What the makers of machines are told."""
        together = tuple(self.together.values())
        bare = Setting(
            *(node, self.names, {}, tuple(self.topics), together, self.parameters),
            replaced=self.cluster.replaced,
        )
        placed = {}
        for strategy in self.strategies:
            for part in strategy.parts(bare):
                if not part.everywhere:
                    key = f"{strategy.name}/{part.name}"
                    placed[key] = part_of(self._place(key, part), strategy.name, part.name)
        return msgspec.structs.replace(bare, placed=placed)

    def _place(self, key: str, part: Part) -> str:
        return self._at(key, part.home)

    def _at(self, key: str, home: str = "") -> str:
        named = self.placed.get(key) or home
        if named:
            return named
        return self.names[0] if self.cluster.placement == "first" else self.home(key)


def read_cluster(path: Path) -> Cluster:
    """A cluster from its file."""
    found = read_toml(path, Cluster, what="cluster file")
    check_cluster(found, place=str(path))
    return found


def cluster_from(text: str, *, place: str = "cluster") -> Cluster:
    """A cluster from the text of a file; `place` is named in errors."""
    found = decode_toml(text, Cluster, place=place)
    check_cluster(found, place=place)
    return found


def address_of(text: str, *, place: str) -> Address:
    """
    >>> address_of("127.0.0.1:7400", place="")
    ('127.0.0.1', 7400)
    >>> address_of("[::1]:7400", place="")
    ('::1', 7400)
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise UsageError(
            f"{text!r} is no address", hint="write host:port, as in 127.0.0.1:7400", place=place
        )
    return host.strip("[]"), int(port)


# --- what no single value shows to be wrong -------------------------------------------------------


def check_cluster(found: Cluster, *, place: str) -> None:
    """Refuse a cluster that cannot work; `place` is named in the error."""
    head = found.cluster

    def refuse(message: str, where: str, hint: str = "") -> None:
        raise UsageError(message, hint=hint, place=f"{place}: {where}")

    if not head.name.strip():
        refuse("a cluster needs a name", "[cluster] name")
    if not found.nodes:
        refuse("a cluster needs a node", "[nodes]", "write a table [nodes.n1] with a door")
    _check_nodes(found, place)
    if not head.strategies:
        refuse("there is no order to offer", "[cluster] strategies", f"of {_known(STRATEGIES)}")
    for name in head.strategies:
        strategy = STRATEGIES.get(name)
        if strategy is None:
            refuse(
                f"there is no strategy {name!r}",
                "[cluster] strategies",
                f"the strategies are {_known(STRATEGIES)}",
            )
        elif head.transport not in strategy.transports:
            refuse(f"{name!r} does not run over {head.transport}", "[cluster] strategies")
    if head.replaced:
        _check_replaced(found, refuse)
    if head.transactions and len(found.nodes) > 1 and not head.data:
        refuse(
            "transactions of several nodes need a disk: a broker that forgets cannot go on",
            "[cluster] data",
            "name a folder for the logs",
        )
    parts = dict(found.setting(found.names[0]).placed)
    if head.transactions:
        parts[HUB] = found.hub
    for key, node in found.placed.items():
        if key not in parts:
            refuse(
                f"no part is called {key!r}", "[placed]", f"the parts are {_known(parts) or 'none'}"
            )
        if node not in found.nodes:
            refuse(f"no node is called {node!r}", f"[placed] {key}")
    for name, most in msgspec.structs.asdict(found.limits).items():
        if most < 1:
            refuse("a limit is at least 1", f"[limits] {name}")
    if found.gateway and found.gateway.get("node", found.names[0]) not in found.nodes:
        refuse("there is no such node", "[gateway] node", f"the nodes are {_known(found.nodes)}")
    _check_topics(found, place)
    fields = chain.from_iterable(options.__struct_fields__ for options in OPTIONS)
    names = [name for name in dict.fromkeys(fields) if name not in FIXED]
    for name, value in found.parameters.items():
        if name not in names:
            refuse(
                f"there is no parameter {name!r}", "[parameters]", f"they are {', '.join(names)}"
            )
        if value < 1:
            refuse("a parameter is at least 1", f"[parameters] {name}")
    outbox = found.parameters.get("outbox_count_max", ClientOptions().outbox_count_max)
    if found.limits.batch_count_max > outbox:
        refuse(
            f"a batch has to fit into the outbox of {outbox:,} events", "[limits] batch_count_max"
        )


def _check_replaced(found: Cluster, refuse: Callable[..., None]) -> None:
    where = "[cluster] replaced"
    if found.cluster.replaced not in found.nodes:
        refuse(f"no node is called {found.cluster.replaced!r}", where)
    if not any(one.replaces for one in found.strategies):
        known = [name for name, one in STRATEGIES.items() if one.replaces]
        refuse("no order here can give a node what it lost", where, f"{' and '.join(known)} can")
    if len(found.nodes) < REPLICA_COUNT:
        refuse(
            "nobody else has what the node lost",
            where,
            f"there are replicas in clusters of {REPLICA_COUNT} nodes or more",
        )


def _check_nodes(found: Cluster, place: str) -> None:
    used: dict[Address, str] = {}
    for name, node in found.nodes.items():
        where = f"{place}: [nodes.{name}]"
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise UsageError(
                f"{name!r} is no name for a node",
                hint="use letters, digits, - and _",
                place=f"{place}: [nodes]",
            )
        needed = found.cluster.transport == "tcp" and len(found.nodes) > 1
        if needed and not node.address:
            raise UsageError("other nodes must reach it", hint="give its address", place=where)
        for key in ("door", "address", "http"):
            text = getattr(node, key)
            if not text:
                continue
            address = address_of(text, place=f"{where} {key}")
            if address in used and address[1]:
                raise UsageError(
                    f"{text} is used by {used[address]} already", place=f"{where} {key}"
                )
            used[address] = f"[nodes.{name}] {key}"


def _check_topics(found: Cluster, place: str) -> None:
    kinds = [kind.value for kind in Kind if kind not in (Kind.NULL, Kind.POSITION)]
    for topic, attributes in found.topics.items():
        for name, kind in attributes.items():
            where = f"{place}: [topics.{topic}] {name}"
            if name in RESERVED:
                raise UsageError("every event has that; it need not be declared", place=where)
            if kind not in kinds:
                raise UsageError(
                    f"there is no kind {kind!r}",
                    hint=f"the kinds are {', '.join(kinds)}",
                    place=where,
                )
    for name, topics in found.together.items():
        for topic in topics:
            if topic not in found.topics:
                raise UsageError(
                    f"the topic {topic!r} is not declared",
                    hint="write a table [topics." + topic + "]",
                    place=f"{place}: [together] {name}",
                )


def _known(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


# --- what lies outside the file -------------------------------------------------------------------


def secret(text: str, *, folder: Path, place: str) -> str:
    """A secret, or what it says about where the secret is."""
    kind, _, name = text.partition(":")
    if kind == "env":
        found = os.environ.get(name)
        if not found:
            raise UsageError(f"the environment has no {name}", place=place)
        return found
    if kind == "file":
        try:
            return (folder / name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"the secret cannot be read: {error}", place=place) from None
    return text


def tls_contexts(
    tls: Tls, node: str, *, folder: Path, place: str
) -> tuple[ssl.SSLContext, ssl.SSLContext, ssl.SSLContext]:
    """For nodes that come in, for nodes that are connected to, and for applications that come in.

    Nodes show each other certificates of the authority. Applications see the node's certificate
    and show their credentials.
    """
    found = []
    for purpose, shown in (
        (ssl.Purpose.CLIENT_AUTH, True),
        (ssl.Purpose.SERVER_AUTH, True),
        (ssl.Purpose.CLIENT_AUTH, False),
    ):
        context = ssl.create_default_context(purpose)
        for key, load in _loads(tls, context):
            paths = [str(folder / one.replace("{node}", node)) for one in key]
            try:
                load(*paths)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(
                    f"it cannot be used: {error}", place=f"{place}: [tls] {', '.join(paths)}"
                ) from None
        context.verify_mode = ssl.CERT_REQUIRED if shown else ssl.CERT_NONE
        found.append(context)
    return found[0], found[1], found[2]


def _loads(tls: Tls, context: ssl.SSLContext) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield (tls.authority,), context.load_verify_locations
    yield (tls.certificate, tls.key), context.load_cert_chain

"""What the tables of a tree of brokers must be, from who advertised and who subscribed.

This is the overlay's meaning without any message: every broker knows every advertisement by the way
on which it lies; a subscription is known along its ways to the advertisements that it overlaps, and
nowhere else. When nothing is under way any more, the tables that brokers have must be these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from concordant.check.verdict import Verdict, Violation
from concordant.model.event import Event
from concordant.route.filter import Filter

TABLES = "Tables"


class Placed(msgspec.Struct, frozen=True):
    """An advertisement or a subscription of a client."""

    id: str
    client: str
    filter: Filter


class Seen(msgspec.Struct, frozen=True):
    """The tables of one broker: the hop of each advertisement; the hop of each subscription, and
    the neighbours that were told of it."""

    advertisements: Mapping[str, str]
    subscriptions: Mapping[str, tuple[str, tuple[str, ...]]]


class Tree(msgspec.Struct, frozen=True):
    """Brokers and links without a cycle, and the broker of each client."""

    neighbours: Mapping[str, tuple[str, ...]]
    edges: Mapping[str, str]

    def ways(self, target: str) -> dict[str, str]:
        """From each broker, the neighbour on the way to a broker; itself is its own."""
        found = {target: target}
        reached = [target]
        for broker in reached:
            for other in self.neighbours[broker]:
                if other not in found:
                    found[other] = broker
                    reached.append(other)
        return found

    def distances(self, source: str) -> dict[str, int]:
        """From a broker to each: links in between."""
        found = {source: 0}
        reached = [source]
        for broker in reached:
            for other in self.neighbours[broker]:
                if other not in found:
                    found[other] = found[broker] + 1
                    reached.append(other)
        return found

    def centre(self) -> str:
        """A broker from which nobody is far: a good root."""
        return min(self.neighbours, key=lambda one: (max(self.distances(one).values()), one))

    def hop(self, client: str) -> dict[str, str]:
        """From each broker, the hop on the way to a client."""
        edge = self.edges[client]
        return {**self.ways(edge), edge: client}


def tables_of(
    tree: Tree, advertisements: Iterable[Placed], subscriptions: Iterable[Placed]
) -> dict[str, Seen]:
    """The tables of all brokers when everything has arrived."""
    hops = {client: tree.hop(client) for client in tree.edges}
    advertised = {one.id: (one, hops[one.client]) for one in advertisements}
    found: dict[str, Seen] = {
        broker: Seen({id: hop[broker] for id, (_, hop) in advertised.items()}, {})
        for broker in tree.neighbours
    }
    for one in subscriptions:
        back = hops[one.client]
        wanted = [hop for other, hop in advertised.values() if other.filter.overlaps(one.filter)]
        reached = [tree.edges[one.client]]
        for broker in reached:
            told = sorted(
                {
                    hop[broker]
                    for hop in wanted
                    if hop[broker] != back[broker] and hop[broker] in tree.neighbours
                }
            )
            found[broker].subscriptions[one.id] = (back[broker], tuple(told))  # type: ignore[index]
            reached += told
    return found


def check_tables(
    tree: Tree,
    advertisements: Sequence[Placed],
    subscriptions: Sequence[Placed],
    seen: Mapping[str, Seen],
) -> Verdict:
    """Do the brokers have exactly the tables that they must have?"""
    expected = tables_of(tree, advertisements, subscriptions)
    for broker in sorted(expected):
        for kind in ("advertisements", "subscriptions"):
            wanted, has = getattr(expected[broker], kind), getattr(seen[broker], kind)
            for id in sorted({*wanted, *has}):
                if wanted.get(id) != has.get(id):
                    sentence = (
                        f"{broker} has {has.get(id)} for {id} in its {kind}, "
                        f"and must have {wanted.get(id)}"
                    )
                    return Verdict(TABLES, len(seen), Violation(sentence))
    return Verdict(TABLES, len(seen))


def recipients(subscriptions: Iterable[Placed], event: Event) -> list[str]:
    """The clients that an event must reach, if nothing changes meanwhile."""
    return sorted({one.client for one in subscriptions if one.filter.matches(event)})

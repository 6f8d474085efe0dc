"""The overlap graph: topics as nodes, an edge where two topics are subscribed together.

`overlap` makes the whole graph from all subscriptions, for whoever ranks and measures. `Edges` is
what one sequencer keeps of it: its own edges, counted up and down as subscribers come and go. An
edge is turned on when enough subscribers hold both topics and off only when none does: one that
went off while somebody still needs it would break the order (Baldoni 2015, Theorem 1 overlooks it).
Nothing here knows ranks or messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

Version = tuple[int, int]
"""Of a client's subscriptions: the life of the client, and a number in that life."""

Graph = Mapping[str, Collection[str]]
"""For each topic, the topics that are subscribed together with it."""


def overlap(subscriptions: Iterable[Collection[str]], *, edge_on: int = 2) -> dict[str, set[str]]:
    """The overlap graph of subscribers' topics; every topic that is named is a node.

    >>> sorted(overlap([("a", "b"), ("b", "a"), ("b", "c")])["b"])
    ['a']
    """
    together: dict[str, Counter[str]] = {}
    for topics in subscriptions:
        for topic in topics:
            together.setdefault(topic, Counter()).update(topics)
    return {
        topic: {other for other, count in counts.items() if count >= edge_on and other != topic}
        for topic, counts in together.items()
    }


class Membership(msgspec.Struct, frozen=True, gc=False):
    """What a subscriber holds, as far as one sequencer knows."""

    version: Version
    topics: tuple[str, ...]


class Edges(msgspec.Struct):
    """The edges of one topic.

    >>> edges = Edges("a", 2)
    >>> edges.register("s", (1, 1), ("a", "b")), list(edges.active)
    (True, [])
    >>> edges.register("t", (1, 1), ("a", "b")), list(edges.active)
    (True, ['b'])
    >>> edges.register("t", (1, 2), ("b",)), list(edges.active)
    (True, ['b'])
    >>> edges.register("s", (1, 2), ()), list(edges.active)
    (True, [])
    """

    topic: str
    edge_on: int
    """So many subscribers must hold both topics: 2 is the published threshold, 1 is strict."""
    members: dict[str, Membership] = {}
    shared: dict[str, int] = {}
    """How many members hold the other topic as well."""
    active: dict[str, bool] = {}
    """Topics with an edge; a dict for its order."""

    def fill(self, members: Mapping[str, tuple[str, ...]]) -> None:
        """Subscriptions that are there from the start, all at once."""
        counts: Counter[str] = Counter()
        for client, topics in members.items():
            self.members[client] = Membership((0, 0), topics)
            counts.update(topics)
        del counts[self.topic]
        self.shared = dict(counts)
        self.active = {one: True for one, count in counts.items() if count >= self.edge_on}

    def register(self, client: str, version: Version, topics: tuple[str, ...]) -> bool:
        """A subscriber holds these topics now; False if a newer version is known."""
        old = self.members.get(client)
        if old is not None:
            if version <= old.version:
                return False
            for other in old.topics:
                self._count(other, -1)
        if self.topic in topics:
            self.members[client] = Membership(version, topics)
            for other in topics:
                self._count(other, 1)
        else:
            self.members.pop(client, None)
        for other in dict.fromkeys((*(old.topics if old else ()), *topics)):
            self._revise(other)
        return True

    def _count(self, other: str, change: int) -> None:
        if other != self.topic:
            self.shared[other] = self.shared.get(other, 0) + change

    def _revise(self, other: str) -> None:
        count = self.shared.get(other, 0)
        if count >= self.edge_on:
            self.active[other] = True
        elif not count:
            self.active.pop(other, None)
            self.shared.pop(other, None)

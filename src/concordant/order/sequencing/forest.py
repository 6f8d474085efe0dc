"""The sequencing forest: every message that leaves a sequencer goes to its one parent.

The forest is the elimination tree of the overlap graph in rank order: the parent of a topic is the
highest-ranked one among its lower neighbours and those that its children still need. Paths in it
that meet once stay together, so first-in-first-out links keep the order of everything that shares a
sequencer. The published routes skip sequencers, and pairwise orders can form a circle: a deadlock
without any fault (Baldoni 2015, Lemmas 1 and 2).

`parents` works out the whole forest, `way_lengths` only what events would pay for it. `Branch` is
one sequencer's part of it: it grows while messages are under way, and changes its parent only
behind a flush. Rank 0 is the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import mul, or_

import msgspec

from concordant.order.sequencing.messages import Content, Fill, Flush, Introduce, Link
from concordant.order.sequencing.overlap import Graph

Out = list[tuple[str, Content]]
"""Messages by the topic whose sequencer gets them."""


def parents(graph: Graph, order: Sequence[str]) -> dict[str, str | None]:
    """The parent of each topic; `order` lists all topics, the lowest first.

    >>> parents({"c": "ab", "b": "c", "a": "c"}, "abc")
    {'c': 'b', 'b': 'a', 'a': None}
    """
    rank = {topic: number for number, topic in enumerate(order)}
    needed: dict[str, set[str]] = {
        topic: {other for other in graph.get(topic, ()) if rank[other] < rank[topic]}
        for topic in order
    }
    found: dict[str, str | None] = {}
    for topic in reversed(order):
        lower = needed.pop(topic)
        parent = max(lower, key=rank.__getitem__) if lower else None
        found[topic] = parent
        if parent is not None:
            lower.discard(parent)
            needed[parent] |= lower
    return found


def route(
    topic: str, graph: Graph, forest: Mapping[str, str | None], rank: Mapping[str, int]
) -> list[str]:
    """The sequencers that an event of a topic passes, its own first, up to its lowest neighbour."""
    lower = [other for other in graph.get(topic, ()) if rank[other] < rank[topic]]
    if not lower:
        return [topic]
    last = min(lower, key=rank.__getitem__)
    path = [topic]
    while path[-1] != last:
        parent = forest[path[-1]]
        assert parent is not None
        path.append(parent)
    return path


def mean_hops(graph: Graph, order: Sequence[str], rates: Mapping[str, float]) -> float:
    """Hops between sequencers per event, in the mean over events.

    >>> mean_hops({"c": "ab", "b": "c", "a": "c"}, "abc", {"a": 1, "b": 1, "c": 2})
    1.0
    """
    return weighed(way_lengths(neighbours(graph, order)), [rates.get(one, 0.0) for one in order])


def weighed(lengths: Sequence[int], rates: Sequence[float]) -> float:
    """The mean of lengths by place, each as often as its rate says."""
    total = sum(rates)
    return sum(map(mul, lengths, rates)) / total if total else 0.0


def neighbours(graph: Graph, order: Sequence[str]) -> list[int]:
    """For each place of an order, the places of the neighbours, as bits: rankings are compared by
    the thousand, and sets of places are then single numbers.

    >>> [bin(one) for one in neighbours({"c": "ab", "b": "c", "a": "c"}, "abc")]
    ['0b100', '0b100', '0b11']
    """
    bit = {topic: 1 << place for place, topic in enumerate(order)}
    return [reduce(or_, (bit[other] for other in graph.get(topic, ())), 0) for topic in order]


def way_lengths(near: Sequence[int]) -> list[int]:
    """Hops of an event from each place to the lowest of its neighbours, along `parents`."""
    lower = [bits & ((1 << place) - 1) for place, bits in enumerate(near)]
    needed = list(lower)
    for place in range(len(near) - 1, 0, -1):
        bits = needed[place]
        if bits:
            parent = bits.bit_length() - 1
            needed[parent] |= bits ^ (1 << parent)
    depth: list[int] = []
    found: list[int] = []
    for bits, mine in zip(needed, lower, strict=True):
        depth.append(depth[bits.bit_length() - 1] + 1 if bits else 0)
        found.append(depth[-1] - depth[(mine & -mine).bit_length() - 1] if mine else 0)
    return found


class Branch(msgspec.Struct):
    """Where one sequencer sends what is not finished: to its parent, and to nobody else."""

    topic: str
    lower: dict[str, bool] = {}
    """Lower topics that messages through here may need; within an epoch it only grows."""
    parent: str = ""
    flushing: bool = False
    """A better parent is known; everything waits until the old one has handled all before."""
    held: list[Fill | Introduce] = []

    def grow(self, topics: Iterable[str], *, rank: Mapping[str, int], epoch: int, out: Out) -> None:
        """Messages through here may need these topics, too."""
        new = tuple(one for one in topics if one not in self.lower and one != self.topic)
        if not new:
            return
        self.lower.update(dict.fromkeys(new, True))
        if self.flushing:
            return
        best = max(self.lower, key=rank.__getitem__)
        if not self.parent:
            self.parent = best
        if best == self.parent:
            out.append((best, Link(epoch, new)))
        else:
            self.flushing = True
            out.append((self.parent, Flush(epoch)))

    def flushed(self, *, rank: Mapping[str, int], epoch: int, out: Out) -> None:
        """The old parent has handled everything; go on with the new one."""
        self.flushing = False
        self.parent = max(self.lower, key=rank.__getitem__)
        out.append((self.parent, Link(epoch, tuple(self.lower))))
        out += [(self.parent, message) for message in self.held]
        self.held = []

    def send(self, message: Fill | Introduce, out: Out) -> None:
        """One step towards the root."""
        if self.flushing:
            self.held.append(message)
        else:
            out.append((self.parent, message))

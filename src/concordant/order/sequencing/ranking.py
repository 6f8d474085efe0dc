"""How topics are ranked, and where their sequencers live: what the forest costs is chosen here.

The cost is the way of an event through the forest, weighed by how often it is taken. `eliminated`
puts the topic with the smallest degree × rate highest, as if it were eliminated from the overlap
graph first, and goes on; `improved` moves single topics while that helps; `ranked` is both.
`swaps` is the published policy, for comparison. `placed` puts topics whose events travel together
on one node, because a hop within a node costs nothing on the network.

All of it is arithmetic on values; when a ranking is installed is the coordinator's matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import exp
from typing import TypeVar

from concordant.order.sequencing.forest import (
    mean_hops,
    neighbours,
    parents,
    route,
    way_lengths,
    weighed,
)
from concordant.order.sequencing.overlap import Graph

Rates = Mapping[str, float]
T = TypeVar("T")


def popular_first(rates: Rates) -> list[str]:
    """The most popular topic lowest: what one would do without looking at the overlaps."""
    return sorted(rates, key=lambda topic: (-rates[topic], topic))


def eliminated(graph: Graph, rates: Rates) -> list[str]:
    """The elimination order of least degree × rate; a topic's place is lower the later it goes.

    >>> eliminated({"h": "abc", "a": "h", "b": "h", "c": "h"}, {"a": 1, "b": 1, "c": 1, "h": 1})
    ['h', 'c', 'b', 'a']
    """
    near = {topic: set(others) for topic, others in graph.items()}
    for topic in rates:
        near.setdefault(topic, set())
    heap = [(_weight(topic, near, rates), topic) for topic in near]
    heapify(heap)
    highest_first: list[str] = []
    edge_count = sum(map(len, near.values()))
    while near:
        if edge_count == len(near) * (len(near) - 1):  # all with all: only the rates are left
            rest = sorted(near, key=lambda topic: (rates.get(topic, 0.0), topic))
            return [*reversed(rest), *reversed(highest_first)]
        weight, topic = heappop(heap)
        if topic not in near or weight != _weight(topic, near, rates):
            continue
        highest_first.append(topic)
        others = near.pop(topic)
        edge_count -= 2 * len(others)
        for other in sorted(others):
            mine = near[other]
            before = len(mine)
            mine |= others
            mine.discard(topic)
            mine.discard(other)
            edge_count += len(mine) - (before - 1)
            heappush(heap, (_weight(other, near, rates), other))
    highest_first.reverse()
    return highest_first


def _weight(topic: str, near: Mapping[str, set[str]], rates: Rates) -> tuple[float, int]:
    degree = len(near[topic])
    return degree * rates.get(topic, 0.0), degree


def improved(
    graph: Graph, order: Sequence[str], rates: Rates, *, trial_count_max: int = 2_000
) -> list[str]:
    """Move one topic at a time while that shortens the ways; it tries at most so often."""
    best = list(order)
    near = neighbours(graph, best)
    weights = [rates.get(topic, 0.0) for topic in best]
    cost = weighed(way_lengths(near), weights)
    trials = 0
    again = True
    while again and trials < trial_count_max:
        again = False
        for topic in list(best):
            place = best.index(topic)
            for step in (-1, 1, -2, 2, -4, 4, -8, 8, -len(best), len(best)):
                target = min(max(place + step, 0), len(best) - 1)
                if target == place or trials >= trial_count_max:
                    continue
                trials += 1
                moved = _moved([_shifted(one, place, target) for one in near], place, target)
                shares = _moved(weights, place, target)
                tried = weighed(way_lengths(moved), shares)
                if tried < cost - 1e-12:
                    best, near, weights = _moved(best, place, target), moved, shares
                    cost, again = tried, True
                    break
    return best


def _moved(items: list[T], place: int, target: int) -> list[T]:
    """The same with one of them at another place."""
    found = [*items[:place], *items[place + 1 :]]
    found.insert(target, items[place])
    return found


def _shifted(bits: int, place: int, target: int) -> int:
    """The same places after the topic of one has moved to another.

    >>> bin(_shifted(0b1001, 3, 1)), bin(_shifted(0b0110, 0, 2))
    ('0b11', '0b11')
    """
    low, high = min(place, target), max(place, target)
    within = (bits >> low) & ((1 << (high - low + 1)) - 1)
    if target > place:
        within = within >> 1 | (within & 1) << (high - low)
    else:
        within = within << 1 & ((1 << (high - low + 1)) - 1) | within >> (high - low)
    return bits >> (high + 1) << (high + 1) | within << low | bits & ((1 << low) - 1)


def ranked(graph: Graph, rates: Rates, *, trial_count_max: int = 2_000) -> list[str]:
    """A ranking with short ways: the better of two beginnings, improved."""
    beginnings = (eliminated(graph, rates), popular_first({**dict.fromkeys(graph, 0.0), **rates}))
    best = min(beginnings, key=lambda order: mean_hops(graph, order, rates))
    return improved(graph, best, rates, trial_count_max=trial_count_max)


# --- the published policy -------------------------------------------------------------------------


def popularity(count: float, *, alpha: float) -> float:
    """How popular a topic is by the number of its events (Baldoni 2011, section 6)."""
    return exp(-1 / (alpha * (count + 1)))


def swaps(
    graph: Graph,
    order: Sequence[str],
    counts: Mapping[str, int],
    *,
    alpha: float = 0.1,
    beta: float = 0.2,
) -> list[tuple[str, str]]:
    """The exchanges that sequencers ask for when they see these counts, one after the other.

    A sequencer looks at the higher topics in the timestamps that it signs, and changes places with
    one that is more popular by more than `beta`.
    """
    rank = {topic: number for number, topic in enumerate(order)}
    found: list[tuple[str, str]] = []
    value = {topic: popularity(counts.get(topic, 0), alpha=alpha) for topic in order}
    for _ in range(len(order) ** 2):
        pair = next(
            (
                (low, high)
                for low in sorted(rank, key=rank.__getitem__)
                for high in sorted(graph.get(low, ()), key=lambda one: (-value[one], one))
                if rank[high] > rank[low] and value[high] > value[low] + beta
            ),
            None,
        )
        if pair is None:
            break
        low, high = pair
        rank[low], rank[high] = rank[high], rank[low]
        found.append(pair)
    return found


def swapped(order: Sequence[str], exchanges: Sequence[tuple[str, str]]) -> list[str]:
    """An order after exchanges.

    >>> swapped("abc", [("a", "c")])
    ['c', 'b', 'a']
    """
    now = list(order)
    for one, other in exchanges:
        i, j = now.index(one), now.index(other)
        now[i], now[j] = other, one
    return now


# --- placement ------------------------------------------------------------------------------------


def placed(graph: Graph, order: Sequence[str], nodes: Sequence[str]) -> dict[str, str]:
    """A node for each topic: the forest is walked along its branches and cut into equal pieces.

    >>> placed({"a": "b", "b": "a", "c": "d", "d": "c"}, "abcd", ("n1", "n2"))
    {'a': 'n1', 'b': 'n1', 'c': 'n2', 'd': 'n2'}
    """
    forest = parents(graph, order)
    children: dict[str | None, list[str]] = {}
    for topic in order:
        children.setdefault(forest[topic], []).append(topic)
    walk: list[str] = []
    todo = list(reversed(children.get(None, [])))
    while todo:
        topic = todo.pop()
        walk.append(topic)
        todo.extend(reversed(children.get(topic, [])))
    size = -(-len(walk) // len(nodes))
    return {topic: nodes[number // size] for number, topic in enumerate(walk)}


def network_hops(
    graph: Graph, order: Sequence[str], rates: Rates, places: Mapping[str, str]
) -> float:
    """Hops between nodes per event, in the mean over events."""
    forest = parents(graph, order)
    rank = {topic: number for number, topic in enumerate(order)}
    total = weighed = 0.0
    for topic in order:
        path = [places[one] for one in route(topic, graph, forest, rank)]
        hops = sum(one != other for one, other in pairwise(path))
        weighed += rates.get(topic, 0.0) * hops
        total += rates.get(topic, 0.0)
    return weighed / total if total else 0.0

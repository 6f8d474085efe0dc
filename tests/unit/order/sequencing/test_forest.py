"""The sequencing forest: routes that meet stay together, however it grew."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from concordant.order.sequencing.forest import (
    Branch,
    mean_hops,
    neighbours,
    parents,
    route,
    way_lengths,
)
from concordant.order.sequencing.messages import Content, Fill, Flush, Introduce, Link
from concordant.order.sequencing.overlap import Edges, overlap

TOPICS = tuple("abcdefgh")
subscriptions = st.lists(
    st.lists(st.sampled_from(TOPICS), min_size=1, max_size=4, unique=True), min_size=1, max_size=10
)
orders = st.permutations(TOPICS)


@given(subscriptions, orders, st.sampled_from((1, 2)))
def test_every_route_passes_all_lower_neighbours_and_never_turns_up_again(
    topics: list[list[str]], order: list[str], edge_on: int
) -> None:
    graph = overlap(topics, edge_on=edge_on)
    forest = parents(graph, order)
    rank = {topic: number for number, topic in enumerate(order)}
    for topic in graph:
        path = route(topic, graph, forest, rank)
        lower = {other for other in graph[topic] if rank[other] < rank[topic]}
        assert lower <= set(path)
        assert sorted(path, key=rank.__getitem__, reverse=True) == path


@given(subscriptions, orders)
def test_two_routes_that_meet_share_everything_below(
    topics: list[list[str]], order: list[str]
) -> None:
    graph = overlap(topics, edge_on=1)
    forest = parents(graph, order)
    rank = {topic: number for number, topic in enumerate(order)}
    paths = [route(topic, graph, forest, rank) for topic in graph]
    for one, other in combinations(paths, 2):
        common = [topic for topic in one if topic in other]
        if common:
            shorter = min(one[one.index(common[0]) :], other[other.index(common[0]) :], key=len)
            assert common == shorter


def test_hops_are_weighed_by_rates() -> None:
    graph = {"a": "b", "b": "a", "c": ""}
    assert mean_hops(graph, "abc", {"a": 3, "b": 1, "c": 0}) == 0.25


@given(subscriptions, orders)
def test_lengths_of_ways_are_those_of_the_routes(topics: list[list[str]], order: list[str]) -> None:
    graph = overlap(topics)
    forest = parents(graph, order)
    rank = {topic: number for number, topic in enumerate(order)}
    routes = [len(route(topic, graph, forest, rank)) - 1 for topic in order]
    assert way_lengths(neighbours(graph, order)) == routes


def test_edges_stay_until_nobody_needs_them() -> None:
    edges = Edges("a", 2)
    for client in ("s", "t"):
        edges.register(client, (1, 1), ("a", "b"))
    edges.register("t", (1, 2), ("a",))
    assert list(edges.active) == ["b"]  # only s has both now, but it was promised an order
    assert not edges.register("t", (1, 1), ("a", "b"))  # an old version
    edges.register("s", (2, 0), ("a",))
    assert not edges.active


@given(st.integers(0, 10_000))
def test_counted_edges_equal_those_of_the_whole_graph(seed: int) -> None:
    rng = Random(seed)
    held: dict[str, tuple[str, ...]] = {}
    edges = Edges("a", 1)
    for number in range(1, 20):
        client = rng.choice("stuv")
        held[client] = tuple(rng.sample(TOPICS, rng.randint(0, 4)))
        edges.register(client, (1, number), held[client])
    graph = overlap(held.values(), edge_on=1)
    assert set(edges.active) == set(graph.get("a", ()))


# --- a branch grows -------------------------------------------------------------------------------

RANK = {topic: number for number, topic in enumerate(TOPICS)}


def fill(n: int, *todo: str) -> Fill:
    return Fill(0, "h", n, {"h": n}, todo)


def test_a_better_parent_is_taken_only_behind_a_flush() -> None:
    branch = Branch("h")
    out: list[tuple[str, Content]] = []
    branch.grow(("a",), rank=RANK, epoch=0, out=out)
    branch.send(fill(1, "a"), out)
    assert out == [("a", Link(0, ("a",))), ("a", fill(1, "a"))]
    out.clear()
    branch.grow(("c",), rank=RANK, epoch=0, out=out)
    branch.send(fill(2, "c", "a"), out)
    branch.grow(("d",), rank=RANK, epoch=0, out=out)
    assert out == [("a", Flush(0))]
    out.clear()
    branch.flushed(rank=RANK, epoch=0, out=out)
    assert out == [("d", Link(0, ("a", "c", "d"))), ("d", fill(2, "c", "a"))]


@given(st.integers(0, 10_000))
def test_branches_that_grow_by_messages_become_the_forest(seed: int) -> None:
    """Edges come one by one, in any order; links and flushes arrive at once."""
    rng = Random(seed)
    topics = [rng.sample(TOPICS, rng.randint(1, 4)) for _ in range(rng.randint(1, 8))]
    graph = overlap(topics, edge_on=1)
    branches = {topic: Branch(topic) for topic in TOPICS}
    todo: list[tuple[str, str, Content]] = []

    def take(topic: str, out: list[tuple[str, Content]]) -> None:
        todo.extend((topic, to, content) for to, content in out)
        while todo:
            source, to, content = todo.pop(0)
            more: list[tuple[str, Content]] = []
            if isinstance(content, Link):
                branches[to].grow(content.topics, rank=RANK, epoch=0, out=more)
                todo.extend((to, then, one) for then, one in more)
            elif isinstance(content, Flush):
                branches[source].flushed(rank=RANK, epoch=0, out=more)
                todo.extend((source, then, one) for then, one in more)
            else:
                assert isinstance(content, Introduce)

    pairs = [(t, o) for t in graph for o in graph[t] if RANK[o] < RANK[t]]
    rng.shuffle(pairs)
    for topic, other in pairs:
        out: list[tuple[str, Content]] = []
        branches[topic].grow((other,), rank=RANK, epoch=0, out=out)
        take(topic, out)
    forest = parents(graph, TOPICS)
    assert {topic: branch.parent or None for topic, branch in branches.items()} == forest

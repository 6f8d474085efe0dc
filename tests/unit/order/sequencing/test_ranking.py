"""Rankings: short ways through the forest, against the published policy on the same overlaps."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concordant.order.sequencing.forest import mean_hops
from concordant.order.sequencing.overlap import overlap
from concordant.order.sequencing.ranking import (
    _moved,
    _shifted,
    eliminated,
    improved,
    network_hops,
    placed,
    popular_first,
    popularity,
    ranked,
    swapped,
    swaps,
)
from tests.overlaps import ROWS, Overlap, drawn


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_weighted_elimination_beats_the_published_swaps(row: Overlap) -> None:
    graph, rates, order = drawn(row, seed=1)
    counts = {topic: round(20 * row.topics * rate) for topic, rate in rates.items()}
    published = swapped(order, swaps(graph, order, counts))
    ours = ranked(graph, rates, trial_count_max=30)
    assert mean_hops(graph, ours, rates) < mean_hops(graph, published, rates)


def test_local_search_never_makes_it_worse_and_helps_where_nothing_is_popular() -> None:
    graph, rates, _ = drawn(ROWS[0], seed=2)
    before = eliminated(graph, rates)
    after = improved(graph, before, rates, trial_count_max=300)
    assert sorted(after) == sorted(before)
    assert mean_hops(graph, after, rates) < mean_hops(graph, before, rates)


@given(st.integers(0, 255), st.integers(0, 7), st.integers(0, 7))
def test_places_as_bits_move_as_topics_do(bits: int, place: int, target: int) -> None:
    flags = [bits >> one & 1 for one in range(8)]
    moved = _moved(flags, place, target)
    assert _shifted(bits, place, target) == sum(flag << one for one, flag in enumerate(moved))


@given(st.integers(0, 10_000))
def test_every_ranking_names_every_topic_once(seed: int) -> None:
    rng = Random(seed)
    topics = [f"t{number}" for number in range(rng.randint(1, 9))]
    held = [rng.sample(topics, rng.randint(1, min(4, len(topics)))) for _ in range(6)]
    graph = overlap([*held, *([topic] for topic in topics)], edge_on=1)
    rates = {topic: rng.random() for topic in topics}
    for order in (eliminated(graph, rates), ranked(graph, rates), popular_first(rates)):
        assert sorted(order) == topics


def test_a_small_threshold_allows_more_swaps() -> None:
    # Baldoni 2011, figure 17: 51.8 swaps with 0.1, 7.8 with 0.3.
    graph, rates, order = drawn(ROWS[3], seed=3)
    counts = {topic: round(600 * rate) for topic, rate in rates.items()}
    number = {beta: len(swaps(graph, order, counts, beta=beta)) for beta in (0.1, 0.3)}
    assert number[0.1] > number[0.3] > 0
    assert popularity(0, alpha=0.1) < popularity(10, alpha=0.1) < 1


def test_topics_that_are_subscribed_together_live_together() -> None:
    graph, rates, _ = drawn(ROWS[1], seed=1)
    order = ranked(graph, rates, trial_count_max=30)
    nodes = [f"n{number}" for number in range(5)]
    together = placed(graph, order, nodes)
    hashed = {topic: nodes[Random(topic).randrange(5)] for topic in order}
    assert max(list(together.values()).count(node) for node in nodes) == 10
    clustered = network_hops(graph, order, rates, together)
    assert clustered < 0.6 * network_hops(graph, order, rates, hashed)

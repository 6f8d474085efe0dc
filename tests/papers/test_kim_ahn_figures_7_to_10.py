"""Kim and Ahn, figures 7 to 10: how fast gossip reaches everybody, against the analysis.

The figures themselves and their n, fan-out and view are not in the text. The analysis is that of
lpbcast, which they compare with (fan-out 3, 5 % of messages lost, 1 % of processes crash).
"""

from __future__ import annotations

from functools import cache

import pytest

from concordant.causal.options import Profile
from concordant.evaluate.broker_spread import broker_spread
from concordant.evaluate.epidemic import Shape, Spread, chain, mean_field, spread

RUNS = 120


@cache
def played(count: int) -> Spread:
    return spread(Shape(count), runs=RUNS if count < 200 else 30)


@pytest.mark.parametrize(("count", "steps"), [(125, 6.2), (250, 7.0), (500, 7.8), (1_000, 8.6)])
def test_figure_7_steps_grow_with_the_logarithm(count: int, steps: float) -> None:
    assert chain(Shape(count), 30).steps_to_all == pytest.approx(steps, abs=0.05)


@pytest.mark.parametrize(("fanout", "steps"), [(2, 8.2), (4, 5.2), (5, 4.6), (6, 4.2)])
def test_figure_7_other_fan_outs(fanout: int, steps: float) -> None:
    assert chain(Shape(125, fanout), 40).steps_to_all == pytest.approx(steps, abs=0.05)


@pytest.mark.parametrize("count", [125, 250])
def test_figure_7_played_runs_need_as_many_steps(count: int) -> None:
    assert played(count).steps_to_all == pytest.approx(
        chain(Shape(count), 30).steps_to_all, abs=0.3
    )


def test_figure_8_played_runs_are_within_2_percent_of_the_mean_field() -> None:
    expected = mean_field(Shape(125), 8)
    for seen, computed in zip(played(125).reached, expected, strict=False):
        assert seen == pytest.approx(computed, rel=0.02)


def test_figure_8_the_chain_lags_behind_the_mean_field_by_a_few_percent() -> None:
    lag = [1 - a / b for a, b in zip(chain(Shape(125), 8).expected, mean_field(Shape(125), 8))]  # noqa: B905
    assert 0.05 < max(lag) < 0.09


def test_figures_9_and_10_all_have_it_with_a_chance_that_goes_to_1() -> None:
    computed = chain(Shape(125), 10).all_by
    assert computed[5:9] == pytest.approx([0.11, 0.70, 0.96, 0.996], abs=0.006)
    seen = played(125).all_by
    assert seen[5:9] == pytest.approx([0.06, 0.82, 0.99, 1.0], abs=0.04)


def test_what_is_gained_comes_from_pulls_of_predecessors() -> None:
    push = spread(Shape(125), runs=25, successors=True)
    pull = spread(Shape(125), runs=25, successors=True, pull=True)
    assert push.pulls == 0
    assert 1.0 < push.steps_to_all - pull.steps_to_all < 1.9
    assert pull.pulls > 10


@cache
def brokers(profile: Profile, *, pull: bool = False) -> Spread:
    return broker_spread(
        Shape(32, crash=0.0), profile=profile, runs=10, steps=7, successors=pull, pull=pull
    )


def test_real_brokers_spread_an_event_as_the_analysis_says() -> None:
    expected = chain(Shape(32, crash=0.0), 7).expected
    for seen, computed in zip(brokers("local").reached, expected, strict=True):
        assert seen == pytest.approx(computed, rel=0.12)


@pytest.mark.parametrize("profile", ["local", "rounds"])
def test_figures_9_and_10_real_brokers_gain_by_pulls(profile: Profile) -> None:
    push, pull = brokers(profile), brokers(profile, pull=True)
    assert push.pulls == 0 < pull.pulls
    assert push.steps_to_all - pull.steps_to_all > 0.4
    assert push.all_by == brokers("local").all_by  # causal information changes nothing else

"""Kim and Ahn, figures 7 to 10: how fast gossip reaches everybody, against the analysis.

The figures themselves and their n, fan-out and view are not in the text. The analysis is that of
lpbcast, which they compare with (fan-out 3, 5 % of messages lost, 1 % of processes crash).
"""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from concordant.causal.broker import Broker
from concordant.causal.messages import Ordered, Submit
from concordant.causal.options import BrokerOptions
from concordant.causal.placement import Everywhere
from concordant.evaluate.epidemic import Shape, Spread, chain, mean_field, spread
from concordant.machine.effects import Effect, Send
from concordant.machine.inputs import Message, Received, Started, TimerFired
from concordant.model.event import Event

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


def test_real_brokers_spread_an_event_as_the_analysis_says() -> None:
    count, runs, steps = 32, 12, 7
    shape = Shape(count, crash=0.0)
    sums = [0] * (steps + 1)
    for run in range(runs):
        for step, reached in enumerate(_reached(count, steps, Random(run), shape.loss)):
            sums[step] += reached
    expected = chain(shape, steps).expected
    for total, computed in zip(sums, expected, strict=True):
        assert total / runs == pytest.approx(computed, rel=0.12)


def _reached(count: int, steps: int, rng: Random, loss: float) -> list[int]:
    """Brokers that have one event, step by step; they push in every step and answer no digest."""
    names = [f"b{number}" for number in range(count)]
    options = BrokerOptions(
        fanout=3, push_count=99, digest_count_max=0, pull=False, seed=rng.getrandbits(32)
    )
    brokers = {one: Broker(one, members=Everywhere(names), options=options) for one in names}
    moving: list[tuple[str, str, Message]] = []

    def sent(source: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.to in brokers:
                moving.extend((source, effect.to, one) for one in effect.messages)

    for name, broker in brokers.items():
        broker.handle(0, Started())
        del name
    submit = Submit(1, Event("T", "p", 1, 1), ("T",), {}, 0)
    sent("b0", brokers["b0"].handle(0, Received("p", (submit,))))
    found = [1]
    for _ in range(steps):
        arriving, moving[:] = list(moving), []
        for source, to, message in arriving:
            if isinstance(message, Ordered) and rng.random() >= loss:
                brokers[to].handle(0, Received(source, (message,)))
        for name, broker in brokers.items():
            sent(name, broker.handle(0, TimerFired(("tick",))))
        found.append(sum(bool(one.state.delivered) for one in brokers.values()))
    return found

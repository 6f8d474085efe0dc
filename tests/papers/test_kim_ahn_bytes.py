"""Kim and Ahn: how much causal information travels, measured on encoded messages.

The first lines of the table in docs/concepts/causal.md; `bench/causal.py` measures all of it.
"""

from __future__ import annotations

import pytest

from concordant.evaluate.causal_sizes import Shape, measure


@pytest.mark.parametrize(
    ("shape", "whole", "between"), [(Shape(4, 2, 2, 0.5), 8, 5.2), (Shape(8, 4, 2, 0.5), 16, 10.4)]
)
def test_subscribers_get_less_than_brokers_and_brokers_less_than_whole_vectors(
    shape: Shape, whole: int, between: float
) -> None:
    found = measure(shape, steps=40)
    assert found.whole.entry_max == whole
    assert found.between.entries == pytest.approx(between, rel=0.15)
    assert found.last_hop.entries < found.between.entries / 2
    assert found.last_hop.bytes < found.between.bytes < found.whole.bytes


def test_ages_take_a_few_bits_per_broker() -> None:
    found = measure(Shape(8, 4, 2, 0.5), "rounds", steps=40)
    assert found.last_hop.bytes < 8

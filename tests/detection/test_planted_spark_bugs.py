"""Every bug planted in the core on Spark is found by the comparison with the kernel."""

from __future__ import annotations

import pytest

from tests.detection.spark_bugs import BUGS, Plant, cases_to_find, differs, make_small


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_the_comparison_with_the_kernel_finds(plant: Plant) -> None:
    assert cases_to_find(plant)


def test_without_a_bug_the_same_comparison_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    assert not any(differs(number) for number in range(120))

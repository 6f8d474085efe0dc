"""Every bug planted in how rows with one place are told apart is found."""

from __future__ import annotations

import pytest

from tests.detection.tie_bugs import BUGS, Plant, cases_to_find


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_the_comparison_with_the_rules_finds(plant: Plant) -> None:
    assert cases_to_find(plant)

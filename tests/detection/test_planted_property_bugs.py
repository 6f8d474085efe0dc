"""Every checker of a correlation property catches an engine that breaks just this property."""

from __future__ import annotations

import pytest

from concordant.check.properties import PROPERTIES
from concordant.guarantees.table import lost_by_policy
from tests.detection.property_bugs import BUGS, PropertyBug, violations


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_the_checker_finds_the_bug_and_the_others_do_not(which: PropertyBug) -> None:
    found, exercised = violations(which, which.plant, (which.breaks, *which.spares))
    assert set(found) == {which.breaks}
    assert [name for name in which.spares if not exercised[name]] == []


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_without_the_bug_the_checker_finds_nothing(which: PropertyBug) -> None:
    assert which.breaks not in lost_by_policy(which.policy)
    found, exercised = violations(which, lambda patch: None, (which.breaks,))
    assert found == {}
    assert exercised[which.breaks]


def test_every_property_has_a_planted_bug() -> None:
    assert {which.breaks for which in BUGS} == {*PROPERTIES}

"""Every bug planted in total notification order is found; without one, none is."""

from __future__ import annotations

import pytest

from concordant.order.replication import Replica
from concordant.sim.run import simulate
from concordant.sim.swarm import random_scenario
from tests.detection.sequencing_bugs import (
    BUGS,
    SCHEDULE_COUNT_MAX,
    SequencingBug,
    schedules_to_find,
)
from tests.sequencing_cases import clean

CLEAN_COUNT = 25


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_a_checker_finds(which: SequencingBug) -> None:
    found = schedules_to_find(which)
    assert found is not None, f"{which.name!r} survived {SCHEDULE_COUNT_MAX} schedules"


def test_without_a_bug_the_same_cases_break_nothing() -> None:
    for which in BUGS:
        if not which.case.level:
            clean(which.case, CLEAN_COUNT)


def test_bugs_have_names_of_their_own() -> None:
    names = [which.name for which in BUGS]
    assert sorted(set(names)) == sorted(names)


def test_a_replica_that_applies_what_is_not_committed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Replica, "committed", lambda self, start: self.entries[start - self.base :])
    failures = (
        simulate(random_scenario("sequencing-replicated", seed), seed=seed).failure
        for seed in range(200)
    )
    assert any(failure is not None for failure in failures)

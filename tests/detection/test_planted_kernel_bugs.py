"""Every bug planted in the kernel is found, and without one nothing is."""

from __future__ import annotations

import pytest

from tests.detection.bugs import CASE_COUNT_MAX, Bug, cases_to_find, planted
from tests.detection.kernel_bugs import BUGS, kernel_difference

CLEAN_COUNT = 300


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_the_comparison_with_the_oracle_finds(which: Bug) -> None:
    found = cases_to_find(which, compared=kernel_difference)
    assert found is not None, f"{which.name!r} survived {CASE_COUNT_MAX} cases"


def test_without_a_bug_the_same_comparison_finds_nothing() -> None:
    clean = Bug("none", lambda patch: None)
    found = cases_to_find(clean, case_count_max=CLEAN_COUNT, compared=kernel_difference)
    assert found is None


def test_a_planted_bug_is_gone_when_its_context_is_closed() -> None:
    for which in BUGS:
        with planted(which):
            pass
    clean = Bug("none", lambda patch: None)
    assert cases_to_find(clean, case_count_max=32, compared=kernel_difference) is None


def test_bugs_have_names_of_their_own() -> None:
    names = [which.name for which in BUGS]
    assert sorted(set(names)) == sorted(names)

"""Every planted bug is found, and without one nothing is."""

from __future__ import annotations

import pytest

from tests.detection.bugs import BUGS, CASE_COUNT_MAX, Bug, cases_to_find, planted

CLEAN_COUNT = 300


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_the_comparison_with_the_oracle_finds(which: Bug) -> None:
    assert cases_to_find(which) is not None, f"{which.name!r} survived {CASE_COUNT_MAX} cases"


def test_without_a_bug_the_same_comparison_finds_nothing() -> None:
    assert cases_to_find(Bug("none", lambda patch: None), case_count_max=CLEAN_COUNT) is None


def test_a_planted_bug_is_gone_when_its_context_is_closed() -> None:
    for which in BUGS:
        with planted(which):
            pass
    assert cases_to_find(Bug("none", lambda patch: None), case_count_max=32) is None


def test_bugs_have_names_of_their_own() -> None:
    names = [which.name for which in BUGS]
    assert sorted(set(names)) == sorted(names)

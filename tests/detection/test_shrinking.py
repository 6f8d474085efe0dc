"""A difference is shown in its smallest form, and can be found again by its name."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.campaign import correlation
from tests.campaign.__main__ import main
from tests.campaign.compare import case_of, cuts_of_case, differs, shrink
from tests.campaign.shape import Options
from tests.detection.bugs import BUGS, planted
from tests.examples import policy
from tests.generators import Case

PREFIX = policy("prefix")
KEEPS_TOO_MUCH = next(b for b in BUGS if b.name == "prefix removes only the matched events")


def first_difference() -> int:
    for number in range(200):
        case = case_of(1, PREFIX, number)
        if differs(case, cuts_of_case(1, PREFIX, number, case)):
            return number
    raise AssertionError("the bug was not found")


def test_a_case_is_shrunk_until_nothing_can_be_dropped() -> None:
    with planted(KEEPS_TOO_MUCH):
        case = case_of(1, PREFIX, first_difference())
        small = shrink(case, frozenset(event.id for event in case.events))
    assert len(small.case.events) < len(case.events)
    assert len(small.case.subscriptions) == 1
    # the bug is there without any save, so every cut is dropped
    assert small.cuts == frozenset()


def test_shrinking_keeps_what_the_judge_asks_for() -> None:
    case = case_of(1, PREFIX, 0)
    wanted = {case.events[1].id, case.events[3].id}

    def judge(one: Case, cuts: Collection[str]) -> str | None:
        return "both are there" if wanted <= {event.id for event in one.events} else None

    small = shrink(case, frozenset(), judge)
    assert {event.id for event in small.case.events} == wanted


def test_a_report_tells_how_to_see_a_difference_again() -> None:
    with planted(KEEPS_TOO_MUCH):
        number = first_difference()
        report = correlation.run(Options(policy=PREFIX, case=number))
    (failure,) = report.failures
    assert "smallest form" in failure
    assert f'--seed 1 --policy "{PREFIX}" --case {number}' in failure
    assert correlation.run(Options(policy=PREFIX, case=number)).failures == []


def test_a_replay_ends_with_one_if_the_case_differs(capsys: pytest.CaptureFixture[str]) -> None:
    with planted(KEEPS_TOO_MUCH):
        number = first_difference()
        only = ["--only", "correlation"]
        arguments = [*only, "--policy", str(PREFIX), "--case", str(number)]
        assert main(arguments) == 1
    assert "FAILED" in capsys.readouterr().out
    assert main(arguments) == 0
    assert "agree" in capsys.readouterr().out

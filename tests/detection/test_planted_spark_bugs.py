"""Every bug planted in the core on Spark is found by the comparison with the kernel."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from concordant.spark import job, layout, relations, step
from concordant.spark.layout import SubscriptionSet
from tests.buckets import bucket_summaries, kernel_summaries, ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES

CASE_COUNT_MAX = 400

Plant = Callable[[pytest.MonkeyPatch], None]


class Anything:
    """Equal to whatever it is compared with."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def whole_caps_are_spread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layout, "QUEUED_COUNT_MAX", Anything())


def keys_are_taken_from_the_first_subscription(patch: pytest.MonkeyPatch) -> None:
    def sets_of(subscriptions: Any) -> Any:
        return (SubscriptionSet(tuple(subscriptions), subscriptions[0].partition_by),)

    patch.setattr(job, "sets_of", sets_of)


def delivery_follows_the_text(patch: pytest.MonkeyPatch) -> None:
    def ranks(self: job.Job) -> dict[str, int]:
        return {one.name: index for index, one in enumerate(self.subscriptions)}

    patch.setattr(job.Job, "ranks", property(ranks))


def held_rows_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "packed", lambda table: b"")


def events_at_the_frontier_are_released(patch: pytest.MonkeyPatch) -> None:
    own = step._released
    patch.setattr(step, "_released", lambda state, table, until: own(state, table, until + 1))


def keys_are_shown_without_null(patch: pytest.MonkeyPatch) -> None:
    own = relations._json
    patch.setattr(relations, "_json", lambda value: own("" if value is None else value))


BUGS: tuple[Plant, ...] = (
    whole_caps_are_spread,
    keys_are_taken_from_the_first_subscription,
    delivery_follows_the_text,
    held_rows_are_forgotten,
    events_at_the_frontier_are_released,
    keys_are_shown_without_null,
)


def differs(number: int) -> bool:
    policy = ALL_POLICIES[number % len(ALL_POLICIES)]
    case = ordered(case_of(9, policy, number))
    expected = kernel_summaries(case)
    try:
        return bucket_summaries(case, Random(number), saved=number % 2 == 0) != expected
    except Exception:  # every case is well-typed: whoever raises differs
        return True


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_the_comparison_with_the_kernel_finds(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(differs(number) for number in range(CASE_COUNT_MAX))


def test_without_a_bug_the_same_comparison_finds_nothing() -> None:
    assert not any(differs(number) for number in range(120))

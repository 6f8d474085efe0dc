"""Every bug planted in the core on Spark is found by the comparison with the kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from concordant.spark import job, layout, pieces, relations, step
from concordant.spark.layout import SubscriptionSet
from tests.buckets import (
    Summary,
    bucket_summaries,
    kernel_summaries,
    ordered,
    table_summaries,
)
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES, Case

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


def pieces_are_taken_for_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pieces, "_parted", lambda rows, key: (rows, rows.slice(0, 0)))


def rows_of_a_piece_come_as_they_are(patch: pytest.MonkeyPatch) -> None:
    own = pieces.in_total_order
    patch.setattr(pieces, "in_total_order", lambda rows: rows)
    patch.setattr(pieces, "_joined", lambda found: own(pa.concat_tables(found)))


def ties_are_parted_by_source_alone(patch: pytest.MonkeyPatch) -> None:
    own = pieces._parted
    patch.setattr(pieces, "_parted", lambda rows, key: own(rows, (key[0], key[1], 1 << 62)))


def sets_share_their_places(patch: pytest.MonkeyPatch) -> None:
    own = pieces.owners
    patch.setattr(pieces, "owners", lambda rows, job, index, count: own(rows, job, 0, count))


BUGS: tuple[Plant, ...] = (
    whole_caps_are_spread,
    keys_are_taken_from_the_first_subscription,
    delivery_follows_the_text,
    held_rows_are_forgotten,
    events_at_the_frontier_are_released,
    keys_are_shown_without_null,
    pieces_are_taken_for_whole,
    rows_of_a_piece_come_as_they_are,
    ties_are_parted_by_source_alone,
    sets_share_their_places,
)


@cache
def tried(number: int) -> tuple[Case, list[Summary]]:
    """A case and what the kernel says, which no bug planted here touches."""
    policy = ALL_POLICIES[number % len(ALL_POLICIES)]
    case = ordered(case_of(9, policy, number))
    return case, kernel_summaries(case)


def differs(number: int) -> bool:
    case, expected = tried(number)
    try:
        if bucket_summaries(case, Random(number), saved=number % 2 == 0) != expected:
            return True
        return table_summaries(case, Random(number)) != expected
    except Exception:  # every case is well-typed: whoever raises differs
        return True


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few events are several groups, and each of them several pieces."""
    monkeypatch.setattr(pieces, "GROUP", 8)
    monkeypatch.setattr(pieces, "PIECE", 3)
    monkeypatch.setattr(pieces, "MERGED_BYTES", 1)


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_the_comparison_with_the_kernel_finds(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(differs(number) for number in range(CASE_COUNT_MAX))


def test_without_a_bug_the_same_comparison_finds_nothing() -> None:
    assert not any(differs(number) for number in range(120))

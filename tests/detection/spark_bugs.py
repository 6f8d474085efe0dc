"""Bugs planted in the core on Spark, and the comparison with the kernel that has to find them.

A case is cut into buckets, into pieces of tables, and into files that tasks read, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from concordant.spark import csv, job, layout, pieces, relations, scan, step
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
from tests.scans import file_summaries

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


def rows_without_columns_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    own = scan._travelling

    def travelling(given: Any, table: Any, share: Any, count: int, names: Any = None) -> Any:
        return own(given, table, share, table.num_rows, names)

    patch.setattr(scan, "_travelling", travelling)


def the_first_set_says_whose_rows_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scan._Share, "of_any_set", lambda self, rows: self.of_set(rows, 0))


def what_was_read_first_is_of_other_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(csv, "_filtered", lambda values, mine: values.slice(0, int(mine.sum())))


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
    rows_without_columns_are_not_counted,
    the_first_set_says_whose_rows_are_read,
    what_was_read_first_is_of_other_rows,
)


@cache
def tried(number: int) -> tuple[Case, list[Summary]]:
    """A case and what the kernel says, which no bug planted here touches."""
    policy = ALL_POLICIES[number % len(ALL_POLICIES)]
    case = ordered(case_of(9, policy, number))
    return case, kernel_summaries(case)


def differs(number: int) -> bool:
    """Is what the core gives for a case anything but the kernel's relations?"""
    case, expected = tried(number)
    try:
        if bucket_summaries(case, Random(number), saved=number % 2 == 0) != expected:
            return True
        if table_summaries(case, Random(number)) != expected:
            return True
        with TemporaryDirectory() as folder:
            return file_summaries(case, Random(number), Path(folder))[0] != expected
    except Exception:  # every case is well-typed: whoever raises differs
        return True


def make_small(patch: pytest.MonkeyPatch) -> None:
    """A few events are several groups, and each of them several pieces."""
    patch.setattr(pieces, "GROUP", 8)
    patch.setattr(pieces, "PIECE", 3)
    patch.setattr(pieces, "MERGED_BYTES", 1)


def cases_to_find(plant: Plant) -> int | None:
    """The number of cases after which a bug was found; None if it survived."""
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        plant(patch)
        return next((n + 1 for n in range(CASE_COUNT_MAX) if differs(n)), None)

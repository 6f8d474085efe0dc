"""Bugs planted in how rows with one place are told apart, and what has to find them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from concordant.spark import step, ties, users
from tests.ties import WAYS, got, make_small, tried

CASE_COUNT_MAX = 40

Plant = Callable[[pytest.MonkeyPatch], None]


def whoever_comes_first_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "by_content", lambda batch, same, read: (batch, np.zeros_like(same)))


def a_cut_parts_rows_of_one_place(patch: pytest.MonkeyPatch) -> None:
    def in_chunks(rows: Any, size: int, *, time_ordered: bool) -> Any:
        del time_ordered
        return (rows.slice(start, size) for start in range(0, rows.num_rows, size))

    patch.setattr(step, "in_chunks", in_chunks)


def filtered_rows_take_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "uses", lambda one, batch: np.ones(len(batch), np.bool_))


def one_predicate_of_a_slot_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(users, "all", any, raising=False)


def partitions_share_a_place(patch: pytest.MonkeyPatch) -> None:
    own = ties.all_but_first
    patch.setattr(
        step, "all_but_first", lambda rows, same, key, usable: own(rows, same, (), usable)
    )


def attributes_that_nobody_reads_decide(patch: pytest.MonkeyPatch) -> None:
    own = ties.by_content
    patch.setattr(step, "by_content", lambda batch, same, read: own(batch, same, ()))


def ids_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ties, "event_ids", lambda batch: pa.nulls(len(batch), pa.string()))


def zeros_have_no_sign(patch: pytest.MonkeyPatch) -> None:
    own = ties._comparable
    patch.setattr(ties, "_comparable", lambda column: own(column)[:3])


def values_come_before_null(patch: pytest.MonkeyPatch) -> None:
    own = ties._comparable

    def comparable(column: Any) -> Any:
        return [~one if one.dtype == np.bool_ else one for one in own(column)]

    patch.setattr(ties, "_comparable", comparable)


def every_set_tells_what_is_no_event(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "heard_before", lambda job, index, topic: False)


def every_set_tells_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "used_before", lambda job, index, batch: np.zeros(len(batch), np.bool_))


def only_the_first_set_tells_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "used_before", lambda job, index, batch: np.full(len(batch), index > 0))


BUGS: tuple[Plant, ...] = (
    whoever_comes_first_is_kept,
    a_cut_parts_rows_of_one_place,
    filtered_rows_take_part,
    one_predicate_of_a_slot_is_enough,
    partitions_share_a_place,
    attributes_that_nobody_reads_decide,
    ids_do_not_count,
    zeros_have_no_sign,
    values_come_before_null,
    every_set_tells_what_is_no_event,
    every_set_tells_copies,
    only_the_first_set_tells_copies,
)


def cases_to_find(plant: Plant) -> int | None:
    """The number of cases after which a bug was found; None if it survived."""
    for number in range(CASE_COUNT_MAX):
        for way in WAYS:
            job, rows, *right = tried(number, way)
            with pytest.MonkeyPatch.context() as patch:
                make_small(patch)
                plant(patch)
                if got(way(job, rows, Random(number))) != tuple(right):
                    return number + 1
    return None

"""A run has done enough when a limit of its own is reached, whatever was done before."""

from __future__ import annotations

from concordant.spark.limits import Done, Limits
from concordant.spark.pipeline import Streaming


def reached(done: Done, now: float = 0.0, **settings: object) -> str:
    stream = Streaming("c", "frontier", **settings)  # type: ignore[arg-type]
    return Limits(stream, Done(4, 100), 10.0).reached(done, now)


def test_without_limits_a_run_has_never_done_enough() -> None:
    assert reached(Done(10**6, 10**9), 10.0**9) == ""


def test_micro_batches_and_relations_count_from_where_the_run_began() -> None:
    assert reached(Done(5, 0), batches_max=2) == ""
    assert reached(Done(6, 0), batches_max=2) == "batches_max = 2"
    assert reached(Done(9, 109), relations_max=10) == ""
    assert reached(Done(9, 110), relations_max=10) == "relations_max = 10"


def test_time_counts_from_the_start() -> None:
    assert reached(Done(), 69.0, time_max="1 min") == ""
    assert reached(Done(), 70.0, time_max="1 min") == "time_max = '1 min'"


def test_relations_of_all_subscriptions_count() -> None:
    counts = {"relations of a": 3, "relations of b": 4, "events": 50}
    assert Done.of(2, counts) == Done(2, 7)

"""A bucket that a worker kept open is taken again only for the bytes it was saved as."""

from __future__ import annotations

from typing import Any

from concordant.language import parse
from concordant.language.check import check
from concordant.model.event import Event
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark.job import Job, make_job
from concordant.spark.step import Bucket, advance
from concordant.spark.warm import WarmBuckets, unpacked_job
from tests.buckets import rows_of, summaries

TOPICS = {"T": Topic("T", {"k": Kind.INT, "v": Kind.INT})}


def job_of(text: str) -> Job:
    return make_job(check(parse(text), TOPICS), TOPICS, {})


JOB = job_of("up: T[1].v < T[2].v consume matched partition by k")


def rows(*values: int, start: int) -> Any:
    events = [Event("T", "s", n, n, {"k": 1, "v": v}) for n, v in enumerate(values, start)]
    return rows_of(JOB, [(0, event) for event in events])


def stepped(bucket: Bucket, *values: int, start: int) -> tuple[bytes, list[Any]]:
    answers = advance(bucket, rows(*values, start=start), until_us=start + len(values))
    return bucket.save(), summaries(answers)


def test_the_same_bytes_give_the_open_bucket_and_the_relations_of_a_cold_one() -> None:
    warm = WarmBuckets()
    first = warm.open(JOB.packed, None)
    state, _ = stepped(first, 5, 3, start=1)
    warm.keep(first, state)
    again = warm.open(JOB.packed, state)
    assert again is first
    cold = Bucket(unpacked_job(JOB.packed), state)
    _, expected = stepped(cold, 4, 9, start=3)
    assert stepped(again, 4, 9, start=3)[1] == expected != []
    assert warm.open(JOB.packed, state) is not first  # whoever has it has it alone


def test_a_retry_gets_the_older_bytes_and_not_the_bucket_that_went_on() -> None:
    warm = WarmBuckets()
    bucket = warm.open(JOB.packed, None)
    before, _ = stepped(bucket, 5, 3, start=1)
    after, found = stepped(bucket, 4, 9, start=3)
    warm.keep(bucket, after)
    retried = warm.open(JOB.packed, before)
    assert retried is not bucket
    assert stepped(retried, 4, 9, start=3)[1] == found != []


def test_another_job_never_gets_the_bucket() -> None:
    warm = WarmBuckets()
    bucket = warm.open(JOB.packed, None)
    state = bucket.save()
    warm.keep(bucket, state)
    other = make_job(JOB.subscriptions, TOPICS, {}, skip_bad=True)
    assert warm.open(other.packed, state).job == other


def test_what_is_kept_is_bounded_by_its_bytes() -> None:
    warm = WarmBuckets(bytes_max=1)
    bucket = warm.open(JOB.packed, None)
    state = bucket.save()
    warm.keep(bucket, state)
    assert warm.open(JOB.packed, state) is not bucket


def test_a_bucket_tells_what_it_did_since_the_last_time() -> None:
    bucket = Bucket(JOB)
    state, _ = stepped(bucket, 5, 3, start=1)
    assert bucket.told(state) == {
        "events": 2,
        "events of T": 2,
        "state_bytes": len(state),
        "held": 0,
        "capped": 0,
    }
    for opened in (bucket, Bucket(JOB, state)):
        after, _ = stepped(opened, 4, 9, start=3)
        told = opened.told(after)
        assert (told["events"], told["relations of up"]) == (2, 2)
        assert told["state_bytes"] == len(after) - len(state)


def test_what_a_cap_dropped_is_told_once() -> None:
    bucket = Bucket(job_of("up: T[1].v < T[2].v consume matched partition by k cap 2"))
    advance(bucket, rows(9, 8, 7, start=1), until_us=9)
    assert bucket.told(bucket.save())["capped"] > 0
    advance(bucket, rows(start=9), until_us=10)
    assert bucket.told(bucket.save())["capped"] == 0

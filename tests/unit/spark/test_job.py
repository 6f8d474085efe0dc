"""What a job says of its columns."""

from __future__ import annotations

import pytest

from concordant.language import parse
from concordant.language.check import check
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark.job import make_job
from concordant.spark.layout import SubscriptionSet
from concordant.spark.users import heard_before

TOPICS = {name: Topic(name, {"k": Kind.INT}) for name in "ABT"}


def test_slots_are_those_of_the_subscription_that_is_still_wanted() -> None:
    wanted = check(parse("old: A then B\nnew: B then T"), TOPICS)
    job = make_job(wanted, TOPICS, {}, generations=[["old"], ["new"]], muted=["old"])
    assert [slot.name for slot in job.slots] == ["B", "T"]
    assert make_job(wanted, TOPICS, {}, muted=["new"]).slots[0].name == "A"
    assert make_job(wanted, TOPICS, {}).slots == ()
    assert make_job(wanted, TOPICS, {}, muted=["old", "new"]).slots == ()


def test_a_row_that_is_no_event_is_told_by_the_first_set_that_is_still_wanted() -> None:
    wanted = check(parse("one: A\ntwo: A then B partition by k\nthree: B then T"), TOPICS)
    names = [["one"], ["two"], ["three"]]
    job = make_job(wanted, TOPICS, {}, generations=names, muted=["one"])
    heard = {
        topic: [heard_before(job, index, topic) for index in range(3)]
        for topic in ("A", "B", "T", "other", None)
    }
    assert heard == {
        "A": [False, False, True],
        "B": [False, False, True],
        "T": [False, False, False],
        "other": [False, False, False],
        None: [False, False, True],
    }


def test_who_tells_a_row_is_not_worked_out_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"s{n}: A then B partition by k" for n in range(3))
    job = make_job(
        check(parse(text), TOPICS), TOPICS, {}, generations=[[f"s{n}"] for n in range(3)]
    )
    heard_before(job, 2, "A")
    monkeypatch.delattr(SubscriptionSet, "topics")
    assert heard_before(job, 2, "A") and not heard_before(job, 0, None)

"""What a job says of its columns."""

from __future__ import annotations

from concordant.language import parse
from concordant.language.check import check
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark.job import make_job

TOPICS = {name: Topic(name, {"k": Kind.INT}) for name in "ABT"}


def test_slots_are_those_of_the_subscription_that_is_still_wanted() -> None:
    wanted = check(parse("old: A then B\nnew: B then T"), TOPICS)
    job = make_job(wanted, TOPICS, {}, generations=[["old"], ["new"]], muted=["old"])
    assert [slot.name for slot in job.slots] == ["B", "T"]
    assert make_job(wanted, TOPICS, {}, muted=["new"]).slots[0].name == "A"
    assert make_job(wanted, TOPICS, {}).slots == ()
    assert make_job(wanted, TOPICS, {}, muted=["old", "new"]).slots == ()

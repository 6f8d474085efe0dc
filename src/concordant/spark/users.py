"""Who can use an event: the sets of subscriptions that it may enter a queue of, and the first one.

Exactly what predicates on one slot say of it, whoever has filtered rows before and how roughly. A
row that travels to several sets is told by one of them. Pure: jobs and batches in, masks out.
"""

from __future__ import annotations

import numpy as np

from concordant.correlate.columns import Array, Batch
from concordant.model.event import Event
from concordant.model.expression import Read
from concordant.model.predicate import holds
from concordant.spark.job import Job
from concordant.spark.layout import SubscriptionSet


def uses(one: SubscriptionSet, batch: Batch) -> Array:
    """Which events some subscription of a set can use."""
    found = np.zeros(len(batch), np.bool_)
    for code, topic in enumerate(batch.topic_names):
        rows = np.flatnonzero(batch.topic == code)
        if not len(rows) or topic not in one.topics:
            continue
        alternatives = one.alternatives(topic)
        if alternatives is None:
            found[rows] = True
            continue
        for row in rows.tolist():
            read = _reader(batch.event(row))
            found[row] = any(all(holds(p, read) for p in each) for each in alternatives)
    return found


def _reader(event: Event) -> Read:
    return lambda _, name: event.read(name)


def used_before(job: Job, index: int, batch: Batch) -> Array:
    """Which events a set before this one can use as well: that one tells them."""
    found = np.zeros(len(batch), np.bool_)
    for one in _before(job, index):
        found |= uses(one, batch)
    return found


def heard_before(job: Job, index: int, topic: str | None) -> bool:
    """Does a set before this one get all rows of a topic that are no events, or of none?"""
    if topic is None:
        return min(job.first_sets.values(), default=index) < index
    return job.first_sets.get(topic, index) < index


def _before(job: Job, index: int) -> list[SubscriptionSet]:
    return [one for place, one in enumerate(job.sets[:index]) if place not in job.dead_sets]

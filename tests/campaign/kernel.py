"""The compiled kernel on one seeded case, against the relations that the others deliver.

The kernel runs twice: over the whole stream as one batch, and over the stream cut into batches, its
state saved between some of them and loaded in a new kernel, in the same one, or not at all. A place
is a text, so that it can be shrunk and printed with the engine's cuts, which are plain event ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from random import Random

import numpy as np

from concordant.correlate.columns import Batch
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import Plan
from concordant.correlate.stage import SCANNED_COUNT_MAX
from concordant.model.relation import Relation
from concordant.model.subscription import Policy
from tests.campaign import compare
from tests.campaign.compare import contrast, plan_of
from tests.generators import Case

SPLIT = "a new batch at "
SAVED = "saved and loaded in a new kernel at "
RELOADED = "saved and loaded in place at "
LEFT = "saved and gone on without a load at "
INDEXED = "queues indexed from the second event on"
"""Stands among the places as well: the queues of a case are too short for an index otherwise."""
PUSHED = "every second batch as single events"
"""Stands among the places as well."""

INDEXED_SHARE = 0.7
PUSHED_SHARE = 0.4
EVERYWHERE_SHARE = 0.15
"""Cases in which every event is a batch of its own; in half of them every one is saved too."""


def places_of_case(seed: int, policy: Policy, number: int, case: Case) -> frozenset[str]:
    """The places that belong to a case's name."""
    return places_of(case, Random(f"{seed}/{policy}/{number}/places"))


def places_of(case: Case, rng: Random) -> frozenset[str]:
    """Where the stream is cut, and what is done there; each is named after the event that follows.

    Few saves, because starting a kernel is what a case costs.
    """
    ids = [event.id for event in case.events]
    found = {INDEXED} if rng.random() < INDEXED_SHARE else set()
    if rng.random() < PUSHED_SHARE:
        found.add(PUSHED)
    if rng.random() < EVERYWHERE_SHARE:
        how = rng.choice((SPLIT, SPLIT, RELOADED, LEFT))
        return frozenset(found | {how + one for one in ids})
    found |= {SPLIT + one for one in rng.sample(ids, rng.randint(0, min(5, len(ids))))}
    for one in rng.sample(ids, min(len(ids), rng.choice((0, 1, 1, 2)))):
        found.add(rng.choice((SAVED, RELOADED, LEFT)) + one)
    return frozenset(found)


def kernel_relations(case: Case, plan: Plan, places: Collection[str] = ()) -> list[Relation]:
    """What the kernel delivers when the stream is cut in these places."""
    scanned = 1 if INDEXED in places else SCANNED_COUNT_MAX

    def new_kernel() -> Kernel:
        return Kernel(plan, time_ordered=case.time_ordered, scanned_count_max=scanned)

    kernel = new_kernel()
    batch = Batch.of(case.events, case.topics)
    ids = [event.id for event in case.events]
    starts = [0, *(i for i in range(1, len(ids)) if any(how + ids[i] in places for how in _HOW))]
    found: list[Relation] = []
    for number, (start, stop) in enumerate(pairwise([*starts, len(ids)])):
        if SAVED + ids[start] in places:
            state = kernel.save()
            kernel = new_kernel()
            kernel.load(state)
        elif RELOADED + ids[start] in places:
            kernel.load(kernel.save())
        elif LEFT + ids[start] in places:
            kernel.save()  # lets go of rows
        if PUSHED in places and number % 2 == 0:
            for event in case.events[start:stop]:
                found += kernel.push(event)
        else:
            found += kernel.step(batch.take(np.arange(start, stop)) if places else batch)
    return found


_HOW = (SPLIT, SAVED, RELOADED, LEFT)


def summaries(relations: Iterable[Relation]) -> list[str]:
    """Relations as text without their events' attributes.

    A batch does not tell a null from a missing attribute, and events name themselves by their ids.
    """
    return [
        repr((r.subscription, r.conjunction, r.key, r.ordinal, r.position, r.event_ids, r.at))
        for r in relations
    ]


def difference(case: Case, places: Collection[str], expected: list[str]) -> str | None:
    """How the kernel differs from what is expected (see `summaries`); None if it does not.

    A kernel that raises differs as well: every case is well-typed.
    """
    try:
        plan = plan_of(case)
        for way, where in (("as one batch", ()), ("in batches", places)):
            found = summaries(kernel_relations(case, plan, where))
            if found != expected:
                return f"{way}:\n" + contrast(found, expected, "kernel")
    except Exception as error:
        return f"the kernel raised {type(error).__name__}: {error}"
    return None


def differs(case: Case, places: Collection[str]) -> str | None:
    """The difference between the engine, the kernel and the oracle on this case, if there is one.

    `places` are cuts of the engine (event ids) and places of the kernel.
    """
    expected = compare.oracle_relations(case)
    return compare.difference(case, places, compare.written(expected)) or difference(
        case, places, summaries(expected)
    )

"""What makes a subscription slow, in words.

A search tries combinations where no predicate leads it. This module looks at a plan and names the
slot or predicate to blame; it measures nothing (the kernel counts) and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from concordant.correlate.plan import Part, SubscriptionPlan
from concordant.model.expression import slots_of
from concordant.model.predicate import Comparison


def to_blame(plan: SubscriptionPlan) -> str:
    """The worst reason why a search of this subscription may look at many events.

    >>> from concordant.correlate.plan import compile_plan
    >>> from concordant.language import parse
    >>> from concordant.model.topic import Topic
    >>> topics = {name: Topic(name) for name in "AB"}
    >>> to_blame(compile_plan(parse("A and B"), topics).subscriptions[0])
    'no comparison ties B[1] to another slot'
    """
    reasons = sorted(
        reason
        for conjunction in plan.conjunctions
        for part in conjunction.parts
        for reason in _reasons(part)
    )
    return reasons[-1][1] if reasons else "its queues are long"


def _reasons(part: Part) -> Iterator[tuple[int, str]]:
    """Reasons with their weight; one of them is given for each slot that may be tried often."""
    for index, slot in enumerate(part.slots):
        pairs = [pair.predicate for pair in part.binary[index]]
        if not pairs and len(part.slots) > 1:
            yield 2, f"no comparison ties {slot} to another slot"
        elif pairs and not any(map(_leads, pairs)):
            yield 1, f"'{pairs[0]}' has to be tried on every event queued for {slot}"
        elif len(pairs) > 1:
            yield 0, f"{len(pairs)} comparisons meet at {slot}, and an index follows one of them"


def _leads(predicate: Comparison) -> bool:
    """Can an index answer it: one slot on each side, and not `!=`?"""
    sides = {slots_of(predicate.left), slots_of(predicate.right)}
    return predicate.op != "!=" and all(len(side) == 1 for side in sides) and len(sides) == 2

"""Match: which combination of queued events wins.

Topics are visited in topic order, instances 1 to w with the earliest event first (`first`), or w to
1 with the latest first (`recent`); the first full combination that satisfies every predicate wins.
Depth-first, predicates tested as soon as both slots are bound. This is the clear form: plain loops
over lists, for reading and for checking the kernel against.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from concordant.correlate.plan import Part
from concordant.model.event import Event
from concordant.model.expression import Slot
from concordant.model.kind import Value
from concordant.model.predicate import Comparison, holds
from concordant.model.subscription import Match, Policy


class Entry(msgspec.Struct, frozen=True, eq=False):
    """An event in a queue."""

    event: Event
    position: int
    """Its place in the total order."""
    number: int
    """Its place in its topic's stream (per partition value), counted before any filter."""
    serial: int
    """Its place in the order in which events were given, derived ones included."""

    def read(self, _slot: Slot, name: str) -> Value:
        """What a unary predicate reads: this event, whichever slot is named."""
        return self.position if name == "position" else self.event.read(name)


Bound = list[Entry | None]


def fits(entry: Entry, predicates: Sequence[Comparison]) -> bool:
    """Do all unary predicates of a slot hold for an event?"""
    return all(holds(predicate, entry.read) for predicate in predicates)


def find(
    part: Part,
    queues: Mapping[str, Sequence[Entry]],
    *,
    policy: Policy,
    within_us: int | None,
    pinned: Entry | None = None,
) -> list[Entry] | None:
    """The winning combination in slot order, or None.

    `pinned` must be the last instance of its topic: under `prefix`, `matched` and `suffix` nothing
    else can match when it has just arrived.
    """
    if any(len(queues[topic]) < len(part.slots_of_topic[topic]) for topic in part.topics):
        return None
    bound: Bound = [None] * len(part.slots)
    visit = list(_visiting_order(part, policy.match))
    if pinned is not None:
        last = part.slots_of_topic[pinned.event.topic][-1]
        if not fits(pinned, part.unary[last]):
            return None
        bound[last] = pinned
        visit.remove(last)
    if _extend(part, queues, policy, within_us, visit, bound):
        return [entry for entry in bound if entry is not None]
    return None


def _visiting_order(part: Part, match: Match) -> Iterator[int]:
    for topic in part.topics:
        slots = part.slots_of_topic[topic]
        yield from slots if match is Match.FIRST else reversed(slots)


def _extend(
    part: Part,
    queues: Mapping[str, Sequence[Entry]],
    policy: Policy,
    within_us: int | None,
    visit: Sequence[int],
    bound: Bound,
) -> bool:
    if not visit:
        return True
    slot = visit[0]
    queue = queues[part.slots[slot].topic]
    for entry in queue if policy.match is Match.FIRST else reversed(queue):
        if may_take(part, slot, entry, bound, contiguous=policy.contiguous, within_us=within_us):
            bound[slot] = entry
            if _extend(part, queues, policy, within_us, visit[1:], bound):
                return True
            bound[slot] = None
    return False


def may_take(
    part: Part, slot: int, entry: Entry, bound: Bound, *, contiguous: bool, within_us: int | None
) -> bool:
    """Can an event take a slot beside those already bound?"""
    return (
        _in_stream_order(part, slot, entry, bound, contiguous)
        and fits(entry, part.unary[slot])
        and _near(entry, bound, within_us)
        and all(
            pair_holds(part, slot, entry, pair.predicate, other)
            for pair in part.binary[slot]
            if (other := bound[pair.right if pair.left == slot else pair.left]) is not None
        )
    )


def _in_stream_order(part: Part, slot: int, entry: Entry, bound: Bound, contiguous: bool) -> bool:
    for other in part.slots_of_topic[part.slots[slot].topic]:
        taken = bound[other]
        if taken is None:
            continue
        distance = entry.number - taken.number
        if contiguous and distance != slot - other:
            return False
        if (distance > 0) != (slot > other) or distance == 0:
            return False
    return True


def _near(entry: Entry, bound: Bound, within_us: int | None) -> bool:
    return within_us is None or all(
        abs(entry.event.time - other.event.time) <= within_us for other in bound if other
    )


def pair_holds(part: Part, slot: int, entry: Entry, predicate: Comparison, other: Entry) -> bool:
    """Does a binary predicate hold for an event in a slot and the event in the other slot?"""
    here = part.slots[slot]
    return holds(predicate, lambda s, name: (entry if s == here else other).read(s, name))

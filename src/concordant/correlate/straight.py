"""Which part of a subscription goes the straight way, and its record for `compiled.straight`.

Nothing here is compiled, and nothing here sees an event.
"""

from __future__ import annotations

from collections.abc import Sequence

from concordant.correlate.compiled import layout as at
from concordant.correlate.plan import Part, SubscriptionPlan
from concordant.model.subscription import QUEUED_COUNT_MAX, Consume, Match

_COMPARED = (at.OP_LT, at.OP_LE, at.OP_GT, at.OP_GE)

Step = tuple[int, int, int]
"""A slot, the step that it is bound to or -1, and the predicate that binds it."""


def straight_record(
    words: Sequence[int], plan: SubscriptionPlan, part: Part, record: Sequence[int], kept: int
) -> list[int] | None:
    """The words of a part's straight way; None if it has none.

    `kept` is where the block has room for what is kept of it, see `kept_size`.
    """
    if not _simple(plan, part):
        return None
    steps = _ordered(words, record) if record[at.PART_ORDERED] else _compared(words, record)
    if steps is None:
        return None
    compared = not record[at.PART_ORDERED]
    found = [int(compared), len(steps), kept if compared else 0]
    for index, (slot, after, pair) in enumerate(steps):
        topic = _topic(words, record, slot)
        bound = [i for i, step in enumerate(steps) if step[1] == index]
        siblings = [i for i, step in enumerate(steps) if i > index and 0 <= after == step[1]]
        one = [0] * at.STEP_SIZE
        one[at.STEP_QUEUE] = words[topic + at.TOPIC_QUEUE]
        one[at.STEP_SLOT] = slot
        one[at.STEP_AFTER] = after
        one[at.STEP_TOPIC] = topic
        one[at.STEP_CHILD] = bound[0] if bound else -1
        one[at.STEP_SIBLING] = siblings[0] if siblings else -1
        if after >= 0 and pair:
            op = words[pair + at.BINARY_OP]
            one[at.STEP_MINE] = words[pair + at.BINARY_MINE]
            one[at.STEP_THEIRS] = words[pair + at.BINARY_THEIRS]
            one[at.STEP_TURNED] = -1 if op in (at.OP_GT, at.OP_GE) else 0
            # Which side gives way follows from where a word has room: no value is NULL.
            one[at.STEP_LOWERED] = int(op == at.OP_LE)
            one[at.STEP_RAISED] = int(op == at.OP_GE)
        else:
            one[at.STEP_MINE] = at.COL_ROW
        found += one
    if compared and _in_line(words, found):
        found[at.STRAIGHT_COMPARED] = at.COMPARED_IN_LINE
    return found


def _in_line(words: Sequence[int], straight: Sequence[int]) -> bool:
    """Has each step at most one that is bound to it, and does only what columns say matter?"""
    steps = [
        straight[i : i + at.STEP_SIZE]
        for i in range(at.STRAIGHT_STEPS, len(straight), at.STEP_SIZE)
    ]
    return all(
        one[at.STEP_SIBLING] < 0
        and words[one[at.STEP_TOPIC] + at.TOPIC_NEEDS_COUNT] == 0
        and (one[at.STEP_AFTER] < 0 or min(one[at.STEP_MINE], one[at.STEP_THEIRS]) >= 0)
        for one in steps
    )


def kept_size(straight: Sequence[int]) -> int:
    """The words of a block that a straight way needs."""
    return 1 + straight[at.STRAIGHT_COUNT] if straight[at.STRAIGHT_COMPARED] else 0


def _simple(plan: SubscriptionPlan, part: Part) -> bool:
    """The first match, its prefix consumed, one event per topic, and nothing else to heed."""
    asked = plan.subscription
    return (
        asked.policy.match is Match.FIRST
        and asked.policy.consume is Consume.PREFIX
        and not asked.policy.contiguous
        and asked.within_us is None
        and asked.queue_count_max is None
        and asked.queued_count_max == QUEUED_COUNT_MAX
        and all(len(one.parts) == 1 for one in plan.conjunctions)
        and all(len(slots) == 1 for slots in part.slots_of_topic.values())
    )


def _topic(words: Sequence[int], record: Sequence[int], slot: int) -> int:
    index = words[record[at.PART_SLOTS] + slot * at.SLOT_SIZE + at.SLOT_TOPIC]
    return record[at.PART_TOPICS] + index * at.TOPIC_SIZE


def _ordered(words: Sequence[int], record: Sequence[int]) -> list[Step] | None:
    """Slots along the order constraints; None unless each comes after one other at most."""
    if not record[at.PART_ACYCLIC]:
        return None
    slots = list(range(record[at.PART_SLOT_COUNT]))
    after = dict.fromkeys(slots, -1)
    for i in range(record[at.PART_BEFORE_COUNT]):
        one = record[at.PART_BEFORE] + i * at.BEFORE_SIZE
        earlier, later = words[one + at.BEFORE_SLOT], words[one + at.BEFORE_LATER]
        columns = words[one + at.BEFORE_COLUMN], words[one + at.BEFORE_LATER_COLUMN]
        if columns != (at.COL_ROW, at.COL_ROW) or after[later] not in (-1, earlier):
            return None
        after[later] = earlier
    steps: list[Step] = []
    place: dict[int, int] = {}
    while len(place) < len(slots):
        slot = next(s for s in slots if s not in place and (after[s] < 0 or after[s] in place))
        place[slot] = len(steps)
        steps.append((slot, place.get(after[slot], -1), 0))
    return steps


def _compared(words: Sequence[int], record: Sequence[int]) -> list[Step] | None:
    """Slots as they are visited; None unless one inequality binds each to one before, at most."""
    count = record[at.PART_SLOT_COUNT]
    if count > at.STRAIGHT_COUNT_MAX:
        return None
    visited = list(words[record[at.PART_VISIT] : record[at.PART_VISIT] + count])
    steps: list[Step] = []
    for place, slot in enumerate(visited):
        one = record[at.PART_SLOTS] + slot * at.SLOT_SIZE
        pairs = [
            words[one + at.SLOT_BINARY] + i * at.BINARY_SIZE
            for i in range(words[one + at.SLOT_BINARY_COUNT])
        ]
        earlier = [p for p in pairs if visited.index(words[p + at.BINARY_OTHER]) < place]
        if len(earlier) > 1 or not all(_direct(words, pair) for pair in pairs):
            return None
        after = visited.index(words[earlier[0] + at.BINARY_OTHER]) if earlier else -1
        steps.append((slot, after, earlier[0] if earlier else 0))
    return steps


def _direct(words: Sequence[int], pair: int) -> bool:
    """Is a predicate an inequality of two columns that have the same encoding?"""
    return (
        words[pair + at.BINARY_PROGRAM] < 0
        and words[pair + at.BINARY_HOW] == at.HOW_SAME
        and words[pair + at.BINARY_OP] in _COMPARED
    )

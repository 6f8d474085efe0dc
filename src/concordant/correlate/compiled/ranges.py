"""Where in the queues a match can lie: ranges of places per slot, before any search.

Queues are in stream order, so positions (and times, where they never decrease) ascend along them:
what is too old, too early or too late is cut off by binary search.
"""

from __future__ import annotations

from concordant.correlate.compiled.jit import compiled, inlined
from concordant.correlate.compiled.layout import (
    AT_HIGH,
    AT_LOW,
    COL_TIME,
    PART_BEFORE,
    PART_BEFORE_COUNT,
    PART_SLOT_COUNT,
    PART_SLOTS,
    PART_TOPICS,
    Q_DATA,
    SLOT_SIZE,
    SLOT_TOPIC,
    TOPIC_QUEUE,
    TOPIC_SIZE,
)


@inlined
def row_at(arena, place):
    """The row of an entry, also of a removed one."""
    entry = arena[place]
    return entry if entry >= 0 else ~entry


@compiled
def first_from(arena, data, low, high, cells, width, column, value, strict):
    """The first place whose value is at least `value` (greater, if strict); values ascend."""
    while low < high:
        middle = (low + high) >> 1
        found = cells[row_at(arena, data + middle) * width + column]
        if found > value or (found == value and not strict):
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def queue_of(plan, part, block, slot):
    topic = plan[plan[part + PART_SLOTS] + slot * SLOT_SIZE + SLOT_TOPIC]
    return block + plan[plan[part + PART_TOPICS] + topic * TOPIC_SIZE + TOPIC_QUEUE]


@compiled
def shrink_to_time(plan, part, block, arena, cells, width, scratch, oldest):
    """Leave out of the slots' ranges what is older than `within` allows."""
    for slot in range(plan[part + PART_SLOT_COUNT]):
        data = arena[queue_of(plan, part, block, slot) + Q_DATA]
        low = scratch[AT_LOW + slot]
        high = scratch[AT_HIGH + slot]
        low = first_from(arena, data, low, high, cells, width, COL_TIME, oldest, False)
        scratch[AT_LOW + slot] = low


@compiled
def shrink_to_order(plan, part, block, arena, cells, width, scratch):
    """Shrink the slots' ranges by order constraints; False if one is empty.

    Constraints of the form "earlier than" are closed under minimum, so for these alone the lower
    ends that remain are themselves a match (and the upper ends are the most recent one).
    """
    slot_count = plan[part + PART_SLOT_COUNT]
    count = plan[part + PART_BEFORE_COUNT]
    for _ in range(slot_count + 1):
        changed = False
        address = plan[part + PART_BEFORE]
        for _ in range(count):
            one = plan[address]
            column = plan[address + 1]
            other = plan[address + 2]
            other_column = plan[address + 3]
            strict = plan[address + 4] != 0
            address += 5
            low = scratch[AT_LOW + one]
            high = scratch[AT_HIGH + one]
            other_low = scratch[AT_LOW + other]
            other_high = scratch[AT_HIGH + other]
            if low >= high or other_low >= other_high:
                return False
            data = arena[queue_of(plan, part, block, one) + Q_DATA]
            other_data = arena[queue_of(plan, part, block, other) + Q_DATA]
            value = cells[row_at(arena, data + low) * width + column]
            new = other_low
            first = cells[row_at(arena, other_data + other_low) * width + other_column]
            if first < value or (strict and first == value):
                new = first_from(
                    arena,
                    other_data,
                    other_low,
                    other_high,
                    cells,
                    width,
                    other_column,
                    value,
                    strict,
                )
            if new != other_low:
                scratch[AT_LOW + other] = new
                changed = True
                if new >= other_high:
                    return False
            value = cells[row_at(arena, other_data + other_high - 1) * width + other_column]
            last = cells[row_at(arena, data + high - 1) * width + column]
            if last > value or (strict and last == value):
                new = first_from(arena, data, low, high, cells, width, column, value, not strict)
                scratch[AT_HIGH + one] = new
                changed = True
                if new <= low:
                    return False
        if not changed:
            break
    for slot in range(slot_count):
        if scratch[AT_LOW + slot] >= scratch[AT_HIGH + slot]:
            return False
    return True

"""Where in the queues a match can lie: ranges of places per slot, before any search.

Queues are in stream order, so positions (and times, where they never decrease) ascend along them:
what is too old, too early or too late is cut off by binary search.
"""

from __future__ import annotations

from concordant.correlate.compiled.jit import compiled, folded, inlined
from concordant.correlate.compiled.layout import (
    AT_HIGH,
    AT_LOW,
    BEFORE_COLUMN,
    BEFORE_LATER,
    BEFORE_LATER_COLUMN,
    BEFORE_LATER_QUEUE,
    BEFORE_QUEUE,
    BEFORE_SIZE,
    BEFORE_SLOT,
    BEFORE_STRICT,
    COL_ROW,
    COL_TIME,
    NO_MATCH,
    OPEN,
    PART_ACYCLIC,
    PART_BEFORE,
    PART_BEFORE_COUNT,
    PART_SLOT_COUNT,
    PART_SLOTS,
    PART_TOPICS,
    Q_DATA,
    SETTLED,
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


@inlined
def cell(cells, width, row, column):
    """The value that an order constraint compares."""
    return row if column == COL_ROW else cells[row * width + column]


@compiled
def first_from(arena, data, low, high, cells, width, column, value, strict):
    """The first place whose value is at least `value` (greater, if strict); values ascend."""
    while low < high:
        middle = (low + high) >> 1
        found = cell(cells, width, row_at(arena, data + middle), column)
        if found > value or (found == value and not strict):
            high = middle
        else:
            low = middle + 1
    return low


@folded
def queue_of(plan, part, block, slot):
    topic = plan[plan[part + PART_SLOTS] + slot * SLOT_SIZE + SLOT_TOPIC]
    return block + plan[plan[part + PART_TOPICS] + topic * TOPIC_SIZE + TOPIC_QUEUE]


@folded
def shrink_to_time(plan, part, block, arena, cells, width, scratch, oldest):
    """Leave out of the slots' ranges what is older than `within` allows."""
    for slot in range(plan[part + PART_SLOT_COUNT]):
        data = arena[queue_of(plan, part, block, slot) + Q_DATA]
        low = scratch[AT_LOW + slot]
        high = scratch[AT_HIGH + slot]
        low = first_from(arena, data, low, high, cells, width, COL_TIME, oldest, False)
        scratch[AT_LOW + slot] = low


@folded
def shrink_to_order(plan, part, block, arena, cells, width, scratch, lower, upper):
    """Shrink the slots' ranges by order constraints: NO_MATCH, OPEN, or SETTLED.

    Constraints of the form "earlier than" are closed under minimum, so once nothing shrinks any
    more the lower ends satisfy them all, and so do the upper ends. Who needs only the `lower` ends
    or only the `upper` ones says so: each alone tells whether there is a match.
    """
    if plan[part + PART_BEFORE_COUNT] == 0:
        return SETTLED
    for _ in range(plan[part + PART_SLOT_COUNT] + 1):
        changed = 0
        if lower:
            changed = _raise_lower_ends(plan, part, block, arena, cells, width, scratch)
            if changed < 0:
                return NO_MATCH
        if upper:
            lowered = _lower_upper_ends(plan, part, block, arena, cells, width, scratch)
            if lowered < 0:
                return NO_MATCH
            changed += lowered
        if changed == 0 or plan[part + PART_ACYCLIC]:
            return SETTLED
    return OPEN


@folded
def _raise_lower_ends(plan, part, block, arena, cells, width, scratch):
    """Once along the constraints; 1 if an end moved, 0 if none did, -1 if a range is empty."""
    changed = 0
    address = plan[part + PART_BEFORE]
    for _ in range(plan[part + PART_BEFORE_COUNT]):
        low = scratch[AT_LOW + plan[address + BEFORE_SLOT]]
        other = plan[address + BEFORE_LATER]
        old = scratch[AT_LOW + other]
        new = old
        column = plan[address + BEFORE_COLUMN]
        if column == -1:
            new = max(old, low + 1)
        else:
            data = arena[block + plan[address + BEFORE_QUEUE] + Q_DATA]
            value = cell(cells, width, row_at(arena, data + low), column)
            column = plan[address + BEFORE_LATER_COLUMN]
            strict = plan[address + BEFORE_STRICT] != 0
            data = arena[block + plan[address + BEFORE_LATER_QUEUE] + Q_DATA]
            first = cell(cells, width, row_at(arena, data + old), column)
            if first < value or (strict and first == value):
                high = scratch[AT_HIGH + other]
                new = first_from(arena, data, old, high, cells, width, column, value, strict)
        if new != old:
            if new >= scratch[AT_HIGH + other]:
                return -1
            scratch[AT_LOW + other] = new
            changed = 1
        address += BEFORE_SIZE
    return changed


@folded
def _lower_upper_ends(plan, part, block, arena, cells, width, scratch):
    """Once against the constraints; answers as above."""
    changed = 0
    address = plan[part + PART_BEFORE] + plan[part + PART_BEFORE_COUNT] * BEFORE_SIZE
    for _ in range(plan[part + PART_BEFORE_COUNT]):
        address -= BEFORE_SIZE
        one = plan[address + BEFORE_SLOT]
        high = scratch[AT_HIGH + plan[address + BEFORE_LATER]]
        old = scratch[AT_HIGH + one]
        new = old
        if plan[address + BEFORE_COLUMN] == -1:
            new = min(old, high - 1)
        else:
            data = arena[block + plan[address + BEFORE_LATER_QUEUE] + Q_DATA]
            column = plan[address + BEFORE_LATER_COLUMN]
            value = cell(cells, width, row_at(arena, data + high - 1), column)
            column = plan[address + BEFORE_COLUMN]
            strict = plan[address + BEFORE_STRICT] != 0
            data = arena[block + plan[address + BEFORE_QUEUE] + Q_DATA]
            last = cell(cells, width, row_at(arena, data + old - 1), column)
            if last > value or (strict and last == value):
                low = scratch[AT_LOW + one]
                new = first_from(arena, data, low, old, cells, width, column, value, not strict)
        if new != old:
            if new <= scratch[AT_LOW + one]:
                return -1
            scratch[AT_HIGH + one] = new
            changed = 1
    return changed

"""Rows that nothing refers to any more leave the store: who is alive, and new numbers for those.

Also what walks over all that is queued for another reason: the order of arrival, for a cap.
"""

from __future__ import annotations

import numpy as np

from concordant.correlate.compiled.index import drop
from concordant.correlate.compiled.jit import compiled, inlined, pointer_at
from concordant.correlate.compiled.layout import (
    BLOCK_NEXT,
    CONTROL_ARENA,
    CONTROL_PLAN,
    PLAN_SUBSCRIPTION_COUNT,
    PLAN_SUBSCRIPTIONS,
    Q_DATA,
    Q_DEAD,
    Q_HEAD,
    Q_TAIL,
    QUEUE_KEPT,
    QUEUE_OFFSET,
    QUEUE_ORDER,
    QUEUE_SIZE,
    QUEUE_TOPIC,
    ROOT_FIRST,
    ROOT_LINE,
    ROOT_QUEUED,
    SUB_QUEUE_COUNT,
    SUB_QUEUES,
    SUB_ROOT,
)

COUNTED = 8
"""The living are counted up to every eighth row; up to a row in between one looks."""


@compiled
def mark(control_array, live):
    """Set live[row] for every row that a queue or a finished part-relation still holds."""
    plan = pointer_at(control_array[CONTROL_PLAN])
    arena = pointer_at(control_array[CONTROL_ARENA])
    for s in range(plan[PLAN_SUBSCRIPTION_COUNT]):
        subscription = plan[plan[PLAN_SUBSCRIPTIONS] + s]
        block = arena[plan[subscription + SUB_ROOT] + ROOT_FIRST]
        while block != 0:
            queue = plan[subscription + SUB_QUEUES]
            for _ in range(plan[subscription + SUB_QUEUE_COUNT]):
                header = block + plan[queue + QUEUE_OFFSET]
                if plan[queue + QUEUE_TOPIC] >= 0 and arena[header + Q_DEAD] != 0:
                    # An index knows places, which change here; new numbers of rows leave it right.
                    drop(plan, plan[queue + QUEUE_TOPIC], block, arena)
                    _squeeze(arena, header)
                data = arena[header + Q_DATA]
                for place in range(arena[header + Q_HEAD], arena[header + Q_TAIL]):
                    live[arena[data + place]] = True
                queue += QUEUE_SIZE
            block = arena[block + BLOCK_NEXT]


@compiled
def queued(control_array, subscription):
    """Every queued event of a subscription: block, topic, row, canonical order of conjunction."""
    plan = pointer_at(control_array[CONTROL_PLAN])
    arena = pointer_at(control_array[CONTROL_ARENA])
    root = plan[subscription + SUB_ROOT]
    found = np.empty((arena[root + ROOT_QUEUED], 4), np.int64)
    count = 0
    block = arena[root + ROOT_FIRST]
    while block != 0:
        for q in range(plan[subscription + SUB_QUEUE_COUNT]):
            queue = plan[subscription + SUB_QUEUES] + q * QUEUE_SIZE
            if plan[queue + QUEUE_TOPIC] < 0:
                continue
            header = block + plan[queue + QUEUE_OFFSET]
            data = arena[header + Q_DATA]
            for place in range(arena[header + Q_HEAD], arena[header + Q_TAIL]):
                if arena[data + place] >= 0:
                    found[count, 0] = block
                    found[count, 1] = plan[queue + QUEUE_TOPIC]
                    found[count, 2] = arena[data + place]
                    found[count, 3] = plan[queue + QUEUE_ORDER]
                    count += 1
        block = arena[block + BLOCK_NEXT]
    return found


@compiled
def _squeeze(arena, header):
    """Drop removed entries from the middle of a queue: they name rows that may leave now."""
    data = arena[header + Q_DATA]
    kept = arena[header + Q_HEAD]
    for place in range(kept, arena[header + Q_TAIL]):
        if arena[data + place] >= 0:
            arena[data + kept] = arena[data + place]
            kept += 1
    arena[header + Q_TAIL] = kept
    arena[header + Q_DEAD] = 0


@compiled
def number(live, before):
    """How many live rows are there; `before` gets how many come before every eighth row."""
    count = 0
    for row in range(len(live)):
        if row % COUNTED == 0:
            before[row // COUNTED] = count
        count += live[row]
    return count


@inlined
def _new_row(live, before, row):
    """The number of a live row among the live ones."""
    first = row & -COUNTED
    count = before[first // COUNTED]
    for i in range(first, row):
        count += live[i]
    return count


@compiled
def pack(cells, live):
    """Move the live rows together."""
    kept = 0
    for row in range(len(live)):
        if live[row]:
            if kept != row:
                for column in range(cells.shape[1]):
                    cells[kept, column] = cells[row, column]
            kept += 1


@compiled
def renumber(control_array, live, before):
    """Replace every row by its new number."""
    plan = pointer_at(control_array[CONTROL_PLAN])
    arena = pointer_at(control_array[CONTROL_ARENA])
    for s in range(plan[PLAN_SUBSCRIPTION_COUNT]):
        subscription = plan[plan[PLAN_SUBSCRIPTIONS] + s]
        root = plan[subscription + SUB_ROOT]
        _renumber_line(arena, root + ROOT_LINE, live, before)
        block = arena[root + ROOT_FIRST]
        while block != 0:
            queue = plan[subscription + SUB_QUEUES]
            for _ in range(plan[subscription + SUB_QUEUE_COUNT]):
                header = block + plan[queue + QUEUE_OFFSET]
                data = arena[header + Q_DATA]
                for place in range(arena[header + Q_HEAD], arena[header + Q_TAIL]):
                    arena[data + place] = _new_row(live, before, arena[data + place])
                if plan[queue + QUEUE_KEPT] != 0:  # worked out anew when it is needed
                    arena[block + plan[queue + QUEUE_KEPT]] = 0
                queue += QUEUE_SIZE
            block = arena[block + BLOCK_NEXT]


@compiled
def _renumber_line(arena, line, live, before):
    """The same for the line, which may name rows that are gone; those leave it."""
    data = arena[line + Q_DATA]
    kept = arena[line + Q_HEAD]
    for place in range(kept, arena[line + Q_TAIL], 3):
        row = arena[data + place + 2]
        if live[row]:
            arena[data + kept] = arena[data + place]
            arena[data + kept + 1] = arena[data + place + 1]
            arena[data + kept + 2] = _new_row(live, before, row)
            kept += 3
    arena[line + Q_TAIL] = kept

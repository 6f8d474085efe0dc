"""Rows that nothing refers to any more leave the store: who is alive, and new numbers for those.

Also what walks over all that is queued for another reason: the order of arrival, for a cap.
"""

from __future__ import annotations

import numpy as np

from concordant.correlate.compiled.index import drop
from concordant.correlate.compiled.jit import compiled, pointer_at
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
                if plan[queue + QUEUE_TOPIC] >= 0:
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
    """Drop removed entries from the middle of a queue."""
    if arena[header + Q_DEAD] == 0:
        return
    data = arena[header + Q_DATA]
    kept = arena[header + Q_HEAD]
    for place in range(kept, arena[header + Q_TAIL]):
        if arena[data + place] >= 0:
            arena[data + kept] = arena[data + place]
            kept += 1
    arena[header + Q_TAIL] = kept
    arena[header + Q_DEAD] = 0


@compiled
def renumber(control_array, new_row):
    """Replace every row by its new number."""
    plan = pointer_at(control_array[CONTROL_PLAN])
    arena = pointer_at(control_array[CONTROL_ARENA])
    for s in range(plan[PLAN_SUBSCRIPTION_COUNT]):
        subscription = plan[plan[PLAN_SUBSCRIPTIONS] + s]
        root = plan[subscription + SUB_ROOT]
        _renumber_line(arena, root + ROOT_LINE, new_row)
        block = arena[root + ROOT_FIRST]
        while block != 0:
            queue = plan[subscription + SUB_QUEUES]
            for _ in range(plan[subscription + SUB_QUEUE_COUNT]):
                header = block + plan[queue + QUEUE_OFFSET]
                data = arena[header + Q_DATA]
                for place in range(arena[header + Q_HEAD], arena[header + Q_TAIL]):
                    arena[data + place] = new_row[arena[data + place]]
                if plan[queue + QUEUE_KEPT] != 0:  # worked out anew when it is needed
                    arena[block + plan[queue + QUEUE_KEPT]] = 0
                queue += QUEUE_SIZE
            block = arena[block + BLOCK_NEXT]


@compiled
def _renumber_line(arena, line, new_row):
    """The same for the line, which may name rows that are gone; those leave it."""
    data = arena[line + Q_DATA]
    kept = arena[line + Q_HEAD]
    for place in range(kept, arena[line + Q_TAIL], 3):
        row = new_row[arena[data + place + 2]]
        if row >= 0:
            arena[data + kept] = arena[data + place]
            arena[data + kept + 1] = arena[data + place + 1]
            arena[data + kept + 2] = row
            kept += 3
    arena[line + Q_TAIL] = kept

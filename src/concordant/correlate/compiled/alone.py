"""The loop over rows for one question alone, if it goes the straight way.

What holds for all its events is looked at once for the rows at hand and not once per event: that
there is room for what they may complete, and that no cap is near. Whatever is not plain (a new
partition, a queue that is too long, an arena that is full) is left to `compiled.loop`.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import find_block
from concordant.correlate.compiled.jit import compiled
from concordant.correlate.compiled.layout import (
    ALONE_PARTED,
    AT_AHEAD,
    AT_ONLY,
    AT_STEPS,
    COMPARED_IN_LINE,
    CONTROL_CANDIDATE,
    CONTROL_OUT,
    CONTROL_OUT_LIMIT,
    CONTROL_OUT_ROWS,
    CONTROL_OUT_ROWS_LIMIT,
    DONE,
    MATCHED,
    PLAN_ALONE,
    PLAN_TOPICS,
    READER_NEEDS_COUNT,
    READER_QUEUED_MAX,
    READER_ROOM,
    READER_ROOT,
    READER_STRAIGHT,
    READER_SUB,
    READER_TESTED,
    ROOT_ADMITTED,
    ROOT_FIRST,
    ROOT_LINED,
    ROOT_QUEUED,
    ROUTER_ONLY,
    STRAIGHT_COMPARED,
)
from concordant.correlate.compiled.near import take_near
from concordant.correlate.compiled.scratch import NEAR_ROWS_MIN
from concordant.correlate.compiled.steps import account, admitted, deliver_straight, of_use
from concordant.correlate.compiled.straight import go_straight


@compiled
def take_alone(plan, arena, cells, codes, width, rank, scratch, out, control, row, looked, stop):
    """Take rows as far as nothing else is to be heeded; says which row is the next.

    `looked` is the first of the rows that were looked at ahead; without partitions there is nothing
    to look for.
    """
    routers = plan[PLAN_TOPICS]
    reader = plan[plan[routers + codes[row]] + ROUTER_ONLY]
    root = plan[reader + READER_ROOT]
    count = stop - row
    if (
        control[CONTROL_CANDIDATE] != 0
        or arena[root + ROOT_LINED] != 0
        or arena[root + ROOT_QUEUED] + count > plan[reader + READER_QUEUED_MAX]
        or control[CONTROL_OUT] + count > control[CONTROL_OUT_LIMIT]
        or control[CONTROL_OUT_ROWS] + count * plan[reader + READER_ROOM]
        > control[CONTROL_OUT_ROWS_LIMIT]
    ):
        return row
    parted = plan[PLAN_ALONE] == ALONE_PARTED
    straight = plan[reader + READER_STRAIGHT]
    if (
        plan[straight + STRAIGHT_COMPARED] == COMPARED_IN_LINE
        and not parted
        and count >= NEAR_ROWS_MIN
    ):
        return take_near(plan, arena, cells, codes, width, rank, scratch, out, control, row, stop)
    block = arena[root + ROOT_FIRST]
    for here in range(row, stop):
        if parted:
            reader = scratch[AT_ONLY + here - looked]
        else:
            reader = plan[plan[routers + codes[here]] + ROUTER_ONLY]
        if plan[reader + READER_TESTED] and not admitted(plan, reader, cells, width, rank, here):
            continue
        if parted:
            block = scratch[AT_AHEAD + here - looked]
            if block == 0:
                block = find_block(plan, plan[reader + READER_SUB], arena, cells, width, here)
        if plan[reader + READER_NEEDS_COUNT] > 0 and not of_use(plan, reader, block, arena):
            arena[root + ROOT_ADMITTED] += 1
            continue
        if block == 0:
            return here
        result = go_straight(plan, reader, arena, cells, width, scratch, here, block)
        if result == MATCHED:
            deliver_straight(plan, reader, block, arena, scratch, out, control, here)
        elif result != DONE:
            return here
        if scratch[AT_STEPS] > 0:
            account(plan, root, arena, scratch)
    return stop

"""The straight way: what most subscriptions ask, found without a search.

The first match, its prefix consumed, one event per topic, nothing else to heed: no `within`, no cap
that is reached, no contiguous events. Then each slot is bound to at most one slot before it, either
because it must come later (`then`) or by one comparison (`<`, `<=`, `>`, `>=`), and the match
follows from one or two looks at short queues.

- Order alone: the oldest event of each queue that comes after the one before it.
- Comparisons: see `compiled.partners`.

The queues are those of `steps.give`, which takes over where one is too long to be looked through.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import append, make_room
from concordant.correlate.compiled.jit import folded, inlined
from concordant.correlate.compiled.layout import (
    ARENA_FULL,
    ASIDE,
    AT_INDEX,
    AT_ROW,
    AT_STEPS,
    DONE,
    MATCHED,
    Q_CAPACITY,
    Q_DATA,
    Q_HEAD,
    Q_TAIL,
    READER_COMPLETES,
    READER_QUEUE,
    READER_ROOT,
    READER_STEP,
    READER_STRAIGHT,
    ROOT_ADMITTED,
    ROOT_QUEUED,
    STEP_AFTER,
    STEP_QUEUE,
    STEP_SIZE,
    STRAIGHT_COMPARED,
    STRAIGHT_COUNT,
    STRAIGHT_STEPS,
)
from concordant.correlate.compiled.partners import complete, ready, take_first, work_out


@folded
def go_straight(plan, reader, arena, cells, width, scratch, row, block):
    """Queue an event and match: DONE, MATCHED, ARENA_FULL, or ASIDE if this is not the way.

    With the last two nothing has been done.
    """
    straight = plan[reader + READER_STRAIGHT]
    compared = plan[straight + STRAIGHT_COMPARED]
    header = block + plan[reader + READER_QUEUE]
    if compared and not ready(plan, straight, block, arena, cells, width, header):
        return ASIDE
    if arena[header + Q_TAIL] == arena[header + Q_CAPACITY] and not make_room(arena, header, 1):
        return ARENA_FULL
    append(arena, header, row)
    root = plan[reader + READER_ROOT]
    arena[root + ROOT_ADMITTED] += 1
    arena[root + ROOT_QUEUED] += 1
    scratch[AT_STEPS] = 0
    if compared:
        step = plan[reader + READER_STEP]
        if not complete(plan, straight, step, block, arena, cells, width, scratch, row):
            return DONE
        take_first(plan, straight, step, block, arena, cells, width, scratch, row)
        _dispose(plan, straight, root, block, arena, scratch)
        work_out(plan, straight, block, arena, cells, width, step)
        return MATCHED
    if not (plan[reader + READER_COMPLETES] and _follow(plan, straight, block, arena, scratch)):
        return DONE
    _dispose(plan, straight, root, block, arena, scratch)
    return MATCHED


@folded
def _follow(plan, straight, block, arena, scratch):
    """Bind each step to the oldest event after that of the step it follows; False if one has none.

    Rows grow with the order of events.
    """
    if _one_empty(plan, straight, block, arena):
        return False
    step = straight + STRAIGHT_STEPS
    for i in range(plan[straight + STRAIGHT_COUNT]):
        header = block + plan[step + STEP_QUEUE]
        place = arena[header + Q_HEAD]
        data = arena[header + Q_DATA]
        found = arena[data + place]
        after = plan[step + STEP_AFTER]
        if after >= 0 and found < scratch[AT_ROW + after]:
            tail = arena[header + Q_TAIL]
            place = _later(arena, data, place, tail, scratch[AT_ROW + after])
            if place == tail:
                return False
            found = arena[data + place]
        scratch[AT_INDEX + i] = place
        scratch[AT_ROW + i] = found
        step += STEP_SIZE
    return True


@inlined
def _one_empty(plan, straight, block, arena):
    """Is a queue empty? Which one is chance: a branch for each would be guessed wrongly."""
    empty = False
    step = straight + STRAIGHT_STEPS
    for _ in range(plan[straight + STRAIGHT_COUNT]):
        header = block + plan[step + STEP_QUEUE]
        empty |= arena[header + Q_HEAD] == arena[header + Q_TAIL]
        step += STEP_SIZE
    return empty


@inlined
def _later(arena, data, low, high, row):
    """The first place whose row is greater."""
    while low < high:
        middle = (low + high) >> 1
        if arena[data + middle] > row:
            high = middle
        else:
            low = middle + 1
    return low


@folded
def _dispose(plan, straight, root, block, arena, scratch):
    """Consume the prefix of every queue up to its matched event."""
    gone = 0
    step = straight + STRAIGHT_STEPS
    for i in range(plan[straight + STRAIGHT_COUNT]):
        header = block + plan[step + STEP_QUEUE]
        stop = scratch[AT_INDEX + i] + 1
        gone += stop - arena[header + Q_HEAD]
        # An empty queue begins anew; without a branch, which would be guessed wrongly.
        left = -(stop != arena[header + Q_TAIL])
        arena[header + Q_TAIL] &= left
        arena[header + Q_HEAD] = stop & left
        step += STEP_SIZE
    arena[root + ROOT_QUEUED] -= gone

"""Who has a partner: matches of events that are compared, found without a search.

One event per topic, each slot bound to at most one slot before it by one comparison: the slots form
trees. An event *can be completed* if in every slot bound to its own there is an event that can be
completed and compares with it. Of those it is enough to know the least: per step one key is kept,
the least value (turned so that "less" is asked for) of its events that can be completed.

A new event changes little. If the keys of the steps bound to its own do not let it be completed, it
changes nothing. If they do, it is passed on to the step that its own is bound to, where the events
that it completes are looked for, and so on; at the top there is a match, which contains it. Then
the first event of each slot that can be completed, and fits the one its slot is bound to, is the
match: none is tried in vain (directional consistency of constraints without cycles).

Keys compare strictly: `<=` and `>=` are made so by one step of the integers that values are. An
event that cannot be completed has the key NOBODY, a null one that passes nothing.
"""

from __future__ import annotations

from concordant.correlate.compiled.index import drop
from concordant.correlate.compiled.jit import compiled, folded, inlined
from concordant.correlate.compiled.layout import (
    AT_INDEX,
    AT_ROW,
    AT_STEPS,
    COL_ROW,
    NULL,
    PLAN_SCANNED,
    Q_DATA,
    Q_HEAD,
    Q_TAIL,
    STEP_AFTER,
    STEP_CHILD,
    STEP_LOWERED,
    STEP_MINE,
    STEP_QUEUE,
    STEP_RAISED,
    STEP_SIBLING,
    STEP_SIZE,
    STEP_THEIRS,
    STEP_TOPIC,
    STEP_TURNED,
    STRAIGHT_COUNT,
    STRAIGHT_KEPT,
    STRAIGHT_LENGTH_MAX,
    STRAIGHT_STEPS,
)
from concordant.correlate.compiled.ranges import cell

NOBODY = 2**63 - 1


@folded
def ready(plan, straight, block, arena, cells, width, header):
    """Are the keys kept, and will all queues be short once an event more is in this one?"""
    length = arena[header + Q_TAIL] - arena[header + Q_HEAD] + 1
    kept = block + plan[straight + STRAIGHT_KEPT]
    if arena[kept] and length < min(plan[PLAN_SCANNED], STRAIGHT_LENGTH_MAX):
        return True
    return _get_ready(plan, straight, block, arena, cells, width, header)


@compiled
def _get_ready(plan, straight, block, arena, cells, width, newest):
    """Work the keys out, or give them up if a queue is too long to be looked through."""
    kept = block + plan[straight + STRAIGHT_KEPT]
    arena[kept] = 0
    for i in range(plan[straight + STRAIGHT_COUNT]):
        header = block + plan[_step(straight, i) + STEP_QUEUE]
        length = arena[header + Q_TAIL] - arena[header + Q_HEAD] + (header == newest)
        if length >= min(plan[PLAN_SCANNED], STRAIGHT_LENGTH_MAX):
            return False
    for i in range(plan[straight + STRAIGHT_COUNT]):
        drop(plan, plan[_step(straight, i) + STEP_TOPIC], block, arena)
    work_out(plan, straight, block, arena, cells, width, -1)
    arena[kept] = 1
    return True


@folded
def work_out(plan, straight, block, arena, cells, width, emptied):
    """The keys of all steps, from the last to the first.

    The queue of the step `emptied` has no event, so the steps above it have none to be completed.
    """
    keys = block + plan[straight + STRAIGHT_KEPT] + 1
    for back in range(plan[straight + STRAIGHT_COUNT]):
        i = plan[straight + STRAIGHT_COUNT] - 1 - back
        if i == emptied:
            arena[keys + i] = NOBODY
            emptied = plan[_step(straight, i) + STEP_AFTER]
        else:
            arena[keys + i] = _least(plan, straight, i, block, arena, cells, width)


@folded
def complete(plan, straight, newest, block, arena, cells, width, scratch, row):
    """Does the event just queued at step `newest` complete a match?

    Whatever a key completes, a lesser one completes too, and until now there was no match: an event
    that is no less than the key kept of its step changes nothing, nor does what it completes above.
    So the keys are exact afterwards, and those on the way of a match are of the new event alone.
    """
    keys = block + plan[straight + STRAIGHT_KEPT] + 1
    key = _key(plan, straight, newest, keys, arena, cells, width, row)
    if key >= arena[keys + newest]:  # or it cannot be completed itself
        return False
    at = newest
    while True:
        arena[keys + at] = key
        above = plan[_step(straight, at) + STEP_AFTER]
        if above < 0:
            return _others(plan, straight, arena, keys)
        header = block + plan[_step(straight, above) + STEP_QUEUE]
        scratch[AT_STEPS] += arena[header + Q_TAIL] - arena[header + Q_HEAD]
        key = _least(plan, straight, above, block, arena, cells, width)
        if key >= arena[keys + above]:
            return False
        at = above


@inlined
def _others(plan, straight, arena, keys):
    """Has every step that is bound to none an event that can be completed?"""
    for i in range(plan[straight + STRAIGHT_COUNT]):
        if plan[_step(straight, i) + STEP_AFTER] < 0 and arena[keys + i] == NOBODY:
            return False
    return True


@folded
def take_first(plan, straight, newest, block, arena, cells, width, scratch, row):
    """Bind each step, from the first on, to its first event that the new one helps to complete."""
    keys = block + plan[straight + STRAIGHT_KEPT] + 1
    for i in range(plan[straight + STRAIGHT_COUNT]):
        step = _step(straight, i)
        header = block + plan[step + STEP_QUEUE]
        data = arena[header + Q_DATA]
        place = arena[header + Q_TAIL] - 1
        found = row
        if i != newest:
            bound = NOBODY
            after = plan[step + STEP_AFTER]
            if after >= 0:
                bound = _bound_of(plan, step, cells, width, scratch[AT_ROW + after])
            last = place
            place = arena[header + Q_HEAD]
            found = arena[data + place]
            while place < last:
                if _key(plan, straight, i, keys, arena, cells, width, found) < bound:
                    break
                place += 1  # a later one does
                found = arena[data + place]
        scratch[AT_INDEX + i] = place
        scratch[AT_ROW + i] = found


@inlined
def _step(straight, i):
    return straight + STRAIGHT_STEPS + i * STEP_SIZE


@inlined
def _own(cells, width, row, mine, turned, lowered):
    """What an event is for the step that its own is bound to; the less, the better."""
    value = cell(cells, width, row, mine)
    return NOBODY if value == NULL else (value ^ turned) - lowered


@inlined
def _bound(cells, width, row, theirs, turned, raised):
    """What the key of a step must be less than for an event of the step that it is bound to."""
    value = cell(cells, width, row, theirs)
    return NULL if value == NULL else (value ^ turned) + raised


@inlined
def _bound_of(plan, step, cells, width, row):
    return _bound(
        cells,
        width,
        row,
        plan[step + STEP_THEIRS],
        plan[step + STEP_TURNED],
        plan[step + STEP_RAISED],
    )


@folded
def _key(plan, straight, i, keys, arena, cells, width, row):
    """The key of one event; NOBODY if it cannot be completed."""
    step = _step(straight, i)
    child = plan[step + STEP_CHILD]
    while child >= 0:
        below = _step(straight, child)
        if arena[keys + child] >= _bound_of(plan, below, cells, width, row):
            return NOBODY
        child = plan[below + STEP_SIBLING]
    return _own(
        cells,
        width,
        row,
        plan[step + STEP_MINE],
        plan[step + STEP_TURNED],
        plan[step + STEP_LOWERED],
    )


@folded
def _least(plan, straight, i, block, arena, cells, width):
    """The least key of a step's events."""
    step = _step(straight, i)
    child = plan[step + STEP_CHILD]
    if child >= 0 and plan[_step(straight, child) + STEP_SIBLING] >= 0:
        return _least_of_many(plan, straight, i, block, arena, cells, width)
    # None or one is bound to it, as in most questions: all that is asked is read before the loop.
    mine = plan[step + STEP_MINE]
    turned = plan[step + STEP_TURNED]
    lowered = plan[step + STEP_LOWERED]
    theirs = COL_ROW
    others_turned = 0
    raised = 0
    wanted = NULL
    if child >= 0:
        below = _step(straight, child)
        theirs = plan[below + STEP_THEIRS]
        others_turned = plan[below + STEP_TURNED]
        raised = plan[below + STEP_RAISED]
        wanted = arena[block + plan[straight + STRAIGHT_KEPT] + 1 + child]
    header = block + plan[step + STEP_QUEUE]
    start = arena[header + Q_DATA]
    least = NOBODY
    for place in range(start + arena[header + Q_HEAD], start + arena[header + Q_TAIL]):
        row = arena[place]
        own = _own(cells, width, row, mine, turned, lowered)
        bound = _bound(cells, width, row, theirs, others_turned, raised)
        least = min(least, own if wanted < bound else NOBODY)
    return least


@compiled
def _least_of_many(plan, straight, i, block, arena, cells, width):
    """The same where several steps are bound to it."""
    keys = block + plan[straight + STRAIGHT_KEPT] + 1
    header = block + plan[_step(straight, i) + STEP_QUEUE]
    start = arena[header + Q_DATA]
    least = NOBODY
    for place in range(start + arena[header + Q_HEAD], start + arena[header + Q_TAIL]):
        row = arena[place]
        least = min(least, _key(plan, straight, i, keys, arena, cells, width, row))
    return least

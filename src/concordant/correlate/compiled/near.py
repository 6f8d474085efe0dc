"""Events that are compared, for one question alone without partitions: its queues are held near.

The rows of a run are taken with the queues laid out as arrays of what `compiled.partners` would
work out again and again: what an event is itself, what it asks of the step below, its row. Nothing
is found by address of address, and nothing of the plan is read per event. After the run the queues
go back into the arena, where every other way finds them.

What is kept of a step, and why it is enough, is said in `compiled.partners`; here each step has at
most one bound to it. At the top it is the other way round: instead of the least key, the greatest
value is kept that an event asks to be above, so that the longest queue is not looked through.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import make_block, make_room
from concordant.correlate.compiled.index import drop
from concordant.correlate.compiled.jit import compiled, folded, inlined
from concordant.correlate.compiled.layout import (
    AT_INDEX,
    AT_ROW,
    NULL,
    PLAN_BUDGET,
    PLAN_SCANNED,
    PLAN_TOPICS,
    Q_CAPACITY,
    Q_DATA,
    Q_DEAD,
    Q_HEAD,
    Q_TAIL,
    READER_ROOT,
    READER_STEP,
    READER_STRAIGHT,
    READER_SUB,
    READER_TESTED,
    ROOT_ADMITTED,
    ROOT_FIRST,
    ROOT_OVER_BUDGET,
    ROOT_QUEUED,
    ROOT_STEPS,
    ROOT_WORST,
    ROUTER_ONLY,
    STEP_AFTER,
    STEP_CHILD,
    STEP_LOWERED,
    STEP_MINE,
    STEP_QUEUE,
    STEP_RAISED,
    STEP_SIZE,
    STEP_THEIRS,
    STEP_TOPIC,
    STEP_TURNED,
    STRAIGHT_COUNT,
    STRAIGHT_KEPT,
    STRAIGHT_LENGTH_MAX,
    STRAIGHT_STEPS,
)
from concordant.correlate.compiled.partners import NOBODY
from concordant.correlate.compiled.scratch import (
    AT_NEAR,
    AT_NEAR_CODES,
    AT_NEAR_STEPS,
    NEAR_ABOVE,
    NEAR_BASE,
    NEAR_BELOW,
    NEAR_BOUND_RAISED,
    NEAR_BOUND_TURNED,
    NEAR_COLUMN,
    NEAR_COUNT,
    NEAR_HEAD,
    NEAR_KEY,
    NEAR_LEAF,
    NEAR_LOWERED,
    NEAR_QUEUE,
    NEAR_ROOT,
    NEAR_SIZE,
    NEAR_TAIL,
    NEAR_TESTED,
    NEAR_THEIRS,
    NEAR_TURNED,
)
from concordant.correlate.compiled.steps import admitted, deliver_straight


@compiled
def take_near(plan, arena, cells, codes, width, rank, scratch, out, control, row, stop):
    """Take rows as far as all queues stay short; says which row is the next.

    There is room for what they may complete, and no cap is near: see `compiled.alone`.
    """
    some = plan[plan[plan[PLAN_TOPICS] + codes[row]] + ROUTER_ONLY]
    straight = plan[some + READER_STRAIGHT]
    root = plan[some + READER_ROOT]
    block = arena[root + ROOT_FIRST]
    if block == 0:
        block = make_block(plan, plan[some + READER_SUB], arena, cells, width, row)
    if block < 0 or not _lay_out(plan, straight, block, arena, cells, width, scratch):
        return row
    count = plan[straight + STRAIGHT_COUNT]
    last = AT_NEAR_STEPS + (count - 1) * NEAR_SIZE
    limit = min(plan[PLAN_SCANNED], STRAIGHT_LENGTH_MAX)
    queued = gone = looked = worst = over = 0
    here = row
    while here < stop:
        step = scratch[AT_NEAR_CODES + codes[here]]
        tested = scratch[step + NEAR_TESTED]
        if tested != 0 and not admitted(plan, tested, cells, width, rank, here):
            here += 1
            continue
        place = scratch[step + NEAR_TAIL]
        if place - scratch[step + NEAR_HEAD] + 1 >= limit:
            break
        if place == scratch[step + NEAR_BASE] + NEAR_COUNT:
            place = _move_down(scratch, step)
        own = _own(scratch, step, cells, here * width)
        bound = _bound(scratch, step, cells, here * width)
        _write(scratch, place, own, bound, here)
        scratch[step + NEAR_TAIL] = place + 1
        queued += 1
        here += 1
        # Does it complete a match?
        above = scratch[step + NEAR_ABOVE]
        if above == 0:
            scratch[step + NEAR_KEY] = max(scratch[step + NEAR_KEY], bound)
            if scratch[scratch[step + NEAR_BELOW] + NEAR_KEY] >= bound:
                continue
        else:
            key = own if scratch[scratch[step + NEAR_BELOW] + NEAR_KEY] < bound else NOBODY
            if key >= scratch[step + NEAR_KEY]:  # what is no less changes nothing
                continue
            scratch[step + NEAR_KEY] = key
            steps = 0
            while scratch[above + NEAR_ABOVE] != 0:
                steps += scratch[above + NEAR_TAIL] - scratch[above + NEAR_HEAD]
                key = _least(scratch, above, key)
                if key >= scratch[above + NEAR_KEY]:
                    break
                scratch[above + NEAR_KEY] = key
                above = scratch[above + NEAR_ABOVE]
            looked += steps
            worst = max(worst, steps)
            over += steps > plan[PLAN_BUDGET]
            if scratch[above + NEAR_ABOVE] != 0 or key >= scratch[above + NEAR_KEY]:
                continue
        if not _all_reached(scratch, last):
            continue
        gone += _take_first(scratch, step, last)
        _work_out(scratch, step, last)
        deliver_straight(plan, some, block, arena, scratch, out, control, here - 1)
    arena[root + ROOT_ADMITTED] += queued
    arena[root + ROOT_QUEUED] += queued - gone
    arena[root + ROOT_STEPS] += looked
    arena[root + ROOT_WORST] = max(arena[root + ROOT_WORST], worst)
    arena[root + ROOT_OVER_BUDGET] += over
    _put_back(scratch, last, block, arena)
    arena[block + plan[straight + STRAIGHT_KEPT]] = 0
    return here


@compiled
def _lay_out(plan, straight, block, arena, cells, width, scratch):
    """Lay the queues out; False if one is too long, or the arena full."""
    count = plan[straight + STRAIGHT_COUNT]
    limit = min(plan[PLAN_SCANNED], STRAIGHT_LENGTH_MAX)
    for i in range(count):
        header = block + plan[straight + STRAIGHT_STEPS + i * STEP_SIZE + STEP_QUEUE]
        if arena[header + Q_TAIL] - arena[header + Q_HEAD] - arena[header + Q_DEAD] >= limit:
            return False
    for i in range(count):
        record = straight + STRAIGHT_STEPS + i * STEP_SIZE
        header = block + plan[record + STEP_QUEUE]
        drop(plan, plan[record + STEP_TOPIC], block, arena)
        if arena[header + Q_CAPACITY] < STRAIGHT_LENGTH_MAX and not make_room(
            arena, header, STRAIGHT_LENGTH_MAX
        ):
            return False
    none = AT_NEAR_STEPS + count * NEAR_SIZE  # below the last ones, and passed by every event
    scratch[none + NEAR_KEY] = NULL
    for i in range(count):
        record = straight + STRAIGHT_STEPS + i * STEP_SIZE
        step = AT_NEAR_STEPS + i * NEAR_SIZE
        after = plan[record + STEP_AFTER]
        child = plan[record + STEP_CHILD]
        below = straight + STRAIGHT_STEPS + max(child, 0) * STEP_SIZE
        scratch[step + NEAR_BASE] = AT_NEAR + 3 * NEAR_COUNT * i
        scratch[step + NEAR_ABOVE] = 0 if after < 0 else AT_NEAR_STEPS + after * NEAR_SIZE
        scratch[step + NEAR_BELOW] = none if child < 0 else AT_NEAR_STEPS + child * NEAR_SIZE
        scratch[step + NEAR_ROOT] = -1 if after < 0 else 0
        scratch[step + NEAR_COLUMN] = 0 if after < 0 else plan[record + STEP_MINE]
        scratch[step + NEAR_TURNED] = plan[record + STEP_TURNED]
        scratch[step + NEAR_LOWERED] = plan[record + STEP_LOWERED]
        scratch[step + NEAR_LEAF] = -1 if child < 0 else 0
        scratch[step + NEAR_THEIRS] = 0 if child < 0 else plan[below + STEP_THEIRS]
        scratch[step + NEAR_BOUND_TURNED] = plan[below + STEP_TURNED]
        scratch[step + NEAR_BOUND_RAISED] = plan[below + STEP_RAISED]
        scratch[step + NEAR_QUEUE] = plan[record + STEP_QUEUE]
        header = block + plan[record + STEP_QUEUE]
        place = scratch[step + NEAR_BASE]
        scratch[step + NEAR_HEAD] = place
        data = arena[header + Q_DATA]
        for entry in range(data + arena[header + Q_HEAD], data + arena[header + Q_TAIL]):
            row = arena[entry]
            if row >= 0:  # else it was removed
                own = _own(scratch, step, cells, row * width)
                _write(scratch, place, own, _bound(scratch, step, cells, row * width), row)
                place += 1
        scratch[step + NEAR_TAIL] = place
    _work_out(scratch, 0, none - NEAR_SIZE)
    for code in range(count):  # one event per topic, so there are as many topics
        reader = plan[plan[plan[PLAN_TOPICS] + code] + ROUTER_ONLY]
        step = AT_NEAR_STEPS + plan[reader + READER_STEP] * NEAR_SIZE
        scratch[AT_NEAR_CODES + code] = step
        scratch[step + NEAR_TESTED] = reader if plan[reader + READER_TESTED] else 0
    return True


@inlined
def _put_back(scratch, last, block, arena):
    """The queues go where they came from, and where there is room for them."""
    for step in range(AT_NEAR_STEPS, last + 1, NEAR_SIZE):
        header = block + scratch[step + NEAR_QUEUE]
        data = arena[header + Q_DATA]
        head = scratch[step + NEAR_HEAD]
        length = scratch[step + NEAR_TAIL] - head
        for i in range(length):
            arena[data + i] = scratch[head + i + 2 * NEAR_COUNT]
        arena[header + Q_HEAD] = 0
        arena[header + Q_TAIL] = length
        arena[header + Q_DEAD] = 0


@inlined
def _write(scratch, place, own, bound, row):
    scratch[place] = own
    scratch[place + NEAR_COUNT] = bound
    scratch[place + 2 * NEAR_COUNT] = row


@compiled
def _move_down(scratch, step):
    """Bring a queue back to the beginning of its arrays; says where it ends."""
    base = scratch[step + NEAR_BASE]
    head = scratch[step + NEAR_HEAD]
    length = scratch[step + NEAR_TAIL] - head
    for i in range(length):
        for array in range(0, 3 * NEAR_COUNT, NEAR_COUNT):
            scratch[base + array + i] = scratch[head + array + i]
    scratch[step + NEAR_HEAD] = base
    return base + length


@inlined
def _own(scratch, step, cells, base):
    """What an event is for the step above; without a branch, since topics come by chance."""
    value = cells[base + scratch[step + NEAR_COLUMN]]
    own = (value ^ scratch[step + NEAR_TURNED]) - scratch[step + NEAR_LOWERED]
    return (NOBODY if value == NULL else own) & ~scratch[step + NEAR_ROOT]


@inlined
def _bound(scratch, step, cells, base):
    """What the key of the step below must be less than."""
    value = cells[base + scratch[step + NEAR_THEIRS]]
    bound = (value ^ scratch[step + NEAR_BOUND_TURNED]) + scratch[step + NEAR_BOUND_RAISED]
    return (NULL if value == NULL else bound) & ~scratch[step + NEAR_LEAF]


@folded
def _least(scratch, step, key):
    """The least of a step's events that a key of the step below completes; or NOBODY."""
    least = NOBODY
    for place in range(scratch[step + NEAR_HEAD], scratch[step + NEAR_TAIL]):
        if key < scratch[place + NEAR_COUNT] and scratch[place] < least:
            least = scratch[place]
    return least


@inlined
def _reach(scratch, step):
    """The greatest that an event of a step asks; or NULL."""
    reach = NULL
    for place in range(scratch[step + NEAR_HEAD], scratch[step + NEAR_TAIL]):
        reach = max(reach, scratch[place + NEAR_COUNT])
    return reach


@inlined
def _all_reached(scratch, last):
    """Has every step that is bound to none an event that can be completed?"""
    for step in range(AT_NEAR_STEPS, last + 1, NEAR_SIZE):
        if (
            scratch[step + NEAR_ABOVE] == 0
            and scratch[scratch[step + NEAR_BELOW] + NEAR_KEY] >= scratch[step + NEAR_KEY]
        ):
            return False
    return True


@folded
def _take_first(scratch, newest, last):
    """Bind each step, from the first on, to its first event that the new one helps to complete.

    The prefix of every queue up to its matched event is consumed; says how many events are gone.
    """
    gone = 0
    for i, step in enumerate(range(AT_NEAR_STEPS, last + 1, NEAR_SIZE)):
        head = scratch[step + NEAR_HEAD]
        tail = scratch[step + NEAR_TAIL]
        place = tail - 1
        if step != newest:
            above = scratch[step + NEAR_ABOVE]
            bound = NOBODY
            if above != 0:
                bound = scratch[AT_INDEX + (above - AT_NEAR_STEPS) // NEAR_SIZE]
            wanted = scratch[scratch[step + NEAR_BELOW] + NEAR_KEY]
            place = head
            while place < tail - 1 and (
                wanted >= scratch[place + NEAR_COUNT] or scratch[place] >= bound
            ):
                place += 1  # a later one does
        scratch[AT_INDEX + i] = scratch[place + NEAR_COUNT]  # what the step below is less than
        scratch[AT_ROW + i] = scratch[place + 2 * NEAR_COUNT]
        gone += place + 1 - head
        base = scratch[step + NEAR_BASE]
        empty = place + 1 == tail
        scratch[step + NEAR_HEAD] = base if empty else place + 1
        scratch[step + NEAR_TAIL] = base if empty else tail
    return gone


@folded
def _work_out(scratch, emptied, last):
    """What is kept of all steps, from the last to the first.

    The queue of the step `emptied` has no event, so the steps above it have none to be completed.
    """
    for step in range(last, AT_NEAR_STEPS - 1, -NEAR_SIZE):
        if scratch[step + NEAR_ABOVE] == 0:
            scratch[step + NEAR_KEY] = _reach(scratch, step)
        elif step == emptied:
            scratch[step + NEAR_KEY] = NOBODY
            emptied = scratch[step + NEAR_ABOVE]
        else:
            key = scratch[scratch[step + NEAR_BELOW] + NEAR_KEY]
            scratch[step + NEAR_KEY] = _least(scratch, step, key)

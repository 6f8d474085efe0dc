"""The straight way: what most subscriptions ask, found without a search.

The first match, its prefix consumed, one event per topic, nothing else to heed: no `within`, no cap
that is reached, no contiguous events. Then each slot is bound to at most one slot before it, either
because it must come later (`then`) or by one comparison (`<`, `<=`, `>`, `>=`), and the match
follows from one or two looks at short queues.

- Order alone: the oldest event of each queue that comes after the one before it.
- Comparisons: from the last slot to the first, keep the places that have a partner in each later
  slot; for an inequality the least value (or the greatest) of the later slot decides for all. What
  is left can always be completed, so the first place of each slot that fits the one it is bound to
  is the match, and none is tried in vain.

The queues are those of `steps.give`, which takes over where one is too long to be looked through.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import append, make_room
from concordant.correlate.compiled.index import drop, extend
from concordant.correlate.compiled.jit import compiled, folded, inlined
from concordant.correlate.compiled.layout import (
    ARENA_FULL,
    ASIDE,
    AT_CURSOR,
    AT_FITTING,
    AT_INDEX,
    AT_LOW,
    AT_ROW,
    AT_STEPS,
    BINARY_MINE,
    BINARY_OP,
    BINARY_THEIRS,
    COL_ROW,
    DONE,
    HEADER_DATA,
    INDEX_HEADER,
    INDEX_SIZE,
    MATCHED,
    NULL,
    OP_GE,
    OP_GT,
    OP_LE,
    PLAN_SCANNED,
    Q_CAPACITY,
    Q_DATA,
    Q_HEAD,
    Q_TAIL,
    READER_COMPLETES,
    READER_QUEUE,
    READER_ROOT,
    READER_STRAIGHT,
    READER_TOPIC,
    ROOT_ADMITTED,
    ROOT_QUEUED,
    STEP_AFTER,
    STEP_CHILD,
    STEP_PAIR,
    STEP_QUEUE,
    STEP_SIBLING,
    STEP_SIZE,
    STEP_TOPIC,
    STRAIGHT_COMPARED,
    STRAIGHT_COUNT,
    STRAIGHT_LENGTH_MAX,
    STRAIGHT_STEPS,
    TOPIC_INDEX_COUNT,
    TOPIC_INDEXES,
)
from concordant.correlate.compiled.ranges import cell

_GREATEST = 2**63 - 1


@folded
def go_straight(plan, reader, arena, cells, width, scratch, row, block):
    """Queue an event and match: DONE, MATCHED, ARENA_FULL, or ASIDE if this is not the way.

    With the last two nothing has been done.
    """
    straight = plan[reader + READER_STRAIGHT]
    compared = plan[straight + STRAIGHT_COMPARED]
    header = block + plan[reader + READER_QUEUE]
    topic = plan[reader + READER_TOPIC]
    worth = True
    if compared:
        shortest, longest = _lengths(plan, straight, block, arena, header)
        if longest >= min(plan[PLAN_SCANNED], STRAIGHT_LENGTH_MAX):
            return ASIDE
        worth = shortest > 0
    if arena[header + Q_TAIL] == arena[header + Q_CAPACITY]:
        if compared:
            drop(plan, topic, block, arena)
        if not make_room(arena, header, 1):
            return ARENA_FULL
    append(arena, header, row)
    if compared and _indexed(plan, topic, block, arena):
        extend(plan, topic, block, header, arena, cells, width, 0)
    root = plan[reader + READER_ROOT]
    arena[root + ROOT_ADMITTED] += 1
    arena[root + ROOT_QUEUED] += 1
    scratch[AT_STEPS] = 0
    if not (worth and plan[reader + READER_COMPLETES]):
        return DONE
    if compared:
        if not _keep_fitting(plan, straight, block, arena, cells, width, scratch, header):
            return DONE
        _take_first_fitting(plan, straight, block, arena, cells, width, scratch)
    elif not _follow(plan, straight, block, arena, scratch):
        return DONE
    _dispose(plan, straight, root, block, arena, scratch)
    return MATCHED


@folded
def _lengths(plan, straight, block, arena, newest):
    """Of the shortest and the longest queue once the new event is in `newest`."""
    shortest = STRAIGHT_LENGTH_MAX
    longest = 0
    step = straight + STRAIGHT_STEPS
    for _ in range(plan[straight + STRAIGHT_COUNT]):
        header = block + plan[step + STEP_QUEUE]
        length = arena[header + Q_TAIL] - arena[header + Q_HEAD] + (header == newest)
        shortest = min(shortest, length)
        longest = max(longest, length)
        step += STEP_SIZE
    return shortest, longest


@folded
def _follow(plan, straight, block, arena, scratch):
    """Bind each step to the oldest event after that of the step it follows; False if one has none.

    Rows grow with the order of events.
    """
    step = straight + STRAIGHT_STEPS
    for i in range(plan[straight + STRAIGHT_COUNT]):
        header = block + plan[step + STEP_QUEUE]
        place = arena[header + Q_HEAD]
        tail = arena[header + Q_TAIL]
        if place == tail:
            return False
        data = arena[header + Q_DATA]
        found = arena[data + place]
        after = plan[step + STEP_AFTER]
        if after >= 0 and found < scratch[AT_ROW + after]:
            place = _later(arena, data, place, tail, scratch[AT_ROW + after])
            if place == tail:
                return False
            found = arena[data + place]
        scratch[AT_INDEX + i] = place
        scratch[AT_ROW + i] = found
        step += STEP_SIZE
    return True


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
def _keep_fitting(plan, straight, block, arena, cells, width, scratch, newest):
    """Per step, the places with a partner in every later step; False if a step has none.

    Of the queue that the new event is in, `newest`, only that event can complete a match.
    """
    count = plan[straight + STRAIGHT_COUNT]
    for back in range(count):
        i = count - 1 - back
        step = straight + STRAIGHT_STEPS + i * STEP_SIZE
        header = block + plan[step + STEP_QUEUE]
        tail = arena[header + Q_TAIL]
        head = tail - 1 if header == newest else arena[header + Q_HEAD]
        data = arena[header + Q_DATA]
        fitting = AT_FITTING + i * STRAIGHT_LENGTH_MAX
        # What the step it is bound to will ask of it: the least of its own values.
        pair = plan[step + STEP_PAIR]
        turned, _ = _how(plan, pair)
        mine = plan[pair + BINARY_MINE] if plan[step + STEP_AFTER] >= 0 else COL_ROW
        least = _GREATEST
        found = 0
        child = plan[step + STEP_CHILD]
        if child < 0:
            for place in range(head, tail):
                value = cell(cells, width, arena[data + place], mine)
                scratch[fitting + found] = place
                fits = value != NULL
                found += fits
                least = min(least, value ^ turned if fits else _GREATEST)
        else:
            record = straight + STRAIGHT_STEPS + child * STEP_SIZE
            asked = plan[record + STEP_PAIR]
            asked_turned, loose = _how(plan, asked)
            theirs = plan[asked + BINARY_THEIRS]
            bound = scratch[AT_CURSOR + child]
            for place in range(head, tail):
                row = arena[data + place]
                value = cell(cells, width, row, mine)
                other = cell(cells, width, row, theirs)
                scratch[fitting + found] = place
                fits = (value != NULL) & (other != NULL) & _less(bound, other ^ asked_turned, loose)
                found += fits
                least = min(least, value ^ turned if fits else _GREATEST)
            child = plan[record + STEP_SIBLING]
            while child >= 0:
                record = straight + STRAIGHT_STEPS + child * STEP_SIZE
                least, found = _keep_fitting_another(
                    plan,
                    record,
                    mine,
                    turned,
                    arena,
                    cells,
                    width,
                    scratch,
                    fitting,
                    data,
                    found,
                    child,
                )
                child = plan[record + STEP_SIBLING]
        scratch[AT_STEPS] += tail - head
        if found == 0:
            return False
        scratch[AT_LOW + i] = found
        scratch[AT_CURSOR + i] = least
    return True


@compiled
def _keep_fitting_another(
    plan, record, mine, turned, arena, cells, width, scratch, fitting, data, found, child
):
    """The same for one more step that is bound to it: the least of what is left, and how many."""
    asked = plan[record + STEP_PAIR]
    asked_turned, loose = _how(plan, asked)
    theirs = plan[asked + BINARY_THEIRS]
    bound = scratch[AT_CURSOR + child]
    least = _GREATEST
    kept = 0
    for k in range(found):
        place = scratch[fitting + k]
        row = arena[data + place]
        other = cell(cells, width, row, theirs)
        scratch[fitting + kept] = place
        if other != NULL and _less(bound, other ^ asked_turned, loose):
            kept += 1
            least = min(least, cell(cells, width, row, mine) ^ turned)
    return least, kept


@folded
def _take_first_fitting(plan, straight, block, arena, cells, width, scratch):
    """Bind each step, from the first on, to its first place that fits the step it is bound to."""
    step = straight + STRAIGHT_STEPS
    for i in range(plan[straight + STRAIGHT_COUNT]):
        data = arena[block + plan[step + STEP_QUEUE] + Q_DATA]
        fitting = AT_FITTING + i * STRAIGHT_LENGTH_MAX
        after = plan[step + STEP_AFTER]
        if after >= 0:
            pair = plan[step + STEP_PAIR]
            turned, loose = _how(plan, pair)
            theirs = cell(cells, width, scratch[AT_ROW + after], plan[pair + BINARY_THEIRS])
            theirs ^= turned
            column = plan[pair + BINARY_MINE]
            last = fitting + scratch[AT_LOW + i] - 1
            while fitting < last:
                value = cell(cells, width, arena[data + scratch[fitting]], column)
                if value != NULL and _less(value ^ turned, theirs, loose):
                    break
                fitting += 1  # a later one does: what was kept can be completed
        scratch[AT_INDEX + i] = scratch[fitting]
        scratch[AT_ROW + i] = arena[data + scratch[fitting]]
        step += STEP_SIZE


@inlined
def _how(plan, pair):
    """A word that turns values so that "less" is asked for, and whether equal ones do."""
    op = plan[pair + BINARY_OP]
    return -1 if op == OP_GT or op == OP_GE else 0, (op == OP_LE) | (op == OP_GE)


@inlined
def _less(one, other, loose):
    return (one < other) | (loose & (one == other))


@folded
def _dispose(plan, straight, root, block, arena, scratch):
    """Consume the prefix of every queue up to its matched event."""
    gone = 0
    compared = plan[straight + STRAIGHT_COMPARED]
    step = straight + STRAIGHT_STEPS
    for i in range(plan[straight + STRAIGHT_COUNT]):
        header = block + plan[step + STEP_QUEUE]
        stop = scratch[AT_INDEX + i] + 1
        gone += stop - arena[header + Q_HEAD]
        if stop == arena[header + Q_TAIL] and not (
            compared and _indexed(plan, plan[step + STEP_TOPIC], block, arena)
        ):  # places of an indexed queue are not used twice
            stop = 0
            arena[header + Q_TAIL] = 0
        arena[header + Q_HEAD] = stop
        step += STEP_SIZE
    arena[root + ROOT_QUEUED] -= gone


@inlined
def _indexed(plan, topic, block, arena):
    """Does an index of a queue exist?"""
    record = plan[topic + TOPIC_INDEXES]
    found = 0
    for _ in range(plan[topic + TOPIC_INDEX_COUNT]):
        found |= arena[block + plan[record + INDEX_HEADER] + HEADER_DATA]
        record += INDEX_SIZE
    return found != 0

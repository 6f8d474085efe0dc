"""Caps: the oldest queued events go when there are too many, per queue or of a subscription in all.

The order of arrival over all queues of a subscription is written down (the line) only where its cap
may need it. Events that are too old for `within` do not count.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import pop
from concordant.correlate.compiled.jit import compiled, inlined
from concordant.correlate.compiled.layout import (
    COL_TIME,
    DONE,
    LINE_NEEDED,
    LONG_AGO,
    PLAN_TIME_ORDERED,
    Q_DATA,
    Q_DEAD,
    Q_HEAD,
    Q_TAIL,
    READER_QUEUED_MAX,
    READER_ROOT,
    ROOT_CAPPED,
    ROOT_EXPIRED_BEFORE,
    ROOT_LINE,
    ROOT_LINED,
    ROOT_QUEUED,
    SUB_QUEUE_MAX,
    SUB_QUEUED_MAX,
    SUB_ROOT,
    SUB_WITHIN,
    TOPIC_QUEUE,
)
from concordant.correlate.compiled.ranges import first_from, row_at
from concordant.correlate.compiled.removal import kill, tidy

LINE_WORDS = 3
"""An entry of the line: block, topic, row."""


@compiled
def _too_old_before(plan, subscription, cells, width, row):
    """The time before which events no longer count, or LONG_AGO."""
    within = plan[subscription + SUB_WITHIN]
    if within < 0 or not plan[PLAN_TIME_ORDERED]:
        return LONG_AGO
    return cells[row * width + COL_TIME] - within


@compiled
def bound_queue(plan, subscription, root, topic, block, arena, cells, width, row):
    """The cap per queue: the oldest that still counts goes."""
    header = block + plan[topic + TOPIC_QUEUE]
    head = arena[header + Q_HEAD]
    tail = arena[header + Q_TAIL]
    data = arena[header + Q_DATA]
    oldest = _too_old_before(plan, subscription, cells, width, row)
    start = head
    if oldest != LONG_AGO:
        start = first_from(arena, data, head, tail, cells, width, COL_TIME, oldest, False)
    live = tail - start
    if arena[header + Q_DEAD] > 0:
        live = 0
        for place in range(start, tail):
            live += arena[data + place] >= 0
    place = start
    while live > plan[subscription + SUB_QUEUE_MAX]:
        if arena[data + place] >= 0:
            kill(plan, root, topic, block, arena, cells, width, place)
            arena[root + ROOT_CAPPED] += 1
            live -= 1
        place += 1
    tidy(plan, topic, block, arena)


@inlined
def over_all(plan, reader, arena):
    """Are more events queued than the subscription may have in all?"""
    return arena[plan[reader + READER_ROOT] + ROOT_QUEUED] > plan[reader + READER_QUEUED_MAX]


@compiled
def bound_all(plan, subscription, arena, cells, width, row):
    """The cap on all queued events: the oldest by arrival goes; LINE_NEEDED if nobody knows it."""
    root = plan[subscription + SUB_ROOT]
    limit = plan[subscription + SUB_QUEUED_MAX]
    if not arena[root + ROOT_LINED]:
        return LINE_NEEDED
    line = root + ROOT_LINE
    oldest = _too_old_before(plan, subscription, cells, width, row)
    while arena[root + ROOT_QUEUED] > limit:
        at = arena[line + Q_DATA] + arena[line + Q_HEAD]
        block = arena[at]
        topic = arena[at + 1]
        wanted = arena[at + 2]
        place = _place_of(arena, block + plan[topic + TOPIC_QUEUE], wanted)
        pop(arena, line, LINE_WORDS)
        if place < 0:
            continue
        if oldest != LONG_AGO and cells[wanted * width + COL_TIME] < oldest:
            # It stays for a match that may be left over, but counts no more.
            arena[root + ROOT_QUEUED] -= 1
            continue
        kill(plan, root, topic, block, arena, cells, width, place)
        tidy(plan, topic, block, arena)
        arena[root + ROOT_CAPPED] += 1
    if oldest > arena[root + ROOT_EXPIRED_BEFORE]:
        _pass_expired(plan, root, arena, cells, width, oldest)
    return DONE


@compiled
def _pass_expired(plan, root, arena, cells, width, oldest):
    """Uncount what is too old at the front of the line, so that it is never counted twice."""
    line = root + ROOT_LINE
    while arena[line + Q_HEAD] < arena[line + Q_TAIL]:
        at = arena[line + Q_DATA] + arena[line + Q_HEAD]
        wanted = arena[at + 2]
        place = _place_of(arena, arena[at] + plan[arena[at + 1] + TOPIC_QUEUE], wanted)
        if place >= 0:
            if cells[wanted * width + COL_TIME] >= oldest:
                break
            arena[root + ROOT_QUEUED] -= 1
        pop(arena, line, LINE_WORDS)
    arena[root + ROOT_EXPIRED_BEFORE] = oldest


@compiled
def _place_of(arena, header, row):
    """Where a row stands in a queue, or -1 if it was removed; rows ascend."""
    low = arena[header + Q_HEAD]
    high = arena[header + Q_TAIL]
    data = arena[header + Q_DATA]
    while low < high:
        middle = (low + high) >> 1
        found = row_at(arena, data + middle)
        if found == row:
            return middle if arena[data + middle] >= 0 else -1
        if found < row:
            low = middle + 1
        else:
            high = middle
    return -1

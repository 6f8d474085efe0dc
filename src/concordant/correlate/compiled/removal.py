"""Dispose, expire: what leaves the queues, and the count of what is left.

A place at an end of a queue is cut off; one in the middle is marked as removed. Places of an
indexed queue are not used twice, so there everything is marked.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import trim
from concordant.correlate.compiled.index import forget
from concordant.correlate.compiled.jit import compiled, folded, inlined
from concordant.correlate.compiled.layout import (
    AT_INDEX,
    COL_TIME,
    CONSUME_MATCHED,
    CONSUME_PREFIX,
    CONSUME_SLIDE,
    CONSUME_SUFFIX,
    LONG_AGO,
    PART_TOPIC_COUNT,
    PART_TOPICS,
    Q_DATA,
    Q_DEAD,
    Q_HEAD,
    Q_TAIL,
    ROOT_EXPIRED,
    ROOT_EXPIRED_BEFORE,
    ROOT_QUEUED,
    SUB_CONSUME,
    TOPIC_FIRST,
    TOPIC_INDEX_COUNT,
    TOPIC_QUEUE,
    TOPIC_SIZE,
    TOPIC_WIDTH,
)
from concordant.correlate.compiled.ranges import first_from, row_at


@folded
def _uncount(arena, root, cells, width, row):
    """One queued event less, unless it was found too old and uncounted before."""
    limit = arena[root + ROOT_EXPIRED_BEFORE]
    if limit == LONG_AGO or cells[row * width + COL_TIME] >= limit:
        arena[root + ROOT_QUEUED] -= 1


@compiled
def cut(plan, root, topic, block, arena, cells, width, start, stop):
    """Remove the places start to stop, one end of which is an end of the queue."""
    header = block + plan[topic + TOPIC_QUEUE]
    data = arena[header + Q_DATA]
    if start != arena[header + Q_HEAD] and plan[topic + TOPIC_INDEX_COUNT] > 0:
        for place in range(start, stop):  # indexed places are not used twice
            if arena[data + place] >= 0:
                kill(plan, root, topic, block, arena, cells, width, place)
        tidy(plan, topic, block, arena)
        return
    if arena[header + Q_DEAD] == 0 and arena[root + ROOT_EXPIRED_BEFORE] == LONG_AGO:
        arena[root + ROOT_QUEUED] -= stop - start
    else:
        for place in range(start, stop):
            if arena[data + place] < 0:
                arena[header + Q_DEAD] -= 1
            else:
                _uncount(arena, root, cells, width, arena[data + place])
    if start == arena[header + Q_HEAD]:
        arena[header + Q_HEAD] = stop
    else:
        arena[header + Q_TAIL] = start
    tidy(plan, topic, block, arena)


@compiled
def kill(plan, root, topic, block, arena, cells, width, place):
    """Remove one place anywhere in the queue."""
    header = block + plan[topic + TOPIC_QUEUE]
    data = arena[header + Q_DATA]
    _uncount(arena, root, cells, width, arena[data + place])
    arena[data + place] = ~arena[data + place]
    arena[header + Q_DEAD] += 1
    if plan[topic + TOPIC_INDEX_COUNT] > 0:
        forget(plan, topic, block, header, arena, cells, width, place)


@inlined
def tidy(plan, topic, block, arena):
    """Move the ends of a queue past removed places; of an indexed one only the head."""
    trim(arena, block + plan[topic + TOPIC_QUEUE], plan[topic + TOPIC_INDEX_COUNT] == 0)


@folded
def expire(plan, part, root, block, arena, cells, width, oldest):
    for t in range(plan[part + PART_TOPIC_COUNT]):
        topic = plan[part + PART_TOPICS] + t * TOPIC_SIZE
        header = block + plan[topic + TOPIC_QUEUE]
        head = arena[header + Q_HEAD]
        tail = arena[header + Q_TAIL]
        data = arena[header + Q_DATA]
        if head < tail and cells[row_at(arena, data + head) * width + COL_TIME] < oldest:
            stop = first_from(arena, data, head, tail, cells, width, COL_TIME, oldest, False)
            for place in range(head, stop):
                arena[root + ROOT_EXPIRED] += arena[data + place] >= 0
            cut(plan, root, topic, block, arena, cells, width, head, stop)


@folded
def dispose(plan, subscription, part, root, block, arena, cells, width, scratch):
    consume = plan[subscription + SUB_CONSUME]
    for t in range(plan[part + PART_TOPIC_COUNT]):
        topic = plan[part + PART_TOPICS] + t * TOPIC_SIZE
        header = block + plan[topic + TOPIC_QUEUE]
        first = plan[topic + TOPIC_FIRST]
        last = first + plan[topic + TOPIC_WIDTH] - 1
        head = arena[header + Q_HEAD]
        if consume == CONSUME_PREFIX:
            stop = scratch[AT_INDEX + last] + 1
            cut(plan, root, topic, block, arena, cells, width, head, stop)
        elif consume == CONSUME_SLIDE:
            stop = scratch[AT_INDEX + first] + 1
            cut(plan, root, topic, block, arena, cells, width, head, stop)
        elif consume == CONSUME_SUFFIX:
            start = scratch[AT_INDEX + first]
            stop = arena[header + Q_TAIL]
            cut(plan, root, topic, block, arena, cells, width, start, stop)
        elif consume == CONSUME_MATCHED:
            for slot in range(first, last + 1):
                place = scratch[AT_INDEX + slot]
                kill(plan, root, topic, block, arena, cells, width, place)
            tidy(plan, topic, block, arena)

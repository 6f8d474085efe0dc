"""Indexes of long queues: the next event whose value lies below, above or at a bound.

Short queues are scanned. When a search meets a long one, an index is built for the column that the
predicate reads, and kept while events are appended; it is dropped when the queue moves in memory
and built again on demand, so its cost per event stays constant. Below and above: the least (or
greatest) value of every 16 places, of every 256, and so on. Equal: chains of places by hash, in the
order in which candidates are tried; a link of a chain carries more bits of the hash, so that hardly
any other value is looked up. Places of an indexed queue are not used twice.

An index only proposes: whoever asks tests the event itself, so a stale entry costs time, not truth.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import allocate, bits_for, mix, release
from concordant.correlate.compiled.jit import compiled, inlined, prefetch
from concordant.correlate.compiled.layout import (
    HEADER_BITS,
    HEADER_DATA,
    INDEX_COLUMN,
    INDEX_EQUAL,
    INDEX_HEADER,
    INDEX_KIND,
    INDEX_MIN,
    INDEX_SIZE,
    NULL,
    OP_GE,
    OP_LE,
    Q_CAPACITY,
    Q_DATA,
    Q_HEAD,
    Q_TAIL,
    READER_SOUGHT,
    READER_SOUGHT_COUNT,
    SOUGHT_COLUMN,
    SOUGHT_HEADER,
    SOUGHT_QUEUE,
    SOUGHT_SIZE,
    TOPIC_INDEX_COUNT,
    TOPIC_INDEXES,
)

_FAN_BITS = 4
_FAN = 1 << _FAN_BITS
_WORST_LOW = 2**63 - 1
"""Stands in a place that holds nothing where the least is sought; for the greatest it is NULL."""
_LOW_32 = 0xFFFFFFFF
_AHEAD = 16
"""Places that a build looks ahead: a chain's beginning is anywhere, and waiting for it is dear."""


@inlined
def _value(arena, data, place, cells, width, column, worst):
    """The value at a place; `worst` if it is removed or null."""
    row = arena[data + place]
    if row < 0:
        return worst
    value = cells[row * width + column]
    return worst if value == NULL else value


@inlined
def _bucket(index, capacity, value):
    """Where the chain of a value begins."""
    return index + capacity + (mix(value, 1) & (capacity - 1))


@inlined
def _tag(value):
    """What the links of a value say of it, above their 32 bits for a place."""
    return (mix(value, 1) >> 33 & 0x7FFFFFFF) << 32


@compiled
def drop(plan, topic, block, arena):
    """Forget the indexes of a queue."""
    record = plan[topic + TOPIC_INDEXES]
    for _ in range(plan[topic + TOPIC_INDEX_COUNT]):
        header = block + plan[record + INDEX_HEADER]
        if arena[header + HEADER_DATA] != 0:
            release(arena, arena[header + HEADER_DATA], arena[header + HEADER_BITS])
            arena[header + HEADER_DATA] = 0
        record += INDEX_SIZE


@compiled
def extend(plan, topic, block, queue, arena, cells, width, recent):
    """Tell the indexes of a queue that an event was appended."""
    record = plan[topic + TOPIC_INDEXES]
    place = arena[queue + Q_TAIL] - 1
    for _ in range(plan[topic + TOPIC_INDEX_COUNT]):
        index = arena[block + plan[record + INDEX_HEADER] + HEADER_DATA]
        if index != 0:
            _enter(plan, record, index, queue, place, arena, cells, width, recent)
        record += INDEX_SIZE


@compiled
def _enter(plan, record, index, queue, place, arena, cells, width, recent):
    data = arena[queue + Q_DATA]
    column = plan[record + INDEX_COLUMN]
    kind = plan[record + INDEX_KIND]
    capacity = arena[queue + Q_CAPACITY]
    if kind == INDEX_EQUAL:
        value = _value(arena, data, place, cells, width, column, NULL)
        bucket = _bucket(index, capacity, value)
        word = arena[bucket]
        if recent:  # newest first
            arena[index + place] = _tag(value) | word
            arena[bucket] = place + 1
        else:  # oldest first: the bucket knows both ends
            arena[index + place] = _tag(value)
            last = word >> 32
            if word == 0:
                arena[bucket] = (place + 1) | ((place + 1) << 32)
            else:
                arena[index + last - 1] |= place + 1
                arena[bucket] = (word & _LOW_32) | ((place + 1) << 32)
        return
    least = kind == INDEX_MIN
    value = _value(arena, data, place, cells, width, column, _WORST_LOW if least else NULL)
    size = capacity >> _FAN_BITS
    level = index
    node = place
    fresh = True
    while size > 0:
        fresh = fresh and (node & (_FAN - 1)) == 0
        node >>= _FAN_BITS
        old = arena[level + node]
        if fresh or (value < old if least else value > old):
            arena[level + node] = value
        elif not fresh:
            break
        level += size
        size >>= _FAN_BITS


@compiled
def build(plan, record, block, queue, arena, cells, width, recent):
    """Build an index of a queue; False if the arena is full (then the queue is scanned)."""
    capacity = arena[queue + Q_CAPACITY]
    equal = plan[record + INDEX_KIND] == INDEX_EQUAL
    bits = bits_for(2 * capacity if equal else max(1, capacity >> (_FAN_BITS - 1)))
    index = allocate(arena, bits)
    if index < 0:
        return False
    worst = 0
    if not equal:
        worst = _WORST_LOW if plan[record + INDEX_KIND] == INDEX_MIN else NULL
    for i in range(1 << bits):
        arena[index + i] = worst
    header = block + plan[record + INDEX_HEADER]
    arena[header + HEADER_DATA] = index
    arena[header + HEADER_BITS] = bits
    data = arena[queue + Q_DATA]
    column = plan[record + INDEX_COLUMN]
    tail = arena[queue + Q_TAIL]
    for place in range(arena[queue + Q_HEAD], tail):
        if equal and place + _AHEAD < tail:
            value = _value(arena, data, place + _AHEAD, cells, width, column, NULL)
            prefetch(arena, _bucket(index, capacity, value))
        _enter(plan, record, index, queue, place, arena, cells, width, recent)
    return True


@compiled
def forget(plan, topic, block, queue, arena, cells, width, place):
    """Tell the indexes of a queue that an event in the middle was removed."""
    record = plan[topic + TOPIC_INDEXES]
    data = arena[queue + Q_DATA]
    for _ in range(plan[topic + TOPIC_INDEX_COUNT]):
        index = arena[block + plan[record + INDEX_HEADER] + HEADER_DATA]
        kind = plan[record + INDEX_KIND]
        column = plan[record + INDEX_COLUMN]
        record += INDEX_SIZE
        if index == 0 or kind == INDEX_EQUAL:
            continue
        least = kind == INDEX_MIN
        worst = _WORST_LOW if least else NULL
        size = arena[queue + Q_CAPACITY] >> _FAN_BITS
        tail = arena[queue + Q_TAIL]
        level = index
        below = -1
        node = place >> _FAN_BITS
        while size > 0:
            best = worst
            for i in range(node * _FAN, min((node + 1) * _FAN, tail)):
                if below < 0:
                    value = _value(arena, data, i, cells, width, column, worst)
                else:
                    value = arena[below + i]
                if value < best if least else value > best:
                    best = value
            if arena[level + node] == best:
                break
            arena[level + node] = best
            tail = (tail + _FAN - 1) >> _FAN_BITS
            below = level
            level += size
            size >>= _FAN_BITS
            node >>= _FAN_BITS


@compiled
def approach(plan, reader, block, arena, cells, width, row, chained):
    """Bring near where a row's values stand in indexes of equal values; then what is chained there.

    By themselves, a place in a long index, what it leads to and the queue's entry are read one
    after the other, and each waits for memory.
    """
    sought = plan[reader + READER_SOUGHT]
    for _ in range(plan[reader + READER_SOUGHT_COUNT]):
        index = arena[block + plan[sought + SOUGHT_HEADER] + HEADER_DATA]
        if index != 0:
            queue = block + plan[sought + SOUGHT_QUEUE]
            capacity = arena[queue + Q_CAPACITY]
            value = cells[row * width + plan[sought + SOUGHT_COLUMN]]
            bucket = _bucket(index, capacity, value)
            if not chained:
                prefetch(arena, bucket)
            elif arena[bucket] != 0:
                place = (arena[bucket] & _LOW_32) - 1
                prefetch(arena, index + place)
                prefetch(arena, arena[queue + Q_DATA] + place)
        sought += SOUGHT_SIZE


@inlined
def _passes(value, bound, op, least):
    if least:
        return value < bound or (op == OP_LE and value == bound)
    return value > bound or (op == OP_GE and value == bound)


@compiled
def propose(plan, record, index, queue, arena, cells, width, place, low, high, bound, op, recent):
    """The next place from `place` on that may hold what is sought; outside of low..high if none."""
    none = low - 1 if recent else high
    kind = plan[record + INDEX_KIND]
    data = arena[queue + Q_DATA]
    column = plan[record + INDEX_COLUMN]
    capacity = arena[queue + Q_CAPACITY]
    if kind == INDEX_EQUAL:
        return _next_equal(
            index, queue, arena, cells, width, column, place, low, high, bound, recent
        )
    least = kind == INDEX_MIN
    worst = _WORST_LOW if least else NULL
    step = -1 if recent else 1
    edge = _FAN - 1 if recent else 0
    depth = 0
    size = capacity
    level = 0
    node = place
    first = low
    last = high - 1
    while first <= node <= last:
        if depth == 0:
            value = _value(arena, data, node, cells, width, column, worst)
        else:
            value = arena[level + node]
        if _passes(value, bound, op, least):
            if depth == 0:
                return node
            depth -= 1
            size <<= _FAN_BITS
            level = index if depth <= 1 else level - size
            node = node * _FAN + edge
            first = low >> (depth * _FAN_BITS)
            last = (high - 1) >> (depth * _FAN_BITS)
            if node < first:
                node = first
            if node > last:
                node = last
            continue
        node += step
        while (node & (_FAN - 1)) == edge and size >> _FAN_BITS > 0:
            level = index if depth == 0 else level + size
            size >>= _FAN_BITS
            depth += 1
            node >>= _FAN_BITS
            first = low >> (depth * _FAN_BITS)
            last = (high - 1) >> (depth * _FAN_BITS)
    return none


@compiled
def _next_equal(index, queue, arena, cells, width, column, place, low, high, bound, recent):
    data = arena[queue + Q_DATA]
    capacity = arena[queue + Q_CAPACITY]
    head = arena[queue + Q_HEAD]
    bucket = _bucket(index, capacity, bound)
    word = arena[bucket]
    link = word & _LOW_32
    tag = _tag(bound)
    # What was removed leaves the chain when it stands at its front.
    while link != 0 and (link - 1 < head or arena[data + link - 1] < 0):
        following = arena[index + link - 1] & _LOW_32
        if recent:
            arena[bucket] = following
        else:
            arena[bucket] = 0 if following == 0 else following | (word & ~_LOW_32)
        link = following
    while link != 0:
        at = link - 1
        if (at < low) if recent else (at >= high):
            break
        word = arena[index + at]
        if word & ~_LOW_32 == tag and ((at <= place) if recent else (at >= place)):
            row = arena[data + at]
            if row >= 0 and cells[row * width + column] == bound:
                return at
        link = word & _LOW_32
    return low - 1 if recent else high

"""Admit, match, dispose: what one event does to one conjunction, and the bounds on queues.

Everything that needs memory is asked for first; if the arena is full nothing has changed yet, and
the same event can be given again after it has grown.
"""

from __future__ import annotations

from concordant.correlate.compiled.arena import (
    append,
    find_block,
    live_count,
    make_block,
    make_room,
    trim,
)
from concordant.correlate.compiled.index import drop, extend, forget
from concordant.correlate.compiled.jit import compiled, inlined
from concordant.correlate.compiled.layout import (
    ARENA_FULL,
    ARENA_WANTED,
    AT_INDEX,
    AT_ROW,
    AT_STEPS,
    AT_WHOLE,
    BLOCK_POSITION,
    COL_TIME,
    CON_ORDER,
    CON_ORDINAL,
    CON_PART_COUNT,
    CON_PARTS,
    CON_SLOTS,
    CONSUME_MATCHED,
    CONSUME_PREFIX,
    CONSUME_SLIDE,
    CONSUME_SUFFIX,
    CONTROL_OUT,
    CONTROL_OUT_LIMIT,
    DONE,
    LINE_NEEDED,
    LONG_AGO,
    OUT_CONJUNCTION,
    OUT_FULL,
    OUT_ORDINAL,
    OUT_POSITION,
    OUT_ROW,
    OUT_SLOTS,
    OUT_SUB,
    PART_FINISHED,
    PART_OUT,
    PART_SIZE,
    PART_SLOT_COUNT,
    PART_SLOTS,
    PART_TOPIC_COUNT,
    PART_TOPICS,
    PLAN_BUDGET,
    PLAN_TIME_ORDERED,
    Q_CAPACITY,
    Q_DATA,
    Q_DEAD,
    Q_HEAD,
    Q_TAIL,
    READER_COMPLETES,
    READER_CONJUNCTION,
    READER_INDEXED,
    READER_LEFTOVER,
    READER_NEEDS,
    READER_NEEDS_COUNT,
    READER_PART,
    READER_QUEUE,
    READER_QUEUED_MAX,
    READER_ROOM,
    READER_ROOT,
    READER_SUB,
    READER_TESTED,
    READER_TOPIC,
    ROOT_ADMITTED,
    ROOT_CAPPED,
    ROOT_EXPIRED,
    ROOT_EXPIRED_BEFORE,
    ROOT_LINE,
    ROOT_LINED,
    ROOT_OVER_BUDGET,
    ROOT_QUEUED,
    ROOT_RELATIONS,
    ROOT_STEPS,
    ROOT_WORST,
    SLOT_SIZE,
    SUB_CONSUME,
    SUB_INDEX,
    SUB_QUEUE_MAX,
    SUB_QUEUED_MAX,
    SUB_RECENT,
    SUB_ROOT,
    SUB_WITHIN,
    TOPIC_FIRST,
    TOPIC_INDEX_COUNT,
    TOPIC_QUEUE,
    TOPIC_SIZE,
    TOPIC_WIDTH,
)
from concordant.correlate.compiled.ranges import first_from, row_at
from concordant.correlate.compiled.search import fits, search

_LINE_WORDS = 3


@compiled
def give(plan, reader, arena, cells, width, rank, scratch, out, control, row, block):
    """Give an event to a conjunction; says DONE, or what is missing (and has done nothing).

    `block` is that of its partition, or 0 if it is not known.
    """
    topic = plan[reader + READER_TOPIC]
    part = plan[reader + READER_PART]
    if plan[reader + READER_TESTED]:
        slot = plan[part + PART_SLOTS] + plan[topic + TOPIC_FIRST] * SLOT_SIZE
        stop = slot + plan[topic + TOPIC_WIDTH] * SLOT_SIZE
        while not fits(plan, slot, cells, width, rank, row):
            slot += SLOT_SIZE
            if slot == stop:
                return DONE
    if control[CONTROL_OUT] + plan[reader + READER_ROOM] > control[CONTROL_OUT_LIMIT]:
        return OUT_FULL
    subscription = plan[reader + READER_SUB]
    root = plan[reader + READER_ROOT]
    if block == 0:
        block = find_block(plan, subscription, arena, cells, width, row)
    if plan[reader + READER_NEEDS_COUNT] > 0 and not _of_use(plan, reader, block, arena):
        arena[root + ROOT_ADMITTED] += 1
        return DONE
    if block == 0:
        block = make_block(plan, subscription, arena, cells, width, row)
        if block < 0:
            return ARENA_FULL
    if arena[ARENA_WANTED] != 0:
        arena[ARENA_WANTED] = 0
        return ARENA_FULL
    header = block + plan[reader + READER_QUEUE]
    indexed = plan[reader + READER_INDEXED]
    if arena[header + Q_TAIL] == arena[header + Q_CAPACITY]:
        if indexed:
            drop(plan, topic, block, arena)
        if not make_room(arena, header, 1):
            return ARENA_FULL
    finished = plan[part + PART_FINISHED]
    if finished >= 0 and not make_room(arena, block + finished, plan[part + PART_SLOT_COUNT]):
        return ARENA_FULL
    lined = arena[root + ROOT_LINED] != 0
    if lined and not make_room(arena, root + ROOT_LINE, _LINE_WORDS):
        return ARENA_FULL
    arena[root + ROOT_ADMITTED] += 1
    leftover = block + plan[reader + READER_LEFTOVER]
    if plan[subscription + SUB_WITHIN] >= 0 and plan[PLAN_TIME_ORDERED] and not arena[leftover]:
        oldest = cells[row * width + COL_TIME] - plan[subscription + SUB_WITHIN]
        _expire(plan, part, root, block, arena, cells, width, oldest)
    append(arena, header, row)
    if indexed:
        recent = plan[subscription + SUB_RECENT]
        extend(plan, topic, block, header, arena, cells, width, recent)
    arena[root + ROOT_QUEUED] += 1
    if lined:
        append(arena, root + ROOT_LINE, block)
        append(arena, root + ROOT_LINE, topic)
        append(arena, root + ROOT_LINE, row)
    matched = False
    left = arena[leftover] != 0
    if (left or plan[reader + READER_COMPLETES]) and _enough(plan, part, block, arena):
        scratch[AT_STEPS] = 0
        pinned = -1 if left else topic
        matched = search(
            plan, subscription, part, block, arena, cells, width, rank, scratch, pinned
        )
        _account(plan, root, arena, scratch)
    arena[leftover] = 1 if matched and plan[subscription + SUB_CONSUME] == CONSUME_SLIDE else 0
    if matched:
        _dispose(plan, subscription, part, root, block, arena, cells, width, scratch)
    if plan[subscription + SUB_QUEUE_MAX] >= 0:
        _bound_queue(plan, subscription, root, topic, block, arena, cells, width, row)
    if not matched:
        return DONE
    conjunction = plan[reader + READER_CONJUNCTION]
    if finished >= 0:
        for i in range(plan[part + PART_SLOT_COUNT]):
            append(arena, block + finished, scratch[AT_ROW + i])
        if not _concatenate(plan, conjunction, subscription, block, arena, cells, width, scratch):
            return DONE
    else:
        for i in range(plan[part + PART_SLOT_COUNT]):
            scratch[AT_WHOLE + i] = scratch[AT_ROW + i]
    arena[block + plan[conjunction + CON_ORDINAL]] += 1
    arena[block + BLOCK_POSITION] += 1
    arena[root + ROOT_RELATIONS] += 1
    at = control[CONTROL_OUT]
    out[at + OUT_ROW] = row
    out[at + OUT_SUB] = plan[subscription + SUB_INDEX]
    out[at + OUT_CONJUNCTION] = plan[conjunction + CON_ORDER]
    out[at + OUT_ORDINAL] = arena[block + plan[conjunction + CON_ORDINAL]]
    out[at + OUT_POSITION] = arena[block + BLOCK_POSITION]
    for i in range(plan[conjunction + CON_SLOTS]):
        out[at + OUT_SLOTS + i] = scratch[AT_WHOLE + i]
    control[CONTROL_OUT] = at + OUT_SLOTS + plan[conjunction + CON_SLOTS]
    return DONE


@inlined
def _of_use(plan, reader, block, arena):
    """Is what must come before an event of this topic queued, or a match left over for it to find?

    Otherwise the event can never be part of a match: what comes later comes too late.
    """
    if block == 0:
        return False
    if arena[block + plan[reader + READER_LEFTOVER]]:
        return True
    need = plan[reader + READER_NEEDS]
    for _ in range(plan[reader + READER_NEEDS_COUNT]):
        header = block + plan[need]
        if (
            arena[header + Q_TAIL] - arena[header + Q_HEAD] - arena[header + Q_DEAD]
            < plan[need + 1]
        ):
            return False
        need += 2
    return True


@inlined
def _enough(plan, part, block, arena):
    """Has every topic's queue as many events as it has slots?"""
    topic = plan[part + PART_TOPICS]
    for _ in range(plan[part + PART_TOPIC_COUNT]):
        if live_count(arena, block + plan[topic + TOPIC_QUEUE]) < plan[topic + TOPIC_WIDTH]:
            return False
        topic += TOPIC_SIZE
    return True


@compiled
def _account(plan, root, arena, scratch):
    steps = scratch[AT_STEPS]
    arena[root + ROOT_STEPS] += steps
    if steps > arena[root + ROOT_WORST]:
        arena[root + ROOT_WORST] = steps
    if steps > plan[PLAN_BUDGET]:
        arena[root + ROOT_OVER_BUDGET] += 1


@compiled
def _uncount(arena, root, cells, width, row):
    """One queued event less, unless it was found too old and uncounted before."""
    limit = arena[root + ROOT_EXPIRED_BEFORE]
    if limit == LONG_AGO or cells[row * width + COL_TIME] >= limit:
        arena[root + ROOT_QUEUED] -= 1


@compiled
def _cut(plan, root, topic, block, arena, cells, width, start, stop):
    """Remove the places start to stop, one end of which is an end of the queue."""
    header = block + plan[topic + TOPIC_QUEUE]
    data = arena[header + Q_DATA]
    if start != arena[header + Q_HEAD] and plan[topic + TOPIC_INDEX_COUNT] > 0:
        for place in range(start, stop):  # indexed places are not used twice
            if arena[data + place] >= 0:
                _kill(plan, root, topic, block, arena, cells, width, place)
        _tidy(plan, topic, block, arena)
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
    _tidy(plan, topic, block, arena)


@compiled
def _kill(plan, root, topic, block, arena, cells, width, place):
    """Remove one place anywhere in the queue."""
    header = block + plan[topic + TOPIC_QUEUE]
    data = arena[header + Q_DATA]
    _uncount(arena, root, cells, width, arena[data + place])
    arena[data + place] = ~arena[data + place]
    arena[header + Q_DEAD] += 1
    if plan[topic + TOPIC_INDEX_COUNT] > 0:
        forget(plan, topic, block, header, arena, cells, width, place)


@inlined
def _tidy(plan, topic, block, arena):
    """Move the ends of a queue past removed places; of an indexed one only the head."""
    trim(arena, block + plan[topic + TOPIC_QUEUE], plan[topic + TOPIC_INDEX_COUNT] == 0)


@compiled
def _expire(plan, part, root, block, arena, cells, width, oldest):
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
            _cut(plan, root, topic, block, arena, cells, width, head, stop)


@compiled
def _dispose(plan, subscription, part, root, block, arena, cells, width, scratch):
    consume = plan[subscription + SUB_CONSUME]
    for t in range(plan[part + PART_TOPIC_COUNT]):
        topic = plan[part + PART_TOPICS] + t * TOPIC_SIZE
        header = block + plan[topic + TOPIC_QUEUE]
        first = plan[topic + TOPIC_FIRST]
        last = first + plan[topic + TOPIC_WIDTH] - 1
        head = arena[header + Q_HEAD]
        if consume == CONSUME_PREFIX:
            stop = scratch[AT_INDEX + last] + 1
            _cut(plan, root, topic, block, arena, cells, width, head, stop)
        elif consume == CONSUME_SLIDE:
            stop = scratch[AT_INDEX + first] + 1
            _cut(plan, root, topic, block, arena, cells, width, head, stop)
        elif consume == CONSUME_SUFFIX:
            start = scratch[AT_INDEX + first]
            stop = arena[header + Q_TAIL]
            _cut(plan, root, topic, block, arena, cells, width, start, stop)
        elif consume == CONSUME_MATCHED:
            for slot in range(first, last + 1):
                place = scratch[AT_INDEX + slot]
                _kill(plan, root, topic, block, arena, cells, width, place)
            _tidy(plan, topic, block, arena)


@compiled
def _oldest_of(arena, cells, width, data, count):
    """The smallest time of the rows of a finished part-relation."""
    oldest = cells[arena[data] * width + COL_TIME]
    for i in range(1, count):
        oldest = min(oldest, cells[arena[data + i] * width + COL_TIME])
    return oldest


@compiled
def _concatenate(plan, conjunction, subscription, block, arena, cells, width, scratch):
    """Join the heads of all parts; heads too old for `within` are given up."""
    parts = plan[conjunction + CON_PARTS]
    count = plan[conjunction + CON_PART_COUNT]
    within = plan[subscription + SUB_WITHIN]
    while True:
        oldest = 0
        newest = 0
        oldest_part = -1
        for p in range(count):
            part = parts + p * PART_SIZE
            header = block + plan[part + PART_FINISHED]
            head = arena[header + Q_HEAD]
            if head == arena[header + Q_TAIL]:
                return False
            data = arena[header + Q_DATA] + head
            size = plan[part + PART_SLOT_COUNT]
            old = _oldest_of(arena, cells, width, data, size)
            new = cells[arena[data] * width + COL_TIME]
            for i in range(1, size):
                new = max(new, cells[arena[data + i] * width + COL_TIME])
            if oldest_part < 0 or old < oldest:
                oldest = old
                oldest_part = part
            if p == 0 or new > newest:
                newest = new
        if within < 0 or newest - oldest <= within:
            break
        _pop(arena, block + plan[oldest_part + PART_FINISHED], plan[oldest_part + PART_SLOT_COUNT])
    for p in range(count):
        part = parts + p * PART_SIZE
        header = block + plan[part + PART_FINISHED]
        data = arena[header + Q_DATA] + arena[header + Q_HEAD]
        for i in range(plan[part + PART_SLOT_COUNT]):
            scratch[AT_WHOLE + plan[plan[part + PART_OUT] + i]] = arena[data + i]
        _pop(arena, header, plan[part + PART_SLOT_COUNT])
    return True


@compiled
def _pop(arena, header, words):
    arena[header + Q_HEAD] += words
    if arena[header + Q_HEAD] == arena[header + Q_TAIL]:
        arena[header + Q_HEAD] = 0
        arena[header + Q_TAIL] = 0


@compiled
def _too_old_before(plan, subscription, cells, width, row):
    """The time before which events no longer count, or LONG_AGO."""
    within = plan[subscription + SUB_WITHIN]
    if within < 0 or not plan[PLAN_TIME_ORDERED]:
        return LONG_AGO
    return cells[row * width + COL_TIME] - within


@compiled
def _bound_queue(plan, subscription, root, topic, block, arena, cells, width, row):
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
            _kill(plan, root, topic, block, arena, cells, width, place)
            arena[root + ROOT_CAPPED] += 1
            live -= 1
        place += 1
    _tidy(plan, topic, block, arena)


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
        _pop(arena, line, _LINE_WORDS)
        if place < 0:
            continue
        if oldest != LONG_AGO and cells[wanted * width + COL_TIME] < oldest:
            # It stays for a match that may be left over, but counts no more.
            arena[root + ROOT_QUEUED] -= 1
            continue
        _kill(plan, root, topic, block, arena, cells, width, place)
        _tidy(plan, topic, block, arena)
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
        _pop(arena, line, _LINE_WORDS)
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

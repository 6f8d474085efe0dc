"""Admit and match: what one event does to one conjunction.

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
    pop,
)
from concordant.correlate.compiled.caps import LINE_WORDS, bound_queue
from concordant.correlate.compiled.index import drop, extend
from concordant.correlate.compiled.jit import compiled, folded, inlined, pointer_at
from concordant.correlate.compiled.layout import (
    ARENA_FULL,
    ARENA_WANTED,
    ASIDE,
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
    CONSUME_SLIDE,
    CONTROL_OUT,
    CONTROL_OUT_LIMIT,
    CONTROL_OUT_ROWS,
    CONTROL_OUT_ROWS_LIMIT,
    CONTROL_OUTPUT_ROWS,
    DONE,
    MATCHED,
    OUT_CONJUNCTION,
    OUT_FULL,
    OUT_ORDINAL,
    OUT_POSITION,
    OUT_ROW,
    OUT_START,
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
    READER_ROOM,
    READER_ROOT,
    READER_STRAIGHT,
    READER_SUB,
    READER_TESTED,
    READER_TOPIC,
    ROOT_ADMITTED,
    ROOT_LINE,
    ROOT_LINED,
    ROOT_OVER_BUDGET,
    ROOT_QUEUED,
    ROOT_RELATIONS,
    ROOT_STEPS,
    ROOT_WORST,
    SLOT_SIZE,
    STEP_SIZE,
    STEP_SLOT,
    STRAIGHT_COUNT,
    STRAIGHT_STEPS,
    SUB_CONSUME,
    SUB_INDEX,
    SUB_QUEUE_MAX,
    SUB_RECENT,
    SUB_WITHIN,
    TOPIC_FIRST,
    TOPIC_QUEUE,
    TOPIC_SIZE,
    TOPIC_WIDTH,
)
from concordant.correlate.compiled.removal import dispose, expire
from concordant.correlate.compiled.search import fits, search
from concordant.correlate.compiled.straight import go_straight


@folded
def give(plan, reader, arena, cells, width, rank, scratch, out, control, row, block):
    """Give an event to a conjunction; says DONE, or what is missing (and has done nothing).

    `block` is that of its partition, or 0 if it is not known.
    """
    if plan[reader + READER_TESTED] and not admitted(plan, reader, cells, width, rank, row):
        return DONE
    if _crowded(plan, reader, control):
        return OUT_FULL
    subscription = plan[reader + READER_SUB]
    root = plan[reader + READER_ROOT]
    if block == 0:
        block = find_block(plan, subscription, arena, cells, width, row)
    if not of_use(plan, reader, block, arena):
        arena[root + ROOT_ADMITTED] += 1
        return DONE
    if block == 0:
        block = make_block(plan, subscription, arena, cells, width, row)
        if block < 0:
            return ARENA_FULL
    if plan[reader + READER_STRAIGHT] != 0 and arena[root + ROOT_LINED] == 0:
        result = _give_straight(
            plan, reader, arena, cells, width, scratch, out, control, row, block
        )
        if result != ASIDE:
            return result
    return _go_around(plan, reader, arena, cells, width, rank, scratch, out, control, row, block)


@compiled
def _give_straight(plan, reader, arena, cells, width, scratch, out, control, row, block):
    """Give an event to a conjunction that goes the straight way: as `give`, or ASIDE."""
    result = go_straight(plan, reader, arena, cells, width, scratch, row, block)
    if result == MATCHED:
        deliver_straight(plan, reader, block, arena, scratch, out, control, row)
    elif result != DONE:
        return result
    account(plan, plan[reader + READER_ROOT], arena, scratch)
    return DONE


@compiled
def _go_around(plan, reader, arena, cells, width, rank, scratch, out, control, row, block):
    """Queue an event and search for a match, under any policy; answers as `give`.

    A function of its own, so that the loop around the straight way stays small.
    """
    topic = plan[reader + READER_TOPIC]
    part = plan[reader + READER_PART]
    subscription = plan[reader + READER_SUB]
    root = plan[reader + READER_ROOT]
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
    if lined and not make_room(arena, root + ROOT_LINE, LINE_WORDS):
        return ARENA_FULL
    arena[root + ROOT_ADMITTED] += 1
    leftover = block + plan[reader + READER_LEFTOVER]
    if plan[subscription + SUB_WITHIN] >= 0 and plan[PLAN_TIME_ORDERED] and not arena[leftover]:
        oldest = cells[row * width + COL_TIME] - plan[subscription + SUB_WITHIN]
        expire(plan, part, root, block, arena, cells, width, oldest)
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
        account(plan, root, arena, scratch)
    arena[leftover] = 1 if matched and plan[subscription + SUB_CONSUME] == CONSUME_SLIDE else 0
    if matched:
        dispose(plan, subscription, part, root, block, arena, cells, width, scratch)
    if plan[subscription + SUB_QUEUE_MAX] >= 0:
        bound_queue(plan, subscription, root, topic, block, arena, cells, width, row)
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
    start = _deliver(plan, conjunction, subscription, root, block, arena, out, control, row)
    rows = pointer_at(control[CONTROL_OUTPUT_ROWS])
    for i in range(plan[conjunction + CON_SLOTS]):
        rows[start + i] = scratch[AT_WHOLE + i]
    return DONE


@folded
def deliver_straight(plan, reader, block, arena, scratch, out, control, row):
    """Deliver a match of the straight way, whose steps need not stand as its slots do."""
    conjunction = plan[reader + READER_CONJUNCTION]
    start = _deliver(
        plan,
        conjunction,
        plan[reader + READER_SUB],
        plan[reader + READER_ROOT],
        block,
        arena,
        out,
        control,
        row,
    )
    rows = pointer_at(control[CONTROL_OUTPUT_ROWS])
    straight = plan[reader + READER_STRAIGHT]
    step = straight + STRAIGHT_STEPS
    for i in range(plan[straight + STRAIGHT_COUNT]):
        rows[start + plan[step + STEP_SLOT]] = scratch[AT_ROW + i]
        step += STEP_SIZE


@inlined
def admitted(plan, reader, cells, width, rank, row):
    """Does an event fit some instance of its topic?"""
    topic = plan[reader + READER_TOPIC]
    slot = plan[plan[reader + READER_PART] + PART_SLOTS] + plan[topic + TOPIC_FIRST] * SLOT_SIZE
    stop = slot + plan[topic + TOPIC_WIDTH] * SLOT_SIZE
    while slot < stop and not fits(plan, slot, cells, width, rank, row):
        slot += SLOT_SIZE
    return slot < stop


@inlined
def _crowded(plan, reader, control):
    """Might a relation more not find room in the output?"""
    return (
        control[CONTROL_OUT] >= control[CONTROL_OUT_LIMIT]
        or control[CONTROL_OUT_ROWS] + plan[reader + READER_ROOM] > control[CONTROL_OUT_ROWS_LIMIT]
    )


@folded
def _deliver(plan, conjunction, subscription, root, block, arena, out, control, row):
    """Number a relation and write its head; says where the rows of its events go."""
    ordinal = block + plan[conjunction + CON_ORDINAL]
    arena[ordinal] += 1
    arena[block + BLOCK_POSITION] += 1
    arena[root + ROOT_RELATIONS] += 1
    at = control[CONTROL_OUT]
    stride = control[CONTROL_OUT_LIMIT] + 1
    start = control[CONTROL_OUT_ROWS]
    out[at + OUT_ROW * stride] = row
    out[at + OUT_SUB * stride] = plan[subscription + SUB_INDEX]
    out[at + OUT_CONJUNCTION * stride] = plan[conjunction + CON_ORDER]
    out[at + OUT_ORDINAL * stride] = arena[ordinal]
    out[at + OUT_POSITION * stride] = arena[block + BLOCK_POSITION]
    out[at + OUT_START * stride] = start
    control[CONTROL_OUT] += 1
    control[CONTROL_OUT_ROWS] = start + plan[conjunction + CON_SLOTS]
    return start


@inlined
def of_use(plan, reader, block, arena):
    """Is what must come before an event of this topic queued, or a match left over for it to find?

    Otherwise the event can never be part of a match: what comes later comes too late.
    """
    if plan[reader + READER_NEEDS_COUNT] == 0:
        return True
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


@folded
def account(plan, root, arena, scratch):
    steps = scratch[AT_STEPS]
    arena[root + ROOT_STEPS] += steps
    if steps > arena[root + ROOT_WORST]:
        arena[root + ROOT_WORST] = steps
    if steps > plan[PLAN_BUDGET]:
        arena[root + ROOT_OVER_BUDGET] += 1


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
        pop(arena, block + plan[oldest_part + PART_FINISHED], plan[oldest_part + PART_SLOT_COUNT])
    for p in range(count):
        part = parts + p * PART_SIZE
        header = block + plan[part + PART_FINISHED]
        data = arena[header + Q_DATA] + arena[header + Q_HEAD]
        for i in range(plan[part + PART_SLOT_COUNT]):
            scratch[AT_WHOLE + plan[plan[part + PART_OUT] + i]] = arena[data + i]
        pop(arena, header, plan[part + PART_SLOT_COUNT])
    return True

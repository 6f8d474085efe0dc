"""Match: the winning combination, or none.

Depth-first in the policy's order, as the clear form in `correlate.matching`, with four short cuts
that never change the winner: the new event is bound beforehand where only it can complete a match;
order constraints (`then`, times) first shrink every slot's range to where a match can lie; within a
range they are answered by binary search; an index leads to the next candidate of a long queue.
"""

from __future__ import annotations

from concordant.correlate.compiled.index import build, propose
from concordant.correlate.compiled.jit import compiled, folded
from concordant.correlate.compiled.layout import (
    ARENA_WANTED,
    AT_CURSOR,
    AT_DRIVER,
    AT_FROM,
    AT_HIGH,
    AT_INDEX,
    AT_LOW,
    AT_ROW,
    AT_STEPS,
    AT_TO,
    AT_VISIT,
    BINARY_HOW,
    BINARY_INDEX,
    BINARY_MINE,
    BINARY_MONOTONE,
    BINARY_OP,
    BINARY_OTHER,
    BINARY_PROGRAM,
    BINARY_SIZE,
    BINARY_SWAPPED,
    BINARY_THEIRS,
    COL_TIME,
    DENSE,
    HEADER_DATA,
    INDEX_HEADER,
    INDEX_SIZE,
    NO_MATCH,
    NULL,
    OP_EQ,
    OP_GE,
    OP_GT,
    OP_LE,
    OP_LT,
    PART_ORDERED,
    PART_SLOT_COUNT,
    PART_SLOTS,
    PART_TOPIC_COUNT,
    PART_TOPICS,
    PART_VISIT,
    PLAN_SCANNED,
    PLAN_TIME_ORDERED,
    Q_DATA,
    Q_HEAD,
    Q_TAIL,
    SETTLED,
    SLOT_BINARY,
    SLOT_BINARY_COUNT,
    SLOT_SIZE,
    SLOT_TESTED,
    SLOT_TOPIC,
    SLOT_UNARY,
    SLOT_UNARY_COUNT,
    SUB_CONTIGUOUS,
    SUB_RECENT,
    SUB_WITHIN,
    TOPIC_FIRST,
    TOPIC_INDEX_COUNT,
    TOPIC_INDEXES,
    TOPIC_QUEUE,
    TOPIC_SIZE,
    TOPIC_WIDTH,
    UNARY_COLUMN,
    UNARY_HOW,
    UNARY_OP,
    UNARY_SIZE,
    UNARY_VALUE,
)
from concordant.correlate.compiled.ranges import (
    cell,
    first_from,
    queue_of,
    row_at,
    shrink_to_order,
    shrink_to_time,
)
from concordant.correlate.compiled.values import run_program, test


@folded
def fits(plan, slot, cells, width, rank, row):
    """Do all unary predicates of a slot hold for a row?"""
    address = plan[slot + SLOT_UNARY]
    for _ in range(plan[slot + SLOT_UNARY_COUNT]):
        if not test(
            plan[address + UNARY_OP],
            plan[address + UNARY_HOW],
            cells[row * width + plan[address + UNARY_COLUMN]],
            plan[address + UNARY_VALUE],
            rank,
        ):
            return False
        address += UNARY_SIZE
    return True


@folded
def search(plan, subscription, part, block, arena, cells, width, rank, scratch, pinned):
    """Bind every slot of a part; True if a combination was found.

    Every queue holds at least as many events as its topic has slots.

    `pinned` is the topic record whose newest event must be its last instance, or -1. The places
    and rows found stand in the scratch area.
    """
    slots = plan[part + PART_SLOTS]
    slot_count = plan[part + PART_SLOT_COUNT]
    for slot in range(slot_count):
        scratch[AT_ROW + slot] = -1
    # The pinned event is the newest of all where times never decrease.
    anchored = pinned >= 0 and plan[PLAN_TIME_ORDERED] != 0
    newest = 0
    if pinned >= 0:
        slot = plan[pinned + TOPIC_FIRST] + plan[pinned + TOPIC_WIDTH] - 1
        header = block + plan[pinned + TOPIC_QUEUE]
        place = arena[header + Q_TAIL] - 1
        row = arena[arena[header + Q_DATA] + place]
        if not fits(plan, slots + slot * SLOT_SIZE, cells, width, rank, row):
            return False
        scratch[AT_INDEX + slot] = place
        scratch[AT_ROW + slot] = row
        newest = cells[row * width + COL_TIME]  # read only under `within`
        if plan[subscription + SUB_CONTIGUOUS] >= 0 and not _bind_neighbours(
            plan, subscription, part, block, arena, cells, width, rank, scratch, pinned
        ):
            return False
    topics = plan[part + PART_TOPICS]
    for t in range(plan[part + PART_TOPIC_COUNT]):
        topic = topics + t * TOPIC_SIZE
        header = block + plan[topic + TOPIC_QUEUE]
        head = arena[header + Q_HEAD]
        tail = arena[header + Q_TAIL]
        instances = plan[topic + TOPIC_WIDTH]
        first = plan[topic + TOPIC_FIRST]
        for i in range(instances):
            slot = first + i
            if scratch[AT_ROW + slot] >= 0:
                scratch[AT_LOW + slot] = scratch[AT_INDEX + slot]
                scratch[AT_HIGH + slot] = scratch[AT_INDEX + slot] + 1
            else:
                scratch[AT_LOW + slot] = head + i
                scratch[AT_HIGH + slot] = tail - (instances - 1 - i)
    oldest = newest - plan[subscription + SUB_WITHIN]
    if anchored and plan[subscription + SUB_WITHIN] >= 0:
        shrink_to_time(plan, part, block, arena, cells, width, scratch, oldest)
    for slot in range(slot_count):
        if scratch[AT_LOW + slot] >= scratch[AT_HIGH + slot]:
            return False
    if (
        plan[part + PART_ORDERED]
        and plan[subscription + SUB_CONTIGUOUS] < 0
        and (anchored or plan[subscription + SUB_WITHIN] < 0)
    ):  # one end of each range is the match, unless it was removed
        recent = plan[subscription + SUB_RECENT] != 0
        ends = shrink_to_order(plan, part, block, arena, cells, width, scratch, not recent, recent)
        if ends == NO_MATCH:
            return False
        if ends == SETTLED and _take_ends(plan, subscription, part, block, arena, scratch):
            return True
    if shrink_to_order(plan, part, block, arena, cells, width, scratch, True, True) == NO_MATCH:
        return False
    free = 0
    for i in range(slot_count):
        slot = plan[plan[part + PART_VISIT] + i]
        if scratch[AT_ROW + slot] < 0:
            scratch[AT_VISIT + free] = slot
            free += 1
    if free == 0:
        return True
    if (
        pinned >= 0
        and plan[subscription + SUB_CONTIGUOUS] < 0
        and not _narrow(plan, subscription, part, block, arena, cells, width, rank, scratch, free)
    ):
        return False
    spread = -1 if anchored else plan[subscription + SUB_WITHIN]
    depth = 0
    _enter(plan, subscription, part, block, arena, cells, width, scratch, depth)
    while True:
        slot = scratch[AT_VISIT + depth]
        scratch[AT_ROW + slot] = -1
        if not _advance(
            plan, subscription, part, block, arena, cells, width, rank, scratch, depth, spread
        ):
            depth -= 1
            if depth < 0:
                return False
        elif depth == free - 1:
            return True
        else:
            depth += 1
            _enter(plan, subscription, part, block, arena, cells, width, scratch, depth)


@folded
def _take_ends(plan, subscription, part, block, arena, scratch):
    """Bind every slot to the near end of its range; False if one of these events was removed."""
    recent = plan[subscription + SUB_RECENT]
    for slot in range(plan[part + PART_SLOT_COUNT]):
        data = arena[queue_of(plan, part, block, slot) + Q_DATA]
        place = scratch[AT_HIGH + slot] - 1 if recent else scratch[AT_LOW + slot]
        row = arena[data + place]
        if row < 0:
            return False
        scratch[AT_VISIT + slot] = row
        scratch[AT_INDEX + slot] = place
    for slot in range(plan[part + PART_SLOT_COUNT]):
        scratch[AT_ROW + slot] = scratch[AT_VISIT + slot]
    return True


@folded
def _bind_neighbours(plan, subscription, part, block, arena, cells, width, rank, scratch, pinned):
    """Bind the instances before the pinned event: contiguous, they can only be its neighbours."""
    first = plan[pinned + TOPIC_FIRST]
    slot = first + plan[pinned + TOPIC_WIDTH] - 1
    header = block + plan[pinned + TOPIC_QUEUE]
    data = arena[header + Q_DATA]
    place = scratch[AT_INDEX + slot]
    numbers = plan[subscription + SUB_CONTIGUOUS]
    dense = numbers == DENSE
    wanted = 0 if dense else cells[scratch[AT_ROW + slot] * width + numbers]
    within = plan[subscription + SUB_WITHIN]
    while slot > first:
        slot -= 1
        place -= 1
        wanted -= 1
        row = arena[data + place] if place >= arena[header + Q_HEAD] else -1
        record = plan[part + PART_SLOTS] + slot * SLOT_SIZE
        if (
            row < 0
            or (not dense and cells[row * width + numbers] != wanted)
            or not fits(plan, record, cells, width, rank, row)
            or not _agrees(plan, record, cells, width, rank, scratch, row)
            or (within >= 0 and not _near(plan, part, cells, width, scratch, row, within))
        ):
            return False
        scratch[AT_INDEX + slot] = place
        scratch[AT_ROW + slot] = row
    return True


@folded
def _narrow(plan, subscription, part, block, arena, cells, width, rank, scratch, free):
    """Leave out, at the near end of each range, what does not agree with the pinned event.

    Each event left out is looked at once here instead of once per combination; a slot that nothing
    fits ends the search at once.
    """
    recent = plan[subscription + SUB_RECENT]
    for i in range(free):
        slot = scratch[AT_VISIT + i]
        record = plan[part + PART_SLOTS] + slot * SLOT_SIZE
        if not plan[record + SLOT_TESTED]:
            continue
        topic = plan[part + PART_TOPICS] + plan[record + SLOT_TOPIC] * TOPIC_SIZE
        data = arena[block + plan[topic + TOPIC_QUEUE] + Q_DATA]
        low = scratch[AT_LOW + slot]
        high = scratch[AT_HIGH + slot]
        driver = -1
        if high - low > plan[PLAN_SCANNED] and plan[topic + TOPIC_INDEX_COUNT] > 0:
            driver = _driver(plan, topic, record, block, arena, cells, width, scratch, recent)
        while low < high:
            scratch[AT_STEPS] += 1
            if driver >= 0:
                place = high - 1 if recent else low
                place = _led(
                    plan,
                    driver,
                    topic,
                    block,
                    arena,
                    cells,
                    width,
                    scratch,
                    place,
                    low,
                    high,
                    recent,
                )
                if recent:
                    high = place + 1
                else:
                    low = place
                if low >= high:
                    return False
            row = arena[data + (high - 1 if recent else low)]
            if (
                row >= 0
                and fits(plan, record, cells, width, rank, row)
                and _agrees(plan, record, cells, width, rank, scratch, row)
            ):
                break
            if recent:
                high -= 1
            else:
                low += 1
        if low >= high:
            return False
        scratch[AT_LOW + slot] = low
        scratch[AT_HIGH + slot] = high
    return True


@folded
def _enter(plan, subscription, part, block, arena, cells, width, scratch, depth):
    """Set the range of the slot at this depth from the slots already bound."""
    slot = scratch[AT_VISIT + depth]
    record = plan[part + PART_SLOTS] + slot * SLOT_SIZE
    topic = plan[part + PART_TOPICS] + plan[record + SLOT_TOPIC] * TOPIC_SIZE
    data = arena[block + plan[topic + TOPIC_QUEUE] + Q_DATA]
    low = scratch[AT_LOW + slot]
    high = scratch[AT_HIGH + slot]
    first = plan[topic + TOPIC_FIRST]
    numbers = plan[subscription + SUB_CONTIGUOUS]
    for other in range(first, first + plan[topic + TOPIC_WIDTH]):
        row = scratch[AT_ROW + other]
        if row < 0:
            continue
        place = scratch[AT_INDEX + other]
        if other < slot:
            low = max(low, place + (slot - other))
        else:
            high = min(high, place - (other - slot) + 1)
        if numbers >= 0 and low < high:
            wanted = cells[row * width + numbers] + (slot - other)
            low = first_from(arena, data, low, high, cells, width, numbers, wanted, False)
            if low < high and cells[row_at(arena, data + low) * width + numbers] == wanted:
                high = low + 1
            else:
                high = low
    scratch[AT_DRIVER + depth] = -1
    address = plan[record + SLOT_BINARY]
    for _ in range(plan[record + SLOT_BINARY_COUNT]):
        other_row = scratch[AT_ROW + plan[address + BINARY_OTHER]]
        if plan[address + BINARY_MONOTONE] and other_row >= 0 and low < high:
            column = plan[address + BINARY_MINE]
            value = cell(cells, width, other_row, plan[address + BINARY_THEIRS])
            op = plan[address + BINARY_OP]
            if op == OP_GT or op == OP_GE or op == OP_EQ:
                low = first_from(arena, data, low, high, cells, width, column, value, op == OP_GT)
            if op == OP_LT or op == OP_LE or op == OP_EQ:
                high = first_from(arena, data, low, high, cells, width, column, value, op != OP_LT)
        address += BINARY_SIZE
    scratch[AT_FROM + depth] = low
    scratch[AT_TO + depth] = high
    if high - low > plan[PLAN_SCANNED] and plan[topic + TOPIC_INDEX_COUNT] > 0:
        recent = plan[subscription + SUB_RECENT]
        scratch[AT_DRIVER + depth] = _driver(
            plan, topic, record, block, arena, cells, width, scratch, recent
        )
    scratch[AT_CURSOR + depth] = high - 1 if plan[subscription + SUB_RECENT] else low


@compiled
def _driver(plan, topic, record, block, arena, cells, width, scratch, recent):
    """The predicate with a bound partner whose index leads to candidates, or -1."""
    best = -1
    address = plan[record + SLOT_BINARY]
    for _ in range(plan[record + SLOT_BINARY_COUNT]):
        bound = scratch[AT_ROW + plan[address + BINARY_OTHER]] >= 0
        if plan[address + BINARY_INDEX] >= 0 and bound:
            best = address
            if plan[address + BINARY_OP] == OP_EQ:
                break
        address += BINARY_SIZE
    if best < 0:
        return -1
    index = plan[topic + TOPIC_INDEXES] + plan[best + BINARY_INDEX] * INDEX_SIZE
    queue = block + plan[topic + TOPIC_QUEUE]
    if arena[block + plan[index + INDEX_HEADER] + HEADER_DATA] == 0 and not build(
        plan, index, block, queue, arena, cells, width, recent
    ):
        arena[ARENA_WANTED] = 1
        return -1
    return best


@compiled
def _led(plan, driver, topic, block, arena, cells, width, scratch, place, low, high, recent):
    """The next place that the driver's index proposes."""
    index = plan[topic + TOPIC_INDEXES] + plan[driver + BINARY_INDEX] * INDEX_SIZE
    row = scratch[AT_ROW + plan[driver + BINARY_OTHER]]
    bound = cells[row * width + plan[driver + BINARY_THEIRS]]
    if bound == NULL:
        return low - 1 if recent else high
    return propose(
        plan,
        index,
        arena[block + plan[index + INDEX_HEADER] + HEADER_DATA],
        block + plan[topic + TOPIC_QUEUE],
        arena,
        cells,
        width,
        place,
        low,
        high,
        bound,
        plan[driver + BINARY_OP],
        recent,
    )


@folded
def _advance(plan, subscription, part, block, arena, cells, width, rank, scratch, depth, spread):
    """Bind the next candidate of the slot at this depth; False when there is none."""
    slot = scratch[AT_VISIT + depth]
    record = plan[part + PART_SLOTS] + slot * SLOT_SIZE
    topic = plan[part + PART_TOPICS] + plan[record + SLOT_TOPIC] * TOPIC_SIZE
    data = arena[block + plan[topic + TOPIC_QUEUE] + Q_DATA]
    low = scratch[AT_FROM + depth]
    high = scratch[AT_TO + depth]
    step = -1 if plan[subscription + SUB_RECENT] else 1
    place = scratch[AT_CURSOR + depth]
    # An only instance was tested when it was admitted.
    several = plan[topic + TOPIC_WIDTH] > 1
    driver = scratch[AT_DRIVER + depth]
    steps = 0
    found = False
    while low <= place < high:
        if driver >= 0:
            place = _led(
                plan, driver, topic, block, arena, cells, width, scratch, place, low, high, step < 0
            )
            if place < low or place >= high:
                break
        row = arena[data + place]
        steps += 1
        if (
            row >= 0
            and (not several or fits(plan, record, cells, width, rank, row))
            and _agrees(plan, record, cells, width, rank, scratch, row)
            and (spread < 0 or _near(plan, part, cells, width, scratch, row, spread))
        ):
            found = True
            break
        place += step
    scratch[AT_STEPS] += steps
    scratch[AT_CURSOR + depth] = place + step
    if found:
        scratch[AT_INDEX + slot] = place
        scratch[AT_ROW + slot] = arena[data + place]
    return found


@folded
def _agrees(plan, record, cells, width, rank, scratch, row):
    """Do the binary predicates with the slots already bound hold?"""
    address = plan[record + SLOT_BINARY]
    for _ in range(plan[record + SLOT_BINARY_COUNT]):
        other_row = scratch[AT_ROW + plan[address + BINARY_OTHER]]
        if other_row >= 0 and not plan[address + BINARY_MONOTONE]:
            program = plan[address + BINARY_PROGRAM]
            if program >= 0:
                a, b = row, other_row
                if plan[address + BINARY_SWAPPED]:
                    a, b = other_row, row
                if run_program(plan, program, cells, width, rank, a, b, scratch) != 1:
                    return False
            elif not test(
                plan[address + BINARY_OP],
                plan[address + BINARY_HOW],
                cells[row * width + plan[address + BINARY_MINE]],
                cells[other_row * width + plan[address + BINARY_THEIRS]],
                rank,
            ):
                return False
        address += BINARY_SIZE
    return True


@folded
def _near(plan, part, cells, width, scratch, row, spread):
    """Is the row's time within reach of all rows already bound?"""
    time = cells[row * width + COL_TIME]
    for slot in range(plan[part + PART_SLOT_COUNT]):
        other = scratch[AT_ROW + slot]
        if other >= 0 and abs(cells[other * width + COL_TIME] - time) > spread:
            return False
    return True

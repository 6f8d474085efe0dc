"""The loop over rows: derive columns, number streams, route events to conjunctions, compact state.

One call takes one live event or a million rows alike. A call that runs out of room says what it
needs and where it stopped, and goes on from there when called again.
"""

from __future__ import annotations

from concordant.correlate.compiled.alone import take_alone
from concordant.correlate.compiled.arena import find_block, find_by_one, make_block, make_room, mix
from concordant.correlate.compiled.caps import bound_all, over_all
from concordant.correlate.compiled.index import approach
from concordant.correlate.compiled.jit import compiled, pointer, pointer_at, prefetch
from concordant.correlate.compiled.layout import (
    AHEAD_COUNT,
    ALONE_PARTED,
    ALONE_WHOLE,
    ARENA_BUMP,
    ARENA_FULL,
    AT_AHEAD,
    AT_ONLY,
    BLOCK_KEYS,
    CONTROL_ARENA,
    CONTROL_CANDIDATE,
    CONTROL_CANDIDATES,
    CONTROL_CELLS,
    CONTROL_CODE,
    CONTROL_CODES,
    CONTROL_COUNTS,
    CONTROL_DERIVED,
    CONTROL_NUMBERED,
    CONTROL_OUT,
    CONTROL_OUTPUT,
    CONTROL_PENDING,
    CONTROL_PLAN,
    CONTROL_RANK,
    CONTROL_ROW,
    CONTROL_SCRATCH,
    CONTROL_WIDTH,
    DONE,
    NEAR_WORDS,
    NOTHING,
    NULL,
    PLAN_ALONE,
    PLAN_DERIVED,
    PLAN_DERIVED_COUNT,
    PLAN_NUMBERED,
    PLAN_NUMBERED_COUNT,
    PLAN_TOPICS,
    Q_DATA,
    Q_TAIL,
    READER_NEEDS,
    READER_NEEDS_COUNT,
    READER_QUEUE,
    READER_ROOT,
    READER_SOUGHT_COUNT,
    READER_SUB,
    READER_TESTED,
    ROOT_ADMITTED,
    ROOT_TABLE,
    ROOT_TABLE_BITS,
    ROUTER_ALWAYS,
    ROUTER_ALWAYS_COUNT,
    ROUTER_ASKED,
    ROUTER_EQUALS,
    ROUTER_EQUALS_COUNT,
    ROUTER_ONLY,
    ROUTER_RANGES,
    ROUTER_RANGES_COUNT,
    ROUTER_SEGMENTS,
    ROUTER_SEGMENTS_COUNT,
    SUB_KEY_COUNT,
    SUB_KEYS,
    SUB_ROOT,
    WHOLE_COUNT,
)
from concordant.correlate.compiled.steps import give, of_use
from concordant.correlate.compiled.values import run_program

_LINE = 8
"""Words that are brought near together."""


@compiled
def take(control_array, stop):
    """Take the rows up to `stop`; DONE, or what is missing, to be called again after it was given.

    There is one array for an argument: `control` knows where the others are.
    """
    return _take(pointer(control_array), stop)


@compiled
def take_one(control_array, row, code):
    """Take one live event; as `take`, or NOTHING, so that most need no look at `control`."""
    control = pointer(control_array)
    pointer_at(control[CONTROL_CODE])[0] = code
    pointer_at(control[CONTROL_COUNTS])[code] += 1
    control[CONTROL_CODES] = control[CONTROL_CODE] - 8 * row
    control[CONTROL_ROW] = row
    control[CONTROL_DERIVED] = row
    control[CONTROL_NUMBERED] = row
    result = _take(control, row + 1)
    return NOTHING if result == DONE and control[CONTROL_OUT] == 0 else result


@compiled
def _take(control, stop):
    """`take`, once it is known where everything is."""
    plan = pointer_at(control[CONTROL_PLAN])
    arena = pointer_at(control[CONTROL_ARENA])
    cells = pointer_at(control[CONTROL_CELLS])
    rank = pointer_at(control[CONTROL_RANK])
    scratch = pointer_at(control[CONTROL_SCRATCH])
    codes = pointer_at(control[CONTROL_CODES])
    width = control[CONTROL_WIDTH]
    if plan[PLAN_DERIVED_COUNT] > 0:
        _derive(plan, cells, width, rank, scratch, control[CONTROL_DERIVED], stop)
    control[CONTROL_DERIVED] = stop
    if plan[PLAN_NUMBERED_COUNT] > 0:
        row = _number(plan, arena, cells, codes, width, control[CONTROL_NUMBERED], stop)
        control[CONTROL_NUMBERED] = row
        if row < stop:
            return ARENA_FULL
    control[CONTROL_NUMBERED] = stop
    out = pointer_at(control[CONTROL_OUTPUT])
    candidates = pointer_at(control[CONTROL_CANDIDATES])
    return _run(plan, arena, cells, codes, width, rank, scratch, out, control, candidates, stop)


@compiled
def _derive(plan, cells, width, rank, scratch, start, stop):
    """Compute the columns that hold expressions of one event."""
    address = plan[PLAN_DERIVED]
    for _ in range(plan[PLAN_DERIVED_COUNT]):
        column = plan[address]
        program = plan[address + 1]
        address += 2
        for row in range(start, stop):
            cells[row * width + column] = run_program(
                plan, program, cells, width, rank, row, row, scratch
            )


@compiled
def _number(plan, arena, cells, codes, width, start, stop):
    """Give each row its place in its topic's stream, per partition value.

    The records look like subscriptions to `find_block`; a block holds one counter per topic code.
    Returns the row at which the arena was full, or `stop`.
    """
    for row in range(start, stop):
        address = plan[PLAN_NUMBERED]
        for _ in range(plan[PLAN_NUMBERED_COUNT]):
            record = plan[address]
            column = plan[address + 1]
            address += 2
            block = find_block(plan, record, arena, cells, width, row)
            if block == 0:
                block = make_block(plan, record, arena, cells, width, row)
            if block < 0:
                return row
            at = block + BLOCK_KEYS + plan[record + SUB_KEY_COUNT] + codes[row]
            if cells[row * width + column] == NULL:  # not yet numbered by an interrupted call
                arena[at] += 1
                cells[row * width + column] = arena[at]
    return stop


@compiled
def _run(plan, arena, cells, codes, width, rank, scratch, out, control, candidates, stop):
    """Give rows up to `stop` to the conjunctions; DONE, or what is missing."""
    pending = control[CONTROL_PENDING]
    if pending != 0:
        result = bound_all(plan, pending, arena, cells, width, control[CONTROL_ROW])
        if result != DONE:
            return result
        control[CONTROL_PENDING] = 0
    row = control[CONTROL_ROW]
    looked = ahead = other = row
    alone = plan[PLAN_ALONE]
    while row < stop:
        plain = row >= other
        if row >= ahead and not (plain and alone == ALONE_WHOLE):
            looked = row
            ahead = min(row + AHEAD_COUNT, stop)
            if not (alone and _look_alone(plan, arena, cells, codes, width, scratch, row, ahead)):
                _look_ahead(plan, arena, cells, codes, width, scratch, row, ahead)
        if plain and alone:
            came = row
            far = ahead if alone == ALONE_PARTED else min(row + WHOLE_COUNT, stop)
            row = take_alone(
                plan, arena, cells, codes, width, rank, scratch, out, control, row, looked, far
            )
            if row == came:  # the next rows are likely not to be plain either
                other = row + AHEAD_COUNT
            continue
        block = scratch[AT_AHEAD + row - looked]
        base = AT_ONLY + row - looked
        if scratch[base] != 0:
            if (
                block != 0
                and not plan[scratch[base] + READER_TESTED]
                and control[CONTROL_CANDIDATE] == 0
                and not of_use(plan, scratch[base], block, arena)
            ):
                arena[plan[scratch[base] + READER_ROOT] + ROOT_ADMITTED] += 1
                row += 1
                continue  # the commonest end of all, so without a call
            source = scratch
            count = 1
        else:
            router = plan[plan[PLAN_TOPICS] + codes[row]]
            if plan[router + ROUTER_ASKED] == 0:
                source = plan
                base = plan[router + ROUTER_ALWAYS]
                count = plan[router + ROUTER_ALWAYS_COUNT]
            else:
                source = candidates
                base = 0
                count = _route(plan, router, cells, width, candidates, row)
        for i in range(control[CONTROL_CANDIDATE], count):
            reader = source[base + i]
            result = give(
                plan, reader, arena, cells, width, rank, scratch, out, control, row, block
            )
            if result != DONE:
                control[CONTROL_ROW] = row
                control[CONTROL_CANDIDATE] = i
                return result
            if over_all(plan, reader, arena):
                subscription = plan[reader + READER_SUB]
                if i + 1 < count and plan[source[base + i + 1] + READER_SUB] == subscription:
                    continue  # once all its conjunctions have the event
                result = bound_all(plan, subscription, arena, cells, width, row)
                if result != DONE:
                    control[CONTROL_ROW] = row
                    control[CONTROL_CANDIDATE] = i + 1
                    control[CONTROL_PENDING] = subscription
                    return result
        control[CONTROL_CANDIDATE] = 0
        row += 1
    control[CONTROL_ROW] = stop
    return DONE


@compiled
def _look_alone(plan, arena, cells, codes, width, scratch, start, stop):
    """As `_look_ahead`, for one question alone with partitions by one value; False if it is not.

    All its events have one table of partitions, and none of them goes by an index.
    """
    routers = plan[PLAN_TOPICS]
    subscription = plan[plan[plan[routers + codes[start]] + ROUTER_ONLY] + READER_SUB]
    root = plan[subscription + SUB_ROOT]
    table = arena[root + ROOT_TABLE]
    if table == 0 or plan[subscription + SUB_KEY_COUNT] != 1:
        return False
    mask = (1 << arena[root + ROOT_TABLE_BITS]) - 1
    column = plan[plan[subscription + SUB_KEYS]]
    for row in range(start, stop):
        found = find_by_one(arena, table, mask, mix(cells[row * width + column], 1))
        reader = plan[plan[routers + codes[row]] + ROUTER_ONLY]
        scratch[AT_AHEAD + row - start] = found
        scratch[AT_ONLY + row - start] = reader
        prefetch(arena, found + plan[reader + READER_QUEUE])
        prefetch(arena, found + _LINE)
        prefetch(arena, found + 2 * _LINE)
    if arena[ARENA_BUMP] > NEAR_WORDS:
        for i in range(stop - start):
            reader = scratch[AT_ONLY + i]
            header = scratch[AT_AHEAD + i] + plan[reader + READER_QUEUE]
            prefetch(arena, arena[header + Q_DATA] + arena[header + Q_TAIL])
    return True


@compiled
def _look_ahead(plan, arena, cells, codes, width, scratch, start, stop):
    """The blocks of rows that can enter one conjunction alone; their queues are brought near.

    By itself each look-up waits for memory; here none depends on the one before. A block that does
    not exist yet is looked up again in its turn.
    """
    far = arena[ARENA_BUMP] > NEAR_WORDS
    sought = False
    known = 0
    keyed = False
    table = mask = column = 0
    for row in range(start, stop):
        found = 0
        reader = plan[plan[plan[PLAN_TOPICS] + codes[row]] + ROUTER_ONLY]
        scratch[AT_ONLY + row - start] = reader
        if reader != 0:
            subscription = plan[reader + READER_SUB]
            if subscription != known:
                known = subscription
                root = plan[subscription + SUB_ROOT]
                table = arena[root + ROOT_TABLE]
                mask = (1 << arena[root + ROOT_TABLE_BITS]) - 1
                column = plan[plan[subscription + SUB_KEYS]]
                keyed = plan[subscription + SUB_KEY_COUNT] == 1 and table != 0
            if keyed:
                found = find_by_one(arena, table, mask, mix(cells[row * width + column], 1))
            else:
                found = find_block(plan, subscription, arena, cells, width, row)
            if far:
                prefetch(arena, found + plan[reader + READER_QUEUE])
                prefetch(arena, found + _LINE)  # of a small block, the other queues as well
                prefetch(arena, found + 2 * _LINE)
                if plan[reader + READER_NEEDS_COUNT] > 0:
                    prefetch(arena, found + plan[plan[reader + READER_NEEDS]])
                sought = sought or plan[reader + READER_SOUGHT_COUNT] > 0
        scratch[AT_AHEAD + row - start] = found
    if not far:
        return
    for row in range(start, stop):  # by now the queues are near, but not yet what they hold
        found = scratch[AT_AHEAD + row - start]
        if found != 0:
            reader = scratch[AT_ONLY + row - start]
            header = found + plan[reader + READER_QUEUE]
            prefetch(arena, arena[header + Q_DATA] + arena[header + Q_TAIL])
            if plan[reader + READER_SOUGHT_COUNT] > 0:
                approach(plan, reader, found, arena, cells, width, row, False)
    if not sought:
        return
    for row in range(start, stop):
        found = scratch[AT_AHEAD + row - start]
        if found != 0:
            reader = scratch[AT_ONLY + row - start]
            if plan[reader + READER_SOUGHT_COUNT] > 0:
                approach(plan, reader, found, arena, cells, width, row, True)


@compiled
def _route(plan, router, cells, width, candidates, row):
    """The readers that may admit a row, ascending; says how many."""
    count = plan[router + ROUTER_ALWAYS_COUNT]
    for i in range(count):
        candidates[i] = plan[plan[router + ROUTER_ALWAYS] + i]
    address = plan[router + ROUTER_EQUALS]
    for _ in range(plan[router + ROUTER_EQUALS_COUNT]):
        value = cells[row * width + plan[address]]
        table = plan[address + 1]
        mask = (1 << plan[address + 2]) - 1
        address += 3
        if value == NULL:
            continue
        place = mix(value, 1) & mask
        while plan[table + 3 * place + 1] != 0:
            if plan[table + 3 * place] == value:
                first = plan[table + 3 * place + 1]
                for i in range(plan[table + 3 * place + 2]):
                    candidates[count] = plan[first + i]
                    count += 1
                break
            place = (place + 1) & mask
    address = plan[router + ROUTER_RANGES]
    for _ in range(plan[router + ROUTER_RANGES_COUNT]):
        value = cells[row * width + plan[address]]
        upward = plan[address + 1]
        pairs = plan[address + 2]
        size = plan[address + 3]
        address += 4
        if value == NULL:
            continue
        # Thresholds are sorted so that those a value passes come first; `give` tests exactly.
        for i in range(size):
            threshold = plan[pairs + 2 * i]
            if (value < threshold) if upward else (value > threshold):
                break
            candidates[count] = plan[pairs + 2 * i + 1]
            count += 1
    address = plan[router + ROUTER_SEGMENTS]
    for _ in range(plan[router + ROUTER_SEGMENTS_COUNT]):
        value = cells[row * width + plan[address]]
        boundaries = plan[address + 1]
        low = 0
        high = plan[address + 2]
        starts = plan[address + 3]
        address += 4
        if value == NULL:
            continue
        while low < high:  # the first boundary beyond the value
            middle = (low + high) >> 1
            if plan[boundaries + middle] <= value:
                low = middle + 1
            else:
                high = middle
        for place in range(plan[starts + low], plan[starts + low + 1]):
            candidates[count] = plan[place]
            count += 1
    _sort(candidates, count)
    return count


@compiled
def _sort(candidates, count):
    """Sort ascending, in place: by insertion with shrinking gaps, quick for the usual few."""
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            item = candidates[i]
            j = i - gap
            while j >= 0 and candidates[j] > item:
                candidates[j + gap] = candidates[j]
                j -= gap
            candidates[j + gap] = item
        gap //= 2


@compiled
def make_queue_room(control_array, header, words):
    """Room for words in a queue; False if the arena is full."""
    return make_room(pointer_at(control_array[CONTROL_ARENA]), header, words)

"""Which conjunctions an event goes to: routers as data for the compiled loops.

With a few readers of a topic every event is offered to all of them. With many, those that ask for
one value of an attribute are found by hash, those that ask for values above (or below) a bound by
walking the bounds that the value passes, those with both bounds by the segment that the value lies
in, so that an event costs what it is admitted to and not what is subscribed.
A router may offer too much, never too little: admission itself is tested afterwards.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence

from concordant.correlate.compiled import layout as at
from concordant.correlate.plan import ConjunctionPlan

Put = Callable[[Sequence[int]], int]
"""Appends words to the plan and returns their address."""

OFFERED_COUNT_MAX = 8
"""Up to so many readers of a topic it is cheaper to offer an event to all of them."""

_WORD = 2**64
_MULTIPLIER = 0x2545F4914F6CDD1D


def write_routers(
    words: list[int],
    put: Put,
    topics: Sequence[str],
    conjunctions: Sequence[tuple[int, ConjunctionPlan]],
    encoded: Collection[int],
) -> bool:
    """Write one router per topic, and a sieve; says whether the sieve holds anything back.

    `encoded` are the columns that a sieve can look at: others are calculated later.
    """
    addresses = []
    sieves: list[int] = []
    for topic in topics:
        readers = [
            put(_reader(words, put, address, plan, topic))
            for address, plan in conjunctions
            if topic in plan.part_of_topic
        ]
        router = [0] * at.ROUTER_SIZE
        always = readers
        if len(readers) > OFFERED_COUNT_MAX:
            equals, ranges, segments, always = _sorted_by_access(words, readers)
            tables = [word for column, found in equals for word in (column, *_table(put, found))]
            router[at.ROUTER_EQUALS] = put(tables)
            router[at.ROUTER_EQUALS_COUNT] = len(equals)
            walks = [word for key, found in ranges for word in _thresholds(put, key, found)]
            router[at.ROUTER_RANGES] = put(walks)
            router[at.ROUTER_RANGES_COUNT] = len(ranges)
            cuts = [w for column, found in segments for w in (column, *_segments(put, found))]
            router[at.ROUTER_SEGMENTS] = put(cuts)
            router[at.ROUTER_SEGMENTS_COUNT] = len(segments)
            router[at.ROUTER_ASKED] = len(equals) + len(ranges) + len(segments)
        if len(readers) == 1:
            router[at.ROUTER_ONLY] = readers[0]
        router[at.ROUTER_ALWAYS] = put(always)
        router[at.ROUTER_ALWAYS_COUNT] = len(always)
        addresses.append(put(router))
        sieves += _sieve(words, readers, encoded)
    words[at.PLAN_TOPICS] = put(addresses)
    words[at.PLAN_SIEVE] = put(sieves)
    return sieves != list(_ALL) * len(topics)


_ALL = (0, at.NULL, 2**63 - 1)
"""A sieve that lets every event pass: a column, the least value and the greatest."""
_NONE = (1, 0)
"""No value lies there."""


def _sieve(words: list[int], readers: Sequence[int], encoded: Collection[int]) -> Sequence[int]:
    """The values of one column outside of which no reader admits an event."""
    slots = [one for reader in readers for one in _unary_of_slots(words, reader)]
    for column in dict.fromkeys(unary[0] for unary in slots[0]):
        ranges = [_range([u for u in one if u[0] == column]) for one in slots]
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        if column in encoded and (low, high) != _ALL[1:]:
            return column, low, high
    return _ALL


def _range(unaries: Sequence[Unary]) -> tuple[int, int]:
    """The least and the greatest value that may pass all these."""
    _, low, high = _ALL
    for _, op, value in unaries:
        low = max(low, at.NULL + 1)  # null passes no comparison
        if op in (at.OP_EQ, *_UPWARD):
            low = max(low, value + (op == at.OP_GT))
        if op in (at.OP_EQ, *_DOWNWARD):
            high = min(high, value - (op == at.OP_LT))
    return (low, high) if low <= high else _NONE


def _reader(
    words: list[int], put: Put, address: int, plan: ConjunctionPlan, topic: str
) -> list[int]:
    """The record of one topic of one conjunction."""
    index = plan.part_of_topic[topic]
    part = words[address + at.CON_PARTS] + index * at.PART_SIZE
    topics = words[part + at.PART_TOPICS]
    one = topics + plan.parts[index].topics.index(topic) * at.TOPIC_SIZE
    subscription = words[address + at.CON_SUB]
    record = [0] * at.READER_SIZE
    record[at.READER_CONJUNCTION] = address
    record[at.READER_PART] = part
    record[at.READER_TOPIC] = one
    record[at.READER_SUB] = subscription
    record[at.READER_ROOT] = words[subscription + at.SUB_ROOT]
    record[at.READER_QUEUE] = words[one + at.TOPIC_QUEUE]
    slots = plan.parts[index].slots_of_topic[topic]
    record[at.READER_TESTED] = int(all(plan.parts[index].unary[slot] for slot in slots))
    record[at.READER_ROOM] = words[address + at.CON_SLOTS]
    record[at.READER_LEFTOVER] = words[part + at.PART_LEFTOVER]
    record[at.READER_INDEXED] = int(words[one + at.TOPIC_INDEX_COUNT] > 0)
    record[at.READER_COMPLETES] = words[one + at.TOPIC_COMPLETES]
    record[at.READER_NEEDS] = words[one + at.TOPIC_NEEDS]
    record[at.READER_NEEDS_COUNT] = words[one + at.TOPIC_NEEDS_COUNT]
    record[at.READER_QUEUED_MAX] = words[subscription + at.SUB_QUEUED_MAX]
    sought = _sought(words, part, one)
    record[at.READER_SOUGHT] = put([word for place in sought for word in place])
    record[at.READER_SOUGHT_COUNT] = len(sought)
    straight = record[at.READER_STRAIGHT] = words[part + at.PART_STRAIGHT]
    if straight:
        steps = range(straight + at.STRAIGHT_STEPS, len(words), at.STEP_SIZE)
        mine = (i for i, step in enumerate(steps) if words[step + at.STEP_TOPIC] == one)
        record[at.READER_STEP] = next(mine)
    return record


def _sought(words: list[int], part: int, mine: int) -> list[tuple[int, int, int]]:
    """Where the indexes of equal values lie that an event of a topic enters or is led by."""
    found = []
    slots, topics = words[part + at.PART_SLOTS], words[part + at.PART_TOPICS]

    def topic_of(slot: int) -> int:
        return topics + words[slots + slot * at.SLOT_SIZE + at.SLOT_TOPIC] * at.TOPIC_SIZE

    for slot in range(words[part + at.PART_SLOT_COUNT]):
        topic = topic_of(slot)
        for i in range(words[slots + slot * at.SLOT_SIZE + at.SLOT_BINARY_COUNT]):
            pair = words[slots + slot * at.SLOT_SIZE + at.SLOT_BINARY] + i * at.BINARY_SIZE
            if words[pair + at.BINARY_INDEX] < 0 or words[pair + at.BINARY_OP] != at.OP_EQ:
                continue
            index = words[topic + at.TOPIC_INDEXES] + words[pair + at.BINARY_INDEX] * at.INDEX_SIZE
            place = words[topic + at.TOPIC_QUEUE], words[index + at.INDEX_HEADER]
            if topic == mine:
                found.append((*place, words[pair + at.BINARY_MINE]))
            if topic_of(words[pair + at.BINARY_OTHER]) == mine:
                found.append((*place, words[pair + at.BINARY_THEIRS]))
    return list(dict.fromkeys(found))


Equals = list[tuple[int, dict[int, list[int]]]]
"""Per column: the readers that ask for a value."""
Ranges = list[tuple[tuple[int, bool], list[tuple[int, int]]]]
"""Per column and direction: (threshold, reader)."""


Intervals = list[tuple[int, list[tuple[int, int, int]]]]
"""Per column: (lowest value, highest value, reader)."""


def _sorted_by_access(
    words: list[int], readers: Sequence[int]
) -> tuple[Equals, Ranges, Intervals, list[int]]:
    equals: dict[int, dict[int, list[int]]] = {}
    ranges: dict[tuple[int, bool], list[tuple[int, int]]] = {}
    intervals: dict[int, list[tuple[int, int, int]]] = {}
    always: list[int] = []
    for reader in readers:
        slots = _unary_of_slots(words, reader)
        equal = next((u for u in slots[0] if _in_all(slots, u, (at.OP_EQ,))), None)
        if equal is not None:
            column, _, value = equal
            equals.setdefault(column, {}).setdefault(value, []).append(reader)
            continue
        bounds = [u for u in slots[0] if len(slots) == 1 and u[1] in (*_UPWARD, *_DOWNWARD)]
        both = next((b for b in _closed(bounds)), None)
        if both is not None:
            column, low, high = both
            intervals.setdefault(column, []).append((low, high, reader))
        elif bounds:
            column, op, value = bounds[0]
            ranges.setdefault((column, op in _UPWARD), []).append((value, reader))
        else:
            always.append(reader)
    for column, found in [*intervals.items()]:
        if _covered(found) > _COVERED_SHARE_MAX * len(found):  # wide ones: one bound must do
            del intervals[column]
            ranges.setdefault((column, True), []).extend((low, reader) for low, _, reader in found)
    return list(equals.items()), list(ranges.items()), list(intervals.items()), always


_COVERED_SHARE_MAX = 64
"""Segments that an interval may cover on average before their lists would grow too long."""


def _closed(bounds: Sequence[Unary]) -> list[tuple[int, int, int]]:
    """Columns with a bound on both sides: (column, lowest, highest), both inclusive.

    Codes are integers that sort like what they encode, so `> c` is `>= c + 1` of the codes.
    """
    found = []
    for column in dict.fromkeys(column for column, _, _ in bounds):
        mine = [(op, value) for one, op, value in bounds if one == column]
        lows = [value + (op == at.OP_GT) for op, value in mine if op in _UPWARD]
        highs = [value - (op == at.OP_LT) for op, value in mine if op in _DOWNWARD]
        if lows and highs:
            found.append((column, max(lows), min(highs)))
    return found


def _boundaries(found: Sequence[tuple[int, int, int]]) -> list[int]:
    """Where some interval begins or has just ended, ascending."""
    return sorted({low for low, _, _ in found} | {high + 1 for _, high, _ in found})


def _covered(found: Sequence[tuple[int, int, int]]) -> int:
    """How many segments the intervals cover, counted with repetition."""
    cuts = _boundaries(found)
    return sum(
        max(0, bisect_left(cuts, high + 1) - bisect_left(cuts, low)) for low, high, _ in found
    )


def _segments(put: Put, found: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Boundaries, their number, and where the readers of each segment are.

    Segment i lies before boundary i; the first one and the one after the last hold nobody.
    """
    cuts = _boundaries(found)
    lists: list[list[int]] = [[] for _ in range(len(cuts) + 1)]
    for low, high, reader in found:
        for i in range(bisect_left(cuts, low) + 1, bisect_left(cuts, high + 1) + 1):
            lists[i].append(reader)
    first = put([reader for one in lists for reader in one])
    starts = [first]
    for one in lists:
        starts.append(starts[-1] + len(one))
    return put(cuts), len(cuts), put(starts)


_UPWARD = (at.OP_GT, at.OP_GE)
_DOWNWARD = (at.OP_LT, at.OP_LE)

Unary = tuple[int, int, int]
"""Column, operator, constant."""


def _unary_of_slots(words: list[int], reader: int) -> list[list[Unary]]:
    """Per instance of the reader's topic: its predicates that compare codes directly."""
    part = words[reader + at.READER_PART]
    topic = words[reader + at.READER_TOPIC]
    first = words[part + at.PART_SLOTS] + words[topic + at.TOPIC_FIRST] * at.SLOT_SIZE
    found = []
    for instance in range(words[topic + at.TOPIC_WIDTH]):
        slot = first + instance * at.SLOT_SIZE
        start = words[slot + at.SLOT_UNARY]
        stop = start + words[slot + at.SLOT_UNARY_COUNT] * at.UNARY_SIZE
        found.append(
            [
                (words[u + at.UNARY_COLUMN], words[u + at.UNARY_OP], words[u + at.UNARY_VALUE])
                for u in range(start, stop, at.UNARY_SIZE)
                if words[u + at.UNARY_HOW] == at.HOW_SAME
            ]
        )
    return found


def _in_all(slots: Sequence[Sequence[Unary]], unary: Unary, ops: Sequence[int]) -> bool:
    return unary[1] in ops and all(unary in one for one in slots)


def _table(put: Put, found: dict[int, list[int]]) -> tuple[int, int]:
    """A hash table from value to readers: its address and size in bits."""
    bits = max(1, (2 * len(found) - 1).bit_length())
    table = [0] * (3 << bits)
    for value, readers in found.items():
        place = mixed(value) & ((1 << bits) - 1)
        while table[3 * place + 1]:
            place = (place + 1) & ((1 << bits) - 1)
        table[3 * place : 3 * place + 3] = [value, put(readers), len(readers)]
    return put(table), bits


def _thresholds(
    put: Put, key: tuple[int, bool], found: Sequence[tuple[int, int]]
) -> tuple[int, int, int, int]:
    """The record of a walk: column, upward, thresholds, count; those passed first come first."""
    column, upward = key
    ordered = sorted(found, reverse=not upward)
    pairs = put([word for pair in ordered for word in pair])
    return column, int(upward), pairs, len(ordered)


def mixed(value: int) -> int:
    """The hash of a single value, as `compiled.arena.mix` calculates it with seed 1."""
    mixed = _signed((value ^ _MULTIPLIER) * -7046029254386353131)
    return mixed ^ ((mixed >> 32) & 0xFFFFFFFF)


def _signed(number: int) -> int:
    number %= _WORD
    return number - _WORD if number >= _WORD // 2 else number

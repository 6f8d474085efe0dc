"""From a plan to numbers: subscriptions as data for the compiled loops.

Writes the records that `compiled.layout` describes into one int64 array, and says which encoded
columns they read. Nothing here is compiled, and nothing here sees an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concordant.correlate.compiled import layout as at
from concordant.correlate.plan import ConjunctionPlan, Part, SubscriptionPlan
from concordant.correlate.routing import write_routers
from concordant.correlate.straight import kept_size, straight_record
from concordant.correlate.writer import Dictionary, Wanted, Writer, reads
from concordant.model.kind import Kind
from concordant.model.subscription import QUEUED_COUNT_MAX, Consume, Match
from concordant.model.topic import Schemas

CONSUMES = {
    Consume.PREFIX: at.CONSUME_PREFIX,
    Consume.MATCHED: at.CONSUME_MATCHED,
    Consume.SUFFIX: at.CONSUME_SUFFIX,
    Consume.SLIDE: at.CONSUME_SLIDE,
}


@dataclass
class Program:
    """The numbers, and what must be put into which column."""

    words: npt.NDArray[np.int64]
    topics: tuple[str, ...]
    """Topic codes, by place."""
    inputs: dict[Wanted, int]
    """Which column holds which attribute."""
    column_count: int
    numbers: tuple[int, ...]
    """Columns of stream numbers, to be filled by `compiled.loop.number`."""
    root_end: int
    """Where the arena's root area ends."""
    roots: tuple[int, ...]
    candidate_count_max: int
    ranked: bool
    """Some predicate compares strings by order."""
    lined: tuple[int, ...] = ()
    """Roots of subscriptions with an explicit cap on all queued events."""
    sieved: bool = False
    """Some events can be told from one value that nobody admits them."""


def compile_program(
    subscriptions: Sequence[SubscriptionPlan],
    schemas: Schemas,
    dictionary: Dictionary,
    *,
    time_ordered: bool,
    budget: int,
    scanned: int,
) -> Program:
    """The program of subscriptions that read the same stream."""
    base = subscriptions[0].depth == 0  # derived events share a position with another
    writer = Writer(schemas, dictionary, time_ordered, distinct=base)
    if any(_timed(one) for one in subscriptions):
        writer.input(subscriptions[0].subscription.topics[0], "time")  # the first column: COL_TIME
    topics = tuple(sorted({t for one in subscriptions for t in one.subscription.topics}))
    codes = {topic: code for code, topic in enumerate(topics)}
    root = at.ARENA_ROOT
    roots: list[int] = []
    lined: list[int] = []
    numbers: dict[tuple[int, ...], int] = {}
    number_records: list[tuple[int, int]] = []
    records: list[int] = []
    conjunctions: list[tuple[int, ConjunctionPlan]] = []
    for index, plan in enumerate(subscriptions):
        subscription = plan.subscription
        keys = _key_columns(writer, subscription.topics, subscription.partition_by)
        dense = _dense(plan)
        if subscription.policy.contiguous and not dense and keys not in numbers:
            numbers[keys] = writer.column()
            record = [0] * at.SUB_SIZE
            record[at.SUB_ROOT] = root
            record[at.SUB_KEYS] = writer.put(keys)
            record[at.SUB_KEY_COUNT] = len(keys)
            record[at.SUB_BLOCK_SIZE] = at.BLOCK_KEYS + len(keys) + len(topics)
            number_records.append((writer.put(record), numbers[keys]))
            root += at.ROOT_SIZE
        roots.append(root)
        if subscription.queued_count_max != QUEUED_COUNT_MAX:
            lined.append(root)
        number = -1
        if subscription.policy.contiguous:
            number = at.DENSE if dense else numbers[keys]
        address, mine = _subscription(writer, plan, index, root, keys, number, codes)
        records.append(address)
        conjunctions += zip(mine, plan.conjunctions, strict=True)
        root += at.ROOT_SIZE
    words = writer.words
    encoded = frozenset(writer.inputs.values())
    sieved = write_routers(words, writer.put, topics, conjunctions, encoded)
    words[at.PLAN_SUBSCRIPTIONS] = writer.put(records)
    words[at.PLAN_SUBSCRIPTION_COUNT] = len(records)
    words[at.PLAN_DERIVED] = writer.put([w for pair in writer.derived_programs for w in pair])
    words[at.PLAN_DERIVED_COUNT] = len(writer.derived_programs)
    words[at.PLAN_NUMBERED] = writer.put([word for pair in number_records for word in pair])
    words[at.PLAN_NUMBERED_COUNT] = len(number_records)
    words[at.PLAN_TIME_ORDERED] = int(time_ordered)
    words[at.PLAN_BUDGET] = budget
    words[at.PLAN_SCANNED] = scanned
    if len(conjunctions) == 1 and _goes_straight(words, conjunctions[0][0]):
        parted = bool(subscriptions[0].subscription.partition_by)
        words[at.PLAN_ALONE] = at.ALONE_PARTED if parted else at.ALONE_WHOLE
    return Program(
        np.array(words, np.int64),
        topics,
        writer.inputs,
        max(1, writer.column_count),  # the loops may read the first one without using it
        tuple(numbers.values()),
        root,
        tuple(roots),
        len(conjunctions) + 1,
        writer.ranked,
        tuple(lined),
        sieved and not numbers,  # what is numbered is every event of its topic
    )


def _goes_straight(words: Sequence[int], conjunction: int) -> bool:
    """Has a conjunction a straight way? Then it has one part."""
    return words[words[conjunction + at.CON_PARTS] + at.PART_STRAIGHT] != 0


def _dense(plan: SubscriptionPlan) -> bool:
    """Does its queue hold every event of its only topic but for the oldest?"""
    subscription = plan.subscription
    return (
        len(subscription.topics) == len(plan.conjunctions) == len(plan.conjunctions[0].parts) == 1
        and subscription.policy.consume is Consume.PREFIX
        and subscription.queue_count_max is None
        and subscription.within_us is None
        and not all(plan.conjunctions[0].whole.unary)  # else some events fit nowhere
    )


def _timed(plan: SubscriptionPlan) -> bool:
    """Does a subscription look at times?"""
    subscription = plan.subscription
    return subscription.within_us is not None or any(
        reads(predicate, "time")
        for conjunction in subscription.conjunctions
        for predicate in conjunction.predicates
    )


def _key_columns(writer: Writer, topics: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Partition columns; a topic with only nulls does not decide the kind."""
    columns = []
    for name in names:
        kinds = {topic: writer.schemas[topic].kind(name) for topic in topics}
        topic = next((t for t, kind in kinds.items() if kind is not Kind.NULL), topics[0])
        columns.append(writer.input(topic, name))
    return tuple(columns)


def _subscription(
    writer: Writer,
    plan: SubscriptionPlan,
    index: int,
    root: int,
    keys: Sequence[int],
    number: int,
    codes: dict[str, int],
) -> tuple[int, list[int]]:
    subscription = plan.subscription
    address = writer.put([0] * at.SUB_SIZE)
    block = at.BLOCK_KEYS + len(keys)
    conjunctions = []
    for order, conjunction in enumerate(plan.conjunctions):
        found, block = _conjunction(writer, plan, conjunction, order, address, block, codes)
        conjunctions.append(found)
    record = [0] * at.SUB_SIZE
    record[at.SUB_INDEX] = index
    record[at.SUB_ROOT] = root
    record[at.SUB_KEYS] = writer.put(keys)
    record[at.SUB_KEY_COUNT] = len(keys)
    record[at.SUB_BLOCK_SIZE] = block
    record[at.SUB_CONJUNCTIONS] = writer.put(conjunctions)
    record[at.SUB_CONJUNCTION_COUNT] = len(conjunctions)
    record[at.SUB_RECENT] = int(subscription.policy.match is Match.RECENT)
    record[at.SUB_CONTIGUOUS] = number
    record[at.SUB_CONSUME] = CONSUMES[subscription.policy.consume]
    record[at.SUB_WITHIN] = -1 if subscription.within_us is None else subscription.within_us
    cap = subscription.queue_count_max
    record[at.SUB_QUEUE_MAX] = -1 if cap is None else cap
    record[at.SUB_QUEUED_MAX] = subscription.queued_count_max
    queues = _queues(writer.words, conjunctions)
    record[at.SUB_QUEUES] = writer.put(queues)
    record[at.SUB_QUEUE_COUNT] = len(queues) // at.QUEUE_SIZE
    writer.words[address : address + at.SUB_SIZE] = record
    return address, conjunctions


def _queues(words: Sequence[int], conjunctions: Sequence[int]) -> list[int]:
    """Records of all queues of a subscription, those of finished part-relations included."""
    found: list[int] = []
    for order, conjunction in enumerate(conjunctions):
        for p in range(words[conjunction + at.CON_PART_COUNT]):
            part = words[conjunction + at.CON_PARTS] + p * at.PART_SIZE
            straight = words[part + at.PART_STRAIGHT]
            kept = words[straight + at.STRAIGHT_KEPT] if straight else 0
            for t in range(words[part + at.PART_TOPIC_COUNT]):
                topic = words[part + at.PART_TOPICS] + t * at.TOPIC_SIZE
                found += [words[topic + at.TOPIC_QUEUE], topic, order, kept]
            if words[part + at.PART_FINISHED] >= 0:
                found += [words[part + at.PART_FINISHED], -1, order, 0]
    return found


def _conjunction(
    writer: Writer,
    plan: SubscriptionPlan,
    conjunction: ConjunctionPlan,
    order: int,
    subscription: int,
    block: int,
    codes: dict[str, int],
) -> tuple[int, int]:
    """The record's address, and where the block goes on after it."""
    ordinal = block
    block += 1
    recent = plan.subscription.policy.match is Match.RECENT
    place = {slot: i for i, slot in enumerate(conjunction.whole.slots)}
    parts: list[list[int]] = []
    for part in conjunction.parts:
        record = [0] * at.PART_SIZE
        record[at.PART_LEFTOVER] = block
        block += 1
        record[at.PART_FINISHED] = -1
        if len(conjunction.parts) > 1:
            record[at.PART_FINISHED] = block
            block += at.Q_SIZE
        queues: dict[str, int] = {}
        for topic in part.topics:
            queues[topic] = block
            block += at.Q_SIZE
        indexes, before = _slots(writer, part, record, queues, recent)
        completes, needs = _use(part, before)
        if _bounded(plan):  # what is of no use counts in a cap all the same
            needs = {topic: {} for topic in part.topics}
        topics = []
        for topic in part.topics:
            one = [0] * at.TOPIC_SIZE
            one[at.TOPIC_CODE] = codes[topic]
            one[at.TOPIC_QUEUE] = queues[topic]
            one[at.TOPIC_FIRST] = part.slots_of_topic[topic].start
            one[at.TOPIC_WIDTH] = len(part.slots_of_topic[topic])
            found: list[int] = []
            for kind, column in indexes[topic]:
                found += [kind, column, block]
                block += at.HEADER_SIZE
            one[at.TOPIC_INDEXES] = writer.put(found)
            one[at.TOPIC_INDEX_COUNT] = len(indexes[topic])
            one[at.TOPIC_COMPLETES] = int(completes[topic])
            wanted = [w for queue, count in needs[topic].items() for w in (queue, count)]
            one[at.TOPIC_NEEDS] = writer.put(wanted)
            one[at.TOPIC_NEEDS_COUNT] = len(needs[topic])
            topics += one
        record[at.PART_TOPICS] = writer.put(topics)
        record[at.PART_TOPIC_COUNT] = len(part.topics)
        record[at.PART_OUT] = writer.put([place[slot] for slot in part.slots])
        straight = straight_record(writer.words, plan, part, record, block)
        if straight:
            record[at.PART_STRAIGHT] = writer.put(straight)
            block += kept_size(straight)
        parts.append(record)
    first = writer.put([word for record in parts for word in record])
    record = [0] * at.CON_SIZE
    record[at.CON_SUB] = subscription
    record[at.CON_ORDER] = order
    record[at.CON_ORDINAL] = ordinal
    record[at.CON_PARTS] = first
    record[at.CON_PART_COUNT] = len(parts)
    record[at.CON_SLOTS] = len(conjunction.whole.slots)
    return writer.put(record), block


_INDEX_KINDS = {
    at.OP_LT: at.INDEX_MIN,
    at.OP_LE: at.INDEX_MIN,
    at.OP_GT: at.INDEX_MAX,
    at.OP_GE: at.INDEX_MAX,
    at.OP_EQ: at.INDEX_EQUAL,
}


def _slots(
    writer: Writer, part: Part, record: list[int], queues: dict[str, int], recent: bool
) -> tuple[dict[str, list[tuple[int, int]]], list[list[int]]]:
    """Write the slots.

    Returns the indexes (kind, column) that each topic's queue may get, and the order constraints.
    """
    indexes: dict[str, list[tuple[int, int]]] = {topic: [] for topic in part.topics}
    slots: list[int] = []
    before: list[list[int]] = []
    follows: list[list[int]] = []
    tested = False
    topic_index = {topic: i for i, topic in enumerate(part.topics)}
    for i, slot in enumerate(part.slots):
        unary = [word for predicate in part.unary[i] for word in writer.unary(predicate)]
        pairs = [writer.binary(part, i, pair) for pair in part.binary[i]]
        for pair in pairs:
            _choose_index(pair, indexes[slot.topic])
        one = [0] * at.SLOT_SIZE
        one[at.SLOT_TOPIC] = topic_index[slot.topic]
        one[at.SLOT_UNARY] = writer.put(unary)
        one[at.SLOT_UNARY_COUNT] = len(part.unary[i])
        one[at.SLOT_BINARY] = writer.put([word for pair in pairs for word in pair])
        one[at.SLOT_BINARY_COUNT] = len(pairs)
        several = len(part.slots_of_topic[slot.topic]) > 1
        look = any(not pair[at.BINARY_MONOTONE] for pair in pairs) or (several and bool(unary))
        one[at.SLOT_TESTED] = int(look)
        tested = tested or look
        slots += one
        for pair in pairs:
            if pair[at.BINARY_MONOTONE]:
                before += _before(part, i, pair, queues)
        if slot.instance > 1:
            queue = queues[slot.topic]
            follows.append([i - 1, queue, -1, i, queue, -1, 1])
    record[at.PART_SLOTS] = writer.put(slots)
    record[at.PART_SLOT_COUNT] = len(part.slots)
    # That instances follow the stream matters where something else shrinks a range.
    order, acyclic = _along(before + follows if before else [], len(part.slots))
    record[at.PART_BEFORE] = writer.put([word for one in order for word in one])
    record[at.PART_BEFORE_COUNT] = len(order)
    record[at.PART_ORDERED] = int(not tested)
    record[at.PART_ACYCLIC] = int(acyclic)
    visit = [
        i
        for topic in part.topics
        for i in (reversed(part.slots_of_topic[topic]) if recent else part.slots_of_topic[topic])
    ]
    record[at.PART_VISIT] = writer.put(visit)
    return indexes, before


def _along(order: list[list[int]], slot_count: int) -> tuple[list[list[int]], bool]:
    """Order constraints sorted along themselves, or as they were and False if they form a cycle."""
    rank = [0] * slot_count
    for _ in range(slot_count):
        changed = False
        for record in order:
            wanted = rank[record[at.BEFORE_SLOT]] + 1
            if rank[record[at.BEFORE_LATER]] < wanted:
                rank[record[at.BEFORE_LATER]] = wanted
                changed = True
        if not changed:
            return sorted(order, key=lambda one: rank[one[at.BEFORE_SLOT]]), True
    return order, False


def _bounded(plan: SubscriptionPlan) -> bool:
    """Has a subscription a cap of its own?"""
    asked = plan.subscription
    return asked.queue_count_max is not None or asked.queued_count_max != QUEUED_COUNT_MAX


def _use(
    part: Part, before: Sequence[Sequence[int]]
) -> tuple[dict[str, bool], dict[str, dict[int, int]]]:
    """What order constraints say of a new event of each topic, which is the newest of all.

    It completes nothing if another must come strictly after it; and it will never be of use unless
    what must come strictly before its first instance is queued: queue offset and how many.
    """
    completes = dict.fromkeys(part.topics, True)
    needs: dict[str, dict[int, int]] = {topic: {} for topic in part.topics}
    for record in before:
        if not record[at.BEFORE_STRICT]:
            continue
        earlier, later = part.slots[record[at.BEFORE_SLOT]], part.slots[record[at.BEFORE_LATER]]
        if earlier.instance == len(part.slots_of_topic[earlier.topic]):
            completes[earlier.topic] = False
        if later.instance == 1 and earlier.topic != later.topic:
            mine = needs[later.topic]
            queue = record[at.BEFORE_QUEUE]
            mine[queue] = max(mine.get(queue, 0), earlier.instance)
    return completes, needs


def _choose_index(pair: list[int], indexes: list[tuple[int, int]]) -> None:
    """Let a binary predicate be answered by an index of its queue, where one can."""
    direct = pair[at.BINARY_PROGRAM] < 0 and pair[at.BINARY_HOW] == at.HOW_SAME
    kind = _INDEX_KINDS.get(pair[at.BINARY_OP])
    if not direct or pair[at.BINARY_MONOTONE] or kind is None:
        return
    wanted = (kind, pair[at.BINARY_MINE])
    if wanted not in indexes:
        indexes.append(wanted)
    pair[at.BINARY_INDEX] = indexes.index(wanted)


def _before(part: Part, slot: int, pair: Sequence[int], queues: dict[str, int]) -> list[list[int]]:
    """The order constraint that a monotone predicate, seen from its earlier slot, gives."""
    op = pair[at.BINARY_OP]
    if op not in (at.OP_LT, at.OP_LE, at.OP_EQ):
        return []
    later = pair[at.BINARY_OTHER]
    record = [0] * at.BEFORE_SIZE
    record[at.BEFORE_SLOT] = slot
    record[at.BEFORE_QUEUE] = queues[part.slots[slot].topic]
    record[at.BEFORE_COLUMN] = pair[at.BINARY_MINE]
    record[at.BEFORE_LATER] = later
    record[at.BEFORE_LATER_QUEUE] = queues[part.slots[later].topic]
    record[at.BEFORE_LATER_COLUMN] = pair[at.BINARY_THEIRS]
    record[at.BEFORE_STRICT] = int(op == at.OP_LT)
    return [record]

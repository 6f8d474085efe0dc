"""Memory inside one array: buffers by size class, queues in them, partitions found by hash.

Addresses are positions in the arena, so it can grow, be saved and be loaded as it is. An allocation
that does not fit answers -1 and changes nothing; the driver grows the arena and goes on.
"""

from __future__ import annotations

from concordant.correlate.compiled.jit import compiled, folded, inlined
from concordant.correlate.compiled.layout import (
    ARENA_BUMP,
    ARENA_FREE,
    ARENA_LIMIT,
    BLOCK_KEYS,
    BLOCK_NEXT,
    ENTRY_BLOCK,
    ENTRY_HASH,
    Q_CAPACITY,
    Q_DATA,
    Q_DEAD,
    Q_HEAD,
    Q_TAIL,
    ROOT_BLOCKS,
    ROOT_FIRST,
    ROOT_TABLE,
    ROOT_TABLE_BITS,
    SUB_BLOCK_SIZE,
    SUB_KEY_COUNT,
    SUB_KEYS,
    SUB_ROOT,
)

_MULTIPLIER = 0x2545F4914F6CDD1D
_TABLE_BITS_MIN = 4
_QUEUE_CAPACITY_MIN = 4
_SHORT_CAPACITY_MAX = 64
"""Below it a queue is kept three quarters empty: squeezing it every few events costs more."""


@compiled
def allocate(arena, bits):
    """A buffer of 2**bits words, or -1 if the arena is full."""
    head = arena[ARENA_FREE + bits]
    if head != 0:
        arena[ARENA_FREE + bits] = arena[head]
        return head
    size = 1 << bits
    start = arena[ARENA_BUMP]
    if start + size > arena[ARENA_LIMIT]:
        return -1
    arena[ARENA_BUMP] = start + size
    return start


@inlined
def release(arena, address, bits):
    """Give a buffer back."""
    arena[address] = arena[ARENA_FREE + bits]
    arena[ARENA_FREE + bits] = address


@inlined
def bits_for(size):
    """The size class that holds `size` words."""
    bits = 0
    while (1 << bits) < size:
        bits += 1
    return bits


@inlined
def mix(value, seed):
    """One step of hashing a key; for a given seed, different values stay different."""
    value = (value ^ (seed * _MULTIPLIER)) * -7046029254386353131
    return value ^ ((value >> 32) & 0xFFFFFFFF)


@inlined
def live_count(arena, header):
    """How many entries of a queue were not removed."""
    return arena[header + Q_TAIL] - arena[header + Q_HEAD] - arena[header + Q_DEAD]


@compiled
def make_room(arena, header, words):
    """Make sure that `words` more can be appended to a queue; False if the arena is full.

    Removed entries are squeezed out when they are at least half; otherwise the buffer doubles.
    """
    capacity = arena[header + Q_CAPACITY]
    tail = arena[header + Q_TAIL]
    if tail + words <= capacity:
        return True
    data = arena[header + Q_DATA]
    head = arena[header + Q_HEAD]
    live = live_count(arena, header)
    target = data
    roomy = 4 if capacity < _SHORT_CAPACITY_MAX else 2
    if roomy * (live + words) > capacity:
        bits = bits_for(max(2 * capacity, live + words, _QUEUE_CAPACITY_MIN))
        target = allocate(arena, bits)
        if target < 0:
            return False
        arena[header + Q_CAPACITY] = 1 << bits
    count = 0
    for i in range(head, tail):
        entry = arena[data + i]
        if entry >= 0:
            arena[target + count] = entry
            count += 1
    if target != data and capacity > 0:
        release(arena, data, bits_for(capacity))
    arena[header + Q_DATA] = target
    arena[header + Q_HEAD] = 0
    arena[header + Q_TAIL] = count
    arena[header + Q_DEAD] = 0
    return True


@inlined
def append(arena, header, word):
    """Append to a queue that has room."""
    tail = arena[header + Q_TAIL]
    arena[arena[header + Q_DATA] + tail] = word
    arena[header + Q_TAIL] = tail + 1


@compiled
def pop(arena, header, words):
    """Take words from the front of a queue that is read in order."""
    arena[header + Q_HEAD] += words
    if arena[header + Q_HEAD] == arena[header + Q_TAIL]:
        arena[header + Q_HEAD] = 0
        arena[header + Q_TAIL] = 0


@inlined
def trim(arena, header, both_ends):
    """Move the head past removed entries and, if it may, the tail back before them."""
    data = arena[header + Q_DATA]
    head = arena[header + Q_HEAD]
    tail = arena[header + Q_TAIL]
    dead = arena[header + Q_DEAD]
    while dead > 0 and head < tail and arena[data + head] < 0:
        head += 1
        dead -= 1
    if both_ends:
        while dead > 0 and head < tail and arena[data + tail - 1] < 0:
            tail -= 1
            dead -= 1
        if head == tail:
            head = 0
            tail = 0
    arena[header + Q_HEAD] = head
    arena[header + Q_TAIL] = tail
    arena[header + Q_DEAD] = dead


@compiled
def _same_keys(plan, keys, key_count, arena, block, cells, base):
    """Is a block that of the partition of the row whose cells begin at `base`?"""
    for k in range(key_count):
        if arena[block + BLOCK_KEYS + k] != cells[base + plan[keys + k]]:
            return False
    return True


@folded
def find_block(plan, subscription, arena, cells, width, row):
    """The block of a row's partition, or 0 if there is none."""
    root = plan[subscription + SUB_ROOT]
    key_count = plan[subscription + SUB_KEY_COUNT]
    table = arena[root + ROOT_TABLE]
    if key_count == 0 or table == 0:
        return arena[root + ROOT_FIRST]
    keys = plan[subscription + SUB_KEYS]
    base = row * width
    hashed = 0
    for k in range(key_count):
        hashed = mix(cells[base + plan[keys + k]], hashed + 1)
    mask = (1 << arena[root + ROOT_TABLE_BITS]) - 1
    if key_count == 1:
        return find_by_one(arena, table, mask, hashed)
    place = hashed & mask
    while True:
        entry = table + 2 * place
        block = arena[entry + ENTRY_BLOCK]
        if block == 0 or (
            arena[entry + ENTRY_HASH] == hashed
            and _same_keys(plan, keys, key_count, arena, block, cells, base)
        ):
            return block
        place = (place + 1) & mask


@inlined
def find_by_one(arena, table, mask, hashed):
    """The block of a partition by one key, or 0 if there is none.

    `mix` gives different values different hashes, so the block need not be looked at.
    """
    place = hashed & mask
    while arena[table + 2 * place + ENTRY_HASH] != hashed:
        if arena[table + 2 * place + ENTRY_BLOCK] == 0:
            return 0
        place = (place + 1) & mask
    return arena[table + 2 * place + ENTRY_BLOCK]


@compiled
def make_block(plan, subscription, arena, cells, width, row):
    """A block for a row's partition, which has none; -1 if the arena is full."""
    root = plan[subscription + SUB_ROOT]
    bits = arena[root + ROOT_TABLE_BITS]
    if arena[root + ROOT_TABLE] == 0 or 2 * arena[root + ROOT_BLOCKS] >= (1 << bits):
        if not _grow_table(plan, subscription, arena):
            return -1
        bits = arena[root + ROOT_TABLE_BITS]
    size_bits = bits_for(plan[subscription + SUB_BLOCK_SIZE])
    block = allocate(arena, size_bits)
    if block < 0:
        return -1
    for i in range(1 << size_bits):
        arena[block + i] = 0
    key_count = plan[subscription + SUB_KEY_COUNT]
    keys = plan[subscription + SUB_KEYS]
    for k in range(key_count):
        arena[block + BLOCK_KEYS + k] = cells[row * width + plan[keys + k]]
    arena[block + BLOCK_NEXT] = arena[root + ROOT_FIRST]
    arena[root + ROOT_FIRST] = block
    arena[root + ROOT_BLOCKS] += 1
    _enter_table(arena, arena[root + ROOT_TABLE], bits, block, key_count)
    return block


@inlined
def _enter_table(arena, table, bits, block, key_count):
    """Put a block into the first free place from its hash on."""
    mask = (1 << bits) - 1
    hashed = 0
    for k in range(key_count):
        hashed = mix(arena[block + BLOCK_KEYS + k], hashed + 1)
    place = hashed & mask
    while arena[table + 2 * place + ENTRY_BLOCK] != 0:
        place = (place + 1) & mask
    arena[table + 2 * place + ENTRY_HASH] = hashed
    arena[table + 2 * place + ENTRY_BLOCK] = block


@compiled
def _grow_table(plan, subscription, arena):
    root = plan[subscription + SUB_ROOT]
    key_count = plan[subscription + SUB_KEY_COUNT]
    old = arena[root + ROOT_TABLE]
    old_bits = arena[root + ROOT_TABLE_BITS]
    bits = max(_TABLE_BITS_MIN, old_bits + 2)
    table = allocate(arena, bits + 1)
    if table < 0:
        return False
    for i in range(2 << bits):
        arena[table + i] = 0
    block = arena[root + ROOT_FIRST]
    while block != 0:
        _enter_table(arena, table, bits, block, key_count)
        block = arena[block + BLOCK_NEXT]
    if old != 0:
        release(arena, old, old_bits + 1)
    arena[root + ROOT_TABLE] = table
    arena[root + ROOT_TABLE_BITS] = bits
    return True

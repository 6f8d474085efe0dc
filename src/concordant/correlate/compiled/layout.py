"""Where things lie in the plan and in the arena: the names of the numbers.

Offsets only. A record begins at its address; a field is read as `plan[address + FIELD]`.
"""

from __future__ import annotations

NULL = -(2**63)
"""The encoded null; integers have a symmetric range, so no value looks like it."""

LONG_AGO = -(2**62)
"""A time before all others."""

# --- columns ------------------------------------------------------------------------------------
COL_TIME = 0
"""Where some subscription reads times or has `within`; else the column is an attribute's."""
COL_ROW = -2
"""No column: the row's own number, which grows as positions do where those are all different."""

# --- arena root ---------------------------------------------------------------------------------
ARENA_BUMP = 0
"""The next free word."""
ARENA_FREE = 1
"""Heads of the lists of freed buffers, by size class (power of two)."""
ARENA_WANTED = 59
"""An index did not fit; the arena should grow."""
ARENA_LIMIT = 60
"""The words the arena has."""
ARENA_ROOT = 64
"""Subscriptions' root records follow."""

ROOT_TABLE = 0
"""Address of the partitions' table, see ENTRY_."""
ROOT_TABLE_BITS = 1
ROOT_BLOCKS = 2
ROOT_FIRST = 3
"""The newest block; blocks form a chain."""
ROOT_QUEUED = 4
ROOT_ADMITTED = 6
ROOT_RELATIONS = 7
ROOT_EXPIRED = 8
ROOT_CAPPED = 9
ROOT_LINE = 10
"""Queue of (block, topic, row) in order of arrival, kept for the cap on all queued events."""
ROOT_EXPIRED_BEFORE = 15
"""Queued events older than this are no longer counted in ROOT_QUEUED."""
ROOT_STEPS = 16
"""Candidates looked at by searches."""
ROOT_OVER_BUDGET = 17
"""Searches that looked at more candidates than the budget."""
ROOT_WORST = 18
"""The most candidates one search looked at."""
ROOT_LINED = 19
"""The line is kept; it starts empty with an explicit cap, else when the cap is reached."""
ROOT_SIZE = 24

# --- a place of a table of partitions -----------------------------------------------------------
ENTRY_HASH = 0
ENTRY_BLOCK = 1
"""0 where the place is free."""

# --- a queue header in a block (also finished part-relations and the line) ----------------------
Q_DATA = 0
Q_CAPACITY = 1
Q_HEAD = 2
Q_TAIL = 3
Q_DEAD = 4
"""Entries between head and tail that were removed; their rows are stored inverted."""
Q_SIZE = 5

# --- a block: one partition of one subscription -------------------------------------------------
BLOCK_NEXT = 0
BLOCK_POSITION = 1
BLOCK_KEYS = 2
"""Partition values, then per conjunction its ordinal and parts."""

# --- plan header --------------------------------------------------------------------------------
PLAN_TOPICS = 0
"""Address of one router address per topic code."""
PLAN_SUBSCRIPTIONS = 1
"""Address of one record address per subscription."""
PLAN_SUBSCRIPTION_COUNT = 2
PLAN_DERIVED = 3
"""Address of (column, program) pairs to compute per row."""
PLAN_DERIVED_COUNT = 4
PLAN_NUMBERED = 5
"""Address of (table root, column, key count, keys, topic count) records of stream numbering."""
PLAN_NUMBERED_COUNT = 6
PLAN_TIME_ORDERED = 7
PLAN_BUDGET = 8
PLAN_SCANNED = 9
"""Ranges of so many places are scanned; longer ones are worth an index."""
PLAN_SIEVE = 10
"""Address of (column, lowest, highest) per topic code: no reader admits what lies outside."""
PLAN_ALONE = 11
"""One conjunction is all there is, and goes the straight way, with partitions or without; or 0."""
ALONE_PARTED = 1
ALONE_WHOLE = 2
PLAN_HEADER = 16

SIEVE_COLUMN = 0
SIEVE_LOW = 1
SIEVE_HIGH = 2
SIEVE_SIZE = 3

# --- a topic's router ---------------------------------------------------------------------------
ROUTER_ALWAYS = 0
"""Address of readers' addresses."""
ROUTER_ALWAYS_COUNT = 1
ROUTER_EQUALS = 2
"""Address of (column, table address, table bits) triples."""
ROUTER_EQUALS_COUNT = 3
ROUTER_RANGES = 4
"""Address of (column, upward, thresholds address, count) records."""
ROUTER_RANGES_COUNT = 5
ROUTER_SEGMENTS = 6
"""Address of (column, boundaries, count, readers' starts) records."""
ROUTER_SEGMENTS_COUNT = 7
ROUTER_ASKED = 8
"""How many of the above there are: 0 where every event goes to all readers."""
ROUTER_ONLY = 9
"""The only reader, or 0 if there are several."""
ROUTER_SIZE = 10

# --- a subscription -----------------------------------------------------------------------------
SUB_INDEX = 0
SUB_ROOT = 1
SUB_KEYS = 2
SUB_KEY_COUNT = 3
SUB_BLOCK_SIZE = 5
SUB_CONJUNCTIONS = 6
SUB_CONJUNCTION_COUNT = 7
SUB_RECENT = 8
SUB_CONTIGUOUS = 9
"""The column with stream numbers; -1: it is not contiguous; DENSE: its queue tells as much."""
SUB_CONSUME = 10
SUB_WITHIN = 11
SUB_QUEUE_MAX = 12
SUB_QUEUED_MAX = 13
SUB_QUEUES = 14
"""Address of records of all its queues, see QUEUE_."""
SUB_QUEUE_COUNT = 15
SUB_SIZE = 16

# --- a queue of a subscription, for whoever walks over all of them --------------------------------
QUEUE_OFFSET = 0
"""Offset of its header in the block."""
QUEUE_TOPIC = 1
"""The topic's record, or -1 for finished part-relations."""
QUEUE_ORDER = 2
"""The canonical order of its conjunction."""
QUEUE_KEPT = 3
"""Offset of what its part keeps of the rows in its queues, see STRAIGHT_KEPT, or 0."""
QUEUE_SIZE = 4

# --- a conjunction ------------------------------------------------------------------------------
CON_SUB = 0
CON_ORDER = 1
"""Its place in canonical order."""
CON_ORDINAL = 2
"""Offset of its ordinal in the block."""
CON_PARTS = 3
CON_PART_COUNT = 4
CON_SLOTS = 5
CON_SIZE = 6

# --- a reader: one topic of one conjunction, what a router leads to -------------------------------
# All that most events need is copied here from the records below, so that it lies in one place.
READER_CONJUNCTION = 0
READER_PART = 1
READER_TOPIC = 2
"""The topic's record in the part."""
READER_SUB = 3
READER_ROOT = 4
READER_QUEUE = 5
"""Offset of the topic's queue header in the block."""
READER_TESTED = 6
"""Every instance of the topic has predicates of its own, so an event may not be admitted."""
READER_ROOM = 7
"""Events of a relation."""
READER_LEFTOVER = 8
"""See PART_LEFTOVER."""
READER_INDEXED = 9
READER_COMPLETES = 10
"""The newest event of the topic may complete a match; else something must come after it."""
READER_NEEDS = 11
"""Address of (queue offset, count) pairs: what must be queued before an event can be of use."""
READER_NEEDS_COUNT = 12
READER_QUEUED_MAX = 13
READER_SOUGHT = 14
"""Address of the places of equal values that an event will look at, see SOUGHT_."""
READER_SOUGHT_COUNT = 15
READER_STRAIGHT = 16
"""See PART_STRAIGHT."""
READER_STEP = 17
"""The step of the straight way that is the topic's."""
READER_SIZE = 18

SOUGHT_QUEUE = 0
SOUGHT_HEADER = 1
"""Offsets in the block of the queue's header and of its index's."""
SOUGHT_COLUMN = 2
"""Of the event that looks."""
SOUGHT_SIZE = 3

# --- a part -------------------------------------------------------------------------------------
PART_SLOTS = 0
"""Address of slot records."""
PART_SLOT_COUNT = 1
PART_TOPICS = 2
"""Address of topic records."""
PART_TOPIC_COUNT = 3
PART_VISIT = 4
"""Address of the slots in visiting order."""
PART_LEFTOVER = 5
"""Offset in the block of the flag that another match may lie in the queues."""
PART_FINISHED = 6
"""Offset in the block of the queue of finished part-relations, or -1."""
PART_OUT = 7
"""Address of the places of its slots in the whole relation."""
PART_BEFORE = 8
"""Address of order constraints, see BEFORE_."""
PART_BEFORE_COUNT = 9
PART_ORDERED = 10
"""Its binary predicates are all order constraints, and no instance has a predicate of its own."""
PART_ACYCLIC = 11
"""Its order constraints stand so that those into a slot come before those out of it."""
PART_STRAIGHT = 12
"""The record of the straight way to a match, see STRAIGHT_; 0 where there is none."""
PART_SIZE = 13

# --- the straight way, see `compiled.straight` ----------------------------------------------------
STRAIGHT_COMPARED = 0
"""Events are compared; else only their order matters."""
COMPARED_IN_LINE = 2
"""At most one is bound to each, by columns of both: see `compiled.near`."""
STRAIGHT_COUNT = 1
STRAIGHT_KEPT = 2
"""Where events are compared, the offset in the block of what is kept: whether it is (1 or 0), then
one key per step, see `compiled.partners`."""
STRAIGHT_STEPS = 3
"""One record per slot, see STEP_, so that what a step refers to comes before it."""

STEP_QUEUE = 0
"""Offset of the slot's queue in the block."""
STEP_SLOT = 1
STEP_AFTER = 2
"""The step that it is bound to, or -1: its event must come later, or compare with it."""
STEP_TOPIC = 3
STEP_CHILD = 4
"""The first step that is bound to it, or -1."""
STEP_SIBLING = 5
"""The next step that is bound to the same one, or -1."""
STEP_MINE = 6
"""Where events are compared: its own column, and that of the step it is bound to."""
STEP_THEIRS = 7
STEP_TURNED = 8
"""A word that turns values so that "less" is asked for."""
STEP_LOWERED = 9
STEP_RAISED = 10
"""What is taken from its own values, and added to theirs, so that equal ones pass if they may."""
STEP_SIZE = 11

BEFORE_SLOT = 0
BEFORE_QUEUE = 1
"""Offset of the slot's queue in the block."""
BEFORE_COLUMN = 2
"""-1: another instance of the same topic, ordered by place."""
BEFORE_LATER = 3
BEFORE_LATER_QUEUE = 4
BEFORE_LATER_COLUMN = 5
BEFORE_STRICT = 6
BEFORE_SIZE = 7

NO_MATCH = 0
OPEN = 1
"""A match may lie in the ranges."""
SETTLED = 2
"""The ends of the ranges satisfy all order constraints."""

TOPIC_CODE = 0
TOPIC_QUEUE = 1
"""Offset of its queue header in the block."""
TOPIC_FIRST = 2
TOPIC_WIDTH = 3
TOPIC_INDEXES = 4
"""Address of index records, see INDEX_."""
TOPIC_INDEX_COUNT = 5
TOPIC_COMPLETES = 6
TOPIC_NEEDS = 7
TOPIC_NEEDS_COUNT = 8
TOPIC_SIZE = 9

SLOT_TOPIC = 0
"""Index of its topic record in the part."""
SLOT_UNARY = 1
SLOT_UNARY_COUNT = 2
SLOT_BINARY = 3
SLOT_BINARY_COUNT = 4
SLOT_TESTED = 5
"""An event must be looked at to know whether it fits: order constraints do not tell."""
SLOT_SIZE = 6

UNARY_COLUMN = 0
UNARY_OP = 1
UNARY_VALUE = 2
UNARY_HOW = 3
UNARY_SIZE = 4

BINARY_OTHER = 0
BINARY_MINE = 1
BINARY_THEIRS = 2
BINARY_OP = 3
"""Mine op theirs."""
BINARY_HOW = 4
BINARY_PROGRAM = 5
"""Address of a program for what has no single column on each side, or -1."""
BINARY_SWAPPED = 6
"""The program's first slot is the other one."""
BINARY_INDEX = 7
"""Which index of my topic serves it, or -1."""
BINARY_MONOTONE = 8
"""Both columns grow along their queues, so that a binary search answers it."""
BINARY_SIZE = 9

# --- an index of a queue, see `compiled.index` --------------------------------------------------
INDEX_KIND = 0
INDEX_COLUMN = 1
INDEX_HEADER = 2
"""Offset of its header in the block."""
INDEX_SIZE = 3
INDEX_MIN = 0
INDEX_MAX = 1
INDEX_EQUAL = 2

HEADER_DATA = 0
"""The address of an index, or 0 while there is none."""
HEADER_BITS = 1
HEADER_SIZE = 2


# --- operators and ways of comparing ------------------------------------------------------------
OP_LT = 0
OP_GT = 1
OP_LE = 2
OP_GE = 3
OP_EQ = 4
OP_NE = 5

HOW_SAME = 0
"""Both sides have the same encoding."""
HOW_INT_FLOAT = 1
HOW_FLOAT_INT = 2
HOW_STRING = 3
"""Codes of strings, compared by rank."""

CONSUME_PREFIX = 0
CONSUME_MATCHED = 1
CONSUME_SUFFIX = 2
CONSUME_SLIDE = 3

# --- programs: postfix code, pairs of (code, argument) ------------------------------------------
CODE_LOAD_A = 0
CODE_LOAD_B = 1
CODE_CONST = 2
CODE_TO_FLOAT_A = 3
"""Turns the value below the top into a float (the left operand)."""
CODE_TO_FLOAT = 4
"""Turns the top into a float."""
CODE_ADD_INT = 5
CODE_SUB_INT = 6
CODE_MUL_INT = 7
CODE_ADD_FLOAT = 8
CODE_SUB_FLOAT = 9
CODE_MUL_FLOAT = 10
CODE_DIV_FLOAT = 11
CODE_COMPARE = 12
"""Argument: op * 16 + how. Leaves 1 or 0."""

# --- output records -----------------------------------------------------------------------------
OUT_ROW = 0
OUT_SUB = 1
OUT_CONJUNCTION = 2
OUT_ORDINAL = 3
OUT_POSITION = 4
OUT_START = 5
"""Where the rows of its events begin in an array of their own; they stand in slot order."""
OUT_SIZE = 6

DENSE = 1 << 32
"""Every event of the topic is queued and only the oldest ever go, so that neighbours in the queue
are neighbours in the stream."""

# --- how a run ends -----------------------------------------------------------------------------
DONE = 0
ARENA_FULL = 1
OUT_FULL = 2
LINE_NEEDED = 3
"""The cap on all queued events was reached, and nobody kept the order of arrival yet."""
NOTHING = 4
"""A single event is done with, and completes nothing."""
MATCHED = 5
ASIDE = 6
"""The straight way is none here."""

# --- control: where a run stands, and where its arrays are -------------------------------------
CONTROL_ROW = 0
CONTROL_CANDIDATE = 1
CONTROL_OUT = 2
"""Relations found."""
CONTROL_PENDING = 3
"""A subscription whose cap on all queued events is still to be applied, or 0."""
CONTROL_OUT_LIMIT = 4
CONTROL_DERIVED = 5
"""Rows before this one have their computed columns."""
CONTROL_NUMBERED = 6
"""Rows before this one have their stream numbers."""
CONTROL_WIDTH = 7
"""Columns of a row."""
CONTROL_PLAN = 8
"""From here on: addresses of the arrays' first elements."""
CONTROL_ARENA = 9
CONTROL_CELLS = 10
CONTROL_RANK = 11
CONTROL_SCRATCH = 12
CONTROL_OUTPUT = 13
CONTROL_CANDIDATES = 14
CONTROL_CODES = 15
"""Of the topics of the rows at hand, as if the first row's stood first."""
CONTROL_CODE = 16
"""Where the topic's code of a single event is put."""
CONTROL_COUNTS = 17
"""Of events, by code."""
CONTROL_OUTPUT_ROWS = 18
"""Where the rows of relations' events go."""
CONTROL_OUT_ROWS = 19
"""How many there are."""
CONTROL_OUT_ROWS_LIMIT = 20
CONTROL_SIZE = 21

# --- a column to be encoded -----------------------------------------------------------------------
SOURCE_TARGET = 0
SOURCE_HOW = 1
SOURCE_VALUES = 2
SOURCE_VALID = 3
"""Address of the null mask, or 0."""
SOURCE_MAPPING = 4
"""For codes: the address of what each becomes."""
SOURCE_SIZE = 5

SOURCE_NULL = 0
SOURCE_INT = 1
SOURCE_FLOAT = 2
SOURCE_BOOL = 3
SOURCE_CODE = 4

# --- scratch ------------------------------------------------------------------------------------
SLOTS_MAX = 64
AT_INDEX = 0
"""Per slot: the place in its queue of the event bound to it."""
AT_ROW = SLOTS_MAX
"""Per slot: the row bound to it, or -1."""
AT_LOW = 2 * SLOTS_MAX
AT_HIGH = 3 * SLOTS_MAX
AT_VISIT = 4 * SLOTS_MAX
AT_CURSOR = 5 * SLOTS_MAX
AT_FROM = 6 * SLOTS_MAX
AT_TO = 7 * SLOTS_MAX
AT_WHOLE = 8 * SLOTS_MAX
AT_DRIVER = 9 * SLOTS_MAX
"""Per depth: the binary predicate whose index leads to candidates, or -1."""
AT_STEPS = 10 * SLOTS_MAX
AT_STACK = 11 * SLOTS_MAX
AT_AHEAD = 16 * SLOTS_MAX
"""Blocks of the rows ahead, or 0 where they are not known."""
AT_ONLY = 17 * SLOTS_MAX
"""The only readers of the rows ahead, or 0 where there is none or several."""
AHEAD_COUNT = 64
"""Rows whose partitions are looked up together, so that waiting for memory overlaps."""
WHOLE_COUNT = 256
"""Rows that are taken together where there are no partitions to look up."""
NEAR_WORDS = 1 << 15
"""An arena of at most so many words is near anyway."""
STRAIGHT_COUNT_MAX = 8
"""Steps with comparisons that the straight way takes."""
STRAIGHT_LENGTH_MAX = 64
"""Events of a queue that it looks through."""

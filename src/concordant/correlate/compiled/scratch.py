"""Where the loops put down what they need while they run, after the places of `compiled.layout`.

Here are the queues that `compiled.near` lays out: a record per step, then its arrays.
"""

from __future__ import annotations

from concordant.correlate.compiled.layout import (
    AHEAD_COUNT,
    AT_ONLY,
    STRAIGHT_COUNT_MAX,
    STRAIGHT_LENGTH_MAX,
)

AT_NEAR_CODES = AT_ONLY + AHEAD_COUNT
"""Per topic code, the step of its events, see NEAR_."""
AT_NEAR_STEPS = AT_NEAR_CODES + STRAIGHT_COUNT_MAX
NEAR_HEAD = 0
NEAR_TAIL = 1
NEAR_KEY = 2
NEAR_BASE = 3
"""Where its arrays begin: what its events are, what they ask, their rows."""
NEAR_ABOVE = 4
"""The step that it is bound to, or 0; and the one bound to it, or one that every event passes."""
NEAR_BELOW = 5
NEAR_COLUMN = 6
NEAR_TURNED = 7
NEAR_LOWERED = 8
NEAR_ROOT = 9
"""All bits if it is bound to none, whose own value is never asked for."""
NEAR_THEIRS = 10
NEAR_BOUND_TURNED = 11
NEAR_BOUND_RAISED = 12
NEAR_LEAF = 13
"""All bits if none is bound to it."""
NEAR_QUEUE = 14
NEAR_TESTED = 15
"""The reader, if events have a predicate of their own to pass; else 0."""
NEAR_SIZE = 16
AT_NEAR = AT_NEAR_STEPS + (STRAIGHT_COUNT_MAX + 1) * NEAR_SIZE
NEAR_COUNT = 2 * STRAIGHT_LENGTH_MAX
"""Places of an array: a queue moves along them before it is brought back to the beginning."""
NEAR_ROWS_MIN = 8
"""For fewer rows the queues stay where they are."""
SCRATCH_SIZE = AT_NEAR + 3 * NEAR_COUNT * STRAIGHT_COUNT_MAX

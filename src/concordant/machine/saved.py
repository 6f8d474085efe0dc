"""A machine's state as records that take the place of its log, and back.

A log that only grows fills the disk and makes every start slower. Now and then the driver asks for
a snapshot (`Compact`), and the machine lets it replace everything it persisted before. What the
application has not taken yet is part of it. The state is cut into records of a bounded size.
"""

from __future__ import annotations

import msgspec

from concordant.machine.effects import Delivery, Persist
from concordant.machine.inputs import Record

PART_BYTES_MAX = 1 << 22


class Compact(msgspec.Struct, frozen=True, gc=False):
    """Request: let a snapshot take the place of the log.

    The application took `taken_count` deliveries, and `untaken` wait for it. If the machine has
    delivered others, because they are still on their way, it does nothing.
    """

    taken_count: int = 0
    """-1: all of them."""
    untaken: tuple[Delivery, ...] = ()


class Saved(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: a part of a snapshot; the last part has the rest."""

    part: bytes
    last: bool = True
    taken_count: int = 0
    untaken: tuple[Delivery, ...] = ()


def saving(state: bytes, request: Compact, cause: int) -> Persist:
    """Let a state take the place of the log."""
    cuts = range(0, max(1, len(state)), PART_BYTES_MAX)
    parts = [Saved(state[cut : cut + PART_BYTES_MAX], last=False) for cut in cuts]
    parts[-1] = Saved(parts[-1].part, True, request.taken_count, request.untaken)
    return Persist(tuple(parts), cause, replaces=True)


def saved_state(records: tuple[Record, ...]) -> tuple[bytes, Saved | None, tuple[Record, ...]]:
    """The state that the records begin with, its last part, and the records after it.

    >>> state, last, rest = saved_state((*saving(b"state", Compact(3), 0).records, Compact()))
    >>> state, last.taken_count, len(rest)
    (b'state', 3, 1)
    """
    parts: list[bytes] = []
    for number, record in enumerate(records):
        if not isinstance(record, Saved):
            break
        parts.append(record.part)
        if record.last:
            return b"".join(parts), record, records[number + 1 :]
    return b"", None, records

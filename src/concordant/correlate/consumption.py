"""Dispose: what leaves a topic's queue after a match.

One small function per policy, each from (queue, matched) to what stays. `matched` are the events of
this topic that the relation took, in stream order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from concordant.correlate.matching import Entry
from concordant.model.subscription import Consume


def after_prefix(queue: Sequence[Entry], matched: Sequence[Entry]) -> list[Entry]:
    """Up to and including the last matched event goes: a tumbling window (PI)."""
    return [entry for entry in queue if entry.number > matched[-1].number]


def after_matched(queue: Sequence[Entry], matched: Sequence[Entry]) -> list[Entry]:
    """Only the matched events go (I)."""
    gone = {entry.number for entry in matched}
    return [entry for entry in queue if entry.number not in gone]


def after_suffix(queue: Sequence[Entry], matched: Sequence[Entry]) -> list[Entry]:
    """The first matched event and everything queued after it go (IP)."""
    return [entry for entry in queue if entry.number < matched[0].number]


def after_slide(queue: Sequence[Entry], matched: Sequence[Entry]) -> list[Entry]:
    """Up to and including the first matched event goes: a sliding window (FP)."""
    return [entry for entry in queue if entry.number > matched[0].number]


REMAINING: dict[Consume, Callable[[Sequence[Entry], Sequence[Entry]], list[Entry]]] = {
    Consume.PREFIX: after_prefix,
    Consume.MATCHED: after_matched,
    Consume.SUFFIX: after_suffix,
    Consume.SLIDE: after_slide,
}

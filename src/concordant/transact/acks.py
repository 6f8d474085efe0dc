"""Who still has to answer before an operation is done: one entry per operation that came in.

An operation is answered to the hop it came from when everybody it was sent on to has answered. An
answer finds its operation by who sent it and for what; operations that a broker made itself (what
an advertisement attracts) have names of their own, so nothing collides (the paper's algorithm 2
keeps one map for all of them, and answers twice).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Performing(msgspec.Struct):
    """An operation that is under way behind this broker."""

    origin: str
    waiting: int
    ran: bool


class Acks(msgspec.Struct):
    """The operations of one transaction at one broker."""

    ops: dict[str, Performing] = {}
    by_answer: dict[tuple[str, str], str] = {}

    def begin(self, op: str, origin: str, sent: Sequence[tuple[str, str]], *, ran: bool) -> bool:
        """An operation was sent on under these names; True if there is nothing to wait for."""
        self.ops[op] = Performing(origin, len(sent), ran)
        for answer in sent:
            self.by_answer[answer] = op
        return not sent

    def answer(self, hop: str, name: str, ran: bool) -> tuple[str, str, bool] | None:
        """An answer came; if it was the last one: whom to answer, for what, and whether it ran."""
        op = self.by_answer.pop((hop, name), None)
        if op is None:
            return None
        entry = self.ops[op]
        entry.waiting -= 1
        entry.ran = entry.ran or ran
        return (entry.origin, op, entry.ran) if not entry.waiting else None

"""Planted bugs at the edge of the overlay: where clients are cut off, and where events enter.

They join the others of `transaction_bugs` in `BUGS`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from concordant.machine.effects import Effect
from concordant.route.filter import filter_of
from concordant.route.link import Reliable
from concordant.route.requests import Subscribe
from concordant.transact.endings import EndingRouter
from concordant.transact.messages import Recalled
from concordant.transact.resident import EVERYTHING, Resident
from concordant.transact.shared import SharedRouter
from tests.detection.transaction_bugs import BUGS, bug

__all__ = ["BUGS"]


# --- residents ------------------------------------------------------------------------------------


@bug("a resident waits for others to advertise", "static, open, isolated", "entering", "Entry")
def _(patch: pytest.MonkeyPatch) -> None:
    def move_in(self: Any, cause: int, out: list[Effect]) -> None:
        if self._enters and not self.subscriptions:
            self._send(self.change_of(Subscribe(EVERYTHING, filter_of())), cause, out)

    patch.setattr(Resident, "_move_in", move_in)


@bug(
    "after a crash, the last event that entered enters again",
    "static, open, isolated",
    "entering",
    "Entry, Atomicity, Regular",
    faults=True,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Reliable._start

    def start(self: Reliable, now: int, given: Any, out: list[Effect]) -> None:
        if given.taken_count and isinstance(self.inner, Resident):
            given = msgspec.structs.replace(given, taken_count=given.taken_count - 1)
        correct(self, now, given, out)

    patch.setattr(Reliable, "_start", start)


@bug(
    "events enter in any order of their operations",
    "static, open, isolated",
    "entering",
    "Entry, Operation Order",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = EndingRouter.notify

    def notify(self: Any, tx: str, outbox: Any) -> None:
        correct(self, tx, sorted(outbox, key=lambda one: one[1], reverse=True))

    patch.setattr(EndingRouter, "notify", notify)


# --- mailboxes ------------------------------------------------------------------------------------


@bug("who takes nothing is given more and more", "static", "crowded", "Mailboxes")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharedRouter, "cut", lambda self, client: None)


@bug(
    "a mailbox that is just full is taken for one that is too full",
    "static",
    "crowded",
    "Mailboxes",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def notify(self: Any, tx: str, outbox: Any) -> None:
        EndingRouter.notify(self, tx, outbox)
        for client in dict.fromkeys(client for client, _, _ in outbox):
            if len(self.state.mailboxes[client]) >= self.options.mailbox_count_max:
                self.cut(client)

    patch.setattr(SharedRouter, "notify", notify)


@bug("who is cut off is not told so", "static", "crowded", "Tables")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SharedRouter.cut

    def cut(self: Any, client: str) -> None:
        correct(self, client)
        self.out = [one for one in self.out if not isinstance(one[1], Recalled)]

    patch.setattr(SharedRouter, "cut", cut)


@bug("who is cut off is not given what it was owed", "static", "crowded", "Mailboxes, Clean")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SharedRouter.cut

    def cut(self: Any, client: str) -> None:
        self.out = [one for one in self.out if one[0] != client]
        correct(self, client)

    patch.setattr(SharedRouter, "cut", cut)

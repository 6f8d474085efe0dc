"""What is left of a transaction once it is decided: tombstones, outcomes and mailboxes.

All kinds end alike. Who has done what was decided says so; when all have, everybody may forget it,
but the broker of a client keeps the outcome until the client knows it. Committed events go to the
mailboxes of clients, which have a bound. The module knows nothing of how anything is decided.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from concordant.machine.effects import Effect, Note
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.route.router import Router
from concordant.transact.messages import (
    DecisionTaken,
    Ended,
    Forget,
    NotificationTaken,
    Notified,
)
from concordant.transact.options import TransactOptions

LOST = "a client of it lost its memory"
LATE = "it took too long"
UNKNOWN = "nobody knows of it"

_Outbox = list[tuple[str, str, Event]]
"""Client, operation and event: what a commit notifies."""


class Decided(msgspec.Struct):
    """A tombstone."""

    committed: bool
    reason: str
    origin: str
    waiting: dict[str, bool]
    """Neighbours that have not done what was decided."""
    owed: dict[str, bool]
    """Clients that do not know the outcome."""
    forgotten: bool = False


class Endings(msgspec.Struct):
    """What a broker remembers of transactions that are decided."""

    decided: dict[str, Decided] = {}
    mailboxes: dict[str, dict[tuple[str, str], Event]] = {}
    """Per client, by transaction and operation: committed events that it has not taken."""


class EndingRouter(Router, ABC):
    """A router that ends transactions; what undecided ones are is for subclasses to say."""

    state: Endings
    options: TransactOptions
    now: Instant = 0
    cause: int = 0

    def __init__(self, name: str, neighbours: tuple[str, ...] = ()) -> None:
        super().__init__(name, neighbours)
        self.effects: list[Effect] = []

    @abstractmethod
    def is_open(self, tx: str) -> bool:
        """Is it known here and not decided?"""

    def did(self, tx: str, op: str) -> None:
        """For the history: an operation was done here."""
        self.effects.append(Note("did", "transaction", (tx, op), cause=self.cause))

    def say_decided(self, tx: str, committed: bool) -> None:
        """For the history: it was decided, and this broker did so."""
        said = "committed" if committed else "aborted"
        self.effects.append(Note("decided", "transaction", (tx, said), cause=self.cause))

    # --- mailboxes ----------------------------------------------------------------------------

    def full(self, outbox: _Outbox) -> str:
        """Why a commit would be too much for some client; empty if it is not."""
        counts = {client: len(box) for client, box in self.state.mailboxes.items()}
        for client, _, _ in outbox:
            counts[client] = counts.get(client, 0) + 1
            if counts[client] > self.options.mailbox_count_max:
                return f"the mailbox of {client} is full"
        return ""

    def notify(self, tx: str, outbox: _Outbox) -> None:
        for client, op, event in outbox:
            self.state.mailboxes.setdefault(client, {})[tx, op] = event
            self.out.append((client, Notified(tx, op, event)))

    def notify_again(self, client: str) -> None:
        """To a client that lost its memory: everything that it may not have taken."""
        for (tx, op), event in self.state.mailboxes.get(client, {}).items():
            self.out.append((client, Notified(tx, op, event)))

    def notification_taken(self, client: str, message: NotificationTaken) -> None:
        mailbox = self.state.mailboxes.get(client, {})
        mailbox.pop((message.tx, message.op), None)
        if not mailbox:
            self.state.mailboxes.pop(client, None)

    # --- everybody has done it ----------------------------------------------------------------

    def taken(self, hop: str, tx: str) -> None:
        decided = self.state.decided.get(tx)
        if decided is not None and decided.waiting.pop(hop, False) and not decided.waiting:
            self.all_taken(tx)

    def all_taken(self, tx: str) -> None:
        origin = self.state.decided[tx].origin
        if origin:
            self.out.append((origin, DecisionTaken(tx)))
        else:
            self.flood(Forget(tx))
            self.forget(tx)

    def forget(self, tx: str) -> None:
        decided = self.state.decided.get(tx)
        if decided is not None:
            decided.forgotten = True
            self._drop_if_over(tx)

    def end_taken(self, hop: str, tx: str) -> None:
        decided = self.state.decided.get(tx)
        if decided is not None:
            decided.owed.pop(hop, None)
            self._drop_if_over(tx)

    def _drop_if_over(self, tx: str) -> None:
        decided = self.state.decided[tx]
        if decided.forgotten and not decided.owed:
            del self.state.decided[tx]

    def tell(self, hop: str, tx: str) -> None:
        """The outcome, to a client that asks; that nobody knows of it means that it was aborted."""
        decided = self.state.decided.get(tx)
        if decided is not None:
            self.out.append((hop, Ended(tx, decided.committed, decided.reason)))
        elif not self.is_open(tx):
            self.out.append((hop, Ended(tx, False, UNKNOWN)))

    def tell_late(self, hop: str, tx: str) -> None:
        """To a client whose message came after the end, if it was not told already."""
        decided = self.state.decided.get(tx)
        if not self.is_broker(hop) and (decided is None or hop not in decided.owed):
            self.tell(hop, tx)


def timer_of(tx: str) -> str:
    """The timer of a transaction at its coordinator."""
    return f"transaction {tx}"

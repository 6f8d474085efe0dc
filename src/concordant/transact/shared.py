"""Ending transactions on shared tables: prepare, vote, decide, and forget.

The coordinator of a transaction is the broker of the client that began it. Everybody says whether
it can commit, of an open one when asked and of a static one unasked; everybody learns the decision,
and when all have said so, everybody may forget it. Until then a broker keeps the decision as a
tombstone, so that what was under way for the transaction finds that it is over; the broker of a
client keeps it until the client knows, too. Nobody but the coordinator decides, and it decides
once: abort and time-outs only count while the transaction is in its table.

How operations are put in order is not known here: `markers` does that for static transactions and
`answers` for open ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from concordant.machine.effects import CancelTimer, SetTimer
from concordant.machine.inputs import Message
from concordant.model.event import Event
from concordant.route.broker import route
from concordant.route.messages import Hello, Subscribed, Unsubscribed, Welcome
from concordant.route.router import Tables
from concordant.transact.acks import Acks
from concordant.transact.endings import (
    LATE,
    LOST,
    UNKNOWN,
    Decided,
    EndingRouter,
    Endings,
    timer_of,
)
from concordant.transact.messages import (
    Ask,
    Decide,
    DecisionTaken,
    Ended,
    EndTaken,
    Finished,
    Forget,
    Mark,
    NotificationTaken,
    Open,
    Place,
    Prepare,
    Recalled,
    Refuse,
    Tagged,
    Vote,
)
from concordant.transact.options import TransactOptions
from concordant.transact.tags import TaggedRouter, Tags

NOT_HERE = "the brokers here take static and open transactions only"


class Echoing(msgspec.Struct):
    """An advertisement that has not come back from everywhere."""

    origin: str
    waiting: dict[str, bool]


class Live(msgspec.Struct):
    """A transaction that is not decided, at one broker."""

    done: dict[str, bool] = {}
    seen: dict[str, bool] = {}
    waiting: list[tuple[str, Place | Mark]] = []
    """Operations with the hops they came from, in their order."""
    echoes: dict[str, Echoing] = {}
    acks: Acks = msgspec.field(default_factory=Acks)
    outbox: list[tuple[str, str, Event]] = []
    """Client, operation and event: what a commit notifies."""
    parts: dict[str, bool] = {}
    """Clients here that take part."""
    advertises: bool = False
    """An operation of it was an advertisement."""
    stale: dict[str, bool] = {}
    """Those of them that lost their memory since."""
    asked_by: str | None = None
    """The hop to the coordinator; None: not known yet."""
    last: str = ""
    """The last operation, once it is here."""
    votes: dict[str, bool] = {}
    """Neighbours that said yes."""
    awaited: tuple[str, ...] | None = None
    """Whose votes it takes; None: this broker has not voted itself."""


class SharedState(Endings, kw_only=True):
    """What a broker remembers of open and static transactions."""

    coordinated: dict[str, str] = msgspec.field(default_factory=dict)
    """The client of each transaction that is decided here and is not yet."""
    live: dict[str, Live] = msgspec.field(default_factory=dict)
    retracted: dict[str, str] = msgspec.field(default_factory=dict)
    """Subscriptions that ended while their beginning waits here, with their transactions."""


class _Saved(msgspec.Struct):
    tables: Tables
    tags: Tags
    state: SharedState


class SharedRouter(EndingRouter, TaggedRouter):
    """A router that ends transactions."""

    def __init__(
        self,
        name: str,
        neighbours: tuple[str, ...] = (),
        *,
        options: TransactOptions | None = None,
    ) -> None:
        super().__init__(name, neighbours)
        self.options = options or TransactOptions()
        self.state: SharedState = SharedState()

    def take(self, hop: str, message: Message) -> None:
        """Do what a message asks for."""
        match message:
            case Open():
                self.out.append((hop, Ended(message.tx, False, NOT_HERE)))
            case Finished():
                self.finish(hop, message)
            case Refuse():
                self.refuse(hop, message)
            case Prepare():
                self.prepare(hop, message)
            case Vote():
                self.vote(hop, message)
            case Decide():
                if message.tx not in self.state.decided:
                    self.settle_here(message, hop)
            case DecisionTaken():
                self.taken(hop, message.tx)
            case Forget():
                self.flood(message, but=hop)
                self.forget(message.tx)
            case Ask():
                self.tell(hop, message.tx)
            case EndTaken():
                self.end_taken(hop, message.tx)
            case NotificationTaken():
                self.notification_taken(hop, message)
            case Tagged():
                self.take_copy(hop, message)
            case Hello():
                self.greet(hop)
            case Subscribed():
                self.state.retracted.pop(message.id, None)
                route(self, hop, message)
            case Unsubscribed():
                self.take_end(hop, message.id)
            case _:
                route(self, hop, message)

    # --- beginning ----------------------------------------------------------------------------

    def live_of(self, hop: str, tx: str) -> Live | None:
        """The transaction of a message, begun if it is new; None if it is over or refused."""
        state = self.state
        if tx in state.decided:
            self.tell_late(hop, tx)
            return None
        live = state.live.get(tx)
        if live is None:
            live = state.live[tx] = Live({}, {}, [], {}, Acks({}, {}), [], {}, stale={}, votes={})
            if not self.is_broker(hop):
                self.coordinate(hop, tx)
        if not self.is_broker(hop):
            live.parts[hop] = True
        return live if tx in state.live else None

    def coordinate(self, client: str, tx: str) -> None:
        state = self.state
        if not tx.startswith(f"{client}#"):
            # A trigger would have made it known here: its transaction is over and forgotten.
            del state.live[tx]
            self.out.append((client, Ended(tx, False, UNKNOWN)))
            return
        state.coordinated[tx] = client
        self.effects.append(
            SetTimer(timer_of(tx), self.now + self.options.transaction_us, self.cause)
        )
        if len(state.coordinated) > self.options.transaction_count_max:
            self.decide(tx, False, "too many transactions are open at its broker")

    def is_open(self, tx: str) -> bool:
        return tx in self.state.live

    # --- prepare and vote ---------------------------------------------------------------------

    def finish(self, hop: str, message: Finished) -> None:
        live = self.live_of(hop, message.tx)
        if live is not None and self.state.coordinated.get(message.tx) == hop:
            self.prepare(hop, Prepare(message.tx))

    def prepare(self, hop: str, message: Prepare) -> None:
        """Everything of an open transaction is answered: can it be committed?"""
        live = self.live_of(hop, message.tx)
        if live is not None:
            live.asked_by = hop
            self.flood(message, but=hop)
            self._vote(message.tx, live, self.neighbours)

    def complete(self, tx: str, live: Live) -> None:
        """The last operation of a plan is done here. It is everywhere before a decision of ours is,
        and so are those before it, but for an advertisement, which may wait for echoes elsewhere.
        """
        if live.advertises:
            self._vote(tx, live, self.neighbours)
        elif tx in self.state.coordinated:
            self.decide(tx, True, "")

    def _vote(self, tx: str, live: Live, others: tuple[str, ...]) -> None:
        """This broker's own vote; it goes on when all behind it have voted, a no at once."""
        live.awaited = tuple(one for one in others if one != live.asked_by)
        full = self.full(live.outbox)
        if full:
            self._vote_up(tx, live, False, full)
        else:
            self._count_votes(tx, live)

    def _count_votes(self, tx: str, live: Live) -> None:
        if live.awaited is not None and all(one in live.votes for one in live.awaited):
            self._vote_up(tx, live, True, "")

    def vote(self, hop: str, message: Vote) -> None:
        live = self.state.live.get(message.tx)
        if live is None or live.asked_by is None:
            return
        if message.yes:
            live.votes[hop] = True
            self._count_votes(message.tx, live)
        else:
            self._vote_up(message.tx, live, False, message.reason)

    def _vote_up(self, tx: str, live: Live, yes: bool, reason: str) -> None:
        if tx in self.state.coordinated:
            self.decide(tx, yes, reason)
        elif live.asked_by is not None:
            self.out.append((live.asked_by, Vote(tx, yes, reason)))

    def refuse(self, hop: str, message: Refuse) -> None:
        """Somebody cannot go on: find the coordinator."""
        tx, state = message.tx, self.state
        if tx in state.coordinated:
            self.decide(tx, False, message.reason)
        elif self.is_broker(hop) or tx in state.live:
            if tx not in state.decided:
                self.flood(message, but=hop)
        else:
            self.tell_late(hop, tx)

    def wake(self, name: str) -> None:
        """A timer fired."""
        tx = name.removeprefix(timer_of(""))
        if tx in self.state.coordinated:
            self.decide(tx, False, LATE)

    # --- decide and forget --------------------------------------------------------------------

    def decide(self, tx: str, committed: bool, reason: str) -> None:
        """The coordinator's word, once."""
        client = self.state.coordinated.pop(tx)
        self.effects.append(CancelTimer(timer_of(tx), self.cause))
        self.state.live[tx].parts[client] = True
        self.settle_here(Decide(tx, committed, "" if committed else reason), "")

    def settle_here(self, decision: Decide, hop: str) -> None:
        tx, state = decision.tx, self.state
        # First of all: whatever the settling sends must come after the decision.
        self.flood(decision, but=hop)
        waiting = {other: True for other in self.neighbours if other != hop}
        live = state.live.pop(tx, None)
        owed: dict[str, bool] = {}
        if live is not None:
            owed = {client: True for client in live.parts if client not in live.stale}
            for client in live.stale if decision.committed else ():
                self.out.append((client, self.changes_of(tx, client)))
        state.decided[tx] = Decided(decision.committed, decision.reason, hop, waiting, owed)
        state.retracted = {id: other for id, other in state.retracted.items() if other != tx}
        self.settle(tx, decision.committed)
        self.say_decided(tx, decision.committed)
        if live is not None and decision.committed:
            self.notify(tx, live.outbox)
        for client in owed:
            self.tell(client, tx)
        if not waiting:
            self.all_taken(tx)

    # --- clients ------------------------------------------------------------------------------

    def notify(self, tx: str, outbox: list[tuple[str, str, Event]]) -> None:
        super().notify(tx, outbox)
        for client in dict.fromkeys(client for client, _, _ in outbox):
            if len(self.state.mailboxes[client]) > self.options.mailbox_count_max:
                self.cut(client)

    def cut(self, client: str) -> None:
        """Who takes nothing is given nothing more: what it subscribed to ends, and it is told."""
        pending = {**self.tags.added, **self.tags.deleted}
        entries = self.tables.subscriptions.values()
        gone = tuple(one.id for one in entries if one.hop == client and one.id not in pending)
        for id in gone:
            self.unsubscribe(client, id)
        if gone:
            self.out.append((client, Recalled(gone=gone)))

    def greet(self, client: str) -> None:
        """A client without memory: what it took part in cannot go on."""
        state = self.state
        for tx in [tx for tx, other in state.coordinated.items() if other == client]:
            state.live[tx].stale[client] = True
            self.decide(tx, False, LOST)
        for tx, live in list(state.live.items()):
            if client in live.parts:
                live.stale[client] = True
                self.refuse(client, Refuse(tx, LOST))
        for tx, decided in state.decided.items():
            if client in decided.owed:
                self.tell(client, tx)
        known, added = self.known_of(client), self.tags.added
        welcome = Welcome(
            tuple(one for one in known.advertisements if one[0] not in added),
            tuple(one for one in known.subscriptions if one[0] not in added),
        )
        self.out.append((client, welcome))
        self.notify_again(client)

    # --- copies of pending subscriptions ------------------------------------------------------

    def take_copy(self, hop: str, message: Tagged) -> None:
        """A pending subscription follows an advertisement; some of its tags may be settled here."""
        self.state.retracted.pop(message.id, None)
        tagged = self.current(message.added_by, message.deleted_by)
        if tagged is not None:
            entry = self.add_subscription(message.id, message.filter, hop, *tagged)
            if entry is not None:
                self.reconcile(entry)

    def current(
        self, added_by: str, deleted_by: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...]] | None:
        """Tags without those that are decided; None if the entry is gone by now."""
        decided = self.state.decided
        adding = decided.get(added_by)
        if adding is not None and not adding.committed:
            return None
        if any(tx in decided and decided[tx].committed for tx in deleted_by):
            return None
        open_ = tuple(tx for tx in deleted_by if tx not in decided)
        return ("" if adding is not None else added_by, open_)

    def take_end(self, hop: str, id: str) -> None:
        """A subscription ends; if its beginning still waits here, the end waits for it."""
        if id not in self.tables.subscriptions:
            for tx, live in self.state.live.items():
                for origin, message in live.waiting:
                    if origin == hop and isinstance(message, Place) and message.what.id == id:
                        self.state.retracted[id] = tx
                        return
        self.unsubscribe(hop, id)

    # --- the whole ----------------------------------------------------------------------------

    @property
    def held_count(self) -> int:
        state = self.state
        return len(state.live) + len(state.decided) + len(state.coordinated)

    @property
    def leftovers(self) -> str:
        """What is still here of transactions: empty when none is open."""
        state, tags = self.state, self.tags
        found: dict[str, Mapping[str, object]] = {
            "live": state.live,
            "decided": state.decided,
            "coordinated": state.coordinated,
            "mailboxes": state.mailboxes,
            "retracted": state.retracted,
            "tags": {**tags.added, **tags.deleted, **tags.touched},
        }
        return ", ".join(f"{name}: {list(what)}" for name, what in found.items() if what)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(_Saved(self.tables, self.tags, self.state))

    def restore(self, data: bytes) -> None:
        saved = msgspec.msgpack.decode(data, type=_Saved)
        super().restore(msgspec.msgpack.encode(saved.tables))
        self.tags, self.state = saved.tags, saved.state

"""Isolated transactions: each sees what was committed when it began, and they commit in one order.

The tree has a root. It opens a transaction by a flood, which reaches every broker before any of its
operations does, so all of them see one cut of the tables. Operations act on contexts and are
answered when they are done everywhere. To commit, the root asks by another flood, and the order of
these floods is the order of commits. A broker says no to what clashes with anything committed since
the transaction began, waits for an earlier one that it clashes with to be decided, and says yes to
the rest. So nobody waits for a transaction that is merely open, and waiting goes one way only: no
deadlock. (Jergler 2017, section IV; there, the order is by name and an open transaction holds up
all later ones.)

What a commit does to the tables of one broker is `merge`.
"""

from __future__ import annotations

import msgspec

from concordant.machine.effects import CancelTimer, SetTimer
from concordant.machine.inputs import Message
from concordant.route.broker import route
from concordant.route.messages import Hello
from concordant.route.router import Tables
from concordant.transact.context import clash, new_context
from concordant.transact.endings import (
    LATE,
    LOST,
    UNKNOWN,
    Decided,
    EndingRouter,
    Endings,
    timer_of,
)
from concordant.transact.merge import merge, recalled
from concordant.transact.messages import (
    Ask,
    Decide,
    DecisionTaken,
    EndTaken,
    Finished,
    Forget,
    Init,
    NotificationTaken,
    Open,
    Opened,
    Prepare,
    Refuse,
    Up,
    Vote,
)
from concordant.transact.options import TransactOptions
from concordant.transact.versions import VersionedRouter, Versions

CLASH = "it clashes with another transaction"


class Preparing(msgspec.Struct):
    """A transaction that is asked for, at one broker."""

    vote: str = "wait"
    """This broker's own: `wait`, `yes` or `no`."""
    waiting: dict[str, bool] = {}
    """Children that have not voted."""
    said: bool = False
    """The vote has gone up."""


class IsolatedState(Endings, kw_only=True):
    """What a broker remembers of isolated transactions beside their contexts."""

    begun: dict[str, str] = msgspec.field(default_factory=dict)
    """The client here that began each transaction."""
    stages: dict[str, str] = msgspec.field(default_factory=dict)
    """At the root: `open` or `preparing`."""
    preparing: dict[str, Preparing] = msgspec.field(default_factory=dict)
    """In the order in which the root asked."""


class _Saved(msgspec.Struct):
    tables: Tables
    versions: Versions
    state: IsolatedState


class IsolatedRouter(EndingRouter, VersionedRouter):
    """A router that keeps transactions apart."""

    def __init__(
        self,
        name: str,
        neighbours: tuple[str, ...] = (),
        *,
        parent: str = "",
        options: TransactOptions | None = None,
    ) -> None:
        """`parent` is the neighbour on the way to the root; the root has none."""
        super().__init__(name, neighbours)
        self.parent = parent
        self.options = options or TransactOptions()
        self.state: IsolatedState = IsolatedState()

    def take(self, hop: str, message: Message) -> None:
        """Do what a message asks for."""
        match message:
            case Open():
                if message.tx.startswith(f"{hop}#"):  # nobody begins another's transaction
                    self.state.begun[message.tx] = hop
                    self.up(Up(message.tx, "open"))
            case Finished():
                if self.state.begun.get(message.tx) == hop:
                    self.up(Up(message.tx, "prepare"))
                else:
                    self.tell_late(hop, message.tx)
            case Refuse():
                if message.tx in self.versions.contexts or message.tx in self.state.begun:
                    self.up(Up(message.tx, "abort", message.reason))
                else:
                    self.tell_late(hop, message.tx)
            case Up():
                self.up(message)
            case Init():
                self.init(message)
            case Prepare():
                self.prepare(message)
            case Vote():
                self.vote(hop, message)
            case Decide():
                if message.tx not in self.state.decided:
                    self.settle(message)
            case DecisionTaken():
                self.taken(hop, message.tx)
            case Forget():
                self.down(message)
                self.forget(message.tx)
            case Ask():
                self.tell(hop, message.tx)
            case EndTaken():
                self.end_taken(hop, message.tx)
            case NotificationTaken():
                self.notification_taken(hop, message)
            case Hello():
                self.greet(hop)
            case _:
                route(self, hop, message)

    def down(self, message: Message) -> None:
        """To everybody below."""
        self.flood(message, but=self.parent)

    # --- the root -----------------------------------------------------------------------------

    def up(self, message: Up) -> None:
        """To the root, which decides what follows."""
        if self.parent:
            self.out.append((self.parent, message))
            return
        tx, stages = message.tx, self.state.stages
        if message.what == "open" and tx not in stages and tx not in self.state.decided:
            stages[tx] = "open"
            at = self.now + self.options.transaction_us
            self.effects.append(SetTimer(timer_of(tx), at, self.cause))
            self.init(Init(tx))
            if len(stages) > self.options.transaction_count_max:
                self.decide(tx, False, "too many transactions are open")
        elif message.what == "prepare" and stages.get(tx) == "open":
            stages[tx] = "preparing"
            self.prepare(Prepare(tx))
        elif message.what == "abort" and tx in stages:
            self.decide(tx, False, message.reason)

    def wake(self, name: str) -> None:
        """A timer fired."""
        tx = name.removeprefix(timer_of(""))
        if tx in self.state.stages:
            self.decide(tx, False, LATE)

    def decide(self, tx: str, committed: bool, reason: str) -> None:
        """The root's word, once."""
        del self.state.stages[tx]
        self.effects.append(CancelTimer(timer_of(tx), self.cause))
        self.settle(Decide(tx, committed, "" if committed else reason))

    # --- open, prepare and vote ---------------------------------------------------------------

    def init(self, message: Init) -> None:
        self.down(message)
        self.versions.contexts[message.tx] = new_context(self.versions.number)
        client = self.state.begun.get(message.tx)
        if client is not None:
            self.versions.contexts[message.tx].parts[client] = True
            self.out.append((client, Opened(message.tx)))

    def prepare(self, message: Prepare) -> None:
        self.down(message)
        children = {one: True for one in self.neighbours if one != self.parent}
        self.state.preparing[message.tx] = Preparing("wait", children)
        self._judge(message.tx)

    def _judge(self, tx: str) -> None:
        """Form this broker's own vote, if it can."""
        one = self.state.preparing[tx]
        if one.vote == "wait":
            reason = self._objection(tx)
            if reason:
                one.vote = "no"
                self._vote_up(tx, False, reason)
                return
            if self._waits(tx):
                return
            one.vote = "yes"
        self._vote_if_all(tx)

    def _objection(self, tx: str) -> str:
        context = self.versions.contexts.get(tx)
        if context is None:
            return UNKNOWN
        full = self.full(context.outbox)
        if full:
            return full
        filters = [entry.filter for entry in self.seen_subscriptions(context)]
        for number, writes in self.versions.log:
            if number > context.base and clash(context.ops, writes, filters):
                return CLASH
        return ""

    def _waits(self, tx: str) -> bool:
        """Is there an earlier one, undecided, that it clashes with?"""
        context = self.versions.contexts[tx]
        filters = [entry.filter for entry in self.seen_subscriptions(context)]
        for other, one in self.state.preparing.items():
            if other == tx:
                return False
            earlier = self.versions.contexts.get(other)
            if (
                one.vote != "no"
                and earlier is not None
                and clash(context.ops, earlier.writes, filters)
            ):
                return True
        return False

    def vote(self, hop: str, message: Vote) -> None:
        one = self.state.preparing.get(message.tx)
        if one is None:
            return
        one.waiting.pop(hop, None)
        if message.yes:
            self._vote_if_all(message.tx)
        else:
            self._vote_up(message.tx, False, message.reason)

    def _vote_if_all(self, tx: str) -> None:
        one = self.state.preparing[tx]
        if one.vote == "yes" and not one.waiting:
            self._vote_up(tx, True, "")

    def _vote_up(self, tx: str, yes: bool, reason: str) -> None:
        one = self.state.preparing[tx]
        if one.said:
            return
        one.said = True
        if self.parent:
            self.out.append((self.parent, Vote(tx, yes, reason)))
        elif tx in self.state.stages:
            self.decide(tx, yes, reason)

    # --- decide and forget --------------------------------------------------------------------

    def settle(self, decision: Decide) -> None:
        tx, state = decision.tx, self.state
        # First of all: whatever the merge sends must come after the decision.
        self.down(decision)
        context = self.versions.contexts.pop(tx, None)
        state.preparing.pop(tx, None)
        owed: dict[str, bool] = {}
        client = state.begun.pop(tx, None)
        if client is not None:
            owed[client] = True
        if context is not None:
            owed.update(dict.fromkeys(context.parts, True))
            for one in context.stale:
                owed.pop(one, None)
        waiting = {one: True for one in self.neighbours if one != self.parent}
        state.decided[tx] = Decided(decision.committed, decision.reason, self.parent, waiting, owed)
        self.say_decided(tx, decision.committed)
        if context is not None and decision.committed:
            merge(self, tx, context)
            for one in context.stale:
                self.out.append((one, recalled(context, one)))
            self.notify(tx, context.outbox)
        self.prune()
        for one in owed:
            self.tell(one, tx)
        if not waiting:
            self.all_taken(tx)
        for other in list(state.preparing):
            if other in state.preparing:
                self._judge(other)

    def forget(self, tx: str) -> None:
        self.versions.draining.pop(tx, None)
        super().forget(tx)

    def is_open(self, tx: str) -> bool:
        return tx in self.versions.contexts or tx in self.state.begun

    # --- clients ------------------------------------------------------------------------------

    def greet(self, client: str) -> None:
        """A client without memory: what it took part in cannot go on."""
        contexts = self.versions.contexts
        lost = [tx for tx, one in self.state.begun.items() if one == client]
        lost += [tx for tx, one in contexts.items() if client in one.parts and tx not in lost]
        self.out.append((client, self.known_of(client)))
        self.notify_again(client)
        for tx in lost:
            if tx in contexts:
                contexts[tx].stale[client] = True
            self.up(Up(tx, "abort", LOST))
        for tx, decided in self.state.decided.items():
            if client in decided.owed:
                self.tell(client, tx)

    # --- the whole ----------------------------------------------------------------------------

    @property
    def held_count(self) -> int:
        state = self.state
        return (
            len(self.versions.contexts)
            + len(state.decided)
            + len(state.begun)
            + len(state.stages)
            + len(self.versions.draining)
        )

    @property
    def leftovers(self) -> str:
        """What is still here of transactions: empty when none is open."""
        state, versions = self.state, self.versions
        found = {
            "contexts": versions.contexts,
            "log": versions.log,
            "dead": versions.dead,
            "draining": versions.draining,
            "begun": state.begun,
            "stages": state.stages,
            "preparing": state.preparing,
            "decided": state.decided,
            "mailboxes": state.mailboxes,
        }
        return ", ".join(f"{name}: {list(what)}" for name, what in found.items() if what)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(_Saved(self.tables, self.versions, self.state))

    def restore(self, data: bytes) -> None:
        saved = msgspec.msgpack.decode(data, type=_Saved)
        super().restore(msgspec.msgpack.encode(saved.tables))
        self.versions, self.state = saved.versions, saved.state

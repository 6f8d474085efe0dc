"""What transactions promise, checked over what brokers and clients were seen to do.

`Seen` is a run as plain data: which transactions were begun, which operations clients did in them,
what each broker did and decided, what each client was told and given, and what was left at the end.
Each checker reads it and returns a verdict. They know no protocol: what is atomic, in order and
serialisable is the same for all kinds; what is promised to whom is for `check_transactions` to
choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from concordant.check.overlay import Placed, Seen, Tree, check_tables, recipients
from concordant.check.verdict import Verdict, Violation
from concordant.model.event import Event
from concordant.route.filter import Filter


class Done(msgspec.Struct, frozen=True):
    """An operation as its client did it."""

    op: str
    client: str
    kind: str
    id: str = ""
    filter: Filter = Filter()
    event: Event | None = None

    @property
    def place(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.op.split("."))


class Transaction(msgspec.Struct):
    """A transaction as it was begun and done."""

    tx: str
    client: str
    kind: str
    ops: dict[str, Done] = {}
    planned_count: int = 0
    """Operations that it has if all of them are done."""
    disturbed: bool = False
    """Somebody gave up, was mute or crashed: it may end either way."""
    rivals: bool = True
    """There are others that it may clash with."""

    @property
    def in_order(self) -> list[Done]:
        return sorted(self.ops.values(), key=lambda one: one.place)


class Run(msgspec.Struct):
    """What was seen of a run."""

    tree: Tree
    transactions: dict[str, Transaction] = {}
    did: dict[str, list[tuple[str, str]]] = {}
    """Per broker: transaction and operation."""
    decided: dict[str, list[tuple[str, bool]]] = {}
    """Per broker, in its order."""
    knows: dict[str, list[tuple[str, bool, str]]] = {}
    """Per client: transaction, outcome, reason."""
    delivered: dict[str, list[str]] = {}
    """Per client: ids of events of the application."""
    commit_order: list[str] = []
    """Where it is defined: as the root decided."""
    base: list[Placed] = []
    """Subscriptions before the first transaction."""
    advertisements: list[Placed] = []
    """At the end, as the clients have them."""
    subscriptions: list[Placed] = []
    tables: dict[str, Seen] = {}
    left: dict[str, str] = {}
    """What is left of transactions, by broker or client: a sentence each."""
    regular: list[tuple[Event, tuple[str, ...]]] = []
    """Regular events that no transaction touches, with whom they must reach."""
    begun: dict[str, bool] = {}
    """Transactions whose beginning left its client: one that was lost with a life never was."""
    replayed: dict[str, bool] = {}
    """By broker: did a replay of its log come to the same state?"""
    forgetful: frozenset[str] = frozenset()
    """Clients that lost their memory."""
    enters: str = ""
    """The client whose events enter the common order, if there is one."""
    mailbox_count_max: int = 0
    """What a mailbox holds, if mailboxes were looked into."""
    crowds: dict[str, int] = {}
    """The most that was in a client's mailbox at any time."""
    owed: dict[str, dict[str, bool]] = {}
    """Everything that ever was in it."""

    def outcomes(self) -> dict[str, bool]:
        """What was decided, by transaction: as brokers said, or clients were told. (A broker that
        dies between its log and its word has decided, and nobody heard it say so.)"""
        told = {tx: yes for one in self.knows.values() for tx, yes, _ in one}
        return told | {tx: yes for one in self.decided.values() for tx, yes in one}


def agreement(run: Run) -> Verdict:
    """I1: brokers and clients agree on every outcome."""
    said: dict[str, tuple[str, bool]] = {}
    count = 0
    told = [(broker, tx, yes) for broker, one in run.decided.items() for tx, yes in one]
    told += [(client, tx, yes) for client, one in run.knows.items() for tx, yes, _ in one]
    for who, tx, yes in told:
        count += 1
        other, before = said.setdefault(tx, (who, yes))
        if before != yes:
            words = {True: "committed", False: "aborted"}
            sentence = f"for {other}, {tx} is {words[before]}, and for {who} {words[yes]}"
            return Verdict("Agreement", count, Violation(sentence))
    return Verdict("Agreement", count)


def atomicity(run: Run) -> Verdict:
    """I1: events of a transaction are delivered if it commits, and then once to each."""
    outcomes = run.outcomes()
    tx_of = {
        one.event.id: tx.tx
        for tx in run.transactions.values()
        for one in tx.ops.values()
        if one.event is not None
    }
    count = 0
    for client, ids in run.delivered.items():
        for id, times in Counter(ids).items():
            if id not in tx_of:
                continue
            count += 1
            if not outcomes.get(tx_of[id], False):
                sentence = f"{client} was given {id} of {tx_of[id]}, which did not commit"
                return Verdict("Atomicity", count, Violation(sentence, (id,)))
            if times > 1 and client not in run.forgetful:
                sentence = f"{client} was given {id} {times} times"
                return Verdict("Atomicity", count, Violation(sentence, (id,)))
    return Verdict("Atomicity", count)


def operation_order(run: Run) -> Verdict:
    """I2: every broker does the operations of a transaction in their order, and so does a client
    get its events."""
    count = 0
    for broker, steps in run.did.items():
        last: dict[str, tuple[int, ...]] = {}
        for tx, op in steps:
            count += 1
            place = tuple(int(part) for part in op.split("."))
            if place < last.get(tx, ()):
                sentence = f"{broker} did operation {op} of {tx} after a later one"
                return Verdict("Operation Order", count, Violation(sentence))
            last[tx] = place
    for tx_ in run.transactions.values():
        ranks = {one.event.id: n for n, one in enumerate(tx_.in_order) if one.event is not None}
        for client, ids in run.delivered.items():
            got = [ranks[id] for id in dict.fromkeys(ids) if id in ranks]
            if got != sorted(got) and client not in run.forgetful:
                sentence = f"{client} was given the events of {tx_.tx} out of their order"
                return Verdict("Operation Order", count, Violation(sentence))
    return Verdict("Operation Order", count)


def _replayed(run: Run, order: Sequence[str]) -> Iterator[tuple[str, Done, list[str]]]:
    """Operations with events of committed transactions, with their recipients one after another."""
    subscribed = {one.id: one for one in run.base}
    for tx in order:
        for one in run.transactions[tx].in_order:
            if one.kind == "subscribe":
                subscribed[one.id] = Placed(one.id, one.client, one.filter)
            elif one.kind == "unsubscribe":
                subscribed.pop(one.id, None)
            elif one.event is not None:
                found = recipients(subscribed.values(), one.event)
                yield tx, one, [client for client in found if client != one.client]


def serialisable(run: Run, order: Sequence[str]) -> Verdict:
    """I3, I5: events reach exactly those whom they reach if one transaction follows the other."""
    count = 0
    got: dict[str, list[str]] = {}
    for client, ids in run.delivered.items():
        for id in dict.fromkeys(ids):
            got.setdefault(id, []).append(client)
    for tx, one, wanted in _replayed(run, order):
        assert one.event is not None
        count += 1
        has = sorted(got.get(one.event.id, []))
        if has != sorted(wanted):
            sentence = (
                f"operation {one.op} of {tx} ({one.event.id}) reached {has or 'nobody'}, "
                f"and must reach {sorted(wanted) or 'nobody'}"
            )
            return Verdict("Serial", count, Violation(sentence, (one.event.id,)))
    return Verdict("Serial", count)


def commit_order(run: Run) -> Verdict:
    """I3: all brokers commit in the root's order."""
    ranks = {tx: n for n, tx in enumerate(run.commit_order)}
    count = 0
    for broker, one in run.decided.items():
        order = [ranks[tx] for tx, yes in one if yes and tx in ranks]
        count += len(order)
        if order != sorted(order):
            return Verdict(
                "Commit Order", count, Violation(f"{broker} did not commit in the root's order")
            )
    return Verdict("Commit Order", count)


def decided(run: Run) -> Verdict:
    """I6: when nothing is under way any more, everything is decided and its client knows."""
    outcomes = run.outcomes()
    known = {(client, tx) for client, one in run.knows.items() for tx, _, _ in one}
    for tx in run.transactions.values():
        if tx.client in run.forgetful or tx.tx not in run.begun:
            continue
        if tx.tx not in outcomes and (tx.client, tx.tx) not in known:
            return Verdict("Decided", len(outcomes), Violation(f"{tx.tx} was never decided"))
        if (tx.client, tx.tx) not in known:
            sentence = f"{tx.client} was never told the outcome of {tx.tx}"
            return Verdict("Decided", len(outcomes), Violation(sentence))
    return Verdict("Decided", len(run.transactions))


def clean(run: Run) -> Verdict:
    """I7: nothing of any transaction is left."""
    for who, sentence in sorted(run.left.items()):
        return Verdict("Clean", len(run.tables), Violation(f"{who}: {sentence}"))
    return Verdict("Clean", len(run.tables))


def names(run: Run) -> Verdict:
    """I4: what a commit began is there, what it ended and what an abort began is not."""
    outcomes = run.outcomes()
    there = {one.id for one in (*run.advertisements, *run.subscriptions)}
    ended = {
        one.id
        for tx in run.transactions.values()
        if outcomes.get(tx.tx)
        for one in tx.ops.values()
        if one.kind in ("unsubscribe", "unadvertise")
    }
    count = 0
    for tx in run.transactions.values():
        for one in tx.ops.values():
            if one.kind in ("publish", "trigger"):
                continue
            count += 1
            begins = one.kind in ("subscribe", "advertise")
            committed = outcomes.get(tx.tx, False)
            if begins and committed and one.id not in ended and one.id not in there:
                sentence = f"{one.id} of {tx.tx}, which committed, is not there"
            elif begins and not committed and one.id in there:
                sentence = f"{one.id} of {tx.tx}, which did not commit, is there"
            elif not begins and committed and one.id in there:
                sentence = f"{one.id} is there, and {tx.tx}, which committed, ended it"
            else:
                continue
            return Verdict("Names", count, Violation(sentence))
    return Verdict("Names", count)


def regular(run: Run) -> Verdict:
    """I8: regular events that no transaction touches arrive exactly once."""
    got: dict[str, Counter[str]] = {}
    for client, ids in run.delivered.items():
        for id in ids:
            got.setdefault(id, Counter())[client] += 1
    for event, wanted in run.regular:
        has = got.get(event.id, Counter())
        if has != Counter(wanted):
            sentence = f"the regular event {event.id} reached {dict(has)} and must reach {wanted}"
            return Verdict("Regular", len(run.regular), Violation(sentence, (event.id,)))
    return Verdict("Regular", len(run.regular))


def replayed(run: Run) -> Verdict:
    """I9: whoever replays the log of a broker comes to its state."""
    for broker, same in sorted(run.replayed.items()):
        if not same:
            sentence = f"a replay of the log of {broker} comes to another state"
            return Verdict("Replay", len(run.replayed), Violation(sentence))
    return Verdict("Replay", len(run.replayed))


def progress(run: Run) -> Verdict:
    """I10: what nobody disturbs and nothing clashes with commits, and with all its operations."""
    reasons = {tx: reason for one in run.knows.values() for tx, yes, reason in one if not yes}
    outcomes = run.outcomes()
    count = 0
    for tx in run.transactions.values():
        if outcomes.get(tx.tx) and tx.planned_count and len(tx.ops) != tx.planned_count:
            sentence = f"{tx.tx} committed with {len(tx.ops)} of its {tx.planned_count} operations"
            return Verdict("Progress", count, Violation(sentence))
        if tx.disturbed:
            continue
        count += 1
        reason = reasons.get(tx.tx, "")
        fair = ("it clashes", "refused") if tx.rivals else ("refused",)
        if not outcomes.get(tx.tx, False) and not reason.startswith(fair):
            sentence = f"nobody disturbed {tx.tx}, and it did not commit: {reason or 'no reason'}"
            return Verdict("Progress", count, Violation(sentence))
    return Verdict("Progress", count)


def entry(run: Run) -> Verdict:
    """What is committed enters the common order, and nothing else does: every event once, those of
    a transaction in the order of their operations, and where commits are ordered, in that order."""
    outcomes = run.outcomes()
    got = run.delivered[run.enters]
    count = 0
    first: dict[str, int] = {}
    for tx in run.transactions.values():
        mine = [one.event.id for one in tx.in_order if one.event is not None]
        wanted = mine if outcomes.get(tx.tx) else []
        has = [id for id in got if id in mine]
        count += len(wanted)
        if has != wanted:
            sentence = f"of {tx.tx}, {has or 'nothing'} entered, and {wanted or 'nothing'} must"
            return Verdict("Entry", count, Violation(sentence))
        if has:
            first[tx.tx] = got.index(has[0])
    order = [first[tx] for tx in run.commit_order if tx in first]
    if order != sorted(order):
        return Verdict("Entry", count, Violation("transactions did not enter as they committed"))
    return Verdict("Entry", count)


def mailboxes(run: Run, *, isolated: bool) -> Verdict:
    """Who let its mailbox overflow is cut off and nobody else is; what was in it is delivered all
    the same. (An isolated transaction is refused instead.)"""
    there = {one.id for one in run.subscriptions}
    for number, client in enumerate(run.tree.edges):
        most = run.crowds.get(client, 0)
        over = most > run.mailbox_count_max and not isolated
        before = [one.id for one in run.base if one.client == client]
        kept = [id for id in before if id in there]
        missing = [id for id in run.owed.get(client, {}) if id not in run.delivered[client]]
        if over and kept:
            sentence = f"{client} had {most} events in its mailbox, and still has {kept[0]}"
        elif not over and kept != before:
            sentence = f"{client} was cut off, and never had more than {most} in its mailbox"
        elif missing:
            sentence = f"{missing[0]} was in the mailbox of {client}, and was never delivered"
        else:
            continue
        return Verdict("Mailboxes", number, Violation(sentence))
    return Verdict("Mailboxes", len(run.tree.edges))


def tables(run: Run) -> Verdict:
    """I4: at rest, the tables of all brokers follow from what is advertised and subscribed."""
    return check_tables(run.tree, run.advertisements, run.subscriptions, run.tables)


def check_transactions(run: Run, *, isolated: bool, order: Sequence[str] | None) -> list[Verdict]:
    """All checks; `order` is the serial order to compare with, None where none is promised."""
    found = [agreement(run), atomicity(run), operation_order(run), decided(run), clean(run)]
    found += [names(run), tables(run), regular(run), progress(run)]
    if run.replayed:
        found.append(replayed(run))
    if run.mailbox_count_max:
        found.append(mailboxes(run, isolated=isolated))
    if run.enters:
        found.append(entry(run))
    if isolated:
        found.append(commit_order(run))
    if order is not None:
        found.append(serialisable(run, order))
    return found

"""A client with transactions: it begins them, takes part in others', and learns how they end.

Inside a transaction names change for the transaction only; the commit makes it so for all, the
abort undoes it. A name that an open transaction has changed is closed to everything else here. In a
dynamic transaction a client does one action after the other, each when the one before is done
everywhere; in a static one it sends all of its steps at once, and the brokers keep the order.

What the application is to know comes as deliveries: a trigger to answer (`trigger_of`), an outcome
(`outcome_of`), and the events of committed transactions beside all others. The machine knows no
broker but its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Deliver, Delivery, Effect, Note
from concordant.machine.inputs import Message, Request
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.route.client import Client, ClientState, Entry, by_name
from concordant.route.requests import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from concordant.transact.actions import Aborted, Action, Committed, Kind, Outcome, Step, Trigger
from concordant.transact.messages import (
    TO_CLIENTS,
    Ask,
    Ended,
    EndTaken,
    Finished,
    NotificationTaken,
    Notified,
    Open,
    Opened,
    Operation,
    Perform,
    Performed,
    Place,
    Planned,
    Recalled,
    Refuse,
)
from concordant.transact.requests import Abort, Act, Begin, Commit, Return, Run, Status

OUTCOME = "$outcome"
TRIGGER = "$trigger"
"""Topics of deliveries that are about transactions; no event of an application has such a topic."""

OPEN_COUNT_MAX = 10_000
"""Transactions that one client may have open."""


class Thread(msgspec.Struct):
    """Actions that one client does one after the other: its own, or in answer to a trigger."""

    waiting: list[Operation] = []
    count: int = 0
    """Actions so far."""
    busy: str = ""
    """The operation that is under way."""
    ending: bool = False
    """Nothing more comes: answer, or commit, when all is done."""
    ran: bool = True


class Part(msgspec.Struct):
    """A transaction that this client takes part in."""

    coordinates: bool = False
    opened: bool = True
    threads: dict[str, Thread] = {}
    begun: dict[str, dict[str, Entry]] = {}
    """Names that it adds, by what they name."""
    ended: dict[str, dict[str, Entry]] = {}
    """Names that it removes."""


class TransactState(ClientState, kw_only=True):
    """What a client remembers."""

    parts: dict[str, Part] = msgspec.field(default_factory=dict)
    closed: dict[str, str] = msgspec.field(default_factory=dict)
    """Names that open transactions change, with what they name, and by which."""
    last: str = ""


class TransactClient(Client):
    """A client of brokers with transactions."""

    _state: TransactState

    def _new_state(self) -> Any:
        return TransactState()

    @property
    def last_transaction(self) -> str:
        """The name of the transaction that was begun last."""
        return self._state.last

    def takes_part(self, tx: str) -> bool:
        """Is it open, as far as this client knows?"""
        return tx in self._state.parts

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Those it began and neither commits nor aborts yet: an application that is back from a
        crash goes on with them, or gives them up."""
        return tuple(
            tx
            for tx, part in self._state.parts.items()
            if part.coordinates and "" in part.threads and not part.threads[""].ending
        )

    @property
    def held_count(self) -> int:
        return len(self._state.parts)

    # --- requests -----------------------------------------------------------------------------

    def _ask(self, now: Instant, request: Request, cause: int, out: list[Effect]) -> None:
        if not self._state.connected:
            super()._ask(now, request, cause, out)
        match request:
            case Begin():
                self._begin(request.kind, cause, out)
            case Run():
                self._run(now, request, cause, out)
            case Act():
                self._act(now, request, cause, out)
            case Return():
                thread = self._thread(request.tx, request.thread)
                thread.ending = True
                thread.ran = thread.ran and request.ran
                self._advance(request.tx, request.thread, cause, out)
            case Commit():
                self._coordinated(request.tx)
                self._thread(request.tx, "").ending = True
                self._advance(request.tx, "", cause, out)
            case Abort():
                self._coordinated(request.tx)
                self._send(Refuse(request.tx, request.reason), cause, out)
            case Status():
                self._send(Ask(request.tx), cause, out)
            case Publish():
                _check_topic(request.topic)
                super()._ask(now, request, cause, out)
            case Advertise() | Unadvertise() | Subscribe() | Unsubscribe():
                self._check_free(request, "")
                super()._ask(now, request, cause, out)
            case _:
                super()._ask(now, request, cause, out)

    def _new_part(self, kind: Kind) -> str:
        state = self._state
        if len(state.parts) >= OPEN_COUNT_MAX:
            raise UsageError(
                f"{self.name} has {len(state.parts):,} transactions open, and no room for more",
                hint="wait until some of them end",
            )
        state.last = f"{self.name}#{self.next_number()}"
        state.parts[state.last] = _part(coordinates=True, opened=kind != "isolated")
        return state.last

    def _begin(self, kind: Kind, cause: int, out: list[Effect]) -> None:
        if kind == "static":
            raise UsageError("a static transaction is run as a plan", hint="ask for Run(plan)")
        tx = self._new_part(kind)
        self._state.parts[tx].threads[""] = Thread([])
        out.append(Note("begins", "transaction", (tx, kind), cause=cause))
        if kind == "isolated":
            self._send(Open(tx), cause, out)

    def _run(self, now: Instant, request: Run, cause: int, out: list[Effect]) -> None:
        plan = request.plan
        if plan.client != self.name:
            raise UsageError(f"this plan is one of {plan.client}, not of {self.name}")
        before = (self._state.number, self._state.last)
        tx = self._new_part("static")
        planned: list[Effect] = [Note("begins", "transaction", (tx, "static"), cause=cause)]
        steps = [step for _, step in plan.lines()]
        try:
            for step in steps:
                if "." not in step.op:
                    below = tuple(one for one in steps if _is_below(step.op, one.op))
                    self._place(now, tx, step, below, cause, planned)
        except UsageError:
            self._reopen(self._state.parts.pop(tx))
            self._state.number, self._state.last = before
            raise
        out += planned

    def _place(
        self,
        now: Instant,
        tx: str,
        step: Step,
        below: tuple[Step, ...],
        cause: int,
        out: list[Effect],
    ) -> None:
        what = self._operation(now, tx, step.action, below)
        self._send(Place(tx, step.op, step.after, what, step.last), cause, out)
        self._note(tx, step.op, what, cause, out)

    def _act(self, now: Instant, request: Act, cause: int, out: list[Effect]) -> None:
        thread = self._thread(request.tx, request.thread)
        if thread.ending:
            raise UsageError(
                f"{request.tx} takes no further action of {self.name}",
                hint="act before you commit or return",
            )
        if isinstance(request.action, Trigger) and request.action.actions:
            raise UsageError(
                "only a plan says what the target of a trigger does",
                hint="leave its actions to the target, or run a plan",
            )
        thread.waiting.append(self._operation(now, request.tx, request.action, ()))
        self._advance(request.tx, request.thread, cause, out)

    def _thread(self, tx: str, thread: str) -> Thread:
        part = self._state.parts.get(tx)
        if part is None or thread not in part.threads:
            raise UsageError(
                f"{self.name} takes no part in {tx}, or it is over",
                hint="begin a transaction, and act before it ends",
            )
        return part.threads[thread]

    def _coordinated(self, tx: str) -> None:
        part = self._state.parts.get(tx)
        if part is None or not part.coordinates:
            raise UsageError(f"{tx} is no open transaction of {self.name}")

    # --- operations ---------------------------------------------------------------------------

    def _operation(
        self, now: Instant, tx: str, action: Action, below: tuple[Step, ...]
    ) -> Operation:
        """An action with its id or event; names change for the transaction."""
        part = self._state.parts[tx]
        if isinstance(action, Publish | Trigger):
            _check_topic(action.topic)
            given = Publish(action.topic, action.attributes)
            event = self.event_of(now, given, self._names("advertisements", part))
            if isinstance(action, Trigger):
                return Operation("trigger", event=event, target=action.target, steps=below)
            return Operation("publish", event=event)
        self._check_free(action, tx)
        what = _named(action)
        names = self._names(what, part)
        if isinstance(action, Advertise | Subscribe):
            entry = self.new_entry(action.name, action.filter, names)
            part.begun[what][action.name] = entry
            self._state.closed[_key(what, action.name)] = tx
            kind = "advertise" if isinstance(action, Advertise) else "subscribe"
        else:
            if action.name not in names:
                raise UsageError(f"{self.name} has no {action.name!r} to end")
            entry = names[action.name]
            if part.begun[what].pop(action.name, None) is None:
                part.ended[what][action.name] = entry
                self._state.closed[_key(what, action.name)] = tx
            elif action.name not in part.ended[what]:
                del self._state.closed[_key(what, action.name)]
            kind = "unadvertise" if isinstance(action, Unadvertise) else "unsubscribe"
        return Operation(kind, entry.id, entry.filter)  # type: ignore[arg-type]

    def _names(self, what: str, part: Part) -> dict[str, Entry]:
        """The names as the transaction sees them."""
        known: dict[str, Entry] = getattr(self._state, what)
        if not part.begun[what] and not part.ended[what]:
            return known
        kept = {**known}
        for name in part.ended[what]:
            kept.pop(name, None)
        return {**kept, **part.begun[what]}

    def _check_free(self, action: Any, tx: str) -> None:
        """A name that an open transaction changes is closed to all others."""
        other = self._state.closed.get(_key(_named(action), action.name), tx)
        if other != tx:
            raise UsageError(
                f"{action.name!r} is being changed by the transaction {other}",
                hint="wait until it ends",
            )

    def _reopen(self, part: Part) -> None:
        """A transaction is over: its names are free again."""
        for changed in (part.begun, part.ended):
            for what, names in changed.items():
                for name in names:
                    self._state.closed.pop(_key(what, name), None)

    def _advance(self, tx: str, thread: str, cause: int, out: list[Effect]) -> None:
        """The next operation of a thread, or its end."""
        part = self._state.parts[tx]
        one = part.threads[thread]
        if one.busy or not part.opened:
            return
        if one.waiting:
            what = one.waiting.pop(0)
            one.count += 1
            one.busy = f"{thread}.{one.count}" if thread else str(one.count)
            self._send(Perform(tx, one.busy, what), cause, out)
            self._note(tx, one.busy, what, cause, out)
        elif one.ending and thread:
            del part.threads[thread]
            self._send(Performed(tx, thread, one.ran), cause, out)
        elif one.ending:
            message = Finished(tx) if one.ran else Refuse(tx, "refused: a trigger was not answered")
            self._send(message, cause, out)

    def _note(self, tx: str, op: str, what: Operation, cause: int, out: list[Effect]) -> None:
        said = what.id if what.event is None else what.event.id
        events = () if what.event is None else (what.event,)
        out.append(Note("does", "transaction", (tx, op, what.kind, said), events, cause))

    # --- messages -----------------------------------------------------------------------------

    def _check(self, source: str, message: Message) -> None:
        if source != self._broker:
            raise PeerError(f"{source} is not the broker of {self.name}")
        if not isinstance(message, TO_CLIENTS):
            super()._check(source, message)

    def _receive(self, now: Instant, message: Message, cause: int, out: list[Effect]) -> None:
        parts = self._state.parts
        match message:
            case Opened():
                if message.tx in parts:
                    parts[message.tx].opened = True
                    self._advance(message.tx, "", cause, out)
            case Performed():
                self._performed(message, cause, out)
            case Perform():
                self._triggered(now, message, cause, out)
            case Planned():
                self._planned(now, message, cause, out)
            case Ended():
                self._end(now, message, cause, out)
            case Notified():
                self._deliver(message.event, cause, out)
                self._send(NotificationTaken(message.tx, message.op), cause, out)
            case Recalled():
                self._recall(message)
            case _:
                super()._receive(now, message, cause, out)

    def _performed(self, message: Performed, cause: int, out: list[Effect]) -> None:
        part = self._state.parts.get(message.tx)
        thread = message.op.rpartition(".")[0]
        if part is None or thread not in part.threads:
            return
        one = part.threads[thread]
        if one.busy == message.op:
            one.busy = ""
            one.ran = one.ran and message.ran
            self._advance(message.tx, thread, cause, out)

    def _triggered(self, now: Instant, message: Perform, cause: int, out: list[Effect]) -> None:
        part = self._state.parts.setdefault(message.tx, _part())
        part.threads[message.op] = Thread([])
        assert message.what.event is not None
        about = {"transaction": message.tx, "thread": message.op}
        self._tell(now, TRIGGER, about, cause, out, message.what.event)

    def _planned(self, now: Instant, message: Planned, cause: int, out: list[Effect]) -> None:
        tx = message.tx
        self._state.parts.setdefault(tx, _part())
        planned: list[Effect] = []
        try:
            for step in message.steps:
                if _is_child(message.op, step.op):
                    below = tuple(one for one in message.steps if _is_below(step.op, one.op))
                    self._place(now, tx, step, below, cause, planned)
        except UsageError as error:  # nothing has left yet, and the abort undoes the names
            self._send(Refuse(tx, f"refused by {self.name}: {error.message}"), cause, out)
            return
        out += planned

    def _end(self, now: Instant, message: Ended, cause: int, out: list[Effect]) -> None:
        part = self._state.parts.pop(message.tx, None)
        if part is not None:
            self._reopen(part)
        if part is not None and message.committed:
            for what in ("advertisements", "subscriptions"):
                names = getattr(self._state, what)
                for name in part.ended[what]:
                    names.pop(name, None)
                names.update(part.begun[what])
        about = {
            "transaction": message.tx,
            "committed": message.committed,
            "reason": message.reason,
        }
        self._tell(now, OUTCOME, about, cause, out)
        self._send(EndTaken(message.tx), cause, out)

    def _tell(
        self,
        now: Instant,
        topic: str,
        about: dict[str, Any],
        cause: int,
        out: list[Effect],
        *events: Event,
    ) -> None:
        said = Event(topic, self.name, self.next_number(), now, about)
        self._state.position += 1
        out.append(Deliver((Delivery((said, *events), self._state.position),), cause))

    def _recall(self, message: Recalled) -> None:
        state = self._state
        for what in ("advertisements", "subscriptions"):
            names = getattr(state, what)
            for name in [n for n, entry in names.items() if entry.id in message.gone]:
                del names[name]
            names.update(by_name(self.name, getattr(message, what)))


def _part(*, coordinates: bool = False, opened: bool = True) -> Part:
    empty: dict[str, dict[str, Entry]] = {"advertisements": {}, "subscriptions": {}}
    other: dict[str, dict[str, Entry]] = {"advertisements": {}, "subscriptions": {}}
    return Part(coordinates, opened, {}, empty, other)


def _named(action: Any) -> str:
    return "advertisements" if isinstance(action, Advertise | Unadvertise) else "subscriptions"


def _key(what: str, name: str) -> str:
    return f"{what} {name}"


def _is_below(parent: str, op: str) -> bool:
    return op.startswith(f"{parent}.")


def _is_child(parent: str, op: str) -> bool:
    return op.rpartition(".")[0] == parent


def _check_topic(topic: str) -> None:
    if topic.startswith("$"):
        raise UsageError(f"{topic!r} is no topic for events", hint="topics do not begin with $")


class Triggered(msgspec.Struct, frozen=True):
    """A trigger that an application has to answer, by `Act`s and a `Return`."""

    transaction: str
    thread: str
    event: Event


def trigger_of(delivery: Delivery) -> Triggered | None:
    """The trigger that a delivery is, if it is one."""
    said = delivery.events[0]
    if said.topic != TRIGGER:
        return None
    about = said.attributes
    return Triggered(str(about["transaction"]), str(about["thread"]), delivery.events[1])


def outcome_of(delivery: Delivery) -> Outcome | None:
    """The outcome that a delivery is, if it is one."""
    said = delivery.events[0]
    if said.topic != OUTCOME:
        return None
    tx = str(said.attributes["transaction"])
    if said.attributes["committed"]:
        return Committed(tx)
    return Aborted(tx, str(said.attributes["reason"]))

"""Explain: why an event was, or was not, part of a relation.

Replays the events through the clear engine with an observer that writes down what happens to one
event: which predicate refused it, which relation took it, what removed it, or what it still waits
for. It knows no terminal: an account is a value, and `str()` of it is text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from concordant.correlate.engine import Engine, Key, Observer
from concordant.correlate.matching import Bound, Entry, fits, may_take
from concordant.correlate.plan import ConjunctionPlan, Part, Plan
from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.model.expression import attributes_of
from concordant.model.kind import Value
from concordant.model.predicate import Comparison, holds
from concordant.model.relation import Relation


class Refusal(msgspec.Struct, frozen=True):
    """A slot that would not take the event, with the first predicate that was false."""

    slot: str
    predicate: str
    values: dict[str, Value]

    def __str__(self) -> str:
        values = ", ".join(f"{name} is {_shown(value)}" for name, value in self.values.items())
        return f"as {self.slot}: '{self.predicate}' is false ({values})"


class Taken(msgspec.Struct, frozen=True):
    """A relation that took the event."""

    relation: str
    slot: str
    events: tuple[str, ...]

    def __str__(self) -> str:
        return f"taken as {self.slot} by relation {self.relation} ({', '.join(self.events)})"


class Wait(msgspec.Struct, frozen=True):
    """A slot the event could take, and the slots that no queued event can fill beside it."""

    slot: str
    missing: tuple[str, ...]
    predicates: tuple[str, ...]
    """What the events for the missing slots must satisfy."""

    def __str__(self) -> str:
        if not self.missing:
            return f"as {self.slot}: each other slot has a candidate, but not all at once"
        where = f" where {' and '.join(self.predicates)}" if self.predicates else ""
        return f"as {self.slot}: waits for {', '.join(self.missing)}{where}"


class Account(msgspec.Struct, kw_only=True):
    """What became of an event in one conjunction of one subscription."""

    subscription: str
    conjunction: int
    key: Key = ()
    outcome: str
    """One of `_OUTCOMES`."""
    consumer: str = ""
    """The relation, or part of a staged one, whose match removed the event."""
    taken: list[Taken] = []
    refusals: list[Refusal] = []
    waits: list[Wait] = []

    def __str__(self) -> str:
        where = f"{self.subscription}, conjunction {self.conjunction}"
        if self.key:
            where += f", partition {', '.join(map(_shown, self.key))}"
        lines: list[object] = [*self.taken]
        if not (self.taken and self.outcome == "consumed"):
            lines.append(_OUTCOMES[self.outcome].format(consumer=self.consumer))
        lines += [f"  {detail}" for detail in (*self.refusals, *self.waits)]
        return "\n".join([f"{where}:", *(f"  {line}" for line in lines)])


_OUTCOMES = {
    "refused": "not admitted: no slot of its topic takes it",
    "waiting": "admitted, and still queued at the end of the events",
    "consumed": "admitted, then removed unused by {consumer}",
    "too old": "admitted, then dropped: too old for 'within' before a match",
    "over the cap": "admitted, then dropped by a cap on queued events",
    "finished": "its part of the relation is matched and waits for the other parts",
}


def explain(
    plan: Plan, events: Iterable[Event], event_id: str, *, time_ordered: bool = True
) -> list[Account]:
    """One account per conjunction that asks for the event's topic; refuses an unknown id."""
    witness = _Witness(event_id)
    engine = Engine(plan, time_ordered=time_ordered, observer=witness)
    found = False
    for event in events:
        engine.step([event])
        found = found or event.id == event_id
    if not found and not witness.accounts:
        raise UsageError(
            f"no event has the id {event_id!r}",
            hint="an id is 'source:seq' unless the events have a column 'id'",
        )
    for _, conjunction, part, state in engine.waiting():
        account = witness.accounts.get((conjunction.subscription, conjunction.number))
        for entry in (e for queue in state.queues.values() for e in queue):
            if account is not None and entry.event.id == event_id:
                within_us = plan.by_name[conjunction.subscription].subscription.within_us
                account.waits = list(_waits(part, entry, state.queues, within_us))
    return list(witness.accounts.values())


class _Witness(Observer):
    """Writes down what happens to one event."""

    def __init__(self, event_id: str) -> None:
        self._id = event_id
        self._just_removed: Account | None = None
        self.accounts: dict[tuple[str, int], Account] = {}

    def _is_mine(self, entry: Entry) -> bool:
        return entry.event.id == self._id

    def refused(self, entry: Entry, conjunction: ConjunctionPlan) -> None:
        if self._is_mine(entry):
            part = conjunction.whole
            refusals = [
                _refusal(str(part.slots[i]), entry, part.unary[i])
                for i in part.slots_of_topic[entry.event.topic]
            ]
            name, number = conjunction.subscription, conjunction.number
            self.accounts[name, number] = Account(
                subscription=name, conjunction=number, outcome="refused", refusals=refusals
            )

    def admitted(self, entry: Entry, conjunction: ConjunctionPlan, key: Key) -> None:
        if self._is_mine(entry):
            name, number = conjunction.subscription, conjunction.number
            self.accounts[name, number] = Account(
                subscription=name, conjunction=number, key=key, outcome="waiting"
            )

    def finished(self, taken: Sequence[Entry], conjunction: ConjunctionPlan) -> None:
        if any(map(self._is_mine, taken)):
            self.accounts[conjunction.subscription, conjunction.number].outcome = "finished"
        ids = ", ".join(entry.event.id for entry in taken)
        self._name_consumer(f"the waiting part ({ids})")

    def removed(self, entry: Entry, conjunction: ConjunctionPlan, why: str) -> None:
        if self._is_mine(entry):
            account = self.accounts[conjunction.subscription, conjunction.number]
            account.outcome = why
            self._just_removed = account

    def _name_consumer(self, consumer: str) -> None:
        """What has just matched is what removed the event, if it was removed in this step."""
        if self._just_removed is not None and self._just_removed.outcome == "consumed":
            self._just_removed.consumer = consumer
        self._just_removed = None

    def delivered(
        self, taken: Sequence[Entry], conjunction: ConjunctionPlan, relation: Relation
    ) -> None:
        account = self.accounts.get((relation.subscription, relation.conjunction))
        if account is None or account.key != relation.key:
            return
        for slot, entry in zip(conjunction.whole.slots, taken, strict=True):
            if self._is_mine(entry):
                account.taken.append(Taken(relation.id, str(slot), relation.event_ids))
                if account.outcome == "finished":
                    account.outcome = "consumed"
                    account.consumer = f"relation {relation.id}"
        self._name_consumer(f"relation {relation.id}")


def _refusal(slot: str, entry: Entry, predicates: Sequence[Comparison]) -> Refusal:
    false = next(predicate for predicate in predicates if not holds(predicate, entry.read))
    reads = [a for side in (false.left, false.right) for a in attributes_of(side)]
    values = {attribute.name: entry.event.read(attribute.name) for attribute in reads}
    return Refusal(slot, str(false), values)


def _waits(
    part: Part, entry: Entry, queues: Mapping[str, Sequence[Entry]], within_us: int | None
) -> Iterator[Wait]:
    for slot in part.slots_of_topic[entry.event.topic]:
        if not fits(entry, part.unary[slot]):
            continue
        bound: Bound = [None] * len(part.slots)
        bound[slot] = entry
        missing = [
            other
            for other in range(len(part.slots))
            if other != slot
            and not any(
                may_take(part, other, one, bound, contiguous=False, within_us=within_us)
                for one in queues[part.slots[other].topic]
            )
        ]
        predicates = {
            str(predicate): None
            for other in missing
            for predicate in (
                *part.unary[other],
                *(p.predicate for p in part.binary[other] if slot in (p.left, p.right)),
            )
        }
        yield Wait(
            str(part.slots[slot]), tuple(str(part.slots[i]) for i in missing), tuple(predicates)
        )


def _shown(value: Value) -> str:
    return "null" if value is None else str(msgspec.json.encode(value).decode())

"""Basic safety of one process: nothing twice, nothing invented, nothing unasked.

Wilkin 2015, sections 2.2.3 and 4.2.5. Each function reads one run and finds the first violation.
"""

from __future__ import annotations

from collections.abc import Mapping

from concordant.check.run import Asked, Delivery, Run
from concordant.check.verdict import Verdict, Violation
from concordant.model.event import Event
from concordant.model.expression import Slot
from concordant.model.kind import Value
from concordant.model.predicate import holds


def no_duplication(run: Run) -> Verdict:
    """No event is in two relations of one conjunction at one process."""
    checked = 0
    for asked in run.asked:
        for delivery in asked.deliveries:
            for one in delivery.row.events:
                checked += 1
                before = asked.first[one]
                if before is not delivery:
                    return _twice("No Duplication", asked, one, before, delivery, checked)
    return Verdict("No Duplication", checked)


def no_duplication_in_a_slot(run: Run) -> Verdict:
    """No event is twice in the same slot of relations of one conjunction at one process."""
    checked = 0
    for asked in run.asked:
        seen: dict[tuple[int, str], Delivery] = {}
        for delivery in asked.deliveries:
            for slot, one in enumerate(delivery.row.events):
                checked += 1
                before = seen.setdefault((slot, one), delivery)
                if before is not delivery:
                    where = f" in {asked.slots[slot]}"
                    return _twice("No Duplication′", asked, one, before, delivery, checked, where)
    return Verdict("No Duplication′", checked)


def _twice(
    name: str,
    asked: Asked,
    one: str,
    before: Delivery,
    after: Delivery,
    checked: int,
    where: str = "",
) -> Verdict:
    sentence = f"{asked.process} delivered {one} twice{where}"
    return Verdict(name, checked, Violation(sentence, (one,), (before.row, after.row)))


def no_creation(run: Run) -> Verdict:
    """Every delivered event was published, and not after its delivery."""
    checked = 0
    for asked in run.asked:
        for delivery in asked.deliveries:
            row = delivery.row
            for one in row.events:
                checked += 1
                found = run.published.get(one)
                if found is None:
                    sentence = f"{asked.process} delivered {one}, which nobody published"
                    return Verdict("No Creation", checked, Violation(sentence, (one,), (row,)))
                same = found.row.process == row.process
                if found.place > delivery.place if same else found.row.time_us > row.time_us:
                    sentence = f"{asked.process} delivered {one} before it was published"
                    rows = (row, found.row)
                    return Verdict("No Creation", checked, Violation(sentence, (one,), rows))
    return Verdict("No Creation", checked)


def admission(run: Run) -> Verdict:
    """A relation answers a conjunction that its process asked for, and every predicate is true."""
    if run.strangers:
        row = run.strangers[0]
        sentence = f"{row.process} delivered for {row.subscription!r}, which it had not asked for"
        return Verdict("Admission", 1, Violation(sentence, row.events, (row,)))
    checked = 0
    for asked in run.asked:
        positions = run.positions(asked.process)
        for delivery in asked.deliveries:
            checked += 1
            wrong = _wrong(run, asked, delivery, positions)
            if wrong is not None:
                ids = delivery.row.events
                sentence = f"{asked.process} delivered ({', '.join(ids)}), and {wrong}"
                return Verdict("Admission", checked, Violation(sentence, ids, (delivery.row,)))
    return Verdict("Admission", checked)


def _wrong(run: Run, asked: Asked, delivery: Delivery, positions: Mapping[str, int]) -> str | None:
    """What is wrong with a relation; None if it is what was asked for."""
    if delivery.place < asked.place:
        return "it had not yet asked for it"
    found = [run.event(one) for one in delivery.row.events]
    events = [one for one in found if one is not None]
    if len(events) < len(found):
        return None  # not published: No Creation says so
    slots = asked.slots
    if [one.topic for one in events] != [slot.topic for slot in slots]:
        return f"the slots are {', '.join(map(str, slots))}"
    places = [positions[one.id] for one in events]
    for slot, place, following, after in zip(slots, places, slots[1:], places[1:], strict=False):
        if slot.topic == following.topic and place >= after:
            return f"{following} is not after {slot}"
    event_of = dict(zip(slots, events, strict=True))

    def read(slot: Slot, name: str) -> Value:
        event = event_of[slot]
        return positions[event.id] if name == "position" else event.read(name)

    for predicate in asked.conjunction.predicates:
        if not holds(predicate, read):
            return f"'{predicate}' is false of it"
    return _outside(asked, events)


def _outside(asked: Asked, events: list[Event]) -> str | None:
    question = asked.question
    for name in question.partition_by:
        if len({repr(one.read(name)) for one in events}) > 1:
            return f"its events differ in {name}"
    times = [one.time for one in events]
    if question.within_us is not None and max(times) - min(times) > question.within_us:
        return "its events are further apart than 'within' allows"
    return None

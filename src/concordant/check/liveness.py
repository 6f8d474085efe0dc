"""Validity: what must be delivered when the input goes on for ever.

Wilkin 2015, sections 2.2.3 and 4.2.5. An endless input is a prefix and then the same cycle again
and again; the run was continued until the state of its subscribers repeated, and `repeats_from_us`
says since when. What was not delivered in such a run never will be. The premises are about the
predicates and the partitions only: neither `contiguous` nor `within` nor a cap is part of the
question, so each of them can be the reason why validity is lost. Without a repeating part nothing
is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from concordant.check.run import Asked, Run, slots_of_conjunction
from concordant.check.verdict import Verdict, Violation
from concordant.model.event import Event
from concordant.model.expression import Slot
from concordant.model.kind import Value
from concordant.model.predicate import Predicate, holds
from concordant.model.subscription import Conjunction

Key = tuple[Value, ...]


def conjunction_validity(run: Run) -> Verdict:
    """Where matching events keep coming, relations keep being delivered."""
    name, since = "Conjunction Validity", run.repeats_from_us
    checked = 0
    for asked in run.asked if since is not None else ():
        assert since is not None
        delivers = any(one.row.time_us >= since for one in asked.deliveries)
        for streams in _repeated(run, asked).values():
            example = _relation(asked.conjunction, streams, run.positions(asked.process), {})
            if example is None:
                continue
            checked += 1
            if not delivers:
                ids = tuple(one.id for one in example)
                sentence = (
                    f"events like ({', '.join(ids)}) keep coming, "
                    f"and {asked.process} delivers nothing"
                )
                rows = tuple(run.published[one].row for one in ids)
                return Verdict(name, checked, Violation(sentence, ids, rows))
    return Verdict(name, checked)


def event_validity(run: Run) -> Verdict:
    """An event that needs no partner of its own is delivered while the others keep coming.

    It is judged as the first instance of its topic, if no binary predicate names that slot.
    """
    name = "Event Validity"
    checked = 0
    for asked in run.asked if run.repeats_from_us is not None else ():
        positions = run.positions(asked.process)
        repeated = _repeated(run, asked)
        for slot in asked.slots:
            if slot.instance > 1 or not is_free(asked.conjunction, slot):
                continue
            for event in _before(run, slot.topic):
                streams = repeated.get(_key(event, asked.question.partition_by), {})
                example = _relation(asked.conjunction, streams, positions, {slot: event})
                if example is None:
                    continue
                checked += 1
                if event.id not in asked.first:
                    sentence = (
                        f"{event.id} fits {slot} while all others keep coming, "
                        f"and {asked.process} never delivers it"
                    )
                    rows = tuple(run.published[one.id].row for one in example)
                    return Verdict(name, checked, Violation(sentence, (event.id,), rows))
    return Verdict(name, checked)


def _before(run: Run, topic: str) -> list[Event]:
    """The events of a topic that were published before the cycle: each is known by its id."""
    return [
        one.row.event
        for one in run.published.values()
        if one.topic == topic
        and one.row.time_us <= run.prefix_until_us
        and one.row.event is not None
    ]


def _repeated(run: Run, asked: Asked) -> dict[Key, dict[str, list[Event]]]:
    """The events that keep coming, by partition value and topic, as they arrive."""
    found: dict[Key, dict[str, list[Event]]] = {}
    assert run.repeats_from_us is not None
    for one in run.published.values():
        event = one.row.event
        if event is not None and one.row.time_us >= run.repeats_from_us:
            streams = found.setdefault(_key(event, asked.question.partition_by), {})
            streams.setdefault(event.topic, []).append(event)
    return found


def _key(event: Event, names: Sequence[str]) -> Key:
    return tuple(event.read(name) for name in names)


@lru_cache(maxsize=65_536)
def is_free(conjunction: Conjunction, slot: Slot) -> bool:
    """Does no predicate join the slot to another one?"""
    return all(len(p.slots) == 1 for p in conjunction.predicates if slot in p.slots)


@lru_cache(maxsize=65_536)
def decided_at(conjunction: Conjunction) -> tuple[tuple[Predicate, ...], ...]:
    """Per slot, the predicates that can be tested once it and all before it are bound."""
    slots = slots_of_conjunction(conjunction)
    return tuple(
        tuple(p for p in conjunction.predicates if max(map(slots.index, p.slots)) == i)
        for i in range(len(slots))
    )


def _relation(
    conjunction: Conjunction,
    streams: Mapping[str, Sequence[Event]],
    positions: Mapping[str, int],
    given: Mapping[Slot, Event],
) -> list[Event] | None:
    """Some combination of events that satisfies every predicate, whatever the policy."""
    slots = slots_of_conjunction(conjunction)
    decided = decided_at(conjunction)
    bound: dict[Slot, Event] = {}

    def read(slot: Slot, name: str) -> Value:
        event = bound[slot]
        return positions[event.id] if name == "position" else event.read(name)

    def extend(i: int) -> bool:
        if i == len(slots):
            return True
        slot = slots[i]
        before = bound[slots[i - 1]] if slot.instance > 1 else None
        for event in (given[slot],) if slot in given else streams.get(slot.topic, ()):
            if before is not None and positions[event.id] <= positions[before.id]:
                continue
            bound[slot] = event
            if all(holds(predicate, read) for predicate in decided[i]) and extend(i + 1):
                return True
            del bound[slot]
        return False

    return [bound[slot] for slot in slots] if extend(0) else None

"""Agreement of several processes about relations.

Wilkin 2015, sections 2.2.3 and 2.4.2. A finite run is judged at its end: what a process has not
delivered by then counts as never delivered, so the run must have come to rest. Processes that
crashed owe nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from concordant.check.run import Asked, Run, slots_of_conjunction
from concordant.check.verdict import Verdict, Violation
from concordant.model.subscription import Conjunction


def conjunction_agreement(run: Run) -> Verdict:
    """Processes that ask for the same conjunction deliver the same relations."""
    checked = 0
    for group in run.by_identity:
        for one in group:
            for other in group:
                if one.process == other.process or other.process in run.crashed:
                    continue
                checked += len(one.deliveries)
                missing = _missing(one, other, len(one.slots))
                if missing is not None:
                    return Verdict("Conjunction Agreement", checked, missing)
    return Verdict("Conjunction Agreement", checked)


def covering_agreement(run: Run) -> Verdict:
    """A process that asks for more topics beside a conjunction delivers its relations, extended."""
    checked = 0
    for longer in run.asked:
        for shorter in run.asked:
            if shorter.process == longer.process or shorter.process in run.crashed:
                continue
            if shorter.terms != longer.terms:
                continue
            if not extends(longer.conjunction, shorter.conjunction):
                continue
            checked += len(longer.deliveries)
            missing = _missing(longer, shorter, len(shorter.slots))
            if missing is not None:
                return Verdict("Covering Agreement", checked, missing)
    return Verdict("Covering Agreement", checked)


def _missing(one: Asked, other: Asked, count: int) -> Violation | None:
    """A relation of one, cut to its first slots, that the other did not deliver."""
    known = other.relations
    for ids, delivery in one.beginnings(count).items():
        if ids not in known:
            sentence = (
                f"{one.process} delivered ({', '.join(delivery.row.events)}), "
                f"but {other.process} never delivered ({', '.join(ids)})"
            )
            rows = (delivery.row, *(mine.row for mine in other.deliveries))
            return Violation(sentence, ids, rows)
    return None


# --- conjunctions that begin alike ----------------------------------------------------------------


@lru_cache(maxsize=65_536)
def extends(longer: Conjunction, shorter: Conjunction) -> bool:
    """Is one conjunction the other with independent topics added to the right?"""
    count = len(slots_of_conjunction(shorter))
    return count < len(slots_of_conjunction(longer)) and count in common_beginnings(longer, shorter)


@lru_cache(maxsize=65_536)
def common_beginnings(one: Conjunction, other: Conjunction) -> tuple[int, ...]:
    """How many first slots form a conjunction of their own, the same in both; shortest first.

    They are the slots of the first topics in topic order, no predicate joins them to the others,
    and both conjunctions say the same about them ("extended to the right", Wilkin 2015, 2.4.2).
    """
    return tuple(count for count, _ in sorted({*_beginnings(one)} & {*_beginnings(other)}))


def _beginnings(conjunction: Conjunction) -> Iterator[tuple[int, str]]:
    """Each independent beginning: the number of its slots, and its canonical text."""
    topics: set[str] = set()
    count = 0
    for topic, instances in conjunction.instances.items():
        topics.add(topic)
        count += instances
        inside, across = [], False
        for predicate in conjunction.predicates:
            named = {slot.topic for slot in predicate.slots}
            if named <= topics:
                inside.append(str(predicate))
            elif named & topics:
                across = True
        if not across:
            yield count, " and ".join(sorted(inside))

"""Order of deliveries: total, first in first out, local and causal, per topic and per relation.

Wilkin 2015, sections 2.6.1 and 2.7. An event's first delivery counts, which matters under `slide`
only. Type Total Order is read as "not (earlier here and later there)": the printed equivalence
fails whenever one process delivers two events in one relation and another in two. Two subscribers
are compared under the same policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Generic, NamedTuple, TypeVar

from concordant.check.agreement import common_beginnings
from concordant.check.run import Asked, Run
from concordant.check.verdict import Verdict, Violation
from concordant.model.history import Row

_T = TypeVar("_T")

Ids = tuple[str, ...]


class Pair(NamedTuple, Generic[_T]):
    """The same thing at two places: by one order, and by another."""

    one: int
    other: int
    what: _T


def crossing(pairs: Iterable[Pair[_T]]) -> tuple[_T, _T] | None:
    """Two things of which the first comes earlier by one order and later by the other.

    >>> crossing([Pair(1, 1, "a"), Pair(2, 5, "b"), Pair(3, 4, "c")])
    ('b', 'c')
    """
    highest: Pair[_T] | None = None
    waiting: list[Pair[_T]] = []  # at the same place as the last one: not earlier than it
    for pair in sorted(pairs, key=lambda pair: pair[:2]):
        if waiting and waiting[0].one < pair.one:
            highest = max([*waiting, *([highest] if highest else [])], key=lambda p: p.other)
            waiting = []
        if highest is not None and pair.other < highest.other:
            return highest.what, pair.what
        waiting.append(pair)
    return None


# --- total order ----------------------------------------------------------------------------------


def type_total_order(run: Run) -> Verdict:
    """No two processes deliver two events of one topic in opposite orders."""
    checked = 0
    for one, other in _pairs(run):
        if one.question.policy != other.question.policy:
            continue
        by_topic: dict[str, list[Pair[Ids]]] = {}
        for event_id, delivery in one.first.items():
            there = other.first.get(event_id)
            if there is not None and event_id in run.published:
                by_topic.setdefault(run.published[event_id].topic, []).append(
                    Pair(delivery.place, there.place, (event_id,))
                )
        for pairs in by_topic.values():
            checked += len(pairs) - 1
            found = crossing(pairs)
            if found is not None:
                rows = [asked.first[what[0]].row for asked in (one, other) for what in found]
                return Verdict("Type Total Order", checked, _opposite(one, other, found, rows))
    return Verdict("Type Total Order", checked)


def conjunction_total_order(run: Run) -> Verdict:
    """Relations of a conjunction are delivered in one order, also where it is extended."""
    checked = 0
    for one, other in _pairs(run):
        if one.terms != other.terms:
            continue
        for count in common_beginnings(one.conjunction, other.conjunction):
            mine, theirs = one.beginnings(count), other.beginnings(count)
            pairs = [
                Pair(delivery.place, theirs[ids].place, ids)
                for ids, delivery in mine.items()
                if ids in theirs
            ]
            checked += max(0, len(pairs) - 1)
            found = crossing(pairs)
            if found is not None:
                rows = [side[ids].row for side in (mine, theirs) for ids in found]
                violation = _opposite(one, other, found, rows)
                return Verdict("Conjunction Total Order", checked, violation)
    return Verdict("Conjunction Total Order", checked)


def disjunction_total_order(run: Run) -> Verdict:
    """Relations of the conjunctions of a disjunction are delivered in one order everywhere."""
    checked = 0
    for mine, theirs in combinations(run.by_process.values(), 2):
        pairs = [
            Pair(delivery.place, other.relations[ids].place, (one, other, ids))
            for one in mine
            for other in theirs
            if one.identity == other.identity
            for ids, delivery in one.relations.items()
            if ids in other.relations
        ]
        checked += max(0, len(pairs) - 1)
        found = crossing(pairs)
        if found is not None:
            rows = [one.relations[ids].row for one, _, ids in found]
            rows += [other.relations[ids].row for _, other, ids in found]
            what = (found[0][2], found[1][2])
            violation = _opposite(mine[0], theirs[0], what, rows)
            return Verdict("Disjunction Total Order", checked, violation)
    return Verdict("Disjunction Total Order", checked)


def _pairs(run: Run) -> Iterator[tuple[Asked, Asked]]:
    for one, other in combinations(run.asked, 2):
        if one.process != other.process:
            yield one, other


def _opposite(one: Asked, other: Asked, found: tuple[Ids, Ids], rows: list[Row]) -> Violation:
    first, second = (ids[0] if len(ids) == 1 else f"({', '.join(ids)})" for ids in found)
    sentence = (
        f"{one.process} delivered {first} before {second}, {other.process} the other way round"
    )
    return Violation(sentence, (*found[0], *found[1]), tuple(rows))


# --- first in first out, local and causal ---------------------------------------------------------


def type_fifo_order(run: Run) -> Verdict:
    """Two events of one topic and one source are not delivered against the order of publishing."""
    return fifo(run, "Type FIFO Order", per_topic=True)


def type_local_order(run: Run) -> Verdict:
    """What a process publishes after a delivery is not delivered elsewhere before the delivered."""
    return local(run, "Type Local Order", per_topic=True)


def type_causal_order(run: Run) -> Verdict:
    """Type FIFO Order and Type Local Order."""
    both = (type_fifo_order(run), type_local_order(run))
    found = next((one.violation for one in both if one.violation), None)
    return Verdict("Type Causal Order", sum(one.checked for one in both), found)


def fifo(run: Run, name: str, *, per_topic: bool) -> Verdict:
    """First in first out per source, among the events of one topic or of all."""
    checked = 0
    for asked in run.asked:
        groups: dict[tuple[str, str], list[Pair[str]]] = {}
        for event_id, delivery in asked.first.items():
            published = run.published.get(event_id)
            if published is not None:
                topic = published.topic if per_topic else ""
                groups.setdefault((published.row.process, topic), []).append(
                    Pair(published.place, delivery.place, event_id)
                )
        for (source, _), pairs in groups.items():
            checked += len(pairs) - 1
            found = crossing(pairs)
            if found is not None:
                first, second = found
                sentence = (
                    f"{source} published {first} before {second}, and {asked.process} delivered "
                    f"{second} before {first}"
                )
                rows = (
                    run.published[first].row,
                    run.published[second].row,
                    asked.first[second].row,
                    asked.first[first].row,
                )
                return Verdict(name, checked, Violation(sentence, (first, second), rows))
    return Verdict(name, checked)


def local(run: Run, name: str, *, per_topic: bool) -> Verdict:
    """A delivery before a publication, among the events of one topic or of all."""
    checked = 0
    written: dict[str, list[str]] = {}
    for event_id, publication in run.published.items():
        written.setdefault(publication.row.process, []).append(event_id)
    for here in run.asked:
        for there in run.asked if here.process in written else ():
            if here.process == there.process or here.question.policy != there.question.policy:
                continue
            groups: dict[str, list[tuple[int, bool, str]]] = {}
            for event_id, delivery in here.first.items():
                if event_id in there.first and event_id in run.published:
                    topic = run.published[event_id].topic if per_topic else ""
                    groups.setdefault(topic, []).append((delivery.place, False, event_id))
            for event_id in written[here.process]:
                if event_id in there.first:
                    topic = run.published[event_id].topic if per_topic else ""
                    place = run.published[event_id].place
                    groups.setdefault(topic, []).append((place, True, event_id))
            for steps in groups.values():
                latest = ""
                for _, is_publication, event_id in sorted(steps):
                    place = there.first[event_id].place
                    if not is_publication:
                        if not latest or place > there.first[latest].place:
                            latest = event_id
                    elif latest:
                        checked += 1
                        if place < there.first[latest].place:
                            violation = _local_violation(run, here, there, latest, event_id)
                            return Verdict(name, checked, violation)
    return Verdict(name, checked)


def _local_violation(run: Run, here: Asked, there: Asked, first: str, second: str) -> Violation:
    sentence = (
        f"{here.process} delivered {first} and then published {second}, and {there.process} "
        f"delivered {second} before {first}"
    )
    rows = (
        here.first[first].row,
        run.published[second].row,
        there.first[second].row,
        there.first[first].row,
    )
    return Violation(sentence, (first, second), rows)

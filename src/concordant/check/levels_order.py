"""In which order things are delivered: per source, causal, one order for all, honest tags.

Only deliveries that claim to be in order are judged; one that says it is out of order is asked
whether it really is. The check of one order for all is linear: it joins what every process saw and
looks for a circle. Only if there is one are processes compared pair by pair, and only on the events
of circles, because a circle through three of them breaks no promise that is made to two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from concordant.check.levels_index import Delivered, Item, Process, Publication, Seen
from concordant.check.verdict import Verdict, Violation
from concordant.model.history import Row

_BLOCK = 256
"""Sources whose causal pasts are worked out at a time: bounds the memory to events × this."""


def fifo(index: Seen) -> Verdict:
    """Events of one source and topic are delivered in the order of their publication."""
    checked = 0
    for process in index.processes.values():
        last: dict[tuple[str, str], Delivered] = {}
        for one in process.in_order:
            publication = index.published.get(one.row.events[0])
            if one.row.conjunction or publication is None:
                continue
            checked += 1
            key = (publication.row.process, one.row.topics[0])
            before = last.get(key)
            if before is not None:
                earlier = index.published[before.row.events[0]]
                if earlier.topic_number > publication.topic_number:
                    sentence = (
                        f"{process.name} delivered {one.item} after {before.item}, which "
                        f"{key[0]} published later"
                    )
                    shown = (publication.row, earlier.row, before.row, one.row)
                    return _violated("FIFO", checked, sentence, before, one, shown)
            last[key] = one
    return Verdict("FIFO", checked)


def causal(index: Seen) -> Verdict:
    """If one event may have caused another, nobody delivers the effect first.

    The truth is taken from the history: an event is caused by whatever its publisher had published
    or delivered before.
    """
    sources = {name: number for number, name in enumerate(index.processes)}
    order = list(_causal_order(index))
    checked = sum(
        1 for _, step in order if isinstance(step, Delivered) and not step.row.conjunction
    )
    for first in range(0, max(1, len(sources)), _BLOCK):
        violation = _causal_block(index, order, sources, first)
        if violation is not None:
            return Verdict("Causal", checked, violation)
    return Verdict("Causal", checked)


def _causal_order(index: Seen) -> Iterator[tuple[Process, Publication | Delivered]]:
    """All steps, each process in its order, and no delivery before the publication."""
    waiting: dict[str, list[Process]] = {}
    next_step = dict.fromkeys(index.processes, 0)
    published: set[str] = set()
    todo = deque(index.processes.values())
    while todo:
        process = todo.popleft()
        while next_step[process.name] < len(process.steps):
            step = process.steps[next_step[process.name]]
            if isinstance(step, Delivered):
                missing = [
                    one
                    for one in step.row.events
                    if one in index.published and one not in published
                ]
                if missing:
                    waiting.setdefault(missing[0], []).append(process)
                    break
            else:
                published.add(step.row.events[0])
                todo.extend(waiting.pop(step.row.events[0], ()))
            next_step[process.name] += 1
            yield process, step


def _causal_block(
    index: Seen,
    order: Sequence[tuple[Process, Publication | Delivered]],
    sources: dict[str, int],
    first: int,
) -> Violation | None:
    width = min(_BLOCK, len(sources) - first)
    zero = np.zeros(width, dtype=np.int32)
    past: dict[str, np.ndarray] = {}
    knows = {name: zero.copy() for name in sources}
    seen = {name: zero.copy() for name in sources}
    """What lies in the past of anything that the process delivered in order."""
    had: dict[str, set[str]] = {name: set() for name in sources}
    for process, step in order:
        here = knows[process.name]
        if isinstance(step, Publication):
            column = sources[process.name] - first
            if 0 <= column < width:
                here[column] = step.number
            past[step.row.events[0]] = here.copy()
            continue
        event = step.row.events[0]
        if step.row.conjunction or event not in past:
            continue
        publication = index.published[event]
        column = sources[publication.row.process] - first
        if step.row.in_order and event not in had[process.name]:
            if 0 <= column < width and seen[process.name][column] >= publication.number:
                return _causal_story(index, process, step, publication, past, column)
            had[process.name].add(event)
            np.maximum(seen[process.name], past[event], out=seen[process.name])
        np.maximum(here, past[event], out=here)
    return None


def _causal_story(
    index: Seen,
    process: Process,
    late: Delivered,
    cause: Publication,
    past: dict[str, np.ndarray],
    column: int,
) -> Violation:
    effect = next(
        one
        for one in process.in_order
        if one.row.events[0] in past and past[one.row.events[0]][column] >= cause.number
    )
    publication = index.published[effect.row.events[0]]
    sentence = (
        f"{process.name} delivered {effect.item} before {late.item}, which may have caused it"
    )
    rows = (cause.row, publication.row, effect.row, late.row)
    return Violation(sentence, (*late.row.events, *effect.row.events), rows)


# --- one order for all ----------------------------------------------------------------------------


def total(index: Seen, *, strict: bool) -> Verdict:
    """Any two processes deliver what both deliver in the same order.

    Not strict: a pair of events counts at a process only if it held both topics when it delivered
    at least one of them (Baldoni 2011 with subscriptions that change at run time).
    """
    name = "Total Order, strict" if strict else "Total Order"
    sequences = [(process, process.in_order) for process in index.subscribers]
    return _one_order(name, sequences, strict=strict)


def relation_order(index: Seen) -> Verdict:
    """Any two processes deliver the relations that both deliver in the same order, whatever other
    subscriptions they have (Wilkin 2015, Disjunction Total Order)."""
    sequences = [
        (process, [one for one in process.in_order if one.row.conjunction])
        for process in index.subscribers
    ]
    return _one_order("Relation Order", sequences, strict=True)


def _one_order(
    name: str, sequences: Sequence[tuple[Process, list[Delivered]]], *, strict: bool
) -> Verdict:
    checked = sum(len(sequence) for _, sequence in sequences)
    circles = _in_circles([sequence for _, sequence in sequences])
    if not circles:
        return Verdict(name, checked)
    shortened = [
        (process, [one for one in sequence if one.item in circles])
        for process, sequence in sequences
    ]
    for (p, mine), (q, theirs) in combinations(shortened, 2):
        found = _inverted(mine, theirs, strict=strict)
        if found is not None:
            (a, b), (c, d) = found
            sentence = (
                f"{p.name} delivered {_text(a)} before {_text(b)}, "
                f"{q.name} delivered {_text(b)} before {_text(a)}"
            )
            rows = (a.row, b.row, c.row, d.row)
            return _violated(name, checked, sentence, a, b, rows)
    return Verdict(name, checked)


def _in_circles(sequences: Sequence[Sequence[Delivered]]) -> set[Item]:
    """Items that lie on, or between, circles of the joined orders; empty if there is one order."""
    after: dict[Item, list[Item]] = {}
    before: dict[Item, list[Item]] = {}
    for sequence in sequences:
        for one, other in pairwise(sequence):
            after.setdefault(one.item, []).append(other.item)
            before.setdefault(other.item, []).append(one.item)
    return _unsorted(after, before) & _unsorted(before, after)


def _unsorted(after: dict[Item, list[Item]], before: dict[Item, list[Item]]) -> set[Item]:
    """What cannot be put into an order that follows `after`."""
    count = {item: len(befores) for item, befores in before.items()}
    ready = [item for item in after if item not in count]
    while ready:
        for item in after.get(ready.pop(), ()):
            count[item] -= 1
            if not count[item]:
                del count[item]
                ready.append(item)
    return set(count)


Pair = tuple[Delivered, Delivered]


def _inverted(
    mine: Sequence[Delivered], theirs: Sequence[Delivered], *, strict: bool
) -> tuple[Pair, Pair] | None:
    """Two items in one order here and in the other there; both pairs as they were delivered."""
    place = {one.item: number for number, one in enumerate(mine)}
    common = [one for one in theirs if one.item in place]
    if strict:
        for c, d in pairwise(common):
            if place[c.item] > place[d.item]:
                return (mine[place[d.item]], mine[place[c.item]]), (c, d)
        return None
    for number, d in enumerate(common):
        for c in common[:number]:
            if place[c.item] > place[d.item]:
                a, b = mine[place[d.item]], mine[place[c.item]]
                if _held_together(a, b) and _held_together(c, d):
                    return (a, b), (c, d)
    return None


def _held_together(one: Delivered, other: Delivered) -> bool:
    topics = {*one.row.topics, *other.row.topics}
    return any(held is None or topics <= held for held in (one.held, other.held))


def agreed(index: Seen) -> Verdict:
    """Processes with the same subscription deliver the same relations in the same order.

    From the first relation on that both have: whoever joined later has missed what was before. Who
    has left meanwhile, and joined again, counts as another.
    """
    checked = 0
    groups: dict[str, list[tuple[Process, list[Delivered]]]] = {}
    for process in index.subscribers:
        by_name: dict[tuple[str, int], list[Delivered]] = {}
        for one in process.in_order:
            if one.row.conjunction:
                by_name.setdefault((one.row.subscription, one.spell), []).append(one)
        for (name, _), sequence in by_name.items():
            groups.setdefault(name, []).append((process, sequence))
    for group in groups.values():
        for (p, mine), (q, theirs) in pairwise(group):
            checked += min(len(mine), len(theirs))
            differs = _first_difference(mine, theirs)
            if differs is not None:
                a, b = differs
                sentence = f"{p.name} delivered {_text(a)} where {q.name} delivered {_text(b)}"
                return _violated("Agreed", checked, sentence, a, b, (a.row, b.row))
    return Verdict("Agreed", checked)


def _first_difference(mine: Sequence[Delivered], theirs: Sequence[Delivered]) -> Pair | None:
    there = {one.item for one in theirs}
    here = {one.item for one in mine}
    start = next((i for i, one in enumerate(mine) if one.item in there), len(mine))
    other = next((i for i, one in enumerate(theirs) if one.item in here), len(theirs))
    for a, b in zip(mine[start:], theirs[other:], strict=False):
        if a.item != b.item:
            return a, b
    return None


# --- honest tags ----------------------------------------------------------------------------------


def tags(index: Seen) -> Verdict:
    """A delivery that says it is out of order comes after something that it belongs before.

    It can only come so late because the process had stopped waiting for somebody. The tag is wrong
    if it is on the first delivery of all, or if somebody delivered in order everything that was
    delivered here before, and it only then. Where nobody saw as much, there is nothing to hold
    against the tag.
    """
    places = {
        process.name: {one.item: number for number, one in enumerate(process.in_order)}
        for process in index.subscribers
    }
    checked = 0
    for process in index.subscribers:
        before: list[Delivered] = []
        for one in process.deliveries:
            if one.row.in_order:
                before.append(one)
                continue
            checked += 1
            sentence = ""
            if not one.doubted:
                sentence = (
                    f"{process.name} delivered {_text(one)} out of order, but it had not given up "
                    "waiting for anybody"
                )
            elif not before:
                sentence = f"{process.name} delivered {_text(one)}, its first, as out of order"
            for name, found in places.items():
                at = found.get(one.item, -1)
                if all(found.get(earlier.item, at) < at for earlier in before) and not sentence:
                    sentence = (
                        f"{process.name} delivered {_text(one)} as out of order, but {name} "
                        "delivered it after the same events and in order"
                    )
            if sentence:
                return _violated("Tags", checked, sentence, one, one, (one.row,))
    return Verdict("Tags", checked)


def _text(one: Delivered) -> str:
    return one.item if isinstance(one.item, str) else f"({', '.join(one.row.events)})"


def _violated(
    name: str,
    checked: int,
    sentence: str,
    one: Delivered,
    other: Delivered,
    rows: tuple[Row, ...],
) -> Verdict:
    events = tuple(dict.fromkeys((*one.row.events, *other.row.events)))
    return Verdict(name, checked, Violation(sentence, events, rows))

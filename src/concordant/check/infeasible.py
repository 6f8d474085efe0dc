"""Properties that the thesis names and no policy keeps: they are checked to show why.

Wilkin 2015, sections 2.6.1 and 2.7: total order across extended conjunctions of a disjunction, and
first-in-first-out and local order between events of different topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from concordant.check.agreement import extends
from concordant.check.orders import Pair, crossing, fifo, local
from concordant.check.run import Asked, Run
from concordant.check.verdict import Verdict, Violation


def conjunction_fifo_order(run: Run) -> Verdict:
    """Two events of one source are not delivered against the order of publishing."""
    return fifo(run, "Conjunction FIFO Order", per_topic=False)


def conjunction_local_order(run: Run) -> Verdict:
    """Local order between events of any topics."""
    return local(run, "Conjunction Local Order", per_topic=False)


def junction_total_order(run: Run) -> Verdict:
    """Relations of a disjunction are delivered in one order, also where others extend them."""
    checked = 0
    for mine, theirs in permutations(run.by_process.values(), 2):
        pairs = [Pair(one, other, what) for what, one, other in _shared(mine, theirs)]
        checked += max(0, len(pairs) - 1)
        found = crossing(pairs)
        if found is not None:
            (_, first), (_, second) = found
            sentence = (
                f"{mine[0].process} delivered ({', '.join(first)}) before ({', '.join(second)}), "
                f"{theirs[0].process}, which extends both, the other way round"
            )
            violation = Violation(sentence, (*first, *second))
            return Verdict("Junction Total Order", checked, violation)
    return Verdict("Junction Total Order", checked)


def _shared(
    mine: list[Asked], theirs: list[Asked]
) -> Iterator[tuple[tuple[object, tuple[str, ...]], int, int]]:
    """Relations of one process that another delivered as the beginning of longer ones."""
    for one in mine:
        for other in theirs:
            if one.terms == other.terms and extends(other.conjunction, one.conjunction):
                longer = other.beginnings(len(one.slots))
                for ids, delivery in one.relations.items():
                    if ids in longer:
                        yield (one.identity, ids), delivery.place, longer[ids].place

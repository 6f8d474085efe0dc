"""The properties by name: what each says in one sentence, and the function that checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from concordant.check import agreement, infeasible, liveness, orders, safety
from concordant.check.run import Run
from concordant.check.verdict import Verdict


@dataclass(frozen=True)
class Property:
    """A promise about deliveries."""

    name: str
    meaning: str
    check: Callable[[Run], Verdict]
    is_liveness: bool = False
    """Judged on runs whose state repeats."""


PROPERTIES = {
    one.name: one
    for one in (
        Property(
            "No Duplication", "an event is delivered once per conjunction", safety.no_duplication
        ),
        Property(
            "No Duplication′",
            "an event is delivered once per slot of a conjunction",
            safety.no_duplication_in_a_slot,
        ),
        Property("No Creation", "only published events are delivered", safety.no_creation),
        Property("Admission", "every relation satisfies what was asked for", safety.admission),
        Property(
            "Conjunction Validity",
            "while matching events keep coming, relations keep being delivered",
            liveness.conjunction_validity,
            is_liveness=True,
        ),
        Property(
            "Event Validity",
            "an event that needs no partner of its own is delivered while the others keep coming",
            liveness.event_validity,
            is_liveness=True,
        ),
        Property(
            "Conjunction Agreement",
            "subscribers with the same conjunction deliver the same relations",
            agreement.conjunction_agreement,
        ),
        Property(
            "Covering Agreement",
            "a subscriber who adds topics delivers the same relations, extended",
            agreement.covering_agreement,
        ),
        Property(
            "Type Total Order",
            "no two subscribers deliver two events of a topic in opposite orders",
            orders.type_total_order,
        ),
        Property(
            "Conjunction Total Order",
            "relations come in one order, also for subscribers who add topics",
            orders.conjunction_total_order,
        ),
        Property(
            "Disjunction Total Order",
            "relations of all branches of an 'or' come in one order for everybody",
            orders.disjunction_total_order,
        ),
        Property(
            "Type FIFO Order",
            "events of one topic and source are delivered as they were published",
            orders.type_fifo_order,
        ),
        Property(
            "Type Local Order",
            "what is published after a delivery is not delivered before it, per topic",
            orders.type_local_order,
        ),
        Property(
            "Type Causal Order",
            "Type FIFO Order and Type Local Order together",
            orders.type_causal_order,
        ),
    )
}
"""Every property that a subscription can keep, in the order in which they are shown."""

INFEASIBLE = {
    one.name: one
    for one in (
        Property(
            "Junction Total Order",
            "one order across the branches of an 'or' and their extensions",
            infeasible.junction_total_order,
        ),
        Property(
            "Conjunction FIFO Order",
            "events of one source are delivered as they were published, across topics",
            infeasible.conjunction_fifo_order,
        ),
        Property(
            "Conjunction Local Order",
            "what is published after a delivery is not delivered before it, across topics",
            infeasible.conjunction_local_order,
        ),
    )
}
"""Properties that the thesis names as out of reach; no policy keeps them."""


def verdicts(run: Run, names: Iterable[str] = tuple(PROPERTIES)) -> list[Verdict]:
    """What a run shows about properties."""
    return [(PROPERTIES.get(name) or INFEASIBLE[name]).check(run) for name in names]

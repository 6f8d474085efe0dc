"""Small random subscriptions under a policy: the questions on which the table is tested.

Topics A and B, one attribute `a`, few and weak predicates: enough for every counterexample of the
table, and small enough to be read. Chance comes in as a seeded generator.
"""

from __future__ import annotations

from random import Random

from concordant.model.expression import Attribute, Constant, Expression, Slot
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison, Predicate, Wildcard, conjunction_of
from concordant.model.subscription import Conjunction, Policy, Subscription

SLOT_COUNT_MAX = 4


def draw_conjunction(rng: Random) -> Conjunction:
    """One or two topics, up to four slots, up to two comparisons."""
    names = rng.choice((("A",), ("B",), ("A", "B"), ("A", "B"), ("A", "B")))
    slots: list[Slot] = []
    for name in names:
        count = rng.choice((1, 1, 1, 2, 2, 3))
        slots += [Slot(name, i + 1) for i in range(count)]
    slots = slots[:SLOT_COUNT_MAX]
    predicates: list[Predicate] = [Wildcard(slot) for slot in slots]
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        predicates.append(_comparison(rng, slots))
    return Conjunction(conjunction_of(predicates))


def _comparison(rng: Random, slots: list[Slot]) -> Comparison:
    op = rng.choice(("=", "=", "<", ">", "<=", ">=", "!="))
    if len(slots) == 1 or rng.random() < 0.35:
        value: Expression = Constant(rng.choice((0, 1)), Kind.INT)
        return Comparison(op, Attribute(rng.choice(slots), "a"), value)
    one, other = rng.sample(slots, 2)
    if one.topic != other.topic and rng.random() < 0.15:
        return Comparison("<", Attribute(one, "position"), Attribute(other, "position"))
    return Comparison(op, Attribute(one, "a"), Attribute(other, "a"))


def draw_subscription(rng: Random, policy: Policy) -> Subscription:
    """One conjunction, or now and then a disjunction of two, under a policy."""
    first = draw_conjunction(rng)
    found = {first.canonical: first}
    if rng.random() < 0.2:
        second = draw_conjunction(rng)
        found.setdefault(second.canonical, second)
    return Subscription("p1", tuple(found.values()), policy)

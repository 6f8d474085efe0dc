"""Formulas and their disjunctive normal form.

A formula is any nesting of and, or, not over predicates; a subscription needs a disjunction of
conjunctions. Negation is pushed inwards by turning operators round, then `and` is distributed over
`or`, left to right, so conjunctions are numbered as they are written. Nothing here knows text.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from concordant.errors import UsageError
from concordant.model.expression import Attribute, Slot
from concordant.model.predicate import (
    NEGATED,
    Comparison,
    Predicate,
    Wildcard,
    conjunction_of,
    normalised,
)
from concordant.model.subscription import CONJUNCTION_COUNT_MAX, Conjunction

NESTING_DEPTH_MAX = 100
"""Levels of nesting in one formula: nobody reads more, and the walk below is recursive."""

PREDICATE_COUNT_MAX = 1_000
"""Predicates in one conjunction: each is tested inside the search for a match."""

_MASK_BIT_COUNT_MAX = 100_000
"""Different predicates in one formula; it bounds the bit masks that stand for sets of them."""


class And(msgspec.Struct, frozen=True):
    """All of the items hold."""

    items: tuple[Formula, ...]


class Or(msgspec.Struct, frozen=True):
    """At least one of the items holds."""

    items: tuple[Formula, ...]


class Not(msgspec.Struct, frozen=True):
    """The item does not hold; a comparison with a null does not hold either way."""

    item: Formula


Formula = And | Or | Not | Wildcard | Comparison


def joined(kind: type[And] | type[Or], *parts: Formula) -> Formula:
    """The parts joined by `And` or `Or`, flat where a part is already joined by the same."""
    items: list[Formula] = []
    for part in parts:
        items += part.items if isinstance(part, kind) else (part,)
    return kind(tuple(items))


def sequence(slots: Iterable[Slot]) -> Formula:
    """`A then B then C`: each slot's event stands before the next one's in the total order."""
    chain = tuple(slots)
    steps: list[Formula] = []
    for earlier, later in pairwise(chain):
        if earlier == later:
            raise UsageError(
                f"'{earlier} then {later}' puts an event before itself",
                hint=f"number the instances: {Slot(earlier.topic, 1)} then {Slot(later.topic, 2)}",
            )
        left, right = Attribute(earlier, "position"), Attribute(later, "position")
        steps.append(normalised(Comparison("<", left, right)))
    return steps[0] if len(steps) == 1 else And(tuple(steps))


def conjunctions(formula: Formula) -> tuple[Conjunction, ...]:
    """The formula as conjunctions in written order, equal ones dropped."""
    disjuncts = _Distribution().disjuncts(formula, False, 0)
    return distinct(Conjunction(conjunction_of(found)) for found in disjuncts.values())


def distinct(found: Iterable[Conjunction]) -> tuple[Conjunction, ...]:
    """Conjunctions without those that have the same set of predicates as an earlier one."""
    unique: dict[frozenset[Predicate], Conjunction] = {}
    for conjunction in found:
        unique.setdefault(frozenset(conjunction.predicates), conjunction)
    return tuple(unique.values())


_Disjuncts = dict[int, tuple[Predicate, ...]]
"""Conjunctions in written order, by the bit mask of their predicates. Dropping an equal one at
once is safe: whatever follows it would only repeat what follows the earlier one."""


class _Distribution:
    """One walk over a formula; numbers predicates so that sets of them are bit masks."""

    def __init__(self) -> None:
        self.bits: dict[Predicate, int] = {}

    def disjuncts(self, formula: Formula, negated: bool, depth: int) -> _Disjuncts:
        if depth > NESTING_DEPTH_MAX:
            raise UsageError(
                f"the formula is nested more than {NESTING_DEPTH_MAX} deep",
                hint="a chain of 'and' or 'or' needs no nesting",
            )
        if isinstance(formula, Not):
            return self.disjuncts(formula.item, not negated, depth + 1)
        if isinstance(formula, And | Or):
            distribute = isinstance(formula, And) != negated
            result: _Disjuncts = {0: ()} if distribute else {}
            for item in formula.items:
                part = self.disjuncts(item, negated, depth + 1)
                result = self._product(result, part) if distribute else _sum(result, part)
            return result
        predicate = _negation(formula) if negated else normalised(formula)
        bit = self.bits.setdefault(predicate, len(self.bits))
        if bit >= _MASK_BIT_COUNT_MAX:
            raise _too_many_predicates()
        return {1 << bit: (predicate,)}

    def _product(self, left: _Disjuncts, right: _Disjuncts) -> _Disjuncts:
        result: _Disjuncts = {}
        for left_mask, left_predicates in left.items():
            for right_mask, right_predicates in right.items():
                mask = left_mask | right_mask
                if mask in result:
                    continue
                new = tuple(p for p in right_predicates if not left_mask >> self.bits[p] & 1)
                if len(left_predicates) + len(new) > PREDICATE_COUNT_MAX:
                    raise _too_many_predicates()
                result[mask] = left_predicates + new
                _check_count(result)
        return result


def _sum(left: _Disjuncts, right: _Disjuncts) -> _Disjuncts:
    for mask, predicates in right.items():
        left.setdefault(mask, predicates)
    _check_count(left)
    return left


def _check_count(found: _Disjuncts) -> None:
    if len(found) > CONJUNCTION_COUNT_MAX:
        raise UsageError(
            f"the formula has more than {CONJUNCTION_COUNT_MAX} conjunctions "
            "after 'and' is distributed over 'or'",
            hint="split it into several subscriptions, or join fewer 'or's by 'and'",
        )


def _too_many_predicates() -> UsageError:
    return UsageError(
        f"a conjunction has more than {PREDICATE_COUNT_MAX:,} predicates",
        hint="split the subscription into several",
    )


def _negation(predicate: Predicate) -> Predicate:
    if isinstance(predicate, Wildcard):
        raise UsageError(
            f"'not {predicate}' asks for the absence of an event, which cannot be expressed: "
            "a relation is made of events that are there",
            hint=f"negate a comparison, as in: not {predicate}.value > 10",
        )
    return normalised(Comparison(NEGATED[predicate.op], predicate.left, predicate.right))

"""Predicates: comparisons and wildcards, normalised so that equal questions look equal.

A predicate names one slot (unary) or two (binary). `normalised` turns a comparison so that the
same question has one form: constants folded and on the right, the smaller side on the left.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from concordant.errors import UsageError
from concordant.model.expression import (
    Arithmetic,
    Attribute,
    Constant,
    Expression,
    Read,
    Slot,
    calculate,
    evaluate,
    slots_of,
)
from concordant.model.kind import Kind

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
"""The operator after its sides were exchanged."""

NEGATED = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "=": "!=", "!=": "="}
"""The operator of the opposite question (false for nulls as well)."""

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


class Wildcard(msgspec.Struct, frozen=True, tag="wildcard"):
    """`T[i]`: the slot is wanted, whatever its event says."""

    slot: Slot

    @property
    def slots(self) -> tuple[Slot, ...]:
        return (self.slot,)

    def __str__(self) -> str:
        return str(self.slot)


class Comparison(msgspec.Struct, frozen=True, tag="comparison"):
    """`left op right` with op one of < > <= >= = !=."""

    op: str
    left: Expression
    right: Expression

    @property
    def slots(self) -> tuple[Slot, ...]:
        return slots_of(self.left, self.right)

    def __str__(self) -> str:
        return f"{_outer(self.left)} {self.op} {_outer(self.right)}"


Predicate = Wildcard | Comparison


def _outer(expression: Expression) -> str:
    text = str(expression)
    return text[1:-1] if isinstance(expression, Arithmetic) else text


def holds(predicate: Predicate, read: Read) -> bool:
    """Is the predicate true of the events that `read` gives?

    False whenever a side has no value (null, NaN, division by zero, overflow), also for `!=`.
    """
    if isinstance(predicate, Wildcard):
        return True
    left = evaluate(predicate.left, read)
    right = evaluate(predicate.right, read)
    if left is None or right is None or left != left or right != right:
        return False
    return _COMPARE[predicate.op](left, right)


def normalised(predicate: Predicate) -> Predicate:
    """The one form of equal predicates; refuses what names no slot, three slots, or itself."""
    if isinstance(predicate, Wildcard):
        return predicate
    left, right = _folded(predicate.left), _folded(predicate.right)
    op = predicate.op
    slots = slots_of(left, right)
    if not slots:
        raise UsageError(
            f"'{predicate}' names no event",
            hint="compare an attribute, as in StockQuote.value > 10",
        )
    if len(slots) > 2:
        raise UsageError(
            f"'{predicate}' names {len(slots)} slots, and a predicate may name one or two",
            hint="split it into comparisons of two slots each, joined by 'and'",
        )
    if left == right and isinstance(left, Attribute):
        raise UsageError(
            f"'{predicate}' compares an attribute with itself",
            hint=f"number the instances, as in {left.slot.topic}[1].{left.name} {op} "
            f"{left.slot.topic}[2].{left.name}",
        )
    if _side_key(right) < _side_key(left):
        left, right, op = right, left, FLIPPED[op]
    return Comparison(op, left, right)


def _side_key(side: Expression) -> tuple[bool, tuple[Slot, ...], str]:
    return (isinstance(side, Constant), slots_of(side), str(side))


def _folded(expression: Expression) -> Expression:
    if not isinstance(expression, Arithmetic):
        return expression
    left, right = _folded(expression.left), _folded(expression.right)
    if isinstance(left, Constant) and isinstance(right, Constant):
        for side in (left, right):
            if not side.kind.numeric:
                raise UsageError(
                    f"'{expression}' calculates with {side}, a {side.kind}",
                    hint="arithmetic takes numbers and durations",
                )
        assert isinstance(left.value, int | float) and isinstance(right.value, int | float)
        result = calculate(expression.op, left.value, right.value)
        if result is None:
            raise UsageError(
                f"'{expression}' has no value (division by zero or overflow)",
                hint="such a predicate is never true; remove it",
            )
        return Constant(result, Kind.INT if isinstance(result, int) else Kind.FLOAT)
    return Arithmetic(expression.op, left, right)


def conjunction_of(predicates: Iterable[Predicate]) -> tuple[Predicate, ...]:
    """Normalised predicates in written order, each once, without wildcards that others imply.

    `T[i]` declares `T[1]` to `T[i-1]` too, so a wildcard says something only if it names the
    largest instance of its topic and no comparison does.
    """
    unique = dict.fromkeys(normalised(predicate) for predicate in predicates)
    compared: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for predicate in unique:
        counts = wanted if isinstance(predicate, Wildcard) else compared
        for slot in predicate.slots:
            counts[slot.topic] = max(counts.get(slot.topic, 0), slot.instance)
    return tuple(
        predicate
        for predicate in unique
        if not isinstance(predicate, Wildcard)
        or (
            predicate.slot.instance == wanted[predicate.slot.topic]
            and predicate.slot.instance > compared.get(predicate.slot.topic, 0)
        )
    )

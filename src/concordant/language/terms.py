"""Terms: expressions while they are being built, from text or by Python operators.

What `reader` and `builder` have in common: constants that fit, arithmetic that is not too deep and
calculates with nothing but numbers and times, comparisons in normal form. Kinds of attributes are
unknown here; `check` compares them with the schemas.
"""

from __future__ import annotations

import math
import numbers
from datetime import datetime, timedelta
from typing import NamedTuple

from concordant.errors import UsageError
from concordant.language.literals import too_large
from concordant.model.expression import Arithmetic, Constant, Expression
from concordant.model.kind import INT_MAX, INT_MIN, RESERVED, Kind, parse_instant
from concordant.model.predicate import Comparison, normalised
from concordant.model.subscription import Emit, Field

ARITHMETIC_DEPTH_MAX = 64
"""Levels of one arithmetic expression, and so the length of a chain a + b + …: evaluation and
printing are recursive, and 64 slots are all a conjunction may have."""


class Term(NamedTuple):
    """An expression and how deep its arithmetic goes."""

    expression: Expression
    depth: int = 0


def constant(given: object) -> Constant:
    """The constant that a Python value stands for; a datetime without a zone is UTC."""
    if isinstance(given, bool):
        return Constant(given, Kind.BOOL)
    if isinstance(given, str):
        return Constant(str(given), Kind.STRING)
    if isinstance(given, datetime):
        return Constant(parse_instant(given.isoformat()), Kind.TIME)
    if isinstance(given, timedelta):
        return Constant(given // timedelta(microseconds=1), Kind.INT)
    if isinstance(given, numbers.Integral):
        if not INT_MIN <= int(given) <= INT_MAX:
            raise too_large(str(given))
        return Constant(int(given), Kind.INT)
    if isinstance(given, float) and math.isfinite(given):
        return Constant(float(given), Kind.FLOAT)
    if given is None or isinstance(given, float):
        raise UsageError(
            f"{given} cannot be compared or calculated with",
            hint="a predicate on null is always false, also with !=; leave it out",
        )
    raise UsageError(
        f"{given!r} is not a value",
        hint="give a bool, int, float, str, datetime or timedelta, or an attribute such as q.x",
    )


def calculation(op: str, left: Term, right: Term) -> Term:
    """`left op right`."""
    depth = 1 + max(left.depth, right.depth)
    if depth > ARITHMETIC_DEPTH_MAX:
        raise UsageError(
            f"the arithmetic has more than {ARITHMETIC_DEPTH_MAX} operations in a row",
            hint="calculate part of it before the events are published",
        )
    check_operand(op, left)
    check_operand(op, right)
    return Term(Arithmetic(op, left.expression, right.expression), depth)


def negative(term: Term) -> Term:
    """`-term`; of a constant it is a constant, of anything else `0 - term`."""
    value = term.expression
    if isinstance(value, Constant) and value.kind is Kind.INT:
        return Term(Constant(-int(value.value), Kind.INT))
    if isinstance(value, Constant) and value.kind is Kind.FLOAT:
        return Term(Constant(-float(value.value), Kind.FLOAT))
    if isinstance(value, Constant):
        raise _no_number(f"-{value}", value)
    return calculation("-", Term(Constant(0, Kind.INT)), term)


def comparison(op: str, left: Term, right: Term) -> Comparison:
    """`left op right` in normal form."""
    found = normalised(Comparison(op, left.expression, right.expression))
    assert isinstance(found, Comparison)
    return found


def check_operand(op: str, term: Term) -> None:
    """Refuse a constant that nothing can be calculated with."""
    value = term.expression
    if not isinstance(value, Constant) or value.kind.numeric or value.kind is Kind.TIME:
        return
    if value.kind is Kind.STRING and op in "+-":
        try:  # a string may stand for a time, which only the schemas can tell
            parse_instant(str(value.value))
        except UsageError:
            raise _no_number(f"{value}", value) from None
        return
    raise _no_number(f"{value}", value)


def emission(topic: str, fields: tuple[Field, ...]) -> Emit:
    """`emit topic(fields)` with each field once and none of a reserved name."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise UsageError(
                f"'emit' gives the attribute '{field.name}' twice", hint="give each once"
            )
        if field.name in RESERVED:
            raise UsageError(
                f"'emit' gives '{field.name}', a name that every event has already",
                hint=f"choose another name, such as {field.name}_of_first; a derived event has "
                "the time and position of the event that completed the relation",
            )
        seen.add(field.name)
    return Emit(topic, fields)


def _no_number(text: str, value: Constant) -> UsageError:
    what = "string" if value.kind is Kind.STRING else value.kind.value
    return UsageError(
        f"arithmetic takes numbers, durations and times, and {text} is a {what}",
        hint="remove the quotes if it is a number"
        if value.kind is Kind.STRING
        else "compare it with = or !=",
    )

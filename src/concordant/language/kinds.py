"""Kinds of expressions: which values can be calculated with and compared, given schemas.

It turns an expression into the same one with its kind known, strings read as times where a time
is wanted, or refuses it with a sentence. It knows nothing of subscriptions, clauses or text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from concordant.errors import UsageError
from concordant.language.clauses import suggestion
from concordant.model.expression import Arithmetic, Attribute, Constant, Expression, dotted
from concordant.model.kind import RESERVED, Kind, parse_instant
from concordant.model.predicate import Comparison
from concordant.model.topic import Topic

NAME_COUNT_MAX = 20
"""Known names listed in one error; a longer list hides the sentence."""


class Typed(NamedTuple):
    """An expression and the kind of its values."""

    expression: Expression
    kind: Kind


def typed(expression: Expression, schemas: Mapping[str, Topic]) -> Typed:
    """The expression with its kind; refuses unknown names and impossible arithmetic."""
    if isinstance(expression, Constant):
        return Typed(expression, expression.kind)
    if isinstance(expression, Attribute):
        return Typed(expression, attribute_kind(expression, schemas))
    left, right = typed(expression.left, schemas), typed(expression.right, schemas)
    if expression.op in "+-":
        left, right = _with_instants(left, right)
    kind = _calculated(expression.op, left, right)
    return Typed(Arithmetic(expression.op, left.expression, right.expression), kind)


def compared(comparison: Comparison, schemas: Mapping[str, Topic]) -> Comparison:
    """The comparison with strings read as times where they meet one, if its kinds fit."""
    left, right = _with_instants(typed(comparison.left, schemas), typed(comparison.right, schemas))
    _check_compared(comparison.op, left, right)
    return Comparison(comparison.op, left.expression, right.expression)


def attribute_kind(attribute: Attribute, schemas: Mapping[str, Topic]) -> Kind:
    """The kind of an attribute, by its topic's schema."""
    topic = schema_of(attribute.slot.topic, schemas)
    kind = topic.kind(attribute.name)
    if kind is None:
        raise unknown_attribute(topic, attribute.name)
    return kind


def schema_of(name: str, schemas: Mapping[str, Topic]) -> Topic:
    """The schema of a topic."""
    if name not in schemas:
        known = f"the topics are {_listed(sorted(schemas))}" if schemas else "no topic is known"
        raise UsageError(
            f"there is no topic '{name}': {known}",
            hint=suggestion(name, schemas) or "name a topic of the input, or one that is emitted",
        )
    return schemas[name]


def unknown_attribute(topic: Topic, name: str) -> UsageError:
    """The error for an attribute that a topic does not have."""
    kinds = [f"{dotted(known)} ({kind})" for known, kind in topic.attributes.items()]
    reserved = ", ".join(RESERVED)
    known = f"its attributes are {_listed(kinds)}" if kinds else "it has no attributes of its own"
    return UsageError(
        f"topic '{topic.name}' has no attribute '{name}': {known}; every event has {reserved}",
        hint=suggestion(name, [*topic.attributes, *RESERVED]) or "use one of these names",
    )


def merged(one: Kind, other: Kind) -> Kind | None:
    """The kind of both (null fits every kind), or None if they differ."""
    if one is other or other is Kind.NULL:
        return one
    return other if one is Kind.NULL else None


def _listed(names: list[str]) -> str:
    more = len(names) - NAME_COUNT_MAX
    return ", ".join(names[:NAME_COUNT_MAX]) + (f" and {more} more" if more > 0 else "")


def _with_instants(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """A string constant beside a time, read as a time."""
    if left.kind is Kind.TIME:
        return left, _instant(right)
    if right.kind is Kind.TIME:
        return _instant(left), right
    return left, right


def _instant(side: Typed) -> Typed:
    expression = side.expression
    if not isinstance(expression, Constant) or side.kind is not Kind.STRING:
        return side
    return Typed(Constant(parse_instant(str(expression.value)), Kind.TIME), Kind.TIME)


def _calculated(op: str, left: Typed, right: Typed) -> Kind:
    kinds = (left.kind, right.kind)
    for side in (left, right):
        if side.kind in (Kind.STRING, Kind.BOOL, Kind.POSITION):
            raise UsageError(
                f"arithmetic takes numbers, durations and times, and {_described(side)}",
                hint="positions only compare with each other: write A then B"
                if side.kind is Kind.POSITION
                else "compare it as it is",
            )
    if Kind.NULL in kinds:
        return Kind.NULL
    if Kind.TIME not in kinds:
        return Kind.FLOAT if op == "/" or Kind.FLOAT in kinds else Kind.INT
    if kinds == (Kind.TIME, Kind.TIME) and op == "-":
        return Kind.INT
    if (kinds == (Kind.TIME, Kind.INT) and op in "+-") or (
        kinds == (Kind.INT, Kind.TIME) and op == "+"
    ):
        return Kind.TIME
    raise UsageError(
        f"a {left.kind} and a {right.kind} cannot be joined by '{op}': {_described(left)}, "
        f"{_described(right)}",
        hint="two times can be subtracted, and a duration in whole microseconds added to a time "
        "or taken from it",
    )


def _check_compared(op: str, left: Typed, right: Typed) -> None:
    kinds = {left.kind, right.kind}
    if kinds == {Kind.BOOL} and op not in ("=", "!="):
        raise UsageError(f"bools compare only by = and !=, not by '{op}'", hint="write = true")
    if Kind.NULL in kinds or len(kinds) == 1 or all(kind.numeric for kind in kinds):
        return
    hint = "compare values of the same kind"
    if Kind.POSITION in kinds:
        hint = "a position compares only with another position: write A then B"
    elif Kind.TIME in kinds:
        hint = (
            'compare a time with a time in quotes, "2026-01-31T09:30:00Z", or the difference of '
            "two times with a duration: A.time - B.time < 5 min"
        )
    elif Kind.STRING in kinds:
        constant = next((s for s in (left, right) if isinstance(s.expression, Constant)), None)
        if constant is not None and constant.kind is Kind.STRING:
            hint = "leave the quotes out if it is a number or a bool"
        elif constant is not None:
            hint = f'put it into quotes: "{constant.expression}"'
    raise UsageError(
        f"{_described(left)}, and {_described(right)}: they cannot be compared", hint=hint
    )


def _described(side: Typed) -> str:
    article = "an" if side.kind is Kind.INT else "a"
    return f"{side.expression} is {article} {side.kind}"

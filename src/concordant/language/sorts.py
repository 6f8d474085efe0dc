"""The sorts of what the grammar calls an expression: a value, a slot or a formula.

Each function takes a part of the text and gives it as the sort that is needed, or refuses it where
it stands, saying what it is and what to write instead. The rules that need them are in `reader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from lark import Token

from concordant.errors import UsageError
from concordant.language.normal import Formula
from concordant.language.slips import slot_as_value
from concordant.language.source import Refused
from concordant.language.terms import Term, check_operand
from concordant.model.expression import Attribute, Constant, Slot, quoted
from concordant.model.predicate import Wildcard


class Part(NamedTuple):
    """A value, slot or formula, and the offset at which it begins."""

    at: int
    value: Term | Slot | Formula


@contextmanager
def refused_at(place: int) -> Iterator[None]:
    """Errors raised inside stand at this offset."""
    try:
        yield
    except UsageError as error:
        raise Refused(place, error.message, error.hint) from None


def offset(token: Token) -> int:
    """Where a token begins."""
    assert token.start_pos is not None
    return token.start_pos


def as_formula(part: Part, rule: str) -> Formula:
    """A formula; `rule` says what cannot be done with anything else."""
    value = part.value
    if isinstance(value, Slot):
        return Wildcard(value)
    if not isinstance(value, Term):
        return value
    expression = value.expression
    if isinstance(expression, Attribute):
        raise Refused(
            part.at,
            f"{expression} is an attribute; it {rule}",
            f"compare it, as in: {expression} = true",
        )
    if isinstance(expression, Constant):
        number = "a number" if expression.kind.numeric else f"'{expression}'"
        raise Refused(
            part.at, f"{number} {rule}", "a predicate is a topic or a comparison, such as A.x > 10"
        )
    raise Refused(part.at, f"a number {rule}", f"compare it, as in: {str(expression)[1:-1]} > 0")


def as_value(part: Part, rule: str, op: Token | None = None) -> Term:
    """A value; `op` is the arithmetic that wants it, if any."""
    value = part.value
    if isinstance(value, Term):
        return value
    if isinstance(value, Slot):
        hint = slot_as_value(value, minus=op is not None and op.type == "MINUS")
        raise Refused(part.at, f"'{quoted(value.topic)}' is a topic; it {rule}", hint)
    raise Refused(part.at, f"a predicate {rule}", "join predicates by 'and', 'or' and 'not'")


def as_number(part: Part, op: Token) -> Term:
    """A value to calculate with."""
    term = as_value(part, f"cannot be part of arithmetic ('{op}')", op)
    with refused_at(part.at):
        check_operand(str(op), term)
    return term


def as_slot(part: Part) -> Slot:
    """A slot, as `then` joins them."""
    if isinstance(part.value, Slot):
        return part.value
    if isinstance(part.value, Term):
        what = f"'{part.value.expression}' is a value"
        hint = "leave the attribute out: A then B"
    else:
        what, hint = "this is a predicate", "write A then B then C, with no parentheses"
    raise Refused(part.at, f"'then' joins topics, and {what}", hint)

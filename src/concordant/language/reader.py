"""From grammar to values: what each rule of `grammar.lark` means.

The grammar has one kind of expression; here its sorts are told apart (a value, a slot, a formula)
and refused where they do not fit, at the place where they stand. The parser calls these methods as
it recognises rules, so no tree is built and nothing recurses. Names of subscriptions, their number
and the bounds of the whole text are `parse`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from lark import Token, Transformer

from concordant.errors import UsageError
from concordant.language import literals
from concordant.language.clauses import consume_word, match_words, order_level
from concordant.language.normal import And, Formula, Not, Or, joined, sequence
from concordant.language.sorts import (
    Part,
    as_formula,
    as_number,
    as_slot,
    as_value,
    offset,
    refused_at,
)
from concordant.language.source import Refused
from concordant.language.terms import (
    Term,
    calculation,
    comparison,
    emission,
    negative,
)
from concordant.model.expression import Attribute, Constant, Slot
from concordant.model.kind import Kind
from concordant.model.subscription import INSTANCE_MAX, Field

_Found = TypeVar("_Found")


class Clause(NamedTuple):
    """A clause: its word, where it stands, and the subscription's fields that it sets."""

    at: int
    word: str
    fields: dict[str, Any]


class Draft(NamedTuple):
    """One subscription as read: everything but its name."""

    at: int
    formula: Formula
    clauses: list[Clause]


class Label(NamedTuple):
    """A draft with the name in front of it, if there was one."""

    at: int
    name: str | None
    draft: Draft


class Reader(Transformer[Token, Any]):
    """One method per rule, each taking the values of the rule's parts."""

    def unnamed(self, parts: list[Draft]) -> list[Label]:
        return [Label(parts[0].at, None, parts[0])]

    def named(self, parts: list[Label]) -> list[Label]:
        return parts

    def labelled(self, parts: list[Any]) -> Label:
        label, draft = parts
        return Label(offset(label), literals.name(label[:-1].rstrip()), draft)

    def body(self, parts: list[Any]) -> Draft:
        formula, *clauses = parts
        return Draft(formula.at, as_formula(formula, "alone is not a predicate"), clauses)

    # --- formulas -----------------------------------------------------------------------------

    def disjunction(self, parts: list[Part]) -> Part:
        rule = "cannot be joined by 'or'"
        return Part(parts[0].at, joined(Or, *(as_formula(part, rule) for part in parts)))

    def conjunction(self, parts: list[Part]) -> Part:
        rule = "cannot be joined by 'and'"
        return Part(parts[0].at, joined(And, *(as_formula(part, rule) for part in parts)))

    def negated(self, parts: list[Any]) -> Part:
        word, part = parts
        return Part(offset(word), Not(as_formula(part, "cannot be negated by 'not'")))

    def relation(self, parts: list[Any]) -> Part:
        operands, links = parts[::2], parts[1::2]
        if all(link.type == "THEN" for link in links):
            slots = [as_slot(part) for part in operands]
            with refused_at(operands[0].at):
                return Part(operands[0].at, sequence(slots))
        if len(links) > 1:
            self._refuse_chain(operands, links)
        left, right = (as_value(part, f"cannot be compared by '{links[0]}'") for part in operands)
        with refused_at(operands[0].at):
            return Part(operands[0].at, comparison(str(links[0]), left, right))

    def _refuse_chain(self, operands: list[Part], links: list[Token]) -> None:
        if any(link.type == "THEN" for link in links):
            raise Refused(
                offset(links[1]),
                f"'{links[0]}' and '{links[1]}' cannot stand in one chain",
                "'then' joins topics: write A then B and A.x < B.x",
            )
        hint = "write a < b and b < c"
        if all(isinstance(part.value, Term) for part in operands[:3]):
            a, b, c = (str(part.value.expression) for part in operands[:3])  # type: ignore[union-attr]
            hint = f"write {a} {links[0]} {b} and {b} {links[1]} {c}"
        raise Refused(
            offset(links[1]),
            f"found '{links[1]}' after a comparison: comparisons cannot be chained",
            hint,
        )

    # --- values -------------------------------------------------------------------------------

    def sum(self, parts: list[Any]) -> Part:
        first, ops, others = parts[0], parts[1::2], parts[2::2]
        term = as_number(first, ops[0])
        for op, part in zip(ops, others, strict=True):
            right = as_number(part, op)
            with refused_at(offset(op)):
                term = calculation(str(op), term, right)
        return Part(first.at, term)

    product = sum

    def negative(self, parts: list[Any]) -> Part:
        sign, part = parts
        with refused_at(offset(sign)):
            return Part(offset(sign), negative(as_value(part, "cannot be negated by '-'")))

    def literal(self, parts: list[Token]) -> Part:
        token = parts[0]
        with refused_at(offset(token)):
            return Part(offset(token), Term(_constant(token)))

    def reference(self, parts: list[Token]) -> Part:
        topic, *rest = parts
        instance = 1
        if rest and rest[0].type == "INT":
            instance = _instance(topic, rest.pop(0))
        slot = Slot(literals.name(topic), instance)
        name = ".".join(literals.name(part) for part in rest)
        value = Term(Attribute(slot, name)) if rest else slot
        return Part(offset(topic), value)

    # --- clauses ------------------------------------------------------------------------------

    def match(self, parts: list[Token]) -> Clause:
        found = _read_words(match_words, parts[1:])
        return Clause(offset(parts[0]), "match", found._asdict())

    def consume(self, parts: list[Token]) -> Clause:
        with refused_at(offset(parts[1])):
            return Clause(offset(parts[0]), "consume", {"consume": consume_word(str(parts[1]))})

    def order(self, parts: list[Token]) -> Clause:
        level = _read_words(order_level, parts[1:])
        return Clause(offset(parts[0]), "order", {"order": level})

    def partition(self, parts: list[Any]) -> Clause:
        names = tuple(name for _, name in parts[1:])
        return Clause(offset(parts[0]), "partition by", {"partition_by": names})

    def within(self, parts: list[Token]) -> Clause:
        with refused_at(offset(parts[1])):
            return Clause(
                offset(parts[0]), "within", {"within_us": literals.duration_us(str(parts[1]))}
            )

    def cap(self, parts: list[Token]) -> Clause:
        word, *scope, number = parts
        if scope and scope[0] != "all":
            raise Refused(
                offset(scope[0]),
                f"found '{scope[0]}', expected a number or 'all'",
                "write 'cap 1000' for each queue, or 'cap all 100000' for the subscription",
            )
        with refused_at(offset(number)):
            count = literals.integer(str(number))
        if scope:
            return Clause(offset(word), "cap all", {"queued_count_max": count})
        return Clause(offset(word), "cap", {"queue_count_max": count})

    def emit(self, parts: list[Any]) -> Clause:
        word, topic, *fields = parts
        with refused_at(offset(word)):
            found = emission(literals.name(topic), tuple(fields))
        return Clause(offset(word), "emit", {"emit": found})

    def field(self, parts: list[Any]) -> Field:
        (_, name), _, part = parts
        return Field(name, as_value(part, "cannot be the value of an attribute").expression)

    def dotted(self, parts: list[Token]) -> tuple[int, str]:
        return offset(parts[0]), ".".join(literals.name(part) for part in parts)


def _read_words(read: Callable[[list[str]], _Found], words: list[Token]) -> _Found:
    """The words read from the first on, so that an error stands at the word that causes it."""
    for count, token in enumerate(words, 1):
        if token in ("and", "or", "then"):
            raise Refused(
                offset(token),
                f"found '{token}' after a clause",
                "the formula comes first, and all its clauses after it",
            )
        with refused_at(offset(token)):
            found = read([str(word) for word in words[:count]])
    return found


def _instance(topic: Token, number: Token) -> int:
    with refused_at(offset(number)):
        instance = literals.integer(str(number))
        if instance < 1:
            raise UsageError(
                f"'{topic}[{number}]': instances count from 1",
                hint=f"write {topic}[1] for the first event; the second is {topic}[2]",
            )
        if instance > INSTANCE_MAX:
            raise UsageError(
                f"'{topic}[{number}]': at most {INSTANCE_MAX} instances are allowed",
                hint="an instance T[i] declares T[1] to T[i-1] as well",
            )
    return instance


def _constant(token: Token) -> Constant:
    if token.type == "STRING":
        return Constant(literals.string(str(token)), Kind.STRING)
    if token.type in ("TRUE", "FALSE"):
        return Constant(token.type == "TRUE", Kind.BOOL)
    if token.type == "FLOAT":
        return Constant(literals.real(str(token)), Kind.FLOAT)
    if token.type == "DURATION":
        return Constant(literals.duration_us(str(token)), Kind.INT)
    return Constant(literals.integer(str(token)), Kind.INT)

"""Subscriptions by Python operators: the same values as the text gives.

    q, r = topic("StockQuote"), topic("EarningsReport")
    rising = subscription(
        (r.time < q[1].time) & (q[1].value < q[2].value), name="rising", within="5 min"
    )

Comparisons build predicates; `&`, `|` and `~` join them, since Python's `and`, `or` and `not`
cannot be redefined: they ask for the truth of a predicate, which raises a TypeError. Names and
policies are those of the text; schemas are unknown here (see `check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NoReturn

from concordant.errors import UsageError
from concordant.language.clauses import consume_word, match_words, order_level
from concordant.language.literals import duration_us
from concordant.language.normal import And, Formula, Not, Or, conjunctions, joined, sequence
from concordant.language.terms import Term, calculation, comparison, constant, emission, negative
from concordant.model.expression import Attribute, Slot
from concordant.model.predicate import Wildcard
from concordant.model.subscription import (
    INSTANCE_MAX,
    QUEUED_COUNT_MAX,
    Emit,
    Field,
    Policy,
    Subscription,
)

Literal = bool | int | float | str | datetime | timedelta
"""What may stand for a constant; a datetime without a zone is UTC, a timedelta is microseconds."""

_PARENTHESES = "put each comparison into parentheses: (q.x > 1) & (q.y > 2)"


class Condition:
    """A formula: a predicate, or predicates joined by & | ~."""

    __slots__ = ("_formula",)

    def __init__(self, formula: Formula) -> None:
        self._formula = formula

    def __and__(self, other: Condition) -> Condition:
        return Condition(joined(And, self._formula, _formula(other)))

    def __or__(self, other: Condition) -> Condition:
        return Condition(joined(Or, self._formula, _formula(other)))

    def __rand__(self, other: object) -> NoReturn:
        _formula(other)
        raise AssertionError("unreachable: the left side would have answered")

    __ror__ = __rand__

    def __invert__(self) -> Condition:
        return Condition(Not(self._formula))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "a predicate has no truth of its own; join predicates by & | ~ in place of "
            "'and', 'or', 'not', and write a < b < c as (a < b) & (b < c)"
        )


class SlotTerm(Condition):
    """One slot; alone it is a wildcard, its attributes are values.

    `q[1].customer.city` and `q[1].attr("customer.city")` are the same; the second form also reads
    attributes called `attr`, `then` or with a leading underscore.
    """

    __slots__ = ("_slot",)

    def __init__(self, slot: Slot) -> None:
        super().__init__(Wildcard(slot))
        self._slot = slot

    def attr(self, name: str) -> ValueTerm:
        """The attribute with this (dotted) name."""
        return ValueTerm(Term(Attribute(self._slot, name)))

    def __getattr__(self, name: str) -> ValueTerm:
        return self.attr(_public(name))

    def then(self, *others: SlotTerm) -> Condition:
        """This slot's event stands before the next one's, and so on."""
        for other in others:
            if not isinstance(other, SlotTerm):
                raise UsageError(
                    f"'then' takes topics and slots, not {other!r}", hint="write q[1].then(r[1])"
                )
        if not others:
            raise UsageError("'then' needs a second slot", hint="write q[1].then(r[1])")
        return Condition(sequence([self._slot, *(other._slot for other in others)]))

    def __repr__(self) -> str:
        return str(self._slot)


class TopicTerm(SlotTerm):
    """A topic: its first instance, and by index any other."""

    __slots__ = ()

    def __getitem__(self, instance: int) -> SlotTerm:
        name = self._slot.topic
        if not isinstance(instance, int) or isinstance(instance, bool):
            raise UsageError(
                f"{instance!r} is not the number of an instance of {name}",
                hint=f'write q[1] for an instance, and q.attr("a.b") for an attribute of {name}',
            )
        if not 1 <= instance <= INSTANCE_MAX:
            raise UsageError(
                f"{name}[{instance}]: instances count from 1 to {INSTANCE_MAX}",
                hint="the first event is q[1], the second q[2]",
            )
        return SlotTerm(Slot(name, instance))


class ValueTerm:
    """An attribute or arithmetic; comparisons with it are predicates."""

    __slots__ = ("_term",)
    __hash__ = None  # type: ignore[assignment]  # == builds a predicate

    def __init__(self, term: Term) -> None:
        self._term = term

    def __getattr__(self, name: str) -> ValueTerm:
        part = _public(name)
        attribute = self._term.expression
        if not isinstance(attribute, Attribute):
            raise UsageError(f"'{attribute}' has no attributes", hint="read them from a slot")
        return ValueTerm(Term(Attribute(attribute.slot, f"{attribute.name}.{part}")))

    def __lt__(self, other: ValueTerm | Literal) -> Condition:
        return self._compare("<", other)

    def __gt__(self, other: ValueTerm | Literal) -> Condition:
        return self._compare(">", other)

    def __le__(self, other: ValueTerm | Literal) -> Condition:
        return self._compare("<=", other)

    def __ge__(self, other: ValueTerm | Literal) -> Condition:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compare("=", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compare("!=", other)

    def __add__(self, other: ValueTerm | Literal) -> ValueTerm:
        return ValueTerm(calculation("+", self._term, _term(other)))

    def __radd__(self, other: Literal) -> ValueTerm:
        return ValueTerm(calculation("+", _term(other), self._term))

    def __sub__(self, other: ValueTerm | Literal) -> ValueTerm:
        return ValueTerm(calculation("-", self._term, _term(other)))

    def __rsub__(self, other: Literal) -> ValueTerm:
        return ValueTerm(calculation("-", _term(other), self._term))

    def __mul__(self, other: ValueTerm | Literal) -> ValueTerm:
        return ValueTerm(calculation("*", self._term, _term(other)))

    def __rmul__(self, other: Literal) -> ValueTerm:
        return ValueTerm(calculation("*", _term(other), self._term))

    def __truediv__(self, other: ValueTerm | Literal) -> ValueTerm:
        return ValueTerm(calculation("/", self._term, _term(other)))

    def __rtruediv__(self, other: Literal) -> ValueTerm:
        return ValueTerm(calculation("/", _term(other), self._term))

    def __neg__(self) -> ValueTerm:
        return ValueTerm(negative(self._term))

    def _compare(self, op: str, other: object) -> Condition:
        return Condition(comparison(op, self._term, _term(other)))

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(f"'{self._term.expression}' is not a predicate", hint=_PARENTHESES)

    __and__ = __rand__ = __or__ = __ror__ = __invert__ = _refuse

    def __bool__(self) -> NoReturn:
        raise TypeError(f"'{self._term.expression}' has no truth; compare it and join by & | ~")

    def __repr__(self) -> str:
        return str(self._term.expression)


def topic(name: str) -> TopicTerm:
    """The topic of this name, to build formulas with.

    >>> q = topic("StockQuote")
    >>> print(subscription(q[1].value < q[2].value, within="5 min").conjunctions[0])
    StockQuote[1].value < StockQuote[2].value
    """
    return TopicTerm(Slot(name, 1))


def emit(
    topic: str, fields: Mapping[str, object] | None = None, /, **more: ValueTerm | Literal
) -> Emit:
    """The derived topic of a subscription; dotted names go into the mapping.

    >>> print(emit("Peak", {"stock.value": topic("StockQuote")[3].value}))
    emit Peak(stock.value = StockQuote[3].value)
    """
    given = [*(fields or {}).items(), *more.items()]
    return emission(topic, tuple(Field(name, _term(value).expression) for name, value in given))


def subscription(
    formula: Condition,
    *,
    name: str = "subscription",
    match: str = "first",
    contiguous: bool = False,
    staged: bool = False,
    consume: str = "prefix",
    partition_by: str | Iterable[str] = (),
    within: timedelta | str | int | None = None,
    cap: int | None = None,
    cap_all: int | None = None,
    emit: Emit | None = None,
    order: str | None = None,
) -> Subscription:
    """A subscription; the arguments are the clauses of the text.

    `match` and `consume` take the thesis's codes too; `within` is a timedelta, a text such as
    "5 min", or microseconds.
    """
    words = match_words(match.split())
    policy = Policy(
        words.match, contiguous or words.contiguous, staged or words.staged, consume_word(consume)
    )
    return Subscription(
        name,
        conjunctions(_formula(formula)),
        policy,
        (partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
        _within_us(within),
        cap,
        QUEUED_COUNT_MAX if cap_all is None else cap_all,
        emit,
        None if order is None else order_level(order.split()),
    )


def _within_us(within: timedelta | str | int | None) -> int | None:
    if isinstance(within, timedelta):
        return within // timedelta(microseconds=1)
    return duration_us(within) if isinstance(within, str) else within


def _formula(given: object) -> Formula:
    if isinstance(given, Condition):
        return given._formula
    if isinstance(given, ValueTerm):
        given._refuse()
    raise UsageError(
        f"{given!r} is not a predicate",
        hint="a predicate compares an attribute, as in q.x > 1; to compare slots, compare their "
        "attributes",
    )


def _term(given: object) -> Term:
    if isinstance(given, ValueTerm):
        return given._term
    return Term(constant(given))


def _public(name: str) -> str:
    if name.startswith("_"):  # Python and its tools ask objects for such names
        raise AttributeError(f'{name!r} starts with an underscore: write attr("{name}")')
    return name

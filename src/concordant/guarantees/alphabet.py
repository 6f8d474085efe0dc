"""Which events can make a difference to subscriptions: the values worth trying.

Nobody gives schemas here, so kinds are inferred: attributes that are compared with each other have
one kind, and a constant says which. Around each constant the values below, equal and above are
tried; between attributes, enough small numbers for every order of the slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from concordant.model.expression import Arithmetic, Constant, Expression, attributes_of
from concordant.model.kind import RESERVED, Kind, Value
from concordant.model.predicate import Comparison
from concordant.model.subscription import Subscription
from concordant.model.topic import Topic

VALUE_COUNT_MAX = 8
"""Values tried per attribute; more would only thin out the search."""

LEVEL_COUNT_MAX = 5
"""Different small numbers where attributes are compared with each other."""

Named = tuple[str, str]
"""A topic and one of its attributes."""

Alphabet = dict[str, dict[str, tuple[Value, ...]]]
"""Per topic and attribute, the values to try."""


class _Groups:
    """Attributes that must have one kind, with the constants they meet."""

    def __init__(self) -> None:
        self._parent: dict[Named, Named] = {}
        self.constants: dict[Named, list[Constant]] = {}
        self.numeric: set[Named] = set()
        self.instants: set[Named] = set()
        self.compared: set[Named] = set()

    def find(self, name: Named) -> Named:
        self._parent.setdefault(name, name)
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def join(self, names: Sequence[Named]) -> None:
        for name in names[1:]:
            one, other = self.find(names[0]), self.find(name)
            self._parent[max(one, other)] = min(one, other)

    def all(self) -> Iterator[tuple[Named, list[Named]]]:
        members: dict[Named, list[Named]] = {}
        for name in sorted(self._parent):
            members.setdefault(self.find(name), []).append(name)
        yield from members.items()


def assumed_topics(subscriptions: Iterable[Subscription]) -> dict[str, Topic]:
    """The topics that subscriptions read, with the kinds that their predicates suggest."""
    asked = tuple(subscriptions)
    kinds: dict[str, dict[str, Kind]] = {t: {} for one in asked for t in one.topics}
    for kind, _, members in _judged(asked):
        for topic, name in members:
            kinds[topic][name] = kind
    return {topic: Topic(topic, mine) for topic, mine in sorted(kinds.items())}


def alphabet(subscriptions: Iterable[Subscription]) -> Alphabet:
    """The values to try, per topic and attribute that some subscription reads."""
    asked = tuple(subscriptions)
    found: Alphabet = {topic: {} for one in asked for topic in one.topics}
    for _, values, members in _judged(asked):
        for topic, name in members:
            found[topic][name] = values
    return found


def _judged(
    subscriptions: Sequence[Subscription],
) -> Iterator[tuple[Kind, tuple[Value, ...], list[Named]]]:
    groups = _Groups()
    for one in subscriptions:
        for name in one.partition_by:
            if name not in RESERVED:
                names = [(topic, name) for topic in one.topics]
                groups.find(names[0])
                groups.join(names)
        for conjunction in one.conjunctions:
            for predicate in conjunction.predicates:
                if isinstance(predicate, Comparison):
                    _note(groups, predicate)
        for field in one.emit.fields if one.emit else ():
            for read in attributes_of(field.value):
                if read.name not in RESERVED:
                    groups.find((read.slot.topic, read.name))
    levels = min(
        LEVEL_COUNT_MAX,
        1 + max(sum(c.instances.values()) for one in subscriptions for c in one.conjunctions),
    )
    for _, members in groups.all():
        constants = [c for name in members for c in groups.constants.get(name, ())]
        kind = _kind(groups, members, constants)
        compared = any(name in groups.compared for name in members)
        yield kind, _values(kind, constants, levels if compared else 2), members


def _note(groups: _Groups, predicate: Comparison) -> None:
    sides = (predicate.left, predicate.right)
    read = [a for side in sides for a in attributes_of(side)]
    names = [(a.slot.topic, a.name) for a in read if a.name not in RESERVED]
    for name in names:
        groups.find(name)
    constants = [c for side in sides for c in _constants(side)]
    calculated = any(isinstance(side, Arithmetic) for side in sides)
    for name in names:
        groups.constants.setdefault(name, []).extend(constants)
        if calculated:
            groups.numeric.add(name)
        if any(a.name == "time" for a in read) and not calculated:
            groups.instants.add(name)
        if len(read) > 1:
            groups.compared.add(name)
    groups.join(names)


def _constants(expression: Expression) -> Iterator[Constant]:
    if isinstance(expression, Constant):
        yield expression
    elif isinstance(expression, Arithmetic):
        yield from _constants(expression.left)
        yield from _constants(expression.right)


def _kind(groups: _Groups, members: list[Named], constants: list[Constant]) -> Kind:
    kinds = {constant.kind for constant in constants}
    if any(name in groups.instants for name in members) or Kind.TIME in kinds:
        return Kind.TIME
    if Kind.FLOAT in kinds:
        return Kind.FLOAT
    if any(name in groups.numeric for name in members) or not kinds or Kind.INT in kinds:
        return Kind.INT
    return min(kinds)


def _values(kind: Kind, constants: list[Constant], levels: int) -> tuple[Value, ...]:
    given = list(dict.fromkeys(constant.value for constant in constants))
    if kind is Kind.BOOL:
        return (False, True)
    if kind is Kind.STRING:
        around: list[Value] = [v for c in given for v in (c, f"{c}+")]
        return tuple(dict.fromkeys([*around, "x", "y"]))[:VALUE_COUNT_MAX]
    near = [v for c in given if isinstance(c, int | float) for v in (c, c - 1, c + 1)]
    small = range(levels) if levels > 2 or not near else ()
    return tuple(dict.fromkeys([*near[:VALUE_COUNT_MAX], *small]))

"""What a transaction is made of: actions, plans of them, and the values that it can end in.

An action is a request of an application inside a transaction. A trigger is a publication that makes
its target act in turn; in a plan its actions are written out, so the whole transaction can be
printed before it runs. Actions stand in one order: what a trigger leads to comes before whatever
follows the trigger (the paper's definition 6). An operation's name is its place in that tree:
`2.1` is the first action that operation 2 leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from concordant.errors import UsageError
from concordant.model.kind import Value
from concordant.route.requests import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe

Kind = Literal["static", "isolated", "open"]

ACTION_COUNT_MAX = 1_000
"""Actions of one plan."""


class Trigger(msgspec.Struct, frozen=True, tag=True):
    """Publish an event that makes its target act; who else wants it only receives it."""

    target: str
    topic: str
    attributes: Mapping[str, Value] = {}
    actions: tuple[Action, ...] = ()
    """In a plan: what the target does. In a dynamic transaction the target decides."""

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"trigger {self.target} by {self.topic}({values})"


Action = Advertise | Unadvertise | Subscribe | Unsubscribe | Publish | Trigger


class Step(msgspec.Struct, frozen=True):
    """An action with its place."""

    op: str
    after: str
    """The operation that comes just before it; empty for the first."""
    action: Action
    last: bool = False
    """None comes after it."""


class Plan(msgspec.Struct, frozen=True):
    """A static transaction: everything that anybody will do, in order.

    >>> from concordant.route.filter import filter_of
    >>> moved = Trigger("a1", "Assign", {"x": 7}, (Subscribe("x7", filter_of("Update", x=7)),))
    >>> print(Plan("env", (moved, Publish("Update", {"x": 7}))))
    1    env: trigger a1 by Assign(x=7)
    1.1  a1: subscribe x7 (Update with x = 7)
    2    env: publish Update(x=7)
    """

    client: str
    """The coordinator."""
    actions: tuple[Action, ...]

    def __post_init__(self) -> None:
        count = sum(1 for _ in self.lines())
        if not 1 <= count <= ACTION_COUNT_MAX:
            raise UsageError(
                f"a plan has 1 to {ACTION_COUNT_MAX:,} actions, and this one has {count:,}",
                hint="split it into several transactions",
            )

    def lines(self) -> Iterator[tuple[str, Step]]:
        """Who does which step, in the order of the steps."""
        before = ""

        def walk(
            client: str, parent: str, actions: tuple[Action, ...], ends: bool
        ) -> Iterator[tuple[str, Step]]:
            nonlocal before
            for number, action in enumerate(actions, 1):
                op = f"{parent}.{number}" if parent else str(number)
                final = ends and number == len(actions)
                below = action.actions if isinstance(action, Trigger) else ()
                step = Step(op, before, action, final and not below)
                before = op
                yield client, step
                if isinstance(action, Trigger):
                    yield from walk(action.target, op, below, final)

        yield from walk(self.client, "", self.actions, True)

    def __str__(self) -> str:
        lines = list(self.lines())
        width = max(len(step.op) for _, step in lines)
        return "\n".join(f"{step.op:<{width}}  {client}: {step.action}" for client, step in lines)


def place_of(op: str) -> tuple[int, ...]:
    """The place of an operation, for comparing.

    >>> sorted(["2", "1.10", "1.9", "1"], key=place_of)
    ['1', '1.9', '1.10', '2']
    """
    return tuple(int(part) for part in op.split("."))


class Committed(msgspec.Struct, frozen=True, tag=True):
    """All of it took effect, everywhere."""

    transaction: str


class Aborted(msgspec.Struct, frozen=True, tag=True):
    """None of it took effect, anywhere."""

    transaction: str
    reason: str


Outcome = Committed | Aborted

"""Verdicts: what a checker says about a history, with the first violation as a readable story.

A checker looks at rows and returns a `Verdict`. It counts the cases in which its property had
something to say, so that a history that exercised nothing is not mistaken for a good one. A
violation names the events at stake and keeps the rows that show it; this module only tells them in
words. It knows no property and judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from concordant.model.history import Row


class Violation(msgspec.Struct, frozen=True):
    """The first place where a property does not hold."""

    sentence: str
    """What is violated, with the events and processes by name."""
    events: tuple[str, ...] = ()
    """Ids of the events at stake."""
    rows: tuple[Row, ...] = ()
    """The rows that show it, in the order in which they are told."""

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"  {told(row)}" for row in self.rows)])


class Verdict(msgspec.Struct, frozen=True):
    """What a checker found out about one property.

    >>> print(Verdict("No Creation", 3))
    No Creation: holds in 3 cases
    >>> print(Verdict("No Creation", 1, Violation("s:1 was delivered but never published")))
    No Creation: violated: s:1 was delivered but never published
    """

    name: str
    """The property, by its name."""
    checked: int
    """In how many cases the property had something to say; with 0, nothing was shown."""
    violation: Violation | None = None

    @property
    def holds(self) -> bool:
        return self.violation is None

    def __str__(self) -> str:
        if self.violation is not None:
            return f"{self.name}: violated: {self.violation}"
        return f"{self.name}: holds in {self.checked:,} case{'s' * (self.checked != 1)}"


def first_violation(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The first verdict that is violated, if there is one."""
    return next((verdict for verdict in verdicts if not verdict.holds), None)


_VERBS = {
    "publish": "published",
    "deliver": "delivered",
    "subscribe": "subscribed to",
    "unsubscribe": "unsubscribed from",
    "transaction": "did",
    "suspect": "suspected",
    "crash": "crashed",
    "restart": "restarted",
    "end": "came to its end",
}


def told(row: Row) -> str:
    """A row in words.

    >>> told(Row("run", "p1", "deliver", 4, subscription="S", events=("a:1", "b:1")))
    't=4 p1 delivered (a:1, b:1) for S'
    >>> told(Row("run", "a", "publish", 1, topics=("Quote",), events=("a:1",)))
    't=1 a published a:1 to Quote'
    """
    words = [f"t={row.time_us}", row.process, _VERBS[row.step]]
    if row.step == "deliver":
        words.append(f"({', '.join(row.events)})")
        words += ["for", row.subscription] if row.subscription else []
        words += [] if row.in_order else ["out of order"]
    elif row.step == "publish":
        words += [*row.events, "to", ", ".join(row.topics)]
    else:
        words += [word for word in (row.subscription, ", ".join(row.topics), row.text) if word]
    return " ".join(words)

"""The promises of the order levels: which properties a level consists of, and their verdicts.

The level is a parameter: the same history can keep one promise and break another. Without one, the
level that the subscriptions of the history name is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from concordant.check.levels_delivery import no_creation, no_duplication, subscribed, validity
from concordant.check.levels_index import Seen, seen
from concordant.check.levels_order import agreed, causal, fifo, relation_order, tags, total
from concordant.check.verdict import Verdict
from concordant.errors import UsageError
from concordant.model.history import Row

Check = Callable[[Seen], Verdict]


def total_order(index: Seen) -> Verdict:
    """One order for topics that are held together."""
    return total(index, strict=False)


def total_order_strict(index: Seen) -> Verdict:
    """One order over whole histories."""
    return total(index, strict=True)


_DELIVERY: tuple[Check, ...] = (no_creation, subscribed, no_duplication)

LEVELS: dict[str, tuple[Check, ...]] = {
    "none": (no_creation, subscribed),
    "fifo": (*_DELIVERY, fifo, validity),
    "causal": (*_DELIVERY, fifo, causal, validity),
    "agreed": (*_DELIVERY, fifo, agreed, relation_order, validity),
    "total": (*_DELIVERY, total_order, tags, validity),
    "total strict": (*_DELIVERY, fifo, causal, total_order_strict, tags, validity),
}
"""What each level promises, cheapest first."""


def check_level(rows: Iterable[Row], level: str) -> list[Verdict]:
    """The verdicts on the properties of a level, over the rows of one run.

    >>> both = [Row("r", "p", "publish", topics=("T",), events=(one,)) for one in ("p:1", "p:2")]
    >>> wrong = [Row("r", "s", "deliver", topics=("T",), events=(one,)) for one in ("p:2", "p:1")]
    >>> [verdict.name for verdict in check_level([*both, *wrong], "fifo") if not verdict.holds]
    ['FIFO']
    """
    if level not in LEVELS:
        raise UsageError(f"there is no level {level!r}", hint=f"the levels are {_names(LEVELS)}")
    index = seen(rows)
    return [check(index) for check in LEVELS[level]]


def promised_level(rows: Sequence[Row]) -> str:
    """The level that the subscriptions of a run were promised."""
    found = list(dict.fromkeys(row.level for row in rows if row.step == "subscribe" and row.level))
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"the history names several levels: {_names(found)}"
        if found
        else "the history does not say which level was promised",
        hint=f"name the level: --level {' | '.join(LEVELS)}",
    )


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" if " " in name else name for name in names)

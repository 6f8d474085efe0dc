"""One door for tables on one machine: events and subscriptions in, relations out.

It joins the layers below (read, parse, check, plan, correlate) and adds nothing to their meaning.
Small questions are answered by the clear engine, all others by the compiled kernel; the relations
are the same, which `make campaign` shows.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

from concordant.correlate.columns import Batch
from concordant.correlate.engine import Engine
from concordant.correlate.found import Found
from concordant.correlate.plan import Plan, compile_plan
from concordant.correlate.state import Counters
from concordant.files import in_order, read_events
from concordant.files.relations import relations_table
from concordant.files.subscriptions import Question, checked_question, read_subscriptions
from concordant.model.relation import Relation
from concordant.model.subscription import Subscription

_CHUNK = 1 << 18
"""Events between two reports of progress."""

_CLEAR_COUNT_MAX = 2_000
"""So few events are done by the clear engine before the compiled kernel would be loaded."""

_REPR_ROWS = 10


class Relations(Sequence[Relation]):
    """The relations of a run, in order, with what was counted on the way.

    They are numbers until somebody looks: counting them costs nothing, an object is made when it is
    asked for.
    """

    def __init__(
        self, steps: Sequence[Found | list[Relation]], counters: Mapping[str, Counters]
    ) -> None:
        self._steps = steps
        self.counters = counters

    @cached_property
    def _relations(self) -> list[Relation]:
        return [relation for step in self._steps for relation in step]

    def __len__(self) -> int:
        return sum(map(len, self._steps))

    @overload
    def __getitem__(self, index: int) -> Relation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Relation]: ...

    def __getitem__(self, index: int | slice) -> Relation | list[Relation]:
        return self._relations[index]

    def __iter__(self) -> Iterator[Relation]:
        return chain.from_iterable(self._steps)

    @property
    def count_text(self) -> str:
        """How many there are, in words."""
        return f"{len(self):,} relation{'s' * (len(self) != 1)}"

    def to_arrow(self) -> Any:
        """An Arrow table; `.to_pandas()` and `polars.from_arrow` take it from there."""
        return relations_table(self)

    def __repr__(self) -> str:
        lines = [self.count_text]
        for row in islice(self, _REPR_ROWS):
            key = "".join(f" {value}" for value in row.key)
            lines.append(f"  {row.subscription}{key} #{row.position}: {' '.join(row.event_ids)}")
        if len(self) > _REPR_ROWS:
            lines.append("  …")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{html.escape(row.subscription)}</td><td>{row.conjunction}</td>"
            f"<td>{html.escape(', '.join(map(str, row.key)))}</td><td>{row.position}</td>"
            f"<td>{html.escape(', '.join(row.event_ids))}</td></tr>"
            for row in islice(self, _REPR_ROWS)
        )
        head = (
            "<th>subscription</th><th>conjunction</th><th>key</th><th>position</th><th>events</th>"
        )
        return f"<table><tr>{head}</tr>{cells}</table><p>{self.count_text}</p>"


def plan_for(
    batch: Batch, subscriptions: Iterable[Subscription], *, question: Question = ""
) -> Plan:
    """The plan of subscriptions over a batch's topics, after the static checks.

    `question` is what the subscriptions came from: if it is a file, errors name it.
    """
    good, derived = checked_question(tuple(subscriptions), batch.topics, question=question)
    return compile_plan(good, {**batch.topics, **derived})


def correlate_batch(
    batch: Batch, plan: Plan, *, progress: Callable[[int], None] | None = None
) -> Relations:
    """The relations of a batch that is in its total order, under a plan made for its topics.

    `progress` is called now and then with the number of events done.
    """
    if len(batch) <= _CLEAR_COUNT_MAX:
        engine = Engine(plan)
        delivered = engine.step(batch.events())
        if progress:
            progress(len(batch))
        return Relations([delivered], engine.counters)
    # Imported here: loading compiled code takes longer than a small question.
    from concordant.correlate.kernel import Kernel

    kernel = Kernel(plan)
    found: list[Found] = []
    for start in range(0, len(batch), _CHUNK):
        stop = min(start + _CHUNK, len(batch))
        found.append(kernel.step(batch.slice(start, stop)))
        if progress:
            progress(stop)
    return Relations(found, kernel.counters)


def correlate(
    events: Any,
    subscriptions: Question,
    *,
    match: str | None = None,
    consume: str | None = None,
    ordered: bool = False,
    progress: Callable[[int], None] | None = None,
    **columns: Any,
) -> Relations:
    """The relations that events form, in order.

    `events` is a path or several in a list, a table (Arrow, pandas, Polars, Spark), dicts, or a
    mapping from topic to any of these; `columns` name the columns to use (`time="ts"`,
    `topic="Order"`; see `files.read_events`). A table of Spark comes to this process whole.

    >>> orders = [{"topic": "Order", "time": 1, "n": 7}, {"topic": "Payment", "time": 2, "n": 7}]
    >>> correlate(orders, "Order then Payment partition by n")
    1 relation
      subscription 7 #1: table:1 table:2
    """
    asked = read_subscriptions(subscriptions, match=match, consume=consume)
    batch = events
    if not isinstance(events, Batch):
        several = isinstance(events, list | tuple) and all(
            isinstance(one, str | Path) for one in events
        )
        inputs = events if several and events else [events]
        batch = read_events(*inputs, ordered=ordered, **columns)
    plan = plan_for(batch, asked, question=subscriptions)
    return correlate_batch(in_order(batch), plan, progress=progress)

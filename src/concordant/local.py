"""One door for tables on one machine: events and subscriptions in, relations out.

It joins the layers below (read, parse, check, plan, correlate) and adds nothing to their meaning.
For Spark see `concordant.spark`, for live events `concordant.bus`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import msgspec

from concordant.correlate.columns import Batch
from concordant.correlate.engine import Engine
from concordant.correlate.plan import Plan, compile_plan
from concordant.correlate.state import Counters
from concordant.errors import UsageError
from concordant.files import in_order, read_events
from concordant.files.relations import relations_table
from concordant.language import check, parse
from concordant.model.relation import Relation
from concordant.model.subscription import Policy, Subscription

Question = str | Path | Subscription | Sequence[Subscription]
"""A subscription: text, a `.sub` file, or values made by operators."""

_CHUNK = 10_000
_REPR_ROWS = 10


class Relations(Sequence[Relation]):
    """The relations of a run, in order, with what was counted on the way."""

    def __init__(self, relations: list[Relation], counters: Mapping[str, Counters]) -> None:
        self._relations = relations
        self.counters = counters

    def __len__(self) -> int:
        return len(self._relations)

    @overload
    def __getitem__(self, index: int) -> Relation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Relation]: ...

    def __getitem__(self, index: int | slice) -> Relation | list[Relation]:
        return self._relations[index]

    def __iter__(self) -> Iterator[Relation]:
        return iter(self._relations)

    def to_arrow(self) -> Any:
        """An Arrow table; `.to_pandas()` and `polars.from_arrow` take it from there."""
        return relations_table(self._relations)

    def __repr__(self) -> str:
        lines = [f"{len(self)} relations"]
        for row in self._relations[:_REPR_ROWS]:
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
            for row in self._relations[:_REPR_ROWS]
        )
        head = (
            "<th>subscription</th><th>conjunction</th><th>key</th><th>position</th><th>events</th>"
        )
        return f"<table><tr>{head}</tr>{cells}</table><p>{len(self)} relations</p>"


def read_subscriptions(
    question: Question, *, match: str | None = None, consume: str | None = None
) -> tuple[Subscription, ...]:
    """Subscriptions from text, a `.sub` file or values; `match` and `consume` override theirs."""
    if isinstance(question, Subscription):
        found: tuple[Subscription, ...] = (question,)
    elif isinstance(question, str | Path):
        found = _from_text(question)
    else:
        found = tuple(question)
    if match is None and consume is None:
        return found
    return tuple(_with_policy(one, match, consume) for one in found)


def _from_text(question: str | Path) -> tuple[Subscription, ...]:
    path = Path(question) if isinstance(question, Path) or _looks_like_path(question) else None
    if path is None:
        return parse(str(question))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(
            "the file is not UTF-8", hint="save it as UTF-8", place=str(path)
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot read the subscription file: {reason}",
            hint="give a .sub file or the subscription's text itself",
            place=str(path),
        ) from None
    return parse(text, default_name=path.stem, place=str(path))


def _looks_like_path(text: str) -> bool:
    return "\n" not in text and text.strip().endswith(".sub")


def _with_policy(one: Subscription, match: str | None, consume: str | None) -> Subscription:
    clauses = f" match {match}" * (match is not None) + f" consume {consume}" * (
        consume is not None
    )
    try:
        (given,) = parse(f"Any{clauses}")
    except UsageError as error:
        words = " ".join(filter(None, (match, consume)))
        raise UsageError(f"{words!r} is not a policy", hint=error.hint) from None
    policy = Policy(
        given.policy.match if match else one.policy.match,
        given.policy.contiguous if match else one.policy.contiguous,
        given.policy.staged if match else one.policy.staged,
        given.policy.consume if consume else one.policy.consume,
    )
    return msgspec.structs.replace(one, policy=policy)


def plan_for(batch: Batch, subscriptions: Iterable[Subscription]) -> Plan:
    """The plan of subscriptions over a batch's topics, after the static checks."""
    return compile_plan(check(tuple(subscriptions), batch.topics), batch.topics)


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

    `events` is a path, a table (Arrow, pandas, Polars), dicts, or a mapping from topic to any of
    these; `columns` name the columns to use (`time="ts"`, `topic="Order"`; see
    `files.read_events`).

    >>> orders = [{"topic": "Order", "time": 1, "n": 7}, {"topic": "Payment", "time": 2, "n": 7}]
    >>> correlate(orders, "Order then Payment partition by n")
    1 relations
      subscription 7 #1: table:1 table:2
    """
    batch = events if isinstance(events, Batch) else read_events(events, ordered=ordered, **columns)
    batch = in_order(batch)
    engine = Engine(
        plan_for(batch, read_subscriptions(subscriptions, match=match, consume=consume))
    )
    found: list[Relation] = []
    chunk: list[Any] = []
    for done, event in enumerate(batch.events(), 1):
        chunk.append(event)
        if len(chunk) == _CHUNK or done == len(batch):
            found += engine.step(chunk)
            chunk.clear()
            if progress:
                progress(done)
    return Relations(found, engine.counters)

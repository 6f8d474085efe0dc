"""From the text of subscriptions to a kernel, and the check that comes before every measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from concordant.correlate.columns import Batch
from concordant.correlate.engine import Engine
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import Plan, compile_plan
from concordant.language import check, parse
from concordant.model.relation import Relation
from concordant.model.topic import Schemas


def plan_of(text: str, topics: Schemas) -> Plan:
    """The plan of a subscription text."""
    return plan_of_all([text], topics)


def plan_of_all(texts: Iterable[str], topics: Schemas) -> Plan:
    """The plan of several texts: one text may not be longer than a person would write."""
    found = [one for text in texts for one in parse(text)]
    return compile_plan(check(found, topics), topics)


def verify(plan: Plan, sample: Batch, *, wanted: int = 1) -> None:
    """Compare with the clear engine on some events, relation by relation.

    Compiles on the way, so that no measurement pays for it.
    """
    expected = [_line(one) for one in Engine(plan).step(sample.events())]
    found = [_line(one) for one in Kernel(plan).step(sample)]
    if found != expected:
        raise AssertionError(
            f"the kernel found {len(found)} relations and the clear engine {len(expected)}, or "
            "others: a measurement of a wrong result means nothing"
        )
    if len(found) < wanted:
        raise AssertionError(f"{len(found)} relations in {len(sample)} events, not {wanted}")


def _line(relation: Relation) -> tuple[object, ...]:
    return (relation.subscription, relation.conjunction, relation.key, relation.event_ids)


def chunks(batch: Batch, rows: int) -> Iterator[Batch]:
    """A batch cut into pieces, as views."""
    for start in range(0, len(batch), rows):
        yield batch.slice(start, start + rows)

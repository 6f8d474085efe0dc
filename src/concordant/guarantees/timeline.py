"""A counterexample as a time line: events as they arrive, and beside them what each process does.

Plain text in columns. It shows what happened; the sentence of the verdict says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from concordant.check.verdict import Violation
from concordant.errors import InvariantViolation
from concordant.guarantees.scene import Played, Scene, play
from concordant.guarantees.search import Counterexample
from concordant.guarantees.stored import formula_text
from concordant.model.event import Event
from concordant.model.history import Row
from concordant.model.subscription import Subscription, duration_text

ROUND_COUNT = 2
"""Rounds of a cycle that are shown before it goes on for ever."""


def timeline(example: Counterexample) -> str:
    """The subscribers, what happened, and what is violated."""
    scene, violation = example.scene, violation_of(example)
    lines = [f"  {one.name}: {question_text(one)}" for one in scene.subscribers]
    lines += ["", *_table(scene, _played(scene)), "", f"  {violation.sentence}."]
    return "\n".join(lines)


def violation_of(example: Counterexample) -> Violation:
    """What the example violates; it violates something, or it would be no counterexample."""
    if example.verdict.violation is None:
        raise InvariantViolation("a counterexample without a violation")
    return example.verdict.violation


def question_text(subscription: Subscription) -> str:
    """A subscription in one line."""
    return " ".join([formula_text(subscription), *subscription.clauses])


def as_value(example: Counterexample) -> dict[str, Any]:
    """The same for programs."""
    scene = example.scene
    deliveries: dict[str, list[tuple[str, ...]]] = {one.name: [] for one in scene.subscribers}
    for row in _shown(scene, _played(scene).rows):
        if row.step == "deliver":
            deliveries[row.process].append(row.events)
    return {
        "subscribers": {one.name: question_text(one) for one in scene.subscribers},
        "events": [
            {"id": e.id, "topic": e.topic, "time": e.time, "attributes": dict(e.attributes)}
            for e in scene.events
        ],
        "repeated": scene.cycle_count,
        "arrivals": {
            name: [scene.events[i].id for i in order] for name, order in scene.arrivals.items()
        },
        "delivered": deliveries,
        "violation": violation_of(example).sentence,
    }


def _played(scene: Scene) -> Played:
    played = play(scene)
    if played is None:
        raise InvariantViolation("a counterexample that does not come to an end")
    return played


def _shown(scene: Scene, rows: Sequence[Row]) -> Iterator[Row]:
    """The rows of the events that are shown: of an endless input, the first rounds."""
    most = len(scene.events) + scene.cycle_count * (ROUND_COUNT - 1)
    count = 0
    for row in rows:
        count += row.step == "publish"
        if count > most:
            return
        yield row


def _table(scene: Scene, played: Played) -> list[str]:
    names = [one.name for one in scene.subscribers]
    table = [["", "event", "", *(f"{name} delivers" for name in names)]]
    start = len(scene.events) - scene.cycle_count
    for row in _shown(scene, played.rows):
        if row.step == "publish" and row.event is not None:
            again = "↻" if scene.cycle_count and len(table) > start else ""
            table.append(
                [again, row.events[0], _event_text(row.event, scene), *("" for _ in names)]
            )
        elif row.step == "deliver":
            column = 3 + names.index(row.process)
            relation = f"({', '.join(row.events)})"
            table[-1][column] = f"{table[-1][column]} {relation}".strip()
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines = [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
    if scene.cycle_count:
        lines.append("  ↻ the events marked so come again and again")
    for name, order in scene.arrivals.items():
        lines.append(
            f"  {name} gets them in the order {', '.join(scene.events[i].id for i in order)}"
        )
    return lines


def _event_text(event: Event, scene: Scene) -> str:
    words = [event.topic, *(f"{name}={value}" for name, value in event.attributes.items())]
    if any(one.within_us is not None for one in scene.subscribers):
        words.append(f"at {duration_text(event.time)}")
    return " ".join(words)

"""Planted bugs for the checkers of the correlation properties: engines that break one promise.

Each bug belongs to a property and to a policy that keeps it. The engine with the bug violates the
property, and keeps the others that are named beside it: so the checker sees this property and not
merely that something is odd. Bugs that the comparison with the oracle knows are used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import pytest

from concordant.check.properties import PROPERTIES
from concordant.check.verdict import Verdict
from concordant.correlate import consumption, engine, matching
from concordant.correlate.consumption import after_matched, after_slide, after_suffix
from concordant.correlate.engine import Engine
from concordant.correlate.matching import Entry
from concordant.guarantees.cast import cast
from concordant.guarantees.draw import draw_subscription
from concordant.guarantees.scene import Played
from concordant.guarantees.search import search
from concordant.model.subscription import Consume, Match, Policy
from tests.detection.bugs import BUGS as KNOWN
from tests.detection.bugs import Plant, around

DRAW_COUNT_MIN, DRAW_COUNT_MAX = 25, 400
"""Subscriptions that are drawn for a bug, each tried on a few scenes: so many at least, so that the
other properties are exercised, and so many at most."""

FIRST = Policy()
SAFETY = tuple(name for name, one in PROPERTIES.items() if not one.is_liveness)


@dataclass(frozen=True)
class PropertyBug:
    """An engine that breaks one promise of a policy."""

    name: str
    breaks: str
    policy: Policy
    plant: Plant
    spares: tuple[str, ...]
    """Properties that hold nevertheless."""


BUGS: list[PropertyBug] = []


def bug(
    name: str, breaks: str, policy: Policy, spares: tuple[str, ...]
) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(PropertyBug(name, breaks, policy, plant, spares))
        return plant

    return add


def known(name: str) -> Plant:
    """A bug that the comparison with the oracle finds too."""
    (found,) = [one for one in KNOWN if one.name == name]
    return found.plant


def violations(
    which: PropertyBug, plant: Plant, names: tuple[str, ...]
) -> tuple[dict[str, Verdict], Counter[str]]:
    """The first violation of each property, and how often each had something to say."""
    rng = Random(which.name)
    found: dict[str, Verdict] = {}
    exercised: Counter[str] = Counter()

    def watch(_: Played, verdict: Verdict) -> None:
        exercised[verdict.name] += bool(verdict.checked)

    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for number in range(DRAW_COUNT_MAX if plant is which.plant else DRAW_COUNT_MIN):
            if number >= DRAW_COUNT_MIN and which.breaks in found:
                break
            left = [name for name in names if name not in found]
            subscribers = cast(draw_subscription(rng, which.policy))
            for name, example in search(subscribers, left, rng, scene_count=4, watch=watch).items():
                found[name] = example.verdict
    return found, exercised


def _but(*names: str) -> tuple[str, ...]:
    return tuple(name for name in SAFETY if name not in names)


@bug(
    "a tumbling window slides",
    "No Duplication",
    Policy(contiguous=True),
    _but("No Duplication", "Covering Agreement"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(consumption.REMAINING, Consume.PREFIX, after_slide)


@bug(
    "every relation is delivered twice",
    "No Duplication′",
    Policy(contiguous=True, consume=Consume.SLIDE),
    _but("No Duplication", "No Duplication′", "Covering Agreement"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    def give(original: Any, self: Any, *args: Any) -> Any:
        for relation in original(self, *args):
            yield relation
            yield relation

    around(patch, Engine, "_give", give)


@bug(
    "a relation's first event is one that nobody published",
    "No Creation",
    FIRST,
    _but("No Creation", "Covering Agreement"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    def give(original: Any, self: Any, *args: Any) -> Any:
        for relation in original(self, *args):
            ghost = msgspec.structs.replace(relation.events[0], id=f"ghost-{relation.events[0].id}")
            yield msgspec.structs.replace(relation, events=(ghost, *relation.events[1:]))

    around(patch, Engine, "_give", give)


@bug(
    "binary predicates are not tested",
    "Admission",
    FIRST,
    _but("Admission", "Covering Agreement"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    around(patch, matching, "pair_holds", lambda original, *args: True)


@bug(
    "after two relations with binary predicates there are no more",
    "Conjunction Validity",
    FIRST,
    _but("Covering Agreement"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    def match(
        original: Any, self: Any, plan: Any, conjunction: Any, state: Any, mine: Any, *rest: Any
    ) -> Any:
        delivered = mine.ordinals.get(rest[0], 0)
        if delivered >= 2 and any(conjunction.whole.binary):
            return None
        return original(self, plan, conjunction, state, mine, *rest)

    around(patch, Engine, "_match", match)


@bug(
    "what is queued behind a match is removed",
    "Event Validity",
    Policy(consume=Consume.MATCHED),
    ("No Duplication", "No Creation", "Admission", "Conjunction Validity", "Conjunction Agreement"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(consumption.REMAINING, Consume.MATCHED, after_suffix)


@bug(
    "one subscriber takes the latest events",
    "Conjunction Agreement",
    FIRST,
    _but("Conjunction Agreement", "Covering Agreement"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    def search_(original: Any, self: Any, plan: Any, *rest: Any) -> Any:
        if plan.name != "p2":
            return original(self, plan, *rest)
        with pytest.MonkeyPatch.context() as inner:
            around(inner, engine, "find", _recent)
            return original(self, plan, *rest)

    def _recent(original: Any, part: Any, queues: Any, *, policy: Any, **rest: Any) -> Any:
        recent = msgspec.structs.replace(policy, match=Match.RECENT)
        return original(part, queues, policy=recent, **rest)

    around(patch, Engine, "_search", search_)


BUGS.append(
    PropertyBug(
        "staged is matched as a whole",
        "Covering Agreement",
        Policy(Match.RECENT, staged=True),
        known("staged is matched as a whole"),
        _but("Covering Agreement"),
    )
)


def _of_the_same_source(queue: list[Entry], matched: list[Entry]) -> list[Entry]:
    """Prefix disposal that forgets only events of the sources of the matched ones."""
    gone = {entry.number for entry in matched}
    sources = {entry.event.source for entry in matched}
    last = matched[-1].number
    return [
        entry
        for entry in queue
        if entry.number > last or (entry.number not in gone and entry.event.source not in sources)
    ]


def _plant_per_source(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(consumption.REMAINING, Consume.PREFIX, _of_the_same_source)


for _broken in ("Type Total Order", "Type Local Order"):
    BUGS.append(
        PropertyBug(
            f"prefix removes earlier events of the same source only: {_broken}",
            _broken,
            FIRST,
            _plant_per_source,
            ("No Duplication", "No Creation", "Admission", "Type FIFO Order"),
        )
    )

BUGS.append(
    PropertyBug(
        "staged parts are joined last in first out",
        "Conjunction Total Order",
        Policy(staged=True, consume=Consume.MATCHED),
        known("staged parts are joined last in first out"),
        ("No Duplication", "No Creation", "Admission", "Conjunction Agreement"),
    )
)

BUGS.append(
    PropertyBug(
        "conjunctions take an event in the order of the text",
        "Disjunction Total Order",
        FIRST,
        known("conjunctions take an event in the order of the text"),
        _but("Disjunction Total Order", "Covering Agreement"),
    )
)

for _broken in ("Type FIFO Order", "Type Causal Order"):

    @bug(
        f"prefix removes the matched events only: {_broken}",
        _broken,
        FIRST,
        ("No Duplication", "No Creation", "Admission", "Conjunction Agreement"),
    )
    def _(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(consumption.REMAINING, Consume.PREFIX, after_matched)

"""Planted bugs in the clear engine, each a plausible misreading of `correlation.md`.

A bug is planted by patching pieces of the engine while a context is open; the oracle shares none of
these pieces. `cases_to_find` says how many seeded cases the comparison needs to notice it.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any

import msgspec
import pytest

from concordant.correlate import consumption, engine, matching
from concordant.correlate.engine import Engine
from concordant.correlate.matching import Entry
from concordant.correlate.plan import Plan, SubscriptionPlan, compile_plan
from concordant.correlate.state import EngineState
from concordant.model import expression
from concordant.model.event import Event
from concordant.model.expression import evaluate
from concordant.model.predicate import Comparison
from concordant.model.subscription import Consume, Match, Policy
from tests.campaign.compare import (
    case_of,
    cuts_of_case,
    difference,
    made_plain,
    oracle_relations,
    tightened,
    written,
)
from tests.campaign.kernel import places_of_case, summaries
from tests.detection.planting import Plant, planted
from tests.generators import ALL_POLICIES, Case

CASE_COUNT_MAX = 2_000
"""A bug that survives so many cases is not caught."""


@dataclass(frozen=True)
class Bug:
    """A sentence that is false of the specification, and how to make it true of the engine."""

    name: str
    plant: Plant
    needs: str = ""
    """What a case must have for the bug to show, if that is rare: see `_sharpened`."""


LEFT_OVER = "a match that slide leaves behind, in a tight case"
LARGE = "numbers that a float cannot tell apart"
PLAIN = "the first match, its prefix consumed, one event per topic"

BUGS: list[Bug] = []


def bug(name: str, *, needs: str = "") -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(Bug(name, plant, needs))
        return plant

    return add


_SLIDING = tuple(p for p in ALL_POLICIES if p.consume is Consume.SLIDE and not p.contiguous)


@dataclass(frozen=True)
class Tried:
    """A case, where it is cut, and what the oracle says: all bugs are tried on the same ones."""

    case: Case
    cuts: frozenset[str]
    """Of the engine."""
    places: frozenset[str]
    """Of the kernel."""
    written: list[str]
    summaries: list[str]


@lru_cache(maxsize=2 * CASE_COUNT_MAX)
def _tried(seed: int, number: int, needs: str) -> Tried:
    policies = {LEFT_OVER: _SLIDING, PLAIN: (Policy(),)}.get(needs, ALL_POLICIES)
    policy = policies[number % len(policies)]
    case = _sharpened(case_of(seed, policy, number), needs, number)
    relations = oracle_relations(case)
    return Tried(
        case,
        cuts_of_case(seed, policy, number, case),
        places_of_case(seed, policy, number, case),
        written(relations),
        summaries(relations),
    )


def _sharpened(case: Case, needs: str, number: int) -> Case:
    if needs == LEFT_OVER:
        return tightened(case)
    if needs == PLAIN:
        return made_plain(case, Random(number))
    if needs == LARGE:
        return replace(case, events=tuple(map(_with_large_numbers, case.events)))
    return case


def _with_large_numbers(event: Event) -> Event:
    """Small numbers of `a` and `b` moved to where every second integer is no float."""
    moved = {
        name: value + 2**53
        for name in ("a", "b")
        if isinstance(value := event.attributes.get(name), int | float) and abs(value) < 9
    }
    return msgspec.structs.replace(event, attributes={**event.attributes, **moved})


def engine_difference(tried: Tried) -> str | None:
    """How the engine differs from the oracle."""
    return difference(tried.case, tried.cuts, tried.written)


def cases_to_find(
    which: Bug,
    *,
    seed: int = 1,
    case_count_max: int = CASE_COUNT_MAX,
    compared: Callable[[Tried], str | None] = engine_difference,
) -> int | None:
    """How many cases it took until engine and oracle differed; None if they never did."""
    for number in range(case_count_max):
        tried = _tried(seed, number, which.needs)
        with planted(which):
            if compared(tried) is not None:
                return number + 1
    return None


# --- help for planting ----------------------------------------------------------------------------


def around(patch: pytest.MonkeyPatch, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace `owner.name` by `wrapper(original, *arguments)`."""
    original = getattr(owner, name)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    patch.setattr(owner, name, replaced)


def _with_plan(patch: pytest.MonkeyPatch, change: Callable[[Plan], Plan]) -> None:
    def init(original: Any, self: Engine, plan: Plan, **options: Any) -> None:
        original(self, change(plan), **options)

    around(patch, Engine, "__init__", init)


def _each(change: Callable[[SubscriptionPlan], SubscriptionPlan]) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, subscriptions=tuple(map(change, plan.subscriptions)))


# --- matching -------------------------------------------------------------------------------------


@bug("recent takes the earliest event")
def _(patch: pytest.MonkeyPatch) -> None:
    def find(original: Any, part: Any, queues: Any, *, policy: Any, **rest: Any) -> Any:
        first = msgspec.structs.replace(policy, match=Match.FIRST)
        return original(part, queues, policy=first, **rest)

    around(patch, engine, "find", find)


@bug("first takes the latest event")
def _(patch: pytest.MonkeyPatch) -> None:
    def find(original: Any, part: Any, queues: Any, *, policy: Any, **rest: Any) -> Any:
        recent = msgspec.structs.replace(policy, match=Match.RECENT)
        return original(part, queues, policy=recent, **rest)

    around(patch, engine, "find", find)


@bug("neighbours are neighbours in the queue, not in the stream")
def _(patch: pytest.MonkeyPatch) -> None:
    # The thesis's figure 4.4 does this.
    def find(original: Any, part: Any, queues: Any, *, pinned: Any, **rest: Any) -> Any:
        real: dict[int, Entry] = {}
        numbered: dict[str, list[Entry]] = {}
        for topic, queue in queues.items():
            numbered[topic] = [
                msgspec.structs.replace(entry, number=place) for place, entry in enumerate(queue)
            ]
            real.update(zip(map(id, numbered[topic]), queue, strict=True))
        pins = [e for queue in numbered.values() for e in queue if real[id(e)] is pinned]
        taken = original(part, numbered, pinned=pins[0] if pins else None, **rest)
        return None if taken is None else [real[id(entry)] for entry in taken]

    around(patch, engine, "find", find)


@bug("contiguous is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    def find(original: Any, part: Any, queues: Any, *, policy: Any, **rest: Any) -> Any:
        loose = msgspec.structs.replace(policy, contiguous=False)
        return original(part, queues, policy=loose, **rest)

    around(patch, engine, "find", find)


@bug("instance numbers need not follow stream order")
def _(patch: pytest.MonkeyPatch) -> None:
    def in_stream_order(
        original: Any, part: Any, slot: int, entry: Any, bound: Any, contiguous: bool
    ) -> bool:
        if contiguous:
            return bool(original(part, slot, entry, bound, contiguous))
        return all(bound[i] is not entry for i in part.slots_of_topic[part.slots[slot].topic])

    around(patch, matching, "_in_stream_order", in_stream_order)


@bug("two slots may take the same event")
def _(patch: pytest.MonkeyPatch) -> None:
    def in_stream_order(
        original: Any, part: Any, slot: int, entry: Any, bound: Any, contiguous: bool
    ) -> bool:
        others = [None if taken is entry else taken for taken in bound]
        return bool(original(part, slot, entry, others, contiguous))

    around(patch, matching, "_in_stream_order", in_stream_order)


@bug("the given topic order is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    _with_plan(
        patch, lambda plan: compile_plan([p.subscription for p in plan.subscriptions], plan.schemas)
    )


# --- admission and partitions ---------------------------------------------------------------------


@bug("an event is admitted only if all instances would take it")
def _(patch: pytest.MonkeyPatch) -> None:
    def match(
        original: Any, self: Any, plan: Any, conjunction: Any, state: Any, mine: Any, *rest: Any
    ) -> Any:
        _, entry = rest
        part = conjunction.parts[conjunction.part_of_topic[entry.event.topic]]
        slots = part.slots_of_topic[entry.event.topic]
        if not all(matching.fits(entry, part.unary[i]) for i in slots):
            return None
        return original(self, plan, conjunction, state, mine, *rest)

    around(patch, Engine, "_match", match)


@bug("a null partition value is merged with zero")
def _(patch: pytest.MonkeyPatch) -> None:
    def partition_value(original: Any, event: Any, names: Any) -> Any:
        return tuple(0 if value is None else value for value in original(event, names))

    around(patch, engine, "partition_value", partition_value)


@bug("partition by looks at its first attribute only")
def _(patch: pytest.MonkeyPatch) -> None:
    def partition_value(original: Any, event: Any, names: Any) -> Any:
        key = original(event, names)
        return (*key[:1], *[None] * len(key[1:]))

    around(patch, engine, "partition_value", partition_value)


# --- consumption ----------------------------------------------------------------------------------


def _remaining(patch: pytest.MonkeyPatch, consume: Consume, function: Any) -> None:
    patch.setitem(engine.REMAINING, consume, function)


@bug("prefix removes only the matched events")
def _(patch: pytest.MonkeyPatch) -> None:
    _remaining(patch, Consume.PREFIX, consumption.after_matched)


@bug("matched removes what stands before as well")
def _(patch: pytest.MonkeyPatch) -> None:
    _remaining(patch, Consume.MATCHED, consumption.after_prefix)


@bug("suffix removes only the matched events")
def _(patch: pytest.MonkeyPatch) -> None:
    _remaining(patch, Consume.SUFFIX, consumption.after_matched)


@bug("slide tumbles")
def _(patch: pytest.MonkeyPatch) -> None:
    _remaining(patch, Consume.SLIDE, consumption.after_prefix)


@bug("slide forgets that a match may be left over")
def _(patch: pytest.MonkeyPatch) -> None:
    def search(original: Any, self: Any, *args: Any) -> Any:
        args[4].leftover = False
        return original(self, *args)

    around(patch, Engine, "_search", search)


@bug("a left-over match is dropped as too old", needs=LEFT_OVER)
def _(patch: pytest.MonkeyPatch) -> None:
    def expire(original: Any, self: Any, *args: Any) -> None:
        now = args[3]
        leftover, now.leftover = now.leftover, False
        original(self, *args)
        now.leftover = leftover

    around(patch, Engine, "_expire", expire)


# --- disjunctions and stages ----------------------------------------------------------------------


@bug("conjunctions take an event in the order of the text")
def _(patch: pytest.MonkeyPatch) -> None:
    def in_text_order(plan: SubscriptionPlan) -> SubscriptionPlan:
        conjunctions = tuple(sorted(plan.conjunctions, key=lambda c: c.number))
        return replace(plan, conjunctions=conjunctions)

    _with_plan(patch, _each(in_text_order))


@bug("an event completes one relation of a disjunction at most")
def _(patch: pytest.MonkeyPatch) -> None:
    def give(original: Any, self: Any, *args: Any) -> Any:
        return iter(list(original(self, *args))[:1])

    around(patch, Engine, "_give", give)


@bug("staged is matched as a whole")
def _(patch: pytest.MonkeyPatch) -> None:
    def whole(plan: SubscriptionPlan) -> SubscriptionPlan:
        conjunctions = tuple(
            replace(c, parts=(c.whole,), part_of_topic=dict.fromkeys(c.part_of_topic, 0))
            for c in plan.conjunctions
        )
        return replace(plan, conjunctions=conjunctions)

    _with_plan(patch, _each(whole))


@bug("staged parts are joined last in first out")
def _(patch: pytest.MonkeyPatch) -> None:
    def concatenate(original: Any, self: Any, plan: Any, conjunction: Any, parts: Any) -> Any:
        for part in parts:
            part.finished.reverse()
        taken = original(self, plan, conjunction, parts)
        for part in parts:
            part.finished.reverse()
        return taken

    around(patch, Engine, "_concatenate", concatenate)


# --- values ---------------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


@bug("null equals null")
def _(patch: pytest.MonkeyPatch) -> None:
    def holds(original: Any, predicate: Comparison, read: Any) -> bool:
        if evaluate(predicate.left, read) is None and evaluate(predicate.right, read) is None:
            return predicate.op in ("=", "<=", ">=")
        return bool(original(predicate, read))

    around(patch, matching, "holds", holds)


@bug("null differs from every value")
def _(patch: pytest.MonkeyPatch) -> None:
    def holds(original: Any, predicate: Comparison, read: Any) -> bool:
        left, right = evaluate(predicate.left, read), evaluate(predicate.right, read)
        if predicate.op == "!=" and (left is None) != (right is None):
            return True
        return bool(original(predicate, read))

    around(patch, matching, "holds", holds)


@bug("NaN differs from every value")
def _(patch: pytest.MonkeyPatch) -> None:
    def holds(_: Any, predicate: Comparison, read: Any) -> bool:
        left, right = evaluate(predicate.left, read), evaluate(predicate.right, read)
        return left is not None and right is not None and _COMPARE[predicate.op](left, right)

    around(patch, matching, "holds", holds)


@bug("integers are compared with floats after rounding", needs=LARGE)
def _(patch: pytest.MonkeyPatch) -> None:
    def holds(original: Any, predicate: Comparison, read: Any) -> bool:
        left, right = evaluate(predicate.left, read), evaluate(predicate.right, read)
        if isinstance(left, float) != isinstance(right, float) and None not in (left, right):
            left, right = float(left or 0), float(right or 0)
            return left == left and right == right and _COMPARE[predicate.op](left, right)
        return bool(original(predicate, read))

    around(patch, matching, "holds", holds)


@bug("integer overflow wraps round")
def _(patch: pytest.MonkeyPatch) -> None:
    def calculate(original: Any, op: str, left: Any, right: Any) -> Any:
        if op != "/" and isinstance(left, int) and isinstance(right, int):
            exact = {"+": left + right, "-": left - right, "*": left * right}[op]
            return (exact + 2**63) % 2**64 - 2**63
        return original(op, left, right)

    around(patch, expression, "calculate", calculate)


@bug("division by zero is zero")
def _(patch: pytest.MonkeyPatch) -> None:
    def calculate(original: Any, op: str, left: Any, right: Any) -> Any:
        return 0.0 if op == "/" and right == 0 else original(op, left, right)

    around(patch, expression, "calculate", calculate)


# --- bounds ---------------------------------------------------------------------------------------


@bug("within is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    def unbounded(plan: SubscriptionPlan) -> SubscriptionPlan:
        asked = msgspec.structs.replace(plan.subscription, within_us=None)
        return replace(plan, subscription=asked)

    _with_plan(patch, _each(unbounded))


@bug("within leaves out the bound itself")
def _(patch: pytest.MonkeyPatch) -> None:
    def near(_: Any, entry: Entry, bound: Any, within_us: int | None) -> bool:
        return within_us is None or all(
            abs(entry.event.time - other.event.time) < within_us for other in bound if other
        )

    around(patch, matching, "_near", near)


@bug("events are dropped as too old though times go back and forth")
def _(patch: pytest.MonkeyPatch) -> None:
    def init(original: Any, self: Engine, plan: Plan, **_: Any) -> None:
        original(self, plan, time_ordered=True)

    around(patch, Engine, "__init__", init)


@bug("the cap acts before the search")
def _(patch: pytest.MonkeyPatch) -> None:
    def search(
        original: Any, self: Any, plan: Any, conjunction: Any, state: Any, *rest: Any
    ) -> Any:
        _, now, entry = rest
        self._bound_queue(plan, conjunction, state, now, entry.event)
        return original(self, plan, conjunction, state, *rest)

    around(patch, Engine, "_search", search)


@bug("the cap on all events counts what is too old", needs=LEFT_OVER)
def _(patch: pytest.MonkeyPatch) -> None:
    def bound_all(original: Any, self: Any, *args: Any) -> None:
        ordered, self._time_ordered = self._time_ordered, False
        original(self, *args)
        self._time_ordered = ordered

    around(patch, Engine, "_bound_all", bound_all)


@bug("a cap is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    around(patch, Engine, "_bound_queue", lambda original, *args: None)


# --- derived events and state ---------------------------------------------------------------------


class _Stack(deque[Any]):
    def popleft(self) -> Any:
        return self.pop()


@bug("derived events overtake each other")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "deque", _Stack)


@bug("a derived event has the time of its oldest event")
def _(patch: pytest.MonkeyPatch) -> None:
    def derived(original: Any, emit: Any, slots: Any, relation: Any, time: int) -> Any:
        return original(emit, slots, relation, min(event.time for event in relation.events))

    around(patch, engine, "derived_event", derived)


def _forget(patch: pytest.MonkeyPatch, forget: Callable[[EngineState], None]) -> None:
    def unpack(original: Any, plan: Any, data: bytes) -> EngineState:
        state: EngineState = original(plan, data)
        forget(state)
        return state

    around(patch, engine, "unpack", unpack)


def _parts(state: EngineState) -> Iterator[Any]:
    for one in state.subscriptions:
        for conjunction in one.conjunctions:
            for parts in conjunction.partitions.values():
                yield from parts


@bug("a loaded state forgets that a match may be left over")
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(state: EngineState) -> None:
        for part in _parts(state):
            part.leftover = False

    _forget(patch, forget)


@bug("a loaded state forgets finished parts")
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(state: EngineState) -> None:
        for part in _parts(state):
            part.finished.clear()

    _forget(patch, forget)


@bug("a loaded state numbers streams from the start")
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(state: EngineState) -> None:
        for one in state.subscriptions:
            one.numbers.clear()

    _forget(patch, forget)


@bug("a loaded state numbers relations from the start")
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(state: EngineState) -> None:
        for one in state.subscriptions:
            one.positions.clear()

    _forget(patch, forget)


@bug("a loaded state forgets the position in the total order")
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(state: EngineState) -> None:
        state.position = 0

    _forget(patch, forget)

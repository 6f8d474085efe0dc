"""A saved state goes on where it stopped, and only under the plan it was saved under."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from concordant.correlate.engine import Engine
from concordant.correlate.plan import Plan, compile_plan
from concordant.correlate.state import MAGIC, VERSION, partition_value
from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.model.kind import Kind, Value
from concordant.model.subscription import Emit, Subscription
from concordant.model.topic import Topic, schemas
from tests.examples import TOPICS, A, B, C, both, compare, policy, stream

ASKED = Subscription(
    "S",
    (both(compare(A, "=", B), C), both(compare(A, "<", B))),
    policy("staged slide"),
    emit=Emit("D"),
)
EVENTS = stream("A1 A2 B1 C B2 A1 C B1 A0 B2 C C")


def plan_for(*asked: Subscription, topics: tuple[Topic, ...] = TOPICS) -> Plan:
    return compile_plan(asked, schemas(topics))


def saved_under(plan: Plan) -> bytes:
    engine = Engine(plan)
    engine.step(EVENTS[:6])
    return engine.save()


@pytest.mark.parametrize("cut", range(len(EVENTS) + 1))
def test_a_state_saved_in_the_middle_goes_on_as_if_nothing_had_happened(cut: int) -> None:
    plan = plan_for(ASKED)
    whole = Engine(plan)
    expected = whole.step(EVENTS)
    before, after = Engine(plan), Engine(plan)
    found = before.step(EVENTS[:cut])
    after.load(before.save())
    assert found + after.step(EVENTS[cut:]) == expected
    assert len(expected) > 4
    assert after.counters == whole.counters
    assert after.save() == whole.save()


def test_a_partitioned_state_keeps_null_apart_from_texts() -> None:
    values: list[Value] = ["x", None, "", "null"]
    plan = plan_for(Subscription("S", (both(A, B),), partition_by=("k",)))
    engine, other = Engine(plan), Engine(plan)
    engine.step(Event("A", "p", i, i, {"k": k}) for i, k in enumerate(values))
    other.load(engine.save())
    found = other.step(Event("B", "q", i, 9 + i, {"k": k}) for i, k in enumerate(values))
    assert [(r.key, r.event_ids) for r in found] == [
        ((k,), (f"p:{i}", f"q:{i}")) for i, k in enumerate(values)
    ]


def test_saving_does_not_change_the_state() -> None:
    engine = Engine(plan_for(ASKED))
    engine.step(EVENTS[:5])
    assert engine.save() == engine.save()


def test_a_load_replaces_what_was_there() -> None:
    plan = plan_for(ASKED)
    fresh, used = Engine(plan), Engine(plan)
    used.step(EVENTS)
    used.load(fresh.save())
    assert used.step(EVENTS) == fresh.step(EVENTS)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        Subscription("S", (both(A),)),
        replace(ASKED, name="T"),
        replace(ASKED, policy=policy("staged prefix")),
        replace(ASKED, policy=policy("slide")),
        replace(ASKED, within_us=5),
        replace(ASKED, queue_count_max=5),
        replace(ASKED, partition_by=("k",)),
        replace(ASKED, conjunctions=ASKED.conjunctions[:1]),
    ],
    ids=["predicates", "name", "consumption", "staged", "within", "cap", "partition", "fewer"],
)
def test_the_state_of_another_subscription_is_refused(other: Subscription) -> None:
    data = saved_under(plan_for(ASKED))
    with pytest.raises(UsageError, match=r"saved by other subscriptions or schemas \(S\)"):
        Engine(plan_for(other)).load(data)


def test_the_state_of_fewer_subscriptions_is_refused() -> None:
    data = saved_under(plan_for(ASKED))
    with pytest.raises(UsageError, match="saved by other subscriptions"):
        Engine(plan_for(ASKED, Subscription("T", (both(A),)))).load(data)


def test_the_state_of_another_schema_is_refused() -> None:
    data = saved_under(plan_for(ASKED))
    changed = (Topic("A", {"a": Kind.FLOAT, "k": Kind.STRING}), *TOPICS[1:])
    with pytest.raises(UsageError, match="other subscriptions or schemas"):
        Engine(plan_for(ASKED, topics=changed)).load(data)


def test_the_state_of_another_version_is_refused() -> None:
    data = bytearray(saved_under(plan_for(ASKED)))
    data[len(MAGIC)] = VERSION + 1
    with pytest.raises(UsageError, match=f"saved in version {VERSION + 1}, and this is version"):
        Engine(plan_for(ASKED)).load(bytes(data))


def test_a_truncated_state_is_refused_wherever_it_ends() -> None:
    plan = plan_for(ASKED)
    data = saved_under(plan)
    for length in range(len(data)):
        with pytest.raises(UsageError, match=r"not a saved state|damaged"):
            Engine(plan).load(data[:length])


def test_a_state_with_a_flipped_bit_is_refused_wherever_it_is() -> None:
    plan = plan_for(ASKED)
    data = saved_under(plan)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1
        with pytest.raises(UsageError, match=r"not a saved state|damaged|in version"):
            Engine(plan).load(bytes(flipped))


def test_a_state_with_something_behind_it_is_refused() -> None:
    plan = plan_for(ASKED)
    with pytest.raises(UsageError, match="damaged"):
        Engine(plan).load(saved_under(plan) + b"\0")


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"{}", MAGIC], ids=["empty", "file", "json", "head"]
)
def test_what_is_no_state_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="these bytes are not a saved state"):
        Engine(plan_for(ASKED)).load(data)


def test_a_refused_state_leaves_the_engine_as_it_was() -> None:
    plan = plan_for(ASKED)
    engine, other = Engine(plan), Engine(plan)
    expected = other.step(EVENTS)
    found = engine.step(EVENTS[:4])
    with pytest.raises(UsageError):
        engine.load(b"nothing")
    assert found + engine.step(EVENTS[4:]) == expected


# --- partition values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (math.nan, None), (-0.0, 0.0), ("", ""), (False, False), (math.inf, math.inf)],
)
def test_a_partition_value_has_one_form(value: Value, expected: Value) -> None:
    (found,) = partition_value(Event("A", "p", 1, 0, {"k": value}), ("k",))
    assert repr(found) == repr(expected)


def test_a_missing_attribute_and_reserved_names_can_partition() -> None:
    event = Event("A", "p", 3, 7)
    assert partition_value(event, ("k", "source", "seq", "time")) == (None, "p", 3, 7)

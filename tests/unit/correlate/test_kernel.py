"""The kernel, rule by rule: what a batch, a state, a value or a full buffer must not change."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from concordant.correlate import found, program, stage
from concordant.correlate.columns import Batch
from concordant.correlate.compiled import layout as at
from concordant.correlate.engine import Engine
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import Plan, SubscriptionPlan, compile_plan
from concordant.correlate.state import MAGIC, VERSION
from concordant.errors import UsageError
from concordant.language import check, parse
from concordant.model.event import Event
from concordant.model.expression import Attribute, Constant, Slot
from concordant.model.kind import Kind, Value
from concordant.model.predicate import Comparison
from concordant.model.subscription import Emit, Field, Subscription
from concordant.model.topic import Topic, schemas
from tests.campaign.compare import case_of
from tests.campaign.kernel import differs, places_of_case, summaries
from tests.examples import (
    A2,
    A3,
    EXAMPLES,
    TOPICS,
    A,
    B,
    C,
    Example,
    attribute,
    both,
    compare,
    policy,
    stream,
    then,
)
from tests.generators import ALL_POLICIES

D, E = Slot("D", 1), Slot("E", 1)
CHAINS = (
    "A.x < B.x",
    "A.x >= B.x",
    "A.x < B.x and B.y > C.y",
    "A.x <= B.y and B.x >= C.x and C.y < D.y",
    "A.x < B.x and C.x > D.y",
    "A.x < B.x and C",
    "A.x < B.x and A.y > 2 and B.y < C.y",
)
"""Questions that bind each topic to one before it, in one line or in several."""
PAIR = compare(A, "=", B)


def plan_for(*asked: Subscription, topics: Sequence[Topic] = TOPICS) -> Plan:
    return compile_plan(asked, schemas(topics))


def taken(kernel: Kernel, events: Sequence[Event], sizes: Iterable[int] = ()) -> list[str]:
    """Relations of events that arrive in batches of these sizes, and of the rest as one."""
    known = {**dict.fromkeys(event.topic for event in events), **kernel.plan.schemas}
    given = [known[name] or Topic(name, {}) for name in known]
    base = [topic for topic in given if topic.name not in kernel.plan.topic_depth]
    found: list[str] = []
    start = 0
    for size in [*sizes, len(events)]:
        found += summaries(kernel.step(Batch.of(events[start : start + size], base)))
        start += size
    return found


def of_engine(plan: Plan, events: Sequence[Event]) -> list[str]:
    return summaries(Engine(plan).step(events))


def _stepped(plan: Plan, events: Sequence[Event]) -> Engine:
    engine = Engine(plan)
    engine.step(events)
    return engine


def counted(one: Kernel | Engine) -> dict[str, tuple[int, ...]]:
    return {name: (c.events, c.admitted, c.relations, c.capped) for name, c in one.counters.items()}


# --- the examples, however they are cut -----------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_kernel_gives_the_relations_written_by_hand(example: Example) -> None:
    position = {event.id: place for place, event in enumerate(example.events, start=1)}
    plan = compile_plan(example.subscriptions, schemas(example.topics))
    found = list(Kernel(plan).step(Batch.of(example.events, example.topics)))
    for name, expected in example.expected.items():
        delivered = [r for r in found if r.subscription == name]
        assert tuple(tuple(position[i] for i in r.event_ids) for r in delivered) == expected


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_gives_the_same_in_batches_of_any_size(example: Example) -> None:
    plan = compile_plan(example.subscriptions, schemas(example.topics))
    expected = of_engine(plan, example.events)
    rng = Random(example.name)
    for sizes in ([1] * len(example.events), [rng.randint(0, 3) for _ in example.events], []):
        assert taken(Kernel(plan), example.events, sizes) == expected
        assert taken(Kernel(plan, scanned_count_max=0), example.events, sizes) == expected


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_gives_the_same_event_by_event(example: Example) -> None:
    plan = compile_plan(example.subscriptions, schemas(example.topics))
    kernel, engine = Kernel(plan), Engine(plan)
    found = [relation for event in example.events for relation in kernel.push(event)]
    assert summaries(found) == summaries(engine.step(example.events))
    assert counted(kernel) == counted(engine)


def test_a_float_goes_in_alone_as_it_does_in_a_batch() -> None:
    values = (0.0, -0.0, 1.5, -1.5, 5e-324, -5e-324, float("inf"), float("-inf"), float("nan"), 7)
    topics = [Topic("A", {"a": Kind.FLOAT}), Topic("B", {"a": Kind.FLOAT})]
    events = [
        Event(name, name, seq, 2 * seq + (name == "B"), {"a": value})
        for seq, (mine, other) in enumerate(product(values, values), 1)
        for name, value in (("A", mine), ("B", other))
    ]
    for operator in ("=", "<", ">="):
        plan = plan_for(Subscription("S", (both(compare(A, operator, B)),)), topics=topics)
        kernel = Kernel(plan)
        found = [relation for event in events for relation in kernel.push(event)]
        assert summaries(found) == taken(Kernel(plan), events)


def test_an_empty_batch_changes_nothing() -> None:
    kernel = Kernel(plan_for(Subscription("S", (both(PAIR),))))
    assert taken(kernel, []) == []
    assert len(taken(kernel, stream("A1 B1"), [0, 1, 0])) == 1


def test_a_topic_nobody_asks_for_may_have_no_schema_in_the_plan() -> None:
    plan = plan_for(Subscription("S", (both(A),)), topics=TOPICS[:1])
    kernel = Kernel(plan)
    assert len(taken(kernel, stream("B A C A"))) == 2
    assert kernel.counters["S"].events == 2


def test_a_topic_is_known_by_name_in_whatever_order_a_batch_lists_its_topics() -> None:
    plan = plan_for(Subscription("S", (both(then(A, B), PAIR),)))
    events = stream("B1 A1 B1 A2 B2")
    kernel = Kernel(plan)
    found = []
    for place, event in enumerate(events):
        topics = TOPICS[::-1] if place % 2 else TOPICS
        found += summaries(kernel.step(Batch.of([event], topics)))
    assert found == of_engine(plan, events)
    assert len(found) == 2


# --- state ----------------------------------------------------------------------------------------

ASKED = Subscription(
    "S",
    (both(compare(A, "=", B), C), both(compare(A, "<", B))),
    policy("staged slide"),
    emit=Emit("D"),
)
EVENTS = stream("A1 A2 B1 C B2 A1 C B1 A0 B2 C C")


def saved_under(plan: Plan) -> bytes:
    kernel = Kernel(plan)
    taken(kernel, EVENTS[:6])
    return kernel.save()


@pytest.mark.parametrize("cut", range(len(EVENTS) + 1))
def test_a_state_saved_in_the_middle_goes_on_as_if_nothing_had_happened(cut: int) -> None:
    plan = plan_for(ASKED, Subscription("T", (both(D, A),)), topics=[*TOPICS, Topic("D", {})])
    engine = Engine(plan)
    expected = summaries(engine.step(EVENTS))
    before, after = Kernel(plan), Kernel(plan)
    found = taken(before, EVENTS[:cut])
    after.load(before.save())
    assert found + taken(after, EVENTS[cut:]) == expected
    assert len(expected) > 8
    assert counted(after) == counted(engine)


def test_a_state_saved_while_a_match_is_left_over_delivers_it_after_the_load() -> None:
    plan = plan_for(Subscription("S", (both(compare(A2, "=", 1)),), policy("slide")))
    events = stream("A0 A0 A1 A0")
    before, after = Kernel(plan), Kernel(plan)
    found = taken(before, events[:3])
    after.load(before.save())
    assert [*found, *taken(after, events[3:])] == of_engine(plan, events)


def test_saving_does_not_change_what_comes_next() -> None:
    plan = plan_for(ASKED)
    kernel = Kernel(plan)
    found = []
    for event in EVENTS:
        assert kernel.save() == kernel.save()
        found += taken(kernel, [event])
    assert found == of_engine(plan, EVENTS)


@pytest.mark.parametrize("forgotten", [True, False])
def test_who_comes_after_whom_is_worked_out_anew_when_rows_get_other_numbers(
    monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """A key may be a row's number; here it would make an event look later than it is."""
    plan = plan_for(Subscription("S", (both(then(A, B), compare(B, "<", C)),), policy("prefix")))
    events = stream(" ".join(["A B1 C5"] * 5) + " A B1 B1 C5 C5 A")
    if not forgotten:
        queues = program._queues

        def kept(words: Sequence[int], conjunctions: Sequence[int]) -> list[int]:
            found = queues(words, conjunctions)
            return [0 if i % at.QUEUE_SIZE == at.QUEUE_KEPT else w for i, w in enumerate(found)]

        monkeypatch.setattr(program, "_queues", kept)
    kernel = Kernel(plan)
    found = taken(kernel, events[:-1])
    kernel.save()
    found += taken(kernel, events[-1:])
    assert (found == of_engine(plan, events)) is forgotten


def test_a_load_replaces_what_was_there() -> None:
    plan = plan_for(ASKED)
    fresh, used = Kernel(plan), Kernel(plan)
    taken(used, EVENTS)
    used.load(fresh.save())
    assert taken(used, EVENTS) == taken(fresh, EVENTS)


@pytest.mark.parametrize(
    "other",
    [
        Subscription("S", (both(A),)),
        replace(ASKED, name="T"),
        replace(ASKED, policy=policy("staged prefix")),
        replace(ASKED, within_us=5),
        replace(ASKED, queued_count_max=5),
        replace(ASKED, partition_by=("k",)),
    ],
    ids=["predicates", "name", "consumption", "within", "cap all", "partition"],
)
def test_the_state_of_another_subscription_is_refused(other: Subscription) -> None:
    data = saved_under(plan_for(ASKED))
    with pytest.raises(UsageError, match=r"saved by other subscriptions or schemas \(S\)"):
        Kernel(plan_for(other)).load(data)


def test_the_state_of_another_version_is_refused() -> None:
    data = bytearray(saved_under(plan_for(ASKED)))
    data[len(MAGIC)] = VERSION + 1
    with pytest.raises(UsageError, match=f"saved in version {VERSION + 1}, and this is version"):
        Kernel(plan_for(ASKED)).load(bytes(data))


def test_a_damaged_state_is_refused_wherever_the_damage_is() -> None:
    plan = plan_for(ASKED)
    data = saved_under(plan)
    kernel = Kernel(plan)
    for place in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[place] ^= 1
        for damaged in (bytes(flipped), data[:place]):
            with pytest.raises(UsageError, match=r"not a saved state|damaged|in version"):
                kernel.load(damaged)


def test_a_refused_state_leaves_the_kernel_as_it_was() -> None:
    plan = plan_for(ASKED)
    kernel = Kernel(plan)
    found = taken(kernel, EVENTS[:4])
    with pytest.raises(UsageError):
        kernel.load(b"nothing")
    assert found + taken(kernel, EVENTS[4:]) == of_engine(plan, EVENTS)


def test_a_state_of_the_clear_engine_is_refused() -> None:
    plan = plan_for(ASKED)
    engine = Engine(plan)
    engine.step(EVENTS[:6])
    kernel = Kernel(plan)
    found = taken(kernel, EVENTS[:4])
    with pytest.raises(UsageError):
        kernel.load(engine.save())
    assert found + taken(kernel, EVENTS[4:]) == of_engine(plan, EVENTS)


def test_the_clear_engine_refuses_a_state_of_the_kernel() -> None:
    plan = plan_for(ASKED)
    with pytest.raises(UsageError):
        Engine(plan).load(saved_under(plan))


def test_a_state_goes_on_the_same_when_times_go_back_and_forth() -> None:
    plan = plan_for(Subscription("S", (both(A, B),), within_us=2))
    events = stream("A@1 A@9 B@2 B@8")
    before, after = Kernel(plan, time_ordered=False), Kernel(plan, time_ordered=False)
    found = taken(before, events[:2])
    after.load(before.save())
    expected = summaries(Engine(plan, time_ordered=False).step(events))
    assert found + taken(after, events[2:]) == expected
    assert len(expected) == 2


# --- runs of one topic ----------------------------------------------------------------------------

RISING = (compare(A, "<", A2), compare(A2, "<", A3))
BOUNDS: tuple[dict[str, Any], ...] = (
    {},
    {"partition_by": ("k",)},
    {"queue_count_max": 3},
    {"queued_count_max": 5},
    {"within_us": 4},
)


def runs(seed: int) -> Iterator[tuple[Plan, list[Event]]]:
    """Contiguous runs in every policy, with conditions on none, one and all of the events."""
    rng = Random(seed)
    events = [
        Event(rng.choice("AAAB"), "p", n, n, {"a": rng.randint(0, 9), "k": rng.choice("xy")})
        for n in range(1, 60)
    ]
    consumes = ("", "matched", "slide", "recent", "recent matched")
    high = [compare(slot, ">", 3) for slot in (A2, A, A3)]
    for words, tests, bound in product(consumes, ([], high[:1], high), BOUNDS):
        asked = Subscription("S", (both(*RISING, *tests),), policy(f"contiguous {words}"), **bound)
        yield plan_for(asked), events


@pytest.mark.parametrize("seed", range(4))
def test_runs_of_one_topic_are_the_same_however_they_arrive(seed: int) -> None:
    found_count = 0
    for plan, events in runs(seed):
        expected = of_engine(plan, events)
        found_count += len(expected)
        assert taken(Kernel(plan), events) == expected
        before, after = Kernel(plan), Kernel(plan)
        found = [relation for event in events[:20] for relation in before.push(event)]
        after.load(before.save())
        assert summaries(found) + taken(after, events[20:], [1, 7, 2]) == expected
    assert found_count > 100


def test_where_not_every_event_is_queued_neighbours_in_the_queue_are_not_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    correct = program._dense

    def careless(plan: SubscriptionPlan) -> bool:
        (conjunction,) = plan.conjunctions
        bare = dataclasses.replace(conjunction.whole, unary=((),))
        whole = dataclasses.replace(conjunction, whole=bare)
        return correct(dataclasses.replace(plan, conjunctions=(whole,)))

    monkeypatch.setattr(program, "_dense", careless)
    differing = [
        plan for plan, events in runs(1) if taken(Kernel(plan), events) != of_engine(plan, events)
    ]
    assert differing


# --- strings --------------------------------------------------------------------------------------


def by_name(op: str) -> Comparison:
    return Comparison(op, attribute(A, "k"), attribute(B, "k"))


def named(*words: str) -> tuple[Event, ...]:
    """Events such as `A:text`; without a colon `k` is null."""
    return tuple(
        Event(word[0], "p", place, place, {"k": word[2:]} if word[1:] else {})
        for place, word in enumerate(words, start=1)
    )


@pytest.mark.parametrize("op", ["<", ">", "<=", ">=", "=", "!="])
@pytest.mark.parametrize("scanned", [0, 64])
def test_strings_compare_by_code_points_though_new_ones_arrive_later(op: str, scanned: int) -> None:
    texts = ["m", "z", "", "a", "é", "\ue000", "\U0001f600", "m", "ab", "Z", "aa", "\x00", "a"]
    rng = Random(op)
    words = [f"{topic}:{text}" for text in texts for topic in "AB"]
    for _ in range(5):
        rng.shuffle(words)
        events = named(*words)
        for words_of_policy in ("", "matched", "recent slide"):
            plan = plan_for(Subscription("S", (both(by_name(op)),), policy(words_of_policy)))
            expected = of_engine(plan, events)
            assert expected
            kernel = Kernel(plan, scanned_count_max=scanned)
            assert taken(kernel, events, [1] * len(events)) == expected
            assert taken(Kernel(plan), events) == expected


def test_a_string_keeps_its_meaning_in_whatever_order_batches_and_states_bring_it() -> None:
    plan = plan_for(
        Subscription("S", (both(by_name("=")),), policy("matched")),
        Subscription("T", (both(by_name("<")),), policy("matched"), partition_by=("source",)),
        Subscription("U", (both(Comparison("=", attribute(C, "k"), Constant("q", Kind.STRING))),)),
    )
    events = named("A:b", "A:a", "A:q", "B:c", "C:q", "B:a", "C:c", "B:q", "B:b", "A:c", "C:q", "B")
    expected = of_engine(plan, events)
    assert len(expected) == 8
    for cut in range(1, len(events)):
        kernel = Kernel(plan)
        found = taken(kernel, events[:cut])
        state = kernel.save()
        other = Kernel(plan)
        # The other kernel has seen other strings in another order before it is given the state.
        taken(other, named("A:z", "B:c", "A:y", "C:b"))
        other.load(state)
        assert found + taken(other, events[cut:], [1, 2]) == expected


def test_a_partition_by_a_string_is_the_same_in_every_batch_and_topic() -> None:
    plan = plan_for(Subscription("S", (both(A, B),), partition_by=("k",)))
    kernel = Kernel(plan)
    rng = Random(4)
    keys = ["x", "y", "", "null", "é"]
    events = named(*(f"{rng.choice('AB')}:{rng.choice(keys)}" for _ in range(200)))
    events += tuple(Event(t, "q", i, 300 + i) for i, t in enumerate("ABBA"))
    found = taken(kernel, events, [rng.randint(0, 9) for _ in range(30)])
    assert found == of_engine(plan, events)


# --- numbers --------------------------------------------------------------------------------------

FLOATS = (
    *(math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -5e-324, 0.5, -0.5, 1.0, -1.0),
    *(2.0**53 - 1, 2.0**53, 2.0**53 + 2, -(2.0**53), 2.0**62, 2.0**63, -(2.0**63), 1e308),
    *(math.nextafter(2.0**63, 0), -math.nextafter(2.0**63, 0)),
)
INTS = (
    *(0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3, -(2**53) - 1, 2**62 + 1),
    *(2**63 - 1, -(2**63) + 1, 2**63 - 1024, 2**63 - 1023, -(2**63) + 1024),
)
HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@pytest.mark.parametrize("op", HOLDS)
@pytest.mark.parametrize(
    ("left", "right"),
    [(FLOATS, FLOATS), (INTS, FLOATS), (FLOATS, INTS), (INTS, INTS)],
    ids=["floats", "int and float", "float and int", "ints"],
)
def test_numbers_of_two_events_compare_by_value(
    op: str, left: tuple[Value, ...], right: tuple[Value, ...]
) -> None:
    def kind(values: tuple[Value, ...]) -> Kind:
        return Kind.INT if values is INTS else Kind.FLOAT

    topics = [
        Topic("A", {"a": kind(left), "n": Kind.INT}),
        Topic("B", {"a": kind(right), "n": Kind.INT}),
    ]
    same_pair = Comparison("=", attribute(A, "n"), attribute(B, "n"))
    asked = Subscription("S", (both(same_pair, Comparison(op, attribute(A), attribute(B))),))
    pairs = [(x, y) for x in (*left, None) for y in (*right, None)]
    events = []
    for n, pair in enumerate(pairs):
        for topic, value in zip("AB", pair, strict=True):
            place = len(events) + 1
            events.append(Event(topic, "p", place, place, {"a": value, "n": n}))
    found = list(Kernel(plan_for(asked, topics=topics)).step(Batch.of(events, topics)))
    expected = [
        n
        for n, (x, y) in enumerate(pairs)
        if x is not None and y is not None and x == x and y == y and HOLDS[op](x, y)  # type: ignore[arg-type]
    ]
    assert [relation.events[0].attributes["n"] for relation in found] == expected


@pytest.mark.parametrize("op", HOLDS)
@pytest.mark.parametrize(
    ("values", "kind", "constants"),
    [(INTS, Kind.INT, FLOATS), (FLOATS, Kind.FLOAT, INTS), (FLOATS, Kind.FLOAT, FLOATS)],
    ids=["int and float", "float and int", "floats"],
)
def test_a_number_compares_with_a_constant_by_value(
    op: str, values: tuple[float, ...], kind: Kind, constants: tuple[float, ...]
) -> None:
    topics = [Topic("A", {"a": kind})]
    events = [Event("A", "p", i, i, {"a": value}) for i, value in enumerate(values)]
    for constant in constants:
        if not math.isfinite(constant):
            continue  # no text of a subscription says infinity
        of = Kind.INT if isinstance(constant, int) else Kind.FLOAT
        asked = Subscription("S", (both(Comparison(op, attribute(A), Constant(constant, of))),))
        found = Kernel(plan_for(asked, topics=topics)).step(Batch.of(events, topics))
        expected = [
            i for i, value in enumerate(values) if value == value and HOLDS[op](value, constant)
        ]
        assert [relation.events[0].seq for relation in found] == expected, constant


@pytest.mark.parametrize("values", [FLOATS, INTS], ids=["floats", "ints"])
def test_a_partition_by_a_number_joins_zeros_and_nulls_only(values: tuple[Value, ...]) -> None:
    kind = Kind.INT if values is INTS else Kind.FLOAT
    topics = [Topic(name, {"k": kind}) for name in "AB"]
    plan = plan_for(Subscription("S", (both(A, B),), partition_by=("k",)), topics=topics)
    events = [
        Event(topic, "p", place, place, {} if k is None else {"k": k})
        for place, (topic, k) in enumerate(((t, k) for t in "AB" for k in (*values, None)), start=1)
    ]
    kernel = Kernel(plan)
    found = taken(kernel, events, [5, 1, 1])
    assert found == of_engine(plan, events)
    assert len(found) >= len(values) - 1


# --- many partitions, long queues, full buffers ---------------------------------------------------


def keyed(count: int, key_count: int, seed: int) -> tuple[Batch, list[tuple[str, int]]]:
    """A batch of A and B with integer keys, and the same as a list."""
    rng = np.random.default_rng(seed)
    topics = [Topic(name, {"k": Kind.INT}) for name in "AB"]
    codes = rng.integers(0, 2, count).astype(np.int32)
    keys = rng.integers(-key_count, key_count, count)
    one = Batch.of([Event("A", "p", 1, 1, {"k": 1})], topics)
    batch = one.take(np.zeros(count, np.int64))
    moved = Batch(
        batch.topics,
        codes,
        batch.source,
        np.arange(1, count + 1),
        np.arange(1, count + 1),
        {("k", Kind.INT): type(batch.source)(Kind.INT, keys)},
    )
    return moved, [("AB"[code], int(key)) for code, key in zip(codes, keys, strict=True)]


def test_a_hundred_thousand_partitions_match_like_a_dictionary_of_queues() -> None:
    batch, events = keyed(300_000, 80_000, 1)
    topics = list(batch.topics.values())
    asked = Subscription("S", (both(A, B),), policy("matched"), partition_by=("k",))
    kernel = Kernel(plan_for(asked, topics=topics))
    queues: dict[int, dict[str, list[int]]] = defaultdict(lambda: {"A": [], "B": []})
    expected = []
    for seq, (topic, key) in enumerate(events, start=1):
        queue = queues[key]
        queue[topic].append(seq)
        if queue["A"] and queue["B"]:
            expected.append((queue["A"].pop(0), queue["B"].pop(0)))
    assert len(queues) > 100_000
    found = []
    cuts = [0, 1, 2, 100_000, 100_001, 250_000, len(batch)]
    for start, stop in pairwise(cuts):
        found += seqs(kernel, batch.take(np.arange(start, stop)))
        if start == 100_000:
            state = kernel.save()
            kernel = Kernel(kernel.plan)
            kernel.load(state)
    assert found == expected


@pytest.mark.parametrize("words", ["matched", "recent prefix"])
def test_long_streams_in_small_batches_give_what_one_batch_gives(words: str) -> None:
    """More rows than the store keeps, with some events queued from the start to the end."""
    count = 210_000
    rng = np.random.default_rng(7)
    topics = [Topic("A", {"a": Kind.INT}), Topic("B", {"a": Kind.INT})]
    codes = (rng.random(count) < 0.5).astype(np.int32)
    values = rng.integers(0, 1_000, count)
    values[:200] = np.arange(2_000, 2_200)  # wanted by the last events only
    codes[:200] = 0
    values[-200:] = np.arange(2_000, 2_200)
    codes[-200:] = 1
    one = Batch.of([Event("A", "p", 1, 1, {"a": 1})], topics)
    batch = Batch(
        one.topics,
        codes,
        one.source.take(np.zeros(count, np.int64)),
        np.arange(1, count + 1),
        np.arange(1, count + 1),
        {("a", Kind.INT): type(one.source)(Kind.INT, values)},
    )
    few = [compare(slot, ">", 990) for slot in (A, B)]
    asked = Subscription("S", (both(PAIR, *few),), policy(words), partition_by=("a",))
    plan = plan_for(asked, topics=topics)
    whole = Kernel(plan)
    expected = seqs(whole, batch)
    kernel = Kernel(plan)
    found = []
    for start in range(0, count, 700):
        found += seqs(kernel, batch.take(np.arange(start, min(start + 700, count))))
    assert found == expected
    assert expected[-1] == (200, count)
    assert len(expected) > 500
    assert counted(kernel) == counted(whole)
    # Rows left the store, or nothing was tried here.
    assert kernel._stages[0]._row_count < count // 2


def seqs(kernel: Kernel, batch: Batch) -> list[tuple[int, ...]]:
    """The sequence numbers of each relation's events."""
    found = kernel.step(batch)
    return [tuple(event.seq for event in relation.events) for relation in found]


@pytest.mark.parametrize("words", [str(one) for one in ALL_POLICIES if not one.staged])
@pytest.mark.parametrize("op", ["<", ">=", "="])
def test_long_queues_give_what_the_clear_engine_gives(
    words: str, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues of hundreds, so that indexes have several levels and survive appends and removals."""
    chosen = next(one for one in ALL_POLICIES if str(one) == words)
    rng = Random(f"{words} {op}")
    topics = [Topic("A", {"a": Kind.INT}), Topic("B", {"a": Kind.INT})]
    events = []
    for place in range(1, 500):
        rare = rng.random() < 0.12
        value: int | None = rng.randint(0, 400)
        if op != "=":
            # A lies high and B lies low for `<`, so that few pairs fit and queues stay long.
            value += (0 if (op == "<") == rare else 390) * 1
        value = None if rng.random() < 0.05 else value
        events.append(Event("B" if rare else "A", "p", place, place, {"a": value}))
    asked = Subscription("S", (both(compare(A, op, B)),), chosen)
    plan = plan_for(asked, topics=topics)
    expected = of_engine(plan, events)
    assert taken(Kernel(plan, scanned_count_max=4), events) == expected
    sizes = [rng.randint(0, 40) for _ in range(20)]
    assert taken(Kernel(plan), events, sizes) == expected
    # Rows are let go again and again, while pieces stay for themselves or are put together.
    monkeypatch.setattr(stage, "_COMPACT_ROWS_MIN", 8)
    for piece_rows_min in (1, 25):
        monkeypatch.setattr(found, "_PIECE_ROWS_MIN", piece_rows_min)
        assert taken(Kernel(plan, scanned_count_max=4), events, sizes) == expected


@pytest.mark.parametrize("text", CHAINS)
@pytest.mark.parametrize("seed", range(3))
def test_events_that_are_compared_give_the_same_in_runs_of_any_length(text: str, seed: int) -> None:
    """Runs are taken with their queues held near, single events and long queues are not."""
    rng = Random(f"{text} {seed}")
    topics = [Topic(name, {"x": Kind.INT, "y": Kind.INT}) for name in "ABCD"]
    plan = compile_plan(check(parse(text), schemas(topics)), schemas(topics))
    often = [rng.choice((1, 1, 9)) for _ in topics]  # a topic that comes often has a long queue
    events = [
        Event(
            rng.choices(topics, often)[0].name,
            "s",
            i,
            i,
            {name: rng.choice((None, *range(12))) for name in "xy"},
        )
        for i in range(600)
    ]
    expected = of_engine(plan, events)
    assert len(expected) > 5
    sizes = [rng.choice((1, 3, 40, 150)) for _ in range(20)]
    assert taken(Kernel(plan), events) == expected
    assert taken(Kernel(plan), events, sizes) == expected
    kernel = Kernel(plan)
    first = taken(kernel, events[:250])
    loaded = Kernel(plan)
    loaded.load(kernel.save())
    assert first + taken(loaded, events[250:], sizes) == expected
    kernel = Kernel(plan)
    found = taken(kernel, events[:300])
    for event in events[300:360]:
        found += summaries(kernel.push(event))
    assert found + taken(kernel, events[360:]) == expected
    assert counted(kernel) == counted(_stepped(plan, events))


def test_more_relations_than_the_output_holds_are_all_delivered() -> None:
    plan = plan_for(Subscription("S", (both(A), both(A, compare(A, ">", -1)), both(A2))))
    count = 6_000
    events = [Event("A", "p", i, i, {"a": 1}) for i in range(1, count + 1)]
    kernel = Kernel(plan)
    found = kernel.step(Batch.of(events, TOPICS))
    assert len(found) == 2 * count + count // 2
    assert len(found) > max(stage._OUT_COUNT_MIN, count // stage._ROWS_PER_RELATION)
    at = [relation.at.seq for relation in found]
    assert at == sorted(at)
    assert kernel.counters["S"].relations == len(found)


def test_an_output_of_a_few_words_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_OUT_COUNT_MIN", 1)
    monkeypatch.setattr(stage, "_ROWS_PER_RELATION", 1_000)
    plan = plan_for(Subscription("S", (both(PAIR), both(A2), both(C)), policy("slide")))
    events = stream("A1 A1 B2 A2 B1 A1 C B1 A2 B2 C C A1 B1")
    assert taken(Kernel(plan), events) == of_engine(plan, events)


# --- bounds and counters --------------------------------------------------------------------------


@pytest.mark.parametrize("within_us", [None, 3])
@pytest.mark.parametrize("words", ["", "matched", "recent suffix", "slide", "staged slide"])
def test_the_default_cap_reached_late_acts_like_one_that_was_asked_for(
    words: str, within_us: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody keeps the order of arrival until the default is reached: then it is written down."""
    monkeypatch.setattr(program, "QUEUED_COUNT_MAX", 6)
    asked = Subscription(
        "S",
        (both(PAIR), both(compare(A, "=", C), compare(A2, ">", B))),
        policy(words),
        partition_by=("k",),
        within_us=within_us,
        queued_count_max=6,
    )
    plan = plan_for(asked, Subscription("T", (both(A, C),), queued_count_max=4))
    rng = Random(words)
    for round_ in range(10):
        events = []
        time = 0
        for place in range(1, 60):
            time += rng.choice((0, 0, 1))
            values: dict[str, Value] = {"a": rng.randint(0, 3), "k": rng.choice("xyz")}
            events.append(Event(rng.choice("ABC"), "p", place, time, values))
        engine = Engine(plan)
        expected = summaries(engine.step(events))
        kernel = Kernel(plan)
        cut = rng.randint(1, 58)
        found = taken(kernel, events[:cut], [rng.randint(0, 9) for _ in range(5)])
        kernel.load(kernel.save())
        assert found + taken(kernel, events[cut:]) == expected, round_
        assert counted(kernel) == counted(engine)
        assert engine.counters["S"].capped > 0


def test_counters_are_those_of_the_clear_engine() -> None:
    asked = (
        Subscription("S", (both(PAIR), both(A2)), queue_count_max=2, emit=Emit("D")),
        Subscription("T", (both(compare(A, ">", 1), C),), within_us=2),
        Subscription("U", (both(B, D),), queued_count_max=2),
    )
    plan = plan_for(*asked, topics=[*TOPICS, Topic("D", {})])
    events = stream("A1 A2 B1 C A3 A3 B2 C A1 B1 A0 A2 A2 C B3 A3 B0 C C A1")
    engine, kernel = Engine(plan), Kernel(plan)
    engine.step(events)
    taken(kernel, events, [1, 2, 3, 4])
    assert counted(kernel) == counted(engine)
    total = [sum(counts) for counts in zip(*counted(kernel).values(), strict=True)]
    assert all(total)  # each of them counted something


def test_what_is_too_old_is_counted_once_and_not_after_it_was_matched() -> None:
    plan = plan_for(Subscription("S", (both(PAIR),), policy("matched"), within_us=2))
    events = stream("A1@0 A2@0 B2@0 A1@9")
    engine, kernel = Engine(plan), Kernel(plan)
    engine.step(events)
    taken(kernel, events)
    assert engine.counters["S"].expired == 1
    assert kernel.counters["S"].expired == 1


@pytest.mark.parametrize("words", ["", "suffix", "slide", "recent prefix"])
def test_what_is_too_old_is_counted(words: str) -> None:
    plan = plan_for(Subscription("S", (both(PAIR),), policy(words), within_us=2))
    events = stream("A1@0 B2@0 A1@9 B3@9 B1@30 A1@30")
    engine, kernel = Engine(plan), Kernel(plan)
    engine.step(events)
    taken(kernel, events, [2, 1])
    assert kernel.counters["S"].expired == engine.counters["S"].expired == 4


def test_a_search_over_the_budget_is_counted_and_changes_nothing() -> None:
    asked = Subscription("S", (both(Comparison("!=", attribute(A), attribute(B)), C),))
    plan = plan_for(asked)
    events = stream("A1 " * 30 + "B1 " * 30 + "C A2 C")
    free, tight = Kernel(plan), Kernel(plan, search_budget=3)
    assert taken(tight, events) == taken(free, events) == of_engine(plan, events)
    assert free.counters["S"].over_budget == 0
    assert tight.counters["S"].over_budget > 0
    assert tight.counters["S"].searched == free.counters["S"].searched > 3


# --- derived events -------------------------------------------------------------------------------

PAIRS = Subscription(
    "pair",
    (both(PAIR),),
    emit=Emit("D", (Field("x", attribute(A)), Field("none", attribute(B, "k")))),
)
D_TOPIC = Topic("D", {"x": Kind.INT, "none": Kind.STRING})
E_TOPIC = Topic("E", {"y": Kind.INT})


def test_derived_events_go_through_several_stages() -> None:
    plan = plan_for(
        PAIRS,
        Subscription(
            "two", (both(Slot("D", 2)),), emit=Emit("E", (Field("y", Attribute(D, "x")),))
        ),
        Subscription("last", (both(Comparison("=", Attribute(E, "y"), attribute(C))),)),
        Subscription("late", (both(then(D, C), E),), policy("slide")),
        topics=[*TOPICS, D_TOPIC, E_TOPIC],
    )
    events = stream("A1 B1 C1 A2 B2 C1 C2 A2 B2 A1 B1 C2 C1 A3 B3 A3 B3 C3")
    expected = of_engine(plan, events)
    assert {text.split("'")[1] for text in expected} == {"pair", "two", "last", "late"}
    for sizes in ([], [1] * len(events), [4, 1, 7]):
        assert taken(Kernel(plan), events, sizes) == expected
    kernel = Kernel(plan)
    found = []
    for event in events:
        kernel.load(kernel.save())
        found += taken(kernel, [event])
    assert found == expected


def test_a_derived_event_carries_its_fields() -> None:
    plan = plan_for(PAIRS, Subscription("seen", (both(D),)), topics=[*TOPICS, D_TOPIC])
    pair, seen = Kernel(plan).step(Batch.of(stream("A1 B1"), TOPICS))
    assert (pair.subscription, seen.subscription) == ("pair", "seen")
    assert seen.events == (Event("D", "pair", 1, 2, {"x": 1}),)
    assert seen.at == pair.at


def test_an_event_of_a_derived_topic_is_refused() -> None:
    kernel = Kernel(plan_for(PAIRS, topics=[*TOPICS, D_TOPIC]))
    with pytest.raises(UsageError, match=r"topic 'D', which a subscription emits"):
        kernel.step(Batch.of([Event("D", "p", 1, 1)], [*TOPICS, D_TOPIC]))


def test_a_refused_batch_leaves_the_kernel_as_it_was() -> None:
    plan = plan_for(PAIRS, Subscription("S", (both(then(A, D)),)), topics=[*TOPICS, D_TOPIC])
    kernel = Kernel(plan)
    events = stream("A1 B2 A2 B1 A1 B1")
    found = taken(kernel, events[:2])
    with pytest.raises(UsageError):
        kernel.step(Batch.of([Event("D", "p", 1, 1)], [*TOPICS, D_TOPIC]))
    assert found + taken(kernel, events[2:]) == of_engine(plan, events)


@pytest.mark.parametrize(
    ("words", "number"),
    [("recent matched", 1245), ("recent matched", 1955), ("recent contiguous prefix", 1895)],
)
def test_removed_places_name_no_row_that_was_let_go(words: str, number: int) -> None:
    """Found by the campaign: places that were left in a queue named rows by their old numbers."""
    case = case_of(1, policy(words), number)
    places = places_of_case(1, policy(words), number, case)
    assert differs(case, places) is None

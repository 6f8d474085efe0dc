"""The engine against the brute-force oracle, on one seeded case.

A case is named by (seed, policy, number) and nothing else, so whoever finds a difference can hand
it to somebody else. The engine runs twice: over the whole stream, and cut into steps with its state
saved and loaded in between, in a new engine each time. This module knows no pool and no report.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from random import Random

import msgspec

from concordant.correlate.engine import Engine
from concordant.correlate.plan import Plan, compile_plan
from concordant.model.expression import Attribute, Constant, Slot
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison, Predicate, Wildcard, conjunction_of
from concordant.model.relation import Relation
from concordant.model.subscription import QUEUED_COUNT_MAX, Conjunction, Policy
from concordant.model.topic import TopicOrder, schemas
from tests.generators import Case, random_case
from tests.oracles import brute

TIGHT_EVERY = 8
"""One case in so many is tightened."""


PLAIN = Policy()
PLAIN_EVERY = 2
PLAIN_RUN = 32
"""Under this policy, one run of so many cases in so many is made plain."""
PLAIN_EVENTS_MAX = 20


def case_of(seed: int, policy: Policy, number: int) -> Case:
    """The case of that name."""
    rng = Random(f"{seed}/{policy}/{number}")
    case = random_case(rng, policy=policy)
    if policy == PLAIN and number // PLAIN_RUN % PLAIN_EVERY == PLAIN_EVERY - 1:
        case = made_plain(case, rng)
    return tightened(case) if number % TIGHT_EVERY == TIGHT_EVERY - 1 else case


def made_plain(case: Case, rng: Random) -> Case:
    """The case with what people ask most: one event per topic, each bound to one other at most.

    Drawn one by one, predicates hardly ever form a sequence or a chain, and a cap or `within` is
    rarely absent from all of them.
    """
    return replace(
        case,
        subscriptions=tuple(
            msgspec.structs.replace(
                one,
                conjunctions=(_plain_conjunction(case, rng),),
                within_us=None,
                queue_count_max=None,
                queued_count_max=QUEUED_COUNT_MAX,
                emit=None,
                partition_by=("source",) if rng.random() < 0.3 else (),
            )
            for one in case.subscriptions
        ),
        events=case.events[:PLAIN_EVENTS_MAX],
        derived_topics=(),
        topic_order=TopicOrder(),
    )


def _plain_conjunction(case: Case, rng: Random) -> Conjunction:
    topics = rng.sample(case.topics, rng.randint(1, len(case.topics)))
    predicates: list[Predicate] = [Wildcard(Slot(topic.name, 1)) for topic in topics]
    ordered = rng.random() < 0.5
    for place, topic in enumerate(topics):
        mine = Slot(topic.name, 1)
        if topic.kind("a") is Kind.INT and rng.random() < 0.3:
            bound = Constant(rng.randint(0, 2), Kind.INT)
            predicates.append(Comparison(rng.choice(_OPS), Attribute(mine, "a"), bound))
        if place == 0 or rng.random() < 0.15:
            continue
        other = Slot(rng.choice(topics[:place]).name, 1)
        name = "position" if ordered else "a"
        ends = Attribute(other, name), Attribute(mine, name)
        predicates.append(Comparison("<" if ordered else rng.choice(_OPS), *ends))
    return Conjunction(conjunction_of(predicates))


_OPS = ("<", "<=", ">", ">=", "=")


def tightened(case: Case) -> Case:
    """The case with partitions, a short `within` and a small cap on all events at once.

    Drawn one by one they hardly ever meet, and a match left over by `slide` that is too old when
    its partition's next event comes needs all three.
    """
    return replace(
        case,
        subscriptions=tuple(
            msgspec.structs.replace(
                one,
                partition_by=("source",),
                within_us=2,
                queue_count_max=None,
                queued_count_max=3,
            )
            for one in case.subscriptions
        ),
    )


def cuts_of_case(seed: int, policy: Policy, number: int, case: Case) -> frozenset[str]:
    """The cuts that belong to a case's name."""
    return cuts_of(case, Random(f"{seed}/{policy}/{number}/cuts"))


def cuts_of(case: Case, rng: Random) -> frozenset[str]:
    """Before which events (by id) the state is saved and loaded; one time in four before all."""
    ids = [event.id for event in case.events]
    if rng.random() < 0.25:
        return frozenset(ids)
    return frozenset(rng.sample(ids, min(len(ids), rng.randint(1, 4))))


def plan_of(case: Case) -> Plan:
    topics = schemas((*case.topics, *case.derived_topics))
    return compile_plan(case.subscriptions, topics, topic_order=case.topic_order)


def oracle_relations(case: Case) -> list[Relation]:
    return brute.relations(
        case.subscriptions,
        case.events,
        topic_order=case.topic_order,
        time_ordered=case.time_ordered,
    )


def engine_relations(case: Case, plan: Plan, cuts: Collection[str] = ()) -> list[Relation]:
    """What the engine delivers when its state goes through bytes before the events in `cuts`."""
    engine = Engine(plan, time_ordered=case.time_ordered)
    if not cuts:
        return engine.step(case.events)
    found: list[Relation] = []
    for event in case.events:
        if event.id in cuts:
            state = engine.save()
            engine = Engine(plan, time_ordered=case.time_ordered)
            engine.load(state)
        found += engine.step([event])
    return found


def written(relations: list[Relation]) -> list[str]:
    """Relations as text: exact about types (1 is not 1.0), and NaN is NaN after a load too."""
    return [repr(relation) for relation in relations]


def difference(case: Case, cuts: Collection[str], expected: list[str]) -> str | None:
    """How the engine differs from what is expected; None if it does not.

    An engine that raises differs as well: every case is well-typed.
    """
    try:
        plan = plan_of(case)
        for way, places in (("as a whole", ()), ("in steps", cuts)):
            found = written(engine_relations(case, plan, places))
            if found != expected:
                return f"{way}:\n" + contrast(found, expected)
    except Exception as error:
        return f"the engine raised {type(error).__name__}: {error}"
    return None


def contrast(found: list[str], expected: list[str], whose: str = "engine") -> str:
    """The first relation in which two lists differ."""
    place = next(
        (i for i, (one, two) in enumerate(zip(found, expected, strict=False)) if one != two),
        min(len(found), len(expected)),
    )
    mine = found[place] if place < len(found) else "nothing"
    oracle = expected[place] if place < len(expected) else "nothing"
    return f"relation {place + 1}\nof the {whose}: {mine}\nof the oracle: {oracle}"


def differs(case: Case, cuts: Collection[str]) -> str | None:
    """The difference between engine and oracle on this case, if there is one."""
    return difference(case, cuts, written(oracle_relations(case)))


# --- shrinking ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shrunk:
    """The smallest case found that still differs."""

    case: Case
    cuts: frozenset[str]
    difference: str


def shrink(
    case: Case,
    cuts: Collection[str],
    judge: Callable[[Case, Collection[str]], str | None] = differs,
) -> Shrunk:
    """Drop events one at a time, then subscriptions and cuts, for as long as it still differs."""
    why = judge(case, cuts)
    assert why is not None, "only a case that differs can be shrunk"
    best = Shrunk(case, frozenset(cuts), why)
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate, kept in _smaller(best.case, best.cuts):
            why = judge(candidate, kept)
            if why is not None:
                best, is_smaller = Shrunk(candidate, kept, why), True
                break
    return best


def _smaller(case: Case, cuts: frozenset[str]) -> list[tuple[Case, frozenset[str]]]:
    """Cases with one thing less; later events first, because most of them are not needed."""
    events, asked = case.events, case.subscriptions
    found = [
        (replace(case, events=(*events[:i], *events[i + 1 :])), cuts - {events[i].id})
        for i in reversed(range(len(events)))
    ]
    if len(asked) > 1:
        found += [
            (replace(case, subscriptions=(*asked[:i], *asked[i + 1 :])), cuts)
            for i in range(len(asked))
        ]
    return found + [(case, cuts - {one}) for one in sorted(cuts)]

"""Worked examples of `correlation.md`, with the relations written out by hand.

Data only: whoever correlates (the oracle, the engine) must give these relations. Relations are
tuples of positions: an event's position is its place in `events`, from 1, as the specification
counts. Letters are those of the section "Guarantees" of the specification.
"""

from __future__ import annotations

from dataclasses import dataclass

from concordant.model.event import Event
from concordant.model.expression import Attribute, Constant, Slot
from concordant.model.kind import Kind, Value
from concordant.model.predicate import Comparison, Predicate, Wildcard, conjunction_of
from concordant.model.subscription import Conjunction, Consume, Match, Policy, Subscription
from concordant.model.topic import Topic

Positions = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Example:
    """Subscriptions, the events they see, and the relations each must deliver in this order."""

    name: str
    subscriptions: tuple[Subscription, ...]
    topics: tuple[Topic, ...]
    events: tuple[Event, ...]
    expected: dict[str, Positions]


# --- a short hand for predicates and events -------------------------------------------------------

A, B, C = Slot("A", 1), Slot("B", 1), Slot("C", 1)
A2, A3, B2 = Slot("A", 2), Slot("A", 3), Slot("B", 2)

TOPICS = tuple(Topic(name, {"a": Kind.INT, "k": Kind.STRING}) for name in "ABC")


def attribute(slot: Slot, name: str = "a") -> Attribute:
    return Attribute(slot, name)


def compare(left: Slot, op: str, right: Slot | int) -> Comparison:
    """`left.a op right.a`, or with a number on the right."""
    other = Constant(right, Kind.INT) if isinstance(right, int) else attribute(right)
    return Comparison(op, attribute(left), other)


def then(left: Slot, right: Slot) -> Comparison:
    return Comparison("<", attribute(left, "position"), attribute(right, "position"))


def both(*predicates: Predicate | Slot) -> Conjunction:
    """A conjunction; a slot stands for its wildcard."""
    return Conjunction(
        conjunction_of(Wildcard(p) if isinstance(p, Slot) else p for p in predicates)
    )


def stream(text: str) -> tuple[Event, ...]:
    """Events from words such as `A`, `A2` (a = 2), `Bk1` (k = "k1"), `C@3` (time 3 us).

    Without a time, an event's time is its position.
    """
    made: list[Event] = []
    for position, word in enumerate(text.split(), start=1):
        body, _, time = word.partition("@")
        topic, rest = body[0], body[1:]
        attributes: dict[str, Value] = {}
        if rest.startswith("k"):
            attributes["k"] = rest
        elif rest:
            attributes["a"] = int(rest)
        made.append(Event(topic, "p", position, int(time) if time else position, attributes))
    return tuple(made)


def policy(words: str) -> Policy:
    """`recent contiguous staged slide` in any selection; the rest is the default."""
    given = words.split()
    return Policy(
        match=Match.RECENT if "recent" in given else Match.FIRST,
        contiguous="contiguous" in given,
        staged="staged" in given,
        consume=next((c for c in Consume if c.value in given), Consume.PREFIX),
    )


def example(
    name: str,
    policy_words: str,
    events: str,
    *asked: tuple[Conjunction | tuple[Conjunction, ...], Positions],
    partition_by: tuple[str, ...] = (),
    within_us: int | None = None,
    queue_count_max: int | None = None,
) -> Example:
    """An example whose subscriptions S1, S2, … share a policy."""
    subscriptions = tuple(
        Subscription(
            f"S{number}",
            formula if isinstance(formula, tuple) else (formula,),
            policy(policy_words),
            partition_by=partition_by,
            within_us=within_us,
            queue_count_max=queue_count_max,
        )
        for number, (formula, _) in enumerate(asked, start=1)
    )
    expected = {f"S{number}": positions for number, (_, positions) in enumerate(asked, start=1)}
    title = f"{name}: {policy_words or 'first'}"
    return Example(title, subscriptions, TOPICS, stream(events), expected)


# --- the thesis's consumption example -------------------------------------------------------------

LEFT_OVER = {
    # consumption: what stays of e1 … e5, and of ea … ed (as 1 … 4)
    Consume.PREFIX: ((5,), (4,)),
    Consume.MATCHED: ((1, 3, 5), (1, 4)),
    Consume.SUFFIX: ((1,), (1,)),
    Consume.SLIDE: ((3, 4, 5), (3, 4)),
}


def consumption_examples() -> list[Example]:
    """[e2, e4, eb, ec] is delivered, then one later event asks for one event that may be left.

    The topic P picks events by value, so every e and every ea … ed is admitted. After the first
    relation A6, A7, B5 and B6 arrive, so that a probe needs only one left-over event.
    """
    picked = both(
        *(
            Comparison("=", attribute(slot), attribute(Slot("P", 1), name))
            for slot, name in ((A, "w"), (A2, "x"), (B, "y"), (B2, "z"))
        )
    )
    topics = (
        Topic("A", {"a": Kind.INT}),
        Topic("B", {"a": Kind.INT}),
        Topic("P", dict.fromkeys("wxyz", Kind.INT)),
    )
    queued = stream("A1 A2 A3 A4 A5 B1 B2 B3 B4")
    fresh = stream(". " * 10 + "A6 A7 B5 B6")[10:]

    def pick(position: int, wanted: tuple[int, int, int, int]) -> Event:
        return Event("P", "p", position, position, dict(zip("wxyz", wanted, strict=True)))

    found: list[Example] = []
    for consume, (left_a, left_b) in LEFT_OVER.items():
        # positions: e1 … e5 are 1 … 5, ea … ed 6 … 9, then P 10, A6 11, A7 12, B5 13, B6 14, P 15
        probes = [
            (f"e{n}", (n, 6, 5, 6), ((n, 11, 13, 14, 15),) if n in left_a else ())
            for n in range(1, 6)
        ] + [
            (f"e{'abcd'[n - 1]}", (6, 7, n, 5), ((11, 12, n + 5, 13, 15),) if n in left_b else ())
            for n in range(1, 5)
        ]
        for label, wanted, more in probes:
            found.append(
                Example(
                    f"thesis consumption example, is {label} left: {consume.value}",
                    (Subscription("S1", (picked,), Policy(consume=consume)),),
                    topics,
                    (*queued, pick(10, (2, 4, 2, 3)), *fresh, pick(15, wanted)),
                    {"S1": ((2, 4, 7, 8, 10), *more)},
                )
            )
    return found


# --- the counterexamples (a) to (j), and the others of "Guarantees" -------------------------------

_EQUAL = compare(A, "=", B)

GUARANTEES: list[Example] = [
    *(
        example(
            "(a) a third topic changes who meets whom",
            words,
            "A2 B1 A1 B2 C",
            (both(_EQUAL), ((3, 2),)),
            (both(_EQUAL, C), ((1, 4, 5),)),
        )
        for words in ("", "contiguous", "slide", "contiguous slide")
    ),
    *(
        example(
            "(a) staged, the relation is extended",
            f"staged {words}",
            "A2 B1 A1 B2 C",
            (both(_EQUAL), ((3, 2),)),
            (both(_EQUAL, C), ((3, 2, 5),)),
        )
        for words in ("", "contiguous", "slide", "contiguous slide")
    ),
    example(
        "(b) waiting for C lets an older triple win",
        "matched",
        "A0 A1 A1 A1 A0 C",
        (both(A3, compare(A, "=", A3)), ((2, 3, 4),)),
        (both(A3, compare(A, "=", A3), C), ((1, 2, 5, 6),)),
    ),
    example(
        "(b) staged, the relation is extended",
        "staged matched",
        "A0 A1 A1 A1 A0 C",
        (both(A3, compare(A, "=", A3)), ((2, 3, 4),)),
        (both(A3, compare(A, "=", A3), C), ((2, 3, 4, 6),)),
    ),
    example(
        "(c) waiting for C turns the order round",
        "matched",
        "A1 B2 A2 B1 C C",
        (both(_EQUAL), ((3, 2), (1, 4))),
        (both(_EQUAL, C), ((1, 4, 5), (3, 2, 6))),
    ),
    example(
        "(c) staged, the order stays",
        "staged matched",
        "A1 B2 A2 B1 C C",
        (both(_EQUAL), ((3, 2), (1, 4))),
        (both(_EQUAL, C), ((3, 2, 5), (1, 4, 6))),
    ),
    *(
        example(
            "(d) waiting for C turns the order round",
            f"recent {words}",
            "A A C C",
            (both(A), ((1,), (2,))),
            (both(A, C), ((2, 3), (1, 4))),
        )
        for words in ("matched", "suffix", "contiguous matched", "contiguous suffix")
    ),
    *(
        example(
            "(d) staged, the order stays",
            f"recent staged {words}",
            "A A C C",
            (both(A), ((1,), (2,))),
            (both(A, C), ((1, 3), (2, 4))),
        )
        for words in ("matched", "suffix")
    ),
    example(
        "(e) the second A0 is removed unmatched",
        "",
        "A0 A0 A1 A1",
        (both(compare(A, "=", 0), compare(A2, "=", 1)), ((1, 3),)),
    ),
    example(
        "(e) without prefix the second A0 has its turn",
        "matched",
        "A0 A0 A1 A1",
        (both(compare(A, "=", 0), compare(A2, "=", 1)), ((1, 3), (2, 4))),
    ),
    *(
        example(
            "(f) the later A goes first",
            words,
            "A2 A0 B0 B2",
            (both(_EQUAL), ((2, 3), (1, 4))),
            (both(A), ((1,), (2,))),
        )
        for words in ("suffix", "contiguous suffix")
    ),
    *(
        example(
            "(g) the later A goes first",
            words,
            "A A B B",
            (both(A, B), ((2, 3), (1, 4))),
            (both(A), ((1,), (2,))),
        )
        for words in ("recent suffix", "recent contiguous suffix")
    ),
    *(
        example(
            "(h) the third A is delivered before the second",
            words,
            "A0 A1 A0 A1",
            (both(compare(A, "=", A2)), ((1, 3), (2, 4))),
            (both(A), ((1,), (2,), (3,), (4,))),
        )
        for words in ("slide", "recent slide")
    ),
    example(
        "(i) one event twice in the same slot: a left-over match waits for the next event",
        "slide",
        "A0 A0 A1 A0",
        (both(compare(A2, "=", 1)), ((1, 3), (2, 3))),
    ),
    example(
        "(j) one event twice in the same slot",
        "recent slide",
        "B2 B1 B0 A1 A0",
        (both(B2, compare(B, ">", A)), ((4, 1, 3), (5, 2, 3))),
    ),
    example(
        "partitions are independent",
        "",
        "Ak1 Ak2 Bk2 Bk1",
        (both(A, B), ((2, 3), (1, 4))),
        partition_by=("k",),
    ),
    example(
        "within, a third topic changes who meets whom",
        "",
        "A@0 B@2 A@3 C@3",
        (both(A, B), ((1, 2),)),
        (both(A, B, C), ((3, 2, 4),)),
        within_us=2,
    ),
]

# --- what the rest of the specification says ------------------------------------------------------

_RISING = both(compare(A2, ">", A))

OTHERS: list[Example] = [
    example("rising pairs", "", "A3 A1 A2 A3", (_RISING, ((2, 3),))),
    example("rising pairs", "recent", "A3 A1 A2 A3", (_RISING, ((2, 3),))),
    example("falling does not rise", "recent", "A3 A2 A1", (_RISING, ())),
    example("pairs, tumbling", "", "A A A A A", (both(A2), ((1, 2), (3, 4)))),
    example("pairs, sliding", "slide", "A A A A A", (both(A2), ((1, 2), (2, 3), (3, 4), (4, 5)))),
    example(
        "the latest pair",
        "recent",
        "A A A B",
        (both(A2, B), ((2, 3, 4),)),
    ),
    example(
        "neighbours in the stream, though the event between was not admitted",
        "contiguous",
        "A0 A5 A0 A0",
        (both(compare(A, "=", 0), compare(A2, "=", 0)), ((3, 4),)),
    ),
    example(
        "neighbours in the stream, though the event between was disposed of",
        "contiguous matched",
        "A0 A1 B1 A0 A0 B0",
        (both(A, compare(A, "=", B)), ((2, 3), (1, 6))),
        (both(A2, compare(A, "=", 0), compare(A2, "=", 0)), ((4, 5),)),
    ),
    example(
        "neighbours per partition value",
        "contiguous",
        "Ak1 Ak2 Ak1 Ak2",
        (both(A2), ((1, 3), (2, 4))),
        partition_by=("k",),
    ),
    example(
        "a null partition value is a value of its own",
        "",
        "A Ak1 B Bk1",
        (both(A, B), ((1, 3), (2, 4))),
        partition_by=("k",),
    ),
    example("A then B", "", "B A B", (both(then(A, B)), ((2, 3),))),
    example("nulls are never different", "", "A B1 A2", (both(compare(A, "!=", B)), ((3, 2),))),
    example(
        "one event, one relation per conjunction",
        "",
        "A1 B1",
        ((both(_EQUAL), both(compare(A, "=", 1)), both(B)), ((1,), (1, 2), (2,))),
    ),
    example(
        "a cap removes the oldest after the search",
        "",
        "A1 A2 A3 B1 B2",
        (both(_EQUAL), ((2, 5),)),
        queue_count_max=2,
    ),
    example(
        "a cap counts only what is not too old",
        "",
        "A1@0 A2@9 A3@10 B2@10 B3@10",
        (both(_EQUAL), ((2, 4), (3, 5))),
        queue_count_max=2,
        within_us=2,
    ),
    example(
        "staged, parts wait first in first out",
        "staged recent",
        "A A C A C C",
        (both(A, C), ((1, 3), (2, 5), (4, 6))),
    ),
    example(
        "staged, a head that is too old for the others is dropped",
        "staged",
        "A@0 A@5 C@6",
        (both(A, C), ((2, 3),)),
        within_us=2,
    ),
]

# Under `slide` a left-over match may be older than `within` when its partition's next event comes.
# The events of another partition must not push it out: the cap counts only what is not too old.
LEFT_OVER_MATCH = Example(
    "the cap on all events leaves a left-over match alone: slide",
    (
        Subscription(
            "S1",
            (both(compare(A2, "=", 1)),),
            policy("slide"),
            partition_by=("k",),
            within_us=2,
            queued_count_max=3,
        ),
    ),
    TOPICS,
    tuple(
        Event("A", "p", position, time, {"k": k, "a": a})
        for position, (k, a, time) in enumerate(
            [("x", 0, 0), ("x", 0, 0), ("x", 1, 0), ("y", 0, 9), ("y", 0, 9), ("x", 0, 9)], start=1
        )
    ),
    {"S1": ((1, 3), (2, 3))},
)

EXAMPLES: list[Example] = [*consumption_examples(), *GUARANTEES, *OTHERS, LEFT_OVER_MATCH]

"""Every construct of the language, and the value it stands for."""

from __future__ import annotations

import pytest

from concordant.language import parse
from concordant.language.literals import UNITS
from concordant.model.expression import Arithmetic, Attribute, Constant, Slot
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison, Wildcard
from concordant.model.subscription import (
    QUEUED_COUNT_MAX,
    Consume,
    Emit,
    Field,
    Match,
    Policy,
    Subscription,
)


def one(text: str) -> Subscription:
    (found,) = parse(text)
    return found


def formula(text: str) -> str:
    return " or ".join(str(c) for c in one(text).conjunctions)


def test_the_example_of_the_design_reads_as_it_says():
    found = one("""rising:
      EarningsReport.time < StockQuote[1].time   # the report comes first
      and StockQuote[1].value < StockQuote[2].value and StockQuote[2].value < StockQuote[3].value
      match first consume prefix partition by symbol within 5 min
    """)
    assert found.name == "rising"
    assert found.policy == Policy()
    assert found.partition_by == ("symbol",)
    assert found.within_us == 300_000_000
    assert len(found.conjunctions) == 1
    assert found.conjunctions[0].instances == {"EarningsReport": 1, "StockQuote": 3}


def test_a_single_subscription_needs_no_name():
    assert one("A").name == "subscription"
    assert parse("A", default_name="mine")[0].name == "mine"
    assert one("yours: A").name == "yours"


def test_a_text_holds_several_named_subscriptions():
    text = "a: A.x > 5\ns: B match first\n`c d`: C within 5 s\norder: D order total\nmin: E"
    assert [s.name for s in parse(text)] == ["a", "s", "c d", "order", "min"]


def test_a_number_before_a_name_that_is_a_unit_stays_a_number():
    first, second = parse("a: A.x > 5\nmin: B")
    assert str(first.conjunctions[0]) == "A[1].x > 5"
    assert second.name == "min"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("A", "A[1]"),
        ("A[3]", "A[3]"),
        ("A and B", "A[1] and B[1]"),
        ("A then B", "A[1].position < B[1].position"),
        ("B then A", "A[1].position > B[1].position"),
        ("A then B then C", "A[1].position < B[1].position and B[1].position < C[1].position"),
        ("(A) then (B)", "A[1].position < B[1].position"),
        ("A.x.y = 'it\\'s'", 'A[1].x.y = "it\'s"'),
        ('A.x = "\\u00e9\\t"', 'A[1].x = "é\\t"'),
        ("A.x = true", "A[1].x = true"),
        ("false != A.x", "A[1].x != false"),
        ("A.x > -2", "A[1].x > -2"),
        ("A.x > - -2.5e-3", "A[1].x > 0.0025"),
        ("A.x > .5", "A[1].x > 0.5"),
        ("-A.x > 2", "0 - A[1].x > 2"),
        ("A.x + 1 * 2 > 3", "A[1].x + 2 > 3"),
        ("A.x - 1 - 2 > 3", "(A[1].x - 1) - 2 > 3"),
        ("A.x * (B.y + 1) > 3", "A[1].x * (B[1].y + 1) > 3"),
        ("((A.x)) > ((3))", "A[1].x > 3"),
        ("((A.x + 1) * 2 > 3)", "(A[1].x + 1) * 2 > 3"),
        ("(A.x > 1 and (B)) ", "A[1].x > 1 and B[1]"),
        ("A.x > 1 or B.x > 1 and C.x > 1", "A[1].x > 1 or B[1].x > 1 and C[1].x > 1"),
        ("A.time - B.time < 1.5 ms", "A[1].time - B[1].time < 1500"),
        ("not A.x > 1", "A[1].x <= 1"),
        ("not not A.x > 1 and B", "A[1].x > 1 and B[1]"),
        ("`market.quotes`.value > 1", "`market.quotes`[1].value > 1"),
        ("A.`odd name`.b > 1", "A[1].`odd name`.b > 1"),
        ("A.`b.c` > 1", "A[1].b.c > 1"),
        ("Größe.wert > 1", "`Größe`[1].wert > 1"),
    ],
)
def test_formulas_read_as_written(text: str, printed: str):
    assert formula(text) == printed


def test_keywords_are_names_wherever_no_clash_exists():
    assert one("order.by > 1 and first and cap.match = A.within").topics == (
        "A",
        "cap",
        "first",
        "order",
    )
    assert one("Order then And").topics == ("And", "Order")
    assert formula("match.order > 1 match first") == "`match`[1].`order` > 1"
    assert one("A partition by order, by.cap").partition_by == ("order", "by.cap")
    assert one("A.and = 1 or A.not = 2 emit order(match = A.true)").emit == Emit(
        "order", (Field("match", Attribute(Slot("A", 1), "true")),)
    )
    assert one("android.nothing > 1 and ordering").topics == ("android", "ordering")


def test_a_comparison_is_a_value_of_the_model():
    (found,) = one("A[2].x + 1 >= 2.5").conjunctions[0].predicates
    x = Attribute(Slot("A", 2), "x")
    assert found == Comparison(
        ">=", Arithmetic("+", x, Constant(1, Kind.INT)), Constant(2.5, Kind.FLOAT)
    )
    assert one("A[2]").conjunctions[0].predicates == (Wildcard(Slot("A", 2)),)


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_of_time_is_read(unit: str):
    assert one(f"A within 2 {unit}").within_us == 2 * UNITS[unit]
    assert one(f"A within 2{unit}").within_us == 2 * UNITS[unit]


@pytest.mark.parametrize(
    ("clause", "policy"),
    [
        ("match first", Policy()),
        ("match recent contiguous", Policy(Match.RECENT, True)),
        ("match first staged contiguous", Policy(Match.FIRST, True, True)),
        ("match FR", Policy()),
        ("match MR", Policy(Match.RECENT)),
        ("match FRC staged", Policy(Match.FIRST, True, True)),
        ("match MRC consume FP", Policy(Match.RECENT, True, False, Consume.SLIDE)),
        ("consume slide", Policy(consume=Consume.SLIDE)),
        ("consume PI", Policy(consume=Consume.PREFIX)),
        ("consume I", Policy(consume=Consume.MATCHED)),
        ("consume IP match recent", Policy(Match.RECENT, consume=Consume.SUFFIX)),
    ],
)
def test_policies_are_read_by_word_and_by_code(clause: str, policy: Policy):
    assert one(f"A {clause}").policy == policy


def test_clauses_stand_in_any_order():
    found = one(
        "A and B order total strict emit X() cap all 9 within 1 h cap 7 partition by k, l.m "
        "consume matched match recent"
    )
    assert found == Subscription(
        "subscription",
        one("A and B").conjunctions,
        Policy(Match.RECENT, consume=Consume.MATCHED),
        ("k", "l.m"),
        3_600_000_000,
        7,
        9,
        Emit("X"),
        "total strict",
    )


def test_caps_are_off_unless_set():
    assert one("A").queue_count_max is None
    assert one("A").queued_count_max == QUEUED_COUNT_MAX


@pytest.mark.parametrize("level", ["none", "fifo", "causal", "agreed", "total", "total strict"])
def test_every_order_level_is_read(level: str):
    assert one(f"A order {level}").order == level


def test_emitted_values_keep_their_shape():
    found = one("A emit X(a = 1 + 2, b.c = 'text', d = -A.x, e = true)").emit
    assert found is not None
    assert str(found) == 'emit X(a = (1 + 2), b.c = "text", d = (0 - A[1].x), e = true)'


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter():
    assert parse("\ufeffa: A\r\nwithin 5 min\r\n") == parse("a: A within 5 min")


def test_signs_in_strings_and_names_are_not_comments_or_parentheses():
    assert formula("A.x = '# (((' and `#(`.y > 1  # (((") == 'A[1].x = "# (((" and `#(`[1].y > 1'

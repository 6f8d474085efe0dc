"""The same subscriptions by Python operators."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from concordant.errors import UsageError
from concordant.language import emit, parse, subscription, topic
from concordant.model.expression import Constant
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison

q, r = topic("StockQuote"), topic("EarningsReport")


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (q, "StockQuote"),
        (q[3], "StockQuote[3]"),
        (q & r, "StockQuote and EarningsReport"),
        (q[2].value > q[1].value, "StockQuote[2].value > StockQuote[1].value"),
        (
            (q[2].value > q[1].value) & (q[1].value > 3) | (r.x == "a"),
            "StockQuote[2].value > StockQuote[1].value and StockQuote.value > 3 "
            "or EarningsReport.x = 'a'",
        ),
        (~((q.a <= 1) | (q.b != 2)), "not (StockQuote.a <= 1 or StockQuote.b != 2)"),
        (~(q.a < 1) & r, "not StockQuote.a < 1 and EarningsReport"),
        (r.then(q), "EarningsReport then StockQuote"),
        (r[1].then(q[1], q[2]), "EarningsReport[1] then StockQuote[1] then StockQuote[2]"),
        (q.customer.city == "Rome", "StockQuote.customer.city = 'Rome'"),
        (q[1].attr("customer.city") == "Rome", "StockQuote.customer.city = 'Rome'"),
        (q.attr("odd name") == True, "StockQuote.`odd name` = true"),  # noqa: E712
        (q.a > 3, "3 < StockQuote.a"),
        (q.a + 1 > 2 * r.b, "StockQuote.a + 1 > 2 * EarningsReport.b"),
        (1 + q.a - 2 > 1, "1 + StockQuote.a - 2 > 1"),
        (1 - q.a >= q.b / 2, "1 - StockQuote.a >= StockQuote.b / 2"),
        (1 / q.a * 2 > 0.5, "1 / StockQuote.a * 2 > 0.5"),
        (-q.a > -1, "-StockQuote.a > -1"),
        (q.time - r.time < timedelta(minutes=5), "StockQuote.time - EarningsReport.time < 5 min"),
        (q.a > np.int64(3), "StockQuote.a > 3"),
    ],
)
def test_the_builder_gives_what_the_text_gives(built: Any, text: str):
    assert (subscription(built),) == parse(text)


def test_clauses_are_arguments():
    built = subscription(
        q[3].value > r.value,
        name="rising",
        match="recent",
        contiguous=True,
        staged=True,
        consume="slide",
        partition_by=["symbol", "a.b"],
        within="5 min",
        cap=10,
        cap_all=1_000,
        emit=emit("Peak", {"stock.value": q[3].value}, ratio=q[2].value / r.value, kind="peak"),
        order="total strict",
    )
    assert (built,) == parse("""rising: StockQuote[3].value > EarningsReport.value
      match recent contiguous staged consume slide partition by symbol, a.b within 5 min
      cap 10 cap all 1000 order total strict
      emit Peak(stock.value = StockQuote[3].value,
                ratio = StockQuote[2].value / EarningsReport.value, kind = "peak")""")


def test_arguments_have_short_forms():
    assert subscription(q, within=timedelta(seconds=1)) == subscription(q, within=1_000_000)
    assert subscription(q, partition_by="a.b").partition_by == ("a.b",)
    assert subscription(q, match="MRC", consume="FP") == subscription(
        q, match="recent", contiguous=True, consume="slide"
    )


def test_a_datetime_is_a_time():
    for moment in (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 1)):
        (found,) = subscription(q.time > moment).conjunctions[0].predicates
        assert isinstance(found, Comparison)
        assert found.right == Constant(1_000_000, Kind.TIME)


def test_python_and_or_not_and_chains_are_type_errors_with_a_hint():
    with pytest.raises(TypeError, match=r"& \| ~"):
        _ = (q.a > 1) and (q.b > 1)
    with pytest.raises(TypeError, match=r"& \| ~"):
        _ = not q
    with pytest.raises(TypeError, match=r"\(a < b\) & \(b < c\)"):
        _ = 1 < q.a < 2
    with pytest.raises(TypeError, match="has no truth"):
        bool(q.a)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: q[0], "count from 1"),
        (lambda: q[65], "count from 1 to 64"),
        (lambda: q["customer.city"], "not the number of an instance"),
        (lambda: q.a > None, "cannot be compared"),
        (lambda: q.a > float("nan"), "cannot be compared"),
        (lambda: q.a > 2**63, "64 bits"),
        (lambda: q.a > object(), "is not a value"),
        (lambda: q.a > r, "is not a value"),
        (lambda: q.a > 1 & q.b, "is not a predicate"),
        (lambda: (q.a > 1) & q.b, "is not a predicate"),
        (lambda: (q.a > 1) & True, "True is not a predicate"),
        (lambda: True | (q.a > 1), "True is not a predicate"),
        (lambda: ~q.a, "is not a predicate"),
        (lambda: subscription(q.a), "is not a predicate"),
        (lambda: subscription(False), "False is not a predicate"),
        (lambda: q.a + "abc" > 1, "arithmetic takes numbers"),
        (lambda: q.a + True > 1, "arithmetic takes numbers"),
        (lambda: q.a == q.a, "compares an attribute with itself"),
        (lambda: (q.a + 1).b, "has no attributes"),
        (lambda: q.then(), "needs a second slot"),
        (lambda: q.then("B"), "takes topics and slots"),
        (lambda: q.then(q), "before itself"),
        (lambda: subscription(~q), "absence"),
        (lambda: subscription(q, match="frist"), "did you mean 'first'"),
        (lambda: subscription(q, match=""), "not a matching policy"),
        (lambda: subscription(q, consume="all"), "not a consumption policy"),
        (lambda: subscription(q, order="strict"), "not an order level"),
        (lambda: subscription(q, within="5"), "no unit of time"),
        (lambda: subscription(q, within="5 weeks"), "'weeks' is not a unit"),
        (lambda: subscription(q, within="soon"), "not a duration"),
        (lambda: emit("X", {"a": 1}, a=2), "'a' twice"),
        (lambda: emit("X", time=1), "every event has already"),
    ],
)
def test_a_mistake_is_a_usage_error(build: Any, message: str):
    with pytest.raises(UsageError) as caught:
        build()
    assert message in str(caught.value)


def test_terms_can_be_shown_and_copied():
    assert repr(q[2]) == "StockQuote[2]"
    assert repr(q[2].a + 1) == "(StockQuote[2].a + 1)"
    assert repr(copy.deepcopy(q[2].a)) == "StockQuote[2].a"

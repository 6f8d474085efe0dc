"""Subscriptions of the language as filters: the same events, or a refusal that says why."""

from __future__ import annotations

import pytest

from concordant.errors import UsageError
from concordant.language import parse
from concordant.model.event import Event
from concordant.route.compile import filters_of


def compiled(text: str) -> list[str]:
    return [str(one) for one in filters_of(parse(text)[0])]


def test_comparisons_with_values_become_intervals() -> None:
    text = 'Quote.symbol = "ACME" and Quote.price > 10 and Quote.price <= 20'
    assert compiled(text) == ['Quote with price > 10 and <= 20, symbol = "ACME"']
    assert compiled("Quote") == ["Quote"]
    assert compiled(
        "Quote.price >= 1 and Quote.price > 1 and Quote.price < 9 and Quote.price <= 9"
    ) == ["Quote with price > 1 and < 9"]
    assert compiled("Quote.price < 1 or Trade.open = true") == [
        "Quote with price < 1",
        "Trade with open = true",
    ]


def test_a_filter_means_what_the_subscription_means() -> None:
    (wanted,) = filters_of(parse("Quote.price > 10 and Quote.price < 20 and Quote.price >= 11")[0])
    events = [Event("Quote", "p", n + 1, 0, {"price": n}) for n in range(30)]
    assert [e.attributes["price"] for e in events if wanted.matches(e)] == list(range(11, 20))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Quote[1].price < Quote[2].price", "is about several events"),
        ("Quote then Trade", "is about several events"),
        ("Quote.price != 3", "is no interval"),
        ("Quote.price > Quote.low", "does not compare an attribute with a value"),
        ("Quote.price + 1 > 3", "does not compare an attribute with a value"),
        ("Quote.price > 3 and Quote.price < 2", "contradicts the rest"),
    ],
)
def test_what_a_filter_cannot_say_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        compiled(text)

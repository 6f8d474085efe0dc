"""The market day is a workload that others build on: same seed, same day, in the total order."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from concordant.correlate.columns import Batch
from concordant.errors import UsageError
from concordant.evaluate import market
from concordant.evaluate.market import CLOSE_US, HEADLINES, MIX, OPEN_US, TOPICS, market_day
from concordant.model.kind import Kind


@cache
def day() -> Batch:
    return market_day(50_000, seed=3, symbols=200)


def rows(topic: str) -> np.ndarray:
    return day().topic == list(TOPICS).index(topic)


def values(name: str, kind: Kind, topic: str) -> np.ndarray:
    return day().attributes[name, kind].values[rows(topic)]


def assert_equal_batches(left: Batch, right: Batch) -> None:
    assert np.array_equal(left.topic, right.topic)
    assert np.array_equal(left.seq, right.seq)
    assert np.array_equal(left.time, right.time)
    assert np.array_equal(left.source.values, right.source.values)
    assert left.attributes.keys() == right.attributes.keys()
    for key, column in left.attributes.items():
        other = right.attributes[key]
        assert np.array_equal(column.values, other.values), key
        assert column.dictionary == other.dictionary, key


def test_the_same_seed_gives_the_same_day() -> None:
    assert_equal_batches(day(), market_day(50_000, seed=3, symbols=200))


def test_another_seed_gives_another_day() -> None:
    other = market_day(50_000, seed=4, symbols=200)
    assert not np.array_equal(day().time, other.time)


def test_rows_are_sorted_by_time_source_and_seq() -> None:
    assert np.array_equal(day().order(), np.arange(len(day())))


def test_ties_in_time_are_sorted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market, "CLOSE_US", OPEN_US + 100)
    crowded = market_day(5_000)
    assert (np.diff(crowded.time) == 0).any()
    assert np.array_equal(crowded.order(), np.arange(len(crowded)))


def test_each_source_counts_its_own_events_from_one_without_holes() -> None:
    for code in range(len(day().source.dictionary)):
        seq = day().seq[day().source.values == code]
        assert np.array_equal(seq, np.arange(1, len(seq) + 1))


def test_each_topic_comes_from_the_sources_that_can_know_it() -> None:
    names = np.array(day().source.dictionary)
    found = {topic: set(names[day().source.values[rows(topic)]]) for topic in TOPICS}
    assert found == {
        "CurrencyRate": {"forex"},
        "EarningsReport": {"filings"},
        "News": {"wire"},
        "StockQuote": {"XA", "XB", "XC"},
        "Trade": {"XA", "XB", "XC"},
    }


def test_all_events_happen_while_the_market_is_open() -> None:
    assert day().time.min() >= OPEN_US
    assert day().time.max() < CLOSE_US


@pytest.mark.parametrize("topic", TOPICS)
def test_the_mix_of_topics_is_the_stated_one(topic: str) -> None:
    assert rows(topic).mean() == pytest.approx(MIX[topic], rel=0.15)


@pytest.mark.parametrize("topic", TOPICS)
def test_events_have_exactly_the_attributes_of_their_topic(topic: str) -> None:
    for (name, kind), column in day().attributes.items():
        assert column.valid is not None
        held = column.valid[rows(topic)]
        expected = TOPICS[topic].attributes.get(name) is kind
        assert held.all() if expected else not held.any(), (name, kind)


def test_symbols_are_named_by_their_popularity_which_follows_a_power_law() -> None:
    symbol = day().attributes["symbol", Kind.STRING]
    assert len(symbol.dictionary) == 200
    assert symbol.dictionary[0] == "S001"
    counts = np.bincount(values("symbol", Kind.STRING, "StockQuote"), minlength=200)
    assert counts[0] / counts[9] == pytest.approx(10**0.901, rel=0.15)
    assert counts.min() > 0


def test_a_quoted_value_walks_in_small_steps_from_the_last_one_of_its_symbol() -> None:
    symbol = values("symbol", Kind.STRING, "StockQuote")
    walk = values("value", Kind.FLOAT, "StockQuote")[symbol == 0]
    steps = np.abs(np.diff(walk)) / walk[:-1]
    assert (walk > 0).all()
    assert steps.max() < 0.01
    assert np.unique(walk).size > 10


def test_trades_are_made_close_to_the_quoted_value() -> None:
    quotes = rows("StockQuote") & (day().attributes["symbol", Kind.STRING].values == 0)
    trades = rows("Trade") & (day().attributes["symbol", Kind.STRING].values == 0)
    last = np.searchsorted(np.flatnonzero(quotes), np.flatnonzero(trades)) - 1
    quoted = day().attributes["value", Kind.FLOAT].values[quotes][last[last >= 0]]
    paid = day().attributes["price", Kind.FLOAT].values[trades][last >= 0]
    assert np.abs(paid / quoted - 1).max() < 0.002


def test_the_headline_agrees_with_the_sentiment() -> None:
    worst = values("headline", Kind.STRING, "News") == 0
    best = values("headline", Kind.STRING, "News") == len(HEADLINES) - 1
    sentiment = values("sentiment", Kind.FLOAT, "News")
    assert sentiment[worst].max() < -0.7
    assert sentiment[best].min() > 0.7


def test_a_row_is_an_event_that_can_be_read() -> None:
    event = day().event(int(np.flatnonzero(rows("Trade"))[0]))
    assert event.topic == "Trade"
    assert event.attributes["side"] in {"buy", "sell"}
    assert event.id == f"{event.source}:{event.seq}"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_tiny_day_is_a_day(count: int) -> None:
    assert len(list(market_day(count, symbols=1).events())) == count


@pytest.mark.parametrize(("events", "symbols"), [(-1, 1), (1, 0)])
def test_an_impossible_day_is_refused(events: int, symbols: int) -> None:
    with pytest.raises(UsageError, match="impossible"):
        market_day(events, symbols=symbols)

"""One door for tables: whatever the events come in, the relations are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from concordant.errors import UsageError
from concordant.files.subscriptions import read_subscriptions
from concordant.language import emit, subscription, topic
from concordant.local import Relations, correlate
from concordant.model.subscription import Consume, Match

QUESTION = "paid: Order then Payment partition by n within 10 s"
ROWS = [
    {"topic": "Order", "source": "shop", "seq": 1, "time": 1_000_000, "n": 7},
    {"topic": "Order", "source": "shop", "seq": 2, "time": 2_000_000, "n": 8},
    {"topic": "Payment", "source": "bank", "seq": 1, "time": 3_000_000, "n": 8},
    {"topic": "Payment", "source": "bank", "seq": 2, "time": 60_000_000, "n": 7},
]
EXPECTED = [((8,), ("shop:2", "bank:1"))]


class SparkLike:
    """What a Spark DataFrame shows of itself: `toArrow`, and no Arrow stream."""

    def toArrow(self) -> Any:  # noqa: N802 - Spark's name
        return pa.Table.from_pylist(ROWS)


def found(relations: Relations) -> list[tuple[tuple[Any, ...], tuple[str, ...]]]:
    return [(relation.key, relation.event_ids) for relation in relations]


def by_topic() -> dict[str, pa.Table]:
    rows = {"Order": ROWS[:2], "Payment": ROWS[2:]}
    return {name: pa.Table.from_pylist(own).drop_columns("topic") for name, own in rows.items()}


@pytest.mark.parametrize(
    "events",
    [
        ROWS,
        list(reversed(ROWS)),
        (row for row in ROWS),
        pa.Table.from_pylist(ROWS),
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        SparkLike(),
        by_topic(),
        {name: table.to_pandas() for name, table in by_topic().items()},
    ],
    ids=["dicts", "reversed", "generator", "arrow", "pandas", "polars", "spark", "map", "frames"],
)
def test_every_form_of_events_gives_the_same_relations(events: Any) -> None:
    assert found(correlate(events, QUESTION)) == EXPECTED


@pytest.mark.parametrize("as_path", [str, Path])
def test_files_give_the_same_relations(as_path: type, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "events.parquet")
    assert found(correlate(as_path(tmp_path / "events.parquet"), QUESTION)) == EXPECTED


def test_columns_can_be_named() -> None:
    rows = [{"at": 1, "n": 1}, {"at": 2, "n": 2}]
    assert found(correlate(rows, "Tick.n = 2", topic="Tick", time="at")) == [((), ("table:2",))]


def test_ordered_input_is_checked() -> None:
    with pytest.raises(UsageError, match="belongs before"):
        correlate(list(reversed(ROWS)), QUESTION, ordered=True)


def test_subscriptions_by_operators_by_text_and_by_file_are_the_same(tmp_path: Path) -> None:
    order, payment = topic("Order"), topic("Payment")
    built = subscription(order.then(payment), name="paid", partition_by="n", within="10 s")
    (tmp_path / "paid.sub").write_text(QUESTION.removeprefix("paid:"))
    file = tmp_path / "paid.sub"
    assert read_subscriptions(QUESTION) == (built,)
    assert read_subscriptions(file) == read_subscriptions(str(file)) == (built,)
    assert found(correlate(ROWS, built)) == found(correlate(ROWS, [built])) == EXPECTED


def test_several_subscriptions_may_feed_each_other() -> None:
    paid = subscription(
        topic("Order").then(topic("Payment")),
        name="paid",
        partition_by="n",
        emit=emit("Paid", n=topic("Order").n),
    )
    relations = correlate(ROWS, [paid, subscription(topic("Paid").n > 7, name="large")])
    assert [relation.subscription for relation in relations] == ["paid", "large", "paid"]
    assert {name: one.relations for name, one in relations.counters.items()} == {
        "paid": 2,
        "large": 1,
    }


def test_a_text_that_ends_with_an_attribute_called_sub_is_a_text() -> None:
    for text in ("A.x = B.sub", "A and B partition by sub.sub", "A.sub < B.sub"):
        assert read_subscriptions(text)[0].name == "subscription"


def test_a_missing_file_is_named_and_a_slip_may_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.sub: there is no such subscription file"):
        read_subscriptions("no.sub")
    with pytest.raises(UsageError, match="the subscription file cannot be read"):
        read_subscriptions(tmp_path)
    with pytest.raises(UsageError, match="is it a file"):
        read_subscriptions("subs/rising")
    with pytest.raises(UsageError, match="a str is not a subscription"):
        read_subscriptions(["A then B"])  # type: ignore[list-item]
    assert read_subscriptions("A or " * 2_000 + "A")  # longer than any name of a file


def test_policies_can_be_replaced_one_at_a_time() -> None:
    text = "A match first contiguous staged consume slide"
    (both,) = read_subscriptions(text, match="MR", consume="I")
    assert (both.policy.match, both.policy.consume) == (Match.RECENT, Consume.MATCHED)
    assert not both.policy.contiguous and not both.policy.staged
    (one,) = read_subscriptions(text, consume="prefix")
    assert (one.policy.match, one.policy.contiguous, one.policy.staged) == (Match.FIRST, True, True)
    for wrong in ("first consume slide", "", "FR FR"):
        with pytest.raises(UsageError, match="matching policy"):
            read_subscriptions(text, match=wrong)


def test_an_error_about_topics_names_the_file_of_the_subscription(tmp_path: Path) -> None:
    file = tmp_path / "q.sub"
    file.write_text("Nope")
    with pytest.raises(UsageError, match=r"q\.sub: subscription 'q': there is no topic 'Nope'"):
        correlate(ROWS, file)


def test_relations_are_a_sequence_a_table_and_a_text() -> None:
    relations = correlate(ROWS, "Order partition by n")
    assert len(relations) == 2
    assert relations[0].event_ids == ("shop:1",)
    assert [one.key for one in relations[:1]] == [(7,)]
    assert relations.to_arrow().select(
        ["subscription", "key", "position", "events"]
    ).to_pylist() == [
        {"subscription": "subscription", "key": ["7"], "position": 1, "events": ["shop:1"]},
        {"subscription": "subscription", "key": ["8"], "position": 1, "events": ["shop:2"]},
    ]
    assert repr(relations) == (
        "2 relations\n  subscription 7 #1: shop:1\n  subscription 8 #1: shop:2"
    )
    assert repr(correlate(ROWS, "Order.n > 99")) == "0 relations"


def test_a_long_result_is_shown_in_part() -> None:
    rows = [{"topic": "A", "time": number} for number in range(30)]
    relations = correlate(rows, "A")
    assert repr(relations).startswith("30 relations\n")
    assert repr(relations).endswith("\n  …")
    assert relations._repr_html_().count("<tr>") == 11


def test_html_is_escaped() -> None:
    rows = [{"topic": "A", "time": 1, "source": "<b>", "seq": 1, "k": "<i>&"}]
    html = correlate(rows, "A partition by k")._repr_html_()
    assert "<b>" not in html and "<i>" not in html
    assert "&lt;i&gt;&amp;" in html and "1 relation<" in html


def test_progress_counts_up_to_the_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concordant.local._CHUNK", 1_000)
    rows = [{"topic": "A", "time": number} for number in range(2_500)]
    seen: list[int] = []
    correlate(rows, "A.seq < 0", progress=seen.append)
    assert seen == sorted(seen)
    assert seen == [1_000, 2_000, 2_500]


def test_a_list_of_paths_is_read_as_several_files(tmp_path: Path) -> None:
    paths = []
    for number, name in enumerate(("Order", "Payment")):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(f'{{"topic": "{name}", "time": {number}, "n": 7}}\n')
        paths.append(path)
    (found,) = correlate(paths, "Order then Payment partition by n")
    assert [event.topic for event in found.events] == ["Order", "Payment"]


def test_many_events_with_derived_topics_go_through_the_kernel() -> None:
    rows = [{"topic": "Tick", "time": number, "n": number % 7} for number in range(3_000)]
    text = """
    pair: Tick[1].n < Tick[2].n emit Pair(low = Tick[1].n)
    twice: Pair[1].low = Pair[2].low
    """
    many = correlate(rows, text)
    few = correlate(rows[:2_000], text)
    assert {one.subscription for one in many} == {"pair", "twice"}
    assert [one.id for one in many][: len(few)] == [one.id for one in few]

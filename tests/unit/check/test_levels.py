"""Each promise of the levels on histories that a person can read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from concordant.check.levels import LEVELS, check_level, promised_level
from concordant.check.verdict import Verdict
from concordant.errors import UsageError
from concordant.model.history import Row


def history(*lines: str) -> list[Row]:
    """Rows from words: `s publishes a:1 T`, `s delivers a:1`, `s subscribes T U`, `end`, ….

    A delivery with `!` is out of order; the topic of an event is that of its publication.
    """
    rows: list[Row] = []
    topics: dict[str, str] = {}
    for time, line in enumerate(lines, 1):
        process, verb, *words = line.split() if line != "end" else ("", "end")
        if verb == "publishes":
            topics[words[0]] = words[1]
            rows.append(Row("r", process, "publish", time, topics=(words[1],), events=(words[0],)))
        elif verb == "delivers":
            rows.append(
                Row(
                    "r",
                    process,
                    "deliver",
                    time,
                    topics=(topics.get(words[0], "T"),),
                    events=(words[0],),
                    in_order="!" not in words,
                )
            )
        elif verb == "suspects":
            rows.append(Row("r", process, "suspect", time, text=words[0]))
        elif verb == "end":
            rows.append(Row("r", "", "end", time))
        else:
            steps = {
                "subscribes": "subscribe",
                "unsubscribes": "unsubscribe",
                "crashes": "crash",
                "restarts": "restart",
            }
            rows.append(Row("r", process, steps[verb], time, topics=tuple(words)))  # type: ignore[arg-type]
    return rows


def broken(rows: Sequence[Row], level: str) -> list[str]:
    return [verdict.name for verdict in check_level(rows, level) if not verdict.holds]


def verdict(rows: Sequence[Row], level: str, name: str) -> Verdict:
    return next(one for one in check_level(rows, level) if one.name == name)


PUBLISHED = ("a publishes a:1 T", "a publishes a:2 T", "b publishes b:1 U")


def test_what_nobody_published_is_a_creation() -> None:
    assert broken(history(*PUBLISHED, "s delivers a:9"), "none") == ["No Creation"]


def test_what_is_delivered_twice_is_a_duplicate() -> None:
    rows = history(*PUBLISHED, "s delivers a:1", "s delivers a:1")
    assert broken(rows, "none") == []
    assert broken(rows, "fifo") == ["No Duplication"]


def test_what_is_not_subscribed_is_not_delivered() -> None:
    rows = history("s subscribes T", *PUBLISHED, "s unsubscribes T", "s delivers a:1")
    assert broken(rows, "none") == ["Subscribed"]


def test_order_per_source_is_told_as_a_story() -> None:
    found = verdict(history(*PUBLISHED, "s delivers a:2", "s delivers a:1"), "fifo", "FIFO")
    assert str(found).splitlines() == [
        "FIFO: violated: s delivered a:1 after a:2, which a published later",
        "  t=1 a published a:1 to T",
        "  t=2 a published a:2 to T",
        "  t=4 s delivered (a:2)",
        "  t=5 s delivered (a:1)",
    ]


def test_an_effect_before_its_cause_breaks_causal_order_through_a_third_topic() -> None:
    rows = history(
        "a publishes a:1 T",
        "b delivers a:1",
        "b publishes b:1 U",
        "c delivers b:1",
        "c publishes c:1 V",
        "s delivers c:1",
        "s delivers a:1",
    )
    assert broken(rows, "causal") == ["Causal"]
    assert broken(rows, "fifo") == []
    found = verdict(rows, "causal", "Causal")
    assert found.violation is not None
    assert found.violation.sentence == "s delivered c:1 before a:1, which may have caused it"


def test_events_that_know_nothing_of_each_other_may_come_in_any_order() -> None:
    rows = history(
        *PUBLISHED, "s delivers b:1", "s delivers a:1", "t delivers a:1", "t delivers b:1"
    )
    assert broken(rows, "causal") == []
    assert broken(rows, "total") == ["Total Order"]


def test_a_circle_through_three_processes_breaks_no_promise_to_two() -> None:
    rows = history(
        "a publishes a:1 T",
        "b publishes b:1 U",
        "c publishes c:1 V",
        *("p delivers a:1", "p delivers b:1"),
        *("q delivers b:1", "q delivers c:1"),
        *("r delivers c:1", "r delivers a:1"),
    )
    assert broken(rows, "total strict") == []


MOVED = (
    "s subscribes T",
    "t subscribes T U",
    *PUBLISHED,
    "s delivers a:1",
    "s unsubscribes T",
    "s subscribes U",
    "s delivers b:1",
    "t delivers b:1",
    "t delivers a:1",
)


def test_topics_that_were_never_held_together_count_only_for_the_strict_order() -> None:
    assert broken(history(*MOVED), "total") == []
    assert broken(history(*MOVED), "total strict") == ["Total Order, strict"]


def test_topics_held_together_when_one_of_two_is_delivered_count() -> None:
    held = [line for line in MOVED if line != "s unsubscribes T"]
    assert broken(history(*held), "total") == ["Total Order"]


def test_a_tag_excuses_the_order_if_it_is_honest() -> None:
    shared = ("a publishes a:1 T", "b publishes b:1 T", "s delivers a:1", "s delivers b:1")
    late = history(*shared, "t suspects a", "t delivers b:1", "t delivers a:1 !")
    assert broken(late, "total") == []
    assert broken(history(*shared, "t delivers b:1", "t delivers a:1 !"), "total") == ["Tags"]
    in_order = history(*shared, "t suspects a", "t delivers a:1", "t delivers b:1 !")
    assert broken(in_order, "total") == ["Tags"]
    assert broken(history(*shared, "t suspects a", "t delivers a:1 !"), "total") == ["Tags"]


def test_at_the_end_everything_owed_is_there() -> None:
    rows = history("s subscribes T", *PUBLISHED, "s delivers a:1", "end")
    assert broken(rows, "fifo") == ["Validity"]
    assert broken(rows[:-1], "fifo") == []  # it may still come


def test_nothing_is_owed_before_a_subscription_or_after_it() -> None:
    assert broken(history(*PUBLISHED, "s subscribes T", "end"), "fifo") == []
    assert broken(history("s subscribes T", *PUBLISHED, "s unsubscribes T", "end"), "fifo") == []


def test_of_a_publisher_that_never_came_back_only_what_somebody_delivered_is_owed() -> None:
    gone = ("s subscribes T", "t subscribes T", "a publishes a:1 T", "a crashes")
    assert broken(history(*gone, "end"), "fifo") == []
    assert broken(history(*gone, "s delivers a:1", "end"), "fifo") == ["Validity"]


def relation(process: str, *events: str) -> Row:
    topics = tuple("T" for _ in events)
    return Row(
        "r", process, "deliver", 9, subscription="S", conjunction=1, topics=topics, events=events
    )


def test_agreed_subscribers_deliver_the_same_relations_from_the_first_common_one() -> None:
    base = history(*(f"a publishes a:{n} T" for n in range(1, 7)))
    mine = [relation("p", "a:1", "a:2"), relation("p", "a:3", "a:4"), relation("p", "a:5", "a:6")]
    assert broken([*base, *mine, relation("q", "a:3", "a:4")], "agreed") == []
    other = [relation("q", "a:1", "a:2"), relation("q", "a:4", "a:5")]
    assert broken([*base, *mine, *other], "agreed") == ["Agreed"]


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no level 'best'"):
        check_level([], "best")


def test_the_promised_level_is_read_from_the_subscriptions() -> None:
    rows = [Row("r", "s", "subscribe", level="fifo"), Row("r", "t", "subscribe", level="fifo")]
    assert promised_level(rows) == "fifo"
    with pytest.raises(UsageError, match="several levels"):
        promised_level([*rows, Row("r", "u", "subscribe", level="total")])
    with pytest.raises(UsageError, match="does not say"):
        promised_level([])


@pytest.mark.parametrize("level", LEVELS)
def test_an_empty_history_breaks_nothing_and_shows_nothing(level: str) -> None:
    assert all(one.holds and not one.checked for one in check_level([], level))

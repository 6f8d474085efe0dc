"""The judge of killed leaders catches what is lost, doubled or different."""

from __future__ import annotations

from concordant.model.history import Row
from tests.campaign.merging_live import wrong

PAIRS = [("p:1", "p:2"), ("p:3", "p:4"), ("q:1", "q:2"), ("p:5", "p:6")]
"""Odd numbers were published to T1, even ones to T2."""


def history(**delivered: list[tuple[str, str]]) -> list[Row]:
    rows = [
        Row("run", source, "publish", topics=(f"T{2 - n % 2}",), events=(f"{source}:{n}",))
        for source, count in (("p", 6), ("q", 2))
        for n in range(1, count + 1)
    ]
    for name, pairs in delivered.items():
        rows += [Row("run", name, "deliver", topics=("T1", "T2"), events=pair) for pair in pairs]
    return rows


def test_nothing_is_wrong_if_everybody_has_every_pair() -> None:
    assert list(wrong(history(s1=PAIRS, s2=PAIRS), ("s1", "s2"))) == []


def test_who_began_later_has_the_end_of_what_the_others_have() -> None:
    assert list(wrong(history(s1=PAIRS, s2=PAIRS[1:]), ("s1", "s2"))) == []


def test_a_relation_that_is_missing_in_the_middle_is_seen() -> None:
    less = [PAIRS[0], *PAIRS[2:]]
    found = list(wrong(history(s1=less, s2=less), ("s1", "s2")))
    assert any("one after the other" in sentence for sentence in found)


def test_relations_that_are_missing_at_the_end_are_seen() -> None:
    found = list(wrong(history(s1=PAIRS[:2], s2=PAIRS[:2]), ("s1", "s2")))
    assert any("lost relations" in sentence for sentence in found)


def test_a_relation_that_comes_twice_is_seen() -> None:
    found = list(wrong(history(s1=[*PAIRS, PAIRS[0]], s2=[*PAIRS, PAIRS[0]]), ("s1", "s2")))
    assert any("twice" in sentence for sentence in found)


def test_subscribers_that_disagree_are_seen() -> None:
    other = [PAIRS[0], PAIRS[2], PAIRS[1], PAIRS[3]]
    found = list(wrong(history(s1=PAIRS, s2=other), ("s1", "s2")))
    assert any("other relations" in sentence for sentence in found)

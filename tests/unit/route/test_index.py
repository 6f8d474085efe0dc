"""The matching index finds exactly what asking every filter finds."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.model.event import Event
from concordant.route.filter import Filter, between, filter_of, prefix
from concordant.route.index import MatchingIndex
from tests.unit.route.test_filter import EVENTS, FILTERS


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), FILTERS, st.booleans()), max_size=30),
    st.lists(EVENTS, max_size=5),
)
def test_the_index_equals_the_linear_scan(
    steps: list[tuple[int, Filter, bool]], events: list[Event]
) -> None:
    index, known = MatchingIndex(), {}
    for number, wanted, keep in steps:
        key = f"s{number}"
        if keep:
            index.add(key, wanted)
            known[key] = wanted
        else:
            index.remove(key)
            known.pop(key, None)
        for event in events:
            found = index.matching(event)
            assert sorted(found) == sorted(k for k, one in known.items() if one.matches(event))
    assert len(index) == len(known)


def test_many_ranges_come_and_go() -> None:
    rng = Random(1)
    index, known = MatchingIndex(), {}
    for step in range(3_000):
        key = f"s{rng.randrange(600)}"
        if rng.random() < 0.6:
            low = rng.randrange(1_000)
            shapes = [
                between(low, low + rng.randrange(1, 50)),
                between(low, None),
                between(None, low),
            ]
            wanted = filter_of("T", x=rng.choice(shapes))
            if rng.random() < 0.2:
                wanted = filter_of("T", x=prefix(rng.choice("abc")), y=(low, low + 5))
            index.add(key, wanted)
            known[key] = wanted
        else:
            index.remove(key)
            known.pop(key, None)
        if step % 10 == 0:
            x = rng.choice([rng.randrange(1_050), rng.choice(["a", "bb", "d"])])
            event = Event("T", "p", step + 1, 0, {"x": x, "y": rng.randrange(1_000)})
            expected = sorted(k for k, one in known.items() if one.matches(event))
            assert sorted(index.matching(event)) == expected

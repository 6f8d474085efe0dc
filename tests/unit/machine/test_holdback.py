"""The holdback: the items nearest to their turn are kept, in bounded room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concordant.machine.holdback import Holdback


@given(st.lists(st.tuples(st.sampled_from("ptd"), st.integers(0, 30)), max_size=80))
def test_it_keeps_the_nearest_whatever_is_put_taken_and_drained(
    steps: list[tuple[str, int]],
) -> None:
    held = Holdback[int, int](count_max=4)
    kept: dict[int, int] = {}
    for step, key in steps:
        if step == "p":
            full = len(kept) >= 4
            expected = key not in kept and not (full and max(kept) < key)
            assert held.put(key, key) == expected
            if expected:
                if full:
                    del kept[max(kept)]
                kept[key] = key
        elif step == "t":
            assert held.take(key) == kept.pop(key, None)
        else:
            due = sorted(one for one in kept if one < key)
            assert held.drain(lambda one: one < key) == due  # noqa: B023 - called at once
            kept = {one: one for one in kept if one >= key}
        assert list(held) == sorted(kept)
        assert len(held.order) <= 2 * held.count_max

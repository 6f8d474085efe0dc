"""Links: whatever is lost, doubled or overtaken, everything is taken once and in order."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from concordant.order.sequencing.channel import Channels
from concordant.order.sequencing.messages import Content, Created, Parcel, Receipt


def channels(life: int = 0, held: int = 100) -> Channels:
    return Channels(
        held,
        repeat_us=10,
        repeat_us_max=80,
        acknowledge_us=1,
        answer_count_max=10,
        life=life,
    )


def content(n: int) -> Content:
    return Created("a", n)


@given(st.integers(1, 30), st.integers(2, 40), st.integers(0, 10_000))
def test_everything_arrives_once_and_in_order(count: int, held: int, seed: int) -> None:
    rng = Random(seed)
    sender, receiver = channels(life=1), channels(held=held)
    under_way = [sender.post("r", content(n)) for n in range(1, count + 1)]
    sender.next_wait_us()
    got: list[Content] = []
    while sender.waiting_count:
        rng.shuffle(under_way)
        for parcel in under_way:
            for _ in range(rng.choice((0, 1, 2))):
                got += receiver.accept("s", parcel)
        for receipt in receiver.receipts().values():
            if rng.random() < 0.7:
                sender.settle("r", receipt)
        under_way = list(sender.repeats(5).get("r", ()))
    assert got == [content(n) for n in range(1, count + 1)]


def test_what_overtook_the_first_parcel_of_a_life_waits_for_it() -> None:
    receiver = channels()
    assert receiver.accept("s", Parcel(1, 2, content(2))) == []
    assert receiver.accept("s", Parcel(1, 1, content(1))) == [content(1), content(2)]


def test_a_new_life_begins_anew_in_both_directions() -> None:
    receiver = channels()
    receiver.accept("s", Parcel(1, 1, content(1)))
    receiver.post("s", content(7))
    assert receiver.accept("s", Parcel(2, 1, content(3))) == [content(3)]
    assert receiver.accept("s", Parcel(1, 2, content(2))) == []
    assert receiver.post("s", content(8)) == Parcel(2, 1, content(8))
    receiver.settle("s", Receipt(1, 1))  # of the old life
    assert receiver.waiting_count == 1


def test_repeats_wait_longer_each_time_until_something_is_acknowledged() -> None:
    sender = channels()
    sender.post("r", content(1))
    assert [sender.next_wait_us() for _ in range(5)] == [10, 20, 40, 80, 80]
    sender.settle("r", Receipt(0, 1))
    assert sender.next_wait_us() == 10


def test_what_was_sent_after_the_timer_was_set_is_not_repeated_yet() -> None:
    sender = channels()
    first = sender.post("r", content(1))
    sender.next_wait_us()
    sender.post("r", content(2))
    assert sender.repeats(10) == {"r": (first,)}


def test_a_flood_is_held_back_up_to_a_bound() -> None:
    receiver = channels(held=3)
    for n in range(100, 1, -1):
        receiver.accept("s", Parcel(0, n, content(n)))
    assert receiver.accept("s", Parcel(0, 1, content(1))) == [content(n) for n in (1, 2, 3, 4)]


def test_what_was_taken_before_a_crash_is_not_taken_again() -> None:
    receiver = channels()
    receiver.replay("s", 3, 5)
    assert receiver.accept("s", Parcel(3, 5, content(5))) == []
    assert receiver.accept("s", Parcel(3, 6, content(6))) == [content(6)]

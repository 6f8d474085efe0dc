"""A merger's core, command by command."""

from __future__ import annotations

import msgspec

from concordant.language import parse
from concordant.model.event import Event
from concordant.order.merging.core import Core
from concordant.order.merging.filters import ALL, Filter, filter_of
from concordant.order.merging.messages import (
    Advance,
    Attach,
    Borrow,
    Complete,
    Cut,
    Detach,
    Ev,
    Item,
    Lent,
    Link,
    Live,
    Past,
    Put,
    Recut,
    Start,
    Take,
    Widened,
)

BOTH = Filter({"A": ALL, "B": ALL})


def root(topic: str = "A") -> Core:
    return Core((topic,))


def put(core: Core, n: int, topic: str = "A", hint: int = 0) -> None:
    core.apply(Put("p", n, (Event(topic, "p", n, n),), hint))


def attach(core: Core, name: str, session: int = 1, filter: Filter = BOTH, after: int = 0) -> None:
    core.apply(Attach("", f"{name} q", session, "q", filter, after))


def items(core: Core, name: str) -> list[Item]:
    session = core.sessions[f"{name} q"]
    return [one for one in core.between(session.begin, core.end) if session.sees(one)]


def test_a_root_gives_each_event_of_a_publisher_one_place() -> None:
    core = root()
    attach(core, "s")
    for n in (1, 1, 3, 2):
        put(core, n)
    assert [one.event.seq for one in items(core, "s") if isinstance(one, Ev)] == [1, 2]


def test_times_grow_and_follow_hints() -> None:
    core = root()
    attach(core, "s")
    for n, hint in ((1, 50), (2, 10), (3, 0)):
        put(core, n, hint=hint)
    assert [one.ts for one in items(core, "s")[1:]] == [50, 51, 52]


def test_who_comes_second_begins_where_its_donor_is_cut() -> None:
    core = root()
    attach(core, "s")
    put(core, 1)
    attach(core, "t")
    put(core, 2)
    assert items(core, "s")[0] == Start(0, 0, "", 1)
    assert items(core, "s")[2] == Cut(3, 1, "t q", 1, 2)
    assert items(core, "t")[0] == Start(2, 1, "s q", 2)
    assert isinstance(items(core, "t")[1], Ev)


def test_a_join_is_complete_only_for_the_last_cut() -> None:
    core = root()
    attach(core, "s")
    attach(core, "t")
    core.apply(Recut("", "t q", 1, 2))
    core.apply(Complete("", "t q", 1, 2))
    assert not core.sessions["t q"].joined
    core.apply(Complete("", "t q", 1, 3))
    assert core.sessions["t q"].joined and isinstance(items(core, "t")[-1], Live)
    core.apply(Recut("", "t q", 1, 3))
    assert isinstance(items(core, "t")[-1], Live)  # nothing after it is a start


def test_when_the_only_donor_dies_all_who_wait_begin_empty_at_one_place() -> None:
    core = root()
    for name in ("s", "t", "u"):
        attach(core, name)
    put(core, 1)
    core.apply(Detach("", "s q", 1))
    assert items(core, "t")[-1] == Start(6, 1, "", 4)
    assert items(core, "u")[-1] == Start(7, 1, "", 4)
    assert core.sessions["t q"].joined and core.sessions["u q"].joined


def test_when_another_donor_is_left_those_who_wait_are_cut_again() -> None:
    core = root()
    for name in ("s", "t", "u"):
        attach(core, name)
    core.apply(Complete("", "t q", 1, 2))
    core.apply(Detach("", "s q", 1))
    assert items(core, "u")[-1] == Start(6, 0, "t q", 4)
    assert items(core, "t")[-1] == Cut(7, 0, "u q", 1, 4)


def test_a_session_that_ended_does_not_begin_again() -> None:
    core = root()
    attach(core, "s", 2)
    core.apply(Detach("", "s q", 2))
    attach(core, "s", 2)
    assert not core.sessions
    attach(core, "s", 3)
    assert core.sessions["s q"].number == 3


def test_a_subscription_at_run_time_begins_after_what_was_delivered() -> None:
    core = root()
    attach(core, "s", after=100)
    put(core, 1)
    assert [one.ts for one in items(core, "s")] == [100, 101]


def test_a_mark_is_an_item_and_moves_the_clock() -> None:
    core = root()
    attach(core, "s")
    mark = Advance("", "s q", 1, 70)
    assert core.changes(mark)
    core.apply(mark)
    assert items(core, "s")[-1] == Past(1, 70)
    assert not core.changes(mark)
    put(core, 1)
    assert core.ts == 71


# --- filters have their place in the stream -------------------------------------------------------


def take(core: Core, side: int, item: Item) -> None:
    n = core.next[side]
    core.apply(Take(core.life, side, n, n + 1, (msgspec.structs.replace(item, n=n),), 0))


def few(bound: str) -> Filter:
    return filter_of(parse(f"q: A.x = {bound} and B")[0])


def test_a_subscriber_waits_until_both_parents_have_its_filter() -> None:
    core = Core(("A", "B"))
    attach(core, "s")
    assert core.live and core.life == 1 and not core.sessions
    take(core, 0, Widened(0, 0, 1))
    assert not core.sessions
    take(core, 1, Widened(0, 0, 1))
    assert isinstance(items(core, "s")[0], Start)


def test_who_is_covered_by_what_is_in_force_begins_at_once() -> None:
    core = Core(("A", "B"))
    attach(core, "s")
    for side in (0, 1):
        take(core, side, Widened(0, 0, 1))
    attach(core, "t")
    assert "t q" in core.sessions and core.version == 1


def test_a_narrower_filter_on_its_way_is_waited_out() -> None:
    core = Core(("A", "B"))
    attach(core, "s", filter=few("1"))
    core.apply(Attach("", "w q", 1, "other", BOTH))
    for side in (0, 1):
        take(core, side, Widened(0, 0, 2))
    core.apply(Detach("", "w q", 1))
    assert core.version == 3  # a narrower one was asked for, and may be in force any moment
    core.apply(Attach("", "v q", 1, "other", BOTH))
    assert core.version == 4 and "v q" not in core.sessions
    for side in (0, 1):
        take(core, side, Widened(0, 0, 3))
    assert "v q" not in core.sessions
    for side in (0, 1):
        take(core, side, Widened(0, 0, 4))
    assert "v q" in core.sessions


def test_a_child_has_its_old_filter_until_the_new_one_is_in_its_stream() -> None:
    core = root()
    child = "A+B left"
    core.apply(Link("A", child, 1, 1, few("1").restricted(("A",))))
    core.apply(Put("p", 1, (Event("A", "p", 1, 1, {"x": 2}),), 0))
    core.apply(Link("A", child, 1, 2, Filter({"A": ALL})))
    core.apply(Put("p", 2, (Event("A", "p", 2, 2, {"x": 2}),), 0))
    session = core.sessions[child]
    kinds = [type(one).__name__ for one in core.items if session.sees(one)]
    assert kinds == ["Widened", "Widened", "Ev"]


def test_a_merger_without_consumers_sleeps_and_wakes_as_another_life() -> None:
    core = Core(("A", "B"))
    attach(core, "s")
    core.apply(Detach("", "s q", 1))
    assert not core.live
    late = Take(1, 0, 0, 1, (Widened(0, 0, 1),), 0)
    attach(core, "t")
    assert core.live and core.life == 2 and core.next == [0, 0]
    core.apply(late)
    assert core.next == [0, 0]  # it belongs to the life before


def test_what_would_change_nothing_is_known_beforehand() -> None:
    core = root()
    attach(core, "s")
    assert not core.changes(Attach("", "s q", 1, "q", BOTH))
    assert core.changes(Attach("", "s q", 2, "q", BOTH))
    assert not core.changes(Detach("", "s q", 0))
    assert not core.changes(Complete("", "s q", 1, 1))
    assert core.changes(Put("p", 1, (Event("A", "p", 1, 1),), 0))
    assert not core.changes(Put("p", 2, (Event("A", "p", 2, 2),), 0))


# --- runs, and what is taken twice ----------------------------------------------------------------


def alive() -> Core:
    core = Core(("A", "B"))
    attach(core, "s")
    for side in (0, 1):
        take(core, side, Widened(0, 0, 1))
    return core


def test_what_a_new_leader_takes_again_is_passed_over() -> None:
    core = alive()
    events = [Ev(n, n, Event("A", "p", n, n)) for n in range(1, 6)]
    core.apply(Take(1, 0, 1, 3, tuple(events[:2]), 0))
    again = Take(1, 0, 1, 6, tuple(events), 0)
    assert core.changes(again)
    core.apply(again)
    assert [one.event.seq for one in items(core, "s") if isinstance(one, Ev)] == [1, 2, 3, 4, 5]
    assert not core.changes(again) and core.next[0] == 6


def test_a_run_is_the_same_as_its_events() -> None:
    together, single = alive(), alive()
    events = tuple(Ev(n, n, Event("A", "p", n, n)) for n in range(1, 6))
    together.apply(Take(1, 0, 1, 6, events, 70))
    for one in events:
        single.apply(Take(1, 0, one.n, one.n + 1, (one,), 70))
    assert msgspec.msgpack.encode(together) == msgspec.msgpack.encode(single)


# --- queues of a prefix ---------------------------------------------------------------------------


def borrower() -> Core:
    """The merger of A, B and C, with one who asks for the queues of `A and B`."""
    core = Core(("A", "B", "C"))
    wanted = Filter({"A": ALL, "B": ALL, "C": ALL})
    for name in ("s", "t"):
        core.apply(Attach("", f"{name} q", 1, "abc", wanted, 0, "ab"))
    for side in (0, 1):
        take(core, side, Widened(0, 0, 1))
    return core


def test_the_first_of_a_conjunction_asks_for_the_queues_of_its_prefix_and_others_wait() -> None:
    core = borrower()
    assert [(one.consumer, one.borrowing) for one in core.pending] == [("s q", 1), ("t q", 0)]
    take(core, 0, Lent(0, 0, "s q", 1, 1, "x r"))
    assert items(core, "s") == [Start(0, 0, "x r", 1, prefix=True)] and "t q" not in core.sessions
    core.apply(Complete("", "s q", 1, 1))
    assert isinstance(items(core, "s")[1], Live)
    assert items(core, "t")[0] == Start(2, 0, "s q", 2)


def test_where_nobody_has_the_prefix_it_begins_empty() -> None:
    core = borrower()
    take(core, 0, Lent(0, 0, "s q", 1, 1, ""))
    assert items(core, "s")[0] == Start(0, 0, "", 1, prefix=True) and core.sessions["s q"].joined
    assert core.sessions["t q"].donor == "s q"


def test_when_lent_queues_do_not_come_others_are_asked_for() -> None:
    core = borrower()
    take(core, 0, Lent(0, 0, "s q", 1, 1, "x r"))
    core.apply(Recut("", "s q", 1, 1))
    assert "s q" not in core.sessions
    (asking,) = [one for one in core.pending if one.borrowing]
    assert asking.borrowing == 2
    take(core, 0, Lent(0, 0, "s q", 1, 1, "x r"))  # too late: it belongs to the cut before
    assert not core.sessions
    take(core, 0, Lent(0, 0, asking.consumer, 1, 2, "y r"))
    assert items(core, asking.consumer.partition(" ")[0])[0].donor == "y r"


def test_a_parent_cuts_its_subscriber_and_its_child_at_one_place() -> None:
    core = Core(("A", "B"))
    core.apply(Attach("", "x r", 1, "ab", BOTH))
    core.apply(Link("", "A+B+C left", 1, 1, BOTH))
    for side in (0, 1):
        take(core, side, Widened(0, 0, core.version))
    ask = Borrow("", "A+B+C left", 1, "s q", 4, 9, "ab")
    assert core.changes(ask)
    core.apply(ask)
    assert core.items[-2:] == [
        Cut(core.end - 2, 0, "s q", 4, 9, prefix=True),
        Lent(core.end - 1, 0, "s q", 4, 9, "x r"),
    ]
    assert not core.changes(ask)

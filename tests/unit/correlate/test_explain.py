"""What explain says about an event, for everything that can become of one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from concordant.correlate.explain import Account, Refusal, Taken, Wait, explain
from concordant.correlate.plan import compile_plan
from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.model.expression import Slot
from concordant.model.subscription import Conjunction, Emit, Subscription
from concordant.model.topic import schemas
from tests.examples import A2, TOPICS, A, B, C, both, compare, policy, stream

D = Slot("D", 1)
PAIR = compare(A, "=", B)


def accounts(
    asked: Subscription | Conjunction | Iterable[Subscription], events: str, event_id: str
) -> list[Account]:
    if isinstance(asked, Conjunction):
        asked = Subscription("S", (asked,))
    given = [asked] if isinstance(asked, Subscription) else list(asked)
    return explain(compile_plan(given, schemas(TOPICS)), stream(events), event_id)


def account(asked: Subscription | Conjunction, events: str, event_id: str) -> Account:
    (found,) = accounts(asked, events, event_id)
    return found


# --- refused --------------------------------------------------------------------------------------


def test_a_refused_event_is_shown_the_predicate_and_its_values() -> None:
    found = account(both(compare(A, ">", 5)), "A3", "p:1")
    assert found.outcome == "refused"
    assert found.refusals == [Refusal("A[1]", "A[1].a > 5", {"a": 3})]
    assert str(found) == (
        "S, conjunction 1:\n"
        "  not admitted: no slot of its topic takes it\n"
        "    as A[1]: 'A[1].a > 5' is false (a is 3)"
    )


def test_a_refusal_names_every_instance_and_says_null() -> None:
    found = account(both(compare(A, "=", 0), compare(A2, "!=", 0)), "A", "p:1")
    assert [str(refusal) for refusal in found.refusals] == [
        "as A[1]: 'A[1].a = 0' is false (a is null)",
        "as A[2]: 'A[2].a != 0' is false (a is null)",
    ]


# --- taken and consumed ---------------------------------------------------------------------------


def test_a_taken_event_is_shown_its_slot_and_its_relation() -> None:
    found = account(both(PAIR), "A1 B1", "p:2")
    assert found.taken == [Taken("S/1/1", "B[1]", ("p:1", "p:2"))]
    assert found.outcome == "consumed"
    assert str(found) == "S, conjunction 1:\n  taken as B[1] by relation S/1/1 (p:1, p:2)"


def test_an_event_removed_unused_is_told_by_which_relation() -> None:
    found = account(both(PAIR), "A1 B1 A7 A2 B2", "p:3")
    assert (found.outcome, found.taken, found.consumer) == ("consumed", [], "relation S/1/2")
    assert "removed unused by relation S/1/2" in str(found)


def test_under_slide_an_event_may_be_taken_twice() -> None:
    asked = Subscription("S", (both(A2),), policy("slide"))
    found = account(asked, "A A A", "p:2")
    assert [(taken.relation, taken.slot) for taken in found.taken] == [
        ("S/1/1", "A[2]"),
        ("S/1/2", "A[1]"),
    ]
    assert found.outcome == "consumed"


def test_under_slide_a_taken_event_may_still_wait() -> None:
    asked = Subscription("S", (both(A2),), policy("slide"))
    found = account(asked, "A A", "p:2")
    assert (len(found.taken), found.outcome) == (1, "waiting")
    assert "taken as A[2]" in str(found)
    assert "still queued" in str(found)


def test_a_partition_is_named() -> None:
    asked = Subscription("S", (both(A, B),), partition_by=("k",))
    found = account(asked, "Ak1 Bk2", "p:1")
    assert found.key == ("k1",)
    assert str(found).startswith('S, conjunction 1, partition "k1":')


# --- bounds ---------------------------------------------------------------------------------------


def test_an_event_too_old_for_within_is_told_so() -> None:
    asked = Subscription("S", (both(A, B),), within_us=2)
    found = account(asked, "A@0 B@9", "p:1")
    assert found.outcome == "too old"
    assert "too old for 'within'" in str(found)


def test_an_event_over_the_cap_is_told_so() -> None:
    asked = Subscription("S", (both(A, B),), queue_count_max=1)
    found = account(asked, "A A B", "p:1")
    assert found.outcome == "over the cap"
    assert "dropped by a cap" in str(found)


def test_an_event_over_the_cap_on_all_is_told_so() -> None:
    asked = Subscription("S", (both(PAIR),), queued_count_max=1)
    assert account(asked, "A1 B2", "p:1").outcome == "over the cap"


# --- staged ---------------------------------------------------------------------------------------

STAGED = Subscription("S", (both(PAIR, C),), policy("staged"))


def test_a_finished_part_waits_for_the_other_parts() -> None:
    found = account(STAGED, "A1 B1", "p:1")
    assert (found.outcome, found.taken) == ("finished", [])
    assert "waits for the other parts" in str(found)


def test_a_finished_part_is_taken_when_the_others_are_there() -> None:
    found = account(STAGED, "A1 B1 C", "p:1")
    assert found.taken == [Taken("S/1/1", "A[1]", ("p:1", "p:2", "p:3"))]
    assert (found.outcome, found.consumer) == ("consumed", "relation S/1/1")


def test_a_finished_part_that_is_too_old_for_the_others_is_told_so() -> None:
    asked = Subscription("S", (both(A, C),), policy("staged"), within_us=2)
    assert account(asked, "A@0 A@5 C@6", "p:1").outcome == "too old"


# --- waiting --------------------------------------------------------------------------------------


def test_a_waiting_event_is_told_what_is_missing() -> None:
    found = account(both(PAIR, compare(B, ">", 0), C), "A1 B2 C", "p:1")
    assert found.outcome == "waiting"
    assert found.waits == [Wait("A[1]", ("B[1]",), ("B[1].a > 0", "A[1].a = B[1].a"))]
    assert str(found) == (
        "S, conjunction 1:\n"
        "  admitted, and still queued at the end of the events\n"
        "    as A[1]: waits for B[1] where B[1].a > 0 and A[1].a = B[1].a"
    )


def test_a_slot_without_predicates_is_missing_without_a_where() -> None:
    found = account(both(A, B), "A", "p:1")
    assert str(found.waits[0]) == "as A[1]: waits for B[1]"


def test_an_event_waits_in_every_slot_that_would_take_it() -> None:
    found = account(both(A2, B), "A B", "p:1")
    assert [(wait.slot, wait.missing) for wait in found.waits] == [
        ("A[1]", ("A[2]",)),
        ("A[2]", ("A[1]",)),
    ]


def test_candidates_that_do_not_fit_each_other_are_told_apart_from_missing_ones() -> None:
    found = account(both(A, compare(B, "=", C)), "A1 B2 C3", "p:1")
    assert found.waits == [Wait("A[1]", (), ())]
    assert "each other slot has a candidate, but not all at once" in str(found)


# --- which accounts there are ---------------------------------------------------------------------


def test_there_is_one_account_per_conjunction_that_asks_for_the_topic() -> None:
    asked = Subscription("S", (both(PAIR), both(compare(A, "=", 9)), both(C)))
    found = accounts([asked, Subscription("T", (both(A2),))], "A1", "p:1")
    assert sorted((a.subscription, a.conjunction, a.outcome) for a in found) == [
        ("S", 1, "waiting"),
        ("S", 2, "refused"),
        ("T", 1, "waiting"),
    ]


def test_an_event_nobody_asks_for_has_no_account() -> None:
    assert accounts(both(A), "A B", "p:2") == []


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(UsageError, match="no event has the id 'p:9'"):
        accounts(both(A), "A", "p:9")


def test_a_derived_event_is_explained_by_its_id() -> None:
    asked = [
        Subscription("pair", (both(PAIR),), emit=Emit("D")),
        Subscription("seen", (both(D, C),)),
    ]
    (found,) = accounts(asked, "A1 B1", "pair:1")
    assert (found.subscription, found.outcome) == ("seen", "waiting")
    assert found.waits == [Wait("D[1]", ("C[1]",), ())]


def test_events_may_come_from_an_iterator() -> None:
    plan = compile_plan([Subscription("S", (both(A),))], schemas(TOPICS))
    events = iter([Event("A", "p", 1, 0, {}, "given")])
    (found,) = explain(plan, events, "given")
    assert found.taken[0].events == ("given",)


def test_an_event_removed_by_a_waiting_part_is_told_by_which_events() -> None:
    staged = Subscription("S", (both(PAIR, C),), policy("staged"))
    first = account(staged, "A2 A1 B1", "p:1")
    assert (first.outcome, first.consumer) == ("consumed", "the waiting part (p:2, p:3)")
    later = account(staged, "A5 B5 A2 A1 B1 C1", "p:3")
    assert (later.outcome, later.consumer) == ("consumed", "the waiting part (p:4, p:5)")

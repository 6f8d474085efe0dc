"""The client machine: names inside transactions, outcomes as values, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Delivery
from concordant.machine.inputs import Command, Received
from concordant.model.event import Event
from concordant.route.filter import filter_of
from concordant.route.requests import Advertise, Publish, Subscribe, Unsubscribe
from concordant.sim.transaction_load import call, dispatch_plan
from concordant.transact.actions import ACTION_COUNT_MAX, Aborted, Committed, Plan
from concordant.transact.client import outcome_of, trigger_of
from concordant.transact.messages import Finished, Mark, Open, Prepare
from concordant.transact.options import TransactOptions
from concordant.transact.requests import Abort, Act, Begin, Commit, Run, Status
from tests.unit.transact.script import Script

DATA = filter_of("Data")


def one_client(**others: Any) -> Script:
    script = Script(1, "c1@B1 c2@B1", **others)
    script.ask("c1", Advertise("a", DATA))
    script.settle()
    return script


def delivered(script: Script, client: str, *requests: Any) -> list[Delivery]:
    """What a client is given for some requests."""
    found: list[Delivery] = []
    take = script._take

    def keep(name: str, effect: Any) -> None:
        if name == client:
            found.extend(effect.deliveries)
        take(name, effect)

    script._take = keep  # type: ignore[method-assign]
    script.ask(client, *requests)
    script.settle()
    return found


def test_outcomes_are_values() -> None:
    script = one_client()
    (one,) = delivered(script, "c1", Run(Plan("c1", (Publish("Data"),))))
    tx = script.machines["c1"].last_transaction
    assert outcome_of(one) == Committed(tx)
    assert trigger_of(one) is None
    tx = script.ask("c1", Begin("open"))
    (one,) = delivered(script, "c1", Abort(tx, "changed my mind"))
    assert outcome_of(one) == Aborted(tx, "nobody knows of it")  # nothing had left the client
    event = Delivery((Event("Data", "p", 1, 0),), 1)
    assert outcome_of(event) is None and trigger_of(event) is None


def test_who_asks_for_a_transaction_that_nobody_knows_is_told_that_it_was_aborted() -> None:
    script = one_client()
    (one,) = delivered(script, "c1", Status("c1#77"))
    assert outcome_of(one) == Aborted("c1#77", "nobody knows of it")


def test_a_name_that_an_open_transaction_changes_is_closed_to_everything_else() -> None:
    script = one_client()
    script.ask("c1", Subscribe("s", DATA))
    tx = script.ask("c1", Begin("open"))
    script.ask("c1", Act(tx, Unsubscribe("s")))
    other = script.ask("c1", Begin("open"))
    for request in (Unsubscribe("s"), Act(other, Unsubscribe("s"))):
        with pytest.raises(UsageError, match=f"'s' is being changed by the transaction {tx}"):
            script.ask("c1", request)
    script.settle()
    script.ask("c1", Abort(tx))
    script.settle()
    script.ask("c1", Unsubscribe("s"))
    assert script.machines["c1"].subscriptions == {}


def test_names_change_for_the_transaction_alone_until_it_commits() -> None:
    script = one_client()
    tx = script.ask("c1", Begin("open"))
    script.ask("c1", Act(tx, Advertise("b", filter_of("Other"))), Act(tx, Publish("Other")))
    with pytest.raises(UsageError, match="no advertisement covers Other"):
        script.ask("c1", Publish("Other"))
    script.ask("c1", Commit(tx))
    script.settle()
    script.ask("c1", Publish("Other"))


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        ((Begin("static"),), "run as a plan"),
        ((Run(Plan("c2", (Publish("Data"),))),), "this plan is one of c2"),
        ((Run(Plan("c1", (Publish("Nothing"),))),), "no advertisement covers Nothing"),
        ((Run(Plan("c1", (Unsubscribe("x"),))),), "has no 'x' to end"),
        ((Act("c1#9", Publish("Data")),), "takes no part in c1#9"),
        ((Commit("c1#9"),), "no open transaction"),
        ((Publish("$outcome"),), "topics do not begin with"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(requests: Any, says: str) -> None:
    script = one_client()
    before = script.machines["c1"].snapshot()
    with pytest.raises(UsageError, match=says.replace("$", r"\$")):
        script.ask("c1", *requests)
    assert script.machines["c1"].snapshot() == before


def test_only_a_plan_says_what_a_target_does_and_nobody_acts_after_the_end() -> None:
    script = one_client()
    script.ask("c1", Advertise("calls", filter_of("Call")))
    tx = script.ask("c1", Begin("open"))
    with pytest.raises(UsageError, match="only a plan says"):
        script.ask("c1", Act(tx, call("c2", Publish("Data"))))
    script.ask("c1", Act(tx, Publish("Data")), Commit(tx))
    with pytest.raises(UsageError, match="takes no further action"):
        script.ask("c1", Act(tx, Publish("Data")))


def test_a_participant_that_cannot_do_its_part_refuses_the_whole() -> None:
    script = one_client()
    script.ask("c1", Advertise("calls", filter_of("Call")))
    script.ask("c2", Subscribe("calls", filter_of("Call", to="c2")))
    script.settle()
    plan = Plan("c1", (call("c2", Unsubscribe("nothing")), Publish("Data")))
    (one,) = delivered(script, "c1", Run(plan))
    assert outcome_of(one) == Aborted(
        script.machines["c1"].last_transaction, "refused by c2: c2 has no 'nothing' to end"
    )
    assert script.leftovers() == ""


def test_a_plan_can_be_read_before_it_runs() -> None:
    assert str(dispatch_plan("env", "d", "a1", 7)).splitlines() == [
        "1      env: trigger d by Call(to='d')",
        "1.1    d: trigger a1 by Call(to='a1')",
        '1.1.1  a1: subscribe p7 (Work with process = "p", x = 7)',
        "1.2    d: unsubscribe p7",
        "2      env: publish Work(process='p', x=7, step=1)",
    ]


# --- bounds ---------------------------------------------------------------------------------------


def test_a_plan_has_a_bounded_number_of_actions() -> None:
    with pytest.raises(UsageError, match="1 to 1,000 actions, and this one has 0"):
        Plan("c1", ())
    with pytest.raises(UsageError, match="has 1,001"):
        Plan("c1", (Publish("Data"),) * (ACTION_COUNT_MAX + 1))


@pytest.mark.parametrize("isolated", [False, True])
def test_too_many_open_transactions_are_refused(isolated: bool) -> None:
    script = one_client(isolated=isolated, options=TransactOptions(transaction_count_max=2))
    kind = "isolated" if isolated else "open"
    for _ in range(3):
        tx = script.ask("c1", Begin(kind))
        script.ask("c1", Act(tx, Publish("Data")))
    script.settle()
    assert script.outcomes["c1"] == [False]


@pytest.mark.parametrize("isolated", [False, True])
def test_a_full_mailbox_refuses_a_transaction_and_has_room_again_later(isolated: bool) -> None:
    script = one_client(isolated=isolated, options=TransactOptions(mailbox_count_max=1))
    script.ask("c2", Subscribe("s", DATA))
    script.settle()

    def run() -> None:
        tx = script.ask("c1", Begin("isolated" if isolated else "open"))
        script.ask("c1", Act(tx, Publish("Data")), Commit(tx))
        script.settle(("c2", "B1"))

    run()
    run()
    assert script.outcomes["c1"] == [True, False]
    script.settle()
    run()
    assert script.outcomes["c1"] == [True, False, True]


def test_who_takes_nothing_is_cut_off_by_a_static_transaction_and_told() -> None:
    script = one_client(isolated=False, options=TransactOptions(mailbox_count_max=1))
    script.ask("c2", Subscribe("s", DATA))
    script.settle()
    for _ in range(3):
        script.ask("c1", Run(Plan("c1", (Publish("Data"),))))
        script.settle(("c2", "B1"))  # nothing reaches the broker from c2
    assert script.outcomes["c1"] == [True, True, True]
    script.settle()
    assert len(script.delivered["c2"]) == 2, "what was committed before the cut is there"
    script.ask("c2", Subscribe("s", DATA))  # the name is free again
    script.settle()
    script.ask("c1", Run(Plan("c1", (Publish("Data"),))))
    script.settle()
    assert len(script.delivered["c2"]) == 3
    assert script.leftovers() == ""


def test_too_many_waiting_operations_refuse_a_transaction() -> None:
    script = Script(2, "c1@B1 c2@B2", options=TransactOptions(waiting_count_max=3))
    script.ask("c1", Advertise("a", DATA))
    script.ask("c1", Advertise("calls", filter_of("Call")))
    script.settle()
    plan = Plan("c1", (call("c2", Subscribe("never", DATA)), *(Publish("Data"),) * 5))
    script.ask("c1", Run(plan))
    script.settle()
    assert script.outcomes["c1"] == [False]
    assert script.leftovers() == ""


def test_a_client_has_a_bounded_number_of_open_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("concordant.transact.client.OPEN_COUNT_MAX", 1)
    script = one_client()
    script.ask("c1", Begin("open"))
    with pytest.raises(UsageError, match="no room for more"):
        script.ask("c1", Begin("open"))


@pytest.mark.parametrize("isolated", [False, True])
def test_a_client_is_not_believed_to_be_a_broker(isolated: bool) -> None:
    script = one_client(isolated=isolated)
    for message in (Mark("t", "1", ""), Prepare("t")):
        with pytest.raises(PeerError, match="c1, a client, sent a"):
            script.machines["B1"].handle(0, Received("c1", (message,)))
    with pytest.raises(UsageError, match="takes no requests"):
        script.machines["B1"].handle(0, Command((Publish("Data"),)))


@pytest.mark.parametrize("isolated", [False, True])
def test_nobody_begins_or_ends_the_transaction_of_another(isolated: bool) -> None:
    script = one_client(isolated=isolated)
    tx = script.ask("c1", Begin("isolated" if isolated else "open"))
    script.ask("c1", Act(tx, Publish("Data")))
    script.settle()
    broker = script.machines["B1"]
    for message in (Finished(tx), Open("c1#99")):
        broker.handle(0, Received("c2", (message,)))
    assert broker.router.is_open(tx)
    assert not broker.router.is_open("c1#99")
    assert script.outcomes == {}


def test_a_transaction_of_a_kind_that_the_brokers_do_not_take_is_aborted_at_once() -> None:
    script = one_client()
    script.ask("c1", Begin("isolated"))
    script.settle()
    assert script.outcomes == {"c1": [False]}
    script = one_client(isolated=True)
    script.ask("c1", Run(Plan("c1", (Publish("Data"),))))
    script.settle()
    tx = script.ask("c1", Begin("open"))
    script.ask("c1", Act(tx, Publish("Data")))
    script.settle()
    assert script.outcomes == {"c1": [False, False]}
    assert script.leftovers() == ""

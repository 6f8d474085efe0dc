"""Schedules that once broke a draft, or that the published protocols break: message by message."""

from __future__ import annotations

from random import Random

import pytest

from concordant.route.filter import filter_of
from concordant.route.requests import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.transaction_load import Begun, Scene, call, tree_of, work
from concordant.sim.transactions import Stage
from concordant.transact.actions import Plan
from concordant.transact.requests import Act, Begin, Commit, Run
from concordant.transact.shared import SharedRouter
from concordant.transact.versions import VersionedRouter
from tests.unit.transact.script import Script

DATA = filter_of("Data")
MOVING = (1, 4, 17, 19, 20, 26)
"""Seeds; in the last four, events are under way to the old place when it commits."""


def acts(script: Script, client: str, kind: str, *actions: object) -> str:
    """Begin a dynamic transaction and ask for its actions, but not for its commit."""
    tx = script.ask(client, Begin(kind))
    for action in actions:
        script.ask(client, Act(tx, action))
    return tx


def test_a_timer_that_comes_late_decides_nothing() -> None:
    script = Script(1, "c1@B1 c2@B1")
    script.ask("c1", Advertise("a", DATA))
    script.ask("c2", Subscribe("s", DATA))
    script.settle()
    tx = script.ask("c1", Run(Plan("c1", (Publish("Data"),))))
    timer = f"transaction {tx}"
    script.settle()
    assert script.outcomes["c1"] == [True]
    assert ("B1", timer) not in script.timers
    assert script.fire("B1", timer) == []


def test_a_subscription_drawn_by_regular_traffic_goes_with_the_commit_that_removes_it() -> None:
    """The merge once left it at the hop that it had reached after the snapshot."""
    script = Script(2, "c1@B1 c2@B2", isolated=True)
    script.ask("c1", Subscribe("s", DATA))
    script.settle()
    tx = acts(script, "c1", "isolated", Unsubscribe("s"))
    script.settle()
    script.ask("c2", Advertise("late", DATA))  # the context does not see it, the tables do
    script.settle()
    assert script.subscriptions("B2") == {"c1/s": []}
    script.ask("c1", Commit(tx))
    script.settle()
    assert script.subscriptions("B1") == script.subscriptions("B2") == {}
    assert script.leftovers() == ""


def test_regular_traffic_that_crosses_a_decision_takes_no_subscription_along() -> None:
    """What was sent inside a transaction is said once more: a regular end may have crossed it."""
    script = Script(2, "c1@B1 c2@B2 c3@B2", isolated=True, root="B2")
    script.ask("c1", Subscribe("s", DATA))
    script.settle()
    tx = acts(script, "c2", "isolated", Advertise("a", DATA))
    script.settle()
    script.ask("c3", Advertise("r", DATA))
    script.ask("c3", Unadvertise("r"))
    script.arrive("c3", "B2")  # both are under way to B1, and the decision is behind them
    script.ask("c2", Commit(tx))
    script.arrive("c2", "B2")
    script.arrive("B2", "B1")  # regular traffic first, then the question
    script.settle()
    assert script.outcomes["c2"] == [True]
    assert script.subscriptions("B1") == {"c1/s": ["B2"]}
    assert script.subscriptions("B2") == {"c1/s": []}
    script.ask("c2", Publish("Data"))
    script.settle()
    assert len(script.delivered["c1"]) == 1


def test_the_end_of_a_subscription_waits_for_its_beginning() -> None:
    """S9: an advertisement goes while the subscription that it drew still waits at a broker."""
    script = Script(4, "c1@B1 c2@B3 c3@B3", links="B1-B2 B2-B3 B2-B4")
    for client in ("c1", "c3"):
        script.ask(client, Advertise("calls", filter_of("Call")))
        script.ask(client, Subscribe("calls", filter_of("Call", to=client)))
    script.ask("c2", Advertise("a", DATA))
    script.settle()
    new = Advertise("b", filter_of("Other"))
    script.ask("c1", Run(Plan("c1", (call("c3", new), Subscribe("s", DATA)))))
    script.settle(("B4", "B2"))  # the advertisement does not come back from B4
    assert script.subscriptions("B1")["c1/s"] == ["B2"]
    assert "c1/s" not in script.subscriptions("B2")  # it waits there
    script.ask("c2", Unadvertise("a"))
    script.settle(("B4", "B2"))
    assert script.subscriptions("B1")["c1/s"] == []
    script.settle()
    assert script.outcomes["c1"] == [True]
    assert "c1/s" not in script.subscriptions("B2")
    assert script.leftovers() == ""


def test_an_open_transaction_holds_up_nobody() -> None:
    """D9: as published, all later ones wait for one whose client is silent."""
    script = Script(2, "c1@B1 c2@B2", isolated=True)
    script.ask("c1", Advertise("a", DATA))
    script.settle()
    acts(script, "c1", "isolated", Publish("Data"))
    script.settle()
    tx = acts(script, "c2", "isolated", Subscribe("s", filter_of("Other")))
    script.ask("c2", Commit(tx))
    script.settle()
    assert script.outcomes == {"c2": [True]}


def test_whoever_clashes_with_an_earlier_one_waits_for_it_and_for_nothing_else() -> None:
    script = Script(2, "c1@B1 c2@B2", isolated=True)
    script.ask("c1", Advertise("a", DATA))
    script.settle()
    one = acts(script, "c2", "isolated", Subscribe("s", DATA))
    two = acts(script, "c1", "isolated", Publish("Data"))
    script.settle()
    script.ask("c2", Commit(one))
    script.settle(("B2", "B1"))
    script.arrive("B2", "B1")  # the root asks for the first one; its vote is held at B2
    script.ask("c1", Commit(two))
    script.settle(("B2", "B1"))
    waiting = script.machines["B1"].router.state.preparing[two]
    assert waiting.vote == "wait"
    script.settle()
    assert script.outcomes == {"c2": [True], "c1": [False]}


def test_regular_events_are_never_held_up_by_a_static_transaction() -> None:
    script = Script(2, "c1@B1 c2@B2 c3@B1")
    script.ask("c1", Advertise("a", DATA))
    script.ask("c2", Subscribe("s", DATA))
    script.ask("c3", Advertise("calls", filter_of("Call")))
    script.settle()
    # Its trigger reaches nobody, so what comes after it waits, and the transaction stays open.
    plan = Plan("c3", (call("c2", Subscribe("t", DATA)), Advertise("b", DATA)))
    script.ask("c3", Run(plan))
    script.settle()
    assert script.machines["B1"].router.state.live
    script.ask("c1", Publish("Data"))
    script.settle()
    assert len(script.delivered["c2"]) == 1


def test_without_that_wait_the_subscription_stays_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedRouter, "take_end", SharedRouter.unsubscribe)
    with pytest.raises(AssertionError):
        test_the_end_of_a_subscription_waits_for_its_beginning()


# --- a subscription that moves --------------------------------------------------------------------


def moving(kind: str, seed: int) -> tuple[int, int]:
    """Regular events for an instance while it moves: how many reached nobody, and how many both."""
    clients = ("c1", "c2", "c3")
    tree = tree_of(Random(seed), 1 + seed % 7, clients)
    setup = []
    for client in clients:
        setup.append((client, Advertise("calls", filter_of("Call"))))
        setup.append((client, Subscribe("calls", filter_of("Call", to=client))))
    setup += [("c1", Advertise("work", filter_of("Work"))), ("c2", Subscribe("p0", work(0)))]
    plan = Plan("c1", (call("c2", call("c3", Subscribe("p0", work(0))), Unsubscribe("p0")),))
    events = tuple(
        (at, "c1", Publish("Work", {"process": "p", "x": 0, "n": at}))
        for at in range(0, 900_000, 1_500)
    )
    stage = Stage(
        Scene(
            seed,
            kind,  # type: ignore[arg-type]
            "moving",
            tree,
            tuple(setup),
            (Begun(20_000, plan),),
            events=events,
            network=NetworkSpec(Latency("uniform", 1_000, 30_000), fifo=True),
        )
    )
    stage.play()
    run = stage.seen()
    assert list(run.outcomes().values()) == [True]
    old, new = set(run.delivered["c2"]), set(run.delivered["c3"])
    published = [row.events[0] for row in stage.world.recorder.rows() if row.step == "publish"]
    return sum(id not in old | new for id in published), len(old & new)


@pytest.mark.parametrize("kind", ["isolated", "static", "open"])
def test_no_regular_event_is_lost_while_its_subscription_moves(kind: str) -> None:
    assert sum(moving(kind, seed)[0] for seed in MOVING) == 0


def test_without_make_before_break_events_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VersionedRouter, "_extra", lambda self, event: [])
    assert sum(moving("isolated", seed)[0] for seed in MOVING) > 0

"""Jergler 2017, section III-C: t1 moves a subscription from c3 to c2 while t2 publishes for it."""

from __future__ import annotations

from itertools import product

import pytest

from concordant.route.filter import filter_of
from concordant.route.requests import Advertise, Publish, Subscribe, Unsubscribe
from concordant.transact import isolated
from concordant.transact.actions import Trigger
from concordant.transact.requests import Act, Begin, Commit, Return
from tests.unit.transact.script import Script

X = filter_of("x")


def recipients(turns: tuple[int, ...]) -> set[str] | None:
    """Who gets t2's publication if the steps of both come in these turns; None if t2 aborts."""
    script = Script(2, "c1@B1 c2@B2 c3@B1 c4@B2", isolated=True)
    script.ask("c1", Advertise("a", X))
    script.ask("c4", Advertise("calls", filter_of("Call")))
    for name in ("c2", "c3"):
        script.ask(name, Subscribe("calls", filter_of("Call", to=name)))
    script.ask("c3", Subscribe("x", X))
    script.settle()
    move = script.ask("c4", Begin("isolated"))
    publish = script.ask("c1", Begin("isolated"))
    script.settle()

    def act(name: str, tx: str, action: object, thread: str = "") -> None:
        script.ask(name, Act(tx, action, thread))
        script.settle()

    def give(to: str, thread: str, action: object) -> None:
        act("c4", move, Trigger(to, "Call", {"to": to}))
        act(to, move, action, thread)
        script.ask(to, Return(move, thread))
        script.settle()

    mine = iter(
        [
            lambda: give("c2", "1", Subscribe("x", X)),
            lambda: give("c3", "2", Unsubscribe("x")),
            lambda: script.ask("c4", Commit(move)),
        ]
    )
    theirs = iter(
        [
            lambda: act("c1", publish, Publish("x")),
            lambda: script.ask("c1", Commit(publish)),
        ]
    )
    for turn in turns:
        next(theirs if turn else mine)()
        script.settle()
    assert script.outcomes["c4"] == [True]
    if script.outcomes["c1"] == [False]:
        return None
    got = {name: script.delivered.get(name, []) for name in ("c2", "c3")}
    return {name for name, ids in got.items() if any(id.startswith("c1:") for id in ids)}


TURNS = [turns for turns in product((0, 1), repeat=5) if sum(turns) == 2]


@pytest.mark.parametrize("turns", TURNS)
def test_only_the_serial_schedules_are_left(turns: tuple[int, ...]) -> None:
    """All publications are one schedule's: before the move to c3, after it to c2, never to both."""
    assert recipients(turns) in ({"c3"}, {"c2"}, None)


def test_without_validation_the_second_schedule_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolated, "clash", lambda *given: False)
    outcomes = [recipients(turns) for turns in TURNS]
    # t2 began before t1 committed, so without validation it commits what it read before: to c3.
    late = [turns for turns in TURNS if turns[-1] == 1]
    assert all(outcomes[TURNS.index(turns)] == {"c3"} for turns in late)

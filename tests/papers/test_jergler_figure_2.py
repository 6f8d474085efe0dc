"""Jergler 2017, figure 2: a subscription that waits is attracted inside the transaction."""

from __future__ import annotations

import pytest

from concordant.route.filter import filter_of
from concordant.route.requests import Advertise, Publish, Subscribe
from concordant.transact import markers
from concordant.transact.actions import Plan
from concordant.transact.requests import Act, Begin, Commit, Run
from tests.unit.transact.script import Script

X = filter_of("x")


def play(kind: str) -> list[str]:
    """C2 waits at B2 with a subscription; C1 at B1 advertises and publishes. What C2 gets."""
    script = Script(2, "c1@B1 c2@B2", isolated=kind == "isolated")
    script.ask("c2", Subscribe("s1", X))
    script.settle()
    if kind == "static":
        script.ask("c1", Run(Plan("c1", (Advertise("a1", X), Publish("x")))))
    else:
        tx = script.ask("c1", Begin(kind))  # type: ignore[arg-type]
        script.ask("c1", Act(tx, Advertise("a1", X)), Act(tx, Publish("x")), Commit(tx))
    script.settle()
    assert script.outcomes["c1"] == [True]
    assert script.leftovers() == ""
    return script.delivered.get("c2", [])


@pytest.mark.parametrize("kind", ["static", "open", "isolated"])
def test_the_publication_reaches_the_subscription_that_waited(kind: str) -> None:
    assert len(play(kind)) == 1


def test_as_published_the_static_protocol_drops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4: the coordinator cannot know what its advertisement attracts, so nothing waits for it."""
    correct = markers._process

    def process(router, live, hop, message) -> None:
        correct(router, live, hop, message)
        if message.op in live.echoes:
            origin = live.echoes[message.op].origin
            markers._advertised(router, live, message.tx, message.op, origin)

    monkeypatch.setattr(markers, "_process", process)
    assert play("static") == []

"""Machines and links by hand: every message waits until the test lets it arrive."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

from concordant.check.overlay import Tree
from concordant.machine.effects import CancelTimer, Deliver, Effect, Note, Send, SetTimer
from concordant.machine.inputs import Command, Message, Received, Started, TimerFired
from concordant.transact.broker import IsolatedBroker, SharedBroker
from concordant.transact.client import OUTCOME, TransactClient
from concordant.transact.options import TransactOptions


class Script:
    """Brokers B1, B2, … in a line, or with the links that are named, and clients as `c1@B1`."""

    def __init__(
        self,
        brokers: int,
        clients: str,
        *,
        isolated: bool = False,
        root: str = "B1",
        links: str = "",
        options: TransactOptions | None = None,
    ) -> None:
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.timers: dict[tuple[str, str], int] = {}
        self.delivered: dict[str, list[str]] = {}
        self.outcomes: dict[str, list[bool]] = {}
        self.notes: list[tuple[str, ...]] = []
        self.now = 0
        self.machines: dict[str, Any] = {}
        names = [f"B{n}" for n in range(1, brokers + 1)]
        pairs = [link.split("-") for link in links.split()] or list(pairwise(names))
        near_of = {
            name: tuple(
                sorted({*(b for a, b in pairs if a == name), *(a for a, b in pairs if b == name)})
            )
            for name in names
        }
        up = Tree(near_of, {}).ways(root)
        for name in names:
            near = near_of[name]
            if isolated:
                parent = "" if name == root else up[name]
                machine: Any = IsolatedBroker(name, neighbours=near, parent=parent, options=options)
            else:
                machine = SharedBroker(name, neighbours=near, options=options)
            self.machines[name] = machine
        for text in clients.split():
            name, _, broker = text.partition("@")
            self.machines[name] = TransactClient(name, broker=broker)
            self.give(name, Started())
        self.settle()

    def give(self, name: str, given: Any) -> list[Effect]:
        effects = self.machines[name].handle(self.now, given)
        for effect in effects:
            if isinstance(effect, Send):
                self.links.setdefault((name, effect.to), deque()).extend(effect.messages)
            elif isinstance(effect, SetTimer):
                self.timers[name, effect.name] = effect.at
            elif isinstance(effect, CancelTimer):
                self.timers.pop((name, effect.name), None)
            elif isinstance(effect, Note):
                self.notes.append((name, effect.text, *effect.topics))
            elif isinstance(effect, Deliver):
                self._take(name, effect)
        return effects

    def _take(self, name: str, effect: Deliver) -> None:
        for one in effect.deliveries:
            said = one.events[0]
            if said.topic == OUTCOME:
                self.outcomes.setdefault(name, []).append(bool(said.attributes["committed"]))
            elif not said.topic.startswith("$"):
                self.delivered.setdefault(name, []).append(said.id)

    def ask(self, name: str, *requests: Any) -> str:
        """An application's requests; the name of the transaction begun last."""
        self.give(name, Command(requests))
        return self.machines[name].last_transaction

    def arrive(self, source: str, to: str, count: int = 1_000_000) -> None:
        """Let messages arrive on one link; those that this leads to wait."""
        link = self.links.get((source, to), deque())
        for _ in range(min(count, len(link))):
            self.give(to, Received(source, (link.popleft(),)))

    def settle(self, *but: tuple[str, str]) -> None:
        """Let everything arrive, but for some links."""
        while ways := [way for way, link in self.links.items() if link and way not in but]:
            for way in ways:
                self.arrive(*way)

    def fire(self, name: str, timer: str) -> list[Effect]:
        self.timers.pop((name, timer), None)
        return self.give(name, TimerFired((timer,)))

    def subscriptions(self, broker: str) -> dict[str, list[str]]:
        """Names at a broker, with the neighbours that were told."""
        found = self.machines[broker].router.tables.subscriptions
        return {id.partition("#")[0]: sorted(one.sent) for id, one in found.items()}

    def leftovers(self) -> str:
        return "".join(
            one.router.leftovers for name, one in self.machines.items() if name.startswith("B")
        )

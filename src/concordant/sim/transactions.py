"""Transactions in virtual time: a scene is run, watched, healed and judged.

Brokers and clients of a scene live in a world; applications are small: a coordinator carries out
its plan, a target answers a trigger as the plan says. Everything that checkers need is collected
from what machines say and do. When the faults are over, everything has to come to rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from concordant.check.overlay import Placed, Seen
from concordant.check.transactions import Done, Run, Transaction, check_transactions
from concordant.check.verdict import Verdict, Violation, first_violation
from concordant.errors import ConcordantError
from concordant.machine.contract import Machine
from concordant.machine.effects import Delivery, Effect, Note
from concordant.machine.inputs import Input, Started
from concordant.model.event import Event
from concordant.route.link import LinkOptions, Reliable
from concordant.route.requests import Advertise, Subscribe
from concordant.sim.faults import heal
from concordant.sim.recorder import Recorder
from concordant.sim.transaction_load import Begun, Disruption, Scene
from concordant.sim.world import Place, World
from concordant.transact import requests
from concordant.transact.actions import Aborted, Committed, Plan, Trigger
from concordant.transact.broker import IsolatedBroker, SharedBroker
from concordant.transact.client import TransactClient, outcome_of, trigger_of
from concordant.transact.messages import WIRE
from concordant.transact.options import TransactOptions
from concordant.transact.resident import Resident

SETUP_US = 4_000_000
"""So long the setup has to arrive, before the first plan."""
REST_COUNT_MAX = 120
STEP_COUNT_MAX = 40_000
"""A scene takes some hundred to some thousand steps."""
PAUSE_US = 1_000_000

LINKS = LinkOptions(acknowledge_us=2_000, repeat_us=40_000, repeat_us_max=400_000, log_count_max=60)
"""Short, so that logs are replaced by snapshots in every run."""


class Outcome(msgspec.Struct, frozen=True):
    """What came of a scene."""

    scene: Scene
    run: Run
    verdicts: tuple[Verdict, ...]
    step_count: int
    faults: dict[str, int]

    @property
    def failure(self) -> Verdict | None:
        return first_violation(self.verdicts)


def simulate_transactions(scene: Scene) -> Outcome:
    """Run a scene and judge it."""
    stage = Stage(scene)
    broken: list[Verdict] = []
    try:
        stage.play()
    except ConcordantError as error:
        broken = [Verdict("Invariants", stage.world.step_count, Violation(str(error)))]
    run = stage.seen()
    isolated = scene.kind == "isolated"
    order = _order(scene, run)
    verdicts = broken or check_transactions(run, isolated=isolated, order=order)
    faults = {k: n for k, n in stage.world.recorder.counts.items() if k.startswith("fault")}
    return Outcome(scene, run, tuple(verdicts), stage.world.step_count, faults)


def _order(scene: Scene, run: Run) -> list[str] | None:
    """The serial order that recipients are compared with; None where none is promised."""
    if scene.kind == "isolated":
        return None if scene.changes else run.commit_order
    if not scene.serial:
        return None
    outcomes = run.outcomes()
    return [tx for tx in run.transactions if outcomes.get(tx)]


class Stage:
    """A scene in a world."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.run = Run(scene.tree, {}, {}, {}, {}, {}, [], [], [], [], {}, {}, [], {}, {})
        self.world = World(
            seed=f"{scene.seed}/{scene.workload}",
            network=scene.network,
            recorder=Recorder(str(scene.seed)),
            watch=self._watch,
            step_count_max=STEP_COUNT_MAX,
        )
        self.run.enters = scene.residents[0] if scene.residents else ""
        self.run.mailbox_count_max = scene.mailbox_count_max
        self.world.on_delivery = self._delivered
        self._plans: dict[str, Plan] = {}
        self._forgetful: set[str] = set()
        self._links = msgspec.structs.replace(LINKS, gathers=scene.seed % 2 == 1)
        self._root = min(scene.tree.neighbours)
        self._up = scene.tree.ways(self._root)
        for name in scene.tree.neighbours:
            self.world.add(name, partial(self.broker, name), sync_us=scene.sync_us)
        for name in scene.tree.edges:
            self.world.add(name, partial(self.client, name), sync_us=scene.sync_us)

    def broker(self, name: str) -> Machine:
        """A broker of the scene, new."""
        scene = self.scene
        near = scene.tree.neighbours[name]
        options = TransactOptions(transaction_us=scene.transaction_us)
        if scene.mailbox_count_max:
            most = scene.mailbox_count_max
            options = msgspec.structs.replace(options, mailbox_count_max=most)
        core: SharedBroker | IsolatedBroker
        if scene.kind == "isolated":
            parent = "" if name == self._root else self._up[name]
            core = IsolatedBroker(name, neighbours=near, parent=parent, options=options)
        else:
            core = SharedBroker(name, neighbours=near, options=options)
        if not scene.reliable:
            return core
        return Reliable(core, wire=WIRE, brokers=near, options=self._links)

    def client(self, name: str) -> Machine:
        broker = self.scene.tree.edges[name]
        core = TransactClient(name, broker=broker)
        if name in self.scene.residents:
            core = Resident(name, broker=broker, enters=name == self.run.enters)
        if not self.scene.reliable:
            return core
        return Reliable(core, wire=WIRE, client=True, options=self._links)

    def core(self, name: str) -> Any:
        """The machine behind its links."""
        machine = self.world.places[name].machine
        return machine.inner if isinstance(machine, Reliable) else machine

    # --- the play -----------------------------------------------------------------------------

    def play(self) -> None:
        """Set up, let things happen, heal, and come to rest."""
        scene, world = self.scene, self.world
        world.start()
        world.run(SETUP_US)
        for client, change in scene.setup:
            world.command(client, change)
        self.rest()
        self.run.base = self._placed("subscriptions")
        start = world.now
        world.network.trouble.loss = scene.loss
        world.network.trouble.revise()
        for begun in scene.begun:
            world.call(start + begun.at_us, partial(self._begin, begun))
        for at, client, change in scene.changes:
            world.call(start + at, partial(self._command, client, change))
        for at, client, event in scene.events:
            world.call(start + at, partial(self._command, client, event))
        for one in scene.disruptions:
            world.call(start + one.at_us, partial(self._disrupt, one))
            world.call(start + one.at_us + one.for_us, partial(self._mend, one))
        world.run(start + 1_000_000)
        for one in scene.disruptions:
            self._mend(one)
        heal(world)
        self.rest()

    def rest(self) -> None:
        """Until nothing waits for anything; what never comes to rest is judged as it is."""
        world = self.world
        for _ in range(REST_COUNT_MAX):
            world.run(world.now + PAUSE_US)
            if not world.held_count:
                world.run(world.now + PAUSE_US)
                if not world.held_count:
                    return

    def _command(self, client: str, request: Any) -> None:
        self.world.command(client, request)

    def _begin(self, begun: Begun) -> None:
        world, plan = self.world, begun.plan
        if self.scene.kind == "static":
            if not world.command(plan.client, requests.Run(plan)):
                return
        elif not world.command(plan.client, requests.Begin(self.scene.kind)):
            return
        tx = self.core(plan.client).last_transaction
        self._plans[tx] = plan
        found = self._transaction(tx)
        found.planned_count = sum(1 for _ in plan.lines())
        found.disturbed = self.scene.disturbed or bool(begun.abort_at_us)
        if self.scene.kind != "static":
            done = all(
                world.command(plan.client, requests.Act(tx, _bare(one))) for one in plan.actions
            )
            last = requests.Commit(tx) if done else requests.Abort(tx, "refused: no such name")
            world.command(plan.client, last)
        if begun.abort_at_us:
            at = world.now + begun.abort_at_us - begun.at_us
            world.call(at, partial(self._command, plan.client, requests.Abort(tx)))

    def _delivered(self, place: Place, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            trigger, outcome = trigger_of(one), outcome_of(one)
            if outcome is not None:
                reason = outcome.reason if isinstance(outcome, Aborted) else ""
                told = (outcome.transaction, isinstance(outcome, Committed), reason)
                self.run.knows.setdefault(place.address, []).append(told)
            elif trigger is not None:
                self.world.call(self.world.now, partial(self._answer, place.address, trigger))

    def _answer(self, client: str, trigger: Any) -> None:
        tx, thread = trigger.transaction, trigger.thread
        world = self.world
        actions = _actions_of(self._plans[tx], thread)
        done = all(world.command(client, requests.Act(tx, _bare(one), thread)) for one in actions)
        world.command(client, requests.Return(tx, thread, done))

    def _disrupt(self, one: Disruption) -> None:
        if one.kind == "pause":
            self.world.pause(one.node)
        else:
            self.world.crash(one.node)
            if one.kind == "amnesia":
                self.world.places[one.node].log.clear()
                self._forgetful.add(one.node)
                self.world.count_fault("amnesia")

    def _mend(self, one: Disruption) -> None:
        if one.kind == "pause":
            self.world.resume(one.node)
        else:
            self.world.restart(one.node)

    # --- what is seen -------------------------------------------------------------------------

    def _watch(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        """Operations as their clients do them; a life that forgot one does it again."""
        del world
        if isinstance(given, Started) and given.records and place.address in self.scene.tree.edges:
            self.world.call(self.world.now, partial(self._give_up, place.address))
        if self.scene.mailbox_count_max and place.address in self.scene.tree.neighbours:
            self._look_into_mailboxes(place.address)
        for effect in effects:
            if isinstance(effect, Note) and effect.text == "does":
                tx, op, kind, id = effect.topics
                event = effect.events[0] if effect.events else None
                self._forget(effect.events)
                self._transaction(tx).ops[op] = Done(
                    op, place.address, kind, "" if event else id, event=event
                )
            elif isinstance(effect, Note) and effect.step == "publish":
                self._forget(effect.events)
            elif isinstance(effect, Note) and effect.text == "begins":
                self.run.transactions.pop(effect.topics[0], None)  # of a life that was forgotten
            elif (
                isinstance(effect, Note)
                and effect.text == "decided"
                and place.address == self._root
                and effect.topics[1] == "committed"
            ):
                tx = effect.topics[0]
                if tx in self.run.commit_order:
                    self.run.commit_order.remove(tx)
                self.run.commit_order.append(tx)

    def _forget(self, events: Sequence[Event]) -> None:
        """Who gives an event's name again has forgotten, in a crash, what had the name before."""
        for event in events:
            for one in self.run.transactions.values():
                for op in [
                    op for op, done in one.ops.items() if done.event and done.event.id == event.id
                ]:
                    del one.ops[op]

    def _give_up(self, client: str) -> None:
        """An application that is back ends what it has not finished."""
        for tx in self.core(client).unfinished:
            self.world.command(client, requests.Abort(tx, "its application was away"))

    def _look_into_mailboxes(self, broker: str) -> None:
        for client, box in self.core(broker).router.state.mailboxes.items():
            owed = self.run.owed.setdefault(client, {})
            owed.update((event.id, True) for event in box.values())
            self.run.crowds[client] = max(self.run.crowds.get(client, 0), len(box))

    def _transaction(self, tx: str) -> Transaction:
        scene, client = self.scene, tx.rpartition("#")[0]
        return self.run.transactions.setdefault(
            tx,
            Transaction(
                tx, client, scene.kind, {}, disturbed=scene.disturbed, rivals=not scene.serial
            ),
        )

    def seen(self) -> Run:
        """The run as checkers want it."""
        run, tree = self.run, self.scene.tree
        run.did = {name: [] for name in tree.neighbours}
        run.decided = {name: [] for name in tree.neighbours}
        run.delivered = {name: [] for name in tree.edges}
        published = []
        for row in self.world.recorder.rows():
            if row.step == "publish" and row.event is not None:
                published.append(row.event)
            elif row.step == "deliver" and not row.topics[0].startswith("$"):
                run.delivered[row.process] += row.events
            elif row.step == "transaction":
                self._noted(row.process, row.text, row.topics)
        for tx, plan in self._plans.items():
            self._add_filters(run.transactions[tx], plan)
        run.advertisements = self._placed("advertisements")
        run.subscriptions = self._placed("subscriptions")
        run.forgetful = frozenset(self._forgetful)
        for name in tree.neighbours:
            core = self.core(name)
            run.tables[name] = _tables(core.router)
            if core.router.leftovers:
                run.left[name] = core.router.leftovers
        self._regular(published)
        if self.scene.reliable:
            run.replayed = {name: self._replays(name) for name in tree.neighbours}
        return run

    def _noted(self, process: str, text: str, topics: tuple[str, ...]) -> None:
        run = self.run
        if text == "begins":
            run.begun[topics[0]] = True
        elif text == "did":
            run.did[process].append((topics[0], topics[1]))
        elif text == "decided":
            run.decided[process].append((topics[0], topics[1] == "committed"))

    def _add_filters(self, found: Transaction, plan: Plan) -> None:
        for _, step in plan.lines():
            done = found.ops.get(step.op)
            if done is not None and isinstance(step.action, Subscribe | Advertise):
                wanted = step.action.filter
                found.ops[step.op] = msgspec.structs.replace(done, filter=wanted)

    def _placed(self, kind: str) -> list[Placed]:
        return [
            Placed(entry.id, client, entry.filter)
            for client in self.scene.tree.edges
            for entry in getattr(self.core(client), kind).values()
        ]

    def _regular(self, published: Iterable[Any]) -> None:
        run = self.run
        for event in published:
            if event.topic == "Regular":
                reached = [
                    one.client
                    for one in run.subscriptions
                    if one.filter.matches(event) and one.client != event.source
                ]
                if not self._forgetful:
                    run.regular.append((event, tuple(sorted(reached))))

    def _replays(self, name: str) -> bool:
        place = self.world.places[name]
        again: Any = self.broker(name)
        again.handle(self.world.now, Started(tuple(place.log)))
        return bool(again.inner.snapshot() == self.core(name).snapshot())


def _bare(action: Any) -> Any:
    """In a dynamic transaction a trigger does not say what its target does."""
    return msgspec.structs.replace(action, actions=()) if isinstance(action, Trigger) else action


def _actions_of(plan: Plan, op: str) -> tuple[Any, ...]:
    """What a plan has for the target of a trigger."""
    actions: tuple[Any, ...] = plan.actions
    for part in op.split("."):
        actions = actions[int(part) - 1].actions
    return actions


def _tables(router: Any) -> Seen:
    tables = router.tables
    return Seen(
        {id: one.hop for id, one in tables.advertisements.items()},
        {id: (one.hop, tuple(sorted(one.sent))) for id, one in tables.subscriptions.items()},
    )

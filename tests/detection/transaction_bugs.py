"""Planted bugs in transactions: the published protocols' errors, and plausible ones of our own.

Each is a sentence that is false of the code, planted by a patch; scenes of the named workloads then
have to break a promise. The names begin with the erratum where the paper has the bug: D of the
dynamic protocols, S of the static one (`docs/papers.md` has the list).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from concordant.machine.effects import CancelTimer, Effect, Persist
from concordant.route.link import Reliable
from concordant.route.messages import Unsubscribed
from concordant.route.requests import Subscribe, Unsubscribe
from concordant.route.router import Router, Subscription
from concordant.sim.transaction_load import scene
from concordant.sim.transactions import simulate_transactions
from concordant.transact import answers, context, contextual, isolated, markers
from concordant.transact.acks import Acks, Performing
from concordant.transact.actions import Plan, Step
from concordant.transact.client import TransactClient
from concordant.transact.endings import EndingRouter
from concordant.transact.isolated import IsolatedRouter
from concordant.transact.messages import Decide, Mark, Performed
from concordant.transact.shared import SharedRouter
from concordant.transact.tags import TaggedRouter
from tests.detection.planting import Plant, planted

SCENE_COUNT_MAX = 400
"""A bug that survives so many scenes of each of its workloads is not caught."""


@dataclass(frozen=True)
class TransactionBug:
    """A sentence that is false of the protocols, and how to make it true."""

    name: str
    kinds: tuple[str, ...]
    workloads: tuple[str, ...]
    breaks: tuple[str, ...]
    """The promises of which one has to be found broken first."""
    plant: Plant
    faults: bool | None = None


BUGS: list[TransactionBug] = []


def bug(
    name: str, kinds: str, workloads: str, breaks: str, *, faults: bool | None = None
) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        lists = (
            tuple(part.strip() for part in text.split(",")) for text in (kinds, workloads, breaks)
        )
        BUGS.append(TransactionBug(name, *lists, plant, faults))
        return plant

    return add


def scenes_to_find(which: TransactionBug) -> int | None:
    """How many scenes it takes to find a planted bug; None if it survives."""
    count = 0
    with planted(which):
        for seed in range(SCENE_COUNT_MAX):
            for kind in which.kinds:
                for workload in which.workloads:
                    count += 1
                    one = scene(kind, workload, seed, faults=which.faults)  # type: ignore[arg-type]
                    failure = simulate_transactions(one).failure
                    if failure is not None:
                        assert failure.name in which.breaks, f"{which.name}: {failure}"
                        return count
    return None


# --- dynamic transactions -------------------------------------------------------------------------


@bug("D1: a broker with nobody behind it never answers", "isolated, open", "dispatch", "Decided")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Acks.begin
    patch.setattr(Acks, "begin", lambda self, *given, **named: correct(self, *given, **named) and 0)


@bug("D2: whoever finds a clash says nothing", "isolated", "move, fuzz", "Decided", faults=False)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = IsolatedRouter._vote_up

    def vote_up(self: Any, tx: str, yes: bool, reason: str) -> None:
        if reason != isolated.CLASH:
            correct(self, tx, yes, reason)

    patch.setattr(IsolatedRouter, "_vote_up", vote_up)


@bug("D3: a transaction clashes with itself", "isolated", "dispatch", "Progress", faults=False)
def _(patch: pytest.MonkeyPatch) -> None:
    def objection(self: Any, tx: str) -> str:
        mine = self.versions.contexts[tx]
        return isolated.CLASH if context.clash(mine.ops, mine.writes, []) else ""

    patch.setattr(IsolatedRouter, "_objection", objection)


@bug("D4: only publications clash", "isolated", "newcomers", "Serial", faults=False)
def _(patch: pytest.MonkeyPatch) -> None:
    def clash(mine: Any, theirs: Any, subscriptions: Any) -> bool:
        events = [one for one in mine if one.event is not None]
        return context.clash(events, theirs, subscriptions)

    patch.setattr(isolated, "clash", clash)


@bug(
    "D5: what an advertisement attracts is answered under the advertisement's name",
    "isolated, open",
    "figure 2, fuzz",
    "Decided, Serial, Progress",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def begin(self: Acks, op: str, origin: str, sent: Any, *, ran: bool) -> bool:
        self.ops[op] = Performing(origin, len(sent), ran)
        for hop, name in sent:
            self.by_answer[hop, name.partition("|")[0]] = op
        return not sent

    correct = Acks.answer
    patch.setattr(Acks, "begin", begin)
    patch.setattr(
        Acks, "answer", lambda self, hop, op, ran: correct(self, hop, op.partition("|")[0], ran)
    )


@bug(
    "D6: a subscription that went to one advertisement does not follow another",
    "static, open, isolated",
    "fuzz, changing",
    "Tables, Serial",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Router.wanted_by

    def wanted_by(self: Router, entry: Subscription) -> list[str]:
        wanted = correct(self, entry)
        if entry.sent and set(wanted) > set(entry.sent):
            return sorted(entry.sent)
        return wanted

    patch.setattr(Router, "wanted_by", wanted_by)


@bug("D8: an earlier one that is not decided does not count", "isolated", "move", "Serial")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IsolatedRouter, "_waits", lambda self, tx: False)


@bug(
    "D10: a decision is told before it is durable",
    "static, open, isolated",
    "dispatch, move, fuzz",
    "Agreement, Decided, Clean, Tables, Names, Serial, Atomicity, Replay, Regular, Commit Order, "
    "Operation Order, Progress, Invariants",
    faults=True,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Reliable.handle

    def handle(self: Reliable, now: int, given: Any) -> list[Effect]:
        effects = correct(self, now, given)
        late = [one for one in effects if isinstance(one, Persist)]
        return [one for one in effects if not isinstance(one, Persist)] + late

    patch.setattr(Reliable, "handle", handle)


@bug("D11: an abort undoes nothing", "open, static", "fuzz, dispatch", "Names, Tables, Clean")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TaggedRouter.settle
    patch.setattr(TaggedRouter, "settle", lambda self, tx, committed: correct(self, tx, True))


@bug("nothing ever clashes", "isolated", "move", "Serial")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isolated, "clash", lambda *given: False)


@bug(
    "an operation is answered before it is done",
    "isolated, open",
    "dispatch, figure 2",
    "Serial, Operation Order, Progress",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = contextual.perform, answers.perform

    def early(perform: Any) -> Any:
        def doing(router: Any, hop: str, message: Any) -> None:
            perform(router, hop, message)
            if (hop, Performed(message.tx, message.op, True)) not in router.out:
                router.out.append((hop, Performed(message.tx, message.op, True)))

        return doing

    patch.setattr(contextual, "perform", early(correct[0]))
    patch.setattr(answers, "perform", early(correct[1]))


@bug("a trigger that nobody answers has run", "isolated, open", "unanswered", "Progress")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TransactClient._performed

    def performed(self: Any, message: Performed, cause: int, out: list[Effect]) -> None:
        correct(self, Performed(message.tx, message.op, True), cause, out)

    patch.setattr(TransactClient, "_performed", performed)


@bug(
    "a context sees what others commit while it is open",
    "isolated",
    "move, fuzz",
    "Serial",
    faults=False,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isolated, "clash", lambda *given: False)
    patch.setattr(
        IsolatedRouter,
        "_seen",
        lambda self, id, one: (
            id not in one.deleted and id not in one.subscriptions and id not in one.advertisements
        ),
    )


@bug(
    "who lost its memory is not told what was committed meanwhile",
    "static, isolated",
    "forgetful",
    "Names, Tables",
    faults=True,
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactClient, "_recall", lambda self, message: None)


# --- static transactions --------------------------------------------------------------------------


@bug(
    "S1: nothing waits for the operation before it",
    "static",
    "dispatch",
    "Operation Order, Serial, Tables, Names",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = markers.place

    def place(router: SharedRouter, hop: str, message: Any) -> None:
        correct(router, hop, msgspec.structs.replace(message, after=""))

    patch.setattr(markers, "place", place)


@bug(
    "S2: one operation releases all that wait",
    "static",
    "dispatch, fuzz",
    "Operation Order, Serial, Names, Tables, Progress, Atomicity, Invariants",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = markers.release

    def release(router: SharedRouter, tx: str) -> None:
        live = router.state.live.get(tx)
        if live is not None:
            for _, message in live.waiting:
                live.done[message.after] = True
        correct(router, tx)

    patch.setattr(markers, "release", release)


@bug("S3: only subscriptions are waited for", "static", "alone, fuzz", "Serial, Operation Order")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Plan.lines

    def lines(self: Plan) -> Iterator[tuple[str, Step]]:
        last = ""
        for client, step in correct(self):
            yield client, Step(step.op, last, step.action, step.last)
            if isinstance(step.action, Subscribe | Unsubscribe):
                last = step.op

    patch.setattr(Plan, "lines", lines)


@bug("S4: an advertisement need not come back", "static", "figure 2", "Serial")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = markers._process

    def process(router: SharedRouter, live: Any, hop: str, message: Any) -> None:
        correct(router, live, hop, message)
        if message.op in live.echoes:
            markers._advertised(
                router, live, message.tx, message.op, live.echoes[message.op].origin
            )

    patch.setattr(markers, "_process", process)


@bug("S5, S6: there are no markers", "static", "dispatch", "Decided")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = markers._process

    def process(router: SharedRouter, live: Any, hop: str, message: Any) -> None:
        correct(router, live, hop, message)
        router.out[:] = [one for one in router.out if not isinstance(one[1], Mark)]

    patch.setattr(markers, "_process", process)


@bug(
    "S7: the coordinator commits before the last operation",
    "static",
    "dispatch, late publication",
    "Serial, Names, Progress, Tables, Atomicity",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = markers._done

    def done(router: SharedRouter, live: Any, tx: str, op: str) -> None:
        correct(router, live, tx, op)
        if tx in router.state.coordinated:
            router.decide(tx, True, "")

    patch.setattr(markers, "_done", done)


@bug(
    "the coordinator waits for no votes where a participant advertised",
    "static",
    "alone",
    "Tables, Names, Serial, Operation Order",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SharedRouter.complete

    def complete(self: SharedRouter, tx: str, live: Any) -> None:
        live.advertises = False
        correct(self, tx, live)

    patch.setattr(SharedRouter, "complete", complete)


@bug(
    "S8: an abort does the inverse in the same order",
    "static, open",
    "second thoughts",
    "Names, Tables, Clean",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TaggedRouter.settle

    def settle(self: TaggedRouter, tx: str, committed: bool) -> None:
        if not committed:
            for id in self.tags.touched.get(tx, {}):
                if self.tags.added.get(id) == tx and tx in self.tags.deleted.get(id, ()):
                    del self.tags.added[id]  # ended, then begun again
        correct(self, tx, committed)

    patch.setattr(TaggedRouter, "settle", settle)


@bug(
    "a broker forgets a transaction as soon as it is decided",
    "static, open",
    "dispatch, fuzz",
    "Agreement, Clean, Decided, Tables, Names, Invariants",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SharedRouter.live_of

    def live_of(self: SharedRouter, hop: str, tx: str) -> Any:
        decided = self.state.decided.pop(tx, None)
        found = correct(self, hop, tx)
        if decided is not None:
            self.state.decided[tx] = decided
        return found

    patch.setattr(SharedRouter, "live_of", live_of)


@bug(
    "a timer decides again what is decided",
    "static, open",
    "dispatch, fuzz",
    "Agreement, Names, Tables, Atomicity",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SharedRouter.wake

    def wake(self: SharedRouter, name: str) -> None:
        tx = name.removeprefix("transaction ")
        if tx in self.state.coordinated:
            correct(self, name)
        else:
            self.state.decided.pop(tx, None)
            self.settle_here(Decide(tx, False, "it took too long"), "")

    def decide(self: SharedRouter, tx: str, committed: bool, reason: str) -> None:
        right(self, tx, committed, reason)
        self.effects[:] = [one for one in self.effects if not isinstance(one, CancelTimer)]

    right = SharedRouter.decide
    patch.setattr(SharedRouter, "wake", wake)
    patch.setattr(SharedRouter, "decide", decide)


@bug(
    "the outcome is forgotten before clients know it",
    "static, open, isolated",
    "dispatch, fuzz",
    "Agreement, Clean, Decided, Names, Tables",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def drop_if_over(self: Any, tx: str) -> None:
        del self.state.decided[tx]

    patch.setattr(EndingRouter, "_drop_if_over", drop_if_over)


# --- links, logs and regular traffic --------------------------------------------------------------


@bug("regular events wait for transactions", "static, open", "dispatch, fuzz", "Regular")
def _(patch: pytest.MonkeyPatch) -> None:
    correct = SharedRouter.publish

    def publish(self: SharedRouter, hop: str, event: Any) -> None:
        if not self.state.live:
            correct(self, hop, event)

    patch.setattr(SharedRouter, "publish", publish)


@bug(
    "the end of a log is lost in a crash",
    "static, open, isolated",
    "dispatch, fuzz",
    "Agreement, Decided, Clean, Tables, Names, Serial, Atomicity, Replay, Regular, Commit Order, "
    "Operation Order, Progress, Invariants",
    faults=True,
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Reliable._start

    def start(self: Reliable, now: int, given: Any, out: list[Effect]) -> None:
        if len(given.records) > 2:
            given = msgspec.structs.replace(given, records=given.records[:-2])
        correct(self, now, given, out)

    patch.setattr(Reliable, "_start", start)


@bug(
    "an unsubscription is not passed on",
    "static, open, isolated",
    "changing",
    "Tables",
)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Router.retract

    def retract(self: Router, entry: Subscription) -> None:
        before = len(self.out)
        correct(self, entry)
        self.out[before:] = [
            one for one in self.out[before:] if not isinstance(one[1], Unsubscribed)
        ]

    patch.setattr(Router, "retract", retract)

"""What a subscription keeps and loses: stored knowledge and a bounded search, put together.

For each property one of three answers: kept; lost by this subscription, with a counterexample that
has it; or lost by the policy (or a clause, or the order level), though no counterexample with this
subscription was found, with a stored one of another subscription. The search is deterministic and
bounded in scenes, never in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

import msgspec

from concordant.check.liveness import is_free
from concordant.check.properties import PROPERTIES
from concordant.guarantees.alphabet import assumed_topics
from concordant.guarantees.cast import cast
from concordant.guarantees.search import TOTAL, Counterexample, relatives, search, shrink
from concordant.guarantees.stored import section_of, stored
from concordant.guarantees.table import EVENT_VALIDITY, KEPT, Loss, losses
from concordant.language.check import check
from concordant.model.emission import emitters
from concordant.model.expression import Slot
from concordant.model.subscription import Subscription

SCENE_COUNT = 200
"""Scenes played per subscription: most of what can be lost is found in the first twenty, and a
scene takes one or two milliseconds."""

Scope = Literal["", "subscription", "policy"]


class Answer(msgspec.Struct, frozen=True):
    """What is said about one property of one subscription."""

    name: str
    why: str
    scope: Scope = ""
    """Empty: kept. Otherwise lost, by this subscription or by its policy only."""
    found: Counterexample | None = None
    """What the search found with this subscription, as it was found."""
    section: str = ""
    """Where a counterexample of another subscription is stored."""
    through: str = ""
    """The subscription that loses it, if it is lost through a derived topic."""

    @property
    def kept(self) -> bool:
        return not self.scope

    def counterexample(self) -> Counterexample:
        """The counterexample in its smallest form; only what is lost has one."""
        return stored(self.section, self.name) if self.found is None else shrink(self.found)


def guarantees(
    subscriptions: Sequence[Subscription],
    *,
    order: str | None = None,
    scene_count: int = SCENE_COUNT,
) -> dict[str, list[Answer]]:
    """The answers for each subscription by name, properties in their usual order.

    `order` is the level at which subscribers get events, in place of the level that a subscription
    asks for; without either, a total order, as in files.
    A subscription that reads a derived topic keeps only what is kept by those that emit it too.
    """
    derived = emitters(subscriptions)
    topics = {t: s for t, s in assumed_topics(subscriptions).items() if t not in derived}
    asked = check(subscriptions, topics)
    own = {
        one.name: answers(one, order=order or one.order or TOTAL, scene_count=scene_count)
        for one in asked
    }
    feeding = {
        one.name: sorted({asked[i].name for t in one.topics for i in derived.get(t, ())})
        for one in asked
    }
    return {name: _composed(name, own, feeding) for name in own}


def _composed(
    name: str, own: Mapping[str, list[Answer]], feeding: Mapping[str, Sequence[str]]
) -> list[Answer]:
    """One's own answers, with what is lost on the way to the derived topics that it reads."""
    found = [*own[name]]
    for feeder in feeding[name]:
        for i, answer in enumerate(_composed(feeder, own, feeding)):
            if found[i].kept and not answer.kept:
                through = answer.through or feeder
                found[i] = msgspec.structs.replace(answer, through=through)
    return found


def answers(
    subscription: Subscription, *, order: str = TOTAL, scene_count: int = SCENE_COUNT
) -> list[Answer]:
    """The answers for one subscription that passed `language.check`, whatever feeds it."""
    lost = losses(subscription, order)
    subscribers = cast(subscription)
    rng = Random(subscription.canonical)
    # Whether an order level shows depends on arrivals, everything else is clearer without them.
    by_order = {name for name, loss in lost.items() if loss.cause.startswith("order")}
    others = [name for name in lost if name not in by_order and _may_lose(subscription, name)]
    found = search(subscribers, others, rng, scene_count=scene_count)
    found |= relatives(found, [name for name in others if name not in found])
    if by_order:
        met = subscribers[:2] if order == "agreed" else subscribers
        found |= search(met, sorted(by_order), rng, scene_count=scene_count, order=order)
    return [_answer(name, subscription, lost.get(name), found.get(name)) for name in PROPERTIES]


def _may_lose(subscription: Subscription, name: str) -> bool:
    """Event Validity says nothing where every first instance has a binary predicate."""
    return name != EVENT_VALIDITY or any(
        is_free(conjunction, Slot(topic, 1))
        for conjunction in subscription.conjunctions
        for topic in conjunction.instances
    )


def _answer(
    name: str, subscription: Subscription, loss: Loss | None, found: Counterexample | None
) -> Answer:
    if loss is None:
        return Answer(name, KEPT[name])
    if found is not None:
        return Answer(name, loss.why, "subscription", found)
    return Answer(name, loss.why, "policy", section=section_of(loss, subscription.policy))

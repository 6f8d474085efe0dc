"""How a claim of a paper is tested: drawn subscriptions, scenes, and the checkers' verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from concordant.check.verdict import Verdict
from concordant.guarantees.cast import cast
from concordant.guarantees.draw import draw_subscription
from concordant.guarantees.scene import Played, Scene
from concordant.guarantees.search import Counterexample, search, violated
from concordant.language import parse
from concordant.model.subscription import Policy, Subscription
from tests.examples import stream

DRAW_COUNT = 60
SCENE_COUNT = 6

Wanted = Callable[[Subscription], bool]


def one_conjunction(subscription: Subscription) -> bool:
    return len(subscription.conjunctions) == 1


def disjunction(subscription: Subscription) -> bool:
    return len(subscription.conjunctions) > 1


def searched(
    policy: Policy, names: Sequence[str], wanted: Wanted
) -> tuple[dict[str, Counterexample], Counter[str]]:
    """Counterexamples by property, and how often each had something to say."""
    rng = Random(f"{policy} {names}")
    found: dict[str, Counterexample] = {}
    exercised: Counter[str] = Counter()

    def watch(_: Played, verdict: Verdict) -> None:
        exercised[verdict.name] += bool(verdict.checked)

    done = 0
    while done < DRAW_COUNT:
        subscription = draw_subscription(rng, policy)
        if not wanted(subscription):
            continue
        done += 1
        left = [name for name in names if name not in found]
        found |= search(
            cast(subscription), left, rng, scene_count=SCENE_COUNT, endless_every=1, watch=watch
        )
    return found, exercised


def assert_kept(policy: Policy, *names: str, wanted: Wanted = one_conjunction) -> None:
    """No counterexample, in runs in which each property had something to say."""
    found, exercised = searched(policy, names, wanted)
    assert found == {}
    assert [name for name in names if exercised[name] < DRAW_COUNT / 4] == []


def shows(name: str, policy: Policy, events: str, *formulas: str, cycle: str = "") -> bool:
    """Is a property violated when subscribers p1, p2, … get these events?"""
    text = "".join(f"p{i}: {formula}\n" for i, formula in enumerate(formulas, start=1))
    subscribers = tuple(Subscription(one.name, one.conjunctions, policy) for one in parse(text))
    scene = Scene(subscribers, stream(f"{events} {cycle}"), len(cycle.split()))
    return violated(scene, name) is not None

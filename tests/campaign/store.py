"""Write the smallest counterexamples: `python -m tests.campaign.store` rewrites `stored.toml`.

For every policy, clause and order level and each property that it loses: drawn subscriptions are
searched, what is found is shrunk, and the smallest of several is kept. Deterministic. Whoever
changes the table, the engine or the shrinker runs it and reviews the difference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

import concordant.guarantees
from concordant.check.properties import INFEASIBLE
from concordant.guarantees.cast import cast
from concordant.guarantees.draw import draw_subscription
from concordant.guarantees.search import TOTAL, Counterexample, search, shortest, shrink
from concordant.guarantees.stored import entry_text
from concordant.guarantees.table import CLAUSES, ORDERS, lost_by_policy
from concordant.model.subscription import POLICIES, Consume, Policy, Subscription

PATH = Path(concordant.guarantees.__file__).with_name("stored.toml")

HEADER = """\
# The smallest known counterexample of each property that a policy, a clause or an order level
# loses; see stored.py for the notation. Written by `python -m tests.campaign.store`.
"""

DRAW_COUNT_MAX = 3_000
SHRINK_COUNT = 3
"""Counterexamples that are shrunk per property; the smallest is kept."""


KEEPS = {
    "partition by": Policy(),
    "within": Policy(staged=True, consume=Consume.MATCHED),
    "cap": Policy(staged=True, consume=Consume.MATCHED),
}
"""Policies that keep what a clause takes away, so that what is found is the fault of the clause."""


def with_clause(subscription: Subscription, clause: str) -> Subscription:
    """The subscription with a clause that takes something away."""
    largest = max(n for c in subscription.conjunctions for n in c.instances.values())
    changes: dict[str, object] = {
        "partition by": {"partition_by": ("k",)},
        "within": {"within_us": 2},
        "cap": {"queue_count_max": largest},
    }[clause]  # type: ignore[assignment]
    return msgspec.structs.replace(subscription, **changes)  # type: ignore[arg-type]


def found(
    seed: str, policy: Policy, names: list[str], *, clause: str = "", order: str = TOTAL
) -> dict[str, Counterexample]:
    """The smallest counterexample of each name."""
    rng = Random(seed)
    best: dict[str, Counterexample] = {}
    left = dict.fromkeys(names, SHRINK_COUNT)
    for _ in range(DRAW_COUNT_MAX):
        asked = draw_subscription(rng, policy)
        if clause:
            asked = with_clause(asked, clause)
        subscribers = cast(asked) if order != "agreed" else cast(asked)[:2]
        for name, example in search(subscribers, left, rng, scene_count=8, order=order).items():
            small = shortest(shrink(example, formulas=True, keep=""))
            if name not in best or small.size < best[name].size:
                best[name] = small
            left[name] -= 1
            if not left[name]:
                del left[name]
        if not left:
            break
    return best


def sections() -> Iterator[tuple[str, dict[str, Counterexample]]]:
    for one in POLICIES:
        for staged in (False, True):
            policy = msgspec.structs.replace(one, staged=staged)
            yield str(policy), found(str(policy), policy, [*lost_by_policy(policy)])
    for clause, lost in CLAUSES.items():
        yield clause, found(clause, KEEPS[clause], [*lost], clause=clause)
    for order, lost in ORDERS.items():
        if lost:
            yield f"order {order}", found(order, Policy(), [*lost], order=order)
    yield "any policy", found("any", Policy(), [*INFEASIBLE])


def main() -> int:
    texts = [HEADER]
    for section, examples in sections():
        print(section, {name: len(e.scene.events) for name, e in examples.items()}, flush=True)
        texts += [entry_text(section, example) for example in examples.values()]
    PATH.write_text("\n".join(texts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a client sends to have its publications ordered, and to whom."""

from __future__ import annotations

from collections.abc import Iterator

from concordant.causal.messages import Submit
from concordant.causal.rules import Rules
from concordant.causal.state import SubscriberState
from concordant.causal.vector import Vector, copied
from concordant.machine.instant import Instant


def submissions(
    state: SubscriberState, rules: Rules, now: Instant, *, count_max: int
) -> Iterator[Submit]:
    """What may be under way to the outbox's target, and is not yet."""

    def best(topics: tuple[str, ...]) -> str:
        """A home, if it can order events of these topics; a broker to be avoided last."""
        able = [one for one in rules.order if rules.suffice((one,), topics)]
        return min(able, key=lambda one: (one in state.avoided, one not in state.homes))

    outbox, whole = state.outbox, Vector()
    for number, (event, topics) in outbox.fly(now, rules.serves, best=best, count_max=count_max):
        context = outbox.news
        if number <= outbox.whole:
            whole = context = whole or copied(state.context)
        outbox.news = {}
        yield Submit(number, event, topics, context, state.inbox.newest, outbox.after)

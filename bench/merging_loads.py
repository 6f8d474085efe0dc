"""The thesis's workloads: scenarios A to D of 3.5, and the market of 4.5 (Wilkin 2015).

A load says who subscribes what and which events are published. Figures 3.8 and 3.9 are known by
their text only: A and B are a chain of conjunctions, C all pairs of four topics, D disjunctions.
The market has 23 topics and conjunctions of up to 6 of them, drawn uniformly (4.5, scenario C); how
its default strategies looked is not in the text.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from random import Random

import msgspec

from concordant.language import checked, parse
from concordant.model.kind import Kind
from concordant.model.subscription import Subscription
from concordant.model.topic import Schemas, Topic, schemas
from concordant.order.merging.overlay import Signature, nodes, signature_of

MARKET_TOPICS = 23
MARKET_SIZE_MAX = 6
MARKET_STRATEGIES = 40
"""Conjunctions that traders choose from."""

_CAP = "cap 8"
"""Queues stay short, so that matching costs about the same under every order."""


class BenchLoad(msgspec.Struct, frozen=True):
    """What is subscribed and published."""

    name: str
    topics: tuple[str, ...]
    texts: tuple[str, ...]
    """The subscription of each subscriber."""
    every: int = 1
    """Of so many events of a topic one passes the filters."""

    @property
    def schemas(self) -> Schemas:
        kinds = {"a": Kind.INT, "b": Kind.INT, "c": Kind.INT}
        return schemas(Topic(name, kinds) for name in self.topics)

    @property
    def mergers(self) -> tuple[Signature, ...]:
        """Every merger that the subscriptions need."""
        return nodes(
            signature_of(each) for one in self.subscriptions() for each in one.conjunctions
        )

    def subscriptions(self) -> list[Subscription]:
        known = self.schemas
        found = {}
        for text in dict.fromkeys(self.texts):
            ((found[text],), _) = checked(parse(f"q: {text}"), known)
        return [found[text] for text in self.texts]

    def widths(self, *, plain: bool) -> list[float]:
        """Events that each subscriber is given for one that is published to every topic: those of
        its topics, or those of its relations."""
        return [
            len(one.topics)
            if plain
            else sum(len(signature_of(each)) for each in one.conjunctions) / self.every
            for one in self.subscriptions()
        ]


def load(name: str, subscribers: int, *, depth: int = 4) -> BenchLoad:
    """A workload by its name: A, B, C, D or market."""
    topics = _topics(MARKET_TOPICS if name == "market" else depth)
    choices = _CHOICES[name](topics)
    texts = tuple(choices[number % len(choices)] for number in range(subscribers))
    return BenchLoad(name, topics, texts)


def exact(name: str, subscribers: int) -> BenchLoad:
    """The scenarios without binary predicates and bounds: the oldest goes with the oldest, so every
    order delivers equally many. Besides, one topic alone, and the one pair of topics by which the
    thesis measures (3.5). Of B's events every second passes."""
    topics = _topics(_WIDTHS.get(name, 4))
    chain = [topics[:k] for k in range(2, len(topics) + 1)]
    choices = {
        "one": [topics[0]],
        "pair": [" and ".join(one) for one in chain],
        "A": [" and ".join(one) for one in chain],
        "B": [" and ".join(f"{topic}.b < 1" for topic in one) for one in chain],
        "C": [" and ".join(one) for one in combinations(topics, 2)],
        "D": [" or ".join(f"({a} and {b})" for a, b in pairwise(one)) for one in chain],
    }[name]
    texts = tuple(choices[number % len(choices)] for number in range(subscribers))
    return BenchLoad(name, topics, texts, 2 if name == "B" else 1)


_WIDTHS = {"one": 1, "pair": 2}


def _topics(count: int) -> tuple[str, ...]:
    return tuple(f"T{number:02}" for number in range(1, count + 1))


def _chain(topics: tuple[str, ...], filtered: str) -> str:
    """Conjunctions that extend each other; B has unary predicates that mergers can filter by."""
    parts = [f"{one}.a <= {other}.a" for one, other in pairwise(topics)]
    if filtered:
        parts += [f"{topic}.b < 500" for topic in topics]
    return f"{' and '.join(parts)} {_CAP}"


def _either(topics: tuple[str, ...], level: int) -> str:
    pairs = [f"({topics[i]} and {topics[(i + 1) % len(topics)]})" for i in range(level - 1)]
    return f"{' or '.join(pairs)} {_CAP}"


def _market(topics: tuple[str, ...]) -> list[str]:
    rng = Random("market")
    found = []
    for _ in range(MARKET_STRATEGIES):
        wanted = sorted(rng.sample(topics, rng.randint(2, MARKET_SIZE_MAX)))
        # Without a bound on queues: all topics come equally often, so they stay short, and every
        # order finds the same relations.
        found.append(" and ".join(wanted))
    return found


_CHOICES: dict[str, Callable[[tuple[str, ...]], list[str]]] = {
    "A": lambda topics: [_chain(topics[:k], "") for k in range(2, len(topics) + 1)],
    "B": lambda topics: [_chain(topics[:k], "filtered") for k in range(2, len(topics) + 1)],
    "C": lambda topics: [f"{a}.a <= {b}.a {_CAP}" for a, b in combinations(topics, 2)],
    "D": lambda topics: [_either(topics, level) for level in range(2, len(topics) + 1)],
    "market": _market,
}
"""The subscriptions that subscribers have by turns."""

"""Which brokers serve a client: one if one serves all of its topics, else as few as it takes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from concordant.errors import UsageError


def homes_for(
    topics: Sequence[str],
    serves: Mapping[str, Container[str]],
    *,
    order: Iterable[str],
    several: bool,
) -> tuple[str, ...]:
    """The first broker in this order that serves all topics; else, if allowed, a cover of them.

    >>> serves = {"a": ("T", "U"), "b": ("U", "V"), "c": ("T", "U", "V")}
    >>> homes_for(("U", "V"), serves, order="abc", several=True)
    ('b',)
    >>> homes_for(("T", "U", "V"), {"a": ("T", "U"), "b": ("U", "V")}, order="ab", several=True)
    ('a', 'b')
    """
    order = tuple(order)
    for broker in order:
        if all(topic in serves[broker] for topic in topics):
            return (broker,)
    missing = [topic for topic in topics if not any(topic in serves[one] for one in order)]
    if missing or not several:
        raise UsageError(
            f"no broker serves {', '.join(missing or topics)}"
            + ("" if missing else " together, and this profile allows one home only"),
            hint="name the brokers of each topic in the cluster's description",
        )
    found: list[str] = []
    rest = list(topics)
    while rest:
        best = max(order, key=lambda one: sum(topic in serves[one] for topic in rest))
        found.append(best)
        rest = [topic for topic in rest if topic not in serves[best]]
    return tuple(found)

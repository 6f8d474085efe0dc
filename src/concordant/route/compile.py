"""Subscriptions of the language as filters, where a filter can say the same.

A filter asks about one event. So each conjunction must be about one event of one topic, and compare
its attributes with constants; several conjunctions are several filters. What cannot be said by
intervals (another event, arithmetic, `!=`) is refused with the predicate that is in the way.
"""

from __future__ import annotations

from concordant.errors import UsageError
from concordant.model.expression import Attribute, Constant
from concordant.model.predicate import Comparison, Predicate
from concordant.model.subscription import Conjunction, Subscription
from concordant.route.filter import Filter, Interval, between, filter_of

_HINT = "subscribe to the topics over the bus, and correlate there"


def filters_of(subscription: Subscription) -> tuple[Filter, ...]:
    """One filter per conjunction."""
    return tuple(_filter(one) for one in subscription.conjunctions)


def _filter(conjunction: Conjunction) -> Filter:
    instances = conjunction.instances
    if list(instances.values()) != [1]:
        raise UsageError(f"'{conjunction}' is about several events", hint=_HINT)
    (topic,) = instances
    found: dict[str, Interval] = {}
    for predicate in conjunction.predicates:
        if isinstance(predicate, Comparison):
            name, interval = _interval(predicate)
            found[name] = _both(found[name], interval, predicate) if name in found else interval
    return filter_of(topic, found)


def _interval(predicate: Comparison) -> tuple[str, Interval]:
    left, right = predicate.left, predicate.right
    if not isinstance(left, Attribute) or not isinstance(right, Constant):
        raise UsageError(f"'{predicate}' does not compare an attribute with a value", hint=_HINT)
    value = right.value
    if predicate.op == "=":
        return left.name, between(value, value)
    if predicate.op in ("<", "<="):
        return left.name, between(None, value, high_open=predicate.op == "<")
    if predicate.op in (">", ">="):
        return left.name, between(value, None, low_open=predicate.op == ">")
    raise UsageError(f"'{predicate}' is no interval", hint="write it as two subscriptions, < and >")


def _both(one: Interval, other: Interval, predicate: Predicate) -> Interval:
    """What lies in both."""
    if not one.overlaps(other):
        raise UsageError(f"'{predicate}' contradicts the rest", hint="nothing could ever match")
    low, low_open = max(
        ((i.low, i.low_open) for i in (one, other) if i.low is not None), default=(None, False)
    )
    highs = [(i.high, not i.high_open) for i in (one, other) if i.high is not None]
    high, closed = min(highs, default=(None, True))
    return Interval(low, high, low_open, not closed)

"""The table: which properties a policy loses, whatever the subscription, and why.

Data, checked in both directions by search (`make campaign`): what is kept has no counterexample in
thousands of runs that deliver, what is lost has one in `stored.toml`. The thesis's own table 4.1
(Wilkin 2015) stands beside it, with its theorems' numbers. The table is about one partition, with
neither `within` nor caps, over a total order; what these take away is said below it.
"""

from __future__ import annotations

from typing import NamedTuple

from concordant.model.subscription import QUEUED_COUNT_MAX, Consume, Match, Policy, Subscription

NO_DUPLICATION = "No Duplication"
NO_DUPLICATION_IN_A_SLOT = "No Duplication′"
CONJUNCTION_VALIDITY = "Conjunction Validity"
EVENT_VALIDITY = "Event Validity"
AGREEMENT = "Conjunction Agreement"
COVERING = "Covering Agreement"
TYPE_TOTAL = "Type Total Order"
CONJUNCTION_TOTAL = "Conjunction Total Order"
DISJUNCTION_TOTAL = "Disjunction Total Order"
FIFO = "Type FIFO Order"
LOCAL = "Type Local Order"
CAUSAL = "Type Causal Order"

_ORDERS = (FIFO, LOCAL, CAUSAL)


# --- what each policy loses -----------------------------------------------------------------------

_BURIED = "later events are taken first, so an early one may wait for ever"
_RECENT_COVERS = "whoever waits for more topics finds newer events than those matched before"
_WAITING = "whoever waits for more topics finds an earlier event whose partner has come meanwhile"
_SKIPPED = "an earlier event is passed over and removed when a later one completes a relation"
_NEIGHBOURS = "events that match may never be neighbours in their stream"
_LATER_FIRST = "an event is passed over, stays queued, and is delivered after a later one"
_BACKWARDS = "later events are taken first and earlier ones afterwards"
_TURNED = "whoever waits for more topics matches the same relations in another order"
_DROPPED = "what is queued behind the first matched event is removed without its turn"
_WINDOWS = "a sliding window delivers an event once per window"
_SAME_SLOT = "the window slides by its first event only, so a later one can match again in its slot"


def _first(consume: Consume, contiguous: bool) -> dict[str, str]:
    lost: dict[str, str] = {COVERING: _WAITING}
    if consume is Consume.MATCHED:
        lost |= {TYPE_TOTAL: _LATER_FIRST, CONJUNCTION_TOTAL: _TURNED}
        lost |= dict.fromkeys(_ORDERS, _LATER_FIRST)
    elif consume is Consume.PREFIX:
        lost[EVENT_VALIDITY] = _SKIPPED
    elif consume is Consume.SUFFIX:
        lost |= {EVENT_VALIDITY: _DROPPED, TYPE_TOTAL: _LATER_FIRST}
        lost |= dict.fromkeys(_ORDERS, _LATER_FIRST)
    elif not contiguous:
        lost |= {TYPE_TOTAL: _LATER_FIRST, NO_DUPLICATION_IN_A_SLOT: _SAME_SLOT}
        lost |= dict.fromkeys(_ORDERS, _LATER_FIRST)
    return lost


def _recent(consume: Consume, contiguous: bool) -> dict[str, str]:
    lost: dict[str, str] = {EVENT_VALIDITY: _BURIED, COVERING: _RECENT_COVERS}
    if consume in (Consume.MATCHED, Consume.SUFFIX):
        lost |= {TYPE_TOTAL: _BACKWARDS, CONJUNCTION_TOTAL: _TURNED}
        lost |= dict.fromkeys(_ORDERS, _BACKWARDS)
    elif consume is Consume.SLIDE and not contiguous:
        lost |= {TYPE_TOTAL: _BACKWARDS, NO_DUPLICATION_IN_A_SLOT: _SAME_SLOT}
        lost |= dict.fromkeys(_ORDERS, _BACKWARDS)
    return lost


def lost_by_policy(policy: Policy) -> dict[str, str]:
    """The properties that a policy loses, each with the reason; all others are kept."""
    of = _first if policy.match is Match.FIRST else _recent
    lost = of(policy.consume, policy.contiguous)
    if policy.consume is Consume.SLIDE:
        lost[NO_DUPLICATION] = _WINDOWS
    if policy.contiguous:
        lost[EVENT_VALIDITY] = lost[CONJUNCTION_VALIDITY] = _NEIGHBOURS
    if policy.staged:
        lost = {
            name: why for name, why in lost.items() if name not in (COVERING, CONJUNCTION_TOTAL)
        }
    return lost


# --- what else takes away -------------------------------------------------------------------------


class Loss(NamedTuple):
    """A property is lost: by what, and why."""

    cause: str
    """`policy`, a clause (`partition by`, `within`, `cap`) or `order` and a level."""
    why: str


_ACROSS = "partitions do not wait for each other; within one partition it is as without them"
_APART = "events that are too far apart in time are never delivered together"
_TOO_OLD = "whoever waits for more topics finds earlier events too old and takes others"
_CAPPED = "a cap removes events that would have been delivered"

CLAUSES: dict[str, dict[str, str]] = {
    "partition by": dict.fromkeys((TYPE_TOTAL, CONJUNCTION_TOTAL, *_ORDERS), _ACROSS),
    "within": {COVERING: _TOO_OLD, CONJUNCTION_VALIDITY: _APART, EVENT_VALIDITY: _APART},
    "cap": dict.fromkeys((CONJUNCTION_VALIDITY, EVENT_VALIDITY), _CAPPED),
}
"""What clauses take away, under every policy."""

_UNAGREED = "subscribers get the events in different orders"
_UNSTAMPED = "branches with topics of their own are interleaved differently for each subscriber"
_ANY_ORDER = "events of one source may overtake each other"
_NOT_CAUSAL = "an event may overtake another that was delivered before it was published"
_UNORDERED = (AGREEMENT, COVERING, TYPE_TOTAL, CONJUNCTION_TOTAL, DISJUNCTION_TOTAL)

ORDERS: dict[str, dict[str, str]] = {
    "none": dict.fromkeys(_UNORDERED, _UNAGREED) | dict.fromkeys(_ORDERS, _ANY_ORDER),
    "fifo": dict.fromkeys(_UNORDERED, _UNAGREED) | dict.fromkeys((LOCAL, CAUSAL), _NOT_CAUSAL),
    "causal": dict.fromkeys(_UNORDERED, _UNAGREED),
    "agreed": {DISJUNCTION_TOTAL: _UNSTAMPED},
    "total": {},
    "total strict": {},
}
"""What an order level below a total order takes away, under every policy."""


def clauses_of(subscription: Subscription) -> tuple[str, ...]:
    """The clauses of a subscription that take something away."""
    present = {
        "partition by": bool(subscription.partition_by),
        "within": subscription.within_us is not None,
        "cap": subscription.queue_count_max is not None
        or subscription.queued_count_max != QUEUED_COUNT_MAX,
    }
    return tuple(name for name, there in present.items() if there)


def losses(subscription: Subscription, order: str = "total") -> dict[str, Loss]:
    """What a subscription's policy, clauses and order level lose, each with one reason."""
    found = {name: Loss("policy", why) for name, why in lost_by_policy(subscription.policy).items()}
    for clause in clauses_of(subscription):
        for name, why in CLAUSES[clause].items():
            found.setdefault(name, Loss(clause, why))
    for name, why in ORDERS[order].items():
        found.setdefault(name, Loss(f"order {order}", why))
    return found


KEPT = {
    NO_DUPLICATION: "what was delivered leaves the queues",
    NO_DUPLICATION_IN_A_SLOT: "no event comes back into a slot in which it was delivered",
    "No Creation": "only events that arrived are matched",
    "Admission": "every predicate is tested before a delivery",
    CONJUNCTION_VALIDITY: "events leave the queues by a delivery only",
    EVENT_VALIDITY: "the earliest event that fits is taken, and none is passed over for good",
    AGREEMENT: "the same events in the same order are matched in the same way by everybody",
    COVERING: "each part is matched on its own, whatever is added",
    TYPE_TOTAL: "events of a topic are delivered in the order of arrival",
    CONJUNCTION_TOTAL: "relations follow the order of arrival, whatever is added",
    DISJUNCTION_TOTAL: "branches take an event in an order that does not depend on the writing",
    FIFO: "events of a topic are delivered in the order of arrival",
    LOCAL: "events of a topic are delivered in the order of arrival",
    CAUSAL: "events of a topic are delivered in the order of arrival",
}
"""Why a property is kept, where it is."""


# --- the thesis's table ---------------------------------------------------------------------------

_THESIS_ORDERS = {TYPE_TOTAL: "6", FIFO: "6", CAUSAL: "6"}
_THESIS_BACKWARDS = {FIFO: "3", CAUSAL: "4"}
_THESIS_CONTIGUOUS = {EVENT_VALIDITY: "5", CONJUNCTION_VALIDITY: "5"}
_THESIS_SLIDE = {NO_DUPLICATION: "9"}


def lost_in_the_thesis(policy: Policy) -> dict[str, str]:
    """What table 4.1 says that a policy loses, each with the numbers of its theorems."""
    recent, contiguous = policy.match is Match.RECENT, policy.contiguous
    lost: dict[str, str] = {}

    def add(*more: dict[str, str]) -> None:
        for one in more:
            for name, number in one.items():
                lost[name] = f"{lost[name]}, {number}" if name in lost else number

    if recent:
        add({EVENT_VALIDITY: "1"}, {COVERING: "2"})
        if policy.consume is not Consume.PREFIX:
            add(_THESIS_BACKWARDS)
    if contiguous and (not recent or policy.consume is Consume.MATCHED):
        add(_THESIS_CONTIGUOUS)
    elif contiguous:
        add({CONJUNCTION_VALIDITY: "5"})
    if policy.consume is Consume.MATCHED:
        add(_THESIS_ORDERS)
    elif policy.consume is Consume.SUFFIX and not recent:
        add({EVENT_VALIDITY: "7", COVERING: "8"})
    elif policy.consume is Consume.SLIDE:
        add(_THESIS_SLIDE)
        if not contiguous:
            add({FIFO: "10", CAUSAL: "10"})
    return lost

"""The documentation page of the table: ours and the thesis's side by side, with counterexamples.

Text from data: nothing here is written by hand twice. A test keeps `docs/concepts/guarantees.md`
equal to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from concordant.check.properties import INFEASIBLE, PROPERTIES
from concordant.guarantees.stored import entry_words, formula_text, names_in, stored
from concordant.guarantees.table import (
    CLAUSES,
    LOCAL,
    ORDERS,
    lost_by_policy,
    lost_in_the_thesis,
)
from concordant.guarantees.timeline import violation_of
from concordant.model.subscription import POLICIES, Policy

_HEAD = """\
# Guarantees: what a subscription keeps

Two subscribers who ask the same question get the same answers in the same order. How much more can
be promised depends on the policy, and the table below says what each one loses. It is checked in
both directions: what is kept has no counterexample in 10,000 runs that deliver, per policy and
property (`make campaign`); what is lost has a smallest counterexample, stored and replayed by the
tests. `concordant guarantees SUB` says the same for your subscription, and searches for a
counterexample with it; see [Commands](../reference/commands.md#guarantees).

This page is generated from the data in `guarantees/table.py` and `guarantees/stored.toml`:
`CONCORDANT_REWRITE=1 .venv/bin/python -m pytest tests/unit/guarantees/test_page.py` writes it anew.

## The properties

"""

_READINGS = """
How they are read, where the thesis leaves it open:

- Under `slide` the first delivery of an event counts.
- Type Total Order means that no two subscribers deliver two events of a topic in opposite orders.
  The printed formula fails wherever one subscriber gets two events in one relation and another gets
  them in two.
- Validity is judged on endless inputs: a prefix, and then a cycle that repeats until the state
  repeats. Its premise is about the predicates: neither `contiguous` nor `within` nor a cap is part
  of the question.
- Event Validity is about the first instance of a topic, if no binary predicate names it.
- Subscribers are compared under the same policy. Covering and Conjunction Total Order compare a
  conjunction with one that adds topics to its right, in topic order.

## What each policy loses

The thesis's table 4.1 (Wilkin 2015) stands beside ours, with the numbers of its theorems. **Bold**:
lost, though the thesis says that it is kept. ~~Struck out~~: kept, though the thesis says that it
is lost. Type Local Order is not in the thesis's table; it is lost wherever Type FIFO Order is.

"""

_STAGED = """
Under `staged`, Covering Agreement and Conjunction Total Order are kept by every policy; all else is
as without it.

## What else takes away

"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _HEAD + "\n".join(_properties()),
            _READINGS + "\n".join(_policies()),
            _STAGED + "\n".join(_others()),
            "",
            "## Counterexamples",
            "",
            "Subscribers p1, p2, … and the events in order of arrival. `A2` is an event of topic A "
            "with `a` = 2,",
            "`A2k1` has `k` = 1 as well, `@5` is a time, `/p2` a publisher other than s. Events "
            "after ↻ repeat for",
            "ever; in square brackets is the order in which each subscriber gets them, where it "
            "differs. `s:3` is the",
            "third event of s.",
            *_counterexamples(),
            "",
        ]
    )


def _properties() -> Iterator[str]:
    yield "| property | meaning |"
    yield "|---|---|"
    for one in PROPERTIES.values():
        yield f"| {one.name} | {one.meaning} |"


def _link(section: str, text: str) -> str:
    return f"[{text}](#{section.replace(' ', '-')})"


def _short(policy: Policy) -> str:
    words = [policy.match.value, *["contiguous"] * policy.contiguous, policy.consume.value]
    return " ".join(words)


def _policies() -> Iterator[str]:
    yield "| policy | lost | lost in the thesis (theorem) |"
    yield "|---|---|---|"
    for policy in POLICIES:
        lost, theirs = lost_by_policy(policy), lost_in_the_thesis(policy)
        ours = [
            _link(str(policy), name if name in theirs or name == LOCAL else f"**{name}**")
            for name in PROPERTIES
            if name in lost
        ]
        thesis = [
            f"{name} ({theirs[name]})" if name in lost else f"~~{name} ({theirs[name]})~~"
            for name in PROPERTIES
            if name in theirs
        ]
        yield f"| `{_short(policy)}` | {', '.join(ours)} | {', '.join(thesis) or 'nothing'} |"


def _others() -> Iterator[str]:
    yield "| what | lost under every policy |"
    yield "|---|---|"
    for clause in CLAUSES:
        yield f"| `{clause}` | {_listed(clause)} |"
    for order, lost in ORDERS.items():
        listed = _listed(f"order {order}") if lost else "nothing"
        yield f"| order level `{order}` | {listed} |"
    yield ""
    yield "With `partition by`, the table of policies holds for the events of one partition."
    yield "A subscription that reads a derived topic (`emit`) keeps what it keeps itself and what"
    yield "all those keep that emit the topic. Nobody keeps these, which the thesis names as out of"
    yield f"reach: {_listed('any policy')}."


def _listed(section: str) -> str:
    return ", ".join(_link(section, name) for name in names_in(section))


def _counterexamples() -> Iterator[str]:
    policies = [
        str(msgspec.structs.replace(policy, staged=staged))
        for policy in POLICIES
        for staged in (False, True)
    ]
    others = [*CLAUSES, *(f"order {order}" for order, lost in ORDERS.items() if lost)]
    for section in (*policies, *others, "any policy"):
        yield f"\n### {section}\n"
        yield "| lost | subscribers | events | what happens |"
        yield "|---|---|---|---|"
        known = {**PROPERTIES, **INFEASIBLE}
        for name in sorted(names_in(section), key=[*known].index):
            example = stored(section, name)
            scene = example.scene
            formulas = "<br>".join(f"`{formula_text(one)}`" for one in scene.subscribers)
            clauses = " ".join(scene.subscribers[0].clauses[1:])
            if str(scene.subscribers[0].policy) != section:
                clauses = f"{scene.subscribers[0].policy} {clauses}".strip()
            asked = f"{formulas}<br>{clauses}" if clauses else formulas
            sentence = violation_of(example).sentence
            yield f"| {name} | {asked} | {entry_words(scene)} | {sentence} |"

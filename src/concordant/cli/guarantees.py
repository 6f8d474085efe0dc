"""`concordant guarantees`: what a subscription keeps, what it loses, and how."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from concordant.check.properties import PROPERTIES
from concordant.cli import terminal
from concordant.cli.inputs import Consumption, Matching, Subscriptions
from concordant.errors import UsageError
from concordant.files.subscriptions import read_subscriptions, subscription_file
from concordant.guarantees.answer import Answer
from concordant.guarantees.answer import guarantees as answers_for
from concordant.guarantees.timeline import as_value, question_text, timeline
from concordant.language.clauses import suggestion
from concordant.model.subscription import Subscription


class OrderLevel(StrEnum):
    """What carries the events to the subscribers."""

    NONE = "none"
    FIFO = "fifo"
    CAUSAL = "causal"
    AGREED = "agreed"
    TOTAL = "total"
    TOTAL_STRICT = "total strict"


_SIGNS = {"": "✓", "subscription": "✗", "policy": "○"}
_LEGEND = """\
✓ kept   ✗ lost by this subscription   ○ lost by the policy or a clause: no case found with this one
--why PROPERTY shows what happens"""


@terminal.guarded
def guarantees(
    subscription: Subscriptions,
    why: Annotated[
        str | None,
        typer.Option(
            metavar="PROPERTY",
            show_default=False,
            help="Say what a property means, and show the counterexample as a time line.",
        ),
    ] = None,
    order: Annotated[
        OrderLevel | None,
        typer.Option(
            show_default=False,
            help="The order in which subscribers get events, in place of what SUB says; "
            "otherwise total, as in files.",
        ),
    ] = None,
    match: Matching = None,
    consume: Consumption = None,
    json: terminal.Json = False,
) -> None:
    """Say which guarantees a subscription keeps, and show a counterexample for each it loses.

    \b
    Examples:
      concordant guarantees rising.sub
      concordant guarantees 'A.a = B.a match first consume matched' --why 'Type Total Order'
      concordant guarantees rising.sub --match 'first staged' --json
    """
    wanted = None if why is None else _property(why)
    asked = read_subscriptions(subscription, match=match, consume=consume)
    try:
        answers = answers_for(asked, order=order.value if order else None)
    except UsageError as error:
        path = subscription_file(subscription)
        raise error.located(str(path)) if path else error from None
    for number, one in enumerate(asked):
        found = answers[one.name]
        if wanted is not None:
            found = [answer for answer in found if answer.name == wanted]
        if json:
            terminal.print_json(_value(one, found))
            continue
        if number:
            terminal.print_text("")
        terminal.print_text(_heading(one, order))
        terminal.print_text(_story(found[0]) if wanted else _table(found))
    if not json and wanted is None:
        terminal.print_text(f"\n{_LEGEND}")


def _property(given: str) -> str:
    """The property that is meant, whatever its case and its prime look like."""
    plain = given.strip().replace("'", "′").casefold()
    for name in PROPERTIES:
        if name.casefold() == plain:
            return name
    raise UsageError(
        f"there is no property {given!r}: they are {', '.join(PROPERTIES)}",
        hint=suggestion(given, PROPERTIES) or "take one of these names",
    )


def _heading(subscription: Subscription, order: OrderLevel | None) -> str:
    level = f" over the order level '{order.value}'" if order else ""
    return f"{subscription.name}: {question_text(subscription)}{level}"


def _table(found: list[Answer]) -> str:
    width = max(len(answer.name) for answer in found)
    return "\n".join(
        f"  {_SIGNS[answer.scope]} {answer.name.ljust(width)}  {_why(answer)}" for answer in found
    )


def _why(answer: Answer) -> str:
    return f"{answer.why} (through {answer.through})" if answer.through else answer.why


def _story(answer: Answer) -> str:
    lines = [f"{answer.name}: {PROPERTIES[answer.name].meaning}", ""]
    if answer.kept:
        return "\n".join([*lines, f"{_SIGNS['']} kept: {answer.why}"])
    by = "this subscription" if answer.scope == "subscription" else "the policy or a clause"
    lines.append(f"{_SIGNS[answer.scope]} lost by {by}: {_why(answer)}")
    if answer.scope == "policy":
        lines.append("  No case was found with this subscription; here is one with another:")
    return "\n".join([*lines, "", timeline(answer.counterexample())])


def _value(subscription: Subscription, found: list[Answer]) -> dict[str, Any]:
    lost = []
    for answer in found:
        if not answer.kept:
            example = answer.counterexample()
            lost.append(
                {
                    "property": answer.name,
                    "scope": answer.scope,
                    "why": _why(answer),
                    "example_subscription": question_text(example.scene.subscribers[0]),
                    "counterexample": as_value(example),
                }
            )
    return {
        "subscription": subscription.name,
        "kept": [{"property": a.name, "why": a.why} for a in found if a.kept],
        "lost": lost,
    }

"""Jergler 2017, definition 6: the order of operations, for the paper's own examples."""

from __future__ import annotations

from random import Random

from concordant.route.filter import filter_of
from concordant.route.requests import Advertise, Publish, Subscribe
from concordant.sim.transaction_load import dispatch_plan, scene
from concordant.transact.actions import Action, Plan, Trigger, place_of


def steps(plan: Plan) -> list[tuple[str, str, str]]:
    return [(client, step.op, step.after) for client, step in plan.lines()]


def test_dispatching_has_the_order_of_figure_1() -> None:
    assert steps(dispatch_plan("E", "D", "A1", 1)) == [
        ("E", "1", ""),
        ("D", "1.1", "1"),
        ("A1", "1.1.1", "1.1"),
        ("D", "1.2", "1.1.1"),
        ("E", "2", "1.2"),
    ]


def test_figure_2_orders_what_a_trigger_leads_to_before_what_follows_it() -> None:
    wanted = filter_of("x")
    plan = Plan(
        "C1",
        (
            Advertise("a1", wanted),
            Trigger("C2", "x", {}, (Subscribe("s2", wanted),)),
            Publish("y"),
        ),
    )
    assert steps(plan) == [
        ("C1", "1", ""),
        ("C1", "2", "1"),
        ("C2", "2.1", "2"),
        ("C1", "3", "2.1"),
    ]


def _before(one: str, other: str, plan: Plan) -> bool:
    """The definition's rules, applied to two operations."""
    clients = {step.op: client for client, step in plan.lines()}
    a, b = place_of(one), place_of(other)
    if clients[one] == clients[other] and a[:-1] == b[:-1]:
        return a < b  # thread
    if b[: len(a)] == a:
        return True  # trigger
    if a[: len(b)] == b:
        return False
    common = next(n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return a[common] < b[common]  # trigger* and transitivity


def test_the_chain_of_a_plan_is_the_order_of_the_definition() -> None:
    for seed in range(60):
        for begun in scene("static", "fuzz", seed).begun:
            ops = [step.op for _, step in begun.plan.lines()]
            for n, one in enumerate(ops):
                for other in ops[n + 1 :]:
                    assert _before(one, other, begun.plan)
                    assert not _before(other, one, begun.plan)


def test_every_operation_names_the_one_before_it() -> None:
    rng = Random(1)
    actions: tuple[Action, ...] = tuple(
        Trigger("b", "t", {}, (Publish("p"),) * rng.randint(0, 3)) for _ in range(5)
    )
    lines = [step for _, step in Plan("a", actions).lines()]
    assert [step.after for step in lines] == ["", *(step.op for step in lines[:-1])]

"""Answers: three kinds, composed through derived topics, without the compiled kernel."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import pytest

import concordant.evaluate
from concordant.check.properties import PROPERTIES
from concordant.errors import UsageError
from concordant.guarantees.alphabet import alphabet, assumed_topics
from concordant.guarantees.answer import Answer, guarantees
from concordant.guarantees.scene import Scene, play
from concordant.guarantees.search import violated
from concordant.guarantees.table import losses
from concordant.language import parse
from concordant.model.kind import Kind
from tests.examples import stream

MARKET = parse(
    resources.files(concordant.evaluate).joinpath("market.sub").read_text(encoding="utf-8")
)


def answers(text: str, **options: str) -> dict[str, Answer]:
    (found,) = guarantees(parse(text), **options).values()
    return {one.name: one for one in found}


def test_a_property_is_kept_lost_by_the_subscription_or_lost_by_the_policy() -> None:
    found = answers("A.a = B.a")
    assert found["Type FIFO Order"].kept
    assert found["Covering Agreement"].scope == "subscription"
    assert found["Event Validity"].scope == "policy"  # no slot without a binary predicate


def test_a_counterexample_has_the_subscription_as_it_was_asked() -> None:
    example = answers("A.a = B.a")["Covering Agreement"].counterexample()
    assert example.scene.subscribers[0].conjunctions == parse("A.a = B.a")[0].conjunctions
    assert len(example.scene.events) == 5


def test_the_answers_are_the_same_every_time() -> None:
    assert guarantees(parse("A[1].a < A[2].a")) == guarantees(parse("A[1].a < A[2].a"))


@pytest.mark.parametrize("asked", MARKET, ids=lambda asked: asked.name)
def test_the_market_subscriptions_are_answered_and_their_counterexamples_are_real(
    asked: object,
) -> None:
    (found,) = guarantees([asked]).values()  # type: ignore[list-item]
    lost = {one.name for one in found if not one.kept}
    assert lost == {*losses(asked)}  # type: ignore[arg-type]
    assert any(one.scope == "subscription" for one in found)
    for one in found:
        if not one.kept:
            example = one.counterexample()
            assert violated(example.scene, one.name) == example


def test_what_feeds_a_derived_topic_takes_its_losses_along() -> None:
    text = "low: A.a = B.a consume matched emit P(a = A.a)\nhigh: P\n"
    high = {one.name: one for one in guarantees(parse(text))["high"]}
    assert high["Type FIFO Order"].through == "low"
    assert not high["Type FIFO Order"].kept
    alone = answers("P")
    assert alone["Type FIFO Order"].kept


@pytest.mark.parametrize("level", ["none", "fifo", "causal", "agreed"])
def test_a_weaker_order_loses_more(level: str) -> None:
    found = answers("A or B", order=level)
    assert found["Disjunction Total Order"].scope == "subscription"
    assert found["Conjunction Agreement"].kept is (level == "agreed")
    asked = answers(f"A or B order {level}")
    assert {name: one.scope for name, one in asked.items()} == {
        name: one.scope for name, one in found.items()
    }


def test_kinds_are_inferred_from_constants_and_comparisons() -> None:
    (asked,) = parse('A.s = "x" and A.f > 0.5 and A.b = true and A.n = B.m and A.t < A.time')
    topics = assumed_topics([asked])
    kinds = {"s": Kind.STRING, "f": Kind.FLOAT, "b": Kind.BOOL, "n": Kind.INT, "t": Kind.TIME}
    assert {name: topics["A"].attributes[name] for name in kinds} == kinds
    assert {0.5, -0.5, 1.5} <= {*alphabet([asked])["A"]["f"]}


def test_kinds_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be compared"):
        guarantees(parse('A.a = 1 and A.a = "x"'))


def test_queues_that_grow_for_ever_prove_nothing() -> None:
    assert play(Scene(parse("p1: A.a = B.a"), stream("A1"), 1)) is None


def test_every_property_is_answered_in_its_usual_order() -> None:
    assert [*answers("A")] == [*PROPERTIES]


def test_answering_does_not_load_the_compiled_kernel() -> None:
    code = (
        "import sys\nfrom concordant.guarantees.answer import guarantees\n"
        "from concordant.language import parse\nguarantees(parse('A.a = B.a'), scene_count=2)\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""Which slot or predicate is blamed when searches are long."""

from __future__ import annotations

import pytest

from concordant.correlate.costs import to_blame
from concordant.correlate.plan import compile_plan
from concordant.language import parse
from concordant.model.kind import Kind
from concordant.model.topic import Topic

TOPICS = {name: Topic(name, {"x": Kind.INT, "y": Kind.INT}) for name in "ABC"}


@pytest.mark.parametrize(
    ("text", "blamed"),
    [
        ("A.x < B.x and C", "no comparison ties C[1] to another slot"),
        ("A.x != B.x", "'A[1].x != B[1].x' has to be tried on every event queued for B[1]"),
        ("A.x + B.x < 5", "'A[1].x + B[1].x < 5' has to be tried on every event queued for B[1]"),
        ("A.x < B.x and A.y > B.y", "2 comparisons meet at B[1], and an index follows one of them"),
        ("A.x < B.x", "its queues are long"),
        ("A.x < B.x and C match first staged", "its queues are long"),
    ],
)
def test_what_leads_a_search_is_not_blamed(text: str, blamed: str) -> None:
    assert to_blame(compile_plan(parse(text), TOPICS).subscriptions[0]) == blamed

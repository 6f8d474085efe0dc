"""When a stream lets events go."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from concordant.errors import UsageError
from concordant.model.kind import INT_MAX, INT_MIN
from concordant.spark.release import advanced, release_of


def test_the_frontier_is_the_least_of_what_every_source_has_reached() -> None:
    release = release_of("frontier")
    assert release.until({}) == INT_MIN
    assert release.until({"a": 5, "b": 3}) == 3


def test_a_source_that_is_known_beforehand_is_waited_for() -> None:
    release = release_of("frontier", sources=["a", "b"])
    assert release.until({"a": 5}) == INT_MIN
    assert release.until({"a": 5, "b": 4}) == 4


def test_an_idle_source_holds_nobody_back() -> None:
    release = release_of("frontier", idle="10 us")
    assert release.until({"a": 100, "b": 95, "c": 3}) == 95


def test_a_watermark_waits_so_long_and_a_log_not_at_all() -> None:
    assert release_of("watermark 2 us").until({"a": 5, "b": 9}) == 7
    assert release_of("log").until({}) == INT_MAX


def test_a_mark_never_goes_back() -> None:
    assert advanced({"a": 5}, [("a", 3), ("b", 1), ("b", 2)]) == {"a": 5, "b": 2}


@pytest.mark.parametrize(
    ("text", "options", "left"),
    [
        ("log", {}, "abcd"),
        ("frontier", {}, "abcd"),
        ("frontier", {"idle": "10 us"}, "ab"),
        ("frontier", {"idle": "10 us", "sources": ["d"]}, "abd"),
        ("watermark 10 us", {}, "a"),
        ("watermark 10 us", {"sources": ["c"]}, "ac"),
    ],
)
def test_marks_that_nothing_depends_on_any_more_are_not_kept(
    text: str, options: dict[str, Any], left: str
) -> None:
    kept = release_of(text, **options).kept({"a": 100, "b": 95, "c": 50, "d": 3})
    assert "".join(kept) == left
    assert release_of(text, **options).kept({}) == {}


@pytest.mark.parametrize("text", ["frontier", "watermark 7 us"])
@pytest.mark.parametrize("sources", [[], ["1", "9"]], ids=str)
def test_without_marks_that_are_not_kept_everything_is_released_at_the_same_time(
    text: str, sources: list[str]
) -> None:
    release = release_of(text, sources=sources, idle="30 us")
    rng = Random(1)
    whole: dict[str, int] = {}
    kept: dict[str, int] = {}
    for now in range(2_000):
        came = [(str(rng.randrange(10 + now // 20)), now + rng.randrange(-60, 20))]
        whole, kept = advanced(whole, came), advanced(kept, came)
        assert release.until(kept) == release.until(whole)
        kept = release.kept(kept)
    assert len(kept) < 30 < len(whole)


@pytest.mark.parametrize("text", ["", "soon", "watermark", "watermark ten s", "log 5 s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        release_of(text)

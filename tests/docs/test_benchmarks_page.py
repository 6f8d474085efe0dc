"""The page of benchmarks keeps what other runs measured when one section is measured again."""

from __future__ import annotations

from pathlib import Path

from bench import report
from bench.__main__ import BENCHMARKS
from bench.result import FULL, Column, Goal, Section

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def measured(name: str, title: str, value: int) -> report.Measured:
    section = Section(
        name, title, "Why.", (Column("n", "N", "count"),), [{"n": value}], [Goal("a", "b", "c")]
    )
    return report.Measured(report.machine(), FULL, section)


def test_every_section_of_the_page_has_a_benchmark_and_its_goals() -> None:
    kept = report._kept(PAGE)
    assert kept and set(kept) <= set(BENCHMARKS)
    rows = PAGE.partition("## Goals")[2].partition("<!--")[0].strip().splitlines()[2:]
    assert [line for one in kept.values() for line in one.goals] == rows


def test_a_section_that_is_measured_again_replaces_itself_and_nothing_else() -> None:
    names = ["first", "second", "third"]
    page = report.page([measured("third", "Three", 3), measured("first", "One", 1)], names)
    assert page.index("## One") < page.index("## Three")
    again = report.page([measured("second", "Two", 2)], names, page)
    assert report._kept(again).keys() == set(names)
    assert [line for line in again.splitlines() if line.endswith("| a | b | c |")] == [
        "| One | a | b | c |",
        "| Two | a | b | c |",
        "| Three | a | b | c |",
    ]
    renewed = report.page([measured("first", "One", 7)], names, again)
    assert "| 7 |" in renewed and "| 1 |" not in renewed
    assert report.page([measured("first", "One", 7)], names, renewed) == renewed

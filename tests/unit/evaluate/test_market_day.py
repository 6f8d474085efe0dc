"""The main job of `make run`: a folder that appears whole, and replaces only its own kind."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from concordant.evaluate import market_day
from concordant.evaluate.market_day import main, questions
from concordant.model.subscription import Subscription


def test_the_five_questions_have_different_policies_and_bounded_queues() -> None:
    found = questions()
    assert len({one.policy for one in found}) == len(found) == 5
    assert all(one.partition_by and one.within_us for one in found)


def test_a_day_leaves_events_relations_and_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "day"
    assert main(["--out", str(out), "--events", "15000"]) == 0
    shown = capsys.readouterr().out
    assert pq.read_table(out / "events.parquet").num_rows == 15_000
    summary = json.loads((out / "run.json").read_text())
    for one in summary["runs"]:
        name = one["subscription"]
        assert name in shown
        assert one["relations"] > 0
        assert pq.read_table(out / f"{name}.parquet").num_rows == one["relations"]
        assert len((out / f"{name}.jsonl").read_text().splitlines()) == one["relations"]
    assert str(out) in shown
    assert [path.name for path in out.parent.iterdir()] == ["day"]


def test_a_day_without_an_answer_fails_in_a_sentence_and_replaces_the_earlier_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "day"
    assert main(["--out", str(out), "--events", "50"]) == 3
    assert "error: no relation for rising" in capsys.readouterr().err
    (out / "left-over").touch()
    assert main(["--out", str(out), "--events", "60"]) == 3
    assert json.loads((out / "run.json").read_text())["events"] == 60
    assert not (out / "left-over").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["day"]


def test_a_folder_of_somebody_else_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").touch()
    assert main(["--out", str(tmp_path), "--events", "50"]) == 2
    assert "no earlier run of the market day left it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_an_interrupted_day_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "day"
    main(["--out", str(out), "--events", "50"])

    def interrupted() -> tuple[Subscription, ...]:
        raise KeyboardInterrupt

    monkeypatch.setattr(market_day, "questions", interrupted)
    assert main(["--out", str(out), "--events", "60"]) == 130
    assert json.loads((out / "run.json").read_text())["events"] == 50
    assert [path.name for path in tmp_path.iterdir()] == ["day"]


@pytest.mark.parametrize("wrong", [["--events", "0"], ["--seed", "-1"]])
def test_an_impossible_day_is_refused(wrong: list[str], tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path / "day"), *wrong]) == 2
    assert list(tmp_path.iterdir()) == []

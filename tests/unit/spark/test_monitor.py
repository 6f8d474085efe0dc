"""What a stream tells of its steps, and where it goes on telling after a crash."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from concordant.spark.checkpoint import Checkpoint, Commit
from concordant.spark.monitor import PROGRESS, Monitor, rows_read


def heard(batch: int, rows: int, query: str = "", *, ran: bool = True) -> Any:
    """What Spark measured."""
    return SimpleNamespace(
        id=query,
        batchId=batch,
        timestamp="now",
        numInputRows=rows,
        processedRowsPerSecond=1.0,
        durationMs={"latestOffset": 1, **({"addBatch": 1} if ran else {})},
    )


def told(folder: Path) -> list[tuple[int, int | None, int | None]]:
    lines = [msgspec.json.decode(one) for one in (folder / PROGRESS).read_bytes().splitlines()]
    return [(one["step"], one["rows"], one["read"]) for one in lines]


def committed(folder: Path, *commits: Commit) -> None:
    for one in commits:
        Checkpoint(folder / "concordant").commit(one)


def test_steps_are_told_once_each_and_ends_among_them(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, lambda line: None)
    committed(tmp_path, Commit(0, 0), Commit(1, 1), Commit(2, 1, is_end=True))
    monitor.hear([heard(0, 90, "another query of the session"), heard(0, 5), heard(1, 7)])
    monitor.hear([heard(0, 5), heard(1, 7)])
    monitor.hear_ends()
    again = Monitor(tmp_path, lambda line: None)
    again.hear_ends()
    committed(tmp_path, Commit(3, 2))
    again.hear([heard(2, 1)])
    assert told(tmp_path) == [(0, 5, 5), (1, 7, 12), (2, 0, 12), (3, 1, 13)]
    assert rows_read(tmp_path, 3) == 13
    assert rows_read(tmp_path, 4) is None


def test_what_spark_says_while_it_is_idle_is_no_micro_batch(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, lambda line: None)
    committed(tmp_path, Commit(0, 0))
    monitor.hear([heard(0, 0, ran=False)])
    monitor.hear([heard(0, 0, ran=False), heard(0, 5)])
    assert told(tmp_path) == [(0, 5, 5)]


def test_a_step_that_nobody_heard_of_leaves_the_sum_unknown(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, lambda line: None)
    committed(tmp_path, Commit(0, 0), Commit(1, 1))
    monitor.hear([heard(1, 7)])
    assert told(tmp_path) == [(1, 7, None)]
    assert rows_read(tmp_path, 1) is None


def test_rows_that_spark_passed_over_are_not_counted_as_none(tmp_path: Path) -> None:
    committed(tmp_path, Commit(0, 0))
    monitor = Monitor(tmp_path, lambda line: None)
    monitor.hear([heard(0, 0)])
    assert told(tmp_path) == [(0, None, None)]


def test_a_line_that_a_crash_cut_off_goes_and_the_next_one_stands_alone(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, lambda line: None)
    committed(tmp_path, *(Commit(n, n, counts={"long" * 9_000: n}) for n in range(4)))
    monitor.hear([heard(0, 5), heard(1, 7)])
    with (tmp_path / PROGRESS).open("ab") as stream:
        stream.write(b'{"step": 2, "ro')
    Monitor(tmp_path, lambda line: None).hear([heard(2, 1), heard(3, 2)])
    assert [one[0] for one in told(tmp_path)] == [0, 1, 2, 3]


def test_a_checkpoint_that_begins_anew_tells_anew(tmp_path: Path) -> None:
    (tmp_path / PROGRESS).write_bytes(b'{"step": 8, "read": 9}\n')
    monitor = Monitor(tmp_path, lambda line: None)
    committed(tmp_path, Commit(0, 0))
    monitor.hear([heard(0, 5)])
    assert told(tmp_path) == [(0, 5, 5)]

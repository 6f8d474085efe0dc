"""A folder of results belongs to one run: others are refused, and nothing strange is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.spark.outputs import (
    OWNER,
    claim,
    leave_only,
    leave_until,
    name_of,
    owner_of_checkpoint,
    owner_of_tables,
)

MINE, YOURS = owner_of_tables("mine", "/pipes"), owner_of_tables("yours", "/pipes")


def names(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def test_a_folder_is_taken_by_the_first_and_kept_for_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    claim({out: False}, MINE)
    (out / "batch=0").mkdir()
    claim({out: False}, MINE)
    assert names(out) == {OWNER, "batch=0"}
    with pytest.raises(UsageError, match="holds results of pipeline 'mine', and this is") as told:
        claim({out: False}, YOURS)
    assert "overwrite = true" in told.value.hint


def test_what_another_left_goes_only_when_that_is_said_and_only_once(tmp_path: Path) -> None:
    claim({tmp_path: False}, MINE)
    (tmp_path / "batch=0").mkdir()
    (tmp_path / "batch=0" / "part.parquet").write_text("x")
    (tmp_path / "00000000000000000001.jsonl").write_text("x")
    claim({tmp_path: True}, YOURS)
    assert names(tmp_path) == {OWNER}
    (tmp_path / "batch=0").mkdir()
    claim({tmp_path: True}, YOURS)
    assert names(tmp_path) == {OWNER, "batch=0"}


def test_what_a_crash_left_unfinished_is_in_nobody_s_way(tmp_path: Path) -> None:
    for name in (f".0123456789ab.{OWNER}", ".0123456789ab.00000000000000000001.jsonl"):
        (tmp_path / name).write_text("{")
    claim({tmp_path: False}, MINE)
    assert names(tmp_path) == {OWNER}


@pytest.mark.parametrize("overwrite", [False, True])
def test_results_without_a_name_are_somebody_s(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "batch=0").mkdir()
    with pytest.raises(UsageError, match="not whose they are"):
        claim({tmp_path: overwrite}, MINE)
    assert names(tmp_path) == {"batch=0"}


def test_a_file_that_only_looks_like_ours_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "20260301.jsonl").write_text("x")
    with pytest.raises(UsageError, match="no result of a pipeline"):
        claim({tmp_path: True}, MINE)
    leave_only((), tmp_path)
    assert names(tmp_path) == {"20260301.jsonl"}


def test_what_is_no_result_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="no result of a pipeline") as told:
        claim({tmp_path: True}, MINE)
    assert "thesis.tex" in told.value.message
    assert names(tmp_path) == {"thesis.tex"}
    leave_only((), tmp_path)
    assert names(tmp_path) == {"thesis.tex"}


def test_a_checkpoint_that_begins_anew_is_another(tmp_path: Path) -> None:
    first = owner_of_checkpoint("p", tmp_path)
    assert owner_of_checkpoint("renamed", tmp_path).is_same(first)
    (tmp_path / OWNER).unlink()
    assert not owner_of_checkpoint("p", tmp_path).is_same(first)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot be made") as told:
        claim({tmp_path / "file" / "out": False}, MINE)
    assert told.value.place == str(tmp_path / "file" / "out")


def test_where_one_folder_is_refused_the_others_keep_what_they_hold(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    claim({one: False, two: False}, YOURS)
    for folder in (one, two):
        (folder / "batch=0").mkdir()
    with pytest.raises(UsageError, match="holds results of pipeline 'yours'"):
        claim({one: True, two: False}, MINE)
    assert names(one) == names(two) == {OWNER, "batch=0"}
    claim({one: False, two: False}, YOURS)


def test_results_of_steps_that_have_not_happened_go(tmp_path: Path) -> None:
    claim({tmp_path: False}, MINE)
    for name in ("batch=0", "batch=5", "batch=10"):
        (tmp_path / name).mkdir()
    for number in (4, 6, 20):
        (tmp_path / name_of("jsonl", number)).write_text("x")
    (tmp_path / ".0123456789ab.00000000000000000002.jsonl").write_text("x")
    leave_until(5, tmp_path)
    assert names(tmp_path) == {OWNER, "batch=0", "batch=5", name_of("jsonl", 4)}
    leave_until(-1, tmp_path)
    assert names(tmp_path) == {OWNER}

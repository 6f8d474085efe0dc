"""What a checkpoint takes back, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.language import parse
from concordant.model.kind import Kind
from concordant.spark.checkpoint import (
    COMMITS_KEPT,
    Checkpoint,
    Commit,
    SavedJob,
    Setting,
    Told,
)
from concordant.spark.state import BucketState, seal, unseal

FRONTIER = Setting("frontier", 4, "files")


def opened(
    folder: Path,
    text: str,
    setting: Setting = FRONTIER,
    *,
    kinds: dict[str, dict[str, Kind]] | None = None,
    bucket_count: int | None = None,
) -> SavedJob:
    """A job begun or gone on with, as it is kept at the first step."""
    checkpoint = Checkpoint(folder)
    job = checkpoint.open(parse(text), setting, kinds or {}, bucket_count=bucket_count)
    checkpoint.keep(job)
    return job


def test_added_subscriptions_are_a_generation_and_removed_ones_are_muted(tmp_path: Path) -> None:
    opened(tmp_path, "one: A\ntwo: B")
    job = opened(tmp_path, "one: A\nthree: C")
    assert job.generations == [["one", "two"], ["three"]]
    assert job.muted == ["two"]


def test_a_changed_subscription_is_refused_by_name(tmp_path: Path) -> None:
    opened(tmp_path, "one: A")
    with pytest.raises(UsageError, match="'one' is not what it was"):
        opened(tmp_path, "one: A then B")


def test_a_removed_one_does_not_come_back_under_its_name(tmp_path: Path) -> None:
    opened(tmp_path, "one: A\ntwo: B")
    opened(tmp_path, "one: A")
    with pytest.raises(UsageError, match="removed"):
        opened(tmp_path, "one: A\ntwo: B")


def test_a_derived_topic_does_not_lead_into_another_generation(tmp_path: Path) -> None:
    opened(tmp_path, "one: A emit E(x = A.x)")
    with pytest.raises(UsageError, match="derived topic 'E'"):
        opened(tmp_path, "one: A emit E(x = A.x)\ntwo: E then A")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (Setting("log", 4, "files"), "release 'frontier', and now it is 'log'"),
        (Setting("frontier", 4, "store"), "adapter 'files', and now it is 'store'"),
        (Setting("frontier", 5, "files"), "buckets 4, and now it is 5"),
        (Setting("frontier", 4, "files", 1_000_000), "unique off, and now it is '1 s'"),
    ],
)
def test_a_setting_that_would_make_the_state_wrong_is_refused_with_both_values(
    tmp_path: Path, setting: Setting, message: str
) -> None:
    opened(tmp_path, "one: A")
    with pytest.raises(UsageError, match=message):
        opened(tmp_path, "one: A", setting, bucket_count=setting.bucket_count)


def test_who_says_no_number_of_buckets_goes_on_with_as_many_as_there_are(tmp_path: Path) -> None:
    opened(tmp_path, "one: A")
    job = opened(tmp_path, "one: A", Setting("frontier", 64, "files"))
    assert job.setting.bucket_count == 4


def test_attributes_may_come_new_and_may_not_change_their_kind(tmp_path: Path) -> None:
    opened(tmp_path, "one: A", kinds={"A": {"x": Kind.INT}})
    job = opened(tmp_path, "one: A", kinds={"A": {"y": Kind.TIME}, "B": {"x": Kind.FLOAT}})
    assert job.kinds == {"A": {"x": Kind.INT, "y": Kind.TIME}, "B": {"x": Kind.FLOAT}}
    with pytest.raises(UsageError, match=r"'x' of topic 'A' was int .* now it is float"):
        opened(tmp_path, "one: A", kinds={"A": {"x": Kind.FLOAT}})


def test_a_start_that_comes_to_nothing_leaves_the_checkpoint_as_it_was(tmp_path: Path) -> None:
    opened(tmp_path, "one: A")
    before = (tmp_path / "job.json").read_bytes()
    Checkpoint(tmp_path).open(parse("one: A\ntwo: B"), FRONTIER, {})
    assert (tmp_path / "job.json").read_bytes() == before
    assert opened(tmp_path, "one: A").muted == []


def test_an_older_format_is_refused_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"version": 3, "release": "log"}')
    with pytest.raises(UsageError, match="of format 3"):
        opened(tmp_path, "one: A")


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(UsageError, match="no checkpoint of ours"):
        opened(tmp_path, "one: A")


def written(checkpoint: Checkpoint, commit: Commit) -> None:
    """A step with states of all buckets."""
    for bucket in range(FRONTIER.bucket_count):
        checkpoint.write_state(bucket, commit.step, commit.run, b"state")
    checkpoint.commit(commit)


@pytest.mark.parametrize(
    ("ours", "begun", "done", "message"),
    [
        ([0, 1], [], [], "Spark's part of it is missing"),
        ([0, 1, 2], [0, 1], [0], "Spark's part of it is missing or older"),
        ([], [0], [0], "our part of it is missing"),
        ([0], [0, 1], [0, 1], "our part of it is missing or older"),
        ([0, 1], [0, 1], [0], ""),
        ([0], [0, 1], [0], ""),
        ([], [], [], ""),
    ],
)
def test_two_halves_that_do_not_belong_together_are_refused(
    tmp_path: Path, ours: list[int], begun: list[int], done: list[int], message: str
) -> None:
    folder = tmp_path / "concordant"
    opened(folder, "one: A")
    for number in ours:
        written(Checkpoint(folder), Commit(number, number))
    for name, numbers in (("offsets", begun), ("commits", done)):
        (tmp_path / "spark" / name).mkdir(parents=True)
        for number in numbers:
            (tmp_path / "spark" / name / str(number)).touch()
    if message:
        with pytest.raises(UsageError, match=message):
            opened(folder, "one: A")
    else:
        opened(folder, "one: A")


def test_a_step_that_is_run_again_reads_the_state_it_read_before(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.read_state(3, None) is None
    for step, state in enumerate([b"0", b"1", b"2"]):
        checkpoint.write_state(3, step, "run", state)
    assert checkpoint.read_state(3, Commit(1, run="run")) == b"1"
    checkpoint.write_state(3, 2, "run", b"2")
    assert checkpoint.read_state(3, Commit(1, run="run")) == b"1"
    assert checkpoint.read_state(3, Commit(2, run="run")) == b"2"


def test_a_missing_state_is_not_taken_for_an_older_one(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write_state(3, 6, "run", b"6")
    with pytest.raises(UsageError, match="bucket 3 after step 7 is missing"):
        checkpoint.read_state(3, Commit(7, run="run"))


def test_a_task_of_an_earlier_run_that_is_still_at_work_does_no_harm(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for step in (5, 6):
        checkpoint.write_state(0, step, "new", str(step).encode(), Told({"events": step}))
    checkpoint.write_state(0, 6, "old", b"foreign", Told({"events": 99}))
    checkpoint.write_state(0, 4, "old", b"foreign")
    assert checkpoint.read_state(0, Commit(5, run="new")) == b"5"
    assert checkpoint.read_state(0, Commit(6, run="new")) == b"6"
    assert checkpoint.told(6, "new", 1) == Told({"events": 6})
    checkpoint.write_state(0, 8, "new", b"8")
    assert [one.name for one in (tmp_path / "state" / "0").iterdir()] == ["8-new.state"]


def test_what_a_killed_task_left_half_written_goes_with_the_states_of_its_step(
    tmp_path: Path,
) -> None:
    checkpoint = Checkpoint(tmp_path)
    folder = tmp_path / "state" / "0"
    folder.mkdir(parents=True)
    for step in (4, 5):
        (folder / f".0123456789ab.{step}-old.state").touch()
    checkpoint.write_state(0, 6, "new", b"6")
    left = sorted(one.name for one in folder.iterdir())
    assert left == [".0123456789ab.5-old.state", "6-new.state"]


def test_a_step_is_counted_when_every_bucket_has_been_there(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    marks = {"a": 5}
    checkpoint.write_state(0, 7, "run", b"state\n0", Told({"events": 2, "held": -1}, marks))
    checkpoint.write_state(1, 7, "other", b"", Told({"events": 8}, marks))
    assert checkpoint.told(7, "run", 2) is None
    checkpoint.write_state(1, 7, "run", b"", Told({"events": 3}, marks))
    assert checkpoint.told(7, "run", 2) == Told({"events": 5, "held": -1}, marks)
    assert checkpoint.read_state(0, Commit(7, run="run")) == b"state\n0"


def test_the_last_commit_is_the_newest_and_old_ones_go(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.last() is None
    for step in range(COMMITS_KEPT + 3):
        checkpoint.commit(Commit(step, step, marks={"a": step}))
    newest = COMMITS_KEPT + 2
    assert checkpoint.last() == Commit(newest, newest, marks={"a": newest})
    assert len(list((tmp_path / "commits").iterdir())) == COMMITS_KEPT
    assert checkpoint.committed(2) is None


def test_a_micro_batch_is_found_behind_the_ends_before_it(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    end = Commit(2, 1, is_end=True)
    for commit in (Commit(0, 0), Commit(1, 1), end, Commit(3, 2)):
        checkpoint.commit(commit)
    assert checkpoint.of_batch(1) == Commit(1, 1)
    assert checkpoint.of_batch(2) == Commit(3, 2)
    assert checkpoint.of_batch(3) is None
    assert checkpoint.ends() == [end]


def test_an_end_that_was_begun_is_known_until_it_has_happened(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.begun_end() is None
    checkpoint.commit(Commit(0, 0))
    checkpoint.begin_end(1)
    assert checkpoint.begun_end() == 1
    checkpoint.commit(Commit(1, 0, is_end=True))
    assert checkpoint.begun_end() is None
    checkpoint.begin_end(9)
    with pytest.raises(UsageError, match="older than its last end"):
        checkpoint.begun_end()


def test_what_a_killed_process_was_writing_is_passed_over(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.commit(Commit(1))
    checkpoint.write_state(3, 1, "run", b"1")
    for folder, name in (("commits", ".a1b2.2.json"), ("state/3", ".a1b2.2-run.state")):
        (tmp_path / folder / name).write_bytes(b"half")
    assert checkpoint.last() == Commit(1)
    assert checkpoint.read_state(3, Commit(1, run="run")) == b"1"


def test_a_removed_state_is_refused_before_anything_runs(tmp_path: Path) -> None:
    folder = tmp_path / "concordant"
    opened(folder, "one: A")
    written(Checkpoint(folder), Commit(0, 0, run="run"))
    for name in ("offsets", "commits"):
        (tmp_path / "spark" / name).mkdir(parents=True)
        (tmp_path / "spark" / name / "0").touch()
    opened(folder, "one: A")
    (folder / "state" / "2" / "0-run.state").unlink()
    with pytest.raises(UsageError, match="bucket 2 after step 0 is missing"):
        opened(folder, "one: A")


def test_a_half_of_another_checkpoint_is_refused_though_its_numbers_fit(tmp_path: Path) -> None:
    for name, query in (("mine", "1"), ("other", "2")):
        folder, spark = tmp_path / name / "concordant", tmp_path / name / "spark"
        spark.mkdir(parents=True)
        (spark / "metadata").write_text(f'{{"id": "{query}"}}')
        opened(folder, "one: A")
        written(Checkpoint(folder), Commit(0, 0, run="run"))
        for log in ("offsets", "commits"):
            (spark / log).mkdir()
            (spark / log / "0").touch()
        opened(folder, "one: A")
    mine, other = tmp_path / "mine", tmp_path / "other"
    shutil.copy(other / "concordant" / "job.json", mine / "concordant" / "job.json")
    with pytest.raises(UsageError, match=r"job\.json belongs to another one"):
        opened(mine / "concordant", "one: A")
    shutil.copy(mine / "spark" / "metadata", other / "spark" / "metadata")
    with pytest.raises(UsageError, match="Spark's part of it belongs to another one"):
        opened(other / "concordant", "one: A")


def test_a_state_of_another_kind_or_a_damaged_one_is_refused() -> None:
    state = seal(BucketState(held=b"rows"))
    assert unseal(state).held == b"rows"
    for wrong, message in (
        (b"something else", "no saved state"),
        (state[:-1] + b"x", "damaged"),
        (state[:-9], "damaged"),
        (b"", "no saved state"),
        (state.replace(b"bucket\x04", b"bucket\x03"), "saved in version 3, and this is 4"),
    ):
        with pytest.raises(UsageError, match=message):
            unseal(wrong)

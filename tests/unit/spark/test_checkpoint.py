"""What a checkpoint takes back, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.language import parse
from concordant.spark.checkpoint import Checkpoint, Commit, SavedJob, Told
from concordant.spark.state import BucketState, seal, unseal


def opened(folder: Path, text: str, release: str = "frontier") -> SavedJob:
    return Checkpoint(folder).open(parse(text), release=release, bucket_count=4, adapter="files")


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


def test_another_release_is_refused(tmp_path: Path) -> None:
    opened(tmp_path, "one: A")
    with pytest.raises(UsageError, match="begun with release 'frontier'"):
        opened(tmp_path, "one: A", release="log")


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(UsageError, match="no checkpoint of ours"):
        opened(tmp_path, "one: A")


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
        Checkpoint(folder).commit(Commit(number))
    for name, numbers in (("offsets", begun), ("commits", done)):
        (tmp_path / "spark" / name).mkdir(parents=True)
        for number in numbers:
            (tmp_path / "spark" / name / str(number)).touch()
    if message:
        with pytest.raises(UsageError, match=message):
            opened(folder, "one: A")
    else:
        opened(folder, "one: A")


def test_a_micro_batch_that_is_run_again_reads_the_state_it_read_before(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.read_state(3, before=0) is None
    for batch, state in enumerate([b"0", b"1", b"2"]):
        checkpoint.write_state(3, batch, state)
    assert checkpoint.read_state(3, before=2) == b"1"
    checkpoint.write_state(3, 2, b"2")
    assert checkpoint.read_state(3, before=2) == b"1"
    assert checkpoint.read_state(3, before=9) == b"2"


def test_a_micro_batch_is_counted_when_every_bucket_has_been_there(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    marks = {"a": 5}
    checkpoint.write_state(0, 7, b"state\n0", Told({"events": 2, "held": -1}, marks))
    assert checkpoint.told(7, 2) is None
    checkpoint.write_state(1, 7, b"", Told({"events": 3}, marks))
    assert checkpoint.told(7, 2) == Told({"events": 5, "held": -1}, marks)
    assert checkpoint.read_state(0, before=8) == b"state\n0"


def test_the_last_commit_is_the_newest_before_a_given_one(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.last() is None
    for batch in (8, 9, 10):
        checkpoint.commit(Commit(batch, {"a": batch}))
    assert checkpoint.last() == Commit(10, {"a": 10})
    assert checkpoint.last(before=10) == Commit(9, {"a": 9})


def test_what_a_killed_process_was_writing_is_passed_over(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.commit(Commit(1))
    checkpoint.write_state(3, 1, b"1")
    for folder, name in (("commits", ".a1b2.2.json"), ("state/3", ".a1b2.2.state")):
        (tmp_path / folder / name).write_bytes(b"half")
    assert checkpoint.last() == Commit(1)
    assert checkpoint.count() == 1
    assert checkpoint.read_state(3, before=9) == b"1"


def test_a_state_of_another_kind_or_a_damaged_one_is_refused() -> None:
    state = seal(BucketState(held=b"rows"))
    assert unseal(state).held == b"rows"
    for wrong, message in (
        (b"something else", "no saved state"),
        (state[:-1] + b"x", "damaged"),
        (state.replace(b"bucket\x02", b"bucket\x01"), "saved in version 1, and this is 2"),
    ):
        with pytest.raises(UsageError, match=message):
            unseal(wrong)

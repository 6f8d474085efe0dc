"""The durable log: what was promised is there, a torn end is dropped, damage is refused."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concordant.errors import UsageError
from concordant.net import log as module
from concordant.net.commit import GroupCommit
from concordant.net.log import RECORD_BYTES_MAX, Log


def written(folder: Path, *groups: list[bytes]) -> Path:
    """A closed log with these groups of records; its file."""
    log = Log(folder)
    for group in groups:
        log.append(group)
    log.close()
    (path,) = folder.glob("*.log")
    return path


def read(folder: Path) -> list[bytes]:
    log = Log(folder)
    try:
        return list(log.records())
    finally:
        log.close()


def test_what_was_appended_is_there_when_the_log_is_opened_again(tmp_path: Path) -> None:
    written(tmp_path, [b"a", b""], [b"b" * 70_000])
    log = Log(tmp_path)
    assert (log.count, log.torn_byte_count) == (3, 0)
    log.append([b"c"])
    assert list(log.records()) == [b"a", b"", b"b" * 70_000, b"c"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.binary(max_size=40), max_size=5), max_size=8))
def test_any_groups_come_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    written(folder, *groups)
    assert read(folder) == [record for group in groups for record in group]


def test_a_log_cut_off_anywhere_in_its_last_frame_loses_that_frame_only(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", [b"one", b"two"]).read_bytes()
    data = written_with_salt(tmp_path / "longer", whole, [b"three", b"four"])
    for size in range(len(whole), len(data)):
        folder = tmp_path / f"cut{size}"
        place(folder, data[:size])
        log = Log(folder)
        assert log.torn_byte_count == size - len(whole)
        log.append([b"five"])  # it goes on where the good part ended
        log.close()
        assert read(folder) == [b"one", b"two", b"five"]


def written_with_salt(folder: Path, start: bytes, group: list[bytes]) -> bytes:
    """The bytes of a log that was begun as `start` and got one more group."""
    place(folder, start)
    return written(folder, group).read_bytes()


def place(folder: Path, data: bytes) -> None:
    folder.mkdir()
    (folder / "000000000000.log").write_bytes(data)


def test_zeros_at_the_end_are_a_torn_write(tmp_path: Path) -> None:
    path = written(tmp_path, [b"kept"])
    with path.open("ab") as file:
        file.write(bytes(4096))
    assert read(tmp_path) == [b"kept"]


def test_a_changed_byte_is_never_taken_for_a_record(tmp_path: Path) -> None:
    """Whatever byte is damaged: refused if anything good is behind it, dropped if it is the end."""
    data = written(tmp_path / "whole", [b"first"], [b"second"], [b"third"]).read_bytes()
    refused = dropped = 0
    for at in range(len(data)):
        folder = tmp_path / f"damaged{at}"
        place(folder, data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :])
        try:
            found = read(folder)
        except UsageError as error:
            assert "damaged" in str(error)
            refused += 1
            assert (folder / "000000000000.log").read_bytes() != data[:at]  # nothing was cut off
        else:
            assert found == [b"first", b"second"]
            dropped += 1
    frame = (len(data) - 24) // 3
    assert dropped in range(frame - 2, frame + 4)
    assert refused == len(data) - dropped


def test_a_copy_of_a_frame_inside_a_record_is_no_frame(tmp_path: Path) -> None:
    frame = written(tmp_path / "other", [b"x"]).read_bytes()[24:]
    path = written(tmp_path / "mine", [b"kept"], [b"lost " + frame + b" end"])
    path.write_bytes(path.read_bytes()[:-1])
    assert read(tmp_path / "mine") == [b"kept"]


def test_a_snapshot_takes_the_place_of_everything_before(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append([b"old"] * 5)
    log.replace([b"state"])
    log.append([b"new"])
    log.close()
    assert read(tmp_path) == [b"state", b"new"]
    assert len(list(tmp_path.glob("*.log"))) == 1


def test_a_snapshot_whose_writer_died_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    written(tmp_path, [b"old"])
    (tmp_path / "000000000001.new").write_bytes(b"half")
    assert read(tmp_path) == [b"old"]
    assert not list(tmp_path.glob("*.new"))
    both = tmp_path / "both"
    log = Log(both)
    log.append([b"old"])
    before = (both / "000000000000.log").read_bytes()
    log.replace([b"state"])
    log.close()
    (both / "000000000000.log").write_bytes(before)  # died between the name and the removal
    assert read(both) == [b"state"]


def test_one_process_has_a_log_at_a_time(tmp_path: Path) -> None:
    first = Log(tmp_path)
    with pytest.raises(UsageError, match="another process has this log open"):
        Log(tmp_path)
    first.close()
    Log(tmp_path).close()


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    place(tmp_path / "foreign", b"hello, I am a text file of some length")
    with pytest.raises(UsageError, match="no log, or its head is damaged"):
        Log(tmp_path / "foreign")


def test_a_record_that_is_too_long_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with pytest.raises(UsageError, match="too long"):
        log.append([b"x", bytes(RECORD_BYTES_MAX + 1)])
    log.append([b"y"])
    assert list(log.records()) == [b"y"]


def test_after_a_failed_sync_the_log_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    log.append([b"kept"])

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "fdatasync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        log.append([b"lost?"])
    monkeypatch.undo()
    with pytest.raises(UsageError, match="cannot be written"):
        log.append([b"more"])
    log.close()
    assert read(tmp_path)[0] == b"kept"


# --- group commit ---------------------------------------------------------------------------------


def test_callers_share_a_sync_and_each_is_durable_when_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = 0
    sync = os.fdatasync

    def counted(file: int) -> None:
        nonlocal syncs
        syncs += 1
        sync(file)

    monkeypatch.setattr(module.os, "fdatasync", counted)

    async def run() -> None:
        log = Log(tmp_path)
        commit = GroupCommit(log)
        await asyncio.gather(*(commit.append([b"%d" % i]) for i in range(1_000)))
        assert log.count == 1_000
        log.close()

    asyncio.run(run())
    assert read(tmp_path) == [b"%d" % i for i in range(1_000)]
    assert 1 <= syncs <= 3


def test_a_snapshot_among_waiting_callers_replaces_what_came_before_it_only(tmp_path: Path) -> None:
    async def run() -> None:
        log = Log(tmp_path)
        commit = GroupCommit(log)
        await asyncio.gather(
            commit.append([b"before"]), commit.replace([b"state"]), commit.append([b"after"])
        )
        await commit.settle()
        log.close()

    asyncio.run(run())
    assert read(tmp_path) == [b"state", b"after"]


def test_one_who_gives_up_does_not_end_the_wait_of_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        log = Log(tmp_path)
        commit = GroupCommit(log)
        waits = [asyncio.create_task(commit.append([b"%d" % i])) for i in range(3)]
        await asyncio.sleep(0)
        waits[1].cancel()
        found = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(one) for one in found] == [type(None), asyncio.CancelledError, type(None)]
        log.close()

    asyncio.run(main())
    assert read(tmp_path) == [b"0", b"1", b"2"]


def test_an_event_loop_that_ends_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        commit = GroupCommit(Log(tmp_path))
        for _ in range(5):
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, commit.append([b"x"]))
        await asyncio.sleep(0)

    asyncio.run(main())  # would not end


def test_a_failed_write_is_told_to_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[object]:
        log = Log(tmp_path)
        commit = GroupCommit(log)

        def fail(file: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(module.os, "fdatasync", fail)
        tasks = [commit.append([b"a"]), commit.append([b"b"])]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        log.close()
        return list(found)

    assert [type(one) for one in asyncio.run(run())] == [UsageError, UsageError]


def _write_for_ever(folder: str, told: str) -> None:
    """Append numbers, and tell each after it is durable."""
    log = Log(folder)
    out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    number = log.count
    while True:
        log.append([b"%d" % number])
        os.write(out, b"%d\n" % number)
        number += 1
        if number % 50 == 0:
            log.replace([b"%d" % i for i in range(number)])


def test_nothing_that_was_told_durable_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    folder, told = tmp_path / "log", tmp_path / "told"
    context = multiprocessing.get_context("spawn")
    for _ in range(4):
        before = told.stat().st_size if told.exists() else 0
        process = context.Process(target=_write_for_ever, args=(str(folder), str(told)))
        process.start()
        while not told.exists() or told.stat().st_size < before + 400:
            assert process.is_alive()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        promised = [line for line in told.read_bytes().split(b"\n") if line]
        kept = read(folder)
        assert kept[: len(promised)] == promised
        assert kept == [b"%d" % i for i in range(len(kept))]
        # What was written and not told counts as told from now on.
        told.write_bytes(b"".join(b"%d\n" % i for i in range(len(kept))))

"""A durable log: what was appended is there after a crash, or the log says so and stops.

It knows bytes, not what they mean. A group of records is one frame with a checksum (CRC32C),
written and synced together, so that many who wait share one wait for the disk. On opening, a frame
that a crash cut off at the end of the file is dropped: nobody was told that it is durable. A bad
frame with a good one behind it is damage and is refused: to go on would lose what was promised.

A snapshot takes the place of everything before it. It is a new file, the next generation, complete
and synced before it gets its name; only then the old one goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from crc32c import crc32c

from concordant.errors import UsageError

RECORD_BYTES_MAX = 1 << 26
"""Longer records are refused; a length that claims more is damage, and is never allocated."""

_MAGIC = b"concord1"
_FILE = struct.Struct("<8sQII")
"""Magic, generation, salt, checksum of them."""
_MARK = b"\xc0\x0d\xa7\x1e"
_FRAME = struct.Struct("<4sIIQI")
"""Mark, bytes of the body, checksum, number of the first record, how many records.

The checksum begins with the file's salt, so that a copy of a frame inside a record is no frame.
"""
_CHECKED = struct.Struct("<IQI")
_LENGTH = struct.Struct("<I")
_NAME = "{:012d}.log"


Data = mmap.mmap
Frame = tuple[int, int, int]
"""How many records, where its body begins, and its end."""


class Log:
    """An open log; one process has it at a time. Not for several threads at once."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._broken = ""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._refusal(f"the log cannot be opened: {error.strerror}") from None
        try:
            self._hold()
            self._recover()
        except BaseException:
            os.close(self._lock)
            raise

    def _hold(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._refusal(
                "another process has this log open", hint="stop it first, or use another folder"
            ) from None

    def _refusal(self, message: str, *, hint: str = "", path: Path | None = None) -> UsageError:
        return UsageError(message, hint=hint, place=str(path or self._folder))

    # --- opening ------------------------------------------------------------------------------

    def _recover(self) -> None:
        for left in self._folder.glob("*.new"):  # a snapshot that never got its name
            left.unlink()
        found = sorted(self._folder.glob("*.log"))
        for old in found[:-1]:  # a snapshot took their place, and its writer died before this
            old.unlink()
        if not found:
            self._generation = 0
            self._create(())
            self.torn_byte_count = 0
            return
        path = found[-1]
        self._read_head(path)
        end = _FILE.size
        self._count = 0
        with _mapped(path) as data:
            for count, _, stop in self._frames(path, data):
                self._count += count
                end = stop
            self.torn_byte_count = len(data) - end
        self._file = os.open(path, os.O_RDWR)
        if self.torn_byte_count:
            os.ftruncate(self._file, end)
            os.fsync(self._file)
        os.lseek(self._file, 0, os.SEEK_END)

    def _read_head(self, path: Path) -> None:
        with path.open("rb") as file:
            head = file.read(_FILE.size)
        if len(head) == _FILE.size:
            magic, self._generation, self._salt, checksum = _FILE.unpack(head)
            if magic == _MAGIC and checksum == crc32c(head[:-4]):
                return
        raise self._refusal(
            "the file is no log, or its head is damaged",
            hint="restore the folder from a copy, or move it away to begin with an empty log",
            path=path,
        )

    def _frames(self, path: Path, data: Data) -> Iterator[Frame]:
        """The good frames; what a crash cut off at the end is passed over, damage is refused."""
        place = _FILE.size
        count = 0
        while place < len(data):
            found = _frame_at(data, place, self._salt, count)
            if found is None:
                self._refuse_damage(path, data, place, count)
                return
            yield found
            count += found[0]
            place = found[2]

    def _refuse_damage(self, path: Path, data: Data, place: int, count: int) -> None:
        """Is there a good frame behind a bad one? Then the bad one is not the end of the log."""
        behind = data.find(_MARK, place + 1)
        while behind >= 0:
            if _frame_at(data, behind, self._salt, None) is not None:
                raise self._refusal(
                    f"the log is damaged at byte {place:,}, after {count:,} records, "
                    f"and goes on at byte {behind:,}",
                    hint="restore the folder from a copy or a replica: nothing was changed in it",
                    path=path,
                )
            behind = data.find(_MARK, behind + 1)

    # --- reading ------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many records are in the log."""
        return self._count

    def records(self) -> Iterator[bytes]:
        """All records, oldest first."""
        path = self._path(self._generation)
        with _mapped(path) as data:
            for _, place, end in self._frames(path, data):
                while place < end:
                    (length,) = _LENGTH.unpack_from(data, place)
                    place += _LENGTH.size
                    yield data[place : place + length]
                    place += length

    # --- writing ------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes]) -> None:
        """Append records; they are durable on return. After an error the log takes no more."""
        self._usable()
        if not records:
            return
        try:
            _write(self._file, _framed(records, self._salt, self._count))
            os.fdatasync(self._file)
        except OSError as error:
            self._fail(error)
        self._count += len(records)

    def replace(self, records: Sequence[bytes]) -> None:
        """Let records take the place of all before: all or nothing, and durable on return."""
        self._usable()
        old = self._path(self._generation)
        try:
            os.close(self._file)
            self._generation += 1
            self._create(records)
            old.unlink()
        except OSError as error:
            self._fail(error)

    def _create(self, records: Sequence[bytes]) -> None:
        path = self._path(self._generation)
        new = path.with_suffix(".new")
        self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._salt = int.from_bytes(os.urandom(4), "little")
        head = _FILE.pack(_MAGIC, self._generation, self._salt, 0)[:-4]
        _write(self._file, head + _LENGTH.pack(crc32c(head)))
        if records:
            _write(self._file, _framed(records, self._salt, 0))
        os.fsync(self._file)
        new.rename(path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._count = len(records)

    def _path(self, generation: int) -> Path:
        return self._folder / _NAME.format(generation)

    def _usable(self) -> None:
        if self._broken:
            raise self._refusal(self._broken, hint="open the log anew: it knows what is durable")

    def _fail(self, error: OSError) -> None:
        # What a failed sync left behind is unknown, and a second sync would not tell.
        self._broken = f"the log cannot be written: {error.strerror}"
        raise self._refusal(self._broken, hint="make room or repair the disk, then start again")

    def close(self) -> None:
        """Let another process have it."""
        self._broken = self._broken or "the log is closed"
        os.close(self._file)
        os.close(self._lock)


def _framed(records: Sequence[bytes], salt: int, number: int) -> bytes:
    """Records as one frame."""
    parts: list[bytes] = []
    for record in records:
        if len(record) > RECORD_BYTES_MAX:
            raise UsageError(
                f"a record of {len(record):,} bytes is too long for the log",
                hint=f"write at most {RECORD_BYTES_MAX:,} bytes at once",
            )
        parts.append(_LENGTH.pack(len(record)))
        parts.append(record)
    body = b"".join(parts)
    rest = _CHECKED.pack(len(body), number, len(records))
    checksum = crc32c(body, crc32c(rest, salt))
    return _FRAME.pack(_MARK, len(body), checksum, number, len(records)) + body


def _frame_at(data: Data, place: int, salt: int, number: int | None) -> Frame | None:
    """The good frame at a place, or None; `number` is that of its first record, or None for any."""
    body = place + _FRAME.size
    if body > len(data):
        return None
    mark, length, checksum, first, count = _FRAME.unpack_from(data, place)
    end = body + length
    if mark != _MARK or end > len(data) or (number is not None and first != number):
        return None
    rest = _CHECKED.pack(length, first, count)
    if crc32c(data[body:end], crc32c(rest, salt)) != checksum:
        return None
    return count, body, end


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[Data]:
    """A file's bytes, read as they are looked at."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def _write(file: int, data: bytes) -> None:
    """All of it: the system may take less at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]

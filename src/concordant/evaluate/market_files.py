"""A market day as a folder of Parquet files: what the generator source of a pipeline reads.

The folder appears whole or not at all and says what it was made of, so a second run finds it and a
run with other settings makes it anew. Any other folder is left alone.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from concordant.errors import UsageError
from concordant.evaluate.market import market_day
from concordant.files import to_arrow

FILE_COUNT = 8
"""Files of a day: the micro-batches of a stream that takes one at a time."""

_STAMP = "_market.json"  # Spark leaves names with an underscore alone


class _Made(msgspec.Struct, frozen=True):
    events: int
    seed: int


def market_folder(folder: Path, *, events: int, seed: int) -> str:
    """The folder of a market day, made if it is not there."""
    wanted = _Made(events, seed)
    if folder.exists():
        try:
            made = msgspec.json.decode((folder / _STAMP).read_bytes(), type=_Made)
        except (OSError, msgspec.DecodeError):
            raise UsageError(
                "it exists, and no generator made it",
                hint="choose another folder, or remove it first",
                place=str(folder),
            ) from None
        if made == wanted:
            return str(folder)
        shutil.rmtree(folder)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")
    temporary.mkdir(parents=True)
    try:
        day = to_arrow(market_day(events, seed=seed))
        size = -(-events // FILE_COUNT)
        for number in range(FILE_COUNT):
            part = day.slice(number * size, size)
            if part.num_rows:
                pq.write_table(part, temporary / f"part-{number}.parquet")
        (temporary / _STAMP).write_bytes(msgspec.json.encode(wanted))
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return str(folder)

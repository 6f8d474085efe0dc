"""Which extension is which format, for reading and writing alike. Opens nothing."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from concordant.errors import UsageError


class Format(StrEnum):
    """How events are laid out in a file."""

    JSON_LINES = "JSON Lines"
    CSV = "CSV"
    PARQUET = "Parquet"
    ARROW = "Arrow IPC"


EXTENSIONS = {
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".json": Format.JSON_LINES,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
}


def format_of(path: Path) -> tuple[Format, bool]:
    """The format by extension, and whether the file is compressed (.gz)."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    last = (suffixes[:-1] if packed else suffixes)[-1:]
    found = EXTENSIONS.get(last[0]) if last else None
    if found is None or (packed and found not in (Format.JSON_LINES, Format.CSV)):
        raise UsageError(
            "the extension says nothing about a format of events",
            hint=f"use one of {', '.join(EXTENSIONS)}; .gz may follow the text formats",
            place=str(path),
        )
    return found, packed

"""Whose results lie in a folder: a pipeline's own are added to or replaced, nobody else's.

Every folder that results are written to says in `_concordant.json` which run of which pipeline they
are of: the id of a checkpoint, which is drawn when that begins, or a pipeline that reads tables.
Readers of Parquet and JSON pass over a name with an underscore. Knows files, no Spark and no rows.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from concordant.errors import UsageError
from concordant.files.atomic import atomic_output

OWNER = "_concordant.json"

_RESULTS = re.compile(r"batch=\d+|\d{20}\.jsonl|\.[0-9a-f]+\.(?:\d{20}\.jsonl|_concordant\.json)")
"""Names of what sinks write, also of what a crash left unfinished."""


def name_of(kind: str, batch: int) -> str:
    """What a micro-batch writes into a folder: a file of JSON Lines, or a folder of files."""
    return f"{batch:020d}.jsonl" if kind == "jsonl" else f"batch={batch}"


class Owner(msgspec.Struct, frozen=True):
    """Who writes into a folder."""

    pipeline: str
    id: str
    checkpoint: str = ""
    """Nothing for a pipeline that reads tables."""

    def __str__(self) -> str:
        where = f", checkpoint {self.checkpoint}" if self.checkpoint else ""
        return f"pipeline '{self.pipeline}'{where}"

    def is_same(self, other: Owner) -> bool:
        """Are these one and the same run? Names may change, and folders may move."""
        return self.id == other.id


def owner_of_tables(name: str, folder: str) -> Owner:
    """A pipeline that reads tables is the same whenever it runs."""
    return Owner(name, f"{folder}/{name}")


def owner_of_checkpoint(name: str, checkpoint: Path) -> Owner:
    """A stream is the same for as long as its checkpoint is."""
    path = checkpoint / OWNER
    found = _read(path)
    if found is None:
        found = Owner(name, secrets.token_hex(16), str(checkpoint))
        _write(path, found)
    return Owner(name, found.id, str(checkpoint))


def claim(folders: Mapping[Path, bool], owner: Owner) -> None:
    """From here on the folders hold this owner's results; somebody else's are refused, or go where
    the folder says so. Where one is refused, nothing is removed in any."""
    others = [one for one, overwrite in folders.items() if _is_other(one, owner, overwrite)]
    for folder in others:
        leave_only((), folder)
        _write(folder / OWNER, owner)


def _is_other(folder: Path, owner: Owner, overwrite: bool) -> bool:
    """Is the folder not this owner's yet?"""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {one.name for one in folder.iterdir()}
    except OSError as error:
        raise UsageError(
            f"the folder of results cannot be made: {error.strerror}",
            hint="give a path where you may write",
            place=str(folder),
        ) from None
    before = _read(folder / OWNER)
    if before is not None and before.is_same(owner):
        return False
    if strange := sorted(name for name in names - {OWNER} if not _RESULTS.fullmatch(name)):
        raise UsageError(
            f"the folder holds what is no result of a pipeline ('{strange[0]}')",
            hint="give results a folder of their own",
            place=str(folder),
        )
    if any(not name.startswith(".") for name in names - {OWNER}):
        if before is None:
            raise UsageError(
                f"the folder holds what looks like results, but not whose they are ({OWNER})",
                hint="give another path, or remove what is there",
                place=str(folder),
            )
        if not overwrite:
            raise UsageError(
                f"the folder holds results of {before}, and this is {owner}",
                hint="give another path, or replace what is there: overwrite = true",
                place=str(folder),
            )
    return True


def leave_until(step: int, folder: Path) -> None:
    """Remove the results of later steps: those have not happened, or not any more."""
    names = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
    numbers = {name: re.search(r"\d+", name) for name in names}
    leave_only([name for name, found in numbers.items() if found and int(found[0]) <= step], folder)


def leave_only(names: Collection[str], folder: Path) -> None:
    """Remove the results in a folder but those named."""
    for one in folder.iterdir():
        if one.name not in names and _RESULTS.fullmatch(one.name):
            shutil.rmtree(one) if one.is_dir() else one.unlink()


def _read(path: Path) -> Owner | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        raise UsageError(
            "the file does not say whose results these are",
            hint="give another folder, or remove this one",
            place=str(path),
        ) from None


def _write(path: Path, owner: Owner) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_output(path, overwrite=True) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(owner)) + b"\n")

"""Files that appear whole or not at all.

The caller writes to a temporary path beside the wanted one; it takes the wanted name only when the
block ends without an error. Knows nothing of what is written.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from concordant.errors import UsageError


def refuse_existing(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Refuse a path that cannot be written anew; for callers that want to know before the work."""
    target = Path(path)
    if target.is_dir():
        raise UsageError("it is a directory", hint="give the name of a file", place=str(target))
    if not overwrite and os.path.lexists(target):
        raise UsageError(
            "it exists already, and files are not overwritten",
            hint="choose another name, or remove it first",
            place=str(target),
        )


@contextlib.contextmanager
def atomic_output(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary path that becomes `path` at the end of the block, or vanishes on any error.

    It keeps the extension, stands in the same directory (so that the renaming is atomic) and
    exists already, empty. Without `overwrite` an existing path is refused, at the start and again
    at the end.
    """
    target = Path(path)
    refuse_existing(target, overwrite=overwrite)
    temporary = target.with_name(f".{secrets.token_hex(6)}.{target.name}")
    try:
        temporary.open("xb").close()
    except OSError as error:
        raise UsageError(
            f"it cannot be written: {error.strerror}",
            hint="write to an existing directory in which you may create files",
            place=str(target),
        ) from None
    try:
        yield temporary
        _flush(temporary)
        if overwrite:
            temporary.replace(target)
        else:
            _name_new(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _name_new(temporary: Path, target: Path) -> None:
    """Give the name, but never take it from a file that appeared meanwhile."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        refuse_existing(target)
    except OSError:  # a file system without hard links: the gap between look and rename stays
        refuse_existing(target)
        temporary.replace(target)


def _flush(path: Path) -> None:
    # Before the name, the content: a crash must not leave the name with an empty file.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

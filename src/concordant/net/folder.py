"""The data folder of a node says in which format it was written, and any other is refused.

What machines keep changes from version to version; a log that is read as if nothing had changed
would break promises in silence.
"""

from __future__ import annotations

from pathlib import Path

from concordant.errors import UsageError

FORMAT = 4


def claim(folder: Path) -> None:
    """Make the folder, or see that this version can go on with it."""
    mark = folder / "format"
    try:
        found = mark.read_text().strip() if mark.exists() else ""
        if found == str(FORMAT):
            return
        if found or (folder.exists() and any(folder.iterdir())):
            raise UsageError(
                f"the folder was written in format {found or 1}, and this version writes {FORMAT}",
                hint="name another folder as `data`, or go on with the version that wrote it",
                place=str(folder),
            )
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(f"{FORMAT}\n")
    except OSError as error:
        raise UsageError(
            f"it cannot be used: {error.strerror or error}",
            hint="name a folder that can be written as `data`",
            place=str(folder),
        ) from None

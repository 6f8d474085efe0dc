"""TOML files as typed values; what is wrong in one is said with file, table and key.

It knows TOML and types. What the values mean is for its callers to check.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from concordant.errors import UsageError

T = TypeVar("T")

BYTES_MAX = 1 << 20
"""A longer file is no description that somebody wrote."""


def read_toml(path: Path, kind: type[T], *, what: str) -> T:
    """A value of this type from a TOML file; `what` is what the file should be."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise UsageError(f"it has more than {BYTES_MAX:,} bytes", place=str(path))
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no such {what}", place=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"it cannot be read: {error}", place=str(path)) from None
    return decode_toml(text, kind, place=str(path))


def decode_toml(text: str, kind: type[T], *, place: str) -> T:
    """A value of this type from the text of a TOML file; `place` is named in errors."""
    try:
        return msgspec.toml.decode(text, type=kind)
    except msgspec.ValidationError as error:
        message, where = _located(_named(str(error), text, kind))
        raise UsageError(message, place=f"{place}: {where}" if where else place) from None
    except msgspec.DecodeError as error:
        raise UsageError(
            f"it is not TOML: {error}", hint="https://toml.io shows the form", place=place
        ) from None


def _named(complaint: str, text: str, kind: type[Any]) -> str:
    """The complaint with the name of the table, which msgspec leaves out where names are free."""
    path = re.search(r"at `\$\.(\w+)\[\.\.\.\]", complaint)
    if path is None:
        return complaint
    whole = tomllib.loads(text)
    for name, table in whole[path[1]].items():
        try:
            msgspec.convert({**whole, path[1]: {name: table}}, kind)
        except msgspec.ValidationError as error:
            return str(error).replace(f"$.{path[1]}[...]", f"$.{path[1]}.{name}")
    return complaint


def _located(text: str) -> tuple[str, str]:
    """msgspec's message and path in the words of a TOML file."""
    message, _, path = text.partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    words = {"object": "a table", "array": "a list", "str": "a string", "float": "a number"}
    for name, word in words.items():
        message = message.replace(f"`{name}`", word)
    message = message.replace("`int`", "an integer").replace("Object", "the table")
    message = message.replace("Expected", "expected").replace("Invalid", "invalid")
    where = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", path)
    table, _, key = where.rpartition(".")
    if not where:
        return message, ""
    return message, f"[{table}] {key}" if table else f"[{key}]" if "table" in message else key

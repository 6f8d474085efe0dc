"""JSON Lines to records: one object per line, with the line it stood in.

Knows the form of lines and refuses what is not one JSON object in UTF-8, with its line number. What
the keys mean is for `rows` to say. A key that an object has twice is refused.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, BinaryIO, NoReturn

import msgspec

from concordant.errors import UsageError
from concordant.files.part import DEPTH_MAX

LINE_BYTES_MAX = 16 * 1024 * 1024
"""One event is one line; a longer line is a file that is not JSON Lines, and reading on would only
fill the memory. It is refused."""

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r"
_ARRAY_HINT = "write one object per line; jq -c '.[]' turns an array into such lines"


def read_records(stream: BinaryIO, name: str) -> tuple[list[dict[str, Any]], list[int]]:
    """All objects and their line numbers; blank lines are skipped."""
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    decode = msgspec.json.Decoder().decode
    number = 0
    for line in iter(partial(stream.readline, LINE_BYTES_MAX + 1), b""):
        number += 1
        if number == 1 and line.startswith(_BOM):
            line = line[3:]
        if len(line) > LINE_BYTES_MAX:
            _refuse(
                name,
                number,
                f"the line is longer than {LINE_BYTES_MAX >> 20} MiB",
                "write one event per line",
            )
        try:
            record = decode(line)
        except (ValueError, RecursionError) as error:
            if not line.strip():
                continue
            _explain(error, line, name, number)
        if type(record) is not dict:
            _refuse(name, number, "the line is not a JSON object", _ARRAY_HINT)
        # Without blanks every key ends in '":', so equal counts prove that no key stands twice.
        # The same signs inside a string make the counts differ: then look closely.
        key_count = line.translate(None, _BLANKS).count(b'":')
        if key_count != len(record) and key_count != _key_count(record):
            _refuse_repeated_key(line, name, number)
        records.append(record)
        lines.append(number)
    return records, lines


def _key_count(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(map(_key_count, value.values()))
    return sum(map(_key_count, value)) if type(value) is list else 0


def _refuse_repeated_key(line: bytes, name: str, number: int) -> None:
    def pairs(items: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in items]
        for key in keys:
            if keys.count(key) > 1:
                _refuse(
                    name,
                    number,
                    f"the object has the key '{key}' twice; a column has one value per event",
                    "remove or rename one of them",
                    key,
                )

    json.loads(line, object_pairs_hook=pairs)


def _explain(error: Exception, line: bytes, name: str, number: int) -> NoReturn:
    if isinstance(error, RecursionError):
        _refuse(
            name,
            number,
            f"the line nests deeper than {DEPTH_MAX} levels",
            "flatten the object",
        )
    if isinstance(error, UnicodeDecodeError):
        _refuse(name, number, "the line is not UTF-8", "convert the file: iconv -t UTF-8")
    if "out of range" in str(error):
        _refuse(
            name,
            number,
            "a number is out of range; integers have 64 bits and floats end at 1.8e308",
            "write it as a string",
        )
    cause, _, byte = str(error).removeprefix("JSON is malformed: ").partition(" (byte ")
    column = str(int(byte[:-1]) + 1) if byte[:-1].isdigit() else ""
    hint = "one JSON object per line; NaN and Infinity are not JSON"
    if line.lstrip()[:1] == b"[" or line.strip() == b"{":
        hint = _ARRAY_HINT
    _refuse(name, number, f"the line is not valid JSON ({cause})", hint, column)


def _refuse(name: str, line: int, message: str, hint: str, column: str = "") -> NoReturn:
    place = f"{name}:{line}:{column}" if column else f"{name}:{line}"
    raise UsageError(message, hint=hint, place=place)

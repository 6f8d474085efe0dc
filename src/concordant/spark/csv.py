"""CSV files as the workers read them: the cells that Spark's own reader would give.

Files that a line feed and a separator cut rightly are read here, in compiled loops (`cells`); of
others (quotes, stray carriage returns, bytes that are no UTF-8, very long lines) `unfit` says why,
before a job starts. A cell that is no number where the schema says so is null, as with Spark. Knows
files, Arrow and Spark's conversions, and nothing of events.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from concordant.correlate.columns import Array
from concordant.errors import InvariantViolation
from concordant.spark.cells import (
    BEYOND_ASCII,
    BOOLEAN,
    INSTANT,
    INTEGER,
    ODD_FIELDS,
    QUOTED,
    REAL,
    RETURNS,
    SKIPPED,
    TEXT,
    ZONED,
    code,
    gather,
    has_long_line,
    has_stray_return,
    lines,
    read,
    unusual,
)
from concordant.spark.unchanged import Unchanged

SUFFIXES = ("", ".csv", ".tsv", ".txt")
"""Names of files that Spark does not take for compressed."""

SEPARATORS = (",", ";", "|", "\t")

TYPES = {
    "boolean": (BOOLEAN, pa.bool_(), 0),
    "tinyint": (INTEGER, pa.int8(), 8),
    "smallint": (INTEGER, pa.int16(), 16),
    "int": (INTEGER, pa.int32(), 32),
    "bigint": (INTEGER, pa.int64(), 64),
    "double": (REAL, pa.float64(), 0),
    "string": (TEXT, pa.string(), 0),
    "instant": (INSTANT, pa.timestamp("us", "UTC"), 0),
    "zoned": (ZONED, pa.timestamp("us", "UTC"), 0),
}
"""Types of Spark: how their cells are read, as what, and within how many bits. Two have names of
our own: times that are UTC where they name no zone, and times that have to name one."""

_TIMES = ("instant", "zoned")

LINE_BYTES_MAX = 20_480
"""So many columns Spark reads, and an error is what it makes of a line with more."""

_LOOK = 1 << 14


@dataclass(frozen=True)
class Layout:
    """How the lines of an input are cut."""

    fields: tuple[str, ...]
    types: tuple[str, ...]
    separator: str = ","
    header: bool = False


def unfit(file: Unchanged, layout: Layout, columns: Sequence[str]) -> str:
    """Why these columns of a file cannot be read by the loops of `cells`; empty if they can."""
    name = Path(file.path).name
    if Path(file.path).suffix.lower() not in SUFFIXES:
        return f"{name} may be compressed"
    kinds = dict(zip(layout.fields, layout.types, strict=True))
    times = _Cells(layout, [one for one in columns if kinds[one] in _TIMES], _LOOK)
    cut = _Cut(layout.header, _LOOK)
    for number, data in enumerate(file.blocks()):
        if why := _why_unfit(data, is_first=number == 0):
            return f"{name} {why}"
        for starts in cut.lines(data) if times.names else ():
            for column in times.read(data, starts)[0]:
                odd = times.names[column]
                return f"{name} has times in '{odd}' unlike 2026-03-02T09:00:00Z"
    return ""


def _why_unfit(data: Array, *, is_first: bool) -> str:
    """What keeps whole lines from being cut here, if anything does."""
    kind = unusual(data)
    if kind & QUOTED:
        return "has quotes"
    if kind & RETURNS and has_stray_return(data):
        return "has carriage returns within its lines"
    if kind & BEYOND_ASCII:
        text = data.tobytes()
        if (is_first and text.startswith(codecs.BOM_UTF8)) or not _is_utf8(text):
            return "is no plain UTF-8"
    if has_long_line(data, LINE_BYTES_MAX):
        return f"has lines of more than {LINE_BYTES_MAX:,} bytes"
    return ""


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Cut:
    """Where the lines of a file begin that are not blank, block after block, behind the header."""

    def __init__(self, header: bool, row_count: int) -> None:
        self._header = header
        self._starts = np.zeros(row_count, np.int64)

    def lines(self, data: Array) -> Iterator[Array]:
        """The beginnings in a block, so many at a time."""
        at = 0
        if self._header:
            at, count = lines(data, 0, self._starts[:1])
            self._header = not count
        while at < len(data):
            at, count = lines(data, at, self._starts)
            if count:
                yield self._starts[:count]


Chosen = Callable[[Any, int], Array]
"""Which rows are wanted, by a table of some of their columns, maybe of none, and their number."""


def pieces(
    file: Unchanged,
    layout: Layout,
    columns: Sequence[str],
    *,
    row_count: int,
    by: Sequence[str] = (),
    chosen: Chosen | None = None,
) -> Iterator[Any]:
    """The columns of a file that are named, some rows at a time; texts are codes.

    With `chosen`, only rows that it wants, by the columns `by`: of others no more cells are read.
    """
    told = _Cells(layout, by if chosen else (), row_count)
    rest = _Cells(layout, [one for one in columns if one not in told.names], row_count)
    cut = _Cut(layout.header, row_count)
    for data in file.blocks():
        for starts in cut.lines(data):
            known = told.columns(data, starts)
            if chosen is not None:
                mine = chosen(pa.table(known), len(starts))
                starts = starts[mine]
                known = {name: _filtered(values, mine) for name, values in known.items()}
            if len(starts):
                known |= rest.columns(data, starts)
                yield pa.table({name: known[name] for name in columns})


def _filtered(values: Any, mine: Array) -> Any:
    """Some rows of a column; of a dictionary much longer than they are, only what they have."""
    found = values.filter(pa.array(mine))
    if pa.types.is_dictionary(found.type) and len(found.dictionary) > len(found):
        return found.dictionary_decode().dictionary_encode()
    return found


class _Cells:
    """Some columns of lines, and the arrays that their cells are read into."""

    def __init__(self, layout: Layout, columns: Sequence[str], row_count: int) -> None:
        self._separator = ord(layout.separator)
        places = [number for number, name in enumerate(layout.fields) if name in columns]
        self.names = [layout.fields[place] for place in places]
        self._types = [layout.types[place] for place in places]
        self._kinds = np.full(max(places, default=-1) + 1, SKIPPED, np.int8)
        self._kinds[places] = [TYPES[one][0] for one in self._types]
        self._reals_at = [k for k, one in enumerate(self._types) if TYPES[one][0] == REAL]
        shape = (len(places), row_count)
        self._numbers = np.zeros(shape, np.int64)
        self._reals = np.zeros(shape, np.float64)
        self._lengths = np.zeros(shape, np.int32)
        self._valid = np.zeros(shape, np.bool_)
        self._odd = np.zeros((ODD_FIELDS, len(places) * row_count), np.int64)

    def columns(self, data: Array, starts: Array) -> dict[str, Any]:
        """The columns of the lines that begin at some places, as Arrow arrays."""
        odd = self.read(data, starts) if self.names else self._odd[:, :0]
        for column, row, start, length in self._read_long(data, odd).T.tolist():
            self._read_odd(column, row, data[start : start + length].tobytes().decode())
        return {name: self._array(data, k, len(starts)) for k, name in enumerate(self.names)}

    def read(self, data: Array, starts: Array) -> Array:
        """Read the cells of lines; those that are odd, as `cells` points at them."""
        odd_count = read(
            data,
            starts,
            self._separator,
            self._kinds,
            self._numbers,
            self._reals,
            self._lengths,
            self._valid,
            self._odd,
        )
        return self._odd[:, :odd_count]

    def _read_long(self, data: Array, odd: Array) -> Array:
        """Of odd cells, read the reals that only have many digits; those that are left.

        All together, by Arrow, which rounds as Java does: numbers as programs write them.
        """
        reals = np.flatnonzero(np.isin(odd[0], self._reals_at))
        texts = _texts_at(data, odd[2], odd[3].astype(np.int32), reals.astype(np.int32))
        long = pc.match_substring_regex(texts, _LONG)
        values = pc.cast(texts.filter(long), pa.float64())
        reals = reals[long.to_numpy(zero_copy_only=False)]
        self._reals[odd[0, reals], odd[1, reals]] = values.to_numpy()
        return np.delete(odd, reals, axis=1)

    def _read_odd(self, column: int, row: int, text: str) -> None:
        """A value in a form of its own, by the rules of Java."""
        kind = self._types[column]
        if kind in _TIMES:
            raise InvariantViolation(f"the file was looked at, and has the time {text!r}")
        value = _VALUE_OF.get(kind, integer_of)(text)
        self._valid[column, row] = value is not None
        if value is not None:
            (self._reals if kind == "double" else self._numbers)[column, row] = value

    def _array(self, data: Array, column: int, count: int) -> Any:
        kind, arrow, bits = TYPES[self._types[column]]
        valid = self._valid[column, :count]
        if kind == TEXT:
            return self._texts(data, column, count)
        values = (self._reals if kind == REAL else self._numbers)[column, :count]
        if 0 < bits < 64:
            beyond = 1 << (bits - 1)
            valid = valid & (-beyond <= values) & (values < beyond)
            values = np.where(valid, values, 0)
        # Copied: the next lines are read into the same arrays.
        whole = kind in (BOOLEAN, INTEGER)
        values = values.astype(arrow.to_pandas_dtype()) if whole else values.copy()
        mask = None if valid.all() else ~valid
        return pa.array(values, arrow, mask=mask)

    def _texts(self, data: Array, column: int, count: int) -> Any:
        starts, lengths = self._numbers[column, :count], self._lengths[column, :count]
        valid = self._valid[column, :count]
        places = 1 << (2 * count - 1).bit_length()
        codes, firsts = np.zeros(count, np.int32), np.zeros(count, np.int32)
        table = np.full(places, -1, np.int32)
        known = code(data, starts, lengths, valid, table, codes, firsts)
        dictionary = _texts_at(data, starts, lengths, firsts[:known])
        mask = None if valid.all() else ~valid
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=mask), dictionary)


def _texts_at(data: Array, starts: Array, lengths: Array, rows: Array) -> Any:
    """Some of the texts that begin at some places, as an Arrow array."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    gathered = np.zeros(int(lengths[rows].sum()), np.uint8)
    gather(data, starts, lengths, rows, offsets, gathered)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(gathered)]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)


# --- cells by the rules of Java -------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONG = r"^-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$"
"""Reals far within the bounds of a double."""
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
)
_NAMED = {"Inf": np.inf, "-Inf": -np.inf, "NaN": np.nan}
"""What Spark takes for numbers beside what Java does."""
_BLANKS = "".join(map(chr, range(33)))


def integer_of(text: str) -> int | None:
    """The integer of 64 bits that Java's `Long.parseLong` reads, or None.

    >>> integer_of("+007"), integer_of("7 "), integer_of("9223372036854775808")
    (7, None, None)
    """
    if not _INTEGER.fullmatch(text) or max(text) > "\uffff":  # Java sees halves of such digits
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def real_of(text: str) -> float | None:
    """The double that Spark reads: by Java's `Double.parseDouble`, or by name; or None.

    >>> real_of("1e3"), real_of(" .5f "), real_of("Inf"), real_of("1,5"), real_of("1_0")
    (1000.0, 0.5, inf, None, None)
    """
    if text in _NAMED:
        return _NAMED[text]
    trimmed = text.strip(_BLANKS)
    number = trimmed[:-1] if trimmed[-1:] in tuple("fFdD") else trimmed
    if _DECIMAL.fullmatch(number):
        return float(number)
    if _HEXADECIMAL.fullmatch(number):
        return _hexadecimal(number)
    sign, word = (trimmed[0], trimmed[1:]) if trimmed[:1] in ("+", "-") else ("", trimmed)
    if word == "Infinity":
        return -np.inf if sign == "-" else np.inf
    return np.nan if word == "NaN" else None


def truth_of(text: str) -> bool | None:
    """The bool that Java reads in letters of any case, or None.

    >>> truth_of("tRuE"), truth_of("falſe"), truth_of("1")
    (True, False, None)
    """
    return {"TRUE": True, "FALSE": False}.get(text.upper())


_VALUE_OF: dict[str, Callable[[str], float | None]] = {"double": real_of, "boolean": truth_of}
"""What reads a cell, of other types than integers."""


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -np.inf if text.startswith("-") else np.inf


_KNOWN = ("header", "inferschema", "sep", "delimiter", "enforceschema")
_USUAL = {
    "mode": "permissive",
    "multiline": "false",
    "quote": '"',
    "escape": "\\",
    "encoding": "utf-8",
    "ignoreleadingwhitespace": "false",
    "ignoretrailingwhitespace": "false",
}
"""Options that change nothing where they have these values."""


def cut_by(options: Mapping[str, str]) -> tuple[str, bool] | str:
    """The separator and whether files have headers, by options of Spark's reader; or why not."""
    for name, value in sorted(options.items()):
        if name not in _KNOWN and value.lower() != _USUAL.get(name):
            return f"it is read with the option {name}"
    separator = options.get("sep", options.get("delimiter", ","))
    if separator not in SEPARATORS:
        return f"its separator is {separator!r}"
    if options.get("enforceschema", "true").lower() != "true":
        return "its headers are to be checked"
    return separator, options.get("header", "false").lower() == "true"

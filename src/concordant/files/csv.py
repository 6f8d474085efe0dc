"""CSV to an Arrow table with typed columns.

Arrow splits the file into cells; the kind of a column is decided here, over all its cells: int,
else float, else bool, else time, else string, and an empty cell is null. Reserved columns of names
(topic, source, id) stay text. Line numbers for errors are found by reading the file again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from concordant.files.part import Names, Origin
from concordant.files.times import USUAL, BadText, instants_of_texts
from concordant.model.kind import INT_MAX, INT_MIN

ROW_BYTES_MAX = 16 * 1024 * 1024
"""Arrow reads blocks of this size and a row must fit in one; a longer row is refused, as it is
rather a quote that was never closed."""

_INTEGER = r"^[+-]?[0-9]+$"
_NUMBER = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))$"
_BOOL = r"^(?i:true|false)$"
_SAMPLE_COUNT = 256


def csv_origin(name: str, data: bytes) -> Origin:
    """An origin whose line numbers are right also after blank lines and quoted line breaks."""

    def line(row: int) -> int:
        try:
            return next(islice(_rows(data), row + 1, None), (row + 2, []))[0]
        except csv.Error:
            return row + 2

    return Origin(name, line)


def read_csv(data: bytes, origin: Origin, names: Names) -> Any:
    """The table; `data` is the file without a byte order mark."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = Origin(origin.name, lambda row: row)
        place.refuse(
            "the line is not UTF-8",
            hint="convert the file: iconv -t UTF-8",
            row=data.count(b"\n", 0, error.start) + 1,
        )
    try:
        _, header = next(_rows(data), (1, []))
    except csv.Error:
        header = []
    if not header:
        origin.refuse("it is empty", hint="give a CSV file with a header and at least one event")
    for name in header:
        if header.count(name) > 1:
            origin.refuse(
                f"the header has the column '{name}' twice; names of columns must differ",
                hint="rename or drop one of them",
                column=name,
            )
    _refuse_unclosed(data, origin)
    try:
        table = pcsv.read_csv(
            pa.BufferReader(_native(data)),
            read_options=pcsv.ReadOptions(block_size=ROW_BYTES_MAX),
            parse_options=pcsv.ParseOptions(newlines_in_values=True),
            convert_options=pcsv.ConvertOptions(
                column_types={name: pa.string() for name in header},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        _refuse_shape(data, origin, len(header), str(error))
    columns = [
        _typed(values, origin, name, names)
        for name, values in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _native(data: bytes) -> Any:
    """A copy of Arrow's own: its threads may let go of the input when Python is already ending, and
    letting go of a Python object then aborts the process."""
    copy = pa.BufferOutputStream()
    copy.write(data)
    return copy.getvalue()


def _rows(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the line each begins in."""
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""))
    before = 0
    for cells in reader:
        if cells:
            yield before + 1, cells
        before = reader.line_num


def _refuse_unclosed(data: bytes, origin: Origin) -> None:
    """Arrow takes the rest of the file for one cell; that would lose its events in silence."""
    if data.count(b'"') % 2 == 0:
        return
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), strict=True)
    line = 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error as error:
        if "end of data" in str(error) or "field limit" in str(error):
            Origin(origin.name, lambda row: row).refuse(
                "the row opens a quote that is never closed",
                hint="close it, or double it where the quote itself is meant",
                row=line,
            )


def _refuse_shape(data: bytes, origin: Origin, width: int, reason: str) -> None:
    try:
        for line, cells in _rows(data):
            if len(cells) != width:
                Origin(origin.name, lambda row: row).refuse(
                    f"the row has {len(cells)} cells, and the header has {width}",
                    hint="quote cells that contain commas, and leave empty cells for nulls",
                    row=line,
                )
    except csv.Error as error:
        reason = str(error)
    origin.refuse(
        f"it cannot be read as CSV ({reason.splitlines()[0][:160]})",
        hint=f"look for a quote that is never closed; a row has at most {ROW_BYTES_MAX >> 20} MiB",
    )


def _typed(values: Any, origin: Origin, name: str, names: Names) -> Any:
    if name in (names.topic, names.source, names.id) or values.null_count == len(values):
        untouched = name in (names.topic, names.source, names.id)
        return values if untouched else pa.nulls(len(values))
    cells = pc.utf8_trim_whitespace(values)
    if _all(cells, _INTEGER):
        return _integers(cells, origin, name)
    if name == names.time:
        return values  # as text: the table's reader parses it, or refuses it
    if _all(cells, _NUMBER):
        return pc.cast(_unsigned(cells), pa.float64())
    if _all(cells, _BOOL):
        return pc.equal(pc.utf8_lower(cells), "true")
    if _all(cells, USUAL):
        try:
            mask = pc.is_null(cells).combine_chunks().to_numpy(zero_copy_only=False)
            return pa.array(instants_of_texts(cells), pa.timestamp("us"), mask=mask)
        except BadText:  # looks like times, but a 13th month: text after all
            pass
    return values


def _integers(cells: Any, origin: Origin, name: str) -> Any:
    try:
        return pc.cast(_unsigned(cells), pa.int64())
    except pa.ArrowInvalid:
        for row, cell in enumerate(cells.to_pylist()):
            if cell is not None and not INT_MIN <= int(cell[:40]) <= INT_MAX:
                origin.refuse(
                    f"the integer {cell[:40]} is beyond 64 signed bits",
                    hint="write the column as floats (with a point) or as text",
                    row=row,
                    column=name,
                )
        # Only zeros in front, which Arrow does not take.
        numbers = [None if cell is None else int(cell) for cell in cells.to_pylist()]
        return pa.array(numbers, pa.int64())


def _unsigned(cells: Any) -> Any:
    """Without the plus in front, which Arrow does not read."""
    return pc.replace_substring_regex(cells, r"^\+", "")


def _all(cells: Any, pattern: str) -> bool:
    """Do all non-empty cells match? A sample answers for most columns that do not."""
    return all(
        pc.all(pc.match_substring_regex(part, pattern), min_count=0).as_py() is not False
        for part in (cells.slice(0, _SAMPLE_COUNT), cells)
    )

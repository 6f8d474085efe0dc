"""Cells of delimited lines, cut and read in compiled loops: what the workers do with CSV.

A line ends at a line feed, a cell at the separator; there are no quotes (`unusual` tells whether a
file has some, and then somebody else reads it). Numbers in their plain form are read here, exactly;
a cell in any other form is only pointed at, for `csv` to look at in its own time. Knows bytes and
arrays, no files and no Arrow.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SKIPPED, INTEGER, REAL, BOOLEAN, TEXT = range(5)
"""What a field of a line is read as."""

QUOTED, RETURNS, BEYOND_ASCII = 1, 2, 4
"""What is unusual in the bytes of a file: quotes or zeros; carriage returns; more than ASCII."""

ODD_FIELDS = 4
"""Of a cell that was only pointed at: its column, its row, where it begins, its length."""

_INTEGER_DIGITS = 18
"""So many digits stay within 64 bits whatever they are."""

_REAL_DIGITS = 15
"""So many digits are exact in a double, and so is the power of ten by which they are divided: then
the quotient is the double next to the decimal (Clinger 1990)."""

_TENS = 10.0 ** np.arange(_REAL_DIGITS + 1)

_MINUS, _POINT, _ZERO, _NINE = ord("-"), ord("."), ord("0"), ord("9")
_FEED, _RETURN, _BLANK, _QUOTE = ord("\n"), ord("\r"), ord(" "), ord('"')
_ASCII_MAX = 127
_EACH = 0x0101010101010101
_HIGH = 0x8080808080808080
"""One, and the highest bit, in each byte of a word."""


@njit(cache=True)
def unusual(data):
    """What a file has that lines and cells cannot just be cut at."""
    whole = len(data) // 8
    words = data[: 8 * whole].view(np.uint64)
    zeros = quotes = returns = every = np.uint64(0)
    for at in range(whole):
        word = words[at]
        zeros |= _with_zero(word)
        quotes |= _with_zero(word ^ np.uint64(_QUOTE * _EACH))
        returns |= _with_zero(word ^ np.uint64(_RETURN * _EACH))
        every |= word
    found = 0
    if zeros | quotes:
        found |= QUOTED
    if returns:
        found |= RETURNS
    if every & np.uint64(_HIGH):
        found |= BEYOND_ASCII
    for byte in data[8 * whole :]:
        if byte == _QUOTE or byte == 0:
            found |= QUOTED
        if byte == _RETURN:
            found |= RETURNS
        if byte > _ASCII_MAX:
            found |= BEYOND_ASCII
    return found


@njit(cache=True, inline="always")
def _with_zero(word):
    """Not zero if one of eight bytes is; they are looked at together."""
    return (word - np.uint64(_EACH)) & ~word & np.uint64(_HIGH)


@njit(cache=True)
def next_line(data, at):
    """Where the line after the first that is not blank begins."""
    while at < len(data) and data[at] <= _BLANK:
        at += 1
    while at < len(data) and data[at] != _FEED:
        at += 1
    return min(at + 1, len(data))


@njit(cache=True)
def cut(data, at, separator, kinds, numbers, reals, lengths, valid, odd):
    """Read lines from a place on; the place after the last, how many, how many cells are odd.

    `kinds` says of each field how to read it, up to the last that is wanted. Of wanted field `k` and
    row `r`, `numbers[k, r]` is the integer, the bool, or where the text begins, `reals[k, r]` the
    real. A field that is empty or missing is null; blank lines are none. `odd` has a column for each
    cell that somebody else has to read.
    """
    size, row, odd_count = len(data), 0, 0
    while at < size and row < valid.shape[1]:
        first = at
        while first < size and data[first] <= _BLANK and data[first] != _FEED:
            first += 1
        if first == size or data[first] == _FEED:
            at = first + 1
            continue
        wanted = 0
        ended = False
        for field in range(len(kinds)):
            kind = kinds[field]
            start = at
            if ended:
                if kind != SKIPPED:
                    valid[wanted, row] = False
                    wanted += 1
                continue
            plain = False
            if kind == INTEGER or kind == REAL:
                negative = at < size and data[at] == _MINUS
                at += negative
                digits, behind, value, point = 0, 0, np.int64(0), False
                while at < size:
                    byte = data[at]
                    if _ZERO <= byte <= _NINE:
                        value = value * 10 + (byte - _ZERO)
                        digits += 1
                        behind += point
                    elif byte == _POINT and kind == REAL and digits and not point:
                        point = True
                    else:
                        break
                    at += 1
                plain = at == size or data[at] == separator or data[at] <= _RETURN
                if kind == INTEGER:
                    plain &= 0 < digits <= _INTEGER_DIGITS
                    numbers[wanted, row] = -value if negative else value
                else:
                    plain &= 0 < digits <= _REAL_DIGITS and point == (behind > 0)
                    real = value / _TENS[min(behind, _REAL_DIGITS)]
                    reals[wanted, row] = -real if negative else real
            while at < size and data[at] != separator and data[at] != _FEED:
                at += 1
            ended = at == size or data[at] == _FEED
            if kind != SKIPPED:
                stop = at - 1 if ended and at > start and data[at - 1] == _RETURN else at
                length = stop - start
                valid[wanted, row] = length > 0
                if kind == TEXT:
                    numbers[wanted, row] = start
                    lengths[wanted, row] = length
                elif kind == BOOLEAN:
                    word = _word(data, start, length)
                    numbers[wanted, row] = word == 1
                    valid[wanted, row] = word >= 0
                elif not plain and length:
                    odd[0, odd_count], odd[1, odd_count] = wanted, row
                    odd[2, odd_count], odd[3, odd_count] = start, length
                    odd_count += 1
                wanted += 1
            at += 1
        if not ended:
            while at < size and data[at] != _FEED:
                at += 1
            at += 1
        row += 1
    return min(at, size), row, odd_count


@njit(cache=True)
def _word(data, start, length):
    """1 for true, 0 for false, in letters of either case; -1 for anything else."""
    if length == 4:
        word, letters = 1, (116, 114, 117, 101, 0)
    elif length == 5:
        word, letters = 0, (102, 97, 108, 115, 101)
    else:
        return -1
    for at in range(length):
        if data[start + at] | 32 != letters[at]:
            return -1
    return word


@njit(cache=True)
def code(data, starts, lengths, valid, table, codes, firsts):
    """Number texts in the order in which they occur; how many there are.

    `table` has a power of two of places, all -1; `firsts` gets the first row of each text.
    """
    mask = len(table) - 1
    count = 0
    for row in range(len(codes)):
        if not valid[row]:
            continue
        start, length = starts[row], lengths[row]
        mixed = np.uint64(length)
        for at in range(start, start + length):
            mixed = (mixed ^ np.uint64(data[at])) * np.uint64(0x9E3779B97F4A7C15)
        place = np.int64((mixed >> np.uint64(32)) & np.uint64(mask))
        while True:
            known = table[place]
            if known < 0:
                table[place] = count
                firsts[count] = row
                codes[row] = count
                count += 1
                break
            other = starts[firsts[known]]
            same = lengths[firsts[known]] == length
            at = 0
            while same and at < length:
                same = data[other + at] == data[start + at]
                at += 1
            if same:
                codes[row] = known
                break
            place = (place + 1) & mask
    return count


@njit(cache=True)
def gather(data, starts, lengths, rows, offsets, gathered):
    """The bytes of some texts, one behind the other."""
    end = 0
    for index in range(len(rows)):
        start = starts[rows[index]]
        for at in range(start, start + lengths[rows[index]]):
            gathered[end] = data[at]
            end += 1
        offsets[index + 1] = end

"""Cells of delimited lines, cut and read in compiled loops: what the workers do with CSV.

A line ends at a line feed, a cell at the separator; there are no quotes (`unusual` tells whether a
file has some, and then somebody else reads it). Numbers in their plain form are read here, exactly;
a cell in any other form is only pointed at, for `csv` to look at in its own time. Knows bytes and
arrays, no files and no Arrow.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from concordant.correlate.compiled.jit import bool_pointer_at

SKIPPED, INTEGER, REAL, BOOLEAN, TEXT, INSTANT, ZONED = range(7)
"""What a field of a line is read as; an instant without a zone is UTC, or is not plain."""

NO_INSTANT = -(1 << 63)
"""Stands for a text that is no instant in its plain form."""

QUOTED, RETURNS, BEYOND_ASCII = 1, 2, 4
"""What is unusual in the bytes of a file: quotes or zeros; carriage returns; more than ASCII."""

ODD_FIELDS = 4
"""Of a cell that was only pointed at: its column, its row, where it begins, its length."""

_INTEGER_DIGITS = 19
"""So many digits are within 64 bits without a sign; beyond 63 they look negative."""

_REAL_DIGITS = 15
"""So many digits are exact in a double, and so is the power of ten by which they are divided: then
the quotient is the double next to the decimal (Clinger 1990)."""

_TENS = 10.0 ** np.arange(_REAL_DIGITS + 1)

_MINUS, _POINT, _ZERO, _NINE = ord("-"), ord("."), ord("0"), ord("9")
_FEED, _RETURN, _BLANK, _QUOTE = ord("\n"), ord("\r"), ord(" "), ord('"')
_T, _Z, _COLON, _PLUS = ord("T"), ord("Z"), ord(":"), ord("+")
_WITH_LONG_S = len("falſe".encode())
"""To Java the long s is an s in the other case."""
_SECONDS_END = len("2026-03-02T09:00:00")
_OFFSET_LENGTH = len("+01:00")
_OFFSET_HOURS = 18
"""No offset has so many; Java takes none beyond it."""
_DAYS_BEFORE_1970 = 719_468
"""From the first of March of the year 0."""
_ASCII_MAX = 127
_EACH = 0x0101010101010101
_HIGH = 0x8080808080808080
_UPPER = 0xF0F0F0F0F0F0F0F0
"""One, the highest bit, and the upper half, of each byte of a word."""


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


@njit(cache=True)
def has_stray_return(data):
    """Is there a carriage return that no line feed follows?"""
    for at in range(len(data)):
        if data[at] == _RETURN and (at + 1 == len(data) or data[at + 1] != _FEED):
            return True
    return False


@njit(cache=True)
def has_long_line(data, length_max):
    """Is there a line of more bytes? Looks only at where lines may end, not at all of them."""
    start = 0
    while start + length_max < len(data):
        at = start + length_max
        while at >= start and data[at] != _FEED:
            at -= 1
        if at < start:
            return True
        start = at + 1
    return False


@njit(cache=True, inline="always")
def _with_zero(word):
    """Not zero if one of eight bytes is; they are looked at together."""
    return (word - np.uint64(_EACH)) & ~word & np.uint64(_HIGH)


@njit(cache=True)
def lines(data, at, starts):
    """Where lines begin that are not blank, from a place on; the place after the last, how many."""
    text = bool_pointer_at(data.ctypes.data)
    size, count = len(data), 0
    while at < size and count < len(starts):
        first = at
        while first < size and text[first] <= _BLANK and text[first] != _FEED:
            first += 1
        if first < size and text[first] != _FEED:
            starts[count] = at
            count += 1
            first += 1
        while first + 8 <= size and not _with_zero(_word(text, first) ^ np.uint64(_FEED * _EACH)):
            first += 8
        while first < size and text[first] != _FEED:
            first += 1
        at = first + 1
    return min(at, size), count


@njit(cache=True)
def read(data, starts, separator, kinds, numbers, reals, lengths, valid, odd):
    """Read cells of the lines that begin at some places; how many are odd.

    `kinds` says of each field how to read it, up to the last that is wanted. Of wanted field `k`
    and row `r`, `numbers[k, r]` is the integer, the bool, or where the text begins, `reals[k, r]`
    the real. A field that is empty or missing is null. `odd` has a column for each cell that
    somebody else has to read.
    """
    text = bool_pointer_at(data.ctypes.data)
    size, odd_count = len(data), 0
    separators = np.uint64(separator * _EACH)
    for row in range(len(starts)):
        at = starts[row]
        wanted = 0
        ended = False
        for field in range(len(kinds)):
            kind = kinds[field]
            if ended:
                if kind != SKIPPED:
                    valid[wanted, row] = False
                    wanted += 1
                continue
            start = at
            plain = False
            if kind in (INTEGER, REAL):
                negative = at < size and text[at] == _MINUS
                at += negative
                first = at
                value = np.int64(0)
                if at + 8 <= size:
                    word = _word(text, at)
                    while _is_digits(word) and at - first < 16:
                        value = value * 100_000_000 + _eight_digits(word)
                        at += 8
                        if at + 8 > size:
                            break
                        word = _word(text, at)
                while at < size and _ZERO <= text[at] <= _NINE:
                    value = value * 10 + (text[at] - _ZERO)
                    at += 1
                digits = at - first
                if kind == INTEGER:
                    plain = 0 < digits <= _INTEGER_DIGITS and value >= 0
                    numbers[wanted, row] = -value if negative else value
                else:
                    behind = 0
                    if digits and at < size and text[at] == _POINT:
                        point = at
                        at += 1
                        while at < size and _ZERO <= text[at] <= _NINE:
                            value = value * 10 + (text[at] - _ZERO)
                            at += 1
                        behind = at - point - 1
                        plain = behind > 0
                    else:
                        plain = digits > 0
                    plain &= digits + behind <= _REAL_DIGITS
                    real = value / _TENS[min(behind, _REAL_DIGITS)]
                    reals[wanted, row] = -real if negative else real
                plain &= at == size or _ends_cell(text[at], separator)
            elif kind == SKIPPED:
                while at + 8 <= size:
                    word = _word(text, at)
                    if _with_zero(word ^ separators) | _with_zero(word ^ np.uint64(_FEED * _EACH)):
                        break
                    at += 8
            while at < size and text[at] != separator and text[at] != _FEED:
                at += 1
            ended = at == size or text[at] == _FEED
            if kind != SKIPPED:
                stop = at - 1 if ended and at > start and text[at - 1] == _RETURN else at
                length = stop - start
                valid[wanted, row] = length > 0
                if kind == TEXT:
                    numbers[wanted, row] = start
                    lengths[wanted, row] = length
                elif kind == BOOLEAN:
                    truth = _truth(text, start, length)
                    numbers[wanted, row] = truth == 1
                    valid[wanted, row] = truth >= 0
                    plain = length != _WITH_LONG_S
                elif kind in (INSTANT, ZONED):
                    instant = _instant(text, start, length, kind == INSTANT)
                    numbers[wanted, row] = instant
                    plain = instant != NO_INSTANT
                if kind != TEXT and not plain and length:
                    odd[0, odd_count], odd[1, odd_count] = wanted, row
                    odd[2, odd_count], odd[3, odd_count] = start, length
                    odd_count += 1
                wanted += 1
            at += 1
    return odd_count


@njit(cache=True, inline="always")
def _ends_cell(byte, separator):
    """No other control character does; a carriage return has a line feed behind it."""
    return byte == separator or byte in (_FEED, _RETURN)


@njit(cache=True, inline="always")
def _word(data, at):
    """Eight bytes together; the compiler makes one load of it."""
    return (
        np.uint64(data[at])
        | np.uint64(data[at + 1]) << np.uint64(8)
        | np.uint64(data[at + 2]) << np.uint64(16)
        | np.uint64(data[at + 3]) << np.uint64(24)
        | np.uint64(data[at + 4]) << np.uint64(32)
        | np.uint64(data[at + 5]) << np.uint64(40)
        | np.uint64(data[at + 6]) << np.uint64(48)
        | np.uint64(data[at + 7]) << np.uint64(56)
    )


@njit(cache=True, inline="always")
def _is_digits(word):
    """Is each of eight bytes a digit: 3 in its upper half, and also with 6 more?"""
    upper = np.uint64(_UPPER)
    threes = np.uint64(_ZERO * _EACH)
    return word & upper == threes and (word + np.uint64(6 * _EACH)) & upper == threes


@njit(cache=True, inline="always")
def _eight_digits(word):
    """The number that eight digits are: neighbours join to pairs, pairs to fours, to eight."""
    word -= np.uint64(_ZERO * _EACH)
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    word = word * np.uint64(10_000) + (word >> np.uint64(32))
    return np.int64(word & np.uint64(0xFFFFFFFF))


@njit(cache=True)
def _truth(data, start, length):
    """1 for true, 0 for false, in letters of either case; -1 for anything else."""
    if length == 4:
        truth, letters = 1, (116, 114, 117, 101, 0)
    elif length == 5:
        truth, letters = 0, (102, 97, 108, 115, 101)
    else:
        return -1
    for at in range(length):
        if data[start + at] | 32 != letters[at]:
            return -1
    return truth


@njit(cache=True)
def _instant(text, start, length, zone_may_lack):
    """Microseconds since 1970 of `2026-03-02T09:00:00.5Z`, also with an offset for the Z."""
    end = start + length
    if length < _SECONDS_END or text[start + 4] != _MINUS or text[start + 7] != _MINUS:
        return NO_INSTANT
    if text[start + 10] != _T and text[start + 10] != _BLANK:
        return NO_INSTANT
    if text[start + 13] != _COLON or text[start + 16] != _COLON:
        return NO_INSTANT
    century, year = _two(text, start), _two(text, start + 2)
    month, day = _two(text, start + 5), _two(text, start + 8)
    hour, minute, second = _two(text, start + 11), _two(text, start + 14), _two(text, start + 17)
    if min(century, year, hour, minute, second) < 0 or not 1 <= month <= 12:
        return NO_INSTANT
    year += 100 * century
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = 28 + leap if month == 2 else 30 + (month + month // 8) % 2
    if year < 1 or not 1 <= day <= last or hour > 23 or minute > 59 or second > 59:
        return NO_INSTANT
    at = start + _SECONDS_END
    micros, scale = 0, 1_000_000
    if at < end and text[at] == _POINT:
        at += 1
        while at < end and scale > 1 and _ZERO <= text[at] <= _NINE:
            micros = 10 * micros + (text[at] - _ZERO)
            scale //= 10
            at += 1
        if scale == 1_000_000:
            return NO_INSTANT
    minutes = 0
    if at == end:
        if not zone_may_lack:
            return NO_INSTANT
    elif end - at == 1 and text[at] == _Z:
        pass
    elif end - at == _OFFSET_LENGTH and text[at + 3] == _COLON:
        hours, minutes = _two(text, at + 1), _two(text, at + 4)
        if not 0 <= hours < _OFFSET_HOURS or not 0 <= minutes < 60:
            return NO_INSTANT
        minutes += 60 * hours
        if text[at] == _PLUS:
            minutes = -minutes
        elif text[at] != _MINUS:
            return NO_INSTANT
    else:
        return NO_INSTANT
    # Years that begin in March: the day that some have more is then their last.
    shifted = year - (month <= 2)
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400
    days += (153 * ((month + 9) % 12) + 2) // 5 + day - 1 - _DAYS_BEFORE_1970
    seconds = ((24 * days + hour) * 60 + minute + minutes) * 60 + second
    return seconds * 1_000_000 + micros * scale


@njit(cache=True, inline="always")
def _two(text, at):
    """The number of two digits, or a negative one."""
    tens, ones = np.int64(text[at]) - _ZERO, np.int64(text[at + 1]) - _ZERO
    return 10 * tens + ones if 0 <= tens <= 9 and 0 <= ones <= 9 else -1


@njit(cache=True)
def code(data, starts, lengths, valid, table, codes, firsts):
    """Number texts in the order in which they occur; how many there are.

    `table` has a power of two of places, all -1; `firsts` gets the first row of each text.
    """
    text = bool_pointer_at(data.ctypes.data)
    mask = len(table) - 1
    count = 0
    for row in range(len(codes)):
        if not valid[row]:
            continue
        start, length = starts[row], lengths[row]
        mixed = np.uint64(length)
        for at in range(start, start + length):
            mixed = (mixed ^ np.uint64(text[at])) * np.uint64(0x9E3779B97F4A7C15)
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
                same = text[other + at] == text[start + at]
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

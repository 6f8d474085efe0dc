"""From columns to cells: one pass over the rows that somebody reads.

A column comes as a record: its target, how to encode it, and where its values, null mask and
dictionary mapping lie. Rows are done in blocks, so that writing a row's cells one column after the
other stays within the cache.
"""

from __future__ import annotations

import numpy as np

from concordant.correlate.compiled.jit import (
    bool_pointer_at,
    compiled,
    float_pointer_at,
    int32_pointer_at,
    pointer_at,
)
from concordant.correlate.compiled.layout import (
    NULL,
    PLAN_SIEVE,
    SIEVE_COLUMN,
    SIEVE_HIGH,
    SIEVE_LOW,
    SIEVE_SIZE,
    SOURCE_BOOL,
    SOURCE_FLOAT,
    SOURCE_HOW,
    SOURCE_INT,
    SOURCE_MAPPING,
    SOURCE_NULL,
    SOURCE_TARGET,
    SOURCE_VALID,
    SOURCE_VALUES,
)
from concordant.correlate.compiled.values import encode_float

_BLOCK_ROWS = 512
_TURNS = 4


@compiled
def select(topics, mapping, counts, selection, codes):
    """The rows of the topics that somebody reads, with their codes, counted by code; how many.

    `mapping` gives the others the code after the last, so that no row makes a branch. Rows take
    turns at counting: one that counts the same topic as the row before would wait for it.
    """
    unread = len(counts) - 1
    tallies = np.zeros((_TURNS, len(counts)), np.int64)
    found = 0
    for row in range(len(topics)):
        code = mapping[topics[row]]
        selection[found] = row
        codes[found] = code
        tallies[row % _TURNS, code] += 1
        found += code < unread
    counts += tallies.sum(axis=0)
    return found


@compiled
def select_all(topics, mapping, counts, codes):
    """The same where somebody reads every topic."""
    tallies = np.zeros((_TURNS, len(counts)), np.int64)
    for row in range(len(topics)):
        code = mapping[topics[row]]
        codes[row] = code
        tallies[row % _TURNS, code] += 1
    counts += tallies.sum(axis=0)


@compiled
def sieve(plan, codes, selection, count, cells_array, start):
    """Let go of the encoded rows that no reader of their topic admits; how many are left.

    A test that half of the events pass is dear where a branch depends on it; here none does.
    """
    width = cells_array.shape[1]
    cells = pointer_at(cells_array.ctypes.data)
    records = plan[PLAN_SIEVE]
    kept = start * width
    found = 0
    for i in range(count):
        record = records + codes[i] * SIEVE_SIZE
        row = (start + i) * width
        value = cells[row + plan[record + SIEVE_COLUMN]]
        for column in range(width):
            cells[kept + column] = cells[row + column]
        codes[found] = codes[i]
        selection[found] = selection[i]
        passes = (value >= plan[record + SIEVE_LOW]) & (value <= plan[record + SIEVE_HIGH])
        found += passes
        kept += width if passes else 0
    return found


@compiled
def encode(sources, selection, count, cells_array, start):
    """Write the selected rows into the cells from row `start` on; no selection is all rows."""
    width = cells_array.shape[1]
    cells = pointer_at(cells_array.ctypes.data)
    everything = len(selection) == 0
    for block in range(0, count, _BLOCK_ROWS):
        stop = min(block + _BLOCK_ROWS, count)
        for s in range(len(sources)):
            target = (start + block) * width + sources[s, SOURCE_TARGET]
            how = sources[s, SOURCE_HOW]
            if how == SOURCE_NULL:
                for _ in range(block, stop):
                    cells[target] = NULL
                    target += width
            elif how == SOURCE_INT:
                ints = pointer_at(sources[s, SOURCE_VALUES])
                for i in range(block, stop):
                    cells[target] = ints[i if everything else selection[i]]
                    target += width
            elif how == SOURCE_FLOAT:
                floats = float_pointer_at(sources[s, SOURCE_VALUES])
                for i in range(block, stop):
                    cells[target] = encode_float(floats[i if everything else selection[i]])
                    target += width
            elif how == SOURCE_BOOL:
                bools = bool_pointer_at(sources[s, SOURCE_VALUES])
                for i in range(block, stop):
                    cells[target] = 1 if bools[i if everything else selection[i]] else 0
                    target += width
            else:
                codes = int32_pointer_at(sources[s, SOURCE_VALUES])
                mapping = pointer_at(sources[s, SOURCE_MAPPING])
                for i in range(block, stop):
                    code = codes[i if everything else selection[i]]
                    cells[target] = mapping[code] if code >= 0 else NULL
                    target += width
            if sources[s, SOURCE_VALID] != 0:
                valid = bool_pointer_at(sources[s, SOURCE_VALID])
                target = (start + block) * width + sources[s, SOURCE_TARGET]
                for i in range(block, stop):
                    if not valid[i if everything else selection[i]]:
                        cells[target] = NULL
                    target += width

"""The total order of a table: by (time, source, seq).

Two questions only: put a batch into the order, and find the first row that breaks it. Whether an
unordered input is an error is for the caller to say.
"""

from __future__ import annotations

import numpy as np

from concordant.correlate.columns import Batch


def in_order(batch: Batch) -> Batch:
    """The batch in total order; the same batch if it already is."""
    return batch if first_unordered(batch) is None else batch.take(batch.order())


def first_unordered(batch: Batch) -> int | None:
    """The first row that belongs before its predecessor, if any."""
    time, seq = batch.time, batch.seq
    wrong = time[1:] < time[:-1]
    tied = np.flatnonzero(time[1:] == time[:-1])
    if len(tied):
        rank = batch.source_rank()
        before, after = rank[tied], rank[tied + 1]
        wrong[tied] = (after < before) | ((after == before) & (seq[tied + 1] <= seq[tied]))
    return int(np.argmax(wrong)) + 1 if wrong.any() else None

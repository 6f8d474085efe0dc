"""The core on Spark, without Spark: rows of one bucket in, relations out, state carried along.

`Bucket` is that function with its state open between calls: a batch task gives it the sorted rows
of all its buckets in pieces; a micro-batch opens it from bytes, gives it what came and closes it
again. `step` is the whole in one call. Any cut of the same released sequence gives the same
relations, because the kernel promises that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from concordant.correlate.columns import Array, Batch
from concordant.correlate.found import Found
from concordant.correlate.kernel import Kernel
from concordant.errors import UsageError
from concordant.files.arrow import texts_of
from concordant.files.order import in_order
from concordant.model.kind import INT_MAX, INT_MIN
from concordant.spark.job import Job
from concordant.spark.relations import answer_schema, found_table, rejected_table, told
from concordant.spark.repeats import Seen, ids_by_key
from concordant.spark.rows import (
    MARK,
    SEQ,
    SET,
    SOURCE,
    TIME,
    TOPIC,
    UNREADABLE,
    Rejected,
    batch_of,
    came,
    packed,
    unpacked,
)
from concordant.spark.state import BucketState, seal, unseal
from concordant.spark.ties import all_but_first, by_content, in_chunks, same_places, tied_rows
from concordant.spark.users import heard_before, used_before, uses

CHUNK = 1 << 18
"""Rows given to the kernel at once: its work space stays small, its relations come in pieces."""

DICTIONARY_MAX = CHUNK // 8
"""Texts that come as codes are no more than this: each chunk carries all of them along."""

AGAIN = "the log's number was there before"
"""Why a row of a log is set aside."""

RELATIONS = "relations of "
"""Before the name of a subscription: how a count of its relations is called."""


EVENTS_OF = "events of "
"""Before the name of a topic: how a count of its events is called."""

OVER_BUDGET = "over_budget of "
"""Before the name of a subscription: how a count of its long searches is called."""


class Bucket:
    """One bucket (or, in batch, all buckets of a task): a kernel for each set of subscriptions."""

    def __init__(self, job: Job, saved: bytes | None = None) -> None:
        self.job = job
        if saved is None:
            self.state = BucketState()
        else:
            self.state = unseal(saved)
            _refuse_another(self.state.fingerprints, job)
        self.state.fingerprints = list(job.fingerprints)
        kernels = self.state.kernels
        kernels += [None] * (len(job.sets) - len(kernels))
        for index in job.dead_sets:
            kernels[index] = None
        self._kernels: list[Kernel | None] = [None] * len(job.sets)
        seen = [*self.state.seen, *[b""] * len(job.sets)][: len(job.sets)]
        self._seen = [Seen(job.unique_us, one) for one in seen] if job.unique_us else []
        self.counts: Counter[str] = Counter()
        """What was done since it was last told; of sizes, what they were then, as a negative."""
        self.counts.subtract(_sizes(saved or b"", self.state))

    def take(self, table: Any) -> Any:
        """Match rows that come after all rows taken before, also in their place; the answers."""
        tables = []
        for index, mine in _by_set(self.job, table):
            for rows in in_chunks(mine, CHUNK, time_ordered=self.job.time_ordered):
                tables += self._take(index, rows)
        return pa.concat_tables([answer_schema(self.job).empty_table(), *tables])

    def _take(self, index: int, table: Any) -> list[Any]:
        batch, rejected = batch_of(self.job, table)
        rejected = _not_heard_before(self.job, index, rejected)
        ordered = in_order(batch) if self.job.time_ordered else batch
        batch, repeated = self._without_repeats(index, ordered)
        answers: list[Any] = []
        if not self.job.time_ordered:  # a log may say again what it said
            answers, repeated = self.set_aside(repeated), []
        if self._seen and len(batch):
            batch, again = self._without_known_ids(index, batch)
            repeated += again
        answers += self.reject(rejected + repeated)
        if len(batch):
            found = self._kernel(index).step(batch)
            self.counts["events"] += len(batch)
            for code, count in enumerate(np.bincount(batch.topic).tolist()):
                if count:
                    self.counts[f"{EVENTS_OF}{batch.topic_names[code]}"] += count
            table = self._heard(found_table(self.job, found))
            if table.num_rows:
                self._count(found)
                answers.append(table)
        return answers

    def _kernel(self, index: int) -> Kernel:
        kernel = self._kernels[index]
        if kernel is None:
            kernel = Kernel(self.job.plans[index], time_ordered=self.job.time_ordered)
            saved = self.state.kernels[index]
            if saved is not None:
                kernel.load(saved)
                self.counts.subtract(_warnings(kernel))
            self._kernels[index] = kernel
        return kernel

    def _heard(self, relations: Any) -> Any:
        """Relations of subscriptions that somebody still wants."""
        if not self.job.muted:
            return relations
        muted = pa.array(sorted(self.job.muted))
        unheard = pa.compute.is_in(relations.column("subscription"), muted)
        return relations.filter(pa.compute.invert(unheard))

    def _count(self, found: Found) -> None:
        for stage, records in enumerate(found.stages):
            for place, count in enumerate(np.bincount(records.subscription).tolist()):
                name = found.plan.subscriptions[found.first[stage] + place].name
                if count and name not in self.job.muted:
                    self.counts[f"{RELATIONS}{name}"] += count

    def _without_repeats(self, index: int, batch: Batch) -> tuple[Batch, list[Rejected]]:
        """Of events with one place in the order one is kept in each partition, by what they say.

        An exact copy is lost to all sets that can use it, and told by the first of them.
        """
        same = same_places(batch, time_ordered=self.job.time_ordered)
        if not same.any():
            return batch, []
        one = self.job.sets[index]
        read = {
            name for topic in self.job.plans[index].schemas.values() for name in topic.attributes
        }
        batch, copies = by_content(batch, same, read)
        tied = tied_rows(same)
        rows, same = batch.take(tied), same[tied]
        lost = all_but_first(rows, same, one.key, uses(one, rows))
        told = lost & ~(copies[tied] & used_before(self.job, index, rows))
        kept = np.ones(len(batch), np.bool_)
        kept[tied[lost]] = False
        what = "another event has the same time, source and seq" if self.job.time_ordered else AGAIN
        return batch.take(kept), [
            _rejected(rows, int(row), "repeated", what) for row in np.flatnonzero(told)
        ]

    def _without_known_ids(self, index: int, batch: Batch) -> tuple[Batch, list[Rejected]]:
        ids = ids_by_key(batch, self.job.sets[index].key)
        again = self._seen[index].again(ids, batch.time)
        what = "an event with the same id was there shortly before"
        return batch.take(~again), [
            _rejected(batch, int(row), "repeated", what) for row in np.flatnonzero(again)
        ]

    def reject(self, rejected: list[Rejected]) -> list[Any]:
        """Tell what was set aside, or end the run if that is what the caller wants."""
        for one in rejected:
            if not self.job.skip_bad:
                where = f"{one.source}:{one.seq}" if one.seq is not None else f"{one.source}"
                raise UsageError(
                    f"a row cannot be an event: {one.reason} (topic {one.topic}, event {where})",
                    hint="correct or drop the row, or set such rows aside with bad='skip'",
                )
        return self.set_aside(rejected)

    def set_aside(self, rejected: list[Rejected]) -> list[Any]:
        """Tell rows that are late or no events, whatever the caller wants of bad ones."""
        self.counts.update(one.what for one in rejected)
        return [rejected_table(self.job, rejected)] if rejected else []

    def told(self, state: bytes) -> dict[str, int]:
        """What was done since the last time, and by how much the state has grown."""
        sizes = Counter(_sizes(state, self.state))
        for kernel in self._kernels:
            if kernel is not None:
                sizes.update(_warnings(kernel))
        told = self.counts
        told.update(sizes)
        self.counts = Counter()
        self.counts.subtract(sizes)
        return dict(told)

    def save(self) -> bytes:
        """The state as bytes."""
        for index, kernel in enumerate(self._kernels):
            if kernel is not None:
                self.state.kernels[index] = kernel.save()
        self.state.seen = [one.save() for one in self._seen]
        return seal(self.state)


def _refuse_another(fingerprints: list[str], job: Job) -> None:
    if tuple(fingerprints) != job.fingerprints[: len(fingerprints)]:
        raise UsageError(
            "the checkpoint was begun with another question, or with other kinds of attributes or "
            "settings (release, unique), and what is kept in it would be wrong",
            hint="go on as it was begun, or give another checkpoint folder",
        )


def step(
    job: Job, saved: bytes | None, table: Any, *, until_us: int = INT_MAX
) -> tuple[bytes, Any]:
    """Hold back what came, release what is older than `until_us`, and match it.

    A log's rows (`job.time_ordered` is false) are released at once, by their seq.
    """
    bucket = Bucket(job, saved)
    answers = advance(bucket, table, until_us=until_us)
    return bucket.save(), answers


def advance(
    bucket: Bucket, table: Any, *, until_us: int, marks: Mapping[str, int] | None = None
) -> Any:
    """`step` on a bucket that is open; progress marks among the rows are no events.

    `marks` say how far a log has come with this step in all buckets; None: there is no other.
    """
    is_mark = pa.compute.fill_null(pa.compute.equal(table.column(TOPIC), MARK), False)
    _, table = _parted(table, is_mark)
    if bucket.job.time_ordered:
        released, late = _released(bucket, table, until_us)
    else:
        if marks is None:
            marks = dict(came(table, time_ordered=False))
        released, late = _logged(bucket.state, table, marks)
    found = [_told(bucket, late, what) for what, late in late.items() if late.num_rows]
    return pa.concat_tables([bucket.take(released), *found])


def _released(bucket: Bucket, table: Any, until_us: int) -> tuple[Any, Mapping[str, Any]]:
    """Held rows and new ones before a time, and the new ones that are too late for their place."""
    state = bucket.state
    late = pa.compute.fill_null(pa.compute.less(table.column(TIME), state.released_us), False)
    too_late, table = _parted(table, late)
    if state.held:
        # Columns may have come or gone with subscriptions since then.
        both = pa.concat_tables([_held(bucket), table], promote_options="default")
        table = both.select(table.column_names)
    due = pa.compute.less(table.column(TIME), max(until_us, state.released_us))
    for name in (TIME, SOURCE, SEQ):  # one of them is missing: told at once that it is no event
        if table.column(name).null_count:
            due = pa.compute.or_kleene(due, table.column(name).is_null())
    ready, waiting = _parted(table, due)
    state.held = packed(waiting) if waiting.num_rows else b""
    state.held_count = waiting.num_rows
    state.topics = [topic.name for topic in bucket.job.topics]
    state.released_us = max(until_us, state.released_us)
    return in_total_order(ready), {"late": too_late}


def _held(bucket: Bucket) -> Any:
    """The rows that wait; their codes are those of the topics that the job has now."""
    rows, names = unpacked(bucket.state.held), [topic.name for topic in bucket.job.topics]
    if bucket.state.topics == names:
        return rows
    code = {name: place for place, name in enumerate(names)}
    # An added subscription may read a topic that comes before others in the alphabet.
    places = [UNREADABLE, MARK, *(code[name] for name in bucket.state.topics)]
    column = pa.compute.subtract(rows.column(TOPIC), UNREADABLE)
    moved = pa.array(places, pa.int32()).take(column.combine_chunks())
    return rows.set_column(rows.schema.get_field_index(TOPIC), TOPIC, moved)


def _parted(table: Any, chosen: Any) -> tuple[Any, Any]:
    """The rows that are chosen, and the others; where all go one way, nothing is copied."""
    count = pa.compute.sum(chosen).as_py() or 0
    if not count:
        return table.slice(0, 0), table
    if count == table.num_rows:
        return table, table.slice(0, 0)
    return table.filter(chosen), table.filter(pa.compute.invert(chosen))


def _logged(
    state: BucketState, table: Any, marks: Mapping[str, int]
) -> tuple[Any, Mapping[str, Any]]:
    """A log's rows by number, and those whose number was released before."""
    table = _sorted(table, (SEQ,))
    sources = {*marks, *table.column(SOURCE).unique().drop_null().to_pylist()}
    state.source = state.source or min(sources, default="")
    foreign = sorted(sources - {state.source})
    if foreign:
        raise UsageError(
            f"'log' takes the numbers of one source for the order, and there are "
            f"'{state.source}' and '{foreign[0]}'",
            hint="release by 'frontier' or 'watermark', or correlate each source on its own",
        )
    fresh = pa.compute.fill_null(pa.compute.greater(table.column(SEQ), state.last_seq), True)
    released, again = _parted(table, fresh)
    state.last_seq = max(state.last_seq, *marks.values(), INT_MIN)
    return released, {"repeated": again}


def in_total_order(table: Any) -> Any:
    """Travelling rows by (time, source, seq)."""
    if any(table.column(name).null_count for name in (TIME, SOURCE, SEQ)):
        return _sorted(table, (TIME, SOURCE, SEQ))
    time = table.column(TIME).to_numpy()
    if bool(np.all(time[1:] > time[:-1])):
        return table
    order = np.argsort(time, kind="stable")  # quick for a few runs, each in order
    ordered = time[order]
    if bool(np.all(ordered[1:] > ordered[:-1])):
        return table.take(order)
    seq, rank = table.column(SEQ).to_numpy(), _ranked(table.column(SOURCE))
    if _is_ordered(time, rank, seq):
        return table
    return table.take(np.lexsort((seq, rank, time)))


def _ranked(texts: Any) -> Array:
    """Texts as numbers that compare as they do."""
    known = texts_of(texts)
    names = known.dictionary
    rank = np.empty(len(names), np.int32)
    rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return rank[known.values]


def _is_ordered(time: Array, rank: Array, seq: Array) -> bool:
    """Does no row belong before the one that it follows?"""
    before = seq[1:] < seq[:-1]
    for values in (rank, time):
        before = (values[1:] < values[:-1]) | ((values[1:] == values[:-1]) & before)
    return not before.any()


def _sorted(table: Any, names: tuple[str, ...]) -> Any:
    keys = table.select(names)
    for index, field in enumerate(keys.schema):
        if pa.types.is_dictionary(field.type):
            keys = keys.set_column(index, field.name, keys.column(index).cast(pa.string()))
    order = [(name, "ascending") for name in names]
    return table.take(pa.compute.sort_indices(keys, sort_keys=order))


def _told(bucket: Bucket, table: Any, what: str) -> Any:
    """Tell events that came too late or again, each by the first set that can use it."""
    reason = {
        "late": "it came after events that follow it had been released",
        "repeated": AGAIN,
    }[what]
    tables: list[Any] = []
    for index, mine in _by_set(bucket.job, table):
        batch, rejected = batch_of(bucket.job, mine)
        tables += bucket.reject(_not_heard_before(bucket.job, index, rejected))
        rows = np.flatnonzero(~used_before(bucket.job, index, batch))
        tables += bucket.set_aside([_rejected(batch, int(row), what, reason) for row in rows])
    return pa.concat_tables([answer_schema(bucket.job).empty_table(), *tables])


def _by_set(job: Job, table: Any) -> Iterator[tuple[int, Any]]:
    """The rows of each set that somebody still wants."""
    for index in range(len(job.sets)):
        if index not in job.dead_sets:
            mine = table
            if len(job.sets) > 1:
                mine = table.filter(pa.compute.equal(table.column(SET), index))
            yield index, mine


def _not_heard_before(job: Job, index: int, rejected: list[Rejected]) -> list[Rejected]:
    """Rows that are no events, without those that an earlier set tells."""
    return [one for one in rejected if not heard_before(job, index, one.topic)]


def _rejected(batch: Batch, row: int, what: str, reason: str) -> Rejected:
    """An event that is set aside."""
    return Rejected(
        what,
        reason,
        batch.topic_names[batch.topic[row]],
        str(batch.source.value(row)),
        int(batch.seq[row]),
        int(batch.time[row]),
        {key: column.value(row) for key, column in batch.attributes.items()},
    )


def counted(opened: Bucket, state: bytes) -> Any:
    """One row with what a bucket did since it was opened."""
    return told(opened.job, "counts", opened.told(state))


def _sizes(saved: bytes, state: BucketState) -> dict[str, int]:
    return {"state_bytes": len(saved), "held": state.held_count}


def _warnings(kernel: Kernel) -> dict[str, int]:
    """What a kernel counted, over its whole life, that people should hear of."""
    counters = kernel.counters
    long = {f"{OVER_BUDGET}{name}": n for name, one in counters.items() if (n := one.over_budget)}
    return {"capped": sum(one.capped for one in counters.values()), **long}

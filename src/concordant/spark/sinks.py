"""Sinks of a pipeline: what becomes of a micro-batch's answers.

Every sink is idempotent: a micro-batch that is written again takes the place of what it wrote
before (a folder or file named after it), or says the same ids again (Kafka, the terminal). A plain
table is micro-batch 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from concordant.files.atomic import atomic_output
from concordant.spark.correlate import by_slot, relations
from concordant.spark.job import Job
from concordant.spark.outputs import name_of
from concordant.spark.pipeline import Pipeline, Sink
from concordant.spark.relations import key_and_ordinal

Show = Callable[[list[dict[str, Any]]], None]
"""Shows some relations to a person."""

Counted = dict[str, int]

_EVENT_IDS = "transform(events, event -> event.id) as events"


def relation_line(row: Any) -> str:
    """One relation as the line of JSON that `concordant correlate` prints."""
    key, _ = key_and_ordinal(row)
    line: dict[str, Any] = {
        "subscription": row["subscription"],
        "conjunction": row["conjunction"],
    }
    if key:
        line["key"] = msgspec.Raw(key.encode())
    line["position"] = row["position"]
    line["events"] = row["events"]
    return msgspec.json.encode(line).decode()


class Delivery:
    """Writes answers to all sinks of a pipeline."""

    def __init__(self, pipeline: Pipeline, job: Job, show: Show, time_ordered: bool) -> None:
        self._pipeline = pipeline
        self._job = job
        self._show = show
        self._order = (*(("at", "tie") if time_ordered else ("tie.seq", "tie.rank")), "id")

    def __call__(self, answers: DataFrame, batch: int) -> None:
        keeps = self._reads > 1 and not answers.is_cached
        if keeps:
            answers.persist()
        try:
            found = relations(answers)
            for sink in self._pipeline.sink:
                _WRITERS[sink.kind](self, sink, found, batch)
            if self._pipeline.bad.path:
                self._set_aside(answers, batch)
        finally:
            if keeps:
                answers.unpersist()

    @property
    def _reads(self) -> int:
        """How often the answers are read; JSON Lines are sorted by ranges, which looks twice."""
        kinds = [one.kind for one in self._pipeline.sink]
        return len(kinds) + kinds.count("jsonl") + bool(self._pipeline.bad.path)

    def _set_aside(self, answers: DataFrame, batch: int) -> None:
        rejected = answers.filter(F.col("what").isin("bad", "late", "repeated"))
        event = F.get(F.col("events"), F.lit(0))
        columns = [event[name].alias(name) for name in ("topic", "source", "seq", "time")]
        shown = [event[field].alias(field) for field, _ in self._job.fields]
        if shown:
            columns.append(F.struct(*shown).alias("attributes"))
        rows = rejected.select("what", "reason", *columns).coalesce(1)
        rows.write.mode("overwrite").json(self._folder(self._pipeline.bad.path, batch))

    def _folder(self, path: str, batch: int) -> str:
        return f"{self._pipeline.at(path)}/{name_of('parquet', batch)}"

    def parquet(self, sink: Sink, found: DataFrame, batch: int) -> None:
        # Subscriptions of a stream come and go, and its folder has one layout.
        written = by_slot(found, self._job) if self._pipeline.stream is None else found
        written.write.mode("overwrite").parquet(self._folder(sink.path, batch))

    def jsonl(self, sink: Sink, found: DataFrame, batch: int) -> None:
        folder = Path(self._pipeline.at(sink.path))
        folder.mkdir(parents=True, exist_ok=True)
        shown = ["subscription", "conjunction", "id", "position", _EVENT_IDS]
        rows = found.orderBy(*self._order).selectExpr(*shown).toLocalIterator()
        with (
            atomic_output(folder / name_of(sink.kind, batch), overwrite=True) as temporary,
            temporary.open("w", encoding="utf-8", newline="\n") as stream,
        ):
            stream.writelines(relation_line(row) + "\n" for row in rows)

    def table(self, sink: Sink, found: DataFrame, batch: int) -> None:
        del batch
        at = "date_format(at, 'yyyy-MM-dd HH:mm:ss') as at"
        shown = ["subscription", "key", "position", at, _EVENT_IDS]
        rows = found.orderBy(*self._order).limit(sink.rows).selectExpr(*shown).collect()
        self._show([row.asDict() for row in rows])

    def kafka(self, sink: Sink, found: DataFrame, batch: int) -> None:
        """The relations of one subscription and partition value share a key, and keep their order.

        One task writes them: two would overtake each other.
        """
        del batch
        key = F.regexp_replace("id", "/[0-9]+$", "").alias("key")
        shown = [name for name in found.columns if name != "tie"]
        lines = found.repartition(1).sortWithinPartitions(*self._order)
        lines = lines.select(key, F.to_json(F.struct(*shown)).alias("value"))
        writer = lines.write.format("kafka").option("kafka.bootstrap.servers", sink.servers)
        writer.option("topic", sink.kafka_topic).save()


_WRITERS: dict[str, Callable[[Delivery, Sink, DataFrame, int], None]] = {
    "parquet": Delivery.parquet,
    "jsonl": Delivery.jsonl,
    "table": Delivery.table,
    "kafka": Delivery.kafka,
}


def counted(answers: DataFrame) -> Counted:
    """What the buckets did, by their own counts."""
    totals: Counter[str] = Counter()
    for row in answers.filter(F.col("what") == "counts").select("reason").collect():
        totals.update(msgspec.json.decode(row[0], type=Counted))
    return dict(totals)

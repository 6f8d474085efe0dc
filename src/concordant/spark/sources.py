"""Sources of a pipeline as DataFrames: files, directories that grow, Kafka, the market generator.

Knows formats, where `source` and `seq` come from where a format numbers its rows, and how a format
says that it cannot read a row. What the columns mean is `schema`'s business.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from concordant.errors import UsageError
from concordant.spark.pipeline import Pipeline, Source, Streaming, release_of_stream
from concordant.spark.schema import UNREADABLE_COLUMN
from concordant.spark.session import cause


def open_source(session: Any, pipeline: Pipeline, source: Source, generated: Any) -> DataFrame:
    """The DataFrame of one source; `generated` makes the folder of a generator."""
    streaming = pipeline.stream is not None
    if source.kind == "kafka":
        return _kafka(session, source, streaming)
    path = generated(source) if source.kind == "generator" else pipeline.at(source.path)
    kind = {"jsonl": "json", "generator": "parquet"}.get(source.kind, source.kind)
    reader = session.readStream if streaming else session.read
    if kind in ("csv", "json"):
        reader = reader.option("columnNameOfCorruptRecord", UNREADABLE_COLUMN)
    if source.kind == "csv":
        reader = reader.options(**_csv_options(source))
    try:
        if source.fields and kind in ("csv", "json"):
            reader = reader.schema(f"{source.fields}, {UNREADABLE_COLUMN} string")
        elif source.fields:
            reader = reader.schema(source.fields)
        elif streaming:
            reader = reader.schema(session.read.format(kind).load(path).schema)
        if streaming:
            reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
        frame = reader.format(kind).load(path)
        numbered = _numbered(frame, source, kind)
    except AnalysisException as error:
        raise UsageError(
            f"the source cannot be opened: {cause(error).message}",
            hint="check the path and the format",
            place=path,
        ) from None
    if pipeline.stream is not None and source.source not in frame.columns and numbered is not frame:
        _refuse_endless(pipeline.stream, path)
    return numbered


def _refuse_endless(settings: Streaming, path: str) -> None:
    """A file that was read says nothing any more, and a frontier waits for every source."""
    ends = settings.at_end == "release" and settings.trigger == "available-now"
    if settings.idle is None and not ends and release_of_stream(settings).mode == "frontier":
        raise UsageError(
            "each of these files is a source of its own, having no columns that say source and "
            "seq, and a frontier would wait for the first one for ever",
            hint="name a column as source, or say idle = '1 min', release = 'watermark 10 s', or "
            "at_end = 'release'",
            place=path,
        )


def _csv_options(source: Source) -> dict[str, Any]:
    """How Spark cuts CSV files. It compares every header with the columns that it expects: by
    itself it would take columns that stand elsewhere for those that are named."""
    return {
        "header": source.header,
        "enforceSchema": not source.header,
        "inferSchema": not source.fields,
        "sep": source.separator,
        "escape": '"',
        "multiLine": source.multiline,
    }


def _numbered(frame: DataFrame, source: Source, kind: str) -> DataFrame:
    """Parquet files number their rows, which serves where the events have no numbers."""
    if kind != "parquet" or source.seq in frame.columns:
        return frame
    numbered = frame.withColumn(source.seq, F.col("_metadata.row_index") + 1)
    if source.source in frame.columns:
        return numbered
    return numbered.withColumn(source.source, F.col("_metadata.file_path"))


def _kafka(session: Any, source: Source, streaming: bool) -> DataFrame:
    """Messages of JSON; a partition of the topic is a source, its offsets are the numbers."""
    reader = (session.readStream if streaming else session.read).format("kafka")
    reader = reader.option("kafka.bootstrap.servers", source.servers)
    reader = reader.option("subscribe", source.kafka_topic).option("startingOffsets", "earliest")
    if streaming:
        reader = reader.option("maxOffsetsPerTrigger", source.rows_per_batch)
    fields = f"{source.fields}, {UNREADABLE_COLUMN} string"
    options = {"columnNameOfCorruptRecord": UNREADABLE_COLUMN}
    body = F.from_json(F.col("value").cast("string"), fields, options).alias("body")
    log = F.concat_ws("-", F.col("topic"), F.col("partition"))
    frame = reader.load().select(
        body, log.alias("__source"), F.col("offset").alias("__seq"), F.col("timestamp")
    )
    names = [*frame.schema["body"].dataType.fieldNames()]
    names.remove(UNREADABLE_COLUMN)
    broken = F.when(F.col("body").isNull(), F.lit("")).otherwise(F.col(f"body.{UNREADABLE_COLUMN}"))
    columns = [*(F.col(f"body.`{name}`") for name in names), broken.alias(UNREADABLE_COLUMN)]
    if source.source not in names:
        columns.append(F.col("__source").alias(source.source))
    if source.seq not in names:
        columns.append(F.col("__seq").alias(source.seq))
    if source.time not in names:
        columns.append(F.col("timestamp").alias(source.time))
    found: DataFrame = frame.select(*columns)
    return found

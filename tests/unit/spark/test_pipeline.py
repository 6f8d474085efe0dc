"""Pipelines are checked before Spark starts, and errors name file, table and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.spark.pipeline import Pipeline, read_pipeline, trigger_of

GOOD = """
[question]
subscriptions = "A then B"
[[source]]
kind = "parquet"
path = "in"
[[sink]]
kind = "table"
"""
STREAM = '[stream]\ncheckpoint = "c"\nrelease = "frontier"\n'


def read(folder: Path, text: str) -> Pipeline:
    path = folder / "pipe.toml"
    path.write_text(text)
    return read_pipeline(path)


def test_a_good_file_gives_a_pipeline_with_paths_beside_it(tmp_path: Path) -> None:
    pipeline = read(tmp_path, GOOD)
    assert pipeline.name == "pipe"
    assert pipeline.at("in") == str(tmp_path / "in")
    assert pipeline.at("s3://bucket/in") == "s3://bucket/in"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question = 1", "pipe.toml: question: Expected `object`"),
        (GOOD.replace('path = "in"', "path = 1"), "source 1, path: Expected `str`"),
        (GOOD.replace('path = "in"', ""), "source 1: a parquet source needs a path"),
        (GOOD.replace('"parquet"', '"tape"'), "source 1, kind: Invalid enum value 'tape'"),
        (GOOD + "colour = 3\n", "sink 1: it contains unknown field `colour`"),
        (GOOD + STREAM.replace("frontier", "soon"), "'soon' is no way to release events"),
        (GOOD + STREAM + 'trigger = "often"\n', "stream.trigger 'often' is unknown"),
        (GOOD.replace("A then B", "A then"), "expected"),
        (GOOD.replace('"parquet"', '"kafka"'), "needs servers, kafka_topic and fields"),
        (GOOD.replace('"parquet"', '"csv"') + STREAM, "needs its columns beforehand"),
        (GOOD + STREAM + '[spark]\nmaster = "sc://h"\n', "does not run through Spark Connect"),
        (
            GOOD + '[[sink]]\nkind = "jsonl"\npath = "in/out"\n',
            "sink 2 and source 1 lie in one folder",
        ),
        (
            GOOD + STREAM + '[bad]\npath = "./c"\n',
            "[bad] path and the checkpoint lie in one folder",
        ),
        ("[[", "it is no TOML"),
    ],
)
def test_a_slip_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as told:
        read(tmp_path, text)
    assert message in str(told.value)


def test_triggers_are_spark_s(tmp_path: Path) -> None:
    stream = read(tmp_path, GOOD + STREAM).stream
    assert stream is not None
    assert trigger_of(stream) == {"availableNow": True}
    stream.trigger = "10 s"
    assert trigger_of(stream) == {"processingTime": "10 seconds"}


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such pipeline file"):
        read_pipeline(tmp_path / "none.toml")

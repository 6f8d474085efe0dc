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
        ("question = 1", "pipe.toml: question: it is a table\n  try: begin it with [question]"),
        ("", "pipe.toml: the table 'question' is missing\n  try: add [question]"),
        (GOOD.replace("[[sink]]", "[[sinks]]"), "there is no table 'sinks'\n  try: did you mean"),
        (
            GOOD.replace("[[source]]", "[source]"),
            "source: there may be several of it\n  try: write",
        ),
        (
            GOOD.replace('path = "in"', "path = 1"),
            'pipe.toml: source 1, path: it is a text, and not 1\n  try: path = "…"',
        ),
        (GOOD.replace('path = "in"', ""), "source 1: the kind parquet needs 'path'"),
        (
            GOOD.replace('"parquet"', '"parket"'),
            "source 1, kind: 'parket' is unknown\n  try: did you mean 'parquet'?",
        ),
        (GOOD + "colour = 3\n", "sink 1: there is no key 'colour'\n  try: the keys there are kind"),
        (GOOD + 'pth = "x"\n', "sink 1: there is no key 'pth'\n  try: did you mean 'path'?"),
        (GOOD + "rows = true\n", "sink 1, rows: it is a whole number, and not true"),
        (GOOD + "rows = 0\n", "sink 1, rows: it is from 1 to 10,000, and not 0\n  try: rows = 1"),
        (GOOD + 'servers = "h:1"\n', "'servers' means nothing to the kind table, but to kafka"),
        (GOOD.replace('"in"', '"in"\nseparator = ";"'), "means nothing to the kind parquet"),
        (GOOD + '[bad]\nrows = "skipp"\n', "bad, rows: 'skipp' is unknown"),
        (GOOD + '[bad]\nunique = "soon"\n', "bad, unique: 'soon' is no duration"),
        (GOOD + STREAM.replace("frontier", "soon"), "stream, release: 'soon' is no way to release"),
        (GOOD + STREAM + 'trigger = "often"\n', "stream, trigger: 'often' is no trigger"),
        (GOOD + STREAM + 'trigger = "0 s"\n', "stream, trigger: '0 s' is no trigger"),
        (GOOD + STREAM + "buckets = 5000\n", "stream, buckets: it is from 1 to 4,096"),
        (GOOD + STREAM + 'sources = "a"\n', "stream, sources: it is a list of texts, and not 'a'"),
        (GOOD + "[question.more]\nx = 1\n", "question: there is no key 'more'"),
        (GOOD.replace("A then B", "A then"), "pipe.toml: question, subscriptions, 1:"),
        (GOOD.replace('"parquet"', '"csv"\nheader = false'), "without a header need the names"),
        (GOOD.replace('"parquet"', '"csv"\nseparator = "::"'), "separator: it is one character"),
        (GOOD.replace('"parquet"\npath', '"kafka"\nfields'), "the kind kafka needs 'servers'"),
        (GOOD.replace('"parquet"', '"csv"') + STREAM, "needs its columns beforehand"),
        (GOOD + STREAM + '[spark]\nmaster = "sc://h"\n', "does not run through Spark Connect"),
        (GOOD + "[spark]\noptions = { a = [1] }\n", "spark, options: it is a table of texts"),
        (
            GOOD + '[[sink]]\nkind = "jsonl"\npath = "in/out"\n',
            "sink 2 and source 1 lie in one folder",
        ),
        (
            GOOD + '[[source]]\nkind = "generator"\ntopic = "Q"\n'
            '[[sink]]\nkind = "jsonl"\npath = "out/pipe/events/more"\n',
            "sink 2 and source 2 lie in one folder",
        ),
        (GOOD + '[[sink]]\nkind = "jsonl"\npath = "s3://b/out"\n', "a folder that it sees"),
        (GOOD + STREAM.replace('"c"', '"hdfs://n/c"'), "it is a folder that this process"),
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


def test_options_of_spark_may_be_numbers_and_switches(tmp_path: Path) -> None:
    text = (
        GOOD + '[spark.options]\n"spark.sql.shuffle.partitions" = 4\n"spark.ui.enabled" = false\n'
    )
    options = read(tmp_path, text).session_options()
    assert options == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}


def test_triggers_are_spark_s(tmp_path: Path) -> None:
    stream = read(tmp_path, GOOD + STREAM).stream
    assert stream is not None
    assert trigger_of(stream) == {"availableNow": True}
    stream.trigger = "10 s"
    assert trigger_of(stream) == {"processingTime": "10 seconds"}


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such pipeline file"):
        read_pipeline(tmp_path / "none.toml")

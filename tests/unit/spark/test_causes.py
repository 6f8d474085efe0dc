"""What Spark says of a failure, and the sentence that people get of it."""

from __future__ import annotations

import re

import pytest

from concordant.spark.causes import Sentence, chain_of_text, of_log, sentence

STAGE = (
    "Job aborted due to stage failure: Task 1 in stage 12.0 failed 1 times, most recent failure: "
    "Lost task 1.0 in stage 12.0 (TID 19) (10.0.0.2 executor driver): "
)
READING = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a%20b."
QUERY = "[STREAM_FAILED] Query [id = f1a5, runId = 70c1] terminated with exception: "
PYTHON = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent"
CASES: dict[str, tuple[list[str], str, str]] = {
    "columns that stand elsewhere": (
        [
            f"{READING}csv.  SQLSTATE: KD001",
            "CSV header does not conform to the schema.\n Header: b, a\n Schema: a, b\n"
            "Expected: a but found: b\nCSV file: file:///in/a%20b.csv",
        ],
        "/in/a b.csv: the header names a column 'b' where 'a' is expected",
        "in the order of the file (b, a)",
    ),
    "a column too few": (
        [
            f"{READING}csv.  SQLSTATE: KD001",
            "Number of column in CSV header is not equal to number of fields in the schema:\n "
            "Header length: 1, schema size: 2\nCSV file: file:///in/y.csv",
        ],
        "/in/y.csv: the header has 1 columns, and 2 are expected",
        "separator",
    ),
    "a file that is gone": (
        [
            "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file "
            "file:///in/a.parquet. File does not exist. It is possible the underlying files have "
            "been updated.\nYou can explicitly invalidate the cache SQLSTATE: KD001",
            "File file:/in/a.parquet does not exist",
        ],
        "the file /in/a.parquet is gone",
        "put it back",
    ),
    "no Parquet": (
        [
            f"{READING}parquet.  SQLSTATE: KD001",
            "file:/in/a.parquet is not a Parquet file. Expected magic number at tail, but found "
            "[120, 120, 120, 120]",
        ],
        "the file /in/a.parquet is no Parquet file, or a damaged one",
        "repair or remove it",
    ),
    "a damaged page": (
        [
            f"{READING}parquet.  SQLSTATE: KD001",
            "can not read class org.apache.parquet.format.PageHeader: don't know what type: 15",
            "don't know what type: 15",
        ],
        "the file /in/a b.parquet cannot be read: don't know what type: 15",
        "repair or remove it",
    ),
    "another type in Parquet": (
        [
            "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading "
            "file file:///in/a.parquet. Data type mismatches when reading Parquet column [a]. "
            "Expected Spark type bigint, actual Parquet type BINARY. SQLSTATE: KD001",
            "column: [a], physicalType: BINARY, logicalType: bigint",
        ],
        "/in/a.parquet: the column 'a' is stored as BINARY, and bigint is expected",
        "fields",
    ),
    "a full disk": (
        [
            f'{PYTHON} call last):\n  File "x.py", line 3, in f\n    write(x)\n'
            "OSError: [Errno 28] No space left on device: '/out/3.tmp'\n SQLSTATE: 38000"
        ],
        "no space is left on the disk /out/3.tmp",
        "make room",
    ),
    "no permission": (
        [f"{STAGE}java.io.FileNotFoundException: /in/a.csv (Permission denied)"],
        "there is no permission for /in/a.csv",
        "who may read",
    ),
    "a folder that cannot be made": (
        [
            f"{STAGE}java.io.IOException: Mkdirs failed to create file:/proc/x/_temporary/0/y",
            "Mkdirs failed to create file:/proc/x/_temporary/0/y_1 (exists=false, cwd=file:/w)",
        ],
        "the folder /proc/x cannot be made or written to",
        "sink",
    ),
    "a wrong option": (
        [
            "Error while instantiating 'org.apache.spark.sql.internal.SessionStateBuilder':",
            "[INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'many' in the config "
            "\"spark.sql.shuffle.partitions\" is invalid. It should be a/an 'int' value. "
            "SQLSTATE: 22022",
        ],
        "Spark's option spark.sql.shuffle.partitions = 'many' is wrong",
        "[spark.options]",
    ),
    "no such master": (
        ["Could not parse Master URL: 'sparkle://x'"],
        "'sparkle://x' is no master of Spark",
        "local[*]",
    ),
    "Kafka away": (
        [
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node "
            "assignment. Call: listNodes",
            "Timed out waiting for a node assignment. Call: listNodes",
        ],
        "Kafka does not answer",
        "servers",
    ),
    "no such host": (
        [
            "Failed to create new KafkaAdminClient",
            "No resolvable bootstrap urls given in bootstrap.servers",
        ],
        "the servers of Kafka are unknown hosts",
        "servers",
    ),
    "no such topic": (
        ["org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not"],
        "Kafka has no such topic",
        "kafka_topic",
    ),
    "another's checkpoint": (
        [
            f"{QUERY}No usable value for path\nDid not find value which can be converted into "
            "java.lang.String SQLSTATE: XXKST\n=== Streaming Query ===",
            "Did not find value which can be converted into java.lang.String",
        ],
        "the checkpoint is damaged, or belongs to other sources",
        "another checkpoint folder",
    ),
    "a worker that died": (
        [f"{STAGE}org.apache.spark.SparkException: Python worker exited unexpectedly", ""],
        "a Python worker died",
        "local[2]",
    ),
    "no memory": (
        [f"{STAGE}java.lang.OutOfMemoryError: Java heap space", "Java heap space"],
        "the memory does not suffice",
        "spark.driver.memory",
    ),
    "a class of one package": (
        [f"{STAGE}scala.MatchError: no case for 3", "scala.MatchError: no case for 3"],
        "no case for 3",
        "",
    ),
    "a file that is cut off": (
        [f"{READING}csv.  SQLSTATE: KD001", "java.io.EOFException", "", ""],
        "the file /in/a b.csv cannot be read",
        "repair or remove it",
    ),
    "what nobody foresaw": (
        [
            f"{QUERY}{STAGE}java.lang.IllegalStateException: [INTERNAL] it broke SQLSTATE: XX000",
            "java.lang.IllegalStateException: [INTERNAL] it broke SQLSTATE: XX000",
        ],
        "it broke",
        "",
    ),
    "a bug of ours in a worker": (
        [f"{PYTHON} call last):\n  File \"x.py\", line 3, in f\n    f()\nKeyError: 'colour'\n"],
        "KeyError: 'colour'",
        "",
    ),
}


def told(one: Sentence) -> str:
    return f"{one.place}: {one.message}" if one.place else one.message


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_cause_is_told_in_a_sentence_and_without_names_of_classes(case: str) -> None:
    messages, wanted, hint = CASES[case]
    found = sentence(messages)
    assert told(found).startswith(wanted)
    assert hint in found.hint and bool(hint) == bool(found.hint)
    for text in found:
        assert not re.search(r"\b(java|org|scala|io)\.\w+|SQLSTATE|Traceback|\n|TID", str(text))


@pytest.mark.parametrize(
    ("printed", "wanted"),
    [
        ("/opt/bin/spark-class: line 71: /none/bin/java: No such file or directory", "is no Java"),
        ("Invalid maximum heap size: -Xmxlots\nError: Could not create the", "'lots' is wrong"),
        (
            '26/11/19 WARN Utils: odd\nException in thread "main" org.apache.spark.SparkException: '
            "Executor cores must be a positive number\n\tat org.apache.spark.A.b(A.scala:1)",
            "spark.executor.cores must be a positive number",
        ),
        (
            "26/11/19 ERROR SparkUI: Failed to bind\njava.net.BindException: Failed to bind to "
            "/0.0.0.0:34261: Service 'SparkUI' failed after 0 retries",
            "a port that Spark wants is in use: 34261",
        ),
        (
            "WARN Client: no\nCaused by: java.io.IOException: Failed to connect to /127.0.0.1:1\n"
            "26/11/19 ERROR Backend: Application has been killed. Reason: All masters are "
            "unresponsive! Giving up.",
            "the master of Spark at 127.0.0.1:1 does not answer",
        ),
        (
            "26/11/19 WARN Utils: odd\n26/11/19 ERROR SparkContext: Error initializing.\n"
            "org.apache.spark.SparkException: the reason\n\tat org.apache.spark.A.b(A.scala:1)",
            "the reason",
        ),
    ],
)
def test_why_spark_did_not_start_is_found_in_what_it_printed(printed: str, wanted: str) -> None:
    assert wanted in of_log(printed).message


def test_a_stack_that_comes_as_text_is_a_chain_too() -> None:
    text = (
        "Error while instantiating 'org.apache.spark.sql.Builder':\n\nJVM stacktrace:\n"
        "java.lang.IllegalArgumentException: Error while instantiating\n\tat org.A.b(A.scala:1)\n"
        "Caused by: java.lang.Error: the reason\n\tat org.A.c(A.scala:2)\n\t... 3 more\n"
    )
    assert sentence(chain_of_text(text)).message == "the reason"

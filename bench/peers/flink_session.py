"""The Flink side, run by the Python of `.venv-flink`: requests in, measurements out.

One request per line on standard input, one answer per line on standard output, both JSON, so that
the other side can take turns with this one inside one warm JVM. It knows Flink's SQL and nothing
of Concordant, whose packages are not installed here.

A request is {"query": "scan" | "match" | "rows" | "version", "mode": "batch" | "streaming",
"parallelism": N, "path": CSV, "out": directory for "rows"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

QUOTES = """
CREATE TEMPORARY TABLE quotes (
  seq BIGINT, us BIGINT, symbol STRING, `value` DOUBLE, volume BIGINT,
  rowtime AS TO_TIMESTAMP_LTZ(us / 1000, 3),
  WATERMARK FOR rowtime AS rowtime - INTERVAL '0.001' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')
"""

MATCH = """
SELECT symbol, a, b, c FROM quotes MATCH_RECOGNIZE (
  PARTITION BY symbol
  ORDER BY rowtime
  MEASURES A.seq AS a, B.seq AS b, C.seq AS c
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B C)
  DEFINE B AS B.`value` > A.`value`, C AS C.`value` > B.`value`
)
"""

SCAN = "SELECT symbol, seq, rowtime, `value` FROM quotes"
"""Reads the columns that the match reads, and gives every row to a sink that drops it."""

_SINK = {
    "match": "symbol STRING, a BIGINT, b BIGINT, c BIGINT",
    "scan": "symbol STRING, seq BIGINT, rowtime TIMESTAMP_LTZ(3), `value` DOUBLE",
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run one query and say how long its job took."""
    from pyflink.table import (  # type: ignore[import-not-found]
        EnvironmentSettings,
        TableEnvironment,
    )
    from pyflink.version import __version__  # type: ignore[import-not-found]

    if request["query"] == "version":
        return {"version": __version__}
    settings = EnvironmentSettings.new_instance()
    batch = request["mode"] == "batch"
    table = TableEnvironment.create(
        (settings.in_batch_mode() if batch else settings.in_streaming_mode()).build()
    )
    for key, value in {
        "parallelism.default": str(request["parallelism"]),
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
    }.items():
        table.get_config().set(key, value)
    table.execute_sql(QUOTES.format(path=request["path"]))
    kind = "scan" if request["query"] == "scan" else "match"
    connector = "'connector' = 'blackhole'"
    if request["query"] == "rows":
        connector = f"'connector' = 'filesystem', 'path' = '{request['out']}', 'format' = 'csv'"
    table.execute_sql(f"CREATE TEMPORARY TABLE sink ({_SINK[kind]}) WITH ({connector})")
    start, cpu = time.perf_counter(), _cpu_seconds()
    job = table.execute_sql(f"INSERT INTO sink {SCAN if kind == 'scan' else MATCH}")
    job.wait()
    wall = time.perf_counter() - start
    net = job.get_job_client().get_job_execution_result().result().get_net_runtime()
    return {"seconds": net / 1000, "wall_seconds": wall, "cpu_seconds": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    """Processor time of the JVM, the only child of this process; 0 where there is no /proc."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # gone meanwhile
            continue
        if int(fields[1]) == os.getpid():
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    # Whatever the JVM prints goes to standard error; only answers go to standard output.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # whatever Flink throws, the other side reports it
            reply = {"error": str(error)}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()

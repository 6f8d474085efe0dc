"""Kafka in, Kafka out, with the driver killed on the way: none lost, and what comes again is equal.

A real broker gets events in three partitions and a few messages that nobody can read. A pipeline
reads them as a stream and writes relations to JSON Lines and to another topic. The JSON Lines must
be what the kernel alone gives for the same events; in the topic every relation is there, one that
comes again has the same text, and first comings of one key are in order. Then the example of
`examples/kafka` is followed as its page says, with this broker's address; Spark itself fetches its
connector.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table

from concordant.local import correlate
from concordant.model.kind import format_instant
from concordant.spark.checkpoint import Checkpoint
from concordant.spark.session import open_session
from tests.campaign.killing import OPTIONS, ROOT, failure, killed, lines
from tests.campaign.shape import Options, Report
from tests.kafka import broker, jars, packages

NAME = "spark-kafka"

EVENT_COUNT = 3_000
PER_BATCH = 300
KILL_COUNT = 6
BAD = ["", "no json", '{"topic": "T", "time": "soon", "k": 1, "v": 2}', '{"k": "x"}']
QUESTION = """
up: T[1].v < T[2].v and T[2].v < T[3].v consume matched partition by k within 10 s
pair: T then U and T.v = U.v consume slide partition by k within 5 s
"""
PIPELINE = """
[question]
subscriptions = '''{question}'''
[[source]]
kind = "kafka"
servers = "{servers}"
kafka_topic = "events"
fields = "topic string, time bigint, k bigint, v bigint"
rows_per_batch = {per_batch}
[stream]
checkpoint = "checkpoint"
release = "frontier"
at_end = "release"
buckets = 4
[bad]
rows = "skip"
path = "aside"
[[sink]]
kind = "jsonl"
path = "out"
[[sink]]
kind = "kafka"
servers = "{servers}"
kafka_topic = "relations"
[spark]
master = "local[2]"
jars = {jars}
{options}
"""


def publish(session: Any, servers: str, seed: int) -> None:
    """Events in the order of their times, from one task, so that every partition has them so."""
    rng = np.random.default_rng(seed)
    events = pa.table(
        {
            "topic": np.array(["T", "U"])[rng.integers(0, 2, EVENT_COUNT)],
            "time": np.cumsum(rng.integers(1, 20_000, EVENT_COUNT)),
            "k": rng.integers(0, 20, EVENT_COUNT),
            "v": rng.integers(0, 50, EVENT_COUNT),
        }
    ).to_pylist()
    texts = [json.dumps(one) for one in events]
    for number, bad in enumerate(BAD):
        texts.insert(len(texts) * (number + 1) // (len(BAD) + 1), bad)
    keys = [str(n) for n in rng.integers(0, 100, len(texts))]
    frame = session.createDataFrame(list(zip(keys, texts, strict=True)), "key string, value string")
    writer = frame.coalesce(1).write.format("kafka").option("topic", "events")
    writer.option("kafka.bootstrap.servers", servers).save()


def messages(session: Any, servers: str, topic: str) -> list[Any]:
    """What a topic holds, partition by partition."""
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", servers)
    frame = reader.option("subscribe", topic).load()
    chosen = frame.selectExpr("partition", "offset", "cast(key as string)", "cast(value as string)")
    return sorted(chosen.collect())


def expected_of(read: list[Any]) -> list[dict[str, Any]]:
    """What the kernel alone delivers for the messages of the topic."""
    events = []
    for partition, offset, _, value in read:
        if value not in BAD:
            event = json.loads(value)
            events.append({**event, "source": f"events-{partition}", "seq": offset})
    return [
        {"subscription": one.subscription, "key": list(one.key), "events": list(one.event_ids)}
        for one in correlate(events, QUESTION)
    ]


def relations(texts: list[str]) -> list[dict[str, Any]]:
    found = [json.loads(text) for text in texts]
    return [{name: one[name] for name in ("subscription", "key", "events")} for one in found]


def problems(delivered: list[Any], expected: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the relations in the topic."""
    first: dict[str, str] = {}
    places: dict[str, list[int]] = {}
    wrong = []
    for _, _, key, value in delivered:
        one = json.loads(value)
        if first.setdefault(one["id"], value) != value:
            wrong.append(f"{one['id']} came again with another text")
        elif one["position"] > max(places.get(key, [0])):
            places.setdefault(key, []).append(one["position"])
    ids = Counter(tuple(event["id"] for event in json.loads(v)["events"]) for v in first.values())
    if ids != Counter(tuple(one["events"]) for one in expected):
        wrong.append(f"the topic has {len(first)} relations, and there are {len(expected)}")
    if sum(map(len, places.values())) != len(first):
        wrong.append("a relation stands before an earlier one of its key")
    return wrong


def example(folder: Path, servers: str, connector: list[str]) -> str:
    """Publish and run the example with commands of their own; nothing, or the last they said."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    here = folder / "examples" / "kafka"
    text = (here / "stock.toml").read_text().replace("127.0.0.1:9092", servers)
    before, _, _ = text.partition("options = ")
    options = [f"{json.dumps(key)} = {json.dumps(one)}" for key, one in packages().items()]
    (here / "stock.toml").write_text(f"{before}options = {{ {', '.join(options)} }}\n")
    for command in (
        ["publish.py", servers, "stock", "../stock.jsonl"],
        ["-m", "concordant.cli.main", "run", "stock.toml", "--json"],
    ):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=here,
            env={**os.environ, "KAFKA_JARS": ",".join(connector)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip()[-500:] or f"exit code {done.returncode}"
    return ""


def example_problems(delivered: list[Any]) -> list[str]:
    """What is wrong with the relations of the example; its events have no ids but their places."""
    wanted = {
        (one.key[0], tuple(format_instant(event.time) for event in one.events))
        for one in correlate(ROOT / "examples" / "stock.jsonl", ROOT / "examples" / "rising.sub")
    }
    found = set()
    for *_, value in delivered:
        one = json.loads(value)
        times = (datetime.fromisoformat(event["time"]) for event in one["events"])
        shown = tuple(format_instant(int(time.timestamp()) * 1_000_000) for time in times)
        found.add((*one["key"], shown))
    return [] if found == wanted else [f"the example gave {sorted(found)}"]


def run(options: Options) -> Report:
    rng = Random(options.seed)
    died: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as made, broker(Path(made) / "kafka") as servers:
        folder = Path(made) / "run"
        folder.mkdir()
        connector = jars("connector")
        text = PIPELINE.format(
            question=QUESTION,
            servers=servers,
            jars=json.dumps(connector),
            per_batch=PER_BATCH,
            options=OPTIONS,
        )
        (folder / "pipeline.toml").write_text(text)
        session = open_session("local[1]", options={"spark.jars": ",".join(connector)})
        publish(session, servers, options.seed)
        for number in range(KILL_COUNT):
            died[killed(folder, rng, number)] += 1
            options.progress("kills", number + 1, KILL_COUNT)
        failures = [f"the last run failed: {text}"] if (text := failure(folder)) else []
        expected = expected_of(messages(session, servers, "events"))
        if relations(lines(folder)) != expected:
            failures.append(f"{len(lines(folder))} lines instead of {len(expected)}")
        delivered = messages(session, servers, "relations")
        text = example(Path(made), servers, connector)
        failures += [f"the example failed: {text}"] if text else []
        if not text:
            failures += example_problems(messages(session, servers, "rising"))
        session.stop()
        failures += problems(delivered, expected)
        aside = [path.read_text() for path in folder.glob("aside/*/*.json")]
        told = sum(len(one.splitlines()) for one in aside)
        if told != len(BAD):
            failures.append(f"{told} bad messages were set aside instead of {len(BAD)}")
        last = Checkpoint(folder / "checkpoint" / "concordant").last()
        if last is None or last.counts.get("bad") != len(BAD):
            failures.append("the bad messages were not counted")
    if sum(count for how, count in died.items() if how) < KILL_COUNT - 2:
        failures.append(f"only {KILL_COUNT - died['']} of {KILL_COUNT} runs died")
    if not expected:
        failures.append("nothing was delivered, so nothing was shown")
    table = Table("when", "killed", title="Runs killed", title_justify="left")
    for how, count in sorted(died.items()):
        table.add_row(how or "too late", str(count))
    notes = [
        f"{len(expected):,} relations of {EVENT_COUNT:,} events; the topic has {len(delivered):,} "
        "messages, those of runs that died among them",
        f"{told} messages that nobody can read were set aside",
    ]
    return Report(NAME, [table], notes, failures)

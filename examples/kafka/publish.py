"""Publish the lines of a file to Kafka, in their order: python publish.py SERVERS TOPIC FILE.

It uses Spark's own connector, which the pipeline needs anyway; any other client does as well.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"


def main(servers: str, topic: str, path: str) -> None:
    builder = SparkSession.builder.master("local[1]")
    jars = os.environ.get("KAFKA_JARS")  # files, where there is no network
    option = ("spark.jars", jars) if jars else ("spark.jars.packages", PACKAGE)
    spark = builder.config(*option).getOrCreate()
    lines = [(line,) for line in Path(path).read_text().splitlines()]
    # One task, so that the events of a partition have the order of the file.
    frame = spark.createDataFrame(lines, "value string").coalesce(1)
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

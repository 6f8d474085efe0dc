"""A real Kafka broker for tests, and Spark's connector to it: jars from Maven Central, one process.

The jars are fetched once, by the Ivy that comes with PySpark, into `out/kafka`. Needs Java and,
the first time, the network; so what uses it runs only when somebody asks for it.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

FOLDER = Path(__file__).resolve().parents[1] / "out" / "kafka"

PROVIDER = "spark-token-provider-kafka-0-10_2.13"
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"

# The connector of Spark 4.2 works with 4.3, whose own Maven Central does not have whole yet.
IVY = """\
<ivy-module version="2.0">
  <info organisation="concordant" module="kafka"/>
  <configurations><conf name="server"/><conf name="connector"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="4.1.2" conf="server->default"/>
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="4.2.0"
                conf="connector->master" transitive="false"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13"
                rev="4.1.0-preview1" conf="connector->master" transitive="false"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.2"
                conf="connector->master" transitive="false"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.13.1"
                conf="connector->master" transitive="false"/>
  </dependencies>
</ivy-module>
"""
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=3
"""
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
SECONDS_MAX = 120
"""Until a broker takes connections."""


def packages() -> dict[str, str]:
    """Options with which Spark fetches the connector itself.

    All of it but the one jar that Maven Central lacks in that version, which comes as a file.
    """
    (provider,) = (path for path in jars("connector") if PROVIDER in path)
    return {
        "spark.jars.packages": PACKAGE,
        "spark.jars.excludes": f"org.apache.spark:{PROVIDER}",
        "spark.jars.ivy": str(FOLDER / "spark"),
        "spark.jars": provider,
    }


def jars(conf: str) -> list[str]:
    """The jars of the `server` or the `connector`, fetched if they are not there yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    described = FOLDER / "ivy.xml"
    if not described.exists() or described.read_text() != IVY:
        module = FOLDER / "wanted.xml"
        module.write_text(IVY)
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        pattern = f"{FOLDER}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
        command = ["java", "-jar", str(ivy), "-cache", str(FOLDER / "cache"), "-ivy", str(module)]
        done = subprocess.run(
            [*command, "-retrieve", pattern], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the jars of Kafka cannot be fetched:\n{done.stdout[-2000:]}")
        module.replace(described)
    return sorted(str(path) for path in (FOLDER / conf).glob("*.jar"))


@contextlib.contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker with its data in a folder, as long as the block lasts; its address."""
    java = ["java", "-Xmx256m", "-cp", ":".join(jars("server"))]
    port, controller = _free_ports()
    settings = folder / "server.properties"
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    settings.write_text(PROPERTIES.format(port=port, controller=controller, data=data))
    tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER, "-c"]
    subprocess.run([*java, *tool, str(settings)], check=True, capture_output=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        _await(process, port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + SECONDS_MAX
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)  # nothing tells that a port opens
    raise RuntimeError("Kafka did not start; its log is beside its data")

"""One quiet session on two cores for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from concordant.spark.session import open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    session = open_session(
        "local[2]",
        options={
            "spark.driver.memory": "1g",
            # Hardly anything runs long enough here to be worth the second compiler.
            "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1",
            "spark.sql.shuffle.partitions": "4",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        log=folder / "spark.log",
    )
    yield session
    session.stop()

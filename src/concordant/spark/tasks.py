"""How far the job over tables is: tasks of its stages that are done, while it runs.

Asks Spark in a thread of its own and tells what it heard; it changes nothing. Knows stages and
tasks, no rows. A session of Spark Connect has nobody to ask, and nothing is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

from pyspark.sql import SparkSession

from concordant.spark.monitor import Told

_LOOK_SECONDS = 0.5


@contextlib.contextmanager
def watched(session: Any, told: Told) -> Iterator[None]:
    """Tell how many tasks of the stages at work are done, for as long as the block lasts."""
    if not isinstance(session, SparkSession):
        yield
        return
    done = Event()

    def look() -> None:
        tracker = session.sparkContext.statusTracker()
        while not done.wait(_LOOK_SECONDS):
            with contextlib.suppress(Exception):  # the session may end at this moment
                stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
                known = [one for one in stages if one is not None]
                if known:
                    told(
                        {
                            "stage": max(one.stageId for one in known),
                            "tasks": sum(one.numTasks for one in known),
                            "tasks_done": sum(one.numCompletedTasks for one in known),
                        }
                    )

    watcher = Thread(target=look, name="progress of tables", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()

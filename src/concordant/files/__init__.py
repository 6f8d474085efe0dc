"""Events in files and tables: JSON Lines, CSV, Parquet, Arrow, DataFrames and plain dicts.

Everything read becomes one checked `Batch`; everything written is a batch and appears whole or not
at all. Nothing here knows subscriptions, order levels or Spark.
"""

from concordant.files.atomic import atomic_output
from concordant.files.describe import Description, describe
from concordant.files.order import in_order
from concordant.files.read import read_events
from concordant.files.write import to_arrow, write_events

__all__ = [
    "Description",
    "atomic_output",
    "describe",
    "in_order",
    "read_events",
    "to_arrow",
    "write_events",
]

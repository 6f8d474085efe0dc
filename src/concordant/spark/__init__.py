"""Correlation on Spark: the same relations as the kernel, from any DataFrame.

    from concordant.spark import correlate
    correlate(df, "Order then Payment partition by order_id within 10 min").show()

Importing this package starts no JVM; a session is whatever the DataFrames belong to. It only says,
where nobody did, that Spark's workers run the Python that runs here: another has none of our code.
"""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from concordant.spark.correlate import correlate, explain, in_order

__all__ = ["correlate", "explain", "in_order"]

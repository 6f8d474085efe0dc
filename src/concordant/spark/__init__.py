"""Correlation on Spark: the same relations as the kernel, from any DataFrame.

    from concordant.spark import correlate
    correlate(df, "Order then Payment partition by order_id within 10 min").show()

Importing this package starts no JVM; a session is whatever the DataFrames belong to.
"""

from concordant.spark.correlate import correlate, in_order

__all__ = ["correlate", "in_order"]

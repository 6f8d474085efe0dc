"""What the kernel costs, measured: `python -m bench`, or `make bench`.

Every number is taken in one interleaved run, next to what it is compared with, after the result
was checked against the clear engine. Nothing here passes or fails by time: goals are shown beside
what was measured, and a person decides.
"""

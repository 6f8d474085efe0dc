"""Concordant beside its peers: Flink SQL `MATCH_RECOGNIZE`, and the total order of JGroups.

`python -m bench.peers`, or `make bench-peers`. A peer is fetched on demand and runs in processes of
its own (Flink with an environment of its own, `.venv-flink`); the sides take turns. Before anything
counts, both must give the very same matches, or all members of a group the very same sequence.
"""

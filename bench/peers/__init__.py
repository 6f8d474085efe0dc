"""The kernel beside a peer: Flink SQL `MATCH_RECOGNIZE` on the same file.

`python -m bench.peers`, or `make bench-peers`. Flink lives in an environment of its own
(`.venv-flink`, made on demand) and runs in a child process with one warm JVM; Concordant runs in
processes of this environment; the two take turns. Before anything is timed, both must give the
very same matches.
"""

"""The page `docs/benchmarks-jgroups.md` from what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.network import WINDOW_BATCHES
from bench.peers.groups import PEER, WINDOW_COUNT, message_bytes
from bench.peers.jgroups import JGROUPS
from bench.report import markdown
from bench.result import Section

PAGE = Path("docs/benchmarks-jgroups.md")


def page(section: Section, about: dict[str, Any]) -> str:
    """The text of the page."""
    table = markdown(
        [column.label for column in section.columns],
        [[column.text(row) for column in section.columns] for row in section.rows],
        [column.show != "text" for column in section.columns],
    )
    ratios = markdown(
        ["Concordant / JGroups", "measured"],
        [[goal.what, goal.measured] for goal in section.goals],
        [False, False],
    )
    return _TEXT.format(
        jgroups=JGROUPS,
        peer=PEER,
        bytes=message_bytes(),
        batches=WINDOW_BATCHES,
        events=WINDOW_COUNT,
        table="\n".join(table),
        ratios="\n".join(ratios),
        **about,
    )


_TEXT = """\
# Beside JGroups

Written by `python -m bench.peers --only jgroups --write-docs`, which is a part of
`make bench-peers`. Total order in a group: JGroups {jgroups}, from Maven Central, and Concordant,
on the same machine, with as many members and messages of the same size.

## What was run

- Every member is a process that sends to all and takes what all send, its own messages included;
  TCP on one machine, no disk. All members took the very same sequence, on every side, or the run
  ends with an error.
- A message of JGroups has {bytes} bytes, as many as one of our events encoded by itself. JGroups
  carries them as they are; our events have names and kinds, are checked, encoded and decoded.
- A batch is handed over at once: 100 messages sent one after the other to JGroups, which bundles
  them by itself, and one request with 100 events to Concordant. Each member has at most {batches}
  batches under way, and all together {events:,} events, so latencies are those of a loaded group:
  from handing over a batch to its last event at the member that sent it.
- JGroups' stack is the `tcp.xml` that comes with it, with SEQUENCER (all send to the coordinator,
  which sends to all) or SEQUENCER2 (the coordinator gives numbers, members send themselves) where
  its own `sequencer.xml` has it.
- `sequencer` does what {peer} does. The replicated sequencer and merging keep each event at three
  members before anybody gets it, which neither sequencer nor JGroups does: their price is shown,
  not a like for like. One topic has one merger, so merging cannot spread anything here; what it is
  made for is in [Benchmarks](benchmarks.md).
- *Per processor second* divides by the processor time of the busiest process, or of all of them:
  it depends little on what else the machine does. A JVM's compiler and collector are in it, after
  a warm-up of two seconds.
- Times are medians of {rounds} rounds; ratios are to {peer}, taken within a round. More than 1x:
  more events than JGroups.
- {date}, {processor}, {cores} cores for all members together, load {load} before it began, Java
  {java}, Python {python}.

## Measured

{ratios}

{table}
"""

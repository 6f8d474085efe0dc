"""What is supported, who hosts it, and what is refused."""

from __future__ import annotations

from collections import Counter

import pytest

from concordant.errors import UsageError
from concordant.machine.inputs import Started
from concordant.net.roles import (
    REPEAT_US,
    STRATEGIES,
    TRANSPORTS,
    Setting,
    message_kinds,
    publisher_of,
    rendezvous,
    strategy_of,
    supported,
)
from concordant.wire.messages import Codec

NODES = ("n1", "n2", "n3")


def setting(node: str = "n1", **others: object) -> Setting:
    placed = {"sequencer/sequencer": "n2/sequencer/sequencer"}
    return Setting(node, NODES, placed=placed, **others)  # type: ignore[arg-type]


def test_a_level_without_a_strategy_is_refused_and_never_replaced() -> None:
    with pytest.raises(UsageError, match="no order 'best'"):
        strategy_of("best")
    missing = [row["order"] for row in supported() if row["strategy"] == "none yet"]
    for level in missing:
        with pytest.raises(UsageError, match="no strategy gives"):
            strategy_of(level)
    with pytest.raises(UsageError, match="does not give the order 'fifo': it gives total strict"):
        strategy_of("fifo", "sequencer")
    with pytest.raises(UsageError, match="there is none of that name"):
        strategy_of("fifo", "magic")
    with pytest.raises(UsageError, match="does not run over pigeons"):
        strategy_of("fifo", transport="pigeons")


def test_a_level_may_be_written_with_a_hyphen() -> None:
    assert strategy_of("total-strict") is strategy_of("total strict")


def test_every_strategy_makes_its_machines_and_its_messages_travel() -> None:
    for one in STRATEGIES.values():
        here = setting(parameters={"ask_us": 7})
        machines = [
            one.subscriber(here, "n1/x/1"),
            one.publisher(here, publisher_of("n1", one.feed)),
            *(part.make(here, f"n1/{one.name}/{part.name}") for part in one.parts(here)),
        ]
        for machine in machines:
            machine.handle(0, Started())
            assert machine.held_count == 0
        assert set(one.transports) <= set(TRANSPORTS)
    Codec(message_kinds(STRATEGIES.values()))


@pytest.mark.parametrize("parameters", [{}, {"repeat_us": 5_000_000}])
def test_who_is_idle_is_so_for_longer_than_it_waits_for_an_answer(
    parameters: dict[str, int],
) -> None:
    here = setting(parameters=parameters)
    for name in ("merging", "merging-stamped"):
        (part,) = STRATEGIES[name].parts(here)
        options = part.make(here, f"n1/{name}/host")._options  # type: ignore[attr-defined]
        assert options.idle_us > options.repeat_us == parameters.get("repeat_us", REPEAT_US)
        assert options.replication.elect_us > 3 * options.replication.beat_us


def test_every_level_is_in_the_table_once_per_strategy() -> None:
    rows = supported()
    assert len({(row["order"], row["strategy"]) for row in rows}) == len(rows)
    assert {row["strategy"] for row in rows} >= set(STRATEGIES)


def test_keys_spread_over_the_nodes_and_few_of_them_move_when_one_goes() -> None:
    keys = [f"key {number}" for number in range(900)]
    before = {key: rendezvous(key, NODES) for key in keys}
    assert all(200 < count < 400 for count in Counter(before.values()).values())
    after = {key: rendezvous(key, ("n1", "n3")) for key in keys}
    assert all(after[key] == before[key] for key in keys if before[key] != "n2")

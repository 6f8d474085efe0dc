"""Scenario files: what is read is written back, and what is wrong is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.sim.popularity import chosen, weights
from concordant.sim.protocols import PROTOCOLS, check_nodes, layout_of, options_of
from concordant.sim.run import simulate
from concordant.sim.scenario import read_scenario, scenario_from, scenario_text
from concordant.sim.swarm import random_scenario

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_read_and_written_back(path: Path) -> None:
    scenario = read_scenario(path)
    assert scenario_from(scenario_text(scenario)) == scenario


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_random_scenarios_are_legal_and_written_back(protocol: str) -> None:
    for seed in range(50):
        scenario = random_scenario(protocol, seed)
        assert scenario_from(scenario_text(scenario)) == scenario
        check_nodes(scenario)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('protocol = "fifo"\n[topology]\ntopics = "x"', "[topology] topics", "expected an integer"),
        ('protocol = "fifo"\n[topology]\ntopic = 1', "[topology]", "unknown field `topic`"),
        ('protocol = "fifo"\n[[faults]]\nkind = "fire"', "[faults 1] kind", "invalid enum value"),
        ('protocol = "fifo"\n[[faults]]\nkind = "partition"', "[faults 1] nodes", "one side"),
        (
            'protocol = "fifo"\n[[faults]]\nkind = "loss"\nshare = 2.0',
            "[faults 1] share",
            "0 and 1",
        ),
        ('protocol = "fifo"\n[topology]\nsubscribers = 0', "[topology]", "nobody subscribes"),
        ('protocol = "fifo"\n[workload]\nrate_per_s = 0', "[workload] rate_per_s", "above 0"),
        ("[topology]", "", "missing required field `protocol`"),
        ("protocol = ", "", "not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_file_table_and_key(
    text: str, place: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        scenario_from(text, place="bad.toml")
    assert caught.value.place == (f"bad.toml: {place}" if place else "bad.toml")
    assert message in caught.value.message


def test_a_parameter_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no parameter 'speed'"):
        options_of(scenario_from('protocol = "fifo"\n[parameters]\nspeed = 1'))


@pytest.mark.parametrize(
    ("protocol", "node"), [("fifo", "x9"), ("fifo", "sequencer"), ("merging", "sequencer")]
)
def test_a_fault_of_a_node_that_the_protocol_does_not_have_is_refused(
    protocol: str, node: str
) -> None:
    text = f'protocol = "{protocol}"\n[[faults]]\nkind = "crash"\nnode = "{node}"'
    with pytest.raises(UsageError, match=f"no node is called '{node}'") as caught:
        simulate(scenario_from(text), seed=1)
    assert caught.value.place == "[faults 1]"


def test_popular_topics_are_chosen_more_often() -> None:
    from random import Random

    rng = Random(1)
    topics = [f"T{n}" for n in range(1, 101)]
    drawn = [one for _ in range(200) for one in chosen(topics, 5, "power-law 0.901", rng)]
    assert drawn.count("T1") > 150 > 20 > drawn.count("T100")
    assert sum(weights(100, "power-law 0.269")) == pytest.approx(1)


def test_a_layout_follows_the_topology() -> None:
    text = 'protocol = "fifo"\n[topology]\ntopics = 4\npublishers = 5\ntopics_per_publisher = 1\n'
    layout = layout_of(scenario_from(text + "topics_per_subscriber = 2"), "1")
    assert list(layout.publishes.values()) == [
        ("T1",),
        ("T2",),
        ("T3",),
        ("T4",),
        ("T1",),
    ]
    assert all(len(topics) == 2 for topics in layout.subscribes.values())
    assert layout.sources["T1"] == ("p1", "p5")

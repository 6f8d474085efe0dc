"""One scenario by the simulator, over TCP and over NATS: the same checkers accept all histories."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from concordant.cli.app import app
from concordant.files.history import write_history
from concordant.sim.run import simulate
from concordant.sim.scenario import read_scenario
from tests.network.live import Live

SCENARIO = Path(__file__).parents[2] / "examples" / "scenarios" / "everywhere.toml"


def history(driver: str, folder: Path) -> Path:
    """The history of the scenario, as a file."""
    scenario = read_scenario(SCENARIO)
    path = folder / f"{driver}.jsonl"
    if driver == "simulator":
        write_history(simulate(scenario, seed=1).rows, path)
        return path
    live = Live(scenario, folder / "live", transport=driver)
    try:
        live.wait_for_the_end()
        write_history(live.rows(), path)
    finally:
        live.stop()
    return path


@pytest.mark.parametrize("driver", ["simulator", "tcp", "nats"])
def test_one_scenario_keeps_its_promise_everywhere(driver: str, tmp_path: Path) -> None:
    path = history(driver, tmp_path)
    done = CliRunner().invoke(app, ["verify", str(path)])
    assert done.exit_code == 0, done.output
    assert "total strict" in done.output
    text = path.read_text()
    assert text.count('"step":"publish"') > 200
    assert text.count('"step":"deliver"') > 300
    assert text.count('"step":"end"') == 1
    assert len({line.split('"process":"')[1].split('"')[0] for line in text.splitlines()}) >= 5
    done = CliRunner().invoke(app, ["verify", str(swapped(path))])
    assert done.exit_code == 1, done.output  # the checkers have teeth for this history too


def swapped(path: Path) -> Path:
    """The history with two deliveries of one subscriber exchanged."""
    lines = path.read_text().splitlines()
    places = [i for i, line in enumerate(lines) if '"process":"s1","step":"deliver"' in line]
    one, other = places[10], places[11]
    lines[one], lines[other] = lines[other], lines[one]
    wrong = path.with_name("swapped.jsonl")
    wrong.write_text("\n".join(lines) + "\n")
    return wrong

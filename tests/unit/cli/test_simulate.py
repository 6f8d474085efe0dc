"""`simulate` and `verify` as a person or a program meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from concordant.files.history import read_history, write_history
from concordant.sim.run import simulate
from concordant.sim.scenario import scenario_from
from concordant.sim.swarm import random_scenario
from tests.unit.cli.conftest import ROOT, Run

BROKEN = ROOT / "examples" / "scenarios" / "broken-promise.toml"


def test_a_broken_promise_is_told_with_its_seed_and_a_small_scenario(run: Run) -> None:
    done = run("simulate", str(BROKEN), "--seed", "3")
    assert done.code == 1
    assert "Total Order: violated: s1 delivered" in done.out
    assert f"Replay it with: concordant simulate {BROKEN} --seed 3" in done.out
    smallest = done.out.partition("with seed 3:\n")[2]
    failure = simulate(scenario_from(smallest), seed=3).failure
    assert failure is not None and failure.name == "Total Order"


def test_many_seeds_name_the_first_that_fails(run: Run) -> None:
    done = run("simulate", str(BROKEN), "--seeds", "3..4", "--jobs", "1")
    assert done.code == 1
    assert "2 runs of fifo, 2 broke a promise" in done.out
    assert "seed 3: Total Order: violated" in done.out


def test_a_program_gets_one_json_document(run: Run) -> None:
    done = run("simulate", str(BROKEN), "--seed", "3", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert not found["ok"]
    assert [one["property"] for one in found["verdicts"] if not one["holds"]] == ["Total Order"]
    assert found["metrics"]["published"] > 10


def test_histories_are_written_verified_and_not_overwritten(run: Run, tmp_path: Path) -> None:
    assert run("simulate", str(BROKEN), "--seed", "3", "--out", "run").code == 1
    done = run("verify", "run/history-3.jsonl")
    assert done.code == 1
    assert "Total Order: violated" in done.out
    assert run("verify", "run/history-3.jsonl", "--level", "fifo").code == 0
    assert run("simulate", str(BROKEN), "--seed", "3", "--out", "run").code == 2
    shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize("name", ["h.jsonl", "h.parquet"])
def test_a_history_is_read_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    rows = list(simulate(random_scenario("clock", 4), seed=4).rows)
    write_history(rows, tmp_path / name)
    assert read_history(tmp_path / name) == rows


def test_a_table_that_is_no_history_is_refused(run: Run, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    done = run("verify", "x.parquet")
    assert done.code == 2
    assert "no column 'run'" in done.err


def test_the_level_has_to_be_known(run: Run, tmp_path: Path) -> None:
    (tmp_path / "h.jsonl").write_text('{"run":"r","process":"p","step":"crash"}\n')
    done = run("verify", "h.jsonl")
    assert done.code == 2
    assert "does not say which level was promised" in done.err
    assert run("verify", "h.jsonl", "--level", "none").code == 0

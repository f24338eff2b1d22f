"""The scaling study's command line, on run folders and on numbers that were measured elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from scaling_folders import write_run

from benchmarks.scaling import CPU_TOGGLES, compared, foretold, main, read_runs, to_measures
from benchmarks.scaling_model import Stages
from benchmarks.scaling_runs import MeasuredRun
from flashprof.contracts.toggles import parse_toggles
from pipeline.presets import QWEN3_8B_RANDOM, TINY
from pipeline.toggles import REGISTRY

STAGES = Stages(target_tok_per_s=33e3, drafter_tok_per_s=19e3, batch_tokens=6144, gradient_bytes=4.2e9)
RUN = MeasuredRun(
    topology="1+1",
    toggles="all",
    tok_per_s=18e3,
    low=17.9e3,
    high=18.1e3,
    num_devices=2,
    depth=8,
    num_anchors=64,
    stages=STAGES,
)


def test_a_prediction_within_ten_percent_is_met_and_one_beyond_is_not() -> None:
    pairs = compared([RUN, replace(RUN, topology="2+1", tok_per_s=15e3, num_devices=3)], STAGES)
    near, far = to_measures(pairs)

    assert ("scaling_1+1_prediction", True) == (near.name, near.met)
    assert ("scaling_2+1_prediction", False) == (far.name, far.met)
    assert pytest.approx(19 / 15 - 1) == far.value


def test_every_split_of_eight_is_foretold_for_both_models() -> None:
    found = foretold(STAGES, QWEN3_8B_RANDOM)

    assert ["Qwen3-8B", "27B dense"] == list(found)
    assert {7} == {len(predictions) for predictions in found.values()}
    # The larger target needs more devices beside the same drafter.
    assert found["27B dense"][0].num_targets >= found["Qwen3-8B"][0].num_targets
    assert found["27B dense"][0].tok_per_s < found["Qwen3-8B"][0].tok_per_s


def test_the_dry_run_prints_a_command_a_topology_and_starts_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["measure", "--out", str(tmp_path), "--dry-run"])

    assert 0 == done.exit_code
    assert 6 == done.output.count("flashprof.cli run")
    assert [] == list(tmp_path.iterdir())


def test_predict_prints_a_table_a_model() -> None:
    done = CliRunner().invoke(main, ["predict", "--target-tok-per-s", "33000", "--drafter-tok-per-s", "19000"])

    assert 0 == done.exit_code
    assert 2 == done.output.count(" 5+3 ")


@pytest.mark.parametrize("given", [[], ["--target-tok-per-s", "33000"]])
def test_a_prediction_without_capacities_is_a_usage_error(given: list[str]) -> None:
    done = CliRunner().invoke(main, ["predict", *given])

    assert 2 == done.exit_code
    assert "-tok-per-s" in done.output


def test_folders_that_cannot_be_read_end_with_a_message(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["judge", str(tmp_path / "gone"), "--results", str(tmp_path)])

    assert 1 == done.exit_code
    assert "no topology was measured" in done.output
    assert "Traceback" not in done.output


def test_runs_of_another_cell_are_left_out(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "first"),
        write_run(tmp_path / "other", toggles="none"),
        write_run(tmp_path / "again"),
    ]
    runs, left_out = read_runs(folders, TINY)

    assert ["1+1"] == [run.topology for run in runs]
    assert {"other": "has other toggles than all: none", "again": "is a second run of 1+1"} == left_out


def test_judging_writes_what_was_measured_beside_what_was_foretold(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    done = CliRunner().invoke(main, ["judge", str(folder), str(tmp_path / "gone"), "--results", str(tmp_path / "r")])
    (path,) = (tmp_path / "r").iterdir()
    document = json.loads(path.read_text())

    assert 0 == done.exit_code, done.output
    assert "scaling" == document["kind"]
    assert ["scaling_1+1_prediction"] == [measure["name"] for measure in document["measures"]]
    assert ["gone"] == list(document["data"]["failures"])


def test_the_toggles_of_a_cpu_are_ones_that_the_trainer_has() -> None:
    values = parse_toggles(CPU_TOGGLES, REGISTRY)

    assert [] == [name for name, value in values.items() if "compile" in name and value]
    assert values["early-exit"]

"""The subject's side: what it refuses, which of its processes are sampled, which samplers can be had."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_world import FakeClock

from flashprof.app.log_readings import LogReadings
from flashprof.app.machine import full_machine
from flashprof.app.subject import find_targets, pipeline_command, read_toggles, refusal
from flashprof.app.watch import Watch
from flashprof.app.wiring import wire
from flashprof.contracts.experiment import Experiment, Sampling, SubjectSpec
from flashprof.launch.process import ProcessSubject
from flashprof.store.tail import EventTail


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (
            ["error: bad", "  got: x", "  try: y"],
            ["error: the pipeline refuses: bad", "  got: x", "  try: y"],
        ),
        (
            ["Usage: python -m pipeline train [OPTIONS]", "", "Error: Invalid value for '--seed': -1 is out of range."],
            [
                "error: the pipeline refuses: Invalid value for '--seed': -1 is out of range.",
                "  try: flashprof run --help",
            ],
        ),
        ([], ["error: the pipeline refuses: it printed nothing", "  try: flashprof run --help"]),
        (["odd"], ["error: the pipeline refuses: odd", "  try: flashprof run --help"]),
    ],
)
def test_a_refusal_keeps_the_pipelines_words(said: list[str], lines: list[str]) -> None:
    assert lines == refusal(said).lines()


def test_the_pipelines_command_takes_the_cell(tmp_path: Path) -> None:
    options = ("--device", "none")
    command = pipeline_command(SubjectSpec(preset="tiny", topology="2+1", toggles="swa", seed=3, train_options=options))
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "Invalid value for '--device'" in done.stderr
    assert {"--topology", "2+1", "--toggles", "swa", "--seed", "3", "--steps", "0"} <= set(command)


def test_toggles_come_from_the_pipeline_itself(tmp_path: Path) -> None:
    registry = read_toggles({**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, tmp_path)

    assert {"compile", "swa", "queue"} <= {toggle.name for toggle in registry}


def test_of_a_foreign_subject_the_python_processes_are_sampled(tmp_path: Path) -> None:
    command = ("sh", "-c", f"{sys.executable} -S -c 'print(flush=True); input()'; true")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        targets = find_targets(_watch(tmp_path, process), process.pid)
        process.communicate(b"\n")

    assert ["process-0"] == [target.name for target in targets]
    assert process.pid != targets[0].pid


def test_a_foreign_subject_without_python_is_sampled_as_it_is(tmp_path: Path) -> None:
    with subprocess.Popen(("sh", "-c", "read line"), stdin=subprocess.PIPE) as process:
        targets = find_targets(_watch(tmp_path, process), process.pid)
        process.communicate(b"\n")

    assert [process.pid] == [target.pid for target in targets]


def test_a_subject_that_has_ended_has_no_processes(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()

        assert [] == find_targets(_watch(tmp_path, process), process.pid)


@pytest.mark.parametrize(("resources", "names"), [("off", []), ("schedstat", ["schedstat"])])
def test_samplers_are_wired_by_name(tmp_path: Path, resources: str, names: list[str]) -> None:
    ports = wire(Experiment(sampling=Sampling(stacks="off", resources=resources)), {}, tmp_path)

    assert names == [sampler.name for sampler in ports.samplers]


def test_no_secret_of_the_environment_is_recorded() -> None:
    env = {"OMP_NUM_THREADS": "2", "AWS_SECRET_ACCESS_KEY": "s", "HF_TOKEN": "t", "WANDB_API_KEY": "u"}

    assert {"OMP_NUM_THREADS": "2"} == full_machine(env)["env"]


def _watch(folder: Path, process: subprocess.Popen[bytes]) -> Watch:
    keeper = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    keeper.communicate()
    return Watch(
        subject=ProcessSubject(process, keeper, "none"),
        tail=EventTail(folder),
        log=LogReadings(folder / "log", ""),
        clock=FakeClock(),
        hang_timeout_s=1.0,
    )

"""Two loopback hosts under torchrun train as one would, stop after the same step, and end when one loses a drafter."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from flashprof.contracts.control import CommandName, CommandWriter
from flashprof.contracts.events import EventLog, decode
from flashprof.emit import RUN_DIR_VARIABLE
from pipeline.checkpoint.folder import find_checkpoint, read_state
from pipeline.presets import TINY

pytestmark = pytest.mark.slow

MARK = "PIPELINE_TEST_HOSTS"
NUM_STEPS = 8
START_LIMIT_S = 90.0
"""Torchrun, two trainers and two fork servers import torch: 12 s on two cores of their own."""
LIGHT = ("--token-budget", "1024", "--anchors", "16")
STEADY = ("--schedule", "constant", "--warmup-ratio", "0")
"""A learning rate that does not depend on the number of steps, so that a stopped run can be compared."""
PRESET = replace(
    TINY,
    data=replace(TINY.data, token_budget=1024),
    drafter=replace(TINY.drafter, num_anchors=16),
    recipe=replace(TINY.recipe, schedule="constant", warmup_ratio=0.0),
)
"""The same, for a run without a command line."""
Train = Callable[..., Any]


class Hosts:
    """`torchrun --nproc-per-node 2 -m pipeline train`, with a mark in the environment of all its processes."""

    def __init__(self, folder: Path, cache: Path, *options: str) -> None:
        self.run_folder = folder / "run"
        self._log = folder / "log"
        self._mark = uuid.uuid4().hex
        (self.run_folder / "control").mkdir(parents=True)
        torchrun = ["torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
        trainer = ["-m", "pipeline", "train", "--cache", str(cache), "--steps", "1000", "--log-every", "1", *LIGHT]
        variables = {MARK: self._mark, RUN_DIR_VARIABLE: str(self.run_folder)}
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *torchrun, "--master-port", str(free_port()), *trainer, *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **variables, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            )

    @property
    def said(self) -> str:
        """By torchrun and both trainers."""
        return self._log.read_text(encoding="utf-8")

    def wait_for(self, worker: str, word: str, count: int) -> None:
        """Wait until *worker* has written so many such events."""
        path = self.run_folder / "events" / f"{worker}.jsonl"
        deadline_s = time.perf_counter() + START_LIMIT_S
        while not path.exists() or path.read_text(encoding="utf-8").count(f'["{word}"') < count:
            assert self.process.poll() is None, self.said
            assert time.perf_counter() < deadline_s, f"{worker} never wrote {count} × {word}: {self.said}"
            time.sleep(0.01)

    def log_of(self, worker: str) -> EventLog:
        """Its events so far."""
        path = self.run_folder / "events" / f"{worker}.jsonl"
        return decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))

    def alive(self) -> list[psutil.Process]:
        """All processes of the two hosts; zombies have no environment any more."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end(self, limit_s: float) -> float:
        """Wait until all its processes are gone; how long that took, in seconds."""
        start_s = time.perf_counter()
        self.process.wait(limit_s)
        psutil.wait_procs(self.alive(), timeout=limit_s)
        assert [] == self.alive()
        return time.perf_counter() - start_s


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def start(run_cache: Path, tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    started: list[Hosts] = []

    def make(*options: str) -> Hosts:
        started.append(Hosts(tmp_path, run_cache, *options))
        return started[-1]

    yield make
    for hosts in started:
        for process in hosts.alive():
            process.kill()
        hosts.process.wait()


def losses(log: EventLog, num_steps: int) -> list[float]:
    by_step = {gauge.step: gauge.value for gauge in log.gauges if gauge.name == "loss"}
    return [by_step[step] for step in range(num_steps)]


def test_two_hosts_train_as_one_obey_at_the_same_step_and_save_when_torchrun_is_stopped(
    start: Callable[..., Hosts], train: Train, tmp_path: Path
) -> None:
    hosts = start(*STEADY, "--checkpoints", str(tmp_path / "saved"))
    hosts.wait_for("drafter-0", "step", 2)
    CommandWriter(hosts.run_folder / "control").send(CommandName.WINDOW_START, label="a", kind="measure")
    hosts.wait_for("drafter-1", "ack", 1)
    hosts.wait_for("drafter-0", "step", NUM_STEPS)
    hosts.process.send_signal(signal.SIGTERM)
    took_s = hosts.end(20)
    logs = [hosts.log_of(f"drafter-{rank}") for rank in range(2)]
    num_steps = len(logs[0].steps)
    alone = train(topology="1+2", num_steps=NUM_STEPS, preset=PRESET).logs

    acks = [[(ack.command_id, ack.name, ack.step) for ack in log.acks] for log in logs]
    assert [(1, "window_start")] == [ack[:2] for ack in acks[0]]
    assert acks[0] == acks[1]
    assert num_steps == len(logs[1].steps)
    assert num_steps == read_state(find_checkpoint(tmp_path / "saved")).step
    assert 2 == hosts.said.count(f"stopped by SIGTERM after {num_steps} steps; saved"), hosts.said
    assert took_s < 10
    for rank, log in enumerate(logs):
        assert losses(alone[f"drafter-{rank}"], NUM_STEPS) == losses(log, NUM_STEPS)


def test_a_drafter_that_is_killed_on_one_host_ends_both(start: Callable[..., Hosts]) -> None:
    hosts = start()
    hosts.wait_for("drafter-1", "step", 3)
    os.kill(hosts.log_of("drafter-1").header.pid, signal.SIGKILL)
    took_s = hosts.end(20)

    assert took_s < 10
    assert hosts.process.returncode != 0
    assert "error: drafter-1 was killed by SIGKILL" in hosts.said
    assert "finished after" not in hosts.said
    assert "stopped by" not in hosts.said


def test_a_run_that_torchrun_starts_again_finds_its_peers_anew(
    start: Callable[..., Hosts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_MAX_RESTARTS", "1")
    hosts = start()
    hosts.wait_for("drafter-1", "step", 3)
    os.kill(hosts.log_of("drafter-1").header.pid, signal.SIGKILL)
    deadline_s = time.perf_counter() + START_LIMIT_S
    while hosts.said.count("step=1 ") < 2 and hosts.process.poll() is None and time.perf_counter() < deadline_s:
        time.sleep(0.05)

    assert 2 == hosts.said.count("step=1 "), hosts.said

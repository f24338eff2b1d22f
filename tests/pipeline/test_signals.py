"""Real signals to a real run, in every phase: it ends as it should, and takes all its processes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.signals import StopSignals, stop_signals

MARK = "PIPELINE_TEST_RUN"


class Started:
    """`python -m pipeline train` with a mark in its environment, which all its processes inherit."""

    def __init__(self, cache: Path, log: Path) -> None:
        self.log = log
        self._mark = uuid.uuid4().hex
        command = [sys.executable, "-m", "pipeline", "train", "--steps", "0", "--log-every", "1", "--cache", str(cache)]
        with log.open("w") as file:
            # A session of its own, so that a signal to the group is a terminal's Ctrl-C.
            self.process = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self._mark},
                start_new_session=True,
            )

    def wait_for(self, word: str) -> None:
        """Wait until the log holds *word*."""
        for _ in range(6000):
            if word in self.log.read_text(encoding="utf-8"):
                return
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            time.sleep(0.01)
        raise AssertionError(f"the log never said {word!r}")

    def wait_for_processes(self, number: int) -> None:
        """Wait until so many processes run."""
        for _ in range(3000):
            if len(self.alive()) >= number:
                return
            time.sleep(0.01)
        raise AssertionError(f"there were never {number} processes")

    def alive(self) -> list[int]:
        """The run's processes; zombies have no environment any more."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._mark:
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    def is_gone_within(self, seconds: float) -> bool:
        """Whether all its processes end in that time."""
        deadline_s = time.perf_counter() + seconds
        while self.alive() and time.perf_counter() < deadline_s:
            time.sleep(0.05)
        return not self.alive()


@pytest.fixture
def started(run_cache: Path, tmp_path: Path) -> Iterator[Started]:
    run = Started(run_cache, tmp_path / "log")
    yield run
    for pid in run.alive():
        os.kill(pid, signal.SIGKILL)
    run.process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_loads_ends_it_at_once_with_all_its_processes(
    started: Started, number: signal.Signals
) -> None:
    # Itself, the fork server and the resource tracker: all are importing.
    started.wait_for_processes(3)
    time.sleep(0.3)
    if number is signal.SIGINT:
        os.killpg(started.process.pid, number)
    else:
        started.process.send_signal(number)

    status = started.process.wait(10)

    assert 128 + number == status
    assert started.is_gone_within(1)
    assert "Traceback" not in started.log.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_while_it_trains_ends_it_with_status_0(
    started: Started, number: signal.Signals
) -> None:
    """A terminal sends Ctrl-C to all processes, and Slurm and systemd send SIGTERM to all."""
    started.wait_for("step=3 ")
    os.killpg(started.process.pid, number)

    status = started.process.wait(20)
    said = started.log.read_text(encoding="utf-8")

    assert 0 == status
    assert started.is_gone_within(1)
    assert "asked to stop: the step that is under way is the last" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_workers_end_by_themselves_when_the_main_process_is_killed(started: Started) -> None:
    started.wait_for("step=3 ")
    started.process.kill()

    started.process.wait(5)

    assert started.is_gone_within(10)
    assert "Traceback" not in started.log.read_text(encoding="utf-8")


def test_while_loading_a_signal_ends_what_was_started_and_then_the_process() -> None:
    ended: list[str | int] = []
    signals = StopSignals(exit_now=ended.append)

    def fail() -> None:
        ended.append("failed")
        raise OSError("already gone")

    signals.enders += [lambda: ended.append("server"), fail, lambda: ended.append("crew")]
    signals.note(signal.SIGTERM, None)

    assert ["crew", "failed", "server", 143] == ended


def test_while_training_the_first_signal_is_noted_and_the_second_ends_the_process() -> None:
    signals = StopSignals()
    signals.is_training = True

    signals.note(signal.SIGINT, None)

    assert [signal.SIGINT] == signals.received
    with pytest.raises(SystemExit):
        signals.note(signal.SIGINT, None)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)

    with stop_signals() as signals:
        inside = signal.getsignal(signal.SIGINT)

    assert signals.note == inside
    assert before == signal.getsignal(signal.SIGINT)

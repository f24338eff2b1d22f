"""What workers write to standard error is repeated with their names, and the last lines are kept."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest

from flashprof.contracts.errors import SubjectError, UsageError
from flashprof.contracts.outcome import Outcome
from pipeline import worker_output
from pipeline.presets import TINY
from pipeline.worker_output import NUM_LAST_LINES, WorkerOutput


class Gone:
    """Standard error whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(text)

    def flush(self) -> None:
        raise BrokenPipeError


class Busy:
    """Standard error that takes nothing before it is free."""

    def __init__(self) -> None:
        self.is_free = threading.Event()

    def write(self, text: str) -> int:
        self.is_free.wait(10)
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""


def test_lines_are_repeated_by_name_and_the_last_ones_kept(capsys: pytest.CaptureFixture[str]) -> None:
    output = WorkerOutput()
    writers = {name: output.add(name, get_context()) for name in ("target-0", "drafter-0")}
    output.start()
    os.write(writers["target-0"].fileno(), b"half a ")
    os.write(writers["target-0"].fileno(), b"line\nand no end")
    for number in range(NUM_LAST_LINES + 3):
        os.write(writers["drafter-0"].fileno(), f"line {number}\n".encode())
    for writer in writers.values():
        writer.close()

    output.close()

    assert ("half a line", "and no end") == output.last_lines("target-0")
    assert [f"line {number}" for number in range(3, NUM_LAST_LINES + 3)] == list(output.last_lines("drafter-0"))
    assert "target-0: half a line\n" in capsys.readouterr().err


def test_bytes_that_are_no_text_do_not_end_it() -> None:
    output = WorkerOutput()
    writer = output.add("target-0", get_context())
    output.start()
    os.write(writer.fileno(), b"\xff\xfe\nnext\n")
    writer.close()

    output.close()

    assert "next" == output.last_lines("target-0")[-1]


def test_the_last_lines_are_waited_for_since_an_end_is_known_before_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_output, "LAST_WAIT_S", 30.0)
    busy = Busy()
    monkeypatch.setattr(sys, "stderr", busy)
    output = WorkerOutput()
    writer = output.add("target-0", get_context())
    os.write(writer.fileno(), b"".join(b"line %d\n" % number for number in range(4)))
    writer.close()
    output.start()
    found: list[tuple[str, ...]] = []
    asker = threading.Thread(target=lambda: found.append(output.last_lines("target-0")), daemon=True)
    asker.start()
    asker.join(0.1)
    too_early = list(found)
    busy.is_free.set()
    asker.join(10)

    assert [] == too_early
    assert [tuple(f"line {number}" for number in range(4))] == found


def test_a_worker_never_waits_for_a_reader_of_ours_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    output = WorkerOutput()
    writer = output.add("target-0", get_context())
    monkeypatch.setattr(sys, "stderr", Gone())
    output.start()

    def write() -> None:
        # Far more than a pipe holds.
        for _ in range(10):
            os.write(writer.fileno(), b"x" * 65_535 + b"\n")
        os.write(writer.fileno(), b"last\n")
        writer.close()

    worker = threading.Thread(target=write, daemon=True)
    worker.start()
    worker.join(10)

    assert not worker.is_alive()
    assert "last" == output.last_lines("target-0")[-1]


@pytest.mark.slow
def test_a_worker_that_refuses_its_input_ends_the_run_in_time_and_its_message_is_told_live_once(
    train: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    start_s = time.perf_counter()
    with pytest.raises(UsageError, match=r"error: model.safetensors cannot be read") as caught:
        train(topology="2+2", resume_from=tmp_path)
    took_s = time.perf_counter() - start_s
    name = str(caught.value.where).split(",")[0]
    said = capfd.readouterr().err

    assert name in ("drafter-0", "drafter-1")
    assert 1 == said.count(f"{name}: error: model.safetensors cannot be read")
    # Whatever else is said is said with a name.
    assert all(line.startswith(("drafter-", "target-")) for line in said.splitlines())
    assert took_s < 10
    assert [] == [child for server in psutil.Process().children() for child in server.children()]


@pytest.mark.slow
def test_a_traceback_is_told_live_and_its_end_is_in_the_error(
    train: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    # The command line would have refused it.
    preset = replace(TINY, recipe=replace(TINY.recipe, lr=-1.0))
    with pytest.raises(SubjectError) as caught:
        train(preset=preset)
    said = capfd.readouterr().err.splitlines()

    assert "drafter-0 ended with status 1" == caught.value.what
    assert (Outcome.CRASHED, 4) == (caught.value.outcome, caught.value.exit_code)
    assert "drafter-0: Traceback (most recent call last):" in said
    assert "drafter-0: ValueError: Invalid learning rate: -1.0" == said[-1]
    assert "ValueError: Invalid learning rate: -1.0" == str(caught.value.where).splitlines()[-1].strip()

"""Step lines appear when they should, and every reading becomes a gauge of its own step."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashprof.contracts.events import EventLog, decode
from flashprof.emit import connect
from pipeline.train.log import StepLog
from pipeline.train.metrics import Reading


def reading(step: int) -> Reading:
    return Reading(step, {"loss": 2.0 + step, "acc": 0.5})


def run_log(folder: Path, *, num_steps: int, every: int, prints: bool = True, late: int = 0) -> EventLog:
    """Log *num_steps* steps whose readings come *late* steps later."""
    emitter = connect("drafter", run_dir=folder)
    log = StepLog(emitter, prints=prints, every=every, num_steps=num_steps)
    for step in range(num_steps):
        log.record(step, [reading(step - late)] if step >= late else [], num_tokens=100, num_waiting=3)
        log.num_tokens += 100
        emitter.end_step(step)
    log.finish([reading(step) for step in range(num_steps - late, num_steps)], num_steps=num_steps)
    emitter.close()
    path = folder / "events" / "drafter-0.jsonl"
    return decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))


def test_lines_come_every_so_many_steps_and_after_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_log(tmp_path, num_steps=7, every=3)

    lines = capsys.readouterr().out.splitlines()

    assert ["step=3", "step=6", "step=7"] == [line.split()[0] for line in lines]
    assert lines[0].startswith("step=3 loss=4.0000 acc=0.5000 tok/s=")
    assert lines[0].endswith(" queue=3")


def test_only_one_drafter_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_log(tmp_path, num_steps=4, every=1, prints=False)

    assert "" == capsys.readouterr().out


@pytest.mark.parametrize("late", [0, 1, 3])
def test_late_readings_are_gauges_of_the_step_that_they_belong_to(tmp_path: Path, late: int) -> None:
    log = run_log(tmp_path, num_steps=5, every=2, late=late)

    losses = {gauge.step: gauge.value for gauge in log.gauges if gauge.name == "loss"}

    assert {step: 2.0 + step for step in range(5)} == losses


def test_the_end_mark_holds_the_totals(tmp_path: Path) -> None:
    log = run_log(tmp_path, num_steps=5, every=2)

    assert [{"num_tokens": 500, "num_steps": 5}] == [mark.detail for mark in log.marks if mark.name == "end"]

"""Lines, gauges and curves tell the same numbers, each of its own step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from flashprof.contracts.events import EventLog, decode
from flashprof.emit import connect
from pipeline.train.log import StepFacts, StepLog
from pipeline.train.metrics import Reading

FACTS = StepFacts(
    step=0,
    num_tokens=100,
    num_tokens_all=300,
    num_supervised_tokens=80,
    num_padding_tokens=25,
    num_waiting=3,
    wait_hidden_s=0.25,
    wait_room_s=0.5,
    lr=1e-3,
)


@dataclass
class Kept:
    """A sink that keeps what it is given."""

    scalars: dict[str, dict[int, float]] = field(default_factory=dict)
    """Name to step to value."""
    is_closed: bool = False

    def record(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self.scalars.setdefault(name, {})[step] = value

    def close(self) -> None:
        self.is_closed = True


@dataclass(kw_only=True)
class Case:
    """A run to log; every step takes a second."""

    steps: range
    every: int
    prints: bool = True
    late: int = 0
    """Steps after which a reading comes."""
    sink: Kept = field(default_factory=Kept)
    memory: Mapping[str, float] = field(default_factory=dict)

    def run(self, folder: Path) -> EventLog:
        seconds: Iterator[int] = count()
        now_s = [0.0]
        emitter = connect("drafter", run_dir=folder)
        log = StepLog(
            emitter,
            prints=self.prints,
            every=self.every,
            num_steps=self.steps.stop,
            sink=self.sink,
            memory=lambda: self.memory,
            clock=lambda: now_s[0],
        )
        for step in self.steps:
            now_s[0] = float(next(seconds) + 1)
            is_late = step - self.late < self.steps.start
            log.record(replace(FACTS, step=step), [] if is_late else [reading(step - self.late)])
            emitter.end_step(step)
        log.finish([reading(step) for step in self.steps[len(self.steps) - self.late :]], num_steps=self.steps.stop)
        emitter.close()
        path = folder / "events" / "drafter-0.jsonl"
        return decode(path.read_text(encoding="utf-8").splitlines(), where=str(path))


def reading(step: int) -> Reading:
    return Reading(step, {"loss": 2.0 + step, "acc": 0.5, "metrics_stamp": float(step)})


def gauges(log: EventLog, name: str) -> dict[int, float]:
    return {gauge.step: gauge.value for gauge in log.gauges if gauge.name == name}


def test_lines_come_every_so_many_steps_and_after_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Case(steps=range(7), every=3).run(tmp_path)

    assert [
        "step=3 loss=4.0000 acc=0.5000 tok/s=300 queue=3",
        "step=6 loss=7.0000 acc=0.5000 tok/s=300 queue=3",
        "step=7 loss=8.0000 acc=0.5000 tok/s=300 queue=3",
    ] == capsys.readouterr().out.splitlines()


def test_a_resumed_run_counts_on_from_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Case(steps=range(1000, 1012), every=10).run(tmp_path)

    assert ["step=1010", "step=1012"] == [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert list(range(1000, 1012)) == list(gauges(log, "loss"))


def test_only_one_drafter_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Case(steps=range(4), every=1, prints=False).run(tmp_path)

    assert "" == capsys.readouterr().out


@pytest.mark.parametrize("late", [0, 1, 3])
def test_late_readings_are_of_the_step_that_they_belong_to(tmp_path: Path, late: int) -> None:
    case = Case(steps=range(5), every=1, late=late)
    log = case.run(tmp_path)

    assert {step: 2.0 + step for step in range(5)} == gauges(log, "loss")
    assert {step: float(step) for step in range(5)} == gauges(log, "metrics_stamp")
    # A curve's step is the number of steps done; what came together at the end is drawn by its last.
    drawn = case.sink.scalars["train/loss"]
    assert {step + 1: 2.0 + step for step in range(5) if step < 5 - late or step == 4} == drawn


def test_every_step_has_its_learning_rate_and_padding_share(tmp_path: Path) -> None:
    log = Case(steps=range(3), every=10).run(tmp_path)

    assert {0: 1e-3, 1: 1e-3, 2: 1e-3} == gauges(log, "lr")
    assert {0: 0.2, 1: 0.2, 2: 0.2} == gauges(log, "padding_share")


def test_memory_is_looked_at_with_every_line(tmp_path: Path) -> None:
    memory = {"memory_allocated_gib": 3.0, "memory_reserved_gib": 4.0, "memory_retries": 1.0}
    case = Case(steps=range(5), every=2, memory=memory)
    log = case.run(tmp_path)

    assert {1: 3.0, 3: 3.0, 4: 3.0} == gauges(log, "memory_allocated_gib")
    assert {2: 1.0, 4: 1.0, 5: 1.0} == case.sink.scalars["memory/retries"]
    assert {2: 4.0, 4: 4.0, 5: 4.0} == case.sink.scalars["memory/reserved_gib"]


def test_curves_hold_rates_and_shares_of_the_time_between_lines(tmp_path: Path) -> None:
    case = Case(steps=range(4), every=2, prints=False)
    case.run(tmp_path)

    assert {
        "train/loss": {2: 3.0, 4: 5.0},
        "train/acc": {2: 0.5, 4: 0.5},
        "train/lr": {2: 1e-3, 4: 1e-3},
        "speed/tok_per_s": {2: 300.0, 4: 300.0},
        "speed/supervised_tok_per_s": {2: 240.0, 4: 240.0},
        "speed/padding_share": {2: 0.2, 4: 0.2},
        "queue/depth": {2: 3, 4: 3},
        "queue/wait_hidden_share": {2: 0.25, 4: 0.25},
        "queue/wait_room_share": {2: 0.5, 4: 0.5},
    } == case.sink.scalars
    assert case.sink.is_closed


def test_a_step_without_a_loss_leaves_the_last_one_in_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = StepLog(connect("drafter"), prints=True, every=1, num_steps=3)

    log.record(FACTS, [])
    log.record(replace(FACTS, step=1), [reading(0)])
    log.record(replace(FACTS, step=2), [Reading(1, {"grad_norm": 1.0})])
    log.finish([], num_steps=3)

    lines = capsys.readouterr().out.splitlines()
    assert ["step=2 loss=2.0000", "step=3 loss=2.0000"] == [" ".join(line.split()[:2]) for line in lines]


def test_the_end_mark_holds_this_ranks_tokens(tmp_path: Path) -> None:
    log = Case(steps=range(5), every=2).run(tmp_path)

    assert [{"num_tokens": 500, "num_steps": 5}] == [mark.detail for mark in log.marks if mark.name == "end"]

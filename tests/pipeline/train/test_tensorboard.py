"""Curves can be read back while the run goes on, and what is wrong with the request is said."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from flashprof.contracts.errors import UsageError
from pipeline.train.tensorboard import NoSink, TensorBoardSink, open_sink, require_tensorboard

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="the extra tensorboard is not installed"
)


def read_scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator: Any = EventAccumulator(str(folder)).Reload()
    names = accumulator.Tags()["scalars"]
    return {name: [(event.step, event.value) for event in accumulator.Scalars(name)] for name in names}


class Writer:
    """Notes what a SummaryWriter is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.asked.append((name, value, step))

    def flush(self) -> None:
        self.asked.append("flush")

    def close(self) -> None:
        self.asked.append("close")


def test_every_record_is_flushed() -> None:
    """The writer's own thread would wait up to two minutes, and a kill would lose that."""
    writer = Writer()
    sink = TensorBoardSink(writer)

    sink.record(10, {"a": 1.0, "b": 2.0})
    sink.record(20, {"a": 3.0})
    sink.close()

    assert [("a", 1.0, 10), ("b", 2.0, 10), "flush", ("a", 3.0, 20), "flush", "close"] == writer.asked


@needs_tensorboard
def test_what_was_recorded_can_be_read_before_the_end(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "curves")

    sink.record(10, {"train/loss": 2.5, "speed/tok_per_s": 1000.0})
    sink.record(20, {"train/loss": math.nan})
    # Read before it is closed, as after a kill.
    found = read_scalars(tmp_path / "curves")
    sink.close()

    assert [(10, 1000.0)] == found["speed/tok_per_s"]
    assert [10, 20] == [step for step, _ in found["train/loss"]]
    assert found["train/loss"][0][1] == 2.5
    assert math.isnan(found["train/loss"][1][1])


@needs_tensorboard
def test_a_resumed_run_replaces_what_the_killed_one_wrote_past_its_checkpoint(tmp_path: Path) -> None:
    killed = open_sink(tmp_path)
    for step in (10, 20, 30):
        killed.record(step, {"train/loss": float(step)})
    killed.close()

    resumed = open_sink(tmp_path, start_step=20)
    resumed.record(30, {"train/loss": -1.0})
    resumed.close()

    assert [(10, 10.0), (20, 20.0), (30, -1.0)] == read_scalars(tmp_path)["train/loss"]


@needs_tensorboard
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")

    with pytest.raises(UsageError, match="cannot write event files") as caught:
        open_sink(tmp_path / "taken" / "curves")

    assert str(tmp_path / "taken" / "curves") == caught.value.where


def test_without_a_folder_nothing_is_kept() -> None:
    sink = open_sink(None)
    sink.record(1, {"train/loss": 1.0})
    sink.close()

    assert isinstance(sink, NoSink)


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(UsageError, match="which is not installed") as caught:
        require_tensorboard(lambda name: None)

    assert "pip install" in (caught.value.next_command or "")

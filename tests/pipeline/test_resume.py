"""A run that was stopped or killed goes on as if nothing had happened: the same losses, bit for bit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import wait_for_lines

from flashprof.contracts.errors import SubjectError
from pipeline.checkpoint.folder import find_checkpoint, read_state
from pipeline.config import CheckpointPlan
from pipeline.signals import StopSignals

pytestmark = pytest.mark.slow

NUM_STEPS = 14
Train = Callable[..., Any]


def move_away(run_folder: Path) -> None:
    """What waits for the next run's events must not find those of the last one."""
    run_folder.rename(run_folder.with_name(f"moved-{sum(1 for _ in run_folder.parent.iterdir())}"))


def resume(train: Train, folder: Path, **given: Any) -> Any:
    """What `--resume auto` does with the newest checkpoint."""
    newest = find_checkpoint(folder)
    plan = CheckpointPlan(folder=folder, every=4, keep=2)
    state = read_state(newest)
    return train(checkpoints=plan, resume_from=newest, start_step=state.step, num_steps=NUM_STEPS, **given)


@pytest.mark.parametrize(("topology", "expression"), [("1+1", "none"), ("2+2", "async-metrics,queue=4")])
def test_after_a_signal_the_losses_are_those_of_a_run_without_a_stop(
    train: Train, run_folder: Path, tmp_path: Path, topology: str, expression: str
) -> None:
    whole = train(expression, topology=topology, num_steps=NUM_STEPS).gauges("loss")
    move_away(run_folder)
    signals = StopSignals()

    def interrupt() -> None:
        wait_for_lines(run_folder / "events" / "drafter-0.jsonl", '["step"', 5)
        signals.note(signal.SIGTERM, None)

    interrupter = threading.Thread(target=interrupt, daemon=True)
    interrupter.start()
    plan = CheckpointPlan(folder=tmp_path, every=100, keep=2)
    first = train(expression, topology=topology, num_steps=NUM_STEPS, signals=signals, checkpoints=plan)
    interrupter.join()
    second = resume(train, tmp_path, expression=expression, topology=topology)

    assert "stopped by SIGTERM" in first.said
    assert "saved, continue with" in first.said
    assert whole == first.gauges("loss") | second.gauges("loss")
    assert set() == first.gauges("loss").keys() & second.gauges("loss").keys()


def test_after_a_kill_only_the_steps_since_the_last_checkpoint_are_trained_again(
    train: Train, run_folder: Path, tmp_path: Path
) -> None:
    whole = train(num_steps=NUM_STEPS)
    move_away(run_folder)
    path = run_folder / "events" / "drafter-0.jsonl"

    def kill() -> None:
        wait_for_lines(path, '["step"', 6)
        os.kill(int(path.read_text(encoding="utf-8").split('"pid": ')[1].split(",")[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(SubjectError):
        train(num_steps=0, checkpoints=CheckpointPlan(folder=tmp_path, every=4, keep=2))
    killer.join()
    saved = read_state(find_checkpoint(tmp_path))
    # A cosine over no fixed end is another schedule: only the position is compared here.
    second = resume(train, tmp_path)

    assert saved.step >= 4
    assert 0 == saved.step % 4
    assert list(range(saved.step, NUM_STEPS)) == list(second.gauges("loss"))
    assert [whole.gauges("lr")[step] for step in range(saved.step, NUM_STEPS)] == list(second.gauges("lr").values())


def test_checkpoints_are_rotated_and_count_tokens_from_the_very_first(train: Train, tmp_path: Path) -> None:
    plan = CheckpointPlan(folder=tmp_path, every=4, keep=2)
    first = train(topology="1+2", num_steps=8, checkpoints=plan)
    middle = read_state(find_checkpoint(tmp_path))
    second = resume(train, tmp_path, topology="1+2")
    last = read_state(find_checkpoint(tmp_path))

    def num_tokens(run: Any) -> int:
        return sum(step.num_tokens for rank in range(2) for step in run.logs[f"drafter-{rank}"].steps)

    assert ["step-00000012", "step-00000014"] == sorted(path.name for path in tmp_path.iterdir())
    assert num_tokens(first) == middle.num_tokens
    assert num_tokens(first) + num_tokens(second) == last.num_tokens

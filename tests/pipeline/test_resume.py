"""A run that was stopped or killed goes on as if nothing had happened: the same losses, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import wait_for_lines
from trainer_config import some_config

from flashprof.contracts.errors import SubjectError
from flashprof.emit import connect
from pipeline.checkpoint.folder import find_checkpoint, read_state
from pipeline.config import CheckpointPlan
from pipeline.roles.dispatcher import LOOK_S, Dispatcher, Lines
from pipeline.signals import StopSignals, stop_signals
from pipeline.topology import Topology

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


def in_background(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def wait_for_save(folder: Path, num_steps: int) -> None:
    """Return while the checkpoint of *num_steps* is written; 20 s at most."""
    for _ in range(20_000):
        if (folder / f".step-{num_steps:08d}.part").exists():
            return
        time.sleep(0.001)
    raise AssertionError("it was never saved")


def test_a_signal_during_a_save_lets_it_finish_and_saves_once_more(train: Train, tmp_path: Path) -> None:
    signals = StopSignals()

    def interrupt() -> None:
        wait_for_save(tmp_path, 4)
        signals.note(signal.SIGTERM, None)

    interrupter = in_background(interrupt)
    plan = CheckpointPlan(folder=tmp_path, every=4, keep=9)
    run = train(num_steps=0, signals=signals, checkpoints=plan)
    interrupter.join()
    num_steps = len(run.logs["drafter-0"].steps)

    assert f"stopped by SIGTERM after {num_steps} steps; saved" in run.said
    assert num_steps == read_state(find_checkpoint(tmp_path)).step
    assert {"step-00000004", f"step-{num_steps:08d}"} <= {path.name for path in tmp_path.iterdir()}
    assert [] == [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_sigterm_that_reaches_workers_too_is_the_dispatchers_to_obey(train: Train, run_folder: Path) -> None:
    def terminate() -> None:
        for name in ("target-0", "drafter-0"):
            path = run_folder / "events" / f"{name}.jsonl"
            wait_for_lines(path, '["step"', 2)
            os.kill(int(path.read_text(encoding="utf-8").split('"pid": ')[1].split(",")[0]), signal.SIGTERM)

    terminator = in_background(terminate)
    run = train(num_steps=NUM_STEPS)
    terminator.join()

    assert f"finished after {NUM_STEPS} steps" in run.said


def test_a_second_signal_ends_the_run_at_once_and_nobody_stays(
    train: Train, run_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with stop_signals() as signals:

        def interrupt() -> None:
            wait_for_lines(run_folder / "events" / "drafter-0.jsonl", '["step"', 3)
            # Two kinds: of one kind, the second is dropped while the first waits to be handled.
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)

        interrupter = in_background(interrupt)
        with pytest.raises(SystemExit) as caught:
            train("queue=4", topology="2+2", num_steps=0, signals=signals)
        interrupter.join()

    assert 128 + signal.SIGTERM == caught.value.code
    assert [] == [child for server in psutil.Process().children() for child in server.children()]
    assert "Traceback" not in capfd.readouterr().err


def test_a_third_signal_does_not_wait_for_the_second_to_be_obeyed() -> None:
    ended: list[str | int] = []
    signals = StopSignals(exit_now=ended.append)
    signals.is_training = True
    signals.enders.append(lambda: ended.append("crew"))
    signals.note(signal.SIGTERM, None)
    with pytest.raises(SystemExit):
        signals.note(signal.SIGTERM, None)

    signals.note(signal.SIGTERM, None)

    assert ["crew", 128 + signal.SIGTERM] == ended


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Room for two checkpoints of 4.9 MiB and not for a third."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=13m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder / "saved"
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_ends_the_run_with_the_reason_and_earlier_checkpoints_are_whole(
    train: Train, small_disk: Path
) -> None:
    with pytest.raises(SubjectError) as caught:
        train(num_steps=0, checkpoints=CheckpointPlan(folder=small_disk, every=2, keep=3))
    newest = find_checkpoint(small_disk)
    state = read_state(newest)
    # Keeping fewer is what helps: the run goes on where the last checkpoint was.
    plan = CheckpointPlan(folder=small_disk, every=2, keep=1)
    shutil.rmtree(small_disk / "step-00000002")
    resumed = train(num_steps=6, checkpoints=plan, resume_from=newest, start_step=state.step)

    assert "drafter-0 ended with status 4" == caught.value.what
    assert "cannot save the checkpoint of step 6" in str(caught.value.where)
    assert "earlier checkpoints are intact" in str(caught.value.where)
    assert 4 == state.step
    assert [4, 5] == [step.step for step in resumed.logs["drafter-0"].steps]
    assert ["step-00000006"] == [path.name for path in small_disk.iterdir()]


def test_the_dispatcher_waits_for_all_drafters_since_the_first_may_still_save() -> None:
    pairs = [get_context("fork").Pipe() for _ in range(2)]
    order_reader, orders = get_context("fork").Pipe(duplex=False)
    lines = Lines(
        targets=[],
        drafters=[ours for ours, _ in pairs],
        orders=orders,
        should_stop=lambda: False,
        check_workers=lambda: None,
    )
    config = some_config(topology=Topology(1, 2), num_steps=NUM_STEPS, start_step=NUM_STEPS)
    ended: list[int] = []
    dispatcher = Dispatcher(config, None, iter(()), connect("nobody"), lines)
    running = in_background(lambda: ended.append(dispatcher.run()))
    pairs[1][1].send(NUM_STEPS)
    running.join(2 * LOOK_S)
    too_early = list(ended)
    pairs[0][1].send(NUM_STEPS)
    running.join(10)
    order_reader.close()

    assert [] == too_early
    assert [NUM_STEPS] == ended

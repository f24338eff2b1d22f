"""
Saves checkpoints in child processes that fail at every file operation in turn, and prints what was found afterwards.

Run as `python crash_saver.py FOLDER`; prints one JSON list. A program of its own, because it forks, and because an
audit hook, which is what sees the file operations, cannot be taken off again.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import torch

from flashprof.contracts.errors import ToolError, UsageError
from pipeline.checkpoint.folder import find_checkpoint, load_weights, read_state, save_checkpoint
from pipeline.checkpoint.state import CheckpointState
from pipeline.model.drafter import DrafterShape
from pipeline.presets import TINY

OPERATIONS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir"})
COMPLETED, REFUSED, NOT_REACHED = 0, 1, 3
SHAPE = DrafterShape(
    hidden_size=4, num_heads=1, num_kv_heads=1, head_dim=4, intermediate_size=4, num_layers=1, num_taps=1
)
SCENARIOS: dict[str, tuple[list[int], int, int]] = {
    # Steps saved before, the step whose saving fails, checkpoints to keep.
    "first": ([], 1, 2),
    "keep one": ([1], 2, 1),
    "rotate two": ([1, 2, 3], 4, 2),
    "same step": ([1], 1, 1),
}
TRIALS = (*((name, "kill") for name in SCENARIOS), ("keep one", "full disk"), ("same step", "full disk"))


def save(root: Path, step: int, keep: int, *, value: float) -> None:
    weight = torch.nn.Parameter(torch.full((1000,), value))
    state = CheckpointState(
        step=step,
        num_tokens=0,
        seed=0,
        num_steps=0,
        preset=TINY,
        toggles={},
        topology="1+1",
        mask_token_id=0,
        layer_ids=(1,),
        shape=SHAPE,
        num_target_layers=6,
        vocab_size=8,
        max_positions=8,
    )
    save_checkpoint(root, state, {"fc.weight": weight}, torch.optim.AdamW([weight]), ["fc.weight"], keep=keep)


def fail_at(number: int, fail: Callable[[], None]) -> Callable[[], int]:
    """Call *fail* in front of the file operation of that number, counted from 1; returns the counter."""
    seen = 0

    def hook(event: str, arguments: Any) -> None:
        nonlocal seen
        if event in OPERATIONS:
            seen += 1
            if seen == number:
                fail()

    sys.addaudithook(hook)
    return lambda: seen


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fill_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def in_child(work: Callable[[], int]) -> int:
    """Exit status of *work* in a forked child; negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def save_and_fail(root: Path, scenario: str, number: int, fail: Callable[[], None]) -> int:
    _, step, keep = SCENARIOS[scenario]
    reached = fail_at(number, fail)
    try:
        save(root, step, keep, value=-1.0)
    except ToolError:
        return REFUSED
    return COMPLETED if reached() >= number else NOT_REACHED


def save_past_limit(root: Path) -> int:
    """The limit on a file's size stops safetensors' own code in the middle of a file, which no hook sees."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        save(root, 2, 2, value=-1.0)
    except ToolError:
        return REFUSED
    return COMPLETED


def found_in(root: Path) -> dict[str, Any]:
    """The newest checkpoint, read in full."""
    try:
        path = find_checkpoint(root)
    except UsageError:
        return {"step": None, "values": []}
    return {"step": read_state(path).step, "values": load_weights(path)["fc.weight"].unique().tolist()}


def try_every_operation(root: Path, scenario: str, how: str) -> list[dict[str, Any]]:
    before, step, keep = SCENARIOS[scenario]
    fail = {"kill": kill, "full disk": fill_disk}[how]
    outcomes = []
    for number in count(1):
        shutil.rmtree(root, ignore_errors=True)
        for earlier in before:
            save(root, earlier, 9, value=float(earlier))
        status = in_child(lambda at=number: save_and_fail(root, scenario, at, fail))  # type: ignore[misc]
        if status == NOT_REACHED:
            return outcomes
        found = found_in(root)
        # What the failure left must not stand in the way of the next save.
        save(root, step + 1, keep, value=step + 1.0)
        left = sorted(path.name for path in root.iterdir())
        outcomes.append({"scenario": scenario, "how": how, "number": number, "status": status, **found, "left": left})
    raise AssertionError


def main() -> None:
    root = Path(sys.argv[1]) / "checkpoints"
    outcomes = []
    for scenario, how in TRIALS:
        outcomes += try_every_operation(root, scenario, how)
    shutil.rmtree(root, ignore_errors=True)
    save(root, 1, 9, value=1.0)
    status = in_child(lambda: save_past_limit(root))
    names = sorted(path.name for path in root.iterdir())
    outcomes.append({"scenario": "limit", "status": status, **found_in(root), "left": names})
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()

"""The end of a launch is named rightly, and the reason helps."""

from __future__ import annotations

import pytest

from flashprof.contracts.outcome import Outcome
from flashprof.launch.outcome import classify, last_error

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
TRACEBACK = ["Traceback (most recent call last):", '  File "t.py", line 3, in f', "ValueError: bad preset", ""]


@pytest.mark.parametrize(
    ("returncode", "tail", "steps", "asked", "outcome", "words"),
    [
        (0, [], 50, True, Outcome.COMPLETED, ""),
        (0, [], 50, False, Outcome.ENDED_EARLY, "50 training steps"),
        (0, [], 0, False, Outcome.LOAD_FAILED, "status 0"),
        (0, [OOM, "retried with a smaller batch"], 50, True, Outcome.COMPLETED, ""),
        (1, TRACEBACK, 0, False, Outcome.LOAD_FAILED, "ValueError: bad preset"),
        (1, TRACEBACK, 1, False, Outcome.CRASHED, "after 1 training step: ValueError: bad preset"),
        (1, TRACEBACK, 9, True, Outcome.CRASHED, "ValueError: bad preset"),
        (1, [OOM], 9, False, Outcome.OUT_OF_MEMORY, "Tried to allocate 2.00 GiB"),
        (1, ["torch.cuda.OutOfMemoryError: x"], 0, False, Outcome.OUT_OF_MEMORY, "0 training steps"),
        (1, ["MemoryError"], 9, False, Outcome.OUT_OF_MEMORY, "MemoryError"),
        (1, ["OSError: [Errno 12] Cannot allocate memory"], 9, False, Outcome.OUT_OF_MEMORY, "Errno 12"),
        (1, ["OSError: [Errno 28] No space left on device: 'x'"], 9, False, Outcome.TOOL_FAILED, "disk is full"),
        (1, ["unable to write to file </torch_1>: No space left on device (28) /dev/shm"], 9, False,
         Outcome.TOOL_FAILED, "shm-size"),
        (1, ["PermissionError: [Errno 13] Permission denied: '/data'"], 0, False, Outcome.NO_PERMISSION, "/data"),
        (1, ["OSError: [Errno 1] Operation not permitted"], 9, False, Outcome.NO_PERMISSION, "9 training steps"),
        (-9, [], 9, False, Outcome.KILLED, "OOM killer"),
        (137, [], 9, False, Outcome.KILLED, "SIGKILL"),
        # A worker's signal is not the main process's, which ends with an error of its own.
        (4, ["error: target-0 was killed by SIGKILL", "  where: no message"], 9, False, Outcome.KILLED, "target-0"),
        (4, ["error: drafter-1 was killed by SIGSEGV"], 0, False, Outcome.KILLED, "native code failed"),
        (-9, [], 0, False, Outcome.KILLED, "dmesg"),
        (-9, [], 9, True, Outcome.TIMED_OUT, "stop_timeout_s"),
        (-11, [], 9, False, Outcome.KILLED, "SIGSEGV"),
        (-7, [], 9, False, Outcome.KILLED, "df -h /dev/shm"),
        (-15, [], 9, False, Outcome.KILLED, "SIGTERM"),
        (-15, [], 9, True, Outcome.COMPLETED, ""),
        (130, [], 9, True, Outcome.COMPLETED, ""),
        (1, ["KeyboardInterrupt"], 9, True, Outcome.COMPLETED, ""),
        (1, ["KeyboardInterrupt"], 9, False, Outcome.CRASHED, "KeyboardInterrupt"),
        (255, [], 9, False, Outcome.CRASHED, "status 255 after 9 training steps: it printed nothing"),
        (None, [], 9, False, Outcome.HUNG, "hang_timeout_s"),
        (None, [], 9, True, Outcome.TIMED_OUT, "stop_timeout_s"),
    ],
)  # fmt: skip
def test_outcome_and_reason(  # noqa: PLR0917 (the table's columns)
    returncode: int | None, tail: list[str], steps: int, asked: bool, outcome: Outcome, words: str
) -> None:
    found, reason = classify(returncode, tail, trained_steps=steps, asked_to_stop=asked)

    assert outcome == found
    assert words in reason
    assert reason == "" or (reason[0].isupper() and reason[-1] in ".?")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (TRACEBACK, "ValueError: bad preset"),
        (["KeyError: 1", "During handling …", "RuntimeError: two"], "RuntimeError: two"),
        (["[rank0]: RuntimeError: NCCL", "[rank0]: trailing"], "RuntimeError: NCCL"),
        (["ValueError: own", "torch.distributed.elastic.ChildFailedError: ", "x.CalledProcessError: y"],
         "ValueError: own"),
        (["ChildFailedError: only this"], "ChildFailedError: only this"),
        (["10%|#\r20%|##\rsegmentation \x1b[31mfault\x1b[0m\n", "\n"], "segmentation fault"),
        (["see my.module.ErrorHandler for errors", "bye"], "bye"),
        ([], "it printed nothing"),
    ],
)  # fmt: skip
def test_last_error_is_the_line_that_says_most(lines: list[str], expected: str) -> None:
    assert expected == last_error(lines)

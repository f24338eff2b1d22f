"""How a launch ended, told from its exit status and the end of its log. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from flashprof.contracts.outcome import Outcome

_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|\bMemoryError\b|Cannot allocate memory"
    r"|DefaultCPUAllocator: can't allocate memory"
)
_NO_PERMISSION = re.compile(r"\bPermissionError\b|Permission denied|Operation not permitted")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_SHARED_MEMORY = re.compile(r"/dev/shm|shm_open|shared memory|Bus error", re.IGNORECASE)  # noqa: S108 (a pattern)
_ERROR = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*(?:Error|Exception|Exit)(?::.*|$))")
_WRAPPERS = ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError")
"""Errors that only say that another process failed; its own error stands further up."""
_STOPPED = re.compile(r"KeyboardInterrupt|SignalException")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WORKER_KILLED = re.compile(r"(?:^|\s)(\S+) was killed by (SIG[A-Z]+)\b")
"""Our pipeline's main process ends with an error of its own where a worker was killed."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def classify(
    returncode: int | None, tail: Sequence[str], *, trained_steps: int, asked_to_stop: bool
) -> tuple[Outcome, str]:
    """
    Name the end of a launch.

    Args:
        returncode: Exit status, negative or above 128 for a signal; None where it still runs.
        tail: The last lines of its log, oldest first.
        trained_steps: Training steps that it finished.
        asked_to_stop: Whether FlashProf had asked it to stop.

    Returns:
        The outcome, and a reason that says what to do; empty for `COMPLETED`.
    """
    if returncode is None:
        return _still_running(asked_to_stop=asked_to_stop)
    if returncode == 0:
        return _clean_end(trained_steps=trained_steps, asked_to_stop=asked_to_stop)
    number = _signal_number(returncode)
    lines = [_visible(line) for line in tail]
    if asked_to_stop and (number in _STOP_SIGNALS or any(_STOPPED.search(line) for line in lines)):
        return Outcome.COMPLETED, ""
    for line in reversed(lines):
        if _DISK_FULL.search(line):
            return Outcome.TOOL_FAILED, _disk_full_reason(line)
        if _OUT_OF_MEMORY.search(line):
            return Outcome.OUT_OF_MEMORY, (
                f"The subject ran out of memory after {_steps(trained_steps)}: {line}. "
                "Lower the token budget or the sequence length, or free the device (nvidia-smi, free -h)."
            )
        if _NO_PERMISSION.search(line):
            return Outcome.NO_PERMISSION, (
                f"The system forbade it after {_steps(trained_steps)}: {line}. "
                "Check the owner of that file or device, and the container's rights."
            )
    number, victim = _killed_worker(lines) or (number, "The subject")
    if number is not None:
        return _killed(number, victim, trained_steps=trained_steps, asked_to_stop=asked_to_stop)
    return _failed(returncode, lines, trained_steps=trained_steps)


def last_error(lines: Sequence[str]) -> str:
    """The line that says most about a failure: the last `…Error: …`, else the last line that is not empty."""
    errors = [match.group(1) for line in lines if (match := _ERROR.search(_visible(line)))]
    own = [text for text in errors if text.partition(":")[0].rpartition(".")[2] not in _WRAPPERS]
    said = [text for line in lines if (text := _visible(line))]
    for candidates in (own, errors, said):
        if candidates:
            return candidates[-1]
    return "it printed nothing"


def _still_running(*, asked_to_stop: bool) -> tuple[Outcome, str]:
    if asked_to_stop:
        return Outcome.TIMED_OUT, (
            "The subject was asked to stop and still ran when the grace was over. "
            "Give it longer: --set windows.stop_timeout_s=60."
        )
    return Outcome.HUNG, (
        "The subject runs but reported nothing for longer than the limit. "
        "See where it stands (py-spy dump --pid PID), or allow more: --set windows.hang_timeout_s=300."
    )


def _clean_end(*, trained_steps: int, asked_to_stop: bool) -> tuple[Outcome, str]:
    if asked_to_stop:
        return Outcome.COMPLETED, ""
    if trained_steps == 0:
        return Outcome.LOAD_FAILED, (
            "The subject ended with status 0 before it trained a step: is its command a training run, "
            "and is its data not empty?"
        )
    return Outcome.ENDED_EARLY, (
        f"The subject finished by itself after {_steps(trained_steps)}, before the last planned window. "
        "Let it train longer, or plan fewer or shorter windows: --set windows.num_measure=2."
    )


def _killed_worker(lines: Sequence[str]) -> tuple[int, str] | None:
    """Signal and name of the worker whose death ended the subject."""
    found = (match for line in reversed(lines) if (match := _WORKER_KILLED.search(line)))
    known = (match for match in found if match[2] in signal.Signals.__members__)
    return next(((signal.Signals[match[2]].value, f"The subject's {match[1]}") for match in known), None)


def _killed(number: int, victim: str, *, trained_steps: int, asked_to_stop: bool) -> tuple[Outcome, str]:
    name = signal.Signals(number).name
    what = f"{victim} was ended by {name} after {_steps(trained_steps)}"
    if asked_to_stop and number == signal.SIGKILL:
        return Outcome.TIMED_OUT, (
            f"{what}: it did not stop in time when it was asked. Give it longer: --set windows.stop_timeout_s=60."
        )
    hints = {
        "SIGKILL": "the kernel's OOM killer is the likely sender; look with `dmesg | grep -i oom`, or in a "
        "container at its memory limit and the job's events",
        "SIGBUS": "shared memory is probably full; look with `df -h /dev/shm`, start a container with --shm-size=8g",
        "SIGSEGV": "native code failed; set PYTHONFAULTHANDLER=1 to see where",
        "SIGABRT": "native code gave up; its message is in the log",
        "SIGILL": "a binary was built for another CPU; reinstall it for this one",
    }
    hint = hints.get(name, "somebody sent it: a scheduler's time limit, a user, or another program")
    return Outcome.KILLED, f"{what}: {hint}."


def _failed(returncode: int, lines: Sequence[str], *, trained_steps: int) -> tuple[Outcome, str]:
    error = last_error(lines)
    if trained_steps == 0:
        return Outcome.LOAD_FAILED, (
            f"The subject ended with status {returncode} before it trained a step: {error}. The log says more."
        )
    return Outcome.CRASHED, (
        f"The subject ended with status {returncode} after {_steps(trained_steps)}: {error}. The log says more."
    )


def _disk_full_reason(line: str) -> str:
    if _SHARED_MEMORY.search(line):
        return f"Shared memory is full: {line}. Enlarge it (docker run --shm-size=8g), or lower the queue depth."
    return f"The disk is full: {line}. Free space (df -h), or write elsewhere: --set output.reports=DIR."


def _signal_number(returncode: int) -> int | None:
    # A shell between us and the program reports a signal as 128 + its number.
    number = -returncode if returncode < 0 else returncode - 128
    return number if number in {known.value for known in signal.Signals} else None


def _visible(line: str) -> str:
    """What a terminal would show: the end of a progress bar, without colours."""
    return _ESCAPES.sub("", line).rstrip("\r\n").rpartition("\r")[2].strip()


def _steps(num_steps: int) -> str:
    return f"{num_steps} training step{'' if num_steps == 1 else 's'}"

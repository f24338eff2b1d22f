"""
Stack samples by py-spy: one process a target, attached by pid.

Idle threads are recorded (`--idle`): a lane that waits in a queue or in a CUDA synchronisation counts as idle, and
without the flag its process yields no sample at all (ray-project/ray#63852). Reading one frame costs about 17 µs,
idle or not, so the cost grows with depth times rate. Three processes of 21 frames and one idle thread each, on two
cores: 1.7 % of both cores at 20 Hz, 5.3 % at 50 Hz, 10 % at 100 Hz. Attaching takes 0.05 s where binaries are cached.

Who holds the GIL is recorded for a second before a window, not within it: two py-spies at once cost twice as much. Such
a look reads the holder's frames only: 100 a second took 1.2 % of a core for a process of the tiny preset, 15 Hz of all
threads 1.3 %.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.errors import ToolError
from flashprof.contracts.ports import SampleTarget
from flashprof.contracts.profiles import StackView
from flashprof.sample.stack_files import stack_file_name, write_looks

ATTACH_LIMIT_S = 15.0
FINISH_LIMIT_S = 10.0
GIL_RATE_HZ = 100
GIL_S = 1
"""py-spy takes whole seconds."""
NUM_GIL_WINDOWS = 4
"""400 looks tell a share to ±5 points; more windows would only take longer."""

_BEGUN = "Sampling process"
"""py-spy prints this line once it has attached, before its first sample."""
_BEHIND = re.compile(r"([\d.]+)s behind in sampling")
_COUNTS = re.compile(r"Samples: (\d+) Errors: (\d+)")
_MANY_ERRORS = 0.05
_REMEDY_OFF = "--set sampling.stacks=off"


class PySpySampler:
    """
    Writes `<role>-<rank>.folded` for each target, and py-spy's own words to `<role>-<rank>.pyspy.log`.

    Before the first windows of a launch it writes `<role>-<rank>.gil.folded`, too. Full paths, to find sources by.
    A target that ends takes its py-spy with it, so a killed FlashProf leaves none behind once its subject is gone.
    """

    name = "py-spy"

    def __init__(
        self,
        rate_hz: int,
        blocking: bool,
        *,
        native: bool = False,
        num_gil_windows: int = NUM_GIL_WINDOWS,
        program: str | None = None,
    ) -> None:
        """
        Sample so often, in this way.

        Args:
            rate_hz: Stack samples a second and process.
            blocking: Stop the target for each sample.
            native: C and C++ frames too; py-spy reads them of a stopped target only. It costs most, so only
                `benchmarks.overhead` asks for it.
            num_gil_windows: Before so many windows of each launch, who holds the GIL is recorded.
            program: py-spy; None looks for it.
        """
        assert blocking or not native, "py-spy refuses native without blocking"
        self._rate_hz = rate_hz
        self._blocking = blocking
        self._native = native
        self._program = program or find_pyspy()
        self._num_gil_windows = num_gil_windows
        self._launch = Path()
        """Folder of the windows of the launch that is sampled."""
        self._num_gil_left = 0
        self._spies: list[_Spy] = []
        self._notes: list[str] = []

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        """
        Attach to all targets, and return when each is being sampled.

        Raises:
            ToolError: py-spy is missing, or cannot attach to one of them.
        """
        if self._program is None:
            raise ToolError(
                "py-spy is not installed", next_command=f"{sys.executable} -m pip install py-spy, or {_REMEDY_OFF}"
            )
        try:
            if folder.parent != self._launch:
                # One sampler serves all launches of a study: each of them has to tell.
                self._launch, self._num_gil_left = folder.parent, self._num_gil_windows
            if self._num_gil_left > 0:
                self._num_gil_left -= 1
                self._record_gil(self._program, targets, folder)
            for target in targets:
                self._spies.append(self._spy(self._program, target, folder))
            deadline_s = time.monotonic() + ATTACH_LIMIT_S
            for spy in self._spies:
                spy.wait_until_begun(deadline_s)
        except BaseException:
            self._abandon()
            raise

    def stop(self) -> list[str]:
        """End each py-spy by SIGINT (at SIGTERM it writes nothing) and wait for the files."""
        spies, self._spies = self._spies, []
        running = [spy.ask_to_finish() for spy in spies]
        deadline_s = time.monotonic() + FINISH_LIMIT_S
        notes, self._notes = self._notes, []
        return notes + [
            note for spy, ran in zip(spies, running, strict=True) for note in spy.finish(deadline_s, was_running=ran)
        ]

    def _record_gil(self, program: str, targets: Sequence[SampleTarget], folder: Path) -> None:
        """Look for the holder of the GIL for `GIL_S`; the window is worth taking without it, so a failure is a note."""
        try:
            for target in targets:
                self._spies.append(self._spy(program, target, folder, StackView.GIL))
            deadline_s = time.monotonic() + ATTACH_LIMIT_S + GIL_S
            while self._spies:
                self._spies[0].wait_until_ended(deadline_s)
                self._spies.pop(0)
            write_looks(folder, GIL_RATE_HZ * GIL_S)
        except ToolError as error:
            self._abandon()
            self._num_gil_left = 0
            self._notes.append(f"no GIL view: {error.what}")

    def _spy(self, program: str, target: SampleTarget, folder: Path, view: StackView = StackView.ALL) -> _Spy:
        output = folder / stack_file_name(target.name, view)
        log_path = output.with_suffix(".pyspy.log")
        command = [program, "record", "--pid", str(target.pid), "--output", str(output), "--format", "raw"]
        command += ["--threads", "--full-filenames"]
        if view is StackView.GIL:
            command += ["--rate", str(GIL_RATE_HZ), "--gil", "--duration", str(GIL_S)]
        else:
            command += ["--rate", str(self._rate_hz), "--idle", *(["--native"] if self._native else [])]
        command += [] if self._blocking else ["--nonblocking"]
        try:
            with log_path.open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            raise ToolError(f"py-spy cannot be started: {error}", where=program, next_command=_REMEDY_OFF) from error
        return _Spy(target, process, output, log_path)

    def _abandon(self) -> None:
        spies, self._spies = self._spies, []
        for spy in spies:
            spy.process.kill()
            spy.process.wait()


@dataclass(frozen=True, slots=True)
class _Spy:
    """One py-spy at work."""

    target: SampleTarget
    process: subprocess.Popen[bytes]
    output: Path
    log_path: Path

    def said(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_until_begun(self, deadline_s: float) -> None:
        while _BEGUN not in self.said():
            if self.process.poll() is not None:
                raise self._failure(f"py-spy cannot attach to {self.target.name}: {_gist(self.said())}")
            if time.monotonic() > deadline_s:
                raise self._failure(f"py-spy did not attach to {self.target.name} within {ATTACH_LIMIT_S:.0f} s")
            time.sleep(0.01)

    def wait_until_ended(self, deadline_s: float) -> None:
        try:
            self.process.wait(timeout=max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._failure(f"py-spy did not finish {self.target.name}") from None
        if not self.output.is_file():
            raise self._failure(f"py-spy left no stacks of {self.target.name}: {_gist(self.said())}")

    def ask_to_finish(self) -> bool:
        if self.process.poll() is not None:
            return False
        self.process.send_signal(signal.SIGINT)
        return True

    def finish(self, deadline_s: float, *, was_running: bool) -> list[str]:
        try:
            self.process.wait(timeout=max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f"py-spy did not finish {self.target.name} within {FINISH_LIMIT_S:.0f} s: its stacks are lost"]
        return _notes(self.target.name, self.said(), was_running=was_running, has_file=self.output.is_file())

    def _failure(self, what: str) -> ToolError:
        return ToolError(
            what, where=f"pid {self.target.pid}, {self.log_path}", next_command=f"flashprof doctor, or {_REMEDY_OFF}"
        )


def find_pyspy() -> str | None:
    """The py-spy beside this Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def can_trace(*, blocking: bool = False, program: str | None = None) -> str | None:
    """
    Try whether py-spy may read a process that FlashProf started, as it will have to: flags and files do not say.

    Args:
        blocking: Try the way that stops the target.
        program: py-spy; None looks for it.

    Returns:
        None where it works (30 ms), else the reason with its remedy.
    """
    program = program or find_pyspy()
    if program is None:
        return f"py-spy is not installed; {sys.executable} -m pip install py-spy"
    own = [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        command = [program, "dump", "--pid", str(child.pid), *([] if blocking else ["--nonblocking"])]
        try:
            tried = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=5.0, check=False)
            said, worked = tried.stderr, tried.returncode == 0
        except (OSError, subprocess.TimeoutExpired) as error:
            said, worked = str(error), False
        finally:
            child.kill()
    return None if worked else explain_refusal(_gist(said), scope=_read(_SCOPE_PATH), in_container=_in_container())


_SCOPE_PATH = Path("/proc/sys/kernel/yama/ptrace_scope")


def explain_refusal(said: str, *, scope: str, in_container: bool) -> str:
    """
    Why tracing was refused, and what to do.

    Args:
        said: py-spy's own words.
        scope: Yama's `ptrace_scope`, empty where there is none.
        in_container: Whether this looks like a container.
    """
    if "ermission" not in said and "not permitted" not in said:
        return f"py-spy failed: {said}"
    if in_container:
        return (
            "the container may not trace: it lacks CAP_SYS_PTRACE; docker run --cap-add=SYS_PTRACE …, "
            'or in Kubernetes securityContext.capabilities.add: ["SYS_PTRACE"]'
        )
    match scope:
        case "1":
            return (
                "kernel.yama.ptrace_scope is 1: a process may trace only its own children; "
                "sudo sysctl kernel.yama.ptrace_scope=0 (until the next boot)"
            )
        case "2":
            return (
                "kernel.yama.ptrace_scope is 2: only CAP_SYS_PTRACE may trace; "
                "sudo sysctl kernel.yama.ptrace_scope=0, or run as root"
            )
        case "3":
            return (
                "kernel.yama.ptrace_scope is 3: tracing is off until the next boot; change it in /etc/sysctl.d, reboot"
            )
    return f"tracing is refused ({said}); run as the user who owns the subject, or as root"


def _notes(name: str, said: str, *, was_running: bool, has_file: bool) -> list[str]:
    if not has_file:
        return [f"py-spy left no stacks of {name}: {_gist(said)}"]
    counts = _COUNTS.search(said)
    num_samples, num_errors = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    notes = []
    if not was_running:
        notes.append(f"{name} ended during the window: {num_samples} stack samples kept")
    elif num_samples == 0:
        notes.append(f"py-spy took no stack sample of {name}")
    if behind := [float(text) for text in _BEHIND.findall(said)]:
        notes.append(
            f"py-spy was up to {max(behind):.1f} s behind on {name}: lower the rate, --set sampling.rate_hz=20"
        )
    if num_errors > _MANY_ERRORS * (num_samples + num_errors):
        notes.append(f"py-spy failed to read {num_errors} of {num_samples + num_errors} stacks of {name}")
    return notes


def _gist(said: str) -> str:
    """py-spy's error without its own back trace: the first line, and the innermost cause."""
    lines = [line.strip() for line in said.partition("Stack backtrace:")[0].splitlines() if line.strip()]
    return " / ".join(dict.fromkeys(lines[:1] + lines[-1:])) if lines else "it said nothing"


def _in_container() -> bool:
    return any(Path(path).exists() for path in ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""

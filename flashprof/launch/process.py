"""Starting a subject as a local process, and ending all that descends from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

from flashprof.contracts.errors import ToolError, UsageError
from flashprof.contracts.ports import LaunchSpec
from flashprof.launch import guard

if TYPE_CHECKING:
    import psutil

EXIT_GRACE_S = 0.5
"""multiprocessing's forkserver and resource tracker end by themselves some milliseconds after the main process."""


class ProcessLauncher:
    """
    Starts subjects on this host, each in a session of its own: a Ctrl-C in the terminal reaches FlashProf only.

    A guard process ends the subject when FlashProf is killed in a way that it cannot handle (SIGKILL, OOM).
    """

    def launch(self, spec: LaunchSpec) -> ProcessSubject:
        """
        Start the program.

        Raises:
            UsageError: The command or the folder does not exist, or the command may not be executed.
            ToolError: The log cannot be written, or the system starts no process.
        """
        _check(spec)
        mark = uuid.uuid4().hex
        keeper = _start_guard(mark)
        try:
            process = _start(spec, mark)
        except BaseException:
            _dismiss(keeper)
            raise
        return ProcessSubject(process, keeper, mark)


class ProcessSubject:
    """A started program and all its descendants. `kill_tree` ends its life, also after a clean end."""

    def __init__(self, process: subprocess.Popen[bytes], keeper: subprocess.Popen[bytes], mark: str) -> None:
        self._process = process
        self._keeper = keeper
        self._mark = mark

    @property
    def pid(self) -> int:
        """The program's own process id."""
        return self._process.pid

    def returncode(self) -> int | None:
        """Exit status, negative for a signal, None while it runs."""
        return self._process.poll()

    def interrupt(self) -> None:
        """Ask the program, not its children, to stop (SIGINT)."""
        self._process.send_signal(signal.SIGINT)

    def kill_tree(self) -> int:
        """
        End it and every descendant, wherever they moved: SIGTERM, 2 s of grace, SIGKILL. Safe to call twice.

        Returns:
            How many processes still ran and had to be ended; 0 after a clean end.
        """
        family = self._descendants()
        deadline_s = time.monotonic() + EXIT_GRACE_S
        while self.returncode() is not None and self._running(family) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        ended = guard.end_all(lambda: self._running(family))
        _dismiss(self._keeper)
        return len(ended)

    def _descendants(self) -> list[psutil.Process]:
        import psutil

        if self.returncode() is not None:
            return []
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _running(self, family: list[psutil.Process]) -> set[int]:
        import psutil

        self._process.poll()  # reaps the program itself
        found = guard.find_marked(self._mark)
        for process in family:
            try:
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process.pid)
            except psutil.NoSuchProcess:
                continue
        return found


def _check(spec: LaunchSpec) -> None:
    if not spec.command:
        raise UsageError("there is no command to run", allowed="flashprof run -- CMD …")
    if not spec.cwd.is_dir():
        raise UsageError(
            f"the folder to run in does not exist: {spec.cwd}", offered=str(spec.cwd), allowed="an existing folder"
        )


def _start(spec: LaunchSpec, mark: str) -> subprocess.Popen[bytes]:
    program = spec.command[0]
    try:
        with spec.log_path.open("wb") as log:
            return subprocess.Popen(
                spec.command,
                cwd=spec.cwd,
                env={**spec.env, guard.MARK_VARIABLE: mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise _explain(error, spec, program) from error


def _explain(error: OSError, spec: LaunchSpec, program: str) -> UsageError | ToolError:
    if error.filename == os.fspath(spec.log_path):
        return ToolError(
            f"the subject's log cannot be written: {error.strerror}",
            where=str(spec.log_path),
            next_command="choose a writable folder: --set output.reports=DIR",
        )
    if isinstance(error, FileNotFoundError):
        return UsageError(
            f"command not found: {program}",
            where=str(spec.cwd),
            offered=program,
            allowed="a program on PATH, or a path seen from that folder; a script's #! interpreter must exist too",
            next_command=f"command -v {program}",
        )
    if isinstance(error, PermissionError) or error.strerror == "Exec format error":
        return UsageError(
            f"command cannot be executed: {program} ({error.strerror})",
            where=str(spec.cwd),
            offered=program,
            allowed="a program with execute permission; a Python script is started as `python SCRIPT`",
            next_command=f"flashprof run -- python {program}" if program.endswith(".py") else f"chmod +x {program}",
        )
    return ToolError(f"the system did not start {program}: {error.strerror}", where=str(spec.cwd))


def _start_guard(mark: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _dismiss(keeper: subprocess.Popen[bytes]) -> None:
    if keeper.poll() is None:
        keeper.communicate(guard.ALL_DONE)

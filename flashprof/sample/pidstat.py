"""Per-thread CPU use by sysstat's pidstat: what a sysadmin would look at, second by second."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from flashprof.contracts.errors import ToolError
from flashprof.contracts.ports import SampleTarget
from flashprof.sample.threads import ThreadUse, check_alive, write_threads

RAW_FILE_NAME = "pidstat.txt"

_OPTIONS = ("-H", "-h", "-t", "-u", "-w", "-p")
_REMEDY = "sudo apt-get install sysstat, or --set sampling.resources=schedstat"
# Without these, a German locale prints 1,5 and a colour terminal prints escapes.
_ENVIRONMENT = {"LC_ALL": "C", "S_COLORS": "never"}
_START_LIMIT_S = 5.0
_RATE_COLUMNS = {
    "usr_pct": "%usr",
    "system_pct": "%system",
    "wait_pct": "%wait",
    "voluntary_switches_per_s": "cswch/s",
    "involuntary_switches_per_s": "nvcswch/s",
}
_NEEDED = ("TGID", "TID", *_RATE_COLUMNS.values(), "Command")


class PidstatSampler:
    """
    One pidstat for all processes, a report a second.

    Its output comes through a pipe and not into a file: when FlashProf is killed, the pipe breaks and pidstat ends.
    """

    name = "pidstat"

    def __init__(self, *, program: str | None = None) -> None:
        self._program = program or shutil.which("pidstat")
        self._targets: tuple[SampleTarget, ...] = ()
        self._folder = Path()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []

    def start(self, targets: Sequence[SampleTarget], folder: Path) -> None:
        """
        Check that this pidstat prints what we read, then start it.

        Raises:
            ToolError: It is missing, prints other columns, does not start, or a target has ended.
        """
        if self._program is None:
            raise ToolError("pidstat is not installed", allowed="sysstat 12 or newer", next_command=_REMEDY)
        check_alive(targets, Path("/proc"))
        command = [self._program, *_OPTIONS, ",".join(str(target.pid) for target in targets)]
        _check_columns(command)
        self._targets, self._folder, self._lines = tuple(targets), folder, []
        begun = threading.Event()
        self._process = subprocess.Popen(
            [*command, "1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=_ENVIRONMENT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process, begun), name="pidstat", daemon=True)
        self._reader.start()
        if not begun.wait(_START_LIMIT_S) or self._process.poll() is not None:
            self._end_process()
            raise ToolError("pidstat did not start", where=" ".join(command), next_command=_REMEDY)

    def stop(self) -> list[str]:
        """End pidstat, write `pidstat.txt` and `threads.csv`, and say what is missing."""
        if self._process is None:
            return []
        notes = self._end_process()
        text = "".join(self._lines)
        (self._folder / RAW_FILE_NAME).write_text(text, encoding="utf-8")
        uses = parse_pidstat(text.splitlines(), self._targets)
        write_threads(self._folder, uses)
        seen = {use.pid for use in uses}
        lost = [target.name for target in self._targets if target.pid not in seen]
        if lost:
            notes.append(f"pidstat saw no full second of {', '.join(lost)}")
        return notes

    def _read(self, process: subprocess.Popen[str], begun: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.append(line)
            # The banner comes before the first reading; the first report a second later.
            begun.set()
        begun.set()

    def _end_process(self) -> list[str]:
        assert self._process is not None
        assert self._reader is not None
        process, self._process = self._process, None
        notes = [] if process.poll() is None else ["pidstat ended during the window"]
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3.0)
        process.kill()
        process.wait()
        self._reader.join()
        assert process.stdout is not None
        process.stdout.close()
        return notes


def parse_pidstat(lines: Iterable[str], targets: Sequence[SampleTarget]) -> list[ThreadUse]:
    """
    Means over the reports, a row a thread, of `pidstat -H -h -t -u -w -p … 1`.

    Raises:
        ToolError: A table has no header, or lacks columns that we need.
    """
    by_pid = {target.pid: target for target in targets}
    names: dict[tuple[int, int], str] = {}
    reports: dict[tuple[int, int], list[list[float]]] = defaultdict(list)
    columns: list[str] = []
    pid = 0
    for line in lines:
        if line.startswith("#"):
            columns = _columns(line)
        elif line[:1].isdigit():
            fields = dict(zip(columns, line.split(maxsplit=len(columns) - 1), strict=False))
            if fields.get("TID") == "-":
                # A process's own row comes before those of its threads, which do not name it.
                pid = int(fields["TGID"])
            elif pid in by_pid and fields.keys() >= set(_NEEDED):
                key = pid, int(fields["TID"])
                names[key] = fields["Command"].removeprefix("|__")
                reports[key].append([float(fields[column]) for column in _RATE_COLUMNS.values()])
    return [_use(by_pid[key[0]], key[1], names[key], values) for key, values in reports.items()]


def _use(target: SampleTarget, tid: int, thread: str, reports: Sequence[Sequence[float]]) -> ThreadUse:
    means = [sum(column) / len(reports) for column in zip(*reports, strict=True)]
    return ThreadUse(
        role=target.role,
        rank=target.rank,
        pid=target.pid,
        tid=tid,
        thread=thread,
        seconds=float(len(reports)),
        **dict(zip(_RATE_COLUMNS, means, strict=True)),
    )


def _columns(header: str) -> list[str]:
    columns = header.removeprefix("#").split()
    missing = [name for name in _NEEDED if name not in columns]
    if missing or columns[-1] != "Command":
        raise ToolError(
            f"this pidstat prints columns that FlashProf does not know (missing: {', '.join(missing) or 'none'})",
            offered=" ".join(columns),
            allowed="the columns of sysstat 12",
            next_command=_REMEDY,
        )
    return columns


def _check_columns(command: Sequence[str]) -> None:
    """One report since the start of the processes, at once: 5 ms."""
    try:
        done = subprocess.run(
            command, env=_ENVIRONMENT, capture_output=True, text=True, errors="replace", timeout=5.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"pidstat does not run: {error}", where=command[0], next_command=_REMEDY) from error
    headers = [line for line in done.stdout.splitlines() if line.startswith("#")]
    if not headers:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise ToolError(f"pidstat printed no table: {said[0]}", where=" ".join(command), next_command=_REMEDY)
    _columns(headers[0])

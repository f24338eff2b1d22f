"""
`threads.csv`: CPU use of every thread in one profile window. One column set, whichever sampler wrote it.

role, rank             the process, as in its events file
pid, tid               operating system ids
thread                 name set with prctl, at most 15 characters; may hold spaces
usr_pct, system_pct    share of one core, in per cent; one thread reaches 100
wait_pct               runnable but not running, in per cent of the time: the sign of contention
voluntary_switches_per_s, involuntary_switches_per_s
seconds                how long it was seen; less than the window for a thread that came or went
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from flashprof.contracts.errors import FormatError, ToolError
from flashprof.contracts.ports import SampleTarget
from flashprof.contracts.results import ThreadRow

FILE_NAME = "threads.csv"

_RATES = ("usr_pct", "system_pct", "wait_pct", "voluntary_switches_per_s", "involuntary_switches_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    """One row of the file; the columns are documented above."""

    role: str
    rank: int
    pid: int
    tid: int
    thread: str
    usr_pct: float
    system_pct: float
    wait_pct: float
    voluntary_switches_per_s: float
    involuntary_switches_per_s: float
    seconds: float


COLUMNS = tuple(field.name for field in fields(ThreadUse))


def write_threads(folder: Path, uses: Iterable[ThreadUse]) -> None:
    """Write `threads.csv` into *folder*, whole or not at all."""
    part = folder / f".{FILE_NAME}.part"
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(_rounded(use) for use in uses)
    part.replace(folder / FILE_NAME)


def read_threads(path: Path) -> list[ThreadUse]:
    """
    Read one `threads.csv`.

    Raises:
        FormatError: Other columns, or a value that is not a number.
    """
    # A thread's name is whatever its program set: bytes that are no text are shown as such.
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file)
        try:
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise FormatError(
                    "not a threads table of this version",
                    where=str(path),
                    offered=",".join(reader.fieldnames or ()),
                    allowed=",".join(COLUMNS),
                    next_command="measure again",
                )
            return [_use(row) for row in reader]
        except (ValueError, TypeError, csv.Error) as error:
            raise FormatError(f"a broken row: {error}", where=str(path), next_command="measure again") from error


def pool_threads(windows: Iterable[Sequence[ThreadUse]]) -> tuple[ThreadRow, ...]:
    """One row a thread over several windows of one launch, weighted by time; the busiest thread of a process first."""
    by_thread: dict[tuple[str, int, int, int], list[ThreadUse]] = defaultdict(list)
    for uses in windows:
        for use in uses:
            by_thread[use.role, use.rank, use.pid, use.tid].append(use)
    rows = [_pool(uses) for uses in by_thread.values()]
    return tuple(sorted(rows, key=lambda row: (row.role, row.rank, -(row.usr_pct + row.system_pct), row.thread)))


def check_alive(targets: Sequence[SampleTarget], proc: Path) -> None:
    """
    Refuse targets that are gone before the window begins.

    Raises:
        ToolError: One of them has no folder in *proc*.
    """
    gone = [target for target in targets if not (proc / str(target.pid)).is_dir()]
    if gone:
        raise ToolError(
            f"cannot sample {', '.join(target.name for target in gone)}: the process has ended",
            where=", ".join(f"pid {target.pid}" for target in gone),
            next_command="see the end of the subject's log",
        )


def _pool(uses: Sequence[ThreadUse]) -> ThreadRow:
    total_s = sum(use.seconds for use in uses) or 1.0
    means = {name: sum(getattr(use, name) * use.seconds for use in uses) / total_s for name in _RATES}
    return ThreadRow(role=uses[-1].role, rank=uses[-1].rank, thread=uses[-1].thread, **means)


def _rounded(use: ThreadUse) -> dict[str, object]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(use).items()}


def _use(row: dict[str, str]) -> ThreadUse:
    return ThreadUse(
        role=row["role"],
        rank=int(row["rank"]),
        pid=int(row["pid"]),
        tid=int(row["tid"]),
        thread=row["thread"],
        seconds=_finite(row["seconds"]),
        **{name: _finite(row[name]) for name in _RATES},
    )


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number that can be added")
    return value

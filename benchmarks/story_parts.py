"""The parts of the story's measurement: commands with a limit each, so that one that fails costs only itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.story_cells import CELLS_FILE

WEIGHTS = {"compare": 0.26, "cells": 0.40, "bisect": 0.34, "run_all": 0.2, "run_none": 0.2}
"""Of the time, relative to the other parts that are asked for."""
DEFAULT_PARTS = ("compare", "cells", "bisect")
GRACE_S = 25.0
"""Between SIGINT, at which FlashProf stops its subject and writes what it knows, and SIGKILL."""
BUDGET_S = 45.0
"""Of a part's limit that its command's budget leaves for the reading under way, the end of the launch, the report."""
LEAST_PART_S = 40.0
STATUS_FILE = "status.json"
NOT_PACKED = ("emitter",)
"""A copy of FlashProf's emitter lies in every run folder."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is measured."""

    preset: str
    topology: str
    train: str
    settings: tuple[str, ...]
    good: str
    bad: str
    """Ends of the comparison and of the search, as toggle expressions."""

    def options(self) -> list[str]:
        """As FlashProf's commands take them."""
        words = ["--preset", self.preset, "--topology", self.topology, "--train", self.train]
        return [*words, *(word for setting in self.settings for word in ("--set", setting))]


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """How a part ended."""

    status: int
    """Of its command; −1 where it was killed at its limit."""
    wall_s: float
    limit_s: float
    why: str
    """Last line of its errors, where it failed."""


def share_time(names: Sequence[str], seconds: float) -> dict[str, float]:
    """Seconds of each part."""
    total = sum(WEIGHTS[name] for name in names)
    return {name: seconds * WEIGHTS[name] / total for name in names}


def part_command(name: str, workload: Workload, limit_s: float, out: Path) -> list[str]:
    """The command line of a part that must end within *limit_s*."""
    flashprof = [sys.executable, "-m", "flashprof.cli"]
    steady = "windows.steady_timeout_s=20"
    common = [
        "--subject",
        "pipeline",
        "--reports",
        str(out / "reports"),
        "--json",
        "--set",
        steady,
        *workload.options(),
    ]
    budget_s = max(10.0, limit_s - BUDGET_S)
    if name == "compare":
        ends = [workload.good, workload.bad, "--method", "hot", "--screen", "--no-explain"]
        return [*flashprof, "compare", *ends, "--budget", f"{budget_s / 60:.3f}", *common]
    if name == "bisect":
        ends = ["--good", workload.good, "--bad", workload.bad, "--no-confirm", "--no-explain"]
        return [*flashprof, "bisect", *ends, "--budget", f"{budget_s:.0f}s", *common]
    if name == "cells":
        seconds = f"{max(20.0, limit_s):.0f}"
        module = [sys.executable, "-m", "benchmarks.story_cells"]
        return [*module, "--seconds", seconds, "--out", str(out), *workload.options()]
    cell = workload.good if name == "run_all" else workload.bad
    windows = {"num_measure": 3, "measure_s": 4, "num_profile": 2, "profile_s": 5}
    settings = [word for key, value in windows.items() for word in ("--set", f"windows.{key}={value}")]
    return [*flashprof, "run", "--toggles", cell, "--run-id", name.replace("_", "-"), *settings, *common]


def run_parts(names: Sequence[str], workload: Workload, seconds: float, out: Path) -> dict[str, PartStatus]:
    """Run the parts one after the other; what one leaves of its time is shared among those that follow."""
    (out / "parts").mkdir(parents=True, exist_ok=True)
    # A shell that starts us in the background makes SIGINT ignored, also in what we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_s = time.monotonic() + seconds
    done: dict[str, PartStatus] = {}
    for position, name in enumerate(names):
        limit_s = share_time(names[position:], end_s - time.monotonic())[name]
        if limit_s < LEAST_PART_S:
            done[name] = PartStatus(status=-1, wall_s=0.0, limit_s=limit_s, why="no time was left")
        else:
            command = part_command(name, workload, limit_s, out)
            print(f"{name}, at most {limit_s:.0f} s: {' '.join(command)}", file=sys.stderr, flush=True)
            done[name] = run_part(name, command, limit_s, out / "parts")
            print(f"  status {done[name].status} after {done[name].wall_s:.0f} s {done[name].why}", file=sys.stderr)
        _write_status(out, done)
    return done


def run_part(name: str, command: Sequence[str], limit_s: float, folder: Path) -> PartStatus:
    """Run one command; at its limit it is interrupted, and a while later killed with all that it has started."""
    start_s = time.monotonic()
    with (folder / f"{name}.json").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        status = _wait(process, limit_s)
    lines = (folder / f"{name}.err").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    # 0, 1, 3: a verdict, whatever it is; 130: interrupted, and what was measured is told. A traceback has status 1 too.
    is_told = status in (0, 1, 3, 130) and (folder / f"{name}.json").stat().st_size > 0
    why = "" if is_told else (lines[-1] if lines else "no message")
    return PartStatus(status=status, wall_s=time.monotonic() - start_s, limit_s=limit_s, why=why)


def read_status(out: Path) -> dict[str, dict[str, Any]]:
    """How the parts under *out* ended."""
    path = out / "parts" / STATUS_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def read_part(name: str, out: Path) -> dict[str, Any] | None:
    """What a part found: what it printed, else what its folder holds; None where there is neither."""
    fallbacks = {"compare": "compare-*/comparison.json", "bisect": "bisect-*/result.json"}
    candidates = [out / CELLS_FILE] if name == "cells" else [out / "parts" / f"{name}.json"]
    if name in fallbacks:
        candidates += sorted((out / "reports").glob(fallbacks[name]))
    if name.startswith("run_"):
        candidates.append(out / "reports" / name.replace("_", "-") / "summary.json")
    for path in candidates:
        with suppress(OSError, ValueError):
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return document
    return None


def pack_reports(out: Path) -> Path | None:
    """All run folders in one small archive beside them, without FlashProf's own code; None where there are none."""
    reports = out / "reports"
    if not reports.is_dir():
        return None
    path = out / "story-reports.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(reports, arcname="reports", filter=_packed)
    return path


def _packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name in NOT_PACKED else member


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int:
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return -1


def _write_status(out: Path, done: Mapping[str, PartStatus]) -> None:
    known = read_status(out) | {name: asdict(status) for name, status in done.items()}
    (out / "parts" / STATUS_FILE).write_text(json.dumps(known, indent=1), encoding="utf-8")

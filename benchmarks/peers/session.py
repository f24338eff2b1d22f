"""The study's processes: one a system, with compiler caches of its own, each with a limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.peers.record import Parts, read_parts

LIMITS_S = MappingProxyType({"flashprof": 170.0, "specforge": 110.0, "transformers": 60.0, "speculators": 330.0})
"""
Seconds a system may take, in the order in which they run. Predicted on an H200: flashprof 20 s to start, 60 to compile,
30 of steps; specforge 15, 25 and 40; transformers 15 and 20; speculators 15, 122 and 50. The whole: 8 minutes.
"""
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run, and where it is written."""

    systems: tuple[str, ...]
    device: str
    tiny: bool
    site: Path
    """Folder with the unpacked peers."""
    out: Path
    limit_s: float
    """Of all systems together."""


def run_systems(plan: Plan, *, limits_s: MappingProxyType[str, float] = LIMITS_S) -> dict[str, Parts]:
    """
    Measure one system after the other; one that fails or takes too long leaves its parts, and an error.

    Returns:
        System name to its parts.
    """
    plan.out.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + plan.limit_s
    found = {}
    for system in plan.systems:
        left_s = deadline_s - time.monotonic()
        found[system] = _run(plan, system, min(limits_s[system], left_s)) if left_s > 5 else _lost("no time was left")
    return found


def unpack_wheels(wheels: Path, site: Path) -> list[str]:
    """
    Lay wheels out as an install without dependencies would; a wheel is a zip file of what goes into site-packages.

    Returns:
        The wheels' names, which say name and version.
    """
    names = []
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        names.append(wheel.name)
    return names


def _run(plan: Plan, system: str, limit_s: float) -> Parts:
    parts_file, log_file = plan.out / f"{system}.jsonl", plan.out / f"{system}.log"
    parts_file.unlink(missing_ok=True)
    start_s = time.monotonic()
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            _command(plan, system, parts_file),
            cwd=REPOSITORY,
            env=_environment(plan, system),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            ended = f"exit status {process.wait(limit_s)}"
        except subprocess.TimeoutExpired:
            ended = f"killed after {limit_s:.0f} s"
        finally:
            _kill_group(process)
    parts = read_parts(parts_file)
    if ended != "exit status 0":
        parts |= _lost(f"{ended}; the end of its log: {_tail(log_file)}")
    return parts | {"process": {"wall_s": round(time.monotonic() - start_s, 1), "limit_s": limit_s, "ended": ended}}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started: compile workers would go on computing beside the next system."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _command(plan: Plan, system: str, parts_file: Path) -> Sequence[str]:
    command = [sys.executable, "-m", "benchmarks.peers.worker", system, "--to", str(parts_file)]
    return [*command, "--device", plan.device, *(["--tiny"] if plan.tiny else [])]


def _environment(plan: Plan, system: str) -> dict[str, str]:
    caches = plan.out.absolute() / "caches" / system
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", ""), str(plan.site.absolute())]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        # Cold for every system, or the first would compile for the others.
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    }


def _lost(reason: str) -> Parts:
    return {"lost": {"error": reason}}


def _tail(log_file: Path) -> str:
    text = log_file.read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1][:300] if text else "empty"

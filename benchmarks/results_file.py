"""
Results files: what a study measured, with everything needed to trust it later.

Only a running benchmark can write one: the command, the versions, the machine and whether a goal is met are collected
or computed here and cannot be passed in.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "datasets", "numpy", "scipy", "pandas", "py-spy", "psutil")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The range in which a value must lie, ends included, in the measure's own unit."""

    low: float = -math.inf
    high: float = math.inf

    def is_met_by(self, value: float) -> bool:
        """Whether *value* lies in the range."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"<= {self.high:g}"
        return f">= {self.low:g}" if math.isinf(self.high) else f"{self.low:g}..{self.high:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of a study."""

    name: str
    """`emitter_…`, `coverage_…`: the beginning says what it belongs to (design §9)."""
    value: float
    unit: str
    goal: Goal | None = None
    """None where the number only informs."""
    note: str = ""

    def __post_init__(self) -> None:
        """A study that has no number has no result."""
        if not math.isfinite(self.value):
            raise ValueError(f"measure {self.name!r} is {self.value}")

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.goal is None else self.goal.is_met_by(self.value)

    def as_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        goal = None if self.goal is None else str(self.goal)
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "goal": goal,
            "met": self.met,
            "note": self.note,
        }

    def __str__(self) -> str:
        verdict = {None: "", True: f"   goal {self.goal}: met", False: f"   goal {self.goal}: NOT MET"}[self.met]
        return f"{self.name:32} {self.value:12,.4g} {self.unit:8}{verdict}"


def write_results(
    kind: str, measures: Sequence[Measure], data: Mapping[str, Any], *, folder: Path = RESULTS, measured_on: str = ""
) -> Path:
    """
    Write `<kind>_<hardware>_<date>.json`, replacing an earlier one of the same day.

    Args:
        kind: `overhead`, `calibration`, … (design §9).
        measures: At least one, each with a name of its own.
        data: What the measures were computed from, so that it can be looked at again.
        folder: Where results live; tests give their own.
        measured_on: The hardware, where parts were measured on another machine and brought here; empty for this one.
    """
    names = [measure.name for measure in measures]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"measures need names of their own: {names}")
    document = {
        "kind": kind,
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": measured_on or hardware(),
        "command": _command(),
        "versions": versions(),
        "measures": [measure.as_json() for measure in measures],
        "data": dict(data),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}_{_slug(document['hardware'])}_{document['date']}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def hardware() -> str:
    """What the study ran on: the GPUs where the process uses them, else the processor and its cores."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return f"{torch.cuda.device_count()}x {torch.cuda.get_device_name()}"
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8")) if cpuinfo.exists() else []
    return f"{len(os.sched_getaffinity(0))}x {names[0] if names else platform.machine()}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _command() -> str:
    """As a person would type it; `python -m` shows only the module's path in `sys.argv`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = sys.argv[0] if spec is None else f"-m {spec.name}"
    return " ".join(["python", program, *sys.argv[1:]])


def versions() -> dict[str, str]:
    """Python, system, commit and libraries of this process."""
    found = {"python": platform.python_version(), "system": platform.platform(), "commit": _commit()}
    return found | dict(_installed(PACKAGES))


def _installed(packages: Iterable[str]) -> Iterable[tuple[str, str]]:
    for package in packages:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue


def _commit() -> str:
    """The measured source; `-dirty` where it holds changes that no commit has."""
    exported = RESULTS.parents[1] / "COMMIT"
    # An export of a commit has no history: `git archive` for a machine without git (docs/h200.md).
    if exported.exists():
        return exported.read_text(encoding="utf-8").strip()
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty"]
    done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"

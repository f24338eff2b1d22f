"""What machine this is: in the manifest, so that unlike cells are not compared."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("flashprof-dflash", "torch", "transformers", "datasets", "py-spy", "psutil")
RECORDED_PREFIXES = ("OMP_", "PYTORCH_", "NCCL_", "CUDA_", "TORCH", "GLOO_", "MKL_", "PYTHON")
"""Environment variables that change speed; no other is recorded, so that no secret is."""


def num_usable_cores() -> int:
    """Cores that this process may use; only Linux tells a container's or a scheduler's share from the host's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def short_machine() -> dict[str, Any]:
    """Host and cores, for the cell's line."""
    return {"machine": f"{platform.node()}, {num_usable_cores()} cores"}


def full_machine(env: Mapping[str, str]) -> dict[str, Any]:
    """Everything that is known without importing the subject's libraries."""
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": _cpu_model(),
        "num_cores": num_usable_cores(),
        "python": sys.version.split()[0],
        "versions": {name: _version(name) for name in PACKAGES},
        "env": {name: env[name] for name in sorted(env) if name.startswith(RECORDED_PREFIXES)},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())

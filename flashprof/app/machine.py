"""What machine this is: in the manifest, so that unlike cells are not compared."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "flashprof-dflash",
    "torch",
    "triton",
    "transformers",
    "datasets",
    "pyarrow",
    "numpy",
    "py-spy",
    "psutil",
)
RECORDED_PREFIXES = (
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH",
    "TRITON_",
    "NCCL_",
    "GLOO_",
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_TF32_OVERRIDE",
    "MALLOC_",
    "LD_PRELOAD",
    "PYTHON",
)
"""Environment variables that change speed; no other is recorded, so that no secret is."""
GPU_FIELDS = {
    "name": "name",
    "uuid": "uuid",
    "driver": "driver_version",
    "memory_mib": "memory.total",
    "max_sm_clock_mhz": "clocks.max.sm",
    "max_memory_clock_mhz": "clocks.max.memory",
    "application_sm_clock_mhz": "clocks.applications.graphics",
    "application_memory_clock_mhz": "clocks.applications.memory",
    "power_limit_w": "power.limit",
    "mig": "mig.mode.current",
}
"""Our name → nvidia-smi's. What changes by itself (clocks of the moment, temperature, free memory) is no fact."""
GPU_TIMEOUT_S = 10.0
"""Without persistence mode the driver is loaded anew: seconds for eight GPUs."""
SYSTEM = Path("/")

Run = Callable[[Sequence[str]], str | None]


def num_usable_cores() -> int:
    """Cores that this process may use; only Linux tells a container's or a scheduler's share from the host's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def short_machine() -> dict[str, Any]:
    """Host and cores, for the cell's line."""
    return {"machine": f"{platform.node()}, {num_usable_cores()} cores"}


def run_quietly(command: Sequence[str]) -> str | None:
    """A command's output; None where it is missing, fails or takes longer than `GPU_TIMEOUT_S`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GPU_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def full_machine(env: Mapping[str, str], *, root: Path = SYSTEM, run: Run = run_quietly) -> dict[str, Any]:
    """
    Everything that is known without importing the subject's libraries.

    Args:
        env: The environment in which the subject will run.
        root: Where `proc` and `sys` are.
        run: Asks a program; None where it gives no answer.
    """
    return {
        "host": platform.node(),
        "system": platform.platform(),
        "kernel": platform.release(),
        "cpu": _cpu_model(root),
        "num_cores": num_usable_cores(),
        "memory_gib": _memory_gib(root),
        "governor": _governor(root),
        "max_cpu_clock_khz": _read(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
        "gpus": _visible(_gpus(run), env),
        "python": sys.version.split()[0],
        "versions": {name: _version(name) for name in PACKAGES},
        "env": {name: env[name] for name in sorted(env) if name.startswith(RECORDED_PREFIXES)},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _read(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return None


def _cpu_model(root: Path) -> str:
    lines = (_read(root / "proc/cpuinfo") or "").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _memory_gib(root: Path) -> float | None:
    """Rounded: a kernel of another version keeps another few megabytes for itself."""
    lines = (_read(root / "proc/meminfo") or "").splitlines()
    total_kib = next((int(line.split()[1]) for line in lines if line.startswith("MemTotal:")), None)
    return round(total_kib / 2**20, 1) if total_kib else None


def _governor(root: Path) -> str | None:
    """All that are in force; None on most virtual machines."""
    paths = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    return ", ".join(sorted({text for path in paths if (text := _read(path))})) or None


def _gpus(run: Run) -> list[dict[str, str]]:
    """The host's NVIDIA GPUs as nvidia-smi lists them; what it does not know of one is left out."""
    query = f"--query-gpu=index,{','.join(GPU_FIELDS.values())}"
    lines = (run(("nvidia-smi", query, "--format=csv,noheader,nounits")) or "").splitlines()
    rows = [[value.strip() for value in line.split(",")] for line in lines]
    names = ("index", *GPU_FIELDS)
    return [
        # `[N/A]`, `[Not Supported]`: application clocks, for one, are not on every GPU.
        {name: value for name, value in zip(names, row, strict=True) if value and not value.startswith("[")}
        for row in rows
        if len(row) == len(names)
    ]


def _visible(gpus: list[dict[str, str]], env: Mapping[str, str]) -> list[dict[str, str]]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; slices of a GPU are not told apart."""
    chosen = env.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or "MIG" in chosen:
        return gpus
    visible = []
    for word in (word.strip() for word in chosen.split(",")):
        found = [gpu for gpu in gpus if word == gpu.get("index") or (word and gpu.get("uuid", "").startswith(word))]
        if not found:
            # As CUDA does: the first word that is no device ends the list.
            break
        visible.append(found[0])
    return visible

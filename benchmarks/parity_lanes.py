"""A parity study in several processes at once: each has some of the toggles, and cells of its own to compare with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def share(names: Sequence[str], num_lanes: int) -> list[list[str]]:
    """Names by turns; fewer lanes where there are fewer names."""
    return [list(names[lane::num_lanes]) for lane in range(min(num_lanes, len(names)))]


def run_lanes(options: Sequence[str], parts: Sequence[Sequence[str]], folder: Path) -> list[dict[str, Any]]:
    """
    The results documents of studies of *parts*, run side by side.

    Args:
        options: Of `python -m benchmarks.parity`, for all of them.
        parts: Toggle names of each.
        folder: Theirs.

    Raises:
        click.ClickException: One failed; the others are waited for.
    """
    running = [_start(options, names, folder / str(lane)) for lane, names in enumerate(parts)]
    failed = [f"{', '.join(names)}: {_tail(one)}" for names, one in zip(parts, running, strict=True) if one.wait()]
    if failed:
        raise click.ClickException("; ".join(failed))
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*/parity_*.json"))]


def _start(options: Sequence[str], names: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.parity", *options, "--only", ",".join(names)]
    folder.mkdir(parents=True)
    with _log(folder).open("wb") as log:
        return subprocess.Popen(
            [*command, "--results", str(folder)], stdout=log, stderr=log, env=_own_caches(folder.absolute())
        )


def _own_caches(folder: Path) -> dict[str, str]:
    """
    Compilers time kernels and keep the fastest for all who come later. Lanes that share such a cache overwrite each
    other's choice between a cell and the one that it is compared with: two of five did on an H200, by 1e-4 of the loss.
    """
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def _tail(process: subprocess.Popen[bytes]) -> str:
    assert isinstance(process.args, list)
    lines = _log(Path(str(process.args[-1]))).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"status {process.returncode}"


def _log(folder: Path) -> Path:
    return folder / "log.txt"

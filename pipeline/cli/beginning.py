"""What a run begins with: a fresh drafter, a warm one, or a checkpoint that it continues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import ToggleValues, parse_toggles
from pipeline.cli.workload import make_workload
from pipeline.presets import Preset
from pipeline.toggles import REGISTRY

if TYPE_CHECKING:
    from pipeline.checkpoint.state import CheckpointState

OF_THE_CHECKPOINT = (
    "preset", "target", "data", "mask_token_id", "max_length", "buckets", "token_budget", "batches",
    "anchors",
    "lr", "schedule", "warmup_ratio", "accumulate", "seed", "warm_start",
)  # fmt: skip
"""Options that a resumed run cannot change: the losses would not be those of one run."""
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Workload and position."""

    preset: Preset
    toggles: ToggleValues
    seed: int
    num_steps: int
    resume_from: Path | None = None
    start_step: int = 0
    warm_start: Path | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the checkpoint has all steps behind it."""
        return 0 < self.num_steps <= self.start_step


def find_beginning(context: click.Context, given: Mapping[str, Any]) -> Beginning:
    """
    Read the checkpoint, if there is one to continue, or the workload's options.

    Raises:
        UsageError: Options that contradict the checkpoint, or a checkpoint folder in use by another run.
        FormatError: The checkpoint cannot be read.
    """
    checkpoint = _checkpoint(given)
    if checkpoint is not None:
        return _resumed(context, given, checkpoint)
    toggles = parse_toggles(given["expression"], REGISTRY)
    return Beginning(
        preset=_workload(given),
        toggles=toggles,
        seed=given["seed"],
        num_steps=given["steps"],
        warm_start=given["warm_start"],
    )


def _workload(given: Mapping[str, Any]) -> Preset:
    preset = make_workload(given)
    if given["warm_start"] is None:
        return preset
    from pipeline.cli.warm import warmed

    return warmed(preset, given["warm_start"], mask_token_id=given["mask_token_id"])


def _checkpoint(given: Mapping[str, Any]) -> Path | None:
    from pipeline.checkpoint.folder import find_checkpoint, has_checkpoints

    folder, resume = given["checkpoints"], given["resume"]
    if resume == AUTO:
        if folder is None:
            raise UsageError("--resume auto needs --checkpoints", next_command="--checkpoints DIR --resume auto")
        return find_checkpoint(folder) if has_checkpoints(folder) else None
    if resume is not None:
        return find_checkpoint(Path(resume))
    if folder is not None and has_checkpoints(folder):
        raise UsageError(
            "the checkpoint folder holds checkpoints of an earlier run",
            where=str(folder),
            next_command="--resume auto to continue it, or another --checkpoints folder",
        )
    return None


def _resumed(context: click.Context, given: Mapping[str, Any], checkpoint: Path) -> Beginning:
    from pipeline.checkpoint.folder import check_tensors, read_state

    state = read_state(checkpoint)
    check_tensors(checkpoint)
    _check_workload(context, given, checkpoint, state)
    _check_branch(checkpoint, given["checkpoints"])
    toggles = (
        parse_toggles(given["expression"], REGISTRY)
        if _is_given(context, "expression")
        else parse_toggles("none", REGISTRY) | state.toggles
    )
    return Beginning(
        preset=state.preset,
        toggles=toggles,
        seed=state.seed,
        num_steps=_num_steps(context, given, state),
        resume_from=checkpoint,
        start_step=state.step,
    )


def _check_workload(context: click.Context, given: Mapping[str, Any], checkpoint: Path, state: CheckpointState) -> None:
    """A job script that is started again gives the whole command again; it may not change the workload."""
    names = [name for name in OF_THE_CHECKPOINT if _is_given(context, name)]
    if not names:
        return
    is_same = _workload(given) == state.preset and (not _is_given(context, "seed") or given["seed"] == state.seed)
    if not is_same:
        options = ", ".join("--" + name.replace("_", "-") for name in names)
        raise UsageError(
            f"a resumed run takes its workload from the checkpoint, and {options} make another one",
            where=str(checkpoint),
            allowed="the options that the run was started with, all of them, or none",
            next_command=f"leave out {options}; or export the checkpoint and use --warm-start for a new run",
        )


def _num_steps(context: click.Context, given: Mapping[str, Any], state: CheckpointState) -> int:
    if not _is_given(context, "steps"):
        return state.num_steps
    num_steps: int = given["steps"]
    if 0 < num_steps < state.step:
        raise UsageError(
            f"the checkpoint has more steps behind it than --steps {num_steps:,}: it counts those of the whole run",
            offered=str(num_steps),
            allowed=f"more than {state.step:,}, or 0: until stopped",
        )
    return num_steps


def _check_branch(checkpoint: Path, folder: Path | None) -> None:
    """Saving into a folder that holds later steps would mix two runs, and `auto` would go on with the wrong one."""
    from pipeline.checkpoint.folder import find_checkpoint, has_checkpoints, read_state

    if folder is None or not has_checkpoints(folder):
        return
    newest = find_checkpoint(folder)
    if read_state(newest).step > read_state(checkpoint).step:
        raise UsageError(
            f"the checkpoint folder holds later steps than {checkpoint.name}",
            where=str(newest),
            next_command="--resume auto to continue from there, another --checkpoints folder, or delete the later ones",
        )


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)

"""From a checkpoint to what an evaluation takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pipeline.checkpoint.folder import find_checkpoint, load_weights, read_state
from pipeline.checkpoint.state import CheckpointState
from pipeline.data.samples import open_samples
from pipeline.evaluate.evaluation import Effort, Evaluation, HeldOutText, Subject, evaluate_drafter
from pipeline.model.drafter import Drafter
from pipeline.model.target import load_target


@dataclass(frozen=True, kw_only=True)
class OpenedCheckpoint:
    """A checkpoint with its target and its data."""

    path: Path
    state: CheckpointState
    subject: Subject
    text: HeldOutText


def open_checkpoint(path: Path, *, cache: Path, device: str, dtype: torch.dtype) -> OpenedCheckpoint:
    """
    Load the drafter, its target and its held-out samples.

    Args:
        path: A checkpoint, or a folder of them, whose newest is taken.
        cache: Where data sets and converted models are kept.
        device: `cpu` or `cuda`.
        dtype: Of target and drafter. In bfloat16 a pass over a block and one over a token often disagree on near-ties.

    Raises:
        UsageError: There is no checkpoint, or its data are not to be had.
        FormatError: The checkpoint cannot be read.
    """
    found = find_checkpoint(path)
    state = read_state(found)
    plan = replace(state.preset.drafter, layer_types=state.layer_types)
    drafter = Drafter(state.shape)
    drafter.load_state_dict(load_weights(found))
    subject = Subject(
        drafter=drafter.to(device, dtype).eval(),
        shape=state.shape,
        plan=plan,
        model=load_target(state.preset, cache).to(device, dtype),
        layer_ids=state.layer_ids,
        mask_token_id=state.mask_token_id,
    )
    samples = open_samples(state.preset, cache=cache)
    split = samples.split(block_size=plan.block_size, held_out_share=state.preset.data.held_out_share)
    text = HeldOutText(dataset=samples.dataset, indices_N=split.held_out_N, data=state.preset.data)
    return OpenedCheckpoint(path=found, state=state, subject=subject, text=text)


def evaluate_checkpoint(
    path: Path,
    *,
    cache: Path,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    effort: Effort | None = None,
    on_progress: Callable[[Evaluation], None] = lambda _: None,
) -> Evaluation:
    """
    Open a checkpoint and evaluate it.

    Args:
        path: As in `open_checkpoint`, like *cache*, *device* and *dtype*.
        cache: Folder.
        device: `cpu` or `cuda`.
        dtype: Precision.
        effort: How much; None for the default.
        on_progress: Called with each result so far.

    Raises:
        UsageError: As `open_checkpoint`, or nothing is held out.
        FormatError: The checkpoint cannot be read.
    """
    opened = open_checkpoint(path, cache=cache, device=device, dtype=dtype)
    return evaluate_drafter(opened.subject, opened.text, effort or Effort(), on_progress=on_progress)

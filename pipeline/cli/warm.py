"""A preset that fits a drafter which somebody has trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.presets import Preset


def warmed(preset: Preset, folder: Path) -> Preset:
    """
    *preset* with the layers, block size, taps and mask token of the drafter in *folder*.

    Raises:
        FormatError: No drafter in z-lab's layout.
        UsageError: A drafter of an architecture that this trainer does not have.
    """
    from pipeline.checkpoint.zlab import read_plan

    plan = read_plan(folder)
    drafter = replace(
        preset.drafter,
        layer_types=plan.layer_types,
        sliding_window=plan.sliding_window or preset.drafter.sliding_window,
        block_size=plan.block_size,
        tapped_layers=plan.layer_ids,
    )
    return replace(preset, drafter=drafter, target=replace(preset.target, mask_token_id=plan.mask_token_id))

"""Everything that one training run is told; made by the CLI, handed to every process, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.toggles import ToggleValues
from pipeline.presets import Preset
from pipeline.topology import Topology


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run."""

    preset: Preset
    topology: Topology
    toggles: ToggleValues
    """As this machine honours them."""
    refused: dict[str, str]
    """Toggles asked for and not applied, with the reason."""
    num_steps: int
    """0: until stopped."""
    seed: int
    device: str
    """`cpu` or `cuda`."""
    num_threads: int
    """OpenMP threads of each role."""
    cache: Path
    log_every: int

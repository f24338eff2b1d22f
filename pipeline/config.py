"""Everything that one training run is told; made by the CLI, handed to every process, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flashprof.contracts.toggles import ToggleValues
from pipeline.presets import Preset
from pipeline.topology import Topology


@dataclass(frozen=True, kw_only=True)
class HostPlace:
    """Where this host stands among those that torchrun started; the default is a host alone."""

    rank: int = 0
    num_hosts: int = 1
    address: str = "127.0.0.1"
    """Of torchrun's store, where the drafters of all hosts find each other."""
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class CheckpointPlan:
    """Where and how often a run is saved."""

    folder: Path
    every: int
    """Steps between checkpoints; one more is written when the run ends."""
    keep: int
    """Newest checkpoints that are kept."""


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
    host: HostPlace = HostPlace()
    checkpoints: CheckpointPlan | None = None
    resume_from: Path | None = None
    """A checkpoint whose weights, optimizer and position this run continues."""
    start_step: int = 0
    """Steps that the checkpoint has behind it."""
    warm_start: Path | None = None
    """A folder in z-lab's layout whose weights the drafter starts from."""
    tensorboard: Path | None = None
    fault: str = "none"
    """A planted fault of `pipeline.faults`; the toggles have what it plants there."""

    @property
    def num_batches_before(self) -> int:
        """Batches that the checkpoint has behind it, over all drafters of all hosts."""
        return self.start_step * self.host.num_hosts * self.topology.num_drafters * self.preset.recipe.accumulate

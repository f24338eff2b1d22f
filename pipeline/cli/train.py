"""`train`: what a run is told. torch is imported only once the options make sense."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import format_toggles
from pipeline.cli.beginning import Beginning, find_beginning
from pipeline.cli.options import recipe_options, run_options, saving_options, workload_options
from pipeline.faults import find_fault
from pipeline.forkserver import end_fork_server, fork_server
from pipeline.hosts import find_host
from pipeline.signals import stop_signals
from pipeline.toggles import REGISTRY, honoured, not_applied
from pipeline.topology import Topology, parse_topology
from pipeline.train.tensorboard import require_tensorboard

if TYPE_CHECKING:
    from pipeline.config import TrainConfig


@click.command()
@workload_options
@recipe_options
@run_options
@saving_options
@click.pass_context
def train(context: click.Context, **given: Any) -> None:
    """Train a drafter."""
    beginning = find_beginning(context, given)
    find_fault(given["fault"], beginning.toggles)
    if given["tensorboard"] is not None:
        require_tensorboard()
    topology = parse_topology(given["topology"])
    num_threads = given["threads"] or max(1, _num_cores() // (topology.num_targets + topology.num_drafters))
    _set_thread_variables(num_threads, is_alone=find_host(os.environ).num_hosts == 1)

    # The fork server first: it and this process import torch (2 to 4 s) side by side.
    with stop_signals() as signals, fork_server() as workers:
        signals.enders.append(end_fork_server)
        config = _configure(given, beginning, topology, num_threads)
        _announce(config)

        from pipeline.supervise import train as run

        run(config, workers, signals)


def _configure(given: dict[str, Any], beginning: Beginning, topology: Topology, num_threads: int) -> TrainConfig:
    from pipeline.config import CheckpointPlan, TrainConfig

    device = _choose_device(given["device"])
    values = beginning.toggles
    refused = not_applied(values, has_cuda=device == "cuda")
    folder = given["checkpoints"]
    return TrainConfig(
        preset=beginning.preset,
        topology=topology,
        toggles=honoured(values, refused),
        refused=refused,
        num_steps=beginning.num_steps,
        seed=beginning.seed,
        device=device,
        # A role that feeds a GPU has no host work worth splitting, and eight spinning threads took 3 cores of it.
        num_threads=given["threads"] or (1 if device == "cuda" else num_threads),
        cache=given["cache"] or _default_cache(),
        log_every=given["log_every"],
        host=find_host(os.environ),
        checkpoints=CheckpointPlan(folder=folder, every=given["save_every"], keep=given["keep"]) if folder else None,
        resume_from=beginning.resume_from,
        start_step=beginning.start_step,
        warm_start=beginning.warm_start,
        tensorboard=given["tensorboard"],
        fault=given["fault"],
    )


def _set_thread_variables(num_threads: int, *, is_alone: bool) -> None:
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


def _num_cores() -> int:
    # A container or a scheduler may give this process fewer cores than the host has; only Linux tells.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _choose_device(device: str) -> str:
    import torch

    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise UsageError(
            "--device cuda: torch sees no CUDA device", allowed="auto, cpu", next_command="flashprof doctor"
        )
    return "cuda" if has_cuda and device != "cpu" else "cpu"


def _default_cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("flashprof"))


def _announce(config: TrainConfig) -> None:
    toggles_text = format_toggles(config.toggles, REGISTRY)
    hosts = f" host={config.host.rank + 1}/{config.host.num_hosts}" if config.host.num_hosts > 1 else ""
    click.echo(
        f"preset={config.preset.name} topology={config.topology}{hosts} device={config.device} "
        f"threads={config.num_threads} seed={config.seed} toggles={toggles_text}"
    )
    for name, reason in config.refused.items():
        click.echo(f"toggle {name} is not applied: {reason}")
    if config.resume_from is not None:
        click.echo(f"resuming after step {config.start_step:,} from {config.resume_from}")

"""`train`: what a run is told. torch is imported only once the options make sense."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from flashprof.contracts.toggles import format_toggles
from pipeline.cli.beginning import Beginning, find_beginning
from pipeline.cli.machine import choose_device, default_cache, num_cores, set_thread_variables
from pipeline.cli.options import recipe_options, run_options, saving_options, workload_options
from pipeline.cli.places import require_writable
from pipeline.faults import find_fault, planted_toggles
from pipeline.forkserver import end_fork_server, fork_server
from pipeline.hosts import find_host
from pipeline.log_output import say
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
    if beginning.is_finished:
        # As a restart by torchrun or a scheduler meets it: no error, and no target is loaded for it.
        say(f"finished before: {beginning.resume_from} has all {beginning.num_steps:,} steps; more: --steps")
        return
    if find_host(os.environ).rank == 0:
        # Other hosts write nothing.
        for name in ("checkpoints", "tensorboard"):
            require_writable(given[name], f"--{name}")
    find_fault(given["fault"], beginning.toggles)
    if given["tensorboard"] is not None:
        require_tensorboard()
    topology = parse_topology(given["topology"])
    num_threads = given["threads"] or max(1, num_cores() // (topology.num_targets + topology.num_drafters))
    set_thread_variables(num_threads, is_alone=find_host(os.environ).num_hosts == 1)

    # The fork server first: it and this process import torch (2 to 4 s) side by side.
    with stop_signals() as signals, fork_server() as workers:
        signals.enders.append(end_fork_server)
        config = _configure(given, beginning, topology, num_threads)
        _announce(config)

        from pipeline.supervise import train as run

        run(config, workers, signals)


def _configure(given: dict[str, Any], beginning: Beginning, topology: Topology, num_threads: int) -> TrainConfig:
    from pipeline.config import CheckpointPlan, TrainConfig

    device = choose_device(given["device"])
    values = beginning.toggles
    refused = not_applied(values, has_cuda=device == "cuda")
    folder = given["checkpoints"]
    return TrainConfig(
        preset=beginning.preset,
        topology=topology,
        toggles=honoured(values, refused) | planted_toggles(given["fault"]),
        refused=refused,
        num_steps=beginning.num_steps,
        seed=beginning.seed,
        device=device,
        # A role that feeds a GPU has no host work worth splitting, and eight spinning threads took 3 cores of it.
        num_threads=given["threads"] or (1 if device == "cuda" else num_threads),
        cache=given["cache"] or default_cache(),
        log_every=given["log_every"],
        host=find_host(os.environ),
        checkpoints=CheckpointPlan(folder=folder, every=given["save_every"], keep=given["keep"]) if folder else None,
        resume_from=beginning.resume_from,
        start_step=beginning.start_step,
        warm_start=beginning.warm_start,
        tensorboard=given["tensorboard"],
        fault=given["fault"],
    )


def _announce(config: TrainConfig) -> None:
    toggles_text = format_toggles(config.toggles, REGISTRY)
    hosts = f" host={config.host.rank + 1}/{config.host.num_hosts}" if config.host.num_hosts > 1 else ""
    say(
        f"preset={config.preset.name} topology={config.topology}{hosts} device={config.device} "
        f"threads={config.num_threads} seed={config.seed} toggles={toggles_text}"
    )
    for name, reason in config.refused.items():
        say(f"toggle {name} is not applied: {reason}")
    if config.resume_from is not None:
        say(f"resuming after step {config.start_step:,} from {config.resume_from}")

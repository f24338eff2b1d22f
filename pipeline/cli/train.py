"""`train`: what a run is told. torch is imported only once the options make sense."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashprof.contracts.errors import UsageError
from flashprof.contracts.toggles import EXAMPLE, format_toggles, parse_toggles
from pipeline.forkserver import end_fork_server, fork_server
from pipeline.presets import Preset, find_preset
from pipeline.signals import stop_signals
from pipeline.toggles import REGISTRY, honoured, not_applied
from pipeline.topology import Topology, parse_topology

if TYPE_CHECKING:
    from pipeline.config import TrainConfig


@click.command()
@click.option("--preset", default="tiny", show_default=True, help="Workload; `python -m pipeline presets` lists them.")
@click.option("--topology", default="1+1", show_default=True, help="Targets + drafters.")
@click.option("--toggles", "expression", default="none", show_default=True, help=f"Toggle expression: {EXAMPLE}")
@click.option("--steps", default=200, show_default=True, type=click.IntRange(min=0), help="0: until stopped.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0, max=2**63 - 1))
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
@click.option(
    "--threads", type=click.IntRange(min=1, max=1024), help="Threads a role; default: cores over processes, at least 1."
)
@click.option("--token-budget", type=click.IntRange(min=1, max=2**20), help="Most tokens a batch, padding included.")
@click.option("--anchors", type=click.IntRange(min=1, max=2**14), help="Blocks trained a step.")
@click.option("--lr", type=click.FloatRange(min=0, min_open=True), help="Peak learning rate.")
@click.option("--log-every", default=10, show_default=True, type=click.IntRange(min=1), help="Steps between lines.")
@click.option("--cache", type=click.Path(path_type=Path, file_okay=False), help="Where data sets are kept.")
def train(  # noqa: PLR0913, the signature is the command line
    *,
    preset: str,
    topology: str,
    expression: str,
    steps: int,
    seed: int,
    device: str,
    threads: int | None,
    token_budget: int | None,
    anchors: int | None,
    lr: float | None,
    log_every: int,
    cache: Path | None,
) -> None:
    """Train a drafter."""
    shape = parse_topology(topology)
    workload = _adjusted(find_preset(preset), token_budget=token_budget, anchors=anchors, lr=lr)
    values = parse_toggles(expression, REGISTRY)
    num_threads = threads or max(1, _num_cores() // (shape.num_targets + shape.num_drafters))
    _set_thread_variables(num_threads)

    # The fork server first: it and this process import torch (2 to 4 s) side by side.
    with stop_signals() as signals, fork_server() as context:
        signals.enders.append(end_fork_server)
        from pipeline.config import TrainConfig

        chosen = _choose_device(device)
        refused = not_applied(values, has_cuda=chosen == "cuda")
        config = TrainConfig(
            preset=workload,
            topology=shape,
            toggles=honoured(values, refused),
            refused=refused,
            num_steps=steps,
            seed=seed,
            device=chosen,
            # A role that feeds a GPU has no host work worth splitting, and eight spinning threads took 3 cores of it.
            num_threads=threads or (1 if chosen == "cuda" else num_threads),
            cache=cache or _default_cache(),
            log_every=log_every,
        )
        _announce(config, shape)

        from pipeline.supervise import train as run

        run(config, context, signals)


def _adjusted(preset: Preset, *, token_budget: int | None, anchors: int | None, lr: float | None) -> Preset:
    longest = preset.data.bucket_bounds[-1]
    if token_budget is not None and token_budget < longest:
        raise UsageError(
            f"--token-budget {token_budget} is less than the longest sample",
            offered=str(token_budget),
            allowed=f"{longest} or more for preset {preset.name!r}",
            next_command=f"--token-budget {longest}",
        )
    return replace(
        preset,
        data=replace(preset.data, token_budget=token_budget or preset.data.token_budget),
        drafter=replace(preset.drafter, num_anchors=anchors or preset.drafter.num_anchors),
        recipe=replace(preset.recipe, lr=lr or preset.recipe.lr),
    )


def _set_thread_variables(num_threads: int) -> None:
    """
    Before torch is imported, and inherited by every worker.

    More than one spinning OpenMP thread a role and one busy neighbour take 5.3 steps/s to 0.9 (shared/tooling.md).
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(num_threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Inductor's pool of compile workers starts with its import, and would outlive a role that is killed.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    # One host: gloo must not depend on how this host's name resolves.
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


def _announce(config: TrainConfig, shape: Topology) -> None:
    toggles_text = format_toggles(config.toggles, REGISTRY)
    click.echo(
        f"preset={config.preset.name} topology={shape} device={config.device} threads={config.num_threads} "
        f"seed={config.seed} toggles={toggles_text}"
    )
    for name, reason in config.refused.items():
        click.echo(f"toggle {name} is not applied: {reason}")

"""The options of `train`, in the groups that `--help` shows them in."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flashprof.contracts.toggles import EXAMPLE
from pipeline.cli.places import NamedPath
from pipeline.presets import BUCKETED, FILLED

Command = Callable[..., Any]
FOLDER = NamedPath(path_type=Path, file_okay=False)
EXISTING = click.Path(path_type=Path, exists=True)
EXISTING_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
MOST_STEPS = 10**12
"""Steps are counted in 64 bits, times drafters and batches."""


class FiniteRange(click.FloatRange):
    """A number in a range: `nan` is in every one by its comparisons, and `inf` in an open one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number that *value* spells."""
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is not a finite number.", param, ctx)


def workload_options(command: Command) -> Command:
    """What is trained on what; each overrides the preset."""
    return _add(
        command,
        click.option(
            "--preset", default="tiny", show_default=True, help="Workload; `python -m pipeline presets` lists them."
        ),
        click.option("--target", type=EXISTING_FOLDER, help="Transformers folder of the frozen target, tokenizer too."),
        click.option("--data", type=EXISTING, help="Conversations or pre-tokenised samples: JSONL, Arrow, Parquet."),
        click.option("--mask-token-id", type=click.IntRange(min=0), help="Token that stands for `to be drafted`."),
        click.option("--max-length", type=click.IntRange(min=32, max=2**17), help="Longest sample; longer are cut."),
        click.option("--buckets", help="Upper bounds of the length buckets: 128,256,512. The last: --max-length."),
        click.option(
            "--token-budget", type=click.IntRange(min=1, max=2**20), help="Most tokens a batch, padding included."
        ),
        click.option(
            "--batches",
            type=click.Choice([BUCKETED, FILLED]),
            help="Samples of like lengths, padded; or of any lengths, filled up to the budget, as one packed row.",
        ),
        click.option("--anchors", type=click.IntRange(min=1, max=2**14), help="Blocks trained a batch."),
    )


def recipe_options(command: Command) -> Command:
    """How it is optimised; each overrides the preset."""
    return _add(
        command,
        click.option("--lr", type=FiniteRange(min=0, min_open=True), help="Peak learning rate."),
        click.option("--schedule", type=click.Choice(["cosine", "linear", "wsd", "constant"]), help="After warm-up."),
        click.option("--warmup-ratio", type=FiniteRange(min=0, max=1), help="Part of the steps that warm up."),
        click.option("--accumulate", type=click.IntRange(min=1, max=1024), help="Batches a drafter a step."),
    )


def run_options(command: Command) -> Command:
    """Where and for how long."""
    return _add(
        command,
        click.option("--topology", default="1+1", show_default=True, help="Targets + drafters of a host, or shared."),
        click.option(
            "--toggles", "expression", default="none", show_default=True, help=f"Toggle expression: {EXAMPLE}"
        ),
        click.option(
            "--steps",
            default=200,
            show_default=True,
            type=click.IntRange(min=0, max=MOST_STEPS),
            help="0: until stopped.",
        ),
        click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0, max=2**63 - 1)),
        click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"])),
        click.option(
            "--threads",
            type=click.IntRange(min=1, max=1024),
            help="Threads a role; default: cores over processes, at least 1.",
        ),
        click.option(
            "--log-every", default=10, show_default=True, type=click.IntRange(min=1), help="Steps between lines."
        ),
        click.option("--cache", type=FOLDER, help="Where data sets are kept."),
        click.option("--fault", default="none", hidden=True, help="Plant a fault, to see FlashProf find it."),
    )


def saving_options(command: Command) -> Command:
    """What is kept, and what a run begins with."""
    return _add(
        command,
        click.option("--checkpoints", type=FOLDER, help="Save here, also on SIGINT and SIGTERM."),
        click.option("--save-every", default=200, show_default=True, type=click.IntRange(min=1), help="Steps between."),
        click.option("--keep", default=3, show_default=True, type=click.IntRange(min=1), help="Newest to keep."),
        click.option(
            "--resume",
            type=NamedPath(),
            help="Checkpoint, folder of them, or `auto`: the newest in --checkpoints, if any.",
        ),
        click.option("--warm-start", type=EXISTING_FOLDER, help="Drafter in z-lab's layout to begin with."),
        click.option("--tensorboard", type=FOLDER, help="Write TensorBoard events here (extra: tensorboard)."),
    )


def _add(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command

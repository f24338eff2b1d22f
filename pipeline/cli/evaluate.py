"""`evaluate`: what a checkpoint's drafter is worth. torch is imported only once the options make sense."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashprof.contracts.errors import ToolError, UsageError
from pipeline.cli.machine import choose_device, default_cache
from pipeline.cli.places import NamedPath, require_plain_file, require_writable
from pipeline.signals import stop_signals

if TYPE_CHECKING:
    from pipeline.checkpoint.state import CheckpointState
    from pipeline.evaluate.checkpoint import OpenedCheckpoint
    from pipeline.evaluate.evaluation import Effort, Evaluation

NUM_LOG_LINES = 10


@click.command()
@click.argument("checkpoint", type=NamedPath(path_type=Path))
@click.option("--num-prompts", default=32, show_default=True, type=click.IntRange(min=0, max=2**20))
@click.option("--max-new-tokens", default=128, show_default=True, type=click.IntRange(min=1, max=2**17))
@click.option(
    "--num-batches", default=16, show_default=True, type=click.IntRange(min=0, max=2**20), help="Held-out batches."
)
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
@click.option(
    "--dtype",
    default="float32",
    show_default=True,
    type=click.Choice(["float32", "bfloat16"]),
    help="In bfloat16, verifying a block flips near-ties.",
)
@click.option("--json", "json_file", type=NamedPath(path_type=Path, dir_okay=False), help="Write all of it here.")
@click.option("--cache", type=NamedPath(path_type=Path, file_okay=False), help="Where data sets are kept.")
def evaluate(**given: Any) -> None:
    """
    Evaluate CHECKPOINT, or the newest in that folder, on text that it was not trained on.

    Teacher-forced accuracy and acceptance length on held-out samples, then greedy generation with and without the
    drafter: both texts must be the same, token by token.
    """
    if not given["num_prompts"] and not given["num_batches"]:
        raise UsageError(
            "there is nothing to evaluate", offered="--num-prompts 0 --num-batches 0", allowed="one above 0"
        )
    require_writable(given["json_file"], "--json")
    require_plain_file(given["json_file"], "--json")
    # While this loads, Ctrl-C ends it at once: an exception in torch's import can become an abort.
    with stop_signals():
        opened, effort = _open(given)
    _announce(opened.state, opened.path)

    from pipeline.evaluate.evaluation import evaluations, num_results
    from pipeline.evaluate.report import evaluation_to_json, table_lines, write_json

    results = evaluations(opened.subject, opened.text, effort)
    evaluation, is_interrupted = last_of(results, num_results(opened.text, effort))
    if evaluation is not None:
        click.echo("\n".join(table_lines(evaluation)))
        if given["json_file"] is not None:
            facts = {**_facts(opened), "is_complete": not is_interrupted}
            write_json(given["json_file"], evaluation_to_json(evaluation, facts))
    if is_interrupted:
        raise KeyboardInterrupt
    if evaluation is not None and evaluation.num_wrong:
        raise ToolError(
            f"{evaluation.num_wrong} of {len(evaluation.texts)} texts differ from the target's own, not by rounding",
            where=str(opened.path),
            next_command="--dtype float32, if it was another; otherwise this is a bug in drafting or verification",
        )


def last_of(results: Iterable[Evaluation], total: int) -> tuple[Evaluation | None, bool]:
    """
    Go through *results*, showing progress on stderr.

    Args:
        results: Each the whole so far.
        total: How many there are.

    Returns:
        The last result, None if there was none, and whether Ctrl-C ended it early.
    """
    from tqdm import tqdm

    evaluation = None
    bar = tqdm(results, total=total, desc="evaluating", disable=None, leave=False, file=sys.stderr)
    try:
        for number, evaluation in enumerate(bar, start=1):
            if bar.disable and number % max(1, total // NUM_LOG_LINES) == 0:
                click.echo(f"evaluate: {_progress(evaluation)}", err=True)
    except KeyboardInterrupt:
        return evaluation, True
    finally:
        bar.close()
    return evaluation, False


def _progress(evaluation: Evaluation) -> str:
    if not evaluation.texts:
        return f"{evaluation.num_batches} held-out batches"
    return f"{len(evaluation.texts)} prompts, acceptance length {evaluation.acceptance_length:.2f}"


def _open(given: dict[str, Any]) -> tuple[OpenedCheckpoint, Effort]:
    from pipeline.checkpoint.folder import find_checkpoint

    # Before torch comes in (2 to 4 s): a wrong path is told at once.
    path = find_checkpoint(given["checkpoint"])
    import torch

    from pipeline.evaluate.checkpoint import open_checkpoint
    from pipeline.evaluate.evaluation import Effort

    effort = Effort(
        num_batches=given["num_batches"], num_prompts=given["num_prompts"], max_new_tokens=given["max_new_tokens"]
    )
    opened = open_checkpoint(
        path,
        cache=given["cache"] or default_cache(),
        device=choose_device(given["device"]),
        dtype=getattr(torch, given["dtype"]),
    )
    return opened, effort


def _announce(state: CheckpointState, path: Path) -> None:
    click.echo(f"{path}: preset {state.preset.name}, step {state.step:,}, trained on {state.num_tokens:,} tokens")


def _facts(opened: OpenedCheckpoint) -> dict[str, Any]:
    state = opened.state
    return {
        "checkpoint": str(opened.path),
        "preset": state.preset.name,
        "step": state.step,
        "num_tokens_trained": state.num_tokens,
        "toggles": dict(state.toggles),
        "seed": state.seed,
        "topology": state.topology,
    }

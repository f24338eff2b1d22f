"""`export`: a checkpoint as a drafter that dflash, SGLang and vLLM load."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.checkpoint.folder import find_checkpoint, load_weights, read_state
from pipeline.checkpoint.zlab import MODEL, write_zlab
from pipeline.presets import FULL, SLIDING

if TYPE_CHECKING:
    from pipeline.checkpoint.state import CheckpointState


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--dtype",
    default="bfloat16",
    show_default=True,
    type=click.Choice(["bfloat16", "float32"]),
    help="Type of the weights; inference runs in bfloat16.",
)
def export(*, checkpoint: Path, folder: Path, dtype: str) -> None:
    """Write CHECKPOINT, or the newest in that folder, to DIR in z-lab's layout."""
    found = find_checkpoint(checkpoint)
    state = read_state(found)
    write_zlab(folder, state, load_weights(found), dtype=dtype)
    size_mib = (folder / MODEL).stat().st_size / 2**20
    click.echo(f"wrote {folder}: step {state.step} of {found}, {_describe(state)}, {dtype}, {size_mib:,.1f} MiB")
    click.echo("TARGET below is the model that it was trained for:")
    for name, command in _commands(state, str(folder)):
        click.echo(f"  {name:7} {command}")


def _describe(state: CheckpointState) -> str:
    plan, kinds = state.preset.drafter, state.layer_types
    counts = [
        f"{kinds.count(kind)} {words}"
        for kind, words in ((FULL, "full"), (SLIDING, f"sliding by {plan.sliding_window}"))
        if kind in kinds
    ]
    return f"layers: {', '.join(counts)}; blocks of {plan.block_size}"


def _commands(state: CheckpointState, folder: str) -> list[tuple[str, str]]:
    drafter = shlex.quote(folder)
    num_drafted = state.preset.drafter.block_size - 1
    plan = json.dumps({"method": "dflash", "model": folder, "num_speculative_tokens": num_drafted})
    # vLLM#46104: layers of two kinds need two groups of its cache, which only the newer runner has.
    runner = "VLLM_USE_V2_MODEL_RUNNER=1 " if len(set(state.layer_types)) > 1 else ""
    sglang = "python -m sglang.launch_server --model-path TARGET --speculative-algorithm DFLASH"
    return [
        ("dflash", f"dflash generate transformers --model TARGET --draft {drafter} 'a question'"),
        ("SGLang", f"{sglang} --speculative-draft-model-path {drafter}"),
        ("vLLM", f"{runner}vllm serve TARGET --speculative-config {shlex.quote(plan)}"),
    ]

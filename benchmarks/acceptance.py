"""
How many tokens a trained drafter gets accepted, and how fast it learns that: two commands, on one GPU.

`python -m benchmarks.acceptance train --data answers.jsonl --folder DIR` trains with the real trainer for a given time;
`… measure --folder DIR` evaluates every checkpoint on held-out prompts: greedy speculative generation against the real
target, every text compared with the target's own, token by token. The data are the target's own answers
(`python -m pipeline regenerate`), so held-out text is text that the target would write.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.results_file import RESULTS, Goal, Measure, write_results
from pipeline.checkpoint.folder import read_state
from pipeline.evaluate.checkpoint import evaluate_checkpoint
from pipeline.evaluate.evaluation import Effort, Evaluation

NUM_PROBE_STEPS = 300
NUM_POINTS = 8
"""Checkpoints along the curve, besides the first step's."""
TOGGLES = "all,-swa"
CURVE_EFFORT = Effort(num_batches=4, num_prompts=5, max_new_tokens=96)
LAST_EFFORT = Effort(num_batches=16, num_prompts=40, max_new_tokens=128)
"""Not on all checkpoints: a text of 128 tokens takes 3 s without drafts and 1 s with them (H200, float32)."""
GOAL = 2.0
FACTS = "train.json"


@click.group()
def main() -> None:
    """Acceptance length of a drafter trained on one GPU."""


@main.command()
@click.option("--data", type=click.Path(path_type=Path, exists=True), help="Answers of the target.")
@click.option("--folder", required=True, type=click.Path(path_type=Path), help="For checkpoints.")
@click.option("--preset", default="smollm2-gpu", show_default=True)
@click.option("--seconds", default=360.0, show_default=True, help="Training time that is aimed at.")
@click.option("--lr", default=1e-3, show_default=True)
@click.option("--toggles", default=TOGGLES, show_default=True)
@click.option("--device", default="cuda", show_default=True)
@click.option("--cache", required=True, type=click.Path(path_type=Path))
def train(**given: Any) -> None:
    """Probe the speed, then train for as many steps as the time allows."""
    folder = given["folder"]
    options = {"preset": given["preset"], "lr": given["lr"], "device": given["device"]}
    options |= {"data": given["data"]} if given["data"] else {}
    options |= {"toggles": given["toggles"], "cache": given["cache"], "topology": "shared"}
    # The probe's one checkpoint stands for the untrained drafter: its learning rate has just begun to rise.
    first = folder / "first"
    run_trainer(options | {"steps": 1, "checkpoints": first, "save-every": 1})
    steps_per_s = run_trainer(options | {"steps": NUM_PROBE_STEPS})
    num_steps = max(NUM_POINTS, int(steps_per_s * given["seconds"]) // NUM_POINTS * NUM_POINTS)
    click.echo(f"{steps_per_s:.1f} steps/s: training {num_steps:,} steps")
    start_s = time.perf_counter()
    saving = {"checkpoints": folder / "run", "save-every": num_steps // NUM_POINTS, "keep": NUM_POINTS}
    run_trainer(options | {"steps": num_steps, **saving})
    facts = {name: str(value) for name, value in options.items()}
    facts |= {"num_steps": num_steps, "wall_s": time.perf_counter() - start_s, "probe_steps_per_s": steps_per_s}
    (folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")


@main.command()
@click.option("--folder", required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--device", default="cuda", show_default=True)
@click.option("--cache", required=True, type=click.Path(path_type=Path))
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path))
def measure(*, folder: Path, device: str, cache: Path, results: Path) -> None:
    """Evaluate all checkpoints, print the curve, and write the results file."""
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    checkpoints = [*(folder / "first").glob("step-*"), *sorted((folder / "run").glob("step-*"))]
    points = []
    for path in checkpoints:
        effort = LAST_EFFORT if path is checkpoints[-1] else CURVE_EFFORT
        evaluation = evaluate_checkpoint(path, cache=cache, device=device, dtype=torch.float32, effort=effort)
        points.append(to_point(path, evaluation))
        click.echo(json.dumps(points[-1]))
    path = write_results("acceptance", to_measures(points, facts), {"train": facts, "curve": points}, folder=results)
    click.echo(f"written to {path}")


def run_trainer(options: dict[str, Any]) -> float:
    """
    One run of the trainer, its log passed on; returns the steps per second between its first and last log line.

    Raises:
        click.ClickException: It failed.
    """
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "pipeline", "train", *words, "--log-every", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = list(_step_times(process.stdout))
    if process.returncode:
        raise click.ClickException(f"the trainer ended with status {process.returncode}: {' '.join(command)}")
    if len(seen) < 2:
        return 0.0
    # The first line lies behind compilation.
    (first_step, first_s), (last_step, last_s) = seen[0], seen[-1]
    return (last_step - first_step) / (last_s - first_s)


def _step_times(lines: Iterator[str]) -> Iterator[tuple[int, float]]:
    for line in lines:
        click.echo(line, nl=False)
        found = re.match(r"step=(\d+) ", line)
        if found:
            yield int(found[1]), time.perf_counter()


def to_point(path: Path, evaluation: Evaluation) -> dict[str, Any]:
    """One point of the curve, as it stands in the results file."""
    state = read_state(path)
    return {
        "step": state.step,
        "num_tokens": state.num_tokens,
        "acceptance_length": evaluation.acceptance_length,
        "held_out_acceptance_length": evaluation.held_out.acceptance_length,
        "held_out_accuracy_by_slot": [None if isnan(share) else share for share in evaluation.held_out.accuracy_K],
        "held_out_loss": evaluation.held_out.loss,
        "num_texts": len(evaluation.texts),
        "num_equal": evaluation.num_lossless,
        "num_wrong": evaluation.num_wrong,
        "tok_per_s_alone": evaluation.own_tok_per_s,
        "tok_per_s_with_drafter": evaluation.drafted_tok_per_s,
    }


def to_measures(points: list[dict[str, Any]], facts: dict[str, Any]) -> list[Measure]:
    """The last point against the goals, the first for comparison."""
    first, last = points[0], points[-1]
    speed = last["tok_per_s_with_drafter"] / last["tok_per_s_alone"]
    num_texts = sum(point["num_texts"] for point in points)
    num_equal = sum(point["num_equal"] for point in points)
    num_wrong = sum(point["num_wrong"] for point in points)
    return [
        Measure(name="acceptance_length", value=last["acceptance_length"], unit="tokens", goal=Goal(low=GOAL)),
        Measure(name="acceptance_length_untrained", value=first["acceptance_length"], unit="tokens"),
        Measure(name="held_out_acceptance_length", value=last["held_out_acceptance_length"], unit="tokens"),
        Measure(
            name="lossless_share",
            value=num_equal / num_texts,
            unit="",
            goal=Goal(low=1.0),
            note=f"{num_equal} of {num_texts} texts, all checkpoints; not equal and no rounding tie: {num_wrong}",
        ),
        Measure(name="generation_speed_ratio", value=speed, unit="x", note="tok/s with drafter over without, untuned"),
        Measure(name="train_wall", value=facts["wall_s"], unit="s", goal=Goal(high=600.0), note="start-up included"),
        Measure(name="train_tokens", value=last["num_tokens"], unit="tokens"),
    ]


if __name__ == "__main__":
    main()

"""
The story's cells in one launch: `python -m benchmarks.story_cells --seconds 180 --out DIR`.

Every hot toggle alone, every one left out, and some pairs, visited in rounds until the time is up. What is read is
written after every window, so that a launch that hangs or is killed has lost one window.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from benchmarks.story_effects import CellReading, Stop, make_cells, tour
from flashprof.app.run import run
from flashprof.app.subject import pipeline_command
from flashprof.app.visits import CellVisit, VisitPlan, VisitReading, serve_visits
from flashprof.app.wiring import wire
from flashprof.cli.subjects import split_options, workload_options
from flashprof.cli.terminal import progress_on_stderr
from flashprof.contracts.experiment import Experiment, Output, Sampling, SubjectSpec, WindowPlan, apply_settings
from flashprof.contracts.toggles import Toggle
from pipeline.toggles import REGISTRY, not_applied

RUN_ID = "story-cells"
CELLS_FILE = "cells.json"
QUEUE = "queue"
STOP_S = 15.0
"""Kept for the end of the launch and its summary."""


@dataclass
class CellTour:
    """Says where to go next, and keeps what was read."""

    stops: Iterator[Stop]
    until_s: float
    """On *clock*."""
    path: Path
    about: dict[str, Any]
    clock: Callable[[], float] = time.monotonic
    now: Stop = field(init=False)
    readings: list[dict[str, Any]] = field(default_factory=list)

    def first(self) -> CellVisit:
        """Where it begins."""
        return self._go()

    def take(self, reading: VisitReading) -> CellVisit | None:
        """Keep a reading; None when the time is up."""
        one = CellReading(cell=reading.cell, round=self.now.round, log_tok_per_s=reading.log_tok_per_s)
        about = {
            "counts": self.now.counts and not reading.disturbances,
            "disturbances": list(reading.disturbances),
            "num_tokens": reading.num_tokens,
            "length_s": (reading.end_ns - reading.start_ns) / 1e9,
            "phases": dict(reading.phases),
        }
        self.readings.append({**asdict(one), **about})
        self.write()
        return self._go() if self.clock() < self.until_s else None

    def write(self, **more: Any) -> None:
        """Leave all that is known so far."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({**self.about, **more, "readings": self.readings}, indent=1), encoding="utf-8")
        part.replace(self.path)

    def _go(self) -> CellVisit:
        self.now = next(self.stops)
        cell = self.now.cell
        return CellVisit(cell=cell.name, values=cell.values, mark={"round": self.now.round})


@click.command()
@workload_options
@click.option("--seconds", default=180.0, show_default=True, type=click.FloatRange(min=20), help="Start-up included.")
@click.option("--window-steps", default=18, show_default=True, type=click.IntRange(min=1))
@click.option("--out", required=True, type=click.Path(path_type=Path))
def main(*, seconds: float, window_steps: int, out: Path, **given: Any) -> None:
    """Measure until the time is up."""
    until_s = time.monotonic() + seconds - STOP_S
    refused = machine_refuses(REGISTRY)
    cells = make_cells(REGISTRY, list(refused))
    upstream = frozenset(t.name for t in REGISTRY if t.name in cells[0].values and (t.is_upstream or t.name == QUEUE))
    about = {"cells": [asdict(cell) for cell in cells], "refused": refused, "seed": given["seed"]}
    route = CellTour(
        stops=tour(cells, upstream, np.random.default_rng(given["seed"])),
        until_s=until_s,
        path=out / CELLS_FILE,
        about=about,
    )
    out.mkdir(parents=True, exist_ok=True)
    plan = visit_plan(window_steps)
    experiment = _experiment(given, out)
    ports = wire(experiment, os.environ, Path.cwd())
    with progress_on_stderr() as progress:
        schedule = serve_visits(plan, route.first(), on_reading=route.take)
        summary = run(experiment, ports, progress, schedule=schedule)
    route.write(outcome=str(summary.outcome), reason=summary.reason, startup_s=summary.startup_s)
    click.echo(f"{len(route.readings)} windows of {len(cells)} cells: {summary.outcome} {summary.reason}")


def visit_plan(window_steps: int) -> VisitPlan:
    """
    How the launch is cut. Cells are warm after few steps, or compile once; a window of its own drains a queue.

    Where both roles share a card, a batch more or less of the target's in a window is its time over the window's:
    8 % of six steps (seen on an H200), 3 % of 18.
    """
    return VisitPlan(window_steps=window_steps, min_settle_steps=1, max_settle_steps=4)


def machine_refuses(registry: Sequence[Toggle]) -> dict[str, str]:
    """Toggles that this machine cannot honour, with the reason."""
    everything = {toggle.name: toggle.on for toggle in registry}
    return not_applied(everything, has_cuda=torch.cuda.is_available())


def _experiment(given: dict[str, Any], out: Path) -> Experiment:
    subject = SubjectSpec(
        preset=given["preset"],
        topology=given["topology"],
        # Cold toggles stay on: only launches could tell what they are worth.
        toggles="all",
        seed=given["seed"],
        train_options=split_options(given["train_options"]),
    )
    experiment = Experiment(
        subject=replace(subject, command=pipeline_command(subject)),
        windows=WindowPlan(num_profile=0, steady_timeout_s=15.0),
        sampling=Sampling(stacks="off", resources="off"),
        output=Output(reports=out / "reports", run_id=RUN_ID),
    )
    return apply_settings(experiment, given["settings"])


if __name__ == "__main__":
    main()

"""Launches that show why: a cell once more with samplers, so that frames can be named. No verdict is read from them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from flashprof.app.progress import Progress
from flashprof.app.run import run
from flashprof.app.search_subjects import Start
from flashprof.contracts.comparison import Arm
from flashprof.contracts.errors import FlashProfError, FormatError
from flashprof.contracts.experiment import Experiment, Output, Sampling, WindowPlan
from flashprof.contracts.outcome import Outcome
from flashprof.store.run_folder import read_manifest

MIN_PROFILE = 2
"""Windows whose scatter tells noise from a change."""


@dataclass(frozen=True, kw_only=True)
class Explainer:
    """Makes the launches that explain one question."""

    folder: Path
    """Where their run folders go: beside the launches that the verdict is read from, and never among them."""
    windows: WindowPlan
    progress: Progress

    def explain(self, cell: str, arm: Arm, label: str, start: Callable[[], Start]) -> str:
        """
        Launch *cell* unless an earlier call did.

        Args:
            cell: Its id.
            arm: What it is here.
            label: For a person.
            start: Makes what it is started as.

        Returns:
            Why there is no such launch; empty where there is one.
        """
        run_id = explain_id(cell, arm)
        if is_explained(self.folder / run_id):
            return ""
        for left in (self.folder / run_id, self.folder / f".{run_id}.part"):
            shutil.rmtree(left, ignore_errors=True)
        self.progress.stage(f"explaining: {label} once more, with samplers")
        try:
            made = start()
            sampled = replace(made.ports, samplers=made.ports.profilers)
            summary = run(self._experiment(made, run_id), sampled, self.progress)
        except FlashProfError as error:
            return f"{label} could not be explained: {error.what}"
        if summary.outcome.is_measurement:
            return ""
        return f"{label} could not be explained: {summary.outcome}. {summary.reason}".strip()

    def _experiment(self, start: Start, run_id: str) -> Experiment:
        windows = replace(self.windows, num_profile=max(MIN_PROFILE, self.windows.num_profile))
        return Experiment(
            subject=start.subject,
            windows=windows,
            sampling=Sampling(),
            output=Output(reports=self.folder, run_id=run_id),
        )


def explain_id(cell: str, arm: Arm) -> str:
    """Name of the run folder that explains *cell* as one arm: ids hold characters that no folder should."""
    return f"{arm}-{hashlib.sha256(cell.encode()).hexdigest()[:12]}"


def is_explained(folder: Path) -> bool:
    """Whether a launch that explains is there, and is a measurement."""
    with suppress(FormatError, ValueError, KeyError):
        return Outcome(read_manifest(folder)["outcome"]).is_measurement
    return False

"""`flashprof compare RUN RUN`: runs that were measured earlier, each for itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from flashprof.contracts.cell import Cell, check_allowed, refuse_unlike
from flashprof.contracts.comparison import DecisionRule, Standing, StudyResult
from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import WindowKind
from flashprof.stats.compare import compare_existing
from flashprof.store.calibration_file import find_calibration
from flashprof.store.run_folder import read_manifest

UNDER_TEST = ("toggles", "source")
"""What two runs may differ in without being told: a switch, or the code itself."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    path: Path
    cell: Cell
    outcome: Outcome
    reason: str
    log_tok_per_s: float
    num_windows: int
    toggles: str

    @property
    def is_measured(self) -> bool:
        return self.outcome.is_measurement and math.isfinite(self.log_tok_per_s)


def compare_runs(
    bases: Sequence[Path], candidates: Sequence[Path], rule: DecisionRule, *, allow: Sequence[str], reports: Path
) -> StudyResult:
    """
    Compare the runs of two arms; each is one launch.

    Args:
        bases: Run folders of the base.
        candidates: Run folders of the candidate.
        rule: How sure to be.
        allow: Facts of the cells that may differ though they are not under test.
        reports: Where a calibration of this machine may be found.

    Raises:
        UsageError: The cells differ in more than toggles and source, or a side has no run that is a measurement.
        FormatError: One of the folders is of another version, or was measured by a FlashProf that knew no cells.
    """
    sides = [[_read(path) for path in paths] for paths in (bases, candidates)]
    measured = [[run for run in side if run.is_measured] for side in sides]
    for side, found in zip(sides, measured, strict=True):
        _require_a_measurement(side, found)
    _refuse_unlike(measured, allow)
    base, candidate = measured
    calibration = find_calibration(reports, base[0].cell)
    spread = calibration.launch_sd if calibration else None
    comparison = compare_existing(
        [run.log_tok_per_s for run in base],
        [run.log_tok_per_s for run in candidate],
        rule,
        launch_sd=spread.sd if spread else None,
        launch_freedom=int(spread.freedom) if spread else 0,
    )
    names = [_name(side, other) for side, other in ((base, candidate), (candidate, base))]
    return StudyResult(
        study="",
        base=names[0],
        candidate=names[1],
        cell={"machine": base[0].cell.facts.get("machine.host", "unknown host")},
        verdict=comparison.verdict,
        standing=Standing.SCREENED,
        comparisons=(comparison,),
        spent_s=0.0,
        num_reused=0,
        failures=tuple(
            f"{run.path.name}: {run.outcome}; left out. {run.reason}".strip()
            for side in sides
            for run in side
            if not run.is_measured
        ),
    )


def _read(path: Path) -> _Run:
    manifest = read_manifest(path)
    facts = manifest.get("cell_facts")
    if not facts:
        raise FormatError(
            "the run does not say what its cell was",
            where=str(path / "manifest.json"),
            allowed="a run that ended, measured by this FlashProf",
            next_command="measure it again: flashprof run",
        )
    rates = _measured_rates(path)
    return _Run(
        path=path,
        cell=Cell(facts),
        outcome=Outcome(manifest["outcome"]),
        reason=manifest.get("reason", ""),
        log_tok_per_s=fmean(map(math.log, rates)) if rates else math.nan,
        num_windows=len(rates),
        toggles=str((manifest.get("cell") or {}).get("toggles", "")),
    )


def _measured_rates(path: Path) -> list[float]:
    try:
        summary: Mapping[str, Any] = json.loads((path / "summary.json").read_text(encoding="utf-8"))
        windows = [window for window in summary["windows"] if window["kind"] == WindowKind.MEASURE]
        return [float(window["tok_per_s"]) for window in windows if window["num_tokens"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            "the run has no summary that can be read", where=str(path / "summary.json"), next_command="flashprof run"
        ) from error


def _require_a_measurement(side: Sequence[_Run], measured: Sequence[_Run]) -> None:
    if not measured:
        raise UsageError(
            "no run of this side is a measurement",
            where=", ".join(str(run.path) for run in side),
            offered="; ".join(f"{run.outcome}: {run.reason}" if run.reason else str(run.outcome) for run in side),
            allowed=f"runs that {Outcome.COMPLETED}",
            next_command="flashprof run",
        )


def _refuse_unlike(sides: Sequence[Sequence[_Run]], allow: Sequence[str]) -> None:
    """Runs of one side must be alike in everything; the sides may differ in what is under test."""
    first = sides[0][0]
    for side in sides:
        for run in side[1:]:
            check_allowed(allow, side[0].cell, run.cell)
            refuse_unlike(side[0].cell.differences(run.cell), under_test=(), allowed=allow)
    check_allowed(allow, first.cell, sides[1][0].cell)
    refuse_unlike(first.cell.differences(sides[1][0].cell), under_test=UNDER_TEST, allowed=allow)


def _name(side: Sequence[_Run], other: Sequence[_Run]) -> str:
    """The toggles where they differ, else the commit, else the folder."""
    first, second = side[0], other[0]
    if first.toggles and first.toggles != second.toggles:
        return first.toggles
    commit = first.cell.facts.get("source.commit")
    if commit and commit != second.cell.facts.get("source.commit"):
        return commit
    return first.path.name

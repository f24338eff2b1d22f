"""`flashprof compare RUN RUN`: runs that were measured earlier, each for itself."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flashprof.app.judging import LaunchRate, MachineJudge, launch_rate
from flashprof.app.localise import localise, pick_runs
from flashprof.contracts.cell import Cell, check_allowed, refuse_unlike
from flashprof.contracts.comparison import DecisionRule, Standing, StudyResult
from flashprof.contracts.errors import FormatError, UsageError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import Window
from flashprof.stats.compare import compare_existing
from flashprof.store.calibration_file import find_calibration
from flashprof.store.counters_file import FILE_NAME as COUNTERS_FILE
from flashprof.store.from_json import from_json
from flashprof.store.run_folder import read_manifest
from flashprof.store.safe_read import printable, read_document

UNDER_TEST = ("toggles", "source")
"""What two runs may differ in without being told: a switch, or the code itself."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    path: Path
    cell: Cell
    """Empty for a run that is no measurement."""
    rate: LaunchRate | None
    """None for a run that is no measurement."""
    fault: str
    """Why it is left out; empty for one that counts."""
    toggles: str


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
    measured = [[run for run in side if not run.fault] for side in sides]
    for side, found in zip(sides, measured, strict=True):
        _require_a_measurement(side, found)
    _refuse_unlike(measured, allow)
    base, candidate = measured
    rates = [[run.rate for run in side if run.rate] for side in measured]
    calibration = find_calibration(reports, base[0].cell)
    spread = calibration.launch_sd if calibration else None
    comparison = compare_existing(
        [rate.log_tok_per_s for rate in rates[0]],
        [rate.log_tok_per_s for rate in rates[1]],
        rule,
        launch_sd=spread.sd if spread else None,
        launch_freedom=int(spread.freedom) if spread else 0,
    )
    names = (_name(base, candidate), _name(candidate, base))
    paths = ([run.path for run in base], [run.path for run in candidate])
    # One launch a side decides nothing, and people compare two runs to see where they differ.
    localised = localise([*paths[0], *paths[1]], pick_runs(*paths), names=names)
    return StudyResult(
        study="",
        base=names[0],
        candidate=names[1],
        cell={"machine": base[0].cell.facts.get("machine.host", "unknown host")},
        verdict=comparison.verdict,
        standing=Standing.SCREENED,
        comparisons=(replace(comparison, num_windows=sum(rate.num_windows for side in rates for rate in side)),),
        spent_s=0.0,
        num_reused=0,
        failures=tuple(f"{run.path.name}: left out. {run.fault}" for side in sides for run in side if run.fault),
        notes=tuple(note for side in measured for run in side for note in _left_out_windows(run)),
        localisation=localised.localisation if localised else None,
    )


def _read(path: Path) -> _Run:
    manifest = read_manifest(path)
    outcome = _outcome(path, manifest.get("outcome"))
    if not outcome.is_measurement:
        # It may have been cut off before its cell and its summary were written.
        fault = f"{str(outcome).capitalize()}. {manifest.get('reason') or ''}".strip()
        return _Run(path=path, cell=Cell({}), rate=None, fault=fault, toggles="")
    facts = _facts(path, manifest.get("cell_facts"))
    cell = manifest.get("cell") or {}
    if not isinstance(cell, dict):
        raise _wrong_field(path, "cell", cell, "an object")
    rate = launch_rate(recorded_windows(path), MachineJudge(path / COUNTERS_FILE))
    return _Run(
        path=path,
        cell=Cell(facts),
        rate=rate,
        fault=_fault(rate),
        toggles=str(cell.get("toggles", "")),
    )


def _outcome(path: Path, value: Any) -> Outcome:
    if value not in list(Outcome):
        raise _wrong_field(path, "outcome", value, ", ".join(Outcome))
    return Outcome(value)


def _facts(path: Path, value: Any) -> dict[str, str]:
    if not value:
        raise FormatError(
            "the run does not say what its cell was",
            where=str(path / "manifest.json"),
            allowed="a run that was measured by this FlashProf",
            next_command="measure it again: flashprof run",
        )
    if not isinstance(value, dict):
        raise _wrong_field(path, "cell_facts", value, "an object of texts")
    for name, text in value.items():
        if not isinstance(text, str):
            raise _wrong_field(path, f"cell_facts.{printable(name)}", text, "a text")
    return value


def _wrong_field(path: Path, field: str, value: Any, allowed: str) -> FormatError:
    return FormatError(
        f"the run's manifest has a wrong {field}",
        where=str(path / "manifest.json"),
        offered=printable(json.dumps(value)),
        allowed=allowed,
        next_command="compare without this run, or measure it again: flashprof run",
    )


def _fault(rate: LaunchRate) -> str:
    if not rate.num_windows:
        return "No measure window holds a token."
    return "" if rate.is_calm else f"Disturbed: {'; '.join(rate.disturbances)}."


def _left_out_windows(run: _Run) -> list[str]:
    rate = run.rate
    if rate is None or not rate.num_left_out:
        return []
    num = rate.num_left_out + rate.num_windows
    return [f"{run.path.name}: {rate.num_left_out} of {num} windows were disturbed: {'; '.join(rate.disturbances)}"]


def recorded_windows(path: Path) -> list[Window]:
    """
    All windows of a run, as its summary has them.

    Raises:
        FormatError: It has none that can be read.
    """
    try:
        windows = read_document(path, "summary.json")["windows"]
        return [_window(window, f"windows[{place}]") for place, window in enumerate(windows)]
    except (OSError, ValueError, KeyError, TypeError, FormatError) as error:
        raise FormatError(
            "the run has no summary that can be read",
            where=str(path / "summary.json"),
            offered=error.what if isinstance(error, FormatError) else printable(str(error)),
            next_command="flashprof run",
        ) from error


def _window(raw: Any, name: str) -> Window:
    window = from_json(Window, raw, name)
    is_rate = 0 <= window.told_tok_per_s < math.inf
    if not is_rate or window.num_tokens < 0 or (window.num_tokens and window.start_ns >= window.end_ns):
        raise ValueError(f"{name} has tokens of no time, or a rate that is none")
    return window


def _require_a_measurement(side: Sequence[_Run], measured: Sequence[_Run]) -> None:
    if not measured:
        raise UsageError(
            "no run of this side is a measurement",
            where=", ".join(str(run.path) for run in side),
            offered=" ".join(run.fault for run in side),
            allowed=f"runs that {Outcome.COMPLETED}, on a machine that nothing disturbed",
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

"""
`calibration.json`: what A/A comparisons on a machine have shown, for compare, gate and programs.

Format history
    1  2026-11  facts, noise, launch_sd, trials, power, settings
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flashprof.contracts.calibration import (
    Calibration,
    NoiseBudget,
    PowerPoint,
    Setting,
    Share,
    Spread,
    TrialSummary,
    WindowChoice,
)
from flashprof.contracts.cell import Cell
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.errors import FormatError
from flashprof.contracts.results import Interval
from flashprof.store.json_numbers import finite

FORMAT = "flashprof-calibration"
VERSION = 1
FILE = "calibration.json"
PUT_ASIDE = ".old-"
REMEDY = "flashprof calibrate"


def calibration_to_json(calibration: Calibration) -> str:
    """One JSON document; numbers that JSON cannot hold become null."""
    document = {"format": FORMAT, "version": VERSION, **asdict(calibration), "facts": dict(calibration.facts)}
    return json.dumps(finite(document), indent=2, allow_nan=False) + "\n"


def write_calibration(folder: Path, calibration: Calibration) -> Path:
    """Write the file whole or not at all."""
    path = folder / FILE
    temporary = folder / f".{FILE}.tmp"
    temporary.write_text(calibration_to_json(calibration), encoding="utf-8")
    temporary.replace(path)
    return path


def read_calibration(path: Path) -> Calibration:
    """
    Read one file.

    Raises:
        FormatError: It is no calibration, or one of another version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        name, version = document["format"], document["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is no calibration", where=str(path), next_command=REMEDY) from error
    if name != FORMAT or version != VERSION:
        raise FormatError(
            f"calibration format {name} version {version} is not known",
            where=str(path),
            allowed=f"{FORMAT} version {VERSION}",
            next_command=f"read it with the FlashProf that wrote it, or {REMEDY}",
        )
    try:
        return _calibration(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"the calibration is damaged: {error!r}", where=str(path), next_command=f"{REMEDY} --fresh"
        ) from error


def find_calibration(reports: Path, cell: Cell) -> Calibration | None:
    """
    The newest calibration under *reports* that holds for *cell*.

    One that was put aside (`.old-1`) is not looked at. Files that this version cannot read are no calibrations; the
    user who wants to know reads them by name.
    """
    found = []
    for path in (path for path in reports.glob(f"*/{FILE}") if PUT_ASIDE not in path.parent.name):
        try:
            calibration = read_calibration(path)
        except FormatError:
            continue
        if not calibration.unlike(cell):
            found.append(calibration)
    return max(found, key=lambda calibration: calibration.date, default=None)


def _calibration(raw: Mapping[str, Any]) -> Calibration:
    fields = {name: raw[name] for name in Calibration.__dataclass_fields__}
    return Calibration(
        **{
            **fields,
            "facts": {str(name): str(text) for name, text in raw["facts"].items()},
            "noise": _noise(raw["noise"]),
            "launch_sd": _spread(raw["launch_sd"]),
            "rule": DecisionRule(**raw["rule"]),
            "trials": tuple(
                TrialSummary(
                    **{**item, "false_alarms": Share(**item["false_alarms"]), "coverage": Share(**item["coverage"])}
                )
                for item in raw["trials"]
            ),
            "power": tuple(PowerPoint(**{**item, "minutes": tuple(item["minutes"])}) for item in raw["power"]),
            "settings": tuple(Setting(**item) for item in raw["settings"]),
            "notes": tuple(raw["notes"]),
            "paths": tuple((str(name), str(path)) for name, path in raw["paths"]),
        }
    )


def _noise(raw: Mapping[str, Any]) -> NoiseBudget:
    drift = raw["drift_per_min"]
    return NoiseBudget(
        **{
            **raw,
            **{name: _spread(raw[name]) for name in ("step", "window", "pair", "block", "launch")},
            "drift_per_min": None if drift is None else Interval(**drift),
            "windows": tuple(WindowChoice(**item) for item in raw["windows"]),
        }
    )


def _spread(raw: Mapping[str, Any] | None) -> Spread | None:
    """A bound that is infinite was written as null."""
    if raw is None:
        return None
    return Spread(**{name: math.inf if value is None else value for name, value in raw.items()})

"""`summary.json`: a run's summary for programs, the same that `flashprof run --json` prints."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from flashprof.contracts.results import RunSummary

FORMAT = "flashprof-summary"
VERSION = 1


def summary_to_json(summary: RunSummary) -> str:
    """One JSON document; numbers that JSON cannot hold become null."""
    document = {"format": FORMAT, "version": VERSION, **asdict(summary)}
    windows = [
        {**asdict(window), "length_s": window.length_s, "tok_per_s": window.tok_per_s} for window in summary.windows
    ]
    lanes = [{**asdict(lane), "covered_share": lane.covered_share} for lane in summary.lanes]
    return json.dumps(_finite({**document, "windows": windows, "lanes": lanes}), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

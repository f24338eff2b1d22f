"""`summary.json`: a run's summary for programs, the same that `flashprof run --json` prints."""

from __future__ import annotations

import json
from dataclasses import asdict

from flashprof.contracts.results import RunSummary
from flashprof.store.json_numbers import finite

FORMAT = "flashprof-summary"
VERSION = 1


def summary_to_json(summary: RunSummary) -> str:
    """One JSON document; numbers that JSON cannot hold become null."""
    document = {"format": FORMAT, "version": VERSION, **asdict(summary)}
    windows = [window.row() for window in summary.windows]
    lanes = [{**asdict(lane), "covered_share": lane.covered_share} for lane in summary.lanes]
    uses = [{**asdict(use), "mfu": use.mfu} for use in summary.uses]
    return (
        json.dumps(finite({**document, "windows": windows, "lanes": lanes, "uses": uses}), indent=2, allow_nan=False)
        + "\n"
    )

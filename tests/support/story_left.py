"""What the parts of the story leave in a folder: one of each, small."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from run_summaries import healthy
from search_results import one_culprit
from study_results import regression

from benchmarks.story_effects import make_cells
from flashprof.store.search_result import search_to_json
from flashprof.store.study_result import study_to_json
from flashprof.store.summary_file import summary_to_json
from pipeline.toggles import REGISTRY


def write_cells(folder: Path) -> None:
    """Two rounds; `compile` brings 10 %, all the rest nothing."""
    cells = make_cells(REGISTRY, ["expandable", "prealloc"])
    readings = [
        {"cell": cell.name, "round": number, "log_tok_per_s": 9 + 0.1 * bool(cell.values["compile"]), "counts": True}
        for number in (1, 2)
        for cell in cells
    ]
    readings[0]["log_tok_per_s"] += 0.001
    document = {"cells": [asdict(cell) for cell in cells], "refused": {"prealloc": "needs CUDA"}, "readings": readings}
    (folder / "cells.json").write_text(json.dumps(document))


def write_parts(folder: Path) -> Path:
    """What a call that measured everything leaves."""
    parts = folder / "parts"
    parts.mkdir(parents=True)
    (parts / "compare.json").write_text(study_to_json(regression()))
    (parts / "bisect.json").write_text(search_to_json(one_culprit()))
    (parts / "run_all.json").write_text(summary_to_json(healthy()))
    write_cells(folder)
    status = {"compare": {"status": 1, "wall_s": 100.0, "limit_s": 140.0, "why": ""}}
    (parts / "status.json").write_text(json.dumps(status))
    return folder

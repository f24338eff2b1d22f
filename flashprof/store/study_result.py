"""
A study's result for programs: what `flashprof compare --json` prints, and `comparison.json` in the study's folder.

Format history
    1  2026-11  StudyResult as it is, but for paths, which are an object
"""

from __future__ import annotations

import json
from dataclasses import asdict

from flashprof.contracts.comparison import StudyResult
from flashprof.store.json_numbers import finite

FORMAT = "flashprof-study-result"
VERSION = 1


def study_to_json(result: StudyResult) -> str:
    """One JSON document; an end of an interval that is not bounded becomes null."""
    document = {"format": FORMAT, "version": VERSION, **asdict(result), "paths": dict(result.paths)}
    return json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

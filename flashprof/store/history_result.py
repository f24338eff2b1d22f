"""`flashprof history --json`: what the history shows, for programs."""

from __future__ import annotations

import json
from dataclasses import asdict

from flashprof.contracts.history import History
from flashprof.store.json_numbers import finite

FORMAT = "flashprof-history"
VERSION = 1


def history_to_json(history: History) -> str:
    """One JSON document; numbers that JSON cannot hold become null."""
    document = {"format": FORMAT, "version": VERSION, **asdict(history)}
    return json.dumps(finite(document), indent=2, allow_nan=False) + "\n"

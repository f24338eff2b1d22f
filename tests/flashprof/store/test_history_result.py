"""The history for programs: JSON without what JSON cannot hold."""

from __future__ import annotations

import json
from pathlib import Path

from histories import launch, steps, stored

from flashprof.app.history import show
from flashprof.store.history_result import history_to_json


def test_all_that_is_shown_is_in_the_document(tmp_path: Path) -> None:
    path = stored(tmp_path / "history.sqlite", steps((20, 0.0), (12, -0.06)))
    document = json.loads(history_to_json(show(path)))
    (series,) = document["series"]

    assert ("flashprof-history", 1) == (document["format"], document["version"])
    assert (32, True, launch().cell) == (len(series["launches"]), series["is_lost"], series["cell"])
    assert ["open"] == [change["status"] for change in series["changes"]]


def test_ends_that_are_infinite_are_null(tmp_path: Path) -> None:
    path = stored(tmp_path / "history.sqlite", [0.0])
    (series,) = json.loads(history_to_json(show(path)))["series"]

    assert series["level"]["tok_per_s"]["high"] is None

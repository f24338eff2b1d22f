"""A way is marked when it is new, and only then."""

from __future__ import annotations

from pathlib import Path

from flashprof.contracts.events import Mark, decode
from flashprof.emit import Emitter, connect
from pipeline.ways import Ways


def marks(folder: Path) -> list[Mark]:
    (path,) = folder.glob("events/*.jsonl")
    return [mark for mark in decode(path.read_text().splitlines(), where=str(path)).marks if mark.name == "path"]


def test_a_way_is_marked_when_it_is_first_gone_and_when_it_changes_with_the_step(tmp_path: Path) -> None:
    emitter = connect("drafter", run_dir=tmp_path)
    ways = Ways(emitter)
    ways.note("load", "plain")
    for step, way in enumerate(["slow", "slow", "fast", "slow"]):
        ways.step = step
        ways.note("loss", way)
        ways.note("load", "plain")
    emitter.close()

    assert [
        {"phase": "load", "way": "plain", "step": None},
        {"phase": "loss", "way": "slow", "step": 0},
        {"phase": "loss", "way": "fast", "step": 2},
        {"phase": "loss", "way": "slow", "step": 3},
    ] == [mark.detail for mark in marks(tmp_path)]


def test_without_a_recording_it_notes_nothing(tmp_path: Path) -> None:
    Ways(Emitter(None, None)).note("loss", "slow")

    assert [] == list(tmp_path.iterdir())

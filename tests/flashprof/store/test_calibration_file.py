"""Calibrations survive their file, odd files are refused with a remedy, and compare finds the one that holds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import calibrations
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashprof.contracts.calibration import Calibration, Setting, Share, Spread
from flashprof.contracts.cell import Cell
from flashprof.contracts.errors import FormatError
from flashprof.store.calibration_file import (
    calibration_to_json,
    find_calibration,
    read_calibration,
    write_calibration,
)

NUMBERS = st.floats(0, 1e6)


def saved(reports: Path, name: str, calibration: Calibration) -> None:
    folder = reports / name
    folder.mkdir(parents=True)
    write_calibration(folder, calibration)


@pytest.mark.parametrize("make", [calibrations.quiet, calibrations.scant])
def test_what_is_written_is_read_again(make: Callable[[], Calibration], tmp_path: Path) -> None:
    path = write_calibration(tmp_path, make())

    assert make() == read_calibration(path)
    assert ["calibration.json"] == [file.name for file in tmp_path.iterdir()]


@given(
    spread=st.builds(Spread, sd=NUMBERS, low=NUMBERS, high=NUMBERS | st.just(math.inf), freedom=NUMBERS),
    share=st.builds(Share, count=st.integers(0, 9), total=st.integers(10, 99), low=NUMBERS, high=NUMBERS),
    settings=st.lists(
        st.builds(Setting, name=st.text(), value=st.none() | NUMBERS, unit=st.text(), reason=st.text()), max_size=3
    ),
)
def test_any_numbers_survive(
    tmp_path_factory: pytest.TempPathFactory, spread: Spread, share: Share, settings: list[Setting]
) -> None:
    full = calibrations.quiet()
    trials = (replace(full.trials[0], coverage=share),)
    odd = replace(full, launch_sd=spread, trials=trials, settings=tuple(settings))

    assert odd == read_calibration(write_calibration(tmp_path_factory.mktemp("calibration"), odd))


def test_the_newest_that_holds_is_found(tmp_path: Path) -> None:
    cell = Cell({**calibrations.FACTS, "toggles.swa": "on", "versions.torch": "2.13"})
    saved(tmp_path, "calibration-old", replace(calibrations.quiet(), date="2026-11-01T00:00:00"))
    saved(tmp_path, "calibration-new", calibrations.quiet())
    elsewhere = replace(calibrations.quiet(), facts={**calibrations.FACTS, "machine.host": "lab-8"}, date="2027")
    saved(tmp_path, "calibration-elsewhere", elsewhere)
    saved(tmp_path, "calibration-new.old-1", replace(calibrations.quiet(), date="2027"))
    (tmp_path / "calibration-broken").mkdir()
    (tmp_path / "calibration-broken" / "calibration.json").write_text("{")

    assert calibrations.quiet() == find_calibration(tmp_path, cell)
    assert find_calibration(tmp_path, Cell({**cell.facts, "workload.preset": "small"})) is None
    assert find_calibration(tmp_path, Cell({**cell.facts, "machine.gpu.0.name": "H200"})) is None
    assert find_calibration(tmp_path / "none", cell) is None


def test_it_names_the_facts_in_which_a_cell_is_unlike() -> None:
    cell = Cell({**calibrations.FACTS, "machine.num_cores": "4", "machine.gpu.0.name": "H200", "env.X": "1"})

    assert ("machine.gpu.0.name", "machine.num_cores") == calibrations.quiet().unlike(cell)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda raw: {**raw, "version": 99}, "version 99 is not known"),
        (lambda raw: {**raw, "format": "cake"}, "cake"),
        (lambda raw: [], "no calibration"),
        (lambda raw: {name: value for name, value in raw.items() if name != "noise"}, "damaged"),
        (lambda raw: {**raw, "trials": [{"name": "x"}]}, "damaged"),
        (lambda raw: {**raw, "facts": None}, "damaged"),
    ],
)
def test_odd_files_are_refused(tmp_path: Path, change: Callable[[object], object], words: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(change(json.loads(calibration_to_json(calibrations.quiet())))))

    with pytest.raises(FormatError) as caught:
        read_calibration(path)

    assert words in caught.value.what
    assert str(path) == caught.value.where
    assert "flashprof calibrate" in str(caught.value.next_command)


def test_settings_are_found_by_name() -> None:
    assert 1200 == calibrations.quiet().setting("window_tokens")
    assert calibrations.quiet().setting("budget_5_pct") is None
    assert calibrations.quiet().setting("no such") is None

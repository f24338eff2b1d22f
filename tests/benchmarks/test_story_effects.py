"""The story's cells and effects: which cells there are, in which order, and that planted effects come out."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from benchmarks.story_effects import ALL, NONE, Cell, CellReading, fit_effects, joint_costs, make_cells, tour
from flashprof.contracts.toggles import Toggle
from pipeline.toggles import REGISTRY

TOGGLES = (
    Toggle(name="compile", help="c", hot=True),
    Toggle(name="analytic-mask", help="a", hot=True),
    Toggle(name="queue", help="q", default=1, on=8, hot=True),
    Toggle(name="warmup", help="w"),
    Toggle(name="fancy", help="f", hot=True, requires=("compile",)),
)
CELLS = make_cells(TOGGLES, [])
GAIN = {"compile": 0.10, "analytic-mask": 0.10, "queue": 0.03}
"""Of log tok/s; either of the first two brings the same 10 %."""


def log_rate(cell: Cell) -> float:
    mask = GAIN["compile"] if cell.values["compile"] or cell.values["analytic-mask"] else 0.0
    return math.log(10_000) + mask + (GAIN["queue"] if cell.values["queue"] == 8 else 0.0)


def readings(num_rounds: int, sd: float, seed: int = 0) -> list[CellReading]:
    rng = np.random.default_rng(seed)
    found = []
    for number in range(num_rounds):
        drift = {group: rng.normal(0, 0.05) for group in (NONE, ALL)}
        found += [
            CellReading(
                cell=cell.name, round=number, log_tok_per_s=log_rate(cell) + drift[cell.group] + rng.normal(0, sd)
            )
            for cell in CELLS
        ]
    return found


def test_hot_toggles_are_there_alone_and_left_out_and_cold_ones_are_not() -> None:
    names = [cell.name for cell in CELLS]

    assert len(names) == len(set(names))
    assert {"none", "all", "compile", "all,-compile", "queue", "all,-compile,-analytic-mask"} <= set(names)
    assert not any("warmup" in name for name in names)
    assert all("warmup" not in cell.values for cell in CELLS)


def test_a_toggle_comes_with_what_it_requires_and_goes_with_what_requires_it() -> None:
    by_name = {cell.name: cell.values for cell in CELLS}

    assert {"compile": True, "fancy": True} == {name: by_name["fancy"][name] for name in ("compile", "fancy")}
    assert {"compile": False, "fancy": False} == {name: by_name["all,-compile"][name] for name in ("compile", "fancy")}


def test_what_the_machine_refuses_is_no_cell() -> None:
    names = {cell.name for cell in make_cells(REGISTRY, ["prealloc", "expandable"])}

    assert not any("prealloc" in name for name in names)


def test_a_round_visits_every_cell_and_drains_the_queue_behind_its_changes() -> None:
    stops = tour(CELLS, frozenset({"queue"}), np.random.default_rng(1))
    seen = list(itertools.takewhile(lambda stop: stop.round <= 3, stops))
    counted = Counter((stop.round, stop.cell.name) for stop in seen if stop.counts)

    assert {(number, cell.name) for number in (1, 2, 3) for cell in CELLS} == set(counted)
    assert {name: 2 if name in (NONE, ALL) else 1 for _, name in counted} == {
        name: number for (_, name), number in counted.items()
    }
    assert seen[0].cell.name in (NONE, ALL)
    for before, after in itertools.pairwise(seen):
        has_changed = before.cell.values["queue"] != after.cell.values["queue"]
        assert has_changed == (not after.counts)
        assert before.counts or before.cell == after.cell


def test_planted_effects_come_out_and_drift_between_rounds_does_not() -> None:
    effects = {effect.cell: effect for effect in fit_effects(CELLS, readings(4, 0.005))}
    truth = {cell.name: log_rate(cell) - log_rate(next(c for c in CELLS if c.name == cell.group)) for cell in CELLS}

    for name, effect in effects.items():
        assert (
            effect.effect.low <= math.expm1(truth[name]) <= effect.effect.high
            or abs(math.log1p(effect.effect.estimate) - truth[name]) < 0.02
        )
    assert pytest.approx(0.10 / 0.13, abs=0.08) == effects["compile"].share
    assert pytest.approx(0.0, abs=0.08) == effects["all,-compile"].share


def test_intervals_cover_what_was_planted() -> None:
    truth = math.expm1(GAIN["queue"])
    runs = [fit_effects(CELLS, readings(3, 0.02, seed)) for seed in range(200)]
    found = [next(e.effect for e in effects if e.cell == "queue") for effects in runs]

    assert 0.90 <= sum(one.low <= truth <= one.high for one in found) / len(found) <= 0.99


def test_two_that_do_the_same_work_are_missed_only_together() -> None:
    ((pair, together, apart),) = joint_costs(fit_effects(CELLS, readings(4, 0.002)))

    assert ("compile", "analytic-mask") == pair
    assert pytest.approx(-0.10, abs=0.02) == together
    assert pytest.approx(0.0, abs=0.02) == apart


@pytest.mark.parametrize("kept", [(NONE,), ("compile", ALL), ()])
def test_without_both_ends_there_are_no_effects(kept: tuple[str, ...]) -> None:
    assert [] == fit_effects(CELLS, [one for one in readings(3, 0.01) if one.cell in kept])


def test_one_round_has_no_noise_to_tell_effects_by() -> None:
    assert [] == fit_effects(CELLS, readings(1, 0.01))

"""What a search knows before it starts: its question, its costs, its noise; and trainers that are only declared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bisect_world import CULPRIT, REGISTRY, BisectWorld, toggle_request
from calibrations import quiet
from declared import declare
from study_world import STEP_S

from flashprof.app.foreign import declared_ports, declared_spec
from flashprof.app.search import bisect, status
from flashprof.app.search_plan import prepare
from flashprof.app.session import Ports
from flashprof.contracts.calibration import matched_facts
from flashprof.contracts.cell import Cell
from flashprof.contracts.comparison import Standing, Verdict
from flashprof.contracts.errors import UsageError
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.ports import LaunchSpec
from flashprof.contracts.search import Cause, SearchRule
from flashprof.contracts.search_request import BisectRequest
from flashprof.contracts.toggles import Toggle, toggles_to_json
from flashprof.decide.search_state import SearchCosts
from flashprof.stats.posterior import NoisePrior
from flashprof.store.calibration_file import FILE, calibration_to_json
from flashprof.store.search_folder import search_id


@pytest.fixture
def world(tmp_path: Path) -> BisectWorld:
    return BisectWorld(tmp_path, slower={"swa": CULPRIT})


def name_of(world: BisectWorld, **changes: object) -> str:
    return search_id(prepare(replace(world.request, **changes), world.ports).question)  # type: ignore[arg-type]


def test_how_sure_and_how_long_is_no_other_question(world: BisectWorld) -> None:
    patient = replace(world.request.windows, start_timeout_s=999.0)
    same = {"rule": SearchRule(budget_s=1.0, certainty=0.8), "windows": patient, "confirm": False, "fresh": True}

    assert name_of(world) == name_of(world, **same)


def test_what_makes_readings_unlike_is_another_question(world: BisectWorld) -> None:
    other = toggle_request(world.reports, "swa,pin", "none")
    longer = replace(world.request.windows, measure_s=2.0)
    names = {
        name_of(world),
        name_of(world, good=other.good),
        name_of(world, windows=longer),
        name_of(world, gpu_sets=((0,),)),
        name_of(world, subject=replace(world.request.subject, seed=7)),
    }

    assert 5 == len(names)


def test_without_any_run_costs_and_noise_are_guessed(world: BisectWorld) -> None:
    known = prepare(world.request, world.ports)

    assert ("", "") == (known.costs_source, known.noise_source)
    assert NoisePrior() == known.plan.noise
    assert SearchCosts().start_s == known.plan.costs.start_s


def test_costs_are_those_of_earlier_launches(world: BisectWorld) -> None:
    world.ask(confirm=False)
    world.bisect()
    known = prepare(world.request, world.ports)
    costs = known.plan.costs

    assert "1 earlier runs of this cell" == known.costs_source
    # A second to load, then what it needs to be steady.
    assert 1.0 < costs.start_s < 20.0
    assert 24 * STEP_S == pytest.approx(costs.window_s, rel=0.2)
    assert costs.switch_s == pytest.approx(costs.window_s / 2)


def test_noise_is_what_a_calibration_has_measured(world: BisectWorld) -> None:
    good = prepare(world.request, world.ports).question.good
    folder = world.reports / "calibrate-1"
    folder.mkdir(parents=True)
    calibration = replace(quiet(), facts=matched_facts(Cell(good)))
    (folder / FILE).write_text(calibration_to_json(calibration))
    known = prepare(world.request, world.ports)
    launch = calibration.noise.launch

    assert launch is not None
    assert (calibration.noise.window.sd, launch.sd) == (known.plan.noise.window_sd, known.plan.noise.launch_sd)
    assert calibration.date in known.noise_source


def test_cold_toggles_alone_make_launches_of_one_cell(world: BisectWorld) -> None:
    world.ask(cold_toggles=("swa", "pin", "fuse"))
    known = prepare(world.request, world.ports)

    assert (False, 2, 1.0) == (known.plan.is_hot, known.plan.num_windows_cold, known.plan.costs.window_s)


def test_a_toggle_that_needs_a_compiler_is_left_out_where_there_is_none(
    world: BisectWorld,
) -> None:
    registry = (*REGISTRY, Toggle(name="compile", help="Compiled.", needs=("compiler",)))
    listing = world.tree / "pipeline" / "__main__.py"
    listing.write_text(f"print({json.dumps(toggles_to_json(registry))!r})\n")
    world.request = toggle_request(world.reports, "all", "none", registry)
    without = replace(world.ports, env={**world.env, "PATH": "/nowhere"})
    known = prepare(world.request, without)

    assert (
        "compile is left out: it needs a C++ compiler (apt-get install g++)",
        "graphs is left out: it needs a CUDA device",
    ) == tuple(sorted(known.notes))
    assert {"swa", "pin", "fuse"} == set(known.subjects.members())
    assert "compile" not in known.subjects.label("good")


# A declared trainer


class DeclaredWorld(BisectWorld):
    """A trainer that only prints its throughput; `workers` off makes it slow, and `cudnn` cannot be without `flash`."""

    def make(self) -> None:
        """Declare it and ask."""
        (self.root / "trainer").mkdir()
        self.subject: ForeignSubject = declare(self.root / "trainer")
        self.specs: list[LaunchSpec] = []
        self.script = lambda launch, script: replace(script, emits=False)
        self.step_s = self._step_s
        self.ask_for("flash,workers=4,cudnn", "none")

    def ask_for(self, good: str, bad: str) -> None:
        """Search between two expressions."""
        registry = self.subject.registry()
        self.request: BisectRequest = replace(
            toggle_request(self.reports, good, bad, registry),
            subject=declared_spec(self.subject, good),
            subject_file=str(self.subject.path),
        )

    @property
    def ports(self) -> Ports:
        return declared_ports(super().ports, self.subject)

    def _step_s(self, spec: LaunchSpec) -> float:
        self.specs.append(spec)
        return STEP_S * (1.0 if "--num-workers=4" in spec.command else CULPRIT)


@pytest.fixture
def declared(tmp_path: Path) -> DeclaredWorld:
    made = DeclaredWorld(tmp_path)
    made.make()
    return made


def test_a_declared_trainer_is_searched_by_launches(declared: DeclaredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    declared.enter(monkeypatch)
    result = declared.bisect()
    again = declared.bisect()

    assert (Verdict.REGRESSION, Standing.CONFIRMED, (Cause(("workers",)),)) == (
        result.verdict,
        result.standing,
        result.culprits,
    )
    assert {"workers": "workers: 4 → 0"}.items() <= (result.labels or {}).items()
    assert (result.num_readings, len(declared.specs)) == (again.num_reused, len(set(declared.run_ids)))
    assert result.culprits == status(declared.reports, result.search).culprits


def test_each_launch_is_its_cell_and_no_cell_is_without_what_it_requires(declared: DeclaredWorld) -> None:
    declared.bisect()
    cells = {reading.launch: reading.cell for reading in declared.readings}

    for launch, spec in zip(declared.launches, declared.specs, strict=True):
        bad = cells[launch.run_id].split("+")
        if cells[launch.run_id] in ("good", "bad"):
            bad = {"good": [], "bad": ["flash", "workers", "cudnn"]}[cells[launch.run_id]]
        is_flash, has_cudnn = "flash" in spec.command, spec.env.get("CUDNN") == "1"
        assert ("flash" not in bad, "workers" not in bad, "cudnn" not in bad) == (
            is_flash,
            "--num-workers=4" in spec.command,
            has_cudnn,
        )
        assert is_flash or not has_cudnn


def test_ends_of_a_declared_trainer_must_differ(declared: DeclaredWorld) -> None:
    declared.ask_for("flash", "flash")
    with pytest.raises(UsageError, match="one cell on this machine"):
        bisect(declared.request, declared.ports, declared.progress)

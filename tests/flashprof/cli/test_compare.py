"""`flashprof compare` from its command line to what it asks the engine, and back to status and output."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import pytest
import study_results
from click.testing import CliRunner, Result

from flashprof.app.progress import Progress
from flashprof.app.session import Ports
from flashprof.cli.main import flashprof
from flashprof.contracts.comparison import DecisionRule, StudyResult
from flashprof.contracts.study import CompareRequest, MethodChoice

Make = Callable[[], StudyResult]


@dataclass
class FakeEngine:
    """Answers at once, and remembers what it was asked."""

    make: Make = study_results.no_regression
    requests: list[CompareRequest] = field(default_factory=list)
    runs: list[tuple[list[str], list[str], DecisionRule, tuple[str, ...], Path]] = field(default_factory=list)
    ports: list[Ports] = field(default_factory=list)
    interrupted: bool = False

    def plan(self, request: CompareRequest, ports: Ports) -> Sequence[str]:
        self.ports.append(ports)
        self.requests.append(request)
        return ["1 launch of 60 s", "about 2 minutes"]

    def compare(self, request: CompareRequest, ports: Ports, progress: Progress) -> StudyResult:
        self.ports.append(ports)
        self.requests.append(request)
        progress.stage("measuring")
        if self.interrupted:
            raise KeyboardInterrupt
        return self.make()

    def compare_runs(
        self,
        bases: Sequence[Path],
        candidates: Sequence[Path],
        rule: DecisionRule,
        *,
        allow: Sequence[str],
        reports: Path,
    ) -> StudyResult:
        self.runs.append(
            ([path.name for path in bases], [path.name for path in candidates], rule, tuple(allow), reports)
        )
        return study_results.existing()


def compare(engine: FakeEngine, *args: str) -> Result:
    return CliRunner().invoke(flashprof, ["compare", *args], obj=engine, standalone_mode=False)


def run_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "manifest.json").write_text("{}")
    return path


def test_what_is_not_said_has_its_default() -> None:
    engine = FakeEngine()
    compare(engine, "none", "swa,compile")
    (request,) = engine.requests

    assert ("none", "compile,swa") == (request.base.expression, request.candidate.expression)
    assert ("compile", "swa") == request.under_test
    assert DecisionRule(alpha=0.01, tolerance=0.01, budget_s=600.0) == request.rule
    assert (MethodChoice.AUTO, True, False, ()) == (request.method, request.confirm, request.fresh, request.gpu_sets)
    assert ("tiny", "1+1", "none") == (request.subject.preset, request.subject.topology, request.subject.toggles)
    assert Path("reports") == request.reports
    assert [] == engine.ports[0].samplers


def test_every_option_reaches_the_request() -> None:
    engine = FakeEngine()
    options = ["--preset", "smollm2", "--topology", "2+1", "--seed", "3", "--train", "--accumulate 2"]
    options += ["--set", "windows.measure_s=2", "--method", "hot", "--screen", "--alpha", "0.5%", "--tolerance", "0.02"]
    options += ["--budget", "2.5", "--allow", "machine", "--allow", "env.A", "--gpus", "0,1; 2,3", "--gpus", "4,5"]
    compare(engine, "all", "all,-swa", *options, "--fresh", "--reports", "elsewhere")
    (request,) = engine.requests

    assert ("swa",) == request.under_test
    assert "all" == request.base.expression == request.subject.toggles
    assert ("smollm2", "2+1", 3) == (request.subject.preset, request.subject.topology, request.subject.seed)
    assert ("--accumulate", "2") == request.subject.train_options
    assert 2.0 == request.windows.measure_s
    assert (MethodChoice.HOT, False, True) == (request.method, request.confirm, request.fresh)
    assert DecisionRule(alpha=0.005, tolerance=0.02, budget_s=150.0) == request.rule
    assert ("machine", "env.A") == request.allow
    assert ((0, 1), (2, 3), (4, 5)) == request.gpu_sets
    assert Path("elsewhere") == request.reports


def test_cold_toggles_are_named_in_the_request() -> None:
    engine = FakeEngine()
    compare(engine, "none", "swa,expandable")

    assert ("expandable",) == engine.requests[0].cold_toggles


@pytest.mark.parametrize(
    ("make", "options", "status"),
    [
        (study_results.no_regression, (), 0),
        (study_results.regression, (), 1),
        (study_results.regression, ("--inconclusive", "pass"), 1),
        (study_results.inconclusive, (), 3),
        (study_results.inconclusive, ("--inconclusive", "pass"), 0),
        (study_results.inconclusive, ("--inconclusive", "fail"), 1),
        (study_results.failed_arm, (), 4),
        (study_results.failed_arm, ("--inconclusive", "pass"), 4),
    ],
)
def test_the_status_is_the_verdict(make: Make, options: tuple[str, ...], status: int) -> None:
    done = compare(FakeEngine(make=make), "none", "swa", *options)

    assert status == done.return_value


def test_an_inconclusive_answer_with_a_failed_launch_never_passes() -> None:
    result = study_results.inconclusive()
    engine = FakeEngine(make=lambda: replace(result, failures=("cold-1: crashed",)))

    assert 3 == compare(engine, "none", "swa", "--inconclusive", "pass").return_value


def test_an_interrupted_study_is_printed_with_a_status_of_its_own() -> None:
    engine = FakeEngine(make=lambda: replace(study_results.regression(), is_interrupted=True))
    done = compare(engine, "none", "swa", "--inconclusive", "pass")

    assert 130 == done.return_value
    assert done.stdout.startswith("regression")


def test_the_answer_is_on_stdout_and_progress_is_not() -> None:
    done = compare(FakeEngine(make=study_results.regression), "none", "swa")

    assert done.stdout.startswith("regression  compile,swa → none: −17.3 % tok/s")
    assert "measuring" not in done.stdout
    assert "measuring" in done.stderr


def test_json_is_for_programs() -> None:
    done = compare(FakeEngine(make=study_results.inconclusive), "none", "swa", "--json")

    assert "inconclusive" == json.loads(done.stdout)["verdict"]
    assert 3 == done.return_value


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), "1 launch of 60 s\nabout 2 minutes\n"), (("--json",), {"plan": ["1 launch of 60 s", "about 2 minutes"]})],
)
def test_a_dry_run_prints_the_plan_and_starts_nothing(options: tuple[str, ...], expected: object) -> None:
    engine = FakeEngine(make=lambda: pytest.fail("it was started"))
    done = compare(engine, "none", "swa", "--dry-run", *options)

    assert 0 == done.return_value
    assert expected == (json.loads(done.stdout) if options else done.stdout)


def test_an_interrupted_comparison_says_that_it_can_go_on() -> None:
    done = compare(FakeEngine(interrupted=True), "none", "swa")

    assert isinstance(done.exception, click.Abort)
    assert "the same command goes on from here" in done.stderr


def test_folders_with_runs_are_compared_as_they_are(tmp_path: Path) -> None:
    engine = FakeEngine()
    base = run_folder(tmp_path / "monday")
    for name in ("b", "a", ".c.part"):
        run_folder(tmp_path / "tuesday" / name)
    done = compare(engine, str(base), str(tmp_path / "tuesday"), "--alpha", "5%", "--allow", "machine.host")

    assert [(["monday"], ["a", "b"], DecisionRule(alpha=0.05), ("machine.host",), Path("reports"))] == engine.runs
    assert "from 2 runs measured earlier" in done.stdout
    assert 3 == done.return_value


def test_a_run_wins_over_a_toggle_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_folder(tmp_path / "none")
    run_folder(tmp_path / "swa")
    engine = FakeEngine()
    compare(engine, "none", "swa")

    assert [["none"], ["swa"]] == [*engine.runs[0][:2]]


def test_a_folder_without_runs_does_not_hide_a_toggle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compile").mkdir()
    engine = FakeEngine()
    compare(engine, "none", "compile")

    assert ("compile",) == engine.requests[0].under_test

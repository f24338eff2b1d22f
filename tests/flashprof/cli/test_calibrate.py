"""`flashprof calibrate` from its command line to what it asks for, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flashprof.app.measure import Schedule
from flashprof.app.progress import Progress
from flashprof.app.session import Ports
from flashprof.cli.main import flashprof
from flashprof.contracts.errors import FlashProfError, SubjectError, UsageError
from flashprof.contracts.experiment import Experiment
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import RunSummary


class FakeRunner:
    """Every launch crashes, and leaves nothing."""

    def __init__(self) -> None:
        self.experiments: list[Experiment] = []

    def __call__(self, experiment: Experiment, ports: Ports, progress: Progress, *, schedule: Schedule) -> RunSummary:
        del ports, progress, schedule
        self.experiments.append(experiment)
        return RunSummary(run_id=experiment.output.run_id, cell={}, outcome=Outcome.CRASHED, reason="boom")


def invoke(*words: str, runner: FakeRunner | None = None) -> Result:
    return CliRunner().invoke(flashprof, ["calibrate", *words], obj=runner or FakeRunner(), catch_exceptions=True)


def test_the_plan_is_printed_and_nothing_started(tmp_path: Path) -> None:
    runner = FakeRunner()

    result = invoke("--dry-run", "--minutes", "20", "--launches", "5", "--reports", str(tmp_path / "r"), runner=runner)

    assert 0 == result.exit_code
    assert "5 launches of tiny 1+1 with compile,swa in both arms" in result.output
    assert "240 s" in result.output
    assert not runner.experiments
    assert not (tmp_path / "r").exists()


def test_the_plan_for_programs(tmp_path: Path) -> None:
    result = invoke("--dry-run", "--json", "--toggles", "none", "--reports", str(tmp_path))

    assert "none in both arms" in json.loads(result.output)["plan"][0]


def test_options_reach_the_launches_which_are_not_sampled(tmp_path: Path) -> None:
    runner = FakeRunner()
    words = ("--seed", "7", "--topology", "2+1", "--train", "--accumulate 2", "--set", "windows.steady_timeout_s=9")

    result = invoke(*words, "--reports", str(tmp_path), runner=runner)

    experiment = runner.experiments[0]
    assert isinstance(result.exception, SubjectError)
    assert 7 == experiment.subject.seed
    assert "2+1" == experiment.subject.topology
    assert ("--accumulate", "2") == experiment.subject.command[-2:]
    assert 9.0 == experiment.windows.steady_timeout_s
    assert ("off", "off") == (experiment.sampling.stacks, experiment.sampling.resources)
    assert "launch-01" == experiment.output.run_id


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "1", "--launches", "6"], "too short"),
        (["--minutes", "nan"], "nan"),
        (["--minutes", "-3"], "-3"),
        (["--toggles", "compil"], "compile"),
        (["--set", "sampling.rate_hz=5"], "does nothing"),
        (["--set", "output.run_id=x"], "does nothing"),
        (["--set", "windows.measure=5"], "measure"),
        (["--train", "'open"], "--train"),
    ],
)
def test_wrong_input_is_refused_before_anything_starts(tmp_path: Path, words: list[str], said: str) -> None:
    runner = FakeRunner()

    result = invoke(*words, "--reports", str(tmp_path / "r"), runner=runner)

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)
    assert not runner.experiments
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("words", [["--launches", "-1"], ["--preset"], ["extra"]])
def test_clicks_own_refusals_end_with_status_2(words: list[str]) -> None:
    assert 2 == invoke(*words).exit_code


def test_launches_that_fail_are_an_error_with_a_remedy(tmp_path: Path) -> None:
    result = invoke("--reports", str(tmp_path))

    assert isinstance(result.exception, FlashProfError)
    assert 4 == result.exception.exit_code
    assert "flashprof run" in str(result.exception)

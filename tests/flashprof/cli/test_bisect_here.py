"""`flashprof bisect here`: no status but that of its answer may blame or clear a commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.cli.main import flashprof, main
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.errors import SubjectError, ToolError, UsageError
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search_request import HereRequest, HereResult, HereStatus


@dataclass
class FakeEngine:
    """Answers, or fails, at once."""

    answer: HereStatus | BaseException = HereStatus.GOOD
    requests: list[HereRequest] = field(default_factory=list)

    def here(self, request: HereRequest, ports: Ports, progress: SearchProgress) -> HereResult:
        assert not ports.samplers
        progress.stage("measuring")
        self.requests.append(request)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return HereResult(status=self.answer, reason="as fast as monday, 99 % sure")


def run_folder(path: Path, swa: str = "on", **subject: object) -> str:
    path.mkdir()
    manifest = {
        "format": "flashprof-run",
        "version": 1,
        "experiment": {"subject": {"preset": "smollm2", **subject}, "windows": {"measure_s": 2.0}},
        "cell_facts": {"toggles.swa": swa},
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    return str(path)


@pytest.fixture
def ends(tmp_path: Path) -> tuple[str, ...]:
    return ("--good", run_folder(tmp_path / "monday"), "--bad", run_folder(tmp_path / "tuesday"))


def status(engine: FakeEngine, *args: str) -> int:
    """As a shell sees it: what `main` makes of the command's end."""
    try:
        done = flashprof(args=["bisect", "here", *args], obj=engine, standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 whatever it is, `main` turns it into a status
        return getattr(error, "exit_code", 1)
    return int(done)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (HereStatus.GOOD, 0),
        (HereStatus.BAD, 1),
        (HereStatus.SKIP, 125),
        (SubjectError("it ended", outcome=Outcome.CRASHED), 125),
        (ToolError("the disk is full"), 128),
        (UsageError("the cells differ"), 128),
        (OSError(28, "No space left on device", "x"), 128),
        (ZeroDivisionError("our bug"), 128),
    ],
)
def test_each_end_has_the_status_that_git_understands(
    ends: tuple[str, ...], answer: HereStatus | BaseException, expected: int
) -> None:
    assert expected == status(FakeEngine(answer=answer), *ends)


@pytest.mark.parametrize(
    "wrong",
    [
        ("--good", "x"),
        ("--oops",),
        ("--good", "x", "--bad", "y"),
        ("--good", "x", "--bad", "y", "--alpha", "2"),
        ("--good", "x", "--bad", "y", "--budget", "soon"),
        ("--good", "x", "--bad", "y", "extra"),
    ],
)
def test_wrong_use_aborts(wrong: tuple[str, ...]) -> None:
    engine = FakeEngine()

    assert 128 == status(engine, *wrong)
    assert [] == engine.requests


def test_a_run_and_no_run_or_runs_of_two_subjects_abort(tmp_path: Path, ends: tuple[str, ...]) -> None:
    _, good, _, bad = ends
    other = run_folder(tmp_path / "seed", seed=5)
    off = run_folder(tmp_path / "off", swa="off")

    assert [128] * 4 == [status(FakeEngine(), "--good", good, "--bad", second) for second in ("none", good, other, off)]
    assert 0 == status(FakeEngine(), "--good", good, "--bad", bad)


def test_the_request_is_what_the_runs_measured(ends: tuple[str, ...]) -> None:
    engine = FakeEngine()
    status(engine, *ends, "--budget", "5m", "--tolerance", "2%", "--allow", "machine", "--reports", "r")
    (request,) = engine.requests

    assert (("monday",), ("tuesday",)) == tuple(
        tuple(path.name for path in side) for side in (request.good, request.bad)
    )
    assert ("smollm2", 2.0) == (request.subject.preset, request.windows.measure_s)
    assert DecisionRule(tolerance=0.02, budget_s=300.0) == request.rule
    assert (("machine",), Path("r")) == (request.allow, request.reports)


def test_the_answer_is_one_line_on_stdout(ends: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    status(FakeEngine(answer=HereStatus.BAD), *ends)

    assert capsys.readouterr().out == "bad: as fast as monday, 99 % sure\n"


@pytest.mark.parametrize("args", [("--oops",), ("--good", "x", "--bad", "y")])
def test_the_whole_program_aborts_with_a_message(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bisect", "here", *args])
    said = capsys.readouterr().err

    assert 128 == left.value.code
    assert "--oops" in said or "neither side is a run" in said
    assert "Traceback" not in said

"""`flashprof bisect here`: no status but that of its answer may blame or clear a commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flashprof.app.foreign import declared_spec
from flashprof.app.log_readings import DEFAULT_PATTERN
from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.cli.main import flashprof, main
from flashprof.contracts.comparison import DecisionRule
from flashprof.contracts.errors import SubjectError, ToolError, UsageError
from flashprof.contracts.experiment import SubjectKind
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.search_request import HereRequest, HereResult, HereStatus
from flashprof.store.subject_file import read_subject


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
    if subject.get("kind") == "foreign":
        manifest["cell_facts"] = {}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return str(path)


def declared_run(path: Path, declared: ForeignSubject, fast: str = "on", **changes: object) -> str:
    """A run of a declared trainer, as `flashprof run` leaves it."""
    spec = {**asdict(declared_spec(declared, "fast")), **changes}
    folder = run_folder(path, **spec)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["cell_facts"] = {"toggles.fast": fast}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return folder


def declare(folder: Path, word: str = "--fast") -> ForeignSubject:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("print('tok/s=1')\n")
    path = folder / "flashprof.toml"
    path.write_text(f'[subject]\ncommand = ["python", "train.py"]\n[toggles.fast]\non = {{ args = ["{word}"] }}\n')
    return read_subject(path)


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
        (BrokenPipeError(32, "Broken pipe"), 128),
        (ZeroDivisionError("our bug"), 128),
    ],
)
def test_each_end_has_the_status_that_git_understands(
    ends: tuple[str, ...],
    answer: HereStatus | BaseException,
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

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


def test_a_trainer_that_only_prints_is_started_as_it_was(tmp_path: Path) -> None:
    trainer: dict[str, Any] = {"kind": "foreign", "command": ["python", "train.py"], "preset": "tiny"}
    ends = [run_folder(tmp_path / name, **trainer) for name in ("a", "b")]
    other = run_folder(tmp_path / "c", **{**trainer, "command": ["python", "other.py"]})
    patterned = run_folder(tmp_path / "d", **trainer, tok_per_s_pattern="v=(.)")
    engine = FakeEngine()

    assert 0 == status(engine, "--good", ends[0], "--bad", ends[1])
    assert (SubjectKind.FOREIGN, ("python", "train.py"), DEFAULT_PATTERN, "") == (
        engine.requests[0].subject.kind,
        engine.requests[0].subject.command,
        engine.requests[0].subject.tok_per_s_pattern,
        engine.requests[0].subject_file,
    )
    assert [128] * 2 == [status(FakeEngine(), "--good", ends[0], "--bad", bad) for bad in (other, patterned)]


def test_a_declared_trainer_is_started_with_the_toggles_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = declare(tmp_path / "tree")
    ends = ("--good", declared_run(tmp_path / "a", declared), "--bad", declared_run(tmp_path / "b", declared))
    (declared.cwd / "train.py").write_text("print('tok/s=2')\n")
    monkeypatch.chdir(declared.cwd)
    engine = FakeEngine()

    assert 0 == status(engine, *ends)
    (request,) = engine.requests
    assert (str(declared.path), "all") == (request.subject_file, request.subject.toggles)
    assert declared_spec(declared, "fast") == request.subject


@pytest.mark.parametrize("case", ["none here", "changed", "runs differ", "toggles differ", "a declaration for none"])
def test_another_declaration_than_that_of_the_runs_aborts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    declared = declare(tmp_path / "tree")
    good, bad = declared_run(tmp_path / "a", declared), declared_run(tmp_path / "b", declared)
    other = declare(tmp_path / "other", "--faster")
    plain = run_folder(tmp_path / "plain")
    args, folder = {
        "none here": ((good, bad), tmp_path),
        "changed": ((good, bad, "--subject", str(other.path)), declared.cwd),
        "runs differ": ((good, declared_run(tmp_path / "c", other)), declared.cwd),
        "toggles differ": ((good, declared_run(tmp_path / "d", declared, "off")), declared.cwd),
        "a declaration for none": ((plain, run_folder(tmp_path / "p"), "--subject", str(declared.path)), declared.cwd),
    }[case]
    monkeypatch.chdir(folder)
    engine = FakeEngine()

    assert 128 == status(engine, "--good", args[0], "--bad", *args[1:])
    assert [] == engine.requests


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


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-", ">&- 2>&-"])
def test_messages_that_cannot_be_written_blame_no_commit(redirection: str) -> None:
    command = ["sh", "-c", f'"$0" -m flashprof.cli bisect here --good x --bad y {redirection}', sys.executable]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}

    assert 128 == subprocess.run(command, env=env, capture_output=True, check=False, timeout=60).returncode

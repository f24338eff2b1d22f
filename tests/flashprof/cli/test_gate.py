"""`flashprof gate` from its command line to what it asks the engine, and back to status, output and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import gate_results
import pytest
from click.testing import CliRunner, Result
from gate_world import git

from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.cli.gate import command
from flashprof.contracts.comparison import Verdict
from flashprof.contracts.errors import FlashProfError, UnknownNameError, UsageError
from flashprof.contracts.experiment import SubjectKind
from flashprof.contracts.gate import TOK_PER_S, GateRequest, GateResult, Threshold


@dataclass
class FakeEngine:
    """Answers at once, and remembers what it was asked."""

    make: Callable[[], GateResult] = gate_results.passed
    requests: list[GateRequest] = field(default_factory=list)
    is_interrupted: bool = False

    def plan(self, request: GateRequest, ports: Ports) -> Sequence[str]:
        assert not ports.samplers
        self.requests.append(request)
        return ["measure   pairs", "total     20 min"]

    def gate(self, request: GateRequest, ports: Ports, progress: SearchProgress) -> GateResult:
        assert not ports.samplers
        progress.stage("measuring")
        self.requests.append(request)
        if self.is_interrupted:
            raise KeyboardInterrupt
        return replace(self.make(), paths=(("gate", str(request.reports / "gate-1")),))


@pytest.fixture(autouse=True)
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, in which the commands are given; outside any CI."""
    git(tmp_path, "init", "-q")
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITLAB_CI"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def give(engine: FakeEngine, *words: str) -> Result:
    return CliRunner().invoke(command, list(words), obj=engine, standalone_mode=False)


def base(engine: FakeEngine, *words: str) -> Result:
    return give(engine, "--base-ref", "main", *words)


def refused(*words: str) -> FlashProfError:
    engine = FakeEngine()
    error = give(engine, *words).exception

    assert isinstance(error, FlashProfError)
    assert not engine.requests
    return error


def test_what_is_not_said_has_its_default() -> None:
    engine = FakeEngine()
    done = base(engine, "--", "python", "train.py", "--fast")
    (request,) = engine.requests

    assert 0 == done.return_value
    assert (Threshold(metric=TOK_PER_S, max_regression=0.03),) == request.thresholds
    assert (0.01, 1200.0, True, False, None) == (
        request.alpha,
        request.budget_s,
        request.explain,
        request.bisect,
        request.bisect_budget_s,
    )
    assert ("main", "", "") == (request.base_ref, request.head_ref, request.baseline)
    assert ("python", "train.py", "--fast") == request.command == request.subject.command
    assert SubjectKind.FOREIGN is request.subject.kind
    assert Path("reports") == request.reports


def test_every_option_reaches_the_request() -> None:
    engine = FakeEngine()
    options = ["--head-ref", "change", "--max-regression", "2%", "--threshold", "start-up=10%"]
    options += [
        "--threshold",
        "phase:drafter mask=0.2",
        "--threshold",
        "memory=5%",
        "--budget",
        "90s",
        "--alpha",
        "0.5%",
    ]
    options += ["--bisect-budget", "1h", "--no-explain", "--repo", ".", "--setup", "uv sync", "--seed", "4"]
    options += ["--gpus", "0,1;2,3", "--allow", "machine", "--fresh", "--reports", "elsewhere"]
    options += ["--tok-per-s", r"(\d+) tok", "--set", "windows.measure_s=2"]
    base(engine, *options, "--", "trainer")
    (request,) = engine.requests

    assert [
        (TOK_PER_S, 0.02),
        ("start-up", 0.1),
        ("phase:drafter mask", 0.2),
        ("memory", 0.05),
    ] == [(item.metric, item.max_regression) for item in request.thresholds]
    assert ("change", 90.0, 0.005) == (request.head_ref, request.budget_s, request.alpha)
    assert (True, 3600.0, False, True) == (request.bisect, request.bisect_budget_s, request.explain, request.fresh)
    assert ("uv sync", 4, ((0, 1), (2, 3))) == (request.setup, request.subject.seed, request.gpu_sets)
    assert (r"(\d+) tok", 2.0) == (request.subject.tok_per_s_pattern, request.windows.measure_s)
    assert (("machine",), Path("elsewhere")) == (request.allow, request.reports)


def test_our_pipeline_keeps_its_toggles_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", str(root))
    engine = FakeEngine()
    base(engine, "--toggles", "all, -swa", "--preset", "tiny", "--topology", "1+1")
    (request,) = engine.requests

    assert (SubjectKind.PIPELINE, "all,-swa", ()) == (request.subject.kind, request.subject.toggles, request.command)


@pytest.mark.parametrize(
    ("make", "words", "status"),
    [
        (gate_results.passed, (), 0),
        (gate_results.failed, (), 1),
        (gate_results.inconclusive, (), 3),
        (gate_results.inconclusive, ("--inconclusive", "pass"), 0),
        (gate_results.inconclusive, ("--inconclusive", "fail"), 1),
        (gate_results.broken, (), 4),
        (gate_results.broken, ("--inconclusive", "pass"), 4),
        (gate_results.broken, ("--inconclusive", "fail"), 4),
        (gate_results.interrupted, (), 130),
    ],
)
def test_the_verdict_is_the_status(make: Callable[[], GateResult], words: tuple[str, ...], status: int) -> None:
    assert status == base(FakeEngine(make), *words, "--", "trainer").return_value


def test_a_gate_with_failed_launches_never_passes_for_being_open() -> None:
    def made() -> GateResult:
        return replace(gate_results.inconclusive(), failures=("cold-1-base-1: hung",))

    assert 3 == base(FakeEngine(made), "--inconclusive", "pass", "--", "trainer").return_value


def test_the_answer_is_printed_and_written_beside_what_was_measured(repo: Path) -> None:
    done = base(FakeEngine(gate_results.failed), "--write", "junit=out/junit.xml", "--", "trainer")

    assert done.stdout.startswith("fail")
    assert "measuring" in done.stderr
    assert Verdict.REGRESSION == json.loads((repo / "reports/gate-1/gate.json").read_text())["verdict"]
    assert "<testsuite" in (repo / "out/junit.xml").read_text()


def test_json_is_all_that_is_printed() -> None:
    done = base(FakeEngine(), "--json", "--", "trainer")

    assert Verdict.NO_REGRESSION == json.loads(done.stdout)["verdict"]


def test_on_github_the_runner_finds_its_files(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repo / "summary.md"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(repo / "output.txt"))
    (repo / "summary.md").write_text("before\n")
    done = base(FakeEngine(gate_results.failed), "--", "trainer")

    assert (repo / "summary.md").read_text().startswith("before\n")
    assert "tok/s" in (repo / "summary.md").read_text()
    assert "verdict" in (repo / "output.txt").read_text()
    assert "::error" in done.stdout


def test_on_github_json_leaves_the_annotations_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = base(FakeEngine(gate_results.failed), "--json", "--", "trainer")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = base(FakeEngine(gate_results.failed), "--json", "--", "trainer")

    assert elsewhere.stdout == done.stdout
    assert Verdict.REGRESSION == json.loads(done.stdout)["verdict"]
    assert "\n::error " in done.stderr
    assert "::error" not in elsewhere.stderr


def test_what_cannot_be_written_is_said_and_changes_no_verdict(repo: Path) -> None:
    (repo / "file").touch()
    done = base(FakeEngine(), "--write", "json=file/gate.json", "--", "trainer")

    assert 0 == done.return_value
    assert "file/gate.json is not written" in done.stderr


@pytest.mark.parametrize("name", ["stdout", "fifo", "nowhere"])
def test_what_is_no_plain_file_is_refused_before_measuring_and_stays(repo: Path, name: str) -> None:
    os.mkfifo(repo / "fifo")
    (repo / "stdout").symlink_to("/dev/null")
    (repo / "nowhere").symlink_to(repo / "absent")
    before = (repo / name).lstat()
    error = refused("--base-ref", "main", "--write", f"comment={name}", "--", "trainer")

    assert 2 == error.exit_code
    assert f"{name}: it is no plain file, and is not replaced" in error.what
    assert before == (repo / name).lstat()


def test_the_plan_is_printed() -> None:
    engine = FakeEngine()

    assert base(engine, "--dry-run", "--", "trainer").stdout.startswith("measure   pairs\n")
    assert ["measure   pairs", "total     20 min"] == json.loads(
        base(engine, "--dry-run", "--json", "--", "trainer").stdout
    )["plan"]


def test_ctrl_c_says_that_the_command_goes_on() -> None:
    done = base(FakeEngine(is_interrupted=True), "--", "trainer")

    # Click's own word for it; `main` gives it the status 130.
    assert isinstance(done.exception, click.Abort)
    assert "goes on from here" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to compare"),
        (("--base-ref", "main", "--baseline", "nightly"), "one base"),
        (("--base-ref", "main", "--"), "no command behind"),
        (("--base-ref", "main", "--threshold", "start-up"), "does not take"),
        (("--base-ref", "main", "--threshold", "start-up=-3%"), "does not take"),
        (("--base-ref", "main", "--threshold", "start-up=nan"), "does not take"),
        (("--base-ref", "main", "--threshold", "tok/s=3%"), "option of its own"),
        (("--base-ref", "main", "--threshold", "memory=3%", "--threshold", "memory=4%"), "two thresholds"),
        (("--base-ref", "main", "--max-regression", "0%"), "--max-regression"),
        (("--base-ref", "main", "--write", "junit"), "does not take"),
        (("--base-ref", "main", "--write", "report=."), "--write does not write to .: it is a folder"),
        (("--base-ref", "main", "--write", "comment=.git"), "it is a folder"),
        (("--base-ref", "main", "--write", "json=/"), "it is a folder"),
        (("--base-ref", "main", "--write", f"json={'x' * 300}"), "it cannot be used: File name too long"),
        (("--base-ref", "main", "--subject", "flashprof.toml", "--", "x"), "two subjects"),
        (("--base-ref", "main", "--preset", "tiny2", "--", "x"), "our own pipeline"),
        (("--base-ref", "main", "--set", "sampling.stacks=off", "--", "x"), "does nothing"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_starts(words: tuple[str, ...], said: str) -> None:
    error = refused(*words)

    assert isinstance(error, UsageError)
    assert said in error.what
    assert error.next_command


@pytest.mark.parametrize(
    "words", [("--threshold", "strat-up=3%"), ("--threshold", "phase:mask=3%"), ("--write", "x=y")]
)
def test_unknown_names_are_offered_the_known_ones(words: tuple[str, ...]) -> None:
    error = refused("--base-ref", "main", *words, "--", "trainer")

    assert isinstance(error, UnknownNameError)
    assert error.known

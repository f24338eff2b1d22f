"""`flashprof bisect` from its command line to what it asks the engine, and back to status and output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import pytest
import search_results
from click.testing import CliRunner, Result

from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.cli.main import flashprof
from flashprof.contracts.errors import FlashProfError
from flashprof.contracts.experiment import SubjectKind
from flashprof.contracts.search import SearchKind, SearchResult, SearchRule
from flashprof.contracts.search_request import BisectRequest, request_to_json
from flashprof.store.search_folder import SearchQuestion, open_search

Make = Callable[[], SearchResult]
ENDS = ("--good", "all", "--bad", "none")
RANGE = ("--commits", "v1..HEAD")


@dataclass
class FakeEngine:
    """Answers at once, and remembers what it was asked."""

    make: Make = search_results.no_regression
    requests: list[BisectRequest] = field(default_factory=list)
    ports: list[Ports] = field(default_factory=list)
    interrupted: bool = False

    def plan(self, request: BisectRequest, ports: Ports) -> Sequence[str]:
        self._remember(request, ports)
        return ["1 launch of 60 s", "about 2 minutes"]

    def bisect(self, request: BisectRequest, ports: Ports, progress: SearchProgress) -> SearchResult:
        self._remember(request, ports)
        progress.stage("measuring")
        for number in range(1, 4):
            progress.look(replace(search_results.look(), num_readings=number))
        if self.interrupted:
            raise KeyboardInterrupt
        return self.make()

    def _remember(self, request: BisectRequest, ports: Ports) -> None:
        self.requests.append(request)
        self.ports.append(ports)


def bisect(engine: FakeEngine, *args: str) -> Result:
    return CliRunner().invoke(flashprof, ["bisect", *args], obj=engine, standalone_mode=False)


def measure(engine: FakeEngine, *options: str) -> Result:
    """A search that takes no process: our pipeline would be asked for its toggles."""
    return bisect(engine, *RANGE, *options, "--", "python", "train.py")


def asked(*args: str) -> BisectRequest:
    """The request that a command line makes."""
    engine = FakeEngine()
    done = bisect(engine, *args)
    if done.exception:
        raise done.exception
    (request,) = engine.requests
    return request


def run_folder(path: Path, toggles: dict[str, str], **subject: object) -> Path:
    path.mkdir(parents=True)
    manifest = {
        "format": "flashprof-run",
        "version": 1,
        "outcome": "completed",
        "experiment": {
            "subject": {"kind": "pipeline", "preset": "tiny", "toggles": "as asked", **subject},
            "windows": {"measure_s": 2.0},
        },
        "cell_facts": {f"toggles.{name}": text for name, text in toggles.items()},
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def test_what_is_not_said_has_its_default() -> None:
    request = asked("--good", "compile,swa", "--bad", "swa,queue=8")

    assert SearchKind.TOGGLES is request.kind
    assert request.good is not None
    assert request.bad is not None
    assert ("compile,swa", "swa,queue=8") == (request.good.expression, request.bad.expression)
    assert ("compile", "queue") == request.under_test
    assert SearchRule(certainty=0.95, alpha=0.01, tolerance=0.01, budget_s=1800.0) == request.rule
    assert (True, False, (), ()) == (request.confirm, request.fresh, request.gpu_sets, request.allow)
    assert ("tiny", "1+1", "compile,swa") == (request.subject.preset, request.subject.topology, request.subject.toggles)
    assert ("", (), "", "") == (request.commits, request.command, request.setup, request.subject_file)
    assert Path("reports") == request.reports


def test_every_option_reaches_the_request() -> None:
    options = ["--preset", "smollm2", "--topology", "2+1", "--seed", "3", "--train", "--accumulate 2"]
    options += ["--set", "windows.measure_s=2", "--certainty", "99%", "--alpha", "0.5%", "--tolerance", "0.02"]
    options += ["--budget", "1.5h", "--no-confirm", "--allow", "machine", "--allow", "env.A", "--gpus", "0,1; 2,3"]
    request = asked(*ENDS, *options, "--fresh", "--reports", "elsewhere")

    assert ("smollm2", "2+1", 3) == (request.subject.preset, request.subject.topology, request.subject.seed)
    assert ("--accumulate", "2") == request.subject.train_options
    assert 2.0 == request.windows.measure_s
    assert SearchRule(certainty=0.99, alpha=0.005, tolerance=0.02, budget_s=5400.0) == request.rule
    assert (False, True) == (request.confirm, request.fresh)
    assert ("machine", "env.A") == request.allow
    assert ((0, 1), (2, 3)) == request.gpu_sets
    assert Path("elsewhere") == request.reports


def test_cold_and_upstream_toggles_are_named_in_the_request() -> None:
    request = asked("--good", "expandable,early-exit,swa", "--bad", "none")

    assert ("expandable",) == request.cold_toggles
    assert ("early-exit",) == request.upstream_toggles


def test_commits_are_a_search_of_their_own() -> None:
    request = asked(*RANGE, "--repo", "tree", "--setup", "uv sync --frozen", "--toggles", "compile, swa")

    assert (SearchKind.COMMITS, "v1..HEAD", Path("tree")) == (request.kind, request.commits, request.repo)
    assert ("uv sync --frozen", ()) == (request.setup, request.command)
    assert (SubjectKind.PIPELINE, "compile,swa") == (request.subject.kind, request.subject.toggles)
    assert (None, None) == (request.good, request.bad)


@pytest.mark.parametrize(
    "words", [("status",), ("python", "train.py", "--good", "all", "--", "-x"), ("here", "--json")]
)
def test_what_stands_behind_the_dashes_is_the_command_whatever_it_is(words: tuple[str, ...]) -> None:
    request = asked(*RANGE, "--tok-per-s", r"speed (\d+)", "--", *words)

    assert words == request.command == request.subject.command
    assert (SubjectKind.FOREIGN, r"speed (\d+)") == (request.subject.kind, request.subject.tok_per_s_pattern)


def test_ends_may_be_runs_which_say_their_toggles_and_their_subject(tmp_path: Path) -> None:
    good = run_folder(tmp_path / "monday", {"swa": "on", "queue": "4", "compile": "on"}, topology="2+1", seed=7)
    for name in ("a", "b"):
        run_folder(tmp_path / "tuesday" / name, {"swa": "off", "queue": "4"}, topology="2+1", seed=7)
    request = asked("--good", str(good), "--bad", str(tmp_path / "tuesday"), "--topology", "2+1")

    assert request.good is not None
    assert ("compile", "swa") == request.under_test
    assert 4 == request.good.values["queue"]
    assert ("2+1", 7) == (request.subject.topology, request.subject.seed)


def test_one_end_may_be_a_run(tmp_path: Path) -> None:
    good = run_folder(tmp_path / "monday", {"swa": "on"}, seed=7)
    request = asked("--good", str(good), "--bad", "none")

    assert (("swa",), 7) == (request.under_test, request.subject.seed)


@pytest.mark.parametrize(
    ("make", "options", "status"),
    [
        (search_results.no_regression, (), 0),
        (search_results.one_culprit, (), 1),
        (search_results.one_culprit, ("--inconclusive", "pass"), 1),
        (search_results.undecided, (), 3),
        (search_results.undecided, ("--inconclusive", "pass"), 0),
        (search_results.undecided, ("--inconclusive", "fail"), 1),
        (search_results.commits_open, ("--inconclusive", "pass"), 3),
        (search_results.failed_end, (), 4),
        (search_results.failed_end, ("--inconclusive", "pass"), 4),
        (search_results.interrupted, ("--inconclusive", "pass"), 130),
    ],
)
def test_the_status_is_the_verdict(make: Make, options: tuple[str, ...], status: int) -> None:
    assert status == measure(FakeEngine(make=make), *options).return_value


def test_the_answer_is_on_stdout_and_progress_is_not() -> None:
    done = measure(FakeEngine(make=search_results.one_culprit))

    assert done.stdout.startswith("swa (on → off) causes the drop: ")
    assert "measuring" in done.stderr
    assert "measuring" not in done.stdout
    assert ["1 reading in", "2 readings in"] == [
        part for part in ("1 reading in", "2 readings in", "3 readings in") if part in done.stderr
    ]


def test_json_is_for_programs() -> None:
    done = measure(FakeEngine(make=search_results.undecided), "--json")

    assert "inconclusive" == json.loads(done.stdout)["verdict"]
    assert 3 == done.return_value


@pytest.mark.parametrize(
    ("options", "expected"),
    [((), "1 launch of 60 s\nabout 2 minutes\n"), (("--json",), {"plan": ["1 launch of 60 s", "about 2 minutes"]})],
)
def test_a_dry_run_prints_the_plan_and_starts_nothing(options: tuple[str, ...], expected: object) -> None:
    done = measure(FakeEngine(make=lambda: pytest.fail("it was started")), "--dry-run", *options)

    assert 0 == done.return_value
    assert expected == (json.loads(done.stdout) if options else done.stdout)


def test_an_interrupted_search_says_how_to_go_on() -> None:
    done = measure(FakeEngine(interrupted=True))

    assert isinstance(done.exception, click.Abort)
    assert "flashprof bisect --resume goes on from here" in done.stderr


def store(reports: Path, request: BisectRequest, *, seed: int = 0) -> str:
    """Keep a request as a search would; the name of its folder."""
    question = SearchQuestion(kind=request.kind, good={"a": "1"}, bad={"a": "2"}, seed=seed)
    with open_search(reports, question, plan={}, request=request_to_json(request)) as folder:
        return folder.name


def test_resume_needs_no_other_option(tmp_path: Path) -> None:
    request = asked(*ENDS, "--seed", "3", "--fresh", "--budget", "20m", "--reports", "gone")
    store(tmp_path, request)

    assert replace(request, fresh=False, reports=tmp_path) == asked("--resume", "--reports", str(tmp_path))


def test_resume_takes_a_larger_budget_and_a_stricter_rule(tmp_path: Path) -> None:
    store(tmp_path, asked(*RANGE, "--budget", "20m", "--tolerance", "3%", "--", "x"))
    options = ("--budget", "40m", "--certainty", "99%", "--no-confirm")
    request = asked("--resume", "--reports", str(tmp_path), *options)

    assert SearchRule(certainty=0.99, tolerance=0.03, budget_s=2400.0) == request.rule
    assert not request.confirm


@pytest.mark.parametrize("by_path", [False, True])
def test_resume_may_name_a_search(tmp_path: Path, by_path: bool) -> None:
    first = store(tmp_path, asked(*RANGE, "--seed", "1", "--", "x"), seed=1)
    store(tmp_path, asked(*RANGE, "--seed", "2", "--", "x"), seed=2)
    where = (str(tmp_path / first),) if by_path else (first, "--reports", str(tmp_path))
    request = asked("--resume", "--search", *where)

    assert (1, tmp_path) == (request.subject.seed, request.reports)


def test_a_search_of_a_declared_trainer_goes_on_with_its_declaration(tmp_path: Path) -> None:
    declaration = tmp_path / "flashprof.toml"
    declaration.write_text(
        '[subject]\ncommand = ["python", "train.py"]\n[toggles.fast]\nhelp = "go"\non = { args = ["--fast"] }\n'
    )
    engine = FakeEngine()
    done = bisect(engine, "--good", "fast", "--bad", "none", "--subject", str(declaration))
    (request,) = engine.requests

    assert done.exception is None
    assert (("fast",), str(declaration)) == (request.under_test, request.subject_file)
    assert SubjectKind.FOREIGN is request.subject.kind
    assert tmp_path == engine.ports[0].cwd
    store(tmp_path, request)
    assert request == replace(asked("--resume", "--reports", str(tmp_path)), reports=request.reports)


WRONG: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((), ("nothing to bisect", "--resume", "try: flashprof bisect --good all --bad none")),
    (("--good", "all"), ("--bad is missing", "got: --good all")),
    (("--bad", "none"), ("--good is missing",)),
    (("--good", "", "--bad", "none"), ("--good is empty",)),
    (
        ("--good", "swa,compile", "--bad", "compile,swa"),
        ("good and bad are the same cell: ", "got: --good swa,compile"),
    ),
    (("--good", "swa", "--bad", "swaa"), ("'swaa'", "did you mean 'swa'")),
    (("--good", "queue=0", "--bad", "none"), ("does not take '0'", "1..64")),
    (("all", "none"), ("unknown command of bisect 'all'", "try: flashprof bisect --good all --bad none")),
    (("statsu",), ("did you mean 'status'",)),
    ((*ENDS, *RANGE), ("--good and --commits are two questions",)),
    ((*ENDS, "--setup", "make"), ("--setup is for a search among commits",)),
    ((*ENDS, "--repo", "."), ("--repo is for a search among commits",)),
    ((*ENDS, "--toggles", "swa"), ("--toggles is for a search among commits",)),
    ((*ENDS, "--tok-per-s", "x"), ("--tok-per-s is for a search among commits",)),
    ((*ENDS, "--", "python", "train.py"), ("a command behind --", "docs/foreign.md", "-- python train.py")),
    ((*RANGE, "--"), ("no command behind --",)),
    ((*RANGE, "--tok-per-s", "x"), ("--tok-per-s is for a command behind --",)),
    ((*RANGE, "--tok-per-s", "(", "--", "x"), ("regular expression",)),
    ((*RANGE, "--preset", "smollm2", "--", "x"), ("--preset is for our own pipeline",)),
    ((*RANGE, "--toggles", "swa", "--", "x"), ("--toggles is for our own pipeline",)),
    ((*RANGE, "--toggles", "swaa"), ("did you mean 'swa'",)),
    ((*RANGE, "--subject", "a.toml", "--", "x"), ("--subject and a command behind -- are two subjects",)),
    ((*RANGE, "--subject", "{tmp}/none.toml"), ("declaration cannot be read",)),
    (("--commits", "v1"), ("'v1' is no range", "two dots", "--commits v1..HEAD")),
    (("--commits", "..HEAD"), ("no range", "v1.0..HEAD")),
    (("--commits", "v1.."), ("no range",)),
    (("--commits", "v1...HEAD"), ("no range", "two dots")),
    (("--commits", "v1..v2..v3"), ("no range",)),
    (("--commits", "v1..v1"), ("the same commit: v1",)),
    ((*ENDS, "--set", "sampling.rate_hz=3"), ("does nothing in a search", "flashprof bisect --help")),
    ((*ENDS, "--set", "windows.num_measure=1"), ("windows.num_measure",)),
    ((*ENDS, "--budget", "soon"), ("--budget does not take 'soon'", "1.5h")),
    ((*ENDS, "--certainty", "20%"), ("--certainty does not take '20%'", "50 %")),
    ((*ENDS, "--certainty", "95"), ("written 95% or 0.95",)),
    ((*ENDS, "--gpus", "0,0"), ("named twice",)),
    ((*ENDS, "--train", "'x"), ("no command line",)),
    ((*ENDS, "--search", "bisect-1"), ("--search names a search that there is already", "--resume")),
    (("--resume", *ENDS), ("--bad does not go with --resume", "--bad --good", "without --resume")),
    (("--resume", "--fresh"), ("--fresh does not go with --resume",)),
    (("--resume", "--", "x"), ("-- does not go with --resume",)),
    (("--resume", "--search", "bisect-9"), ("unknown search 'bisect-9'", "allowed: bisect-")),
    (("--good", "all", "status"), ("status takes its options behind its name", "--help")),
    (("--good", "all", "--bad", "{tmp}/empty"), ("there is no finished run",)),
    (("--good", "{tmp}/on", "--bad", "{tmp}/bare"), ("does not say what its cell was",)),
    (("--good", "{tmp}/on", "--bad", "{tmp}/seed"), ("different subjects", "seed: 0 and 1")),
    (("--good", "{tmp}/on", "--bad", "none", "--seed", "5"), ("different subjects", "seed: 0 and 5")),
    (("--good", "{tmp}/both", "--bad", "none"), ("the runs of --good differ in their toggles",)),
    (("--good", "{tmp}/on", "--bad", "{tmp}/foreign"), ("different subjects",)),
    (("--good", "{tmp}/foreign", "--bad", "none"), ("a foreign trainer cannot be an end",)),
    (("--good", "{tmp}/toggleless", "--bad", "none"), ("has no toggles",)),
    (("--good", "{tmp}/unknown", "--bad", "none"), ("unknown toggle 'gone'",)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    (path / "empty").mkdir()
    run_folder(path / "on", {"swa": "on"})
    run_folder(path / "seed", {"swa": "off"}, seed=1)
    run_folder(path / "both" / "a", {"swa": "on"})
    run_folder(path / "both" / "b", {"swa": "off"})
    run_folder(path / "foreign", {"swa": "off"}, kind="foreign")
    run_folder(path / "toggleless", {})
    run_folder(path / "unknown", {"gone": "on"})
    bare = run_folder(path / "bare", {})
    (bare / "manifest.json").write_text('{"format": "flashprof-run", "version": 1, "outcome": "crashed"}')
    store(path / "reports", asked(*RANGE, "--", "x"))
    return path


@pytest.mark.parametrize(("args", "said"), WRONG)
def test_wrong_use_is_refused_with_a_way_out(args: tuple[str, ...], said: tuple[str, ...], folder: Path) -> None:
    engine = FakeEngine(make=lambda: pytest.fail("it was started"))
    words = [word.replace("{tmp}", str(folder)) for word in args]
    reports = ["--reports", str(folder / "reports")] if "--resume" in args else []
    place = words.index("--") if "--" in words else len(words)
    done = bisect(engine, *words[:place], *reports, *words[place:])

    assert isinstance(done.exception, FlashProfError)
    assert 2 == done.exception.exit_code
    assert [] == [part for part in said if part not in str(done.exception)]
    assert not any(word in str(done.exception) for word in ("Traceback", "None"))


def test_resume_without_a_search_says_how_to_begin(tmp_path: Path) -> None:
    for reports in (tmp_path, tmp_path / "none"):
        done = bisect(FakeEngine(), "--resume", "--reports", str(reports))

        assert isinstance(done.exception, FlashProfError)
        assert "there is no search yet" in str(done.exception)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from flashprof.cli.main import main; main()"
    )
    for args in (["--help"], ["here", "--help"], ["log", "--help"]):
        command = [sys.executable, "-c", code, "bisect", *args]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        imported = set(done.stdout.splitlines()[-1].split())

        assert set() == {"numpy", "pandas", "scipy", "pyarrow", "rich", "psutil", "torch"} & imported, args
        assert "Exit status" in done.stdout or "log" in args

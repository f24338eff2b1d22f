"""Which subject a search among commits is of: a declaration, a command, or our pipeline."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import search_results
from click.testing import CliRunner, Result

from flashprof.app.search_progress import SearchProgress
from flashprof.app.session import Ports
from flashprof.cli.main import flashprof
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import SubjectKind
from flashprof.contracts.search import SearchKind, SearchResult
from flashprof.contracts.search_request import BisectRequest, request_from_json, request_to_json

RANGE = ("--commits", "v1..HEAD")
NO_PACKAGE = 'packages = ["no-such-package"]'


class FakeEngine:
    """Answers at once, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[BisectRequest, Ports]] = []

    def plan(self, request: BisectRequest, ports: Ports) -> Sequence[str]:
        self.asked.append((request, ports))
        return ["1 launch of 60 s"]

    def bisect(self, request: BisectRequest, ports: Ports, progress: SearchProgress) -> SearchResult:
        self.asked.append((request, ports))
        progress.stage("measuring")
        return search_results.no_regression()


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    declare(tmp_path)
    return tmp_path


def declare(folder: Path, more: str = "") -> Path:
    path = folder / "flashprof.toml"
    toggle = '[toggles.fast]\nhelp = "go"\nneeds = ["cuda"]\non = { args = ["--fast"] }\noff = {}\n'
    path.write_text(f'[subject]\ncommand = ["{sys.executable}", "train.py"]\n{more}\n{toggle}')
    return path


def bisect(engine: FakeEngine, *args: str) -> Result:
    return CliRunner().invoke(flashprof, ["bisect", *RANGE, *args], obj=engine, standalone_mode=False)


def test_a_declaration_in_this_folder_is_the_subject_of_every_commit(engine: FakeEngine, tree: Path) -> None:
    done = bisect(engine, "--seed", "3", "--tok-per-s", "v=(.)")
    ((request, ports),) = engine.asked
    subject = request.subject

    assert done.exception is None
    assert (SearchKind.COMMITS, (), str(tree / "flashprof.toml")) == (
        request.kind,
        request.command,
        request.subject_file,
    )
    assert (SubjectKind.FOREIGN, "none", 3, "v=(.)") == (
        subject.kind,
        subject.toggles,
        subject.seed,
        subject.tok_per_s_pattern,
    )
    assert ["workload.declaration"] == [name for name, _ in subject.facts]
    assert tree == ports.cwd
    assert f"subject: {sys.executable} train.py (" in done.stderr
    assert request == request_from_json(json.loads(json.dumps(request_to_json(request))))


def test_a_dry_run_says_which_declaration_is_meant(engine: FakeEngine, tree: Path) -> None:
    done = bisect(engine, "--subject", str(tree / "flashprof.toml"), "--dry-run")

    assert f"subject   {sys.executable} train.py ({tree}/flashprof.toml)\n1 launch of 60 s\n" == done.stdout


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("words", "kind"),
    [(("--subject", "pipeline"), SubjectKind.PIPELINE), (("--", "python", "other.py"), SubjectKind.FOREIGN)],
)
def test_a_declaration_that_merely_lies_here_is_not_always_meant(
    engine: FakeEngine, words: tuple[str, ...], kind: SubjectKind
) -> None:
    done = bisect(engine, *words)
    ((request, _),) = engine.asked

    assert "subject: " not in done.stderr
    assert (kind, "") == (request.subject.kind, request.subject_file)
    assert (words[1:] if words[0] == "--" else ()) == request.command


@pytest.mark.parametrize(
    ("more", "args", "said"),
    [
        ("", ("--toggles", "fats"), "did you mean 'fast'"),
        ("", ("--toggles", "fast"), "toggle 'fast' needs a CUDA GPU"),
        ("", ("--preset", "smollm2"), "--preset is for our own pipeline"),
        ("", ("--tok-per-s", "("), "regular expression"),
        (NO_PACKAGE, (), "no-such-package"),
    ],
)
def test_what_cannot_be_had_is_refused_before_a_commit_is_checked_out(
    engine: FakeEngine, tree: Path, more: str, args: tuple[str, ...], said: str
) -> None:
    declare(tree, more)
    done = bisect(engine, *args)

    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert [] == engine.asked


@pytest.mark.parametrize("more", ['files = ["not/yet/there"]', NO_PACKAGE])
def test_files_and_packages_of_a_set_up_are_each_commits_own(engine: FakeEngine, tree: Path, more: str) -> None:
    declare(tree, more)
    done = bisect(engine, "--setup", "make env")

    assert done.exception is None
    assert 1 == len(engine.asked)

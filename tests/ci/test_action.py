"""action.yml: its steps in the shell that GitHub's runner would start, with a fake `flashprof` and `gh`."""

from __future__ import annotations

import json
import shlex
import shutil
import string
import sys
from pathlib import Path
from typing import Any

import gate_results
import pytest
import yaml
from ci_world import ROOT, SCRIPT, Machine, read_action
from gate_world import git
from hypothesis import given, settings
from hypothesis import strategies as st

from flashprof.report.gate_files import Format
from flashprof.report.gate_github import outputs

NONE = {"install": "none"}
MAIN = {**NONE, "base-ref": "main"}
HOSTILE = ('a"b', "it's", "$(touch bad)", "`touch bad`", "x; touch bad", "two\n::error::lines", "\\", "*", "-x")
TEXTS = ("base-ref", "setup", "tok-per-s", "baseline", "comment-key", "max-regression", "budget")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path).make()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One for many steps; `log` is that of the latest."""
    return Machine(tmp_path_factory.mktemp("shared")).make()


def example() -> dict[str, Any]:
    workflow = yaml.safe_load((ROOT / "examples/ci/github-gate.yml").read_text())
    steps = workflow["jobs"]["gate"]["steps"]
    return next(step for step in steps if "flashprof@" in step.get("uses", ""))


def test_each_input_is_described_and_used() -> None:
    action = read_action()
    used = json.dumps(action["runs"])

    assert [] == [name for name, told in action["inputs"].items() if not told["description"].endswith(".")]
    assert [] == [name for name in action["inputs"] if f"inputs.{name} " not in used]


def test_each_output_of_a_gate_is_one_of_the_action() -> None:
    told = read_action()["outputs"]

    assert {*outputs(gate_results.failed()), "files"} == set(told)
    assert {f"${{{{ steps.gate.outputs.{name} }}}}" for name in told} == {item["value"] for item in told.values()}


def test_no_shell_is_made_of_inputs() -> None:
    assert [] == [step["run"] for step in read_action()["runs"]["steps"] if "${{" in step.get("run", "")]


def test_the_example_gives_inputs_that_there_are(machine: Machine) -> None:
    given_inputs = {name: str(value) for name, value in example()["with"].items()}
    given_inputs = {**given_inputs, "bisect": "true", **MAIN}
    done = machine.step("Gate", given_inputs)

    assert set(given_inputs) <= set(read_action()["inputs"])
    assert 0 == done.returncode
    assert "train.py" in machine.asked()


def test_each_input_of_the_gate_becomes_an_option(machine: Machine) -> None:
    inputs = {
        **MAIN,
        "baseline": "nightly",
        "max-regression": "2%",
        "thresholds": "start-up=10%\n\n  phase:drafter mask=20%\n",
        "budget": "30m",
        "setup": "uv sync --frozen",
        "command": 'python train.py --name "two words"\n',
        "tok-per-s": r"tok/s=(\d+)$",
        "bisect": "true",
        "inconclusive": "pass",
        "comment-key": "h200",
        "options": "--toggles 'none' --fresh",
    }
    done = machine.step("Gate", inputs)

    assert 0 == done.returncode
    assert [
        *("gate", "--base-ref", "main", "--baseline", "nightly", "--max-regression", "2%", "--budget", "30m"),
        *("--setup", "uv sync --frozen", "--tok-per-s", r"tok/s=(\d+)$", "--inconclusive", "pass"),
        *("--comment-key", "h200", "--threshold", "start-up=10%", "--threshold", "  phase:drafter mask=20%"),
        *("--bisect", "--toggles", "none", "--fresh", "--", "python", "train.py", "--name", "two words"),
    ] == machine.asked()


def test_what_is_empty_is_left_to_the_command(machine: Machine) -> None:
    machine.step("Gate", MAIN)

    assert ["gate", "--base-ref", "main", "--max-regression", "3%", "--budget", "20m"] == machine.asked()


@pytest.mark.parametrize("text", HOSTILE)
def test_an_input_is_one_word_and_runs_nothing(machine: Machine, text: str) -> None:
    done = machine.step("Gate", {**MAIN, **dict.fromkeys(TEXTS, text), "thresholds": text.replace("\n", " ")})
    words = machine.asked()

    assert 0 == done.returncode
    assert dict.fromkeys(TEXTS, text) == {name: words[words.index(f"--{name}") + 1] for name in TEXTS}
    assert ["--threshold", text.replace("\n", " ")] == words[-2:]
    assert not (machine.repo / "bad").exists()


@settings(max_examples=20, deadline=None)
@given(words=st.lists(st.text(st.sampled_from(string.printable + "é✕"), max_size=8), max_size=4))
def test_words_of_a_command_reach_it_as_they_were_quoted(shared: Machine, words: list[str]) -> None:
    shared.step("Gate", {**MAIN, "command": shlex.join(["trainer", *words])})

    assert ["--", "trainer", *words] == shared.asked()[-2 - len(words) :]


def test_a_module_of_the_repository_is_not_asked_for_the_words(machine: Machine) -> None:
    (machine.repo / "shlex.py").write_text("split = lambda text: ['sh']\n")
    machine.step("Gate", {**MAIN, "command": "trainer 'a b'"})

    assert ["trainer", "a b"] == machine.asked()[-2:]


@pytest.mark.parametrize("text", ["trainer $(touch bad)", "trainer `touch bad`", "trainer > bad", "trainer; touch bad"])
def test_no_shell_reads_the_command(machine: Machine, text: str) -> None:
    machine.step("Gate", {**MAIN, "command": text})

    assert text.split() == machine.asked()[-len(text.split()) :]
    assert not (machine.repo / "bad").exists()


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 130])
def test_the_status_is_that_of_the_gate(machine: Machine, status: int) -> None:
    machine.env["FAKE_STATUS"] = str(status)

    assert status == machine.step("Gate", MAIN).returncode


def test_later_steps_find_the_texts(machine: Machine) -> None:
    machine.step("Gate", MAIN)
    told = machine.outputs()

    assert "fail" == told["verdict"]
    assert set(Format) == {path.name for path in Path(told["files"]).iterdir()}
    assert (machine.root / "temp") == Path(told["files"]).parent


@pytest.mark.parametrize(
    ("env", "event", "base"),
    [
        ({"GITHUB_BASE_REF": "main"}, {"github.event.before": "f" * 40}, "origin/main"),
        ({}, {"github.event.before": "HEAD~1"}, "HEAD~1"),
        ({}, {"github.event.merge_group.base_sha": "HEAD~1", "github.event.before": "f" * 40}, "HEAD~1"),
    ],
)
def test_the_base_is_what_the_event_says(
    machine: Machine, env: dict[str, str], event: dict[str, str], base: str
) -> None:
    machine.clone()
    machine.env.update(env)
    machine.step("Gate", NONE, event)

    assert ["--base-ref", base] == machine.asked()[1:3]


def test_a_branch_that_only_the_remote_has_is_found_there(machine: Machine) -> None:
    machine.clone()
    machine.step("Gate", MAIN)

    assert ["--base-ref", "origin/main"] == machine.asked()[1:3]


def test_a_baseline_needs_no_base(machine: Machine) -> None:
    machine.step("Gate", {**NONE, "baseline": "nightly"}, {"github.event.before": "HEAD~1"})

    assert ["gate", "--baseline", "nightly"] == machine.asked()[:3]


@pytest.mark.parametrize(
    "words", [("--depth", "1"), ("--depth", "1", "--no-single-branch"), ("--depth", "1", "--single-branch")]
)
def test_a_shallow_clone_is_refused_with_what_to_write(machine: Machine, words: tuple[str, ...]) -> None:
    machine.clone(*words)
    done = machine.step("Gate", MAIN)

    assert 2 == done.returncode
    assert "try: fetch-depth: 0" in done.stderr
    assert done.stdout.startswith("::error title=flashprof gate::this clone is shallow")
    assert not machine.log.exists()


def test_a_shallow_clone_that_reaches_far_enough_will_do(machine: Machine) -> None:
    machine.commit("another")
    git(machine.repo, "branch", "-f", "main", "HEAD~1")
    machine.clone("--depth", "2", "--no-single-branch")

    assert 0 == machine.step("Gate", MAIN).returncode


@pytest.mark.parametrize(
    ("inputs", "event", "said"),
    [
        (NONE, {}, "base-ref: main"),
        (NONE, {"github.event.before": "0" * 40}, "base-ref: main"),
        ({**MAIN, "bisect": "yes\n::notice::%0A"}, {}, "bisect: true"),
        ({**MAIN, "install": "conda"}, {}, "install: venv, python or none"),
        ({**MAIN, "command": 'python "train.py'}, {}, "close its quotes"),
        ({**MAIN, "options": "it's"}, {}, "close its quotes"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    machine: Machine, inputs: dict[str, str], event: dict[str, str], said: str
) -> None:
    done = machine.step("Gate", inputs, event)

    assert 2 == done.returncode
    assert f"  try: {said}\n" in done.stderr
    assert 1 == done.stdout.count("\n")
    assert done.stdout.count("%25") == done.stdout.count("%")
    assert done.stdout.startswith("::error title=flashprof gate::")
    assert not [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert not machine.log.exists()


def test_without_a_program_on_path_the_way_to_one_is_told(machine: Machine) -> None:
    (machine.root / "bin" / "flashprof").unlink()
    done = machine.step("Gate", MAIN)

    assert (2, True) == (done.returncode, "try: install: venv" in done.stderr)


def test_a_folder_that_git_does_not_know_is_refused(machine: Machine) -> None:
    shutil.rmtree(machine.repo / ".git")

    assert 2 == machine.step("Gate", MAIN).returncode


def test_what_fails_in_the_script_is_no_regression(machine: Machine) -> None:
    (machine.root / "temp").rmdir()

    assert 4 == machine.step("Gate", MAIN).returncode


def test_a_folder_of_the_checkout_can_be_measured(machine: Machine) -> None:
    (machine.repo / "lab").mkdir()
    machine.step("Gate", {**MAIN, "working-directory": "lab"})

    assert str(machine.repo / "lab") == json.loads(machine.log.read_text())["cwd"]


@pytest.mark.slow
def test_the_real_command_makes_its_plan_of_it(machine: Machine) -> None:
    source = "import sys\nsys.path.insert(0, sys.argv.pop(1))\nfrom flashprof.cli.main import main\nmain()\n"
    (machine.root / "real.py").write_text(source)
    real = machine.root / "bin" / "flashprof"
    real.write_text(f'#!/bin/sh\nexec {sys.executable} -P {machine.root}/real.py {ROOT} "$@"\n')
    inputs = {**MAIN, "thresholds": "start-up=10%\n", "command": f"{sys.executable} train.py", "options": "--dry-run"}
    done = machine.step("Gate", inputs)

    assert 0 == done.returncode
    assert "tok/s 3 %, start-up 10 %" in done.stdout
    assert "folder    reports/gate-" in done.stdout


def installed(machine: Machine) -> Path:
    """A copy of the action with a fake `scripts/install`."""
    scripts = machine.root / "action" / "scripts"
    scripts.mkdir(parents=True)
    shutil.copy(SCRIPT, scripts)
    program = scripts.parent / ".venv/bin/flashprof"
    made = f'mkdir -p {program.parent} && cp "$(command -v flashprof)" {program}'
    (scripts / "install").write_text(f'#!/bin/sh\necho "$PYTHON $*" >>{machine.root}/installed\n{made}\n')
    (scripts / "install").chmod(0o755)
    return scripts / SCRIPT.name


def test_an_environment_of_its_own_is_made_and_used(machine: Machine) -> None:
    script = installed(machine)
    env = {"GATE_PYTHON": "/opt/python3.12", "GATE_INSTALL": "venv"}
    done = machine.call(str(script), "install", cwd=machine.repo, env=env)
    machine.call(str(script), "gate", cwd=machine.repo, env={"GATE_BASE_REF": "main"})

    assert 0 == done.returncode
    assert "/opt/python3.12 -e .\n" == (machine.root / "installed").read_text()
    assert str(script.parents[1] / ".venv/bin/flashprof") == json.loads(machine.log.read_text())["program"]


def test_the_given_python_can_be_the_place(machine: Machine) -> None:
    place = machine.put("flashprof", "print('flashprof 1')").parent
    pip = f"import sys\nprint({str(place)!r} if '-c' in sys.argv else sys.argv[1:])\n"
    python = machine.put("python3.12", pip)
    done = machine.step("Install FlashProf", {"install": "python", "python": str(python)})

    assert 0 == done.returncode
    expected = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
    assert f"{expected}\nflashprof 1\n" == done.stdout


def test_an_installation_that_fails_is_no_regression(machine: Machine) -> None:
    machine.put("flashprof", "")
    python = machine.put("python3.12", "import sys\nsys.exit(1 if 'pip' in sys.argv else print('/usr/bin'))\n")
    done = machine.step("Install FlashProf", {"install": "python", "python": str(python)})

    assert 4 == done.returncode

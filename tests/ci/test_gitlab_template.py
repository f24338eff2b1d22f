"""templates/flashprof-gate.yml: inputs put in as GitLab does, its shell run, the reports where it says they are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ci_world import ROOT, SCRIPT, Machine
from gate_world import git

TEMPLATE = ROOT / "templates" / "flashprof-gate.yml"
PLACE = re.compile(r"\$\[\[ inputs\.([a-z-]+) \]\]")
ALLOWED = {
    "repository": "https://gitlab.example.com/a/b-c_d.git",
    "version": "v1.2.3",
    "base-ref": "origin/main~1",
    "max-regression": "0.03",
    "budget": "1.5h",
    "inconclusive": "fail",
}


def spec() -> dict[str, dict[str, Any]]:
    inputs: dict[str, dict[str, Any]] = next(yaml.safe_load_all(TEMPLATE.read_text()))["spec"]["inputs"]
    return inputs


def job(**inputs: Any) -> dict[str, Any]:
    """The job: inputs are put into the text, as JSON where they are no strings, and the text is parsed after that."""
    values = {name: told.get("default") for name, told in spec().items()} | inputs
    text = TEMPLATE.read_text().split("\n---\n")[1]

    def put(found: re.Match[str]) -> str:
        value = values[found[1]]
        return str(value).lower() if isinstance(value, bool) else str(value)

    (made,) = yaml.safe_load(PLACE.sub(put, text)).values()
    return made  # type: ignore[no-any-return]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """The project, and FlashProf's repository with this script and no more."""
    machine = Machine(tmp_path).make()
    tool = tmp_path / "tool"
    (tool / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPT, tool / "scripts")
    git(tool, "init", "-q", "-b", "main")
    git(tool, "add", "-A")
    git(tool, "commit", "-q", "-m", "one")
    return machine


def run(machine: Machine, made: dict[str, Any], **env: str) -> int:
    """`before_script` and `script` in one shell, as GitLab's runner starts them."""
    (machine.root / "job.sh").write_text("\n".join([*made["before_script"], *made["script"]]))
    told = {**made["variables"], "CI_PROJECT_DIR": str(machine.repo), **env}
    done = machine.call("bash", "-eo", "pipefail", str(machine.root / "job.sh"), cwd=machine.repo, env=told)
    return done.returncode


def local(machine: Machine, **inputs: Any) -> dict[str, Any]:
    return job(repository=(machine.root / "tool").as_uri(), install="none", **inputs)


def test_each_input_is_described_and_used() -> None:
    used = set(PLACE.findall(TEMPLATE.read_text()))

    assert set(spec()) == used
    assert [] == [name for name, told in spec().items() if not told["description"].endswith(".")]


def test_no_input_can_end_the_string_that_it_is_put_into() -> None:
    """GitLab's patterns have no slashes around them: https://gitlab.com/gitlab-org/gitlab/-/issues/458935."""
    texts = {name: told for name, told in spec().items() if "type" not in told and "options" not in told}

    for name, told in texts.items():
        assert re.search(told["regex"], ALLOWED.get(name, told.get("default", "x")))
        assert not [sign for sign in "\"'\\\n$#`{[;" if re.fullmatch(told["regex"], f"x{sign}y")], name


def test_values_with_signs_stay_what_they_are() -> None:
    variables = job(**ALLOWED)["variables"]

    assert {f"GATE_{name.upper().replace('-', '_')}": value for name, value in ALLOWED.items()}.items() <= (
        variables.items()
    )
    assert all(isinstance(value, str) for value in variables.values())
    assert ["a100", "big"] == job(repository="x", **{"runner-tags": ["a100", "big"]})["tags"]


def test_the_job_gates_and_leaves_its_reports(machine: Machine) -> None:
    made = local(machine, bisect=True, budget="5m")
    command = {"GATE_COMMAND": "trainer '$(touch bad)'", "GATE_THRESHOLDS": "start-up=10%\n", "GATE_SETUP": "uv sync"}
    status = run(machine, made, CI_MERGE_REQUEST_DIFF_BASE_SHA="HEAD~1", **command)

    assert 0 == status
    assert [
        *("gate", "--base-ref", "HEAD~1", "--max-regression", "3%", "--budget", "5m", "--setup", "uv sync"),
        *("--threshold", "start-up=10%", "--bisect", "--", "trainer", "$(touch bad)"),
    ] == machine.asked()
    assert all((machine.repo / path).is_file() for path in made["artifacts"]["reports"].values())
    assert not (machine.repo / "bad").exists()


def test_the_base_is_what_the_merge_request_is_merged_with(machine: Machine) -> None:
    target = {"CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "main", "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD"}
    run(machine, local(machine), CI_COMMIT_BEFORE_SHA="f" * 40, **target)

    assert ["--base-ref", "main"] == machine.asked()[1:3]


@pytest.mark.parametrize("status", [0, 1, 2, 3, 4, 130])
def test_the_status_is_that_of_the_gate(machine: Machine, status: int) -> None:
    machine.env["FAKE_STATUS"] = str(status)

    # `gate-ci install` asks for the version, with the same status.
    made = {**local(machine), "before_script": local(machine)["before_script"][:2]}
    assert status == run(machine, made, CI_COMMIT_BEFORE_SHA="HEAD~1")


def test_only_an_open_answer_is_a_warning() -> None:
    made = job(repository="x")

    assert {"exit_codes": [3]} == made["allow_failure"]
    assert "always" == made["artifacts"]["when"]


def test_a_second_job_on_the_same_folder_clones_anew(machine: Machine) -> None:
    made = local(machine)
    statuses = [run(machine, made, CI_COMMIT_BEFORE_SHA="HEAD~1") for _ in range(2)]

    assert [0, 0] == statuses
    assert (machine.root / "repo.flashprof").is_dir()


def test_a_version_that_is_not_there_is_no_regression(machine: Machine) -> None:
    assert 1 < run(machine, local(machine, version="v9"), CI_COMMIT_BEFORE_SHA="HEAD~1")


def test_the_example_fits_the_template() -> None:
    example = yaml.safe_load((ROOT / "examples/ci/gitlab-gate.yml").read_text())
    (include,) = example["include"]
    made = job(**include["inputs"])

    assert set(include["inputs"]) <= set(spec())
    assert include["component"].endswith(f"/{TEMPLATE.stem}@{include['inputs']['version']}")
    assert spec()["job-name"]["default"] in example
    assert ["gpu-h200"] == made["tags"]


def test_every_page_and_example_names_the_same_version() -> None:
    files = ("README.md", "docs/ci.md", "examples/ci/github-gate.yml", "examples/ci/gitlab-gate.yml")
    told = {
        name: set(re.findall(r"flashprof(?:-gate)?@([\w.-]+)", (ROOT / name).read_text(encoding="utf-8")))
        for name in files
    }

    assert {name: {spec()["version"]["default"]} for name in files} == told

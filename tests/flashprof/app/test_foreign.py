"""A declared subject is launched with what its toggles say; its toggles and files become facts of the cell."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from declared import CONFIG, DECLARATION, declare, write_declaration
from fake_world import PLAN, FakeClock, FakeLauncher, FakeProgress, Script

from flashprof.app.foreign import (
    DeclaredLauncher,
    at_values,
    declared_ports,
    declared_spec,
    file_facts,
    foreign_launch,
)
from flashprof.app.launches import StudyLaunches
from flashprof.app.log_readings import DEFAULT_PATTERN
from flashprof.app.run import run
from flashprof.app.session import Ports
from flashprof.contracts.comparison import Arm, DecisionRule
from flashprof.contracts.errors import UsageError
from flashprof.contracts.experiment import Experiment, Output, Sampling, SubjectKind
from flashprof.contracts.foreign import ForeignSubject
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.study import ArmSpec, CompareRequest
from flashprof.decide.actions import LaunchCold
from flashprof.decide.observations import ColdLaunch
from flashprof.store.run_folder import read_manifest


@pytest.fixture
def subject(tmp_path: Path) -> ForeignSubject:
    folder = tmp_path / "trainer"
    folder.mkdir()
    return declare(folder)


@pytest.fixture
def launcher() -> FakeLauncher:
    return FakeLauncher(Script(emits=False, load_s=1.0), FakeClock(), [])


@pytest.fixture
def ports(launcher: FakeLauncher, tmp_path: Path) -> Ports:
    return Ports(
        clock=launcher.clock,
        launcher=launcher,
        samplers=(),
        find_targets=lambda watch, pid: (),
        env={"PATH": "/bin"},
        cwd=tmp_path,
    )


def test_arguments_go_where_the_command_says_and_variables_are_added(subject: ForeignSubject, tmp_path: Path) -> None:
    command, variables = foreign_launch(subject, subject.parse("flash,workers=2,buckets"), tmp_path / "run")

    copy = tmp_path / "run" / "config" / "1" / "conf.yaml"
    start = ("python", "train.py", "--config", str(copy))
    assert (*start, "--attn", "flash", "--num-workers=2", "--last") == command
    assert {"MODE": "quiet", "LEVEL": "3", "BUCKET_MB": "100"} == variables


def test_without_a_place_for_them_arguments_go_to_the_end(tmp_path: Path) -> None:
    subject = declare(tmp_path, '[subject]\ncommand = ["t", "x"]\n[toggles.a]\non = {args = ["--a", "b c"]}\n')

    assert ("t", "x", "--a", "b c") == foreign_launch(subject, {"a": True}, tmp_path)[0]
    assert ("t", "x") == foreign_launch(subject, {"a": False}, tmp_path)[0]


def test_every_launch_gets_a_copy_of_the_config_file(subject: ForeignSubject, tmp_path: Path) -> None:
    contents = {}
    for expression in ("none", "kind"):
        command, _ = foreign_launch(subject, subject.parse(expression), tmp_path / expression)
        contents[expression] = yaml.safe_load(Path(command[3]).read_text())

    assert yaml.safe_load(CONFIG) == contents["none"]
    assert "flash" == contents["kind"]["model"]["attn"]
    assert [{"kind": "a"}, {"kind": 7}] == contents["kind"]["model"]["layers"]
    assert CONFIG == (subject.cwd / "conf.yaml").read_text()


def test_two_files_of_one_name_are_two_copies(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "conf.yaml").write_text("workers: 0\n")
    edit = 'edit = {{file = "{}conf.yaml", key = "workers", value = {}}}'
    subject = declare(
        tmp_path,
        '[subject]\ncommand = ["t", "a={file:conf.yaml}", "${file}", "{file:sub/conf.yaml}"]\n'
        f"[toggles.a]\non = {{{edit.format('', 1)}}}\n[toggles.b]\non = {{{edit.format('sub/', 2)}}}\n",
    )
    command, _ = foreign_launch(subject, subject.parse("all"), tmp_path / "run")

    assert "${file}" == command[2]
    assert 1 == yaml.safe_load(Path(command[1].removeprefix("a=")).read_text())["workers"]
    assert 2 == yaml.safe_load(Path(command[3]).read_text())["workers"]


def test_a_subject_without_a_pattern_is_still_waited_for(tmp_path: Path) -> None:
    subject = declare(tmp_path, '[subject]\ncommand = ["t"]\n[toggles.a]\non = {args = ["x"]}\n')
    spec = declared_spec(subject, "a")

    assert (SubjectKind.FOREIGN, ("t",), "a") == (spec.kind, spec.command, spec.toggles)
    assert DEFAULT_PATTERN == spec.tok_per_s_pattern
    assert "x=(.)" == declared_spec(subject, "a", pattern="x=(.)").tok_per_s_pattern


def test_an_experiment_knows_its_files_before_a_launch(subject: ForeignSubject) -> None:
    assert file_facts(subject) == dict(declared_spec(subject, "none").facts)


def test_files_are_facts_by_their_content(subject: ForeignSubject) -> None:
    before = file_facts(subject)
    (subject.cwd / "train.py").write_text("print('tok/s=2')\n")
    after = file_facts(subject)

    assert {"workload.declaration", "workload.file.train.py", "workload.file.conf.yaml"} == set(before)
    assert {"workload.file.train.py"} == {name for name in before if before[name] != after[name]}


def test_a_run_has_the_toggles_and_files_as_facts_and_keeps_what_was_launched(
    subject: ForeignSubject, ports: Ports, launcher: FakeLauncher, tmp_path: Path
) -> None:
    reports = tmp_path / "reports"
    experiment = Experiment(
        subject=declared_spec(subject, "flash,kind"),
        windows=PLAN,
        sampling=Sampling(stacks="off", resources="off"),
        output=Output(reports=reports, run_id="one"),
    )
    summary = run(experiment, declared_ports(ports, subject, "flash,kind"), FakeProgress())
    facts = read_manifest(reports / "one")["cell_facts"]
    events = (reports / "one" / "events" / "declaration-0.jsonl").read_text()

    assert (Outcome.COMPLETED, "log") == (summary.outcome, summary.counted_by)
    assert "flash,kind" == summary.cell["toggles"]
    assert summary.tok_per_s is not None
    assert summary.tok_per_s.estimate == pytest.approx(10_000, rel=0.01)
    assert ("on", "on", "off", "0") == tuple(facts[f"toggles.{name}"] for name in ("flash", "kind", "cudnn", "workers"))
    assert subject.fingerprint == facts["workload.declaration"]
    assert " ".join(subject.command) == facts["workload.command"]
    assert launcher.spec is not None
    assert (subject.cwd, "3") == (launcher.spec.cwd, launcher.spec.env["LEVEL"])
    assert json.dumps(list(launcher.spec.command)) in re.sub(r'", ?"', '", "', events)
    assert "kind: 7" in (reports / "one" / "config" / "1" / "conf.yaml").read_text()


@pytest.mark.parametrize(("arm", "word"), [(Arm.BASE, "eager"), (Arm.CANDIDATE, "flash")])
def test_a_study_launches_each_arm_with_its_toggles(
    subject: ForeignSubject, ports: Ports, launcher: FakeLauncher, *, arm: Arm, word: str
) -> None:
    base, candidate = (ArmSpec(expression=text, values=subject.parse(text)) for text in ("none", "flash"))
    request = CompareRequest(
        base=base,
        candidate=candidate,
        cold_toggles=("flash",),
        subject=declared_spec(subject, "none"),
        windows=PLAN,
        rule=DecisionRule(),
        reports=ports.cwd / "reports",
    )
    launches = StudyLaunches(
        request=request,
        ports=declared_ports(ports, subject),
        progress=FakeProgress(),
        folder=request.reports,
    )
    found = launches.cold(LaunchCold(arm=arm, block=1, attempt=1, site="here"))

    assert isinstance(found, ColdLaunch)
    assert launcher.spec is not None
    assert word == launcher.spec.command[launcher.spec.command.index("--attn") + 1]


def test_an_edit_that_has_become_impossible_leaves_no_run_behind(
    subject: ForeignSubject, ports: Ports, tmp_path: Path
) -> None:
    (subject.cwd / "conf.yaml").write_text("other: 1\n")
    experiment = Experiment(
        subject=declared_spec(subject, "kind"), windows=PLAN, output=Output(reports=tmp_path / "reports", run_id="one")
    )
    with pytest.raises(UsageError, match="unknown key of conf"):
        run(experiment, declared_ports(ports, subject, "kind"), FakeProgress())

    assert [] == list((tmp_path / "reports").iterdir())


def test_values_change_only_what_is_declared(subject: ForeignSubject, ports: Ports) -> None:
    declared = declared_ports(ports, subject)
    changed = at_values(declared, subject.parse("flash")).launcher

    assert ports == at_values(ports, {"swa": True})
    assert isinstance(changed, DeclaredLauncher)
    assert True is changed.values["flash"]
    assert replace(changed, values=subject.parse("none")) == declared.launcher


def test_a_word_that_is_no_file_name_is_no_fact(tmp_path: Path) -> None:
    text = DECLARATION.replace('"--last"', f'"{"x" * 5000}"')
    write_declaration(tmp_path, text)

    assert "workload.file.train.py" in file_facts(declare(tmp_path, text))

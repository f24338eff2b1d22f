"""The facts of a cell: everything that can change the speed, nothing that changes by itself from launch to launch."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashprof.app.cells import build_cell, known_before_launch, manifest_entries, site_of, survey
from flashprof.contracts.cell import SECTIONS, Cell, refuse_unlike
from flashprof.contracts.errors import UsageError
from flashprof.contracts.events import EventLog, Header, Mark, Step
from flashprof.contracts.experiment import Experiment, Output, SubjectKind, SubjectSpec
from flashprof.contracts.toggles import Toggle

REGISTRY = (Toggle(name="swa", help="."), Toggle(name="queue", help=".", default=1, on=8, minimum=1))
SAID = {"workload.num_threads": "2", "versions.cuda": "12.8", "machine.host": "liar", "tree": "/src", "pid": "77"}


def experiment(**changes: Any) -> Experiment:
    subject = SubjectSpec(command=("python", "-m", "pipeline"), preset="tiny", seed=0, toggles="swa")
    return Experiment(subject=replace(subject, **changes), output=Output(reports=Path("/data/reports")))


def machine(**changes: Any) -> dict[str, Any]:
    """As `survey` gives it, of a host with two GPUs."""
    gpus = [{"index": str(i), "name": "H200", "uuid": f"GPU-{i}", "driver": "570.86"} for i in range(2)]
    told: dict[str, Any] = {
        "host": "box",
        "system": "Linux-6.1-glibc2.36",
        "kernel": "6.1",
        "cpu": "EPYC",
        "num_cores": 16,
        "memory_gib": 128.0,
        "governor": None,
        "max_cpu_clock_khz": None,
        "gpus": gpus,
        "python": "3.12.3",
        "versions": {"flashprof-dflash": "0.1.0", "torch": "2.11.0", "triton": None, "psutil": "7.2"},
        "env": {"OMP_NUM_THREADS": "1"},
        "cwd": "/home/me",
        "source": {"tree": "/src", "commit": "aaaa", "dirty": "d1"},
    }
    return told | changes


def events(rank: int = 0, **marks: dict[str, Any]) -> EventLog:
    header = Header(role="dispatcher", rank=rank, host="box", pid=1, trains=False, wall_ns=0, monotonic_ns=0)
    return EventLog(header=header, marks=[Mark(name, 1, detail) for name, detail in marks.items()])


def known(told: dict[str, Any] | None = None, **changes: Any) -> Cell:
    return known_before_launch(experiment(**changes), told or machine(), REGISTRY)


def test_every_section_has_its_facts_before_the_launch() -> None:
    facts = known().facts

    assert set(SECTIONS) == {name.partition(".")[0] for name in facts}
    assert ("box", "GPU-1", "570.86") == tuple(facts[f"machine.{n}"] for n in ("host", "gpu.1.uuid", "gpu.0.driver"))
    assert ("aaaa", "d1", "1+1") == tuple(facts[name] for name in ("source.commit", "source.dirty", "topology"))
    assert ("on", "1") == (facts["toggles.swa"], facts["toggles.queue"])
    assert all(isinstance(text, str) for text in facts.values())


def test_what_is_not_known_is_no_fact() -> None:
    facts = known(machine(source={})).facts

    assert not {"machine.governor", "versions.triton", "source.commit", "versions.psutil"} & set(facts)


@pytest.mark.parametrize(
    ("candidate", "name"),
    [
        (known(seed=1), "workload.seed"),
        (known(preset="smollm2"), "workload.preset"),
        (known(topology="2+1"), "topology"),
        (known(train_options=("--accumulate", "2")), "workload.train_options"),
        (known(machine(host="crate")), "machine.host"),
        (known(machine(kernel="6.8")), "machine.kernel"),
        (known(machine(gpus=machine()["gpus"][::-1])), "machine.gpu.0.uuid"),
        (known(machine(versions={**machine()["versions"], "torch": "2.13.0"})), "versions.torch"),
        (known(machine(source={"commit": "bbbb"})), "source.commit"),
        (known(machine(env={"OMP_NUM_THREADS": "2"})), "env.OMP_NUM_THREADS"),
        (known(machine(env={"LD_PRELOAD": "libjemalloc.so"})), "env.LD_PRELOAD"),
    ],
)
def test_two_runs_that_differ_are_refused_unless_that_is_allowed(candidate: Cell, name: str) -> None:
    differences = known().differences(candidate)
    with pytest.raises(UsageError, match="differ in more") as refused:
        refuse_unlike(differences, under_test=("toggles.*",), allowed=())

    assert name in str(refused.value.offered)
    refuse_unlike(differences, under_test=("toggles.*",), allowed=[name.partition(".")[0]])


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONPATH": "/trees/a"},
        {"TORCHINDUCTOR_CACHE_DIR": "/cache/a"},
        {"TORCHELASTIC_RUN_ID": "77"},
        {"PYTHONUNBUFFERED": "1"},
        {"TORCH_TRACE": "/data/reports/run-a/trace"},
    ],
)
def test_variables_that_differ_from_run_to_run_are_no_facts(env: dict[str, str]) -> None:
    assert known().hash == known(machine(env={"OMP_NUM_THREADS": "1", **env})).hash


@pytest.mark.parametrize("options", [("--checkpoints", "/b", "--lr", "1"), ("--checkpoints=/c", "--lr", "1")])
def test_folders_of_a_run_are_no_facts_but_that_it_saves_is(options: tuple[str, ...]) -> None:
    assert "--checkpoints --lr 1" == known(train_options=options).facts["workload.train_options"]


def test_toggles_count_as_they_were_applied() -> None:
    logs = [events(toggles={"values": {"swa": False, "queue": 4}, "refused": {"swa": "needs CUDA"}})]
    facts = build_cell(experiment(), machine(), logs).facts

    assert ("off", "4") == (facts["toggles.swa"], facts["toggles.queue"])


def test_the_subject_speaks_of_its_workload_and_libraries_and_of_nothing_else() -> None:
    logs = [events(1, cell={"workload.num_threads": "9"}), events(0, cell=SAID)]
    cell = build_cell(experiment(), machine(), logs)

    assert ("2", "12.8", "box") == tuple(
        cell.facts[name] for name in ("workload.num_threads", "versions.cuda", "machine.host")
    )
    assert not {"pid", "tree"} & set(cell.facts)
    assert "aaaa" == cell.facts["source.commit"]


def test_a_subject_that_runs_from_another_tree_is_of_that_trees_commit(tmp_path: Path) -> None:
    (tmp_path / "COMMIT").write_text("cccc\n")
    facts = build_cell(experiment(), machine(), [events(cell={"tree": str(tmp_path)})]).facts

    assert ("cccc", None) == (facts["source.commit"], facts.get("source.dirty"))


def test_a_subject_that_says_nothing_is_what_was_known() -> None:
    assert known().without("toggles").hash == build_cell(experiment(), machine(), []).hash


def test_a_foreign_trainer_is_its_command_its_folder_and_its_own_libraries() -> None:
    told = machine(source={"tree": "/t", "commit": "eeee", "versions": {"python": "3.10", "torch": "2.4.0"}})
    facts = known(told, kind=SubjectKind.FOREIGN, command=("torchrun", "a.py")).facts

    assert ("torchrun a.py", "/home/me") == (facts["workload.command"], facts["workload.cwd"])
    assert {"versions.python": "3.10", "versions.torch": "2.4.0", "versions.flashprof-dflash": "0.1.0"} == {
        name: text for name, text in facts.items() if name.startswith("versions.")
    }
    assert not {"topology", "workload.preset", "toggles.swa"} & set(facts)


def test_the_manifest_keeps_the_facts_and_what_finds_the_run_again() -> None:
    log = events(cell=SAID)
    log.steps += [Step(i, 10**9 * at_s, 1, 1, 0) for i, at_s in enumerate((1, 2, 5, 6))]
    log.header = replace(log.header, trains=True)
    entries = manifest_entries(experiment(), machine(), [log])
    other = manifest_entries(experiment(toggles="none"), machine(), [events(toggles={"values": {"swa": False}})])

    assert Cell(entries["cell_facts"]).hash == entries["cell_hash"] != other["cell_hash"]
    assert known().without("toggles").hash == entries["cell_known_hash"] == other["cell_known_hash"]
    assert (3.0, None) == (entries["longest_silence_s"], other["longest_silence_s"])


def test_a_site_is_a_host_and_its_gpus() -> None:
    assert "box GPU-0 GPU-1" == site_of(known())
    assert "box" == site_of(known(machine(gpus=[])))


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_two_looks_at_this_machine_find_the_same_cell(tmp_path: Path) -> None:
    cells = [known_before_launch(experiment(), survey(experiment(), {"OMP_NUM_THREADS": "1"}, tmp_path)) for _ in "ab"]

    assert () == cells[0].differences(cells[1])
    assert {"machine.host", "machine.cpu", "versions.torch", "versions.python", "env.OMP_NUM_THREADS"} <= set(
        cells[0].facts
    )

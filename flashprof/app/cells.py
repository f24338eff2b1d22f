"""What FlashProf, the machine and the subject itself say of a launch, as the facts of its cell (docs/adr/0009)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flashprof.app.earlier import longest_silence_s
from flashprof.app.machine import full_machine
from flashprof.app.source import describe_tree, find_source
from flashprof.contracts.cell import Cell
from flashprof.contracts.events import EventLog
from flashprof.contracts.experiment import Experiment, SubjectKind
from flashprof.contracts.toggles import Toggle, Value, format_value, parse_toggles

MACHINE_FACTS = ("host", "kernel", "cpu", "num_cores", "memory_gib", "governor", "max_cpu_clock_khz")
NO_CAUSE = ("py-spy", "psutil")
"""Packages that are not there in measure windows."""
NO_FACTS = (
    "PYTHONUNBUFFERED",
    "PYTHONPATH",
    "PYTHONHISTFILE",
    "PYTHON_HISTORY",
    "PYTHONSTARTUP",
    "PYTHONPYCACHEPREFIX",
    "PYTHONUSERBASE",
    "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "NCCL_DEBUG_FILE",
)
"""Variables that say where something is kept: two trees, or two runs, differ in them and run the same. The first one
FlashProf sets itself."""
RUN_PREFIXES = ("TORCHELASTIC_",)
"""Names and counters of one launch."""
PLACE_OPTIONS = ("--checkpoints", "--cache", "--tensorboard")
"""Of our pipeline's `train`: that they are given is a fact, the folder is not."""
SUBJECT_SECTIONS = ("workload", "versions")
"""What the subject's mark `cell` may speak of."""


def survey(experiment: Experiment, env: Mapping[str, str], cwd: Path) -> dict[str, Any]:
    """The machine and the subject's source, as the manifest keeps them: taken once, before the launch."""
    source = find_source(experiment.subject, env, cwd)
    return {**full_machine(env), "cwd": str(cwd), "source": source}


def known_before_launch(experiment: Experiment, machine: Mapping[str, Any], registry: Sequence[Toggle] = ()) -> Cell:
    """
    The part of the cell that needs no launch: enough to refuse early, and to find earlier runs.

    Args:
        experiment: What is going to be measured.
        machine: From `survey`.
        registry: The subject's toggles; with it, every toggle is a fact, as it was asked for.
    """
    subject = experiment.subject
    facts = {**_machine_facts(machine), **_env_facts(machine, experiment.output.reports)}
    if subject.kind is SubjectKind.FOREIGN:
        source = machine["source"]
        versions = {**source.get("versions", {}), "flashprof-dflash": machine["versions"]["flashprof-dflash"]}
        facts["workload.command"] = " ".join(subject.command)
        facts["workload.cwd"] = machine["cwd"]
        facts |= dict(subject.facts)
    else:
        versions = {"python": machine["python"], **machine["versions"]}
        facts["workload.preset"] = subject.preset
        facts["workload.seed"] = str(subject.seed)
        facts["workload.train_options"] = " ".join(_without_places(subject.train_options)) or "none"
        facts["topology"] = subject.topology
        facts |= toggle_facts(parse_toggles(subject.toggles, registry) if registry else {})
    facts |= {f"versions.{name}": text for name, text in versions.items() if text and name not in NO_CAUSE}
    return Cell(facts | _source_facts(machine["source"]))


def build_cell(experiment: Experiment, machine: Mapping[str, Any], logs: Sequence[EventLog]) -> Cell:
    """
    All facts of a launch: what was known before, corrected and completed by what the subject says of itself.

    Args:
        experiment: What was measured.
        machine: From `survey`, before the launch.
        logs: The launch's events; the marks `cell` and `toggles` of the first process that has them count.
    """
    facts = dict(known_before_launch(experiment, machine).facts)
    said = _mark(logs, "cell")
    facts |= {name: str(value) for name, value in said.items() if name.partition(".")[0] in SUBJECT_SECTIONS}
    facts |= toggle_facts(_mark(logs, "toggles").get("values", {}))
    tree = said.get("tree")
    if tree is not None and tree != machine["source"].get("tree"):
        # It runs from elsewhere than a look from outside could tell.
        facts = {name: text for name, text in facts.items() if not name.startswith("source.")}
        facts |= _source_facts(describe_tree(Path(tree)))
    return Cell(facts)


def manifest_entries(experiment: Experiment, machine: Mapping[str, Any], logs: Sequence[EventLog]) -> dict[str, Any]:
    """What a launch's manifest says of its cell once it has ended, and `find_earlier` reads."""
    cell = build_cell(experiment, machine, logs)
    return {
        "cell_facts": dict(sorted(cell.facts.items())),
        "cell_hash": cell.hash,
        # Without a registry no toggle is a fact: runs of all toggles are found together.
        "cell_known_hash": known_before_launch(experiment, machine).hash,
        "longest_silence_s": longest_silence_s(logs),
    }


def site_of(cell: Cell) -> str:
    """Host and GPU set in one text: what a block must not span two of."""
    uuids = [text for name, text in sorted(cell.facts.items()) if name.endswith(".uuid")]
    return " ".join([cell.facts.get("machine.host", "unknown host"), *uuids])


def _machine_facts(machine: Mapping[str, Any]) -> dict[str, str]:
    facts = {f"machine.{name}": str(machine[name]) for name in MACHINE_FACTS if machine[name] is not None}
    for number, gpu in enumerate(machine["gpus"]):
        facts |= {f"machine.gpu.{number}.{name}": text for name, text in gpu.items()}
    return facts


def _env_facts(machine: Mapping[str, Any], reports: Path) -> dict[str, str]:
    run_folders = str(reports.resolve())
    return {
        f"env.{name}": text
        for name, text in machine["env"].items()
        if name not in NO_FACTS and not name.startswith(RUN_PREFIXES) and run_folders not in text
    }


def _source_facts(source: Mapping[str, Any]) -> dict[str, str]:
    return {f"source.{name}": source[name] for name in ("commit", "dirty") if name in source}


def toggle_facts(values: Mapping[str, Value]) -> dict[str, str]:
    """Every toggle as one fact."""
    return {f"toggles.{name}": format_value(value) for name, value in values.items()}


def _without_places(options: Sequence[str]) -> Iterator[str]:
    """`--checkpoints DIR --lr 1e-3` → `--checkpoints --lr 1e-3`."""
    is_place = False
    for word in options:
        if not is_place:
            name, equals, _ = word.partition("=")
            is_place = name in PLACE_OPTIONS and not equals
            yield name if name in PLACE_OPTIONS else word
        else:
            is_place = False


def _mark(logs: Sequence[EventLog], name: str) -> dict[str, Any]:
    """The detail of the first such mark; on several hosts, of the host that leads."""
    for log in sorted(logs, key=lambda log: log.header.rank):
        for mark in log.marks:
            if mark.name == name:
                return mark.detail
    return {}

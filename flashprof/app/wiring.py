"""Name → implementation: the one place where plug points are filled."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flashprof.app.foreign import declared_ports
from flashprof.app.session import Ports
from flashprof.app.subject import find_targets
from flashprof.contracts.errors import ToolError
from flashprof.contracts.experiment import Experiment, Sampling, SubjectSpec, WindowPlan
from flashprof.contracts.ports import Clock, Sampler
from flashprof.launch.process import ProcessLauncher
from flashprof.sample.counters import SystemMeter
from flashprof.sample.nvml import NvmlGpus, open_nvml
from flashprof.sample.pidstat import PidstatSampler
from flashprof.sample.pyspy import PySpySampler, can_trace
from flashprof.sample.schedstat import SchedstatSampler
from flashprof.store.subject_file import read_subject


class SystemClock:
    """The host's own."""

    def monotonic_ns(self) -> int:
        """As `time.monotonic_ns`, the clock of all events."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`."""
        time.sleep(seconds)


def wire(experiment: Experiment, env: Mapping[str, str], cwd: Path) -> Ports:
    """
    Everything that this experiment needs of the outside world.

    Raises:
        ToolError: A sampler that was asked for by name cannot be had; `auto` falls back and leaves a note.
    """
    clock = SystemClock()
    notes: list[str] = []
    found = (_stack_sampler(experiment.sampling, notes), _resource_sampler(experiment.sampling, clock, notes))
    return Ports(
        clock=clock,
        launcher=ProcessLauncher(),
        samplers=[sampler for sampler in found if sampler is not None],
        find_targets=find_targets,
        env=env,
        cwd=cwd,
        notes=notes,
        meter=SystemMeter(clock, gpus=NvmlGpus(open_nvml())),
    )


def _stack_sampler(sampling: Sampling, notes: list[str]) -> Sampler | None:
    if sampling.stacks == "off":
        return None
    refusal = can_trace(blocking=sampling.blocking)
    if refusal is None:
        return PySpySampler(sampling.rate_hz, sampling.blocking)
    if sampling.stacks == "pyspy":
        raise ToolError(f"py-spy may not trace: {refusal}", next_command="flashprof doctor")
    notes.append(f"no stacks, no flamegraph: {refusal}")
    return None


def _resource_sampler(sampling: Sampling, clock: Clock, notes: list[str]) -> Sampler | None:
    if sampling.resources == "off":
        return None
    if sampling.resources == "schedstat":
        return SchedstatSampler(clock)
    if shutil.which("pidstat") is not None:
        return PidstatSampler()
    if sampling.resources == "pidstat":
        remedy = "apt-get install sysstat, or --set sampling.resources=auto"
        raise ToolError("pidstat is not installed", next_command=remedy)
    notes.append("pidstat is not installed: thread CPU comes from /proc instead (apt-get install sysstat)")
    return SchedstatSampler(clock)


def wire_quiet(
    subject: SubjectSpec, windows: WindowPlan, *, env: Mapping[str, str], cwd: Path, declared: str = ""
) -> Ports:
    """
    The world outside with samplers for what explains a verdict, and none for what it is read from (design §4.1).

    Args:
        subject: What is measured.
        windows: How.
        env: FlashProf's own environment.
        cwd: Where the user is.
        declared: File that declares the subject; empty for our pipeline, or for a command.

    Raises:
        UsageError: The declaration is wrong.
    """
    sampling = Sampling(stacks="off", resources="off")
    ports = wire(Experiment(subject=subject, windows=windows, sampling=sampling), env, cwd)
    profilers = wire(Experiment(subject=subject, windows=windows), env, cwd).samplers
    ports = replace(ports, profilers=profilers)
    return declared_ports(ports, read_subject(Path(declared))) if declared else ports

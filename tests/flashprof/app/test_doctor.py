"""The doctor says what is wrong with a machine, and how to mend it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flashprof.app import doctor
from flashprof.app.doctor import GIB, Finding, Machine, Status, cpu_quota, examine

HEALTHY_FILES = {
    "/proc/loadavg": "0.10 0.20 0.30 1/90 4242\n",
    "/proc/pressure/cpu": "some avg10=0.50 avg60=0.38 avg300=0.33 total=68\nfull avg10=0.00 avg60=0.00 total=0\n",
    "/proc/meminfo": "MemTotal: 24000000 kB\nMemAvailable:   16777216 kB\n",
    "/proc/self/cgroup": "0::/job\n",
    "/sys/fs/cgroup/job/cpu.max": "max 100000\n",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
}
PYTHON = Path(sys.executable).name
TORCH_CPU = json.dumps(["2.13.0+cpu", None, []])


def always(value: Any) -> Callable[[Path | str], Any]:
    """A function of a path that has one answer."""
    return lambda _: value


def machine(
    files: Mapping[str, str | None] | None = None, outputs: Mapping[str, str | None] | None = None, **changes: Any
) -> Machine:
    """A healthy machine with some changes; outputs are found by a command's last part of the path."""
    texts = {**HEALTHY_FILES, **(files or {})}
    said = {
        PYTHON: TORCH_CPU,
        "py-spy": "py-spy 0.4.3\n",
        "pidstat": "sysstat 12.6\n",
        **(outputs or {}),
    }

    def run(command: Sequence[str], limit_s: float) -> str | None:
        return said.get(Path(command[0]).name)

    facts: dict[str, Any] = {
        "env": {"OMP_NUM_THREADS": "1"},
        "read": lambda path: "header" if path.endswith("Python.h") else texts.get(path),
        "run": run,
        "which": lambda name: None if name == "nvidia-smi" else f"/usr/bin/{name}",
        "refusal": lambda: None,
        "pyspy": "/usr/bin/py-spy",
        "usable_cores": 4,
        "physical_cores": 4,
        "free_bytes": always(50 * GIB),
        "write_error": always(None),
    }
    return Machine(**{**facts, **changes})


def test_a_healthy_machine_has_nothing_to_mend(tmp_path: Path) -> None:
    findings = examine({}, tmp_path, machine=machine())

    assert [finding for finding in findings if finding.status is not Status.OK or finding.remedy] == []
    assert len(findings) == len({finding.subject for finding in findings})
    assert all("\n" not in finding.text for finding in findings)


def missing(*names: str) -> Callable[[str], str | None]:
    """A `which` without some programs."""
    return lambda name: None if name in names else f"/usr/bin/{name}"


GPU = {"which": missing()}


@pytest.mark.parametrize(
    ("probe", "ill", "status", "words", "remedy"),
    [
        (doctor.python, machine(python=(3, 10, 1)), Status.BAD, "3.10.1", "3.11"),
        (doctor.torch, machine(outputs={PYTHON: None}), Status.BAD, "cannot be imported", "import torch"),
        (doctor.torch, machine(outputs={PYTHON: "warning\nnonsense"}), Status.BAD, "cannot", "torch"),
        (doctor.torch, machine(outputs={PYTHON: json.dumps(["2.13", "13.0", []])}), Status.WARN,
         "CUDA 13.0", "CUDA_VISIBLE_DEVICES"),
        (doctor.torch, machine(outputs={PYTHON: json.dumps(["2.13", "13.0", ["H200", "H200"]])}),
         Status.OK, "H200, H200", ""),
        (doctor.compiler, machine(which=missing("g++", "clang++")), Status.WARN, "`compile` cannot", "g++"),
        (doctor.compiler, machine(which=missing("g++")), Status.OK, "clang++", ""),
        (doctor.compiler, machine(env={"CXX": "icpx"}, which=missing("icpx")), Status.WARN, "icpx", "CXX"),
        (doctor.compiler, machine(read=always(None)), Status.WARN, "Python.h", "python3-dev"),
        (doctor.pyspy, machine(pyspy=None), Status.WARN, "missing", "install py-spy"),
        (doctor.pyspy, machine(refusal=lambda: "scope is 1; sudo sysctl x=0"), Status.WARN, "may not trace: scope is 1",
         "sudo sysctl x=0"),
        (doctor.pidstat, machine(which=missing("pidstat")), Status.WARN, "schedstat", "sysstat"),
        (doctor.cores, machine({"/sys/fs/cgroup/job/cpu.max": "150000 100000"}), Status.WARN, "is 1.5", "1 threads"),
        (doctor.cores, machine(usable_cores=1), Status.WARN, "1 usable", "two cores"),
        (doctor.cores, machine(usable_cores=8), Status.OK, "hyperthreads", ""),
        (doctor.contention, machine({"/proc/pressure/cpu": "some avg10=42.10 avg60=0 avg300=0 total=1"}), Status.WARN,
         "42 %", "top"),
        (doctor.contention, machine({"/proc/pressure/cpu": None, "/proc/loadavg": "3.5 1 1 1/1 1"}), Status.WARN,
         "load 3.5 on 4", "top"),
        (doctor.contention, machine({"/proc/pressure/cpu": None, "/proc/loadavg": None}), Status.OK, "load 0.0", ""),
        (doctor.governor, machine({"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave"}), Status.WARN,
         "powersave", "cpupower"),
        (doctor.memory, machine({"/proc/meminfo": "MemAvailable: 2097152 kB"}), Status.WARN, "2.0 GiB", "topology"),
        (doctor.memory, machine({"/sys/fs/cgroup/memory.max": f"{GIB}", "/sys/fs/cgroup/memory.current": "524288000"}),
         Status.BAD, "0.5 GiB", "topology"),
        (doctor.memory, machine({"/proc/meminfo": None}), Status.OK, "cannot be read", ""),
        (doctor.shared_memory, machine(free_bytes=always(GIB // 16)), Status.BAD, "0.1 GiB", "--shm-size"),
        (doctor.omp, machine(env={"OMP_NUM_THREADS": "16"}), Status.WARN, "OMP_NUM_THREADS=16", "OMP_NUM_THREADS=1"),
        (doctor.omp, machine(env={"OMP_WAIT_POLICY": "ACTIVE"}), Status.WARN, "spin", "PASSIVE"),
        (doctor.omp, machine(env={"OMP_WAIT_POLICY": "passive"}), Status.OK, "passive", ""),
        (doctor.omp, machine(env={}), Status.OK, "unset", ""),
        (doctor.nvml, machine(**GPU), Status.WARN, "does not answer", "reboot"),
        (doctor.nvml, machine(outputs={"nvidia-smi": "H200, 570.1, 0\nH200, 570.1, 97\n"}, **GPU), Status.WARN,
         "2 × H200, driver 570.1; in use already: 1", "CUDA_VISIBLE_DEVICES"),
        (doctor.nvml, machine(outputs={"nvidia-smi": "H200, 570.1, 0\n"}, **GPU), Status.OK, "1 × H200", ""),
    ],
)  # fmt: skip
def test_what_ails_a_machine_is_named_with_its_remedy(
    probe: Callable[[Machine], Finding], ill: Machine, status: Status, words: str, remedy: str
) -> None:
    finding = probe(ill)

    assert status is finding.status
    assert words in finding.text
    assert remedy in finding.remedy
    assert bool(finding.remedy) == (status is not Status.OK)


def test_no_shared_memory_at_all() -> None:
    def free_bytes(path: Path) -> int:
        raise FileNotFoundError(path)

    assert doctor.shared_memory(machine(free_bytes=free_bytes)).status is Status.BAD


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        ({"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/cpu.max": "50000 100000\n",
          "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, 0.5),
        ({"/proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
          "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ({"/proc/self/cgroup": "3:cpu:/\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
          "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)  # fmt: skip
def test_the_quota_is_found_in_both_versions_of_cgroups(files: dict[str, str], expected: float | None) -> None:
    def read(path: str) -> str | None:
        return files.get(path.replace("//", "/"))

    assert expected == cpu_quota(read)


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, Status.OK, "50.0 GiB free"),
        ({"free_bytes": always(GIB // 2)}, Status.WARN, "0.5 GiB"),
        ({"free_bytes": always(GIB // 20)}, Status.BAD, "0.0 GiB"),
        ({"write_error": always("Permission denied")}, Status.BAD, "cannot be written: Permission denied"),
    ],
)
def test_the_disk_of_a_folder_that_does_not_exist_yet(
    tmp_path: Path, changes: dict[str, Any], status: Status, words: str
) -> None:
    finding = doctor.disk(machine(**changes), tmp_path / "new" / "reports")

    assert status is finding.status
    assert words in finding.text


@pytest.mark.slow
def test_this_machine_is_examined_within_twelve_seconds(tmp_path: Path) -> None:
    started_s = time.monotonic()
    findings = examine(dict(os.environ), tmp_path)

    assert time.monotonic() - started_s < 12.0
    assert {"python", "torch", "py-spy", "pidstat", "disk"} <= {finding.subject for finding in findings}
    assert list(tmp_path.iterdir()) == []

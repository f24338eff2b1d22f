"""
What this machine can and cannot measure, one line each, with the remedy.

Each probe takes a `Machine`, so a test describes a machine instead of patching one. Nothing is installed, changed or
measured; torch is asked in a process of its own, for FlashProf never imports it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from flashprof.app.machine import num_usable_cores
from flashprof.sample.pyspy import can_trace, find_pyspy

GIB = 2**30
_SHM = "/dev/shm"  # noqa: S108 (looked at, never written)


class Status(StrEnum):
    """How much a finding stands in the way of measuring."""

    OK = "ok"
    WARN = "warn"
    """Measuring works, with less to see or more noise."""
    BAD = "bad"
    """Something will fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor's list."""

    subject: str
    status: Status
    text: str
    remedy: str = ""
    """A command or a setting; empty where there is nothing to do."""


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _write_error(folder: Path) -> str | None:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """How the probes look at the machine."""

    env: Mapping[str, str]
    read: Callable[[str], str | None]
    """A file's text by its absolute path; None where it cannot be read."""
    run: Callable[[Sequence[str], float], str | None]
    """A command's output within so many seconds; None where it is missing, fails or is too slow."""
    which: Callable[[str], str | None] = shutil.which
    refusal: Callable[[], str | None] = can_trace
    """Why py-spy may not trace; None where it may."""
    pyspy: str | None = None
    usable_cores: int = 1
    physical_cores: int = 1
    free_bytes: Callable[[Path], int] = _free_bytes
    write_error: Callable[[Path], str | None] = _write_error
    python: tuple[int, int, int] = sys.version_info[:3]


Probe = Callable[[Machine], Finding]


def examine(env: Mapping[str, str], reports: Path, *, machine: Machine | None = None) -> list[Finding]:
    """
    Look at everything, in at most 12 s; typically 3 s, for torch takes 2 s to import.

    Args:
        env: The environment in which the subject will run.
        reports: The folder that run folders will go to; it need not exist.
        machine: None for this one.
    """
    machine = machine or this_machine(env)
    # Contention first: the probes after it load the machine themselves.
    probes: tuple[Probe, ...] = (contention, cores, governor, memory, shared_memory, omp, python, torch, compiler)
    findings = [probe(machine) for probe in (*probes, nvml, pyspy, pidstat)]
    return [*findings, disk(machine, reports)]


def this_machine(env: Mapping[str, str]) -> Machine:
    """The machine that FlashProf runs on."""
    import psutil

    usable = num_usable_cores()
    return Machine(
        env=env,
        read=_read,
        run=lambda command, limit_s: _run(command, limit_s, env),
        which=lambda name: shutil.which(name, path=env.get("PATH")),
        pyspy=find_pyspy(),
        usable_cores=usable,
        physical_cores=psutil.cpu_count(logical=False) or usable,
    )


def python(machine: Machine) -> Finding:
    """The Python that runs FlashProf, and by default the subject."""
    text = ".".join(map(str, machine.python))
    if machine.python < (3, 11):
        return _bad("python", f"{text}: too old", "install Python 3.11 or newer")
    return _ok("python", f"{text} at {sys.executable}")


_ASK_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else []
print(json.dumps([torch.__version__, torch.version.cuda, names]))
"""


def torch(machine: Machine) -> Finding:
    """Version and devices, as the subject will see them."""
    output = machine.run((sys.executable, "-P", "-c", _ASK_TORCH), 8.0)
    try:
        version, cuda, names = json.loads((output or "").strip().splitlines()[-1])
    except (ValueError, IndexError):
        return _bad(
            "torch",
            "cannot be imported within 8 s: the pipeline will not start (a foreign trainer may bring its own)",
            f"{sys.executable} -c 'import torch' shows why; make run installs it",
        )
    if names:
        return _ok("torch", f"{version}, CUDA {cuda}: {', '.join(names)}")
    if cuda is None:
        return _ok("torch", f"{version}, CPU build: no CUDA timing, no flex_attention")
    return _warn(
        "torch",
        f"{version}, built for CUDA {cuda}, but it sees no device",
        "nvidia-smi shows the driver; check CUDA_VISIBLE_DEVICES, or the container's --gpus all",
    )


def compiler(machine: Machine) -> Finding:
    """What the toggle `compile` needs on a CPU."""
    name = machine.env.get("CXX") or next((name for name in ("g++", "clang++") if machine.which(name)), "g++")
    if machine.which(name) is None:
        return _warn(
            "compiler",
            f"no {name}: the toggle `compile` cannot be applied on a CPU",
            "sudo apt-get install g++, or set CXX to a C++ compiler",
        )
    header = str(Path(sysconfig.get_path("include"), "Python.h"))
    if machine.read(header) is None:
        return _warn(
            "compiler",
            f"{name}, but no Python.h ({header}): `compile` may fail on a CPU",
            "sudo apt-get install python3-dev",
        )
    return _ok("compiler", f"{name}, with Python.h: `compile` works on a CPU")


def pyspy(machine: Machine) -> Finding:
    """Stack sampling, really tried on a process of our own."""
    if machine.pyspy is None:
        return _warn("py-spy", "missing: no flamegraph, no hottest frames", f"{sys.executable} -m pip install py-spy")
    version = (machine.run((machine.pyspy, "--version"), 2.0) or "py-spy").strip()
    refusal = machine.refusal()
    if refusal is None:
        return _ok("py-spy", f"{version}, may trace (tried)")
    why, _, remedy = refusal.partition("; ")
    return _warn("py-spy", f"{version} may not trace: {why}", remedy)


def pidstat(machine: Machine) -> Finding:
    """Per-thread CPU use."""
    version = machine.run(("pidstat", "-V"), 2.0) if machine.which("pidstat") else None
    if version is None:
        return _warn(
            "pidstat",
            "missing: /proc/PID/schedstat is read instead (means of a window, no second-by-second record)",
            "sudo apt-get install sysstat",
        )
    return _ok("pidstat", (version.splitlines() or ["present"])[0])


def cores(machine: Machine) -> Finding:
    """What the subject and the samplers may use, and a container's quota, which no affinity shows."""
    usable = machine.usable_cores
    text = f"{usable} usable, {machine.physical_cores} physical"
    quota = cpu_quota(machine.read)
    if quota is not None and quota < usable:
        return _warn(
            "cores",
            f"{text}, but the cgroup's quota is {quota:g}: beyond it all threads are stopped for up to 0.1 s",
            f"raise the quota (docker --cpus={usable}), or keep to {max(1, int(quota))} threads",
        )
    if usable < 2:
        return _warn(
            "cores",
            f"{text}: samplers take their time from the subject, profile windows will be slower",
            "use two cores or more, or --set sampling.rate_hz=10",
        )
    if usable > machine.physical_cores:
        text += ": hyperthreads share a core, so tok/s depends on the placement of threads"
    return _ok("cores", text)


def cpu_quota(read: Callable[[str], str | None]) -> float | None:
    """The smallest CPU quota above this process, in cores, from either version of cgroups; None where there is none."""
    quotas = []
    for line in (read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for folder in (Path(path), *Path(path).parents):
            raw = _quota_v1(read, folder) if controllers else read(f"/sys/fs/cgroup{folder}/cpu.max")
            parts = (raw or "").split()
            if len(parts) == 2 and parts[0].isdecimal():
                quotas.append(int(parts[0]) / int(parts[1]))
    return min(quotas, default=None)


def _quota_v1(read: Callable[[str], str | None], folder: Path) -> str:
    base = f"/sys/fs/cgroup/cpu{folder}"
    return f"{read(f'{base}/cpu.cfs_quota_us') or ''} {read(f'{base}/cpu.cfs_period_us') or ''}"


def contention(machine: Machine) -> Finding:
    """Who else wants the cores right now: pressure where the kernel keeps it, else the load."""
    load = float((machine.read("/proc/loadavg") or "0").split()[0])
    text = f"load {load:.1f} on {machine.usable_cores} cores"
    pressure = _some_avg10(machine.read("/proc/pressure/cpu"))
    if pressure is not None:
        text += f", tasks waited for a core in {pressure:.0f} % of the last 10 s"
    busy = pressure > 5.0 if pressure is not None else load > 0.5 * machine.usable_cores
    if busy:
        return _warn(
            "contention",
            f"{text}: other programs are running, intervals will be wider",
            "top -o %CPU shows them; measure when they are done",
        )
    return _ok("contention", text)


def _some_avg10(pressure: str | None) -> float | None:
    for line in (pressure or "").splitlines():
        if line.startswith("some"):
            return float(dict(item.split("=") for item in line.split()[1:])["avg10"])
    return None


def governor(machine: Machine) -> Finding:
    """Whether the clock follows the load, which makes the first windows slower or faster than the last."""
    name = (machine.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "").strip()
    if not name:
        return _ok("governor", "not readable, as on most virtual machines")
    if name == "performance":
        return _ok("governor", name)
    return _warn(
        "governor",
        f"{name}: the clock follows the load, which adds slow drift",
        "sudo cpupower frequency-set -g performance",
    )


def memory(machine: Machine) -> Finding:
    """What is left, of the machine or of the container."""
    available = _available_bytes(machine.read)
    if available is None:
        return _ok("memory", "/proc/meminfo cannot be read")
    text = f"{available / GIB:.1f} GiB available"
    if available < 4 * GIB:
        say = _bad if available < GIB else _warn
        hint = "each process with torch and transformers takes 0.4 GiB or more"
        return say("memory", f"{text}: {hint}", "free memory, or use a smaller topology: --topology 1+1")
    return _ok("memory", text)


def _available_bytes(read: Callable[[str], str | None]) -> int | None:
    lines = (read("/proc/meminfo") or "").splitlines()
    machine_wide = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    limit, used = read("/sys/fs/cgroup/memory.max"), read("/sys/fs/cgroup/memory.current")
    own = [int(limit) - int(used)] if limit and used and limit.strip().isdecimal() else []
    return min([*machine_wide, *own], default=None)


def shared_memory(machine: Machine) -> Finding:
    """Hidden states travel between processes through it; Docker gives 64 MiB."""
    folder = Path(_SHM)
    try:
        free = machine.free_bytes(folder)
    except OSError:
        return _bad(
            _SHM, "there is none: torch cannot pass tensors between processes", "sudo mount -t tmpfs shm /dev/shm"
        )
    text = f"{free / GIB:.1f} GiB free"
    if free >= GIB:
        return _ok(_SHM, text)
    say = _bad if free < GIB // 8 else _warn
    return say(
        _SHM,
        f"{text}: hidden states travel through it, and a full one ends processes with SIGBUS",
        "docker run --shm-size=8g, or sudo mount -o remount,size=8g /dev/shm",
    )


def omp(machine: Machine) -> Finding:
    """OpenMP's threads: idle ones spin by default, and take the cores from each other."""
    threads, policy = machine.env.get("OMP_NUM_THREADS", ""), machine.env.get("OMP_WAIT_POLICY", "")
    text = f"OMP_NUM_THREADS={threads or 'unset'}, OMP_WAIT_POLICY={policy or 'unset'}"
    if threads == "1" or policy.lower() == "passive":
        return _ok("omp", text)
    too_many = threads.isdecimal() and int(threads) > machine.usable_cores
    if too_many or policy.lower() == "active":
        return _warn(
            "omp",
            f"{text}: waiting threads spin, and where another program runs too, steps took 6 times as long",
            "export OMP_NUM_THREADS=1 for each rank on a CPU, or OMP_WAIT_POLICY=PASSIVE",
        )
    return _ok("omp", f"{text}: waiting threads spin, so give each rank of a foreign trainer on a CPU one thread")


def nvml(machine: Machine) -> Finding:
    """The NVIDIA driver, and whether a device is in use already."""
    if machine.which("nvidia-smi") is None:
        return _ok("gpu", "no NVIDIA driver: CPU only")
    query = "--query-gpu=name,driver_version,utilization.gpu"
    output = machine.run(("nvidia-smi", query, "--format=csv,noheader,nounits"), 4.0)
    rows = [[part.strip() for part in line.split(",")] for line in (output or "").splitlines() if line.count(",") == 2]
    if not rows:
        return _warn(
            "gpu", "nvidia-smi is there but does not answer", "run nvidia-smi; a driver that was updated needs a reboot"
        )
    text = f"{len(rows)} × {rows[0][0]}, driver {rows[0][1]}"
    busy = [str(index) for index, row in enumerate(rows) if row[2].isdecimal() and int(row[2]) > 10]
    if busy:
        return _warn(
            "gpu",
            f"{text}; in use already: {', '.join(busy)}",
            "nvidia-smi shows by whom; choose others with CUDA_VISIBLE_DEVICES",
        )
    return _ok("gpu", text)


def disk(machine: Machine, reports: Path) -> Finding:
    """Room for run folders, really tried."""
    folder = next(path for path in (reports, *reports.absolute().parents) if path.is_dir())
    error = machine.write_error(folder)
    if error is not None:
        return _bad("disk", f"{folder} cannot be written: {error}", "choose another folder: --set output.reports=DIR")
    free = machine.free_bytes(folder)
    text = f"{free / GIB:.1f} GiB free for {reports}"
    if free >= GIB:
        return _ok("disk", text)
    say = _bad if free < GIB // 10 else _warn
    return say("disk", text, "free space, or --set output.reports=DIR")


def _ok(subject: str, text: str) -> Finding:
    return Finding(subject=subject, status=Status.OK, text=text)


def _warn(subject: str, text: str, remedy: str) -> Finding:
    return Finding(subject=subject, status=Status.WARN, text=text, remedy=remedy)


def _bad(subject: str, text: str, remedy: str) -> Finding:
    return Finding(subject=subject, status=Status.BAD, text=text, remedy=remedy)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _run(command: Sequence[str], limit_s: float, env: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, errors="replace", timeout=limit_s, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout

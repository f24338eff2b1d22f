"""What is told of a machine, from files and from an nvidia-smi that answers, and from ones that do not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flashprof.app.machine import GPU_FIELDS, full_machine, run_quietly

TWO_GPUS = """\
0, NVIDIA H200, GPU-aaaa, 570.86, 143771, 1980, 3201, 1980, [N/A], 700.00, Disabled
1, NVIDIA H200, GPU-bbbb, 570.86, 143771, 1980, 3201, [Not Supported], [N/A], 650.00, Disabled
"""


def gpus(answer: str | None, **env: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = full_machine(env, run=lambda _: answer)["gpus"]
    return found


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_every_gpu_is_told_with_what_it_knows() -> None:
    first, second = gpus(TWO_GPUS)

    assert ("NVIDIA H200", "GPU-aaaa", "570.86", "700.00") == tuple(
        first[name] for name in ("name", "uuid", "driver", "power_limit_w")
    )
    assert {"application_memory_clock_mhz"} == {"index", *GPU_FIELDS} - set(first)
    assert {"application_sm_clock_mhz"} == set(first) - set(second)


def test_nvidia_smi_is_asked_once_for_what_does_not_change_by_itself() -> None:
    asked: list[Sequence[str]] = []
    full_machine({}, run=asked.append)

    assert ["nvidia-smi"] == [command[0] for command in asked]
    assert not {"clocks.sm", "temperature.gpu", "memory.free", "utilization.gpu"} & set(asked[0][1].split(","))


@pytest.mark.parametrize("answer", [None, "", "NVIDIA-SMI has failed, because it couldn't communicate\n", "0, H200\n"])
def test_without_an_answer_there_are_no_gpus(answer: str | None) -> None:
    assert [] == gpus(answer)


@pytest.mark.parametrize(
    ("chosen", "uuids"),
    [
        ("1", ["GPU-bbbb"]),
        ("1,0", ["GPU-bbbb", "GPU-aaaa"]),
        ("GPU-bb", ["GPU-bbbb"]),
        ("0,7,1", ["GPU-aaaa"]),
        ("", []),
        ("-1", []),
        ("MIG-1234", ["GPU-aaaa", "GPU-bbbb"]),
    ],
)
def test_only_those_count_that_the_subject_will_see(chosen: str, uuids: list[str]) -> None:
    assert uuids == [gpu["uuid"] for gpu in gpus(TWO_GPUS, CUDA_VISIBLE_DEVICES=chosen)]


def test_cpu_memory_and_clocks_are_read_from_proc_and_sys(tmp_path: Path) -> None:
    cpu = "sys__devices__system__cpu__cpu"
    write(
        tmp_path,
        proc__cpuinfo="processor : 0\nmodel name\t: AMD EPYC 9354\n",
        proc__meminfo="MemTotal:       24689036 kB\nMemFree: 1 kB\n",
        **{f"{cpu}0__cpufreq__scaling_governor": "powersave\n", f"{cpu}1__cpufreq__scaling_governor": "performance\n"},
        **{f"{cpu}0__cpufreq__cpuinfo_max_freq": "3800000\n"},
    )
    machine = machine_of(tmp_path)

    assert ("AMD EPYC 9354", 23.5) == (machine["cpu"], machine["memory_gib"])
    assert ("performance, powersave", "3800000") == (machine["governor"], machine["max_cpu_clock_khz"])


def test_a_system_without_these_files_is_told_all_the_same(tmp_path: Path) -> None:
    machine = machine_of(tmp_path)

    assert machine["cpu"]
    assert (None, None, None) == tuple(machine[name] for name in ("memory_gib", "governor", "max_cpu_clock_khz"))


def test_a_program_that_is_missing_or_fails_gives_no_answer() -> None:
    assert (None, None, "x\n") == tuple(run_quietly(c) for c in (("no-such-program",), ("false",), ("echo", "x")))


def machine_of(root: Path) -> dict[str, Any]:
    return full_machine({}, root=root, run=lambda _: None)

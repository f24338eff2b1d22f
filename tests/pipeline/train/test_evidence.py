"""What is new since the last look is marked once: compilations, recompilations, tuning, growth of the allocator."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flashprof.contracts.events import Mark, decode
from flashprof.emit import connect
from pipeline.train.evidence import LOOK_EVERY, NUM_CLOSE_LOOKS, Evidence, compilations
from pipeline.train.memory import Reserved, read_reserved

GIB = 2**30
Script = Callable[[Evidence], None]


def marks_of(folder: Path, script: Script, **sources: Any) -> list[Mark]:
    emitter = connect("drafter", run_dir=folder)
    script(Evidence(emitter, **({"compiled": tuple, "reserved": lambda: None} | sources)))
    emitter.close()
    lines = (folder / "events" / "drafter-0.jsonl").read_text(encoding="utf-8").splitlines()
    return [mark for mark in decode(lines, where="drafter-0").marks if mark.name != "lane"]


def compiled(name: str, **fields: Any) -> SimpleNamespace:
    """As torch's `CompilationMetrics`."""
    return SimpleNamespace(**({"co_name": name, "is_forward": True, "entire_frame_compile_time_s": 2.0} | fields))


def test_each_compilation_is_marked_once_with_its_kind(tmp_path: Path) -> None:
    found = [compiled("before")]

    def script(evidence: Evidence) -> None:
        evidence.look()
        found.extend([compiled("mask"), compiled("mask", recompile_reason="0/0: dtype mismatch" + "." * 500)])
        evidence.look()
        evidence.look()
        backward = {"is_forward": False, "entire_frame_compile_time_s": None}
        found.append(compiled("attend", backward_cumulative_compile_time_us=1_500_000, **backward))
        found.append(compiled("attend", is_runtime=True, runtime_triton_autotune_time_us=4_000_000))
        found.append(compiled("attend", is_runtime=True))
        evidence.look()

    marks = marks_of(tmp_path, script, compiled=lambda: found)

    assert [
        ("compile", "mask", 2.0),
        ("compile", "recompile mask", 2.0),
        ("compile", "attend backward", 1.5),
        ("autotune", "attend", 4.0),
    ] == [(mark.name, mark.detail["what"], mark.detail["seconds"]) for mark in marks]
    assert marks[1].detail["reason"].startswith("0/0: dtype mismatch")
    assert len(marks[1].detail["reason"]) < 200


def test_what_was_seen_may_have_been_dropped_from_the_list(tmp_path: Path) -> None:
    found = [[compiled("old")], [compiled("a"), compiled("b")], [compiled("c")]]

    def script(evidence: Evidence) -> None:
        evidence.look()
        evidence.look()

    marks = marks_of(tmp_path, script, compiled=lambda: found.pop(0))

    assert ["a", "b", "c"] == [mark.detail["what"] for mark in marks]


def look_at(sizes_gib: list[float], retries: list[int]) -> tuple[Script, Callable[[], Reserved]]:
    """A script that looks once a size, and the allocator that has it by then."""
    now = SimpleNamespace(at=0)

    def script(evidence: Evidence) -> None:
        for now.at in range(1, len(sizes_gib)):
            evidence.look()

    return script, lambda: Reserved(round(sizes_gib[now.at] * GIB), retries[now.at])


def test_growth_and_retries_of_the_allocator_are_marked(tmp_path: Path) -> None:
    script, reserved = look_at([1.0, 1.0, 4.0, 4.0, 3.0, 3.5, 3.5], [0, 0, 0, 0, 2, 2, 2])

    marks = marks_of(tmp_path, script, reserved=reserved)

    assert ["allocator"] * 3 == [mark.name for mark in marks]
    assert [
        {"gib": 3.0, "retries": 0},
        {"gib": 0.0, "retries": 2},
        {"gib": 0.5, "retries": 0},
    ] == [mark.detail for mark in marks]


def test_an_allocator_at_peace_is_looked_at_less_often_and_nothing_is_lost(tmp_path: Path) -> None:
    num_looks = NUM_CLOSE_LOOKS + 10 * LOOK_EVERY
    sizes = [1.0] * num_looks + [2.0] * LOOK_EVERY
    script, reserved = look_at([sizes[0], *sizes], [0] * (len(sizes) + 1))
    num_reads = 0

    def count_reads() -> Reserved:
        nonlocal num_reads
        num_reads += 1
        return reserved()

    marks = marks_of(tmp_path, script, reserved=count_reads)

    assert [{"gib": 1.0, "retries": 0}] == [mark.detail for mark in marks]
    assert num_reads < NUM_CLOSE_LOOKS + 10 + LOOK_EVERY + 5


@pytest.mark.skipif(torch.cuda.is_available(), reason="another test may have used the CUDA device")
def test_a_process_that_uses_no_cuda_device_has_no_allocator() -> None:
    assert read_reserved() is None


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
# torch 2.13 uses deprecated parts of its own on the way to inductor.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_torch_really_compiles_is_seen_with_name_and_reason(tmp_path: Path) -> None:
    def twice(values: torch.Tensor) -> torch.Tensor:
        return values * 2

    def script(evidence: Evidence) -> None:
        function = torch.compile(twice, backend="eager")
        for dtype in (torch.float32, torch.float32, torch.float64):
            function(torch.ones(3, dtype=dtype))
            evidence.look()

    marks = marks_of(tmp_path, script, compiled=compilations)

    assert ["twice", "recompile twice"] == [mark.detail["what"] for mark in marks]
    assert "dtype mismatch" in marks[1].detail["reason"]
    assert all(mark.detail["seconds"] > 0 for mark in marks)

"""Arms, parts and frames, made up: what rules about suspects look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from flashprof.contracts.localisation import FrameChange, FrameStatus, Part, Suspect
from flashprof.contracts.machine import MachineUse
from flashprof.contracts.results import Interval, Lane, LaneRow, ThreadRow
from flashprof.stats.suspects import suspects
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.evidence_items import GpuUse
from flashprof.windows.step_times import StepTimes

NUM_TOKENS = 1_000_000
WALL_NS = 1000.0
"""A token."""
DIFFERENCE_NS = 200.0
CPU_FACTS = MappingProxyType(
    {"workload.device": "cpu", "machine.num_cores": "2", "versions.torch": "2.13.0", "toggles.swa": "off"}
)
PHASES = MappingProxyType(
    {
        ("dispatcher", "batch"): 20.0,
        ("target", "forward"): 500.0,
        ("target", "wait_work"): 10.0,
        ("target", "wait_room"): 100.0,
        ("drafter", "wait_hidden"): 50.0,
        ("drafter", "mask"): 100.0,
        ("drafter", "forward"): 700.0,
        ("drafter", "grad_sync"): 50.0,
        ("drafter", "log"): 10.0,
    }
)
"""Role and phase → own ns a token."""


def interval(estimate: float, half: float = 1.0) -> Interval:
    return Interval(
        estimate=estimate, low=estimate - half, high=estimate + half, level=0.95, num_samples=10, method="made up"
    )


def part(name: str, charge: float, *, half: float = 1.0, through: tuple[str, ...] = (), thread: str = "main") -> Part:
    """`part("drafter mask", 150)`; phases that begin with `wait` or end with `sync` are waits."""
    role, phase = name.split()
    is_wait = phase.startswith("wait") or phase.endswith("sync")
    return Part(
        role=role,
        phase=phase,
        kind="wait" if is_wait else "work",
        thread=thread,
        base_ns_per_token=100.0,
        candidate_ns_per_token=100.0 + charge,
        charge=interval(charge, half),
        share=charge / DIFFERENCE_NS,
        through=through,
        is_clear=abs(charge) > half,
    )


def frame(
    name: str, change: float, *, where: str = "pipeline/x.py:1", phase: str = "forward", **fields: Any
) -> FrameChange:
    given = {"role": "drafter", "half": 1.0, **fields}
    return FrameChange(
        role=given["role"],
        name=name,
        where=where,
        phase=phase,
        status=FrameStatus.CHANGED,
        base_ns_per_token=10.0,
        candidate_ns_per_token=10.0 + change,
        inclusive=interval(change, given["half"]),
        own=interval(change, given["half"]),
        is_clear=abs(change) > given["half"],
    )


def arm(
    phases: Mapping[tuple[str, str], float] = MappingProxyType({}), *, wall_ns: float = WALL_NS, **fields: Any
) -> ArmEvidence:
    """One launch of 1,000 steps on a CPU; *phases* in ns a token take the place of typical ones."""
    held = {**PHASES, **phases}
    typical: dict[str, Any] = {
        "num_launches": 1,
        "length_ns": round(wall_ns * NUM_TOKENS),
        "num_tokens": NUM_TOKENS,
        "num_steps": 1000,
        "trains": frozenset({"drafter"}),
        "num_ranks": {"dispatcher": 1, "target": 1, "drafter": 1},
        "tells_compilations": True,
        "phases": {(role, "main", phase): ns * NUM_TOKENS for (role, phase), ns in held.items()},
        "steps": {"drafter": steps()},
        "lanes": (lane(work_ns=900.0),),
        "threads": (thread(),),
        "facts": CPU_FACTS,
    }
    return ArmEvidence(**{**typical, **fields})


def without_phases() -> ArmEvidence:
    """A trainer that tells no phase that a rule knows."""
    return replace(arm(), phases={("drafter", "main", "x"): 1.0})


def lane(role: str = "drafter", *, work_ns: float, thread: str = "main") -> LaneRow:
    """Work in ns a token."""
    return LaneRow(
        lane=Lane(host="h", role=role, rank=0, thread=thread),
        wall_ns=round(WALL_NS * NUM_TOKENS),
        work_ns=round(work_ns * NUM_TOKENS),
        wait_ns=0,
        num_steps=1000,
        num_tokens=NUM_TOKENS,
        tok_per_s=1e6,
        capacity_tok_per_s=1.1e6,
        is_limiting=role == "drafter",
    )


def steps(
    mean: float = 1e6, p50: float = 1e6, p95: float = 1.1e6, spread: float = 0.0, slowest: float = 1.0
) -> StepTimes:
    return StepTimes(num_steps=1000, mean_ns=mean, p50_ns=p50, p95_ns=p95, slowest_share=slowest, spread_ns=spread)


def thread(
    name: str = "drafter-0", *, role: str = "drafter", usr: float = 90.0, wait: float = 0.0, switches: float = 50.0
):
    return ThreadRow(
        role=role,
        rank=0,
        thread=name,
        usr_pct=usr,
        system_pct=0.0,
        wait_pct=wait,
        voluntary_switches_per_s=switches,
        involuntary_switches_per_s=1.0,
    )


def gpu(*, clock: float = 1980.0, busy: float = 95.0, reasons: Mapping[str, float] = MappingProxyType({})) -> GpuUse:
    return GpuUse(
        index=0, num_readings=20, busy_pct=busy, sm_clock_mhz=clock, power_w=600, temperature_c=60, reasons=reasons
    )


def use(*, delay: float = 0.0, others: float = 0.0) -> MachineUse:
    return MachineUse(
        length_s=2.0,
        other_cores=others,
        stolen_cores=0.0,
        delay_share=delay,
        num_swapped_pages=0,
        governors=(),
        throttle_reasons=(),
        num_foreign_gpu_processes=0,
    )


def ruled(
    name: str,
    base: ArmEvidence,
    candidate: ArmEvidence,
    parts: tuple[Part, ...] = (),
    frames: tuple[FrameChange, ...] = (),
    *,
    difference_ns: float = DIFFERENCE_NS,
) -> Suspect:
    """The ruling on one suspect."""
    return next(item for item in suspects(base, candidate, parts, frames, difference_ns) if item.name == name)

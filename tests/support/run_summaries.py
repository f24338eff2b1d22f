"""Run summaries as a run would give them: healthy, crashed, and of a foreign trainer."""

from __future__ import annotations

from flashprof.contracts.events import SpanKind
from flashprof.contracts.outcome import Outcome
from flashprof.contracts.results import (
    Frame,
    Interval,
    Lane,
    LaneRow,
    PhaseRow,
    RankUse,
    RunSummary,
    ThreadRow,
    Warmup,
    Window,
    WindowKind,
)

SECOND_NS = 1_000_000_000
WALL_NS = 25 * SECOND_NS
NUM_STEPS = 60


def interval(estimate: float, low: float, high: float, num_samples: int = 5) -> Interval:
    return Interval(estimate=estimate, low=low, high=high, level=0.95, num_samples=num_samples, method="t-interval")


def windows(*kinds: WindowKind) -> tuple[Window, ...]:
    rows = []
    for index, kind in enumerate(kinds):
        start_ns = index * 5 * SECOND_NS
        tokens = 20_000 + 137 * index - (300 if kind is WindowKind.PROFILE else 0)
        rows.append(
            Window(
                label=f"{kind}-{index}",
                kind=kind,
                start_ns=start_ns,
                end_ns=start_ns + 5 * SECOND_NS,
                num_steps=12,
                num_tokens=tokens,
                num_supervised_tokens=tokens // 2,
                num_padding_tokens=tokens // 10,
            )
        )
    return tuple(rows)


def lane(role: str, rank: int = 0, thread: str = "main") -> Lane:
    return Lane(host="box", role=role, rank=rank, thread=thread)


def phase(of: Lane, name: str, share: float, *, kind: SpanKind = SpanKind.WORK, num_calls: int = NUM_STEPS) -> PhaseRow:
    step_ns = share * WALL_NS / NUM_STEPS
    return PhaseRow(
        lane=of,
        phase=name,
        kind=kind,
        num_calls=num_calls,
        num_steps=NUM_STEPS,
        self_ns=round(share * WALL_NS),
        step_p50_ns=step_ns,
        step_p95_ns=step_ns * 1.12,
        share=share,
    )


def lane_row(
    of: Lane, work: float, wait: float, *, num_tokens: int = 100_000, capacity: float = 0.0, limiting: bool = False
) -> LaneRow:
    return LaneRow(
        lane=of,
        wall_ns=WALL_NS,
        work_ns=round(work * WALL_NS),
        wait_ns=round(wait * WALL_NS),
        num_steps=NUM_STEPS,
        num_tokens=num_tokens,
        tok_per_s=num_tokens / 25,
        capacity_tok_per_s=capacity,
        is_limiting=limiting,
    )


def use(role: str, tflop_per_s: float, *, device: str = "NVIDIA H200", peak: float | None = 989.5) -> RankUse:
    """What rank 0 of *role* made of its GPU."""
    return RankUse(role=role, rank=0, device_name=device, tflop_per_s=tflop_per_s, peak_tflop_per_s=peak)


def healthy() -> RunSummary:
    """A pipeline run whose uncompiled mask builder limits it."""
    dispatcher, target, drafter, loader = (
        lane("dispatcher"),
        lane("target"),
        lane("drafter"),
        lane("drafter", 0, "receive"),
    )
    wait, work = SpanKind.WAIT, SpanKind.WORK
    return RunSummary(
        run_id="20261129-2142-tiny-swa",
        cell={"preset": "tiny", "topology": "1+1", "toggles": "swa", "seed": 0, "machine": "box, 2 cores"},
        outcome=Outcome.COMPLETED,
        tok_per_s=interval(4_121.3, 4_052.9, 4_190.2),
        supervised_tok_per_s=2_034.0,
        padding_share=0.083,
        warmup=Warmup(
            length_s=14.2, num_steps=21, settled=True, causes=("compile forward 9.1 s", "compile mask 2.0 s")
        ),
        windows=windows(
            WindowKind.WARMUP,
            *[WindowKind.MEASURE, WindowKind.BETWEEN, WindowKind.PROFILE] * 4,
            WindowKind.MEASURE,
        ),
        phases=(
            phase(dispatcher, "send_batch", 0.013),
            phase(dispatcher, "wait_credit", 0.98, kind=wait),
            phase(target, "wait_batch", 0.02, kind=wait),
            phase(target, "forward", 0.34, num_calls=NUM_STEPS * 2),
            phase(target, "wait_queue", 0.63, kind=wait),
            phase(drafter, "receive", 0.031, kind=work),
            phase(drafter, "mask", 0.412),
            phase(drafter, "forward", 0.243),
            phase(drafter, "backward", 0.251),
            phase(drafter, "clip", 0.021),
            phase(drafter, "optimizer", 0.032),
            phase(drafter, "metrics", 0.0041),
            phase(drafter, "log", 0.0012, num_calls=6),
            phase(loader, "recv", 0.05),
            phase(loader, "wait_socket", 0.94, kind=wait),
        ),
        lanes=(
            lane_row(dispatcher, 0.013, 0.98, num_tokens=0),
            lane_row(target, 0.34, 0.65, num_tokens=103_000, capacity=12_100),
            lane_row(drafter, 0.995, 0.0, num_tokens=103_000, capacity=4_140, limiting=True),
            lane_row(loader, 0.05, 0.94, num_tokens=0),
        ),
        uses=(use("target", 402.1), use("drafter", 318.4)),
        sampling_cost=interval(0.011, -0.008, 0.029, 9),
        frames=(
            Frame(
                name="create_block_mask",
                where="torch/nn/attention/flex_attention.py:1012",
                role="drafter",
                self_share=0.221,
                total_share=0.405,
            ),
            Frame(
                name="_engine_run_backward",
                where="torch/autograd/graph.py:823",
                role="drafter",
                self_share=0.249,
                total_share=0.249,
            ),
            Frame(name="<lambda>", where="pipeline/mask.py:41", role="drafter", self_share=0.092, total_share=0.113),
            Frame(
                name="linear", where="torch/nn/functional.py:2290", role="target", self_share=0.161, total_share=0.161
            ),
        ),
        threads=(
            thread("drafter", "main", 88.2, 3.1, 2.0),
            thread("target", "main", 61.0, 2.2, 14.6),
            thread("dispatcher", "main", 1.1, 0.4, 0.1),
        ),
        losses=(8.312, 5.207),
        notes=("toggle expandable is not applied: it needs CUDA",),
        paths={
            "flamegraph": "reports/20261129-2142-tiny-swa/flamegraph.html",
            "run": "reports/20261129-2142-tiny-swa",
        },
    )


def thread(role: str, name: str, usr_pct: float, system_pct: float, wait_pct: float) -> ThreadRow:
    return ThreadRow(
        role=role,
        rank=0,
        thread=name,
        usr_pct=usr_pct,
        system_pct=system_pct,
        wait_pct=wait_pct,
        voluntary_switches_per_s=120.0,
        involuntary_switches_per_s=1_040.0,
    )


def crashed() -> RunSummary:
    """Two windows were measured when the drafter died."""
    drafter = lane("drafter")
    return RunSummary(
        run_id="20261129-2150-tiny",
        cell={"preset": "tiny", "topology": "1+1", "toggles": "none", "seed": 0},
        outcome=Outcome.CRASHED,
        reason="the subject ended with status 1: RuntimeError: shape mismatch in drafter 0",
        tok_per_s=interval(4_009.0, 3_100.0, 5_184.0, 2),
        warmup=Warmup(length_s=45.0, num_steps=130, settled=False),
        windows=windows(WindowKind.WARMUP, WindowKind.MEASURE, WindowKind.PROFILE, WindowKind.MEASURE),
        phases=(phase(drafter, "forward", 0.5), phase(drafter, "wait_hidden", 0.31, kind=SpanKind.WAIT)),
        lanes=(lane_row(drafter, 0.5, 0.31, capacity=8_000, limiting=True),),
        losses=(8.3, 8.4),
        notes=("py-spy may not trace: stacks are missing",),
        paths={"run": "reports/20261129-2150-tiny", "log": "reports/20261129-2150-tiny/subject.log"},
    )


def foreign() -> RunSummary:
    """Anybody's trainer: only tok/s from its output."""
    return RunSummary(
        run_id="20261129-2155-foreign",
        cell={"command": "torchrun train.py --config a.toml", "machine": "box, 2 cores"},
        outcome=Outcome.COMPLETED,
        tok_per_s=interval(1_204.0, 1_190.0, 1_218.0),
        counted_by="log",
        windows=windows(*[WindowKind.MEASURE] * 5),
        paths={"run": "reports/20261129-2155-foreign"},
    )

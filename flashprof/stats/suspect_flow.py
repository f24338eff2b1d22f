"""Suspects in the flow of data: loading, queues on either side, ranks that wait for each other, logging. Pure."""

from __future__ import annotations

from types import MappingProxyType

from flashprof.contracts.localisation import FrameChange
from flashprof.stats.suspect_case import Case, Cover, Finding, change, exact, percent, phase_ns
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.lanes import MAIN_THREAD

DATA_ROLE = "dispatcher"
DATA_PHASES = frozenset({"wait_work", "wait_data", "data_wait", "data", "dataloader", "load_data"})
"""Waiting for a batch, or fetching one, as trainers call it."""
DATA_FILES = ("torch/utils/data/dataloader.py", "torch/utils/data/_utils/fetch.py")
SYNC_PHASES = frozenset({"count_sync", "grad_sync", "all_reduce", "allreduce", "barrier"})
"""Waits for the other ranks of a role."""
LOG_PHASES = frozenset({"log", "metrics", "logging"})
LOG_FILES = ("logging/__init__.py", "tensorboard/", "wandb/")
QUEUE_PHASES = ("wait_hidden", "wait_room")
QUEUE_ENDS = MappingProxyType({"drafter": ("receive", "unpack"), "target": ("pack", "send")})
"""What a role does at its end of the queue: one that does so and has no wait beside it never waited."""
QUEUE_GAUGE = "queue"
"""Batches that wait for the drafter when it has finished a step."""
SPANS = 'three lines of flashprof.emit tell: `with emitter.span("…")`'


def data_starvation(case: Case) -> Finding:
    """What the dispatcher does, as far as it is waited for, and waits for data that nobody's work explains."""
    held = [frame for frame in case.frames if any(path in frame.where for path in DATA_FILES)]
    worked = [phase_ns(arm, _is_loading) for arm in case.arms]
    waited = [phase_ns(arm, _is_wait_for_data) for arm in case.arms]
    # Frames count only where no phase does: they would be the same time again.
    if all(value is None for value in (*worked, *waited)):
        if not held:
            return Finding(evidence="no phase loads data or waits for it", missing=SPANS)
        return Finding(evidence=_most(held), cover=case.in_frames(lambda frame: frame in held))
    cover = case.charged(lambda part: part.role == DATA_ROLE or part.phase in DATA_PHASES)
    loading = change(worked[0] or 0.0, worked[1] or 0.0)
    return Finding(
        evidence=f"loading took {loading}, waiting for it {change(waited[0] or 0.0, waited[1] or 0.0)}", cover=cover
    )


def empty_queue(case: Case) -> Finding:
    """The drafter waits for hidden states though no target works longer: the queue between them runs empty."""
    return _queue(case, "wait_hidden", "the drafter waited for hidden states")


def full_queue(case: Case) -> Finding:
    """The target waits for room, where that costs tokens; else it is slack of a drafter that limits."""
    return _queue(case, "wait_room", "the target waited for room in the queue")


def stragglers(case: Case) -> Finding:
    """Ranks wait for the slowest: only as much as the slowest rank's own work exceeds the mean."""
    roles = sorted({role for arm in case.arms for role in arm.trains})
    if roles and all(arm.num_ranks.get(role, 0) == 1 for arm in case.arms for role in roles):
        return Finding(evidence="one training rank in both arms: 0 others to wait for", cover=Cover())
    old, new = (phase_ns(arm, lambda _, phase: _is_sync(phase)) for arm in case.arms)
    if old is None and new is None:
        return Finding(evidence="no phase waits for other ranks", missing=SPANS)
    waited = case.charged(lambda part: part.kind == "wait" and _is_sync(part.phase))
    evidence = f"ranks waited {change(old or 0.0, new or 0.0)} for each other"
    role = next((role for role in roles if all(role in arm.steps for arm in case.arms)), "")
    if not role:
        return Finding(evidence=f"{evidence}, their own work is not known", missing=SPANS)
    spreads = [arm.per_token(arm.steps[role].spread_ns * arm.num_steps) for arm in case.arms]
    slowest = " → ".join(f"{arm.steps[role].slowest_share:.2f}" for arm in case.arms)
    evidence += (
        f"; the slowest rank of a step worked {change(spreads[0], spreads[1])} longer than the mean, {slowest} in all"
    )
    spread = exact(spreads[1] - spreads[0], is_clear=True)
    return Finding(
        evidence=evidence, cover=waited.within(spread), missing="NCCL_DEBUG=INFO shows what slows a collective"
    )


def logging(case: Case) -> Finding:
    """Phases that write down, and functions of loggers in other phases."""
    old, new = (phase_ns(arm, lambda _, phase: phase in LOG_PHASES) for arm in case.arms)
    held = [frame for frame in case.frames if _is_logger(frame)]
    if old is None and new is None and not held:
        return Finding(evidence="no phase writes a log", missing=SPANS)
    cover = case.charged(lambda part: part.phase in LOG_PHASES) + case.in_frames(lambda frame: frame in held)
    words = [f"logging and metrics took {change(old or 0.0, new or 0.0)}"] if old is not None or new is not None else []
    return Finding(evidence=", ".join([*words, *([_most(held)] if held else [])]), cover=cover)


def _queue(case: Case, phase: str, sentence: str) -> Finding:
    if not any(_has_queue(arm) for arm in case.arms):
        return Finding(evidence=f"no phase is called {' or '.join(QUEUE_PHASES)}", missing=SPANS)
    # A side that never waited has no such phase: it waited 0 ns.
    old, new = (phase_ns(arm, lambda _, name: name == phase) for arm in case.arms)
    cover = case.charged(lambda part: part.phase == phase and part.kind == "wait")
    evidence = f"{sentence} {change(old or 0.0, new or 0.0)}"
    depths = [arm.gauges.get(("drafter", QUEUE_GAUGE)) for arm in case.arms]
    if depths[0] and depths[1]:
        evidence += f", with {depths[0].mean:.2f} → {depths[1].mean:.2f} batches waiting"
    share = percent(min(1.0, max(0.0, cover.amount / case.difference_ns)))
    return Finding(evidence=f"{evidence}; {share} of the change is a wait that nobody's work explains", cover=cover)


def _has_queue(arm: ArmEvidence) -> bool:
    held = {(role, phase) for role, thread, phase in arm.phases if thread == MAIN_THREAD}
    ends = (all((role, phase) in held for phase in phases) for role, phases in QUEUE_ENDS.items())
    return any(phase in QUEUE_PHASES for _, phase in held) or any(ends)


def _is_loading(role: str, phase: str) -> bool:
    """Work of the dispatcher, and a trainer's own loading; not what waits for it."""
    return (role == DATA_ROLE or phase in DATA_PHASES) and "wait" not in phase


def _is_wait_for_data(role: str, phase: str) -> bool:
    return role != DATA_ROLE and phase in DATA_PHASES and "wait" in phase


def _is_sync(phase: str) -> bool:
    return phase in SYNC_PHASES


def _is_logger(frame: FrameChange) -> bool:
    return frame.phase not in LOG_PHASES and any(path in frame.where for path in LOG_FILES)


def _most(held: list[FrameChange]) -> str:
    largest = max(held, key=lambda frame: abs(frame.inclusive.estimate))
    return f"{largest.name} took {change(largest.base_ns_per_token, largest.candidate_ns_per_token)}"

"""Suspects in the subject's code: synchronisations, masks, compilation, the allocator, garbage collection. Pure."""

from __future__ import annotations

from functools import partial

from flashprof.contracts.localisation import FrameChange
from flashprof.stats.suspect_case import Case, Cover, Finding, change, cost, exact, phase_ns
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.lanes import MAIN_THREAD

SYNCHRONISING = frozenset(
    {
        "item",
        "tolist",
        "nonzero",
        "synchronize",
        "_local_scalar_dense",
        "_local_scalar_dense_cuda",
        "cudaStreamSynchronize",
        "cudaDeviceSynchronize",
        "cudaEventSynchronize",
        "cuStreamSynchronize",
        "cuCtxSynchronize",
    }
)
"""Functions that wait for the device, without class and namespace."""
SYNCHRONISING_CALLERS = frozenset({"clip_by_host", "SyncMetrics.push"})
"""Of our trainer: `.item()` is a C function, which shows under py-spy's --native only, so its callers stand for it."""
COLLECTING = frozenset({"gc_collect_main", "gc_collect_generations", "gc_collect_with_callback", "collect_generations"})
"""CPython's, as py-spy's --native names them."""
COMPILING = ("torch/_dynamo/convert_frame.py", "torch/_inductor/compile_fx.py")
"""Every compilation passes through these files."""
GC_GAUGE = "gc_s"
"""Seconds of the collections in a step, where a subject tells them."""
PAUSE_PHASE = "gc"
NATIVE = "py-spy record --native names calls in C"
STACKS = "flashprof run --set sampling.stacks=pyspy takes stack samples"


def host_synchronisations(case: Case) -> Finding:
    """
    Calls that make the host wait for the device.

    Such a call is where the wait shows, not what it waits for: what the device's own work grew by is taken off, and
    where a device stream is busy all the time the host's waiting is slack.
    """
    held = [frame for frame in case.frames if _is_synchronising(frame)]
    if case.is_on_cpu and not held:
        evidence = "both arms ran on the CPU: 0 devices to wait for, such calls cost their host work only"
        return Finding(evidence=evidence, cover=Cover())
    if not held:
        looked = (
            f"none of {len(case.frames)} functions in the stack samples waits for the device" if case.frames else ""
        )
        return Finding(evidence=looked or "no stack samples", missing=f"{'' if case.frames else STACKS + ', '}{NATIVE}")
    on_device = {part.role for part in case.parts if part.thread != MAIN_THREAD}
    cover, device_ns = Cover(), 0.0
    for role in sorted({frame.role for frame in held} - on_device):
        longer_ns = max(0.0, _device_change(case, role))
        counted = case.in_frames(partial(_synchronises_in, role))
        cover, device_ns = cover + _less(counted, longer_ns), device_ns + longer_ns
    largest = max(held, key=lambda frame: abs(frame.inclusive.estimate))
    evidence = (
        f"{len(held)} functions that synchronise, most in {largest.name} of the {largest.role}: "
        f"{change(largest.base_ns_per_token, largest.candidate_ns_per_token)}"
    )
    if case.is_on_cpu:
        return Finding(
            evidence=f"{evidence}; on a CPU they wait for nothing and cost only their host work", cover=cover
        )
    if on_device:
        evidence += "; where a device stream was busy all the time that is slack"
    if device_ns:
        evidence += f", of which the device worked {cost(device_ns)} longer"
    return Finding(evidence=evidence, cover=cover, missing=NATIVE)


def mask_building(case: Case) -> Finding:
    """The phase `mask`, and functions with `mask` in their names in other phases."""
    old, new = (phase_ns(arm, lambda _, phase: _is_mask(phase)) for arm in case.arms)
    held = [frame for frame in case.frames if _is_mask(frame.name) and not _is_mask(frame.phase)]
    if old is None and new is None and not held:
        looked = f" and no such function among {len(case.frames)} in the stack samples" if case.frames else ""
        return Finding(
            evidence=f"no phase is called mask{looked}", missing=_span("mask", "around what builds the mask")
        )
    in_phase = case.charged(lambda part: _is_mask(part.phase))
    cover = in_phase + case.in_frames(lambda frame: frame in held)
    words = [f"mask building took {change(old or 0.0, new or 0.0)}"] if old is not None or new is not None else []
    if held:
        largest = max(held, key=lambda frame: abs(frame.inclusive.estimate))
        words.append(f"{largest.name} took {change(largest.base_ns_per_token, largest.candidate_ns_per_token)}")
    return Finding(evidence=", ".join(words), cover=cover)


def recompilation(case: Case) -> Finding:
    """Marks of compiling and tuning within the windows, which lie behind the warm-up; else frames of the compiler."""
    if not any(arm.tells_compilations for arm in case.arms):
        held = [frame for frame in case.frames if any(path in frame.where for path in COMPILING)]
        if not held:
            missing = "TORCH_LOGS=recompiles prints them with reasons"
            return Finding(evidence="the subject does not mark its compilations", missing=missing)
        largest = max(held, key=lambda frame: abs(frame.inclusive.estimate))
        spent = change(largest.base_ns_per_token, largest.candidate_ns_per_token)
        cover = case.in_frames(lambda frame: frame in held)
        return Finding(evidence=f"torch's compiler ran for {spent} in the stack samples", cover=cover)
    roles = sorted({item.role for arm in case.arms for item in arm.compilations})
    cover = Cover()
    for role in roles:
        changed_ns = _compile_ns(case.candidate, role) - _compile_ns(case.base, role)
        cover += case.limited(exact(changed_ns, is_clear=changed_ns != 0), role)
    counts, times = ([text(arm) for arm in case.arms] for text in (_compilation_count, _compilation_time))
    reasons = dict.fromkeys(item.reason for item in case.candidate.compilations if item.reason)
    because = f"; {next(iter(reasons))}" if reasons else ""
    evidence = f"{' → '.join(counts)} compilations per 1,000 steps after warm-up, {' → '.join(times)} a token{because}"
    return Finding(evidence=evidence, cover=cover)


def allocator_retries(case: Case) -> Finding:
    """The device's allocator gave memory back and asked again: what the steps with retries took too long."""
    if case.is_on_cpu:
        return Finding(evidence="both arms ran on the CPU: 0 retries of a device's allocator", cover=Cover())
    roles = sorted({role for arm in case.arms for role in arm.allocators})
    if not roles:
        missing = "gauges of torch.cuda.memory_stats()['num_alloc_retries'] tell"
        return Finding(evidence="the subject does not mark what its allocator does", missing=missing)
    cover = Cover()
    for role in roles:
        old_ns, new_ns = (_excess_ns(arm, role) for arm in case.arms)
        cover += case.limited(exact(new_ns - old_ns, is_clear=new_ns != old_ns), role)
    retries = " → ".join(
        f"{arm.per_1000_steps(sum(use.num_retries for use in arm.allocators.values())):,.1f}" for arm in case.arms
    )
    excess = change(*(sum(_excess_ns(arm, role) for role in roles) for arm in case.arms))
    grown = " → ".join(f"{sum(use.grown_gib for use in arm.allocators.values()):,.2f}" for arm in case.arms)
    return Finding(
        evidence=f"{retries} retries per 1,000 steps, which made steps longer by {excess}; it grew by {grown} GiB",
        cover=cover,
    )


def garbage_collection(case: Case) -> Finding:
    """
    Pauses that a subject tells, or that show in native stack samples.

    Else only a bound: a collection now and then makes single steps longer, so the mean of a step's work exceeds its
    median by more. That may have other reasons, so it names nobody.
    """
    told = case.charged(lambda part: part.phase == PAUSE_PHASE)
    old, new = (phase_ns(arm, lambda _, phase: phase == PAUSE_PHASE) for arm in case.arms)
    if old is not None or new is not None:
        return Finding(evidence=f"garbage collection took {change(old or 0.0, new or 0.0)}", cover=told)
    held = [frame for frame in case.frames if _last(frame.name) in COLLECTING]
    if held:
        largest = max(held, key=lambda frame: abs(frame.inclusive.estimate))
        spent = change(largest.base_ns_per_token, largest.candidate_ns_per_token)
        return Finding(evidence=f"{largest.name} took {spent}", cover=case.in_frames(lambda frame: frame in held))
    if roles := sorted({role for arm in case.arms for role, name in arm.gauges if name == GC_GAUGE}):
        cover = Cover()
        for role in roles:
            old_ns, new_ns = (_gauge_ns(arm, role) for arm in case.arms)
            cover += case.limited(exact(new_ns - old_ns, is_clear=new_ns != old_ns), role)
        pauses = change(*(sum(_gauge_ns(arm, role) for role in roles) for arm in case.arms))
        return Finding(evidence=f"collections took {pauses}", cover=cover)
    return _long_steps(case)


def _long_steps(case: Case) -> Finding:
    roles = sorted({role for arm in case.arms for role in arm.trains})
    role = next((role for role in roles if all(_is_timed(arm, role) for arm in case.arms)), "")
    if not role:
        return Finding(evidence="no steps to look at", missing=_span(PAUSE_PHASE, "in gc.callbacks"))
    old, new = (arm.steps[role] for arm in case.arms)
    # Slower steps have a larger distance between mean and median, too: only what the ratio grew by may be pauses.
    ratios = [times.mean_ns / times.p50_ns for times in (old, new)]
    pauses_ns = case.candidate.per_token((ratios[1] - ratios[0]) * new.p50_ns * case.candidate.num_steps)
    cover = Cover(amount=0.0, low=min(0.0, pauses_ns), high=max(0.0, pauses_ns))
    evidence = (
        f"no pauses are told; a step's mean work is {ratios[0]:.3f} → {ratios[1]:.3f} of its median, which leaves "
        f"{cost(abs(pauses_ns))} a token for a change of pauses in single steps"
    )
    return Finding(evidence=evidence, cover=cover, missing=f"{NATIVE}, gc_collect_main among them")


def _is_timed(arm: ArmEvidence, role: str) -> bool:
    return role in arm.steps and arm.steps[role].p50_ns > 0


def _is_synchronising(frame: FrameChange) -> bool:
    return _last(frame.name) in SYNCHRONISING or frame.name in SYNCHRONISING_CALLERS


def _synchronises_in(role: str, frame: FrameChange) -> bool:
    return frame.role == role and _is_synchronising(frame)


def _is_mask(name: str) -> bool:
    return "mask" in name.lower()


def _last(name: str) -> str:
    """`_local_scalar_dense` of `at::native::_local_scalar_dense(at::Tensor const&)`."""
    return name.partition("(")[0].rpartition("::")[2].rpartition(".")[2].strip()


def _less(cover: Cover, amount_ns: float) -> Cover:
    """What is left of growth when *amount_ns* of it has another reason."""
    if not amount_ns:
        return cover
    return Cover(
        amount=max(0.0, cover.amount - amount_ns),
        low=max(0.0, cover.low - amount_ns),
        high=max(0.0, cover.high - amount_ns),
        is_clear=cover.is_clear and cover.amount > amount_ns,
    )


def _device_change(case: Case, role: str) -> float:
    """By which the role's device streams work longer, ns a token, mean over its ranks."""
    old, new = (
        arm.per_token(sum(row.work_ns for row in arm.lanes if row.lane.role == role and ":cuda" in row.lane.thread))
        / max(1, arm.num_ranks.get(role, 1))
        for arm in case.arms
    )
    return new - old


def _compile_ns(arm: ArmEvidence, role: str) -> float:
    """A token; ranks compile side by side, so the slowest counts."""
    by_rank: dict[int, float] = {}
    for item in arm.compilations:
        if item.role == role:
            by_rank[item.rank] = by_rank.get(item.rank, 0.0) + item.seconds
    return arm.per_token(max(by_rank.values(), default=0.0) * 1e9)


def _compilation_count(arm: ArmEvidence) -> str:
    return f"{arm.per_1000_steps(len(arm.compilations)):,.1f}"


def _compilation_time(arm: ArmEvidence) -> str:
    return cost(sum(_compile_ns(arm, role) for role in sorted({item.role for item in arm.compilations})))


def _excess_ns(arm: ArmEvidence, role: str) -> float:
    return arm.per_token(arm.allocators[role].excess_ns) if role in arm.allocators else 0.0


def _gauge_ns(arm: ArmEvidence, role: str) -> float:
    """Mean over the ranks, a token."""
    use = arm.gauges.get((role, GC_GAUGE))
    return arm.per_token(use.mean * use.num_values * 1e9) / arm.num_ranks.get(role, 1) if use else 0.0


def _span(phase: str, where: str) -> str:
    return f'`with emitter.span("{phase}")` {where} tells'

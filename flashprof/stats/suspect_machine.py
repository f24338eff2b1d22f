"""Suspects outside the code's lines: the GIL, cores, clocks, and what is installed. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, variance

from flashprof.contracts.results import ThreadRow
from flashprof.stats.disturbance import OWN_LOAD_REASONS
from flashprof.stats.sequential import t_quantile
from flashprof.stats.suspect_case import (
    Case,
    Cover,
    Finding,
    change,
    exact,
    main_threads,
    other_threads,
    percent,
)
from flashprof.windows.evidence import ArmEvidence
from flashprof.windows.lanes import MAIN_THREAD

LEVEL = 0.95
MIN_POINTS = 5.0
"""Per cent of a core. Between windows of one quiet launch a thread's figures differ by 1 to 3."""
MIN_REASON_SHARE = 0.25
"""What is seen in a quarter of the readings is how the machine is (ADR 8)."""
MIN_CLOCK_SHARE = 0.01
"""NVIDIA's clocks go by steps of 15 MHz, 0.8 % of 1,980."""
BUSY_THREAD_PCT = 50.0
"""A thread that runs half of the time wants a core of its own."""
NATIVE_THREADS = ("pt_autograd", "pt_nccl", "cuda", "jemalloc", "nvidia")
"""Begin the names of threads that run no Python, or only their own operators'."""
CHANGES = ("versions.", "machine.")
"""Facts of what is installed and how it is clocked."""
THREADS = "flashprof run --set sampling.resources=schedstat reads its threads"


def gil_contention(case: Case) -> Finding:
    """
    Another Python thread of a process holds the GIL while its main thread wants it.

    Costs at most the time in which others hold it, or run at all; and no more than the main thread stood still within
    its work phases: neither on a core nor waiting for one.
    """
    roles = [role for role in case.roles if all(role in arm.gil_shares or main_threads(arm, role) for arm in case.arms)]
    if not roles:
        missing = f"{THREADS}, py-spy record --gil shows who holds it"
        return Finding(evidence="the threads of the roles that are charged were not read", missing=missing)
    cover, words = Cover(), []
    for role in roles:
        added, text = _gil_of(case, role)
        cover += added
        words.append(text)
    return Finding(evidence="; ".join(words), cover=cover, missing="py-spy record --gil shows who holds it")


def oversubscription(case: Case) -> Finding:
    """
    Threads that could have run and did not: more busy ones than cores, ours or others'.

    Main threads are read in profile windows, all threads together in measure windows: where both are known, both must
    say so, and the smaller change counts.
    """
    roles = [role for role in case.roles if all(main_threads(arm, role) for arm in case.arms)]
    is_machine_read = all(arm.uses for arm in case.arms)
    if not roles and not is_machine_read:
        return Finding(evidence="neither threads nor the machine were read", missing=THREADS)
    covers, words = [], []
    if roles:
        added, text = _waits_for_a_core(case, roles)
        covers.append(added)
        words.append(text)
    if is_machine_read:
        delays = [fmean(use.delay_share for use in arm.uses) for arm in case.arms]
        others = " → ".join(f"{fmean(u.other_cores + u.stolen_cores for u in arm.uses):.2f}" for arm in case.arms)
        covers.append(_delayed(case))
        words.append(f"all threads {percent(delays[0])} → {percent(delays[1])} of what they could have run")
        words.append(f"others used {others} cores")
    words.append(_busy(case))
    return Finding(evidence=", ".join(word for word in words if word), cover=_both(covers))


def throttling(case: Case) -> Finding:
    """Lower clocks: the device's work is longer by as much, as far as the device was busy."""
    both = [(old, new) for old in case.base.gpus for new in case.candidate.gpus if old.index == new.index]
    told = [(old, new) for old, new in both if old.sm_clock_mhz and new.sm_clock_mhz]
    if not told:
        missing = "turbostat --interval 5 beside the run tells the CPU's"
        if case.is_on_gpu:
            missing = (
                "nvidia-smi --query-gpu=clocks.sm,clocks_event_reasons.active --format=csv -l 1 beside the run tells"
            )
        return Finding(evidence="no clocks were read", missing=missing)
    lost = [(old.sm_clock_mhz / new.sm_clock_mhz - 1) * old.busy_pct / 100 for old, new in told]
    slowest = max(told, key=lambda pair: pair[0].sm_clock_mhz / pair[1].sm_clock_mhz)
    drop = 1 - slowest[1].sm_clock_mhz / slowest[0].sm_clock_mhz
    reasons = [_reason_share(arm) for arm in case.arms]
    is_clear = abs(drop) >= MIN_CLOCK_SHARE
    evidence = (
        f"GPU {slowest[0].index} ran at {slowest[0].sm_clock_mhz:,.0f} → {slowest[1].sm_clock_mhz:,.0f} MHz, "
        f"{slowest[0].busy_pct:.0f} → {slowest[1].busy_pct:.0f} % busy, clocks lowered in {percent(reasons[0])} → "
        f"{percent(reasons[1])} of the readings{_new_reasons(case)}"
    )
    # Ranks wait for the slowest: the GPU that lost most counts.
    return Finding(evidence=evidence, cover=exact(max(lost) * case.base.ns_per_token, is_clear=is_clear))


def changed_facts(case: Case) -> Finding:
    """
    Versions, drivers, clocks and hardware that are not the same.

    How much they cost is not seen in any phase. They are the cause by elimination where nothing else differs between
    the cells, and else unknown.
    """
    old, new = case.base.facts, case.candidate.facts
    if not old or not new:
        return Finding(
            evidence="the facts of a cell are not known", missing="flashprof run writes them into its manifest"
        )
    differing = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    held = [name for name in differing if name.startswith(CHANGES)]
    num_facts = sum(name.startswith(CHANGES) for name in {*old, *new})
    if not held:
        return Finding(evidence=f"0 of {num_facts} versions, drivers and clocks differ", cover=Cover())
    listed = ", ".join(f"{name} {old.get(name, '(absent)')} → {new.get(name, '(absent)')}" for name in held[:3])
    evidence = f"{len(held)} of {num_facts} versions, drivers and clocks differ: {listed}"
    if len(held) == len(differing):
        return Finding(
            evidence=f"{evidence}; nothing else of the cells does", cover=exact(case.difference_ns, is_clear=True)
        )
    missing = (
        f"so do {len(differing) - len(held)} other facts, flashprof compare of arms that differ in these alone tells"
    )
    return Finding(evidence=evidence, missing=missing)


def _gil_of(case: Case, role: str) -> tuple[Cover, str]:
    sampled = all(role in arm.gil_shares for arm in case.arms)
    old, new = (100 * arm.gil_shares[role] if sampled else _others_pct(arm, role) for arm in case.arms)
    held_ns = _core_ns(case.candidate, new) - _core_ns(case.base, old)
    verb = "held the GIL" if sampled else "ran"
    words = f"other threads of the {role} {verb} {old:.1f} → {new:.1f} % of the time"
    is_clear, amount_ns = abs(new - old) >= MIN_POINTS, held_ns
    stood = [_stood_still_ns(arm, role) for arm in case.arms]
    if stood[0] is not None and stood[1] is not None:
        words += f", its main thread stood still {change(stood[0], stood[1])} within its work"
        amount_ns = min(held_ns, max(0.0, stood[1] - stood[0])) if held_ns > 0 else held_ns
    if not sampled:
        switches = [_mean(main_threads(arm, role), lambda row: row.voluntary_switches_per_s) for arm in case.arms]
        words += f" and gave up its core {switches[0]:,.0f} → {switches[1]:,.0f} times a second"
        is_clear = is_clear and switches[1] > switches[0]
    bound = Cover(amount=amount_ns, low=min(amount_ns, held_ns), high=max(amount_ns, held_ns), is_clear=is_clear)
    return case.limited(bound, role), words


def _others_pct(arm: ArmEvidence, role: str) -> float:
    """CPU of the Python threads beside the main one, % of a core, mean over ranks."""
    rows = [row for row in other_threads(arm, role) if not row.thread.startswith(NATIVE_THREADS)]
    return sum(row.usr_pct + row.system_pct for row in rows) / max(1, len(main_threads(arm, role)))


def _stood_still_ns(arm: ArmEvidence, role: str) -> float | None:
    """Time of work phases in which the main thread neither ran nor waited for a core, a token."""
    rows = main_threads(arm, role)
    lanes = [row for row in arm.lanes if row.lane.role == role and row.lane.thread == MAIN_THREAD]
    if not rows or not lanes:
        return None
    on_core_pct = _mean(rows, lambda row: row.usr_pct + row.system_pct + row.wait_pct)
    return max(0.0, arm.per_token(fmean(row.work_ns for row in lanes)) - _core_ns(arm, on_core_pct))


def _core_ns(arm: ArmEvidence, pct: float) -> float:
    """Per cent of the time, as ns a token."""
    return pct / 100 * arm.ns_per_token


def _mean(rows: Sequence[ThreadRow], value: Callable[[ThreadRow], float]) -> float:
    return fmean(value(row) for row in rows)


def _waits_for_a_core(case: Case, roles: Sequence[str]) -> tuple[Cover, str]:
    cover, words = Cover(), []
    for role in roles:
        old, new = (_mean(main_threads(arm, role), lambda row: row.wait_pct) for arm in case.arms)
        changed_ns = _core_ns(case.candidate, new) - _core_ns(case.base, old)
        cover += case.limited(exact(changed_ns, is_clear=abs(new - old) >= MIN_POINTS), role)
        words.append(f"the {role} waited for a core {old:.1f} → {new:.1f} % of the time")
    return cover, ", ".join(words)


def _delayed(case: Case) -> Cover:
    """As if the training lane had been held up like all threads together; the windows tell how sure that is."""
    base, candidate = ([use.delay_share * _work_ns(arm) for use in arm.uses] for arm in case.arms)
    amount = fmean(candidate) - fmean(base)
    if min(len(base), len(candidate)) < 2:
        least_ns = MIN_POINTS / 100 * case.base.ns_per_token
        cover = exact(amount, is_clear=abs(amount) >= least_ns)
    else:
        error = math.sqrt(variance(base) / len(base) + variance(candidate) / len(candidate))
        half = t_quantile(min(len(base), len(candidate)) - 1, tail=(1 - LEVEL) / 2) * error
        cover = Cover(amount=amount, low=amount - half, high=amount + half, is_clear=True)
    return cover if not case.parts else cover.within(sum((case.limit(role) for role in case.roles), Cover()))


def _both(covers: Sequence[Cover]) -> Cover:
    """The smaller one, as unsure as all of them."""
    return Cover(
        amount=min((cover.amount for cover in covers), key=abs),
        low=min(cover.low for cover in covers),
        high=max(cover.high for cover in covers),
        is_clear=all(cover.is_clear for cover in covers),
    )


def _work_ns(arm: ArmEvidence) -> float:
    """Work of the training lanes, a token."""
    lanes = [row.work_ns for row in arm.lanes if row.lane.role in arm.trains and row.lane.thread == MAIN_THREAD]
    return arm.per_token(fmean(lanes)) if lanes else arm.ns_per_token


def _busy(case: Case) -> str:
    counts = [
        sum(row.usr_pct + row.system_pct + row.wait_pct >= BUSY_THREAD_PCT for row in arm.threads) for arm in case.arms
    ]
    cores = case.candidate.facts.get("machine.num_cores", "")
    threads = f"{counts[0]} → {counts[1]} busy threads" if any(arm.threads for arm in case.arms) else ""
    return f"{threads} on {cores} cores" if threads and cores else threads


def _reason_share(arm: ArmEvidence) -> float:
    """The most frequent reason of the GPU that has it most; a power cap is the subject's own load."""
    return max((share for gpu in arm.gpus for reason, share in gpu.reasons.items() if _is_foreign(reason)), default=0.0)


def _new_reasons(case: Case) -> str:
    shares = {reason: share for gpu in case.candidate.gpus for reason, share in gpu.reasons.items()}
    named = [reason for reason, share in shares.items() if share >= MIN_REASON_SHARE]
    return f": {', '.join(named)}" if named else ""


def _is_foreign(reason: str) -> bool:
    return not reason.endswith(OWN_LOAD_REASONS)

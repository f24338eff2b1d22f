"""
The usual suspects of a slower trainer, each ruled in or out by its evidence. Pure.

A suspect is named only where its evidence covers most of the change: that something grew beside it is no cause. What
was not measured rules nothing out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType

from flashprof.contracts.localisation import FrameChange, Part, Ruling, Suspect
from flashprof.stats import suspect_code, suspect_flow, suspect_machine
from flashprof.stats.suspect_case import Case, Finding, percent
from flashprof.windows.evidence import ArmEvidence

MOST = 0.5
"""A suspect that covers half of the change or more is named: no two that exclude each other can both cover more."""
LITTLE = 0.05
"""Less cannot be what a verdict is about: at a tolerance of 2 % it is 0.1 % of tok/s, below any window's noise."""
MEASURE_LONGER = "more windows tell: `flashprof compare` with a larger --budget"

RULES: MappingProxyType[str, Callable[[Case], Finding]] = MappingProxyType(
    {
        "host synchronisations": suspect_code.host_synchronisations,
        "mask building": suspect_code.mask_building,
        "recompilation": suspect_code.recompilation,
        "allocator retries": suspect_code.allocator_retries,
        "GIL contention": suspect_machine.gil_contention,
        "garbage collection": suspect_code.garbage_collection,
        "CPU oversubscription": suspect_machine.oversubscription,
        "data starvation": suspect_flow.data_starvation,
        "queue starvation, drafter": suspect_flow.empty_queue,
        "queue starvation, target": suspect_flow.full_queue,
        "stragglers": suspect_flow.stragglers,
        "throttling": suspect_machine.throttling,
        "logging": suspect_flow.logging,
        "clock or library changes": suspect_machine.changed_facts,
    }
)
"""In the order of a report: the subject's code, its processes, its flow, the machine."""


def suspects(
    base: ArmEvidence,
    candidate: ArmEvidence,
    parts: Sequence[Part],
    frames: Sequence[FrameChange],
    difference_ns_per_token: float,
) -> tuple[Suspect, ...]:
    """
    Rule on every suspect.

    Args:
        base: All launches of one arm.
        candidate: Of the other.
        parts: What each phase has of the change; without a clear one nobody is named.
        frames: What changed in the stack samples; empty where none were taken.
        difference_ns_per_token: The change, candidate − base.

    Returns:
        All of `RULES`, in that order.
    """
    case = Case(base=base, candidate=candidate, parts=parts, frames=frames, difference_ns=difference_ns_per_token)
    if not math.isfinite(difference_ns_per_token) or difference_ns_per_token == 0:
        return tuple(Suspect(name=name, ruling=Ruling.UNKNOWN, evidence="there is no change") for name in RULES)
    return tuple(_ruled(name, rule(case), case) for name, rule in RULES.items())


def _ruled(name: str, finding: Finding, case: Case) -> Suspect:
    cover = finding.cover
    if cover is None:
        evidence = "; ".join(text for text in (finding.evidence, finding.missing) if text)
        return Suspect(name=name, ruling=Ruling.UNKNOWN, evidence=evidence)
    share = float(min(1.0, max(0.0, cover.amount / case.difference_ns)))
    at_most = max(cover.low / case.difference_ns, cover.high / case.difference_ns)
    if at_most < LITTLE:
        return Suspect(name=name, ruling=Ruling.RULED_OUT, evidence=finding.evidence, share=share)
    is_clear = cover.is_clear and (cover.low > 0 or cover.high < 0) and share > 0
    if is_clear and share < MOST:
        return Suspect(name=name, ruling=Ruling.PART, evidence=finding.evidence, share=share)
    if is_clear and _has_clear_part(case):
        return Suspect(name=name, ruling=Ruling.NAMED, evidence=finding.evidence, share=share)
    doubt = (
        "no phase changed clearly"
        if is_clear
        else f"it may be up to {percent(min(1.0, at_most))} of the change or nothing"
    )
    missing = finding.missing or MEASURE_LONGER
    return Suspect(name=name, ruling=Ruling.UNKNOWN, evidence=f"{finding.evidence}; {doubt}: {missing}", share=share)


def _has_clear_part(case: Case) -> bool:
    """In the direction of the change."""
    return any(part.is_clear and part.charge.estimate * case.difference_ns > 0 for part in case.parts)

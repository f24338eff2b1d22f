"""Localisations as app/localise.py would give them."""

from __future__ import annotations

import math
from dataclasses import replace

from flashprof.contracts.localisation import (
    FrameChange,
    FrameStatus,
    Localisation,
    Part,
    ResourceChange,
    Ruling,
    Suspect,
)
from flashprof.contracts.results import Interval


def interval(estimate: float, half: float) -> Interval:
    return Interval(
        estimate=estimate, low=estimate - half, high=estimate + half, level=0.95, num_samples=12, method="redraws"
    )


def part(phase: str, charge: float, half: float, total: float, **fields: object) -> Part:
    values: dict[str, object] = {
        "role": "drafter",
        "kind": "work",
        "base_ns_per_token": 2_400.0,
        "candidate_ns_per_token": 2_400.0 + charge,
        "charge": interval(charge, half),
        "share": charge / total if total else 0.0,
        "is_clear": abs(charge) > half,
        **fields,
    }
    return Part(phase=phase, **values)  # type: ignore[arg-type]


def frame(name: str, own: float, half: float = 500.0, **fields: object) -> FrameChange:
    values: dict[str, object] = {
        "role": "drafter",
        "where": "pipeline/train/masks.py:41",
        "phase": "mask",
        "base_ns_per_token": 1_900.0,
        "candidate_ns_per_token": 1_900.0 + own,
        "inclusive": interval(own, half),
        "own": interval(own, half),
        "is_clear": abs(own) > half,
        **fields,
    }
    return FrameChange(name=name, **values)  # type: ignore[arg-type]


def localisation(difference: Interval, *parts: Part, **fields: object) -> Localisation:
    values: dict[str, object] = {
        "base": "compile,swa",
        "candidate": "none",
        "base_ns_per_token": 200_000.0,
        "limiting": ("drafter", "drafter"),
        "explained_share": sum(part.share for part in parts if part.is_clear),
        "num_windows": (24, 24),
        "num_launches": (4, 4),
        **fields,
    }
    return Localisation(difference=difference, parts=parts, **values)  # type: ignore[arg-type]


def suspects() -> tuple[Suspect, ...]:
    return (
        Suspect(
            name="GIL contention", ruling=Ruling.UNKNOWN, evidence="no threads were read; py-spy record --gil does"
        ),
        Suspect(name="logging", ruling=Ruling.RULED_OUT, evidence="logging took 0.14 µs → 0.15 µs a token"),
        Suspect(name="stragglers", ruling=Ruling.PART, evidence="waits for others: 0 ns → 3.1 µs a token", share=0.08),
        Suspect(name="mask building", ruling=Ruling.NAMED, evidence="masks took 2.4 µs → 41.4 µs a token", share=0.94),
    )


def resources() -> tuple[ResourceChange, ...]:
    return (
        ResourceChange(place="GPU 0", name="busy", unit="%", base=91.0, candidate=78.5),
        ResourceChange(
            place="drafter 0/MainThread",
            name="involuntary switches",
            unit="/s",
            base=12.0,
            candidate=231.0,
            difference=interval(219.0, 40.0),
            is_clear=True,
        ),
    )


def one_phase() -> Localisation:
    """94 % is one phase, in one frame."""
    total = 41_500.0
    return localisation(
        interval(total, 5_200.0),
        part("mask", 39_000.0, 3_000.0, total, first_share=0.99),
        part("forward", 2_500.0, 4_100.0, total, base_ns_per_token=61_000.0, candidate_ns_per_token=63_500.0),
        frames=(
            frame("MaskFactory._build_masks", 38_200.0, 4_000.0),
            frame("attend", 1_100.0, 1_900.0, phase="forward", where="pipeline/model/drafter.py:179"),
            frame("visible", 900.0, 300.0, status=FrameStatus.RENAMED, was="_visible"),
        ),
        resources=resources(),
        suspects=suspects(),
        notes=("the samplers saw 3 of 4 launches",),
    )


def chained() -> Localisation:
    """Two phases of the target reach the drafter through its wait; a wait of its own, a gain, and a rest."""
    total = 60_000.0
    chain = ("drafter wait_hidden",)
    return localisation(
        interval(total, 9_000.0),
        part("forward", 36_000.0, 4_000.0, total, role="target", through=chain, first_share=0.97),
        part("wait_hidden", 12_000.0, 5_000.0, total, kind="wait"),
        part("gather", 9_600.0, 4_000.0, total, role="target", through=chain, thread="main:cuda0"),
        part("backward", 12_000.0, 14_000.0, total),
        part("mask", -9_600.0, 2_000.0, total),
        limiting=("drafter", "target"),
    )


def faster() -> Localisation:
    """A gain."""
    total = -30_000.0
    return localisation(
        interval(total, 4_000.0),
        part("loss", -29_000.0, 3_000.0, total, first_share=1.0),
        part("metrics", -1_000.0, 2_000.0, total),
        base="none",
        candidate="fused-loss",
    )


def unclear() -> Localisation:
    """Windows alone do not tell, though one phase does."""
    total = 9_000.0
    return localisation(
        interval(total, 12_000.0), part("mask", 8_000.0, 1_000.0, total), part("loss", 1_000.0, 9_000.0, total)
    )


def blurred() -> Localisation:
    """It fell, and no phase is clear."""
    total = 20_000.0
    return localisation(interval(total, 4_000.0), part("mask", 12_000.0, 15_000.0, total))


def bare() -> Localisation:
    """Nothing but the change."""
    return localisation(interval(41_500.0, 5_200.0), limiting=("", ""), num_windows=(0, 0), num_launches=(0, 0))


def odd() -> Localisation:
    """Nothing in it is a number."""
    nan = Interval(estimate=math.nan, low=-math.inf, high=math.inf, level=0.95, num_samples=0, method="")
    found = one_phase()
    return replace(
        found,
        base_ns_per_token=math.nan,
        difference=nan,
        parts=tuple(replace(it, charge=nan, share=math.nan, candidate_ns_per_token=math.nan) for it in found.parts),
        explained_share=math.nan,
        frames=tuple(replace(it, own=nan, inclusive=nan) for it in found.frames),
        resources=tuple(replace(it, base=math.nan, candidate=math.inf, difference=nan) for it in found.resources),
        suspects=tuple(replace(it, share=math.nan) for it in found.suspects),
    )


def hostile(text: str) -> Localisation:
    """*text* wherever a run can put its own."""
    found = one_phase()
    return replace(
        found,
        base=text,
        candidate=text,
        limiting=(text, text),
        parts=tuple(replace(it, role=text, phase=text, thread=text, through=(text,)) for it in found.parts),
        frames=tuple(
            replace(it, name=text, where=text, role=text, phase=text, was=text, status=FrameStatus.RENAMED)
            for it in found.frames
        ),
        resources=tuple(replace(it, place=text, name=text, unit=text) for it in found.resources),
        suspects=tuple(replace(it, name=text, evidence=text) for it in found.suspects),
        notes=(text,),
    )

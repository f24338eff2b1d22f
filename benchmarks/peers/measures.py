"""From what the systems' processes found to the study's measures (kind `peers`), and the table that is printed last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.peers.record import Parts
from benchmarks.peers.work import Work, drafter_tflop
from benchmarks.results_file import Goal, Measure

PEERS = ("speculators", "specforge")
OURS = "flashprof"
Found = Mapping[str, Parts]


def to_measures(found: Found, work: Work) -> list[Measure]:
    """Every number that could be had; a ratio needs both sides."""
    return [
        *_drafter(found, work),
        *_target(found),
        *_both(found),
        *_varying(found),
        *_warm_up(found),
        *_agreement(found),
    ]


def table(found: Found) -> str:
    """A row a part of a system: times, rates, memory, or why there are none."""
    lines = [f"{'system':13}{'part':15}{'ms':>9}{'tok/s':>9}{'GiB':>7}{'graphs':>8}  note"]
    for system, parts in found.items():
        for part, value in parts.items():
            if "step_ms" in value or "error" in value:
                lines.append(_row(system, part, value))
            for inner in ("varying", "first_pass"):
                if inner in value:
                    lines.append(_row(system, f"  {inner}", value[inner]))
    return "\n".join(lines)


def _row(system: str, part: str, value: Mapping[str, Any]) -> str:
    if "error" in value:
        return f"{system:13}{part:15}{'':33}  {value['error'][:120]}"
    return (
        f"{system:13}{part:15}{value['step_ms']:9.2f}{value['tok_per_s']:9,.0f}"
        f"{value['peak_gib']:7.1f}{value['num_compiled']:8d}"
    )


def _value(found: Found, system: str, part: str, name: str) -> float | None:
    return found.get(system, {}).get(part, {}).get(name)


def _fastest_ms(found: Found, peer: str) -> float | None:
    """Of the ways in which the peer's step was run."""
    ways = (_value(found, peer, part, "step_ms") for part in ("fixed", "eager_loss"))
    return min((step_ms for step_ms in ways if step_ms), default=None)


def _drafter(found: Found, work: Work) -> Iterator[Measure]:
    ours_ms = _value(found, OURS, "fixed", "step_ms")
    times = {peer: step_ms for peer in PEERS if (step_ms := _fastest_ms(found, peer))}
    for system in (OURS, *PEERS):
        yield from _number(f"drafter_{system}", _value(found, system, "fixed", "step_ms"), "ms")
        yield from _number(f"drafter_{system}_peak", _value(found, system, "fixed", "peak_gib"), "GiB")
    if ours_ms is not None:
        note = f"{drafter_tflop(work):.1f} TFLOP a step, by `benchmarks.peers.work.drafter_tflop`"
        yield Measure(
            name="drafter_flashprof_rate", value=drafter_tflop(work) / ours_ms * 1e3, unit="TFLOP/s", note=note
        )
    if ours_ms is None or not times:
        return
    fastest = min(times, key=times.__getitem__)
    yield Measure(
        name="drafter_ratio",
        value=times[fastest] / ours_ms,
        unit="times",
        goal=Goal(low=1.4),
        note=f"{fastest}, the fastest peer that ran, over ours" + ("" if len(times) == len(PEERS) else "; one did not"),
    )
    labels_ms = _value(found, "speculators", "labels", "step_ms")
    if labels_ms is not None and "speculators" in times:
        equal = times | {"speculators": times["speculators"] - labels_ms}
        yield Measure(
            name="drafter_ratio_equal_labels",
            value=min(equal.values()) / ours_ms,
            unit="times",
            goal=Goal(low=1.4),
            note=f"speculators without the {labels_ms:.1f} ms in which it makes its labels from verifier logits",
        )


def _target(found: Found) -> Iterator[Measure]:
    ours_ms = _value(found, OURS, "target", "step_ms")
    yield from _number("target_flashprof", ours_ms, "ms")
    for way in ("logits", "layers", "stop"):
        step_ms = _value(found, "transformers", f"target_{way}", "step_ms")
        yield from _number(f"target_{way}", step_ms, "ms")
        if ours_ms is not None and step_ms is not None:
            goal = Goal(low=1.3) if way == "logits" else None
            yield Measure(name=f"target_ratio_{way}", value=step_ms / ours_ms, unit="times", goal=goal)


def _both(found: Found) -> Iterator[Measure]:
    rates = {system: _value(found, system, "both", "tok_per_s") for system in (OURS, *PEERS)}
    for system, tok_per_s in rates.items():
        yield from _number(f"both_{system}", tok_per_s, "tok/s")
    peers = [rate for peer in PEERS if (rate := rates[peer])]
    if rates[OURS] and peers:
        note = "the better of the peers with transformers' target and logits, measured together as ours is"
        yield Measure(name="both_ratio", value=rates[OURS] / max(peers), unit="times", goal=Goal(low=1.4), note=note)


def _varying(found: Found) -> Iterator[Measure]:
    for system in (OURS, *PEERS):
        fixed, varying = (_value(found, system, part, "tok_per_s") for part in ("fixed", "varying"))
        if fixed and varying:
            yield _cost(f"drafter_{system}_varying", fixed, varying, goal=Goal(high=5.0) if system == OURS else None)
        steps = [_value(found, system, part, "step_ms") for part in ("fixed", "varying")]
        if all(steps):
            yield _step_ratio(system, *steps)
        goal = Goal(high=0.0) if system == OURS else None
        yield from _number(
            f"drafter_{system}_recompiled", _value(found, system, "varying", "num_compiled"), "graphs", goal
        )
    target = found.get(OURS, {}).get("target", {})
    if "varying" in target:
        yield _cost(
            "target_flashprof_varying", target["tok_per_s"], target["varying"]["tok_per_s"], goal=Goal(high=5.0)
        )
        yield from _number("target_flashprof_recompiled", target["varying"]["num_compiled"], "graphs", Goal(high=0.0))


def _warm_up(found: Found) -> Iterator[Measure]:
    for system in (OURS, *PEERS):
        warmup = found.get(system, {}).get("warmup", {})
        if "warmup_s" in warmup:
            yield Measure(
                name=f"warmup_{system}",
                value=warmup["warmup_s"],
                unit="s",
                goal=Goal(high=60.0) if system == OURS else None,
                note=f"cold caches; {warmup['num_compiled']} graphs",
            )


def _agreement(found: Found) -> Iterator[Measure]:
    ours = _value(found, OURS, "warmup", "loss")
    for peer in PEERS:
        theirs = _value(found, peer, "warmup", "loss")
        if ours is not None and theirs is not None:
            yield Measure(
                name=f"loss_{peer}_apart",
                value=abs(theirs - ours) / abs(ours),
                unit="relative",
                goal=Goal(high=2e-3),
                note=f"loss {theirs:.5f} there, {ours:.5f} ours, same weights and batch; 2^-9 is bfloat16's half step",
            )


def _step_ratio(system: str, fixed_ms: float, varying_ms: float) -> Measure:
    # Ours and speculators' train the same number of blocks a step, whatever its lengths: what is left is their cost.
    goal = Goal(high=1.05) if system == OURS else None
    note = "blocks a step vary with padding" if system == "specforge" else "the same number of blocks a step"
    return Measure(
        name=f"drafter_{system}_varying_step", value=varying_ms / fixed_ms, unit="times", goal=goal, note=note
    )


def _number(name: str, value: float | None, unit: str, goal: Goal | None = None) -> Iterator[Measure]:
    if value is not None:
        yield Measure(name=name, value=float(value), unit=unit, goal=goal)


def _cost(name: str, fixed: float, varying: float, *, goal: Goal | None) -> Measure:
    note = "tok/s lost against the fixed length; padding and rows that the budget does not fill are in it"
    return Measure(name=f"{name}_cost", value=100 * (1 - varying / fixed), unit="%", goal=goal, note=note)
